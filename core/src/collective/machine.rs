//! The interface of basic collectives.

use core::fmt;

use super::{Plan, Verb};
use crate::ids::{CollectiveId, Rank, StepId};

/// What is wrong with a rank.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cause {
    /// It died before it had done its part.
    Missing,
    /// It shows what no rank that follows the protocol can show.
    Corrupt,
    /// It does another collective, or this one with other lengths, another root, type or operation.
    Disagrees,
}

/// Why a collective did not complete on this rank. Final for the group: who failed in one collective stays failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Failure {
    /// Whose fault it is.
    pub rank: Rank,
    /// What is wrong with it.
    pub cause: Cause,
    /// In which collective.
    pub id: CollectiveId,
    /// What that was.
    pub verb: Verb,
}

impl fmt::Display for Failure {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rank, verb, sequence) = (self.rank.0, self.verb.name(), self.id.sequence);
        match self.cause {
            Cause::Missing => write!(to, "rank {rank} died and is missing from {verb} {sequence}"),
            Cause::Corrupt => write!(to, "rank {rank} shows nonsense in {verb} {sequence}"),
            Cause::Disagrees => write!(to, "rank {rank} does not do the same as this one in {verb} {sequence}"),
        }
    }
}

impl core::error::Error for Failure {}

/// What a machine says when it is polled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Turn<Wish> {
    /// To be carried out, and told by [`Basic::handle_done`] before the machine is polled again.
    Do(StepId, Wish),
    /// Others have to come first.
    Pending,
    /// Complete: the output will not change any more, and the input is this rank's again.
    Final,
    /// Not complete, and never will be.
    Failed(Failure),
}

/// A collective over one means. Polled: it waits for nothing, and does a bounded amount of work per call, stated by each machine.
pub trait Basic {
    /// What it asks of the rim: bytes where memory is shared, blocks where messages travel.
    type Wish;

    /// Starts a collective. The one before is final or has failed; after a failure every further one fails at once.
    fn start(&mut self, id: CollectiveId, plan: &Plan);

    /// What to do next.
    fn poll(&mut self) -> Turn<Self::Wish>;

    /// The wish of this step was carried out. Any other step is ignored.
    fn handle_done(&mut self, step: StepId);

    /// A rank has died, or its memory cannot be read: if this collective needs it, it fails.
    fn handle_failed(&mut self, peer: Rank);
}
