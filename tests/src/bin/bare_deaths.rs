//! Bar 4 of bare metal: an image that is one of the ranks is killed, stops, faults, or writes garbage while two
//! processes do collectives with it, or exchange messages. They end with a typed error within the bound; none crashes,
//! panics or waits for ever. The same holds for the image when one of the processes is killed.
//!
//! `cargo build --release && cargo run --release -p unisono-tests --bin bare_deaths`. Requirements: docs/bare-metal.md.

use core::convert::Infallible;
use core::time::Duration;
use std::fs;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use rustix::process::{Pid, Signal, kill_process};
use unisono::collective::CollectiveError;
use unisono::{Failure, World, collective::SystemOperation};
use unisono_launcher::{BareMetalRanks, proxy::HEARTBEAT};
use unisono_node::self_check::collectives;
use unisono_tests::bare_metal::build;
use unisono_tests::bare_metal::message_exchange::{ExchangeBuffers, ExchangeError as LetterTrouble};
use unisono_tests::harness::job::{Job, now};
use unisono_tests::harness::report::{Limit, Report, quantile};

/// Time limit for both processes to end: some failures are detected only by a stopped heartbeat.
const BOUND: Duration = HEARTBEAT.saturating_add(Duration::from_secs(1));
/// Processes of a job, besides the image.
const PROCESSES: usize = 2;

/// Breaks images in every way, and watches how the other ranks end.
#[derive(Parser, Clone, Debug)]
struct Options {
    /// Jobs whose image, or what runs it, is killed or stops.
    #[arg(long, default_value_t = 50)]
    kills: usize,
    /// Jobs of each kind of garbage.
    #[arg(long, default_value_t = 10)]
    garbage: usize,
    /// Jobs with collectives of both kinds for each job that exchanges messages.
    #[arg(long, default_value_t = 2)]
    per_messages: usize,
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
    /// A rank of a job.
    #[arg(long, hide = true)]
    member: bool,
    #[arg(long, hide = true)]
    messages: bool,
    #[arg(long, hide = true)]
    mark: Option<String>,
    /// Words of the image.
    #[arg(hide = true)]
    words: Vec<String>,
}

/// The injected failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum InjectedFailure {
    /// A signal to the emulator.
    Emulator(Signal),
    /// A signal to the proxy process of the image.
    StandIn,
    /// A signal to another rank, which ends the image.
    Process,
    /// A fault that the image injects itself.
    Image(&'static str),
}

/// Traffic of the ranks meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Traffic {
    Collectives,
    Messages,
}

const KILLS: [(&str, InjectedFailure); 8] = [
    ("emulator killed", InjectedFailure::Emulator(Signal::KILL)),
    ("emulator killed", InjectedFailure::Emulator(Signal::KILL)),
    ("emulator stopped", InjectedFailure::Emulator(Signal::STOP)),
    ("stand-in killed", InjectedFailure::StandIn),
    ("panic", InjectedFailure::Image("panic")),
    ("fault", InjectedFailure::Image("fault")),
    ("stack overflow", InjectedFailure::Image("overflow")),
    ("heart stopped", InjectedFailure::Image("hang")),
];
const GARBAGE: [(&str, InjectedFailure); 2] = [
    ("garbage, own words", InjectedFailure::Image("own")),
    ("garbage, every word", InjectedFailure::Image("everywhere")),
];

fn main() -> ExitCode {
    let options = Options::parse();
    if options.member {
        return member(options.messages);
    }
    match build(1) {
        Ok(machine) => judge(&options, &machine),
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn judge(options: &Options, machine: &BareMetalRanks) -> ExitCode {
    let (mut random, mut report) = (fastrand::Rng::with_seed(options.seed), Report::new(4, options.json));
    let mut figures =
        |name: &str, amid: Traffic, troubles: &mut dyn Iterator<Item = (&'static str, InjectedFailure)>| {
            let (mut times, mut runs, mut well, mut stopped) = (Vec::new(), 0, 0, Vec::new());
            for (what, trouble) in troubles {
                runs += 1;
                let (delay, seed) = (random.u64(0..20_000), random.u32(..));
                match carry_out(machine, amid, trouble, delay, seed) {
                    Ok(after) => {
                        well += 1;
                        let heart =
                            matches!(trouble, InjectedFailure::Emulator(Signal::STOP) | InjectedFailure::Image("hang"));
                        if heart { &mut stopped } else { &mut times }.extend(after);
                    }
                    Err(reason) => eprintln!("{what}, after {delay} us, seed {seed}: {reason}"),
                }
            }
            report.figure("as_it_should", name, f64::from(well), "runs", Limit::Least(f64::from(runs)));
            let bound = BOUND.as_secs_f64() * 1e3;
            for (of, mut times) in [(name.to_owned(), times), (format!("{name}, by its heart"), stopped)] {
                times.sort_by(f64::total_cmp);
                if !times.is_empty() {
                    report.figure("ended_p50", &of, quantile(&times, 0.5), "ms", Limit::None);
                    report.figure("ended_most", &of, quantile(&times, 1.0), "ms", Limit::Most(bound));
                }
            }
        };
    let per = options.per_messages.max(1);
    figures("killed", Traffic::Collectives, &mut KILLS.into_iter().cycle().take(options.kills));
    figures("killed amid messages", Traffic::Messages, &mut KILLS.into_iter().cycle().take(options.kills / per));
    let processes = core::iter::repeat_n(("process killed", InjectedFailure::Process), options.garbage);
    figures("process killed amid messages", Traffic::Messages, &mut processes.into_iter());
    for one in GARBAGE {
        figures(one.0, Traffic::Collectives, &mut core::iter::repeat_n(one, options.garbage));
        let name = format!("{}, amid messages", one.0);
        figures(&name, Traffic::Messages, &mut core::iter::repeat_n(one, options.garbage / per));
    }
    report.end()
}

/// One job. Returns after how many milliseconds its processes ended.
fn carry_out(
    machine: &BareMetalRanks,
    amid: Traffic,
    trouble: InjectedFailure,
    delay: u64,
    seed: u32,
) -> Result<Vec<f64>, String> {
    let mark = format!("bare-deaths-{}-{seed}", std::process::id());
    let image = machine.image.display().to_string();
    let options =
        ["-n", "3", "--bare-metal", "1", "--on-death", "silent", "--image", &image, "--emulator", &machine.emulator];
    let (kind, delays) = match trouble {
        InjectedFailure::Image(kind) => (kind, delay),
        InjectedFailure::Emulator(_) | InjectedFailure::StandIn | InjectedFailure::Process => ("none", 1 << 31),
    };
    let words = [format!("kind={kind}"), format!("delay={delays}"), format!("seed={seed}")];
    let [kind, delays, seed] = &words;
    let common = ["--member", "program=trouble", kind, delays, seed];
    let mut job = match amid {
        Traffic::Collectives => Job::start(&mark, &options, &common)?,
        Traffic::Messages => Job::start(&mark, &options, &[&common[..], &["--messages", "amid=messages"]].concat())?,
    };
    let until = Instant::now() + Duration::from_secs(20);
    let (mut ready, mut ended, mut struck, mut first) = (0, Vec::new(), None, None);
    // Output of the image takes longer than the processes' ends.
    while ended.len() < PROCESSES || struck.is_none() {
        let line = job.line(until).ok_or_else(|| format!("{} processes do not end", PROCESSES - ended.len()))?;
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["ready", rank, process] => {
                ready += 1;
                first = if rank == "0" { process.parse().ok().and_then(Pid::from_raw) } else { first };
                if ready == PROCESSES && !matches!(trouble, InjectedFailure::Image(_)) {
                    std::thread::sleep(Duration::from_micros(delay));
                    struck = Some(now());
                    let (emulator, stand_in) = emulator_processes(&mark)?;
                    let (process, signal) = match trouble {
                        InjectedFailure::Emulator(signal) => (emulator, signal),
                        InjectedFailure::Process => (first.ok_or("rank 0 has no process")?, Signal::KILL),
                        _ => (stand_in, Signal::KILL),
                    };
                    kill_process(process, signal).map_err(|error| error.to_string())?;
                }
            }
            ["strikes"] => struck = Some(now()),
            ["ended", _, at, "typed"] => ended.push(at.parse::<u128>().unwrap_or(u128::MAX)),
            // The image is the second one to end.
            [said, ..] if trouble == InjectedFailure::Process && is_typed(said) => ended.push(now()),
            ["ended", ..] => return Err(format!("unexpected output of a process: {line:?}")),
            // The image's own error.
            _ => {}
        }
    }
    job.ended(Instant::now() + Duration::from_secs(5))?;
    job.clean()?;
    let struck = struck.ok_or("no failure was injected")?;
    Ok(ended.into_iter().map(|at| at.saturating_sub(struck) as f64 / 1e6).collect())
}

/// Whether an image reports that a rank failed.
fn is_typed(said: &str) -> bool {
    ["Messages(Message(Failed(", "Group(Rank("].iter().any(|error| said.starts_with(error))
}

/// The emulator of the job with this mark, and the proxy process of its image.
fn emulator_processes(mark: &str) -> Result<(Pid, Pid), String> {
    let (mut emulator, mut stand_in) = (None, None);
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw)
        else {
            continue;
        };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        if line.contains(mark) {
            let mut words = line.split('\0');
            let first = words.next().unwrap_or_default();
            if first.contains("qemu-system") {
                emulator = Some(process);
            } else if words.next() == Some("stand-in") {
                stand_in = Some(process);
            }
        }
    }
    emulator.zip(stand_in).ok_or_else(|| "there is no emulator".to_owned())
}

/// A process: goes on until something is wrong with a rank. Wrong data are to be expected; what comes then is of
/// interest.
fn member(messages: bool) -> ExitCode {
    let world = match World::join() {
        Ok(world) => world,
        Err(error) => {
            // The image may fail before every rank has seen its slot.
            println!("ended nobody {} typed", now());
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let own = world.rank();
    let mut buffers = if messages { ExchangeBuffers::new(&world).ok() } else { None };
    for round in 0.. {
        if round == 2 {
            println!("ready {own} {}", std::process::id());
        }
        let done = match &mut buffers {
            Some(buffers) => exchange(&world, buffers, round),
            None => one(&world, round),
        };
        done.unwrap_or_else(|error| match end(&world, error.into()) {});
    }
    ExitCode::SUCCESS
}

/// Ends a process without leaving the job: the others have to notice.
fn end(world: &World, End { reason, typed }: End) -> Infallible {
    println!("ended {} {} {}", world.rank(), now(), if typed { "typed" } else { "otherwise" });
    eprintln!("{reason}");
    std::process::exit(3)
}

/// How a process has ended.
struct End {
    reason: String,
    typed: bool,
}

impl From<CollectiveError> for End {
    fn from(error: CollectiveError) -> Self {
        let typed = matches!(
            error,
            CollectiveError::Missing { .. }
                | CollectiveError::Corrupt { .. }
                | CollectiveError::Corrupted
                | CollectiveError::Disagrees { .. }
                | CollectiveError::Ended(_)
        );
        Self { reason: error.to_string(), typed }
    }
}

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        let typed = matches!(failure, Failure::PeerFailed(_) | Failure::PeerFinished(_) | Failure::Corrupted(_));
        Self { reason: failure.to_string(), typed }
    }
}

/// A burst of messages, and a barrier. Where messages are wrong, barriers have to fail.
fn exchange(world: &World, buffers: &mut ExchangeBuffers, burst: u32) -> Result<(), CollectiveError> {
    buffers.exchange(world, burst, |trouble| match trouble {
        LetterTrouble::Message(failure) => end(world, failure.into()),
        LetterTrouble::Wrong { .. } => loop {
            world.barrier().unwrap_or_else(|error| match end(world, error.into()) {});
        },
    });
    world.barrier()
}

fn one(world: &World, round: u32) -> Result<(), CollectiveError> {
    let (rank, ranks) = (world.rank().0, world.size());
    world.barrier()?;
    let root = round % ranks;
    let mut data = collectives::contribution(round, root);
    world.broadcast_into(&mut data, unisono::Rank(root))?;
    let mut data = collectives::contribution(round, rank);
    world.all_reduce_in_place(&mut data, SystemOperation::sum())?;
    let mut data = collectives::contribution(round, rank).map(|number| number as f32);
    world.all_reduce_in_place(&mut data, SystemOperation::sum())
}
