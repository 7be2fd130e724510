//! Atomic operations on one word of 32 or 64 bits, as pure functions of the old value.

/// The width of the word.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Width {
    /// 4 bytes.
    Bits32,
    /// 8 bytes.
    Bits64,
}

impl Width {
    /// Bytes of the word, which is aligned to them.
    pub const fn bytes(self) -> u8 {
        match self {
            Self::Bits32 => 4,
            Self::Bits64 => 8,
        }
    }

    /// The bits of a word of this width.
    const fn mask(self) -> u64 {
        match self {
            Self::Bits32 => 0xffff_ffff,
            Self::Bits64 => u64::MAX,
        }
    }
}

/// What is done to the word; each returns the old value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AtomicKind {
    /// Adds, modulo the width. `boundaries`: the highest bits of independent fields, out of which nothing is carried.
    FetchAdd {
        /// The summand.
        add: u64,
        /// 0: one field.
        boundaries: u64,
    },
    /// Stores `swap` if the word equals `compare`.
    CompareSwap {
        /// The expected value.
        compare: u64,
        /// The new value.
        swap: u64,
    },
    /// Stores the bits of `swap` that `mask` selects.
    Swap {
        /// The new value.
        swap: u64,
        /// `u64::MAX`: all bits.
        mask: u64,
    },
    /// Stores the bits of `swap` that `swap_mask` selects if those that `compare_mask` selects equal `compare`.
    MaskedCompareSwap {
        /// The expected value.
        compare: u64,
        /// The new value.
        swap: u64,
        /// Bits that are compared.
        compare_mask: u64,
        /// Bits that are stored.
        swap_mask: u64,
    },
}

/// An atomic operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AtomicOperation {
    /// The width of its word.
    pub width: Width,
    /// What is done.
    pub kind: AtomicKind,
}

impl AtomicOperation {
    /// The new value of a word with the old value `old`; both zero-extended.
    pub const fn apply(self, old: u64) -> u64 {
        let new = match self.kind {
            AtomicKind::FetchAdd { add, boundaries } => add_fields(old, add, boundaries),
            AtomicKind::CompareSwap { compare, swap } => {
                if (old ^ compare) & self.width.mask() == 0 {
                    swap
                } else {
                    old
                }
            }
            AtomicKind::Swap { swap, mask } => old & !mask | swap & mask,
            AtomicKind::MaskedCompareSwap { compare, swap, compare_mask, swap_mask } => {
                if (old ^ compare) & compare_mask & self.width.mask() == 0 {
                    old & !swap_mask | swap & swap_mask
                } else {
                    old
                }
            }
        };
        new & self.width.mask()
    }
}

/// Adds field by field: the highest bit of each field adds without its carry.
const fn add_fields(old: u64, add: u64, boundaries: u64) -> u64 {
    let low = (old & !boundaries).wrapping_add(add & !boundaries);
    if boundaries == 0 { old.wrapping_add(add) } else { low ^ (old ^ add) & boundaries }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn apply(width: Width, kind: AtomicKind, old: u64) -> u64 {
        AtomicOperation { width, kind }.apply(old)
    }

    #[test]
    fn words_of_32_bits_wrap_and_compare_alone() {
        let add = AtomicKind::FetchAdd { add: 1, boundaries: 0 };
        assert_eq!(apply(Width::Bits32, add, 0xffff_ffff), 0);
        assert_eq!(apply(Width::Bits64, add, 0xffff_ffff), 0x1_0000_0000);
        let swap = AtomicKind::CompareSwap { compare: 0x5_0000_0001, swap: 9 };
        assert_eq!(apply(Width::Bits32, swap, 1), 9);
        assert_eq!(apply(Width::Bits64, swap, 1), 1);
    }

    proptest! {
        /// Two fields of 32 bits in a word of 64 are two words of 32.
        #[test]
        fn fields_add_independently(old: u64, add: u64) {
            let kind = AtomicKind::FetchAdd { add, boundaries: 1 << 63 | 1 << 31 };
            let half = |shift: u32| ((old >> shift) as u32).wrapping_add((add >> shift) as u32);
            prop_assert_eq!(apply(Width::Bits64, kind, old), u64::from(half(32)) << 32 | u64::from(half(0)));
        }

        #[test]
        fn full_masks_equal_the_plain_forms(old: u64, compare: u64, swap: u64, equal: bool) {
            let compare = if equal { old } else { compare };
            let plain = apply(Width::Bits64, AtomicKind::CompareSwap { compare, swap }, old);
            let kind =
                AtomicKind::MaskedCompareSwap { compare, swap, compare_mask: u64::MAX, swap_mask: u64::MAX };
            prop_assert_eq!(apply(Width::Bits64, kind, old), plain);
            prop_assert_eq!(apply(Width::Bits64, AtomicKind::Swap { swap, mask: u64::MAX }, old), swap);
        }
    }
}
