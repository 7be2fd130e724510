//! Transformations of send windows for the model checker, in which only distances between numbers have a meaning.

use super::{Entry, NONE, POSTING, SegmentRef, SendWindow, posted_on};
use crate::device::{DeviceQueue, Ticket};
use crate::time::Time;

impl<T: Time, const W: usize, const BITS: u32> SendWindow<T, W, BITS> {
    /// Shifts every stored instant, for models whose time is relative.
    #[must_use]
    pub fn with_times(mut self, shift: impl Fn(T::Instant) -> T::Instant) -> Self {
        self.deadline = self.deadline.map(shift);
        self
    }

    /// Lowers every PSN by `by`, renames the parts and turns the ring so that the base is entry 0, for models whose
    /// numbers are relative.
    #[must_use]
    pub fn with_numbers(mut self, by: u32, rename: impl Fn(SegmentRef) -> SegmentRef) -> Self {
        let turn = |i: u16| if i == NONE { NONE } else { self.offset_of(i) as u16 };
        let sent = self.next.since(self.base);
        let entries = core::array::from_fn(|offset| {
            let offset = offset as u32;
            let entry = self.entries.get(usize::from(self.entry_at(offset))).copied().unwrap_or(Entry::FREE);
            let piece = if offset < sent { rename(entry.reference) } else { entry.reference };
            Entry { reference: piece, before: turn(entry.before), after: turn(entry.after), ..entry }
        });
        let ends = [self.first, self.last, self.posted.polled, self.posted.interrupt].map(turn);
        self.entries = entries;
        [self.first, self.last, self.posted.polled, self.posted.interrupt] = ends;
        self.head = 0;
        self.base = self.base.back(by);
        self.next = self.next.back(by);
        self.drained = self.drained.map(|drained| drained.back(by));
        if self.admitted {
            self.edge = self.edge.back(by);
        }
        self
    }

    /// Renumbers the queue's uncompleted postings, for models whose tickets count from the oldest of them.
    #[must_use]
    pub fn with_tickets(mut self, queue: DeviceQueue, renumber: impl Fn(Ticket) -> Ticket) -> Self {
        for entry in self.entries.iter_mut().filter(|entry| entry.state & POSTING == posted_on(queue)) {
            entry.ticket = renumber(entry.ticket);
        }
        self
    }
}
