//! The adapters of nodes: what processing costs, the cache of contexts, and the connections between nodes.

use alloc::collections::VecDeque;
use std::collections::HashMap;

use unisono_core::ids::Rail;

use super::{
    NodeId, Step,
    context_cache::{ContextCache, QueuePair},
    event_queue::Event,
    fabric::Fabric,
    frame::{Frame, FrameId},
};

/// The costs of an adapter. One engine sends and one receives; they share the cache of contexts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdapterCost {
    /// Contexts of queue pairs in the cache.
    pub contexts: u32,
    /// Nanoseconds for which an engine waits for a context that is not in the cache.
    pub miss_ns: u64,
    /// Nanoseconds of an engine for a datagram, or for a message over a connection.
    pub processing_ns: u64,
    /// Bytes of a packet. A datagram without connection has one; the adapter cuts a message over a connection into
    /// packets.
    pub packet: u32,
}

/// An engine of an adapter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Engine {
    Send,
    Receive,
}

#[derive(Debug, Default)]
struct EngineState {
    is_busy: bool,
    waiting: VecDeque<(FrameId, QueuePair)>,
}

#[derive(Debug, Default)]
struct Adapter {
    /// Made when it is first used.
    cache: Option<ContextCache>,
    engines: [EngineState; 2],
}

/// The connections from one node to another.
#[derive(Clone, Copy, Debug)]
struct Connections {
    count: u32,
    next: u32,
}

/// The adapters, one per rail of a node, and the connections.
#[derive(Debug, Default)]
pub(super) struct Adapters {
    used: HashMap<(u32, Rail), Adapter>,
    connections: HashMap<(u32, u32), Connections>,
}

impl Adapters {
    /// Has a frame wait for an engine, which will need the context of the queue pair.
    pub(super) fn push(&mut self, place: (u32, Rail), engine: Engine, frame: FrameId, queue_pair: QueuePair) {
        let adapter = self.used.entry(place).or_default();
        adapter.engines[engine as usize].waiting.push_back((frame, queue_pair));
    }

    /// Starts the next frame of an idle engine. Returns it, and the nanoseconds that it takes.
    pub(super) fn start(&mut self, cost: &AdapterCost, place: (u32, Rail), engine: Engine) -> Option<(FrameId, u64)> {
        let adapter = self.used.get_mut(&place)?;
        let state = &mut adapter.engines[engine as usize];
        if state.is_busy {
            return None;
        }
        let (frame, queue_pair) = state.waiting.pop_front()?;
        state.is_busy = true;
        let cache = adapter.cache.get_or_insert_with(|| ContextCache::new(cost.contexts));
        let waits = if cache.touch(queue_pair) { 0 } else { cost.miss_ns };
        Some((frame, waits + cost.processing_ns))
    }

    /// An engine has processed its frame.
    pub(super) fn finish(&mut self, place: (u32, Rail), engine: Engine) {
        if let Some(adapter) = self.used.get_mut(&place) {
            adapter.engines[engine as usize].is_busy = false;
        }
    }

    /// Uses of contexts that were not in the caches of a node's adapters.
    pub(super) fn misses(&self, node: u32) -> u64 {
        let of_node = self.used.iter().filter(|((of, _), _)| *of == node);
        of_node.filter_map(|(_, adapter)| adapter.cache.as_ref()).map(ContextCache::misses).sum()
    }

    /// Empties the caches of a node.
    pub(super) fn forget_contexts(&mut self, node: u32) {
        for (_, adapter) in self.used.iter_mut().filter(|((of, _), _)| *of == node) {
            adapter.cache = None;
        }
    }

    /// Gives two nodes this number of connections with each other.
    pub(super) fn connect(&mut self, one: u32, other: u32, count: u32) {
        for way in [(one, other), (other, one)] {
            match count {
                0 => _ = self.connections.remove(&way),
                _ => _ = self.connections.insert(way, Connections { count, next: 0 }),
            }
        }
    }

    pub(super) fn are_connected(&self, from: u32, to: u32) -> bool {
        self.connections.contains_key(&(from, to))
    }

    /// The connection whose turn it is; `None`: there is none.
    pub(super) fn next_connection(&mut self, from: u32, to: u32) -> Option<u32> {
        let Connections { count, next } = self.connections.get_mut(&(from, to))?;
        let connection = *next;
        *next = (connection + 1) % *count;
        Some(connection)
    }
}

impl Fabric {
    /// The adapter of an engine for a frame, and the queue pair that it needs there.
    fn engine_of(&self, id: FrameId, engine: Engine) -> ((u32, Rail), QueuePair) {
        let Frame { from, to, rail, connection, .. } = self.frames[id];
        let (node, peer) = match engine {
            Engine::Send => (from, to),
            Engine::Receive => (to, from),
        };
        ((node, rail), QueuePair::with(peer, connection))
    }

    /// A frame reaches an adapter, of its sender or of its receiver.
    pub(super) fn enter_adapter(&mut self, id: FrameId, engine: Engine) {
        let (adapter, queue_pair) = self.engine_of(id, engine);
        self.adapters.push(adapter, engine, id, queue_pair);
        self.start_engine(adapter, engine);
    }

    fn start_engine(&mut self, adapter: (u32, Rail), engine: Engine) {
        if let Some(cost) = self.config.adapter
            && let Some((frame, takes)) = self.adapters.start(&cost, adapter, engine)
        {
            self.queue.push(self.now + takes, Event::Processed { frame, engine });
        }
    }

    /// An adapter has processed a frame.
    pub(super) fn leave_adapter(&mut self, id: FrameId, engine: Engine) -> Option<Step> {
        let (adapter, _) = self.engine_of(id, engine);
        self.adapters.finish(adapter, engine);
        self.start_engine(adapter, engine);
        match engine {
            Engine::Send => {
                self.leave(id);
                None
            }
            Engine::Receive => {
                let step = self.arrive(id);
                self.release_port(adapter.0);
                step
            }
        }
    }
}

impl QueuePair {
    /// That of a node for frames to or from a peer, over the connection of that number, if any.
    pub(super) const fn with(peer: u32, connection: Option<u32>) -> Self {
        match connection {
            None => Self::Datagram,
            Some(number) => Self::Connection { peer: NodeId(peer), number },
        }
    }
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU64;

    use unisono_core::device::{Device, DeviceQueue, Memory as _, Received, Token, Transmit, TxReason};
    use unisono_core::ids::PeerId;
    use unisono_core::span::Span;

    use super::AdapterCost;
    use crate::sim::{Config, Dropped, Link, Network, NodeId};

    const COST: AdapterCost = AdapterCost { contexts: 2, miss_ns: 700, processing_ns: 100, packet: 1000 };
    /// A frame without misses, which no other frame delays: an engine at each end, and 5 µs between them.
    const FRAME: u64 = 5_000 + 2 * COST.processing_ns;

    fn network(nodes: u32, config: Config) -> (Network, Vec<NodeId>) {
        let network = Network::new(7, Config { adapter: Some(COST), ..config });
        let nodes = (0..nodes).map(|_| network.add_node()).collect();
        (network, nodes)
    }

    fn send(network: &Network, from: NodeId, to: NodeId, bytes: u32) {
        let (mut device, mut memory) = (network.device(from), network.memory(from));
        let span = Span { region: memory.make(bytes as usize), offset: 0, bytes };
        let (queue, reason) = (DeviceQueue::Polled, TxReason::First);
        let to = PeerId::from(to).into();
        let transmit = Transmit { to, queue, header_bytes: 0, payload: Some(span), solicited: false, reason };
        device.token(queue).expect("the ring has room").post(&transmit, memory.address(span));
        device.flush(queue);
    }

    /// When each frame arrives.
    fn arrivals(network: &Network) -> Vec<u64> {
        let mut arrivals = Vec::new();
        while let Some(step) = network.step() {
            let mut device = network.device(step.node);
            while let Some(received) = device.receive(DeviceQueue::Polled) {
                device.release(received.slot());
                arrivals.push(step.at);
            }
        }
        arrivals
    }

    /// How long one frame takes on an idle network.
    fn time(network: &Network, from: NodeId, to: NodeId) -> u64 {
        let start = network.now();
        send(network, from, to, 8);
        let arrivals = arrivals(network);
        assert_eq!(arrivals.len(), 1);
        arrivals[0] - start
    }

    #[test]
    fn datagrams_miss_once_at_each_end_whatever_the_number_of_peers() {
        let (network, nodes) = network(20, Config::default());
        assert_eq!(time(&network, nodes[0], nodes[1]), FRAME + 2 * COST.miss_ns);
        for &peer in &nodes[2..] {
            assert_eq!(time(&network, nodes[0], peer), FRAME + COST.miss_ns, "the receiver's only");
        }
        assert_eq!(time(&network, nodes[1], nodes[0]), FRAME);
        assert_eq!(network.context_misses(nodes[0]), 1);
    }

    /// Round trips over n connections in turn. The message misses at both ends if n exceeds the cache; the answer, right
    /// after it, never does.
    #[test]
    fn a_miss_is_charged_once_for_each_use_of_a_replaced_context() {
        for (connections, misses) in [(1, 0), (2, 0), (3, 2), (40, 2)] {
            let (network, nodes) = network(2, Config::default());
            network.set_connections(nodes[0], nodes[1], connections);
            for round in 0..4 * u64::from(connections) {
                let misses = if round < u64::from(connections) { 2 } else { misses };
                assert_eq!(time(&network, nodes[0], nodes[1]), FRAME + misses * COST.miss_ns, "{connections}: {round}");
                assert_eq!(time(&network, nodes[1], nodes[0]), FRAME, "{connections}: {round}");
            }
            let missed = u64::from(connections) * if misses == 0 { 1 } else { 4 };
            assert_eq!(nodes.iter().map(|node| network.context_misses(*node)).collect::<Vec<_>>(), [missed; 2]);
        }
    }

    /// n frames that leave at once are processed one after the other, each with its miss; the ends overlap.
    #[test]
    fn misses_of_one_engine_follow_each_other() {
        let (network, nodes) = network(6, Config::default());
        for &peer in &nodes[1..] {
            network.set_connections(nodes[0], peer, 1);
        }
        nodes[1..].iter().for_each(|peer| send(&network, nodes[0], *peer, 8));
        let each = COST.miss_ns + COST.processing_ns;
        let last = 5 * each + 5_000 + each;
        assert_eq!(arrivals(&network), (1..=5).map(|n| last - (5 - n) * each).collect::<Vec<_>>());
    }

    /// The engines of an adapter work at the same time.
    #[test]
    fn sending_does_not_delay_receiving() {
        let (network, nodes) = network(2, Config::default());
        network.set_connections(nodes[0], nodes[1], 1);
        time(&network, nodes[0], nodes[1]);
        let start = network.now();
        send(&network, nodes[0], nodes[1], 8);
        send(&network, nodes[1], nodes[0], 8);
        assert_eq!(arrivals(&network), [start + FRAME; 2]);
    }

    #[test]
    fn only_connections_carry_more_than_a_packet_and_both_links_at_once() {
        let rate = NonZeroU64::new(1_000_000_000);
        let link = Link { ingress_bytes_per_s: rate, egress_bytes_per_s: rate, ..Link::default() };
        let (network, nodes) = network(3, Config { mtu: 10_000, link, ..Config::default() });
        network.set_connections(nodes[0], nodes[1], 1);
        assert_eq!([1, 2].map(|peer| network.path_mtu(nodes[0], nodes[peer])), [10_000, 1000]);
        send(&network, nodes[0], nodes[2], 1001);
        assert_eq!((network.step(), network.counts().dropped(Dropped::Oversize)), (None, 1));
        let start = network.now();
        send(&network, nodes[0], nodes[1], 9_996);
        // 10 000 bytes with the checksum on one link, one packet of 1004 on the other.
        assert_eq!(arrivals(&network), [start + FRAME + 2 * COST.miss_ns + 10_000 + 1004]);
    }

    #[test]
    fn the_adapter_of_a_new_process_has_an_empty_cache() {
        let (network, nodes) = network(2, Config::default());
        network.set_connections(nodes[0], nodes[1], 1);
        time(&network, nodes[0], nodes[1]);
        network.restart(nodes[1]);
        assert_eq!(time(&network, nodes[0], nodes[1]), FRAME + COST.miss_ns);
    }
}
