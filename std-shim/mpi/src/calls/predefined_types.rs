//! Predefined datatypes: by class and size, by Fortran's precision and range, pairs of a value and an index.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use crate::abi::*;
use crate::calls::give;
use crate::datatype::basic::{BASICS, Basic, Value};
use crate::datatype::construct;
use crate::datatype::{Datatype, Envelope, hold};
use crate::error::finish;
use crate::handle::{Object, resolve};

pub(crate) unsafe fn type_match_size(class: c_int, size: c_int, datatype: *mut MPI_Datatype) -> c_int {
    let found = match (class, size) {
        (MPI_TYPECLASS_INTEGER, 1) => Some(MPI_INTEGER1),
        (MPI_TYPECLASS_INTEGER, 2) => Some(MPI_INTEGER2),
        (MPI_TYPECLASS_INTEGER, 4) => Some(MPI_INTEGER4),
        (MPI_TYPECLASS_INTEGER, 8) => Some(MPI_INTEGER8),
        (MPI_TYPECLASS_INTEGER, 16) => Some(MPI_INTEGER16),
        (MPI_TYPECLASS_REAL, 2) => Some(MPI_REAL2),
        (MPI_TYPECLASS_REAL, 4) => Some(MPI_REAL4),
        (MPI_TYPECLASS_REAL, 8) => Some(MPI_REAL8),
        (MPI_TYPECLASS_REAL, 16) => Some(MPI_REAL16),
        (MPI_TYPECLASS_COMPLEX, 4) => Some(MPI_COMPLEX4),
        (MPI_TYPECLASS_COMPLEX, 8) => Some(MPI_COMPLEX8),
        (MPI_TYPECLASS_COMPLEX, 16) => Some(MPI_COMPLEX16),
        (MPI_TYPECLASS_COMPLEX, 32) => Some(MPI_COMPLEX32),
        (MPIX_TYPECLASS_LOGICAL, 1) => Some(MPI_LOGICAL1),
        (MPIX_TYPECLASS_LOGICAL, 2) => Some(MPI_LOGICAL2),
        (MPIX_TYPECLASS_LOGICAL, 4) => Some(MPI_LOGICAL4),
        (MPIX_TYPECLASS_LOGICAL, 8) => Some(MPI_LOGICAL8),
        _ => None,
    };
    // SAFETY: the contract of this module.
    finish(found.ok_or(MPI_ERR_ARG).and_then(|found| unsafe { give(datatype, found) }))
}

/// The constant of the type class of truth values, which the header of the ABI has as an extension.
const MPIX_TYPECLASS_LOGICAL: c_int = 191;

pub(crate) unsafe fn type_get_value_index(value: MPI_Datatype, index: MPI_Datatype, pair: *mut MPI_Datatype) -> c_int {
    let is_it = |basic: &&Basic| matches!(basic.value, Value::Pair(v, i, _) if (v, i) == (value.0, index.0));
    let found = BASICS.iter().flatten().find(is_it).map_or(MPI_DATATYPE_NULL, |basic| MPI_Datatype(basic.handle));
    // SAFETY: the contract of this module.
    finish(unsafe {
        resolve::<Datatype>(value.0).and_then(|_| resolve::<Datatype>(index.0)).and_then(|_| give(pair, found))
    })
}

/// A predefined datatype that stands for a Fortran type of a precision.
unsafe fn parametric(
    combiner: c_int,
    integers: Vec<c_int>,
    basic: Option<MPI_Datatype>,
    new: *mut MPI_Datatype,
) -> c_int {
    type Made = parking_lot::Mutex<Vec<(c_int, Vec<c_int>, usize)>>;
    /// The same arguments give the same datatype, which the program does not free.
    static ALL: Made = parking_lot::Mutex::new(Vec::new());
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let basic = hold(basic.ok_or(MPI_ERR_ARG)?)?;
            let mut all = ALL.lock();
            let known = all.iter().find(|(of, arguments, _)| (*of, arguments) == (combiner, &integers));
            let handle = known.map(|(.., handle)| *handle).unwrap_or_else(|| {
                let envelope = Envelope {
                    combiner,
                    integers: integers.clone(),
                    addresses: Vec::new(),
                    counts: Vec::new(),
                    types: vec![basic.clone()],
                };
                let made = construct::resized(0, basic.extent, &basic, Envelope { types: Vec::new(), ..envelope });
                made.is_committed.store(true, Ordering::Relaxed);
                let handle = Object::into_handle(made);
                all.push((combiner, integers.clone(), handle));
                handle
            });
            give(new, MPI_Datatype(handle))
        })()
    })
}

/// Bytes of the shortest real number with this precision and range.
const fn real_bytes(precision: c_int, range: c_int) -> Option<usize> {
    let p = if precision == MPI_UNDEFINED { 0 } else { precision };
    let r = if range == MPI_UNDEFINED { 0 } else { range };
    if p <= 6 && r <= 37 {
        Some(4)
    } else if p <= 15 && r <= 307 {
        Some(8)
    } else if p <= 18 && r <= 4931 {
        Some(16)
    } else {
        None
    }
}

pub(crate) unsafe fn type_create_f90_real(precision: c_int, range: c_int, new: *mut MPI_Datatype) -> c_int {
    let basic = real_bytes(precision, range).map(|bytes| match bytes {
        4 => MPI_REAL4,
        8 => MPI_REAL8,
        _ => MPI_LONG_DOUBLE,
    });
    // SAFETY: the contract of this module.
    unsafe { parametric(MPI_COMBINER_F90_REAL, vec![precision, range], basic, new) }
}

pub(crate) unsafe fn type_create_f90_complex(precision: c_int, range: c_int, new: *mut MPI_Datatype) -> c_int {
    let basic = real_bytes(precision, range).map(|bytes| match bytes {
        4 => MPI_COMPLEX8,
        8 => MPI_COMPLEX16,
        _ => MPI_C_LONG_DOUBLE_COMPLEX,
    });
    // SAFETY: the contract of this module.
    unsafe { parametric(MPI_COMBINER_F90_COMPLEX, vec![precision, range], basic, new) }
}

pub(crate) unsafe fn type_create_f90_integer(range: c_int, new: *mut MPI_Datatype) -> c_int {
    let basic = match range {
        ..=2 => Some(MPI_INTEGER1),
        3..=4 => Some(MPI_INTEGER2),
        5..=9 => Some(MPI_INTEGER4),
        10..=18 => Some(MPI_INTEGER8),
        _ => None,
    };
    // SAFETY: the contract of this module.
    unsafe { parametric(MPI_COMBINER_F90_INTEGER, vec![range], basic, new) }
}
