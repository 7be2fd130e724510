//! Times of all collectives and algorithms at 2 to 4096 ranks under Hockney's model, by the executors that ship.

use core::cmp::Reverse;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use clap::Parser;
use unisono_core::collective::CollectiveKind;
use unisono_core::schedule::{Algorithm, Plan, Spec};
use unisono_tests::collectives::hockney::{LinkCost, time};
use unisono_tests::harness::report::{Limit, Report};

/// A message of b bytes takes α + β·b and occupies a port at either end. First holds gather, allgather and alltoall at
/// sizes that are powers of k + 1 against equations 1, 2, 3 and 5 of Qian & Afsahi (2008), then prints the time of each
/// algorithm.
#[derive(Parser)]
struct Options {
    /// Ranks.
    #[arg(long, value_delimiter = ',', default_values_t = [2, 8, 64, 512, 4096])]
    ranks: Vec<u32>,
    /// Bytes of each rank, of an alltoall for each other one.
    #[arg(long, value_delimiter = ',', default_values_t = [8, 65536])]
    bytes: Vec<usize>,
    /// Messages that a rank sends and receives at a time, k.
    #[arg(long, default_value_t = 1)]
    ports: u8,
    /// Parts that each block is cut into.
    #[arg(long, default_value_t = 1)]
    segments: u32,
    /// α.
    #[arg(long, default_value_t = 5_000)]
    latency_ns: u64,
    /// β: 10 Gbit/s are 800.
    #[arg(long, default_value_t = 800)]
    ps_per_byte: u64,
    /// Steps of all ranks beyond which a schedule is left out.
    #[arg(long, default_value_t = 40_000_000)]
    steps: u64,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut report = Report::new(2, options.json);
    let started = Instant::now();
    let link = LinkCost { startup_ps: options.latency_ns * 1000, ps_per_byte: options.ps_per_byte };
    equations(&mut report, link);
    let mut works = Vec::new();
    for (i, &bytes) in options.bytes.iter().enumerate() {
        for (verb, algorithm) in
            CollectiveKind::ALL.iter().flat_map(|verb| Algorithm::ALL.map(|algorithm| (*verb, algorithm)))
        {
            for &size in &options.ranks {
                let call = Spec { segments: options.segments, ..Spec::new(verb, algorithm, size, options.ports) };
                let steps = Plan::new(call).map(|plan| u64::from(plan.steps()) * u64::from(size));
                // A barrier has no bytes.
                let repeated = verb == CollectiveKind::Barrier && i > 0;
                if let Ok(steps) = steps
                    && steps <= options.steps
                    && !repeated
                {
                    works.push(Work { call, bytes, steps });
                }
            }
        }
    }
    for (work, cost) in works.iter().zip(costs(&works, link)) {
        let Spec { collective: verb, algorithm, size, .. } = work.call;
        let of = format!("{algorithm:?}, {size} ranks, {} B", work.bytes);
        report.figure(verb.name(), &of, cost as f64 / 1e6, "us", Limit::None);
    }
    report.figure("seconds", "", started.elapsed().as_secs_f64(), "s", Limit::None);
    report.end()
}

/// A simulation and its number of steps.
#[derive(Clone, Copy)]
struct Work {
    call: Spec,
    bytes: usize,
    steps: u64,
}

/// In picoseconds. On all processors, the longest first.
fn costs(works: &[Work], link: LinkCost) -> Vec<u64> {
    let mut order: Vec<usize> = (0..works.len()).collect();
    order.sort_by_key(|i| Reverse(works[*i].steps));
    let (next, costs) = (AtomicUsize::new(0), Mutex::new(vec![0; works.len()]));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(&i) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let cost = time(works[i].call, works[i].bytes, link).expect("a schedule that exists");
                    costs.lock().expect("no thread panics while it holds this")[i] = cost.picoseconds;
                }
            });
        }
    });
    costs.into_inner().expect("no thread panics while it holds this")
}

/// Every power of k + 1 up to 4096, k = 1 to 4: how many times differ from what the equations say.
fn equations(report: &mut Report, link: LinkCost) {
    const BYTES: u64 = 24;
    let (mut held, mut missed) = (0_u32, 0_u32);
    for ports in 1..=4_u8 {
        let k = u64::from(ports);
        let _: ControlFlow<()> = (1..=12).try_for_each(|m| {
            let n = (k + 1).pow(m);
            if n > 4096 {
                return ControlFlow::Break(());
            }
            let cost = |rounds: u64, blocks: u64| rounds * link.startup_ps + blocks * BYTES * link.ps_per_byte;
            let collected = cost(m.into(), (n - 1) / k);
            let exchanged = cost(m.into(), n / (k + 1) * u64::from(m));
            let direct = cost((n - 1).div_ceil(k), (n - 1).div_ceil(k));
            for (verb, algorithm, want) in [
                (CollectiveKind::Gather, Algorithm::Knomial, collected),
                (CollectiveKind::Scatter, Algorithm::Knomial, collected),
                (CollectiveKind::Allgather, Algorithm::Bruck, collected),
                (CollectiveKind::Allgather, Algorithm::StandardExchange, collected),
                (CollectiveKind::Alltoall, Algorithm::StandardExchange, exchanged),
                (CollectiveKind::Alltoall, Algorithm::Bruck, exchanged),
                (CollectiveKind::Gather, Algorithm::Direct, direct),
            ] {
                let got = time(Spec::new(verb, algorithm, n as u32, ports), BYTES as usize, link);
                let right = got.is_ok_and(|cost| cost.picoseconds == want);
                if !right {
                    eprintln!("{verb:?} {algorithm:?} of {n} on {ports} ports: {got:?}, not {want} ps");
                }
                held += u32::from(right);
                missed += u32::from(!right);
            }
            ControlFlow::Continue(())
        });
    }
    report.figure("equations_1_2_3_5", "2..4096 ranks, k = 1..4", f64::from(held), "equal", Limit::Least(1.0));
    report.figure("equations_1_2_3_5", "2..4096 ranks, k = 1..4", f64::from(missed), "unequal", Limit::Most(0.0));
}
