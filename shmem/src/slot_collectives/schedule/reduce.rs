//! Reduce: all write and return, the root combines. With the parallel algorithm: an allreduce whose shares only the
//! root reads.

use unisono_core::collective::Order;

use super::{Item, SlotSchedule, input, output};
use crate::slot_collectives::selection::SlotAlgorithm;

impl SlotSchedule {
    /// Whether this rank publishes its contribution. The root reads its own from its input, first, unless that may be
    /// the output and is not the first operand.
    pub(super) fn is_published_to_root(&self) -> bool {
        self.rank != self.root || self.algorithm() == SlotAlgorithm::Parallel || self.order != Order::Any
    }

    pub(super) fn read_reduce(&self, round: u32, item: u32) -> Option<Item> {
        if self.rank != self.root {
            // A rank that runs ahead could find slots that are not written yet; it reads none.
            return None;
        }
        if self.algorithm() == SlotAlgorithm::Parallel {
            return self.read_exchange(round, item);
        }
        let (at, bytes) = self.round_span(round);
        let own = self.order == Order::Any;
        let operand = |p| match self.operand(p) {
            of if of == self.rank && own => (input(at, bytes), of, round),
            of => (self.slot(of, round, 0, bytes), of, round),
        };
        let item = Self::fold(self.size, item, output(at, bytes), operand)?;
        let look = item.wait_for.filter(|&(of, _)| of != self.rank);
        Some(Item { wait_for: look, ..item })
    }
}
