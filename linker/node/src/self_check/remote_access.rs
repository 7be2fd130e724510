//! Memory of a node that processes access, and what they leave there: a counter that all increase, and a slot of each
//! rank.

use core::ops::Range;

/// Bytes of the memory.
pub const MEMORY: usize = 1 << 17;
/// Where the counter is.
pub const COUNTER: Range<usize> = 0..8;
/// Bytes of a slot: more than a message over a ring has.
pub const SLOT: usize = 30_000;
/// Tag of all messages.
pub const TAG: u32 = 5;

/// Where a rank writes.
pub const fn slot(rank: u32) -> Range<usize> {
    let start = 100_usize.saturating_add((rank as usize).saturating_mul(SLOT));
    start..start.saturating_add(SLOT)
}

/// What a rank writes in a round.
pub fn pattern(rank: u32, round: u32) -> impl Iterator<Item = u8> {
    (0..SLOT).map(move |i| (i as u32 ^ round.wrapping_mul(7) ^ rank.wrapping_add(1)) as u8)
}
