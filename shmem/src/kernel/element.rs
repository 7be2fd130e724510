//! Types of elements, and the table of kernels.

use half::f16;
use half::slice::HalfFloatSliceExt as _;

use super::fold::{each, widened};
use super::{Kernel, Operation};

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

        pub(super) fn kernel(operation: Operation, element: Element) -> Option<Kernel> {
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
}

/// A kernel of `$each` with a function of two elements.
macro_rules! with {
    ($type:ty, $f:expr) => {{
        unsafe fn kernel(left: *const u8, right: *const u8, into: *mut u8, count: usize) {
            // SAFETY: as this function's caller promises.
            unsafe { each::<$type>(left, right, into, count, $f) }
        }
        kernel as Kernel
    }};
}

macro_rules! integer {
    ($name:ident $type:ty) => {
        fn $name(operation: Operation) -> Option<Kernel> {
            Some(match operation {
                Operation::Sum => with!($type, <$type>::wrapping_add),
                Operation::Product => with!($type, <$type>::wrapping_mul),
                Operation::Min => with!($type, |l, r| if l < r { l } else { r }),
                Operation::Max => with!($type, |l, r| if l > r { l } else { r }),
                Operation::LogicalAnd => with!($type, |l, r| <$type>::from(l != 0) & <$type>::from(r != 0)),
                Operation::LogicalOr => with!($type, |l, r| <$type>::from(l | r != 0)),
                Operation::LogicalXor => with!($type, |l, r| <$type>::from(l != 0) ^ <$type>::from(r != 0)),
                Operation::BitwiseAnd => with!($type, |l, r| l & r),
                Operation::BitwiseOr => with!($type, |l, r| l | r),
                Operation::BitwiseXor => with!($type, |l, r| l ^ r),
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
        fn $name(operation: Operation) -> Option<Kernel> {
            Some(match operation {
                Operation::Sum => with!($type, |l, r| l + r),
                Operation::Product => with!($type, |l, r| l * r),
                Operation::Min => with!($type, |l, r| if l < r { l } else { r }),
                Operation::Max => with!($type, |l, r| if l > r { l } else { r }),
                _ => return None,
            })
        }
    };
}

float!(f32_kernel f32);
float!(f64_kernel f64);

fn f16_kernel(operation: Operation) -> Option<Kernel> {
    macro_rules! with {
        ($f:expr) => {{
            unsafe fn kernel(left: *const u8, right: *const u8, into: *mut u8, count: usize) {
                let widen = |from: &[f16], into: &mut [f32]| from.convert_to_f32_slice(into);
                let narrow = |from: &[f32], into: &mut [f16]| into.convert_from_f32_slice(from);
                // SAFETY: as this function's caller promises.
                unsafe { widened::<f16>(left, right, into, count, widen, narrow, $f) }
            }
            kernel as Kernel
        }};
    }
    Some(match operation {
        Operation::Sum => with!(|l, r| l + r),
        Operation::Product => with!(|l, r| l * r),
        Operation::Min => with!(|l, r| if l < r { l } else { r }),
        Operation::Max => with!(|l, r| if l > r { l } else { r }),
        _ => return None,
    })
}

fn bf16_kernel(operation: Operation) -> Option<Kernel> {
    macro_rules! with {
        ($f:expr) => {
            with!(u16, |l, r| {
                let f = $f;
                rounded(f(upper(l), upper(r)))
            })
        };
        ($type:ty, $f:expr) => {{
            unsafe fn kernel(left: *const u8, right: *const u8, into: *mut u8, count: usize) {
                // SAFETY: as this function's caller promises.
                unsafe { each::<$type>(left, right, into, count, $f) }
            }
            kernel as Kernel
        }};
    }
    Some(match operation {
        Operation::Sum => with!(|l: f32, r: f32| l + r),
        Operation::Product => with!(|l: f32, r: f32| l * r),
        Operation::Min => with!(|l: f32, r: f32| if l < r { l } else { r }),
        Operation::Max => with!(|l: f32, r: f32| if l > r { l } else { r }),
        _ => return None,
    })
}

/// The number whose upper half this is.
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
