//! Copies between the segment and user buffers. Raw pointers on both sides: other processes may write to either at any
//! time, so there can be no references.

use core::ptr::NonNull;

use crate::segment::Cells;

/// A piece of a user buffer.
///
/// # Safety
/// Whoever makes one promises that its bytes are valid for reads and writes as long as it is used, that they are no cells of
/// a ring, and that nobody has a reference to them which a copy would break.
pub unsafe trait Lent: Copy {
    /// Its first byte.
    fn start(self) -> NonNull<u8>;
    /// Its length.
    fn bytes(self) -> usize;
}

/// Copies from a user buffer to shared memory: the shorter of both lengths.
#[inline]
pub fn to_cells(from: impl Lent, to: Cells<'_>) {
    let bytes = from.bytes().min(to.bytes());
    // SAFETY: both have so many bytes, and the lent ones are no cells.
    unsafe { to.start().copy_from_nonoverlapping(from.start(), bytes) };
}

/// Copies from shared memory to a user buffer: the shorter of both lengths.
#[inline]
pub fn from_cells(from: Cells<'_>, to: impl Lent) {
    let bytes = from.bytes().min(to.bytes());
    // SAFETY: as above.
    unsafe { to.start().copy_from_nonoverlapping(from.start(), bytes) };
}

/// Copies from a user buffer to a private one: the shorter of both lengths.
#[inline]
pub fn to_private(from: impl Lent, to: &mut [u8]) {
    let bytes = from.bytes().min(to.len());
    // SAFETY: both have so many bytes; a private buffer is exclusive, so that it is not lent.
    unsafe { NonNull::from(to).cast().copy_from_nonoverlapping(from.start(), bytes) };
}

/// Copies from a private buffer to a user buffer: the shorter of both lengths.
#[inline]
pub fn from_private(from: &[u8], to: impl Lent) {
    let bytes = from.len().min(to.bytes());
    // SAFETY: both have so many bytes; lent memory is not referred to.
    unsafe { to.start().copy_from_nonoverlapping(NonNull::from(from).cast(), bytes) };
}
