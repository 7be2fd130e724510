//! A simulated process: an endpoint, its device and memory, and a handler that accepts every message.

use unisono_core::counters::{Counters, Metric};
use unisono_core::device::{Device, DeviceQueue};
use unisono_core::endpoint::operation::EnqueueError;
use unisono_core::endpoint::{Config, Endpoint, Event, Handler, Verdict};
use unisono_core::ids::{Incarnation, OperationId, PeerId};
use unisono_core::progress::make_progress;
use unisono_core::span::Span;
use unisono_memory::endpoint_storage::{BoxedStorage, EndpointSizes};

use crate::sim::{Network, NodeId, SimMemory};

/// Datagrams that are received and sent in one round.
const BUDGET: u32 = 64;

/// The message handler: stores every message in its own memory, and counts.
#[derive(Debug)]
pub struct Inbox {
    memory: SimMemory,
    /// Messages whose payload stands in memory of this node, in order of delivery.
    arrived: Vec<(PeerId, Message)>,
    /// Counters.
    pub counters: Counters,
}

#[derive(Debug)]
enum Message {
    Whole(Vec<u8>),
    Placed(Span),
}

impl Handler for Inbox {
    fn handle_eager(&mut self, from: PeerId, head: &[u8], bytes: u32) -> Verdict {
        if head.len() == bytes as usize {
            self.arrived.push((from, Message::Whole(head.to_vec())));
            return Verdict::Release;
        }
        let region = self.memory.make(bytes as usize);
        let to = Span { region, offset: 0, bytes };
        self.arrived.push((from, Message::Placed(to)));
        Verdict::Place { to, start: 0 }
    }

    fn record(&mut self, what: Metric) {
        self.counters.count(what);
    }
}

/// A process, with windows of `W` segments.
#[derive(Debug)]
pub struct SimProcess<const W: usize = 64> {
    /// Its place in the network.
    pub id: NodeId,
    /// Its endpoint.
    pub endpoint: Endpoint<BoxedStorage, W, 32>,
    /// Its memory.
    pub memory: SimMemory,
    /// The message handler.
    pub inbox: Inbox,
    network: Network,
}

impl<const W: usize> SimProcess<W> {
    /// The process of node `id`, whose endpoint is made as `tune` changes the usual configuration and sizes.
    pub fn new(
        network: &Network,
        id: NodeId,
        incarnation: u32,
        tune: impl FnOnce(&mut Config, &mut EndpointSizes),
    ) -> Self {
        let limits = network.device(id).limits();
        let mut config = Config::new(id.into(), Incarnation(incarnation), &limits);
        let mut sizes = EndpointSizes::of_job(network.nodes()).with_rails(limits.rails);
        tune(&mut config, &mut sizes);
        let memory = network.memory(id);
        Self {
            id,
            endpoint: Endpoint::new(network.now(), config, sizes.pools()),
            inbox: Inbox { memory: network.memory(id), arrived: Vec::new(), counters: Counters::default() },
            memory,
            network: network.clone(),
        }
    }

    /// Adds a peer, as bootstrap does.
    pub fn add_peer(&mut self, peer: NodeId, incarnation: u32) {
        let mtu = self.network.device(self.id).limits().mtu;
        self.endpoint.add_peer(self.network.now(), peer.into(), Incarnation(incarnation), mtu);
        self.wake();
    }

    /// Sends a message of one datagram from memory of its own.
    ///
    /// # Errors
    /// As [`Endpoint::send`].
    pub fn send(&mut self, to: NodeId, bytes: &[u8]) -> Result<OperationId, EnqueueError> {
        let (head, rest) = bytes.split_at(bytes.len().min(16));
        let payload = (!rest.is_empty()).then(|| {
            let region = self.memory.make(rest.len());
            self.memory.write(region, 0, rest).expect("a region of that size");
            Span { region, offset: 0, bytes: rest.len() as u32 }
        });
        let sent = self.endpoint.send(self.network.now(), to.into(), head, payload);
        self.wake();
        sent
    }

    /// One round on a lane. Returns what the endpoint reports.
    pub fn drive(&mut self, lane: DeviceQueue) -> Vec<Event> {
        let now = self.network.now();
        let mut device = self.network.device(self.id);
        while make_progress(now, lane, &mut self.endpoint, &mut device, &self.memory, &mut self.inbox, BUDGET) {}
        // Acknowledgements that nothing carried leave in the round after.
        make_progress(now, lane, &mut self.endpoint, &mut device, &self.memory, &mut self.inbox, BUDGET);
        if let Some(at) = self.endpoint.poll_timeout(now) {
            self.network.wake_at(self.id, at);
        }
        core::iter::from_fn(|| self.endpoint.poll_event(now)).collect()
    }

    /// The messages that arrived since the last call.
    pub fn take_messages(&mut self) -> Vec<(PeerId, Vec<u8>)> {
        let memory = &mut self.memory;
        let take = |(from, message)| {
            let bytes = match message {
                Message::Whole(bytes) => bytes,
                Message::Placed(span) => {
                    let bytes = memory.read(span).expect("a message in memory");
                    memory.retire(span.region);
                    bytes
                }
            };
            (from, bytes)
        };
        self.inbox.arrived.drain(..).map(take).collect()
    }

    /// Schedules its step at once.
    pub fn wake(&self) {
        self.network.wake_at(self.id, self.network.now());
    }
}

/// A job of `count` connected processes.
pub fn job<const W: usize>(
    network: &Network,
    count: u32,
    tune: impl Fn(&mut Config, &mut EndpointSizes),
) -> Vec<SimProcess<W>> {
    let ids: Vec<NodeId> = (0..count).map(|_| network.add_node()).collect();
    let incarnation = |id: NodeId| 0x1000 + id.0;
    let mut nodes: Vec<SimProcess<W>> = ids
        .iter()
        .map(|id| SimProcess::new(network, *id, incarnation(*id), |config, sizes| tune(config, sizes)))
        .collect();
    for node in &mut nodes {
        for id in &ids {
            node.add_peer(*id, incarnation(*id));
        }
    }
    nodes
}
