//! The latest collectives that this rank has called on a communicator, and a digest of those that no other rank has
//! compared with its own yet.
//!
//! A root that sends and a rank that receives nothing do not notice that another rank calls something else. Every
//! collective in which each rank needs every other one (barrier, allgather, alltoall, allreduce, reduce-scatter)
//! therefore carries the digest of the calls since the previous one, over messages; shared memory has signatures of its
//! own.

use alloc::collections::VecDeque;
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};

use unisono_core::collective::{CollectiveKind, CollectiveSpec, type_code};

use super::engine::schedule::mix;
use crate::world::progress::biased_lock::{BiasedLock, LockGuard};
use unisono_bootstrap::{FenceRecord, Rank};

/// Most runs of equal calls that are kept.
const RUNS_MAX: usize = 8;
/// Words of a call in a message.
pub(in crate::world) const CALL_WORDS: usize = 5;

/// A collective as a rank has called it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CollectiveCall {
    kind: CollectiveKind,
    /// `None`: it has no root.
    root: Option<Rank>,
    /// Bytes of a block; 0 where blocks differ in length.
    bytes: u64,
    /// A digest of element type and operation.
    type_code: u32,
}

/// Equal calls, one after the other, with as many barriers in shared memory, which no log has, before each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    first: u32,
    count: u32,
    /// From the number of one call to that of the next; 0 of a single call.
    stride: u32,
    call: CollectiveCall,
    /// Whether no other rank has compared it.
    is_open: bool,
}

/// The latest calls.
#[derive(Clone, Debug, Default)]
pub(in crate::world) struct CallLog {
    runs: VecDeque<Run>,
    /// Whether a run is open, kept or not.
    has_open: bool,
    /// A digest of open runs that are no longer kept.
    dropped: u32,
    /// Whether a call has failed: the ranks may have called different ones since.
    has_failed: bool,
}

/// The log of a communicator. The thread that starts its collectives [repeats](Self::repeat) the latest call without
/// the lock; the others see the repeats when they lock.
#[derive(Debug, Default)]
pub(in crate::world) struct SharedCallLog {
    log: BiasedLock<CallLog>,
    /// The number of the latest call, and its distance from that of the one before, if that was an equal one.
    latest: AtomicU32,
    stride: AtomicU32,
}

impl SharedCallLog {
    /// The log, with all repeats.
    pub(in crate::world) fn lock(&self) -> LockGuard<'_, CallLog> {
        self.with_repeats(self.log.lock())
    }

    /// As [`lock`](Self::lock), for a thread that locks at most a thousand times a second.
    pub(in crate::world) fn lock_rarely(&self) -> LockGuard<'_, CallLog> {
        self.with_repeats(self.log.lock_rarely())
    }

    fn with_repeats<'a>(&self, mut log: LockGuard<'a, CallLog>) -> LockGuard<'a, CallLog> {
        let latest = self.latest.load(Ordering::Relaxed);
        if let Some(run) = log.runs.back_mut().filter(|run| run.last() != latest) {
            run.extend_to(latest);
        }
        log
    }

    /// As [`CallLog::record`].
    pub(in crate::world) fn record(&self, number: u32, call: CollectiveCall) -> u32 {
        let mut log = self.lock();
        let digest = log.record(number, call);
        self.publish_latest(&log);
        digest
    }

    /// As [`CallLog::append`], of a call that another one is to compare.
    pub(in crate::world) fn record_open(&self, number: u32, call: CollectiveCall) {
        let mut log = self.lock();
        log.append(number, call, true);
        self.publish_latest(&log);
    }

    /// Records a call that is equal to the one of number `repeated`. Returns false, and records nothing, if that is not
    /// the latest one, or another distance from it than that was from the one before.
    #[inline]
    pub(in crate::world) fn repeat(&self, repeated: u32, number: u32) -> bool {
        let is_repeat = self.latest.load(Ordering::Relaxed) == repeated
            && self.stride.load(Ordering::Relaxed) == number.wrapping_sub(repeated);
        if is_repeat {
            self.latest.store(number, Ordering::Relaxed);
        }
        is_repeat
    }

    /// Replaces the log.
    pub(in crate::world) fn replace(&self, by: CallLog) {
        let mut log = self.log.lock();
        *log = by;
        self.publish_latest(&log);
    }

    fn publish_latest(&self, log: &CallLog) {
        let (latest, stride) = log.runs.back().map_or((0, 0), |run| (run.last(), run.stride));
        self.latest.store(latest, Ordering::Relaxed);
        self.stride.store(stride, Ordering::Relaxed);
    }
}

impl CollectiveCall {
    /// `is_varying`: blocks differ in length.
    pub(super) fn new(plan: &CollectiveSpec, is_varying: bool) -> Self {
        Self {
            kind: plan.collective,
            root: plan.collective.is_rooted().then_some(Rank(plan.root.0)),
            bytes: if is_varying { 0 } else { plan.bytes as u64 },
            type_code: plan.reduction_id,
        }
    }

    /// A broadcast of values of a type.
    pub(super) fn broadcast<T>(root: Rank, bytes: usize) -> Self {
        let (root, bytes, type_code) = (Some(root), bytes as u64, type_code::<T>());
        Self { kind: CollectiveKind::Broadcast, root, bytes, type_code }
    }

    /// The name of the collective.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// fn show(error: CollectiveError) {
    ///     if let CollectiveError::Disagrees { rank, calls: Some((_, own, theirs)), .. } = error {
    ///         println!("{:?} here, {:?} at rank {rank}", own.name(), theirs.name());
    ///     }
    /// }
    /// ```
    pub const fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// Its root, if it has one.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// fn show(error: CollectiveError) {
    ///     if let CollectiveError::Disagrees { rank, calls: Some((_, own, theirs)), .. } = error {
    ///         println!("{:?} here, {:?} at rank {rank}", own.root(), theirs.root());
    ///     }
    /// }
    /// ```
    pub const fn root(&self) -> Option<Rank> {
        self.root
    }

    /// Bytes of a rank's block; 0 where blocks differ in length.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// fn show(error: CollectiveError) {
    ///     if let CollectiveError::Disagrees { rank, calls: Some((_, own, theirs)), .. } = error {
    ///         println!("{:?} here, {:?} at rank {rank}", own.bytes(), theirs.bytes());
    ///     }
    /// }
    /// ```
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether each rank needs every other one.
    const fn synchronises(&self) -> bool {
        matches!(
            self.kind,
            CollectiveKind::Barrier
                | CollectiveKind::Allgather
                | CollectiveKind::Alltoall
                | CollectiveKind::Allreduce
                | CollectiveKind::ReduceScatter
        )
    }

    pub(in crate::world) fn words(&self) -> [u32; CALL_WORDS] {
        let root = self.root.map_or(u32::MAX, |root| root.0);
        [self.kind as u32, root, self.bytes as u32, (self.bytes >> 32) as u32, self.type_code]
    }

    /// Parses the words of a call. `None`: they are not valid.
    pub(in crate::world) fn from_words([kind, root, low, high, type_code]: [u32; CALL_WORDS]) -> Option<Self> {
        let kind = *CollectiveKind::ALL.iter().find(|known| **known as u32 == kind)?;
        let root = (root != u32::MAX).then_some(Rank(root));
        Some(Self { kind, root, bytes: u64::from(high) << 32 | u64::from(low), type_code })
    }

    /// Both calls for people, with the first property in which they differ.
    pub(in crate::world) fn contrast(&self, other: &Self) -> (String, String) {
        let of = |call: &Self| {
            if self.kind != other.kind {
                call.name().to_owned()
            } else if self.root != other.root {
                call.root.map_or_else(|| "no root".to_owned(), |root| format!("root {root}"))
            } else if self.bytes != other.bytes {
                format!("{} bytes", call.bytes)
            } else {
                format!("type or operation {:#x}", call.type_code)
            }
        };
        (of(self), of(other))
    }
}

impl fmt::Display for CollectiveCall {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} of {} bytes", self.name(), self.bytes)?;
        self.root.map_or(Ok(()), |root| write!(to, " with root {root}"))
    }
}

impl CallLog {
    /// Records the user's call of this number. Returns a digest of the calls that it has to compare; 0: none.
    pub(in crate::world) fn record(&mut self, number: u32, call: CollectiveCall) -> u32 {
        let is_sync = call.synchronises();
        let digest = if is_sync { self.close() } else { 0 };
        self.append(number, call, !is_sync);
        digest
    }

    /// The user's call of this number, if it is the latest that is recorded.
    pub(in crate::world) fn at(&self, number: u32) -> Option<CollectiveCall> {
        self.runs.back().filter(|run| run.last() == number).map(|run| run.call)
    }

    /// Records a call that compares nothing. `is_open`: another one is to compare it.
    #[inline]
    pub(in crate::world) fn append(&mut self, number: u32, call: CollectiveCall, is_open: bool) {
        if let Some(last) = self.runs.back_mut()
            && last.is_open == is_open
            && last.call == call
            && last.extend(number)
        {
            return;
        }
        self.begin_run(number, call, is_open);
    }

    fn begin_run(&mut self, number: u32, call: CollectiveCall, is_open: bool) {
        if self.runs.len() >= RUNS_MAX
            && let Some(oldest) = self.runs.pop_front().filter(|oldest| oldest.is_open)
        {
            self.dropped = oldest.digest(self.dropped);
        }
        self.runs.push_back(Run { first: number, count: 1, stride: 0, call, is_open });
        self.has_open |= is_open;
    }

    /// A digest of the calls that no other rank has compared; 0: there are none.
    fn open_digest(&self) -> u32 {
        self.runs.iter().filter(|run| run.is_open).fold(self.dropped, |digest, run| run.digest(digest))
    }

    fn close(&mut self) -> u32 {
        if !self.has_open {
            return 0;
        }
        let digest = self.open_digest();
        self.runs.iter_mut().for_each(|run| run.is_open = false);
        (self.has_open, self.dropped) = (false, 0);
        digest
    }

    /// A call has failed.
    pub(super) const fn record_failure(&mut self) {
        self.has_failed = true;
    }

    /// The call of this number, if it is still known.
    pub(in crate::world) fn call(&self, number: u32) -> Option<CollectiveCall> {
        self.runs.iter().find(|run| run.contains(number)).map(|run| run.call)
    }

    /// The numbers of the calls in which this rank's calls change, in order.
    pub(super) fn changes(&self) -> Vec<u32> {
        let ends = |run: &Run| [run.first, run.last()];
        let mut numbers: Vec<u32> = self.runs.iter().flat_map(ends).collect();
        numbers.dedup();
        numbers
    }

    /// The calls that no other rank has compared, as records of a message: number, count, stride and the call. One with a
    /// count of 0 holds a digest of those that are no longer known.
    /// `None` after a call has failed.
    pub(in crate::world) fn open_records(&self) -> Option<Vec<FenceRecord>> {
        let record = |run: &Run| {
            let [kind, root, low, high, type_code] = run.call.words();
            [run.first, run.count, run.stride, kind, root, low, high, type_code]
        };
        let dropped = (self.dropped != 0).then_some([0, 0, 0, self.dropped, 0, 0, 0, 0]);
        let records = || dropped.into_iter().chain(self.runs.iter().filter(|run| run.is_open).map(record)).collect();
        (!self.has_failed).then(records)
    }

    /// The call of such a record, and its number.
    pub(in crate::world) fn from_record(record: FenceRecord) -> Option<(u32, CollectiveCall)> {
        let [number, count, _, words @ ..] = record;
        (count > 0).then(|| CollectiveCall::from_words(words)).flatten().map(|call| (number, call))
    }
}

impl Run {
    /// The number of its last call.
    const fn last(&self) -> u32 {
        self.first.wrapping_add(self.count.wrapping_sub(1).wrapping_mul(self.stride))
    }

    /// Whether it has a call of this number.
    const fn contains(&self, number: u32) -> bool {
        let distance = number.wrapping_sub(self.first);
        match distance.checked_rem(self.stride) {
            None => distance == 0,
            Some(rest) => rest == 0 && distance / self.stride < self.count,
        }
    }

    /// Adds calls up to the one of this number.
    const fn extend_to(&mut self, number: u32) {
        if let Some(repeats) = number.wrapping_sub(self.first).checked_div(self.stride) {
            self.count = repeats.saturating_add(1);
        }
    }

    /// Adds a call of this number, if its distance from the last one is that of all before. Returns whether it is.
    #[inline]
    const fn extend(&mut self, number: u32) -> bool {
        let stride = number.wrapping_sub(self.last());
        let fits = self.count == 1 || stride == self.stride;
        if fits {
            (self.count, self.stride) = (self.count.saturating_add(1), stride);
        }
        fits
    }

    fn digest(&self, before: u32) -> u32 {
        // Never 0, which stands for no call.
        self.call.words().into_iter().fold(mix(mix(before, self.count), self.stride), mix).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use unisono_core::collective::Order;
    use unisono_core::ids::Rank as Member;

    fn call(kind: CollectiveKind, root: u32, bytes: usize) -> CollectiveCall {
        let plan = CollectiveSpec {
            collective: kind,
            rank: Member(0),
            size: 4,
            root: Member(root),
            bytes,
            grain: 1,
            order: Order::Any,
            in_place: false,
            reduction_id: 7,
        };
        CollectiveCall::new(&plan, false)
    }

    #[test]
    fn only_the_latest_call_is_found_by_its_number() {
        let (mut log, broadcast) = (CallLog::default(), call(CollectiveKind::Broadcast, 0, 8));
        assert_eq!(log.at(0), None);
        for number in [1, 2, 4] {
            log.record(number, broadcast);
            assert_eq!([number - 1, number, number + 1].map(|at| log.at(at)), [None, Some(broadcast), None]);
        }
    }

    #[test]
    fn a_synchronising_call_compares_what_was_called_since_the_last_one() {
        let (mut one, mut other) = (CallLog::default(), CallLog::default());
        let (broadcast, barrier) = (CollectiveKind::Broadcast, CollectiveKind::Barrier);
        assert_eq!(one.record(1, call(barrier, 0, 0)), 0, "nothing was called before");
        other.record(1, call(barrier, 0, 0));
        for (number, root) in [(2, 0), (3, 0), (4, 1)] {
            assert_eq!(one.record(number, call(broadcast, root, 8)), 0);
            other.record(number, call(broadcast, 0, 8));
        }
        assert_eq!(one.changes(), [1, 2, 3, 4]);
        let [digest, theirs] = [&mut one, &mut other].map(|log| log.record(5, call(barrier, 0, 0)));
        assert!(digest != 0 && theirs != 0 && digest != theirs);
        assert_eq!(one.record(6, call(barrier, 0, 0)), 0, "they were compared");
        let (own, there) = (one.call(4).expect("known"), other.call(4).expect("known"));
        assert_eq!(own.contrast(&there), ("root 1".to_owned(), "root 0".to_owned()));
    }

    #[test]
    fn types_are_distinguished_whatever_module_they_are_in() {
        mod elsewhere {
            pub(super) struct Cell(pub(super) u32);
        }
        struct Cell(u32);
        let _ = (Cell(1).0, elsewhere::Cell(1).0);
        assert_eq!(type_code::<Cell>(), type_code::<elsewhere::Cell>());
        let codes =
            [type_code::<u32>(), type_code::<f32>(), type_code::<i32>(), type_code::<u64>(), type_code::<[u32; 1]>()];
        let distinct: alloc::collections::BTreeSet<u32> = codes.into_iter().collect();
        assert_eq!(distinct.len(), codes.len());
    }

    #[test]
    fn repeats_are_recorded_as_calls() {
        let (broadcast, other) = (call(CollectiveKind::Broadcast, 0, 8), call(CollectiveKind::Broadcast, 1, 8));
        let (repeated, called) = (SharedCallLog::default(), SharedCallLog::default());
        assert!(!repeated.repeat(0, 1), "there is no call");
        for number in [1, 3, 5, 7, 8, 10, 12, 14] {
            called.record_open(number, broadcast);
        }
        for (number, before, is_repeat) in
            [(1, 0, false), (3, 1, false), (5, 3, true), (7, 5, true), (8, 7, false), (10, 8, false), (12, 10, true)]
        {
            assert_eq!(repeated.repeat(before, number), is_repeat, "{number}");
            if !is_repeat {
                repeated.record_open(number, broadcast);
            }
        }
        assert!(!repeated.repeat(10, 14), "not the latest call");
        assert!(repeated.repeat(12, 14));
        let known = |log: &SharedCallLog| {
            let log = log.lock_rarely();
            ((0..20).map(|number| log.call(number).is_some()).collect::<Vec<_>>(), log.at(14), log.open_records())
        };
        assert_eq!(known(&repeated), known(&called));
        assert_eq!(known(&called).2.map(|records| records.len()), Some(2));
        assert_eq!(repeated.record(15, other), called.record(15, other));
        let before = repeated.lock().clone();
        repeated.record_open(16, broadcast);
        repeated.replace(before);
        assert_eq!((repeated.lock().at(15), repeated.repeat(16, 17)), (Some(other), false));
        let barrier = call(CollectiveKind::Barrier, 0, 0);
        let [one, two] = [&repeated, &called].map(|log| log.record(16, barrier));
        assert!(one == two && one != 0);
        assert_eq!(repeated.record(17, barrier), 0, "they were compared");
    }

    #[test]
    fn calls_between_which_the_same_number_of_barriers_lies_are_one_run() {
        let (mut log, broadcast) = (CallLog::default(), call(CollectiveKind::Broadcast, 0, 8));
        (1..1000).step_by(3).for_each(|number| log.append(number, broadcast, true));
        assert_eq!(log.runs.len(), 1);
        for number in 0..1003 {
            assert_eq!(log.call(number), (number < 1000 && number % 3 == 1).then_some(broadcast), "{number}");
        }
        let mut irregular = CallLog::default();
        (1..998).step_by(3).for_each(|number| irregular.append(number, broadcast, true));
        irregular.append(998, broadcast, true);
        assert_ne!(log.open_digest(), irregular.open_digest());
        assert_ne!(log.open_records(), irregular.open_records());
    }

    proptest! {
        /// Logs of equal calls are equal; a call that differs anywhere is noticed at the next synchronising call.
        #[test]
        fn any_difference_is_noticed(calls in proptest::collection::vec((0_u32..3, 0_usize..3), 1..40), at in any::<usize>()) {
            let broadcast = |(root, bytes): (u32, usize)| call(CollectiveKind::Broadcast, root, bytes);
            let at = at % calls.len();
            let mut logs = [CallLog::default(), CallLog::default(), CallLog::default()];
            for (number, one) in (1..).zip(&calls) {
                let differs = number as usize == at + 1;
                let [first, second, third] = &mut logs;
                first.record(number, broadcast(*one));
                second.record(number, broadcast(*one));
                third.record(number, if differs { broadcast((one.0 + 1, one.1)) } else { broadcast(*one) });
            }
            let number = calls.len() as u32 + 1;
            let [first, second, third] = logs.map(|mut log| log.record(number, call(CollectiveKind::Barrier, 0, 0)));
            prop_assert_eq!(first, second);
            prop_assert_ne!(first, third);
        }

        #[test]
        fn no_words_panic(words in any::<[u32; CALL_WORDS]>()) {
            if let Some(call) = CollectiveCall::from_words(words) {
                prop_assert_eq!(CollectiveCall::from_words(call.words()), Some(call));
            }
        }
    }
}
