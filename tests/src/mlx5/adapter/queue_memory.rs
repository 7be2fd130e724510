//! The memory of a queue that driver and adapter share, with the visibility of its stores.

use alloc::rc::Rc;
use core::cell::RefCell;

use unisono_verbs::queue_memory::{
    BLOCK, Barrier, Block, Checker, Progress, QueueAccess, QueueEvent, Record, UNIT, Unit, Violation, Word,
};

use super::network::AdapterNetwork;

/// The queue that the memory belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum QueueKind {
    Send(u32),
    Receive,
    Completion,
}

/// A store that the adapter may not see yet.
#[derive(Clone, Copy, Debug)]
enum Pending {
    Unit(usize, Unit),
    Word(usize, Word),
    Record(Record, u32),
}

/// Stores to the registers, and the doorbell records that were visible then.
#[derive(Clone, Debug, Default)]
pub(super) struct RungDoorbell {
    pub(super) bytes: Vec<u8>,
    pub(super) records: [u32; 2],
}

/// A queue's memory as the adapter sees it.
#[derive(Debug)]
pub(super) struct QueueMemory {
    pub(super) kind: QueueKind,
    pub(super) bytes: Vec<u8>,
    pub(super) records: [u32; 2],
    pending: Vec<Pending>,
    doorbell: Option<RungDoorbell>,
    checker: Checker,
}

impl QueueMemory {
    pub(super) fn new(kind: QueueKind, bytes: usize) -> Self {
        let fill = if kind == QueueKind::Completion { 0xf0 } else { 0 };
        Self {
            kind,
            bytes: vec![fill; bytes],
            records: [0; 2],
            pending: Vec::new(),
            doorbell: None,
            checker: Checker::default(),
        }
    }

    /// Makes all stores visible.
    pub(super) fn settle(&mut self) {
        for pending in self.pending.drain(..) {
            match pending {
                Pending::Unit(at, unit) => self.bytes[at..at + UNIT].copy_from_slice(&unit),
                Pending::Word(at, word) => self.bytes[at..at + size_of::<Word>()].copy_from_slice(&word),
                Pending::Record(record, value) => self.records[record as usize] = value,
            }
        }
    }

    /// A doorbell that has left the processor.
    pub(super) fn take_doorbell(&mut self) -> Option<RungDoorbell> {
        self.doorbell.take()
    }

    pub(super) fn record_event(&mut self, event: QueueEvent) -> Option<Violation> {
        self.checker.check(event).err()
    }

    fn ring(&mut self, bytes: &[u8]) {
        let records = self.records;
        self.doorbell.get_or_insert_with(|| RungDoorbell { bytes: Vec::new(), records }).bytes.extend(bytes);
    }
}

/// The driver's access to it.
#[derive(Debug)]
pub struct QueueHandle {
    network: Rc<RefCell<AdapterNetwork>>,
    id: usize,
    bytes: usize,
}

impl QueueHandle {
    pub(super) fn new(network: Rc<RefCell<AdapterNetwork>>, id: usize) -> Self {
        let bytes = network.borrow_mut().queue(id).bytes.len();
        Self { network, id, bytes }
    }

    /// Takes the event of a completion queue, if one was raised.
    pub(super) fn take_event(&self) -> bool {
        self.network.borrow_mut().take_event(self.id)
    }

    fn with<R>(&self, event: QueueEvent, act: impl FnOnce(&mut QueueMemory) -> R) -> R {
        let mut network = self.network.borrow_mut();
        network.record_event(self.id, event);
        act(network.queue(self.id))
    }
}

impl QueueAccess for QueueHandle {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn store(&mut self, at: usize, unit: Unit) {
        let at = at & (self.bytes - 1);
        self.with(QueueEvent::Store, |queue| queue.pending.push(Pending::Unit(at, unit)));
    }

    fn store_words(&mut self, at: usize, words: &[Word]) {
        let mask = self.bytes - 1;
        let all = (at..).step_by(size_of::<Word>()).zip(words);
        self.with(QueueEvent::Store, |queue| {
            queue.pending.extend(all.map(|(at, word)| Pending::Word(at & mask, *word)))
        });
    }

    fn progress(&mut self, what: Progress) -> u32 {
        let mask = self.bytes - 1;
        self.with(QueueEvent::Progress, |queue| match what {
            Progress::Owner(at) => queue.bytes[at & mask].into(),
            Progress::Index => 0,
        })
    }

    fn load(&mut self, at: usize) -> Block {
        let at = at & (self.bytes - 1);
        self.with(QueueEvent::Load, |queue| queue.bytes[at..at + BLOCK].try_into().expect("a block"))
    }

    fn record(&mut self, record: Record, value: u32) {
        self.with(QueueEvent::Record(record), |queue| queue.pending.push(Pending::Record(record, value)));
    }

    fn doorbell(&mut self, at: usize, value: [u8; 8]) {
        self.with(QueueEvent::Doorbell { at, bytes: 8 }, |queue| queue.ring(&value));
    }

    fn blue_flame(&mut self, at: usize, block: &Block) {
        self.with(QueueEvent::Doorbell { at, bytes: BLOCK }, |queue| queue.ring(block));
    }

    fn barrier(&mut self, barrier: Barrier) {
        let mut network = self.network.borrow_mut();
        if network.is_omitted(self.id, barrier) {
            return;
        }
        network.record_event(self.id, QueueEvent::Barrier(barrier));
        if barrier == Barrier::Flush {
            network.handle_doorbell(self.id);
        }
        if barrier != Barrier::FromDevice {
            network.queue(self.id).settle();
        }
    }
}
