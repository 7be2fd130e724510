//! Credit as the sender sees it: an absolute edge that only moves forward.

use crate::ids::Psn;

/// The first PSN beyond the credit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum CreditEdge<const BITS: u32> {
    /// No credit has been granted: one segment may be in flight.
    NoCredit,
    /// The edge.
    At(Psn<BITS>),
    /// Returned with this segment: credit that was granted before its arrival is void.
    Returned(Psn<BITS>),
}

impl<const BITS: u32> CreditEdge<BITS> {
    /// Whether there is credit that was not returned; it may be used up.
    pub(super) const fn is_admitted(&self) -> bool {
        matches!(self, Self::At(_))
    }

    /// Segments that may be sent from `next` on, at most `W`.
    pub(super) fn left<const W: usize>(&self, next: Psn<BITS>) -> u32 {
        let Self::At(edge) = self else { return 0 };
        let left = edge.since(next);
        if left as usize <= W { left } else { 0 }
    }

    /// Whether the credit left after the next segment is so small that an idle sender should return it. A sender that
    /// does then sends one segment and waits for its acknowledgement; where only a few peers share a receiver, each
    /// keeps its credit.
    pub(super) fn is_low<const W: usize>(&self, next: Psn<BITS>) -> bool {
        self.is_admitted() && (self.left::<W>(next) as usize) < W.div_ceil(16)
    }

    /// Whether an acknowledgement up to `cumulative` that grants `credit` would change anything.
    pub(super) fn would_advance<const W: usize>(&self, cumulative: Psn<BITS>, credit: u16) -> bool {
        match *self {
            Self::Returned(psn) => cumulative.is_after(psn),
            Self::At(edge) => cumulative.add(u32::from(credit).min(W as u32)).is_after(edge),
            Self::NoCredit => credit > 0,
        }
    }

    /// Handles an acknowledgement up to `cumulative` that grants `credit`.
    pub(super) fn advance<const W: usize>(&mut self, cumulative: Psn<BITS>, credit: u16) {
        if let Self::Returned(psn) = *self {
            if !cumulative.is_after(psn) {
                return;
            }
            *self = Self::NoCredit;
        }
        let edge = cumulative.add(u32::from(credit).min(W as u32));
        match *self {
            Self::NoCredit if credit == 0 => {}
            Self::At(before) if !edge.is_after(before) => {}
            _ => *self = Self::At(edge),
        }
    }

    /// Lowers every PSN by `by`, for models whose numbers are relative.
    pub(super) fn back(self, by: u32) -> Self {
        match self {
            Self::NoCredit => Self::NoCredit,
            Self::At(edge) => Self::At(edge.back(by)),
            Self::Returned(psn) => Self::Returned(psn.back(by)),
        }
    }
}
