//! A test pattern: each byte depends on its offset, so that a lost, duplicated, swapped or shifted piece is detected.

use core::sync::atomic::Ordering::Relaxed;

use crate::regions::Bytes;

/// The byte at `offset`: Knuth's multiplicative hash of the offset.
const fn byte(offset: u32, seed: u32) -> u8 {
    let [_, _, _, high] = offset.wrapping_add(seed).wrapping_mul(2_654_435_769).to_le_bytes();
    high
}

/// Fills memory. Another seed gives other bytes.
pub fn fill(memory: Bytes<'_>, seed: u32) {
    for (offset, to) in (0_u32..).zip(memory) {
        to.store(byte(offset, seed), Relaxed);
    }
}

/// How many bytes are not what [`fill`] wrote.
pub fn wrong(memory: Bytes<'_>, seed: u32) -> u32 {
    (0_u32..).zip(memory).fold(0, |wrong: u32, (offset, found)| {
        wrong.saturating_add(u32::from(found.load(Relaxed) != byte(offset, seed)))
    })
}
