//! Reduction operations: the library's, and functions of the program.

use alloc::sync::Arc;
use core::ffi::c_void;
use core::ptr::NonNull;

use unisono::collective::Operation;
use unisono::raw::RawUpdate;
use unisono_core::collective::Order;
use unisono_shmem::reduction_ops::{Element, ReduceOperation, kind};
use unisono_shmem::slot_collectives::data_executor::{Builtin, ReductionOp};

use crate::datatype::store;
use crate::handle::{Kind, Table};
use crate::result::unisono_result::{self, UNISONO_ERROR_HANDLE, UNISONO_ERROR_OPERATION};
use crate::result::{Error, call};

/// A reduction operation: a predefined one, or made by a call.
#[allow(non_camel_case_types, reason = "a name of C")]
pub type unisono_operation = u64;

/// left + right; integers wrap.
pub const UNISONO_SUM: unisono_operation = 1;
/// left × right; integers wrap.
pub const UNISONO_PRODUCT: unisono_operation = 2;
/// The lesser one.
pub const UNISONO_MIN: unisono_operation = 3;
/// The greater one.
pub const UNISONO_MAX: unisono_operation = 4;
/// 1 where both are not 0, else 0.
pub const UNISONO_LOGICAL_AND: unisono_operation = 5;
/// 1 where one is not 0, else 0.
pub const UNISONO_LOGICAL_OR: unisono_operation = 6;
/// 1 where exactly one is not 0, else 0.
pub const UNISONO_LOGICAL_XOR: unisono_operation = 7;
/// left & right.
pub const UNISONO_BITWISE_AND: unisono_operation = 8;
/// left | right.
pub const UNISONO_BITWISE_OR: unisono_operation = 9;
/// left ^ right.
pub const UNISONO_BITWISE_XOR: unisono_operation = 10;

/// The right operand: an update of a window stores it. Only for windows.
pub const UNISONO_REPLACE: unisono_operation = 11;
/// The left operand: an update of a window reads it. Only for windows.
pub const UNISONO_NO_OP: unisono_operation = 12;

/// A function that combines `count` elements: `result[i] = left[i] · right[i]`. It must be associative. `result` is
/// `left`, `right` or elsewhere; all are aligned to 16 bytes. It is called in any thread that makes progress, must not
/// call the library, and must neither throw nor `longjmp`.
#[allow(non_camel_case_types, reason = "a name of C")]
pub type unisono_function = Option<
    unsafe extern "C" fn(
        left: *const c_void,
        right: *const c_void,
        result: *mut c_void,
        count: usize,
        context: *mut c_void,
    ),
>;

/// What an operation does.
#[derive(Clone, Copy, Debug)]
enum Action {
    Predefined(ReduceOperation),
    Function {
        function: unsafe extern "C" fn(*const c_void, *const c_void, *mut c_void, usize, *mut c_void),
        context: usize,
    },
}

/// An operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Described {
    action: Action,
    order: Order,
}

static OPERATIONS: Table<Arc<Described>> = Table::new(Kind::Operation);

fn described(handle: unisono_operation) -> Result<Described, Error> {
    let predefined = match handle {
        UNISONO_SUM => ReduceOperation::Sum,
        UNISONO_PRODUCT => ReduceOperation::Product,
        UNISONO_MIN => ReduceOperation::Min,
        UNISONO_MAX => ReduceOperation::Max,
        UNISONO_LOGICAL_AND => ReduceOperation::LogicalAnd,
        UNISONO_LOGICAL_OR => ReduceOperation::LogicalOr,
        UNISONO_LOGICAL_XOR => ReduceOperation::LogicalXor,
        UNISONO_BITWISE_AND => ReduceOperation::BitwiseAnd,
        UNISONO_BITWISE_OR => ReduceOperation::BitwiseOr,
        UNISONO_BITWISE_XOR => ReduceOperation::BitwiseXor,
        handle if handle >> 56 == 0 => {
            return Err(Error::new(UNISONO_ERROR_HANDLE, format!("there is no predefined operation {handle}")));
        }
        handle => return OPERATIONS.get(handle).map(|described| *described),
    };
    Ok(Described { action: Action::Predefined(predefined), order: Order::Any })
}

/// The type of the elements, for which the operation is defined.
fn defined(operation: ReduceOperation, element: Option<Element>) -> Result<Element, Error> {
    let found = element.filter(|element| Builtin::new(operation, *element).is_some());
    found.ok_or_else(|| Error::new(UNISONO_ERROR_OPERATION, "the operation is not defined for this datatype"))
}

/// The update of a window by an operation: a predefined one.
pub(crate) fn update(handle: unisono_operation, element: Element) -> Result<RawUpdate, Error> {
    match handle {
        UNISONO_REPLACE => Ok(RawUpdate::new(None, element)),
        UNISONO_NO_OP => Ok(RawUpdate::read(element)),
        handle => match described(handle)?.action {
            Action::Predefined(operation) => {
                defined(operation, Some(element))?;
                Ok(RawUpdate::new(Some(operation), element))
            }
            Action::Function { .. } => {
                Err(Error::new(UNISONO_ERROR_OPERATION, "functions of the program do not update windows"))
            }
        },
    }
}

/// An operation on elements of a type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnElements {
    described: Described,
    /// Bytes of an element.
    bytes: usize,
    element: Option<Element>,
}

/// The operation that a handle names, on elements of `bytes` bytes, of this type if it is a predefined one.
pub(crate) fn operation(
    handle: unisono_operation,
    bytes: usize,
    element: Option<Element>,
) -> Result<OnElements, Error> {
    let described = described(handle)?;
    let bytes = match (described.action, element) {
        (Action::Predefined(operation), element) => defined(operation, element)?.bytes(),
        (Action::Function { .. }, _) => bytes,
    };
    if bytes == 0 {
        return Err(Error::new(UNISONO_ERROR_OPERATION, "elements without bytes cannot be reduced"));
    }
    Ok(OnElements { described, bytes, element })
}

impl Operation<u8> for OnElements {
    fn order(&self) -> Order {
        self.described.order
    }

    fn kind(&self) -> u32 {
        match (self.described.action, self.element) {
            (Action::Predefined(operation), Some(element)) => kind(operation, element),
            _ => 1 << 16 | (self.bytes as u32) << 1 | u32::from(self.described.order == Order::Rank),
        }
    }

    fn grain(&self) -> usize {
        self.bytes
    }

    fn operate(self) -> Option<impl ReductionOp + Send> {
        match (self.described.action, self.element) {
            (Action::Predefined(operation), Some(element)) => Some(Combine::Builtin(Builtin::new(operation, element)?)),
            (Action::Predefined(_), None) => None,
            (Action::Function { function, context }, _) => {
                Some(Combine::Function(Function { function, context, bytes: self.bytes }))
            }
        }
    }
}

enum Combine {
    Builtin(Builtin),
    Function(Function),
}

impl ReductionOp for Combine {
    unsafe fn combine(&mut self, left: NonNull<u8>, right: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
        match self {
            // SAFETY: under the same promises of the caller.
            Self::Builtin(builtin) => unsafe { builtin.combine(left, right, into, bytes) },
            // SAFETY: under the same promises of the caller.
            Self::Function(function) => unsafe { function.combine(left, right, into, bytes) },
        }
    }
}

/// Alignment of what a function gets.
const ALIGNMENT: usize = 16;
/// Bytes that are copied at a time for a function where they are not aligned.
const CHUNK: usize = 1 << 14;

struct Function {
    function: unsafe extern "C" fn(*const c_void, *const c_void, *mut c_void, usize, *mut c_void),
    /// the address of the program's context: the program answers for its use in other threads.
    context: usize,
    bytes: usize,
}

/// Aligned bytes.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Aligned([u8; ALIGNMENT]);

impl Function {
    unsafe fn run(&self, left: *const u8, right: *const u8, into: *mut u8, bytes: usize) {
        let context = core::ptr::with_exposed_provenance_mut(self.context);
        // SAFETY: the program says that the function combines that many elements at these places, which the caller
        // promises are valid; it neither throws nor jumps.
        unsafe { (self.function)(left.cast(), right.cast(), into.cast(), bytes / self.bytes, context) };
    }

    unsafe fn combine(&self, left: NonNull<u8>, right: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
        if [left, right, into].iter().all(|place| place.addr().get().is_multiple_of(ALIGNMENT)) {
            // SAFETY: under the same promises of the caller.
            return unsafe { self.run(left.as_ptr(), right.as_ptr(), into.as_ptr(), bytes) };
        }
        let chunk = (CHUNK / self.bytes).max(1).saturating_mul(self.bytes).min(bytes);
        let mut copies = [(); 2].map(|()| vec![Aligned([0; ALIGNMENT]); chunk.div_ceil(ALIGNMENT)]);
        let [first, second] = copies.each_mut().map(|copy| copy.as_mut_ptr().cast::<u8>());
        for at in (0..bytes).step_by(chunk.max(1)) {
            let length = chunk.min(bytes - at);
            // SAFETY: within the bytes that the caller promises are readable; the copy has as many.
            unsafe { left.as_ptr().wrapping_add(at).copy_to_nonoverlapping(first, length) };
            // SAFETY: within the bytes that the caller promises are readable; the copy has as many.
            unsafe { right.as_ptr().wrapping_add(at).copy_to_nonoverlapping(second, length) };
            // SAFETY: the copies have as many bytes.
            unsafe { self.run(first, second, first, length) };
            // SAFETY: within the bytes that the caller promises are writable; the copy has as many.
            unsafe { into.as_ptr().wrapping_add(at).copy_from_nonoverlapping(first, length) };
        }
    }
}

/// Makes an operation of a function. If it does not commute, elements are combined in rank order. `context` is passed to
/// each call.
///
/// # Safety
/// As of all functions; `function` does what `unisono_function` demands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_operation_create(
    function: unisono_function,
    commutes: bool,
    context: *mut c_void,
    operation: *mut unisono_operation,
) -> unisono_result {
    call(|| {
        let function = function.ok_or_else(|| Error::argument("function is NULL"))?;
        let action = Action::Function { function, context: context.expose_provenance() };
        let order = if commutes { Order::Any } else { Order::Rank };
        crate::datatype::check(operation, "operation")?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(operation, "operation", OPERATIONS.insert(Arc::new(Described { action, order }))) }
    })
}

/// Makes an operation that gives the same bits from run to run, for any placement of ranks, device and algorithm.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_operation_reproducible(
    operation: unisono_operation,
    made: *mut unisono_operation,
) -> unisono_result {
    call(|| {
        crate::datatype::check(made, "made")?;
        let fixed = Described { order: Order::Fixed, ..described(operation)? };
        // SAFETY: the caller answers for the pointer.
        unsafe { store(made, "made", OPERATIONS.insert(Arc::new(fixed))) }
    })
}

/// Frees an operation. What was started with it goes on.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_operation_free(operation: unisono_operation) -> unisono_result {
    call(|| OPERATIONS.remove(operation).map(drop))
}
