//! The exported functions of blocking collectives: they return when the collective has ended on this rank.

use core::ffi::c_void;

use super::{NONE, buffer};
use crate::collective::{self, BlockBuffer, BlockBuffers, Blocks, Data, Form};
use crate::communicator::unisono_communicator;
use crate::datatype::unisono_datatype;
use crate::operation::unisono_operation;
use crate::result::unisono_result;

/// Waits until every rank has called this.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_barrier(communicator: unisono_communicator) -> unisono_result {
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe { collective::barrier(communicator, Form::Blocking) }
}

/// Copies the root's elements to the buffers of all other ranks.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_broadcast(
    communicator: unisono_communicator,
    data: *mut c_void,
    count: usize,
    datatype: unisono_datatype,
    root: u32,
) -> unisono_result {
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe { collective::broadcast(communicator, buffer(data, count, datatype), root, Form::Blocking) }
}

/// Gathers every rank's elements in the root's receive buffer, in rank order. `receive_count` is that of all blocks;
/// other ranks' receive buffer is not used.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_gather(
    communicator: unisono_communicator,
    send: *const c_void,
    send_count: usize,
    send_datatype: unisono_datatype,
    receive: *mut c_void,
    receive_count: usize,
    receive_datatype: unisono_datatype,
    root: u32,
) -> unisono_result {
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe {
        collective::data(
            communicator,
            Data::Gather,
            (buffer(send, send_count, send_datatype), buffer(receive, receive_count, receive_datatype)),
            NONE,
            root,
            Form::Blocking,
        )
    }
}

/// Copies block i of the root's send buffer to rank i. `send_count` is that of all blocks; other ranks' send buffer is
/// not used.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_scatter(
    communicator: unisono_communicator,
    send: *const c_void,
    send_count: usize,
    send_datatype: unisono_datatype,
    receive: *mut c_void,
    receive_count: usize,
    receive_datatype: unisono_datatype,
    root: u32,
) -> unisono_result {
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe {
        collective::data(
            communicator,
            Data::Scatter,
            (buffer(send, send_count, send_datatype), buffer(receive, receive_count, receive_datatype)),
            NONE,
            root,
            Form::Blocking,
        )
    }
}

/// Gathers every rank's elements in every rank's receive buffer, in rank order. `receive_count` is that of all blocks.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_all_gather(
    communicator: unisono_communicator,
    send: *const c_void,
    send_count: usize,
    send_datatype: unisono_datatype,
    receive: *mut c_void,
    receive_count: usize,
    receive_datatype: unisono_datatype,
) -> unisono_result {
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe {
        collective::data(
            communicator,
            Data::AllGather,
            (buffer(send, send_count, send_datatype), buffer(receive, receive_count, receive_datatype)),
            NONE,
            0,
            Form::Blocking,
        )
    }
}

/// Copies block j of rank i's send buffer to block i of rank j's receive buffer. Both counts are those of all blocks.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_all_to_all(
    communicator: unisono_communicator,
    send: *const c_void,
    send_count: usize,
    send_datatype: unisono_datatype,
    receive: *mut c_void,
    receive_count: usize,
    receive_datatype: unisono_datatype,
) -> unisono_result {
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe {
        collective::data(
            communicator,
            Data::AllToAll,
            (buffer(send, send_count, send_datatype), buffer(receive, receive_count, receive_datatype)),
            NONE,
            0,
            Form::Blocking,
        )
    }
}

/// Reduces the elements of all ranks to the root.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_reduce(
    communicator: unisono_communicator,
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    datatype: unisono_datatype,
    operation: unisono_operation,
    root: u32,
) -> unisono_result {
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe {
        collective::data(
            communicator,
            Data::Reduce,
            (buffer(send, count, datatype), buffer(receive, count, datatype)),
            operation,
            root,
            Form::Blocking,
        )
    }
}

/// Reduces the elements of all ranks to all ranks, with equal bits.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_all_reduce(
    communicator: unisono_communicator,
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    datatype: unisono_datatype,
    operation: unisono_operation,
) -> unisono_result {
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe {
        collective::data(
            communicator,
            Data::AllReduce,
            (buffer(send, count, datatype), buffer(receive, count, datatype)),
            operation,
            0,
            Form::Blocking,
        )
    }
}

/// Reduces the elements of ranks 0 to i to rank i.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_scan(
    communicator: unisono_communicator,
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    datatype: unisono_datatype,
    operation: unisono_operation,
) -> unisono_result {
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe {
        collective::data(
            communicator,
            Data::Scan,
            (buffer(send, count, datatype), buffer(receive, count, datatype)),
            operation,
            0,
            Form::Blocking,
        )
    }
}

/// Reduces the elements of ranks 0 to i - 1 to rank i; rank 0's receive buffer is unchanged.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_exclusive_scan(
    communicator: unisono_communicator,
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    datatype: unisono_datatype,
    operation: unisono_operation,
) -> unisono_result {
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe {
        collective::data(
            communicator,
            Data::ExclusiveScan,
            (buffer(send, count, datatype), buffer(receive, count, datatype)),
            operation,
            0,
            Form::Blocking,
        )
    }
}

/// Reduces block i of all ranks to rank i. `send_count` is that of all blocks.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_reduce_scatter_block(
    communicator: unisono_communicator,
    send: *const c_void,
    send_count: usize,
    receive: *mut c_void,
    receive_count: usize,
    datatype: unisono_datatype,
    operation: unisono_operation,
) -> unisono_result {
    // SAFETY: the caller answers for the buffers and pointers.
    unsafe {
        collective::data(
            communicator,
            Data::ReduceScatterBlock,
            (buffer(send, send_count, datatype), buffer(receive, receive_count, datatype)),
            operation,
            0,
            Form::Blocking,
        )
    }
}

/// Gathers every rank's elements in its block of the root's receive buffer.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_gather_varcount(
    communicator: unisono_communicator,
    send: *const c_void,
    send_count: usize,
    send_datatype: unisono_datatype,
    receive: *mut c_void,
    receive_counts: *const usize,
    receive_displacements: *const usize,
    receive_datatype: unisono_datatype,
    root: u32,
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
            Form::Blocking,
        )
    }
}

/// Copies block i of the root's send buffer, which has `counts[i]` elements from `displacements[i]` on, to rank i.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_scatter_varcount(
    communicator: unisono_communicator,
    send: *const c_void,
    send_counts: *const usize,
    send_displacements: *const usize,
    send_datatype: unisono_datatype,
    receive: *mut c_void,
    receive_count: usize,
    receive_datatype: unisono_datatype,
    root: u32,
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
            Form::Blocking,
        )
    }
}

/// Gathers every rank's elements in its block of every rank's receive buffer.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_all_gather_varcount(
    communicator: unisono_communicator,
    send: *const c_void,
    send_count: usize,
    send_datatype: unisono_datatype,
    receive: *mut c_void,
    receive_counts: *const usize,
    receive_displacements: *const usize,
    receive_datatype: unisono_datatype,
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
            Form::Blocking,
        )
    }
}

/// Copies block j of rank i's send buffer to block i of rank j's receive buffer.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_all_to_all_varcount(
    communicator: unisono_communicator,
    send: *const c_void,
    send_counts: *const usize,
    send_displacements: *const usize,
    send_datatype: unisono_datatype,
    receive: *mut c_void,
    receive_counts: *const usize,
    receive_displacements: *const usize,
    receive_datatype: unisono_datatype,
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
            Form::Blocking,
        )
    }
}

/// Reduces block i of all ranks to rank i.
///
/// # Safety
/// As of all functions: the buffers have the elements that the datatypes name, until the collective has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_reduce_scatter_varcount(
    communicator: unisono_communicator,
    send: *const c_void,
    send_counts: *const usize,
    send_displacements: *const usize,
    receive: *mut c_void,
    receive_count: usize,
    datatype: unisono_datatype,
    operation: unisono_operation,
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
            Form::Blocking,
        )
    }
}
