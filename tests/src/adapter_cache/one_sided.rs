//! Latency and bandwidth of reads and writes that the library emulates over datagrams (Mamidala 2008, §8.3): the shipped
//! machine of remote memory access and the shipped endpoint, at two simulated nodes.

use alloc::rc::Rc;
use core::cell::Cell;

use unisono_core::ids::PeerId;
use unisono_core::rma::operation::RmaRequest;
use unisono_core::rma::{RKey, RemoteSpan, Rights, RmaCall};
use unisono_core::span::{Region, Span};

use super::AdapterParameters;
use super::transports::rate;
use crate::scenarios::remote_access::process::{RmaProcess, RmaSizes, RoundEvents, job};
use crate::sim::{DatagramFate, Network, NodeId};

/// The node whose memory is accessed.
const TARGET: NodeId = NodeId(1);
/// Nanoseconds in which the acknowledgements of earlier operations arrive.
const QUIET_NS: u64 = 5_000_000;
/// Virtual nanoseconds after which an operation has failed.
const BOUND_NS: u64 = 10_000_000_000;
/// Operations that are under way at a time when bandwidth is measured.
const OUTSTANDING: u32 = 32;

/// An operation on the memory of the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Done when the data are in memory of the requester.
    Read,
    /// Done when the target knows that the data are in its memory.
    Write,
}

/// How the target waits for requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TargetWait {
    /// It polls its adapter.
    Polling,
    /// It sleeps until an event of its adapter.
    Event,
}

/// A requester and a target.
#[derive(Debug)]
pub struct EmulatedPair {
    network: Network,
    nodes: Vec<RmaProcess>,
    key: RKey,
    memories: [Region; 2],
    event_ns: u64,
    delivered: Rc<Cell<u64>>,
}

impl EmulatedPair {
    /// Nodes of which the requester accesses up to `bytes` bytes of the target. One operation of each kind has ended.
    pub fn new(parameters: &AdapterParameters, bytes: u32) -> Self {
        let network = Network::new(1, parameters.network());
        let outstanding = OUTSTANDING as u8;
        let sizes = RmaSizes { operations: 2 * OUTSTANDING as usize, entries: 2 * OUTSTANDING as usize, outstanding };
        let mut nodes = job(&network, 2, sizes);
        let memories = [0, 1].map(|node: usize| nodes[node].memory.make(bytes as usize));
        let data: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8 + 1).collect();
        nodes[0].memory.write(memories[0], 0, &data).expect("a region of that size");
        let rights = Rights::READ.union(Rights::WRITE);
        let key = nodes[1].register(memories[1], 0, bytes as usize, rights).expect("a free record");
        let delivered = Rc::new(Cell::new(0));
        let count = Rc::clone(&delivered);
        network.watch(move |datagram| {
            count.set(count.get() + u64::from((datagram.what, datagram.to) == (DatagramFate::Delivered, TARGET)));
        });
        let event_ns = parameters.event_ns;
        let mut pair = Self { network, nodes, key, memories, event_ns, delivered };
        // Written, then read back over itself.
        for operation in [Operation::Write, Operation::Read] {
            pair.run(operation, bytes, 1, TargetWait::Polling);
        }
        for (node, region) in pair.nodes.iter().zip(pair.memories) {
            assert_eq!(node.memory.read(Span { region, offset: 0, bytes }), Some(data.clone()), "{:?}", node.id);
        }
        pair
    }

    /// Nanoseconds of one operation.
    pub fn latency(&mut self, operation: Operation, bytes: u32, wait: TargetWait) -> u64 {
        self.run(operation, bytes, 1, wait)
    }

    /// The rate of `count` operations, some of them at a time, in bytes per second. The target polls.
    pub fn bandwidth(&mut self, operation: Operation, bytes: u32, count: u32) -> f64 {
        rate(u64::from(bytes) * u64::from(count), self.run(operation, bytes, count, TargetWait::Polling))
    }

    /// Nanoseconds until all of `count` operations are done. Earlier operations leave nothing behind.
    fn run(&mut self, operation: Operation, bytes: u32, count: u32, wait: TargetWait) -> u64 {
        self.settle();
        let (start, before) = (self.network.now(), self.delivered.get());
        let mut sleeps = wait == TargetWait::Event;
        let (mut started, mut done) = (0, 0);
        let mut under_way: u32 = 0;
        let immediate = (operation == Operation::Write).then_some(7);
        self.nodes[0].wake();
        while let Some(step) = self.network.step_until(start + BOUND_NS) {
            if sleeps && step.node == TARGET && self.delivered.get() > before {
                sleeps = false;
                self.network.busy(TARGET, step.at + self.event_ns);
                self.network.wake_at(TARGET, step.at + self.event_ns);
                continue;
            }
            let RoundEvents { completions, immediates, .. } = self.nodes[step.node.0 as usize].drive(step.lane);
            under_way -= completions.len() as u32;
            assert!(completions.iter().all(|completion| completion.result.is_ok()), "{completions:?}");
            done += match operation {
                Operation::Read => completions.len() as u32,
                Operation::Write => immediates.len() as u32,
            };
            if done == count {
                return step.at - start;
            }
            if step.node != TARGET && started < count && under_way < OUTSTANDING {
                let span = Span { region: self.memories[0], offset: 0, bytes };
                let request = match operation {
                    Operation::Read => RmaRequest::Read { into: span, stride: None },
                    Operation::Write => RmaRequest::Write { from: span, immediate },
                };
                let at = RemoteSpan { region: self.key, offset: 0 };
                let call = RmaCall { to: PeerId::from(TARGET), at, request, fence: false, user: 0 };
                while started < count && under_way < OUTSTANDING && self.nodes[0].rma().start(&call).is_ok() {
                    (started, under_way) = (started + 1, under_way + 1);
                }
                self.nodes[0].wake();
            }
        }
        panic!("{operation:?} of {bytes} bytes does not end")
    }

    fn settle(&mut self) {
        let until = self.network.now() + QUIET_NS;
        while let Some(step) = self.network.step_until(until) {
            self.nodes[step.node.0 as usize].drive(step.lane);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u32 = 1024;

    fn latency(parameters: &AdapterParameters, operation: Operation, wait: TargetWait) -> u64 {
        EmulatedPair::new(parameters, BYTES).latency(operation, BYTES, wait)
    }

    #[test]
    fn a_read_takes_two_messages_and_a_write_one() {
        let parameters =
            AdapterParameters { bytes_per_s: 1 << 40, latency_ns: 50_000, ..AdapterParameters::built_in() };
        for (operation, messages) in [(Operation::Read, 2), (Operation::Write, 1)] {
            let taken = latency(&parameters, operation, TargetWait::Polling);
            let least = messages * parameters.latency_ns;
            assert!((least..least + parameters.latency_ns / 2).contains(&taken), "{operation:?}: {taken} ns");
        }
    }

    #[test]
    fn an_event_delays_an_operation_by_its_time() {
        let parameters = AdapterParameters { event_ns: 12_345, ..AdapterParameters::built_in() };
        let [polling, event] =
            [TargetWait::Polling, TargetWait::Event].map(|wait| latency(&parameters, Operation::Read, wait));
        assert_eq!(event, polling + parameters.event_ns);
    }
}
