//! Whether the kernel supports segmentation offload of UDP datagrams (GSO, GRO).

use core::ptr;
use std::{net::UdpSocket, os::fd::AsRawFd};

/// Whether the kernel supports the socket option UDP_SEGMENT (Linux 4.18).
pub(crate) fn has_gso(socket: &UdpSocket) -> bool {
    knows(socket, libc::UDP_SEGMENT)
}

/// Whether the kernel supports the socket option UDP_GRO (Linux 5.0).
pub(crate) fn has_gro(socket: &UdpSocket) -> bool {
    knows(socket, libc::UDP_GRO)
}

fn knows(socket: &UdpSocket, option: libc::c_int) -> bool {
    let mut value: libc::c_int = 0;
    let mut bytes = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the descriptor is open while `socket` is borrowed; `value` and `bytes` are this function's, and `bytes`
    // says how much the kernel may write.
    let refused = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_UDP, option, ptr::from_mut(&mut value).cast(), &raw mut bytes)
    };
    refused == 0
}
