//! Latency and bandwidth of the transports themselves, between two nodes: messages over connections, and datagrams.
//!
//! An operation of the memory of a peer over a connection is modelled by its messages: a write by one, a read by a
//! request, which the adapter of the target answers at once.

use unisono_core::device::{Device, DeviceQueue, Received};
use unisono_core::span::Region;

use super::{AdapterParameters, post};
use crate::sim::{Network, NodeId};

/// Bytes of a request to read.
const REQUEST: u32 = 40;
const QUEUE: DeviceQueue = DeviceQueue::Polled;

/// Two nodes.
#[derive(Debug)]
pub struct NodePair {
    network: Network,
    nodes: [NodeId; 2],
    sources: [Region; 2],
}

impl NodePair {
    /// Nodes with this number of connections, which each is used once; with 0 they send datagrams. Messages have up to
    /// `bytes` bytes.
    pub fn new(parameters: &AdapterParameters, connections: u32, bytes: u32) -> Self {
        let network = Network::new(1, parameters.network());
        let nodes = [network.add_node(), network.add_node()];
        network.set_connections(nodes[0], nodes[1], connections);
        let sources = nodes.map(|node| network.memory(node).make(bytes.max(REQUEST) as usize));
        let pair = Self { network, nodes, sources };
        for _ in 0..connections.max(1) {
            pair.round_trip(1, 1);
        }
        pair
    }

    /// Posts a message, in as many datagrams as it needs.
    fn post(&self, from: usize, bytes: u32) {
        post(&self.network, [self.nodes[from], self.nodes[1 - from]], self.sources[from], bytes.max(1) as usize);
    }

    /// Waits for the next arrival. Returns the node, and the bytes that have arrived there.
    fn step(&self) -> (usize, u64) {
        let step = self.network.step().expect("something is on its way");
        let mut device = self.network.device(step.node);
        let mut bytes = 0;
        while let Some(datagram) = device.receive(QUEUE) {
            bytes += u64::from(datagram.bytes());
            device.release(datagram.slot());
        }
        (usize::from(step.node == self.nodes[1]), bytes)
    }

    /// Waits until this number of bytes has reached a node.
    fn receive(&self, at: usize, bytes: u64) {
        let mut received = 0;
        while received < bytes {
            let (node, bytes) = self.step();
            assert_eq!(node, at, "only this node receives");
            received += bytes;
        }
    }

    /// Nanoseconds until a message of the first node is with the second one, and until its answer is back.
    fn round_trip(&self, bytes: u32, answer: u32) -> [u64; 2] {
        let start = self.network.now();
        self.post(0, bytes);
        self.receive(1, bytes.max(1).into());
        let arrived = self.network.now() - start;
        self.post(1, answer);
        self.receive(0, answer.max(1).into());
        [arrived, self.network.now() - start]
    }

    /// The mean latency of `rounds` messages and their answers: half of a round trip, in nanoseconds.
    pub fn latency(&self, bytes: u32, rounds: u32) -> f64 {
        let start = self.network.now();
        for _ in 0..rounds {
            self.round_trip(bytes, bytes);
        }
        (self.network.now() - start) as f64 / f64::from(2 * rounds)
    }

    /// Nanoseconds until a write of the first node is in the memory of the second one.
    pub fn write_latency(&self, bytes: u32) -> u64 {
        self.round_trip(bytes, 1)[0]
    }

    /// Nanoseconds until the first node has read memory of the second one.
    pub fn read_latency(&self, bytes: u32) -> u64 {
        self.round_trip(REQUEST, bytes)[1]
    }

    /// The rate of `count` messages or writes that follow each other, in bytes per second.
    pub fn bandwidth(&self, bytes: u32, count: u32) -> f64 {
        let start = self.network.now();
        (0..count).for_each(|_| self.post(0, bytes));
        self.receive(1, u64::from(bytes) * u64::from(count));
        rate(u64::from(bytes) * u64::from(count), self.network.now() - start)
    }

    /// The rate of `count` reads that are requested at once, in bytes per second.
    pub fn read_bandwidth(&self, bytes: u32, count: u32) -> f64 {
        let start = self.network.now();
        (0..count).for_each(|_| self.post(0, REQUEST));
        let all = u64::from(bytes) * u64::from(count);
        let mut received = 0;
        while received < all {
            match self.step() {
                (0, bytes) => received += bytes,
                (_, requests) => (0..requests / u64::from(REQUEST)).for_each(|_| self.post(1, bytes)),
            }
        }
        rate(all, self.network.now() - start)
    }
}

/// Bytes per second.
pub(super) fn rate(bytes: u64, nanoseconds: u64) -> f64 {
    bytes as f64 / nanoseconds.max(1) as f64 * 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 bytes with the checksum take 100 ns on a link.
    fn parameters() -> AdapterParameters {
        let (contexts, miss_ns, latency_ns, processing_ns) = (4, 500, 2000, 300);
        let (packet_bytes, bytes_per_s) = (1996, 1_000_000_000);
        AdapterParameters {
            contexts,
            miss_ns,
            latency_ns,
            processing_ns,
            packet_bytes,
            bytes_per_s,
            ..AdapterParameters::built_in()
        }
    }

    /// A message of 96 bytes takes the latency and its time on two links. Over more connections in turn than fit in the
    /// cache, each of its two ends waits for a context, and no end of the answer does.
    #[test]
    fn latency_over_connections_in_turn_grows_by_one_miss_beyond_the_cache() {
        for (connections, waits) in [(0, 0.0), (1, 0.0), (4, 0.0), (5, 500.0), (32, 500.0)] {
            let pair = NodePair::new(&parameters(), connections, 96);
            let latency = pair.latency(96, 3 * connections.max(1));
            assert!((latency - (2200.0 + waits)).abs() < 1e-6, "{connections} connections: {latency} ns");
        }
    }

    /// Four packets: the first one on both links, the others behind it on the second link. Over datagrams each costs the
    /// engines, which is hidden by the links here.
    #[test]
    fn long_messages_overlap_on_both_links() {
        for connections in [0, 1] {
            let bytes = 4 * 1996;
            let pair = NodePair::new(&parameters(), connections, bytes);
            let rest = if connections == 0 { 3 * 2000 } else { 3 * 1996 };
            assert_eq!(pair.write_latency(bytes), 2000 + 2 * 2000 + rest);
        }
    }

    #[test]
    fn a_read_takes_its_request_and_its_answer() {
        let pair = NodePair::new(&parameters(), 1, 96);
        assert_eq!(pair.read_latency(96), 2000 + 2 * 44 + 2000 + 2 * 100);
    }

    #[test]
    fn many_messages_reach_the_rate_of_the_slowest_part() {
        let reaches =
            |rate: f64, expected: f64| assert!((rate / expected - 1.0).abs() < 0.01, "{rate}, not {expected}");
        // An engine: 300 ns for 96 bytes. A link: 100 ns.
        reaches(NodePair::new(&parameters(), 1, 96).bandwidth(96, 1000), 96.0 / 300.0 * 1e9);
        reaches(NodePair::new(&parameters(), 1, 1996).bandwidth(1996, 1000), 1996.0 / 2000.0 * 1e9);
        reaches(NodePair::new(&parameters(), 1, 1996).read_bandwidth(1996, 1000), 1996.0 / 2000.0 * 1e9);
    }
}
