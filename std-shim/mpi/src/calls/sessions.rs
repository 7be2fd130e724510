//! Sessions: groups by name, and communicators that are made of groups.

use alloc::ffi::CString;
use core::ffi::{CStr, c_char, c_int};

use unisono::{Group, Rank, Tag};

use crate::abi::*;
use crate::calls::communicators::{create_from_members, made};
use crate::calls::{give, groups, text};
use crate::communicator::{Comm, world_communicator};
use crate::error::{Attached, finish, raise};
use crate::handle::{Held, Kind, Object, release, resolve};
use crate::info::Info;
use crate::job;

/// A session.
#[derive(Debug)]
pub struct Session {
    /// Its error handler.
    pub errors: Attached,
}

impl Kind for Session {
    const MARK: u32 = 0x7365_7373;
    const INVALID: c_int = MPI_ERR_SESSION;

    fn predefined(_: usize) -> Option<&'static Object<Self>> {
        None
    }
}

/// The process sets that every session has.
const SETS: [&CStr; 2] = [c"mpi://WORLD", c"mpi://SELF"];

pub(crate) unsafe fn session_init(_: MPI_Info, errhandler: MPI_Errhandler, session: *mut MPI_Session) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let errors = Attached::new(MPI_ERRORS_ARE_FATAL);
            errors.set(errhandler)?;
            job::open_session()?;
            give(session, MPI_Session(Object::into_handle(Object::new(Session { errors }))))
        })()
    })
}

pub(crate) unsafe fn session_finalize(session: *mut MPI_Session) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let handle = *session.as_ref().ok_or(MPI_ERR_ARG)?;
            let held: Held<Session> = release(handle.0)?;
            drop(held);
            job::close_session();
            give(session, MPI_SESSION_NULL)
        })()
    })
}

unsafe fn on(session: MPI_Session, call: impl FnOnce() -> crate::error::Outcome) -> c_int {
    // SAFETY: the contract of this module.
    match unsafe { resolve::<Session>(session.0) } {
        Ok(of) => call().map_or_else(|code| raise(&of.errors, session.0, code), |()| MPI_SUCCESS),
        Err(code) => finish(Err(code)),
    }
}

pub(crate) unsafe fn session_get_num_psets(session: MPI_Session, _: MPI_Info, number: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { on(session, || give(number, SETS.len() as c_int)) }
}

pub(crate) unsafe fn session_get_nth_pset(
    session: MPI_Session,
    _: MPI_Info,
    number: c_int,
    length: *mut c_int,
    name: *mut c_char,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(session, || {
            let set = usize::try_from(number).ok().and_then(|number| SETS.get(number)).ok_or(MPI_ERR_ARG)?;
            let room = *length.as_ref().ok_or(MPI_ERR_ARG)?;
            let bytes = set.to_bytes_with_nul();
            for (at, byte) in bytes.iter().enumerate().take(usize::try_from(room).unwrap_or(0)) {
                give(name.wrapping_add(at), *byte as c_char)?;
            }
            if room > 0 && (room as usize) < bytes.len() {
                give(name.wrapping_add(room as usize - 1), 0)?;
            }
            give(length, bytes.len() as c_int)
        })
    }
}

pub(crate) unsafe fn session_get_pset_info(session: MPI_Session, name: *const c_char, info: *mut MPI_Info) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(session, || {
            let size = match &*text(name)?.to_bytes().to_ascii_lowercase() {
                b"mpi://world" => world_communicator().map_or(0, |world| world.size),
                b"mpi://self" => 1,
                _ => return Err(MPI_ERR_ARG),
            };
            let made = Info::default();
            made.set(c"mpi_size".to_owned(), CString::new(size.to_string()).unwrap_or_default());
            give(info, MPI_Info(Object::into_handle(Object::new(made))))
        })
    }
}

pub(crate) unsafe fn session_get_info(session: MPI_Session, info: *mut MPI_Info) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(session, || {
            let made = Info::default();
            made.set(c"thread_level".to_owned(), c"MPI_THREAD_MULTIPLE".to_owned());
            give(info, MPI_Info(Object::into_handle(Object::new(made))))
        })
    }
}

pub(crate) unsafe fn group_from_session_pset(
    session: MPI_Session,
    name: *const c_char,
    group: *mut MPI_Group,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(session, || {
            let world = world_communicator().ok_or(MPI_ERR_SESSION)?;
            let all = world.library().group();
            match &*text(name)?.to_bytes().to_ascii_lowercase() {
                b"mpi://world" => groups::made(group, all),
                b"mpi://self" => groups::made(group, all.include(&[Rank(world.rank)]).map_err(|_| MPI_ERR_ARG)?),
                _ => Err(MPI_ERR_ARG),
            }
        })
    }
}

pub(crate) unsafe fn comm_create_from_group(
    group: MPI_Group,
    name: *const c_char,
    _: MPI_Info,
    errhandler: MPI_Errhandler,
    new: *mut MPI_Comm,
) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let (members, name) = (groups::group(group)?, text(name)?);
            let world: &Object<Comm> = world_communicator().ok_or(MPI_ERR_SESSION)?;
            let made_one = create_from_members(world, members, Tag(0x8000_0000 | digest(name)))?;
            let made_one = made_one.map(|made| Comm::intra(made, world, None));
            if let Some(comm) = &made_one {
                comm.errors.set(errhandler)?;
            }
            made(new, made_one)
        })()
    })
}

pub(crate) unsafe fn intercomm_create_from_groups(
    local: MPI_Group,
    local_leader: c_int,
    remote: MPI_Group,
    remote_leader: c_int,
    name: *const c_char,
    _: MPI_Info,
    errhandler: MPI_Errhandler,
    new: *mut MPI_Comm,
) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let (local, name) = (groups::group(local)?, text(name)?);
            let is_member = |of: &Group, rank: c_int| u32::try_from(rank).is_ok_and(|rank| rank < of.size());
            let remote = groups::group(remote)?;
            if !is_member(local, local_leader) || !is_member(remote, remote_leader) {
                return Err(MPI_ERR_RANK);
            }
            if local.intersection(remote).size() > 0 {
                return Err(MPI_ERR_GROUP);
            }
            let world: &Object<Comm> = world_communicator().ok_or(MPI_ERR_SESSION)?;
            // Both groups put the one with the least member first.
            let is_first = local.iter().min() < remote.iter().min();
            let both = if is_first { local.union(remote) } else { remote.union(local) };
            let made_one = create_from_members(world, &both, Tag(0x8000_0000 | digest(name)))?;
            let made_one = made_one.ok_or(MPI_ERR_GROUP)?;
            let (here, there) = (local.size(), remote.size());
            let (own, other) = if is_first { ((0, here), (here, there)) } else { ((there, here), (0, there)) };
            let comm = Comm::inter(made_one, world, own, other);
            comm.errors.set(errhandler)?;
            made(new, Some(comm))
        })()
    })
}

/// A digest of the text that distinguishes calls at the same time.
fn digest(name: &CStr) -> u32 {
    name.to_bytes().iter().fold(0x811c_9dc5, |digest, byte| (digest ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}
