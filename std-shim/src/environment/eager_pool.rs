//! The size of the pool for unexpected eager messages: `64K`, `1M`.

use core::{fmt, str::FromStr};

/// Size in bytes of the pool for unexpected messages that are too long to be stored with their headers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EagerPool(u32);

impl EagerPool {
    /// The largest: 1 GiB.
    pub const MAX: u32 = 1 << 30;

    /// `None` beyond [`MAX`](Self::MAX).
    ///
    /// ```
    /// use unisono::environment::EagerPool;
    ///
    /// assert!(EagerPool::new(1 << 16).is_some());
    /// ```
    pub const fn new(bytes: u32) -> Option<Self> {
        if bytes <= Self::MAX { Some(Self(bytes)) } else { None }
    }

    /// In bytes.
    ///
    /// ```
    /// use unisono::environment::EagerPool;
    ///
    /// assert_eq!("64K".parse().map(EagerPool::bytes), Ok(1 << 16));
    /// ```
    pub const fn bytes(self) -> usize {
        self.0 as usize
    }
}

impl FromStr for EagerPool {
    type Err = EagerPoolError;

    fn from_str(text: &str) -> Result<Self, EagerPoolError> {
        let units = [("K", 10), ("M", 20), ("G", 30)];
        let unit = units.into_iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)));
        let (digits, shift) = unit.unwrap_or((text, 0));
        let number: Option<u64> = digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()));
        let bytes = number.and_then(|number| number.checked_mul(1 << shift));
        bytes.and_then(|bytes| u32::try_from(bytes).ok()).and_then(Self::new).ok_or(EagerPoolError)
    }
}

impl fmt::Display for EagerPool {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(30, "G"), (20, "M"), (10, "K")];
        match units.into_iter().find(|(shift, _)| self.0 != 0 && self.0.trailing_zeros() >= *shift) {
            Some((shift, unit)) => write!(to, "{}{unit}", self.0 >> shift),
            None => self.0.fmt(to),
        }
    }
}

/// The text is not a pool size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected a number of bytes up to 1G, such as 64K")]
pub struct EagerPoolError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two() {
        for (text, bytes) in [("0", 0), ("100", 100), ("64K", 65536), ("1M", 1 << 20), ("1G", 1 << 30)] {
            assert_eq!(text.parse(), Ok(EagerPool(bytes)));
            assert_eq!(EagerPool(bytes).to_string(), text);
        }
        for text in ["", "K", "-1", "+1", "64k", "2G", "1T", "1.5M", "99999999999999999999K"] {
            assert_eq!(text.parse::<EagerPool>(), Err(EagerPoolError), "{text}");
        }
    }
}
