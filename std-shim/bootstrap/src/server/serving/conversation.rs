//! One client connection of the rendezvous server: authentication, requests and replies.

use super::Serving;
use crate::{
    link::{Greeting, Link, LinkError, Role, Session},
    message::{LINES_MAX, Say, Tell},
    rank::Rank,
    roll::{LinkId, Roll},
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
    Greeting(Greeting),
    Member { rank: Rank, session: Session, joined: bool },
    Agent { node: u32, session: Session },
}

#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) link: Link,
    pub(super) phase: Phase,
    pub(super) since: Instant,
    pub(super) seen: IpAddr,
    /// The next record of the table to send.
    pub(super) table: Option<u32>,
    pub(super) writing: bool,
    pub(super) closing: bool,
}

impl Serving {
    /// Serves a readable connection for one turn. Returns whether it has more frames already.
    pub(super) fn converse(&mut self, id: LinkId) -> Result<bool, LinkError> {
        let Some(Some(conversation)) = self.links.get_mut(id) else {
            return Ok(false);
        };
        conversation.link.read()?;
        if let Phase::Greeting(greeting) = &mut conversation.phase {
            let known = greeting.advance(&mut conversation.link, &self.key)?;
            match known {
                None => {
                    conversation.link.flush()?;
                    return Ok(false);
                }
                Some((Role::Member(rank), session)) => {
                    conversation.phase = Phase::Member { rank: Rank(rank), session, joined: false };
                }
                Some((Role::Agent(node), session)) => {
                    conversation.phase = Phase::Agent { node, session };
                    self.roll.handle_agent(id, node);
                }
            }
            self.strangers -= 1;
        }
        for _ in 0..FRAMES_PER_TURN {
            let Some(Some(Conversation { link, phase, seen, closing, .. })) = self.links.get_mut(id) else {
                return Ok(false);
            };
            if *closing {
                return if link.is_ended() { Err(LinkError::Closed) } else { Ok(false) };
            }
            let (Phase::Member { session, .. } | Phase::Agent { session, .. }) = phase else {
                return Ok(false);
            };
            let Some(frame) = session.frame(link)? else {
                self.table(id)?;
                return Ok(false);
            };
            let said = Say::decode(&frame)?;
            let seen = *seen;
            Self::heard(&mut self.roll, id, phase, seen, said).ok_or(LinkError::OutOfTurn(frame.kind()))?;
        }
        Ok(true)
    }

    pub(super) fn heard(roll: &mut Roll, id: LinkId, phase: &mut Phase, seen: IpAddr, said: Say) -> Option<()> {
        match (phase, said) {
            (Phase::Member { rank, joined, .. }, Say::Join { offer, pid, node, host }) if !*joined => {
                *joined = true;
                debug!(%rank, pid, host, "a rank joins");
                roll.handle_join(id, *rank, offer, node, host, seen);
            }
            (Phase::Member { rank, joined: true, .. }, said) => match said {
                Say::Ask(about) => roll.handle_ask(id, *rank, about),
                Say::Fence => roll.handle_fence(*rank),
                Say::Abort(code) => roll.handle_abort(*rank, code),
                Say::Put { key, value } => roll.handle_put(id, key, value),
                Say::Get { key } => roll.handle_get(id, &key),
                Say::Leave => roll.handle_leave(id, *rank),
                Say::Vote(ballot) => roll.handle_vote(id, *rank, ballot)?,
                _ => return None,
            },
            (Phase::Agent { node, .. }, said) => match said {
                Say::Started { rank, pid } => roll.handle_started(*node, rank, pid),
                Say::Ended { rank, ending, reason } => roll.handle_agent_ended(*node, rank, ending, reason),
                Say::Liveness { rank, asker, alive } => roll.handle_liveness(*node, rank, asker, alive),
                _ => return None,
            },
            _ => return None,
        }
        Some(())
    }

    /// Queues the next part of the table and flushes the connection.
    pub(super) fn table(&mut self, id: LinkId) -> Result<(), LinkError> {
        let Some(Some(conversation)) = self.links.get_mut(id) else {
            return Ok(());
        };
        let Conversation { link, phase, table, writing, closing, .. } = conversation;
        if let Phase::Member { session, .. } | Phase::Agent { session, .. } = phase {
            while let Some(first) = *table
                && link.backlog() < TABLE_BACKLOG
            {
                let lines = self.roll.lines(first, LINES_MAX);
                if lines.is_empty() {
                    *table = None;
                    for death in self.roll.deaths() {
                        session.push(link, &death.encode())?;
                    }
                    break;
                }
                *table = Some(first.saturating_add(u32::try_from(lines.len()).unwrap_or(u32::MAX)));
                session.push(link, &Tell::Table { first, lines }.encode())?;
                link.flush()?;
            }
        }
        link.flush()?;
        let pending = link.backlog() > 0;
        if *closing && !pending {
            return Err(LinkError::Closed);
        }
        if pending != *writing {
            *writing = pending;
            let flags = if pending { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
            epoll::modify(&self.epoll, link.stream(), epoll::EventData::new_u64(id as u64), flags)
                .map_err(io::Error::from)?;
        }
        Ok(())
    }

    pub(super) fn tell(&mut self, id: LinkId, message: &[u8]) {
        let Some(Some(Conversation { link, phase, .. })) = self.links.get_mut(id) else {
            return;
        };
        let (Phase::Member { session, .. } | Phase::Agent { session, .. }) = phase else {
            return;
        };
        let told = session.push(link, message).and_then(|()| self.table(id));
        if let Err(error) = told {
            self.close(id, error);
        }
    }

    /// Removes a connection; the job's state decides the consequences.
    pub(super) fn close(&mut self, id: LinkId, error: LinkError) {
        let Some(conversation) = self.links.get_mut(id).and_then(Option::take) else {
            return;
        };
        let _ = epoll::delete(&self.epoll, conversation.link.stream());
        self.free.push(id);
        match conversation.phase {
            Phase::Greeting(_) => {
                self.strangers -= 1;
                warn!(from = %conversation.seen, %error, "a connection did not authenticate");
            }
            Phase::Member { rank, joined, .. } => {
                debug!(%rank, %error, "a rank's connection ends");
                if joined {
                    self.roll.handle_link_lost(id, rank);
                }
            }
            Phase::Agent { node, .. } => {
                debug!(node, %error, "an agent's connection ends");
                if self.roll.agent(node) == Some(id) {
                    self.roll.handle_agent_lost(node);
                }
            }
        }
    }
}
