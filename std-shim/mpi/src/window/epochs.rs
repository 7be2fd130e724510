//! The epochs of a window that a rank has opened, as rules of what may follow what (MPI 4.1, section 12.5).

use alloc::collections::BTreeMap;
use core::ffi::c_int;

use unisono::{LockKind, Rank};

use crate::abi::*;
use crate::error::Outcome;

/// The access epoch of a rank.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
enum Access {
    /// None.
    #[default]
    Closed,
    /// A fence may have opened one: an operation or another fence shows whether it has.
    Fenced,
    /// A fence has opened one.
    Fence,
    /// `MPI_Win_start` on these ranks.
    Started(Vec<Rank>),
    /// Locks.
    Locked(BTreeMap<u32, LockKind>),
    /// `MPI_Win_lock_all`.
    LockedAll,
}

/// The epochs of a rank.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Epochs {
    access: Access,
    /// Whether `MPI_Win_post` has opened an exposure epoch.
    is_exposed: bool,
}

const WRONG: Outcome = Err(MPI_ERR_RMA_SYNC);

impl Epochs {
    /// Whether another kind of access epoch may begin.
    const fn may_begin(&self) -> bool {
        matches!(self.access, Access::Closed | Access::Fenced)
    }

    /// An operation on a rank, or on `MPI_PROC_NULL`.
    pub fn operate(&mut self, target: Option<Rank>) -> Outcome {
        let is_allowed = match (&self.access, target) {
            (Access::Closed, _) => false,
            (Access::Fenced, _) => {
                self.access = Access::Fence;
                true
            }
            (Access::Started(targets), Some(target)) => targets.contains(&target),
            (Access::Locked(locks), Some(target)) => locks.contains_key(&target.0),
            _ => true,
        };
        if is_allowed { Ok(()) } else { WRONG }
    }

    /// A fence, with its assertions.
    pub fn fence(&mut self, assertions: c_int) -> Outcome {
        if self.is_exposed || !matches!(self.access, Access::Closed | Access::Fenced | Access::Fence) {
            return WRONG;
        }
        self.access = if assertions & MPI_MODE_NOSUCCEED != 0 { Access::Closed } else { Access::Fenced };
        Ok(())
    }

    /// An access epoch on these ranks begins.
    pub fn start(&mut self, targets: Vec<Rank>) -> Outcome {
        if !self.may_begin() {
            return WRONG;
        }
        self.access = Access::Started(targets);
        Ok(())
    }

    /// It ends.
    pub fn complete(&mut self) -> Outcome {
        if !matches!(self.access, Access::Started(_)) {
            return WRONG;
        }
        self.access = Access::Closed;
        Ok(())
    }

    /// An exposure epoch begins.
    pub fn post(&mut self) -> Outcome {
        if self.is_exposed || self.access == Access::Fence {
            return WRONG;
        }
        self.is_exposed = true;
        Ok(())
    }

    /// It ends, if `ends`.
    pub fn wait(&mut self, ends: bool) -> Outcome {
        if !self.is_exposed {
            return WRONG;
        }
        self.is_exposed = !ends;
        Ok(())
    }

    /// A rank is locked.
    pub fn lock(&mut self, target: Rank, kind: LockKind) -> Outcome {
        if self.may_begin() {
            self.access = Access::Locked(BTreeMap::new());
        }
        let Access::Locked(locks) = &mut self.access else { return WRONG };
        if locks.contains_key(&target.0) {
            return WRONG;
        }
        locks.insert(target.0, kind);
        Ok(())
    }

    /// A rank is unlocked. Returns how it was locked.
    pub fn unlock(&mut self, target: Rank) -> Outcome<LockKind> {
        let Access::Locked(locks) = &mut self.access else { return Err(MPI_ERR_RMA_SYNC) };
        let kind = locks.remove(&target.0).ok_or(MPI_ERR_RMA_SYNC)?;
        if locks.is_empty() {
            self.access = Access::Closed;
        }
        Ok(kind)
    }

    /// All ranks are locked.
    pub fn lock_all(&mut self) -> Outcome {
        if !self.may_begin() {
            return WRONG;
        }
        self.access = Access::LockedAll;
        Ok(())
    }

    /// They are unlocked.
    pub fn unlock_all(&mut self) -> Outcome {
        if self.access != Access::LockedAll {
            return WRONG;
        }
        self.access = Access::Closed;
        Ok(())
    }

    /// A flush of a rank, or of all: only under locks.
    pub fn flush(&self, target: Option<Rank>) -> Outcome {
        match (&self.access, target) {
            (Access::Locked(locks), Some(target)) if !locks.contains_key(&target.0) => WRONG,
            (Access::Locked(_) | Access::LockedAll, _) => Ok(()),
            _ => WRONG,
        }
    }

    /// The window is freed.
    pub fn free(&self) -> Outcome {
        let is_closed = matches!(self.access, Access::Closed | Access::Fenced | Access::Fence);
        if is_closed && !self.is_exposed { Ok(()) } else { WRONG }
    }
}
