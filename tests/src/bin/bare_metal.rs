//! Bar 1 of bare metal: barrier, broadcast and allreduce among two Linux processes and one image without an operating
//! system, over the segment that they share; messages of all lengths among the three, matched as between processes;
//! reads, writes and updates of the image's memory by the processes, and refusals of wrong keys; a
//! barrier of one process and one image against a round trip over their rings.
//!
//! `cargo build --release && cargo run --release -p unisono-tests --bin bare_metal`. Requirements: docs/bare-metal.md.

use core::time::Duration;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::process::{ExitCode, Stdio};
use std::time::Instant;

use clap::Parser;
use unisono::collective::{CollectiveError, SystemOperation};
use unisono::zerocopy::FromBytes;
use unisono::{RKey, Rank, RemoteRegion, Tag, WindowError, World};
use unisono_launcher::{BareMetalRanks, proxy::EXIT_SUCCESS};
use unisono_node::group::Group;
use unisono_node::member::Member;
use unisono_node::messages::remote_access::KEY_BYTES;
use unisono_node::raw_ring::RawRing;
use unisono_node::self_check::collectives;
use unisono_node::self_check::messages::BURST;
use unisono_node::self_check::remote_access;
use unisono_shmem::host::file::{Mapping, SegmentFile};
use unisono_shmem::layout::{SegmentLayout, SegmentSizes, WaitMode};
use unisono_shmem::rank_slot::Occupant;
use unisono_tests::bare_metal::build;
use unisono_tests::bare_metal::message_exchange::ExchangeBuffers;
use unisono_tests::harness::job::Job;
use unisono_tests::harness::report::{Limit, Report, quantile};

/// Time limit of a job.
const LONGEST: Duration = Duration::from_secs(300);
/// Barriers, or round trips, that are timed together.
const BATCH: u32 = 1000;

/// Runs collectives, and exchanges messages, with an image as one of the ranks.
#[derive(Parser, Clone, Debug)]
struct Options {
    /// Barriers, broadcasts and allreduces.
    #[arg(long, default_value_t = 100_000)]
    rounds: u32,
    /// Bursts of messages: 96 each.
    #[arg(long, default_value_t = 1600)]
    bursts: u32,
    /// Rounds of accesses to the memory of the image.
    #[arg(long, default_value_t = 1000)]
    accesses: u32,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
    /// A rank of a job.
    #[arg(long, hide = true)]
    member: bool,
    #[arg(long, hide = true)]
    mark: Option<String>,
    /// Words of the image.
    #[arg(hide = true)]
    words: Vec<String>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.member {
        return member(&options);
    }
    let mut report = Report::new(1, options.json);
    let outcome = build(1).and_then(|machine| {
        together(&machine, options.rounds, &mut report)?;
        run_message_exchange(&machine, options.bursts, &mut report)?;
        access_memory(&machine, options.accesses, &mut report)?;
        alone(&machine, &mut report)
    });
    match outcome {
        Ok(()) => report.end(),
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

/// Two processes and a node, which do collectives.
fn together(machine: &BareMetalRanks, rounds: u32, report: &mut Report) -> Result<(), String> {
    let began = Instant::now();
    let Outcome { right, microseconds, .. } = run(machine, "collectives", "rounds", rounds)?;
    let (of, rounds) = ("2 processes, 1 node", f64::from(rounds));
    report.figure("rounds_right", of, right / 2.0, "rounds", Limit::Least(rounds));
    report.figure("round", "barrier, broadcast, 2 allreduces", microseconds / rounds, "us", Limit::None);
    report.figure("time", of, began.elapsed().as_secs_f64(), "s", Limit::None);
    Ok(())
}

/// Two processes and a node, each of which sends messages to the others.
fn run_message_exchange(machine: &BareMetalRanks, bursts: u32, report: &mut Report) -> Result<(), String> {
    let began = Instant::now();
    let Outcome { right, came, microseconds } = run(machine, "messages", "bursts", bursts)?;
    let (of, each) = ("2 processes, 1 node", f64::from(bursts * 2 * BURST));
    report.figure("messages_right", "2 processes", right, "messages", Limit::Least(2.0 * each));
    report.figure("messages_right", "1 node", came, "messages", Limit::Least(each));
    report.figure("message", of, microseconds / (3.0 * each), "us", Limit::None);
    report.figure("time", "2 processes, 1 node, messages", began.elapsed().as_secs_f64(), "s", Limit::None);
    Ok(())
}

/// Two processes, which access memory of a node.
fn access_memory(machine: &BareMetalRanks, rounds: u32, report: &mut Report) -> Result<(), String> {
    let Outcome { right, came, microseconds } = run(machine, "remote-access", "rounds", rounds)?;
    let (of, rounds) = ("2 processes, memory of 1 node", f64::from(rounds));
    report.figure("rounds_right", of, right / 2.0, "rounds", Limit::Least(rounds));
    report.figure("updates", of, came, "updates", Limit::Least(2.0 * rounds));
    report.figure("round", "put of 30 KB, flush, get, fetch-and-add", microseconds / rounds, "us", Limit::None);
    Ok(())
}

/// Results of the ranks of a job.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// Of all processes.
    right: f64,
    /// At the node, and how long it took.
    came: f64,
    microseconds: f64,
}

/// A job of two processes and a node, to its end.
fn run(machine: &BareMetalRanks, program: &str, unit: &str, count: u32) -> Result<Outcome, String> {
    let image = machine.image.display().to_string();
    let options = ["-n", "3", "--bare-metal", "1", "--image", &image, "--emulator", &machine.emulator];
    let words = [format!("--{unit}"), count.to_string(), format!("program={program}"), format!("{unit}={count}")];
    let arguments: Vec<&str> = ["--member"].into_iter().chain(words.iter().map(String::as_str)).collect();
    let mut job = Job::start(&format!("bare-metal-{}", std::process::id()), &options, &arguments)?;
    let until = Instant::now() + LONGEST;
    let mut outcome = Outcome { right: 0.0, came: f64::NAN, microseconds: f64::NAN };
    while let Some(line) = job.line(until) {
        let number = |text: &str| text.parse().unwrap_or(f64::NAN);
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["right", count] => outcome.right += number(count),
            [count, "rounds," | "messages," | "updates,", microseconds, "us"] => {
                (outcome.came, outcome.microseconds) = (number(count), number(microseconds));
            }
            _ => return Err(format!("unexpected output of a rank: {line:?}")),
        }
    }
    let status = job.ended(Instant::now() + Duration::from_secs(5))?;
    job.clean()?;
    if status.success() { Ok(outcome) } else { Err(format!("the job ended with {status}")) }
}

/// A rank that has an operating system.
fn member(options: &Options) -> ExitCode {
    let program = options.words.iter().find_map(|word| word.strip_prefix("program=")).unwrap_or_default();
    match World::join().map_err(|error| error.to_string()).and_then(|world| {
        let right = match program {
            "messages" => exchange_messages(&world, options.bursts)?,
            "remote-access" => access(&world, options.rounds)?,
            _ => collectives(&world, options.rounds)?,
        };
        println!("right {right}");
        world.finish().map_err(|error| error.to_string())
    }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn exchange_messages(world: &World, bursts: u32) -> Result<u32, String> {
    let (mut buffers, mut come) = (ExchangeBuffers::new(world)?, 0);
    for burst in 0..bursts {
        come += buffers.exchange(world, burst, |trouble| {
            eprintln!("{trouble}");
            std::process::exit(1)
        });
        world.barrier().map_err(|error| format!("burst {burst}: {error}"))?;
    }
    Ok(come)
}

/// Writes, reads and updates memory of the last rank, a node; then under wrong keys, and after it was revoked.
fn access(world: &World, rounds: u32) -> Result<u32, String> {
    let (rank, node, tag) = (world.rank().0, Rank(world.size() - 1), Tag(remote_access::TAG));
    let mut key = [0; KEY_BYTES];
    world.receive_into(&mut key[..], node, tag).map_err(|error| error.to_string())?;
    let import = |key: &[u8]| {
        let key = RKey::read_from_bytes(key).map_err(|_| "another length")?;
        world.import_region(&key).map_err(|error| format!("the key: {error}"))
    };
    let there = import(&key)?;
    let mut found = vec![0_u8; remote_access::SLOT];
    for round in 0..rounds {
        let failed = |error: WindowError| format!("round {round}: {error}");
        let (bytes, at): (Vec<u8>, _) =
            (remote_access::pattern(rank, round).collect(), remote_access::slot(rank).start);
        there.put(&bytes, at).map_err(failed)?;
        there.flush().map_err(failed)?;
        there.get(&mut found, at).map_err(failed)?;
        if found != bytes {
            return Err(format!("round {round}: another write is read"));
        }
        there.fetch_and_op(1_u64, 0, SystemOperation::sum()).map_err(failed)?;
    }
    let expect = |found: Result<(), WindowError>, wanted: WindowError, what: &str| {
        if found == Err(wanted) { Ok(()) } else { Err(format!("{what}: {found:?} instead of {wanted:?}")) }
    };
    let refusing = |there: &RemoteRegion, wanted: WindowError, what: &str| {
        expect(there.put(&[7_u8], 1).and_then(|()| there.flush()), wanted, what)?;
        expect(there.get(&mut [7_u8], 1), wanted, what)?;
        expect(there.fetch_and_op(7_u64, 0, SystemOperation::sum()).map(|_| ()), wanted, what)
    };
    for bit in 0..64 {
        let mut forged = key;
        forged[bit / 8] ^= 1 << (bit % 8);
        refusing(&import(&forged)?, WindowError::Revoked(node), "a wrong key")?;
    }
    // Of another length: the node checks the bounds.
    let mut longer = key;
    longer[8..16].fill(0x7f);
    let longer = import(&longer)?;
    let beyond = longer.put(&[7_u8; 2], remote_access::MEMORY - 1).and_then(|()| longer.flush());
    expect(beyond, WindowError::OutOfBounds(node), "a put across the end")?;
    expect(longer.get(&mut [7_u8; 2], remote_access::MEMORY - 1), WindowError::OutOfBounds(node), "a get")?;
    let updated = there.accumulate(&[7_u8; 3], 1, SystemOperation::sum()).and_then(|()| there.flush());
    expect(updated, WindowError::Unsupported, "an update of several elements")?;
    let done = || world.send(&[0_u8; 0], node, tag).map_err(|error| error.to_string());
    done()?;
    world.receive_into(&mut [0_u8; 0], node, tag).map_err(|error| error.to_string())?;
    refusing(&there, WindowError::Revoked(node), "a revoked key")?;
    done()?;
    Ok(rounds)
}

fn collectives(world: &World, rounds: u32) -> Result<u32, String> {
    for round in 0..rounds {
        one(world, round)?;
    }
    Ok(rounds)
}

fn one(world: &World, round: u32) -> Result<(), String> {
    let (rank, ranks) = (world.rank().0, world.size());
    let failed = |error: CollectiveError| format!("round {round}: {error}");
    let wrong = |what| Err(format!("round {round}: the {what} is wrong"));
    world.barrier().map_err(failed)?;
    let root = round % ranks;
    let mut data = if rank == root { collectives::contribution(round, root) } else { Default::default() };
    world.broadcast_into(&mut data, Rank(root)).map_err(failed)?;
    if data != collectives::contribution(round, root) {
        return wrong("broadcast");
    }
    let mut data = collectives::contribution(round, rank);
    world.all_reduce_in_place(&mut data, SystemOperation::sum()).map_err(failed)?;
    if data != collectives::sum(round, ranks) {
        return wrong("allreduce of integers");
    }
    let mut data = collectives::contribution(round, rank).map(|number| number as f32);
    world.all_reduce_in_place(&mut data, SystemOperation::sum()).map_err(failed)?;
    if data == collectives::sum(round, ranks).map(|number| number as f32) {
        Ok(())
    } else {
        wrong("allreduce of floats")
    }
}

/// This process and a node, without World: barriers, then echoes over a ring.
fn alone(machine: &BareMetalRanks, report: &mut Report) -> Result<(), String> {
    let batches = 50;
    let [barrier, echo] = ["barriers", "echo"].map(|program| timed(machine, program, batches));
    let (barrier, echo) = (barrier?, echo?);
    report.figure("barrier", "1 process, 1 node", barrier, "ns", Limit::None);
    report.figure("ring_round_trip", "1 process, 1 node", echo, "ns", Limit::None);
    report.figure("barrier_in_round_trips", "1 process, 1 node", barrier / echo, "", Limit::Most(3.0));
    Ok(())
}

/// Median nanoseconds of one barrier, or one round trip.
fn timed(machine: &BareMetalRanks, program: &str, batches: u32) -> Result<f64, String> {
    let layout =
        SegmentLayout::new(SegmentSizes::of_node(2, WaitMode::Dedicated)).map_err(|error| error.to_string())?;
    let file = SegmentFile::create(&layout).map_err(|error| error.to_string())?;
    let (mapping, _) = Mapping::open(file.as_fd()).map_err(|error| error.to_string())?;
    let line = format!("local=1 incarnation=1 program={program} rounds={}", batches * BATCH);
    let started = machine.start(file.as_fd(), &layout, &OsString::from(line), Stdio::inherit());
    let mut emulator = started.map_err(|error| format!("{}: {error}", machine.emulator))?;
    let sitter = Occupant { rank: 0, incarnation: 2, process: std::process::id() };
    // SAFETY: this rank is the only user of the mapping in this process.
    let segment = unsafe { mapping.segment() };
    let member = Member::join(segment, 0, sitter).map_err(|error| format!("cannot occupy the rank slot: {error:?}"))?;
    let mut group = Group::new(member).ok_or("no group")?;
    let mut ring = RawRing::new(&member, 1).ok_or("no ring")?;
    while !member.is_complete() {
        std::thread::yield_now();
        if let Some(status) = emulator.try_wait().map_err(|error| error.to_string())? {
            return Err(format!("the image has ended: {status}"));
        }
    }
    let (mut times, mut idle, mut buffer) = (Vec::new(), core::hint::spin_loop, [0; 64]);
    for _ in 0..batches {
        let began = Instant::now();
        for round in 0..BATCH {
            if program == "barriers" {
                group.barrier(&mut idle).map_err(|error| format!("barrier: {error:?}"))?;
                continue;
            }
            let sent = round.to_le_bytes();
            ring.send(round, &sent).map_err(|error| format!("ring: {error:?}"))?;
            loop {
                match ring.receive(&mut buffer).map_err(|error| format!("ring: {error:?}"))? {
                    None => core::hint::spin_loop(),
                    Some((tag, bytes)) if tag == round && buffer.get(..bytes) == Some(&sent) => break,
                    Some(other) => return Err(format!("{other:?} came back for {round}")),
                }
            }
        }
        times.push(began.elapsed().as_nanos() as f64 / f64::from(BATCH));
    }
    let status = emulator.wait().map_err(|error| error.to_string())?;
    if status.code() != Some(EXIT_SUCCESS) {
        return Err(format!("the image has ended: {status}"));
    }
    times.sort_by(f64::total_cmp);
    Ok(quantile(&times, 0.5))
}
