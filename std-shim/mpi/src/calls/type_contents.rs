//! How a datatype was made: envelopes and their contents.

use core::ffi::c_int;

use crate::abi::*;
use crate::calls::give;
use crate::datatype::{Datatype, handle_of};
use crate::error::{Outcome, finish};
use crate::handle::resolve;

pub(crate) unsafe fn type_get_envelope(
    datatype: MPI_Datatype,
    integers: *mut c_int,
    addresses: *mut c_int,
    types: *mut c_int,
    combiner: *mut c_int,
) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        resolve::<Datatype>(datatype.0).and_then(|datatype| {
            let of = &datatype.envelope;
            if !of.counts.is_empty() {
                return Err(MPI_ERR_TYPE);
            }
            give(integers, of.integers.len() as c_int)?;
            give(addresses, of.addresses.len() as c_int)?;
            give(types, of.types.len() as c_int)?;
            give(combiner, of.combiner)
        })
    })
}

pub(crate) unsafe fn type_get_envelope_c(
    datatype: MPI_Datatype,
    integers: *mut MPI_Count,
    addresses: *mut MPI_Count,
    counts: *mut MPI_Count,
    types: *mut MPI_Count,
    combiner: *mut c_int,
) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        resolve::<Datatype>(datatype.0).and_then(|datatype| {
            let of = &datatype.envelope;
            give(integers, of.integers.len() as MPI_Count)?;
            give(addresses, of.addresses.len() as MPI_Count)?;
            give(counts, of.counts.len() as MPI_Count)?;
            give(types, of.types.len() as MPI_Count)?;
            give(combiner, of.combiner)
        })
    })
}

/// Copies a list to an array with room for `room` values.
unsafe fn copy_list<T, U: Copy>(from: &[U], to: *mut T, room: i64, convert: impl Fn(U) -> T) -> Outcome {
    if (from.len() as i64) > room {
        return Err(MPI_ERR_ARG);
    }
    for (at, value) in from.iter().enumerate() {
        // SAFETY: the contract of this module: there is room.
        unsafe { give(to.wrapping_add(at), convert(*value)) }?;
    }
    Ok(())
}

unsafe fn contents(
    datatype: MPI_Datatype,
    [integers, addresses, counts, types]: [i64; 4],
    to_integers: *mut c_int,
    to_addresses: *mut MPI_Aint,
    to_counts: *mut MPI_Count,
    to_types: *mut MPI_Datatype,
) -> Outcome {
    // SAFETY: the contract of this module.
    unsafe {
        let datatype = resolve::<Datatype>(datatype.0)?;
        let of = &datatype.envelope;
        if of.combiner == MPI_COMBINER_NAMED {
            return Err(MPI_ERR_TYPE);
        }
        copy_list(&of.integers, to_integers, integers, |value| value)?;
        copy_list(&of.addresses, to_addresses, addresses, |value| value as MPI_Aint)?;
        copy_list(&of.counts, to_counts, counts, |value| value)?;
        if (of.types.len() as i64) > types {
            return Err(MPI_ERR_ARG);
        }
        for (at, inner) in of.types.iter().enumerate() {
            give(to_types.wrapping_add(at), handle_of(inner))?;
        }
        Ok(())
    }
}

pub(crate) unsafe fn type_get_contents(
    datatype: MPI_Datatype,
    integers: c_int,
    addresses: c_int,
    types: c_int,
    to_integers: *mut c_int,
    to_addresses: *mut MPI_Aint,
    to_types: *mut MPI_Datatype,
) -> c_int {
    let room = [integers.into(), addresses.into(), 0, types.into()];
    // SAFETY: the contract of this module.
    finish(unsafe { contents(datatype, room, to_integers, to_addresses, core::ptr::null_mut(), to_types) })
}

pub(crate) unsafe fn type_get_contents_c(
    datatype: MPI_Datatype,
    integers: MPI_Count,
    addresses: MPI_Count,
    counts: MPI_Count,
    types: MPI_Count,
    to_integers: *mut c_int,
    to_addresses: *mut MPI_Aint,
    to_counts: *mut MPI_Count,
    to_types: *mut MPI_Datatype,
) -> c_int {
    let room = [integers, addresses, counts, types];
    // SAFETY: the contract of this module.
    finish(unsafe { contents(datatype, room, to_integers, to_addresses, to_counts, to_types) })
}
