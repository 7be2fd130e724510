//! Functions that MPI 3.0 removed, and old programs use.

use core::ffi::{c_int, c_void};

use crate::abi::*;
use crate::calls::{datatypes, environment, errors, give};
use crate::datatype::Datatype;
use crate::error::finish;
use crate::handle::resolve;

pub(crate) unsafe fn address(location: *mut c_void, address: *mut MPI_Aint) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { environment::get_address(location, address) }
}

pub(crate) unsafe fn errhandler_create(function: Callback, errhandler: *mut MPI_Errhandler) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { errors::comm_create_errhandler(function, errhandler) }
}

pub(crate) unsafe fn errhandler_get(comm: MPI_Comm, errhandler: *mut MPI_Errhandler) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { errors::comm_get_errhandler(comm, errhandler) }
}

pub(crate) unsafe fn errhandler_set(comm: MPI_Comm, errhandler: MPI_Errhandler) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { errors::comm_set_errhandler(comm, errhandler) }
}

pub(crate) unsafe fn type_extent(datatype: MPI_Datatype, extent: *mut MPI_Aint) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { resolve::<Datatype>(datatype.0).and_then(|of| give(extent, of.extent as MPI_Aint)) })
}

pub(crate) unsafe fn type_lb(datatype: MPI_Datatype, lower: *mut MPI_Aint) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { resolve::<Datatype>(datatype.0).and_then(|of| give(lower, of.lower as MPI_Aint)) })
}

pub(crate) unsafe fn type_ub(datatype: MPI_Datatype, upper: *mut MPI_Aint) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { resolve::<Datatype>(datatype.0).and_then(|of| give(upper, (of.lower + of.extent) as MPI_Aint)) })
}

pub(crate) unsafe fn type_hindexed(
    count: c_int,
    lengths: *mut c_int,
    displacements: *mut MPI_Aint,
    old: MPI_Datatype,
    new: *mut MPI_Datatype,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { datatypes::type_create_hindexed(count, lengths, displacements, old, new) }
}

pub(crate) unsafe fn type_hvector(
    count: c_int,
    length: c_int,
    stride: MPI_Aint,
    old: MPI_Datatype,
    new: *mut MPI_Datatype,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { datatypes::type_create_hvector(count, length, stride, old, new) }
}

pub(crate) unsafe fn type_struct(
    count: c_int,
    lengths: *mut c_int,
    displacements: *mut MPI_Aint,
    types: *mut MPI_Datatype,
    new: *mut MPI_Datatype,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { datatypes::type_create_struct(count, lengths, displacements, types, new) }
}
