//! The record of a call whose data move by other means than slots: ranks compare it to detect mismatched calls while
//! they wait.

use unisono_core::ids::Rank;

use crate::collective_area::CollectiveAreas;
use crate::segment::{Segment, Site};
use crate::slot_collectives::SlotCollectives;

/// A step and the signature that is published for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallRecord {
    pub(super) step: u32,
    pub(super) signature: u32,
}

impl CallRecord {
    /// A rank of the group with these areas that made a different call; `own` is this rank. Valid until `own` begins
    /// another collective there: until then no rank reuses the slots of that step.
    pub fn contradicting_rank(&self, segment: Segment<'_>, areas: &CollectiveAreas, own: Rank) -> Option<Rank> {
        let others = (0..areas.ranks).map(Rank).filter(|rank| *rank != own);
        { others }.find(|rank| self.is_contradicted_by(segment, areas, *rank))
    }

    /// Whether that rank made a different call.
    pub(super) fn is_contradicted_by(&self, segment: Segment<'_>, areas: &CollectiveAreas, rank: Rank) -> bool {
        let Some([stamp, sign]) = segment.words(areas.stamp(rank.0, self.step), 2) else { return false };
        stamp.acquire(Site::Plain) == self.step.wrapping_add(1) && sign.acquire(Site::Plain) != self.signature
    }
}

impl SlotCollectives<'_> {
    /// A rank that published a different call in the first step of the last one, of which this rank is the root: it
    /// believes itself the root, too, and so neither reads what the other published.
    ///
    /// To be called after a sequentially consistent fence, before this rank synchronises with the others: of two such
    /// ranks at least one finds the other. Where all ranks make the same calls, none is found: until this rank has
    /// synchronised, no rank begins a collective after this one.
    pub fn rival_root(&self) -> Option<Rank> {
        // The complement: the payload is in the first chunk.
        let own = [self.call.signature, !self.call.signature];
        let is_rival = |rank: &Rank| {
            let words = self.segment.words(self.areas.stamp(rank.0, self.call.base), 2);
            let Some([stamp, sign]) = words else { return false };
            stamp.acquire(Site::Plain) == self.call.base.wrapping_add(1) && !own.contains(&sign.acquire(Site::Plain))
        };
        (0..self.areas.ranks).map(Rank).filter(|rank| rank.0 != self.rank).find(is_rival)
    }
}
