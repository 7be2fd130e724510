//! Registered memory: raw pointers and the lkey under which the adapter knows them.

use core::ptr::NonNull;

/// A piece of registered memory.
///
/// It can be copied and kept, and devices copy to and from it in safe code. So safe code must not come by one unless
/// somebody promised all of this for as long as any copy of it is used.
///
/// # Safety
/// The creator of one promises that its bytes are valid for reads and writes as long as it or a copy of it is used,
/// that the adapter has them registered under its key meanwhile, that nobody has a reference to them which a copy would
/// break, and that of two uses of the same bytes, one of them a write, one ends before the other begins, on whichever
/// threads.
pub unsafe trait RegisteredMemory: Copy {
    /// Its first byte.
    fn start(self) -> NonNull<u8>;
    /// Its length.
    fn bytes(self) -> usize;
    /// The lkey; `None` for memory that is not registered, which is copied before it is sent.
    fn key(self) -> Option<u32>;

    /// The adapter's address of its first byte, under its key.
    fn device_address(self) -> u64 {
        self.start().expose_provenance().get() as u64
    }

    /// Whether its bytes are adjacent, from `start` on.
    fn is_adjacent(self) -> bool {
        true
    }

    /// Copies its first `bytes` bytes. Memory whose bytes are not adjacent has copies of its own and no key, and its
    /// `start` is not used.
    ///
    /// # Safety
    /// It has that many bytes; `to` is writable for as many, and lies elsewhere.
    unsafe fn copy_out(self, to: NonNull<u8>, bytes: usize) {
        // SAFETY: by the trait's contract the bytes are valid and not written; the caller answers for `to`.
        unsafe { to.copy_from_nonoverlapping(self.start(), bytes) };
    }

    /// Copies to its first `bytes` bytes.
    ///
    /// # Safety
    /// It has that many bytes; `from` is readable for as many, and lies elsewhere.
    unsafe fn copy_in(self, from: NonNull<u8>, bytes: usize) {
        // SAFETY: by the trait's contract the bytes are valid and not in use; the caller answers for `from`.
        unsafe { self.start().copy_from_nonoverlapping(from, bytes) };
    }
}

/// Registered memory of the driver, divided into equal pieces.
#[derive(Clone, Copy, Debug)]
pub struct Slab {
    start: NonNull<u8>,
    bytes: usize,
    key: u32,
}

// SAFETY: a slab is a number with a length; its creator promised that uses of it and its copies follow each other, on
// all threads.
unsafe impl Send for Slab {}

impl Slab {
    /// `bytes` bytes from `start` on, registered under `key`.
    ///
    /// # Safety
    /// As long as the slab or a copy of it is used, the bytes are valid for reads and writes and registered under the
    /// key, and nobody else but the adapter touches them, nor two copies of it at a time.
    pub const unsafe fn new(start: NonNull<u8>, bytes: usize, key: u32) -> Self {
        Self { start, bytes, key }
    }

    /// How many bytes.
    pub const fn bytes(self) -> usize {
        self.bytes
    }

    /// `bytes` bytes from byte `at` on.
    pub fn part(self, at: usize, bytes: usize) -> Option<Self> {
        if at.checked_add(bytes)? > self.bytes {
            return None;
        }
        // SAFETY: within the slab, or one past its end.
        let start = unsafe { self.start.add(at) };
        Some(Self { start, bytes, ..self })
    }
}

// SAFETY: the caller of `Slab::new` promised all that the trait demands, and parts lie within the slab.
unsafe impl RegisteredMemory for Slab {
    fn start(self) -> NonNull<u8> {
        self.start
    }

    fn bytes(self) -> usize {
        self.bytes
    }

    fn key(self) -> Option<u32> {
        Some(self.key)
    }
}

/// Copies from registered memory to a private buffer: the shorter of both lengths, which is returned.
#[inline]
pub fn read(from: impl RegisteredMemory, to: &mut [u8]) -> usize {
    let bytes = from.bytes().min(to.len());
    // SAFETY: both have the same length; by the trait's contract the registered ones are valid and nobody writes them
    // now; a private buffer is exclusive, so that it is not among them.
    unsafe { NonNull::from(to).cast().copy_from_nonoverlapping(from.start(), bytes) };
    bytes
}

/// Copies between two pieces of registered memory: the shorter of both lengths.
#[inline]
pub fn copy(from: impl RegisteredMemory, to: impl RegisteredMemory) {
    let bytes = from.bytes().min(to.bytes());
    // SAFETY: both have the same length; by the trait's contract they are valid and not in use. They may be one memory.
    unsafe { to.start().copy_from(from.start(), bytes) };
}
