//! The named seam for copies between the segment and memory that users lend: raw pointers on both sides, since neither side
//! may be referred to while others write there.

use core::ptr::NonNull;

use crate::segment::Cells;

/// A piece of lent memory.
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

/// Copies lent bytes to cells, as many as both have.
#[inline]
pub fn to_cells(from: impl Lent, to: Cells<'_>) {
    let bytes = from.bytes().min(to.bytes());
    // SAFETY: both have so many bytes, and the lent ones are no cells.
    unsafe { to.start().copy_from_nonoverlapping(from.start(), bytes) };
}

/// Copies cells to lent memory, as many bytes as both have.
#[inline]
pub fn from_cells(from: Cells<'_>, to: impl Lent) {
    let bytes = from.bytes().min(to.bytes());
    // SAFETY: as above.
    unsafe { to.start().copy_from_nonoverlapping(from.start(), bytes) };
}

/// Copies lent bytes to a private buffer, as many as both have.
#[inline]
pub fn to_private(from: impl Lent, to: &mut [u8]) {
    let bytes = from.bytes().min(to.len());
    // SAFETY: both have so many bytes; a private buffer is exclusive, so that it is not lent.
    unsafe { NonNull::from(to).cast().copy_from_nonoverlapping(from.start(), bytes) };
}

/// Copies a private buffer to lent memory, as many bytes as both have.
#[inline]
pub fn from_private(from: &[u8], to: impl Lent) {
    let bytes = from.len().min(to.bytes());
    // SAFETY: both have so many bytes; lent memory is not referred to.
    unsafe { to.start().copy_from_nonoverlapping(NonNull::from(from).cast(), bytes) };
}
