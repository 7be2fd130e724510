//! Remote memory access over a network that loses, duplicates and reorders: sums of fetch-adds, and reads and writes of
//! many lengths against a copy of the target's memory.

pub mod process;

use unisono_core::device::{Armed, Device, DeviceQueue};
use unisono_core::ids::PeerId;
use unisono_core::rma::atomic::{AtomicKind, AtomicOperation, Width};
use unisono_core::rma::header::ElementUpdate;
use unisono_core::rma::operation::RmaRequest;
use unisono_core::rma::stride::Stride;
use unisono_core::rma::{RKey, RemoteSpan, Rights, RmaCall, RmaCompletion};
use unisono_core::span::{Region, Span};
use unisono_udp::fault_injection::{Faults, Probability};

use self::process::{RmaProcess, RmaSizes, job, job_with};
use crate::sim::{Config, Network};

/// All that peers may do.
const RIGHTS: Rights = Rights::READ.union(Rights::WRITE).union(Rights::ATOMIC);

/// 5 % loss, 5 % reordering, 2 % duplication.
pub fn faulty() -> Config {
    let chance = |value| Probability::new(value).expect("a probability");
    let faults = Faults { loss: chance(0.05), reorder: chance(0.05), duplicate: chance(0.02), ..Faults::default() };
    Config { faults, exposes_memory: true, ..Config::default() }
}

/// Virtual nanoseconds after which a run is given up.
const BOUND_NS: u64 = 100_000_000_000;

/// Counts of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Operations that ended well.
    pub succeeded: u64,
    /// Operations that failed.
    pub failed: u64,
    /// Datagrams that were sent.
    pub datagrams: u64,
    /// Differences from what a serial memory would hold.
    pub wrong: u64,
    /// Virtual nanoseconds.
    pub elapsed_ns: u64,
}

/// `ranks` ranks add `adds` times each to one word of rank 0, which has `entries` entries. Every old value must be
/// returned once, and the sum must be exact.
pub fn fetch_adds(config: Config, seed: u64, ranks: u32, adds: u64, entries: usize) -> Totals {
    let network = Network::new(seed, config);
    let mut nodes = job(&network, ranks, RmaSizes { operations: 64, entries, outstanding: 16 });
    let memory = nodes[0].memory.make(8);
    let region = nodes[0].register(memory, 0, 8, RIGHTS).expect("room");
    let at = RemoteSpan { region, offset: 0 };
    let kind = AtomicKind::FetchAdd { add: 1, boundaries: 0 };
    let request = RmaRequest::Atomic(AtomicOperation { width: Width::Bits64, kind });
    let call = RmaCall { to: PeerId(0), at, request, fence: false, user: 0 };
    let all = (u64::from(ranks) - 1) * adds;
    let (mut left, mut seen) = (vec![adds; ranks as usize], vec![false; all as usize]);
    let mut totals = Totals::default();
    nodes[1..].iter().for_each(RmaProcess::wake);
    while totals.succeeded + totals.failed < all
        && let Some(step) = network.step_until(BOUND_NS)
    {
        let i = step.node.0 as usize;
        for completion in nodes[i].drive(step.lane).completions {
            match completion.result {
                Ok(old) => {
                    totals.succeeded += 1;
                    let is_new = seen.get_mut(old as usize).is_some_and(|seen| !core::mem::replace(seen, true));
                    totals.wrong += u64::from(!is_new);
                }
                Err(_) => totals.failed += 1,
            }
        }
        if i > 0 {
            let mut has_started = false;
            while left[i] > 0 && nodes[i].rma().start(&call).is_ok() {
                (left[i], has_started) = (left[i] - 1, true);
            }
            if has_started {
                nodes[i].wake();
            }
        }
    }
    let sum = nodes[0].memory.read(Span { region: memory, offset: 0, bytes: 8 }).expect("the word");
    totals.wrong += u64::from(sum != all.to_le_bytes());
    (totals.datagrams, totals.elapsed_ns) = (network.counts().sent, network.now());
    totals
}

/// What a blocked target is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// A read of 8 bytes.
    Read,
    /// A fetch-add.
    Atomic,
    /// A flush.
    Flush,
    /// A write of 8 bytes.
    Write,
}

/// A rank asks one that computes for a second, and makes progress only at the events of its interrupt queue. Returns the
/// virtual nanoseconds until the first event, and until the operation has ended.
pub fn blocked_target(asked: Asked) -> (u64, u64) {
    let network = Network::new(11, Config::default());
    let mut nodes = job_with(&network, 2, RmaSizes { operations: 4, entries: 4, outstanding: 4 }, |config| {
        config.probe_queue = DeviceQueue::Interrupt;
    });
    let memory = nodes[1].memory.make(8);
    let region = nodes[1].register(memory, 0, 8, RIGHTS).expect("room");
    let local = Span { region: nodes[0].memory.make(8), offset: 0, bytes: 8 };
    let kind = AtomicKind::FetchAdd { add: 1, boundaries: 0 };
    let request = match asked {
        Asked::Read => RmaRequest::Read { into: local, stride: None },
        Asked::Atomic => RmaRequest::Atomic(AtomicOperation { width: Width::Bits64, kind }),
        Asked::Flush => RmaRequest::Flush,
        Asked::Write => RmaRequest::Write { from: local, immediate: None },
    };
    let call = RmaCall { to: PeerId(1), at: RemoteSpan { region, offset: 0 }, request, fence: false, user: 0 };
    // Both know their path from the first operations.
    for user in 0..8 {
        nodes[0].rma().start(&RmaCall { request: RmaRequest::Flush, user, ..call }).expect("room");
        nodes[0].wake();
        while let Some(step) = network.step_until(network.now() + 1_000_000) {
            nodes[step.node.0 as usize].drive(step.lane);
        }
    }
    let (start, id) = (network.now(), nodes[1].id);
    network.busy(id, start + 1_000_000_000);
    let mut device = network.device(id);
    while device.arm(DeviceQueue::Interrupt) != Armed::Armed {
        nodes[1].drive(DeviceQueue::Interrupt);
    }
    nodes[0].rma().start(&call).expect("room");
    nodes[0].wake();
    let mut woken = None;
    while let Some(step) = network.step_until(start + BOUND_NS) {
        if step.node != id {
            if nodes[0].drive(step.lane).completions.iter().any(|ended| ended.result.is_ok()) {
                break;
            }
            continue;
        }
        woken.get_or_insert(network.now() - start);
        // As the thread of the hybrid mode does.
        nodes[1].drive(DeviceQueue::Interrupt);
        nodes[1].drive(DeviceQueue::Polled);
        device.arm(DeviceQueue::Interrupt);
    }
    (woken.unwrap_or(u64::MAX), network.now() - start)
}

/// One side of the comparison with a serial memory.
#[derive(Debug)]
struct Side {
    region: RKey,
    window: Region,
    source: Region,
    /// What the peer's window must hold after the operations that this side has ended.
    expected: Vec<u8>,
    left: u64,
    running: Option<Running>,
    number: u64,
}

/// The operation that runs: one at a time, so that its effect is known.
#[derive(Debug)]
enum Running {
    Read { into: Region, expected: Vec<u8> },
    Update,
    Flush,
}

/// Bytes of a window.
const WINDOW_BYTES: usize = 1 << 17;

/// Two ranks read, write and update each other's windows, `operations` times each, at random places and of random
/// lengths up to 30 000 bytes.
pub fn random_operations(config: Config, seed: u64, operations: u64) -> Totals {
    let network = Network::new(seed, config);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut nodes = job(&network, 2, RmaSizes { operations: 16, entries: 2, outstanding: 4 });
    let mut sides: Vec<Side> = nodes
        .iter_mut()
        .map(|node| {
            let [window, source] = [WINDOW_BYTES, WINDOW_BYTES].map(|bytes| node.memory.make(bytes));
            let bytes: Vec<u8> = (0..WINDOW_BYTES).map(|_| random.u8(..)).collect();
            node.memory.write(source, 0, &bytes).expect("a region of that size");
            let region = node.register(window, 0, WINDOW_BYTES, RIGHTS).expect("room");
            Side { region, window, source, expected: vec![0; WINDOW_BYTES], left: operations, running: None, number: 0 }
        })
        .collect();
    nodes.iter().for_each(RmaProcess::wake);
    let mut totals = Totals::default();
    while sides.iter().any(|side| side.left > 0 || side.running.is_some())
        && let Some(step) = network.step_until(BOUND_NS)
    {
        let i = step.node.0 as usize;
        let events = nodes[i].drive(step.lane);
        let there = sides[1 - i].region;
        for completion in events.completions {
            end(&mut nodes[i], &mut sides[i], there, completion, &mut totals);
        }
        if sides[i].running.is_none() && sides[i].left > 0 {
            start(&mut nodes[i], &mut sides[i], there, &mut random);
        }
    }
    for i in 0..2 {
        nodes[i].drive(DeviceQueue::Polled);
        let span = Span { region: sides[i].window, offset: 0, bytes: WINDOW_BYTES as u32 };
        let found = nodes[i].memory.read(span).expect("a window");
        totals.wrong += u64::from(found != sides[1 - i].expected);
    }
    (totals.datagrams, totals.elapsed_ns) = (network.counts().sent, network.now());
    totals
}

fn call_to(node: &RmaProcess, region: RKey, offset: usize, request: RmaRequest, user: u64) -> RmaCall {
    let at = RemoteSpan { region, offset: offset as u64 };
    RmaCall { to: PeerId(1 - node.id.0), at, request, fence: false, user: user as u32 }
}

fn start(node: &mut RmaProcess, side: &mut Side, there: RKey, random: &mut fastrand::Rng) {
    side.left -= 1;
    side.number += 1;
    // Short, of about a message, and long.
    let most = [0, 8, 64, 1380, 1440, 3000, 30_000][random.usize(..7)];
    let bytes = random.usize(..=most);
    let (mut offset, start) = (random.usize(..=WINDOW_BYTES - bytes), random.usize(..=WINDOW_BYTES - bytes));
    let from = Span { region: side.source, offset: start, bytes: bytes as u32 };
    let content = node.memory.read(from).expect("a source");
    let mut write = |offset: usize, bytes: &[u8]| side.expected[offset..offset + bytes.len()].copy_from_slice(bytes);
    let (request, running) = match random.u8(..10) {
        0..3 => {
            write(offset, &content);
            (RmaRequest::Write { from, immediate: (random.u8(..4) == 0).then_some(7) }, Running::Update)
        }
        3 => {
            offset &= !7;
            let bytes = (bytes & !7).min(256);
            let from = Span { bytes: bytes as u32, ..from };
            let words = |bytes: &[u8]| -> Vec<u64> {
                bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect()
            };
            let sums = words(&side.expected[offset..offset + bytes]).into_iter().zip(words(&content[..bytes]));
            let sums: Vec<u8> = sums.flat_map(|(old, add)| old.wrapping_add(add).to_le_bytes()).collect();
            side.expected[offset..offset + bytes].copy_from_slice(&sums);
            let update = ElementUpdate::default();
            (RmaRequest::Accumulate { from, update, result: None, stride: None }, Running::Update)
        }
        4 => {
            let (stride, blocks) = random_blocks(random, 8);
            let bytes = blocks * stride.block;
            offset = random.usize(..=WINDOW_BYTES - stride.extent(bytes).expect("few blocks") as usize);
            let from = Span { bytes, offset: start.min(WINDOW_BYTES - bytes as usize), ..from };
            let operands = node.memory.read(from).expect("a source");
            let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
            for (there, packed) in stride.blocks(bytes) {
                for i in (0..stride.block as usize).step_by(8) {
                    let into = &mut side.expected[offset + there + i..][..8];
                    let sum = word(into).wrapping_add(word(&operands[packed + i..][..8]));
                    into.copy_from_slice(&sum.to_le_bytes());
                }
            }
            let update = ElementUpdate::default();
            (RmaRequest::Accumulate { from, update, result: None, stride: Some(stride) }, Running::Update)
        }
        5 => {
            let (stride, blocks) = random_blocks(random, 1);
            let bytes = (blocks * stride.block) as usize;
            offset = random.usize(..=WINDOW_BYTES - stride.extent(bytes as u32).expect("few blocks") as usize);
            let into = node.memory.make(bytes);
            let span = Span { region: into, offset: 0, bytes: bytes as u32 };
            let read = stride.blocks(bytes as u32);
            let expected =
                read.flat_map(|(there, _)| side.expected[offset + there..][..stride.block as usize].to_vec()).collect();
            (RmaRequest::Read { into: span, stride: Some(stride) }, Running::Read { into, expected })
        }
        6 => {
            offset = (offset & !7).min(WINDOW_BYTES - 8);
            let [compare_mask, swap, swap_mask] = [random.u64(..), random.u64(..), random.u64(..)];
            let old = u64::from_le_bytes(side.expected[offset..offset + 8].try_into().expect("8 bytes"));
            let compare = if random.bool() { old } else { random.u64(..) };
            let kind = AtomicKind::MaskedCompareSwap { compare, swap, compare_mask, swap_mask };
            let operation = AtomicOperation { width: Width::Bits64, kind };
            side.expected[offset..offset + 8].copy_from_slice(&operation.apply(old).to_le_bytes());
            (RmaRequest::Atomic(operation), Running::Update)
        }
        _ => {
            let into = node.memory.make(bytes);
            let span = Span { region: into, offset: 0, bytes: bytes as u32 };
            let expected = side.expected[offset..offset + bytes].to_vec();
            (RmaRequest::Read { into: span, stride: None }, Running::Read { into, expected })
        }
    };
    let call = call_to(node, there, offset, request, side.number);
    node.rma().start(&call).expect("room for one operation");
    side.running = Some(running);
    node.wake();
}

/// Blocks of multiples of `unit` bytes that fit in a staging slot, and their number.
fn random_blocks(random: &mut fastrand::Rng, unit: u32) -> (Stride, u32) {
    let block = unit * random.u32(1..=32 / unit);
    (Stride { block, distance: block + random.u32(..400) }, random.u32(..=256 / block))
}

fn end(node: &mut RmaProcess, side: &mut Side, there: RKey, completion: RmaCompletion, totals: &mut Totals) {
    match completion.result {
        Ok(_) => totals.succeeded += 1,
        Err(_) => totals.failed += 1,
    }
    match side.running.take() {
        Some(Running::Read { into, expected }) => {
            let span = Span { region: into, offset: 0, bytes: expected.len() as u32 };
            totals.wrong += u64::from(node.memory.read(span).expect("a buffer") != expected);
            node.memory.retire(into);
        }
        Some(Running::Update) => {
            let flush = call_to(node, there, 0, RmaRequest::Flush, 0);
            node.rma().start(&flush).expect("room for one operation");
            side.running = Some(Running::Flush);
        }
        Some(Running::Flush) => {}
        None => totals.wrong += 1,
    }
    node.wake();
}
