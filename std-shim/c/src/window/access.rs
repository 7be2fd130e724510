//! The exported functions that read, write and update the memory of a rank.

use core::ffi::c_void;

use unisono::{Rank, Window};

use super::{WINDOWS, on, unisono_window};
use crate::datatype::{Buffer, datatype as datatype_of, unisono_datatype};
use crate::one_sided::{Swap, update_of};
use crate::operation::unisono_operation;
use crate::result::call;
use crate::result::unisono_result;

/// Copies elements to the memory of a rank, from byte `offset` on. Their memory can be used again when this returns.
///
/// # Safety
/// As of all functions: the buffer has the elements that the datatype names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_put(
    window: unisono_window,
    data: *const c_void,
    count: usize,
    datatype: unisono_datatype,
    rank: u32,
    offset: usize,
) -> unisono_result {
    call(|| {
        // SAFETY: the caller answers for the buffer.
        let (bytes, _) = unsafe { Buffer { start: data.cast_mut(), count, datatype }.packed() }?;
        Ok(WINDOWS.get(window)?.put(&*bytes, Rank(rank), offset)?)
    })
}

/// Copies elements from the memory of a rank, from byte `offset` on, and waits for them.
///
/// # Safety
/// As of all functions: the buffer has the elements that the datatype names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_get(
    window: unisono_window,
    data: *mut c_void,
    count: usize,
    datatype: unisono_datatype,
    rank: u32,
    offset: usize,
) -> unisono_result {
    call(|| {
        let window = WINDOWS.get(window)?;
        let buffer = Buffer { start: data, count, datatype };
        // SAFETY: the caller answers for the buffer.
        unsafe { buffer.fill(|bytes, _| Ok(window.get(bytes, Rank(rank), offset)?)) }
    })
}

/// As `unisono_put`, to `target_count` elements of another datatype there, the first of which is at byte `offset`. They
/// have as many bytes, and may have gaps.
///
/// # Safety
/// As of all functions: the buffer has the elements that the datatype names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_put_typed(
    window: unisono_window,
    data: *const c_void,
    count: usize,
    datatype: unisono_datatype,
    rank: u32,
    offset: usize,
    target_count: usize,
    target_datatype: unisono_datatype,
) -> unisono_result {
    call(|| {
        // SAFETY: the caller answers for the buffer.
        let (bytes, _) = unsafe { Buffer { start: data.cast_mut(), count, datatype }.packed() }?;
        let there = datatype_of(target_datatype)?.datatype;
        Ok(WINDOWS.get(window)?.put_typed(&*bytes, Rank(rank), offset, target_count, &there)?)
    })
}

/// As `unisono_get`, from `target_count` elements of another datatype there, the first of which is at byte `offset`.
///
/// # Safety
/// As of all functions: the buffer has the elements that the datatype names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_get_typed(
    window: unisono_window,
    data: *mut c_void,
    count: usize,
    datatype: unisono_datatype,
    rank: u32,
    offset: usize,
    target_count: usize,
    target_datatype: unisono_datatype,
) -> unisono_result {
    call(|| {
        let (window, there) = (WINDOWS.get(window)?, datatype_of(target_datatype)?.datatype);
        let buffer = Buffer { start: data, count, datatype };
        let get = |bytes: &mut [u8]| window.get_typed(bytes, Rank(rank), offset, target_count, &there);
        // SAFETY: the caller answers for the buffer.
        unsafe { buffer.fill(|bytes, _| Ok(get(bytes)?)) }
    })
}

/// As `unisono_accumulate`, into `target_count` elements of another datatype there, the first of which is at byte
/// `offset`.
///
/// # Safety
/// As of all functions: the buffer has the elements that the datatype names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_accumulate_typed(
    window: unisono_window,
    data: *const c_void,
    count: usize,
    datatype: unisono_datatype,
    operation: unisono_operation,
    rank: u32,
    offset: usize,
    target_count: usize,
    target_datatype: unisono_datatype,
) -> unisono_result {
    call(|| {
        // SAFETY: the caller answers for the buffer.
        let (bytes, update) = unsafe { update_of(data, count, datatype, operation) }?;
        let there = datatype_of(target_datatype)?.datatype;
        Ok(WINDOWS.get(window)?.raw_update_typed(update, &bytes, Rank(rank), offset, target_count, &there)?)
    })
}

/// Combines the elements in the memory of a rank, from byte `offset` on, with these, each atomically. The operation is a
/// predefined one, `UNISONO_REPLACE` among them.
///
/// # Safety
/// As of all functions: the buffer has the elements that the datatype names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_accumulate(
    window: unisono_window,
    data: *const c_void,
    count: usize,
    datatype: unisono_datatype,
    operation: unisono_operation,
    rank: u32,
    offset: usize,
) -> unisono_result {
    call(|| {
        // SAFETY: the caller answers for the buffer.
        let (bytes, update) = unsafe { update_of(data, count, datatype, operation) }?;
        Ok(WINDOWS.get(window)?.raw_update(update, &bytes, None, Rank(rank), offset)?)
    })
}

/// As `unisono_accumulate`; stores the old elements in `old`, which has as many, and waits for them. With one element it
/// is a fetch-and-op; with `UNISONO_NO_OP` an atomic read.
///
/// # Safety
/// As of all functions: both buffers have the elements that the datatype names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_get_accumulate(
    window: unisono_window,
    data: *const c_void,
    old: *mut c_void,
    count: usize,
    datatype: unisono_datatype,
    operation: unisono_operation,
    rank: u32,
    offset: usize,
) -> unisono_result {
    call(|| {
        // SAFETY: the caller answers for the buffer.
        let (bytes, update) = unsafe { update_of(data, count, datatype, operation) }?;
        let window = WINDOWS.get(window)?;
        let buffer = Buffer { start: old, count, datatype };
        // SAFETY: the caller answers for the buffer.
        unsafe { buffer.fill(|old, _| Ok(window.raw_update(update, &bytes, Some(old), Rank(rank), offset)?)) }
    })
}

/// Stores `desired` in an element of the memory of a rank if that equals `expected`, atomically; stores its old value in
/// `old`. The datatype has 1, 2, 4 or 8 bytes, which are compared.
///
/// # Safety
/// As of all functions: each buffer has an element of the datatype.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_compare_and_swap(
    window: unisono_window,
    expected: *const c_void,
    desired: *const c_void,
    old: *mut c_void,
    datatype: unisono_datatype,
    rank: u32,
    offset: usize,
) -> unisono_result {
    call(|| {
        let window = WINDOWS.get(window)?;
        // SAFETY: the caller answers for the buffers.
        unsafe {
            Swap { expected, desired, old, datatype }.execute(|expected, desired, bytes| {
                window.raw_compare_and_swap([expected, desired], bytes, Rank(rank), offset)
            })
        }
    })
}

/// Waits until all operations of this rank on the memory of a rank are done there.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_flush(window: unisono_window, rank: u32) -> unisono_result {
    on(window, |window| window.flush(Rank(rank)))
}

/// Waits until all operations of this rank on the window are done.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_flush_all(window: unisono_window) -> unisono_result {
    on(window, Window::flush_all)
}

/// Orders accesses of this rank to its memory of the window, and to that of ranks of its node.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_sync(window: unisono_window) -> unisono_result {
    on(window, |window| {
        window.sync();
        Ok(())
    })
}
