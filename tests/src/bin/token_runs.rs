//! Random runs of token trees beyond the sizes that the models explore.
//!
//! ```text
//! token_runs                        100 000 runs from seed 1
//! token_runs --runs N --seed SEED   N runs
//! ```
//!
//! With `--json` before them, one object per line.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::process::ExitCode;
use std::time::Instant;
use std::{env, thread};

use unisono_tests::models::token_tree::random_runs::random_run;

/// Runs at a time.
const WORKERS: u64 = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let json = arguments.first() == Some(&"--json");
    arguments.drain(..usize::from(json));
    let parsed = match arguments[..] {
        [] => Some((100_000, 1)),
        ["--runs", runs] => runs.parse().ok().map(|runs| (runs, 1)),
        ["--runs", runs, "--seed", seed] => runs.parse().ok().zip(seed.parse().ok()),
        _ => None,
    };
    let Some((runs, seed)) = parsed else {
        eprintln!("usage: token_runs [--json] [--runs N [--seed SEED]]");
        return ExitCode::FAILURE;
    };
    if go(runs, seed, json) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether all runs were good.
fn go(runs: u64, seed: u64, json: bool) -> bool {
    let start = Instant::now();
    let (next, steps, failed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let run = next.fetch_add(1, Ordering::Relaxed);
                    if run >= runs {
                        return;
                    }
                    match random_run(seed.wrapping_add(run)) {
                        Ok(taken) => {
                            steps.fetch_add(taken.into(), Ordering::Relaxed);
                        }
                        Err(bad) => {
                            eprintln!("seed {}: {bad:#?}", seed.wrapping_add(run));
                            failed.store(true, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    let (seconds, steps, met) = (start.elapsed().as_secs_f64(), steps.into_inner(), !failed.into_inner());
    if json {
        println!(
            "{{\"name\":\"verdict\",\"met\":{met},\"runs\":{runs},\"seed\":{seed},\"steps\":{steps},\"seconds\":{seconds}}}"
        );
    } else {
        let verdict = if met { "no rule broken" } else { "A RULE IS BROKEN" };
        println!("{runs} runs from seed {seed}, {steps} steps, {verdict}, {seconds:.0} s");
    }
    met
}
