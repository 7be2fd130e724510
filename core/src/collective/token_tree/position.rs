//! The tree: ranks in preorder, so that a subtree is a range of consecutive ranks.
//!
//! The root is rank 0. A rank's descendants are divided into at most `degree` subtrees whose sizes differ by one at
//! most, the larger ones first; so the depth is the least that the degree allows, or one more.

use crate::ids::Rank;

/// A range of consecutive ranks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RankRange {
    /// The first rank.
    pub first: u32,
    /// One after the last rank.
    pub end: u32,
}

impl RankRange {
    /// From `first` to before `end`.
    pub const fn new(first: u32, end: u32) -> Self {
        Self { first, end }
    }

    /// Number of ranks.
    pub const fn len(self) -> u32 {
        self.end.saturating_sub(self.first)
    }

    /// Whether it has no rank.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Whether it contains the rank.
    pub const fn contains(self, rank: u32) -> bool {
        self.first <= rank && rank < self.end
    }

    /// Whether it contains all ranks of `other`.
    pub const fn covers(self, other: Self) -> bool {
        self.first <= other.first && other.end <= self.end
    }

    /// Whether a rank is in both.
    pub const fn overlaps(self, other: Self) -> bool {
        self.first < other.end && other.first < self.end
    }
}

/// A rank's position in the tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Position {
    size: u32,
    degree: u32,
    subtree: RankRange,
    parent: Option<Rank>,
}

impl Position {
    /// The largest degree.
    pub const MAX_DEGREE: u32 = 28;

    /// The position of `rank` in the tree of `size` ranks with at most `degree` children each. Takes a step per level.
    /// `None` if there is no such rank, or the degree is 0 or above [`Self::MAX_DEGREE`].
    pub fn new(rank: Rank, size: u32, degree: u32) -> Option<Self> {
        if rank.0 >= size || degree == 0 || degree > Self::MAX_DEGREE {
            return None;
        }
        let mut at = Self { size, degree, subtree: RankRange::new(0, size), parent: None };
        while at.subtree.first != rank.0 {
            let number = at.child_containing(rank.0)?;
            at = Self { subtree: at.child(number), parent: Some(at.rank()), ..at };
        }
        Some(at)
    }

    /// This rank.
    pub const fn rank(&self) -> Rank {
        Rank(self.subtree.first)
    }

    /// Ranks in the tree.
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// All ranks.
    pub const fn all(&self) -> RankRange {
        RankRange::new(0, self.size)
    }

    /// This rank and its descendants.
    pub const fn subtree(&self) -> RankRange {
        self.subtree
    }

    /// The parent; the root has none.
    pub const fn parent(&self) -> Option<Rank> {
        self.parent
    }

    /// Number of children.
    pub fn children(&self) -> u32 {
        self.degree.min(self.descendants())
    }

    /// The subtree of child `number`, whose first rank is the child; empty if there is no such child.
    pub fn child(&self, number: u32) -> RankRange {
        let count = self.children();
        if number >= count {
            return RankRange::new(self.subtree.end, self.subtree.end);
        }
        let (least, larger) = self.shares();
        let before = number.wrapping_mul(least).wrapping_add(number.min(larger));
        let first = self.subtree.first.wrapping_add(1).wrapping_add(before);
        RankRange::new(first, first.wrapping_add(least).wrapping_add(u32::from(number < larger)))
    }

    /// The number of the child that is `rank`.
    pub fn child_number(&self, rank: Rank) -> Option<u32> {
        self.child_containing(rank.0).filter(|number| self.child(*number).first == rank.0)
    }

    /// The number of the child whose subtree contains `rank`.
    fn child_containing(&self, rank: u32) -> Option<u32> {
        let offset = rank.checked_sub(self.subtree.first.wrapping_add(1))?;
        if rank >= self.subtree.end {
            return None;
        }
        let (least, larger) = self.shares();
        let in_larger = larger.wrapping_mul(least.wrapping_add(1));
        match offset.checked_sub(in_larger) {
            None => offset.checked_div(least.wrapping_add(1)),
            Some(rest) => rest.checked_div(least).map(|number| number.wrapping_add(larger)),
        }
    }

    const fn descendants(&self) -> u32 {
        self.subtree.len().saturating_sub(1)
    }

    /// Ranks of a smaller subtree, and the number of those that have one rank more.
    fn shares(&self) -> (u32, u32) {
        let (all, count) = (self.descendants(), self.children());
        (all.checked_div(count).unwrap_or(0), all.checked_rem(count).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subtrees_of_children_tile_the_descendants_and_name_their_parent() {
        for degree in [1, 2, 3, 8, 28] {
            for size in 1..=75 {
                for rank in 0..size {
                    let at = Position::new(Rank(rank), size, degree).expect("a rank of the tree");
                    let mut next = rank + 1;
                    for number in 0..at.children() {
                        let child = at.child(number);
                        assert!(child.first == next && !child.is_empty());
                        let below = Position::new(Rank(child.first), size, degree).expect("a rank of the tree");
                        assert_eq!((below.parent(), below.subtree()), (Some(Rank(rank)), child));
                        assert_eq!(at.child_number(Rank(child.first)), Some(number));
                        next = child.end;
                    }
                    assert_eq!((at.rank(), next), (Rank(rank), at.subtree().end));
                    assert_eq!(at.child_number(Rank(rank)), None);
                }
            }
        }
    }

    #[test]
    fn a_tree_of_degree_8_has_the_least_depth() {
        let depth = |size: u32| {
            let up = |rank: &Rank| Position::new(*rank, size, 8).and_then(|at| at.parent());
            let depth = |rank| core::iter::successors(Some(Rank(rank)), up).count() - 1;
            (0..size).map(depth).max()
        };
        // 1 + 8 + 64 + 512 ranks have depth 3.
        assert_eq!([1, 2, 9, 10, 73, 74, 585, 586].map(depth), [0, 1, 1, 2, 2, 3, 3, 4].map(Some));
    }

    #[test]
    fn impossible_positions_are_refused() {
        assert_eq!(Position::new(Rank(4), 4, 2), None);
        assert_eq!(Position::new(Rank(0), 4, 0), None);
        assert_eq!(Position::new(Rank(0), 4, 29), None);
    }
}
