//! Regions: memory that a rank registers by itself, and that ranks with its key read, write and update
//! (`ucp_mem_map`, `fi_mr_reg`; no call here is collective).
//!
//! ```no_run
//! use unisono::prelude::*;
//! use unisono::{RKey, Rights};
//!
//! let world = World::join()?;
//! if world.rank() == Rank(0) {
//!     let region = world.allocate_region(64, Rights::READ | Rights::WRITE)?;
//!     world.send(&[region.rkey()], Rank(1), Tag(0))?;
//!     world.receive_into::<u8>(&mut [], Rank(1), Tag(0))?;
//!     let mut word = [0_u64];
//!     region.read(8, &mut word)?;
//!     assert_eq!(word, [7]);
//!     region.revoke()?;
//! } else if world.rank() == Rank(1) {
//!     let mut key = [RKey::NONE];
//!     world.receive_into(&mut key, Rank(0), Tag(0))?;
//!     let region = world.import_region(&key[0])?;
//!     region.put(&[7_u64], 8)?;
//!     region.flush()?;
//!     world.send::<u8>(&[], Rank(0), Tag(0))?;
//! }
//! world.finish()?;
//! # Ok::<(), Error>(())
//! ```
//!
//! Others send requests ([`unisono_core::rma`]), which the rank executes when it makes progress; over reliable
//! connections its adapter does. Every request is checked: the 64 random bits that name the region, bounds and rights; an
//! adapter checks a key of 32 bits and the bounds. A [`Window`](super::Window) is memory of all members of a communicator
//! instead, which ranks of a node map.

use core::fmt;
use core::ptr::NonNull;

use unisono_core::ids::RemoteKey;
use unisono_core::rma::{RKey as CoreKey, RemoteSpan};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::collective::{AsView, AsViewMut, Element};
use super::communicator::Communicator;
use super::process::remote_access::NativeMemory;
use super::shm_transport::Buffer;
use super::window::copies::bytes_of_view;
use super::window::memory::WindowMemory;
use super::window::raw::RawUpdate;
use super::window::targets::{Access, Members, PollingCalls, Target, Targets};
use super::window::updates::{element_of, word_of};
use super::window::{AccumulateOperation, GetRequest, PutRequest, WindowError, conceal};
use unisono_bootstrap::Rank;
pub use unisono_core::rma::Rights;

/// What other ranks need to access a region: plain bytes, to be sent to those that may. A rank that has it has the rights of
/// the region (`ucp_rkey_pack`). Over reliable connections the target's adapter checks its own 32-bit key, which is among
/// these bytes, instead of the 64 random bits.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RKey {
    key: u64,
    bytes: u64,
    /// [`NativeMemory`].
    native: [u64; 2],
    index: u32,
    /// In the job.
    rank: u32,
}

impl RKey {
    /// A key of nothing: what a receive of a key begins with.
    ///
    /// ```
    /// assert_eq!(unisono::RKey::NONE.bytes(), 0);
    /// ```
    pub const NONE: Self = Self { key: 0, bytes: 0, native: [0; 2], index: 0, rank: 0 };

    /// Bytes of the region.
    ///
    /// ```
    /// use unisono::{Rights, prelude::*};
    ///
    /// let world = World::join()?;
    /// assert_eq!(world.allocate_region(64, Rights::READ)?.rkey().bytes(), 64);
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl fmt::Debug for RKey {
    /// Without the bits that grant access.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("RKey").field("rank", &self.rank).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// Memory of this rank that others access.
pub struct Region {
    communicator: Communicator,
    memory: WindowMemory,
    /// Its memory, if it owns it; leaked if the region is not revoked.
    buffer: Option<Buffer<u128>>,
    key: Option<CoreKey>,
    rkey: RKey,
    calls: PollingCalls,
}

impl fmt::Debug for Region {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Region").field("rkey", &self.rkey).finish_non_exhaustive()
    }
}

impl Region {
    /// The key, for the ranks that may access it.
    ///
    /// ```
    /// use unisono::{RKey, Rights, prelude::*};
    ///
    /// let world = World::join()?;
    /// let region = world.allocate_region(64, Rights::READ)?;
    /// let mut keys = vec![RKey::NONE; world.size() as usize];
    /// world.all_gather_into(&[region.rkey()], &mut keys[..])?;
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn rkey(&self) -> RKey {
        self.rkey
    }

    /// Bytes of the region.
    ///
    /// ```
    /// use unisono::{Rights, prelude::*};
    ///
    /// let world = World::join()?;
    /// assert_eq!(world.allocate_region(64, Rights::READ)?.bytes(), 64);
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Its address. Other ranks may write there at any time: only raw pointers are safe to make of it.
    ///
    /// ```
    /// use unisono::{Rights, prelude::*};
    ///
    /// let world = World::join()?;
    /// let region = world.allocate_region(64, Rights::READ)?;
    /// // SAFETY: nobody else accesses the region meanwhile.
    /// unsafe { region.as_ptr().write(7) };
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn as_ptr(&self) -> *mut u8 {
        self.memory.start().as_ptr()
    }

    /// Copies from it, from byte `offset` on.
    ///
    /// ```
    /// use unisono::{Rights, prelude::*};
    ///
    /// let world = World::join()?;
    /// let (region, mut word) = (world.allocate_region(64, Rights::WRITE)?, [1_u64]);
    /// region.read(8, &mut word)?;
    /// assert_eq!(word, [0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError::OutOfBounds`].
    pub fn read<T: FromBytes + IntoBytes>(&self, offset: usize, into: &mut [T]) -> Result<(), WindowError> {
        self.calls.make_progress(&self.communicator.shared, false);
        let _process = self.communicator.shared.lock();
        let loaded = self.memory.load(offset, into.as_mut_bytes());
        loaded.map_err(|_| WindowError::OutOfBounds(self.communicator.rank))
    }

    /// Copies to it, from byte `offset` on.
    ///
    /// ```
    /// use unisono::{Rights, prelude::*};
    ///
    /// let world = World::join()?;
    /// let region = world.allocate_region(64, Rights::READ)?;
    /// region.write(8, &[7_u64])?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError::OutOfBounds`].
    pub fn write<T: IntoBytes + Immutable>(&self, offset: usize, from: &[T]) -> Result<(), WindowError> {
        self.calls.make_progress(&self.communicator.shared, false);
        let _process = self.communicator.shared.lock();
        self.memory.store(offset, from.as_bytes()).map_err(|_| WindowError::OutOfBounds(self.communicator.rank))
    }

    /// Ends the access of others, and waits until nobody uses the memory (`ucp_mem_unmap`). Later requests are refused as
    /// [`Revoked`](WindowError::Revoked). A region that is dropped without it is revoked, too, and its memory is never
    /// used again.
    ///
    /// ```
    /// use unisono::{Rights, prelude::*};
    ///
    /// let world = World::join()?;
    /// let region = world.allocate_region(64, Rights::READ)?;
    /// let key = region.rkey();
    /// region.revoke()?;
    /// let refused = world.import_region(&key)?.get(&mut [0_u64], 0);
    /// assert_eq!(refused, Err(WindowError::Revoked(world.rank())));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The job has ended: [`WindowError::Failed`].
    pub fn revoke(mut self) -> Result<(), WindowError> {
        if let Some(key) = self.key.take() {
            conceal(&self.communicator, key)?;
        }
        drop(self.buffer.take());
        Ok(())
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.communicator.shared.with_process(|process| process.conceal(key));
        }
        // After an error, or without `revoke`, somebody may still use it.
        core::mem::forget(self.buffer.take());
    }
}

/// A region of a rank, which may be this one, as its key gives access to it. Ranks are those of the communicator over
/// which it was imported.
#[derive(Debug)]
pub struct RemoteRegion {
    targets: Targets,
    rank: Rank,
    bytes: usize,
}

impl Communicator {
    /// Allocates `bytes` zero bytes as a region. Not collective.
    ///
    /// ```
    /// use unisono::{Rights, prelude::*};
    ///
    /// let world = World::join()?;
    /// let region = world.allocate_region(64, Rights::READ | Rights::WRITE | Rights::ATOMIC)?;
    /// region.revoke()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError::Memory`]; [`WindowError::Register`]: this process has too many regions.
    pub fn allocate_region(&self, bytes: usize, rights: Rights) -> Result<Region, WindowError> {
        let mut buffer = Buffer::<u128>::new(None, bytes.div_ceil(size_of::<u128>()))?;
        let start = NonNull::from(&mut buffer[..]).cast();
        // SAFETY: the region keeps the buffer or has leaked it, and makes no reference to its elements.
        let mut region = unsafe { self.register_region(start, bytes, rights) }?;
        region.buffer = Some(buffer);
        Ok(region)
    }

    /// Makes `bytes` bytes of the caller's memory a region. Not collective.
    ///
    /// ```
    /// use unisono::{Rights, prelude::*};
    ///
    /// let world = World::join()?;
    /// let mut memory = vec![0_u64; 8];
    /// // SAFETY: the memory is not used otherwise before the region is revoked.
    /// let region =
    ///     unsafe { world.register_region(core::ptr::NonNull::from(&mut memory[..]).cast(), 64, Rights::WRITE) }?;
    /// world.import_region(&region.rkey())?.put(&[7_u64], 8)?;
    /// region.revoke()?;
    /// assert_eq!(memory[1], 7);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError::Register`]: this process has too many regions, or the region is too long.
    ///
    /// # Safety
    /// The memory stays valid, and no reference to it is used, until [`revoke`](Region::revoke) has returned without an
    /// error; if it returns one, or the region is dropped, as long as this process is in the job.
    pub unsafe fn register_region(
        &self,
        start: NonNull<u8>,
        bytes: usize,
        rights: Rights,
    ) -> Result<Region, WindowError> {
        // SAFETY: the caller promises that the memory stays valid and is not referred to.
        let memory = unsafe { WindowMemory::new(start, bytes) };
        let mut process = self.shared.lock();
        // SAFETY: the caller promises that the memory stays valid and is not referred to until the region is revoked.
        let key = unsafe { process.expose(memory, rights) }?;
        let native = process.remote_access.native.exposed(key).0;
        let (index, rank) = (key.index.into(), process.rank.0);
        drop(process);
        let rkey = RKey { key: key.key.0, bytes: bytes as u64, native, index, rank };
        Ok(Region {
            communicator: self.share(),
            memory,
            buffer: None,
            key: Some(key),
            rkey,
            calls: PollingCalls::default(),
        })
    }

    /// The region of a member that this key was made for (`ucp_ep_rkey_unpack`). No message is sent: whether the key is
    /// good, the first access shows.
    ///
    /// ```
    /// use unisono::{RKey, Rights, prelude::*};
    ///
    /// let world = World::join()?;
    /// let region = world.allocate_region(64, Rights::READ)?;
    /// let mut keys = vec![RKey::NONE; world.size() as usize];
    /// world.all_gather_into(&[region.rkey()], &mut keys[..])?;
    /// let regions = keys.iter().map(|key| world.import_region(key)).collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(regions[0].rank(), Rank(0));
    /// world.barrier()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure::UnknownRank`](crate::Failure::UnknownRank): the rank, in the job, is no member. [`WindowError::Revoked`]:
    /// these bytes are no key.
    pub fn import_region(&self, key: &RKey) -> Result<RemoteRegion, WindowError> {
        let there = Rank(key.rank);
        let rank = self.members.number(there).ok_or(crate::Failure::UnknownRank(there))?;
        // No region has the last index.
        let index = u16::try_from(key.index).ok().filter(|index| *index < u16::MAX);
        let (Some(index), Ok(bytes)) = (index, usize::try_from(key.bytes)) else {
            return Err(WindowError::Revoked(rank));
        };
        let region = CoreKey { index, key: RemoteKey(key.key) };
        let at = RemoteSpan { region, offset: 0 };
        let access = if rank == self.rank {
            Access::Keyed(at)
        } else {
            self.shared.lock().remote_access.native.learn(there.into(), region, NativeMemory(key.native));
            Access::Remote(there, at)
        };
        let targets = Targets::new(self.share(), Members::One(rank, Target { access, bytes }));
        Ok(RemoteRegion { targets, rank, bytes })
    }
}

impl RemoteRegion {
    /// The rank whose memory it is.
    ///
    /// ```
    /// use unisono::{Rights, prelude::*};
    ///
    /// let world = World::join()?;
    /// let region = world.allocate_region(64, Rights::READ)?;
    /// assert_eq!(world.import_region(&region.rkey())?.rank(), world.rank());
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn rank(&self) -> Rank {
        self.rank
    }

    /// Bytes of the region.
    ///
    /// ```
    /// use unisono::{Rights, prelude::*};
    ///
    /// let world = World::join()?;
    /// let region = world.allocate_region(64, Rights::READ)?;
    /// assert_eq!(world.import_region(&region.rkey())?.bytes(), 64);
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies `data` to it, from byte `offset` on, a slice or a [`View`](crate::collective::View). The data is copied
    /// first, and is there after the next [flush](Self::flush).
    ///
    /// ```
    /// use unisono::{Rights, prelude::*};
    ///
    /// let world = World::join()?;
    /// let region = world.allocate_region(64, Rights::WRITE)?;
    /// world.import_region(&region.rkey())?.put(&[7_u64], 8)?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`]; errors that the target reports are those of the flush.
    pub fn put<T: IntoBytes + Immutable>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        offset: usize,
    ) -> Result<(), WindowError> {
        self.targets.put(data, self.rank, offset)
    }

    /// Copies from it, from byte `offset` on, to a slice or a [`ViewMut`](crate::collective::ViewMut).
    ///
    /// ```
    /// use unisono::{Rights, prelude::*};
    ///
    /// let world = World::join()?;
    /// let (region, mut word) = (world.allocate_region(64, Rights::READ)?, [1_u64]);
    /// world.import_region(&region.rkey())?.get(&mut word, 8)?;
    /// assert_eq!(word, [0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn get<T: FromBytes + IntoBytes>(
        &self,
        into: &mut (impl AsViewMut<T> + ?Sized),
        offset: usize,
    ) -> Result<(), WindowError> {
        self.targets.get(into, self.rank, offset)
    }

    /// Combines its elements, from byte `offset` on, with `data`, each atomically. Done after the next
    /// [flush](Self::flush).
    ///
    /// ```
    /// use unisono::{Rights, prelude::*};
    ///
    /// let world = World::join()?;
    /// let region = world.allocate_region(64, Rights::ATOMIC)?;
    /// world.import_region(&region.rkey())?.accumulate(&[7_u64], 8, SystemOperation::sum())?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`]; errors that the target reports are those of the flush.
    pub fn accumulate<T: Element>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        offset: usize,
        operation: impl Into<AccumulateOperation>,
    ) -> Result<(), WindowError> {
        let update = operation.into().update(T::ELEMENT);
        self.targets.update(update, size_of::<T>(), &bytes_of_view(&data.as_view())?, None, self.rank, offset)
    }

    /// Combines one element atomically, and returns its old value.
    ///
    /// ```
    /// use unisono::{Rights, prelude::*};
    ///
    /// let world = World::join()?;
    /// let region = world.allocate_region(64, Rights::ATOMIC)?;
    /// let counter = world.import_region(&region.rkey())?;
    /// assert_eq!(counter.fetch_and_op(1_u64, 0, SystemOperation::sum())?, 0);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn fetch_and_op<T: Element>(
        &self,
        value: T,
        offset: usize,
        operation: impl Into<AccumulateOperation>,
    ) -> Result<T, WindowError> {
        self.targets.fetch_and_op(value, self.rank, offset, operation.into())
    }

    /// Stores `new` if the element equals `expected`, atomically, and returns its old value. Bytes are compared. The 4
    /// aligned bytes that an element of 1 or 2 bytes is among are in the region as well.
    ///
    /// ```
    /// use unisono::{Rights, prelude::*};
    ///
    /// let world = World::join()?;
    /// let region = world.allocate_region(64, Rights::ATOMIC)?;
    /// assert_eq!(world.import_region(&region.rkey())?.compare_and_swap(0_u64, 5, 0)?, 0);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`]; [`WindowError::Unsupported`] for elements of more than 8 bytes.
    pub fn compare_and_swap<T: Element>(&self, expected: T, new: T, offset: usize) -> Result<T, WindowError> {
        let words = [word_of(&expected), word_of(&new)];
        element_of(self.targets.compare_and_swap(words, size_of::<T>(), self.rank, offset)?)
    }

    /// As [`put`](Self::put), with a request that ends when the target has received the data.
    ///
    /// ```
    /// use unisono::{Rights, prelude::*};
    ///
    /// let world = World::join()?;
    /// let region = world.allocate_region(64, Rights::WRITE)?;
    /// world.import_region(&region.rkey())?.request_put(&[7_u64], 8)?.wait()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn request_put<T: IntoBytes + Immutable>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        offset: usize,
    ) -> Result<PutRequest<'_>, WindowError> {
        self.targets.request_put(data, self.rank, offset)
    }

    /// Starts to copy `count` elements from it, from byte `offset` on.
    ///
    /// ```
    /// use unisono::{Rights, prelude::*};
    ///
    /// let world = World::join()?;
    /// let region = world.allocate_region(64, Rights::READ)?;
    /// assert_eq!(world.import_region(&region.rkey())?.request_get::<u64>(1, 8)?.wait()?, [0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn request_get<T: FromBytes + IntoBytes>(
        &self,
        count: usize,
        offset: usize,
    ) -> Result<GetRequest<'_, T>, WindowError> {
        self.targets.request_get(count, self.rank, offset)
    }

    /// Waits until all puts and accumulates of this value are done at the target.
    ///
    /// ```
    /// use unisono::{Rights, prelude::*};
    ///
    /// let world = World::join()?;
    /// let (region, mut word) = (world.allocate_region(64, Rights::WRITE)?, [0_u64]);
    /// let there = world.import_region(&region.rkey())?;
    /// there.put(&[7_u64], 8)?;
    /// there.flush()?;
    /// region.read(8, &mut word)?;
    /// assert_eq!(word, [7]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The first error of an operation since the last flush.
    pub fn flush(&self) -> Result<(), WindowError> {
        self.targets.flush(self.rank)
    }
}

#[doc(hidden)]
impl RemoteRegion {
    /// As [`accumulate`](Self::accumulate), of elements whose type is known at run time. With `old`, waits for the old
    /// elements; it must be as long.
    ///
    /// # Errors
    /// As of [`Window::raw_update`](super::Window::raw_update).
    pub fn raw_update(
        &self,
        update: RawUpdate,
        bytes: &[u8],
        old: Option<&mut [u8]>,
        offset: usize,
    ) -> Result<(), WindowError> {
        self.targets.raw_update(update, bytes, old, self.rank, offset)
    }

    /// As [`Window::raw_compare_and_swap`](super::Window::raw_compare_and_swap).
    ///
    /// # Errors
    /// As [`compare_and_swap`](Self::compare_and_swap).
    pub fn raw_compare_and_swap(&self, words: [u64; 2], bytes: usize, offset: usize) -> Result<u64, WindowError> {
        self.targets.compare_and_swap(words, bytes, self.rank, offset)
    }
}
