//! What a send window knows of one of several rails.

use super::RailMask;
use crate::path::{Path, PathParameters};
use crate::time::Time;
use crate::window::probe_timer::{ProbeTimer, timeout};

/// Timeouts without an answer before which no rail is dead of which no round trip was measured.
const UNMEASURED_BACKOFF: u8 = 6;

/// Longest silence in timeouts that queues explain.
const SILENCE_MAX: u32 = 8;
/// The longest answer shrinks by one part in 2 to this power with each answer.
const FORGETTING: u32 = 6;

/// Whether a rail answers what is sent over it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Standing {
    /// Its timer has not expired since it last answered.
    Alive,
    /// Its timer has expired since it last answered; it is still used.
    Silent {
        /// Pairs of probes of which only the one over another rail was answered.
        missed: u8,
        /// Its probe of the next pair has left.
        is_probed: bool,
    },
    /// It gets no segments, and is probed.
    Dead,
    /// As dead: it has not answered since the window started.
    Unproven,
}

/// What a send window knows of one of several rails.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RailState<T: Time> {
    pub(super) path: Path<T>,
    pub(super) timer: ProbeTimer<T>,
    /// When a segment was last posted.
    pub(super) posted: T::Stamp,
    /// Segments that are neither acknowledged nor lost.
    pub(super) in_flight: u16,
    /// Those of them that the load counts: after a long silence they have left the rail's queues.
    pub(super) loaded: u16,
    /// Segments that the present acknowledgement acknowledges first.
    pub(super) fresh: u16,
    /// Those of them that are bulk.
    pub(super) fresh_bulk: u16,
    /// The present acknowledgement shows losses.
    pub(super) has_lost: bool,
    pub(super) standing: Standing,
    /// When what it has not answered was sent, or else when it became silent.
    pub(super) silent_since: T::Stamp,
    /// The longest round trip and the longest answer to a probe of late, in units of 64 ns.
    pub(super) longest: u32,
    /// When the latest probe was sent, and the low bits of its PSN.
    pub(super) probed: T::Stamp,
    pub(super) probe_psn: u8,
    /// Rails whose earlier segments the answer to that probe judges.
    pub(super) covered: RailMask,
    /// Silent rails of whose pair it is the second probe.
    pub(super) paired: RailMask,
}

impl<T: Time> RailState<T> {
    /// An unused record.
    pub const FREE: Self = Self {
        path: Path::new(PathParameters::NONE),
        timer: ProbeTimer::IDLE,
        posted: T::ZERO,
        in_flight: 0,
        loaded: 0,
        fresh: 0,
        fresh_bulk: 0,
        has_lost: false,
        standing: Standing::Alive,
        silent_since: T::ZERO,
        longest: 0,
        probed: T::ZERO,
        probe_psn: 0,
        covered: 0,
        paired: 0,
    };

    /// Segments that are neither acknowledged nor lost.
    pub const fn in_flight(&self) -> u16 {
        self.in_flight
    }

    /// Segments that the load counts.
    #[cfg(debug_assertions)]
    pub(crate) const fn loaded(&self) -> u16 {
        self.loaded
    }

    /// Whether it is dead: it gets no segments, and is probed.
    pub fn is_dead(&self) -> bool {
        match self.standing {
            Standing::Dead => true,
            Standing::Unproven => !mutant!("unproven_rail_used"),
            Standing::Alive | Standing::Silent { .. } => false,
        }
    }

    /// Whether it is dead and lived before.
    pub(crate) const fn has_died(&self) -> bool {
        matches!(self.standing, Standing::Dead)
    }

    /// Whether its timer expired since it last answered, and it is not dead.
    pub const fn is_silent(&self) -> bool {
        matches!(self.standing, Standing::Silent { .. })
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

    /// Numbers the latest probe 0, for models whose numbers are relative. Returns its number before.
    #[must_use]
    pub fn with_numbers_from_latest(mut self) -> (Self, u8) {
        let number = self.timer.number();
        self.timer = self.timer.with_numbers_from_latest();
        (self, number)
    }

    /// When its timer expires.
    pub const fn deadline(&self) -> Option<T::Instant> {
        self.timer.deadline()
    }

    /// Whether its timer has to run: segments or a probe are unanswered, or it may come to life again.
    pub(super) fn is_awaited(&self) -> bool {
        self.in_flight > 0 || self.timer.unanswered() > 0 || self.timer.wants_probe() || self.is_dead()
    }

    /// Whether its silence counts: its round trip is known, or several timeouts have passed.
    pub(super) fn is_judged(&self) -> bool {
        self.path.rtt.smoothed() > 0 || self.timer.backoff >= UNMEASURED_BACKOFF.min(T::MAX_BACKOFF)
    }

    /// Whether it misses a pair if a probe over another rail, sent from now on, is answered first.
    pub(super) const fn may_miss_pair(&self) -> bool {
        matches!(self.standing, Standing::Silent { is_probed: true, .. })
    }

    /// Its timer expired, and does not show that it is dead: a pair is to be sent.
    pub(super) fn begin_pair(&mut self, now: T::Instant) {
        if !self.is_silent() {
            self.silent_since = if self.in_flight > 0 { self.posted } else { T::stamp(now) };
        }
        match self.standing {
            Standing::Silent { missed, .. } if missed < pairs() => {}
            _ => self.standing = Standing::Silent { missed: 0, is_probed: false },
        }
    }

    /// A probe over it leaves.
    pub(super) fn handle_probed(&mut self, now: T::Instant, psn: u32) {
        (self.probed, self.probe_psn) = (T::stamp(now), psn as u8);
        if let Standing::Silent { missed, is_probed } = &mut self.standing {
            *is_probed = *missed < pairs();
        }
    }

    /// Runs the timer; the timeout doubles from the second probe on. That of a silent rail counts from its probe.
    pub(super) fn arm(&mut self, now: T::Instant) {
        let is_sending = self.in_flight > 0 && !self.is_silent();
        let age = || T::since(now, self.posted).filter(|_| is_sending).unwrap_or(0);
        let units = timeout::<T>(&self.path, self.timer.backoff.saturating_sub(1), age);
        self.timer.arm(now, units);
    }

    /// The latest probe is answered: takes the rails that it covers, and those of whose pair it is the second one.
    pub(super) const fn take_asked(&mut self) -> (RailMask, RailMask) {
        (core::mem::replace(&mut self.covered, 0), core::mem::replace(&mut self.paired, 0))
    }

    /// It answered after this number of units.
    pub(super) fn record_answer(&mut self, units: u32) {
        self.longest = self.longest.wrapping_sub(self.longest >> FORGETTING).max(units);
    }

    /// It answers after a silence. One that lasted for so long that its link was down is no measure of its queue.
    pub(super) fn record_silence(&mut self, now: T::Instant) {
        let most = self.path.timeout().saturating_mul(SILENCE_MAX);
        if let Some(units) = T::since(now, self.silent_since).filter(|units| *units <= most) {
            self.record_answer(units);
        }
    }

    /// It answered: it lives.
    pub(super) fn end_silence(&mut self) {
        if !mutant!("silence_kept") || self.is_dead() {
            self.standing = Standing::Alive;
        }
        self.timer.handle_sign_of_life();
        self.timer.backoff = 0;
    }

    /// The peer answered over another rail `units` after a probe that left after this silent rail's. The latter may take
    /// as long again; then it has missed the last pair, or the next one is sent.
    pub(super) fn handle_missed_pair(&mut self, now: T::Instant, units: u32) {
        let Standing::Silent { missed, .. } = self.standing else { return };
        let missed = missed.saturating_add(1);
        self.standing = Standing::Silent { missed, is_probed: false };
        if missed >= pairs() {
            self.timer.extend(now, units);
            return;
        }
        self.timer.arm(now, units);
        if self.path.rtt.smoothed() > 0 {
            // The peer is there: its earlier silence makes the wait no longer.
            self.timer.backoff = 0;
        }
    }
}

/// Pairs of probes that a dead rail has missed.
#[inline]
pub(super) fn pairs() -> u8 {
    if mutant!("pair_suffices") { 1 } else { 2 }
}

#[cfg(test)]
mod tests {
    use super::RailState;
    use crate::time::Nanos;

    #[test]
    fn a_rail_misses_no_more_than_its_pairs() {
        let mut rail = RailState::<Nanos>::FREE;
        rail.begin_pair(0);
        for psn in 0..2 {
            assert!(!rail.may_miss_pair(), "its probe has not left");
            rail.handle_probed(100, psn);
            assert!(rail.may_miss_pair());
            rail.handle_missed_pair(200, 50);
        }
        rail.handle_probed(300, 2);
        assert!(!rail.may_miss_pair(), "it has missed its last pair");
        rail.begin_pair(0);
        rail.handle_probed(400, 3);
        assert!(rail.may_miss_pair(), "it begins again");
    }
}
