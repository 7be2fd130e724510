//! One-sided operations (issue 29, bar 4), in interleaved rounds: over UDP against round trips of messages; streams of puts
//! with losses against those without, and against libfabric's reliable datagrams; and within a node MPI's windows over
//! unisono against MPICH, which runs the same binary, and Open MPI.
//!
//! The first run installs the peers into `target/peers` (python3, pip and a C compiler; some 100 MB).

use core::error::Error;
use std::path::{Path, PathBuf};
use std::{io, process::ExitCode};

use clap::Parser;
use unisono_tests::harness::cpu_latency::CpuLatencyRequest;

use unisono_benches::{
    comparison::record::{Better, Record, middle, ratio},
    comparison::verdict::{Bar, ComparisonVerdict, load},
    contenders::library::RELIABLE_DATAGRAMS,
    contenders::mpi_binary::MpiBinaries,
    contenders::unisono_command,
    intra_node::{self, MPIS, OURS},
};

/// Bytes of the operations within a node, and of the puts of a stream.
const SIZES: [u32; 3] = [8, 4 << 10, 1 << 20];
const STREAM: u32 = 1 << 20;
/// The operations within a node.
const OPERATIONS: [&str; 3] = ["put", "get", "fetch_and_op"];

/// Contenders over UDP: round trips of messages, and streams without losses.
const MESSAGES: &str = "messages";
const LOSSLESS: &str = "without loss";

/// Measures one-sided operations.
#[derive(Parser, Debug)]
struct Options {
    /// Interleaved rounds
    #[arg(long, default_value_t = 5)]
    rounds: u64,
    /// Where the peers are installed
    #[arg(long, value_name = "DIRECTORY", default_value = "target/peers")]
    place: PathBuf,
    /// One object per line
    #[arg(long)]
    json: bool,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let Options { rounds, place, json } = Options::parse();
    let binaries = MpiBinaries::new(&place, 2)?;
    let (binary, place) = (unisono_command::binary()?, std::path::absolute(place)?);
    if let Err(error) = RELIABLE_DATAGRAMS.prepare(&place) {
        eprintln!("{} is left out: {error}", RELIABLE_DATAGRAMS.name);
    }
    let _awake = CpuLatencyRequest::begin();
    let mut record = Record::default();
    for round in 1..=rounds {
        record.begin_round();
        eprintln!("round {round}, load average {}", load());
        round_trips(&binary, &mut record)?;
        streams(&binary, &place, &mut record)?;
        within_a_node(&binaries, &mut record)?;
    }
    let mut all_met = true;
    let mut judge = |name: &str, unit, others: &[&'static str], better, bar| {
        let [ours, theirs] = [&[OURS][..], others].map(|who| record.best(name, who, better));
        let name = format!("{name}: times as good as {}", if others == MPIS { "the better MPI" } else { others[0] });
        let ratio = ratio(&ours, &theirs, better);
        let verdict = ComparisonVerdict { name, unit, ours: middle(&ours), theirs: middle(&theirs), ratio, bar };
        if ratio.is_finite() {
            verdict.print(json);
        } else {
            verdict.print_lack(json);
        }
        all_met &= verdict.is_met() || !ratio.is_finite();
        ratio
    };
    for name in ["get, 8 B", "fetch_and_op, 8 B", "get, 4 KiB"] {
        judge(&over_udp(name), "ns", &[MESSAGES], Better::Less, Bar::Least(0.909));
    }
    let stream = stream_name();
    judge(&stream, "B/s", &[LOSSLESS], Better::More, Bar::Least(0.8));
    judge(&stream, "B/s", &[RELIABLE_DATAGRAMS.name], Better::More, Bar::None);
    let mut ratios: Vec<f64> = cells()
        .map(|(what, bytes)| judge(&cell_name(what, bytes), "ns", &MPIS, Better::Less, Bar::Least(0.95)))
        .collect();
    ratios.retain(|ratio| ratio.is_finite());
    ratios.sort_by(f64::total_cmp);
    if let Some(median) = ratios.get(ratios.len() / 2) {
        let (name, bar) = ("median within a node".to_owned(), Bar::Least(1.0));
        let verdict = ComparisonVerdict { name, unit: "", ours: *median, theirs: 1.0, ratio: *median, bar };
        verdict.print(json);
        all_met &= verdict.is_met();
    }
    if !json {
        println!("medians of {rounds} interleaved rounds, load average {}", load());
    }
    Ok(if all_met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Gets and updates over UDP, and as many bytes by a message and its answer in the same run; both sides poll.
fn round_trips(binary: &Path, record: &mut Record) -> io::Result<()> {
    for bytes in [8, 4 << 10] {
        let [messages, get, update] = unisono_command::measure_all(
            binary,
            &[],
            &["one-sided", "--bytes", &bytes.to_string()],
            ["messages_ns", "get_ns", "fetch_and_op_ns"],
        )?;
        let mut add = |name: &str, figure| {
            record.add(&over_udp(name), MESSAGES, messages);
            record.add(&over_udp(name), OURS, figure);
        };
        add(&format!("get, {}", intra_node::size(bytes)), get);
        if bytes == 8 {
            add("fetch_and_op, 8 B", update);
        }
    }
    Ok(())
}

/// Puts over UDP, 64 at a time: with every hundredth datagram lost, without losses, and over libfabric without losses.
fn streams(binary: &Path, place: &Path, record: &mut Record) -> io::Result<()> {
    for (who, options) in [(OURS, &["--loss", "1%"][..]), (LOSSLESS, &[])] {
        let benchmark = ["one-sided", "--bytes", &STREAM.to_string()];
        let [rate] = unisono_command::measure_all(binary, options, &benchmark, ["put_bytes_per_s"])?;
        record.add(&stream_name(), who, rate);
    }
    match RELIABLE_DATAGRAMS.one_sided(place, "stream", STREAM) {
        Ok(rate) => record.add(&stream_name(), RELIABLE_DATAGRAMS.name, rate),
        Err(error) => eprintln!("{error}"),
    }
    Ok(())
}

/// Operations on allocated windows through shared memory.
fn within_a_node(binaries: &MpiBinaries, record: &mut Record) -> io::Result<()> {
    for (what, bytes) in cells() {
        for who in &binaries.contenders {
            match binaries.one_sided(who, what, bytes) {
                Ok(time) => record.add(&cell_name(what, bytes), who.name(), time),
                Err(error) if who.name() == OURS => return Err(error),
                Err(error) => eprintln!("{}: {error}", who.name()),
            }
        }
    }
    Ok(())
}

/// The operations and sizes that are measured within a node. An update is of 8 bytes.
fn cells() -> impl Iterator<Item = (&'static str, u32)> {
    let all = OPERATIONS.into_iter().flat_map(|what| SIZES.map(|bytes| (what, bytes)));
    all.filter(|(what, bytes)| *what != "fetch_and_op" || *bytes == 8)
}

fn cell_name(what: &str, bytes: u32) -> String {
    format!("{what}, {}, within a node", intra_node::size(bytes))
}

fn over_udp(name: &str) -> String {
    format!("{name}, over UDP")
}

fn stream_name() -> String {
    format!("puts of {}, over UDP, 1 % loss", intra_node::size(STREAM))
}
