//! The address table: the socket addresses of each peer, 20 bytes per peer.

use alloc::collections::BTreeMap;
use core::{
    error::Error,
    fmt, mem,
    net::{IpAddr, Ipv4Addr},
    ptr,
};

use unisono_core::device::{Destination, DeviceQueue};
use unisono_core::ids::PeerId;

use super::MTU_MIN;

/// The addresses of a process's two sockets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Path {
    /// IP address of both.
    pub address: IpAddr,
    /// Port of the polled queue.
    pub polled: u16,
    /// Port of the interrupt queue.
    pub interrupt: u16,
}

/// Why a path was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathError {
    /// The peer's number exceeds the table's capacity.
    UnknownPeer,
    /// An IPv6 address for a device bound to an IPv4 address, or the other way round.
    WrongFamily,
    /// The address is unspecified, multicast or link-local IPv6 (which names no link), or a port is 0.
    NotAnAddress,
    /// The peer's MTU is below [`MTU_MIN`] bytes.
    MtuTooSmall,
}

impl fmt::Display for PathError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::UnknownPeer => "the rank is not below the number of peers",
            Self::WrongFamily => "the peer's address is of another family (IPv4, IPv6) than the device's",
            Self::NotAnAddress => "the peer's address is unspecified, multicast or link-local, or a port is 0",
            Self::MtuTooSmall => "the peer's MTU is below 576 bytes",
        })
    }
}

impl Error for PathError {}

/// A socket address in the kernel's format.
#[derive(Clone, Copy)]
#[repr(C, align(4))]
pub(super) struct SocketName {
    raw: [u8; Self::BYTES as usize],
}

impl SocketName {
    /// Size that holds either family.
    pub(super) const BYTES: libc::socklen_t = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    /// The address of no family.
    pub(super) const NONE: Self = Self { raw: [0; Self::BYTES as usize] };

    fn v4(address: [u8; 4], port: u16) -> Self {
        let mut name = Self::NONE;
        name.put(mem::offset_of!(libc::sockaddr_in, sin_family), &(libc::AF_INET as u16).to_ne_bytes());
        name.put(mem::offset_of!(libc::sockaddr_in, sin_port), &port.to_be_bytes());
        name.put(mem::offset_of!(libc::sockaddr_in, sin_addr), &address);
        name
    }

    fn v6(address: [u8; 16], port: u16) -> Self {
        let mut name = Self::NONE;
        name.put(mem::offset_of!(libc::sockaddr_in6, sin6_family), &(libc::AF_INET6 as u16).to_ne_bytes());
        name.put(mem::offset_of!(libc::sockaddr_in6, sin6_port), &port.to_be_bytes());
        name.put(mem::offset_of!(libc::sockaddr_in6, sin6_addr), &address);
        name
    }

    /// Length of the address, as the kernel expects it.
    pub(super) fn bytes(&self) -> libc::socklen_t {
        if self.family() == libc::AF_INET { size_of::<libc::sockaddr_in>() as libc::socklen_t } else { Self::BYTES }
    }

    /// Pointer for a system call.
    pub(super) fn as_ptr(&self) -> *const libc::sockaddr {
        ptr::from_ref(self).cast()
    }

    fn family(&self) -> libc::c_int {
        let [low, high] = self.field(mem::offset_of!(libc::sockaddr_in, sin_family));
        libc::c_int::from(u16::from_ne_bytes([low, high]))
    }

    fn put<const N: usize>(&mut self, at: usize, bytes: &[u8; N]) {
        if let Some(to) = self.raw.get_mut(at..at + N) {
            to.copy_from_slice(bytes);
        }
    }

    fn field<const N: usize>(&self, at: usize) -> [u8; N] {
        self.raw.get(at..at + N).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
    }

    /// The (IPv4-mapped) IPv6 address as a number, and the port; all zeros if there is no family, which no path has. A
    /// number, since it is compared for every datagram, and comparing a byte array would go through memory.
    #[inline(always)]
    fn endpoint(&self) -> (u128, u16) {
        match self.family() {
            libc::AF_INET => (
                MAPPED | u128::from(u32::from_be_bytes(self.field(mem::offset_of!(libc::sockaddr_in, sin_addr)))),
                u16::from_be_bytes(self.field(mem::offset_of!(libc::sockaddr_in, sin_port))),
            ),
            libc::AF_INET6 => (
                u128::from_be_bytes(self.field(mem::offset_of!(libc::sockaddr_in6, sin6_addr))),
                u16::from_be_bytes(self.field(mem::offset_of!(libc::sockaddr_in6, sin6_port))),
            ),
            _ => (0, 0),
        }
    }
}

/// The (mapped) IPv6 address of 0.0.0.0 as a number.
const MAPPED: u128 = Ipv4Addr::UNSPECIFIED.to_ipv6_mapped().to_bits();

/// A peer's address as (mapped) IPv6, and the ports of its queues. All zeros: no path.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct AddressRecord {
    address: [u8; 16],
    ports: [u16; 2],
}

/// Bytes of the address table per peer.
pub const RECORD_BYTES: usize = size_of::<AddressRecord>();

const _: () = assert!(RECORD_BYTES == 20);

/// Paths by peer.
pub(super) struct AddressTable {
    records: Vec<AddressRecord>,
    /// Peers whose path has a smaller MTU than `mtu`.
    smaller_mtus: BTreeMap<u32, u16>,
    mtu: u16,
    v6: bool,
}

impl AddressTable {
    /// A table for `peers` peers of a device whose frames have at most `mtu` bytes, checksum included.
    pub(super) fn new(peers: u32, mtu: u16, v6: bool) -> Self {
        Self { records: vec![AddressRecord::default(); peers as usize], smaller_mtus: BTreeMap::new(), mtu, v6 }
    }

    /// Sets a peer's path. `mtu` is the largest frame that the peer accepts, in bytes, checksum included.
    pub(super) fn set(&mut self, peer: PeerId, path: Path, mtu: u32) -> Result<(), PathError> {
        let record = self.records.get_mut(peer.0 as usize).ok_or(PathError::UnknownPeer)?;
        let address = match path.address.to_canonical() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) if self.v6 => address,
            IpAddr::V6(_) => return Err(PathError::WrongFamily),
        };
        let canonical = address.to_canonical();
        let nowhere = canonical.is_unspecified() || canonical.is_multicast() || address.is_unicast_link_local();
        if nowhere || path.polled == 0 || path.interrupt == 0 {
            return Err(PathError::NotAnAddress);
        }
        if mtu < MTU_MIN {
            return Err(PathError::MtuTooSmall);
        }
        *record = AddressRecord { address: address.octets(), ports: [path.polled, path.interrupt] };
        match u16::try_from(mtu) {
            Ok(mtu) if mtu < self.mtu => self.smaller_mtus.insert(peer.0, mtu),
            _ => self.smaller_mtus.remove(&peer.0),
        };
        Ok(())
    }

    /// The address of a destination's queue, or `None` if it has no path.
    pub(super) fn name(&self, to: Destination, lane: DeviceQueue) -> Option<SocketName> {
        self.peer_name(to.on_first_rail()?, lane)
    }

    /// The address of a peer's queue, or `None` if the peer has no path.
    fn peer_name(&self, peer: PeerId, lane: DeviceQueue) -> Option<SocketName> {
        let record = self.records.get(peer.0 as usize).filter(|record| **record != AddressRecord::default())?;
        let [polled, interrupt] = record.ports;
        let port = match lane {
            DeviceQueue::Polled => polled,
            DeviceQueue::Interrupt => interrupt,
        };
        if self.v6 {
            return Some(SocketName::v6(record.address, port));
        }
        let [.., a, b, c, d] = record.address;
        Some(SocketName::v4([a, b, c, d], port))
    }

    /// The largest frame on the path to a peer, checksum included, or `None` if the peer has no path.
    pub(super) fn mtu(&self, peer: PeerId) -> Option<u16> {
        self.peer_name(peer, DeviceQueue::Polled)?;
        Some(self.smaller_mtus.get(&peer.0).copied().unwrap_or(self.mtu))
    }

    /// Whether the address is that of one of the peer's queues.
    #[inline]
    pub(super) fn is_from(&self, peer: PeerId, name: &SocketName) -> bool {
        let Some(AddressRecord { address: known, ports: [polled, interrupt] }) = self.records.get(peer.0 as usize)
        else {
            return false;
        };
        let (address, port) = name.endpoint();
        port != 0 && u128::from_be_bytes(*known) == address && (*polled == port || *interrupt == port)
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv6Addr, SocketAddr};

    use super::*;

    impl SocketName {
        fn socket_address(&self) -> SocketAddr {
            let (address, port) = self.endpoint();
            SocketAddr::new(Ipv6Addr::from(address).to_canonical(), port)
        }
    }

    fn path(address: &str) -> Path {
        Path { address: address.parse().unwrap(), polled: 1000, interrupt: 1001 }
    }

    #[test]
    fn names_are_those_set_and_recognised() {
        let mut table = AddressTable::new(3, 1472, false);
        table.set(PeerId(1), path("10.0.0.7"), 9000).unwrap();
        let polled = table.peer_name(PeerId(1), DeviceQueue::Polled).unwrap();
        let interrupt = table.peer_name(PeerId(1), DeviceQueue::Interrupt).unwrap();
        assert_eq!(polled.socket_address(), "10.0.0.7:1000".parse().unwrap());
        assert_eq!(interrupt.socket_address(), "10.0.0.7:1001".parse().unwrap());
        assert!(table.is_from(PeerId(1), &polled) && table.is_from(PeerId(1), &interrupt));
        assert!(!table.is_from(PeerId(1), &SocketName::v4([10, 0, 0, 7], 1002)));
        assert!(!table.is_from(PeerId(1), &SocketName::v4([10, 0, 0, 8], 1000)));
        assert!(
            table.is_from(PeerId(1), &SocketName::v6(Ipv4Addr::new(10, 0, 0, 7).to_ipv6_mapped().octets(), 1000)),
            "a dual-stack socket maps"
        );
    }

    #[test]
    fn v6_names_are_those_set() {
        let mut table = AddressTable::new(1, 1472, true);
        table.set(PeerId(0), path("fd00::2"), 1472).unwrap();
        let name = table.peer_name(PeerId(0), DeviceQueue::Interrupt).unwrap();
        assert_eq!((name.socket_address(), name.bytes()), ("[fd00::2]:1001".parse().unwrap(), 28));
        assert!(table.is_from(PeerId(0), &name));
    }

    #[test]
    fn unknown_peers_have_no_address() {
        let mut table = AddressTable::new(2, 1472, false);
        assert_eq!(table.set(PeerId(2), path("10.0.0.7"), 1472), Err(PathError::UnknownPeer));
        for peer in [0, 2, u32::MAX].map(PeerId) {
            assert!(table.peer_name(peer, DeviceQueue::Polled).is_none() && table.mtu(peer).is_none());
            assert!(!table.is_from(peer, &SocketName::NONE) && !table.is_from(peer, &SocketName::v4([0; 4], 0)));
            assert!(!table.is_from(peer, &SocketName::v6([0; 16], 0)));
        }
    }

    #[test]
    fn invalid_addresses_are_refused() {
        let mut table = AddressTable::new(1, 1472, false);
        assert_eq!(table.set(PeerId(0), path("fd00::2"), 1472), Err(PathError::WrongFamily));
        assert_eq!(table.set(PeerId(0), path("0.0.0.0"), 1472), Err(PathError::NotAnAddress));
        assert_eq!(table.set(PeerId(0), Path { polled: 0, ..path("10.0.0.7") }, 1472), Err(PathError::NotAnAddress));
        assert_eq!(table.set(PeerId(0), path("10.0.0.7"), MTU_MIN - 1), Err(PathError::MtuTooSmall));
        let mut table = AddressTable::new(1, 1472, true);
        for address in ["::", "0.0.0.0", "fe80::1", "ff02::1", "224.0.0.1"] {
            assert_eq!(table.set(PeerId(0), path(address), 1472), Err(PathError::NotAnAddress), "{address}");
        }
    }

    #[test]
    fn narrow_path_is_remembered_until_it_is_wide() {
        let mut table = AddressTable::new(1, 8192, false);
        for (announced, kept) in [(9000, 8192), (1472, 1472), (70_000, 8192)] {
            table.set(PeerId(0), path("10.0.0.7"), announced).unwrap();
            assert_eq!(table.mtu(PeerId(0)), Some(kept));
        }
    }
}
