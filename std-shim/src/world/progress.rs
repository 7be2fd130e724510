//! Progress and blocking waits: who makes progress, and how a thread spins, sleeps and is woken (Koop et al. 2007,
//! §4.2.2).

use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use std::io;
use std::thread::JoinHandle;

use unisono_core::device::DeviceQueue;
use unisono_core::span::Region;
use unisono_shmem::host::wait_strategy::PollScope;
use unisono_shmem::layout::WaitMode;

use super::link::Bell;
use super::lock::{Beside, Guard, Inside, Lock};
use super::process::Process;
use super::request::{Failure, Status};
use super::slice;
use super::watchdog::Doing;
use crate::environment::Progress;
use crate::node::Node;
use unisono_bootstrap::Rank;

/// How often the progress thread of the thread mode wakes.
const INTERVAL: Duration = Duration::from_millis(1);
/// Longest sleep of the progress thread of the hybrid mode.
const LONGEST: Duration = Duration::from_millis(250);
/// Rounds that the progress thread makes before it releases the lock.
const ROUNDS: u32 = 64;
/// Nanoseconds for which a thread spins before it sleeps, with a core for every rank and without.
const SPIN: u64 = 50_000;
const SPIN_CROWDED: u64 = 100_000;
/// Polls for arrivals alone between two full rounds of a thread that spins.
const GLANCES: u32 = 7;
/// Longest sleep while something may arrive through shared memory, which signals no file descriptor.
const NAP: Duration = Duration::from_micros(100);
/// Nanoseconds between two checks whether the ranks of this node live.
const LOOKS: u64 = 1_000_000;

/// When a send is transmitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leaves {
    /// Before the call returns, or when the window has room.
    AtOnce,
    /// Together with other sends.
    Together,
}

/// A request that owns a user buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Started {
    pub(super) request: u32,
    pub(super) region: Region,
    /// The peer; `None`: any.
    pub(super) peer: Option<Rank>,
    /// What a thread that waits for this request is blocked on.
    pub(super) what: Doing,
}

/// Aborts the process when a panic unwinds through progress, as a panicking subscriber of `tracing` would cause: the
/// callers' frames, whose buffers are in use, would be gone while other ranks and threads write there.
struct Unfinished;

impl Drop for Unfinished {
    #[cold]
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// How a request has ended, if it has.
type Taken = Option<Result<Status, Failure>>;

/// The event that a wait depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Awaits {
    /// An action of this rank.
    Rank(Rank),
    /// An action of any rank.
    Anyone,
    /// An event that takes long, such as the end of the other ranks, and wakes the waiter.
    Bell,
}

/// A process, its lock, and the arrival waiters of its queues.
pub(super) struct Shared {
    process: Lock<Process>,
    polled: Bell,
    interrupt: Bell,
    pub(super) crowded: bool,
    /// `None` where no rank is reached through shared memory.
    node: Option<Arc<Node>>,
    /// Threads that sleep on the polled queue's waiter.
    sleepers: AtomicU32,
    stopped: AtomicBool,
}

impl Shared {
    pub(super) fn new(process: Process, [polled, interrupt]: [Bell; 2], crowded: bool) -> Self {
        let (sleepers, stopped) = (AtomicU32::new(0), AtomicBool::new(false));
        let node = process.near.as_ref().filter(|near| near.met > 0).map(|near| Arc::clone(&near.node));
        Self { process: Lock::new(process), polled, interrupt, crowded, node, sleepers, stopped }
    }

    pub(super) fn lock(&self) -> Guard<'_, Process> {
        self.process.lock()
    }

    /// Acquires the lock if the calling thread is its uncontended owner.
    #[inline(always)]
    pub(super) fn enter(&self) -> Option<Inside<'_, Process>> {
        self.process.enter()
    }

    /// Access to a cell that the same lock guards, for the holder of the lock.
    ///
    /// # Safety
    /// As of [`Lock::beside`].
    #[inline]
    pub(super) unsafe fn beside<'a, T>(&self, process: &'a mut Process, beside: &'a Beside<T>) -> &'a mut T {
        // SAFETY: the caller promises that the value is always reached by this, and beside this World's lock.
        unsafe { self.process.beside(process, beside) }
    }

    /// Yields the processor where there are more ranks than processors.
    pub(super) fn yield_if_crowded(&self) {
        if self.crowded {
            std::thread::yield_now();
        }
    }

    /// A handle that ends the current sleep on the polled queue.
    pub(super) fn bell(&self) -> Bell {
        self.polled.clone()
    }

    /// Makes progress until `done` returns a result. A panic in either aborts the process.
    pub(super) fn until<R>(&self, awaits: Awaits, done: impl FnMut(&mut Process) -> Option<R>) -> R {
        let unfinished = Unfinished;
        let result = match &self.node {
            Some(node) => self.until_near(node, awaits, done),
            None => self.until_far(done),
        };
        core::mem::forget(unfinished);
        result
    }

    /// As [`until`](Self::until), and records meanwhile that a thread waits for this, for hang reports.
    pub(super) fn until_told<R>(
        &self,
        awaits: Awaits,
        what: Doing,
        mut done: impl FnMut(&mut Process) -> Option<R>,
    ) -> R {
        let mut waits = false;
        self.until(awaits, |process| {
            let ended = done(process);
            match &ended {
                None if !waits => {
                    process.note_waiting(None, what);
                    waits = true;
                }
                Some(_) if waits => process.note_over(None, what),
                _ => {}
            }
            ended
        })
    }

    /// Waits where some ranks are reached through shared memory.
    fn until_near<R>(&self, node: &Node, awaits: Awaits, mut done: impl FnMut(&mut Process) -> Option<R>) -> R {
        let mut rest = node.rest();
        let (mut rounds, mut idle_since, mut looked) = (0_u32, None::<u64>, 0);
        let rank = if let Awaits::Rank(rank) = awaits { Some(rank) } else { None };
        let (spins, mut words) = (node.waiting() == WaitMode::Dedicated, Vec::new());
        loop {
            let mut process = self.process.lock();
            if let Some(result) = self.tell(&mut process, &mut done) {
                return result;
            }
            let in_memory = match awaits {
                Awaits::Rank(rank) => process.is_near(rank.into()),
                Awaits::Anyone => process.is_whole(),
                Awaits::Bell => false,
            };
            rounds = rounds.wrapping_add(1);
            // Rings that are never empty must not starve the other traffic.
            let moved = if in_memory && !rounds.is_multiple_of(ROUNDS) {
                process.progress_near()
            } else {
                self.progress(&mut process)
            };
            if moved {
                (rest, idle_since) = (node.rest(), None);
                continue;
            }
            if in_memory {
                words.clear();
                match rank {
                    Some(rank) => words.extend(process.awaited(rank)),
                    None if spins => {}
                    None => process.all_awaited(&mut words),
                }
                drop(process);
                let look = rest.wait_on_any(&words);
                if look != PollScope::Nothing {
                    let mut process = self.process.lock();
                    self.progress(&mut process);
                    if look == PollScope::Everything {
                        process.look_near(rank);
                    }
                }
                continue;
            }
            let (now, since) = (process.latest, *idle_since.get_or_insert(process.latest));
            if now - looked >= LOOKS {
                looked = now;
                process.look_near(rank);
            }
            let spins = spins && awaits == Awaits::Anyone;
            if now - since >= if self.crowded { SPIN_CROWDED } else { SPIN } && !spins {
                let longest = if awaits == Awaits::Anyone { NAP } else { INTERVAL };
                self.sleep(process, longest);
                continue;
            }
            drop(process);
            if self.crowded {
                std::thread::yield_now();
            }
        }
    }

    /// Makes one round of progress, and wakes other threads if it ended something.
    pub(super) fn progress(&self, process: &mut Process) -> bool {
        self.tell(process, |process| process.progress(false))
    }

    /// As [`progress`](Self::progress), mostly over what leads to this rank.
    pub(super) fn progress_towards(&self, process: &mut Process, to: Rank) {
        self.tell(process, |process| process.progress_towards(to));
    }

    /// Changes the process's state by something other than progress, and wakes the threads that it concerns.
    pub(super) fn change<R>(&self, what: impl FnOnce(&mut Process) -> R) -> R {
        self.tell(&mut self.lock(), what)
    }

    /// As [`change`](Self::change), for the holder of the lock.
    #[inline(always)]
    pub(super) fn tell<R>(&self, process: &mut Process, what: impl FnOnce(&mut Process) -> R) -> R {
        let finished = process.requests.finished();
        let unfinished = Unfinished;
        let result = what(process);
        core::mem::forget(unfinished);
        self.wake_sleepers(process, finished);
        result
    }

    /// Wakes a sleeping thread if requests have ended since `finished`, or a message has arrived that a thread probes
    /// for: either may be what that thread waits for.
    #[inline]
    fn wake_sleepers(&self, process: &Process, finished: u64) {
        let requests = &process.requests;
        if (requests.finished() != finished || !requests.probed.is_empty())
            && self.sleepers.load(Ordering::Relaxed) > 0
            && (requests.finished() != finished || process.finds_what_is_probed())
        {
            self.polled.ring();
        }
    }

    /// Sleeps on the polled queue's waiter.
    fn sleep(&self, mut process: Guard<'_, Process>, longest: Duration) {
        let finished = process.requests.finished();
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        let (is_armed, tends_in) = (process.arm(DeviceQueue::Polled), process.tends_in());
        let rest = Duration::from_nanos(process.rest().map_or(tends_in, |rest| rest.min(tends_in)));
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
    fn until_far<R>(&self, mut done: impl FnMut(&mut Process) -> Option<R>) -> R {
        let (spin, most) = if self.crowded { (SPIN_CROWDED, 0) } else { (SPIN, GLANCES) };
        let (mut idle_since, mut glances) = (None::<u64>, 0);
        loop {
            let mut process = self.process.lock();
            if let Some(result) = self.tell(&mut process, &mut done) {
                return result;
            }
            if glances > 0 {
                if !process.look() {
                    glances -= 1;
                    continue;
                }
                // The shortest way back to the waiting caller; its next call makes a full round.
                let may_end = self.tell(&mut process, Process::take_arrivals);
                if may_end && let Some(result) = self.tell(&mut process, &mut done) {
                    return result;
                }
            }
            if self.progress(&mut process) {
                (idle_since, glances) = (None, 0);
                continue;
            }
            glances = most;
            let idle = process.latest - *idle_since.get_or_insert(process.latest);
            if idle >= spin {
                self.sleep(process, LONGEST);
                continue;
            }
            drop(process);
            if self.crowded {
                std::thread::yield_now();
            }
        }
    }

    /// Waits for a request. `take` removes it once it has ended; its buffer is free afterwards.
    #[inline(always)]
    pub(super) fn wait(&self, started: &Started, take: impl Fn(&mut Process) -> Taken) -> Result<Status, Failure> {
        let ended = take(&mut self.process.lock());
        match ended {
            Some(ended) => ended,
            None => self.wait_long(started, take),
        }
    }

    /// As [`wait`](Self::wait), for a request that has not ended yet.
    #[inline(never)]
    pub(super) fn wait_long(&self, started: &Started, take: impl Fn(&mut Process) -> Taken) -> Result<Status, Failure> {
        let mut waits = false;
        self.until(started.peer.map_or(Awaits::Anyone, Awaits::Rank), |process| {
            let ended = take(process);
            match &ended {
                None if !waits => {
                    process.note_waiting(Some(started.request), started.what);
                    process.ask_for_word(started.what);
                    waits = true;
                }
                Some(_) if waits => process.note_over(Some(started.request), started.what),
                _ => {}
            }
            ended
        })
    }

    /// As [`wait`](Self::wait), for several pending requests, until `done` returns a result.
    #[inline(never)]
    pub(super) fn wait_for_several<R>(&self, all: &[Started], mut done: impl FnMut(&mut Process) -> Option<R>) -> R {
        let peer =
            all.first().and_then(|first| first.peer).filter(|peer| all.iter().all(|one| one.peer == Some(*peer)));
        let mut waits = false;
        self.until(peer.map_or(Awaits::Anyone, Awaits::Rank), |process| {
            let ended = done(process);
            match &ended {
                None if !waits => {
                    for Started { request, what, .. } in all {
                        process.note_waiting(Some(*request), *what);
                        process.ask_for_word(*what);
                    }
                    waits = true;
                }
                // The last one recorded is found first.
                Some(_) if waits => {
                    all.iter().rev().for_each(|one| process.note_over(Some(one.request), one.what));
                }
                _ => {}
            }
            ended
        })
    }

    /// Makes progress once, and returns how the request has ended, if `take` removes it.
    pub(super) fn test(&self, started: &Started, take: impl Fn(&mut Process) -> Taken) -> Taken {
        let mut process = self.process.lock();
        self.progress(&mut process);
        process.ask_at_times(started.request, started.what);
        take(&mut process)
    }

    /// Makes progress once, and returns whether the request has ended.
    pub(super) fn is_done(&self, started: &Started) -> bool {
        let mut process = self.process.lock();
        self.progress(&mut process);
        process.ask_at_times(started.request, started.what);
        process.requests.result(started.request).is_some()
    }

    /// Ends the progress thread.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.interrupt.ring();
    }

    /// Makes one round of the progress thread. Returns for how long it may sleep.
    fn serve(&self) -> Duration {
        let mut process = self.process.lock_rarely();
        // Other threads want the lock, too.
        let mut rounds = 0..ROUNDS;
        self.tell(&mut process, |process| while rounds.next().is_some() && process.progress(true) {});
        if !rounds.is_empty() && process.arm(DeviceQueue::Interrupt) {
            let longest = if self.node.is_some() { INTERVAL } else { LONGEST };
            process.rest().map_or(longest, Duration::from_nanos).min(longest)
        } else {
            Duration::ZERO
        }
    }
}

/// Starts the progress thread if the mode has one.
pub(super) fn start(shared: &Arc<Shared>, progress: Progress) -> io::Result<Option<JoinHandle<()>>> {
    let longest = match progress {
        Progress::Engine => return Ok(None),
        Progress::Thread => INTERVAL,
        Progress::Hybrid => LONGEST,
    };
    let bell = shared.interrupt.clone();
    let shared = Arc::downgrade(shared);
    let name = String::from("unisono progress");
    std::thread::Builder::new().name(name).spawn(move || serve(&shared, &bell, longest)).map(Some)
}

fn serve(shared: &Weak<Shared>, bell: &Bell, longest: Duration) {
    slice::shorten();
    while let Some(shared) = shared.upgrade().filter(|shared| !shared.stopped.load(Ordering::Relaxed)) {
        let rest = shared.serve();
        drop(shared);
        bell.wait(Some(rest.min(longest)));
    }
}
