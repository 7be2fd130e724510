//! What the ranks of a tree send to each other.

use super::{Operand, RankRange};

/// A call on the tree, by its number; wraps. Equal on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Epoch(pub u32);

impl Epoch {
    /// The one after it.
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Epochs from `earlier` to this one.
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Whether it is before `other`; the two are less than 2³¹ apart.
    pub const fn is_before(self, other: Self) -> bool {
        self.since(other) > u32::MAX >> 1
    }

    /// The earlier one.
    pub const fn earlier(self, other: Self) -> Self {
        if other.is_before(self) { other } else { self }
    }
}

/// The right to release a claim.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Token {
    /// The ranks whose values the release will combine; contains the subtree of its holder.
    pub claim: RankRange,
    /// The number of tokens that it may be divided into.
    pub units: u8,
}

/// All ranks of a claim have entered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Release {
    /// The ranks whose values the release combines.
    pub claim: RankRange,
    /// It goes along the tree: its receiver sends it to its other neighbours.
    pub is_passed_on: bool,
}

/// The kind of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Body {
    /// From a child: all ranks of its subtree have entered. With the subtree's value.
    Ack,
    /// From the parent. With the value of the claim's ranks before the receiver's subtree, if there are any, and of
    /// those after it.
    Token(Token),
    /// All ranks of the claim have entered. With their value. By multicast, or from a neighbour in the tree.
    Release(Release),
    /// From a neighbour: it lacks the release of rank `gap` and perhaps later ones.
    Ask {
        /// The first rank that no release covers.
        gap: u32,
    },
}

/// A message. It takes as many values with it as its [`Payload`] names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Message {
    /// The call.
    pub epoch: Epoch,
    /// Each rank whose entering the message reports (of an Ack the subtree, of a Token all of the claim that have
    /// entered, of a Release the claim) had left all epochs before this one when it entered.
    pub left: Epoch,
    /// Every rank of the tree has left all epochs before this one.
    pub all_left: Epoch,
    /// The rest.
    pub body: Body,
}

/// The values of a message, in order: of an Ack and a Release one, of a Token prefix and suffix, of an Ask none.
pub type Payload = [Option<Operand>; 2];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_are_ordered_across_the_wrap() {
        let last = Epoch(u32::MAX);
        assert_eq!(last.next(), Epoch(0));
        assert!(last.is_before(Epoch(0)) && !Epoch(0).is_before(last) && !last.is_before(last));
        assert_eq!((Epoch(3).since(Epoch(u32::MAX)), Epoch(3).earlier(last)), (4, last));
    }
}
