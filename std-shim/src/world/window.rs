//! Windows: memory of each rank that all members of a communicator read, write and update (MPI's one-sided
//! communication, MPI 4.1 ch. 12).
//!
//! ```no_run
//! use unisono::{Rank, World, collective::SystemOperation};
//!
//! let world = World::join()?;
//! let window = world.allocate_window(8)?;
//! let ticket = window.fetch_and_op(1_u64, Rank(0), 0, SystemOperation::sum())?;
//! println!("rank {} has ticket {ticket}", world.rank());
//! window.free()?;
//! world.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Ranks that share memory access each other's windows directly; others, and those of a window on the caller's memory,
//! send requests ([`unisono_core::rma`]), which the target executes when it makes progress. All updates are atomic instructions of a
//! processor that has the memory, so updates from everywhere are atomic with each other.
//!
//! A window owns its memory, and gives no reference to it: [`read`](Window::read) and [`write`](Window::write) copy.
//! What a put or accumulate sends is copied too, so that it needs no borrow until its flush.
//!
//! **Protection.** Through the endpoint a peer needs the 64-bit key of the window, which its bounds and rights check
//! go with, and which ends with the window. Ranks of a node map each other's memory, which cannot be revoked: the
//! memory of a window that was dropped and not [freed](Window::free) is never used again.

pub(super) mod blocks;
pub(super) mod copies;
mod create;
mod dynamic;
mod epochs;
pub(super) mod memory;
mod place;
pub(super) mod raw;
mod remote;
mod request;
mod target_datatype;
pub(super) mod targets;
pub(super) mod updates;
mod wide_updates;

use core::fmt;
use core::sync::atomic::{Ordering, fence};

use parking_lot::Mutex;
use unisono_core::rma::{RKey, RemoteSpan};
use unisono_memory::memory_regions::RegisterError;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::collective::CollectiveError;
use super::communicator::Communicator;
use super::communicator::create::CreateError;
use super::progress::WaitFor;
use super::request::Failure;
use super::shm_transport::{AllocateError, Buffer};
use dynamic::Attachments;
use memory::WindowMemory;
use unisono_bootstrap::Rank;

pub use dynamic::ATTACHED_MAX;
pub use epochs::LockKind;
pub use memory::AccumulateOperation;
pub(super) use request::OneSided;
pub use request::{GetRequest, PutRequest};
use targets::{Access, Targets};

/// Why an operation on a window or a region failed. Ranks are those of its communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WindowError {
    /// The rank could not be reached, or the job ended.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// A collective of the window failed.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// The members could not agree on a communicator for the window.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// There is no memory for the window.
    #[error(transparent)]
    Memory(#[from] AllocateError),
    /// The memory could not be registered.
    #[error("cannot register the memory: {0}")]
    Register(RegisterError),
    /// The target failed, and may have received a part of the data.
    #[error("rank {0} failed, and may have received a part of what was put")]
    Partial(Rank),
    /// The target failed, and may have executed the update.
    #[error("rank {0} failed, and may have executed the update")]
    Unknown(Rank),
    /// The access reaches beyond the end of the target's memory.
    #[error("the access reaches beyond the end of the memory of rank {0}")]
    OutOfBounds(Rank),
    /// The address of an element that is updated is no multiple of its length.
    #[error("the element in the memory of rank {0} is not aligned to its length")]
    Misaligned(Rank),
    /// Elements of this type cannot be combined by this operation.
    #[error("the elements cannot be updated by this operation")]
    Unsupported,
    /// The elements that a datatype describes at the target have another length than the data.
    #[error("the data has {given} bytes, and the elements at the target have {described}")]
    SizesDiffer {
        /// Bytes of the data.
        given: usize,
        /// Bytes of the elements at the target.
        described: usize,
    },
    /// The target has freed its window or revoked its region, or the key was never one of its own.
    #[error("the memory of rank {0} is not accessible (any more)")]
    Revoked(Rank),
    /// The region was registered without the right to this access.
    #[error("the region of rank {0} does not permit this access")]
    NoRight(Rank),
}

impl From<RegisterError> for WindowError {
    fn from(error: RegisterError) -> Self {
        Self::Register(error)
    }
}

/// Memory of every member of a communicator that all of them access.
pub struct Window {
    targets: Targets,
    /// Where each member's lock word is.
    locks: Vec<Access>,
    /// The memory of this rank; leaked if the window is not freed.
    memory: Option<Buffer<u128>>,
    /// The lock word, and the user's part.
    lock: WindowMemory,
    own: WindowMemory,
    bytes: usize,
    /// The keys under which remote members access it.
    keys: Vec<RKey>,
    /// Members that this rank has started an access epoch on, and exposed its memory to.
    started: Mutex<Vec<Rank>>,
    posted: Mutex<Vec<Rank>>,
}

impl fmt::Debug for Window {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Window").field("targets", &self.targets).finish_non_exhaustive()
    }
}

impl Window {
    /// The communicator of its members: a duplicate of the one that it was made of.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(8)?;
    /// assert_eq!(window.communicator().rank(), world.rank());
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn communicator(&self) -> &Communicator {
        &self.targets.communicator
    }

    /// Bytes of the memory of this rank.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(8 * (world.rank().0 as usize + 1))?;
    /// assert_eq!(window.bytes(), 8 * (world.rank().0 as usize + 1));
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of the memory of a rank.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(8)?;
    /// assert_eq!(window.bytes_of(Rank(0))?, 8);
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure::UnknownRank`].
    pub fn bytes_of(&self, rank: Rank) -> Result<usize, WindowError> {
        self.targets.member(rank).map(|member| member.bytes)
    }

    /// Whether the memory of this rank is accessed without its taking part.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(8)?;
    /// assert!(window.is_direct(world.rank()));
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn is_direct(&self, rank: Rank) -> bool {
        self.targets.member(rank).is_ok_and(|member| !matches!(member.access, Access::Remote(..)))
    }

    /// The address of the memory of this rank (`MPI_WIN_BASE`). Other ranks may write there at any time: only raw
    /// pointers are safe to make of it.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(8)?;
    /// // SAFETY: no rank accesses the window meanwhile.
    /// unsafe { window.as_ptr().write(7) };
    /// let mut first = [0_u8];
    /// window.read(0, &mut first)?;
    /// assert_eq!(first, [7]);
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn as_ptr(&self) -> *mut u8 {
        self.own.start().as_ptr()
    }

    /// The address at which this process maps the memory of a rank of its node (`MPI_Win_shared_query`). `None`: it is
    /// not mapped.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(8)?;
    /// println!("mapped here: {}", window.shared_ptr(Rank(0)).is_some());
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn shared_ptr(&self, rank: Rank) -> Option<*mut u8> {
        match self.targets.member(rank).ok()?.access {
            Access::Own(memory) | Access::Direct(memory) => Some(memory.start().as_ptr()),
            Access::Keyed(_) | Access::Remote(..) => None,
        }
    }

    /// Copies from the memory of this rank, from byte `offset` on.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(8)?;
    /// let mut word = [1_u64];
    /// window.read(0, &mut word)?;
    /// assert_eq!(word, [0]);
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError::OutOfBounds`].
    pub fn read<T: FromBytes + IntoBytes>(&self, offset: usize, into: &mut [T]) -> Result<(), WindowError> {
        self.get(into, self.targets.communicator.rank, offset)
    }

    /// Copies to the memory of this rank, from byte `offset` on.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(8)?;
    /// window.write(4, &[7_u32])?;
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError::OutOfBounds`].
    pub fn write<T: IntoBytes + Immutable>(&self, offset: usize, from: &[T]) -> Result<(), WindowError> {
        self.put(from, self.targets.communicator.rank, offset)
    }

    /// Waits until all operations of this rank on a target are done there (`MPI_Win_flush`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(8)?;
    /// window.put(&[1_u64], Rank(0), 0)?;
    /// window.flush(Rank(0))?;
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The first error of an operation since the last flush.
    pub fn flush(&self, target: Rank) -> Result<(), WindowError> {
        self.targets.flush(target)
    }

    /// [Flushes](Self::flush) all targets (`MPI_Win_flush_all`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(8)?;
    /// (0..world.size()).try_for_each(|rank| window.put(&[1_u64], Rank(rank), 0))?;
    /// window.flush_all()?;
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`flush`](Self::flush), of the first target that reports one, after all were flushed.
    pub fn flush_all(&self) -> Result<(), WindowError> {
        fence(Ordering::SeqCst);
        self.targets.make_progress(true);
        let used = self.targets.communicator.shared.lock().remote_access.used_targets(self.targets.number);
        let mut first = Ok(());
        for there in used {
            if let Some(target) = self.targets.communicator.members.number(there) {
                first = first.and(self.flush(target));
            }
        }
        first
    }

    /// Waits until the memory that operations on a target use is free (`MPI_Win_flush_local`): at once, since it is
    /// copied.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(8)?;
    /// window.put(&[1_u64], Rank(0), 0)?;
    /// window.flush_local(Rank(0))?;
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure::UnknownRank`].
    pub fn flush_local(&self, target: Rank) -> Result<(), WindowError> {
        self.targets.make_progress(true);
        self.targets.member(target).map(|_| ())
    }

    /// Orders accesses of this rank to the memory of its window and to that of ranks of its node (`MPI_Win_sync`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(8)?;
    /// window.sync();
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn sync(&self) {
        self.targets.make_progress(true);
        fence(Ordering::SeqCst);
    }

    /// Frees the window (`MPI_Win_free`): waits for all members, and gives the memory back. Collective.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// world.allocate_window(8)?.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`]; the memory is then never used again.
    pub fn free(mut self) -> Result<(), WindowError> {
        let flushed = self.flush_all();
        self.targets.communicator.barrier()?;
        // Nobody accesses it any more.
        self.keys.extend(self.targets.attachments.iter_mut().flat_map(Attachments::take_keys));
        while let Some(key) = self.keys.pop() {
            if conceal(&self.targets.communicator, key).is_err() {
                return flushed;
            }
        }
        self.targets.attachments.iter_mut().for_each(Attachments::free);
        drop(self.memory.take());
        flushed
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let attached = self.targets.attachments.iter_mut().flat_map(Attachments::take_keys);
        for key in self.keys.drain(..).chain(attached) {
            self.targets.communicator.shared.with_process(|process| process.conceal(key));
        }
        let mut process = self.targets.communicator.shared.lock();
        for lock in &self.locks {
            if let Access::Remote(there, RemoteSpan { region, .. }) = lock {
                process.remote_access.native.forget((*there).into(), *region);
            }
        }
        drop(process);
        // Other members may still access it.
        core::mem::forget(self.memory.take());
    }
}

/// Ends the exposure of memory, and waits until nobody uses it.
pub(super) fn conceal(communicator: &Communicator, key: RKey) -> Result<(), WindowError> {
    let shared = &communicator.shared;
    shared.with_process(|process| process.conceal(key));
    let aborted = shared.wait_until(WaitFor::AnyRank, |process| {
        if process.is_concealed(key) { Some(None) } else { process.aborted.map(Some) }
    });
    aborted.map_or(Ok(()), |failure| Err(communicator.local_failure(failure).into()))
}
