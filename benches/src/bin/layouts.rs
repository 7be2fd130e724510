//! Barriers of the ranks of one node against their number and their layout on sockets: in shared memory, by messages, and
//! by messages over the sockets, as in Figs. 4 to 7 of Graham et al. (2010).
//!
//! Where the machine has one socket, its ranks are divided as if it had several: that shows what the schedules cost, and
//! nothing of the distance between sockets.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io, thread};

use clap::Parser;
use unisono_bench::plot::{self, Chart, Line, Stroke};
use unisono_benches::contenders::unisono_command::{binary, on_node};
use unisono_tests::harness::report::{Limit, Report, quantile};

/// Measures barriers.
#[derive(Parser)]
struct Options {
    /// Numbers of ranks; by default 2 and all powers of two up to twice the processors.
    #[arg(long, value_delimiter = ',')]
    ranks: Vec<u32>,
    /// Jobs for each figure, in turn; of their times the median counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Draw the times into an SVG or PNG file.
    #[arg(long, value_name = "FILE.svg|png", value_parser = plot::file)]
    plot: Option<PathBuf>,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

/// How ranks synchronize.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Means {
    /// Words in shared memory.
    SharedMemory,
    /// Messages among all.
    Messages,
    /// Messages to the leader of each of several sockets, and among the leaders.
    Sockets(u32),
}

impl Means {
    fn name(self) -> String {
        match self {
            Self::SharedMemory => "shared memory".to_owned(),
            Self::Messages => "messages".to_owned(),
            Self::Sockets(sockets) => format!("messages over {sockets} sockets"),
        }
    }

    /// The median nanoseconds of a barrier.
    fn measure(self, unisono: &Path, ranks: u32, machine_sockets: u32) -> io::Result<f64> {
        let sockets = if let Self::Sockets(sockets) = self { sockets.to_string() } else { String::new() };
        let (options, benchmark) = match self {
            Self::SharedMemory => (vec![], vec!["barrier"]),
            Self::Messages => (vec!["--hierarchy", "off"], vec!["--messages", "barrier"]),
            Self::Sockets(real) if real == machine_sockets => {
                (vec!["--pin", "--hierarchy", "socket"], vec!["--messages", "barrier"])
            }
            Self::Sockets(_) => (vec!["--sockets", &sockets, "--hierarchy", "socket"], vec!["--messages", "barrier"]),
        };
        on_node(unisono, ranks, &options, &benchmark, "time_ns")
    }
}

fn main() -> Result<ExitCode, io::Error> {
    let options = Options::parse();
    let (unisono, processors, sockets) = (binary()?, thread::available_parallelism()?.get() as u32, sockets()?);
    let numbers = if options.ranks.is_empty() {
        (1..8).map(|power| 1 << power).take_while(|ranks| *ranks <= 2 * processors).collect()
    } else {
        options.ranks.clone()
    };
    let mut report = Report::new(7, options.json);
    let all = [Means::SharedMemory, Means::Messages, Means::Sockets(2), Means::Sockets(4)];
    let mut lines = Vec::new();
    for (colour, means) in all.into_iter().enumerate() {
        let mut points = Vec::new();
        for ranks in numbers.iter().copied() {
            // Sockets of one rank divide nothing.
            if matches!(means, Means::Sockets(sockets) if ranks <= sockets) {
                continue;
            }
            let mut times: Vec<f64> = (0..options.rounds.max(1))
                .map(|_| means.measure(&unisono, ranks, sockets))
                .collect::<Result<_, _>>()?;
            times.sort_by(f64::total_cmp);
            let shares = if ranks > processors { ", oversubscribed" } else { "" };
            let is_simulated = matches!(means, Means::Sockets(divided) if divided != sockets);
            let note = if is_simulated { ", simulated" } else { "" };
            let of = format!("{}{note}, {ranks} ranks{shares}", means.name());
            report.figure("barrier", &of, quantile(&times, 0.5) / 1e3, "us", Limit::None);
            points.push((f64::from(ranks), quantile(&times, 0.5) / 1e3));
        }
        let stroke = if matches!(means, Means::Sockets(_)) { Stroke::Dashed } else { Stroke::Solid };
        if !points.is_empty() {
            lines.push(Line { label: means.name(), colour, stroke, points, bars: Vec::new() });
        }
    }
    if let Some(path) = &options.plot {
        let caption = format!("barrier of one node, {processors} processors, {sockets} sockets; others are simulated");
        let x_label = |ranks: f64| ranks.to_string();
        let chart = Chart { caption, x: "ranks".to_owned(), y: "µs".to_owned(), x_label, lines };
        plot::draw(path, &[chart]).map_err(|error| io::Error::other(error.to_string()))?;
    }
    Ok(report.end())
}

/// The sockets of this machine.
fn sockets() -> io::Result<u32> {
    let mut packages: Vec<String> = Vec::new();
    for entry in fs::read_dir("/sys/devices/system/cpu")? {
        // Folders of other things have no such file.
        if let Ok(package) = fs::read_to_string(entry?.path().join("topology/physical_package_id")) {
            packages.push(package);
        }
    }
    packages.sort_unstable();
    packages.dedup();
    Ok(packages.len().max(1) as u32)
}
