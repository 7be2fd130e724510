//! Unisono over UDP against other libraries over the network (issue 3, bar 6): one-way latency of 8 bytes and bandwidth
//! of messages of 64 KiB, the best of interleaved runs, all pinned to a core each.
//!
//! The first run installs the peers into `target/peers` (python3, pip and a C compiler; some 100 MB).

use core::error::Error;
use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use unisono_tests::harness::cpu_latency::CpuLatencyRequest;

use unisono_benches::{
    comparison::verdict::{Bar, ComparisonVerdict, load},
    contenders::library::{LIBFABRIC_TCP, Library, OPEN_MPI_TCP, RELIABLE_DATAGRAMS, UCX_TCP},
    contenders::unisono_command,
};

/// Bytes of a ping-pong message, and of the messages of a stream.
const BALL: u32 = 8;
const MESSAGE: u32 = 65536;

/// Measures unisono over UDP against other libraries.
#[derive(Parser, Debug)]
struct Options {
    /// Interleaved runs, of which the best counts
    #[arg(long, default_value_t = 5)]
    runs: u64,
    /// Where the peers are installed
    #[arg(long, value_name = "DIRECTORY", default_value = "target/peers")]
    place: PathBuf,
    /// One object per line
    #[arg(long)]
    json: bool,
}

/// A library, and the bars against it.
struct Rival {
    peer: Library,
    latency: Bar,
    bandwidth: Bar,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let Options { runs, place, json } = Options::parse();
    let binary = unisono_command::binary()?;
    let lower = Bar::Most(1.0);
    let rivals = [
        Rival { peer: RELIABLE_DATAGRAMS, latency: lower, bandwidth: Bar::Least(3.0) },
        Rival { peer: LIBFABRIC_TCP, latency: lower, bandwidth: Bar::None },
        Rival { peer: UCX_TCP, latency: lower, bandwidth: Bar::None },
        Rival { peer: OPEN_MPI_TCP, latency: Bar::None, bandwidth: Bar::None },
    ];
    let place = std::path::absolute(place)?;
    for rival in &rivals {
        rival.peer.prepare(&place)?;
    }
    let _awake = CpuLatencyRequest::begin();
    if !json {
        println!("best of {runs} interleaved runs, load average {}", load());
    }
    let (ball, message) = (BALL.to_string(), MESSAGE.to_string());
    let mut best = Best::new(rivals.len());
    for _ in 0..runs {
        let latency = unisono_command::measure(&binary, &[], &["latency", "--bytes", &ball], "one_way_ns_p50")?;
        best.latency.0 = best.latency.0.min(latency);
        let benchmark = ["bandwidth", "--bytes", &message, "--for", "200ms"];
        best.bandwidth.0 = best.bandwidth.0.max(unisono_command::measure(&binary, &[], &benchmark, "bytes_per_s")?);
        for ((rival, latency), bandwidth) in rivals.iter().zip(&mut best.latency.1).zip(&mut best.bandwidth.1) {
            *latency = latency.min(rival.peer.measure(&place, "latency", BALL)?);
            *bandwidth = bandwidth.max(rival.peer.measure(&place, "bandwidth", MESSAGE)?);
        }
    }
    let mut all_met = true;
    let mut report = |what, unit, peer: &Library, ours: f64, theirs: f64, bar| {
        let name = format!("{what}, {}", peer.name);
        let verdict = ComparisonVerdict { name, unit, ours, theirs, ratio: ours / theirs, bar };
        verdict.print(json);
        all_met &= verdict.is_met();
    };
    for (rival, theirs) in rivals.iter().zip(best.latency.1) {
        report("one way, 8 bytes", "ns", &rival.peer, best.latency.0, theirs, rival.latency);
    }
    for (rival, theirs) in rivals.iter().zip(best.bandwidth.1) {
        report("bandwidth, 64 KiB", "B/s", &rival.peer, best.bandwidth.0, theirs, rival.bandwidth);
    }
    if !json {
        println!("load average {}", load());
    }
    Ok(if all_met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The best figures up to now: ours, and each rival's.
struct Best {
    latency: (f64, Vec<f64>),
    bandwidth: (f64, Vec<f64>),
}

impl Best {
    fn new(rivals: usize) -> Self {
        Self { latency: (f64::INFINITY, vec![f64::INFINITY; rivals]), bandwidth: (0.0, vec![0.0; rivals]) }
    }
}
