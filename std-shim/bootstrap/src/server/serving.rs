//! The event loop of the rendezvous server: accepts connections, authenticates them and carries out the effects that
//! [`Roll`] decides.

mod conversation;

use conversation::{Conversation, Phase};

use super::{Command, Hosting};
use crate::{
    link::{Greeting, Link, LinkError},
    message::Tell,
    roll::{Act, LinkId, Report, Roll},
    secret::Key,
};
use alloc::sync::Arc;
use core::time::Duration;
use rustix::event::{Timespec, epoll};
use std::{io, net::TcpListener, os::fd::OwnedFd, sync::mpsc, time::Instant};
use tracing::warn;

/// Time limit for the authentication of a connection.
const GREETING: Duration = Duration::from_secs(10);
/// Largest number of unauthenticated connections. Further ones wait in the listener's queue.
const STRANGERS_MAX: usize = 256;
/// Time limit for sending the last messages at shutdown.
const FAREWELL: Duration = Duration::from_secs(1);
const WAKER: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;

/// The state of the server thread.
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
    /// A server on this listener. `waker` becomes readable when a command is queued in `inbox`.
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

    /// Serves until [`Command::Stop`].
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
        // Unauthenticated connections and an exhausted file table are checked once a second.
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
                    // Most likely out of file descriptors: stop polling the listener for now; connections wait in its
                    // queue.
                    warn!(%error, "the rendezvous server cannot accept a connection; it retries");
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
                Err(error) => warn!(%error, %from, "the rendezvous server dropped a connection"),
            }
        }
        self.listen_again();
    }

    fn act(&mut self) {
        while let Some(act) = self.roll.poll() {
            match act {
                Act::Tell(link, what) => self.tell(link, &what.encode()),
                Act::TellAll(what) => {
                    let message = what.encode();
                    // A rank whose table is still being sent receives the failures after the table.
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

    /// Sends the queued messages, then closes the connections.
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
