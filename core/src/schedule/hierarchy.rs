//! Nested subgroups of ranks: which ranks share a socket or a host.
//!
//! Graham et al. 2010, §3: a collective is composed of basic collectives in subgroups. Level 0 joins the ranks of an
//! inner group at its leader; with three levels, level 1 joins the leaders of the inner groups of an outer group; the
//! last level joins the remaining leaders. Groups may be of any size, and ranks of a group need not be adjacent.

use super::Rank;
use super::radix::quotient_up;
use crate::collective::{CollectiveKind, CollectiveSpec};

/// Ranks in nested groups of two or three levels, without a root.
///
/// `T` is the table's memory, [`table_len`](Self::table_len) words: the ranks sorted by group, then the first position
/// of each inner group, then the first inner group of each outer one. A *position* is an index into the sorted ranks;
/// groups are sorted by their lowest rank, ranks within a group ascend.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Hierarchy<T> {
    ranks: u32,
    inner: u32,
    /// Outer groups; `None`: two levels.
    outer: Option<u32>,
    is_contiguous: bool,
    table: T,
}

impl<T> Hierarchy<T> {
    /// Words of the table for `ranks` ranks.
    pub const fn table_len(ranks: usize) -> usize {
        ranks.saturating_mul(3).saturating_add(2)
    }

    /// The number of ranks.
    pub const fn ranks(&self) -> u32 {
        self.ranks
    }

    /// The number of inner groups.
    pub const fn inner_groups(&self) -> u32 {
        self.inner
    }

    /// Levels of subgroups: two or three.
    pub const fn levels(&self) -> u32 {
        if self.outer.is_some() { 3 } else { 2 }
    }

    /// Whether the ranks of every group are adjacent, so that the order of groups is the order of ranks.
    pub const fn is_contiguous(&self) -> bool {
        self.is_contiguous
    }

    /// Whether some group has several ranks and there are several groups.
    pub const fn is_nested(&self) -> bool {
        self.inner > 1 && self.inner < self.ranks
    }

    /// The same groups with the table in other memory: `change` moves it and must not alter its words.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Hierarchy<U> {
        let Self { ranks, inner, outer, is_contiguous, table } = self;
        Hierarchy { ranks, inner, outer, is_contiguous, table: change(table) }
    }
}

impl<T: AsRef<[u32]> + AsMut<[u32]>> Hierarchy<T> {
    /// Groups ranks: rank r belongs to group `inner[r]` of outer group `outer[r]`, in any numbering. Inner groups of
    /// different outer groups are different groups. An empty `outer` makes two levels. O(N log N).
    ///
    /// `None`: no rank, lists of different lengths, or a table shorter than [`table_len`](Self::table_len).
    pub fn new(inner: &[u32], outer: &[u32], mut table: T) -> Option<Self> {
        let ranks = u32::try_from(inner.len()).ok().filter(|ranks| *ranks != 0)?;
        if !outer.is_empty() && outer.len() != inner.len() {
            return None;
        }
        let words = table.as_mut().get_mut(..Self::table_len(inner.len()))?;
        let (order, starts) = words.split_at_mut_checked(inner.len())?;
        let of = |groups: &[u32], rank: u32| groups.get(rank as usize).copied().unwrap_or(0);
        let group = |rank: u32| (of(outer, rank), of(inner, rank));
        for (word, rank) in order.iter_mut().zip(0..) {
            *word = rank;
        }
        // The lowest ranks of groups are kept where their starts will be.
        let (lowest, lowest_outer) = starts.split_at_mut_checked(inner.len())?;
        order.sort_unstable_by_key(|rank| (of(outer, *rank), *rank));
        write_lowest(order, |rank| of(outer, rank), lowest_outer);
        order.sort_unstable_by_key(|rank| (group(*rank), *rank));
        write_lowest(order, group, lowest);
        order.sort_unstable_by_key(|rank| (of(lowest_outer, *rank), of(lowest, *rank), *rank));
        let is_contiguous = order.iter().zip(0..).all(|(rank, position)| *rank == position);
        let mut starts = starts.iter_mut();
        let ranked = || order.iter().map(|rank| group(*rank));
        let groups = write_starts((0_u32..).zip(ranked()), &mut starts)?;
        *starts.next()? = ranks;
        let mut before = None;
        let firsts = ranked().filter(|own| before.replace(*own) != Some(*own)).map(|(outer, _)| outer);
        let outer_groups = write_starts((0_u32..).zip(firsts), &mut starts)?;
        *starts.next()? = groups;
        let outer = (!outer.is_empty()).then_some(outer_groups);
        Some(Self { ranks, inner: groups, outer, is_contiguous, table })
    }
}

/// Writes for each rank the first rank of its run of equal groups.
fn write_lowest<G: PartialEq>(order: &[u32], group: impl Fn(u32) -> G, lowest: &mut [u32]) {
    let mut first: Option<u32> = None;
    for &rank in order {
        let least = *first.insert(first.filter(|first| group(*first) == group(rank)).unwrap_or(rank));
        if let Some(word) = lowest.get_mut(rank as usize) {
            *word = least;
        }
    }
}

/// Writes the first number of each run of equal groups, and returns how many there are. `None`: no more room.
fn write_starts<'t, G: PartialEq>(
    groups: impl Iterator<Item = (u32, G)>,
    starts: &mut impl Iterator<Item = &'t mut u32>,
) -> Option<u32> {
    let (mut before, mut count) = (None, 0_u32);
    for (number, group) in groups {
        if before.as_ref() != Some(&group) {
            *starts.next()? = number;
            count = count.saturating_add(1);
        }
        before = Some(group);
    }
    Some(count)
}

/// The ranks of one basic collective.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Subgroup {
    /// All ranks of an inner group.
    Inner(u32),
    /// The leaders of the inner groups of an outer group.
    Outer(u32),
    /// The leaders of the last level.
    Top,
}

/// A rank's place in the hierarchy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Location {
    pub(super) position: u32,
    pub(super) inner: u32,
    /// 0 if there are two levels.
    pub(super) outer: u32,
}

impl<T: AsRef<[u32]>> Hierarchy<T> {
    fn word(&self, at: u32) -> u32 {
        self.table.as_ref().get(at as usize).copied().unwrap_or(0)
    }

    /// The rank at a position.
    pub(super) fn rank_at(&self, position: u32) -> Rank {
        Rank(self.word(position))
    }

    /// The first position of inner group `group`, or the number of ranks after the last one.
    fn inner_start(&self, group: u32) -> u32 {
        self.word(self.ranks.wrapping_add(group))
    }

    /// The first inner group of outer group `group`, or the number of inner groups after the last one.
    fn outer_start(&self, group: u32) -> u32 {
        self.word(self.ranks.wrapping_add(self.inner).wrapping_add(1).wrapping_add(group))
    }

    /// The collective among the leaders of the last level, by which its algorithm is selected: rank 0's, with root 0.
    /// Where ranks have blocks, a leader's are taken as those of an average group.
    pub fn leaders(&self, plan: &CollectiveSpec) -> CollectiveSpec {
        let size = self.members(Subgroup::Top).max(2);
        let blocks = match plan.collective {
            CollectiveKind::Gather
            | CollectiveKind::Scatter
            | CollectiveKind::Allgather
            | CollectiveKind::ReduceScatter => quotient_up(self.ranks, size),
            _ => 1,
        };
        let bytes = plan.bytes.saturating_mul(blocks as usize);
        CollectiveSpec { rank: Rank(0), root: Rank(0), size, bytes, ..*plan }
    }

    /// The leaders of the subgroups of the last level, in the order of the subgroups: the root leads its own.
    pub fn top_leaders(&self, root: Rank) -> impl Iterator<Item = Rank> + '_ {
        let root = self.locate(root).map(|at| (root, at));
        (0..self.members(Subgroup::Top)).map(move |number| self.member(Subgroup::Top, number, root))
    }

    /// The fewest ranks of a group of the last level, if the ranks of every group are adjacent and there are several groups;
    /// else 1.
    pub fn per_host(&self) -> u16 {
        if !self.is_contiguous || !self.is_nested() {
            return 1;
        }
        let start = |group: u32| self.start(Subgroup::Top, group);
        let ranks = |group: u32| start(group.wrapping_add(1)).wrapping_sub(start(group));
        let fewest = (0..self.members(Subgroup::Top)).map(ranks).min().unwrap_or(1);
        u16::try_from(fewest).unwrap_or(u16::MAX)
    }

    /// The most members of an inner group, and of an outer group if there are three levels.
    pub(super) fn largest(&self) -> (u32, Option<u32>) {
        let most = |of: fn(u32) -> Subgroup, groups: u32| (0..groups).map(|group| self.members(of(group))).max();
        let outer = self.outer.map(|groups| most(Subgroup::Outer, groups).unwrap_or(1));
        (most(Subgroup::Inner, self.inner).unwrap_or(1), outer)
    }

    /// The place of a rank. O(N).
    pub(super) fn locate(&self, rank: Rank) -> Option<Location> {
        let position = (0..self.ranks).find(|position| self.rank_at(*position) == rank)?;
        let inner = (0..self.inner).find(|group| self.inner_start(group.wrapping_add(1)) > position)?;
        let after = |group: &u32| self.outer_start(group.wrapping_add(1)) > inner;
        let outer = self.outer.map_or(Some(0), |groups| (0..groups).find(after))?;
        Some(Location { position, inner, outer })
    }

    /// The number of members.
    pub(super) fn members(&self, of: Subgroup) -> u32 {
        match of {
            Subgroup::Inner(group) => self.inner_start(group.wrapping_add(1)).wrapping_sub(self.inner_start(group)),
            Subgroup::Outer(group) => self.outer_start(group.wrapping_add(1)).wrapping_sub(self.outer_start(group)),
            Subgroup::Top => self.outer.unwrap_or(self.inner),
        }
    }

    /// The number of a rank's subgroup or of itself among the members.
    pub(super) fn number(&self, of: Subgroup, at: Location) -> u32 {
        match of {
            Subgroup::Inner(group) => at.position.wrapping_sub(self.inner_start(group)),
            Subgroup::Outer(group) => at.inner.wrapping_sub(self.outer_start(group)),
            Subgroup::Top if self.outer.is_some() => at.outer,
            Subgroup::Top => at.inner,
        }
    }

    /// The first position of member `number`'s ranks, or the first one after the subgroup.
    pub(super) fn start(&self, of: Subgroup, number: u32) -> u32 {
        match of {
            Subgroup::Inner(group) => self.inner_start(group).wrapping_add(number),
            Subgroup::Outer(group) => self.inner_start(self.outer_start(group).wrapping_add(number)),
            Subgroup::Top if self.outer.is_some() => self.inner_start(self.outer_start(number)),
            Subgroup::Top => self.inner_start(number),
        }
    }

    /// Member `number`: the leader of its ranks, which is the root if that is one of them, else the lowest.
    pub(super) fn member(&self, of: Subgroup, number: u32, root: Option<(Rank, Location)>) -> Rank {
        let first = self.start(of, number);
        match root {
            Some((rank, at)) if (first..self.start(of, number.wrapping_add(1))).contains(&at.position) => rank,
            _ => self.rank_at(first),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate alloc;
    use super::{Hierarchy, Rank, Subgroup};
    use alloc::vec;
    use alloc::vec::Vec;

    fn members(of: &Hierarchy<Vec<u32>>, subgroup: Subgroup, root: u32) -> Vec<u32> {
        let root = of.locate(Rank(root)).map(|at| (Rank(root), at));
        (0..of.members(subgroup)).map(|number| of.member(subgroup, number, root).0).collect()
    }

    #[test]
    fn hierarchy_sorts_groups_by_their_lowest_rank() {
        // Hosts: {0, 3, 4}, {1, 5}, {2}; sockets within them.
        let (sockets, hosts) = ([1, 0, 7, 0, 1, 0], [9, 4, 6, 9, 9, 4]);
        let table = vec![0; Hierarchy::<Vec<u32>>::table_len(6)];
        let groups = Hierarchy::new(&sockets, &hosts, table).expect("a table of that length");
        assert_eq!((groups.levels(), groups.inner_groups(), groups.is_contiguous()), (3, 4, false));
        assert_eq!((0..6).map(|position| groups.rank_at(position).0).collect::<Vec<_>>(), [0, 4, 3, 1, 5, 2]);
        assert_eq!(members(&groups, Subgroup::Inner(0), 0), [0, 4]);
        assert_eq!(members(&groups, Subgroup::Inner(2), 0), [1, 5]);
        assert_eq!(members(&groups, Subgroup::Outer(0), 0), [0, 3]);
        assert_eq!(members(&groups, Subgroup::Outer(0), 4), [4, 3], "the root leads");
        assert_eq!(members(&groups, Subgroup::Top, 0), [0, 1, 2]);
        assert_eq!(members(&groups, Subgroup::Top, 5), [0, 5, 2]);
        assert!(
            groups.top_leaders(Rank(5)).eq([0, 5, 2].map(Rank)) && groups.top_leaders(Rank(9)).eq([0, 1, 2].map(Rank))
        );
    }

    #[test]
    fn hierarchy_of_adjacent_groups_keeps_the_order_of_ranks() {
        let table = vec![0; Hierarchy::<Vec<u32>>::table_len(5)];
        let groups = Hierarchy::new(&[3, 3, 1, 1, 1], &[], table).expect("a table of that length");
        assert!(groups.is_contiguous() && groups.is_nested() && groups.levels() == 2);
        assert_eq!(members(&groups, Subgroup::Top, 3), [0, 3]);
        assert_eq!((groups.start(Subgroup::Top, 1), groups.start(Subgroup::Top, 2)), (2, 5));
        assert!(Hierarchy::new(&[0; 5], &[], vec![0; 16]).is_none(), "a short table");
        assert!(Hierarchy::new(&[0; 5], &[0; 4], vec![0; 17]).is_none(), "lists of different lengths");
    }
}
