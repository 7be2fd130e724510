//! The cut of a rail, as if its cable were pulled, or of all groups, as if the network stopped forwarding multicasts: from
//! some moment on, all frames that leave there are lost.

use core::{error::Error, fmt, str::FromStr, time::Duration};

use unisono_core::device::Destination;
use unisono_core::ids::Rail;
use unisono_core::window::rails::MAX_RAILS;

/// What is cut.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CutTarget {
    /// Everything that leaves over a rail.
    Rail(Rail),
    /// Everything that is sent to groups.
    Groups,
}

/// Frames that are lost for a while. Written `1@300` (rail 1, from 300 ms on), `1@300+500` (for 500 ms), or `groups@300`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cut {
    /// Which frames.
    pub target: CutTarget,
    /// Milliseconds from the opening of the device to the cut.
    pub after_ms: u32,
    /// Milliseconds that it lasts. `None`: for ever.
    pub lasts_ms: Option<u32>,
}

impl Cut {
    /// Whether the cut lasts, this long after the device was opened.
    pub fn is_on(self, age: Duration) -> bool {
        let since = age.checked_sub(Duration::from_millis(self.after_ms.into()));
        let lasts = self.lasts_ms.map(|lasts| Duration::from_millis(lasts.into()));
        since.is_some_and(|since| lasts.is_none_or(|lasts| since < lasts))
    }

    /// Whether it concerns a frame that leaves over this rail.
    pub fn concerns(self, rail: Rail, to: Destination) -> bool {
        match self.target {
            CutTarget::Rail(cut) => cut == rail,
            CutTarget::Groups => matches!(to, Destination::Group(_)),
        }
    }
}

impl FromStr for CutTarget {
    type Err = CutError;

    fn from_str(text: &str) -> Result<Self, CutError> {
        if text == "groups" {
            return Ok(Self::Groups);
        }
        let rail = u8::try_from(number(text)?).ok().filter(|rail| *rail < MAX_RAILS);
        rail.map(|rail| Self::Rail(Rail(rail))).ok_or(CutError)
    }
}

impl FromStr for Cut {
    type Err = CutError;

    fn from_str(text: &str) -> Result<Self, CutError> {
        let (target, times) = text.split_once('@').ok_or(CutError)?;
        let (after, lasts) = times.split_once('+').map_or((times, None), |(after, lasts)| (after, Some(lasts)));
        Ok(Self { target: target.parse()?, after_ms: number(after)?, lasts_ms: lasts.map(number).transpose()? })
    }
}

/// A number without a sign.
fn number(text: &str) -> Result<u32, CutError> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain).ok_or(CutError)
}

impl fmt::Display for CutTarget {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rail(Rail(rail)) => write!(to, "{rail}"),
            Self::Groups => to.write_str("groups"),
        }
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}@{}", self.target, self.after_ms)?;
        self.lasts_ms.map_or(Ok(()), |lasts| write!(to, "+{lasts}"))
    }
}

/// The text is not a cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CutError;

impl fmt::Display for CutError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            to,
            "expected a rail below {MAX_RAILS} or groups, and milliseconds until the cut and of the cut, such as 1@300+500"
        )
    }
}

impl Error for CutError {}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_core::ids::{GroupId, PeerId};

    #[test]
    fn cuts_are_printed_as_they_are_parsed() {
        for text in ["0@0", "1@300", "3@1+4294967295", "groups@7+1"] {
            assert_eq!(text.parse::<Cut>().expect("good").to_string(), text);
        }
        for text in ["", "1", "@", "4@1", "1@", "1@2+", "1@-2", "+1@2", "1@2+3+4", "1@4294967296", "group@1"] {
            assert_eq!(text.parse::<Cut>(), Err(CutError), "{text}");
        }
    }

    #[test]
    fn cut_lasts_for_its_time() {
        let is_on = |text: &str, ms| text.parse::<Cut>().expect("good").is_on(Duration::from_millis(ms));
        assert_eq!([0, 299, 300, 799, 800].map(|ms| is_on("1@300+500", ms)), [false, false, true, true, false]);
        assert!(is_on("groups@300", u64::MAX) && !is_on("1@300+0", 300));
    }

    #[test]
    fn cut_concerns_a_rail_or_groups() {
        let [peer, group] = [Destination::first_rail(PeerId(3)), Destination::Group(GroupId(0))];
        let concerns = |text: &str, rail, to| text.parse::<Cut>().expect("good").concerns(Rail(rail), to);
        assert!(concerns("1@0", 1, peer) && concerns("1@0", 1, group) && !concerns("1@0", 0, peer));
        assert!(concerns("groups@0", 0, group) && !concerns("groups@0", 0, peer));
    }
}
