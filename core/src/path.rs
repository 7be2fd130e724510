//! A path: what is true of one way to a peer, whatever is sent over it.

use crate::time::Time;
use crate::window::congestion::{Congestion, CongestionControl};
use crate::window::loss::Reordering;
use crate::window::rtt::Rtt;

/// A path's constants, and what has been measured of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Path<T: Time> {
    /// Its constants.
    pub parameters: PathParameters,
    /// The round-trip estimate.
    pub rtt: Rtt,
    /// The congestion window.
    pub congestion: Congestion<T>,
    /// By how many segments it reorders.
    pub reordering: Reordering,
}

/// The constants of a path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PathParameters {
    /// Floor of the timeout's margin, in units of 64 ns.
    pub granularity: u32,
    /// Longest time between two probes, in units of 64 ns.
    pub max_probe_interval: u32,
    /// How the congestion window changes.
    pub control: CongestionControl,
}

impl PathParameters {
    /// Of no path.
    pub const NONE: Self = Self { granularity: 0, max_probe_interval: 0, control: CongestionControl::Fixed };
}

impl<T: Time> Path<T> {
    /// A path of which nothing has been measured.
    pub const fn new(parameters: PathParameters) -> Self {
        Self { parameters, rtt: Rtt::NONE, congestion: Congestion::NEW, reordering: Reordering::NONE }
    }

    /// The retransmission timeout, in units of 64 ns.
    pub const fn timeout(&self) -> u32 {
        self.rtt.timeout(self.parameters.granularity)
    }

    /// Handles a measured round trip, in units of 64 ns, of a window of `W` segments.
    pub(crate) fn handle_round_trip<const W: usize>(&mut self, now: T::Instant, units: u32) {
        self.congestion.handle_round_trip(now, units, &self.rtt, &self.parameters.control, W as u16);
    }

    /// Handles the loss of segments of a window of `W`, found when the round trip was `units` of 64 ns, if it is known.
    pub(crate) fn handle_loss<const W: usize>(&mut self, now: T::Instant, units: Option<u32>) {
        let delay = units.unwrap_or_else(|| self.rtt.smoothed());
        self.congestion.handle_loss(now, delay, &self.rtt, &self.parameters.control, W as u16);
    }
}
