//! Collectives over processes, by shared memory, datagrams and both: every operation, type and collective at odd
//! lengths on 2 to 5 ranks, in their order and backwards, and with buffers in rows, against a sequential oracle; over
//! messages once more by every algorithm that can be asked for; and misuse or slow ranks: typed errors, no hang, no
//! memory growth.

use core::time::Duration;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use rustix::process::{Signal, kill_process};
use unisono::collective::{CollectiveError, SystemOperation};
use unisono::environment::Override;
use unisono::environment::tuning::{COLLECTIVES, Carrier, SelectedBy, Tuning};
use unisono::{Rank, World};
use unisono_core::collective::{CollectiveKind, CollectiveSpec, Order};
use unisono_core::ids::Rank as Member;
use unisono_core::schedule::{Algorithm, algorithms};
use unisono_tests::collectives::oracle::Oracle;
use unisono_tests::collectives::selection_log::{LoggedSelection, SelectionLog};
use unisono_tests::collectives::strided::StridedOracle;
use unisono_tests::collectives::{Collective, Rounds};
use unisono_tests::harness::job::{Job, Leftovers};
use unisono_tests::harness::report::{Limit, Report};

/// Time limit where no rank waits for one that does something else.
const BOUND: Duration = Duration::from_secs(2);
/// How long a rank is stopped, or sleeps.
const PAUSE: Duration = Duration::from_secs(2);
const MILLION: u32 = 1_000_000;

/// Holds the collectives of processes against an oracle, and misuses them.
#[derive(Parser, Clone, Debug)]
struct Options {
    /// Most ranks.
    #[arg(long, default_value_t = 5)]
    ranks: u32,
    /// Only this means.
    #[arg(long)]
    means: Option<Means>,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
    /// A rank of a job.
    #[arg(long, hide = true)]
    part: Option<Part>,
    #[arg(long, hide = true)]
    mark: Option<String>,
}

/// How ranks reach each other.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Means {
    /// The shared memory of one node.
    Shm,
    /// Datagrams.
    Udp,
    /// Rings within each of two nodes, datagrams between them.
    Mixed,
    /// Datagrams of which some are lost, overtaken, doubled and changed.
    Faulty,
    /// Rings, and such datagrams.
    MixedFaulty,
}

impl Means {
    fn options(self) -> &'static str {
        match self {
            Self::Shm => "--device shm",
            Self::Udp => "--device udp",
            Self::Mixed => "--nodes 2",
            Self::Faulty => "--device udp --loss 5% --reorder 5% --dup 2% --corrupt 1% --seed 7",
            Self::MixedFaulty => "--nodes 2 --loss 5% --reorder 5% --seed 7",
        }
    }

    /// Time limit to detect a missing rank: a leaving rank is probed first.
    fn bound(self) -> Duration {
        if self == Self::Shm { BOUND } else { 2 * BOUND }
    }
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// Against the oracle.
    Oracle,
    /// Against the oracle; prints the selected algorithms.
    Algorithms,
    /// Rank 0 calls another collective than the others.
    Verbs,
    /// Rank 0 calls a barrier, the others do not.
    Barriers,
    /// Rank 0 gives another length.
    Lengths,
    /// The last rank names another root.
    Roots,
    /// Rank 0 names another operation.
    Operations,
    /// Rank 0 gives one buffer, the others two.
    Places,
    /// Rank 0 finishes while the others go on.
    Left,
    /// Several threads of each rank call collectives at once.
    Threads,
    /// Rank 1 is stopped for a while.
    Stopped,
    /// A million broadcasts, scatters, gathers and reductions, the last rank asleep for a second of each kind.
    Million,
    /// Many ranks on few processors.
    Crowd,
}

/// Each misuse: name, part, and number of ranks.
const MISUSES: [(&str, Part, u32); 8] = [
    ("different collectives", Part::Verbs, 3),
    ("a barrier on one rank", Part::Barriers, 3),
    ("different lengths", Part::Lengths, 3),
    ("different roots", Part::Roots, 3),
    ("different operations", Part::Operations, 2),
    ("in place on one rank", Part::Places, 2),
    ("a rank has left", Part::Left, 3),
    ("threads at once", Part::Threads, 2),
];

fn main() -> ExitCode {
    let options = Options::parse();
    match options.part {
        Some(part) => member(part),
        None => judge(&options),
    }
}

fn judge(options: &Options) -> ExitCode {
    let (before, began) = (Leftovers::now(), Instant::now());
    let mut report = Report::new(5, options.json);
    let chosen = |means: &Means| options.means.is_none_or(|one| one == *means);
    for means in Means::value_variants().iter().copied().filter(chosen) {
        against_oracle(means, options.ranks, &mut report);
        if matches!(means, Means::Udp | Means::Mixed) {
            by_algorithms(means, &mut report);
            without_schedules(means, &mut report);
            over_subgroups(means, &mut report);
        }
        misuses(means, &mut report);
        slow_ranks(means, &mut report);
    }
    let (files, shared) = before.left();
    report.figure("files_left", "/dev/shm", files as f64, "files", Limit::Most(0.0));
    report.figure("memory_left", "Shmem", shared, "MiB", Limit::Most(16.0));
    report.figure("time", "all", began.elapsed().as_secs_f64(), "s", Limit::None);
    report.end()
}

fn against_oracle(means: Means, most: u32, report: &mut Report) {
    for ranks in 2..=most {
        compare(means, ranks, &[], &format!("{means:?}, {ranks} ranks"), report);
    }
}

/// What no schedule executes: trees, multicast and remote writes.
fn without_schedules(means: Means, report: &mut Report) {
    for (verb, algorithm) in [
        ("barrier", "token-tree:degree=2"),
        ("allreduce", "token-tree:degree=2"),
        ("broadcast", "multicast"),
        ("alltoall", "rdma"),
        ("alltoall", "hybrid:k=2"),
    ] {
        let options = [format!("--{verb}"), algorithm.to_owned()];
        compare(means, 4, &options, &format!("{means:?}, {verb} by {algorithm}"), report);
    }
}

/// Every collective, composed of those of subgroups, on two and on three levels.
fn over_subgroups(means: Means, report: &mut Report) {
    let composed = COLLECTIVES.map(|(verb, ..)| verb);
    for (ranks, groups, levels) in [(6, "3", 2), (8, "4,2", 3)] {
        let of = format!("{means:?}, {ranks} ranks, groups of {groups}");
        let said = run_with(
            means,
            Part::Algorithms,
            ranks,
            &["--hierarchy".to_owned(), groups.to_owned()],
            Duration::from_secs(120),
        );
        let reports: Vec<OracleReport> = said.iter().flatten().map_while(|line| parse_oracle_report(line)).collect();
        if reports.len() as u32 != ranks {
            eprintln!("{of}: {said:?}");
        }
        let ran = |verb: &CollectiveKind| {
            let is_composed = |choice: &LoggedSelection| choice.collective == verb.name() && choice.levels == levels;
            !reports.is_empty() && reports.iter().all(|(.., choices)| choices.iter().any(is_composed))
        };
        composed.iter().filter(|verb| !ran(verb)).for_each(|verb| eprintln!("{of}: {} did not run", verb.name()));
        let ran = composed.iter().filter(|verb| ran(verb)).count();
        report.figure("ran_composed", &of, ran as f64, "collectives", Limit::Least(composed.len() as f64));
        let compared = reports.iter().map(|(compared, ..)| compared).sum();
        report.figure("compared", &of, compared, "results", Limit::Least(1e3 * f64::from(ranks)));
        let wrong = reports.iter().map(|(_, wrong, _)| wrong).sum::<f64>();
        let wrong = if reports.len() as u32 == ranks { wrong } else { f64::NAN };
        report.figure("wrong", &of, wrong, "results", Limit::Most(0.0));
    }
}

/// One job against the oracle.
fn compare(means: Means, ranks: u32, options: &[String], of: &str, report: &mut Report) {
    let said = run_with(means, Part::Oracle, ranks, options, Duration::from_secs(120));
    let (mut compared, mut wrong) = (0.0, f64::NAN);
    match said.as_ref().map(|lines| lines.iter().map(|line| count(line)).collect::<Option<Vec<_>>>()) {
        Ok(Some(counts)) => {
            compared = counts.iter().map(|(compared, _)| compared).sum();
            wrong = counts.iter().map(|(_, wrong)| wrong).sum();
        }
        other => eprintln!("{of}: {other:?}"),
    }
    report.figure("compared", of, compared, "results", Limit::Least(1e3 * f64::from(ranks)));
    report.figure("wrong", of, wrong, "results", Limit::Most(0.0));
}

/// Every collective by every algorithm: with two ports on three ranks where possible, and with the default on four.
fn by_algorithms(means: Means, report: &mut Report) {
    let most = COLLECTIVES.iter().map(|(verb, ..)| algorithms(*verb).len()).max().unwrap_or(0);
    let every: usize = COLLECTIVES.iter().map(|(verb, ..)| algorithms(*verb).len()).sum();
    let (mut ran, mut not_ran, mut compared, mut wrong) = (Vec::new(), 0, 0.0, 0.0);
    for asked in [Asked { ranks: 3, ports: Some(2), segments: 3 }, Asked { ranks: 4, ports: None, segments: 2 }] {
        for turn in 0..most {
            let of_verb = |verb| *algorithms(verb).iter().cycle().nth(turn).unwrap_or(&Algorithm::Ring);
            let options: Vec<String> = COLLECTIVES
                .iter()
                .flat_map(|(verb, option, _)| [format!("--{option}"), asked.text(of_verb(*verb))])
                .collect();
            let said = run_with(means, Part::Algorithms, asked.ranks, &options, Duration::from_secs(120));
            let reports: Option<Vec<OracleReport>> =
                said.as_ref().ok().and_then(|lines| lines.iter().map(|line| parse_oracle_report(line)).collect());
            let Some(reports) = reports else {
                eprintln!("{means:?}, {options:?}: {said:?}");
                wrong = f64::NAN;
                continue;
            };
            compared += reports.iter().map(|(compared, ..)| compared).sum::<f64>();
            wrong += reports.iter().map(|(_, wrong, _)| wrong).sum::<f64>();
            for (verb, ..) in COLLECTIVES.iter().filter(|(verb, ..)| asked.can_be(*verb, of_verb(*verb))) {
                let algorithm = of_verb(*verb);
                if reports.iter().all(|(.., choices)| choices.iter().any(|choice| asked.is(choice, *verb, algorithm))) {
                    ran.push((verb.name(), algorithm.name()));
                } else {
                    not_ran += 1;
                    eprintln!("{means:?}: {} by {} did not run", verb.name(), asked.text(algorithm));
                }
            }
        }
    }
    ran.sort_unstable();
    ran.dedup();
    let of = format!("{means:?}, by algorithm");
    report.figure("ran", &of, ran.len() as f64, "algorithms", Limit::Least(every as f64));
    report.figure("asked_for_and_not_run", &of, f64::from(not_ran), "algorithms", Limit::Most(0.0));
    report.figure("compared", &of, compared, "results", Limit::Least(1e4));
    report.figure("wrong", &of, wrong, "results", Limit::Most(0.0));
}

/// The requested selection of a job, without the algorithm.
#[derive(Clone, Copy, Debug)]
struct Asked {
    ranks: u32,
    ports: Option<u64>,
    segments: u64,
}

impl Asked {
    fn text(self, algorithm: Algorithm) -> String {
        let ports = self.ports.map_or_else(String::new, |ports| format!("k={ports},"));
        format!("{}:{ports}segments={}", algorithm.name(), self.segments)
    }

    /// Not all algorithms are for all numbers of ranks.
    fn can_be(self, verb: CollectiveKind, algorithm: Algorithm) -> bool {
        let (rank, root, size) = (Member(0), Member(0), self.ranks);
        let plan = CollectiveSpec {
            collective: verb,
            rank,
            size,
            root,
            bytes: 4092,
            grain: 4,
            order: Order::Any,
            in_place: false,
            reduction_id: 0,
        };
        let mut tuning = Tuning::default();
        let Ok(wanted) = Override::new(verb, &self.text(algorithm)) else { return false };
        tuning.set(wanted);
        tuning.decide(&plan, false, Carrier::Udp).is_ok_and(|decision| decision.selected_by == SelectedBy::Override)
    }

    fn is(self, choice: &LoggedSelection, verb: CollectiveKind, algorithm: Algorithm) -> bool {
        (choice.collective.as_str(), choice.algorithm.as_str()) == (verb.name(), algorithm.name())
            && self.ports.is_none_or(|ports| choice.ports == ports)
            && choice.segments == self.segments
    }
}

/// Compared results, wrong ones, and the logged selections.
type OracleReport = (f64, f64, Vec<LoggedSelection>);

fn parse_oracle_report(line: &str) -> Option<OracleReport> {
    let (counts, choices) = line.split_once(" by ")?;
    let (compared, wrong) = count(counts)?;
    Some((compared, wrong, choices.split(' ').map(LoggedSelection::read).collect::<Option<_>>()?))
}

fn misuses(means: Means, report: &mut Report) {
    for (name, part, ranks) in MISUSES {
        let since = Instant::now();
        let said = run(means, part, ranks, Duration::from_secs(20));
        let well = match &said {
            Ok(lines) => part == Part::Threads || lines.iter().any(|line| line.starts_with("error")),
            Err(_) => false,
        };
        let name = format!("{means:?}, {name}");
        if !well {
            eprintln!("{name}: {said:?}");
        }
        report.figure("typed_error", &name, f64::from(u8::from(well)), "jobs", Limit::Least(1.0));
        let slept = if part == Part::Threads { 3.0 } else { 1.0 };
        let limit = Limit::Most(slept + means.bound().as_secs_f64());
        report.figure("ended", &name, since.elapsed().as_secs_f64(), "s", limit);
    }
}

/// Ranks that are slow, and many of them.
fn slow_ranks(means: Means, report: &mut Report) {
    let well = stopped(means).inspect_err(|reason| eprintln!("{means:?}, stopped: {reason}")).is_ok();
    let of = format!("{means:?}, a rank stopped for 2 s");
    report.figure("nobody_missed", &of, f64::from(u8::from(well)), "jobs", Limit::Least(1.0));
    let grown = run(means, Part::Million, 3, Duration::from_secs(600));
    let grown = grown.inspect_err(|reason| eprintln!("{means:?}, million: {reason}")).unwrap_or_default();
    let most = grown.iter().map(|line| line.parse().unwrap_or(f64::NAN)).fold(-1.0, f64::max);
    let most = if grown.len() == 3 { most } else { f64::NAN };
    let limit = if means == Means::Shm { 256.0 } else { 1024.0 };
    report.figure("memory_grown", &format!("{means:?}, rooted ones past a sleeper"), most, "KiB", Limit::Most(limit));
    let crowd = run(means, Part::Crowd, 16, Duration::from_secs(120));
    let well = crowd.as_ref().is_ok_and(|lines| lines.iter().all(|line| line == "well"));
    if !well {
        eprintln!("{means:?}, crowd: {crowd:?}");
    }
    report.figure(
        "as_it_should",
        &format!("{means:?}, 16 ranks"),
        f64::from(u8::from(well)),
        "jobs",
        Limit::Least(1.0),
    );
}

/// Runs one job. Returns the last line of each rank.
fn run(means: Means, part: Part, ranks: u32, patience: Duration) -> Result<Vec<String>, String> {
    run_with(means, part, ranks, &[], patience)
}

fn run_with(
    means: Means,
    part: Part,
    ranks: u32,
    options: &[String],
    patience: Duration,
) -> Result<Vec<String>, String> {
    let (mark, number) = (format!("collectives-{}-{means:?}-{part:?}-{ranks}", std::process::id()), ranks.to_string());
    let name = part.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let mut job = start(means, &mark, &number, &name, options)?;
    let until = Instant::now() + patience;
    let mut said = Vec::new();
    while (said.len() as u32) < ranks {
        said.push(job.line(until).ok_or_else(|| format!("of {ranks} ranks {said:?} spoke"))?);
    }
    job.ended(until)?;
    job.clean()?;
    Ok(said)
}

fn start(means: Means, mark: &str, ranks: &str, part: &str, more: &[String]) -> Result<Job, String> {
    let given = ["-n", ranks, "--on-death", "silent"].into_iter().chain(means.options().split(' '));
    let options: Vec<&str> = given.chain(more.iter().map(String::as_str)).collect();
    Job::start(mark, &options, &["--part", part])
}

fn stopped(means: Means) -> Result<(), String> {
    let mut job = start(means, &format!("collectives-{}-{means:?}-stopped", std::process::id()), "3", "stopped", &[])?;
    let members = job.ready("ready", 3)?;
    kill_process(members[1], Signal::STOP).map_err(|error| error.to_string())?;
    std::thread::sleep(PAUSE);
    kill_process(members[1], Signal::CONT).map_err(|error| error.to_string())?;
    let until = Instant::now() + Duration::from_secs(20);
    for _ in 0..3 {
        match job.line(until) {
            Some(line) if line == "well" => {}
            other => return Err(format!("unexpected output of a rank: {other:?}")),
        }
    }
    job.ended(until)?;
    job.clean()
}

fn count(line: &str) -> Option<(f64, f64)> {
    let (compared, wrong) = line.split_once(' ')?;
    Some((compared.parse().ok()?, wrong.parse().ok()?))
}

/// A rank.
fn member(part: Part) -> ExitCode {
    let chosen = (part == Part::Algorithms).then(|| SelectionLog::listen().expect("nobody else listens"));
    let world = World::join().expect("a world");
    let rank = world.rank().0;
    let said = match part {
        Part::Oracle => match oracle(&world) {
            Ok((compared, wrong)) => format!("{compared} {wrong}"),
            Err(error) => error.to_string(),
        },
        Part::Algorithms => match oracle(&world) {
            Ok((compared, wrong)) => {
                let well = run_rounds(&world, |round| round < 5) == "well";
                let choices = chosen.map(SelectionLog::all).unwrap_or_default();
                let choices: Vec<String> = choices.iter().map(LoggedSelection::to_string).collect();
                format!("{compared} {} by {}", wrong + u64::from(!well), choices.join(" "))
            }
            Err(error) => error.to_string(),
        },
        Part::Verbs | Part::Barriers | Part::Lengths | Part::Roots | Part::Operations | Part::Places => {
            outcome_text(misuse(&world, part))
        }
        Part::Left if rank == 0 => "left".to_owned(),
        Part::Left => outcome_text((0..).try_for_each(|_| world.all_gather_into(&[rank], &mut [0; 3]))),
        Part::Threads => {
            threads(&world);
            "any".to_owned()
        }
        Part::Stopped => {
            let until = Instant::now() + PAUSE + Duration::from_secs(1);
            run_rounds(&world, |round| {
                if round == 1 {
                    println!("ready {rank} {}", std::process::id());
                }
                Instant::now() < until
            })
        }
        Part::Million => match million(&world) {
            Ok(grown) => grown.to_string(),
            Err(error) => error.to_string(),
        },
        Part::Crowd => run_rounds(&world, |round| round < 30),
    };
    println!("{said}");
    // Concurrent calls may have left the ranks at different collectives.
    if part == Part::Threads {
        std::process::exit(0);
    }
    // After an error there may be nothing to finish.
    let _ = world.finish();
    ExitCode::SUCCESS
}

/// On all ranks, and on all of them in reverse order: the ranks of one node use another communicator slot for that.
fn oracle(world: &World) -> Result<(u64, u64), Box<dyn core::error::Error>> {
    let backwards = world.split_by_color_with_key(0, -(world.rank().0 as i32))?.ok_or("no member")?;
    let whole = [Oracle::new(world).run()?, StridedOracle::new(world, 1).run()?];
    let other = [Oracle::new(&backwards).run()?, StridedOracle::new(&backwards, 2).run()?];
    let all = || whole.iter().chain(&other);
    Ok((all().map(|(compared, _)| compared).sum(), all().map(|(_, wrong)| wrong).sum()))
}

fn outcome_text(result: Result<(), CollectiveError>) -> String {
    match result {
        Ok(()) => "done".to_owned(),
        Err(error) => format!("error {error}"),
    }
}

/// Rounds of every collective, until rank 0 ends them.
fn run_rounds(world: &World, mut goes_on: impl FnMut(u32) -> bool) -> String {
    let mut all: Vec<_> = Collective::all().into_iter().map(|one| (one, Rounds::new(world, 3000))).collect();
    for round in 0.. {
        let mut more = [u8::from(goes_on(round))];
        if let Err(error) = world.broadcast_into(&mut more, Rank(0)) {
            return error.to_string();
        }
        if more == [0] {
            break;
        }
        for (collective, rounds) in &mut all {
            if let Err(trouble) = rounds.round(*collective, round) {
                return trouble.to_string();
            }
        }
    }
    "well".to_owned()
}

/// Repeats a misuse in which ranks call different operations.
fn misuse(world: &World, part: Part) -> Result<(), CollectiveError> {
    let (rank, size) = (world.rank().0, world.size() as usize);
    let odd = rank == 0;
    let (sum, mut all) = (SystemOperation::sum(), vec![0; 9 * size]);
    for _ in 0..100 {
        match part {
            Part::Verbs if odd => world.all_gather_into(&[rank; 4], &mut all[..4 * size])?,
            Part::Verbs => world.all_reduce_into(&[rank; 4], &mut all[..4], sum)?,
            Part::Barriers if odd => world.barrier()?,
            Part::Lengths => {
                let length = if odd { 4 } else { 9 };
                world.all_gather_into(&vec![rank; length], &mut all[..length * size])?;
            }
            Part::Roots => world.gather_into(&[rank; 9], &mut all, Rank(u32::from(rank == 2)))?,
            Part::Operations if odd => world.all_reduce_into(&[rank; 4], &mut all[..4], SystemOperation::max())?,
            Part::Places if odd => world.all_reduce_in_place(&mut all[..4], sum)?,
            _ => world.all_reduce_into(&[rank; 4], &mut all[..4], sum)?,
        }
    }
    Ok(())
}

/// Any result is fine, except a crash.
fn threads(world: &World) {
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || {
                let (mut rounds, all) = (Rounds::new(world, 2000), Collective::all());
                // It may wait for ever for a message that another thread received.
                std::thread::spawn(|| {
                    std::thread::sleep(PAUSE);
                    println!("any");
                    std::process::exit(0);
                });
                for round in 0..2000 {
                    // Any result will do.
                    let _ = rounds.round(all[(round as usize + thread) % all.len()], round);
                }
            });
        }
    });
}

/// Kilobytes by which this process has grown most in many rooted collectives of a kind: a million, or in all where
/// there are datagrams. The sleeping rank is the one that others wait for: a leaf of broadcasts and scatters, the root
/// of gathers and reductions.
fn million(world: &World) -> Result<f64, CollectiveError> {
    let (rank, size) = (world.rank(), world.size());
    let shares_memory = (0..size).all(|other| other == rank.0 || world.shares_memory_with(Rank(other)));
    let rounds = if shares_memory { MILLION } else { MILLION / 4 };
    let (first, last) = (Rank(0), Rank(size - 1));
    let mut most = 0.0_f64;
    for kind in 0..4 {
        let mut before = 0.0;
        for i in 0..rounds {
            if i == rounds / 25 {
                before = resident();
            }
            if rank == last && i == rounds / 2 {
                std::thread::sleep(PAUSE / 2);
            }
            rooted(world, kind, u64::from(i), if kind < 2 { first } else { last })?;
        }
        most = most.max(resident() - before);
    }
    Ok(most)
}

/// The round `i` of a rooted collective of this kind, whose result is checked.
fn rooted(world: &World, kind: u32, i: u64, root: Rank) -> Result<(), CollectiveError> {
    let (rank, size) = (world.rank(), world.size());
    let all = [i, i + 1, i + 2];
    let own = [i + u64::from(rank.0)];
    let mut value = [if rank == root { i } else { 0 }];
    let mut values = [0; 3];
    let (given, taken): (&[u64], &mut [u64]) = if rank == root { (&all, &mut values) } else { (&[], &mut []) };
    match kind {
        0 => {
            world.broadcast_into(&mut value, root)?;
            assert_eq!(value, [i], "broadcast value");
        }
        1 => {
            world.scatter_into(given, &mut value, root)?;
            assert_eq!(value, own, "scattered value");
        }
        2 => {
            world.gather_into(&own, taken, root)?;
            assert!(rank != root || values == all, "gathered values");
        }
        _ => {
            let sum = u64::from(size) * i + u64::from(size * (size - 1) / 2);
            world.reduce_into(&own, taken.get_mut(..1).unwrap_or_default(), SystemOperation::sum(), root)?;
            assert!(rank != root || values[0] == sum, "reduced value");
        }
    }
    Ok(())
}

/// Resident memory of this process, in KiB.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let found = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok());
    found.unwrap_or(f64::NAN)
}
