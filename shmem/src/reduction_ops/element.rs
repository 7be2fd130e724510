//! Types of elements, and the table of kernels.

use half::f16;
use half::slice::HalfFloatSliceExt as _;

use super::fold::{each, widened};
use super::minloc::ValueIndexPair;
use super::{Kernel, ReduceOperation};

macro_rules! elements {
    ($($(#[$doc:meta])* $name:ident $bytes:literal $table:ident,)*) => {
        /// A type of elements.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Element { $($(#[$doc])* $name,)* }

        impl Element {
            /// All of them.
            pub const ALL: [Self; elements!(@count $($name)*)] = [$(Self::$name,)*];

            /// Bytes of one.
            pub const fn bytes(self) -> usize {
                match self { $(Self::$name => $bytes,)* }
            }
        }

        pub(super) fn kernel(operation: ReduceOperation, element: Element) -> Option<Kernel> {
            match element { $(Element::$name => $table(operation),)* }
        }
    };
    (@count $($name:ident)*) => { [$(stringify!($name)),*].len() };
}

elements! {
    /// Signed, 8 bits.
    I8 1 i8_kernel,
    /// Signed, 16 bits.
    I16 2 i16_kernel,
    /// Signed, 32 bits.
    I32 4 i32_kernel,
    /// Signed, 64 bits.
    I64 8 i64_kernel,
    /// Unsigned, 8 bits.
    U8 1 u8_kernel,
    /// Unsigned, 16 bits.
    U16 2 u16_kernel,
    /// Unsigned, 32 bits.
    U32 4 u32_kernel,
    /// Unsigned, 64 bits.
    U64 8 u64_kernel,
    /// IEEE 754 binary16.
    F16 2 f16_kernel,
    /// The upper half of an `F32`.
    Bf16 2 bf16_kernel,
    /// IEEE 754 binary32.
    F32 4 f32_kernel,
    /// IEEE 754 binary64.
    F64 8 f64_kernel,
    /// Complex: an `F32`, the real part, and another one.
    C32 8 c32_kernel,
    /// Complex: an `F64`, the real part, and another one.
    C64 16 c64_kernel,
    /// An `I8` and an index of 64 bits without padding, as are all that follow.
    LocatedI8 9 located_i8_kernel,
    /// An `I16` with an index.
    LocatedI16 10 located_i16_kernel,
    /// An `I32` with an index.
    LocatedI32 12 located_i32_kernel,
    /// An `I64` with an index.
    LocatedI64 16 located_i64_kernel,
    /// A `U8` with an index.
    LocatedU8 9 located_u8_kernel,
    /// A `U16` with an index.
    LocatedU16 10 located_u16_kernel,
    /// A `U32` with an index.
    LocatedU32 12 located_u32_kernel,
    /// A `U64` with an index.
    LocatedU64 16 located_u64_kernel,
    /// An `F32` with an index.
    LocatedF32 12 located_f32_kernel,
    /// An `F64` with an index.
    LocatedF64 16 located_f64_kernel,
}

/// A kernel of `$each` with a function of two elements.
macro_rules! with {
    ($type:ty, $f:expr) => {{
        unsafe fn kernel(left: *const u8, right: *const u8, into: *mut u8, count: usize) {
            // SAFETY: the kernel's contract is this function's, which its caller keeps.
            unsafe { each::<$type>(left, right, into, count, $f) }
        }
        kernel as Kernel
    }};
}

macro_rules! integer {
    ($name:ident $type:ty) => {
        fn $name(operation: ReduceOperation) -> Option<Kernel> {
            Some(match operation {
                ReduceOperation::Sum => with!($type, <$type>::wrapping_add),
                ReduceOperation::Product => with!($type, <$type>::wrapping_mul),
                ReduceOperation::Min => with!($type, |l, r| if l < r { l } else { r }),
                ReduceOperation::Max => with!($type, |l, r| if l > r { l } else { r }),
                ReduceOperation::LogicalAnd => with!($type, |l, r| <$type>::from(l != 0) & <$type>::from(r != 0)),
                ReduceOperation::LogicalOr => with!($type, |l, r| <$type>::from(l | r != 0)),
                ReduceOperation::LogicalXor => with!($type, |l, r| <$type>::from(l != 0) ^ <$type>::from(r != 0)),
                ReduceOperation::BitwiseAnd => with!($type, |l, r| l & r),
                ReduceOperation::BitwiseOr => with!($type, |l, r| l | r),
                ReduceOperation::BitwiseXor => with!($type, |l, r| l ^ r),
                ReduceOperation::MinLocation | ReduceOperation::MaxLocation => return None,
            })
        }
    };
}

integer!(i8_kernel i8);
integer!(i16_kernel i16);
integer!(i32_kernel i32);
integer!(i64_kernel i64);
integer!(u8_kernel u8);
integer!(u16_kernel u16);
integer!(u32_kernel u32);
integer!(u64_kernel u64);

macro_rules! float {
    ($name:ident $type:ty) => {
        fn $name(operation: ReduceOperation) -> Option<Kernel> {
            Some(match operation {
                ReduceOperation::Sum => with!($type, |l, r| l + r),
                ReduceOperation::Product => with!($type, |l, r| l * r),
                ReduceOperation::Min => with!($type, |l, r| if l < r { l } else { r }),
                ReduceOperation::Max => with!($type, |l, r| if l > r { l } else { r }),
                _ => return None,
            })
        }
    };
}

float!(f32_kernel f32);
float!(f64_kernel f64);

macro_rules! complex {
    ($name:ident $type:ty) => {
        fn $name(operation: ReduceOperation) -> Option<Kernel> {
            Some(match operation {
                ReduceOperation::Sum => with!([$type; 2], |[a, b], [c, d]| [a + c, b + d]),
                ReduceOperation::Product => with!([$type; 2], |[a, b], [c, d]| [a * c - b * d, a * d + b * c]),
                _ => return None,
            })
        }
    };
}

complex!(c32_kernel f32);
complex!(c64_kernel f64);

macro_rules! located {
    ($($name:ident $type:ty),*) => { $(
        fn $name(operation: ReduceOperation) -> Option<Kernel> {
            Some(match operation {
                ReduceOperation::MinLocation => with!(ValueIndexPair<$type>, |l, r| l.or(r, |l, r| l < r)),
                ReduceOperation::MaxLocation => with!(ValueIndexPair<$type>, |l, r| l.or(r, |l, r| l > r)),
                _ => return None,
            })
        }
    )* };
}

located!(
    located_i8_kernel i8,
    located_i16_kernel i16,
    located_i32_kernel i32,
    located_i64_kernel i64,
    located_u8_kernel u8,
    located_u16_kernel u16,
    located_u32_kernel u32,
    located_u64_kernel u64,
    located_f32_kernel f32,
    located_f64_kernel f64
);

fn f16_kernel(operation: ReduceOperation) -> Option<Kernel> {
    macro_rules! with {
        ($f:expr) => {{
            unsafe fn kernel(left: *const u8, right: *const u8, into: *mut u8, count: usize) {
                let widen = |from: &[f16], into: &mut [f32]| from.convert_to_f32_slice(into);
                let narrow = |from: &[f32], into: &mut [f16]| into.convert_from_f32_slice(from);
                // SAFETY: the kernel's contract is this function's, which its caller keeps.
                unsafe { widened::<f16>(left, right, into, count, widen, narrow, $f) }
            }
            kernel as Kernel
        }};
    }
    Some(match operation {
        ReduceOperation::Sum => with!(|l, r| l + r),
        ReduceOperation::Product => with!(|l, r| l * r),
        ReduceOperation::Min => with!(|l, r| if l < r { l } else { r }),
        ReduceOperation::Max => with!(|l, r| if l > r { l } else { r }),
        _ => return None,
    })
}

fn bf16_kernel(operation: ReduceOperation) -> Option<Kernel> {
    macro_rules! with {
        ($f:expr) => {
            with!(u16, |l, r| {
                let f = $f;
                rounded(f(upper(l), upper(r)))
            })
        };
        ($type:ty, $f:expr) => {{
            unsafe fn kernel(left: *const u8, right: *const u8, into: *mut u8, count: usize) {
                // SAFETY: the kernel's contract is this function's, which its caller keeps.
                unsafe { each::<$type>(left, right, into, count, $f) }
            }
            kernel as Kernel
        }};
    }
    Some(match operation {
        ReduceOperation::Sum => with!(|l: f32, r: f32| l + r),
        ReduceOperation::Product => with!(|l: f32, r: f32| l * r),
        ReduceOperation::Min => with!(|l: f32, r: f32| if l < r { l } else { r }),
        ReduceOperation::Max => with!(|l: f32, r: f32| if l > r { l } else { r }),
        _ => return None,
    })
}

/// The `f32` with this upper half.
#[inline(always)]
fn upper(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
}

/// The upper half of a number, rounded to nearest, ties to even, without a branch.
#[inline(always)]
pub(super) fn rounded(number: f32) -> u16 {
    let bits = number.to_bits();
    let rounded = bits.wrapping_add(0x7fff).wrapping_add(bits >> 16 & 1) >> 16;
    // A NaN stays one, and is made quiet.
    let nan = bits >> 16 | 0x40;
    (if number.is_nan() { nan } else { rounded }) as u16
}
