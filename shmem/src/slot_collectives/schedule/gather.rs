//! Gather: all but the root write and return.

use unisono_core::collective::Place;

use super::{Item, SlotSchedule, input, output};
use crate::slot_collectives::selection::SlotAlgorithm;

impl SlotSchedule {
    pub(super) fn read_gather(&self, round: u32, item: u32) -> Option<Item> {
        if self.rank != self.root { None } else { self.read_block(round, item) }
    }

    /// Reads the block of rank `rank + item` into its place in the output.
    pub(super) fn read_block(&self, round: u32, item: u32) -> Option<Item> {
        if item >= self.size {
            return None;
        }
        let of = self.after(item);
        let (at, bytes) = self.block_span(of, round);
        let into = output(of as usize * self.bytes + at, bytes);
        Some(match self.algorithm() {
            _ if item == 0 => self.copy_block(input(at, bytes), into),
            SlotAlgorithm::Pull if bytes != 0 => self.pull(of, Place::Input, at, into).after(of, round),
            _ => self.copy_block(self.slot(of, round, 0, bytes), into).after(of, round),
        })
    }
}
