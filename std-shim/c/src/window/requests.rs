//! The exported functions that read, write and update the memory of a rank with a request.

use core::ffi::c_void;

use unisono::{Rank, Window};

use super::{WINDOWS, unisono_window};
use crate::datatype::{Buffer, unisono_datatype};
use crate::one_sided::{Operation, start, update_of};
use crate::operation::unisono_operation;
use crate::request::unisono_request;
use crate::result::unisono_result;

/// As `unisono_put`, with a request, which is complete when the target has received the elements. They are there after a
/// flush.
///
/// # Safety
/// As of all functions: the buffer has the elements that the datatype names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_request_put(
    window: unisono_window,
    data: *const c_void,
    count: usize,
    datatype: unisono_datatype,
    rank: u32,
    offset: usize,
    request: *mut unisono_request,
) -> unisono_result {
    let put = |window: &'static Window| {
        // SAFETY: the caller answers for the buffer.
        let (bytes, _) = unsafe { Buffer { start: data.cast_mut(), count, datatype }.packed() }?;
        Ok(Operation::Put(window.request_put(&*bytes, Rank(rank), offset)?))
    };
    // SAFETY: the caller answers for the pointer.
    unsafe { start(&WINDOWS, window, request, put) }
}

/// As `unisono_get`, with a request. The elements are in the buffer when it is complete.
///
/// # Safety
/// As of all functions: the buffer has the elements that the datatype names, until the request is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_request_get(
    window: unisono_window,
    data: *mut c_void,
    count: usize,
    datatype: unisono_datatype,
    rank: u32,
    offset: usize,
    request: *mut unisono_request,
) -> unisono_result {
    let get = |window: &'static Window| {
        let buffer = Buffer { start: data, count, datatype };
        Ok(Operation::Get(window.request_get(buffer.bytes()?, Rank(rank), offset)?, buffer))
    };
    // SAFETY: the caller answers for the pointer.
    unsafe { start(&WINDOWS, window, request, get) }
}

/// As `unisono_accumulate`, with a request.
///
/// # Safety
/// As of all functions: the buffer has the elements that the datatype names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_request_accumulate(
    window: unisono_window,
    data: *const c_void,
    count: usize,
    datatype: unisono_datatype,
    operation: unisono_operation,
    rank: u32,
    offset: usize,
    request: *mut unisono_request,
) -> unisono_result {
    let update = |window: &'static Window| {
        // SAFETY: the caller answers for the buffer.
        let (bytes, update) = unsafe { update_of(data, count, datatype, operation) }?;
        Ok(Operation::Put(window.raw_request_update(update, &bytes, Rank(rank), offset)?))
    };
    // SAFETY: the caller answers for the pointer.
    unsafe { start(&WINDOWS, window, request, update) }
}

/// As `unisono_get_accumulate`, with a request. The old elements are in `old` when it is complete.
///
/// # Safety
/// As of all functions: both buffers have the elements that the datatype names, `old` until the request is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_request_get_accumulate(
    window: unisono_window,
    data: *const c_void,
    old: *mut c_void,
    count: usize,
    datatype: unisono_datatype,
    operation: unisono_operation,
    rank: u32,
    offset: usize,
    request: *mut unisono_request,
) -> unisono_result {
    let update = |window: &'static Window| {
        // SAFETY: the caller answers for the buffer.
        let (bytes, update) = unsafe { update_of(data, count, datatype, operation) }?;
        let old = Buffer { start: old, count, datatype };
        old.bytes()?;
        Ok(Operation::Get(window.raw_request_fetch(update, &bytes, Rank(rank), offset)?, old))
    };
    // SAFETY: the caller answers for the pointer.
    unsafe { start(&WINDOWS, window, request, update) }
}
