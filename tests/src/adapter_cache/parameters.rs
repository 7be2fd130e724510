//! Parameters of simulated adapters.

use core::num::NonZeroU64;
use std::path::Path;

use crate::harness::parameters::{ParameterError, Parameters};
use crate::sim::{AdapterCost, Config, Link};

/// The file that is built in.
pub const BUILT_IN: (&str, &str) = ("mt25208.txt", include_str!("../../parameters/mt25208.txt"));

/// Largest message over a connection, in bytes.
pub const MESSAGE_BYTES: u32 = 65_535;

/// The parameters of the adapters, their hosts and their links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdapterParameters {
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

impl AdapterParameters {
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
    /// It cannot be read, or a parameter is malformed, unknown or missing, or contradicts another one.
    pub fn read(path: &Path) -> Result<Self, ParameterError> {
        Self::take(Parameters::read(path)?)
    }

    /// Parses the text of a file of that name.
    ///
    /// # Errors
    /// As of [`read`](Self::read).
    pub fn parse(file: &str, text: &str) -> Result<Self, ParameterError> {
        Self::take(Parameters::parse(Path::new(file), text)?)
    }

    fn take(mut file: Parameters) -> Result<Self, ParameterError> {
        let parameters = Self {
            contexts: file.take_positive("contexts")?,
            miss_ns: file.take_positive("miss_ns")?,
            event_ns: file.take_positive("event_ns")?,
            latency_ns: file.take_positive("latency_ns")?,
            packet_bytes: file.take_positive("packet_bytes")?,
            connection_bytes: file.take_positive("connection_bytes")?,
            peer_bytes: file.take_positive("peer_bytes")?,
            bytes_per_s: file.take_positive("bytes_per_s")?,
            processing_ns: file.take_positive("processing_ns")?,
        };
        if parameters.latency_ns < 2 * parameters.processing_ns {
            return Err(file.conflict("latency_ns must be at least 2 × processing_ns"));
        }
        if parameters.packet_bytes > u64::from(MESSAGE_BYTES) {
            return Err(file.conflict("packet_bytes must be at most 65535"));
        }
        file.end()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Line n gives the field n the value 10 + n.
    fn text() -> String {
        (10..).zip(NAMES).map(|(value, name)| format!("{name} = {value}\n")).collect()
    }

    #[test]
    fn each_name_sets_its_field() {
        // latency_ns is 13, processing_ns 18.
        let text = text().replace("latency_ns = 13", " latency_ns=130");
        let parameters = AdapterParameters::parse("a", &text).expect("valid");
        let values = [10, 11, 12, 130, 14, 15, 16, 17, 18];
        assert_eq!(parameters.values().map(|(_, value)| value), values);
        let AdapterParameters { contexts, miss_ns, event_ns, packet_bytes, processing_ns, .. } = parameters;
        assert_eq!([contexts, miss_ns, event_ns, packet_bytes, processing_ns], [10, 11, 12, 14, 18]);
    }

    #[test]
    fn the_built_in_file_is_valid_and_has_the_fitted_points() {
        let parameters = AdapterParameters::built_in();
        assert_eq!((parameters.contexts, parameters.miss_ns), (16, 1000));
    }

    #[test]
    fn parameters_that_contradict_each_other_are_refused() {
        let refused = |text: &str| AdapterParameters::parse("a.txt", text).expect_err("refused").to_string();
        assert_eq!(refused(&text()), "a.txt: latency_ns must be at least 2 × processing_ns");
        let long = text().replace("= 13", "= 130").replace("= 14", "= 65536");
        assert_eq!(refused(&long), "a.txt: packet_bytes must be at most 65535");
    }
}
