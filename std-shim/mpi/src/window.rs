//! Windows: one of the library, with displacement units, checked epochs, attributes and an error handler.

pub mod access;
pub mod epochs;

use alloc::ffi::CString;
use core::ffi::c_int;

use parking_lot::{Mutex, RwLock};
use unisono::{Group, Rank, Window, WindowError};

use crate::abi::*;
use crate::attribute::Attributes;
use crate::calls::communicators::class_of_creation;
use crate::error::{Attached, Outcome, class_of_collective, class_of_failure, raise, raise_anywhere};
use crate::handle::{Kind, Object, resolve};
use crate::info::Info;
use epochs::Epochs;

/// The part of a window that is a rank's.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The rank in whose memory of the library's window it lies, and the offset there.
    pub holder: Rank,
    /// Bytes before it.
    pub offset: usize,
    /// Its bytes.
    pub bytes: usize,
    /// Bytes by which displacements are scaled.
    pub unit: i64,
}

/// A window.
pub struct Win {
    /// The library's; `None`: freed.
    library: RwLock<Option<Window>>,
    /// How its memory was provided: `MPI_WIN_FLAVOR_…`.
    pub flavor: c_int,
    /// The parts of all ranks.
    pub parts: Vec<Part>,
    /// The address of this rank's part.
    pub base: usize,
    /// The members.
    pub group: Group,
    /// What attributes point to: size, displacement unit and model.
    pub size: MPI_Aint,
    pub unit: c_int,
    pub model: c_int,
    /// The epochs that this rank has opened.
    pub epochs: Mutex<Epochs>,
    /// Its error handler.
    pub errors: Attached,
    /// Its attributes.
    pub attributes: Attributes,
    /// Its name.
    pub name: Mutex<CString>,
    /// Its hints.
    pub info: Info,
}

impl Kind for Win {
    const MARK: u32 = 0x7769_6e64;
    const INVALID: c_int = MPI_ERR_WIN;

    fn predefined(_: usize) -> Option<&'static Object<Self>> {
        None
    }
}

impl Win {
    /// A window of the library, with the parts of all ranks.
    pub fn new(library: Window, flavor: c_int, parts: Vec<Part>, base: usize, info: Info) -> Outcome<Self> {
        let (rank, group) = (library.communicator().rank().0, library.communicator().group());
        let own = parts.get(rank as usize).ok_or(MPI_ERR_INTERN)?;
        let (size, unit) = (own.bytes as MPI_Aint, own.unit as c_int);
        Ok(Self {
            library: RwLock::new(Some(library)),
            flavor,
            parts,
            base,
            group,
            size,
            unit,
            model: MPI_WIN_UNIFIED,
            epochs: Mutex::new(Epochs::default()),
            errors: Attached::new(MPI_ERRORS_ARE_FATAL),
            attributes: Attributes::default(),
            name: Mutex::new(CString::default()),
            info,
        })
    }

    /// Calls the library's window.
    pub fn with<R>(&self, call: impl FnOnce(&Window) -> Result<R, WindowError>) -> Outcome<R> {
        call(self.library.read().as_ref().ok_or(MPI_ERR_WIN)?).map_err(class_of)
    }

    /// Takes the library's window, to free it.
    pub fn take(&self) -> Outcome<Window> {
        self.library.write().take().ok_or(MPI_ERR_WIN)
    }

    /// A target's rank; `None`: `MPI_PROC_NULL`.
    pub fn target(&self, rank: c_int) -> Outcome<Option<Rank>> {
        match u32::try_from(rank) {
            Ok(target) if (target as usize) < self.parts.len() => Ok(Some(Rank(target))),
            Err(_) if rank == MPI_PROC_NULL => Ok(None),
            _ => Err(MPI_ERR_RANK),
        }
    }

    /// Flushes what this rank has started on the part of a rank.
    pub fn flush_holder(&self, target: Rank) -> Outcome {
        let holder = self.part(target)?.holder;
        self.with(|window| window.flush(holder))
    }

    /// The part of a rank.
    pub fn part(&self, target: Rank) -> Outcome<Part> {
        self.parts.get(target.0 as usize).copied().ok_or(MPI_ERR_RANK)
    }
}

/// The error class of a failed operation on a window.
pub const fn class_of(error: WindowError) -> c_int {
    match error {
        WindowError::Failed(failure) => class_of_failure(failure),
        WindowError::Collective(error) => class_of_collective(error),
        WindowError::Create(error) => class_of_creation(error),
        WindowError::Memory(_) | WindowError::Register(_) => MPI_ERR_NO_MEM,
        WindowError::OutOfBounds(_) => MPI_ERR_RMA_RANGE,
        WindowError::Misaligned(_) => MPI_ERR_DISP,
        WindowError::Unsupported => MPI_ERR_OP,
        WindowError::SizesDiffer { .. } => MPI_ERR_TRUNCATE,
        WindowError::Partial(_) | WindowError::Unknown(_) => MPI_ERR_PROC_ABORTED,
        WindowError::Revoked(_) | WindowError::NoRight(_) => MPI_ERR_WIN,
    }
}

/// Runs a call on a window, whose error handler gets its errors.
///
/// # Safety
/// The handle is of the program.
#[inline(always)]
pub unsafe fn on<'a>(win: MPI_Win, call: impl FnOnce(&'a Object<Win>) -> Outcome) -> c_int {
    // SAFETY: the caller promises it.
    match unsafe { resolve::<Win>(win.0) } {
        Ok(of) => call(of).map_or_else(|code| raise(&of.errors, win.0, code), |()| MPI_SUCCESS),
        Err(code) => raise_anywhere(code),
    }
}
