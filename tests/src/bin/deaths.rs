//! Bar 4: real processes die, or are cut off, while four ranks wait for a message; every other rank must be notified.
//!
//! Each run is a job of four ranks in network namespaces of its own, joined by a bridge; several labs work in parallel.
//! Needs root, `ip` and `unshare`.

use core::time::Duration;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use clap::{Parser, ValueEnum};
use rustix::process::{Pid, Signal, kill_process};
use unisono::{Failure, Rank, Tag, World};
use unisono_tests::harness::report::{Limit, Report, quantile};

const RANKS: usize = 4;
const HOSTS: [&str; RANKS] = ["a", "b", "c", "d"];
/// Tag of the message that all ranks wait for.
const AWAITED: Tag = Tag(1);
/// Tag of the start messages.
const READY: Tag = Tag(2);
/// Where a lab's bridge is.
const SET_UP: &str = "set -e
mount -t tmpfs tmpfs /run && mkdir /run/netns
ip link set lo up
ip link add name hub type bridge && ip addr add 10.78.0.254/24 dev hub && ip link set hub up
i=1
for host in a b c d; do
    ip netns add $host
    ip link add name port-$host type veth peer name cable netns $host
    ip link set port-$host master hub && ip link set port-$host up
    ip -n $host addr add 10.78.0.$i/24 dev cable
    ip -n $host link set lo up && ip -n $host link set cable up
    i=$((i + 1))
done
exec \"$@\"";

/// Kills ranks and cuts links, and measures the time until the others are notified.
#[derive(Parser, Clone, Debug)]
struct Options {
    /// Kills, and cuts, in each progress mode.
    #[arg(long, default_value_t = 25)]
    runs: usize,
    /// Jobs at a time.
    #[arg(long, default_value_t = 6)]
    labs: usize,
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
    /// A part of this program in another process.
    #[arg(long, hide = true)]
    part: Option<Part>,
    /// Runs of a lab: mode, fate, victim and delay, comma-separated.
    #[arg(long, hide = true)]
    run: Vec<String>,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Lab,
    Member,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Killed,
    Cut,
    /// For less than the bound: no rank may report a failure.
    Stopped,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    mode: &'static str,
    fate: Fate,
    victim: usize,
    delay: Duration,
}

const MODES: [&str; 3] = ["engine", "thread", "hybrid"];
const FATES: [(&str, Fate); 3] = [("killed", Fate::Killed), ("cut", Fate::Cut), ("stopped", Fate::Stopped)];
/// How long a rank is stopped.
const PAUSE: Duration = Duration::from_millis(1200);

impl Run {
    fn to_text(self) -> String {
        let fate = FATES.iter().find(|(_, fate)| *fate == self.fate).map_or("", |(name, _)| name);
        format!("{},{fate},{},{}", self.mode, self.victim, self.delay.as_millis())
    }

    fn from_text(text: &str) -> Option<Self> {
        let mut words = text.split(',');
        let (mode, fate) = (words.next()?, words.next()?);
        Some(Self {
            mode: MODES.into_iter().find(|name| *name == mode)?,
            fate: FATES.into_iter().find(|(name, _)| *name == fate)?.1,
            victim: words.next()?.parse().ok()?,
            delay: Duration::from_millis(words.next()?.parse().ok()?),
        })
    }

    /// Silence that counts as death here, and the bound that `docs/using.md` states for it.
    fn bound(self) -> Duration {
        let silence = Duration::from_secs(if self.mode == "engine" { 3 } else { 2 });
        silence * 3 / 2 + Duration::from_millis(500)
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    match options.part {
        Some(Part::Member) => member(),
        Some(Part::Lab) => lab(&options),
        None => judge(&options),
    }
}

/// Plans the runs, distributes them to labs, and judges the results.
fn judge(options: &Options) -> ExitCode {
    let mut random = fastrand::Rng::with_seed(options.seed);
    let mut runs = Vec::new();
    for mode in MODES {
        for (_, fate) in FATES {
            for _ in 0..if fate == Fate::Stopped { 1 } else { options.runs } {
                let delay = Duration::from_millis(random.u64(0..500));
                runs.push(Run { mode, fate, victim: random.usize(0..RANKS), delay });
            }
        }
    }
    random.shuffle(&mut runs);
    let labs: Vec<Child> = (0..options.labs.max(1))
        .map(|lab| {
            let own = runs.iter().skip(lab).step_by(options.labs.max(1)).map(|run| format!("--run={}", run.to_text()));
            let mut command = Command::new("unshare");
            command.args(["--net", "--mount", "sh", "-c", SET_UP, "sh"]);
            command.arg(std::env::current_exe().expect("this program")).args(["--part", "lab"]).args(own);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("unshare starts")
        })
        .collect();
    let mut reports: Vec<(Run, String)> = Vec::new();
    for lab in labs {
        let output = lab.wait_with_output().expect("the lab ends");
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        reports.extend(lines.lines().filter_map(|line| {
            let (run, outcome) = line.split_once(' ')?;
            Some((Run::from_text(run)?, outcome.to_owned()))
        }));
    }
    let mut report = Report::new(4, options.json);
    for mode in MODES {
        for (name, fate) in FATES {
            let of = format!("{mode} {name}");
            let these: Vec<&(Run, String)> =
                reports.iter().filter(|(run, _)| run.mode == mode && run.fate == fate).collect();
            let planned = runs.iter().filter(|run| run.mode == mode && run.fate == fate).count();
            let well = these.iter().filter(|(_, outcome)| outcome.starts_with("ok")).count();
            for (run, outcome) in these.iter().filter(|(_, outcome)| !outcome.starts_with("ok")) {
                eprintln!("{run:?}: {outcome}");
            }
            report.figure("as_it_should", &of, well as f64, "runs", Limit::Least(planned as f64));
            let mut times: Vec<f64> = these
                .iter()
                .flat_map(|(_, outcome)| outcome.split(' ').skip(1).filter_map(|word| word.parse().ok()))
                .collect();
            times.sort_by(f64::total_cmp);
            if let (Some(most), Some((run, _))) = (times.last(), these.first()) {
                report.figure("heard_p50", &of, quantile(&times, 0.5), "s", Limit::None);
                report.figure("heard_most", &of, *most, "s", Limit::Most(run.bound().as_secs_f64()));
            }
        }
    }
    report.end()
}

/// Executes runs in network namespaces of its own.
fn lab(options: &Options) -> ExitCode {
    for text in &options.run {
        let run = Run::from_text(text).expect("a run");
        let outcome = carry_out(run).unwrap_or_else(|reason| format!("bad: {reason}"));
        println!("{text} {outcome}");
    }
    ExitCode::SUCCESS
}

/// Runs one job. Returns "ok" and the seconds until each survivor was notified.
fn carry_out(run: Run) -> Result<String, String> {
    for host in HOSTS {
        ip(&["-n", host, "link", "set", "cable", "up"])?;
    }
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let unisono = own.with_file_name("unisono");
    let hosts = HOSTS.map(|host| format!("{host}:1")).join(",");
    let mut command = Command::new(unisono);
    command.args(["run", "--rsh", "ip netns exec", "--hosts", &hosts, "--device", "udp", "--on-death", "silent"]);
    command.args(["--progress", run.mode]);
    if run.mode == "engine" {
        command.args(["--silence", "3s"]);
    }
    command.arg("--").arg(&own).args(["--part", "member"]);
    let mut job = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let job = job.as_mut().map_err(|error| error.to_string())?;
    let lines = listen(job);
    let outcome = watch(run, &lines);
    let _ = job.kill();
    let _ = job.wait();
    outcome
}

fn listen(job: &mut Child) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    let stdout = job.stdout.take().expect("piped");
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

fn watch(run: Run, lines: &mpsc::Receiver<String>) -> Result<String, String> {
    let mut members = [0_i32; RANKS];
    for _ in 0..RANKS {
        let line = lines.recv_timeout(Duration::from_secs(20)).map_err(|_| "the job does not start")?;
        let words: Vec<&str> = line.split(' ').collect();
        let ["ready", rank, pid] = words[..] else { return Err(format!("unexpected output of a rank: {line:?}")) };
        let rank: usize = rank.parse().map_err(|_| "no rank")?;
        *members.get_mut(rank).ok_or("no such rank")? = pid.parse().map_err(|_| "no process")?;
    }
    std::thread::sleep(run.delay);
    let victim = Pid::from_raw(members[run.victim]).ok_or("no process")?;
    let began = now();
    let mut expected: Vec<usize> = (0..RANKS).filter(|rank| *rank != run.victim).collect();
    match run.fate {
        Fate::Killed => kill_process(victim, Signal::KILL).map_err(|error| error.to_string())?,
        Fate::Cut => {
            ip(&["-n", HOSTS[run.victim], "link", "set", "cable", "down"])?;
            // The cut-off rank loses all others; its output does not use the network.
        }
        Fate::Stopped => {
            kill_process(victim, Signal::STOP).map_err(|error| error.to_string())?;
            std::thread::sleep(PAUSE);
            kill_process(victim, Signal::CONT).map_err(|error| error.to_string())?;
            // No rank reports a failure until some time after the bound.
            return match lines.recv_timeout(run.bound()) {
                Err(mpsc::RecvTimeoutError::Timeout) => Ok("ok".into()),
                Err(mpsc::RecvTimeoutError::Disconnected) => Err("the job ended".into()),
                Ok(line) => Err(format!("unexpected output of a rank: {line:?}")),
            };
        }
    }
    let mut outcome = String::from("ok");
    let deadline = Instant::now() + run.bound() * 2;
    while !expected.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        let line = lines.recv_timeout(left).map_err(|_| format!("{expected:?} were not notified"))?;
        let words: Vec<&str> = line.split(' ').collect();
        let ["notified", rank, of, at] = words[..] else {
            return Err(format!("unexpected output of a rank: {line:?}"));
        };
        let (Ok(rank), Ok(of), Ok(at)) = (rank.parse::<usize>(), of.parse::<usize>(), at.parse::<u128>()) else {
            return Err(format!("unexpected output of a rank: {line:?}"));
        };
        if let Some(place) = expected.iter().position(|expected| *expected == rank) {
            expected.remove(place);
            if of != run.victim {
                return Err(format!("rank {rank} reports that {of} failed"));
            }
            outcome += &format!(" {:.3}", at.saturating_sub(began) as f64 / 1e9);
        }
    }
    Ok(outcome)
}

/// A rank: waits for a message from anyone that never comes.
fn member() -> ExitCode {
    let world = World::join().expect("a world");
    let rank = world.rank().0;
    // All ranks have exchanged messages before the failure.
    for other in (0..world.size()).filter(|other| *other != rank) {
        world.send(&[rank], Rank(other), READY).expect("sent");
    }
    for other in (0..world.size()).filter(|other| *other != rank) {
        world.receive_into(&mut [0_u32], Rank(other), READY).expect("arrives");
    }
    println!("ready {rank} {}", std::process::id());
    match world.receive_any_into(&mut [0_u8], Some(AWAITED)) {
        Err(Failure::PeerFailed(of)) => println!("notified {rank} {of} {}", now()),
        other => println!("strange {rank} {other:?}"),
    }
    // It keeps answering: the others must be notified of that death only.
    loop {
        let _ = world.receive_any_into(&mut [0_u8], Some(AWAITED));
    }
}

/// Nanoseconds since 1970: the same clock in all processes.
fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let status = Command::new("ip").args(arguments).status().map_err(|error| error.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("ip {arguments:?}: {status}")) }
}
