//! Starting and ending, versions, clocks, memory and addresses.

use alloc::ffi::CString;
use core::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;
use std::time::Instant;

use crate::abi::*;
use crate::calls::{give, give_text};
use crate::error::{finish, on};
use crate::handle::{Object, resolve};
use crate::info::Info;
use crate::job;

pub(crate) unsafe fn init(_: *mut c_int, _: *mut *mut *mut c_char) -> c_int {
    finish(job::initialize(MPI_THREAD_SINGLE).map(|_| ()))
}

pub(crate) unsafe fn init_thread(
    _: *mut c_int,
    _: *mut *mut *mut c_char,
    required: c_int,
    provided: *mut c_int,
) -> c_int {
    // SAFETY: the contract of this module.
    finish(job::initialize(required).and_then(|level| unsafe { give(provided, level) }))
}

pub(crate) unsafe fn initialized(flag: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { give(flag, job::is_initialized().into()) })
}

pub(crate) unsafe fn finalize() -> c_int {
    finish(job::finalize())
}

pub(crate) unsafe fn finalized(flag: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { give(flag, job::is_finalized().into()) })
}

pub(crate) unsafe fn query_thread(provided: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { give(provided, job::thread_level()) })
}

pub(crate) unsafe fn is_thread_main(flag: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { give(flag, job::is_main_thread().into()) })
}

pub(crate) unsafe fn abort(comm: MPI_Comm, code: c_int) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |_| {
            eprintln!("unisono-mpi: rank {} calls MPI_Abort({code})", job::world_rank());
            job::abort(code)
        })
    }
}

pub(crate) unsafe fn get_version(version: *mut c_int, subversion: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { give(version, MPI_VERSION).and(give(subversion, MPI_SUBVERSION)) })
}

pub(crate) unsafe fn get_library_version(version: *mut c_char, length: *mut c_int) -> c_int {
    let text = CString::new(concat!("unisono ", env!("CARGO_PKG_VERSION"))).unwrap_or_default();
    // SAFETY: the contract of this module.
    finish(unsafe { give_text(version, length, &text, MPI_MAX_LIBRARY_VERSION_STRING) })
}

pub(crate) unsafe fn get_processor_name(name: *mut c_char, length: *mut c_int) -> c_int {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = CString::new(host.trim()).unwrap_or_default();
    // SAFETY: the contract of this module.
    finish(unsafe { give_text(name, length, &host, MPI_MAX_PROCESSOR_NAME) })
}

pub(crate) unsafe fn wtime() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_secs_f64()
}

pub(crate) unsafe fn wtick() -> f64 {
    1e-9
}

pub(crate) unsafe fn pcontrol(_: c_int) -> c_int {
    MPI_SUCCESS
}

pub(crate) unsafe fn abi_get_version(major: *mut c_int, minor: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { give(major, MPI_ABI_VERSION).and(give(minor, MPI_ABI_SUBVERSION)) })
}

pub(crate) unsafe fn abi_get_info(info: *mut MPI_Info) -> c_int {
    let sizes = [("mpi_aint_size", size_of::<MPI_Aint>()), ("mpi_count_size", 8), ("mpi_offset_size", 8)];
    let entry = |(key, size): (&str, usize)| Some((CString::new(key).ok()?, CString::new(size.to_string()).ok()?));
    let made = Info(parking_lot::Mutex::new(sizes.into_iter().filter_map(entry).collect()));
    // SAFETY: the contract of this module.
    finish(unsafe { give(info, MPI_Info(Object::into_handle(Object::new(made)))) })
}

pub(crate) unsafe fn abi_get_fortran_info(info: *mut MPI_Info) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { give(info, MPI_INFO_NULL) })
}

pub(crate) unsafe fn abi_set_fortran_info(_: MPI_Info) -> c_int {
    finish(Err(MPI_ERR_ABI))
}

pub(crate) unsafe fn abi_get_fortran_booleans(_: c_int, _: *mut c_void, _: *mut c_void, is_set: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { give(is_set, 0) })
}

pub(crate) unsafe fn abi_set_fortran_booleans(_: c_int, _: *mut c_void, _: *mut c_void) -> c_int {
    finish(Err(MPI_ERR_ABI))
}

pub(crate) unsafe fn get_hw_resource_info(info: *mut MPI_Info) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { give(info, MPI_Info(Object::into_handle(Object::new(Info::hardware())))) })
}

/// Bytes before allocated memory, which hold its length.
const ALLOCATION_HEADER: usize = 64;

pub(crate) unsafe fn alloc_mem(size: MPI_Aint, info: MPI_Info, base: *mut c_void) -> c_int {
    finish((|| {
        if info != MPI_INFO_NULL {
            // SAFETY: the contract of this module.
            unsafe { resolve::<Info>(info.0) }?;
        }
        let size = usize::try_from(size).map_err(|_| MPI_ERR_ARG)?;
        let all = size.checked_add(ALLOCATION_HEADER).ok_or(MPI_ERR_NO_MEM)?;
        // SAFETY: a plain allocation.
        let start = unsafe { libc::aligned_alloc(ALLOCATION_HEADER, all.next_multiple_of(ALLOCATION_HEADER)) };
        if start.is_null() {
            return Err(MPI_ERR_NO_MEM);
        }
        // SAFETY: the contract of this module; `base` is the address of a pointer.
        unsafe { give(base.cast::<*mut c_void>(), start.cast::<u8>().wrapping_add(ALLOCATION_HEADER).cast()) }
    })())
}

pub(crate) unsafe fn free_mem(base: *mut c_void) -> c_int {
    if !base.is_null() {
        // SAFETY: the program got it of `alloc_mem`, and frees it once.
        unsafe { libc::free(base.cast::<u8>().wrapping_sub(ALLOCATION_HEADER).cast()) };
    }
    MPI_SUCCESS
}

pub(crate) unsafe fn get_address(location: *const c_void, address: *mut MPI_Aint) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { give(address, location.expose_provenance() as MPI_Aint) })
}

pub(crate) unsafe fn aint_add(base: MPI_Aint, displacement: MPI_Aint) -> MPI_Aint {
    base.wrapping_add(displacement)
}

pub(crate) unsafe fn aint_diff(one: MPI_Aint, other: MPI_Aint) -> MPI_Aint {
    one.wrapping_sub(other)
}
