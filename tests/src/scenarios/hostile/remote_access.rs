//! Remote memory access over a network that damages, replays and forges datagrams.
//!
//! Each side reads, writes and updates a window of the other; one request in eight is bad by itself: a wrong key, an
//! expired one, or a range that ends outside. Windows are revoked at any time and replaced by others, whose keys the
//! other side learns late. Under noise, whatever is read is what somebody wrote there. Under lies bytes may be wrong, but
//! none is written outside a live window or the buffer of a pending read. A request or an answer that became another
//! valid message is never answered: its user gives the peer up after [`PATIENCE_NS`], and then everything ends.

use alloc::collections::VecDeque;
use alloc::rc::Rc;
use core::cell::RefCell;

use unisono_core::ids::PeerId;
use unisono_core::rma::atomic::{AtomicKind, AtomicOperation, Width};
use unisono_core::rma::header::ElementUpdate;
use unisono_core::rma::operation::RmaRequest;
use unisono_core::rma::region::Refusal;
use unisono_core::rma::stride::Stride;
use unisono_core::rma::{RKey, RemoteSpan, Rights, RmaCall, RmaCompletion, RmaError};
use unisono_core::span::{Region, Span};

use super::damage::{AttackStyle, Attacker};
use super::{BOUND_NS, Choices, Outcome};
use crate::scenarios::remote_access::process::{RmaProcess, RmaSizes, RoundEvents};
use crate::sim::{Config, Network, NodeId, TamperVerdict};
use unisono_core::device::DeviceQueue;

/// Bytes of a window, and those of them that are updated.
const WINDOW: usize = 4096;
const UPDATED: usize = 64;
/// Bytes before and behind windows and buffers, more than a datagram has.
const GUARD: usize = 2048;
/// Content of memory that nobody has written.
const BLANK: u8 = 0xa5;
/// Operations under way, and ended memory that is still checked.
const BACKLOG: usize = 8;
const KEPT: usize = 4;

/// Virtual nanoseconds that a user waits for an answer under lies.
const PATIENCE_NS: u64 = BOUND_NS / 2;

/// As [`noise`](super::noise), of remote memory access.
pub fn rma_noise(choices: Choices, damaged: u64) -> Outcome {
    RmaRun::new(choices, AttackStyle::Noise).run(damaged)
}

/// As [`lies`](super::lies), of remote memory access.
pub fn rma_lies(choices: Choices, damaged: u64) -> Outcome {
    RmaRun::new(choices, AttackStyle::Lies).run(damaged)
}

/// The byte that is written at a place of a window.
fn byte(at: usize) -> u8 {
    (at ^ at >> 5 ^ 0x3c) as u8
}

/// Memory with guards.
#[derive(Debug)]
struct Guarded {
    region: Region,
    bytes: usize,
}

impl Guarded {
    fn new(node: &mut RmaProcess, bytes: usize) -> Self {
        let region = node.memory.make(bytes + 2 * GUARD);
        node.memory.write(region, 0, &vec![BLANK; bytes + 2 * GUARD]).expect("a region of that size");
        Self { region, bytes }
    }

    fn inner(&self) -> Span {
        Span { region: self.region, offset: GUARD, bytes: self.bytes as u32 }
    }

    fn whole(&self, node: &RmaProcess) -> Vec<u8> {
        let bytes = (self.bytes + 2 * GUARD) as u32;
        node.memory.read(Span { region: self.region, offset: 0, bytes }).expect("a region of this life")
    }

    /// Bytes of the guards that were written.
    fn damage(&self, node: &RmaProcess) -> u64 {
        let whole = self.whole(node);
        let guards = whole[..GUARD].iter().chain(&whole[GUARD + self.bytes..]);
        guards.filter(|byte| **byte != BLANK).count() as u64
    }
}

#[derive(Debug)]
struct Pending {
    since: u64,
    number: u32,
    /// Of a read, its buffer and its place in the window.
    buffer: Option<(Guarded, usize)>,
    /// It must not succeed.
    is_bad: bool,
}

#[derive(Debug)]
struct RmaUser {
    peer: PeerId,
    source: Region,
    window: Guarded,
    key: RKey,
    /// Windows that are being revoked, since when.
    revoking: Vec<(RKey, Guarded, u64)>,
    /// Memory that nobody may write any more, and its content.
    ended: VecDeque<(Guarded, Vec<u8>)>,
    pending: Vec<Pending>,
    number: u32,
    /// The keys of the peer that this side knows, the present one last.
    known: Vec<RKey>,
    has_lost_its_peer: bool,
}

fn expose(node: &mut RmaProcess) -> (Guarded, RKey) {
    let window = Guarded::new(node, WINDOW);
    let rights = Rights::READ | Rights::WRITE | Rights::ATOMIC;
    let key = node.register(window.region, GUARD, WINDOW, rights).expect("a record");
    (window, key)
}

impl RmaUser {
    fn new(node: &mut RmaProcess) -> Self {
        let source = node.memory.make(WINDOW);
        let bytes: Vec<u8> = (0..WINDOW).map(byte).collect();
        node.memory.write(source, 0, &bytes).expect("a region of that size");
        let peer = PeerId(1 - node.id.0);
        node.endpoint.watch(0, peer, true);
        let (window, key) = expose(node);
        node.wake();
        Self {
            peer,
            source,
            window,
            key,
            revoking: Vec::new(),
            ended: VecDeque::new(),
            pending: Vec::new(),
            number: 0,
            known: Vec::new(),
            has_lost_its_peer: false,
        }
    }

    fn is_done(&self) -> bool {
        self.pending.is_empty() && self.revoking.is_empty()
    }

    /// Whether something is under way for longer than `patience`.
    fn is_overdue(&self, now: u64, patience: u64) -> bool {
        let late = |since: u64| now - since > patience;
        self.pending.iter().any(|one| late(one.since)) || self.revoking.iter().any(|(.., since)| late(*since))
    }

    /// Starts an operation.
    fn start(&mut self, node: &mut RmaProcess, now: u64, choices: &mut Choices) {
        let Some(present) = self.known.last().copied() else { return };
        if self.has_lost_its_peer || self.pending.len() >= BACKLOG {
            return;
        }
        let choice = choices.word();
        let bytes = [0, 1, 8, 100, 1300, 3000][choice as usize % 6];
        let mut offset = (choice >> 4) as usize % (WINDOW - UPDATED - bytes) + UPDATED;
        let (mut region, mut is_bad) = (present, false);
        match choice >> 28 {
            0 => (region.key.0, is_bad) = (region.key.0 ^ 1 << (choice >> 8 & 63), true),
            // Expired, or still valid.
            1 => region = self.known[choices.below(self.known.len())],
            _ => {}
        }
        let mut buffer = None;
        let span = |offset: usize| Span { region: self.source, offset, bytes: bytes as u32 };
        let request = match choice >> 24 & 15 {
            0..5 => RmaRequest::Write { from: span(offset), immediate: None },
            5 => RmaRequest::Write { from: span(offset), immediate: Some(self.number) },
            6..10 => {
                let into = Guarded::new(node, bytes);
                let span = into.inner();
                buffer = Some((into, offset));
                // Blocks that lie as adjacent bytes do.
                let is_short = (1..=100).contains(&bytes) && choice >> 12 & 1 == 0;
                RmaRequest::Read { into: span, stride: is_short.then_some(Stride { block: 1, distance: 1 }) }
            }
            10 => RmaRequest::Flush,
            11 => {
                offset = 8 * (offset % 8);
                let from = Span { region: self.source, offset: 0, bytes: (UPDATED - offset) as u32 };
                RmaRequest::Accumulate { from, update: ElementUpdate::default(), result: None, stride: None }
            }
            which => {
                offset = 8 * (offset % 8);
                let kind = match which {
                    12 => AtomicKind::FetchAdd { add: choice.into(), boundaries: 0 },
                    13 => AtomicKind::Swap { swap: choice.into(), mask: u64::MAX },
                    14 => AtomicKind::CompareSwap { compare: 0, swap: choice.into() },
                    _ => AtomicKind::MaskedCompareSwap { compare: 0, swap: 7, compare_mask: 15, swap_mask: 255 },
                };
                RmaRequest::Atomic(AtomicOperation { width: Width::Bits64, kind })
            }
        };
        is_bad &= request != RmaRequest::Flush;
        let mut at = RemoteSpan { region, offset: offset as u64 };
        let reaches = matches!(request, RmaRequest::Write { .. } | RmaRequest::Read { .. }) && bytes > 0;
        if choice >> 28 == 2 && reaches {
            // Ends one byte behind the window, or outside the address space.
            let end = if choice & 1 == 0 { WINDOW + 1 - bytes } else { usize::MAX };
            (at.offset, is_bad) = (end as u64, true);
        }
        self.number += 1;
        let call = RmaCall { to: self.peer, at, request, fence: choice >> 20 & 15 == 0, user: self.number };
        if node.rma().start(&call).is_ok() {
            self.pending.push(Pending { since: now, number: self.number, buffer, is_bad });
            node.wake();
        } else if let Some((buffer, _)) = buffer {
            node.memory.retire(buffer.region);
        }
    }

    /// Replaces the window.
    fn replace(&mut self, node: &mut RmaProcess, now: u64) {
        if self.revoking.len() >= KEPT || self.has_lost_its_peer {
            return;
        }
        let (window, key) = expose(node);
        let old = core::mem::replace(&mut self.window, window);
        let old_key = core::mem::replace(&mut self.key, key);
        self.revoking.push((old_key, old, now));
        node.rma().regions.revoke(old_key);
        node.wake();
    }

    fn handle(
        &mut self,
        node: &mut RmaProcess,
        events: RoundEvents,
        style: AttackStyle,
        now: u64,
        outcome: &mut Outcome,
    ) {
        for completion in events.completions {
            self.end(node, &completion, style, now, outcome);
        }
        for key in events.revoked {
            match self.revoking.iter().position(|(revoked, ..)| *revoked == key) {
                Some(i) => {
                    let (_, window, since) = self.revoking.swap_remove(i);
                    outcome.slowest_ns = outcome.slowest_ns.max(now - since);
                    self.keep(node, window, outcome);
                }
                None => outcome.endless += 1,
            }
        }
        if !events.lost.is_empty() {
            self.has_lost_its_peer = true;
            outcome.endless += self.pending.len() as u64;
            self.pending.clear();
        }
    }

    fn end(
        &mut self,
        node: &mut RmaProcess,
        completion: &RmaCompletion,
        style: AttackStyle,
        now: u64,
        outcome: &mut Outcome,
    ) {
        let Some(i) = self.pending.iter().position(|one| one.number == completion.user) else {
            outcome.endless += 1;
            return;
        };
        let Pending { since, buffer, is_bad, .. } = self.pending.swap_remove(i);
        outcome.ended += 1;
        outcome.slowest_ns = outcome.slowest_ns.max(now - since);
        let is_calm = style == AttackStyle::Noise;
        match completion.result {
            // A plain write is complete when it was received: its refusal comes before the next flush.
            Ok(_) => outcome.succeeded += 1,
            Err(RmaError::Refused(reason)) => {
                let is_expected = is_bad || matches!(reason, Refusal::Revoked | Refusal::BadKey);
                outcome.corrupt += u64::from(is_calm && !is_expected);
                outcome.refused += 1;
            }
            // The number of refused messages may be a lie.
            Err(RmaError::RefusedEarlier { .. }) => outcome.refused += 1,
            Err(_) => outcome.corrupt += u64::from(is_calm),
        }
        if let Some((buffer, offset)) = buffer {
            if is_calm && completion.result.is_ok() {
                let read = node.memory.read(buffer.inner()).expect("a buffer");
                let is_right = read.iter().zip(offset..).all(|(is, at)| *is == BLANK || *is == byte(at));
                outcome.corrupt += u64::from(!is_right || is_bad);
            }
            self.keep(node, buffer, outcome);
        }
    }

    /// Memory that nobody may write from now on.
    fn keep(&mut self, node: &mut RmaProcess, memory: Guarded, outcome: &mut Outcome) {
        outcome.outside += memory.damage(node);
        let content = memory.whole(node);
        self.ended.push_back((memory, content));
        while self.ended.len() > KEPT {
            self.check_oldest(node, outcome);
        }
    }

    fn check_oldest(&mut self, node: &mut RmaProcess, outcome: &mut Outcome) {
        if let Some((memory, content)) = self.ended.pop_front() {
            outcome.outside += u64::from(memory.whole(node) != content);
            node.memory.retire(memory.region);
        }
    }

    /// Checks all memory at the end of an incarnation.
    fn check(&mut self, node: &mut RmaProcess, style: AttackStyle, outcome: &mut Outcome) {
        outcome.outside += self.window.damage(node);
        outcome.outside += self.revoking.iter().map(|(_, window, _)| window.damage(node)).sum::<u64>();
        while !self.ended.is_empty() {
            self.check_oldest(node, outcome);
        }
        let content = node.memory.read(self.window.inner()).expect("a window");
        let is_right = content.iter().enumerate().skip(UPDATED).all(|(at, is)| *is == BLANK || *is == byte(at));
        outcome.corrupt += u64::from(style == AttackStyle::Noise && !is_right);
        let source = node.memory.read(Span { region: self.source, offset: 0, bytes: WINDOW as u32 });
        let is_same = source.is_some_and(|bytes| bytes.iter().enumerate().all(|(at, is)| *is == byte(at)));
        outcome.outside += u64::from(!is_same);
    }
}

struct RmaRun {
    network: Network,
    style: AttackStyle,
    attacker: Rc<RefCell<Attacker>>,
    nodes: Vec<RmaProcess>,
    users: Vec<RmaUser>,
    incarnations: u32,
    outcome: Outcome,
}

impl RmaRun {
    fn new(choices: Choices, style: AttackStyle) -> Self {
        let network = Network::new(7, Config::default());
        network.add_node();
        network.add_node();
        let attacker = Rc::new(RefCell::new(Attacker::new(choices, style)));
        let tamper = Rc::clone(&attacker);
        network.tamper(
            move |passing| if tamper.borrow_mut().passes(passing) { TamperVerdict::Pass } else { TamperVerdict::Take },
        );
        let (nodes, users, outcome) = (Vec::new(), Vec::new(), Outcome::default());
        let mut run = Self { network, style, attacker, nodes, users, incarnations: 0, outcome };
        run.start();
        run
    }

    /// Starts a new incarnation of both processes.
    fn start(&mut self) {
        self.incarnations += 1;
        let incarnation = |node: u32| 0x9e37_79b9_u32.wrapping_mul(self.incarnations * 2 + node);
        let sizes = RmaSizes { operations: 16, entries: 2, outstanding: 4 };
        self.nodes = (0..2)
            .map(|i| {
                RmaProcess::new(&self.network, NodeId(i), incarnation(i), sizes, |_, sizes| {
                    (sizes.windows, sizes.operations, sizes.placements, sizes.control_messages) = (2, 32, 8, 16);
                })
            })
            .collect();
        for i in 0..2 {
            self.nodes[i as usize].add_peer(NodeId(1 - i), incarnation(1 - i));
            // Under noise an answering peer proves that the other process is alive.
            self.nodes[i as usize].fails_silent = self.style == AttackStyle::Lies;
        }
        self.users = self.nodes.iter_mut().map(RmaUser::new).collect();
        for i in 0..2 {
            self.users[i].known = vec![self.users[1 - i].key];
        }
    }

    /// Ends both processes and adds their counters.
    fn stop(&mut self) {
        for i in 0..2 {
            let events = self.nodes[i].drive(DeviceQueue::Polled);
            let now = self.network.now();
            self.users[i].handle(&mut self.nodes[i], events, self.style, now, &mut self.outcome);
            self.users[i].check(&mut self.nodes[i], self.style, &mut self.outcome);
            self.outcome.counted += self.nodes[i].counters().arrivals();
            self.network.restart(NodeId(i as u32));
        }
    }

    fn run(mut self, damaged: u64) -> Outcome {
        loop {
            let going_on = self.attacker.borrow().goes_on(damaged);
            if !going_on && self.users.iter().all(RmaUser::is_done) {
                break;
            }
            let Some(step) = self.network.step() else { break };
            let i = step.node.0 as usize;
            let events = self.nodes[i].drive(step.lane);
            let now = self.network.now();
            self.users[i].handle(&mut self.nodes[i], events, self.style, now, &mut self.outcome);
            if self.users.iter().all(|user| user.has_lost_its_peer) {
                self.stop();
                self.outcome.restarts += 1;
                if !going_on {
                    return self.sum_up();
                }
                self.start();
                continue;
            }
            if going_on {
                self.submit(i, now);
                self.attacker.borrow_mut().invent();
            }
            let forgeries = core::mem::take(&mut self.attacker.borrow_mut().forgeries);
            for forgery in forgeries {
                self.network.forge(NodeId(forgery.from), NodeId(forgery.to), DeviceQueue::Polled, &forgery.bytes);
            }
            if self.style == AttackStyle::Lies && self.users[i].is_overdue(now, PATIENCE_NS) {
                self.nodes[i].endpoint.fail(now, self.users[i].peer);
                self.nodes[i].wake();
            }
            if self.users.iter().any(|user| user.is_overdue(now, BOUND_NS)) {
                self.outcome.endless += 1;
                break;
            }
        }
        self.stop();
        self.sum_up()
    }

    /// New operations of this side; sometimes it replaces its window, or learns the peer's present key.
    fn submit(&mut self, i: usize, now: u64) {
        let mut attacker = self.attacker.borrow_mut();
        self.users[i].start(&mut self.nodes[i], now, &mut attacker.choices);
        let choice = attacker.choices.byte();
        drop(attacker);
        if choice == 1 {
            self.users[i].replace(&mut self.nodes[i], now);
        } else if choice & 31 == 2 {
            let present = self.users[1 - i].key;
            let known = &mut self.users[i].known;
            if known.last() != Some(&present) {
                known.push(present);
                let surplus = known.len().saturating_sub(8);
                known.drain(..surplus);
            }
        }
    }

    fn sum_up(mut self) -> Outcome {
        let counts = self.network.counts();
        let attacker = self.attacker.borrow();
        self.outcome.datagrams = counts.sent + counts.forged;
        self.outcome.handed = counts.delivered;
        self.outcome.damaged = attacker.damaged;
        self.outcome.random = attacker.random;
        self.outcome.checked = attacker.checked;
        self.outcome
    }
}
