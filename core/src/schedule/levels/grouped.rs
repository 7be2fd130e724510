//! The stages of an innermost group whose ranks have other means than messages among themselves.

use super::HierarchicalPlan;
use super::build::{INPUT, OUTPUT, Place};
use super::stage::{GroupPart, Moves, Part};
use crate::collective::CollectiveKind;
use crate::schedule::hierarchy::Subgroup;
use crate::schedule::{BlockSpan, Blocks, GroupStep, Spec};

impl Spec {
    /// Whether the ranks of an innermost group can execute their part of a collective over subgroups by other means than
    /// messages. With several segments a group's steps up and down would alternate, each after the one before, so that
    /// segments would not overlap.
    pub const fn can_have_group_steps(&self) -> bool {
        match self.collective {
            CollectiveKind::Barrier | CollectiveKind::Broadcast | CollectiveKind::Reduce => true,
            CollectiveKind::Allreduce => self.segments == 1,
            CollectiveKind::Gather
            | CollectiveKind::Scatter
            | CollectiveKind::Allgather
            | CollectiveKind::ReduceScatter => self.segments == 1 && !self.varying,
            CollectiveKind::Alltoall | CollectiveKind::Scan | CollectiveKind::Exscan => false,
        }
    }
}

/// Each returns false if the subgroup's stage is of messages.
impl<T: AsRef<[u32]>> HierarchicalPlan<T> {
    pub(super) fn group_barrier(&mut self, subgroup: Subgroup) -> bool {
        self.push_group(subgroup, CollectiveKind::Barrier, None, None, 1)
    }

    /// Reduces the input to the leader, at `sum`.
    pub(super) fn group_reduce(&mut self, subgroup: Subgroup, sum: Place) -> bool {
        let (blocks, count) = self.vectors();
        let into = self.leads(subgroup).then_some((sum, blocks));
        self.push_group(subgroup, CollectiveKind::Reduce, Some((INPUT, blocks)), into, count)
    }

    /// Broadcasts the leader's output.
    pub(super) fn group_broadcast(&mut self, subgroup: Subgroup) -> bool {
        let (blocks, count) = self.vectors();
        let data = Some((OUTPUT, blocks));
        let (from, into) = if self.leads(subgroup) { (data, None) } else { (None, data) };
        if let Some(arrivals) = self.place.arrivals {
            let (kind, parts) = (CollectiveKind::Broadcast, arrivals.parts());
            return self.push_moving(subgroup, kind, from, into, (parts, Moves::Arrivals));
        }
        self.push_group(subgroup, CollectiveKind::Broadcast, from, into, count)
    }

    /// Gathers the ranks' blocks, each at `own`, at the leader: by position at `held`.
    pub(super) fn group_gather(&mut self, subgroup: Subgroup, own: Place, held: Place) -> bool {
        let into = self.leads(subgroup).then(|| self.positions(subgroup, held));
        self.push_group(subgroup, CollectiveKind::Gather, Some((own, 1)), into, 1)
    }

    /// Scatters the leader's blocks, by position at `held`.
    pub(super) fn group_scatter(&mut self, subgroup: Subgroup, held: Place) -> bool {
        let is_leader = self.leads(subgroup);
        let from = is_leader.then(|| self.positions(subgroup, held));
        let (buffer, first) = held;
        let stays = self.last.is_some() || is_leader && self.is_in_place(subgroup);
        let own = if stays { (buffer, first.wrapping_add(self.place.own.position())) } else { OUTPUT };
        self.push_group(subgroup, CollectiveKind::Scatter, from, Some((own, 1)), 1)
    }

    /// Blocks of a step that moves a vector, and the number of such steps: where ranks have blocks, one moves them all,
    /// else each moves one, as soon as it is there.
    const fn vectors(&self) -> (u32, u32) {
        match self.spec.collective {
            CollectiveKind::Allgather | CollectiveKind::ReduceScatter => (self.blocks, 1),
            _ => (1, self.blocks),
        }
    }

    /// The blocks of the subgroup's ranks.
    fn positions(&self, subgroup: Subgroup, (buffer, first): Place) -> (Place, u32) {
        let groups = &self.place.hierarchy;
        let start = groups.start(subgroup, 0);
        ((buffer, first.wrapping_add(start)), groups.members(subgroup))
    }

    fn leads(&self, subgroup: Subgroup) -> bool {
        self.place.hierarchy.number(subgroup, &self.place.own) == self.root_in(subgroup)
    }

    /// Whether the leader's own block, or input, is where the result goes.
    fn is_in_place(&self, subgroup: Subgroup) -> bool {
        let groups = &self.place.hierarchy;
        let is_direct = groups.is_contiguous();
        let has_root = |(_, at)| groups.subgroup(subgroup.level, &at) == subgroup;
        self.spec.in_place
            && match self.spec.collective {
                CollectiveKind::Allreduce => true,
                CollectiveKind::Allgather => is_direct,
                CollectiveKind::Reduce | CollectiveKind::Scatter => self.place.root.is_some_and(has_root),
                CollectiveKind::Gather => is_direct && self.place.root.is_some_and(has_root),
                _ => false,
            }
    }

    fn push_group(
        &mut self,
        subgroup: Subgroup,
        collective: CollectiveKind,
        from: Option<(Place, u32)>,
        into: Option<(Place, u32)>,
        count: u32,
    ) -> bool {
        self.push_moving(subgroup, collective, from, into, (count, Moves::Blocks))
    }

    fn push_moving(
        &mut self,
        subgroup: Subgroup,
        collective: CollectiveKind,
        from: Option<(Place, u32)>,
        into: Option<(Place, u32)>,
        (count, moves): (u32, Moves),
    ) -> bool {
        let groups = &self.place.hierarchy;
        let members = groups.members(subgroup);
        if !self.allows_group_steps || subgroup.level != 0 {
            return false;
        }
        let span = |part: Option<(Place, u32)>| match part {
            None => BlockSpan::SIGNAL,
            Some(((buffer, first), blocks)) => BlockSpan::new(buffer, Blocks::range(first, blocks)),
        };
        let step = GroupStep {
            collective,
            group: subgroup.group,
            members,
            number: groups.number(subgroup, &self.place.own),
            root: self.root_in(subgroup),
            in_place: self.is_in_place(subgroup),
            from: span(from),
            into: span(into),
        };
        // A rank alone has nothing to do but to copy, as a stage does.
        if members < 2 {
            return false;
        }
        self.push(Part::Group(GroupPart { step, count, moves }));
        true
    }
}
