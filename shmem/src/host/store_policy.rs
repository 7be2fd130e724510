//! Chooses whether long copies into shared memory use cached or streaming (non-temporal) stores.
//!
//! A line that the reader's caches still hold is fetched from there before it is written. Between cores that share a
//! last-level cache that is quick. Between dies or sockets every line crosses the interconnect and back, a few lines at
//! a time; streaming stores do not wait for that, but the reader then loads from memory. So copies are timed: where
//! they are slow enough for a remote cache, both kinds of store are tried and the faster one is used until the other
//! becomes faster.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Instant;

use crate::segment::{LINE, SharedBytes};

/// Bytes from which a copy is timed and may use streaming stores.
const LONG: usize = 4096;
/// One copy in [`TIMED_EVERY`] is timed; one in [`RETRY_EVERY`] tries the other kind of store if lines come from a
/// remote cache.
const TIMED_EVERY: u32 = 4;
const RETRY_EVERY: u32 = 64;
/// Copies before the first that is timed: these fault pages in.
const WARM_UP: u32 = 32;
/// Picoseconds per byte above which the lines are in a remote cache.
const REMOTE_CACHE_PS_PER_BYTE: u32 = 200;
/// Cached stores must be slower by this factor: reading back from memory costs time, too.
const WORSE_FACTOR: u32 = 2;

/// Whether this processor has streaming stores.
const HAS_STREAMING_STORES: bool = cfg!(all(target_arch = "x86_64", target_feature = "sse2", not(miri)));

/// The policy of copies into one part of shared memory.
#[derive(Debug, Default)]
pub struct StorePolicy {
    copies: AtomicU32,
    /// Picoseconds per byte of cached and of streaming stores; 0: unknown.
    cached: AtomicU32,
    streamed: AtomicU32,
}

impl StorePolicy {
    /// A policy without measurements.
    pub const fn new() -> Self {
        Self { copies: AtomicU32::new(0), cached: AtomicU32::new(0), streamed: AtomicU32::new(0) }
    }

    /// Copies `bytes` bytes into shared memory. Later stores become visible only after these bytes.
    ///
    /// # Safety
    /// `from` is valid for reads and `into` for writes of `bytes` bytes, and they are disjoint.
    #[inline]
    pub unsafe fn copy(&self, from: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
        if HAS_STREAMING_STORES && bytes >= LONG {
            // SAFETY: the caller promises that `bytes` bytes are readable at `from` and writable at `into`, and that
            // they are disjoint.
            unsafe { self.copy_long(from, into, bytes) };
        } else {
            // SAFETY: the caller promises that `bytes` bytes are readable at `from` and writable at `into`, and that
            // they are disjoint.
            unsafe { into.copy_from_nonoverlapping(from, bytes) };
        }
    }

    /// Writes these bytes at the beginning of a piece of the segment, as [`SharedBytes::write`] does.
    #[inline]
    pub fn write(&self, from: &[u8], to: SharedBytes<'_>) -> Option<()> {
        if from.len() > to.bytes() {
            return None;
        }
        // SAFETY: the piece is valid for `from.len()` bytes, as checked; the creator of the segment promised that
        // nobody has a reference to them, so `from` lies elsewhere, and that it is this side's turn.
        unsafe { self.copy(NonNull::from(from).cast(), to.start(), from.len()) };
        Some(())
    }

    /// # Safety
    /// As of [`copy`](Self::copy).
    unsafe fn copy_long(&self, from: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
        let (streams, is_timed) = self.next_copy();
        let start = is_timed.then(Instant::now);
        if streams {
            // SAFETY: the caller promises that `bytes` bytes are readable at `from` and writable at `into`, and that
            // they are disjoint.
            unsafe { stream(from, into, bytes) };
        } else {
            // SAFETY: the caller promises that `bytes` bytes are readable at `from` and writable at `into`, and that
            // they are disjoint.
            unsafe { into.copy_from_nonoverlapping(from, bytes) };
        }
        if let Some(start) = start {
            self.record(streams, bytes, start.elapsed().as_nanos());
        }
    }

    /// Whether the next copy uses streaming stores, and whether it is timed.
    fn next_copy(&self) -> (bool, bool) {
        let count = self.copies.load(Relaxed).wrapping_add(1);
        self.copies.store(count, Relaxed);
        let [cached, streamed] = [&self.cached, &self.streamed].map(|way| way.load(Relaxed));
        let is_far = cached > REMOTE_CACHE_PS_PER_BYTE;
        let is_worse = is_far && streamed > 0 && cached / WORSE_FACTOR > streamed;
        let is_timed = count.is_multiple_of(TIMED_EVERY) && count > WARM_UP;
        let tries = is_far && is_timed && (streamed == 0 || count.is_multiple_of(RETRY_EVERY));
        (is_worse != tries, is_timed)
    }

    /// Records the time of a copy: the least, until others take longer. A time above four times the mean counts as an
    /// interruption and is capped.
    fn record(&self, streams: bool, bytes: usize, ns: u128) {
        let way = if streams { &self.streamed } else { &self.cached };
        let taken = u32::try_from(ns.saturating_mul(1000) / bytes.max(1) as u128).unwrap_or(u32::MAX).max(1);
        let mean = way.load(Relaxed);
        let is_less = mean == 0 || taken < mean;
        way.store(if is_less { taken } else { mean.midpoint(taken.min(mean.saturating_mul(4))) }, Relaxed);
    }
}

/// Copies with streaming stores, whole lines of `into` at a time, the ends with cached ones. Later stores become
/// visible only after these bytes.
///
/// # Safety
/// As of [`StorePolicy::copy`].
#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
unsafe fn stream(from: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
    use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    const PART: usize = size_of::<__m128i>();
    let before = into.align_offset(LINE).min(bytes);
    let behind = before + (bytes - before) / LINE * LINE;
    let (from, into) = (from.as_ptr(), into.as_ptr());
    for (start, end) in [(0, before), (behind, bytes)] {
        // SAFETY: `start` to `end` is part of the `bytes` bytes that the caller promises to be readable and writable,
        // and disjoint.
        unsafe { into.wrapping_add(start).copy_from_nonoverlapping(from.wrapping_add(start), end - start) };
    }
    for at in (before..behind).step_by(LINE) {
        let (source, target) = (from.wrapping_add(at).cast::<__m128i>(), into.wrapping_add(at).cast::<__m128i>());
        for part in 0..LINE / PART {
            // SAFETY: within a line that may be read, in any alignment.
            let value = unsafe { _mm_loadu_si128(source.wrapping_add(part)) };
            // SAFETY: within a line that may be written, aligned to its length.
            unsafe { _mm_stream_si128(target.wrapping_add(part), value) };
        }
    }
    // SAFETY: every x86-64 has SSE.
    unsafe { _mm_sfence() };
}

#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2", not(miri))))]
unsafe fn stream(from: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller promises that `bytes` bytes are readable at `from` and writable at `into`, and that they are
    // disjoint.
    unsafe { into.copy_from_nonoverlapping(from, bytes) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies of 32 KiB where cached and streaming stores take these times, in picoseconds per byte; returns how many
    /// were streamed.
    fn copies(storing: &StorePolicy, count: u32, cached: u128, streamed: u128) -> u32 {
        let one = |_| {
            let (streams, is_timed) = storing.next_copy();
            if is_timed {
                let taken = if streams { streamed } else { cached };
                storing.record(streams, 32768, taken * 32768 / 1000);
            }
            u32::from(streams)
        };
        (0..count).map(one).sum()
    }

    #[test]
    fn lines_of_a_shared_cache_are_never_streamed() {
        let storing = StorePolicy::new();
        assert_eq!(copies(&storing, 10_000, 60, 10), 0);
        assert_eq!(copies(&storing, 10_000, u128::from(REMOTE_CACHE_PS_PER_BYTE), 10), 0);
    }

    #[test]
    fn lines_of_a_remote_cache_are_streamed_until_copies_are_fast_again() {
        let storing = StorePolicy::new();
        assert!(copies(&storing, 100, 500, 100) >= 50);
        let later = copies(&storing, 10_000, 500, 100);
        assert!((9800..10_000).contains(&later), "{later}: cached stores are tried now and then");
        assert!(copies(&storing, 1000, 60, 100) <= 2 * RETRY_EVERY);
        assert_eq!(copies(&storing, 1000, 60, 100), 0);
        assert!(copies(&storing, 100, 500, 100) >= 80, "and in a remote cache once more");
    }

    #[test]
    fn streaming_with_little_gain_is_not_chosen() {
        let storing = StorePolicy::new();
        assert!(copies(&storing, 10_000, 500, 300) < 200);
    }

    #[test]
    fn warm_up_copies_are_not_timed() {
        let storing = StorePolicy::new();
        assert_eq!(copies(&storing, WARM_UP, 5000, 100), 0);
        assert_eq!(copies(&storing, 1000, 60, 100), 0);
    }

    #[test]
    fn one_interrupted_copy_changes_nothing() {
        let storing = StorePolicy::new();
        copies(&storing, 1000, 60, 100);
        storing.record(false, 32768, 4_000_000);
        assert!(copies(&storing, 1000, 60, 100) <= 1);
    }

    #[test]
    fn copies_are_whole_either_way() {
        let storing = StorePolicy::new();
        let from: Vec<u8> = (0..20_000_u32).map(|i| (i % 251) as u8 + 1).collect();
        for (bytes, cached, streams) in [
            (LONG, 60, false),
            (LONG, 500, HAS_STREAMING_STORES),
            (LONG - 1, 500, false),
            (19_999, 500, HAS_STREAMING_STORES),
        ] {
            storing.copies.store(RETRY_EVERY, Relaxed);
            storing.cached.store(cached, Relaxed);
            storing.streamed.store(100, Relaxed);
            assert_eq!(HAS_STREAMING_STORES && bytes >= LONG && storing.next_copy().0, streams);
            let mut into = vec![0_u8; bytes];
            // SAFETY: both vectors are long enough.
            unsafe { storing.copy(NonNull::from(&from[1..]).cast(), NonNull::from(&mut into[..]).cast(), bytes) };
            assert_eq!(into, from[1..=bytes], "{bytes} bytes");
        }
    }

    #[test]
    fn every_byte_is_streamed_and_no_other() {
        let from: Vec<u8> = (0..20_000_u32).map(|i| (i % 251) as u8 + 1).collect();
        for (bytes, shift, start) in
            [(0, 0, 0), (1, 3, 1), (63, 1, 0), (64, 0, 5), (4096, 0, 0), (4097, 17, 3), (19_000, 63, 7)]
        {
            let mut into = vec![0_u8; bytes + 128];
            let (source, target) = (NonNull::from(&from[start..]).cast(), NonNull::from(&mut into[shift..]).cast());
            // SAFETY: both vectors are long enough.
            unsafe { stream(source, target, bytes) };
            assert_eq!(into[shift..shift + bytes], from[start..start + bytes], "{bytes} bytes");
            assert!(into[..shift].iter().chain(&into[shift + bytes..]).all(|byte| *byte == 0), "{bytes} bytes");
        }
    }
}
