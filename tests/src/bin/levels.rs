//! Times of collectives on a simulated machine of three levels: flat schedules, selected with and without knowledge of the
//! hosts, against schedules over its hosts, and over its sockets and hosts.

use core::str::FromStr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use unisono_bench::Bytes;
use unisono_bench::plot::{self, Chart, Line, Stroke};
use unisono_core::collective::CollectiveKind;
use unisono_tests::collectives::hockney::LinkCost;
use unisono_tests::collectives::levels::{Composition, Machine};
use unisono_tests::harness::report::{Limit, Report};

/// The shipped executors, one per rank, after Graham et al. (2010), §3. A message of b bytes takes α + β·b and occupies a
/// port at either end; the bytes of a host's messages to and from other hosts follow each other. Copies and reductions
/// take no time. The selection chooses the algorithm, of a composed schedule that of the leaders of the hosts.
#[derive(Parser)]
struct Options {
    /// Hosts, sockets of a host, ranks of a socket.
    #[arg(long, value_name = "H,S,R", value_parser = three::<u32>, default_value = "64,4,16")]
    machine: [u32; 3],
    /// Bytes of each rank, of a reduce-scatter for each other one.
    #[arg(long, value_delimiter = ',', default_values_t = [8, 128, 2048, 32_768])]
    bytes: Vec<usize>,
    /// α within a socket, between sockets and between hosts.
    #[arg(long, value_name = "A,A,A", value_parser = three::<u64>, default_value = "1000,1500,10000")]
    latency_ns: [u64; 3],
    /// β within a socket, between sockets and between hosts.
    #[arg(long, value_name = "B,B,B", value_parser = three::<u64>, default_value = "200,300,500")]
    ps_per_byte: [u64; 3],
    /// Adapters move messages between hosts by themselves: they occupy other ports of a rank than those within a host.
    #[arg(long)]
    offload: bool,
    /// Draw the times into an SVG or PNG file.
    #[arg(long, value_name = "FILE.svg|png", value_parser = plot::file)]
    plot: Option<PathBuf>,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

/// The collectives that are composed.
const COLLECTIVES: [CollectiveKind; 8] = [
    CollectiveKind::Barrier,
    CollectiveKind::Broadcast,
    CollectiveKind::Reduce,
    CollectiveKind::Allreduce,
    CollectiveKind::Gather,
    CollectiveKind::Scatter,
    CollectiveKind::Allgather,
    CollectiveKind::ReduceScatter,
];

/// The share of the time without knowledge of the hosts that a flat schedule and one over sockets and hosts take at most.
const fn most(collective: CollectiveKind) -> [f64; 2] {
    match collective {
        CollectiveKind::Barrier => [1.0, 0.5],
        CollectiveKind::Allgather | CollectiveKind::ReduceScatter => [0.1, 0.2],
        _ => [1.0, 1.15],
    }
}

const COMPOSITIONS: [(Composition, &str, Stroke); 6] = [
    (Composition::Unaware, "flat, hosts unknown", Stroke::Solid),
    (Composition::Flat, "flat", Stroke::Solid),
    (Composition::Hosts, "over hosts", Stroke::Dashed),
    (Composition::Sockets, "over sockets and hosts", Stroke::Dotted),
    (Composition::Parts, "over sockets and hosts, in parts", Stroke::Dotted),
    (Composition::Leaders, "over hosts, all ranks lead", Stroke::Dashed),
];

/// Whether a composition differs from the others for this collective.
const fn is_other(collective: CollectiveKind, composition: Composition) -> bool {
    match composition {
        Composition::Parts => matches!(collective, CollectiveKind::Allgather | CollectiveKind::Broadcast),
        Composition::Leaders => {
            matches!(collective, CollectiveKind::Broadcast | CollectiveKind::Reduce | CollectiveKind::Allreduce)
        }
        _ => true,
    }
}

/// Three numbers, greater than 0.
fn three<T: FromStr + PartialEq + Default>(text: &str) -> Result<[T; 3], &'static str> {
    let numbers: Option<Vec<T>> = text.split(',').map(|number| number.parse().ok()).collect();
    let numbers: Option<[T; 3]> = numbers.and_then(|numbers| numbers.try_into().ok());
    numbers.filter(|numbers| numbers.iter().all(|number| *number != T::default())).ok_or("expected three numbers")
}

fn main() -> ExitCode {
    let options = Options::parse();
    let started = Instant::now();
    let mut report = Report::new(3, options.json);
    let Options { machine: [hosts, sockets, ranks], latency_ns, ps_per_byte, .. } = options;
    let links = [0, 1, 2].map(|level| {
        let startup_ps = latency_ns[level] * 1000;
        LinkCost { startup_ps, ps_per_byte: ps_per_byte[level] }
    });
    let machine = Machine { hosts, sockets, ranks, links, offloads: options.offload };
    let mut charts = Vec::new();
    for collective in COLLECTIVES {
        let sizes = if collective == CollectiveKind::Barrier { &[0][..] } else { &options.bytes };
        let mut lines: Vec<Line> = Vec::new();
        let compositions = COMPOSITIONS.into_iter().enumerate();
        for (number, (composition, name, stroke)) in compositions.filter(|(_, (of, ..))| is_other(collective, *of)) {
            let mut points = Vec::new();
            for &bytes in sizes {
                let (choice, cost) = machine.time(collective, bytes, composition).expect("it is composed");
                let time = cost.picoseconds as f64 / 1e6;
                let of = format!("{name}, {bytes} B, {}", choice.algorithm.name());
                report.figure(collective.name(), &of, time, "us", Limit::None);
                points.push((bytes.max(1) as f64, time));
            }
            lines.push(Line { label: name.to_owned(), colour: number, stroke, points, bars: Vec::new() });
        }
        let [unaware, flat, _, composed, ..] = &lines[..] else { unreachable!("a line for each composition") };
        for (line, most) in [flat, composed].into_iter().zip(most(collective)) {
            for (bytes, (before, after)) in sizes.iter().zip(unaware.points.iter().zip(&line.points)) {
                let of = format!("{} / hosts unknown, {bytes} B", line.label);
                report.figure(collective.name(), &of, after.1 / before.1, "", Limit::Most(most));
            }
        }
        if sizes.len() > 1 {
            charts.push(Chart {
                caption: format!("{}, {hosts} × {sockets} × {ranks} simulated ranks", collective.name()),
                x: "bytes".to_owned(),
                y: "µs".to_owned(),
                x_label: |bytes| Bytes(bytes.round() as u64).to_string(),
                lines,
            });
        }
    }
    if let Some(path) = &options.plot {
        plot::draw(path, &charts).expect("the plot is written");
    }
    report.figure("seconds", "", started.elapsed().as_secs_f64(), "s", Limit::None);
    report.end()
}
