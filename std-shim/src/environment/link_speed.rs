//! The speed of a host's link: `1G`, `100M`.

use alloc::collections::BTreeSet;
use core::{fmt, net::IpAddr, num::NonZeroU32, str::FromStr};
use std::{fs, path::Path};

use unisono_udp::link_addresses;

/// The speed of the link that the ranks of a host share, of all its rails together, in millions of bits per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkSpeed(NonZeroU32);

impl LinkSpeed {
    /// `None`: zero.
    ///
    /// ```
    /// use unisono::environment::LinkSpeed;
    ///
    /// assert_eq!(LinkSpeed::from_megabits(1000).map(|speed| speed.to_string()), Some("1G".to_owned()));
    /// ```
    pub const fn from_megabits(megabits: u32) -> Option<Self> {
        match NonZeroU32::new(megabits) {
            Some(megabits) => Some(Self(megabits)),
            None => None,
        }
    }

    /// In millions of bits per second.
    ///
    /// ```
    /// use unisono::environment::LinkSpeed;
    ///
    /// assert_eq!("100M".parse().map(LinkSpeed::megabits), Ok(100));
    /// ```
    pub const fn megabits(self) -> u32 {
        self.0.get()
    }

    /// The time of a byte.
    pub(super) const fn ps_per_byte(self) -> u32 {
        8_000_000_u32.div_ceil(self.0.get())
    }

    /// That of the interfaces with these addresses together, as the system gives it: of adapters the speed of the link, of
    /// virtual ones a nominal one. `None`: of one of them it gives none.
    pub(crate) fn of_interfaces(addresses: &[IpAddr]) -> Option<Self> {
        if addresses.iter().all(IpAddr::is_loopback) {
            return None;
        }
        let links = link_addresses();
        let name = |address: &IpAddr| Some(links.iter().find(|link| link.address == *address)?.interface.as_str());
        // Several rails may go through one interface.
        let interfaces: BTreeSet<&str> = addresses.iter().map(name).collect::<Option<_>>()?;
        let speed = |name: &&str| {
            let text = fs::read_to_string(Path::new("/sys/class/net").join(name).join("speed")).ok()?;
            text.trim().parse::<u32>().ok()
        };
        let sum = interfaces.iter().try_fold(0_u32, |sum, name| sum.checked_add(speed(name)?))?;
        Self::from_megabits(sum)
    }
}

impl FromStr for LinkSpeed {
    type Err = LinkSpeedError;

    fn from_str(text: &str) -> Result<Self, LinkSpeedError> {
        let units = [("M", 1), ("G", 1000)];
        let (digits, unit) =
            units.into_iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit))).ok_or(LinkSpeedError)?;
        let number = digits.parse().ok().filter(|_: &u32| digits.bytes().all(|byte| byte.is_ascii_digit()));
        number.and_then(|number| number.checked_mul(unit)).and_then(Self::from_megabits).ok_or(LinkSpeedError)
    }
}

impl fmt::Display for LinkSpeed {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabits = self.0.get();
        if megabits.is_multiple_of(1000) { write!(to, "{}G", megabits / 1000) } else { write!(to, "{megabits}M") }
    }
}

/// The text is no speed of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected a number of bits per second, such as 100M or 25G")]
pub struct LinkSpeedError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_read_and_written() {
        for (text, megabits, picoseconds) in [("100M", 100, 80_000), ("1G", 1000, 8000), ("2500M", 2500, 3200)] {
            let speed: LinkSpeed = text.parse().expect("a speed");
            assert_eq!(
                (speed.megabits(), speed.ps_per_byte(), speed.to_string()),
                (megabits, picoseconds, text.into())
            );
        }
        for text in ["", "G", "0G", "1", "-1G", "+1G", "1g", "1.5G", "5000000G", "1T"] {
            assert_eq!(text.parse::<LinkSpeed>(), Err(LinkSpeedError), "{text}");
        }
    }

    #[test]
    fn the_loopback_interface_has_none() {
        assert_eq!(LinkSpeed::of_interfaces(&["127.0.0.1".parse().expect("an address")]), None);
        assert_eq!(LinkSpeed::of_interfaces(&[]), None);
    }
}
