//! The buffers of buffered sends: of a communicator, a session, the process.

use core::ffi::{c_int, c_void};

use crate::abi::*;
use crate::buffer::Buffer;
use crate::calls::{give, give_count};
use crate::communicator::{Comm, self_communicator, world_communicator};
use crate::error::{Outcome, finish, on};

/// The buffer that a buffered send takes its room of: that of its communicator, or of the process.
static BUFFER: std::sync::LazyLock<Buffer> = std::sync::LazyLock::new(Buffer::default);

/// The buffer of a communicator's buffered sends.
pub(super) fn buffer_of(comm: &Comm) -> &Buffer {
    if comm.buffer.is_attached() { &comm.buffer } else { &BUFFER }
}

/// Waits until all buffered messages have left.
pub fn flush_all() {
    BUFFER.flush();
    for comm in [world_communicator(), self_communicator()].into_iter().flatten() {
        comm.buffer.flush();
    }
}

unsafe fn attach<C: Count>(buffer: &Buffer, address: *mut c_void, size: C) -> Outcome {
    buffer.attach(address.expose_provenance(), size.get())
}

unsafe fn detach<C: Count>(buffer: &Buffer, address: *mut c_void, size: *mut C) -> Outcome {
    let (start, bytes) = buffer.detach()?;
    let start = core::ptr::with_exposed_provenance_mut::<c_void>(start);
    // SAFETY: the contract of this module; `address` is the address of a pointer.
    unsafe { give(address.cast::<*mut c_void>(), start) }?;
    // SAFETY: the contract of this module.
    unsafe { give_count(size, bytes, MPI_UNDEFINED) }
}

/// A request that ends when all buffered messages have left.
fn flushed(buffer: &Buffer) -> MPI_Request {
    // They leave while any call makes progress; the buffer is what waits.
    buffer.flush();
    crate::request::COMPLETED
}

pub(crate) unsafe fn buffer_attach<C: Count>(address: *mut c_void, size: C) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { attach(&BUFFER, address, size) })
}

pub(crate) unsafe fn buffer_detach<C: Count>(address: *mut c_void, size: *mut C) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { detach(&BUFFER, address, size) })
}

pub(crate) unsafe fn buffer_flush() -> c_int {
    BUFFER.flush();
    MPI_SUCCESS
}

pub(crate) unsafe fn buffer_iflush(request: *mut MPI_Request) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { give(request, flushed(&BUFFER)) })
}

pub(crate) unsafe fn comm_attach_buffer<C: Count>(comm: MPI_Comm, address: *mut c_void, size: C) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { on(comm, |comm| attach(&comm.buffer, address, size)) }
}

pub(crate) unsafe fn comm_detach_buffer<C: Count>(comm: MPI_Comm, address: *mut c_void, size: *mut C) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { on(comm, |comm| detach(&comm.buffer, address, size)) }
}

pub(crate) unsafe fn comm_flush_buffer(comm: MPI_Comm) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            comm.buffer.flush();
            Ok(())
        })
    }
}

pub(crate) unsafe fn comm_iflush_buffer(comm: MPI_Comm, request: *mut MPI_Request) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { on(comm, |comm| give(request, flushed(&comm.buffer))) }
}

pub(crate) unsafe fn session_attach_buffer<C: Count>(_: MPI_Session, address: *mut c_void, size: C) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { attach(&BUFFER, address, size) })
}

pub(crate) unsafe fn session_detach_buffer<C: Count>(_: MPI_Session, address: *mut c_void, size: *mut C) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { detach(&BUFFER, address, size) })
}

pub(crate) unsafe fn session_flush_buffer(_: MPI_Session) -> c_int {
    BUFFER.flush();
    MPI_SUCCESS
}

pub(crate) unsafe fn session_iflush_buffer(_: MPI_Session, request: *mut MPI_Request) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { give(request, flushed(&BUFFER)) })
}
