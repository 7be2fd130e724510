//! Events and their sources in the tools interface: there are none.

use core::ffi::{c_char, c_int, c_void};

use super::tools::ended;
use crate::abi::*;
use crate::calls::give;
use crate::tools::made;

/// There is no such thing.
fn none(code: c_int) -> c_int {
    ended(made().and(Err(code)))
}

pub(crate) unsafe fn t_event_get_num(number: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    ended(made().and_then(|_| unsafe { give(number, 0) }))
}

pub(crate) unsafe fn t_source_get_num(number: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    ended(made().and_then(|_| unsafe { give(number, 0) }))
}

pub(crate) unsafe fn t_event_get_index(_: *const c_char, _: *mut c_int) -> c_int {
    none(MPI_T_ERR_INVALID_NAME)
}

pub(crate) unsafe fn t_event_get_info(
    _: c_int,
    _: *mut c_char,
    _: *mut c_int,
    _: *mut c_int,
    _: *mut MPI_Datatype,
    _: *mut MPI_Aint,
    _: *mut c_int,
    _: *mut MPI_T_enum,
    _: *mut MPI_Info,
    _: *mut c_char,
    _: *mut c_int,
    _: *mut c_int,
) -> c_int {
    none(MPI_T_ERR_INVALID_INDEX)
}

pub(crate) unsafe fn t_event_handle_alloc(
    _: c_int,
    _: *mut c_void,
    _: MPI_Info,
    _: *mut MPI_T_event_registration,
) -> c_int {
    none(MPI_T_ERR_INVALID_INDEX)
}

pub(crate) unsafe fn t_source_get_info(
    _: c_int,
    _: *mut c_char,
    _: *mut c_int,
    _: *mut c_char,
    _: *mut c_int,
    _: *mut c_int,
    _: *mut MPI_Count,
    _: *mut MPI_Count,
    _: *mut MPI_Info,
) -> c_int {
    none(MPI_T_ERR_INVALID_INDEX)
}

pub(crate) unsafe fn t_source_get_timestamp(_: c_int, _: *mut MPI_Count) -> c_int {
    none(MPI_T_ERR_INVALID_INDEX)
}

macro_rules! without_handles {
    ($(fn $name:ident($($kind:ty),*);)*) => { $(
        pub(crate) unsafe fn $name($(_: $kind),*) -> c_int {
            none(MPI_T_ERR_INVALID_HANDLE)
        }
    )* };
}

without_handles! {
    fn t_event_handle_set_info(MPI_T_event_registration, MPI_Info);
    fn t_event_handle_get_info(MPI_T_event_registration, *mut MPI_Info);
    fn t_event_register_callback(MPI_T_event_registration, c_int, MPI_Info, *mut c_void, Callback);
    fn t_event_callback_set_info(MPI_T_event_registration, c_int, MPI_Info);
    fn t_event_callback_get_info(MPI_T_event_registration, c_int, *mut MPI_Info);
    fn t_event_handle_free(MPI_T_event_registration, *mut c_void, Callback);
    fn t_event_set_dropped_handler(MPI_T_event_registration, Callback);
    fn t_event_read(MPI_T_event_instance, c_int, *mut c_void);
    fn t_event_copy(MPI_T_event_instance, *mut c_void);
    fn t_event_get_timestamp(MPI_T_event_instance, *mut MPI_Count);
    fn t_event_get_source(MPI_T_event_instance, *mut c_int);
}
