//! The test bench of the cases: fresh devices, datagrams with known bytes, waiting within a bound.

use std::collections::HashSet;

use unisono_core::device::{
    Destination, Device, DeviceQueue, HEADER_ROOM, Limits, Memory, Received, Slot, Ticket, Token, Transmit, TxReason,
};
use unisono_core::ids::{PeerId, Rail};
use unisono_core::span::{Region, Span};

use super::{ContractViolation, Fixture, TestMemory};

/// Longest wait for what must happen.
const BOUND_NS: u64 = 1_000_000_000;
/// Longest wait on a faulty link before a datagram is sent again.
const AGAIN_NS: u64 = 20_000_000;
/// How long nothing must happen to be believed.
pub(super) const QUIET_NS: u64 = 5_000_000;
/// A faulty link hardly ever loses this many datagrams in a row.
const ATTEMPTS: u32 = 40;
/// Devices of a bench.
pub(super) const NODES: u32 = 3;
/// Bytes around a target that placing must not touch.
const GUARD: usize = 32;
const UNTOUCHED: u8 = 0xa5;

/// The way of a datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) from: usize,
    /// The ring it is posted to.
    pub(super) lane: DeviceQueue,
    pub(super) to: PeerId,
    /// The rail it takes.
    pub(super) rail: Rail,
    /// The lane it is meant for.
    pub(super) at: DeviceQueue,
}

/// From node 1 to node 0.
pub(super) const ROUTE: Route =
    Route { from: 1, lane: DeviceQueue::Polled, to: PeerId(0), rail: Rail(0), at: DeviceQueue::Polled };

/// A datagram that was received and is not yet released.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    pub(super) slot: Slot,
    pub(super) bytes: usize,
    pub(super) head: Vec<u8>,
    /// Which of [`ASKED`] sent it, as `is_from` says.
    pub(super) senders: Vec<u32>,
}

/// Peers that `is_from` is asked for: those of the bench and unknown ones.
const ASKED: [u32; 6] = [0, 1, 2, NODES, 77, u32::MAX];

impl Arrival {
    pub(super) fn of(received: &impl Received) -> Self {
        Self {
            slot: received.slot(),
            bytes: received.bytes() as usize,
            head: received.prefix().to_vec(),
            senders: ASKED.into_iter().filter(|&peer| received.is_from(PeerId(peer))).collect(),
        }
    }
}

/// User memory borrowed by a posting.
struct BorrowedBuffer {
    node: usize,
    region: Region,
}

pub(super) struct TestBench<F: Fixture> {
    pub(super) fixture: F,
    pub(super) nodes: Vec<(F::Device, F::Memory)>,
    borrowed: Vec<BorrowedBuffer>,
    /// All exchanged datagrams: a faulty link may duplicate them.
    history: HashSet<Vec<u8>>,
}

impl<F: Fixture> TestBench<F> {
    pub(super) fn new(mut fixture: F) -> Self {
        let nodes = fixture.connect(NODES);
        assert_eq!(nodes.len(), NODES as usize, "the fixture makes as many devices as it is asked for");
        Self { fixture, nodes, borrowed: Vec::new(), history: HashSet::new() }
    }

    pub(super) fn is_faulty(&self) -> bool {
        self.fixture.is_faulty()
    }

    pub(super) fn limits(&self) -> Limits {
        self.nodes[0].0.limits()
    }

    pub(super) fn device(&mut self, node: usize) -> &mut F::Device {
        &mut self.nodes[node].0
    }

    /// A region with these bytes.
    pub(super) fn region(&mut self, node: usize, bytes: &[u8]) -> Region {
        let memory = &mut self.nodes[node].1;
        let region = memory.make(bytes.len());
        memory.write(region, 0, bytes);
        region
    }

    pub(super) fn retire(&mut self, node: usize, region: Region) {
        self.nodes[node].1.retire(region);
    }

    pub(super) fn overwrite(&mut self, node: usize, region: Region, bytes: &[u8]) {
        self.nodes[node].1.write(region, 0, bytes);
    }

    pub(super) fn read(&mut self, node: usize, region: Region, bytes: usize) -> Vec<u8> {
        self.nodes[node].1.read(region, 0, bytes)
    }

    pub(super) fn place(&mut self, node: usize, slot: Slot, start: u16, to: Span) -> Result<(), ContractViolation> {
        let (device, memory) = &mut self.nodes[node];
        let address = memory.address(to).ok_or(ContractViolation::Address { span: to, expected: true })?;
        device.place(slot, start, to.bytes, address);
        Ok(())
    }

    /// Retries an attempt until it succeeds, for at most `bound` nanoseconds.
    pub(super) fn until<T>(&mut self, bound: u64, mut attempt: impl FnMut(&mut Self) -> Option<T>) -> Option<T> {
        let (mut waited, mut pause) = (0, 500);
        loop {
            let found = attempt(self);
            if found.is_some() || waited >= bound {
                return found;
            }
            self.fixture.advance(pause);
            waited += pause;
            pause = (pause * 2).min(2_000_000);
        }
    }

    /// As `until`, with the bound of things that must happen.
    pub(super) fn soon<T>(&mut self, attempt: impl FnMut(&mut Self) -> Option<T>) -> Option<T> {
        self.until(BOUND_NS, attempt)
    }

    /// A datagram on the lane, if one is there now.
    pub(super) fn take(&mut self, node: usize, lane: DeviceQueue) -> Option<Arrival> {
        self.device(node).receive(lane).map(|received| Arrival::of(&received))
    }

    /// The next datagram on the lane; one must come.
    pub(super) fn next(&mut self, node: usize, lane: DeviceQueue, bytes: usize) -> Result<Arrival, ContractViolation> {
        self.soon(|bench| bench.take(node, lane)).ok_or(ContractViolation::Missing { bytes })
    }

    /// Nothing must come on the lane for a while.
    pub(super) fn nothing_comes(&mut self, node: usize, lane: DeviceQueue) -> Result<(), ContractViolation> {
        match self.until(QUIET_NS, |bench| bench.take(node, lane)) {
            None => Ok(()),
            Some(arrival) => {
                self.device(node).release(arrival.slot);
                Err(ContractViolation::Unexpected { head: arrival.head })
            }
        }
    }

    /// Posts a datagram without flushing; waits for a free entry if need be, which flushes.
    pub(super) fn post(&mut self, route: Route, head: &[u8], body: &[u8]) -> Result<Ticket, ContractViolation> {
        self.post_to(Destination::Peer { peer: route.to, rail: route.rail }, route, head, body)
    }

    /// As [`post`](Self::post), to another destination than the route's.
    pub(super) fn post_to(
        &mut self,
        to: Destination,
        route: Route,
        head: &[u8],
        body: &[u8],
    ) -> Result<Ticket, ContractViolation> {
        let payload = (!body.is_empty()).then(|| {
            // Not at the start of a region, and not aligned.
            let mut bytes = vec![0; GUARD + 1];
            bytes.extend_from_slice(body);
            let region = self.region(route.from, &bytes);
            self.borrowed.push(BorrowedBuffer { node: route.from, region });
            Span { region, offset: GUARD + 1, bytes: body.len() as u32 }
        });
        match self.try_post_to(to, route, head, payload) {
            Some(ticket) => Ok(ticket),
            None => {
                self.device(route.from).flush(route.lane);
                let posted = self.soon(|bench| {
                    bench.device(route.from).completed(route.lane);
                    bench.try_post_to(to, route, head, payload)
                });
                posted.ok_or(ContractViolation::NoToken(route.lane))
            }
        }
    }

    /// As [`post`](Self::post), unless no entry is free.
    pub(super) fn try_post(&mut self, route: Route, head: &[u8], payload: Option<Span>) -> Option<Ticket> {
        self.try_post_to(Destination::Peer { peer: route.to, rail: route.rail }, route, head, payload)
    }

    fn try_post_to(&mut self, to: Destination, route: Route, head: &[u8], payload: Option<Span>) -> Option<Ticket> {
        assert!(head.len() <= HEADER_ROOM, "a case posts a head of {} bytes", head.len());
        let (device, memory) = &mut self.nodes[route.from];
        let mut token = device.token(route.lane)?;
        let ticket = token.ticket();
        token.header_room()[..head.len()].copy_from_slice(head);
        let transmit = Transmit {
            to,
            queue: route.at,
            header_bytes: head.len() as u8,
            payload,
            solicited: route.at == DeviceQueue::Interrupt,
            reason: TxReason::First,
        };
        let address = payload.and_then(|span| memory.address(span));
        token.post(&transmit, address);
        Some(ticket)
    }

    /// Flushes the lane, waits until everything on it is complete and releases borrowed memory.
    pub(super) fn finish(&mut self, from: usize, lane: DeviceQueue, posted: Ticket) -> Result<(), ContractViolation> {
        self.device(from).flush(lane);
        let mut before = None;
        let finished = self.soon(|bench| {
            let completed = bench.device(from).completed(lane);
            let orderly =
                completed.is_within(posted) && before.is_none_or(|before: Ticket| before.is_within(completed));
            if !orderly {
                return Some(Err(ContractViolation::Completed { before: before.unwrap_or(posted), found: completed }));
            }
            before = Some(completed);
            posted.is_within(completed).then_some(Ok(()))
        });
        for BorrowedBuffer { node, region } in
            self.borrowed.extract_if(.., |loan| loan.node == from).collect::<Vec<_>>()
        {
            self.retire(node, region);
        }
        let completed = before.unwrap_or(posted);
        finished.unwrap_or(Err(ContractViolation::Unfinished { posted, completed }))
    }

    /// Posts, flushes and waits for completion.
    pub(super) fn send(&mut self, route: Route, head: &[u8], body: &[u8]) -> Result<(), ContractViolation> {
        let ticket = self.post(route, head, body)?;
        self.finish(route.from, route.lane, ticket)
    }

    /// All bytes of a datagram, by placing it between guard bytes.
    pub(super) fn contents(&mut self, node: usize, arrival: &Arrival) -> Result<Vec<u8>, ContractViolation> {
        let region = self.region(node, &vec![UNTOUCHED; arrival.bytes + 2 * GUARD]);
        self.place(node, arrival.slot, 0, Span { region, offset: GUARD, bytes: arrival.bytes as u32 })?;
        let mut bytes = self.read(node, region, arrival.bytes + 2 * GUARD);
        self.retire(node, region);
        for at in (0..GUARD).chain(arrival.bytes + GUARD..bytes.len()) {
            if bytes[at] != UNTOUCHED {
                return Err(ContractViolation::Placed { at, expected: UNTOUCHED, found: bytes[at] });
            }
        }
        bytes.truncate(arrival.bytes + GUARD);
        Ok(bytes.split_off(GUARD))
    }

    /// Whether the arrival is this datagram, in every byte.
    pub(super) fn compare(&mut self, node: usize, arrival: &Arrival, expected: &[u8]) -> Result<(), ContractViolation> {
        if arrival.bytes != expected.len() {
            return Err(ContractViolation::Length { expected: expected.len(), found: arrival.bytes });
        }
        let head = &expected[..expected.len().min(HEADER_ROOM)];
        if arrival.head != head {
            return Err(ContractViolation::Head { expected: head.to_vec(), found: arrival.head.clone() });
        }
        let found = self.contents(node, arrival)?;
        match (0..expected.len()).find(|&at| found[at] != expected[at]) {
            None => Ok(()),
            Some(at) => Err(ContractViolation::Changed { at, expected: expected[at], found: found[at] }),
        }
    }

    /// Sends a datagram and checks that it arrives as it was sent; returns it as received and not yet released. On a
    /// faulty link it is sent until it arrives, and others that were exchanged before may arrive again.
    pub(super) fn exchange(&mut self, route: Route, head: &[u8], body: &[u8]) -> Result<Arrival, ContractViolation> {
        let (expected, node) = ([head, body].concat(), route.to.0 as usize);
        let faulty = self.is_faulty();
        for _ in 0..if faulty { ATTEMPTS } else { 1 } {
            self.send(route, head, body)?;
            let bound = if faulty { AGAIN_NS } else { BOUND_NS };
            while let Some(arrival) = self.until(bound, |bench| bench.take(node, route.at)) {
                let found = self.compare(node, &arrival, &expected);
                if found.is_ok() {
                    self.history.insert(expected);
                    return Ok(arrival);
                }
                let again = faulty && self.contents(node, &arrival).is_ok_and(|bytes| self.history.contains(&bytes));
                self.device(node).release(arrival.slot);
                if !again {
                    return found.map(|()| arrival);
                }
            }
        }
        Err(ContractViolation::Missing { bytes: expected.len() })
    }

    /// Exchanges numbered datagrams, one flush at a time, none of which may get lost.
    pub(super) fn check_link(&mut self, route: Route) -> Result<(), ContractViolation> {
        for number in 0..4_u64 {
            let arrival = self.exchange(route, &(!number).to_le_bytes(), &[])?;
            self.device(route.to.0 as usize).release(arrival.slot);
        }
        Ok(())
    }
}

/// Bytes that depend on their offset and on the number of the datagram.
pub(super) fn pattern(number: u64, bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(number ^ (bytes as u64) << 32);
    core::iter::repeat_with(|| random.u8(..)).take(bytes).collect()
}
