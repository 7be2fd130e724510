//! Errors of collectives.

use unisono_core::collective::{Failure as BasicFailure, FailureCause};

use super::call_log::CollectiveCall;
use crate::world::request::Failure;
use unisono_bootstrap::Rank;

/// Why a collective did not complete on this rank. Ranks are those of the communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CollectiveError {
    /// The root is no rank of the communicator.
    #[error("there is no rank {rank} in a communicator of {size}")]
    UnknownRank {
        /// The root that was passed.
        rank: Rank,
        /// Ranks of the communicator.
        size: u32,
    },
    /// A buffer or a list of lengths has the wrong length; for a rank's own block where lengths differ, in bytes.
    #[error("a buffer of {needed} elements is needed, not of {given}")]
    Length {
        /// Elements that it should have.
        needed: usize,
        /// Elements that it has.
        given: usize,
    },
    /// A buffer that is written contains an element twice.
    #[error("elements of a buffer that is written overlap")]
    Overlapping,
    /// The operation is not defined for the element type.
    #[error("this operation is not defined for elements of this type")]
    Undefined,
    /// An element exceeds the largest that ranks of a node can combine.
    #[error("an element to be combined has at most {most} bytes")]
    ElementTooLong {
        /// Bytes of the largest element.
        most: usize,
    },
    /// The data exceed the steps of a schedule, a block with its own length exceeds 2³² − 1 bytes, or the system has no
    /// memory. Where only this rank can know that, the others are notified, and every further collective of the
    /// communicator fails.
    #[error("the collective is too large: a block, the number of steps or the memory exceeds a limit")]
    TooLong,
    /// A rank has died or finished, or takes no more part in collectives since one of its own failed, and has not done
    /// its part.
    #[error("rank {rank} is gone and missing from {collective} {sequence}")]
    Missing {
        /// The missing rank.
        rank: Rank,
        /// The collective that it is missing from.
        collective: &'static str,
        /// The number of the collective among those of the communicator that the user has called, from 1 on; wraps
        /// around.
        sequence: u32,
    },
    /// A rank violated the protocol, or its memory cannot be read.
    #[error("rank {rank} sent invalid data in {collective} {sequence}")]
    Corrupt {
        /// The rank that violated the protocol.
        rank: Rank,
        /// The collective.
        collective: &'static str,
        /// As of [`Missing`](Self::Missing).
        sequence: u32,
    },
    /// A rank called something else than this one: another collective, length, root, type or operation. Noticed at the
    /// latest in the next barrier, allreduce, allgather, alltoall or reduce-scatter of the communicator, or at the end
    /// of the job.
    #[error(
        "rank {rank} does not call the same as this rank, which calls {collective} {sequence}{}",
        calls.as_ref().map(|(number, own, other)| contrast(*rank, *number, own, other)).unwrap_or_default()
    )]
    Disagrees {
        /// The rank that differs.
        rank: Rank,
        /// The collective that this rank called.
        collective: &'static str,
        /// As of [`Missing`](Self::Missing).
        sequence: u32,
        /// The number of a call in which both differ, this rank's call and that rank's, if it answers.
        calls: Option<(u32, CollectiveCall, CollectiveCall)>,
    },
    /// Another process overwrote this rank's words: nothing in the shared memory can be trusted any more.
    #[error("the shared memory of this node is corrupted: restart the job")]
    Corrupted,
    /// A persistent collective was started or used before it was waited for.
    #[error("the collective is under way: wait for it first")]
    UnderWay,
    /// A member has revoked the communicator ([`Communicator::revoke`](crate::world::Communicator::revoke)).
    #[error("the communicator was revoked")]
    Revoked,
    /// The job was aborted, or this process has finished; or a message of an exchange failed.
    #[error(transparent)]
    Ended(Failure),
}

impl CollectiveError {
    /// The same error, naming another collective.
    pub(super) const fn of(mut self, name: &'static str) -> Self {
        if let Self::Missing { collective, .. }
        | Self::Corrupt { collective, .. }
        | Self::Disagrees { collective, .. } = &mut self
        {
            *collective = name;
        }
        self
    }

    /// The same error, with the number of another collective.
    pub(in crate::world) const fn numbered(mut self, number: u32) -> Self {
        if let Self::Missing { sequence, .. } | Self::Corrupt { sequence, .. } | Self::Disagrees { sequence, .. } =
            &mut self
        {
            *sequence = number;
        }
        self
    }

    /// Whether it names no collective that the user has called.
    pub(in crate::world) const fn is_unnumbered(&self) -> bool {
        matches!(
            self,
            Self::Missing { sequence: 0, .. } | Self::Corrupt { sequence: 0, .. } | Self::Disagrees { sequence: 0, .. }
        )
    }
}

fn contrast(rank: Rank, number: u32, own: &CollectiveCall, other: &CollectiveCall) -> String {
    let (name, (here, there)) = (own.name(), own.contrast(other));
    format!(": {name} {number} has {here} here and {there} at rank {rank}")
}

impl From<BasicFailure> for CollectiveError {
    fn from(failure: BasicFailure) -> Self {
        let (rank, collective, sequence) = (Rank(failure.rank.0), failure.collective.name(), failure.id.sequence);
        match failure.cause {
            FailureCause::Missing => Self::Missing { rank, collective, sequence },
            FailureCause::Corrupt => Self::Corrupt { rank, collective, sequence },
            FailureCause::Disagrees => Self::Disagrees { rank, collective, sequence, calls: None },
        }
    }
}
