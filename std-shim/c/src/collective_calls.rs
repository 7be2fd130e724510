//! The exported functions of collectives, in three forms.
//!
//! All ranks call the same collectives in the same order, with the same root, operation and datatype. With the send
//! buffer `UNISONO_IN_PLACE`, at all ranks, the receive buffer holds the input, too.

pub mod blocking;
pub mod exchanges;
pub mod immediate;
pub mod persistent;

use core::ffi::c_void;

use crate::datatype::{Buffer, unisono_datatype};
use crate::operation::unisono_operation;

/// The operation of a collective without one.
const NONE: unisono_operation = 0;

const fn buffer(start: *const c_void, count: usize, datatype: unisono_datatype) -> Buffer {
    Buffer { start: start.cast_mut(), count, datatype }
}
