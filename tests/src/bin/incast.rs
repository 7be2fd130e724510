//! Bar 10: incast in the simulated network.

use std::process::ExitCode;

use clap::Parser;
use unisono_tests::harness::report::{Limit, Report};
use unisono_tests::scenarios::incast::{Period, Scenario, run};

/// 256 senders to 64 slots behind one link. All start at the same moment; a queue of 64 datagrams cannot hold 256
/// datagrams without credit, so that its start is reported only.
#[derive(Parser)]
struct Options {
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

const GIGABIT: u64 = 1_000_000_000;

fn main() -> ExitCode {
    let options = Options::parse();
    let mut report = Report::new(10, options.json);
    let fast = Scenario::new(100 * GIGABIT, 4096);
    let slow = Scenario { steady_ns: 100_000_000, ..Scenario::new(10 * GIGABIT, 1024) };
    let scenarios = [
        ("100 Gbit/s, 4 KiB, queue 1024", Scenario { queue: 1024, ..fast }, true),
        ("... receiver busy 2 us", Scenario { queue: 1024, busy_ns: 2_000, ..fast }, true),
        ("10 Gbit/s, 1 KiB, queue 1024", Scenario { queue: 1024, ..slow }, true),
        ("100 Gbit/s, 4 KiB, queue 64", fast, false),
        ("... receiver busy 2 us", Scenario { busy_ns: 2_000, ..fast }, false),
        ("10 Gbit/s, 1 KiB, queue 64", slow, false),
    ];
    for (of, scenario, judge_start) in scenarios {
        let [start, steady] = run(&scenario, options.seed);
        print(&mut report, &format!("{of}, start"), &start, judge_start, false);
        print(&mut report, of, &steady, true, true);
    }
    report.end()
}

fn print(report: &mut Report, of: &str, period: &Period, loss: bool, rest: bool) {
    let judged = |judge, limit| if judge { limit } else { Limit::None };
    report.figure("granted", of, period.granted as f64, "datagrams", Limit::None);
    report.figure("granted_dropped", of, period.granted_dropped as f64, "datagrams", Limit::None);
    report.figure("granted_loss", of, period.loss(), "", judged(loss, Limit::Most(0.001)));
    report.figure("unadmitted", of, period.unadmitted as f64, "datagrams", Limit::None);
    report.figure("unadmitted_dropped", of, period.unadmitted_dropped as f64, "datagrams", Limit::None);
    report.figure("goodput", of, period.goodput, "of the link", judged(rest, Limit::Least(0.8)));
    report.figure("fairness", of, period.fairness(), "", judged(rest, Limit::Least(0.9)));
}
