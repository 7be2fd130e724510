//! When a send window probes its peer.

use super::{Probe, SendWindow};
use crate::ids::Rail;
use crate::path::Path;
use crate::time::Time;
use crate::window::rails::{RailChoice, Rails};

impl<T: Time, const W: usize, const BITS: u32> SendWindow<T, W, BITS> {
    /// Operations are queued: if the window does not admit the next segment, the timer runs to probe for credit.
    pub fn handle_queued(&mut self, now: T::Instant, rails: &Rails<'_, T>, choice: RailChoice) {
        if !self.has_room(rails, choice) && !mutant!("zero_credit_silent") {
            self.arm_if_idle(now, rails);
        }
    }

    /// Sends a probe if the peer stays silent for `units` of 64 ns, although nothing is outstanding.
    pub fn watch(&mut self, now: T::Instant, units: u32) {
        self.timer.watch(now, units);
    }

    /// Sends a probe at once, although nothing is outstanding.
    pub fn probe_now(&mut self, now: T::Instant, rails: &Rails<'_, T>) {
        self.timer.request_probe();
        self.arm(now, rails);
    }

    /// Whether the timer runs for an acknowledgement.
    #[inline]
    pub(crate) const fn is_armed(&self) -> bool {
        self.timer.is_armed()
    }

    /// When [`handle_timeout`](Self::handle_timeout) has to be called next.
    pub const fn deadline(&self) -> Option<T::Instant> {
        self.timer.deadline()
    }

    /// The earliest of the window's and its rails' deadlines.
    pub fn next_deadline(&self, rails: &Rails<'_, T>) -> Option<T::Instant> {
        if rails.is_single() { self.deadline() } else { rails.next_deadline(self.deadline()) }
    }

    /// Requests a probe and backs off if the deadline is reached. Returns whether it was, or that of some rail.
    pub fn handle_timeout(&mut self, now: T::Instant, rails: &mut Rails<'_, T>) -> bool {
        let is_due = self.timer.expire(now);
        if is_due && !mutant!("probe_once") {
            self.arm(now, rails);
        }
        if rails.is_single() {
            return is_due;
        }
        let is_due = rails.handle_timeout(now) || is_due;
        if mutant!("arrived_sent_again") {
            self.ring.mark_probed(Some(rails.dead()));
            self.handle_covered(rails.dead(), rails);
        }
        is_due
    }

    /// Whether a probe is to be sent.
    pub fn wants_probe(&self, rails: &Rails<'_, T>) -> bool {
        self.timer.wants_probe() || !rails.is_single() && rails.wants_probe()
    }

    /// Takes the next probe that is to be sent.
    pub fn probe(&mut self, now: T::Instant, rails: &mut Rails<'_, T>) -> Option<Probe<BITS>> {
        let psn = self.ring.next;
        if rails.is_single() {
            let (number, unanswered) = self.timer.take_probe()?;
            self.ring.mark_probed(None);
            return Some(Probe { psn, number, unanswered, rail: Rail(0) });
        }
        // The peer is silent if no rail is answered.
        let unanswered = self.timer.take_probe().map(|(_, unanswered)| unanswered);
        if unanswered.is_some() {
            rails.request_probe(None);
        }
        let (rail, number, covered) = rails.take_probe(now, psn.get())?;
        self.ring.mark_probed(Some(covered));
        Some(Probe { psn, number, unanswered: unanswered.unwrap_or(1), rail })
    }

    /// A datagram of the peer's present incarnation arrived.
    pub const fn handle_sign_of_life(&mut self) {
        self.timer.handle_sign_of_life();
    }

    /// Runs the timer. Several rails have timers of their own for their segments: this one then waits for longer.
    #[inline]
    pub(super) fn arm(&mut self, now: T::Instant, rails: &Rails<'_, T>) {
        match rails.single() {
            Some(path) => self.arm_on(now, path, 0),
            None => self.arm_on(now, rails.slowest(), 1),
        }
    }

    /// Runs the timer for a timeout of the path, doubled that number of times and once per expiry.
    fn arm_on(&mut self, now: T::Instant, path: &Path<T>, doublings: u8) {
        let units = self.timeout(now, path, doublings);
        self.timer.arm(now, units);
    }

    pub(super) fn arm_if_idle(&mut self, now: T::Instant, rails: &Rails<'_, T>) {
        if !self.timer.is_armed() && !mutant!("timer_unarmed") {
            self.arm(now, rails);
        }
    }

    /// Units of 64 ns until the next probe. The timeout counts from the latest posting, as a probe timeout does (RFC
    /// 9002, §6.2.1): until that posting is a round trip old its acknowledgement may still arrive; after that, at least
    /// the margin passes before the next probe.
    fn timeout(&self, now: T::Instant, path: &Path<T>, doublings: u8) -> u32 {
        let timeout = path.timeout();
        let patience = if self.is_acknowledged() { Self::ZERO_CREDIT_BACKOFF } else { doublings };
        let exponent = u32::from(self.timer.backoff.saturating_add(patience).min(T::MAX_BACKOFF));
        let units = if exponent == 0 {
            let margin = timeout.saturating_sub(path.rtt.smoothed());
            let age = self.ring.latest().and_then(|entry| T::since(now, entry.stamp)).unwrap_or(0);
            timeout.saturating_sub(age).max(margin)
        } else {
            let shifted = timeout.checked_shl(exponent).unwrap_or(0);
            if shifted >> exponent == timeout { shifted } else { u32::MAX }
        };
        if mutant!("longest_ignored") { units } else { units.min(path.parameters.max_probe_interval) }
    }
}
