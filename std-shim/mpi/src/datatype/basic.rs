//! The predefined datatypes: their lengths, names, and how their values are represented.

use unisono::raw::{Element, ElementType};

use crate::abi::*;

/// The handle before the first one.
pub const FIRST: usize = MPI_DATATYPE_NULL.0;
/// Handles of datatypes that the ABI reserves.
pub const HANDLES: usize = 0x100;

/// How a value is represented.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// A signed integer.
    Signed,
    /// An unsigned integer.
    Unsigned,
    /// A binary floating-point number.
    Float,
    /// Two of them.
    Complex,
    /// A truth value.
    Logical,
    /// Bytes without a meaning.
    Byte,
    /// A character, which is an integer where it is combined.
    Character,
    /// A value and an index: the handles of both, and the offset of the index.
    Pair(usize, usize, u8),
}

/// A predefined datatype.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Basic {
    /// The handle's value.
    pub handle: usize,
    /// The name.
    pub name: &'static str,
    /// Bytes of data.
    pub size: u8,
    /// Bytes from one to the next.
    pub extent: u8,
    /// Bytes in the representation external32.
    pub external: u8,
    /// The representation.
    pub value: Value,
}

impl Basic {
    /// Its type in jobs that check types; complex numbers have that of their parts, pairs none.
    pub fn checked_type(&self) -> ElementType {
        match (self.value, self.size) {
            (Signed | Character, 1) => ElementType::of::<i8>(),
            (Signed, 2) => ElementType::of::<i16>(),
            (Signed | Character, 4) => ElementType::of::<i32>(),
            (Signed, 8) => ElementType::of::<i64>(),
            (Unsigned, 1) => ElementType::of::<u8>(),
            (Unsigned, 2) => ElementType::of::<u16>(),
            (Unsigned, 4) => ElementType::of::<u32>(),
            (Unsigned, 8) => ElementType::of::<u64>(),
            (Float, 4) | (Complex, 8) => ElementType::of::<f32>(),
            (Float, 8) | (Complex, 16) => ElementType::of::<f64>(),
            (Logical, 1) => ElementType::of::<bool>(),
            _ => ElementType::Unknown,
        }
    }
}

macro_rules! basics {
    ($($handle:ident $size:literal $extent:literal $external:literal $value:expr;)*) => {
        /// All predefined datatypes, by handle.
        pub static BASICS: [Option<Basic>; HANDLES] = {
            let mut all = [None; HANDLES];
            $(all[$handle.0 - FIRST] = Some(Basic {
                handle: $handle.0,
                name: name_of($handle.0, stringify!($handle)),
                size: $size,
                extent: $extent,
                external: $external,
                value: $value,
            });)*
            all
        };
    };
}

/// The name: of two that the ABI has for one type, the older one.
const fn name_of(handle: usize, constant: &'static str) -> &'static str {
    if handle == MPI_C_FLOAT_COMPLEX.0 {
        "MPI_C_COMPLEX"
    } else if handle == MPI_LONG_LONG.0 {
        "MPI_LONG_LONG_INT"
    } else {
        constant
    }
}

/// The standard defines no sum of characters; other libraries have it.
const CHAR: Value = if core::ffi::c_char::MIN == 0 { Unsigned } else { Signed };

use Value::{Byte, Character, Complex, Float, Logical, Pair, Signed, Unsigned};

basics! {
    MPI_AINT 8 8 8 Signed;
    MPI_COUNT 8 8 8 Signed;
    MPI_OFFSET 8 8 8 Signed;
    MPI_PACKED 1 1 1 Byte;
    MPI_SHORT 2 2 2 Signed;
    MPI_INT 4 4 4 Signed;
    MPI_LONG 8 8 4 Signed;
    MPI_LONG_LONG 8 8 8 Signed;
    MPI_UNSIGNED_SHORT 2 2 2 Unsigned;
    MPI_UNSIGNED 4 4 4 Unsigned;
    MPI_UNSIGNED_LONG 8 8 4 Unsigned;
    MPI_UNSIGNED_LONG_LONG 8 8 8 Unsigned;
    MPI_FLOAT 4 4 4 Float;
    MPI_C_FLOAT_COMPLEX 8 8 8 Complex;
    MPI_CXX_FLOAT_COMPLEX 8 8 8 Complex;
    MPI_DOUBLE 8 8 8 Float;
    MPI_C_DOUBLE_COMPLEX 16 16 16 Complex;
    MPI_CXX_DOUBLE_COMPLEX 16 16 16 Complex;
    MPI_LOGICAL 4 4 4 Logical;
    MPI_INTEGER 4 4 4 Signed;
    MPI_REAL 4 4 4 Float;
    MPI_COMPLEX 8 8 8 Complex;
    MPI_DOUBLE_PRECISION 8 8 8 Float;
    MPI_DOUBLE_COMPLEX 16 16 16 Complex;
    MPI_CHARACTER 1 1 1 Character;
    MPI_LONG_DOUBLE 16 16 16 Float;
    MPI_C_LONG_DOUBLE_COMPLEX 32 32 32 Complex;
    MPI_CXX_LONG_DOUBLE_COMPLEX 32 32 32 Complex;
    MPI_FLOAT_INT 8 8 8 Pair(MPI_FLOAT.0, MPI_INT.0, 4);
    MPI_DOUBLE_INT 12 16 12 Pair(MPI_DOUBLE.0, MPI_INT.0, 8);
    MPI_LONG_INT 12 16 8 Pair(MPI_LONG.0, MPI_INT.0, 8);
    MPI_2INT 8 8 8 Pair(MPI_INT.0, MPI_INT.0, 4);
    MPI_SHORT_INT 6 8 6 Pair(MPI_SHORT.0, MPI_INT.0, 4);
    MPI_LONG_DOUBLE_INT 20 32 20 Pair(MPI_LONG_DOUBLE.0, MPI_INT.0, 16);
    MPI_2REAL 8 8 8 Pair(MPI_REAL.0, MPI_REAL.0, 4);
    MPI_2DOUBLE_PRECISION 16 16 16 Pair(MPI_DOUBLE_PRECISION.0, MPI_DOUBLE_PRECISION.0, 8);
    MPI_2INTEGER 8 8 8 Pair(MPI_INTEGER.0, MPI_INTEGER.0, 4);
    MPI_C_BOOL 1 1 1 Logical;
    MPI_CXX_BOOL 1 1 1 Logical;
    MPI_WCHAR 4 4 2 Character;
    MPI_INT8_T 1 1 1 Signed;
    MPI_UINT8_T 1 1 1 Unsigned;
    MPI_CHAR 1 1 1 CHAR;
    MPI_SIGNED_CHAR 1 1 1 Signed;
    MPI_UNSIGNED_CHAR 1 1 1 Unsigned;
    MPI_BYTE 1 1 1 Byte;
    MPI_INT16_T 2 2 2 Signed;
    MPI_UINT16_T 2 2 2 Unsigned;
    MPI_INT32_T 4 4 4 Signed;
    MPI_UINT32_T 4 4 4 Unsigned;
    MPI_INT64_T 8 8 8 Signed;
    MPI_UINT64_T 8 8 8 Unsigned;
    MPI_LOGICAL1 1 1 1 Logical;
    MPI_INTEGER1 1 1 1 Signed;
    MPI_LOGICAL2 2 2 2 Logical;
    MPI_INTEGER2 2 2 2 Signed;
    MPI_REAL2 2 2 2 Float;
    MPI_LOGICAL4 4 4 4 Logical;
    MPI_INTEGER4 4 4 4 Signed;
    MPI_REAL4 4 4 4 Float;
    MPI_COMPLEX4 4 4 4 Complex;
    MPI_LOGICAL8 8 8 8 Logical;
    MPI_INTEGER8 8 8 8 Signed;
    MPI_REAL8 8 8 8 Float;
    MPI_COMPLEX8 8 8 8 Complex;
    MPI_LOGICAL16 16 16 16 Logical;
    MPI_INTEGER16 16 16 16 Signed;
    MPI_REAL16 16 16 16 Float;
    MPI_COMPLEX16 16 16 16 Complex;
    MPI_COMPLEX32 32 32 32 Complex;
}

/// Bytes of the predefined datatypes without gaps, by handle; 0 for others.
pub static DENSE: [u8; HANDLES] = {
    let mut all = [0; HANDLES];
    let mut at = 0;
    while at < HANDLES {
        if let Some(basic) = &BASICS[at]
            && basic.size == basic.extent
        {
            all[at] = basic.size;
        }
        at += 1;
    }
    all
};

impl Basic {
    /// The predefined datatype with this handle.
    pub fn of(handle: usize) -> Option<&'static Self> {
        BASICS.get(handle.wrapping_sub(FIRST))?.as_ref()
    }

    /// The alignment of a value in a C structure.
    pub const fn alignment(&self) -> usize {
        match self.value {
            Pair(..) => {
                if self.extent >= 32 {
                    16
                } else if self.extent >= 16 {
                    8
                } else {
                    4
                }
            }
            Complex => self.size as usize / 2,
            _ => self.size as usize,
        }
    }

    /// Parts that are reversed where the order of bytes is: their number, and the bytes of each.
    pub const fn parts(&self) -> (usize, usize) {
        match self.value {
            Complex => (2, self.size as usize / 2),
            _ => (1, self.size as usize),
        }
    }

    /// The library's element type with the same representation.
    pub const fn element(&self) -> Option<Element> {
        Some(match (self.value, self.size) {
            (Signed | Logical, 1) => Element::I8,
            (Character, 1) => Element::I8,
            (Signed | Logical, 2) => Element::I16,
            (Signed | Logical | Character, 4) => Element::I32,
            (Signed | Logical, 8) => Element::I64,
            (Unsigned | Byte, 1) => Element::U8,
            (Unsigned, 2) => Element::U16,
            (Unsigned, 4) => Element::U32,
            (Unsigned, 8) => Element::U64,
            (Float, 2) => Element::F16,
            (Float, 4) => Element::F32,
            (Float, 8) => Element::F64,
            (Complex, 8) => Element::C32,
            (Complex, 16) => Element::C64,
            _ => return None,
        })
    }
}
