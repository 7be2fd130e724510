//! Synchronisation of windows: fences, locks, and epochs of groups.

use core::sync::atomic::{Ordering, fence};

use unisono_core::rma::atomic::{AtomicKind, AtomicOperation, Width};
use unisono_core::rma::operation::RmaRequest;

use super::remote::{of, remote_span};
use super::targets::Access;
use super::{Window, WindowError};
use crate::world::process::remote_access::{CallEnd, CallMemory};
use crate::world::request::{Failure, Tag};
use unisono_bootstrap::Rank;

/// A lock that other locks exclude, or exclude only exclusive ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockKind {
    /// `MPI_LOCK_SHARED`.
    Shared,
    /// `MPI_LOCK_EXCLUSIVE`.
    Exclusive,
}

/// A lock word: an exclusive holder, or the number of shared ones.
const EXCLUSIVE: u64 = 1 << 63;
/// Offsets of the lock words of a window: that of its users, and that of updates which no instruction executes.
const USER_LOCK: usize = 0;
pub(super) const UPDATE_LOCK: usize = 8;

const POSTED: Tag = Tag(0);
const COMPLETED: Tag = Tag(1);

impl Window {
    /// Waits until all operations of all members are done, on all members (`MPI_Win_fence`). Collective.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (window, mut word) = (world.allocate_window(8)?, [0_u64]);
    /// window.put(&[7_u64], Rank((world.rank().0 + 1) % world.size()), 0)?;
    /// window.fence()?;
    /// window.read(0, &mut word)?;
    /// assert_eq!(word, [7]);
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`]: of an operation of this rank since the last flush, or of the barrier. If a member has died, the
    /// fence succeeds at a rank only if all operations of the living were done first.
    pub fn fence(&self) -> Result<(), WindowError> {
        let flushed = self.flush_all();
        fence(Ordering::SeqCst);
        // An operation on a dead member may be lost: what others can still see there would lack it.
        let context = self.targets.communicator.context;
        self.targets.communicator.shared.with_process(|process| process.fail_if_member_died(context));
        flushed.and(self.targets.communicator.barrier().map_err(WindowError::from))
    }

    /// Locks the memory of a rank, and waits for it (`MPI_Win_lock`). Operations are allowed without a lock, too: it
    /// excludes other locks.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (window, mut word) = (world.allocate_window(8)?, [0_u64]);
    /// window.lock(LockKind::Exclusive, Rank(0))?;
    /// window.get(&mut word, Rank(0), 0)?;
    /// window.put(&[word[0] + 1], Rank(0), 0)?;
    /// window.unlock(LockKind::Exclusive, Rank(0))?;
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`]. If a member fails meanwhile (it may hold the lock), [`Failure::PeerFailed`].
    pub fn lock(&self, kind: LockKind, target: Rank) -> Result<(), WindowError> {
        self.acquire(USER_LOCK, kind, target)
    }

    /// Acquires a lock of a rank, and waits for it.
    pub(super) fn acquire(&self, lock: usize, kind: LockKind, target: Rank) -> Result<(), WindowError> {
        if self.try_lock(lock, kind, target)? {
            return Ok(());
        }
        let shared = &self.targets.communicator.shared;
        shared.lock().remote_access.begin_lock_wait(self.targets.number, self.targets.communicator.members.iter());
        let locked = self.wait_for_lock(lock, kind, target);
        shared.lock().remote_access.end_lock_wait(self.targets.number);
        locked
    }

    fn wait_for_lock(&self, lock: usize, kind: LockKind, target: Rank) -> Result<(), WindowError> {
        loop {
            self.expect_members()?;
            // The holder may need this rank's progress.
            let mut process = self.targets.communicator.shared.lock();
            self.targets.communicator.shared.progress(&mut process);
            drop(process);
            std::thread::yield_now();
            if self.try_lock(lock, kind, target)? {
                return Ok(());
            }
        }
    }

    /// Returns whether the lock was free.
    fn try_lock(&self, lock: usize, kind: LockKind, target: Rank) -> Result<bool, WindowError> {
        match kind {
            LockKind::Exclusive => {
                let compare = AtomicKind::CompareSwap { compare: 0, swap: EXCLUSIVE };
                Ok(self.lock_word(target, lock, compare)? == 0)
            }
            LockKind::Shared => {
                let is_held = self.lock_word(target, lock, add(1))? & EXCLUSIVE != 0;
                if is_held {
                    self.lock_word(target, lock, add(u64::MAX))?;
                }
                Ok(!is_held)
            }
        }
    }

    /// Unlocks the memory of a rank, after a flush of it (`MPI_Win_unlock`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(8)?;
    /// window.lock(LockKind::Shared, Rank(0))?;
    /// window.unlock(LockKind::Shared, Rank(0))?;
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`]: also those of the flush, after which the lock is released.
    pub fn unlock(&self, kind: LockKind, target: Rank) -> Result<(), WindowError> {
        self.release(USER_LOCK, kind, target)
    }

    /// Releases a lock of a rank, after a flush.
    pub(super) fn release(&self, lock: usize, kind: LockKind, target: Rank) -> Result<(), WindowError> {
        let flushed = match self.targets.member(target)?.access {
            Access::Own(_) | Access::Direct(_) | Access::Keyed(_) => Ok(()),
            Access::Remote(there, key) => self.targets.flush_remote(target, there, key),
        };
        self.release_unflushed(lock, kind, target)?;
        flushed
    }

    /// As [`release`](Self::release), after operations that the target has answered.
    pub(super) fn release_unflushed(&self, lock: usize, kind: LockKind, target: Rank) -> Result<(), WindowError> {
        fence(Ordering::SeqCst);
        match kind {
            LockKind::Exclusive => self.lock_word(target, lock, add(EXCLUSIVE))?,
            LockKind::Shared => self.lock_word(target, lock, add(u64::MAX))?,
        };
        // Here, and not before: requests for the lock find it free. Otherwise a rank that polls its own memory under its
        // own lock would never let another one have it.
        self.targets.make_progress(true);
        Ok(())
    }

    /// [Locks](Self::lock) the memory of all ranks, shared (`MPI_Win_lock_all`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(8)?;
    /// window.lock_all()?;
    /// window.accumulate(&[1_u64], Rank(0), 0, SystemOperation::sum())?;
    /// window.unlock_all()?;
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn lock_all(&self) -> Result<(), WindowError> {
        (0..self.targets.communicator.size()).try_for_each(|rank| self.lock(LockKind::Shared, Rank(rank)))
    }

    /// [Unlocks](Self::unlock) the memory of all ranks (`MPI_Win_unlock_all`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(8)?;
    /// window.lock_all()?;
    /// window.unlock_all()?;
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn unlock_all(&self) -> Result<(), WindowError> {
        let unlock = |rank| self.unlock(LockKind::Shared, Rank(rank));
        (0..self.targets.communicator.size()).map(unlock).fold(Ok(()), Result::and)
    }

    /// Exposes the memory of this rank to these ranks until they [complete](Self::complete) (`MPI_Win_post`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (window, own) = (world.allocate_window(8)?, [world.rank()]);
    /// window.post(&own)?;
    /// window.start_epoch(&own)?;
    /// window.put(&[7_u64], world.rank(), 0)?;
    /// window.complete()?;
    /// window.wait_epoch()?;
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn post(&self, origins: &[Rank]) -> Result<(), WindowError> {
        fence(Ordering::SeqCst);
        for origin in origins {
            self.targets.communicator.send::<u8>(&[], *origin, POSTED)?;
        }
        *self.posted.lock() = origins.to_vec();
        Ok(())
    }

    /// Waits until these ranks have [posted](Self::post) (`MPI_Win_start`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (window, own) = (world.allocate_window(8)?, [world.rank()]);
    /// window.post(&own)?;
    /// window.start_epoch(&own)?;
    /// window.complete()?;
    /// window.wait_epoch()?;
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn start_epoch(&self, targets: &[Rank]) -> Result<(), WindowError> {
        for target in targets {
            self.targets.communicator.receive_into::<u8>(&mut [], *target, POSTED)?;
        }
        *self.started.lock() = targets.to_vec();
        Ok(())
    }

    /// Ends the epoch that [`start_epoch`](Self::start_epoch) began: all operations on its ranks are done
    /// (`MPI_Win_complete`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (window, own) = (world.allocate_window(8)?, [world.rank()]);
    /// window.post(&own)?;
    /// window.start_epoch(&own)?;
    /// window.complete()?;
    /// window.wait_epoch()?;
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`]; every rank is notified of the end all the same.
    pub fn complete(&self) -> Result<(), WindowError> {
        let mut first = Ok(());
        let targets = core::mem::take(&mut *self.started.lock());
        for target in targets {
            first = first.and(self.flush(target));
            fence(Ordering::SeqCst);
            let notified = self.targets.communicator.send::<u8>(&[], target, COMPLETED);
            first = first.and(notified.map_err(WindowError::from));
        }
        first
    }

    /// Waits until all ranks that this one has [posted](Self::post) to have completed (`MPI_Win_wait`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (window, own) = (world.allocate_window(8)?, [world.rank()]);
    /// window.post(&own)?;
    /// window.start_epoch(&own)?;
    /// window.complete()?;
    /// window.wait_epoch()?;
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn wait_epoch(&self) -> Result<(), WindowError> {
        let origins = core::mem::take(&mut *self.posted.lock());
        for origin in origins {
            self.targets.communicator.receive_into::<u8>(&mut [], origin, COMPLETED)?;
        }
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// Whether all ranks that this one has [posted](Self::post) to have completed (`MPI_Win_test`): then the epoch has
    /// ended, as after [`wait_epoch`](Self::wait_epoch). Makes progress once.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (window, own) = (world.allocate_window(8)?, [world.rank()]);
    /// window.post(&own)?;
    /// window.start_epoch(&own)?;
    /// assert!(!window.test_epoch()?);
    /// window.complete()?;
    /// while !window.test_epoch()? {}
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn test_epoch(&self) -> Result<bool, WindowError> {
        let mut posted = self.posted.lock();
        while let Some(origin) = posted.last().copied() {
            if self.targets.communicator.immediate_probe(origin, COMPLETED)?.is_none() {
                return Ok(false);
            }
            self.targets.communicator.receive_into::<u8>(&mut [], origin, COMPLETED)?;
            posted.pop();
        }
        fence(Ordering::SeqCst);
        Ok(true)
    }

    /// Updates a lock word of a rank. Returns its old value.
    fn lock_word(&self, target: Rank, lock: usize, kind: AtomicKind) -> Result<u64, WindowError> {
        let operation = AtomicOperation { width: Width::Bits64, kind };
        let lock_word = self.locks.get(target.0 as usize).ok_or(WindowError::Failed(Failure::UnknownRank(target)))?;
        match *lock_word {
            Access::Own(memory) | Access::Direct(memory) => of(memory.atomic(lock, operation), target),
            Access::Keyed(_) => Err(WindowError::Unsupported),
            Access::Remote(there, base) => {
                let at = remote_span(base, lock);
                let request = RmaRequest::Atomic(operation);
                let started = self.targets.start_when_room(there, |process| {
                    process.start_remote(self.targets.number, there, at, request, CallMemory::Nothing, CallEnd::Request)
                })?;
                self.targets.wait(started, target, there)
            }
        }
    }

    /// Whether all members take part, to the knowledge of this rank.
    fn expect_members(&self) -> Result<(), WindowError> {
        let process = self.targets.communicator.shared.lock();
        if let Some(failure) = process.aborted {
            return Err(self.targets.communicator.local_failure(failure).into());
        }
        let failed = self.targets.communicator.members.iter().find_map(|rank| process.why_gone(rank));
        drop(process);
        failed.map_or(Ok(()), |failure: Failure| Err(self.targets.communicator.local_failure(failure).into()))
    }
}

const fn add(add: u64) -> AtomicKind {
    AtomicKind::FetchAdd { add, boundaries: 0 }
}
