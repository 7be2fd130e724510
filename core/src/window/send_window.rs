//! The sending half of a sliding window (Koop et al. 2007, §4.2) with repair by send order.
//!
//! Segments are sent in PSN order and kept until they are acknowledged **and** the device has completed their last
//! posting. A hole is repaired after a segment that was sent later has been acknowledged, never because time passed:
//! the idea of RACK (RFC 8985), counted in datagrams instead of time. When no acknowledgement arrives, the sender sends
//! a header-only probe.
//!
//! Sent segments are linked in a list by order of their latest posting. The device completes the postings of each of
//! its queues in order, but those of one queue before or after those of another.

mod acknowledge;
mod burst;
mod model;
mod ring;
mod timer;

pub(crate) use burst::Burst;

use crate::device::{DeviceQueue, PerQueue, Posting, Ticket, TxReason};
use crate::ids::Psn;
use crate::time::Time;
use crate::window::congestion::{Congestion, CongestionControl};
use crate::window::rtt::Rtt;

/// The part of an operation that a segment carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SegmentRef {
    /// The operation's record.
    pub operation: u32,
    /// The part's index in the operation.
    pub part: u32,
}

/// A segment to be posted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Segment<const BITS: u32> {
    /// Its sequence number.
    pub psn: Psn<BITS>,
    /// The part that it carries.
    pub reference: SegmentRef,
    /// Number of earlier transmissions, modulo 4.
    pub count: u8,
    /// Why it is sent; for counters.
    pub reason: TxReason,
}

/// A header-only probe to be posted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Probe<const BITS: u32> {
    /// The next unsent sequence number.
    pub psn: Psn<BITS>,
    /// Its number, modulo 4.
    pub number: u8,
    /// Unanswered probes before this one, at most [`Time::MAX_UNANSWERED`].
    pub unanswered: u8,
}

/// What an acknowledgement changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Acknowledged {
    /// Segments acknowledged for the first time.
    pub segments: u32,
    /// The echoed transmission was the original of a segment that has been resent.
    pub spurious: bool,
    /// Round trip in units of 64 ns, hold time excluded.
    pub round_trip: Option<u32>,
    /// The acknowledgement is older than an earlier one, or covers a PSN that was never sent.
    pub stale: bool,
}

/// Path constants that bound the window's timer and its congestion control.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PathParameters {
    /// Floor of the timeout's margin, in units of 64 ns.
    pub granularity: u32,
    /// Longest time between two probes, in units of 64 ns.
    pub max_probe_interval: u32,
    /// How the congestion window changes.
    pub control: CongestionControl,
}

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
    POSTED | (queue as u8).wrapping_mul(ON_INTERRUPT_QUEUE)
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Entry<T: Time> {
    reference: SegmentRef,
    stamp: T::Stamp,
    ticket: Ticket,
    /// Links of the list by order of posting.
    before: u16,
    after: u16,
    /// Segments sent later and acknowledged earlier, saturating above the allowance.
    reorder_count: u16,
    state: u8,
    count: u8,
}

impl<T: Time> Entry<T> {
    const FREE: Self = Self {
        reference: SegmentRef { operation: 0, part: 0 },
        stamp: T::ZERO,
        ticket: Ticket(0),
        before: NONE,
        after: NONE,
        reorder_count: 0,
        state: 0,
        count: 0,
    };
}

/// The send window: at most `W` segments that are sent and not yet released.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SendWindow<T: Time, const W: usize, const BITS: u32> {
    /// The oldest segment that is not released.
    base: Psn<BITS>,
    next: Psn<BITS>,
    /// First PSN beyond the credit, if `admitted`.
    edge: Psn<BITS>,
    /// The last PSN that returned the credit.
    drained: Option<Psn<BITS>>,
    admitted: bool,
    /// The entry of `base`.
    head: u16,
    /// The list by order of posting, and the first entry of each queue whose posting is not completed.
    first: u16,
    last: u16,
    posted: PerQueue<u16>,
    in_flight: u16,
    lost: u16,
    /// A hole counts as lost once more than this many segments overtook it.
    allowance: u16,
    /// Repairs that were necessary since the allowance last changed.
    repairs: u16,
    /// The largest number of segments that overtook one since then which was not lost.
    reordered: u16,
    deadline: Option<T::Instant>,
    /// Nothing is outstanding: the deadline only watches for the peer's silence.
    watching: bool,
    backoff: u8,
    probe_wanted: bool,
    probe_number: u8,
    unanswered: u8,
    /// Times the oldest segment was resent, saturating at 255.
    base_resends: u8,
    /// Consecutive acknowledgements of PSNs that are not outstanding, counted at most once per timeout.
    invalid_acks: u8,
    invalid_acks_since: T::Stamp,
    rtt: Rtt,
    congestion: Congestion<T>,
    entries: [Entry<T>; W],
}

impl<T: Time, const W: usize, const BITS: u32> SendWindow<T, W, BITS> {
    const FITS: () = assert!(
        W >= 1 && W <= 256 && (BITS > 9 || W < 1 << (BITS - 1)),
        "a window has 1 to 256 segments and less than half the sequence space"
    );
    /// Most segments that may overtake a hole before it counts as lost.
    const MAX_ALLOWANCE: u16 = if W < 8 { W as u16 / 2 } else { W as u16 / 4 };
    /// Consecutive acknowledgements of PSNs that are not outstanding after which the peer contradicts itself.
    const MAX_INVALID_ACKS: u8 = 16;
    /// Doublings of the timeout while only credit is missing: the probe then only guards against a lost grant.
    const ZERO_CREDIT_BACKOFF: u8 = 3;

    /// An empty window whose first segment will have the PSN `first`. Until credit arrives, one segment may be in
    /// flight.
    pub const fn new(first: Psn<BITS>) -> Self {
        let () = Self::FITS;
        Self {
            base: first,
            next: first,
            edge: Psn::new(0),
            drained: None,
            admitted: false,
            head: 0,
            first: NONE,
            last: NONE,
            posted: PerQueue { polled: NONE, interrupt: NONE },
            in_flight: 0,
            lost: 0,
            allowance: 0,
            repairs: 0,
            reordered: 0,
            deadline: None,
            watching: false,
            backoff: 0,
            probe_wanted: false,
            probe_number: 0,
            unanswered: 0,
            base_resends: 0,
            invalid_acks: 0,
            invalid_acks_since: T::ZERO,
            rtt: Rtt::NONE,
            congestion: Congestion::NEW,
            entries: [Entry::FREE; W],
        }
    }

    /// Sets the PSN of the first segment of an unused window, in place: a new window would be copied.
    pub const fn set_first_psn(&mut self, first: Psn<BITS>) {
        self.base = first;
        self.next = first;
    }

    /// The PSN of the oldest segment that is not released.
    pub const fn base(&self) -> Psn<BITS> {
        self.base
    }

    /// The PSN of the next new segment.
    pub const fn next(&self) -> Psn<BITS> {
        self.next
    }

    /// Whether every segment is acknowledged and released.
    pub const fn is_empty(&self) -> bool {
        self.base.since(self.next) == 0
    }

    /// Whether every segment is acknowledged; the device may not have completed all postings.
    pub const fn is_acknowledged(&self) -> bool {
        self.in_flight == 0 && self.lost == 0
    }

    /// The round-trip estimate.
    pub const fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    /// Probes sent since the peer last answered, at most [`Time::MAX_UNANSWERED`].
    pub const fn unanswered(&self) -> u8 {
        self.unanswered
    }

    /// Whether the peer's acknowledgements contradict what was sent to it: it does not acknowledge the oldest segment
    /// although that was resent 255 times, or it acknowledges released or unsent PSNs 16 times in a row, each a timeout
    /// after the one before, so that they are not late datagrams. Models, whose time is abstract, do not count.
    pub const fn is_contradicted(&self) -> bool {
        self.base_resends == u8::MAX || self.invalid_acks >= Self::MAX_INVALID_ACKS
    }

    /// Whether the latest acknowledgement was of PSNs that are not outstanding.
    pub const fn has_invalid_acks(&self) -> bool {
        self.invalid_acks > 0
    }

    /// Whether the device has not completed some posting.
    pub const fn is_posted(&self) -> bool {
        self.posted.polled != NONE || self.posted.interrupt != NONE
    }

    /// Credit beyond the segments that were sent.
    fn granted(&self) -> u32 {
        let left = self.edge.since(self.next);
        if left as usize <= W { left } else { 0 }
    }

    /// Whether a new segment may be sent: window, credit and congestion window all have room.
    pub fn has_room(&self) -> bool {
        let sent = self.next.since(self.base) as usize;
        let fits = sent < if mutant!("window_overfull") { W.saturating_add(1) } else { W };
        fits && self.congestion.admits(self.in_flight, W as u16)
            && if self.admitted { self.granted() > 0 } else { self.is_acknowledged() }
    }

    /// Whether the sender holds credit that it has not returned.
    pub const fn is_admitted(&self) -> bool {
        self.admitted
    }

    /// Whether a segment has to be resent.
    pub const fn has_lost(&self) -> bool {
        self.lost > 0
    }

    /// Whether the credit left after the next segment is so small that an idle sender should return it. A sender that
    /// does then sends one segment and waits for its acknowledgement; where only a few peers share a receiver, each
    /// keeps its credit.
    pub fn is_credit_low(&self) -> bool {
        self.admitted && (self.granted() as usize) < W.div_ceil(16)
    }

    /// Adds a new segment to the window. `None` without room.
    pub fn push(
        &mut self,
        now: T::Instant,
        piece: SegmentRef,
        posting: Posting,
        pace: &PathParameters,
    ) -> Option<Segment<BITS>> {
        if !self.has_room() {
            return None;
        }
        let psn = self.push_unchecked(T::stamp(now), piece, posting)?;
        self.arm_if_idle(now, pace);
        Some(Segment { psn, reference: piece, count: 0, reason: TxReason::First })
    }

    /// As [`push`](Self::push), where [`burst_room`](Self::burst_room) is known to suffice.
    #[inline]
    pub(crate) fn push_unchecked(&mut self, stamp: T::Stamp, piece: SegmentRef, posting: Posting) -> Option<Psn<BITS>> {
        let i = self.entry_at(self.next.since(self.base));
        let (state, ticket) = (posted_on(posting.queue), posting.ticket);
        *self.entries.get_mut(usize::from(i))? = Entry { reference: piece, stamp, ticket, state, ..Entry::FREE };
        self.append(i, posting.queue);
        self.in_flight = self.in_flight.wrapping_add(1);
        let psn = self.next;
        self.next = psn.add(1);
        Some(psn)
    }

    /// A lower bound of the new segments that may be pushed in a burst: 0 if a resend or a probe comes first, or if the
    /// timer does not run.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    pub(crate) fn burst_room(&self) -> u32 {
        if self.lost > 0 || self.probe_wanted || self.deadline.is_none() || self.watching || !self.admitted {
            return 0;
        }
        let fits = (W as u32).saturating_sub(self.next.since(self.base));
        fits.min(self.granted()).min(self.congestion.room(self.in_flight, W as u16))
    }

    /// Returns the credit with the segment `psn`, which was just pushed: nothing is queued after it.
    pub fn return_credit(&mut self, psn: Psn<BITS>) {
        self.drained = Some(psn);
        self.admitted = false;
        self.edge = Psn::default();
    }

    /// Takes the oldest lost segment whose posting is completed, to be resent.
    pub fn resend(&mut self, now: T::Instant, posting: Posting) -> Option<Segment<BITS>> {
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
        let cause = if entry.state & BY_PROBE != 0 { TxReason::ResentProbe } else { TxReason::ResentNack };
        entry.count = entry.count.wrapping_add(1) & T::COUNT_MASK;
        entry.stamp = T::stamp(now);
        entry.ticket = posting.ticket;
        entry.reorder_count = 0;
        entry.state = posted_on(posting.queue);
        let (piece, count) = (entry.reference, entry.count);
        self.append(i, posting.queue);
        if T::DETECT_MISBEHAVIOUR && offset == 0 {
            self.base_resends = self.base_resends.saturating_add(1);
        }
        self.lost = self.lost.wrapping_sub(1);
        self.in_flight = self.in_flight.wrapping_add(1);
        Some(Segment { psn: self.base.add(offset), reference: piece, count, reason: cause })
    }

    /// The parts carried by the oldest unacknowledged segment and all after it: the receiver has not delivered those
    /// acknowledged beyond a gap.
    pub fn unacknowledged(&self) -> impl Iterator<Item = SegmentRef> + '_ {
        let sent = self.next.since(self.base);
        let entries = (0..sent).filter_map(|offset| self.entries.get(usize::from(self.entry_at(offset))));
        let concerned = entries.skip_while(|entry| entry.state & ACKED != 0);
        concerned.filter(|entry| !mutant!("gap_forgiven") || entry.state & ACKED == 0).map(|entry| entry.reference)
    }

    /// The part that segment `psn` carries, if it is sent and not acknowledged.
    pub fn unacknowledged_at(&self, psn: Psn<BITS>) -> Option<SegmentRef> {
        let offset = psn.since(self.base);
        let entry = self.entries.get(usize::from(self.entry_at(offset))).filter(|entry| entry.state & ACKED == 0)?;
        (offset < self.next.since(self.base)).then_some(entry.reference)
    }

    /// Marks the segment `psn` for resending: the receiver asked for it.
    pub fn repair(&mut self, psn: Psn<BITS>) {
        if self.unacknowledged_at(psn).is_some() {
            let i = self.entry_at(psn.since(self.base));
            if self.entries.get(usize::from(i)).is_some_and(|entry| entry.state & LOST == 0) {
                self.mark_lost(i, 0);
            }
        }
    }

    /// The device has completed every posting on the queue up to `upto`.
    pub fn handle_completed(&mut self, queue: DeviceQueue, upto: Ticket) {
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

    fn mark_lost(&mut self, i: u16, by: u8) {
        if let Some(entry) = self.entries.get_mut(usize::from(i)) {
            entry.state = entry.state & POSTING | LOST | by;
            entry.reorder_count = 0;
            self.lost = self.lost.wrapping_add(1);
            self.in_flight = self.in_flight.wrapping_sub(1);
        }
    }

    /// Releases the oldest segment if it is acknowledged and its posting completed.
    pub fn release(&mut self) -> Option<SegmentRef> {
        self.release_parts(1).map(|(piece, _)| piece)
    }

    /// Releases the oldest segments that are acknowledged and completed, at most `most`, while they belong to one
    /// operation. Returns the part of the first one and their number.
    #[inline]
    pub(crate) fn release_parts(&mut self, most: u32) -> Option<(SegmentRef, u32)> {
        if mutant!("release_unfinished") {
            self.handle_completed(DeviceQueue::Polled, Ticket(1 << 30));
        }
        let most = most.min(self.next.since(self.base));
        let (mut i, mut count, mut first) = (self.head, 0_u32, SegmentRef::default());
        while count < most {
            let Some(entry) = self.entries.get_mut(usize::from(i)) else { break };
            let may = entry.state & (ACKED | POSTED) == ACKED;
            if count == 0 {
                first = entry.reference;
            }
            if !may || entry.reference.operation != first.operation {
                break;
            }
            *entry = Entry::FREE;
            i = if usize::from(i).wrapping_add(1) == W { 0 } else { i.wrapping_add(1) };
            count = count.wrapping_add(1);
        }
        if count == 0 {
            return None;
        }
        self.base_resends = 0;
        self.base = self.base.add(count);
        self.head = if self.is_empty() { 0 } else { i };
        Some((first, count))
    }

    /// Aborts the peer: every segment counts as acknowledged, and is released when its posting is completed.
    pub fn abort(&mut self) {
        let sent = self.next.since(self.base);
        let mut fresh = 0_u32;
        for offset in 0..sent {
            fresh = fresh.wrapping_add(self.acknowledge(offset));
        }
        self.detect_overtaken(fresh);
        self.disarm();
    }
}
