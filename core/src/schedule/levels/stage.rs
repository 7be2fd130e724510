//! One stage: the schedule of a basic collective in a subgroup, with its ranks and blocks translated.

use super::arrivals::Arrivals;
use crate::schedule::hierarchy::{Location, Subgroup};
use crate::schedule::radix::{quotient, remainder};
use crate::schedule::{
    BlockBuffer, BlockSpan, Blocks, Fold, GroupStep, Hierarchy, Plan, Rank, Step, StepOperation, dependencies,
};

/// The groups, the place of the root and of this rank, and how its leader's blocks arrive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Placement<T> {
    pub(super) hierarchy: Hierarchy<T>,
    pub(super) root: Option<(Rank, Location)>,
    pub(super) own: Location,
    /// If they go down the levels in parts.
    pub(super) arrivals: Option<Arrivals>,
}

/// The blocks that one block of the subgroup's schedule stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Unit {
    /// This many blocks.
    Blocks(u32),
    /// One block. A part has `blocks` of the `of` blocks of a vector; the schedule's scratch repeats the part, and the
    /// memory the vector.
    Part { blocks: u32, of: u32 },
    /// The blocks of the ranks that the member with the block's number stands for, by position. A schedule's scratch
    /// repeats them.
    Member,
    /// The blocks of the ranks that this rank stands for: the schedule has one block here.
    Own,
    /// A row of this many blocks for each rank that the member with the block's number stands for, by position.
    Rows(u32),
    /// In each of `rows` rows of `width` blocks, those of the ranks that the member stands for, by position.
    Columns { rows: u32, width: u32 },
}

/// Where a buffer of the subgroup's schedule is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct View {
    pub(super) buffer: BlockBuffer,
    /// The first block.
    pub(super) offset: u32,
    pub(super) unit: Unit,
}

/// The members of a basic collective.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Members {
    /// Those of a subgroup.
    Of(Subgroup),
    /// The ranks at the positions from `first` on that are `stride` apart.
    Every { first: u32, stride: u32 },
}

/// A basic collective, or some adjacent steps of its schedule.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Stage {
    /// One segment.
    pub(super) plan: Plan,
    /// The first step, and the number of steps.
    pub(super) steps: (u32, u32),
    pub(super) members: Members,
    pub(super) input: View,
    pub(super) output: View,
    pub(super) scratch: View,
}

/// What each of several collectives moves.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Moves {
    /// The blocks after those of the one before.
    Blocks,
    /// A part of [`Arrivals`].
    Arrivals,
}

/// Collectives of one of this rank's subgroups by other means than messages: one per block or part, or one for all blocks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct GroupPart {
    /// The first one.
    pub(super) step: GroupStep,
    /// Their number.
    pub(super) count: u32,
    pub(super) moves: Moves,
}

impl GroupPart {
    fn step<T: AsRef<[u32]>>(&self, place: &Placement<T>, i: u32, segment: u32) -> Step {
        let at = |span: BlockSpan| match (span.blocks.is_empty(), self.moves) {
            (true, _) => span,
            (false, Moves::Blocks) => BlockSpan { blocks: span.blocks.shifted(i), ..span },
            (false, Moves::Arrivals) => BlockSpan { blocks: place.arrived(i), ..span },
        };
        let step = GroupStep { from: at(self.step.from), into: at(self.step.into), ..self.step };
        Step { operation: StepOperation::Group(step.placed(segment)), dependencies: 0 }
    }
}

/// A part of a schedule.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Part {
    Stage(Stage),
    /// The stage once for each part of [`Arrivals`].
    InParts(Stage),
    Group(GroupPart),
    /// Copies one block.
    Copy {
        from: (BlockBuffer, u32),
        into: (BlockBuffer, u32),
    },
    /// Combines the result of the groups before, from the left, with this rank's operand in the scan of a subgroup.
    Prepend {
        before: (BlockBuffer, u32),
        operand: (BlockBuffer, u32),
    },
    /// Copies each block from its rank's number to its rank's position.
    Sort {
        from: (BlockBuffer, u32),
        into: (BlockBuffer, u32),
    },
    /// Copies each block from its rank's position to its rank's number.
    Unsort {
        from: (BlockBuffer, u32),
        into: (BlockBuffer, u32),
    },
}

impl Part {
    pub(super) fn len<T: AsRef<[u32]>>(&self, place: &Placement<T>) -> u32 {
        match self {
            Self::Stage(stage) => stage.steps.1,
            Self::InParts(stage) => stage.plan.steps().wrapping_mul(place.arrivals()),
            Self::Group(part) => part.count,
            Self::Copy { .. } | Self::Prepend { .. } => 1,
            Self::Sort { .. } | Self::Unsort { .. } => place.hierarchy.ranks(),
        }
    }

    /// Whether it is a collective in this subgroup.
    pub(super) fn is_of(&self, subgroup: Subgroup) -> bool {
        matches!(self, Self::Stage(stage) if stage.members == Members::Of(subgroup))
    }

    /// Step `i` for a segment.
    pub(super) fn step<T: AsRef<[u32]>>(&self, place: &Placement<T>, i: u32, segment: u32) -> Option<Step> {
        let (from, into) = match *self {
            Self::Stage(ref stage) => return stage.step(place, i, segment),
            Self::InParts(ref stage) => return stage.step_of_part(place, i, segment),
            Self::Group(ref part) => return Some(part.step(place, i, segment)),
            Self::Copy { from, into } | Self::Prepend { before: from, operand: into } => ((from, 0), (into, 0)),
            Self::Sort { from, into } => ((from, place.hierarchy.rank_at(i).0), (into, i)),
            Self::Unsort { from, into } => ((from, i), (into, place.hierarchy.rank_at(i).0)),
        };
        let span = |((buffer, offset), block): ((BlockBuffer, u32), u32)| BlockSpan {
            buffer,
            blocks: Blocks::one(block.wrapping_add(offset)),
            segment,
        };
        let (from, into) = (span(from), span(into));
        let fold = if mutant!("groups_before_behind") { Fold::Right } else { Fold::Left };
        let operation = match self {
            Self::Prepend { .. } => StepOperation::Reduce { from, into, fold },
            _ => StepOperation::Copy { from, into },
        };
        Some(Step { operation, dependencies: 0 })
    }
}

impl<T: AsRef<[u32]>> Placement<T> {
    /// The number of parts that go down the levels.
    fn arrivals(&self) -> u32 {
        self.arrivals.as_ref().map_or(0, Arrivals::parts)
    }

    /// The blocks of a part.
    fn arrived(&self, part: u32) -> Blocks {
        self.arrivals.as_ref().and_then(|arrivals| arrivals.blocks(self, part)).unwrap_or(Blocks::NONE)
    }
}

impl Stage {
    /// A whole collective in a subgroup, with its input, output and scratch.
    pub(super) const fn new(plan: Plan, subgroup: Subgroup, [input, output, scratch]: [View; 3]) -> Self {
        let steps = (0, plan.steps());
        Self { plan, steps, members: Members::Of(subgroup), input, output, scratch }
    }

    fn step<T: AsRef<[u32]>>(&self, place: &Placement<T>, i: u32, segment: u32) -> Option<Step> {
        self.translate(place, i, segment, |blocks| BlockSpan { segment, ..self.span(place, blocks) })
    }

    /// Step `i` where the stage is executed once for each part: all its steps of one part before those of the next one.
    fn step_of_part<T: AsRef<[u32]>>(&self, place: &Placement<T>, i: u32, segment: u32) -> Option<Step> {
        let each = self.plan.steps();
        let part = quotient(i, each);
        let blocks = place.arrived(part);
        let turn = segment.wrapping_mul(place.arrivals()).wrapping_add(part);
        let span = |_| BlockSpan { buffer: self.output.buffer, blocks, segment };
        self.translate(place, remainder(i, each), turn, span)
    }

    /// A step of the plan with its ranks translated, in the `turn`th execution of the plan.
    fn translate<T: AsRef<[u32]>>(
        &self,
        place: &Placement<T>,
        i: u32,
        turn: u32,
        span: impl Fn(BlockSpan) -> BlockSpan,
    ) -> Option<Step> {
        let (first, _) = self.steps;
        let Step { operation, dependencies } = self.plan.step(first.wrapping_add(i))?;
        let rank = |number: Rank| match self.members {
            Members::Of(subgroup) => place.hierarchy.member(subgroup, number.0, place.root),
            Members::Every { first, stride } => {
                place.hierarchy.rank_at(first.wrapping_add(number.0.wrapping_mul(stride)))
            }
        };
        // Two ranks are members of one subgroup at most, whose trees up and down have the same root, and whose scan
        // sends to higher numbers: one of them sends to the other in one stage only.
        let unique = |key: u32| turn.wrapping_mul(self.plan.keys).wrapping_add(key);
        let operation = match operation {
            StepOperation::Send { to, port, key, from } => {
                StepOperation::Send { to: rank(to), port, key: unique(key), from: span(from) }
            }
            StepOperation::Receive { of, port, key, into } => {
                StepOperation::Receive { of: rank(of), port, key: unique(key), into: span(into) }
            }
            StepOperation::Copy { from, into } => StepOperation::Copy { from: span(from), into: span(into) },
            StepOperation::Reduce { from, into, fold } => {
                StepOperation::Reduce { from: span(from), into: span(into), fold }
            }
            // No basic collective has groups.
            StepOperation::Group(_) => return None,
        };
        // Those on steps before the first one are found again by the blocks that they access.
        Some(Step { operation, dependencies: dependencies & dependencies::steps(i, 0, i) })
    }

    fn span<T: AsRef<[u32]>>(&self, place: &Placement<T>, span: BlockSpan) -> BlockSpan {
        let view = match span.buffer {
            BlockBuffer::Input => &self.input,
            BlockBuffer::Output => &self.output,
            BlockBuffer::Scratch => &self.scratch,
        };
        BlockSpan { buffer: view.buffer, blocks: self.blocks(place, view, span.blocks), ..span }
    }

    /// Blocks of the subgroup's schedule as blocks of the whole collective. Sets of more than two runs need blocks of
    /// one unit; columns are those of adjacent blocks.
    pub(super) fn blocks<T: AsRef<[u32]>>(&self, place: &Placement<T>, view: &View, blocks: Blocks) -> Blocks {
        let at = |block: u32| self.first(place, view, block);
        let range = |(first, run): (u32, u32)| match view.unit {
            // Of one repetition.
            Unit::Part { .. } => (at(first), run),
            _ => (at(first), at(first.wrapping_add(run)).wrapping_sub(at(first))),
        };
        let each = match view.unit {
            Unit::Blocks(each) => Some(each),
            Unit::Part { .. } => Some(1),
            _ => None,
        };
        if let (Some(each), 2.., Blocks::UNWRAPPED) = (each, blocks.count, blocks.modulus) {
            let times = |n: u32| n.wrapping_mul(each);
            let (run, stride, last) = (times(blocks.run), times(blocks.stride), times(blocks.last));
            return Blocks { first: at(blocks.first), run, stride, last, ..blocks };
        }
        if let Unit::Columns { rows, width } = view.unit {
            let (first, run) = range((blocks.first, blocks.len()));
            return Blocks { first, run, stride: width, count: rows, last: run, modulus: Blocks::UNWRAPPED };
        }
        let mut runs = blocks.runs();
        let Some(one) = runs.next().map(range) else { return Blocks::NONE };
        let Some(two) = runs.next().map(range) else { return Blocks::range(one.0, one.1) };
        let modulus = one.0.wrapping_add(one.1).max(two.0.wrapping_add(two.1));
        let stride = remainder(two.0.wrapping_add(modulus).wrapping_sub(one.0), modulus);
        Blocks { first: one.0, run: one.1, stride, count: 2, last: two.1, modulus }
    }

    /// The first block after its scratch.
    pub(super) fn scratch_end<T: AsRef<[u32]>>(&self, place: &Placement<T>) -> u32 {
        match (self.plan.scratch_blocks(), self.scratch.unit) {
            (0, _) => 0,
            (used, Unit::Part { .. }) => self.first(place, &self.scratch, used.wrapping_sub(1)).wrapping_add(1),
            (used, _) => self.first(place, &self.scratch, used),
        }
    }

    /// The first block of block `block` of the subgroup's schedule.
    fn first<T: AsRef<[u32]>>(&self, place: &Placement<T>, view: &View, block: u32) -> u32 {
        let groups = &place.hierarchy;
        let subgroup = match self.members {
            Members::Of(subgroup) => subgroup,
            // Its units are blocks.
            Members::Every { .. } => groups.top(),
        };
        let members = groups.members(subgroup);
        let from_first = |number| groups.start(subgroup, number).wrapping_sub(groups.start(subgroup, 0));
        let at = match view.unit {
            Unit::Blocks(each) => block.wrapping_mul(each),
            Unit::Part { blocks, of } => {
                quotient(block, blocks).wrapping_mul(of).wrapping_add(remainder(block, blocks))
            }
            // The end of the last member's blocks is not the start of the first one's in the next repetition.
            Unit::Member => match block.checked_sub(1) {
                None => groups.start(subgroup, 0),
                Some(before) => {
                    let number = remainder(before, members).wrapping_add(1);
                    let repeated = quotient(before, members).wrapping_mul(groups.ranks());
                    groups.start(subgroup, number).wrapping_add(repeated)
                }
            },
            Unit::Rows(each) => from_first(block).wrapping_mul(each),
            Unit::Columns { .. } => from_first(block),
            Unit::Own => groups.start(subgroup, groups.number(subgroup, &place.own).wrapping_add(block)),
        };
        at.wrapping_add(view.offset)
    }
}
