//! A broadcast by multicast: by the stream of its root where the communicator's group is usable, else by a schedule.
//! Which of the two the root decides for each call; the other ranks follow what it sends. Where a node has several
//! ranks, one of them, its leader, takes part in the stream, and forwards the data by the steps of the same schedule
//! within the node (Mamidala 2008, §6.3).

use unisono_core::collective::{CollectiveMachine as _, Failure, FailureCause, Poll};
use unisono_core::ids::{CollectiveId, Rank as Member, StepId};
use unisono_core::schedule::{Executor, Schedule as _, StepOperation};

use super::schedule::CachedSchedule;

/// A call.
#[derive(Debug)]
pub(in crate::world) struct MulticastCall {
    /// The schedule that executes it without a group.
    pub(in crate::world) executor: Executor<CachedSchedule>,
    pub(in crate::world) stage: MulticastStage,
    /// The ranks that get the call by multicast themselves: it is not forwarded to them.
    pub(in crate::world) attached: Vec<Member>,
    /// Whether this rank is one of them.
    pub(in crate::world) is_attached: bool,
}

/// The stage of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) enum MulticastStage {
    /// It was started.
    Started,
    /// It waits until the root has decided.
    Undecided,
    /// The schedule executes it.
    Scheduled,
    /// The root queues its segments.
    Sending,
    /// Its segments arrive.
    Receiving,
    /// Its last segment is queued, or has arrived, and the schedule forwards the data to other ranks.
    Forwarding,
    /// It is complete.
    Complete,
    /// It has failed.
    Failed(Failure),
}

impl MulticastCall {
    /// A call that was not started.
    pub(super) const fn new(id: CollectiveId, plan: CachedSchedule) -> Self {
        Self {
            executor: Executor::new(id, plan),
            stage: MulticastStage::Complete,
            attached: Vec::new(),
            is_attached: false,
        }
    }

    pub(super) fn restart(&mut self, id: CollectiveId) {
        self.executor.restart(id);
        self.attached.clear();
        (self.stage, self.is_attached) = (MulticastStage::Started, false);
    }

    /// The rank in the communicator of the call's root.
    pub(in crate::world) fn root(&self) -> Member {
        self.executor.plan().root()
    }

    /// Whether this rank is the root.
    pub(in crate::world) fn is_root(&self) -> bool {
        self.executor.plan().rank() == self.root()
    }

    /// Whether this rank receives or sends by multicast: the others get the data by the schedule, unless they are
    /// attached.
    pub(in crate::world) fn uses_stream(&self) -> bool {
        let (plan, leaders) = (self.executor.plan(), self.executor.plan().leaders());
        leaders.is_empty() || leaders.contains(&plan.rank())
    }

    /// Its last segment is queued, or has arrived.
    pub(in crate::world) fn end_stream(&mut self) {
        let has_more = !self.executor.plan().leaders().is_empty();
        self.stage = if has_more { MulticastStage::Forwarding } else { MulticastStage::Complete };
    }

    /// Whether the schedule executes it, or the rest of it.
    pub(in crate::world) const fn is_scheduled(&self) -> bool {
        matches!(self.stage, MulticastStage::Scheduled | MulticastStage::Forwarding)
    }

    /// The executor, if the schedule executes it.
    pub(super) fn scheduled(&self) -> Option<&Executor<CachedSchedule>> {
        self.is_scheduled().then_some(&self.executor)
    }

    /// The leader from which this rank gets the data, if it is another one than the root.
    pub(in crate::world) fn leader(&self) -> Option<Member> {
        let mut sources = self.operations().filter_map(|operation| match operation {
            StepOperation::Receive { of, .. } => Some(of),
            _ => None,
        });
        let leader = sources.next()?;
        let is_leader = leader != self.root() && self.executor.plan().leaders().contains(&leader);
        (is_leader && sources.all(|source| source == leader)).then_some(leader)
    }

    /// The ranks to which this one, a leader, forwards the data.
    pub(in crate::world) fn forwards_to(&self) -> Vec<Member> {
        let receiver = |operation| match operation {
            StepOperation::Send { to, .. } => Some(to),
            _ => None,
        };
        let mut all: Vec<Member> = self.operations().filter_map(receiver).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The operations of the schedule that multicast does not replace for all ranks.
    fn operations(&self) -> impl Iterator<Item = StepOperation> + '_ {
        let plan = self.executor.plan();
        let steps = (0..plan.steps()).filter(|step| !plan.is_of_leaders(StepId(*step)));
        steps.filter_map(|step| Some(plan.step(step)?.operation))
    }

    /// Whether multicast replaces a step in this call.
    fn is_replaced(&self, step: StepId, operation: &StepOperation) -> bool {
        self.executor.plan().is_of_leaders(step)
            || match operation {
                StepOperation::Send { to, .. } => self.attached.contains(to),
                StepOperation::Receive { .. } => self.is_attached,
                StepOperation::Copy { .. } | StepOperation::Reduce { .. } | StepOperation::Group(_) => false,
            }
    }

    /// The next step that multicast has not replaced.
    fn forward(&mut self) -> Poll<StepOperation> {
        loop {
            match self.executor.poll() {
                Poll::Request(step, operation) if self.is_replaced(step, &operation) => self.executor.handle_done(step),
                turn => return turn,
            }
        }
    }

    pub(super) fn poll(&mut self) -> Poll<StepOperation> {
        match self.stage {
            MulticastStage::Scheduled => self.executor.poll(),
            MulticastStage::Forwarding => self.forward(),
            MulticastStage::Complete => Poll::Complete,
            MulticastStage::Failed(failure) => Poll::Failed(failure),
            MulticastStage::Started
            | MulticastStage::Undecided
            | MulticastStage::Sending
            | MulticastStage::Receiving => Poll::Pending,
        }
    }

    pub(super) fn handle_done(&mut self, step: StepId) {
        self.executor.handle_done(step);
    }

    /// A rank has failed. The schedule may need it; a root needs all members, and they need the root. Whether a call that
    /// was just started needs it depends on what has arrived.
    pub(super) fn handle_failed(&mut self, peer: Member) {
        self.executor.handle_failed(peer);
        let is_open = self.stage != MulticastStage::Started && !self.is_scheduled();
        if is_open && (self.is_root() || peer == self.root()) {
            self.abort(peer, FailureCause::Missing);
        }
    }

    pub(in crate::world) fn abort(&mut self, peer: Member, cause: FailureCause) {
        match self.stage {
            MulticastStage::Scheduled | MulticastStage::Forwarding => self.executor.abort(peer, cause),
            MulticastStage::Complete | MulticastStage::Failed(_) => {}
            _ => {
                let (id, collective) = (self.executor.id(), self.executor.plan().kind());
                self.stage = MulticastStage::Failed(Failure { rank: peer, cause, id, collective });
            }
        }
    }

    pub(super) fn completed(&self) -> u32 {
        match self.stage {
            MulticastStage::Scheduled | MulticastStage::Forwarding => self.executor.completed(),
            stage => u32::from(stage == MulticastStage::Complete),
        }
    }
}
