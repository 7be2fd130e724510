//! How a process waits between two polls, in the wait mode of its segment ([`WaitMode`]).
//!
//! Dedicated: it spins, and after a while also yields, in case the cores are shared after all. Oversubscribed: it
//! yields for a while, since the other ranks are about to arrive, then sleeps on the word that it waits for (`futex`).
//! A rank that publishes a word in this mode wakes those that sleep on it; no other step costs a system call. A rank
//! that waits in a collective, or has slept, publishes the CPU that it runs on: a rank that waits only for ranks of
//! other CPUs spins briefly before it yields, since yielding would not help them.
//!
//! ```text
//! sleeper                             publisher
//! asleep := index of the word + 1     the word := its value
//! fence, yield for a few microseconds
//! the word has changed? do not sleep  no rank's asleep has its index? done
//! sleep while the word is unchanged   wake the ranks that sleep on it
//! ```
//!
//! At least one of the two checks sees the other side's write, if the write that precedes each check is visible by
//! then. The publisher does not wait for that with a fence, which after a copied payload takes longer than everything
//! else it does: x86 processors make stores visible within about a microsecond, and the sleeper waits longer than that
//! before its check (Morrison and Afek, *Temporally bounding TSO for fence-free asymmetric synchronization*, ASPLOS
//! 2015). Other processors may keep stores for any time: there it is a fence. So a wake-up is lost only by accident,
//! after which, or after a word was destroyed, a sleep still ends after [`LONGEST`].

use core::sync::atomic::{Ordering, compiler_fence, fence};
use core::time::Duration;
use std::time::Instant;

use rustix::io::Errno;
use rustix::thread::{ClockId, futex, sched_getcpu, sched_yield};
use rustix::time::{Timespec, clock_gettime};

use crate::layout::{SegmentLayout, WaitMode};
use crate::segment::{Segment, Site, Word};

/// Longest sleep, and the interval between two polls of everything.
pub const LONGEST: Duration = Duration::from_millis(1);
/// Spins between two polls of other traffic in the dedicated mode.
const SPINS: u32 = 64;
/// How long a process spins before it yields between two polls.
const SPIN: Duration = Duration::from_micros(50);
/// Yields before a process sleeps. With 2 or more a bare barrier costs the same (`examples/oversubscribed.rs`), with 0
/// several times as much; the more yields, the longer other ranks wait for a busy processor.
const YIELDS: u32 = 16;
/// Yields between two polls of other traffic, in both modes.
const YIELDS_APART: u32 = 8;

/// Time after which a store is visible to other processors.
const STORE_VISIBLE_AFTER: Duration =
    if cfg!(target_arch = "x86_64") { Duration::from_micros(3) } else { Duration::ZERO };

/// Polls before the first yield of a rank that waits for no rank of its own CPU: about as long as two context switches.
const SPINS_BEFORE_YIELD: u32 = 128;

/// Not asleep; the CPU's number, on which the rank waited last, is added.
const AWAKE_ON: u32 = 1 << 31;
/// Asleep on several words at a time: any of them wakes it. No segment has as many words as this number.
const ASLEEP_ON_SEVERAL: u32 = u32::MAX;
/// Words that one `futex_waitv` call takes (`FUTEX_WAITV_MAX`).
const WATCHED: usize = 128;
/// Length of a plain sleep where the kernel has no `futex_waitv`, or there is no word to sleep on.
const NAP: Duration = Duration::from_micros(100);

/// What a waiting process should poll besides the word that it waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PollScope {
    /// Nothing.
    Nothing,
    /// Its other traffic, so that no peer waits for it.
    Traffic,
    /// The traffic, the liveness of the other ranks, and the integrity of its own words. About every millisecond.
    Everything,
}

/// The words that record which rank of a segment sleeps on which word, as one rank sees them.
#[derive(Clone, Copy, Debug)]
pub struct Sleepers<'a> {
    base: usize,
    words: usize,
    asleep: &'a [Word],
    own: &'a Word,
    waiting: WaitMode,
}

impl<'a> Sleepers<'a> {
    /// The view of this rank of the node. `None`: there is no such rank.
    pub fn new(segment: Segment<'a>, layout: &SegmentLayout, local: u32) -> Option<Self> {
        let area = layout.sleep_words();
        let asleep = segment.words(area.offset, area.bytes / 4)?;
        let base = segment.shared_bytes(0, 0)?.start().addr().get();
        let (own, waiting) = (asleep.get(local as usize)?, layout.sizes().waiting);
        Some(Self { base, words: segment.bytes() / 4, asleep, own, waiting })
    }

    /// Wakes the ranks that sleep on this word, which was just published. No effect in the dedicated mode.
    #[inline]
    pub fn wake(&self, word: &Word) {
        if self.may_sleep() {
            self.wake_sleepers(word);
        }
    }

    /// Whether ranks sleep at all in this mode.
    #[inline(always)]
    pub fn may_sleep(&self) -> bool {
        self.waiting == WaitMode::Oversubscribed
    }

    fn wake_sleepers(&self, word: &Word) {
        if STORE_VISIBLE_AFTER.is_zero() {
            fence(Ordering::SeqCst);
        } else {
            compiler_fence(Ordering::SeqCst);
        }
        let Some(mark) = self.mark(word) else { return };
        let sleeps = |asleep: &Word| [mark, ASLEEP_ON_SEVERAL].contains(&asleep.acquire(Site::Plain));
        if self.asleep.iter().any(sleeps) {
            // An error means that no rank sleeps there any more.
            let _ = futex::wake(word.atomic(), futex::Flags::empty(), i32::MAX.cast_unsigned());
        }
    }

    /// The mark of a word of the segment among the sleep words: its index + 1.
    fn mark(&self, word: &Word) -> Option<u32> {
        let index = core::ptr::from_ref(word).addr().checked_sub(self.base)? / 4;
        let mark = if index < self.words { u32::try_from(index + 1).ok()? } else { return None };
        (mark < AWAKE_ON).then_some(mark)
    }

    /// Publishes that this rank is awake, and its CPU. The mark of another thread of this process, which sleeps, stays
    /// unless this one has slept.
    fn publish_awake(&self, has_slept: bool) -> u32 {
        let here = AWAKE_ON | (sched_getcpu() as u32).min(ASLEEP_ON_SEVERAL - 1 - AWAKE_ON);
        let shown = self.own.own();
        if shown != here && (has_slept || !is_asleep(shown)) {
            self.own.publish(here, Site::Plain);
        }
        here
    }

    /// Sleeps until this word changes. Returns whether the sleep lasted for its longest time.
    fn sleep(&self, word: &Word, seen: u32) -> bool {
        let Some(mark) = self.mark(word) else {
            std::thread::sleep(LONGEST);
            return true;
        };
        let is_over = self.announce(mark, || word.acquire(Site::Plain) != seen) && {
            let longest = Timespec { tv_sec: 0, tv_nsec: LONGEST.subsec_nanos().into() };
            // Woken, changed before the sleep, interrupted or timed out: the caller polls again.
            futex::wait(word.atomic(), futex::Flags::empty(), seen, Some(&longest)) == Err(Errno::TIMEDOUT)
        };
        self.publish_awake(true);
        is_over
    }

    /// Publishes the mark of the word that this rank is about to sleep on. Returns false if that word has changed.
    fn announce(&self, mark: u32, has_changed: impl Fn() -> bool) -> bool {
        self.own.publish(mark, Site::Plain);
        fence(Ordering::SeqCst);
        let announced = Instant::now();
        while !has_changed() {
            if announced.elapsed() >= STORE_VISIBLE_AFTER {
                return !has_changed();
            }
            sched_yield();
        }
        false
    }

    /// Sleeps until one of these words changes; of more than [`WATCHED`], one of the first. As [`sleep`](Self::sleep).
    fn sleep_on_any(&self, words: &[(&Word, u32)]) -> bool {
        let mut is_over = false;
        if self.announce(ASLEEP_ON_SEVERAL, || words.iter().any(|(word, seen)| word.acquire(Site::Plain) != *seen)) {
            let mut watched = [futex::Wait::new(); WATCHED];
            for (watch, (word, seen)) in watched.iter_mut().zip(words) {
                watch.val = (*seen).into();
                watch.uaddr = word.atomic().as_ptr().cast::<core::ffi::c_void>().into();
                watch.flags = futex::WaitFlags::SIZE_U32;
            }
            let watched = watched.get(..words.len().min(WATCHED)).unwrap_or_default();
            let until = after(LONGEST);
            let woken = futex::waitv(watched, futex::WaitvFlags::empty(), Some(&until), ClockId::Monotonic);
            if woken == Err(Errno::NOSYS) {
                std::thread::sleep(NAP);
            }
            is_over = woken == Err(Errno::TIMEDOUT);
        }
        self.publish_awake(true);
        is_over
    }
}

/// Whether a rank that publishes this value is asleep.
const fn is_asleep(shown: u32) -> bool {
    shown == ASLEEP_ON_SEVERAL || (shown > 0 && shown < AWAKE_ON)
}

/// The monotonic clock's time `time` from now; `time` is less than a second.
fn after(time: Duration) -> Timespec {
    let now = clock_gettime(ClockId::Monotonic);
    let ns = now.tv_nsec + i64::from(time.subsec_nanos());
    Timespec { tv_sec: now.tv_sec + ns / 1_000_000_000, tv_nsec: ns % 1_000_000_000 }
}

/// The CPU that a rank waits on.
#[derive(Clone, Copy, Debug)]
pub struct CurrentCpu<'a> {
    sleepers: Sleepers<'a>,
    shown: u32,
}

impl CurrentCpu<'_> {
    /// Whether a rank of the node may need this CPU: it waited there last, sleeps, or has never waited.
    pub fn may_be_needed_by(&self, local: u32) -> bool {
        let shown = self.sleepers.asleep.get(local as usize).map_or(0, |word| word.acquire(Site::Plain));
        shown == self.shown || shown == 0 || is_asleep(shown)
    }
}

/// One blocking wait.
#[derive(Debug)]
pub struct BlockingWait<'a> {
    sleepers: Sleepers<'a>,
    polls: u32,
    /// Polls left before the first yield; `None`: not decided yet.
    spins_left: Option<u32>,
    /// About when the wait began, and when everything was last polled.
    times: Option<(Instant, Instant)>,
    is_long: bool,
}

impl<'a> BlockingWait<'a> {
    /// Begins a wait. Reads no clock.
    #[inline]
    pub const fn new(sleepers: Sleepers<'a>) -> Self {
        Self { sleepers, polls: 0, spins_left: None, times: None, is_long: false }
    }

    /// Whether to poll again at once instead of calling [`wait`](Self::wait): briefly, unless a rank that this one
    /// waits for may need its CPU (`needs`). Always false in the dedicated mode, whose waits are short.
    #[inline]
    pub fn should_spin(&mut self, needs: impl FnOnce(CurrentCpu<'_>) -> bool) -> bool {
        if self.sleepers.waiting == WaitMode::Dedicated {
            return false;
        }
        let left = self.spins_left.get_or_insert_with(|| {
            let here = CurrentCpu { sleepers: self.sleepers, shown: self.sleepers.publish_awake(false) };
            if needs(here) { 0 } else { SPINS_BEFORE_YIELD }
        });
        let Some(less) = left.checked_sub(1) else { return false };
        *left = less;
        core::hint::spin_loop();
        true
    }

    /// Waits a little. Called after each unsuccessful poll, with the awaited word and the value it had; `None`: there
    /// is no single word. Returns after 1 ms at most, and reports what else to poll.
    #[inline]
    pub fn wait(&mut self, word: Option<(&Word, u32)>) -> PollScope {
        match self.sleepers.waiting {
            WaitMode::Dedicated => {
                if self.is_long {
                    sched_yield();
                } else {
                    core::hint::spin_loop();
                }
                self.polls = self.polls.wrapping_add(1);
                let apart = if self.is_long { YIELDS_APART } else { SPINS };
                if self.polls.is_multiple_of(apart) { self.due_scope() } else { PollScope::Nothing }
            }
            WaitMode::Oversubscribed => self.wait_oversubscribed(word.as_slice()),
        }
    }

    /// As [`wait`](Self::wait), for a wait that ends with any of these words.
    pub fn wait_on_any(&mut self, words: &[(&Word, u32)]) -> PollScope {
        match self.sleepers.waiting {
            WaitMode::Dedicated => self.wait(None),
            WaitMode::Oversubscribed => self.wait_oversubscribed(words),
        }
    }

    fn wait_oversubscribed(&mut self, words: &[(&Word, u32)]) -> PollScope {
        self.spins_left = None;
        self.polls = self.polls.saturating_add(1);
        if self.polls <= YIELDS {
            sched_yield();
            return if self.polls.is_multiple_of(YIELDS_APART) { self.due_scope() } else { PollScope::Nothing };
        }
        match *words {
            [] => std::thread::sleep(NAP),
            [(word, seen)] => _ = self.sleepers.sleep(word, seen),
            _ => _ = self.sleepers.sleep_on_any(words),
        }
        self.due_scope()
    }

    fn due_scope(&mut self) -> PollScope {
        let now = Instant::now();
        let (began, looked) = self.times.get_or_insert((now, now));
        self.is_long = now.duration_since(*began) >= SPIN;
        if now.duration_since(*looked) < LONGEST {
            return PollScope::Traffic;
        }
        *looked = now;
        PollScope::Everything
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::file::{Mapping, SegmentFile};
    use crate::layout::{PAGE, SegmentSizes};
    use core::sync::atomic::AtomicU32;
    use std::os::fd::AsFd;

    fn mapping(waiting: WaitMode) -> (Mapping, SegmentLayout) {
        let sizes =
            SegmentSizes { collective_area: PAGE as u32, pool: 0, ring_bulk: 64, ..SegmentSizes::of_node(2, waiting) };
        let layout = SegmentLayout::new(sizes).unwrap();
        Mapping::open(SegmentFile::create(&layout).unwrap().as_fd()).unwrap()
    }

    fn segment(mapping: &Mapping) -> Segment<'static> {
        // SAFETY: these tests use words alone.
        unsafe { mapping.segment() }
    }

    #[test]
    fn waiting_processes_poll_everything_now_and_then() {
        for waiting in [WaitMode::Dedicated, WaitMode::Oversubscribed] {
            let (mapping, layout) = mapping(waiting);
            let sleepers = Sleepers::new(segment(&mapping), &layout, 0).unwrap();
            let word = segment(&mapping).word(layout.collective_area(1).unwrap().offset).unwrap();
            for waits_for in [Some((word, 0)), None] {
                let mut rest = BlockingWait::new(sleepers);
                assert_eq!(rest.wait(waits_for), PollScope::Nothing, "the first polls follow each other");
                while rest.wait(waits_for) < PollScope::Traffic {}
                while rest.wait(waits_for) < PollScope::Everything {}
            }
        }
    }

    #[test]
    fn ranks_spin_unless_an_awaited_rank_needs_their_processor() {
        let count = |rest: &mut BlockingWait<'_>, others: &[u32]| {
            let needs = |here: CurrentCpu<'_>| others.iter().any(|local| here.may_be_needed_by(*local));
            (0..=SPINS_BEFORE_YIELD).take_while(|_| rest.should_spin(needs)).count() as u32
        };
        let (mapping, layout) = mapping(WaitMode::Oversubscribed);
        let word = segment(&mapping).word(layout.collective_area(1).unwrap().offset).unwrap();
        let [own, other] = [0, 1].map(|local| Sleepers::new(segment(&mapping), &layout, local).unwrap());
        let mut rest = BlockingWait::new(own);
        assert_eq!(count(&mut rest, &[1]), 0, "the CPU of a rank that has never waited is unknown");
        // A CPU that does not exist.
        other.own.publish(ASLEEP_ON_SEVERAL - 1, Site::Plain);
        assert_eq!(count(&mut rest, &[1]), 0, "it decides once, and again after a yield");
        for _ in 0..2 {
            rest.wait(Some((word, 0)));
            assert_eq!(count(&mut rest, &[1]), SPINS_BEFORE_YIELD);
            assert_eq!(count(&mut rest, &[1]), 0, "for a moment");
        }
        for asleep in [own.mark(word).unwrap(), ASLEEP_ON_SEVERAL, 0] {
            other.own.publish(asleep, Site::Plain);
            rest.wait(Some((word, 0)));
            assert_eq!(count(&mut rest, &[1]), 0, "{asleep}");
            assert_eq!(count(&mut rest, &[]), 0);
        }
        rest.wait(Some((word, 0)));
        assert_eq!((count(&mut rest, &[]), own.own.own() >= AWAKE_ON), (SPINS_BEFORE_YIELD, true));
        let (dedicated, layout) = self::mapping(WaitMode::Dedicated);
        let sleepers = Sleepers::new(segment(&dedicated), &layout, 0).unwrap();
        assert_eq!(count(&mut BlockingWait::new(sleepers), &[]), 0, "dedicated mode");
    }

    #[test]
    fn nobody_sleeps_through_a_change() {
        assert_wakes(1, |sleepers, words| {
            let [(word, seen)] = words else { panic!("one word") };
            sleepers.sleep(word, *seen)
        });
    }

    #[test]
    fn nobody_sleeps_through_a_change_of_any_of_its_words() {
        assert_wakes(5, |sleepers, words| sleepers.sleep_on_any(words));
    }

    /// With wake-ups lost every other change is slept through; on a busy machine a few are, whose publisher was
    /// preempted before it could wake.
    fn assert_wakes(words: usize, sleep: impl Fn(&Sleepers<'_>, &[(&Word, u32)]) -> bool) {
        const ROUNDS: u32 = 300;
        let overslept = (0..5).map(|_| oversleeps(ROUNDS, words, &sleep)).min().unwrap();
        assert!(overslept < ROUNDS / 4, "{overslept} of {ROUNDS} changes were slept through");
    }

    /// In each round one of these words changes, at once or a moment after the sleeper has published its mark. Counts
    /// the changes during sleeps of the longest time.
    fn oversleeps(rounds: u32, words: usize, sleep: impl Fn(&Sleepers<'_>, &[(&Word, u32)]) -> bool) -> u32 {
        let (mapping, layout) = mapping(WaitMode::Oversubscribed);
        let area = layout.collective_area(1).unwrap().offset;
        let words: Vec<_> = (0..words).map(|i| segment(&mapping).word(area + 128 * i).unwrap()).collect();
        let [one, other] = [0, 1].map(|local| Sleepers::new(segment(&mapping), &layout, local).unwrap());
        let passed = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..rounds {
                    while passed.load(Ordering::Acquire) < round || !is_asleep(other.asleep[0].acquire(Site::Plain)) {
                        sched_yield();
                    }
                    if round % 2 == 0 {
                        std::thread::sleep(NAP);
                    }
                    let word = words[round as usize % words.len()];
                    word.publish(round + 1, Site::Plain);
                    other.wake(word);
                }
            });
            let mut count = 0;
            for round in 0..rounds {
                let word = words[round as usize % words.len()];
                while word.acquire(Site::Plain) != round + 1 {
                    let seen: Vec<_> = words.iter().map(|word| (*word, word.acquire(Site::Plain))).collect();
                    if word.acquire(Site::Plain) != round + 1 {
                        count += u32::from(sleep(&one, &seen) && word.acquire(Site::Plain) == round + 1);
                    }
                }
                passed.store(round + 1, Ordering::Release);
            }
            count
        })
    }

    #[test]
    fn words_of_other_segments_have_no_mark() {
        let (mapping, layout) = mapping(WaitMode::Oversubscribed);
        let (other, _) = self::mapping(WaitMode::Oversubscribed);
        let sleepers = Sleepers::new(segment(&mapping), &layout, 1).unwrap();
        assert!(Sleepers::new(segment(&mapping), &layout, 2).is_none());
        assert_eq!(sleepers.mark(segment(&mapping).word(12).unwrap()), Some(4));
        assert_eq!(sleepers.mark(segment(&other).word(12).unwrap()), None);
    }
}
