//! Where multicast groups are: `off`, or the address of the first one, `239.255.7.0`, `239.255.7.0:4711`,
//! `[ff15::7]:4711%eth1`.

use core::net::{IpAddr, SocketAddr};
use core::{fmt, str::FromStr};

/// The multicast groups of a job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MulticastChoice {
    /// None: collectives that ask for multicast use other algorithms.
    Off,
    /// At addresses and a port derived from the job's secret.
    #[default]
    Auto,
    /// At addresses from this one on.
    At(GroupBase),
}

/// The first of a job's groups. The addresses of the others differ in their last 16 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GroupBase {
    /// Its address, which is a multicast address.
    pub address: IpAddr,
    /// The port of all groups. `None`: derived from the job's secret.
    pub port: Option<u16>,
    /// The interface. `None`: the one of the process's own address.
    pub interface: Option<InterfaceName>,
}

/// Longest name of an interface in bytes (`IFNAMSIZ` − 1).
const NAME_MAX: usize = 15;

/// The name of a network interface.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct InterfaceName {
    bytes: [u8; NAME_MAX],
    length: u8,
}

impl InterfaceName {
    pub(crate) fn new(name: &str) -> Option<Self> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let mut bytes = [0; NAME_MAX];
        let is_plain = !name.is_empty() && name.bytes().all(allowed) && !name.starts_with('.');
        bytes.get_mut(..name.len()).filter(|_| is_plain)?.copy_from_slice(name.as_bytes());
        Some(Self { bytes, length: name.len() as u8 })
    }

    /// As text.
    ///
    /// ```
    /// use unisono::environment::MulticastChoice;
    ///
    /// let Ok(MulticastChoice::At(base)) = "239.255.7.0%lo".parse() else { panic!("an address") };
    /// assert_eq!(base.interface.map(|interface| interface.as_str().to_owned()), Some("lo".to_owned()));
    /// ```
    pub fn as_str(&self) -> &str {
        self.bytes.get(..self.length.into()).and_then(|bytes| core::str::from_utf8(bytes).ok()).unwrap_or_default()
    }

    /// Its index in this network namespace. `None`: there is no such interface.
    ///
    /// ```
    /// use unisono::environment::MulticastChoice;
    ///
    /// let Ok(MulticastChoice::At(base)) = "239.255.7.0%nowhere9".parse() else { panic!("an address") };
    /// assert_eq!(base.interface.and_then(|interface| interface.index()), None);
    /// ```
    pub fn index(&self) -> Option<u32> {
        let file = format!("/sys/class/net/{}/ifindex", self.as_str());
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    }
}

impl MulticastChoice {
    /// Whether there are groups.
    ///
    /// ```
    /// use unisono::environment::MulticastChoice;
    ///
    /// assert!(!MulticastChoice::Off.is_on());
    /// ```
    pub const fn is_on(self) -> bool {
        !matches!(self, Self::Off)
    }
}

impl FromStr for MulticastChoice {
    type Err = MulticastChoiceError;

    fn from_str(text: &str) -> Result<Self, MulticastChoiceError> {
        match text {
            "off" => return Ok(Self::Off),
            "auto" => return Ok(Self::Auto),
            _ => {}
        }
        let (place, interface) = text.split_once('%').map_or((text, None), |(place, name)| (place, Some(name)));
        let interface = interface.map(|name| InterfaceName::new(name).ok_or(MulticastChoiceError)).transpose()?;
        let with_port = place.parse().ok().map(|address: SocketAddr| (address.ip(), Some(address.port())));
        let found = with_port.or_else(|| Some((place.parse().ok()?, None)));
        let (address, port) = found.ok_or(MulticastChoiceError)?;
        if !address.is_multicast() || port == Some(0) {
            return Err(MulticastChoiceError);
        }
        Ok(Self::At(GroupBase { address, port, interface }))
    }
}

impl fmt::Display for MulticastChoice {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GroupBase { address, port, interface } = match self {
            Self::Off => return to.write_str("off"),
            Self::Auto => return to.write_str("auto"),
            Self::At(base) => base,
        };
        match port {
            Some(port) => SocketAddr::new(*address, *port).fmt(to)?,
            None => address.fmt(to)?,
        }
        interface.map_or(Ok(()), |name| write!(to, "%{}", name.as_str()))
    }
}

/// The text names no multicast groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "expected off, auto, or a multicast address with an optional port and interface, such as 239.255.7.0:4711%eth0"
)]
pub struct MulticastChoiceError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_printed_as_they_are_parsed() {
        for text in
            ["off", "auto", "239.255.7.0", "239.255.7.0:4711", "224.0.1.1%eth0", "[ff15::7]:4711%br-lan.7", "ff15::7"]
        {
            let parsed: MulticastChoice = text.parse().expect("good");
            assert_eq!(parsed.to_string(), text);
            assert_eq!(parsed.is_on(), text != "off");
        }
        for text in
            ["", "on", "10.0.0.1", "239.255.7.0:0", "239.255.7.0%", "239.255.7.0%../../x", "239.1.1.1%a234567890123456"]
        {
            assert_eq!(text.parse::<MulticastChoice>(), Err(MulticastChoiceError), "{text}");
        }
    }

    #[test]
    fn interfaces_have_an_index() {
        let index = |name| InterfaceName::new(name).expect("a name").index();
        assert!(index("lo").is_some_and(|index| index > 0) && index("no-such").is_none());
    }
}
