//! Fault-tolerant agreement: the vote of each member, and the decision.

use crate::rank::Rank;
use serde::{Deserialize, Serialize};

/// Largest number of ranges in a list of ranks.
pub const RANGES_MAX: usize = 1536;
/// Largest number of words in a vote.
pub const WORDS_MAX: usize = 32;

/// Identifies an agreement. All members use the same identifier, and use it once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct AgreementId {
    /// The first member of the communicator.
    pub first: Rank,
    /// The communicator's context ID.
    pub context: u32,
    /// The generation of the context ID.
    pub generation: u32,
    /// The number of the agreement in the communicator.
    pub round: u32,
}

/// A set of ranks as ranges: first rank and count.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct RankRanges(pub(crate) Vec<(u32, u32)>);

impl RankRanges {
    /// From sorted ranks. `None`: they form more than [`RANGES_MAX`] ranges.
    pub fn new(sorted: impl IntoIterator<Item = Rank>) -> Option<Self> {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for rank in sorted {
            match ranges.last_mut() {
                Some((first, count)) if first.saturating_add(*count) == rank.0 => *count += 1,
                _ => ranges.push((rank.0, 1)),
            }
        }
        (ranges.len() <= RANGES_MAX).then_some(Self(ranges))
    }

    /// Number of ranges.
    pub const fn range_count(&self) -> usize {
        self.0.len()
    }

    /// Whether it has at most [`RANGES_MAX`] ranges, as it may not when it came from elsewhere.
    pub(crate) const fn is_bounded(&self) -> bool {
        self.0.len() <= RANGES_MAX
    }

    /// The ranks below `size`.
    pub fn below(&self, size: u32) -> impl Iterator<Item = Rank> {
        let ranges = self.0.iter();
        ranges.flat_map(move |(first, count)| *first..first.saturating_add(*count).min(size)).map(Rank)
    }
}

/// The vote of a member.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Vote {
    /// The agreement.
    pub id: AgreementId,
    /// All members of the agreement.
    pub members: RankRanges,
    /// Members that the voter knows to have failed.
    pub failed: RankRanges,
    /// The decision has the maximum over all votes.
    pub maximum: u32,
    /// The decision has the bitwise AND over all votes; all votes have the same number of words.
    pub words: Vec<u64>,
}

/// The decision of an agreement, equal for all members.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct AgreementOutcome {
    /// The agreement.
    pub id: AgreementId,
    /// Members that have failed or finished.
    pub failed: RankRanges,
    /// The maximum over all votes.
    pub maximum: u32,
    /// The bitwise AND over all votes.
    pub words: Vec<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_ranges() {
        let list = [0, 1, 2, 7, 9, 10].map(Rank);
        let ranks = RankRanges::new(list).expect("few");
        assert_eq!(ranks.0, [(0, 3), (7, 1), (9, 2)]);
        assert!(ranks.below(10).eq([0, 1, 2, 7, 9].map(Rank)));
        assert!(RankRanges(vec![(u32::MAX - 1, 9), (3, 0)]).below(u32::MAX).eq([Rank(u32::MAX - 1)]));
        assert_eq!(RankRanges::new((0..2 * RANGES_MAX as u32 + 2).step_by(2).map(Rank)), None);
    }
}
