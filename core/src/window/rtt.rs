//! The round-trip estimator of RFC 6298, in integers.

/// Smoothed round-trip time and its variation, in units of 64 ns. Without a sample both are zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Rtt {
    /// Eight times the smoothed round-trip time.
    smoothed: u32,
    /// Four times the smoothed deviation.
    variation: u32,
    /// The minimum of all samples, at least 1 (zero: no sample).
    minimum: u32,
}

impl Rtt {
    /// No sample yet.
    pub const NONE: Self = Self { smoothed: 0, variation: 0, minimum: 0 };
    /// Largest sample, in units of 64 ns: 8.6 s. Longer ones are clamped to it.
    pub const MAX_SAMPLE: u32 = 1 << 27;

    /// Adds a round-trip sample, in units of 64 ns, the peer's hold time already subtracted (RFC 6298 §2).
    pub const fn sample(&mut self, units: u32) {
        let sample = if units == 0 {
            1
        } else if units > Self::MAX_SAMPLE {
            Self::MAX_SAMPLE
        } else {
            units
        };
        if self.smoothed == 0 {
            self.smoothed = sample << 3;
            self.variation = sample << 1;
            self.minimum = sample;
            return;
        }
        let deviation = sample.abs_diff(self.smoothed >> 3);
        self.variation = self.variation.wrapping_sub(self.variation >> 2).wrapping_add(deviation);
        self.smoothed = self.smoothed.wrapping_sub(self.smoothed >> 3).wrapping_add(sample);
        if sample < self.minimum {
            self.minimum = sample;
        }
    }

    /// The smoothed round-trip time in units of 64 ns; zero without a sample.
    pub const fn smoothed(&self) -> u32 {
        self.smoothed >> 3
    }

    /// The minimum round trip, in units of 64 ns; zero without a sample.
    pub const fn minimum(&self) -> u32 {
        self.minimum
    }

    /// The retransmission timeout in units of 64 ns: smoothed + max(G, 4 × variation), where `granularity` is G
    /// (RFC 6298 eq. 2.3); 4 G without a sample. Saturates at about 70 s.
    pub const fn timeout(&self, granularity: u32) -> u32 {
        if self.smoothed == 0 {
            return granularity.saturating_mul(4);
        }
        let margin = if self.variation > granularity { self.variation } else { granularity };
        (self.smoothed >> 3).saturating_add(margin)
    }
}

#[cfg(test)]
mod tests {
    use super::Rtt;

    #[test]
    fn constant_samples_leave_the_granularity_as_margin() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.timeout(100), 400);
        for _ in 0..100 {
            rtt.sample(156);
        }
        assert_eq!(rtt.smoothed(), 156);
        assert!(rtt.timeout(156) <= 2 * 156 + 4);
    }

    #[test]
    fn no_sample_overflows() {
        let mut rtt = Rtt::default();
        for sample in [u32::MAX, 0, u32::MAX, 1] {
            rtt.sample(sample);
            assert!(rtt.timeout(u32::MAX) > 0);
        }
    }
}
