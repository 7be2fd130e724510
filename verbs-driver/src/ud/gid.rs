//! GIDs of ports, and the choice of one of a port's GIDs.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Global identifier of a port or a group: 16 bytes, in RoCE an IP address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The null GID, which no port has.
    pub const NONE: Self = Self([0; 16]);

    /// The IPv4 address that it stands for.
    pub fn ipv4(self) -> Option<Ipv4Addr> {
        Ipv6Addr::from(self.0).to_ipv4_mapped()
    }

    /// Whether it names a group.
    pub const fn is_group(self) -> bool {
        match Ipv6Addr::from_octets(self.0).to_ipv4_mapped() {
            Some(address) => address.is_multicast(),
            None => self.0[0] == 0xff,
        }
    }

    const fn is_link_local(self) -> bool {
        self.0[0] == 0xfe && self.0[1] & 0xc0 == 0x80
    }
}

/// In RoCE IPv4 addresses are mapped into IPv6.
impl From<IpAddr> for Gid {
    fn from(address: IpAddr) -> Self {
        Self(match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        })
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(to)
    }
}

/// The encapsulation of a GID's datagrams on the link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Encapsulation {
    /// RoCE v2: UDP over IP.
    RoceV2,
    /// RoCE v1: its own Ethernet type.
    RoceV1,
    /// InfiniBand.
    Infiniband,
}

impl Encapsulation {
    /// As `ibv_gid_entry` numbers them.
    pub(super) const fn of(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Infiniband),
            1 => Some(Self::RoceV1),
            2 => Some(Self::RoceV2),
            _ => None,
        }
    }
}

/// One of a port's GIDs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Candidate {
    /// Its index in the port's table.
    pub index: u8,
    /// The address.
    pub gid: Gid,
    /// Its encapsulation.
    pub encapsulation: Encapsulation,
    /// The network interface that it belongs to; 0 where there is none.
    pub interface: u32,
}

/// Chooses a GID: RoCE v2 before v1 before InfiniBand; then an IPv4 address before a routable IPv6 one before a
/// link-local one; then the lowest index. Empty entries and groups are skipped.
pub fn choose(candidates: &[Candidate]) -> Option<Candidate> {
    let usable = candidates.iter().filter(|candidate| candidate.gid != Gid::NONE && !candidate.gid.is_group());
    let place = |candidate: &&Candidate| {
        let scope = match candidate.gid {
            gid if gid.ipv4().is_some() => 0,
            gid if gid.is_link_local() => 2,
            _ => 1,
        };
        (candidate.encapsulation, scope, candidate.index)
    };
    usable.min_by_key(place).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Encapsulation::{Infiniband, RoceV1, RoceV2};
    use alloc::vec::Vec;

    fn table(entries: &[(&str, Encapsulation)]) -> Vec<Candidate> {
        let entry = |(index, (address, encapsulation)): (u8, &(&str, Encapsulation))| Candidate {
            index,
            gid: Gid::from(address.parse::<IpAddr>().expect("an address")),
            encapsulation: *encapsulation,
            interface: 3,
        };
        (0..).zip(entries).map(entry).collect()
    }

    fn chosen(entries: &[(&str, Encapsulation)]) -> Option<u8> {
        choose(&table(entries)).map(|candidate| candidate.index)
    }

    #[test]
    fn the_rule_orders_by_encapsulation_scope_and_index() {
        let local = "fe80::1";
        assert_eq!(chosen(&[(local, RoceV1), (local, RoceV2), ("10.0.0.1", RoceV1), ("10.0.0.1", RoceV2)]), Some(3));
        assert_eq!(chosen(&[(local, RoceV2), ("2001:db8::1", RoceV2), ("10.0.0.1", RoceV1)]), Some(1));
        assert_eq!(chosen(&[("10.0.0.9", RoceV2), ("10.0.0.1", RoceV2)]), Some(0));
        assert_eq!(chosen(&[(local, Infiniband), ("2001:db8::1", Infiniband)]), Some(1));
        assert_eq!(chosen(&[("::", RoceV2), ("ff0e::1", RoceV2), ("239.1.2.3", RoceV2)]), None);
        assert_eq!(chosen(&[]), None);
    }

    #[test]
    fn groups_are_distinguished_from_ports() {
        for (address, group) in [("239.1.2.3", true), ("10.0.0.1", false), ("ff15::7", true), ("fe80::1", false)] {
            assert_eq!(Gid::from(address.parse::<IpAddr>().expect("an address")).is_group(), group, "{address}");
        }
    }
}
