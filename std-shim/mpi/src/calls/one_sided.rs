//! One-sided communication: put, get, and accumulates. Each is done in the caller's memory when it returns, so the
//! requests of the request-based forms have ended.

use core::ffi::{c_int, c_void};

use unisono::Rank;

use crate::abi::*;
use crate::calls::give;
use crate::datatype::{Datatype, Elements};
use crate::error::Outcome;
use crate::handle::resolve;
use crate::request::COMPLETED;
use crate::window::access::{Packed, Target, Update, comparable_bytes, get_into};
use crate::window::{Win, on};

/// Checks that an operation may access a target in the open epoch. Returns its rank; none for `MPI_PROC_NULL`.
fn target_of_operation(win: &Win, target: c_int) -> Outcome<Option<Rank>> {
    let target = win.target(target)?;
    win.epochs.lock().operate(target)?;
    Ok(target)
}

/// The arguments that name the caller's elements: address, count, datatype.
type OriginArgs<C> = (*mut u8, C, MPI_Datatype);
/// The arguments that name the target's elements: displacement, count, datatype.
type TargetArgs<C> = (MPI_Aint, C, MPI_Datatype);

unsafe fn put_elements<C: Count>(win: &Win, origin: OriginArgs<C>, target: c_int, at: TargetArgs<C>) -> Outcome {
    let Some(rank) = target_of_operation(win, target)? else { return Ok(()) };
    // SAFETY: the contract of this module.
    unsafe {
        let elements = Elements::new(origin.0, origin.1.get(), origin.2)?;
        let target = Target::new(win, rank, at.0, at.1.get(), at.2)?;
        if elements.bytes > target.bytes {
            return Err(MPI_ERR_TRUNCATE);
        }
        target.put(Packed::new(&elements).bytes())
    }
}

unsafe fn get_elements<C: Count>(win: &Win, origin: OriginArgs<C>, target: c_int, at: TargetArgs<C>) -> Outcome {
    let Some(rank) = target_of_operation(win, target)? else { return Ok(()) };
    // SAFETY: the contract of this module.
    unsafe {
        let elements = Elements::new(origin.0, origin.1.get(), origin.2)?;
        get_into(&Target::new(win, rank, at.0, at.1.get(), at.2)?, &elements)
    }
}

/// Combines; `result`: where the old elements go.
unsafe fn accumulate_elements<C: Count>(
    win: &Win,
    origin: OriginArgs<C>,
    result: Option<OriginArgs<C>>,
    target: c_int,
    at: TargetArgs<C>,
    op: MPI_Op,
) -> Outcome {
    let Some(rank) = target_of_operation(win, target)? else { return Ok(()) };
    // SAFETY: the contract of this module.
    unsafe {
        let target = Target::new(win, rank, at.0, at.1.get(), at.2)?;
        if target.bytes == 0 && origin.1.get() == 0 {
            // No element that the operation could be wrong for.
            return Ok(());
        }
        let update = Update::new(op, &target, result.is_some())?;
        let nothing;
        let packed;
        let operands = if matches!(update, Update::Read) {
            nothing = vec![0; target.bytes];
            &nothing[..]
        } else {
            packed = Packed::new(&Elements::new(origin.0, origin.1.get(), origin.2)?);
            packed.bytes()
        };
        if operands.len() != target.bytes {
            return Err(MPI_ERR_TRUNCATE);
        }
        let Some(result) = result else { return target.update(&update, operands, None) };
        let into = Elements::new(result.0, result.1.get(), result.2)?;
        if into.bytes != target.bytes {
            return Err(MPI_ERR_TRUNCATE);
        }
        let mut word = [0; 8];
        if let Some(old) = word.get_mut(..target.bytes)
            && target.fetch_element(&update, operands, old)?
        {
            into.unpack(old);
            return Ok(());
        }
        let mut old = vec![0; target.bytes];
        target.update(&update, operands, Some(&mut old))?;
        into.unpack(&old);
        Ok(())
    }
}

pub(crate) unsafe fn put<C: Count>(
    origin: *const c_void,
    count: C,
    datatype: MPI_Datatype,
    target: c_int,
    displacement: MPI_Aint,
    target_count: C,
    target_datatype: MPI_Datatype,
    win: MPI_Win,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |win| {
            put_elements(
                win,
                (origin.cast_mut().cast(), count, datatype),
                target,
                (displacement, target_count, target_datatype),
            )
        })
    }
}

pub(crate) unsafe fn rput<C: Count>(
    origin: *const c_void,
    count: C,
    datatype: MPI_Datatype,
    target: c_int,
    displacement: MPI_Aint,
    target_count: C,
    target_datatype: MPI_Datatype,
    win: MPI_Win,
    request: *mut MPI_Request,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |win| {
            put_elements(
                win,
                (origin.cast_mut().cast(), count, datatype),
                target,
                (displacement, target_count, target_datatype),
            )
            .and_then(|()| give(request, COMPLETED))
        })
    }
}

pub(crate) unsafe fn get<C: Count>(
    origin: *mut c_void,
    count: C,
    datatype: MPI_Datatype,
    target: c_int,
    displacement: MPI_Aint,
    target_count: C,
    target_datatype: MPI_Datatype,
    win: MPI_Win,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |win| {
            get_elements(win, (origin.cast(), count, datatype), target, (displacement, target_count, target_datatype))
        })
    }
}

pub(crate) unsafe fn rget<C: Count>(
    origin: *mut c_void,
    count: C,
    datatype: MPI_Datatype,
    target: c_int,
    displacement: MPI_Aint,
    target_count: C,
    target_datatype: MPI_Datatype,
    win: MPI_Win,
    request: *mut MPI_Request,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |win| {
            get_elements(win, (origin.cast(), count, datatype), target, (displacement, target_count, target_datatype))
                .and_then(|()| give(request, COMPLETED))
        })
    }
}

pub(crate) unsafe fn accumulate<C: Count>(
    origin: *const c_void,
    count: C,
    datatype: MPI_Datatype,
    target: c_int,
    displacement: MPI_Aint,
    target_count: C,
    target_datatype: MPI_Datatype,
    op: MPI_Op,
    win: MPI_Win,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |win| {
            accumulate_elements(
                win,
                (origin.cast_mut().cast(), count, datatype),
                None,
                target,
                (displacement, target_count, target_datatype),
                op,
            )
        })
    }
}

pub(crate) unsafe fn raccumulate<C: Count>(
    origin: *const c_void,
    count: C,
    datatype: MPI_Datatype,
    target: c_int,
    displacement: MPI_Aint,
    target_count: C,
    target_datatype: MPI_Datatype,
    op: MPI_Op,
    win: MPI_Win,
    request: *mut MPI_Request,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |win| {
            accumulate_elements(
                win,
                (origin.cast_mut().cast(), count, datatype),
                None,
                target,
                (displacement, target_count, target_datatype),
                op,
            )
            .and_then(|()| give(request, COMPLETED))
        })
    }
}

pub(crate) unsafe fn get_accumulate<C: Count>(
    origin: *const c_void,
    count: C,
    datatype: MPI_Datatype,
    result: *mut c_void,
    result_count: C,
    result_datatype: MPI_Datatype,
    target: c_int,
    displacement: MPI_Aint,
    target_count: C,
    target_datatype: MPI_Datatype,
    op: MPI_Op,
    win: MPI_Win,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |win| {
            accumulate_elements(
                win,
                (origin.cast_mut().cast(), count, datatype),
                Some((result.cast(), result_count, result_datatype)),
                target,
                (displacement, target_count, target_datatype),
                op,
            )
        })
    }
}

pub(crate) unsafe fn rget_accumulate<C: Count>(
    origin: *const c_void,
    count: C,
    datatype: MPI_Datatype,
    result: *mut c_void,
    result_count: C,
    result_datatype: MPI_Datatype,
    target: c_int,
    displacement: MPI_Aint,
    target_count: C,
    target_datatype: MPI_Datatype,
    op: MPI_Op,
    win: MPI_Win,
    request: *mut MPI_Request,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |win| {
            accumulate_elements(
                win,
                (origin.cast_mut().cast(), count, datatype),
                Some((result.cast(), result_count, result_datatype)),
                target,
                (displacement, target_count, target_datatype),
                op,
            )
            .and_then(|()| give(request, COMPLETED))
        })
    }
}

pub(crate) unsafe fn fetch_and_op(
    origin: *const c_void,
    result: *mut c_void,
    datatype: MPI_Datatype,
    target: c_int,
    displacement: MPI_Aint,
    op: MPI_Op,
    win: MPI_Win,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |win| {
            let (one, element) = (1 as c_int, origin.cast_mut().cast());
            let into = Some((result.cast(), one, datatype));
            accumulate_elements(win, (element, one, datatype), into, target, (displacement, one, datatype), op)
        })
    }
}

pub(crate) unsafe fn compare_and_swap(
    origin: *const c_void,
    compare: *const c_void,
    result: *mut c_void,
    datatype: MPI_Datatype,
    target: c_int,
    displacement: MPI_Aint,
    win: MPI_Win,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |win| {
            let Some(rank) = target_of_operation(win, target)? else { return Ok(()) };
            if origin.is_null() || compare.is_null() || result.is_null() {
                return Err(MPI_ERR_BUFFER);
            }
            let basic = resolve::<Datatype>(datatype.0)?.basic.ok_or(MPI_ERR_TYPE)?;
            let (rank, offset) = Target::new(win, rank, displacement, 1, datatype)?.element()?;
            macro_rules! swap {
                ($element:ty) => {{
                    let read = |from: *const c_void| from.cast::<$element>().read_unaligned();
                    let (expected, new) = (read(compare), read(origin));
                    let old = win.with(|window| window.compare_and_swap(expected, new, rank, offset))?;
                    result.cast::<$element>().write_unaligned(old);
                    Ok(())
                }};
            }
            match comparable_bytes(basic) {
                Some(1) => swap!(u8),
                Some(2) => swap!(u16),
                Some(4) => swap!(u32),
                Some(8) => swap!(u64),
                _ => Err(MPI_ERR_TYPE),
            }
        })
    }
}
