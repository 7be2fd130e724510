//! What a cache of queue-pair contexts costs: connections (RC) against datagrams (UD) on simulated adapters, after
//! Mamidala (2008), §8.2 and §8.3.2; and what a zero-copy alltoall saves there (§6.1).

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use unisono_bench::Bytes;
use unisono_bench::plot::{self, Chart, Line, Stroke};
use unisono_core::schedule::Algorithm;
use unisono_tests::adapter_cache::alltoall::{AlltoallCost, Connected, block_bytes, messages, transfers, writes};
use unisono_tests::adapter_cache::one_sided::{EmulatedPair, Operation, TargetWait};
use unisono_tests::adapter_cache::transports::NodePair;
use unisono_tests::adapter_cache::{AdapterParameters, BUILT_IN};
use unisono_tests::harness::parameters::Parameters;
use unisono_tests::harness::report::{Limit, Report};

/// Everything is simulated: adapters, links and hosts. Two parameters are fitted on points of §8.2, and one on §6.1.2;
/// the other figures are predicted. Lines "source" repeat what the text of the dissertation, or of Koop et al. (2007),
/// states; its curves are not known. Endpoint, messages, schedules and remote memory access are those that ship; RC is
/// messages that the adapters handle alone.
#[derive(Parser)]
struct Options {
    /// Parameters of the adapters, instead of those that are built in.
    #[arg(long, value_name = "FILE")]
    parameters: Option<PathBuf>,
    /// Ranks of alltoalls.
    #[arg(long, value_delimiter = ',', default_values_t = [8, 16, 32, 61], value_parser = clap::value_parser!(u32).range(2..=256))]
    ranks: Vec<u32>,
    /// Bytes of a block of alltoalls, and of a message to a root.
    #[arg(long, value_delimiter = ',', default_values_t = [8, 512, 2048, 8192])]
    bytes: Vec<usize>,
    /// Draw the figures into an SVG or PNG file.
    #[arg(long, value_name = "FILE.svg|png", value_parser = plot::file)]
    plot: Option<PathBuf>,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

/// Bytes of messages between two nodes.
const LENGTHS: [u32; 8] = [8, 128, 512, 1024, 2048, 4096, 16_384, 65_535];
/// Bytes of a short message.
const SHORT: u32 = 8;
/// Messages of a measurement of bandwidth.
const STREAM: u32 = 200;
/// The parameter of the hosts, of Fig. 6.3 only.
const HOST: (&str, &str) = ("mt25208-host.txt", include_str!("../../parameters/mt25208-host.txt"));

fn main() -> ExitCode {
    let options = Options::parse();
    let parameters = match &options.parameters {
        None => AdapterParameters::built_in(),
        Some(path) => match AdapterParameters::read(path) {
            Ok(parameters) => parameters,
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::from(2);
            }
        },
    };
    let file = options.parameters.as_ref().map_or(BUILT_IN.0.to_owned(), |path| path.display().to_string());
    let (started, report) = (Instant::now(), Report::new(5, options.json));
    let mut figures = Figures { parameters, file, report, charts: Vec::new() };
    figures.table("Parameters");
    for (name, value) in parameters.values() {
        figures.figure(name, "", value as f64, "", Limit::None);
    }
    let mut host = Parameters::parse(Path::new(HOST.0), HOST.1).expect("the built-in file is valid");
    let copy_bytes_per_s = host.take_positive("copy_bytes_per_s").expect("the built-in file has it") as f64;
    figures.figure("copy_bytes_per_s", HOST.0, copy_bytes_per_s, "", Limit::None);
    figures.incast(&options, copy_bytes_per_s);
    figures.zero_copy(&options, copy_bytes_per_s);
    figures.connections();
    figures.transports();
    figures.memory();
    figures.transfers(&options);
    figures.alltoalls(&options);
    figures.hybrid(&options);
    figures.one_sided();
    let Figures { mut report, charts, .. } = figures;
    if let Some(path) = &options.plot {
        plot::draw(path, &charts).expect("the plot is written");
    }
    report.figure("seconds", "", started.elapsed().as_secs_f64(), "s", Limit::None);
    report.end()
}

/// The figures and charts.
struct Figures {
    parameters: AdapterParameters,
    file: String,
    report: Report,
    charts: Vec<Chart>,
}

/// The time until a host has copied, one after the other, `count` blocks that arrive evenly from `first` to `last`.
fn copied(first: f64, last: f64, count: u32, copy: f64) -> f64 {
    (last + copy).max(first + f64::from(count) * copy)
}

/// A line's name, its stroke, and its points.
type Series<'a> = (&'a str, Stroke, Vec<(f64, f64)>);

impl Figures {
    fn figure(&mut self, name: &str, of: &str, figure: f64, unit: &str, limit: Limit) {
        self.report.figure(name, of, figure, unit, limit);
    }

    fn table(&mut self, title: &str) {
        self.report.table(&format!("{title}; simulated, {}", self.file));
    }

    fn source(&mut self, name: &str, section: &str, figure: f64, unit: &str) {
        self.report.figure(name, &format!("source, {section}"), figure, unit, Limit::None);
    }

    fn chart(&mut self, caption: &str, x: &str, y: &str, series: Vec<Series<'_>>) {
        let line = |(colour, (label, stroke, points)): (usize, Series<'_>)| Line {
            label: label.to_owned(),
            colour,
            stroke,
            points,
            bars: Vec::new(),
        };
        let x_label: fn(f64) -> String = match x {
            "bytes" => |x: f64| Bytes(x.round() as u64).to_string(),
            _ => |x: f64| x.round().to_string(),
        };
        self.charts.push(Chart {
            caption: format!("{caption}; simulated, {}", self.file),
            x: x.to_owned(),
            y: y.to_owned(),
            x_label,
            lines: series.into_iter().enumerate().map(line).collect(),
        });
    }

    /// Fig. 6.3(a): nodes send to a root, which copies, or lets one after the other send without a copy (Fig. 6.1).
    fn incast(&mut self, options: &Options, copy_bytes_per_s: f64) {
        const SENDERS: u32 = 7;
        self.table(&format!("{SENDERS} nodes send to a root (Fig. 6.3 a), copies as in {}", HOST.0));
        let mut lines: [Vec<(f64, f64)>; 2] = Default::default();
        for bytes in options.bytes.iter().map(|bytes| (*bytes).max(1) as u32) {
            // The root's adapter is the bottleneck, whichever node sends: one does, over a connection for each sender.
            let (pair, length) = (NodePair::new(&self.parameters, SENDERS, bytes), f64::from(bytes));
            let (first, rate) = (pair.write_latency(bytes) as f64, pair.bandwidth(bytes, SENDERS));
            let last = f64::from(SENDERS) * length / rate * 1e9;
            let concurrent = copied(first, last, SENDERS, length / copy_bytes_per_s * 1e9);
            // The first RTS; then an RTR and its message for each sender.
            let messages: u64 = (0..SENDERS).map(|_| pair.read_latency(bytes)).sum();
            let serial = (pair.write_latency(SHORT) + messages) as f64;
            for ((name, time), line) in [("copied", concurrent), ("serial", serial)].into_iter().zip(&mut lines) {
                self.figure("incast", &format!("{name}, {bytes} B"), time / 1e3, "us", Limit::None);
                line.push((length, time / 1e3));
            }
            // "Considerably better"; the text has neither a number nor sizes, and so the bound is chosen.
            let has_bound = u64::from(bytes) <= 4 * self.parameters.packet_bytes;
            let limit = if has_bound { Limit::Most(0.9) } else { Limit::None };
            self.figure("incast_copied_by_serial", &format!("{bytes} B"), concurrent / serial, "", limit);
        }
        let [concurrent, serial] = lines;
        let series = vec![("copied", Stroke::Solid, concurrent), ("zero copy, serial", Stroke::Dashed, serial)];
        self.chart(&format!("{SENDERS} nodes send to a root (Fig. 6.3 a)"), "bytes", "µs", series);
    }

    /// Fig. 6.3(b): alltoall by RDMA after a synchronization, against messages that the receivers copy; both over RC,
    /// by the adapters alone.
    fn zero_copy(&mut self, options: &Options, copy_bytes_per_s: f64) {
        self.table(&format!("Alltoall by RDMA and with copies, over RC (Fig. 6.3 b), copies as in {}", HOST.0));
        for &ranks in &options.ranks {
            let (others, rounds) = (ranks - 1, ranks.next_power_of_two().ilog2());
            // "A log(n) algorithm", as of a barrier; the alltoall before it has filled the cache.
            let latency = NodePair::new(&self.parameters, others, SHORT).latency(SHORT, 4 * others);
            let synchronization = f64::from(rounds) * latency;
            self.figure("synchronization", &format!("{ranks} ranks"), synchronization / 1e3, "us", Limit::None);
            let mut lines: [Vec<(f64, f64)>; 2] = Default::default();
            for bytes in options.bytes.iter().map(|bytes| (*bytes).max(1)) {
                let time = |ranks| transfers(&self.parameters, ranks, bytes, Connected::All).nanoseconds;
                let (first, last) = (time(2), time(ranks));
                let copy = bytes as f64 / copy_bytes_per_s * 1e9;
                let times = [synchronization + last, copied(first, last, others, copy)];
                let of = |what: &str| format!("{what}, {ranks} ranks, {bytes} B");
                for ((name, time), line) in ["RDMA", "copied"].into_iter().zip(times).zip(&mut lines) {
                    self.figure("alltoall", &of(name), time / 1e3, "us", Limit::None);
                    line.push((bytes as f64, time / 1e3));
                }
                // Fitted at 32 ranks; shorter blocks gain nothing here.
                let has_bound = ranks >= 32 && bytes as u64 >= 4 * self.parameters.packet_bytes;
                let limit = if has_bound { Limit::Least(33.0) } else { Limit::None };
                let [rdma, copied] = times;
                self.figure("alltoall_saved_by_rdma", &of("of copied"), (1.0 - rdma / copied) * 100.0, "%", limit);
            }
            let [rdma, copied] = lines;
            let series = vec![("RDMA", Stroke::Solid, rdma), ("copied", Stroke::Dashed, copied)];
            self.chart(&format!("Alltoall over RC, {ranks} ranks (Fig. 6.3 b)"), "bytes", "µs", series);
        }
        self.source("alltoall_saved_by_rdma", "6.1.2 (fitted): 32 ranks, about", 38.0, "%");
        self.source("alltoall_saved_by_rdma", "6.1.2: more ranks, over", 33.0, "%");
    }

    /// §8.2, "NIC caching effects": round trips between two nodes over connections in turn.
    fn connections(&mut self) {
        const NAME: &str = "latency_8_bytes";
        self.table("8-byte messages, connections in turn (8.2)");
        let latency = |connections: u32| {
            NodePair::new(&self.parameters, connections, SHORT).latency(SHORT, 4 * connections.max(1)) / 1e3
        };
        let counts = [1, 2, 4, 8, 16, 17, 24, 32, 64, 128, 256];
        let (datagrams, points) = (latency(0), counts.map(|count| (f64::from(count), latency(count))));
        self.figure(NAME, "UD", datagrams, "us", Limit::None);
        for (count, time) in points {
            // Fitted: no misses up to 16.
            let limit = if count <= 16.0 { Limit::Most(datagrams * 1.001) } else { Limit::Least(datagrams * 1.1) };
            self.figure(NAME, &format!("RC, {count} connections"), time, "us", limit);
        }
        let is_fast = |(_, time): &&(f64, f64)| *time <= datagrams * 1.001;
        let (fast, slow) = (points.iter().rfind(is_fast), points.iter().find(|point| !is_fast(point)));
        let [fast, slow] = [fast, slow].map(|point| point.map_or(f64::NAN, |(count, _)| *count));
        self.figure("connections_without_misses", "simulated", fast, "", Limit::None);
        self.source("connections_without_misses", "8.2 (fitted)", 16.0, "");
        self.figure("connections_with_misses", "simulated, from", slow, "", Limit::Most(32.0));
        self.source("connections_with_misses", "8.2: from", 32.0, "");
        let outside = points.last().map_or(f64::NAN, |(_, time)| time / datagrams);
        self.figure("outside_by_inside_cache", "simulated", outside, "", Limit::None);
        // MT25218, below 1 KB: almost.
        self.source("outside_by_inside_cache", "Koop 3.2.1, other adapter", 2.0, "");
        let datagrams = points.map(|(count, _)| (count, datagrams)).to_vec();
        let series = vec![("RC", Stroke::Solid, points.to_vec()), ("UD", Stroke::Dashed, datagrams)];
        self.chart("8-byte messages, connections in turn (§8.2)", "connections", "latency, µs", series);
    }

    /// Fig. 8.1: "for MTU messages, both perform almost equally well"; that RC is better beyond is not reproduced.
    fn transports(&mut self) {
        self.table("Messages between two nodes (Fig. 8.1)");
        let pair = |connections, bytes| NodePair::new(&self.parameters, connections, bytes);
        let lines = [1, 0].map(|connections| {
            LENGTHS.map(|bytes| {
                let pair = pair(connections, bytes);
                (f64::from(bytes), pair.latency(bytes, 4) / 1e3, pair.bandwidth(bytes, STREAM) / 1e6)
            })
        });
        let packet = self.parameters.packet_bytes as f64;
        for ((bytes, latency, bandwidth), (_, of_datagrams, datagram_rate)) in lines[0].into_iter().zip(lines[1]) {
            let of = |transport| format!("{transport}, {bytes} B");
            self.figure("latency", &of("RC"), latency, "us", Limit::None);
            self.figure("latency", &of("UD"), of_datagrams, "us", Limit::None);
            // Beyond a packet the model has no cost of a datagram that a message over RC has not.
            let limit = if bytes <= packet { Limit::Most(1.05) } else { Limit::None };
            self.figure("latency", &of("UD / RC"), of_datagrams / latency, "", limit);
            self.figure("bandwidth", &of("RC"), bandwidth, "MB/s", Limit::None);
            self.figure("bandwidth", &of("UD"), datagram_rate, "MB/s", Limit::None);
            let limit = if bytes <= packet { Limit::Least(0.95) } else { Limit::None };
            self.figure("bandwidth", &of("UD / RC"), datagram_rate / bandwidth, "", limit);
        }
        let latencies = lines.map(|line| line.map(|(bytes, latency, _)| (bytes, latency)).to_vec());
        let bandwidths = lines.map(|line| line.map(|(bytes, _, bandwidth)| (bytes, bandwidth)).to_vec());
        for (name, [connected, datagrams]) in [("latency, µs", latencies), ("bandwidth, MB/s", bandwidths)] {
            let series = vec![("RC", Stroke::Solid, connected), ("UD", Stroke::Dashed, datagrams)];
            self.chart("Messages between two nodes (Fig. 8.1)", "bytes", name, series);
        }
    }

    /// §8.2, "Memory Scaling of RC", with the bytes of Koop et al., Table 1.
    fn memory(&mut self) {
        const NAME: &str = "memory_of_a_rank";
        const LIMIT: u64 = 64;
        self.table("Memory of a rank, computed (8.2)");
        let parameters = self.parameters;
        let counts = [2, 8, 16, 32, 61, 128, 256, 1024, 4096, 16_384];
        let mut lines: [Vec<(f64, f64)>; 3] = Default::default();
        for ranks in counts {
            let others = ranks - 1;
            for (line, (name, connected)) in
                lines.iter_mut().zip([("RC", others), ("at most 64 connections", others.min(LIMIT)), ("UD", 0)])
            {
                let bytes = parameters.memory(ranks, connected) as f64 / 1e6;
                self.figure(NAME, &format!("{name}, {ranks} ranks"), bytes, "MB", Limit::None);
                line.push((ranks as f64, bytes));
            }
        }
        // Koop et al., §6.1, of whole processes: 1.1 GB over RC and 40 MB over UD at 16 K processes.
        self.source("memory_16384_ranks", "RC, Koop 6.1", 1100.0, "MB");
        self.source("memory_16384_ranks", "UD, Koop 6.1", 40.0, "MB");
        let [all, some, none] = lines;
        let series = vec![
            ("RC", Stroke::Solid, all),
            ("at most 64 connections", Stroke::Dotted, some),
            ("UD", Stroke::Dashed, none),
        ];
        self.chart("Memory of a rank (§8.2), computed", "ranks", "MB", series);
    }

    /// §8.2, "Comparison of RC and UD", Fig. 8.4.
    fn alltoalls(&mut self, options: &Options) {
        const LINES: [(&str, Stroke, Algorithm, Connected); 3] = [
            ("direct, UD", Stroke::Solid, Algorithm::Direct, Connected::None),
            ("direct, RC", Stroke::Dashed, Algorithm::Direct, Connected::All),
            ("Bruck, RC", Stroke::Dotted, Algorithm::Bruck, Connected::All),
        ];
        self.table("Alltoall over UD and over RC (Fig. 8.4)");
        for &ranks in &options.ranks {
            let mut series: Vec<Series<'_>> = LINES.map(|(name, stroke, ..)| (name, stroke, Vec::new())).into();
            series.push(("writes, UD", Stroke::Solid, Vec::new()));
            series.push(("writes, RC", Stroke::Dashed, Vec::new()));
            for &bytes in &options.bytes {
                let costs = LINES
                    .map(|(_, _, algorithm, connected)| messages(&self.parameters, algorithm, ranks, bytes, connected));
                let written = [Connected::None, Connected::All]
                    .map(|connected| writes(&self.parameters, ranks, block_bytes(bytes), connected));
                let of = |what: &str| format!("{what}, {ranks} ranks, {} B", block_bytes(bytes));
                for ((name, _, points), cost) in series.iter_mut().zip(costs.iter().chain(&written)) {
                    self.report.figure("alltoall", &of(name), cost.nanoseconds / 1e3, "us", Limit::None);
                    points.push((block_bytes(bytes) as f64, cost.nanoseconds / 1e3));
                }
                let [datagrams, connected, bruck] = costs;
                self.compare(ranks, bytes, &of, datagrams, connected);
                let better = 1.0 - datagrams.nanoseconds / bruck.nanoseconds;
                self.figure("alltoall_saved_by_ud", &of("of Bruck"), better * 100.0, "%", Limit::None);
            }
            self.chart(&format!("Alltoall, {ranks} ranks (Fig. 8.4)"), "bytes", "µs", series);
        }
        self.source("alltoall_rc_by_ud", "8.2: short, 32 and 61 ranks, almost", 2.0, "");
        self.source("alltoall_saved_by_ud", "8.2: short, of Bruck", 37.0, "%");
    }

    /// RC against UD: which is faster.
    fn compare(
        &mut self,
        ranks: u32,
        bytes: usize,
        of: &dyn Fn(&str) -> String,
        datagrams: AlltoallCost,
        connected: AlltoallCost,
    ) {
        let is_short = bytes <= SHORT as usize;
        let exceeds = u64::from(ranks) > self.parameters.contexts + 1;
        self.figure("misses_per_adapter", &of("RC"), connected.misses, "", Limit::None);
        let ratio = connected.nanoseconds / datagrams.nanoseconds;
        let limit = if is_short && exceeds {
            Limit::Least(1.1)
        } else if bytes as u64 >= 4 * self.parameters.packet_bytes {
            Limit::Most(1.0)
        } else {
            Limit::None
        };
        self.figure("alltoall_rc_by_ud", &of("direct"), ratio, "", limit);
    }

    /// §8.2, "Comparison of RC and UD": what misses add to an alltoall of short blocks, as the adapters alone see it.
    fn transfers(&mut self, options: &Options) {
        self.table("Alltoall of 8 bytes by the adapters alone, without acknowledgements (8.2)");
        let mut lines: [Vec<(f64, f64)>; 2] = Default::default();
        for &ranks in &options.ranks {
            let costs = [Connected::None, Connected::All]
                .map(|connected| transfers(&self.parameters, ranks, SHORT as usize, connected));
            for ((line, name), cost) in lines.iter_mut().zip(["UD", "RC"]).zip(costs) {
                self.figure("transfers", &format!("{name}, {ranks} ranks"), cost.nanoseconds / 1e3, "us", Limit::None);
                line.push((f64::from(ranks), cost.nanoseconds / 1e3));
            }
            let [datagrams, connected] = costs;
            let of = format!("RC, {ranks} ranks");
            self.figure("misses_per_adapter", &of, connected.misses, "", Limit::None);
            let added = (connected.nanoseconds - datagrams.nanoseconds) / 1e3;
            self.figure("added_by_misses", &of, added, "us", Limit::None);
            self.figure("rc_by_ud", &of, connected.nanoseconds / datagrams.nanoseconds, "", Limit::None);
        }
        // If a message costs 1 µs.
        self.source("added_by_misses", "8.2: 61 ranks, would be around", 60.0, "us");
        self.source("rc_by_ud", "8.2: 32 and 61 ranks, almost", 2.0, "");
        let [datagrams, connected] = lines;
        let series = vec![("UD", Stroke::Solid, datagrams), ("RC", Stroke::Dashed, connected)];
        self.chart("8-byte alltoall by adapters alone (§8.2)", "ranks", "µs", series);
    }

    /// §8.1, "Hybrid algorithm", Fig. 8.3: the first k of n − 1 steps of a pairwise exchange over connections.
    fn hybrid(&mut self, options: &Options) {
        const RANKS: u32 = 32;
        self.table("Alltoall, the first k of n - 1 steps over RC (Fig. 8.3)");
        let mut series: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
        for &bytes in &options.bytes {
            let mut points = Vec::new();
            for steps in [0, 1, 3, 7, 15, 23, 31] {
                let connected = Connected::Steps(steps);
                let cost = messages(&self.parameters, Algorithm::Pairwise, RANKS, bytes, connected);
                let of = format!("k = {steps} of {}, {} B", RANKS - 1, block_bytes(bytes));
                self.figure("alltoall_hybrid", &of, cost.nanoseconds / 1e3, "us", Limit::None);
                points.push((f64::from(steps + 1), cost.nanoseconds / 1e3));
            }
            if let (true, [(_, none), .., (_, all)]) = (bytes as u64 >= 4 * self.parameters.packet_bytes, &points[..]) {
                let of = format!("k = {} / k = 0, {} B", RANKS - 1, block_bytes(bytes));
                self.figure("alltoall_hybrid", &of, all / none, "", Limit::Most(1.0));
            }
            series.push((Bytes(bytes as u64).to_string(), points));
        }
        let series = series.iter().map(|(name, points)| (&name[..], Stroke::Solid, points.clone())).collect();
        self.chart(&format!("Hybrid alltoall, {RANKS} ranks (Fig. 8.3)"), "connections of a rank + 1", "µs", series);
    }

    /// Figs. 8.6 and 8.7: reads and writes that are emulated over datagrams, against RC.
    fn one_sided(&mut self) {
        self.table("Reads and writes over RC, and emulated over UD (Figs. 8.6, 8.7)");
        let mut latencies: [Vec<(f64, f64)>; 5] = Default::default();
        let mut rates: [Vec<(f64, f64)>; 4] = Default::default();
        const NAMES: [&str; 5] =
            ["read, RC", "write, RC", "read, UD, event", "read, UD, polling", "write, UD, polling"];
        let one_packet = self.parameters.packet_bytes as u32;
        for bytes in LENGTHS {
            let native = NodePair::new(&self.parameters, 1, bytes);
            let mut emulated = EmulatedPair::new(&self.parameters, bytes);
            let [event, polling, write] = [
                (Operation::Read, TargetWait::Event),
                (Operation::Read, TargetWait::Polling),
                (Operation::Write, TargetWait::Polling),
            ]
            .map(|(operation, wait)| emulated.latency(operation, bytes, wait));
            let times = [native.read_latency(bytes), native.write_latency(bytes), event, polling, write];
            for ((line, name), time) in latencies.iter_mut().zip(NAMES).zip(times) {
                self.figure("latency", &format!("{name}, {bytes} B"), time as f64 / 1e3, "us", Limit::None);
                line.push((f64::from(bytes), time as f64 / 1e3));
            }
            let rate = [
                native.read_bandwidth(bytes, STREAM),
                native.bandwidth(bytes, STREAM),
                emulated.bandwidth(Operation::Read, bytes, STREAM),
                emulated.bandwidth(Operation::Write, bytes, STREAM),
            ];
            for ((line, name), rate) in rates.iter_mut().zip([NAMES[0], NAMES[1], "read, UD", "write, UD"]).zip(rate) {
                self.figure("bandwidth", &format!("{name}, {bytes} B"), rate / 1e6, "MB/s", Limit::None);
                line.push((f64::from(bytes), rate / 1e6));
            }
            if bytes == one_packet {
                let [read, message, event, ..] = times.map(|time| time as f64);
                let name = "emulated_read_by_rc";
                self.figure(name, "one MTU, / message (Fig. 8.1)", event / message, "", Limit::Least(3.0));
                self.figure(name, "one MTU, / read", event / read, "", Limit::None);
                self.source(name, "8.3.2: one MTU, more than", 3.0, "");
            }
            self.figure("write_by_read", &format!("UD, {bytes} B"), write as f64 / event as f64, "", Limit::None);
        }
        let strokes = [Stroke::Dashed, Stroke::Dashed, Stroke::Solid, Stroke::Dotted, Stroke::Solid];
        let series = NAMES.into_iter().zip(strokes).zip(latencies).map(|((name, stroke), line)| (name, stroke, line));
        self.chart("Reads and writes (Figs. 8.6, 8.7)", "bytes", "latency, µs", series.collect());
        let names = [NAMES[0], NAMES[1], "read, UD", "write, UD"];
        let series = names.into_iter().zip(strokes).zip(rates).map(|((name, stroke), line)| (name, stroke, line));
        self.chart("Reads and writes (Figs. 8.6, 8.7)", "bytes", "bandwidth, MB/s", series.collect());
    }
}
