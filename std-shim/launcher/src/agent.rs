//! The launcher's agent on another host: starts its ranks, answers liveness queries, forwards signals, and ends with
//! its launcher.

use super::{
    launch_spec::{LaunchSpec, RankSpec},
    local_processes::{Input, LocalProcesses, Program, variables},
    output::{Merging, OutputMerger, Source},
    placement::RankPlacement,
    shm_setup::NodeSegments,
};
use alloc::sync::Arc;
use core::{
    net::{IpAddr, SocketAddr},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGKILL, SIGTERM};
use std::{
    env,
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    process::ChildStdin,
    thread,
    time::Instant,
};
use tracing::debug;
use unisono::environment::{JobPosition, Settings, SettingsError, TransportSettings};
use unisono_bootstrap::{AgentLink, AgentRequest, ConnectionError, Ending, HostPort, Rank, Secret, SecretError};

/// Time limit for sending the last messages to the launcher.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval of checking the ranks when no event arrives.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Why an agent failed.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The launch specification did not arrive, or is not valid.
    #[error("no valid launch specification on the standard input: {0}")]
    LaunchSpec(io::Error),
    /// The secret in the launch specification is not valid.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The launcher cannot be reached at any of its addresses.
    #[error("the agent cannot reach the launcher at {places}: {error}")]
    Connect {
        /// The tried addresses.
        places: String,
        /// The error of the last attempt.
        error: ConnectionError,
    },
    /// The connection to the launcher broke. The ranks have been ended.
    #[error("the connection to the launcher is lost: {0}")]
    Lost(#[from] ConnectionError),
    /// The agent itself received a signal. The ranks have been ended.
    #[error("the agent received a signal to end")]
    Interrupted,
    /// A part of the agent itself cannot be started.
    #[error("cannot set up the agent: {0}")]
    Setup(io::Error),
}

/// Reads the launch specification from the standard input and carries it out. Returns when all ranks have ended or the
/// launcher is lost. Call it from the main thread.
pub fn run() -> Result<(), AgentError> {
    let mut input = io::stdin();
    let (order, behind) = LaunchSpec::read(|to| input.read(to)).map_err(AgentError::LaunchSpec)?;
    let (events, wake) = UnixStream::pair().map_err(AgentError::Setup)?;
    events.set_nonblocking(true).map_err(AgentError::Setup)?;
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted)).map_err(AgentError::Setup)?;
    }
    for signal in [SIGHUP, SIGINT, SIGTERM, SIGCHLD] {
        let wake = wake.try_clone().map_err(AgentError::Setup)?;
        signal_hook::low_level::pipe::register(signal, wake).map_err(AgentError::Setup)?;
    }
    let secret = Secret::new(&order.secret)?;
    let deadline = Instant::now() + Duration::from_millis(order.assembly_ms);
    let (mut launcher, at) =
        AgentLink::connect(&launcher_addresses(&order), order.host, (&secret, &order.job), deadline)
            .map_err(|error| AgentError::Connect { places: order.places.join(", "), error })?;
    launcher.await_welcome(deadline)?;
    let mut agent = Agent {
        processes: LocalProcesses::default(),
        segments: NodeSegments::default(),
        launcher,
        events,
        interrupted,
    };
    let (output, rank_zero) = agent.start(&order, at)?;
    if let Some(to) = rank_zero {
        let copy = move || copy_input(to, &behind);
        thread::Builder::new().name("input".to_owned()).spawn(copy).map_err(AgentError::Setup)?;
    }
    let served = agent.serve();
    if served.is_err() {
        agent.end(Duration::from_millis(order.grace_ms));
    }
    drop(agent.processes);
    if let Some(output) = output {
        output.finish();
    }
    agent.launcher.close(Instant::now() + FLUSH_TIMEOUT);
    served
}

/// The transport settings of the ranks.
fn transport(order: &LaunchSpec) -> Result<TransportSettings, SettingsError> {
    let variables = order.variables.iter().map(|(name, value)| (name.into(), value.into()));
    Settings::from_variables(variables).map(|settings| settings.transport)
}

/// Candidate addresses of the launcher: the source address of the remote shell, and those that the launcher knows.
fn launcher_addresses(order: &LaunchSpec) -> Vec<HostPort> {
    let mut places: Vec<HostPort> = order.places.iter().filter_map(|place| place.parse().ok()).collect();
    let from = env::var("SSH_CONNECTION").ok();
    let from = from.as_deref().and_then(|from| from.split(' ').next()).and_then(|ip| ip.parse::<IpAddr>().ok());
    if let (Some(ip), Some(port)) = (from, places.first().map(HostPort::port)) {
        places.insert(0, SocketAddr::new(ip, port).into());
    }
    places
}

struct Agent {
    processes: LocalProcesses,
    segments: NodeSegments,
    launcher: AgentLink,
    events: UnixStream,
    /// The agent itself received a signal.
    interrupted: Arc<AtomicBool>,
}

impl Agent {
    fn start(
        &mut self,
        order: &LaunchSpec,
        at: SocketAddr,
    ) -> Result<(Option<OutputMerger>, Option<ChildStdin>), AgentError> {
        let program = Program {
            name: order.program.clone().into(),
            arguments: order.arguments.iter().map(Into::into).collect(),
            directory: Some(order.directory.clone().into()),
            pinned: order.pinned,
            captured: order.captured,
        };
        if !Path::new(&order.directory).is_dir() {
            return self.reject(order, &format!("the directory {} does not exist on this host", order.directory));
        }
        let berths: Vec<RankPlacement> = order.ranks.iter().copied().map(RankSpec::placement).collect();
        let transport = match transport(order) {
            Ok(transport) => transport,
            Err(error) => return self.reject(order, &error.to_string()),
        };
        self.segments = match NodeSegments::create(&transport, &berths, order.size) {
            Ok(segments) => segments,
            Err(error) => return self.reject(order, &format!("the shared-memory segment cannot be created: {error}")),
        };
        let (mut outputs, mut errors, mut rank_zero) = (Vec::new(), Vec::new(), None);
        for (index, placed) in berths.iter().enumerate() {
            let own = Settings {
                position: JobPosition::new(placed.rank, order.size),
                bootstrap: Some(at.into()),
                locality: self.segments.locality(placed),
                ..Settings::default()
            };
            // The settings of the launch specification are common to all ranks and take precedence.
            let mut given = variables(&own);
            given.retain(|(name, _)| order.variables.iter().all(|(shared, _)| shared != name));
            given.extend(order.variables.iter().cloned());
            let input = if placed.rank == Rank(0) { Input::Pipe } else { Input::Nothing };
            let (place, segment) = ((index, berths.len()), self.segments.of(placed.node));
            match self.processes.start(&program, placed, place, &given, input, segment) {
                Ok((pid, pipes)) => {
                    let source = |from| Source { from, merging: Merging::of(placed.rank, order.size, order.tagged) };
                    outputs.extend(pipes.output.map(|from| source(from.into())));
                    errors.extend(pipes.errors.map(|from| source(from.into())));
                    rank_zero = pipes.input.or(rank_zero);
                    self.launcher.started(placed.rank, pid)?;
                }
                Err(error) => {
                    let reason = format!("{}: {error}", order.program);
                    self.launcher.ended(placed.rank, Ending::NotStarted, reason)?;
                }
            }
        }
        let output = if order.captured {
            // The launcher, which reads the agent's output, ends with its own reader.
            Some(OutputMerger::start(outputs, errors, || ()).map_err(AgentError::Setup)?)
        } else {
            None
        };
        Ok((output, rank_zero))
    }

    /// Starts no rank, and reports the reason for each.
    fn reject(
        &mut self,
        order: &LaunchSpec,
        reason: &str,
    ) -> Result<(Option<OutputMerger>, Option<ChildStdin>), AgentError> {
        for post in &order.ranks {
            self.launcher.ended(Rank(post.rank), Ending::NotStarted, reason.to_owned())?;
        }
        Ok((None, None))
    }

    /// Serves until all ranks have ended, or the launcher is lost.
    fn serve(&mut self) -> Result<(), AgentError> {
        loop {
            for (rank, pid, ending) in self.processes.ended() {
                debug!(%rank, pid, %ending, "ended");
                self.launcher.ended(rank, ending, String::new())?;
            }
            if !self.processes.is_running() {
                return Ok(());
            }
            while let Some(request) = self.launcher.poll()? {
                match request {
                    AgentRequest::Signal { rank, signal } => self.processes.signal(rank, signal),
                    AgentRequest::Ask { rank, asker } => {
                        self.launcher.liveness(rank, asker, self.processes.is_rank_running(rank))?
                    }
                }
            }
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(AgentError::Interrupted);
            }
            self.wait(CHECK_INTERVAL);
        }
    }

    fn wait(&mut self, longest: Duration) {
        let mut backlog = PollFlags::IN;
        backlog.set(PollFlags::OUT, self.launcher.has_backlog());
        let mut waiting = [PollFd::new(&self.events, PollFlags::IN), PollFd::new(&self.launcher, backlog)];
        let timeout = Timespec::try_from(longest).ok();
        // The caller checks everything, whichever event ended the wait.
        let _ = poll(&mut waiting, timeout.as_ref());
        let mut woken = [0; 64];
        while (&self.events).read(&mut woken).is_ok_and(|bytes| bytes > 0) {}
    }

    /// Ends the ranks: SIGTERM, then SIGKILL after the grace time.
    fn end(&mut self, grace: Duration) {
        self.processes.signal(None, SIGTERM);
        let deadline = Instant::now() + grace;
        while self.processes.is_running() {
            self.processes.ended();
            if Instant::now() >= deadline {
                return self.processes.signal(None, SIGKILL);
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn copy_input(mut to: ChildStdin, behind: &[u8]) {
    // Ends when the rank stops reading.
    if to.write_all(behind).is_ok() {
        let _ = io::copy(&mut io::stdin(), &mut to);
    }
}
