//! Broadcast: the root writes and returns; a rank that calls later finds the data.

use unisono_core::collective::Place;

use super::{Item, SlotSchedule, output};
use crate::slot_collectives::selection::SlotAlgorithm;

impl SlotSchedule {
    pub(super) fn read_broadcast(&self, round: u32, item: u32) -> Option<Item> {
        if self.rank == self.root || item > 0 {
            return None;
        }
        let (at, bytes) = self.round_span(round);
        let into = output(at, bytes);
        let item = match self.algorithm() {
            SlotAlgorithm::Pull => self.pull(self.root, Place::Input, at, into),
            _ => Item::copy(self.slot(self.root, round, 0, bytes), into),
        };
        Some(item.after(self.root, round))
    }
}
