//! Bounded durations: `3s`, `500ms`, `1m 30s`.

use core::{fmt, str::FromStr, time::Duration};

/// A duration between 1 ms and `LIMIT` seconds. Written as a number and a unit: `3s`, `500ms`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BoundedDuration<const LIMIT: u64>(Duration);

/// Silence of a peer after which it is considered failed.
pub type SilenceTimeout = BoundedDuration<120>;
/// Time between SIGTERM and SIGKILL.
pub type KillTimeout = BoundedDuration<600>;
/// Time in a collective after which the missing ranks are reported.
pub type WatchdogTimeout = BoundedDuration<3600>;
/// Time without progress after which a blocked rank reports its waits.
pub type StuckTimeout = BoundedDuration<3600>;
/// Time without a datagram from a peer that makes progress after which it is considered failed.
pub type UnreachableTimeout = BoundedDuration<3600>;
/// Mean wait for a late leader from which on a rank joins a multicast group itself.
pub type AttachThreshold = BoundedDuration<60>;
/// Time from the first rank that joins a job to the last.
pub type JoinTimeout = BoundedDuration<3600>;

impl<const LIMIT: u64> BoundedDuration<LIMIT> {
    /// `None` outside the bounds.
    ///
    /// ```
    /// use core::time::Duration;
    /// use unisono::environment::SilenceTimeout;
    ///
    /// assert!(SilenceTimeout::new(Duration::from_secs(2)).is_some());
    /// assert!(SilenceTimeout::new(Duration::ZERO).is_none());
    /// ```
    pub fn new(duration: Duration) -> Option<Self> {
        let bounds = Duration::from_millis(1)..=Duration::from_secs(LIMIT);
        bounds.contains(&duration).then_some(Self(duration))
    }

    /// As a duration.
    ///
    /// ```
    /// use core::time::Duration;
    /// use unisono::environment::SilenceTimeout;
    ///
    /// assert_eq!("250ms".parse().map(SilenceTimeout::duration), Ok(Duration::from_millis(250)));
    /// ```
    pub const fn duration(self) -> Duration {
        self.0
    }
}

impl<const LIMIT: u64> FromStr for BoundedDuration<LIMIT> {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let duration = humantime::parse_duration(text).map_err(|_| DurationError::Malformed)?;
        Self::new(duration).ok_or(DurationError::OutOfRange { limit: LIMIT })
    }
}

impl<const LIMIT: u64> fmt::Display for BoundedDuration<LIMIT> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(to)
    }
}

/// Why a text is not a valid duration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DurationError {
    /// It is not a number.
    #[error("expected a duration such as 3s or 500ms")]
    Malformed,
    /// It is too short or too long.
    #[error("expected a duration from 1ms to {limit}s")]
    OutOfRange {
        /// Longest duration, in seconds.
        limit: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_understood() {
        assert_eq!("3s".parse::<SilenceTimeout>().map(SilenceTimeout::duration), Ok(Duration::from_secs(3)));
        assert_eq!("500ms".parse::<SilenceTimeout>().map(SilenceTimeout::duration), Ok(Duration::from_millis(500)));
        assert_eq!("2m".parse::<SilenceTimeout>().map(SilenceTimeout::duration), Ok(Duration::from_secs(120)));
    }

    #[test]
    fn invalid_durations_are_refused() {
        assert_eq!("121s".parse::<SilenceTimeout>(), Err(DurationError::OutOfRange { limit: 120 }));
        assert_eq!("0s".parse::<SilenceTimeout>(), Err(DurationError::OutOfRange { limit: 120 }));
        for text in ["", "3", "s", "-3s", "3 parsecs", "99999999999999999999s"] {
            assert!(text.parse::<SilenceTimeout>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_printed_parses() {
        for milliseconds in [1, 250, 1500, 119_999] {
            let period = SilenceTimeout::new(Duration::from_millis(milliseconds)).expect("within bounds");
            assert_eq!(period.to_string().parse(), Ok(period));
        }
    }
}
