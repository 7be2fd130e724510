//! Queue memory whose doorbell is a system call.

use crate::queue_memory::{Barrier, Block, Progress, Record, Seam, Unit, Word};

/// The system call of a doorbell.
pub trait Call {
    /// Rings the doorbell with these bytes.
    fn call(&mut self, value: [u8; 8]);
}

/// A queue whose doorbell is a system call.
#[derive(Debug)]
pub struct Called<S, C> {
    seam: S,
    call: C,
}

impl<S, C> Called<S, C> {
    /// A queue in this memory with this doorbell.
    pub const fn new(seam: S, call: C) -> Self {
        Self { seam, call }
    }

    /// Its doorbell.
    pub const fn called(&self) -> &C {
        &self.call
    }
}

impl<S: Seam, C: Call> Seam for Called<S, C> {
    #[inline]
    fn bytes(&self) -> usize {
        self.seam.bytes()
    }

    #[inline]
    fn store(&mut self, at: usize, unit: Unit) {
        self.seam.store(at, unit);
    }

    #[inline]
    fn store_all(&mut self, at: usize, units: &[Unit]) {
        self.seam.store_all(at, units);
    }

    #[inline]
    fn store_words(&mut self, at: usize, words: &[Word]) {
        self.seam.store_words(at, words);
    }

    #[inline]
    fn progress(&mut self, what: Progress) -> u32 {
        self.seam.progress(what)
    }

    #[inline]
    fn load(&mut self, at: usize) -> Block {
        self.seam.load(at)
    }

    #[inline]
    fn record(&mut self, record: Record, value: u32) {
        self.seam.record(record, value);
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
        self.seam.barrier(barrier);
    }
}
