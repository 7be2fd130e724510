//! Performance variables of the tools interface, and their sessions.

use core::ffi::{c_char, c_int, c_void};

use super::tools::{ended, name};
use crate::abi::*;
use crate::calls::give;
use crate::error::Outcome;
use crate::tools::counters::{Measurement, STATE};
use crate::tools::{Session, counters, give_if, give_text, index_of, item, made};

pub(crate) unsafe fn t_pvar_get_num(number: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    ended(made().and_then(|_| unsafe { give(number, counters::all().len() as c_int) }))
}

pub(crate) unsafe fn t_pvar_get_info(
    index: c_int,
    name: *mut c_char,
    name_length: *mut c_int,
    verbosity: *mut c_int,
    class: *mut c_int,
    datatype: *mut MPI_Datatype,
    enumeration: *mut MPI_T_enum,
    description: *mut c_char,
    description_length: *mut c_int,
    bind: *mut c_int,
    readonly: *mut c_int,
    continuous: *mut c_int,
    atomic: *mut c_int,
) -> c_int {
    let found = made().and_then(|_| item(counters::all(), index));
    // SAFETY: the contract of this module.
    ended(found.map(|counter| unsafe {
        let is_state = counter.class == MPI_T_PVAR_CLASS_STATE;
        give_text(name, name_length, &counter.name);
        give_if(verbosity, MPI_T_VERBOSITY_USER_DETAIL);
        give_if(class, counter.class);
        give_if(datatype, if is_state { MPI_INT } else { MPI_UNSIGNED_LONG_LONG });
        give_if(enumeration, if is_state { STATE } else { MPI_T_ENUM_NULL });
        give_text(description, description_length, counter.description);
        give_if(bind, MPI_T_BIND_NO_OBJECT);
        give_if(readonly, (!counter.is_counter()).into());
        give_if(continuous, (!counter.is_counter()).into());
        give_if(atomic, counter.is_counter().into());
    }))
}

pub(crate) unsafe fn t_pvar_get_index(of: *const c_char, class: c_int, index: *mut c_int) -> c_int {
    ended(made().and_then(|_| {
        // SAFETY: the contract of this module.
        let of = unsafe { name(of) }?;
        let found = index_of(counters::all(), |counter| counter.name == of && counter.class == class)?;
        // SAFETY: the contract of this module.
        unsafe { give(index, found) }
    }))
}

pub(crate) unsafe fn t_pvar_session_create(session: *mut MPI_T_pvar_session) -> c_int {
    ended(made().and_then(|mut made| {
        if session.is_null() {
            return Err(MPI_T_ERR_INVALID);
        }
        let number = made.new_handle();
        made.sessions.insert(number, Session::new());
        // SAFETY: the contract of this module.
        unsafe { give(session, MPI_T_pvar_session(number)) }
    }))
}

pub(crate) unsafe fn t_pvar_session_free(session: *mut MPI_T_pvar_session) -> c_int {
    ended(made().and_then(|mut made| {
        // SAFETY: the contract of this module.
        let session = unsafe { session.as_mut() }.ok_or(MPI_T_ERR_INVALID)?;
        made.sessions.remove(&session.0).ok_or(MPI_T_ERR_INVALID_SESSION)?;
        *session = MPI_T_PVAR_SESSION_NULL;
        Ok(())
    }))
}

/// Calls a function with a session.
fn with<T>(session: MPI_T_pvar_session, use_it: impl FnOnce(&mut Session) -> Outcome<T>) -> Outcome<T> {
    use_it(made()?.sessions.get_mut(&session.0).ok_or(MPI_T_ERR_INVALID_SESSION)?)
}

/// Calls a function with the variable of a handle.
fn measured(
    session: MPI_T_pvar_session,
    handle: MPI_T_pvar_handle,
    use_it: impl FnOnce(&mut Measurement) -> Outcome,
) -> c_int {
    ended(with(session, |session| use_it(session.get_mut(&handle.0).ok_or(MPI_T_ERR_INVALID_HANDLE)?)))
}

/// As [`measured`], or with all counters of the session.
fn all_measured(
    session: MPI_T_pvar_session,
    handle: MPI_T_pvar_handle,
    use_it: impl FnMut(&mut Measurement) -> Outcome,
) -> c_int {
    if handle != MPI_T_PVAR_ALL_HANDLES {
        return measured(session, handle, use_it);
    }
    ended(with(session, |session| session.values_mut().filter(|one| one.is_counter()).try_for_each(use_it)))
}

pub(crate) unsafe fn t_pvar_handle_alloc(
    session: MPI_T_pvar_session,
    index: c_int,
    _: *mut c_void,
    handle: *mut MPI_T_pvar_handle,
    count: *mut c_int,
) -> c_int {
    ended(made().and_then(|mut made| {
        let number = made.new_handle();
        let session = made.sessions.get_mut(&session.0).ok_or(MPI_T_ERR_INVALID_SESSION)?;
        let counter = item(counters::all(), index)?;
        if handle.is_null() {
            return Err(MPI_T_ERR_INVALID);
        }
        session.insert(number, Measurement::new(counter));
        // SAFETY: the contract of this module.
        unsafe { give_if(count, 1) };
        // SAFETY: the contract of this module.
        unsafe { give(handle, MPI_T_pvar_handle(number)) }
    }))
}

pub(crate) unsafe fn t_pvar_handle_free(session: MPI_T_pvar_session, handle: *mut MPI_T_pvar_handle) -> c_int {
    ended(with(session, |session| {
        // SAFETY: the contract of this module.
        let handle = unsafe { handle.as_mut() }.ok_or(MPI_T_ERR_INVALID)?;
        session.remove(&handle.0).ok_or(MPI_T_ERR_INVALID_HANDLE)?;
        *handle = MPI_T_PVAR_HANDLE_NULL;
        Ok(())
    }))
}

pub(crate) unsafe fn t_pvar_start(session: MPI_T_pvar_session, handle: MPI_T_pvar_handle) -> c_int {
    all_measured(session, handle, Measurement::start)
}

pub(crate) unsafe fn t_pvar_stop(session: MPI_T_pvar_session, handle: MPI_T_pvar_handle) -> c_int {
    all_measured(session, handle, Measurement::stop)
}

pub(crate) unsafe fn t_pvar_reset(session: MPI_T_pvar_session, handle: MPI_T_pvar_handle) -> c_int {
    all_measured(session, handle, |one| one.set(0))
}

pub(crate) unsafe fn t_pvar_read(session: MPI_T_pvar_session, handle: MPI_T_pvar_handle, to: *mut c_void) -> c_int {
    // SAFETY: the contract of this module.
    measured(session, handle, |one| unsafe { one.read(to, false) })
}

pub(crate) unsafe fn t_pvar_readreset(
    session: MPI_T_pvar_session,
    handle: MPI_T_pvar_handle,
    to: *mut c_void,
) -> c_int {
    // SAFETY: the contract of this module.
    measured(session, handle, |one| unsafe { one.read(to, true) })
}

pub(crate) unsafe fn t_pvar_write(
    session: MPI_T_pvar_session,
    handle: MPI_T_pvar_handle,
    from: *const c_void,
) -> c_int {
    measured(session, handle, |one| {
        if from.is_null() {
            return Err(MPI_T_ERR_INVALID);
        }
        if !one.is_counter() {
            return Err(MPI_T_ERR_PVAR_NO_WRITE);
        }
        // SAFETY: not null; the program promises a value of the variable's type.
        one.set(unsafe { from.cast::<u64>().read_unaligned() })
    })
}
