//! Collectives through slots, over one collective area per rank: the shared-memory implementation of [`Basic`].
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

use unisono_core::collective::{Basic, Cause, Failure, Plan, Turn, Verb};
use unisono_core::ids::{CollectiveId, Rank, StepId};

use crate::collective_area::{Boards, SLOTS};
use crate::segment::{Segment, Site, Word};
use crate::slot_collectives::data_op::Wish;
use crate::slot_collectives::schedule::{Course, Item, offers};
use crate::slot_collectives::selection::Way;

#[cfg(feature = "std")]
pub use call_record::Passed;

/// Steps after which a rank rewrites old stamps; no rank's stamp is older than twice that.
pub const REFRESH: u32 = 1 << 24;
/// Most steps by which a stamp may be old.
const OLDEST: u32 = 3 * REFRESH;

/// One rank's state machine for the collectives of its group.
#[derive(Clone, Debug)]
pub struct Flags<'a> {
    segment: Segment<'a>,
    boards: Boards,
    rank: u32,
    pulls: bool,
    forced: Option<Way>,
    /// The next collective's first step.
    next: u32,
    /// Steps that all ranks have finished, as last seen.
    least: u32,
    /// Stamps of this rank's own slots, never read back.
    stamps: [u32; SLOTS as usize],
    /// Steps that this rank has published as finished, never read back either.
    done: u32,
    id: CollectiveId,
    verb: Verb,
    /// The plan, pull setting and forced algorithm from which schedule and signature were made.
    plan: Option<(Plan, bool, Option<Way>)>,
    /// Set if the next call may be a small broadcast like the last one.
    #[cfg(feature = "std")]
    short: Option<small_broadcast::Short>,
    /// After the first chunk was used out of turn: steps that all ranks must have finished before it is used in turn.
    #[cfg(feature = "std")]
    first_until: Option<u32>,
    /// A rank had not finished all previous steps when that was last checked.
    #[cfg(feature = "std")]
    runs_ahead: bool,
    course: Course,
    base: u32,
    sign: u32,
    /// Mixed into all signatures; of the previous calls; of this call.
    #[cfg(feature = "std")]
    salt: u32,
    history: u32,
    call: u32,
    state: State,
    lap: u32,
    item: u32,
    /// Items of this round that are left, where they are done in any order.
    left: u64,
    wishes: u32,
    shown: Shown,
    awaits: Awaits,
}

/// The word that the last poll waits for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Awaits {
    rank: u32,
    at: usize,
    seen: u32,
}

/// The state of a collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Waits until its slot is free.
    Free,
    /// Writes.
    Make,
    /// Reads.
    Take,
    /// Waits until the host has executed a write or read.
    Doing {
        takes: bool,
    },
    /// Waits until the others have pulled from its exposed buffers.
    Lent,
    /// Complete.
    Final,
    Failed(Failure),
}

/// Words that were published since the host last took them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Shown {
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

impl<'a> Flags<'a> {
    /// The collectives of a group after `first` steps. `pulls`: every rank can read every other's memory, as all ranks
    /// have agreed. `None`: the areas do not lie in the segment, or there is no such rank.
    pub fn new(segment: Segment<'a>, boards: Boards, rank: u32, pulls: bool, first: u32) -> Option<Self> {
        let known = boards.slots.is_power_of_two() && boards.slots <= SLOTS;
        if !known || rank >= boards.ranks || boards.words(segment).is_none() {
            return None;
        }
        Some(Self {
            segment,
            boards,
            rank,
            pulls,
            forced: None,
            next: first,
            least: first,
            stamps: [first; SLOTS as usize],
            done: first,
            id: CollectiveId::default(),
            verb: Verb::Barrier,
            plan: None,
            #[cfg(feature = "std")]
            short: None,
            #[cfg(feature = "std")]
            first_until: None,
            #[cfg(feature = "std")]
            runs_ahead: false,
            course: Course::EMPTY,
            base: first,
            sign: 0,
            #[cfg(feature = "std")]
            salt: 0,
            history: 0,
            call: 0,
            state: State::Final,
            lap: 0,
            item: 0,
            left: 0,
            wishes: 0,
            shown: Shown::default(),
            awaits: Awaits::default(),
        })
    }

    /// Sets whether every rank can read every other's memory, from the next collective on. All ranks pass the same.
    pub const fn set_pulls(&mut self, pulls: bool) {
        self.pulls = pulls;
        #[cfg(feature = "std")]
        {
            self.short = None;
        }
    }

    /// Forces this algorithm for collectives that support it, whatever their size; `None`: as [`selection`] selects. All
    /// ranks pass the same, except for [`Way::Elsewhere`].
    pub const fn force(&mut self, way: Option<Way>) {
        self.forced = way;
        #[cfg(feature = "std")]
        {
            self.short = None;
        }
    }

    /// Sets the generation of the group where earlier groups used the same areas: a rank of an earlier group then finds
    /// a different signature. Initially 0; to be called before the first collective.
    #[cfg(feature = "std")]
    pub const fn set_generation(&mut self, generation: u32) {
        self.salt = generation.wrapping_mul(0x9e37_79b9);
    }

    /// Advances the signature by the present call; a call that publishes nothing leaves no trace.
    const fn sign_on(&mut self) {
        self.sign = self.next_sign();
        if self.course.laps() > 0 {
            self.history = (self.history.rotate_left(7) ^ self.call).wrapping_mul(0x0100_0193);
        }
    }

    /// The signature of a next call that is like the present one.
    #[inline]
    const fn next_sign(&self) -> u32 {
        let sign = self.call ^ self.history;
        #[cfg(feature = "std")]
        let sign = sign ^ self.salt;
        sign
    }

    /// The record of the present call, whose data are moved by other means.
    #[cfg(feature = "std")]
    pub const fn passed(&self) -> Passed {
        Passed { step: self.base, sign: self.sign }
    }

    /// The collective areas of the group.
    #[cfg(all(test, loom))]
    pub(crate) const fn boards(&self) -> &Boards {
        &self.boards
    }

    /// Ranks of the group.
    pub const fn size(&self) -> u32 {
        self.boards.ranks
    }

    /// The word that the collective waits for, after [`Turn::Pending`]. `None`: no word; poll again.
    pub fn awaited(&self) -> Option<Awaited<'a>> {
        let Awaits { rank, at, seen } = self.awaits;
        let waits = matches!(self.state, State::Free | State::Make | State::Take | State::Lent);
        self.segment.word(at).filter(|_| waits).map(|word| Awaited { rank: Rank(rank), word, seen })
    }

    /// Whether a rank has not yet finished its part of this collective.
    pub fn is_behind(&self, rank: Rank) -> bool {
        let done = self.segment.word(self.boards.done(rank.0)).map_or(self.next, |word| word.acquire(Site::Plain));
        rank.0 != self.rank && done.wrapping_sub(self.next) > self.boards.slots
    }

    /// Whether a rank has begun a collective after all that this rank has begun.
    pub fn is_ahead(&self, rank: Rank) -> bool {
        let stamp = self.segment.word(self.boards.stamp(rank.0, self.next));
        stamp.is_some_and(|stamp| stamp.acquire(Site::Plain) == self.next.wrapping_add(1))
    }

    /// A rank that claims to have finished this collective without having published what this rank waits for.
    pub fn contradicting(&self) -> Option<Rank> {
        let Awaited { rank, word, seen } = self.awaited()?;
        (!self.is_behind(rank) && word.acquire(Site::Plain) == seen).then_some(rank)
    }

    /// A rank that made a different call, by other means, so that the awaited word will not change.
    #[cfg(feature = "std")]
    pub fn differing(&self) -> Option<Rank> {
        let Awaited { rank, word, seen } = self.awaited()?;
        let differs = self.passed().is_contradicted_by(self.segment, &self.boards, rank);
        // Since the stamp was read the rank has not reused that slot.
        (differs && word.acquire(Site::Plain) == seen).then_some(rank)
    }

    /// Fails the collective: a rank made a different call.
    #[cfg(feature = "std")]
    pub fn handle_differing(&mut self, peer: Rank) {
        self.give_up(peer, Cause::Disagrees);
    }

    /// Fails the collective: a rank published values that violate the protocol.
    pub fn handle_corrupt(&mut self, peer: Rank) {
        self.give_up(peer, Cause::Corrupt);
    }

    /// The words that this rank has published since the last call, whose sleepers are to be woken. At most four between
    /// two requests.
    pub fn published(&mut self) -> impl Iterator<Item = &'a Word> + use<'a> {
        let (Shown { bytes, count }, segment) = (core::mem::take(&mut self.shown), self.segment);
        bytes.into_iter().take(count).filter_map(move |at| segment.word(at))
    }

    fn fail(&mut self, rank: u32, cause: Cause) -> Turn<Wish> {
        let failure = Failure { rank: Rank(rank), cause, id: self.id, verb: self.verb };
        self.state = State::Failed(failure);
        Turn::Failed(failure)
    }

    /// Fails, unless it is over.
    fn give_up(&mut self, peer: Rank, cause: Cause) {
        if !matches!(self.state, State::Final | State::Failed(_)) {
            self.fail(peer.0, cause);
        }
    }

    /// Whether this rank's count of finished steps and its stamps are as it wrote them. If not, some process writes out
    /// of bounds. The words of pulled steps are not checked: each guards a buffer that one peer exposed to this rank
    /// alone.
    pub fn is_intact(&self) -> bool {
        let is = |at: usize, value: u32| self.segment.word(at).is_some_and(|word| word.own() == value);
        let stamps = self.stamps.iter().take(self.boards.slots as usize).zip(0..);
        is(self.boards.done(self.rank), self.done) && { stamps }
            .all(|(stamp, slot)| is(self.boards.stamp(self.rank, slot), *stamp))
    }

    /// Withdraws the buffers that this rank exposed to a collective that failed. A rank that has not pulled all of it
    /// waits for data that never come.
    pub fn withdraw(&mut self) {
        let own = self.stamps.get_mut(self.boards.slot(self.base) as usize);
        if self.course.lends()
            && let Some(stamp) = own.filter(|stamp| **stamp == self.base.wrapping_add(1))
        {
            *stamp = self.base;
            self.publish(self.boards.stamp(self.rank, self.base), self.base, Site::Plain);
        }
    }

    fn publish(&mut self, at: usize, value: u32, site: Site) {
        if let Some(word) = self.segment.word(at) {
            word.publish(value, site);
        }
        if let Some(place) = self.shown.bytes.get_mut(self.shown.count) {
            *place = at;
        }
        self.shown.count += 1;
    }

    fn step(&self) -> u32 {
        self.base.wrapping_add(self.lap)
    }

    #[cfg_attr(feature = "optimize_for_size", inline(never))]
    fn item_of(&self, takes: bool) -> Option<Item> {
        if takes { self.course.take(self.lap, self.item) } else { self.course.make(self.lap, self.item) }
    }

    /// Moves to the next item that is left; after the last one to the first. Returns whether it comes after this one.
    fn pass_over(&mut self) -> bool {
        if cfg!(not(feature = "std")) {
            return false;
        }
        let behind = self.left & u64::MAX.checked_shl(self.item.wrapping_add(1)).unwrap_or(0);
        if self.left != 0 {
            self.item = if behind == 0 { self.left } else { behind }.trailing_zeros();
        }
        behind != 0
    }

    fn end_item(&mut self) {
        if cfg!(not(feature = "std")) || self.left == 0 {
            self.item += 1;
            return;
        }
        self.left &= !1_u64.wrapping_shl(self.item);
        if self.left == 0 {
            self.item = self.boards.ranks;
        }
        self.pass_over();
    }

    /// Whether all others have finished `steps`. `Err`: the rank whose word is corrupt.
    #[inline]
    fn have_done(&mut self, steps: u32) -> Result<bool, u32> {
        if steps.wrapping_sub(self.least).cast_signed() <= 0 {
            return Ok(true);
        }
        let mut least = self.base.wrapping_add(self.course.laps());
        for rank in (0..self.boards.ranks).filter(|&rank| rank != self.rank) {
            let at = self.boards.done(rank);
            let word = self.segment.word(at).ok_or(rank)?;
            let done = word.acquire(Site::SlotFree);
            // Ranks are at most `slots` steps apart; this rank's cached minimum may be lower than the true one.
            let ahead = done.wrapping_sub(self.step()).cast_signed();
            if ahead.unsigned_abs() > 2 * self.boards.slots {
                return Err(rank);
            }
            if done.wrapping_sub(least).cast_signed() < 0 {
                (least, self.awaits) = (done, Awaits { rank, at, seen: done });
            }
        }
        self.least = least;
        Ok(steps.wrapping_sub(least).cast_signed() <= 0)
    }

    /// Whether a rank has published a step. `Err`: its word is corrupt, or it made a different call.
    fn has_shown(&mut self, of: u32, step: u32) -> Result<bool, Cause> {
        let at = self.boards.stamp(of, step);
        let Some([stamp, sign]) = self.segment.words(at, 2) else { return Err(Cause::Corrupt) };
        let seen = stamp.acquire(Site::SlotLook);
        self.awaits = Awaits { rank: of, at, seen };
        match step.wrapping_add(1).wrapping_sub(seen) {
            0 if self.hear(sign.own(), self.sign) => Ok(true),
            0 => Err(Cause::Disagrees),
            1..=OLDEST => Ok(false),
            _ => Err(Cause::Corrupt),
        }
    }

    /// Whether a rank's signature is `sign`. The complement of a broadcast's means that the payload is in the first
    /// chunk.
    #[inline]
    fn hear(&mut self, shown: u32, sign: u32) -> bool {
        let is_first = shown == !sign && self.course.has_one_chunk();
        self.course.set_first(is_first);
        shown == sign || is_first
    }

    /// The signature word to publish.
    #[inline]
    const fn said(&self, sign: u32) -> u32 {
        if self.course.is_first() { !sign } else { sign }
    }

    /// Chooses where the payload of this round goes. Returns how many steps all others must have finished before the
    /// payload and its stamp are written.
    fn choose(&mut self) -> u32 {
        let step = self.step();
        #[cfg(feature = "std")]
        let oldest = self.choose_chunk(step);
        #[cfg(not(feature = "std"))]
        let oldest = step.wrapping_sub(self.boards.slots).wrapping_add(1);
        oldest
    }

    /// Rewrites old stamps, and old words of pulled steps. Those that a rank may still poll for are younger.
    fn refresh(&mut self, from: u32) {
        if from / REFRESH == self.next / REFRESH {
            return;
        }
        let old = from.wrapping_sub(4 * self.boards.slots);
        #[cfg(feature = "std")]
        self.forget_first(old);
        // All others have finished that, too; a rank that only reads never checks.
        if old.wrapping_sub(self.least).cast_signed() > 0 {
            self.least = old;
        }
        for rank in (0..self.boards.ranks).filter(|_| self.boards.has_taken()) {
            // A newer word stays: a rank that waits for it to change may have seen the value `old`.
            if let Some(word) = self.segment.word(self.boards.taken(self.rank, rank))
                && self.next.wrapping_sub(word.own()) > self.next.wrapping_sub(old)
            {
                word.publish(old, Site::Plain);
            }
        }
        for slot in 0..self.boards.slots {
            let Some(stamp) = self.stamps.get_mut(slot as usize) else { continue };
            if old.wrapping_sub(*stamp).cast_signed() > 0 {
                *stamp = old;
                if let Some(word) = self.segment.word(self.boards.stamp(self.rank, slot)) {
                    word.publish(old, Site::Plain);
                }
            }
        }
    }

    /// Publishes the slot of this round.
    fn show(&mut self) {
        let step = self.step();
        let (at, stamp) = (self.boards.stamp(self.rank, step), step.wrapping_add(1));
        if let Some([_, sign]) = self.segment.words(at, 2) {
            sign.publish(self.said(self.sign), Site::Plain);
        }
        if let Some(own) = self.stamps.get_mut(self.boards.slot(step) as usize) {
            *own = stamp;
        }
        self.publish(at, stamp, Site::SlotShow);
    }

    /// Whether all others have pulled from this rank's exposed buffers. A rank that has finished everything may reuse
    /// its word of this step for another.
    fn is_given_back(&mut self) -> Result<bool, u32> {
        if !self.course.is_given_back_singly() {
            return self.have_done(self.next);
        }
        for rank in (0..self.boards.ranks).filter(|&rank| rank != self.rank) {
            let at = self.boards.taken(rank, self.rank);
            let seen = self.segment.word(at).ok_or(rank)?.acquire(Site::LentFree);
            if seen == self.next {
                continue;
            }
            let done = self.segment.word(self.boards.done(rank)).ok_or(rank)?.acquire(Site::SlotFree);
            match done.wrapping_sub(self.next).cast_signed() {
                ahead if ahead.unsigned_abs() > 2 * self.boards.slots => return Err(rank),
                0.. => {}
                _ => {
                    self.awaits = Awaits { rank, at, seen };
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Ends a round: the others may reuse the slots that this rank has read.
    fn end_lap(&mut self) {
        if self.course.releases(self.lap) {
            let at = self.boards.done(self.rank);
            // A rank that moves the data by other means may read these slots again, until its next collective here.
            self.done = self.step().wrapping_add(u32::from(!self.course.is_elsewhere()));
            self.publish(at, self.done, Site::SlotDone);
        }
        self.lap += 1;
        self.item = 0;
        self.state = match self.lap < self.course.laps() {
            true => State::Free,
            false if self.course.lends() => State::Lent,
            false => State::Final,
        };
    }
}

/// One poll reads each other rank's words at most three times, and ends with the first request.
impl Basic for Flags<'_> {
    type Wish = Wish;

    fn start(&mut self, id: CollectiveId, plan: &Plan) {
        if matches!(self.state, State::Failed(_)) {
            return;
        }
        if !offers(plan.verb) {
            (self.id, self.verb) = (id, plan.verb);
            self.fail(self.rank, Cause::Disagrees);
            return;
        }
        let made_of = (*plan, self.pulls, self.forced);
        if self.plan != Some(made_of) {
            let way = self.forced.unwrap_or_else(|| selection::way(plan, &self.boards, self.pulls));
            let way = if selection::can(way, plan, &self.boards, self.pulls) { way } else { Way::Flat };
            (self.course, self.plan) = (Course::new(plan, way, &self.boards), Some(made_of));
            // A call by other means must not match one through slots.
            self.call = sign(plan) ^ u32::from(way == Way::Elsewhere);
        }
        self.sign_on();
        self.course.begin(self.next);
        (self.id, self.verb, self.base) = (id, plan.verb, self.next);
        (self.lap, self.item, self.left, self.wishes, self.shown) = (0, 0, 0, 0, Shown::default());
        self.state = if self.course.laps() > 0 { State::Free } else { State::Final };
        self.next = self.base.wrapping_add(self.course.laps());
        #[cfg(feature = "std")]
        {
            self.short = small_broadcast::Short::of(plan, &self.course, &self.boards);
        }
        self.refresh(self.base);
    }

    #[inline]
    fn poll(&mut self) -> Turn<Wish> {
        loop {
            match self.state {
                State::Free => {
                    if self.course.shows(self.lap) {
                        let steps = self.choose();
                        match self.have_done(steps) {
                            Ok(true) => {}
                            Ok(false) => return Turn::Pending,
                            Err(rank) => return self.fail(rank, Cause::Corrupt),
                        }
                    }
                    self.state = State::Make;
                }
                State::Make | State::Take => {
                    let takes = self.state == State::Take;
                    match self.item_of(takes) {
                        Some(mut item) => {
                            if let Some((of, step)) = item.look {
                                match self.has_shown(of, self.base.wrapping_add(step)) {
                                    // The payload's location is known only now.
                                    Ok(true) if self.course.is_first() => item = self.item_of(takes).unwrap_or(item),
                                    Ok(true) => {}
                                    Ok(false) if self.pass_over() => continue,
                                    Ok(false) => return Turn::Pending,
                                    Err(cause) => return self.fail(of, cause),
                                }
                            }
                            match item.wish {
                                Some(wish) => {
                                    self.state = State::Doing { takes };
                                    return Turn::Do(StepId(self.wishes), wish);
                                }
                                None => self.end_item(),
                            }
                        }
                        None if takes => self.end_lap(),
                        None => {
                            if self.course.shows(self.lap) {
                                self.show();
                            }
                            (self.item, self.left, self.state) = (0, self.course.in_any_order(), State::Take);
                        }
                    }
                }
                State::Doing { .. } => return Turn::Pending,
                State::Lent => match self.is_given_back() {
                    Ok(true) => self.state = State::Final,
                    Ok(false) => return Turn::Pending,
                    Err(rank) => return self.fail(rank, Cause::Corrupt),
                },
                State::Final => return Turn::Final,
                State::Failed(failure) => return Turn::Failed(failure),
            }
        }
    }

    #[inline]
    fn handle_done(&mut self, step: StepId) {
        if let (State::Doing { takes }, true) = (self.state, step.0 == self.wishes) {
            self.wishes = self.wishes.wrapping_add(1);
            self.state = if takes { State::Take } else { State::Make };
            // The exposed buffer may have been withdrawn meanwhile: then what was read is void.
            if self.course.pulls()
                && let Some(Item { look: Some((of, lap)), wish: Some(Wish::Pull { .. }) }) = self.item_of(takes)
            {
                if self.has_shown(of, self.base.wrapping_add(lap)) != Ok(true) {
                    return;
                }
                if self.course.is_given_back_singly() {
                    self.publish(self.boards.taken(self.rank, of), self.next, Site::LentDone);
                }
            }
            self.end_item();
        }
    }

    fn handle_failed(&mut self, peer: Rank) {
        self.give_up(peer, Cause::Missing);
    }
}

/// A hash that most likely differs for plans that do not match.
fn sign(plan: &Plan) -> u32 {
    let root = if plan.verb.is_rooted() { plan.root.0 } else { 0 };
    let bytes = plan.bytes as u64;
    let what = plan.verb as u32 | u32::from(plan.in_place) << 8 | (plan.order as u32) << 9;
    let parts = [what, root, bytes as u32, (bytes >> 32) as u32, plan.kind];
    parts.into_iter().fold(0x811c_9dc5, |sum: u32, part| (sum ^ part).wrapping_mul(0x0100_0193).rotate_left(13))
}

#[cfg(all(test, not(loom)))]
mod tests;
