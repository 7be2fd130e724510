//! Datatypes: constructors, lengths, bounds, and names.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::Ordering;

use crate::abi::*;
use crate::attribute::Owner;
use crate::calls::{counts, give, give_count, give_text, list, name};
use crate::datatype::construct::{self, Block, Distribution};
use crate::datatype::{Datatype, Envelope, hold};
use crate::error::{Outcome, finish};
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

/// A count that is not negative.
pub(super) fn checked(count: i64) -> Outcome<i64> {
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

impl Datatype {
    /// Whether its handle is not the program's to free.
    fn is_named(&self) -> bool {
        matches!(
            self.envelope.combiner,
            MPI_COMBINER_NAMED | MPI_COMBINER_F90_REAL | MPI_COMBINER_F90_COMPLEX | MPI_COMBINER_F90_INTEGER
        )
    }
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
