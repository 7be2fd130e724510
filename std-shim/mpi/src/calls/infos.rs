//! Info objects.

use core::ffi::{CStr, c_char, c_int};
use std::ffi::CString;

use crate::abi::*;
use crate::calls::{give, text};
use crate::error::{Outcome, finish};
use crate::handle::{FIRST_ADDRESS, Object, release, resolve};
use crate::info::Info;

unsafe fn made(to: *mut MPI_Info, info: Info) -> Outcome {
    // SAFETY: the contract of this module.
    unsafe { give(to, MPI_Info(Object::into_handle(Object::new(info)))) }
}

/// A key, which is neither empty nor too long.
unsafe fn key<'a>(from: *const c_char) -> Outcome<&'a CStr> {
    if from.is_null() {
        return Err(MPI_ERR_INFO_KEY);
    }
    // SAFETY: the contract of this module.
    let key = unsafe { text(from) }?;
    let bytes = key.to_bytes().len();
    if bytes == 0 || bytes >= MPI_MAX_INFO_KEY as usize { Err(MPI_ERR_INFO_KEY) } else { Ok(key) }
}

unsafe fn find(info: MPI_Info, from: *const c_char) -> Outcome<Option<CString>> {
    // SAFETY: the contract of this module.
    let (info, key) = unsafe { (resolve::<Info>(info.0)?, key(from)?) };
    let all = info.0.lock();
    Ok(all.iter().find(|(other, _)| &**other == key).map(|(_, value)| value.clone()))
}

pub(crate) unsafe fn info_create(info: *mut MPI_Info) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { made(info, Info::default()) })
}

pub(crate) unsafe fn info_create_env(_: c_int, _: *mut *mut c_char, info: *mut MPI_Info) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { made(info, Info::environment()) })
}

pub(crate) unsafe fn info_set(info: MPI_Info, from: *const c_char, value: *const c_char) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let (info, key) = (resolve::<Info>(info.0)?, key(from)?);
            if value.is_null() {
                return Err(MPI_ERR_INFO_VALUE);
            }
            let value = text(value)?;
            let bytes = value.to_bytes().len();
            if bytes == 0 || bytes >= MPI_MAX_INFO_VAL as usize {
                return Err(MPI_ERR_INFO_VALUE);
            }
            info.set(key.to_owned(), value.to_owned());
            Ok(())
        })()
    })
}

pub(crate) unsafe fn info_delete(info: MPI_Info, from: *const c_char) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let (info, key) = (resolve::<Info>(info.0)?, key(from)?);
            let mut all = info.0.lock();
            let at = all.iter().position(|(other, _)| &**other == key).ok_or(MPI_ERR_INFO_NOKEY)?;
            all.remove(at);
            Ok(())
        })()
    })
}

/// Writes as much of a value as there is room for with its zero.
unsafe fn give_value(to: *mut c_char, room: usize, value: &CStr) -> Outcome {
    if room == 0 {
        return Ok(());
    }
    if to.is_null() {
        return Err(MPI_ERR_ARG);
    }
    let bytes = value.to_bytes();
    let kept = bytes.get(..room - 1).unwrap_or(bytes);
    for (at, byte) in kept.iter().chain(&[0]).enumerate() {
        // SAFETY: the contract of this module: there is room.
        unsafe { to.add(at).write(*byte as c_char) };
    }
    Ok(())
}

pub(crate) unsafe fn info_get(
    info: MPI_Info,
    from: *const c_char,
    length: c_int,
    value: *mut c_char,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let found = find(info, from)?;
            if let Some(found) = &found {
                let length = usize::try_from(length).map_err(|_| MPI_ERR_ARG)?;
                give_value(value, length + 1, found)?;
            }
            give(flag, found.is_some().into())
        })()
    })
}

pub(crate) unsafe fn info_get_string(
    info: MPI_Info,
    from: *const c_char,
    length: *mut c_int,
    value: *mut c_char,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let found = find(info, from)?;
            if let Some(found) = &found {
                let room = usize::try_from(*length.as_ref().ok_or(MPI_ERR_ARG)?).map_err(|_| MPI_ERR_ARG)?;
                give_value(value, room, found)?;
                give(length, found.to_bytes().len() as c_int + 1)?;
            }
            give(flag, found.is_some().into())
        })()
    })
}

pub(crate) unsafe fn info_get_valuelen(
    info: MPI_Info,
    from: *const c_char,
    length: *mut c_int,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let found = find(info, from)?;
            if let Some(found) = &found {
                give(length, found.to_bytes().len() as c_int)?;
            }
            give(flag, found.is_some().into())
        })()
    })
}

pub(crate) unsafe fn info_get_nkeys(info: MPI_Info, number: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { resolve::<Info>(info.0).and_then(|info| give(number, info.0.lock().len() as c_int)) })
}

pub(crate) unsafe fn info_get_nthkey(info: MPI_Info, number: c_int, to: *mut c_char) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        resolve::<Info>(info.0).and_then(|info| {
            let all = info.0.lock();
            let found = usize::try_from(number).ok().and_then(|number| all.get(number)).ok_or(MPI_ERR_ARG)?;
            give_value(to, MPI_MAX_INFO_KEY as usize, &found.0)
        })
    })
}

pub(crate) unsafe fn info_dup(info: MPI_Info, new: *mut MPI_Info) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { resolve::<Info>(info.0).and_then(|info| made(new, info.duplicate())) })
}

pub(crate) unsafe fn info_free(info: *mut MPI_Info) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let handle = *info.as_ref().ok_or(MPI_ERR_ARG)?;
            if handle.0 < FIRST_ADDRESS {
                return Err(MPI_ERR_INFO);
            }
            drop(release::<Info>(handle.0)?);
            give(info, MPI_INFO_NULL)
        })()
    })
}
