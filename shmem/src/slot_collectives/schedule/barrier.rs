//! The barrier among other collectives: everyone shows an empty slot and looks for everyone else's.

use super::{Course, Item};

impl Course {
    pub(super) fn take_barrier(&self, lap: u32, item: u32) -> Option<Item> {
        (item + 1 < self.size).then(|| Item::NOTHING.after(self.after(item + 1), lap))
    }
}
