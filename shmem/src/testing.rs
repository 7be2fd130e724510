//! Shared memory on the heap for tests of barriers and collectives.

use core::ptr::NonNull;

use crate::collective_area::{CollectiveAreas, Members, SLOT_HEADER};
use crate::segment::Segment;

/// Collective areas on the heap: small slots and chunks, so that short payload takes every path.
pub(crate) struct TestAreas {
    memory: NonNull<[u64]>,
    pub(crate) areas: CollectiveAreas,
}

// SAFETY: it owns its memory, which goes with it, and uses it through segments alone.
unsafe impl Send for TestAreas {}
// SAFETY: shared, it gives out segments, which are `Sync`; each rank of a test uses its own part.
unsafe impl Sync for TestAreas {}

impl TestAreas {
    pub(crate) fn new(ranks: u32) -> Self {
        let (slots, inline, chunk) = (4, 56, 256);
        let bulk = 512 + slots as usize * (inline + SLOT_HEADER);
        let stride = bulk + slots as usize * chunk;
        Self::of(CollectiveAreas {
            ranks,
            members: Members::ALL,
            offset: 0,
            stride,
            line: 128,
            slots,
            inline,
            bulk,
            chunk,
            oversubscribed: false,
        })
    }

    /// Of ranks that share processors.
    pub(crate) fn oversubscribed(ranks: u32) -> Self {
        Self::of(CollectiveAreas { oversubscribed: true, ..Self::new(ranks).areas })
    }

    pub(crate) fn of(areas: CollectiveAreas) -> Self {
        let memory = vec![0_u64; areas.end().div_ceil(8)].into_boxed_slice();
        Self { memory: NonNull::from(Box::leak(memory)), areas }
    }

    pub(crate) fn segment(&self) -> Segment<'_> {
        // SAFETY: the memory lives as long as the ground and is used through segments alone.
        unsafe { Segment::new(self.memory.cast(), self.memory.len() * 8) }
    }
}

impl Drop for TestAreas {
    fn drop(&mut self) {
        // SAFETY: it came from a box, and no segment outlives the ground.
        drop(unsafe { Box::from_raw(self.memory.as_ptr()) });
    }
}
