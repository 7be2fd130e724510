//! Basic types: the leaves of all datatypes.

/// A basic type: what sender and receiver must agree on, its length and its alignment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Basic {
    /// A number that equal types share.
    pub code: u16,
    /// Length in bytes.
    pub bytes: u16,
    /// Alignment in bytes, to which the extent of a datatype is rounded up.
    pub alignment: u16,
}

impl Basic {
    /// A byte without further meaning (`MPI_BYTE`).
    pub const BYTE: Self = Self { code: 0, bytes: 1, alignment: 1 };
}

/// A Rust type that is a basic type.
pub trait BasicType {
    /// Its description.
    const BASIC: Basic;
}

macro_rules! basic {
    ($($type:ty: $code:literal,)*) => { $(
        impl BasicType for $type {
            const BASIC: Basic =
                Basic { code: $code, bytes: size_of::<$type>() as u16, alignment: align_of::<$type>() as u16 };
        }
    )* };
}

basic! {
    i8: 1, i16: 2, i32: 3, i64: 4, i128: 5,
    u8: 6, u16: 7, u32: 8, u64: 9, u128: 10,
    f32: 11, f64: 12, bool: 13, char: 14, isize: 15, usize: 16,
}
