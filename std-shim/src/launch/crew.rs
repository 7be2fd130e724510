//! The processes of this host: started, signalled, reaped.

use super::affinity;
use crate::{bootstrap::Ending, environment::PREFIX, launch::layout::Berth, rank::Rank};
use rustix::process::{Pid, Signal, getpid, getppid, kill_process_group, set_parent_process_death_signal};
use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::PathBuf,
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
};

/// The setting that ranks inherit: where their own log goes.
const INHERITED: &str = "UNISONO_LOG";
/// The program that is found even where the path does not lead to it.
const OURSELVES: &str = "unisono";

/// What every rank of this host runs.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) name: OsString,
    pub(crate) arguments: Vec<OsString>,
    /// Where it runs, if not here.
    pub(crate) directory: Option<PathBuf>,
    /// Give each rank processors of its own.
    pub(crate) pinned: bool,
    /// Read the output instead of passing it on.
    pub(crate) captured: bool,
}

/// Where a rank's input comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Input {
    /// There is none.
    Nothing,
    /// This process's own.
    Inherited,
    /// A pipe.
    Pipe,
}

/// A started rank's pipes.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) input: Option<ChildStdin>,
    pub(crate) output: Option<ChildStdout>,
    pub(crate) errors: Option<ChildStderr>,
}

#[derive(Debug)]
struct Process {
    rank: Rank,
    child: Child,
    running: bool,
}

/// The processes of this host. Dropped, it kills and reaps those that still run.
#[derive(Default, Debug)]
pub(crate) struct Crew {
    processes: Vec<Process>,
}

impl Crew {
    /// Starts one of `count` ranks of this host, in a process group of its own. To be called from a thread that lives
    /// as long as this process: the rank is killed when that thread ends.
    pub(crate) fn start(
        &mut self,
        program: &Program,
        berth: &Berth,
        (index, count): (usize, usize),
        variables: &[(String, String)],
        input: Input,
    ) -> io::Result<(u32, Pipes)> {
        let spawn = |name: &OsStr| {
            let mut command = Command::new(name);
            command.args(&program.arguments).process_group(0);
            if let Some(directory) = &program.directory {
                command.current_dir(directory);
            }
            forget_settings(&mut command);
            command.envs(variables.iter().map(|(name, value)| (name, value)));
            command.stdin(match input {
                Input::Nothing => Stdio::null(),
                Input::Inherited => Stdio::inherit(),
                Input::Pipe => Stdio::piped(),
            });
            if program.captured {
                command.stdout(Stdio::piped()).stderr(Stdio::piped());
            }
            let processors = if program.pinned { affinity::share(index, count) } else { None };
            bind_life(&mut command, move || match &processors {
                Some(processors) => rustix::thread::sched_setaffinity(None, processors).map_err(io::Error::from),
                None => Ok(()),
            });
            command.spawn()
        };
        let mut child = match spawn(&program.name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && program.name == OURSELVES => {
                spawn(env::current_exe()?.as_os_str())
            }
            started => started,
        }?;
        let pid = child.id();
        let pipes = Pipes { input: child.stdin.take(), output: child.stdout.take(), errors: child.stderr.take() };
        self.processes.push(Process { rank: berth.rank, child, running: true });
        Ok((pid, pipes))
    }

    /// Sends a signal to one rank, or to all that run, and to the processes they started.
    pub(crate) fn signal(&self, rank: Option<Rank>, signal: i32) {
        let Some(signal) = Signal::from_named_raw(signal) else {
            return;
        };
        for process in &self.processes {
            if process.running && rank.is_none_or(|rank| rank == process.rank) {
                // Not reaped yet, so the number still belongs to it. It may be dead already.
                if let Some(group) = Pid::from_raw(process.child.id().cast_signed()) {
                    let _ = kill_process_group(group, signal);
                }
            }
        }
    }

    /// The ranks that have ended since the last call, with their process numbers.
    pub(crate) fn reap(&mut self) -> Vec<(Rank, u32, Ending)> {
        let mut ended = Vec::new();
        for process in self.processes.iter_mut().filter(|process| process.running) {
            if let Ok(Some(status)) = process.child.try_wait() {
                process.running = false;
                ended.push((process.rank, process.child.id(), ending(status)));
            }
        }
        ended
    }

    /// Whether the rank's process runs.
    pub(crate) fn runs(&self, rank: Rank) -> bool {
        self.processes.iter().any(|process| process.rank == rank && process.running)
    }

    /// Whether any process runs.
    pub(crate) fn is_running(&self) -> bool {
        self.processes.iter().any(|process| process.running)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.signal(None, Signal::KILL.as_raw());
        for process in self.processes.iter_mut().filter(|process| process.running) {
            let _ = process.child.wait();
        }
    }
}

/// How a process ended.
pub(crate) fn ending(status: ExitStatus) -> Ending {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Exited(code),
        (None, Some(signal)) => Ending::Signalled(signal),
        // Neither: the system says nothing else of a process that has been reaped.
        (None, None) => Ending::Disconnected,
    }
}

/// Removes this process's own settings from what the command inherits.
pub(crate) fn forget_settings(command: &mut Command) {
    for (name, _) in env::vars_os() {
        if name.as_encoded_bytes().starts_with(PREFIX.as_bytes()) && name != INHERITED {
            command.env_remove(name);
        }
    }
}

/// Has the command's process killed when the thread that starts it ends, and prepares it further.
pub(crate) fn bind_life(command: &mut Command, prepare: impl Fn() -> io::Result<()> + Send + Sync + 'static) {
    let parent = getpid();
    let in_child = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the line above.
        if getppid() != Some(parent) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        prepare()
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. `in_child` makes system calls (prctl,
    // getppid, and `prepare`, which callers in this module's parent keep to sched_setaffinity on a set made before the
    // fork), allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(in_child);
    }
}
