//! Attributes and their keys, by today's and yesterday's functions.

use core::ffi::{c_int, c_void};

use crate::abi::*;
use crate::attribute::{Owner, create, free};
use crate::calls::give;
use crate::communicator::Comm;
use crate::datatype::Datatype;
use crate::error::{Outcome, finish, on};
use crate::handle::{Object, resolve};

unsafe fn free_key(owner: Owner, key: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            free(owner, *key.as_ref().ok_or(MPI_ERR_ARG)?)?;
            give(key, MPI_KEYVAL_INVALID)
        })()
    })
}

/// Writes the value of an attribute, and whether it is set.
pub unsafe fn give_value(value: Option<usize>, to: *mut c_void, flag: *mut c_int) -> Outcome {
    // SAFETY: the contract of this module.
    unsafe {
        if let Some(value) = value {
            give(to.cast::<*mut c_void>(), core::ptr::with_exposed_provenance_mut(value))?;
        }
        give(flag, value.is_some().into())
    }
}

/// The address of a predefined attribute's value.
fn predefined(key: c_int) -> Option<usize> {
    use core::sync::atomic::{AtomicI32, Ordering};
    static TAG_LIMIT: AtomicI32 = AtomicI32::new(c_int::MAX);
    static HOST: AtomicI32 = AtomicI32::new(MPI_PROC_NULL);
    static ANY: AtomicI32 = AtomicI32::new(MPI_ANY_SOURCE);
    static NO: AtomicI32 = AtomicI32::new(0);
    static LAST: AtomicI32 = AtomicI32::new(0);
    static SIZE: AtomicI32 = AtomicI32::new(0);
    let of = match key {
        MPI_TAG_UB => &TAG_LIMIT,
        MPI_HOST => &HOST,
        MPI_IO => &ANY,
        MPI_WTIME_IS_GLOBAL | MPI_APPNUM => &NO,
        MPI_LASTUSEDCODE => {
            LAST.store(crate::error::last_code(), Ordering::Relaxed);
            &LAST
        }
        MPI_UNIVERSE_SIZE => {
            let size = crate::communicator::world_communicator().map_or(0, |world| world.size);
            SIZE.store(size as c_int, Ordering::Relaxed);
            &SIZE
        }
        _ => return None,
    };
    Some(of.as_ptr().expose_provenance())
}

pub(crate) unsafe fn comm_create_keyval(
    copy: Callback,
    delete: Callback,
    key: *mut c_int,
    extra: *mut c_void,
) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { give(key, create(Owner::Communicator, copy, delete, extra)) })
}

pub(crate) unsafe fn keyval_create(copy: Callback, delete: Callback, key: *mut c_int, extra: *mut c_void) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { comm_create_keyval(copy, delete, key, extra) }
}

pub(crate) unsafe fn comm_free_keyval(key: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { free_key(Owner::Communicator, key) }
}

pub(crate) unsafe fn keyval_free(key: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { free_key(Owner::Communicator, key) }
}

pub(crate) unsafe fn type_free_keyval(key: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { free_key(Owner::Datatype, key) }
}

pub(crate) unsafe fn win_create_keyval(copy: Callback, delete: Callback, key: *mut c_int, extra: *mut c_void) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { give(key, create(Owner::Window, copy, delete, extra)) })
}

pub(crate) unsafe fn win_free_keyval(key: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { free_key(Owner::Window, key) }
}

fn settable(key: c_int) -> Outcome {
    if predefined(key).is_some() { Err(MPI_ERR_KEYVAL) } else { Ok(()) }
}

pub(crate) unsafe fn comm_set_attr(comm: MPI_Comm, key: c_int, value: *mut c_void) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |of: &Object<Comm>| {
            settable(key)?;
            of.attributes.set(Owner::Communicator, comm.0, key, value)
        })
    }
}

pub(crate) unsafe fn comm_get_attr(comm: MPI_Comm, key: c_int, value: *mut c_void, flag: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |of: &Object<Comm>| match predefined(key) {
            Some(at) => give_value(Some(at), value, flag),
            None => give_value(of.attributes.get(Owner::Communicator, key)?, value, flag),
        })
    }
}

pub(crate) unsafe fn comm_delete_attr(comm: MPI_Comm, key: c_int) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |of: &Object<Comm>| {
            settable(key)?;
            of.attributes.delete(Owner::Communicator, comm.0, key)
        })
    }
}

pub(crate) unsafe fn attr_put(comm: MPI_Comm, key: c_int, value: *mut c_void) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { comm_set_attr(comm, key, value) }
}

pub(crate) unsafe fn attr_get(comm: MPI_Comm, key: c_int, value: *mut c_void, flag: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { comm_get_attr(comm, key, value, flag) }
}

pub(crate) unsafe fn attr_delete(comm: MPI_Comm, key: c_int) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { comm_delete_attr(comm, key) }
}

pub(crate) unsafe fn type_set_attr(datatype: MPI_Datatype, key: c_int, value: *mut c_void) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        resolve::<Datatype>(datatype.0).and_then(|of| of.attributes.set(Owner::Datatype, datatype.0, key, value))
    })
}

pub(crate) unsafe fn type_get_attr(datatype: MPI_Datatype, key: c_int, value: *mut c_void, flag: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        resolve::<Datatype>(datatype.0).and_then(|of| give_value(of.attributes.get(Owner::Datatype, key)?, value, flag))
    })
}

pub(crate) unsafe fn type_delete_attr(datatype: MPI_Datatype, key: c_int) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        resolve::<Datatype>(datatype.0).and_then(|of| of.attributes.delete(Owner::Datatype, datatype.0, key))
    })
}
