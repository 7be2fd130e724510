//! Bar 2 of rails: eight processes on four hosts with two rails of limited rate each, against one rail; rails of
//! different rates; a rail that is cut amid allreduces, or whose link goes down and comes back.
//!
//! The hosts are those of [`Lab`].

use core::time::Duration;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use clap::{Parser, ValueEnum};
use unisono::collective::SystemOperation;
use unisono::{RailStats, Rank, World};
use unisono_tests::harness::lab::Lab;
use unisono_tests::harness::report::{Limit, Report, quantile};

const HOSTS: [&str; 4] = ["a", "b", "c", "d"];
/// Ranks of each host, and of all.
const PER_HOST: u32 = 2;
const RANKS: usize = PER_HOST as usize * HOSTS.len();
/// Bursts that each host sends over each rail, at least.
const BURSTS: usize = 100;
/// Where ranks write their statistics.
const STATS: &str = "/run/stats";
/// Measures two rails against one.
#[derive(Parser, Clone, Debug)]
struct Options {
    /// Bits per second of each rail, in millions.
    #[arg(long, default_value_t = 50.0)]
    rate: f64,
    /// Bytes of each rank's part.
    #[arg(long, default_values_t = [4096, 16384, 65536])]
    bytes: Vec<usize>,
    /// Measurements of each figure, of which the median counts.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Only these figures.
    #[arg(long)]
    only: Vec<Figure>,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
    /// A part of this program in another process.
    #[arg(long, hide = true)]
    part: Option<Part>,
    /// Rails of the job in a lab, and what is done to the second one.
    #[arg(long, hide = true, default_value = "")]
    rails: String,
    #[arg(long, hide = true, default_value = "nothing")]
    fate: Fate,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Figure {
    /// Gather, allgather and alltoall over two equal rails against one.
    Equal,
    /// Two rails of 3:1 against one of their sum.
    Uneven,
    /// A rail is cut without a word amid allreduces.
    Cut,
    /// A rail's link goes down at one host, and comes back.
    Link,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Lab,
    Collectives,
    Allreduces,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Nothing,
    Cut,
    Flap,
}

const OPERATIONS: [&str; 3] = ["gather", "allgather", "alltoall"];
/// How long allreduces run before and after the second rail's fate.
const PHASE: Duration = Duration::from_secs(3);
/// Numbers of an allreduce.
const NUMBERS: usize = 4096;

fn main() -> ExitCode {
    let options = Options::parse();
    match options.part {
        Some(Part::Lab) => lab(&options),
        Some(Part::Collectives) => collectives(&options),
        Some(Part::Allreduces) => allreduces(),
        None => judge(&options),
    }
}

fn judge(options: &Options) -> ExitCode {
    let mut report = Report::new(2, options.json);
    let wanted = |figure| options.only.is_empty() || options.only.contains(&figure);
    let rate = options.rate * 1e6;
    let (one, two) = (Lab::network(0), [0, 1].map(Lab::network).join(","));
    if wanted(Figure::Equal) {
        let single = times(&mut report, options, [rate; 2], &one, "one rail");
        let double = times(&mut report, options, [rate; 2], &two, "two rails");
        for ((of, bytes, single), (.., double)) in single.iter().zip(&double) {
            let limit = if *bytes >= 16384 { Limit::Least(1.9) } else { Limit::None };
            report.figure("two_rails_of_one", &format!("{of} {bytes}"), single / double, "", limit);
            report.figure("time_two_rails", &format!("{of} {bytes}"), double / 1e6, "ms", Limit::None);
        }
    }
    if wanted(Figure::Uneven) {
        // One rail as fast as both.
        let sum = times(&mut report, options, [2.0 * rate; 2], &one, "their sum");
        let uneven = times(&mut report, options, [1.5 * rate, 0.5 * rate], &two, "3 to 1");
        for ((of, bytes, sum), (.., uneven)) in sum.iter().zip(&uneven) {
            let limit = if *bytes >= 16384 { Limit::Least(0.95) } else { Limit::None };
            report.figure("rails_3_to_1_of_sum", &format!("{of} {bytes}"), sum / uneven, "", limit);
        }
    }
    for (figure, fate, name) in [(Figure::Cut, Fate::Cut, "cut"), (Figure::Link, Fate::Flap, "link")] {
        if !wanted(figure) {
            continue;
        }
        let (alone, hit) = (run_allreduces(rate, &one, Fate::Nothing), run_allreduces(rate, &two, fate));
        let (Some(alone), Some(hit)) = (alone, hit) else {
            report.figure("jobs_that_ended_well", name, 0.0, "of 2", Limit::Least(2.0));
            continue;
        };
        let moment = hit.moment.unwrap_or(0.0);
        let (before, after): (Vec<_>, Vec<_>) = hit.ends.iter().copied().partition(|end| *end < moment);
        let (before, after) = (steps(&before), steps(&after));
        let pause = after.iter().copied().fold(0.0, f64::max);
        report.figure("allreduce_before", name, quantile(&before, 0.5) * 1e3, "ms", Limit::None);
        report.figure("allreduce_over_one_rail", name, quantile(&steps(&alone.ends), 0.5) * 1e3, "ms", Limit::None);
        report.figure("deaths", name, hit.deaths, "", Limit::Least(1.0));
        let (limit, downs) =
            if fate == Fate::Cut { (Limit::Most(3.0), Limit::None) } else { (Limit::None, Limit::Least(1.0)) };
        report.figure("link_downs", name, hit.downs, "", downs);
        report.figure("longest_step_after", name, pause * 1e3, "ms", Limit::None);
        let pauses = (pause - quantile(&after, 0.5)) / hit.timeout;
        report.figure("pause", name, pauses, "timeouts", limit);
        if fate == Fate::Cut {
            let left = quantile(&steps(&alone.ends), 0.5) / quantile(&after, 0.5);
            report.figure("rate_after_of_one_rail", name, left, "", Limit::Least(0.95));
        } else {
            report.figure("rails_alive_at_the_end", name, hit.alive, "of 16", Limit::Least(2.0 * RANKS as f64));
        }
    }
    report.end()
}

/// The sorted times between ends.
fn steps(ends: &[f64]) -> Vec<f64> {
    let mut steps: Vec<f64> = ends.windows(2).map(|pair| pair[1] - pair[0]).collect();
    steps.sort_by(f64::total_cmp);
    if steps.is_empty() { vec![f64::NAN] } else { steps }
}

/// The median nanoseconds of each operation and size. Reports how often rails of a job died, and which part of its
/// segments was sent again.
fn times(
    report: &mut Report,
    options: &Options,
    rates: [f64; 2],
    rails: &str,
    name: &str,
) -> Vec<(String, usize, f64)> {
    let mut all: Vec<(String, usize, Vec<f64>)> = Vec::new();
    let (mut deaths, mut resent) = (Vec::new(), Vec::new());
    for _ in 0..options.runs.max(1) {
        let bytes = options.bytes.iter().flat_map(|bytes| ["--bytes".to_owned(), bytes.to_string()]);
        let mut lab = start_lab(rates, rails, Part::Collectives, Fate::Nothing, bytes);
        for line in lines(&mut lab) {
            let words: Vec<&str> = line.split(' ').collect();
            if let ["counted", died, first, again] = words[..]
                && let (Ok(died), Ok(first), Ok(again)) = (died.parse(), first.parse::<f64>(), again.parse::<f64>())
            {
                deaths.push(died);
                resent.push(again / first);
            }
            let ["time", of, bytes, ns] = words[..] else { continue };
            let (Ok(bytes), Ok(ns)) = (bytes.parse::<usize>(), ns.parse::<f64>()) else { continue };
            match all.iter_mut().find(|(known, size, _)| known == of && *size == bytes) {
                Some((.., times)) => times.push(ns),
                None => all.push((of.to_owned(), bytes, vec![ns])),
            }
        }
        let _ = lab.wait();
    }
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        quantile(&times, 0.5)
    };
    report.figure("rail_deaths_per_job", name, median(deaths), "", Limit::None);
    report.figure("sent_again", name, median(resent), "of segments", Limit::None);
    all.into_iter().map(|(of, bytes, times)| (of, bytes, median(times))).collect()
}

/// What a job of allreduces reported.
struct Allreduces {
    /// Seconds since 1970 at which allreduces ended, and the rail met its fate.
    ends: Vec<f64>,
    moment: Option<f64>,
    /// The longest retransmission timeout of any rank before that, in seconds.
    timeout: f64,
    /// Over all ranks.
    deaths: f64,
    downs: f64,
    alive: f64,
}

fn run_allreduces(rate: f64, rails: &str, fate: Fate) -> Option<Allreduces> {
    let mut lab = start_lab([rate; 2], rails, Part::Allreduces, fate, []);
    let mut found = Allreduces { ends: Vec::new(), moment: None, timeout: 0.0, deaths: 0.0, downs: 0.0, alive: 0.0 };
    for line in lines(&mut lab) {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default().to_owned();
        let numbers: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
        match (name.as_str(), &numbers[..]) {
            ("ends", ends) => found.ends = ends.to_vec(),
            ("moment", [moment]) => found.moment = Some(*moment),
            ("timeout", [timeout]) => found.timeout = *timeout,
            ("rails", [deaths, downs, alive]) => {
                (found.deaths, found.downs) = (found.deaths + deaths, found.downs + downs);
                found.alive += alive;
            }
            _ => {}
        }
    }
    lab.wait().is_ok_and(|status| status.success()).then_some(found)
}

/// Makes the hosts, in namespaces that end with the job, and runs the job.
fn start_lab(rates: [f64; 2], rails: &str, part: Part, fate: Fate, more: impl IntoIterator<Item = String>) -> Child {
    let mut command = Lab { hosts: &HOSTS, rates: &rates }.command();
    command.arg(std::env::current_exe().expect("this program")).args(["--part", "lab", "--rails", rails]);
    command.args(["--fate", &name_of(&fate)]).args(more);
    command.env("LAB_PART", name_of(&part));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("unshare starts")
}

fn name_of(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn lines(of: &mut Child) -> impl Iterator<Item = String> + use<> {
    BufReader::new(of.stdout.take().expect("piped")).lines().map_while(Result::ok)
}

/// Runs a job on the hosts, and lets the second rail meet its fate when the job says that it is under way.
fn lab(options: &Options) -> ExitCode {
    let own = std::env::current_exe().expect("this program");
    let mut command = Command::new(own.with_file_name("unisono"));
    let places = Lab { hosts: &HOSTS, rates: &[] }.places(PER_HOST);
    command.args(["run", "--rsh", Lab::RSH, "--hosts", &places, "--device", "auto", "--gso", "off"]);
    command.args(["--stats-file", STATS]);
    command.args(["--gather", "direct", "--allgather", "direct", "--alltoall", "direct", "--rails", &options.rails]);
    command.arg("--").arg(&own).args(["--part", &std::env::var("LAB_PART").unwrap_or_default()]);
    command.args(options.bytes.iter().flat_map(|bytes| ["--bytes".to_owned(), bytes.to_string()]));
    let mut job =
        command.env_remove("LAB_PART").stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts");
    for line in lines(&mut job) {
        println!("{line}");
        if line != "under way" || options.fate == Fate::Nothing {
            continue;
        }
        std::thread::sleep(PHASE);
        println!("moment {}", now());
        let set = |arguments: &[&str]| Command::new("ip").args(arguments).status().is_ok_and(|done| done.success());
        let is_done = if options.fate == Fate::Cut {
            set(&["link", "set", "hub1", "down"])
        } else {
            let down = set(&["-n", "b", "link", "set", "rail1", "down"]);
            std::thread::sleep(PHASE / 3);
            down && set(&["-n", "b", "link", "set", "rail1", "up"])
        };
        assert!(is_done, "ip sets a link");
    }
    let ended = job.wait();
    let stats = std::fs::read_to_string(STATS).unwrap_or_default();
    let sum = |counter: &str| sum_of(&stats, counter);
    println!("counted {} {} {}", sum("deaths"), sum("first"), sum("resent_nack") + sum("resent_probe"));
    match ended {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// The sum of a counter over all ranks and rails.
fn sum_of(stats: &str, counter: &str) -> u64 {
    let before = format!("\"{counter}\":");
    let values = stats.split(&before).skip(1);
    values.filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()).sum()
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// A rank: measures the collectives.
fn collectives(options: &Options) -> ExitCode {
    let world = World::join().expect("a world");
    let (rank, size) = (world.rank(), world.size() as usize);
    let root = Rank(0);
    for of in OPERATIONS {
        for bytes in options.bytes.iter().copied() {
            // Each host sends this per round.
            let sent = if of == "gather" { bytes * 2 } else { bytes * 2 * (size - 2) };
            let rounds = (2 * BURSTS * Lab::BURST).div_ceil(sent).clamp(5, 100);
            let parts: Vec<u8> = (0..bytes * size).map(|i| (i * 7 + rank.0 as usize) as u8).collect();
            let part = &parts[..bytes];
            let mut all = vec![0_u8; bytes * size];
            let mut call = || match of {
                "gather" => world.gather_into(part, &mut all, root).expect("a gather"),
                "allgather" => world.all_gather_into(part, &mut all).expect("an allgather"),
                _ => world.all_to_all_into(&parts, &mut all).expect("an alltoall"),
            };
            call();
            world.barrier().expect("a barrier");
            let start = Instant::now();
            for _ in 0..rounds {
                call();
            }
            world.barrier().expect("a barrier");
            if rank == root {
                println!("time {of} {bytes} {}", start.elapsed().as_nanos() as f64 / rounds as f64);
            }
        }
    }
    world.finish().expect("a good end");
    ExitCode::SUCCESS
}

/// A rank: allreduces, checked, before and after the second rail's fate.
fn allreduces() -> ExitCode {
    let world = World::join().expect("a world");
    let (rank, size) = (world.rank().0, u64::from(world.size()));
    let (mut ends, mut timeout) = (Vec::new(), 0);
    let start = Instant::now();
    for round in 0_u64.. {
        let mut sums: Vec<u64> = (0..NUMBERS as u64).map(|i| i + round + u64::from(rank)).collect();
        world.all_reduce_in_place(&mut sums, SystemOperation::sum()).expect("an allreduce");
        let expected = |i: u64| (i + round) * size + size * (size - 1) / 2;
        assert!((0..).zip(&sums).all(|(i, sum)| *sum == expected(i)), "round {round}");
        ends.push(now());
        let of_rails = world.rail_stats().into_iter().filter_map(|rail| rail.timeout).max().unwrap_or_default();
        let mut state = [of_rails.as_nanos() as u64, u64::from(rank == 0 && start.elapsed() > PHASE * 3)];
        world.all_reduce_in_place(&mut state, SystemOperation::max()).expect("an allreduce");
        if start.elapsed() < PHASE {
            timeout = timeout.max(state[0]);
        }
        if round == 3 && rank == 0 {
            println!("under way");
        }
        if state[1] == 1 {
            break;
        }
    }
    if rank == 0 {
        println!("timeout {}", timeout as f64 / 1e9);
        println!("ends {}", ends.iter().map(f64::to_string).collect::<Vec<_>>().join(" "));
    }
    let rails = world.rail_stats();
    let sum = |of: fn(&RailStats) -> u64| rails.iter().map(of).sum::<u64>();
    let alive = sum(|rail| u64::from(rail.is_alive));
    println!("rails {} {} {alive}", sum(|rail| rail.deaths), sum(|rail| rail.link_downs));
    world.finish().expect("a good end");
    ExitCode::SUCCESS
}
