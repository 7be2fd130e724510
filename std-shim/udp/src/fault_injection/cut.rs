//! The cut of a rail: from some moment on, all frames that leave over it are lost, as if its cable were pulled.

use core::{error::Error, fmt, str::FromStr, time::Duration};

use unisono_core::ids::Rail;
use unisono_core::window::rails::MAX_RAILS;

/// A rail that loses all frames for a while. Written `1@300` (rail 1, from 300 ms on) or `1@300+500` (for 500 ms).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RailCut {
    /// The rail.
    pub rail: Rail,
    /// Milliseconds from the opening of the device to the cut.
    pub after_ms: u32,
    /// Milliseconds that it lasts. `None`: for ever.
    pub lasts_ms: Option<u32>,
}

impl RailCut {
    /// Whether the rail is cut this long after the device was opened.
    pub fn is_cut(self, rail: Rail, age: Duration) -> bool {
        let since = age.checked_sub(Duration::from_millis(self.after_ms.into()));
        let lasts = self.lasts_ms.map(|lasts| Duration::from_millis(lasts.into()));
        rail == self.rail && since.is_some_and(|since| lasts.is_none_or(|lasts| since < lasts))
    }
}

impl FromStr for RailCut {
    type Err = RailCutError;

    fn from_str(text: &str) -> Result<Self, RailCutError> {
        let number = |text: &str| {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u32>().ok().filter(|_| is_plain).ok_or(RailCutError)
        };
        let (rail, times) = text.split_once('@').ok_or(RailCutError)?;
        let (after, lasts) = times.split_once('+').map_or((times, None), |(after, lasts)| (after, Some(lasts)));
        let rail = u8::try_from(number(rail)?).ok().filter(|rail| *rail < MAX_RAILS).map(Rail).ok_or(RailCutError)?;
        Ok(Self { rail, after_ms: number(after)?, lasts_ms: lasts.map(number).transpose()? })
    }
}

impl fmt::Display for RailCut {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}@{}", self.rail.0, self.after_ms)?;
        self.lasts_ms.map_or(Ok(()), |lasts| write!(to, "+{lasts}"))
    }
}

/// The text is not a cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RailCutError;

impl fmt::Display for RailCutError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            to,
            "expected a rail below {MAX_RAILS}, and milliseconds until its cut and of the cut, such as 1@300+500"
        )
    }
}

impl Error for RailCutError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_printed_as_they_are_parsed() {
        for text in ["0@0", "1@300", "3@1+4294967295"] {
            assert_eq!(text.parse::<RailCut>().expect("good").to_string(), text);
        }
        for text in ["", "1", "@", "4@1", "1@", "1@2+", "1@-2", "+1@2", "1@2+3+4", "1@4294967296"] {
            assert_eq!(text.parse::<RailCut>(), Err(RailCutError), "{text}");
        }
    }

    #[test]
    fn rail_is_cut_for_its_time() {
        let is_cut =
            |text: &str, rail, ms| text.parse::<RailCut>().expect("good").is_cut(Rail(rail), Duration::from_millis(ms));
        assert_eq!([0, 299, 300, 799, 800].map(|ms| is_cut("1@300+500", 1, ms)), [false, false, true, true, false]);
        assert!(is_cut("1@300", 1, u64::MAX) && !is_cut("1@300", 0, 400) && !is_cut("1@300+0", 1, 300));
    }
}
