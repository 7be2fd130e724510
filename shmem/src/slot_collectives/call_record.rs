//! What a rank has shown of a call that goes by other means, for as long as it waits there.

use unisono_core::collective::Rank;

use crate::collective_area::Boards;
use crate::segment::{Segment, Site};

/// A step, and the sign that is shown for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passed {
    pub(super) step: u32,
    pub(super) sign: u32,
}

impl Passed {
    /// A rank that has called something else instead, of the group that has these boards, in which this is `own`. To be asked until
    /// `own` begins another collective there: so far nobody uses the slots of that step again.
    pub fn contradicting(&self, segment: Segment<'_>, boards: &Boards, own: Rank) -> Option<Rank> {
        let others = (0..boards.ranks).map(Rank).filter(|rank| *rank != own);
        { others }.find(|rank| self.is_contradicted_by(segment, boards, *rank))
    }

    /// Whether that rank has called something else instead.
    pub(super) fn is_contradicted_by(&self, segment: Segment<'_>, boards: &Boards, rank: Rank) -> bool {
        let Some([stamp, sign]) = segment.words(boards.stamp(rank.0, self.step), 2) else { return false };
        stamp.acquire(Site::Plain) == self.step.wrapping_add(1) && sign.acquire(Site::Plain) != self.sign
    }
}
