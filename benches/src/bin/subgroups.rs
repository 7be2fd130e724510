//! Allgathers and allreduces over simulated nodes against bytes, flat and composed over the ranks of each node, as in Figs. 6.6
//! to 6.11 of Mamidala's dissertation (2008): what an allgather gains where the ranks of a node copy out what has arrived
//! while the next exchange between nodes is under way, and an allreduce where all ranks of a node take part between nodes.

use core::str::FromStr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::{io, thread};

use clap::Parser;
use unisono_bench::Bytes;
use unisono_bench::plot::{self, Chart, Line, Stroke};
use unisono_benches::contenders::unisono_command::{binary, on_simulated_nodes};
use unisono_tests::harness::report::{Limit, Report, quantile};

/// Measures collectives over simulated nodes, all ways in turn in each round.
#[derive(Parser)]
struct Options {
    /// Nodes, and ranks of each.
    #[arg(long, value_delimiter = ',', default_values = ["2x4", "4x2"])]
    shapes: Vec<Shape>,
    /// Bytes of each rank.
    #[arg(long, value_delimiter = ',', default_values_t = [64, 1024, 4096, 16_384, 65_536, 262_144])]
    bytes: Vec<u32>,
    /// Rounds; of their times the median counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Draw the times into an SVG or PNG file.
    #[arg(long, value_name = "FILE.svg|png", value_parser = plot::file)]
    plot: Option<PathBuf>,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

/// Nodes, and ranks of each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape([u32; 2]);

impl FromStr for Shape {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers = text.split_once('x').and_then(|(nodes, ranks)| Some([nodes.parse().ok()?, ranks.parse().ok()?]));
        numbers.filter(|shape| !shape.contains(&0)).map(Self).ok_or("expected nodes and ranks of each, such as 2x4")
    }
}

/// A way to execute a collective: its name, the subgroups, the variables of the ranks, and how it is drawn.
struct Way {
    name: &'static str,
    hierarchy: &'static str,
    variables: &'static [(&'static str, &'static str)],
    stroke: Stroke,
}

const FLAT: Way = Way { name: "flat", hierarchy: "off", variables: &[], stroke: Stroke::Solid };

const ALLGATHERS: [Way; 5] = [
    FLAT,
    Way {
        name: "messages",
        hierarchy: "host:messages",
        variables: &[("UNISONO_PARTS", "off")],
        stroke: Stroke::Dashed,
    },
    Way {
        name: "messages, copied out in parts",
        hierarchy: "host:messages",
        variables: &[("UNISONO_PARTS", "on")],
        stroke: Stroke::Dotted,
    },
    Way { name: "slots", hierarchy: "host:slots", variables: &[("UNISONO_PARTS", "off")], stroke: Stroke::Dashed },
    Way {
        name: "slots, copied out in parts",
        hierarchy: "host:slots",
        variables: &[("UNISONO_PARTS", "on")],
        stroke: Stroke::Dotted,
    },
];

const ALLREDUCES: [Way; 5] = [
    FLAT,
    Way {
        name: "one leader, messages",
        hierarchy: "host:messages",
        variables: &[("UNISONO_LEADERS", "one")],
        stroke: Stroke::Dashed,
    },
    Way {
        name: "all ranks lead, messages",
        hierarchy: "host:messages",
        variables: &[("UNISONO_LEADERS", "all")],
        stroke: Stroke::Dotted,
    },
    Way {
        name: "one leader, slots",
        hierarchy: "host:slots",
        variables: &[("UNISONO_LEADERS", "one")],
        stroke: Stroke::Dashed,
    },
    Way {
        name: "all ranks lead, slots",
        hierarchy: "host:slots",
        variables: &[("UNISONO_LEADERS", "all")],
        stroke: Stroke::Dotted,
    },
];

fn main() -> Result<ExitCode, io::Error> {
    let options = Options::parse();
    let (unisono, processors) = (binary()?, thread::available_parallelism()?.get());
    let mut report = Report::new(7, options.json);
    let mut charts = Vec::new();
    for (shape, (collective, ways)) in options
        .shapes
        .iter()
        .flat_map(|shape| [("all_gather", &ALLGATHERS[..]), ("all_reduce", &ALLREDUCES)].map(|of| (*shape, of)))
    {
        let Shape([nodes, per_node]) = shape;
        let mut times = vec![vec![Vec::new(); options.bytes.len()]; ways.len()];
        for _ in 0..options.rounds.max(1) {
            for (size, bytes) in options.bytes.iter().map(u32::to_string).enumerate() {
                for (way, times) in ways.iter().zip(&mut times) {
                    let benchmark = ["collective", collective, "--bytes", &bytes];
                    let time = on_simulated_nodes(
                        &unisono,
                        [nodes, per_node],
                        way.hierarchy,
                        way.variables,
                        &benchmark,
                        "time_ns",
                    )?;
                    times[size].push(time / 1e3);
                }
            }
        }
        let mut lines = Vec::new();
        for (colour, (way, times)) in ways.iter().zip(&mut times).enumerate() {
            let mut points = Vec::new();
            for (bytes, times) in options.bytes.iter().zip(times) {
                times.sort_by(f64::total_cmp);
                let median = quantile(times, 0.5);
                let of = format!("{}, {nodes}x{per_node}, {bytes} B", way.name);
                report.figure(collective, &of, median, "us", Limit::None);
                points.push((f64::from(*bytes), median));
            }
            let label = way.name.to_owned();
            lines.push(Line { label, colour, stroke: way.stroke, points, bars: Vec::new() });
        }
        charts.push(Chart {
            caption: format!("{collective}, {nodes} simulated nodes of {per_node} ranks, {processors} processors"),
            x: "bytes of each rank".to_owned(),
            y: "µs".to_owned(),
            x_label: |bytes| Bytes(bytes.round() as u64).to_string(),
            lines,
        });
    }
    if let Some(path) = &options.plot {
        plot::draw(path, &charts).map_err(|error| io::Error::other(error.to_string()))?;
    }
    Ok(report.end())
}
