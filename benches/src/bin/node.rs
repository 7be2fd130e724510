//! Unisono inside a host against the bare machine and against other libraries over shared memory (issue 4, bars 1 to
//! 4), in interleaved rounds, pinned alike: medians of each round's ratio. Of a library that can be run in several ways
//! the best of each round counts. Fails when a bar is missed or unisono shows no figure.
//!
//! The first run installs the peers into `target/peers` (python3, pip, a C compiler and libclang; some 200 MB).

use core::error::Error;
use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, ValueEnum};

use unisono_benches::{
    comparison::record::{Better, middle, ratio},
    comparison::table::{self, Cell},
    comparison::verdict::{Bar, ComparisonVerdict, load},
    contenders::iceoryx2,
    contenders::library::Input,
    intra_node::{self, Buffers, FLOOR, IntraNodeBench, LATENCY, MPICH, MPIS, OPEN_MPI, OURS, RING, STEADY, UCX},
};

const BARRIERS: [u32; 4] = [2, 4, 8, 16];
const STREAMS: [u32; 4] = [64 << 10, 256 << 10, 1 << 20, 4 << 20];
const COLLECTIVES: [&str; 4] = ["broadcast", "all_gather", "all_reduce", "all_to_all"];
const RANKS: [u32; 3] = [2, 4, 8];
const SIZES: [u32; 5] = [8, 256, 4 << 10, 64 << 10, 1 << 20];

/// Ranks per processor.
const RANKS_PER_PROCESSOR: [u32; 4] = [1, 2, 4, 8];

/// Measures unisono inside a host against the machine and other libraries.
#[derive(Parser, Debug)]
struct Options {
    /// What is measured
    #[arg(default_value = "all")]
    what: What,
    /// Leave the input of collectives as it is from call to call, as OSU's benchmarks do
    #[arg(long)]
    unchanged: bool,
    /// Interleaved rounds
    #[arg(long, default_value_t = 10)]
    rounds: u64,
    /// Where the peers are installed
    #[arg(long, value_name = "DIRECTORY", default_value = "target/peers")]
    place: PathBuf,
    /// One object per line, of every figure and every verdict
    #[arg(long)]
    json: bool,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    /// A barrier of 2 ranks, and of more than there are processors (bar 1)
    Barrier,
    /// 8 bytes one way (bar 2)
    Latency,
    /// A stream of messages of 64 KiB to 4 MiB (bar 3)
    Bandwidth,
    /// Broadcast, allgather, allreduce and alltoall (bar 4)
    Collectives,
    /// All of these
    All,
    /// A barrier with 1 to 8 ranks per processor
    Waiting,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let Options { what, unchanged, rounds, place, json: as_json } = Options::parse();
    let input = if unchanged { Input::Unchanged } else { Input::Rewritten };
    let wanted = |one| what == one || (what == What::All && one != What::Waiting);
    let mut node = IntraNodeBench::new(&place, as_json, input)?;
    let crowds = RANKS_PER_PROCESSOR.map(|each| each * node.processors);
    for _ in 0..rounds {
        node.begin_round();
        if wanted(What::Barrier) {
            BARRIERS.into_iter().try_for_each(|ranks| node.measure(|node| node.barrier(ranks)))?;
        }
        if wanted(What::Latency) {
            node.measure(IntraNodeBench::latency)?;
        }
        if wanted(What::Bandwidth) {
            STREAMS.into_iter().try_for_each(|bytes| node.measure(|node| node.bandwidth(bytes)))?;
        }
        if wanted(What::Collectives) {
            for (name, ranks) in COLLECTIVES.into_iter().flat_map(|name| RANKS.map(|ranks| (name, ranks))) {
                node.measure(|node| node.collective(name, ranks, &SIZES))?;
            }
        }
        if wanted(What::Waiting) {
            crowds.into_iter().try_for_each(|ranks| node.measure(|node| node.barrier(ranks)))?;
        }
    }
    let mut judge = Judge { node: &node, as_json, all_met: !node.has_failed() };
    if wanted(What::Barrier) {
        judge.barrier();
    }
    if wanted(What::Latency) {
        judge.latency();
    }
    if wanted(What::Bandwidth) {
        judge.bandwidth();
    }
    if wanted(What::Collectives) {
        judge.collectives();
    }
    if wanted(What::Waiting) {
        judge.waiting(&crowds);
    }
    let all_met = judge.all_met;
    if !as_json {
        let [alone, throttled] = MPICH;
        println!("{alone} is not run with more ranks than processors, where it takes minutes: {throttled} is");
        println!("{}", node.distances);
        println!("medians of {rounds} interleaved rounds, {} processors, load average {}", node.processors, load());
    }
    Ok(if all_met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Compares the recorded figures.
struct Judge<'n> {
    node: &'n IntraNodeBench,
    as_json: bool,
    all_met: bool,
}

impl Judge<'_> {
    /// Prints the ratio of our figure to the best of `who`.
    fn times_as_good(&mut self, what: &str, who: &[&'static str], label: &str, better: Better, bar: Bar) {
        let [ours, theirs] = [&[OURS], who].map(|who| self.node.record.best(what, who, better));
        let unit = match better {
            Better::Less => "ns",
            Better::More => "B/s",
        };
        self.print_verdict(format!("{what}: {label}"), unit, [&ours, &theirs], ratio(&ours, &theirs, better), bar);
    }

    /// Prints a comparison. Without a figure on both sides only our lack of one counts as a failure.
    fn print_verdict(&mut self, name: String, unit: &'static str, [ours, theirs]: [&[f64]; 2], ratio: f64, bar: Bar) {
        let (ours, theirs) = (middle(ours), middle(theirs));
        let verdict = ComparisonVerdict { name, unit, ours, theirs, ratio, bar };
        if ratio.is_finite() {
            verdict.print(self.as_json);
            self.all_met &= verdict.is_met();
        } else {
            verdict.print_lack(self.as_json);
            self.all_met &= ours.is_finite();
        }
    }

    fn barrier(&mut self) {
        let what = intra_node::barrier(2);
        self.compare_with_floor(FLOOR, &what, "a bare barrier", Bar::Most(1.2));
        for ranks in BARRIERS {
            let what = intra_node::barrier(ranks);
            let bars = if ranks == 2 { [1.5, 3.0] } else { [1.2, 1.2] }.map(Bar::Least);
            for ((label, who), bar) in [("Open MPI", OPEN_MPI), ("MPICH", MPICH)].into_iter().zip(bars) {
                self.times_as_good(&what, &who, &format!("times as fast as {label}"), Better::Less, bar);
            }
        }
    }

    /// Prints the ratio of our time to that of the hardware.
    fn compare_with_floor(&mut self, floor: &'static str, what: &str, label: &str, bar: Bar) {
        let [ours, floor] = [OURS, floor].map(|who| self.node.record.best(what, &[who], Better::Less));
        let times = ratio(&floor, &ours, Better::Less);
        self.print_verdict(format!("{what}: of {label}"), "ns", [&ours, &floor], times, bar);
    }

    fn latency(&mut self) {
        self.compare_with_floor(FLOOR, STEADY, "half a line's round trip", Bar::Most(1.5));
        self.compare_with_floor(RING, STEADY, "the raw ring's (issue 5, bar 7)", Bar::Most(1.3));
        let faster = Bar::Least(1.0);
        let rivals: [(&str, &[&'static str], Bar); 4] = [
            ("Open MPI", &OPEN_MPI, faster),
            ("MPICH", &MPICH, faster),
            (UCX, &[UCX], faster),
            (iceoryx2::NAME, &[iceoryx2::NAME], Bar::None),
        ];
        for (label, who, bar) in rivals {
            self.times_as_good(LATENCY, who, &format!("times as fast as {label}"), Better::Less, bar);
        }
    }

    fn bandwidth(&mut self) {
        for bytes in STREAMS {
            let segment = intra_node::bandwidth(bytes, Buffers::Segment);
            self.times_as_good(&segment, &[FLOOR], "of a memcpy", Better::More, Bar::Least(0.9));
            let private = intra_node::bandwidth(bytes, Buffers::Private);
            self.times_as_good(&private, &[FLOOR], "of the better bare loop", Better::More, Bar::Least(0.9));
            let rivals: [(&str, &[&'static str], Bar); 3] =
                [("Open MPI", &OPEN_MPI, Bar::Least(1.0)), ("MPICH", &MPICH, Bar::None), (UCX, &[UCX], Bar::None)];
            for (label, who, bar) in rivals {
                self.times_as_good(&private, who, &format!("times {label}"), Better::More, bar);
            }
        }
    }

    fn collectives(&mut self) {
        let mut cells = Vec::new();
        for (name, ranks) in COLLECTIVES.into_iter().flat_map(|name| RANKS.map(|ranks| (name, ranks))) {
            for bytes in SIZES {
                cells.push(Cell::of(&self.node.record, name, ranks, bytes, &MPIS));
            }
        }
        table::print(&cells, &SIZES, "the better of Open MPI and MPICH", self.as_json);
        self.all_met &= cells.iter().all(|cell| cell.ours.is_finite());
        cells.retain(|cell| cell.ratio.is_finite());
        cells.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
        for (label, index, bar) in [("median", cells.len() / 2, 1.2), ("least", 0, 0.9)] {
            let Some(cell) = cells.get(index) else { break };
            let what = intra_node::collective(cell.name, cell.ranks, cell.bytes);
            let name = format!("{label} cell, {what}: times as fast");
            self.print_verdict(name, "ns", [&[cell.ours], &[cell.theirs]], cell.ratio, Bar::Least(bar));
        }
    }

    fn waiting(&mut self, crowds: &[u32]) {
        for ranks in crowds {
            let what = intra_node::barrier(*ranks);
            for (label, who) in [("Open MPI", OPEN_MPI), ("MPICH", MPICH)] {
                self.times_as_good(&what, &who, &format!("times as fast as {label}"), Better::Less, Bar::None);
            }
        }
    }
}
