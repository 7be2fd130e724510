//! A number of bytes, as an option.

use core::{fmt, str::FromStr};

/// A number of bytes. Written as a number, or with K, M, G or T for powers of 1024: `64K`, `1G`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Bytes(
    /// The number.
    pub u64,
);

impl FromStr for Bytes {
    type Err = BytesError;

    fn from_str(text: &str) -> Result<Self, BytesError> {
        let (digits, shift) = match text.as_bytes().last() {
            Some(b'K') => (text.strip_suffix('K'), 10),
            Some(b'M') => (text.strip_suffix('M'), 20),
            Some(b'G') => (text.strip_suffix('G'), 30),
            Some(b'T') => (text.strip_suffix('T'), 40),
            _ => (Some(text), 0),
        };
        let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        let number: u64 = digits.and_then(|digits| digits.parse().ok()).ok_or(BytesError)?;
        number.checked_mul(1 << shift).map(Self).ok_or(BytesError)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
        match units.into_iter().find(|(shift, _)| self.0 != 0 && self.0.trailing_zeros() >= *shift) {
            Some((shift, unit)) => write!(to, "{}{unit}", self.0 >> shift),
            None => self.0.fmt(to),
        }
    }
}

/// The text is not a number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected a number of bytes, such as 8, 64K or 1G")]
pub struct BytesError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two() {
        for (text, bytes) in [("0", 0), ("8", 8), ("64K", 65536), ("1G", 1 << 30), ("3M", 3 << 20), ("1025", 1025)] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)));
            assert_eq!(Bytes(bytes).to_string(), text);
        }
        for text in ["", "K", "-1", "+1", "1k", "1.5G", "64 K", "16777216T", "18446744073709551616"] {
            assert_eq!(text.parse::<Bytes>(), Err(BytesError), "{text}");
        }
    }
}
