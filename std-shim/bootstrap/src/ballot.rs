//! An agreement of some ranks: what each says, and what is decided.

use crate::rank::Rank;

/// Most ranges of ranks in a list.
pub const RANGES_MAX: usize = 1536;
/// Most words that are agreed on.
pub const WORDS_MAX: usize = 32;

/// Which agreement. Its members give it the same name, and no other one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Name {
    /// The communicator's first member.
    pub first: Rank,
    /// Its context.
    pub context: u32,
    /// Its generation.
    pub generation: u32,
    /// The how-manieth agreement there.
    pub round: u32,
}

/// Ranks, as ranges: the first, and how many.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ranks(pub(crate) Vec<(u32, u32)>);

impl Ranks {
    /// Of sorted ranks. `None`: they have more than [`RANGES_MAX`] ranges.
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

    /// Those below `size`.
    pub fn below(&self, size: u32) -> impl Iterator<Item = Rank> {
        let ranges = self.0.iter();
        ranges.flat_map(move |(first, count)| *first..first.saturating_add(*count).min(size)).map(Rank)
    }
}

/// What a member says.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ballot {
    /// In which agreement.
    pub name: Name,
    /// Everyone whose word is waited for.
    pub members: Ranks,
    /// Those that it knows to be dead.
    pub failed: Ranks,
    /// The greatest of all members' is agreed on.
    pub most: u32,
    /// Their bitwise and is agreed on; the same number of words by all.
    pub words: Vec<u64>,
}

/// What was decided, once and for all of them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Verdict {
    /// In which agreement.
    pub name: Name,
    /// Members that are dead, or have left.
    pub failed: Ranks,
    /// The greatest.
    pub most: u32,
    /// The bitwise and.
    pub words: Vec<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_ranges() {
        let list = [0, 1, 2, 7, 9, 10].map(Rank);
        let ranks = Ranks::new(list).expect("few");
        assert_eq!(ranks.0, [(0, 3), (7, 1), (9, 2)]);
        assert!(ranks.below(10).eq([0, 1, 2, 7, 9].map(Rank)));
        assert!(Ranks(vec![(u32::MAX - 1, 9), (3, 0)]).below(u32::MAX).eq([Rank(u32::MAX - 1)]));
        assert_eq!(Ranks::new((0..2 * RANGES_MAX as u32 + 2).step_by(2).map(Rank)), None);
    }
}
