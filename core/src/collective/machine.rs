//! The interface of a collective machine: start, poll, requests and failures.

use core::fmt;

use super::{CollectiveKind, CollectiveSpec};
use crate::ids::{CollectiveId, Rank, StepId};

/// How a rank failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FailureCause {
    /// It died before it completed its part.
    Missing,
    /// It violated the protocol.
    Corrupt,
    /// It called another collective, or this one with another length, root, type or operation.
    Disagrees,
}

/// Why a collective did not complete on this rank. Final for the group: a rank that failed in one collective stays
/// failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Failure {
    /// The rank at fault.
    pub rank: Rank,
    /// How it failed.
    pub cause: FailureCause,
    /// The collective.
    pub id: CollectiveId,
    /// Its kind.
    pub collective: CollectiveKind,
}

impl fmt::Display for Failure {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rank, verb, sequence) = (self.rank.0, self.collective.name(), self.id.sequence);
        match self.cause {
            FailureCause::Missing => write!(to, "rank {rank} died and is missing from {verb} {sequence}"),
            FailureCause::Corrupt => write!(to, "rank {rank} violated the protocol in {verb} {sequence}"),
            FailureCause::Disagrees => write!(
                to,
                "rank {rank} called another collective than this rank's {verb} {sequence}, or with other arguments"
            ),
        }
    }
}

impl core::error::Error for Failure {}

/// The result of polling a machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Poll<Wish> {
    /// Carry out this request, then call [`CollectiveMachine::handle_done`] before the machine is polled again.
    Request(StepId, Wish),
    /// Nothing to do until other ranks act.
    Pending,
    /// Complete: the output is final, and the input may be reused.
    Complete,
    /// Failed; final.
    Failed(Failure),
}

/// A collective over one means. It is polled, never blocks, and does a bounded amount of work per call, stated by each
/// machine.
pub trait CollectiveMachine {
    /// A request to the host: bytes of shared memory, or blocks of messages.
    type Request;

    /// Starts a collective. The previous one is complete or has failed; after a failure every further one fails at
    /// once.
    fn start(&mut self, id: CollectiveId, plan: &CollectiveSpec);

    /// Returns the next request, or the state.
    fn poll(&mut self) -> Poll<Self::Request>;

    /// The request of this step was carried out. Any other step is ignored.
    fn handle_done(&mut self, step: StepId);

    /// A rank has failed, or its memory cannot be read: the collective fails if it needs that rank.
    fn handle_failed(&mut self, peer: Rank);

    /// Fails the collective because of that rank, unless it is complete or has failed.
    fn abort(&mut self, peer: Rank, cause: FailureCause);

    /// The watermark: the number of requests that were carried out before the first one that was not. It grows until the
    /// next start.
    fn completed(&self) -> u32;
}
