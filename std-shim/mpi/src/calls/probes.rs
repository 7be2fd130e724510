//! Probes, and receives of the messages that a matched probe has removed.

use core::ffi::{c_int, c_void};

use unisono::Status;
use unisono::raw::RawMessage;

use crate::abi::*;
use crate::calls::give;
use crate::calls::point_to_point::{NOBODY, any_source, any_tag, receiving, report};
use crate::communicator::Comm;
use crate::datatype::Elements;
use crate::error::{Outcome, class_of_failure, finish, on, raise_on};
use crate::handle::{Held, Kind, Object, release};
use crate::request::{Activity, Request};

fn public_status(comm: &Comm, status: &Status) -> MPI_Status {
    MPI_Status::new(comm.rank_of(status.source), status.tag.0 as c_int, status.bytes as u64)
}

pub(crate) unsafe fn probe(source: c_int, tag: c_int, comm: MPI_Comm, status: *mut MPI_Status) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            let tag = any_tag(tag)?;
            if source == MPI_PROC_NULL {
                report(status, NOBODY);
                return Ok(());
            }
            let found = comm.library().probe(any_source(comm, source)?, tag).map_err(class_of_failure)?;
            report(status, public_status(comm, &found));
            Ok(())
        })
    }
}

pub(crate) unsafe fn iprobe(
    source: c_int,
    tag: c_int,
    comm: MPI_Comm,
    flag: *mut c_int,
    status: *mut MPI_Status,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            let tag = any_tag(tag)?;
            if source == MPI_PROC_NULL {
                report(status, NOBODY);
                return give(flag, 1);
            }
            let found = comm.library().immediate_probe(any_source(comm, source)?, tag).map_err(class_of_failure)?;
            if let Some(found) = &found {
                report(status, public_status(comm, found));
            }
            give(flag, found.is_some().into())
        })
    }
}

/// A message that a matched probe has removed.
#[derive(Debug)]
pub struct Message {
    comm: Option<Held<Comm>>,
    message: Option<RawMessage>,
}

impl Kind for Message {
    const MARK: u32 = 0x6d73_6720;
    const INVALID: c_int = MPI_ERR_REQUEST;

    fn predefined(handle: usize) -> Option<&'static Object<Self>> {
        static NOBODY: std::sync::OnceLock<Held<Message>> = std::sync::OnceLock::new();
        let object = || &**NOBODY.get_or_init(|| Object::new(Message { comm: None, message: None }));
        (handle == MPI_MESSAGE_NO_PROC.0).then(object)
    }
}

unsafe fn probe_matched(
    comm: &Object<Comm>,
    source: c_int,
    tag: c_int,
    waits: bool,
    message: *mut MPI_Message,
    status: *mut MPI_Status,
) -> Outcome<bool> {
    let tag = any_tag(tag)?;
    if source == MPI_PROC_NULL {
        // SAFETY: the contract of this module.
        unsafe { report(status, NOBODY) };
        // SAFETY: the contract of this module.
        unsafe { give(message, MPI_MESSAGE_NO_PROC) }?;
        return Ok(true);
    }
    let found = comm.library().raw_matched_probe(any_source(comm, source)?, tag, waits).map_err(class_of_failure)?;
    let Some((found, seen)) = found else {
        // SAFETY: the contract of this module.
        unsafe { give(message, MPI_MESSAGE_NULL) }?;
        return Ok(false);
    };
    // SAFETY: the contract of this module.
    unsafe { report(status, public_status(comm, &seen)) };
    let made = Object::new(Message { comm: Some(comm.hold()), message: Some(found) });
    // SAFETY: the contract of this module.
    unsafe { give(message, MPI_Message(Object::into_handle(made))) }?;
    Ok(true)
}

pub(crate) unsafe fn mprobe(
    source: c_int,
    tag: c_int,
    comm: MPI_Comm,
    message: *mut MPI_Message,
    status: *mut MPI_Status,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { on(comm, |comm| probe_matched(comm, source, tag, true, message, status).map(|_| ())) }
}

pub(crate) unsafe fn improbe(
    source: c_int,
    tag: c_int,
    comm: MPI_Comm,
    flag: *mut c_int,
    message: *mut MPI_Message,
    status: *mut MPI_Status,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            let found = probe_matched(comm, source, tag, false, message, status)?;
            give(flag, found.into())
        })
    }
}

/// Takes a message of its handle; `None`: it is from nobody.
unsafe fn take(message: *mut MPI_Message) -> Outcome<Option<(Held<Comm>, RawMessage)>> {
    // SAFETY: the contract of this module.
    let handle = *unsafe { message.as_ref() }.ok_or(MPI_ERR_ARG)?;
    let taken = if handle == MPI_MESSAGE_NO_PROC {
        None
    } else {
        // SAFETY: the contract of this module.
        let object = unsafe { release::<Message>(handle.0) }?;
        Some((object.comm.as_ref().ok_or(MPI_ERR_REQUEST)?.hold(), object.message.ok_or(MPI_ERR_REQUEST)?))
    };
    // SAFETY: the contract of this module.
    unsafe { give(message, MPI_MESSAGE_NULL) }?;
    Ok(taken)
}

fn start_matched(comm: &Object<Comm>, message: RawMessage, elements: &Elements) -> Outcome<Activity> {
    let (bytes, packed) = receiving(elements);
    // SAFETY: the program's memory, which it promises until the end, or kept by the activity.
    let request = unsafe { comm.library().raw_receive_matched(message, (bytes, elements.checked_type())) };
    Ok(Activity::Receive(request.map_err(class_of_failure)?, packed))
}

pub(crate) unsafe fn mrecv<C: Count>(
    buffer: *mut c_void,
    count: C,
    datatype: MPI_Datatype,
    message: *mut MPI_Message,
    status: *mut MPI_Status,
) -> c_int {
    // SAFETY: the contract of this module.
    let elements = unsafe { Elements::new(buffer.cast(), count.get(), datatype) };
    // SAFETY: the contract of this module.
    match elements.and_then(|elements| Ok((elements, unsafe { take(message) }?))) {
        Ok((elements, Some((comm, message)))) => {
            let outcome = start_matched(&comm, message, &elements).and_then(|activity| {
                let report_of = Request::new(Some(comm.hold()), activity).wait();
                // SAFETY: the contract of this module.
                unsafe { report(status, report_of.status) };
                report_of.outcome
            });
            outcome.map_or_else(|code| raise_on(&comm, code), |()| MPI_SUCCESS)
        }
        Ok((_, None)) => {
            // SAFETY: the contract of this module.
            unsafe { report(status, NOBODY) };
            MPI_SUCCESS
        }
        Err(code) => finish(Err(code)),
    }
}

pub(crate) unsafe fn imrecv<C: Count>(
    buffer: *mut c_void,
    count: C,
    datatype: MPI_Datatype,
    message: *mut MPI_Message,
    request: *mut MPI_Request,
) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let elements = Elements::new(buffer.cast(), count.get(), datatype)?;
            let handle = match take(message)? {
                Some((comm, message)) => Request::handle(&comm, start_matched(&comm, message, &elements)?),
                None => MPI_Request(Object::into_handle(Request::new(None, Activity::Ended(Ok(()), NOBODY)))),
            };
            give(request, handle)
        })()
    })
}
