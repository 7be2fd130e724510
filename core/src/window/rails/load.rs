//! The load of a rail: what one endpoint has in flight over it to all peers, and how much of that the rail takes.
//!
//! Windows to different peers share the queues of a rail, but know only of their own segments. Each may be within its
//! congestion window while together they overflow a queue. The load therefore has a limit of its own: what the rail
//! carries, at the rate measured while it was full, within the delay at which congestion control aims for twice (BBR,
//! draft-ietf-ccwg-bbr §2.3: a bandwidth-delay product with headroom). Until a rate is measured it is a few segments. What
//! a silent peer does not acknowledge counts for as long as an answer may take.

use super::drain_time::DrainTime;
use crate::path::Path;
use crate::time::Time;
use crate::window::congestion::CongestionControl;

/// Least limit, in segments; that of a rail of unknown rate.
const LEAST: u32 = 4;

/// What is in flight over one rail to all peers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RailLoad<T: Time> {
    /// Segments that are neither acknowledged nor lost, nor sent to a silent peer long ago.
    in_flight: u32,
    /// Segments from which on the rail is full.
    limit: u32,
    /// It was full when a segment was last posted.
    was_full: bool,
    /// The shortest round trip to any peer, in units of 64 ns; zero: not measured. Those to peers that are first measured
    /// over full queues are longer.
    shortest: u32,
    drain: DrainTime<T>,
}

impl<T: Time> RailLoad<T> {
    /// Nothing is in flight, and nothing measured.
    pub const IDLE: Self = Self { in_flight: 0, limit: LEAST, was_full: false, shortest: 0, drain: DrainTime::UNKNOWN };

    /// As if this number of segments were in flight to other peers, for models.
    #[must_use]
    pub const fn with_others(mut self, segments: u32) -> Self {
        self.in_flight = self.in_flight.wrapping_add(segments);
        self
    }

    /// Segments to all peers that it counts.
    pub(crate) const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Segments from which on the rail is full.
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// Whether no more should be in flight. Fabrics without loss hold senders back themselves.
    pub(super) fn is_closed(&self, control: &CongestionControl) -> bool {
        *control != CongestionControl::Fixed && self.in_flight >= self.limit && !mutant!("full_rail_used")
    }

    /// Whether the rail's rate is known.
    pub(super) const fn is_measured(&self) -> bool {
        self.drain.is_measured()
    }

    /// The time that the rail takes for what is in flight, in 1/16 of a unit.
    pub(super) fn backlog(&self) -> u32 {
        self.drain.of(self.in_flight)
    }

    pub(super) const fn handle_posted(&mut self) {
        if self.in_flight == 0 {
            // A pause shows no rate.
            self.drain.interrupt();
        }
        self.in_flight = self.in_flight.wrapping_add(1);
        self.was_full = self.in_flight >= self.limit;
    }

    /// Segments are acknowledged, count as lost, or have left the queues although nothing answers.
    pub(super) const fn handle_left(&mut self, segments: u16) {
        self.in_flight = self.in_flight.wrapping_sub(segments as u32);
    }

    /// Segments of a peer with this path were acknowledged, of which `bulk` are bulk, and have left already. They show
    /// the rail's rate, not the senders', if they are mostly bulk and the rail was full, or if round trips show a queue.
    pub(super) fn handle_acknowledged(&mut self, now: T::Instant, segments: u16, bulk: u16, path: &Path<T>) {
        let minimum = path.rtt.minimum();
        if minimum > 0 && (self.shortest == 0 || minimum < self.shortest) {
            self.shortest = minimum;
        }
        let queue = path.parameters.control.target().max(self.shortest);
        let is_queueing = path.rtt.smoothed() > self.shortest.saturating_add(queue);
        if bulk <= segments / 2 || !self.was_full && !is_queueing {
            self.drain.interrupt();
        } else if self.drain.handle_acknowledged(now, bulk, path.rtt.smoothed()) {
            let longest = queue.saturating_mul(2).saturating_add(self.shortest);
            self.limit = self.drain.segments_in(longest).max(LEAST);
        }
    }

    /// The round trip over the rail when it is full, in units of 64 ns; zero if its rate is unknown.
    pub(super) fn full_round_trip(&self) -> u32 {
        self.drain.of(self.limit) / 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::PathParameters;
    use crate::time::Nanos;

    const DELAY: CongestionControl = CongestionControl::Delay { target: 1000 };

    /// A rail that carries a segment in 100 units, with a round trip of 200, on which segments wait for one another: as
    /// many as the load admits are in flight, `bulk` of each acknowledgement's two are bulk.
    fn limit(control: CongestionControl, bulk: u16) -> u32 {
        let mut path = Path::<Nanos>::new(PathParameters { control, ..PathParameters::NONE });
        path.rtt.sample(200);
        let mut load = RailLoad::IDLE;
        let mut now = 1 << 20;
        for _ in 0..1000 {
            while load.in_flight < load.limit {
                load.handle_posted();
            }
            now += 200 * 64;
            load.handle_left(2);
            load.handle_acknowledged(now, 2, bulk, &path);
        }
        load.limit()
    }

    #[test]
    fn a_full_rail_holds_what_it_carries_in_twice_the_target_and_a_round_trip() {
        assert_eq!(limit(DELAY, 2), 22);
        assert_eq!(limit(CongestionControl::Fixed, 2), 6, "twice the round trip");
        assert_eq!(limit(DELAY, 1), LEAST, "small segments show no rate");
    }

    #[test]
    fn only_a_load_whose_path_has_a_target_closes() {
        let mut load = RailLoad::<Nanos>::IDLE;
        (0..LEAST).for_each(|_| load.handle_posted());
        assert_eq!([DELAY, CongestionControl::Fixed].map(|control| load.is_closed(&control)), [true, false]);
        load.handle_left(1);
        assert!(!load.is_closed(&DELAY));
    }

    #[test]
    fn a_rail_that_is_slower_than_measured_shows_by_its_round_trips() {
        let mut path = Path::<Nanos>::new(PathParameters { control: DELAY, ..PathParameters::NONE });
        path.rtt.sample(200);
        let mut load = RailLoad { limit: 100, in_flight: 1, ..RailLoad::IDLE };
        let mut acknowledge = |path: &Path<Nanos>, now| {
            (0..2).for_each(|_| load.handle_posted());
            load.handle_left(2);
            load.handle_acknowledged(now, 2, 2, path);
            load.limit()
        };
        assert!((1..100).all(|i| acknowledge(&path, i << 20) == 100));
        (0..64).for_each(|_| path.rtt.sample(5000));
        assert!((100..200).map(|i| acknowledge(&path, i << 20)).last() < Some(100));
    }

    #[test]
    fn neither_a_pause_nor_several_acknowledgements_at_a_time_change_the_rate() {
        let mut path = Path::<Nanos>::new(PathParameters { control: DELAY, ..PathParameters::NONE });
        path.rtt.sample(200);
        (0..64).for_each(|_| path.rtt.sample(2200));
        let mut load = RailLoad::IDLE;
        let mut now = 1 << 30;
        let mut burst = |load: &mut RailLoad<Nanos>| {
            for _ in 0..40 {
                while load.in_flight < load.limit {
                    load.handle_posted();
                }
                now += 2200 * 64;
                for _ in 0..load.in_flight {
                    load.handle_left(1);
                    load.handle_acknowledged(now, 1, 1, &path);
                }
            }
            now += 1 << 30;
            load.drain.of(1) / 16
        };
        let rates = [(); 4].map(|()| burst(&mut load));
        assert!(rates.iter().all(|units| units.abs_diff(rates[0]) <= rates[0] / 4), "{rates:?}");
    }
}
