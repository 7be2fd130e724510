//! Packing, also into the external representation.

use core::ffi::{c_char, c_int, c_void};

use crate::abi::*;
use crate::calls::datatypes::checked;
use crate::calls::{give_count, text};
use crate::datatype::basic::{Basic, Value};
use crate::datatype::{Datatype, Elements};
use crate::error::{Outcome, finish, on};
use crate::handle::resolve;

/// Where packed bytes begin, and how many there are.
unsafe fn place<C: Count>(position: *mut C, size: i64, bytes: usize) -> Outcome<usize> {
    // SAFETY: the contract of this module.
    let at = unsafe { position.as_ref() }.ok_or(MPI_ERR_ARG)?.get();
    let end = at.checked_add(bytes as i64).ok_or(MPI_ERR_ARG)?;
    if at < 0 {
        return Err(MPI_ERR_ARG);
    }
    if end > size { Err(MPI_ERR_TRUNCATE) } else { Ok(at as usize) }
}

pub(crate) unsafe fn pack<C: Count>(
    from: *const c_void,
    count: C,
    datatype: MPI_Datatype,
    into: *mut c_void,
    size: C,
    position: *mut C,
    comm: MPI_Comm,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |_| {
            let elements = Elements::new(from.cast(), count.get(), datatype)?;
            let at = place(position, size.get(), elements.bytes)?;
            if elements.bytes > 0 {
                let target = into.cast::<u8>().wrapping_add(at);
                elements.pack(core::slice::from_raw_parts_mut(target, elements.bytes));
            }
            give_count(position, (at + elements.bytes) as i64, MPI_UNDEFINED)
        })
    }
}

pub(crate) unsafe fn unpack<C: Count>(
    from: *const c_void,
    size: C,
    position: *mut C,
    into: *mut c_void,
    count: C,
    datatype: MPI_Datatype,
    comm: MPI_Comm,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |_| {
            let elements = Elements::new(into.cast(), count.get(), datatype)?;
            let at = place(position, size.get(), elements.bytes)?;
            if elements.bytes > 0 {
                let source = from.cast::<u8>().wrapping_add(at);
                elements.unpack(core::slice::from_raw_parts(source, elements.bytes));
            }
            give_count(position, (at + elements.bytes) as i64, MPI_UNDEFINED)
        })
    }
}

pub(crate) unsafe fn pack_size<C: Count>(count: C, datatype: MPI_Datatype, comm: MPI_Comm, size: *mut C) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |_| {
            let bytes = resolve::<Datatype>(datatype.0)?.bytes(checked(count.get())?)?;
            give_count(size, bytes as i64, MPI_UNDEFINED)
        })
    }
}

/// Checks the name of the only external representation.
unsafe fn external(representation: *const c_char) -> Outcome {
    // SAFETY: the contract of this module.
    if unsafe { text(representation) }?.to_bytes() == b"external32" { Ok(()) } else { Err(MPI_ERR_ARG) }
}

/// Bytes of elements in the external representation.
fn external_bytes(datatype: &Datatype, count: i64) -> i64 {
    let mut bytes = 0;
    datatype.layout.visit(0, &mut |runs| {
        bytes += (runs.count * runs.runs) as i64 * i64::from(runs.basic.external);
        true
    });
    bytes * count
}

/// Converts a value to or from its big-endian form, which may be shorter.
fn to_external(basic: &Basic, native: &[u8], external: &mut [u8]) {
    let (parts, size) = basic.parts();
    let outer = external.len() / parts;
    for (from, to) in native.chunks_exact(size).zip(external.chunks_exact_mut(outer)) {
        to.iter_mut().rev().zip(from).for_each(|(to, from)| *to = *from);
    }
}

fn from_external(basic: &Basic, external: &[u8], native: &mut [u8]) {
    let (parts, size) = basic.parts();
    let outer = external.len() / parts;
    for (from, to) in external.chunks_exact(outer).zip(native.chunks_exact_mut(size)) {
        let is_negative = basic.value == Value::Signed && from.first().is_some_and(|first| first & 0x80 != 0);
        to.fill(if is_negative { 0xff } else { 0 });
        to.iter_mut().zip(from.iter().rev()).for_each(|(to, from)| *to = *from);
    }
}

/// Calls `convert` with each value's packed bytes, and the bytes of its external form.
fn convert_all(datatype: &Datatype, count: i64, convert: &mut dyn FnMut(&'static Basic)) {
    for _ in 0..count {
        datatype.layout.visit(0, &mut |runs| {
            for _ in 0..runs.count * runs.runs {
                convert(runs.basic);
            }
            true
        });
    }
}

pub(crate) unsafe fn pack_external<C: Count, D: Count>(
    representation: *const c_char,
    from: *const c_void,
    count: D,
    datatype: MPI_Datatype,
    into: *mut c_void,
    size: C,
    position: *mut C,
) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            external(representation)?;
            let elements = Elements::new(from.cast(), count.get(), datatype)?;
            let of = resolve::<Datatype>(datatype.0)?;
            let bytes = external_bytes(of, count.get()) as usize;
            let at = place(position, size.get(), bytes)?;
            let packed = elements.packed();
            let mut target = into.cast::<u8>().wrapping_add(at);
            let mut source = packed.as_slice();
            convert_all(of, count.get(), &mut |basic| {
                let (value, rest) = source.split_at(basic.size.into());
                let outer = usize::from(basic.external);
                to_external(basic, value, core::slice::from_raw_parts_mut(target, outer));
                (source, target) = (rest, target.wrapping_add(outer));
            });
            give_count(position, (at + bytes) as i64, MPI_UNDEFINED)
        })()
    })
}

pub(crate) unsafe fn unpack_external<C: Count, D: Count>(
    representation: *const c_char,
    from: *const c_void,
    size: C,
    position: *mut C,
    into: *mut c_void,
    count: D,
    datatype: MPI_Datatype,
) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            external(representation)?;
            let elements = Elements::new(into.cast(), count.get(), datatype)?;
            let of = resolve::<Datatype>(datatype.0)?;
            let bytes = external_bytes(of, count.get()) as usize;
            let at = place(position, size.get(), bytes)?;
            let mut packed = vec![0; elements.bytes];
            let mut source = from.cast::<u8>().wrapping_add(at);
            let mut target = packed.as_mut_slice();
            convert_all(of, count.get(), &mut |basic| {
                let (value, rest) = core::mem::take(&mut target).split_at_mut(basic.size.into());
                let outer = usize::from(basic.external);
                from_external(basic, core::slice::from_raw_parts(source, outer), value);
                (source, target) = (source.wrapping_add(outer), rest);
            });
            elements.unpack(&packed);
            give_count(position, (at + bytes) as i64, MPI_UNDEFINED)
        })()
    })
}

pub(crate) unsafe fn pack_external_size<C: Count, D: Count>(
    representation: *const c_char,
    count: D,
    datatype: MPI_Datatype,
    size: *mut C,
) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            external(representation)?;
            let bytes = external_bytes(resolve::<Datatype>(datatype.0)?, checked(count.get())?);
            give_count(size, bytes, MPI_UNDEFINED)
        })()
    })
}
