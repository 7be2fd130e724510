//! A rank's membership: its slot in the segment, and the state of the other ranks.

use unisono_shmem::layout::{LayoutError, SegmentLayout};
use unisono_shmem::rank_slot::{Occupancy, Occupant, OwnedSlot, RankSlot};
use unisono_shmem::segment::{Segment, Word};

/// Why a rank could not join.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JoinError {
    /// The memory holds no valid segment.
    Layout(LayoutError),
    /// The segment has no rank slot of this number.
    NoRankSlot,
    /// The slot is or was occupied.
    Taken,
}

/// A rank of the node that occupies its slot.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    segment: Segment<'a>,
    layout: SegmentLayout,
    local: u32,
    own: OwnedSlot<'a>,
}

impl<'a> Member<'a> {
    /// Occupies the rank slot of this number. The starter of the rank provides the incarnation: 32 bits that no earlier
    /// incarnation of the rank had, random where ranks of the segment are also reached over a network.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join(segment: Segment<'a>, local: u32, sitter: Occupant) -> Result<Self, JoinError> {
        let layout = SegmentLayout::read_header(segment).map_err(JoinError::Layout)?;
        let own = RankSlot::of(segment, &layout, local)
            .ok_or(JoinError::NoRankSlot)?
            .claim(sitter)
            .ok_or(JoinError::Taken)?;
        Ok(Self { segment, layout, local, own })
    }

    /// The segment.
    pub const fn segment(&self) -> Segment<'a> {
        self.segment
    }

    /// Layout of the segment.
    pub const fn layout(&self) -> SegmentLayout {
        self.layout
    }

    /// This rank's number on the node.
    pub const fn local(&self) -> u32 {
        self.local
    }

    /// Ranks of the node.
    pub const fn size(&self) -> u32 {
        self.layout.sizes().ranks
    }

    /// The heartbeat word, to be counted up while this rank runs.
    pub const fn heartbeat(&self) -> &'a Word {
        self.own.heartbeat_word()
    }

    /// Whether this rank's slot is intact.
    pub fn is_intact(&self) -> bool {
        self.own.is_intact()
    }

    /// Whether every rank has joined (and perhaps left again).
    pub fn is_complete(&self) -> bool {
        (0..self.size()).all(|local| !matches!(self.occupant(local), None | Some(Occupancy::Free)))
    }

    /// The occupant of a rank slot.
    pub fn occupant(&self, local: u32) -> Option<Occupancy> {
        Some(RankSlot::of(self.segment, &self.layout, local)?.state())
    }

    /// Whether a rank has retired from collectives. Costs one load.
    pub fn has_retired(&self, local: u32) -> bool {
        RankSlot::of(self.segment, &self.layout, local).is_none_or(|slot| slot.has_retired())
    }

    /// Retires from collectives.
    pub fn retire(&self) {
        self.own.retire();
    }

    /// Leaves: publishes the orderly end of this rank.
    pub fn leave(&self) {
        self.own.leave();
    }

    /// Aborts: the other ranks treat this one as failed.
    pub fn fail(&self) {
        self.own.fail();
    }
}
