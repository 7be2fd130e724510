//! A file descriptor for event loops: readable when the World may have something to do.

use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use unisono_core::device::DeviceQueue;

use super::World;
use super::communicator::Communicator;

/// How long an idle World sleeps, first and at most, while something may arrive through shared memory or a multicast
/// group, which signal no file descriptor.
const SHM_IDLE: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(2)];

/// A file descriptor that an event loop polls for input. Before the loop sleeps it calls [`World::arm`]; when the
/// descriptor is readable it makes progress.
///
/// ```
/// use std::os::fd::AsFd;
/// use unisono::World;
///
/// let world = World::join()?;
/// let mut source = world.event_source()?;
/// let timeout = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
/// if world.arm(&mut source)? {
///     rustix::event::poll(&mut [rustix::event::PollFd::new(&source, rustix::event::PollFlags::IN)], Some(&timeout))?;
/// }
/// world.progress();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct EventSource {
    epoll: OwnedFd,
    timer: OwnedFd,
    idle: Duration,
}

impl AsFd for EventSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Communicator {
    /// Makes progress once: handles what has arrived, and transmits what waits. Returns whether anything moved.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// world.send(&[1_u8], world.rank(), Tag(1))?;
    /// while world.immediate_probe(None, None)?.is_none() {
    ///     world.progress();
    /// }
    /// # world.receive::<u8>(None, None)?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn progress(&self) -> bool {
        let mut process = self.shared.lock();
        let moved = self.shared.progress(&mut process);
        drop(process);
        self.shared.yield_if_oversubscribed();
        moved
    }
}

impl World {
    /// A file descriptor for an event loop.
    ///
    /// ```
    /// use std::os::fd::AsFd;
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let source = world.event_source()?;
    /// // For `poll` or `epoll`, beside other descriptors.
    /// let descriptor = source.as_fd();
    /// # let _ = descriptor;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The operating system refuses a descriptor.
    pub fn event_source(&self) -> io::Result<EventSource> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        let (data, flags) = (epoll::EventData::new_u64(0), epoll::EventFlags::IN);
        epoll::add(&epoll, &timer, data, flags)?;
        if let Some(socket) = self.shared.arrivals() {
            epoll::add(&epoll, socket, data, flags)?;
        }
        Ok(EventSource { epoll, timer, idle: SHM_IDLE[0] })
    }

    /// Makes progress once, and prepares the source for a sleep: it becomes readable when something arrives or a timer
    /// of the World expires. Returns false if there is more to do: make progress before sleeping. While ranks share
    /// memory, or broadcast by multicast, which signal no descriptor, it becomes readable after 50 µs, and after up to
    /// 2 ms while the World is idle.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut source = world.event_source()?;
    /// if world.arm(&mut source)? {
    ///     // Sleep in `poll` until the source, or another descriptor, is readable.
    /// }
    /// world.progress();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The operating system refuses to set the timer.
    pub fn arm(&self, source: &mut EventSource) -> io::Result<bool> {
        let mut process = self.shared.lock();
        if self.shared.progress(&mut process) {
            source.idle = SHM_IDLE[0];
            return Ok(false);
        }
        if !process.is_single_node() && !process.enable_notification(DeviceQueue::Polled) {
            return Ok(false);
        }
        let check = process.next_check();
        let mut rest = Duration::from_nanos(process.next_timeout().map_or(check, |rest| rest.min(check)));
        // The descriptor is that of the socket of messages alone.
        let others = process.uses_groups() || process.transport.shm.as_ref().is_some_and(|shm| shm.peer_count > 0);
        drop(process);
        if others {
            rest = rest.min(source.idle);
            source.idle = source.idle.saturating_mul(2).min(SHM_IDLE[1]);
        }
        let rest = rest.max(Duration::from_nanos(1));
        let it_value = Timespec { tv_sec: rest.as_secs() as i64, tv_nsec: i64::from(rest.subsec_nanos()) };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        timerfd_settime(&source.timer, TimerfdTimerFlags::empty(), &once)?;
        Ok(true)
    }
}
