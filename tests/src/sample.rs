//! A fixed share of a list, so that a short run takes a part of it and several runs take all of it.

use core::fmt;
use core::str::FromStr;

/// Part `part` of `of` equal parts of a list, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    part: usize,
    of: usize,
}

impl Sample {
    /// The whole list.
    pub const ALL: Self = Self { part: 0, of: 1 };

    /// Whether the entry of this index belongs to the part.
    pub const fn takes(self, index: usize) -> bool {
        index % self.of == self.part
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}/{}", self.part, self.of)
    }
}

impl FromStr for Sample {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(part, of)| Some((part.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((part, of)) if part < of => Ok(Self { part, of }),
            _ => Err(format!("{text:?} is no sample: expected K/N with 0 <= K < N, such as 1/4")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Sample;

    #[test]
    fn parts_cover_a_list_once() {
        let parts = ["0/4", "1/4", "2/4", "3/4"].map(|text| text.parse::<Sample>().expect("a sample"));
        for index in 0..40 {
            assert_eq!(parts.iter().filter(|part| part.takes(index)).count(), 1);
            assert!(Sample::ALL.takes(index));
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "1", "4/4", "1/0", "-1/4", "1/4/2"] {
            assert!(text.parse::<Sample>().is_err(), "{text}");
        }
    }
}
