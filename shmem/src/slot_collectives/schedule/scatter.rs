//! Scatter: the root writes a part of every block per round, and returns.

use unisono_core::collective::Place;

use super::{Item, SlotSchedule, input, output};
use crate::slot_collectives::selection::SlotAlgorithm;

impl SlotSchedule {
    pub(super) fn write_scatter(&self, round: u32, item: u32) -> Option<Item> {
        if self.rounds == 1 {
            let all = self.all_bytes();
            return (item == 0).then(|| Item::copy(input(0, all), self.slot(self.rank, round, 0, all)));
        }
        (item < self.size).then(|| {
            let (block, (at, bytes)) = (item as usize, self.block_span(item, round));
            let into = self.slot(self.rank, round, block * self.round_bytes, bytes);
            self.copy_block(input(block * self.bytes + at, bytes), into)
        })
    }

    pub(super) fn read_scatter(&self, round: u32, item: u32) -> Option<Item> {
        if item > 0 {
            return None;
        }
        let (own, (at, bytes)) = (self.rank as usize, self.block_span(self.rank, round));
        let into = output(at, bytes);
        Some(match self.algorithm() {
            _ if self.rank == self.root => self.copy_block(input(own * self.bytes + at, bytes), into),
            SlotAlgorithm::Pull if bytes != 0 => {
                self.pull(self.root, Place::Input, own * self.bytes + at, into).after(self.root, round)
            }
            _ => self
                .copy_block(self.slot(self.root, round, own * self.round_bytes, bytes), into)
                .after(self.root, round),
        })
    }
}
