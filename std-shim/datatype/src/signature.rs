//! Type signatures: the sequence of basic types that a datatype transfers, as a hash.

use crate::basic::Basic;

/// The base of the polynomial: odd, so that powers never vanish.
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

/// The number of basic elements and a hash of their types in order: equal for equal sequences, however they are
/// described. The hash is a polynomial modulo 2⁶⁴ (Karp and Rabin 1987), so that a loop takes logarithmic time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Signature {
    /// Number of basic elements.
    pub elements: u64,
    /// The hash of their types.
    pub hash: u64,
}

impl Signature {
    pub(crate) fn basic(basic: Basic) -> Self {
        let word = u64::from(basic.code) << 32 | u64::from(basic.bytes) << 1 | 1;
        // The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
        let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self { elements: 1, hash: word ^ word >> 31 }
    }

    /// This sequence followed by another one.
    pub(crate) fn then(self, next: Self) -> Self {
        let shifted = self.hash.wrapping_mul(power(BASE, next.elements));
        Self { elements: self.elements.wrapping_add(next.elements), hash: shifted.wrapping_add(next.hash) }
    }

    /// This sequence `count` times.
    pub(crate) fn repeated(self, count: usize) -> Self {
        let (mut left, mut doubled, mut all) = (count, self, Self::default());
        while left > 0 {
            if left & 1 == 1 {
                all = doubled.then(all);
            }
            doubled = doubled.then(doubled);
            left >>= 1;
        }
        all
    }
}

fn power(mut base: u64, mut exponent: u64) -> u64 {
    let mut all: u64 = 1;
    while exponent > 0 {
        if exponent & 1 == 1 {
            all = all.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        exponent >>= 1;
    }
    all
}
