//! The ranks of this host as child processes: started, signalled, reaped.

use super::affinity;
use crate::placement::RankPlacement;
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

/// The variable that ranks inherit: their log filter.
const LOG_VARIABLE: &str = "UNISONO_LOG";
/// Time that a rank's remaining children have to end after it.
const CHILDREN_TIMEOUT: Duration = Duration::from_millis(100);
/// Queries whether a process has ended, without reaping it.
const EXIT_QUERY: WaitIdOptions = WaitIdOptions::EXITED.union(WaitIdOptions::NOHANG).union(WaitIdOptions::NOWAIT);
/// The program that is found even if it is not in the search path: this executable.
const OWN_NAME: &str = "unisono";

/// The program that every rank of this host runs.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) name: OsString,
    pub(crate) arguments: Vec<OsString>,
    /// Its working directory. `None`: that of this process.
    pub(crate) directory: Option<PathBuf>,
    /// Whether to pin each rank to processors of its own.
    pub(crate) pinned: bool,
    /// Whether to capture the output through pipes instead of inheriting this process's.
    pub(crate) captured: bool,
}

/// The standard input of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Input {
    /// `/dev/null`.
    Nothing,
    /// This process's standard input.
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
    /// Its process group. The ID is not reused until the process is reaped.
    fn group(&self) -> Option<Pid> {
        Pid::from_raw(self.child.id().cast_signed())
    }
}

/// The ranks of this host. When dropped, it kills those that still run, and remaining processes of the others' process
/// groups.
///
/// Ended processes are reaped only then: until then no other process can get their process IDs, so a signal to a group
/// cannot reach an unrelated process.
#[derive(Default, Debug)]
pub(crate) struct LocalProcesses {
    processes: Vec<Process>,
}

impl LocalProcesses {
    /// Starts one of `count` ranks of this host, in a process group of its own. Call it from a thread that lives as
    /// long as this process: the rank is killed when that thread ends.
    pub(crate) fn start(
        &mut self,
        program: &Program,
        placed: &RankPlacement,
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
            remove_settings(&mut command);
            command.envs(variables.iter().map(|(name, value)| (name, value)));
            command.stdin(match input {
                Input::Nothing => Stdio::null(),
                Input::Inherited => Stdio::inherit(),
                Input::Pipe => Stdio::piped(),
            });
            if program.captured {
                command.stdout(Stdio::piped()).stderr(Stdio::piped());
            }
            let processors = if program.pinned { affinity::processors_of(index, count) } else { None };
            let segment = segment.map(|segment| segment.as_raw_fd());
            kill_with_parent(&mut command, move || {
                if let Some(segment) = segment {
                    // SAFETY: the descriptors of the child are those of this process, where this one is borrowed
                    // meanwhile.
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
            Err(error) if error.kind() == io::ErrorKind::NotFound && program.name == OWN_NAME => {
                spawn(env::current_exe()?.as_os_str())
            }
            started => started,
        }?;
        let pid = child.id();
        let pipes = Pipes { input: child.stdin.take(), output: child.stdout.take(), errors: child.stderr.take() };
        self.processes.push(Process { rank: placed.rank, child, running: true });
        Ok((pid, pipes))
    }

    /// Sends a signal to the process group of one rank, or of all running ranks.
    pub(crate) fn signal(&self, rank: Option<Rank>, signal: i32) {
        let Some(signal) = Signal::from_named_raw(signal) else {
            return;
        };
        for process in &self.processes {
            if process.running
                && rank.is_none_or(|rank| rank == process.rank)
                && let Some(group) = process.group()
            {
                // It may have ended already.
                let _ = kill_process_group(group, signal);
            }
        }
    }

    /// The ranks that have ended since the last call, with their process IDs.
    pub(crate) fn ended(&mut self) -> Vec<(Rank, u32, Ending)> {
        let mut ended = Vec::new();
        for process in self.processes.iter_mut().filter(|process| process.running) {
            let asked = process.group().map(|pid| waitid(WaitId::Pid(pid), EXIT_QUERY));
            if let Some(Ok(Some(status))) = asked {
                process.running = false;
                let ending = match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => Ending::Exited(code),
                    (None, Some(signal)) => Ending::Signalled(signal),
                    // Not reached: the system reports one of the two for an ended process.
                    (None, None) => Ending::Disconnected,
                };
                ended.push((process.rank, process.child.id(), ending));
            }
        }
        ended
    }

    /// Whether the rank's process is running.
    pub(crate) fn is_rank_running(&self, rank: Rank) -> bool {
        self.processes.iter().any(|process| process.rank == rank && process.running)
    }

    /// Whether any process is running.
    pub(crate) fn is_running(&self) -> bool {
        self.processes.iter().any(|process| process.running)
    }
}

impl Drop for LocalProcesses {
    fn drop(&mut self) {
        self.signal(None, Signal::KILL.as_raw());
        for process in &mut self.processes {
            let _ = process.child.wait();
        }
        // From here on a group contains only processes that its rank left behind, and exists as long as they do.
        let deadline = Instant::now() + CHILDREN_TIMEOUT;
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

/// Prefixes of the variables by which other starters describe their own tasks.
const OTHER_STARTERS: [&str; 4] = ["PMI_", "PMIX_", "OMPI_", "SLURM_"];

/// Removes this process's own `UNISONO_*` variables, and those of other starters, from the command's environment.
pub(crate) fn remove_settings(command: &mut Command) {
    for (name, _) in env::vars_os() {
        let has = |prefix: &str| name.as_encoded_bytes().starts_with(prefix.as_bytes());
        if has(PREFIX) && name != LOG_VARIABLE || OTHER_STARTERS.into_iter().any(has) {
            command.env_remove(name);
        }
    }
}

/// Makes the kernel kill the command's process when the calling thread ends, and runs `prepare` in the child.
pub(crate) fn kill_with_parent(command: &mut Command, prepare: impl Fn() -> io::Result<()> + Send + Sync + 'static) {
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

/// The variables of one process's settings, with their whole names.
pub(crate) fn variables(settings: &Settings) -> Vec<(String, String)> {
    settings.variables().into_iter().map(|(name, value)| (format!("{PREFIX}{name}"), value)).collect()
}
