//! Control variables of the tools interface.

use core::ffi::{c_char, c_int, c_void};

use unisono::environment::catalogue::Variable;

use super::tools::{ended, name};
use crate::abi::*;
use crate::calls::{give, text};
use crate::error::Outcome;
use crate::tools::{controls, copy_text, give_if, give_text, index_of, item, made};

pub(crate) unsafe fn t_cvar_get_num(number: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    ended(made().and_then(|_| unsafe { give(number, controls::all().len() as c_int) }))
}

pub(crate) unsafe fn t_cvar_get_info(
    index: c_int,
    name: *mut c_char,
    name_length: *mut c_int,
    verbosity: *mut c_int,
    datatype: *mut MPI_Datatype,
    enumeration: *mut MPI_T_enum,
    description: *mut c_char,
    description_length: *mut c_int,
    bind: *mut c_int,
    scope: *mut c_int,
) -> c_int {
    let found = made().and_then(|_| item(controls::all(), index));
    // SAFETY: the contract of this module.
    ended(found.map(|variable| unsafe {
        give_text(name, name_length, &controls::name(variable));
        give_if(verbosity, MPI_T_VERBOSITY_USER_BASIC);
        give_if(datatype, MPI_CHAR);
        give_if(enumeration, MPI_T_ENUM_NULL);
        give_text(description, description_length, variable.description);
        give_if(bind, MPI_T_BIND_NO_OBJECT);
        give_if(scope, controls::scope(variable));
    }))
}

pub(crate) unsafe fn t_cvar_get_index(of: *const c_char, index: *mut c_int) -> c_int {
    ended(made().and_then(|_| {
        // SAFETY: the contract of this module.
        let of = unsafe { name(of) }?;
        // SAFETY: the contract of this module.
        unsafe { give(index, index_of(controls::all(), |variable| controls::name(variable) == of)?) }
    }))
}

pub(crate) unsafe fn t_cvar_handle_alloc(
    index: c_int,
    _: *mut c_void,
    handle: *mut MPI_T_cvar_handle,
    count: *mut c_int,
) -> c_int {
    ended(made().and_then(|mut made| {
        item(controls::all(), index)?;
        if handle.is_null() {
            return Err(MPI_T_ERR_INVALID);
        }
        let number = made.new_handle();
        made.controls.insert(number, index as usize);
        // SAFETY: the contract of this module.
        unsafe { give_if(count, controls::LONGEST as c_int) };
        // SAFETY: the contract of this module.
        unsafe { give(handle, MPI_T_cvar_handle(number)) }
    }))
}

pub(crate) unsafe fn t_cvar_handle_free(handle: *mut MPI_T_cvar_handle) -> c_int {
    ended(made().and_then(|mut made| {
        // SAFETY: the contract of this module.
        let handle = unsafe { handle.as_mut() }.ok_or(MPI_T_ERR_INVALID)?;
        made.controls.remove(&handle.0).ok_or(MPI_T_ERR_INVALID_HANDLE)?;
        *handle = MPI_T_CVAR_HANDLE_NULL;
        Ok(())
    }))
}

/// The variable of a handle.
fn variable(handle: MPI_T_cvar_handle) -> Outcome<&'static Variable> {
    let index = made()?.controls.get(&handle.0).copied();
    index.and_then(|index| controls::all().get(index)).ok_or(MPI_T_ERR_INVALID_HANDLE)
}

pub(crate) unsafe fn t_cvar_read(handle: MPI_T_cvar_handle, to: *mut c_void) -> c_int {
    ended(variable(handle).and_then(|variable| {
        if to.is_null() {
            return Err(MPI_T_ERR_INVALID);
        }
        let value = controls::read(variable);
        let bytes = (value.len() + 1).min(controls::LONGEST);
        // SAFETY: not null; the program promises room for the longest value.
        copy_text(unsafe { core::slice::from_raw_parts_mut(to.cast::<u8>(), bytes) }, &value);
        Ok(())
    }))
}

pub(crate) unsafe fn t_cvar_write(handle: MPI_T_cvar_handle, from: *const c_void) -> c_int {
    ended(variable(handle).and_then(|variable| {
        // SAFETY: the contract of this module.
        let value = unsafe { text(from.cast()) }?.to_str().map_err(|_| MPI_T_ERR_INVALID)?;
        controls::write(variable, value)
    }))
}
