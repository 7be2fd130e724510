//! Nested subgroups of ranks: which ranks share a cache, a socket or a host.
//!
//! Graham et al. 2010, §3: a collective is composed of basic collectives in subgroups. Level 0 joins the ranks of an
//! innermost group at its leader, level 1 the leaders of the innermost groups of a group that contains them, and so on;
//! the last level joins the remaining leaders. Groups may be of any size, and ranks of a group need not be adjacent.

use super::Rank;
use super::radix::quotient_up;
use crate::collective::{CollectiveKind, CollectiveSpec};

/// The most groups that a rank is in, one fewer than the most levels.
pub(super) const GROUPINGS: usize = 5;

/// Ranks in nested groups of two to six levels, without a root.
///
/// `T` is the table's memory, [`table_len`](Self::table_len) words: the ranks sorted by group, then the first position
/// of each innermost group, then for each further grouping the first member of each of its groups, which is a group of
/// the grouping before. A *position* is an index into the sorted ranks; groups are sorted by their lowest rank, ranks
/// within a group ascend.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Hierarchy<T> {
    ranks: u32,
    /// The number of groups of each grouping, innermost first; 0: there is none.
    groups: [u32; GROUPINGS],
    is_contiguous: bool,
    table: T,
}

impl<T> Hierarchy<T> {
    /// The most groupings of [`new`](Self::new).
    pub const GROUPINGS: usize = GROUPINGS;

    /// Words of the table for `ranks` ranks in `groupings` groupings.
    pub const fn table_len(ranks: usize, groupings: usize) -> usize {
        ranks.saturating_mul(groupings.saturating_add(1)).saturating_add(groupings)
    }

    /// The number of ranks.
    pub const fn ranks(&self) -> u32 {
        self.ranks
    }

    /// The number of innermost groups.
    pub const fn innermost_groups(&self) -> u32 {
        let [innermost, ..] = self.groups;
        innermost
    }

    /// Levels of subgroups: two to six.
    pub fn levels(&self) -> u32 {
        self.top().level.wrapping_add(1)
    }

    /// Whether the ranks of every group are adjacent, so that the order of groups is the order of ranks.
    pub const fn is_contiguous(&self) -> bool {
        self.is_contiguous
    }

    /// Whether some group has several ranks and there are several groups.
    pub const fn is_nested(&self) -> bool {
        self.innermost_groups() > 1 && self.innermost_groups() < self.ranks
    }

    /// The same groups with the table in other memory: `change` moves it and must not alter its words.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Hierarchy<U> {
        let Self { ranks, groups, is_contiguous, table } = self;
        Hierarchy { ranks, groups, is_contiguous, table: change(table) }
    }

    /// The leaders of the last level.
    pub(super) fn top(&self) -> Subgroup {
        let groupings = self.groups.iter().filter(|groups| **groups != 0).count();
        Subgroup { level: groupings as u32, group: 0 }
    }
}

/// The groups of a rank in this grouping and those around it, the outermost first.
fn path(groupings: &[&[u32]], grouping: usize, rank: u32) -> impl Iterator<Item = u32> {
    let outwards = groupings.get(grouping..).unwrap_or_default();
    outwards.iter().rev().map(move |groups| groups.get(rank as usize).copied().unwrap_or(0))
}

impl<T: AsRef<[u32]> + AsMut<[u32]>> Hierarchy<T> {
    /// Groups ranks: rank r belongs to group `groupings[0][r]` within group `groupings[1][r]` and so on, in any
    /// numbering. Groups within different groups are different. O(N log N).
    ///
    /// `None`: no rank, lists of different lengths, none or more than [`GROUPINGS`](Self::GROUPINGS) of them, or a table
    /// shorter than [`table_len`](Self::table_len).
    pub fn new(groupings: &[&[u32]], mut table: T) -> Option<Self> {
        let size = groupings.first()?.len();
        let ranks = u32::try_from(size).ok().filter(|ranks| *ranks != 0)?;
        if groupings.len() > GROUPINGS || groupings.iter().any(|groups| groups.len() != size) {
            return None;
        }
        let words = table.as_mut().get_mut(..Self::table_len(size, groupings.len()))?;
        let (order, starts) = words.split_at_mut_checked(size)?;
        for (word, rank) in order.iter_mut().zip(0..) {
            *word = rank;
        }
        // The lowest ranks of groups are kept where their starts will be.
        let of = |grouping: usize, rank: u32| path(groupings, grouping, rank);
        let is_same = |grouping: usize, a: u32, b: u32| of(grouping, a).eq(of(grouping, b));
        for (grouping, lowest) in starts.chunks_exact_mut(size).enumerate().take(groupings.len()) {
            order.sort_unstable_by(|a, b| of(grouping, *a).cmp(of(grouping, *b)).then(a.cmp(b)));
            write_lowest(order, |a, b| is_same(grouping, a, b), lowest);
        }
        let lowest = |rank: u32| {
            let by_grouping = starts.chunks_exact(size).take(groupings.len()).rev();
            by_grouping.map(move |lowest| lowest.get(rank as usize).copied().unwrap_or(0))
        };
        order.sort_unstable_by(|a, b| lowest(*a).cmp(lowest(*b)).then(a.cmp(b)));
        let is_contiguous = order.iter().zip(0..).all(|(rank, position)| *rank == position);
        let (mut starts, mut groups, mut before) = (starts.iter_mut(), [0_u32; GROUPINGS], ranks);
        for (grouping, count) in groups.iter_mut().enumerate().take(groupings.len()) {
            // The first ranks of what this grouping groups: ranks, or groups of the one before.
            let mut unit = None;
            let units = order.iter().copied().filter(|rank| {
                let last = unit.replace(*rank);
                grouping == 0 || last.is_none_or(|last| !is_same(grouping.wrapping_sub(1), last, *rank))
            });
            let mut last = None;
            for (number, rank) in (0..).zip(units) {
                if last.replace(rank).is_none_or(|last| !is_same(grouping, last, rank)) {
                    *starts.next()? = number;
                    *count = count.wrapping_add(1);
                }
            }
            *starts.next()? = before;
            before = *count;
        }
        Some(Self { ranks, groups, is_contiguous, table })
    }
}

/// Writes for each rank the first rank of its run of ranks of the same group.
fn write_lowest(order: &[u32], is_same: impl Fn(u32, u32) -> bool, lowest: &mut [u32]) {
    let mut first: Option<u32> = None;
    for &rank in order {
        let least = *first.insert(first.filter(|first| is_same(*first, rank)).unwrap_or(rank));
        if let Some(word) = lowest.get_mut(rank as usize) {
            *word = least;
        }
    }
}

/// The members of one basic collective: ranks, or the leaders of groups.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Subgroup {
    /// 0: ranks; else the leaders of groups of the grouping `level` − 1.
    pub(super) level: u32,
    /// The number of their group in the grouping `level`; 0 at the last level.
    pub(super) group: u32,
}

/// A rank's place in the hierarchy: its position, then the number of its group in each grouping, innermost first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Location([u32; GROUPINGS + 1]);

impl Location {
    /// Its position (level 0), or the number of its group in the grouping `level` − 1: a member of a subgroup of this level.
    fn unit(&self, level: u32) -> u32 {
        let Self(units) = self;
        units.get(level as usize).copied().unwrap_or(0)
    }

    pub(super) fn position(&self) -> u32 {
        self.unit(0)
    }
}

impl<T: AsRef<[u32]>> Hierarchy<T> {
    fn word(&self, at: u32) -> u32 {
        self.table.as_ref().get(at as usize).copied().unwrap_or(0)
    }

    /// The rank at a position.
    pub(super) fn rank_at(&self, position: u32) -> Rank {
        Rank(self.word(position))
    }

    /// The first member of group `group` of the grouping `level`, or the number of all members after the last one. The
    /// last level has one group.
    fn first_unit(&self, level: u32, group: u32) -> u32 {
        match self.groups.get(level as usize) {
            Some(1..) => {
                let before = self.groups.iter().take(level as usize);
                let from = before.fold(self.ranks, |from, groups| from.wrapping_add(*groups).wrapping_add(1));
                self.word(from.wrapping_add(group))
            }
            _ if group == 0 => 0,
            _ => level.checked_sub(1).and_then(|below| self.groups.get(below as usize)).copied().unwrap_or(self.ranks),
        }
    }

    /// The collective among the leaders of the last level, by which its algorithm is selected: rank 0's, with root 0.
    /// Where ranks have blocks, a leader's are taken as those of an average group.
    pub fn leaders(&self, plan: &CollectiveSpec) -> CollectiveSpec {
        let size = self.members(self.top()).max(2);
        let ranks = quotient_up(self.ranks, size);
        let blocks = match plan.collective {
            CollectiveKind::Gather
            | CollectiveKind::Scatter
            | CollectiveKind::Allgather
            | CollectiveKind::ReduceScatter => ranks,
            CollectiveKind::Alltoall => ranks.saturating_mul(ranks),
            _ => 1,
        };
        let bytes = plan.bytes.saturating_mul(blocks as usize);
        CollectiveSpec { rank: Rank(0), root: Rank(0), size, bytes, ..*plan }
    }

    /// Whether the algorithm of the leaders of the last level is selected as for blocks that differ in size: those of an
    /// alltoall differ as groups do, so that none of them can be forwarded among others.
    pub const fn leaders_vary(&self, collective: CollectiveKind) -> bool {
        matches!(collective, CollectiveKind::Alltoall)
    }

    /// The leaders of the subgroups of the last level, in the order of the subgroups: the root leads its own.
    pub fn top_leaders(&self, root: Rank) -> impl Iterator<Item = Rank> + '_ {
        let (root, top) = (self.locate(root).map(|at| (root, at)), self.top());
        (0..self.members(top)).map(move |number| self.member(top, number, root))
    }

    /// The members of the subgroup of a level that a rank is in, or its leader, in the order of their numbers there, if no
    /// root leads: the ranks of its innermost group, or the lowest ones of groups.
    pub fn subgroup_members(&self, level: u32, rank: Rank) -> impl Iterator<Item = Rank> + '_ {
        let group = self.locate(rank).map(|at| self.subgroup(level, &at));
        let numbers = group.into_iter().flat_map(|group| (0..self.members(group)).map(move |number| (group, number)));
        numbers.map(|(group, number)| self.member(group, number, None))
    }

    /// The fewest ranks of a group of the last level, if the ranks of every group are adjacent and there are several groups;
    /// else 1.
    pub fn per_host(&self) -> u16 {
        if !self.is_contiguous || !self.is_nested() {
            return 1;
        }
        let top = self.top();
        let ranks = |group: u32| self.start(top, group.wrapping_add(1)).wrapping_sub(self.start(top, group));
        let fewest = (0..self.members(top)).map(ranks).min().unwrap_or(1);
        u16::try_from(fewest).unwrap_or(u16::MAX)
    }

    /// The ranks of each group of the last level, if there are several groups, of several ranks each, and all of one size.
    pub fn ranks_of_each_group(&self) -> Option<u32> {
        let top = self.top();
        let ranks = |group: u32| self.start(top, group.wrapping_add(1)).wrapping_sub(self.start(top, group));
        let (groups, each) = (self.members(top), ranks(0));
        (groups > 1 && each > 1 && (1..groups).all(|group| ranks(group) == each)).then_some(each)
    }

    /// The most members of a subgroup, for each level below the last.
    pub(super) fn largest(&self) -> impl Iterator<Item = u32> + '_ {
        (0..)
            .zip(self.groups)
            .take_while(|(_, groups)| *groups != 0)
            .map(|(level, groups)| (0..groups).map(|group| self.members(Subgroup { level, group })).max().unwrap_or(1))
    }

    /// The place of a rank. O(N).
    pub(super) fn locate(&self, rank: Rank) -> Option<Location> {
        let position = (0..self.ranks).find(|position| self.rank_at(*position) == rank)?;
        let (mut units, mut unit) = ([0; GROUPINGS + 1], position);
        let [first, groups @ ..] = &mut units;
        *first = position;
        for ((level, count), own) in (0..).zip(self.groups).zip(groups).take_while(|((_, count), _)| *count != 0) {
            unit = (0..count).find(|group| self.first_unit(level, group.wrapping_add(1)) > unit)?;
            *own = unit;
        }
        Some(Location(units))
    }

    /// The subgroup of this level that a rank is in, or its leader.
    pub(super) fn subgroup(&self, level: u32, at: &Location) -> Subgroup {
        Subgroup { level, group: at.unit(level.wrapping_add(1)) }
    }

    /// The number of members.
    pub(super) fn members(&self, Subgroup { level, group }: Subgroup) -> u32 {
        self.first_unit(level, group.wrapping_add(1)).wrapping_sub(self.first_unit(level, group))
    }

    /// The number of a rank's subgroup or of itself among the members.
    pub(super) fn number(&self, Subgroup { level, group }: Subgroup, at: &Location) -> u32 {
        at.unit(level).wrapping_sub(self.first_unit(level, group))
    }

    /// The first position of member `number`'s ranks, or the first one after the subgroup.
    pub(super) fn start(&self, Subgroup { level, group }: Subgroup, number: u32) -> u32 {
        let unit = self.first_unit(level, group).wrapping_add(number);
        (0..level).rev().fold(unit, |unit, level| self.first_unit(level, unit))
    }

    /// Member `number`: the leader of its ranks, which is the root if that is one of them, else the lowest.
    pub(super) fn member(&self, of: Subgroup, number: u32, root: Option<(Rank, Location)>) -> Rank {
        let first = self.start(of, number);
        match root {
            Some((rank, at)) if (first..self.start(of, number.wrapping_add(1))).contains(&at.position()) => rank,
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

    fn subgroup(level: u32, group: u32) -> Subgroup {
        Subgroup { level, group }
    }

    #[test]
    fn hierarchy_sorts_groups_by_their_lowest_rank() {
        // Hosts: {0, 3, 4}, {1, 5}, {2}; sockets within them.
        let (sockets, hosts) = ([1, 0, 7, 0, 1, 0], [9, 4, 6, 9, 9, 4]);
        let table = vec![0; Hierarchy::<Vec<u32>>::table_len(6, 2)];
        let groups = Hierarchy::new(&[&sockets, &hosts], table).expect("a table of that length");
        assert_eq!((groups.levels(), groups.innermost_groups(), groups.is_contiguous()), (3, 4, false));
        assert_eq!((0..6).map(|position| groups.rank_at(position).0).collect::<Vec<_>>(), [0, 4, 3, 1, 5, 2]);
        assert_eq!(members(&groups, subgroup(0, 0), 0), [0, 4]);
        assert_eq!(members(&groups, subgroup(0, 2), 0), [1, 5]);
        assert_eq!(members(&groups, subgroup(1, 0), 0), [0, 3]);
        assert_eq!(members(&groups, subgroup(1, 0), 4), [4, 3], "the root leads");
        assert_eq!(members(&groups, groups.top(), 0), [0, 1, 2]);
        assert_eq!(members(&groups, groups.top(), 5), [0, 5, 2]);
        assert!(
            groups.top_leaders(Rank(5)).eq([0, 5, 2].map(Rank)) && groups.top_leaders(Rank(9)).eq([0, 1, 2].map(Rank))
        );
    }

    #[test]
    fn hierarchy_of_adjacent_groups_keeps_the_order_of_ranks() {
        let table = vec![0; Hierarchy::<Vec<u32>>::table_len(5, 1)];
        let groups = Hierarchy::new(&[&[3, 3, 1, 1, 1]], table).expect("a table of that length");
        assert!(groups.is_contiguous() && groups.is_nested() && groups.levels() == 2);
        assert_eq!(members(&groups, groups.top(), 3), [0, 3]);
        assert_eq!((groups.start(groups.top(), 1), groups.start(groups.top(), 2)), (2, 5));
        assert!(Hierarchy::new(&[&[0; 5]], vec![0; 10]).is_none(), "a short table");
        assert!(Hierarchy::new(&[&[0; 5], &[0; 4]], vec![0; 17]).is_none(), "lists of different lengths");
        assert!(Hierarchy::new(&[], vec![0; 17]).is_none(), "no grouping");
        assert!(Hierarchy::new(&[&[0][..]; 6], vec![0; 17]).is_none(), "more groupings than there can be");
    }

    #[test]
    fn hierarchy_of_six_levels_halves_its_ranks_at_each() {
        let halves = [1, 2, 3, 4, 5].map(|shift| (0..64).map(|rank| rank >> shift).collect::<Vec<u32>>());
        let table = vec![0; Hierarchy::<Vec<u32>>::table_len(64, 5)];
        let groups = Hierarchy::new(&halves.each_ref().map(|half| &half[..]), table).expect("a table of that length");
        assert_eq!((groups.levels(), groups.innermost_groups(), groups.per_host()), (6, 32, 32));
        assert!(groups.largest().eq([2; 5]));
        for level in 0..6 {
            let at = groups.locate(Rank(63)).expect("a rank");
            let last = 63 - (63 & ((1 << level) - 1));
            let own = groups.subgroup(level, &at);
            assert_eq!(members(&groups, own, 0), [last - (1 << level), last]);
            assert_eq!((groups.number(own, &at), groups.members(own)), (1, 2));
        }
    }
}
