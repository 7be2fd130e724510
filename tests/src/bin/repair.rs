//! Bar 2: the time of a repair in the simulated network.

use std::process::ExitCode;

use clap::Parser;
use unisono_core::device::Cause;
use unisono_tests::bar::{Limit, Report, quantile};
use unisono_tests::repair::{ROUND_TRIP_NS, Repairs, stream, tail};

/// Loses single datagrams of a stream, and the last ones of bursts, and times their repair.
#[derive(Parser)]
struct Options {
    /// Losses of each sort.
    #[arg(long, default_value_t = 2000)]
    losses: usize,
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut report = Report::new(2, options.json);
    let single = stream(options.seed, options.losses);
    print(&mut report, "single", options.losses, &single, [Limit::Most(2.0), Limit::None]);
    let probes = single.counters.sent_for(Cause::Probe) + single.counters.sent_for(Cause::ResentProbe);
    report.figure("probes", "single", probes as f64, "datagrams", Limit::Most(0.0));
    let tails = tail(options.seed, options.losses);
    print(&mut report, "tail", options.losses, &tails, [Limit::None, Limit::Most(4.0)]);
    report.end()
}

fn print(report: &mut Report, of: &str, losses: usize, repairs: &Repairs, [median, most]: [Limit; 2]) {
    let mut times: Vec<f64> = repairs.times_ns.iter().map(|ns| *ns as f64 / ROUND_TRIP_NS as f64).collect();
    times.sort_by(f64::total_cmp);
    report.figure("repaired", of, times.len() as f64, "losses", Limit::Least(losses as f64));
    report.figure("unrepaired", of, repairs.unrepaired as f64, "losses", Limit::Most(0.0));
    report.figure("repair_p50", of, quantile(&times, 0.5), "round trips", median);
    report.figure("repair_p99", of, quantile(&times, 0.99), "round trips", Limit::None);
    report.figure("repair_max", of, quantile(&times, 1.0), "round trips", most);
    report.figure("data_sent", of, repairs.counters.data_sent() as f64, "datagrams", Limit::None);
    report.figure("spurious", of, repairs.counters.spurious as f64, "datagrams", Limit::None);
}
