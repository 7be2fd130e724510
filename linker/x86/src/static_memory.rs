//! User memory: one static, cut into equal regions.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use static_cell::ConstStaticCell;
use unisono_core::device::Memory;
use unisono_core::span::{Region, Span};
use unisono_shmem::user_memory::UserMemory;

/// `COUNT` regions of `BYTES` bytes, in a static.
pub struct StaticRegions<const COUNT: usize, const BYTES: usize> {
    bytes: UnsafeCell<MaybeUninit<[[u8; BYTES]; COUNT]>>,
    taken: ConstStaticCell<()>,
}

// SAFETY: the bytes are reached through the one `Pieces` that `take` gives out, once.
unsafe impl<const COUNT: usize, const BYTES: usize> Sync for StaticRegions<COUNT, BYTES> {}

impl<const COUNT: usize, const BYTES: usize> StaticRegions<COUNT, BYTES> {
    /// Zeros, where the static lies in cleared memory.
    pub const fn new() -> Self {
        Self { bytes: UnsafeCell::new(MaybeUninit::zeroed()), taken: ConstStaticCell::new(()) }
    }

    /// `None`: it was taken before.
    pub fn take(&'static self) -> Option<RegionMemory<COUNT, BYTES>> {
        self.taken.try_take()?;
        NonNull::new(self.bytes.get().cast()).map(RegionMemory)
    }
}

impl<const COUNT: usize, const BYTES: usize> Default for StaticRegions<COUNT, BYTES> {
    fn default() -> Self {
        Self::new()
    }
}

/// The regions of a store, valid as long as the image runs. No reference is ever made to their bytes.
#[derive(Debug)]
pub struct RegionMemory<const COUNT: usize, const BYTES: usize>(NonNull<u8>);

impl<const COUNT: usize, const BYTES: usize> RegionMemory<COUNT, BYTES> {
    /// The region of this number.
    pub fn region(&self, index: usize) -> Region {
        u32::try_from(index).map_or_else(|_| Region::default(), |index| Region::new(index, 1))
    }
}

/// Bytes of a region.
#[derive(Clone, Copy, Debug)]
pub struct RegionBytes {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: only `Pieces` makes one, of memory that is static, initialised and referred to by nobody; neither is `Send`,
// so that its uses follow each other on the one thread of the image.
unsafe impl UserMemory for RegionBytes {
    fn start(self) -> NonNull<u8> {
        self.start
    }

    fn bytes(self) -> usize {
        self.bytes
    }
}

impl<const COUNT: usize, const BYTES: usize> Memory for RegionMemory<COUNT, BYTES> {
    type Address = RegionBytes;

    fn address(&self, span: Span) -> Option<RegionBytes> {
        let (index, bytes) = (usize::try_from(span.region.index()).ok()?, usize::try_from(span.bytes).ok()?);
        let end = span.offset.checked_add(bytes)?;
        if span.region.generation() != 1 || index >= COUNT || end > BYTES {
            return None;
        }
        let offset = index.checked_mul(BYTES)?.checked_add(span.offset)?;
        // SAFETY: within the store, as was just checked.
        Some(RegionBytes { start: unsafe { self.0.add(offset) }, bytes })
    }
}
