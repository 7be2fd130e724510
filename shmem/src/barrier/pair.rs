//! The barrier of two ranks that have a core each: one store, then polls of one word. Without the loop of
//! [`FlatBarrier`](super::FlatBarrier) there is less work between the arrival of the other's line and the next store.

use crate::segment::{Site, Word};

/// A [`FlatBarrier`](super::FlatBarrier) of two ranks.
#[derive(Clone, Copy, Debug)]
pub struct PairBarrier<'a> {
    pub(super) own: &'a Word,
    pub(super) other: &'a Word,
}

impl PairBarrier<'_> {
    /// Publishes that this rank has arrived for the `epoch`-th time; the number wraps.
    #[inline(always)]
    pub fn arrive(&self, epoch: u32) {
        self.own.publish(epoch, Site::PairArrive);
    }

    /// Whether the other rank has arrived; it may be in the next barrier already.
    #[inline(always)]
    pub fn poll(&self, epoch: u32) -> bool {
        self.other.acquire(Site::PairArrived).wrapping_sub(epoch) <= 1
    }
}
