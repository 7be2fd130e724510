//! Making windows: members publish how the others access their memory.

use core::ptr::NonNull;

use parking_lot::Mutex;
use unisono_core::ids::RemoteKey;
use unisono_core::rma::{RKey, RemoteSpan, Rights};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::memory::WindowMemory;
use super::targets::{Access, Members, Target, Targets};
use super::{Window, WindowError};
use crate::world::communicator::Communicator;
use crate::world::process::remote_access::NativeMemory;
use crate::world::request::Failure;
use crate::world::shm_transport::{AllocateError, Buffer};
use unisono_bootstrap::Rank;

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
        let mut window = Window {
            targets: Targets::new(communicator, Members::All(Vec::new())),
            locks: Vec::new(),
            memory: Some(memory),
            lock,
            own,
            bytes,
            keys: key.into_iter().collect(),
            started: Mutex::new(Vec::new()),
            posted: Mutex::new(Vec::new()),
        };
        let find = |(rank, published): (u32, &Published)| window.find(Rank(rank), published);
        let found = (0..).zip(&all).map(find).collect::<Result<Vec<_>, _>>()?;
        let (locks, members) = found.into_iter().unzip();
        (window.locks, window.targets.members) = (locks, Members::All(members));
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
        let exposed = unsafe { window.targets.communicator.shared.lock().expose(memory, rights) };
        let mut published = Published::NOTHING;
        if let Ok(RKey { index, key }) = exposed {
            window.keys.push(RKey { index, key });
            (published.bytes, published.key, published.index) = (bytes as u64, key.0, index.into());
            published.native =
                window.targets.communicator.shared.lock().remote_access.native.exposed(RKey { index, key }).0;
        }
        let mut all = vec![published; window.targets.communicator.size() as usize];
        window.targets.communicator.all_gather_into(&[published][..], &mut all[..])?;
        exposed?;
        let mut members = Vec::new();
        for (rank, published) in (0..).map(Rank).zip(&all) {
            let there = window.targets.communicator.world_rank(rank)?;
            let no_memory = WindowError::Memory(AllocateError::NoMemory { bytes: 0 });
            let region = published.region().ok_or(no_memory)?;
            let is_own = rank == window.targets.communicator.rank;
            let bytes = usize::try_from(published.bytes).ok().filter(|_| published.bytes != u64::MAX);
            let remote = Access::Remote(there, RemoteSpan { region, offset: 0 });
            let access = if is_own { Access::Own(memory) } else { remote };
            members.push(Target { access, bytes: bytes.ok_or(no_memory)? });
            if !is_own {
                window.targets.communicator.shared.lock().remote_access.native.learn(
                    there.into(),
                    region,
                    NativeMemory(published.native),
                );
            }
        }
        window.targets.members = Members::All(members);
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
    /// How the lock word and the memory of a member are accessed.
    fn find(&self, rank: Rank, published: &Published) -> Result<(Access, Target), WindowError> {
        let there = self.targets.communicator.world_rank(rank)?;
        let no_memory = WindowError::Memory(AllocateError::NoMemory { bytes: 0 });
        let bytes = usize::try_from(published.bytes).map_err(|_| no_memory)?;
        let all = bytes.checked_add(CONTROL).and_then(|all| all.checked_next_multiple_of(size_of::<u128>()));
        let all = all.ok_or(no_memory)?;
        let mut process = self.targets.communicator.shared.lock();
        let [lock, access] = if rank == self.targets.communicator.rank {
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
        Ok((lock, Target { access, bytes }))
    }
}
