//! The congestion window: fixed on lossless fabrics, delay-based elsewhere.
//!
//! The delay-based controller follows TIMELY (SIGCOMM 2015) and Swift (SIGCOMM 2020, §3): below a target delay the
//! window grows by at least one segment per round trip; above it the window shrinks in proportion to the excess, at
//! most once per round trip. Loss alone is repaired and not penalized; loss with a delay above the target halves the
//! window, which counts as that round trip's decrease (Swift, algorithm 1, fast recovery).

use crate::time::Time;
use crate::window::rtt::Rtt;

/// How the window changes; the same for all peers of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CongestionControl {
    /// Always the whole send window.
    #[default]
    Fixed,
    /// Delay-based.
    Delay {
        /// Target delay above the minimum round trip, in units of 64 ns.
        target: u32,
    },
}

impl CongestionControl {
    /// The target delay above the minimum round trip, in units of 64 ns; zero for a fixed window.
    pub(super) const fn target(self) -> u32 {
        match self {
            Self::Fixed => 0,
            Self::Delay { target } => target,
        }
    }
}

/// The congestion window of one peer, in 1/256 segments.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Congestion<T: Time> {
    /// Zero: not limited yet.
    window: u32,
    /// When it last shrank.
    shrunk: T::Stamp,
}

impl<T: Time> Congestion<T> {
    /// Not limited.
    pub const NEW: Self = Self { window: 0, shrunk: T::ZERO };

    /// Whether another segment may be in flight.
    #[inline]
    pub const fn admits(&self, in_flight: u16, _full: u16) -> bool {
        self.window == 0 || (in_flight as u32) << 8 < self.window
    }

    /// How many more segments [may](Self::admits) be in flight, at most `full`.
    pub(crate) const fn room(&self, in_flight: u16, full: u16) -> u32 {
        let most = if self.window == 0 { full as u32 } else { self.window.div_ceil(256) };
        most.saturating_sub(in_flight as u32)
    }

    /// Handles a measured round trip, in units of 64 ns.
    pub fn handle_round_trip(
        &mut self,
        now: T::Instant,
        units: u32,
        rtt: &Rtt,
        control: &CongestionControl,
        full: u16,
    ) {
        let CongestionControl::Delay { target } = *control else { return };
        let full = u32::from(full) << 8;
        let window = if self.window == 0 { full } else { self.window };
        let aim = rtt.minimum().saturating_add(target);
        self.window = if units <= aim {
            // One segment per measurement, of which there is about one per round trip, and more when the delay is less
            // than half the target (TIMELY, §4.3: hyperactive increase).
            let extra = if units < aim >> 1 { window >> 3 } else { 0 };
            window.saturating_add(256).saturating_add(extra).min(full)
        } else if self.may_shrink(now, rtt) {
            // 0.8 × the excess share of the delay, at most a half (Swift, algorithm 1).
            let excess = units.wrapping_sub(aim);
            let share = scaled(excess, units);
            let cut = (window >> 8).saturating_mul(share).saturating_mul(4).checked_div(5).unwrap_or(0);
            window.saturating_sub(cut.min(window >> 1)).max(256)
        } else {
            window
        };
    }

    /// Handles a loss detected when the round trip was `units` of 64 ns; to be called before
    /// [`handle_round_trip`](Self::handle_round_trip) for that round trip. Left out with the feature
    /// `optimize_for_size`, where only round trips adjust the window.
    pub fn handle_loss(&mut self, now: T::Instant, units: u32, rtt: &Rtt, control: &CongestionControl, full: u16) {
        let CongestionControl::Delay { target } = *control else { return };
        if cfg!(feature = "optimize_for_size") {
            return;
        }
        let late = units > rtt.minimum().saturating_add(target);
        let late = late && !(mutant!("loss_unheard") && units > 0);
        if late && self.may_shrink(now, rtt) {
            let window = if self.window == 0 { u32::from(full) << 8 } else { self.window };
            self.window = (window >> 1).max(256);
        }
    }

    /// Whether a round trip has passed since the last decrease; records a decrease if so.
    fn may_shrink(&mut self, now: T::Instant, rtt: &Rtt) -> bool {
        let may = T::since(now, self.shrunk).is_none_or(|since| since > rtt.smoothed());
        if may {
            self.shrunk = T::stamp(now);
        }
        may
    }
}

/// 256 × `part` / `whole`, where `part` ≤ `whole`.
const fn scaled(part: u32, whole: u32) -> u32 {
    let down = 8_u32.saturating_sub(whole.leading_zeros());
    match (part >> down).saturating_mul(256).checked_div(whole >> down) {
        Some(share) => share,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::{Congestion, CongestionControl, scaled};
    use crate::time::Nanos;
    use crate::window::rtt::Rtt;

    #[test]
    fn shares_of_long_times_are_those_of_short_ones() {
        for whole in [4, 1 << 10, 1 << 23, 1 << 24, 1 << 31] {
            assert_eq!([0, whole / 4, whole].map(|part| scaled(part, whole)), [0, 64, 256], "{whole}");
        }
        assert_eq!((scaled(u32::MAX, u32::MAX), scaled(0, 0)), (256, 0));
    }

    #[test]
    fn delay_shrinks_once_a_round_trip_and_recovers() {
        let control = CongestionControl::Delay { target: 100 };
        let mut rtt = Rtt::default();
        rtt.sample(100);
        let mut window = Congestion::<Nanos>::NEW;
        let mut now = 1 << 30;
        window.handle_round_trip(now, 1000, &rtt, &control, 64);
        assert!(window.admits(31, 64) && !window.admits(40, 64));
        let shrunk = window;
        window.handle_round_trip(now, 1000, &rtt, &control, 64);
        assert_eq!(window, shrunk, "twice in one round trip");
        for _ in 0..64 {
            now += 1 << 20;
            window.handle_round_trip(now, 150, &rtt, &control, 64);
        }
        assert!(window.admits(63, 64) && !window.admits(64, 64));
        for _ in 0..64 {
            now += 1 << 20;
            window.handle_round_trip(now, u32::MAX, &rtt, &control, 64);
        }
        assert!(window.admits(0, 64), "one segment is always admitted");
    }

    #[test]
    fn loss_halves_once_a_round_trip_and_only_with_delay() {
        let control = CongestionControl::Delay { target: 100 };
        let mut rtt = Rtt::default();
        rtt.sample(100);
        let mut window = Congestion::<Nanos>::NEW;
        window.handle_loss(1 << 30, 200, &rtt, &control, 64);
        assert_eq!(window, Congestion::NEW, "the delay is at the target");
        window.handle_loss(1 << 30, 201, &rtt, &control, 64);
        assert!(window.admits(31, 64) && !window.admits(32, 64));
        let halved = window;
        window.handle_loss(1 << 30, 1000, &rtt, &control, 64);
        window.handle_round_trip(1 << 30, 1000, &rtt, &control, 64);
        assert_eq!(window, halved, "twice in one round trip");
        window.handle_loss(1 << 31, 1000, &rtt, &control, 64);
        assert!(window.admits(15, 64) && !window.admits(16, 64));
        let mut fixed = Congestion::<Nanos>::NEW;
        fixed.handle_loss(1 << 30, u32::MAX, &rtt, &CongestionControl::Fixed, 64);
        assert_eq!(fixed, Congestion::NEW);
    }
}
