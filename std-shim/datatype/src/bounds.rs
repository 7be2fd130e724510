//! Lower and upper bound of a datatype, and the rules by which those of its parts combine (MPI 4.1, section 5.1.6).

use crate::error::DatatypeError;
use crate::error::DatatypeError::TooLarge;

/// The bounds of a datatype in bytes. A marked bound was set by a resize: where a part has one, only marked ones count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Bounds {
    pub(crate) lower: isize,
    pub(crate) upper: isize,
    pub(crate) is_lower_marked: bool,
    pub(crate) is_upper_marked: bool,
}

impl Bounds {
    pub(crate) const fn extent(self) -> isize {
        self.upper.wrapping_sub(self.lower)
    }

    /// The bounds of both.
    pub(crate) fn with(self, other: Self) -> Self {
        let (lower, is_lower_marked) = match (self.is_lower_marked, other.is_lower_marked) {
            (true, false) => (self.lower, true),
            (false, true) => (other.lower, true),
            (marked, _) => (self.lower.min(other.lower), marked),
        };
        let (upper, is_upper_marked) = match (self.is_upper_marked, other.is_upper_marked) {
            (true, false) => (self.upper, true),
            (false, true) => (other.upper, true),
            (marked, _) => (self.upper.max(other.upper), marked),
        };
        Self { lower, upper, is_lower_marked, is_upper_marked }
    }

    /// These bounds, `offset` bytes further.
    pub(crate) fn shifted(self, offset: isize) -> Result<Self, DatatypeError> {
        let lower = self.lower.checked_add(offset).ok_or(TooLarge)?;
        let upper = self.upper.checked_add(offset).ok_or(TooLarge)?;
        upper.checked_sub(lower).ok_or(TooLarge)?;
        Ok(Self { lower, upper, ..self })
    }

    /// The bounds of `count` of these, `stride` bytes apart.
    pub(crate) fn repeated(self, count: usize, stride: isize) -> Result<Self, DatatypeError> {
        let Some(last) = count.checked_sub(1) else { return Ok(Self::default()) };
        let last = isize::try_from(last).ok().and_then(|last| last.checked_mul(stride)).ok_or(TooLarge)?;
        let all = self.with(self.shifted(last)?);
        all.upper.checked_sub(all.lower).ok_or(TooLarge)?;
        Ok(all)
    }

    /// The upper bound, moved up until the extent is a multiple of the alignment.
    pub(crate) fn padded_upper(self, alignment: usize) -> Result<isize, DatatypeError> {
        let (extent, alignment) = (self.extent(), isize::try_from(alignment.max(1)).map_err(|_| TooLarge)?);
        let rest = if self.is_upper_marked || extent < 0 { 0 } else { extent % alignment };
        let pad = if rest == 0 { 0 } else { alignment - rest };
        let upper = self.upper.checked_add(pad).ok_or(TooLarge)?;
        upper.checked_sub(self.lower).ok_or(TooLarge)?;
        Ok(upper)
    }
}
