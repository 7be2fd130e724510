//! The address table: the path of every peer as bootstrap names it, and its adapter as ARP (RFC 826) resolves it.

use smoltcp::wire::{EthernetAddress, Ipv4Address, Ipv4Cidr};
use unisono_core::device::DeviceQueue;
use unisono_core::ids::PeerId;

use crate::frame::LinkAddress;

/// A probed peer may have moved to another adapter: each n-th probe is replaced by an ARP request.
const PROBES_PER_ARP: u8 = 4;

/// Smallest MTU: bytes of UDP payload.
pub const MTU_MIN: u32 = 576;

/// Addresses of this device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Of the adapter.
    pub hardware: EthernetAddress,
    /// Its address and the prefix length of its link.
    pub address: Ipv4Cidr,
    /// Gateway to addresses beyond the link.
    pub gateway: Option<Ipv4Address>,
    /// UDP port.
    pub port: u16,
}

impl Interface {
    pub(crate) const fn address_on_link(&self) -> LinkAddress {
        LinkAddress { hardware: self.hardware, address: self.address.address(), port: self.port }
    }
}

/// Address of a peer's process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// Address of its host.
    pub address: Ipv4Address,
    /// UDP ports of its polled and its interrupt queue: equal where it has one queue.
    pub ports: [u16; 2],
    /// Its largest UDP payload, trailer included.
    pub mtu: u32,
}

/// Why a path was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathError {
    /// The table has no such peer.
    UnknownPeer,
    /// The address is no unicast address, or a port is 0.
    NotAnAddress,
    /// The address is beyond the link and there is no gateway.
    Unreachable,
    /// The peer's MTU is less than [`MTU_MIN`].
    TooNarrow,
}

/// The entry of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressEntry {
    path: Path,
    /// Address whose adapter its frames go to: its own, or the gateway's.
    next_hop: Ipv4Address,
    hardware: Option<EthernetAddress>,
    /// A path request waits for its resolution.
    awaited: bool,
    /// Probes sent since the last ARP request.
    probes: u8,
}

impl AddressEntry {
    /// A peer without a path.
    pub const UNKNOWN: Self = Self {
        path: Path { address: Ipv4Address::UNSPECIFIED, ports: [0; 2], mtu: 0 },
        next_hop: Ipv4Address::UNSPECIFIED,
        hardware: None,
        awaited: false,
        probes: 0,
    };
}

/// Destination of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Route {
    /// Resolved: link address and largest UDP payload in bytes, trailer included.
    Found(LinkAddress, u32),
    /// The adapter of this address has to be resolved first.
    Unresolved(Ipv4Address),
    /// The peer has no path.
    None,
}

/// All peers, by rank.
#[derive(Debug)]
pub(crate) struct AddressTable<'a>(pub(crate) &'a mut [AddressEntry]);

impl AddressTable<'_> {
    fn get(&self, peer: PeerId) -> Option<&AddressEntry> {
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
        *neighbour = AddressEntry { path, next_hop, hardware, awaited: neighbour.awaited, probes: 0 };
        Ok(())
    }

    pub(crate) fn route(&self, peer: PeerId, lane: DeviceQueue) -> Route {
        let Some(AddressEntry { path, next_hop, hardware, .. }) = self.get(peer) else { return Route::None };
        let [polled, interrupt] = path.ports;
        let port = match lane {
            DeviceQueue::Polled => polled,
            DeviceQueue::Interrupt => interrupt,
        };
        match *hardware {
            Some(hardware) => Route::Found(LinkAddress { hardware, address: path.address, port }, path.mtu),
            None => Route::Unresolved(*next_hop),
        }
    }

    /// Whether the peer sends from this address.
    pub(crate) fn is_source(&self, peer: PeerId, (address, port): (Ipv4Address, u16)) -> bool {
        self.get(peer).is_some_and(|found| found.path.address == address && found.path.ports.contains(&port))
    }

    /// The address to resolve by ARP instead of sending a probe to the peer, if its turn has come.
    pub(crate) fn arp_instead_of_probe(&mut self, peer: PeerId) -> Option<Ipv4Address> {
        let neighbour = usize::try_from(peer.0).ok().and_then(|rank| self.0.get_mut(rank))?;
        neighbour.probes = neighbour.probes.saturating_add(1);
        if neighbour.probes < PROBES_PER_ARP || neighbour.path.mtu == 0 {
            return None;
        }
        neighbour.probes = 0;
        Some(neighbour.next_hop)
    }

    /// Sets whether a path request waits for the peer's resolution.
    pub(crate) fn set_awaited(&mut self, peer: PeerId, awaited: bool) {
        if let Some(neighbour) = usize::try_from(peer.0).ok().and_then(|rank| self.0.get_mut(rank)) {
            neighbour.awaited = awaited;
        }
    }

    /// Records that the address is at that adapter. Calls `found` for each awaited peer.
    pub(crate) fn learn(
        &mut self,
        address: Ipv4Address,
        hardware: EthernetAddress,
        mut found: impl FnMut(PeerId, u32),
    ) {
        for (rank, neighbour) in (0..).zip(self.0.iter_mut()) {
            if neighbour.path.mtu > 0 && neighbour.next_hop == address {
                neighbour.hardware = Some(hardware);
                if core::mem::take(&mut neighbour.awaited) {
                    found(PeerId(rank), neighbour.path.mtu);
                }
            }
        }
    }
}
