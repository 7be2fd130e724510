//! The stages of a subgroup whose members have other means than messages among themselves.

use super::HierarchicalPlan;
use super::build::{INPUT, OUTPUT, Place};
use super::stage::{GroupPart, Moves, Part};
use crate::collective::CollectiveKind;
use crate::schedule::hierarchy::{Location, Subgroup};
use crate::schedule::{BlockSpan, Blocks, GroupStep, Rank, Spec};

impl Spec {
    /// Whether the members of a subgroup can execute their part of a collective over subgroups by other means than
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

/// Those that return a `bool` return false if the subgroup's stage is of messages.
impl<T: AsRef<[u32]>> HierarchicalPlan<T> {
    pub(super) fn group_barrier(&mut self, subgroup: Subgroup) -> bool {
        self.push_group(
            subgroup,
            GroupMove {
                collective: CollectiveKind::Barrier,
                from: None,
                into: None,
                each: 1,
                count: 1,
                moves: Moves::Blocks,
            },
        )
    }

    /// Reduces the input, or above the innermost level the vector at `sum`, to the leader, at `sum`.
    pub(super) fn group_reduce(&mut self, subgroup: Subgroup, sum: Place) -> bool {
        let (blocks, count) = self.vectors();
        let operand = if subgroup.level == 0 { INPUT } else { sum };
        let into = self.leads(subgroup).then_some((sum, blocks));
        let from = Some((operand, blocks));
        self.push_group(
            subgroup,
            GroupMove { collective: CollectiveKind::Reduce, from, into, each: 1, count, moves: Moves::Blocks },
        )
    }

    /// Combines the outputs of all members, and gives each the result.
    pub(super) fn group_allreduce(&mut self, subgroup: Subgroup) -> bool {
        let all = Some((OUTPUT, self.blocks));
        let collective = CollectiveKind::Allreduce;
        self.push_group(
            subgroup,
            GroupMove { collective, from: all, into: all, each: 1, count: 1, moves: Moves::Blocks },
        )
    }

    /// Broadcasts the leader's output.
    pub(super) fn group_broadcast(&mut self, subgroup: Subgroup) -> bool {
        let (blocks, count) = self.vectors();
        let data = Some((OUTPUT, blocks));
        let (from, into) = if self.leads(subgroup) { (data, None) } else { (None, data) };
        let (count, moves) = match self.place.arrivals {
            Some(arrivals) => (arrivals.parts(), Moves::Arrivals),
            None => (count, Moves::Blocks),
        };
        let collective = CollectiveKind::Broadcast;
        self.push_group(subgroup, GroupMove { collective, from, into, each: 1, count, moves })
    }

    /// Gathers the ranks' blocks, each at `own`, or above the innermost level those that the members hold by position at
    /// `held`, at the leader: by position at `held`.
    pub(super) fn group_gather(&mut self, subgroup: Subgroup, own: Place, held: Place) -> bool {
        let Some(each) = self.equal_parts(subgroup) else { return false };
        let from = Some(if subgroup.level == 0 { (own, 1) } else { self.own_part(subgroup, held) });
        let into = self.leads(subgroup).then(|| self.positions(subgroup, held));
        self.push_group(
            subgroup,
            GroupMove { collective: CollectiveKind::Gather, from, into, each, count: 1, moves: Moves::Blocks },
        )
    }

    /// Scatters the leader's blocks, by position at `held`; above the innermost level each member's part to the same place.
    pub(super) fn group_scatter(&mut self, subgroup: Subgroup, held: Place) -> bool {
        let Some(each) = self.equal_parts(subgroup) else { return false };
        let is_leader = self.leads(subgroup);
        let from = is_leader.then(|| self.positions(subgroup, held));
        let stays = subgroup.level != 0 || self.last.is_some() || is_leader && self.is_in_place(subgroup);
        let into = Some(if stays { self.own_part(subgroup, held) } else { (OUTPUT, 1) });
        self.push_group(
            subgroup,
            GroupMove { collective: CollectiveKind::Scatter, from, into, each, count: 1, moves: Moves::Blocks },
        )
    }

    /// Before the parts of a vector go to the other groups, each in its own part of `sum`: scatters the root's vector, or
    /// combines the inputs. A vector has `blocks` blocks for each rank of the group.
    pub(super) fn group_scatter_parts(&mut self, subgroup: Subgroup, sum: Place, blocks: u32) {
        let members = self.place.hierarchy.members(subgroup);
        let vector = |place: Place| Some((place, blocks.wrapping_mul(members)));
        let (collective, from, in_place) = match self.spec.collective {
            CollectiveKind::Broadcast if self.leads(subgroup) => (CollectiveKind::Scatter, vector(OUTPUT), true),
            CollectiveKind::Broadcast => (CollectiveKind::Scatter, None, true),
            _ => (CollectiveKind::ReduceScatter, vector(INPUT), self.is_in_place(subgroup)),
        };
        let into = Some(self.part_of(subgroup, sum, blocks));
        let moves = Moves::Blocks;
        self.push_step(subgroup, in_place, GroupMove { collective, from, into, each: blocks, count: 1, moves });
    }

    /// After the parts have come from the other groups: collects them at the root, or at all ranks of the group.
    pub(super) fn group_collect_parts(&mut self, subgroup: Subgroup, sum: Place, blocks: u32) {
        let members = self.place.hierarchy.members(subgroup);
        let is_rooted = self.spec.collective == CollectiveKind::Reduce;
        let collective = if is_rooted { CollectiveKind::Gather } else { CollectiveKind::Allgather };
        let from = Some(self.part_of(subgroup, sum, blocks));
        let into = (!is_rooted || self.leads(subgroup)).then(|| (OUTPUT, blocks.wrapping_mul(members)));
        let moves = Moves::Blocks;
        self.push_step(subgroup, true, GroupMove { collective, from, into, each: blocks, count: 1, moves });
    }

    /// This rank's group, if it has steps in which each rank has a part: the group is not divided further. With several
    /// segments its steps would alternate.
    pub(super) fn group_of_parts(&self) -> Option<Subgroup> {
        let groups = &self.place.hierarchy;
        let group = groups.subgroup(0, &self.place.own);
        (groups.levels() == 2 && self.spec.segments == 1 && self.has_steps(group)).then_some(group)
    }

    /// This rank's part of the vector at a place.
    fn part_of(&self, subgroup: Subgroup, (buffer, first): Place, blocks: u32) -> (Place, u32) {
        let own = self.place.hierarchy.number(subgroup, &self.place.own);
        let number = if mutant!("same_part_scattered") { 0 } else { own };
        ((buffer, number.wrapping_mul(blocks).wrapping_add(first)), blocks)
    }

    /// Blocks of a step that moves a vector, and the number of such steps: where ranks have blocks, one moves them all,
    /// else each moves one, as soon as it is there.
    const fn vectors(&self) -> (u32, u32) {
        match self.spec.collective {
            CollectiveKind::Allgather | CollectiveKind::ReduceScatter => (self.blocks, 1),
            _ => (1, self.blocks),
        }
    }

    /// The number of ranks that each member stands for. `None`: it differs.
    fn equal_parts(&self, subgroup: Subgroup) -> Option<u32> {
        let groups = &self.place.hierarchy;
        let ranks =
            |number: u32| groups.start(subgroup, number.wrapping_add(1)).wrapping_sub(groups.start(subgroup, number));
        (0..groups.members(subgroup)).all(|number| ranks(number) == ranks(0)).then(|| ranks(0))
    }

    /// The blocks of the subgroup's ranks.
    fn positions(&self, subgroup: Subgroup, held: Place) -> (Place, u32) {
        self.blocks_of(subgroup, 0, self.place.hierarchy.members(subgroup), held)
    }

    /// The blocks of the ranks that this rank stands for.
    fn own_part(&self, subgroup: Subgroup, held: Place) -> (Place, u32) {
        let number = self.place.hierarchy.number(subgroup, &self.place.own);
        self.blocks_of(subgroup, number, number.wrapping_add(1), held)
    }

    /// The blocks of the ranks that the members from `first` to before `end` stand for.
    fn blocks_of(&self, subgroup: Subgroup, first: u32, end: u32, (buffer, at): Place) -> (Place, u32) {
        let [start, end] = [first, end].map(|number| self.place.hierarchy.start(subgroup, number));
        ((buffer, at.wrapping_add(start)), end.wrapping_sub(start))
    }

    fn leads(&self, subgroup: Subgroup) -> bool {
        self.place.hierarchy.number(subgroup, &self.place.own) == self.root_in(subgroup)
    }

    /// Whether the leader's own block, or input, is where the result goes.
    fn is_in_place(&self, subgroup: Subgroup) -> bool {
        let groups = &self.place.hierarchy;
        let is_direct = groups.is_contiguous();
        let has_root = |(_, at)| groups.subgroup(subgroup.level, &at) == subgroup;
        if subgroup.level != 0 {
            return true;
        }
        self.spec.in_place
            && match self.spec.collective {
                CollectiveKind::Allreduce => true,
                CollectiveKind::Allgather => is_direct,
                CollectiveKind::Reduce | CollectiveKind::Scatter => self.place.root.is_some_and(has_root),
                CollectiveKind::Gather => is_direct && self.place.root.is_some_and(has_root),
                _ => false,
            }
    }

    /// Whether the members are those that the subgroup always has: the root leads none of their groups in another's stead.
    fn has_usual_members(&self, subgroup: Subgroup) -> bool {
        let groups = &self.place.hierarchy;
        let is_usual = |(root, at): (Rank, Location)| {
            let number = groups.number(subgroup, &at);
            groups.subgroup(subgroup.level, &at) != subgroup || groups.member(subgroup, number, None) == root
        };
        subgroup.level == 0 || self.place.root.is_none_or(is_usual)
    }

    /// Whether a subgroup of this rank has steps. A rank alone has nothing to do but to copy, as a stage does.
    fn has_steps(&self, subgroup: Subgroup) -> bool {
        self.group_levels.contains(subgroup.level)
            && self.place.hierarchy.members(subgroup) > 1
            && self.has_usual_members(subgroup)
    }

    fn push_group(&mut self, subgroup: Subgroup, moved: GroupMove) -> bool {
        let has_steps = self.has_steps(subgroup);
        if has_steps {
            self.push_step(subgroup, self.is_in_place(subgroup), moved);
        }
        has_steps
    }

    fn push_step(
        &mut self,
        subgroup: Subgroup,
        in_place: bool,
        GroupMove { collective, from, into, each, count, moves }: GroupMove,
    ) {
        let groups = &self.place.hierarchy;
        let span = |part: Option<(Place, u32)>| match part {
            None => BlockSpan::SIGNAL,
            Some(((buffer, first), blocks)) => BlockSpan::new(buffer, Blocks::range(first, blocks)),
        };
        let step = GroupStep {
            collective,
            level: subgroup.level,
            group: subgroup.group,
            members: groups.members(subgroup),
            number: groups.number(subgroup, &self.place.own),
            root: self.root_in(subgroup),
            in_place,
            each,
            from: span(from),
            into: span(into),
        };
        self.push(Part::Group(GroupPart { step, count, moves }));
    }
}

/// What the steps of a subgroup move.
struct GroupMove {
    collective: CollectiveKind,
    /// The blocks that this rank contributes, and where its result goes, of the first step.
    from: Option<(Place, u32)>,
    into: Option<(Place, u32)>,
    /// Blocks of each member where members have blocks; else 1.
    each: u32,
    /// The number of steps.
    count: u32,
    moves: Moves,
}
