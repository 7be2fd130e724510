//! The launcher's event loop: handles signals, exits of ranks and reports of the rendezvous server; ends the job and
//! determines the exit code.

mod start;

use super::{
    crew::Crew,
    job::{Job, LaunchError},
    output::Output,
    remote::Remote,
    rendezvous::{random_name, serve},
    segments::Segments,
    verdict::{Consequence, Verdict},
};
use core::time::Duration;
use signal_hook::{
    consts::{SIGCHLD, SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGUSR1, SIGUSR2},
    iterator::{Handle, Signals},
};
use std::{
    collections::HashMap,
    io::{self, Write},
    sync::mpsc,
    thread,
    time::Instant,
};
use tracing::{debug, info};
use unisono::environment::{DeviceChoice, Period, Settings, Switch};
use unisono_bootstrap::{Ending, Hosting, Rank, Report, Secret, Server};

/// Time between SIGTERM and SIGKILL unless said otherwise.
const GRACE: Duration = Duration::from_secs(2);
/// Signals that go on to the ranks.
const FORWARDED: [i32; 5] = [SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2];
/// Time limit for agents to end after their ranks were killed.
const AGENTS: Duration = Duration::from_secs(1);
/// Time limit for agents to deliver the remaining output of their ranks.
const LAST_OUTPUT: Duration = Duration::from_secs(30);

/// Runs the job to its end and returns its exit code: 0, or that of the first rank that failed (128 + n for signal n).
/// Handles the process's signals from now on. Call it from the main thread.
pub fn run(job: &Job) -> Result<u8, LaunchError> {
    if !job.settings.transport.device.is_built() {
        return Err(LaunchError::Device(job.settings.transport.device));
    }
    job.settings.transport.check()?;
    let nodes = job.layout.nodes();
    if job.settings.transport.device == DeviceChoice::Shm && nodes > 1 {
        return Err(LaunchError::Apart { nodes });
    }
    let mut launch = Launch::new(job)?;
    launch.start()?;
    launch.watch();
    Ok(launch.finish())
}

enum Event {
    Signal(i32),
    Report(Report),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
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

struct Launch<'a> {
    job: &'a Job,
    settings: Settings,
    crew: Crew,
    segments: Segments,
    remotes: HashMap<usize, Remote>,
    connected: HashMap<usize, Instant>,
    pids: HashMap<Rank, u32>,
    server: Server,
    events: mpsc::Receiver<Event>,
    signals: Handle,
    output: Option<Output>,
    verdict: Verdict,
    phase: Phase,
    interrupted: bool,
    agents_by: Option<Instant>,
}

impl<'a> Launch<'a> {
    fn new(job: &'a Job) -> Result<Self, LaunchError> {
        let Job { layout, settings, .. } = job;
        let mut settings = settings.clone();
        let secret = match settings.secret.take() {
            Some(secret) => secret,
            None => Secret::random()?,
        };
        if settings.job.as_str().is_empty() {
            settings.job = random_name()?;
        }
        let (to, events) = mpsc::channel();
        let reports = to.clone();
        let hosting = Hosting {
            size: layout.size(),
            secret: secret.clone(),
            job: settings.job.as_str().to_owned(),
            on_death: settings.transport.on_death,
            watched: true,
            assembly: settings.assembly(),
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
        let verdict = Verdict::new(layout.size(), settings.transport.on_death);
        Ok(Self {
            job,
            settings,
            crew: Crew::default(),
            segments: Segments::default(),
            remotes: HashMap::new(),
            connected: HashMap::new(),
            pids: HashMap::new(),
            server,
            events,
            signals: handle,
            output: None,
            verdict,
            phase: Phase::Running,
            interrupted: false,
            agents_by: None,
        })
    }

    fn grace(&self) -> Duration {
        self.settings.launching.grace.map_or(GRACE, Period::duration)
    }

    fn watch(&mut self) {
        while !self.verdict.is_over() {
            let event = match self.deadline() {
                None => self.events.recv().ok(),
                Some(deadline) => self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok(),
            };
            match event {
                Some(Event::Signal(SIGCHLD)) => self.reap(),
                Some(Event::Signal(signal)) => self.forward(signal),
                Some(Event::Report(report)) => self.hear(report),
                None => {}
            }
            self.clocks();
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let phase = match self.phase {
            Phase::Running => None,
            Phase::Ending { kill_at } => Some(kill_at),
            Phase::Killing { abandon_at } => Some(abandon_at),
        };
        phase.into_iter().chain(self.agents_by).min()
    }

    fn clocks(&mut self) {
        let now = Instant::now();
        match self.phase {
            Phase::Ending { kill_at } if now >= kill_at => self.kill(),
            Phase::Killing { abandon_at } if now >= abandon_at => {
                let hosts: Vec<usize> = self.remotes.keys().copied().collect();
                for host in hosts {
                    self.lose(host, Ending::NodeLost);
                }
                // Processes of this host cannot survive SIGKILL, but a system call may delay their end.
                self.phase = Phase::Killing { abandon_at: now + AGENTS };
            }
            _ => {}
        }
        if self.agents_by.is_some_and(|by| now >= by) {
            self.agents_by = None;
            let silent = self.remotes.keys().copied().filter(|host| !self.connected.contains_key(host));
            for host in silent.collect::<Vec<_>>() {
                say(format_args!(
                    "the agent on {} did not connect in time: check that it can reach this host",
                    self.host_name(host)
                ));
                self.lose(host, Ending::NotStarted);
            }
        }
    }

    fn host_name(&self, host: usize) -> String {
        let name = self.job.layout.hosts().get(host).and_then(Option::as_deref);
        name.unwrap_or("localhost").to_owned()
    }

    fn reap(&mut self) {
        for (rank, _, ending) in self.crew.ended() {
            self.server.ended(rank, ending);
            self.ended(rank, ending, "");
        }
        let mut gone = Vec::new();
        for (host, remote) in &mut self.remotes {
            if let Some(status) = remote.ended()
                && !self.connected.contains_key(host)
            {
                gone.push((*host, status));
            }
        }
        for (host, status) in gone {
            let running = self.job.layout.on_host(host).any(|berth| self.verdict.runs(berth.rank));
            if running {
                say(format_args!(
                    "the remote shell for {} ended before its agent connected: {status}",
                    self.host_name(host)
                ));
                self.lose(host, Ending::NotStarted);
            }
        }
    }

    /// A host is lost: its ranks count as ended.
    fn lose(&mut self, host: usize, ending: Ending) {
        self.connected.remove(&host);
        self.remotes.remove(&host);
        let ranks: Vec<Rank> = self.job.layout.on_host(host).map(|berth| berth.rank).collect();
        for rank in ranks {
            self.server.ended(rank, ending);
            self.ended(rank, ending, "");
        }
    }

    fn ended(&mut self, rank: Rank, ending: Ending, reason: &str) {
        let consequence = self.verdict.handle_ended(rank, ending);
        let host = self.job.layout.host_name(rank);
        let pid = self.pids.get(&rank).map(|pid| format!("pid {pid}, ")).unwrap_or_default();
        let because = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        if consequence.report {
            say(format_args!("rank {rank} ({pid}host {host}) {ending}{because}"));
        } else {
            debug!(%rank, host, %ending, reason, "ended");
        }
        self.follow(consequence);
    }

    fn follow(&mut self, consequence: Consequence) {
        if consequence.end_job {
            self.end();
        } else if self.interrupted && self.phase == Phase::Running && self.verdict.code() != 0 {
            // The ranks have the signal; once one of them has ended by it, the others are ended.
            self.phase = Phase::Ending { kill_at: Instant::now() + self.grace() };
        }
    }

    fn end(&mut self) {
        if self.phase == Phase::Running {
            self.signal(SIGTERM);
            self.phase = Phase::Ending { kill_at: Instant::now() + self.grace() };
        }
    }

    fn kill(&mut self) {
        self.signal(SIGKILL);
        self.phase = Phase::Killing { abandon_at: Instant::now() + AGENTS };
    }

    fn signal(&self, signal: i32) {
        self.crew.signal(None, signal);
        for host in self.remotes.keys() {
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
            self.verdict.handle_interrupt();
        }
        self.signal(signal);
    }

    fn hear(&mut self, report: Report) {
        match report {
            Report::Assembled => debug!("all ranks have joined"),
            Report::Finished => debug!("all ranks have finished"),
            Report::Died { rank, ending: Ending::Exited(0) } => {
                let consequence = self.verdict.handle_desertion();
                if consequence.report {
                    let host = self.job.layout.host_name(rank);
                    say(format_args!(
                        "rank {rank} (host {host}) exited with code 0 without finishing the job (World::finish)"
                    ));
                }
                self.follow(consequence);
            }
            Report::Died { rank, ending } => debug!(%rank, %ending, "a rank failed"),
            Report::Aborted { rank, code } => {
                let consequence = self.verdict.handle_abort(code);
                if consequence.report {
                    say(format_args!("rank {rank} aborted the job with exit code {code}"));
                }
                self.follow(consequence);
            }
            Report::AgentHere(node) => {
                if let Ok(host) = usize::try_from(node) {
                    self.connected.insert(host, Instant::now());
                    if self.connected.len() == self.remotes.len() {
                        self.agents_by = None;
                    }
                    // Forward signals that arrived before the agent connected.
                    match self.phase {
                        Phase::Running if self.interrupted => self.server.signal(node, None, SIGTERM),
                        Phase::Running => {}
                        Phase::Ending { .. } => self.server.signal(node, None, SIGTERM),
                        Phase::Killing { .. } => self.server.signal(node, None, SIGKILL),
                    }
                }
            }
            Report::AgentLost(node) => {
                if let Ok(host) = usize::try_from(node) {
                    if self.job.layout.on_host(host).any(|berth| self.verdict.runs(berth.rank)) {
                        say(format_args!("the connection to the agent on {} is lost", self.host_name(host)));
                    }
                    self.lose(host, Ending::NodeLost);
                }
            }
            Report::Started { rank, pid } => {
                self.pids.insert(rank, pid);
            }
            Report::Ended { rank, ending, reason } => self.ended(rank, ending, &reason),
        }
    }

    /// All ranks have ended: delivers the remaining output and ends agents and server. Returns the exit code.
    fn finish(self) -> u8 {
        let Self { server, events, signals, output, mut verdict, remotes, crew, phase, .. } = self;
        drop(crew);
        let killed = matches!(phase, Phase::Killing { .. });
        let deadline = Instant::now() + if killed { AGENTS } else { LAST_OUTPUT };
        let mut remotes: Vec<Remote> = remotes.into_values().collect();
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
        while let Ok(event) = events.try_recv() {
            if let Event::Report(Report::Died { rank, ending: Ending::Exited(0) }) = event
                && verdict.handle_desertion().report
            {
                say(format_args!("rank {rank} exited with code 0 without finishing the job (World::finish)"));
            }
        }
        verdict.code()
    }
}

/// Prints a line to the standard error, in one write. Errors are ignored.
fn say(what: core::fmt::Arguments<'_>) {
    let line = format!("unisono: {what}\n");
    let _ = io::stderr().write_all(line.as_bytes());
}
