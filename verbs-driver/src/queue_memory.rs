//! The seam between a queue and the device that shares it: every store, load and barrier of a work queue goes through here.
//!
//! On hardware a [`Seam`] is [`Mapped`]: volatile stores and loads, and fences. In tests it is memory that a software adapter
//! reads, and a [`Checker`] sees each [`Event`] and demands the order
//!
//! ```text
//! sending     entry … │ ToDevice │ record │ ToRegister │ doorbell or BlueFlame │ Flush
//! receiving   entry … │ ToDevice │ record
//! completions owner │ FromDevice │ entry … │ FromDevice │ record
//! arming      record │ ToRegister │ doorbell │ Flush
//! ```
//!
//! Which store may overtake which is said by rdma-core's `util/udma_barrier.h` and by the processors' manuals: on x86 stores to
//! memory keep their order and only those to write-combining registers need `sfence`; on ARM nothing keeps its order by itself.

mod checker;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod mapped;
#[cfg(any(test, feature = "recorded"))]
pub mod recorded;

pub use checker::{Checker, Violation};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub use mapped::{Mapped, Place, fence};

/// What a queue is written in: segments are whole units.
pub const UNIT: usize = 16;
/// Bytes of a basic block: what entries are counted in, and what BlueFlame copies at once.
pub const BLOCK: usize = 64;

/// 16 bytes, as they lie in memory.
pub type Unit = [u8; UNIT];
/// 8 bytes, as they lie in memory.
pub type Word = [u8; 8];
/// 64 bytes, as they lie in memory.
pub type Block = [u8; BLOCK];

/// What a barrier keeps in order.
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

/// A word of memory that tells the device how far the driver is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Record {
    /// How much was posted, or taken.
    Index,
    /// From where on a completion raises an event.
    Arm,
}

/// What the device writes to say how far it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Progress {
    /// The byte at this offset of the queue, which says whose the entry is.
    Owner(usize),
    /// Its own index.
    Index,
}

/// What a queue shares with its device: entries, records and registers. Offsets outside wrap at the end.
pub trait Seam {
    /// Bytes of the entries; a power of two, at least [`BLOCK`].
    fn bytes(&self) -> usize;
    /// Stores a unit of an entry. `at` is a multiple of [`UNIT`].
    fn store(&mut self, at: usize, unit: Unit);
    /// As [`store`](Self::store), of units one behind the other.
    #[inline]
    fn store_all(&mut self, at: usize, units: &[Unit]) {
        for (at, unit) in (at..).step_by(UNIT).zip(units) {
            self.store(at, *unit);
        }
    }
    /// Stores words of an entry one behind the other. `at` is a multiple of their size.
    fn store_words(&mut self, at: usize, words: &[Word]);
    /// Loads what tells how far the device is.
    fn progress(&mut self, what: Progress) -> u32;
    /// Loads an entry. `at` is a multiple of [`UNIT`].
    fn load(&mut self, at: usize) -> Block;
    /// Stores a record, as it lies in memory.
    fn record(&mut self, record: Record, value: u32);
    /// Stores 8 bytes to the register at this offset, a multiple of 8.
    fn doorbell(&mut self, at: usize, value: [u8; 8]);
    /// Copies a block to the registers from this offset on, ascending.
    fn blue_flame(&mut self, at: usize, block: &Block);
    /// Keeps order.
    fn barrier(&mut self, barrier: Barrier);
}

/// What happens at a seam.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// A unit or words of an entry were stored.
    Store,
    /// The device's progress was loaded.
    Progress,
    /// An entry was loaded.
    Load,
    /// A record was stored.
    Record(Record),
    /// So many bytes were stored to the registers from this offset on.
    Doorbell {
        /// Where.
        at: usize,
        /// How many.
        bytes: usize,
    },
    /// A barrier.
    Barrier(Barrier),
}
