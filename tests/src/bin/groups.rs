//! Broadcasts over multicast groups in the simulated network: what making groups costs by each policy, and what leaders of
//! hosts and ranks that attach to their leader's group gain.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use unisono_bench::Bytes;
use unisono_bench::plot::{self, Chart, Line, Stroke};
use unisono_core::multicast::{GroupPolicy, SEGMENT_HEADER};
use unisono_tests::collectives::group_parameters::{GroupParameters, default_file};
use unisono_tests::collectives::group_policies::{ClosedForm, PolicyRun, measure};
use unisono_tests::collectives::leader_broadcast::{BroadcastMeans, broadcast, late_leader};
use unisono_tests::harness::report::{Limit, Report};

/// Mamidala (2008): the effective latency of communicators with basic, lazy and pooled groups (§5.2.5) against the closed
/// form of the parameters, broadcasts by leaders of hosts, and dynamic attach (§6.3). The simulated network loses nothing.
#[derive(Parser)]
struct Options {
    /// Costs of network, hosts and subnet manager: name = value.
    #[arg(long, value_name = "FILE", default_value_os_t = default_file())]
    parameters: PathBuf,
    /// Ranks of a communicator, at most 64; the job has 64.
    #[arg(long, value_delimiter = ',', default_values_t = [8, 16, 32], value_parser = clap::value_parser!(u32).range(2..=64))]
    members: Vec<u32>,
    /// Broadcasts of a communicator.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4, 16, 64, 256, 1024, 4096], value_parser = clap::value_parser!(u32).range(1..))]
    broadcasts: Vec<u32>,
    /// Hosts of two ranks.
    #[arg(long, value_delimiter = ',', default_values_t = [4, 8, 16], value_parser = clap::value_parser!(u32).range(2..=16))]
    hosts: Vec<u32>,
    /// Draw effective latencies and waits into an SVG or PNG file.
    #[arg(long, value_name = "FILE.svg|png", value_parser = plot::file)]
    plot: Option<PathBuf>,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

const POLICIES: [(GroupPolicy, &str); 3] =
    [(GroupPolicy::Basic, "basic"), (GroupPolicy::Lazy, "lazy"), (GroupPolicy::Pool, "pool")];
const MEANS: [(BroadcastMeans, &str); 4] = [
    (BroadcastMeans::Leaders, "leaders"),
    (BroadcastMeans::Flat, "flat"),
    (BroadcastMeans::Schedule, "point_to_point"),
    (BroadcastMeans::ComposedSchedule, "point_to_point_over_hosts"),
];
/// The measured time differs from the closed form by this share at most.
const ERROR: Limit = Limit::Most(0.05);
/// By how much the source's pool and lazy groups improve the basic ones' effective latency, of 32 ranks (Fig. 5.10).
const SOURCE_RANKS: u32 = 32;
const SOURCE_POOL: f64 = 4.9;
const SOURCE_LAZY: f64 = 3.8;
/// Bytes of a broadcast to a late leader.
const LATE_BYTES: u32 = 1024;

struct Measurements {
    parameters: GroupParameters,
    report: Report,
    charts: Vec<Chart>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let started = Instant::now();
    let parameters = match GroupParameters::read(&options.parameters) {
        Ok(parameters) => parameters,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let mut all = Measurements { parameters, report: Report::new(4, options.json), charts: Vec::new() };
    for &members in &options.members {
        all.policies(members, &options.broadcasts);
    }
    all.pool_of_the_same_root();
    all.source();
    all.refills();
    all.successions();
    for &hosts in &options.hosts {
        all.leaders(hosts);
    }
    all.late_leaders();
    if let Some(path) = &options.plot {
        plot::draw(path, &all.charts).expect("the plot is written");
    }
    all.report.figure("seconds", "", started.elapsed().as_secs_f64(), "s", Limit::None);
    all.report.end()
}

fn line(label: &str, colour: usize, stroke: Stroke, points: Vec<(f64, f64)>) -> Line {
    Line { label: label.to_owned(), colour, stroke, points, bars: Vec::new() }
}

fn error(measured: f64, expected: f64) -> f64 {
    (measured / expected - 1.0).abs()
}

impl Measurements {
    const fn form(&self, run: PolicyRun) -> ClosedForm {
        ClosedForm { parameters: self.parameters, run }
    }

    /// The effective latency, in nanoseconds, whose distance from the closed form is limited.
    fn effective(&mut self, name: &str, of: &str, run: PolicyRun) -> f64 {
        let measured = measure(run, &self.parameters).effective_ns();
        let expected = self.form(run).effective();
        self.report.figure(name, of, measured / 1e3, "us", Limit::None);
        self.report.figure(&format!("{name}_closed_form"), of, expected / 1e3, "us", Limit::None);
        self.report.figure(&format!("{name}_error"), of, error(measured, expected), "", ERROR);
        measured
    }

    fn policies(&mut self, members: u32, broadcasts: &[u32]) {
        let mut lines = Vec::new();
        for (colour, (policy, name)) in POLICIES.into_iter().enumerate() {
            let (mut measured, mut expected) = (Vec::new(), Vec::new());
            for &broadcasts in broadcasts {
                let run = PolicyRun::new(policy, members, broadcasts);
                let of = format!("{members} ranks, {broadcasts} broadcasts");
                measured.push((f64::from(broadcasts), self.effective(name, &of, run) / 1e3));
                expected.push((f64::from(broadcasts), self.form(run).effective() / 1e3));
            }
            lines.push(line(name, colour, Stroke::Solid, measured));
            lines.push(line(&format!("{name}, closed form"), colour, Stroke::Dotted, expected));
        }
        let schedule = self.form(PolicyRun::new(GroupPolicy::Lazy, members, 1)).schedule() as f64 / 1e3;
        let points = broadcasts.iter().map(|broadcasts| (f64::from(*broadcasts), schedule)).collect();
        lines.push(line("point to point, closed form", 6, Stroke::Dashed, points));
        self.charts.push(Chart {
            caption: format!("creation and broadcasts of 1 KiB, {members} simulated ranks"),
            x: "broadcasts".to_owned(),
            y: "µs per broadcast".to_owned(),
            x_label: |broadcasts| format!("{broadcasts:.0}"),
            lines,
        });
    }

    /// A pool whose root is that of the broadcasts: its messages delay those of the first broadcasts.
    fn pool_of_the_same_root(&mut self) {
        for broadcasts in [1, 4, 16, 64, 256] {
            let run = PolicyRun { pool_root: 0, ..PolicyRun::new(GroupPolicy::Pool, SOURCE_RANKS, broadcasts) };
            let measured = measure(run, &self.parameters).effective_ns();
            let of = format!("{SOURCE_RANKS} ranks, {broadcasts} broadcasts");
            self.report.figure("pool_of_the_same_root", &of, measured / 1e3, "us", Limit::None);
        }
    }

    /// Where the source's improvements fall: the number of broadcasts at which the pool improves the basic groups by its
    /// factor, and lazy groups by theirs; then, at the number of the pool, the computation at which lazy groups do.
    fn source(&mut self) {
        let gain = |policy, broadcasts, computation_ns| {
            let form =
                |policy| self.form(PolicyRun { computation_ns, ..PolicyRun::new(policy, SOURCE_RANKS, broadcasts) });
            form(GroupPolicy::Basic).effective() / form(policy).effective()
        };
        let first = |policy, factor| (1..1 << 20).find(|broadcasts| gain(policy, *broadcasts, 0) <= factor);
        let basic = self.form(PolicyRun::new(GroupPolicy::Basic, SOURCE_RANKS, 1));
        let (ready, step) = (basic.ready(), basic.schedule());
        let (pool, lazy) = (first(GroupPolicy::Pool, SOURCE_POOL), first(GroupPolicy::Lazy, SOURCE_LAZY));
        let (Some(pool), Some(lazy)) = (pool, lazy) else {
            return self.report.figure("source", "no such number of broadcasts", f64::NAN, "", Limit::Most(0.0));
        };
        let mut computation = (0..=ready.div_ceil(step)).map(|steps| steps * step);
        let overlapped = computation.find(|at| gain(GroupPolicy::Lazy, pool, *at) >= SOURCE_LAZY);
        self.report.figure("source_ready", "32 ranks", ready as f64 / 1e3, "us", Limit::None);
        for (name, policy, factor, broadcasts, computation_ns) in [
            ("source_pool", GroupPolicy::Pool, SOURCE_POOL, pool, Some(0)),
            ("source_lazy", GroupPolicy::Lazy, SOURCE_LAZY, lazy, Some(0)),
            ("source_pool", GroupPolicy::Pool, SOURCE_POOL, pool, overlapped),
            ("source_lazy", GroupPolicy::Lazy, SOURCE_LAZY, pool, overlapped),
        ] {
            let Some(computation_ns) = computation_ns else {
                self.report.figure("source", "no such computation", f64::NAN, "", Limit::Most(0.0));
                continue;
            };
            let run = |policy| PolicyRun { computation_ns, ..PolicyRun::new(policy, SOURCE_RANKS, broadcasts) };
            let [basic, other] =
                [GroupPolicy::Basic, policy].map(|policy| measure(run(policy), &self.parameters).effective_ns());
            let of = format!("{broadcasts} broadcasts, {} us of computation", computation_ns / 1000);
            self.report.figure(name, &of, basic / other, "", Limit::None);
            self.report.figure(&format!("{name}_closed_form_error"), &of, error(basic / other, factor), "", ERROR);
        }
    }

    /// The time until the pool is full, at first and after a creation.
    fn refills(&mut self) {
        for members in [8, 32] {
            let run = PolicyRun::new(GroupPolicy::Pool, members, 1);
            let (times, form) = (measure(run, &self.parameters), self.form(run));
            for (name, measured, expected) in
                [("pool_fill", times.fill_ns, form.fill()), ("pool_refill", times.refill_ns, form.refill())]
            {
                let of = format!("64 ranks, {members} in a communicator");
                self.report.figure(name, &of, measured as f64 / 1e3, "us", Limit::None);
                self.report.figure(&format!("{name}_error"), &of, error(measured as f64, expected as f64), "", ERROR);
            }
        }
    }

    /// Sixteen communicators in succession, of which two exist at a time: the share that finds a group in the pool. A
    /// pool that is exhausted costs at most what lazy groups do.
    fn successions(&mut self) {
        for broadcasts in [64, 256, 1024, 4096] {
            let of = format!("16 communicators, {broadcasts} broadcasts");
            let [pool, lazy] = [GroupPolicy::Pool, GroupPolicy::Lazy].map(|policy| {
                let run = PolicyRun { creations: 16, alive: 2, ..PolicyRun::new(policy, SOURCE_RANKS, broadcasts) };
                measure(run, &self.parameters)
            });
            self.report.figure("succession_pooled", &of, f64::from(pool.pooled) / 16.0, "", Limit::None);
            self.report.figure("succession_pool", &of, pool.effective_ns() / 1e3, "us", Limit::None);
            self.report.figure("succession_lazy", &of, lazy.effective_ns() / 1e3, "us", Limit::None);
            let gain = pool.effective_ns() / lazy.effective_ns();
            self.report.figure("succession_pool_by_lazy", &of, gain, "", Limit::Most(1.0));
        }
    }

    /// Broadcasts to hosts of two ranks: latency, and the time until the root has all acknowledgements.
    fn leaders(&mut self, hosts: u32) {
        for bytes in [8, 256, 1024, 4096] {
            let of = format!("{hosts} x 2 ranks, {}", Bytes(bytes));
            let times = MEANS.map(|(means, _)| broadcast(&self.parameters, (hosts, 2), bytes as u32, means));
            for ((_, name), times) in MEANS.iter().zip(times) {
                self.report.figure(name, &of, times.latency_ns as f64 / 1e3, "us", Limit::None);
            }
            let [leaders, flat, schedule, composed] = times.map(|times| times.latency_ns as f64);
            // A copy of few bytes takes longer than a second datagram.
            let limit = if bytes >= 1024 { Limit::Most(1.0) } else { Limit::None };
            self.report.figure("leaders_by_flat", &of, leaders / flat, "", limit);
            self.report.figure(
                "leaders_by_point_to_point",
                &of,
                leaders / schedule.min(composed),
                "",
                Limit::Most(1.0),
            );
            let [leaders, flat, ..] = times.map(|times| times.acknowledged_ns as f64);
            self.report.figure("leaders_by_flat_acknowledged", &of, leaders / flat, "", Limit::Most(1.0));
        }
    }

    /// The wait of the other rank of a late leader's host, without and with dynamic attach, after the warmup.
    fn late_leaders(&mut self) {
        let GroupParameters { warmup, threshold_ns, .. } = self.parameters;
        let (hop, copy) = (self.parameters.hop(LATE_BYTES), self.parameters.copy(LATE_BYTES));
        let second = self.parameters.adapter(LATE_BYTES + SEGMENT_HEADER as u32);
        let first = warmup as usize + 8;
        let mut points = [Vec::new(), Vec::new()];
        for late in [0, 50, 100, 200, 400, 500, 600, 800, 1600, 3200].map(|late| late * 1000) {
            let of = format!("8 x 2 ranks, late by {} us", late / 1000);
            let broadcasts = first as u32 + 64;
            let [follows, attaches] = [false, true].map(|attaches| {
                let run = late_leader(&self.parameters, 8, LATE_BYTES, broadcasts, (late, broadcasts), attaches);
                run.median_ns(first..broadcasts as usize)
            });
            let is_beyond = late + copy > threshold_ns;
            // The network takes as long, or the leader.
            let following = hop.max(late) + copy;
            // After the leader's datagram.
            let attached = if is_beyond { hop + second } else { following };
            self.report.figure("wait_following", &of, follows as f64 / 1e3, "us", Limit::None);
            self.report.figure("wait_following_error", &of, error(follows as f64, following as f64), "", ERROR);
            self.report.figure("wait_attaching", &of, attaches as f64 / 1e3, "us", Limit::None);
            self.report.figure("wait_attaching_error", &of, error(attaches as f64, attached as f64), "", ERROR);
            for (points, wait) in points.iter_mut().zip([follows, attaches]) {
                points.push((late.max(1000) as f64 / 1e3, wait as f64 / 1e3));
            }
        }
        let [follows, attaches] = points;
        self.charts.push(Chart {
            caption: "wait for a late leader, 8 × 2 simulated ranks, 1 KiB".to_owned(),
            x: "µs by which the leader is late".to_owned(),
            y: "µs".to_owned(),
            x_label: |late| format!("{late:.0}"),
            lines: vec![
                line("from the leader", 1, Stroke::Solid, follows),
                line("with dynamic attach", 2, Stroke::Solid, attaches),
            ],
        });
        let late = (2 * threshold_ns, 100);
        let run = late_leader(&self.parameters, 8, LATE_BYTES, 200, late, true);
        for (call, change) in run.changes {
            let of = format!("100 of 200 broadcasts late by {} us", late.0 / 1000);
            self.report.figure(
                &format!("{change:?}").to_lowercase(),
                &of,
                f64::from(call + 1),
                "broadcasts",
                Limit::None,
            );
        }
    }
}
