//! The rendezvous server's handle for its owner: starts the server thread and sends it commands.

use super::on_death::OnDeath;
mod server_loop;

use server_loop::ServerLoop;

use super::{auth::Secret, host_port::HostPort, membership_state::ServerReport, peer_record::Ending};
use crate::rank::Rank;
use alloc::sync::Arc;
use core::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};
use rustix::{
    event::{EventfdFlags, eventfd},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use socket2::{Domain, SockAddr, Socket, Type};
use std::{io, os::fd::OwnedFd, sync::mpsc, thread};
use tracing::warn;

/// Length of the listener's accept queue.
const BACKLOG: i32 = 4096;

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Ranks of the job.
    pub size: u32,
    /// The job's secret.
    pub secret: Secret,
    /// The job's name.
    pub job: String,
    /// What to do when a rank fails.
    pub on_death: OnDeath,
    /// Whether the owner reports how processes end, with [`Server::report_end`]. Otherwise a broken connection counts
    /// as a failure.
    pub reports_ends: bool,
    /// Join timeout: from the first rank to the last.
    pub join_timeout: Duration,
}

/// A running server. When dropped, it sends its queued messages and ends.
#[derive(Debug)]
pub struct Server {
    local: SocketAddr,
    place: HostPort,
    commands: mpsc::Sender<ServerCommand>,
    waker: Arc<OwnedFd>,
    thread: Option<thread::JoinHandle<()>>,
}

/// A command of the owner to the server thread.
#[derive(Debug)]
enum ServerCommand {
    Ended(Rank, Ending),
    Signal { node: u32, rank: Option<Rank>, signal: i32 },
    Stop,
}

impl Server {
    /// Listens at `at` and serves from a thread of its own, which also calls `report`.
    pub fn start(
        at: SocketAddr,
        hosting: ServerConfig,
        report: impl FnMut(ServerReport) + Send + 'static,
    ) -> io::Result<Self> {
        let listener = listen(&at.into())?;
        let local = listener.local_addr()?.as_socket().unwrap_or(at);
        Self::serve(listener, (local, local.into()), hosting, report)
    }

    /// As [`start`](Self::start), at a [local socket](HostPort::local), for a job whose processes are all on this host:
    /// it needs no network interface.
    ///
    /// # Errors
    /// The errors of the system calls; `InvalidInput` of a place that is no local socket.
    pub fn start_local(
        place: HostPort,
        hosting: ServerConfig,
        report: impl FnMut(ServerReport) + Send + 'static,
    ) -> io::Result<Self> {
        let listener = listen(&place.local_socket().unwrap_or_else(|| Err(io::ErrorKind::InvalidInput.into()))?)?;
        Self::serve(listener, (SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), place), hosting, report)
    }

    fn serve(
        listener: Socket,
        (local, place): (SocketAddr, HostPort),
        hosting: ServerConfig,
        report: impl FnMut(ServerReport) + Send + 'static,
    ) -> io::Result<Self> {
        allow_descriptors(hosting.size);
        let waker = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (commands, inbox) = mpsc::channel();
        let serving = ServerLoop::new(listener, &hosting, Arc::clone(&waker), inbox, Box::new(report))?;
        let thread = thread::Builder::new().name("rendezvous".to_owned()).spawn(move || serving.run())?;
        Ok(Self { local, place, commands, waker, thread: Some(thread) })
    }

    /// The place at which processes of this host reach it.
    pub const fn place(&self) -> &HostPort {
        &self.place
    }

    /// The address it listens at; of a local socket, the loopback without a port.
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// Reports that the process of a rank has ended.
    pub fn report_end(&self, rank: Rank, ending: Ending) {
        self.command(ServerCommand::Ended(rank, ending));
    }

    /// Has a node's agent send a signal to one of its ranks, or to all.
    pub fn signal(&self, node: u32, rank: Option<Rank>, signal: i32) {
        self.command(ServerCommand::Signal { node, rank, signal });
    }

    fn command(&self, command: ServerCommand) {
        // A server thread that has ended ignores commands.
        let _ = self.commands.send(command);
        let _ = rustix::io::write(&self.waker, &1_u64.to_ne_bytes());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.command(ServerCommand::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Raises this process's limit on open files to one connection and three pipes per rank, or as close as the system
/// allows.
fn allow_descriptors(size: u32) {
    let wanted = 4 * u64::from(size) + 256;
    let limit = getrlimit(Resource::Nofile);
    if let Some(current) = limit.current
        && current < wanted
    {
        let raised = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
        let raised = Rlimit { current: Some(raised), maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            warn!(%error, "the limit on open files stays at {current}: large jobs may need more (ulimit -Hn)");
        }
    }
}

fn listen(at: &SockAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::from(i32::from(at.family())), Type::STREAM, None)?;
    if !at.is_unix() {
        socket.set_reuse_address(true)?;
    }
    socket.bind(at)?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
