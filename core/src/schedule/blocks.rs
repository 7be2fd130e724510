//! The set of blocks that one operation moves.

/// `count` runs of `run` blocks, `stride` apart, numbers modulo `modulus`; the last run has `last` blocks.
///
/// A Bruck digit set in base k + 1, a halving range and a ring's block are each one value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Blocks {
    /// The first block; less than `modulus`.
    pub first: u32,
    /// Blocks in every run but the last.
    pub run: u32,
    /// Distance from one run's first block to the next one's; at most `modulus`.
    pub stride: u32,
    /// Number of runs.
    pub count: u32,
    /// Blocks in the last run.
    pub last: u32,
    /// At least every run's length; [`Blocks::UNWRAPPED`] if nothing wraps.
    pub modulus: u32,
}

impl Blocks {
    /// The modulus of a set that does not wrap.
    pub const UNWRAPPED: u32 = u32::MAX;

    /// No block: a signal.
    pub const NONE: Self = Self { first: 0, run: 0, stride: 0, count: 0, last: 0, modulus: Self::UNWRAPPED };

    /// One block.
    pub const fn one(block: u32) -> Self {
        Self::range(block, 1)
    }

    /// `run` blocks from `first` on.
    pub const fn range(first: u32, run: u32) -> Self {
        Self::wrapped(first, run, Self::UNWRAPPED)
    }

    /// `run ≤ modulus` blocks from `first` on, modulo `modulus`.
    pub const fn wrapped(first: u32, run: u32, modulus: u32) -> Self {
        Self { first, run, stride: 0, count: 1, last: run, modulus }
    }

    /// The same blocks shifted by `by`; for sets that do not wrap.
    pub const fn shifted(self, by: u32) -> Self {
        Self { first: self.first.wrapping_add(by), ..self }
    }

    /// The number of blocks.
    pub const fn len(&self) -> u32 {
        match self.count.checked_sub(1) {
            Some(full) => full.wrapping_mul(self.run).wrapping_add(self.last),
            None => 0,
        }
    }

    /// Whether it has no block.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Contiguous parts (first block, blocks) in order, none empty; a run that wraps is two.
    pub const fn runs(&self) -> Runs {
        Runs { left: *self, wrapped: 0 }
    }

    /// The blocks in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<> {
        self.runs().flat_map(|(first, blocks)| (0..blocks).map(move |b| first.wrapping_add(b)))
    }
}

/// The contiguous parts of [`Blocks`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Runs {
    left: Blocks,
    /// The wrapped rest of the previous run, from block 0 on.
    wrapped: u32,
}

impl Iterator for Runs {
    type Item = (u32, u32);

    fn next(&mut self) -> Option<(u32, u32)> {
        if self.wrapped != 0 {
            return Some((0, core::mem::take(&mut self.wrapped)));
        }
        while self.left.count != 0 {
            let Blocks { first, run, stride, count, last, modulus } = self.left;
            let blocks = if count == 1 { last } else { run };
            let before = blocks.min(modulus.saturating_sub(first));
            self.left.first = wrap(first, stride, modulus);
            self.left.count = count.wrapping_sub(1);
            self.wrapped = blocks.wrapping_sub(before);
            if before != 0 {
                return Some((first, before));
            }
        }
        None
    }
}

/// `a + b` modulo `modulus`, without the sum's overflow; `a < modulus`, `b ≤ modulus`.
const fn wrap(a: u32, b: u32, modulus: u32) -> u32 {
    let left = modulus.wrapping_sub(a);
    if b >= left { b.wrapping_sub(left) } else { a.wrapping_add(b) }
}

#[cfg(test)]
mod tests {
    extern crate alloc;
    use super::Blocks;
    use alloc::vec::Vec;

    #[test]
    fn blocks_of_a_schedule_wrap_and_shorten_their_last_run() {
        let digits = Blocks { first: 1, run: 1, stride: 3, count: 3, last: 1, modulus: Blocks::UNWRAPPED };
        assert_eq!(digits.iter().collect::<Vec<_>>(), [1, 4, 7]);
        let reversed = Blocks { first: 2, run: 1, stride: 4, count: 5, last: 1, modulus: 5 };
        assert_eq!(reversed.iter().collect::<Vec<_>>(), [2, 1, 0, 4, 3]);
        assert_eq!(Blocks::wrapped(3, 4, 5).runs().collect::<Vec<_>>(), [(3, 2), (0, 2)]);
        let short = Blocks { first: 2, run: 2, stride: 4, count: 2, last: 1, modulus: Blocks::UNWRAPPED };
        assert_eq!(short.iter().collect::<Vec<_>>(), [2, 3, 6]);
        assert_eq!((short.len(), Blocks::NONE.len()), (3, 0));
        assert!(Blocks::NONE.is_empty() && Blocks::NONE.iter().next().is_none());
    }
}
