//! The slots for unexpected payloads that are longer than short.

use crate::list::List;
use crate::pool::Pool;

/// The free slots, linked by one word each.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct SlotPool<P> {
    links: P,
    free: List,
}

impl<P: Pool<u32>> SlotPool<P> {
    /// All slots are free.
    pub(super) fn new(mut links: P) -> Self {
        let free = List::of_all(links.as_mut(), |slot| slot);
        Self { links, free }
    }

    pub(super) fn take(&mut self) -> Option<u32> {
        self.free.pop(self.links.as_mut(), |slot| slot)
    }

    pub(super) fn free(&mut self, slot: u32) {
        self.free.push_front(self.links.as_mut(), slot, |slot| slot);
    }
}
