//! Errors of datatypes.

use core::error::Error;
use core::fmt;

/// Why a datatype cannot be built.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DatatypeError {
    /// Its size, its extent or an offset exceeds the address space.
    TooLarge,
    /// Two lists of arguments differ in length.
    Lengths,
    /// A subarray exceeds its array, or the array has no dimension.
    Subarray,
}

impl fmt::Display for DatatypeError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::TooLarge => "the datatype exceeds the address space",
            Self::Lengths => "the lists that describe the datatype differ in length",
            Self::Subarray => "the subarray exceeds its array, or the array has no dimension",
        })
    }
}

impl Error for DatatypeError {}

/// The datatype names bytes outside of the buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OutOfBounds {
    /// Offset of its first byte.
    pub first: isize,
    /// Offset after its last byte.
    pub end: isize,
    /// Length of the buffer.
    pub given: usize,
}

impl fmt::Display for OutOfBounds {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, end, given } = self;
        write!(to, "the datatype takes the bytes {first} to {end} of a buffer of {given}")
    }
}

impl Error for OutOfBounds {}
