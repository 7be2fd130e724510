//! The exported functions that read, write and update the memory of a rank with a request.

use alloc::sync::Arc;
use core::any::Any;
use core::ffi::c_void;

use unisono::{GetRequest, PutRequest, Rank, Window};

use super::access::update_of;
use super::{WINDOWS, unisono_window};
use crate::datatype::{Buffer, check, store, unisono_datatype};
use crate::operation::unisono_operation;
use crate::request::{insert_one_sided, unisono_request};
use crate::result::unisono_result;
use crate::result::{Error, call};

/// An operation on a window or region that has started. It is dropped before that.
pub(crate) struct OneSided {
    started: Operation,
    _of: Arc<dyn Any + Send + Sync>,
}

pub(crate) enum Operation {
    Put(PutRequest<'static>),
    /// The data that arrives, and where it is stored at the end.
    Get(GetRequest<'static, u8>, Buffer),
}

// SAFETY: any thread may wait for the operation, and the program promises that nobody uses the buffer meanwhile.
unsafe impl Send for OneSided {}

impl OneSided {
    /// An operation on this window or region.
    pub(crate) fn new(started: Operation, of: Arc<dyn Any + Send + Sync>) -> Self {
        Self { started, _of: of }
    }

    pub(crate) fn is_done(&self) -> bool {
        match &self.started {
            Operation::Put(request) => request.is_done(),
            Operation::Get(request, _) => request.is_done(),
        }
    }

    /// Waits, and stores what has arrived.
    pub(crate) fn wait(self) -> Result<(), Error> {
        match self.started {
            Operation::Put(request) => Ok(request.wait()?),
            Operation::Get(request, buffer) => {
                let arrived = request.wait()?;
                let copy = |bytes: &mut [u8], _| {
                    bytes.iter_mut().zip(&arrived).for_each(|(into, byte)| *into = *byte);
                    Ok(())
                };
                // SAFETY: the program promises that the buffer is writable and nobody else's until the request is
                // complete.
                unsafe { buffer.fill(copy) }
            }
        }
    }
}

/// Starts an operation, and stores its request.
///
/// # Safety
/// `request` is writable or NULL.
unsafe fn start(
    window: unisono_window,
    request: *mut unisono_request,
    start: impl FnOnce(&'static Window) -> Result<Operation, Error>,
) -> unisono_result {
    call(|| {
        check(request, "request")?;
        let window = WINDOWS.get(window)?;
        // SAFETY: a lifetime only: the request is dropped before the window, which it holds.
        let lasting = unsafe { core::ptr::NonNull::from(&*window).as_ref() };
        let started = OneSided::new(start(lasting)?, window);
        // SAFETY: the caller answers for the pointer.
        unsafe { store(request, "request", insert_one_sided(started)) }
    })
}

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
    unsafe { start(window, request, put) }
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
    unsafe { start(window, request, get) }
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
    unsafe { start(window, request, update) }
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
    unsafe { start(window, request, update) }
}
