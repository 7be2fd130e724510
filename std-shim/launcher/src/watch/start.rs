//! Starting a job: the ranks of this host, and the agents of the other hosts with their launch specifications.

use super::Launch;
use crate::{
    crew::{Input, Program, variables},
    job::{Job, LaunchError},
    layout::Berth,
    order::{Order, Post},
    output::{Output, Source, mark},
    remote::Remote,
    rendezvous::places,
    segments::Segments,
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
use unisono::environment::{Seat, Settings, Switch};
use unisono_bootstrap::{HostPort, Rank};

impl Launch<'_> {
    /// Starts all ranks and agents. On an error, dropping the [`Launch`] ends those that were started.
    pub(super) fn start(&mut self) -> Result<(), LaunchError> {
        let port = self.server.local().port();
        let places = places(&self.job.layout, port);
        let (mut outputs, mut errors) = (Vec::new(), Vec::new());
        let tagged = self.settings.launching.tag_output.is_some_and(Switch::is_on);
        for (host, name) in self.job.layout.hosts().iter().enumerate() {
            match name {
                None => self.start_here(host, &places, tagged, &mut outputs, &mut errors)?,
                Some(name) => {
                    let order = self.order(host, &places, tagged)?;
                    let first = self.job.layout.on_host(host).any(|berth| berth.rank == Rank(0));
                    let rsh = self.settings.launching.rsh.as_deref();
                    let started = Remote::start(rsh, name, &order, first, tagged);
                    let (remote, sources) = started.map_err(|error| LaunchError::Rsh { host: name.clone(), error })?;
                    if let Some([output, error]) = sources {
                        outputs.push(output);
                        errors.push(error);
                    }
                    self.remotes.insert(host, remote);
                    self.agents_by = Some(Instant::now() + self.settings.assembly());
                }
            }
        }
        if tagged {
            self.output = Some(Output::start(outputs, errors).map_err(LaunchError::Setup)?);
        }
        Ok(())
    }

    fn start_here(
        &mut self,
        host: usize,
        places: &[HostPort],
        tagged: bool,
        outputs: &mut Vec<Source>,
        errors: &mut Vec<Source>,
    ) -> Result<(), LaunchError> {
        let Job { program, arguments, layout, .. } = self.job;
        let pinned = self.settings.launching.pin.is_some_and(Switch::is_on);
        let plan =
            Program { name: program.clone(), arguments: arguments.clone(), directory: None, pinned, captured: tagged };
        let image = match &self.job.bare_metal {
            Some(machine) => {
                let (name, arguments) = machine.command(arguments).map_err(LaunchError::Setup)?;
                Some((machine, Program { name, arguments, ..plan.clone() }))
            }
            None => None,
        };
        let berths: Vec<Berth> = layout.on_host(host).copied().collect();
        self.segments =
            Segments::create(&self.settings.transport, &berths, layout.size()).map_err(LaunchError::Segment)?;
        for (index, berth) in berths.iter().enumerate() {
            // A process in a group of its own cannot read the terminal: copy its input.
            let input = match (berth.rank, io::stdin().is_terminal()) {
                (Rank(0), true) => Input::Pipe,
                (Rank(0), false) => Input::Inherited,
                _ => Input::Nothing,
            };
            let settings = Settings {
                seat: Seat::new(berth.rank, layout.size()),
                bootstrap: places.first().cloned(),
                locality: self.segments.locality(berth),
                launching: Default::default(),
                ..self.settings.clone()
            };
            let (place, segment) = ((index, berths.len()), self.segments.of(berth.node));
            let bare = image.as_ref().filter(|(machine, _)| machine.includes(berth.rank, layout.size()));
            let plan = bare.map_or(&plan, |(_, image)| image);
            let started = self.crew.start(plan, berth, place, &variables(&settings), input, segment);
            let (pid, pipes) = started.map_err(|error| LaunchError::Start {
                rank: berth.rank,
                program: plan.name.to_string_lossy().into_owned(),
                error,
            })?;
            debug!(rank = %berth.rank, pid, "started");
            self.pids.insert(berth.rank, pid);
            if let Some(to) = pipes.input {
                copy_terminal(to).map_err(LaunchError::Setup)?;
            }
            let source = |from| Source { from, mark: mark(berth.rank) };
            outputs.extend(pipes.output.map(|from| source(from.into())));
            errors.extend(pipes.errors.map(|from| source(from.into())));
        }
        Ok(())
    }

    fn order(&self, host: usize, places: &[HostPort], tagged: bool) -> Result<Order, LaunchError> {
        let Job { program, arguments, layout, .. } = self.job;
        let text = |text: &OsStr| text.to_str().map(str::to_owned).ok_or_else(|| LaunchError::Text(text.to_owned()));
        let directory = std::env::current_dir().map_err(LaunchError::Setup)?;
        let launching = Default::default();
        let shared = Settings { seat: None, bootstrap: None, launching, ..self.settings.clone() };
        let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Ok(Order {
            host: u32::try_from(host).unwrap_or(u32::MAX),
            secret: self.settings.secret.as_ref().map(|secret| secret.expose().to_owned()).unwrap_or_default(),
            job: self.settings.job.as_str().to_owned(),
            places: places.iter().map(HostPort::to_string).collect(),
            program: text(program)?,
            arguments: arguments.iter().map(|argument| text(argument)).collect::<Result<_, _>>()?,
            directory: text(directory.as_os_str())?,
            pinned: self.settings.launching.pin.is_some_and(Switch::is_on),
            tagged,
            grace_ms: milliseconds(self.grace()),
            assembly_ms: milliseconds(self.settings.assembly()),
            variables: variables(&shared),
            ranks: layout.on_host(host).map(Post::from).collect(),
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
