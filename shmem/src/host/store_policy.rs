//! How long copies into shared memory are stored: through the caches, or past them.
//!
//! A line that the reader's caches still hold is taken from there before it is written. Between cores with a last cache in common that
//! is quick. Between others, of two dies or sockets, it takes the line's whole way there and back, a few lines at a time; stores that
//! go past the caches do not wait for it, but the reader finds in memory what they stored. So copies are timed, and where they take so
//! long that lines come from far, both ways are tried and the better one is taken, until the other one is.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Instant;

use crate::segment::{Cells, LINE};

/// Bytes from which a copy is timed, and may go past the caches.
const LONG: usize = 4096;
/// Copies of which one is timed, and of which one goes the other way if lines come from far.
const TIMED: u32 = 4;
const TRIED: u32 = 64;
/// Copies before the first that is timed: pages are made for these.
const FIRST: u32 = 32;
/// Picoseconds per byte from which lines come from far: with a last cache in common a copy takes 50 to 120, otherwise 400 to 600.
const FAR: u32 = 200;
/// How many times as long through the caches is worse: what is read from memory afterwards takes its time, too.
const WORSE: u32 = 2;

/// Whether this processor can store past its caches.
const STREAMS: bool = cfg!(all(target_arch = "x86_64", target_feature = "sse2", not(miri)));

/// Which way the copies into a part of shared memory go.
#[derive(Debug, Default)]
pub struct Storing {
    copies: AtomicU32,
    /// Picoseconds per byte through the caches, and past them; 0: not known.
    cached: AtomicU32,
    streamed: AtomicU32,
}

impl Storing {
    /// Nothing is known yet.
    pub const fn new() -> Self {
        Self { copies: AtomicU32::new(0), cached: AtomicU32::new(0), streamed: AtomicU32::new(0) }
    }

    /// Copies `bytes` bytes into shared memory. What is stored afterwards is not seen before them.
    ///
    /// # Safety
    /// `from` is valid for reads and `into` for writes of so many bytes, and they are disjoint.
    #[inline]
    pub unsafe fn copy(&self, from: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
        if STREAMS && bytes >= LONG {
            // SAFETY: as the caller says.
            unsafe { self.copy_long(from, into, bytes) };
        } else {
            // SAFETY: as above.
            unsafe { into.copy_from_nonoverlapping(from, bytes) };
        }
    }

    /// Writes these bytes at the beginning of a piece of the segment, as [`Cells::write`] does.
    #[inline]
    pub fn write(&self, from: &[u8], to: Cells<'_>) -> Option<()> {
        if from.len() > to.bytes() {
            return None;
        }
        // SAFETY: the piece is valid for so many bytes; nobody has a reference to shared bytes, so `from` lies elsewhere.
        unsafe { self.copy(NonNull::from(from).cast(), to.start(), from.len()) };
        Some(())
    }

    /// # Safety
    /// As of [`copy`](Self::copy).
    unsafe fn copy_long(&self, from: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
        let (streams, is_timed) = self.next();
        let start = is_timed.then(Instant::now);
        if streams {
            // SAFETY: as the caller says.
            unsafe { stream(from, into, bytes) };
        } else {
            // SAFETY: as above.
            unsafe { into.copy_from_nonoverlapping(from, bytes) };
        }
        if let Some(start) = start {
            self.note(streams, bytes, start.elapsed().as_nanos());
        }
    }

    /// Whether the next copy goes past the caches, and whether it is timed.
    fn next(&self) -> (bool, bool) {
        let count = self.copies.load(Relaxed).wrapping_add(1);
        self.copies.store(count, Relaxed);
        let [cached, streamed] = [&self.cached, &self.streamed].map(|way| way.load(Relaxed));
        let is_far = cached > FAR;
        let is_worse = is_far && streamed > 0 && cached / WORSE > streamed;
        let is_timed = count.is_multiple_of(TIMED) && count > FIRST;
        let tries = is_far && is_timed && (streamed == 0 || count.is_multiple_of(TRIED));
        (is_worse != tries, is_timed)
    }

    /// What a copy took: the least, until others take longer. One that took four times as long was interrupted.
    fn note(&self, streams: bool, bytes: usize, ns: u128) {
        let way = if streams { &self.streamed } else { &self.cached };
        let taken = u32::try_from(ns.saturating_mul(1000) / bytes.max(1) as u128).unwrap_or(u32::MAX).max(1);
        let mean = way.load(Relaxed);
        let is_less = mean == 0 || taken < mean;
        way.store(if is_less { taken } else { mean.midpoint(taken.min(mean.saturating_mul(4))) }, Relaxed);
    }
}

/// Copies past the caches, whole lines of `into` at a time, the ends through them. What is stored afterwards is not seen before.
///
/// # Safety
/// As of [`Storing::copy`].
#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
unsafe fn stream(from: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
    use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    const PART: usize = size_of::<__m128i>();
    let before = into.align_offset(LINE).min(bytes);
    let behind = before + (bytes - before) / LINE * LINE;
    let (from, into) = (from.as_ptr(), into.as_ptr());
    for (start, end) in [(0, before), (behind, bytes)] {
        // SAFETY: within both, as the caller says of the whole.
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
    // SAFETY: as the caller says.
    unsafe { into.copy_from_nonoverlapping(from, bytes) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies of 32 KiB where both ways take so long, in picoseconds per byte; how many went past the caches.
    fn copies(storing: &Storing, count: u32, cached: u128, streamed: u128) -> u32 {
        let one = |_| {
            let (streams, is_timed) = storing.next();
            if is_timed {
                let taken = if streams { streamed } else { cached };
                storing.note(streams, 32768, taken * 32768 / 1000);
            }
            u32::from(streams)
        };
        (0..count).map(one).sum()
    }

    #[test]
    fn near_lines_are_never_stored_past_the_caches() {
        let storing = Storing::new();
        assert_eq!(copies(&storing, 10_000, 60, 10), 0);
        assert_eq!(copies(&storing, 10_000, u128::from(FAR), 10), 0);
    }

    #[test]
    fn far_lines_are_soon_stored_past_the_caches_until_they_are_near() {
        let storing = Storing::new();
        assert!(copies(&storing, 100, 500, 100) >= 50);
        let later = copies(&storing, 10_000, 500, 100);
        assert!((9800..10_000).contains(&later), "{later}: the other way is tried now and then");
        assert!(copies(&storing, 1000, 60, 100) <= 2 * TRIED);
        assert_eq!(copies(&storing, 1000, 60, 100), 0);
        assert!(copies(&storing, 100, 500, 100) >= 80, "and far once more");
    }

    #[test]
    fn what_gains_little_is_not_done() {
        let storing = Storing::new();
        assert!(copies(&storing, 10_000, 500, 300) < 200);
    }

    #[test]
    fn the_first_copies_tell_nothing() {
        let storing = Storing::new();
        assert_eq!(copies(&storing, FIRST, 5000, 100), 0);
        assert_eq!(copies(&storing, 1000, 60, 100), 0);
    }

    #[test]
    fn one_interruption_turns_nothing() {
        let storing = Storing::new();
        copies(&storing, 1000, 60, 100);
        storing.note(false, 32768, 4_000_000);
        assert!(copies(&storing, 1000, 60, 100) <= 1);
    }

    #[test]
    fn copies_are_whole_either_way() {
        let storing = Storing::new();
        let from: Vec<u8> = (0..20_000_u32).map(|i| (i % 251) as u8 + 1).collect();
        for (bytes, cached, streams) in
            [(LONG, 60, false), (LONG, 500, STREAMS), (LONG - 1, 500, false), (19_999, 500, STREAMS)]
        {
            storing.copies.store(TRIED, Relaxed);
            storing.cached.store(cached, Relaxed);
            storing.streamed.store(100, Relaxed);
            assert_eq!(STREAMS && bytes >= LONG && storing.next().0, streams);
            let mut into = vec![0_u8; bytes];
            // SAFETY: both vectors are long enough.
            unsafe { storing.copy(NonNull::from(&from[1..]).cast(), NonNull::from(&mut into[..]).cast(), bytes) };
            assert_eq!(into, from[1..=bytes], "{bytes} bytes");
        }
    }

    #[test]
    fn every_byte_is_streamed_and_none_beside() {
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
