//! Starts jobs of `unisono run` whose ranks are this program, and checks that they leave nothing behind.

use alloc::collections::{BTreeSet, VecDeque};
use core::cell::RefCell;
use core::time::Duration;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};

/// Time limit for the processes of an ended job to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// A job, and the lines that its ranks print.
#[derive(Debug)]
pub struct Job {
    launcher: Child,
    lines: mpsc::Receiver<String>,
    /// Lines that came before the last rank was ready.
    early: RefCell<VecDeque<String>>,
    stderr: Option<JoinHandle<String>>,
    /// An argument that only its processes have.
    mark: String,
}

impl Job {
    /// Starts the job: `unisono run OPTIONS -- THIS PROGRAM ARGUMENTS`.
    ///
    /// # Errors
    /// The launcher cannot be started.
    pub fn start(mark: &str, options: &[&str], arguments: &[&str]) -> Result<Self, String> {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(own.with_file_name("unisono"));
        command.arg("run").args(options).arg("--").arg(&own).args(arguments).args(["--mark", mark]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut launcher = command.spawn().map_err(|error| format!("unisono: {error}"))?;
        let (sender, lines) = mpsc::channel();
        let stdout = launcher.stdout.take().ok_or("no output")?;
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut stderr = launcher.stderr.take().ok_or("no output")?;
        let complaints = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // What came before an error counts.
            let _ = stderr.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let (early, mark) = (RefCell::default(), mark.to_owned());
        Ok(Self { launcher, lines, early, stderr: Some(complaints), mark })
    }

    /// The next line of output. `None`: the time limit passed, or the output is closed.
    pub fn line(&self, until: Instant) -> Option<String> {
        self.early.borrow_mut().pop_front().or_else(|| self.next_line(until))
    }

    fn next_line(&self, until: Instant) -> Option<String> {
        self.lines.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
    }

    /// Whether the output is closed; earlier lines can still be read.
    pub fn is_output_closed(&self) -> bool {
        matches!(self.lines.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Disconnected))
    }

    /// One line of each rank: `WORD RANK PROCESS`. Returns the processes by rank. The launcher forwards the output of ranks
    /// in any order: other lines, such as those of a rank that went on, are kept for [`line`](Self::line).
    ///
    /// # Errors
    /// A rank prints no such line within 20 s.
    pub fn ready(&self, word: &str, ranks: usize) -> Result<Vec<Pid>, String> {
        let until = Instant::now() + Duration::from_secs(20);
        let mut processes = vec![None; ranks];
        while processes.contains(&None) {
            let early = || format!("the job does not start: {:?}", self.early.borrow());
            let line = self.next_line(until).ok_or_else(early)?;
            let words: Vec<&str> = line.split(' ').collect();
            let rank_and_process = || {
                let [said, rank, process] = words[..] else { return None };
                (said == word).then_some(())?;
                Some((rank.parse::<usize>().ok()?, Pid::from_raw(process.parse().ok()?)?))
            };
            match rank_and_process() {
                Some((rank, process)) if rank < ranks => processes[rank] = Some(process),
                _ => self.early.borrow_mut().push_back(line),
            }
        }
        Ok(processes.into_iter().flatten().collect())
    }

    /// Waits until the launcher has ended by itself.
    ///
    /// # Errors
    /// It has not ended in time.
    pub fn ended(&mut self, until: Instant) -> Result<ExitStatus, String> {
        loop {
            if let Some(status) = self.launcher.try_wait().map_err(|error| error.to_string())? {
                return Ok(status);
            }
            if Instant::now() >= until {
                return Err("the job does not end".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends the job, and checks that nothing of it remains: no process that runs, no panic, no launcher that crashed.
    ///
    /// # Errors
    /// What remains, or which process crashed.
    pub fn clean(mut self) -> Result<(), String> {
        let crashed = match self.launcher.try_wait() {
            Ok(Some(status)) => status.signal().is_some(),
            _ => false,
        };
        // It may have ended.
        let _ = self.launcher.kill();
        let _ = self.launcher.wait();
        let until = Instant::now() + EXIT_TIMEOUT;
        let left = loop {
            let left = processes(&self.mark);
            if left.is_empty() || Instant::now() >= until {
                break left;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        for process in &left {
            let _ = kill_process(*process, Signal::KILL);
        }
        let complaints = self.stderr.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        let panicked = complaints.lines().find(|line| line.contains("panicked"));
        match (left.len(), panicked) {
            (0, None) if !crashed => Ok(()),
            (0, None) => Err("the launcher crashed".into()),
            (0, Some(line)) => Err(format!("{line:?}")),
            (count, _) => Err(format!("{count} processes are left")),
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.launcher.kill();
        let _ = self.launcher.wait();
        for process in processes(&self.mark) {
            let _ = kill_process(process, Signal::KILL);
        }
    }
}

/// The processes that run and have this argument, this one not counted.
pub fn processes(mark: &str) -> Vec<Pid> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let marked = |process: &i32| {
        let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        *process != std::process::id().cast_signed()
            && line.split(|byte| *byte == 0).any(|word| word == mark.as_bytes())
    };
    numbers.filter(marked).filter_map(Pid::from_raw).collect()
}

/// Resources outside of processes: files of shared memory by name, and KiB of shared memory.
#[derive(Clone, Debug)]
pub struct Leftovers {
    files: BTreeSet<PathBuf>,
    shared: f64,
}

impl Leftovers {
    /// The current resources.
    pub fn now() -> Self {
        let files = fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let shared =
            memory.lines().find_map(|line| line.strip_prefix("Shmem:")?.split_whitespace().next()?.parse().ok());
        Self { files, shared: shared.unwrap_or(f64::NAN) }
    }

    /// Files and MiB of shared memory created since then. Other users of shared memory have 20 s to release theirs.
    pub fn left(&self) -> (usize, f64) {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let now = Self::now();
            let (files, shared) = (now.files.difference(&self.files).count(), (now.shared - self.shared) / 1024.0);
            if (files == 0 && shared < 8.0) || Instant::now() >= until {
                return (files, shared.max(0.0));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Nanoseconds since 1970: the same clock in all processes.
pub fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}
