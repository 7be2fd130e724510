//! The user of an endpoint: submits messages and placements, and checks its memory.

use alloc::collections::VecDeque;
use std::collections::HashMap;

use unisono_core::ids::{OperationId, PeerId, PlacementId, RemoteKey};
use unisono_core::span::{Region, Span};

use super::{BOUND_NS, Outcome, WINDOW, damage::AttackStyle};
use crate::sim::node::SimProcess;

/// Bytes of the source buffer.
const SOURCE: usize = 1 << 16;
/// Bytes before and behind a granted span, more than a datagram has.
const GUARD: usize = 2048;
/// Filler of memory before a placement.
const BLANK: u8 = 0xa5;
/// Messages and placements under way.
const BACKLOG: usize = 12;
/// Grants that are out.
const GRANTS: usize = 3;
/// Ended grants whose memory is still checked.
const KEPT: usize = 4;

/// Virtual nanoseconds after which a grant is withdrawn: longer than a contradiction takes to be noticed.
const GRANT_TIMEOUT_NS: u64 = 20_000_000_000;

/// A grant to the peer.
#[derive(Debug)]
struct Grant {
    placement: PlacementId,
    region: Region,
    bytes: u32,
    /// Where in the peer's source the bytes are to come from.
    start: usize,
    since: u64,
}

/// The description of a grant for the peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct GrantOffer {
    placement: PlacementId,
    key: RemoteKey,
    bytes: u32,
    start: usize,
}

/// A grant that has ended, and all bytes of its region at that time.
#[derive(Debug)]
struct Ended {
    region: Region,
    bytes: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct User {
    peer: PeerId,
    source: Region,
    /// The peer's incarnation has ended.
    pub(super) has_lost_its_peer: bool,
    sent: u64,
    received: u64,
    operations: HashMap<u32, u64>,
    grants: Vec<Grant>,
    ended: VecDeque<Ended>,
}

/// The bytes of every source.
fn byte(at: usize) -> u8 {
    (at ^ at >> 7 ^ at >> 11) as u8
}

fn start_of(message: u64) -> usize {
    (message.wrapping_mul(0x9e37_79b9) >> 3) as usize % (SOURCE / 2)
}

fn length_of(message: u64) -> usize {
    let drawn = message.wrapping_mul(0x85eb_ca6b) >> 7;
    // Half of the messages are short.
    if drawn & 1 == 0 { (drawn >> 1) as usize % 65 } else { (drawn >> 1) as usize % 1400 }
}

impl User {
    pub(super) fn new(node: &mut SimProcess<WINDOW>) -> Self {
        let source = node.memory.make(SOURCE);
        let bytes: Vec<u8> = (0..SOURCE).map(byte).collect();
        node.memory.write(source, 0, &bytes).expect("a region of that size");
        let peer = PeerId(1 - node.id.0);
        let now = 0;
        node.endpoint.watch(now, peer, true);
        node.wake();
        Self {
            peer,
            source,
            has_lost_its_peer: false,
            sent: 0,
            received: 0,
            operations: HashMap::new(),
            grants: Vec::new(),
            ended: VecDeque::new(),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.operations.is_empty() && self.grants.is_empty()
    }

    pub(super) fn is_overdue(&self, now: u64) -> bool {
        let late = |since: u64| now - since > BOUND_NS;
        self.operations.values().any(|since| late(*since)) || self.grants.iter().any(|grant| late(grant.since))
    }

    /// A few messages.
    pub(super) fn send(&mut self, node: &mut SimProcess<WINDOW>, now: u64, choice: u32) {
        for _ in 0..choice % 4 {
            if self.has_lost_its_peer || self.operations.len() >= BACKLOG {
                return;
            }
            let message = self.sent;
            let (offset, bytes) = (start_of(message), length_of(message) as u32);
            let payload = (bytes > 0).then_some(Span { region: self.source, offset, bytes });
            if let Ok(operation) = node.endpoint.send(now, self.peer, &message.to_le_bytes(), payload) {
                self.sent += 1;
                self.operations.insert(operation.0, now);
                node.wake();
            }
        }
    }

    /// Grants a span, of up to 12 segments.
    pub(super) fn grant(&mut self, node: &mut SimProcess<WINDOW>, now: u64, choice: u32) -> Option<GrantOffer> {
        if self.has_lost_its_peer || self.grants.len() >= GRANTS || choice & 3 != 0 {
            return None;
        }
        let bytes = (choice >> 2).wrapping_mul(0x9e37_79b9) >> 18;
        let region = node.memory.make(bytes as usize + 2 * GUARD);
        node.memory.write(region, 0, &vec![BLANK; bytes as usize + 2 * GUARD]).expect("a region of that size");
        let key = RemoteKey(u64::from(choice).wrapping_mul(0x2545_f491_4f6c_dd1d) | now);
        let Ok(placement) = node.endpoint.grant(self.peer, Span { region, offset: GUARD, bytes }, key) else {
            node.memory.retire(region);
            return None;
        };
        let start = choice as usize % (SOURCE / 2);
        self.grants.push(Grant { placement, region, bytes, start, since: now });
        Some(GrantOffer { placement, key, bytes, start })
    }

    /// Fills a grant of the peer.
    pub(super) fn place(&mut self, node: &mut SimProcess<WINDOW>, now: u64, offer: &GrantOffer) {
        let from = Span { region: self.source, offset: offer.start, bytes: offer.bytes };
        if let Ok(operation) = node.endpoint.place(now, self.peer, offer.placement, offer.key, from) {
            self.operations.insert(operation.0, now);
            node.wake();
        }
    }

    pub(super) fn complete(&mut self, operation: OperationId, well: bool, now: u64, outcome: &mut Outcome) {
        match self.operations.remove(&operation.0) {
            Some(since) => {
                outcome.ended += 1;
                outcome.succeeded += u64::from(well);
                outcome.slowest_ns = outcome.slowest_ns.max(now - since);
            }
            None => outcome.endless += 1,
        }
    }

    pub(super) fn deliver(
        &mut self,
        node: &SimProcess<WINDOW>,
        placement: PlacementId,
        bytes: u32,
        style: AttackStyle,
        now: u64,
        outcome: &mut Outcome,
    ) {
        let Some(i) = self.grants.iter().position(|grant| grant.placement == placement) else {
            outcome.endless += 1;
            return;
        };
        let grant = self.grants.swap_remove(i);
        outcome.ended += 1;
        outcome.succeeded += 1;
        outcome.slowest_ns = outcome.slowest_ns.max(now - grant.since);
        let kept = end(node, &grant, outcome);
        let inner = kept.bytes.get(GUARD..GUARD + grant.bytes as usize).unwrap_or_default();
        let exact = bytes == grant.bytes && inner.iter().zip(grant.start..).all(|(is, at)| *is == byte(at));
        outcome.corrupt += u64::from(style == AttackStyle::Noise && !exact);
        self.ended.push_back(kept);
    }

    /// Messages are whole, in order, and come once.
    pub(super) fn take_messages(&mut self, node: &mut SimProcess<WINDOW>, style: AttackStyle, outcome: &mut Outcome) {
        for (_, message) in node.take_messages() {
            if style == AttackStyle::Noise {
                let start = start_of(self.received);
                let (number, rest) = message.split_at(message.len().min(8));
                let whole = rest.len() == length_of(self.received)
                    && number == self.received.to_le_bytes()
                    && rest.iter().zip(start..).all(|(is, at)| *is == byte(at));
                outcome.corrupt += u64::from(!whole);
            }
            self.received += 1;
        }
        while self.ended.len() > KEPT {
            if let Some(ended) = self.ended.pop_front() {
                outcome.outside += u64::from(!is_unchanged(node, &ended));
                node.memory.retire(ended.region);
            }
        }
    }

    /// The peer's incarnation has ended: ends every operation and withdraws grants.
    pub(super) fn lose_peer(&mut self, node: &mut SimProcess<WINDOW>, outcome: &mut Outcome) {
        self.has_lost_its_peer = true;
        outcome.endless += self.operations.len() as u64;
        self.operations.clear();
        self.end_grants(node, outcome);
    }

    /// Withdraws grants that have been out for long: other bytes arrived in their place.
    pub(super) fn expire_grants(&mut self, node: &mut SimProcess<WINDOW>, now: u64, outcome: &mut Outcome) {
        let (old, young) = self.grants.drain(..).partition(|grant| now - grant.since > GRANT_TIMEOUT_NS);
        self.grants = old;
        self.end_grants(node, outcome);
        self.grants = young;
    }

    /// Withdraws all grants.
    pub(super) fn end_grants(&mut self, node: &mut SimProcess<WINDOW>, outcome: &mut Outcome) {
        for grant in core::mem::take(&mut self.grants) {
            let withdrawn = node.endpoint.withdraw(grant.placement);
            outcome.endless += u64::from(!withdrawn);
            outcome.ended += 1;
            self.ended.push_back(end(node, &grant, outcome));
        }
    }

    /// Checks all memory that nobody was allowed to write.
    pub(super) fn check_unwritable_memory(&mut self, node: &SimProcess<WINDOW>, outcome: &mut Outcome) {
        for ended in self.ended.drain(..) {
            outcome.outside += u64::from(!is_unchanged(node, &ended));
        }
        let source = node.memory.read(Span { region: self.source, offset: 0, bytes: SOURCE as u32 });
        let same = source.is_some_and(|bytes| bytes.iter().enumerate().all(|(at, is)| *is == byte(at)));
        outcome.outside += u64::from(!same);
    }
}

fn whole(node: &SimProcess<WINDOW>, region: Region, bytes: usize) -> Vec<u8> {
    node.memory.read(Span { region, offset: 0, bytes: bytes as u32 }).expect("a region of this life")
}

fn end(node: &SimProcess<WINDOW>, grant: &Grant, outcome: &mut Outcome) -> Ended {
    let bytes = whole(node, grant.region, grant.bytes as usize + 2 * GUARD);
    let guards = bytes[..GUARD].iter().chain(&bytes[GUARD + grant.bytes as usize..]);
    outcome.outside += guards.filter(|byte| **byte != BLANK).count() as u64;
    Ended { region: grant.region, bytes }
}

fn is_unchanged(node: &SimProcess<WINDOW>, ended: &Ended) -> bool {
    whole(node, ended.region, ended.bytes.len()) == ended.bytes
}
