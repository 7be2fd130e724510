//! Measurements between the ranks of one host: of the hardware, of unisono and of other libraries, in turn.

use alloc::{collections::BTreeMap, string::String, vec::Vec};
use core::mem;
use std::{
    io,
    path::{Path, PathBuf},
    thread,
};

use unisono_tests::harness::cpu_latency::CpuLatencyRequest;

use crate::{
    cache_line::CacheLineDistances,
    comparison::{record::Record, verdict::load},
    contenders::{
        hardware_floor::Floor,
        iceoryx2,
        library::{Input, Library, MPICH_SHM, OPEN_MPI_SHM, UCX_SHM},
        unisono_command,
    },
};

/// The hardware baseline.
pub const FLOOR: &str = "floor";
/// The rings that messages go through, without messages.
pub const RING: &str = "raw ring";
/// unisono.
pub const OURS: &str = "unisono";

/// The ways to run Open MPI.
pub const OPEN_MPI: [&str; 2] = [OPEN_MPI_SHM[0].name, OPEN_MPI_SHM[1].name];
/// The ways to run MPICH.
pub const MPICH: [&str; 2] = [MPICH_SHM[0].name, MPICH_SHM[1].name];
/// Of both.
pub const MPIS: [&str; 4] = [OPEN_MPI[0], OPEN_MPI[1], MPICH[0], MPICH[1]];
/// MPICH over UCX.
pub const UCX: &str = UCX_SHM.name;

/// Failures after which a contender's measurement is not repeated.
const TRIES: u32 = 2;

/// Buffers of the receiver of `unisono bench bandwidth`.
const PLACES: u32 = 64;

/// Location of a stream's buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Buffers {
    /// Anywhere.
    Private,
    /// In the segment.
    Segment,
}

impl Buffers {
    const fn name(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Segment => "segment",
        }
    }
}

/// The name of a barrier's figures.
pub fn barrier(ranks: u32) -> String {
    format!("barrier, {ranks} ranks")
}

/// The name of the figures of 8 bytes one way, each time taken by the clock.
pub const LATENCY: &str = "one way, 8 B";
/// The same without reading the clock in between, like the hardware baseline.
pub const STEADY: &str = "one way, 8 B, in batches";

/// The name of a stream's figures.
pub fn bandwidth(bytes: u32, buffers: Buffers) -> String {
    format!("bandwidth, {}, {}", size(bytes), buffers.name())
}

/// The name of a collective's figures.
pub fn collective(name: &str, ranks: u32, bytes: u32) -> String {
    format!("{name}, {ranks} ranks, {}", size(bytes))
}

/// A number of bytes as in the tables.
pub fn size(bytes: u32) -> String {
    match bytes {
        0x10_0000.. if bytes.trailing_zeros() >= 20 => format!("{} MiB", bytes >> 20),
        0x400.. if bytes.trailing_zeros() >= 10 => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// The contenders on this host, and their figures.
pub struct IntraNodeBench {
    /// All figures.
    pub record: Record,
    /// Processors that this process may use.
    pub processors: u32,
    binary: PathBuf,
    place: PathBuf,
    as_json: bool,
    input: Input,
    round: u32,
    /// Distances of the processors.
    pub distances: CacheLineDistances,
    _cpu_latency: Option<CpuLatencyRequest>,
    failures: BTreeMap<(String, &'static str), u32>,
}

impl IntraNodeBench {
    /// Builds unisono and installs the others below `place`; collectives get this input. Reports a library that cannot
    /// be installed, which then has no figures.
    ///
    /// # Errors
    /// unisono does not build.
    pub fn new(place: &Path, as_json: bool, input: Input) -> io::Result<Self> {
        let binary = unisono_command::binary()?;
        let place = std::path::absolute(place)?;
        let mut installed = vec![(iceoryx2::NAME, iceoryx2::prepare(&place))];
        // One of each package.
        installed.extend([OPEN_MPI_SHM[0], MPICH_SHM[0]].map(|peer| (peer.name, peer.prepare(&place))));
        for (name, end) in installed {
            if let Err(error) = end {
                eprintln!("{name}: {error}");
            }
        }
        let processors = thread::available_parallelism()?.get() as u32;
        Ok(Self {
            record: Record::default(),
            processors,
            binary,
            place,
            as_json,
            input,
            round: 0,
            distances: CacheLineDistances::default(),
            _cpu_latency: CpuLatencyRequest::begin(),
            failures: BTreeMap::new(),
        })
    }

    /// Begins a round.
    pub fn begin_round(&mut self) {
        self.record.begin_round();
        self.round += 1;
        if !self.as_json {
            eprintln!("round {}, load average {}", self.round, load());
        }
    }

    /// Whether ours failed at anything.
    pub fn has_failed(&self) -> bool {
        self.failures.keys().any(|(_, who)| [OURS, FLOOR].contains(who))
    }

    /// Measures every contender, and repeats it if the processors were moved meanwhile: only figures taken at one
    /// distance are compared.
    ///
    /// # Errors
    /// There are no two processors.
    pub fn measure(&mut self, mut something: impl FnMut(&mut Self)) -> io::Result<()> {
        let mut distances = mem::take(&mut self.distances);
        let end = distances.measure(|| {
            something(self);
            Ok(())
        });
        self.distances = distances;
        if let (true, Some(time)) = (self.as_json, self.distances.last()) {
            println!("{}", serde_json::json!({ "round": self.round, "line_ns": time }));
        }
        end
    }

    /// Measures the hardware baseline and records it.
    fn floor(&mut self, bytes: u32, note: impl FnOnce(&mut Self, &Floor)) {
        match Floor::measure(&self.binary, bytes) {
            Ok(floor) => note(self, &floor),
            Err(error) => self.fail(FLOOR, FLOOR, &error),
        }
    }

    /// Measures a barrier; between two ranks also a bare one.
    pub fn barrier(&mut self, ranks: u32) {
        if ranks == 2 {
            self.floor(0, |node, floor| node.record(&barrier(2), FLOOR, floor.barrier));
        }
        let what = barrier(ranks);
        self.ours(&what, ranks, &["barrier"], "time_ns");
        for peer in mpis() {
            self.peer(&what, &peer, ranks, "barrier", &[0], |_| barrier(ranks));
        }
    }

    /// Measures the latency of 8 bytes.
    pub fn latency(&mut self) {
        self.floor(0, |node, floor| {
            node.record(STEADY, FLOOR, floor.line_rtt / 2.0);
            node.record(STEADY, RING, floor.ring_rtt / 2.0);
        });
        for (what, key) in [(LATENCY, "one_way_ns_p50"), (STEADY, "one_way_ns")] {
            self.ours(what, 2, &["latency", "--bytes", "8"], key);
        }
        for peer in mpis().chain([UCX_SHM]) {
            self.other(LATENCY, peer.name, |node| peer.measure(&node.place, "latency", 8));
        }
        self.other(LATENCY, iceoryx2::NAME, |node| iceoryx2::latency(&node.place));
    }

    /// Measures a stream of messages of `bytes` bytes.
    pub fn bandwidth(&mut self, bytes: u32) {
        self.floor(bytes, |node, floor| {
            if let Some(copies) = floor.of(bytes, PLACES) {
                node.record(&bandwidth(bytes, Buffers::Segment), FLOOR, copies.memcpy);
                node.record(&bandwidth(bytes, Buffers::Private), FLOOR, copies.private);
            }
        });
        let number = bytes.to_string();
        for buffers in [Buffers::Private, Buffers::Segment] {
            let options = ["bandwidth", "--bytes", &number, "--for", "200ms", "--buffers", buffers.name()];
            self.ours(&bandwidth(bytes, buffers), 2, &options, "bytes_per_s");
        }
        let what = bandwidth(bytes, Buffers::Private);
        // The variants of Open MPI differ in collectives.
        for peer in [OPEN_MPI_SHM[0], MPICH_SHM[0], MPICH_SHM[1], UCX_SHM] {
            self.other(&what, peer.name, |node| peer.measure(&node.place, "bandwidth", bytes));
        }
    }

    /// Measures a collective in several sizes.
    pub fn collective(&mut self, name: &'static str, ranks: u32, sizes: &[u32]) {
        for bytes in sizes {
            let number = bytes.to_string();
            let options = ["collective", name, "--bytes", &number].into_iter().chain(self.input.option());
            let options: Vec<&str> = options.collect();
            self.ours(&collective(name, ranks, *bytes), ranks, &options, "time_ns");
        }
        let job = format!("{name}, {ranks} ranks");
        for peer in mpis() {
            self.peer(&job, &peer, ranks, name, sizes, |bytes| collective(name, ranks, bytes));
        }
    }

    fn ours(&mut self, what: &str, ranks: u32, benchmark: &[&str], key: &str) {
        self.other(what, OURS, |node| {
            unisono_command::within_node(&node.binary, ranks, ranks > node.processors, benchmark, key)
        });
    }

    fn other(&mut self, what: &str, who: &'static str, measure: impl FnOnce(&Self) -> io::Result<f64>) {
        if self.is_given_up(what, who) {
            return;
        }
        match measure(self) {
            Ok(figure) => self.record(what, who, figure),
            Err(error) => {
                // There may be one from an attempt that does not count.
                self.record.add(what, who, f64::NAN);
                self.fail(what, who, &error);
            }
        }
    }

    fn peer(&mut self, job: &str, peer: &Library, ranks: u32, name: &str, sizes: &[u32], what: impl Fn(u32) -> String) {
        if self.is_given_up(job, peer.name) || !peer.takes(ranks, self.processors) {
            return;
        }
        let (figures, end) = peer.collective(&self.place, ranks, ranks > self.processors, self.input, name, sizes);
        for (bytes, time) in figures {
            self.record(&what(bytes), peer.name, time);
        }
        if let Err(error) = end {
            self.fail(job, peer.name, &error);
        }
    }

    fn record(&mut self, what: &str, who: &'static str, figure: f64) {
        self.record.add(what, who, figure);
        if self.as_json {
            let object = serde_json::json!({
                "round": self.round, "bench": what, "contender": who, "figure": figure, "load": load(),
            });
            println!("{object}");
        }
    }

    fn fail(&mut self, what: &str, who: &'static str, error: &io::Error) {
        let failures = self.failures.entry((String::from(what), who)).or_insert(0);
        *failures += 1;
        let text = error.to_string();
        // The command is long; the end of the text is more informative.
        let end = text.split_once(" ended with ").map_or(text.as_str(), |(_, end)| end).trim();
        let (failures, end) = (*failures, end.chars().take(200).collect::<String>());
        eprintln!("{who}: no figure of {what} (failure {failures} of {TRIES}): {end}");
    }

    fn is_given_up(&self, what: &str, who: &'static str) -> bool {
        self.failures.get(&(String::from(what), who)).is_some_and(|failures| *failures >= TRIES)
    }
}

fn mpis() -> impl Iterator<Item = Library> {
    let mut peers: Vec<Library> = OPEN_MPI_SHM.into();
    peers.extend(MPICH_SHM);
    peers.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        let sizes = [8, 256, 4096, 65536, 1 << 20, 4 << 20, 1025, (1 << 20) + 1024].map(size);
        assert_eq!(sizes, ["8 B", "256 B", "4 KiB", "64 KiB", "1 MiB", "4 MiB", "1025 B", "1025 KiB"]);
    }
}
