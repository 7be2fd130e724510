//! The path to a peer, and the check that a datagram came from it.

use unisono_core::device::DeviceQueue;

use super::segment::{Datagram, QPN_MASK, Route};
use crate::raw::{self, Source};

/// The path to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mlx5Path {
    datagram: Datagram,
    interrupt: u32,
    mtu: u32,
}

impl Mlx5Path {
    /// A path along this route to the queue pairs of the peer's lanes, which accept this Q_Key and datagrams of up to
    /// `mtu` bytes.
    pub fn new(route: &Route, qpns: [u32; 2], qkey: u32, mtu: u32) -> Self {
        let [polled, interrupt] = qpns;
        Self { datagram: Datagram::new(route, polled, qkey), interrupt: interrupt & QPN_MASK, mtu }
    }

    pub(super) fn at(&self, lane: DeviceQueue) -> Datagram {
        match lane {
            DeviceQueue::Polled => self.datagram,
            DeviceQueue::Interrupt => self.datagram.to(self.interrupt),
        }
    }
}

impl raw::PeerPath for Mlx5Path {
    fn mtu(&self) -> u32 {
        self.mtu
    }

    fn matches(&self, source: &Source) -> bool {
        let (to, from) = (&self.datagram, source.origin());
        let queue_pair = from.qpn == to.qpn() || from.qpn == self.interrupt;
        queue_pair && if to.is_ethernet() { source.is_gid(&to.gid()) } else { to.lid() == from.lid }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mlx5::segment::{Grh, Link};
    use crate::raw::{Origin, PeerPath as _};

    #[test]
    fn source_on_infiniband_is_lid_and_queue_pair() {
        let route = Route { link: Link::InfiniBand { lid: 7, path_bits: 0 }, service_level: 0, rate: 0, grh: None };
        let path = Mlx5Path::new(&route, [100, 101], 1, 2048);
        let is = |qpn, lid| path.matches(&Source::new(Origin { qpn, lid, grh: false }, &[0; 40]));
        assert!(is(100, 7) && is(101, 7) && !is(102, 7) && !is(100, 8));
        assert_eq!((path.at(DeviceQueue::Polled).qpn(), path.at(DeviceQueue::Interrupt).qpn()), (100, 101));
    }

    #[test]
    fn source_on_ethernet_is_gid_and_queue_pair() {
        let link = Link::Ethernet { mac: [2, 0, 0, 0, 0, 1], source_port: 0xc000 };
        let route = Route { link, service_level: 0, rate: 0, grh: Some(Grh { gid: [0x20; 16], ..Grh::default() }) };
        let path = Mlx5Path::new(&route, [100, 100], 1, 2048);
        let is = |qpn, byte| path.matches(&Source::new(Origin { qpn, lid: 0, grh: true }, &[byte; 40]));
        assert!(is(100, 0x20) && !is(100, 0x21) && !is(101, 0x20));
    }
}
