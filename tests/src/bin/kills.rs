//! A random rank is killed at a random moment while all loop over a collective in one of its forms, or over one-sided
//! operations, of the World or of a communicator of all ranks backwards; every survivor must report it and the
//! collective, and nothing may be left behind. Also while ranks join, and while they finish. By shared memory, by
//! datagrams, also over two rails of which one is cut, and by both.

use core::time::Duration;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use rustix::process::{Pid, Signal, kill_process};
use unisono::collective::CollectiveError;
use unisono::{Communicator, Rank, World};
use unisono_core::collective::CollectiveKind;
use unisono_tests::collectives::{Collective, RoundError, Rounds};
use unisono_tests::harness::job::{Job, Leftovers, now, processes};
use unisono_tests::harness::report::{Limit, Report, quantile};
use unisono_tests::windows::{WindowRoundError, WindowRounds};

/// Time limit for every survivor to report a death that the system or the launcher notices, as `docs/using.md` states.
const BOUND: Duration = Duration::from_millis(1000);
/// Time limit to detect a death by silence: 1.5 × 2 s + 0.5 s.
const SILENCE: Duration = Duration::from_millis(3500);
/// Time that ranks have to come together, where one of them never comes.
const ASSEMBLY: Duration = Duration::from_secs(2);
/// Of eight ranks on two nodes, pairs and their leaders.
const LEADERS: &str = "4:slots,2:slots";
const SIZES: [usize; 4] = [8, 4 << 10, 64 << 10, 1 << 20];
const PROGRESS: [&str; 3] = ["engine", "thread", "hybrid"];
/// What survivors say they were doing with a window.
const WINDOWS: &str = "windows";
/// Rounds before anybody is killed, and of a clean job.
const WARM: u32 = 3;
const CLEAN: u32 = 40;
/// A clean job that takes longer hangs; on an emulated processor one takes up to 26 s.
const HANG: Duration = Duration::from_secs(60);
/// Between two clean jobs.
const EVERY: usize = 10;

/// Kills ranks of jobs, and measures the time until the others report it.
#[derive(Parser, Clone, Debug)]
struct Options {
    /// How ranks reach each other.
    #[arg(long, default_value = "shm")]
    means: Means,
    /// What ranks do.
    #[arg(long, default_value = "collectives")]
    work: Work,
    /// Datagrams go over two rails, of which most jobs lose one for a while.
    #[arg(long)]
    rails: bool,
    /// Kills amid their work; a tenth as many while ranks join, and while they finish.
    #[arg(long, default_value_t = 200)]
    runs: usize,
    /// Jobs at a time.
    #[arg(long, default_value_t = 1)]
    labs: usize,
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
    /// A part of this program in another process.
    #[arg(long, hide = true)]
    part: Option<Part>,
    /// Windows, if it is none.
    #[arg(long, hide = true)]
    collective: Option<String>,
    #[arg(long, hide = true, default_value_t = 8)]
    bytes: usize,
    /// Of a communicator of its own.
    #[arg(long, hide = true)]
    backwards: bool,
    /// Survivors finish when this exists.
    #[arg(long, hide = true)]
    until: Option<PathBuf>,
    #[arg(long, hide = true)]
    mark: Option<String>,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Means {
    /// The shared memory of one node.
    Shm,
    /// Datagrams.
    Udp,
    /// Rings within each of two nodes, datagrams between them.
    Nodes,
    /// Adapters.
    Verbs,
}

/// What ranks do when one of them is killed.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    /// All collectives in turn.
    Collectives,
    /// Locks, puts, gets, updates and fences of a window.
    Windows,
    /// Broadcasts by multicast, and barriers and allreduces by token trees that release by multicast.
    Multicast,
}

impl Work {
    /// The collectives that ranks loop over, if any.
    fn collectives(self) -> Vec<Collective> {
        let mut all = Collective::all();
        match self {
            Self::Collectives => {}
            Self::Windows => all.clear(),
            Self::Multicast => all.retain(|one| {
                use CollectiveKind::{Allreduce, Barrier, Broadcast};
                matches!(one.kind, Allreduce | Barrier | Broadcast)
            }),
        }
        all
    }

    const fn options(self) -> &'static [&'static str] {
        match self {
            Self::Collectives | Self::Windows => &[],
            Self::Multicast => &[
                "--broadcast",
                "multicast",
                "--barrier",
                "token-tree:release=multicast",
                "--allreduce",
                "token-tree:release=multicast",
            ],
        }
    }
}

impl Means {
    const fn options(self) -> [&'static str; 2] {
        match self {
            Self::Shm => ["--device", "shm"],
            Self::Udp => ["--device", "udp"],
            Self::Nodes => ["--nodes", "2"],
            Self::Verbs => ["--device", "verbs"],
        }
    }
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// Continues until it fails.
    Loop,
    /// Finishes after some rounds.
    Finish,
}

/// When a rank is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moment {
    Amid,
    Joining,
    Finishing,
    /// Never: the next job is unaffected.
    Never,
}

const MOMENTS: [(&str, Moment); 4] = [
    ("amid their work", Moment::Amid),
    ("while joining", Moment::Joining),
    ("while finishing", Moment::Finishing),
    ("clean job afterwards", Moment::Never),
];

#[derive(Clone, Copy, Debug)]
struct Run {
    number: usize,
    means: Means,
    work: Work,
    moment: Moment,
    /// `None`: one-sided operations.
    collective: Option<Collective>,
    bytes: usize,
    backwards: bool,
    /// The subgroups of which collectives over messages are composed.
    hierarchy: Option<&'static str>,
    /// Datagrams go over two rails.
    rails: bool,
    cut: Option<Cut>,
    ranks: usize,
    policy: &'static str,
    progress: &'static str,
    victim: usize,
    delay: Duration,
    /// The survivors finish; otherwise the launcher is killed, too.
    finishes: bool,
}

/// One of two rails carries nothing for a while.
#[derive(Clone, Copy, Debug)]
struct Cut {
    rail: u8,
    /// Milliseconds from a rank's start, and of the cut.
    after: u32,
    lasts: u32,
}

impl Cut {
    fn draw(random: &mut fastrand::Rng) -> Self {
        Self { rail: random.u8(..2), after: random.u32(..200), lasts: random.u32(20..1500) }
    }

    fn option(self) -> String {
        let Self { rail, after, lasts } = self;
        format!("{rail}@{after}+{lasts}")
    }
}

impl Run {
    /// Between nodes without a notification, silence is the only sign.
    fn bound(self) -> Duration {
        if self.means == Means::Shm || self.policy == "tell" { BOUND } else { SILENCE }
    }

    /// What survivors say they were doing.
    fn doing(self) -> &'static str {
        self.collective.map_or(WINDOWS, |collective| collective.kind.name())
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    match options.part {
        Some(part) => member(&options, part),
        None => judge(&options),
    }
}

fn plan(options: &Options) -> Vec<Run> {
    let mut random = fastrand::Rng::with_seed(options.seed);
    let (mut runs, all) = (Vec::new(), options.work.collectives());
    let few = options.runs.div_ceil(10);
    // Of four; to wait for silence takes time.
    let silent = if options.means == Means::Shm { 2 } else { 1 };
    for (count, moment) in [(options.runs, Moment::Amid), (few, Moment::Joining), (few, Moment::Finishing)] {
        for i in 0..count {
            let hierarchy = match (options.means, random.u8(..6)) {
                (Means::Shm, _) | (_, 0..3) => None,
                (Means::Nodes, 5) => Some(LEADERS),
                _ => Some("2:slots"),
            };
            let ranks = if hierarchy == Some(LEADERS) { 8 } else { random.usize(2..=4) };
            let longest = if moment == Moment::Finishing { 8_000 } else { 40_000 };
            runs.push(Run {
                number: 0,
                means: options.means,
                work: options.work,
                moment,
                // A prime stride, so that few runs cover many kinds, too.
                collective: (i * 7).checked_rem(all.len()).and_then(|place| all.get(place).copied()),
                bytes: SIZES[i / all.len().min(options.runs / SIZES.len() + 1).max(1) % SIZES.len()],
                backwards: moment != Moment::Joining && random.bool(),
                hierarchy,
                rails: options.rails,
                cut: (options.rails && random.u8(..4) > 0).then(|| Cut::draw(&mut random)),
                ranks,
                policy: if random.u8(0..4) < silent { "silent" } else { "tell" },
                progress: PROGRESS[random.usize(0..PROGRESS.len())],
                victim: random.usize(0..ranks),
                delay: Duration::from_micros(random.u64(0..longest)),
                finishes: random.bool(),
            });
        }
    }
    random.shuffle(&mut runs);
    let with_clean = |(i, run): (usize, Run)| {
        let clean = Run { moment: Moment::Never, ..run };
        [Some(run), (i % EVERY == EVERY - 1).then_some(clean)]
    };
    let all = runs.into_iter().enumerate().flat_map(with_clean).flatten();
    all.enumerate().map(|(number, run)| Run { number, ..run }).collect()
}

fn judge(options: &Options) -> ExitCode {
    let (runs, before, began) = (plan(options), Leftovers::now(), Instant::now());
    let labs = options.labs.max(1);
    let reports: Vec<(Run, Result<Vec<f64>, String>)> = std::thread::scope(|scope| {
        let lab = |lab: usize| {
            let own: Vec<Run> = runs.iter().skip(lab).step_by(labs).copied().collect();
            scope.spawn(move || own.into_iter().map(|run| (run, carry_out(run))).collect::<Vec<_>>())
        };
        let labs: Vec<_> = (0..labs).map(lab).collect();
        labs.into_iter().flat_map(|lab| lab.join().unwrap_or_default()).collect()
    });
    let mut report = Report::new(6, options.json);
    for (name, moment) in MOMENTS {
        let planned = runs.iter().filter(|run| run.moment == moment).count();
        let these: Vec<_> = reports.iter().filter(|(run, _)| run.moment == moment).collect();
        let well = these.iter().filter(|(_, outcome)| outcome.is_ok()).count();
        for (run, outcome) in &these {
            if let Err(reason) = outcome {
                eprintln!("{run:?}: {reason}");
            }
        }
        report.figure("as_it_should", name, well as f64, "runs", Limit::Least(planned as f64));
        if moment != Moment::Amid {
            continue;
        }
        for bound in [BOUND, SILENCE] {
            let bounded = || these.iter().filter(|(run, _)| run.bound() == bound);
            let mut times: Vec<f64> =
                bounded().filter_map(|(_, outcome)| outcome.as_ref().ok()).flatten().copied().collect();
            if bounded().next().is_none() {
                continue;
            }
            times.sort_by(f64::total_cmp);
            let of = format!("{name}, {}", if bound == BOUND { "notified" } else { "by silence" });
            report.figure("notified_p50", &of, quantile(&times, 0.5), "ms", Limit::None);
            report.figure("notified_p99", &of, quantile(&times, 0.99), "ms", Limit::None);
            report.figure("notified_most", &of, quantile(&times, 1.0), "ms", Limit::Most(bound.as_secs_f64() * 1e3));
        }
    }
    let (files, shared) = before.left();
    report.figure("files_left", "/dev/shm", files as f64, "files", Limit::Most(0.0));
    report.figure("memory_left", "Shmem", shared, "MiB", Limit::Most(16.0));
    report.figure("time", "all runs", began.elapsed().as_secs_f64(), "s", Limit::None);
    report.end()
}

/// Runs one job. Returns the milliseconds until each survivor reported.
fn carry_out(run: Run) -> Result<Vec<f64>, String> {
    let mark = format!("kills-{}-{}", std::process::id(), run.number);
    let until = std::env::temp_dir().join(&mark);
    let outcome = in_job(run, &mark, &until);
    // It may not have been made.
    let _ = std::fs::remove_file(&until);
    outcome
}

fn in_job(run: Run, mark: &str, until: &std::path::Path) -> Result<Vec<f64>, String> {
    let (ranks, bytes) = (run.ranks.to_string(), run.bytes.to_string());
    let assembly = format!("{}s", ASSEMBLY.as_secs());
    let mut options = vec!["-n", &ranks, "--on-death", run.policy, "--progress", run.progress];
    options.extend(run.means.options());
    options.extend(run.work.options());
    options.extend(run.hierarchy.iter().flat_map(|hierarchy| ["--hierarchy", *hierarchy]));
    if run.rails {
        options.extend(["--rails", "2"]);
    }
    let cut = run.cut.map(Cut::option);
    options.extend(cut.iter().flat_map(|cut| ["--cut", cut]));
    if run.moment == Moment::Joining {
        options.extend(["--assembly", &assembly]);
    }
    let part = if matches!(run.moment, Moment::Amid | Moment::Joining) { "loop" } else { "finish" };
    let path = until.to_string_lossy();
    let collective = run.collective.map(|collective| format!("--collective={collective}"));
    let mut arguments = vec!["--part", part, "--bytes", &bytes, "--until", &path];
    arguments.extend(collective.as_deref());
    arguments.extend(run.backwards.then_some("--backwards"));
    let mut job = Job::start(mark, &options, &arguments)?;
    let reports = match run.moment {
        Moment::Amid => amid(run, &job)?,
        Moment::Joining => joining(run, &job, mark)?,
        Moment::Finishing => finishing(run, &mut job)?,
        Moment::Never => unharmed(run, &mut job)?,
    };
    if matches!(run.moment, Moment::Amid | Moment::Joining) && run.finishes {
        std::fs::write(until, []).map_err(|error| error.to_string())?;
        job.ended(Instant::now() + Duration::from_secs(10)).map_err(|reason| format!("after the reports: {reason}"))?;
    }
    job.clean()?;
    Ok(reports)
}

fn amid(run: Run, job: &Job) -> Result<Vec<f64>, String> {
    let members = job.ready("ready", run.ranks)?;
    std::thread::sleep(run.delay);
    let began = now();
    kill_process(members[run.victim], Signal::KILL).map_err(|error| error.to_string())?;
    let reports = collect_reports(run, job, Instant::now() + 5 * run.bound(), |words| match *words {
        ["reported", rank, of, name, at] => {
            if of != run.victim.to_string() || name != run.doing() {
                return Err(format!("rank {rank} reports rank {of} missing in {name}"));
            }
            Ok((rank.parse().ok(), at.parse::<u128>().map_or(f64::NAN, |at| at.saturating_sub(began) as f64 / 1e6)))
        }
        _ => Err(format!("unexpected output of a rank: {:?}", words.join(" "))),
    })?;
    Ok(reports)
}

/// Collects the reports of the survivors.
fn collect_reports(
    run: Run,
    job: &Job,
    until: Instant,
    mut understand: impl FnMut(&[&str]) -> Result<(Option<usize>, f64), String>,
) -> Result<Vec<f64>, String> {
    let mut expected: Vec<usize> = (0..run.ranks).filter(|rank| *rank != run.victim).collect();
    let mut reports = Vec::new();
    while !expected.is_empty() {
        let line = job.line(until).ok_or_else(|| format!("{expected:?} report nothing"))?;
        let words: Vec<&str> = line.split(' ').collect();
        if matches!(words[..], ["ready", ..]) {
            continue;
        }
        let (rank, time) = understand(&words)?;
        if let Some(place) = expected.iter().position(|expected| Some(*expected) == rank) {
            expected.remove(place);
            reports.push(time);
        }
    }
    Ok(reports)
}

/// Kills a rank that has just started. The others join without it, or report why they cannot.
fn joining(run: Run, job: &Job, mark: &str) -> Result<Vec<f64>, String> {
    let victim = await_rank(run, mark)?;
    std::thread::sleep(run.delay);
    kill_process(victim, Signal::KILL).map_err(|error| error.to_string())?;
    let until = Instant::now() + ASSEMBLY + Duration::from_secs(3);
    let reports = collect_reports(run, job, until, |words| match *words {
        ["reported", rank, of, ..] if of == run.victim.to_string() => Ok((rank.parse().ok(), 0.0)),
        ["refused", rank, ..] => Ok((rank.parse().ok(), 0.0)),
        _ => Err(format!("unexpected output of a rank: {:?}", words.join(" "))),
    });
    // Or the launcher ends the job.
    reports.or_else(|reason| if job.is_output_closed() { Ok(Vec::new()) } else { Err(reason) })
}

fn await_rank(run: Run, mark: &str) -> Result<Pid, String> {
    let (wanted, until) = (format!("UNISONO_RANK={}", run.victim), Instant::now() + Duration::from_secs(10));
    while Instant::now() < until {
        for process in processes(mark) {
            let all = std::fs::read(format!("/proc/{}/environ", process.as_raw_nonzero())).unwrap_or_default();
            if all.split(|byte| *byte == 0).any(|word| word == wanted.as_bytes()) {
                return Ok(process);
            }
        }
    }
    Err("the victim does not start".into())
}

fn finishing(run: Run, job: &mut Job) -> Result<Vec<f64>, String> {
    let members = job.ready("ready", run.ranks)?;
    std::thread::sleep(run.delay);
    // It may be gone already.
    let _ = kill_process(members[run.victim], Signal::KILL);
    // A rank that misses another one leaves, and may then be missed itself.
    let mut gone = vec![run.victim.to_string()];
    collect_reports(run, job, Instant::now() + Duration::from_secs(5), |words| match *words {
        ["finished", rank] => Ok((rank.parse().ok(), 0.0)),
        ["reported", rank, of, ..] if gone.iter().any(|gone| gone == of) => {
            gone.push(rank.to_owned());
            Ok((None, 0.0))
        }
        _ => Err(format!("unexpected output of a rank: {:?}", words.join(" "))),
    })?;
    job.ended(Instant::now() + Duration::from_secs(5))?;
    Ok(Vec::new())
}

fn unharmed(run: Run, job: &mut Job) -> Result<Vec<f64>, String> {
    let mut finished = 0;
    let until = Instant::now() + HANG;
    while finished < run.ranks {
        match job.line(until) {
            Some(line) if line.starts_with("finished") => finished += 1,
            // The launcher forwards the output of ranks in any order.
            Some(line) if line.starts_with("ready") => {}
            other => return Err(format!("unexpected output of a rank of a clean job: {other:?}")),
        }
    }
    let status = job.ended(Instant::now() + Duration::from_secs(5))?;
    if status.success() { Ok(Vec::new()) } else { Err(format!("{status}")) }
}

/// A rank.
fn member(options: &Options, part: Part) -> ExitCode {
    let number = std::env::var("UNISONO_RANK").unwrap_or_default();
    let world = match World::join() {
        Ok(world) => world,
        Err(error) => {
            println!("refused {number} {error}");
            return ExitCode::FAILURE;
        }
    };
    let rank = world.rank();
    let backwards = || world.split_by_color_with_key(0, -(rank.0 as i32)).expect("a communicator").expect("a member");
    let other = options.backwards.then(backwards);
    let on: &Communicator = other.as_ref().unwrap_or(&world);
    let (windows, failed) = match options.collective.as_deref() {
        Some(name) => (None, loop_collectives(options, part, on, Collective::named(name).expect("a collective"))),
        None => match WindowRounds::new(on, options.bytes) {
            Ok(rounds) => {
                let failed = loop_windows(part, &rounds);
                (Some(rounds), failed)
            }
            Err(error) => (None, Some(trouble(error.into()))),
        },
    };
    match failed {
        Some(Ok((of, work))) => {
            let of = on.group().world_rank(of).unwrap_or(of);
            println!("reported {rank} {of} {work} {}", now());
        }
        Some(Err(other)) => println!("strange {rank} {other}"),
        None => {}
    }
    // Stays alive until all have reported, so that no other rank is missed.
    while part == Part::Loop && options.until.as_ref().is_some_and(|path| !path.exists()) {
        std::thread::sleep(Duration::from_millis(1));
        // Others may still read its window.
        if windows.is_some() {
            world.progress();
        }
    }
    drop(windows);
    match world.finish() {
        Ok(()) => println!("finished {rank}"),
        Err(failure) => println!("strange {rank} {failure}"),
    }
    ExitCode::SUCCESS
}

/// The failed rank and what was being done, or another failure.
type Trouble = Result<(Rank, String), String>;

fn say_ready(round: u32) {
    if round == WARM {
        println!("ready {} {}", std::env::var("UNISONO_RANK").unwrap_or_default(), std::process::id());
    }
}

fn loop_collectives(options: &Options, part: Part, on: &Communicator, collective: Collective) -> Option<Trouble> {
    let mut rounds = Rounds::new(on, options.bytes);
    for round in (0..).take_while(|round| part == Part::Loop || *round < CLEAN) {
        say_ready(round);
        if let Err(reason) = rounds.round(collective, round) {
            // The buffers of a failed collective belong to this rank again.
            rounds.scramble();
            return Some(match reason {
                RoundError::Failed(CollectiveError::Missing { rank, collective, .. }) => {
                    Ok((rank, collective.to_string()))
                }
                other => Err(other.to_string()),
            });
        }
    }
    None
}

fn loop_windows(part: Part, rounds: &WindowRounds) -> Option<Trouble> {
    for round in (0..).take_while(|round| part == Part::Loop || *round < CLEAN) {
        say_ready(round);
        if let Err(error) = rounds.round(round) {
            return Some(trouble(error));
        }
    }
    None
}

fn trouble(error: WindowRoundError) -> Trouble {
    error.missing().map(|rank| (rank, WINDOWS.to_owned())).ok_or(error.to_string())
}
