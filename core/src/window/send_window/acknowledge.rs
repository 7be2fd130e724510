//! How a send window handles an acknowledgement: releases segments, finds lost ones, moves the credit edge.

use super::{Acknowledged, SendWindow};
use crate::ids::Psn;
use crate::path::Path;
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
        path: &mut Path<T>,
    ) -> Acknowledged {
        let sent = self.ring.len();
        let passed = ack.cumulative.since(self.ring.base);
        if passed > sent && !mutant!("stale_ack") {
            self.contradictions.handle_invalid_ack(now, path.timeout());
            return Acknowledged { stale: true, ..Acknowledged::default() };
        }
        let passed = if mutant!("stale_ack") { passed.min(sent) } else { passed };
        self.contradictions.handle_valid_ack();
        let mut outcome = Acknowledged::default();
        // The answer to a probe echoes the probe, whose PSN may have been used meanwhile.
        if let Some(echo) = ack.echo.as_ref().filter(|_| !ack.answers_probe) {
            self.sample_rtt(now, echo, &mut outcome, path);
        }
        let in_order = self.ring.acknowledge_first(passed);
        let mut fresh = 0_u32;
        for offset in in_order..passed {
            fresh = fresh.wrapping_add(self.ring.acknowledge(offset, &mut path.reordering));
        }
        for bit in ack.selective.iter() {
            let first = if mutant!("bitmap_shifted") { passed } else { passed.wrapping_add(1) };
            let offset = first.wrapping_add(bit);
            if offset < sent {
                fresh = fresh.wrapping_add(self.ring.acknowledge(offset, &mut path.reordering));
            }
        }
        let lost = self.ring.lost;
        if fresh > 0 {
            self.ring.detect_overtaken(fresh, &path.reordering);
        }
        outcome.segments = fresh.wrapping_add(in_order);
        let answered = ack.answers_probe && ack.echo.is_some_and(|echo| echo.count == self.timer.number());
        if answered && !mutant!("answer_ignored") {
            self.ring.detect_probe_losses();
        }
        if self.ring.lost > lost {
            path.handle_loss::<W>(now, outcome.round_trip);
        }
        if let Some(round_trip) = outcome.round_trip {
            path.handle_round_trip::<W>(now, round_trip);
        }
        self.credit.advance::<W>(ack.cumulative, ack.credit);
        // An answer that grants no credit, while nothing else is missing, is no progress: the waiting sender probes
        // ever more rarely (RFC 1122, §4.2.2.17), or the probes of waiting senders would crowd out the granted
        // segments.
        let progress = outcome.segments > 0 || answered && !self.is_acknowledged();
        if self.is_acknowledged() && (!is_queued || self.has_room(path)) {
            self.timer.disarm();
        } else if progress {
            self.timer.backoff = 0;
            self.arm(now, path);
        }
        outcome
    }

    /// Updates the path's reordering and round-trip estimate from the datagram that the acknowledgement echoes.
    fn sample_rtt(&self, now: T::Instant, echo: &Echo<BITS>, outcome: &mut Acknowledged, path: &mut Path<T>) {
        let Some(entry) = self.ring.get(echo.psn.since(self.ring.base)) else { return };
        if entry.is_acknowledged() {
            return;
        }
        if entry.count != echo.count {
            outcome.spurious = true;
            path.reordering.handle_spurious_repair::<W>();
            return;
        }
        if let Some(since) = T::since(now, entry.stamp)
            && echo.hold <= path.timeout()
        {
            let round_trip = since.saturating_sub(echo.hold);
            path.rtt.sample(round_trip);
            outcome.round_trip = Some(round_trip);
        }
        if entry.count != 0 {
            path.reordering.handle_needed_repair::<W>();
        }
    }

    /// Handles a piggybacked acknowledgement up to `cumulative` that grants `credit`. If both are known already, this
    /// only restarts the watch for the peer's silence, while nothing is outstanding. Returns whether they are known.
    #[inline]
    pub fn is_redundant_ack(&mut self, now: T::Instant, cumulative: Psn<BITS>, credit: u16, units: u32) -> bool {
        let is_watching = self.timer.is_watching();
        let has_doubts = self.contradictions.has_invalid_acks() || self.contradictions.is_proof();
        if cumulative != self.ring.base
            || self.credit.would_advance::<W>(cumulative, credit)
            || has_doubts
            || !is_watching && self.is_acknowledged()
            || is_watching && !self.timer.watch_longer(now, units)
        {
            return false;
        }
        self.timer.handle_sign_of_life();
        true
    }

    /// Whether a cumulative acknowledgement without echo arrived before a timeout would have been due: the path is no
    /// worse than measured. `false` while the congestion window is small, which grows by measurements only. `None` if
    /// the acknowledgement shows nothing: it is not new, it covers a resent segment, or no round trip was measured.
    #[inline]
    pub fn is_prompt(&self, now: T::Instant, cumulative: Psn<BITS>, path: &Path<T>) -> Option<bool> {
        let newest = cumulative.since(self.ring.base).wrapping_sub(1);
        let entry = self.ring.get(newest)?;
        if entry.count != 0 || !entry.is_in_flight() || path.rtt.smoothed() == 0 {
            return None;
        }
        if !path.congestion.admits((W as u16).wrapping_sub(1), W as u16) {
            return Some(false);
        }
        T::since(now, entry.stamp).map(|since| since <= path.timeout())
    }
}
