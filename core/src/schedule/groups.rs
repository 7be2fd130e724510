//! Contiguous groups of ranks: as many groups as the largest power of the base that is not above the size.
//!
//! A group has at most `base` ranks, so that its first rank, its *leader*, exchanges messages with the others in one
//! round of k ports. Leaders then exchange digit by digit. Contiguous groups keep the order of ranks.

use super::radix::{Radix, quotient, remainder};

/// The group of a rank, and the ranks of each group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Groups {
    pub(super) radix: Radix,
    /// There are `radix^digits` groups.
    pub(super) digits: u32,
    pub(super) count: u32,
    /// Ranks in the later groups.
    ranks: u32,
    /// This many of the first groups have one rank more.
    longer: u32,
    /// This rank's group.
    pub(super) group: u32,
    /// This rank's number in its group; 0 is the leader.
    pub(super) member: u32,
}

impl Groups {
    pub(super) const fn new(radix: Radix, size: u32, rank: u32) -> Self {
        let digits = radix.log(size);
        let count = radix.power(digits);
        let ranks = quotient(size, count);
        let longer = remainder(size, count);
        let more = ranks.wrapping_add(1);
        let in_longer = longer.wrapping_mul(more);
        let (group, member) = if rank < in_longer {
            (quotient(rank, more), remainder(rank, more))
        } else {
            let beyond = rank.wrapping_sub(in_longer);
            (longer.wrapping_add(quotient(beyond, ranks)), remainder(beyond, ranks))
        };
        Self { radix, digits, count, ranks, longer, group, member }
    }

    /// The leader of a group, or the size for the group after the last.
    pub(super) const fn leader(&self, group: u32) -> u32 {
        let longer = if group < self.longer { group } else { self.longer };
        group.wrapping_mul(self.ranks).wrapping_add(longer)
    }

    /// Ranks in this rank's group, without the leader.
    pub(super) const fn followers(&self) -> u32 {
        self.leader(self.group.wrapping_add(1)).wrapping_sub(self.leader(self.group)).wrapping_sub(1)
    }

    /// Whether this rank is its group's leader.
    pub(super) const fn leads(&self) -> bool {
        self.member == 0
    }

    /// Whether every group has one rank: the size is a power of the base.
    pub(super) const fn exact(&self) -> bool {
        self.longer == 0 && self.ranks == 1
    }
}
