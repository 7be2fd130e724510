//! The bare loop: UDP with the kernel's batching and one copy, without a protocol.

use core::{ffi::c_int, mem, net::SocketAddr, ptr};
use std::{io, net::UdpSocket, os::fd::AsRawFd};

/// Bytes of memory asked for each direction.
const BUFFER: c_int = 8 << 20;

/// Bytes of a joined datagram at most, and messages of one call that receive such.
const JOINED: (usize, usize) = (65535, 8);

/// Room for one control message.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; 24]);

/// A socket and its batches. Not connected, like the device's.
pub struct Bare {
    socket: UdpSocket,
    bytes: usize,
    batch: usize,
    gso: bool,
    source: Vec<u8>,
    buffers: Vec<u8>,
    stride: usize,
    target: Vec<u8>,
    cursor: usize,
}

impl Bare {
    /// A socket on loopback that sends and receives datagrams of `bytes` bytes, `batch` in one call.
    pub fn new(bytes: usize, batch: usize, gso: bool) -> io::Result<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_nonblocking(true)?;
        let (each, count) = if gso { JOINED } else { (bytes, batch) };
        let stride = (each.div_ceil(64) | 1) * 64;
        let bare = Self {
            socket,
            bytes,
            batch,
            gso,
            source: vec![7; bytes * batch],
            buffers: vec![0; stride * count],
            stride,
            target: vec![0; bytes * batch],
            cursor: 0,
        };
        if bare.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER).is_err() {
            bare.set(libc::SOL_SOCKET, libc::SO_RCVBUF, BUFFER)?;
        }
        bare.set(libc::SOL_SOCKET, libc::SO_SNDBUF, 1 << 20)?;
        if gso {
            bare.set(libc::SOL_UDP, libc::UDP_GRO, 1)?;
        }
        Ok(bare)
    }

    fn set(&self, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
        let bytes = size_of::<c_int>() as libc::socklen_t;
        // SAFETY: the descriptor is open; the pointer names a live int and its size.
        let result =
            unsafe { libc::setsockopt(self.socket.as_raw_fd(), level, option, (&raw const value).cast(), bytes) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Its address.
    pub fn local(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Sends one batch; returns the number of datagrams that the kernel accepted.
    pub fn send(&mut self, to: SocketAddr) -> usize {
        let SocketAddr::V4(to) = to else { return 0 };
        let mut name = libc::sockaddr_in {
            sin_family: libc::AF_INET as u16,
            sin_port: to.port().to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(to.ip().octets()) },
            sin_zero: [0; 8],
        };
        let run = if self.gso { (65507 / self.bytes).min(64) } else { 1 };
        let mut controls = [Control([0; 24]); 64];
        // SAFETY: plain C structs of integers and pointers, all of which may be zero.
        let mut messages: [libc::mmsghdr; 64] = unsafe { mem::zeroed() };
        let mut pieces = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; 64];
        let (mut count, mut left) = (0, self.batch);
        let arrays =
            messages.iter_mut().zip(&mut pieces).zip(&mut controls).zip(self.source.chunks_mut(run * self.bytes));
        for (((message, piece), control), source) in arrays {
            if left == 0 {
                break;
            }
            *piece = libc::iovec { iov_base: source.as_mut_ptr().cast(), iov_len: source.len() };
            let header = &mut message.msg_hdr;
            header.msg_name = (&raw mut name).cast();
            header.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            header.msg_iov = piece;
            header.msg_iovlen = 1;
            if source.len() > self.bytes {
                let head = libc::cmsghdr { cmsg_len: 18, cmsg_level: libc::SOL_UDP, cmsg_type: libc::UDP_SEGMENT };
                // SAFETY: the buffer is aligned for a header, and has room for one.
                unsafe { control.0.as_mut_ptr().cast::<libc::cmsghdr>().write(head) };
                control.0[16..18].copy_from_slice(&(self.bytes as u16).to_ne_bytes());
                header.msg_control = control.0.as_mut_ptr().cast();
                header.msg_controllen = 18;
            }
            left -= run.min(left);
            count += 1;
        }
        // SAFETY: `count` messages filled above with live names, pieces and controls.
        let sent = unsafe { libc::sendmmsg(self.socket.as_raw_fd(), messages.as_mut_ptr(), count, libc::MSG_DONTWAIT) };
        usize::try_from(sent).map_or(0, |sent| (sent * run).min(self.batch))
    }

    /// Receives one batch and copies each datagram; returns their number.
    pub fn receive(&mut self) -> usize {
        let each = if self.gso { JOINED.0 } else { self.bytes };
        let count = if self.gso { JOINED.1 } else { self.batch };
        let mut controls = [Control([0; 24]); 64];
        let mut names = [[0_u32; 7]; 64];
        // SAFETY: plain C structs of integers and pointers, all of which may be zero.
        let mut messages: [libc::mmsghdr; 64] = unsafe { mem::zeroed() };
        let mut pieces = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; 64];
        let arrays = messages.iter_mut().zip(&mut pieces).zip(&mut controls).zip(&mut names);
        for ((((message, piece), control), name), buffer) in arrays.zip(self.buffers.chunks_mut(self.stride)) {
            *piece = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: each };
            let header = &mut message.msg_hdr;
            header.msg_name = name.as_mut_ptr().cast();
            header.msg_namelen = 28;
            header.msg_iov = piece;
            header.msg_iovlen = 1;
            if self.gso {
                header.msg_control = control.0.as_mut_ptr().cast();
                header.msg_controllen = 24;
            }
        }
        // SAFETY: `count` messages filled above with live names, pieces and controls.
        let got = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                messages.as_mut_ptr(),
                count as _,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        let mut datagrams = 0;
        let got = usize::try_from(got).unwrap_or(0);
        for (message, buffer) in messages.iter().zip(self.buffers.chunks(self.stride)).take(got) {
            for datagram in buffer[..message.msg_len as usize].chunks(self.bytes) {
                self.target[self.cursor..][..datagram.len()].copy_from_slice(datagram);
                self.cursor = (self.cursor + self.bytes) % self.target.len();
                datagrams += 1;
            }
        }
        datagrams
    }

    /// Sends one datagram of `bytes` bytes.
    pub fn ping(&self, to: SocketAddr) {
        self.socket.send_to(&self.source[..self.bytes], to).ok();
    }

    /// Spins until one datagram arrives, and copies it; returns 1.
    pub fn wait(&mut self) -> usize {
        while self.socket.recv_from(&mut self.buffers[..self.bytes]).is_err() {}
        self.target[..self.bytes].copy_from_slice(&self.buffers[..self.bytes]);
        1
    }
}
