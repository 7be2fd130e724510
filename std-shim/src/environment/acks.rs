//! Who acknowledges multicasts to whom: `basic`, `tree:4`, `co-root:2`.

use core::{fmt, str::FromStr};

use unisono_core::multicast::AckMode;

use super::tuning::MULTICAST_MEMBERS_MAX;

/// Who acknowledges the segments of a broadcast by multicast to whom.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum AcksChoice {
    /// All members to the root.
    #[default]
    Basic,
    /// Members to the one above them in a tree of this degree below the root.
    Tree(u8),
    /// Members to the root or to one of this number of co-roots, which repair their losses.
    CoRoot(u8),
}

/// The largest degree or number of co-roots: all members but the root.
const NUMBER_MAX: u8 = MULTICAST_MEMBERS_MAX as u8 - 1;

impl AcksChoice {
    /// The mode of a stream.
    ///
    /// ```
    /// use unisono::environment::AcksChoice;
    /// use unisono_core::multicast::AckMode;
    ///
    /// assert_eq!(AcksChoice::CoRoot(2).mode(), AckMode::CoRoot { count: 2 });
    /// ```
    pub const fn mode(self) -> AckMode {
        match self {
            Self::Basic => AckMode::Basic,
            Self::Tree(degree) => AckMode::Tree { degree: degree as u32 },
            Self::CoRoot(count) => AckMode::CoRoot { count: count as u32 },
        }
    }
}

impl FromStr for AcksChoice {
    type Err = AcksChoiceError;

    fn from_str(text: &str) -> Result<Self, AcksChoiceError> {
        if text == "basic" {
            return Ok(Self::Basic);
        }
        let (mode, number) = text.split_once(':').ok_or(AcksChoiceError)?;
        let number = number.parse().ok().filter(|number| (1..=NUMBER_MAX).contains(number)).ok_or(AcksChoiceError)?;
        match mode {
            "tree" => Ok(Self::Tree(number)),
            "co-root" => Ok(Self::CoRoot(number)),
            _ => Err(AcksChoiceError),
        }
    }
}

impl fmt::Display for AcksChoice {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Basic => to.write_str("basic"),
            Self::Tree(degree) => write!(to, "tree:{degree}"),
            Self::CoRoot(count) => write!(to, "co-root:{count}"),
        }
    }
}

/// The text does not say who acknowledges to whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected basic, tree:DEGREE or co-root:COUNT, with a number from 1 to {NUMBER_MAX}")]
pub struct AcksChoiceError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_printed_as_they_are_parsed() {
        for text in ["basic", "tree:1", "tree:63", "co-root:2"] {
            assert_eq!(text.parse().map(|choice: AcksChoice| choice.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "tree", "tree:0", "tree:64", "co-roots:2", "co-root:", "basic:1"] {
            assert_eq!(text.parse::<AcksChoice>(), Err(AcksChoiceError), "{text}");
        }
    }
}
