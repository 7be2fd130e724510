//! Datatypes: constructors, lengths and bounds, and packing.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::Ordering;

use crate::abi::*;
use crate::attribute::Owner;
use crate::calls::{counts, give, give_count, give_text, list, name, text};
use crate::datatype::basic::{BASICS, Basic, Value};
use crate::datatype::construct::{self, Block, Distribution};
use crate::datatype::{Datatype, Elements, Envelope, handle_of, hold};
use crate::error::{Outcome, finish, on};
use crate::handle::{FIRST_ADDRESS, Held, Object, release, resolve};

/// Gives the program a new datatype.
unsafe fn made(to: *mut MPI_Datatype, datatype: Held<Datatype>) -> Outcome {
    // SAFETY: the contract of this module.
    unsafe { give(to, MPI_Datatype(Object::into_handle(datatype))) }
}

/// An envelope of small or large arguments.
fn envelope(
    combiner: c_int,
    is_large: bool,
    integers: Vec<i64>,
    addresses: Vec<i64>,
    types: Vec<Held<Datatype>>,
) -> Envelope {
    let (integers, addresses, counts) = if is_large {
        (Vec::new(), Vec::new(), [integers, addresses].concat())
    } else {
        (integers.into_iter().map(|integer| integer as c_int).collect(), addresses, Vec::new())
    };
    Envelope { combiner, integers, addresses, counts, types }
}

fn checked(count: i64) -> Outcome<i64> {
    if count < 0 { Err(MPI_ERR_COUNT) } else { Ok(count) }
}

pub(crate) unsafe fn type_contiguous<C: Count>(count: C, old: MPI_Datatype, new: *mut MPI_Datatype) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let (count, old) = (checked(count.get())?, hold(old)?);
            let envelope = envelope(MPI_COMBINER_CONTIGUOUS, C::LARGE, vec![count], Vec::new(), vec![old.clone()]);
            made(new, construct::of_blocks(&[Block { at: 0, length: count, datatype: &old }], false, envelope)?)
        })()
    })
}

pub(crate) unsafe fn type_vector<C: Count>(
    count: C,
    length: C,
    stride: C,
    old: MPI_Datatype,
    new: *mut MPI_Datatype,
) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let (count, length, stride, old) = (count.get(), length.get(), stride.get(), hold(old)?);
            let arguments = vec![count, length, stride];
            let envelope = envelope(MPI_COMBINER_VECTOR, C::LARGE, arguments, Vec::new(), vec![old.clone()]);
            let bytes = stride.checked_mul(old.extent).ok_or(MPI_ERR_ARG)?;
            made(new, construct::vector(count, length, bytes, &old, envelope)?)
        })()
    })
}

pub(crate) unsafe fn type_create_hvector<C: Count, D: Count>(
    count: C,
    length: C,
    stride: D,
    old: MPI_Datatype,
    new: *mut MPI_Datatype,
) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let (count, length, stride, old) = (count.get(), length.get(), stride.get(), hold(old)?);
            let envelope =
                envelope(MPI_COMBINER_HVECTOR, C::LARGE, vec![count, length], vec![stride], vec![old.clone()]);
            made(new, construct::vector(count, length, stride, &old, envelope)?)
        })()
    })
}

/// Blocks of one datatype; displacements in units of `unit` bytes.
unsafe fn indexed(
    combiner: c_int,
    is_large: bool,
    lengths: &[i64],
    (displacements, unit): (&[i64], i64),
    equal: Option<i64>,
    old: MPI_Datatype,
    new: *mut MPI_Datatype,
) -> Outcome {
    // SAFETY: the contract of this module.
    let old = unsafe { hold(old) }?;
    let count = displacements.len() as i64;
    let is_in_bytes = unit == 1 && matches!(combiner, MPI_COMBINER_HINDEXED | MPI_COMBINER_HINDEXED_BLOCK);
    let mut integers = vec![count];
    match equal {
        Some(length) => integers.push(length),
        None => integers.extend(lengths),
    }
    let mut addresses = Vec::new();
    if is_in_bytes {
        addresses.extend(displacements)
    } else {
        integers.extend(displacements)
    }
    let envelope = envelope(combiner, is_large, integers, addresses, vec![old.clone()]);
    let blocks: Vec<Block<'_>> = displacements
        .iter()
        .enumerate()
        .map(|(number, at)| {
            let length = equal.or_else(|| lengths.get(number).copied()).unwrap_or(0);
            Ok(Block { at: at.checked_mul(unit).ok_or(MPI_ERR_ARG)?, length, datatype: &old })
        })
        .collect::<Outcome<_>>()?;
    // SAFETY: the contract of this module.
    unsafe { made(new, construct::of_blocks(&blocks, false, envelope)?) }
}

unsafe fn extent_of(datatype: MPI_Datatype) -> Outcome<i64> {
    // SAFETY: the contract of this module.
    Ok(unsafe { resolve::<Datatype>(datatype.0) }?.extent)
}

pub(crate) unsafe fn type_indexed<C: Count>(
    count: C,
    lengths: *const C,
    displacements: *const C,
    old: MPI_Datatype,
    new: *mut MPI_Datatype,
) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let count = checked(count.get())?;
            let (lengths, displacements) = (counts(lengths, count)?, counts(displacements, count)?);
            let at = (&*displacements, extent_of(old)?);
            indexed(MPI_COMBINER_INDEXED, C::LARGE, &lengths, at, None, old, new)
        })()
    })
}

pub(crate) unsafe fn type_create_hindexed<C: Count, D: Count>(
    count: C,
    lengths: *const C,
    displacements: *const D,
    old: MPI_Datatype,
    new: *mut MPI_Datatype,
) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let count = checked(count.get())?;
            let (lengths, displacements) = (counts(lengths, count)?, counts(displacements, count)?);
            indexed(MPI_COMBINER_HINDEXED, C::LARGE, &lengths, (&displacements, 1), None, old, new)
        })()
    })
}

pub(crate) unsafe fn type_create_indexed_block<C: Count>(
    count: C,
    length: C,
    displacements: *const C,
    old: MPI_Datatype,
    new: *mut MPI_Datatype,
) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let displacements = counts(displacements, checked(count.get())?)?;
            let at = (&*displacements, extent_of(old)?);
            indexed(MPI_COMBINER_INDEXED_BLOCK, C::LARGE, &[], at, Some(length.get()), old, new)
        })()
    })
}

pub(crate) unsafe fn type_create_hindexed_block<C: Count, D: Count>(
    count: C,
    length: C,
    displacements: *const D,
    old: MPI_Datatype,
    new: *mut MPI_Datatype,
) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let displacements = counts(displacements, checked(count.get())?)?;
            let length = Some(length.get());
            indexed(MPI_COMBINER_HINDEXED_BLOCK, C::LARGE, &[], (&displacements, 1), length, old, new)
        })()
    })
}

pub(crate) unsafe fn type_create_struct<C: Count, D: Count>(
    count: C,
    lengths: *const C,
    displacements: *const D,
    types: *const MPI_Datatype,
    new: *mut MPI_Datatype,
) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let count = checked(count.get())?;
            let (lengths, displacements) = (counts(lengths, count)?, counts(displacements, count)?);
            let types: Vec<_> = list(types, count)?.iter().map(|of| hold(*of)).collect::<Outcome<_>>()?;
            let integers = [vec![count], lengths.clone()].concat();
            let envelope = envelope(MPI_COMBINER_STRUCT, C::LARGE, integers, displacements.clone(), types.clone());
            let blocks: Vec<Block<'_>> = types
                .iter()
                .zip(lengths.iter().zip(&displacements))
                .map(|(datatype, (length, at))| Block { at: *at, length: *length, datatype })
                .collect();
            made(new, construct::of_blocks(&blocks, true, envelope)?)
        })()
    })
}

pub(crate) unsafe fn type_create_resized<D: Count>(
    old: MPI_Datatype,
    lower: D,
    extent: D,
    new: *mut MPI_Datatype,
) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let old = hold(old)?;
            let bounds = vec![lower.get(), extent.get()];
            let envelope = envelope(MPI_COMBINER_RESIZED, D::LARGE, Vec::new(), bounds, vec![old.clone()]);
            made(new, construct::resized(lower.get(), extent.get(), &old, envelope))
        })()
    })
}

pub(crate) unsafe fn type_create_subarray<C: Count>(
    dimensions: c_int,
    sizes: *const C,
    subsizes: *const C,
    starts: *const C,
    order: c_int,
    old: MPI_Datatype,
    new: *mut MPI_Datatype,
) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            if dimensions < 1 || (order != MPI_ORDER_C && order != MPI_ORDER_FORTRAN) {
                return Err(MPI_ERR_ARG);
            }
            let number = i64::from(dimensions);
            let all = [counts(sizes, number)?, counts(subsizes, number)?, counts(starts, number)?];
            let old = hold(old)?;
            let concatenated = all.concat();
            let envelope = if C::LARGE {
                Envelope {
                    combiner: MPI_COMBINER_SUBARRAY,
                    integers: vec![dimensions, order],
                    addresses: Vec::new(),
                    counts: concatenated,
                    types: vec![old.clone()],
                }
            } else {
                let integers = [vec![number], concatenated, vec![i64::from(order)]].concat();
                envelope(MPI_COMBINER_SUBARRAY, false, integers, Vec::new(), vec![old.clone()])
            };
            let [sizes, subsizes, starts] = &all;
            made(new, construct::subarray([sizes, subsizes, starts], order == MPI_ORDER_C, &old, envelope)?)
        })()
    })
}

pub(crate) unsafe fn type_create_darray<C: Count>(
    size: c_int,
    rank: c_int,
    dimensions: c_int,
    sizes: *const C,
    distributions: *const c_int,
    arguments: *const c_int,
    grid: *const c_int,
    order: c_int,
    old: MPI_Datatype,
    new: *mut MPI_Datatype,
) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let is_c = order == MPI_ORDER_C;
            if dimensions < 1 || (!is_c && order != MPI_ORDER_FORTRAN) || size < 1 || !(0..size).contains(&rank) {
                return Err(MPI_ERR_ARG);
            }
            let number = i64::from(dimensions);
            let (sizes, old) = (counts(sizes, number)?, hold(old)?);
            let (kinds, arguments) = (list(distributions, number)?, list(arguments, number)?);
            let grid = list(grid, number)?;
            if grid.iter().map(|processes| i64::from(*processes)).product::<i64>() != i64::from(size) {
                return Err(MPI_ERR_ARG);
            }
            let own = crate::topology::coordinates(grid, rank);
            let all: Vec<Distribution> = (0..dimensions as usize)
                .map(|at| Distribution {
                    size: sizes[at],
                    kind: kinds[at],
                    argument: arguments[at].into(),
                    processes: grid[at].into(),
                    coordinate: own[at].into(),
                })
                .collect();
            let lists = [kinds, arguments, grid].concat();
            let envelope = if C::LARGE {
                Envelope {
                    combiner: MPI_COMBINER_DARRAY,
                    integers: [vec![size, rank, dimensions], lists, vec![order]].concat(),
                    addresses: Vec::new(),
                    counts: sizes,
                    types: vec![old.clone()],
                }
            } else {
                let small: Vec<c_int> = sizes.iter().map(|size| *size as c_int).collect();
                Envelope {
                    combiner: MPI_COMBINER_DARRAY,
                    integers: [vec![size, rank, dimensions], small, lists, vec![order]].concat(),
                    addresses: Vec::new(),
                    counts: Vec::new(),
                    types: vec![old.clone()],
                }
            };
            made(new, construct::darray(&all, is_c, &old, envelope)?)
        })()
    })
}

pub(crate) unsafe fn type_dup(old: MPI_Datatype, new: *mut MPI_Datatype) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let former = hold(old)?;
            let copy = construct::duplicate(&former);
            give(new, MPI_DATATYPE_NULL)?;
            former.attributes.copy_to(old.0, &copy.attributes)?;
            made(new, copy)
        })()
    })
}

pub(crate) unsafe fn type_commit(datatype: *mut MPI_Datatype) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let handle = *datatype.as_ref().ok_or(MPI_ERR_ARG)?;
            resolve::<Datatype>(handle.0)?.is_committed.store(true, Ordering::Relaxed);
            Ok(())
        })()
    })
}

pub(crate) unsafe fn type_free(datatype: *mut MPI_Datatype) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let handle = *datatype.as_ref().ok_or(MPI_ERR_ARG)?;
            if handle.0 < FIRST_ADDRESS {
                return Err(MPI_ERR_TYPE);
            }
            let object = resolve::<Datatype>(handle.0)?;
            if object.is_named() {
                return Err(MPI_ERR_TYPE);
            }
            object.attributes.delete_all(handle.0)?;
            drop(release::<Datatype>(handle.0)?);
            give(datatype, MPI_DATATYPE_NULL)
        })()
    })
}

pub(crate) unsafe fn type_size<C: Count>(datatype: MPI_Datatype, size: *mut C) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        resolve::<Datatype>(datatype.0).and_then(|datatype| give_count(size, datatype.size, MPI_UNDEFINED))
    })
}

pub(crate) unsafe fn type_size_x(datatype: MPI_Datatype, size: *mut MPI_Count) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { type_size(datatype, size) }
}

pub(crate) unsafe fn type_get_extent<C: Count>(datatype: MPI_Datatype, lower: *mut C, extent: *mut C) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        resolve::<Datatype>(datatype.0).and_then(|datatype| {
            give_count(lower, datatype.lower, MPI_UNDEFINED)?;
            give_count(extent, datatype.extent, MPI_UNDEFINED)
        })
    })
}

pub(crate) unsafe fn type_get_extent_x(datatype: MPI_Datatype, lower: *mut MPI_Count, extent: *mut MPI_Count) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { type_get_extent(datatype, lower, extent) }
}

pub(crate) unsafe fn type_get_true_extent<C: Count>(datatype: MPI_Datatype, lower: *mut C, extent: *mut C) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        resolve::<Datatype>(datatype.0).and_then(|datatype| {
            give_count(lower, datatype.true_lower, MPI_UNDEFINED)?;
            give_count(extent, datatype.true_extent, MPI_UNDEFINED)
        })
    })
}

pub(crate) unsafe fn type_get_true_extent_x(
    datatype: MPI_Datatype,
    lower: *mut MPI_Count,
    extent: *mut MPI_Count,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { type_get_true_extent(datatype, lower, extent) }
}

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

pub(crate) unsafe fn type_set_name(datatype: MPI_Datatype, text: *const c_char) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        resolve::<Datatype>(datatype.0).and_then(|datatype| {
            *datatype.name.lock() = Some(name(text)?);
            Ok(())
        })
    })
}

pub(crate) unsafe fn type_get_name(datatype: MPI_Datatype, text: *mut c_char, length: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        if datatype == MPI_DATATYPE_NULL {
            return finish(give_text(text, length, c"MPI_DATATYPE_NULL", MPI_MAX_OBJECT_NAME));
        }
        resolve::<Datatype>(datatype.0).and_then(|datatype| {
            let name = datatype.name.lock().clone().unwrap_or_default();
            give_text(text, length, &name, MPI_MAX_OBJECT_NAME)
        })
    })
}

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
    finish(unsafe { give(pair, found) })
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

impl Datatype {
    /// Whether its handle is not the program's to free.
    fn is_named(&self) -> bool {
        matches!(
            self.envelope.combiner,
            MPI_COMBINER_NAMED | MPI_COMBINER_F90_REAL | MPI_COMBINER_F90_COMPLEX | MPI_COMBINER_F90_INTEGER
        )
    }
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

pub(crate) unsafe fn type_create_keyval(
    copy: Callback,
    delete: Callback,
    key: *mut c_int,
    extra: *mut c_void,
) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { give(key, crate::attribute::create(Owner::Datatype, copy, delete, extra)) })
}
