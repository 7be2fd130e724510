//! Ranks are killed at random moments amid collectives, one after the other: the survivors are notified, revoke,
//! shrink, and continue with correct collectives, until two are left. Each learns which rank died: from the error, or,
//! if another notified rank has revoked before, from `failed` after the agreement.

use core::time::Duration;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use rustix::process::{Signal, kill_process};
use unisono::collective::CollectiveError;
use unisono::{Communicator, World};
use unisono_tests::collectives::{Collective, RoundError, Rounds};
use unisono_tests::harness::job::{Job, now};
use unisono_tests::harness::report::{Limit, Report, quantile};

/// Time limits for every survivor to be notified of a death, and to have the new communicator, as `docs/using.md`
/// states.
const NOTIFIED: Duration = Duration::from_millis(1000);
const RECOVERED: Duration = Duration::from_millis(2000);
const MEANS: [(&str, &[&str]); 3] =
    [("shared memory", &["--device", "shm"]), ("UDP", &["--device", "udp"]), ("two nodes", &["--nodes", "2"])];
const PROGRESS: [&str; 3] = ["engine", "thread", "hybrid"];
const SIZES: [usize; 3] = [8, 4 << 10, 64 << 10];
/// Rounds before a communicator counts as in use.
const WARM: u32 = 3;

/// Kills ranks of jobs whose survivors continue, and measures their recovery.
#[derive(Parser, Clone, Debug)]
struct Options {
    /// Jobs; in each all ranks but two are killed.
    #[arg(long, default_value_t = 60)]
    runs: usize,
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
    /// A rank's part: this many bytes.
    #[arg(long, hide = true)]
    bytes: Option<usize>,
    #[arg(long, hide = true)]
    mark: Option<String>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match options.bytes {
        Some(bytes) => member(bytes),
        None => judge(&options),
    }
}

fn judge(options: &Options) -> ExitCode {
    let (mut random, began) = (fastrand::Rng::with_seed(options.seed), Instant::now());
    let mut report = Report::new(8, options.json);
    let mut times = MEANS.map(|_| [Vec::new(), Vec::new()]);
    let mut well = [0; MEANS.len()];
    for run in 0..options.runs {
        match carry_out(run, &mut random) {
            Ok(found) => {
                well[run % MEANS.len()] += 1;
                times[run % MEANS.len()].iter_mut().zip(found).for_each(|(all, found)| all.extend(found));
            }
            Err(reason) => eprintln!("run {run}: {reason}"),
        }
    }
    for (((i, (name, _)), well), times) in MEANS.iter().enumerate().zip(well).zip(&mut times) {
        let planned = (options.runs + MEANS.len() - 1 - i) / MEANS.len();
        report.figure("as_it_should", name, f64::from(well), "jobs", Limit::Least(planned as f64));
        for ((what, times), bound) in ["notified", "went_on"].into_iter().zip(times).zip([NOTIFIED, RECOVERED]) {
            times.sort_by(f64::total_cmp);
            report.figure(&format!("{what}_p50"), name, quantile(times, 0.5), "ms", Limit::None);
            let most = Limit::Most(bound.as_secs_f64() * 1e3);
            report.figure(&format!("{what}_most"), name, quantile(times, 1.0), "ms", most);
        }
    }
    report.figure("time", "all jobs", began.elapsed().as_secs_f64(), "s", Limit::None);
    report.end()
}

/// Runs one job. Returns the milliseconds until each survivor of each death was notified, and until it continued.
fn carry_out(run: usize, random: &mut fastrand::Rng) -> Result<[Vec<f64>; 2], String> {
    let ranks = random.usize(3..=6);
    let (count, bytes) = (ranks.to_string(), SIZES[random.usize(0..SIZES.len())].to_string());
    let progress = PROGRESS[random.usize(0..PROGRESS.len())];
    let options = [&["-n", &count, "--on-death", "tell", "--progress", progress], MEANS[run % MEANS.len()].1].concat();
    let what = format!("{options:?}, {bytes} bytes");
    let job = Job::start(&format!("shrinks-{}-{run}", std::process::id()), &options, &["--bytes", &bytes])?;
    let members = job.ready("ready", ranks)?;
    let (mut living, mut times): (Vec<usize>, _) = ((0..ranks).collect(), [Vec::new(), Vec::new()]);
    while living.len() > 2 {
        let victim = living.remove(random.usize(0..living.len()));
        std::thread::sleep(Duration::from_micros(random.u64(0..40_000)));
        let killed = now();
        kill_process(members[victim], Signal::KILL).map_err(|error| error.to_string())?;
        let named = victim.to_string();
        let (mut unreported, mut expected, until) = (living.clone(), living.clone(), Instant::now() + 5 * RECOVERED);
        let (mut first_named, mut first_revoked) = (u128::MAX, u128::MAX);
        let take = |from: &mut Vec<usize>, rank: &str| {
            from.iter().position(|one| one.to_string() == rank).map(|place| from.remove(place)).is_some()
        };
        while !expected.is_empty() {
            let line = job.line(until).ok_or_else(|| format!("{what}: {expected:?} do not report {victim}"))?;
            let words: Vec<&str> = line.split(' ').collect();
            let at = words.last().and_then(|at| at.parse::<u128>().ok()).unwrap_or(u128::MAX);
            let kind = match words[..] {
                ["reported", rank, of, _] if of == named && take(&mut unreported, rank) => {
                    first_named = first_named.min(at);
                    0
                }
                ["reported", rank, "revoked", _] if take(&mut unreported, rank) => {
                    first_revoked = first_revoked.min(at);
                    0
                }
                ["on", rank, size, failed, _]
                    if size == living.len().to_string()
                        && failed == named
                        && !unreported.iter().any(|unreported| unreported.to_string() == rank)
                        && take(&mut expected, rank) =>
                {
                    1
                }
                _ => return Err(format!("{what}: unexpected output of a rank when {victim} is killed: {line:?}")),
            };
            times[kind].push(at.saturating_sub(killed) as f64 / 1e6);
        }
        if first_named == u128::MAX || first_revoked < first_named {
            return Err(format!("{what}: revoked before any rank was notified of the death of {victim}"));
        }
    }
    job.clean()?;
    Ok(times)
}

/// A rank: continues with fewer and fewer others.
fn member(bytes: usize) -> ExitCode {
    let world = World::join().expect("a world");
    let (own, mut on, mut round, all) = (world.rank(), None::<Communicator>, 0, Collective::all());
    loop {
        let now_on = on.as_ref().unwrap_or(&world);
        let mut rounds = Rounds::new(now_on, bytes);
        let trouble = loop {
            if round == WARM {
                println!("ready {own} {}", std::process::id());
            }
            let collective = all[round as usize % all.len()];
            round += 1;
            if let Err(trouble) = rounds.round(collective, round) {
                break trouble;
            }
        };
        match trouble {
            RoundError::Failed(CollectiveError::Missing { rank, .. }) => {
                println!("reported {own} {} {}", now_on.group().world_rank(rank).unwrap_or(rank), now());
            }
            RoundError::Failed(CollectiveError::Revoked) => println!("reported {own} revoked {}", now()),
            other => println!("strange {own} {other}"),
        }
        now_on.revoke();
        match now_on.shrink() {
            Ok(left) => {
                let failed: Vec<String> = now_on.failed().iter().map(|rank| rank.to_string()).collect();
                println!("on {own} {} {} {}", left.size(), failed.join(","), now());
                // All ranks continue with the same round.
                (on, round) = (Some(left), WARM + 1);
            }
            Err(error) => {
                println!("strange {own} {error}");
                return ExitCode::FAILURE;
            }
        }
    }
}
