//! Windows: memory of each rank that all ranks of a communicator read, write and update.
//!
//! Offsets count bytes from the beginning of the target's memory; in a dynamic window they are addresses there. An
//! operation has an effect at its target at the latest when a flush, unlock or fence has returned, which reports the error
//! of one that the target has refused; gets and updates that return old elements have ended when they return.

pub mod access;
pub mod epochs;
pub mod requests;

use alloc::sync::Arc;
use core::ffi::c_void;
use core::ptr;

use unisono::{Communicator, Rank, Window, WindowError};

use crate::communicator::unisono_communicator;
use crate::datatype::{check, store};
use crate::handle::{Kind, Table};
use crate::one_sided::{made, memory};
use crate::result::unisono_result::{self, UNISONO_ERROR_UNDER_WAY};
use crate::result::{Error, call};

/// A window.
#[allow(non_camel_case_types, reason = "a name of C")]
pub type unisono_window = u64;

static WINDOWS: Table<Arc<Window>> = Table::new(Kind::Window);

/// Calls the window that a handle names.
fn on(window: unisono_window, operate: impl FnOnce(&Window) -> Result<(), WindowError>) -> unisono_result {
    call(|| Ok(operate(&*WINDOWS.get(window)?)?))
}

/// Allocates `bytes` zero bytes in each rank, a number that may differ between ranks, as a window. Ranks of a node
/// access it directly. Collective.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_allocate_window(
    communicator: unisono_communicator,
    bytes: usize,
    window: *mut unisono_window,
) -> unisono_result {
    // SAFETY: the caller answers for the pointer.
    unsafe { made(&WINDOWS, communicator, ("window", window), |of| Ok(of.allocate_window(bytes)?)) }
}

/// Makes a window of `bytes` bytes of the program's memory in each rank, which stays valid until the window is freed.
/// All other ranks access it by requests. Collective.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_create_window(
    communicator: unisono_communicator,
    start: *mut c_void,
    bytes: usize,
    window: *mut unisono_window,
) -> unisono_result {
    let make = |of: &Communicator| {
        let start = memory(start, bytes)?;
        // SAFETY: the caller promises that the memory stays valid until the window is freed.
        Ok(unsafe { of.create_window(start, bytes) }?)
    };
    // SAFETY: the caller answers for the pointer.
    unsafe { made(&WINDOWS, communicator, ("window", window), make) }
}

/// Makes a window to which each rank attaches memory later. Collective.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_create_dynamic_window(
    communicator: unisono_communicator,
    window: *mut unisono_window,
) -> unisono_result {
    // SAFETY: the caller answers for the pointer.
    unsafe { made(&WINDOWS, communicator, ("window", window), |of| Ok(of.create_dynamic_window()?)) }
}

/// Attaches memory to a dynamic window, which stays valid until it is detached or the window is freed. Other ranks
/// access it by its address.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_attach(window: unisono_window, start: *mut c_void, bytes: usize) -> unisono_result {
    call(|| {
        let start = memory(start, bytes)?;
        // SAFETY: the caller promises that the memory stays valid.
        Ok(unsafe { WINDOWS.get(window)?.attach(start, bytes) }?)
    })
}

/// Detaches memory that begins at this address from a dynamic window.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_detach(window: unisono_window, start: *const c_void) -> unisono_result {
    on(window, |window| window.detach(start.cast()))
}

/// Frees a window: waits for all ranks of its communicator. Collective.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_window_free(window: unisono_window) -> unisono_result {
    call(|| {
        let removed = WINDOWS.remove_unused(window)?;
        let reason = "requests on the window are not complete, or another thread uses it";
        Ok(removed.ok_or_else(|| Error::new(UNISONO_ERROR_UNDER_WAY, reason))?.free()?)
    })
}

/// Stores the address of a rank's memory, and its bytes: of this rank, and of ranks of its node whose memory this
/// process maps; else NULL. Ranks that use the memory meanwhile are to be synchronised by epochs or a lock.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_memory(
    window: unisono_window,
    rank: u32,
    start: *mut *mut c_void,
    bytes: *mut usize,
) -> unisono_result {
    call(|| {
        check(start, "start")?;
        check(bytes, "bytes")?;
        let window = WINDOWS.get(window)?;
        let length = window.bytes_of(Rank(rank))?;
        let own = Rank(rank) == window.communicator().rank();
        let address = if own { Some(window.as_ptr()) } else { window.shared_ptr(Rank(rank)) };
        // SAFETY: the caller answers for the pointer.
        unsafe { store(start, "start", address.map_or(ptr::null_mut(), <*mut u8>::cast)) }?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(bytes, "bytes", length) }
    })
}
