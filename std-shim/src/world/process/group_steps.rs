//! Steps of composed collectives that this rank's subgroups execute in shared memory.

use unisono_core::collective::FailureCause;
use unisono_core::ids::{Rank as Member, StepId};
use unisono_core::schedule::{GroupLevels, GroupStep, Hierarchy};
use unisono_shmem::segment::Word;

use super::Process;
use crate::world::WORLD;
use crate::world::collective::engine::group_lane::{GroupLane, LaneEvent};
use crate::world::collective::engine::group_lanes::GroupLanes;
use crate::world::collective::engine::progress_table::CollectiveTable;
use crate::world::collective::engine::token_trees::{LeadersStep, TreeTask};
use crate::world::collective::intra_node::communicator_slots::{CommunicatorSlot, LeasedSlots};
use unisono_bootstrap::Rank;

impl CollectiveTable {
    /// A step of a collective has begun that a subgroup executes in shared memory when its turn comes.
    fn park(&mut self, collective: u32, step: StepId, operation: GroupStep) {
        let Some(running) = self.active.get(collective as usize).and_then(Option::as_ref) else { return };
        let context = running.executor.id().context;
        let Some(place) = running.executor.plan().group_step(step) else { return };
        let turn = running.start.first_turns.of(place.level).after(place.number);
        let Some(lane) = self.contexts.get_mut(context).and_then(|of| of.lanes.get_mut(place.level)) else { return };
        lane.park(turn, collective, step, operation);
        if !self.work.lanes.contains(&context) {
            self.work.lanes.push(context);
        }
    }

    /// Adds the words to wait on for the next event of the steps that groups execute.
    pub(in crate::world) fn lane_wait_words(&self, words: &mut Vec<(&'static Word, u32)>) {
        let contexts = self.work.lanes.iter().filter_map(|context| self.contexts.get(*context));
        words.extend(contexts.flat_map(|of| of.lanes.iter()).filter_map(GroupLane::wait_word));
    }

    /// Whether groups execute steps of collectives, or steps wait for their turn.
    pub(in crate::world) const fn has_group_steps(&self) -> bool {
        !self.work.lanes.is_empty()
    }
}

impl Process {
    /// A step of a collective has begun that a subgroup executes: in shared memory, or on the tree of the leaders.
    pub(super) fn start_group_step(&mut self, collective: u32, step: StepId, operation: GroupStep) {
        let GroupStep { level, from, into, .. } = operation;
        let Some(running) = self.collectives.get_mut(collective) else { return };
        let (plan, context, turns) =
            (running.executor.plan(), running.executor.id().context, running.start.first_turns);
        let Some((_, shape)) = plan.leaders_tree().filter(|(last, _)| *last == level) else {
            return self.collectives.park(collective, step, operation);
        };
        let number = plan.group_step(step).map_or(0, |place| place.number);
        let Some(of) = self.collectives.contexts.get_mut(context) else { return };
        let task = TreeTask { collective, step: Some(LeadersStep { step, from, into }) };
        of.lanes.leaders.park(turns.of(level).after(number), (shape, task));
        while let Some(of) = self.collectives.contexts.get_mut(context)
            && let Some((shape, task)) = of.lanes.leaders.next()
            && self.queue_tree_task(context, shape, task)
        {}
    }

    /// Opens the lanes of the World for this rank's subgroups: that of the ranks of a group in the areas of all ranks of
    /// the node, those of leaders in slots that no other communicator gets. Called if the ranks of the node agree that they
    /// share memory: otherwise ranks with a lane would wait there for ranks without one.
    pub(in crate::world) fn open_world_lanes(&mut self) {
        let of = self.collectives.contexts.get(WORLD).and_then(|of| of.subgroups.as_ref());
        let levels = of.map_or(GroupLevels::NONE, |of| of.slot_levels());
        let before = |level: u32| (1..level).filter(|below| levels.contains(*below)).count() as u32;
        let slots = LeasedSlots::of_world(before(Hierarchy::<()>::GROUPINGS as u32));
        self.collectives.communicator_slots.reserve(slots);
        self.collectives.contexts.get_mut(WORLD).into_iter().for_each(|of| of.slots = slots);
        self.open_lanes(
            WORLD,
            levels,
            |level| if level == 0 { Some(None) } else { Some(Some(slots.nth(before(level))?)) },
        );
    }

    /// Opens the lanes of another communicator, in its slots, the innermost level's in the first one; if these are not spare,
    /// those that the user has asked for. Called if all of its members agree that each shares memory with the ranks of its
    /// node. Returns the number of slots that it uses.
    pub(in crate::world) fn open_communicator_lanes(
        &mut self,
        context: u32,
        slots: LeasedSlots,
        are_spare: bool,
    ) -> u32 {
        let of = self.collectives.contexts.get(context).and_then(|of| of.subgroups.as_ref());
        let levels = of.map_or(GroupLevels::NONE, |of| if are_spare { of.slot_levels() } else { of.asked_levels() });
        let before = |level: u32| (0..level).filter(|below| levels.contains(*below)).count() as u32;
        self.open_lanes(context, levels, |level| Some(Some(slots.nth(before(level))?)));
        // Also where this rank leads nothing: the slot of the leaders' level is in use.
        before(Hierarchy::<()>::GROUPINGS as u32)
    }

    /// Opens a lane for each of the levels that has a slot, or `Some(None)` for the areas of all ranks of the
    /// node.
    fn open_lanes(
        &mut self,
        context: u32,
        levels: GroupLevels,
        slot: impl Fn(u32) -> Option<Option<CommunicatorSlot>>,
    ) {
        let Some(node) = self.transport.shm.as_ref().map(|shm| shm.node.clone()) else { return };
        let Some(of) = self.collectives.contexts.get_mut(context) else { return };
        let (Some(subgroups), Some(own)) = (&of.subgroups, of.members.number(self.rank)) else { return };
        let levels = (0..subgroups.hierarchy().levels()).filter(|level| levels.contains(*level));
        let mut lanes = GroupLanes::default();
        for (level, slot) in levels.filter_map(|level| Some((level, slot(level)?))) {
            let members = subgroups.hierarchy().subgroup_members(level, Member(own.0));
            let members = members.map(|rank| of.members.world_rank(Rank(rank.0))).collect::<Option<_>>();
            lanes.add(members.and_then(|members| GroupLane::new(&node, level, (context, slot), members, self.rank)));
        }
        of.lanes = lanes;
    }

    /// Executes steps of groups. Returns whether one is complete, or a collective has failed.
    pub(super) fn progress_lanes(&mut self, now: u64) -> bool {
        let (mut moved, mut next) = (false, 0);
        while let Some(context) = self.collectives.work.lanes.get(next).copied() {
            moved |= (0..Hierarchy::<()>::GROUPINGS as u32).any(|level| self.progress_lane(now, context, level));
            next += 1;
        }
        let CollectiveTable { work, contexts, .. } = &mut self.collectives;
        work.lanes.retain(|context| contexts.get(*context).is_some_and(|of| of.lanes.iter().any(GroupLane::is_busy)));
        moved
    }

    fn progress_lane(&mut self, now: u64, context: u32, level: u32) -> bool {
        let collectives = &mut self.collectives;
        let lane = collectives.contexts.get_mut(context).and_then(|of| of.lanes.get_mut(level));
        let Some(lane) = lane else { return false };
        let event = lane.advance(&mut collectives.active, self.transport.regions.get_mut());
        match event {
            LaneEvent::Done(collective, step) => self.finish_step(collective, step),
            LaneEvent::Panicked => self.fail_context(now, context, FailureCause::Missing, self.rank),
            LaneEvent::Failed(rank, failure) => self.fail_context(now, context, failure.cause, rank),
            LaneEvent::Invalid => self.fail_context(now, context, FailureCause::Corrupt, self.rank),
            LaneEvent::NoMemory => _ = self.collectives.report_exhausted(context),
            // It was polled after that rank's last act was known.
            LaneEvent::Waits(Some(rank)) if self.collectives.has_departed(rank.into(), context) => {
                self.fail_missing(now, rank.into(), context);
            }
            LaneEvent::Waits(_) => return false,
        }
        true
    }
}
