//! Explores the shipped windows and endpoints exhaustively, and checks that each mutant is detected.
//!
//! ```text
//! models                all models; fails unless each is explored completely and holds (or fails, where expected)
//! models --sample K/N    part K of N of them, counted from 0
//! models --list         the names of all models
//! models --only NAME    one of them, with the trace of its failure
//! models --only NAME --states N    the same, with a limit of N states instead of 3 × 10⁷
//! models --mutants      builds itself with `--cfg mutants`; breaks each rule in turn; fails unless its model detects it
//! models --mutants NAME…    only these
//! models --mutants --sample K/N    part K of N of them, counted from 0
//! models --broken MUTANT --only NAME    one of them, by itself, in a build with `--cfg mutants`
//! ```
//!
//! With `--json` before them, one object per line.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;
use std::{env, thread};

use unisono_tests::model_checker::{Answer, ExplorationReport, Explorer};
use unisono_tests::models::catalogue::{CatalogueEntry, Expected, MODELS, MUTANTS, TOO_LARGE, find};
use unisono_tests::models::mutant::{self, Mutants, Outcome, Verdict};
use unisono_tests::sample::Sample;

/// Explorations, or mutants, at a time.
const WORKERS: usize = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let json = arguments.first() == Some(&"--json");
    arguments.drain(..usize::from(json));
    let good = match arguments[..] {
        [] => explore_all(Sample::ALL, json),
        ["--list"] => {
            MODELS.iter().for_each(|entry| println!("{}", entry.name));
            true
        }
        ["--sample", sample] => parsed(sample).is_some_and(|sample| explore_all(sample, json)),
        ["--only", name] => explore_one(name, Explorer::default(), json),
        ["--only", name, "--states", states] => states
            .parse()
            .is_ok_and(|most_states| explore_one(name, Explorer { most_states, ..Explorer::default() }, json)),
        ["--broken", rule, "--only", name] => {
            if !is_mutant(rule) {
                return ExitCode::FAILURE;
            }
            if !mutant::break_rule(rule) {
                eprintln!("models: built without --cfg mutants: no rule can be broken");
                return ExitCode::FAILURE;
            }
            explore_one(name, Explorer::default(), json)
        }
        ["--mutants", "--sample", sample] => parsed(sample).is_some_and(|sample| try_mutants(&[], sample, json)),
        ["--mutants", ref names @ ..] => try_mutants(names, Sample::ALL, json),
        _ => {
            eprintln!(
                "usage: models [--json] [--list | --sample K/N | --only NAME [--states N] | --mutants [NAME… | --sample K/N]]"
            );
            false
        }
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The part that an argument names; says why if it names none.
fn parsed(sample: &str) -> Option<Sample> {
    sample.parse().inspect_err(|error| eprintln!("models: {error}")).ok()
}

/// Runs `count` pieces of work on all workers. Returns whether all succeeded.
fn work(count: usize, piece: impl Fn(usize) -> bool + Sync) -> bool {
    let (next, good) = (AtomicUsize::new(0), Mutex::new(true));
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            let (next, good, piece) = (&next, &good, &piece);
            scope.spawn(move || {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= count {
                        return;
                    }
                    if !piece(i) {
                        *good.lock().expect("no worker panics while it holds this") = false;
                    }
                }
            });
        }
    });
    good.into_inner().expect("no worker panics while it holds this")
}

fn explore_all(sample: Sample, json: bool) -> bool {
    let start = Instant::now();
    let entries: Vec<&CatalogueEntry> =
        MODELS.iter().enumerate().filter(|(i, _)| sample.takes(*i)).map(|(_, entry)| entry).collect();
    let head = format!(
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
    if !json {
        println!("{head}");
    }
    let peak = AtomicU64::new(0);
    let good = work(entries.len(), |i| {
        let entry = entries[i];
        let report = entry.explore(Explorer::default());
        peak.fetch_max(report.peak_bytes.unwrap_or(0), Ordering::Relaxed);
        println!("{}", if json { object(entry, &report) } else { row(entry, &report) });
        is_expected(entry, &report)
    });
    let verdict = if good { "all as they must" } else { "NOT ALL AS THEY MUST" };
    let (seconds, mebibytes) = (start.elapsed().as_secs_f64(), peak.into_inner() >> 20);
    if json {
        println!("{}", verdict_object(good, entries.len(), seconds));
    } else {
        println!("{} models, {verdict}, {seconds:.0} s, {mebibytes} MiB at most", entries.len());
    }
    good
}

fn explore_one(name: &str, explorer: Explorer, json: bool) -> bool {
    let Some(entry) = find(name) else {
        eprintln!(
            "no such model; there are: {}",
            MODELS.iter().chain(TOO_LARGE).map(|entry| entry.name).collect::<Vec<_>>().join(" ")
        );
        return false;
    };
    let report = entry.explore(explorer);
    if json {
        println!("{}", object(entry, &report));
    } else {
        println!("{} {}", mutant::VERDICT, answer(&report));
        println!("{name}: {report}");
    }
    is_expected(entry, &report)
}

fn is_expected(entry: &CatalogueEntry, report: &ExplorationReport) -> bool {
    match entry.expected {
        Expected::Holds => report.holds(),
        Expected::Fails => matches!(report.answer, Answer::Violated { .. }),
    }
}

fn row(entry: &CatalogueEntry, report: &ExplorationReport) -> String {
    let CatalogueEntry {
        name,
        widths: (segments, bits),
        time: (time, counts),
        messages,
        in_flight,
        lifetime,
        notes,
        ..
    } = entry;
    let lifetime = lifetime.map_or_else(|| "ever".to_owned(), |lifetime| lifetime.to_string());
    let ExplorationReport { states, transitions, depth, seconds, complete, .. } = report;
    let complete = if *complete { "yes" } else { "no" };
    let answer = answer(report);
    format!(
        "{name:15} {segments:>2} {bits:>4} {time:9} {counts:>6} {messages:>8} {in_flight:>9} {lifetime:>8} {states:>9} \
         {transitions:>10} {depth:>5} {seconds:>6.1} {complete:8} {answer}; {notes}"
    )
}

/// As [`row`], for programs. Names and notes are plain text, which JSON escapes as Rust does.
fn object(entry: &CatalogueEntry, report: &ExplorationReport) -> String {
    let CatalogueEntry {
        name,
        widths: (segments, bits),
        time: (time, counts),
        messages,
        in_flight,
        lifetime,
        notes,
        ..
    } = entry;
    let lifetime = lifetime.map_or_else(|| "null".to_owned(), |lifetime| lifetime.to_string());
    let ExplorationReport { states, fingerprint, transitions, depth, seconds, complete, .. } = report;
    let (answer, expected) = (answer(report), is_expected(entry, report));
    format!(
        "{{\"model\":{name:?},\"window\":{segments},\"bits\":{bits},\"time\":{time:?},\"counts\":{counts},\
         \"messages\":{messages:?},\"in_flight\":{in_flight},\"lifetime\":{lifetime},\"states\":{states},\
         \"fingerprint\":{fingerprint},\"steps\":{transitions},\"depth\":{depth},\"seconds\":{seconds},\"complete\":{complete},\
         \"answer\":{answer:?},\"as_expected\":{expected},\"notes\":{notes:?}}}"
    )
}

/// The last line.
fn verdict_object(met: bool, of: usize, seconds: f64) -> String {
    format!("{{\"name\":\"verdict\",\"met\":{met},\"of\":{of},\"seconds\":{seconds}}}")
}

/// One line.
fn answer(report: &ExplorationReport) -> String {
    match &report.answer {
        Answer::Holds => "holds".to_owned(),
        Answer::Violated { rule, trace } => format!("violated {} {rule}", trace.len()),
        Answer::Stuck { deadlock: true, trace } => format!("stuck {} nothing can happen any more", trace.len()),
        Answer::Stuck { deadlock: false, trace } => format!("stuck {} it goes on, but cannot finish", trace.len()),
        Answer::Capped => "capped".to_owned(),
    }
}

/// Whether there is a mutant of this name; says so if not.
fn is_mutant(name: &str) -> bool {
    let is_known = MUTANTS.iter().any(|(mutant, _)| *mutant == name);
    if !is_known {
        eprintln!("no such mutant: {name}");
    }
    is_known
}

fn try_mutants(names: &[&str], sample: Sample, json: bool) -> bool {
    if let Err(error) = mutant::check_list() {
        eprintln!("{error}");
        return false;
    }
    if !names.iter().all(|name| is_mutant(name)) {
        return false;
    }
    let is_chosen = |i: usize, mutant: &str| sample.takes(i) && (names.is_empty() || names.contains(&mutant));
    let chosen: Vec<_> =
        MUTANTS.iter().enumerate().filter(|(i, (mutant, _))| is_chosen(*i, mutant)).map(|(_, pair)| *pair).collect();
    let start = Instant::now();
    if !json {
        println!("{:20} {:15} {:>5} {:>5}  verdict", "mutant", "model", "steps", "s");
    }
    let mutants = match Mutants::build() {
        Ok(mutants) => mutants,
        Err(error) => {
            eprintln!("{error}");
            return false;
        }
    };
    let good = work(chosen.len(), |i| {
        let (mutant, model) = chosen[i];
        match mutants.try_mutant(mutant, model) {
            Ok(outcome) => report(&outcome, json),
            Err(error) => {
                eprintln!("{mutant}: {error}");
                false
            }
        }
    });
    let verdict = if good { "all killed" } else { "NOT ALL KILLED" };
    let seconds = start.elapsed().as_secs_f64();
    if json {
        println!("{}", verdict_object(good, chosen.len(), seconds));
    } else {
        println!("{} mutants, {verdict}, {seconds:.0} s", chosen.len());
    }
    good
}

fn report(outcome: &Outcome, json: bool) -> bool {
    let Outcome { mutant, model, verdict, seconds } = outcome;
    let (steps, said, killed) = match verdict {
        Verdict::Killed { rule, steps } => (steps.to_string(), format!("killed: {rule}"), true),
        Verdict::Survived(said) => (String::new(), format!("SURVIVED: {said}"), false),
    };
    if json {
        println!(
            "{{\"mutant\":{mutant:?},\"model\":{model:?},\"killed\":{killed},\"said\":{said:?},\"seconds\":{seconds}}}"
        );
    } else {
        println!("{mutant:20} {model:15} {steps:>5} {seconds:>5.0}  {said}");
    }
    killed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_hold_what_rows_hold() {
        let report = ExplorationReport {
            answer: Answer::Holds,
            states: 7,
            fingerprint: 8,
            transitions: 9,
            depth: 3,
            seconds: 0.5,
            peak_bytes: None,
            complete: true,
        };
        for entry in MODELS {
            let object = object(entry, &report);
            let name = format!("{{\"model\":\"{}\",\"window\":{},", entry.name, entry.widths.0);
            assert!(object.starts_with(&name) && object.ends_with("\"}"), "{object}");
            let rest = "\"states\":7,\"fingerprint\":8,\"steps\":9,\"depth\":3,\"seconds\":0.5,\"complete\":true,\"answer\":\"holds\"";
            assert!(object.contains(rest), "{object}");
            // Escapes of Rust that JSON has not.
            assert!(!object.contains("\\u{") && !object.contains("\\'"), "{object}");
        }
    }
}
