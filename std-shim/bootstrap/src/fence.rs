//! What ranks compare when they enter a fence.

use crate::rank::Rank;
use serde::{Deserialize, Serialize};

/// Most records of a rank.
pub const FENCE_RECORDS_MAX: usize = 16;

/// A record that is equal on all ranks; the library decides what it means.
pub type FenceRecord = [u32; 8];

/// The first record in which a rank differs from the lowest rank.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct FenceDifference {
    /// Both ranks, the lowest one first.
    pub ranks: [Rank; 2],
    /// Their records; `None`: the rank has no further one.
    pub records: [Option<FenceRecord>; 2],
}

/// The first difference between the records of the lowest rank and those of the next one that differs. Ranks without
/// records are left out.
pub(crate) fn first_difference<'a>(
    ranks: impl IntoIterator<Item = (Rank, &'a [FenceRecord])>,
) -> Option<FenceDifference> {
    let mut ranks = ranks.into_iter();
    let (lowest, first) = ranks.next()?;
    let (other, records) = { ranks }.find(|(_, records)| *records != first)?;
    let at = first.iter().zip(records).take_while(|(one, other)| one == other).count();
    let records = [first, records].map(|records| records.get(at).copied());
    Some(FenceDifference { ranks: [lowest, other], records })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_found() {
        let (one, other) = ([[1; 8], [2; 8]], [[1; 8], [3; 8], [4; 8]]);
        let of = |ranks: &[&[FenceRecord]]| first_difference((0..).map(Rank).zip(ranks.iter().copied()));
        assert_eq!(of(&[&one, &one]), None);
        assert_eq!(of(&[]), None);
        let (ranks, records) = ([Rank(0), Rank(2)], [Some([2; 8]), Some([3; 8])]);
        assert_eq!(of(&[&one, &one, &other]), Some(FenceDifference { ranks, records }));
        let (ranks, records) = ([Rank(0), Rank(1)], [Some([1; 8]), None]);
        assert_eq!(of(&[&one, &[], &other]), Some(FenceDifference { ranks, records }));
    }
}
