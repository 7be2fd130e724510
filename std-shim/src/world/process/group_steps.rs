//! Steps of composed collectives that this rank's innermost group executes in shared memory.

use unisono_core::collective::FailureCause;
use unisono_core::ids::{Rank as Member, StepId};
use unisono_core::schedule::GroupStep;
use unisono_shmem::segment::Word;

use super::Process;
use crate::environment::GroupMeans;
use crate::world::collective::engine::group_lane::{GroupLane, LaneEvent};
use crate::world::collective::engine::progress_table::CollectiveTable;
use crate::world::collective::intra_node::communicator_slots::CommunicatorSlot;
use unisono_bootstrap::Rank;

impl CollectiveTable {
    /// A step of a collective has begun that its group executes when its turn comes.
    pub(super) fn park(&mut self, collective: u32, step: StepId, operation: GroupStep) {
        let Some(running) = self.active.get(collective as usize).and_then(Option::as_ref) else { return };
        let context = running.executor.id().context;
        let number = running.executor.plan().group_steps().binary_search(&step.0).ok();
        let turn = number.and_then(|number| Some(running.start.first_turn?.after(number as u32)));
        let lane = self.contexts.get_mut(context).and_then(|of| of.lane.as_mut());
        let (Some(turn), Some(lane)) = (turn, lane) else { return };
        lane.park(turn, collective, step, operation);
        if !self.work.lanes.contains(&context) {
            self.work.lanes.push(context);
        }
    }

    /// Adds the words to wait on for the next event of the steps that groups execute.
    pub(in crate::world) fn lane_wait_words(&self, words: &mut Vec<(&'static Word, u32)>) {
        let lane_of = |context: &u32| self.contexts.get(*context)?.lane.as_ref();
        words.extend(self.work.lanes.iter().filter_map(lane_of).filter_map(GroupLane::wait_word));
    }

    /// Whether groups execute steps of collectives, or steps wait for their turn.
    pub(in crate::world) const fn has_group_steps(&self) -> bool {
        !self.work.lanes.is_empty()
    }
}

impl Process {
    /// Opens the lane of a communicator for this rank's innermost group, in its slot or for the World. Returns whether
    /// there is one. Called if the ranks of the group agree that they share memory: otherwise ranks with a lane would
    /// wait there for ranks without one. A slot that is not spare is taken only if the user asks for slots.
    pub(in crate::world) fn open_lane(&mut self, context: u32, slot: Option<(CommunicatorSlot, bool)>) -> bool {
        let Some(node) = self.transport.shm.as_ref().map(|shm| shm.node.clone()) else { return false };
        let Some(of) = self.collectives.contexts.get_mut(context) else { return false };
        let (Some(subgroups), Some(own)) = (&of.subgroups, of.members.number(self.rank)) else { return false };
        let is_available = slot.is_none_or(|(_, is_spare)| is_spare);
        match subgroups.innermost() {
            GroupMeans::Slots => {}
            GroupMeans::Auto if is_available => {}
            GroupMeans::Auto | GroupMeans::Messages => return false,
        }
        let group = subgroups.hierarchy().innermost_group(Member(own.0));
        let members = group.map(|rank| of.members.world_rank(Rank(rank.0))).collect::<Option<_>>();
        of.lane = members
            .and_then(|members| GroupLane::new(&node, (context, slot.map(|(slot, _)| slot)), members, self.rank));
        of.lane.is_some()
    }

    /// Executes steps of groups. Returns whether one is complete, or a collective has failed.
    pub(super) fn progress_lanes(&mut self, now: u64) -> bool {
        let (mut moved, mut next) = (false, 0);
        while let Some(context) = self.collectives.work.lanes.get(next).copied() {
            moved |= self.progress_lane(now, context);
            next += 1;
        }
        let CollectiveTable { work, contexts, .. } = &mut self.collectives;
        work.lanes.retain(|context| {
            let lane = contexts.get(*context).and_then(|of| of.lane.as_ref());
            lane.is_some_and(GroupLane::is_busy)
        });
        moved
    }

    fn progress_lane(&mut self, now: u64, context: u32) -> bool {
        let collectives = &mut self.collectives;
        let lane = collectives.contexts.get_mut(context).and_then(|of| of.lane.as_mut());
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
