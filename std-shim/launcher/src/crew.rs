//! The processes of this host: started, signalled, reaped.

use super::affinity;
use crate::layout::Berth;
use core::time::Duration;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, getppid, kill_process_group, set_parent_process_death_signal,
    test_kill_process_group, waitid,
};
use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    os::fd::{AsRawFd, BorrowedFd},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::Instant,
};
use unisono::environment::{PREFIX, Settings};
use unisono_bootstrap::{Ending, Rank};

/// The setting that ranks inherit: where their own log goes.
const INHERITED: &str = "UNISONO_LOG";
/// Time that a rank's own children have to end after it.
const STRAYS: Duration = Duration::from_millis(100);
/// Asks for an end without reaping.
const LOOK: WaitIdOptions = WaitIdOptions::EXITED.union(WaitIdOptions::NOHANG).union(WaitIdOptions::NOWAIT);
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

impl Process {
    /// Its process group. The number is its own until it is reaped.
    fn group(&self) -> Option<Pid> {
        Pid::from_raw(self.child.id().cast_signed())
    }
}

/// The processes of this host. Dropped, it kills those that still run, and what the others left behind.
///
/// A process that has ended is reaped only then: until then no other can get its number, so a signal to its group cannot
/// meet a stranger.
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
        segment: Option<BorrowedFd<'_>>,
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
            let segment = segment.map(|segment| segment.as_raw_fd());
            bind_life(&mut command, move || {
                if let Some(segment) = segment {
                    // SAFETY: the descriptors of the child are those of this process, where this one is borrowed meanwhile.
                    let segment = unsafe { BorrowedFd::borrow_raw(segment) };
                    rustix::io::fcntl_setfd(segment, rustix::io::FdFlags::empty())?;
                }
                match &processors {
                    Some(processors) => rustix::thread::sched_setaffinity(None, processors).map_err(io::Error::from),
                    None => Ok(()),
                }
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
            if process.running
                && rank.is_none_or(|rank| rank == process.rank)
                && let Some(group) = process.group()
            {
                // It may be dead already.
                let _ = kill_process_group(group, signal);
            }
        }
    }

    /// The ranks that have ended since the last call, with their process numbers.
    pub(crate) fn ended(&mut self) -> Vec<(Rank, u32, Ending)> {
        let mut ended = Vec::new();
        for process in self.processes.iter_mut().filter(|process| process.running) {
            let asked = process.group().map(|pid| waitid(WaitId::Pid(pid), LOOK));
            if let Some(Ok(Some(status))) = asked {
                process.running = false;
                let ending = match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => Ending::Exited(code),
                    (None, Some(signal)) => Ending::Signalled(signal),
                    // The system says nothing else of a process that has ended.
                    (None, None) => Ending::Disconnected,
                };
                ended.push((process.rank, process.child.id(), ending));
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
        for process in &mut self.processes {
            let _ = process.child.wait();
        }
        // From here on a group has only what its rank left behind, and lives as long as that.
        let deadline = Instant::now() + STRAYS;
        let mut left: Vec<Pid> = self.processes.iter().filter_map(Process::group).collect();
        loop {
            left.retain(|group| test_kill_process_group(*group).is_ok());
            if left.is_empty() || Instant::now() >= deadline {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        for group in left {
            let _ = kill_process_group(group, Signal::KILL);
        }
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
    // getppid, and `prepare`, which callers in this module's parent keep to fcntl, and sched_setaffinity on a set made
    // before the fork), allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(in_child);
    }
}

/// The settings that one process gets, with their whole names.
pub(crate) fn variables(settings: &Settings) -> Vec<(String, String)> {
    settings.variables().into_iter().map(|(name, value)| (format!("{PREFIX}{name}"), value)).collect()
}
