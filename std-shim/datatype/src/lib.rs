//! Derived datatypes: which bytes of a buffer belong to a message, and in which order (MPI 4.1, chapter 5).
//!
//! A [`Datatype`] is built from basic types by the constructors of MPI and is flattened as it is built: neighbouring
//! blocks are merged, and regular blocks stay loops, so that a vector of a million blocks takes as much memory as one
//! of two (the dataloops of Ross, Miller, Gropp, "Implementing Fast and Reusable Datatype Processing", EuroPVM/MPI
//! 2003). It packs and unpacks from any byte on.
//!
//! ```
//! use unisono_datatype::Datatype;
//!
//! let column = Datatype::of::<u16>().vector(3, 1, 4)?; // a column of a 3 × 4 matrix
//! let (matrix, mut packed) = ([1_u8, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 7, 0, 8, 0, 9, 0, 10, 0, 11, 0, 12, 0], [0; 4]);
//! assert_eq!((column.size(), column.extent()), (6, 18));
//! assert_eq!(column.pack(&matrix, 2, &mut packed), Ok(4)); // from byte 2 on: the second and the third element
//! assert_eq!(packed, [5, 0, 9, 0]);
//! # Ok::<(), unisono_datatype::DatatypeError>(())
//! ```

#![no_std]

extern crate alloc;

mod basic;
mod bounds;
mod copy;
mod datatype;
mod disjoint;
mod error;
mod node;
mod signature;
mod subarray;

pub use basic::{Basic, BasicType};
pub use datatype::{ArrayOrder, Datatype, Field};
pub use error::{DatatypeError, OutOfBounds};
pub use node::Run;
pub use signature::Signature;

#[cfg(test)]
mod tests;
