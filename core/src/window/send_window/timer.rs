//! When a send window probes its peer.

use super::{Probe, SendWindow};
use crate::path::Path;
use crate::time::Time;

impl<T: Time, const W: usize, const BITS: u32> SendWindow<T, W, BITS> {
    /// Operations are queued: if the window does not admit them, the timer runs to probe for credit.
    pub fn handle_queued(&mut self, now: T::Instant, path: &Path<T>) {
        if !self.has_room(path) && !mutant!("zero_credit_silent") {
            self.arm_if_idle(now, path);
        }
    }

    /// Sends a probe if the peer stays silent for `units` of 64 ns, although nothing is outstanding.
    pub fn watch(&mut self, now: T::Instant, units: u32) {
        self.timer.watch(now, units);
    }

    /// Sends a probe at once, although nothing is outstanding.
    pub fn probe_now(&mut self, now: T::Instant, path: &Path<T>) {
        self.timer.request_probe();
        self.arm(now, path);
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

    /// Requests a probe and backs off if the deadline is reached. Returns whether it was.
    pub fn handle_timeout(&mut self, now: T::Instant, path: &Path<T>) -> bool {
        let is_due = self.timer.expire(now);
        if is_due && !mutant!("probe_once") {
            self.arm(now, path);
        }
        is_due
    }

    /// Whether a probe is to be sent.
    pub const fn wants_probe(&self) -> bool {
        self.timer.wants_probe()
    }

    /// Takes the probe that is to be sent.
    pub fn probe(&mut self) -> Option<Probe<BITS>> {
        let (number, unanswered) = self.timer.take_probe()?;
        self.ring.mark_probed();
        Some(Probe { psn: self.ring.next, number, unanswered })
    }

    /// A datagram of the peer's present incarnation arrived.
    pub const fn handle_sign_of_life(&mut self) {
        self.timer.handle_sign_of_life();
    }

    pub(super) fn arm(&mut self, now: T::Instant, path: &Path<T>) {
        let units = self.timeout(now, path);
        self.timer.arm(now, units);
    }

    pub(super) fn arm_if_idle(&mut self, now: T::Instant, path: &Path<T>) {
        if !self.timer.is_armed() && !mutant!("timer_unarmed") {
            self.arm(now, path);
        }
    }

    /// Units of 64 ns until the next probe. The timeout counts from the latest posting, as a probe timeout does (RFC
    /// 9002, §6.2.1): until that posting is a round trip old its acknowledgement may still arrive; after that, at least
    /// the margin passes before the next probe.
    fn timeout(&self, now: T::Instant, path: &Path<T>) -> u32 {
        let timeout = path.timeout();
        let patience = if self.is_acknowledged() { Self::ZERO_CREDIT_BACKOFF } else { 0 };
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
