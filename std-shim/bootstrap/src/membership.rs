//! A process's place in its job: joins, knows everybody, hears what happens to them.

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

/// An agent that does not answer for this long is dead, and so are the ranks of its node.
pub const AGENT_SILENCE: Duration = Duration::from_secs(30);
/// Most notices that wait to be read.
const NOTICES_MAX: usize = 1 << 20;

/// Why a question to the server has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AwaitError {
    /// The connection is gone.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A key is longer than [`KEY_MAX`] or a value than [`VALUE_MAX`].
    #[error("a key has at most {KEY_MAX} bytes and a value at most {VALUE_MAX}")]
    TooLong,
    /// The server's store is full.
    #[error("the server has no room for another value")]
    NoRoom,
    /// A rank asked for the end of the job meanwhile; [`Notice::Aborted`] waits to be read.
    #[error("the job is being ended")]
    Aborted,
}

/// A process's place in its job.
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
    /// This process.
    pub const fn rank(&self) -> Rank {
        self.seat.rank
    }

    /// Ranks of the job.
    pub const fn size(&self) -> u32 {
        self.seat.size
    }

    /// Everybody's current line, by rank.
    pub fn table(&self) -> &[Entry] {
        &self.table
    }

    /// What happened next, if anything has. One system call when nothing waits: ask every few milliseconds, or when the
    /// descriptor ([`as_fd`](Self::as_fd)) is readable.
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

    /// Notices that have arrived and wait to be read, none of which is taken away.
    pub fn heard(&mut self) -> impl Iterator<Item = &Notice> {
        self.listen();
        self.notices.iter()
    }

    /// Takes what has arrived, without waiting.
    fn listen(&mut self) {
        while let Some(connection) = &mut self.connection {
            let heard = connection.poll().and_then(|frame| match frame {
                Some(frame) => Ok(Some((frame.kind, Tell::decode(&frame)?))),
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

    /// Turns what the server tells unasked into a notice. `None`: it is the answer to something, or makes no sense.
    fn take(&mut self, told: Tell) -> Option<()> {
        let notice = match told {
            Tell::Died { rank, incarnation, ending } => Notice::Died { rank, incarnation, ending },
            Tell::Met { rank, entry } => {
                // A line that has not come yet will come in its new form.
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

    /// Asks whether a rank's process lives. The answer is a [`Notice::Liveness`], at the latest after
    /// [`AGENT_SILENCE`]. A rank that has been asked about and not answered for is not asked about again.
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

    /// Says this process's part in an agreement. What was decided is [`verdict`](Self::verdict).
    pub fn vote(&mut self, ballot: Ballot) {
        if self.connection.is_none() && self.seat.size == 1 {
            let Ballot { name, failed, most, words, .. } = ballot;
            return self.verdicts.push(Verdict { name, failed, most, words });
        }
        self.say(&Say::Vote(ballot));
    }

    /// What was decided in an agreement, once it is known, or why it never will be: there is no server any more. Hears what has
    /// arrived.
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

    /// Waits until every rank that has neither died nor left calls this as often as this process has.
    pub fn fence(&mut self, timeout: Duration) -> Result<(), AwaitError> {
        match self.question(&Say::Fence, timeout)? {
            None | Some(Tell::Fenced) => Ok(()),
            Some(_) => Err(AwaitError::Aborted),
        }
    }

    /// Stores a value that every rank can [`get`](Self::get).
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

    /// The value that was last stored under the key.
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

    /// Asks for the end of the whole job. This process should then end with the code, too.
    pub fn abort(&mut self, code: i32) {
        self.say(&Say::Abort(code));
        let deadline = Instant::now() + Duration::from_secs(1);
        while let Some(connection) = &mut self.connection
            && connection.link.backlog() > 0
            && connection.link.wait(deadline).is_ok()
            && connection.link.flush().is_ok()
        {}
    }

    /// Says that this process has finished, so that its end is no death. Rank 0, if it hosts the server, waits for the
    /// others to finish, at most for the timeout.
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

    /// Says something that has an answer and waits for it. `None` when there is no server to ask.
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
                    // An answer that comes later would be taken for that of another question.
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
                told => self.take(told).ok_or(LinkError::OutOfTurn(frame.kind))?,
            }
        }
    }

    /// Readable when a notice may have arrived; `None` when there is no server to hear from.
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().map(|connection| connection.link.as_fd())
    }
}

#[cfg(test)]
mod tests;
