//! `unisono bench sweep`: measurements against message sizes, in jobs that it launches, as a table, as CSV and as a plot.

mod against;

use core::error::Error;
use core::fmt::{self, Write as _};
use core::str::FromStr;
use std::env;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::available_parallelism;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::bytes::Bytes;
use super::plot::{self, Chart, Line, Stroke};
use against::Mpi;

/// What to measure.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Options {
    /// Measures: latency, bandwidth, rate, barrier, or collectives such as all_reduce
    #[arg(value_name = "NAME", required = true)]
    names: Vec<Measured>,
    /// Sizes: from the first to the last, each four times the one before
    #[arg(long, value_name = "FIRST..LAST", default_value = "8..4M")]
    bytes: Sizes,
    /// Numbers of ranks of the jobs, such as 2,4 [default: 2]
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [2], hide_default_value = true,
          value_parser = clap::value_parser!(u32).range(2..))]
    ranks: Vec<u32>,
    /// Device of the jobs, as of `unisono run`
    #[arg(long, default_value = "auto")]
    device: String,
    /// Divide this host into M nodes
    #[arg(long, value_name = "M")]
    nodes: Option<u32>,
    /// Number of jobs of each measurement: the table shows their quartiles
    #[arg(long, value_name = "R", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Measure other libraries, too: the MPIs on the PATH, or those in these folders (bin/mpicc, bin/mpiexec)
    #[arg(long, value_name = "FOLDER,…", num_args = 0..=1, require_equals = true, value_delimiter = ',',
          default_missing_value = "", value_parser = folder)]
    against: Vec<PathBuf>,
    /// Draw the medians, with quartiles as bars, into an SVG or PNG file
    #[arg(long, value_name = "FILE.svg|png", value_parser = plot::file)]
    plot: Option<PathBuf>,
    /// Write all quartiles to a CSV file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

fn folder(text: &str) -> Result<PathBuf, core::convert::Infallible> {
    Ok(PathBuf::from(text))
}

/// A measure by its name, in any of its spellings.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Measured(&'static str);

/// Names of the measures, as `unisono bench` takes them.
const NAMES: [&str; 14] = [
    "latency",
    "bandwidth",
    "rate",
    "barrier",
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

impl FromStr for Measured {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let plain = |name: &str| name.replace(['_', '-'], "");
        let named = NAMES.into_iter().find(|name| plain(name) == plain(text));
        named.map(Self).ok_or_else(|| format!("expected one of {}", NAMES.join(", ")))
    }
}

/// Sizes from the first to the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sizes(u64, u64);

impl FromStr for Sizes {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        match (first.parse(), last.parse()) {
            (Ok(Bytes(first)), Ok(Bytes(last))) if 0 < first && first <= last => Ok(Self(first, last)),
            _ => Err("expected a range of sizes, such as 8..4M"),
        }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}..{}", Bytes(self.0), Bytes(self.1))
    }
}

impl Sizes {
    fn all(self) -> Vec<u64> {
        let mut sizes: Vec<u64> = core::iter::successors(Some(self.0), |size| size.checked_mul(4))
            .take_while(|size| *size < self.1)
            .collect();
        sizes.push(self.1);
        sizes
    }
}

/// This library's name.
const UNISONO: &str = "unisono";

/// The measurements of one measure of a library with one number of ranks at one size.
struct Point {
    library: &'static str,
    name: &'static str,
    ranks: u32,
    bytes: u64,
    /// The results of all rounds, in the measure's unit.
    values: Vec<f64>,
}

impl Point {
    /// First quartile, median and third quartile.
    fn quartiles(&self) -> [f64; 3] {
        let mut sorted = self.values.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        [1, 2, 3].map(|quarter| {
            let place = (sorted.len().saturating_sub(1) * quarter) as f64 / 4.0;
            let at = |place: f64| sorted.get(place as usize).copied().unwrap_or(f64::NAN);
            at(place.floor()) + (at(place.ceil()) - at(place.floor())) * place.fract()
        })
    }

    /// The field of the measure's result, the factor to its unit, and the unit.
    fn unit(name: &str) -> (&'static str, f64, &'static str) {
        match name {
            "latency" => ("one_way_ns_p50", 1e-3, "µs"),
            "bandwidth" => ("bytes_per_s", 1e-6, "MB/s"),
            "rate" => ("messages_per_s", 1e-6, "million messages/s"),
            _ => ("time_ns", 1e-3, "µs"),
        }
    }
}

impl Options {
    fn points(&self, library: &'static str) -> Vec<Point> {
        let mut points = Vec::new();
        for Measured(name) in &self.names {
            // Those between two ranks need no more.
            let pairs = matches!(*name, "latency" | "bandwidth" | "rate");
            let ranks = if pairs { self.ranks.get(..1).unwrap_or_default() } else { &self.ranks };
            for &ranks in ranks {
                let sizes = if *name == "barrier" { vec![0] } else { self.bytes.all() };
                points.extend(sizes.into_iter().map(|bytes| Point { library, name, ranks, bytes, values: Vec::new() }));
            }
        }
        points
    }

    /// Measures a point in a job of its own.
    fn measure(&self, own: &Path, point: &Point) -> Result<f64, Box<dyn Error>> {
        let mut job = Command::new(own);
        job.args(["run", "-n", &point.ranks.to_string(), "--device", &self.device]);
        if let Some(nodes) = self.nodes {
            job.args(["--nodes", &nodes.to_string()]);
        }
        if !is_oversubscribed(point.ranks) {
            job.arg("--pin");
        }
        job.arg("--").arg(own).arg("bench");
        let bytes = point.bytes.to_string();
        match point.name {
            "barrier" => job.arg("barrier"),
            "latency" => job.args(["latency", "--bytes", &bytes]),
            "bandwidth" | "rate" => job.args([point.name, "--bytes", &bytes, "--for", "200ms"]),
            name => job.args(["collective", name, "--bytes", &bytes]),
        };
        let output = job.arg("--json").stdin(Stdio::null()).output()?;
        let (field, factor, _) = Point::unit(point.name);
        let value = serde_json::from_slice(&output.stdout).ok().and_then(|facts: Value| facts.get(field)?.as_f64());
        let said = String::from_utf8_lossy(&output.stderr);
        let failed = || format!("{} of {} bytes: {said}", point.name, point.bytes);
        value.filter(|_| output.status.success()).map(|value| value * factor).ok_or_else(|| failed().into())
    }
}

/// Whether there are more ranks than processors; otherwise each rank has one of its own.
fn is_oversubscribed(ranks: u32) -> bool {
    available_parallelism().map_or(1, usize::from) < ranks as usize
}

/// Runs the measurements, and prints a table, or, as JSON, one object per point.
pub(super) fn run(options: &Options, json: bool) -> Result<(), Box<dyn Error>> {
    let own = env::current_exe()?;
    let libraries = Mpi::find(&options.against)?;
    let names = core::iter::once(UNISONO).chain(libraries.iter().map(|library| library.name));
    let mut points: Vec<Point> = names.flat_map(|name| options.points(name)).collect();
    let is_remote = options.device == "udp" || options.nodes.is_some();
    // Where that is allowed, no processor sleeps as long as this is open.
    let awake = std::fs::OpenOptions::new().write(true).open("/dev/cpu_dma_latency");
    let awake = awake.and_then(|mut file| file.write_all(&0_i32.to_ne_bytes()).map(|()| file));
    // Drawn on the standard error if that is a terminal.
    let bar = ProgressBar::new(points.len() as u64 * u64::from(options.rounds));
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} jobs, {eta} left: {msg}")?);
    for _ in 0..options.rounds {
        for point in &mut points {
            bar.set_message(format!("{} {} of {}", point.library, point.name, Bytes(point.bytes)));
            let value = match libraries.iter().find(|library| library.name == point.library) {
                Some(library) => library.measure(point, is_remote)?,
                None => options.measure(&own, point)?,
            };
            point.values.push(value);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    drop(awake);
    if let Some(path) = &options.csv {
        std::fs::write(path, csv(&points))?;
    }
    if let Some(path) = &options.plot {
        plot::draw(path, &charts(&options.device, &points))?;
    }
    for point in &points {
        let ([low, median, high], (.., unit)) = (point.quartiles(), Point::unit(point.name));
        let Point { library, name, ranks, bytes, .. } = point;
        if json {
            let quartiles = [low, median, high];
            println!(
                "{}",
                json!({ "bench": "sweep", "library": library, "measure": name, "ranks": ranks, "bytes": bytes, "unit": unit, "quartiles": quartiles })
            );
        } else {
            let size = Bytes(*bytes).to_string();
            println!(
                "{library:<9} {name:<14} {ranks:>4} ranks {size:>6}  {median:>12.3} {unit}  ({low:.3} to {high:.3})"
            );
        }
    }
    Ok(())
}

/// A chart for each unit. A line's colour is that of its measure and number of ranks, its stroke that of its library;
/// bars are quartiles.
fn charts(device: &str, points: &[Point]) -> Vec<Chart> {
    let mut units: Vec<&str> = points.iter().map(|point| Point::unit(point.name).2).collect();
    units.sort_unstable();
    units.dedup();
    let chart = |unit: &str| {
        let of_unit = || points.iter().filter(|point| Point::unit(point.name).2 == unit);
        let mut colours = Vec::new();
        let mut lines: Vec<Line> = Vec::new();
        for Point { library, name, ranks, .. } in of_unit() {
            let whose = if *library == UNISONO { String::new() } else { format!("{library}: ") };
            let label = format!("{whose}{name}, {ranks} ranks");
            if lines.iter().any(|line| line.label == label) {
                continue;
            }
            let colour = colours.iter().position(|colour| *colour == (name, ranks)).unwrap_or_else(|| {
                colours.push((name, ranks));
                colours.len() - 1
            });
            let of_line =
                of_unit().filter(|point| (&point.library, &point.name, &point.ranks) == (library, name, ranks));
            let (points, bars) = of_line
                .map(|point| {
                    let [low, median, high] = point.quartiles();
                    // A barrier has no size.
                    ((point.bytes.max(1) as f64, median), (low, high))
                })
                .unzip();
            lines.push(Line { label, colour, stroke: stroke(library), points, bars });
        }
        Chart {
            caption: format!("unisono, device {device}"),
            x: "bytes".to_owned(),
            y: unit.to_owned(),
            x_label: |bytes| Bytes(bytes.round() as u64).to_string(),
            lines,
        }
    };
    units.into_iter().map(chart).collect()
}

fn stroke(library: &str) -> Stroke {
    match library {
        "Open MPI" => Stroke::Dashed,
        "MPICH" => Stroke::Dotted,
        _ => Stroke::Solid,
    }
}

/// All points as comma-separated values, with a header.
fn csv(points: &[Point]) -> String {
    let mut text = String::from("library,measure,ranks,bytes,unit,first_quartile,median,third_quartile\n");
    for point in points {
        let ([low, median, high], (.., unit)) = (point.quartiles(), Point::unit(point.name));
        let Point { library, name, ranks, bytes, .. } = point;
        // Writing to a String does not fail.
        let _ = writeln!(text, "{library},{name},{ranks},{bytes},{unit},{low},{median},{high}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_name_is_taken() {
        for name in ["all_reduce", "all-reduce", "allreduce"] {
            assert_eq!(name.parse(), Ok(Measured("all_reduce")));
        }
        assert!("dance".parse::<Measured>().is_err());
    }

    #[test]
    fn every_unit_has_a_chart_and_every_library_a_line() {
        let of = |library, name, bytes| Point { library, name, ranks: 2, bytes, values: vec![1.0, 2.0] };
        let points = [
            of(UNISONO, "latency", 8),
            of(UNISONO, "latency", 64),
            of(UNISONO, "rate", 8),
            of(UNISONO, "barrier", 0),
            of("MPICH", "latency", 8),
        ];
        let charts = charts("udp", &points);
        let of_charts: Vec<_> = charts.iter().map(|chart| (chart.y.as_str(), chart.lines.len())).collect();
        assert_eq!(of_charts, [("million messages/s", 1), ("µs", 3)]);
        let line = |number: usize| {
            let Line { label, colour, stroke, points, bars } = &charts[1].lines[number];
            (label.as_str(), *colour, *stroke, points.len(), bars.len())
        };
        assert_eq!(line(0), ("latency, 2 ranks", 0, Stroke::Solid, 2, 2));
        assert_eq!(line(1), ("barrier, 2 ranks", 1, Stroke::Solid, 1, 1));
        assert_eq!(line(2), ("MPICH: latency, 2 ranks", 0, Stroke::Dotted, 1, 1));
    }

    #[test]
    fn sizes_reach_from_the_first_to_the_last() {
        assert_eq!("8..1K".parse().map(Sizes::all), Ok(vec![8, 32, 128, 512, 1024]));
        assert_eq!("64".parse().map(Sizes::all), Ok(vec![64]));
        for text in ["", "..", "0..8", "9..8", "8..x"] {
            assert!(text.parse::<Sizes>().is_err(), "{text}");
        }
    }

    #[test]
    fn quartiles_are_interpolated() {
        let point =
            |values: &[f64]| Point { library: UNISONO, name: "rate", ranks: 2, bytes: 8, values: values.to_vec() };
        assert_eq!(point(&[5.0, 1.0, 2.0, 4.0, 3.0]).quartiles(), [2.0, 3.0, 4.0]);
        assert_eq!(point(&[1.0, 2.0]).quartiles(), [1.25, 1.5, 1.75]);
        assert_eq!(csv(&[point(&[7.0])]).lines().nth(1), Some("unisono,rate,2,8,million messages/s,7,7,7"));
    }
}
