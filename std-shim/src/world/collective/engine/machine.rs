//! The machine of an active collective: a schedule's executor, or a call on the communicator's tree.

use unisono_core::collective::token_tree::header::TreeShape;
use unisono_core::collective::{CollectiveKind, CollectiveMachine, CollectiveSpec, Failure, FailureCause, Poll};
use unisono_core::ids::{CollectiveId, Rank as Member, StepId};
use unisono_core::schedule::{Executor, Schedule as _, StepOperation};

use super::schedule::{AnyPlan, CachedSchedule};

/// A call on a tree, which executes several calls of its communicator at a time.
#[derive(Debug)]
pub(in crate::world) struct TreeCall {
    plan: CachedSchedule,
    id: CollectiveId,
    pub(in crate::world) shape: TreeShape,
    pub(in crate::world) stage: TreeStage,
}

/// The stage of a call on a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) enum TreeStage {
    /// It was started, and the tree does not know it.
    Started,
    /// The tree knows it.
    Entered,
    /// The result is in the output, and this rank's messages have left.
    Left,
    /// It has failed.
    Failed(Failure),
}

/// The machine of an active collective.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "almost every collective has a schedule")]
pub(in crate::world) enum Machine {
    /// A schedule.
    Schedule(Executor<CachedSchedule>),
    /// A call on a tree.
    Tree(TreeCall),
}

impl Machine {
    pub(in crate::world) fn new(id: CollectiveId, plan: CachedSchedule) -> Self {
        match *plan.schedule() {
            AnyPlan::Tree(shape) => Self::Tree(TreeCall { plan, id, shape, stage: TreeStage::Left }),
            AnyPlan::Flat(_) | AnyPlan::Composed(_) => Self::Schedule(Executor::new(id, plan)),
        }
    }

    /// Starts the same collective again, as another one.
    pub(in crate::world) fn restart(&mut self, id: CollectiveId) {
        match self {
            Self::Schedule(executor) => executor.restart(id),
            Self::Tree(call) => (call.id, call.stage) = (id, TreeStage::Started),
        }
    }

    pub(in crate::world) const fn plan(&self) -> &CachedSchedule {
        match self {
            Self::Schedule(executor) => executor.plan(),
            Self::Tree(call) => &call.plan,
        }
    }

    pub(in crate::world) const fn id(&self) -> CollectiveId {
        match self {
            Self::Schedule(executor) => executor.id(),
            Self::Tree(call) => call.id,
        }
    }

    pub(in crate::world) fn collective(&self) -> CollectiveKind {
        self.plan().collective()
    }

    /// The peer of the first incomplete step of a schedule.
    pub(in crate::world) fn awaited(&self) -> Option<Member> {
        match self {
            Self::Schedule(executor) => executor.awaited(),
            Self::Tree(_) => None,
        }
    }

    /// The peers of a schedule's messages in progress.
    pub(in crate::world) fn partners(&self) -> impl Iterator<Item = Member> {
        let executor = match self {
            Self::Schedule(executor) => Some(executor),
            Self::Tree(_) => None,
        };
        executor.into_iter().flat_map(Executor::partners)
    }

    /// The call, if a tree executes it.
    pub(in crate::world) const fn tree(&self) -> Option<&TreeCall> {
        match self {
            Self::Schedule(_) => None,
            Self::Tree(call) => Some(call),
        }
    }

    pub(in crate::world) const fn tree_mut(&mut self) -> Option<&mut TreeCall> {
        match self {
            Self::Schedule(_) => None,
            Self::Tree(call) => Some(call),
        }
    }
}

impl CollectiveMachine for Machine {
    type Request = StepOperation;

    fn start(&mut self, id: CollectiveId, spec: &CollectiveSpec) {
        match self {
            Self::Schedule(executor) => executor.start(id, spec),
            Self::Tree(_) => self.restart(id),
        }
    }

    fn poll(&mut self) -> Poll<StepOperation> {
        match self {
            Self::Schedule(executor) => executor.poll(),
            Self::Tree(TreeCall { stage: TreeStage::Left, .. }) => Poll::Complete,
            Self::Tree(TreeCall { stage: TreeStage::Failed(failure), .. }) => Poll::Failed(*failure),
            Self::Tree(_) => Poll::Pending,
        }
    }

    fn handle_done(&mut self, step: StepId) {
        if let Self::Schedule(executor) = self {
            executor.handle_done(step);
        }
    }

    /// A call on a tree fails if it waits for that rank, which is examined when the tree is advanced.
    fn handle_failed(&mut self, peer: Member) {
        if let Self::Schedule(executor) = self {
            executor.handle_failed(peer);
        }
    }

    fn abort(&mut self, peer: Member, cause: FailureCause) {
        match self {
            Self::Schedule(executor) => executor.abort(peer, cause),
            Self::Tree(TreeCall { stage: TreeStage::Left | TreeStage::Failed(_), .. }) => {}
            Self::Tree(call) => {
                let (id, collective) = (call.id, call.plan.collective());
                call.stage = TreeStage::Failed(Failure { rank: peer, cause, id, collective });
            }
        }
    }

    fn completed(&self) -> u32 {
        match self {
            Self::Schedule(executor) => executor.completed(),
            Self::Tree(call) => u32::from(call.stage == TreeStage::Left),
        }
    }
}
