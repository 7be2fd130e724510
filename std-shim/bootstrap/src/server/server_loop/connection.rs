//! One client connection of the rendezvous server: authentication, requests and replies.

use super::ServerLoop;
use crate::{
    membership_state::{ConnectionId, MembershipState},
    message::{ClientMessage, RECORDS_MAX, ServerMessage},
    rank::Rank,
    stream::{BufferedStream, ClientRole, ConnectionError, Handshake, SessionKeys},
    version::Version,
};
use core::net::IpAddr;
use rustix::event::epoll;
use std::{io, time::Instant};
use tracing::{debug, warn};

/// The next part of the table is queued when fewer bytes than this are unsent.
const TABLE_BACKLOG: usize = 64 * 1024;

/// Frames handled from one connection before the others get their turn.
const FRAMES_PER_TURN: usize = 64;

#[derive(Debug)]
pub(super) enum Phase {
    Handshake(Handshake),
    Member { rank: Rank, session: SessionKeys, joined: bool },
    Agent { node: u32, session: SessionKeys },
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: BufferedStream,
    pub(super) phase: Phase,
    pub(super) since: Instant,
    pub(super) seen: IpAddr,
    /// The next record of the table to send.
    pub(super) table: Option<u32>,
    pub(super) writing: bool,
    pub(super) closing: bool,
}

impl ServerLoop {
    /// Serves a readable connection for one turn. Returns whether it has more frames already.
    pub(super) fn serve_connection(&mut self, id: ConnectionId) -> Result<bool, ConnectionError> {
        let Some(Some(conversation)) = self.connections.get_mut(id) else {
            return Ok(false);
        };
        conversation.stream.read()?;
        if let Phase::Handshake(greeting) = &mut conversation.phase {
            let known = greeting.advance(&mut conversation.stream, &self.key)?;
            match known {
                None => {
                    conversation.stream.flush()?;
                    return Ok(false);
                }
                Some((ClientRole::Member(rank), session)) => {
                    conversation.phase = Phase::Member { rank: Rank(rank), session, joined: false };
                }
                Some((ClientRole::Agent(node), session)) => {
                    conversation.phase = Phase::Agent { node, session };
                    self.state.handle_agent(id, node);
                }
            }
            self.unauthenticated -= 1;
        }
        for _ in 0..FRAMES_PER_TURN {
            let Some(Some(Connection { stream: link, phase, seen, closing, .. })) = self.connections.get_mut(id) else {
                return Ok(false);
            };
            if *closing {
                return if link.is_closed() { Err(ConnectionError::Closed) } else { Ok(false) };
            }
            let (Phase::Member { session, .. } | Phase::Agent { session, .. }) = phase else {
                return Ok(false);
            };
            let Some(frame) = session.next_frame(link)? else {
                self.continue_table(id)?;
                return Ok(false);
            };
            let said = ClientMessage::decode(&frame)?;
            let seen = *seen;
            Self::dispatch(&mut self.state, id, phase, seen, said).ok_or(ConnectionError::Unexpected(frame.kind()))?;
        }
        Ok(true)
    }

    pub(super) fn dispatch(
        roll: &mut MembershipState,
        id: ConnectionId,
        phase: &mut Phase,
        seen: IpAddr,
        said: ClientMessage,
    ) -> Option<()> {
        match (phase, said) {
            (Phase::Member { rank, joined, .. }, ClientMessage::Join { version, offer, pid, node, host })
                if !*joined =>
            {
                if version != Version::CURRENT {
                    roll.refuse_version(id, version);
                    return Some(());
                }
                *joined = true;
                debug!(%rank, pid, host, "a rank joins");
                roll.handle_join(id, *rank, offer, node, host, seen);
            }
            (Phase::Member { rank, joined: true, .. }, said) => match said {
                ClientMessage::QueryLiveness(about) => roll.handle_liveness_query(id, *rank, about),
                ClientMessage::Fence(records) => roll.handle_fence(*rank, records),
                ClientMessage::Abort(code) => roll.handle_abort(*rank, code),
                ClientMessage::Put { key, value } => roll.handle_put(id, key, value),
                ClientMessage::Get { key } => roll.handle_get(id, &key),
                ClientMessage::Finish => roll.handle_finish(id, *rank),
                ClientMessage::Vote(ballot) => roll.handle_vote(id, *rank, ballot)?,
                ClientMessage::Cause(cause) => roll.handle_cause(*rank, cause),
                ClientMessage::Leave => roll.handle_leave(*rank),
                ClientMessage::Waits(report) => roll.handle_waits(*rank, report),
                ClientMessage::QueryPolling(about) => roll.handle_polling_query(*rank, about),
                ClientMessage::Polling { asker, milliseconds } => roll.handle_polling(*rank, asker, milliseconds),
                ClientMessage::Rail { rail, lanes } => roll.handle_rail(*rank, (rail, lanes), seen),
                _ => return None,
            },
            (Phase::Agent { node, .. }, said) => match said {
                ClientMessage::Started { rank, pid } => roll.handle_started(*node, rank, pid),
                ClientMessage::Ended { rank, ending, reason } => roll.handle_agent_ended(*node, rank, ending, reason),
                ClientMessage::Liveness { rank, asker, alive } => roll.handle_liveness(*node, rank, asker, alive),
                _ => return None,
            },
            _ => return None,
        }
        Some(())
    }

    /// Queues the next part of the table and flushes the connection.
    pub(super) fn continue_table(&mut self, id: ConnectionId) -> Result<(), ConnectionError> {
        let Some(Some(conversation)) = self.connections.get_mut(id) else {
            return Ok(());
        };
        let Connection { stream: link, phase, table, writing, closing, .. } = conversation;
        if let Phase::Member { session, .. } | Phase::Agent { session, .. } = phase {
            while let Some(first) = *table
                && link.backlog() < TABLE_BACKLOG
            {
                let lines = self.state.records(first, RECORDS_MAX);
                if lines.is_empty() {
                    *table = None;
                    for death in self.state.failures() {
                        session.queue(link, &death.encode())?;
                    }
                    break;
                }
                *table = Some(first.saturating_add(u32::try_from(lines.len()).unwrap_or(u32::MAX)));
                session.queue(link, &ServerMessage::Table { first, lines }.encode())?;
                link.flush()?;
            }
        }
        link.flush()?;
        let pending = link.backlog() > 0;
        if *closing && !pending {
            return Err(ConnectionError::Closed);
        }
        if pending != *writing {
            *writing = pending;
            let flags = if pending { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
            epoll::modify(&self.epoll, link.stream(), epoll::EventData::new_u64(id as u64), flags)
                .map_err(io::Error::from)?;
        }
        Ok(())
    }

    pub(super) fn send(&mut self, id: ConnectionId, message: &[u8]) {
        let Some(Some(Connection { stream: link, phase, .. })) = self.connections.get_mut(id) else {
            return;
        };
        let (Phase::Member { session, .. } | Phase::Agent { session, .. }) = phase else {
            return;
        };
        let queued = session.queue(link, message).and_then(|()| self.continue_table(id));
        if let Err(error) = queued {
            self.close(id, error);
        }
    }

    /// Removes a connection; the job's state decides the consequences.
    pub(super) fn close(&mut self, id: ConnectionId, error: ConnectionError) {
        let Some(conversation) = self.connections.get_mut(id).and_then(Option::take) else {
            return;
        };
        let _ = epoll::delete(&self.epoll, conversation.stream.stream());
        self.free.push(id);
        match conversation.phase {
            Phase::Handshake(_) => {
                self.unauthenticated -= 1;
                // A client that goes away has its own error to report.
                if matches!(error, ConnectionError::Closed | ConnectionError::Broken(_)) {
                    debug!(from = %conversation.seen, %error, "a connection did not authenticate");
                } else {
                    warn!(from = %conversation.seen, %error, "a connection did not authenticate");
                }
            }
            Phase::Member { rank, joined, .. } => {
                debug!(%rank, %error, "a rank's connection ends");
                if joined {
                    self.state.handle_connection_lost(id, rank);
                }
            }
            Phase::Agent { node, .. } => {
                debug!(node, %error, "an agent's connection ends");
                if self.state.agent(node) == Some(id) {
                    self.handle_all_ends();
                    self.state.handle_agent_lost(node);
                }
            }
        }
    }
}
