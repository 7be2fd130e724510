//! Error classes, codes and handlers.

use core::ffi::{c_char, c_int};

use crate::abi::*;
use crate::calls::sessions::Session;
use crate::calls::{give, give_text, text};
use crate::communicator::Comm;
use crate::error::{self, Errhandler, Handler, finish};
use crate::handle::{Object, release, resolve};

pub(crate) unsafe fn error_class(code: c_int, class: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    finish(error::class(code).and_then(|of| unsafe { give(class, of) }))
}

pub(crate) unsafe fn error_string(code: c_int, string: *mut c_char, length: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { give_text(string, length, &error::text(code), MPI_MAX_ERROR_STRING) })
}

pub(crate) unsafe fn add_error_class(class: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    finish(error::add(None).and_then(|made| unsafe { give(class, made) }))
}

pub(crate) unsafe fn add_error_code(class: c_int, code: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    finish(error::add(Some(class)).and_then(|made| unsafe { give(code, made) }))
}

pub(crate) unsafe fn add_error_string(code: c_int, string: *const c_char) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { text(string) }.and_then(|text| error::set_text(code, text.to_owned())))
}

pub(crate) unsafe fn remove_error_class(class: c_int) -> c_int {
    finish(error::remove(class, true))
}

pub(crate) unsafe fn remove_error_code(code: c_int) -> c_int {
    finish(error::remove(code, false))
}

pub(crate) unsafe fn remove_error_string(code: c_int) -> c_int {
    finish(error::remove_text(code))
}

unsafe fn create(function: Callback, errhandler: *mut MPI_Errhandler) -> c_int {
    if function.is_null() {
        return finish(Err(MPI_ERR_ARG));
    }
    let handler = Handler::Function(function.expose_provenance());
    let made = Object::new(Errhandler { handler });
    // SAFETY: the contract of this module.
    finish(unsafe { give(errhandler, MPI_Errhandler(Object::into_handle(made))) })
}

pub(crate) unsafe fn comm_create_errhandler(function: Callback, errhandler: *mut MPI_Errhandler) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { create(function, errhandler) }
}

pub(crate) unsafe fn win_create_errhandler(function: Callback, errhandler: *mut MPI_Errhandler) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { create(function, errhandler) }
}

pub(crate) unsafe fn file_create_errhandler(function: Callback, errhandler: *mut MPI_Errhandler) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { create(function, errhandler) }
}

pub(crate) unsafe fn session_create_errhandler(function: Callback, errhandler: *mut MPI_Errhandler) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { create(function, errhandler) }
}

pub(crate) unsafe fn errhandler_free(errhandler: *mut MPI_Errhandler) -> c_int {
    finish((|| {
        // SAFETY: the contract of this module.
        let handle = *unsafe { errhandler.as_ref() }.ok_or(MPI_ERR_ARG)?;
        if handle == MPI_ERRHANDLER_NULL {
            return Err(MPI_ERR_ERRHANDLER);
        }
        if handle.0 >= crate::handle::FIRST_ADDRESS {
            // SAFETY: the contract of this module.
            drop(unsafe { release::<Errhandler>(handle.0) }?);
        }
        // SAFETY: the contract of this module.
        unsafe { give(errhandler, MPI_ERRHANDLER_NULL) }
    })())
}

pub(crate) unsafe fn comm_set_errhandler(comm: MPI_Comm, errhandler: MPI_Errhandler) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { error::on(comm, |comm| comm.errors.set(errhandler)) }
}

pub(crate) unsafe fn comm_get_errhandler(comm: MPI_Comm, errhandler: *mut MPI_Errhandler) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { error::on(comm, |comm| give(errhandler, comm.errors.duplicate())) }
}

pub(crate) unsafe fn comm_call_errhandler(comm: MPI_Comm, code: c_int) -> c_int {
    // SAFETY: the contract of this module.
    match unsafe { resolve::<Comm>(comm.0) } {
        Ok(comm) => {
            error::raise_on(comm, code);
            MPI_SUCCESS
        }
        Err(code) => error::raise_anywhere(code),
    }
}

/// The error handler of files that are not open; there are no others.
static FILES: error::Attached = error::Attached::new(MPI_ERRORS_RETURN);

pub(crate) unsafe fn file_set_errhandler(file: MPI_File, errhandler: MPI_Errhandler) -> c_int {
    if file != MPI_FILE_NULL {
        return error::raise(&FILES, file.0, MPI_ERR_FILE);
    }
    // SAFETY: the contract of this module.
    finish(unsafe { FILES.set(errhandler) })
}

pub(crate) unsafe fn file_get_errhandler(file: MPI_File, errhandler: *mut MPI_Errhandler) -> c_int {
    if file != MPI_FILE_NULL {
        return error::raise(&FILES, file.0, MPI_ERR_FILE);
    }
    // SAFETY: the contract of this module.
    finish(unsafe { give(errhandler, FILES.duplicate()) })
}

pub(crate) unsafe fn file_call_errhandler(file: MPI_File, code: c_int) -> c_int {
    if file != MPI_FILE_NULL {
        return error::raise(&FILES, file.0, MPI_ERR_FILE);
    }
    error::raise(&FILES, file.0, code);
    MPI_SUCCESS
}

pub(crate) unsafe fn session_set_errhandler(session: MPI_Session, errhandler: MPI_Errhandler) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { resolve::<Session>(session.0).and_then(|session| session.errors.set(errhandler)) })
}

pub(crate) unsafe fn session_get_errhandler(session: MPI_Session, errhandler: *mut MPI_Errhandler) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { resolve::<Session>(session.0).and_then(|session| give(errhandler, session.errors.duplicate())) })
}

pub(crate) unsafe fn session_call_errhandler(session: MPI_Session, code: c_int) -> c_int {
    // SAFETY: the contract of this module.
    match unsafe { resolve::<Session>(session.0) } {
        Ok(of) => {
            error::raise(&of.errors, session.0, code);
            MPI_SUCCESS
        }
        Err(code) => error::raise_anywhere(code),
    }
}
