//! Buffers in the shared segment: each rank allocates from its own pool. A message that is sent from such a buffer is
//! copied once.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::fmt;
use core::ops::{Deref, DerefMut, Range};
use core::ptr::NonNull;

use parking_lot::Mutex;
use unisono_shmem::segment::STRIDE;
use zerocopy::{FromBytes, FromZeros as _, IntoBytes};

use crate::node::Node;

/// Why a buffer cannot be allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AllocateError {
    /// The pool has no free block of this size.
    #[error("cannot allocate {bytes} bytes of shared memory: this rank's longest free block has {left} bytes")]
    Full {
        /// Bytes that were asked for.
        bytes: usize,
        /// Bytes of the longest free block.
        left: usize,
    },
    /// The size exceeds the address space.
    #[error("cannot allocate a buffer that exceeds the address space")]
    TooLong,
    /// The rank shares no memory, and the system has none left.
    #[error("cannot allocate {bytes} bytes: the system is out of memory")]
    NoMemory {
        /// Bytes that were asked for.
        bytes: usize,
    },
}

/// This rank's part of the segment.
pub(in crate::world) struct ShmPool {
    start: NonNull<u8>,
    bytes: usize,
    /// The offset of its first byte in the segment.
    at: usize,
    /// Free blocks: lengths by offset.
    free: Mutex<BTreeMap<usize, usize>>,
    /// Keeps the segment mapped.
    _node: Arc<Node>,
}

// SAFETY: the pool has the only right to this part of the segment in this process, and may give pieces of it out on any
// thread.
unsafe impl Send for ShmPool {}
// SAFETY: shared, it gives out pieces, under a lock, each to one buffer at a time, and looks at nothing that lies
// there.
unsafe impl Sync for ShmPool {}

impl ShmPool {
    pub(super) fn new(node: Arc<Node>) -> Option<Self> {
        let area = node.layout().pool(node.local())?;
        let start = node.segment().shared_bytes(area.offset, area.bytes)?.start();
        let free = Mutex::new(BTreeMap::from([(0, area.bytes)]));
        Some(Self { start, bytes: area.bytes, at: area.offset, free, _node: node })
    }

    /// The offset of these bytes in the segment, if they are in this pool.
    #[inline(always)]
    pub(in crate::world) fn offset(&self, start: NonNull<u8>, bytes: usize) -> Option<u64> {
        let from = start.addr().get().wrapping_sub(self.start.addr().get());
        (from < self.bytes && bytes <= self.bytes - from).then_some((self.at + from) as u64)
    }

    fn allocate(&self, bytes: usize) -> Result<Range<usize>, AllocateError> {
        let whole = bytes.max(1).checked_next_multiple_of(STRIDE).ok_or(AllocateError::TooLong)?;
        let mut free = self.free.lock();
        let found = free.iter().find(|(_, length)| **length >= whole).map(|(at, length)| (*at, *length));
        let Some((at, length)) = found else {
            return Err(AllocateError::Full { bytes, left: free.values().max().copied().unwrap_or(0) });
        };
        free.remove(&at);
        if length > whole {
            free.insert(at + whole, length - whole);
        }
        Ok(at..at + whole)
    }

    fn release(&self, piece: Range<usize>) {
        let mut free = self.free.lock();
        let (mut at, mut end) = (piece.start, piece.end);
        let before = free.range(..at).next_back().map(|(at, length)| (*at, *length));
        if let Some((start, _)) = before.filter(|(start, length)| start + length == at) {
            free.remove(&start);
            at = start;
        }
        if let Some(length) = free.remove(&end) {
            end += length;
        }
        free.insert(at, end - at);
    }
}

/// Memory of this rank for values of type `T`. Where ranks share memory, it is in the shared segment, and a message
/// that is sent from it is copied once, by the receiver. Elsewhere it is ordinary memory.
pub struct Buffer<T> {
    start: NonNull<T>,
    count: usize,
    memory: BufferMemory,
}

enum BufferMemory {
    Pool(Arc<ShmPool>, Range<usize>),
    /// Words aligned for any `T` made of bytes, as a raw pointer: a `Box` that moves would claim its memory as its own
    /// alone, and invalidate the pointer to the elements.
    Heap(NonNull<[u128]>),
}

// SAFETY: it owns its elements, as a boxed slice does, and may drop them on another thread.
unsafe impl<T: Send> Send for Buffer<T> {}
// SAFETY: shared, it gives out shared references to its elements, as a boxed slice does.
unsafe impl<T: Sync> Sync for Buffer<T> {}

impl<T: FromBytes + IntoBytes> Buffer<T> {
    pub(in crate::world) fn new(pool: Option<&Arc<ShmPool>>, count: usize) -> Result<Self, AllocateError> {
        const { assert!(align_of::<T>() <= align_of::<u128>(), "aligned to 16 bytes at most") };
        let bytes = count.checked_mul(size_of::<T>()).filter(|bytes| *bytes <= isize::MAX as usize);
        let bytes = bytes.ok_or(AllocateError::TooLong)?;
        let Some(pool) = pool else {
            let words = <[u128]>::new_box_zeroed_with_elems(bytes.div_ceil(size_of::<u128>()));
            let words = NonNull::from(Box::leak(words.map_err(|_| AllocateError::NoMemory { bytes })?));
            return Ok(Self { start: words.cast(), count, memory: BufferMemory::Heap(words) });
        };
        let piece = pool.allocate(bytes)?;
        // SAFETY: `take` gives out pieces that lie within the pool's `bytes` bytes.
        let start = unsafe { pool.start.add(piece.start) };
        // SAFETY: the piece has at least `bytes` bytes, and is this buffer's alone in this process until it is given
        // back.
        unsafe { start.write_bytes(0, bytes) };
        Ok(Self { start: start.cast(), count, memory: BufferMemory::Pool(Arc::clone(pool), piece) })
    }
}

impl<T> Buffer<T> {
    /// Whether it is in the memory that the ranks of the node share.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let data = world.allocate::<u8>(64)?;
    /// println!("{}", if data.is_shared() { "in the node's segment" } else { "in private memory" });
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn is_shared(&self) -> bool {
        matches!(self.memory, BufferMemory::Pool(..))
    }
}

impl<T> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `new` made room for `count` elements, aligned, and wrote all their bytes, and any bytes are a `T`. In
        // this process only this buffer uses them, and requests that borrow it. Other ranks, which see the pool, only
        // read what is announced to them; one that writes there breaks the rules, and what it breaks is data of this
        // rank.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl<T> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: `new` made room for `count` elements, aligned, and wrote all their bytes, and any bytes are a `T`.
        // The borrow is exclusive, and requests borrow what they use until they end. Other ranks, which see the pool,
        // only read what is announced to them.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.count) }
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        match &self.memory {
            BufferMemory::Pool(pool, piece) => pool.release(piece.clone()),
            BufferMemory::Heap(words) => {
                debug_assert!(size_of::<u128>() * words.len() >= self.count * size_of::<T>());
                // SAFETY: a box that `new` took apart, whose elements nobody can refer to any more.
                drop(unsafe { Box::from_raw(words.as_ptr()) });
            }
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Buffer<T> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Under AddressSanitizer (`.ci/sanitize`): the elements are used after the buffer was moved, within their memory,
    /// which is freed once.
    #[test]
    fn elements_of_ordinary_memory_stay_when_the_buffer_is_moved() {
        for count in [0, 1, 3, 1000] {
            let mut buffer = Buffer::<u64>::new(None, count).expect("memory");
            buffer.fill(7);
            let moved = Box::new(buffer);
            let mut back = std::thread::spawn(move || *moved).join().expect("no panic");
            back.iter_mut().for_each(|element| *element += 1);
            assert!(!back.is_shared() && back.len() == count && back.iter().all(|element| *element == 8));
        }
        assert_eq!(Buffer::<u64>::new(None, usize::MAX).err(), Some(AllocateError::TooLong));
    }
}
