//! A pool of scratch memory for collectives.

use alloc::collections::BTreeMap;

use unisono_core::span::{Region, Span};

use unisono_memory::memory_regions::Regions;

/// The length of a block is a multiple of this.
const GRAIN: usize = 64;
/// A free block is used for a request if it is at most this much longer: it may be twice as long, and any short one may.
const SHORT: usize = 4096;
/// Most bytes that are kept unused.
const IDLE_MAX: usize = 1 << 26;

/// A block of scratch memory in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) struct ScratchBlock {
    pub(in crate::world) region: Region,
    bytes: usize,
}

impl ScratchBlock {
    /// Its first bytes.
    pub(in crate::world) const fn part(self, bytes: u32) -> Span {
        Span { region: self.region, offset: 0, bytes }
    }
}

/// Free regions by their length.
#[derive(Debug)]
pub(in crate::world) struct ScratchPool {
    free: BTreeMap<usize, Vec<Region>>,
    bytes: usize,
}

impl ScratchPool {
    pub(in crate::world) const fn new() -> Self {
        Self { free: BTreeMap::new(), bytes: 0 }
    }

    /// Allocates a block with arbitrary contents. `None`: the size is impossible, or the system has no memory.
    pub(in crate::world) fn allocate(&mut self, bytes: usize, regions: &mut Regions) -> Option<ScratchBlock> {
        let bytes = bytes.max(1).checked_next_multiple_of(GRAIN)?;
        let longest = bytes.saturating_mul(2).max(SHORT);
        if let Some((&bytes, free)) = self.free.range_mut(bytes..=longest).find(|(_, free)| !free.is_empty())
            && let Some(region) = free.pop()
        {
            self.bytes -= bytes;
            return Some(ScratchBlock { region, bytes });
        }
        Some(ScratchBlock { region: regions.allocate(bytes).ok()?, bytes })
    }

    /// Returns a block that nothing uses any more.
    pub(in crate::world) fn release(&mut self, kept: ScratchBlock, regions: &mut Regions) {
        if kept.bytes > IDLE_MAX {
            return self.discard(kept, regions);
        }
        if self.bytes + kept.bytes > IDLE_MAX {
            // The free blocks may have lengths that nobody asks for any more.
            for (bytes, free) in core::mem::take(&mut self.free) {
                free.into_iter().for_each(|region| self.discard(ScratchBlock { region, bytes }, regions));
            }
            self.bytes = 0;
        }
        self.bytes += kept.bytes;
        self.free.entry(kept.bytes).or_default().push(kept.region);
    }

    /// Frees a block that others may still name: their accesses find no region.
    pub(in crate::world) fn discard(&self, kept: ScratchBlock, regions: &mut Regions) {
        // SAFETY: devices and rings copy while the process is locked, and so nobody copies now; the region's life is
        // over, so that nobody gets an address of it any more.
        unsafe { regions.free(kept.region) };
    }
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
    fn no_more_is_allocated_than_is_asked_for() {
        // SAFETY: no address is used.
        let (mut store, mut regions) = (ScratchPool::new(), unsafe { Regions::new() });
        let bytes = (1 << 20) + 64;
        let block = store.allocate(bytes, &mut regions).expect("memory");
        let (whole, more) = (block.part(bytes as u32), block.part(bytes as u32 + 1));
        assert!(regions.address(whole).is_some() && regions.address(more).is_none());
        store.release(block, &mut regions);
        let half = store.allocate(bytes / 2 - 64, &mut regions).expect("memory");
        assert_ne!(half.region, block.region, "more than half of it would be unused");
        assert_eq!(store.allocate(bytes / 2 + 64, &mut regions), Some(block));
    }

    #[test]
    fn what_is_kept_makes_way_for_other_lengths() {
        // SAFETY: no address is used.
        let (mut store, mut regions) = (ScratchPool::new(), unsafe { Regions::new() });
        for bytes in [IDLE_MAX / 2, IDLE_MAX / 4, IDLE_MAX] {
            let block = store.allocate(bytes, &mut regions).expect("memory");
            store.release(block, &mut regions);
            assert!(store.bytes <= IDLE_MAX, "{}", store.bytes);
        }
        assert_eq!((store.bytes, regions.live_regions()), (IDLE_MAX, 1));
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
