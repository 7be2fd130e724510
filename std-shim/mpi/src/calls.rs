//! The functions of the ABI, by topic. `build.rs` exports those that a file declares with `pub(crate) unsafe fn`, or
//! that a list of a macro names with `fn`.
//!
//! All of them have the same contract: the program calls them as the standard says. What the standard asks to be
//! detected is; a pointer that must not be null and is gives `MPI_ERR_ARG`.

#![allow(clippy::missing_safety_doc, reason = "the contract of all is stated above")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "one contract covers all of them")]
#![allow(clippy::too_many_arguments, reason = "signatures of the ABI")]

pub mod attributes;
pub mod buffers;
pub mod collectives;
pub mod communicators;
pub mod controls;
pub mod counters;
pub mod datatypes;
pub mod environment;
pub mod epochs;
pub mod errors;
pub mod events;
pub mod groups;
pub mod infos;
pub mod integers;
pub mod one_sided;
pub mod operations;
pub mod packing;
pub mod point_to_point;
pub mod predefined_types;
pub mod probes;
pub mod removed;
pub mod requests;
pub mod sessions;
pub mod tools;
pub mod topologies;
pub mod type_contents;
pub mod windows;

use alloc::ffi::CString;
use core::ffi::{CStr, c_char, c_int};

use crate::abi::*;
use crate::error::Outcome;

/// Writes a result.
#[inline(always)]
pub unsafe fn give<T>(to: *mut T, value: T) -> Outcome {
    if to.is_null() {
        return Err(MPI_ERR_ARG);
    }
    // SAFETY: not null; the program promises that it is writable.
    unsafe { to.write(value) };
    Ok(())
}

/// Writes a number, or `otherwise` where it does not fit.
pub unsafe fn give_count<C: Count>(to: *mut C, value: i64, otherwise: c_int) -> Outcome {
    let value = C::of(value).or_else(|| C::of(otherwise.into())).ok_or(MPI_ERR_VALUE_TOO_LARGE)?;
    // SAFETY: the same contract.
    unsafe { give(to, value) }
}

/// The elements of an array argument.
pub unsafe fn list<'a, T>(from: *const T, count: i64) -> Outcome<&'a [T]> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(_) if from.is_null() => Err(MPI_ERR_ARG),
        // SAFETY: not null; the program promises that it has as many elements.
        Ok(count) => Ok(unsafe { core::slice::from_raw_parts(from, count) }),
        Err(_) => Err(MPI_ERR_ARG),
    }
}

/// The elements of an array of results.
pub unsafe fn list_mut<'a, T>(to: *mut T, count: i64) -> Outcome<&'a mut [T]> {
    match usize::try_from(count) {
        Ok(0) => Ok(&mut []),
        Ok(_) if to.is_null() => Err(MPI_ERR_ARG),
        // SAFETY: not null; the program promises that it has as many elements, which nobody else uses now.
        Ok(count) => Ok(unsafe { core::slice::from_raw_parts_mut(to, count) }),
        Err(_) => Err(MPI_ERR_ARG),
    }
}

/// Numbers of an array argument.
pub unsafe fn counts<C: Count>(from: *const C, count: i64) -> Outcome<Vec<i64>> {
    // SAFETY: the same contract.
    Ok(unsafe { list(from, count) }?.iter().map(|count| count.get()).collect())
}

/// A text argument.
pub unsafe fn text<'a>(from: *const c_char) -> Outcome<&'a CStr> {
    if from.is_null() {
        return Err(MPI_ERR_ARG);
    }
    // SAFETY: not null; the program promises that a zero ends it.
    Ok(unsafe { CStr::from_ptr(from) })
}

/// Writes a text of at most `most` bytes with its zero, and its length.
pub unsafe fn give_text(to: *mut c_char, length: *mut c_int, value: &CStr, most: c_int) -> Outcome {
    let bytes = value.to_bytes();
    let kept = bytes.get(..(most as usize).saturating_sub(1)).unwrap_or(bytes);
    if to.is_null() {
        return Err(MPI_ERR_ARG);
    }
    // SAFETY: not null; the program promises room for `most` bytes.
    let room = unsafe { core::slice::from_raw_parts_mut(to.cast::<u8>(), kept.len() + 1) };
    room.iter_mut().zip(kept.iter().chain(&[0])).for_each(|(to, from)| *to = *from);
    // SAFETY: the same contract.
    unsafe { give(length, kept.len() as c_int) }
}

/// A name argument, cut to what a name may have.
pub unsafe fn name(from: *const c_char) -> Outcome<CString> {
    // SAFETY: the same contract.
    let bytes = unsafe { text(from) }?.to_bytes();
    let kept = bytes.get(..MPI_MAX_OBJECT_NAME as usize - 1).unwrap_or(bytes);
    CString::new(kept).map_err(|_| MPI_ERR_ARG)
}
