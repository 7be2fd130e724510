//! The measured time in which a full rail carries one segment: the inverse of its rate.

use crate::time::Time;

/// Segments after which a measurement ends at the latest.
const MOST: u16 = 1024;

/// Time per segment, averaged over measurements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct DrainTime<T: Time> {
    /// 16 times the units of 64 ns per segment; zero: not measured.
    per_segment: u32,
    /// The measurement under way: when it began, and the segments that were acknowledged since.
    since: T::Stamp,
    acknowledged: u16,
    is_under_way: bool,
}

impl<T: Time> DrainTime<T> {
    pub(super) const UNKNOWN: Self = Self { per_segment: 0, since: T::ZERO, acknowledged: 0, is_under_way: false };

    /// The rail was not full: what is acknowledged next begins a new measurement.
    pub(super) const fn interrupt(&mut self) {
        self.is_under_way = false;
    }

    /// Segments were acknowledged on a full rail with this smoothed round trip. Those that begin a measurement are not
    /// part of it. It lasts a round trip, so that acknowledgements which arrive together do not distort it. Returns
    /// whether it ended.
    pub(super) fn handle_acknowledged(&mut self, now: T::Instant, segments: u16, round_trip: u32) -> bool {
        let Some(units) = T::since(now, self.since).filter(|_| self.is_under_way) else {
            (self.since, self.acknowledged, self.is_under_way) = (T::stamp(now), 0, true);
            return false;
        };
        self.acknowledged = self.acknowledged.saturating_add(segments);
        if units == 0 || units < round_trip && self.acknowledged < MOST {
            return false;
        }
        let sample = units.saturating_mul(16).checked_div(u32::from(self.acknowledged)).unwrap_or(0).max(1);
        self.per_segment = match self.per_segment {
            0 => sample,
            before => before.wrapping_sub(before >> 2).saturating_add(sample >> 2).max(1),
        };
        (self.since, self.acknowledged) = (T::stamp(now), 0);
        true
    }

    pub(super) const fn is_measured(&self) -> bool {
        self.per_segment != 0
    }

    /// The time for this many segments, in 1/16 of a unit.
    pub(super) const fn of(&self, segments: u32) -> u32 {
        self.per_segment.saturating_mul(segments)
    }

    /// The segments that the rail carries in this time, in units of 64 ns.
    pub(super) fn segments_in(&self, units: u32) -> u32 {
        let segments = u64::from(units).saturating_mul(16).checked_div(u64::from(self.per_segment)).unwrap_or(u64::MAX);
        u32::try_from(segments).unwrap_or(u32::MAX)
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
            for (pause, segments) in [(6400, 9), (0, 1), (6400, 9), (0, 1)] {
                now += pause;
                drain.handle_acknowledged(now, segments, 100);
            }
            now += 1 << 20;
            drain.interrupt();
        }
        let per_segment = drain.of(1) / 16;
        assert!((8..=12).contains(&per_segment), "10 segments in 100 units: {per_segment}");
        assert!((8..=12).contains(&drain.segments_in(100)));
    }
}
