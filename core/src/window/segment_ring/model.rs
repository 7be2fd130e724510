//! Transformations of segment rings for the model checker, in which only distances between numbers have a meaning.

use super::{Entry, NONE, POSTING, SegmentRef, SegmentRing, posted_on};
use crate::device::{DeviceQueue, Ticket};
use crate::time::Time;

impl<T: Time, const W: usize, const BITS: u32> SegmentRing<T, W, BITS> {
    /// Lowers every PSN by `by`, renames the parts and turns the ring so that the oldest segment is entry 0.
    pub(in crate::window) fn with_numbers(mut self, by: u32, rename: impl Fn(SegmentRef) -> SegmentRef) -> Self {
        let turn = |i: u16| if i == NONE { NONE } else { self.offset_of(i) as u16 };
        let entries = core::array::from_fn(|offset| {
            let offset = offset as u32;
            let entry = self.entries.get(usize::from(self.entry_at(offset))).copied().unwrap_or(Entry::FREE);
            let reference = if offset < self.len() { rename(entry.reference) } else { entry.reference };
            Entry { reference, before: turn(entry.before), after: turn(entry.after), ..entry }
        });
        let ends = [self.first, self.last, self.posted.polled, self.posted.interrupt].map(turn);
        self.entries = entries;
        [self.first, self.last, self.posted.polled, self.posted.interrupt] = ends;
        self.head = 0;
        self.base = self.base.back(by);
        self.next = self.next.back(by);
        self
    }

    /// Renumbers the queue's uncompleted postings.
    pub(in crate::window) fn with_tickets(mut self, queue: DeviceQueue, renumber: impl Fn(Ticket) -> Ticket) -> Self {
        for entry in self.entries.iter_mut().filter(|entry| entry.state & POSTING == posted_on(queue)) {
            entry.ticket = renumber(entry.ticket);
        }
        self
    }
}
