//! The subgroups of this rank in a communicator that execute their steps in shared memory: one [`GroupLane`] for each level.

use unisono_core::collective::{CollectiveSpec, Turn};
use unisono_core::schedule::{GroupLevels, Hierarchy};

use super::group_lane::GroupLane;
use super::schedule::CachedSchedule;

/// The lanes, the innermost level's first.
#[derive(Debug, Default)]
pub(in crate::world) struct GroupLanes(Vec<GroupLane>);

/// The turns of a collective's first steps, by level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::world) struct FirstTurns([Turn; Hierarchy::<()>::GROUPINGS]);

impl FirstTurns {
    /// The turn of its first step at this level.
    pub(in crate::world) fn of(&self, level: u32) -> Turn {
        let Self(turns) = self;
        turns.get(level as usize).copied().unwrap_or_default()
    }
}

impl GroupLanes {
    /// Adds the lane of a level above those before.
    pub(in crate::world) fn add(&mut self, lane: Option<GroupLane>) {
        self.0.extend(lane);
    }

    pub(in crate::world) fn iter(&self) -> impl Iterator<Item = &GroupLane> {
        self.0.iter()
    }

    pub(in crate::world) fn get_mut(&mut self, level: u32) -> Option<&mut GroupLane> {
        self.0.iter_mut().find(|lane| lane.level() == level)
    }

    /// The levels whose subgroups can execute their part of this collective, of any length.
    pub(in crate::world) fn levels(&self, plan: &CollectiveSpec) -> GroupLevels {
        let able = self.iter().filter(|lane| lane.supports(plan));
        able.fold(GroupLevels::NONE, |levels, lane| levels.with(lane.level()))
    }

    /// A collective with this schedule starts.
    pub(in crate::world) fn enter(&mut self, schedule: &CachedSchedule) -> FirstTurns {
        let FirstTurns(mut turns) = FirstTurns::default();
        for lane in &mut self.0 {
            let first = lane.enter(schedule.group_steps_of(lane.level()));
            turns.iter_mut().skip(lane.level() as usize).take(1).for_each(|turn| *turn = first);
        }
        FirstTurns(turns)
    }
}
