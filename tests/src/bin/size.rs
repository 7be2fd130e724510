//! Bar 5 of bare metal: memory of an endpoint with 16 active peers, and of collectives with them, on a Cortex-M4. The
//! image is built and checked, then runs with 16 peers, each a thread of this process, over a segment that is the
//! board's memory.
//!
//! `cargo run --release -p unisono-tests --bin size`. Requirements: docs/building.md.

use core::time::Duration;
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Child, ExitCode};
use std::time::Instant;

use clap::Parser;
use unisono_core::device::{Device as _, DeviceQueue};
use unisono_core::endpoint::operation::EnqueueError;
use unisono_core::endpoint::{Config, Endpoint, Event, Handler, Verdict};
use unisono_core::ids::{Incarnation, PeerId};
use unisono_core::progress::make_progress;
use unisono_memory::endpoint_storage::EndpointSizes as Records;
use unisono_memory::memory_regions::{Address, Regions};
use unisono_node::group::Group;
use unisono_node::member::Member;
use unisono_node::self_check::collectives;
use unisono_shmem::device::{DatagramBuffer, RingDevice, RingPair, SPARE_BUFFERS};
use unisono_shmem::host::file::{Mapping, SegmentFile};
use unisono_shmem::layout::{SegmentLayout, SegmentSizes, WaitMode};
use unisono_shmem::rank_slot::Occupant;
use unisono_shmem::reduction_ops::ReduceOperation;
use unisono_tests::bare_metal::mps2::{Outcome, Toolchain, check_symbols, sections, wait_for_report};
use unisono_tests::harness::report::{Limit, Report};

const IMAGE: &str = "small";
/// As the image has them (linker/mps2/src/bin/small.rs).
const PEERS: u32 = 16;
const RANKS: u32 = PEERS + 1;
const MESSAGES: u32 = 200;
const ROUNDS: u32 = 100;
const MTU: usize = 576;
/// The board's PSRAM.
const BYTES: usize = 16 << 20;
/// Stored bytes.
const FLASH: f64 = 32.0 * 1024.0;
/// Bytes of data, pools and stack.
const MEMORY: f64 = 16.0 * 1024.0;
const LIMIT: Duration = Duration::from_secs(60);

/// Builds and runs the smallest image, and holds its size against the bar.
#[derive(Parser, Clone, Debug)]
struct Options {
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut report = Report::new(5, options.json);
    match prove(&mut report) {
        Ok(()) => report.end(),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn prove(report: &mut Report) -> Outcome<()> {
    let bench = Toolchain::find()?;
    let image = bench.build(IMAGE, &[])?.ok_or_else(|| bench.explain_panics(IMAGE))?;
    check_symbols(&image)?;
    let sizes = SegmentSizes {
        ring_entries: 64,
        ring_bulk: 1 << 13,
        collective_area: 1 << 16,
        pool: 1 << 19,
        communicator_slot: 0,
        ..SegmentSizes::of_node(RANKS, WaitMode::Oversubscribed)
    };
    let layout = SegmentLayout::new(sizes)?;
    if layout.bytes() != BYTES {
        return Err(format!("a segment of {} bytes is not the board's memory", layout.bytes()).into());
    }
    let file = SegmentFile::create(&layout)?;
    let (mapping, _) = Mapping::open(file.as_fd())?;
    let backing = format!(
        "memory-backend-file,id=shared,mem-path=/proc/{}/fd/{},size={BYTES},share=on",
        std::process::id(),
        file.as_fd().as_raw_fd()
    );
    let more = ["-M", "mps2-an386,memory-backend=shared", "-object", &backing].map(str::to_owned);
    let child = bench.start(&image, &more)?;
    let said = together(&mapping, child)?;
    let value = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
        line.unwrap_or(f64::NAN)
    };
    let (section, of) = (sections(&image)?, "endpoint of 16 peers, collectives");
    let bytes = |names: &[&str]| names.iter().map(|name| section(name) as f64).sum::<f64>();
    let flash = bytes(&[".vectors", ".text", ".rodata", ".data"]);
    let (memory, stack) = (bytes(&[".data", ".bss"]), value("stack_used"));
    report.figure("messages_right", of, value("messages"), "messages", Limit::Least(f64::from(MESSAGES * PEERS)));
    report.figure("rounds_right", of, value("rounds"), "rounds", Limit::Least(f64::from(ROUNDS)));
    report.figure("text", of, bytes(&[".vectors", ".text"]), "bytes", Limit::None);
    report.figure("rodata", of, bytes(&[".rodata"]), "bytes", Limit::None);
    report.figure("flash", of, flash, "bytes", Limit::Most(FLASH));
    report.figure("data_and_bss", of, memory, "bytes", Limit::None);
    report.figure("stack", of, stack, "bytes", Limit::None);
    report.figure("ram", of, memory + stack, "bytes", Limit::Most(MEMORY));
    report.figure("receive_slots", of, bytes(&[".unisono.pools"]), "bytes", Limit::None);
    Ok(())
}

/// Runs the peers to their end, and returns the output of the image.
fn together(mapping: &Mapping, child: Child) -> Outcome<String> {
    let until = Instant::now() + LIMIT;
    let peers: Vec<_> = (0..PEERS)
        .map(|rank| {
            // SAFETY: each peer is a thread that uses its own ends and parts alone.
            let segment = unsafe { mapping.segment() };
            std::thread::spawn(move || {
                let sitter = Occupant { rank, incarnation: incarnation(rank).0, process: std::process::id() };
                let member = Member::join(segment, rank, sitter)
                    .map_err(|error| format!("cannot occupy the rank slot: {error:?}"))?;
                let ended = peer(member, until);
                if ended.is_err() {
                    member.fail();
                }
                ended
            })
        })
        .collect();
    let ended: Vec<Result<(), String>> =
        peers.into_iter().map(|peer| peer.join().unwrap_or_else(|_| Err("a peer panicked".to_owned()))).collect();
    // The image's error first: it may be the cause of the others.
    let said = wait_for_report(child, LIMIT)?;
    ended.into_iter().collect::<Result<(), _>>()?;
    Ok(said)
}

const fn incarnation(rank: u32) -> Incarnation {
    Incarnation(rank.wrapping_mul(0x9E37_79B9).wrapping_add(0x1234_5678))
}

#[derive(Default)]
struct Inbox {
    count: u32,
    wrong: u32,
}

impl Handler for Inbox {
    fn handle_eager(&mut self, from: PeerId, head: &[u8], bytes: u32) -> Verdict {
        if from.0 == PEERS && bytes == 32 && head.get(..32) == Some(&message(PEERS, self.count)[..]) {
            self.count += 1;
        } else {
            self.wrong += 1;
        }
        Verdict::Release
    }
}

fn message(rank: u32, number: u32) -> Vec<u8> {
    collectives::contribution(number, rank).into_iter().flat_map(i32::to_le_bytes).collect()
}

/// One of the 16.
fn peer(member: Member<'static>, until: Instant) -> Result<(), String> {
    let (layout, own) = (member.layout(), member.local());
    let pairs: Option<Vec<_>> = (0..RANKS).map(|peer| RingPair::new(member.segment(), &layout, own, peer)).collect();
    let (mut pairs, mut buffers) = (pairs.ok_or("no rings")?, vec![DatagramBuffer::<MTU>::FREE; 2 * SPARE_BUFFERS]);
    // SAFETY: it gives out no address: nothing is registered.
    let (mut rings, memory) =
        (RingDevice::<Address, MTU>::new(&layout, &mut pairs, &mut buffers), unsafe { Regions::new() });
    let config = Config::new(PeerId(own), incarnation(own), &rings.limits());
    let began = Instant::now();
    let now = || began.elapsed().as_nanos() as u64;
    let mut endpoint = Endpoint::new(now(), config, Records::of_job(RANKS as usize).pools::<256>());
    endpoint.add_peer(now(), PeerId(PEERS), incarnation(PEERS), MTU as u32);
    let (mut inbox, mut sent, mut completed, mut failed) = (Inbox::default(), 0, 0, None);
    while !member.is_complete() && Instant::now() < until {
        std::thread::yield_now();
    }
    let mut step = |sends: bool| {
        while sends && sent < MESSAGES {
            match endpoint.send(now(), PeerId(PEERS), &message(own, sent), None) {
                Ok(_) => sent += 1,
                Err(EnqueueError::Full) => break,
                Err(error) => return Err(format!("message {sent}: {error:?}")),
            }
        }
        make_progress(now(), DeviceQueue::Polled, &mut endpoint, &mut rings, &memory, &mut inbox, 64);
        while let Some(event) = endpoint.poll_event(now()) {
            match event {
                Event::Completed(_, Ok(())) => completed += 1,
                Event::Completed(_, Err(error)) => return Err(format!("a message failed: {error:?}")),
                Event::PeerFailed(peer) => return Err(format!("{peer:?} failed")),
                Event::Delivered(..) | Event::PeerFinished(_) | Event::PeerSilent(_) => {}
            }
        }
        std::thread::yield_now();
        match (inbox.wrong, Instant::now() < until) {
            (0, true) => Ok(completed == MESSAGES && inbox.count == MESSAGES),
            (0, false) => Err(format!("{completed} of {sent} messages sent, {} came", inbox.count)),
            _ => Err("a message is wrong".to_owned()),
        }
    };
    while !step(true)? {}
    let mut group = Group::new(member).ok_or("no group")?;
    let mut idle = || {
        if let Err(error) = step(false) {
            failed.get_or_insert(error);
            // The others see a rank that has retired.
            member.fail();
        }
    };
    for round in 0..ROUNDS {
        let outcome = (|| {
            group.barrier(&mut idle)?;
            let mut data = collectives::contribution(round, own);
            let root = round % PEERS;
            group.broadcast(&mut data, root, &mut idle)?;
            let mut sums = collectives::contribution(round, own);
            group.all_reduce(&mut sums, ReduceOperation::Sum, &mut idle)?;
            let mut floats = collectives::contribution(round, own).map(|number| number as f32);
            group.all_reduce(&mut floats, ReduceOperation::Sum, &mut idle)?;
            let sum = collectives::sum(round, RANKS);
            Ok(data == collectives::contribution(round, root)
                && sums == sum
                && floats == sum.map(|number| number as f32))
        })();
        match outcome {
            Ok(true) => {}
            Ok(false) => return Err(format!("round {round}: a result is wrong")),
            Err::<_, unisono_node::group::GroupError>(error) => return Err(format!("round {round}: {error:?}")),
        }
    }
    member.leave();
    failed.map_or(Ok(()), Err)
}
