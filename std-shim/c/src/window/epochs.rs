//! The exported functions that order the operations of several ranks on a window: fences, locks, and the epochs of
//! chosen ranks.

use unisono::{LockKind, Rank, Window};

use super::{WINDOWS, on, unisono_window};
use crate::datatype::{check, list, store};
use crate::result::unisono_result;
use crate::result::{Error, call};

/// Ends all operations of all ranks on the window, and waits for all ranks. Collective.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_fence(window: unisono_window) -> unisono_result {
    on(window, Window::fence)
}

const fn kind(is_exclusive: bool) -> LockKind {
    if is_exclusive { LockKind::Exclusive } else { LockKind::Shared }
}

/// Takes the lock of a rank's memory, and waits for it: with others, or as its only holder.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_lock(window: unisono_window, rank: u32, is_exclusive: bool) -> unisono_result {
    on(window, |window| window.lock(kind(is_exclusive), Rank(rank)))
}

/// Ends the operations of this rank there, and releases the lock, which was taken in this way.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_unlock(window: unisono_window, rank: u32, is_exclusive: bool) -> unisono_result {
    on(window, |window| window.unlock(kind(is_exclusive), Rank(rank)))
}

/// Takes the locks of all ranks, with others.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_lock_all(window: unisono_window) -> unisono_result {
    on(window, Window::lock_all)
}

/// Ends the operations of this rank, and releases the locks of `unisono_lock_all`.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_unlock_all(window: unisono_window) -> unisono_result {
    on(window, Window::unlock_all)
}

/// Calls the window with a list of ranks.
///
/// # Safety
/// `ranks` has `count` numbers or is NULL.
unsafe fn with_ranks(
    window: unisono_window,
    count: usize,
    ranks: *const u32,
    operate: impl FnOnce(&Window, &[Rank]) -> Result<(), unisono::WindowError>,
) -> unisono_result {
    call(|| {
        // SAFETY: the caller answers for the list.
        let ranks: Vec<Rank> = unsafe { list(ranks, count, "ranks") }?.iter().copied().map(Rank).collect();
        operate(&*WINDOWS.get(window)?, &ranks).map_err(Error::from)
    })
}

/// Lets these ranks access this rank's memory, until each has called `unisono_complete`.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_post(window: unisono_window, count: usize, ranks: *const u32) -> unisono_result {
    // SAFETY: the caller answers for the list.
    unsafe { with_ranks(window, count, ranks, Window::post) }
}

/// Waits until these ranks let this one access their memory.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_start_epoch(
    window: unisono_window,
    count: usize,
    ranks: *const u32,
) -> unisono_result {
    // SAFETY: the caller answers for the list.
    unsafe { with_ranks(window, count, ranks, Window::start_epoch) }
}

/// Ends the operations of the epoch that `unisono_start_epoch` began.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_complete(window: unisono_window) -> unisono_result {
    on(window, Window::complete)
}

/// Waits until the ranks of `unisono_post` have completed.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_wait_epoch(window: unisono_window) -> unisono_result {
    on(window, Window::wait_epoch)
}

/// Whether the ranks of `unisono_post` have completed; then their epoch is over.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_test_epoch(window: unisono_window, is_over: *mut bool) -> unisono_result {
    call(|| {
        check(is_over, "is_over")?;
        let found = WINDOWS.get(window)?.test_epoch()?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(is_over, "is_over", found) }
    })
}
