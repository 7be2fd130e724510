//! Explores the shipped windows and endpoints exhaustively, and checks that each rule broken on purpose is noticed.
//!
//! ```text
//! models                all models; fails unless each is explored to the end and holds (or fails, where it must)
//! models --only NAME    one of them, with the way to what it finds
//! models --only NAME --states N    the same, up to so many states instead of 3 × 10⁷
//! models --mutants      builds itself once for each mutant of the core; fails unless the model named for it notices
//! models --mutants NAME…    only these
//! ```

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;
use std::{env, thread};

use unisono_tests::explore::{Answer, Explorer, Report};
use unisono_tests::models::catalogue::{BEYOND, Entry, Expected, MODELS, MUTANTS, find};
use unisono_tests::models::mutant::{self, Outcome, Verdict, Workshop};

/// Explorations, or mutants, at a time.
const WORKERS: usize = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let good = match arguments[..] {
        [] => explore_all(),
        ["--only", name] => explore_one(name, Explorer::default()),
        ["--only", name, "--states", states] => {
            states.parse().is_ok_and(|most_states| explore_one(name, Explorer { most_states, ..Explorer::default() }))
        }
        ["--mutants", ref names @ ..] => try_mutants(names),
        _ => {
            eprintln!("usage: models [--only NAME [--states N] | --mutants [NAME…]]");
            false
        }
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Works off `count` pieces of work on all workers, and says whether each went well.
fn work(count: usize, piece: impl Fn(usize, usize) -> bool + Sync) -> bool {
    let (next, good) = (AtomicUsize::new(0), Mutex::new(true));
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (next, good, piece) = (&next, &good, &piece);
            scope.spawn(move || {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= count {
                        return;
                    }
                    if !piece(worker, i) {
                        *good.lock().expect("no worker panics while it holds this") = false;
                    }
                }
            });
        }
    });
    good.into_inner().expect("no worker panics while it holds this")
}

fn explore_all() -> bool {
    let start = Instant::now();
    println!(
        "{:15} {:>2} {:>4} {:9} {:>6} {:>8} {:>9} {:>8} {:>9} {:>10} {:>5} {:>6} {:8}",
        "model",
        "W",
        "bits",
        "time",
        "counts",
        "messages",
        "in flight",
        "lifetime",
        "states",
        "steps",
        "depth",
        "s",
        "complete"
    );
    let peak = AtomicU64::new(0);
    let good = work(MODELS.len(), |_, i| {
        let entry = &MODELS[i];
        let report = entry.explore(Explorer::default());
        peak.fetch_max(report.peak_bytes.unwrap_or(0), Ordering::Relaxed);
        println!("{}", row(entry, &report));
        is_expected(entry, &report)
    });
    let verdict = if good { "all as they must" } else { "NOT ALL AS THEY MUST" };
    let (seconds, mebibytes) = (start.elapsed().as_secs_f64(), peak.into_inner() >> 20);
    println!("{} models, {verdict}, {seconds:.0} s, {mebibytes} MiB at most", MODELS.len());
    good
}

fn explore_one(name: &str, explorer: Explorer) -> bool {
    let Some(entry) = find(name) else {
        eprintln!(
            "no such model; there are: {}",
            MODELS.iter().chain(BEYOND).map(|entry| entry.name).collect::<Vec<_>>().join(" ")
        );
        return false;
    };
    let report = entry.explore(explorer);
    println!("{} {}", mutant::VERDICT, answer(&report));
    println!("{name}: {report}");
    is_expected(entry, &report)
}

fn is_expected(entry: &Entry, report: &Report) -> bool {
    match entry.expected {
        Expected::Holds => report.holds(),
        Expected::Fails => matches!(report.answer, Answer::Violated { .. }),
    }
}

fn row(entry: &Entry, report: &Report) -> String {
    let Entry { name, widths: (segments, bits), time: (time, counts), messages, in_flight, lifetime, notes, .. } =
        entry;
    let lifetime = lifetime.map_or_else(|| "ever".to_owned(), |lifetime| lifetime.to_string());
    let Report { states, transitions, depth, seconds, complete, .. } = report;
    let complete = if *complete { "yes" } else { "no" };
    let answer = answer(report);
    format!(
        "{name:15} {segments:>2} {bits:>4} {time:9} {counts:>6} {messages:>8} {in_flight:>9} {lifetime:>8} {states:>9} \
         {transitions:>10} {depth:>5} {seconds:>6.1} {complete:8} {answer}; {notes}"
    )
}

/// One line.
fn answer(report: &Report) -> String {
    match &report.answer {
        Answer::Holds => "holds".to_owned(),
        Answer::Violated { rule, trace } => format!("violated {} {rule}", trace.len()),
        Answer::Stuck { deadlock: true, trace } => format!("stuck {} nothing can happen any more", trace.len()),
        Answer::Stuck { deadlock: false, trace } => format!("stuck {} it goes on, but cannot finish", trace.len()),
        Answer::Capped => "capped".to_owned(),
    }
}

fn try_mutants(names: &[&str]) -> bool {
    if let Err(error) = mutant::check_list() {
        eprintln!("{error}");
        return false;
    }
    if let Some(unknown) = names.iter().find(|name| MUTANTS.iter().all(|(mutant, _)| mutant != *name)) {
        eprintln!("no such mutant: {unknown}");
        return false;
    }
    let chosen: Vec<_> =
        MUTANTS.iter().filter(|(mutant, _)| names.is_empty() || names.contains(mutant)).copied().collect();
    let start = Instant::now();
    println!("{:20} {:15} {:>5} {:>5}  verdict", "mutant", "model", "steps", "s");
    let good = work(chosen.len(), |worker, i| {
        let (mutant, model) = chosen[i];
        match Workshop::new(worker).and_then(|workshop| workshop.try_mutant(mutant, model)) {
            Ok(outcome) => report(&outcome),
            Err(error) => {
                eprintln!("{mutant}: {error}");
                false
            }
        }
    });
    let verdict = if good { "all killed" } else { "NOT ALL KILLED" };
    println!("{} mutants, {verdict}, {:.0} s", chosen.len(), start.elapsed().as_secs_f64());
    good
}

fn report(outcome: &Outcome) -> bool {
    let Outcome { mutant, model, verdict, seconds } = outcome;
    let (steps, said, killed) = match verdict {
        Verdict::Killed { rule, steps } => (steps.to_string(), format!("killed: {rule}"), true),
        Verdict::Survived(said) => (String::new(), format!("SURVIVED: {said}"), false),
    };
    println!("{mutant:20} {model:15} {steps:>5} {seconds:>5.0}  {said}");
    killed
}
