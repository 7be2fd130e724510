//! The sending half of a sliding window (Koop et al. 2007, §4.2) with repair by send order.
//!
//! Segments are sent in PSN order and kept in a ring until they are acknowledged and completed. A hole is repaired after
//! segments that were sent later have been acknowledged; when no acknowledgement arrives, a header-only probe is sent.
//! The window knows no peer, and takes the [`Rails`] that it is sent over as a parameter.

mod acknowledge;
mod model;
#[cfg(test)]
mod tests;
mod timer;

use crate::device::{DeviceQueue, Posting, Ticket, TxReason};
use crate::ids::{Psn, Rail};
use crate::path::Path;
use crate::time::Time;
use crate::window::contradictions::Contradictions;
use crate::window::credit_edge::CreditEdge;
use crate::window::probe_timer::ProbeTimer;
use crate::window::rails::{RailChoice, Rails};
use crate::window::segment_ring::{Burst, Resend, SegmentRef, SegmentRing};

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
    /// The rail that it is sent over.
    pub rail: Rail,
}

/// A header-only probe to be posted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Probe<const BITS: u32> {
    /// The next unsent sequence number.
    pub psn: Psn<BITS>,
    /// Its number, modulo 4.
    pub number: u8,
    /// Unanswered probes of the peer before this one, at most [`Time::MAX_UNANSWERED`].
    pub unanswered: u8,
    /// The rail that it is sent over, and answered over.
    pub rail: Rail,
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
    /// The rail of that round trip.
    pub echoed: Rail,
    /// The acknowledgement is older than an earlier one, or covers a PSN that was never sent.
    pub stale: bool,
}

/// The send window: at most `W` segments that are sent and not yet released.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SendWindow<T: Time, const W: usize, const BITS: u32> {
    ring: SegmentRing<T, W, BITS>,
    credit: CreditEdge<BITS>,
    timer: ProbeTimer<T>,
    contradictions: Contradictions<T>,
}

impl<T: Time, const W: usize, const BITS: u32> SendWindow<T, W, BITS> {
    const FITS: () = assert!(
        W >= 1 && W <= 256 && (BITS > 9 || W < 1 << (BITS - 1)),
        "a window has 1 to 256 segments and less than half the sequence space"
    );
    /// Doublings of the timeout while only credit is missing: the probe then only guards against a lost grant.
    const ZERO_CREDIT_BACKOFF: u8 = 3;

    /// An empty window whose first segment will have the PSN `first`. Until credit arrives, one segment may be in
    /// flight.
    pub const fn new(first: Psn<BITS>) -> Self {
        let () = Self::FITS;
        Self {
            ring: SegmentRing::new(first),
            credit: CreditEdge::NoCredit,
            timer: ProbeTimer::IDLE,
            contradictions: Contradictions::NONE,
        }
    }

    /// Sets the PSN of the first segment of an unused window, in place: a new window would be copied.
    pub const fn set_first_psn(&mut self, first: Psn<BITS>) {
        self.ring.base = first;
        self.ring.next = first;
    }

    /// The PSN of the oldest segment that is not released.
    pub const fn base(&self) -> Psn<BITS> {
        self.ring.base
    }

    /// The PSN of the next new segment.
    pub const fn next(&self) -> Psn<BITS> {
        self.ring.next
    }

    /// Whether every segment is acknowledged and released.
    pub const fn is_empty(&self) -> bool {
        self.ring.len() == 0
    }

    /// Whether every segment is acknowledged; the device may not have completed all postings.
    pub const fn is_acknowledged(&self) -> bool {
        self.ring.is_acknowledged()
    }

    /// Probes sent since the peer last answered, at most [`Time::MAX_UNANSWERED`].
    pub const fn unanswered(&self) -> u8 {
        self.timer.unanswered()
    }

    /// Whether the peer's acknowledgements contradict what was sent to it: it does not acknowledge the oldest segment
    /// although that was resent 255 times, or it acknowledges released or unsent PSNs 16 times in a row, each a timeout
    /// after the one before, so that they are not late datagrams. Over several rails only those of unsent PSNs count.
    /// Models, whose time is abstract, do not count.
    pub const fn is_contradicted(&self) -> bool {
        self.contradictions.is_proof()
    }

    /// Whether the latest acknowledgement was of PSNs that are not outstanding.
    pub const fn has_invalid_acks(&self) -> bool {
        self.contradictions.has_invalid_acks()
    }

    /// Whether the device has not completed some posting.
    pub const fn is_posted(&self) -> bool {
        self.ring.is_posted()
    }

    /// Whether a new segment may be sent: window, credit and a rail have room.
    #[inline]
    pub fn has_room(&self, rails: &Rails<'_, T>, choice: RailChoice) -> bool {
        match rails.single() {
            Some(path) => self.has_room_on(path),
            None => self.is_admissible() && rails.choose::<W>(choice).is_some(),
        }
    }

    /// As [`has_room`](Self::has_room), with one rail.
    fn has_room_on(&self, path: &Path<T>) -> bool {
        self.is_admissible() && path.congestion.admits(self.ring.in_flight, W as u16)
    }

    /// Whether window and credit have room.
    #[inline]
    fn is_admissible(&self) -> bool {
        let size = if mutant!("window_overfull") { W.saturating_add(1) } else { W };
        let is_granted = match self.credit {
            CreditEdge::At(_) => self.credit.left::<W>(self.ring.next) > 0,
            CreditEdge::NoCredit | CreditEdge::Returned(_) => self.is_acknowledged(),
        };
        (self.ring.len() as usize) < size && is_granted
    }

    /// Whether the sender holds credit that it has not returned.
    pub const fn is_admitted(&self) -> bool {
        self.credit.is_admitted()
    }

    /// Whether a segment has to be resent.
    pub const fn has_lost(&self) -> bool {
        self.ring.lost > 0
    }

    /// Whether the credit left after the next segment is so small that an idle sender should return it.
    pub fn is_credit_low(&self) -> bool {
        self.credit.is_low::<W>(self.ring.next)
    }

    /// Adds a new segment to the window. `None` without room.
    pub fn push(
        &mut self,
        now: T::Instant,
        reference: SegmentRef,
        posting: Posting,
        rails: &mut Rails<'_, T>,
        choice: RailChoice,
    ) -> Option<Segment<BITS>> {
        if !self.has_room(rails, choice) {
            return None;
        }
        let rail = if rails.is_single() { Rail(0) } else { rails.choose::<W>(choice)? };
        let psn = self.ring.push(T::stamp(now), reference, posting, rail)?;
        if !rails.is_single() {
            rails.handle_posted(now, rail);
        }
        self.arm_if_idle(now, rails);
        Some(Segment { psn, reference, count: 0, reason: TxReason::First, rail })
    }

    /// As [`push`](Self::push), where [`burst_room`](Self::burst_room) is known to suffice.
    #[inline]
    pub(crate) fn push_unchecked(
        &mut self,
        stamp: T::Stamp,
        reference: SegmentRef,
        posting: Posting,
    ) -> Option<Psn<BITS>> {
        self.ring.push(stamp, reference, posting, Rail(0))
    }

    /// A lower bound of the new segments that may be pushed in a burst over the only rail: 0 if a resend or a probe comes
    /// first, or if the timer does not run.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    pub(crate) fn burst_room(&self, path: &Path<T>) -> u32 {
        if self.ring.lost > 0 || self.timer.wants_probe() || !self.timer.is_armed() {
            return 0;
        }
        let fits = (W as u32).saturating_sub(self.ring.len());
        fits.min(self.credit.left::<W>(self.ring.next)).min(path.congestion.room(self.ring.in_flight, W as u16))
    }

    /// An empty burst after the last segment, to be posted on the queue.
    #[inline]
    pub(crate) fn burst(&self, queue: DeviceQueue) -> Burst<BITS> {
        self.ring.burst(queue)
    }

    /// As [`push_unchecked`](Self::push_unchecked), for a segment that is committed later.
    #[inline(always)]
    pub(crate) fn push_burst(
        &mut self,
        burst: &mut Burst<BITS>,
        stamp: T::Stamp,
        reference: SegmentRef,
        ticket: Ticket,
    ) -> Option<Psn<BITS>> {
        self.ring.push_burst(burst, stamp, reference, ticket)
    }

    /// Commits the burst to the window; the burst is empty afterwards.
    pub(crate) fn commit(&mut self, burst: &mut Burst<BITS>) {
        self.ring.commit(burst);
    }

    /// Returns the credit with the segment `psn`, which was just pushed: nothing is queued after it.
    pub const fn return_credit(&mut self, psn: Psn<BITS>) {
        self.credit = CreditEdge::Returned(psn);
    }

    /// Takes the oldest lost segment whose posting is completed, to be resent.
    pub fn resend(&mut self, now: T::Instant, posting: Posting, rails: &mut Rails<'_, T>) -> Option<Segment<BITS>> {
        let rail = if rails.is_single() { Rail(0) } else { rails.choose_for_resend() };
        let Resend { offset, reference, count, by_probe } = self.ring.resend(T::stamp(now), posting, rail)?;
        if !rails.is_single() {
            rails.handle_posted(now, rail);
        }
        if offset == 0 {
            self.contradictions.handle_base_resend();
        }
        let reason = if by_probe { TxReason::ResentProbe } else { TxReason::ResentNack };
        Some(Segment { psn: self.ring.base.add(offset), reference, count, reason, rail })
    }

    /// The parts carried by the oldest unacknowledged segment and all after it: the receiver has not delivered those
    /// acknowledged beyond a gap.
    pub fn undelivered(&self) -> impl Iterator<Item = SegmentRef> + '_ {
        self.ring.undelivered()
    }

    /// The part that segment `psn` carries, if it is sent and not acknowledged.
    pub fn unacknowledged_at(&self, psn: Psn<BITS>) -> Option<SegmentRef> {
        self.ring.unacknowledged_at(psn)
    }

    /// Marks the segment `psn` for resending: the receiver asked for it.
    pub fn request_resend(&mut self, psn: Psn<BITS>, rails: &mut Rails<'_, T>) {
        if self.unacknowledged_at(psn).is_some()
            && let Some(rail) = self.ring.request_resend(psn.since(self.ring.base))
        {
            rails.handle_lost(rail, 1);
        }
    }

    /// The device has completed every posting on the queue up to `upto`.
    pub fn handle_completed(&mut self, queue: DeviceQueue, upto: Ticket) {
        self.ring.handle_completed(queue, upto);
    }

    /// Releases the oldest segment if it is acknowledged and its posting completed.
    pub fn release(&mut self) -> Option<SegmentRef> {
        self.release_parts(1).map(|(piece, _)| piece)
    }

    /// Releases the oldest segments that are acknowledged and completed, at most `most`, while they belong to one
    /// operation. Returns the part of the first one and their number.
    #[inline]
    pub(crate) fn release_parts(&mut self, most: u32) -> Option<(SegmentRef, u32)> {
        let released = self.ring.release(most)?;
        self.contradictions.handle_release();
        Some(released)
    }

    /// Aborts the peer: every segment counts as acknowledged, and is released when its posting is completed.
    pub fn abort(&mut self, rails: &mut Rails<'_, T>) {
        let mut fresh = 0_u32;
        for offset in 0..self.ring.len() {
            fresh = fresh.wrapping_add(self.ring.acknowledge(offset, rails));
        }
        self.ring.detect_overtaken(fresh, None, &rails.path(Rail(0)).reordering);
        self.timer.disarm();
        if !rails.is_single() {
            rails.handle_abort();
        }
    }
}
