//! Bounce buffers for small payloads: a send from a copy returns at once.

use unisono_core::span::{Region, Span};

use unisono_memory::memory_regions::Regions;

/// Bytes of the longest eager message.
pub(in crate::world) const EAGER_MAX: usize = 1 << 14;

/// A bounce buffer in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) struct BounceBuffer {
    slab: u8,
    index: u32,
}

/// Buffers of `bytes` bytes in one region, with a stack of free ones.
#[derive(Debug)]
struct BufferSlab {
    region: Region,
    bytes: usize,
    buffers: u32,
    free: Vec<u32>,
}

impl BufferSlab {
    fn new(bytes: usize, buffers: u32, regions: &mut Regions) -> Self {
        match regions.allocate(bytes * buffers as usize) {
            Ok(region) => Self { region, bytes, buffers, free: (0..buffers).rev().collect() },
            // Without a slab, every payload is sent from the user buffer.
            Err(_) => Self { region: Region::default(), bytes, buffers, free: Vec::new() },
        }
    }
}

/// Two slabs of 1 MiB each.
#[derive(Debug)]
pub(in crate::world) struct BounceBuffers([BufferSlab; 2]);

impl BounceBuffers {
    pub(in crate::world) fn new(regions: &mut Regions) -> Self {
        Self([BufferSlab::new(1024, 1024, regions), BufferSlab::new(EAGER_MAX, 64, regions)])
    }

    /// A buffer for a message of `bytes` bytes, and its span.
    pub(in crate::world) fn allocate_short(&mut self, bytes: usize) -> Option<(BounceBuffer, Span)> {
        self.allocate_from(0, bytes)
    }

    /// As [`allocate_short`](Self::allocate_short), for up to [`EAGER_MAX`] bytes: lets a blocking send return without
    /// waiting.
    pub(in crate::world) fn allocate(&mut self, bytes: usize) -> Option<(BounceBuffer, Span)> {
        self.allocate_from(0, bytes).or_else(|| self.allocate_from(1, bytes))
    }

    fn allocate_from(&mut self, slab: u8, bytes: usize) -> Option<(BounceBuffer, Span)> {
        let BufferSlab { region, bytes: each, free, .. } =
            self.0.get_mut(usize::from(slab)).filter(|slab| bytes <= slab.bytes)?;
        let index = free.pop()?;
        Some((
            BounceBuffer { slab, index },
            Span { region: *region, offset: index as usize * *each, bytes: bytes as u32 },
        ))
    }

    /// Whether less than half of the buffers for `bytes` bytes are left.
    pub(in crate::world) fn are_scarce(&self, bytes: usize) -> bool {
        let slab = self.0.iter().find(|slab| bytes <= slab.bytes);
        slab.is_none_or(|slab| slab.free.len() < slab.buffers as usize / 2)
    }

    pub(in crate::world) fn release(&mut self, buffer: BounceBuffer) {
        if let Some(slab) = self.0.get_mut(usize::from(buffer.slab)) {
            slab.free.push(buffer.index);
        }
    }
}
