//! Waiting for arrivals outside the device's lock.

use alloc::sync::Arc;
use core::time::Duration;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::{io, os::fd::OwnedFd};

use super::socket::Socket;

/// What ended a wait.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Woken {
    /// Something arrived on the lane, or its socket has an error to report.
    Arrived,
    /// [`Bell::ring`] was called.
    Rung,
    /// Neither within the time.
    TimedOut,
}

/// Waits for the arrivals of one lane. Clones share it; the device need not be held meanwhile.
///
/// Arrivals that the device already took from the kernel are not seen here: ask
/// [`Device::arm`](unisono_core::device::Device::arm) first.
#[derive(Clone, Debug)]
pub struct Bell {
    socket: Arc<Socket>,
    rung: Arc<OwnedFd>,
}

impl Bell {
    pub(super) fn new(socket: Arc<Socket>) -> io::Result<Self> {
        let rung = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { socket, rung: Arc::new(rung) })
    }

    /// Blocks until something arrives, somebody rings or the time is over; `None` is for ever. A signal ends it as time does.
    /// Rings that came before are not lost; one wait takes them all.
    pub fn wait(&self, timeout: Option<Duration>) -> Woken {
        let mut entries = [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(&self.rung, PollFlags::IN)];
        // A time too long to be written is for ever.
        let time = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        if poll(&mut entries, time.as_ref()).is_err() {
            return Woken::TimedOut;
        }
        let [socket, rung] = entries;
        if !rung.revents().is_empty() {
            // Another waiter may have taken the rings: no matter.
            let _ = rustix::io::read(&self.rung, &mut [0; size_of::<u64>()]);
            Woken::Rung
        } else if !socket.revents().is_empty() {
            Woken::Arrived
        } else {
            Woken::TimedOut
        }
    }

    /// Ends the present wait, or the next one.
    pub fn ring(&self) {
        // It fails only when 2⁶⁴ − 2 rings wait already.
        let _ = rustix::io::write(&self.rung, &1_u64.to_ne_bytes());
    }
}
