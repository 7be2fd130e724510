//! The barrier among other collectives: every rank publishes an empty slot and polls for every other's.

use super::{Item, SlotSchedule};

impl SlotSchedule {
    pub(super) fn read_barrier(&self, round: u32, item: u32) -> Option<Item> {
        (item + 1 < self.size).then(|| Item::NOTHING.after(self.after(item + 1), round))
    }
}
