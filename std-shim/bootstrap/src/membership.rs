//! A process's membership in its job: its connection to the rendezvous server, the table of all ranks and the events
//! about them.

mod join;
mod notice;

pub use notice::{Liveness, Notice};

use super::{
    ballot::{Ballot, Name, Verdict},
    entry::Entry,
    host::Host,
    link::{LinkError, Sealed},
    message::{KEY_MAX, Say, Tell, VALUE_MAX},
};
use crate::rank::{Rank, Seat};
use alloc::collections::VecDeque;
use core::time::Duration;
use std::{
    os::fd::{AsFd, BorrowedFd},
    time::Instant,
};

/// An agent that does not answer for this long is considered failed, and so are the ranks of its node.
pub const AGENT_SILENCE: Duration = Duration::from_secs(30);
/// Largest number of unread events.
const NOTICES_MAX: usize = 1 << 20;

/// Why a request to the server failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AwaitError {
    /// The connection is lost.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A key is longer than [`KEY_MAX`] or a value than [`VALUE_MAX`].
    #[error("the key is longer than {KEY_MAX} bytes or the value is longer than {VALUE_MAX}")]
    TooLong,
    /// The server's store is full.
    #[error("the key-value store of the rendezvous server is full")]
    NoRoom,
    /// A rank aborted the job meanwhile; [`Notice::Aborted`] is queued.
    #[error("another rank aborted the job")]
    Aborted,
}

/// A process's membership in its job.
#[derive(Debug)]
pub struct Membership {
    seat: Seat,
    table: Vec<Entry>,
    notices: VecDeque<Notice>,
    verdicts: Vec<Verdict>,
    asked: VecDeque<(Rank, Instant)>,
    connection: Option<Sealed>,
    host: Option<Host>,
}

impl Membership {
    /// The rank of this process.
    pub const fn rank(&self) -> Rank {
        self.seat.rank
    }

    /// Ranks of the job.
    pub const fn size(&self) -> u32 {
        self.seat.size
    }

    /// The current record of every rank, by rank.
    pub fn table(&self) -> &[Entry] {
        &self.table
    }

    /// The next event, if there is one. One system call when none is queued: call it every few milliseconds, or when
    /// the descriptor ([`as_fd`](Self::as_fd)) is readable.
    pub fn poll(&mut self) -> Option<Notice> {
        if self.notices.is_empty() {
            self.listen();
        }
        if self.notices.is_empty()
            && let Some((rank, deadline)) = self.asked.front().copied()
            && Instant::now() >= deadline
        {
            self.asked.pop_front();
            return Some(Notice::Liveness { rank, liveness: Liveness::Unanswered });
        }
        self.notices.pop_front()
    }

    /// The queued events, which stay queued.
    pub fn heard(&mut self) -> impl Iterator<Item = &Notice> {
        self.listen();
        self.notices.iter()
    }

    /// Receives the messages that have arrived, without blocking.
    fn listen(&mut self) {
        while let Some(connection) = &mut self.connection {
            let heard = connection.poll().and_then(|frame| match frame {
                Some(frame) => Ok(Some((frame.kind(), Tell::decode(&frame)?))),
                None => Ok(None),
            });
            match heard {
                Ok(None) => return,
                Ok(Some((kind, told))) => {
                    if self.take(told).is_none() {
                        self.lose(LinkError::OutOfTurn(kind));
                    }
                    if self.notices.len() >= NOTICES_MAX {
                        return;
                    }
                }
                Err(error) => self.lose(error),
            }
        }
    }

    fn lose(&mut self, error: LinkError) {
        self.connection = None;
        self.notices.push_back(Notice::Lost(error));
    }

    /// Turns an unsolicited message of the server into an event. `None`: it is a reply, or not valid here.
    fn take(&mut self, told: Tell) -> Option<()> {
        let notice = match told {
            Tell::Died { rank, incarnation, ending } => Notice::Died { rank, incarnation, ending },
            Tell::Met { rank, entry } => {
                // A record that has not arrived yet will arrive in its new form.
                let line = self.table.get_mut(usize::try_from(rank.0).ok()?);
                match line {
                    Some(line) => *line = entry,
                    None => return Some(()),
                }
                Notice::Met { rank, entry }
            }
            Tell::Liveness { rank, alive } => {
                if let Some(at) = self.asked.iter().position(|(asked, _)| *asked == rank) {
                    self.asked.remove(at);
                }
                Notice::Liveness { rank, liveness: if alive { Liveness::Alive } else { Liveness::Dead } }
            }
            Tell::Aborted { rank, code } => Notice::Aborted { rank, code },
            Tell::Agreed(verdict) => {
                self.verdicts.push(verdict);
                return Some(());
            }
            _ => return None,
        };
        self.notices.push_back(notice);
        Some(())
    }

    /// Queries whether a rank's process is alive. The answer is a [`Notice::Liveness`], at the latest after
    /// [`AGENT_SILENCE`]. Does nothing while a query about the rank is unanswered.
    pub fn ask(&mut self, rank: Rank) {
        self.ask_within(rank, AGENT_SILENCE);
    }

    fn ask_within(&mut self, rank: Rank, silence: Duration) {
        if self.asked.iter().any(|(asked, _)| *asked == rank) {
            return;
        }
        self.asked.push_back((rank, Instant::now() + silence));
        self.say(&Say::Ask(rank));
    }

    /// Votes in an agreement. The decision is returned by [`verdict`](Self::verdict).
    pub fn vote(&mut self, ballot: Ballot) {
        if self.connection.is_none() && self.seat.size == 1 {
            let Ballot { name, failed, most, words, .. } = ballot;
            return self.verdicts.push(Verdict { name, failed, most, words });
        }
        self.say(&Say::Vote(ballot));
    }

    /// The decision of an agreement, once it is made, or an error if the connection is lost, so that it never arrives.
    /// Receives the messages that have arrived.
    pub fn verdict(&mut self, name: Name) -> Option<Result<Verdict, LinkError>> {
        self.listen();
        if let Some(at) = self.verdicts.iter().position(|verdict| verdict.name == name) {
            return Some(Ok(self.verdicts.swap_remove(at)));
        }
        self.connection.is_none().then_some(Err(LinkError::Closed))
    }

    fn say(&mut self, what: &Say) {
        let sent = self.connection.as_mut().map(|connection| connection.send(&what.encode()));
        if let Some(Err(error)) = sent {
            self.lose(error);
        }
    }

    /// Waits until every rank that has neither failed nor finished has called this as often as this process.
    pub fn fence(&mut self, timeout: Duration) -> Result<(), AwaitError> {
        match self.question(&Say::Fence, timeout)? {
            None | Some(Tell::Fenced) => Ok(()),
            Some(_) => Err(AwaitError::Aborted),
        }
    }

    /// Stores a value under a key, for every rank to [`get`](Self::get).
    pub fn put(&mut self, key: &[u8], value: &[u8], timeout: Duration) -> Result<(), AwaitError> {
        if key.len() > KEY_MAX || value.len() > VALUE_MAX {
            return Err(AwaitError::TooLong);
        }
        match self.question(&Say::Put { key: key.to_vec(), value: value.to_vec() }, timeout)? {
            Some(Tell::Stored(true)) => Ok(()),
            None | Some(Tell::Stored(false)) => Err(AwaitError::NoRoom),
            Some(_) => Err(AwaitError::Aborted),
        }
    }

    /// The value last stored under the key, if there is one.
    pub fn get(&mut self, key: &[u8], timeout: Duration) -> Result<Option<Vec<u8>>, AwaitError> {
        if key.len() > KEY_MAX {
            return Err(AwaitError::TooLong);
        }
        match self.question(&Say::Get { key: key.to_vec() }, timeout)? {
            Some(Tell::Value(value)) => Ok(value),
            None => Ok(None),
            Some(_) => Err(AwaitError::Aborted),
        }
    }

    /// Aborts the whole job. This process should then exit with the code, too.
    pub fn abort(&mut self, code: i32) {
        self.say(&Say::Abort(code));
        let deadline = Instant::now() + Duration::from_secs(1);
        while let Some(connection) = &mut self.connection
            && connection.link.backlog() > 0
            && connection.link.wait(deadline).is_ok()
            && connection.link.flush().is_ok()
        {}
    }

    /// Announces that this process has finished, so that its end is not a failure. Rank 0, if it hosts the server,
    /// waits for the other ranks to finish, at most for the timeout.
    pub fn leave(mut self, timeout: Duration) -> Result<(), AwaitError> {
        let deadline = Instant::now() + timeout;
        let answer = self.question(&Say::Leave, timeout)?;
        if let Some(host) = &self.host {
            host.wait(deadline);
        }
        match answer {
            None | Some(Tell::Farewell) => Ok(()),
            Some(_) => Err(AwaitError::Aborted),
        }
    }

    /// Sends a request and waits for its reply. `None` in a job of one process without a server.
    fn question(&mut self, what: &Say, timeout: Duration) -> Result<Option<Tell>, AwaitError> {
        let deadline = Instant::now() + timeout;
        match &mut self.connection {
            Some(connection) => connection.send(&what.encode())?,
            None if self.seat.size == 1 => return Ok(None),
            None => return Err(LinkError::Closed.into()),
        }
        loop {
            let Some(connection) = &mut self.connection else {
                return Err(LinkError::Closed.into());
            };
            let frame = match connection.next(deadline) {
                Ok(frame) => frame,
                Err(error) => {
                    // A late reply would be taken for the reply to another request.
                    self.lose(error);
                    return Err(error.into());
                }
            };
            match Tell::decode(&frame).map_err(LinkError::from)? {
                answer @ (Tell::Fenced | Tell::Stored(_) | Tell::Value(_) | Tell::Farewell) => return Ok(Some(answer)),
                told @ Tell::Aborted { .. } => {
                    self.take(told);
                    return Err(AwaitError::Aborted);
                }
                told => self.take(told).ok_or(LinkError::OutOfTurn(frame.kind()))?,
            }
        }
    }

    /// A descriptor that is readable when an event may have arrived; `None` without a server.
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().map(|connection| connection.link.as_fd())
    }
}

#[cfg(test)]
mod tests;
