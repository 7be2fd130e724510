//! The collectives as schedules: for every rank and round, the items to write before it publishes its slot, and the
//! items to read afterwards. Pure functions of the plan, in any order; [`Flags`](crate::slot_collectives::Flags)
//! executes them.

mod allgather;
mod allreduce;
mod alltoall;
mod barrier;
mod broadcast;
mod fold;
mod gather;
mod reduce;
mod reduce_scatter;
mod scan;
mod scatter;

use core::num::NonZero;

use unisono_core::collective::{Order, Piece, Place, Plan, Verb};
use unisono_core::ids::Rank;

use crate::collective_area::{Boards, Seats};
use crate::slot_collectives::data_op::Wish;
use crate::slot_collectives::selection::{self, Way};

/// One item: optionally wait for the slot that a rank publishes in a round, then optionally a data operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Item {
    pub(crate) look: Option<(u32, u32)>,
    pub(crate) wish: Option<Wish>,
}

impl Item {
    const NOTHING: Self = Self { look: None, wish: None };

    const fn wish(wish: Wish) -> Self {
        Self { look: None, wish: Some(wish) }
    }

    const fn copy(from: Piece, into: Piece) -> Self {
        Self::wish(Wish::Copy { from, into })
    }

    const fn after(self, of: u32, lap: u32) -> Self {
        Self { look: Some((of, lap)), wish: self.wish }
    }
}

/// Whether a collective is compiled in: all with the feature `collectives`.
#[inline(always)]
pub(crate) const fn offers(verb: Verb) -> bool {
    cfg!(feature = "collectives") || matches!(verb, Verb::Barrier | Verb::Broadcast | Verb::Allgather | Verb::Allreduce)
}

/// The schedule of one collective on one rank. Round l is the group's step `base` + l.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Course {
    verb: Verb,
    way: Way,
    rank: u32,
    size: u32,
    root: u32,
    /// Bytes of a block.
    bytes: usize,
    grain: usize,
    order: Order,
    /// Whether input and output are separate buffers.
    apart: bool,
    /// Bytes of each block per round.
    part: usize,
    laps: u32,
    /// Rounds in which payload is only published; in the last one everything is read. 0: it is read in the round in
    /// which it is published.
    showing: u32,
    /// Whether payload fits in the slot itself.
    inline: bool,
    /// Whether payload that does not fit is in the first chunk, not in that of the slot: only of a broadcast.
    is_first: bool,
    base: u32,
    boards: Boards,
}

impl Course {
    /// A schedule without rounds.
    pub(crate) const EMPTY: Self = Self {
        verb: Verb::Barrier,
        way: Way::Flat,
        rank: 0,
        size: 1,
        root: 0,
        bytes: 0,
        grain: 1,
        order: Order::Any,
        apart: true,
        part: 1,
        laps: 0,
        showing: 0,
        inline: false,
        is_first: false,
        base: 0,
        boards: Boards {
            ranks: 1,
            seats: Seats::ALL,
            at: 0,
            stride: 0,
            line: 0,
            slots: 4,
            inline: 16,
            bulk: 0,
            chunk: 0,
            crowded: false,
        },
    };

    /// The schedule of a plan; its rounds begin with step 0.
    pub(crate) fn new(plan: &Plan, way: Way, boards: &Boards) -> Self {
        let &Plan { verb, rank: Rank(rank), root: Rank(root), bytes, grain, order, .. } = plan;
        let (size, grain) = (boards.ranks, grain.max(1));
        let (apart, boards) = (!plan.in_place, *boards);
        let mut course = Self { verb, way, rank, size, root, bytes, grain, order, apart, boards, ..Self::EMPTY };
        (course.inline, course.part, course.laps) = course.cut();
        if course.shows_first() {
            course.showing = course.laps;
            course.laps += 1;
        }
        course
    }

    /// The collective, if it is compiled in; else a barrier.
    #[inline(always)]
    const fn verb(&self) -> Verb {
        if offers(self.verb) { self.verb } else { Verb::Barrier }
    }

    /// The algorithm, likewise.
    #[inline(always)]
    const fn way(&self) -> Way {
        match self.way {
            Way::Pull if !cfg!(feature = "collectives") => Way::Flat,
            Way::Elsewhere if !cfg!(feature = "std") => Way::Flat,
            way => way,
        }
    }

    /// Whether the data are moved by other means.
    #[inline(always)]
    pub(crate) fn is_elsewhere(&self) -> bool {
        cfg!(feature = "std") && self.way == Way::Elsewhere
    }

    /// Whether it is a broadcast of one round through slots, among several ranks.
    #[cfg(feature = "std")]
    pub(crate) fn is_short_broadcast(&self) -> bool {
        self.verb == Verb::Broadcast && self.way() == Way::Flat && self.laps == 1 && self.size > 1
    }

    /// Makes round 0 this step.
    pub(crate) const fn begin(&mut self, base: u32) {
        (self.base, self.is_first) = (base, false);
    }

    /// Whether the payload is inline, bytes of a block per round, rounds.
    fn cut(&self) -> (bool, usize, u32) {
        if self.verb() == Verb::Barrier || self.is_elsewhere() {
            return (true, 1, u32::from(self.size > 1));
        }
        if self.bytes == 0 {
            return (true, 1, 0);
        }
        if self.size == 1 {
            return (true, self.bytes, 1);
        }
        let blocks = match self.verb() {
            Verb::Scatter | Verb::Alltoall | Verb::ReduceScatter => self.size as usize,
            _ => 1,
        };
        let shown = if self.verb() == Verb::Alltoall && !self.shows_own_block() { blocks - 1 } else { blocks };
        let grain = if self.verb().combines() { self.grain } else { 1 };
        let laps = |part: usize| u32::try_from(self.bytes.div_ceil(part.max(1))).unwrap_or(u32::MAX);
        match self.way() {
            Way::Pull if self.is_exchange() => (true, self.bytes, 2),
            Way::Pull => (true, self.bytes, 1),
            Way::Parallel => {
                let part = whole(self.boards.chunk, grain);
                (false, part, laps(part).saturating_mul(2))
            }
            Way::Flat if self.bytes.saturating_mul(blocks) <= self.boards.inline => (true, self.bytes, 1),
            Way::Flat if self.verb() == Verb::ReduceScatter => {
                let part = whole(self.boards.chunk, grain);
                (false, part, laps(part).saturating_mul(self.size))
            }
            Way::Flat if self.verb() == Verb::Broadcast => {
                let part = selection::broadcast_part(self.bytes, &self.boards).min(self.bytes);
                (false, part, laps(part))
            }
            Way::Flat | Way::Elsewhere => {
                let part = whole(self.boards.chunk / shown.max(1), grain).min(self.bytes);
                (false, part, laps(part))
            }
        }
    }

    /// Whether a rank publishes all its payload before it reads any: when oversubscribed, the first rank then need not
    /// be scheduled again for every round.
    fn shows_first(&self) -> bool {
        let everyones = matches!(self.verb(), Verb::Allgather | Verb::Alltoall) && self.way() == Way::Flat;
        cfg!(feature = "std") && everyones && self.boards.crowded && (2..self.boards.slots).contains(&self.laps)
    }

    /// Rounds in which payload is only published, if there are any.
    const fn showing(&self) -> Option<NonZero<u32>> {
        if cfg!(feature = "std") { NonZero::new(self.showing) } else { None }
    }

    /// Number of rounds.
    pub(crate) const fn laps(&self) -> u32 {
        self.laps
    }

    /// The peers, as bits, from which a rank pulls in any order within a round: when oversubscribed, a rank that waits
    /// for one peer would keep the others waiting. 0: everything is read in order.
    pub(crate) fn in_any_order(&self) -> u64 {
        let lent = self.way() == Way::Pull && self.verb() == Verb::Alltoall && self.boards.crowded;
        if cfg!(feature = "std") && lent && (2..=u64::BITS).contains(&self.size) {
            u64::MAX >> (u64::BITS - self.size)
        } else {
            0
        }
    }

    /// Whether a rank confirms each pull to the buffer's owner: when oversubscribed, a rank finishes the whole step
    /// much later.
    pub(crate) fn is_given_back_singly(&self) -> bool {
        self.in_any_order() != 0 && self.boards.has_taken()
    }

    /// Whether this rank publishes its slot in a round.
    pub(crate) fn shows(&self, lap: u32) -> bool {
        self.size > 1
            && self.showing().is_none_or(|showing| lap < showing.get())
            && match self.verb() {
                _ if self.is_elsewhere() => true,
                Verb::Broadcast | Verb::Scatter => self.rank == self.root,
                Verb::Gather => self.rank != self.root,
                Verb::Reduce => self.is_shown_to_root(),
                _ => true,
            }
    }

    /// Whether this rank has finished with all slots up to this round when the round ends.
    pub(crate) fn releases(&self, lap: u32) -> bool {
        match self.showing() {
            Some(showing) => lap == showing.get(),
            None => !self.is_exchange() || lap % 2 == 1,
        }
    }

    /// Whether two rounds make one exchange: contributions, then shares that are combined.
    fn is_exchange(&self) -> bool {
        match self.way() {
            Way::Parallel => true,
            Way::Pull => self.verb() == Verb::Allreduce && !self.is_whole(),
            Way::Flat | Way::Elsewhere => false,
        }
    }

    /// Whether every rank combines everything instead of its share. Only for two ranks with separate inputs and
    /// outputs.
    const fn is_whole(&self) -> bool {
        self.size == 2 && self.apart
    }

    /// Whether ranks read from each other's buffers.
    pub(crate) fn pulls(&self) -> bool {
        self.way() == Way::Pull
    }

    /// Whether others read from this rank's buffers, so that it must wait until they have.
    pub(crate) fn lends(&self) -> bool {
        self.way() == Way::Pull && self.shows(0)
    }

    /// Item `item` to write before this rank publishes its slot.
    pub(crate) fn make(&self, lap: u32, item: u32) -> Option<Item> {
        if !self.shows(lap) || self.is_elsewhere() {
            return None;
        }
        if self.way() == Way::Pull {
            let lend = Item::wish(Wish::Lend { at: self.boards.payload(self.rank, self.base) });
            return (lap == 0 && item == 0).then_some(lend);
        }
        match self.verb() {
            Verb::Barrier => None,
            Verb::Scatter => self.make_scatter(lap, item),
            Verb::Alltoall => self.make_alltoall(lap, item),
            Verb::ReduceScatter => self.make_reduce_scatter(lap, item),
            Verb::Allreduce | Verb::Reduce if self.way() == Way::Parallel => self.make_exchange(lap, item),
            _ => {
                let (at, bytes) = self.span(lap);
                (item == 0).then(|| Item::copy(input(at, bytes), self.slot(self.rank, lap, 0, bytes)))
            }
        }
    }

    /// Item `item` to read after this rank has published its slot.
    pub(crate) fn take(&self, lap: u32, item: u32) -> Option<Item> {
        if self.is_elsewhere() {
            return None;
        }
        if self.size == 1 {
            let whole = Item::copy(input(0, self.bytes), output(0, self.bytes));
            let moves = !matches!(self.verb(), Verb::Barrier | Verb::Broadcast | Verb::Exscan);
            return (item == 0 && moves).then_some(whole);
        }
        let (lap, item) = match self.showing() {
            None => (lap, item),
            Some(showing) if lap < showing.get() => return None,
            Some(showing) => (item % showing, item / showing),
        };
        match self.verb() {
            Verb::Barrier => self.take_barrier(lap, item),
            Verb::Broadcast => self.take_broadcast(lap, item),
            Verb::Gather => self.take_gather(lap, item),
            Verb::Scatter => self.take_scatter(lap, item),
            Verb::Allgather => self.take_allgather(lap, item),
            Verb::Alltoall => self.take_alltoall(lap, item),
            Verb::Reduce => self.take_reduce(lap, item),
            Verb::Allreduce => self.take_allreduce(lap, item),
            Verb::ReduceScatter => self.take_reduce_scatter(lap, item),
            Verb::Scan | Verb::Exscan => self.take_scan(lap, item),
        }
    }

    /// The bytes of each block in a round: offset and length.
    fn span(&self, lap: u32) -> (usize, usize) {
        let at = (lap as usize).saturating_mul(self.part).min(self.bytes);
        (at, self.part.min(self.bytes - at))
    }

    /// Ranks, at least one: a divisor that lets no microcontroller panic.
    const fn divisor(&self) -> u32 {
        if self.size == 0 { 1 } else { self.size }
    }

    /// A piece of the payload that a rank publishes in a round.
    pub(crate) fn slot(&self, of: u32, lap: u32, at: usize, bytes: usize) -> Piece {
        let start = self.payload(of, self.base.wrapping_add(lap));
        Piece::new(Place::Shared, start + at, bytes)
    }

    /// Offset of the payload that a rank publishes in a step.
    #[inline(always)]
    fn payload(&self, of: u32, step: u32) -> usize {
        match self.inline {
            true => self.boards.payload(of, step),
            false if self.is_first => self.boards.first_chunk(of),
            false => self.boards.bulk(of, step),
        }
    }

    /// Bytes of a block.
    #[cfg(feature = "std")]
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it is a broadcast through one chunk.
    pub(crate) fn has_one_chunk(&self) -> bool {
        self.verb == Verb::Broadcast && self.laps == 1 && !self.inline
    }

    /// Whether the payload is in the first chunk, whatever the slot.
    #[inline(always)]
    pub(crate) const fn is_first(&self) -> bool {
        self.is_first
    }

    /// Sets whether it is, as this rank chooses or the root's signature states.
    #[inline(always)]
    pub(crate) const fn set_first(&mut self, is_first: bool) {
        self.is_first = is_first;
    }

    /// The rank `count` after this one, round the group.
    const fn after(&self, count: u32) -> u32 {
        let rank = self.rank + count;
        if rank >= self.size { rank - self.size } else { rank }
    }

    /// A copy from another rank's exposed buffers.
    fn pull(&self, of: u32, place: Place, offset: usize, into: Piece) -> Item {
        let at = self.boards.payload(of, self.base);
        Item::wish(Wish::Pull { of: Rank(of), at, place, offset, into })
    }
}

pub(crate) const fn input(offset: usize, bytes: usize) -> Piece {
    Piece::new(Place::Input, offset, bytes)
}

pub(crate) const fn output(offset: usize, bytes: usize) -> Piece {
    Piece::new(Place::Output, offset, bytes)
}

/// The largest multiple of `grain` in `bytes`, at least one grain.
fn whole(bytes: usize, grain: usize) -> usize {
    let grain = grain.max(1);
    (bytes / grain).max(1) * grain
}
