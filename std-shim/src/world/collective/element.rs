//! Element types of the system operations.

use half::{bf16, f16};
use unisono_shmem::reduction_ops;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::complex::Complex;
use super::minloc::ValueIndex;

mod sealed {
    /// Only these types have reduction kernels.
    pub trait Sealed {}
}

/// A type that system operations combine: integers of 8 to 64 bits, floats of 16 (`half::f16`, `half::bf16`), 32 and 64
/// bits, [`Complex`] numbers of the latter two, and values with an index ([`ValueIndex`]) of all but the 16-bit floats.
pub trait Element: sealed::Sealed + Copy + IntoBytes + FromBytes + Immutable {
    #[doc(hidden)]
    const ELEMENT: reduction_ops::Element;
}

macro_rules! elements {
    ($($type:ty: $element:ident,)*) => { $(
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const ELEMENT: reduction_ops::Element = reduction_ops::Element::$element;
        }
    )* };
}

elements! {
    i8: I8, i16: I16, i32: I32, i64: I64,
    u8: U8, u16: U16, u32: U32, u64: U64,
    f16: F16, bf16: Bf16, f32: F32, f64: F64,
    Complex<f32>: C32, Complex<f64>: C64,
    ValueIndex<i8>: LocatedI8, ValueIndex<i16>: LocatedI16, ValueIndex<i32>: LocatedI32, ValueIndex<i64>: LocatedI64,
    ValueIndex<u8>: LocatedU8, ValueIndex<u16>: LocatedU16, ValueIndex<u32>: LocatedU32, ValueIndex<u64>: LocatedU64,
    ValueIndex<f32>: LocatedF32, ValueIndex<f64>: LocatedF64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_as_long<T: Element>() -> bool {
        size_of::<T>() == T::ELEMENT.bytes()
    }

    #[test]
    fn elements_are_as_long_as_their_kernels_take_them_to_be() {
        assert!(is_as_long::<bf16>() && is_as_long::<u64>());
        assert!(is_as_long::<Complex<f32>>() && is_as_long::<Complex<f64>>());
        assert!(is_as_long::<ValueIndex<i8>>() && is_as_long::<ValueIndex<u16>>() && is_as_long::<ValueIndex<f32>>());
        assert!(is_as_long::<ValueIndex<i64>>() && is_as_long::<ValueIndex<f64>>());
    }
}
