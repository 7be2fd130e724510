//! The shared-memory part of `unisono info`.

use core::ffi::c_void;
use std::{io, os::unix::process::CommandExt, process::Command};

use serde::Serialize;
use unisono_shmem::host::file::{FileError, SegmentFile};
use unisono_shmem::layout::{SegmentLayout, SegmentSizes, WaitMode};

/// The properties of shared memory, found by creating a segment and using it.
#[derive(Serialize, Debug)]
pub(crate) struct Memory {
    /// Size of a page.
    page_bytes: usize,
    /// The kind of pages, and why not larger ones.
    pages: String,
    /// How the failure of a rank is detected.
    liveness: &'static str,
    /// Whether a process may read another's memory (CMA), and if not, why.
    process_vm_readv: String,
}

impl Memory {
    /// Creates a segment for two ranks, and frees it.
    pub(crate) fn probe() -> Result<Self, FileError> {
        let made = SegmentFile::create(&SegmentLayout::new(SegmentSizes::of_node(2, WaitMode::Dedicated))?)?;
        let (page_bytes, pages) = (made.pages().bytes(), made.pages().to_string());
        let read = read_by_child();
        Ok(Self {
            page_bytes,
            pages,
            // Creating a segment fails without them.
            liveness: "record locks of the system",
            process_vm_readv: match read {
                Ok(()) => String::from("yes"),
                Err(error) => format!("no: {error}"),
            },
        })
    }

    /// Names and values for the text output.
    pub(crate) fn lines(&self) -> [(&'static str, &str); 3] {
        let Self { pages, liveness, process_vm_readv, page_bytes: _ } = self;
        [("shared memory", pages), ("shm liveness", liveness), ("process_vm_readv", process_vm_readv)]
    }
}

/// The word that a child process reads from this one. Neither traces the other, as among the ranks of a node.
static WORD: u64 = 0x756e_6973_6f6e_6f21;

/// Whether processes of one parent may read each other's memory.
pub(crate) fn can_be_read() -> bool {
    read_by_child().is_ok()
}

fn read_by_child() -> io::Result<()> {
    let parent = std::process::id().cast_signed();
    let mut command = Command::new("/");
    let read = move || {
        let mut read = 0_u64;
        let bytes = size_of_val(&WORD);
        let local = libc::iovec { iov_base: (&raw mut read).cast::<c_void>(), iov_len: bytes };
        let remote = libc::iovec { iov_base: (&raw const WORD).cast::<c_void>().cast_mut(), iov_len: bytes };
        // SAFETY: one piece of this process to write to, alive and of this length; the other process's is only read.
        let moved = unsafe { libc::process_vm_readv(parent, &raw const local, 1, &raw const remote, 1, 0) };
        match moved {
            -1 => Err(io::Error::last_os_error()),
            _ if moved.cast_unsigned() == bytes && read == WORD => Err(io::Error::from_raw_os_error(READ_SUCCEEDED)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    };
    // SAFETY: between fork and exec it makes one system call, allocates nothing and takes no lock.
    unsafe { command.pre_exec(read) };
    // Nothing is ever executed: the child reports its result as the error.
    match command.spawn() {
        Err(error) if error.raw_os_error() == Some(READ_SUCCEEDED) => Ok(()),
        Err(error) => Err(error),
        Ok(mut child) => child.wait().and(Err(io::ErrorKind::Unsupported.into())),
    }
}

/// The error by which the child reports success. `process_vm_readv` never returns it.
const READ_SUCCEEDED: i32 = libc::ECANCELED;
