//! Errors: classes, codes that the program adds, their texts, and error handlers.

use alloc::collections::BTreeMap;
use alloc::ffi::CString;
use alloc::sync::Arc;
use core::ffi::{c_int, c_void};

use parking_lot::Mutex;
use unisono::Failure;
use unisono::collective::CollectiveError;

use crate::abi::*;
use crate::communicator::{Comm, self_communicator, world_communicator};
use crate::handle::{Held, Kind, Object, resolve};

/// The result of a call, or an error class or code.
pub type Outcome<T = ()> = Result<T, c_int>;

/// The error class of a failed message.
pub const fn class_of_failure(failure: Failure) -> c_int {
    match failure {
        Failure::Truncated { .. } | Failure::RemoteTruncated(_) => MPI_ERR_TRUNCATE,
        Failure::TypeMismatch { .. } => MPI_ERR_TYPE,
        Failure::UnknownRank(_) => MPI_ERR_RANK,
        Failure::ResourceExhausted => MPI_ERR_NO_MEM,
        Failure::BufferFull { .. } => MPI_ERR_BUFFER,
        Failure::UnderWay => MPI_ERR_REQUEST,
        Failure::PeerFailed(_) | Failure::PeerFinished(_) | Failure::Aborted { .. } => MPI_ERR_PROC_ABORTED,
        _ => MPI_ERR_OTHER,
    }
}

/// The error class of a failed collective.
pub const fn class_of_collective(error: CollectiveError) -> c_int {
    match error {
        CollectiveError::UnknownRank { .. } => MPI_ERR_ROOT,
        CollectiveError::Length { .. } | CollectiveError::Disagrees { .. } => MPI_ERR_COUNT,
        CollectiveError::Overlapping => MPI_ERR_BUFFER,
        CollectiveError::Undefined => MPI_ERR_OP,
        CollectiveError::ElementTooLong { .. } | CollectiveError::TooLong => MPI_ERR_NO_MEM,
        CollectiveError::Missing { .. } => MPI_ERR_PROC_ABORTED,
        CollectiveError::Ended(failure) => class_of_failure(failure),
        _ => MPI_ERR_OTHER,
    }
}

/// What an error handler calls.
#[derive(Debug)]
pub enum Handler {
    /// Ends the job.
    Fatal,
    /// Ends the processes of the communicator; here, the job.
    Abort,
    /// Returns the error.
    Return,
    /// Calls a function of the program with the handle and the code.
    Function(usize),
}

/// An error handler.
#[derive(Debug)]
pub struct Errhandler {
    /// What it does.
    pub handler: Handler,
}

impl Kind for Errhandler {
    const MARK: u32 = 0x6572_7268;
    const INVALID: c_int = MPI_ERR_ERRHANDLER;

    fn predefined(handle: usize) -> Option<&'static Object<Self>> {
        static HANDLERS: std::sync::OnceLock<[Held<Errhandler>; 3]> = std::sync::OnceLock::new();
        let all = HANDLERS.get_or_init(|| {
            [Handler::Fatal, Handler::Abort, Handler::Return].map(|handler| Object::new(Errhandler { handler }))
        });
        all.get(handle.checked_sub(MPI_ERRORS_ARE_FATAL.0)?).map(|held| &**held)
    }
}

/// An error handler that is attached to an object; a constant, or another owner of the program's.
#[derive(Debug)]
pub struct Attached(Mutex<MPI_Errhandler>);

impl Attached {
    /// The constant.
    pub const fn new(handler: MPI_Errhandler) -> Self {
        Self(Mutex::new(handler))
    }

    /// The handle.
    pub fn get(&self) -> MPI_Errhandler {
        *self.0.lock()
    }

    /// The handle, for the program, which frees it.
    pub fn duplicate(&self) -> MPI_Errhandler {
        let handle = *self.0.lock();
        own_again(handle);
        handle
    }

    /// Attaches another one.
    ///
    /// # Safety
    /// The handle is valid.
    pub unsafe fn set(&self, handler: MPI_Errhandler) -> Outcome {
        // SAFETY: the caller promises it.
        unsafe { resolve::<Errhandler>(handler.0) }?;
        own_again(handler);
        let former = core::mem::replace(&mut *self.0.lock(), handler);
        disown(former);
        Ok(())
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        disown(*self.0.get_mut());
    }
}

fn own_again(handle: MPI_Errhandler) {
    // SAFETY: it is attached or of the program, and thus valid.
    if let (Ok(object), true) = (unsafe { resolve::<Errhandler>(handle.0) }, handle.0 >= crate::handle::FIRST_ADDRESS) {
        let _ = Object::into_handle(object.hold());
    }
}

fn disown(handle: MPI_Errhandler) {
    if handle.0 >= crate::handle::FIRST_ADDRESS {
        // SAFETY: it was attached as an owner of its own.
        drop(unsafe { crate::handle::release::<Errhandler>(handle.0) });
    }
}

/// Calls an error handler for the object with this handle. Returns the code for the program, if the handler returns.
pub fn raise(attached: &Attached, object: usize, code: c_int) -> c_int {
    let handle = attached.get();
    // SAFETY: it is attached, and thus valid.
    let handler = unsafe { resolve::<Errhandler>(handle.0) };
    match handler.as_ref().map(|handler| &handler.handler) {
        Ok(Handler::Return) => code,
        Ok(Handler::Function(function)) => {
            let (mut object, mut passed) = (object, code);
            let function = core::ptr::with_exposed_provenance::<c_void>(*function);
            type Function = unsafe extern "C" fn(*mut usize, *mut c_int, ...);
            // SAFETY: the program registered it as a function of this type.
            let function = unsafe { core::mem::transmute::<*const c_void, Function>(function) };
            // SAFETY: its own function, called as the standard says.
            unsafe { function(&raw mut object, &raw mut passed) };
            code
        }
        Ok(Handler::Fatal | Handler::Abort) | Err(_) => {
            let (rank, text) = (crate::job::world_rank(), text(code));
            eprintln!("unisono-mpi: rank {rank}: {}: MPI_ERRORS_ARE_FATAL ends the job", text.to_string_lossy());
            crate::job::abort(if code == 0 { 1 } else { code })
        }
    }
}

/// Raises an error that belongs to no object: at MPI_COMM_SELF, as MPI 4.0 says; where that has its first handler and
/// MPI_COMM_WORLD another one, at MPI_COMM_WORLD, as before.
#[cold]
pub fn raise_anywhere(code: c_int) -> c_int {
    let (own, world) = (self_communicator(), world_communicator());
    match (own, world) {
        (Some(own), Some(world)) => {
            let is_first = own.errors.get() == MPI_ERRORS_ARE_FATAL;
            let (at, handle) = if is_first { (world, MPI_COMM_WORLD) } else { (own, MPI_COMM_SELF) };
            raise(&at.errors, handle.0, code)
        }
        _ => raise(&BEFORE_INIT, MPI_COMM_SELF.0, code),
    }
}

static BEFORE_INIT: Attached = Attached::new(MPI_ERRORS_ARE_FATAL);

/// Raises an error of a communicator.
#[cold]
pub fn raise_on(comm: &Object<Comm>, code: c_int) -> c_int {
    raise(&comm.errors, comm.handle(), code)
}

/// The return value of a call that concerns no object.
#[inline(always)]
pub fn finish(outcome: Outcome) -> c_int {
    match outcome {
        Ok(()) => MPI_SUCCESS,
        Err(code) => raise_anywhere(code),
    }
}

/// Runs a call on a communicator, whose error handler gets its errors.
///
/// # Safety
/// The handle is of the program.
#[inline(always)]
pub unsafe fn on<'a>(comm: MPI_Comm, call: impl FnOnce(&'a Object<Comm>) -> Outcome) -> c_int {
    // SAFETY: the caller promises it.
    match unsafe { resolve::<Comm>(comm.0) } {
        Ok(comm) => match call(comm) {
            Ok(()) => MPI_SUCCESS,
            Err(code) => raise_on(comm, code),
        },
        Err(code) => raise_anywhere(code),
    }
}

/// A function that this library lacks.
#[cold]
pub fn unsupported(name: &str) -> c_int {
    eprintln!("unisono-mpi: {name} is not supported");
    raise_anywhere(MPI_ERR_UNSUPPORTED_OPERATION)
}

/// Classes, codes and texts that the program has added.
#[derive(Debug, Default)]
struct Added {
    /// Classes of codes; a class is its own.
    classes: BTreeMap<c_int, c_int>,
    texts: BTreeMap<c_int, CString>,
    last: c_int,
}

static ADDED: Mutex<Option<Added>> = Mutex::new(None);

fn with_added<R>(change: impl FnOnce(&mut Added) -> R) -> R {
    let mut added = ADDED.lock();
    change(added.get_or_insert_with(|| Added { last: MPI_ERR_LASTCODE, ..Added::default() }))
}

/// The last code in use, for the attribute MPI_LASTUSEDCODE.
pub fn last_code() -> c_int {
    with_added(|added| added.last)
}

/// Adds a class, or a code of a class.
pub fn add(class: Option<c_int>) -> Outcome<c_int> {
    let class = class.map(|class| class_of(class).ok_or(MPI_ERR_ARG)).transpose()?;
    Ok(with_added(|added| {
        added.last += 1;
        added.classes.insert(added.last, class.unwrap_or(added.last));
        added.last
    }))
}

fn class_of(code: c_int) -> Option<c_int> {
    if is_predefined(code) { Some(code) } else { with_added(|added| added.classes.get(&code).copied()) }
}

/// The class of a code.
pub fn class(code: c_int) -> Outcome<c_int> {
    if code < 0 {
        return Err(MPI_ERR_ARG);
    }
    Ok(class_of(code).unwrap_or(MPI_ERR_UNKNOWN))
}

/// Sets the text of a code that the program has added.
pub fn set_text(code: c_int, text: CString) -> Outcome {
    with_added(|added| {
        let known = added.classes.contains_key(&code);
        if known {
            added.texts.insert(code, text);
        }
        if known { Ok(()) } else { Err(MPI_ERR_ARG) }
    })
}

/// Removes a class, if `is_class`, or a code.
pub fn remove(code: c_int, is_class: bool) -> Outcome {
    with_added(|added| {
        let class = added.classes.get(&code).copied();
        let others = added.classes.values().filter(|class| **class == code).count();
        match class {
            // Not one that has a text, nor a class that has codes.
            Some(class)
                if is_class == (class == code) && (!is_class || others == 1) && !added.texts.contains_key(&code) =>
            {
                added.classes.remove(&code);
                added.last = added.classes.keys().last().copied().unwrap_or(MPI_ERR_LASTCODE);
                Ok(())
            }
            _ => Err(MPI_ERR_OTHER),
        }
    })
}

/// Removes the text of a code.
pub fn remove_text(code: c_int) -> Outcome {
    with_added(|added| added.texts.remove(&code).map(|_| ()).ok_or(MPI_ERR_OTHER))
}

macro_rules! texts {
    ($($class:ident $text:literal,)*) => {
        fn predefined_text(class: c_int) -> Option<&'static str> {
            match class {
                $($class => Some(concat!(stringify!($class), ": ", $text)),)*
                _ => None,
            }
        }
    };
}

texts! {
    MPI_SUCCESS "no error",
    MPI_ERR_BUFFER "invalid buffer",
    MPI_ERR_COUNT "invalid count",
    MPI_ERR_TYPE "invalid datatype",
    MPI_ERR_TAG "invalid tag",
    MPI_ERR_COMM "invalid communicator",
    MPI_ERR_RANK "invalid rank",
    MPI_ERR_REQUEST "invalid request",
    MPI_ERR_ROOT "invalid root",
    MPI_ERR_GROUP "invalid group",
    MPI_ERR_OP "invalid reduction operation",
    MPI_ERR_TOPOLOGY "invalid topology",
    MPI_ERR_DIMS "invalid dimensions",
    MPI_ERR_ARG "invalid argument",
    MPI_ERR_UNKNOWN "unknown error",
    MPI_ERR_TRUNCATE "the message is longer than the receive",
    MPI_ERR_OTHER "other error",
    MPI_ERR_INTERN "internal error",
    MPI_ERR_PENDING "the request has not ended",
    MPI_ERR_IN_STATUS "the error is in the status",
    MPI_ERR_ACCESS "permission denied",
    MPI_ERR_AMODE "invalid access mode",
    MPI_ERR_ASSERT "invalid assertion",
    MPI_ERR_BAD_FILE "invalid file name",
    MPI_ERR_BASE "invalid base address",
    MPI_ERR_CONVERSION "data conversion failed",
    MPI_ERR_DISP "invalid displacement",
    MPI_ERR_DUP_DATAREP "the data representation is defined already",
    MPI_ERR_FILE_EXISTS "the file exists",
    MPI_ERR_FILE_IN_USE "the file is in use",
    MPI_ERR_FILE "invalid file",
    MPI_ERR_INFO_KEY "invalid key",
    MPI_ERR_INFO_NOKEY "no such key",
    MPI_ERR_INFO_VALUE "invalid value",
    MPI_ERR_INFO "invalid info",
    MPI_ERR_IO "input or output failed",
    MPI_ERR_KEYVAL "invalid attribute key",
    MPI_ERR_LOCKTYPE "invalid lock type",
    MPI_ERR_NAME "no such service",
    MPI_ERR_NO_MEM "out of memory",
    MPI_ERR_NOT_SAME "arguments differ between ranks",
    MPI_ERR_NO_SPACE "no space is left",
    MPI_ERR_NO_SUCH_FILE "no such file",
    MPI_ERR_PORT "invalid port",
    MPI_ERR_QUOTA "quota exceeded",
    MPI_ERR_READ_ONLY "read-only file",
    MPI_ERR_RMA_ATTACH "the memory cannot be attached",
    MPI_ERR_RMA_CONFLICT "conflicting accesses to a window",
    MPI_ERR_RMA_RANGE "the target is outside of the window",
    MPI_ERR_RMA_SHARED "the memory cannot be shared",
    MPI_ERR_RMA_SYNC "wrong synchronisation of a window",
    MPI_ERR_SERVICE "invalid service name",
    MPI_ERR_SIZE "invalid size",
    MPI_ERR_SPAWN "processes cannot be started",
    MPI_ERR_UNSUPPORTED_DATAREP "unsupported data representation",
    MPI_ERR_UNSUPPORTED_OPERATION "unsupported operation",
    MPI_ERR_WIN "invalid window",
    MPI_ERR_RMA_FLAVOR "wrong kind of window",
    MPI_ERR_PROC_ABORTED "a process has aborted",
    MPI_ERR_VALUE_TOO_LARGE "the value is too large for the type",
    MPI_ERR_SESSION "invalid session",
    MPI_ERR_ERRHANDLER "invalid error handler",
    MPI_ERR_ABI "wrong ABI",
    MPI_T_ERR_CANNOT_INIT "the tools interface cannot be initialised",
    MPI_T_ERR_NOT_ACCESSIBLE "not accessible",
    MPI_T_ERR_NOT_INITIALIZED "the tools interface is not initialised",
    MPI_T_ERR_NOT_SUPPORTED "not supported by the tools interface",
    MPI_T_ERR_MEMORY "out of memory",
    MPI_T_ERR_INVALID "wrong use of the tools interface",
    MPI_T_ERR_INVALID_INDEX "invalid index",
    MPI_T_ERR_INVALID_ITEM "invalid item",
    MPI_T_ERR_INVALID_SESSION "invalid session of the tools interface",
    MPI_T_ERR_INVALID_HANDLE "invalid handle",
    MPI_T_ERR_INVALID_NAME "no such variable",
    MPI_T_ERR_OUT_OF_HANDLES "no handles are left",
    MPI_T_ERR_OUT_OF_SESSIONS "no sessions are left",
    MPI_T_ERR_CVAR_SET_NOT_NOW "the variable cannot be set now",
    MPI_T_ERR_CVAR_SET_NEVER "the variable cannot be set",
    MPI_T_ERR_PVAR_NO_WRITE "the variable cannot be written",
    MPI_T_ERR_PVAR_NO_STARTSTOP "the variable cannot be started or stopped",
    MPI_T_ERR_PVAR_NO_ATOMIC "the variable cannot be read and reset at once",
    MPI_ERR_LASTCODE "last predefined code",
}

fn is_predefined(code: c_int) -> bool {
    predefined_text(code).is_some()
}

/// The text of a code.
pub fn text(code: c_int) -> Arc<CString> {
    if let Some(text) = predefined_text(code) {
        return Arc::new(CString::new(text).unwrap_or_default());
    }
    Arc::new(with_added(|added| match added.texts.get(&code) {
        Some(text) => text.clone(),
        None if added.classes.contains_key(&code) => CString::default(),
        None => CString::new(format!("unknown error code {code}")).unwrap_or_default(),
    }))
}
