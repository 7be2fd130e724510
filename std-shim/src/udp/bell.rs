//! Blocking wait for arrivals on a queue, without holding the device's lock.

use alloc::sync::Arc;
use core::{ffi::c_int, ptr, time::Duration};
use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
};

use super::socket::Socket;

/// Why a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Woken {
    /// A datagram arrived on the queue, or its socket reports an error.
    Arrived,
    /// [`Bell::ring`] was called.
    Rung,
    /// The timeout expired, or a signal interrupted the wait.
    TimedOut,
}

/// Waits for the arrivals of one queue. Clones share its state; the device need not be held during the wait.
///
/// Datagrams that the device has already taken from the kernel do not end a wait: call
/// [`Device::arm`](unisono_core::device::Device::arm) first.
#[derive(Clone, Debug)]
pub struct Bell {
    socket: Arc<Socket>,
    rung: Arc<OwnedFd>,
}

impl Bell {
    pub(super) fn new(socket: Arc<Socket>) -> io::Result<Self> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, owned by nobody else.
        let rung = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { socket, rung: Arc::new(rung) })
    }

    /// Blocks until a datagram arrives, [`ring`](Self::ring) is called or the timeout expires (`None`: never). A signal
    /// counts as a timeout. Earlier calls of `ring` are not lost; one wait consumes them all.
    pub fn wait(&self, timeout: Option<Duration>) -> Woken {
        let entry = |fd: RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut entries = [entry(self.socket.fd()), entry(self.rung.as_raw_fd())];
        let time = timeout.map(|timeout| libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: two live entries, a live or null time, no signal mask.
        let ready = unsafe { libc::ppoll(entries.as_mut_ptr(), 2, time, ptr::null()) };
        let [socket, rung] = entries;
        match ready {
            c_int::MIN..=0 => Woken::TimedOut,
            _ if rung.revents != 0 => {
                let mut count = 0_u64;
                let place = ptr::from_mut(&mut count).cast();
                // SAFETY: an open descriptor and eight live bytes. Another waiter may have taken the rings: no matter.
                unsafe { libc::read(self.rung.as_raw_fd(), place, size_of::<u64>()) };
                Woken::Rung
            }
            _ if socket.revents != 0 => Woken::Arrived,
            _ => Woken::TimedOut,
        }
    }

    /// Ends the current wait, or the next one.
    pub fn ring(&self) {
        let once = 1_u64;
        // SAFETY: an open descriptor and eight live bytes. It fails only when 2⁶⁴ − 2 rings wait already.
        unsafe { libc::write(self.rung.as_raw_fd(), ptr::from_ref(&once).cast(), size_of::<u64>()) };
    }
}
