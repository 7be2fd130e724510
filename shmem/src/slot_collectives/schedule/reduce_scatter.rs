//! Reduce-scatter: rank i combines block i of all contributions. Vectors that a chunk holds are published whole; longer
//! ones block by block, round l carrying a part of block l mod n.

use super::{Item, SlotSchedule, input, output};
use crate::slot_collectives::selection::SlotAlgorithm;

impl SlotSchedule {
    pub(super) fn write_reduce_scatter(&self, round: u32, item: u32) -> Option<Item> {
        if item > 0 {
            return None;
        }
        if self.is_published_whole() {
            let all = self.all_bytes();
            return Some(Item::copy(input(0, all), self.slot(self.rank, round, 0, all)));
        }
        let block = round % self.divisor();
        let (at, bytes) = self.block_span(block, round / self.divisor());
        let from = input(block as usize * self.bytes + at, bytes);
        Some(self.copy_block(from, self.slot(self.rank, round, 0, bytes)))
    }

    pub(super) fn read_reduce_scatter(&self, round: u32, item: u32) -> Option<Item> {
        let own = self.rank as usize * self.bytes;
        if self.algorithm() == SlotAlgorithm::Pull {
            return self.fold_pulled(own, self.block_bytes(self.rank), 0, item);
        }
        let is_whole = self.is_published_whole();
        if !is_whole && round % self.divisor() != self.rank {
            return None;
        }
        let of_block = if is_whole { own } else { 0 };
        let (at, bytes) = self.block_span(self.rank, if is_whole { 0 } else { round / self.divisor() });
        if bytes == 0 {
            return None;
        }
        Self::fold(self.size, item, output(at, bytes), |p| {
            let of = self.operand(p);
            (self.slot(of, round, of_block, bytes), of, round)
        })
    }

    /// Whether one round has all blocks; else there is a round for each.
    const fn is_published_whole(&self) -> bool {
        self.rounds == 1
    }
}
