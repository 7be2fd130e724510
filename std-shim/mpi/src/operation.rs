//! Reduction operations: the predefined ones, by the library's kernels where it has them, and functions of the program.

use core::ffi::{c_int, c_void};
use core::ptr::NonNull;

use half::f16;
use unisono::raw::{Builtin, Order, ReduceOperation, ReductionOp, kind};

use crate::abi::*;
use crate::datatype::basic::{Basic, Value};
use crate::datatype::{Datatype, handle_of};
use crate::error::Outcome;
use crate::handle::{FIRST_ADDRESS, Held, Kind, Object, release, resolve};

/// An operation.
#[derive(Debug)]
pub enum Op {
    /// A predefined one.
    Predefined(MPI_Op),
    /// A function of the program.
    Function {
        /// Its address.
        function: usize,
        /// Whether its operands may be exchanged.
        is_commutative: bool,
        /// Whether its length is an `MPI_Count`.
        is_large: bool,
    },
}

impl Kind for Op {
    const MARK: u32 = 0x6f70_6572;
    const INVALID: c_int = MPI_ERR_OP;

    fn predefined(handle: usize) -> Option<&'static Object<Self>> {
        static ALL: std::sync::OnceLock<Vec<Held<Op>>> = std::sync::OnceLock::new();
        let all = ALL.get_or_init(|| PREDEFINED.iter().map(|(op, _)| Object::new(Op::Predefined(*op))).collect());
        all.get(PREDEFINED.iter().position(|(op, _)| op.0 == handle)?).map(|held| &**held)
    }
}

const PREDEFINED: [(MPI_Op, Option<ReduceOperation>); 14] = [
    (MPI_SUM, Some(ReduceOperation::Sum)),
    (MPI_MIN, Some(ReduceOperation::Min)),
    (MPI_MAX, Some(ReduceOperation::Max)),
    (MPI_PROD, Some(ReduceOperation::Product)),
    (MPI_BAND, Some(ReduceOperation::BitwiseAnd)),
    (MPI_BOR, Some(ReduceOperation::BitwiseOr)),
    (MPI_BXOR, Some(ReduceOperation::BitwiseXor)),
    (MPI_LAND, Some(ReduceOperation::LogicalAnd)),
    (MPI_LOR, Some(ReduceOperation::LogicalOr)),
    (MPI_LXOR, Some(ReduceOperation::LogicalXor)),
    (MPI_MINLOC, Some(ReduceOperation::MinLocation)),
    (MPI_MAXLOC, Some(ReduceOperation::MaxLocation)),
    (MPI_REPLACE, None),
    (MPI_NO_OP, None),
];

impl Op {
    /// The reduction of the library, if it is one.
    pub fn reduction(&self) -> Option<ReduceOperation> {
        match self {
            Self::Predefined(op) => PREDEFINED.iter().find(|(other, _)| other == op)?.1,
            Self::Function { .. } => None,
        }
    }

    /// Whether its operands may be exchanged.
    pub fn is_commutative(&self) -> bool {
        match self {
            Self::Predefined(op) => *op != MPI_REPLACE && *op != MPI_NO_OP,
            Self::Function { is_commutative, .. } => *is_commutative,
        }
    }
}

/// Whether the standard defines an operation for values.
const fn is_defined(operation: ReduceOperation, value: Value) -> bool {
    use ReduceOperation::{
        BitwiseAnd, BitwiseOr, BitwiseXor, LogicalAnd, LogicalOr, LogicalXor, Max, MaxLocation, Min, MinLocation,
        Product, Sum,
    };
    match operation {
        Sum | Product => matches!(value, Value::Signed | Value::Unsigned | Value::Float | Value::Complex),
        Min | Max => matches!(value, Value::Signed | Value::Unsigned | Value::Float),
        LogicalAnd | LogicalOr | LogicalXor => matches!(value, Value::Signed | Value::Unsigned | Value::Logical),
        BitwiseAnd | BitwiseOr | BitwiseXor => matches!(value, Value::Signed | Value::Unsigned | Value::Byte),
        MinLocation | MaxLocation => matches!(value, Value::Pair(..)),
    }
}

/// An operation on elements of a type, as collectives need it.
pub enum Operator {
    /// A kernel of the library.
    Builtin(Builtin, u32),
    /// A predefined operation that the library has no kernel for.
    Slow(ReduceOperation, &'static Basic),
    /// A function of the program.
    Function(UserFunction),
}

/// A function of the program on elements of a type.
#[derive(Clone)]
pub struct UserFunction {
    operation: Held<Op>,
    datatype: Held<Datatype>,
    handle: MPI_Datatype,
    /// Bytes from one element to the next, and the offset of their first byte.
    pub stride: usize,
    lower: isize,
    /// Whether the elements lie as the program's own do.
    pub is_natural: bool,
}

impl Drop for UserFunction {
    fn drop(&mut self) {
        if self.handle.0 >= FIRST_ADDRESS {
            // SAFETY: the handle was made for this.
            drop(unsafe { release::<Datatype>(self.handle.0) });
        }
    }
}

impl Operator {
    /// The operation on elements of a type.
    pub fn new(operation: &Object<Op>, datatype: &Held<Datatype>) -> Outcome<Self> {
        match &**operation {
            Op::Predefined(_) => {
                let (Some(operation), Some(basic)) = (operation.reduction(), datatype.basic) else {
                    return Err(MPI_ERR_OP);
                };
                if !is_defined(operation, basic.value) || datatype.size != i64::from(basic.size) {
                    return Err(MPI_ERR_OP);
                }
                let built = basic.element().and_then(|element| Some((Builtin::new(operation, element)?, element)));
                Ok(match built {
                    Some((builtin, element)) => Self::Builtin(builtin, kind(operation, element)),
                    None => Self::Slow(operation, basic),
                })
            }
            Op::Function { .. } => {
                let is_dense = datatype.is_dense;
                let span = datatype.extent.max(datatype.true_extent).max(0) as usize;
                Ok(Self::Function(UserFunction {
                    operation: operation.hold(),
                    datatype: datatype.clone(),
                    handle: handle_of(datatype),
                    stride: if is_dense { datatype.size as usize } else { span.max(1) },
                    lower: if is_dense { 0 } else { datatype.true_lower as isize },
                    is_natural: is_dense,
                }))
            }
        }
    }

    /// Another one.
    pub fn again(&self) -> Self {
        match self {
            Self::Builtin(builtin, kind) => Self::Builtin(*builtin, *kind),
            Self::Slow(operation, basic) => Self::Slow(*operation, basic),
            Self::Function(function) => Self::Function(UserFunction {
                handle: handle_of(&function.datatype),
                operation: function.operation.clone(),
                datatype: function.datatype.clone(),
                ..*function
            }),
        }
    }

    /// Bytes of an element while it is combined.
    pub fn grain(&self) -> usize {
        match self {
            Self::Builtin(builtin, _) => builtin.grain(),
            Self::Slow(_, basic) => basic.size.into(),
            Self::Function(function) => function.stride,
        }
    }

    /// Elements that are longer are combined by messages alone.
    const SLOT_GRAIN: usize = 256;

    /// The order in which elements must be combined.
    pub fn order(&self) -> Order {
        match self {
            _ if self.grain() > Self::SLOT_GRAIN => Order::Fixed,
            Self::Function(function) if !function.operation.is_commutative() => Order::Rank,
            _ => Order::Any,
        }
    }

    /// A digest of the operation and the type.
    pub fn digest(&self) -> u32 {
        match self {
            Self::Builtin(_, kind) => *kind,
            Self::Slow(operation, basic) => 2 << 16 | (*operation as u32) << 8 | u32::from(basic.size),
            Self::Function(function) => 3 << 20 | function.stride as u32 & 0xf_ffff,
        }
    }

    /// The elements in the form in which they are combined, of the packed bytes.
    pub fn expand(&self, packed: Vec<u8>) -> Vec<u8> {
        let Self::Function(function) = self else { return packed };
        if function.is_natural {
            return packed;
        }
        let size = (function.datatype.size as usize).max(1);
        let mut all = vec![0; packed.len() / size * function.stride];
        for (from, into) in packed.chunks_exact(size).zip(all.chunks_exact_mut(function.stride)) {
            let start = into.as_mut_ptr().wrapping_offset(-function.lower);
            // SAFETY: an element reaches from its true lower bound over its true extent, which the chunk has.
            unsafe { function.datatype.unpack(from, start, 1) };
        }
        all
    }

    /// The packed bytes of such elements.
    pub fn compress(&self, expanded: &[u8]) -> Vec<u8> {
        let Self::Function(function) = self else { return expanded.to_vec() };
        if function.is_natural {
            return expanded.to_vec();
        }
        let size = (function.datatype.size as usize).max(1);
        let mut packed = vec![0; expanded.len() / function.stride * size];
        for (from, into) in expanded.chunks_exact(function.stride).zip(packed.chunks_exact_mut(size)) {
            let start = from.as_ptr().wrapping_offset(-function.lower);
            // SAFETY: the chunk has the element's whole true extent, from its true lower bound on.
            unsafe { function.datatype.pack(start, 1, into) };
        }
        packed
    }

    /// into = left · into, element by element.
    pub fn combine_left(&mut self, left: &[u8], into: &mut [u8]) {
        let bytes = left.len().min(into.len());
        let (left, into) = (NonNull::from(left).cast::<u8>(), NonNull::from(into).cast::<u8>());
        // SAFETY: both are as long; the result is the right operand.
        unsafe { self.combine(left, into, into, bytes) };
    }

    /// into = into · right, element by element.
    pub fn combine_right(&mut self, into: &mut [u8], right: &[u8]) {
        let bytes = right.len().min(into.len());
        let (right, into) = (NonNull::from(right).cast::<u8>(), NonNull::from(into).cast::<u8>());
        // SAFETY: both are as long; the result is the left operand.
        unsafe { self.combine(into, right, into, bytes) };
    }
}

impl UserFunction {
    /// # Safety
    /// Both are aligned memory of as many bytes.
    unsafe fn call(&self, left: *mut u8, right: *mut u8, bytes: usize) {
        let Op::Function { function, is_large, .. } = &**self.operation else { return };
        let function = core::ptr::with_exposed_provenance::<c_void>(*function);
        let mut datatype = self.handle;
        let elements = bytes / self.stride.max(1);
        let is_whole = self.is_natural || self.stride as i64 == self.datatype.extent;
        let (step, calls) = if is_whole { (elements, 1) } else { (1, elements) };
        for call in 0..calls {
            let at = |start: *mut u8| start.wrapping_add(call * self.stride).wrapping_offset(-self.lower);
            if *is_large {
                type Function = unsafe extern "C" fn(*mut u8, *mut u8, *mut MPI_Count, *mut MPI_Datatype);
                // SAFETY: the program gave a function of this type.
                let function = unsafe { core::mem::transmute::<*const c_void, Function>(function) };
                let mut length = step as MPI_Count;
                // SAFETY: its own function, called as the standard says.
                unsafe { function(at(left), at(right), &raw mut length, &raw mut datatype) };
            } else {
                type Function = unsafe extern "C" fn(*mut u8, *mut u8, *mut c_int, *mut MPI_Datatype);
                // SAFETY: the program gave a function of this type.
                let function = unsafe { core::mem::transmute::<*const c_void, Function>(function) };
                let mut length = step as c_int;
                // SAFETY: its own function, called as the standard says.
                unsafe { function(at(left), at(right), &raw mut length, &raw mut datatype) };
            }
        }
    }
}

/// Alignment of what functions of the program get.
const ALIGNMENT: usize = 16;

/// Memory with that alignment.
fn aligned(bytes: usize) -> Vec<u128> {
    vec![0; bytes.div_ceil(ALIGNMENT)]
}

impl ReductionOp for Operator {
    unsafe fn combine(&mut self, left: NonNull<u8>, right: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
        match self {
            // SAFETY: the same contract, which the caller keeps.
            Self::Builtin(builtin, _) => unsafe { builtin.combine(left, right, into, bytes) },
            Self::Slow(operation, basic) => {
                let size = usize::from(basic.size);
                for at in 0..bytes / size.max(1) {
                    let (mut one, mut other) = ([0_u8; 32], [0_u8; 32]);
                    let element = |start: NonNull<u8>| start.as_ptr().wrapping_add(at * size);
                    // SAFETY: an element within the operand; the array is long enough.
                    unsafe { core::ptr::copy_nonoverlapping(element(left), one.as_mut_ptr(), size) };
                    // SAFETY: an element within the operand; the array is long enough.
                    unsafe { core::ptr::copy_nonoverlapping(element(right), other.as_mut_ptr(), size) };
                    let result = slow(*operation, basic, one, other);
                    // SAFETY: an element within the result; the array is long enough.
                    unsafe { core::ptr::copy_nonoverlapping(result.as_ptr(), element(into), size) };
                }
            }
            Self::Function(function) => {
                let is_aligned = |start: NonNull<u8>| start.addr().get().is_multiple_of(ALIGNMENT);
                if into == right && is_aligned(left) && is_aligned(right) {
                    // SAFETY: the caller promises that both are valid; they are aligned.
                    return unsafe { function.call(left.as_ptr(), right.as_ptr(), bytes) };
                }
                let (mut first, mut second) = (aligned(bytes), aligned(bytes));
                let (from, to) = (first.as_mut_ptr().cast::<u8>(), second.as_mut_ptr().cast::<u8>());
                // SAFETY: the operand has as many bytes, and so has the vector.
                unsafe { core::ptr::copy_nonoverlapping(left.as_ptr(), from, bytes) };
                // SAFETY: the operand has as many bytes, and so has the vector.
                unsafe { core::ptr::copy_nonoverlapping(right.as_ptr(), to, bytes) };
                // SAFETY: both are aligned memory of as many bytes.
                unsafe { function.call(from, to, bytes) };
                // SAFETY: the result has as many bytes, and so has the vector.
                unsafe { core::ptr::copy_nonoverlapping(to, into.as_ptr(), bytes) };
            }
        }
    }
}

/// The bytes of two operands' values.
fn slow(operation: ReduceOperation, basic: &Basic, left: [u8; 32], right: [u8; 32]) -> [u8; 32] {
    let mut result = left;
    match basic.value {
        Value::Pair(value, index, _) => {
            let (Some(value), Some(index)) = (Basic::of(value), Basic::of(index)) else { return result };
            let (size, length) = (usize::from(value.size), usize::from(index.size));
            let number = |of: &[u8; 32], at: usize, basic: &Basic| number(&of[at..], basic);
            let (one, other) = (number(&left, 0, value), number(&right, 0, value));
            let (first, second) = (number(&left, size, index), number(&right, size, index));
            let takes_right = match (operation, one == other) {
                (_, true) => second < first,
                (ReduceOperation::MinLocation, _) => other < one,
                _ => other > one,
            };
            if takes_right {
                result[..size + length].copy_from_slice(&right[..size + length]);
            }
        }
        Value::Signed | Value::Unsigned | Value::Logical if basic.size == 16 => {
            let read = |of: &[u8; 32]| i128::from_le_bytes(of[..16].try_into().unwrap_or_default());
            let (one, other) = (read(&left), read(&right));
            let combined = match operation {
                ReduceOperation::Sum => one.wrapping_add(other),
                ReduceOperation::Product => one.wrapping_mul(other),
                ReduceOperation::Min => one.min(other),
                ReduceOperation::Max => one.max(other),
                ReduceOperation::LogicalAnd => i128::from(one != 0 && other != 0),
                ReduceOperation::LogicalOr => i128::from(one != 0 || other != 0),
                ReduceOperation::LogicalXor => i128::from((one != 0) != (other != 0)),
                ReduceOperation::BitwiseAnd => one & other,
                ReduceOperation::BitwiseOr => one | other,
                ReduceOperation::BitwiseXor => one ^ other,
                ReduceOperation::MinLocation | ReduceOperation::MaxLocation => one,
            };
            result[..16].copy_from_slice(&combined.to_le_bytes());
        }
        Value::Complex => {
            let half = usize::from(basic.size) / 2;
            let read = |of: &[u8; 32], at: usize| float(&of[at..at + half]);
            let (a, b, c, d) = (read(&left, 0), read(&left, half), read(&right, 0), read(&right, half));
            let (real, imaginary) = match operation {
                ReduceOperation::Product => (sub(mul(a, c), mul(b, d)), add(mul(a, d), mul(b, c))),
                _ => (add(a, c), add(b, d)),
            };
            write_float(&mut result[..half], real);
            write_float(&mut result[half..half * 2], imaginary);
        }
        _ => {
            let size = usize::from(basic.size);
            let (one, other) = (float(&left[..size]), float(&right[..size]));
            let combined = match operation {
                ReduceOperation::Product => mul(one, other),
                ReduceOperation::Min => {
                    if greater(one, other) {
                        other
                    } else {
                        one
                    }
                }
                ReduceOperation::Max => {
                    if greater(other, one) {
                        other
                    } else {
                        one
                    }
                }
                _ => add(one, other),
            };
            write_float(&mut result[..size], combined);
        }
    }
    result
}

/// A number that pairs are compared by: integers as they are, floats by an order-preserving map.
fn number(bytes: &[u8], basic: &Basic) -> i128 {
    let size = usize::from(basic.size);
    let mut word = [0; 16];
    word[..size].copy_from_slice(&bytes[..size]);
    let raw = u128::from_le_bytes(word);
    match basic.value {
        Value::Float if size == 16 => {
            // x87: sign and exponent in 16 bits above a mantissa of 64 bits.
            let magnitude = (raw & ((1 << 79) - 1)) as i128;
            if raw >> 79 & 1 == 1 { -magnitude } else { magnitude }
        }
        Value::Float => {
            let sign = 1_u128 << (size * 8 - 1);
            let magnitude = (raw & (sign - 1)) as i128;
            if raw & sign != 0 { -magnitude } else { magnitude }
        }
        _ => {
            let shift = 128 - size as u32 * 8;
            (raw as i128) << shift >> shift
        }
    }
}

/// The x87's extended format, by its own instructions: Rust has no such type.
#[derive(Clone, Copy)]
enum Wide {
    Half(f32),
    Extended([u8; 16]),
}

fn float(bytes: &[u8]) -> Wide {
    match *bytes {
        [a, b] => Wide::Half(f16::from_le_bytes([a, b]).to_f32()),
        _ => {
            let mut word = [0; 16];
            word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            Wide::Extended(word)
        }
    }
}

fn write_float(to: &mut [u8], value: Wide) {
    match value {
        Wide::Half(value) => to.copy_from_slice(&f16::from_f32(value).to_le_bytes()),
        Wide::Extended(word) => to.iter_mut().zip(word).for_each(|(to, from)| *to = from),
    }
}

macro_rules! extended {
    ($name:ident $half:expr, $instruction:literal) => {
        fn $name(one: Wide, other: Wide) -> Wide {
            match (one, other) {
                (Wide::Half(one), Wide::Half(other)) => Wide::Half(($half)(one, other)),
                (Wide::Extended(one), Wide::Extended(other)) => {
                    let mut result = one;
                    #[cfg(target_arch = "x86_64")]
                    // SAFETY: reads two numbers of 10 bytes and writes one, in arrays of 16; leaves the stack of the
                    // x87 as it was.
                    unsafe {
                        core::arch::asm!(
                            "fld tbyte ptr [{one}]",
                            "fld tbyte ptr [{other}]",
                            $instruction,
                            "fstp tbyte ptr [{result}]",
                            one = in(reg) one.as_ptr(),
                            other = in(reg) other.as_ptr(),
                            result = in(reg) result.as_mut_ptr(),
                            out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                            out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                            options(nostack)
                        );
                    }
                    #[cfg(not(target_arch = "x86_64"))]
                    let _ = (other, &mut result);
                    Wide::Extended(result)
                }
                (one, _) => one,
            }
        }
    };
}

extended! { add |one: f32, other: f32| one + other, "faddp" }
extended! { sub |one: f32, other: f32| one - other, "fsubp" }
extended! { mul |one: f32, other: f32| one * other, "fmulp" }

fn greater(one: Wide, other: Wide) -> bool {
    match (one, other) {
        (Wide::Half(one), Wide::Half(other)) => one > other,
        (Wide::Extended(one), Wide::Extended(other)) => {
            Basic::of(MPI_LONG_DOUBLE.0).is_some_and(|basic| number(&one, basic) > number(&other, basic))
        }
        _ => false,
    }
}

/// The operation of an argument, and how it combines elements of a type.
///
/// # Safety
/// As of [`resolve`].
pub unsafe fn operator(op: MPI_Op, datatype: &Held<Datatype>) -> Outcome<Operator> {
    // SAFETY: the caller promises it.
    Operator::new(unsafe { resolve::<Op>(op.0) }?, datatype)
}
