//! Queue memory for tests, here and elsewhere (feature `recorded`): plain memory that records and checks every event,
//! and can omit one barrier.

use alloc::vec::Vec;

use super::{BLOCK, Barrier, Block, Checker, Progress, QueueAccess, QueueEvent, Record, UNIT, Unit, Violation, Word};

/// A queue in plain memory.
#[derive(Clone, Default, Debug)]
pub struct RecordedMemory {
    /// Its bytes; a test that plays the adapter may write them.
    pub entries: Vec<u8>,
    /// Its doorbell records.
    pub records: [u32; 2],
    /// The adapter's index.
    pub progress: u32,
    /// Stores to the registers, in order.
    pub rung: Vec<(usize, Vec<u8>)>,
    /// All events.
    pub events: Vec<QueueEvent>,
    checker: Checker,
    violation: Option<Violation>,
    barriers: usize,
    /// The index of the barrier to omit.
    omitted: Option<usize>,
}

impl RecordedMemory {
    /// Memory of `bytes` zeros.
    pub fn new(bytes: usize) -> Self {
        Self { entries: alloc::vec![0; bytes], ..Self::default() }
    }

    /// As [`new`](Self::new), but omits its n-th barrier.
    pub fn without(bytes: usize, omitted: Option<usize>) -> Self {
        Self { omitted, ..Self::new(bytes) }
    }

    /// Number of barriers, including an omitted one.
    pub const fn barriers(&self) -> usize {
        self.barriers
    }

    /// Clears entries, register stores and events. The checker keeps its state.
    pub fn clear(&mut self) {
        self.entries.fill(0);
        self.rung.clear();
        self.events.clear();
    }

    /// The first violation of the order.
    pub fn violation(&self) -> Option<Violation> {
        self.violation.or_else(|| self.checker.flushed().err())
    }

    fn record_event(&mut self, event: QueueEvent) {
        self.events.push(event);
        let found = self.checker.check(event).err();
        self.violation = self.violation.or(found);
    }

    fn at(&self, at: usize) -> usize {
        at & (self.entries.len() - 1)
    }
}

impl QueueAccess for RecordedMemory {
    fn bytes(&self) -> usize {
        self.entries.len()
    }

    fn store(&mut self, at: usize, unit: Unit) {
        self.record_event(QueueEvent::Store);
        let at = self.at(at);
        self.entries[at..at + UNIT].copy_from_slice(&unit);
    }

    fn store_words(&mut self, at: usize, words: &[Word]) {
        for (at, word) in (at..).step_by(size_of::<Word>()).zip(words) {
            self.record_event(QueueEvent::Store);
            let at = self.at(at);
            self.entries[at..at + size_of::<Word>()].copy_from_slice(word);
        }
    }

    fn progress(&mut self, what: Progress) -> u32 {
        self.record_event(QueueEvent::Progress);
        match what {
            Progress::Owner(at) => self.entries[self.at(at)].into(),
            Progress::Index => self.progress,
        }
    }

    fn load(&mut self, at: usize) -> Block {
        self.record_event(QueueEvent::Load);
        let at = self.at(at);
        self.entries[at..at + BLOCK].try_into().expect("a block")
    }

    fn record(&mut self, record: Record, value: u32) {
        self.record_event(QueueEvent::Record(record));
        self.records[record as usize] = value;
    }

    fn doorbell(&mut self, at: usize, value: [u8; 8]) {
        self.record_event(QueueEvent::Doorbell { at, bytes: 8 });
        self.rung.push((at, value.to_vec()));
    }

    fn blue_flame(&mut self, at: usize, block: &Block) {
        self.record_event(QueueEvent::Doorbell { at, bytes: BLOCK });
        self.rung.push((at, block.to_vec()));
    }

    fn barrier(&mut self, barrier: Barrier) {
        let this = self.barriers;
        self.barriers += 1;
        if self.omitted != Some(this) {
            self.record_event(QueueEvent::Barrier(barrier));
        }
    }
}

/// Runs `play` as it is, then once without each of its barriers: the events must be in order, and out of order each
/// time. Returns the violations found.
#[cfg(test)]
pub(crate) fn delete_each_barrier(bytes: usize, play: impl Fn(RecordedMemory) -> RecordedMemory) -> Vec<Violation> {
    let whole = play(RecordedMemory::new(bytes));
    assert_eq!(whole.violation(), None, "{:?}", whole.events);
    let found = (0..whole.barriers).map(|omitted| {
        let memory = play(RecordedMemory::without(bytes, Some(omitted)));
        memory.violation().unwrap_or_else(|| panic!("barrier {omitted} is not missed: {:?}", memory.events))
    });
    found.collect()
}
