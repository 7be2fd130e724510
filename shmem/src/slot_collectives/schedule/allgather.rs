//! Allgather: every rank writes its block, then reads the others', beginning with the next rank's so that not all read
//! the same.

use super::{Item, SlotSchedule};

impl SlotSchedule {
    pub(super) fn read_allgather(&self, round: u32, item: u32) -> Option<Item> {
        self.read_block(round, item)
    }
}
