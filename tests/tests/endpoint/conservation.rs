//! Conservation under random requests and deaths: every operation is reported once, every record returns to its pool,
//! credit adds up, placed bytes are those of the placement.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use unisono_core::device::DeviceQueue;
use unisono_core::endpoint::{Config as EndpointConfig, Event, PoolUsage};
use unisono_core::ids::{OperationId, PeerId, PlacementId, RemoteKey};
use unisono_core::span::Span;
use unisono_core::time::units;
use unisono_memory::endpoint_storage::EndpointSizes;
use unisono_tests::sim::node::{SimProcess, job};
use unisono_tests::sim::{Completion, Config, Network, NodeId};
use unisono_udp::fault_injection::{Faults, Probability};

const NODES: u32 = 4;
const SECOND: u64 = 1_000_000_000;

/// A random request: kind, requester, peer, amount.
type Action = (u8, u32, u32, u16);

fn tune(config: &mut EndpointConfig, sizes: &mut EndpointSizes) {
    (sizes.windows, sizes.operations, sizes.placements, sizes.control_messages) = (2, 12, 3, 16);
    config.silence = units(20_000_000);
    config.receive_slots = 40;
    config.holdable = 8;
}

struct Job {
    network: Network,
    nodes: Vec<SimProcess<8>>,
    alive: [bool; NODES as usize],
    incarnation: [u32; NODES as usize],
    operations: Vec<HashSet<OperationId>>,
    grants: Vec<HashMap<PlacementId, (RemoteKey, Span)>>,
    /// The bytes placed by a key's one use.
    fills: HashMap<u64, (u8, u32)>,
    sent: HashMap<(u32, u32), u32>,
    received: HashMap<(u32, u32), u32>,
    keys: u64,
}

impl Job {
    fn new(seed: u64, late: bool) -> Self {
        let chance = |value| Probability::new(value).expect("a probability");
        let faults = Faults {
            loss: chance(0.1),
            reorder: chance(0.1),
            duplicate: chance(0.1),
            corrupt: chance(0.02),
            ..Faults::default()
        };
        let completion = if late { Completion::After(30_000) } else { Completion::Flush };
        let network =
            Network::new(seed, Config { faults, completion, receive_slots: 40, holdable: 8, ..Config::default() });
        let nodes = job::<8>(&network, NODES, tune);
        Self {
            network,
            nodes,
            alive: [true; NODES as usize],
            incarnation: core::array::from_fn(|i| 0x1000 + i as u32),
            operations: vec![HashSet::new(); NODES as usize],
            grants: vec![HashMap::new(); NODES as usize],
            fills: HashMap::new(),
            sent: HashMap::new(),
            received: HashMap::new(),
            keys: 0,
        }
    }

    fn run(&mut self, until: u64) {
        while let Some(step) = self.network.step_until(until) {
            let i = step.node.0 as usize;
            if !self.alive[i] {
                continue;
            }
            let events = self.nodes[i].drive(step.lane);
            self.take(i, events);
        }
    }

    fn take(&mut self, i: usize, events: Vec<Event>) {
        let now = self.network.now();
        for event in events {
            match event {
                Event::Completed(operation, _) => {
                    assert!(self.operations[i].remove(&operation), "node {i}: {operation:?} is reported twice");
                }
                Event::Delivered(placement, bytes) => {
                    let (key, to) = self.grants[i].remove(&placement).expect("a grant that is out");
                    let (fill, placed) = self.fills[&key.0];
                    assert_eq!(bytes, placed);
                    let all = self.nodes[i].memory.read(to).expect("alive");
                    assert!(
                        all[..bytes as usize].iter().all(|byte| *byte == fill),
                        "node {i}: another placement's bytes"
                    );
                }
                Event::PeerSilent(peer) => {
                    self.nodes[i].endpoint.fail(now, peer);
                    self.nodes[i].wake();
                }
                Event::PeerFailed(_) | Event::PeerFinished(_) => {}
            }
        }
        for (from, bytes) in self.nodes[i].take_messages() {
            let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
            let next = self.received.entry((word(0), self.incarnation[i])).or_default();
            assert_eq!(word(4), *next, "node {i}: from {from:?}");
            *next += 1;
        }
        assert_eq!(self.nodes[i].endpoint.check_invariants(), Ok(()), "node {i}");
    }

    fn act(&mut self, (what, a, b, much): Action) {
        let (i, now) = (a as usize, self.network.now());
        let peer = NodeId(b);
        if what == 9 {
            // A node dies, or comes back to life.
            if self.alive[i] && much % 4 == 0 {
                self.network.crash(NodeId(a));
                self.alive[i] = false;
            } else if !self.alive[i] {
                self.network.restart(NodeId(a));
                self.alive[i] = true;
                self.incarnation[i] += 0x100;
                self.operations[i].clear();
                self.grants[i].clear();
                self.nodes[i] = SimProcess::new(&self.network, NodeId(a), self.incarnation[i], tune);
                for other in (0..NODES).filter(|other| *other != a) {
                    self.nodes[i].add_peer(NodeId(other), self.incarnation[other as usize]);
                    if self.alive[other as usize] {
                        self.nodes[other as usize].add_peer(NodeId(a), self.incarnation[i]);
                    }
                }
            }
            return;
        }
        if what == 8 {
            return self.run(now + u64::from(much) * 20);
        }
        if !self.alive[i] || a == b {
            return;
        }
        let rank = PeerId::from(peer);
        let incarnations = (self.incarnation[i], self.incarnation[b as usize]);
        match what {
            0..3 => {
                let number = *self.sent.entry(incarnations).or_default();
                let mut bytes = vec![0; 8 + usize::from(much) % 1200];
                bytes[..4].copy_from_slice(&incarnations.0.to_le_bytes());
                bytes[4..8].copy_from_slice(&number.to_le_bytes());
                if let Ok(operation) = self.nodes[i].send(peer, &bytes) {
                    self.sent.insert(incarnations, number + 1);
                    assert!(self.operations[i].insert(operation));
                }
            }
            3 => {
                let bytes = usize::from(much) % 9000;
                let region = self.nodes[i].memory.make(bytes);
                let (key, to) = (RemoteKey(self.keys), Span { region, offset: 0, bytes: bytes as u32 });
                self.keys += 1;
                if let Ok(placement) = self.nodes[i].endpoint.grant(rank, to, key) {
                    self.grants[i].insert(placement, (key, to));
                }
            }
            4 | 5 => {
                // Under a grant that is out, perhaps another's, or used already.
                let mut out: Vec<_> =
                    self.grants[b as usize].iter().map(|(id, (key, to))| (*id, *key, to.bytes)).collect();
                out.sort_by_key(|(_, key, _)| key.0);
                if let Some((placement, key, bytes)) = out.get(usize::from(much) % out.len().max(1)).copied()
                    && !self.fills.contains_key(&key.0)
                {
                    let (fill, bytes) = (self.fills.len() as u8 | 1, if much % 3 == 0 { bytes / 2 } else { bytes });
                    let region = self.nodes[i].memory.make(bytes as usize);
                    self.nodes[i].memory.write(region, 0, &vec![fill; bytes as usize]).expect("room");
                    let from = Span { region, offset: 0, bytes };
                    if let Ok(operation) = self.nodes[i].endpoint.place(now, rank, placement, key, from) {
                        self.fills.insert(key.0, (fill, bytes));
                        assert!(self.operations[i].insert(operation));
                    }
                }
            }
            6 => {
                let on = much % 2 == 0;
                self.nodes[i].endpoint.watch(now, rank, on);
            }
            _ if much % 8 == 0 => self.nodes[i].endpoint.fail(now, rank),
            _ => {
                let mut out: Vec<_> = self.grants[i].iter().map(|(id, (key, _))| (key.0, *id)).collect();
                out.sort_unstable_by_key(|(key, _)| *key);
                if let Some((_, placement)) = out.get(usize::from(much) % out.len().max(1)).copied()
                    && self.nodes[i].endpoint.withdraw(placement)
                {
                    self.grants[i].remove(&placement);
                }
            }
        }
        self.nodes[i].wake();
        assert_eq!(self.nodes[i].endpoint.check_invariants(), Ok(()), "node {i}");
    }

    /// Runs until everything has ended, and checks that nothing is left.
    fn settle(mut self) {
        let now = self.network.now();
        for node in &mut self.nodes {
            for peer in 0..NODES {
                node.endpoint.watch(now, PeerId(peer), false);
            }
            node.wake();
        }
        self.run(now + 2 * SECOND);
        let now = self.network.now();
        for i in (0..self.nodes.len()).filter(|i| self.alive[*i]) {
            assert_eq!(self.operations[i], HashSet::new(), "node {i}: never reported");
            for placement in self.grants[i].drain().map(|(placement, _)| placement) {
                assert!(self.nodes[i].endpoint.withdraw(placement), "node {i}");
            }
            // What a dead peer sent in part waits for the rest until the death is known.
            assert_eq!(self.nodes[i].endpoint.pool_usage().senders, 0, "node {i}");
            for peer in 0..NODES {
                self.nodes[i].endpoint.fail(now, PeerId(peer));
            }
            let _ = self.nodes[i].drive(DeviceQueue::Polled);
            let endpoint = &self.nodes[i].endpoint;
            assert_eq!(endpoint.pool_usage(), PoolUsage::default(), "node {i}");
            assert_eq!(endpoint.poll_timeout(now), None, "node {i}: a timer is left");
            assert!(endpoint.is_acknowledged() && endpoint.is_idle());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_everything_ends_and_returns(
        seed in any::<u64>(),
        late in any::<bool>(),
        actions in proptest::collection::vec((0..10_u8, 0..NODES, 0..NODES, any::<u16>()), 0..200),
    ) {
        let mut job = Job::new(seed, late);
        for action in actions {
            job.act(action);
        }
        job.settle();
    }
}
