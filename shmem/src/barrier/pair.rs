//! The barrier of two ranks that have a core each: one store, then looks at one word. A loop over all ranks costs a fifth more, by what
//! it does between the arrival of the other's line and the next store.

use crate::segment::{Site, Word};

/// As [`FlatBarrier`](super::FlatBarrier), which it is made of.
#[derive(Clone, Copy, Debug)]
pub struct PairBarrier<'a> {
    pub(super) own: &'a Word,
    pub(super) other: &'a Word,
}

impl PairBarrier<'_> {
    /// Shows that this rank has arrived for the `epoch`-th time; the number wraps.
    #[inline(always)]
    pub fn arrive(&self, epoch: u32) {
        self.own.publish(epoch, Site::PairArrive);
    }

    /// Whether the other one has arrived, too: perhaps it is in the next barrier already.
    #[inline(always)]
    pub fn poll(&self, epoch: u32) -> bool {
        self.other.acquire(Site::PairArrived).wrapping_sub(epoch) <= 1
    }
}
