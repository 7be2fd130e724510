//! One rank: an endpoint, a messenger, and the executors of its collectives.

use alloc::collections::VecDeque;
use std::collections::HashMap;

use unisono_core::collective::{CollectiveMachine as _, Poll};
use unisono_core::counters::Counters;
use unisono_core::device::{Device, DeviceQueue};
use unisono_core::endpoint::{self, Endpoint, Handler, Verdict};
use unisono_core::ids::{CollectiveId, Incarnation, PeerId, Rank, RemoteKey, StepId};
use unisono_core::message::collective_transport::header::{EAGER_HEADER, TransportKind};
use unisono_core::message::collective_transport::{self, CollectivePeer, Entry, StepKey};
use unisono_core::message::matching::{PostedReceive, Unexpected};
use unisono_core::message::point_to_point;
use unisono_core::messenger::{
    Config, Event, Messenger, MessengerHandler, Pools, QueuedMessage, ReceiveOp, SendOp, StepError, StepMessage, Stores,
};
use unisono_core::progress::make_progress;
use unisono_core::schedule::StepOperation;
use unisono_core::span::{Region, RegionRange, Span};
use unisono_core::transport::{EndpointHost, EndpointTransport, Token, TokenTable};
use unisono_core::wire::HEADER;
use unisono_memory::endpoint_storage::{BoxedMessageStorage, BoxedStorage, EndpointSizes, buckets};

use super::Workload;
use super::running::Running;
use crate::sim::{Network, NodeId, SimMemory};

const CREDIT: u8 = 4;
const HEADERS: usize = 4;
/// Steps that an executor has under way at most.
const WINDOW: usize = 64;
/// Messages that wait for the endpoint.
const OUTBOX: usize = 256;
/// Datagrams that are received and sent in one round.
const BUDGET: u32 = 64;

/// Progress of a rank, for the observer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProgressEvent {
    /// It has entered that collective of the list.
    Entered(usize),
    /// It has left it, with this output and perhaps more bytes after it.
    Left(usize, Vec<u8>),
}

/// Counts of its messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MessageCounts {
    /// Eager messages.
    pub eager: u64,
    /// Announced messages.
    pub announced: u64,
    /// Messages that others had to fetch.
    pub asked: u64,
}

/// A step of a collective under way: the collective's place, and the step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct StepUser(u32);

impl StepUser {
    const STEP_BITS: u32 = 24;

    fn new(place: usize, step: StepId) -> Self {
        Self((place as u32) << Self::STEP_BITS | step.0)
    }

    fn parts(self) -> (usize, StepId) {
        ((self.0 >> Self::STEP_BITS) as usize, StepId(self.0 & ((1 << Self::STEP_BITS) - 1)))
    }
}

/// The handler of the endpoint's messages: counts them by kind.
struct CountingHandler<'a> {
    messenger: MessengerHandler<'a, BoxedMessageStorage>,
    counts: &'a mut MessageCounts,
}

impl Handler for CountingHandler<'_> {
    fn handle_eager(&mut self, from: PeerId, head: &[u8], bytes: u32) -> Verdict {
        let kind = head.first().copied();
        let is = |of: TransportKind| u64::from(kind == Some(of as u8));
        self.counts.eager += is(TransportKind::Eager);
        self.counts.announced += is(TransportKind::Rts);
        self.counts.asked += is(TransportKind::RtsRequest);
        self.messenger.handle_eager(from, head, bytes)
    }
}

/// The memory of a rank, and its remote keys.
#[derive(Debug)]
struct Host {
    memory: SimMemory,
    rank: u32,
    keys: u64,
}

impl EndpointHost for Host {
    fn next_key(&mut self) -> RemoteKey {
        self.keys += 1;
        RemoteKey(self.keys << 8 | u64::from(self.rank))
    }

    fn copy(&mut self, from: Span, into: RegionRange) {
        let payload = self.memory.read(from).expect("a slot");
        self.memory.write(into.region, into.offset, &payload).expect("as long as its receive");
    }
}

type Tokens = TokenTable<Box<[Token]>, Box<[Token]>>;

/// A rank.
#[derive(Debug)]
pub struct SimRank {
    id: NodeId,
    network: Network,
    endpoint: Endpoint<BoxedStorage, 64, 32>,
    messenger: Messenger<BoxedMessageStorage>,
    tokens: Tokens,
    host: Host,
    running: Vec<Option<Running>>,
    /// The first collective of the list that was not entered.
    next: usize,
    /// Payload of the steps under way.
    buffers: HashMap<StepUser, Region>,
    /// Steps that found the messenger full.
    stalled: VecDeque<(usize, StepId, StepOperation)>,
    counts: MessageCounts,
    /// The rails in doubt, one bit for each, and how often one became so.
    doubtful: u8,
    rail_deaths: u32,
    events: Vec<ProgressEvent>,
}

/// A job of `size` connected ranks that run up to `outstanding` collectives at a time. Steps of up to `eager` bytes that
/// fit in a datagram are sent at once.
pub(super) fn job(network: &Network, size: usize, outstanding: usize, eager: u32) -> Vec<SimRank> {
    let ids: Vec<NodeId> = (0..size).map(|_| network.add_node()).collect();
    let mut members: Vec<SimRank> = ids.iter().map(|id| SimRank::new(network, *id, size, outstanding, eager)).collect();
    for member in &mut members {
        for id in ids.iter().filter(|id| **id != member.id) {
            let mtu = network.path_mtu(member.id, *id);
            member.endpoint.add_peer(network.now(), (*id).into(), incarnation(*id), mtu);
        }
        network.wake_at(member.id, network.now());
    }
    members
}

const fn incarnation(id: NodeId) -> Incarnation {
    Incarnation(0x1000 + id.0)
}

/// `limits`: bytes of the longest eager step to each peer; `eager`: those of a slot for one.
fn messenger(limits: &[u32], outstanding: usize, eager: u32, steps: Region) -> Messenger<BoxedMessageStorage> {
    fn free<R: Clone>(record: R, count: usize) -> Box<[R]> {
        vec![record; count].into()
    }
    let size = limits.len();
    let records = WINDOW * outstanding;
    let pools = Pools {
        messages: point_to_point::Pools {
            receives: free(PostedReceive::default(), 1),
            messages: free(Unexpected::default(), size),
            sends: free(point_to_point::SendRecord::FREE, 1),
            peers: free(point_to_point::MessagePeer::NEW, size),
            slots: [].into(),
            buckets: [buckets(1), buckets(size), buckets(1)],
        },
        steps: collective_transport::Pools {
            peers: limits.iter().map(|limit| CollectivePeer::new(*limit)).collect(),
            sends: free(Entry::FREE, records),
            receives: free(Entry::FREE, records),
            slots: free(Entry::FREE, usize::from(CREDIT) * (size - 1)),
            headers: free(Entry::FREE, HEADERS),
        },
        sends: [free(SendOp::FREE, 1), free(SendOp::FREE, records)],
        receives: [free(ReceiveOp::FREE, 1), free(ReceiveOp::FREE, records)],
        outboxes: [free(QueuedMessage::FREE, 1), free(QueuedMessage::FREE, OUTBOX)],
    };
    let stores = Stores { short: Region::default(), slots: Region::default(), steps, step_bytes: eager };
    let messages = point_to_point::Config { headers: 1, short: 0, slot: 0, seed: 0 };
    Messenger::new(Config { messages, step_credit: CREDIT, stores }, pools).expect("slots for all credit")
}

impl SimRank {
    fn new(network: &Network, id: NodeId, size: usize, outstanding: usize, eager: u32) -> Self {
        let limits = network.device(id).limits();
        let config = endpoint::Config::new(id.into(), incarnation(id), &limits);
        let mut memory = network.memory(id);
        let slots = memory.make(usize::from(CREDIT) * (size - 1) * eager as usize);
        let room = |peer: u32| network.path_mtu(id, NodeId(peer)).saturating_sub((HEADER + EAGER_HEADER) as u32);
        let longest: Vec<u32> = (0..size as u32).map(|peer| room(peer).min(eager)).collect();
        let sizes = EndpointSizes::of_job(size).with_rails(limits.rails);
        let tokens = [sizes.operations, sizes.placements].map(|records| vec![Token::NOBODY; records].into());
        let [operations, placements] = tokens;
        Self {
            id,
            network: network.clone(),
            endpoint: Endpoint::new(network.now(), config, sizes.pools()),
            messenger: messenger(&longest, outstanding, eager, slots),
            tokens: TokenTable::new(operations, placements),
            host: Host { memory, rank: id.0, keys: 0 },
            running: (0..outstanding).map(|_| None).collect(),
            next: 0,
            buffers: HashMap::new(),
            stalled: VecDeque::new(),
            counts: MessageCounts::default(),
            doubtful: 0,
            rail_deaths: 0,
            events: Vec::new(),
        }
    }

    /// Counts of the messages that have arrived.
    pub const fn counts(&self) -> MessageCounts {
        self.counts
    }

    /// How often it stopped using a rail.
    pub const fn rail_deaths(&self) -> u32 {
        self.rail_deaths
    }

    /// Whether nothing of it is left anywhere.
    pub fn is_idle(&self) -> bool {
        self.messenger.is_idle() && self.buffers.is_empty() && self.running.iter().all(Option::is_none)
    }

    /// Makes all possible progress. Returns the collectives that it entered and left.
    pub fn drive(&mut self, lane: DeviceQueue, works: &[Workload]) -> Vec<ProgressEvent> {
        let now = self.network.now();
        loop {
            let mut moved = self.progress(works);
            moved |= self.with_transport(|messenger, transport| messenger.progress(transport));
            moved |= self.exchange(lane);
            while let Some(event) = self.endpoint.poll_event(now) {
                moved = true;
                match event {
                    // They compute nothing, but may be idle for long.
                    endpoint::Event::PeerSilent(_) => {}
                    endpoint::Event::PeerFailed(peer) | endpoint::Event::PeerFinished(peer) => {
                        panic!("{peer:?} is gone")
                    }
                    event => {
                        self.with_transport(|messenger, transport| messenger.handle_endpoint_event(transport, event))
                    }
                }
            }
            while let Some(event) = self.messenger.poll_event() {
                moved = true;
                self.handle(event);
            }
            if !moved {
                break;
            }
        }
        // Acknowledgements that nothing carried leave in the round after.
        self.exchange(lane);
        if let Some(at) = self.endpoint.poll_timeout(now) {
            self.network.wake_at(self.id, at);
        }
        let doubtful = self.endpoint.doubtful_rails();
        self.rail_deaths += (doubtful & !self.doubtful).count_ones();
        self.doubtful = doubtful;
        core::mem::take(&mut self.events)
    }

    /// Receives and sends datagrams.
    fn exchange(&mut self, lane: DeviceQueue) -> bool {
        let (now, mut device) = (self.network.now(), self.network.device(self.id));
        let Self { endpoint, messenger, host, counts, .. } = self;
        let messenger = MessengerHandler { messenger, counters: &mut Counters::default() };
        let mut handler = CountingHandler { messenger, counts };
        make_progress(now, lane, endpoint, &mut device, &host.memory, &mut handler, BUDGET)
    }

    fn with_transport<T>(
        &mut self,
        run: impl FnOnce(
            &mut Messenger<BoxedMessageStorage>,
            &mut EndpointTransport<'_, BoxedStorage, Box<[Token]>, Box<[Token]>, Host, 64, 32>,
        ) -> T,
    ) -> T {
        let now = self.network.now();
        let Self { endpoint, messenger, tokens, host, .. } = self;
        run(messenger, &mut EndpointTransport { now, endpoint, tokens, host })
    }

    fn handle(&mut self, event: Event) {
        let (user, is_receive) = match event {
            Event::Sent { user, result: Ok(()), .. } => (StepUser(user), false),
            Event::Received { user, result: Ok(_), .. } => (StepUser(user), true),
            other => panic!("nobody fails or violates the protocol here: {other:?}"),
        };
        let region = self.buffers.remove(&user).expect("a step under way");
        let (place, step) = user.parts();
        let running = self.running[place].as_mut().expect("it waits for its steps");
        if is_receive {
            let span = running.receive_of(step);
            let bytes = running.length(span);
            let payload = self.host.memory.read(Span { region, offset: 0, bytes }).expect("a region of that size");
            running.scatter(span, &payload);
        }
        running.executor.handle_done(step);
        self.host.memory.retire(region);
    }

    /// Begins the steps that can begin. Returns whether there were any.
    fn progress(&mut self, works: &[Workload]) -> bool {
        let mut moved = false;
        for _ in 0..self.stalled.len() {
            let Some((place, step, operation)) = self.stalled.pop_front() else { break };
            moved |= self.begin(place, step, operation);
        }
        for place in 0..self.running.len() {
            moved |= self.run(place, works);
        }
        moved
    }

    /// Begins the runnable steps of the collective in a slot, or the next collective.
    fn run(&mut self, place: usize, works: &[Workload]) -> bool {
        let mut moved = false;
        loop {
            if self.running[place].is_none() {
                let Some(work) = works.get(self.next) else { return moved };
                self.running[place] = Some(Running::new(self.next, work, Rank(self.id.0)));
                self.events.push(ProgressEvent::Entered(self.next));
                self.next += 1;
            }
            let Some(running) = &mut self.running[place] else { return moved };
            match running.executor.poll() {
                Poll::Request(step, operation) => _ = self.begin(place, step, operation),
                Poll::Complete => {
                    let work = running.work;
                    let output = self.running[place].take().map(Running::output);
                    self.events.push(ProgressEvent::Left(work, output.unwrap_or_default()));
                }
                Poll::Pending => return moved,
                Poll::Failed(failure) => panic!("{failure}"),
            }
            moved = true;
        }
    }

    /// Begins a step. Returns false if the messenger is full: it is begun later.
    fn begin(&mut self, place: usize, step: StepId, operation: StepOperation) -> bool {
        let user = StepUser::new(place, step);
        let running = self.running[place].as_mut().expect("it was just polled");
        let CollectiveId { context, sequence } = running.executor.id();
        let key = |step| StepKey { context, sequence, step };
        let (peer, key, payload, port) = match operation {
            StepOperation::Send { to, key: step, from, port } => (to, key(step), running.gather(from), Some(port)),
            StepOperation::Receive { of, key: step, into, .. } => {
                (of, key(step), vec![0; running.length(into) as usize], None)
            }
            StepOperation::Copy { from, into } => {
                running.combine(from, into, None);
                running.executor.handle_done(step);
                return true;
            }
            StepOperation::Group(_) => unreachable!("a flat schedule"),
            StepOperation::Reduce { from, into, fold } => {
                running.combine(from, into, Some(fold));
                running.executor.handle_done(step);
                return true;
            }
        };
        let (peer, region) = (PeerId(peer.0), self.host.memory.make(payload.len()));
        self.host.memory.write(region, 0, &payload).expect("a region of that size");
        let span = Span { region, offset: 0, bytes: payload.len() as u32 };
        let posted = self.with_transport(|messenger, transport| match port {
            Some(port) => {
                let message = StepMessage { to: peer, key, payload: span, at: 0, port, user: user.0 };
                messenger.send_step(transport, &message)
            }
            None => messenger.receive_step(transport, peer, key, span, user.0),
        });
        match posted {
            Ok(()) => _ = self.buffers.insert(user, region),
            Err(StepError::Full) => {
                self.host.memory.retire(region);
                self.stalled.push_back((place, step, operation));
                return false;
            }
            Err(error) => panic!("{error:?}"),
        }
        true
    }
}
