//! Parameters of simulated adapters, from a text file.
//!
//! ```text
//! # A comment.
//! contexts = 16
//! miss_ns = 1000
//! ```
//! Each line gives one of [`Parameters`]' fields a whole number greater than 0; each field is given once.

use core::fmt;
use core::num::NonZeroU64;
use std::path::Path;

use crate::sim::{AdapterCost, Config, Link};

/// The file that is built in.
pub const BUILT_IN: (&str, &str) = ("mt25208.parameters", include_str!("mt25208.parameters"));

/// Largest message over a connection, in bytes.
pub const MESSAGE_BYTES: u32 = 65_535;

/// The parameters of the adapters, their hosts and their links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameters {
    /// Contexts of queue pairs in an adapter's cache.
    pub contexts: u64,
    /// Nanoseconds to fetch another one.
    pub miss_ns: u64,
    /// Nanoseconds from an event of the adapter until the process that waited for it runs.
    pub event_ns: u64,
    /// Nanoseconds of a message without payload, from host to host.
    pub latency_ns: u64,
    /// Bytes of a packet.
    pub packet_bytes: u64,
    /// Bytes of host memory that a connection takes.
    pub connection_bytes: u64,
    /// Bytes of host memory that a peer takes without connection.
    pub peer_bytes: u64,
    /// The rate of a link in each direction.
    pub bytes_per_s: u64,
    /// Nanoseconds of each engine of an adapter per message or datagram.
    pub processing_ns: u64,
}

/// Names in the order of the fields.
const NAMES: [&str; 9] = [
    "contexts",
    "miss_ns",
    "event_ns",
    "latency_ns",
    "packet_bytes",
    "connection_bytes",
    "peer_bytes",
    "bytes_per_s",
    "processing_ns",
];

impl Parameters {
    /// Those of the file that is built in.
    ///
    /// # Panics
    /// It is not valid; a test excludes this.
    pub fn built_in() -> Self {
        let (name, text) = BUILT_IN;
        Self::parse(name, text).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`ParametersError`].
    pub fn load(path: &Path) -> Result<Self, ParametersError> {
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&file, &text),
            Err(error) => Err(ParametersError { file, line: None, problem: Problem::Unreadable(error.to_string()) }),
        }
    }

    /// Parses the text of a file of that name.
    ///
    /// # Errors
    /// [`ParametersError`].
    pub fn parse(file: &str, text: &str) -> Result<Self, ParametersError> {
        let mut values = [None; NAMES.len()];
        for (number, line) in (1..).zip(text.lines()) {
            let content = line.split_once('#').map_or(line, |(content, _)| content).trim();
            if !content.is_empty() {
                let error = |problem| ParametersError { file: file.to_owned(), line: Some(number), problem };
                let (at, value) = parse_line(content).map_err(error)?;
                if values[at].replace(value).is_some() {
                    return Err(error(Problem::Repeated(NAMES[at])));
                }
            }
        }
        let error = |problem| ParametersError { file: file.to_owned(), line: None, problem };
        let value = |at: usize| values[at].ok_or_else(|| error(Problem::Missing(NAMES[at])));
        let parameters = Self {
            contexts: value(0)?,
            miss_ns: value(1)?,
            event_ns: value(2)?,
            latency_ns: value(3)?,
            packet_bytes: value(4)?,
            connection_bytes: value(5)?,
            peer_bytes: value(6)?,
            bytes_per_s: value(7)?,
            processing_ns: value(8)?,
        };
        if parameters.latency_ns < 2 * parameters.processing_ns {
            return Err(error(Problem::ShortLatency));
        }
        if parameters.packet_bytes > u64::from(MESSAGE_BYTES) {
            return Err(error(Problem::LongPacket));
        }
        Ok(parameters)
    }

    /// Names and values.
    pub fn values(&self) -> [(&'static str, u64); NAMES.len()] {
        let Self { contexts, miss_ns, event_ns, latency_ns, packet_bytes, .. } = *self;
        let Self { connection_bytes, peer_bytes, bytes_per_s, processing_ns, .. } = *self;
        let values = [
            contexts,
            miss_ns,
            event_ns,
            latency_ns,
            packet_bytes,
            connection_bytes,
            peer_bytes,
            bytes_per_s,
            processing_ns,
        ];
        core::array::from_fn(|at| (NAMES[at], values[at]))
    }

    /// A simulated network of such adapters. Headers of packets take no time on the links.
    pub fn network(&self) -> Config {
        let rate = NonZeroU64::new(self.bytes_per_s);
        let link = Link {
            ingress_bytes_per_s: rate,
            egress_bytes_per_s: rate,
            propagation_ns: self.latency_ns - 2 * self.processing_ns,
            queue: u32::MAX,
            ..Link::default()
        };
        let adapter = AdapterCost {
            contexts: u32::try_from(self.contexts).unwrap_or(u32::MAX),
            miss_ns: self.miss_ns,
            processing_ns: self.processing_ns,
            packet: self.packet_bytes as u32,
        };
        let (mtu, receive_slots) = (MESSAGE_BYTES, 1024);
        Config { mtu, receive_slots, exposes_memory: true, link, adapter: Some(adapter), ..Config::default() }
    }
}

/// The field of a line, and its value.
fn parse_line(content: &str) -> Result<(usize, u64), Problem> {
    let (name, value) = content.split_once('=').ok_or(Problem::Form)?;
    let (name, value) = (name.trim(), value.trim());
    let at = NAMES.iter().position(|known| *known == name).ok_or_else(|| Problem::Unknown(name.to_owned()))?;
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_number.then(|| value.parse().ok()).flatten().filter(|number| (1..=MAX).contains(number));
    Ok((at, number.ok_or_else(|| Problem::Value(value.to_owned()))?))
}

/// The largest value: sums of times do not overflow.
const MAX: u64 = 1 << 40;

/// Why a file has no valid parameters: its name, the line, and the problem.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParametersError {
    file: String,
    line: Option<u32>,
    problem: Problem,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Problem {
    Unreadable(String),
    Form,
    Unknown(String),
    Value(String),
    Repeated(&'static str),
    Missing(&'static str),
    ShortLatency,
    LongPacket,
}

impl fmt::Display for ParametersError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}: ", self.file)?;
        self.line.map_or(Ok(()), |line| write!(to, "line {line}: "))?;
        match &self.problem {
            Problem::Unreadable(reason) => to.write_str(reason),
            Problem::Form => to.write_str("expected name = value"),
            Problem::Unknown(name) => write!(to, "unknown name {name:?}; there are {}", NAMES.join(", ")),
            Problem::Value(value) => write!(to, "expected a whole number from 1 to {MAX}, not {value:?}"),
            Problem::Repeated(name) => write!(to, "{name} is given twice"),
            Problem::Missing(name) => write!(to, "{name} is missing"),
            Problem::ShortLatency => to.write_str("latency_ns must be at least 2 × processing_ns"),
            Problem::LongPacket => write!(to, "packet_bytes must be at most {MESSAGE_BYTES}"),
        }
    }
}

impl core::error::Error for ParametersError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Line n gives the field n the value 10 + n.
    fn text() -> String {
        (10..).zip(NAMES).map(|(value, name)| format!("{name} = {value}\n")).collect()
    }

    #[test]
    fn each_name_sets_its_field() {
        // latency_ns is 13, processing_ns 18.
        let text = text().replace("latency_ns = 13", " latency_ns=130  # long enough\n");
        let parameters = Parameters::parse("a", &text).expect("valid");
        let values = [10, 11, 12, 130, 14, 15, 16, 17, 18];
        assert_eq!(parameters.values().map(|(_, value)| value), values);
        let Parameters { contexts, miss_ns, event_ns, packet_bytes, processing_ns, .. } = parameters;
        assert_eq!([contexts, miss_ns, event_ns, packet_bytes, processing_ns], [10, 11, 12, 14, 18]);
    }

    #[test]
    fn the_built_in_file_is_valid_and_has_the_fitted_points() {
        let parameters = Parameters::built_in();
        assert_eq!((parameters.contexts, parameters.miss_ns), (16, 1000));
    }

    #[test]
    fn errors_name_file_line_and_problem() {
        for (line, message) in [
            ("contexts", "a.txt: line 10: expected name = value"),
            ("context = 1", "a.txt: line 10: unknown name \"context\"; there are contexts, miss_ns,"),
            ("contexts = -1", "a.txt: line 10: expected a whole number from 1 to 1099511627776, not \"-1\""),
            ("contexts = 0", "a.txt: line 10: expected a whole number from 1 to 1099511627776, not \"0\""),
            ("contexts = 1 2", "a.txt: line 10: expected a whole number from 1 to 1099511627776, not \"1 2\""),
            ("contexts =", "a.txt: line 10: expected a whole number from 1 to 1099511627776, not \"\""),
            ("contexts = 3", "a.txt: line 10: contexts is given twice"),
        ] {
            let error = Parameters::parse("a.txt", &format!("{}{line}\n", text())).expect_err(line).to_string();
            assert!(error.starts_with(message), "{line}: {error}");
        }
        let refused = |text: &str| Parameters::parse("a.txt", text).expect_err("refused").to_string();
        assert_eq!(refused(&text().replace("miss_ns", "#")), "a.txt: miss_ns is missing");
        assert_eq!(refused(&text()), "a.txt: latency_ns must be at least 2 × processing_ns");
        let long = text().replace("= 13", "= 130").replace("= 14", "= 65536");
        assert_eq!(refused(&long), "a.txt: packet_bytes must be at most 65535");
        let missing = Parameters::load(Path::new("/nonexistent/file")).expect_err("refused").to_string();
        assert!(missing.starts_with("/nonexistent/file: "), "{missing}");
    }

    proptest! {
        #[test]
        fn no_text_panics(lines in prop::collection::vec("(contexts|miss_ns|x)? ?=? ?[0-9-]{0,20}(#.*)?", 0..12)) {
            prop_assert!(Parameters::parse("a", &lines.join("\n")).is_err(), "a name is missing");
        }
    }
}
