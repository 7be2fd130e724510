//! Reduce-scatter of equal blocks: rank i combines block i of all contributions. Short vectors are published whole;
//! long ones block by block, round l carrying a part of block l mod n.

use super::{Item, SlotSchedule, input, output};
use crate::slot_collectives::selection::SlotAlgorithm;

impl SlotSchedule {
    pub(super) fn write_reduce_scatter(&self, round: u32, item: u32) -> Option<Item> {
        if item > 0 {
            return None;
        }
        if self.inline {
            let all = self.bytes * self.size as usize;
            return Some(Item::copy(input(0, all), self.slot(self.rank, round, 0, all)));
        }
        let (block, (at, bytes)) = ((round % self.divisor()) as usize, self.round_span(round / self.divisor()));
        Some(Item::copy(input(block * self.bytes + at, bytes), self.slot(self.rank, round, 0, bytes)))
    }

    pub(super) fn read_reduce_scatter(&self, round: u32, item: u32) -> Option<Item> {
        let own = self.rank as usize * self.bytes;
        if self.algorithm() == SlotAlgorithm::Pull {
            return self.fold_pulled(own, self.bytes, 0, item);
        }
        let (of_block, (at, bytes)) =
            if self.inline { (own, self.round_span(0)) } else { (0, self.round_span(round / self.divisor())) };
        if !self.inline && round % self.divisor() != self.rank {
            return None;
        }
        Self::fold(self.size, item, output(at, bytes), |p| {
            let of = self.operand(p);
            (self.slot(of, round, of_block, bytes), of, round)
        })
    }
}
