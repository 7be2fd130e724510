//! Bar 3 of bare metal: an image for a Cortex-M4, two processes, and a file that is the board's memory and their
//! segment: checked messages between rank 0 and the image, then barriers and allreduces among all. Another image
//! exchanges messages that are matched as between processes, with two ranks of this process.
//!
//! `cargo run --release -p unisono-tests --bin cortex`. Requirements: docs/building.md.

extern crate alloc;

use alloc::collections::VecDeque;
use core::time::Duration;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

use clap::Parser;
use unisono_node::group::Group;
use unisono_node::member::Member;
use unisono_node::messages::{MessageStorage, Messages, Mode};
use unisono_node::raw_ring::RawRing;
use unisono_node::self_check::collectives;
use unisono_shmem::am_header;
use unisono_shmem::host::file::{Mapping, SegmentFile, reopen};
use unisono_shmem::layout::{SegmentLayout, SegmentSizes, WaitMode};
use unisono_shmem::rank_slot::Occupant;
use unisono_shmem::reduction_ops::ReduceOperation;
use unisono_tests::bare_metal::mps2::{Outcome, Toolchain, check_run, check_symbols, print_sizes};
use unisono_tests::harness::report::{Limit, Report};

const IMAGE: &str = "shared";
/// The board's PSRAM.
const BYTES: usize = 16 << 20;
/// The rank slot of the image; processes occupy the lower ones.
const NODE: u32 = 2;
/// Time limit of a run.
const LIMIT: Duration = Duration::from_secs(120);
/// Bytes of the longest message that is matched.
const MATCHED: usize = 40_000;
/// Messages in flight.
const AHEAD: u32 = 16;

/// Runs the image of a Cortex-M4 with processes.
#[derive(Parser, Clone, Debug)]
struct Options {
    /// Messages, there and back.
    #[arg(long, default_value_t = 100_000)]
    messages: u32,
    /// Barriers.
    #[arg(long, default_value_t = 100_000)]
    barriers: u32,
    /// Messages of either of two ranks that are matched, there and back.
    #[arg(long, default_value_t = 5_000)]
    matched: u32,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
    /// The other process: the number of the segment's descriptor.
    #[arg(long, hide = true)]
    member: Option<u32>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut report = Report::new(3, options.json);
    let outcome = match options.member {
        Some(descriptor) => member(descriptor, options.barriers),
        None => prove(&options, &mut report).and_then(|()| correspond(options.matched, &mut report)),
    };
    match outcome {
        Ok(()) if options.member.is_some() => ExitCode::SUCCESS,
        Ok(()) => report.end(),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Builds and checks an image, and creates a segment with a rank slot for it.
fn prepare(bench: &Toolchain, image: &str) -> Outcome<(PathBuf, SegmentFile)> {
    let image = bench.build(image, &[])?.ok_or_else(|| bench.explain_panics(image))?;
    print_sizes(&image)?;
    check_symbols(&image)?;
    let sizes = SegmentSizes::of_node(NODE + 1, WaitMode::Oversubscribed);
    let layout = SegmentLayout::new(SegmentSizes {
        ring_bulk: 1 << 13,
        collective_area: 1 << 16,
        pool: 3 << 20,
        communicator_slot: 0,
        ..sizes
    })?;
    if layout.bytes() != BYTES {
        return Err(format!("a segment of {} bytes is not the board's memory", layout.bytes()).into());
    }
    Ok((image, SegmentFile::create(&layout)?))
}

/// The emulator, whose board's memory is the segment.
fn start(bench: &Toolchain, image: &Path, file: &SegmentFile) -> Outcome<Child> {
    let (process, number) = (std::process::id(), file.as_fd().as_raw_fd());
    let backing = format!("memory-backend-file,id=shared,mem-path=/proc/{process}/fd/{number},size={BYTES},share=on");
    let more = ["-M", "mps2-an386,memory-backend=shared", "-object", &backing].map(str::to_owned);
    bench.start(image, &more)
}

fn prove(options: &Options, report: &mut Report) -> Outcome<()> {
    let bench = Toolchain::find()?;
    let (image, file) = prepare(&bench, IMAGE)?;
    let (mapping, _) = Mapping::open(file.as_fd())?;
    let number = file.as_fd().as_raw_fd();
    let mut child = start(&bench, &image, &file)?;
    let mut other = Command::new(std::env::current_exe()?);
    other.args(["--member", &number.to_string(), "--barriers", &options.barriers.to_string()]).stdin(Stdio::null());
    let keep = move || {
        // SAFETY: the child's descriptors are those of this process, which keeps this one open meanwhile.
        let file = unsafe { BorrowedFd::borrow_raw(number) };
        rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty()).map_err(std::io::Error::from)
    };
    // SAFETY: between fork and exec it makes one system call.
    unsafe { other.pre_exec(keep) };
    let mut other = other.spawn()?;
    let (member, until) = (sit(&mapping, 0)?, Instant::now() + LIMIT);
    let outcome: Outcome<_> = (|| {
        while !member.is_complete() {
            std::thread::yield_now();
            if let Some(status) = child.try_wait()? {
                return Err(format!("the image has ended: {status}").into());
            }
        }
        let began = Instant::now();
        messages(&member, options.messages, until)?;
        let messages = began.elapsed();
        let began = Instant::now();
        barriers(member, options.barriers, until)?;
        Ok((messages, began.elapsed()))
    })();
    if outcome.is_err() {
        // They would wait for ever.
        let _ = (child.kill(), other.kill());
    }
    let judged = check_run(child, LIMIT);
    let status = other.wait()?;
    let (took, waited) = outcome?;
    judged?;
    if !status.success() {
        return Err(format!("the other process ended with {status}").into());
    }
    let (messages, barriers) = (f64::from(options.messages), f64::from(options.barriers));
    let of = "2 processes, 1 Cortex-M4";
    report.figure("messages_right", of, messages, "messages", Limit::Least(messages));
    report.figure("message_there_and_back", of, took.as_secs_f64() * 1e9 / messages, "ns", Limit::None);
    report.figure("barriers_right", of, barriers, "barriers", Limit::Least(barriers));
    report.figure("barrier", of, waited.as_secs_f64() * 1e9 / barriers, "ns", Limit::None);
    Ok(())
}

/// Two ranks of this process, each of which sends the other image messages, and has them back.
fn correspond(count: u32, report: &mut Report) -> Outcome<()> {
    let bench = Toolchain::find()?;
    let (image, file) = prepare(&bench, "messages")?;
    let (mapping, _) = Mapping::open(file.as_fd())?;
    let (members, until) = ([sit(&mapping, 0)?, sit(&mapping, 1)?], Instant::now() + LIMIT);
    let mut child = start(&bench, &image, &file)?;
    let began = Instant::now();
    let ranks = members
        .map(|member| std::thread::Builder::new().stack_size(1 << 26).spawn(move || echoed(member, count, until)));
    let ended: Vec<Result<(), String>> = ranks
        .into_iter()
        .map(|rank| rank?.join().map_err(|_| std::io::Error::other("a panic")))
        .map(|ended| ended.map_err(|error| error.to_string()).flatten())
        .collect();
    if ended.iter().any(Result::is_err) {
        // It would wait for ever.
        let _ = child.kill();
    }
    let judged = check_run(child, LIMIT);
    ended.into_iter().collect::<Result<(), _>>()?;
    judged?;
    let (all, of) = (2.0 * f64::from(count), "2 ranks of a process, 1 Cortex-M4");
    report.figure("matched_right", of, all, "messages", Limit::Least(all));
    report.figure("matched_there_and_back", of, began.elapsed().as_secs_f64() * 1e9 / all, "ns", Limit::None);
    Ok(())
}

/// Messages of all lengths up to 40 000 bytes, a few on their way at a time, none of which overtakes another one of its
/// tag.
fn echoed(member: Member<'static>, count: u32, until: Instant) -> Result<(), String> {
    type Memory = MessageStorage<'static, 3, { 3 * am_header::unexpected_per_peer(3) as usize }, 16, 4>;
    let failed = |number: u32, what: &str| format!("rank {}, message {number}: {what}", member.local());
    while !member.is_complete() {
        if Instant::now() > until {
            return Err(failed(0, "the image does not occupy its rank slot"));
        }
        std::thread::yield_now();
    }
    let storage = Box::leak(Box::<Memory>::default()).slices();
    let mut messages = Messages::new(member, storage).ok_or_else(|| failed(0, "the storage is too small"))?;
    let quarry: &'static [u8] =
        Vec::leak((0..MATCHED as u32 + 997).map(|at| collectives::number(at, 0, 7) as u8).collect());
    let of = |number: u32| {
        let length = if number % 50 == 49 {
            MATCHED
        } else {
            [1, 8, 28, 29, 48, 49, 300, 1024, 1025, 4097][number as usize % 10]
        };
        let at = number as usize % 997;
        quarry.get(at..at + if number == count { 0 } else { length }).unwrap_or_default()
    };
    let (mut posted, mut sent) = (VecDeque::new(), 0);
    let mut free: Vec<&'static mut [u8]> = (0..4).map(|_| Vec::leak(vec![0; MATCHED])).collect();
    for number in 0..=count {
        while sent <= count
            && let Some(buffer) = free.pop()
        {
            let started = messages.start_receive(buffer, Some(NODE), Some(sent % 3));
            let receive = started.map_err(|(error, _)| failed(sent, &format!("{error:?}")))?;
            let send = messages.start_send(of(sent), NODE, sent % 3, Mode::Standard);
            posted.push_back((receive, send.map_err(|error| failed(sent, &format!("{error:?}")))?));
            sent += 1;
        }
        let Some((receive, send)) = posted.pop_front() else { break };
        let mut done = |request| loop {
            if let Some(ended) = messages.take_completed(request) {
                return ended.result.map(|status| (status, ended.buffer)).map_err(|error| format!("{error:?}"));
            }
            if Instant::now() > until {
                return Err("does not arrive".to_owned());
            }
            if !messages.poll() {
                std::thread::yield_now();
            }
        };
        let (status, buffer) = done(receive).map_err(|error| failed(number, &error))?;
        done(send).map_err(|error| failed(number, &error))?;
        let is_it = status.tag == number % 3 && status.bytes == of(number).len();
        let is_whole = buffer.iter().zip(of(number)).all(|(found, sent)| *found == !sent);
        if !(is_it && is_whole) {
            return Err(failed(number, "came back wrong"));
        }
        free.push(buffer);
    }
    messages.leave(&mut std::thread::yield_now);
    Ok(())
}

/// The other process.
fn member(descriptor: u32, barriers_in_all: u32) -> Outcome<()> {
    let file = reopen(descriptor, None)?;
    let (mapping, _) = Mapping::open(file.as_fd())?;
    let member = sit(&mapping, 1)?;
    while !member.is_complete() {
        std::thread::yield_now();
    }
    barriers(member, barriers_in_all, Instant::now() + LIMIT)
}

fn sit(mapping: &Mapping, local: u32) -> Outcome<Member<'static>> {
    let sitter = Occupant { rank: local, incarnation: local + 1, process: std::process::id() };
    // SAFETY: each rank of this process is a thread that uses its own ends and parts alone.
    let segment = unsafe { mapping.segment() };
    Ok(Member::join(segment, local, sitter).map_err(|error| format!("cannot occupy the rank slot: {error:?}"))?)
}

/// Messages of 0 to 200 bytes, in entries and in the bulk: the image sends each back, every byte changed.
fn messages(member: &Member<'static>, count: u32, until: Instant) -> Outcome<()> {
    let mut ring = RawRing::new(member, NODE).ok_or("no rings")?;
    let bytes = |number: u32| -> Vec<u8> {
        let length = if number == count { 0 } else { 1 + number.wrapping_mul(0x9e37_79b9) % 200 };
        (0..length).map(|at| (collectives::number(number, 0, at) & 0xff) as u8).collect()
    };
    let (mut sent, mut buffer) = (0, [0; 256]);
    for expected in 0..=count {
        while sent <= count && sent - expected < AHEAD && ring.send(sent, &bytes(sent)).is_ok() {
            sent += 1;
        }
        let (tag, length) = loop {
            match ring.receive(&mut buffer).map_err(|error| format!("message {expected}: {error:?}"))? {
                Some(message) => break message,
                None if Instant::now() > until => return Err(format!("message {expected} does not arrive").into()),
                None => std::thread::yield_now(),
            }
        };
        let changed: Vec<u8> = bytes(expected).iter().map(|byte| !byte).collect();
        if tag != expected || buffer.get(..length) != Some(&changed[..]) {
            return Err(format!("message {expected} came back wrong, as {tag} of {length} bytes").into());
        }
    }
    Ok(())
}

/// Barriers, and allreduces now and then.
fn barriers(member: Member<'static>, count: u32, until: Instant) -> Outcome<()> {
    let mut group = Group::new(member).ok_or("no group")?;
    let mut polls = 0_u32;
    let mut idle = || {
        std::thread::yield_now();
        polls = polls.wrapping_add(1);
        if polls.is_multiple_of(1 << 16) && Instant::now() > until {
            // The others see a rank that has retired.
            member.fail();
        }
    };
    let failed = |round| move |error| format!("round {round}: {error:?}");
    let mut said = [count.cast_signed()];
    group.broadcast(&mut said, 0, &mut idle).map_err(failed(0))?;
    for round in 0..count {
        group.barrier(&mut idle).map_err(failed(round))?;
        if round % 64 == 0 {
            let mut data = collectives::contribution(round, member.local());
            group.all_reduce(&mut data, ReduceOperation::Sum, &mut idle).map_err(failed(round))?;
            let mut floats = collectives::contribution(round, member.local()).map(|number| number as f32);
            group.all_reduce(&mut floats, ReduceOperation::Sum, &mut idle).map_err(failed(round))?;
            let sum = collectives::sum(round, member.size());
            if data != sum || floats != sum.map(|number| number as f32) {
                return Err(format!("round {round}: a sum is wrong").into());
            }
        }
    }
    member.leave();
    Ok(())
}
