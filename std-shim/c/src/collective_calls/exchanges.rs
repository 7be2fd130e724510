//! The exported functions of exchanges with neighbours, and of those whose blocks have a datatype each, in three forms.

use core::ffi::c_void;

use super::buffer;
use crate::collective::Form;
use crate::communicator::unisono_communicator;
use crate::datatype::unisono_datatype;
use crate::exchange::{self, Partners, Pattern, TypedBuffer};
use crate::request::unisono_request;
use crate::result::unisono_result;

const fn typed(
    start: *const c_void,
    counts: *const usize,
    offsets: *const isize,
    datatypes: *const unisono_datatype,
) -> TypedBuffer {
    TypedBuffer { start: start.cast_mut(), counts, offsets, datatypes }
}

/// Sends elements to every neighbour, and receives those of the n-th source as block n. `receive_count` is that of all
/// blocks; blocks past the edge of a grid are unchanged. The datatypes are contiguous.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_neighbour_all_gather(
    communicator: unisono_communicator,
    send: *const c_void,
    send_count: usize,
    send_datatype: unisono_datatype,
    receive: *mut c_void,
    receive_count: usize,
    receive_datatype: unisono_datatype,
) -> unisono_result {
    let buffers = (buffer(send, send_count, send_datatype), buffer(receive, receive_count, receive_datatype));
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe { exchange::equal(communicator, Pattern::AllGather, buffers, Form::Blocking) }
}

/// Sends block n to the n-th neighbour that this rank sends to, and receives from the n-th source as block n. Both counts
/// are those of all blocks; blocks past the edge of a grid are unchanged. The datatypes are contiguous.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_neighbour_all_to_all(
    communicator: unisono_communicator,
    send: *const c_void,
    send_count: usize,
    send_datatype: unisono_datatype,
    receive: *mut c_void,
    receive_count: usize,
    receive_datatype: unisono_datatype,
) -> unisono_result {
    let buffers = (buffer(send, send_count, send_datatype), buffer(receive, receive_count, receive_datatype));
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe { exchange::equal(communicator, Pattern::AllToAll, buffers, Form::Blocking) }
}

/// As `unisono_neighbour_all_to_all`; each block has a count, an offset in bytes and a datatype of its own.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_neighbour_all_to_all_w(
    communicator: unisono_communicator,
    send: *const c_void,
    send_counts: *const usize,
    send_offsets: *const isize,
    send_datatypes: *const unisono_datatype,
    receive: *mut c_void,
    receive_counts: *const usize,
    receive_offsets: *const isize,
    receive_datatypes: *const unisono_datatype,
) -> unisono_result {
    let sent = typed(send, send_counts, send_offsets, send_datatypes);
    let received = typed(receive, receive_counts, receive_offsets, receive_datatypes);
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe { exchange::typed(communicator, Partners::Neighbours, (sent, received), Form::Blocking) }
}

/// As `unisono_all_to_all`; each block has a count, an offset in bytes and a datatype of its own.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_all_to_all_w(
    communicator: unisono_communicator,
    send: *const c_void,
    send_counts: *const usize,
    send_offsets: *const isize,
    send_datatypes: *const unisono_datatype,
    receive: *mut c_void,
    receive_counts: *const usize,
    receive_offsets: *const isize,
    receive_datatypes: *const unisono_datatype,
) -> unisono_result {
    let sent = typed(send, send_counts, send_offsets, send_datatypes);
    let received = typed(receive, receive_counts, receive_offsets, receive_datatypes);
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe { exchange::typed(communicator, Partners::Ranks, (sent, received), Form::Blocking) }
}

/// Starts `unisono_neighbour_all_gather`.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_immediate_neighbour_all_gather(
    communicator: unisono_communicator,
    send: *const c_void,
    send_count: usize,
    send_datatype: unisono_datatype,
    receive: *mut c_void,
    receive_count: usize,
    receive_datatype: unisono_datatype,
    request: *mut unisono_request,
) -> unisono_result {
    let buffers = (buffer(send, send_count, send_datatype), buffer(receive, receive_count, receive_datatype));
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe { exchange::equal(communicator, Pattern::AllGather, buffers, Form::Immediate(request)) }
}

/// Starts `unisono_neighbour_all_to_all`.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_immediate_neighbour_all_to_all(
    communicator: unisono_communicator,
    send: *const c_void,
    send_count: usize,
    send_datatype: unisono_datatype,
    receive: *mut c_void,
    receive_count: usize,
    receive_datatype: unisono_datatype,
    request: *mut unisono_request,
) -> unisono_result {
    let buffers = (buffer(send, send_count, send_datatype), buffer(receive, receive_count, receive_datatype));
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe { exchange::equal(communicator, Pattern::AllToAll, buffers, Form::Immediate(request)) }
}

/// Starts `unisono_neighbour_all_to_all_w`.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_immediate_neighbour_all_to_all_w(
    communicator: unisono_communicator,
    send: *const c_void,
    send_counts: *const usize,
    send_offsets: *const isize,
    send_datatypes: *const unisono_datatype,
    receive: *mut c_void,
    receive_counts: *const usize,
    receive_offsets: *const isize,
    receive_datatypes: *const unisono_datatype,
    request: *mut unisono_request,
) -> unisono_result {
    let sent = typed(send, send_counts, send_offsets, send_datatypes);
    let received = typed(receive, receive_counts, receive_offsets, receive_datatypes);
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe { exchange::typed(communicator, Partners::Neighbours, (sent, received), Form::Immediate(request)) }
}

/// Starts `unisono_all_to_all_w`.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_immediate_all_to_all_w(
    communicator: unisono_communicator,
    send: *const c_void,
    send_counts: *const usize,
    send_offsets: *const isize,
    send_datatypes: *const unisono_datatype,
    receive: *mut c_void,
    receive_counts: *const usize,
    receive_offsets: *const isize,
    receive_datatypes: *const unisono_datatype,
    request: *mut unisono_request,
) -> unisono_result {
    let sent = typed(send, send_counts, send_offsets, send_datatypes);
    let received = typed(receive, receive_counts, receive_offsets, receive_datatypes);
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe { exchange::typed(communicator, Partners::Ranks, (sent, received), Form::Immediate(request)) }
}

/// Prepares `unisono_neighbour_all_gather`, which `unisono_start` starts.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_persistent_neighbour_all_gather(
    communicator: unisono_communicator,
    send: *const c_void,
    send_count: usize,
    send_datatype: unisono_datatype,
    receive: *mut c_void,
    receive_count: usize,
    receive_datatype: unisono_datatype,
    request: *mut unisono_request,
) -> unisono_result {
    let buffers = (buffer(send, send_count, send_datatype), buffer(receive, receive_count, receive_datatype));
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe { exchange::equal(communicator, Pattern::AllGather, buffers, Form::Persistent(request)) }
}

/// Prepares `unisono_neighbour_all_to_all`, which `unisono_start` starts.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_persistent_neighbour_all_to_all(
    communicator: unisono_communicator,
    send: *const c_void,
    send_count: usize,
    send_datatype: unisono_datatype,
    receive: *mut c_void,
    receive_count: usize,
    receive_datatype: unisono_datatype,
    request: *mut unisono_request,
) -> unisono_result {
    let buffers = (buffer(send, send_count, send_datatype), buffer(receive, receive_count, receive_datatype));
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe { exchange::equal(communicator, Pattern::AllToAll, buffers, Form::Persistent(request)) }
}

/// Prepares `unisono_neighbour_all_to_all_w`, which `unisono_start` starts.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_persistent_neighbour_all_to_all_w(
    communicator: unisono_communicator,
    send: *const c_void,
    send_counts: *const usize,
    send_offsets: *const isize,
    send_datatypes: *const unisono_datatype,
    receive: *mut c_void,
    receive_counts: *const usize,
    receive_offsets: *const isize,
    receive_datatypes: *const unisono_datatype,
    request: *mut unisono_request,
) -> unisono_result {
    let sent = typed(send, send_counts, send_offsets, send_datatypes);
    let received = typed(receive, receive_counts, receive_offsets, receive_datatypes);
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe { exchange::typed(communicator, Partners::Neighbours, (sent, received), Form::Persistent(request)) }
}

/// Prepares `unisono_all_to_all_w`, which `unisono_start` starts.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_persistent_all_to_all_w(
    communicator: unisono_communicator,
    send: *const c_void,
    send_counts: *const usize,
    send_offsets: *const isize,
    send_datatypes: *const unisono_datatype,
    receive: *mut c_void,
    receive_counts: *const usize,
    receive_offsets: *const isize,
    receive_datatypes: *const unisono_datatype,
    request: *mut unisono_request,
) -> unisono_result {
    let sent = typed(send, send_counts, send_offsets, send_datatypes);
    let received = typed(receive, receive_counts, receive_offsets, receive_datatypes);
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe { exchange::typed(communicator, Partners::Ranks, (sent, received), Form::Persistent(request)) }
}
