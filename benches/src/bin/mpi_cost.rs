//! Cost of the MPI library: instructions of `MPI_Send` and `MPI_Recv` of 8 bytes beyond those of the library's own send
//! and receive, under callgrind. Two ranks send each other some messages, wait outside of the library until all are
//! there, and receive them, so that no waiting is counted.

use core::error::Error;
use core::ffi::{CStr, c_int, c_void};
use core::hint::black_box;
use core::time::Duration;
use std::env;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use unisono::{Failure, Rank, Tag, World};
use unisono_benches::contenders::unisono_command::binary;
use unisono_tests::harness::report::{Limit, Report};

const ROUNDS: u32 = 250;
/// Messages of a round: they fit into the ring between two ranks.
const MESSAGES: u32 = 8;
/// Most instructions that MPI may add to a send and a receive.
const MOST: f64 = 60.0;

/// Instructions of a send and a receive of 8 bytes, by the MPI library and by the library's own calls.
#[derive(Parser)]
struct Options {
    /// Only performs the work, as a rank.
    #[arg(long, hide = true, requires = "socket")]
    way: Option<Way>,
    /// Where the ranks wait for each other.
    #[arg(long, hide = true)]
    socket: Option<PathBuf>,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Way {
    Own,
    Mpi,
}

/// A connection of the two ranks outside of the library.
struct Meeting(UnixStream);

impl Meeting {
    fn open(path: &Path, rank: u32) -> Result<Self, Box<dyn Error>> {
        if rank == 0 {
            return Ok(Self(UnixListener::bind(path)?.accept()?.0));
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            match UnixStream::connect(path) {
                Ok(stream) => return Ok(Self(stream)),
                Err(error) if Instant::now() > deadline => return Err(error.into()),
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Waits until the other rank is here.
    fn wait(&mut self) -> Result<(), Box<dyn Error>> {
        self.0.write_all(&[0])?;
        Ok(self.0.read_exact(&mut [0])?)
    }
}

/// Sends and receives rounds of messages.
fn exchange(
    meeting: &mut Meeting,
    mut send: impl FnMut(u64) -> Result<(), Box<dyn Error>>,
    mut receive: impl FnMut() -> Result<u64, Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    for round in 0..ROUNDS {
        for message in 0..MESSAGES {
            send(u64::from(round * MESSAGES + message))?;
        }
        meeting.wait()?;
        for message in 0..MESSAGES {
            if receive()? != u64::from(round * MESSAGES + message) {
                return Err("another message was expected".into());
            }
        }
        meeting.wait()?;
    }
    Ok(())
}

/// A counted function, selected by its name.
#[inline(never)]
fn send_the_observed(world: &World, value: &[u64; 1], to: Rank) -> Result<(), Failure> {
    world.send(value, to, Tag(0))
}

/// As above.
#[inline(never)]
fn receive_the_observed(world: &World, into: &mut [u64; 1], from: Rank) -> Result<(), Failure> {
    world.receive_into(into, from, Tag(0)).map(|_| ())
}

fn own(socket: &Path) -> Result<(), Box<dyn Error>> {
    let world = World::join()?;
    let peer = Rank(1 - world.rank().0);
    let mut meeting = Meeting::open(socket, world.rank().0)?;
    exchange(
        &mut meeting,
        |value| Ok(send_the_observed(&world, black_box(&[value]), peer)?),
        || {
            let mut into = [0];
            receive_the_observed(&world, black_box(&mut into), peer)?;
            Ok(into[0])
        },
    )?;
    world.finish()?;
    Ok(())
}

/// Constants of the ABI.
const WORLD: usize = 0x101;
const DOUBLE: usize = 0x214;

type RankOf = unsafe extern "C" fn(usize, *mut c_int) -> c_int;
type Send = unsafe extern "C" fn(*const c_void, c_int, usize, c_int, c_int, usize) -> c_int;
type Receive = unsafe extern "C" fn(*mut c_void, c_int, usize, c_int, c_int, usize, *mut c_void) -> c_int;
type Init = unsafe extern "C" fn(*mut c_int, *mut c_void) -> c_int;
type Finalize = unsafe extern "C" fn() -> c_int;

/// The address of a function of the library that the launcher preloads.
fn function(name: &CStr) -> Result<*mut c_void, Box<dyn Error>> {
    // SAFETY: a name with its zero; the handle stands for all loaded libraries.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if address.is_null() { Err(format!("there is no {name:?}").into()) } else { Ok(address) }
}

fn check(code: c_int) -> Result<(), Box<dyn Error>> {
    if code == 0 { Ok(()) } else { Err(format!("MPI error {code}").into()) }
}

fn mpi(socket: &Path) -> Result<(), Box<dyn Error>> {
    // SAFETY: the type of `MPI_Init` in the standard.
    let init = unsafe { core::mem::transmute::<*mut c_void, Init>(function(c"MPI_Init")?) };
    // SAFETY: the type of `MPI_Comm_rank` in the standard.
    let rank_of = unsafe { core::mem::transmute::<*mut c_void, RankOf>(function(c"MPI_Comm_rank")?) };
    // SAFETY: the type of `MPI_Send` in the standard.
    let send = unsafe { core::mem::transmute::<*mut c_void, Send>(function(c"MPI_Send")?) };
    // SAFETY: the type of `MPI_Recv` in the standard.
    let receive = unsafe { core::mem::transmute::<*mut c_void, Receive>(function(c"MPI_Recv")?) };
    // SAFETY: the type of `MPI_Finalize` in the standard.
    let finalize = unsafe { core::mem::transmute::<*mut c_void, Finalize>(function(c"MPI_Finalize")?) };
    // SAFETY: the standard allows null pointers.
    check(unsafe { init(core::ptr::null_mut(), core::ptr::null_mut()) })?;
    let mut rank = 0;
    // SAFETY: an int for the rank.
    check(unsafe { rank_of(WORLD, &raw mut rank) })?;
    let mut meeting = Meeting::open(socket, rank as u32)?;
    exchange(
        &mut meeting,
        |value| {
            // SAFETY: one value of 8 bytes.
            check(unsafe { send((&raw const value).cast(), 1, DOUBLE, 1 - rank, 0, WORLD) })
        },
        || {
            let mut value = 0_u64;
            // SAFETY: room for one value of 8 bytes; the status is ignored.
            check(unsafe { receive((&raw mut value).cast(), 1, DOUBLE, 1 - rank, 0, WORLD, core::ptr::null_mut()) })?;
            Ok(black_box(value))
        },
    )?;
    // SAFETY: all messages were received.
    check(unsafe { finalize() })
}

/// Builds the MPI library beside the command, where Cargo runs this program.
fn build_library() -> Result<(), Box<dyn Error>> {
    let Some(cargo) = env::var_os("CARGO") else { return Ok(()) };
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--package", "unisono-mpi"]).args((!cfg!(debug_assertions)).then_some("--release"));
    if build.status()?.success() { Ok(()) } else { Err("the MPI library does not build".into()) }
}

/// Instructions of a send and a receive together.
fn count(unisono: &Path, way: &str) -> Result<f64, Box<dyn Error>> {
    let socket = env::temp_dir().join(format!("unisono-mpi-cost-{}-{way}", std::process::id()));
    let mut job = Command::new(unisono);
    job.args(["run", "-n", "2", "--device", "shm"]).args((way == "mpi").then_some("--mpi"));
    job.args(["--", "valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    job.args(["--collect-atstart=no", "--toggle-collect=*the_observed*"]);
    job.args(["--toggle-collect=*MPI_Send", "--toggle-collect=*MPI_Recv"]);
    job.arg(env::current_exe()?).args(["--way", way, "--socket"]).arg(&socket);
    let output = job.stdin(Stdio::null()).output();
    // A job that failed early has none.
    let _ = std::fs::remove_file(&socket);
    let output = output?;
    let printed = String::from_utf8_lossy(&output.stderr);
    let counted: Vec<f64> =
        printed.lines().filter_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok()).collect();
    match counted[..] {
        [one, other] if output.status.success() => Ok((one + other) / f64::from(2 * ROUNDS * MESSAGES)),
        _ => Err(format!("unexpected output of the job: {printed}").into()),
    }
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let options = Options::parse();
    if let (Some(way), Some(socket)) = (options.way, options.socket) {
        match way {
            Way::Own => own(&socket)?,
            Way::Mpi => mpi(&socket)?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let unisono = binary()?;
    build_library()?;
    let mut report = Report::new(5, options.json);
    let (own, mpi) = (count(&unisono, "own")?, count(&unisono, "mpi")?);
    let of = "send and receive of 8 B";
    report.figure("instructions", of, own, "", Limit::None);
    report.figure("instructions_of_mpi", of, mpi, "", Limit::None);
    report.figure("instructions_more", of, mpi - own, "", Limit::Most(MOST));
    Ok(report.end())
}
