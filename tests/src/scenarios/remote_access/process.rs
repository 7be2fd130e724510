//! A simulated process with remote memory access: its endpoint, its machine, its memory, and the host's part.

use std::collections::HashMap;

use unisono_core::counters::{Counters, Metric};
use unisono_core::device::{Device, DeviceQueue};
use unisono_core::endpoint::{Config, Endpoint, Event, Handler, Verdict};
use unisono_core::ids::{Incarnation, OperationId, PeerId, PlacementId, RemoteKey};
use unisono_core::progress::make_progress;
use unisono_core::rma::header::{self, ReadPlacement};
use unisono_core::rma::region::Refusal;
use unisono_core::rma::stride::Stride;
use unisono_core::rma::{
    Action, Arrival, Entry, Execution, OperationRecord, Owner, RKey, RegionRecord, RequesterState, Rights, Rma,
    RmaCompletion, RmaOperationId, RmaPools, RmaStorage, Staging, TargetState,
};
use unisono_core::span::{Region, Span};
use unisono_core::wire::HEADER;
use unisono_memory::endpoint_storage::{BoxedStorage, EndpointSizes};

use crate::sim::{Network, NodeId, SimMemory};

/// Datagrams that are received and sent in one round.
const BUDGET: u32 = 64;
/// Segments of a window.
const WINDOW: usize = 64;
/// Bytes of a staging slot.
const SLOT: u32 = 256;

/// Records in boxed slices.
#[derive(Debug)]
pub struct Boxes;

impl RmaStorage for Boxes {
    type Regions = Box<[RegionRecord]>;
    type Operations = Box<[OperationRecord]>;
    type Targets = Box<[TargetState]>;
    type Entries = Box<[Entry]>;
    type Requesters = Box<[RequesterState]>;
}

/// Numbers of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RmaSizes {
    /// Operations of this process.
    pub operations: usize,
    /// Entries for requests of peers.
    pub entries: usize,
    /// Most unanswered requests per target.
    pub outstanding: u8,
}

/// The handler of the endpoint's messages.
#[derive(Debug)]
struct RmaHandler {
    rma: Rma<Boxes>,
    counters: Counters,
    violators: Vec<PeerId>,
}

impl Handler for RmaHandler {
    fn handle_eager(&mut self, from: PeerId, head: &[u8], bytes: u32) -> Verdict {
        let is_rma = head.first().is_some_and(|kind| (header::FIRST..=header::LAST).contains(kind));
        let arrival = if is_rma { self.rma.handle(from, head, bytes) } else { Arrival::Violation };
        match arrival {
            Arrival::Nothing => Verdict::Release,
            Arrival::Place { to, start } => Verdict::Place { to, start },
            Arrival::Violation => {
                self.violators.push(from);
                Verdict::Release
            }
        }
    }

    fn record(&mut self, what: Metric) {
        self.counters.count(what);
    }
}

/// What happened in a round.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RoundEvents {
    /// Operations that ended.
    pub completions: Vec<RmaCompletion>,
    /// Regions that nobody uses any more.
    pub revoked: Vec<RKey>,
    /// Peers that failed or finished.
    pub lost: Vec<PeerId>,
    /// Values that peers wrote.
    pub immediates: Vec<(PeerId, u32)>,
}

/// A process with remote memory access.
#[derive(Debug)]
pub struct RmaProcess {
    /// Its place in the network.
    pub id: NodeId,
    /// Its memory.
    pub memory: SimMemory,
    /// Its endpoint.
    pub endpoint: Endpoint<BoxedStorage, WINDOW, 32>,
    handler: RmaHandler,
    network: Network,
    owners: HashMap<u32, Owner>,
    grants: HashMap<u32, RmaOperationId>,
    keys: fastrand::Rng,
    /// A silent peer counts as failed.
    pub fails_silent: bool,
}

impl RmaProcess {
    /// The process of node `id` in a job of `nodes`.
    pub fn new(
        network: &Network,
        id: NodeId,
        incarnation: u32,
        sizes: RmaSizes,
        tune: impl FnOnce(&mut Config, &mut EndpointSizes),
    ) -> Self {
        let limits = network.device(id).limits();
        let mut config = Config::new(id.into(), Incarnation(incarnation), &limits);
        let mut endpoint_sizes = EndpointSizes::of_job(network.nodes());
        tune(&mut config, &mut endpoint_sizes);
        let mut memory = network.memory(id);
        let nodes = network.nodes();
        let pools = RmaPools {
            regions: vec![RegionRecord::FREE; 8].into(),
            operations: vec![OperationRecord::FREE; sizes.operations].into(),
            targets: vec![TargetState::FREE; nodes].into(),
            entries: vec![Entry::FREE; sizes.entries].into(),
            requesters: vec![RequesterState::FREE; nodes].into(),
        };
        let staging = Staging { region: memory.make(sizes.entries * SLOT as usize), slot: SLOT };
        let rma = Rma::new(pools, sizes.outstanding, staging);
        Self {
            id,
            memory,
            endpoint: Endpoint::new(network.now(), config, endpoint_sizes.pools()),
            handler: RmaHandler { rma, counters: Counters::default(), violators: Vec::new() },
            network: network.clone(),
            owners: HashMap::new(),
            grants: HashMap::new(),
            keys: fastrand::Rng::with_seed(u64::from(incarnation)),
            fails_silent: true,
        }
    }

    /// Adds a peer, as bootstrap does.
    pub fn add_peer(&mut self, peer: NodeId, incarnation: u32) {
        let mtu = self.network.path_mtu(self.id, peer);
        self.endpoint.add_peer(self.network.now(), peer.into(), Incarnation(incarnation), mtu);
        self.handler.rma.connect(peer.into(), mtu - HEADER as u32);
        self.wake();
    }

    /// The machine. After commands call [`wake`](Self::wake).
    pub const fn rma(&mut self) -> &mut Rma<Boxes> {
        &mut self.handler.rma
    }

    /// The counters of the endpoint.
    pub const fn counters(&self) -> &Counters {
        &self.handler.counters
    }

    /// Registers memory under a fresh key.
    pub fn register(&mut self, region: Region, offset: usize, bytes: usize, rights: Rights) -> Option<RKey> {
        let key = RemoteKey(self.keys.u64(..));
        self.handler.rma.regions.register(region, offset, bytes, rights, key).ok()
    }

    /// Schedules its step at once.
    pub fn wake(&self) {
        self.network.wake_at(self.id, self.network.now());
    }

    /// One step on a lane.
    pub fn drive(&mut self, lane: DeviceQueue) -> RoundEvents {
        let now = self.network.now();
        let mut device = self.network.device(self.id);
        let mut events = RoundEvents::default();
        loop {
            let Self { endpoint, memory, handler, .. } = self;
            let mut moved = make_progress(now, lane, endpoint, &mut device, memory, handler, BUDGET);
            for peer in core::mem::take(&mut self.handler.violators) {
                self.endpoint.fail(now, peer);
                moved = true;
            }
            while let Some(event) = self.endpoint.poll_event(now) {
                moved = true;
                self.handle_event(event, &mut events);
            }
            while self.endpoint.has_room()
                && let Some(action) = self.handler.rma.poll_action(self.endpoint.can_grant())
            {
                moved = true;
                self.carry_out(now, action);
            }
            while let Some(completion) = self.handler.rma.poll_completion() {
                if let Some(grant) = completion.withdraw
                    && self.endpoint.withdraw(grant)
                {
                    self.grants.remove(&grant.0);
                }
                events.completions.push(completion);
            }
            if !moved {
                break;
            }
        }
        events.revoked.extend(core::iter::from_fn(|| self.handler.rma.regions.poll_revoked()));
        let immediates = core::iter::from_fn(|| self.handler.rma.poll_immediate());
        events.immediates.extend(immediates.map(|immediate| (immediate.from, immediate.value)));
        if !events.immediates.is_empty() {
            self.wake();
        }
        // Acknowledgements that nothing carried leave in the round after.
        let Self { endpoint, memory, handler, .. } = self;
        make_progress(now, lane, endpoint, &mut device, memory, handler, BUDGET);
        if let Some(at) = self.endpoint.poll_timeout(now) {
            self.network.wake_at(self.id, at);
        }
        events
    }

    fn handle_event(&mut self, event: Event, events: &mut RoundEvents) {
        match event {
            Event::Completed(operation, result) => {
                let owner = self.owners.remove(&operation.0).unwrap_or(Owner::Nothing);
                self.handler.rma.handle_completed(owner, result.is_ok());
            }
            Event::Delivered(placement, bytes) => {
                if let Some(operation) = self.grants.remove(&placement.0) {
                    self.handler.rma.handle_placed(operation, bytes);
                }
            }
            Event::PeerFailed(peer) | Event::PeerFinished(peer) => {
                self.handler.rma.disconnect(peer);
                events.lost.push(peer);
            }
            Event::PeerSilent(peer) if self.fails_silent => self.endpoint.fail(self.network.now(), peer),
            Event::PeerSilent(_) => {}
        }
    }

    fn carry_out(&mut self, now: u64, action: Action) {
        let (sent, owner): (Option<OperationId>, Owner) = match action {
            Action::Send { to, head, payload, owner, solicited } => {
                let sent = self.endpoint.send(now, to, head.as_ref(), payload).ok();
                if let Some(operation) = sent.filter(|_| solicited) {
                    self.endpoint.solicit(operation);
                }
                (sent, owner)
            }
            Action::Place { to, placement, key, from, owner } => {
                (self.endpoint.place(now, to, placement, key, from).ok(), owner)
            }
            Action::Grant { from, into, operation } => {
                let key = RemoteKey(self.keys.u64(..));
                let grant: Option<PlacementId> = self.endpoint.grant(from, into, key).ok();
                if let Some(placement) = grant {
                    self.grants.insert(placement.0, operation);
                }
                let grant = grant.map(|placement| ReadPlacement { placement, key });
                return self.handler.rma.handle_granted(operation, grant);
            }
            Action::Execute { entry, at, what } => {
                let result = self.execute(at, what);
                return self.handler.rma.handle_executed(entry, result);
            }
            Action::Idle => return,
        };
        match sent {
            Some(operation) => _ = self.owners.insert(operation.0, owner),
            None => self.handler.rma.handle_completed(owner, false),
        }
    }

    /// Executes an update; the elements of an accumulate are added as words of 64 bits.
    fn execute(&mut self, at: Span, what: Execution) -> Result<Option<u64>, Refusal> {
        let mut old = self.memory.read(at).ok_or(Refusal::Unsupported)?;
        let word = |bytes: &[u8]| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        };
        match what {
            Execution::Atomic(operation) => {
                let before = word(&old);
                let new = operation.apply(before).to_le_bytes();
                self.memory.write(at.region, at.offset, &new[..old.len()]).ok_or(Refusal::Unsupported)?;
                Ok(Some(before))
            }
            Execution::Accumulate { from, fetch, stride, .. } => {
                let mut operands = self.memory.read(from).ok_or(Refusal::Unsupported)?;
                let stride = stride.unwrap_or(Stride { block: from.bytes, distance: from.bytes });
                if !stride.block.is_multiple_of(8) {
                    return Err(Refusal::Unsupported);
                }
                for (there, staged) in stride.blocks(from.bytes) {
                    let block = stride.block as usize;
                    let elements = old.get_mut(there..there + block).ok_or(Refusal::Unsupported)?;
                    let operands = &mut operands[staged..staged + block];
                    for (into, add) in elements.chunks_exact_mut(8).zip(operands.chunks_exact_mut(8)) {
                        let before = word(into);
                        into.copy_from_slice(&before.wrapping_add(word(add)).to_le_bytes());
                        add.copy_from_slice(&before.to_le_bytes());
                    }
                }
                if fetch {
                    self.memory.write(from.region, from.offset, &operands).ok_or(Refusal::Unsupported)?;
                }
                self.memory.write(at.region, at.offset, &old).ok_or(Refusal::Unsupported)?;
                Ok(None)
            }
            Execution::Gather { into, stride } => {
                for (there, staged) in stride.blocks(into.bytes) {
                    let block = old.get(there..there + stride.block as usize).ok_or(Refusal::Unsupported)?;
                    self.memory.write(into.region, into.offset + staged, block).ok_or(Refusal::Unsupported)?;
                }
                Ok(None)
            }
        }
    }
}

/// A job of `count` connected processes.
pub fn job(network: &Network, count: u32, sizes: RmaSizes) -> Vec<RmaProcess> {
    job_with(network, count, sizes, |_| {})
}

/// As [`job`], with endpoints of another configuration.
pub fn job_with(
    network: &Network,
    count: u32,
    sizes: RmaSizes,
    tune: impl Copy + FnOnce(&mut Config),
) -> Vec<RmaProcess> {
    let ids: Vec<NodeId> = (0..count).map(|_| network.add_node()).collect();
    let incarnation = |id: NodeId| 0x1000 + id.0;
    let mut nodes: Vec<RmaProcess> =
        ids.iter().map(|id| RmaProcess::new(network, *id, incarnation(*id), sizes, |config, _| tune(config))).collect();
    for node in &mut nodes {
        let own = node.id;
        ids.iter().filter(|id| **id != own).for_each(|id| node.add_peer(*id, incarnation(*id)));
    }
    nodes
}
