//! Waits for arrivals without holding the device's lock: on the completion channel and an eventfd.

use alloc::sync::Arc;
use core::ffi::c_int;
use core::ptr;
use core::time::Duration;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use unisono_core::window::rails::MAX_RAILS;

/// The end of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WakeReason {
    /// The lane that was armed raised its event.
    Arrived,
    /// [`ArrivalWaiter::notify`] was called, or the adapter reported an asynchronous event: poll the device's events.
    Notified,
    /// Neither within the time.
    TimedOut,
}

/// Waits for the event of one lane, which [`Device::arm`](unisono_core::device::Device::arm) requests. Clones share it;
/// the device need not be held meanwhile.
#[derive(Clone, Debug)]
pub struct ArrivalWaiter {
    channel: Arc<OwnedFd>,
    rung: Arc<OwnedFd>,
}

impl ArrivalWaiter {
    /// `channel` becomes readable at an event. It is duplicated, so that the waiter may outlive its queue pair.
    pub(super) fn new(channel: RawFd) -> io::Result<Self> {
        // SAFETY: no pointers.
        let channel = owned(unsafe { libc::fcntl(channel, libc::F_DUPFD_CLOEXEC, 0) })?;
        Ok(Self { channel: Arc::new(channel), rung: Arc::new(counter()?) })
    }

    /// Blocks until the event is raised, [`notify`](Self::notify) is called or the timeout expires; `None` waits for
    /// ever. A signal ends it like a timeout. Earlier calls of `notify` are not lost; one wait consumes them all.
    pub fn wait(&self, timeout: Option<Duration>) -> WakeReason {
        wait_any(core::slice::from_ref(self), timeout)
    }

    /// Ends a wait, or the next one.
    pub fn notify(&self) {
        ring(&self.rung);
    }
}

impl ArrivalWaiter {
    /// Releases the channel, for all clones: while a descriptor of it is open, the kernel cannot remove the adapter.
    pub(super) fn detach(&self) {
        // SAFETY: two open descriptors of the bell's; from now on both are its counter.
        unsafe { libc::dup3(self.rung.as_raw_fd(), self.channel.as_raw_fd(), libc::O_CLOEXEC) };
        self.notify();
    }
}

/// As [`ArrivalWaiter::wait`], for the events of several rails, at most [`MAX_RAILS`].
pub(super) fn wait_any(waiters: &[ArrivalWaiter], timeout: Option<Duration>) -> WakeReason {
    let mut descriptors = [-1; 2 * MAX_RAILS as usize];
    let all = waiters.iter().flat_map(|waiter| [waiter.channel.as_raw_fd(), waiter.rung.as_raw_fd()]);
    descriptors.iter_mut().zip(all).for_each(|(place, descriptor)| *place = descriptor);
    let ready = wait(descriptors, timeout);
    let (pairs, _) = ready.as_chunks();
    let mut rung = false;
    for (waiter, [_, is_rung]) in waiters.iter().zip(pairs).filter(|(_, [_, is_rung])| *is_rung) {
        take(&waiter.rung);
        rung |= is_rung;
    }
    match rung {
        true => WakeReason::Notified,
        false if ready.contains(&true) => WakeReason::Arrived,
        false => WakeReason::TimedOut,
    }
}

/// Makes a descriptor non-blocking.
pub(super) fn set_nonblocking(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let number = descriptor.as_raw_fd();
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFL) };
    // SAFETY: no pointers.
    if flags < 0 || unsafe { libc::fcntl(number, libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// An eventfd that counts wake-ups.
pub(super) fn counter() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
}

pub(super) fn ring(counter: &OwnedFd) {
    let one = 1_u64;
    // SAFETY: an open descriptor and eight live bytes. It fails only when 2⁶⁴ − 2 rings wait: no matter.
    unsafe { libc::write(counter.as_raw_fd(), ptr::from_ref(&one).cast(), size_of::<u64>()) };
}

fn take(counter: &OwnedFd) {
    let mut count = 0_u64;
    // SAFETY: an open descriptor and eight live bytes. Another waiter may have taken the rings: no matter.
    unsafe { libc::read(counter.as_raw_fd(), ptr::from_mut(&mut count).cast(), size_of::<u64>()) };
}

/// Which of these descriptors are readable, after `timeout` at most. Negative ones never are.
pub(super) fn wait<const N: usize>(descriptors: [RawFd; N], timeout: Option<Duration>) -> [bool; N] {
    let mut entries = descriptors.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    let time = timeout.map(|timeout| libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: as many live entries, a live or null time, no signal mask.
    let ready = unsafe { libc::ppoll(entries.as_mut_ptr(), N as libc::nfds_t, time, ptr::null()) };
    entries.map(|entry| ready > 0 && entry.revents != 0)
}

fn owned(fd: c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
