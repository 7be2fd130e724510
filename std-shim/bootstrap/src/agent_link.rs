//! The connection of a node's agent to the rendezvous server.

use crate::auth::Secret;
use crate::host_port::HostPort;
use crate::message::{ClientMessage, ServerMessage};
use crate::peer_record::Ending;
use crate::rank::Rank;
use crate::stream::connect::connect;
use crate::stream::{AuthenticatedStream, ClientRole, ConnectionError};
use core::net::SocketAddr;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

/// What the server asks of an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AgentRequest {
    /// Send this signal to a rank of the node, or to all of them.
    Signal {
        /// The rank; `None` for all.
        rank: Option<Rank>,
        /// The signal's number.
        signal: i32,
    },
    /// Does the process of this rank run? To be answered with [`AgentLink::liveness`].
    Ask {
        /// The rank in question.
        rank: Rank,
        /// The rank that asks.
        asker: Rank,
    },
}

/// The connection of a node's agent to the rendezvous server.
#[derive(Debug)]
pub struct AgentLink(AuthenticatedStream);

impl AgentLink {
    /// Connects the agent of a node at the first of several places that answers, and returns where that was. Tries
    /// until the deadline.
    ///
    /// # Errors
    /// [`ConnectionError`] of the last attempt.
    pub fn connect(
        places: &[HostPort],
        node: u32,
        (secret, job): (&Secret, &str),
        deadline: Instant,
    ) -> Result<(Self, SocketAddr), ConnectionError> {
        let (sealed, at) = connect(places, ClientRole::Agent(node), &secret.for_job(job), deadline)?;
        Ok((Self(sealed), at))
    }

    /// Waits until the server knows this agent.
    ///
    /// # Errors
    /// [`ConnectionError`], also when the server sends something else first.
    pub fn await_welcome(&mut self, deadline: Instant) -> Result<(), ConnectionError> {
        let frame = self.0.next(deadline)?;
        match ServerMessage::decode(&frame)? {
            ServerMessage::Welcome => Ok(()),
            _ => Err(ConnectionError::Unexpected(frame.kind())),
        }
    }

    /// The next request, if one has arrived.
    ///
    /// # Errors
    /// [`ConnectionError`].
    pub fn poll(&mut self) -> Result<Option<AgentRequest>, ConnectionError> {
        let Some(frame) = self.0.poll()? else { return Ok(None) };
        match ServerMessage::decode(&frame)? {
            ServerMessage::Signal { rank, signal } => Ok(Some(AgentRequest::Signal { rank, signal })),
            ServerMessage::QueryLiveness { rank, asker } => Ok(Some(AgentRequest::Ask { rank, asker })),
            _ => Err(ConnectionError::Unexpected(frame.kind())),
        }
    }

    /// Reports that a rank of the node runs as process `pid`.
    ///
    /// # Errors
    /// [`ConnectionError`].
    pub fn started(&mut self, rank: Rank, pid: u32) -> Result<(), ConnectionError> {
        self.0.send(&ClientMessage::Started { rank, pid }.encode())
    }

    /// Reports how a rank of the node ended, and why it did not start, if it did not.
    ///
    /// # Errors
    /// [`ConnectionError`].
    pub fn ended(&mut self, rank: Rank, ending: Ending, reason: String) -> Result<(), ConnectionError> {
        self.0.send(&ClientMessage::Ended { rank, ending, reason }.encode())
    }

    /// Answers [`AgentRequest::Ask`].
    ///
    /// # Errors
    /// [`ConnectionError`].
    pub fn liveness(&mut self, rank: Rank, asker: Rank, alive: bool) -> Result<(), ConnectionError> {
        self.0.send(&ClientMessage::Liveness { rank, asker, alive }.encode())
    }

    /// Whether bytes wait to be sent: then the connection is to be polled for room, too.
    pub fn has_backlog(&self) -> bool {
        self.0.stream.backlog() > 0
    }

    /// Closes the connection once the server has read everything, at the deadline at the latest.
    pub fn close(mut self, deadline: Instant) {
        let link = &mut self.0.stream;
        while link.backlog() > 0 && link.flush().is_ok() && link.wait(deadline).is_ok() {}
        let _ = link.stream().shutdown(Shutdown::Write);
        while self.0.poll().is_ok() && self.0.stream.wait(deadline).is_ok() {}
    }
}

impl AsFd for AgentLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.stream.as_fd()
    }
}
