//! Groups: ordered lists of ranks of the job, as in MPI, from which communicators are made.

use alloc::sync::Arc;
use core::fmt;

use unisono_bootstrap::Rank;

/// Why a group cannot be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GroupError {
    /// A rank that the group does not have.
    #[error("there is no rank {rank} in a group of {size}")]
    UnknownRank {
        /// The rank that was asked for.
        rank: Rank,
        /// Members of the group.
        size: u32,
    },
    /// A rank that is listed twice.
    #[error("rank {0} is listed twice")]
    Twice(Rank),
}

/// Ranks of the job, each at most once, numbered from 0 on in their order. Cloning it is cheap.
#[derive(Clone)]
pub struct Group(Members);

#[derive(Clone)]
enum Members {
    /// All ranks of a job of this size.
    All(u32),
    Listed(Arc<Listed>),
}

struct Listed {
    /// Ranks of the job, by number in the group.
    ranks: Box<[Rank]>,
    /// Numbers in the group, sorted by rank of the job.
    numbers: Box<[(Rank, u32)]>,
}

impl Group {
    /// All ranks of a job of this size.
    pub(in crate::world) const fn all(size: u32) -> Self {
        Self(Members::All(size))
    }

    /// A group of distinct ranks.
    pub(in crate::world) fn of(ranks: Vec<Rank>) -> Self {
        let mut numbers: Box<[_]> = ranks.iter().copied().zip(0..).collect();
        numbers.sort_unstable();
        Self(Members::Listed(Arc::new(Listed { ranks: ranks.into(), numbers })))
    }

    /// The group without members (`MPI_GROUP_EMPTY`).
    ///
    /// ```
    /// assert_eq!(unisono::Group::empty().size(), 0);
    /// ```
    pub fn empty() -> Self {
        Self::of(Vec::new())
    }

    /// Number of members.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// assert_eq!(world.group().size(), world.size());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn size(&self) -> u32 {
        match &self.0 {
            Members::All(size) => *size,
            Members::Listed(listed) => listed.ranks.len() as u32,
        }
    }

    /// The rank in the job of the member with this number.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let last = world.group().include(&[Rank(world.size() - 1)])?;
    /// assert_eq!((last.world_rank(Rank(0)), last.world_rank(Rank(1))), (Some(Rank(world.size() - 1)), None));
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn world_rank(&self, number: Rank) -> Option<Rank> {
        match &self.0 {
            Members::All(size) => (number.0 < *size).then_some(number),
            Members::Listed(listed) => listed.ranks.get(number.0 as usize).copied(),
        }
    }

    /// The number in the group of a rank of the job, if it is a member.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let last = world.group().include(&[Rank(world.size() - 1)])?;
    /// assert_eq!(last.number(Rank(world.size() - 1)), Some(Rank(0)));
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn number(&self, world_rank: Rank) -> Option<Rank> {
        match &self.0 {
            Members::All(size) => (world_rank.0 < *size).then_some(world_rank),
            Members::Listed(listed) => {
                let found = listed.numbers.binary_search_by_key(&world_rank, |(rank, _)| *rank).ok()?;
                listed.numbers.get(found).map(|(_, number)| Rank(*number))
            }
        }
    }

    /// The number in `other` of this group's member `rank` (`MPI_Group_translate_ranks`). `None`: there is no such
    /// member, or it is no member of `other`.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let last = world.group().include(&[Rank(world.size() - 1)])?;
    /// assert_eq!(last.translate(Rank(0), &world.group()), Some(Rank(world.size() - 1)));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn translate(&self, rank: Rank, other: &Self) -> Option<Rank> {
        other.number(self.world_rank(rank)?)
    }

    /// The ranks in the job of all members, in order.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// assert!(world.group().iter().eq((0..world.size()).map(Rank)));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = Rank> {
        (0..self.size()).filter_map(|number| self.world_rank(Rank(number)))
    }

    /// This group's members, then those of `other` that are not among them.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// assert_eq!(Group::empty().union(&world.group()).size(), world.size());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn union(&self, other: &Self) -> Self {
        Self::of(self.iter().chain(other.iter().filter(|rank| self.number(*rank).is_none())).collect())
    }

    /// Those that are members of both, in the order of this one.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// assert_eq!(world.group().intersection(&Group::empty()).size(), 0);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn intersection(&self, other: &Self) -> Self {
        Self::of(self.iter().filter(|rank| other.number(*rank).is_some()).collect())
    }

    /// Those that are not members of `other`.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// assert_eq!(world.group().difference(&world.group()).size(), 0);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn difference(&self, other: &Self) -> Self {
        Self::of(self.iter().filter(|rank| other.number(*rank).is_none()).collect())
    }

    /// The members with these numbers, in this order.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let backwards: Vec<Rank> = (0..world.size()).rev().map(Rank).collect();
    /// assert!(world.group().include(&backwards)?.iter().eq(backwards));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`GroupError`].
    pub fn include(&self, numbers: &[Rank]) -> Result<Self, GroupError> {
        self.check(numbers)?;
        Ok(Self::of(numbers.iter().filter_map(|number| self.world_rank(*number)).collect()))
    }

    /// The members but those with these numbers.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// assert_eq!(world.group().exclude(&[Rank(0)])?.size(), world.size() - 1);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`GroupError`].
    pub fn exclude(&self, numbers: &[Rank]) -> Result<Self, GroupError> {
        let sorted = self.check(numbers)?;
        let stays = |number: &u32| sorted.binary_search(&Rank(*number)).is_err();
        Ok(Self::of((0..self.size()).filter(stays).filter_map(|number| self.world_rank(Rank(number))).collect()))
    }

    /// The numbers, sorted: each that of a member, and none twice.
    fn check(&self, numbers: &[Rank]) -> Result<Vec<Rank>, GroupError> {
        let (mut sorted, size) = (numbers.to_vec(), self.size());
        sorted.sort_unstable();
        if let Some(rank) = sorted.last().filter(|rank| rank.0 >= size) {
            return Err(GroupError::UnknownRank { rank: *rank, size });
        }
        match sorted.windows(2).find(|pair| pair.first() == pair.last()) {
            Some([rank, ..]) => Err(GroupError::Twice(*rank)),
            _ => Ok(sorted),
        }
    }
}

/// Equal: the same ranks in the same order.
impl PartialEq for Group {
    fn eq(&self, other: &Self) -> bool {
        self.size() == other.size() && self.iter().eq(other.iter())
    }
}

impl Eq for Group {}

impl fmt::Debug for Group {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_list().entries(self.iter().map(|rank| rank.0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(ranks: &[u32]) -> Group {
        Group::of(ranks.iter().copied().map(Rank).collect())
    }

    #[test]
    fn order_is_kept_as_mpi_says() {
        let (a, b) = (group(&[4, 0, 7]), group(&[2, 7, 4, 9]));
        assert_eq!(a.union(&b), group(&[4, 0, 7, 2, 9]));
        assert_eq!(a.intersection(&b), group(&[4, 7]));
        assert_eq!(b.intersection(&a), group(&[7, 4]));
        assert_eq!(a.difference(&b), group(&[0]));
        assert_eq!(a.difference(&a).size(), 0);
        assert_ne!(group(&[4, 7]), group(&[7, 4]));
        assert_eq!(group(&[0, 1, 2]), Group::all(3));
    }

    #[test]
    fn members_are_found_by_number_and_by_rank() {
        let (a, all) = (group(&[4, 0, 7]), Group::all(8));
        assert_eq!((a.world_rank(Rank(2)), a.world_rank(Rank(3))), (Some(Rank(7)), None));
        assert_eq!((a.number(Rank(4)), a.number(Rank(1))), (Some(Rank(0)), None));
        assert_eq!(a.translate(Rank(2), &all), Some(Rank(7)));
        assert_eq!((all.translate(Rank(7), &a), all.translate(Rank(1), &a)), (Some(Rank(2)), None));
        assert_eq!(all.number(Rank(8)), None);
    }

    #[test]
    fn lists_name_members_once() {
        let a = group(&[4, 0, 7]);
        assert_eq!(a.include(&[Rank(2), Rank(0)]), Ok(group(&[7, 4])));
        assert_eq!(a.exclude(&[Rank(1)]), Ok(group(&[4, 7])));
        assert_eq!(a.exclude(&[]), Ok(a.clone()));
        assert_eq!(a.include(&[Rank(3)]), Err(GroupError::UnknownRank { rank: Rank(3), size: 3 }));
        assert_eq!(a.exclude(&[Rank(1), Rank(0), Rank(1)]), Err(GroupError::Twice(Rank(1))));
    }
}
