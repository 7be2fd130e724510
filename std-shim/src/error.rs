//! One error for everything that can fail, with its class, the rank that it names and a remedy.

use core::fmt;

use crate::collective::CollectiveError;
use crate::{
    AgreeError, AllocateError, CartesianError, CreateError, DatatypeError, Failure, GroupError, Rank, RequestError,
    RequestFailed, SettingsError, WindowError, WorldError,
};

/// Any error of the library. Each call returns an error type of its own, which converts into this one with `?`; its
/// [`source`](core::error::Error::source) is that error. As an error of `main` it is shown as text.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process could not join its job.
    #[error("cannot join the job")]
    Join(#[source] alloc::sync::Arc<JoinCause>),
    /// A message was not sent or received.
    #[error("a message failed")]
    Message(#[from] Failure),
    /// One of several requests failed.
    #[error("a request failed")]
    Request(#[from] RequestFailed),
    /// A collective did not complete.
    #[error("a collective failed")]
    Collective(#[from] CollectiveError),
    /// An operation on a window failed.
    #[error("one-sided communication failed")]
    Window(#[from] WindowError),
    /// A datatype cannot be made.
    #[error("cannot make a datatype")]
    Datatype(#[from] DatatypeError),
    /// A grid of ranks was not made.
    #[error("cannot make a grid of ranks")]
    Grid(#[from] CartesianError),
    /// A communicator was not made.
    #[error("cannot make a communicator")]
    Communicator(#[from] CreateError),
    /// The members did not agree.
    #[error("cannot agree")]
    Agreement(#[from] AgreeError),
    /// Memory was not allocated.
    #[error("cannot allocate memory")]
    Memory(#[from] AllocateError),
    /// A group was not made.
    #[error("cannot make a group")]
    Group(#[from] GroupError),
}

/// Why a process could not join, comparable and shareable.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct JoinCause(WorldError);

impl PartialEq for JoinCause {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_string() == other.0.to_string()
    }
}

impl Eq for JoinCause {}

/// What went wrong, regardless of the call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The environment or the job's settings do not allow it.
    Environment,
    /// An argument is wrong.
    Argument,
    /// Ranks have called different things.
    Disagreement,
    /// A rank has failed, has finished or is gone.
    Rank,
    /// A rank, or another process in its name, has written invalid data.
    Corruption,
    /// Memory or another resource is used up.
    Resources,
    /// The communicator was revoked.
    Revoked,
    /// The job, or this process's part in it, has ended.
    Ended,
}

impl From<WorldError> for Error {
    fn from(error: WorldError) -> Self {
        Self::Join(alloc::sync::Arc::new(JoinCause(error)))
    }
}

impl From<SettingsError> for Error {
    fn from(error: SettingsError) -> Self {
        WorldError::from(error).into()
    }
}

impl Error {
    /// What went wrong, regardless of the call.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// assert_eq!(Error::from(Failure::Revoked).class(), ErrorClass::Revoked);
    /// ```
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::Join(_) => ErrorClass::Environment,
            Self::Message(failure) => of_failure(*failure),
            Self::Request(RequestFailed { failure, .. }) => match failure {
                RequestError::Message(failure) => of_failure(*failure),
                RequestError::Collective(error) => of_collective(error),
                RequestError::Window(error) => of_window(error),
            },
            Self::Collective(error) => of_collective(error),
            Self::Window(error) => of_window(error),
            Self::Communicator(error) => of_create(error),
            Self::Group(_) | Self::Datatype(_) | Self::Grid(_) => ErrorClass::Argument,
            Self::Agreement(AgreeError::NoContext | AgreeError::Scattered) | Self::Memory(_) => ErrorClass::Resources,
            Self::Agreement(AgreeError::NoServer) => ErrorClass::Environment,
            Self::Agreement(AgreeError::Excluded) => ErrorClass::Rank,
            Self::Agreement(AgreeError::Ended(failure)) => of_failure(*failure),
        }
    }

    /// The rank that the error names, in the communicator of the call.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// assert_eq!(Error::from(Failure::PeerFailed(Rank(3))).rank(), Some(Rank(3)));
    /// ```
    pub const fn rank(&self) -> Option<Rank> {
        match self {
            Self::Message(failure) | Self::Agreement(AgreeError::Ended(failure)) => rank_of_failure(*failure),
            Self::Request(RequestFailed { failure, .. }) => match failure {
                RequestError::Message(failure) => rank_of_failure(*failure),
                RequestError::Collective(error) => rank_of_collective(error),
                RequestError::Window(error) => rank_of_window(error),
            },
            Self::Collective(error) => rank_of_collective(error),
            Self::Window(error) => rank_of_window(error),
            Self::Communicator(error) => rank_of_create(error),
            _ => None,
        }
    }

    /// What the program or its user can do.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// assert!(Error::from(Failure::PeerFailed(Rank(3))).remedy().contains("shrink"));
    /// ```
    pub const fn remedy(&self) -> &'static str {
        match self.class() {
            ErrorClass::Environment => "start all ranks alike, with `unisono run` or the variables of docs/starters.md",
            ErrorClass::Argument => "correct the arguments of the call",
            ErrorClass::Disagreement => "call the same collectives, with the same arguments, on all ranks",
            ErrorClass::Rank => "end the job, or revoke and shrink the communicator (run with --on-death tell)",
            ErrorClass::Corruption => "restart the job",
            ErrorClass::Resources => "complete pending requests, drop communicators, or raise the limits of the system",
            ErrorClass::Revoked => "agree and shrink, and continue on the new communicator",
            ErrorClass::Ended => "end this process",
        }
    }
}

const fn of_failure(failure: Failure) -> ErrorClass {
    match failure {
        Failure::PeerFailed(_) | Failure::PeerFinished(_) => ErrorClass::Rank,
        Failure::Truncated { .. }
        | Failure::RemoteTruncated(_)
        | Failure::Disagrees(_)
        | Failure::TypeMismatch { .. } => ErrorClass::Disagreement,
        Failure::Corrupted(_) => ErrorClass::Corruption,
        Failure::UnknownRank(_) | Failure::UnderWay | Failure::OtherWorld => ErrorClass::Argument,
        Failure::ResourceExhausted | Failure::BufferFull { .. } => ErrorClass::Resources,
        Failure::Revoked => ErrorClass::Revoked,
        Failure::NoDevice => ErrorClass::Environment,
        Failure::Finished | Failure::Aborted { .. } => ErrorClass::Ended,
    }
}

const fn rank_of_failure(failure: Failure) -> Option<Rank> {
    match failure {
        Failure::PeerFailed(rank)
        | Failure::PeerFinished(rank)
        | Failure::RemoteTruncated(rank)
        | Failure::Corrupted(rank)
        | Failure::UnknownRank(rank)
        | Failure::Disagrees(rank)
        | Failure::TypeMismatch { rank, .. }
        | Failure::Aborted { rank, .. } => Some(rank),
        _ => None,
    }
}

const fn of_collective(error: &CollectiveError) -> ErrorClass {
    match error {
        CollectiveError::UnknownRank { .. }
        | CollectiveError::Length { .. }
        | CollectiveError::Overlapping
        | CollectiveError::Undefined
        | CollectiveError::ElementTooLong { .. }
        | CollectiveError::UnderWay => ErrorClass::Argument,
        CollectiveError::TooLong => ErrorClass::Resources,
        CollectiveError::Missing { .. } => ErrorClass::Rank,
        CollectiveError::Corrupt { .. } | CollectiveError::Corrupted => ErrorClass::Corruption,
        CollectiveError::Disagrees { .. } => ErrorClass::Disagreement,
        CollectiveError::Revoked => ErrorClass::Revoked,
        CollectiveError::Ended(failure) => of_failure(*failure),
    }
}

const fn rank_of_collective(error: &CollectiveError) -> Option<Rank> {
    match error {
        CollectiveError::UnknownRank { rank, .. }
        | CollectiveError::Missing { rank, .. }
        | CollectiveError::Corrupt { rank, .. }
        | CollectiveError::Disagrees { rank, .. } => Some(*rank),
        CollectiveError::Ended(failure) => rank_of_failure(*failure),
        _ => None,
    }
}

const fn of_create(error: &CreateError) -> ErrorClass {
    match error {
        CreateError::Collective(error) => of_collective(error),
        CreateError::Differs(_) | CreateError::Disagrees(_) => ErrorClass::Disagreement,
        CreateError::NotMember(_) => ErrorClass::Argument,
        CreateError::NoContext => ErrorClass::Resources,
    }
}

const fn rank_of_create(error: &CreateError) -> Option<Rank> {
    match error {
        CreateError::Differs(rank) | CreateError::NotMember(rank) | CreateError::Disagrees(rank) => Some(*rank),
        CreateError::Collective(error) => rank_of_collective(error),
        CreateError::NoContext => None,
    }
}

const fn of_window(error: &WindowError) -> ErrorClass {
    match error {
        WindowError::Failed(failure) => of_failure(*failure),
        WindowError::Collective(error) => of_collective(error),
        WindowError::Create(error) => of_create(error),
        WindowError::Memory(_) | WindowError::Register(_) => ErrorClass::Resources,
        WindowError::Partial(_) | WindowError::Unknown(_) => ErrorClass::Rank,
        WindowError::OutOfBounds(_)
        | WindowError::Misaligned(_)
        | WindowError::Unsupported
        | WindowError::SizesDiffer { .. }
        | WindowError::Revoked(_)
        | WindowError::NoRight(_) => ErrorClass::Argument,
    }
}

const fn rank_of_window(error: &WindowError) -> Option<Rank> {
    match error {
        WindowError::Failed(failure) => rank_of_failure(*failure),
        WindowError::Collective(error) => rank_of_collective(error),
        WindowError::Create(error) => rank_of_create(error),
        WindowError::Partial(rank)
        | WindowError::Unknown(rank)
        | WindowError::OutOfBounds(rank)
        | WindowError::Misaligned(rank)
        | WindowError::Revoked(rank)
        | WindowError::NoRight(rank) => Some(*rank),
        WindowError::Memory(_)
        | WindowError::Register(_)
        | WindowError::Unsupported
        | WindowError::SizesDiffer { .. } => None,
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{self}")?;
        let mut source = core::error::Error::source(self);
        while let Some(cause) = source {
            write!(to, ": {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_class_rank_and_cause() {
        let failed = Error::from(Failure::PeerFailed(Rank(3)));
        assert_eq!((failed.class(), failed.rank()), (ErrorClass::Rank, Some(Rank(3))));
        assert!(failed.remedy().contains("shrink"));
        assert_eq!(format!("{failed:?}"), format!("a message failed: {}", Failure::PeerFailed(Rank(3))));
        let collective = Error::from(CollectiveError::Ended(Failure::Revoked));
        assert_eq!((collective.class(), collective.rank()), (ErrorClass::Revoked, None));
        let join = Error::from(WorldError::Joined);
        assert_eq!((join.class(), join.clone()), (ErrorClass::Environment, join));
        let refused = Error::from(CreateError::Collective(CollectiveError::Overlapping));
        assert_eq!(refused.class(), ErrorClass::Argument);
        let beyond = RequestError::from(WindowError::OutOfBounds(Rank(2)));
        let one_sided = Error::from(RequestFailed { index: 1, failure: beyond });
        assert_eq!((one_sided.class(), one_sided.rank()), (ErrorClass::Argument, Some(Rank(2))));
    }
}
