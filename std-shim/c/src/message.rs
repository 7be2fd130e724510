//! Point-to-point messages and probes.

use alloc::sync::Arc;
use core::ffi::c_void;
use core::ptr::NonNull;

use parking_lot::Mutex;
use unisono::collective::{View, ViewMut};
use unisono::{Message, PersistentMessage, Rank, Request, Scope, Status, Tag};

use crate::communicator::{Member, member, unisono_communicator};
use crate::datatype::{Buffer, check, datatype, store, unisono_datatype};
use crate::handle::{Kind, Table};
use crate::request::{Started, insert, unisono_request};
use crate::result::unisono_result::{self, UNISONO_ERROR_DATATYPE};
use crate::result::{Error, call};

/// Any rank of the communicator.
pub const UNISONO_ANY_SOURCE: u32 = u32::MAX;
/// Any tag. It is no tag of a message.
pub const UNISONO_ANY_TAG: u32 = u32::MAX;

/// A received message, or one that a probe has found.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(non_camel_case_types, reason = "a name of C")]
pub struct unisono_status {
    /// The rank that sent it.
    pub source: u32,
    /// Its tag.
    pub tag: u32,
    /// Its length in bytes.
    pub bytes: usize,
}

impl From<Status> for unisono_status {
    fn from(status: Status) -> Self {
        if status == Status::EMPTY {
            return Self::default();
        }
        Self { source: status.source.0, tag: status.tag.0, bytes: status.bytes }
    }
}

fn source(source: u32) -> Option<Rank> {
    (source != UNISONO_ANY_SOURCE).then_some(Rank(source))
}

fn tag(tag: u32) -> Option<Tag> {
    (tag != UNISONO_ANY_TAG).then_some(Tag(tag))
}

fn own_tag(tag: u32) -> Result<Tag, Error> {
    self::tag(tag).ok_or_else(|| Error::argument("UNISONO_ANY_TAG is no tag of a message"))
}

unsafe fn store_status(to: *mut unisono_status, status: Status) -> Result<(), Error> {
    if to.is_null() {
        return Ok(());
    }
    // SAFETY: the caller of the exported function answers for the pointer.
    unsafe { store(to, "status", status.into()) }
}

/// Number of elements of a datatype in a message.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_count(
    status: *const unisono_status,
    datatype: unisono_datatype,
    count: *mut usize,
) -> unisono_result {
    call(|| {
        check(status, "status")?;
        let size = self::datatype(datatype)?.datatype.size();
        // SAFETY: the caller answers for the pointer.
        let bytes = unsafe { status.read() }.bytes;
        if bytes.checked_rem(size).is_none_or(|rest| rest != 0) && bytes > 0 {
            let text = format!("{bytes} bytes are no whole number of elements of {size}");
            return Err(Error::new(UNISONO_ERROR_DATATYPE, text));
        }
        // SAFETY: the caller answers for the pointer.
        unsafe { store(count, "count", bytes.checked_div(size).unwrap_or(0)) }
    })
}

/// Sends `count` elements and waits until the buffer is free: a short message is copied, a longer one waits for its
/// receive.
///
/// # Safety
/// As of all functions: the buffer has the elements that the datatype names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_send(
    communicator: unisono_communicator,
    buffer: *const c_void,
    count: usize,
    datatype: unisono_datatype,
    to: u32,
    tag: u32,
) -> unisono_result {
    call(|| {
        // SAFETY: the caller answers for the buffer.
        let (view, _) = unsafe { Buffer { start: buffer.cast_mut(), count, datatype }.view() }?;
        Ok(member(communicator)?.communicator().send(&view, Rank(to), own_tag(tag)?)?)
    })
}

/// As `unisono_send`, and waits until a receive has matched the message.
///
/// # Safety
/// As of `unisono_send`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_synchronous_send(
    communicator: unisono_communicator,
    buffer: *const c_void,
    count: usize,
    datatype: unisono_datatype,
    to: u32,
    tag: u32,
) -> unisono_result {
    call(|| {
        // SAFETY: the caller answers for the buffer.
        let (view, _) = unsafe { Buffer { start: buffer.cast_mut(), count, datatype }.view() }?;
        Ok(member(communicator)?.communicator().synchronous_send(&view, Rank(to), own_tag(tag)?)?)
    })
}

/// Receives up to `count` elements of a message from `source` (or `UNISONO_ANY_SOURCE`) with `tag` (or
/// `UNISONO_ANY_TAG`). `status` may be NULL.
///
/// # Safety
/// As of all functions: the buffer has room for the elements that the datatype names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_receive(
    communicator: unisono_communicator,
    buffer: *mut c_void,
    count: usize,
    datatype: unisono_datatype,
    source: u32,
    tag: u32,
    status: *mut unisono_status,
) -> unisono_result {
    call(|| {
        // SAFETY: the caller answers for the buffer.
        let (mut view, _) = unsafe { Buffer { start: buffer, count, datatype }.view_mut() }?;
        let member = member(communicator)?;
        let received = member.communicator().receive_into(&mut view, self::source(source), self::tag(tag))?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store_status(status, received) }
    })
}

/// Sends one message and receives another at the same time. `status` may be NULL.
///
/// # Safety
/// As of `unisono_send` and `unisono_receive`; the buffers have no byte in common.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_send_receive(
    communicator: unisono_communicator,
    send_buffer: *const c_void,
    send_count: usize,
    send_datatype: unisono_datatype,
    to: u32,
    send_tag: u32,
    receive_buffer: *mut c_void,
    receive_count: usize,
    receive_datatype: unisono_datatype,
    source: u32,
    receive_tag: u32,
    status: *mut unisono_status,
) -> unisono_result {
    call(|| {
        let sent = Buffer { start: send_buffer.cast_mut(), count: send_count, datatype: send_datatype };
        let received = Buffer { start: receive_buffer, count: receive_count, datatype: receive_datatype };
        // SAFETY: the caller answers for the buffer.
        let (sent, _) = unsafe { sent.view() }?;
        // SAFETY: the caller answers for the buffer.
        let (mut received, _) = unsafe { received.view_mut() }?;
        let (source, receive_tag) = (self::source(source), tag(receive_tag));
        let member = member(communicator)?;
        let done = member.communicator().send_receive_into(
            &sent,
            Rank(to),
            own_tag(send_tag)?,
            &mut received,
            source,
            receive_tag,
        )?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store_status(status, done) }
    })
}

/// Starts a message and records the request.
unsafe fn begin(
    communicator: unisono_communicator,
    request: *mut unisono_request,
    start: impl FnOnce(&'static Scope<'static, 'static>) -> Result<Request<'static>, Error>,
) -> Result<(), Error> {
    check(request, "request")?;
    let member = member(communicator)?;
    // SAFETY: the request is recorded with its member, and dropped before it.
    let scope = unsafe { member.scope() };
    let started = start(scope)?;
    // The caller may compute for a long time.
    scope.flush();
    // SAFETY: the caller of the exported function answers for the pointer.
    unsafe { store(request, "request", insert(Started::Message(started), member)) }
}

/// A reference that a call of a scope wants for as long as the scope: what is made of the view during the call refers to
/// the memory that it describes, and not to it.
///
/// # Safety
/// The reference is not used after the call.
unsafe fn during_call<'a, T>(view: &T) -> &'a T {
    // SAFETY: the caller promises not to use it longer than the view lives.
    unsafe { &*core::ptr::from_ref(view) }
}

/// As [`during_call`], exclusively.
///
/// # Safety
/// The reference is not used after the call.
unsafe fn during_call_mut<'a, T>(view: &mut T) -> &'a mut T {
    // SAFETY: the caller promises not to use it longer than the view lives.
    unsafe { &mut *core::ptr::from_mut(view) }
}

/// Starts a send.
///
/// # Safety
/// As of `unisono_send`, until the request is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_immediate_send(
    communicator: unisono_communicator,
    buffer: *const c_void,
    count: usize,
    datatype: unisono_datatype,
    to: u32,
    tag: u32,
    request: *mut unisono_request,
) -> unisono_result {
    call(|| {
        // SAFETY: the caller answers for the buffer.
        let (view, _): (View<'static, u8>, _) = unsafe { Buffer { start: buffer.cast_mut(), count, datatype }.view() }?;
        let tag = own_tag(tag)?;
        // SAFETY: used during the call.
        let view = unsafe { during_call(&view) };
        // SAFETY: the caller answers for the pointer.
        unsafe { begin(communicator, request, |scope| Ok(scope.immediate_send(view, Rank(to), tag)?)) }
    })
}

/// Starts a send whose request is complete when a receive has matched the message.
///
/// # Safety
/// As of `unisono_send`, until the request is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_immediate_synchronous_send(
    communicator: unisono_communicator,
    buffer: *const c_void,
    count: usize,
    datatype: unisono_datatype,
    to: u32,
    tag: u32,
    request: *mut unisono_request,
) -> unisono_result {
    call(|| {
        // SAFETY: the caller answers for the buffer.
        let (view, _): (View<'static, u8>, _) = unsafe { Buffer { start: buffer.cast_mut(), count, datatype }.view() }?;
        let tag = own_tag(tag)?;
        // SAFETY: used during the call.
        let view = unsafe { during_call(&view) };
        // SAFETY: the caller answers for the pointer.
        unsafe { begin(communicator, request, |scope| Ok(scope.immediate_synchronous_send(view, Rank(to), tag)?)) }
    })
}

/// Starts a receive.
///
/// # Safety
/// As of `unisono_receive`, until the request is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_immediate_receive(
    communicator: unisono_communicator,
    buffer: *mut c_void,
    count: usize,
    datatype: unisono_datatype,
    source: u32,
    tag: u32,
    request: *mut unisono_request,
) -> unisono_result {
    call(|| {
        // SAFETY: the caller answers for the buffer.
        let (mut view, _): (ViewMut<'static, u8>, _) = unsafe { Buffer { start: buffer, count, datatype }.view_mut() }?;
        let (source, tag) = (self::source(source), self::tag(tag));
        // SAFETY: used during the call.
        let view = unsafe { during_call_mut(&mut view) };
        // SAFETY: the caller answers for the pointer.
        unsafe { begin(communicator, request, |scope| Ok(scope.immediate_receive_into(view, source, tag)?)) }
    })
}

/// Prepares a message.
unsafe fn prepare(
    communicator: unisono_communicator,
    request: *mut unisono_request,
    prepare: impl FnOnce(&'static Scope<'static, 'static>) -> Result<PersistentMessage<'static, u8>, Error>,
) -> Result<(), Error> {
    check(request, "request")?;
    let member = member(communicator)?;
    // SAFETY: the request is recorded with its member, and dropped before it.
    let prepared = prepare(unsafe { member.scope() })?;
    // SAFETY: the caller of the exported function answers for the pointer.
    unsafe { store(request, "request", insert(Started::PersistentMessage(prepared), member)) }
}

/// Prepares `unisono_send`: the buffer is fixed, and is the library's between a start and its end.
///
/// # Safety
/// As of `unisono_send`, until the request is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_persistent_send(
    communicator: unisono_communicator,
    buffer: *const c_void,
    count: usize,
    datatype: unisono_datatype,
    to: u32,
    tag: u32,
    request: *mut unisono_request,
) -> unisono_result {
    call(|| {
        // SAFETY: the caller answers for the buffer.
        let (view, _): (View<'static, u8>, _) = unsafe { Buffer { start: buffer.cast_mut(), count, datatype }.view() }?;
        let tag = own_tag(tag)?;
        // SAFETY: nothing here calls `data`.
        let send = |scope: &'static Scope<'_, '_>| unsafe { scope.raw_persistent_send(&view, Rank(to), tag, false) };
        // SAFETY: the caller answers for the pointer.
        unsafe { prepare(communicator, request, |scope| Ok(send(scope)?)) }
    })
}

/// Prepares `unisono_synchronous_send`: the buffer is fixed, and is the library's between a start and its end.
///
/// # Safety
/// As of `unisono_send`, until the request is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_persistent_synchronous_send(
    communicator: unisono_communicator,
    buffer: *const c_void,
    count: usize,
    datatype: unisono_datatype,
    to: u32,
    tag: u32,
    request: *mut unisono_request,
) -> unisono_result {
    call(|| {
        // SAFETY: the caller answers for the buffer.
        let (view, _): (View<'static, u8>, _) = unsafe { Buffer { start: buffer.cast_mut(), count, datatype }.view() }?;
        let tag = own_tag(tag)?;
        // SAFETY: nothing here calls `data`.
        let send = |scope: &'static Scope<'_, '_>| unsafe { scope.raw_persistent_send(&view, Rank(to), tag, true) };
        // SAFETY: the caller answers for the pointer.
        unsafe { prepare(communicator, request, |scope| Ok(send(scope)?)) }
    })
}

/// Prepares `unisono_receive`: the buffer is fixed, and is the library's between a start and its end.
///
/// # Safety
/// As of `unisono_receive`, until the request is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_persistent_receive(
    communicator: unisono_communicator,
    buffer: *mut c_void,
    count: usize,
    datatype: unisono_datatype,
    source: u32,
    tag: u32,
    request: *mut unisono_request,
) -> unisono_result {
    call(|| {
        // SAFETY: the caller answers for the buffer.
        let (mut view, _): (ViewMut<'static, u8>, _) = unsafe { Buffer { start: buffer, count, datatype }.view_mut() }?;
        let (source, tag) = (self::source(source), self::tag(tag));
        // SAFETY: used during the call.
        let view = unsafe { during_call_mut(&mut view) };
        // SAFETY: the caller answers for the pointer.
        unsafe { prepare(communicator, request, |scope| Ok(scope.persistent_receive_into(view, source, tag)?)) }
    })
}

/// Attaches `bytes` bytes for buffered sends on the communicator, which has one such buffer at a time. A message takes
/// its length in adjacent bytes, at least one, from when it is sent until it and all earlier ones have left.
///
/// # Safety
/// As of all functions: the memory is the library's until it is detached, or the communicator is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_attach_buffer(
    communicator: unisono_communicator,
    buffer: *mut c_void,
    bytes: usize,
) -> unisono_result {
    call(|| {
        check(buffer, "buffer")?;
        if bytes > isize::MAX as usize {
            return Err(Error::argument("the buffer is larger than the address space"));
        }
        let memory = NonNull::new(buffer.cast::<u8>()).unwrap_or(NonNull::dangling());
        // SAFETY: the caller answers for the memory.
        unsafe { member(communicator)?.attach_buffer(NonNull::slice_from_raw_parts(memory, bytes)) }
    })
}

/// Waits until all messages have left the communicator's buffer, and detaches it; also if one of them failed, which is
/// the result then.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_detach_buffer(communicator: unisono_communicator) -> unisono_result {
    call(|| member(communicator)?.detach_buffer())
}

/// As `unisono_send`, by a copy in the communicator's buffer: returns whether or not a receive is posted. Without room,
/// or without a buffer, nothing is sent: `UNISONO_ERROR_RESOURCES`.
///
/// # Safety
/// As of `unisono_send`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_buffered_send(
    communicator: unisono_communicator,
    buffer: *const c_void,
    count: usize,
    datatype: unisono_datatype,
    to: u32,
    tag: u32,
) -> unisono_result {
    call(|| {
        // SAFETY: the caller answers for the buffer.
        let (view, _) = unsafe { Buffer { start: buffer.cast_mut(), count, datatype }.view() }?;
        member(communicator)?.buffered_send(&view, Rank(to), own_tag(tag)?)
    })
}

/// Waits for a message that a receive with these arguments would match. `status` may be NULL.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_probe(
    communicator: unisono_communicator,
    source: u32,
    tag: u32,
    status: *mut unisono_status,
) -> unisono_result {
    call(|| {
        let found = member(communicator)?.communicator().probe(self::source(source), self::tag(tag))?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store_status(status, found) }
    })
}

/// Makes progress once; `*found` says whether there is such a message. `status` may be NULL.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_immediate_probe(
    communicator: unisono_communicator,
    source: u32,
    tag: u32,
    found: *mut bool,
    status: *mut unisono_status,
) -> unisono_result {
    call(|| {
        check(found, "found")?;
        let probed = member(communicator)?.communicator().immediate_probe(self::source(source), self::tag(tag))?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(found, "found", probed.is_some()) }?;
        // SAFETY: the caller answers for the pointer.
        probed.map_or(Ok(()), |probed| unsafe { store_status(status, probed) })
    })
}

/// A message that a matched probe has removed: no other receive matches it.
#[allow(non_camel_case_types, reason = "a name of C")]
pub type unisono_message = u64;

/// A message with its communicator, which it is dropped before.
struct Removed {
    message: Message<'static>,
    _member: Arc<Member>,
}

static MESSAGES: Table<Arc<Mutex<Option<Removed>>>> = Table::new(Kind::Message);

fn record(member: Arc<Member>, message: Message<'_>) -> unisono_message {
    // SAFETY: a lifetime only: the message is dropped before its communicator, which it is recorded with.
    let message = unsafe { core::mem::transmute::<Message<'_>, Message<'static>>(message) };
    MESSAGES.insert(Arc::new(Mutex::new(Some(Removed { message, _member: member }))))
}

/// Waits for a message as `unisono_probe`, and removes it. `status` may be NULL.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_matched_probe(
    communicator: unisono_communicator,
    source: u32,
    tag: u32,
    message: *mut unisono_message,
    status: *mut unisono_status,
) -> unisono_result {
    call(|| {
        check(message, "message")?;
        let member = member(communicator)?;
        let found = member.communicator().matched_probe(self::source(source), self::tag(tag))?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store_status(status, found.status()) }?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(message, "message", record(Arc::clone(&member), found)) }
    })
}

/// As `unisono_immediate_probe`, and removes the message.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_immediate_matched_probe(
    communicator: unisono_communicator,
    source: u32,
    tag: u32,
    found: *mut bool,
    message: *mut unisono_message,
    status: *mut unisono_status,
) -> unisono_result {
    call(|| {
        check(found, "found")?;
        check(message, "message")?;
        let member = member(communicator)?;
        let probed = member.communicator().immediate_matched_probe(self::source(source), self::tag(tag))?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(found, "found", probed.is_some()) }?;
        let Some(probed) = probed else { return Ok(()) };
        // SAFETY: the caller answers for the pointer.
        unsafe { store_status(status, probed.status()) }?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(message, "message", record(Arc::clone(&member), probed)) }
    })
}

/// Receives a message that a matched probe has removed. Its handle is freed. `status` may be NULL.
///
/// # Safety
/// As of `unisono_receive`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_receive_message(
    message: unisono_message,
    buffer: *mut c_void,
    count: usize,
    datatype: unisono_datatype,
    status: *mut unisono_status,
) -> unisono_result {
    call(|| {
        // SAFETY: the caller answers for the buffer.
        let (mut view, _) = unsafe { Buffer { start: buffer, count, datatype }.view_mut() }?;
        let removed = MESSAGES.remove(message)?.lock().take();
        let Some(Removed { message, _member }) = removed else { return Ok(()) };
        let received = message.receive_into(&mut view)?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store_status(status, received) }
    })
}
