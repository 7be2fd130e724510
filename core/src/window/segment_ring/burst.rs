//! A burst of new segments: written into the window's entries one by one, then linked and committed to the window at
//! once.

use super::{Entry, NONE, SegmentRef, SegmentRing, posted_on};
use crate::device::{DeviceQueue, Ticket};
use crate::ids::Psn;
use crate::time::Time;

/// Segments in a window's entries that are not yet committed to the window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Burst<const BITS: u32> {
    /// The entry and the PSN of the next segment.
    i: u16,
    next: Psn<BITS>,
    /// The entry before that one.
    before: u16,
    count: u16,
    /// The queue that all of them are posted on.
    queue: DeviceQueue,
}

impl<const BITS: u32> Burst<BITS> {
    /// A burst of no window.
    pub(crate) const EMPTY: Self =
        Self { i: NONE, next: Psn::new(0), before: NONE, count: 0, queue: DeviceQueue::Polled };

    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Segments in the burst.
    pub(crate) const fn count(&self) -> u32 {
        self.count as u32
    }
}

impl<T: Time, const W: usize, const BITS: u32> SegmentRing<T, W, BITS> {
    /// An empty burst, after the last segment, to be posted on the queue.
    #[inline]
    pub(in crate::window) fn burst(&self, queue: DeviceQueue) -> Burst<BITS> {
        let i = self.entry_at(self.next.since(self.base));
        Burst { i, next: self.next, before: self.last, count: 0, queue }
    }

    /// As [`push_unchecked`](Self::push_unchecked), for a segment that is committed later.
    #[inline(always)]
    pub(in crate::window) fn push_burst(
        &mut self,
        burst: &mut Burst<BITS>,
        stamp: T::Stamp,
        piece: SegmentRef,
        ticket: Ticket,
    ) -> Option<Psn<BITS>> {
        let i = burst.i;
        let entry = self.entries.get_mut(usize::from(i))?;
        let after = if usize::from(i).wrapping_add(1) == W { 0 } else { i.wrapping_add(1) };
        let state = posted_on(burst.queue);
        *entry = Entry { reference: piece, stamp, ticket, before: burst.before, after, state, ..Entry::FREE };
        let psn = burst.next;
        *burst = Burst { i: after, next: psn.add(1), before: i, count: burst.count.wrapping_add(1), ..*burst };
        Some(psn)
    }

    /// Commits the burst to the window; the burst is empty afterwards.
    pub(in crate::window) fn commit(&mut self, burst: &mut Burst<BITS>) {
        let first = self.entry_at(self.next.since(self.base));
        let last = burst.before;
        if let Some(entry) = self.entries.get_mut(usize::from(last)) {
            entry.after = NONE;
        }
        match self.entries.get_mut(usize::from(self.last)) {
            Some(entry) => entry.after = first,
            None => self.first = first,
        }
        self.note_posted(first, burst.queue);
        self.last = last;
        self.next = burst.next;
        self.in_flight = self.in_flight.wrapping_add(burst.count);
        burst.count = 0;
    }
}
