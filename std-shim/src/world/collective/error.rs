//! Why a collective failed.

use unisono_core::collective::{Cause, Failure as BasicFailure};

use crate::world::Failure;
use unisono_bootstrap::Rank;

/// Why a collective did not complete on this rank. Ranks are those of the communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CollectiveError {
    /// The root is no rank of the communicator.
    #[error("there is no rank {rank} among {size}")]
    UnknownRank {
        /// The root that was asked for.
        rank: Rank,
        /// Ranks of the communicator.
        size: u32,
    },
    /// A buffer, or a list of lengths, is not as long as this collective needs it; of a rank's own block where lengths differ, in bytes.
    #[error("a buffer of {needed} elements is needed, not of {given}")]
    Length {
        /// Elements that it should have.
        needed: usize,
        /// Elements that it has.
        given: usize,
    },
    /// A buffer that is written has an element twice.
    #[error("elements of a buffer that is written overlap")]
    Overlapping,
    /// The type has no such operation.
    #[error("this operation is not defined for elements of this type")]
    Undefined,
    /// An element is longer than what ranks show each other at once.
    #[error("an element to be combined has at most {most} bytes")]
    ElementTooLong {
        /// The longest.
        most: usize,
    },
    /// More bytes, for so many ranks, than a schedule has steps for; a block that has its own length of more than 2³² − 1 bytes; or
    /// memory that cannot be had. What only this rank may know the others are told: every further collective fails.
    #[error("a collective of so many bytes cannot be done")]
    TooLong,
    /// A rank has died or finished, or given up collectives since one of its failed, and has not done its part.
    #[error("rank {rank} is gone and missing from {collective} {sequence}")]
    Missing {
        /// Who.
        rank: Rank,
        /// From what.
        collective: &'static str,
        /// The how-manieth collective of the communicator over the same means, barriers in shared memory being counted apart; wraps.
        sequence: u32,
    },
    /// A rank shows or sends what it cannot, or its memory cannot be read.
    #[error("rank {rank} shows nonsense in {collective} {sequence}")]
    Corrupt {
        /// Who.
        rank: Rank,
        /// In what.
        collective: &'static str,
        /// As of [`Missing`](Self::Missing).
        sequence: u32,
    },
    /// A rank does not do the same as this one: another collective, length, root, type or operation.
    #[error("rank {rank} does not do the same as this one, which does {collective} {sequence}")]
    Disagrees {
        /// Who.
        rank: Rank,
        /// What this rank does.
        collective: &'static str,
        /// As of [`Missing`](Self::Missing).
        sequence: u32,
    },
    /// Somebody writes where only this rank may: nothing in the shared memory can be trusted any more.
    #[error("the shared memory of this node is corrupted")]
    Corrupted,
    /// A collective that is started again and again was not waited for.
    #[error("the collective is under way")]
    UnderWay,
    /// A member has given the communicator up ([`Communicator::revoke`](crate::world::Communicator::revoke)).
    #[error("the communicator was revoked")]
    Revoked,
    /// The job is being ended, or this process has finished.
    #[error(transparent)]
    Ended(Failure),
}

impl CollectiveError {
    /// The same, of another collective.
    pub(super) const fn of(mut self, name: &'static str) -> Self {
        if let Self::Missing { collective, .. }
        | Self::Corrupt { collective, .. }
        | Self::Disagrees { collective, .. } = &mut self
        {
            *collective = name;
        }
        self
    }
}

impl From<BasicFailure> for CollectiveError {
    fn from(failure: BasicFailure) -> Self {
        let (rank, collective, sequence) = (Rank(failure.rank.0), failure.verb.name(), failure.id.sequence);
        match failure.cause {
            Cause::Missing => Self::Missing { rank, collective, sequence },
            Cause::Corrupt => Self::Corrupt { rank, collective, sequence },
            Cause::Disagrees => Self::Disagrees { rank, collective, sequence },
        }
    }
}
