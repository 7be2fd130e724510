//! `unisono tune --check`: how much longer the selected algorithms take than the fastest ones, and whether that is within
//! bounds.

use core::fmt;

use super::super::bytes::Bytes;
use super::candidate::{Candidate, calls};

/// A selected algorithm is good if it takes at most this many times as long as the fastest one.
const GOOD: f64 = 1.1;

/// The part of the calls, in percent, whose selected algorithm must be good.
const GOOD_PERCENT_MIN: usize = 90;

/// No selected algorithm may take more than this many times as long as the fastest one.
const WORST: f64 = 1.5;

/// A call: its selected and its fastest algorithm, and how many times as long the selected one takes.
struct CallRatio<'a> {
    ratio: f64,
    selected: &'a Candidate,
    fastest: &'a Candidate,
}

impl<'a> CallRatio<'a> {
    fn new((selected, fastest): (&'a Candidate, &'a Candidate)) -> Self {
        let is_known = selected.time_ns.is_finite() && fastest.time_ns > 0.0;
        let ratio = if is_known { selected.time_ns / fastest.time_ns } else { f64::INFINITY };
        Self { ratio, selected, fastest }
    }

    fn is_good(&self) -> bool {
        self.ratio <= GOOD
    }
}

impl fmt::Display for CallRatio<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ratio, selected: Candidate { carrier, verb, bytes, time_ns, .. }, fastest } = self;
        let verdict = match *ratio {
            ..=GOOD => "good",
            ..=WORST => "slow",
            _ => "too slow",
        };
        write!(
            to,
            "{ratio:.2}  {verdict:8}  {} {} of {}: {:.1} µs, {} {:.1} µs",
            carrier.name(),
            verb.name(),
            Bytes(*bytes),
            time_ns / 1e3,
            fastest.choice(),
            fastest.time_ns / 1e3
        )
    }
}

/// The calls that were measured, the one whose selected algorithm is the slowest first.
pub(super) struct Check<'a> {
    calls: Vec<CallRatio<'a>>,
}

impl<'a> Check<'a> {
    pub(super) fn new(measured: &'a [Candidate]) -> Self {
        let mut calls: Vec<CallRatio<'_>> = calls(measured).map(CallRatio::new).collect();
        calls.sort_by(|one, other| other.ratio.total_cmp(&one.ratio));
        Self { calls }
    }

    fn worst(&self) -> f64 {
        self.calls.first().map_or(1.0, |call| call.ratio)
    }

    fn good(&self) -> usize {
        self.calls.iter().filter(|call| call.is_good()).count()
    }

    /// Whether the selection is within bounds.
    ///
    /// # Errors
    /// [`OutOfBounds`]. Without calls nothing is known.
    pub(super) fn verdict(&self) -> Result<(), OutOfBounds> {
        let (good, calls, worst) = (self.good(), self.calls.len(), self.worst());
        let is_met = calls > 0 && good * 100 >= calls * GOOD_PERCENT_MIN && worst <= WORST;
        if is_met { Ok(()) } else { Err(OutOfBounds { good, calls, worst }) }
    }
}

impl fmt::Display for Check<'_> {
    /// A line for each call, and a summary.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.calls.iter().try_for_each(|call| writeln!(to, "{call}"))?;
        let (good, calls, worst) = (self.good(), self.calls.len(), self.worst());
        let percent = 100.0 * good as f64 / calls.max(1) as f64;
        writeln!(
            to,
            "selected / fastest: at most {GOOD} for {good} of {calls} calls ({percent:.1} %), at most {worst:.2} for all"
        )
    }
}

/// The selection is out of bounds.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
#[error(
    "the selected algorithm takes at most {GOOD} times as long as the fastest for {good} of {calls} calls, where \
     {GOOD_PERCENT_MIN} % are required, and at most {worst:.2} times for all, where {WORST} is allowed"
)]
pub(super) struct OutOfBounds {
    good: usize,
    calls: usize,
    worst: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono::environment::Override;
    use unisono::environment::tuning::Carrier;
    use unisono_core::collective::CollectiveKind;

    /// Calls whose selected algorithm takes this many times as long as another one.
    fn measured(ratios: &[f64]) -> Vec<Candidate> {
        let other = Override::new(CollectiveKind::Scan, "ring").expect("an algorithm");
        let call = |(n, ratio): (usize, &f64)| {
            [(None, 1000.0 * ratio), (Some(other), 1000.0)].map(|(wanted, time_ns)| Candidate {
                carrier: Carrier::Udp,
                verb: CollectiveKind::Scan,
                bytes: n as u64,
                wanted,
                time_ns,
                executed: String::new(),
                is_finalist: false,
            })
        };
        ratios.iter().enumerate().flat_map(call).collect()
    }

    fn is_met(ratios: &[f64]) -> bool {
        Check::new(&measured(ratios)).verdict().is_ok()
    }

    #[test]
    fn nine_of_ten_calls_must_be_good_and_none_too_slow() {
        let with = |others: &[f64]| [&[1.0; 8], others].concat();
        assert!(is_met(&with(&[1.1, 1.5])));
        assert!(!is_met(&with(&[1.11, 1.11])), "eight of ten are good");
        assert!(!is_met(&with(&[1.0, 1.51])), "one is too slow");
        assert!(is_met(&[0.5]), "the selected one is the fastest");
        assert!(!is_met(&[]), "nothing was measured");
        // 17 of 19 are fewer than 90 %, 18 of 20 are not.
        assert!(!is_met(&[&[1.0; 17][..], &[1.2; 2]].concat()) && is_met(&[&[1.0; 18][..], &[1.2; 2]].concat()));
    }

    #[test]
    fn a_time_that_is_not_known_misses() {
        for time_ns in [f64::NAN, f64::INFINITY] {
            let mut all = measured(&[1.0; 20]);
            all[0].time_ns = time_ns;
            assert!(Check::new(&all).verdict().is_err(), "{time_ns}");
        }
        let mut all = measured(&[1.0; 20]);
        all[1].time_ns = 0.0;
        assert!(Check::new(&all).verdict().is_err(), "a call takes some time");
    }

    #[test]
    fn every_call_is_printed_the_slowest_first() {
        let all = measured(&[1.0, 1.6, 1.2]);
        let check = Check::new(&all);
        let text = check.to_string();
        let lines = [
            "1.60  too slow  udp scan of 1: 1.6 µs, ring 1.0 µs",
            "1.20  slow      udp scan of 2: 1.2 µs, ring 1.0 µs",
            "1.00  good      udp scan of 0: 1.0 µs, selected 1.0 µs",
            "selected / fastest: at most 1.1 for 1 of 3 calls (33.3 %), at most 1.60 for all",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), lines);
        let missed = check.verdict().expect_err("missed").to_string();
        let said = "for 1 of 3 calls, where 90 % are required, and at most 1.60 times for all, where 1.5 is allowed";
        assert!(missed.ends_with(said), "{missed}");
    }
}
