//! A send window's entries: a ring by PSN, linked in a list by order of posting.

use super::{NONE, SendWindow};
use crate::device::DeviceQueue;
use crate::time::Time;

impl<T: Time, const W: usize, const BITS: u32> SendWindow<T, W, BITS> {
    /// The entry of the segment `offset` after the base.
    pub(super) fn entry_at(&self, offset: u32) -> u16 {
        let i = u32::from(self.head).wrapping_add(offset);
        let w = W as u32;
        (if i >= w { i.wrapping_sub(w) } else { i }) as u16
    }

    /// The inverse of [`entry_at`](Self::entry_at).
    pub(super) fn offset_of(&self, i: u16) -> u32 {
        let (i, head) = (u32::from(i), u32::from(self.head));
        if i >= head { i.wrapping_sub(head) } else { i.wrapping_add(W as u32).wrapping_sub(head) }
    }

    /// Appends an entry to the list; its posting on the queue is not completed.
    pub(super) fn append(&mut self, i: u16, queue: DeviceQueue) {
        let last = self.last;
        if let Some(entry) = self.entries.get_mut(usize::from(i)) {
            entry.before = last;
            entry.after = NONE;
        }
        match self.entries.get_mut(usize::from(last)) {
            Some(entry) => entry.after = i,
            None => self.first = i,
        }
        self.last = i;
        self.note_posted(i, queue);
    }

    /// The posting of an entry on the queue is not completed; it is the latest of those that are not.
    pub(super) const fn note_posted(&mut self, i: u16, queue: DeviceQueue) {
        let first = self.posted.get_mut(queue);
        if *first == NONE {
            *first = i;
        }
    }

    /// Unlinks an entry from the list.
    pub(super) fn unlink(&mut self, i: u16) {
        let Some(entry) = self.entries.get_mut(usize::from(i)) else { return };
        let (before, after) = (entry.before, entry.after);
        entry.before = NONE;
        entry.after = NONE;
        match self.entries.get_mut(usize::from(before)) {
            Some(entry) => entry.after = after,
            None => self.first = after,
        }
        match self.entries.get_mut(usize::from(after)) {
            Some(entry) => entry.before = before,
            None => self.last = before,
        }
    }
}
