//! A send window's only timer: when nothing comes back, a probe asks.

use super::{ACKED, LOST, PROBED, Pace, Probe, SendWindow};
use crate::time::Time;

impl<T: Time, const W: usize, const BITS: u32> SendWindow<T, W, BITS> {
    /// Whether something is queued that the window does not admit; then it asks for credit.
    pub fn set_waiting(&mut self, now: T::Instant, waiting: bool, pace: &Pace) {
        self.waiting = waiting;
        #[cfg(not(mutant = "zero_credit_silent"))]
        if waiting && !self.has_room() {
            self.arm_if_idle(now, pace);
        }
    }

    /// Sends a probe when nothing is heard until `units` of 64 ns have passed, although nothing is outstanding.
    pub fn watch(&mut self, now: T::Instant, units: u32) {
        if self.deadline.is_none() {
            self.deadline = Some(T::after(now, units));
            self.watching = true;
        }
    }

    /// Asks for a probe at once, although nothing is outstanding.
    pub fn inquire(&mut self, now: T::Instant, pace: &Pace) {
        self.probe_wanted = true;
        self.arm(now, pace);
    }

    /// The moment at which [`handle_timeout`](Self::handle_timeout) has something to do.
    pub const fn deadline(&self) -> Option<T::Instant> {
        self.deadline
    }

    /// Time has come: asks for a probe when the deadline is reached, and backs off. Returns whether it was.
    pub fn handle_timeout(&mut self, now: T::Instant, pace: &Pace) -> bool {
        if !self.deadline.is_some_and(|deadline| T::is_due(now, deadline)) {
            return false;
        }
        self.probe_wanted = true;
        self.backoff = self.backoff.saturating_add(1).min(T::BACKOFF);
        self.deadline = None;
        #[cfg(not(mutant = "probe_once"))]
        self.arm(now, pace);
        true
    }

    /// Whether a probe is to be sent.
    pub const fn wants_probe(&self) -> bool {
        self.probe_wanted
    }

    /// Takes the probe that is to be sent.
    pub fn probe(&mut self) -> Option<Probe<BITS>> {
        if !self.probe_wanted {
            return None;
        }
        self.probe_wanted = false;
        self.probe_number = self.probe_number.wrapping_add(1) & T::COUNTS;
        let unanswered = self.unanswered;
        self.unanswered = unanswered.saturating_add(1).min(T::UNANSWERED);
        let mut i = self.first;
        while let Some(entry) = self.entries.get_mut(usize::from(i)) {
            if entry.state & (ACKED | LOST) == 0 {
                entry.state |= PROBED;
            }
            i = entry.after;
        }
        Some(Probe { psn: self.next, number: self.probe_number, unanswered })
    }

    /// Something of the peer's present life arrived.
    pub const fn handle_heard(&mut self) {
        self.unanswered = 0;
    }

    pub(super) fn arm(&mut self, now: T::Instant, pace: &Pace) {
        self.deadline = Some(T::after(now, self.timeout(now, pace)));
        self.watching = false;
    }

    pub(super) fn arm_if_idle(&mut self, now: T::Instant, pace: &Pace) {
        #[cfg(not(mutant = "timer_unarmed"))]
        if self.deadline.is_none() || self.watching {
            self.arm(now, pace);
        }
    }

    /// Units of 64 ns until the next probe. The timeout counts from the latest posting, as a probe timeout does (RFC 9002,
    /// §6.2.1): until that is a round trip old, its acknowledgement may still come, and then at least the margin is waited
    /// for the next one.
    pub(super) fn timeout(&self, now: T::Instant, pace: &Pace) -> u32 {
        let timeout = self.rtt.timeout(pace.granularity);
        let patience = if self.is_acknowledged() { Self::PATIENCE } else { 0 };
        let exponent = u32::from(self.backoff.saturating_add(patience).min(T::BACKOFF));
        let units = if exponent == 0 {
            let margin = timeout.saturating_sub(self.rtt.smoothed());
            let latest = self.entries.get(usize::from(self.last));
            let age = latest.and_then(|entry| T::since(now, entry.stamp)).unwrap_or(0);
            timeout.saturating_sub(age).max(margin)
        } else {
            let shifted = timeout.checked_shl(exponent).unwrap_or(0);
            if shifted >> exponent == timeout { shifted } else { u32::MAX }
        };
        #[cfg(not(mutant = "longest_ignored"))]
        let units = units.min(pace.longest);
        units
    }

    pub(super) fn disarm(&mut self) {
        self.deadline = None;
        self.watching = false;
        self.probe_wanted = false;
        self.backoff = 0;
    }
}
