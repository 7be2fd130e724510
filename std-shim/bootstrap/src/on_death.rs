//! What happens to a job when one of its ranks dies.

use core::{fmt, str::FromStr};

/// What the launcher does when a rank dies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OnDeath {
    /// Ends the other ranks.
    #[default]
    End,
    /// Reports the failure to the other ranks, which continue.
    Tell,
    /// Nothing: the other ranks notice by themselves.
    Silent,
}

impl FromStr for OnDeath {
    type Err = OnDeathError;

    fn from_str(text: &str) -> Result<Self, OnDeathError> {
        match text {
            "end" => Ok(Self::End),
            "tell" => Ok(Self::Tell),
            "silent" => Ok(Self::Silent),
            _ => Err(OnDeathError),
        }
    }
}

impl fmt::Display for OnDeath {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::End => "end",
            Self::Tell => "tell",
            Self::Silent => "silent",
        })
    }
}

/// A text that is no policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected one of end, tell, silent")]
pub struct OnDeathError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_parses_from_its_own_text() {
        for policy in [OnDeath::End, OnDeath::Tell, OnDeath::Silent] {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        assert_eq!("End".parse::<OnDeath>(), Err(OnDeathError));
    }
}
