//! Joining and finishing, communicators, progress and counters.

use alloc::sync::Arc;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::NonNull;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::ffi::OsStrExt as _;

use parking_lot::Mutex;
use unisono::collective::View;
use unisono::{
    Buffer, Cartesian, Communicator, EventSource, Graph, Neighbourhood, OpenScope, Rank, Scope, SendBuffer, Settings,
    SplitType, Tag, World,
};
use unisono_core::device::TxReason;

use crate::datatype::{check, list, store};
use crate::fork;
use crate::handle::{Kind, Table};
use crate::result::unisono_result::{self, UNISONO_ERROR_JOIN, UNISONO_ERROR_RESOURCES, UNISONO_ERROR_UNDER_WAY};
use crate::result::{Error, call};

/// A communicator: a group of ranks, numbered from 0 on.
#[allow(non_camel_case_types, reason = "a name of C")]
pub type unisono_communicator = u64;

/// No communicator.
pub const UNISONO_COMMUNICATOR_NULL: unisono_communicator = 0;

/// A communicator with a scope for its requests. Requests hold it, so that it outlives them.
pub(crate) struct Member {
    /// Dropped first: it refers to the communicator.
    buffer: Mutex<Option<SendBuffer<'static>>>,
    /// Dropped next: the scope refers to the communicator.
    scope: OpenScope<'static>,
    owner: Owner,
    events: Mutex<Option<EventSource>>,
}

pub(crate) enum Owner {
    World(Box<World>),
    Communicator(Box<Communicator>),
    Cartesian(Box<Cartesian>),
    Graph(Box<Graph>),
}

impl Owner {
    fn communicator(&self) -> &Communicator {
        match self {
            Self::World(world) => world,
            Self::Communicator(communicator) => communicator,
            Self::Cartesian(grid) => grid.communicator(),
            Self::Graph(graph) => graph.communicator(),
        }
    }
}

static COMMUNICATORS: Table<Arc<Member>> = Table::new(Kind::Communicator);

impl Member {
    pub(crate) fn insert(owner: Owner) -> u64 {
        let communicator: *const Communicator = owner.communicator();
        // SAFETY: a lifetime only: the communicator is in a box, which the member drops after the scope.
        let scope = unsafe { &*communicator }.open_scope();
        COMMUNICATORS.insert(Arc::new(Self { buffer: Mutex::new(None), scope, owner, events: Mutex::new(None) }))
    }

    /// The communicator.
    pub(crate) fn communicator(&self) -> &Communicator {
        self.owner.communicator()
    }

    /// The grid whose points the ranks are.
    pub(crate) fn cartesian(&self) -> Result<&Cartesian, Error> {
        match &self.owner {
            Owner::Cartesian(grid) => Ok(grid),
            _ => Err(Error::argument("the ranks of the communicator are not the points of a grid")),
        }
    }

    /// The neighbours of this rank.
    ///
    /// # Safety
    /// As of [`scope`](Self::scope).
    pub(crate) unsafe fn neighbourhood(&self) -> Result<&'static Neighbourhood, Error> {
        let found: &Neighbourhood = match &self.owner {
            Owner::Cartesian(grid) => grid,
            Owner::Graph(graph) => graph,
            _ => {
                return Err(Error::argument("the communicator is no grid or graph: its ranks have no neighbours"));
            }
        };
        // SAFETY: a lifetime only: it is in a box, which the member drops after what was started.
        Ok(unsafe { &*core::ptr::from_ref(found) })
    }

    /// The scope in which requests are started.
    ///
    /// # Safety
    /// The requests are dropped before this member.
    pub(crate) unsafe fn scope(&self) -> &'static Scope<'static, 'static> {
        // SAFETY: what is started holds the member, and the member drops its scope, which waits for what is left.
        unsafe { self.scope.scope() }
    }

    /// Attaches a buffer for buffered sends.
    ///
    /// # Safety
    /// The memory is this member's until `detach_buffer`, or until this is dropped.
    pub(crate) unsafe fn attach_buffer(&self, memory: NonNull<[u8]>) -> Result<(), Error> {
        let mut buffer = self.buffer.lock();
        if buffer.is_some() {
            return Err(Error::new(UNISONO_ERROR_UNDER_WAY, "the communicator has a buffer: detach that first"));
        }
        let communicator: *const Communicator = self.communicator();
        // SAFETY: a lifetime only: the communicator is in a box, which this member drops after the buffer.
        let communicator: &'static Communicator = unsafe { &*communicator };
        // SAFETY: the caller answers for the memory; the buffer is dropped with this member.
        *buffer = Some(unsafe { communicator.raw_attach_buffer(memory) });
        Ok(())
    }

    /// Waits for the buffered sends, and detaches the buffer.
    pub(crate) fn detach_buffer(&self) -> Result<(), Error> {
        let buffer = self.buffer.lock().take();
        let buffer = buffer.ok_or_else(|| Error::argument("the communicator has no buffer"))?;
        Ok(buffer.detach().0?)
    }

    /// Sends from the attached buffer.
    pub(crate) fn buffered_send(&self, view: &View<'_, u8>, to: Rank, tag: Tag) -> Result<(), Error> {
        match self.buffer.lock().as_mut() {
            Some(buffer) => Ok(buffer.buffered_send(view, to, tag)?),
            None => Err(Error::new(UNISONO_ERROR_RESOURCES, "the communicator has no buffer: attach one")),
        }
    }

    fn world(&self) -> Result<&World, Error> {
        match &self.owner {
            Owner::World(world) => Ok(world),
            _ => Err(Error::argument("this is not the communicator that was joined")),
        }
    }
}

/// The communicator that a handle names.
pub(crate) fn member(handle: unisono_communicator) -> Result<Arc<Member>, Error> {
    COMMUNICATORS.get(handle)
}

/// Joins the job that the environment (`UNISONO_*`) describes, else that of another starter (`mpiexec.hydra`, `srun`,
/// `prterun`), else a job of one process. `settings` is NULL or a list of
/// texts "NAME=VALUE" that ends with NULL and wins over the environment, such as "PROGRESS=thread". Stores the
/// communicator of all ranks.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_join(
    settings: *const *const c_char,
    world: *mut unisono_communicator,
) -> unisono_result {
    call(|| {
        check(world, "world")?;
        let mut variables: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        let mut at = settings;
        // SAFETY: the caller promises a list that ends with NULL.
        while let Some(setting) = (!at.is_null()).then(|| unsafe { at.read() }).filter(|setting| !setting.is_null()) {
            // SAFETY: the caller promises texts.
            let setting = OsStr::from_bytes(unsafe { CStr::from_ptr(setting) }.to_bytes());
            let bytes = setting.as_bytes();
            let split = bytes.iter().position(|byte| *byte == b'=');
            let split = split.ok_or_else(|| Error::argument(format!("{setting:?} is not NAME=VALUE")))?;
            let name = OsStr::from_bytes(bytes.get(..split).unwrap_or_default());
            let value = OsStr::from_bytes(bytes.get(split + 1..).unwrap_or_default());
            let mut full = OsString::from("UNISONO_");
            full.push(name);
            variables.retain(|(other, _)| *other != full);
            variables.push((full, value.to_owned()));
            at = at.wrapping_add(1);
        }
        let settings =
            Settings::from_variables(variables).map_err(|error| Error::new(UNISONO_ERROR_JOIN, error.to_string()))?;
        let joined = World::join_as(&settings)?;
        fork::watch();
        // SAFETY: the caller answers for the pointer.
        unsafe { store(world, "world", Member::insert(Owner::World(Box::new(joined)))) }
    })
}

/// Ends this process's part in the job: waits until everything that was sent has arrived, and until every live rank has
/// called this. All requests on `world` must have been completed or freed before (`UNISONO_ERROR_UNDER_WAY`).
#[unsafe(no_mangle)]
pub extern "C" fn unisono_finish(world: unisono_communicator) -> unisono_result {
    call(|| {
        member(world)?.world()?;
        let removed = COMMUNICATORS.remove_unused(world)?;
        let reason = "requests are not complete, or another thread uses the communicator";
        let member = removed.ok_or_else(|| Error::new(UNISONO_ERROR_UNDER_WAY, reason))?;
        let Member { buffer, scope, owner, events } = member;
        // They refer to the communicator.
        drop((buffer, scope, events));
        match owner {
            Owner::World(world) => Ok(world.finish()?),
            _ => Ok(()),
        }
    })
}

/// Frees a communicator; not the one that was joined. Requests on it go on; buffered sends have left before it returns.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_communicator_free(communicator: unisono_communicator) -> unisono_result {
    call(|| {
        if member(communicator)?.world().is_ok() {
            return Err(Error::argument("the communicator that was joined ends with unisono_finish"));
        }
        let removed = COMMUNICATORS.remove(communicator)?;
        // Requests may hold the communicator longer.
        drop(removed.buffer.lock().take());
        Ok(())
    })
}

/// The number of this rank.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_rank(communicator: unisono_communicator, rank: *mut u32) -> unisono_result {
    // SAFETY: the caller answers for the pointer.
    call(|| unsafe { store(rank, "rank", member(communicator)?.communicator().rank().0) })
}

/// The number of ranks.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_size(communicator: unisono_communicator, size: *mut u32) -> unisono_result {
    // SAFETY: the caller answers for the pointer.
    call(|| unsafe { store(size, "size", member(communicator)?.communicator().size()) })
}

/// The number in the job of a rank of the communicator.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_world_rank(
    communicator: unisono_communicator,
    rank: u32,
    world_rank: *mut u32,
) -> unisono_result {
    call(|| {
        let found = member(communicator)?.communicator().group().world_rank(Rank(rank));
        let found = found.ok_or(unisono::Failure::UnknownRank(Rank(rank)))?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(world_rank, "world_rank", found.0) }
    })
}

/// Whether messages to a rank go through shared memory.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_shares_memory(
    communicator: unisono_communicator,
    rank: u32,
    shares: *mut bool,
) -> unisono_result {
    // SAFETY: the caller answers for the pointer.
    call(|| unsafe { store(shares, "shares", member(communicator)?.communicator().shares_memory_with(Rank(rank))) })
}

/// Bytes of the largest message that is sent without waiting for its receive.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_eager_limit(communicator: unisono_communicator, bytes: *mut usize) -> unisono_result {
    // SAFETY: the caller answers for the pointer.
    call(|| unsafe { store(bytes, "bytes", member(communicator)?.communicator().eager_limit()) })
}

/// Stores a communicator that a collective call has made.
unsafe fn made(
    communicator: unisono_communicator,
    into: *mut unisono_communicator,
    make: impl FnOnce(&Communicator) -> Result<Option<Communicator>, Error>,
) -> unisono_result {
    call(|| {
        check(into, "made")?;
        let new = make(member(communicator)?.communicator())?;
        let handle = new.map_or(UNISONO_COMMUNICATOR_NULL, |new| Member::insert(Owner::Communicator(Box::new(new))));
        // SAFETY: the caller of the exported function answers for the pointer.
        unsafe { store(into, "made", handle) }
    })
}

/// Makes a communicator of the same ranks. Collective.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_duplicate(
    communicator: unisono_communicator,
    made: *mut unisono_communicator,
) -> unisono_result {
    // SAFETY: the caller answers for the pointer.
    unsafe { self::made(communicator, made, |parent| Ok(Some(parent.duplicate()?))) }
}

/// Makes communicators of the ranks that pass the same colour, ordered by key and then by rank. A rank with a negative
/// colour gets `UNISONO_COMMUNICATOR_NULL`. Collective.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_split(
    communicator: unisono_communicator,
    color: i64,
    key: i32,
    made: *mut unisono_communicator,
) -> unisono_result {
    let make = |parent: &Communicator| {
        let color = match color {
            ..0 => None,
            color => Some(u32::try_from(color).map_err(|_| Error::argument("a colour has at most 32 bits"))?),
        };
        Ok(parent.split_by_color_with_key(color, key)?)
    };
    // SAFETY: the caller answers for the pointer.
    unsafe { self::made(communicator, made, make) }
}

/// What ranks of a node share.
#[allow(non_camel_case_types, reason = "a name of C")]
pub type unisono_unit = u32;

/// The memory of their node.
pub const UNISONO_UNIT_NODE: unisono_unit = 0;
/// The socket that has all their processors.
pub const UNISONO_UNIT_SOCKET: unisono_unit = 1;
/// The NUMA node that has all their processors.
pub const UNISONO_UNIT_NUMA: unisono_unit = 2;
/// The last-level cache of all their processors.
pub const UNISONO_UNIT_CACHE: unisono_unit = 3;
/// The adapter and port, or the interface, of their first rail.
pub const UNISONO_UNIT_RAIL: unisono_unit = 4;

/// Makes communicators of the ranks that share a unit. A rank whose processors are in several units gets one of itself.
/// Collective.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_split_by_unit(
    communicator: unisono_communicator,
    unit: unisono_unit,
    made: *mut unisono_communicator,
) -> unisono_result {
    let make = |parent: &Communicator| {
        let unit = match unit {
            UNISONO_UNIT_NODE => SplitType::Shared,
            UNISONO_UNIT_SOCKET => SplitType::Socket,
            UNISONO_UNIT_NUMA => SplitType::Numa,
            UNISONO_UNIT_CACHE => SplitType::Cache,
            UNISONO_UNIT_RAIL => SplitType::Rail,
            _ => return Err(Error::argument("the unit is none of UNISONO_UNIT_…")),
        };
        Ok(Some(parent.split_by_type(unit)?))
    };
    // SAFETY: the caller answers for the pointer.
    unsafe { self::made(communicator, made, make) }
}

/// Makes a communicator of these ranks, in this order; a rank outside of it gets `UNISONO_COMMUNICATOR_NULL`.
/// Collective: all ranks of the communicator call it, each with the group that it belongs to.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_subgroup(
    communicator: unisono_communicator,
    count: usize,
    ranks: *const u32,
    made: *mut unisono_communicator,
) -> unisono_result {
    let make = |parent: &Communicator| {
        // SAFETY: the caller answers for the list.
        let ranks = unsafe { list(ranks, count, "ranks") }?;
        let ranks: Vec<Rank> = ranks.iter().copied().map(Rank).collect();
        let group = parent.group().include(&ranks).map_err(|error| Error::argument(error.to_string()))?;
        Ok(parent.split_by_subgroup_collective(&group)?)
    };
    // SAFETY: the caller answers for the pointer.
    unsafe { self::made(communicator, made, make) }
}

/// Revokes a communicator for all its ranks: what is under way on it fails, and what is started. Not collective.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_revoke(communicator: unisono_communicator) -> unisono_result {
    call(|| {
        member(communicator)?.communicator().revoke();
        Ok(())
    })
}

/// Makes a communicator of the live ranks. Every live rank calls it.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_shrink(
    communicator: unisono_communicator,
    made: *mut unisono_communicator,
) -> unisono_result {
    // SAFETY: the caller answers for the pointer.
    unsafe { self::made(communicator, made, |parent| Ok(Some(parent.shrink()?))) }
}

/// Agrees with all live ranks on the bitwise AND of `*flags`. Every live rank calls it.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_agree(communicator: unisono_communicator, flags: *mut u64) -> unisono_result {
    call(|| {
        check(flags, "flags")?;
        // SAFETY: the caller answers for the pointer.
        let own = unsafe { flags.read() };
        let agreed = member(communicator)?.communicator().agree(own)?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(flags, "flags", agreed.flags) }
    })
}

/// Stores the numbers of up to `most` ranks that are known to have failed or finished, and the number of all of them.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_failed(
    communicator: unisono_communicator,
    ranks: *mut u32,
    most: usize,
    count: *mut usize,
) -> unisono_result {
    call(|| {
        let member = member(communicator)?;
        let (own, failed) = (member.communicator().group(), member.communicator().failed());
        let numbers: Vec<u32> = failed.iter().filter_map(|rank| Some(own.number(rank)?.0)).collect();
        check(count, "count")?;
        if most > 0 {
            check(ranks, "ranks")?;
        }
        for (i, number) in numbers.iter().take(most).enumerate() {
            // SAFETY: the caller answers for `most` numbers.
            unsafe { ranks.wrapping_add(i).write(*number) };
        }
        // SAFETY: the caller answers for the pointer.
        unsafe { store(count, "count", numbers.len()) }
    })
}

/// Makes progress once. In the mode "engine", the default, nothing is received or resent but within calls of the
/// library. `moved` may be NULL.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_progress(communicator: unisono_communicator, moved: *mut bool) -> unisono_result {
    call(|| {
        let has_moved = member(communicator)?.communicator().progress();
        if moved.is_null() {
            return Ok(());
        }
        // SAFETY: the caller answers for the pointer.
        unsafe { store(moved, "moved", has_moved) }
    })
}

/// A file descriptor to poll for input (`poll`, `epoll`): when it is readable, call `unisono_progress`. It stays the
/// library's: do not read or close it. Call `unisono_arm` before each sleep.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_event_fd(world: unisono_communicator, fd: *mut c_int) -> unisono_result {
    call(|| {
        let member = member(world)?;
        let mut events = member.events.lock();
        if events.is_none() {
            *events = Some(member.world()?.event_source()?);
        }
        let descriptor = events.as_ref().map_or(-1, |events| events.as_fd().as_raw_fd());
        // SAFETY: the caller answers for the pointer.
        unsafe { store(fd, "fd", descriptor) }
    })
}

/// Makes progress once and prepares the descriptor for a sleep. `*armed` is false if there is more to do: call
/// `unisono_progress` instead of sleeping. While ranks share memory, which signals no descriptor, it becomes readable
/// after at most 2 ms.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_arm(world: unisono_communicator, armed: *mut bool) -> unisono_result {
    call(|| {
        let member = member(world)?;
        check(armed, "armed")?;
        let mut events = member.events.lock();
        let events = events.as_mut().ok_or_else(|| Error::argument("call unisono_event_fd first"))?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(armed, "armed", member.world()?.arm(events)?) }
    })
}

/// Counters of this rank since it joined.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(non_camel_case_types, reason = "a name of C")]
pub struct unisono_counters {
    /// Datagrams that were sent, and their bytes.
    pub datagrams_sent: u64,
    /// Bytes of these.
    pub bytes_sent: u64,
    /// Of these, data that were resent because a later segment was acknowledged.
    pub resent_nack: u64,
    /// Of these, data that were resent because a probe was answered.
    pub resent_probe: u64,
    /// Datagrams that were accepted.
    pub datagrams_accepted: u64,
    /// Bytes of these.
    pub bytes_accepted: u64,
    /// Datagrams that had been received before.
    pub duplicates: u64,
    /// Datagrams that were dropped.
    pub dropped: u64,
    /// Datagrams that were accepted, but were not the next of their peer.
    pub out_of_order: u64,
}

/// Reads the counters.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_read_counters(
    world: unisono_communicator,
    counters: *mut unisono_counters,
) -> unisono_result {
    call(|| {
        let member = member(world)?;
        let all = member.world()?.counters();
        let read = unisono_counters {
            datagrams_sent: all.sent.iter().sum(),
            bytes_sent: all.bytes_sent,
            resent_nack: all.sent_for(TxReason::ResentNack),
            resent_probe: all.sent_for(TxReason::ResentProbe),
            datagrams_accepted: all.accepted.iter().sum(),
            bytes_accepted: all.bytes_accepted,
            duplicates: all.duplicates,
            dropped: all.dropped.iter().sum(),
            out_of_order: all.out_of_order,
        };
        // SAFETY: the caller answers for the pointer.
        unsafe { store(counters, "counters", read) }
    })
}

/// Memory that was allocated.
#[allow(non_camel_case_types, reason = "a name of C")]
pub type unisono_memory = u64;

/// Allocated memory, by the address that it was given out at.
static MEMORY: Table<Arc<Mutex<Buffer<u8>>>> = Table::new(Kind::Memory);

/// Allocates `bytes` zero bytes, aligned to 64. A message that is sent from it to a rank of this node is copied once, by
/// the receiver. Stores its address, and a handle that frees it.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_allocate(
    communicator: unisono_communicator,
    bytes: usize,
    address: *mut *mut c_void,
    memory: *mut unisono_memory,
) -> unisono_result {
    call(|| {
        let member = member(communicator)?;
        check(address, "address")?;
        check(memory, "memory")?;
        let mut buffer: Buffer<u8> = member.communicator().allocate(bytes)?;
        let start = buffer.as_mut_ptr();
        // SAFETY: the caller answers for the pointer.
        unsafe { store(address, "address", start.cast()) }?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(memory, "memory", MEMORY.insert(Arc::new(Mutex::new(buffer)))) }
    })
}

/// Frees memory of `unisono_allocate`, which no request uses any more.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_free(memory: unisono_memory) -> unisono_result {
    call(|| MEMORY.remove(memory).map(drop))
}
