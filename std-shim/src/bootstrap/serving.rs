//! The rendezvous server's thread: accepts, checks, and carries out what the [`Roll`] decides.

use super::{
    link::{Greeting, Link, LinkError, Role, Session},
    message::{LINES_MAX, Say, Tell},
    roll::{Act, LinkId, Report, Roll},
    secret::Key,
    server::{Command, Hosting},
};
use crate::rank::Rank;
use alloc::sync::Arc;
use core::{net::IpAddr, time::Duration};
use rustix::event::{Timespec, epoll};
use std::{io, net::TcpListener, os::fd::OwnedFd, sync::mpsc, time::Instant};
use tracing::{debug, warn};

/// Time that a connection has to prove itself.
const GREETING: Duration = Duration::from_secs(10);
/// Connections that have not proved themselves yet. Others wait in the listener's queue.
const STRANGERS_MAX: usize = 256;
/// Another part of the table is queued when fewer bytes than this wait to be sent.
const TABLE_BACKLOG: usize = 64 * 1024;
/// Time that the last words have to leave.
const FAREWELL: Duration = Duration::from_secs(1);
/// Frames taken from one link before the others have their turn.
const FRAMES_PER_TURN: usize = 64;
const WAKER: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;

#[derive(Debug)]
enum Phase {
    Greeting(Greeting),
    Member { rank: Rank, session: Session, joined: bool },
    Agent { node: u32, session: Session },
}

#[derive(Debug)]
struct Conversation {
    link: Link,
    phase: Phase,
    since: Instant,
    seen: IpAddr,
    /// The next line of the table to send.
    table: Option<u32>,
    writing: bool,
    closing: bool,
}

/// All that the thread owns.
pub(super) struct Serving {
    listener: TcpListener,
    listening: bool,
    epoll: OwnedFd,
    waker: Arc<OwnedFd>,
    inbox: mpsc::Receiver<Command>,
    key: Key,
    roll: Roll,
    links: Vec<Option<Conversation>>,
    free: Vec<LinkId>,
    strangers: usize,
    assembly: Duration,
    deadline: Option<Instant>,
    report: Box<dyn FnMut(Report) + Send>,
}

impl Serving {
    /// `waker` is readable when a command waits in the inbox.
    pub(super) fn new(
        listener: TcpListener,
        hosting: &Hosting,
        waker: Arc<OwnedFd>,
        inbox: mpsc::Receiver<Command>,
        report: Box<dyn FnMut(Report) + Send>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &waker, epoll::EventData::new_u64(WAKER), epoll::EventFlags::IN)?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
        Ok(Self {
            listener,
            listening: true,
            epoll,
            waker,
            inbox,
            key: hosting.secret.for_job(&hosting.job),
            roll: Roll::new(hosting.size, hosting.on_death, hosting.watched),
            links: Vec::new(),
            free: Vec::new(),
            strangers: 0,
            assembly: hosting.assembly,
            deadline: None,
            report,
        })
    }

    /// Until the command to stop.
    pub(super) fn run(mut self) {
        let mut events = Vec::with_capacity(256);
        let mut turn_again: Vec<LinkId> = Vec::new();
        loop {
            let timeout = if turn_again.is_empty() { self.timeout() } else { Some(Duration::ZERO) };
            let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    warn!(%error, "the rendezvous server cannot wait for events");
                    return;
                }
            }
            let mut ready = core::mem::take(&mut turn_again);
            for event in &events {
                match event.data.u64() {
                    WAKER => {
                        let mut count = [0; 8];
                        let _ = rustix::io::read(&self.waker, &mut count);
                        while let Ok(command) = self.inbox.try_recv() {
                            match command {
                                Command::Ended(rank, ending) => self.roll.handle_ended(rank, ending),
                                Command::Signal { node, rank, signal } => {
                                    if let Some(agent) = self.roll.agent(node) {
                                        self.tell(agent, &Tell::Signal { rank, signal }.encode());
                                    }
                                }
                                Command::Stop => return self.finish(),
                            }
                        }
                    }
                    LISTENER => self.accept(),
                    link => ready.extend(usize::try_from(link).ok()),
                }
            }
            ready.sort_unstable();
            ready.dedup();
            for link in ready {
                match self.converse(link) {
                    Ok(true) => turn_again.push(link),
                    Ok(false) => {}
                    Err(error) => self.close(link, error),
                }
            }
            self.act();
            self.clocks();
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let now = Instant::now();
        let assembling = self.deadline.map(|deadline| deadline.saturating_duration_since(now));
        // Strangers and a full table of files are looked after once a second.
        let looking = (self.strangers > 0 || !self.listening).then_some(Duration::from_secs(1));
        assembling.into_iter().chain(looking).min()
    }

    fn clocks(&mut self) {
        let now = Instant::now();
        match (self.roll.is_assembling(), self.deadline) {
            (true, None) => self.deadline = Some(now + self.assembly),
            (false, _) => self.deadline = None,
            (true, Some(deadline)) if now >= deadline => {
                self.deadline = None;
                self.roll.handle_assembly_timeout();
                self.act();
            }
            _ => {}
        }
        if self.strangers > 0 {
            let late = |(link, conversation): (LinkId, &Option<Conversation>)| {
                let conversation = conversation.as_ref()?;
                let stranger = matches!(conversation.phase, Phase::Greeting(_));
                (stranger && now.duration_since(conversation.since) > GREETING).then_some(link)
            };
            let late: Vec<LinkId> = self.links.iter().enumerate().filter_map(late).collect();
            for link in late {
                self.close(link, LinkError::Timeout);
            }
        }
        self.listen_again();
    }

    fn listen_again(&mut self) {
        let wanted = self.strangers < STRANGERS_MAX;
        if wanted != self.listening {
            let flags = if wanted { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
            let data = epoll::EventData::new_u64(LISTENER);
            if epoll::modify(&self.epoll, &self.listener, data, flags).is_ok() {
                self.listening = wanted;
            }
        }
    }

    fn accept(&mut self) {
        while self.strangers < STRANGERS_MAX {
            let (stream, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    // Out of descriptors, most likely: the queue waits, and so does the listener's event.
                    warn!(%error, "the rendezvous server cannot accept");
                    let data = epoll::EventData::new_u64(LISTENER);
                    let quiet = epoll::modify(&self.epoll, &self.listener, data, epoll::EventFlags::empty());
                    self.listening = quiet.is_err();
                    return;
                }
            };
            let id = self.free.last().copied().unwrap_or(self.links.len());
            let data = epoll::EventData::new_u64(id as u64);
            let link = Link::new(stream);
            let added = link.and_then(|link| {
                epoll::add(&self.epoll, link.stream(), data, epoll::EventFlags::IN)?;
                Ok(link)
            });
            match added {
                Ok(link) => {
                    let conversation = Conversation {
                        link,
                        phase: Phase::Greeting(Greeting::Hello),
                        since: Instant::now(),
                        seen: from.ip(),
                        table: None,
                        writing: false,
                        closing: false,
                    };
                    match self.links.get_mut(id) {
                        Some(free) => {
                            *free = Some(conversation);
                            self.free.pop();
                        }
                        None => self.links.push(Some(conversation)),
                    }
                    self.strangers += 1;
                }
                Err(error) => warn!(%error, %from, "a connection cannot be used"),
            }
        }
        self.listen_again();
    }

    /// One turn of a link. Says whether it has more to say already.
    fn converse(&mut self, id: LinkId) -> Result<bool, LinkError> {
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
            Self::heard(&mut self.roll, id, phase, seen, said).ok_or(LinkError::OutOfTurn(frame.kind))?;
        }
        Ok(true)
    }

    fn heard(roll: &mut Roll, id: LinkId, phase: &mut Phase, seen: IpAddr, said: Say) -> Option<()> {
        match (phase, said) {
            (Phase::Member { rank, joined, .. }, Say::Join { offer, pid, node, host }) if !*joined => {
                *joined = true;
                debug!(%rank, pid, host, "joins");
                roll.handle_join(id, *rank, offer, node, host, seen);
            }
            (Phase::Member { rank, joined: true, .. }, said) => match said {
                Say::Ask(about) => roll.handle_ask(id, *rank, about),
                Say::Fence => roll.handle_fence(*rank),
                Say::Abort(code) => roll.handle_abort(*rank, code),
                Say::Put { key, value } => roll.handle_put(id, key, value),
                Say::Get { key } => roll.handle_get(id, &key),
                Say::Leave => roll.handle_leave(id, *rank),
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

    /// Queues the next part of the table and sends what goes.
    fn table(&mut self, id: LinkId) -> Result<(), LinkError> {
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

    fn tell(&mut self, id: LinkId, message: &(u8, Vec<u8>)) {
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

    fn act(&mut self) {
        while let Some(act) = self.roll.poll() {
            match act {
                Act::Tell(link, what) => self.tell(link, &what.encode()),
                Act::TellAll(what) => {
                    let message = what.encode();
                    // Who still gets the table hears of the dead behind it.
                    let death = matches!(what, Tell::Died { .. });
                    for id in 0..self.links.len() {
                        let hears = match self.links.get(id) {
                            Some(Some(Conversation { phase: Phase::Member { joined, .. }, table, .. })) => {
                                *joined && !(death && table.is_some())
                            }
                            _ => false,
                        };
                        if hears {
                            self.tell(id, &message);
                        }
                    }
                }
                Act::SendTable(link) => {
                    if let Some(Some(conversation)) = self.links.get_mut(link) {
                        conversation.table = Some(0);
                    }
                    if let Err(error) = self.table(link) {
                        self.close(link, error);
                    }
                }
                Act::Close(link) => {
                    if let Some(Some(conversation)) = self.links.get_mut(link) {
                        conversation.closing = true;
                    }
                    if let Err(error) = self.table(link) {
                        self.close(link, error);
                    }
                }
                Act::Report(report) => (self.report)(report),
            }
        }
    }

    /// Forgets a connection. What follows from it comes out of the roll.
    fn close(&mut self, id: LinkId, error: LinkError) {
        let Some(conversation) = self.links.get_mut(id).and_then(Option::take) else {
            return;
        };
        let _ = epoll::delete(&self.epoll, conversation.link.stream());
        self.free.push(id);
        match conversation.phase {
            Phase::Greeting(_) => {
                self.strangers -= 1;
                warn!(from = %conversation.seen, %error, "a connection proved nothing");
            }
            Phase::Member { rank, joined, .. } => {
                debug!(%rank, %error, "a member's connection ends");
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

    /// Last words leave, then the connections close.
    fn finish(mut self) {
        self.act();
        let deadline = Instant::now() + FAREWELL;
        for conversation in self.links.iter_mut().flatten() {
            while conversation.link.backlog() > 0 {
                let sent = conversation.link.flush();
                if sent.is_err() || (conversation.link.backlog() > 0 && conversation.link.wait(deadline).is_err()) {
                    break;
                }
            }
        }
    }
}
