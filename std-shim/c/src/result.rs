//! Results of calls: a code, and the text of a thread's last error.

use alloc::ffi::CString;
use core::cell::RefCell;
use core::ffi::c_char;
use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

use unisono::collective::CollectiveError;
use unisono::{
    AgreeError, AllocateError, CartesianError, CreateError, DatatypeError, Failure, WindowError, WorldError,
};

use crate::fork;

/// How a call ended. Everything but `UNISONO_OK` is an error, of which `unisono_error_text` has the text.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(non_camel_case_types, reason = "a name of C")]
#[allow(clippy::upper_case_acronyms, reason = "names of C")]
pub enum unisono_result {
    /// It did what it should.
    UNISONO_OK = 0,
    /// An argument is NULL, too large, or contradicts another one. Nothing was done, as for the errors up to
    /// `UNISONO_ERROR_UNDER_WAY`.
    UNISONO_ERROR_ARGUMENT = 1,
    /// A handle is not of this kind, or what it named is freed.
    UNISONO_ERROR_HANDLE = 2,
    /// A datatype cannot be built or used here: too large, or parts of a receive buffer overlap.
    UNISONO_ERROR_DATATYPE = 3,
    /// The communicator has no such rank.
    UNISONO_ERROR_RANK = 4,
    /// A buffer of a collective has the wrong length.
    UNISONO_ERROR_LENGTH = 5,
    /// The operation is not defined for the datatype.
    UNISONO_ERROR_OPERATION = 6,
    /// Something is still under way: a request that is in use by another thread, or that is not complete.
    UNISONO_ERROR_UNDER_WAY = 7,
    /// The message is longer than the buffer of its receive, here or at the other end.
    UNISONO_ERROR_TRUNCATED = 8,
    /// A rank has failed.
    UNISONO_ERROR_PEER_FAILED = 9,
    /// A rank has finished, and takes no more part.
    UNISONO_ERROR_PEER_FINISHED = 10,
    /// A rank violated the protocol, or the shared memory was overwritten.
    UNISONO_ERROR_CORRUPTED = 11,
    /// A rank calls another collective, or with other arguments.
    UNISONO_ERROR_DISAGREES = 12,
    /// The communicator was revoked, or the memory of a window or a region is not accessible any more.
    UNISONO_ERROR_REVOKED = 13,
    /// Memory or another resource is used up.
    UNISONO_ERROR_RESOURCES = 14,
    /// The network device is gone.
    UNISONO_ERROR_DEVICE = 15,
    /// This process has finished, or the job was aborted.
    UNISONO_ERROR_FINISHED = 16,
    /// The job cannot be joined.
    UNISONO_ERROR_JOIN = 17,
    /// The call was made in a child process after `fork`.
    UNISONO_ERROR_FORKED = 18,
    /// A defect of the library.
    UNISONO_ERROR_INTERNAL = 19,
    /// An access to a window or a region is out of its bounds, not aligned to its elements, or not permitted. Nothing was
    /// accessed.
    UNISONO_ERROR_WINDOW = 20,
    /// In a job that checks types (`--check`): the message has elements of another type than the buffer of its receive.
    UNISONO_ERROR_TYPE = 21,
}

use unisono_result::*;

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Error {
    pub(crate) code: unisono_result,
    pub(crate) text: String,
    pub(crate) rank: Option<u32>,
}

impl Error {
    pub(crate) fn new(code: unisono_result, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), rank: None }
    }

    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::new(UNISONO_ERROR_ARGUMENT, text)
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let (code, rank) = match failure {
            Failure::PeerFailed(rank) => (UNISONO_ERROR_PEER_FAILED, Some(rank.0)),
            Failure::PeerFinished(rank) => (UNISONO_ERROR_PEER_FINISHED, Some(rank.0)),
            Failure::Truncated { .. } => (UNISONO_ERROR_TRUNCATED, None),
            Failure::RemoteTruncated(rank) => (UNISONO_ERROR_TRUNCATED, Some(rank.0)),
            Failure::Corrupted(rank) => (UNISONO_ERROR_CORRUPTED, Some(rank.0)),
            Failure::UnknownRank(rank) => (UNISONO_ERROR_RANK, Some(rank.0)),
            Failure::Revoked => (UNISONO_ERROR_REVOKED, None),
            Failure::NoDevice => (UNISONO_ERROR_DEVICE, None),
            Failure::OtherWorld => (UNISONO_ERROR_ARGUMENT, None),
            Failure::Disagrees(rank) => (UNISONO_ERROR_DISAGREES, Some(rank.0)),
            Failure::TypeMismatch { rank, .. } => (UNISONO_ERROR_TYPE, Some(rank.0)),
            Failure::Finished => (UNISONO_ERROR_FINISHED, None),
            Failure::Aborted { rank, .. } => (UNISONO_ERROR_FINISHED, Some(rank.0)),
            Failure::ResourceExhausted | Failure::BufferFull { .. } => (UNISONO_ERROR_RESOURCES, None),
            Failure::UnderWay => (UNISONO_ERROR_UNDER_WAY, None),
        };
        Self { code, text: failure.to_string(), rank }
    }
}

impl From<CollectiveError> for Error {
    fn from(error: CollectiveError) -> Self {
        let (code, rank) = match error {
            CollectiveError::UnknownRank { rank, .. } => (UNISONO_ERROR_RANK, Some(rank.0)),
            CollectiveError::Length { .. } => (UNISONO_ERROR_LENGTH, None),
            CollectiveError::Overlapping => (UNISONO_ERROR_DATATYPE, None),
            CollectiveError::Undefined | CollectiveError::ElementTooLong { .. } => (UNISONO_ERROR_OPERATION, None),
            CollectiveError::TooLong => (UNISONO_ERROR_RESOURCES, None),
            CollectiveError::Missing { rank, .. } => (UNISONO_ERROR_PEER_FAILED, Some(rank.0)),
            CollectiveError::Corrupt { rank, .. } => (UNISONO_ERROR_CORRUPTED, Some(rank.0)),
            CollectiveError::Disagrees { rank, .. } => (UNISONO_ERROR_DISAGREES, Some(rank.0)),
            CollectiveError::Corrupted => (UNISONO_ERROR_CORRUPTED, None),
            CollectiveError::UnderWay => (UNISONO_ERROR_UNDER_WAY, None),
            CollectiveError::Revoked => (UNISONO_ERROR_REVOKED, None),
            CollectiveError::Ended(failure) => {
                let Self { code, rank, .. } = failure.into();
                (code, rank)
            }
        };
        Self { code, text: error.to_string(), rank }
    }
}

impl From<CreateError> for Error {
    fn from(error: CreateError) -> Self {
        let (code, rank) = match error {
            CreateError::Collective(error) => return error.into(),
            CreateError::Differs(rank) | CreateError::Disagrees(rank) => (UNISONO_ERROR_DISAGREES, Some(rank.0)),
            CreateError::NotMember(rank) => (UNISONO_ERROR_RANK, Some(rank.0)),
            CreateError::NoContext => (UNISONO_ERROR_RESOURCES, None),
        };
        Self { code, text: error.to_string(), rank }
    }
}

impl From<CartesianError> for Error {
    fn from(error: CartesianError) -> Self {
        match error {
            CartesianError::Points { .. } => Self::argument(error.to_string()),
            CartesianError::Create(error) => error.into(),
        }
    }
}

impl From<AgreeError> for Error {
    fn from(error: AgreeError) -> Self {
        let code = match error {
            AgreeError::NoServer => UNISONO_ERROR_FINISHED,
            AgreeError::Excluded => UNISONO_ERROR_PEER_FAILED,
            AgreeError::Ended(failure) => return failure.into(),
            AgreeError::Scattered | AgreeError::NoContext => UNISONO_ERROR_RESOURCES,
        };
        Self::new(code, error.to_string())
    }
}

impl From<WorldError> for Error {
    fn from(error: WorldError) -> Self {
        Self::new(UNISONO_ERROR_JOIN, error.to_string())
    }
}

impl From<AllocateError> for Error {
    fn from(error: AllocateError) -> Self {
        Self::new(UNISONO_ERROR_RESOURCES, error.to_string())
    }
}

impl From<WindowError> for Error {
    fn from(error: WindowError) -> Self {
        let (code, rank) = match error {
            WindowError::Failed(failure) => return failure.into(),
            WindowError::Collective(error) => return error.into(),
            WindowError::Create(error) => return error.into(),
            WindowError::Memory(_) | WindowError::Register(_) => (UNISONO_ERROR_RESOURCES, None),
            WindowError::Partial(rank) | WindowError::Unknown(rank) => (UNISONO_ERROR_PEER_FAILED, Some(rank.0)),
            WindowError::OutOfBounds(rank) | WindowError::Misaligned(rank) | WindowError::NoRight(rank) => {
                (UNISONO_ERROR_WINDOW, Some(rank.0))
            }
            WindowError::Unsupported => (UNISONO_ERROR_OPERATION, None),
            WindowError::SizesDiffer { .. } => (UNISONO_ERROR_LENGTH, None),
            WindowError::Revoked(rank) => (UNISONO_ERROR_REVOKED, Some(rank.0)),
        };
        Self { code, text: error.to_string(), rank }
    }
}

impl From<DatatypeError> for Error {
    fn from(error: DatatypeError) -> Self {
        Self::new(UNISONO_ERROR_DATATYPE, error.to_string())
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::new(UNISONO_ERROR_RESOURCES, error.to_string())
    }
}

thread_local! {
    static LAST: RefCell<(CString, i64)> = RefCell::new((CString::default(), -1));
}

/// Runs a call: its result as a code, its error as the thread's last one. No panic leaves it.
pub(crate) fn call(run: impl FnOnce() -> Result<(), Error>) -> unisono_result {
    let run = || {
        if fork::has_forked() {
            return Err(Error::new(UNISONO_ERROR_FORKED, "a child process cannot use the library after fork"));
        }
        run()
    };
    let ended = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        // A payload whose drop panics would cross the border.
        core::mem::forget(panic);
        Err(Error::new(UNISONO_ERROR_INTERNAL, format!("a defect of unisono: {text}")))
    });
    match ended {
        Ok(()) => UNISONO_OK,
        Err(error) => {
            let text = CString::new(error.text.replace('\0', " ")).unwrap_or_default();
            let _ = LAST.try_with(|last| *last.borrow_mut() = (text, error.rank.map_or(-1, i64::from)));
            error.code
        }
    }
}

/// The text of the calling thread's last error, until its next one. Never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_error_text() -> *const c_char {
    LAST.try_with(|last| last.borrow().0.as_ptr()).unwrap_or(c"".as_ptr())
}

/// The rank that the calling thread's last error names, in the communicator's numbers; -1 if it names none.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_error_rank() -> i64 {
    LAST.try_with(|last| last.borrow().1).unwrap_or(-1)
}

/// The name of a result. Never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_result_name(result: i32) -> *const c_char {
    let names = [
        c"ok",
        c"argument",
        c"handle",
        c"datatype",
        c"rank",
        c"length",
        c"operation",
        c"under way",
        c"truncated",
        c"peer failed",
        c"peer finished",
        c"corrupted",
        c"disagrees",
        c"revoked",
        c"resources",
        c"device",
        c"finished",
        c"join",
        c"forked",
        c"internal",
        c"window",
    ];
    usize::try_from(result).ok().and_then(|at| names.get(at)).unwrap_or(&c"unknown").as_ptr()
}
