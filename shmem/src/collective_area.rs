//! A rank's collective area: the words, slots and chunks that it publishes to all other ranks of its group.
//!
//! ```text
//! 0          its barrier phase, and the line that the phase moves to; in a communicator slot also two
//!            generations: retired, freed
//! 1 × line   count of steps it has finished: it no longer reads the others' slots of those
//! 2 × line   slots: stamp, signature, inline payload; the slot of step s is s mod slots
//!            oversubscribed: for each peer the last step in which this rank pulled a buffer that the peer exposed;
//!            otherwise lines that the phase may move to
//! page       bulk: a chunk for every slot; a broadcast with a complemented signature uses the first chunk
//! ```
//!
//! The group of all ranks of the node has areas of its own. Every other group uses a *communicator slot*: a smaller
//! area for every rank, of which the group's members use the same number. Two generation counters per rank, which only
//! grow, record which groups a rank has left.

use crate::layout::{PAGE, RANKS_MAX, SegmentLayout, WaitMode};
use crate::segment::{STRIDE, Segment, Site, Word};

/// Bytes of a slot before its payload: the stamp, which is the step's number plus one, and the signature of the
/// collective.
pub const SLOT_HEADER: usize = 8;
/// Steps by which a rank may run ahead of the slowest.
pub const SLOTS: u32 = 16;

/// The ranks of the node that belong to a group, in the group's order: all of them, or a subset.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Members {
    #[cfg(feature = "std")]
    subset: Option<(u32, [u8; RANKS_MAX as usize])>,
}

impl Members {
    /// All ranks of the node, in their order.
    pub const ALL: Self = Self {
        #[cfg(feature = "std")]
        subset: None,
    };

    /// These ranks of a node of `node` ranks. `None`: the list is empty or too long, or a rank is not of this node.
    #[cfg(feature = "std")]
    pub fn of(node: u32, ranks: &[u32]) -> Option<Self> {
        let mut numbers = [0; RANKS_MAX as usize];
        let known = |rank: &u32| u8::try_from(*rank).ok().filter(|_| *rank < node);
        for (number, rank) in numbers.get_mut(..ranks.len())?.iter_mut().zip(ranks) {
            *number = known(rank)?;
        }
        (!ranks.is_empty()).then_some(Self { subset: Some((ranks.len() as u32, numbers)) })
    }

    /// The node's rank of a member of the group. A group of all ranks has no end.
    #[inline(always)]
    pub fn get(&self, member: u32) -> Option<u32> {
        #[cfg(feature = "std")]
        if let Some((count, numbers)) = &self.subset {
            return numbers.get(member as usize).filter(|_| member < *count).map(|number| u32::from(*number));
        }
        Some(member)
    }

    /// One more than the highest node rank among the first `members` members.
    fn end(&self, members: u32) -> u32 {
        #[cfg(feature = "std")]
        if let Some((_, numbers)) = &self.subset {
            let last = numbers.iter().take(members as usize).max();
            return last.map_or(0, |last| u32::from(*last) + 1);
        }
        members
    }
}

impl core::fmt::Debug for Members {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        #[cfg(feature = "std")]
        if let Some((count, numbers)) = &self.subset {
            return to.debug_list().entries(numbers.iter().take(*count as usize)).finish();
        }
        to.write_str("all")
    }
}

/// Geometry of a group's collective areas.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CollectiveAreas {
    /// Ranks of the group.
    pub ranks: u32,
    /// Which ranks of the node they are.
    pub members: Members,
    /// Offset of the area of the node's rank 0.
    pub offset: usize,
    /// Bytes of each area.
    pub stride: usize,
    /// Bytes between words that different ranks write.
    pub line: usize,
    /// Slots of each area, a power of two.
    pub slots: u32,
    /// Bytes of a slot's payload, at least 16.
    pub inline: usize,
    /// Bytes before the first chunk of bulk.
    pub bulk: usize,
    /// Bytes of a chunk.
    pub chunk: usize,
    /// Whether ranks outnumber cores.
    pub oversubscribed: bool,
}

impl CollectiveAreas {
    /// The areas of all ranks of a layout.
    pub fn of(layout: &SegmentLayout) -> Self {
        let at = layout.collective_area(0).map_or(0, |area| area.offset);
        Self::from(layout, at, layout.sizes().collective_area as usize)
    }

    /// Those of these node ranks, in the order of their group. `None`: there is no such rank.
    #[cfg(feature = "std")]
    pub fn of_ranks(layout: &SegmentLayout, ranks: &[u32]) -> Option<Self> {
        let members = Members::of(layout.sizes().ranks, ranks)?;
        Some(Self { ranks: u32::try_from(ranks.len()).ok()?, members, ..Self::of(layout) })
    }

    /// The areas of these node ranks in a communicator slot, in the order of their group. `None`: there is no such slot
    /// or rank.
    #[cfg(feature = "std")]
    pub fn in_communicator_slot(layout: &SegmentLayout, room: u32, ranks: &[u32]) -> Option<Self> {
        let (area, members) = (layout.communicator_slot(room)?, Members::of(layout.sizes().ranks, ranks)?);
        let all = Self::from(layout, area.offset, layout.sizes().communicator_slot as usize);
        Some(Self { ranks: u32::try_from(ranks.len()).ok()?, members, ..all })
    }

    fn from(layout: &SegmentLayout, offset: usize, stride: usize) -> Self {
        let line = STRIDE;
        // An odd number of strides: the slots of one step spread over a cache's sets.
        let slot = STRIDE * if stride >= 1 << 18 { 9 } else { 1 };
        let bulk = (2 * line + SLOTS as usize * slot).next_multiple_of(PAGE).min(stride);
        let chunk = (stride - bulk) / SLOTS as usize / STRIDE * STRIDE;
        let (ranks, oversubscribed) = (layout.sizes().ranks, layout.sizes().waiting == WaitMode::Oversubscribed);
        let (members, inline) = (Members::ALL, slot - SLOT_HEADER);
        Self { ranks, members, offset, stride, line, slots: SLOTS, inline, bulk, chunk, oversubscribed }
    }

    /// Offset of a rank's area; beyond all areas if there is no such rank.
    fn area(&self, rank: u32) -> usize {
        self.offset + self.members.get(rank).unwrap_or(RANKS_MAX) as usize * self.stride
    }

    /// Offset of a rank's barrier phase.
    pub fn phase(&self, rank: u32) -> usize {
        self.area(rank)
    }

    /// Cache lines on which a rank's phase may be.
    pub const fn phase_lines(&self) -> u32 {
        1 + (self.bulk.saturating_sub(self.slots_end()) / STRIDE) as u32
    }

    /// Offset of a rank's phase on one of these lines; 0 is the initial one.
    pub fn phase_on_line(&self, rank: u32, line: u32) -> usize {
        match line.checked_sub(1) {
            None => self.phase(rank),
            Some(behind) => self.area(rank) + self.slots_end() + behind as usize * STRIDE,
        }
    }

    /// Offset of the word with the number of the line that a rank's phase moves to, plus one; 0: not announced.
    pub fn next_phase_line(&self, rank: u32) -> usize {
        self.area(rank) + 4
    }

    /// Offset of the generation of the last group of this communicator slot in whose collectives a rank no longer takes
    /// part.
    pub fn retired(&self, rank: u32) -> usize {
        self.area(rank) + 8
    }

    /// Offset of the generation of the last group of this communicator slot that a rank has freed.
    pub fn freed(&self, rank: u32) -> usize {
        self.area(rank) + 12
    }

    /// Bytes of a slot.
    pub const fn slot_bytes(&self) -> usize {
        self.inline + SLOT_HEADER
    }

    /// Bytes of an area before the end of its slots.
    const fn slots_end(&self) -> usize {
        2 * self.line + self.slots as usize * self.slot_bytes()
    }

    /// Offset of the count of steps that a rank has finished.
    pub fn done(&self, rank: u32) -> usize {
        self.area(rank) + self.line
    }

    /// Words in which a rank records what it has pulled from each peer; only where no phase moves.
    const fn pull_words(&self) -> u32 {
        if cfg!(feature = "std") && self.oversubscribed {
            (self.bulk.saturating_sub(self.slots_end()) / 4) as u32
        } else {
            0
        }
    }

    /// Whether there is such a word for each rank of the group.
    pub const fn has_pull_words(&self) -> bool {
        self.ranks <= self.pull_words()
    }

    /// Offset of the word in which `rank` records the last step in which it pulled a buffer that `of` exposes to all,
    /// plus one.
    pub fn pulled_step(&self, rank: u32, of: u32) -> usize {
        self.area(rank) + self.slots_end() + 4 * of as usize
    }

    /// The slot of a step.
    pub const fn slot(&self, step: u32) -> u32 {
        step & (self.slots - 1)
    }

    /// Offset of a rank's stamp for a step.
    pub fn stamp(&self, rank: u32, step: u32) -> usize {
        self.area(rank) + 2 * self.line + self.slot(step) as usize * self.slot_bytes()
    }

    /// Offset of a rank's inline payload of a step.
    pub fn payload(&self, rank: u32, step: u32) -> usize {
        self.stamp(rank, step) + SLOT_HEADER
    }

    /// Offset of a rank's chunk of a step.
    pub fn bulk(&self, rank: u32, step: u32) -> usize {
        self.first_chunk(rank) + self.slot(step) as usize * self.chunk
    }

    /// Offset of a rank's first chunk.
    pub fn first_chunk(&self, rank: u32) -> usize {
        self.area(rank) + self.bulk
    }

    /// Offset of the end of the last area.
    pub fn end(&self) -> usize {
        self.offset + self.members.end(self.ranks) as usize * self.stride
    }

    /// All words of all areas up to the highest member's, if they lie in the segment; a rank's words begin at a
    /// multiple of the stride.
    pub(crate) fn words<'a>(&self, segment: Segment<'a>) -> Option<&'a [Word]> {
        segment.words(self.offset, self.stride.checked_mul(self.members.end(self.ranks) as usize)? / 4)
    }

    /// Sets every word to its state after `step` collective steps and as many barrier phases. The creator of the
    /// segment calls it where the counts do not begin at zero.
    pub fn initialize(&self, segment: Segment<'_>, step: u32) -> Option<()> {
        (0..self.ranks).try_for_each(|rank| self.initialize_rank(segment, rank, step))
    }

    /// As [`initialize`](Self::initialize), for one rank.
    pub fn initialize_rank(&self, segment: Segment<'_>, rank: u32, step: u32) -> Option<()> {
        // An earlier group of this communicator slot may have had more ranks.
        let taken = (0..self.pull_words()).map(|of| self.pulled_step(rank, of));
        for at in [self.phase(rank), self.done(rank)].into_iter().chain(taken) {
            segment.word(at)?.publish(step, Site::Plain);
        }
        for slot in 0..self.slots {
            segment.word(self.stamp(rank, slot))?.publish(step, Site::Plain);
        }
        Some(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::layout::{COMMUNICATOR_SLOTS, SegmentSizes};

    fn assert_within(areas: &CollectiveAreas, rank: u32, end: usize) {
        let last = areas.slots - 1;
        assert!(areas.stamp(rank, last) + SLOT_HEADER + areas.inline <= areas.area(rank) + areas.bulk, "{areas:?}");
        assert!(areas.bulk(rank, last) + areas.chunk <= end, "{areas:?}");
        assert!(
            areas.phase_lines() >= 8 && areas.phase_on_line(rank, areas.phase_lines()) <= areas.area(rank) + areas.bulk
        );
    }

    #[test]
    fn slots_and_chunks_lie_within_the_area() {
        for ranks in 1..=RANKS_MAX {
            let layout = SegmentLayout::new(SegmentSizes::of_node(ranks, WaitMode::Oversubscribed)).unwrap();
            let areas = CollectiveAreas::of(&layout);
            assert_within(&areas, 0, areas.area(1));
            assert!(areas.chunk >= 2048 && areas.end() <= layout.bytes(), "{ranks}: {areas:?}");
            assert_eq!(areas.area(ranks - 1), layout.collective_area(ranks - 1).unwrap().offset);
        }
    }

    #[test]
    fn subset_of_ranks_has_its_own_areas_of_a_communicator_slot() {
        for ranks in 3..=64 {
            let layout = SegmentLayout::new(SegmentSizes::of_node(ranks, WaitMode::Oversubscribed)).unwrap();
            let (room, some) = (layout.communicator_slot(COMMUNICATOR_SLOTS - 1).unwrap(), [ranks - 1, 0, 1]);
            let areas = CollectiveAreas::in_communicator_slot(&layout, COMMUNICATOR_SLOTS - 1, &some).unwrap();
            let stride = room.bytes / ranks as usize;
            for (rank, local) in (0..).zip(some) {
                assert_eq!(areas.area(rank), room.offset + local as usize * stride);
                assert_within(&areas, rank, areas.area(rank) + stride);
            }
            assert!(areas.end() == room.offset + room.bytes && areas.end() <= layout.bytes());
            assert!(areas.chunk >= 512 && areas.members.get(3).is_none(), "{areas:?}");
            assert!(areas.pull_words() >= 64 && areas.pulled_step(0, areas.pull_words()) <= areas.area(0) + areas.bulk);
            assert_eq!(
                CollectiveAreas::in_communicator_slot(&layout, COMMUNICATOR_SLOTS, &some),
                None,
                "no such communicator slot"
            );
            assert_eq!(CollectiveAreas::in_communicator_slot(&layout, 0, &[0, ranks]), None, "no such rank");
            assert_eq!(CollectiveAreas::in_communicator_slot(&layout, 0, &[]), None);
        }
        let large = SegmentLayout::new(SegmentSizes::of_node(65, WaitMode::Oversubscribed)).unwrap();
        assert_eq!(CollectiveAreas::in_communicator_slot(&large, 0, &[0, 1]), None);
    }
}
