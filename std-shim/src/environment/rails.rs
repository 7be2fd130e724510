//! The rails of a process: a number of them, `2`, or a place for each, `eth1,eth2`, `10.1.0.0/16,fd00::/8` or
//! `mlx5_0:1,mlx5_1:1`.

use core::net::IpAddr;
use core::{fmt, str::FromStr};

use unisono_udp::{LinkAddress, MAX_RAILS};

use super::multicast::InterfaceName;

/// Most rails.
const MOST: usize = MAX_RAILS as usize;

/// The rails of a process, in order. Rail by rail, the ranks of a job reach each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RailsChoice {
    /// This many: of UDP, all at the address that the other ranks reach this process at; of adapters, the host's in
    /// turn, from the rank's own on.
    Count(u8),
    /// One at each place; the first is never `None`.
    Places([Option<RailPlace>; MOST]),
}

/// Where a rail is on this host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RailPlace {
    /// At this address.
    Address(IpAddr),
    /// At the host's first address in this network, of which this number of leading bits is given.
    Network(IpAddr, u8),
    /// At the first address of this interface: IPv4 before IPv6, link-local ones excluded. Or at this adapter's first
    /// active port.
    Interface(InterfaceName),
    /// At this port of an adapter, counted from 1.
    Port(InterfaceName, u8),
}

impl Default for RailsChoice {
    fn default() -> Self {
        Self::Count(1)
    }
}

/// Rails that a process has room for, including those that are added later: 1 to 4.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RailsMax(u8);

impl RailsMax {
    /// As a number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl FromStr for RailsMax {
    type Err = RailsMaxError;

    fn from_str(text: &str) -> Result<Self, RailsMaxError> {
        text.parse().ok().filter(|count| (1..=MAX_RAILS).contains(count)).map(Self).ok_or(RailsMaxError)
    }
}

impl fmt::Display for RailsMax {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

/// The text is no number of rails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected a number of rails from 1 to {MOST}")]
pub struct RailsMaxError;

impl RailsChoice {
    /// Whether it asks for more than the one rail that a process has anyway.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The number of rails that are open from the start: at least one.
    pub fn count(&self) -> u8 {
        match self {
            Self::Count(count) => (*count).clamp(1, MAX_RAILS),
            Self::Places(places) => places.iter().flatten().fold(0, |count: u8, _| count.saturating_add(1)).max(1),
        }
    }

    /// The addresses of the rails, of which there is at least one. `own` is that of a process without this setting.
    ///
    /// # Errors
    /// [`RailPlaceError`]: this host has no address at one of the places.
    pub fn addresses(&self, own: impl FnOnce() -> IpAddr) -> Result<Vec<IpAddr>, RailPlaceError> {
        match self {
            Self::Count(count) => Ok(vec![own(); usize::from(*count).clamp(1, MOST)]),
            Self::Places(places) => {
                let known = unisono_udp::link_addresses();
                places.iter().flatten().map(|place| place.find(&known).ok_or(RailPlaceError(*place))).collect()
            }
        }
    }
}

impl RailPlace {
    /// The address of a rail there.
    ///
    /// # Errors
    /// [`RailPlaceError`]: this host has none.
    pub fn address(&self) -> Result<IpAddr, RailPlaceError> {
        self.find(&unisono_udp::link_addresses()).ok_or(RailPlaceError(*self))
    }

    fn find(&self, known: &[LinkAddress]) -> Option<IpAddr> {
        let mut known = known.iter().filter(|link| !is_link_local(link.address));
        match self {
            Self::Address(address) => Some(*address),
            Self::Network(network, bits) => {
                known.map(|link| link.address).find(|address| is_within(*address, *network, *bits))
            }
            Self::Interface(name) => {
                let on_it = known.by_ref().filter(|link| link.interface == name.as_str());
                on_it.map(|link| link.address).min_by_key(IpAddr::is_ipv6)
            }
            Self::Port(..) => None,
        }
    }

    /// The adapter, and its port if that is given. `None`: the place is none of an adapter.
    pub const fn port(&self) -> Option<(InterfaceName, Option<u8>)> {
        match self {
            Self::Interface(name) => Some((*name, None)),
            Self::Port(name, port) => Some((*name, Some(*port))),
            Self::Address(_) | Self::Network(..) => None,
        }
    }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Whether the address has the same leading bits.
fn is_within(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            (address.to_bits() ^ network.to_bits()).leading_zeros() >= bits.into()
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            (address.to_bits() ^ network.to_bits()).leading_zeros() >= bits.into()
        }
        _ => false,
    }
}

impl FromStr for RailsChoice {
    type Err = RailsChoiceError;

    fn from_str(text: &str) -> Result<Self, RailsChoiceError> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            let count = text.parse().ok().filter(|count| (1..=MAX_RAILS).contains(count));
            return count.map(Self::Count).ok_or(RailsChoiceError);
        }
        let mut places = [None; MOST];
        let mut rest = places.iter_mut();
        for place in text.split(',') {
            *rest.next().ok_or(RailsChoiceError)? = Some(place.parse()?);
        }
        Ok(Self::Places(places))
    }
}

impl FromStr for RailPlace {
    type Err = RailsChoiceError;

    fn from_str(text: &str) -> Result<Self, RailsChoiceError> {
        if let Some((network, bits)) = text.split_once('/') {
            let network: IpAddr = network.parse().map_err(|_| RailsChoiceError)?;
            let most = if network.is_ipv4() { 32 } else { 128 };
            let is_plain = bits.bytes().all(|byte| byte.is_ascii_digit());
            let bits = bits.parse().ok().filter(|bits| is_plain && *bits <= most).ok_or(RailsChoiceError)?;
            return Ok(Self::Network(network, bits));
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        if let Some((name, port)) = text.rsplit_once(':') {
            let is_plain = port.bytes().all(|byte| byte.is_ascii_digit());
            let port = port.parse().ok().filter(|port| is_plain && *port > 0);
            return InterfaceName::new(name)
                .zip(port)
                .map(|(name, port)| Self::Port(name, port))
                .ok_or(RailsChoiceError);
        }
        InterfaceName::new(text).map(Self::Interface).ok_or(RailsChoiceError)
    }
}

impl fmt::Display for RailsChoice {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(to),
            Self::Places(places) => {
                for (number, place) in places.iter().flatten().enumerate() {
                    if number > 0 {
                        to.write_str(",")?;
                    }
                    place.fmt(to)?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for RailPlace {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(to),
            Self::Network(network, bits) => write!(to, "{network}/{bits}"),
            Self::Interface(name) => to.write_str(name.as_str()),
            Self::Port(name, port) => write!(to, "{}:{port}", name.as_str()),
        }
    }
}

/// The text does not describe rails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "expected a number of rails from 1 to {MOST}, or as many interfaces, addresses, networks or adapters, such as eth1,eth2, 10.1.0.0/16,10.2.0.0/16 or mlx5_0:1,mlx5_1:1"
)]
pub struct RailsChoiceError;

/// This host has no address at a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("this host has no rail {0} (--rails, UNISONO_RAILS): no address of its interfaces, and no adapter, is there")]
pub struct RailPlaceError(pub RailPlace);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rails_are_printed_as_they_are_parsed() {
        for text in [
            "1",
            "4",
            "lo",
            "eth1,eth2",
            "10.1.0.0/16,10.2.0.0/16",
            "127.0.0.1,127.0.0.2,::1",
            "fd00::/8,ib0.8",
            "a,a,a,a",
            "rxe0,rxe1",
            "mlx5_0:1,mlx5_1:2",
        ] {
            assert_eq!(text.parse::<RailsChoice>().expect(text).to_string(), text);
        }
        for text in [
            "",
            "0",
            "5",
            "300",
            ",",
            "eth1,",
            "a,b,c,d,e",
            "10.1.0.0/33",
            "10.1.0.0/+8",
            "::/129",
            "a/8",
            "../x",
            "a:",
            "a:0",
            "a:256",
            "a:+1",
            ":1",
            "a:1:",
        ] {
            assert_eq!(text.parse::<RailsChoice>(), Err(RailsChoiceError), "{text}");
        }
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn places_are_found_among_the_interfaces() {
        let link = |interface: &str, text| LinkAddress { interface: interface.to_owned(), address: address(text) };
        let known = [
            link("lo", "127.0.0.1"),
            link("eth1", "fe80::1"),
            link("eth1", "fd00::1"),
            link("eth1", "10.1.0.7"),
            link("eth2", "10.2.0.7"),
            link("eth3", "fe80::3"),
        ];
        let found = |text: &str| text.parse::<RailPlace>().expect(text).find(&known);
        for (text, expected) in [
            ("eth1", "10.1.0.7"),
            ("eth2", "10.2.0.7"),
            ("10.2.0.0/16", "10.2.0.7"),
            ("10.0.0.0/8", "10.1.0.7"),
            ("10.2.0.7/32", "10.2.0.7"),
            ("0.0.0.0/0", "127.0.0.1"),
            ("fd00::/16", "fd00::1"),
            ("192.0.2.1", "192.0.2.1"),
        ] {
            assert_eq!(found(text), Some(address(expected)), "{text}");
        }
        for text in ["eth3", "eth4", "eth1:1", "10.3.0.0/16", "fd01::/16", "fe80::/10"] {
            assert_eq!(found(text), None, "{text}");
        }
    }

    #[test]
    fn a_number_of_rails_is_at_one_address() {
        let two: RailsChoice = "2".parse().expect("two");
        assert_eq!(two.addresses(|| address("10.0.0.1")), Ok(vec![address("10.0.0.1"); 2]));
        let places: RailsChoice = "127.0.0.0/8,240.0.0.0/8".parse().expect("places");
        let missing = RailPlace::Network(address("240.0.0.0"), 8);
        assert_eq!(places.addresses(|| unreachable!()), Err(RailPlaceError(missing)));
    }
}
