//! The way to a peer, and how its datagrams are known.

use unisono_core::device::Lane;

use super::completion::Arrival;
use super::segment::{Datagram, QPN_MASK, Route};

/// Bytes in front of every datagram: a global route header or, with RoCE v2 over IPv4, 20 unused bytes and the IPv4 header.
pub(super) const GRH: usize = 40;
/// The GID of an IPv4 address begins so.
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// The way to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    datagram: Datagram,
    interrupt: u32,
    mtu: u32,
}

impl Path {
    /// Along this route to the queue pairs of its lanes, which take this key and datagrams of up to `mtu` bytes.
    pub fn new(route: &Route, qpns: [u32; 2], qkey: u32, mtu: u32) -> Self {
        let [polled, interrupt] = qpns;
        Self { datagram: Datagram::new(route, polled, qkey), interrupt: interrupt & QPN_MASK, mtu }
    }

    /// Bytes of the longest datagram.
    pub const fn mtu(&self) -> u32 {
        self.mtu
    }

    pub(super) fn at(&self, lane: Lane) -> Datagram {
        match lane {
            Lane::Polled => self.datagram,
            Lane::Interrupt => self.datagram.to(self.interrupt),
        }
    }

    /// Whether the peer sends from there.
    pub fn is(&self, source: &Source) -> bool {
        let queue_pair = source.qpn == self.datagram.qpn() || source.qpn == self.interrupt;
        queue_pair && if self.datagram.is_ethernet() { self.is_gid(source) } else { self.datagram.lid() == source.lid }
    }

    fn is_gid(&self, source: &Source) -> bool {
        let gid = self.datagram.gid();
        let v4 = gid.strip_prefix(&MAPPED);
        source.grh && v4.map_or(source.gid == gid, |address| source.v4 == address)
    }
}

/// Where a datagram came from.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Source {
    qpn: u32,
    lid: u16,
    grh: bool,
    gid: [u8; 16],
    v4: [u8; 4],
}

impl Source {
    pub(super) const NONE: Self = Self { qpn: 0, lid: 0, grh: false, gid: [0; 16], v4: [0; 4] };

    /// As completion and the bytes in front of the datagram say.
    pub fn new(arrival: &Arrival, front: &[u8; 40]) -> Self {
        let gid = front.get(8..).and_then(|rest| rest.first_chunk().copied());
        let v4 = front.get(32..).and_then(|rest| rest.first_chunk().copied());
        Self {
            qpn: arrival.source,
            lid: arrival.lid,
            grh: arrival.grh,
            gid: gid.unwrap_or_default(),
            v4: v4.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mlx5::segment::{Grh, Link};

    fn arrival(source: u32, lid: u16, grh: bool) -> Arrival {
        Arrival { qpn: 1, index: 0, bytes: 40, source, lid, grh, service_level: 0, solicited: false, immediate: None }
    }

    #[test]
    fn source_on_infiniband_is_lid_and_queue_pair() {
        let route = Route { link: Link::InfiniBand { lid: 7, path_bits: 0 }, service_level: 0, rate: 0, grh: None };
        let path = Path::new(&route, [100, 101], 1, 2048);
        let is = |qpn, lid| path.is(&Source::new(&arrival(qpn, lid, false), &[0; 40]));
        assert!(is(100, 7) && is(101, 7) && !is(102, 7) && !is(100, 8));
        assert_eq!((path.at(Lane::Polled).qpn(), path.at(Lane::Interrupt).qpn()), (100, 101));
    }

    #[test]
    fn source_on_ethernet_is_gid_and_queue_pair() {
        let link = Link::Ethernet { mac: [2, 0, 0, 0, 0, 1], source_port: 0xc000 };
        let of = |gid| {
            let route = Route { link, service_level: 0, rate: 0, grh: Some(Grh { gid, ..Grh::default() }) };
            Path::new(&route, [100, 100], 1, 2048)
        };
        let mut front = [0; 40];
        front[8..24].fill(0x20);
        front[32..36].copy_from_slice(&[10, 0, 0, 9]);
        let source = |grh| Source::new(&arrival(100, 0, grh), &front);
        assert!(of([0x20; 16]).is(&source(true)) && !of([0x21; 16]).is(&source(true)));
        assert!(!of([0x20; 16]).is(&source(false)));
        let mut mapped = [0; 16];
        mapped[..12].copy_from_slice(&MAPPED);
        mapped[12..].copy_from_slice(&[10, 0, 0, 9]);
        assert!(of(mapped).is(&source(true)));
        mapped[15] = 8;
        assert!(!of(mapped).is(&source(true)));
    }
}
