//! When and where the multicast groups of communicators are made: `basic`, `lazy`, `pool`, `pool:4`.

use core::{fmt, str::FromStr};

use unisono_core::multicast::GroupPolicy;

/// When the multicast groups of communicators are made, and what their broadcasts do until then.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum GroupsChoice {
    /// At the first broadcast of a root, which waits until its group has been tested.
    Basic,
    /// At the first broadcast of a root; schedules execute its broadcasts until its group has been tested.
    #[default]
    Lazy,
    /// A communicator takes one of this number of groups that the job makes and tests ahead, where one is left; else as
    /// [`Lazy`](Self::Lazy).
    Pool(u8),
}

impl GroupsChoice {
    /// Groups of a pool, unless a number is given.
    pub const POOL: u8 = 2;
    /// Groups of a pool, at most.
    pub const POOL_MAX: u8 = 8;

    /// The policy of a communicator's group.
    ///
    /// ```
    /// use unisono::environment::GroupsChoice;
    /// use unisono_core::multicast::GroupPolicy;
    ///
    /// assert_eq!(GroupsChoice::Pool(2).policy(), GroupPolicy::Pool);
    /// ```
    pub const fn policy(self) -> GroupPolicy {
        match self {
            Self::Basic => GroupPolicy::Basic,
            Self::Lazy => GroupPolicy::Lazy,
            Self::Pool(_) => GroupPolicy::Pool,
        }
    }

    /// Groups that are made ahead.
    ///
    /// ```
    /// use unisono::environment::GroupsChoice;
    ///
    /// assert_eq!((GroupsChoice::Pool(2).pool(), GroupsChoice::Lazy.pool()), (2, 0));
    /// ```
    pub const fn pool(self) -> u8 {
        match self {
            Self::Pool(groups) => groups,
            Self::Basic | Self::Lazy => 0,
        }
    }
}

impl FromStr for GroupsChoice {
    type Err = GroupsChoiceError;

    fn from_str(text: &str) -> Result<Self, GroupsChoiceError> {
        match text.split_once(':') {
            None if text == "basic" => Ok(Self::Basic),
            None if text == "lazy" => Ok(Self::Lazy),
            None if text == "pool" => Ok(Self::Pool(Self::POOL)),
            Some(("pool", groups)) => {
                let groups = groups.parse().ok().filter(|groups| (1..=Self::POOL_MAX).contains(groups));
                groups.map(Self::Pool).ok_or(GroupsChoiceError)
            }
            _ => Err(GroupsChoiceError),
        }
    }
}

impl fmt::Display for GroupsChoice {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Basic => to.write_str("basic"),
            Self::Lazy => to.write_str("lazy"),
            Self::Pool(groups) => write!(to, "pool:{groups}"),
        }
    }
}

/// The text does not say when groups are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected basic, lazy, pool, or pool:N with N from 1 to {}", GroupsChoice::POOL_MAX)]
pub struct GroupsChoiceError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_printed_as_they_are_parsed() {
        for text in ["basic", "lazy", "pool:1", "pool:8"] {
            assert_eq!(text.parse().map(|choice: GroupsChoice| choice.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("pool".parse(), Ok(GroupsChoice::Pool(GroupsChoice::POOL)));
        for text in ["", "pools", "pool:", "pool:0", "pool:9", "lazy:2", "pool:2:2", "pool:-1"] {
            assert_eq!(text.parse::<GroupsChoice>(), Err(GroupsChoiceError), "{text}");
        }
    }
}
