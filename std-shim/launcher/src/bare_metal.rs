//! A rank without an operating system: an image that an emulator runs, and the process that stands in for it.
//!
//! The image has the node's segment as a device and takes its seat there; nobody else of the node need know what it is. Launcher and
//! system, however, know processes: this one joins the job in the image's name and holds the seat's lock as long as the image's
//! heart beats. When it stops, the emulator ends, or the launcher says so, the lock goes, and with it the rank. The image cannot ask the
//! system who lives: this process does, and writes onto the seats of processes that have ended that they failed.

use super::crew::bind_life;
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
use unisono::environment::{GivenSegment, Settings, SettingsError};
use unisono_bootstrap::{AwaitError, JoinError, Membership, Notice, Offer, Rank, fresh_incarnation};
use unisono_shmem::{
    host::file::{FileError, Mapping, reopen},
    host::liveness::{Holder, Life},
    layout::Layout,
    rank_slot::{Occupant, Seat},
    segment::Segment,
};
use unisono_udp::{BindError, Options, Udp};

/// A heart that stands still for this long has stopped.
pub const HEARTBEAT: Duration = Duration::from_secs(1);
/// Between two looks at heart, emulator and launcher.
const LOOKS: Duration = Duration::from_millis(2);
/// Seats whose processes are asked for in one look: of 256, all within 64 ms.
const ASKED: u32 = 8;
/// How long the others may take to come to the end.
const FENCE: Duration = Duration::from_secs(24 * 3600);
const FAREWELL: Duration = Duration::from_secs(1);
/// Bytes of the longest line that is passed on in one piece.
const LINE: u64 = 1 << 16;
/// What the emulator exits with when the image says that it has done its part (`linker/x86/src/exit.rs`: code 0x10).
pub const DONE: i32 = 0x10 << 1 | 1;
/// What the emulator is, wherever it is: a machine with one processor, in translation with threads of its own. A second processor,
/// never started, makes it translate atomic operations to those of the host: otherwise updates are lost between image and ranks.
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
/// The network's adapter, without firmware of its own. With `event_idx` the driver would announce every frame, also those that the
/// emulator is about to look at anyway.
const ADAPTER: &str = "virtio-net-pci,netdev=wire,romfile=,event_idx=off";

/// Which ranks of a job have no operating system, and what runs them: the last so many.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BareMetal {
    /// How many.
    pub ranks: u32,
    /// The image that they run.
    pub image: PathBuf,
    /// The emulator with its own arguments, separated by spaces.
    pub emulator: String,
}

impl BareMetal {
    /// Whether a rank of a job of this size is one.
    pub(super) const fn includes(&self, rank: Rank, size: u32) -> bool {
        rank.0 >= size.saturating_sub(self.ranks)
    }

    /// The command that stands in for such a rank, of this very program; `words` are for the image.
    pub(super) fn command(&self, words: &[OsString]) -> io::Result<(OsString, Vec<OsString>)> {
        let mut arguments: Vec<OsString> = ["stand-in".into(), "--image".into(), self.image.clone().into()].into();
        arguments.extend(["--emulator".into(), self.emulator.clone().into(), "--".into()]);
        arguments.extend(words.iter().cloned());
        Ok((std::env::current_exe()?.into(), arguments))
    }

    /// Starts the emulator with this segment and this command line of the image, whose serial line is `output`. It ends with the
    /// calling thread. Its status says how the image ended: [`DONE`], or something else.
    ///
    /// # Errors
    /// Those of the system.
    pub fn start(
        &self,
        file: BorrowedFd<'_>,
        layout: &Layout,
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

    /// As [`start`](Self::start), with a network in the segment's place: `wire` is a datagram socket that is connected; each
    /// datagram is a frame.
    ///
    /// # Errors
    /// Those of the system.
    pub fn start_on_wire(&self, wire: BorrowedFd<'_>, line: &OsStr, output: impl Into<Stdio>) -> io::Result<Child> {
        let backend = |number| format!("dgram,id=wire,local.type=fd,local.str={number}");
        self.start_with(
            wire,
            |number| ["-device", ADAPTER, "-netdev", &backend(number)].map(str::to_owned),
            line,
            output,
        )
    }

    /// The emulator inherits the descriptor; `devices` are its arguments for that number.
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
        bind_life(&mut command, move || {
            // SAFETY: the descriptors of the child are those of this process, where this one is borrowed meanwhile.
            let inherited = unsafe { BorrowedFd::borrow_raw(number) };
            rustix::io::fcntl_setfd(inherited, rustix::io::FdFlags::empty()).map_err(io::Error::from)
        });
        command.spawn()
    }
}

/// Why a process cannot stand in for an image, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum StandInError {
    /// The environment is wrong.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Only the launcher starts such processes.
    #[error("this is no rank of a job whose ranks share memory")]
    NoRank,
    /// There is no address to be known by.
    #[error("no datagram device: {0}")]
    Bind(#[from] BindError),
    /// The job could not be joined.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The segment cannot be used.
    #[error("shared memory: {0}")]
    Segment(#[from] FileError),
    /// The system refuses something.
    #[error("the system refuses: {0}")]
    System(#[from] io::Error),
    /// Another process holds the seat.
    #[error("another process has the seat")]
    Taken,
    /// The emulator cannot be started.
    #[error("cannot start {command}: {error}")]
    Emulator {
        /// Which.
        command: String,
        /// Why.
        error: io::Error,
    },
    /// The image took no seat in time.
    #[error("the image took no seat within {0:?}")]
    Absent(Duration),
    /// Its heart has stopped.
    #[error("the image's heart has stood still for {HEARTBEAT:?}")]
    Stopped,
    /// It ended, and not well.
    #[error("the image has ended: {0}")]
    Ended(ExitStatus),
    /// The job is over.
    #[error("the job was ended")]
    Aborted,
    /// The end could not be awaited.
    #[error(transparent)]
    Fence(#[from] AwaitError),
}

/// Runs the image as this process's rank, to its end. `words` are handed to it on its command line, behind those that say who it is.
///
/// # Errors
/// [`StandInError`]: then this process has to end, by which the others know.
pub fn stand_in(machine: &BareMetal, words: &[OsString]) -> Result<(), StandInError> {
    let settings = Settings::from_environment()?;
    let (Some(seat), Some(GivenSegment::Descriptor { number, holder })) = (settings.seat, settings.locality.segment)
    else {
        return Err(StandInError::NoRank);
    };
    let local = settings.locality.rank.ok_or(StandInError::NoRank)?;
    // Nobody sends datagrams to it, but everybody has an address.
    let device = Udp::bind(&Options::new(Ipv4Addr::LOCALHOST.into(), seat.size))?;
    let path = device.local()?;
    let lanes = [path.polled, path.interrupt].map(|port| SocketAddr::new(path.address, port));
    let incarnation = fresh_incarnation().map_err(io::Error::from)?;
    let offer = Offer { incarnation, lanes, mtu: device.mtu(), digests: settings.digests() };
    let mut membership = Membership::join(&settings.join_options()?, offer)?;
    let life = Life::new(reopen(number, holder)?);
    let (mapping, layout) = Mapping::open(life.file())?;
    // SAFETY: this process uses the words of rank slots alone, and no references but those.
    let segment = unsafe { mapping.segment() };
    let place = Seat::of(segment, &layout, local).ok_or(StandInError::NoRank)?;
    if !life.hold(local)? {
        return Err(StandInError::Taken);
    }
    let who =
        format!("local={local} rank={} incarnation={} process={}", seat.rank.0, incarnation.0, std::process::id());
    let line = words.iter().fold(OsString::from(who), |mut line, word| {
        line.push(" ");
        line.push(word);
        line
    });
    let (output, serial) = io::pipe()?;
    let lines = thread::Builder::new().name("serial line".into()).spawn(|| pass_on(output))?;
    let started = machine.start(life.file(), &layout, &line, serial);
    let started = started.map_err(|error| StandInError::Emulator { command: machine.emulator.clone(), error });
    let mut emulator = Running { emulator: started?, lines: Some(lines) };
    let mut heart = Heart { beats: 0, sat: false, since: Instant::now(), patience: settings.assembly() };
    let mut others = Others { life: &life, segment, layout: &layout, own: local, next: 0 };
    let status = loop {
        if let Some(status) = emulator.emulator.try_wait()? {
            break status;
        }
        heart.look(place)?;
        others.look();
        while let Some(notice) = membership.poll() {
            if matches!(notice, Notice::Aborted { .. } | Notice::Lost(_)) {
                return Err(StandInError::Aborted);
            }
        }
        thread::sleep(LOOKS);
    };
    if status.code() != Some(DONE) {
        return Err(StandInError::Ended(status));
    }
    membership.fence(FENCE)?;
    Ok(membership.leave(FAREWELL)?)
}

/// Passes whole lines on: the emulator writes byte by byte, between which others write theirs.
fn pass_on(output: impl Read) {
    let (mut output, mut line) = (BufReader::new(output), Vec::new());
    while output.by_ref().take(LINE).read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        // Nobody to read it is no reason to stop.
        let _ = io::stdout().lock().write_all(&line);
        line.clear();
    }
    let _ = io::stdout().flush();
}

/// Ends the emulator with this process's part, and passes on what it has said.
struct Running {
    emulator: Child,
    lines: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.emulator.kill();
        let _ = self.emulator.wait();
        self.lines.take().map(JoinHandle::join);
    }
}

/// The other ranks of the node, as the system sees them.
struct Others<'a> {
    life: &'a Life,
    segment: Segment<'static>,
    layout: &'a Layout,
    own: u32,
    next: u32,
}

impl Others<'_> {
    /// Buries some of those that have ended since the last looks.
    fn look(&mut self) {
        for _ in 0..ASKED.min(self.layout.sizes().ranks) {
            let local = self.next;
            self.next = (local + 1) % self.layout.sizes().ranks;
            let Some(seat) = Seat::of(self.segment, self.layout, local).filter(|_| local != self.own) else { continue };
            // Only who sits has held its lock before.
            let sits = matches!(seat.occupant(), Occupant::Sits(_) | Occupant::Retired(_));
            if sits && matches!(self.life.holder(local), Ok(Holder::Nobody)) {
                seat.bury();
            }
        }
    }
}

/// When the image was last seen to live.
struct Heart {
    beats: u32,
    /// Whether it has ever been seen to sit.
    sat: bool,
    since: Instant,
    /// Until it sits: it has to start.
    patience: Duration,
}

impl Heart {
    fn look(&mut self, seat: Seat<'_>) -> Result<(), StandInError> {
        let (beats, sat) = (seat.beats(), self.sat || seat.occupant() != Occupant::Nobody);
        if (beats, sat) != (self.beats, self.sat) {
            (self.beats, self.sat, self.since) = (beats, sat, Instant::now());
        }
        match self.since.elapsed() {
            still if sat && still > HEARTBEAT => Err(StandInError::Stopped),
            still if !sat && still > self.patience => Err(StandInError::Absent(self.patience)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ranks_are_bare() {
        let machine = BareMetal { ranks: 2, image: "image".into(), emulator: "qemu".into() };
        assert_eq!([0, 1, 2, 3].map(|rank| machine.includes(Rank(rank), 4)), [false, false, true, true]);
        let (_, arguments) = machine.command(&["program=x".into()]).expect("this program");
        assert_eq!(arguments, ["stand-in", "--image", "image", "--emulator", "qemu", "--", "program=x"]);
    }
}
