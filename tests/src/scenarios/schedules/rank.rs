//! One rank: the host code that joins an endpoint, the collective transport and the executors.

use alloc::collections::VecDeque;
use std::collections::HashMap;

use unisono_core::collective::Poll;
use unisono_core::device::{Device, DeviceQueue};
use unisono_core::endpoint::operation::EnqueueError;
use unisono_core::endpoint::{Config, Endpoint, Event, Handler, Verdict};
use unisono_core::ids::{self, CollectiveId, Incarnation, OperationId, PeerId, PlacementId, Rank, StepId};
use unisono_core::message::collective_transport::{
    Arrival, CollectivePeer, CollectiveTransport, Entry, Pools, Posted, RecordUsage, Sent, StepHeader, StepKey,
    TransportAction,
};
use unisono_core::progress::make_progress;
use unisono_core::schedule::StepOperation;
use unisono_core::span::{Region, Span};
use unisono_memory::endpoint_storage::{BoxedStorage, EndpointSizes};

use super::Workload;
use super::running::Running;
use crate::sim::{Network, NodeId, SimMemory};

/// Bytes of the longest eager message: some of [`LENGTHS`](super::LENGTHS) are longer.
const LIMIT: u32 = 64;
const CREDIT: u8 = 4;
const HEADERS: usize = 4;
/// Steps that an executor has under way at most.
const WINDOW: usize = 64;
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

/// An operation that waits for the endpoint.
#[derive(Debug)]
enum Deferred {
    /// A header, and perhaps a send's payload.
    Message(PeerId, StepHeader, Option<(StepUser, Option<Region>, u32)>),
    Grant(PeerId, StepUser, StepKey, u32),
    Place(PeerId, StepUser, PlacementId, ids::RemoteKey),
}

/// The message handler of the endpoint.
#[derive(Debug)]
struct MessageHandler {
    steps: CollectiveTransport<Box<[CollectivePeer]>, Box<[Entry]>>,
    slots: Region,
    /// Where the payload of each posted receive lands, and each announced send waits.
    receiving: HashMap<StepUser, Region>,
    sending: HashMap<StepUser, (Region, u32)>,
    /// Receives whose payload has landed.
    completed_receives: Vec<StepUser>,
    deferred: VecDeque<Deferred>,
}

impl Handler for MessageHandler {
    fn handle_eager(&mut self, from: PeerId, head: &[u8], bytes: u32) -> Verdict {
        let placed = |region, offset: usize, start: u16| match bytes - u32::from(start) {
            0 => Verdict::Release,
            bytes => Verdict::Place { to: Span { region, offset, bytes }, start },
        };
        match self.steps.handle(from, head, bytes) {
            Arrival::Into { user, start } => {
                self.completed_receives.push(StepUser(user));
                placed(self.receiving[&StepUser(user)], 0, start)
            }
            Arrival::Keep { slot, start, .. } => placed(self.slots, slot as usize * LIMIT as usize, start),
            Arrival::Place { user, placement, key } => {
                self.deferred.push_back(Deferred::Place(from, StepUser(user), placement, key));
                Verdict::Release
            }
            Arrival::Nothing => Verdict::Release,
            other => panic!("{from:?} violates the protocol: {other:?}"),
        }
    }
}

/// A rank.
#[derive(Debug)]
pub struct SimRank {
    id: NodeId,
    network: Network,
    endpoint: Endpoint<BoxedStorage, 64, 32>,
    memory: SimMemory,
    handler: MessageHandler,
    running: Vec<Option<Running>>,
    /// The first collective of the list that was not entered.
    next: usize,
    /// Payload of operations of the endpoint.
    posted: HashMap<OperationId, (StepUser, Option<Region>)>,
    granted: HashMap<PlacementId, StepUser>,
    keys: u64,
    counts: MessageCounts,
    events: Vec<ProgressEvent>,
}

/// A job of `size` connected ranks that run up to `outstanding` collectives at a time.
pub(super) fn job(network: &Network, size: usize, outstanding: usize) -> Vec<SimRank> {
    let ids: Vec<NodeId> = (0..size).map(|_| network.add_node()).collect();
    let mut members: Vec<SimRank> = ids.iter().map(|id| SimRank::new(network, *id, size, outstanding)).collect();
    for member in &mut members {
        for id in ids.iter().filter(|id| **id != member.id) {
            let mtu = network.device(member.id).limits().mtu;
            member.endpoint.add_peer(network.now(), (*id).into(), incarnation(*id), mtu);
        }
        network.wake_at(member.id, network.now());
    }
    members
}

const fn incarnation(id: NodeId) -> Incarnation {
    Incarnation(0x1000 + id.0)
}

impl SimRank {
    fn new(network: &Network, id: NodeId, size: usize, outstanding: usize) -> Self {
        let config = Config::new(id.into(), incarnation(id), &network.device(id).limits());
        let mut memory = network.memory(id);
        let free = |count| vec![Entry::FREE; count].into_boxed_slice();
        let slots = usize::from(CREDIT) * (size - 1);
        let pools = Pools {
            peers: vec![CollectivePeer::new(LIMIT); size].into(),
            sends: free(WINDOW * outstanding),
            receives: free(WINDOW * outstanding),
            slots: free(slots),
            headers: free(HEADERS),
        };
        let handler = MessageHandler {
            steps: CollectiveTransport::new(CREDIT, pools).expect("slots for all credit"),
            slots: memory.make(slots * LIMIT as usize),
            receiving: HashMap::new(),
            sending: HashMap::new(),
            completed_receives: Vec::new(),
            deferred: VecDeque::new(),
        };
        Self {
            id,
            network: network.clone(),
            endpoint: Endpoint::new(network.now(), config, EndpointSizes::of_job(size).pools()),
            memory,
            handler,
            running: (0..outstanding).map(|_| None).collect(),
            next: 0,
            posted: HashMap::new(),
            granted: HashMap::new(),
            keys: 0,
            counts: MessageCounts::default(),
            events: Vec::new(),
        }
    }

    /// Counts of its messages.
    pub const fn counts(&self) -> MessageCounts {
        self.counts
    }

    /// Whether nothing of it is left anywhere.
    pub fn is_idle(&self) -> bool {
        self.handler.steps.in_use() == RecordUsage::default()
            && self.handler.receiving.is_empty()
            && self.handler.sending.is_empty()
            && self.running.iter().all(Option::is_none)
    }

    /// Makes all possible progress. Returns the collectives that it entered and left.
    pub fn drive(&mut self, lane: DeviceQueue, works: &[Workload]) -> Vec<ProgressEvent> {
        let now = self.network.now();
        let mut device = self.network.device(self.id);
        loop {
            let mut moved = self.progress(works);
            moved |= make_progress(now, lane, &mut self.endpoint, &mut device, &self.memory, &mut self.handler, BUDGET);
            while let Some(event) = self.endpoint.poll_event(now) {
                self.handle(event);
                moved = true;
            }
            if !moved && self.handler.completed_receives.is_empty() {
                break;
            }
        }
        // Acknowledgements that nothing carried leave in the round after.
        make_progress(now, lane, &mut self.endpoint, &mut device, &self.memory, &mut self.handler, BUDGET);
        if let Some(at) = self.endpoint.poll_timeout(now) {
            self.network.wake_at(self.id, at);
        }
        core::mem::take(&mut self.events)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Completed(operation, result) => {
                assert_eq!(result, Ok(()), "nobody fails here");
                if let Some((user, region)) = self.posted.remove(&operation) {
                    region.into_iter().for_each(|region| self.memory.retire(region));
                    self.done(user);
                }
            }
            Event::Delivered(placement, _) => {
                let user = self.granted.remove(&placement).expect("a grant that is out");
                self.handler.completed_receives.push(user);
            }
            // They compute nothing, but may be idle for long.
            Event::PeerSilent(_) => {}
            Event::PeerFailed(peer) | Event::PeerFinished(peer) => panic!("{peer:?} is gone"),
        }
    }

    fn done(&mut self, user: StepUser) {
        let (place, step) = user.parts();
        self.running[place].as_mut().expect("it waits for its steps").executor.handle_done(step);
    }

    /// Everything but the endpoint's rounds. Whether anything moved.
    fn progress(&mut self, works: &[Workload]) -> bool {
        let mut moved = false;
        for user in core::mem::take(&mut self.handler.completed_receives) {
            self.unpack(user);
            moved = true;
        }
        for place in 0..self.running.len() {
            moved |= self.run(place, works);
        }
        while let Some(action) = self.handler.steps.poll_action() {
            self.handler.deferred.push_back(match action {
                TransportAction::Grant { to, user, key, bytes } => Deferred::Grant(to, StepUser(user), key, bytes),
                TransportAction::Send { to, head } => {
                    let kind = head.as_ref().first().copied();
                    self.counts.asked += u64::from(
                        kind == Some(
                            unisono_core::message::collective_transport::header::TransportKind::RtsRequest as u8,
                        ),
                    );
                    Deferred::Message(to, head, None)
                }
            });
        }
        while let Some(op) = self.handler.deferred.pop_front() {
            if let Some(op) = self.submit(op) {
                self.handler.deferred.push_front(op);
                break;
            }
            moved = true;
        }
        moved
    }

    /// The payload of a receive has landed.
    fn unpack(&mut self, user: StepUser) {
        let region = self.handler.receiving.remove(&user).expect("a receive that was posted");
        let (place, step) = user.parts();
        let running = self.running[place].as_mut().expect("it waits for its receives");
        let span = running.receive_of(step);
        let bytes = running.length(span);
        let payload = self.memory.read(Span { region, offset: 0, bytes }).expect("a region of that size");
        running.scatter(span, &payload);
        running.executor.handle_done(step);
        self.memory.retire(region);
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
                Poll::Request(step, operation) => self.begin(place, step, &operation),
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

    fn begin(&mut self, place: usize, step: StepId, operation: &StepOperation) {
        let user = StepUser::new(place, step);
        let running = self.running[place].as_mut().expect("it was just polled");
        let CollectiveId { context, sequence } = running.executor.id();
        let key = |step| StepKey { context, sequence, step };
        match *operation {
            StepOperation::Send { to, key: step, from, .. } => {
                let (to, payload) = (PeerId(to.0), running.gather(from));
                let bytes = payload.len() as u32;
                let region = self.memory.make(payload.len());
                self.memory.write(region, 0, &payload).expect("a region of that size");
                match self.handler.steps.send(to, key(step), bytes, user.0).expect("room for every step") {
                    Sent::Eager(head) => {
                        self.counts.eager += 1;
                        self.handler.deferred.push_back(Deferred::Message(to, head, Some((user, Some(region), bytes))));
                    }
                    Sent::Rts(head) => {
                        self.counts.announced += 1;
                        self.handler.sending.insert(user, (region, bytes));
                        self.handler.deferred.push_back(Deferred::Message(to, head, None));
                    }
                }
            }
            StepOperation::Receive { of, key: number, into, .. } => {
                let bytes = running.length(into);
                match self.handler.steps.receive(PeerId(of.0), key(number), bytes, user.0).expect("lengths agree") {
                    Posted::Waits => {
                        self.handler.receiving.insert(user, self.memory.make(bytes as usize));
                    }
                    Posted::Early { slot } => {
                        let span = Span { region: self.handler.slots, offset: slot as usize * LIMIT as usize, bytes };
                        let payload = self.memory.read(span).expect("a slot");
                        self.handler.steps.release_slot(slot);
                        running.scatter(into, &payload);
                        running.executor.handle_done(step);
                    }
                }
            }
            StepOperation::Copy { from, into } => {
                running.combine(from, into, None);
                running.executor.handle_done(step);
            }
            StepOperation::Reduce { from, into, fold } => {
                running.combine(from, into, Some(fold));
                running.executor.handle_done(step);
            }
        }
    }

    /// Submits a deferred operation to the endpoint. Returns it if the endpoint is full.
    fn submit(&mut self, deferred: Deferred) -> Option<Deferred> {
        let now = self.network.now();
        match deferred {
            Deferred::Message(to, head, payload) => {
                let span = payload.and_then(|(_, region, bytes)| Some(Span { region: region?, offset: 0, bytes }));
                let span = span.filter(|span| span.bytes != 0);
                match self.endpoint.send(now, to, head.as_ref(), span) {
                    Ok(operation) => {
                        if let Some((user, region, _)) = payload {
                            self.posted.insert(operation, (user, region));
                        }
                        None
                    }
                    Err(EnqueueError::Full) => Some(Deferred::Message(to, head, payload)),
                    Err(why) => panic!("{why:?}"),
                }
            }
            Deferred::Grant(to, user, key, bytes) => {
                let into = Span { region: self.handler.receiving[&user], offset: 0, bytes };
                self.keys += 1;
                let under = ids::RemoteKey(self.keys << 8 | u64::from(self.id.0));
                let Ok(placement) = self.endpoint.grant(to, into, under) else {
                    return Some(Deferred::Grant(to, user, key, bytes));
                };
                self.granted.insert(placement, user);
                self.submit(Deferred::Message(to, StepHeader::cts(key, placement, under), None))
            }
            Deferred::Place(to, user, placement, key) => {
                let (region, bytes) = self.handler.sending[&user];
                match self.endpoint.place(now, to, placement, key, Span { region, offset: 0, bytes }) {
                    Ok(operation) => {
                        self.handler.sending.remove(&user);
                        self.posted.insert(operation, (user, Some(region)));
                        None
                    }
                    Err(EnqueueError::Full) => Some(Deferred::Place(to, user, placement, key)),
                    Err(why) => panic!("{why:?}"),
                }
            }
        }
    }
}
