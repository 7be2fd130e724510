//! The address table: the socket addresses of each peer, 20 bytes per peer and rail.

use alloc::collections::BTreeMap;
use core::{
    error::Error,
    fmt, mem,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ptr,
};

use unisono_core::device::{Destination, DeviceQueue};
use unisono_core::ids::{PeerId, Rail};

use super::{MTU_MIN, group::GroupTable};

/// The addresses of a process's two sockets on a rail.
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
    /// The device has no rail of this number.
    UnknownRail,
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
            Self::UnknownRail => "the rail is not below the number of rails",
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

    /// The name of a socket address.
    pub(super) fn of(address: &SocketAddr) -> Self {
        match address {
            SocketAddr::V4(address) => Self::v4(address.ip().octets(), address.port()),
            SocketAddr::V6(address) => {
                let mut name = Self::v6(address.ip().octets(), address.port());
                let scope = address.scope_id().to_ne_bytes();
                name.put(mem::offset_of!(libc::sockaddr_in6, sin6_scope_id), &scope);
                name
            }
        }
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

/// Bytes of the address table per peer and rail.
pub const RECORD_BYTES: usize = size_of::<AddressRecord>();

const _: () = assert!(RECORD_BYTES == 20);

/// The paths of a rail, by peer.
struct RailAddresses {
    records: Vec<AddressRecord>,
    /// The rail's sockets are of IPv6.
    v6: bool,
}

/// Paths by peer and rail.
pub(super) struct AddressTable {
    peers: u32,
    rails: Vec<RailAddresses>,
    /// Peers whose path has a smaller MTU than `mtu`.
    smaller_mtus: BTreeMap<u32, u16>,
    mtu: u16,
    pub(super) groups: GroupTable,
}

impl AddressTable {
    /// A table for `peers` peers of a device whose frames have at most `mtu` bytes, checksum included. `v6` says of
    /// each rail whether its sockets are of IPv6.
    pub(super) fn new(peers: u32, mtu: u16, v6: impl IntoIterator<Item = bool>) -> Self {
        let (rails, smaller_mtus) = (Vec::new(), BTreeMap::new());
        let mut table = Self { peers, rails, smaller_mtus, mtu, groups: GroupTable::default() };
        v6.into_iter().for_each(|v6| table.add_rail(v6));
        table
    }

    /// Adds a rail without paths.
    pub(super) fn add_rail(&mut self, v6: bool) {
        self.rails.push(RailAddresses { records: vec![AddressRecord::default(); self.peers as usize], v6 });
    }

    /// Sets a peer's path on a rail. `mtu` is the largest frame that the peer accepts, in bytes, checksum included: the
    /// same on all rails.
    pub(super) fn set(&mut self, peer: PeerId, rail: Rail, path: Path, mtu: u32) -> Result<(), PathError> {
        let RailAddresses { records, v6 } = self.rails.get_mut(usize::from(rail.0)).ok_or(PathError::UnknownRail)?;
        let record = records.get_mut(peer.0 as usize).ok_or(PathError::UnknownPeer)?;
        let address = match path.address.to_canonical() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) if *v6 => address,
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

    /// Forgets a peer's path on a rail.
    pub(super) fn clear(&mut self, peer: PeerId, rail: Rail) {
        let addresses = self.rails.get_mut(usize::from(rail.0));
        if let Some(record) = addresses.and_then(|rail| rail.records.get_mut(peer.0 as usize)) {
            *record = AddressRecord::default();
        }
    }

    /// The address of a destination's queue, or `None` if it has no path.
    pub(super) fn name(&self, to: Destination, lane: DeviceQueue) -> Option<SocketName> {
        match to {
            Destination::Peer { peer, rail } => self.peer_name(peer, rail, lane),
            Destination::Group(group) => self.groups.name(group),
        }
    }

    /// The address of a peer's queue on a rail, or `None` if the peer has no path there.
    fn peer_name(&self, peer: PeerId, rail: Rail, lane: DeviceQueue) -> Option<SocketName> {
        let RailAddresses { records, v6 } = self.rails.get(usize::from(rail.0))?;
        let record = records.get(peer.0 as usize).filter(|record| **record != AddressRecord::default())?;
        let [polled, interrupt] = record.ports;
        let port = match lane {
            DeviceQueue::Polled => polled,
            DeviceQueue::Interrupt => interrupt,
        };
        if *v6 {
            return Some(SocketName::v6(record.address, port));
        }
        let [.., a, b, c, d] = record.address;
        Some(SocketName::v4([a, b, c, d], port))
    }

    /// The largest frame on the path to a peer, checksum included, or `None` if the peer has no path on the rail.
    pub(super) fn mtu(&self, peer: PeerId, rail: Rail) -> Option<u16> {
        self.peer_name(peer, rail, DeviceQueue::Polled)?;
        Some(self.smaller_mtus.get(&peer.0).copied().unwrap_or(self.mtu))
    }

    /// Whether the address is that of one of the peer's queues on the rail.
    #[inline]
    pub(super) fn is_from(&self, peer: PeerId, rail: Rail, name: &SocketName) -> bool {
        let records = self.rails.get(usize::from(rail.0)).map(|rail| &rail.records);
        let Some(AddressRecord { address: known, ports: [polled, interrupt] }) =
            records.and_then(|records| records.get(peer.0 as usize))
        else {
            return false;
        };
        let (address, port) = name.endpoint();
        port != 0 && u128::from_be_bytes(*known) == address && (*polled == port || *interrupt == port)
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv6Addr;

    use super::*;

    const FIRST: Rail = Rail(0);

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
        let mut table = AddressTable::new(3, 1472, [false]);
        table.set(PeerId(1), FIRST, path("10.0.0.7"), 9000).unwrap();
        let polled = table.peer_name(PeerId(1), FIRST, DeviceQueue::Polled).unwrap();
        let interrupt = table.peer_name(PeerId(1), FIRST, DeviceQueue::Interrupt).unwrap();
        assert_eq!(polled.socket_address(), "10.0.0.7:1000".parse().unwrap());
        assert_eq!(interrupt.socket_address(), "10.0.0.7:1001".parse().unwrap());
        assert!(table.is_from(PeerId(1), FIRST, &polled) && table.is_from(PeerId(1), FIRST, &interrupt));
        assert!(!table.is_from(PeerId(1), FIRST, &SocketName::v4([10, 0, 0, 7], 1002)));
        assert!(!table.is_from(PeerId(1), FIRST, &SocketName::v4([10, 0, 0, 8], 1000)));
        assert!(
            table.is_from(
                PeerId(1),
                FIRST,
                &SocketName::v6(Ipv4Addr::new(10, 0, 0, 7).to_ipv6_mapped().octets(), 1000)
            ),
            "a dual-stack socket maps"
        );
    }

    #[test]
    fn v6_names_are_those_set() {
        let mut table = AddressTable::new(1, 1472, [true]);
        table.set(PeerId(0), FIRST, path("fd00::2"), 1472).unwrap();
        let name = table.peer_name(PeerId(0), FIRST, DeviceQueue::Interrupt).unwrap();
        assert_eq!((name.socket_address(), name.bytes()), ("[fd00::2]:1001".parse().unwrap(), 28));
        assert!(table.is_from(PeerId(0), FIRST, &name));
    }

    #[test]
    fn unknown_peers_have_no_address() {
        let mut table = AddressTable::new(2, 1472, [false]);
        assert_eq!(table.set(PeerId(2), FIRST, path("10.0.0.7"), 1472), Err(PathError::UnknownPeer));
        for peer in [0, 2, u32::MAX].map(PeerId) {
            assert!(table.peer_name(peer, FIRST, DeviceQueue::Polled).is_none() && table.mtu(peer, FIRST).is_none());
            assert!(
                !table.is_from(peer, FIRST, &SocketName::NONE)
                    && !table.is_from(peer, FIRST, &SocketName::v4([0; 4], 0))
            );
            assert!(!table.is_from(peer, FIRST, &SocketName::v6([0; 16], 0)));
        }
    }

    #[test]
    fn invalid_addresses_are_refused() {
        let mut table = AddressTable::new(1, 1472, [false]);
        assert_eq!(table.set(PeerId(0), FIRST, path("fd00::2"), 1472), Err(PathError::WrongFamily));
        assert_eq!(table.set(PeerId(0), FIRST, path("0.0.0.0"), 1472), Err(PathError::NotAnAddress));
        assert_eq!(
            table.set(PeerId(0), FIRST, Path { polled: 0, ..path("10.0.0.7") }, 1472),
            Err(PathError::NotAnAddress)
        );
        assert_eq!(table.set(PeerId(0), FIRST, path("10.0.0.7"), MTU_MIN - 1), Err(PathError::MtuTooSmall));
        let mut table = AddressTable::new(1, 1472, [true]);
        for address in ["::", "0.0.0.0", "fe80::1", "ff02::1", "224.0.0.1"] {
            assert_eq!(table.set(PeerId(0), FIRST, path(address), 1472), Err(PathError::NotAnAddress), "{address}");
        }
    }

    #[test]
    fn narrow_path_is_remembered_until_it_is_wide() {
        let mut table = AddressTable::new(1, 8192, [false]);
        for (announced, kept) in [(9000, 8192), (1472, 1472), (70_000, 8192)] {
            table.set(PeerId(0), FIRST, path("10.0.0.7"), announced).unwrap();
            assert_eq!(table.mtu(PeerId(0), FIRST), Some(kept));
        }
    }

    #[test]
    fn rails_have_addresses_of_their_own() {
        let mut table = AddressTable::new(2, 1472, [false, true]);
        table.set(PeerId(1), Rail(0), path("10.0.0.7"), 1472).unwrap();
        assert!(table.mtu(PeerId(1), Rail(1)).is_none(), "no path yet");
        table.set(PeerId(1), Rail(1), path("fd00::7"), 1472).unwrap();
        let [first, second] = [0, 1].map(|rail| table.peer_name(PeerId(1), Rail(rail), DeviceQueue::Polled).unwrap());
        assert_eq!(second.socket_address(), "[fd00::7]:1000".parse().unwrap());
        assert!(table.is_from(PeerId(1), Rail(1), &second) && !table.is_from(PeerId(1), Rail(0), &second));
        assert!(table.is_from(PeerId(1), Rail(0), &first) && !table.is_from(PeerId(1), Rail(1), &first));
        assert_eq!(table.set(PeerId(1), Rail(2), path("10.0.0.7"), 1472), Err(PathError::UnknownRail));
        table.clear(PeerId(1), Rail(1));
        assert!(table.mtu(PeerId(1), Rail(1)).is_none() && !table.is_from(PeerId(1), Rail(1), &second));
    }
}
