//! The rendezvous server, as its owner sees it.

use super::on_death::OnDeath;
mod serving;

use serving::Serving;

use super::{entry::Ending, roll::Report, secret::Secret};
use crate::rank::Rank;
use alloc::sync::Arc;
use core::{net::SocketAddr, time::Duration};
use rustix::{
    event::{EventfdFlags, eventfd},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use std::{io, net::TcpListener, os::fd::OwnedFd, sync::mpsc, thread};
use tracing::warn;

/// Length of the listener's queue.
const BACKLOG: i32 = 4096;

/// What the server is to know of the job.
#[derive(Clone, Debug)]
pub struct Hosting {
    /// Ranks of the job.
    pub size: u32,
    /// The job's key.
    pub secret: Secret,
    /// The job's name.
    pub job: String,
    /// What happens when a rank dies.
    pub on_death: OnDeath,
    /// Whether the caller knows how processes end, and says so with [`Server::ended`]. Otherwise a broken connection is
    /// a death.
    pub watched: bool,
    /// Time from the first rank to the last.
    pub assembly: Duration,
}

/// A running server. Dropped, it says its last words and ends.
#[derive(Debug)]
pub struct Server {
    local: SocketAddr,
    commands: mpsc::Sender<Command>,
    waker: Arc<OwnedFd>,
    thread: Option<thread::JoinHandle<()>>,
}

/// What the owner wants of the thread.
#[derive(Debug)]
enum Command {
    Ended(Rank, Ending),
    Signal { node: u32, rank: Option<Rank>, signal: i32 },
    Stop,
}

impl Server {
    /// Listens at `at` and serves from a thread of its own. `report` is called there.
    pub fn start(at: SocketAddr, hosting: Hosting, report: impl FnMut(Report) + Send + 'static) -> io::Result<Self> {
        allow_descriptors(hosting.size);
        let listener = listen(at)?;
        let local = listener.local_addr()?;
        let waker = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (commands, inbox) = mpsc::channel();
        let serving = Serving::new(listener, &hosting, Arc::clone(&waker), inbox, Box::new(report))?;
        let thread = thread::Builder::new().name("rendezvous".to_owned()).spawn(move || serving.run())?;
        Ok(Self { local, commands, waker, thread: Some(thread) })
    }

    /// Where it listens.
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// The process of a rank has ended.
    pub fn ended(&self, rank: Rank, ending: Ending) {
        self.command(Command::Ended(rank, ending));
    }

    /// Has a node's agent send a signal to one of its ranks, or to all.
    pub fn signal(&self, node: u32, rank: Option<Rank>, signal: i32) {
        self.command(Command::Signal { node, rank, signal });
    }

    fn command(&self, command: Command) {
        // A thread that has ended needs no commands.
        let _ = self.commands.send(command);
        let _ = rustix::io::write(&self.waker, &1_u64.to_ne_bytes());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.command(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Raises this process's limit as far as one connection and three pipes a rank ask for and the system allows.
fn allow_descriptors(size: u32) {
    let wanted = 4 * u64::from(size) + 256;
    let limit = getrlimit(Resource::Nofile);
    if let Some(current) = limit.current
        && current < wanted
    {
        let raised = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
        let raised = Rlimit { current: Some(raised), maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            warn!(%error, "the limit on open files stays at {current}");
        }
    }
}

fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(at), socket2::Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}
