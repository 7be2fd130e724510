//! Collectives over one board per rank: the shared-memory implementation of [`Basic`].
//!
//! # Steps
//! All collectives of a group are one sequence of steps, numbered alike on all ranks; the number wraps. In a step a rank may show one
//! slot of its board: it waits until the slot is free, has the payload written (inline behind the stamp, in the slot's chunk of bulk, or
//! the addresses of its buffers, which others then pull from), and publishes the stamp, step + 1. The others look for that stamp. When a
//! rank has read all it needs of a step it publishes how many steps it has done with. Every word has one writer. Where ranks share
//! processors, what everyone sends to everyone is shown in several steps before any of it is read, and what is lent is read in whatever
//! order it is shown: a rank does all it can whenever it runs.
//!
//! # Flow control
//! The slot of step s was last used for step s − slots, so it is free when everyone has done with that: a rank runs at most `slots` steps
//! ahead of the slowest, or as far as the slot whose chunk was taken out of its turn (`chunks.rs`). The least number of steps that all
//! have done with is remembered and only looked at again when it does not suffice: rooted collectives do not synchronise, and a million
//! broadcasts past a sleeping rank stop after `slots` of them. This is double buffering with `slots` buffers.
//!
//! # Wrap
//! A stamp is compared with the one that is expected; it is older, or nonsense. A rank that shows nothing for long would leave a stamp
//! that comes to look new when the number has wrapped: every 2²⁴ steps it writes its old ones anew ([`REFRESH`]).
//!
//! # Signs
//! Beside its stamp a slot has a sign of the call, and of all calls of the group before: who looks at a slot sees whether its rank does,
//! and has done, the same. Where nobody looks, as at each other's slots where each takes itself for the root, the next look tells.

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

use unisono_core::collective::{Basic, Cause, CollectiveId, Failure, Plan, Rank, StepId, Turn, Verb};

use crate::collective_area::{Boards, SLOTS};
use crate::segment::{Segment, Site, Word};
use crate::slot_collectives::data_op::Wish;
use crate::slot_collectives::schedule::{Course, Item, offers};
use crate::slot_collectives::selection::Way;

#[cfg(feature = "std")]
pub use call_record::Passed;

/// Steps after which a rank writes old stamps anew; no rank's is older than twice that.
pub const REFRESH: u32 = 1 << 24;
/// Most steps that a stamp may lie back.
const OLDEST: u32 = 3 * REFRESH;

/// One rank's side of its group's collectives.
#[derive(Clone, Debug)]
pub struct Flags<'a> {
    segment: Segment<'a>,
    boards: Boards,
    rank: u32,
    pulls: bool,
    forced: Option<Way>,
    /// The next collective's first step.
    next: u32,
    /// Steps that all have done with, as last seen.
    least: u32,
    /// What the own slots are stamped with, never read back.
    stamps: [u32; SLOTS as usize],
    /// Steps that this rank has shown to have done with, never read back either.
    done: u32,
    id: CollectiveId,
    verb: Verb,
    /// Of which course and sign were made.
    plan: Option<(Plan, bool, Option<Way>)>,
    /// Whether, and how, the next call may be like the last one.
    #[cfg(feature = "std")]
    short: Option<small_broadcast::Short>,
    /// Steps that all must have done with before the first chunk is used in its turn, where it was out of it.
    #[cfg(feature = "std")]
    first_until: Option<u32>,
    /// Somebody had not done with all that came before when it was last asked for.
    #[cfg(feature = "std")]
    runs_ahead: bool,
    course: Course,
    base: u32,
    sign: u32,
    /// Mixed into all signs; of the calls so far; of this one.
    #[cfg(feature = "std")]
    salt: u32,
    history: u32,
    call: u32,
    state: State,
    lap: u32,
    item: u32,
    /// Items of this lap that are left to do, where they are done in any order.
    left: u64,
    wishes: u32,
    shown: Shown,
    awaits: Awaits,
}

/// The word that the last poll found wanting.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Awaits {
    rank: u32,
    at: usize,
    seen: u32,
}

/// Where a collective is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Waits until its slot is free.
    Free,
    /// Writes.
    Make,
    /// Reads.
    Take,
    /// Waits for the rim to do what it writes, or reads.
    Doing {
        takes: bool,
    },
    /// Waits until others have done with what it lent.
    Lent,
    /// Complete.
    Final,
    Failed(Failure),
}

/// Words that were published since the rim asked.
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
    /// What it showed.
    pub seen: u32,
}

impl<'a> Flags<'a> {
    /// The collectives of a group after `first` steps. `pulls`: every rank can read every other's memory, which all ranks agree on.
    /// `None`: the boards do not lie in the segment, or there is no such rank.
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

    /// Whether every rank can read every other's memory, from the next collective on. All ranks say the same.
    pub const fn set_pulls(&mut self, pulls: bool) {
        self.pulls = pulls;
        #[cfg(feature = "std")]
        {
            self.short = None;
        }
    }

    /// Lets collectives that can travel this way do so, whatever their size; `None`: as [`choice`] has it. All ranks say
    /// the same, but of [`Way::Elsewhere`].
    pub const fn force(&mut self, way: Option<Way>) {
        self.forced = way;
        #[cfg(feature = "std")]
        {
            self.short = None;
        }
    }

    /// Of the group, where others had the boards before: who still takes them for theirs finds another sign. At first 0; to be set
    /// before the first collective.
    #[cfg(feature = "std")]
    pub const fn set_generation(&mut self, generation: u32) {
        self.salt = generation.wrapping_mul(0x9e37_79b9);
    }

    /// The sign of the present call, behind all others; one of which nothing is shown leaves none.
    const fn sign_on(&mut self) {
        self.sign = self.next_sign();
        if self.course.laps() > 0 {
            self.history = (self.history.rotate_left(7) ^ self.call).wrapping_mul(0x0100_0193);
        }
    }

    /// That of a call that is like the present one, behind it.
    #[inline]
    const fn next_sign(&self) -> u32 {
        let sign = self.call ^ self.history;
        #[cfg(feature = "std")]
        let sign = sign ^ self.salt;
        sign
    }

    /// What is shown of the present call, that goes by other means.
    #[cfg(feature = "std")]
    pub const fn passed(&self) -> Passed {
        Passed { step: self.base, sign: self.sign }
    }

    /// Where the group shows what it does.
    #[cfg(all(test, loom))]
    pub(crate) const fn boards(&self) -> &Boards {
        &self.boards
    }

    /// Ranks of the group.
    pub const fn size(&self) -> u32 {
        self.boards.ranks
    }

    /// What the collective waits for, after [`Turn::Pending`]. `None`: nothing that changes; poll again.
    pub fn awaited(&self) -> Option<Awaited<'a>> {
        let Awaits { rank, at, seen } = self.awaits;
        let waits = matches!(self.state, State::Free | State::Make | State::Take | State::Lent);
        self.segment.word(at).filter(|_| waits).map(|word| Awaited { rank: Rank(rank), word, seen })
    }

    /// Whether a rank has not yet done its part in this collective.
    pub fn is_behind(&self, rank: Rank) -> bool {
        let done = self.segment.word(self.boards.done(rank.0)).map_or(self.next, |word| word.acquire(Site::Plain));
        rank.0 != self.rank && done.wrapping_sub(self.next) > self.boards.slots
    }

    /// Whether a rank has begun a collective that comes after all that this rank has begun.
    pub fn is_ahead(&self, rank: Rank) -> bool {
        let stamp = self.segment.word(self.boards.stamp(rank.0, self.next));
        stamp.is_some_and(|stamp| stamp.acquire(Site::Plain) == self.next.wrapping_add(1))
    }

    /// Who has done its part in this collective, as it says, and yet has not shown what this rank waits for.
    pub fn contradicting(&self) -> Option<Rank> {
        let Awaited { rank, word, seen } = self.awaited()?;
        (!self.is_behind(rank) && word.acquire(Site::Plain) == seen).then_some(rank)
    }

    /// Who has called something else instead, by other means, so that what this rank waits for does not come.
    #[cfg(feature = "std")]
    pub fn differing(&self) -> Option<Rank> {
        let Awaited { rank, word, seen } = self.awaited()?;
        let differs = self.passed().is_contradicted_by(self.segment, &self.boards, rank);
        // Where it was seen to be it has not used that slot again.
        (differs && word.acquire(Site::Plain) == seen).then_some(rank)
    }

    /// A rank has called something else.
    #[cfg(feature = "std")]
    pub fn handle_differing(&mut self, peer: Rank) {
        self.give_up(peer, Cause::Disagrees);
    }

    /// A rank shows what no rank that follows the protocol can show.
    pub fn handle_corrupt(&mut self, peer: Rank) {
        self.give_up(peer, Cause::Corrupt);
    }

    /// The words that this rank has published since the last call: who sleeps on them is to be woken. Four at most between two wishes.
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

    /// Whether what it has done with and what it shows are as this rank wrote them. If not, somebody writes where he should not. Words of
    /// what it has taken are not looked at: they guard what others have lent, each from this rank alone.
    pub fn is_intact(&self) -> bool {
        let is = |at: usize, value: u32| self.segment.word(at).is_some_and(|word| word.own() == value);
        let stamps = self.stamps.iter().take(self.boards.slots as usize).zip(0..);
        is(self.boards.done(self.rank), self.done) && { stamps }
            .all(|(stamp, slot)| is(self.boards.stamp(self.rank, slot), *stamp))
    }

    /// Takes back what this rank has lent to a collective that failed: who has not read it to the end waits for what never comes.
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

    /// Goes on to the next item of those that are left; behind the last one to the first. Whether it lies behind this one.
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

    /// Whether all others have done with `steps`; whose word is nonsense otherwise.
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
            // Nobody is ahead of, or behind, anybody by more than the slots; this rank remembers less than there was.
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

    /// Whether a rank has shown a step; what is wrong with it otherwise.
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

    /// Whether a rank's sign is this one. The complement of a broadcast's says that the payload lies in the first chunk.
    #[inline]
    fn hear(&mut self, shown: u32, sign: u32) -> bool {
        let is_first = shown == !sign && self.course.has_one_chunk();
        self.course.set_first(is_first);
        shown == sign || is_first
    }

    /// What is shown as the sign.
    #[inline]
    const fn said(&self, sign: u32) -> u32 {
        if self.course.is_first() { !sign } else { sign }
    }

    /// Chooses where the payload of this lap goes. How many steps all others must have done with before it, and its stamp, are written.
    fn choose(&mut self) -> u32 {
        let step = self.step();
        #[cfg(feature = "std")]
        let oldest = self.choose_chunk(step);
        #[cfg(not(feature = "std"))]
        let oldest = step.wrapping_sub(self.boards.slots).wrapping_add(1);
        oldest
    }

    /// Writes stamps anew that have become old, and what others have done with. Those that anyone may still look for are younger.
    fn refresh(&mut self, from: u32) {
        if from / REFRESH == self.next / REFRESH {
            return;
        }
        let old = from.wrapping_sub(4 * self.boards.slots);
        #[cfg(feature = "std")]
        self.forget_first(old);
        // All others have done with that, too, although whoever only reads never looks.
        if old.wrapping_sub(self.least).cast_signed() > 0 {
            self.least = old;
        }
        for rank in (0..self.boards.ranks).filter(|_| self.boards.has_taken()) {
            // One that is newer stays: whoever waits for it to change may have seen what is old now.
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

    /// Shows the slot of this lap.
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

    /// Whether all others have done with what this rank has lent. Who has done with everything may use the word of this step for another.
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

    /// Ends a lap: the others may use the slots that this rank has read.
    fn end_lap(&mut self) {
        if self.course.releases(self.lap) {
            let at = self.boards.done(self.rank);
            // Who goes by other means may look again at what the others show of that, until it comes back here.
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

/// One poll takes at most three looks at every other rank, and ends with the first wish.
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
            // Who goes by other means does something else than who does not.
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
                                    // Where it lies is known now.
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
            // What was lent may have been taken back meanwhile: then it is not there.
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

/// A number that differs, most likely, for plans that do not go together.
fn sign(plan: &Plan) -> u32 {
    let root = if plan.verb.is_rooted() { plan.root.0 } else { 0 };
    let bytes = plan.bytes as u64;
    let what = plan.verb as u32 | u32::from(plan.in_place) << 8 | (plan.order as u32) << 9;
    let parts = [what, root, bytes as u32, (bytes >> 32) as u32, plan.kind];
    parts.into_iter().fold(0x811c_9dc5, |sum: u32, part| (sum ^ part).wrapping_mul(0x0100_0193).rotate_left(13))
}

#[cfg(all(test, not(loom)))]
mod tests;
