//! The exported functions that read, write and update a region.

use core::ffi::c_void;

use unisono::RemoteRegion;

use super::{REMOTE_REGIONS, unisono_remote_region};
use crate::datatype::{Buffer, unisono_datatype};
use crate::one_sided::{Operation, Swap, start, update_of};
use crate::operation::unisono_operation;
use crate::request::unisono_request;
use crate::result::call;
use crate::result::unisono_result;

/// Copies elements to a region, from byte `offset` on. Their memory can be used again when this returns.
///
/// # Safety
/// As of all functions: the buffer has the elements that the datatype names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_region_put(
    region: unisono_remote_region,
    data: *const c_void,
    count: usize,
    datatype: unisono_datatype,
    offset: usize,
) -> unisono_result {
    call(|| {
        // SAFETY: the caller answers for the buffer.
        let (bytes, _) = unsafe { Buffer { start: data.cast_mut(), count, datatype }.packed() }?;
        Ok(REMOTE_REGIONS.get(region)?.put(&*bytes, offset)?)
    })
}

/// Copies elements from a region, from byte `offset` on, and waits for them.
///
/// # Safety
/// As of all functions: the buffer has the elements that the datatype names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_region_get(
    region: unisono_remote_region,
    data: *mut c_void,
    count: usize,
    datatype: unisono_datatype,
    offset: usize,
) -> unisono_result {
    call(|| {
        let region = REMOTE_REGIONS.get(region)?;
        let buffer = Buffer { start: data, count, datatype };
        // SAFETY: the caller answers for the buffer.
        unsafe { buffer.fill(|bytes, _| Ok(region.get(bytes, offset)?)) }
    })
}

/// Combines the elements of a region, from byte `offset` on, with these, each atomically. The operation is a predefined
/// one, `UNISONO_REPLACE` among them.
///
/// # Safety
/// As of all functions: the buffer has the elements that the datatype names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_region_accumulate(
    region: unisono_remote_region,
    data: *const c_void,
    count: usize,
    datatype: unisono_datatype,
    operation: unisono_operation,
    offset: usize,
) -> unisono_result {
    call(|| {
        // SAFETY: the caller answers for the buffer.
        let (bytes, update) = unsafe { update_of(data, count, datatype, operation) }?;
        Ok(REMOTE_REGIONS.get(region)?.raw_update(update, &bytes, None, offset)?)
    })
}

/// As `unisono_region_accumulate`; stores the old elements in `old`, which has as many, and waits for them. With one
/// element it is a fetch-and-op; with `UNISONO_NO_OP` an atomic read.
///
/// # Safety
/// As of all functions: both buffers have the elements that the datatype names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_region_get_accumulate(
    region: unisono_remote_region,
    data: *const c_void,
    old: *mut c_void,
    count: usize,
    datatype: unisono_datatype,
    operation: unisono_operation,
    offset: usize,
) -> unisono_result {
    call(|| {
        // SAFETY: the caller answers for the buffer.
        let (bytes, update) = unsafe { update_of(data, count, datatype, operation) }?;
        let region = REMOTE_REGIONS.get(region)?;
        let buffer = Buffer { start: old, count, datatype };
        // SAFETY: the caller answers for the buffer.
        unsafe { buffer.fill(|old, _| Ok(region.raw_update(update, &bytes, Some(old), offset)?)) }
    })
}

/// Stores `desired` in an element of a region if that equals `expected`, atomically; stores its old value in `old`. The
/// datatype has 1, 2, 4 or 8 bytes, which are compared.
///
/// # Safety
/// As of all functions: each buffer has an element of the datatype.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_region_compare_and_swap(
    region: unisono_remote_region,
    expected: *const c_void,
    desired: *const c_void,
    old: *mut c_void,
    datatype: unisono_datatype,
    offset: usize,
) -> unisono_result {
    call(|| {
        let region = REMOTE_REGIONS.get(region)?;
        // SAFETY: the caller answers for the buffers.
        unsafe {
            Swap { expected, desired, old, datatype }
                .execute(|expected, desired, bytes| region.raw_compare_and_swap([expected, desired], bytes, offset))
        }
    })
}

/// Waits until all operations through this import of a region are done there.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_region_flush(region: unisono_remote_region) -> unisono_result {
    call(|| Ok(REMOTE_REGIONS.get(region)?.flush()?))
}

/// As `unisono_region_put`, with a request, which is complete when the target has received the elements. They are there
/// after a flush.
///
/// # Safety
/// As of all functions: the buffer has the elements that the datatype names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_region_request_put(
    region: unisono_remote_region,
    data: *const c_void,
    count: usize,
    datatype: unisono_datatype,
    offset: usize,
    request: *mut unisono_request,
) -> unisono_result {
    let put = |region: &'static RemoteRegion| {
        // SAFETY: the caller answers for the buffer.
        let (bytes, _) = unsafe { Buffer { start: data.cast_mut(), count, datatype }.packed() }?;
        Ok(Operation::Put(region.request_put(&*bytes, offset)?))
    };
    // SAFETY: the caller answers for the pointer.
    unsafe { start(&REMOTE_REGIONS, region, request, put) }
}

/// As `unisono_region_get`, with a request. The elements are in the buffer when it is complete.
///
/// # Safety
/// As of all functions: the buffer has the elements that the datatype names, until the request is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_region_request_get(
    region: unisono_remote_region,
    data: *mut c_void,
    count: usize,
    datatype: unisono_datatype,
    offset: usize,
    request: *mut unisono_request,
) -> unisono_result {
    let get = |region: &'static RemoteRegion| {
        let buffer = Buffer { start: data, count, datatype };
        Ok(Operation::Get(region.request_get(buffer.bytes()?, offset)?, buffer))
    };
    // SAFETY: the caller answers for the pointer.
    unsafe { start(&REMOTE_REGIONS, region, request, get) }
}
