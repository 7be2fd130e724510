//! The segments that are sent and not yet released: a ring by PSN, whose entries are linked by order of posting.
//!
//! A segment is released when it is acknowledged **and** the device has completed its last posting. The device completes
//! the postings of each of its queues in order, but those of one queue before or after those of another.

mod burst;
mod model;

pub(crate) use burst::Burst;

use crate::device::{DeviceQueue, PerQueue, Posting, Ticket};
use crate::ids::{Psn, Rail};
use crate::time::Time;
use crate::window::loss::Reordering;
use crate::window::rails::{MAX_RAILS, RailMask, Rails, bit};

/// The part of an operation that a segment carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SegmentRef {
    /// The operation's record.
    pub operation: u32,
    /// The part's index in the operation.
    pub part: u32,
}

impl SegmentRef {
    /// Whether it is a segment of a placement, not its opening or a message of one datagram.
    pub(super) const fn is_bulk(self) -> bool {
        self.part > 0
    }
}

/// A lost segment that is resent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Resend {
    /// Its distance from the oldest segment.
    pub(super) offset: u32,
    pub(super) reference: SegmentRef,
    /// Number of earlier transmissions, modulo 4.
    pub(super) count: u8,
    /// The answer to a probe showed the loss.
    pub(super) by_probe: bool,
}

/// No entry.
const NONE: u16 = u16::MAX;

/// The device has not completed the latest posting.
const POSTED: u8 = 1;
/// The receiver has acknowledged it.
const ACKED: u8 = 1 << 1;
/// To be resent.
const LOST: u8 = 1 << 2;
/// Found lost by the answer to a probe.
const BY_PROBE: u8 = 1 << 3;
/// Sent before the latest probe.
const PROBED: u8 = 1 << 4;
/// Newly acknowledged by the acknowledgement that is being processed.
const FRESH: u8 = 1 << 5;
/// The latest posting is on the interrupt queue; set only together with [`POSTED`].
const ON_INTERRUPT_QUEUE: u8 = 1 << 6;
/// What is known of the latest posting.
const POSTING: u8 = POSTED | ON_INTERRUPT_QUEUE;

/// The state of a segment that was just posted on the queue.
#[inline]
const fn posted_on(queue: DeviceQueue) -> u8 {
    match queue {
        DeviceQueue::Polled => POSTED,
        DeviceQueue::Interrupt => POSTED | ON_INTERRUPT_QUEUE,
    }
}

/// A segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Entry<T: Time> {
    reference: SegmentRef,
    /// When it was last posted.
    pub(super) stamp: T::Stamp,
    ticket: Ticket,
    /// Links of the list by order of posting.
    before: u16,
    after: u16,
    /// Segments sent later over the same rail and acknowledged earlier, saturating above the allowance.
    reorder_count: u8,
    /// The rail that it was last sent over.
    pub(super) rail: Rail,
    state: u8,
    /// Number of transmissions before the latest, modulo 4.
    pub(super) count: u8,
}

impl<T: Time> Entry<T> {
    const FREE: Self = Self {
        reference: SegmentRef { operation: 0, part: 0 },
        stamp: T::ZERO,
        ticket: Ticket(0),
        before: NONE,
        after: NONE,
        reorder_count: 0,
        rail: Rail(0),
        state: 0,
        count: 0,
    };

    pub(super) const fn is_acknowledged(&self) -> bool {
        self.state & ACKED != 0
    }

    pub(super) const fn is_in_flight(&self) -> bool {
        self.state & (ACKED | LOST) == 0
    }
}

/// At most `W` segments.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct SegmentRing<T: Time, const W: usize, const BITS: u32> {
    /// The oldest segment that is not released, and the next new one.
    pub(super) base: Psn<BITS>,
    pub(super) next: Psn<BITS>,
    /// The entry of `base`.
    head: u16,
    /// The list by order of posting, and the first entry of each queue whose posting is not completed.
    first: u16,
    last: u16,
    posted: PerQueue<u16>,
    /// Segments that are neither acknowledged nor lost, and lost ones.
    pub(super) in_flight: u16,
    pub(super) lost: u16,
    entries: [Entry<T>; W],
}

impl<T: Time, const W: usize, const BITS: u32> SegmentRing<T, W, BITS> {
    /// An empty ring whose first segment will have the PSN `first`.
    pub(super) const fn new(first: Psn<BITS>) -> Self {
        Self {
            base: first,
            next: first,
            head: 0,
            first: NONE,
            last: NONE,
            posted: PerQueue { polled: NONE, interrupt: NONE },
            in_flight: 0,
            lost: 0,
            entries: [Entry::FREE; W],
        }
    }

    /// Segments that are sent and not released.
    #[inline]
    pub(super) const fn len(&self) -> u32 {
        self.next.since(self.base)
    }

    /// Whether every segment is acknowledged; the device may not have completed all postings.
    pub(super) const fn is_acknowledged(&self) -> bool {
        self.in_flight == 0 && self.lost == 0
    }

    /// Whether the device has not completed some posting.
    pub(super) const fn is_posted(&self) -> bool {
        self.posted.polled != NONE || self.posted.interrupt != NONE
    }

    /// The segment `offset` after the oldest one.
    #[inline]
    pub(super) fn get(&self, offset: u32) -> Option<&Entry<T>> {
        self.entries.get(usize::from(self.entry_at(offset))).filter(|_| offset < self.len())
    }

    /// The segment that was posted last.
    pub(super) fn latest(&self) -> Option<&Entry<T>> {
        self.entries.get(usize::from(self.last))
    }

    /// Adds a new segment, for which the caller has found room.
    #[inline]
    pub(super) fn push(
        &mut self,
        stamp: T::Stamp,
        reference: SegmentRef,
        posting: Posting,
        rail: Rail,
    ) -> Option<Psn<BITS>> {
        let i = self.entry_at(self.len());
        let (state, ticket) = (posted_on(posting.queue), posting.ticket);
        *self.entries.get_mut(usize::from(i))? = Entry { reference, stamp, ticket, state, rail, ..Entry::FREE };
        self.append(i, posting.queue);
        self.in_flight = self.in_flight.wrapping_add(1);
        let psn = self.next;
        self.next = psn.add(1);
        Some(psn)
    }

    /// Takes the lost segment that was posted first and whose posting is completed, to be posted again.
    pub(super) fn resend(&mut self, stamp: T::Stamp, posting: Posting, rail: Rail) -> Option<Resend> {
        if self.lost == 0 {
            return None;
        }
        if mutant!("resend_unfinished") {
            self.handle_completed(DeviceQueue::Polled, Ticket(1 << 30));
        }
        let mut i = self.first;
        loop {
            let entry = self.entries.get(usize::from(i))?;
            if entry.state & (LOST | POSTED) == LOST {
                break;
            }
            i = entry.after;
        }
        self.unlink(i);
        let offset = self.offset_of(i);
        let entry = self.entries.get_mut(usize::from(i))?;
        let by_probe = entry.state & BY_PROBE != 0;
        entry.count = entry.count.wrapping_add(1) & T::COUNT_MASK;
        entry.stamp = stamp;
        entry.ticket = posting.ticket;
        entry.reorder_count = 0;
        entry.rail = rail;
        entry.state = posted_on(posting.queue);
        let (reference, count) = (entry.reference, entry.count);
        self.append(i, posting.queue);
        self.lost = self.lost.wrapping_sub(1);
        self.in_flight = self.in_flight.wrapping_add(1);
        Some(Resend { offset, reference, count, by_probe })
    }

    /// The parts carried by the oldest unacknowledged segment and all after it: the receiver has not delivered those
    /// acknowledged beyond a gap.
    pub(super) fn undelivered(&self) -> impl Iterator<Item = SegmentRef> + '_ {
        let entries = (0..self.len()).filter_map(|offset| self.get(offset));
        let undelivered = entries.skip_while(|entry| entry.is_acknowledged());
        undelivered.filter(|entry| !(mutant!("gap_forgiven") && entry.is_acknowledged())).map(|entry| entry.reference)
    }

    /// The part that segment `psn` carries, if it is sent and not acknowledged.
    pub(super) fn unacknowledged_at(&self, psn: Psn<BITS>) -> Option<SegmentRef> {
        self.get(psn.since(self.base)).filter(|entry| !entry.is_acknowledged()).map(|entry| entry.reference)
    }

    /// Marks the unacknowledged segment at `offset` to be resent.
    /// Returns its rail if it did not count as lost before.
    pub(super) fn request_resend(&mut self, offset: u32) -> Option<Rail> {
        let i = self.entry_at(offset);
        let rail = self.entries.get(usize::from(i)).filter(|entry| entry.state & LOST == 0)?.rail;
        self.mark_lost(i, 0);
        Some(rail)
    }

    /// The device has completed every posting on the queue up to `upto`.
    pub(super) fn handle_completed(&mut self, queue: DeviceQueue, upto: Ticket) {
        let posted = posted_on(queue);
        let mut i = *self.posted.get(queue);
        while let Some(entry) = self.entries.get_mut(usize::from(i)) {
            let after = entry.after;
            if entry.state & POSTING == posted || entry.state & POSTED != 0 && mutant!("queues_mixed") {
                if !entry.ticket.is_within(upto) {
                    break;
                }
                entry.state &= !POSTING;
                // Completed entries hold no ticket, so that equal states compare equal.
                entry.ticket = Ticket::default();
                if entry.state & ACKED != 0 {
                    self.unlink(i);
                }
            }
            i = after;
        }
        *self.posted.get_mut(queue) = i;
    }

    /// Acknowledges up to `passed` segments from the oldest on, while they are also first in the posting list and
    /// completed: nothing was sent before them, so they overtook nothing. Returns their number.
    pub(super) fn acknowledge_first(&mut self, passed: u32) -> u32 {
        let (w, mut i, mut count) = (W as u16, self.head, 0_u32);
        while count < passed && i == self.first {
            let Some(entry) = self.entries.get_mut(usize::from(i)) else { break };
            if entry.state & (ACKED | LOST | POSTED) != 0 || entry.reorder_count != 0 {
                break;
            }
            entry.state = ACKED;
            entry.count = 0;
            self.first = core::mem::replace(&mut entry.after, NONE);
            i = if i.wrapping_add(1) == w { 0 } else { i.wrapping_add(1) };
            count = count.wrapping_add(1);
        }
        if count > 0 {
            self.in_flight = self.in_flight.wrapping_sub(count as u16);
            match self.entries.get_mut(usize::from(self.first)) {
                Some(entry) => entry.before = NONE,
                None => self.last = NONE,
            }
        }
        count
    }

    /// Acknowledges the segment at `offset`. Returns 1 if it was not acknowledged before;
    /// [`detect_overtaken`](Self::detect_overtaken) follows.
    pub(super) fn acknowledge(&mut self, offset: u32, rails: &mut Rails<'_, T>) -> u32 {
        let i = self.entry_at(offset);
        let Some(entry) = self.entries.get_mut(usize::from(i)) else { return 0 };
        if entry.state & ACKED != 0 {
            return 0;
        }
        if entry.state & LOST != 0 {
            self.lost = self.lost.wrapping_sub(1);
        } else {
            self.in_flight = self.in_flight.wrapping_sub(1);
            rails.path_mut(entry.rail).reordering.handle_late_arrival(u16::from(entry.reorder_count));
        }
        rails.handle_acknowledged(entry.rail, entry.state & LOST == 0, entry.reference.is_bulk());
        entry.state = entry.state & POSTING | ACKED | FRESH;
        // An acknowledged entry keeps no repair state, so that equal states compare equal.
        entry.reorder_count = 0;
        entry.rail = if MAX_RAILS == 1 { Rail(0) } else { entry.rail };
        entry.count = 0;
        1
    }

    /// Walks the list up to the last of `fresh` newly acknowledged segments of a rail, or of all, and unlinks them; a
    /// segment of that rail that they overtook more often than is allowed is lost. Returns the number of lost ones.
    pub(super) fn detect_overtaken(&mut self, fresh: u32, rail: Option<Rail>, reordering: &Reordering) -> u32 {
        let before = self.lost;
        let mut left = fresh;
        let mut i = self.first;
        while left > 0 {
            let Some(entry) = self.entries.get_mut(usize::from(i)) else { break };
            let after = entry.after;
            if MAX_RAILS > 1 && rail.is_some_and(|rail| rail != entry.rail) {
                // Another rail's segments neither overtake nor are overtaken.
                let counts = entry.state & FRESH != 0 && mutant!("cross_rail_loss");
                left = left.wrapping_sub(u32::from(counts));
            } else if entry.state & FRESH != 0 {
                left = left.wrapping_sub(1);
                entry.state &= !FRESH;
                if MAX_RAILS > 1 {
                    entry.rail = Rail(0);
                }
                if entry.state & POSTED == 0 {
                    self.unlink(i);
                }
            } else if entry.is_in_flight() {
                let count = Reordering::count::<W>(u16::from(entry.reorder_count), left);
                entry.reorder_count = count as u8;
                if reordering.shows_loss(count) {
                    self.mark_lost(i, 0);
                }
            }
            i = after;
        }
        u32::from(self.lost.wrapping_sub(before))
    }

    /// A probe is sent now, which asks for the segments of these rails, or of all.
    pub(super) fn mark_probed(&mut self, covered: Option<RailMask>) {
        let mut i = self.first;
        while let Some(entry) = self.entries.get_mut(usize::from(i)) {
            if entry.is_in_flight() && (MAX_RAILS == 1 || covered.is_none_or(|rails| rails & bit(entry.rail) != 0)) {
                entry.state |= PROBED;
            }
            i = entry.after;
        }
    }

    /// The latest probe was answered: segments of a rail, or of all, sent before it and not acknowledged are lost.
    /// Returns the number of lost ones.
    pub(super) fn detect_probe_losses(&mut self, rail: Option<Rail>) -> u32 {
        let before = self.lost;
        let mut i = self.first;
        while let Some(entry) = self.entries.get(usize::from(i)) {
            let after = entry.after;
            let is_covered = MAX_RAILS == 1 || rail.is_none_or(|rail| rail == entry.rail);
            if entry.state & (PROBED | ACKED | LOST) == PROBED && is_covered {
                self.mark_lost(i, BY_PROBE);
            }
            i = after;
        }
        u32::from(self.lost.wrapping_sub(before))
    }

    fn mark_lost(&mut self, i: u16, by: u8) {
        if let Some(entry) = self.entries.get_mut(usize::from(i)) {
            entry.state = entry.state & POSTING | LOST | by;
            entry.reorder_count = 0;
            self.lost = self.lost.wrapping_add(1);
            self.in_flight = self.in_flight.wrapping_sub(1);
        }
    }

    /// Releases the oldest segments that are acknowledged and completed, at most `most`, while they belong to one
    /// operation. Returns the part of the first one and their number.
    #[inline]
    pub(super) fn release(&mut self, most: u32) -> Option<(SegmentRef, u32)> {
        if mutant!("release_unfinished") {
            self.handle_completed(DeviceQueue::Polled, Ticket(1 << 30));
        }
        let most = most.min(self.len());
        let (mut i, mut count, mut first) = (self.head, 0_u32, SegmentRef::default());
        while count < most {
            let Some(entry) = self.entries.get_mut(usize::from(i)) else { break };
            if count == 0 {
                first = entry.reference;
            }
            if entry.state & (ACKED | POSTED) != ACKED || entry.reference.operation != first.operation {
                break;
            }
            *entry = Entry::FREE;
            i = if usize::from(i).wrapping_add(1) == W { 0 } else { i.wrapping_add(1) };
            count = count.wrapping_add(1);
        }
        if count == 0 {
            return None;
        }
        self.base = self.base.add(count);
        self.head = if self.len() == 0 { 0 } else { i };
        Some((first, count))
    }

    /// The entry of the segment at `offset`.
    fn entry_at(&self, offset: u32) -> u16 {
        let i = u32::from(self.head).wrapping_add(offset);
        let w = W as u32;
        (if i >= w { i.wrapping_sub(w) } else { i }) as u16
    }

    /// The inverse of [`entry_at`](Self::entry_at).
    fn offset_of(&self, i: u16) -> u32 {
        let (i, head) = (u32::from(i), u32::from(self.head));
        if i >= head { i.wrapping_sub(head) } else { i.wrapping_add(W as u32).wrapping_sub(head) }
    }

    /// Appends an entry to the list; its posting on the queue is not completed.
    fn append(&mut self, i: u16, queue: DeviceQueue) {
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
    const fn note_posted(&mut self, i: u16, queue: DeviceQueue) {
        let first = self.posted.get_mut(queue);
        if *first == NONE {
            *first = i;
        }
    }

    /// Unlinks an entry from the list.
    fn unlink(&mut self, i: u16) {
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
