//! The parent and the children of a rank.

use super::Position;
use crate::ids::Rank;

/// A neighbour in the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Neighbour {
    Parent,
    Child(u32),
}

impl Neighbour {
    pub(super) fn find(position: &Position, rank: Rank) -> Option<Self> {
        if position.parent() == Some(rank) {
            return Some(Self::Parent);
        }
        position.child_number(rank).map(Self::Child)
    }

    pub(super) fn rank(self, position: &Position) -> Option<Rank> {
        match self {
            Self::Parent => position.parent(),
            Self::Child(number) => Some(Rank(position.child(number).first)),
        }
    }
}

/// A set of neighbours: a bit per child, and one for the parent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Neighbours(u32);

const PARENT: u32 = 1 << 31;

impl Neighbours {
    pub(super) const NONE: Self = Self(0);

    pub(super) const fn one(neighbour: Neighbour) -> Self {
        match neighbour {
            Neighbour::Parent => Self(PARENT),
            Neighbour::Child(number) => Self(1_u32.wrapping_shl(number)),
        }
    }

    /// All of a rank.
    pub(super) fn all(position: &Position) -> Self {
        let children = 1_u32.wrapping_shl(position.children()).wrapping_sub(1);
        Self(if position.parent().is_some() { children | PARENT } else { children })
    }

    /// The children of a mask.
    pub(super) const fn children(mask: u32) -> Self {
        Self(mask & !PARENT)
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) const fn count(self) -> u32 {
        self.0.count_ones()
    }

    pub(super) const fn contains(self, neighbour: Neighbour) -> bool {
        self.0 & Self::one(neighbour).0 != 0
    }

    pub(super) const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    pub(super) const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// The first: children by their number, then the parent.
    pub(super) const fn first(self) -> Option<Neighbour> {
        match self.0 {
            0 => None,
            PARENT => Some(Neighbour::Parent),
            _ => Some(Neighbour::Child(self.0.trailing_zeros())),
        }
    }

    /// Removes and returns the first.
    pub(super) const fn pop(&mut self) -> Option<Neighbour> {
        let first = self.first();
        self.0 &= self.0.wrapping_sub(1);
        first
    }

    /// The children before child `number`.
    pub(super) const fn before(self, number: u32) -> Self {
        Self(self.0 & 1_u32.wrapping_shl(number).wrapping_sub(1))
    }

    /// The last child.
    pub(super) const fn last_child(self) -> Option<u32> {
        31_u32.checked_sub((self.0 & !PARENT).leading_zeros())
    }
}

#[cfg(test)]
mod tests {
    extern crate alloc;

    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn children_come_first_and_the_parent_last() {
        let position = Position::new(Rank(1), 31, 2).expect("a rank of the tree");
        let mut all = Neighbours::all(&position);
        assert_eq!((all.count(), all.last_child(), all.before(1).count()), (3, Some(1), 1));
        let popped: Vec<_> = core::iter::from_fn(|| all.pop()).collect();
        assert_eq!(popped, [Neighbour::Child(0), Neighbour::Child(1), Neighbour::Parent]);
        assert_eq!(
            popped.iter().map(|each| each.rank(&position)).collect::<Vec<_>>(),
            [2, 9, 0].map(|rank| Some(Rank(rank)))
        );
        assert_eq!(
            [0, 2, 3, 9].map(|rank| Neighbour::find(&position, Rank(rank))),
            [Some(popped[2]), Some(popped[0]), None, Some(popped[1])]
        );
        assert_eq!((Neighbours::NONE.last_child(), Neighbours::one(Neighbour::Parent).last_child()), (None, None));
    }
}
