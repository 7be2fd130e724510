//! The semi-dynamic tree: a combining tree that earlier barriers arrange.

use unisono_core::collective::token_tree::ReleasePath;

use super::skew::{BarrierAlgorithm, BarrierTimes, NetworkCost, barrier};

/// A combining tree that is arranged anew before each barrier, by the barriers before it (Mamidala 2004, §3,
/// "semi-dynamic"; the rule is ours): it changes places of the root and of the rank that entered last. Ranks know that
/// one from the release, which costs nothing more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SemiDynamicTree {
    degree: u32,
    /// The position of each rank.
    positions: Vec<u32>,
}

impl SemiDynamicTree {
    /// A tree of `size` ranks in the order of their numbers.
    pub fn new(size: u32, degree: u32) -> Self {
        Self { degree, positions: (0..size).collect() }
    }

    /// The next [`barrier`]. Of ranks that enter last at the same time the last one of `late` is the next root.
    pub fn barrier(&mut self, cost: NetworkCost, late: &[(u32, u64)]) -> BarrierTimes {
        let placed: Vec<_> = late.iter().map(|&(rank, at)| (self.positions[rank as usize], at)).collect();
        let tree = BarrierAlgorithm::Tree { degree: self.degree, units: 0, path: ReleasePath::Multicast };
        let times = barrier(tree, self.positions.len() as u32, cost, &placed);
        if let Some(&(last, _)) = late.iter().max_by_key(|(_, at)| *at)
            && let Some(root) = self.positions.iter().position(|position| *position == 0)
        {
            self.positions.swap(root, last as usize);
        }
        times
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::skew::{deepest, depth};

    const COST: NetworkCost = NetworkCost { latency: 6400, overhead: 640, gap: 640, multicast: 12_800 };
    const LATE: u64 = 1_000_000;

    #[test]
    fn a_rank_that_is_late_again_costs_one_multicast() {
        let (size, rank) = (100, deepest(0..100, 100, 8));
        let other = deepest(0..rank, size, 8);
        let mut tree = SemiDynamicTree::new(size, 8);
        let mut delay = |rank| tree.barrier(COST, &[(rank, LATE)]).delay();
        let by_depth = |rank| depth(rank, size, 8) * COST.hop() + COST.multicast;
        assert_eq!([rank, rank, rank].map(&mut delay), [by_depth(rank), COST.multicast, COST.multicast]);
        // Another rank pays for its depth once; then the first one is where that was.
        assert_eq!([other, other, rank].map(&mut delay), [by_depth(other), COST.multicast, by_depth(other)]);
        // The first root stands at the first late rank's place.
        assert_eq!(delay(0), by_depth(rank));
    }
}
