//! A send window's only timer: it sends a probe when no acknowledgement arrives.

use super::{ACKED, LOST, PROBED, PathParameters, Probe, SendWindow};
use crate::ids::Psn;
use crate::time::Time;

impl<T: Time, const W: usize, const BITS: u32> SendWindow<T, W, BITS> {
    /// Operations are queued: if the window does not admit them, the timer runs to probe for credit.
    pub fn handle_queued(&mut self, now: T::Instant, pace: &PathParameters) {
        if !self.has_room() && !mutant!("zero_credit_silent") {
            self.arm_if_idle(now, pace);
        }
    }

    /// Sends a probe if the peer stays silent for `units` of 64 ns, although nothing is outstanding.
    pub fn watch(&mut self, now: T::Instant, units: u32) {
        if self.deadline.is_none() {
            self.deadline = Some(T::after(now, units));
            self.watching = true;
        }
    }

    /// Handles a piggybacked acknowledgement up to `cumulative` that grants `credit`. If both are known already, this
    /// only restarts the watch for the peer's silence, while nothing is outstanding. Returns whether they are known.
    #[inline]
    pub fn is_redundant_ack(&mut self, now: T::Instant, cumulative: Psn<BITS>, credit: u16, units: u32) -> bool {
        let grants = match self.drained {
            Some(drained) => cumulative.is_after(drained),
            None if self.admitted => cumulative.add(u32::from(credit).min(W as u32)).is_after(self.edge),
            None => credit > 0,
        };
        let idle = self.watching && !self.probe_wanted && self.backoff == 0;
        let doubts = self.invalid_acks > 0 || self.is_contradicted();
        if cumulative != self.base || grants || doubts || !idle && self.is_acknowledged() {
            return false;
        }
        if idle {
            let deadline = T::after(now, units);
            // An earlier deadline has to be entered in the timer wheel.
            if self.deadline.is_some_and(|before| !T::is_due(deadline, before)) {
                return false;
            }
            self.deadline = Some(deadline);
        }
        self.handle_sign_of_life();
        true
    }

    /// Sends a probe at once, although nothing is outstanding.
    pub fn probe_now(&mut self, now: T::Instant, pace: &PathParameters) {
        self.probe_wanted = true;
        self.arm(now, pace);
    }

    /// Whether the timer runs for an acknowledgement.
    #[inline]
    pub(crate) const fn is_armed(&self) -> bool {
        self.deadline.is_some() && !self.watching
    }

    /// When [`handle_timeout`](Self::handle_timeout) has to be called next.
    pub const fn deadline(&self) -> Option<T::Instant> {
        self.deadline
    }

    /// Requests a probe and backs off if the deadline is reached. Returns whether it was.
    pub fn handle_timeout(&mut self, now: T::Instant, pace: &PathParameters) -> bool {
        if !self.deadline.is_some_and(|deadline| T::is_due(now, deadline)) {
            return false;
        }
        self.probe_wanted = true;
        self.backoff = self.backoff.saturating_add(1).min(T::MAX_BACKOFF);
        self.deadline = None;
        if !mutant!("probe_once") {
            self.arm(now, pace);
        }
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
        self.probe_number = self.probe_number.wrapping_add(1) & T::COUNT_MASK;
        let unanswered = self.unanswered;
        self.unanswered = unanswered.saturating_add(1).min(T::MAX_UNANSWERED);
        let mut i = self.first;
        while let Some(entry) = self.entries.get_mut(usize::from(i)) {
            if entry.state & (ACKED | LOST) == 0 {
                entry.state |= PROBED;
            }
            i = entry.after;
        }
        Some(Probe { psn: self.next, number: self.probe_number, unanswered })
    }

    /// A datagram of the peer's present incarnation arrived.
    pub const fn handle_sign_of_life(&mut self) {
        self.unanswered = 0;
    }

    pub(super) fn arm(&mut self, now: T::Instant, pace: &PathParameters) {
        self.deadline = Some(T::after(now, self.timeout(now, pace)));
        self.watching = false;
    }

    pub(super) fn arm_if_idle(&mut self, now: T::Instant, pace: &PathParameters) {
        if (self.deadline.is_none() || self.watching) && !mutant!("timer_unarmed") {
            self.arm(now, pace);
        }
    }

    /// Units of 64 ns until the next probe. The timeout counts from the latest posting, as a probe timeout does (RFC
    /// 9002, §6.2.1): until that posting is a round trip old its acknowledgement may still arrive; after that, at least
    /// the margin passes before the next probe.
    pub(super) fn timeout(&self, now: T::Instant, pace: &PathParameters) -> u32 {
        let timeout = self.rtt.timeout(pace.granularity);
        let patience = if self.is_acknowledged() { Self::ZERO_CREDIT_BACKOFF } else { 0 };
        let exponent = u32::from(self.backoff.saturating_add(patience).min(T::MAX_BACKOFF));
        let units = if exponent == 0 {
            let margin = timeout.saturating_sub(self.rtt.smoothed());
            let latest = self.entries.get(usize::from(self.last));
            let age = latest.and_then(|entry| T::since(now, entry.stamp)).unwrap_or(0);
            timeout.saturating_sub(age).max(margin)
        } else {
            let shifted = timeout.checked_shl(exponent).unwrap_or(0);
            if shifted >> exponent == timeout { shifted } else { u32::MAX }
        };
        if mutant!("longest_ignored") { units } else { units.min(pace.max_probe_interval) }
    }

    /// Whether a cumulative acknowledgement without echo arrived before a timeout would have been due: the path is no
    /// worse than measured. `false` while the congestion window is small, which grows by measurements only. `None` if
    /// the acknowledgement shows nothing: it is not new, it covers a resent segment, or no round trip was measured.
    #[inline]
    pub fn is_prompt(&self, now: T::Instant, cumulative: Psn<BITS>, pace: &PathParameters) -> Option<bool> {
        let newest = cumulative.since(self.base).wrapping_sub(1);
        let is_new = newest < self.next.since(self.base);
        let entry = self.entries.get(usize::from(self.entry_at(newest))).filter(|_| is_new)?;
        if entry.count != 0 || entry.state & (ACKED | LOST) != 0 || self.rtt.smoothed() == 0 {
            return None;
        }
        if !self.congestion.admits((W as u16).wrapping_sub(1), W as u16) {
            return Some(false);
        }
        T::since(now, entry.stamp).map(|since| since <= self.rtt.timeout(pace.granularity))
    }

    pub(super) fn disarm(&mut self) {
        self.deadline = None;
        self.watching = false;
        self.probe_wanted = false;
        self.backoff = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::SegmentRef;
    use super::*;
    use crate::device::{DeviceQueue, Posting, Ticket};
    use crate::time::Nanos;
    use crate::window::congestion::CongestionControl;
    use crate::wire::{Acknowledgement, Bitmap, Echo};

    type Window = SendWindow<Nanos, 8, 16>;

    const PACE: PathParameters =
        PathParameters { granularity: 100, max_probe_interval: 100_000, control: CongestionControl::Fixed };
    const UNITS: u32 = 1000;

    const fn posting(ticket: u32) -> Posting {
        Posting { queue: DeviceQueue::Polled, ticket: Ticket(ticket) }
    }

    fn acknowledgement(cumulative: u32, credit: u16) -> Acknowledgement<16> {
        let cumulative = Psn::new(cumulative);
        Acknowledgement { cumulative, credit, selective: Bitmap::EMPTY, echo: None, answers_probe: false, nack: false }
    }

    fn handle_piggybacked(window: &mut Window, now: u64, cumulative: u32, credit: u16) {
        window.handle_sign_of_life();
        window.handle_ack(now, &acknowledgement(cumulative, credit), false, &PACE);
        while window.release().is_some() {}
        if window.is_acknowledged() {
            window.watch(now, UNITS);
        }
    }

    #[test]
    fn redundant_ack_has_the_effect_of_its_acknowledgement() {
        let mut known = [0; 3];
        for (known, (sent, acknowledged, drains)) in known.iter_mut().zip([(3, 3, false), (3, 1, false), (3, 1, true)])
        {
            let mut window = Window::new(Psn::new(0));
            handle_piggybacked(&mut window, 0, 0, 6);
            for i in 0..sent {
                let piece = SegmentRef { operation: i, part: 0 };
                let segment = window.push(0, piece, posting(i + 1), &PACE).expect("six are granted");
                if drains && i + 1 == sent {
                    window.return_credit(segment.psn);
                }
            }
            window.handle_completed(DeviceQueue::Polled, Ticket(sent));
            handle_piggybacked(&mut window, 10_000, acknowledged, 4);
            for (cumulative, credit) in (0..6).flat_map(|cumulative| (0..8).map(move |credit| (cumulative, credit))) {
                let (mut short, mut long) = (window, window);
                if short.is_redundant_ack(1_000_000, Psn::new(cumulative), credit, UNITS) {
                    handle_piggybacked(&mut long, 1_000_000, cumulative, credit);
                    *known += 1;
                }
                assert_eq!(short, long, "{sent} {acknowledged} {cumulative} {credit}");
            }
        }
        // Of credits 0 to 7: those within the current credit; once it is returned, all of them.
        assert_eq!(known, [5, 6, 8]);
    }

    #[test]
    fn piggybacked_ack_is_timely_until_a_timeout_would_be_due() {
        let mut window = Window::new(Psn::new(0));
        let push = |window: &mut Window, now| {
            let posting = posting(window.next().get() + 1);
            window.push(now, SegmentRef::default(), posting, &PACE).expect("four are granted");
            window.handle_completed(posting.queue, posting.ticket);
        };
        handle_piggybacked(&mut window, 0, 0, 4);
        push(&mut window, 0);
        assert_eq!(window.is_prompt(64, Psn::new(1), &PACE), None, "no round trip measured");
        let echo = Some(Echo { psn: Psn::new(0), count: 0, hold: 0 });
        window.handle_ack(50 * 64, &Acknowledgement { echo, ..acknowledgement(1, 4) }, false, &PACE);
        while window.release().is_some() {}
        push(&mut window, 10_000 * 64);
        // The measured round trip is 50 units; the margin, which is at least 100, is four times the deviation.
        for (units, expected) in [(0, true), (150, true), (151, false)] {
            assert_eq!(window.is_prompt((10_000 + units) * 64, Psn::new(2), &PACE), Some(expected), "{units}");
        }
        for (cumulative, what) in [(1, "known"), (3, "never sent"), (0, "released")] {
            assert_eq!(window.is_prompt(10_000 * 64, Psn::new(cumulative), &PACE), None, "{what}");
        }
        let (whole, rtt) = (window.congestion, window.rtt);
        window.congestion.handle_loss(1 << 30, 1 << 20, &rtt, &CongestionControl::Delay { target: 1 }, 4);
        assert_eq!(window.is_prompt(10_000 * 64, Psn::new(2), &PACE), Some(false), "a small window needs measurements");
        window.congestion = whole;
        window.repair(Psn::new(1));
        assert_eq!(window.is_prompt(10_000 * 64, Psn::new(2), &PACE), None, "lost");
        assert!(window.resend(20_000 * 64, posting(3)).is_some());
        assert_eq!(window.is_prompt(20_000 * 64, Psn::new(2), &PACE), None, "sent twice: ambiguous which copy arrived");
    }
}
