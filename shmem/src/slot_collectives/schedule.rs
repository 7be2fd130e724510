//! The collectives as schedules: for every rank and round, the items to write before it publishes its slot, and the
//! items to read afterwards. Pure functions of the plan, in any order;
//! [`SlotCollectives`](crate::slot_collectives::SlotCollectives) executes them.

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

use unisono_core::collective::{CollectiveKind, CollectiveSpec, Order, Piece, Place};
use unisono_core::ids::Rank;

use crate::collective_area::{CollectiveAreas, Members};
use crate::slot_collectives::data_op::DataOp;
use crate::slot_collectives::selection::{self, SlotAlgorithm};

/// One item: optionally wait for the slot that a rank publishes in a round, then optionally a data operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Item {
    pub(crate) wait_for: Option<(u32, u32)>,
    pub(crate) op: Option<DataOp>,
}

impl Item {
    const NOTHING: Self = Self { wait_for: None, op: None };

    const fn op(op: DataOp) -> Self {
        Self { wait_for: None, op: Some(op) }
    }

    const fn copy(from: Piece, into: Piece) -> Self {
        Self::op(DataOp::Copy { from, into })
    }

    const fn after(self, of: u32, round: u32) -> Self {
        Self { wait_for: Some((of, round)), op: self.op }
    }
}

/// Whether a collective is compiled in: all with the feature `collectives`.
#[inline(always)]
pub(crate) const fn offers(verb: CollectiveKind) -> bool {
    cfg!(feature = "collectives")
        || matches!(
            verb,
            CollectiveKind::Barrier | CollectiveKind::Broadcast | CollectiveKind::Allgather | CollectiveKind::Allreduce
        )
}

/// The schedule of one collective on one rank. Round l is the group's step `base` + l.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlotSchedule {
    verb: CollectiveKind,
    algorithm: SlotAlgorithm,
    rank: u32,
    size: u32,
    root: u32,
    /// Bytes of a block.
    bytes: usize,
    /// Bytes of the vector whose parts the blocks are: the last ones may be shorter, or empty.
    #[cfg(feature = "std")]
    vector: Option<usize>,
    grain: usize,
    order: Order,
    /// Whether input and output are separate buffers.
    out_of_place: bool,
    /// Bytes of each block per round.
    round_bytes: usize,
    rounds: u32,
    /// Rounds in which payload is only published; in the last one everything is read. 0: it is read in the round in
    /// which it is published.
    publish_rounds: u32,
    /// Whether payload fits in the slot itself.
    inline: bool,
    /// Whether payload that does not fit is in the first chunk, not in that of the slot: only of a broadcast.
    is_first: bool,
    base: u32,
    areas: CollectiveAreas,
}

impl SlotSchedule {
    /// A schedule without rounds.
    pub(crate) const EMPTY: Self = Self {
        verb: CollectiveKind::Barrier,
        algorithm: SlotAlgorithm::Flat,
        rank: 0,
        size: 1,
        root: 0,
        bytes: 0,
        #[cfg(feature = "std")]
        vector: None,
        grain: 1,
        order: Order::Any,
        out_of_place: true,
        round_bytes: 1,
        rounds: 0,
        publish_rounds: 0,
        inline: false,
        is_first: false,
        base: 0,
        areas: CollectiveAreas {
            ranks: 1,
            members: Members::ALL,
            offset: 0,
            stride: 0,
            line: 0,
            slots: 4,
            inline: 16,
            bulk: 0,
            chunk: 0,
            oversubscribed: false,
        },
    };

    /// The schedule of a plan; its rounds begin with step 0.
    #[cfg(not(feature = "std"))]
    pub(crate) fn new(plan: &CollectiveSpec, way: SlotAlgorithm, areas: &CollectiveAreas) -> Self {
        Self::EMPTY.planned(plan, way, areas)
    }

    /// The schedule of a plan; its rounds begin with step 0. `vector`: its blocks are the parts of that many bytes.
    #[cfg(feature = "std")]
    pub(crate) fn new(
        plan: &CollectiveSpec,
        way: SlotAlgorithm,
        areas: &CollectiveAreas,
        vector: Option<usize>,
    ) -> Self {
        Self { vector, ..Self::EMPTY }.planned(plan, way, areas)
    }

    #[inline(always)]
    fn planned(self, plan: &CollectiveSpec, way: SlotAlgorithm, areas: &CollectiveAreas) -> Self {
        let &CollectiveSpec { collective: verb, rank: Rank(rank), root: Rank(root), bytes, grain, order, .. } = plan;
        let (size, grain) = (areas.ranks, grain.max(1));
        let (apart, areas) = (!plan.in_place, *areas);
        let mut course =
            Self { verb, algorithm: way, rank, size, root, bytes, grain, order, out_of_place: apart, areas, ..self };
        (course.inline, course.round_bytes, course.rounds) = course.partition();
        if course.publishes_all_first() {
            course.publish_rounds = course.rounds;
            course.rounds += 1;
        }
        course
    }

    /// The collective, if it is compiled in; else a barrier.
    #[inline(always)]
    const fn verb(&self) -> CollectiveKind {
        if offers(self.verb) { self.verb } else { CollectiveKind::Barrier }
    }

    /// The algorithm, likewise.
    #[inline(always)]
    const fn algorithm(&self) -> SlotAlgorithm {
        match self.algorithm {
            SlotAlgorithm::Pull if !cfg!(feature = "collectives") => SlotAlgorithm::Flat,
            SlotAlgorithm::External if !cfg!(feature = "std") => SlotAlgorithm::Flat,
            way => way,
        }
    }

    /// Whether the data are moved by other means.
    #[inline(always)]
    pub(crate) fn is_external(&self) -> bool {
        cfg!(feature = "std") && self.algorithm == SlotAlgorithm::External
    }

    /// Whether it is a broadcast of one round through slots, among several ranks.
    #[cfg(feature = "std")]
    pub(crate) fn is_short_broadcast(&self) -> bool {
        self.verb == CollectiveKind::Broadcast
            && self.algorithm() == SlotAlgorithm::Flat
            && self.rounds == 1
            && self.size > 1
    }

    /// Makes round 0 this step.
    pub(crate) const fn begin(&mut self, base: u32) {
        (self.base, self.is_first) = (base, false);
    }

    /// Whether the payload is inline, bytes of a block per round, rounds.
    fn partition(&self) -> (bool, usize, u32) {
        if self.verb() == CollectiveKind::Barrier || self.is_external() {
            return (true, 1, u32::from(self.size > 1));
        }
        if self.bytes == 0 {
            return (true, 1, 0);
        }
        if self.size == 1 {
            return (true, self.bytes, 1);
        }
        let blocks = match self.verb() {
            CollectiveKind::Scatter | CollectiveKind::Alltoall | CollectiveKind::ReduceScatter => self.size as usize,
            _ => 1,
        };
        let shown =
            if self.verb() == CollectiveKind::Alltoall && !self.publishes_own_block() { blocks - 1 } else { blocks };
        let grain = if self.verb().combines() { self.grain } else { 1 };
        let rounds = |part: usize| u32::try_from(self.bytes.div_ceil(part.max(1))).unwrap_or(u32::MAX);
        match self.algorithm() {
            SlotAlgorithm::Pull if self.is_exchange() => (true, self.bytes, 2),
            SlotAlgorithm::Pull => (true, self.bytes, 1),
            SlotAlgorithm::Parallel => {
                let part = whole_elements(self.areas.chunk, grain);
                (false, part, rounds(part).saturating_mul(2))
            }
            SlotAlgorithm::Flat if self.bytes.saturating_mul(blocks) <= self.areas.inline => (true, self.bytes, 1),
            SlotAlgorithm::Flat
                if self.verb() == CollectiveKind::ReduceScatter && self.all_bytes() <= self.areas.chunk =>
            {
                (false, self.bytes, 1)
            }
            SlotAlgorithm::Flat if self.verb() == CollectiveKind::ReduceScatter => {
                let part = whole_elements(self.areas.chunk, grain);
                (false, part, rounds(part).saturating_mul(self.size))
            }
            SlotAlgorithm::Flat if self.verb() == CollectiveKind::Broadcast => {
                let part = selection::broadcast_round_bytes(self.bytes, &self.areas).min(self.bytes);
                (false, part, rounds(part))
            }
            SlotAlgorithm::Flat | SlotAlgorithm::External => {
                let part = whole_elements(self.areas.chunk / shown.max(1), grain).min(self.bytes);
                (false, part, rounds(part))
            }
        }
    }

    /// Whether a rank publishes all its payload before it reads any: when oversubscribed, the first rank then need not
    /// be scheduled again for every round.
    fn publishes_all_first(&self) -> bool {
        let everyones = matches!(self.verb(), CollectiveKind::Allgather | CollectiveKind::Alltoall)
            && self.algorithm() == SlotAlgorithm::Flat;
        cfg!(feature = "std") && everyones && self.areas.oversubscribed && (2..self.areas.slots).contains(&self.rounds)
    }

    /// Rounds in which payload is only published, if there are any.
    const fn publish_rounds(&self) -> Option<NonZero<u32>> {
        if cfg!(feature = "std") { NonZero::new(self.publish_rounds) } else { None }
    }

    /// Number of rounds.
    pub(crate) const fn rounds(&self) -> u32 {
        self.rounds
    }

    /// The peers, as bits, from which a rank pulls in any order within a round: when oversubscribed, a rank that waits
    /// for one peer would keep the others waiting. 0: everything is read in order.
    pub(crate) fn in_any_order(&self) -> u64 {
        let exposes = self.algorithm() == SlotAlgorithm::Pull
            && self.verb() == CollectiveKind::Alltoall
            && self.areas.oversubscribed;
        if cfg!(feature = "std") && exposes && (2..=u64::BITS).contains(&self.size) {
            u64::MAX >> (u64::BITS - self.size)
        } else {
            0
        }
    }

    /// Whether a rank confirms each pull to the buffer's owner: when oversubscribed, a rank finishes the whole step
    /// much later.
    pub(crate) fn is_returned_per_peer(&self) -> bool {
        self.in_any_order() != 0 && self.areas.has_pull_words()
    }

    /// Whether this rank publishes its slot in a round.
    pub(crate) fn publishes(&self, round: u32) -> bool {
        self.size > 1
            && self.publish_rounds().is_none_or(|showing| round < showing.get())
            && match self.verb() {
                _ if self.is_external() => true,
                CollectiveKind::Broadcast | CollectiveKind::Scatter => self.rank == self.root,
                CollectiveKind::Gather => self.rank != self.root,
                CollectiveKind::Reduce => self.is_published_to_root(),
                _ => true,
            }
    }

    /// Whether this rank has finished with all slots up to this round when the round ends.
    pub(crate) fn releases(&self, round: u32) -> bool {
        match self.publish_rounds() {
            Some(showing) => round == showing.get(),
            None => !self.is_exchange() || round % 2 == 1,
        }
    }

    /// Whether two rounds make one exchange: contributions, then shares that are combined.
    fn is_exchange(&self) -> bool {
        match self.algorithm() {
            SlotAlgorithm::Parallel => true,
            SlotAlgorithm::Pull => self.verb() == CollectiveKind::Allreduce && !self.is_whole(),
            SlotAlgorithm::Flat | SlotAlgorithm::External => false,
        }
    }

    /// Whether every rank combines everything instead of its share. Only for two ranks with separate inputs and
    /// outputs.
    const fn is_whole(&self) -> bool {
        self.size == 2 && self.out_of_place
    }

    /// Whether ranks read from each other's buffers.
    pub(crate) fn pulls(&self) -> bool {
        self.algorithm() == SlotAlgorithm::Pull
    }

    /// Whether others read from this rank's buffers, so that it must wait until they have.
    pub(crate) fn exposes(&self) -> bool {
        self.algorithm() == SlotAlgorithm::Pull && self.publishes(0)
    }

    /// Item `item` to write before this rank publishes its slot.
    pub(crate) fn write_item(&self, round: u32, item: u32) -> Option<Item> {
        if !self.publishes(round) || self.is_external() {
            return None;
        }
        if self.algorithm() == SlotAlgorithm::Pull {
            let expose = Item::op(DataOp::Expose { at: self.areas.payload(self.rank, self.base) });
            return (round == 0 && item == 0).then_some(expose);
        }
        match self.verb() {
            CollectiveKind::Barrier => None,
            CollectiveKind::Scatter => self.write_scatter(round, item),
            CollectiveKind::Alltoall => self.write_alltoall(round, item),
            CollectiveKind::ReduceScatter => self.write_reduce_scatter(round, item),
            CollectiveKind::Allreduce | CollectiveKind::Reduce if self.algorithm() == SlotAlgorithm::Parallel => {
                self.write_exchange(round, item)
            }
            _ => {
                let (at, bytes) = self.block_span(self.rank, round);
                (item == 0).then(|| Item::copy(input(at, bytes), self.slot(self.rank, round, 0, bytes)))
            }
        }
    }

    /// Item `item` to read after this rank has published its slot.
    pub(crate) fn read_item(&self, round: u32, item: u32) -> Option<Item> {
        if self.is_external() {
            return None;
        }
        if self.size == 1 {
            let whole = Item::copy(input(0, self.bytes), output(0, self.bytes));
            let moves =
                !matches!(self.verb(), CollectiveKind::Barrier | CollectiveKind::Broadcast | CollectiveKind::Exscan);
            return (item == 0 && moves).then_some(whole);
        }
        let (round, item) = match self.publish_rounds() {
            None => (round, item),
            Some(showing) if round < showing.get() => return None,
            Some(showing) => (item % showing, item / showing),
        };
        match self.verb() {
            CollectiveKind::Barrier => self.read_barrier(round, item),
            CollectiveKind::Broadcast => self.read_broadcast(round, item),
            CollectiveKind::Gather => self.read_gather(round, item),
            CollectiveKind::Scatter => self.read_scatter(round, item),
            CollectiveKind::Allgather => self.read_allgather(round, item),
            CollectiveKind::Alltoall => self.read_alltoall(round, item),
            CollectiveKind::Reduce => self.read_reduce(round, item),
            CollectiveKind::Allreduce => self.read_allreduce(round, item),
            CollectiveKind::ReduceScatter => self.read_reduce_scatter(round, item),
            CollectiveKind::Scan | CollectiveKind::Exscan => self.read_scan(round, item),
        }
    }

    /// The bytes of each block in a round: offset and length.
    fn round_span(&self, round: u32) -> (usize, usize) {
        self.span_of(self.bytes, round)
    }

    /// The same of the block of one rank, where a gather, scatter, allgather or reduce-scatter may have parts of a vector.
    #[inline(always)]
    fn block_span(&self, of: u32, round: u32) -> (usize, usize) {
        self.span_of(self.block_bytes(of), round)
    }

    fn span_of(&self, bytes: usize, round: u32) -> (usize, usize) {
        let at = (round as usize).saturating_mul(self.round_bytes).min(bytes);
        (at, self.round_bytes.min(bytes - at))
    }

    /// Bytes of the block of a rank.
    #[inline(always)]
    fn block_bytes(&self, of: u32) -> usize {
        let left = |vector: usize| vector.saturating_sub((of as usize).saturating_mul(self.bytes));
        self.vector().map_or(self.bytes, |vector| left(vector).min(self.bytes))
    }

    /// Bytes of all blocks.
    fn all_bytes(&self) -> usize {
        let all = self.bytes.saturating_mul(self.size as usize);
        self.vector().map_or(all, |vector| vector.min(all))
    }

    /// Bytes of the vector, if the blocks are parts of one.
    #[inline(always)]
    const fn vector(&self) -> Option<usize> {
        #[cfg(feature = "std")]
        if matches!(
            self.verb,
            CollectiveKind::Gather
                | CollectiveKind::Scatter
                | CollectiveKind::Allgather
                | CollectiveKind::ReduceScatter
        ) {
            return self.vector;
        }
        None
    }

    /// A copy of some of a block; nothing of an empty part, which begins behind the vector's end.
    #[inline(always)]
    const fn copy_block(&self, from: Piece, into: Piece) -> Item {
        if self.vector().is_some() && from.bytes == 0 { Item::NOTHING } else { Item::copy(from, into) }
    }

    /// Ranks, at least one: a divisor that lets no microcontroller panic.
    const fn divisor(&self) -> u32 {
        if self.size == 0 { 1 } else { self.size }
    }

    /// A piece of the payload that a rank publishes in a round.
    pub(crate) fn slot(&self, of: u32, round: u32, at: usize, bytes: usize) -> Piece {
        let start = self.payload(of, self.base.wrapping_add(round));
        Piece::new(Place::Shared, start + at, bytes)
    }

    /// Offset of the payload that a rank publishes in a step.
    #[inline(always)]
    fn payload(&self, of: u32, step: u32) -> usize {
        match self.inline {
            true => self.areas.payload(of, step),
            false if self.is_first => self.areas.first_chunk(of),
            false => self.areas.bulk(of, step),
        }
    }

    /// Bytes of a block.
    #[cfg(feature = "std")]
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it is a broadcast through one chunk.
    pub(crate) fn has_one_chunk(&self) -> bool {
        self.verb == CollectiveKind::Broadcast && self.rounds == 1 && !self.inline
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
        let at = self.areas.payload(of, self.base);
        Item::op(DataOp::Pull { of: Rank(of), at, place, offset, into })
    }
}

pub(crate) const fn input(offset: usize, bytes: usize) -> Piece {
    Piece::new(Place::Input, offset, bytes)
}

pub(crate) const fn output(offset: usize, bytes: usize) -> Piece {
    Piece::new(Place::Output, offset, bytes)
}

/// The largest multiple of `grain` in `bytes`, at least one grain.
fn whole_elements(bytes: usize, grain: usize) -> usize {
    let grain = grain.max(1);
    (bytes / grain).max(1) * grain
}
