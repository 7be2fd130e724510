//! Queue memory whose doorbell is a system call.

use crate::queue_memory::{Barrier, Block, Progress, QueueAccess, Record, Unit, Word};

/// The system call of a doorbell.
pub trait DoorbellCall {
    /// Rings the doorbell with these bytes.
    fn call(&mut self, value: [u8; 8]);
}

/// A queue whose doorbell is a system call.
#[derive(Debug)]
pub struct SyscallDoorbell<S, C> {
    memory: S,
    call: C,
}

impl<S, C> SyscallDoorbell<S, C> {
    /// A queue in this memory with this doorbell.
    pub const fn new(memory: S, call: C) -> Self {
        Self { memory, call }
    }

    /// Its doorbell.
    pub const fn doorbell_call(&self) -> &C {
        &self.call
    }
}

impl<S: QueueAccess, C: DoorbellCall> QueueAccess for SyscallDoorbell<S, C> {
    #[inline]
    fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    #[inline]
    fn store(&mut self, at: usize, unit: Unit) {
        self.memory.store(at, unit);
    }

    #[inline]
    fn store_all(&mut self, at: usize, units: &[Unit]) {
        self.memory.store_all(at, units);
    }

    #[inline]
    fn store_words(&mut self, at: usize, words: &[Word]) {
        self.memory.store_words(at, words);
    }

    #[inline]
    fn progress(&mut self, what: Progress) -> u32 {
        self.memory.progress(what)
    }

    #[inline]
    fn load(&mut self, at: usize) -> Block {
        self.memory.load(at)
    }

    #[inline]
    fn record(&mut self, record: Record, value: u32) {
        self.memory.record(record, value);
    }

    #[inline(always)]
    fn doorbell(&mut self, _: usize, value: [u8; 8]) {
        self.call.call(value);
    }

    /// There are no BlueFlame registers.
    #[inline]
    fn blue_flame(&mut self, _: usize, _: &Block) {}

    #[inline]
    fn barrier(&mut self, barrier: Barrier) {
        self.memory.barrier(barrier);
    }
}
