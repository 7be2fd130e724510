//! Process liveness: each process holds a POSIX record lock on the byte of the segment's file whose offset is its rank
//! in the node. The kernel releases the lock when the process ends, however it ends, and before its parent reaps it.
//!
//! A record lock belongs to a process, which loses it when it closes any descriptor of the file (`fcntl(2)`, "Advisory
//! record locking"). So there is one descriptor, which stays open as long as the process runs.

use core::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::layout::RANKS_MAX;

/// The holder of a rank's lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockOwner {
    /// No other process: none has joined, the one that did has ended, or it is the calling process.
    Nobody,
    /// The process with this id; 0: a process of a PID namespace that is not visible here.
    Process(u32),
}

/// The segment's file, on which the locks of the node are held and queried.
pub struct LivenessLocks {
    file: OwnedFd,
}

impl fmt::Debug for LivenessLocks {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "LivenessLocks({})", self.file.as_raw_fd())
    }
}

impl LivenessLocks {
    /// Takes the segment's file: the only descriptor of it that this process ever closes.
    pub const fn new(file: OwnedFd) -> Self {
        Self { file }
    }

    /// The file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Checks that record locks work on this file, with one that belongs to no rank.
    ///
    /// # Errors
    /// Those of `F_SETLK`.
    pub(crate) fn probe(file: BorrowedFd<'_>) -> io::Result<()> {
        let mut lock = byte(RANKS_MAX);
        control(file, libc::F_SETLK, &mut lock)?;
        lock.l_type = libc::F_UNLCK as libc::c_short;
        control(file, libc::F_SETLK, &mut lock)
    }

    /// Acquires the lock of a rank of the node and holds it until this process ends or the descriptor is closed.
    /// Returns false if another process holds it.
    ///
    /// # Errors
    /// Those of `F_SETLK`.
    pub fn acquire(&self, local: u32) -> io::Result<bool> {
        let mut lock = byte(local);
        match control(self.file(), libc::F_SETLK, &mut lock) {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EAGAIN)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the process that holds the lock of a rank of the node. One system call.
    ///
    /// # Errors
    /// Those of `F_GETLK`.
    pub fn owner(&self, local: u32) -> io::Result<LockOwner> {
        let mut lock = byte(local);
        control(self.file(), libc::F_GETLK, &mut lock)?;
        Ok(if lock.l_type == libc::F_UNLCK as libc::c_short {
            LockOwner::Nobody
        } else {
            LockOwner::Process(u32::try_from(lock.l_pid).unwrap_or(0))
        })
    }
}

fn control(file: BorrowedFd<'_>, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: an open descriptor, and a live structure of the kind that both commands take.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), command, core::ptr::from_mut(lock)) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn byte(local: u32) -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: libc::off_t::from(local),
        l_len: 1,
        l_pid: 0,
    }
}
