//! Collectives over several hosts with shared memory in each, against other libraries on the same links (issue 33, bar 3),
//! in interleaved rounds. The hosts are those of a [`Lab`]. Of a library that can be run in several ways the best of each
//! round counts.
//!
//! The first run installs the peers into `target/peers` (python3, pip and a C compiler; some 100 MB).

extern crate alloc;

use alloc::collections::BTreeSet;
use core::error::Error;
use core::str::FromStr;
use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use unisono_tests::harness::{cpu_latency::CpuLatencyRequest, lab::Lab};

use unisono_benches::{
    comparison::record::Record,
    comparison::table::{self, Cell},
    comparison::verdict::{Bar, ComparisonVerdict, load},
    contenders::library::HOSTS,
    contenders::unisono_command,
    intra_node::{self, OURS},
};

const COLLECTIVES: [&str; 6] = ["barrier", "broadcast", "reduce", "all_reduce", "all_gather", "all_to_all"];
const SIZES: [u32; 5] = [8, 1 << 10, 16 << 10, 128 << 10, 1 << 20];
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// Measures the collectives of unisono over several hosts against those of other libraries.
#[derive(Parser, Debug)]
struct Options {
    /// Only these collectives
    names: Vec<String>,
    /// Interleaved rounds
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// Hosts, and ranks of each
    #[arg(long, value_delimiter = ',', default_values = ["2x4", "4x2"])]
    shapes: Vec<Shape>,
    /// Bits per second of each host's link, in millions
    #[arg(long, default_value_t = 1000.0)]
    rate: f64,
    /// An option of `unisono run`
    #[arg(long, allow_hyphen_values = true)]
    with: Vec<String>,
    /// Where the peers are installed
    #[arg(long, value_name = "DIRECTORY", default_value = "target/peers")]
    place: PathBuf,
    /// One object per line
    #[arg(long)]
    json: bool,
}

/// Hosts, and ranks of each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape {
    hosts: usize,
    ranks: u32,
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shape = || {
            let (hosts, ranks) = text.split_once('x')?;
            let shape = Self { hosts: hosts.parse().ok()?, ranks: ranks.parse().ok()? };
            ((1..=NAMES.len()).contains(&shape.hosts) && shape.ranks > 0).then_some(shape)
        };
        shape().ok_or_else(|| format!("{text} is not a number of hosts up to {}, an x, and ranks of each", NAMES.len()))
    }
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let Options { names, rounds, shapes, rate, with, place, json } = Options::parse();
    let (binary, place) = (unisono_command::binary()?, std::path::absolute(place)?);
    // One of each package.
    for peer in [&HOSTS[0], &HOSTS[2]] {
        peer.prepare(&place)?;
    }
    let _awake = CpuLatencyRequest::begin();
    let wanted: Vec<&'static str> =
        COLLECTIVES.into_iter().filter(|name| names.is_empty() || names.iter().any(|one| one == name)).collect();
    let rates = [rate * 1e6];
    let mut all_met = true;
    for shape in shapes {
        let (mut record, mut given_up) = (Record::default(), BTreeSet::new());
        let lab = Lab { hosts: &NAMES[..shape.hosts], rates: &rates };
        let ranks = shape.ranks * shape.hosts as u32;
        for round in 1..=rounds {
            record.begin_round();
            eprintln!("{} hosts of {} ranks, round {round}, load average {}", shape.hosts, shape.ranks, load());
            for name in &wanted {
                let sizes = sizes_of(name);
                for bytes in sizes {
                    let number = bytes.to_string();
                    let benchmark =
                        if *name == "barrier" { vec![*name] } else { vec!["collective", name, "--bytes", &number] };
                    match unisono_command::on_hosts(&binary, &lab, shape.ranks, &with, &benchmark, "time_ns") {
                        Ok(time) => record.add(&intra_node::collective(name, ranks, *bytes), OURS, time),
                        Err(error) => {
                            all_met = false;
                            eprintln!("{OURS}: no figure of {name}, {bytes} B: {error}");
                        }
                    }
                }
                for peer in HOSTS {
                    if given_up.contains(&(peer.name, *name)) {
                        continue;
                    }
                    let (figures, end) = peer.collective_on(&place, &lab, shape.ranks, name, sizes);
                    for (bytes, time) in figures {
                        record.add(&intra_node::collective(name, ranks, bytes), peer.name, time);
                    }
                    if let Err(error) = end {
                        eprintln!("{}: does not finish all sizes of {name}: {error}", peer.name);
                        given_up.insert((peer.name, *name));
                    }
                }
            }
        }
        all_met &= judge(&record, shape, &wanted, json);
    }
    if !json {
        println!("medians of {rounds} interleaved rounds, {rate} Mbit/s, load average {}", load());
    }
    Ok(if all_met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn sizes_of(name: &str) -> &'static [u32] {
    if name == "barrier" { &[0] } else { &SIZES }
}

/// Prints the ratios on hosts of one shape, and their median. Returns whether that satisfies the bar.
fn judge(record: &Record, shape: Shape, names: &[&'static str], json: bool) -> bool {
    let (others, ranks) = (HOSTS.map(|peer| peer.name), shape.ranks * shape.hosts as u32);
    let cell = |name, bytes: &u32| Cell::of(record, name, ranks, *bytes, &others);
    let mut cells = Vec::new();
    for name in names {
        let sizes = sizes_of(name);
        let row: Vec<Cell> = sizes.iter().map(|bytes| cell(name, bytes)).collect();
        table::print(&row, sizes, "the best other", json);
        cells.extend(row);
    }
    cells.retain(|cell| cell.ratio.is_finite());
    cells.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
    let Some(middle) = cells.get(cells.len() / 2) else { return false };
    let below = cells.iter().filter(|cell| cell.ratio < 1.0).count();
    let Shape { hosts, ranks: per_host } = shape;
    let name = format!("{hosts} hosts of {per_host} ranks: median of {} cells, {below} below 1", cells.len());
    let Cell { ours, theirs, ratio, .. } = *middle;
    let verdict = ComparisonVerdict { name, unit: "ns", ours, theirs, ratio, bar: Bar::Least(1.2) };
    verdict.print(json);
    verdict.is_met()
}
