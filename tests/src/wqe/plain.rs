//! A queue in plain memory: what was stored can be looked at, and its order is checked.

use unisono_verbs::order::{BLOCK, Barrier, Block, Checker, Event, Progress, Record, Seam, UNIT, Unit, Violation};

use crate::rdma_core::{REGISTERS, Stored};

/// A queue in plain memory. One of its barriers can be left out.
#[derive(Clone, Debug)]
pub struct Plain {
    entries: Vec<u8>,
    records: [u32; 2],
    registers: Vec<u8>,
    checker: Checker,
    violation: Option<Violation>,
    flames: usize,
    barriers: usize,
    omitted: Option<usize>,
}

impl Plain {
    /// Of so many bytes, all 0.
    pub fn new(bytes: usize) -> Self {
        Self {
            entries: vec![0; bytes],
            records: [0; 2],
            registers: vec![0; REGISTERS],
            checker: Checker::default(),
            violation: None,
            flames: 0,
            barriers: 0,
            omitted: None,
        }
    }

    /// As [`new`](Self::new), but its n-th barrier is left out.
    pub fn without(bytes: usize, omitted: usize) -> Self {
        Self { omitted: Some(omitted), ..Self::new(bytes) }
    }

    /// Makes entries and registers 0.
    pub fn clear(&mut self) {
        self.entries.fill(0);
        self.registers.fill(0);
        self.flames = 0;
    }

    /// Its bytes, to be written by whoever plays the device.
    pub fn entries_mut(&mut self) -> &mut [u8] {
        &mut self.entries
    }

    /// Blocks that went by BlueFlame since they were cleared.
    pub const fn flames(&self) -> usize {
        self.flames
    }

    /// Barriers so far, that left out included.
    pub const fn barriers(&self) -> usize {
        self.barriers
    }

    /// What was out of order first.
    pub fn violation(&self) -> Option<Violation> {
        self.violation.or_else(|| self.checker.flushed().err())
    }

    /// What was stored.
    pub fn stored(&self) -> Stored {
        Stored { entries: self.entries.clone(), record: self.records[0], registers: self.registers.clone() }
    }

    fn note(&mut self, event: Event) {
        let found = self.checker.note(event).err();
        self.violation = self.violation.or(found);
    }

    fn at(&self, at: usize) -> usize {
        at & (self.entries.len() - 1)
    }
}

impl Seam for Plain {
    fn bytes(&self) -> usize {
        self.entries.len()
    }

    fn store(&mut self, at: usize, unit: Unit) {
        self.note(Event::Store);
        let at = self.at(at);
        self.entries[at..at + UNIT].copy_from_slice(&unit);
    }

    fn progress(&mut self, what: Progress) -> u32 {
        self.note(Event::Progress);
        match what {
            Progress::Owner(at) => self.entries[self.at(at)].into(),
            Progress::Index => 0,
        }
    }

    fn load(&mut self, at: usize) -> Block {
        self.note(Event::Load);
        let at = self.at(at);
        self.entries[at..at + BLOCK].try_into().expect("a block")
    }

    fn record(&mut self, record: Record, value: u32) {
        self.note(Event::Record(record));
        self.records[record as usize] = value;
    }

    fn doorbell(&mut self, at: usize, value: [u8; 8]) {
        self.note(Event::Doorbell { at, bytes: 8 });
        self.registers[at..at + 8].copy_from_slice(&value);
    }

    fn blue_flame(&mut self, at: usize, block: &Block) {
        self.note(Event::Doorbell { at, bytes: BLOCK });
        self.flames += 1;
        self.registers[at..at + BLOCK].copy_from_slice(block);
    }

    fn barrier(&mut self, barrier: Barrier) {
        let this = self.barriers;
        self.barriers += 1;
        if self.omitted != Some(this) {
            self.note(Event::Barrier(barrier));
        }
    }
}
