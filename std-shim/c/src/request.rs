//! Requests: what was started, and its completion.

use alloc::sync::Arc;
use core::ops::ControlFlow;

use parking_lot::Mutex;
use unisono::collective::{CollectiveRequest, PersistentRequest};
use unisono::{ExchangeRequest, PersistentExchange, PersistentMessage, Request, Status};

use crate::communicator::Member;
use crate::datatype::{check, list, store};
use crate::handle::{Kind, Table};
use crate::message::unisono_status;
use crate::one_sided::OneSided;
use crate::result::unisono_result::{self, UNISONO_ERROR_UNDER_WAY};
use crate::result::{Error, call};

/// Something that was started. The memory that it uses is the library's until it is complete.
#[allow(non_camel_case_types, reason = "a name of C")]
pub type unisono_request = u64;

/// No request: complete at once, and whenever it is waited for.
pub const UNISONO_REQUEST_NULL: unisono_request = 0;

/// What a request does. It holds its communicator, and is dropped before it.
pub(crate) enum Started {
    Message(Request<'static>),
    Collective(CollectiveRequest<'static>),
    PersistentMessage(PersistentMessage<'static, u8>),
    Persistent(PersistentRequest<'static, u8>),
    Exchange(ExchangeRequest<'static>),
    PersistentExchange(PersistentExchange<'static, u8>),
    OneSided(OneSided),
}

/// A request, while no thread waits for it.
pub(crate) struct Entry {
    /// Dropped before the communicator.
    pub(crate) started: Started,
    pub(crate) member: Option<Arc<Member>>,
}

/// Where a request is, while no thread waits for it.
type Place = Arc<Mutex<Option<Entry>>>;

static REQUESTS: Table<Place> = Table::new(Kind::Request);

/// Records what was started, and returns its handle.
pub(crate) fn insert(started: Started, member: Arc<Member>) -> unisono_request {
    REQUESTS.insert(Arc::new(Mutex::new(Some(Entry { started, member: Some(member) }))))
}

/// As [`insert`], of an operation on a window.
pub(crate) fn insert_one_sided(started: OneSided) -> unisono_request {
    REQUESTS.insert(Arc::new(Mutex::new(Some(Entry { started: Started::OneSided(started), member: None }))))
}

/// How a request ended.
type Ended = Result<Status, Error>;

impl Entry {
    const fn is_persistent(&self) -> bool {
        matches!(self.started, Started::Persistent(_) | Started::PersistentMessage(_) | Started::PersistentExchange(_))
    }

    /// Makes progress once; whether `wait` would return at once.
    fn is_done(&self) -> bool {
        match &self.started {
            Started::Message(request) => request.is_done(),
            Started::Collective(request) => request.is_done(),
            Started::PersistentMessage(request) => request.is_done(),
            Started::Persistent(request) => request.is_done(),
            Started::Exchange(request) => request.is_done(),
            Started::PersistentExchange(request) => request.is_done(),
            Started::OneSided(request) => request.is_done(),
        }
    }

    /// Waits. A persistent one remains.
    fn wait(self) -> (Ended, Option<Self>) {
        let Self { started, member } = self;
        match started {
            Started::Message(request) => (request.wait().map_err(Error::from), None),
            Started::Collective(request) => (request.wait().map(|()| Status::EMPTY).map_err(Error::from), None),
            Started::PersistentMessage(mut request) => {
                let ended = request.wait().map_err(Error::from);
                (ended, Some(Self { started: Started::PersistentMessage(request), member }))
            }
            Started::Persistent(mut request) => {
                let ended = request.wait().map(|()| Status::EMPTY).map_err(Error::from);
                (ended, Some(Self { started: Started::Persistent(request), member }))
            }
            Started::Exchange(request) => (request.wait().map(|()| Status::EMPTY).map_err(Error::from), None),
            Started::PersistentExchange(mut request) => {
                let ended = request.wait().map(|()| Status::EMPTY).map_err(Error::from);
                (ended, Some(Self { started: Started::PersistentExchange(request), member }))
            }
            Started::OneSided(request) => (request.wait().map(|()| Status::EMPTY), None),
        }
    }
}

/// Takes a request out of its place, so that no other thread uses it; `put` puts it back.
fn take(handle: unisono_request) -> Result<(Place, Entry), Error> {
    let place = REQUESTS.get(handle)?;
    let in_use = || Error::new(UNISONO_ERROR_UNDER_WAY, "another thread waits for this request");
    let entry = place.lock().take().ok_or_else(in_use)?;
    Ok((place, entry))
}

/// Stores the status of a receive, or zeros, where the caller wants it, if it does.
unsafe fn store_status(to: *mut unisono_status, status: Status) -> Result<(), Error> {
    if to.is_null() {
        return Ok(());
    }
    // SAFETY: the caller of the exported function answers for the pointer.
    unsafe { store(to, "status", unisono_status::from(status)) }
}

/// Waits for the request at `request`, which is done or not, and sets it to NULL unless it is persistent.
unsafe fn wait_for(request: *mut unisono_request, status: *mut unisono_status) -> Result<(), Error> {
    // SAFETY: the callers check it, and the caller of the exported function answers for it.
    let handle = unsafe { request.read() };
    if handle == UNISONO_REQUEST_NULL {
        // SAFETY: the caller of the exported function answers for the pointer.
        return unsafe { store_status(status, Status::EMPTY) };
    }
    let (place, entry) = take(handle)?;
    let (ended, kept) = entry.wait();
    match kept {
        Some(kept) => *place.lock() = Some(kept),
        None => {
            REQUESTS.remove(handle)?;
            // SAFETY: the callers check it, and the caller of the exported function answers for it.
            unsafe { request.write(UNISONO_REQUEST_NULL) };
        }
    }
    // SAFETY: the caller of the exported function answers for the pointer.
    unsafe { store_status(status, ended?) }
}

/// Whether a request is done. Makes progress once.
fn is_done(handle: unisono_request) -> Result<bool, Error> {
    if handle == UNISONO_REQUEST_NULL {
        return Ok(true);
    }
    let place = REQUESTS.get(handle)?;
    // Another thread waits for it.
    Ok(place.lock().as_ref().is_some_and(Entry::is_done))
}

/// Waits for a request, and frees it and sets `*request` to `UNISONO_REQUEST_NULL` unless it is persistent; also if it
/// failed. `status` may be NULL.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_wait(request: *mut unisono_request, status: *mut unisono_status) -> unisono_result {
    call(|| {
        check(request, "request")?;
        // SAFETY: the caller answers for the pointers.
        unsafe { wait_for(request, status) }
    })
}

/// Makes progress once. If the request is complete, `*done` is true and the rest is as of `unisono_wait`.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_test(
    request: *mut unisono_request,
    done: *mut bool,
    status: *mut unisono_status,
) -> unisono_result {
    call(|| {
        check(request, "request")?;
        check(done, "done")?;
        // SAFETY: the caller answers for the pointer.
        let is_done = is_done(unsafe { request.read() })?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(done, "done", is_done) }?;
        // SAFETY: the caller answers for the pointers.
        if is_done { unsafe { wait_for(request, status) } } else { Ok(()) }
    })
}

/// Withdraws a receive that has matched no message: then `*cancelled` is true, and the request complete.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_cancel(request: unisono_request, cancelled: *mut bool) -> unisono_result {
    call(|| {
        check(cancelled, "cancelled")?;
        let place = REQUESTS.get(request)?;
        let withdrawn = match place.lock().as_ref() {
            Some(Entry { started: Started::Message(request), .. }) => request.cancel(),
            Some(Entry { started: Started::PersistentMessage(request), .. }) => request.cancel(),
            _ => false,
        };
        // SAFETY: the caller answers for the pointer.
        unsafe { store(cancelled, "cancelled", withdrawn) }
    })
}

/// Frees a request and sets `*request` to `UNISONO_REQUEST_NULL`. If it is not complete it is waited for: its memory is
/// the program's afterwards.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_request_free(request: *mut unisono_request) -> unisono_result {
    call(|| {
        check(request, "request")?;
        // SAFETY: the caller answers for the pointer.
        let handle = unsafe { request.read() };
        if handle != UNISONO_REQUEST_NULL {
            let (_, entry) = take(handle)?;
            let ended = entry.wait();
            REQUESTS.remove(handle)?;
            drop(ended);
            // SAFETY: the caller answers for the pointer.
            unsafe { request.write(UNISONO_REQUEST_NULL) };
        }
        Ok(())
    })
}

fn start(handle: unisono_request) -> Result<(), Error> {
    let place = REQUESTS.get(handle)?;
    match place.lock().as_mut() {
        Some(Entry { started: Started::Persistent(request), .. }) => Ok(request.start()?),
        Some(Entry { started: Started::PersistentExchange(request), .. }) => Ok(request.start()?),
        Some(Entry { started: Started::PersistentMessage(request), member: Some(member) }) => {
            request.start()?;
            // SAFETY: the scope is not used after this call, and the entry holds the member.
            unsafe { member.scope() }.flush();
            Ok(())
        }
        Some(_) => Err(Error::argument("the request is not persistent")),
        None => Err(Error::new(UNISONO_ERROR_UNDER_WAY, "another thread waits for this request")),
    }
}

/// Starts a persistent message or collective, which is not under way.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_start(request: unisono_request) -> unisono_result {
    call(|| start(request))
}

/// Starts persistent requests, in order. At the first failure it returns, `*failed` is its index, and the requests from
/// it on are not started; else `*failed` is `count`. `failed` may be NULL.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_start_all(
    count: usize,
    requests: *const unisono_request,
    failed: *mut usize,
) -> unisono_result {
    call(|| {
        // SAFETY: the caller answers for the list.
        let all = unsafe { list(requests, count, "requests") }?;
        let started = all.iter().enumerate().try_for_each(|(i, one)| start(*one).map_err(|error| (i, error)));
        let (index, ended) = match started {
            Ok(()) => (count, Ok(())),
            Err((index, error)) => (index, Err(error)),
        };
        if !failed.is_null() {
            // SAFETY: the caller answers for the pointer.
            unsafe { store(failed, "failed", index) }?;
        }
        ended
    })
}

/// Checks the arguments of a call on several requests.
unsafe fn several(count: usize, requests: *mut unisono_request) -> Result<&'static [unisono_request], Error> {
    // SAFETY: the caller of the exported function answers for the list.
    let all = unsafe { list(requests.cast_const(), count, "requests") }?;
    all.iter().filter(|one| **one != UNISONO_REQUEST_NULL).try_for_each(|one| REQUESTS.get(*one).map(|_| ()))?;
    Ok(all)
}

/// The `i`th status, if the caller wants statuses.
fn nth(statuses: *mut unisono_status, i: usize) -> *mut unisono_status {
    if statuses.is_null() { statuses } else { statuses.wrapping_add(i) }
}

/// Waits for all requests, in order. At the first failure it returns, `*failed` is its index, and the requests after it
/// stay as they are; else `*failed` is `count`. `statuses` and `failed` may be NULL.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_wait_all(
    count: usize,
    requests: *mut unisono_request,
    statuses: *mut unisono_status,
    failed: *mut usize,
) -> unisono_result {
    call(|| {
        // SAFETY: the caller answers for the list.
        unsafe { several(count, requests) }?;
        for i in 0..count {
            // SAFETY: the caller answers for the lists.
            let ended = unsafe { wait_for(requests.wrapping_add(i), nth(statuses, i)) };
            if let Err(error) = ended {
                if !failed.is_null() {
                    // SAFETY: the caller answers for the pointer.
                    unsafe { store(failed, "failed", i) }?;
                }
                return Err(error);
            }
        }
        if failed.is_null() {
            return Ok(());
        }
        // SAFETY: the caller answers for the pointer.
        unsafe { store(failed, "failed", count) }
    })
}

/// Makes progress. If all requests are complete, `*done` is true and the rest is as of `unisono_wait_all`.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_test_all(
    count: usize,
    requests: *mut unisono_request,
    done: *mut bool,
    statuses: *mut unisono_status,
) -> unisono_result {
    call(|| {
        check(done, "done")?;
        // SAFETY: the caller answers for the list.
        let all = unsafe { several(count, requests) }?;
        let are_done = all.iter().try_fold(true, |all, one| Ok::<_, Error>(is_done(*one)? && all))?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(done, "done", are_done) }?;
        // SAFETY: the caller answers for the lists.
        let wait = |i| unsafe { wait_for(requests.wrapping_add(i), nth(statuses, i)) };
        if are_done { (0..count).try_for_each(wait) } else { Ok(()) }
    })
}

/// The first request that is done, waiting for one if `waits`. `None`: none is, or there is none that is not NULL.
fn find_done(all: &[unisono_request], waits: bool) -> Result<Option<usize>, Error> {
    let pending = |one: &unisono_request| *one != UNISONO_REQUEST_NULL;
    loop {
        let found =
            all.iter().enumerate().filter(|(_, one)| pending(one)).try_for_each(|(i, one)| match is_done(*one) {
                Ok(false) => ControlFlow::Continue(()),
                Ok(true) => ControlFlow::Break(Ok(i)),
                Err(error) => ControlFlow::Break(Err(error)),
            });
        match found {
            ControlFlow::Break(found) => return found.map(Some),
            ControlFlow::Continue(()) if !waits || !all.iter().any(pending) => return Ok(None),
            ControlFlow::Continue(()) => std::thread::yield_now(),
        }
    }
}

/// Waits until a request is complete; of several it takes the first. `*index` is its index, and the rest as of
/// `unisono_wait`; `*index` is `count` if all are `UNISONO_REQUEST_NULL`. Persistent requests that are not under way
/// count as complete.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_wait_any(
    count: usize,
    requests: *mut unisono_request,
    index: *mut usize,
    status: *mut unisono_status,
) -> unisono_result {
    call(|| {
        check(index, "index")?;
        // SAFETY: the caller answers for the list.
        let all = unsafe { several(count, requests) }?;
        let found = find_done(all, true)?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(index, "index", found.unwrap_or(count)) }?;
        // SAFETY: the caller answers for the list and the pointer.
        found.map_or(Ok(()), |i| unsafe { wait_for(requests.wrapping_add(i), status) })
    })
}

/// Makes progress. As `unisono_wait_any` if a request is complete, or all are `UNISONO_REQUEST_NULL`: then `*done` is
/// true.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_test_any(
    count: usize,
    requests: *mut unisono_request,
    done: *mut bool,
    index: *mut usize,
    status: *mut unisono_status,
) -> unisono_result {
    call(|| {
        check(done, "done")?;
        check(index, "index")?;
        // SAFETY: the caller answers for the list.
        let all = unsafe { several(count, requests) }?;
        let found = find_done(all, false)?;
        let is_done = found.is_some() || all.iter().all(|one| *one == UNISONO_REQUEST_NULL);
        // SAFETY: the caller answers for the pointer.
        unsafe { store(index, "index", found.unwrap_or(count)) }?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(done, "done", is_done) }?;
        // SAFETY: the caller answers for the list and the pointer.
        found.map_or(Ok(()), |i| unsafe { wait_for(requests.wrapping_add(i), status) })
    })
}

/// Waits until a request is complete, and completes all that are. Stores their indices, and their number; 0 if all are
/// `UNISONO_REQUEST_NULL`. `statuses` are in the order of `indices`, and may be NULL.
///
/// # Safety
/// As of all functions; `indices` and `statuses` have room for `count`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_wait_some(
    count: usize,
    requests: *mut unisono_request,
    completed: *mut usize,
    indices: *mut usize,
    statuses: *mut unisono_status,
) -> unisono_result {
    call(|| {
        check(completed, "completed")?;
        // SAFETY: the caller answers for the list.
        let all = unsafe { several(count, requests) }?;
        if count > 0 {
            check(indices, "indices")?;
        }
        let mut found = 0;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(completed, "completed", 0) }?;
        let Some(first) = find_done(all, true)? else { return Ok(()) };
        for i in first..count {
            // SAFETY: the caller answers for the list.
            let handle = unsafe { requests.wrapping_add(i).read() };
            if handle == UNISONO_REQUEST_NULL || i != first && !is_done(handle)? {
                continue;
            }
            // SAFETY: the caller answers for room for `count`.
            unsafe { indices.wrapping_add(found).write(i) };
            // SAFETY: the caller answers for the lists.
            unsafe { wait_for(requests.wrapping_add(i), nth(statuses, found)) }?;
            found += 1;
            // SAFETY: the caller answers for the pointer.
            unsafe { store(completed, "completed", found) }?;
        }
        Ok(())
    })
}

/// Whether a request is persistent.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_is_persistent(request: unisono_request, persistent: *mut bool) -> unisono_result {
    call(|| {
        let place = REQUESTS.get(request)?;
        let is_persistent = place.lock().as_ref().is_some_and(Entry::is_persistent);
        // SAFETY: the caller answers for the pointer.
        unsafe { store(persistent, "persistent", is_persistent) }
    })
}
