//! Long copies with software prefetch. Where neither side is in this core's caches, say one in another core's and one
//! in memory, a plain copy waits for each in turn; here the next block's lines of both are prefetched while one block
//! is copied.
//!
//! Not for copies into the segment: lines that others have read are written fastest by `rep movsb`, which does not
//! fetch them. Not for pieces of a ring, which are in the last-level cache (`docs/shared-memory.md`). Not for copies
//! out of slots, which are in the last-level cache or in memory: there single loads and stores keep the hardware
//! prefetcher busiest.

use core::ptr::NonNull;

use crate::segment::LINE;

/// Bytes copied at a time: fewer than processors copy by `rep movsb`, which does not profit from prefetched lines.
const BLOCK: usize = 2048;
/// Bytes from which prefetching pays.
const LONG: usize = 4 * BLOCK;

/// Copies `bytes` bytes.
///
/// # Safety
/// They are valid for reads at `from` and for writes at `into`, and the pieces are disjoint. `from` may be shared
/// memory, which others write meanwhile.
#[inline]
pub unsafe fn copy(from: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
    if bytes < LONG {
        // SAFETY: the caller promises that `bytes` bytes are readable at `from` and writable at `into`, and that they
        // are disjoint.
        unsafe { into.copy_from_nonoverlapping(from, bytes) };
    } else {
        // SAFETY: the caller promises that `bytes` bytes are readable at `from` and writable at `into`, and that they
        // are disjoint.
        unsafe { copy_prefetched(from, into, bytes) };
    }
}

/// As [`copy`], out of shared memory.
///
/// # Safety
/// As there.
#[inline]
pub unsafe fn copy_out(from: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
    if cfg!(all(target_arch = "x86_64", target_feature = "sse2", not(miri))) && bytes >= LONG {
        // SAFETY: the caller promises that `bytes` bytes are readable at `from` and writable at `into`, and that they
        // are disjoint.
        unsafe { copy_lines(from, into, bytes) };
    } else {
        // SAFETY: the caller promises that `bytes` bytes are readable at `from` and writable at `into`, and that they
        // are disjoint.
        unsafe { copy(from, into, bytes) };
    }
}

/// Copies line by line, with 16-byte loads and stores: the hardware then prefetches the source as early as it can,
/// which it does not do after `rep movsb`.
///
/// # Safety
/// As of [`copy`].
#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
unsafe fn copy_lines(from: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
    use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_storeu_si128};

    let whole = bytes / LINE * LINE;
    for at in (0..whole).step_by(LINE) {
        let (source, target) = (from.as_ptr().wrapping_add(at), into.as_ptr().wrapping_add(at));
        let (source, target) = (source.cast::<__m128i>(), target.cast::<__m128i>());
        // SAFETY: within a line that may be read, in any alignment.
        let parts = [0, 1, 2, 3].map(|part| unsafe { _mm_loadu_si128(source.wrapping_add(part)) });
        for (part, value) in parts.into_iter().enumerate() {
            // SAFETY: within a line that may be written, in any alignment.
            unsafe { _mm_storeu_si128(target.wrapping_add(part), value) };
        }
    }
    let (from, into) = (from.as_ptr().wrapping_add(whole), into.as_ptr().wrapping_add(whole));
    // SAFETY: the last `bytes - whole` of the `bytes` bytes that the caller promises to be readable and writable, and
    // disjoint.
    unsafe { into.copy_from_nonoverlapping(from, bytes - whole) };
}

#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2", not(miri))))]
unsafe fn copy_lines(from: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller promises that `bytes` bytes are readable at `from` and writable at `into`, and that they are
    // disjoint.
    unsafe { copy(from, into, bytes) };
}

/// As [`copy`], whatever its length.
///
/// # Safety
/// As there.
unsafe fn copy_prefetched(from: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
    let (mut from, mut into, mut left) = (from, into, bytes);
    while left > BLOCK {
        for at in (BLOCK..left.min(2 * BLOCK)).step_by(LINE) {
            prefetch(into.as_ptr().wrapping_add(at));
            prefetch(from.as_ptr().wrapping_add(at));
        }
        // SAFETY: `left` of the caller's readable and writable, disjoint bytes lie here, which is more than `BLOCK`.
        unsafe { into.copy_from_nonoverlapping(from, BLOCK) };
        // SAFETY: more than `BLOCK` of the caller's readable bytes lie here, so that this stays within them.
        from = unsafe { from.add(BLOCK) };
        // SAFETY: more than `BLOCK` of the caller's writable bytes lie here, so that this stays within them.
        into = unsafe { into.add(BLOCK) };
        left -= BLOCK;
    }
    // SAFETY: the last `left` of the `bytes` bytes that the caller promises to be readable and writable, and disjoint.
    unsafe { into.copy_from_nonoverlapping(from, left) };
}

/// Prefetches a line into all cache levels.
#[inline(always)]
fn prefetch(line: *const u8) {
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
    fn every_byte_of_any_length_is_copied_and_no_other() {
        let from: Vec<u8> = (0..6 * BLOCK as u32).map(|i| (i % 251) as u8 + 1).collect();
        let lengths = [0, 1, 63, BLOCK, LONG - 1, LONG, LONG + 1, LONG + BLOCK - 1, LONG + BLOCK - 16];
        for (length, shift) in lengths.into_iter().flat_map(|length| [0, 1, 16].map(|shift| (length, shift))) {
            let (mut into, from) = (vec![0_u8; length + 32], &from[shift / 2..]);
            let (source, target) = (NonNull::from(from).cast(), NonNull::from(&mut into[shift..]).cast());
            for way in [copy, copy_out] {
                into.fill(0);
                // SAFETY: both vectors are long enough.
                unsafe { way(source, target, length) };
                assert_eq!(into[shift..shift + length], from[..length]);
                assert!(into[..shift].iter().chain(&into[shift + length..]).all(|byte| *byte == 0), "{length}");
            }
        }
    }
}
