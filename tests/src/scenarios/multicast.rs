//! A reliable multicast stream at a fixed rate in the simulated network.

use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use core::cell::RefCell;

use unisono_core::device::{Device, TxReason};
use unisono_core::ids::{GroupId, Incarnation, Rank};
use unisono_core::multicast::{
    AckMode, Body, Datagram, GroupKey, GroupMember, Ring, Stream, StreamConfig, StreamCounters, Topology,
};
use unisono_core::time::{Nanos, units};

use crate::sim::{Config, Network, NodeId, SimMemory, TamperVerdict};

/// Members at most.
pub const MEMBERS: usize = 64;
/// Segments of the window.
pub const WINDOW: usize = 64;
/// Nanoseconds of a round trip.
pub const ROUND_TRIP_NS: u64 = 10_000;
/// Bytes of a segment's payload.
const SEGMENT_BYTES: u32 = 1000;
const GROUP: GroupId = GroupId(3);
/// Datagrams that a member handles and sends in one round.
const BUDGET: u32 = 64;

type SimStream = Stream<Nanos, MEMBERS, WINDOW, 32>;

/// A run.
#[derive(Clone, Debug)]
pub struct StreamRun {
    /// Members, the root of rank 0 included.
    pub members: u32,
    /// Who acknowledges to whom.
    pub mode: AckMode,
    /// Segments per acknowledgement.
    pub ack_every: u32,
    /// Messages, each of `bytes` bytes.
    pub messages: u32,
    /// Bytes of a message.
    pub bytes: u32,
    /// Nanoseconds between two messages.
    pub interval_ns: u64,
    /// First transmissions that get lost: number of the segment, member.
    pub lost: BTreeSet<(u32, u32)>,
    /// A member that dies: when, and when the others know.
    pub death: Option<(u32, u64, u64)>,
    /// Further loss of every datagram, as 1 of this number; 0: none.
    pub random_loss: u64,
}

impl StreamRun {
    /// A lossless run with messages of one segment each, every 2 µs.
    pub fn new(members: u32, mode: AckMode, messages: u32) -> Self {
        let (bytes, interval_ns) = (100, 2_000);
        let (lost, death) = (BTreeSet::new(), None);
        Self { members, mode, ack_every: 1, messages, bytes, interval_ns, lost, death, random_loss: 0 }
    }

    /// Segments of a message.
    pub const fn segments(&self) -> u32 {
        if self.bytes == 0 { 1 } else { self.bytes.div_ceil(SEGMENT_BYTES) }
    }
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct StreamOutcome {
    /// When each message was queued at the root, in nanoseconds.
    pub queued: Vec<u64>,
    /// When each member got each message.
    pub arrived: Vec<Vec<u64>>,
    /// Counters of each member.
    pub counters: Vec<StreamCounters>,
    /// Whether the root has no message that is not acknowledged.
    pub is_idle: bool,
    /// Datagrams that were lost.
    pub losses: u64,
}

impl StreamOutcome {
    /// The time from queueing a message to its last arrival.
    ///
    /// # Panics
    /// A living member did not get it.
    pub fn latency_ns(&self, message: usize) -> u64 {
        let members = self.arrived.iter().skip(1).filter(|times| !times.is_empty());
        members.map(|times| times[message]).max().expect("members") - self.queued[message]
    }

    /// The median of all messages' latencies.
    pub fn median_ns(&self) -> u64 {
        let mut all: Vec<_> = (0..self.queued.len()).map(|message| self.latency_ns(message)).collect();
        all.sort_unstable();
        all[all.len() / 2]
    }
}

struct Process {
    id: NodeId,
    stream: SimStream,
    memory: SimMemory,
    message: Vec<u8>,
    arrived: Vec<u64>,
}

fn payload(message: u32, bytes: u32) -> Vec<u8> {
    (0..bytes).map(|at| (message.wrapping_mul(31) ^ at.wrapping_mul(7)) as u8).collect()
}

/// Runs until nothing happens any more.
///
/// # Panics
/// A message arrived changed, twice or out of order, or a run does not end.
pub fn run(options: &StreamRun, seed: u64) -> StreamOutcome {
    let network = Network::new(seed, Config { receive_slots: 4096, ..Config::default() });
    let ids: Vec<_> = (0..options.members).map(|_| network.add_node()).collect();
    let topology = Topology { mode: options.mode, founders: options.members, root: Rank(0) };
    let config = StreamConfig {
        topology,
        ack_every: options.ack_every,
        granularity: units(ROUND_TRIP_NS),
        max_interval: units(1_000_000),
        deaf_sample: 0,
    };
    let key = GroupKey { group: GROUP, epoch: 0xfeed_0000_0000_0000 | seed };
    let members = ids.iter().map(|id| GroupMember { peer: (*id).into(), incarnation: Incarnation(100 + id.0) });
    let mut processes: Vec<_> = ids
        .iter()
        .map(|id| {
            network.device(*id).join(GROUP).expect("a group is free");
            let mut memory = network.memory(*id);
            let region = memory.make(WINDOW * SEGMENT_BYTES as usize);
            let ring = Ring { region, offset: 0, segment_bytes: SEGMENT_BYTES };
            let stream = SimStream::new(key, config, Rank(id.0), members.clone(), ring);
            Process { id: *id, stream, memory, message: Vec::new(), arrived: Vec::new() }
        })
        .collect();
    let losses = inject(&network, options, seed);
    let mut queued = Vec::new();
    let mut next_segment = 0;
    let mut death = options.death;
    network.wake_at(ids[0], 0);
    while let Some(step) = network.step_until(60_000_000_000) {
        if let Some((dead, at, known)) = death {
            if step.at >= at {
                network.crash(NodeId(dead));
                processes[dead as usize].arrived.clear();
            }
            if step.at >= known {
                death = None;
                for process in processes.iter_mut().filter(|process| process.id.0 != dead) {
                    process.stream.handle_failed(step.at, Rank(dead));
                    network.wake_at(process.id, step.at);
                }
            } else if step.at >= at {
                network.wake_at(ids[0], known);
            } else {
                network.wake_at(ids[0], at);
            }
        }
        let process = &mut processes[step.node.0 as usize];
        if step.node == ids[0] {
            send(options, &network, process, &mut queued, &mut next_segment);
        }
        progress(options, &network, process);
        assert!(step.at < 50_000_000_000, "the run does not end");
    }
    let is_idle = processes[0].stream.is_idle();
    let losses = *losses.borrow();
    StreamOutcome {
        queued,
        is_idle,
        losses,
        counters: processes.iter().map(|process| *process.stream.counters()).collect(),
        arrived: processes.into_iter().map(|process| process.arrived).collect(),
    }
}

/// Loses what the options name, and counts what was lost.
fn inject(network: &Network, options: &StreamRun, seed: u64) -> Rc<RefCell<u64>> {
    let losses = Rc::new(RefCell::new(0));
    let (counted, mut lost, random_loss) = (Rc::clone(&losses), options.lost.clone(), options.random_loss);
    let (mut random, mut first) = (fastrand::Rng::with_seed(seed), None);
    network.tamper(move |datagram| {
        let head = &datagram.bytes[..datagram.bytes.len().min(64)];
        let parsed = Datagram::<32>::parse(head, datagram.bytes.len() as u32).expect("a datagram of the stream");
        let named = match parsed.body {
            Body::Segment(segment) if datagram.cause == Some(TxReason::First) => {
                let first = *first.get_or_insert(segment.psn);
                lost.remove(&(segment.psn.since(first), datagram.to.0))
            }
            _ => false,
        };
        if named || random_loss > 0 && random.u64(..random_loss) == 0 {
            *counted.borrow_mut() += 1;
            return TamperVerdict::Take;
        }
        TamperVerdict::Pass
    });
    losses
}

/// Queues the segments that are due.
fn send(options: &StreamRun, network: &Network, root: &mut Process, queued: &mut Vec<u64>, next_segment: &mut u32) {
    let (now, segments) = (network.now(), options.segments());
    while *next_segment < options.messages * segments && root.stream.room() > 0 {
        let (message, index) = (*next_segment / segments, *next_segment % segments);
        let due = u64::from(message) * options.interval_ns;
        if due > now {
            network.wake_at(root.id, due);
            break;
        }
        let span = root.stream.enqueue(index, options.bytes).expect("there is room");
        let bytes = payload(message, options.bytes);
        let start = (index * SEGMENT_BYTES) as usize;
        let part = &bytes[start..start + span.bytes as usize];
        root.memory.write(span.region, span.offset, part).expect("the ring has the place");
        if index == 0 {
            queued.push(now);
        }
        *next_segment += 1;
    }
}

fn progress(options: &StreamRun, network: &Network, process: &mut Process) {
    let now = network.now();
    let mut device = network.device(process.id);
    let Process { id, stream, memory, message, arrived } = process;
    let inner = memory.clone();
    while stream.make_progress(now, &mut device, memory, BUDGET, |delivery| {
        message.extend(inner.read(delivery.payload).expect("the ring has the place"));
        if delivery.is_last {
            let number = arrived.len() as u32;
            assert!(*message == payload(number, options.bytes), "message {number} arrived changed at {id:?}");
            message.clear();
            arrived.push(now);
        }
    }) {}
    if let Some(at) = stream.poll_timeout() {
        network.wake_at(*id, at);
    }
}
