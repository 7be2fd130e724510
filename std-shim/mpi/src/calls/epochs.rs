//! Epochs of windows: fences, groups and locks.

use core::ffi::c_int;

use unisono::{Group, LockKind, Rank};

use crate::abi::*;
use crate::calls::give;
use crate::calls::groups::group;
use crate::error::Outcome;
use crate::window::{Win, on};

pub(crate) unsafe fn win_fence(assertions: c_int, win: MPI_Win) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |win| {
            win.epochs.lock().fence(assertions)?;
            win.with(|window| window.fence())
        })
    }
}

/// The ranks in the window of the members of a group.
fn members(win: &Win, of: &Group) -> Outcome<Vec<Rank>> {
    of.iter().map(|world| win.group.number(world).ok_or(MPI_ERR_GROUP)).collect()
}

pub(crate) unsafe fn win_start(targets: MPI_Group, _: c_int, win: MPI_Win) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |win| {
            let targets = members(win, group(targets)?)?;
            win.epochs.lock().start(targets.clone())?;
            win.with(|window| window.start_epoch(&targets))
        })
    }
}

pub(crate) unsafe fn win_complete(win: MPI_Win) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |win| {
            win.epochs.lock().complete()?;
            win.with(|window| window.complete())
        })
    }
}

pub(crate) unsafe fn win_post(origins: MPI_Group, _: c_int, win: MPI_Win) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |win| {
            let origins = members(win, group(origins)?)?;
            win.epochs.lock().post()?;
            win.with(|window| window.post(&origins))
        })
    }
}

pub(crate) unsafe fn win_wait(win: MPI_Win) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |win| {
            win.epochs.lock().wait(true)?;
            win.with(|window| window.wait_epoch())
        })
    }
}

pub(crate) unsafe fn win_test(win: MPI_Win, flag: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |win| {
            win.epochs.lock().wait(false)?;
            let ends = win.with(|window| window.test_epoch())?;
            win.epochs.lock().wait(ends)?;
            give(flag, ends.into())
        })
    }
}

pub(crate) unsafe fn win_lock(kind: c_int, rank: c_int, _: c_int, win: MPI_Win) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |win| {
            let kind = match kind {
                MPI_LOCK_SHARED => LockKind::Shared,
                MPI_LOCK_EXCLUSIVE => LockKind::Exclusive,
                _ => return Err(MPI_ERR_LOCKTYPE),
            };
            let Some(target) = win.target(rank)? else { return Ok(()) };
            win.epochs.lock().lock(target, kind)?;
            win.with(|window| window.lock(kind, target))
        })
    }
}

pub(crate) unsafe fn win_unlock(rank: c_int, win: MPI_Win) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |win| {
            let Some(target) = win.target(rank)? else { return Ok(()) };
            let kind = win.epochs.lock().unlock(target)?;
            // The target's own part is flushed by the unlock.
            if win.part(target)?.holder != target {
                win.flush_holder(target)?;
            }
            win.with(|window| window.unlock(kind, target))
        })
    }
}

pub(crate) unsafe fn win_lock_all(_: c_int, win: MPI_Win) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |win| {
            win.epochs.lock().lock_all()?;
            win.with(|window| window.lock_all())
        })
    }
}

pub(crate) unsafe fn win_unlock_all(win: MPI_Win) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |win| {
            win.epochs.lock().unlock_all()?;
            win.with(|window| window.unlock_all())
        })
    }
}

pub(crate) unsafe fn win_flush(rank: c_int, win: MPI_Win) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |win| {
            let Some(target) = win.target(rank)? else { return Ok(()) };
            win.epochs.lock().flush(Some(target))?;
            win.flush_holder(target)
        })
    }
}

pub(crate) unsafe fn win_flush_all(win: MPI_Win) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |win| {
            win.epochs.lock().flush(None)?;
            win.with(|window| window.flush_all())
        })
    }
}

pub(crate) unsafe fn win_flush_local(rank: c_int, win: MPI_Win) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |win| {
            let Some(target) = win.target(rank)? else { return Ok(()) };
            win.epochs.lock().flush(Some(target))?;
            win.with(|window| window.flush_local(target))
        })
    }
}

pub(crate) unsafe fn win_flush_local_all(win: MPI_Win) -> c_int {
    // SAFETY: the contract of this module. What operations use of the caller's memory is free when they return.
    unsafe { on(win, |win| win.epochs.lock().flush(None)) }
}

pub(crate) unsafe fn win_sync(win: MPI_Win) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |win| {
            win.with(|window| {
                window.sync();
                Ok(())
            })
        })
    }
}
