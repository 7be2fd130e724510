//! Progress and blocking waits: who makes progress, and how a thread spins, sleeps and is woken (Koop et al. 2007,
//! §4.2.2).

pub(super) mod biased_lock;
mod scheduler_slice;
pub(super) mod user_threads;

use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use std::io;
use std::os::fd::BorrowedFd;
use std::thread::JoinHandle;

use unisono_core::device::DeviceQueue;
use unisono_shmem::host::wait_strategy::PollScope;
use unisono_shmem::layout::WaitMode;

use super::datagram_transport::TransportWaiter;
use super::process::Process;
use super::request::handle::RequestHandle;
use super::request::{Failure, Status};
use super::watchdog::BlockedOn;
use crate::environment::Progress;
use crate::node::Node;
use biased_lock::{BiasedLock, LockGuard, LockedCell, OwnerGuard};
use unisono_bootstrap::Rank;
use user_threads::UserThreads;

/// How often the progress thread wakes while it attends to what wakes no thread.
const THREAD_INTERVAL: Duration = Duration::from_millis(1);
/// Longest sleep of the progress thread of the hybrid mode.
const HYBRID_INTERVAL: Duration = Duration::from_millis(250);
/// Rounds that the progress thread makes before it releases the lock.
const ROUNDS: u32 = 64;
/// Nanoseconds for which a thread spins before it sleeps, with a core for every rank and without.
const SPIN: u64 = 50_000;
const SPIN_OVERSUBSCRIBED: u64 = 100_000;
/// Polls for arrivals alone between two full rounds of a thread that spins.
const ARRIVAL_POLLS: u32 = 7;
/// Longest sleep while something may arrive through shared memory, which signals no file descriptor.
const SHM_SLEEP: Duration = Duration::from_micros(100);
/// Nanoseconds between two checks whether the ranks of this node live.
const LIVENESS_INTERVAL: u64 = 1_000_000;

/// Aborts the process when a panic unwinds through progress, as a panicking subscriber of `tracing` would cause: the
/// callers' frames, whose buffers are in use, would be gone while other ranks and threads write there.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    #[cold]
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// How a request has ended, if it has.
type Completion = Option<Result<Status, Failure>>;

/// The event that a wait depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WaitFor {
    /// An action of this rank.
    Rank(Rank),
    /// An action of any rank.
    AnyRank,
    /// An event that takes long and wakes no waiter, such as the end of the other ranks.
    Notification,
}

impl WaitFor {
    /// What several waits depend on together, each on a rank or on any.
    pub(super) fn common(peers: impl IntoIterator<Item = Option<Rank>>) -> Self {
        let mut peers = peers.into_iter();
        let first = peers.next().flatten();
        first.filter(|first| peers.all(|peer| peer == Some(*first))).map_or(Self::AnyRank, Self::Rank)
    }
}

/// A process, its lock, and the arrival waiters of its queues.
pub(super) struct SharedProcess {
    process: BiasedLock<Process>,
    polled: TransportWaiter,
    interrupt: TransportWaiter,
    pub(super) oversubscribed: bool,
    /// `None` where no rank is reached through shared memory.
    node: Option<Arc<Node>>,
    /// Threads that sleep on the polled queue's waiter.
    sleepers: AtomicU32,
    /// Whether the progress thread sleeps for longer than [`THREAD_INTERVAL`].
    sleeps_long: AtomicBool,
    stopped: AtomicBool,
    users: UserThreads,
}

impl SharedProcess {
    pub(super) fn new(
        process: Process,
        users: UserThreads,
        [polled, interrupt]: [TransportWaiter; 2],
        oversubscribed: bool,
    ) -> Self {
        let sleepers = AtomicU32::new(0);
        let [sleeps_long, stopped] = [false, false].map(AtomicBool::new);
        let node = process.transport.shm.as_ref().filter(|shm| shm.peer_count > 0).map(|shm| Arc::clone(&shm.node));
        Self {
            process: BiasedLock::new(process),
            polled,
            interrupt,
            oversubscribed,
            node,
            sleepers,
            sleeps_long,
            stopped,
            users,
        }
    }

    pub(super) fn lock(&self) -> LockGuard<'_, Process> {
        let guard = self.process.lock();
        // A thread queues at least once, before it can own the lock.
        if guard.has_queued() {
            self.users.register();
        }
        guard
    }

    /// Acquires the lock if the calling thread is its uncontended owner.
    #[inline(always)]
    pub(super) fn try_enter(&self) -> Option<OwnerGuard<'_, Process>> {
        self.process.try_enter()
    }

    /// Access to a cell that the same lock guards, for the holder of the lock.
    ///
    /// # Safety
    /// As of [`BiasedLock::locked_cell`].
    #[inline]
    pub(super) unsafe fn locked_cell<'a, T>(&self, process: &'a mut Process, beside: &'a LockedCell<T>) -> &'a mut T {
        // SAFETY: the caller promises that the value is always reached by this, and beside this World's lock.
        unsafe { self.process.locked_cell(process, beside) }
    }

    /// The descriptor that arrivals of datagrams make readable, if the device has one.
    pub(super) fn arrivals(&self) -> Option<BorrowedFd<'_>> {
        self.polled.arrivals()
    }

    /// Yields the processor where there are more ranks than processors.
    pub(super) fn yield_if_oversubscribed(&self) {
        if self.oversubscribed {
            std::thread::yield_now();
        }
    }

    /// Makes progress until `done` returns a result. A panic in either aborts the process.
    pub(super) fn wait_until<R>(&self, awaits: WaitFor, done: impl FnMut(&mut Process) -> Option<R>) -> R {
        let unfinished = AbortOnPanic;
        let result = match &self.node {
            Some(node) => self.wait_until_shm(node, awaits, done),
            None => self.wait_until_remote(awaits, done),
        };
        core::mem::forget(unfinished);
        result
    }

    /// As [`wait_until`](Self::wait_until), and records meanwhile that a thread waits for this, for hang reports.
    pub(super) fn wait_until_recorded<R>(
        &self,
        awaits: WaitFor,
        what: BlockedOn,
        mut done: impl FnMut(&mut Process) -> Option<R>,
    ) -> R {
        let mut waits = false;
        self.wait_until(awaits, |process| {
            let ended = done(process);
            match &ended {
                None if !waits => {
                    process.record_wait(None, what);
                    waits = true;
                }
                Some(_) if waits => process.clear_wait(None, what),
                _ => {}
            }
            ended
        })
    }

    /// Waits where some ranks are reached through shared memory.
    fn wait_until_shm<R>(&self, node: &Node, awaits: WaitFor, mut done: impl FnMut(&mut Process) -> Option<R>) -> R {
        let mut rest = node.wait_strategy();
        let (mut rounds, mut idle_since, mut looked) = (0_u32, None::<u64>, 0);
        let rank = if let WaitFor::Rank(rank) = awaits { Some(rank) } else { None };
        let (spins, mut words) = (node.waiting() == WaitMode::Dedicated, Vec::new());
        loop {
            let mut process = self.process.lock();
            if let Some(result) = self.with_wakeup(&mut process, &mut done) {
                process.report_failures();
                return result;
            }
            let in_memory = match awaits {
                WaitFor::Rank(rank) => process.is_shm_peer(rank.into()),
                WaitFor::AnyRank => process.is_single_node(),
                WaitFor::Notification => false,
            };
            rounds = rounds.wrapping_add(1);
            // Rings that are never empty must not starve the other traffic.
            let moved = if in_memory && !rounds.is_multiple_of(ROUNDS) {
                process.progress_shm()
            } else {
                self.progress(&mut process)
            };
            if moved {
                (rest, idle_since) = (node.wait_strategy(), None);
                continue;
            }
            if in_memory {
                words.clear();
                if !spins {
                    // Before those of all other ranks, of which there may be more than can be waited on.
                    process.collectives.lane_wait_words(&mut words);
                    rank.into_iter().for_each(|rank| process.wait_words_of(rank, &mut words));
                    // Requests to use memory of this rank come from all others.
                    if rank.is_none() || process.remote_access.is_exposed() {
                        process.wait_words(&mut words);
                    }
                }
                drop(process);
                let look = rest.wait_on_any(&words);
                if look != PollScope::Nothing {
                    let mut process = self.process.lock();
                    self.progress(&mut process);
                    if look == PollScope::Everything {
                        process.check_shm_peers(rank);
                    }
                }
                continue;
            }
            let (now, since) = (process.transport.now, *idle_since.get_or_insert(process.transport.now));
            if now - looked >= LIVENESS_INTERVAL {
                looked = now;
                process.check_shm_peers(rank);
            }
            let spins = spins && awaits == WaitFor::AnyRank;
            if now - since >= if self.oversubscribed { SPIN_OVERSUBSCRIBED } else { SPIN } && !spins {
                let from_memory = awaits == WaitFor::AnyRank
                    || process.remote_access.is_exposed()
                    || process.collectives.has_group_steps();
                let longest = if from_memory { SHM_SLEEP } else { THREAD_INTERVAL };
                self.sleep(process, longest);
                continue;
            }
            drop(process);
            if self.oversubscribed {
                std::thread::yield_now();
            }
        }
    }

    /// Makes one round of progress, and wakes other threads if it ended something.
    pub(super) fn progress(&self, process: &mut Process) -> bool {
        self.with_wakeup(process, |process| process.progress(false))
    }

    /// As [`progress`](Self::progress), mostly over what leads to this rank.
    pub(super) fn progress_towards(&self, process: &mut Process, to: Rank) {
        self.with_wakeup(process, |process| process.progress_towards(to));
    }

    /// Changes the process's state by something other than progress, and wakes the threads that it concerns.
    pub(super) fn with_process<R>(&self, what: impl FnOnce(&mut Process) -> R) -> R {
        self.with_wakeup(&mut self.lock(), what)
    }

    /// As [`with_process`](Self::with_process), for the holder of the lock.
    #[inline(always)]
    pub(super) fn with_wakeup<R>(&self, process: &mut Process, what: impl FnOnce(&mut Process) -> R) -> R {
        let finished = process.requests.finished();
        let unfinished = AbortOnPanic;
        let result = what(process);
        if process.requests.finished() != finished {
            process.report_failures();
        }
        core::mem::forget(unfinished);
        self.wake_sleepers(process, finished);
        result
    }

    /// Wakes a sleeping thread if requests have ended since `finished`, or a message has arrived that a thread probes
    /// for: either may be what that thread waits for.
    #[inline]
    fn wake_sleepers(&self, process: &Process, finished: u64) {
        let requests = &process.requests;
        if (requests.finished() != finished || !requests.probe_patterns.is_empty())
            && self.sleepers.load(Ordering::Relaxed) > 0
            && (requests.finished() != finished || process.has_probed_message())
        {
            self.polled.wake();
        }
        // The end of an operation of the adapter wakes nobody.
        if process.transport.reliable.is_active() && self.sleeps_long.swap(false, Ordering::Relaxed) {
            self.interrupt.wake();
        }
    }

    /// Sleeps on the polled queue's waiter.
    fn sleep(&self, mut process: LockGuard<'_, Process>, longest: Duration) {
        let finished = process.requests.finished();
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        let (is_armed, tends_in) = (process.enable_notification(DeviceQueue::Polled), process.next_check());
        let rest = Duration::from_nanos(process.next_timeout().map_or(tends_in, |rest| rest.min(tends_in)));
        drop(process);
        if is_armed {
            self.polled.wait(Some(rest.min(longest)));
        }
        if self.sleepers.fetch_sub(1, Ordering::Relaxed) > 1 {
            // One sleeper consumes all notifications.
            self.wake_sleepers(&self.process.lock(), finished);
        }
    }

    /// Waits where all ranks are reached through the endpoint.
    fn wait_until_remote<R>(&self, awaits: WaitFor, mut done: impl FnMut(&mut Process) -> Option<R>) -> R {
        let (spin, most) = if self.oversubscribed { (SPIN_OVERSUBSCRIBED, 0) } else { (SPIN, ARRIVAL_POLLS) };
        let (mut idle_since, mut glances) = (None::<u64>, 0);
        loop {
            let mut process = self.process.lock();
            if let Some(result) = self.with_wakeup(&mut process, &mut done) {
                return result;
            }
            if glances > 0 {
                if !process.has_arrivals() {
                    glances -= 1;
                    continue;
                }
                // The shortest way back to the waiting caller; its next call makes a full round.
                let may_end = self.with_wakeup(&mut process, Process::receive_arrivals);
                if may_end && let Some(result) = self.with_wakeup(&mut process, &mut done) {
                    return result;
                }
            }
            if self.progress(&mut process) {
                (idle_since, glances) = (None, 0);
                continue;
            }
            glances = most;
            let idle = process.transport.now - *idle_since.get_or_insert(process.transport.now);
            if idle >= spin {
                // A notification of the rendezvous server wakes no waiter.
                self.sleep(process, if awaits == WaitFor::Notification { THREAD_INTERVAL } else { HYBRID_INTERVAL });
                continue;
            }
            drop(process);
            if self.oversubscribed {
                std::thread::yield_now();
            }
        }
    }

    /// Waits for a request. `take` removes it once it has ended; its buffer is free afterwards.
    #[inline(always)]
    pub(super) fn wait(
        &self,
        started: &RequestHandle,
        take: impl Fn(&mut Process) -> Completion,
    ) -> Result<Status, Failure> {
        let ended = take(&mut self.process.lock());
        match ended {
            Some(ended) => ended,
            None => self.wait_blocking(started, take),
        }
    }

    /// As [`wait`](Self::wait), for a request that has not ended yet.
    #[inline(never)]
    pub(super) fn wait_blocking(
        &self,
        started: &RequestHandle,
        take: impl Fn(&mut Process) -> Completion,
    ) -> Result<Status, Failure> {
        let mut waits = false;
        self.wait_until(started.peer.map_or(WaitFor::AnyRank, WaitFor::Rank), |process| {
            let ended = take(process);
            match &ended {
                None if !waits => {
                    process.record_wait(Some(started.request), started.blocked_on);
                    process.request_ack(started.blocked_on);
                    waits = true;
                }
                Some(_) if waits => process.clear_wait(Some(started.request), started.blocked_on),
                _ => {}
            }
            ended
        })
    }

    /// As [`wait`](Self::wait), for several pending messages, and maybe collectives, until `done` returns a result: when
    /// all have ended, or any one has.
    #[inline(never)]
    pub(super) fn wait_for_several<R>(
        &self,
        all: &[RequestHandle],
        awaits: WaitFor,
        any: bool,
        mut done: impl FnMut(&mut Process) -> Option<R>,
    ) -> R {
        let mut waits = false;
        self.wait_until(awaits, |process| {
            let ended = done(process);
            match &ended {
                None if !waits => {
                    process.record_waits(any, all);
                    all.iter().for_each(|one| process.request_ack(one.blocked_on));
                    waits = true;
                }
                // The last one recorded is found first.
                Some(_) if waits => {
                    all.iter().rev().for_each(|one| process.clear_wait(Some(one.request), one.blocked_on));
                }
                _ => {}
            }
            ended
        })
    }

    /// Makes progress once, and returns how the request has ended, if `take` removes it.
    pub(super) fn test(&self, started: &RequestHandle, take: impl Fn(&mut Process) -> Completion) -> Completion {
        let mut process = self.process.lock();
        self.progress(&mut process);
        process.request_ack_sometimes(started.request, started.blocked_on);
        take(&mut process)
    }

    /// Makes progress once, and returns whether the request has ended.
    pub(super) fn is_done(&self, started: &RequestHandle) -> bool {
        let mut process = self.process.lock();
        self.progress(&mut process);
        process.request_ack_sometimes(started.request, started.blocked_on);
        process.requests.result(started.request).is_some()
    }

    /// Ends the progress thread.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.interrupt.wake();
    }

    /// Makes the progress thread attend to collectives under way that no thread waits for now, if there are any. Called
    /// after a start, and after a wait that some may have outlasted.
    pub(super) fn wake_progress_thread(&self) {
        if self.sleeps_long.load(Ordering::Relaxed)
            && self.lock().collectives.has_unattended()
            && self.sleeps_long.swap(false, Ordering::Relaxed)
        {
            self.interrupt.wake();
        }
    }

    /// Makes one round of the progress thread. Returns for how long, at most `longest`, it may sleep.
    fn serve_round(&self, longest: Duration) -> Duration {
        let mut process = self.process.lock_rarely();
        // Other threads want the lock, too.
        let mut rounds = 0..ROUNDS;
        self.with_wakeup(&mut process, |process| while rounds.next().is_some() && process.progress(true) {});
        if rounds.is_empty() || !process.enable_notification(DeviceQueue::Interrupt) {
            return Duration::ZERO;
        }
        // What these wait for does not arrive on the interrupt queue.
        let is_silent = self.node.is_some()
            || process.uses_groups()
            || process.collectives.has_unattended()
            || process.transport.reliable.is_active();
        let longest = if is_silent { THREAD_INTERVAL } else { longest };
        let sleep = process.next_timeout().map_or(longest, Duration::from_nanos).min(longest);
        self.sleeps_long.store(sleep > THREAD_INTERVAL, Ordering::Relaxed);
        sleep
    }
}

/// Starts the progress thread if the mode has one.
pub(super) fn start(shared: &Arc<SharedProcess>, progress: Progress) -> io::Result<Option<JoinHandle<()>>> {
    let longest = match progress {
        Progress::Engine => return Ok(None),
        Progress::Thread => THREAD_INTERVAL,
        Progress::Hybrid => HYBRID_INTERVAL,
    };
    let bell = shared.interrupt.clone();
    let shared = Arc::downgrade(shared);
    let name = String::from("unisono progress");
    std::thread::Builder::new().name(name).spawn(move || run_thread(&shared, &bell, longest)).map(Some)
}

fn run_thread(shared: &Weak<SharedProcess>, bell: &TransportWaiter, longest: Duration) {
    scheduler_slice::shorten();
    while let Some(shared) = shared.upgrade().filter(|shared| !shared.stopped.load(Ordering::Relaxed)) {
        let sleep = shared.serve_round(longest);
        drop(shared);
        bell.wait(Some(sleep));
    }
}
