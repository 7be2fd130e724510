//! Copies between the segment and user buffers. Raw pointers on both sides: other processes may write to either at any
//! time, so there can be no references.

use core::ptr::NonNull;

use crate::segment::SharedBytes;

/// A piece of a user buffer.
///
/// It can be copied and kept, and devices copy to and from it in safe code. So safe code must not come by one unless
/// somebody promised all of this for as long as any copy of it is used.
///
/// # Safety
/// The creator of one promises that its bytes are valid for reads and writes as long as it or a copy of it is used,
/// that they are no cells of a ring, that nobody has a reference to them which a copy would break, and that of two uses
/// of the same bytes, one of them a write, one ends before the other begins, on whichever threads.
pub unsafe trait UserMemory: Copy {
    /// Its first byte. Memory whose bytes are not adjacent has copies of its own, which do not use it.
    fn start(self) -> NonNull<u8>;
    /// Its length.
    fn bytes(self) -> usize;

    /// Copies its first `bytes` bytes.
    ///
    /// # Safety
    /// It has that many bytes; `to` is writable for as many, and lies elsewhere.
    #[inline]
    unsafe fn copy_out(self, to: NonNull<u8>, bytes: usize) {
        // SAFETY: by the trait's contract the bytes are valid and not written; the caller answers for `to`.
        unsafe { to.copy_from_nonoverlapping(self.start(), bytes) };
    }

    /// Copies to its first `bytes` bytes.
    ///
    /// # Safety
    /// It has that many bytes; `from` is readable for as many, and lies elsewhere.
    #[inline]
    unsafe fn copy_in(self, from: NonNull<u8>, bytes: usize) {
        // SAFETY: by the trait's contract the bytes are valid and not in use; the caller answers for `from`.
        unsafe { self.start().copy_from_nonoverlapping(from, bytes) };
    }
}

/// Copies from a user buffer to shared memory: the shorter of both lengths.
#[inline]
pub fn copy_to_shared(from: impl UserMemory, to: SharedBytes<'_>) {
    let bytes = from.bytes().min(to.bytes());
    // SAFETY: both have the same length; by the trait's contract the user's bytes are valid, no cells, and not in use.
    unsafe { from.copy_out(to.start(), bytes) };
}

/// Copies from shared memory to a user buffer: the shorter of both lengths.
#[inline]
pub fn copy_from_shared(from: SharedBytes<'_>, to: impl UserMemory) {
    let bytes = from.bytes().min(to.bytes());
    // SAFETY: both have the same length; by the trait's contract the user's bytes are valid, no cells, and not in use.
    unsafe { to.copy_in(from.start(), bytes) };
}

/// Copies from a user buffer to a private one: the shorter of both lengths.
#[inline]
pub fn copy_to_private(from: impl UserMemory, to: &mut [u8]) {
    let bytes = from.bytes().min(to.len());
    // SAFETY: both have the same length; by the trait's contract the user's bytes are valid and nobody writes them
    // now; a private buffer is exclusive, so that it is not among them.
    unsafe { from.copy_out(NonNull::from(to).cast(), bytes) };
}

/// Copies from a private buffer to a user buffer: the shorter of both lengths.
#[inline]
pub fn copy_from_private(from: &[u8], to: impl UserMemory) {
    let bytes = from.len().min(to.bytes());
    // SAFETY: both have the same length; by the trait's contract the user's bytes are valid, not in use, and not
    // referred to, so that the private buffer lies elsewhere.
    unsafe { to.copy_in(NonNull::from(from).cast(), bytes) };
}
