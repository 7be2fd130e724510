//! Digits of ranks and blocks in a base, as used by k-nomial trees, exchanges and Bruck's algorithms.

/// `a / b`, 0 for b = 0.
pub(super) const fn quotient(a: u32, b: u32) -> u32 {
    match a.checked_div(b) {
        Some(q) => q,
        None => 0,
    }
}

/// `a mod b`, 0 for b = 0.
pub(super) const fn remainder(a: u32, b: u32) -> u32 {
    match a.checked_rem(b) {
        Some(r) => r,
        None => 0,
    }
}

/// `a / b` rounded up, 0 for b = 0.
pub(super) const fn quotient_up(a: u32, b: u32) -> u32 {
    let more = if remainder(a, b) == 0 { 0 } else { 1 };
    quotient(a, b).wrapping_add(more)
}

/// `a + b` modulo `size`; both are below it.
pub(super) const fn ahead(a: u32, b: u32, size: u32) -> u32 {
    remainder(a.wrapping_add(b), size)
}

/// `a − b` modulo `size`; both are at most `size`.
pub(super) const fn behind(a: u32, b: u32, size: u32) -> u32 {
    remainder(a.wrapping_add(size).wrapping_sub(b), size)
}

/// A base of at least two.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Radix(u32);

impl Radix {
    /// Base `base`, at least two.
    pub(super) const fn new(base: u32) -> Self {
        Self(if base < 2 { 2 } else { base })
    }

    pub(super) const fn base(self) -> u32 {
        self.0
    }

    /// The nonzero values of a digit: ports that an exchange or a tree level can use.
    pub(super) const fn others(self) -> u32 {
        self.0.wrapping_sub(1)
    }

    /// `base^j`, saturating.
    pub(super) const fn power(self, j: u32) -> u32 {
        self.0.saturating_pow(j)
    }

    /// Digit `j` of `x`.
    pub(super) const fn digit(self, x: u32, j: u32) -> u32 {
        remainder(quotient(x, self.power(j)), self.0)
    }

    /// `x` with digit `j` replaced by `digit`.
    pub(super) const fn with_digit(self, x: u32, j: u32, digit: u32) -> u32 {
        let weight = self.power(j);
        x.wrapping_sub(self.digit(x, j).wrapping_mul(weight)).wrapping_add(digit.wrapping_mul(weight))
    }

    /// The largest j with `base^j ≤ x`; 0 for x = 0.
    pub(super) const fn log(self, x: u32) -> u32 {
        match x.checked_ilog(self.0) {
            Some(j) => j,
            None => 0,
        }
    }

    /// The least j with `base^j ≥ x`.
    pub(super) const fn log_up(self, x: u32) -> u32 {
        let j = self.log(x);
        if self.power(j) < x { j.wrapping_add(1) } else { j }
    }

    /// The index of the lowest nonzero digit of `x`; `x` is not 0.
    pub(super) const fn lowest(self, x: u32) -> u32 {
        let mut left = x;
        let mut j = 0_u32;
        while left != 0 && remainder(left, self.0) == 0 {
            left = quotient(left, self.0);
            j = j.wrapping_add(1);
        }
        j
    }
}
