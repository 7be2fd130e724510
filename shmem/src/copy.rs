//! Long copies. Where both sides are out of this core's caches, one in the other core's and one in none, a plain copy waits
//! for each in turn; here the lines of the next block are fetched on both sides while one is copied.
//!
//! Not for copies into the segment: lines that others have read are written fastest by the plain copy's string move, which does not
//! fetch them. Nor for pieces of a ring, which lie in the last cache (`docs/shared-memory.md`).

use core::ptr::NonNull;

use crate::segment::LINE;

/// Bytes that are copied at a time: less than what processors copy by string moves, which do not profit from fetched lines.
const BLOCK: usize = 2048;
/// Bytes from which fetching ahead pays.
const LONG: usize = 4 * BLOCK;

/// Copies `bytes` bytes.
///
/// # Safety
/// They are valid for reads at `from` and for writes at `into`, and the pieces are disjoint. `from` may be shared memory, which others
/// write meanwhile.
#[inline]
pub unsafe fn copy(from: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
    if bytes < LONG {
        // SAFETY: as the caller says.
        unsafe { into.copy_from_nonoverlapping(from, bytes) };
    } else {
        // SAFETY: as above.
        unsafe { copy_ahead(from, into, bytes) };
    }
}

/// As [`copy`], whatever its length.
///
/// # Safety
/// As there.
unsafe fn copy_ahead(from: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
    let (mut from, mut into, mut left) = (from, into, bytes);
    while left > BLOCK {
        for at in (BLOCK..left.min(2 * BLOCK)).step_by(LINE) {
            fetch(into.as_ptr().wrapping_add(at));
            fetch(from.as_ptr().wrapping_add(at));
        }
        // SAFETY: as the caller says of the whole.
        unsafe { into.copy_from_nonoverlapping(from, BLOCK) };
        // SAFETY: there is more behind the block.
        from = unsafe { from.add(BLOCK) };
        // SAFETY: as above.
        into = unsafe { into.add(BLOCK) };
        left -= BLOCK;
    }
    // SAFETY: as the caller says of the whole.
    unsafe { into.copy_from_nonoverlapping(from, left) };
}

/// Has a line put into the caches.
#[inline(always)]
fn fetch(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, at any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse", not(miri))))]
    let _ = line;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_any_length_is_copied_and_none_beside() {
        let from: Vec<u8> = (0..5 * BLOCK as u32).map(|i| (i % 251) as u8 + 1).collect();
        let lengths = [0, 1, 63, BLOCK, LONG - 1, LONG, LONG + 1, LONG + BLOCK - 1, LONG + BLOCK - 16];
        for (length, shift) in lengths.into_iter().flat_map(|length| [0, 1, 16].map(|shift| (length, shift))) {
            let mut into = vec![0_u8; length + 32];
            let (source, target) = (NonNull::from(&from[..]).cast(), NonNull::from(&mut into[shift..]).cast());
            // SAFETY: both vectors are long enough.
            unsafe { copy(source, target, length) };
            assert_eq!(into[shift..shift + length], from[..length]);
            assert!(into[..shift].iter().chain(&into[shift + length..]).all(|byte| *byte == 0), "{length}");
        }
    }
}
