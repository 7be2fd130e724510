//! Windows: how they are made and freed, and what is known of them.

use alloc::ffi::CString;
use core::ffi::{c_char, c_int, c_void};
use core::ptr::NonNull;

use unisono::{Rank, Window, WindowError};

use crate::abi::*;
use crate::attribute::Owner;
use crate::calls::groups::made as made_group;
use crate::calls::{give, give_text, name};
use crate::communicator::Comm;
use crate::error::{Outcome, class_of_collective, on as on_comm, raise, raise_anywhere};
use crate::handle::{Object, release, resolve};
use crate::info::Info;
use crate::window::{Part, Win, class_of, on};

/// What each rank contributes to a window: bytes and displacement unit, or that it lacks memory.
type Share = [u64; 2];

/// The shares of all members.
fn exchange(comm: &Comm, share: Share) -> Outcome<Vec<Share>> {
    let mut all = vec![Share::default(); comm.size as usize];
    comm.library().all_gather_into(&[share][..], &mut all[..]).map_err(class_of_collective)?;
    Ok(all)
}

/// The parts of a window of which each rank holds its own.
fn own_parts(all: &[Share]) -> Vec<Part> {
    let part = |(rank, [bytes, unit]): (u32, &Share)| Part {
        holder: Rank(rank),
        offset: 0,
        bytes: *bytes as usize,
        unit: *unit as i64,
    };
    (0..).zip(all).map(part).collect()
}

/// Checks the arguments of a constructor.
///
/// # Safety
/// As of [`resolve`].
unsafe fn checked(comm: &Comm, size: MPI_Aint, unit: i64, info: MPI_Info) -> Outcome<(u64, Info)> {
    if comm.is_inter {
        return Err(MPI_ERR_COMM);
    }
    let bytes = u64::try_from(size).map_err(|_| MPI_ERR_SIZE)?;
    if unit <= 0 {
        return Err(MPI_ERR_DISP);
    }
    let hints = Info::default();
    for (key, value) in DEFAULTS {
        hints.set(key.to_owned(), value.to_owned());
    }
    if info != MPI_INFO_NULL {
        // SAFETY: the caller promises it.
        for (key, value) in unsafe { resolve::<Info>(info.0) }?.duplicate().0.into_inner() {
            hints.set(key, value);
        }
    }
    Ok((bytes, hints))
}

/// The hints that a window has unless the program sets them.
const DEFAULTS: [(&core::ffi::CStr, &core::ffi::CStr); 6] = [
    (c"no_locks", c"false"),
    (c"accumulate_ordering", c"rar,raw,war,waw"),
    (c"accumulate_ops", c"same_op_no_op"),
    (c"same_size", c"false"),
    (c"same_disp_unit", c"false"),
    (c"alloc_shared_noncontig", c"false"),
];

/// A handle for the program.
unsafe fn made(to: *mut MPI_Win, win: Win) -> Outcome {
    // SAFETY: the contract of this module.
    unsafe { give(to, MPI_Win(Object::into_handle(Object::new(win)))) }
}

pub(crate) unsafe fn win_create<C: Count>(
    base: *mut c_void,
    size: MPI_Aint,
    unit: C,
    info: MPI_Info,
    comm: MPI_Comm,
    win: *mut MPI_Win,
) -> c_int {
    // SAFETY: the contract of this module. The program keeps the memory until it has freed the window, and accesses it
    // as the standard allows.
    unsafe {
        on_comm(comm, |comm| {
            let (bytes, info) = checked(comm, size, unit.get(), info)?;
            if base.is_null() && bytes > 0 {
                return Err(MPI_ERR_BASE);
            }
            let all = exchange(comm, [bytes, unit.get() as u64])?;
            let start = NonNull::new(base.cast::<u8>()).unwrap_or(NonNull::dangling());
            let library = comm.library().create_window(start, bytes as usize).map_err(class_of)?;
            let base = base.expose_provenance();
            made(win, Win::new(library, MPI_WIN_FLAVOR_CREATE, own_parts(&all), base, info)?)
        })
    }
}

pub(crate) unsafe fn win_allocate<C: Count>(
    size: MPI_Aint,
    unit: C,
    info: MPI_Info,
    comm: MPI_Comm,
    base: *mut c_void,
    win: *mut MPI_Win,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on_comm(comm, |comm| {
            let (bytes, info) = checked(comm, size, unit.get(), info)?;
            let all = exchange(comm, [bytes, unit.get() as u64])?;
            let library = comm.library().allocate_window(bytes as usize).map_err(class_of)?;
            let start = library.as_ptr();
            give(base.cast::<*mut u8>(), start)?;
            let start = start.expose_provenance();
            made(win, Win::new(library, MPI_WIN_FLAVOR_ALLOCATE, own_parts(&all), start, info)?)
        })
    }
}

/// The parts of a window of shared memory: one after the other in the memory of the first rank, each at a multiple of
/// 16 bytes if they need not adjoin.
fn shared_parts(all: &[Share], adjoin: bool) -> Outcome<(Vec<Part>, usize)> {
    let mut offset = 0_usize;
    let mut parts = Vec::with_capacity(all.len());
    for [bytes, unit] in all {
        let bytes = usize::try_from(*bytes).map_err(|_| MPI_ERR_SIZE)?;
        parts.push(Part { holder: Rank(0), offset, bytes, unit: *unit as i64 });
        offset = offset.checked_add(bytes).ok_or(MPI_ERR_SIZE)?;
        if !adjoin {
            offset = offset.checked_next_multiple_of(64).ok_or(MPI_ERR_SIZE)?;
        }
    }
    Ok((parts, offset))
}

/// The address at which this process maps the part of a rank.
fn address(library: &Window, part: &Part) -> Option<*mut u8> {
    Some(library.shared_ptr(part.holder)?.wrapping_add(part.offset))
}

pub(crate) unsafe fn win_allocate_shared<C: Count>(
    size: MPI_Aint,
    unit: C,
    info: MPI_Info,
    comm: MPI_Comm,
    base: *mut c_void,
    win: *mut MPI_Win,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on_comm(comm, |comm| {
            let (bytes, info) = checked(comm, size, unit.get(), info)?;
            let is_noncontiguous =
                info.0.lock().iter().any(|(key, value)| (&**key, &**value) == (c"alloc_shared_noncontig", c"true"));
            // The first rank's hint decides: all share one layout.
            let mut layout = [u8::from(is_noncontiguous)];
            comm.library().broadcast_into(&mut layout[..], Rank(0)).map_err(class_of_collective)?;
            let all = exchange(comm, [bytes, unit.get() as u64])?;
            let (parts, total) = shared_parts(&all, layout == [0])?;
            let library = comm.library().allocate_window(if comm.rank == 0 { total } else { 0 }).map_err(class_of)?;
            let own = parts.get(comm.rank as usize).and_then(|part| address(&library, part));
            let Some(start) = own else {
                // Some member is on another node: no rank gets a window.
                return library.free().map_err(class_of).and(Err(MPI_ERR_RMA_SHARED));
            };
            give(base.cast::<*mut u8>(), start)?;
            made(win, Win::new(library, MPI_WIN_FLAVOR_SHARED, parts, start.expose_provenance(), info)?)
        })
    }
}

pub(crate) unsafe fn win_create_dynamic(info: MPI_Info, comm: MPI_Comm, win: *mut MPI_Win) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on_comm(comm, |comm| {
            let (_, info) = checked(comm, 0, 1, info)?;
            let library = comm.library().create_dynamic_window().map_err(class_of)?;
            let parts = own_parts(&vec![[0, 1]; comm.size as usize]);
            made(win, Win::new(library, MPI_WIN_FLAVOR_DYNAMIC, parts, 0, info)?)
        })
    }
}

pub(crate) unsafe fn win_attach(win: MPI_Win, base: *mut c_void, size: MPI_Aint) -> c_int {
    // SAFETY: the contract of this module. The program keeps the memory until it has detached it.
    unsafe {
        on(win, |win| {
            if win.flavor != MPI_WIN_FLAVOR_DYNAMIC {
                return Err(MPI_ERR_RMA_FLAVOR);
            }
            let bytes = usize::try_from(size).map_err(|_| MPI_ERR_SIZE)?;
            let start = NonNull::new(base.cast::<u8>());
            if bytes == 0 {
                return Ok(());
            }
            let start = start.ok_or(MPI_ERR_BASE)?;
            win.with(|window| match window.attach(start, bytes) {
                Err(WindowError::Register(_)) => Ok(Err(MPI_ERR_RMA_ATTACH)),
                attached => attached.map(Ok),
            })?
        })
    }
}

pub(crate) unsafe fn win_detach(win: MPI_Win, base: *const c_void) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |win| {
            if win.flavor != MPI_WIN_FLAVOR_DYNAMIC {
                return Err(MPI_ERR_RMA_FLAVOR);
            }
            win.with(|window| match window.detach(base.cast()) {
                // Nothing, or memory without bytes, was attached there.
                Err(WindowError::OutOfBounds(_)) => Ok(()),
                detached => detached,
            })
        })
    }
}

pub(crate) unsafe fn win_free(win: *mut MPI_Win) -> c_int {
    // SAFETY: the contract of this module.
    let Some(&handle) = (unsafe { win.as_ref() }) else { return raise_anywhere(MPI_ERR_ARG) };
    // SAFETY: the contract of this module.
    unsafe {
        on(handle, |of| {
            of.epochs.lock().free()?;
            of.attributes.delete_all(handle.0)?;
            of.take()?.free().map_err(class_of)?;
            drop(release::<Win>(handle.0)?);
            give(win, MPI_WIN_NULL)
        })
    }
}

pub(crate) unsafe fn win_shared_query<C: Count>(
    win: MPI_Win,
    rank: c_int,
    size: *mut MPI_Aint,
    unit: *mut C,
    base: *mut c_void,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |win| {
            if win.flavor == MPI_WIN_FLAVOR_DYNAMIC {
                return Err(MPI_ERR_RMA_FLAVOR);
            }
            let part = match win.target(rank)? {
                Some(target) => Some(win.part(target)?),
                // The lowest rank with memory.
                None => win.parts.iter().find(|part| part.bytes > 0).copied(),
            };
            let empty = Part { holder: Rank(0), offset: 0, bytes: 0, unit: 1 };
            let start = part.map(|part| win.with(|window| Ok(address(window, &part)))).transpose()?.flatten();
            // Memory that this rank does not map has no bytes for it.
            let part = part.filter(|_| start.is_some()).unwrap_or(empty);
            // A rank without memory has no address.
            let start = start.filter(|_| part.bytes > 0).unwrap_or_default();
            give(size, part.bytes as MPI_Aint)?;
            give(unit, C::of(part.unit).ok_or(MPI_ERR_VALUE_TOO_LARGE)?)?;
            give(base.cast::<*mut u8>(), start)
        })
    }
}

pub(crate) unsafe fn win_get_group(win: MPI_Win, group: *mut MPI_Group) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { on(win, |win| made_group(group, win.group.clone())) }
}

pub(crate) unsafe fn win_set_name(win: MPI_Win, text: *const c_char) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |win| {
            *win.name.lock() = name(text)?;
            Ok(())
        })
    }
}

pub(crate) unsafe fn win_get_name(win: MPI_Win, text: *mut c_char, length: *mut c_int) -> c_int {
    if win == MPI_WIN_NULL {
        // SAFETY: the contract of this module.
        return crate::error::finish(unsafe { give_text(text, length, c"MPI_WIN_NULL", MPI_MAX_OBJECT_NAME) });
    }
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |win| {
            let name: CString = win.name.lock().clone();
            give_text(text, length, &name, MPI_MAX_OBJECT_NAME)
        })
    }
}

pub(crate) unsafe fn win_set_info(win: MPI_Win, info: MPI_Info) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |win| {
            for (key, value) in resolve::<Info>(info.0)?.duplicate().0.into_inner() {
                win.info.set(key, value);
            }
            Ok(())
        })
    }
}

pub(crate) unsafe fn win_get_info(win: MPI_Win, info: *mut MPI_Info) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { on(win, |win| give(info, MPI_Info(Object::into_handle(Object::new(win.info.duplicate()))))) }
}

pub(crate) unsafe fn win_set_errhandler(win: MPI_Win, errhandler: MPI_Errhandler) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { on(win, |win| win.errors.set(errhandler)) }
}

pub(crate) unsafe fn win_get_errhandler(win: MPI_Win, errhandler: *mut MPI_Errhandler) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { on(win, |win| give(errhandler, win.errors.duplicate())) }
}

pub(crate) unsafe fn win_call_errhandler(win: MPI_Win, code: c_int) -> c_int {
    // SAFETY: the contract of this module.
    match unsafe { resolve::<Win>(win.0) } {
        Ok(of) => {
            raise(&of.errors, win.0, code);
            MPI_SUCCESS
        }
        Err(code) => raise_anywhere(code),
    }
}

/// The value of a predefined attribute: an address.
fn predefined(win: &Win, key: c_int) -> Option<usize> {
    let of = |value: *const c_int| value.expose_provenance();
    match key {
        MPI_WIN_BASE => Some(win.base),
        MPI_WIN_SIZE => Some((&raw const win.size).expose_provenance()),
        MPI_WIN_DISP_UNIT => Some(of(&raw const win.unit)),
        MPI_WIN_CREATE_FLAVOR => Some(of(&raw const win.flavor)),
        MPI_WIN_MODEL => Some(of(&raw const win.model)),
        _ => None,
    }
}

pub(crate) unsafe fn win_set_attr(win: MPI_Win, key: c_int, value: *mut c_void) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |of| match predefined(of, key) {
            Some(_) => Err(MPI_ERR_KEYVAL),
            None => of.attributes.set(Owner::Window, win.0, key, value),
        })
    }
}

pub(crate) unsafe fn win_get_attr(win: MPI_Win, key: c_int, value: *mut c_void, flag: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |of| match predefined(of, key) {
            Some(at) => super::attributes::give_value(Some(at), value, flag),
            None => super::attributes::give_value(of.attributes.get(Owner::Window, key)?, value, flag),
        })
    }
}

pub(crate) unsafe fn win_delete_attr(win: MPI_Win, key: c_int) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(win, |of| match predefined(of, key) {
            Some(_) => Err(MPI_ERR_KEYVAL),
            None => of.attributes.delete(Owner::Window, win.0, key),
        })
    }
}
