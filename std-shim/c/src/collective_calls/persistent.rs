//! The exported functions of persistent collectives: `unisono_start` starts their request any number of times.

use core::ffi::c_void;

use super::{NONE, buffer};
use crate::collective::{self, BlockBuffer, BlockBuffers, Blocks, Data, Form};
use crate::communicator::unisono_communicator;
use crate::datatype::unisono_datatype;
use crate::operation::unisono_operation;
use crate::request::unisono_request;
use crate::result::unisono_result;

/// Prepares `unisono_barrier`: the buffers are fixed, and are the library's between a start and its end.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_persistent_barrier(
    communicator: unisono_communicator,
    request: *mut unisono_request,
) -> unisono_result {
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe { collective::barrier(communicator, Form::Persistent(request)) }
}

/// Prepares `unisono_broadcast`: the buffers are fixed, and are the library's between a start and its end.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_persistent_broadcast(
    communicator: unisono_communicator,
    data: *mut c_void,
    count: usize,
    datatype: unisono_datatype,
    root: u32,
    request: *mut unisono_request,
) -> unisono_result {
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe { collective::broadcast(communicator, buffer(data, count, datatype), root, Form::Persistent(request)) }
}

/// Prepares `unisono_gather`: the buffers are fixed, and are the library's between a start and its end.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_persistent_gather(
    communicator: unisono_communicator,
    send: *const c_void,
    send_count: usize,
    send_datatype: unisono_datatype,
    receive: *mut c_void,
    receive_count: usize,
    receive_datatype: unisono_datatype,
    root: u32,
    request: *mut unisono_request,
) -> unisono_result {
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe {
        collective::data(
            communicator,
            Data::Gather,
            (buffer(send, send_count, send_datatype), buffer(receive, receive_count, receive_datatype)),
            NONE,
            root,
            Form::Persistent(request),
        )
    }
}

/// Prepares `unisono_scatter`: the buffers are fixed, and are the library's between a start and its end.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_persistent_scatter(
    communicator: unisono_communicator,
    send: *const c_void,
    send_count: usize,
    send_datatype: unisono_datatype,
    receive: *mut c_void,
    receive_count: usize,
    receive_datatype: unisono_datatype,
    root: u32,
    request: *mut unisono_request,
) -> unisono_result {
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe {
        collective::data(
            communicator,
            Data::Scatter,
            (buffer(send, send_count, send_datatype), buffer(receive, receive_count, receive_datatype)),
            NONE,
            root,
            Form::Persistent(request),
        )
    }
}

/// Prepares `unisono_all_gather`: the buffers are fixed, and are the library's between a start and its end.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_persistent_all_gather(
    communicator: unisono_communicator,
    send: *const c_void,
    send_count: usize,
    send_datatype: unisono_datatype,
    receive: *mut c_void,
    receive_count: usize,
    receive_datatype: unisono_datatype,
    request: *mut unisono_request,
) -> unisono_result {
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe {
        collective::data(
            communicator,
            Data::AllGather,
            (buffer(send, send_count, send_datatype), buffer(receive, receive_count, receive_datatype)),
            NONE,
            0,
            Form::Persistent(request),
        )
    }
}

/// Prepares `unisono_all_to_all`: the buffers are fixed, and are the library's between a start and its end.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_persistent_all_to_all(
    communicator: unisono_communicator,
    send: *const c_void,
    send_count: usize,
    send_datatype: unisono_datatype,
    receive: *mut c_void,
    receive_count: usize,
    receive_datatype: unisono_datatype,
    request: *mut unisono_request,
) -> unisono_result {
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe {
        collective::data(
            communicator,
            Data::AllToAll,
            (buffer(send, send_count, send_datatype), buffer(receive, receive_count, receive_datatype)),
            NONE,
            0,
            Form::Persistent(request),
        )
    }
}

/// Prepares `unisono_reduce`: the buffers are fixed, and are the library's between a start and its end.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_persistent_reduce(
    communicator: unisono_communicator,
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    datatype: unisono_datatype,
    operation: unisono_operation,
    root: u32,
    request: *mut unisono_request,
) -> unisono_result {
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe {
        collective::data(
            communicator,
            Data::Reduce,
            (buffer(send, count, datatype), buffer(receive, count, datatype)),
            operation,
            root,
            Form::Persistent(request),
        )
    }
}

/// Prepares `unisono_all_reduce`: the buffers are fixed, and are the library's between a start and its end.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_persistent_all_reduce(
    communicator: unisono_communicator,
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    datatype: unisono_datatype,
    operation: unisono_operation,
    request: *mut unisono_request,
) -> unisono_result {
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe {
        collective::data(
            communicator,
            Data::AllReduce,
            (buffer(send, count, datatype), buffer(receive, count, datatype)),
            operation,
            0,
            Form::Persistent(request),
        )
    }
}

/// Prepares `unisono_scan`: the buffers are fixed, and are the library's between a start and its end.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_persistent_scan(
    communicator: unisono_communicator,
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    datatype: unisono_datatype,
    operation: unisono_operation,
    request: *mut unisono_request,
) -> unisono_result {
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe {
        collective::data(
            communicator,
            Data::Scan,
            (buffer(send, count, datatype), buffer(receive, count, datatype)),
            operation,
            0,
            Form::Persistent(request),
        )
    }
}

/// Prepares `unisono_exclusive_scan`: the buffers are fixed, and are the library's between a start and its end.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_persistent_exclusive_scan(
    communicator: unisono_communicator,
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    datatype: unisono_datatype,
    operation: unisono_operation,
    request: *mut unisono_request,
) -> unisono_result {
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe {
        collective::data(
            communicator,
            Data::ExclusiveScan,
            (buffer(send, count, datatype), buffer(receive, count, datatype)),
            operation,
            0,
            Form::Persistent(request),
        )
    }
}

/// Prepares `unisono_reduce_scatter_block`: the buffers are fixed, and are the library's between a start and its end.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_persistent_reduce_scatter_block(
    communicator: unisono_communicator,
    send: *const c_void,
    send_count: usize,
    receive: *mut c_void,
    receive_count: usize,
    datatype: unisono_datatype,
    operation: unisono_operation,
    request: *mut unisono_request,
) -> unisono_result {
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe {
        collective::data(
            communicator,
            Data::ReduceScatterBlock,
            (buffer(send, send_count, datatype), buffer(receive, receive_count, datatype)),
            operation,
            0,
            Form::Persistent(request),
        )
    }
}

/// Prepares `unisono_gather_varcount`: the buffers are fixed, and are the library's between a start and its end.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_persistent_gather_varcount(
    communicator: unisono_communicator,
    send: *const c_void,
    send_count: usize,
    send_datatype: unisono_datatype,
    receive: *mut c_void,
    receive_counts: *const usize,
    receive_displacements: *const usize,
    receive_datatype: unisono_datatype,
    root: u32,
    request: *mut unisono_request,
) -> unisono_result {
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe {
        collective::blocks(
            communicator,
            Blocks::Gather,
            BlockBuffers::Collect(
                buffer(send, send_count, send_datatype),
                BlockBuffer {
                    buffer: buffer(receive, 0, receive_datatype),
                    counts: receive_counts,
                    displacements: receive_displacements,
                },
            ),
            NONE,
            root,
            Form::Persistent(request),
        )
    }
}

/// Prepares `unisono_scatter_varcount`: the buffers are fixed, and are the library's between a start and its end.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_persistent_scatter_varcount(
    communicator: unisono_communicator,
    send: *const c_void,
    send_counts: *const usize,
    send_displacements: *const usize,
    send_datatype: unisono_datatype,
    receive: *mut c_void,
    receive_count: usize,
    receive_datatype: unisono_datatype,
    root: u32,
    request: *mut unisono_request,
) -> unisono_result {
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe {
        collective::blocks(
            communicator,
            Blocks::Scatter,
            BlockBuffers::Distribute(
                BlockBuffer {
                    buffer: buffer(send, 0, send_datatype),
                    counts: send_counts,
                    displacements: send_displacements,
                },
                buffer(receive, receive_count, receive_datatype),
            ),
            NONE,
            root,
            Form::Persistent(request),
        )
    }
}

/// Prepares `unisono_all_gather_varcount`: the buffers are fixed, and are the library's between a start and its end.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_persistent_all_gather_varcount(
    communicator: unisono_communicator,
    send: *const c_void,
    send_count: usize,
    send_datatype: unisono_datatype,
    receive: *mut c_void,
    receive_counts: *const usize,
    receive_displacements: *const usize,
    receive_datatype: unisono_datatype,
    request: *mut unisono_request,
) -> unisono_result {
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe {
        collective::blocks(
            communicator,
            Blocks::AllGather,
            BlockBuffers::Collect(
                buffer(send, send_count, send_datatype),
                BlockBuffer {
                    buffer: buffer(receive, 0, receive_datatype),
                    counts: receive_counts,
                    displacements: receive_displacements,
                },
            ),
            NONE,
            0,
            Form::Persistent(request),
        )
    }
}

/// Prepares `unisono_all_to_all_varcount`: the buffers are fixed, and are the library's between a start and its end.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_persistent_all_to_all_varcount(
    communicator: unisono_communicator,
    send: *const c_void,
    send_counts: *const usize,
    send_displacements: *const usize,
    send_datatype: unisono_datatype,
    receive: *mut c_void,
    receive_counts: *const usize,
    receive_displacements: *const usize,
    receive_datatype: unisono_datatype,
    request: *mut unisono_request,
) -> unisono_result {
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe {
        collective::blocks(
            communicator,
            Blocks::AllToAll,
            BlockBuffers::Exchange(
                BlockBuffer {
                    buffer: buffer(send, 0, send_datatype),
                    counts: send_counts,
                    displacements: send_displacements,
                },
                BlockBuffer {
                    buffer: buffer(receive, 0, receive_datatype),
                    counts: receive_counts,
                    displacements: receive_displacements,
                },
            ),
            NONE,
            0,
            Form::Persistent(request),
        )
    }
}

/// Prepares `unisono_reduce_scatter_varcount`: the buffers are fixed, and are the library's between a start and its
/// end.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_persistent_reduce_scatter_varcount(
    communicator: unisono_communicator,
    send: *const c_void,
    send_counts: *const usize,
    send_displacements: *const usize,
    receive: *mut c_void,
    receive_count: usize,
    datatype: unisono_datatype,
    operation: unisono_operation,
    request: *mut unisono_request,
) -> unisono_result {
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe {
        collective::blocks(
            communicator,
            Blocks::ReduceScatter,
            BlockBuffers::Distribute(
                BlockBuffer {
                    buffer: buffer(send, 0, datatype),
                    counts: send_counts,
                    displacements: send_displacements,
                },
                buffer(receive, receive_count, datatype),
            ),
            operation,
            0,
            Form::Persistent(request),
        )
    }
}
