//! Updates of the elements of a window, each by an atomic instruction of its width.
//!
//! What does not change from element to element is decided before the loop over them. Sums and bitwise operations of
//! integers are instructions of the processor; all others compare and swap. Replacements whose old values nobody wants
//! are stores that release: they become visible in their order, and a flush, which fences, orders them before what
//! follows it, as accumulates need. Everything else is sequentially consistent.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use unisono_core::rma::header::ElementUpdate;
use unisono_core::rma::region::Refusal;
use unisono_shmem::reduction_ops::{self, Element, Kernel, ReduceOperation};

use super::{NO_OP, REPLACE};

const ORDER: Ordering = Ordering::SeqCst;

/// What happens to each element.
#[derive(Clone, Copy)]
enum Combine {
    /// Integers: their sum, modulo 2 to the number of their bits.
    Add,
    And,
    Or,
    Xor,
    Kernel {
        kernel: Kernel,
        /// The sum of IEEE 754 binary32 or binary64 elements.
        adds_floats: bool,
    },
    Replace,
    NoOp,
}

/// An update that this process can execute.
#[derive(Clone, Copy)]
pub(super) struct ParsedUpdate {
    combine: Combine,
    /// Bytes of an element: 1, 2, 4 or 8.
    pub(super) grain: usize,
}

impl ParsedUpdate {
    pub(super) fn new(update: ElementUpdate) -> Result<Self, Refusal> {
        let element = *Element::ALL.get(usize::from(update.datatype)).ok_or(Refusal::Unsupported)?;
        let combine = match update.operation {
            REPLACE => Combine::Replace,
            NO_OP => Combine::NoOp,
            number => {
                let operation = *ReduceOperation::ALL.get(usize::from(number)).ok_or(Refusal::Unsupported)?;
                let kernel = reduction_ops::kernel(operation, element).ok_or(Refusal::Unsupported)?;
                let is_integer = element as u8 <= Element::U64 as u8;
                match operation {
                    ReduceOperation::Sum if is_integer => Combine::Add,
                    ReduceOperation::BitwiseAnd => Combine::And,
                    ReduceOperation::BitwiseOr => Combine::Or,
                    ReduceOperation::BitwiseXor => Combine::Xor,
                    _ => {
                        let is_float = matches!(element, Element::F32 | Element::F64);
                        Combine::Kernel { kernel, adds_floats: is_float && operation == ReduceOperation::Sum }
                    }
                }
            }
        };
        match element.bytes() {
            grain @ (1 | 2 | 4 | 8) => Ok(Self { combine, grain }),
            _ => Err(Refusal::Unsupported),
        }
    }

    /// Combines the elements from `at` on with the operands, each atomically. With `FETCH`, leaves the old elements in
    /// their place, otherwise anything.
    ///
    /// # Safety
    /// As many bytes as the operands have are mapped from `at` on, which is a multiple of an element's length; nobody
    /// has a reference to them.
    pub(super) unsafe fn apply<const FETCH: bool>(self, at: NonNull<u8>, operands: &mut [u8]) {
        let apply = match self.grain {
            1 => apply_8::<FETCH>,
            2 => apply_16::<FETCH>,
            4 => apply_32::<FETCH>,
            _ => apply_64::<FETCH>,
        };
        // SAFETY: the caller promises what it needs.
        unsafe { apply(self.combine, at, operands) }
    }
}

/// Replaces each operand by the result of a function of it and its cell.
///
/// # Safety
/// There is a cell from `at` on for each operand, aligned, to which nobody has an exclusive reference.
#[inline(always)]
unsafe fn for_each<A, const BYTES: usize>(
    at: NonNull<u8>,
    operands: &mut [u8],
    apply: impl Fn(&A, [u8; BYTES]) -> [u8; BYTES],
) {
    let (operands, _) = operands.as_chunks_mut::<BYTES>();
    for (i, operand) in operands.iter_mut().enumerate() {
        // SAFETY: the caller promises that this cell is there.
        let cell = unsafe { &*at.as_ptr().cast::<A>().wrapping_add(i) };
        *operand = apply(cell, *operand);
    }
}

macro_rules! applies {
    ($name:ident, $atomic:ty, $word:ty $(, $float:ty)?) => {
        /// [`ParsedUpdate::apply`] for elements of one width.
        ///
        /// # Safety
        /// As of it.
        unsafe fn $name<const FETCH: bool>(combine: Combine, at: NonNull<u8>, operands: &mut [u8]) {
            macro_rules! each {
                (|$cell:ident, $value:ident, $current:ident| $new:expr) => {
                    each!(|$cell, $value| {
                        let new = |$current: $word| Some($new);
                        $cell.fetch_update(ORDER, ORDER, new).unwrap_or_else(|old| old)
                    })
                };
                (|$cell:ident, $value:ident| $old:expr) => {{
                    let apply = |$cell: &$atomic, operand| {
                        let $value = <$word>::from_ne_bytes(operand);
                        let old: $word = $old;
                        if FETCH { old.to_ne_bytes() } else { operand }
                    };
                    // SAFETY: the caller promises that the elements are there, and aligned.
                    unsafe { for_each(at, operands, apply) }
                }};
            }
            match combine {
                Combine::Add => each!(|cell, value| cell.fetch_add(value, ORDER)),
                Combine::And => each!(|cell, value| cell.fetch_and(value, ORDER)),
                Combine::Or => each!(|cell, value| cell.fetch_or(value, ORDER)),
                Combine::Xor => each!(|cell, value| cell.fetch_xor(value, ORDER)),
                Combine::Replace if FETCH => each!(|cell, value| cell.swap(value, ORDER)),
                Combine::Replace => each!(|cell, value| {
                    cell.store(value, Ordering::Release);
                    value
                }),
                Combine::NoOp => each!(|cell, value| if FETCH { cell.load(ORDER) } else { value }),
                $(Combine::Kernel { adds_floats: true, .. } => each!(|cell, value, old| {
                    (<$float>::from_bits(old) + <$float>::from_bits(value)).to_bits()
                }),)?
                Combine::Kernel { kernel, .. } => each!(|cell, value, old| {
                    let mut new: $word = 0;
                    let (left, right) = ((&raw const old).cast(), (&raw const value).cast());
                    // SAFETY: operands and result are words of this function, each an element.
                    unsafe { kernel(left, right, (&raw mut new).cast(), 1) };
                    new
                }),
            }
        }
    };
}

applies!(apply_8, AtomicU8, u8);
applies!(apply_16, AtomicU16, u16);
applies!(apply_32, AtomicU32, u32, f32);
applies!(apply_64, AtomicU64, u64, f64);
