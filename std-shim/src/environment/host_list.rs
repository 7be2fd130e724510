//! The hosts of a job: `a:4,b:4`.

use core::{fmt, str::FromStr};
use unisono_bootstrap::SIZE_MAX;

/// Hosts with the number of ranks that each takes: `a:4,b:4`. A host without a number takes one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostList(Vec<(String, u32)>);

impl HostList {
    /// Each host with its number of ranks.
    ///
    /// ```
    /// use unisono::environment::HostList;
    ///
    /// let hosts: HostList = "a:4,b:2".parse()?;
    /// assert_eq!(hosts.hosts(), [("a".to_owned(), 4), ("b".to_owned(), 2)]);
    /// # Ok::<(), unisono::environment::HostListError>(())
    /// ```
    pub fn hosts(&self) -> &[(String, u32)] {
        &self.0
    }
}

impl FromStr for HostList {
    type Err = HostListError;

    fn from_str(text: &str) -> Result<Self, HostListError> {
        let mut hosts: Vec<(String, u32)> = Vec::new();
        let mut total = 0_u32;
        for part in text.split(',') {
            let (name, slots) = match part.rsplit_once(':') {
                // An IPv6 address is written in brackets.
                Some((name, slots)) if !slots.ends_with(']') => {
                    (name, slots.parse().ok().filter(|slots| *slots > 0).ok_or(HostListError::Slots)?)
                }
                _ => (part, 1),
            };
            let bracketed = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
            let allowed = |character: char| {
                character.is_ascii_alphanumeric()
                    || "-._@%".contains(character)
                    || (character == ':' && bracketed.is_some())
            };
            let name = bracketed.unwrap_or(name);
            // The name becomes an argument of the remote shell: it must not look like an option.
            if name.is_empty() || name.starts_with('-') || name.len() > 255 || !name.chars().all(allowed) {
                return Err(HostListError::Name);
            }
            if hosts.iter().any(|(known, _)| known == name) {
                return Err(HostListError::Duplicate);
            }
            total = total.checked_add(slots).filter(|total| *total <= SIZE_MAX).ok_or(HostListError::Slots)?;
            hosts.push((name.to_owned(), slots));
        }
        Ok(Self(hosts))
    }
}

/// Why a text is not a list of hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HostListError {
    /// A name is missing or has characters that no name has.
    #[error("expected hosts with their numbers of ranks, such as a:4,b:4")]
    Name,
    /// A number of ranks is zero, too large or not a number.
    #[error("a host must take at least 1 rank, and all hosts together at most {SIZE_MAX}")]
    Slots,
    /// A host is listed twice.
    #[error("a host is listed twice")]
    Duplicate,
}

impl fmt::Display for HostList {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, slots)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            if name.contains(':') {
                write!(to, "{comma}[{name}]:{slots}")?;
            } else {
                write!(to, "{comma}{name}:{slots}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_and_printed() {
        for text in ["a:4,b:4", "user@node-7.cluster:1", "[fe80::1]:2"] {
            assert_eq!(text.parse::<HostList>().expect(text).to_string(), text);
        }
        assert_eq!("a,[::1]".parse::<HostList>().expect("one each").to_string(), "a:1,[::1]:1");
    }

    #[test]
    fn bad_hosts_are_refused() {
        for text in ["", "a:4,", ":4", "-oProxyCommand=x:1", "a b", "a;b:1"] {
            assert_eq!(text.parse::<HostList>(), Err(HostListError::Name), "{text}");
        }
        for text in ["a:0", "a:-1", "a:x", "a:16777217", "a:16777216,b:1"] {
            assert_eq!(text.parse::<HostList>(), Err(HostListError::Slots), "{text}");
        }
        assert_eq!("a:1,a:2".parse::<HostList>(), Err(HostListError::Duplicate));
    }
}
