//! A UDP socket: its options, its limits and the kernel's accounting of its memory.

use alloc::ffi::CString;
use core::{
    ffi::{CStr, c_int},
    mem,
    net::{IpAddr, SocketAddr},
    ptr,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{
        AddressFamily, SocketFlags, SocketType,
        sockopt::{self, Ipv4PathMtuDiscovery},
    },
};
use std::{
    fs, io,
    net::UdpSocket,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
};

/// Requested send memory in bytes. The kernel grants less if `net.core.wmem_max` is smaller.
const SEND_BUFFER: usize = 1 << 20;

/// Segments per GSO or GRO message (`UDP_MAX_SEGMENTS` before Linux 6.9).
pub(super) const SEGMENTS_MAX: usize = 64;

/// How a multicast group is reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct MulticastOptions {
    pub(super) group: SocketAddr,
    /// Address of the interface, in IPv4 without `interface`.
    pub(super) local: IpAddr,
    pub(super) hops: u8,
    /// Index of the interface, or 0.
    pub(super) interface: u32,
}

impl MulticastOptions {
    fn interface_request(&self, local: IpAddr, group: [u8; 4]) -> libc::ip_mreqn {
        let local = match local {
            IpAddr::V4(local) => local.octets(),
            IpAddr::V6(_) => [0; 4],
        };
        libc::ip_mreqn {
            imr_multiaddr: libc::in_addr { s_addr: u32::from_ne_bytes(group) },
            imr_address: libc::in_addr { s_addr: u32::from_ne_bytes(local) },
            imr_ifindex: c_int::try_from(self.interface).unwrap_or(0),
        }
    }
}

/// A bound non-blocking socket.
#[derive(Debug)]
pub(super) struct Socket {
    inner: UdpSocket,
    /// Receive memory in bytes, as the kernel accounts it.
    pub(super) granted: u32,
    /// The kernel rejects a datagram larger than the link's MTU instead of fragmenting it (`IP_PMTUDISC_DO`):
    /// unfragmentable datagrams need no IP identification, which all sockets draw from a shared counter
    /// (`ip_select_ident`).
    dont_fragment: AtomicBool,
}

impl Socket {
    /// Binds the socket, requests `receive_buffer` bytes of receive memory and enables GRO if `gro` is set.
    pub(super) fn bind(local: SocketAddr, receive_buffer: u32, gro: bool) -> io::Result<Self> {
        let socket = Self::with_buffers(UdpSocket::bind(local)?, receive_buffer, gro)?;
        if local.is_ipv4() {
            let forbidden = sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DO).is_ok();
            socket.dont_fragment.store(forbidden, Ordering::Relaxed);
        }
        Ok(socket)
    }

    fn with_buffers(inner: UdpSocket, receive_buffer: u32, gro: bool) -> io::Result<Self> {
        let mut socket = Self { inner, granted: 0, dont_fragment: AtomicBool::new(false) };
        socket.inner.set_nonblocking(true)?;
        let receive_buffer = receive_buffer.min(i32::MAX as u32) as usize;
        if sockopt::set_socket_recv_buffer_size_force(&socket, receive_buffer).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, receive_buffer)?;
        }
        sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER)?;
        socket.granted = u32::try_from(sockopt::socket_recv_buffer_size(&socket)?).unwrap_or(0);
        if gro {
            socket.set(libc::SOL_UDP, libc::UDP_GRO, 1)?;
        }
        Ok(socket)
    }

    /// Opens a socket that receives the group's datagrams, whatever other sockets of this host do.
    pub(super) fn join(options: &MulticastOptions, receive_buffer: u32, gro: bool) -> io::Result<Self> {
        let address = options.group;
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let descriptor = rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseaddr(&descriptor, true)?;
        rustix::net::bind(&descriptor, &address)?;
        let socket = Self::with_buffers(UdpSocket::from(descriptor), receive_buffer, gro)?;
        match (options.group.ip(), options.local) {
            (IpAddr::V4(group), local) => {
                let request = options.interface_request(local, group.octets());
                socket.set_bytes(libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, &request)?;
                // Otherwise the socket receives what other sockets of the host have joined, too.
                socket.set(libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0)?;
            }
            (IpAddr::V6(group), _) => socket.inner.join_multicast_v6(&group, options.interface)?,
        }
        Ok(socket)
    }

    /// Sends and receives through this interface alone. Without it, what leaves from the address of one interface may
    /// leave through another.
    pub(super) fn bind_to(&self, interface: &CStr) -> io::Result<()> {
        let name = interface.to_bytes_with_nul();
        let (to, bytes) = (name.as_ptr().cast(), name.len() as libc::socklen_t);
        // SAFETY: the descriptor is open; the pointer names a live string and its length.
        let result = unsafe { libc::setsockopt(self.fd(), libc::SOL_SOCKET, libc::SO_BINDTODEVICE, to, bytes) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Sends datagrams to groups as these options say, to members on this host, too.
    pub(super) fn set_multicast(&self, options: &MulticastOptions) -> io::Result<()> {
        let hops = options.hops.into();
        if options.group.is_ipv4() {
            let request = options.interface_request(options.local, [0; 4]);
            self.set_bytes(libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &request)?;
            self.set(libc::IPPROTO_IP, libc::IP_MULTICAST_TTL, hops)?;
            return self.set(libc::IPPROTO_IP, libc::IP_MULTICAST_LOOP, 1);
        }
        let interface = c_int::try_from(options.interface).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.set(libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF, interface)?;
        self.set(libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS, hops)?;
        self.set(libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_LOOP, 1)
    }

    /// Datagrams that the kernel dropped because the receive memory was full: the count that `SO_RXQ_OVFL` attaches to
    /// datagrams, read without them.
    pub(super) fn drops(&self) -> io::Result<u32> {
        /// Index of the drops (`SK_MEMINFO_DROPS`).
        const DROPS: usize = 8;
        let mut info = [0_u32; DROPS + 1];
        let mut length = size_of_val(&info) as libc::socklen_t;
        let place = info.as_mut_ptr().cast();
        // SAFETY: an open descriptor, a live array and its size.
        let result = unsafe { libc::getsockopt(self.fd(), libc::SOL_SOCKET, libc::SO_MEMINFO, place, &mut length) };
        let [.., drops] = info;
        if result == 0 { Ok(drops) } else { Err(io::Error::last_os_error()) }
    }

    fn set_bytes(&self, level: c_int, option: c_int, value: &libc::ip_mreqn) -> io::Result<()> {
        let bytes = size_of::<libc::ip_mreqn>() as libc::socklen_t;
        // SAFETY: the descriptor is open; the pointer names a live structure and its size.
        let result = unsafe { libc::setsockopt(self.fd(), level, option, ptr::from_ref(value).cast(), bytes) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Whether the kernel supports GSO (UDP_SEGMENT, Linux 4.18) and GRO (UDP_GRO, Linux 5.0).
    pub(super) fn has_offload(&self) -> bool {
        self.get(libc::SOL_UDP, libc::UDP_SEGMENT).is_ok() && self.get(libc::SOL_UDP, libc::UDP_GRO).is_ok()
    }

    /// Allows the kernel to fragment datagrams from now on, after one was larger than its link's MTU. Returns whether
    /// it was forbidden before.
    pub(super) fn allow_fragments(&self) -> bool {
        self.dont_fragment.swap(false, Ordering::Relaxed)
            && sockopt::set_ip_mtu_discover(self, Ipv4PathMtuDiscovery::WANT).is_ok()
    }

    /// The address of the socket.
    pub(super) fn local(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    pub(super) fn fd(&self) -> RawFd {
        self.inner.as_raw_fd()
    }

    fn set(&self, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
        let bytes = size_of::<c_int>() as libc::socklen_t;
        // SAFETY: the descriptor is open; the pointer names a live int and its size.
        let result = unsafe { libc::setsockopt(self.fd(), level, option, ptr::from_ref(&value).cast(), bytes) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn get(&self, level: c_int, option: c_int) -> io::Result<c_int> {
        let (mut value, mut bytes) = (0, size_of::<c_int>() as libc::socklen_t);
        let to = ptr::from_mut(&mut value).cast();
        // SAFETY: the descriptor is open; the pointers name a live int and its size.
        let result = unsafe { libc::getsockopt(self.fd(), level, option, to, &mut bytes) };
        if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

/// Waits until the socket is writable, at most this long.
pub(super) fn wait_writable(socket: &Socket, longest: Duration) {
    let time = Timespec::try_from(longest).ok();
    // The result does not matter: the caller tries again anyway.
    let _ = poll(&mut [PollFd::new(socket, PollFlags::OUT)], time.as_ref());
}

/// Memory in bytes that the kernel accounts for a queued datagram of `bytes` bytes of payload: the allocated size of
/// the packet (link, IPv6 and UDP headers, headroom and `skb_shared_info` included, rounded up to a power of two below
/// 16 KiB and to pages above), and its `sk_buff`. Linux 6.x, x86-64; tests compare it with the kernel's own accounting.
fn true_size(bytes: u32) -> u32 {
    const HEADROOM: u32 = 128;
    const SHARED_INFO: u32 = 320;
    const SK_BUFF: u32 = 256;
    let whole = bytes + 48 + HEADROOM + SHARED_INFO;
    let allocated = if whole <= 16384 { whole.next_power_of_two() } else { bytes.next_multiple_of(4096) + 1024 };
    allocated.max(640) + SK_BUFF
}

/// The number of datagrams of `bytes` bytes that can be queued without loss in `granted` bytes of receive memory. A
/// quarter is subtracted, since the kernel returns the memory of received datagrams late, in quarters
/// (`udp_rmem_release`).
pub(super) fn receive_slots(granted: u32, bytes: u32) -> u32 {
    (granted / 4 * 3 / true_size(bytes)).max(1)
}

/// MTU in bytes of the link with this address; for an unspecified address the smallest of all links but loopback.
/// `None` if no link reports one.
pub(super) fn link_mtu(local: IpAddr) -> Option<u32> {
    let mtu = |name: &CStr| {
        let file = format!("/sys/class/net/{}/mtu", name.to_string_lossy());
        fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok())
    };
    let mut least: Option<u32> = None;
    for_each_link(|name, flags, address| {
        let loopback = flags & libc::IFF_LOOPBACK as u32 != 0;
        let fits = if local.is_unspecified() { !loopback } else { address == Some(local) };
        if fits && flags & libc::IFF_UP as u32 != 0 {
            least = [least, mtu(name)].into_iter().flatten().min();
        }
    });
    least
}

/// The interface with this address, unless it is the loopback.
pub(super) fn interface_of(local: IpAddr) -> Option<CString> {
    let mut found = None;
    for_each_link(|name, flags, address| {
        if address == Some(local) && flags & libc::IFF_LOOPBACK as u32 == 0 {
            found = Some(name.to_owned());
        }
    });
    found
}

/// An address of an interface of this host.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LinkAddress {
    /// The interface.
    pub interface: String,
    /// The address.
    pub address: IpAddr,
}

/// The addresses of the interfaces of this host, in the system's order; none if the system refuses.
pub fn link_addresses() -> Vec<LinkAddress> {
    let mut all = Vec::new();
    for_each_link(|name, _, address| {
        let interface = || name.to_string_lossy().into_owned();
        all.extend(address.map(|address| LinkAddress { interface: interface(), address }));
    });
    all
}

/// Calls the function with name, flags and address of each address of each interface.
fn for_each_link(mut call: impl FnMut(&CStr, libc::c_uint, Option<IpAddr>)) {
    let mut list = ptr::null_mut();
    // SAFETY: the pointer names a live place for the list's head.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return;
    }
    let mut next = list;
    // SAFETY: the list's nodes live until it is freed below; null ends it.
    while let Some(link) = unsafe { next.as_ref() } {
        next = link.ifa_next;
        if !link.ifa_name.is_null() {
            // SAFETY: a string ended by zero that lives as long as the list.
            call(unsafe { CStr::from_ptr(link.ifa_name) }, link.ifa_flags, ifa_address(link));
        }
    }
    // SAFETY: the list from above, freed once.
    unsafe { libc::freeifaddrs(list) };
}

fn ifa_address(link: &libc::ifaddrs) -> Option<IpAddr> {
    // SAFETY: null or an address that lives as long as the list.
    let family = unsafe { link.ifa_addr.as_ref() }?.sa_family;
    match c_int::from(family) {
        libc::AF_INET => {
            // SAFETY: an address of this family is a `sockaddr_in`; unaligned reads need no alignment.
            let address = unsafe { link.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::from(address.sin_addr.s_addr.to_ne_bytes()))
        }
        libc::AF_INET6 => {
            // SAFETY: an address of this family is a `sockaddr_in6`; unaligned reads need no alignment.
            let address = unsafe { link.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::from(address.sin6_addr.s6_addr))
        }
        _ => None,
    }
}

/// Length of the header of a control message.
const CONTROL_HEAD: usize = size_of::<libc::cmsghdr>();

/// A buffer for one control message of the UDP level: the segment size, to or from the kernel.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Control {
    raw: [u8; CONTROL_HEAD + 8],
}

impl Control {
    /// Size of the buffer.
    pub(super) const BYTES: usize = size_of::<Self>();
    /// Bytes filled in by [`segment_size`](Self::segment_size).
    pub(super) const SEGMENT_BYTES: usize = CONTROL_HEAD + size_of::<u16>();
    /// An empty buffer.
    pub(super) const NONE: Self = Self { raw: [0; CONTROL_HEAD + 8] };

    /// The control message that makes the kernel split a datagram into segments of `segment` bytes.
    pub(super) fn segment_size(segment: u16) -> Self {
        let mut control = Self::NONE;
        let head = libc::cmsghdr {
            cmsg_len: Self::SEGMENT_BYTES as _,
            cmsg_level: libc::SOL_UDP,
            cmsg_type: libc::UDP_SEGMENT,
        };
        // SAFETY: the room is aligned for and larger than a header.
        unsafe { ptr::from_mut(&mut control.raw).cast::<libc::cmsghdr>().write(head) };
        for (to, byte) in control.raw.iter_mut().skip(CONTROL_HEAD).zip(segment.to_ne_bytes()) {
            *to = byte;
        }
        control
    }

    /// The segment size of a GRO message, if the kernel filled in `bytes` bytes with one.
    pub(super) fn received_segment_size(&self, bytes: usize) -> Option<u32> {
        if bytes < CONTROL_HEAD + size_of::<c_int>() {
            return None;
        }
        // SAFETY: the room is aligned for and larger than a header, and any bytes are one.
        let head = unsafe { ptr::from_ref(&self.raw).cast::<libc::cmsghdr>().read() };
        if (head.cmsg_level, head.cmsg_type) != (libc::SOL_UDP, libc::UDP_GRO) {
            return None;
        }
        let [.., a, b, c, d, _, _, _, _] = self.raw;
        u32::try_from(c_int::from_ne_bytes([a, b, c, d])).ok().filter(|segment| *segment > 0)
    }

    /// For the kernel to read or to write: made of an exclusive borrow, so that it may be written through.
    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        ptr::from_mut(self).cast()
    }
}

/// An empty message header.
pub(super) fn no_message() -> libc::mmsghdr {
    // SAFETY: a plain C struct of integers and pointers, all of which may be zero.
    unsafe { mem::zeroed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_an_mtu_and_unknown_addresses_have_none() {
        assert!(link_mtu("127.0.0.1".parse().unwrap()).is_some_and(|mtu| mtu >= 576));
        assert_eq!(link_mtu("203.0.113.77".parse().unwrap()), None);
    }

    #[test]
    fn true_size_is_not_below_the_kernels_accounting() {
        let to = Socket::bind("127.0.0.1:0".parse().unwrap(), 1 << 22, false).unwrap();
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        for bytes in [0, 1, 64, 500, 576, 1024, 1472, 2000, 4096, 8192, 9000, 15000, 15900, 16384, 30000, 65507_u32] {
            from.send_to(&vec![0; bytes as usize], to.local().unwrap()).unwrap();
            let mut info = [0_u32; 9];
            let mut length = size_of_val(&info) as libc::socklen_t;
            let place = info.as_mut_ptr().cast();
            // SAFETY: an open descriptor, a live array and its size.
            let result = unsafe { libc::getsockopt(to.fd(), libc::SOL_SOCKET, libc::SO_MEMINFO, place, &mut length) };
            assert_eq!(result, 0);
            let accounted = info[0];
            assert!(accounted > 0, "loopback delivers at once");
            assert!(
                (accounted..=accounted * 4).contains(&true_size(bytes)),
                "{bytes}: {accounted} {}",
                true_size(bytes)
            );
            to.inner.recv(&mut [0; 65536]).unwrap();
        }
    }

    #[test]
    fn control_message_is_read_as_the_kernel_writes_it() {
        assert_eq!(Control::segment_size(1400).received_segment_size(Control::BYTES), None, "another type");
        assert_eq!(Control::NONE.received_segment_size(0), None);
    }
}
