//! Bar 3: endpoints against a network that damages, repeats and invents datagrams.

use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use unisono_tests::harness::report::{Limit, Report};
use unisono_tests::scenarios::hostile::{BOUND_NS, Choices, Outcome, lies, noise, rma_lies, rma_noise};
use unisono_tests::scenarios::remote_access::{faulty, fetch_adds, random_operations};

/// Half of the damage breaks the check, half has a correct one: altered datagrams, and random bytes.
#[derive(Parser)]
struct Options {
    /// Damaged, or of random bytes.
    #[arg(long, default_value_t = 10_000_000)]
    datagrams: u64,
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// Remote memory access, of which some requests are bad by themselves.
    #[arg(long)]
    rma: bool,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

/// Requests over a network that loses, duplicates and reorders: sums of fetch-adds, and comparison with a serial memory.
fn lossy(options: &Options, report: &mut Report) {
    let adds = options.datagrams / 4;
    for (of, totals, wanted) in [
        ("fetch-adds of 4 ranks", fetch_adds(faulty(), options.seed, 5, adds, 64), 4 * adds),
        ("fetch-adds, 2 entries", fetch_adds(faulty(), options.seed, 9, adds / 80, 2), 8 * (adds / 80)),
        ("operations of any length", random_operations(faulty(), options.seed, adds / 1000), 2 * (adds / 1000)),
    ] {
        report.figure("succeeded", of, totals.succeeded as f64, "operations", Limit::Least(wanted as f64));
        report.figure("failed", of, totals.failed as f64, "operations", Limit::Most(0.0));
        report.figure("wrong", of, totals.wrong as f64, "values", Limit::Most(0.0));
        report.figure("datagrams", of, totals.datagrams as f64, "datagrams", Limit::None);
    }
}

type Phase = fn(Choices, u64) -> Outcome;

fn main() -> ExitCode {
    let options = Options::parse();
    let mut report = Report::new(3, options.json);
    let half = options.datagrams / 2;
    // How many operations may fail, and how many of the damaged datagrams must be random bytes.
    let (first, second): (Phase, Phase) = if options.rma { (rma_noise, rma_lies) } else { (noise, lies) };
    // Bad requests fail.
    let may_fail = if options.rma { Limit::None } else { Limit::Most(0.0) };
    let phases: [(&str, Phase, Limit, Limit); 2] = [
        ("broken check", first, may_fail, Limit::None),
        ("correct check, lies", second, Limit::None, Limit::Least(half as f64 / 100.0)),
    ];
    for (of, phase, may_fail, must_be_random) in phases {
        let started = Instant::now();
        let run = || phase(Choices::random(options.seed), half);
        let caught = catch_unwind(AssertUnwindSafe(run));
        report.figure("panics", of, f64::from(u8::from(caught.is_err())), "", Limit::Most(0.0));
        let Ok(outcome) = caught else { continue };
        let seconds = started.elapsed().as_secs_f64();
        let mut figure = |name: &str, value: u64, unit: &str, limit| {
            report.figure(name, of, value as f64, unit, limit);
        };
        figure("datagrams", outcome.datagrams, "datagrams", Limit::None);
        figure("damaged", outcome.damaged + outcome.random, "datagrams", Limit::Least(half as f64));
        figure("random", outcome.random, "datagrams", must_be_random);
        figure("check_dropped", outcome.checked, "datagrams", Limit::None);
        figure("handed", outcome.handed, "datagrams", Limit::None);
        figure("uncounted", outcome.handed.abs_diff(outcome.counted), "datagrams", Limit::Most(0.0));
        figure("ended", outcome.ended, "operations", Limit::Least(1.0));
        figure("succeeded", outcome.succeeded, "operations", Limit::None);
        if options.rma {
            figure("refused", outcome.refused, "requests", Limit::Least(half as f64 / 1000.0));
        }
        figure("restarts", outcome.restarts, "lives", Limit::None);
        figure("slowest", outcome.slowest_ns, "virtual ns", Limit::Most(BOUND_NS as f64));
        figure("corrupt", outcome.corrupt, "", Limit::Most(0.0));
        figure("outside", outcome.outside, "bytes", Limit::Most(0.0));
        figure("endless", outcome.endless, "operations", Limit::Most(0.0));
        let failed = (outcome.ended - outcome.succeeded) as f64;
        report.figure("failed", of, failed, "operations", may_fail);
        report.figure("seconds", of, seconds, "s", Limit::None);
    }
    if options.rma {
        lossy(&options, &mut report);
    }
    report.end()
}
