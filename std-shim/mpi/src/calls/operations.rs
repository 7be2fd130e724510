//! Reduction operations, and the reduction without communication.

use core::ffi::{c_int, c_void};

use crate::abi::*;
use crate::calls::give;
use crate::datatype::{Elements, hold};
use crate::error::{Outcome, finish};
use crate::handle::{FIRST_ADDRESS, Object, release, resolve};
use crate::operation::{Op, operator};

unsafe fn create(function: Callback, commute: c_int, is_large: bool, op: *mut MPI_Op) -> Outcome {
    if function.is_null() {
        return Err(MPI_ERR_ARG);
    }
    let function = Op::Function { function: function.expose_provenance(), is_commutative: commute != 0, is_large };
    // SAFETY: the contract of this module.
    unsafe { give(op, MPI_Op(Object::into_handle(Object::new(function)))) }
}

pub(crate) unsafe fn op_create(function: Callback, commute: c_int, op: *mut MPI_Op) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { create(function, commute, false, op) })
}

pub(crate) unsafe fn op_create_c(function: Callback, commute: c_int, op: *mut MPI_Op) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { create(function, commute, true, op) })
}

pub(crate) unsafe fn op_free(op: *mut MPI_Op) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let handle = *op.as_ref().ok_or(MPI_ERR_ARG)?;
            if handle.0 < FIRST_ADDRESS {
                return Err(MPI_ERR_OP);
            }
            drop(release::<Op>(handle.0)?);
            give(op, MPI_OP_NULL)
        })()
    })
}

pub(crate) unsafe fn op_commutative(op: MPI_Op, commute: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { resolve::<Op>(op.0).and_then(|op| give(commute, op.is_commutative().into())) })
}

pub(crate) unsafe fn reduce_local<C: Count>(
    left: *const c_void,
    both: *mut c_void,
    count: C,
    datatype: MPI_Datatype,
    op: MPI_Op,
) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let left = Elements::new(left.cast(), count.get(), datatype)?;
            let right = Elements::new(both.cast(), count.get(), datatype)?;
            if op == MPI_REPLACE {
                right.unpack(&left.packed());
                return Ok(());
            }
            if op == MPI_NO_OP {
                return Ok(());
            }
            let mut operator = operator(op, &hold(datatype)?)?;
            if count.get() == 0 {
                return Ok(());
            }
            let from = operator.expand(left.packed());
            let mut into = operator.expand(right.packed());
            operator.combine_left(&from, &mut into);
            right.unpack(&operator.compress(&into));
            Ok(())
        })()
    })
}
