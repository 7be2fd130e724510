//! How a send window handles an acknowledgement: releases segments, finds lost ones, moves the credit edge.

use super::{ACKED, Acknowledged, BY_PROBE, FRESH, LOST, NONE, POSTED, POSTING, PROBED, PathParameters, SendWindow};
use crate::time::Time;
use crate::wire::{Acknowledgement, Echo};

impl<T: Time, const W: usize, const BITS: u32> SendWindow<T, W, BITS> {
    /// Handles an acknowledgement from the receiver. `is_queued`: operations are queued for this window, so that the
    /// timer runs even when every segment is acknowledged.
    pub fn handle_ack(
        &mut self,
        now: T::Instant,
        ack: &Acknowledgement<BITS>,
        is_queued: bool,
        pace: &PathParameters,
    ) -> Acknowledged {
        let sent = self.next.since(self.base);
        let passed = ack.cumulative.since(self.base);
        if passed > sent && !mutant!("stale_ack") {
            self.count_invalid_ack(now, pace);
            return Acknowledged { stale: true, ..Acknowledged::default() };
        }
        let passed = if mutant!("stale_ack") { passed.min(sent) } else { passed };
        self.invalid_acks = 0;
        let mut outcome = Acknowledged::default();
        // The answer to a probe echoes the probe, whose PSN may have been used meanwhile.
        if let Some(echo) = ack.echo.as_ref().filter(|_| !ack.answers_probe) {
            self.sample_rtt(now, echo, &mut outcome, pace);
        }
        let in_order = self.acknowledge_first(passed);
        for offset in in_order..passed {
            outcome.segments = outcome.segments.wrapping_add(self.acknowledge(offset));
        }
        for bit in ack.selective.iter() {
            let first = if mutant!("bitmap_shifted") { passed } else { passed.wrapping_add(1) };
            let offset = first.wrapping_add(bit);
            if offset < sent {
                outcome.segments = outcome.segments.wrapping_add(self.acknowledge(offset));
            }
        }
        let lost = self.lost;
        if outcome.segments > 0 {
            self.detect_overtaken(outcome.segments);
        }
        outcome.segments = outcome.segments.wrapping_add(in_order);
        let answered = ack.answers_probe && ack.echo.is_some_and(|echo| echo.count == self.probe_number);
        if answered && !mutant!("answer_ignored") {
            self.detect_probe_losses();
        }
        if self.lost > lost {
            let delay = outcome.round_trip.unwrap_or_else(|| self.rtt.smoothed());
            self.congestion.handle_loss(now, delay, &self.rtt, &pace.control, W as u16);
        }
        if let Some(round_trip) = outcome.round_trip {
            self.congestion.handle_round_trip(now, round_trip, &self.rtt, &pace.control, W as u16);
        }
        self.advance_credit_edge(ack);
        // An answer that grants no credit, while nothing else is missing, is no progress: the waiting sender probes
        // ever more rarely (RFC 1122, §4.2.2.17), or the probes of waiting senders would crowd out the granted
        // segments.
        let progress = outcome.segments > 0 || answered && !self.is_acknowledged();
        if self.is_acknowledged() && (!is_queued || self.has_room()) {
            self.disarm();
        } else if progress {
            self.backoff = 0;
            self.arm(now, pace);
        }
        outcome
    }

    pub(super) fn count_invalid_ack(&mut self, now: T::Instant, pace: &PathParameters) {
        let timeout = self.rtt.timeout(pace.granularity);
        let due =
            self.invalid_acks == 0 || T::since(now, self.invalid_acks_since).is_some_and(|since| since >= timeout);
        if T::DETECT_MISBEHAVIOUR && due {
            self.invalid_acks = self.invalid_acks.saturating_add(1);
            self.invalid_acks_since = T::stamp(now);
        }
    }

    /// Updates the reorder allowance and the round-trip estimate from the datagram that the acknowledgement echoes.
    pub(super) fn sample_rtt(
        &mut self,
        now: T::Instant,
        echo: &Echo<BITS>,
        outcome: &mut Acknowledged,
        pace: &PathParameters,
    ) {
        let offset = echo.psn.since(self.base);
        if offset >= self.next.since(self.base) {
            return;
        }
        let i = self.entry_at(offset);
        let Some(entry) = self.entries.get(usize::from(i)) else { return };
        if entry.state & ACKED != 0 {
            return;
        }
        if entry.count == echo.count {
            if let Some(since) = T::since(now, entry.stamp) {
                let round_trip = since.saturating_sub(echo.hold);
                if echo.hold <= self.rtt.timeout(pace.granularity) {
                    self.rtt.sample(round_trip);
                    outcome.round_trip = Some(round_trip);
                }
            }
            if entry.count != 0 && self.allowance > 0 {
                self.repairs = self.repairs.wrapping_add(1);
                if usize::from(self.repairs) >= W {
                    self.repairs = 0;
                    self.allowance = self.allowance.saturating_sub(1).max(self.reordered);
                    self.reordered = 0;
                }
            }
        } else {
            outcome.spurious = true;
            self.repairs = 0;
            self.allowance = self.allowance.saturating_add(1).min(Self::MAX_ALLOWANCE);
        }
    }

    /// Acknowledges up to `passed` segments from the base, while they are also first in the posting list and completed:
    /// nothing was sent before them, so they overtook nothing. Returns their number.
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

    /// Acknowledges the segment at `offset` from the base. Returns 1 if it was not acknowledged before.
    pub(super) fn acknowledge(&mut self, offset: u32) -> u32 {
        let i = self.entry_at(offset);
        let Some(entry) = self.entries.get_mut(usize::from(i)) else { return 0 };
        if entry.state & ACKED != 0 {
            return 0;
        }
        if entry.state & LOST != 0 {
            self.lost = self.lost.wrapping_sub(1);
        } else {
            self.in_flight = self.in_flight.wrapping_sub(1);
            self.reordered = self.reordered.max(entry.reorder_count);
        }
        entry.state = entry.state & POSTING | ACKED | FRESH;
        // An acknowledged entry keeps no repair state, so that equal states compare equal.
        entry.reorder_count = 0;
        entry.count = 0;
        1
    }

    /// Walks the list up to the last of `fresh` newly acknowledged segments and unlinks them; a segment that they
    /// overtook more often than the allowance is lost.
    pub(super) fn detect_overtaken(&mut self, fresh: u32) {
        let mut left = fresh;
        let mut i = self.first;
        while left > 0 {
            let Some(entry) = self.entries.get_mut(usize::from(i)) else { break };
            let after = entry.after;
            if entry.state & FRESH != 0 {
                left = left.wrapping_sub(1);
                entry.state &= !FRESH;
                if entry.state & POSTED == 0 {
                    self.unlink(i);
                }
            } else if entry.state & (ACKED | LOST) == 0 {
                let overtaken = u32::from(entry.reorder_count).saturating_add(left);
                entry.reorder_count = overtaken.min(u32::from(Self::MAX_ALLOWANCE).wrapping_add(1)) as u16;
                if entry.reorder_count > self.allowance {
                    self.mark_lost(i, 0);
                }
            }
            i = after;
        }
    }

    /// The latest probe was answered: segments sent before it and not acknowledged are lost.
    pub(super) fn detect_probe_losses(&mut self) {
        let mut i = self.first;
        while let Some(entry) = self.entries.get(usize::from(i)) {
            let after = entry.after;
            if entry.state & (PROBED | ACKED | LOST) == PROBED {
                self.mark_lost(i, BY_PROBE);
            }
            i = after;
        }
    }

    /// Credit is an absolute edge that only moves forward; credit granted before a drained segment is void.
    pub(super) fn advance_credit_edge(&mut self, ack: &Acknowledgement<BITS>) {
        if let Some(drained) = self.drained {
            if !ack.cumulative.is_after(drained) {
                return;
            }
            self.drained = None;
            self.admitted = false;
        }
        if ack.credit == 0 && !self.admitted {
            return;
        }
        let edge = ack.cumulative.add(u32::from(ack.credit).min(W as u32));
        if !self.admitted || edge.is_after(self.edge) {
            self.edge = edge;
        }
        self.admitted = true;
    }
}
