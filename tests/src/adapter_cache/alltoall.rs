//! Alltoalls between simulated nodes of one rank each (Mamidala 2008, §8.1, §8.2): over datagrams, over connections, and
//! with the first partners over connections.
//!
//! The schedules, their executor, the messages and the endpoint are those that ship; so is the machine of remote memory
//! access, by which [`writes`] lets every rank write its block into the output of each other one, its successor first,
//! as `--alltoall rdma` does (§6.1). [`transfers`] is the exchange as the adapters alone see it, without the endpoint and
//! its acknowledgements.

use unisono_core::collective::CollectiveKind;
use unisono_core::device::{Device, DeviceQueue, Received};
use unisono_core::ids::PeerId;
use unisono_core::rma::operation::RmaRequest;
use unisono_core::rma::{RKey, RemoteSpan, Rights, RmaCall};
use unisono_core::schedule::{Algorithm, Spec};
use unisono_core::span::{Region, Span};

use super::{AdapterParameters, post};
use crate::scenarios::remote_access::process::{RmaProcess, RmaSizes, job};
use crate::scenarios::schedules::{Workload, run_over};
use crate::sim::{Network, NodeId};

/// Bytes of an element of [`Workload`].
const ELEMENT: usize = 3;
/// Bytes of the longest eager step, as in the library.
const EAGER: u32 = 1 << 14;
/// Alltoalls that follow the first one, whose contexts are in no cache.
const ROUNDS: u64 = 3;
/// Virtual nanoseconds after which an alltoall has failed.
const BOUND_NS: u64 = 10_000_000_000;

/// Pairs of ranks that have a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Connected {
    /// None.
    None,
    /// All.
    All,
    /// Each rank with its partners of the first steps of a pairwise exchange among a power of two of ranks: those whose
    /// numbers, XOR its own, are at most this (§8.1, "Hybrid algorithm").
    Steps(u32),
}

impl Connected {
    const fn has(self, one: u32, other: u32) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Steps(steps) => one ^ other <= steps,
        }
    }

    /// A network without nodes, for that many.
    fn network(self, parameters: &AdapterParameters, ranks: u32) -> Network {
        let network = Network::new(1, parameters.network());
        let pairs = (0..ranks).flat_map(|one| (0..one).map(move |other| (one, other)));
        for (one, other) in pairs.filter(|(one, other)| self.has(*one, *other)) {
            network.set_connections(NodeId(one), NodeId(other), 1);
        }
        network
    }
}

/// What one alltoall costs.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct AlltoallCost {
    /// Nanoseconds.
    pub nanoseconds: f64,
    /// Uses of contexts that were not in the cache, per adapter.
    pub misses: f64,
}

impl AlltoallCost {
    fn new(nanoseconds: u64, misses: u64, rounds: u64, ranks: u32) -> Self {
        let rounds = rounds as f64;
        Self { nanoseconds: nanoseconds as f64 / rounds, misses: misses as f64 / rounds / f64::from(ranks) }
    }
}

fn misses(network: &Network, ranks: u32) -> u64 {
    (0..ranks).map(|rank| network.context_misses(NodeId(rank))).sum()
}

/// Bytes of a block of [`messages`]: whole elements, `bytes` at least.
pub const fn block_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of(ELEMENT)
}

/// An alltoall by messages, the mean of several that follow each other. Its results are compared with the expected ones.
///
/// # Panics
/// A result is wrong, or a rank does not end.
pub fn messages(
    parameters: &AdapterParameters,
    algorithm: Algorithm,
    ranks: u32,
    bytes: usize,
    connected: Connected,
) -> AlltoallCost {
    let call = Spec::new(CollectiveKind::Alltoall, algorithm, ranks, 1);
    let work = Workload { call, elements: bytes.div_ceil(ELEMENT) };
    // No message is longer than all blocks of a rank.
    let eager = EAGER.min(ranks * block_bytes(bytes) as u32);
    let [one, all] = [1, 1 + ROUNDS].map(|count| {
        let network = connected.network(parameters, ranks);
        let outcome = run_over(&network, &vec![work; count as usize], 1, eager);
        assert_eq!((outcome.wrong, outcome.unfinished), (0, 0), "{algorithm:?} of {ranks} ranks");
        (outcome.nanoseconds, misses(&network, ranks))
    });
    AlltoallCost::new(all.0 - one.0, all.1 - one.1, ROUNDS, ranks)
}

/// An alltoall by writes into the outputs of the others, each with a value that announces the block. The keys are known,
/// and all ranks enter at once, as in the later rounds of a persistent one.
///
/// # Panics
/// A result is wrong, or a rank does not end.
pub fn writes(parameters: &AdapterParameters, ranks: u32, bytes: usize, connected: Connected) -> AlltoallCost {
    let network = connected.network(parameters, ranks);
    let sizes = RmaSizes { operations: ranks as usize, entries: ranks as usize, outstanding: 32 };
    let mut members: Vec<Member> =
        job(&network, ranks, sizes).into_iter().map(|process| Member::new(process, ranks, bytes)).collect();
    let keys: Vec<RKey> = members.iter().map(|member| member.key).collect();
    run_round(&network, &mut members, &keys, bytes);
    let (mut nanoseconds, before) = (0, misses(&network, ranks));
    for _ in 0..ROUNDS {
        nanoseconds += run_round(&network, &mut members, &keys, bytes);
    }
    assert!(members.iter().all(|member| member.has_result(ranks, bytes)), "wrong data");
    AlltoallCost::new(nanoseconds, misses(&network, ranks) - before, ROUNDS, ranks)
}

/// An alltoall of the adapters alone: every rank posts a block for each other one, its successor first, in as many
/// datagrams as it needs, and is done when the blocks of all others have arrived. All enter at once.
///
/// # Panics
/// A block does not arrive.
pub fn transfers(parameters: &AdapterParameters, ranks: u32, bytes: usize, connected: Connected) -> AlltoallCost {
    let network = connected.network(parameters, ranks);
    for _ in 0..ranks {
        network.add_node();
    }
    let sources: Vec<Region> = (0..ranks).map(|rank| network.memory(NodeId(rank)).make(bytes)).collect();
    let round = || {
        let start = network.now();
        for (own, &region) in (0..).zip(&sources) {
            (1..ranks).for_each(|step| post(&network, [own, (own + step) % ranks].map(NodeId), region, bytes));
        }
        let mut left = u64::from(ranks) * u64::from(ranks - 1) * bytes as u64;
        while left > 0 {
            let step = network.step().expect("a block is on its way");
            let mut device = network.device(step.node);
            while let Some(datagram) = device.receive(DeviceQueue::Polled) {
                left -= u64::from(datagram.bytes());
                device.release(datagram.slot());
            }
        }
        network.now() - start
    };
    round();
    let before = misses(&network, ranks);
    let nanoseconds = (0..ROUNDS).map(|_| round()).sum();
    AlltoallCost::new(nanoseconds, misses(&network, ranks) - before, ROUNDS, ranks)
}

/// A rank of [`writes`].
#[derive(Debug)]
struct Member {
    process: RmaProcess,
    input: Region,
    output: Region,
    key: RKey,
    /// Steps that have begun; writes that have ended; blocks that have arrived.
    begun: u32,
    written: u32,
    arrived: u32,
}

/// Byte `i` of the block from one rank to another.
const fn content(from: u32, to: u32, i: usize) -> u8 {
    (from as usize * 31 + to as usize * 7 + i) as u8 | 1
}

impl Member {
    fn new(mut process: RmaProcess, ranks: u32, bytes: usize) -> Self {
        let [input, output] = [0, 1].map(|_| process.memory.make(ranks as usize * bytes));
        let own = process.id.0;
        for to in 0..ranks {
            let block: Vec<u8> = (0..bytes).map(|i| content(own, to, i)).collect();
            process.memory.write(input, to as usize * bytes, &block).expect("a region of that size");
        }
        let key = process.register(output, 0, ranks as usize * bytes, Rights::WRITE).expect("a free record");
        Self { process, input, output, key, begun: 0, written: 0, arrived: 0 }
    }

    /// Begins as many writes as the machine takes.
    fn begin(&mut self, keys: &[RKey], bytes: usize) {
        let (own, ranks) = (self.process.id.0, keys.len() as u32);
        while self.begun + 1 < ranks {
            let to = (own + self.begun + 1) % ranks;
            let from = Span { region: self.input, offset: to as usize * bytes, bytes: bytes as u32 };
            let at = RemoteSpan { region: keys[to as usize], offset: u64::from(own) * bytes as u64 };
            let request = RmaRequest::Write { from, immediate: Some(own) };
            let call = RmaCall { to: PeerId(to), at, request, fence: false, user: 0 };
            if self.process.rma().start(&call).is_err() {
                return;
            }
            self.begun += 1;
            self.process.wake();
        }
    }

    fn has_result(&self, ranks: u32, bytes: usize) -> bool {
        let own = self.process.id.0;
        let span = Span { region: self.output, offset: 0, bytes: (ranks as usize * bytes) as u32 };
        let output = self.process.memory.read(span).expect("an output");
        (0..ranks).filter(|from| *from != own).all(|from| {
            let block = &output[from as usize * bytes..][..bytes];
            block.iter().enumerate().all(|(i, byte)| *byte == content(from, own, i))
        })
    }
}

/// One alltoall of ranks that enter now. Returns its nanoseconds.
fn run_round(network: &Network, members: &mut [Member], keys: &[RKey], bytes: usize) -> u64 {
    let (start, others) = (network.now(), members.len() as u32 - 1);
    for member in members.iter_mut() {
        (member.begun, member.written, member.arrived) = (0, 0, 0);
        member.process.wake();
    }
    let mut open = members.len();
    while let Some(step) = network.step_until(start + BOUND_NS) {
        let member = &mut members[step.node.0 as usize];
        let was_open = member.written < others || member.arrived < others;
        if member.begun == 0 {
            member.begin(keys, bytes);
        }
        let events = member.process.drive(step.lane);
        assert!(events.completions.iter().all(|completion| completion.result.is_ok()), "{events:?}");
        member.written += events.completions.len() as u32;
        member.arrived += events.immediates.len() as u32;
        member.begin(keys, bytes);
        open -= usize::from(was_open && member.written >= others && member.arrived >= others);
        if open == 0 {
            return network.now() - start;
        }
    }
    panic!("an alltoall of {} ranks does not end", members.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Misses cost time only if the connections do not fit in the cache.
    #[test]
    fn connections_cost_misses_beyond_the_cache_only() {
        let parameters = AdapterParameters { contexts: 7, ..AdapterParameters::built_in() };
        for (ranks, has_misses) in [(8, false), (16, true)] {
            let [datagrams, connections] = [Connected::None, Connected::All]
                .map(|connected| messages(&parameters, Algorithm::Direct, ranks, 8, connected));
            assert_eq!(datagrams.misses, 0.0, "{ranks} ranks");
            assert_eq!(connections.misses > 0.0, has_misses, "{ranks} ranks: {connections:?}");
            assert_eq!(connections.nanoseconds > datagrams.nanoseconds, has_misses, "{ranks} ranks");
        }
    }

    /// Closed form: n − 1 datagrams follow each other in the sending engine, and the last one passes the link and the
    /// receiving engine.
    #[test]
    fn transfers_over_datagrams_take_an_engine_per_block_and_a_latency() {
        let parameters = AdapterParameters { bytes_per_s: 1 << 40, ..AdapterParameters::built_in() };
        for ranks in [2, 8, 40] {
            let cost = transfers(&parameters, ranks, 8, Connected::None);
            let expected = u64::from(ranks - 2) * parameters.processing_ns + parameters.latency_ns;
            // Links are fast, and their times are rounded up.
            assert!((cost.nanoseconds - expected as f64).abs() < 4.0, "{ranks} ranks: {cost:?}");
            assert_eq!(cost.misses, 0.0);
        }
    }

    /// A cache of one context misses with each block, at both ends.
    #[test]
    fn every_transfer_over_a_connection_misses_in_the_smallest_cache() {
        let parameters = AdapterParameters { contexts: 1, ..AdapterParameters::built_in() };
        let cost = transfers(&parameters, 32, 8, Connected::All);
        assert!((60.0..=62.0).contains(&cost.misses), "{cost:?}");
        let least = 31 * (parameters.processing_ns + parameters.miss_ns);
        assert!(cost.nanoseconds > least as f64, "{cost:?}");
    }

    #[test]
    fn a_rank_is_connected_with_its_partners_of_the_first_steps() {
        for steps in 0..8 {
            for one in 0..8 {
                let partners = (0..8).filter(|other| *other != one && Connected::Steps(steps).has(one, *other));
                assert_eq!(partners.count(), steps as usize, "{one}");
            }
        }
    }

    #[test]
    fn writes_arrive_over_datagrams_and_connections() {
        let parameters = AdapterParameters::built_in();
        for (bytes, connected) in [(8, Connected::None), (5000, Connected::None), (5000, Connected::All)] {
            let cost = writes(&parameters, 5, bytes, connected);
            let least = (4 * bytes) as f64 / parameters.bytes_per_s as f64 * 1e9;
            assert!(cost.nanoseconds > least, "{cost:?}");
        }
    }
}
