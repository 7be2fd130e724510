//! The machine of an active collective: a schedule's executor, a call on the communicator's tree, a broadcast by
//! multicast, or an alltoall by remote writes.

use unisono_core::collective::token_tree::header::TreeShape;
use unisono_core::collective::{CollectiveKind, CollectiveMachine, CollectiveSpec, Failure, FailureCause, Poll};
use unisono_core::ids::{CollectiveId, Rank as Member, StepId};
use unisono_core::schedule::{Executor, Schedule as _, StepOperation};

use super::multicast_call::MulticastCall;
use super::rdma_all_to_all::RdmaAllToAll;
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
pub(in crate::world) enum Machine {
    /// A schedule.
    Schedule(Executor<CachedSchedule>),
    /// A call on a tree.
    Tree(TreeCall),
    /// A broadcast by multicast.
    Multicast(MulticastCall),
    /// An alltoall by remote writes.
    Rdma(RdmaAllToAll),
}

impl Machine {
    pub(in crate::world) fn new(id: CollectiveId, plan: CachedSchedule) -> Self {
        match *plan.schedule() {
            AnyPlan::Tree(shape) => Self::Tree(TreeCall { plan, id, shape, stage: TreeStage::Left }),
            AnyPlan::Rdma(rdma) => Self::Rdma(RdmaAllToAll::new(id, plan, rdma.native_steps)),
            _ if plan.is_multicast() => Self::Multicast(MulticastCall::new(id, plan)),
            AnyPlan::Flat(_) | AnyPlan::Composed(_) => Self::Schedule(Executor::new(id, plan)),
        }
    }

    /// Starts the same collective again, as another one.
    pub(in crate::world) fn restart(&mut self, id: CollectiveId) {
        match self {
            Self::Schedule(executor) => executor.restart(id),
            Self::Tree(call) => (call.id, call.stage) = (id, TreeStage::Started),
            Self::Multicast(call) => call.restart(id),
            Self::Rdma(call) => call.restart(id),
        }
    }

    pub(in crate::world) const fn plan(&self) -> &CachedSchedule {
        match self {
            Self::Schedule(executor) => executor.plan(),
            Self::Tree(call) => &call.plan,
            Self::Multicast(call) => call.executor.plan(),
            Self::Rdma(call) => &call.plan,
        }
    }

    pub(in crate::world) const fn id(&self) -> CollectiveId {
        match self {
            Self::Schedule(executor) => executor.id(),
            Self::Tree(call) => call.id,
            Self::Multicast(call) => call.executor.id(),
            Self::Rdma(call) => call.id,
        }
    }

    pub(in crate::world) fn collective(&self) -> CollectiveKind {
        self.plan().collective()
    }

    /// The executor of a schedule in progress.
    fn executor(&self) -> Option<&Executor<CachedSchedule>> {
        match self {
            Self::Schedule(executor) => Some(executor),
            Self::Tree(_) | Self::Rdma(_) => None,
            Self::Multicast(call) => call.scheduled(),
        }
    }

    /// The peer of the first incomplete step of a schedule.
    pub(in crate::world) fn awaited(&self) -> Option<Member> {
        self.executor()?.awaited()
    }

    /// The peers of a schedule's messages in progress.
    pub(in crate::world) fn partners(&self) -> impl Iterator<Item = Member> {
        self.executor().into_iter().flat_map(Executor::partners)
    }

    /// Whether no schedule knows the peers that it waits for.
    pub(in crate::world) fn is_unscheduled(&self) -> bool {
        self.executor().is_none()
    }

    /// The call, if it is a broadcast by multicast.
    pub(in crate::world) const fn multicast(&self) -> Option<&MulticastCall> {
        if let Self::Multicast(call) = self { Some(call) } else { None }
    }

    pub(in crate::world) const fn multicast_mut(&mut self) -> Option<&mut MulticastCall> {
        if let Self::Multicast(call) = self { Some(call) } else { None }
    }

    /// The call, if a tree executes it.
    pub(in crate::world) const fn tree(&self) -> Option<&TreeCall> {
        if let Self::Tree(call) = self { Some(call) } else { None }
    }

    pub(in crate::world) const fn tree_mut(&mut self) -> Option<&mut TreeCall> {
        if let Self::Tree(call) = self { Some(call) } else { None }
    }

    /// The call, if remote writes execute it.
    pub(in crate::world) const fn rdma(&self) -> Option<&RdmaAllToAll> {
        if let Self::Rdma(call) = self { Some(call) } else { None }
    }

    pub(in crate::world) const fn rdma_mut(&mut self) -> Option<&mut RdmaAllToAll> {
        if let Self::Rdma(call) = self { Some(call) } else { None }
    }
}

impl CollectiveMachine for Machine {
    type Request = StepOperation;

    fn start(&mut self, id: CollectiveId, spec: &CollectiveSpec) {
        match self {
            Self::Schedule(executor) => executor.start(id, spec),
            Self::Tree(_) | Self::Multicast(_) | Self::Rdma(_) => self.restart(id),
        }
    }

    fn poll(&mut self) -> Poll<StepOperation> {
        match self {
            Self::Schedule(executor) => executor.poll(),
            Self::Tree(TreeCall { stage: TreeStage::Left, .. }) => Poll::Complete,
            Self::Tree(TreeCall { stage: TreeStage::Failed(failure), .. }) => Poll::Failed(*failure),
            Self::Tree(_) => Poll::Pending,
            Self::Multicast(call) => call.poll(),
            Self::Rdma(call) => call.poll(),
        }
    }

    fn handle_done(&mut self, step: StepId) {
        match self {
            Self::Schedule(executor) => executor.handle_done(step),
            Self::Tree(_) | Self::Rdma(_) => {}
            Self::Multicast(call) => call.handle_done(step),
        }
    }

    /// A call on a tree fails if it waits for that rank, which is examined when the tree is advanced.
    fn handle_failed(&mut self, peer: Member) {
        match self {
            Self::Schedule(executor) => executor.handle_failed(peer),
            Self::Tree(_) => {}
            Self::Multicast(call) => call.handle_failed(peer),
            Self::Rdma(call) => call.handle_failed(peer),
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
            Self::Multicast(call) => call.abort(peer, cause),
            Self::Rdma(call) => call.abort(peer, cause),
        }
    }

    fn completed(&self) -> u32 {
        match self {
            Self::Schedule(executor) => executor.completed(),
            Self::Tree(call) => u32::from(call.stage == TreeStage::Left),
            Self::Multicast(call) => call.completed(),
            Self::Rdma(call) => call.completed(),
        }
    }
}
