//! The launcher's event loop: handles signals, exits of ranks and reports of the rendezvous server; ends the job and
//! determines the exit code.

mod start;

use super::{
    exit_policy::{Decision, ExitPolicy, RankFailure},
    job::{Job, LaunchError},
    local_processes::LocalProcesses,
    output::{OutputMerger, print_line},
    remote_agent::RemoteAgent,
    rendezvous::{random_name, serve},
    shm_setup::NodeSegments,
};
use core::time::Duration;
use signal_hook::{
    consts::{SIGCHLD, SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGUSR1, SIGUSR2},
    iterator::{Handle, Signals},
};
use std::{collections::HashMap, sync::mpsc, thread, time::Instant};
use tracing::{debug, info};
use unisono::environment::{BoundedDuration, DeviceChoice, Settings, Switch};
use unisono_bootstrap::{Ending, Rank, Secret, Server, ServerConfig, ServerReport, StuckRank};

/// Default time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// Signals that are forwarded to the ranks.
const FORWARDED: [i32; 5] = [SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2];
/// Time that a rank which others name as the cause of their failure has to exit, and to print its own error.
const CAUSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for agents to end after their ranks were killed.
const AGENTS_TIMEOUT: Duration = Duration::from_secs(1);
/// Time limit for agents to deliver the remaining output of their ranks.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs the job to its end and returns its exit code: 0, or that of the rank that failed first (128 + n for signal n).
/// Handles the process's signals from now on. Call it from the main thread.
pub fn run(job: &Job) -> Result<u8, LaunchError> {
    if !job.settings.transport.device.is_built() {
        return Err(LaunchError::Device(job.settings.transport.device));
    }
    job.settings.transport.check()?;
    let nodes = job.placement.nodes();
    if job.settings.transport.device == DeviceChoice::Shm && nodes > 1 {
        return Err(LaunchError::MultipleNodes { nodes });
    }
    let mut launch = Launch::new(job)?;
    launch.start()?;
    launch.run();
    Ok(launch.finish())
}

enum Event {
    Signal(i32),
    Report(ServerReport),
    /// The reader of the standard output is gone.
    OutputClosed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LaunchPhase {
    Running,
    /// SIGTERM was sent; SIGKILL follows.
    Ending {
        kill_at: Instant,
    },
    /// SIGKILL was sent; then agents are abandoned.
    Killing {
        abandon_at: Instant,
    },
}

/// The agents that start ranks on other hosts, by the host's index.
#[derive(Default)]
struct RemoteAgents {
    /// The remote shell of each.
    shells: HashMap<usize, RemoteAgent>,
    /// When each connected.
    connected: HashMap<usize, Instant>,
    /// Until when the last one must have connected.
    connect_by: Option<Instant>,
}

struct Launch<'a> {
    job: &'a Job,
    settings: Settings,
    processes: LocalProcesses,
    segments: NodeSegments,
    agents: RemoteAgents,
    pids: HashMap<Rank, u32>,
    server: Server,
    events: mpsc::Receiver<Event>,
    to_events: mpsc::Sender<Event>,
    signals: Handle,
    output: Option<OutputMerger>,
    exit_policy: ExitPolicy,
    /// Why ranks did not start.
    reasons: HashMap<Rank, String>,
    /// Until when the ranks that others name are waited for, if any.
    causes_by: Option<Instant>,
    phase: LaunchPhase,
    interrupted: bool,
}

impl<'a> Launch<'a> {
    fn new(job: &'a Job) -> Result<Self, LaunchError> {
        let Job { placement: layout, settings, .. } = job;
        let mut settings = settings.clone();
        let secret = match settings.secret.take() {
            Some(secret) => secret,
            None => Secret::random()?,
        };
        if settings.job.as_str().is_empty() {
            settings.job = random_name()?;
        }
        let (to, events) = mpsc::channel();
        let (reports, to_events) = (to.clone(), to.clone());
        let hosting = ServerConfig {
            size: layout.size(),
            secret: secret.clone(),
            job: settings.job.as_str().to_owned(),
            on_death: settings.transport.on_death,
            reports_ends: true,
            join_timeout: settings.join_timeout(),
        };
        let report = move |report| {
            // Without a receiver, the launcher is ending.
            let _ = reports.send(Event::Report(report));
        };
        let server = serve(layout, hosting, report)?;
        let mut signals = Signals::new(FORWARDED.into_iter().chain([SIGCHLD])).map_err(LaunchError::Setup)?;
        let handle = signals.handle();
        let forward = move || {
            for signal in signals.forever() {
                if to.send(Event::Signal(signal)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("signals".to_owned()).spawn(forward).map_err(LaunchError::Setup)?;
        settings.secret = Some(secret);
        settings.serve = Some(Switch::Off);
        let verdict = ExitPolicy::new(layout.size(), settings.transport.on_death);
        Ok(Self {
            job,
            settings,
            processes: LocalProcesses::default(),
            segments: NodeSegments::default(),
            agents: RemoteAgents::default(),
            pids: HashMap::new(),
            server,
            events,
            to_events,
            signals: handle,
            output: None,
            exit_policy: verdict,
            reasons: HashMap::new(),
            causes_by: None,
            phase: LaunchPhase::Running,
            interrupted: false,
        })
    }

    fn grace(&self) -> Duration {
        self.settings.launcher.kill_timeout.map_or(GRACE, BoundedDuration::duration)
    }

    fn run(&mut self) {
        while !self.exit_policy.is_over() {
            let event = match self.deadline() {
                None => self.events.recv().ok(),
                Some(deadline) => self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok(),
            };
            match event {
                Some(Event::Signal(SIGCHLD)) => self.reap(),
                Some(Event::Signal(signal)) => self.forward(signal),
                Some(Event::Report(report)) => self.handle_report(report),
                Some(Event::OutputClosed) => {
                    self.exit_policy.handle_output_closed();
                    self.end();
                }
                None => {}
            }
            self.check_timers();
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let phase = match self.phase {
            LaunchPhase::Running => None,
            LaunchPhase::Ending { kill_at } => Some(kill_at),
            LaunchPhase::Killing { abandon_at } => Some(abandon_at),
        };
        phase.into_iter().chain(self.agents.connect_by).chain(self.causes_by).min()
    }

    fn check_timers(&mut self) {
        let now = Instant::now();
        if self.causes_by.is_some_and(|by| now >= by) {
            self.decide(true);
        }
        match self.phase {
            LaunchPhase::Ending { kill_at } if now >= kill_at => self.kill(),
            LaunchPhase::Killing { abandon_at } if now >= abandon_at => {
                let hosts: Vec<usize> = self.agents.shells.keys().copied().collect();
                for host in hosts {
                    self.lose_host(host, Ending::NodeLost);
                }
                // Processes of this host cannot survive SIGKILL, but a system call may delay their end.
                self.phase = LaunchPhase::Killing { abandon_at: now + AGENTS_TIMEOUT };
            }
            _ => {}
        }
        if self.agents.connect_by.is_some_and(|by| now >= by) {
            self.agents.connect_by = None;
            let silent = self.agents.shells.keys().copied().filter(|host| !self.agents.connected.contains_key(host));
            for host in silent.collect::<Vec<_>>() {
                print_message(format_args!(
                    "the agent on {} did not connect in time: check that it can reach this host",
                    self.host_name(host)
                ));
                self.lose_host(host, Ending::NotStarted);
            }
        }
    }

    fn host_name(&self, host: usize) -> String {
        let name = self.job.placement.hosts().get(host).and_then(Option::as_deref);
        name.unwrap_or("localhost").to_owned()
    }

    fn reap(&mut self) {
        // The server reports each end after everything that the rank sent.
        for (rank, _, ending) in self.processes.ended() {
            self.server.report_end(rank, ending);
        }
        let mut gone = Vec::new();
        for (host, remote) in &mut self.agents.shells {
            if let Some(status) = remote.ended()
                && !self.agents.connected.contains_key(host)
            {
                gone.push((*host, status));
            }
        }
        for (host, status) in gone {
            let running = self.job.placement.on_host(host).any(|placed| self.exit_policy.is_running(placed.rank));
            if running {
                print_message(format_args!(
                    "the remote shell for {} ended before its agent connected: {status}",
                    self.host_name(host)
                ));
                self.lose_host(host, Ending::NotStarted);
            }
        }
    }

    /// A host is lost: its ranks count as ended.
    fn lose_host(&mut self, host: usize, ending: Ending) {
        self.agents.connected.remove(&host);
        self.agents.shells.remove(&host);
        for placed in self.job.placement.on_host(host) {
            self.server.report_end(placed.rank, ending);
        }
    }

    /// Acts on the events until now.
    fn decide(&mut self, is_time_up: bool) {
        match self.exit_policy.decide(is_time_up) {
            Decision::Continue => self.causes_by = None,
            Decision::Wait => _ = self.causes_by.get_or_insert_with(|| Instant::now() + CAUSE_TIMEOUT),
            Decision::End(causes) => {
                self.causes_by = None;
                causes.into_iter().for_each(|rank| self.print_failure(rank));
                self.end();
            }
        }
        if self.interrupted && self.phase == LaunchPhase::Running && self.exit_policy.code() != 0 {
            // The ranks have the signal; once one of them has ended by it, the others are ended.
            self.phase = LaunchPhase::Ending { kill_at: Instant::now() + self.grace() };
        }
    }

    /// Reports a failure, after everything that the rank has printed.
    fn print_failure(&self, rank: Rank) {
        let Some(failure) = self.exit_policy.failure(rank) else { return };
        if let Some(output) = &self.output {
            output.catch_up();
        }
        let host = self.job.placement.host_name(rank);
        let pid = self.pids.get(&rank).map(|pid| format!("pid {pid}, ")).unwrap_or_default();
        let who = format!("rank {rank} ({pid}host {host})");
        match failure {
            RankFailure::Ended(ending) => {
                let reason = self.reasons.get(&rank).map(|reason| format!(": {reason}")).unwrap_or_default();
                print_message(format_args!("{who} {ending}{reason}"));
            }
            RankFailure::Unfinished => {
                print_message(format_args!("{who} exited with code 0 without finishing the job (World::finish)"));
            }
            RankFailure::NotJoined => print_message(format_args!(
                "{who} exited with code 0 before it joined the job (World::join), and others waited for it"
            )),
            RankFailure::Left { runs } => {
                let end = if runs { "still runs" } else { "exited with code 0" };
                print_message(format_args!(
                    "{who} dropped its World without finishing the job (World::finish), which others needed, and {end}"
                ));
            }
            RankFailure::Aborted(code) => {
                print_message(format_args!("rank {rank} aborted the job with exit code {code}"))
            }
        }
    }

    fn end(&mut self) {
        if self.phase == LaunchPhase::Running {
            self.signal(SIGTERM);
            self.phase = LaunchPhase::Ending { kill_at: Instant::now() + self.grace() };
        }
    }

    fn kill(&mut self) {
        self.signal(SIGKILL);
        self.phase = LaunchPhase::Killing { abandon_at: Instant::now() + AGENTS_TIMEOUT };
    }

    fn signal(&self, signal: i32) {
        self.processes.signal(None, signal);
        for host in self.agents.shells.keys() {
            self.server.signal(u32::try_from(*host).unwrap_or(u32::MAX), None, signal);
        }
    }

    fn forward(&mut self, signal: i32) {
        let ends = matches!(signal, SIGINT | SIGTERM | SIGHUP);
        if signal == SIGINT && self.interrupted {
            info!("interrupted again: killing all ranks");
            return self.kill();
        }
        self.interrupted |= ends;
        if ends {
            self.exit_policy.handle_interrupt();
        }
        self.signal(signal);
    }

    fn handle_report(&mut self, report: ServerReport) {
        match report {
            ServerReport::AllJoined => debug!("all ranks have joined"),
            ServerReport::Finished => debug!("all ranks have finished"),
            ServerReport::Failed { rank, ending } => debug!(%rank, %ending, "a rank failed"),
            ServerReport::Left(rank) => {
                debug!(%rank, "a rank left without finishing");
                self.exit_policy.handle_left(rank);
                self.decide(false);
            }
            ServerReport::Cause { rank, cause } => {
                debug!(%rank, %cause, "a rank failed because of another rank");
                self.exit_policy.handle_cause(rank, cause);
                self.decide(false);
            }
            ServerReport::Aborted { rank, code } => {
                self.exit_policy.handle_abort(rank, code);
                self.decide(false);
            }
            ServerReport::AgentConnected(node) => {
                if let Ok(host) = usize::try_from(node) {
                    self.agents.connected.insert(host, Instant::now());
                    if self.agents.connected.len() == self.agents.shells.len() {
                        self.agents.connect_by = None;
                    }
                    // Forward signals that arrived before the agent connected.
                    match self.phase {
                        LaunchPhase::Running if self.interrupted => self.server.signal(node, None, SIGTERM),
                        LaunchPhase::Running => {}
                        LaunchPhase::Ending { .. } => self.server.signal(node, None, SIGTERM),
                        LaunchPhase::Killing { .. } => self.server.signal(node, None, SIGKILL),
                    }
                }
            }
            ServerReport::AgentLost(node) => {
                if let Ok(host) = usize::try_from(node) {
                    if self.job.placement.on_host(host).any(|placed| self.exit_policy.is_running(placed.rank)) {
                        print_message(format_args!("the connection to the agent on {} is lost", self.host_name(host)));
                    }
                    self.lose_host(host, Ending::NodeLost);
                }
            }
            ServerReport::Stuck(stuck) => {
                StuckRank::describe(&stuck).iter().for_each(|line| print_message(format_args!("{line}")));
            }
            ServerReport::Started { rank, pid } => {
                self.pids.insert(rank, pid);
            }
            ServerReport::Ended { rank, ending, participation, reason } => {
                debug!(%rank, %ending, ?participation, reason, "ended");
                if !reason.is_empty() {
                    self.reasons.insert(rank, reason);
                }
                if self.exit_policy.handle_ended(rank, ending, participation) {
                    self.print_failure(rank);
                }
                self.decide(false);
            }
        }
    }

    /// All ranks have ended: delivers the remaining output and ends agents and server. Returns the exit code.
    fn finish(self) -> u8 {
        let Self { server, signals, output, exit_policy, agents, processes: crew, phase, .. } = self;
        drop(crew);
        let killed = matches!(phase, LaunchPhase::Killing { .. });
        let deadline = Instant::now() + if killed { AGENTS_TIMEOUT } else { OUTPUT_TIMEOUT };
        let mut remotes: Vec<RemoteAgent> = agents.shells.into_values().collect();
        // Stopping the server closes the agents' connections, on which they end.
        drop(server);
        while remotes.iter_mut().any(|remote| remote.ended().is_none()) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
        if let Some(output) = output {
            output.finish();
        }
        drop(remotes);
        signals.close();
        exit_policy.code()
    }
}

/// Prints a line to the standard error, in one write.
fn print_message(what: core::fmt::Arguments<'_>) {
    print_line(&format!("unisono: {what}\n"));
}
