//! The event loop of the rendezvous server: accepts connections, authenticates them and carries out the effects that
//! [`MembershipState`] decides.

mod connection;

use connection::{Connection, Phase};

use super::{ServerCommand, ServerConfig};
use crate::{
    auth::JobKey,
    membership_state::{ConnectionId, Effect, MembershipState, ProcessEnd, ServerReport},
    message::ServerMessage,
    stream::{BufferedStream, ConnectionError, Handshake},
};
use alloc::sync::Arc;
use core::{net::Ipv4Addr, time::Duration};
use rustix::event::{Timespec, epoll};
use socket2::Socket;
use std::{io, os::fd::OwnedFd, sync::mpsc, time::Instant};
use tracing::warn;

/// Time limit for the authentication of a connection.
const AUTH_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest number of unauthenticated connections. Further ones wait in the listener's queue.
const UNAUTHENTICATED_MAX: usize = 256;
/// Time limit for the connection of an ended process to close. A child that it left behind may hold it open.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// Time limit for sending the last messages at shutdown.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
const WAKER: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;

/// The state of the server thread.
pub(super) struct ServerLoop {
    listener: Socket,
    listening: bool,
    epoll: OwnedFd,
    waker: Arc<OwnedFd>,
    inbox: mpsc::Receiver<ServerCommand>,
    key: JobKey,
    state: MembershipState,
    connections: Vec<Option<Connection>>,
    free: Vec<ConnectionId>,
    unauthenticated: usize,
    join_timeout: Duration,
    deadline: Option<Instant>,
    /// Ends of processes whose connections are still open, with the time until which they are waited for.
    ends: Vec<(Instant, ProcessEnd)>,
    report: Box<dyn FnMut(ServerReport) + Send>,
}

impl ServerLoop {
    /// A server on this listener. `waker` becomes readable when a command is queued in `inbox`.
    pub(super) fn new(
        listener: Socket,
        hosting: &ServerConfig,
        waker: Arc<OwnedFd>,
        inbox: mpsc::Receiver<ServerCommand>,
        report: Box<dyn FnMut(ServerReport) + Send>,
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
            state: MembershipState::new(hosting.size, hosting.on_death, hosting.reports_ends),
            connections: Vec::new(),
            free: Vec::new(),
            unauthenticated: 0,
            join_timeout: hosting.join_timeout,
            deadline: None,
            ends: Vec::new(),
            report,
        })
    }

    /// Serves until [`ServerCommand::Stop`].
    pub(super) fn run(mut self) {
        let mut events = Vec::with_capacity(256);
        let mut turn_again: Vec<ConnectionId> = Vec::new();
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
                                ServerCommand::Ended(rank, ending) => {
                                    self.state.handle_local_end(rank, ending);
                                }
                                ServerCommand::Signal { node, rank, signal } => {
                                    if let Some(agent) = self.state.agent(node) {
                                        self.send(agent, &ServerMessage::Signal { rank, signal }.encode());
                                    }
                                }
                                ServerCommand::Stop => return self.finish(),
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
                match self.serve_connection(link) {
                    Ok(true) => turn_again.push(link),
                    Ok(false) => {}
                    Err(error) => self.close(link, error),
                }
            }
            self.handle_ends();
            self.apply_effects();
            self.check_timers();
        }
    }

    /// Handles the ends of processes whose connections are closed, so that everything that they sent comes first.
    fn handle_ends(&mut self) {
        let now = Instant::now();
        self.ends.extend(core::iter::from_fn(|| self.state.take_end()).map(|end| (now + CLOSE_TIMEOUT, end)));
        let is_due = |(until, end): &mut (Instant, ProcessEnd)| now >= *until || !self.state.is_connected(end.rank);
        let due: Vec<_> = self.ends.extract_if(.., is_due).collect();
        due.into_iter().for_each(|(_, end)| self.state.handle_process_end(end));
    }

    /// Handles all ends that were reported: their reporter is gone.
    fn handle_all_ends(&mut self) {
        let reported: Vec<_> = self.ends.drain(..).map(|(_, end)| end).collect();
        for end in reported.into_iter().chain(core::iter::from_fn(|| self.state.take_end()).collect::<Vec<_>>()) {
            self.state.handle_process_end(end);
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let now = Instant::now();
        let assembling = self.deadline.map(|deadline| deadline.saturating_duration_since(now));
        // Unauthenticated connections and an exhausted file table are checked once a second.
        let looking = (self.unauthenticated > 0 || !self.listening).then_some(Duration::from_secs(1));
        let closing = self.ends.iter().map(|(until, _)| until.saturating_duration_since(now));
        assembling.into_iter().chain(looking).chain(closing).min()
    }

    fn check_timers(&mut self) {
        let now = Instant::now();
        match (self.state.is_joining(), self.deadline) {
            (true, None) => self.deadline = Some(now + self.join_timeout),
            (false, _) => self.deadline = None,
            (true, Some(deadline)) if now >= deadline => {
                self.deadline = None;
                self.state.handle_join_timeout();
                self.apply_effects();
            }
            _ => {}
        }
        if self.unauthenticated > 0 {
            let late = |(link, conversation): (ConnectionId, &Option<Connection>)| {
                let conversation = conversation.as_ref()?;
                let stranger = matches!(conversation.phase, Phase::Handshake(_));
                (stranger && now.duration_since(conversation.since) > AUTH_TIMEOUT).then_some(link)
            };
            let late: Vec<ConnectionId> = self.connections.iter().enumerate().filter_map(late).collect();
            for link in late {
                self.close(link, ConnectionError::Timeout);
            }
        }
        self.update_listening();
    }

    fn update_listening(&mut self) {
        let wanted = self.unauthenticated < UNAUTHENTICATED_MAX;
        if wanted != self.listening {
            let flags = if wanted { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
            let data = epoll::EventData::new_u64(LISTENER);
            if epoll::modify(&self.epoll, &self.listener, data, flags).is_ok() {
                self.listening = wanted;
            }
        }
    }

    fn accept(&mut self) {
        while self.unauthenticated < UNAUTHENTICATED_MAX {
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
            let seen = from.as_socket().map_or(Ipv4Addr::LOCALHOST.into(), |from| from.ip());
            let id = self.free.last().copied().unwrap_or(self.connections.len());
            let data = epoll::EventData::new_u64(id as u64);
            let link = BufferedStream::new(stream);
            let added = link.and_then(|link| {
                epoll::add(&self.epoll, link.stream(), data, epoll::EventFlags::IN)?;
                Ok(link)
            });
            match added {
                Ok(link) => {
                    let conversation = Connection {
                        stream: link,
                        phase: Phase::Handshake(Handshake::Hello),
                        since: Instant::now(),
                        seen,
                        table: None,
                        writing: false,
                        closing: false,
                    };
                    match self.connections.get_mut(id) {
                        Some(free) => {
                            *free = Some(conversation);
                            self.free.pop();
                        }
                        None => self.connections.push(Some(conversation)),
                    }
                    self.unauthenticated += 1;
                }
                Err(error) => warn!(%error, from = %seen, "the rendezvous server dropped a connection"),
            }
        }
        self.update_listening();
    }

    fn apply_effects(&mut self) {
        while let Some(act) = self.state.poll() {
            match act {
                Effect::Send(link, what) => self.send(link, &what.encode()),
                Effect::Broadcast(what) => {
                    let message = what.encode();
                    // A rank whose table is still being sent receives the failures after the table.
                    let death = matches!(what, ServerMessage::Failed { .. });
                    for id in 0..self.connections.len() {
                        let hears = match self.connections.get(id) {
                            Some(Some(Connection { phase: Phase::Member { joined, .. }, table, .. })) => {
                                *joined && !(death && table.is_some())
                            }
                            _ => false,
                        };
                        if hears {
                            self.send(id, &message);
                        }
                    }
                }
                Effect::SendTable(link) => {
                    if let Some(Some(conversation)) = self.connections.get_mut(link) {
                        conversation.table = Some(0);
                    }
                    if let Err(error) = self.continue_table(link) {
                        self.close(link, error);
                    }
                }
                Effect::Close(link) => {
                    if let Some(Some(conversation)) = self.connections.get_mut(link) {
                        conversation.closing = true;
                    }
                    if let Err(error) = self.continue_table(link) {
                        self.close(link, error);
                    }
                }
                Effect::Report(report) => (self.report)(report),
            }
        }
    }

    /// Sends the queued messages, then closes the connections.
    fn finish(mut self) {
        self.apply_effects();
        let deadline = Instant::now() + FLUSH_TIMEOUT;
        for conversation in self.connections.iter_mut().flatten() {
            while conversation.stream.backlog() > 0 {
                let sent = conversation.stream.flush();
                if sent.is_err() || (conversation.stream.backlog() > 0 && conversation.stream.wait(deadline).is_err()) {
                    break;
                }
            }
        }
    }
}
