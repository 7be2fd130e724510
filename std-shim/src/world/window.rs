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
mod dynamic;
mod epochs;
pub(super) mod memory;
mod place;
pub(super) mod raw;
mod request;
mod target_datatype;

use alloc::borrow::Cow;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering, fence};

use parking_lot::Mutex;
use unisono_core::ids::RemoteKey;
use unisono_core::rma::RmaError;
use unisono_core::rma::atomic::{AtomicKind, AtomicOperation};
use unisono_core::rma::header::ElementUpdate;
use unisono_core::rma::operation::RmaRequest;
use unisono_core::rma::region::Refusal;
use unisono_core::rma::stride::Stride;
use unisono_core::rma::{RKey, RemoteSpan, Rights};
use unisono_memory::memory_regions::RegisterError;
use zerocopy::{FromBytes, FromZeros as _, Immutable, IntoBytes};

use super::collective::{AsView, AsViewMut, CollectiveError, Element, SystemOperation, View, ViewMut};
use super::communicator::Communicator;
use super::communicator::create::CreateError;
use super::process::Process;
use super::process::remote_access::{CallEnd, CallMemory, CallResult, NativeMemory, StartError};
use super::progress::WaitFor;
use super::request::Failure;
use super::shm_transport::{AllocateError, Buffer};
use dynamic::Attachments;
use memory::{WindowMemory, width_of};
use place::Place;
use unisono_bootstrap::Rank;

pub use dynamic::ATTACHED_MAX;
pub use epochs::LockKind;
pub use memory::AccumulateOperation;
pub(super) use request::OneSided;
pub use request::{GetRequest, PutRequest};

/// Why an operation on a window failed. Ranks are those of the window's communicator.
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
    #[error("cannot register the memory of the window: {0}")]
    Register(RegisterError),
    /// The target failed, and may have received a part of the data.
    #[error("rank {0} failed, and may have received a part of what was put")]
    Partial(Rank),
    /// The target failed, and may have executed the update.
    #[error("rank {0} failed, and may have executed the update")]
    Unknown(Rank),
    /// The access reaches beyond the end of the target's window.
    #[error("the access reaches beyond the end of the window of rank {0}")]
    OutOfBounds(Rank),
    /// The address of an element that is updated is no multiple of its length.
    #[error("the element in the window of rank {0} is not aligned to its length")]
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
    /// The target has freed its window.
    #[error("the window of rank {0} is not accessible any more")]
    Revoked(Rank),
}

impl From<RegisterError> for WindowError {
    fn from(error: RegisterError) -> Self {
        Self::Register(error)
    }
}

/// How a member publishes its memory to the others.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Published {
    /// Offset in the node's segment; `u64::MAX`: not shared.
    shared: u64,
    bytes: u64,
    key: u64,
    index: u64,
    /// [`NativeMemory`].
    native: [u64; 2],
}

impl Published {
    /// A member without memory.
    const NOTHING: Self = Self { shared: NOT_SHARED, bytes: u64::MAX, key: 0, index: 0, native: NativeMemory::NONE.0 };

    /// Its region, if its index is valid.
    fn region(&self) -> Option<RKey> {
        Some(RKey { index: u16::try_from(self.index).ok()?, key: RemoteKey(self.key) })
    }
}

const NOT_SHARED: u64 = u64::MAX;
/// Bytes before the user's part of a window's memory: the lock words.
const CONTROL: usize = 64;

/// How the memory of a member is accessed.
#[derive(Clone, Copy, Debug)]
enum Access {
    /// It is this rank's own.
    Own(WindowMemory),
    /// This process maps it.
    Direct(WindowMemory),
    /// By requests to the rank in the job; the place where it begins there.
    Remote(Rank, RemoteSpan),
}

#[derive(Clone, Copy, Debug)]
struct Member {
    access: Access,
    /// Bytes of the user's part.
    bytes: usize,
    /// The lock word.
    lock: Access,
}

/// Memory of every member of a communicator that all of them access.
pub struct Window {
    communicator: Communicator,
    /// Its number in this process.
    number: u32,
    members: Vec<Member>,
    /// The memory of this rank; leaked if the window is not freed.
    memory: Option<Buffer<u128>>,
    /// The lock word, and the user's part.
    lock: WindowMemory,
    own: WindowMemory,
    bytes: usize,
    /// The keys under which remote members access it.
    keys: Vec<RKey>,
    /// The memory that this rank has attached, if the window is dynamic.
    attachments: Option<Attachments>,
    /// Calls that needed no progress of their own.
    calls: AtomicU32,
    /// Members that this rank has started an access epoch on, and exposed its memory to.
    started: Mutex<Vec<Rank>>,
    posted: Mutex<Vec<Rank>>,
}

impl fmt::Debug for Window {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Window").field("number", &self.number).field("members", &self.members).finish_non_exhaustive()
    }
}

impl Communicator {
    /// Allocates `bytes` zero bytes in each rank, a number that may differ between ranks, as a window
    /// (`MPI_Win_allocate`). Ranks of a node access it directly. Collective.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(64)?;
    /// assert_eq!((window.bytes(), window.communicator().size()), (64, world.size()));
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn allocate_window(&self, bytes: usize) -> Result<Window, WindowError> {
        let communicator = self.duplicate()?;
        // A rank without memory takes part in the exchange, so that nobody waits for it.
        let memory = bytes.checked_add(CONTROL).ok_or(AllocateError::TooLong);
        let memory = memory.and_then(|all| communicator.allocate::<u128>(all.div_ceil(size_of::<u128>())));
        let prepared = memory.map_err(WindowError::from).and_then(|memory| Exposed::new(&communicator, memory, bytes));
        let published = prepared.as_ref().map_or(Published::NOTHING, |exposed| exposed.published);
        let mut all = vec![Published::NOTHING; communicator.size() as usize];
        communicator.all_gather_into(&[published][..], &mut all[..])?;
        let Exposed { memory, own, key, .. } = prepared?;
        let (lock, own) = own.split(CONTROL);
        let number = communicator.shared.lock().remote_access.next_window();
        let mut window = Window {
            communicator,
            number,
            members: Vec::new(),
            memory: Some(memory),
            lock,
            own,
            bytes,
            keys: key.into_iter().collect(),
            attachments: None,
            calls: AtomicU32::new(0),
            started: Mutex::new(Vec::new()),
            posted: Mutex::new(Vec::new()),
        };
        let find = |(rank, published): (u32, &Published)| window.find(Rank(rank), published);
        window.members = (0..).zip(&all).map(find).collect::<Result<_, _>>()?;
        Ok(window)
    }
}

impl Communicator {
    /// Makes a window of `bytes` bytes of the caller's memory in each rank (`MPI_Win_create`). All other ranks access it
    /// by requests, those of the same node through shared memory. Collective.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut memory = vec![0_u64; 8];
    /// // SAFETY: the memory is not used otherwise before the window is freed.
    /// let window = unsafe { world.create_window(core::ptr::NonNull::from(&mut memory[..]).cast(), 64) }?;
    /// window.put(&[7_u64], world.rank(), 8)?;
    /// window.free()?;
    /// assert_eq!(memory[1], 7);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`]; then nobody accesses the memory.
    ///
    /// # Safety
    /// The memory stays valid, and no reference to it is used, until [`free`](Window::free) has returned without an
    /// error; if it returns one, or the window is dropped, as long as this process is in the job.
    pub unsafe fn create_window(&self, start: NonNull<u8>, bytes: usize) -> Result<Window, WindowError> {
        // Its control words, and a communicator.
        let mut window = self.allocate_window(0)?;
        // SAFETY: the caller promises that the memory stays valid and is not referred to.
        let memory = unsafe { WindowMemory::new(start, bytes) };
        let rights = Rights::READ | Rights::WRITE | Rights::ATOMIC;
        // SAFETY: the caller promises that the memory stays valid and is not referred to until the window is freed.
        let exposed = unsafe { window.communicator.shared.lock().expose(memory, rights) };
        let mut published = Published::NOTHING;
        if let Ok(RKey { index, key }) = exposed {
            window.keys.push(RKey { index, key });
            (published.bytes, published.key, published.index) = (bytes as u64, key.0, index.into());
            published.native = window.communicator.shared.lock().remote_access.native.exposed(RKey { index, key }).0;
        }
        let mut all = vec![published; window.communicator.size() as usize];
        window.communicator.all_gather_into(&[published][..], &mut all[..])?;
        exposed?;
        for (rank, published) in (0..).map(Rank).zip(&all) {
            let there = window.communicator.world_rank(rank)?;
            let no_memory = WindowError::Memory(AllocateError::NoMemory { bytes: 0 });
            let region = published.region().ok_or(no_memory)?;
            let is_own = rank == window.communicator.rank;
            let member = window.members.get_mut(rank.0 as usize).ok_or(no_memory)?;
            member.bytes =
                usize::try_from(published.bytes).ok().filter(|_| published.bytes != u64::MAX).ok_or(no_memory)?;
            let remote = Access::Remote(there, RemoteSpan { region, offset: 0 });
            member.access = if is_own { Access::Own(memory) } else { remote };
            if !is_own {
                window.communicator.shared.lock().remote_access.native.learn(
                    there.into(),
                    region,
                    NativeMemory(published.native),
                );
            }
        }
        (window.own, window.bytes) = (memory, bytes);
        Ok(window)
    }
}

/// Memory of this rank that is ready for the other members.
struct Exposed {
    memory: Buffer<u128>,
    own: WindowMemory,
    key: Option<RKey>,
    published: Published,
}

impl Exposed {
    fn new(communicator: &Communicator, mut memory: Buffer<u128>, bytes: usize) -> Result<Self, WindowError> {
        let start = NonNull::from(&mut memory[..]).cast();
        // SAFETY: the buffer is kept by the window, or leaked, and the window makes no reference to its elements.
        let own = unsafe { WindowMemory::new(start, memory.len() * size_of::<u128>()) };
        let mut process = communicator.shared.lock();
        let shared = process.transport.shm.as_ref().and_then(|shm| shm.pool.offset(start, own.bytes()));
        let is_remote = |rank: Rank| rank != process.rank && !process.is_shm_peer(rank.into());
        let key = if communicator.members.iter().any(is_remote) {
            // SAFETY: the window keeps the buffer or has leaked it, makes no reference to its elements, and gives the
            // memory back only after its region was concealed.
            Some(unsafe { process.expose(own, Rights::READ | Rights::WRITE | Rights::ATOMIC) }?)
        } else {
            None
        };
        let published = Published {
            shared: shared.unwrap_or(NOT_SHARED),
            bytes: bytes as u64,
            key: key.map_or(0, |key| key.key.0),
            index: key.map_or(0, |key| key.index.into()),
            native: key.map_or(NativeMemory::NONE, |key| process.remote_access.native.exposed(key)).0,
        };
        Ok(Self { memory, own, key, published })
    }
}

impl Window {
    /// How the memory of a member is accessed.
    fn find(&self, rank: Rank, published: &Published) -> Result<Member, WindowError> {
        let there = self.communicator.world_rank(rank)?;
        let no_memory = WindowError::Memory(AllocateError::NoMemory { bytes: 0 });
        let bytes = usize::try_from(published.bytes).map_err(|_| no_memory)?;
        let all = bytes.checked_add(CONTROL).and_then(|all| all.checked_next_multiple_of(size_of::<u128>()));
        let all = all.ok_or(no_memory)?;
        let mut process = self.communicator.shared.lock();
        let [lock, access] = if rank == self.communicator.rank {
            [Access::Own(self.lock), Access::Own(self.own)]
        } else if let Some(shm) = &process.transport.shm
            && let Some(peer) = shm.peer(there.into())
        {
            let area = shm.node.layout().in_pool(peer.local, published.shared, all);
            let cells = area.and_then(|area| shm.segment().shared_bytes(area.offset, area.bytes));
            let cells = cells.ok_or(Failure::Corrupted(rank))?;
            // SAFETY: a piece of the other rank's pool, which stays mapped as long as the communicator that this window
            // holds; this process makes no reference to pools of others.
            let memory = unsafe { WindowMemory::new(cells.start(), cells.bytes()) };
            let (lock, own) = memory.split(CONTROL);
            [Access::Direct(lock), Access::Direct(own)]
        } else {
            let region = published.region().ok_or(no_memory)?;
            process.remote_access.native.learn(there.into(), region, NativeMemory(published.native));
            [0, CONTROL as u64].map(|offset| Access::Remote(there, RemoteSpan { region, offset }))
        };
        Ok(Member { access, bytes, lock })
    }

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
        &self.communicator
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
        self.member(rank).map(|member| member.bytes)
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
        self.member(rank).is_ok_and(|member| !matches!(member.access, Access::Remote(..)))
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
        match self.member(rank).ok()?.access {
            Access::Own(memory) | Access::Direct(memory) => Some(memory.start().as_ptr()),
            Access::Remote(..) => None,
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
        self.get(into, self.communicator.rank, offset)
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
        self.put(from, self.communicator.rank, offset)
    }

    /// Copies `data` to the memory of a rank, from byte `offset` on (`MPI_Put`): a slice, or the elements of a
    /// [`View`](crate::collective::View), one after the other. They are there after the next flush.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(8)?;
    /// let next = Rank((world.rank().0 + 1) % world.size());
    /// window.put(&[world.rank().0], next, 0)?;
    /// window.fence()?;
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`]; errors that the target reports are those of the flush.
    pub fn put<T: IntoBytes + Immutable>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        target: Rank,
        offset: usize,
    ) -> Result<(), WindowError> {
        self.put_view(&data.as_view(), target, offset, CallEnd::Flush).map(|_| ())
    }

    fn put_view<T: IntoBytes + Immutable>(
        &self,
        data: &View<'_, T>,
        target: Rank,
        offset: usize,
        end: CallEnd,
    ) -> Result<Vec<u32>, WindowError> {
        self.start_put(&bytes_of_view(data)?, target, offset, end)
    }

    /// Copies from the memory of a rank, from byte `offset` on (`MPI_Get`, and a flush of it), to a slice, or to the
    /// elements of a [`ViewMut`](crate::collective::ViewMut).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (window, mut word) = (world.allocate_window(8)?, [1_u64]);
    /// window.get(&mut word, Rank(0), 0)?;
    /// assert_eq!(word, [0]);
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn get<T: FromBytes + IntoBytes>(
        &self,
        into: &mut (impl AsViewMut<T> + ?Sized),
        target: Rank,
        offset: usize,
    ) -> Result<(), WindowError> {
        fill_view(into.as_view_mut(), |bytes| self.get_bytes(bytes, target, offset))
    }

    fn get_bytes(&self, into: &mut [u8], target: Rank, offset: usize) -> Result<(), WindowError> {
        let places = self.places(target, offset, into.len(), 1)?;
        let mut rest = into;
        for Place { access, offset, bytes } in places {
            let into = rest.split_off_mut(..bytes).unwrap_or_default();
            if !matches!(access, Access::Remote(..)) {
                self.make_progress(false);
            }
            match access {
                Access::Own(memory) => self.locked(|| memory.load(offset, into), target)?,
                Access::Direct(memory) => of(memory.load(offset, into), target)?,
                Access::Remote(there, key) => {
                    let step = self.communicator.shared.lock().read_limit(there);
                    for (i, part) in (0..).zip(into.chunks_mut(step)) {
                        self.get_remote(part, target, there, remote_span(key, offset + i * step))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Combines the elements in the memory of a rank, from byte `offset` on, with `data`, each atomically
    /// (`MPI_Accumulate`). Done after the next flush. Accumulates of one rank on the same elements are executed in
    /// order.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (window, mut sum) = (world.allocate_window(8)?, [0_u64]);
    /// window.accumulate(&[1_u64], Rank(0), 0, SystemOperation::sum())?;
    /// window.fence()?;
    /// window.get(&mut sum, Rank(0), 0)?;
    /// assert_eq!(sum, [u64::from(world.size())]);
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`]; errors that the target reports are those of the flush.
    pub fn accumulate<T: Element>(
        &self,
        data: &[T],
        target: Rank,
        offset: usize,
        operation: impl Into<AccumulateOperation>,
    ) -> Result<(), WindowError> {
        let update = operation.into().update(T::ELEMENT);
        self.update(update, size_of::<T>(), data.as_bytes(), None, target, offset)
    }

    /// As [`accumulate`](Self::accumulate), and returns the old elements in `result`, as many as `data` has
    /// (`MPI_Get_accumulate`, and a flush of it).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (window, mut old) = (world.allocate_window(16)?, [9_u64; 2]);
    /// window.get_accumulate(&[1_u64, 2], &mut old, world.rank(), 0, AccumulateOperation::Replace)?;
    /// assert_eq!(old, [0, 0]);
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`]; [`WindowError::Unsupported`] if the lengths differ.
    pub fn get_accumulate<T: Element>(
        &self,
        data: &[T],
        result: &mut [T],
        target: Rank,
        offset: usize,
        operation: impl Into<AccumulateOperation>,
    ) -> Result<(), WindowError> {
        if data.len() != result.len() {
            return Err(WindowError::Unsupported);
        }
        let update = operation.into().update(T::ELEMENT);
        self.update(update, size_of::<T>(), data.as_bytes(), Some(result.as_mut_bytes()), target, offset)
    }

    /// Combines elements of `grain` bytes; with `old`, waits for the old ones.
    fn update(
        &self,
        update: ElementUpdate,
        grain: usize,
        mut bytes: &[u8],
        mut old: Option<&mut [u8]>,
        target: Rank,
        offset: usize,
    ) -> Result<(), WindowError> {
        for place in self.places(target, offset, bytes.len(), grain)? {
            let part = bytes.split_off(..place.bytes).unwrap_or_default();
            let old = old.as_mut().map(|old| old.split_off_mut(..place.bytes).unwrap_or_default());
            self.update_place(update, grain, part, old, target, place)?;
        }
        Ok(())
    }

    /// As [`update`](Self::update), of the elements at one place.
    fn update_place(
        &self,
        update: ElementUpdate,
        grain: usize,
        bytes: &[u8],
        old: Option<&mut [u8]>,
        target: Rank,
        Place { access, offset, .. }: Place,
    ) -> Result<(), WindowError> {
        if old.is_some() && !matches!(access, Access::Remote(..)) {
            self.make_progress(false);
        }
        let (there, key) = match access {
            Access::Own(memory) => return self.locked(|| memory.combine_from(offset, update, bytes, old), target),
            Access::Direct(memory) => return of(memory.combine_from(offset, update, bytes, old), target),
            Access::Remote(there, key) => (there, key),
        };
        let step = self.step(grain, there)?;
        let parts = (0..).map(|i| remote_span(key, offset + i * step)).zip(bytes.chunks(step));
        match old {
            Some(old) => {
                for ((at, part), into) in parts.zip(old.chunks_mut(step)) {
                    self.fetch_remote(part, into, target, there, at, update, None)?;
                }
            }
            None => {
                for (at, part) in parts {
                    let request = |from| RmaRequest::Accumulate { from, update, result: None, stride: None };
                    self.start(there, at, part, CallEnd::Flush, request)?;
                }
            }
        }
        Ok(())
    }

    /// Combines one element atomically, and returns its old value (`MPI_Fetch_and_op`, and a flush of it).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(8)?;
    /// let ticket = window.fetch_and_op(1_u64, Rank(0), 0, SystemOperation::sum())?;
    /// assert!(ticket < u64::from(world.size()));
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn fetch_and_op<T: Element>(
        &self,
        value: T,
        target: Rank,
        offset: usize,
        operation: impl Into<AccumulateOperation>,
    ) -> Result<T, WindowError> {
        let (operation, bytes) = (operation.into(), size_of::<T>());
        let is_integer = T::ELEMENT as u8 <= unisono_shmem::reduction_ops::Element::U64 as u8;
        let kind = match operation {
            AccumulateOperation::Replace => Some(AtomicKind::Swap { swap: word_of(&value), mask: u64::MAX }),
            AccumulateOperation::NoOp => Some(AtomicKind::FetchAdd { add: 0, boundaries: 0 }),
            AccumulateOperation::Reduce(sum) if is_integer && sum == SystemOperation::sum() => {
                Some(AtomicKind::FetchAdd { add: word_of(&value), boundaries: 0 })
            }
            AccumulateOperation::Reduce(_) => None,
        };
        if let (Some(kind), Some(width)) = (kind, width_of(bytes)) {
            let old = self.atomic(target, offset, AtomicOperation { width, kind })?;
            return element_of(old);
        }
        let mut old = [value];
        self.get_accumulate(&[value], &mut old, target, offset, operation)?;
        let [old] = old;
        Ok(old)
    }

    /// Stores `new` if the element equals `expected`, atomically, and returns its old value (`MPI_Compare_and_swap`,
    /// and a flush of it). Bytes are compared.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(8)?;
    /// assert_eq!(window.compare_and_swap(0_u64, 5, world.rank(), 0)?, 0);
    /// assert_eq!(window.compare_and_swap(0_u64, 6, world.rank(), 0)?, 5);
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`]; [`WindowError::Unsupported`] for elements of more than 8 bytes.
    pub fn compare_and_swap<T: Element>(
        &self,
        expected: T,
        new: T,
        target: Rank,
        offset: usize,
    ) -> Result<T, WindowError> {
        let (bytes, compare, swap) = (size_of::<T>(), word_of(&expected), word_of(&new));
        if let Some(width) = width_of(bytes) {
            let kind = AtomicKind::CompareSwap { compare, swap };
            return element_of(self.atomic(target, offset, AtomicOperation { width, kind })?);
        }
        if bytes > 2 {
            return Err(WindowError::Unsupported);
        }
        if !offset.is_multiple_of(bytes) {
            return Err(WindowError::Misaligned(target));
        }
        let (access, offset) = self.access(target, offset, bytes)?;
        // A part of a word: the memory of a window is a whole number of words.
        let (shift, first) = (8 * (offset & 3), offset & !3);
        let mask = if bytes == 1 { 0xff } else { 0xffff } << shift;
        let (compare, swap) = (compare << shift, swap << shift);
        let kind = AtomicKind::MaskedCompareSwap { compare, swap, compare_mask: mask, swap_mask: mask };
        let width = unisono_core::rma::atomic::Width::Bits32;
        element_of(self.atomic_at(target, access, first, AtomicOperation { width, kind })? >> shift)
    }

    fn atomic(&self, target: Rank, offset: usize, operation: AtomicOperation) -> Result<u64, WindowError> {
        let (access, offset) = self.access(target, offset, operation.width.bytes().into())?;
        self.atomic_at(target, access, offset, operation)
    }

    /// Updates a word that begins inside the window.
    fn atomic_at(
        &self,
        target: Rank,
        access: Access,
        offset: usize,
        operation: AtomicOperation,
    ) -> Result<u64, WindowError> {
        match access {
            Access::Own(memory) | Access::Direct(memory) => {
                self.make_progress(false);
                of(memory.atomic(offset, operation), target)
            }
            Access::Remote(there, key) => {
                let at = remote_span(key, offset);
                let request = RmaRequest::Atomic(operation);
                let started = self.start_when_room(there, |process| {
                    process.start_remote(self.number, there, at, request, CallMemory::Nothing, CallEnd::Request)
                })?;
                self.wait(started, target, there)
            }
        }
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
        match self.member(target)?.access {
            Access::Own(_) | Access::Direct(_) => {
                fence(Ordering::SeqCst);
                self.make_progress(true);
                Ok(())
            }
            Access::Remote(there, key) => self.flush_remote(target, there, key),
        }
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
        self.make_progress(true);
        let used = self.communicator.shared.lock().remote_access.used_targets(self.number);
        let mut first = Ok(());
        for there in used {
            if let Some(target) = self.communicator.members.number(there) {
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
        self.make_progress(true);
        self.member(target).map(|_| ())
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
        self.make_progress(true);
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
        self.communicator.barrier()?;
        // Nobody accesses it any more.
        self.keys.extend(self.attachments.iter_mut().flat_map(Attachments::take_keys));
        while let Some(key) = self.keys.pop() {
            if self.conceal(key).is_err() {
                return flushed;
            }
        }
        self.attachments.iter_mut().for_each(Attachments::free);
        drop(self.memory.take());
        flushed
    }

    fn member(&self, rank: Rank) -> Result<&Member, WindowError> {
        self.members.get(rank.0 as usize).ok_or(WindowError::Failed(Failure::UnknownRank(rank)))
    }

    /// Makes progress in a call that needs none, since this rank may poll memory by such calls: each time if a call
    /// `completes` others and other ranks may ask for memory of this one, else now and then.
    pub(super) fn make_progress(&self, completes: bool) {
        let calls = self.calls.load(Ordering::Relaxed).wrapping_add(1);
        self.calls.store(calls, Ordering::Relaxed);
        let is_due = calls.is_multiple_of(CALLS_PER_ROUND);
        if completes || is_due {
            let shared = &self.communicator.shared;
            let mut process = shared.lock();
            if is_due || process.remote_access.is_exposed() {
                shared.progress(&mut process);
            }
        }
    }

    /// Accesses this rank's own memory while the endpoint does not.
    fn locked(&self, what: impl FnOnce() -> Result<(), Refusal>, rank: Rank) -> Result<(), WindowError> {
        let _process = self.communicator.shared.lock();
        of(what(), rank)
    }

    /// Bytes of the longest accumulate of elements of `grain` bytes in one request.
    fn step(&self, grain: usize, there: Rank) -> Result<usize, WindowError> {
        let room = self.communicator.shared.lock().remote_room(there, false);
        let step = room.checked_div(grain).unwrap_or(0) * grain;
        // A rank that is gone has no room: the start of an operation reports why.
        Ok(if step == 0 { grain.max(1) } else { step })
    }

    fn start_put(&self, mut from: &[u8], target: Rank, offset: usize, end: CallEnd) -> Result<Vec<u32>, WindowError> {
        let mut parts = Vec::new();
        for Place { access, offset, bytes } in self.places(target, offset, from.len(), 1)? {
            let bytes = from.split_off(..bytes).unwrap_or_default();
            match access {
                Access::Own(memory) => self.locked(|| memory.store(offset, bytes), target)?,
                Access::Direct(memory) => of(memory.store(offset, bytes), target)?,
                Access::Remote(there, key) => {
                    for (i, part) in (0..).zip(bytes.chunks(PART)) {
                        let (at, request) =
                            (remote_span(key, offset + i * PART), |from| RmaRequest::Write { from, immediate: None });
                        parts.push(self.start(there, at, part, end, request)?);
                    }
                }
            }
        }
        Ok(parts)
    }

    /// Starts an operation that sends a copy of `bytes`.
    fn start(
        &self,
        there: Rank,
        at: RemoteSpan,
        bytes: &[u8],
        end: CallEnd,
        request: impl Fn(unisono_core::span::Span) -> RmaRequest,
    ) -> Result<u32, WindowError> {
        self.start_when_room(there, |process| {
            let (memory, span) =
                process.copy_for_remote(bytes).ok_or(StartError::Failed(Failure::ResourceExhausted))?;
            let started = process.start_remote(self.number, there, at, request(span), memory, end);
            if started.is_err() {
                process.release_call_memory(memory);
            }
            started
        })
    }

    /// Starts an operation, after progress if there is no room.
    fn start_when_room(
        &self,
        there: Rank,
        mut start: impl FnMut(&mut Process) -> Result<u32, StartError>,
    ) -> Result<u32, WindowError> {
        let shared = &self.communicator.shared;
        let started = shared.wait_until(WaitFor::Rank(there), |process| match start(process) {
            Err(StartError::Full) => None,
            Err(StartError::Failed(failure)) => Some(Err(failure)),
            Ok(request) => Some(Ok(request)),
        });
        Ok(started.map_err(|failure| self.communicator.local_failure(failure))?)
    }

    /// Waits for an operation.
    fn wait(&self, request: u32, target: Rank, there: Rank) -> Result<u64, WindowError> {
        let ended = self.communicator.shared.wait_until(WaitFor::Rank(there), |process| process.take_remote(request));
        self.result(ended, target)
    }

    fn result(&self, ended: CallResult, target: Rank) -> Result<u64, WindowError> {
        ended.map_err(|failure| self.communicator.local_failure(failure))?.map_err(|error| self.error(error, target))
    }

    /// As [`result`](Self::result), for the holder of the lock.
    fn result_locked(&self, process: &Process, ended: CallResult, target: Rank) -> Result<u64, WindowError> {
        let local = |failure| self.communicator.local_failure_locked(process, failure);
        ended.map_err(local)?.map_err(|error| self.error(error, target))
    }

    fn error(&self, error: RmaError, target: Rank) -> WindowError {
        match error {
            RmaError::PeerFailed | RmaError::Truncated => WindowError::Failed(Failure::PeerFailed(target)),
            RmaError::Partial => WindowError::Partial(target),
            RmaError::Unknown => WindowError::Unknown(target),
            RmaError::Refused(reason) | RmaError::RefusedEarlier { reason, .. } => refused(reason, target),
        }
    }

    fn get_remote(&self, into: &mut [u8], target: Rank, there: Rank, at: RemoteSpan) -> Result<(), WindowError> {
        let started = self.start_when_room(there, |process| {
            // SAFETY: the buffer is borrowed until `wait` has returned.
            let span = unsafe { process.register_for_remote(into) };
            let span = span.ok_or(StartError::Failed(Failure::ResourceExhausted))?;
            let memory = CallMemory::User(span.region, None);
            let request = RmaRequest::Read { into: span, stride: None };
            let started = process.start_remote(self.number, there, at, request, memory, CallEnd::Request);
            if started.is_err() {
                process.release_call_memory(memory);
            }
            started
        })?;
        self.wait(started, target, there).map(|_| ())
    }

    fn fetch_remote(
        &self,
        bytes: &[u8],
        into: &mut [u8],
        target: Rank,
        there: Rank,
        at: RemoteSpan,
        update: ElementUpdate,
        stride: Option<Stride>,
    ) -> Result<(), WindowError> {
        let started = self.start_when_room(there, |process| {
            let exhausted = StartError::Failed(Failure::ResourceExhausted);
            let (cell, from) = match process.copy_for_remote(bytes).ok_or(exhausted)? {
                (CallMemory::Cell(cell), from) => (cell, from),
                (memory, _) => {
                    // All bounce buffers are in use.
                    process.release_call_memory(memory);
                    return Err(StartError::Full);
                }
            };
            // SAFETY: the buffer is borrowed until `wait` has returned.
            let Some(span) = (unsafe { process.register_for_remote(into) }) else {
                process.release_call_memory(CallMemory::Cell(cell));
                return Err(exhausted);
            };
            let memory = CallMemory::User(span.region, Some(cell));
            let request = RmaRequest::Accumulate { from, update, result: Some(span), stride };
            let started = process.start_remote(self.number, there, at, request, memory, CallEnd::Request);
            if started.is_err() {
                process.release_call_memory(memory);
            }
            started
        })?;
        self.wait(started, target, there).map(|_| ())
    }

    pub(super) fn flush_remote(&self, target: Rank, there: Rank, base: RemoteSpan) -> Result<(), WindowError> {
        let shared = &self.communicator.shared;
        let (has_written, is_pending) = shared.lock().flush_state(self.number, there);
        if !has_written && !is_pending {
            self.make_progress(true);
        }
        if has_written {
            let started = self.start_when_room(there, |process| {
                process.begin_flush(self.number, there);
                process.start_remote(self.number, there, base, RmaRequest::Flush, CallMemory::Nothing, CallEnd::Request)
            })?;
            self.wait(started, target, there)?;
        }
        let error = shared.wait_until(WaitFor::Rank(there), |process| {
            let (_, is_pending) = process.flush_state(self.number, there);
            (!is_pending).then(|| (process.take_flush_error(self.number, there), process.aborted))
        });
        match error {
            (_, Some(failure)) => Err(self.communicator.local_failure(failure).into()),
            (Some(error), None) => Err(self.error(error, target)),
            (None, None) => Ok(()),
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let attached = self.attachments.iter_mut().flat_map(Attachments::take_keys);
        for key in self.keys.drain(..).chain(attached) {
            self.communicator.shared.with_process(|process| process.conceal(key));
        }
        let mut process = self.communicator.shared.lock();
        process.remote_access.forget_window(self.number);
        for member in &self.members {
            for access in [member.access, member.lock] {
                if let Access::Remote(there, RemoteSpan { region, .. }) = access {
                    process.remote_access.native.forget(there.into(), region);
                }
            }
        }
        drop(process);
        // Other members may still access it.
        core::mem::forget(self.memory.take());
    }
}

/// Calls that need no progress per round of progress that they make.
const CALLS_PER_ROUND: u32 = 64;
/// Bytes of one operation: a longer put or get is several.
const PART: usize = 1 << 30;

/// A place in the user's part of a window, which begins at `base`.
/// The bytes of a view without the gaps: a copy if there are any.
fn bytes_of_view<'d, T: IntoBytes + Immutable>(data: &View<'d, T>) -> Result<Cow<'d, [u8]>, WindowError> {
    match data.dense() {
        Some(bytes) => Ok(bytes.into()),
        None => Ok(data.packed().ok_or(Failure::ResourceExhausted)?.into()),
    }
}

/// Fills the elements of a view: `get` fills their bytes without the gaps.
fn fill_view<T: FromBytes + IntoBytes>(
    mut into: ViewMut<'_, T>,
    get: impl FnOnce(&mut [u8]) -> Result<(), WindowError>,
) -> Result<(), WindowError> {
    if let Some(bytes) = into.dense() {
        return get(bytes);
    }
    let mut packed = u8::new_vec_zeroed(into.packed_bytes()).map_err(|_| Failure::ResourceExhausted)?;
    get(&mut packed)?;
    into.unpack(&packed);
    Ok(())
}

const fn remote_span(base: RemoteSpan, offset: usize) -> RemoteSpan {
    RemoteSpan { region: base.region, offset: base.offset.wrapping_add(offset as u64) }
}

const fn refused(reason: Refusal, target: Rank) -> WindowError {
    match reason {
        Refusal::OutOfBounds => WindowError::OutOfBounds(target),
        Refusal::Misaligned => WindowError::Misaligned(target),
        Refusal::Unsupported => WindowError::Unsupported,
        Refusal::BadKey | Refusal::Revoked | Refusal::NoRight => WindowError::Revoked(target),
    }
}

fn of<R>(result: Result<R, Refusal>, target: Rank) -> Result<R, WindowError> {
    result.map_err(|reason| refused(reason, target))
}

/// The bytes of an element of at most 8 bytes, zero-extended.
fn word_of<T: IntoBytes + Immutable>(value: &T) -> u64 {
    let mut word = [0; 8];
    word.iter_mut().zip(value.as_bytes()).for_each(|(into, byte)| *into = *byte);
    u64::from_le_bytes(word)
}

fn element_of<T: FromBytes>(word: u64) -> Result<T, WindowError> {
    let bytes = word.to_le_bytes();
    let bytes = bytes.get(..size_of::<T>()).ok_or(WindowError::Unsupported)?;
    T::read_from_bytes(bytes).map_err(|_| WindowError::Unsupported)
}
