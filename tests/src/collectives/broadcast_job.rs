//! A job in the simulated network whose ranks broadcast: by the stream of a group, by the steps of a schedule, and by
//! copies within a host. The machines are those that ship. The simulated network loses nothing here.

mod message;
mod pool;
mod schedule;

use alloc::collections::BTreeMap;

use unisono_core::device::{
    Destination, Device as _, DeviceQueue, HEADER_ROOM, Memory as _, Received as _, Token as _, Transmit, TxReason,
};
use unisono_core::ids::{GroupId, Incarnation, PeerId, Rank, StepId};
use unisono_core::multicast::{
    AckMode, GroupKey, GroupMember, GroupPool, GroupTest, PoolMessage, PoolRoot, Ring, SEGMENT_HEADER, Stream,
    StreamConfig, Topology, UnreliableHeader,
};
use unisono_core::schedule::Executor;
use unisono_core::span::{Region, Span};
use unisono_core::time::{Nanos, units};

use super::group_parameters::GroupParameters;
use crate::sim::{Network, NodeId, SimAddress, SimMemory};

pub use self::message::{Local, Message};
pub use self::pool::pool_group;
pub use self::schedule::BroadcastPlan;

/// Ranks at most.
pub const RANKS: usize = 64;
/// Groups of a pool.
pub const PLACES: usize = 8;
/// Segments of a stream's window.
const WINDOW: usize = 64;
/// The largest message.
pub const BYTES_MAX: u32 = 4096;

type SimStream = Stream<Nanos, RANKS, WINDOW, 32>;

/// A rank.
#[derive(Debug)]
pub struct BroadcastRank {
    /// Its place in the network.
    pub id: NodeId,
    /// The stream of the root of broadcasts.
    pub stream: Option<Box<SimStream>>,
    /// The test of the group, at the root.
    pub test: Option<GroupTest<Nanos, RANKS>>,
    /// Its part of the pool.
    pub pool: GroupPool<PLACES>,
    /// Broadcasts that it has got.
    pub received: u32,
    /// When it got the last one.
    pub received_at: u64,
    /// When it entered the present call.
    pub entered: u64,
    memory: SimMemory,
    buffer: Region,
    ring: Option<Region>,
    plan: Option<BroadcastPlan>,
    executor: Option<(u32, Executor<BroadcastPlan>)>,
    /// Steps whose data has arrived, and steps that wait for it, by sender and key.
    arrived: Vec<(u32, u32)>,
    begun: BTreeMap<(u32, u32), StepId>,
    local: Vec<(u64, Local)>,
}

/// What the ranks' hosts do that is not the same in all experiments.
pub trait Host {
    /// A rank has got a broadcast.
    fn handle_received(&mut self, job: &mut BroadcastJob, rank: usize, call: u32);
    /// A copy of its leader has arrived at a rank, which may have the broadcast already.
    fn handle_copy(&mut self, job: &mut BroadcastJob, rank: usize, call: u32, leader_wait: u64);
}

/// All ranks of a job. Rank 0 is the root of broadcasts.
#[derive(Debug)]
pub struct BroadcastJob {
    /// The network.
    pub network: Network,
    /// Its costs.
    pub parameters: GroupParameters,
    /// Bytes of a broadcast, at least 4.
    pub bytes: u32,
    /// The ranks.
    pub ranks: Vec<BroadcastRank>,
    /// The root of the pool, and its rank.
    pool_root: Option<PoolRoot<Nanos, PLACES, RANKS>>,
    pool_rank: usize,
    /// Ranks per host, adjacent ones.
    per_host: usize,
}

/// A broadcast's data: its number, then bytes that follow from it.
fn payload(call: u32, bytes: u32) -> Vec<u8> {
    let rest = (4..bytes).map(|at| (call.wrapping_mul(31) ^ at.wrapping_mul(7)) as u8);
    call.to_le_bytes().into_iter().chain(rest).collect()
}

const QUEUE: DeviceQueue = DeviceQueue::Polled;

impl BroadcastJob {
    /// A job of `ranks` ranks, `per_host` on each host.
    ///
    /// # Panics
    /// Messages of this length are not simulated.
    pub fn new(network: Network, parameters: GroupParameters, ranks: u32, per_host: usize, bytes: u32) -> Self {
        assert!((4..=BYTES_MAX).contains(&bytes) && ranks as usize <= RANKS, "{bytes} bytes, {ranks} ranks");
        let ranks: Vec<_> = (0..ranks)
            .map(|rank| {
                let id = network.add_node();
                if !(rank as usize).is_multiple_of(per_host) {
                    network.share_link(id, NodeId(rank - rank % per_host as u32));
                }
                let mut memory = network.memory(id);
                let buffer = memory.make(BYTES_MAX as usize);
                BroadcastRank {
                    id,
                    stream: None,
                    test: None,
                    pool: GroupPool::new(),
                    received: 0,
                    received_at: 0,
                    entered: 0,
                    memory,
                    buffer,
                    ring: None,
                    plan: None,
                    executor: None,
                    arrived: Vec::new(),
                    begun: BTreeMap::new(),
                    local: Vec::new(),
                }
            })
            .collect();
        Self { network, parameters, bytes, ranks, pool_root: None, pool_rank: 0, per_host }
    }

    fn now(&self) -> u64 {
        self.network.now()
    }

    /// Whether two ranks are on one host.
    pub const fn is_local(&self, one: usize, other: usize) -> bool {
        one / self.per_host == other / self.per_host
    }

    /// Makes a rank's end of the stream of rank 0 over a group of these ranks. `own` is its number in the stream.
    pub fn open_stream(&mut self, rank: usize, own: u32, members: &[u32], key: GroupKey) {
        let founders = members.len() as u32;
        let topology = Topology { mode: AckMode::Basic, founders, root: Rank(0) };
        let granularity = units(4 * self.parameters.latency_ns);
        let (max_interval, deaf_sample) = (units(100_000_000), 0);
        let config = StreamConfig { topology, ack_every: 1, granularity, max_interval, deaf_sample };
        let members = members.iter().map(|rank| member(*rank));
        let of = &mut self.ranks[rank];
        let region = of.memory.make(WINDOW * BYTES_MAX as usize);
        if let Some(former) = of.ring.replace(region) {
            of.memory.retire(former);
        }
        let ring = Ring { region, offset: 0, segment_bytes: BYTES_MAX };
        let stream = SimStream::new(key, config, Rank(own), members, ring);
        of.stream = Some(Box::new(stream));
    }

    /// Makes a rank's device a member of a group. A rank that cannot join makes no stream.
    pub fn join(&mut self, rank: usize, group: GroupId) -> bool {
        self.network.device(self.ranks[rank].id).join(group).is_ok()
    }

    /// Ends a rank's membership.
    pub fn leave(&mut self, rank: usize, group: GroupId) {
        // A rank that is no member gets nothing either.
        let _ = self.network.device(self.ranks[rank].id).leave(group);
    }

    /// Sends a message; the data of a step goes along.
    ///
    /// # Panics
    /// The device has no free entry.
    pub fn send(&self, from: usize, to: usize, number: u32, message: Message) {
        let of = &self.ranks[from];
        let header = message.encode(number);
        let is_step = matches!(message, Message::Step { .. });
        let span = Span { region: of.buffer, offset: 0, bytes: self.bytes };
        let payload = is_step.then(|| of.memory.address(span).expect("the buffer"));
        let destination = Destination::first_rail(PeerId(self.ranks[to].id.0));
        post(&self.network, of.id, destination, &header, payload.map(|address| (span, address)));
    }

    /// Begins a broadcast at the root by the group. `false`: the stream's window is full.
    pub fn begin_multicast(&mut self, call: u32, host: &mut impl Host) -> bool {
        let (data, now) = (payload(call, self.bytes), self.now());
        let root = &mut self.ranks[0];
        let stream = root.stream.as_mut().expect("a stream");
        let Ok(span) = stream.enqueue(0, self.bytes) else { return false };
        root.memory.write(span.region, span.offset, &data).expect("the ring");
        self.receive(0, call, host);
        self.transmit(now, 0);
        true
    }

    /// A rank has the data of a broadcast.
    fn receive(&mut self, rank: usize, call: u32, host: &mut impl Host) {
        let now = self.now();
        let of = &mut self.ranks[rank];
        if of.received > call {
            return;
        }
        assert_eq!(of.received, call, "rank {rank} misses a broadcast");
        (of.received, of.received_at) = (call + 1, now);
        host.handle_received(self, rank, call);
    }

    /// Sends a rank of the same host something that takes a copy.
    pub fn send_local(&mut self, to: usize, what: Local) {
        let at = self.now() + self.parameters.copy(self.bytes);
        self.ranks[to].local.push((at, what));
        self.network.wake_at(self.ranks[to].id, at);
    }

    fn handle_message(&mut self, rank: usize, from: u32, message: Message, host: &mut impl Host) {
        let now = self.now();
        let of = &mut self.ranks[rank];
        match message {
            Message::Step { call, key } => {
                let data = of.memory.read(Span { region: of.buffer, offset: 0, bytes: self.bytes });
                assert!(data == Some(payload(call, self.bytes)), "broadcast {call} arrived changed at {rank}");
                self.handle_step(rank, (from, key), call, host);
            }
            Message::Joined => {
                of.test.iter_mut().for_each(|test| test.handle_joined(now, Rank(from)));
            }
            Message::Pool(message) => match &mut self.pool_root {
                Some(root) if rank == self.pool_rank => root.handle_message(now, Rank(from), message),
                _ => of.pool.handle_message(message),
            },
            Message::Attached => {
                let attached = of.stream.as_mut().expect("a stream");
                attached.add_member(now, Rank(from), member(from - RANKS as u32 / 2));
            }
            Message::Detached => {
                of.stream.as_mut().expect("a stream").handle_failed(now, Rank(from));
            }
        }
    }

    /// Drives a rank: everything that has arrived or is due.
    pub fn drive(&mut self, rank: usize, host: &mut impl Host) {
        let now = self.now();
        let id = self.ranks[rank].id;
        let mut device = self.network.device(id);
        loop {
            let of = &mut self.ranks[rank];
            let Some(datagram) = device.receive(QUEUE) else { break };
            let slot = datagram.slot();
            let first = datagram.prefix().first().map_or(0, |first| first & 15);
            if first == 15 {
                let (from, message) = Message::parse(datagram.prefix()).expect("a message of a rank");
                if let Message::Step { .. } = message {
                    let to = of.memory.address(Span { region: of.buffer, offset: 0, bytes: self.bytes });
                    device.place(slot, SEGMENT_HEADER as u16, self.bytes, to.expect("the buffer"));
                }
                device.release(slot);
                self.handle_message(rank, from, message, host);
                continue;
            }
            if UnreliableHeader::is_unreliable(datagram.prefix()) {
                let (_, rest) = UnreliableHeader::parse(datagram.prefix()).expect("a probe");
                of.pool.handle_message(PoolMessage::parse(rest).expect("a probe"));
                device.release(slot);
                continue;
            }
            if let (Some(test), Some(stream)) = (&mut of.test, &of.stream)
                && let Some(member) = stream.reporter(&datagram)
            {
                test.handle_answer(now, member);
            }
            let place = of.stream.as_mut().and_then(|stream| stream.handle_datagram(now, &datagram));
            if let Some(span) = place {
                let to = of.memory.address(span).expect("the ring");
                device.place(slot, SEGMENT_HEADER as u16, span.bytes, to);
            }
            device.release(slot);
            while let Some(delivery) = self.ranks[rank].stream.as_mut().and_then(|stream| stream.poll_delivery()) {
                let data = self.ranks[rank].memory.read(delivery.payload).expect("the ring");
                let call = data.first_chunk().map(|call| u32::from_le_bytes(*call)).expect("a number");
                assert!(data == payload(call, self.bytes), "broadcast {call} arrived changed at {rank}");
                self.receive(rank, call, host);
            }
        }
        self.handle_local(rank, host);
        self.advance_pool(now, rank);
        self.transmit(now, rank);
    }

    fn handle_local(&mut self, rank: usize, host: &mut impl Host) {
        let now = self.now();
        let (mut due, rest): (Vec<_>, Vec<_>) =
            core::mem::take(&mut self.ranks[rank].local).into_iter().partition(|(at, _)| *at <= now);
        self.ranks[rank].local = rest;
        due.sort_unstable();
        for (_, what) in due {
            match what {
                Local::Step(from, call, key) => {
                    let of = &mut self.ranks[rank];
                    of.memory.write(of.buffer, 0, &payload(call, self.bytes)).expect("the buffer");
                    self.handle_step(rank, (from, key), call, host);
                }
                Local::Copy(call, leader_wait) => {
                    self.receive(rank, call, host);
                    host.handle_copy(self, rank, call, leader_wait);
                }
            }
        }
        if let Some(next) = self.ranks[rank].local.iter().map(|(at, _)| *at).min() {
            self.network.wake_at(self.ranks[rank].id, next);
        }
    }

    /// Handles the timers of a rank's stream and test, and sends what they request.
    pub fn transmit(&mut self, now: u64, rank: usize) {
        let of = &mut self.ranks[rank];
        let (Some(stream), memory) = (&mut of.stream, &of.memory) else { return };
        stream.handle_timeout(now);
        let mut device = self.network.device(of.id);
        if let Some(test) = &mut of.test {
            test.handle_timeout(now);
            if test.poll_transmit() {
                let mut token = device.token(QUEUE).expect("a free entry");
                let probe = stream.group_probe(token.header_room()).expect("the root's stream");
                token.post(&probe, None);
                device.flush(QUEUE);
            }
            test.poll_timeout().into_iter().for_each(|at| self.network.wake_at(of.id, at));
        }
        loop {
            let mut token = device.token(QUEUE).expect("a free entry");
            let Some(transmit) = stream.poll_transmit(now, token.header_room()) else { break };
            let payload = transmit.payload.and_then(|span| memory.address(span));
            token.post(&transmit, payload);
            device.flush(QUEUE);
        }
        stream.poll_timeout().into_iter().for_each(|at| self.network.wake_at(of.id, at));
    }

    /// Drives the ranks until `is_done`. `false`: nothing happens any more, or 100 s have passed.
    pub fn run_until(&mut self, host: &mut impl Host, mut is_done: impl FnMut(&mut Self) -> bool) -> bool {
        let deadline = self.now() + 100_000_000_000;
        while !is_done(self) {
            let Some(step) = self.network.step_until(deadline) else { return false };
            self.drive(step.node.0 as usize, host);
        }
        true
    }

    /// Drives the ranks until this time.
    pub fn run_to(&mut self, host: &mut impl Host, at: u64) {
        while let Some(step) = self.network.step_until(at) {
            self.drive(step.node.0 as usize, host);
        }
    }
}

/// A rank as streams name it.
pub fn member(rank: u32) -> GroupMember {
    GroupMember { peer: PeerId(rank), incarnation: Incarnation(100 + rank) }
}

/// Posts a datagram and flushes.
fn post(network: &Network, from: NodeId, to: Destination, header: &[u8], payload: Option<(Span, SimAddress)>) {
    let mut device = network.device(from);
    let mut token = device.token(QUEUE).expect("a free entry");
    let room: &mut [u8; HEADER_ROOM] = token.header_room();
    room[..header.len()].copy_from_slice(header);
    let (span, address) = payload.unzip();
    let header_bytes = header.len() as u8;
    let transmit =
        Transmit { to, queue: QUEUE, header_bytes, payload: span, solicited: false, reason: TxReason::First };
    token.post(&transmit, address);
    device.flush(QUEUE);
}
