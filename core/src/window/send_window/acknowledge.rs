//! How a send window handles an acknowledgement: releases segments, finds lost ones, moves the credit edge.

use super::{Acknowledged, SendWindow};
use crate::ids::{Psn, Rail};
use crate::path::Path;
use crate::time::Time;
use crate::window::rails::{MAX_RAILS, RailChoice, RailMask, Rails, bit};
use crate::wire::{Acknowledgement, Echo};

impl<T: Time, const W: usize, const BITS: u32> SendWindow<T, W, BITS> {
    /// Handles an acknowledgement from the receiver, which came over the rail `from`. `is_queued`: operations are queued
    /// for this window, so that the timer runs even when every segment is acknowledged.
    pub fn handle_ack(
        &mut self,
        now: T::Instant,
        ack: &Acknowledgement<BITS>,
        is_queued: bool,
        from: Rail,
        rails: &mut Rails<'_, T>,
    ) -> Acknowledged {
        let sent = self.ring.len();
        let passed = ack.cumulative.since(self.ring.base);
        if passed > sent && !mutant!("stale_ack") {
            // Over the slower of several rails it may be late by any time.
            if rails.is_single() || !self.ring.base.is_after(ack.cumulative) {
                self.contradictions.handle_invalid_ack(now, rails.path(Rail(0)).timeout());
            }
            if !rails.is_single() && ack.answers_probe && !mutant!("late_answer_ignored") {
                // Overtaken by acknowledgements over other rails, it judges no segment; but the rail lives.
                let is_latest = ack.echo.is_some_and(|echo| self.is_latest_probe(from, &echo, rails));
                if rails.handle_answer(now, from, is_latest) & rails.dead() != 0 {
                    rails.request_probe(Some(from));
                }
            }
            return Acknowledged { stale: true, ..Acknowledged::default() };
        }
        let passed = if mutant!("stale_ack") { passed.min(sent) } else { passed };
        self.contradictions.handle_valid_ack();
        let mut outcome = Acknowledged::default();
        // The answer to a probe echoes the probe, whose PSN may have been used meanwhile.
        if let Some(echo) = ack.echo.as_ref().filter(|_| !ack.answers_probe) {
            self.sample_rtt(now, echo, &mut outcome, rails);
        }
        // Each rail counts its own.
        let in_order = if rails.is_single() { self.ring.acknowledge_first(passed) } else { 0 };
        let mut fresh = 0_u32;
        for offset in in_order..passed {
            fresh = fresh.wrapping_add(self.ring.acknowledge(offset, rails));
        }
        for bit in ack.selective.iter() {
            let first = if mutant!("bitmap_shifted") { passed } else { passed.wrapping_add(1) };
            let offset = first.wrapping_add(bit);
            if offset < sent {
                fresh = fresh.wrapping_add(self.ring.acknowledge(offset, rails));
            }
        }
        let lost = self.ring.lost;
        if fresh > 0 && rails.is_single() {
            self.ring.detect_overtaken(fresh, None, &rails.path(Rail(0)).reordering);
        } else if fresh > 0 {
            for rail in rails.all() {
                let overtaking = if mutant!("cross_rail_loss") { fresh } else { rails.fresh(rail) };
                let lost = self.ring.detect_overtaken(overtaking, Some(rail), &rails.path(rail).reordering);
                rails.handle_lost(rail, lost);
            }
        }
        outcome.segments = fresh.wrapping_add(in_order);
        let answered = ack.answers_probe && ack.echo.is_some_and(|echo| self.is_latest_probe(from, &echo, rails));
        if ack.answers_probe && !mutant!("answer_ignored") {
            if !rails.is_single() {
                let covered = rails.handle_answer(now, from, answered);
                self.handle_covered(covered, rails);
            } else if answered {
                self.ring.detect_probe_losses(None);
            }
        }
        if rails.is_single() {
            let path: &mut Path<T> = rails.path_mut(Rail(0));
            if self.ring.lost > lost {
                path.handle_loss::<W>(now, outcome.round_trip);
            }
            if let Some(round_trip) = outcome.round_trip {
                path.handle_round_trip::<W>(now, round_trip);
            }
        } else {
            rails.settle::<W>(now, outcome.round_trip.map(|round_trip| (outcome.echoed, round_trip)));
        }
        self.credit.advance::<W>(ack.cumulative, ack.credit);
        // An answer that grants no credit, while nothing else is missing, is no progress: the waiting sender probes
        // ever more rarely (RFC 1122, §4.2.2.17), or the probes of waiting senders would crowd out the granted
        // segments.
        let progress = outcome.segments > 0 || answered && !self.is_acknowledged();
        if self.is_acknowledged() && (!is_queued || self.has_room(rails, RailChoice::ANY)) {
            self.timer.disarm();
        } else if progress {
            self.timer.backoff = 0;
            self.arm(now, rails);
        }
        outcome
    }

    /// The answer to a probe judges the segments that these rails carried before it.
    pub(super) fn handle_covered(&mut self, covered: RailMask, rails: &mut Rails<'_, T>) {
        for rail in rails.all().filter(|rail| covered & bit(*rail) != 0) {
            let lost = self.ring.detect_probe_losses(Some(rail));
            rails.handle_lost(rail, lost);
        }
    }

    /// Whether the answer echoes the latest probe that was sent over the rail.
    fn is_latest_probe(&self, rail: Rail, echo: &Echo<BITS>, rails: &Rails<'_, T>) -> bool {
        if rails.is_single() {
            return echo.count == self.timer.number();
        }
        rails.is_latest_probe(rail, echo.count, echo.psn.get())
    }

    /// Updates the path's reordering and round-trip estimate from the datagram that the acknowledgement echoes.
    fn sample_rtt(&self, now: T::Instant, echo: &Echo<BITS>, outcome: &mut Acknowledged, rails: &mut Rails<'_, T>) {
        let Some(entry) = self.ring.get(echo.psn.since(self.ring.base)) else { return };
        if entry.is_acknowledged() {
            return;
        }
        let path = rails.path_mut(entry.rail);
        if MAX_RAILS > 1 {
            outcome.echoed = entry.rail;
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
