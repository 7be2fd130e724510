//! The job of this process: joining it, as the environment says, and leaving it.

use core::ffi::c_int;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::thread::ThreadId;

use parking_lot::Mutex;
use unisono::raw::Snapshot;
use unisono::{Communicator, World};

use crate::abi::*;
use crate::communicator::{Comm, publish, self_communicator, withdraw, world_communicator};
use crate::error::Outcome;
use crate::tools::controls;

/// A job that was joined.
struct Job {
    world: Box<World>,
    main: ThreadId,
}

static JOB: Mutex<Option<Job>> = Mutex::new(None);
/// The counters of the job that was left.
static LEFT: Mutex<Option<Snapshot>> = Mutex::new(None);
static INITIALIZED: AtomicBool = AtomicBool::new(false);
static FINALIZED: AtomicBool = AtomicBool::new(false);
static LEVEL: AtomicI32 = AtomicI32::new(MPI_THREAD_SINGLE);
/// Sessions that are open.
static SESSIONS: AtomicU32 = AtomicU32::new(0);

/// Whether the program has called MPI_Init.
pub fn is_initialized() -> bool {
    INITIALIZED.load(Ordering::Acquire)
}

/// Whether the program has called MPI_Finalize.
pub fn is_finalized() -> bool {
    FINALIZED.load(Ordering::Acquire)
}

/// The thread level that the program got.
pub fn thread_level() -> c_int {
    LEVEL.load(Ordering::Relaxed)
}

/// Whether the calling thread has joined the job.
pub fn is_main_thread() -> bool {
    JOB.lock().as_ref().is_some_and(|job| job.main == std::thread::current().id())
}

/// The rank in the job, for messages.
pub fn world_rank() -> u32 {
    world_communicator().map_or(0, |world| world.rank)
}

/// Joins the job, unless that was done. An error says why it cannot be joined.
fn join() -> Result<(), String> {
    let mut job = JOB.lock();
    if job.is_some() {
        return Ok(());
    }
    let settings = controls::settings().map_err(|error| error.to_string())?;
    let world = Box::new(World::join_as(&settings).map_err(|error| error.to_string())?);
    controls::set_joined(&settings);
    let own = world.split_by_color(world.rank().0).map_err(|error| error.to_string())?;
    let own = own.ok_or_else(|| String::from("a communicator of one rank cannot be made"))?;
    let of_world = Comm::constant(NonNull::<Communicator>::from(&**world), MPI_COMM_WORLD, "MPI_COMM_WORLD");
    let of_self = Comm::constant(NonNull::from(Box::leak(Box::new(own))), MPI_COMM_SELF, "MPI_COMM_SELF");
    publish(of_world, of_self);
    *job = Some(Job { world, main: std::thread::current().id() });
    Ok(())
}

/// MPI_Init.
pub fn initialize(required: c_int) -> Outcome<c_int> {
    if is_initialized() || is_finalized() {
        return Err(MPI_ERR_OTHER);
    }
    if let Err(reason) = join() {
        eprintln!("unisono-mpi: cannot join the job: {reason}");
        std::process::exit(1);
    }
    let level = required.clamp(MPI_THREAD_SINGLE, MPI_THREAD_MULTIPLE);
    LEVEL.store(level, Ordering::Relaxed);
    INITIALIZED.store(true, Ordering::Release);
    Ok(level)
}

/// MPI_Finalize.
pub fn finalize() -> Outcome {
    if !is_initialized() || is_finalized() {
        return Err(MPI_ERR_OTHER);
    }
    if let Some(own) = self_communicator() {
        // SAFETY: its own handle.
        unsafe { own.attributes.delete_all(MPI_COMM_SELF.0) }?;
    }
    if let Some(world) = world_communicator() {
        // SAFETY: its own handle.
        unsafe { world.attributes.delete_all(MPI_COMM_WORLD.0) }?;
    }
    FINALIZED.store(true, Ordering::Release);
    if SESSIONS.load(Ordering::Acquire) == 0 {
        leave();
    }
    Ok(())
}

fn leave() {
    crate::calls::buffers::flush_all();
    crate::request::wait_for_orphans();
    let mut joined = JOB.lock();
    *LEFT.lock() = joined.as_ref().map(|job| job.world.raw_statistics());
    let Some(job) = joined.take() else { return };
    drop(joined);
    withdraw();
    if let Err(failure) = job.world.finish() {
        eprintln!("unisono-mpi: {failure}");
    }
}

/// MPI_Session_init.
pub fn open_session() -> Outcome {
    join().map_err(|reason| {
        eprintln!("unisono-mpi: cannot join the job: {reason}");
        MPI_ERR_OTHER
    })?;
    SESSIONS.fetch_add(1, Ordering::AcqRel);
    Ok(())
}

/// MPI_Session_finalize.
pub fn close_session() {
    if SESSIONS.fetch_sub(1, Ordering::AcqRel) == 1 && (is_finalized() || !is_initialized()) {
        leave();
    }
}

/// The library's counters.
pub fn statistics() -> Snapshot {
    let job = JOB.lock();
    let now = job.as_ref().map(|job| job.world.raw_statistics());
    now.or(*LEFT.lock()).unwrap_or_default()
}

/// Whether the job was not joined yet, is joined, or was left: 0, 1, 2.
pub fn state() -> u32 {
    let job = JOB.lock();
    if job.is_some() { 1 } else { u32::from(LEFT.lock().is_some()) * 2 }
}

/// Makes progress once.
pub fn progress() {
    match world_communicator() {
        Some(world) => world.library().raw_progress(),
        None => std::thread::yield_now(),
    }
}

/// Ends the job.
pub fn abort(code: c_int) -> ! {
    // Another thread may hold the lock for ever.
    if let Some(job) = JOB.try_lock().as_ref().and_then(|job| job.as_ref()) {
        job.world.abort_at_starter(code);
    }
    // An exit code of 0 would not end the other ranks.
    let code = if code & 0xff == 0 { 1 } else { code & 0xff };
    // SAFETY: ends the process at once; exit handlers could wait for threads that wait for this rank.
    unsafe { libc::_exit(code) }
}
