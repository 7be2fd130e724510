//! Communicators: a communicator of the library, of which an intercommunicator's members are both groups.

use alloc::ffi::CString;
use alloc::sync::Arc;
use core::ffi::c_int;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use parking_lot::Mutex;
use unisono::{Communicator, Group, Rank};

use crate::abi::*;
use crate::attribute::Attributes;
use crate::buffer::Buffer;
use crate::error::{Attached, Outcome};
use crate::handle::{Held, Kind, Object};
use crate::info::Info;
use crate::request::ThreadResult;
use crate::topology::Topology;

/// A group whose members follow one another in the library's communicator.
#[derive(Clone, Copy, Debug)]
pub struct MemberRange {
    /// The rank there of its rank 0.
    pub base: u32,
    /// Its size.
    pub size: u32,
}

/// A communicator.
#[derive(Debug)]
pub struct Comm {
    /// Valid until the job is left; null while a duplicate is being made.
    library: AtomicPtr<Communicator>,
    /// Whether it is freed with this.
    is_owned: bool,
    /// This process's rank in its group, and the group's size.
    pub rank: u32,
    pub size: u32,
    /// The group that messages are sent to.
    pub remote: MemberRange,
    /// The rank in the library's communicator of rank 0 of the own group.
    pub local_base: u32,
    /// Whether the two groups differ.
    pub is_inter: bool,
    /// The constant that names it, or 0.
    constant: usize,
    /// Its error handler.
    pub errors: Attached,
    /// Its attributes.
    pub attributes: Attributes,
    /// Its name.
    pub name: Mutex<CString>,
    /// Its hints.
    pub info: Mutex<Info>,
    /// Its topology.
    pub topology: Option<Topology>,
    /// The buffer of its buffered sends.
    pub buffer: Buffer,
    /// The last duplicate that a thread makes.
    pub duplicating: Mutex<Option<Arc<ThreadResult>>>,
    /// Number of collectives that it has carried out by messages of its own.
    sequence: AtomicU32,
}

// SAFETY: the library's communicator may be used by any thread; all else is guarded by locks.
unsafe impl Send for Comm {}
// SAFETY: the library locks its communicator, and every other field that changes is an atomic or has a lock.
unsafe impl Sync for Comm {}

static WORLD: AtomicPtr<Object<Comm>> = AtomicPtr::new(core::ptr::null_mut());
static SELF: AtomicPtr<Object<Comm>> = AtomicPtr::new(core::ptr::null_mut());

impl Kind for Comm {
    const MARK: u32 = 0x636f_6d6d;
    const INVALID: c_int = MPI_ERR_COMM;

    #[inline(always)]
    fn predefined(handle: usize) -> Option<&'static Object<Self>> {
        let place = match MPI_Comm(handle) {
            MPI_COMM_WORLD => &WORLD,
            MPI_COMM_SELF => &SELF,
            _ => return None,
        };
        // SAFETY: set by `publish` to an object that is never dropped.
        unsafe { place.load(Ordering::Acquire).as_ref() }
    }
}

/// MPI_COMM_WORLD, while the job lasts.
pub fn world_communicator() -> Option<&'static Object<Comm>> {
    Comm::predefined(MPI_COMM_WORLD.0)
}

/// MPI_COMM_SELF, while the job lasts.
pub fn self_communicator() -> Option<&'static Object<Comm>> {
    Comm::predefined(MPI_COMM_SELF.0)
}

/// Makes the two predefined communicators known.
pub fn publish(world: Held<Comm>, own: Held<Comm>) {
    for (place, held) in [(&WORLD, world), (&SELF, own)] {
        place.store(Arc::into_raw(held).cast_mut(), Ordering::Release);
    }
}

/// The two predefined communicators are no more. They stay in memory, for a thread that still uses them.
pub fn withdraw() {
    for place in [&WORLD, &SELF] {
        place.store(core::ptr::null_mut(), Ordering::Release);
    }
}

impl Comm {
    /// A predefined communicator.
    pub fn constant(library: NonNull<Communicator>, handle: MPI_Comm, name: &str) -> Held<Self> {
        // SAFETY: the caller's is valid until the job is left.
        let of = unsafe { library.as_ref() };
        let (rank, size) = (of.rank().0, of.size());
        let made = Self::with(library, false, handle.0, (rank, size), None);
        *made.name.lock() = CString::new(name).unwrap_or_default();
        Object::new(made)
    }

    fn with(
        library: NonNull<Communicator>,
        is_owned: bool,
        constant: usize,
        (rank, size): (u32, u32),
        topology: Option<Topology>,
    ) -> Self {
        Self {
            library: AtomicPtr::new(library.as_ptr()),
            is_owned,
            rank,
            size,
            remote: MemberRange { base: 0, size },
            local_base: 0,
            is_inter: false,
            constant,
            errors: Attached::new(MPI_ERRORS_ARE_FATAL),
            attributes: Attributes::default(),
            name: Mutex::new(CString::default()),
            info: Mutex::new(Info::default()),
            topology,
            buffer: Buffer::default(),
            duplicating: Mutex::new(None),
            sequence: AtomicU32::new(0),
        }
    }

    /// An intracommunicator; its error handler is that of its parent.
    pub fn intra(library: Communicator, parent: &Self, topology: Option<Topology>) -> Held<Self> {
        let position = (library.rank().0, library.size());
        let library = NonNull::from(Box::leak(Box::new(library)));
        let made = Self::with(library, true, 0, position, topology);
        made.inherit(parent);
        Object::new(made)
    }

    /// An intercommunicator of which the library's communicator has the members of the first group, and then those of
    /// the second one; `local` and `remote`: first rank and size of each.
    pub fn inter(library: Communicator, parent: &Self, local: (u32, u32), remote: (u32, u32)) -> Held<Self> {
        let rank = library.rank().0.saturating_sub(local.0);
        let library = NonNull::from(Box::leak(Box::new(library)));
        let mut made = Self::with(library, true, 0, (rank, local.1), None);
        made.remote = MemberRange { base: remote.0, size: remote.1 };
        (made.local_base, made.is_inter) = (local.0, true);
        made.inherit(parent);
        Object::new(made)
    }

    fn inherit(&self, parent: &Self) {
        // SAFETY: it is attached to the parent, and thus valid.
        let _ = unsafe { self.errors.set(parent.errors.get()) };
    }

    /// The library's communicator.
    #[inline(always)]
    pub fn library(&self) -> &Communicator {
        // SAFETY: valid until the job is left, after which the program calls nothing that uses communicators; an owned
        // one is freed with this. The program uses no duplicate before it is made.
        unsafe { &*self.library.load(Ordering::Acquire) }
    }

    /// A duplicate whose communicator of the library is being made.
    pub fn pending(of: &Self) -> Held<Self> {
        let mut made = Self::with(NonNull::dangling(), true, 0, (of.rank, of.size), of.topology.clone());
        made.library = AtomicPtr::new(core::ptr::null_mut());
        (made.remote, made.local_base, made.is_inter) = (of.remote, of.local_base, of.is_inter);
        made.inherit(of);
        Object::new(made)
    }

    /// The communicator of the library of a pending duplicate.
    pub fn complete(&self, library: Communicator) {
        self.library.store(Box::into_raw(Box::new(library)), Ordering::Release);
    }

    /// The rank in the library's communicator that a message goes to or comes from.
    #[inline(always)]
    pub fn peer(&self, rank: c_int) -> Outcome<Rank> {
        let rank = rank as u32;
        if rank < self.remote.size { Ok(Rank(rank + self.remote.base)) } else { Err(MPI_ERR_RANK) }
    }

    /// The rank for the program of a rank of the library's communicator.
    #[inline(always)]
    pub const fn rank_of(&self, rank: Rank) -> c_int {
        rank.0.wrapping_sub(self.remote.base) as c_int
    }

    /// A root of a collective of an intracommunicator.
    pub fn root(&self, root: c_int) -> Outcome<u32> {
        u32::try_from(root).ok().filter(|root| *root < self.remote.size).ok_or(MPI_ERR_ROOT)
    }

    /// The tag of the messages of the next collective of its own; the lowest 8 bits are 0.
    pub fn next_tag(&self) -> u32 {
        (self.sequence.fetch_add(1, Ordering::Relaxed) << 8) & 0x7fff_ff00
    }

    fn part(&self, first: u32, size: u32) -> Group {
        let all = self.library().group();
        let numbers: Vec<Rank> = (first..first + size).map(Rank).collect();
        all.include(&numbers).unwrap_or(all)
    }

    /// The own group.
    pub fn group(&self) -> Group {
        if self.is_inter { self.part(self.local_base, self.size) } else { self.library().group() }
    }

    /// The other group.
    pub fn remote_group(&self) -> Group {
        self.part(self.remote.base, self.remote.size)
    }
}

impl Object<Comm> {
    /// The handle that names it.
    pub fn handle(&self) -> usize {
        if self.constant != 0 { self.constant } else { self.address() }
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        let library = *self.library.get_mut();
        if self.is_owned && !library.is_null() {
            // SAFETY: made of a box in the constructors, and used by this alone.
            drop(unsafe { Box::from_raw(library) });
        }
    }
}

/// A group of ranks of the job.
#[derive(Debug)]
pub struct GroupObject(pub Group);

impl Kind for GroupObject {
    const MARK: u32 = 0x6772_6f75;
    const INVALID: c_int = MPI_ERR_GROUP;

    fn predefined(handle: usize) -> Option<&'static Object<Self>> {
        static EMPTY: std::sync::OnceLock<Held<GroupObject>> = std::sync::OnceLock::new();
        (handle == MPI_GROUP_EMPTY.0).then(|| &**EMPTY.get_or_init(|| Object::new(GroupObject(Group::empty()))))
    }
}
