//! Random programs of messages and collectives on random communicators, on 3 to 9 ranks, over every device and with
//! faults, each compared with its serial execution. A finding prints the command that repeats it.

use core::time::Duration;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use unisono::World;
use unisono_tests::differential::{self, Program};
use unisono_tests::harness::job::{Job, Leftovers};
use unisono_tests::harness::report::{Limit, Report};

/// Time limit of a job.
const PATIENCE: Duration = Duration::from_secs(60);

/// The devices, their faults, and the groups that collectives are composed of.
const MEANS: [(&str, &str); 12] = [
    ("shm", "--device shm"),
    ("udp", "--device udp"),
    ("mixed", "--nodes 2"),
    ("three nodes", "--nodes 3"),
    ("faulty", "--device udp --loss 3% --reorder 5% --dup 3% --corrupt 1%"),
    ("mixed, faulty", "--nodes 2 --loss 3% --reorder 5% --dup 3%"),
    ("thread", "--nodes 2 --progress thread"),
    ("hybrid", "--device udp --progress hybrid --loss 1%"),
    ("subgroups", "--nodes 2 --hierarchy host"),
    ("slots", "--nodes 2 --hierarchy host:slots"),
    ("slots of leaders", "--nodes 2 --caches 2 --hierarchy host:slots,cache:slots"),
    ("nested, faulty", "--device udp --hierarchy 4,2 --loss 3% --reorder 5% --dup 3%"),
];

/// With `--adapters`.
const ADAPTERS: [(&str, &str); 3] = [
    ("adapters", "--device verbs --queues library"),
    ("adapters, posted directly", "--device verbs --queues raw"),
    ("adapters, hybrid", "--device verbs --progress hybrid"),
];

/// Compares random programs with their serial execution.
#[derive(Parser, Clone, Debug)]
struct Options {
    /// Programs to run.
    #[arg(long, default_value_t = 40)]
    runs: u64,
    /// Run programs for this long instead.
    #[arg(long = "for", value_parser = humantime::parse_duration)]
    duration: Option<Duration>,
    /// Seed of the first program; each further one takes the next.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Steps of a program.
    #[arg(long, default_value_t = 60)]
    steps: usize,
    /// Over the adapters of this machine.
    #[arg(long)]
    adapters: bool,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
    /// A rank of a job.
    #[arg(long, hide = true)]
    member: bool,
    #[arg(long, hide = true)]
    mark: Option<String>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.member { member(&options) } else { judge(&options) }
}

fn judge(options: &Options) -> ExitCode {
    let (before, began) = (Leftovers::now(), Instant::now());
    let mut report = Report::new(7, options.json);
    let (mut programs, mut compared, mut findings) = (0_u64, 0_u64, 0_u64);
    let goes_on = |programs: u64| match options.duration {
        Some(duration) => began.elapsed() < duration,
        None => programs < options.runs,
    };
    while goes_on(programs) {
        let seed = options.seed + programs;
        let all = if options.adapters { &ADAPTERS[..] } else { &MEANS };
        let (name, means) = all[(seed % all.len() as u64) as usize];
        let ranks = 3 + fastrand::Rng::with_seed(seed).u32(0..7);
        match run(seed, ranks, means, options.steps) {
            Ok(results) => compared += results,
            Err(reason) => {
                findings += 1;
                eprintln!("{name}, {ranks} ranks: {reason}");
                let adapters = if options.adapters { " --adapters" } else { "" };
                eprintln!("again: differential --seed {seed} --runs 1 --steps {}{adapters}", options.steps);
            }
        }
        programs += 1;
    }
    let (files, shared) = before.left();
    report.figure("programs", "all", programs as f64, "programs", Limit::Least(1.0));
    report.figure("compared", "all", compared as f64, "results", Limit::Least(100.0 * programs as f64));
    report.figure("findings", "all", findings as f64, "programs", Limit::Most(0.0));
    report.figure("files_left", "/dev/shm", files as f64, "files", Limit::Most(0.0));
    report.figure("memory_left", "Shmem", shared, "MiB", Limit::Most(16.0));
    report.figure("time", "all", began.elapsed().as_secs_f64(), "s", Limit::None);
    report.end()
}

/// Runs one program. Returns the number of compared results.
fn run(seed: u64, ranks: u32, means: &str, steps: usize) -> Result<u64, String> {
    let (mark, number) = (format!("differential-{}-{seed}", std::process::id()), ranks.to_string());
    let (seed, steps) = (seed.to_string(), steps.to_string());
    let mut options: Vec<&str> = vec!["-n", &number];
    options.extend(means.split(' '));
    if means.contains('%') {
        options.extend(["--seed", &seed]);
    }
    let mut job = Job::start(&mark, &options, &["--member", "--seed", &seed, "--steps", &steps])?;
    let until = Instant::now() + PATIENCE;
    let mut compared = 0;
    for done in 0..ranks {
        let line = job.line(until).ok_or_else(|| format!("{done} of {ranks} ranks have ended"))?;
        compared += line.parse::<u64>().map_err(|_| line)?;
    }
    job.ended(until)?;
    job.clean()?;
    Ok(compared)
}

/// A rank.
fn member(options: &Options) -> ExitCode {
    let world = World::join().expect("a world");
    let program = Program::draw(options.seed, world.size(), options.steps);
    match differential::run(&world, &program) {
        Ok(compared) => println!("{compared}"),
        Err(reason) => println!("rank {}: {reason}", world.rank()),
    }
    // After an error there may be nothing to finish.
    let _ = world.finish();
    ExitCode::SUCCESS
}
