//! Value-index pairs (MPI's MINLOC and MAXLOC).

/// A value and its index, without padding.
#[derive(Clone, Copy)]
#[repr(C, packed)]
pub(super) struct ValueIndexPair<T: Copy> {
    value: T,
    index: u64,
}

impl<T: Copy + PartialEq> ValueIndexPair<T> {
    /// The pair whose value comes first; of equal values that of the least index; with a NaN the right one (`other`),
    /// as with all minima and maxima here: MPI leaves that open.
    #[inline(always)]
    pub(super) fn or(self, other: Self, comes_first: impl Fn(T, T) -> bool) -> Self {
        let (left, right) = (self.value, other.value);
        let is_first = comes_first(left, right) || left == right && self.index <= other.index;
        if is_first { self } else { other }
    }
}
