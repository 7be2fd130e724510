//! Where peers are: their addresses, as a bootstrap says, and their adapters, as ARP (RFC 826) tells.

use smoltcp::wire::{EthernetAddress, Ipv4Address, Ipv4Cidr};
use unisono_core::device::Lane;
use unisono_core::ids::PeerId;

use crate::frame::Name;

/// A peer that has to be probed may be at another adapter now: every so many-th probe is a question for it instead.
const DOUBT: u8 = 4;

/// Smallest MTU: bytes of UDP payload.
pub const MTU_MIN: u32 = 576;

/// Who this device is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Of the adapter.
    pub hardware: EthernetAddress,
    /// Its address, and how many leading bits its link's have in common.
    pub address: Ipv4Cidr,
    /// Who passes on what goes beyond the link.
    pub gateway: Option<Ipv4Address>,
    /// UDP's.
    pub port: u16,
}

impl Interface {
    pub(crate) const fn name(&self) -> Name {
        Name { hardware: self.hardware, address: self.address.address(), port: self.port }
    }
}

/// Where a peer's process is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// Its host's.
    pub address: Ipv4Address,
    /// Of its polled and its interrupt lane: twice the same where it has one.
    pub ports: [u16; 2],
    /// Its largest UDP payload, trailer included.
    pub mtu: u32,
}

/// Why a path was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathError {
    /// The table has no such peer.
    UnknownPeer,
    /// No address of a host, or a port is 0.
    NotAnAddress,
    /// Beyond the link, and there is no gateway.
    Unreachable,
    /// The peer takes less than [`MTU_MIN`].
    TooNarrow,
}

/// What is known of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbour {
    path: Path,
    /// Whose adapter its frames go to: its own, or the gateway's.
    next_hop: Ipv4Address,
    hardware: Option<EthernetAddress>,
    /// Somebody waits to hear that it is found.
    wished: bool,
    /// Probes sent since its adapter was last asked for.
    probes: u8,
}

impl Neighbour {
    /// A peer without a path.
    pub const UNKNOWN: Self = Self {
        path: Path { address: Ipv4Address::UNSPECIFIED, ports: [0; 2], mtu: 0 },
        next_hop: Ipv4Address::UNSPECIFIED,
        hardware: None,
        wished: false,
        probes: 0,
    };
}

/// Where a datagram goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Route {
    /// There, with so many bytes at most, trailer included.
    Found(Name, u32),
    /// The adapter of this address has to be found first.
    Unresolved(Ipv4Address),
    /// The peer has no path.
    None,
}

/// All peers, by rank.
#[derive(Debug)]
pub(crate) struct Neighbours<'a>(pub(crate) &'a mut [Neighbour]);

impl Neighbours<'_> {
    fn get(&self, peer: PeerId) -> Option<&Neighbour> {
        self.0.get(usize::try_from(peer.0).ok()?).filter(|neighbour| neighbour.path.mtu > 0)
    }

    pub(crate) fn set(&mut self, own: &Interface, peer: PeerId, path: Path) -> Result<(), PathError> {
        let neighbour = usize::try_from(peer.0).ok().and_then(|rank| self.0.get_mut(rank));
        let neighbour = neighbour.ok_or(PathError::UnknownPeer)?;
        let host = !path.address.is_unspecified() && !path.address.is_multicast() && !path.address.is_broadcast();
        if !host || path.ports.contains(&0) {
            return Err(PathError::NotAnAddress);
        }
        if path.mtu < MTU_MIN {
            return Err(PathError::TooNarrow);
        }
        let next_hop = if own.address.contains_addr(&path.address) { Some(path.address) } else { own.gateway };
        let next_hop = next_hop.ok_or(PathError::Unreachable)?;
        let hardware = neighbour.hardware.filter(|_| neighbour.next_hop == next_hop);
        *neighbour = Neighbour { path, next_hop, hardware, wished: neighbour.wished, probes: 0 };
        Ok(())
    }

    pub(crate) fn route(&self, peer: PeerId, lane: Lane) -> Route {
        let Some(Neighbour { path, next_hop, hardware, .. }) = self.get(peer) else { return Route::None };
        let [polled, interrupt] = path.ports;
        let port = match lane {
            Lane::Polled => polled,
            Lane::Interrupt => interrupt,
        };
        match *hardware {
            Some(hardware) => Route::Found(Name { hardware, address: path.address, port }, path.mtu),
            None => Route::Unresolved(*next_hop),
        }
    }

    /// Whether that is where the peer sends from.
    pub(crate) fn is(&self, peer: PeerId, (address, port): (Ipv4Address, u16)) -> bool {
        self.get(peer).is_some_and(|found| found.path.address == address && found.path.ports.contains(&port))
    }

    /// Whether a probe of the peer should be a question for this adapter.
    pub(crate) fn doubt(&mut self, peer: PeerId) -> Option<Ipv4Address> {
        let neighbour = usize::try_from(peer.0).ok().and_then(|rank| self.0.get_mut(rank))?;
        neighbour.probes = neighbour.probes.saturating_add(1);
        if neighbour.probes < DOUBT || neighbour.path.mtu == 0 {
            return None;
        }
        neighbour.probes = 0;
        Some(neighbour.next_hop)
    }

    /// Somebody waits to hear that the peer is found.
    pub(crate) fn wish(&mut self, peer: PeerId, wished: bool) {
        if let Some(neighbour) = usize::try_from(peer.0).ok().and_then(|rank| self.0.get_mut(rank)) {
            neighbour.wished = wished;
        }
    }

    /// The address is at that adapter now, whatever it was. Peers that were waited for are told to `found`.
    pub(crate) fn learn(
        &mut self,
        address: Ipv4Address,
        hardware: EthernetAddress,
        mut found: impl FnMut(PeerId, u32),
    ) {
        for (rank, neighbour) in (0..).zip(self.0.iter_mut()) {
            if neighbour.path.mtu > 0 && neighbour.next_hop == address {
                neighbour.hardware = Some(hardware);
                if core::mem::take(&mut neighbour.wished) {
                    found(PeerId(rank), neighbour.path.mtu);
                }
            }
        }
    }
}
