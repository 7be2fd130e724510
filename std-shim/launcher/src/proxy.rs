//! Bare-metal ranks: an image that an emulator runs, and the proxy process that represents it in the job.
//!
//! The image accesses the node's shared-memory segment as a device and uses the slot of its rank; the other ranks of
//! the node see no difference. Launcher and system, however, manage processes: the proxy joins the job on behalf of the
//! image and holds the lock of its slot as long as the image's heartbeat continues. When the heartbeat stops, the
//! emulator ends or the launcher aborts, the proxy ends, the lock is released and the rank is considered failed. The
//! image cannot query the liveness of other ranks: the proxy does, and marks the slots of ended processes failed.

use super::local_processes::kill_with_parent;
use core::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};
use std::{
    ffi::{OsStr, OsString},
    io::{self, BufRead as _, BufReader, Read, Write as _},
    os::fd::{AsRawFd, BorrowedFd, RawFd},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    thread::{self, JoinHandle},
    time::Instant,
};
use unisono::environment::{InheritedSegment, Settings, SettingsError};
use unisono_bootstrap::{AwaitError, JoinError, LocalRecord, Membership, MembershipEvent, Rank, fresh_incarnation};
use unisono_shmem::{
    host::file::{FileError, Mapping, reopen},
    host::liveness::{LivenessLocks, LockOwner},
    layout::SegmentLayout,
    rank_slot::{Occupancy, RankSlot},
    segment::Segment,
};
use unisono_udp::{BindError, Options, Udp};

/// Heartbeat timeout: an image without a heartbeat for this long has failed.
pub const HEARTBEAT: Duration = Duration::from_secs(1);
/// Interval of checking heartbeat, emulator and launcher.
const CHECK_INTERVAL: Duration = Duration::from_millis(2);
/// Slots whose locks are checked per interval: all of 256 within 64 ms.
const CHECKED_SLOTS: u32 = 8;
/// Time limit for the other ranks to reach the final fence.
const FENCE_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest line of output that is forwarded in one piece, in bytes.
const LINE_BYTES_MAX: u64 = 1 << 16;
/// Exit code of the emulator when the image reports success (`linker/x86/src/exit.rs`: code 0x10).
pub const EXIT_SUCCESS: i32 = 0x10 << 1 | 1;
/// The emulated machine: one processor, translated by threads of its own. The second processor, which is never started,
/// makes the emulator translate atomic operations to those of the host: otherwise updates are lost between image and
/// ranks.
const MACHINE: [&str; 19] = [
    "-M",
    "q35",
    "-nodefaults",
    "-no-user-config",
    "-display",
    "none",
    "-monitor",
    "none",
    "-no-reboot",
    "-serial",
    "stdio",
    "-m",
    "64M",
    "-accel",
    "tcg,thread=multi",
    "-smp",
    "1,maxcpus=2",
    "-device",
    "isa-debug-exit,iobase=0xf4,iosize=4",
];
/// The network adapter, without firmware. With `event_idx` the driver would notify the emulator of every frame, even of
/// those that it is about to poll anyway.
const ADAPTER: &str = "virtio-net-pci,netdev=wire,romfile=,event_idx=off";

/// The bare-metal ranks of a job, which are its last ones, and how they run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BareMetalRanks {
    /// Number of bare-metal ranks.
    pub ranks: u32,
    /// The image that they run.
    pub image: PathBuf,
    /// The emulator with its own arguments, separated by spaces.
    pub emulator: String,
}

impl BareMetalRanks {
    /// Whether a rank is a bare-metal rank, in a job of `size` ranks.
    pub(super) const fn includes(&self, rank: Rank, size: u32) -> bool {
        rank.0 >= size.saturating_sub(self.ranks)
    }

    /// The command of the proxy process for such a rank: this executable; `words` are for the image.
    pub(super) fn command(&self, words: &[OsString]) -> io::Result<(OsString, Vec<OsString>)> {
        let mut arguments: Vec<OsString> = ["stand-in".into(), "--image".into(), self.image.clone().into()].into();
        arguments.extend(["--emulator".into(), self.emulator.clone().into(), "--".into()]);
        arguments.extend(words.iter().cloned());
        Ok((std::env::current_exe()?.into(), arguments))
    }

    /// Starts the emulator with this segment and this command line of the image; its serial line is written to
    /// `output`. The emulator is killed when the calling thread ends. Its exit code is [`EXIT_SUCCESS`] if the image
    /// succeeded.
    ///
    /// # Errors
    /// The errors of the system calls.
    pub fn start(
        &self,
        file: BorrowedFd<'_>,
        layout: &SegmentLayout,
        line: &OsStr,
        output: impl Into<Stdio>,
    ) -> io::Result<Child> {
        let backend = |number| {
            format!("memory-backend-file,id=segment,mem-path=/proc/self/fd/{number},size={},share=on", layout.bytes())
        };
        self.start_with(
            file,
            |number| ["-device", "ivshmem-plain,memdev=segment", "-object", &backend(number)].map(str::to_owned),
            line,
            output,
        )
    }

    /// As [`start`](Self::start), with a network adapter instead of the segment: `wire` is a connected datagram socket,
    /// and each datagram is a frame.
    ///
    /// # Errors
    /// The errors of the system calls.
    pub fn start_on_wire(&self, wire: BorrowedFd<'_>, line: &OsStr, output: impl Into<Stdio>) -> io::Result<Child> {
        let backend = |number| format!("dgram,id=wire,local.type=fd,local.str={number}");
        self.start_with(
            wire,
            |number| ["-device", ADAPTER, "-netdev", &backend(number)].map(str::to_owned),
            line,
            output,
        )
    }

    /// Starts the emulator, which inherits the descriptor; `devices` returns its arguments for the descriptor's number.
    fn start_with(
        &self,
        inherited: BorrowedFd<'_>,
        devices: impl Fn(RawFd) -> [String; 4],
        line: &OsStr,
        output: impl Into<Stdio>,
    ) -> io::Result<Child> {
        let (mut parts, number) = (self.emulator.split_whitespace(), inherited.as_raw_fd());
        let mut command = Command::new(parts.next().unwrap_or_default());
        command.args(parts).args(MACHINE).args(devices(number));
        command.arg("-kernel").arg(&self.image).arg("-append").arg(line).stdin(Stdio::null()).stdout(output);
        kill_with_parent(&mut command, move || {
            // SAFETY: the descriptors of the child are those of this process, where this one is borrowed meanwhile.
            let inherited = unsafe { BorrowedFd::borrow_raw(number) };
            rustix::io::fcntl_setfd(inherited, rustix::io::FdFlags::empty()).map_err(io::Error::from)
        });
        command.spawn()
    }
}

/// Why a proxy cannot run its image, or why it ended.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The settings are not valid.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The process was not started by the launcher.
    #[error("this process is not a rank of a job with shared memory: only `unisono run --bare-metal` starts it")]
    NotARank,
    /// The socket that provides the rank's address cannot be opened.
    #[error("the proxy's datagram device cannot be opened: {0}")]
    Bind(#[from] BindError),
    /// The job could not be joined.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The segment cannot be used.
    #[error("the shared-memory segment cannot be used: {0}")]
    Segment(#[from] FileError),
    /// A system call failed.
    #[error("a system call of the proxy failed: {0}")]
    System(#[from] io::Error),
    /// Another process holds the rank's slot.
    #[error("another process holds the shared-memory slot of this rank")]
    SlotTaken,
    /// The emulator cannot be started.
    #[error("cannot start {command}: {error}")]
    Emulator {
        /// The command.
        command: String,
        /// The error.
        error: io::Error,
    },
    /// The image did not attach in time.
    #[error("the image did not attach to the shared-memory segment within {0:?}")]
    AttachTimeout(Duration),
    /// The image's heartbeat stopped.
    #[error("the image has sent no heartbeat for {HEARTBEAT:?}")]
    HeartbeatStopped,
    /// The emulator ended without success.
    #[error("the image ended: {0}")]
    Ended(ExitStatus),
    /// The job was aborted, or the connection to the launcher is lost.
    #[error("the job was aborted")]
    Aborted,
    /// The final fence failed.
    #[error(transparent)]
    Fence(#[from] AwaitError),
}

/// Runs the image as this process's rank, to its end. `words` are appended to the image's command line, after those
/// that identify its rank.
///
/// # Errors
/// [`ProxyError`]: then this process must exit, by which the other ranks detect the failure.
pub fn run_proxy(machine: &BareMetalRanks, words: &[OsString]) -> Result<(), ProxyError> {
    let settings = Settings::from_environment()?;
    let (Some(position), Some(InheritedSegment::Descriptor { number, holder })) =
        (settings.position, settings.locality.segment)
    else {
        return Err(ProxyError::NotARank);
    };
    let local = settings.locality.rank.ok_or(ProxyError::NotARank)?;
    // No rank sends datagrams to it, but every record in the table needs an address.
    let device = Udp::bind(&Options::new(Ipv4Addr::LOCALHOST.into(), position.size))?;
    let path = device.local()?;
    let lanes = [path.polled, path.interrupt].map(|port| SocketAddr::new(path.address, port));
    let incarnation = fresh_incarnation().map_err(io::Error::from)?;
    let offer = LocalRecord {
        location: settings.location(),
        link_megabits: 0,
        incarnation,
        addresses: lanes,
        further_rails: Vec::new(),
        rails_max: 1,
        checksums: true,
        mtu: device.mtu(),
        digests: settings.digests(),
    };
    let mut membership = Membership::join(&settings.join_options()?, offer)?;
    let liveness = LivenessLocks::new(reopen(number, holder)?);
    let (mapping, layout) = Mapping::open(liveness.file())?;
    // SAFETY: this process uses the words of rank slots alone, and no references but those.
    let segment = unsafe { mapping.segment() };
    let place = RankSlot::of(segment, &layout, local).ok_or(ProxyError::NotARank)?;
    if !liveness.acquire(local)? {
        return Err(ProxyError::SlotTaken);
    }
    let who =
        format!("local={local} rank={} incarnation={} process={}", position.rank.0, incarnation.0, std::process::id());
    let line = words.iter().fold(OsString::from(who), |mut line, word| {
        line.push(" ");
        line.push(word);
        line
    });
    let (output, serial) = io::pipe()?;
    let lines = thread::Builder::new().name("serial line".into()).spawn(|| forward_lines(output))?;
    let started = machine.start(liveness.file(), &layout, &line, serial);
    let started = started.map_err(|error| ProxyError::Emulator { command: machine.emulator.clone(), error });
    let mut emulator = RunningEmulator { emulator: started?, lines: Some(lines) };
    let mut heart =
        Heartbeat { beats: 0, attached: false, since: Instant::now(), attach_timeout: settings.join_timeout() };
    let mut others = FailureMonitor { liveness: &liveness, segment, layout: &layout, own: local, next: 0 };
    let status = loop {
        if let Some(status) = emulator.emulator.try_wait()? {
            break status;
        }
        heart.check(place)?;
        others.check();
        while let Some(notice) = membership.poll() {
            if matches!(notice, MembershipEvent::Aborted { .. } | MembershipEvent::Disconnected(_)) {
                return Err(ProxyError::Aborted);
            }
        }
        thread::sleep(CHECK_INTERVAL);
    };
    if status.code() != Some(EXIT_SUCCESS) {
        return Err(ProxyError::Ended(status));
    }
    membership.fence(FENCE_TIMEOUT)?;
    Ok(membership.finish(FINISH_TIMEOUT)?)
}

/// Forwards the output by whole lines: the emulator writes single bytes, which would mix with other ranks' lines.
fn forward_lines(output: impl Read) {
    let (mut output, mut line) = (BufReader::new(output), Vec::new());
    while output.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        // A closed output does not stop the image.
        let _ = io::stdout().lock().write_all(&line);
        line.clear();
    }
    let _ = io::stdout().flush();
}

/// The running emulator; killed when dropped, after which its remaining output is forwarded.
struct RunningEmulator {
    emulator: Child,
    lines: Option<JoinHandle<()>>,
}

impl Drop for RunningEmulator {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.emulator.kill();
        let _ = self.emulator.wait();
        self.lines.take().map(JoinHandle::join);
    }
}

/// Failure detection for the other ranks of the node.
struct FailureMonitor<'a> {
    liveness: &'a LivenessLocks,
    segment: Segment<'static>,
    layout: &'a SegmentLayout,
    own: u32,
    next: u32,
}

impl FailureMonitor<'_> {
    /// Checks the next few ranks and marks those failed whose processes have ended.
    fn check(&mut self) {
        for _ in 0..CHECKED_SLOTS.min(self.layout.sizes().ranks) {
            let local = self.next;
            self.next = (local + 1) % self.layout.sizes().ranks;
            let Some(position) = RankSlot::of(self.segment, self.layout, local).filter(|_| local != self.own) else {
                continue;
            };
            // Only an attached rank has held its lock.
            let sits = matches!(position.state(), Occupancy::Active(_) | Occupancy::Retired(_));
            if sits && matches!(self.liveness.owner(local), Ok(LockOwner::Nobody)) {
                position.mark_failed();
            }
        }
    }
}

/// The image's heartbeat.
struct Heartbeat {
    beats: u32,
    /// Whether the image has attached.
    attached: bool,
    since: Instant,
    /// Time limit for the image to start and attach.
    attach_timeout: Duration,
}

impl Heartbeat {
    fn check(&mut self, position: RankSlot<'_>) -> Result<(), ProxyError> {
        let (beats, sat) = (position.heartbeats(), self.attached || position.state() != Occupancy::Free);
        if (beats, sat) != (self.beats, self.attached) {
            (self.beats, self.attached, self.since) = (beats, sat, Instant::now());
        }
        match self.since.elapsed() {
            still if sat && still > HEARTBEAT => Err(ProxyError::HeartbeatStopped),
            still if !sat && still > self.attach_timeout => Err(ProxyError::AttachTimeout(self.attach_timeout)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ranks_are_bare() {
        let machine = BareMetalRanks { ranks: 2, image: "image".into(), emulator: "qemu".into() };
        assert_eq!([0, 1, 2, 3].map(|rank| machine.includes(Rank(rank), 4)), [false, false, true, true]);
        let (_, arguments) = machine.command(&["program=x".into()]).expect("this program");
        assert_eq!(arguments, ["stand-in", "--image", "image", "--emulator", "qemu", "--", "program=x"]);
    }
}
