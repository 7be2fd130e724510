//! Packet buffers: one allocation of equal cells that the kernel reads and writes.

use alloc::alloc::{alloc_zeroed, dealloc};
use core::{alloc::Layout, ptr::NonNull, slice};
use std::io;

/// Bytes of a cache line; cells start on one.
const CACHE_LINE: usize = 64;

/// Alignment up to which the allocator hands out untouched zero pages; cells are aligned by hand.
const ALLOCATION_ALIGNMENT: usize = 16;

/// Equal cells of zero bytes; pages are touched only when used. The cells' addresses stay the same when the pool moves.
///
/// The kernel writes to a cell only during a system call made with the pool borrowed exclusively.
#[derive(Debug)]
pub(super) struct BufferPool {
    start: NonNull<u8>,
    first: usize,
    layout: Layout,
    stride: usize,
    bytes: usize,
    cells: usize,
}

// SAFETY: the slab owns its allocation, which no thread reaches but through it.
unsafe impl Send for BufferPool {}

impl BufferPool {
    /// `cells` cells of `bytes` bytes. Their stride is an odd number of cache lines, so that cells of a power of two
    /// bytes do not map to the same cache sets.
    ///
    /// # Errors
    /// The system has no memory.
    pub(super) fn new(cells: usize, bytes: usize) -> io::Result<Self> {
        let no_memory = || io::Error::from(io::ErrorKind::OutOfMemory);
        let stride = (bytes.div_ceil(CACHE_LINE) | 1) * CACHE_LINE;
        let layout = Layout::from_size_align(stride * cells.max(1) + CACHE_LINE, ALLOCATION_ALIGNMENT)
            .map_err(|_| no_memory())?;
        // SAFETY: the layout is not of zero size.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or_else(no_memory)?;
        Ok(Self { start, first: start.as_ptr().align_offset(CACHE_LINE), layout, stride, bytes, cells })
    }

    /// Bytes `start..start + bytes` of a cell, for the kernel or for reading.
    pub(super) fn piece(&self, cell: usize, start: usize, bytes: usize) -> Option<NonNull<u8>> {
        let end = start.checked_add(bytes)?;
        // SAFETY: the cell exists and the offset is at most its length.
        (cell < self.cells && end <= self.bytes)
            .then(|| unsafe { self.start.add(self.first + cell * self.stride + start) })
    }

    /// Bytes `start..start + bytes` of a cell as a slice.
    pub(super) fn get(&self, cell: usize, start: usize, bytes: usize) -> Option<&[u8]> {
        let piece = self.piece(cell, start, bytes)?;
        // SAFETY: within a cell, initialised, and written only through an exclusive borrow of the slab.
        Some(unsafe { slice::from_raw_parts(piece.as_ptr(), bytes) })
    }

    /// Bytes `start..start + bytes` of a cell as a mutable slice.
    pub(super) fn get_mut(&mut self, cell: usize, start: usize, bytes: usize) -> Option<&mut [u8]> {
        let piece = self.piece(cell, start, bytes)?;
        // SAFETY: within a cell, initialised, and the slab is borrowed exclusively.
        Some(unsafe { slice::from_raw_parts_mut(piece.as_ptr(), bytes) })
    }
}

impl Drop for BufferPool {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout; no call of the kernel outlives its borrow of the slab.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_apart_aligned_and_bounded() {
        let mut slab = BufferPool::new(3, 128).unwrap();
        for cell in 0..3 {
            slab.get_mut(cell, 0, 128).unwrap().fill(cell as u8 + 1);
            assert_eq!(slab.piece(cell, 0, 0).unwrap().as_ptr() as usize % CACHE_LINE, 0);
        }
        for cell in 0..3 {
            assert!(slab.get(cell, 100, 28).unwrap().iter().all(|byte| usize::from(*byte) == cell + 1));
        }
        assert!(
            slab.piece(3, 0, 0).is_none() && slab.get(0, 1, 128).is_none() && slab.piece(0, usize::MAX, 2).is_none()
        );
    }
}
