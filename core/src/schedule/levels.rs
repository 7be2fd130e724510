//! Composition of schedules over nested subgroups.
//!
//! One rank's steps are those of a few *stages*, each the schedule of a basic collective in one of its subgroups
//! (Graham et al. 2010, §3): up the levels to the leaders, a collective among the leaders of the last level, and down
//! again. An allreduce is a reduce, an allreduce of the leaders and a broadcast; an allgather is a gather, an allgather
//! of the leaders and a broadcast (Qian & Afsahi 2008, §5.2); a broadcast goes to the leaders first (Mamidala 2008,
//! §6.3); an alltoall is a gather of all blocks, an alltoall of the leaders and a scatter; a scan is a reduce, an exclusive
//! scan of the leaders, and scans to which each leader contributes the groups before, too. The root leads its subgroups.
//!
//! Levels are not separated by a wait: a step depends on exactly those steps of earlier stages that access the same
//! blocks, so that a leader forwards what it has received while other messages of that stage are under way.
//!
//! The blocks of an allgather go down the levels in [parts](HierarchyOptions::in_parts), each as soon as it has arrived at
//! the leader (Mamidala 2008, §6.2); so do those of a broadcast that ends with an allgather.
//!
//! With [several leaders](Leaders::All) each rank of a group takes a part of the vector to the other groups.
//!
//! Where the members of a subgroup have other means than messages, such as shared memory, its stages are
//! [`GroupStep`](super::GroupStep)s instead: the schedules of the other subgroups do not change.
//!
//! Stages move blocks in the order of *positions* ([`Hierarchy`](super::Hierarchy)), in which every subgroup's blocks are
//! contiguous. If that is not the order of ranks, some leaders collect blocks in scratch and sort them.

mod arrivals;
mod build;
mod conflict;
mod grouped;
mod parallel;
mod scan;
mod stage;

use super::hierarchy::GROUPINGS;
use super::radix::{quotient, remainder};
use super::{BlockBuffer, BlockSpan, Blocks, Rank, Schedule, Spec, Step, StepOperation, dependencies};
use crate::collective::CollectiveKind;
use stage::{Members, Part, Placement};

pub(super) use build::most_composed_segments;
pub(super) use parallel::algorithm_of_parts;

/// The most parts, those of a scan: a copy, and for each grouping a stage up, one operation and a stage down, and one stage
/// of the leaders.
const PARTS: usize = 3 * GROUPINGS + 2;

/// The trees of the levels below the last one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LowerTrees {
    /// Base of the trees, 2 to [`Plan::PORTS`](super::Plan::PORTS) + 1.
    pub radix: u8,
    /// Concurrent messages of a rank.
    pub ports: u8,
}

/// How a schedule over subgroups is composed; equal on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HierarchyOptions {
    /// The trees of the levels below the last one.
    pub lower: LowerTrees,
    /// Whether the leaders' allgather, also the one that ends a broadcast, goes down the levels in parts: the leader's own
    /// block, then the blocks of each message in the order in which it receives them. Else all blocks go down at once.
    /// Not if leaders sort blocks.
    pub in_parts: bool,
    /// The leaders of each group of the last level.
    pub leaders: Leaders,
}

/// The ranks of a group that take part between the groups of the last level.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Leaders {
    /// One rank leads each group.
    One,
    /// Each rank of a group leads a part of the vector, in a broadcast, reduce or allreduce over groups of one size; else
    /// one rank leads.
    All,
}

impl From<LowerTrees> for HierarchyOptions {
    /// One leader, and nothing in parts.
    fn from(lower: LowerTrees) -> Self {
        Self { lower, in_parts: false, leaders: Leaders::One }
    }
}

/// A set of levels, those at which a rank's subgroups have other means than messages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct GroupLevels(u8);

impl GroupLevels {
    /// No level.
    pub const NONE: Self = Self(0);
    /// The ranks of innermost groups.
    pub const INNERMOST: Self = Self(1);

    /// This level, too. Those above the last one are in no set.
    #[must_use]
    pub const fn with(self, level: u32) -> Self {
        if level <= GROUPINGS as u32 { Self(self.0 | 1_u8.wrapping_shl(level)) } else { self }
    }

    /// The same set without this level.
    #[must_use]
    pub const fn without(self, level: u32) -> Self {
        Self(self.0 & !Self::NONE.with(level).0)
    }

    /// Whether a level is in the set.
    pub const fn contains(self, level: u32) -> bool {
        level <= GROUPINGS as u32 && self.0.wrapping_shr(level) & 1 == 1
    }
}

/// One rank's schedule over nested subgroups.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HierarchicalPlan<T> {
    spec: Spec,
    place: Placement<T>,
    /// Where this rank's subgroups execute their collectives by other means than messages.
    group_levels: GroupLevels,
    parts: [Option<Part>; PARTS],
    blocks: u32,
    scratch: u32,
    /// Steps per segment.
    steps: u32,
    /// A copy for each segment after all segments, from this block of scratch: the result overlays memory that other
    /// segments still read.
    last: Option<u32>,
}

impl<T: AsRef<[u32]>> HierarchicalPlan<T> {
    /// The specification: its algorithm, ports and radix are those of the leaders of the last level.
    pub const fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Levels of subgroups: two to six.
    pub fn levels(&self) -> u32 {
        self.place.hierarchy.levels()
    }

    /// Subgroups of the last level, each with a leader.
    pub fn leaders(&self) -> u32 {
        self.place.hierarchy.members(self.place.hierarchy.top())
    }

    /// Whether all ranks of a group lead, each a part of the vector.
    pub fn all_lead(&self) -> bool {
        let is_parallel =
            |part: &Part| matches!(part, Part::Stage(stage) if matches!(stage.members, Members::Every { .. }));
        self.parts.iter().flatten().any(is_parallel)
    }

    /// Whether the blocks that the leaders collect go down the levels in parts.
    pub const fn is_in_parts(&self) -> bool {
        self.place.arrivals.is_some()
    }

    /// The number of blocks in a whole buffer, as [`Plan::blocks`](super::Plan::blocks).
    pub const fn blocks(&self) -> u32 {
        self.blocks
    }

    /// The number of scratch blocks, as [`Plan::scratch_blocks`](super::Plan::scratch_blocks).
    pub const fn scratch_blocks(&self) -> u32 {
        self.scratch
    }

    /// Whether this rank has [`GroupStep`](super::GroupStep)s.
    pub fn has_group_steps(&self) -> bool {
        self.parts.iter().flatten().any(|part| matches!(part, Part::Group(_)))
    }

    /// Whether the leaders of the last level execute step `i` among themselves: a broadcast among them by other means
    /// replaces these steps.
    pub fn is_of_leaders(&self, i: u32) -> bool {
        let (number, mut before) = (remainder(i, self.steps), 0_u32);
        let is_within = i < self.steps.wrapping_mul(self.spec.segments);
        is_within
            && self.parts.iter().flatten().any(|part| {
                let first = before;
                before = first.wrapping_add(part.len(&self.place));
                part.is_of(self.place.hierarchy.top()) && (first..before).contains(&number)
            })
    }

    /// The operation of step `i` of a segment, its stage's first step, and its dependencies in the stage.
    fn locate(&self, i: u32, segment: u32) -> Option<(Step, u32)> {
        let mut before = 0_u32;
        for part in self.parts.iter().flatten() {
            let after = before.wrapping_add(part.len(&self.place));
            if i < after {
                return Some((part.step(&self.place, i.wrapping_sub(before), segment)?, before));
            }
            before = after;
        }
        None
    }

    /// Whether input and output share memory.
    fn is_shared(&self) -> bool {
        self.spec.in_place
    }
}

impl<T: AsRef<[u32]>> Schedule for HierarchicalPlan<T> {
    fn collective(&self) -> CollectiveKind {
        self.spec.collective
    }

    fn steps(&self) -> u32 {
        self.steps.wrapping_add(u32::from(self.last.is_some())).wrapping_mul(self.spec.segments)
    }

    /// Pure: any step, in any order. The first steps of a stage compute up to 64 steps of the stages before.
    fn step(&self, i: u32) -> Option<Step> {
        if i >= self.steps() {
            return None;
        }
        if let (Some(segment), Some(block)) = (i.checked_sub(self.steps.wrapping_mul(self.spec.segments)), self.last) {
            let from = BlockSpan { buffer: BlockBuffer::Scratch, blocks: Blocks::one(block), segment };
            let into = BlockSpan { buffer: BlockBuffer::Output, blocks: Blocks::one(0), segment };
            return Some(Step {
                operation: StepOperation::Copy { from, into },
                dependencies: dependencies::steps(i, 0, i),
            });
        }
        let (segment, number) = (quotient(i, self.steps), remainder(i, self.steps));
        let (Step { operation, dependencies }, before) = self.locate(number, segment)?;
        let earlier = number.saturating_sub(u64::BITS)..before;
        let joined = earlier.filter(|earlier| {
            self.locate(*earlier, segment)
                .is_some_and(|(step, _)| conflict::conflicts(&step.operation, &operation, self.is_shared()))
        });
        let joined = joined.fold(0, |mask, earlier| mask | dependencies::step(number, earlier));
        Some(Step { operation, dependencies: dependencies | joined })
    }
}

/// The root of a rooted collective.
const fn root_of(spec: &Spec) -> Option<Rank> {
    if spec.collective.is_rooted() { Some(spec.root) } else { None }
}
