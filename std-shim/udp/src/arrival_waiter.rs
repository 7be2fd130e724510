//! Blocking wait for arrivals on a queue, without holding the device's lock.

use alloc::sync::Arc;
use core::time::Duration;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::socket::Socket;

/// The reason why a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WakeReason {
    /// A datagram arrived on the queue, or its socket reports an error.
    Arrived,
    /// [`ArrivalWaiter::notify`] was called.
    Notified,
    /// The timeout expired, or a signal interrupted the wait.
    TimedOut,
}

/// What arrivals make readable.
#[derive(Clone, Debug)]
enum Arrivals {
    /// The only rail's socket.
    Socket(Arc<Socket>),
    /// An epoll instance that watches the sockets of several rails.
    Sockets(Arc<(OwnedFd, Mutex<Vec<Arc<Socket>>>)>),
}

impl AsFd for Arrivals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Socket(socket) => socket.as_fd(),
            Self::Sockets(sockets) => sockets.0.as_fd(),
        }
    }
}

/// Waits for the arrivals of one queue. Clones share its state; the device need not be held during the wait.
///
/// Datagrams that the device has already taken from the kernel do not end a wait: call
/// [`Device::arm`](unisono_core::device::Device::arm) first.
#[derive(Clone, Debug)]
pub struct ArrivalWaiter {
    arrivals: Arrivals,
    event: Arc<OwnedFd>,
    /// Sockets of multicast groups.
    groups: Arc<Mutex<Vec<Arc<Socket>>>>,
}

impl ArrivalWaiter {
    /// A waiter for the socket of each rail, of which there may be more later if `grows`.
    pub(super) fn new(mut sockets: Vec<Arc<Socket>>, grows: bool) -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let arrivals = match sockets.pop() {
            Some(only) if sockets.is_empty() && !grows => Arrivals::Socket(only),
            last => {
                sockets.extend(last);
                let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
                for socket in &sockets {
                    epoll::add(&all, socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
                }
                Arrivals::Sockets(Arc::new((all, Mutex::new(sockets))))
            }
        };
        Ok(Self { arrivals, event: Arc::new(event), groups: Arc::default() })
    }

    fn groups(&self) -> MutexGuard<'_, Vec<Arc<Socket>>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on arrivals at the socket of another rail end a wait, too.
    pub(super) fn add(&self, socket: Arc<Socket>) -> io::Result<()> {
        let Arrivals::Sockets(sockets) = &self.arrivals else { return Err(io::ErrorKind::Unsupported.into()) };
        let (all, known) = &**sockets;
        epoll::add(all, &socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        known.lock().unwrap_or_else(PoisonError::into_inner).push(socket);
        Ok(())
    }

    /// Undoes [`add`](Self::add).
    pub(super) fn remove(&self, socket: &Arc<Socket>) {
        let Arrivals::Sockets(sockets) = &self.arrivals else { return };
        let (all, known) = &**sockets;
        // It fails only for a socket that is not there.
        let _ = epoll::delete(all, socket);
        known.lock().unwrap_or_else(PoisonError::into_inner).retain(|one| !Arc::ptr_eq(one, socket));
    }

    /// From now on arrivals at this socket end a wait, too, but not one that has begun.
    pub(super) fn watch(&self, socket: Arc<Socket>) {
        self.groups().push(socket);
    }

    /// Undoes [`watch`](Self::watch).
    pub(super) fn ignore(&self, socket: &Arc<Socket>) {
        self.groups().retain(|watched| !Arc::ptr_eq(watched, socket));
    }

    /// Blocks until something arrives, [`notify`](Self::notify) is called or the timeout expires; `None` waits for
    /// ever. A signal ends it like a timeout. Earlier calls of `notify` are not lost; one wait consumes them all.
    pub fn wait(&self, timeout: Option<Duration>) -> WakeReason {
        let groups = self.groups().clone();
        if !groups.is_empty() {
            let groups = groups.iter().map(|socket| PollFd::new(socket, PollFlags::IN));
            let entries = [PollFd::new(&self.arrivals, PollFlags::IN)].into_iter().chain(groups);
            return self.wait_for(&mut entries.chain([self.event_entry()]).collect::<Vec<_>>(), timeout);
        }
        self.wait_for(&mut [PollFd::new(&self.arrivals, PollFlags::IN), self.event_entry()], timeout)
    }

    fn event_entry(&self) -> PollFd<'_> {
        PollFd::new(&self.event, PollFlags::IN)
    }

    /// Waits for one of these, the last of which is the event.
    fn wait_for(&self, entries: &mut [PollFd<'_>], timeout: Option<Duration>) -> WakeReason {
        // A timeout that `Timespec` cannot represent means no timeout.
        let time = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        if poll(entries, time.as_ref()).is_err() {
            return WakeReason::TimedOut;
        }
        let Some((rung, sockets)) = entries.split_last() else { return WakeReason::TimedOut };
        if !rung.revents().is_empty() {
            // Another waiter may have taken the rings: no matter.
            let _ = rustix::io::read(&self.event, &mut [0; size_of::<u64>()]);
            WakeReason::Notified
        } else if sockets.iter().any(|socket| !socket.revents().is_empty()) {
            WakeReason::Arrived
        } else {
            WakeReason::TimedOut
        }
    }

    /// The descriptor that arrivals make readable.
    pub fn arrivals(&self) -> BorrowedFd<'_> {
        self.arrivals.as_fd()
    }

    /// Ends the current wait, or the next one.
    pub fn notify(&self) {
        // It fails only when 2⁶⁴ − 2 rings wait already.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}
