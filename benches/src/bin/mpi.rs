//! MPI programs over unisono against MPICH, which runs the same binaries, and against Open MPI, which is built from the
//! same source (issue 32, bar 5): messages and all collectives on one host, in interleaved rounds. Of a library that can be
//! run in several ways the best of each round counts.
//!
//! The first run installs the peers into `target/peers` (python3, pip and a C compiler; some 100 MB).

extern crate alloc;

use alloc::collections::BTreeSet;
use core::error::Error;
use std::{path::PathBuf, process::ExitCode, thread};

use clap::{Parser, ValueEnum};
use unisono_tests::harness::cpu_latency::CpuLatencyRequest;

use unisono_benches::{
    cache_line::CacheLineDistances,
    comparison::record::{Better, Record, middle, ratio},
    comparison::verdict::{Bar, ComparisonVerdict, load},
    contenders::mpi_binary::{Contender, MpiBinaries},
    intra_node::{self, MPICH, OPEN_MPI, OURS},
};

const LATENCY: [u32; 7] = [8, 64, 1 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20];
const BANDWIDTH: [u32; 5] = [1 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20];
const COLLECTIVES: [&str; 10] = [
    "broadcast",
    "gather",
    "scatter",
    "all_gather",
    "all_to_all",
    "reduce",
    "all_reduce",
    "reduce_scatter",
    "scan",
    "exscan",
];
const SIZES: [u32; 5] = [8, 256, 4 << 10, 64 << 10, 1 << 20];
const RANKS: [u32; 2] = [2, 4];

/// Measures MPI programs over unisono against other implementations.
#[derive(Parser, Debug)]
struct Options {
    /// What is measured
    #[arg(default_value = "all")]
    what: What,
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

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    /// Latency and bandwidth between two ranks
    Messages,
    /// Collectives on 2 and 4 ranks
    Collectives,
    /// Both
    All,
}

/// A compared quantity.
struct Quantity {
    name: String,
    better: Better,
}

/// A measurement, which gives one or several quantities.
#[derive(Clone, Copy)]
enum Measurement {
    Exchange(&'static str, u32),
    Collective(&'static str, u32, &'static [u32]),
}

impl Measurement {
    fn all(what: What) -> Vec<Self> {
        let mut all = Vec::new();
        if what != What::Collectives {
            all.extend(LATENCY.map(|bytes| Self::Exchange("latency", bytes)));
            all.push(Self::Exchange("rate", 8));
            all.extend(
                BANDWIDTH.into_iter().flat_map(|bytes| ["same", "bandwidth"].map(|what| Self::Exchange(what, bytes))),
            );
        }
        if what != What::Messages {
            for ranks in RANKS {
                all.push(Self::Collective("barrier", ranks, &[0]));
                all.extend(COLLECTIVES.map(|name| Self::Collective(name, ranks, &SIZES)));
            }
        }
        all
    }

    fn quantity(self, bytes: u32) -> Quantity {
        match self {
            Self::Exchange(what, bytes) => {
                let label = match what {
                    "same" => "bandwidth, one buffer",
                    "bandwidth" => "bandwidth, buffers in turn",
                    other => other,
                };
                let better = if what == "latency" { Better::Less } else { Better::More };
                Quantity { name: format!("{label}, {}", intra_node::size(bytes)), better }
            }
            Self::Collective("barrier", ranks, _) => {
                Quantity { name: intra_node::barrier(ranks), better: Better::Less }
            }
            Self::Collective(name, ranks, _) => {
                Quantity { name: intra_node::collective(name, ranks, bytes), better: Better::Less }
            }
        }
    }

    fn quantities(self) -> Vec<Quantity> {
        match self {
            Self::Exchange(_, bytes) => vec![self.quantity(bytes)],
            Self::Collective(_, _, sizes) => sizes.iter().map(|bytes| self.quantity(*bytes)).collect(),
        }
    }

    /// Measures it over one contender, and records the figures.
    fn run(self, binaries: &MpiBinaries, who: &Contender, record: &mut Record) -> std::io::Result<()> {
        let mut add = |quantity: Quantity, figure| record.add(&quantity.name, who.name(), figure);
        match self {
            Self::Exchange(what, bytes) => add(self.quantity(bytes), binaries.exchange(who, what, bytes)?),
            Self::Collective(name, ranks, sizes) => {
                let (figures, end) = binaries.collective(who, ranks, name, sizes);
                figures.into_iter().for_each(|(bytes, time)| add(self.quantity(bytes), time));
                end?;
            }
        }
        Ok(())
    }

    const fn ranks(self) -> u32 {
        match self {
            Self::Exchange(..) => 2,
            Self::Collective(_, ranks, _) => ranks,
        }
    }
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let Options { what, rounds, place, json } = Options::parse();
    let processors = u32::try_from(thread::available_parallelism()?.get())?;
    let binaries = MpiBinaries::new(&place, processors)?;
    let _awake = CpuLatencyRequest::begin();
    let measurements = Measurement::all(what);
    let (mut record, mut distances, mut given_up, mut all_met) =
        (Record::default(), CacheLineDistances::default(), BTreeSet::new(), true);
    for round in 1..=rounds {
        record.begin_round();
        eprintln!("round {round}, load average {}", load());
        for (number, measurement) in measurements.iter().enumerate() {
            distances.measure(|| {
                for who in binaries.contenders.iter().filter(|who| binaries.takes(who, measurement.ranks())) {
                    if given_up.contains(&(number, who.name())) {
                        continue;
                    }
                    if let Err(error) = measurement.run(&binaries, who, &mut record) {
                        eprintln!("{}: {error}", who.name());
                        given_up.insert((number, who.name()));
                        all_met &= who.name() != OURS;
                    }
                }
                Ok(())
            })?;
        }
    }
    let quantities: Vec<Quantity> = measurements.iter().flat_map(|measurement| measurement.quantities()).collect();
    for (label, others, bar) in [("MPICH", &MPICH, 1.2), ("Open MPI", &OPEN_MPI, 1.0)] {
        all_met &= judge(&record, &quantities, (label, others), bar, json);
    }
    if !json {
        println!("{distances}");
        println!("medians of {rounds} interleaved rounds, {processors} processors, load average {}", load());
    }
    Ok(if all_met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints the ratios to one library, worst first, and their median. Returns whether that satisfies the bar; a library
/// without figures satisfies any.
fn judge(
    record: &Record,
    quantities: &[Quantity],
    (label, others): (&str, &[&'static str]),
    bar: f64,
    json: bool,
) -> bool {
    let mut cells = Vec::new();
    for Quantity { name, better } in quantities {
        let [ours, theirs] = [&[OURS][..], others].map(|who| record.best(name, who, *better));
        let unit = if *better == Better::Less { "ns" } else { "1/s" };
        let name = format!("{name}: times as good as {label}");
        let ratio = ratio(&ours, &theirs, *better);
        cells.push(ComparisonVerdict {
            name,
            unit,
            ours: middle(&ours),
            theirs: middle(&theirs),
            ratio,
            bar: Bar::None,
        });
    }
    cells.retain(|cell| cell.ratio.is_finite());
    cells.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
    cells.iter().for_each(|cell| cell.print(json));
    let Some(middle) = cells.get(cells.len() / 2) else {
        eprintln!("{label}: no figures");
        return true;
    };
    let below = cells.iter().filter(|cell| cell.ratio < 1.0).count();
    let name = format!("median of {} cells, {below} below 1: {}", cells.len(), middle.name);
    let verdict = ComparisonVerdict { name, bar: Bar::Least(bar), ..middle.clone() };
    verdict.print(json);
    verdict.is_met()
}
