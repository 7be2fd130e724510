//! The subgroups of this rank in a communicator that execute steps of their own: one [`GroupLane`] for each level with
//! shared memory, and the turns of the leaders of the last level on their trees.

use unisono_core::collective::token_tree::header::TreeShape;
use unisono_core::collective::{CollectiveSpec, Lane, Turn};
use unisono_core::schedule::{GroupLevels, Hierarchy};

use super::group_lane::GroupLane;
use super::schedule::CachedSchedule;
use super::token_trees::TreeTask;

/// The lanes, the innermost level's first.
#[derive(Debug, Default)]
pub(in crate::world) struct GroupLanes {
    lanes: Vec<GroupLane>,
    pub(in crate::world) leaders: LeadersLane,
}

/// The turns of a collective's first steps, by level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::world) struct FirstTurns([Turn; Hierarchy::<()>::GROUPINGS + 1]);

impl FirstTurns {
    /// The turn of its first step at this level.
    pub(in crate::world) fn of(&self, level: u32) -> Turn {
        let Self(turns) = self;
        turns.get(level as usize).copied().unwrap_or_default()
    }

    fn set(&mut self, level: u32, turn: Turn) {
        let Self(turns) = self;
        turns.iter_mut().skip(level as usize).take(1).for_each(|place| *place = turn);
    }
}

/// The steps of the leaders of the last level, which enter their trees in the same order on all of them.
#[derive(Debug, Default)]
pub(in crate::world) struct LeadersLane {
    turns: Lane,
    /// Those that have begun and wait for their turn.
    parked: Vec<(Turn, (TreeShape, TreeTask))>,
}

impl LeadersLane {
    /// A step has begun.
    pub(in crate::world) fn park(&mut self, turn: Turn, task: (TreeShape, TreeTask)) {
        self.parked.push((turn, task));
    }

    /// The next step that may enter its tree, and the tree's shape.
    pub(in crate::world) fn next(&mut self) -> Option<(TreeShape, TreeTask)> {
        let next = self.parked.iter().position(|(turn, _)| self.turns.is_next(*turn))?;
        self.turns.leave();
        Some(self.parked.swap_remove(next).1)
    }

    /// Whether a step of a collective waits for its turn.
    pub(in crate::world) fn has_parked(&self, collective: u32) -> bool {
        self.parked.iter().any(|(_, (_, task))| task.collective == collective)
    }

    /// Whether the step of this turn is the next one.
    pub(in crate::world) fn is_next(&self, turn: Turn) -> bool {
        self.turns.is_next(turn)
    }
}

impl GroupLanes {
    /// Adds the lane of a level above those before.
    pub(in crate::world) fn add(&mut self, lane: Option<GroupLane>) {
        self.lanes.extend(lane);
    }

    pub(in crate::world) fn iter(&self) -> impl Iterator<Item = &GroupLane> {
        self.lanes.iter()
    }

    pub(in crate::world) fn get_mut(&mut self, level: u32) -> Option<&mut GroupLane> {
        self.lanes.iter_mut().find(|lane| lane.level() == level)
    }

    /// The levels whose subgroups can execute their part of this collective in shared memory, of any length.
    pub(in crate::world) fn levels(&self, plan: &CollectiveSpec) -> GroupLevels {
        let able = self.iter().filter(|lane| lane.supports(plan));
        able.fold(GroupLevels::NONE, |levels, lane| levels.with(lane.level()))
    }

    /// A collective with this schedule starts.
    pub(in crate::world) fn enter(&mut self, schedule: &CachedSchedule) -> FirstTurns {
        let mut turns = FirstTurns::default();
        for lane in &mut self.lanes {
            turns.set(lane.level(), lane.enter(schedule.group_steps_of(lane.level())));
        }
        if let Some((level, _)) = schedule.leaders_tree() {
            turns.set(level, self.leaders.turns.enter(schedule.group_steps_of(level)));
        }
        turns
    }
}
