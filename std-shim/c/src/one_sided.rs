//! What windows and regions share: how they are made, and the operations on them.

use alloc::borrow::Cow;
use alloc::sync::Arc;
use core::any::Any;
use core::ffi::c_void;
use core::ptr::NonNull;

use unisono::raw::{Element, RawUpdate};
use unisono::{Communicator, GetRequest, PutRequest, WindowError};

use crate::communicator::{member, unisono_communicator};
use crate::datatype::{Buffer, check, store, unisono_datatype};
use crate::handle::Table;
use crate::operation::{self, unisono_operation};
use crate::request::{insert_one_sided, unisono_request};
use crate::result::unisono_result::{self, UNISONO_ERROR_OPERATION};
use crate::result::{Error, call};

/// Memory of the program; any place if it is empty.
pub(crate) fn memory(start: *mut c_void, bytes: usize) -> Result<NonNull<u8>, Error> {
    let start = NonNull::new(start.cast());
    match start {
        Some(start) if isize::try_from(bytes).is_ok() => Ok(start),
        None if bytes == 0 => Ok(NonNull::dangling()),
        _ => Err(Error::argument("the memory is NULL or too long")),
    }
}

/// Makes a value over a communicator, and stores its handle.
///
/// # Safety
/// `into` is writable or NULL.
pub(crate) unsafe fn made<T>(
    table: &Table<Arc<T>>,
    communicator: unisono_communicator,
    (name, into): (&str, *mut u64),
    make: impl FnOnce(&Communicator) -> Result<T, Error>,
) -> unisono_result {
    call(|| {
        check(into, name)?;
        let value = make(member(communicator)?.communicator())?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(into, name, table.insert(Arc::new(value))) }
    })
}

/// The type of elements that are updated.
fn expect_element(element: Option<Element>) -> Result<Element, Error> {
    let reason = "elements of a window are updated as numbers: the datatype has none, or several kinds";
    element.ok_or_else(|| Error::new(UNISONO_ERROR_OPERATION, reason))
}

/// The elements of an update, and what it does with them.
///
/// # Safety
/// The buffer has the elements that the datatype names.
pub(crate) unsafe fn update_of<'a>(
    data: *const c_void,
    count: usize,
    datatype: unisono_datatype,
    operation: unisono_operation,
) -> Result<(Cow<'a, [u8]>, RawUpdate), Error> {
    // SAFETY: the caller answers for the buffer.
    let (bytes, element) = unsafe { Buffer { start: data.cast_mut(), count, datatype }.packed() }?;
    Ok((bytes, operation::update(operation, expect_element(element)?)?))
}

/// An element that is compared and swapped.
pub(crate) struct Swap {
    pub(crate) expected: *const c_void,
    pub(crate) desired: *const c_void,
    pub(crate) old: *mut c_void,
    pub(crate) datatype: unisono_datatype,
}

impl Swap {
    /// Calls `swap` with the expected and the desired element, zero-extended, and their bytes, and stores the old one that
    /// it returns.
    ///
    /// # Safety
    /// Each buffer has an element of the datatype.
    pub(crate) unsafe fn execute(
        self,
        swap: impl FnOnce(u64, u64, usize) -> Result<u64, WindowError>,
    ) -> Result<(), Error> {
        let one = |start: *const c_void| Buffer { start: start.cast_mut(), count: 1, datatype: self.datatype };
        // SAFETY: the caller answers for the buffer.
        let (expected, element) = unsafe { one(self.expected).packed() }?;
        // SAFETY: the caller answers for the buffer.
        let (desired, _) = unsafe { one(self.desired).packed() }?;
        let bytes = expect_element(element)?.bytes();
        if bytes != expected.len() || !matches!(bytes, 1 | 2 | 4 | 8) {
            let reason = "one element of 1, 2, 4 or 8 bytes can be compared and swapped";
            return Err(Error::new(UNISONO_ERROR_OPERATION, reason));
        }
        let word = |bytes: &[u8]| {
            let mut word = [0; 8];
            word.iter_mut().zip(bytes).for_each(|(into, byte)| *into = *byte);
            u64::from_le_bytes(word)
        };
        let found = swap(word(&expected), word(&desired), bytes)?.to_le_bytes();
        let store = |old: &mut [u8], _| {
            old.iter_mut().zip(found).for_each(|(into, byte)| *into = byte);
            Ok(())
        };
        // SAFETY: the caller answers for the buffer.
        unsafe { one(self.old).fill(store) }
    }
}

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

/// Starts an operation on the value that a handle names, and stores its request.
///
/// # Safety
/// `request` is writable or NULL.
pub(crate) unsafe fn start<T: Send + Sync + 'static>(
    table: &Table<Arc<T>>,
    handle: u64,
    request: *mut unisono_request,
    start: impl FnOnce(&'static T) -> Result<Operation, Error>,
) -> unisono_result {
    call(|| {
        check(request, "request")?;
        let of = table.get(handle)?;
        // SAFETY: a lifetime only: the request is dropped before the value, which it holds.
        let lasting = unsafe { NonNull::from(&*of).as_ref() };
        let started = OneSided { started: start(lasting)?, _of: of };
        // SAFETY: the caller answers for the pointer.
        unsafe { store(request, "request", insert_one_sided(started)) }
    })
}
