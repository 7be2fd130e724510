//! Requests: operations under way by index, their results, and the failures that users see.

pub(super) mod any_request;
pub(super) mod exchange;
pub(super) mod future;
pub(super) mod handle;
pub(super) mod persistent_message;
pub(super) mod scope;
pub(super) mod scope_loans;
pub(super) mod wait_many;

use core::fmt;

use unisono_core::message::Pattern;

use super::collective::CollectiveError;
use super::window::WindowError;
use unisono_bootstrap::Rank;
use unisono_core::ids::PeerId;
pub use unisono_memory::element_type::TypeCode;

/// Distinguishes messages between the same two ranks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Tag(pub u32);

/// A received message: source, tag and length; or [`EMPTY`](Self::EMPTY).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Status {
    /// The rank that sent it.
    pub source: Rank,
    /// Its tag.
    pub tag: Tag,
    /// Its length in bytes.
    pub bytes: usize,
}

impl Status {
    /// The status of a request that received no message: a send, a collective, a receive that was cancelled, or a
    /// request whose end was reported before (MPI's empty status). No rank and no tag have these numbers.
    pub const EMPTY: Self = Self { source: Rank(u32::MAX), tag: Tag(u32::MAX), bytes: 0 };

    /// The status of a send that ended well.
    pub(super) fn sent(peer: PeerId) -> Self {
        Self { source: peer.into(), tag: Tag(0), bytes: 0 }
    }
}

/// Why a point-to-point operation failed. Ranks are those of the communicator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Failure {
    /// A rank died, or cannot be reached.
    #[error("rank {0} failed: revoke and shrink the communicator, or end the job")]
    PeerFailed(Rank),
    /// A rank has finished: it neither sends nor receives any more.
    #[error("rank {0} has finished and takes no more part in the job")]
    PeerFinished(Rank),
    /// The message is longer than the buffer of the receive.
    #[error("the message has {bytes} bytes, more than the receive has room for")]
    Truncated {
        /// The message's length.
        bytes: u64,
    },
    /// The buffer of the receive at the other end is shorter than this message.
    #[error("the receive at rank {0} is shorter than the message")]
    RemoteTruncated(Rank),
    /// A rank of this node, or another process in its name, violated the protocol in shared memory.
    #[error("rank {0} wrote invalid data to shared memory and is treated as failed")]
    Corrupted(Rank),
    /// The communicator has no such rank.
    #[error("there is no rank {0}")]
    UnknownRank(Rank),
    /// No record is free for one more request, the system has no memory for a copy of its message, or the adapter
    /// cannot register its buffer.
    #[error("out of resources for one more request: complete pending requests, then retry")]
    ResourceExhausted,
    /// A member has revoked the communicator ([`Communicator::revoke`](super::Communicator::revoke)).
    #[error("the communicator was revoked")]
    Revoked,
    /// The device to other nodes is gone: nothing arrives from there, and nothing is sent.
    #[error("the network device is gone: other nodes cannot be reached")]
    NoDevice,
    /// The persistent request is under way: its last start was not waited for.
    #[error("the persistent request is under way: wait for its last start first")]
    UnderWay,
    /// The send buffer has no room for one more message.
    #[error("a message of {bytes} bytes needs more than the {free} adjacent bytes that are free in the send buffer")]
    BufferFull {
        /// The message's length.
        bytes: u64,
        /// Adjacent bytes that are free.
        free: u64,
    },
    /// Requests of several Worlds were passed to one call.
    #[error("the request belongs to another World: wait for each World's requests separately")]
    OtherWorld,
    /// Reported by [`World::finish`](super::World::finish): a rank named another root of a collective than this rank;
    /// and by collectives of several datatypes or between neighbours: it sent another number of bytes than this rank
    /// receives.
    #[error("rank {0} does not call the same collectives as this rank: all ranks name the same root and lengths")]
    Disagrees(Rank),
    /// In a job that checks types (`--check`): the message has elements of another type than the buffer of the receive.
    #[error("rank {rank} sent elements of the type {sent}, and the receive expects {expected}")]
    TypeMismatch {
        /// The rank that sent it.
        rank: Rank,
        /// The type of what was sent.
        sent: TypeCode,
        /// The type of the receive's buffer.
        expected: TypeCode,
    },
    /// This process has finished its part of the job.
    #[error("this process has finished")]
    Finished,
    /// The job was aborted.
    #[error("rank {rank} aborted the job with exit code {code}")]
    Aborted {
        /// The rank that aborted it.
        rank: Rank,
        /// The exit code of the job.
        code: i32,
    },
}

impl Failure {
    /// The rank whose death, end or behaviour is the cause.
    pub(super) const fn named_rank(self) -> Option<Rank> {
        match self {
            Self::PeerFailed(rank)
            | Self::PeerFinished(rank)
            | Self::Corrupted(rank)
            | Self::Disagrees(rank)
            | Self::TypeMismatch { rank, .. } => Some(rank),
            Self::Truncated { .. }
            | Self::RemoteTruncated(_)
            | Self::UnknownRank(_)
            | Self::ResourceExhausted
            | Self::Revoked
            | Self::NoDevice
            | Self::UnderWay
            | Self::BufferFull { .. }
            | Self::OtherWorld
            | Self::Finished
            | Self::Aborted { .. } => None,
        }
    }
}

/// One of several requests failed. The others are unchanged: they can still be waited for, also those that had ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("request {index}: {failure}")]
pub struct RequestFailed {
    /// Its index among the requests that were waited for, from 0 on.
    pub index: usize,
    /// Its failure.
    pub failure: RequestError,
}

/// Why a request of any kind failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RequestError {
    /// Its message was not sent or received.
    #[error(transparent)]
    Message(#[from] Failure),
    /// Its collective did not complete.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// Its operation on a window failed.
    #[error(transparent)]
    Window(#[from] WindowError),
}

#[derive(Clone, Copy, Debug)]
enum RequestEntry {
    Free {
        next: u32,
    },
    Pending,
    /// Pending, and nobody will ask how it ended.
    Abandoned,
    Done(Result<Status, Failure>),
}

/// All requests of a process, by index.
#[derive(Debug)]
pub(super) struct Requests {
    entries: Vec<RequestEntry>,
    free: u32,
    finished: u64,
    failed: u64,
    /// Whether messages state the type of their elements (`--check`).
    pub(super) checks_types: bool,
    /// Transfers of collectives that have ended.
    steps: u64,
    /// The rank that the first failure named.
    pub(super) cause: Option<Rank>,
    /// The patterns that threads probe for.
    pub(super) probe_patterns: Vec<Pattern>,
}

const NONE: u32 = u32::MAX;
impl Requests {
    pub(super) const fn new(checks_types: bool) -> Self {
        Self {
            entries: Vec::new(),
            free: NONE,
            finished: 0,
            failed: 0,
            checks_types,
            steps: 0,
            cause: None,
            probe_patterns: Vec::new(),
        }
    }

    /// Allocates a pending request.
    pub(super) fn start(&mut self) -> u32 {
        match self.entries.get_mut(self.free as usize) {
            Some(entry) => {
                let i = self.free;
                if let RequestEntry::Free { next } = *entry {
                    self.free = next;
                }
                *entry = RequestEntry::Pending;
                i
            }
            None => {
                self.entries.push(RequestEntry::Pending);
                (self.entries.len() - 1) as u32
            }
        }
    }

    /// Ends a request. Only its first result counts.
    #[inline(always)]
    pub(super) fn finish(&mut self, request: u32, result: Result<Status, Failure>) {
        if let Some(entry @ RequestEntry::Pending) = self.entries.get_mut(request as usize) {
            *entry = RequestEntry::Done(result);
            self.finished += 1;
            if let Err(failure) = result {
                self.record_failure(failure);
            }
        } else {
            self.finish_abandoned(request);
        }
    }

    #[cold]
    fn record_failure(&mut self, failure: Failure) {
        self.failed += 1;
        self.cause = self.cause.or(failure.named_rank());
    }

    /// As [`finish`](Self::finish), for a success. Written in place: a struct that is written in parts and read whole
    /// stalls the processor (store forwarding).
    #[inline(always)]
    pub(super) fn succeed(&mut self, request: u32, status: Status) {
        match self.entries.get_mut(request as usize) {
            Some(entry @ RequestEntry::Pending) => {
                *entry = RequestEntry::Done(Ok(status));
                self.finished += 1;
            }
            _ => self.finish_abandoned(request),
        }
    }

    /// As [`finish`](Self::finish), for a request whose result nobody asks for.
    #[inline(never)]
    fn finish_abandoned(&mut self, request: u32) {
        if let Some(RequestEntry::Abandoned) = self.entries.get(request as usize) {
            self.release(request);
        }
    }

    /// Counts the end of a transfer of a collective.
    pub(super) const fn record_step(&mut self) {
        self.steps += 1;
    }

    /// Counts the end of something other than a request that a thread may wait for.
    pub(super) const fn record_finished(&mut self) {
        self.finished += 1;
    }

    /// Counts the failure of a request that this table has recorded as ended.
    pub(super) const fn record_failed(&mut self) {
        self.failed += 1;
    }

    /// As [`record_finished`](Self::record_finished), of what may have failed.
    pub(super) const fn record_collective(&mut self, has_failed: bool) {
        self.finished += 1;
        self.failed += has_failed as u64;
    }

    /// How a request has ended, if it has.
    pub(super) fn result(&self, request: u32) -> Option<Result<Status, Failure>> {
        match self.entries.get(request as usize) {
            Some(RequestEntry::Done(result)) => Some(*result),
            _ => None,
        }
    }

    /// Frees a request's index.
    pub(super) fn release(&mut self, request: u32) {
        if let Some(entry) = self.entries.get_mut(request as usize) {
            *entry = RequestEntry::Free { next: self.free };
            self.free = request;
        }
    }

    /// Frees a request's index once it has ended: nobody asks for its result.
    pub(super) fn abandon(&mut self, request: u32) {
        match self.entries.get_mut(request as usize) {
            Some(entry @ RequestEntry::Pending) => *entry = RequestEntry::Abandoned,
            Some(RequestEntry::Done(_)) => self.release(request),
            Some(RequestEntry::Free { .. } | RequestEntry::Abandoned) | None => {}
        }
    }

    /// Number of requests that have ended since the start.
    pub(super) const fn finished(&self) -> u64 {
        self.finished
    }

    /// Number of requests and collectives that failed.
    pub(super) const fn failed(&self) -> u64 {
        self.failed
    }

    /// Number of transfers of collectives that have ended since the start.
    pub(super) const fn steps(&self) -> u64 {
        self.steps
    }

    /// Ends all pending requests, and everything else that a thread may wait for.
    pub(super) fn fail_all(&mut self, failure: Failure) {
        self.finished += 1;
        for entry in &mut self.entries {
            if matches!(entry, RequestEntry::Pending) {
                *entry = RequestEntry::Done(Err(failure));
                self.finished += 1;
                self.failed += 1;
            }
        }
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abandoned_request_is_free_once_it_has_ended() {
        let mut requests = Requests::new(false);
        let (ended, pending) = (requests.start(), requests.start());
        requests.finish(ended, Err(Failure::Revoked));
        requests.abandon(ended);
        assert_eq!(requests.start(), ended);
        requests.abandon(pending);
        assert_eq!((requests.result(pending), requests.start()), (None, 2), "it has not ended");
        requests.finish(pending, Err(Failure::Revoked));
        requests.finish(pending, Err(Failure::Revoked));
        assert_eq!((requests.result(pending), requests.start(), requests.start()), (None, pending, 3));
    }
}
