//! Collectives through slots, over one collective area per rank: the shared-memory implementation of
//! [`CollectiveMachine`].
//!
//! # Steps
//! All collectives of a group are one sequence of steps, numbered alike on all ranks; the number wraps. In a step a
//! rank may publish one slot of its area: it waits until the slot is free, has the payload written (inline after the
//! stamp, in the slot's chunk of bulk, or the addresses of its buffers, from which the others then pull), and publishes
//! the stamp, step + 1. The others poll for that stamp. A rank that has read all it needs of a step publishes how many
//! steps it has finished. Every word has one writer. Where ranks are oversubscribed, an all-to-all exchange publishes
//! several steps before any of them is read, and exposed buffers are pulled in the order in which they appear: a rank
//! does all it can whenever it is scheduled.
//!
//! # Flow control
//! The slot of step s was last used for step s − slots, so it is free when all ranks have finished that one: a rank
//! runs at most `slots` steps ahead of the slowest, or less if the slot's chunk was used out of turn (`chunk_ring.rs`).
//! The least number of steps that all have finished is cached and read again only when it does not suffice: rooted
//! collectives do not synchronise, and a root that broadcasts past a sleeping rank stops after `slots` broadcasts. This
//! is double buffering with `slots` buffers.
//!
//! # Wrap
//! A stamp is compared with the expected one; it is equal, older, or corrupt. The stamp of a rank that publishes
//! nothing for a long time would look new once the number has wrapped: every 2²⁴ steps a rank rewrites its old stamps
//! ([`REFRESH`]).
//!
//! # Signs
//! Next to its stamp a slot has a signature of the call and of all calls of the group before it: a reader sees whether
//! the other rank makes, and has made, the same calls. Where nobody reads, as when two ranks each believe themselves
//! the root, the next read finds it.

#[cfg(feature = "std")]
mod call_record;
#[cfg(feature = "std")]
mod chunk_ring;
#[cfg(not(loom))]
pub mod data_executor;
pub mod data_op;
mod schedule;
pub mod selection;
#[cfg(feature = "std")]
mod small_broadcast;

use unisono_core::collective::{CollectiveKind, CollectiveMachine, CollectiveSpec, Failure, FailureCause, Poll};
use unisono_core::ids::{CollectiveId, Rank, StepId};

use crate::collective_area::{CollectiveAreas, SLOTS};
use crate::segment::{Segment, Site, Word};
use crate::slot_collectives::data_op::DataOp;
use crate::slot_collectives::schedule::{Item, SlotSchedule, offers};
use crate::slot_collectives::selection::SlotAlgorithm;

#[cfg(feature = "std")]
pub use call_record::CallRecord;

/// Steps after which a rank rewrites old stamps; no rank's stamp is older than twice that.
pub const REFRESH: u32 = 1 << 24;
/// Most steps by which a stamp may be old.
const OLDEST: u32 = 3 * REFRESH;

/// One rank's state machine for the collectives of its group.
#[derive(Clone, Debug)]
pub struct SlotCollectives<'a> {
    segment: Segment<'a>,
    areas: CollectiveAreas,
    rank: u32,
    pulls: bool,
    forced_algorithm: Option<SlotAlgorithm>,
    steps: StepCounts,
    call: Call,
    /// Mixed into all signatures.
    #[cfg(feature = "std")]
    salt: u32,
    /// A hash of all previous calls.
    history: u32,
    /// Set if the next call may be a small broadcast like the last one.
    #[cfg(feature = "std")]
    small_broadcast: Option<small_broadcast::SmallBroadcast>,
    /// After the first chunk was used out of turn: steps that all ranks must have finished before it is used in turn.
    #[cfg(feature = "std")]
    first_chunk_until: Option<u32>,
    /// A rank had not finished all previous steps when that was last checked.
    #[cfg(feature = "std")]
    runs_ahead: bool,
    published: Published,
    awaited: AwaitedWord,
}

/// The numbers of the steps that this rank has begun and finished.
#[derive(Clone, Debug)]
struct StepCounts {
    /// The next collective's first step.
    next: u32,
    /// Steps that all ranks have finished, as last seen.
    least_done: u32,
    /// Stamps of this rank's own slots, never read back.
    stamps: [u32; SLOTS as usize],
    /// Steps that this rank has published as finished, never read back either.
    done: u32,
}

/// The present collective.
#[derive(Clone, Debug)]
struct Call {
    id: CollectiveId,
    collective: CollectiveKind,
    /// The plan, pull setting and forced algorithm from which schedule and hash were made; `None` after one of parts.
    plan: Option<(CollectiveSpec, bool, Option<SlotAlgorithm>)>,
    /// Bytes of the vector whose parts the blocks of the next collective are.
    #[cfg(feature = "std")]
    vector: Option<usize>,
    schedule: SlotSchedule,
    algorithm: SlotAlgorithm,
    /// Its first step.
    base: u32,
    /// A hash of its plan; and of its plan and all previous calls.
    hash: u32,
    signature: u32,
    state: State,
    round: u32,
    item: u32,
    /// Items of this round that are left, where they are done in any order.
    left: u64,
    ops: u32,
}

/// The word that the last poll waits for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct AwaitedWord {
    rank: u32,
    at: usize,
    seen: u32,
}

/// The state of a collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Waits until its slot is free.
    AwaitSlot,
    /// Writes.
    Write,
    /// Reads.
    Read,
    /// Waits until the host has executed a write or read.
    Executing {
        takes: bool,
    },
    /// Waits until the others have pulled from its exposed buffers.
    AwaitReturn,
    /// Complete.
    Final,
    Failed(Failure),
}

/// Words that were published since the host last took them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Published {
    bytes: [usize; 4],
    count: usize,
}

/// What a pending collective waits for.
#[derive(Clone, Copy, Debug)]
pub struct Awaited<'a> {
    /// Whose word.
    pub rank: Rank,
    /// The word that will change.
    pub word: &'a Word,
    /// The value it had.
    pub seen: u32,
}

impl<'a> SlotCollectives<'a> {
    /// The collectives of a group after `first` steps. `pulls`: every rank can read every other's memory, as all ranks
    /// have agreed. `None`: the areas do not lie in the segment, or there is no such rank.
    pub fn new(segment: Segment<'a>, areas: CollectiveAreas, rank: u32, pulls: bool, first: u32) -> Option<Self> {
        let known = areas.slots.is_power_of_two() && areas.slots <= SLOTS;
        if !known || rank >= areas.ranks || areas.words(segment).is_none() {
            return None;
        }
        Some(Self {
            segment,
            areas,
            rank,
            pulls,
            forced_algorithm: None,
            steps: StepCounts { next: first, least_done: first, stamps: [first; SLOTS as usize], done: first },
            call: Call {
                id: CollectiveId::default(),
                collective: CollectiveKind::Barrier,
                plan: None,
                #[cfg(feature = "std")]
                vector: None,
                schedule: SlotSchedule::EMPTY,
                algorithm: SlotAlgorithm::Flat,
                base: first,
                hash: 0,
                signature: 0,
                state: State::Final,
                round: 0,
                item: 0,
                left: 0,
                ops: 0,
            },
            #[cfg(feature = "std")]
            salt: 0,
            history: 0,
            #[cfg(feature = "std")]
            small_broadcast: None,
            #[cfg(feature = "std")]
            first_chunk_until: None,
            #[cfg(feature = "std")]
            runs_ahead: false,
            published: Published::default(),
            awaited: AwaitedWord::default(),
        })
    }

    /// Sets whether every rank can read every other's memory, from the next collective on. All ranks pass the same.
    pub const fn set_pulls(&mut self, pulls: bool) {
        self.pulls = pulls;
        #[cfg(feature = "std")]
        {
            self.small_broadcast = None;
        }
    }

    /// Forces this algorithm for collectives that support it, whatever their size; `None`: as [`selection`] selects.
    /// All ranks pass the same, except for [`SlotAlgorithm::External`].
    pub const fn force_algorithm(&mut self, way: Option<SlotAlgorithm>) {
        self.forced_algorithm = way;
        #[cfg(feature = "std")]
        {
            self.small_broadcast = None;
        }
    }

    /// Sets the generation of the group where earlier groups used the same areas: a rank of an earlier group then finds
    /// a different signature. Initially 0; to be called before the first collective.
    #[cfg(feature = "std")]
    pub const fn set_generation(&mut self, generation: u32) {
        self.salt = generation.wrapping_mul(0x9e37_79b9);
    }

    /// Starts a gather, scatter, allgather or reduce-scatter whose blocks are the parts of a vector of `vector` bytes, each of
    /// `plan.bytes` bytes but for the last ones, which are shorter or empty where that does not divide the vector.
    #[cfg(feature = "std")]
    pub fn start_parts(&mut self, id: CollectiveId, plan: &CollectiveSpec, vector: usize) {
        (self.call.plan, self.call.vector) = (None, Some(vector));
        self.start(id, plan);
        (self.call.plan, self.call.vector) = (None, None);
    }

    /// Advances the signature by the present call; a call that publishes nothing leaves no trace.
    const fn advance_signature(&mut self) {
        self.call.signature = self.next_signature();
        if self.call.schedule.rounds() > 0 {
            self.history = (self.history.rotate_left(7) ^ self.call.hash).wrapping_mul(0x0100_0193);
        }
    }

    /// The signature of a next call that is like the present one.
    #[inline]
    const fn next_signature(&self) -> u32 {
        let sign = self.call.hash ^ self.history;
        #[cfg(feature = "std")]
        let sign = sign ^ self.salt;
        sign
    }

    /// The algorithm of the present call, or of the last one.
    pub const fn algorithm(&self) -> SlotAlgorithm {
        self.call.algorithm
    }

    /// The record of the present call, whose data are moved by other means.
    #[cfg(feature = "std")]
    pub const fn call_record(&self) -> CallRecord {
        CallRecord { step: self.call.base, signature: self.call.signature }
    }

    /// The collective areas of the group.
    #[cfg(all(test, loom))]
    pub(crate) const fn areas(&self) -> &CollectiveAreas {
        &self.areas
    }

    /// Ranks of the group.
    pub const fn size(&self) -> u32 {
        self.areas.ranks
    }

    /// The word that the collective waits for, after [`Poll::Pending`]. `None`: no word; poll again.
    pub fn awaited(&self) -> Option<Awaited<'a>> {
        let AwaitedWord { rank, at, seen } = self.awaited;
        let waits = matches!(self.call.state, State::AwaitSlot | State::Write | State::Read | State::AwaitReturn);
        self.segment.word(at).filter(|_| waits).map(|word| Awaited { rank: Rank(rank), word, seen })
    }

    /// Whether a rank has not yet finished its part of this collective.
    pub fn is_behind(&self, rank: Rank) -> bool {
        let done = self.segment.word(self.areas.done(rank.0)).map_or(self.steps.next, |word| word.acquire(Site::Plain));
        rank.0 != self.rank && done.wrapping_sub(self.steps.next) > self.areas.slots
    }

    /// Whether a rank has begun a collective after all that this rank has begun.
    pub fn is_ahead(&self, rank: Rank) -> bool {
        let stamp = self.segment.word(self.areas.stamp(rank.0, self.steps.next));
        stamp.is_some_and(|stamp| stamp.acquire(Site::Plain) == self.steps.next.wrapping_add(1))
    }

    /// A rank that claims to have finished this collective without having published what this rank waits for.
    pub fn contradicting_rank(&self) -> Option<Rank> {
        let Awaited { rank, word, seen } = self.awaited()?;
        (!self.is_behind(rank) && word.acquire(Site::Plain) == seen).then_some(rank)
    }

    /// A rank that made a different call, by other means, so that the awaited word will not change.
    #[cfg(feature = "std")]
    pub fn differing_rank(&self) -> Option<Rank> {
        let Awaited { rank, word, seen } = self.awaited()?;
        let differs = self.call_record().is_contradicted_by(self.segment, &self.areas, rank);
        // Since the stamp was read the rank has not reused that slot.
        (differs && word.acquire(Site::Plain) == seen).then_some(rank)
    }

    /// Fails the collective: a rank made a different call.
    #[cfg(feature = "std")]
    pub fn handle_mismatch(&mut self, peer: Rank) {
        self.abort(peer, FailureCause::Disagrees);
    }

    /// Fails the collective: a rank published values that violate the protocol.
    pub fn handle_corrupt(&mut self, peer: Rank) {
        self.abort(peer, FailureCause::Corrupt);
    }

    /// The words that this rank has published since the last call, whose sleepers are to be woken. At most four between
    /// two requests.
    pub fn published(&mut self) -> impl Iterator<Item = &'a Word> + use<'a> {
        let (Published { bytes, count }, segment) = (core::mem::take(&mut self.published), self.segment);
        bytes.into_iter().take(count).filter_map(move |at| segment.word(at))
    }

    fn fail(&mut self, rank: u32, cause: FailureCause) -> Poll<DataOp> {
        let failure = Failure { rank: Rank(rank), cause, id: self.call.id, collective: self.call.collective };
        self.call.state = State::Failed(failure);
        Poll::Failed(failure)
    }

    /// Whether this rank's count of finished steps and its stamps are as it wrote them. If not, some process writes out
    /// of bounds. The words of pulled steps are not checked: each guards a buffer that one peer exposed to this rank
    /// alone.
    pub fn is_intact(&self) -> bool {
        let is = |at: usize, value: u32| self.segment.word(at).is_some_and(|word| word.own() == value);
        let stamps = self.steps.stamps.iter().take(self.areas.slots as usize).zip(0..);
        is(self.areas.done(self.rank), self.steps.done) && { stamps }
            .all(|(stamp, slot)| is(self.areas.stamp(self.rank, slot), *stamp))
    }

    /// Withdraws the buffers that this rank exposed to a collective that failed. A rank that has not pulled all of it
    /// waits for data that never come.
    pub fn withdraw_buffers(&mut self) {
        let own = self.steps.stamps.get_mut(self.areas.slot(self.call.base) as usize);
        if self.call.schedule.exposes()
            && let Some(stamp) = own.filter(|stamp| **stamp == self.call.base.wrapping_add(1))
        {
            *stamp = self.call.base;
            self.publish(self.areas.stamp(self.rank, self.call.base), self.call.base, Site::Plain);
        }
    }

    fn publish(&mut self, at: usize, value: u32, site: Site) {
        if let Some(word) = self.segment.word(at) {
            word.publish(value, site);
        }
        if let Some(place) = self.published.bytes.get_mut(self.published.count) {
            *place = at;
        }
        self.published.count += 1;
    }

    fn step(&self) -> u32 {
        self.call.base.wrapping_add(self.call.round)
    }

    #[cfg_attr(feature = "optimize_for_size", inline(never))]
    fn item_of(&self, takes: bool) -> Option<Item> {
        if takes {
            self.call.schedule.read_item(self.call.round, self.call.item)
        } else {
            self.call.schedule.write_item(self.call.round, self.call.item)
        }
    }

    /// Moves to the next item that is left; after the last one to the first. Returns whether it comes after this one.
    fn skip_item(&mut self) -> bool {
        if cfg!(not(feature = "std")) {
            return false;
        }
        let behind = self.call.left & u64::MAX.checked_shl(self.call.item.wrapping_add(1)).unwrap_or(0);
        if self.call.left != 0 {
            self.call.item = if behind == 0 { self.call.left } else { behind }.trailing_zeros();
        }
        behind != 0
    }

    fn end_item(&mut self) {
        if cfg!(not(feature = "std")) || self.call.left == 0 {
            self.call.item += 1;
            return;
        }
        self.call.left &= !1_u64.wrapping_shl(self.call.item);
        if self.call.left == 0 {
            self.call.item = self.areas.ranks;
        }
        self.skip_item();
    }

    /// Whether all others have finished `steps`. `Err`: the rank whose word is corrupt.
    #[inline]
    fn all_done(&mut self, steps: u32) -> Result<bool, u32> {
        if steps.wrapping_sub(self.steps.least_done).cast_signed() <= 0 {
            return Ok(true);
        }
        let mut least = self.call.base.wrapping_add(self.call.schedule.rounds());
        for rank in (0..self.areas.ranks).filter(|&rank| rank != self.rank) {
            let at = self.areas.done(rank);
            let word = self.segment.word(at).ok_or(rank)?;
            let done = word.acquire(Site::SlotFree);
            // Ranks are at most `slots` steps apart; this rank's cached minimum may be lower than the true one.
            let ahead = done.wrapping_sub(self.step()).cast_signed();
            if ahead.unsigned_abs() > 2 * self.areas.slots {
                return Err(rank);
            }
            if done.wrapping_sub(least).cast_signed() < 0 {
                (least, self.awaited) = (done, AwaitedWord { rank, at, seen: done });
            }
        }
        self.steps.least_done = least;
        Ok(steps.wrapping_sub(least).cast_signed() <= 0)
    }

    /// Whether a rank has published a step. `Err`: its word is corrupt, or it made a different call.
    fn has_published(&mut self, of: u32, step: u32) -> Result<bool, FailureCause> {
        let at = self.areas.stamp(of, step);
        let Some([stamp, sign]) = self.segment.words(at, 2) else { return Err(FailureCause::Corrupt) };
        let seen = stamp.acquire(Site::SlotPoll);
        self.awaited = AwaitedWord { rank: of, at, seen };
        match step.wrapping_add(1).wrapping_sub(seen) {
            0 if self.check_signature(sign.own(), self.call.signature) => Ok(true),
            0 => Err(FailureCause::Disagrees),
            1..=OLDEST => Ok(false),
            _ => Err(FailureCause::Corrupt),
        }
    }

    /// Whether a rank's signature is `sign`. The complement of a broadcast's means that the payload is in the first
    /// chunk.
    #[inline]
    fn check_signature(&mut self, shown: u32, sign: u32) -> bool {
        let is_first = shown == !sign && self.call.schedule.has_one_chunk();
        self.call.schedule.set_first(is_first);
        shown == sign || is_first
    }

    /// The signature word to publish.
    #[inline]
    const fn published_signature(&self, sign: u32) -> u32 {
        if self.call.schedule.is_first() { !sign } else { sign }
    }

    /// Chooses where the payload of this round goes. Returns how many steps all others must have finished before the
    /// payload and its stamp are written.
    fn choose_payload(&mut self) -> u32 {
        let step = self.step();
        #[cfg(feature = "std")]
        let oldest = self.choose_chunk(step);
        #[cfg(not(feature = "std"))]
        let oldest = step.wrapping_sub(self.areas.slots).wrapping_add(1);
        oldest
    }

    /// Rewrites old stamps, and old words of pulled steps. Those that a rank may still poll for are younger.
    fn refresh(&mut self, from: u32) {
        if from / REFRESH == self.steps.next / REFRESH {
            return;
        }
        let old = from.wrapping_sub(4 * self.areas.slots);
        #[cfg(feature = "std")]
        self.forget_first_chunk(old);
        // All others have finished that, too; a rank that only reads never checks.
        if old.wrapping_sub(self.steps.least_done).cast_signed() > 0 {
            self.steps.least_done = old;
        }
        for rank in (0..self.areas.ranks).filter(|_| self.areas.has_pull_words()) {
            // A newer word stays: a rank that waits for it to change may have seen the value `old`.
            if let Some(word) = self.segment.word(self.areas.pulled_step(self.rank, rank))
                && self.steps.next.wrapping_sub(word.own()) > self.steps.next.wrapping_sub(old)
            {
                word.publish(old, Site::Plain);
            }
        }
        for slot in 0..self.areas.slots {
            let Some(stamp) = self.steps.stamps.get_mut(slot as usize) else { continue };
            if old.wrapping_sub(*stamp).cast_signed() > 0 {
                *stamp = old;
                if let Some(word) = self.segment.word(self.areas.stamp(self.rank, slot)) {
                    word.publish(old, Site::Plain);
                }
            }
        }
    }

    /// Publishes the slot of this round.
    fn publish_slot(&mut self) {
        let step = self.step();
        let (at, stamp) = (self.areas.stamp(self.rank, step), step.wrapping_add(1));
        if let Some([_, sign]) = self.segment.words(at, 2) {
            sign.publish(self.published_signature(self.call.signature), Site::Plain);
        }
        if let Some(own) = self.steps.stamps.get_mut(self.areas.slot(step) as usize) {
            *own = stamp;
        }
        self.publish(at, stamp, Site::SlotPublish);
    }

    /// Whether all others have pulled from this rank's exposed buffers. A rank that has finished everything may reuse
    /// its word of this step for another.
    fn is_buffer_returned(&mut self) -> Result<bool, u32> {
        if !self.call.schedule.is_returned_per_peer() {
            return self.all_done(self.steps.next);
        }
        for rank in (0..self.areas.ranks).filter(|&rank| rank != self.rank) {
            let at = self.areas.pulled_step(rank, self.rank);
            let seen = self.segment.word(at).ok_or(rank)?.acquire(Site::PullPoll);
            if seen == self.steps.next {
                continue;
            }
            let done = self.segment.word(self.areas.done(rank)).ok_or(rank)?.acquire(Site::SlotFree);
            match done.wrapping_sub(self.steps.next).cast_signed() {
                ahead if ahead.unsigned_abs() > 2 * self.areas.slots => return Err(rank),
                0.. => {}
                _ => {
                    self.awaited = AwaitedWord { rank, at, seen };
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Ends a round: the others may reuse the slots that this rank has read.
    fn end_round(&mut self) {
        if self.call.schedule.releases(self.call.round) {
            let at = self.areas.done(self.rank);
            // A rank that moves the data by other means may read these slots again, until its next collective here.
            self.steps.done = self.step().wrapping_add(u32::from(!self.call.schedule.is_external()));
            self.publish(at, self.steps.done, Site::SlotDone);
        }
        self.call.round += 1;
        self.call.item = 0;
        self.call.state = match self.call.round < self.call.schedule.rounds() {
            true => State::AwaitSlot,
            false if self.call.schedule.exposes() => State::AwaitReturn,
            false => State::Final,
        };
    }
}

/// One poll reads each other rank's words at most three times, and ends with the first request.
impl CollectiveMachine for SlotCollectives<'_> {
    type Request = DataOp;

    fn start(&mut self, id: CollectiveId, plan: &CollectiveSpec) {
        if matches!(self.call.state, State::Failed(_)) {
            return;
        }
        if !offers(plan.collective) {
            (self.call.id, self.call.collective) = (id, plan.collective);
            self.fail(self.rank, FailureCause::Disagrees);
            return;
        }
        let made_of = (*plan, self.pulls, self.forced_algorithm);
        if self.call.plan != Some(made_of) {
            let way = self.forced_algorithm.unwrap_or_else(|| selection::select(plan, &self.areas, self.pulls));
            let way = if selection::supports(way, plan, &self.areas, self.pulls) { way } else { SlotAlgorithm::Flat };
            self.call.algorithm = way;
            #[cfg(feature = "std")]
            let schedule = SlotSchedule::new(plan, way, &self.areas, self.call.vector);
            #[cfg(not(feature = "std"))]
            let schedule = SlotSchedule::new(plan, way, &self.areas);
            (self.call.schedule, self.call.plan) = (schedule, Some(made_of));
            // A call by other means must not match one through slots.
            self.call.hash = signature(plan) ^ u32::from(way == SlotAlgorithm::External);
            #[cfg(feature = "std")]
            if let Some(vector) = self.call.vector {
                self.call.hash = (self.call.hash ^ 1 << 31 ^ vector as u32).wrapping_mul(0x0100_0193);
            }
        }
        self.advance_signature();
        self.call.schedule.begin(self.steps.next);
        (self.call.id, self.call.collective, self.call.base) = (id, plan.collective, self.steps.next);
        (self.call.round, self.call.item, self.call.left, self.call.ops, self.published) =
            (0, 0, 0, 0, Published::default());
        self.call.state = if self.call.schedule.rounds() > 0 { State::AwaitSlot } else { State::Final };
        self.steps.next = self.call.base.wrapping_add(self.call.schedule.rounds());
        #[cfg(feature = "std")]
        {
            self.small_broadcast = small_broadcast::SmallBroadcast::of(plan, &self.call.schedule, &self.areas);
        }
        self.refresh(self.call.base);
    }

    #[inline]
    fn poll(&mut self) -> Poll<DataOp> {
        loop {
            match self.call.state {
                State::AwaitSlot => {
                    if self.call.schedule.publishes(self.call.round) {
                        let steps = self.choose_payload();
                        match self.all_done(steps) {
                            Ok(true) => {}
                            Ok(false) => return Poll::Pending,
                            Err(rank) => return self.fail(rank, FailureCause::Corrupt),
                        }
                    }
                    self.call.state = State::Write;
                }
                State::Write | State::Read => {
                    let takes = self.call.state == State::Read;
                    match self.item_of(takes) {
                        Some(mut item) => {
                            if let Some((of, step)) = item.wait_for {
                                match self.has_published(of, self.call.base.wrapping_add(step)) {
                                    // The payload's location is known only now.
                                    Ok(true) if self.call.schedule.is_first() => {
                                        item = self.item_of(takes).unwrap_or(item)
                                    }
                                    Ok(true) => {}
                                    Ok(false) if self.skip_item() => continue,
                                    Ok(false) => return Poll::Pending,
                                    Err(cause) => return self.fail(of, cause),
                                }
                            }
                            match item.op {
                                Some(op) => {
                                    self.call.state = State::Executing { takes };
                                    return Poll::Request(StepId(self.call.ops), op);
                                }
                                None => self.end_item(),
                            }
                        }
                        None if takes => self.end_round(),
                        None => {
                            if self.call.schedule.publishes(self.call.round) {
                                self.publish_slot();
                            }
                            (self.call.item, self.call.left, self.call.state) =
                                (0, self.call.schedule.in_any_order(), State::Read);
                        }
                    }
                }
                State::Executing { .. } => return Poll::Pending,
                State::AwaitReturn => match self.is_buffer_returned() {
                    Ok(true) => self.call.state = State::Final,
                    Ok(false) => return Poll::Pending,
                    Err(rank) => return self.fail(rank, FailureCause::Corrupt),
                },
                State::Final => return Poll::Complete,
                State::Failed(failure) => return Poll::Failed(failure),
            }
        }
    }

    #[inline]
    fn handle_done(&mut self, step: StepId) {
        if let (State::Executing { takes }, true) = (self.call.state, step.0 == self.call.ops) {
            self.call.ops = self.call.ops.wrapping_add(1);
            self.call.state = if takes { State::Read } else { State::Write };
            // The exposed buffer may have been withdrawn meanwhile: then what was read is void.
            if self.call.schedule.pulls()
                && let Some(Item { wait_for: Some((of, round)), op: Some(DataOp::Pull { .. }) }) = self.item_of(takes)
            {
                if self.has_published(of, self.call.base.wrapping_add(round)) != Ok(true) {
                    return;
                }
                if self.call.schedule.is_returned_per_peer() {
                    self.publish(self.areas.pulled_step(self.rank, of), self.steps.next, Site::PullDone);
                }
            }
            self.end_item();
        }
    }

    fn handle_failed(&mut self, peer: Rank) {
        self.abort(peer, FailureCause::Missing);
    }

    fn abort(&mut self, peer: Rank, cause: FailureCause) {
        if !matches!(self.call.state, State::Final | State::Failed(_)) {
            self.fail(peer.0, cause);
        }
    }

    fn completed(&self) -> u32 {
        self.call.ops
    }
}

/// A hash that most likely differs for plans that do not match.
fn signature(plan: &CollectiveSpec) -> u32 {
    let root = if plan.collective.is_rooted() { plan.root.0 } else { 0 };
    let bytes = plan.bytes as u64;
    let what = plan.collective as u32 | u32::from(plan.in_place) << 8 | (plan.order as u32) << 9;
    let parts = [what, root, bytes as u32, (bytes >> 32) as u32, plan.reduction_id];
    parts.into_iter().fold(0x811c_9dc5, |sum: u32, part| (sum ^ part).wrapping_mul(0x0100_0193).rotate_left(13))
}

#[cfg(all(test, not(loom)))]
mod tests;
