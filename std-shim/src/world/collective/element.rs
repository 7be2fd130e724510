//! Types that system operations combine.

use half::{bf16, f16};
use unisono_shmem::kernel;
use zerocopy::{FromBytes, Immutable, IntoBytes};

mod sealed {
    /// Nobody else's types have kernels.
    pub trait Sealed {}
}

/// An arithmetic type: integers of 8 to 64 bits, floats of 16 (`half::f16`, `half::bf16`), 32 and 64.
pub trait Element: sealed::Sealed + Copy + IntoBytes + FromBytes + Immutable {
    #[doc(hidden)]
    const ELEMENT: kernel::Element;
}

macro_rules! elements {
    ($($type:ty: $element:ident,)*) => { $(
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const ELEMENT: kernel::Element = kernel::Element::$element;
        }
    )* };
}

elements! {
    i8: I8, i16: I16, i32: I32, i64: I64,
    u8: U8, u16: U16, u32: U32, u64: U64,
    f16: F16, bf16: Bf16, f32: F32, f64: F64,
}
