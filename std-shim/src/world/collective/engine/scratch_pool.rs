//! A pool of scratch memory for collectives, by size class.

use unisono_core::span::{Region, Span};

use unisono_memory::memory_regions::{Regions, RegisterError};

/// Size classes are powers of two, from 2⁶ to 2³⁷ bytes.
const SMALLEST: u32 = 6;
const CLASSES: usize = 32;
/// Most bytes that are kept unused.
const IDLE_MAX: usize = 1 << 26;

/// A block of scratch memory in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) struct ScratchBlock {
    pub(in crate::world) region: Region,
    class: usize,
}

impl ScratchBlock {
    /// Its first bytes.
    pub(in crate::world) const fn part(self, bytes: u32) -> Span {
        Span { region: self.region, offset: 0, bytes }
    }
}

/// Free regions by size class.
#[derive(Debug)]
pub(in crate::world) struct ScratchPool {
    free: [Vec<Region>; CLASSES],
    bytes: usize,
}

impl ScratchPool {
    pub(in crate::world) const fn new() -> Self {
        Self { free: [const { Vec::new() }; CLASSES], bytes: 0 }
    }

    /// Allocates a block with arbitrary contents. `None`: the size is impossible.
    pub(in crate::world) fn allocate(&mut self, bytes: usize, regions: &mut Regions) -> Option<ScratchBlock> {
        self.reuse_or(bytes, |bytes| regions.allocate(bytes))
    }

    /// As [`allocate`](Self::allocate), but returns `None` also where the system has no memory, instead of aborting the
    /// process.
    pub(in crate::world) fn try_allocate(&mut self, bytes: usize, regions: &mut Regions) -> Option<ScratchBlock> {
        self.reuse_or(bytes, |bytes| regions.try_allocate(bytes))
    }

    fn reuse_or(
        &mut self,
        bytes: usize,
        allocate: impl FnOnce(usize) -> Result<Region, RegisterError>,
    ) -> Option<ScratchBlock> {
        let class = (bytes.max(1).checked_next_power_of_two()?.trailing_zeros().saturating_sub(SMALLEST)) as usize;
        let size = size_of_class(class);
        let region = match self.free.get_mut(class)?.pop() {
            Some(region) => {
                self.bytes -= size;
                region
            }
            None => allocate(size).ok()?,
        };
        Some(ScratchBlock { region, class })
    }

    /// Returns a block that nothing uses any more.
    pub(in crate::world) fn release(&mut self, kept: ScratchBlock, regions: &mut Regions) {
        let size = size_of_class(kept.class);
        match self.free.get_mut(kept.class) {
            Some(free) if self.bytes + size <= IDLE_MAX => {
                self.bytes += size;
                free.push(kept.region);
            }
            _ => self.discard(kept, regions),
        }
    }

    /// Frees a block that others may still name: their accesses find no region.
    pub(in crate::world) fn discard(&self, kept: ScratchBlock, regions: &mut Regions) {
        // SAFETY: devices and rings copy while the process is locked, and so nobody copies now; the region's life is
        // over, so that nobody gets an address of it any more.
        unsafe { regions.free(kept.region) };
    }
}

const fn size_of_class(class: usize) -> usize {
    1 << (class + SMALLEST as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_core::device::Memory as _;

    #[test]
    fn released_memory_is_allocated_again() {
        // SAFETY: no address is used.
        let (mut store, mut regions) = (ScratchPool::new(), unsafe { Regions::new() });
        let first = store.allocate(100, &mut regions).expect("memory");
        assert!(regions.address(first.part(128)).is_some() && regions.address(first.part(129)).is_none());
        store.release(first, &mut regions);
        let second = store.allocate(65, &mut regions).expect("memory");
        assert_eq!(first, second);
        let third = store.allocate(65, &mut regions).expect("memory");
        assert_ne!(second.region, third.region);
        store.discard(second, &mut regions);
        assert!(regions.address(second.part(1)).is_none());
        store.release(third, &mut regions);
        assert_eq!((store.bytes, regions.live_regions()), (128, 1));
    }

    #[test]
    fn not_more_is_kept_than_is_said() {
        // SAFETY: no address is used.
        let (mut store, mut regions) = (ScratchPool::new(), unsafe { Regions::new() });
        let large = store.allocate(IDLE_MAX + 1, &mut regions).expect("memory");
        store.release(large, &mut regions);
        assert_eq!((store.bytes, regions.live_regions()), (0, 0));
        assert!(store.allocate(usize::MAX, &mut regions).is_none());
    }
}
