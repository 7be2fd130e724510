//! The grammar of `unisono bench`. It is tested, and not offered as a command before the measurements exist.

use clap::{Args, Parser, Subcommand, ValueEnum};
use core::{fmt, str::FromStr};

/// A number of bytes. Written as a number, or with K, M, G or T for powers of 1024: `64K`, `1G`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Bytes(pub(crate) u64);

impl FromStr for Bytes {
    type Err = BytesError;

    fn from_str(text: &str) -> Result<Self, BytesError> {
        let (digits, shift) = match text.as_bytes().last() {
            Some(b'K') => (text.strip_suffix('K'), 10),
            Some(b'M') => (text.strip_suffix('M'), 20),
            Some(b'G') => (text.strip_suffix('G'), 30),
            Some(b'T') => (text.strip_suffix('T'), 40),
            _ => (Some(text), 0),
        };
        let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        let number: u64 = digits.and_then(|digits| digits.parse().ok()).ok_or(BytesError)?;
        number.checked_mul(1 << shift).map(Self).ok_or(BytesError)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
        match units.into_iter().find(|(shift, _)| self.0 != 0 && self.0.trailing_zeros() >= *shift) {
            Some((shift, unit)) => write!(to, "{}{unit}", self.0 >> shift),
            None => self.0.fmt(to),
        }
    }
}

/// No number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a number of bytes is expected, such as 8, 64K or 1G")]
pub(crate) struct BytesError;

/// What is measured.
#[derive(Subcommand, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Measure {
    /// Position-dependent data from rank 0 to rank 1, hashed on both sides
    Transfer(Sized),
    /// Half the time of a ping-pong
    Latency(Sized),
    /// Bytes per second of a window of messages
    Bandwidth(Sized),
    /// Messages per second
    Rate(Sized),
    /// All ranks wait for each other
    Barrier,
    /// A collective operation
    Collective {
        /// Which
        name: Collective,
        #[command(flatten)]
        sized: Sized,
    },
    /// What the machine itself does
    Floor,
}

/// How much is sent.
#[derive(Args, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sized {
    /// Bytes, such as 8, 64K or 1G
    #[arg(long)]
    pub(crate) bytes: Bytes,
}

/// A collective operation.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
#[value(rename_all = "snake_case")]
pub(crate) enum Collective {
    Broadcast,
    Gather,
    Scatter,
    AllGather,
    AllToAll,
    Reduce,
    AllReduce,
    ReduceScatter,
    Scan,
}

/// Options of `unisono bench`.
#[derive(Parser, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) measure: Measure,
    /// One object per line
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        let words = core::iter::once("bench").chain(line.split(' '));
        Options::try_parse_from(words).map_err(|error| error.to_string())
    }

    #[test]
    fn sizes_are_powers_of_two() {
        for (text, bytes) in [("0", 0), ("8", 8), ("64K", 65536), ("1G", 1 << 30), ("3M", 3 << 20), ("1025", 1025)] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)));
            assert_eq!(Bytes(bytes).to_string(), text);
        }
        for text in ["", "K", "-1", "+1", "1k", "1.5G", "64 K", "16777216T", "18446744073709551616"] {
            assert_eq!(text.parse::<Bytes>(), Err(BytesError), "{text}");
        }
    }

    #[test]
    fn the_grammar_of_the_design_is_understood() {
        let sized = |bytes| Sized { bytes: Bytes(bytes) };
        for (line, measure) in [
            ("transfer --bytes 1G", Measure::Transfer(sized(1 << 30))),
            ("latency --bytes 8", Measure::Latency(sized(8))),
            ("bandwidth --bytes 64K", Measure::Bandwidth(sized(65536))),
            ("rate --bytes 64", Measure::Rate(sized(64))),
            ("barrier", Measure::Barrier),
            ("collective all_to_all --bytes 1", Measure::Collective { name: Collective::AllToAll, sized: sized(1) }),
            ("floor", Measure::Floor),
        ] {
            assert_eq!(parse(line), Ok(Options { measure, json: false }), "{line}");
            assert_eq!(parse(&format!("{line} --json")), Ok(Options { measure, json: true }), "{line}");
        }
        for line in ["", "transfer", "barrier --bytes 8", "collective --bytes 8", "collective dance --bytes 8"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
