//! Sessions: groups by name, and communicators that are made of groups.

use core::ffi::{CStr, c_char, c_int};
use std::ffi::CString;

use unisono::{Rank, Tag};

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
            let size = match text(name)?.to_bytes() {
                b"mpi://WORLD" => world_communicator().map_or(0, |world| world.size),
                b"mpi://SELF" => 1,
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
            match text(name)?.to_bytes() {
                b"mpi://WORLD" => groups::made(group, all),
                b"mpi://SELF" => groups::made(group, all.include(&[Rank(world.rank)]).map_err(|_| MPI_ERR_ARG)?),
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
            // Calls at the same time have different texts.
            let digest = name
                .to_bytes()
                .iter()
                .fold(0x811c_9dc5_u32, |digest, byte| (digest ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
            let made_one = create_from_members(world, members, Tag(0x8000_0000 | digest))?;
            let made_one = made_one.map(|made| Comm::intra(made, world, None));
            if let Some(comm) = &made_one {
                comm.errors.set(errhandler)?;
            }
            made(new, made_one)
        })()
    })
}
