//! What a rank has shown of a call that goes by other means, for as long as it waits there.

use unisono_core::collective::Rank;

use crate::board::Boards;
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
        let has_shown_other = |rank: &u32| {
            let Some([stamp, sign]) = segment.words(boards.stamp(*rank, self.step), 2) else { return false };
            stamp.acquire(Site::Plain) == self.step.wrapping_add(1) && sign.own() != self.sign
        };
        (0..boards.ranks).filter(|rank| *rank != own.0).find(has_shown_other).map(Rank)
    }
}
