//! The measured time in which a rail carries one segment: the inverse of its rate.

use crate::time::Time;

/// Segments after which a measurement ends at the latest.
const MOST: u16 = 64;

/// Time per segment, averaged over busy periods.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct DrainTime<T: Time> {
    /// 16 times the units of 64 ns per segment; zero: not measured.
    per_segment: u32,
    /// Since when the rail has been busy, or when the latest segments were acknowledged.
    since: T::Stamp,
    /// The measurement under way: busy units and acknowledged segments.
    busy: u32,
    acknowledged: u16,
}

impl<T: Time> DrainTime<T> {
    pub(super) const UNKNOWN: Self = Self { per_segment: 0, since: T::ZERO, busy: 0, acknowledged: 0 };

    /// The first segment after a pause is posted.
    pub(super) fn handle_busy(&mut self, now: T::Instant) {
        self.since = T::stamp(now);
    }

    /// Segments were acknowledged, on a rail with this smoothed round trip. A measurement lasts a round trip,
    /// so that acknowledgements which arrive together do not distort it.
    pub(super) fn handle_acknowledged(&mut self, now: T::Instant, segments: u16, round_trip: u32) {
        let Some(units) = T::since(now, self.since) else { return };
        self.since = T::stamp(now);
        self.busy = self.busy.saturating_add(units);
        self.acknowledged = self.acknowledged.saturating_add(segments);
        if self.busy < round_trip && self.acknowledged < MOST {
            return;
        }
        let sample = self.busy.saturating_mul(16).checked_div(u32::from(self.acknowledged)).unwrap_or(0).max(1);
        self.per_segment = match self.per_segment {
            0 => sample,
            before => before.wrapping_sub(before >> 2).saturating_add(sample >> 2).max(1),
        };
        (self.busy, self.acknowledged) = (0, 0);
    }

    pub(super) const fn is_measured(&self) -> bool {
        self.per_segment != 0
    }

    /// The time for this many segments, in 1/16 of a unit.
    pub(super) fn of(&self, segments: u16) -> u32 {
        self.per_segment.saturating_mul(u32::from(segments))
    }
}

#[cfg(test)]
mod tests {
    use super::DrainTime;
    use crate::time::Nanos;

    #[test]
    fn pauses_do_not_count_and_bunched_acknowledgements_do_not_distort() {
        let mut drain = DrainTime::<Nanos>::UNKNOWN;
        assert!(!drain.is_measured());
        let mut now = 1 << 20;
        for _ in 0..64 {
            drain.handle_busy(now);
            for (pause, segments) in [(6400, 9), (0, 1)] {
                now += pause;
                drain.handle_acknowledged(now, segments, 100);
            }
            now += 1 << 20;
        }
        let per_segment = drain.of(1) / 16;
        assert!((8..=12).contains(&per_segment), "10 segments in 100 units: {per_segment}");
    }
}
