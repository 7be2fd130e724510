//! Starting a job: the ranks of this host, and the agents of the other hosts with their launch specifications.

use super::{Event, Launch};
use crate::{
    job::{Job, LaunchError},
    launch_spec::{LaunchSpec, RankSpec},
    local_processes::{Input, Program, variables},
    output::{Merging, OutputMerger, Source},
    placement::RankPlacement,
    remote_agent::RemoteAgent,
    rendezvous::server_addresses,
    shm_setup::NodeSegments,
};
use core::time::Duration;
use std::{
    ffi::OsStr,
    io::{self, IsTerminal},
    process::ChildStdin,
    thread,
    time::Instant,
};
use tracing::debug;
use unisono::environment::{JobPosition, Locality, Settings, Switch};
use unisono_bootstrap::{HostPort, Rank};

impl Launch<'_> {
    /// Starts all ranks and agents. On an error, dropping the [`Launch`] ends those that were started.
    pub(super) fn start(&mut self) -> Result<(), LaunchError> {
        let places = server_addresses(&self.job.placement, &self.server);
        let (mut outputs, mut errors) = (Vec::new(), Vec::new());
        let tagged = self.settings.launcher.tag_output.is_some_and(Switch::is_on);
        // A single rank keeps the terminal.
        let captured = tagged || self.job.placement.size() > 1 || !io::stdout().is_terminal();
        for (host, name) in self.job.placement.hosts().iter().enumerate() {
            match name {
                None => self.start_here(host, &places, (tagged, captured), &mut outputs, &mut errors)?,
                Some(name) => {
                    let order = self.launch_spec(host, &places, (tagged, captured))?;
                    let first = self.job.placement.on_host(host).any(|placed| placed.rank == Rank(0));
                    let rsh = self.settings.launcher.rsh.as_deref();
                    let started = RemoteAgent::start(rsh, name, &order, first, captured);
                    let (remote, sources) =
                        started.map_err(|error| LaunchError::RemoteShell { host: name.clone(), error })?;
                    if let Some([output, error]) = sources {
                        outputs.push(output);
                        errors.push(error);
                    }
                    self.agents.shells.insert(host, remote);
                    self.agents.connect_by = Some(Instant::now() + self.settings.join_timeout());
                }
            }
        }
        if captured {
            let events = self.to_events.clone();
            // Without a receiver, the launcher is ending.
            let closed = move || _ = events.send(Event::OutputClosed);
            self.output = Some(OutputMerger::start(outputs, errors, closed).map_err(LaunchError::Setup)?);
        }
        Ok(())
    }

    fn start_here(
        &mut self,
        host: usize,
        places: &[HostPort],
        (tagged, captured): (bool, bool),
        outputs: &mut Vec<Source>,
        errors: &mut Vec<Source>,
    ) -> Result<(), LaunchError> {
        let Job { program, arguments, placement: layout, .. } = self.job;
        let pinned = self.settings.launcher.pin.is_some_and(Switch::is_on);
        let plan = Program { name: program.clone(), arguments: arguments.clone(), directory: None, pinned, captured };
        let image = match &self.job.bare_metal {
            Some(machine) => {
                let (name, arguments) = machine.command(arguments).map_err(LaunchError::Setup)?;
                Some((machine, Program { name, arguments, ..plan.clone() }))
            }
            None => None,
        };
        let berths: Vec<RankPlacement> = layout.on_host(host).copied().collect();
        self.segments =
            NodeSegments::create(&self.settings.transport, &berths, layout.size()).map_err(LaunchError::Segment)?;
        for (index, placed) in berths.iter().enumerate() {
            // A process in a group of its own cannot read the terminal: copy its input.
            let input = match (placed.rank, io::stdin().is_terminal()) {
                (Rank(0), true) => Input::Pipe,
                (Rank(0), false) => Input::Inherited,
                _ => Input::Nothing,
            };
            let settings = Settings {
                position: JobPosition::new(placed.rank, layout.size()),
                bootstrap: places.first().cloned(),
                locality: self.segments.locality(placed),
                launcher: Default::default(),
                ..self.settings.clone()
            };
            let (place, segment) = ((index, berths.len()), self.segments.of(placed.node));
            let bare = image.as_ref().filter(|(machine, _)| machine.includes(placed.rank, layout.size()));
            let plan = bare.map_or(&plan, |(_, image)| image);
            let started = self.processes.start(plan, placed, place, &variables(&settings), input, segment);
            let (pid, pipes) = started.map_err(|error| LaunchError::Start {
                rank: placed.rank,
                program: plan.name.to_string_lossy().into_owned(),
                error,
            })?;
            debug!(rank = %placed.rank, pid, "started");
            self.pids.insert(placed.rank, pid);
            if let Some(to) = pipes.input {
                copy_terminal(to).map_err(LaunchError::Setup)?;
            }
            let source = |from| Source { from, merging: Merging::of(placed.rank, layout.size(), tagged) };
            outputs.extend(pipes.output.map(|from| source(from.into())));
            errors.extend(pipes.errors.map(|from| source(from.into())));
        }
        Ok(())
    }

    fn launch_spec(
        &self,
        host: usize,
        places: &[HostPort],
        (tagged, captured): (bool, bool),
    ) -> Result<LaunchSpec, LaunchError> {
        let Job { program, arguments, placement: layout, .. } = self.job;
        let text = |text: &OsStr| text.to_str().map(str::to_owned).ok_or_else(|| LaunchError::NotUtf8(text.to_owned()));
        let directory = std::env::current_dir().map_err(LaunchError::Setup)?;
        let launching = Default::default();
        let locality = Locality::default();
        let shared =
            Settings { position: None, bootstrap: None, locality, launcher: launching, ..self.settings.clone() };
        let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Ok(LaunchSpec {
            host: u32::try_from(host).unwrap_or(u32::MAX),
            secret: self.settings.secret.as_ref().map(|secret| secret.expose().to_owned()).unwrap_or_default(),
            job: self.settings.job.as_str().to_owned(),
            places: places.iter().map(HostPort::to_string).collect(),
            program: text(program)?,
            arguments: arguments.iter().map(|argument| text(argument)).collect::<Result<_, _>>()?,
            directory: text(directory.as_os_str())?,
            pinned: self.settings.launcher.pin.is_some_and(Switch::is_on),
            tagged,
            captured,
            grace_ms: milliseconds(self.grace()),
            assembly_ms: milliseconds(self.settings.join_timeout()),
            variables: variables(&shared),
            ranks: layout.on_host(host).map(RankSpec::from).collect(),
            size: layout.size(),
        })
    }
}

fn copy_terminal(mut to: ChildStdin) -> io::Result<()> {
    let copy = move || {
        // Ends when the rank stops reading or the terminal closes.
        let _ = io::copy(&mut io::stdin(), &mut to);
    };
    thread::Builder::new().name("input".to_owned()).spawn(copy).map(drop)
}
