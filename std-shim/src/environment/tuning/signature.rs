//! The signature of a job: what its measurements depend on besides the call. A tuning table is used only in jobs that have
//! the signature of the job that it was measured in.
//!
//! ```text
//! version=0.1.0 device=shm+udp processors=8 nodes=2 ranks-per-node=4
//! ```

use core::fmt;
use core::str::FromStr;

use super::super::DeviceChoice;
use crate::node::processors;

/// The keys of a signature, in the order in which it is printed.
const KEYS: [&str; 5] = ["version", "device", "processors", "nodes", "ranks-per-node"];
/// Largest length of a value in bytes.
const VALUE_BYTES_MAX: usize = 32;

/// The machine and the shape of a job.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct JobSignature {
    /// The values of [`KEYS`].
    values: [String; KEYS.len()],
}

impl JobSignature {
    /// The signature of a job of this program on machines like this one, by the node of each rank and the device of its
    /// datagrams; `shares_memory`: whether ranks of a node, of that number, reach each other by shared memory. Except for
    /// the processors, equal on all ranks.
    ///
    /// ```
    /// use unisono::environment::DeviceChoice;
    /// use unisono::environment::tuning::JobSignature;
    ///
    /// // Three ranks on two nodes.
    /// let signature = JobSignature::here(&[0, 0, 1], |_| true, DeviceChoice::Udp);
    /// assert!(signature.to_string().contains(" device=shm+udp "));
    /// assert!(signature.to_string().ends_with(" nodes=2 ranks-per-node=2"));
    /// ```
    pub fn here(nodes: &[u32], shares_memory: impl FnOnce(usize) -> bool, datagrams: DeviceChoice) -> Self {
        let mut nodes = nodes.to_vec();
        nodes.sort_unstable();
        let groups = || nodes.chunk_by(|one, other| one == other);
        let (count, most) = (groups().count(), groups().map(<[u32]>::len).max().unwrap_or(0));
        let device = match (shares_memory(most), count, most) {
            (true, 1, _) => DeviceChoice::Shm.to_string(),
            (true, _, 2..) => format!("{}+{datagrams}", DeviceChoice::Shm),
            _ => datagrams.to_string(),
        };
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self { values: [version, device, processors().to_string(), count.to_string(), most.to_string()] }
    }

    /// The number of hosts, and the most ranks of one, if both are more than one.
    ///
    /// ```
    /// use unisono::environment::DeviceChoice;
    /// use unisono::environment::tuning::JobSignature;
    ///
    /// let hosts = |nodes: &[u32]| JobSignature::here(nodes, |_| true, DeviceChoice::Udp).hosts();
    /// assert_eq!((hosts(&[0, 0, 1]), hosts(&[0, 1]), hosts(&[0, 0])), (Some((2, 2)), None, None));
    /// ```
    pub fn hosts(&self) -> Option<(u32, u32)> {
        let [.., nodes, ranks] = &self.values;
        let several = |text: &String| text.parse().ok().filter(|number| *number > 1);
        Some((several(nodes)?, several(ranks)?))
    }

    /// Whether the ranks of a host share memory.
    ///
    /// ```
    /// use unisono::environment::DeviceChoice;
    /// use unisono::environment::tuning::JobSignature;
    ///
    /// assert!(JobSignature::here(&[0, 0, 1, 1], |_| true, DeviceChoice::Udp).shares_memory());
    /// assert!(!JobSignature::here(&[0, 0, 1, 1], |_| false, DeviceChoice::Udp).shares_memory());
    /// ```
    pub fn shares_memory(&self) -> bool {
        let [_, device, ..] = &self.values;
        device.split('+').any(|one| one == DeviceChoice::Shm.to_string())
    }

    /// What differs in a job of signature `here`.
    pub(super) fn differences(&self, here: &Self) -> Vec<Difference> {
        let pairs = KEYS.into_iter().zip(self.values.iter().zip(&here.values));
        pairs
            .filter(|(_, (measured, here))| measured != here)
            .map(|(key, (measured, here))| Difference { key, measured: measured.clone(), here: here.clone() })
            .collect()
    }
}

impl fmt::Display for JobSignature {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut pairs = KEYS.into_iter().zip(&self.values).enumerate();
        pairs.try_for_each(|(n, (key, value))| write!(to, "{}{key}={value}", if n == 0 { "" } else { " " }))
    }
}

impl FromStr for JobSignature {
    type Err = SignatureError;

    fn from_str(text: &str) -> Result<Self, SignatureError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let value = |key: &'static str| {
            let mut given = words.iter().filter_map(|word| word.split_once('=')).filter(|(name, _)| *name == key);
            match (given.next(), given.next()) {
                (Some((_, value)), None) if is_value(key, value) => Ok(value.to_owned()),
                _ => Err(SignatureError::Key(key)),
            }
        };
        let [version, device, processors, nodes, ranks] = KEYS;
        let values = [value(version)?, value(device)?, value(processors)?, value(nodes)?, value(ranks)?];
        // Each key is there once.
        if words.len() == KEYS.len() { Ok(Self { values }) } else { Err(SignatureError::Excess) }
    }
}

fn is_value(key: &str, value: &str) -> bool {
    let is_number = || value.parse::<u32>().is_ok_and(|number| number > 0 && number.to_string() == value);
    let is_text = || value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".+-".contains(&byte));
    let is_plain = !value.is_empty() && value.len() <= VALUE_BYTES_MAX;
    is_plain && if matches!(key, "version" | "device") { is_text() } else { is_number() }
}

/// Why a text is not a signature.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SignatureError {
    /// This key is missing, given twice, or its value is malformed.
    #[error("a signature has one valid value for {0}=")]
    Key(&'static str),
    /// There is something else.
    #[error("a signature is {} and nothing else", KEYS.map(|key| format!("{key}=…")).join(" "))]
    Excess,
}

/// A value of a signature that differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    key: &'static str,
    measured: String,
    here: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, measured, here } = self;
        write!(to, "{key}={measured} there, {key}={here} here")
    }
}

/// No table was measured in a job like this one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the table was measured in another job or on another machine: {}: measure this job with `unisono tune`",
    differences.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
)]
pub struct SignatureMismatch {
    /// What differs from the table that differs least.
    pub(super) differences: Vec<Difference>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_signature_names_the_device_and_the_shape() {
        let said = |nodes: &[u32], shares| {
            let text = JobSignature::here(nodes, |_| shares, DeviceChoice::Verbs).to_string();
            let (device, shape) = text.split_once(" processors=").expect("processors");
            let (_, device) = device.split_once(" device=").expect("a device");
            let (_, shape) = shape.split_once(' ').expect("a shape");
            format!("{device} {shape}")
        };
        assert_eq!(said(&[0, 0, 0], true), "shm nodes=1 ranks-per-node=3");
        assert_eq!(said(&[0, 0, 0], false), "verbs nodes=1 ranks-per-node=3");
        assert_eq!(said(&[0, 1, 0], true), "shm+verbs nodes=2 ranks-per-node=2");
        assert_eq!(said(&[0, 1, 2], true), "verbs nodes=3 ranks-per-node=1");
        assert_eq!(said(&[], true), "verbs nodes=0 ranks-per-node=0");
    }

    #[test]
    fn malformed_signatures_are_refused() {
        let good = "version=1 device=udp processors=2 nodes=1 ranks-per-node=4";
        assert_eq!(good.parse::<JobSignature>().expect("good").to_string(), good);
        for (from, to, key) in [
            ("version=1", "", "version"),
            ("nodes=1", "nodes=0", "nodes"),
            ("nodes=1", "nodes=+1", "nodes"),
            ("nodes=1", "nodes=4294967296", "nodes"),
            ("device=udp", "device=", "device"),
            ("device=udp", "device=udp device=udp", "device"),
            ("device=udp", "device=údp", "device"),
            ("processors=2", "processors", "processors"),
        ] {
            let text = good.replacen(from, to, 1);
            assert_eq!(text.parse::<JobSignature>(), Err(SignatureError::Key(key)), "{text}");
        }
        assert_eq!(format!("{good} colour=red").parse::<JobSignature>(), Err(SignatureError::Excess));
    }

    #[test]
    fn every_value_that_differs_is_named() {
        let signature = |text: &str| text.parse::<JobSignature>().expect("good");
        let there = signature("version=1 device=udp processors=2 nodes=1 ranks-per-node=4");
        let here = signature("version=2 device=shm processors=3 nodes=2 ranks-per-node=5");
        assert_eq!(there.differences(&there), []);
        let keys: Vec<&str> = there.differences(&here).iter().map(|one| one.key).collect();
        assert_eq!(keys, KEYS);
        assert_eq!(there.differences(&here)[2].to_string(), "processors=2 there, processors=3 here");
    }

    proptest! {
        #[test]
        fn signatures_are_parsed_as_they_are_printed(nodes in proptest::collection::vec(0_u32..5, 1..20), shares: bool) {
            let signature = JobSignature::here(&nodes, |_| shares, DeviceChoice::Udp);
            prop_assert_eq!(signature.to_string().parse(), Ok(signature));
        }

        #[test]
        fn no_text_panics(text in "((version|device|processors|nodes|ranks-per-node|x)=?[0-9a-zé.+-]{0,12} ?){0,6}") {
            if let Ok(signature) = text.parse::<JobSignature>() {
                prop_assert_eq!(signature.to_string().parse(), Ok(signature));
            }
        }
    }
}
