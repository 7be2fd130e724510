//! Dependency masks over the steps before a step: bit b stands for step i − 1 − b.

/// The lowest `n` bits; all bits for 64 and more.
const fn ones(n: u32) -> u64 {
    match 1_u64.checked_shl(n) {
        Some(bit) => bit.wrapping_sub(1),
        None => u64::MAX,
    }
}

/// Step `i` depends on steps `from..to`, `to ≤ i`. Steps older than 64 need no bit.
pub(super) const fn steps(i: u32, from: u32, to: u32) -> u64 {
    if from < to { ones(i.wrapping_sub(from)) & !ones(i.wrapping_sub(to)) } else { 0 }
}

/// Step `i` depends on step `one`, `one < i`.
pub(super) const fn step(i: u32, one: u32) -> u64 {
    steps(i, one, one.wrapping_add(1))
}

/// Step `i` depends on the first `part` of every `period` steps, from step `from` on, before `to ≤ i`.
pub(super) fn every(i: u32, from: u32, part: u32, period: u32, to: u32) -> u64 {
    if period == 0 {
        return 0;
    }
    let mut mask = 0;
    let mut at = from;
    while at < to {
        let end = at.wrapping_add(part);
        mask |= steps(i, at, if end < to { end } else { to });
        at = at.wrapping_add(period);
    }
    mask
}
