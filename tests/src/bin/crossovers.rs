//! Allgathers against the length of a block, as in Fig. 11 of Qian & Afsahi (2008): flat and SMP-aware algorithms over two
//! rails, on the hosts of [`Lab`]. A host sends over two ports, one for each rail.
//!
//! The source's gather and broadcast between leaders, and the library of its network, have no counterpart here; rings are
//! shown instead.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use clap::Parser;
use unisono::World;
use unisono_bench::Bytes;
use unisono_bench::plot::{self, Chart, Line, Stroke};
use unisono_tests::harness::lab::Lab;
use unisono_tests::harness::report::{Limit, Report, quantile};

const HOSTS: [&str; 4] = ["a", "b", "c", "d"];
/// The time that the calls of a measurement take, within these numbers of calls.
const NANOSECONDS: u64 = 300_000_000;
const CALLS: [u64; 2] = [3, 200];

/// Measures seven allgathers.
#[derive(Parser, Clone, Debug)]
struct Options {
    /// Ranks of each of the four hosts.
    #[arg(long, default_value_t = 4)]
    ranks: u32,
    /// Bits per second of each rail, in millions.
    #[arg(long, default_value_t = 50.0)]
    rate: f64,
    /// Bytes of a block.
    #[arg(long, value_delimiter = ',', default_values_t = [8, 64, 256, 512, 2048, 8192, 32_768])]
    bytes: Vec<usize>,
    /// Jobs for each algorithm, in turn; of their times the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Draw the times into an SVG or PNG file.
    #[arg(long, value_name = "FILE.svg|png", value_parser = plot::file)]
    plot: Option<PathBuf>,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
    /// A part of this program in another process: beside the hosts, or a rank.
    #[arg(long, hide = true)]
    part: Option<String>,
    /// The number of an algorithm.
    #[arg(long, hide = true, default_value_t = 0)]
    algorithm: usize,
}

/// An allgather: its name, the algorithm of all ranks or of the leaders, and the subgroups.
const ALGORITHMS: [(&str, &str, &str); 7] = [
    ("direct", "direct", "off"),
    ("standard exchange", "standard-exchange:k=2", "off"),
    ("Bruck", "bruck:k=2", "off"),
    ("ring", "ring", "off"),
    ("SMP-aware direct", "direct", "host"),
    ("SMP-aware Bruck", "bruck:k=2", "host"),
    ("SMP-aware ring", "ring", "host"),
];

fn main() -> ExitCode {
    let options = Options::parse();
    match options.part.as_deref() {
        Some("rank") => member(&options.bytes),
        Some(_) => run_job(&options),
        None => judge(&options),
    }
}

fn judge(options: &Options) -> ExitCode {
    let mut report = Report::new(2, options.json);
    let mut times = vec![vec![Vec::new(); options.bytes.len()]; ALGORITHMS.len()];
    for _ in 0..options.rounds.max(1) {
        for (algorithm, times) in times.iter_mut().enumerate() {
            let measured = measure(options, algorithm);
            let ended = measured.len() == options.bytes.len();
            if !ended {
                report.figure("jobs_that_ended_well", ALGORITHMS[algorithm].0, 0.0, "", Limit::Least(1.0));
            }
            times.iter_mut().zip(measured).for_each(|(times, time)| times.push(time));
        }
    }
    let medians: Vec<Vec<f64>> = times
        .into_iter()
        .map(|sizes| {
            let median = |mut times: Vec<f64>| {
                times.sort_by(f64::total_cmp);
                quantile(&times, 0.5)
            };
            sizes.into_iter().map(median).collect()
        })
        .collect();
    for (size, bytes) in options.bytes.iter().enumerate() {
        let of = |algorithm: usize| medians[algorithm][size];
        let best = (0..ALGORITHMS.len()).min_by(|one, other| of(*one).total_cmp(&of(*other))).unwrap_or(0);
        for (algorithm, (name, ..)) in ALGORITHMS.into_iter().enumerate() {
            let mark = if algorithm == best { ", the fastest" } else { "" };
            report.figure("time", &format!("{name}, {bytes} B{mark}"), of(algorithm) / 1e3, "us", Limit::None);
        }
    }
    if let Some(path) = &options.plot {
        let line = |(number, (name, _, groups)): (usize, (&str, &str, &str)), times: &Vec<f64>| Line {
            label: name.to_owned(),
            colour: number % 4,
            stroke: if groups == "off" { Stroke::Solid } else { Stroke::Dashed },
            points: options.bytes.iter().zip(times).map(|(bytes, time)| (*bytes as f64, time / 1e3)).collect(),
            bars: Vec::new(),
        };
        let chart = Chart {
            caption: format!(
                "allgather, {} ranks on 4 hosts (namespaces of one machine), two rails of {} Mbit/s",
                4 * options.ranks,
                options.rate
            ),
            x: "bytes of a block".to_owned(),
            y: "µs".to_owned(),
            x_label: |bytes| Bytes(bytes.round() as u64).to_string(),
            lines: ALGORITHMS.into_iter().enumerate().zip(&medians).map(|(of, times)| line(of, times)).collect(),
        };
        plot::draw(path, &[chart]).expect("the plot is written");
    }
    report.end()
}

/// Nanoseconds of an allgather of each length, by one job on hosts that end with it.
fn measure(options: &Options, algorithm: usize) -> Vec<f64> {
    let mut command = Lab { hosts: &HOSTS, rates: &[options.rate * 1e6; 2] }.command();
    command.arg(std::env::current_exe().expect("this program"));
    command.args(["--part", "job", "--algorithm", &algorithm.to_string(), "--ranks", &options.ranks.to_string()]);
    command.args(["--bytes", &list(&options.bytes)]);
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().expect("unshare starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    printed.lines().filter_map(|line| line.strip_prefix("time ")?.parse().ok()).collect()
}

fn list(bytes: &[usize]) -> String {
    bytes.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// Beside the hosts: runs the job.
fn run_job(options: &Options) -> ExitCode {
    let own = std::env::current_exe().expect("this program");
    let mut command = Command::new(own.with_file_name("unisono"));
    let places = Lab { hosts: &HOSTS, rates: &[] }.places(options.ranks);
    command.args(["run", "--rsh", Lab::RSH, "--hosts", &places, "--device", "auto", "--gso", "off"]);
    command.args(["--rails", &[0, 1].map(Lab::network).join(",")]);
    let Some((_, algorithm, groups)) = ALGORITHMS.get(options.algorithm) else { return ExitCode::FAILURE };
    command.args(["--allgather", algorithm, "--hierarchy", groups, "--"]).arg(&own);
    command.args(["--part", "rank", "--bytes", &list(&options.bytes)]);
    let is_well = command.stdin(Stdio::null()).status().is_ok_and(|status| status.success());
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A rank: measures, and compares every result once.
fn member(sizes: &[usize]) -> ExitCode {
    let world = World::join().expect("a world");
    let (rank, size) = (world.rank().0 as usize, world.size() as usize);
    for bytes in sizes.iter().copied() {
        let byte = |rank: usize, i: usize| (i * 7 + rank * 31) as u8;
        let part: Vec<u8> = (0..bytes).map(|i| byte(rank, i)).collect();
        let mut all = vec![0_u8; bytes * size];
        let start = Instant::now();
        world.all_gather_into(&part, &mut all).expect("an allgather");
        let mut first = [start.elapsed().as_nanos() as u64];
        assert!(all.iter().enumerate().all(|(i, found)| *found == byte(i / bytes, i % bytes)), "a wrong byte");
        world.broadcast_into(&mut first, unisono::Rank(0)).expect("a broadcast");
        let calls = (NANOSECONDS / first[0].max(1)).clamp(CALLS[0], CALLS[1]);
        world.barrier().expect("a barrier");
        let start = Instant::now();
        for _ in 0..calls {
            world.all_gather_into(&part, &mut all).expect("an allgather");
        }
        world.barrier().expect("a barrier");
        if rank == 0 {
            println!("time {}", start.elapsed().as_nanos() as f64 / calls as f64);
        }
    }
    world.finish().expect("a good end");
    ExitCode::SUCCESS
}
