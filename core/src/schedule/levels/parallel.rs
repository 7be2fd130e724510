//! Several leaders in each group: every rank takes its part of the vector to the other groups.
//!
//! An allreduce is a reduce-scatter in the group, an allreduce of part i among the i-th ranks of all groups, and an allgather
//! in the group; a broadcast is a scatter in the root's group, broadcasts, and an allgather; a reduce ends with a gather in
//! the root's group. The ranks of a node thus share the work of combining, each a part (Mamidala 2008, §9.2.2), also
//! between nodes, and the bytes between groups are those of one leader.
//!
//! The stages in a group are the steps of one schedule before and after those that leave each rank with its part, or two
//! [`GroupStep`](crate::schedule::GroupStep)s, of the same parts.

use super::build::{INPUT, OUTPUT, Place, view};
use super::stage::{Members, Part, Stage, Unit};
use super::{HierarchicalPlan, LowerTrees};
use crate::collective::CollectiveKind;
use crate::schedule::radix::remainder;
use crate::schedule::{Algorithm, BlockBuffer, Plan, Rank, Spec, Unsupported};

/// The schedule of this rank in its group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parallel {
    plan: Plan,
    /// Its steps that leave each rank with its part.
    before: u32,
}

/// The algorithm in a group of `size` ranks by which each rank has its own part for a while. `None`: the collective has
/// none.
pub(in crate::schedule) fn algorithm_of_parts(
    collective: CollectiveKind,
    lower: LowerTrees,
    size: u32,
) -> Option<Algorithm> {
    let base = u32::from(lower.ports).wrapping_add(1);
    let is_power = size == base.saturating_pow(size.checked_ilog(base).unwrap_or(0));
    match collective {
        CollectiveKind::Broadcast => Some(Algorithm::Bruck),
        CollectiveKind::Reduce | CollectiveKind::Allreduce if is_power => Some(Algorithm::Halving),
        CollectiveKind::Reduce | CollectiveKind::Allreduce => Some(Algorithm::Ring),
        _ => None,
    }
}

impl<T: AsRef<[u32]>> HierarchicalPlan<T> {
    /// The schedule in this rank's group, if each of its ranks can lead a part.
    pub(super) fn parallel(&self, lower: LowerTrees) -> Option<Parallel> {
        let size = self.place.hierarchy.ranks_of_each_group()?;
        let (own, is_root) = (self.place.own.position(), self.spec.rank == self.spec.root);
        let spec = Spec {
            algorithm: algorithm_of_parts(self.spec.collective, lower, size)?,
            rank: Rank(remainder(own, size)),
            size,
            root: Rank(self.root_position().map_or(0, |root| remainder(root, size))),
            ports: lower.ports,
            radix: lower.ports.saturating_add(1),
            segments: 1,
            in_place: self.spec.in_place && (is_root || self.spec.collective == CollectiveKind::Allreduce),
            varying: false,
            ..self.spec
        };
        let plan = Plan::new(spec).ok()?;
        Some(Parallel { plan, before: plan.steps_before_collecting()? })
    }

    /// Composes a broadcast, reduce or allreduce with all ranks as leaders; `between` is the collective among the i-th
    /// ranks of all groups.
    pub(super) fn with_all_leaders(&mut self, group: Parallel, between: Spec) -> Result<(), Unsupported> {
        let Parallel { plan, before } = group;
        let (size, number) = (plan.spec().size, plan.spec().rank.0);
        let collective = self.spec.collective;
        let is_reduction = collective != CollectiveKind::Broadcast;
        let between = Plan::new(Spec { in_place: is_reduction, ..between })?;
        let blocks = between.blocks();
        self.blocks = blocks.wrapping_mul(size);
        let own = self.place.own.position();
        let is_in_root_group = collective == CollectiveKind::Allreduce
            || self
                .root_position()
                .is_some_and(|root| root.wrapping_sub(remainder(root, size)) == own.wrapping_sub(number));
        let (sum, output, free) = self.places(&plan);
        let with_steps = self.group_of_parts();
        // Scratch repeats the vector from a multiple of its blocks on.
        let used = match with_steps {
            None => plan.scratch_blocks().div_ceil(size).wrapping_mul(self.blocks).wrapping_add(free),
            Some(_) if sum == OUTPUT => 0,
            Some(_) => self.blocks,
        };
        let unit = Unit::Blocks(blocks);
        let stage = |steps| {
            let members = Members::Every { first: own.wrapping_sub(number), stride: 1 };
            let scratch = view((BlockBuffer::Scratch, free), unit);
            Part::Stage(Stage { plan, steps, members, input: view(INPUT, unit), output: view(output, unit), scratch })
        };
        match with_steps {
            _ if !is_reduction && !is_in_root_group => {}
            Some(group) => self.group_scatter_parts(group, sum, blocks),
            None => self.push(stage((0, before))),
        }
        let led = if mutant!("same_part_led") { 0 } else { number };
        let part = |(buffer, first): Place| {
            let unit = Unit::Part { blocks, of: blocks.wrapping_mul(size) };
            view((buffer, led.wrapping_mul(blocks).wrapping_add(first)), unit)
        };
        self.push(Part::Stage(Stage {
            plan: between,
            steps: (0, between.steps()),
            members: Members::Every { first: number, stride: size },
            input: part(sum),
            output: part(sum),
            scratch: part((BlockBuffer::Scratch, used)),
        }));
        match with_steps {
            _ if is_reduction && !is_in_root_group => {}
            Some(group) => self.group_collect_parts(group, sum, blocks),
            None => self.push(stage((before, plan.steps().wrapping_sub(before)))),
        }
        self.scratch = self.scratch.max(used);
        Ok(())
    }

    /// Where the group's schedule leaves the rank's part, where its output is, and the first block of its scratch.
    fn places(&self, plan: &Plan) -> (Place, Place, u32) {
        let vector = (BlockBuffer::Scratch, 0);
        match self.spec.collective {
            CollectiveKind::Reduce if self.spec.rank == self.spec.root => (OUTPUT, OUTPUT, 0),
            // The rank that leads like the root in another group has no output.
            CollectiveKind::Reduce if plan.spec().rank == plan.spec().root => (vector, vector, self.blocks),
            CollectiveKind::Reduce => (vector, OUTPUT, 0),
            _ => (OUTPUT, OUTPUT, 0),
        }
    }

    fn root_position(&self) -> Option<u32> {
        self.place.root.map(|(_, at)| at.position())
    }
}
