//! The memory that a work queue shares with its adapter: every store, load and barrier goes through [`QueueAccess`].
//!
//! On hardware a [`QueueAccess`] is [`Mapped`]: volatile stores and loads, and fences. In tests it is plain memory that
//! a software adapter reads, and a [`Checker`] receives each [`QueueEvent`] and requires the order
//!
//! ```text
//! sending     entry … │ ToDevice │ record │ ToRegister │ doorbell or BlueFlame │ Flush
//! receiving   entry … │ ToDevice │ record
//! completions owner │ FromDevice │ entry … │ FromDevice │ record
//! arming      record │ ToRegister │ doorbell │ Flush
//! ```
//!
//! Sources for the order of stores: rdma-core's `util/udma_barrier.h` and the processors' manuals. On x86 stores to
//! memory keep their order and only those to write-combining registers need `sfence`; on ARM no order is kept without a
//! barrier.

mod checker;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod mapped;
#[cfg(any(test, feature = "recorded"))]
pub mod recorded;

pub use checker::{Checker, Violation};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub use mapped::{Mapped, QueueAddresses, fence};

/// Bytes of a unit: work queue entries are written in whole units.
pub const UNIT: usize = 16;
/// Bytes of a basic block, in which entries are counted and which BlueFlame copies at once.
pub const BLOCK: usize = 64;

/// 16 bytes, as they lie in memory.
pub type Unit = [u8; UNIT];
/// 8 bytes, as they lie in memory.
pub type Word = [u8; 8];
/// 64 bytes, as they lie in memory.
pub type Block = [u8; BLOCK];

/// The accesses that a barrier orders.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Barrier {
    /// Stores to memory before it, and those after it.
    ToDevice,
    /// Stores to memory before it, and stores to registers after it. Orders as [`ToDevice`](Self::ToDevice) does, too.
    ToRegister,
    /// Loads before it, and loads and stores after it.
    FromDevice,
    /// Stores to registers before it have left the processor before any store after it. Orders as
    /// [`ToRegister`](Self::ToRegister) does, too.
    Flush,
}

/// A doorbell record: a word of memory from which the adapter reads the driver's position.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Record {
    /// The number of entries posted, or polled.
    Index,
    /// The index from which a completion raises an event.
    Arm,
}

/// The adapter's position, as it writes it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Progress {
    /// The owner byte of the entry, at this offset of the queue.
    Owner(usize),
    /// Its own index.
    Index,
}

/// Access to a queue that is shared with the adapter: entries, records and registers. Offsets beyond the end wrap.
pub trait QueueAccess {
    /// Bytes of the entries; a power of two, at least [`BLOCK`].
    fn bytes(&self) -> usize;
    /// Stores a unit of an entry. `at` is a multiple of [`UNIT`].
    fn store(&mut self, at: usize, unit: Unit);
    /// As [`store`](Self::store), for consecutive units.
    #[inline]
    fn store_all(&mut self, at: usize, units: &[Unit]) {
        for (at, unit) in (at..).step_by(UNIT).zip(units) {
            self.store(at, *unit);
        }
    }
    /// Stores consecutive words of an entry. `at` is a multiple of their size.
    fn store_words(&mut self, at: usize, words: &[Word]);
    /// Loads the adapter's position.
    fn progress(&mut self, what: Progress) -> u32;
    /// Loads an entry. `at` is a multiple of [`UNIT`].
    fn load(&mut self, at: usize) -> Block;
    /// Stores a record, as it lies in memory.
    fn record(&mut self, record: Record, value: u32);
    /// Stores 8 bytes to the register at this offset, a multiple of 8.
    fn doorbell(&mut self, at: usize, value: [u8; 8]);
    /// Copies a block to the registers from this offset on, ascending.
    fn blue_flame(&mut self, at: usize, block: &Block);
    /// Executes a barrier.
    fn barrier(&mut self, barrier: Barrier);
}

/// An access to queue memory, as tests record it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QueueEvent {
    /// A unit or words of an entry were stored.
    Store,
    /// The device's progress was loaded.
    Progress,
    /// An entry was loaded.
    Load,
    /// A record was stored.
    Record(Record),
    /// `bytes` bytes were stored to the registers at offset `at`.
    Doorbell {
        /// Where.
        at: usize,
        /// How many.
        bytes: usize,
    },
    /// A barrier.
    Barrier(Barrier),
}
