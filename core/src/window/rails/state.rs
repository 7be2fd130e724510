//! What a send window knows of one of several rails.

use super::RailMask;
use crate::path::{Path, PathParameters};
use crate::time::Time;
use crate::window::drain_time::DrainTime;
use crate::window::probe_timer::{ProbeTimer, timeout};

/// Timeouts without a probe's answer after which a rail is dead of which no round trip was measured.
const UNMEASURED_BACKOFF: u8 = 6;

/// What a send window knows of one of several rails.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RailState<T: Time> {
    pub(super) path: Path<T>,
    pub(super) timer: ProbeTimer<T>,
    pub(super) drain: DrainTime<T>,
    /// When a segment was last posted.
    pub(super) posted: T::Stamp,
    /// Segments that are neither acknowledged nor lost.
    pub(super) in_flight: u16,
    /// Segments that the present acknowledgement acknowledges first.
    pub(super) fresh: u16,
    /// The present acknowledgement shows losses.
    pub(super) has_lost: bool,
    pub(super) is_dead: bool,
    /// Rails whose earlier segments the answer to the latest probe judges.
    pub(super) covered: RailMask,
}

impl<T: Time> RailState<T> {
    /// An unused record.
    pub const FREE: Self = Self {
        path: Path::new(PathParameters::NONE),
        timer: ProbeTimer::IDLE,
        drain: DrainTime::UNKNOWN,
        posted: T::ZERO,
        in_flight: 0,
        fresh: 0,
        has_lost: false,
        is_dead: false,
        covered: 0,
    };

    /// Segments that are neither acknowledged nor lost.
    pub const fn in_flight(&self) -> u16 {
        self.in_flight
    }

    /// Whether it is dead: it gets no segments, and is probed.
    pub const fn is_dead(&self) -> bool {
        self.is_dead
    }

    /// The path over this rail.
    pub const fn path(&self) -> &Path<T> {
        &self.path
    }

    /// Shifts the deadline, for models that decide which timer expires.
    #[must_use]
    pub fn with_times(mut self, shift: impl Fn(T::Instant) -> T::Instant) -> Self {
        self.timer = self.timer.with_deadline(shift);
        self
    }

    /// When its timer expires.
    pub const fn deadline(&self) -> Option<T::Instant> {
        self.timer.deadline()
    }

    /// Whether its timer has to run: segments or a probe are unanswered, or it may come to life again.
    pub(super) const fn is_awaited(&self) -> bool {
        self.in_flight > 0 || self.timer.unanswered() > 0 || self.timer.wants_probe() || self.is_dead
    }

    /// Whether its probe should have been answered: before a round trip was measured, only after several timeouts.
    pub(super) fn is_silent(&self) -> bool {
        let is_known = self.path.rtt.smoothed() > 0;
        self.timer.unanswered() > 0 && (is_known || self.timer.backoff >= UNMEASURED_BACKOFF.min(T::MAX_BACKOFF))
    }

    /// Runs the timer; the timeout doubles from the second probe on.
    pub(super) fn arm(&mut self, now: T::Instant) {
        let age = || T::since(now, self.posted).filter(|_| self.in_flight > 0).unwrap_or(0);
        let units = timeout::<T>(&self.path, self.timer.backoff.saturating_sub(1), age);
        self.timer.arm(now, units);
    }
}
