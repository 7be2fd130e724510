//! Collectives of unisono over UDP against other libraries over the network (issue 5, bar 7), in interleaved rounds. Of
//! a library that can be run in several ways the best of each round counts.
//!
//! The first run installs the peers into `target/peers` (python3, pip and a C compiler; some 100 MB).

extern crate alloc;

use alloc::collections::BTreeSet;
use core::error::Error;
use std::{path::PathBuf, process::ExitCode, thread};

use clap::Parser;
use unisono_tests::harness::cpu_latency::CpuLatencyRequest;

use unisono_benches::{
    comparison::record::Record,
    comparison::table::{self, Cell},
    comparison::verdict::{Bar, ComparisonVerdict, load},
    contenders::library::{Input, NETWORK},
    contenders::unisono_command,
    intra_node::{self, OURS},
};

const COLLECTIVES: [&str; 8] =
    ["broadcast", "gather", "scatter", "all_gather", "all_to_all", "reduce", "all_reduce", "reduce_scatter"];
const SIZES: [u32; 3] = [8, 4 << 10, 256 << 10];

/// Measures the collectives of unisono over UDP against those of other libraries.
#[derive(Parser, Debug)]
struct Options {
    /// Only these collectives
    names: Vec<String>,
    /// Interleaved rounds
    #[arg(long, default_value_t = 5)]
    rounds: u64,
    /// Ranks, all on this host
    #[arg(long, default_value_t = 4)]
    ranks: u32,
    /// Where the peers are installed
    #[arg(long, value_name = "DIRECTORY", default_value = "target/peers")]
    place: PathBuf,
    /// One object per line
    #[arg(long)]
    json: bool,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let Options { names, rounds, ranks, place, json } = Options::parse();
    let (binary, place) = (unisono_command::binary()?, std::path::absolute(place)?);
    // One of each package.
    for peer in [&NETWORK[0], &NETWORK[1]] {
        peer.prepare(&place)?;
    }
    let _awake = CpuLatencyRequest::begin();
    let oversubscribed = ranks > u32::try_from(thread::available_parallelism()?.get())?;
    let wanted: Vec<&'static str> =
        COLLECTIVES.into_iter().filter(|name| names.is_empty() || names.iter().any(|one| one == name)).collect();
    let (mut record, mut given_up, mut all_met) = (Record::default(), BTreeSet::new(), true);
    for round in 1..=rounds {
        record.begin_round();
        eprintln!("round {round}, load average {}", load());
        for name in &wanted {
            for bytes in SIZES {
                let what = intra_node::collective(name, ranks, bytes);
                let benchmark = ["collective", name, "--bytes", &bytes.to_string()];
                match unisono_command::among(&binary, "udp", ranks, oversubscribed, &benchmark, "time_ns") {
                    Ok(time) => record.add(&what, OURS, time),
                    Err(error) => {
                        all_met = false;
                        eprintln!("{OURS}: no figure of {what}: {error}");
                    }
                }
            }
            for peer in NETWORK {
                if given_up.contains(&(peer.name, *name)) {
                    continue;
                }
                let (figures, end) = peer.collective(&place, ranks, oversubscribed, Input::Rewritten, name, &SIZES);
                for (bytes, time) in figures {
                    record.add(&intra_node::collective(name, ranks, bytes), peer.name, time);
                }
                if end.is_err() {
                    eprintln!("{}: does not finish all sizes of {name}", peer.name);
                    given_up.insert((peer.name, *name));
                }
            }
        }
    }
    let others = NETWORK.map(|peer| peer.name);
    let each = |name| SIZES.map(|bytes| Cell::of(&record, name, ranks, bytes, &others));
    let cells: Vec<Cell> = wanted.into_iter().flat_map(each).collect();
    table::print(&cells, &SIZES, "the best other", json);
    let compared = cells.iter().filter(|cell| cell.ratio.is_finite());
    if let Some(Cell { name, bytes, ours, theirs, ratio, .. }) = compared.min_by(|a, b| a.ratio.total_cmp(&b.ratio)) {
        let name = format!("least cell, {}: times as fast", intra_node::collective(name, ranks, *bytes));
        let verdict =
            ComparisonVerdict { name, unit: "ns", ours: *ours, theirs: *theirs, ratio: *ratio, bar: Bar::Least(1.0) };
        verdict.print(json);
        all_met &= verdict.is_met();
    }
    if !json {
        println!("medians of {rounds} interleaved rounds, load average {}", load());
    }
    Ok(if all_met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
