//! Messages between two ranks that stay unreceived for long (issue 5, bar 4): 10⁶ immediate sends of tag 1, then one of
//! tag 2, which the receiver takes first, with a pool of 64 KiB. All arrive, in order, and the receiver's memory is
//! bounded.

use core::time::Duration;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use unisono::{Failure, Rank, Tag, World};
use unisono_tests::harness::job::Job;
use unisono_tests::harness::report::{Limit, Report};

/// Longest that a job may take.
const PATIENCE: Duration = Duration::from_secs(600);
/// Words that messages are cut from.
const WORDS: usize = 4096;
/// KiB that the receiver may grow by: headers with 1 KiB each, the pool, and what the system adds.
const GROWTH: f64 = 3072.0;
/// Bytes that a send under way may cost its rank.
const EACH: f64 = 768.0;

/// Sends many messages before their receives are posted.
#[derive(Parser, Clone, Debug)]
struct Options {
    /// Messages of tag 1.
    #[arg(long, default_value_t = 1_000_000)]
    messages: usize,
    /// Only this means.
    #[arg(long)]
    means: Option<Means>,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
    /// A rank of a job: bytes of a message.
    #[arg(long, hide = true)]
    bytes: Option<usize>,
    #[arg(long, hide = true)]
    mark: Option<String>,
}

/// How the ranks reach each other.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Means {
    Shm,
    Udp,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match options.bytes {
        Some(bytes) => member(options.messages, bytes),
        None => judge(&options),
    }
}

fn judge(options: &Options) -> ExitCode {
    let mut report = Report::new(5, options.json);
    let chosen = |means: &Means| options.means.is_none_or(|one| one == *means);
    for means in Means::value_variants().iter().copied().filter(chosen) {
        // One that is kept with its header, and one that takes the pool or stays with its sender.
        for bytes in [8, 2048] {
            let (name, since) = (format!("{means:?}, {} of {bytes} bytes", options.messages), Instant::now());
            let said = run(options.messages, means, bytes);
            let said = said.inspect_err(|reason| eprintln!("{name}: {reason}")).unwrap_or_default();
            let figure = |word: &str| {
                let line = said.iter().find_map(|line| line.strip_prefix(word)?.trim().parse().ok());
                line.unwrap_or(f64::NAN)
            };
            let each = figure("sender") * 1024.0 / options.messages as f64;
            report.figure(
                "received",
                &name,
                figure("received"),
                "messages",
                Limit::Least(options.messages as f64 + 1.0),
            );
            report.figure("receiver_grown", &name, figure("receiver"), "KiB", Limit::Most(GROWTH));
            report.figure("sender_grown", &name, each, "bytes per message", Limit::Most(EACH));
            report.figure("time", &name, since.elapsed().as_secs_f64(), "s", Limit::None);
        }
    }
    report.end()
}

/// Runs one job. Returns the output of its ranks.
fn run(messages: usize, means: Means, bytes: usize) -> Result<Vec<String>, String> {
    let mark = format!("backlog-{}-{means:?}-{bytes}", std::process::id());
    let device = if means == Means::Shm { "shm" } else { "udp" };
    let (messages, bytes) = (messages.to_string(), bytes.to_string());
    let options = ["-n", "2", "--device", device, "--eager-pool", "64K"];
    let mut job = Job::start(&mark, &options, &["--messages", &messages, "--bytes", &bytes])?;
    let until = Instant::now() + PATIENCE;
    let mut said = Vec::new();
    for _ in 0..3 {
        said.push(job.line(until).ok_or_else(|| format!("the output stops after {said:?}"))?);
    }
    job.ended(until)?;
    job.clean()?;
    Ok(said)
}

fn member(messages: usize, bytes: usize) -> ExitCode {
    let world = World::join().expect("a world");
    let done = if world.rank() == Rank(0) { send(&world, messages, bytes) } else { receive(&world, messages, bytes) };
    if let Err(failure) = done {
        println!("error {failure}");
    }
    world.finish().expect("both finish");
    ExitCode::SUCCESS
}

fn send(world: &World, messages: usize, bytes: usize) -> Result<(), Failure> {
    let words: Vec<u64> = (0..(2 * WORDS) as u64).collect();
    let before = resident();
    let cut = |i: usize| &words[i % WORDS..][..bytes / 8];
    world.scope(|scope| {
        for i in 0..messages {
            drop(scope.immediate_send(cut(i), Rank(1), Tag(1))?);
        }
        println!("sender {}", resident() - before);
        drop(scope.immediate_send(cut(7), Rank(1), Tag(2))?);
        Ok(())
    })
}

fn receive(world: &World, messages: usize, bytes: usize) -> Result<(), Failure> {
    let mut data = vec![0_u64; bytes / 8];
    let before = resident();
    world.receive_into(&mut data, Rank(0), Tag(2))?;
    assert_eq!((data[0], data[bytes / 8 - 1]), (7, 6 + bytes as u64 / 8), "the message that was sent last");
    for i in 0..messages {
        world.receive_into(&mut data, Rank(0), Tag(1))?;
        let first = (i % WORDS) as u64;
        assert_eq!((data[0], data[bytes / 8 - 1]), (first, first + bytes as u64 / 8 - 1), "message {i}");
    }
    println!("receiver {}", resident() - before);
    println!("received {}", messages + 1);
    Ok(())
}

/// Resident memory of this process, in KiB.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let found = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok());
    found.unwrap_or(f64::NAN)
}
