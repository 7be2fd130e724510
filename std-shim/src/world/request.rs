//! Requests: communication under way, and how it ended.

use alloc::collections::VecDeque;
use core::fmt;

use unisono_core::message::Pattern;

use unisono_bootstrap::Rank;

/// Distinguishes messages between the same two ranks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Tag(pub u32);

/// A message that was received.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Status {
    /// Who sent it.
    pub source: Rank,
    /// Its tag.
    pub tag: Tag,
    /// Its length in bytes.
    pub bytes: usize,
}

/// Why communication failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Failure {
    /// A rank died, or is out of reach.
    #[error("rank {0} failed")]
    PeerFailed(Rank),
    /// A rank finished and will neither send nor receive.
    #[error("rank {0} has left")]
    Parted(Rank),
    /// The message is longer than the receive.
    #[error("the message has {bytes} bytes, more than the receive has room for")]
    Truncated {
        /// The message's length.
        bytes: u64,
    },
    /// The receive at the other end is shorter than this message.
    #[error("the receive at rank {0} is shorter than the message")]
    TooLongForReceive(Rank),
    /// A rank of this node, or somebody in its name, wrote to shared memory what no rank writes.
    #[error("what rank {0} wrote to shared memory is no message")]
    Corrupted(Rank),
    /// There is no such rank.
    #[error("there is no rank {0}")]
    UnknownRank(Rank),
    /// There is no record left for one more request, no memory for a copy of its message, or the adapter does not take its memory.
    #[error("there is no room for one more request")]
    Refused,
    /// A member has given the communicator up ([`Communicator::revoke`](super::Communicator::revoke)).
    #[error("the communicator was revoked")]
    Revoked,
    /// The device to other nodes is gone: nothing comes from there, and nothing arrives.
    #[error("the network device is gone")]
    NoDevice,
    /// Requests of one World are waited for at once, and this one is another's.
    #[error("the request is of another World")]
    OtherWorld,
    /// This process has finished its part of the job.
    #[error("this process has finished")]
    Finished,
    /// The job is being ended.
    #[error("rank {rank} ended the job with code {code}")]
    Aborted {
        /// Who asked for it.
        rank: Rank,
        /// The exit code to end with.
        code: i32,
    },
}

/// One of several requests failed. The others stand as they stood: they can be waited for again, and so can those that had ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[error("request {index}: {failure}")]
pub struct RequestFailed {
    /// Which: its place among those that were waited for, from 0 on.
    pub index: usize,
    /// Why.
    pub failure: Failure,
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    Free {
        next: u32,
    },
    Pending,
    /// As that, and nobody will ask how it ended.
    Abandoned,
    Done(Result<Status, Failure>),
}

/// All requests of a process, by index.
#[derive(Debug)]
pub(super) struct Requests {
    entries: Vec<Entry>,
    free: u32,
    finished: u64,
    failed: u64,
    /// Messages of collectives that have ended, in that order.
    pub(super) moved: VecDeque<(u32, Result<(), Failure>)>,
    /// Parcels that were read once more, or will not be.
    pub(super) read: VecDeque<(u32, Option<Failure>)>,
    /// What threads wait for in probes.
    pub(super) probed: Vec<Pattern>,
}

const NONE: u32 = u32::MAX;
/// From this number on they are no requests of users but messages of collectives, or parcels.
const MESSAGES: u32 = 1 << 31;
const PARCELS: u32 = 1 << 30;

/// The number of a parcel among requests.
pub(super) const fn of_parcel(parcel: u32) -> u32 {
    PARCELS | parcel
}

/// The parcel that has this number among requests.
pub(super) const fn parcel_of(request: u32) -> Option<u32> {
    if request < MESSAGES { request.checked_sub(PARCELS) } else { None }
}

/// The number of a collective's message among requests.
pub(super) const fn of_message(message: u32) -> u32 {
    MESSAGES | message
}

/// The collective's message that has this number among requests.
pub(super) const fn message_of(request: u32) -> Option<u32> {
    request.checked_sub(MESSAGES)
}

impl Requests {
    pub(super) const fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: NONE,
            finished: 0,
            failed: 0,
            moved: VecDeque::new(),
            read: VecDeque::new(),
            probed: Vec::new(),
        }
    }

    /// A request that is under way.
    pub(super) fn start(&mut self) -> u32 {
        match self.entries.get_mut(self.free as usize) {
            Some(entry) => {
                let i = self.free;
                if let Entry::Free { next } = *entry {
                    self.free = next;
                }
                *entry = Entry::Pending;
                i
            }
            None => {
                self.entries.push(Entry::Pending);
                (self.entries.len() - 1) as u32
            }
        }
    }

    /// It has ended. Only the first end counts.
    #[inline(always)]
    pub(super) fn finish(&mut self, request: u32, result: Result<Status, Failure>) {
        if let Some(entry @ Entry::Pending) = self.entries.get_mut(request as usize) {
            *entry = Entry::Done(result);
            self.finished += 1;
            self.failed += u64::from(result.is_err());
        } else {
            self.finish_other(request, result);
        }
    }

    /// As that, where all went well: written where it stays. What is handed on in parts and read whole stalls the processor.
    #[inline(always)]
    pub(super) fn succeed(&mut self, request: u32, status: Status) {
        match self.entries.get_mut(request as usize) {
            Some(entry @ Entry::Pending) => {
                *entry = Entry::Done(Ok(status));
                self.finished += 1;
            }
            _ => self.finish_other(request, Ok(status)),
        }
    }

    /// As that, of what is no request of a user's.
    #[inline(never)]
    fn finish_other(&mut self, request: u32, result: Result<Status, Failure>) {
        if let Some(message) = message_of(request) {
            self.moved.push_back((message, result.map(|_| ())));
        } else if let Some(parcel) = parcel_of(request) {
            self.read.push_back((parcel, result.err()));
        } else if let Some(Entry::Abandoned) = self.entries.get(request as usize) {
            self.retire(request);
        }
    }

    /// Something else has ended that a thread may wait for.
    pub(super) const fn note_finished(&mut self) {
        self.finished += 1;
    }

    /// Whether and how it has ended.
    pub(super) fn result(&self, request: u32) -> Option<Result<Status, Failure>> {
        match self.entries.get(request as usize) {
            Some(Entry::Done(result)) => Some(*result),
            _ => None,
        }
    }

    /// Its index is free again.
    pub(super) fn retire(&mut self, request: u32) {
        if let Some(entry) = self.entries.get_mut(request as usize) {
            *entry = Entry::Free { next: self.free };
            self.free = request;
        }
    }

    /// As that, once it has ended: nobody asks how.
    pub(super) fn abandon(&mut self, request: u32) {
        match self.entries.get_mut(request as usize) {
            Some(entry @ Entry::Pending) => *entry = Entry::Abandoned,
            Some(Entry::Done(_)) => self.retire(request),
            Some(Entry::Free { .. } | Entry::Abandoned) | None => {}
        }
    }

    /// How many have ended since the start.
    pub(super) const fn finished(&self) -> u64 {
        self.finished
    }

    /// How many of those have failed.
    pub(super) const fn failed(&self) -> u64 {
        self.failed
    }

    /// Ends all that are under way, and whatever else a thread may wait for.
    pub(super) fn fail_all(&mut self, failure: Failure) {
        self.finished += 1;
        for entry in &mut self.entries {
            if matches!(entry, Entry::Pending) {
                *entry = Entry::Done(Err(failure));
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
        let mut requests = Requests::new();
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
