//! The path to a peer: the prebuilt part of every send entry to it, and the check that a datagram came from it.

use core::net::IpAddr;

use super::wqe::{AddressVector, CommonUnits, NETWORK, SendWqe};
use crate::raw::{self, Source};

/// `AF_INET` and `AF_INET6`, as Linux has them.
const FAMILIES: [u16; 2] = [2, 10];

/// The route to a receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RxeRoute {
    /// Our own port, from 1.
    pub port: u8,
    /// Which of our own GIDs to send from.
    pub gid_index: u8,
    /// Our address: of that GID.
    pub from: IpAddr,
    /// The receiver's.
    pub to: IpAddr,
    /// The next hop's.
    pub mac: [u8; 6],
    /// Routers that may be passed.
    pub hop_limit: u8,
}

/// The path to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RxePath {
    gid: [u8; 16],
    /// The units that all entries on this path have in common.
    pub(super) common: CommonUnits,
    pub(super) qpns: [u32; 2],
    pub(super) qkey: u32,
    mtu: u32,
}

impl RxePath {
    /// A path along this route to the queue pairs of the peer's lanes, which accept this Q_Key and datagrams of up to
    /// `mtu` bytes.
    pub fn new(route: &RxeRoute, qpns: [u32; 2], qkey: u32, mtu: u32) -> Self {
        let [v4, v6] = NETWORK;
        let way = AddressVector {
            port: route.port,
            network: if route.to.is_ipv4() { v4 } else { v6 },
            mac: route.mac,
            gid: gid(route.to),
            gid_index: route.gid_index,
            hop_limit: route.hop_limit,
            from: socket(route.from),
            to: socket(route.to),
            ..AddressVector::default()
        };
        Self { gid: way.gid, common: SendWqe::new(qkey, way).front(), qpns, qkey, mtu }
    }
}

fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// `sockaddr_in` or `sockaddr_in6`, without a port.
fn socket(address: IpAddr) -> [u8; 28] {
    let [v4, v6] = FAMILIES;
    let (family, at, octets, bytes): (_, _, [u8; 16], _) = match address {
        IpAddr::V4(address) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&address.octets());
            (v4, 4, octets, 4)
        }
        IpAddr::V6(address) => (v6, 8, address.octets(), 16),
    };
    let mut socket = [0; 28];
    let octets = octets.iter().take(bytes);
    let parts = family.to_ne_bytes().into_iter().enumerate().chain((at..).zip(octets.copied()));
    for (at, byte) in parts {
        if let Some(place) = socket.get_mut(at) {
            *place = byte;
        }
    }
    socket
}

impl raw::PeerPath for RxePath {
    fn mtu(&self) -> u32 {
        self.mtu
    }

    fn matches(&self, source: &Source) -> bool {
        self.qpns.contains(&source.origin().qpn) && source.is_gid(&self.gid)
    }
}
