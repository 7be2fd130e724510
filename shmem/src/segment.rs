//! Access to shared memory: words, which are atomic and have one writer each, and payload bytes, which belong to one
//! side at a time, as the words determine. Apart from copies the only file of the core that touches raw memory, and the
//! only one with a loom implementation.
//!
//! Another process may break the rules and write anywhere. Payload is then wrong, but nothing here depends on it: no
//! reference to payload bytes is ever made, and words are atomic.
//!
//! A [`Segment`] is the right to use the memory: everything made of one relies on the promise of the code that made it
//! ([`Segment::new`]). The code that makes this promise keeps the segment from code that does not know of it.

use core::fmt;

/// Bytes of a cache line.
pub const LINE: usize = 64;
/// Bytes between words that different ranks write: two lines, since adjacent ones are fetched together.
pub const STRIDE: usize = 128;

/// A statement that orders memory. The loom models weaken each of these in turn and must fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Site {
    /// The producer of a ring reads how many entries were consumed.
    RingSpace,
    /// The producer of a ring reads how much of the bulk was returned.
    BulkSpace,
    /// The producer of a ring publishes an entry.
    RingPublish,
    /// The consumer of a ring polls for an entry.
    RingPoll,
    /// The consumer of a ring returns entries.
    RingConsume,
    /// The consumer of a ring returns a piece of the bulk.
    BulkReturn,
    /// A rank publishes that it has arrived at a flat barrier.
    Arrive,
    /// A rank polls whether another has arrived there.
    Arrived,
    /// A rank that is to arrive last polls whether another has arrived.
    OthersArrived,
    /// One of two ranks publishes that it has arrived.
    PairArrive,
    /// One of two ranks polls whether the other has arrived.
    PairArrived,
    /// A rank publishes that it has reached a phase of a shaped barrier.
    PhasePublish,
    /// A rank polls whether another has reached it.
    PhasePoll,
    /// A rank publishes a slot that it wrote.
    SlotPublish,
    /// A rank polls whether a slot was published.
    SlotPoll,
    /// A rank publishes how many steps it has read.
    SlotDone,
    /// The writer of a slot polls how many steps the others have read.
    SlotFree,
    /// A rank publishes that it has pulled from a buffer that another rank exposed.
    PullDone,
    /// A rank polls whether another has pulled from its exposed buffer.
    PullPoll,
    /// The root of a small broadcast publishes its payload.
    SmallBroadcastPublish,
    /// A rank polls whether it has.
    SmallBroadcastPoll,
    /// A rank publishes that it has read it.
    SmallBroadcastDone,
    /// Guards no payload: bookkeeping of barriers and rings, hints that a poll is worthwhile, and names for error
    /// reports.
    Plain,
}

impl Site {
    /// All sites that guard payload.
    pub const ORDERING: [Self; 22] = [
        Self::RingSpace,
        Self::BulkSpace,
        Self::RingPublish,
        Self::RingPoll,
        Self::RingConsume,
        Self::BulkReturn,
        Self::Arrive,
        Self::Arrived,
        Self::OthersArrived,
        Self::PairArrive,
        Self::PairArrived,
        Self::PhasePublish,
        Self::PhasePoll,
        Self::SlotPublish,
        Self::SlotPoll,
        Self::SlotDone,
        Self::SlotFree,
        Self::PullDone,
        Self::PullPoll,
        Self::SmallBroadcastPublish,
        Self::SmallBroadcastPoll,
        Self::SmallBroadcastDone,
    ];
}

pub use seam::{Segment, SharedBytes, Word};

#[cfg(not(loom))]
mod seam {
    use core::marker::PhantomData;
    use core::ptr::NonNull;
    use core::sync::atomic::{AtomicU32, Ordering};

    use super::Site;

    /// A word with one writer.
    #[repr(transparent)]
    pub struct Word(AtomicU32);

    impl Word {
        /// Loads the value that another rank has published; everything it wrote before is visible then.
        #[inline(always)]
        pub fn acquire(&self, _: Site) -> u32 {
            self.0.load(Ordering::Acquire)
        }

        /// Publishes `value`, and everything that was written before.
        #[inline(always)]
        pub fn publish(&self, value: u32, _: Site) {
            self.0.store(value, Ordering::Release);
        }

        /// The value that this rank itself wrote last.
        #[inline(always)]
        pub fn own(&self) -> u32 {
            self.0.load(Ordering::Relaxed)
        }

        /// The atomic itself, for a futex wait.
        pub const fn atomic(&self) -> &AtomicU32 {
            &self.0
        }
    }

    /// Shared memory as a whole.
    #[derive(Clone, Copy)]
    pub struct Segment<'a> {
        base: NonNull<u8>,
        bytes: usize,
        lifetime: PhantomData<&'a [AtomicU32]>,
    }

    // SAFETY: an address and a length; what is reached through them are atomic words, and cells, which are read and
    // written through raw pointers by the side whose turn the words say it is, on any thread.
    unsafe impl Send for Segment<'_> {}
    // SAFETY: a shared `Segment` does what a copy of it does, and copies may be sent.
    unsafe impl Sync for Segment<'_> {}

    impl<'a> Segment<'a> {
        /// Memory at `base`.
        ///
        /// # Safety
        /// `base` is aligned to 4 and valid for reads and writes of `bytes` bytes for `'a`. Meanwhile, in this process:
        /// - references to these bytes are made by segments alone. Only the pool of this rank may be referred to, by
        ///   its owner, where no words or cells are used that were made of a segment at these addresses.
        /// - each end of a ring, each rank slot and each rank's part of a collective area has one user, on one thread
        ///   at a time: cells are copied without synchronisation, by the side whose turn the words say it is.
        ///
        /// Other processes may write anything anywhere.
        pub const unsafe fn new(base: NonNull<u8>, bytes: usize) -> Self {
            Self { base, bytes, lifetime: PhantomData }
        }

        /// Its length in bytes.
        pub const fn bytes(self) -> usize {
            self.bytes
        }

        /// `bytes` bytes from this one on, a multiple of 4.
        pub fn part(self, at: usize, bytes: usize) -> Option<Self> {
            if !at.is_multiple_of(4) || at.checked_add(bytes)? > self.bytes {
                return None;
            }
            // SAFETY: `at` is at most `self.bytes`, so the address is within the memory that `Segment::new` was
            // promised, or its end.
            Some(Self { base: unsafe { self.base.add(at) }, bytes, lifetime: PhantomData })
        }

        /// The word at this byte, a multiple of 4.
        #[inline]
        pub fn word(self, at: usize) -> Option<&'a Word> {
            self.words(at, 1)?.first()
        }

        /// `count` words from this byte on, a multiple of 4.
        #[inline]
        pub fn words(self, at: usize, count: usize) -> Option<&'a [Word]> {
            let end = count.checked_mul(4)?.checked_add(at)?;
            if !at.is_multiple_of(4) || end > self.bytes {
                return None;
            }
            // SAFETY: `at` is at most `self.bytes`, so the address is within the memory that `Segment::new` was
            // promised, or its end.
            let first = unsafe { self.base.add(at) };
            // SAFETY: `count` words from there are within the promised memory, as checked, and aligned, as `base` and
            // `at` are; they are initialised, as all memory of a mapping, and atomic, so that others may write them at
            // any time.
            Some(unsafe { NonNull::slice_from_raw_parts(first.cast::<Word>(), count).as_ref() })
        }

        /// `bytes` bytes of payload from this byte on.
        #[inline]
        pub fn shared_bytes(self, at: usize, bytes: usize) -> Option<SharedBytes<'a>> {
            if at.checked_add(bytes)? > self.bytes {
                return None;
            }
            // SAFETY: `at` is at most `self.bytes`, so the address is within the memory that `Segment::new` was
            // promised, or its end.
            Some(SharedBytes { start: unsafe { self.base.add(at) }, bytes, lifetime: PhantomData })
        }
    }

    /// A piece of payload.
    #[derive(Clone, Copy)]
    pub struct SharedBytes<'a> {
        start: NonNull<u8>,
        bytes: usize,
        lifetime: PhantomData<&'a [AtomicU32]>,
    }

    // SAFETY: an address and a length; the bytes are read and written through raw pointers by the side whose turn it
    // is, on any thread.
    unsafe impl Send for SharedBytes<'_> {}
    // SAFETY: shared cells do what a copy of them does, and copies may be sent.
    unsafe impl Sync for SharedBytes<'_> {}

    impl SharedBytes<'_> {
        /// Its length.
        #[inline]
        pub const fn bytes(self) -> usize {
            self.bytes
        }

        /// Its first byte. The bytes may change at any time: for copies, kernels and system calls only.
        #[inline]
        pub const fn start(self) -> NonNull<u8> {
            self.start
        }

        /// A part of it.
        #[inline]
        pub fn part(self, at: usize, bytes: usize) -> Option<Self> {
            if at.checked_add(bytes)? > self.bytes {
                return None;
            }
            // SAFETY: `at` is at most `self.bytes`, so the address is within the piece or its end.
            Some(Self { start: unsafe { self.start.add(at) }, bytes, lifetime: PhantomData })
        }

        /// Writes these bytes at its beginning. `None`, and nothing is written, if they are too many.
        #[inline]
        pub fn write(self, from: &[u8]) -> Option<()> {
            if from.len() > self.bytes {
                return None;
            }
            // SAFETY: the piece is valid for `from.len()` bytes, as checked. The creator of the segment promised that
            // nobody has a reference to them, so `from` lies elsewhere, and that nobody else in this process uses them
            // during this side's turn.
            unsafe { self.start.copy_from_nonoverlapping(NonNull::from(from).cast(), from.len()) };
            Some(())
        }

        /// Copies its beginning to `to`. `None`, and nothing is copied, if it is shorter.
        #[inline]
        pub fn read(self, to: &mut [u8]) -> Option<()> {
            if to.len() > self.bytes {
                return None;
            }
            // SAFETY: the piece is valid for `to.len()` bytes, as checked. The creator of the segment promised that
            // nobody has a reference to them, so `to` lies elsewhere, and that nobody else in this process writes them
            // during this side's turn.
            unsafe { self.start.copy_to_nonoverlapping(NonNull::from(&mut *to).cast(), to.len()) };
            Some(())
        }
    }
}

#[cfg(loom)]
mod seam {
    use std::sync::atomic::AtomicUsize;

    use loom::cell::UnsafeCell;
    use loom::sync::atomic::{AtomicU32, Ordering};

    use super::Site;

    /// The site whose ordering is weakened to relaxed: its index in [`Site::ORDERING`]; beyond it, none.
    pub static WEAKENED: AtomicUsize = AtomicUsize::new(usize::MAX);

    fn order(site: Site, strong: Ordering) -> Ordering {
        let weakened = Site::ORDERING.get(WEAKENED.load(Ordering::Relaxed)) == Some(&site);
        if weakened { Ordering::Relaxed } else { strong }
    }

    /// A word with one writer.
    pub struct Word(AtomicU32);

    impl Word {
        /// As shipped.
        pub fn acquire(&self, site: Site) -> u32 {
            self.0.load(order(site, Ordering::Acquire))
        }

        /// As shipped.
        pub fn publish(&self, value: u32, site: Site) {
            self.0.store(value, order(site, Ordering::Release));
        }

        /// As shipped.
        pub fn own(&self) -> u32 {
            self.0.load(Ordering::Relaxed)
        }
    }

    /// Words and payload cells over the same offsets; an offset used as a word is never used as payload.
    pub struct Memory {
        words: Vec<Word>,
        cells: Vec<UnsafeCell<u32>>,
    }

    // SAFETY: loom checks every access to a cell, on any thread.
    unsafe impl Send for Memory {}
    // SAFETY: loom fails the model if two threads use a cell at once, one of them writing.
    unsafe impl Sync for Memory {}

    impl Memory {
        /// Memory of `bytes` bytes; every word starts as `first`.
        pub fn new(bytes: usize, first: u32) -> Self {
            let words = (0..bytes / 4).map(|_| Word(AtomicU32::new(first))).collect();
            Self { words, cells: (0..bytes / 4).map(|_| UnsafeCell::new(0)).collect() }
        }

        /// The segment over this memory.
        pub fn segment(&self) -> Segment<'_> {
            Segment { words: &self.words, cells: &self.cells }
        }
    }

    /// Shared memory as a whole.
    #[derive(Clone, Copy)]
    pub struct Segment<'a> {
        words: &'a [Word],
        cells: &'a [UnsafeCell<u32>],
    }

    impl<'a> Segment<'a> {
        /// As shipped.
        pub const fn bytes(self) -> usize {
            self.words.len() * 4
        }

        /// As shipped.
        pub fn part(self, at: usize, bytes: usize) -> Option<Self> {
            let cells = self.cells.get(at / 4..at.checked_add(bytes)? / 4)?;
            Some(Self { words: self.words(at, bytes / 4)?, cells })
        }

        /// As shipped.
        pub fn word(self, at: usize) -> Option<&'a Word> {
            self.words(at, 1)?.first()
        }

        /// As shipped.
        pub fn words(self, at: usize, count: usize) -> Option<&'a [Word]> {
            if at.is_multiple_of(4) { self.words.get(at / 4..(at / 4).checked_add(count)?) } else { None }
        }

        /// As shipped, for multiples of 4.
        pub fn shared_bytes(self, at: usize, bytes: usize) -> Option<SharedBytes<'a>> {
            Some(SharedBytes { cells: self.cells.get(at / 4..(at + bytes).div_ceil(4))?, bytes })
        }
    }

    /// A piece of payload.
    #[derive(Clone, Copy)]
    pub struct SharedBytes<'a> {
        cells: &'a [UnsafeCell<u32>],
        bytes: usize,
    }

    // SAFETY: loom checks every access to a cell, on any thread.
    unsafe impl Send for SharedBytes<'_> {}
    // SAFETY: loom fails the model if two threads use a cell at once, one of them writing.
    unsafe impl Sync for SharedBytes<'_> {}

    impl SharedBytes<'_> {
        /// As shipped.
        pub const fn bytes(self) -> usize {
            self.bytes
        }

        /// As shipped.
        pub fn part(self, at: usize, bytes: usize) -> Option<Self> {
            if at.checked_add(bytes)? > self.bytes {
                return None;
            }
            Some(Self { cells: self.cells.get(at / 4..(at + bytes).div_ceil(4))?, bytes })
        }

        /// As shipped.
        pub fn write(self, from: &[u8]) -> Option<()> {
            for (cell, bytes) in self.cells.get(..from.len().div_ceil(4))?.iter().zip(from.chunks(4)) {
                let mut value = [0; 4];
                value[..bytes.len()].copy_from_slice(bytes);
                // SAFETY: loom fails the model if another thread uses the cell meanwhile.
                cell.with_mut(|cell| unsafe { *cell = u32::from_le_bytes(value) });
            }
            Some(())
        }

        /// As shipped.
        pub fn read(self, to: &mut [u8]) -> Option<()> {
            for (cell, bytes) in self.cells.get(..to.len().div_ceil(4))?.iter().zip(to.chunks_mut(4)) {
                // SAFETY: loom fails the model if another thread writes the cell meanwhile.
                let value = cell.with(|cell| unsafe { *cell }).to_le_bytes();
                bytes.copy_from_slice(&value[..bytes.len()]);
            }
            Some(())
        }
    }
}

#[cfg(loom)]
pub use seam::{Memory, WEAKENED};

impl fmt::Debug for Segment<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Segment({} bytes)", self.bytes())
    }
}

impl fmt::Debug for SharedBytes<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "SharedBytes({} bytes)", self.bytes())
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Word({:#x})", self.own())
    }
}
