//! The adapters' common work: executes send entries, delivers datagrams to receive entries, and completes both.

use alloc::collections::BTreeMap;

use unisono_udp::fault_injection::{FaultInjector, ReorderQueue};
use unisono_verbs::queue_memory::{Barrier, QueueEvent};

use super::completion::{CompletionEntry, Completions};
use super::datagram::{self, Address, Fault, Frame};
use super::memory::Registrations;
use super::queue_memory::{QueueKind, QueueMemory};
use super::queue_pair::{Pair, Queues};
use super::{Config, Fabric, QKEY};

/// Opcodes of completions.
const SENT: u8 = 0;
const RECEIVED: u8 = 2;
const RECEIVED_IMMEDIATE: u8 = 3;
const SEND_FAILED: u8 = 13;
const RECEIVE_FAILED: u8 = 14;
/// Syndromes of failures.
const LENGTH: u8 = 1;
const OPERATION: u8 = 2;
const PROTECTION: u8 = 4;
const FLUSHED: u8 = 5;
/// Violations that are recorded at most.
const MAX_VIOLATIONS: usize = 20;

/// Barriers to leave out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Omitted {
    /// Those of send queues.
    Sending(Barrier),
    /// Those of receive queues.
    Receiving(Barrier),
    /// Those of completion queues.
    Completing(Barrier),
}

/// All adapters and the fabric between them.
#[derive(Debug)]
pub(super) struct AdapterNetwork {
    config: Config,
    pub(super) memory: Registrations,
    queues: Vec<QueueMemory>,
    completions: BTreeMap<usize, Completions>,
    pairs: BTreeMap<u32, Pair>,
    injector: Option<FaultInjector>,
    delayed: ReorderQueue<Frame>,
    pub(super) omitted: Option<Omitted>,
    pub(super) violations: Vec<String>,
}

/// Address of the port of this number.
pub(super) fn address(fabric: Fabric, port: u32) -> Address {
    let mut gid = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xfe, 0, 0, 0];
    if fabric == Fabric::Ethernet4 {
        gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 0];
    }
    let number = (port + 1) as u16;
    gid[14..].copy_from_slice(&number.to_be_bytes());
    let [high, low] = number.to_be_bytes();
    Address { lid: 0x40 + number, gid, mac: [2, 0, 0, 0, high, low] }
}

impl AdapterNetwork {
    pub(super) fn new(config: Config) -> Self {
        Self {
            config,
            memory: Registrations::default(),
            queues: Vec::new(),
            completions: BTreeMap::new(),
            pairs: BTreeMap::new(),
            injector: (!config.faults.is_none()).then(|| FaultInjector::new(config.faults)),
            delayed: ReorderQueue::default(),
            omitted: None,
            violations: Vec::new(),
        }
    }

    pub(super) fn add_queue(&mut self, kind: QueueKind, bytes: usize) -> usize {
        self.queues.push(QueueMemory::new(kind, bytes));
        self.queues.len() - 1
    }

    pub(super) fn add_completions(&mut self, entries: usize, stride: usize) -> usize {
        let id = self.add_queue(QueueKind::Completion, entries * stride);
        self.completions.insert(id, Completions::new(entries, stride));
        id
    }

    pub(super) fn add_pair(&mut self, qpn: u32, port: u32, queues: Queues) {
        self.pairs.insert(qpn, Pair::new(port, queues));
    }

    pub(super) fn queue(&mut self, id: usize) -> &mut QueueMemory {
        &mut self.queues[id]
    }

    pub(super) fn completion_memory(&mut self, qpn: u32) -> impl Iterator<Item = &mut Vec<u8>> {
        let of = self.pairs.get(&qpn).map(|pair| [pair.queues.send_to, pair.queues.receive_to]);
        let queues = self.queues.iter_mut().enumerate();
        queues.filter(move |(id, _)| of.is_some_and(|of| of.contains(id))).map(|(_, queue)| &mut queue.bytes)
    }

    pub(super) fn take_event(&mut self, id: usize) -> bool {
        self.completions.get_mut(&id).is_some_and(Completions::take_event)
    }

    pub(super) fn record_event(&mut self, id: usize, event: QueueEvent) {
        let queue = &mut self.queues[id];
        if let Some(violation) = queue.record_event(event) {
            let what = format!("{:?}: {violation}", queue.kind);
            self.record_violation(what);
        }
    }

    pub(super) fn is_omitted(&self, id: usize, barrier: Barrier) -> bool {
        self.omitted.is_some_and(|omitted| match (omitted, self.queues[id].kind) {
            (Omitted::Sending(of), QueueKind::Send(_))
            | (Omitted::Receiving(of), QueueKind::Receive)
            | (Omitted::Completing(of), QueueKind::Completion) => of == barrier,
            _ => false,
        })
    }

    fn record_violation(&mut self, what: String) {
        if self.violations.len() < MAX_VIOLATIONS {
            self.violations.push(what);
        }
    }

    /// Handles the register stores of a queue that have left the processor.
    pub(super) fn handle_doorbell(&mut self, id: usize) {
        let Some(rung) = self.queues[id].take_doorbell() else { return };
        match self.queues[id].kind {
            QueueKind::Send(qpn) => self.send(qpn, u32::from_be(rung.records[0]) as u16, &rung.bytes),
            QueueKind::Completion => {
                let armed = self.completions.get_mut(&id).map(|queue| queue.arm(&rung, id as u32));
                if let Some(Err(trouble)) = armed {
                    self.record_violation(trouble);
                }
            }
            QueueKind::Receive => self.record_violation("a receive queue has no doorbell".to_owned()),
        }
    }

    /// Executes the entries of a queue pair up to block `upto`. `rung`: the doorbell, or the only entry itself.
    fn send(&mut self, qpn: u32, upto: u16, rung: &[u8]) {
        let mut last = Vec::new();
        let mut count = 0;
        while let Some(pair) = self.pairs.get_mut(&qpn).filter(|pair| pair.sent != upto) {
            let (queues, port, index, failed) = (pair.queues, pair.port, pair.sent, pair.failed);
            let ring = &self.queues[queues.send].bytes;
            let at = usize::from(index) % (ring.len() / 64) * 64;
            let units = usize::from(ring[at + 7] & 0x3f).max(4);
            let entry: Vec<u8> = (at..at + units * 16).map(|at| ring[at & (ring.len() - 1)]).collect();
            let blocks = units.div_ceil(4) as u16;
            if blocks > upto.wrapping_sub(index) {
                let ahead = upto.wrapping_sub(index);
                self.record_violation(format!("entry {index} has {blocks} blocks, {ahead} were posted"));
                break;
            }
            pair.sent = index.wrapping_add(blocks);
            (count, last) = (count + 1, entry);
            let failure = if failed { Some(FLUSHED) } else { self.carry_out(qpn, port, index, queues, &last) };
            if let Some(syndrome) = failure {
                self.fail(qpn);
                let failure = CompletionEntry { syndrome, ..CompletionEntry::new(SEND_FAILED, qpn, index) };
                self.complete(queues.send_to, &failure);
            }
        }
        let compared = if rung.len() > 8 { last.len() } else { 8 };
        if count == 0 || rung.get(..compared) != last.get(..compared) || rung.len() > 8 && count != 1 {
            self.record_violation(format!("{} bytes rung for {count} entries up to {upto}", rung.len()));
        }
    }

    /// Executes an entry. Returns the syndrome of a failure.
    fn carry_out(&mut self, qpn: u32, port: u32, index: u16, queues: Queues, entry: &[u8]) -> Option<u8> {
        let work = match datagram::read(entry, qpn, index, &self.memory) {
            Ok(work) => work,
            Err(Fault::Protection) => return Some(PROTECTION),
            Err(Fault::Malformed(why)) => {
                self.record_violation(why);
                return Some(OPERATION);
            }
        };
        if work.payload.len() > self.config.mtu as usize {
            return Some(LENGTH);
        }
        if work.signalled {
            self.complete(queues.send_to, &CompletionEntry::new(SENT, qpn, index));
        }
        let of = |port: &u32| {
            let address = address(self.config.fabric, *port);
            match self.config.fabric {
                Fabric::InfiniBand => address.lid == work.address.lid,
                Fabric::Ethernet6 | Fabric::Ethernet4 => {
                    address.gid == work.address.gid && address.mac == work.address.mac
                }
            }
        };
        let to_port = self.pairs.values().map(|pair| pair.port).find(of)?;
        self.depart(Frame {
            from: qpn,
            from_port: port,
            to: work.to,
            to_port,
            qkey: work.qkey,
            solicited: work.solicited,
            immediate: work.immediate,
            payload: work.payload,
        });
        None
    }

    fn depart(&mut self, frame: Frame) {
        let Some(injector) = &mut self.injector else { return self.arrive(&frame) };
        let fate = injector.next_outcome(frame.payload.len());
        let mut arrivals = Vec::new();
        for passage in fate.copies() {
            self.delayed.push(frame.clone(), passage.overtaken_by, |frame| arrivals.push(frame));
        }
        arrivals.iter().for_each(|frame| self.arrive(frame));
    }

    /// Delivers the datagrams that were held back for reordering.
    pub(super) fn arrive_all(&mut self) {
        let mut arrivals = Vec::new();
        self.delayed.flush_idle(|frame| arrivals.push(frame));
        arrivals.iter().for_each(|frame| self.arrive(frame));
    }

    fn arrive(&mut self, frame: &Frame) {
        let Some(pair) = self.pairs.get(&frame.to).filter(|pair| pair.port == frame.to_port) else { return };
        if frame.qkey != QKEY || pair.failed {
            return;
        }
        let queues = pair.queues;
        let Some((index, [length, key], at)) = self.next_receive(frame.to) else { return };
        let ends = [frame.from_port, frame.to_port].map(|port| address(self.config.fabric, port));
        let front = datagram::route_header(self.config.fabric, &ends[0], &ends[1], frame.payload.len());
        let bytes = [&front[..], &frame.payload].concat();
        let written = (bytes.len() <= length as usize).then(|| self.memory.write(key, at, &bytes));
        let failure = match written {
            Some(Some(())) => None,
            Some(None) => Some(PROTECTION),
            None => Some(LENGTH),
        };
        if let Some(syndrome) = failure {
            self.fail(frame.to);
            let failure = CompletionEntry { syndrome, ..CompletionEntry::new(RECEIVE_FAILED, frame.to, index) };
            return self.complete(queues.receive_to, &failure);
        }
        let opcode = if frame.immediate.is_some() { RECEIVED_IMMEDIATE } else { RECEIVED };
        let is_infiniband = self.config.fabric == Fabric::InfiniBand;
        let arrival = CompletionEntry {
            bytes: bytes.len() as u32,
            source: frame.from,
            lid: if is_infiniband { ends[0].lid } else { 0 },
            grh: if is_infiniband { 0 } else { 1 },
            solicited: frame.solicited,
            immediate: frame.immediate,
            ..CompletionEntry::new(opcode, frame.to, index)
        };
        self.complete(queues.receive_to, &arrival);
    }

    /// The next receive entry of a queue pair: its index, length and key, and address.
    fn next_receive(&mut self, qpn: u32) -> Option<(u16, [u32; 2], u64)> {
        let pair = self.pairs.get_mut(&qpn)?;
        let queue = &mut self.queues[pair.queues.receive];
        queue.settle();
        if u32::from_be(queue.records[0]) as u16 == pair.received {
            return None;
        }
        let (index, stride) = (pair.received, queue.bytes.len() / pair.queues.receive_entries);
        pair.received = index.wrapping_add(1);
        let at = usize::from(index) % pair.queues.receive_entries * stride;
        let word = |from: usize| {
            let bytes = &queue.bytes[at + from..at + from + 4];
            bytes.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte))
        };
        Some((index, [word(0), word(4)], u64::from(word(8)) << 32 | u64::from(word(12))))
    }

    fn complete(&mut self, queue: usize, entry: &CompletionEntry) {
        let memory = &mut self.queues[queue];
        let written = self.completions.get_mut(&queue).is_none_or(|completions| completions.write(memory, entry));
        if !written {
            self.record_violation(format!("completion queue {queue} is overrun"));
        }
    }

    /// Fails a queue pair: flushes its receive entries.
    pub(super) fn fail(&mut self, qpn: u32) {
        let Some(pair) = self.pairs.get_mut(&qpn) else { return };
        if core::mem::replace(&mut pair.failed, true) {
            return;
        }
        let queue = pair.queues.receive_to;
        while let Some((index, ..)) = self.next_receive(qpn) {
            self.complete(
                queue,
                &CompletionEntry { syndrome: FLUSHED, ..CompletionEntry::new(RECEIVE_FAILED, qpn, index) },
            );
        }
    }

    pub(super) fn reset(&mut self, qpn: u32) {
        if let Some(pair) = self.pairs.get_mut(&qpn) {
            (pair.sent, pair.received, pair.failed) = (0, 0, false);
        }
    }
}
