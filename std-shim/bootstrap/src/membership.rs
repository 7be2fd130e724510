//! A process's membership in its job: its connection to the rendezvous server, the table of all ranks and the events
//! about them.

mod event;
mod join;

pub use event::{Liveness, MembershipEvent};

use super::{
    agreement::{AgreementId, AgreementOutcome, Vote},
    message::{ClientMessage, KEY_MAX, ServerMessage, VALUE_MAX},
    peer_record::PeerRecord,
    rank_zero::RankZeroServer,
    stream::{AuthenticatedStream, ConnectionError},
};
use crate::{
    fence::{FenceDifference, FenceRecord},
    rank::{JobPosition, Rank},
    waits::WaitReport,
};
use alloc::collections::VecDeque;
use core::{net::SocketAddr, time::Duration};
use std::{
    os::fd::{AsFd, BorrowedFd},
    time::Instant,
};

/// An agent that does not answer for this long is considered failed, and so are the ranks of its node.
pub const AGENT_SILENCE: Duration = Duration::from_secs(30);
/// Largest number of unread events.
const EVENTS_MAX: usize = 1 << 20;

/// Why a request to the server failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AwaitError {
    /// The connection is lost.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// A key is longer than [`KEY_MAX`] or a value than [`VALUE_MAX`].
    #[error("the key is longer than {KEY_MAX} bytes or the value is longer than {VALUE_MAX}")]
    TooLong,
    /// The server's store is full.
    #[error("the key-value store of the rendezvous server is full")]
    NoRoom,
    /// A rank aborted the job meanwhile; [`MembershipEvent::Aborted`] is queued.
    #[error("another rank aborted the job")]
    Aborted,
}

/// A process's membership in its job.
#[derive(Debug)]
pub struct Membership {
    position: JobPosition,
    table: Vec<PeerRecord>,
    events: VecDeque<MembershipEvent>,
    outcomes: Vec<AgreementOutcome>,
    queries: VecDeque<(Rank, Instant)>,
    /// Whether this process has entered a fence ([`enter_fence`](Self::enter_fence)) that not all have entered.
    waits_at_fence: bool,
    /// The difference that the last such fence found.
    difference: Option<FenceDifference>,
    connection: Option<AuthenticatedStream>,
    host: Option<RankZeroServer>,
}

impl Membership {
    /// The rank of this process.
    pub const fn rank(&self) -> Rank {
        self.position.rank
    }

    /// Ranks of the job.
    pub const fn size(&self) -> u32 {
        self.position.size
    }

    /// The current record of every rank, by rank.
    pub fn table(&self) -> &[PeerRecord] {
        &self.table
    }

    /// The next event, if there is one. One system call when none is queued: call it every few milliseconds, or when
    /// the descriptor ([`as_fd`](Self::as_fd)) is readable.
    pub fn poll(&mut self) -> Option<MembershipEvent> {
        if self.events.is_empty() {
            self.receive();
        }
        if self.events.is_empty()
            && let Some((rank, deadline)) = self.queries.front().copied()
            && Instant::now() >= deadline
        {
            self.queries.pop_front();
            return Some(MembershipEvent::Liveness { rank, liveness: Liveness::Unanswered });
        }
        self.events.pop_front()
    }

    /// The queued events, which stay queued.
    pub fn queued_events(&mut self) -> impl Iterator<Item = &MembershipEvent> {
        self.receive();
        self.events.iter()
    }

    /// Receives the messages that have arrived, without blocking.
    fn receive(&mut self) {
        while let Some(connection) = &mut self.connection {
            let polled = connection.poll().and_then(|frame| match frame {
                Some(frame) => Ok(Some((frame.kind(), ServerMessage::decode(&frame)?))),
                None => Ok(None),
            });
            match polled {
                Ok(None) => return,
                Ok(Some((kind, message))) => {
                    if self.handle_unsolicited(message).is_none() {
                        self.disconnect(ConnectionError::Unexpected(kind));
                    }
                    if self.events.len() >= EVENTS_MAX {
                        return;
                    }
                }
                Err(error) => self.disconnect(error),
            }
        }
    }

    fn disconnect(&mut self, error: ConnectionError) {
        self.connection = None;
        self.events.push_back(MembershipEvent::Disconnected(error));
    }

    /// Turns an unsolicited message of the server into an event. `None`: it is a reply, or not valid here.
    fn handle_unsolicited(&mut self, message: ServerMessage) -> Option<()> {
        let notice = match message {
            ServerMessage::Failed { rank, incarnation, ending } => {
                MembershipEvent::Failed { rank, incarnation, ending }
            }
            ServerMessage::Joined { rank, entry } => {
                // A record that has not arrived yet will arrive in its new form.
                let line = self.table.get_mut(usize::try_from(rank.0).ok()?);
                match line {
                    Some(line) => *line = entry.clone(),
                    None => return Some(()),
                }
                MembershipEvent::Joined { rank, entry }
            }
            ServerMessage::Liveness { rank, alive } => {
                if let Some(at) = self.queries.iter().position(|(asked, _)| *asked == rank) {
                    self.queries.remove(at);
                }
                MembershipEvent::Liveness { rank, liveness: if alive { Liveness::Alive } else { Liveness::Dead } }
            }
            ServerMessage::Aborted { rank, code } => MembershipEvent::Aborted { rank, code },
            ServerMessage::ConfirmWaits(round) => MembershipEvent::ConfirmWaits(round),
            ServerMessage::QueryPolling { asker } => MembershipEvent::PollingQuery { asker },
            ServerMessage::Polling { rank, milliseconds } => {
                MembershipEvent::Polling { rank, duration: Duration::from_millis(milliseconds) }
            }
            ServerMessage::Rail { rank, incarnation, rail, lanes } => {
                // A record that has not arrived yet will arrive with it.
                let line = self.table.get_mut(usize::try_from(rank.0).ok()?);
                let line = line.filter(|line| line.incarnation == incarnation);
                if !line.is_some_and(|line| line.add_rail(rail, lanes)) {
                    return Some(());
                }
                MembershipEvent::Rail { rank, incarnation, rail, lanes }
            }
            ServerMessage::Fenced(difference) if self.waits_at_fence => {
                (self.waits_at_fence, self.difference) = (false, difference);
                return Some(());
            }
            ServerMessage::Agreed(verdict) => {
                self.outcomes.push(verdict);
                return Some(());
            }
            _ => return None,
        };
        self.events.push_back(notice);
        Some(())
    }

    /// Queries whether a rank's process is alive. The answer is a [`MembershipEvent::Liveness`], at the latest after
    /// [`AGENT_SILENCE`]. Does nothing while a query about the rank is unanswered.
    pub fn query_liveness(&mut self, rank: Rank) {
        self.query_liveness_within(rank, AGENT_SILENCE);
    }

    fn query_liveness_within(&mut self, rank: Rank, silence: Duration) {
        if self.queries.iter().any(|(asked, _)| *asked == rank) {
            return;
        }
        self.queries.push_back((rank, Instant::now() + silence));
        self.send(&ClientMessage::QueryLiveness(rank));
    }

    /// Votes in an agreement. The decision is returned by [`agreement_outcome`](Self::agreement_outcome).
    pub fn vote(&mut self, ballot: Vote) {
        if self.connection.is_none() && self.position.size == 1 {
            let Vote { id: name, failed, maximum: most, words, .. } = ballot;
            return self.outcomes.push(AgreementOutcome { id: name, failed, maximum: most, words });
        }
        self.send(&ClientMessage::Vote(ballot));
    }

    /// The decision of an agreement, once it is made, or an error if the connection is lost, so that it never arrives.
    /// Receives the messages that have arrived.
    pub fn agreement_outcome(&mut self, name: AgreementId) -> Option<Result<AgreementOutcome, ConnectionError>> {
        self.receive();
        if let Some(at) = self.outcomes.iter().position(|verdict| verdict.id == name) {
            return Some(Ok(self.outcomes.swap_remove(at)));
        }
        self.connection.is_none().then_some(Err(ConnectionError::Closed))
    }

    fn send(&mut self, what: &ClientMessage) {
        let sent = self.connection.as_mut().map(|connection| connection.send(&what.encode()));
        if let Some(Err(error)) = sent {
            self.disconnect(error);
        }
    }

    /// Waits until every rank that has neither failed nor finished has called this as often as this process.
    pub fn fence(&mut self, timeout: Duration) -> Result<(), AwaitError> {
        match self.request(&ClientMessage::Fence(None), timeout)? {
            None | Some(ServerMessage::Fenced(_)) => Ok(()),
            Some(_) => Err(AwaitError::Aborted),
        }
    }

    /// Enters the next fence without waiting for the others ([`fence_outcome`](Self::fence_outcome)). No other request
    /// may be made meanwhile. Compares these records of all ranks that have some.
    pub fn enter_fence(&mut self, records: Option<Vec<FenceRecord>>) {
        self.waits_at_fence = self.connection.is_some();
        self.send(&ClientMessage::Fence(records));
    }

    /// Whether every rank that has neither failed nor finished has entered the fence that this process entered last, with
    /// the first difference of their records, or an error if the connection is lost. Receives the messages that have
    /// arrived.
    pub fn fence_outcome(&mut self) -> Option<Result<Option<FenceDifference>, ConnectionError>> {
        self.receive();
        match (self.waits_at_fence, &self.connection) {
            (false, _) => Some(Ok(self.difference.take())),
            (true, None) => Some(Err(ConnectionError::Closed)),
            (true, Some(_)) => None,
        }
    }

    /// Stores a value under a key, for every rank to [`get`](Self::get).
    pub fn put(&mut self, key: &[u8], value: &[u8], timeout: Duration) -> Result<(), AwaitError> {
        if key.len() > KEY_MAX || value.len() > VALUE_MAX {
            return Err(AwaitError::TooLong);
        }
        match self.request(&ClientMessage::Put { key: key.to_vec(), value: value.to_vec() }, timeout)? {
            Some(ServerMessage::Stored(true)) => Ok(()),
            None | Some(ServerMessage::Stored(false)) => Err(AwaitError::NoRoom),
            Some(_) => Err(AwaitError::Aborted),
        }
    }

    /// The value last stored under the key, if there is one.
    pub fn get(&mut self, key: &[u8], timeout: Duration) -> Result<Option<Vec<u8>>, AwaitError> {
        if key.len() > KEY_MAX {
            return Err(AwaitError::TooLong);
        }
        match self.request(&ClientMessage::Get { key: key.to_vec() }, timeout)? {
            Some(ServerMessage::Value(value)) => Ok(value),
            None => Ok(None),
            Some(_) => Err(AwaitError::Aborted),
        }
    }

    /// Aborts the whole job. This process should then exit with the code, too.
    pub fn abort(&mut self, code: i32) {
        self.send(&ClientMessage::Abort(code));
        let deadline = Instant::now() + Duration::from_secs(1);
        while let Some(connection) = &mut self.connection
            && connection.stream.backlog() > 0
            && connection.stream.wait(deadline).is_ok()
            && connection.stream.flush().is_ok()
        {}
    }

    /// Reports that an operation of this process failed because of another rank, so that the launcher names the rank
    /// that failed first. Does not wait.
    pub fn report_cause(&mut self, cause: Rank) {
        self.send(&ClientMessage::Cause(cause));
    }

    /// Reports the waits of this process, which is blocked, or that it is so no longer. Does not wait.
    pub fn report_waits(&mut self, report: WaitReport) {
        self.send(&ClientMessage::Waits(report));
    }

    /// Queries for how long a rank has made progress. The answer is a [`MembershipEvent::Polling`], once the rank makes
    /// progress.
    pub fn query_polling(&mut self, rank: Rank) {
        self.send(&ClientMessage::QueryPolling(rank));
    }

    /// Answers a rank's [`query_polling`](Self::query_polling).
    pub fn answer_polling(&mut self, asker: Rank, duration: Duration) {
        let milliseconds = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        self.send(&ClientMessage::Polling { asker, milliseconds });
    }

    /// Announces this process's next rail, of this number, and its addresses to all ranks, this one included: each gets a
    /// [`MembershipEvent::Rail`]. Does not wait.
    pub fn add_rail(&mut self, rail: u8, lanes: [SocketAddr; 2]) {
        self.send(&ClientMessage::Rail { rail, lanes });
    }

    /// Announces that this process leaves the job without finishing it: fences and agreements do not wait for it. Does
    /// not wait.
    pub fn leave(&mut self) {
        self.send(&ClientMessage::Leave);
    }

    /// Announces that this process has finished, so that its end is not a failure. Rank 0, if it hosts the server,
    /// waits for the other ranks to finish, at most for the timeout.
    pub fn finish(mut self, timeout: Duration) -> Result<(), AwaitError> {
        let deadline = Instant::now() + timeout;
        let answer = self.request(&ClientMessage::Finish, timeout)?;
        if let Some(host) = &self.host {
            host.wait(deadline);
        }
        match answer {
            None | Some(ServerMessage::FinishAck) => Ok(()),
            Some(_) => Err(AwaitError::Aborted),
        }
    }

    /// Sends a request and waits for its reply. `None` in a job of one process without a server.
    fn request(&mut self, what: &ClientMessage, timeout: Duration) -> Result<Option<ServerMessage>, AwaitError> {
        let deadline = Instant::now() + timeout;
        match &mut self.connection {
            Some(connection) => connection.send(&what.encode())?,
            None if self.position.size == 1 => return Ok(None),
            None => return Err(ConnectionError::Closed.into()),
        }
        loop {
            let Some(connection) = &mut self.connection else {
                return Err(ConnectionError::Closed.into());
            };
            let frame = match connection.next(deadline) {
                Ok(frame) => frame,
                Err(error) => {
                    // A late reply would be taken for the reply to another request.
                    self.disconnect(error);
                    return Err(error.into());
                }
            };
            match ServerMessage::decode(&frame).map_err(ConnectionError::from)? {
                answer @ (ServerMessage::Fenced(_)
                | ServerMessage::Stored(_)
                | ServerMessage::Value(_)
                | ServerMessage::FinishAck) => return Ok(Some(answer)),
                message @ ServerMessage::Aborted { .. } => {
                    self.handle_unsolicited(message);
                    return Err(AwaitError::Aborted);
                }
                message => self.handle_unsolicited(message).ok_or(ConnectionError::Unexpected(frame.kind()))?,
            }
        }
    }

    /// A descriptor that is readable when an event may have arrived; `None` without a server.
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().map(|connection| connection.stream.as_fd())
    }
}

#[cfg(test)]
mod tests;
