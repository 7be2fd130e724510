//! A send window's only timer: it asks for a probe when no acknowledgement arrives.

use crate::path::Path;
use crate::time::Time;

/// What the timer waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Deadline<I> {
    None,
    /// For an acknowledgement of what is outstanding.
    Probe(I),
    /// For any datagram of a peer that owes nothing.
    Watch(I),
}

/// Units of 64 ns until the next probe, after `exponent` doublings. The timeout counts from the latest posting, which was
/// `age` ago, as a probe timeout does (RFC 9002, §6.2.1): until that posting is a round trip old its acknowledgement may
/// still arrive; after that, at least the margin passes before the next probe.
#[inline]
pub(super) fn timeout<T: Time>(path: &Path<T>, exponent: u8, age: impl FnOnce() -> u32) -> u32 {
    let timeout = path.timeout();
    let exponent = u32::from(exponent.min(T::MAX_BACKOFF));
    let units = if exponent == 0 {
        let margin = timeout.saturating_sub(path.rtt.smoothed());
        timeout.saturating_sub(age()).max(margin)
    } else {
        let shifted = timeout.checked_shl(exponent).unwrap_or(0);
        if shifted >> exponent == timeout { shifted } else { u32::MAX }
    };
    if mutant!("longest_ignored") { units } else { units.min(path.parameters.max_probe_interval) }
}

/// The timer, and the probes that it asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct ProbeTimer<T: Time> {
    deadline: Deadline<T::Instant>,
    /// Doublings of the timeout.
    pub(super) backoff: u8,
    wanted: bool,
    /// The latest probe's number.
    number: u8,
    unanswered: u8,
}

impl<T: Time> ProbeTimer<T> {
    pub(super) const IDLE: Self =
        Self { deadline: Deadline::None, backoff: 0, wanted: false, number: 0, unanswered: 0 };

    /// When the timer expires.
    pub(super) const fn deadline(&self) -> Option<T::Instant> {
        match self.deadline {
            Deadline::None => None,
            Deadline::Probe(at) | Deadline::Watch(at) => Some(at),
        }
    }

    /// Whether it runs for an acknowledgement.
    #[inline]
    pub(super) const fn is_armed(&self) -> bool {
        matches!(self.deadline, Deadline::Probe(_))
    }

    /// Whether it only watches the peer, which answered the latest probe.
    pub(super) const fn is_watching(&self) -> bool {
        matches!(self.deadline, Deadline::Watch(_)) && !self.wanted && self.backoff == 0
    }

    /// Waits for an acknowledgement for `units` of 64 ns.
    pub(super) fn arm(&mut self, now: T::Instant, units: u32) {
        self.deadline = Deadline::Probe(T::after(now, units));
    }

    /// Watches the peer for `units` of 64 ns, unless the timer runs.
    pub(super) fn watch(&mut self, now: T::Instant, units: u32) {
        if matches!(self.deadline, Deadline::None) {
            self.deadline = Deadline::Watch(T::after(now, units));
        }
    }

    /// Begins the watch anew. Returns false, without effect, if the deadline would come nearer: it would have to be
    /// entered in the timer wheel.
    pub(super) fn watch_longer(&mut self, now: T::Instant, units: u32) -> bool {
        let deadline = T::after(now, units);
        let comes_nearer = self.deadline().is_some_and(|before| !T::is_due(deadline, before));
        if !comes_nearer {
            self.deadline = Deadline::Watch(deadline);
        }
        !comes_nearer
    }

    /// Asks for a probe if the deadline has passed. Returns whether it has.
    pub(super) fn expire(&mut self, now: T::Instant) -> bool {
        if !self.deadline().is_some_and(|deadline| T::is_due(now, deadline)) {
            return false;
        }
        self.wanted = true;
        self.backoff = self.backoff.saturating_add(1).min(T::MAX_BACKOFF);
        self.deadline = Deadline::None;
        true
    }

    /// Waits for at least `units` of 64 ns from now on, if it runs.
    pub(super) fn extend(&mut self, now: T::Instant, units: u32) {
        let deadline = T::after(now, units);
        if self.deadline().is_some_and(|before| !T::is_due(before, deadline)) {
            self.deadline = Deadline::Probe(deadline);
        }
    }

    /// Asks for a probe.
    pub(super) const fn request_probe(&mut self) {
        self.wanted = true;
    }

    pub(super) const fn wants_probe(&self) -> bool {
        self.wanted
    }

    /// Takes the probe that was asked for: its number, and how many before it are unanswered.
    pub(super) fn take_probe(&mut self) -> Option<(u8, u8)> {
        if !self.wanted {
            return None;
        }
        self.wanted = false;
        self.number = self.number.wrapping_add(1) & T::COUNT_MASK;
        let unanswered = self.unanswered;
        self.unanswered = unanswered.saturating_add(1).min(T::MAX_UNANSWERED);
        Some((self.number, unanswered))
    }

    /// The number of the latest probe.
    pub(super) const fn number(&self) -> u8 {
        self.number
    }

    /// Probes sent since the peer last answered, at most [`Time::MAX_UNANSWERED`].
    pub(super) const fn unanswered(&self) -> u8 {
        self.unanswered
    }

    /// A datagram of the peer arrived.
    pub(super) const fn handle_sign_of_life(&mut self) {
        self.unanswered = 0;
    }

    pub(super) const fn disarm(&mut self) {
        self.deadline = Deadline::None;
        self.wanted = false;
        self.backoff = 0;
    }

    /// Numbers the latest probe 0, for models whose numbers are relative.
    pub(super) const fn with_numbers_from_latest(mut self) -> Self {
        self.number = 0;
        self
    }

    /// Shifts the deadline, for models whose time is relative.
    pub(super) fn with_deadline(mut self, shift: impl Fn(T::Instant) -> T::Instant) -> Self {
        self.deadline = match self.deadline {
            Deadline::None => Deadline::None,
            Deadline::Probe(at) => Deadline::Probe(shift(at)),
            Deadline::Watch(at) => Deadline::Watch(shift(at)),
        };
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::PathParameters;
    use crate::time::Nanos;
    use crate::window::congestion::CongestionControl;

    #[test]
    fn the_first_timeout_counts_from_the_posting_and_later_ones_double() {
        let control = CongestionControl::Fixed;
        let mut path = Path::<Nanos>::new(PathParameters { granularity: 100, max_probe_interval: 10_000, control });
        path.rtt.sample(400);
        let (whole, margin) = (path.timeout(), path.timeout() - path.rtt.smoothed());
        let after = |exponent, age| timeout(&path, exponent, || age);
        assert_eq!([0, 100, whole].map(|age| after(0, age)), [whole, whole - 100, margin]);
        assert_eq!([1, 2, 10].map(|exponent| after(exponent, 100)), [2 * whole, 4 * whole, 10_000]);
    }
}
