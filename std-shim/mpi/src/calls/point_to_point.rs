//! Messages: all modes of sending, receiving, and exchanges.

use core::ffi::{c_int, c_void};
use core::ptr::NonNull;

use unisono::raw::Channel;
use unisono::{Rank, Tag};

use crate::abi::*;
use crate::calls::buffers::buffer_of;
use crate::calls::give;
use crate::communicator::Comm;
use crate::datatype::basic::Basic;
use crate::datatype::{Elements, checked_type_of, dense_size};
use crate::error::{Outcome, class_of_failure, finish, on, raise_on};
use crate::handle::{Object, resolve};
use crate::request::{Activity, Part, Request, received, sent};

/// How a message is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Standard,
    Synchronous,
    Buffered,
}

#[inline(always)]
fn check_tag(tag: c_int) -> Outcome<Tag> {
    u32::try_from(tag).map(Tag).map_err(|_| MPI_ERR_TAG)
}

pub(super) fn any_tag(tag: c_int) -> Outcome<Option<Tag>> {
    if tag == MPI_ANY_TAG { Ok(None) } else { check_tag(tag).map(Some) }
}

pub(super) fn any_source(comm: &Comm, source: c_int) -> Outcome<Option<Rank>> {
    if source == MPI_ANY_SOURCE { Ok(None) } else { comm.peer(source).map(Some) }
}

/// The status of a receive from nobody.
pub(super) const NOBODY: MPI_Status = MPI_Status { source: MPI_PROC_NULL, ..MPI_Status::EMPTY };

fn start_send(comm: &Object<Comm>, elements: &Elements, to: c_int, tag: c_int, mode: Mode) -> Outcome<Activity> {
    let tag = check_tag(tag)?;
    if to == MPI_PROC_NULL {
        return Ok(Activity::Ended(Ok(()), MPI_Status::EMPTY));
    }
    let to = comm.peer(to)?;
    if mode == Mode::Buffered {
        return start_buffered(comm, elements, to, tag);
    }
    let (bytes, kept) = match elements.dense() {
        Some(bytes) => (bytes, None),
        None => {
            // SAFETY: the program promises that it is readable.
            let mut packed = unsafe { elements.packed() };
            (NonNull::from(packed.as_mut_slice()), Some(packed))
        }
    };
    // SAFETY: the program's memory, which it promises until the end, or kept by the activity.
    let request = unsafe {
        comm.library().raw_send((bytes, elements.checked_type()), to, tag, mode == Mode::Synchronous, Channel::User)
    };
    Ok(match request.map_err(class_of_failure)? {
        (message, Some(request)) => Activity::Send(message, request, kept),
        (message, None) => Activity::Sent(message),
    })
}

fn start_buffered(comm: &Object<Comm>, elements: &Elements, to: Rank, tag: Tag) -> Outcome<Activity> {
    let buffer = buffer_of(comm);
    buffer.reserve(elements.bytes)?;
    // SAFETY: the program promises that it is readable.
    let mut packed = unsafe { elements.packed() };
    let bytes = NonNull::from(packed.as_mut_slice());
    // SAFETY: the copy is kept by the request.
    let request = unsafe { comm.library().raw_send((bytes, elements.checked_type()), to, tag, false, Channel::User) };
    let (message, request) = request.map_err(class_of_failure)?;
    if let Some(request) = request {
        let pending = Request::new(Some(comm.hold()), Activity::Send(message, request, Some(packed)));
        buffer.record(&pending, elements.bytes);
    }
    Ok(Activity::Sent(message))
}

fn start_receive(comm: &Object<Comm>, elements: &Elements, source: c_int, tag: c_int) -> Outcome<Activity> {
    let tag = any_tag(tag)?;
    if source == MPI_PROC_NULL {
        return Ok(Activity::Ended(Ok(()), NOBODY));
    }
    let source = any_source(comm, source)?;
    let (bytes, packed) = receiving(elements);
    // SAFETY: the program's memory, which it promises until the end, or kept by the activity.
    let request = unsafe { comm.library().raw_receive((bytes, elements.checked_type()), source, tag, Channel::User) };
    Ok(Activity::Receive(request.map_err(class_of_failure)?, packed))
}

/// Packed bytes, and the elements that they are unpacked to.
pub(super) type Packed = (Vec<u8>, Elements);

/// Memory for a receive into elements.
pub(super) fn receiving(elements: &Elements) -> (NonNull<[u8]>, Option<Packed>) {
    match elements.dense() {
        Some(bytes) => (bytes, None),
        None => {
            let mut packed = vec![0; elements.bytes];
            (NonNull::from(packed.as_mut_slice()), Some((packed, elements.clone())))
        }
    }
}

/// The bytes of the elements of a predefined datatype without gaps. `None`: the general path must decide.
#[inline(always)]
fn dense_bytes(start: *const u8, count: i64, datatype: MPI_Datatype, tag: c_int) -> Option<NonNull<[u8]>> {
    let size = dense_size(datatype);
    let start = NonNull::new(start.cast_mut())?;
    // The product of an int and a size of a byte fits.
    let count = u32::try_from(count).ok().filter(|_| size > 0 && tag >= 0)?;
    Some(NonNull::slice_from_raw_parts(start, count as usize * usize::from(size)))
}

/// A blocking send of what can be sent from where it is.
#[inline(always)]
pub(crate) unsafe fn send<C: Count>(
    buffer: *const c_void,
    count: C,
    datatype: MPI_Datatype,
    to: c_int,
    tag: c_int,
    comm: MPI_Comm,
) -> c_int {
    // SAFETY: the contract of this module.
    let Ok(of) = (unsafe { resolve::<Comm>(comm.0) }) else { return finish(Err(MPI_ERR_COMM)) };
    if let (Some(bytes), Ok(peer)) = (dense_bytes(buffer.cast(), count.get(), datatype, tag), of.peer(to)) {
        // SAFETY: the program promises that it is readable.
        let bytes = unsafe { bytes.as_ref() };
        let element = || checked_type_of(Basic::of(datatype.0));
        return match of.library().raw_send_bytes(bytes, element, peer, Tag(tag as u32)) {
            Ok(()) => MPI_SUCCESS,
            Err(failure) => match sent(Err(failure)) {
                Ok(()) => MPI_SUCCESS,
                Err(code) => raise_on(of, code),
            },
        };
    }
    // SAFETY: the contract of this module.
    unsafe { send_by(Mode::Standard, buffer, count.get(), datatype, to, tag, comm) }
}

#[inline(never)]
unsafe fn send_by(
    mode: Mode,
    buffer: *const c_void,
    count: i64,
    datatype: MPI_Datatype,
    to: c_int,
    tag: c_int,
    comm: MPI_Comm,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            let elements = Elements::new(buffer.cast(), count, datatype)?;
            match start_send(comm, &elements, to, tag, mode)? {
                Activity::Send(_, request, kept) => {
                    let outcome = sent(comm.library().raw_wait(&request));
                    drop(kept);
                    outcome
                }
                _ => Ok(()),
            }
        })
    }
}

macro_rules! sends {
    ($(fn $blocking:ident $mode:ident;)*) => { $(
        pub(crate) unsafe fn $blocking<C: Count>(buffer: *const c_void, count: C, datatype: MPI_Datatype, to: c_int, tag: c_int, comm: MPI_Comm) -> c_int {
            // SAFETY: the contract of this module.
            unsafe { send_by(Mode::$mode, buffer, count.get(), datatype, to, tag, comm) }
        }
    )* };
}

sends! {
    fn ssend Synchronous;
    fn rsend Standard;
    fn bsend Buffered;
}

macro_rules! immediate_sends {
    ($(fn $immediate:ident fn $persistent:ident $mode:ident;)*) => { $(
        pub(crate) unsafe fn $immediate<C: Count>(buffer: *const c_void, count: C, datatype: MPI_Datatype, to: c_int, tag: c_int, comm: MPI_Comm, request: *mut MPI_Request) -> c_int {
            // SAFETY: the contract of this module.
            unsafe {
                on(comm, |comm| {
                    let elements = Elements::new(buffer.cast(), count.get(), datatype)?;
                    give(request, Request::handle(comm, start_send(comm, &elements, to, tag, Mode::$mode)?))
                })
            }
        }

        pub(crate) unsafe fn $persistent<C: Count>(buffer: *const c_void, count: C, datatype: MPI_Datatype, to: c_int, tag: c_int, comm: MPI_Comm, request: *mut MPI_Request) -> c_int {
            // SAFETY: the contract of this module.
            unsafe {
                on(comm, |comm| {
                    let elements = Elements::new(buffer.cast(), count.get(), datatype)?;
                    check_tag(tag)?;
                    if to != MPI_PROC_NULL {
                        comm.peer(to)?;
                    }
                    let held = comm.hold();
                    let start = move || start_send(&held, &elements, to, tag, Mode::$mode);
                    let made = Request::persistent(comm.hold(), Box::new(start));
                    give(request, MPI_Request(Object::into_handle(made)))
                })
            }
        }
    )* };
}

immediate_sends! {
    fn isend fn send_init Standard;
    fn issend fn ssend_init Synchronous;
    fn irsend fn rsend_init Standard;
    fn ibsend fn bsend_init Buffered;
}

/// Writes a status, unless it is ignored.
pub(crate) unsafe fn report(to: *mut MPI_Status, status: MPI_Status) {
    if !to.is_null() {
        let is_empty = (status.source, status.tag) == (MPI_ANY_SOURCE, MPI_ANY_TAG);
        // SAFETY: the program promises that it is writable. The error stays as it is, except in an empty status.
        unsafe { to.write(MPI_Status { error: if is_empty { MPI_SUCCESS } else { (*to).error }, ..status }) };
    }
}

#[inline(always)]
pub(crate) unsafe fn recv<C: Count>(
    buffer: *mut c_void,
    count: C,
    datatype: MPI_Datatype,
    source: c_int,
    tag: c_int,
    comm: MPI_Comm,
    status: *mut MPI_Status,
) -> c_int {
    // SAFETY: the contract of this module.
    let Ok(of) = (unsafe { resolve::<Comm>(comm.0) }) else { return finish(Err(MPI_ERR_COMM)) };
    if let (Some(mut bytes), Ok(peer)) = (dense_bytes(buffer.cast(), count.get(), datatype, tag), of.peer(source)) {
        // SAFETY: the program promises that it is writable, and nobody else's.
        let bytes = unsafe { bytes.as_mut() };
        let element = || checked_type_of(Basic::of(datatype.0));
        return match of.library().raw_receive_bytes(bytes, element, peer, Tag(tag as u32)) {
            Ok(bytes) => {
                // SAFETY: the contract of this module.
                unsafe { report(status, MPI_Status::new(source, tag, bytes as u64)) };
                MPI_SUCCESS
            }
            Err(failure) => raise_on(of, class_of_failure(failure)),
        };
    }
    // SAFETY: the contract of this module.
    unsafe { recv_general(buffer, count.get(), datatype, source, tag, comm, status) }
}

#[inline(never)]
unsafe fn recv_general(
    buffer: *mut c_void,
    count: i64,
    datatype: MPI_Datatype,
    source: c_int,
    tag: c_int,
    comm: MPI_Comm,
    status: *mut MPI_Status,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            let elements = Elements::new(buffer.cast(), count, datatype)?;
            match start_receive(comm, &elements, source, tag)? {
                Activity::Receive(request, packed) => {
                    let (outcome, seen) = received(comm, comm.library().raw_wait(&request), packed);
                    report(status, seen);
                    outcome
                }
                Activity::Ended(outcome, seen) => {
                    report(status, seen);
                    outcome
                }
                _ => Err(MPI_ERR_INTERN),
            }
        })
    }
}

pub(crate) unsafe fn irecv<C: Count>(
    buffer: *mut c_void,
    count: C,
    datatype: MPI_Datatype,
    source: c_int,
    tag: c_int,
    comm: MPI_Comm,
    request: *mut MPI_Request,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            let elements = Elements::new(buffer.cast(), count.get(), datatype)?;
            give(request, Request::handle(comm, start_receive(comm, &elements, source, tag)?))
        })
    }
}

pub(crate) unsafe fn recv_init<C: Count>(
    buffer: *mut c_void,
    count: C,
    datatype: MPI_Datatype,
    source: c_int,
    tag: c_int,
    comm: MPI_Comm,
    request: *mut MPI_Request,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            let elements = Elements::new(buffer.cast(), count.get(), datatype)?;
            any_tag(tag)?;
            if source != MPI_PROC_NULL {
                any_source(comm, source)?;
            }
            let held = comm.hold();
            let start = move || start_receive(&held, &elements, source, tag);
            let made = Request::persistent(comm.hold(), Box::new(start));
            give(request, MPI_Request(Object::into_handle(made)))
        })
    }
}

/// A send and a receive at the same time.
fn exchange(
    comm: &Object<Comm>,
    (send, to, send_tag): (&Elements, c_int, c_int),
    (receive, source, receive_tag): (&Elements, c_int, c_int),
    copies: bool,
) -> Outcome<Activity> {
    let (copied, kept);
    let send = if copies {
        // SAFETY: the program promises that it is readable.
        let packed = unsafe { send.packed() };
        let start = packed.as_ptr().expose_provenance();
        copied = Elements {
            start,
            count: packed.len() as i64,
            datatype: None,
            bytes: packed.len(),
            extent: 1,
            basic: send.basic,
        };
        kept = Some(packed);
        &copied
    } else {
        kept = None;
        send
    };
    let received = start_receive(comm, receive, source, receive_tag)?;
    let sent = start_send(comm, send, to, send_tag, Mode::Standard);
    let sent = match (sent, &received) {
        (Ok(sent), _) => sent,
        (Err(code), Activity::Receive(request, _)) => {
            if !comm.library().raw_cancel(request) {
                let _ = comm.library().raw_wait(request);
            }
            return Err(code);
        }
        (Err(code), _) => return Err(code),
    };
    let mut parts = Vec::with_capacity(2);
    let mut keeps = vec![kept];
    let mut unpacked = None;
    let mut seen = None;
    match received {
        Activity::Receive(request, packed) => {
            parts.push(Part { request, is_receive: true });
            unpacked = packed;
        }
        Activity::Ended(_, status) => seen = Some(status),
        _ => {}
    }
    if let Activity::Send(_, request, packed) = sent {
        parts.push(Part { request, is_receive: false });
        keeps.push(packed);
    }
    let finish = Box::new(move || {
        drop(keeps);
        if let Some((bytes, elements)) = unpacked {
            // SAFETY: the program promised that it is writable until the end.
            unsafe { elements.unpack(&bytes) };
        }
        Ok(())
    });
    Ok(Activity::Messages(parts, Some(finish), true, seen))
}

/// As [`exchange`], with a receive whose elements may be fewer than its buffer has room for.
unsafe fn sendrecv_by(
    arguments: (Elements, c_int, c_int),
    other: (Elements, c_int, c_int),
    comm: &Object<Comm>,
    status: *mut MPI_Status,
    copies: bool,
) -> Outcome {
    let (send, to, send_tag) = arguments;
    let (receive, source, receive_tag) = other;
    let activity = exchange(comm, (&send, to, send_tag), (&receive, source, receive_tag), copies)?;
    let report_of = Request::new(Some(comm.hold()), activity).wait();
    // SAFETY: the contract of this module.
    unsafe { report(status, report_of.status) };
    report_of.outcome
}

pub(crate) unsafe fn sendrecv<C: Count>(
    send: *const c_void,
    send_count: C,
    send_type: MPI_Datatype,
    to: c_int,
    send_tag: c_int,
    receive: *mut c_void,
    receive_count: C,
    receive_type: MPI_Datatype,
    source: c_int,
    receive_tag: c_int,
    comm: MPI_Comm,
    status: *mut MPI_Status,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            let send = Elements::new(send.cast(), send_count.get(), send_type)?;
            let receive = Elements::new(receive.cast(), receive_count.get(), receive_type)?;
            sendrecv_by((send, to, send_tag), (receive, source, receive_tag), comm, status, false)
        })
    }
}

pub(crate) unsafe fn sendrecv_replace<C: Count>(
    buffer: *mut c_void,
    count: C,
    datatype: MPI_Datatype,
    to: c_int,
    send_tag: c_int,
    source: c_int,
    receive_tag: c_int,
    comm: MPI_Comm,
    status: *mut MPI_Status,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            let both = Elements::new(buffer.cast(), count.get(), datatype)?;
            sendrecv_by((both.clone(), to, send_tag), (both, source, receive_tag), comm, status, true)
        })
    }
}

pub(crate) unsafe fn isendrecv<C: Count>(
    send: *const c_void,
    send_count: C,
    send_type: MPI_Datatype,
    to: c_int,
    send_tag: c_int,
    receive: *mut c_void,
    receive_count: C,
    receive_type: MPI_Datatype,
    source: c_int,
    receive_tag: c_int,
    comm: MPI_Comm,
    request: *mut MPI_Request,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            let send = Elements::new(send.cast(), send_count.get(), send_type)?;
            let receive = Elements::new(receive.cast(), receive_count.get(), receive_type)?;
            let activity = exchange(comm, (&send, to, send_tag), (&receive, source, receive_tag), false)?;
            give(request, Request::handle(comm, activity))
        })
    }
}

pub(crate) unsafe fn isendrecv_replace<C: Count>(
    buffer: *mut c_void,
    count: C,
    datatype: MPI_Datatype,
    to: c_int,
    send_tag: c_int,
    source: c_int,
    receive_tag: c_int,
    comm: MPI_Comm,
    request: *mut MPI_Request,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            let both = Elements::new(buffer.cast(), count.get(), datatype)?;
            let activity = exchange(comm, (&both, to, send_tag), (&both, source, receive_tag), true)?;
            give(request, Request::handle(comm, activity))
        })
    }
}
