//! The tools interface: its beginning and end, enumerations and categories.

use core::ffi::{c_char, c_int};

use crate::abi::*;
use crate::calls::{give, list_mut};
use crate::error::Outcome;
use crate::tools::counters::{STATE, STATES};
use crate::tools::{categories, finalize, give_if, give_text, index_of, initialize, item, made};

/// The code of an outcome: these functions call no error handler.
pub(super) fn ended(outcome: Outcome) -> c_int {
    match outcome {
        Ok(()) => MPI_SUCCESS,
        Err(MPI_ERR_ARG) => MPI_T_ERR_INVALID,
        Err(code) => code,
    }
}

/// A name argument.
pub(super) unsafe fn name<'a>(from: *const c_char) -> Outcome<&'a str> {
    // SAFETY: the contract of this module.
    unsafe { super::text(from) }?.to_str().map_err(|_| MPI_T_ERR_INVALID_NAME)
}

pub(crate) unsafe fn t_init_thread(required: c_int, provided: *mut c_int) -> c_int {
    initialize();
    // SAFETY: the contract of this module.
    unsafe { give_if(provided, required.clamp(MPI_THREAD_SINGLE, MPI_THREAD_MULTIPLE)) };
    MPI_SUCCESS
}

pub(crate) unsafe fn t_finalize() -> c_int {
    ended(finalize())
}

/// The names of an enumeration.
fn names(enumeration: MPI_T_enum) -> Outcome<&'static [&'static str]> {
    drop(made()?);
    if enumeration == STATE { Ok(&STATES) } else { Err(MPI_T_ERR_INVALID_HANDLE) }
}

pub(crate) unsafe fn t_enum_get_info(
    enumeration: MPI_T_enum,
    number: *mut c_int,
    name: *mut c_char,
    name_length: *mut c_int,
) -> c_int {
    ended(names(enumeration).map(|names| {
        // SAFETY: the contract of this module.
        unsafe { give_if(number, names.len() as c_int) };
        // SAFETY: the contract of this module.
        unsafe { give_text(name, name_length, "unisono_states") };
    }))
}

pub(crate) unsafe fn t_enum_get_item(
    enumeration: MPI_T_enum,
    index: c_int,
    value: *mut c_int,
    name: *mut c_char,
    name_length: *mut c_int,
) -> c_int {
    let found = names(enumeration).and_then(|names| item(names, index).map_err(|_| MPI_T_ERR_INVALID_ITEM));
    ended(found.map(|found| {
        // SAFETY: the contract of this module.
        unsafe { give_if(value, index) };
        // SAFETY: the contract of this module.
        unsafe { give_text(name, name_length, found) };
    }))
}

fn category(index: c_int) -> Outcome<&'static categories::Category> {
    drop(made()?);
    item(&categories::ALL, index)
}

pub(crate) unsafe fn t_category_get_num(number: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    ended(made().and_then(|_| unsafe { give(number, categories::ALL.len() as c_int) }))
}

pub(crate) unsafe fn t_category_get_info(
    index: c_int,
    name: *mut c_char,
    name_length: *mut c_int,
    description: *mut c_char,
    description_length: *mut c_int,
    controls: *mut c_int,
    counters: *mut c_int,
    others: *mut c_int,
) -> c_int {
    // SAFETY: the contract of this module.
    ended(category(index).map(|found| unsafe {
        give_text(name, name_length, found.name);
        give_text(description, description_length, found.description);
        give_if(controls, found.controls().len() as c_int);
        give_if(counters, found.counters().len() as c_int);
        give_if(others, found.categories().len() as c_int);
    }))
}

pub(crate) unsafe fn t_category_get_index(of: *const c_char, index: *mut c_int) -> c_int {
    ended(made().and_then(|_| {
        // SAFETY: the contract of this module.
        let of = unsafe { name(of) }?;
        // SAFETY: the contract of this module.
        unsafe { give(index, index_of(&categories::ALL, |category| category.name == of)?) }
    }))
}

/// Writes as many indices as there is room for.
unsafe fn give_indices(indices: Outcome<Vec<c_int>>, length: c_int, to: *mut c_int) -> c_int {
    ended(indices.and_then(|indices| {
        // SAFETY: the contract of this module.
        let to = unsafe { list_mut(to, length.into()) }?;
        to.iter_mut().zip(indices).for_each(|(to, index)| *to = index);
        Ok(())
    }))
}

macro_rules! indices {
    ($(fn $get:ident $of:ident;)*) => { $(
        pub(crate) unsafe fn $get(index: c_int, length: c_int, to: *mut c_int) -> c_int {
            // SAFETY: the contract of this module.
            unsafe { give_indices(category(index).map(|category| category.$of()), length, to) }
        }
    )* };
}

indices! {
    fn t_category_get_cvars controls;
    fn t_category_get_pvars counters;
    fn t_category_get_categories categories;
}

pub(crate) unsafe fn t_category_get_num_events(index: c_int, number: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    ended(category(index).and_then(|_| unsafe { give(number, 0) }))
}

pub(crate) unsafe fn t_category_get_events(index: c_int, length: c_int, to: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { give_indices(category(index).map(|_| Vec::new()), length, to) }
}

/// Categories never change.
pub(crate) unsafe fn t_category_changed(update: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    ended(made().and_then(|_| unsafe { give(update, 0) }))
}
