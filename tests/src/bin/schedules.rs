//! Bar 3: every collective, algorithm, size, port count, root and length over messages in the simulated network,
//! against a sequential oracle.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use clap::Parser;
use unisono_tests::harness::report::{Limit, Report};
use unisono_tests::scenarios::schedules::{LENGTHS, Outcome, Workload, WorkloadFilter, run, workloads};
use unisono_udp::fault_injection::{Faults, Probability};

/// Collectives that one job runs.
const LIST: usize = 500;

/// Every verb × algorithm × 1 to 17 ranks × 1 to 3 ports × root × order of combination × in place or not × equal and
/// varying blocks × 5 lengths, in random order, three at a time on each rank; one to three segments in turn.
#[derive(Parser)]
struct Options {
    /// Ranks at most.
    #[arg(long, default_value_t = 17)]
    ranks: u32,
    /// Ports at most.
    #[arg(long, default_value_t = 3)]
    ports: u8,
    /// Runs one in this many collectives.
    #[arg(long, default_value_t = 1)]
    one_in: u32,
    /// Collectives at a time.
    #[arg(long, default_value_t = 3)]
    outstanding: usize,
    #[arg(long, default_value_t = 0.05)]
    loss: f64,
    #[arg(long, default_value_t = 0.05)]
    reorder: f64,
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let (Ok(loss), Ok(reorder)) = (Probability::new(options.loss), Probability::new(options.reorder)) else {
        eprintln!("probabilities are between 0 and 1");
        return ExitCode::FAILURE;
    };
    let faults = Faults { loss, reorder, ..Faults::default() };
    let mut report = Report::new(3, options.json);
    let started = Instant::now();
    let choice = WorkloadFilter { ports: options.ports, one_in: options.one_in, seed: options.seed };
    // The longest first.
    let all: Vec<Vec<Workload>> = (1..=options.ranks).rev().map(|size| workloads(size, choice)).collect();
    let lists: Vec<&[Workload]> = all.iter().flat_map(|works| works.chunks(LIST)).collect();
    let (next, sums) = (AtomicUsize::new(0), Mutex::new(vec![Outcome::default(); options.ranks as usize + 1]));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(list) = lists.get(i) else { return };
                    let outcome = run(list, options.outstanding.clamp(1, 64), faults, options.seed ^ (i as u64) << 8);
                    let size = list.first().map_or(0, |work| work.call.size as usize);
                    if let Some(sum) = sums.lock().expect("no thread panics while it adds").get_mut(size) {
                        *sum += outcome;
                    }
                }
            });
        }
    });
    let mut sum = Outcome::default();
    let sums = sums.into_inner().expect("no thread panics while it adds");
    for (size, outcome) in sums.into_iter().enumerate().skip(1) {
        report.figure("collectives", &format!("{size} ranks"), outcome.collectives as f64, "", Limit::None);
        sum += outcome;
    }
    let wanted = all.iter().map(Vec::len).sum::<usize>() as f64;
    let of = &format!("{LENGTHS:?} elements");
    report.figure("collectives", of, sum.collectives as f64, "", Limit::Least(wanted));
    report.figure("compared", of, sum.compared as f64, "results", Limit::Least(wanted));
    report.figure("wrong", of, sum.wrong as f64, "results", Limit::Most(0.0));
    report.figure("unfinished", of, sum.unfinished as f64, "collectives", Limit::Most(0.0));
    report.figure("eager", of, sum.eager as f64, "messages", Limit::Least(1.0));
    report.figure("announced", of, sum.announced as f64, "messages", Limit::Least(1.0));
    report.figure("asked", of, sum.asked as f64, "messages", Limit::None);
    report.figure("datagrams", of, sum.datagrams as f64, "", Limit::None);
    report.figure("lost_or_overtaken", of, sum.faults as f64 / sum.datagrams as f64, "of those", Limit::None);
    report.figure("virtual", of, sum.nanoseconds as f64 / 1e9, "s", Limit::None);
    report.figure("seconds", of, started.elapsed().as_secs_f64(), "s", Limit::None);
    report.end()
}
