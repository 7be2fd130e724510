//! Requests and statuses: starting, waiting, testing, cancelling, and requests of the program's own.

use core::ffi::{c_int, c_void};

use crate::abi::*;
use crate::calls::point_to_point::report;
use crate::calls::{give, give_count, list, list_mut};
use crate::datatype::Datatype;
use crate::error::{Outcome, finish, raise_anywhere, raise_on};
use crate::handle::{Object, release, resolve};
use crate::request::{Activity, COMPLETED, General, Report, Request};
use crate::sent::message_of;

fn raised(outcome: Outcome, comm: Option<&Object<crate::communicator::Comm>>) -> c_int {
    match (outcome, comm) {
        (Ok(()), _) => MPI_SUCCESS,
        (Err(code), Some(comm)) => raise_on(comm, code),
        (Err(code), None) => raise_anywhere(code),
    }
}

/// The request that a handle names; of a [sent message](crate::sent), one that has ended.
unsafe fn named<'a>(handle: MPI_Request) -> Outcome<&'a Object<Request>> {
    let handle = if message_of(handle).is_some() { COMPLETED } else { handle };
    // SAFETY: the contract of this module.
    unsafe { resolve::<Request>(handle.0) }
}

/// A request of a list; `None`: there is nothing to wait for.
unsafe fn active<'a>(handle: MPI_Request) -> Outcome<Option<&'a Object<Request>>> {
    if handle == MPI_REQUEST_NULL {
        return Ok(None);
    }
    // SAFETY: the contract of this module.
    let request = unsafe { named(handle) }?;
    Ok(Some(request).filter(|request| handle == COMPLETED || request.is_active()))
}

/// The result of a request that has ended, whose handle is freed unless it is persistent.
unsafe fn collect(handle: &mut MPI_Request, ended: Report) -> Report {
    if *handle == COMPLETED {
        *handle = MPI_REQUEST_NULL;
        return ended;
    }
    // SAFETY: the contract of this module.
    let is_persistent = unsafe { resolve::<Request>(handle.0) }.is_ok_and(|request| request.is_persistent());
    if !is_persistent {
        // SAFETY: the contract of this module.
        if let Ok(object) = unsafe { release::<Request>(handle.0) } {
            Request::recycle(object);
        }
        *handle = MPI_REQUEST_NULL;
    }
    ended
}

const ENDED: Report = Report { outcome: Ok(()), status: MPI_Status::EMPTY, comm: None };

/// The result of a request, if it has ended, or waits for it.
unsafe fn end(handle: &mut MPI_Request, waits: bool) -> Outcome<Option<Report>> {
    if *handle == COMPLETED {
        *handle = MPI_REQUEST_NULL;
        return Ok(Some(ENDED));
    }
    if let Some(message) = message_of(*handle) {
        return Ok(crate::sent::result(message, waits).map(|is_cancelled| {
            crate::sent::forget(message);
            *handle = MPI_REQUEST_NULL;
            Report { status: MPI_Status::cancelled(is_cancelled), ..ENDED }
        }));
    }
    // SAFETY: the contract of this module.
    let Some(request) = (unsafe { active(*handle) })? else { return Ok(Some(ENDED)) };
    let ended = if waits { Some(request.wait()) } else { request.test() };
    // SAFETY: the contract of this module.
    Ok(ended.map(|ended| unsafe { collect(handle, ended) }))
}

pub(crate) unsafe fn wait(request: *mut MPI_Request, status: *mut MPI_Status) -> c_int {
    // SAFETY: the contract of this module.
    let Some(handle) = (unsafe { request.as_mut() }) else { return finish(Err(MPI_ERR_ARG)) };
    // SAFETY: the contract of this module.
    match unsafe { end(handle, true) } {
        Ok(Some(ended)) => {
            // SAFETY: the contract of this module.
            unsafe { report(status, ended.status) };
            raised(ended.outcome, ended.comm.as_deref())
        }
        Ok(None) => MPI_SUCCESS,
        Err(code) => raise_anywhere(code),
    }
}

pub(crate) unsafe fn test(request: *mut MPI_Request, flag: *mut c_int, status: *mut MPI_Status) -> c_int {
    // SAFETY: the contract of this module.
    let Some(handle) = (unsafe { request.as_mut() }) else { return finish(Err(MPI_ERR_ARG)) };
    // SAFETY: the contract of this module.
    let ended = match unsafe { end(handle, false) } {
        Ok(ended) => ended,
        Err(code) => return raise_anywhere(code),
    };
    // SAFETY: the contract of this module.
    if let Err(code) = unsafe { give(flag, ended.is_some().into()) } {
        return raise_anywhere(code);
    }
    ended.map_or(MPI_SUCCESS, |ended| {
        // SAFETY: the contract of this module.
        unsafe { report(status, ended.status) };
        raised(ended.outcome, ended.comm.as_deref())
    })
}

/// Writes a status of a list, with its error.
unsafe fn report_at(statuses: *mut MPI_Status, at: usize, status: MPI_Status, outcome: Outcome) {
    if !statuses.is_null() {
        let error = outcome.err().unwrap_or(MPI_SUCCESS);
        // SAFETY: the program promises as many statuses as requests.
        unsafe { statuses.add(at).write(MPI_Status { error, ..status }) };
    }
}

pub(crate) unsafe fn waitall(count: c_int, requests: *mut MPI_Request, statuses: *mut MPI_Status) -> c_int {
    // SAFETY: the contract of this module.
    let handles = match unsafe { list_mut(requests, count.into()) } {
        Ok(handles) => handles,
        Err(code) => return raise_anywhere(code),
    };
    let (mut failed, mut comm) = (Ok(()), None);
    let mut results: Vec<(usize, MPI_Status, Outcome)> = Vec::new();
    for (at, handle) in handles.iter_mut().enumerate() {
        // SAFETY: the contract of this module.
        let (status, outcome) = match unsafe { end(handle, true) } {
            Ok(Some(ended)) => {
                if ended.outcome.is_err() {
                    comm = comm.or(ended.comm);
                }
                (ended.status, ended.outcome)
            }
            Ok(None) => (MPI_Status::EMPTY, Ok(())),
            Err(code) => (MPI_Status::EMPTY, Err(code)),
        };
        if outcome.is_err() {
            failed = Err(MPI_ERR_IN_STATUS);
            results.push((at, status, outcome));
        } else if failed.is_err() {
            results.push((at, status, outcome));
        }
        if !statuses.is_null() {
            // SAFETY: the contract of this module; errors are written only where there is one.
            unsafe { report(statuses.add(at), status) };
        }
    }
    if failed.is_err() {
        for at in 0..handles.len() {
            let found = results.iter().find(|(other, ..)| *other == at);
            if !statuses.is_null() {
                let error = found.and_then(|(.., outcome)| outcome.err()).unwrap_or(MPI_SUCCESS);
                // SAFETY: the contract of this module.
                unsafe { (*statuses.add(at)).error = error };
            }
        }
    }
    raised(failed, comm.as_deref())
}

pub(crate) unsafe fn testall(
    count: c_int,
    requests: *mut MPI_Request,
    flag: *mut c_int,
    statuses: *mut MPI_Status,
) -> c_int {
    // SAFETY: the contract of this module.
    let all = match unsafe { list(requests, count.into()) } {
        Ok(handles) => handles,
        Err(code) => return raise_anywhere(code),
    };
    let mut are_done = true;
    for handle in all {
        if let Some(message) = message_of(*handle) {
            are_done &= crate::sent::result(message, false).is_some();
            continue;
        }
        // SAFETY: the contract of this module.
        match unsafe { active(*handle) } {
            Ok(request) => are_done &= request.is_none_or(|request| request.is_done()),
            Err(code) => return raise_anywhere(code),
        }
    }
    // SAFETY: the contract of this module.
    if let Err(code) = unsafe { give(flag, are_done.into()) } {
        return raise_anywhere(code);
    }
    if !are_done {
        crate::job::progress();
        return MPI_SUCCESS;
    }
    // SAFETY: the contract of this module.
    unsafe { waitall(count, requests, statuses) }
}

/// The first request that has ended, with its result. `Err(None)`: none is active.
unsafe fn any(handles: &mut [MPI_Request], first: usize) -> Outcome<Result<Option<(usize, Report)>, ()>> {
    let mut is_active = false;
    let number = handles.len();
    for step in 0..number {
        let at = (first + step) % number;
        let Some(handle) = handles.get_mut(at) else { continue };
        // SAFETY: the contract of this module.
        if unsafe { active(*handle) }?.is_none() {
            continue;
        }
        is_active = true;
        // SAFETY: the contract of this module.
        if let Some(ended) = unsafe { end(handle, false) }? {
            return Ok(Ok(Some((at, ended))));
        }
    }
    Ok(if is_active { Ok(None) } else { Err(()) })
}

/// Waits until one of the requests may have ended.
unsafe fn wait_for_one(handles: &[MPI_Request]) {
    let (mut requests, mut collectives, mut is_plain) = (Vec::new(), Vec::new(), true);
    for handle in handles {
        // SAFETY: the contract of this module.
        if let Ok(Some(request)) = unsafe { active(*handle) } {
            is_plain &= request.add_to(&mut requests, &mut collectives);
        }
    }
    match crate::communicator::world_communicator() {
        Some(world) if is_plain && requests.len() + collectives.len() > 0 => {
            world.library().raw_wait_for_one(&requests, &collectives);
        }
        _ => crate::job::progress(),
    }
}

pub(crate) unsafe fn waitany(
    count: c_int,
    requests: *mut MPI_Request,
    index: *mut c_int,
    status: *mut MPI_Status,
) -> c_int {
    // SAFETY: the contract of this module.
    let handles = match unsafe { list_mut(requests, count.into()) } {
        Ok(handles) => handles,
        Err(code) => return raise_anywhere(code),
    };
    loop {
        // SAFETY: the contract of this module.
        let (at, ended) = match unsafe { any(handles, 0) } {
            Ok(Ok(Some((at, ended)))) => (at as c_int, ended),
            Ok(Ok(None)) => {
                // SAFETY: the contract of this module.
                unsafe { wait_for_one(handles) };
                continue;
            }
            Ok(Err(())) => (MPI_UNDEFINED, ENDED),
            Err(code) => return raise_anywhere(code),
        };
        // SAFETY: the contract of this module.
        if let Err(code) = unsafe { give(index, at) } {
            return raise_anywhere(code);
        }
        // SAFETY: the contract of this module.
        unsafe { report(status, ended.status) };
        return raised(ended.outcome, ended.comm.as_deref());
    }
}

pub(crate) unsafe fn testany(
    count: c_int,
    requests: *mut MPI_Request,
    index: *mut c_int,
    flag: *mut c_int,
    status: *mut MPI_Status,
) -> c_int {
    // SAFETY: the contract of this module.
    let found = unsafe { list_mut(requests, count.into()).and_then(|handles| any(handles, 0)) };
    let (at, is_over, ended) = match found {
        Ok(Ok(Some((at, ended)))) => (at as c_int, true, ended),
        Ok(Ok(None)) => (MPI_UNDEFINED, false, ENDED),
        Ok(Err(())) => (MPI_UNDEFINED, true, ENDED),
        Err(code) => return raise_anywhere(code),
    };
    // SAFETY: the contract of this module.
    if let Err(code) = unsafe { give(index, at).and(give(flag, is_over.into())) } {
        return raise_anywhere(code);
    }
    if is_over {
        // SAFETY: the contract of this module.
        unsafe { report(status, ended.status) };
    }
    raised(ended.outcome, ended.comm.as_deref())
}

/// Collects all requests that have ended, of which there is at least one if `waits`.
unsafe fn some(
    count: c_int,
    requests: *mut MPI_Request,
    number: *mut c_int,
    indices: *mut c_int,
    statuses: *mut MPI_Status,
    waits: bool,
) -> c_int {
    // SAFETY: the contract of this module.
    let handles = match unsafe { list_mut(requests, count.into()) } {
        Ok(handles) => handles,
        Err(code) => return raise_anywhere(code),
    };
    let (mut found, mut is_active, mut failed, mut comm) = (0, false, Ok(()), None);
    loop {
        for (at, handle) in handles.iter_mut().enumerate() {
            // SAFETY: the contract of this module.
            match unsafe { active(*handle) } {
                Ok(None) => continue,
                Ok(Some(_)) => is_active = true,
                Err(code) => return raise_anywhere(code),
            }
            // SAFETY: the contract of this module.
            let ended = match unsafe { end(handle, false) } {
                Ok(Some(ended)) => ended,
                Ok(None) => continue,
                Err(code) => return raise_anywhere(code),
            };
            if ended.outcome.is_err() {
                failed = Err(MPI_ERR_IN_STATUS);
                comm = comm.or(ended.comm);
            }
            // SAFETY: the program promises as many indices as requests.
            unsafe { indices.add(found).write(at as c_int) };
            // SAFETY: the contract of this module.
            unsafe { report_at(statuses, found, ended.status, ended.outcome) };
            found += 1;
        }
        if found > 0 || !is_active || !waits {
            break;
        }
        // SAFETY: the contract of this module.
        unsafe { wait_for_one(handles) };
    }
    let number_found = if is_active { found as c_int } else { MPI_UNDEFINED };
    // SAFETY: the contract of this module.
    if let Err(code) = unsafe { give(number, number_found) } {
        return raise_anywhere(code);
    }
    raised(failed, comm.as_deref())
}

pub(crate) unsafe fn waitsome(
    count: c_int,
    requests: *mut MPI_Request,
    number: *mut c_int,
    indices: *mut c_int,
    statuses: *mut MPI_Status,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { some(count, requests, number, indices, statuses, true) }
}

pub(crate) unsafe fn testsome(
    count: c_int,
    requests: *mut MPI_Request,
    number: *mut c_int,
    indices: *mut c_int,
    statuses: *mut MPI_Status,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { some(count, requests, number, indices, statuses, false) }
}

/// The status of a request that has ended, which stays as it is.
unsafe fn peek(handle: MPI_Request) -> Outcome<Option<MPI_Status>> {
    if let Some(message) = message_of(handle) {
        return Ok(crate::sent::result(message, false).map(MPI_Status::cancelled));
    }
    // SAFETY: the contract of this module.
    Ok(match unsafe { active(handle) }? {
        Some(request) => request.peek(),
        None => Some(MPI_Status::EMPTY),
    })
}

pub(crate) unsafe fn request_get_status(request: MPI_Request, flag: *mut c_int, status: *mut MPI_Status) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        peek(request).and_then(|seen| {
            seen.inspect(|seen| report(status, *seen));
            give(flag, seen.is_some().into())
        })
    })
}

pub(crate) unsafe fn request_get_status_all(
    count: c_int,
    requests: *const MPI_Request,
    flag: *mut c_int,
    statuses: *mut MPI_Status,
) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let seen: Vec<_> =
                list(requests, count.into())?.iter().map(|handle| peek(*handle)).collect::<Outcome<_>>()?;
            let are_done = seen.iter().all(Option::is_some);
            for (at, seen) in seen.iter().enumerate().filter(|_| are_done && !statuses.is_null()) {
                report(statuses.add(at), seen.unwrap_or(MPI_Status::EMPTY));
            }
            give(flag, are_done.into())
        })()
    })
}

pub(crate) unsafe fn request_get_status_any(
    count: c_int,
    requests: *const MPI_Request,
    index: *mut c_int,
    flag: *mut c_int,
    status: *mut MPI_Status,
) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let mut is_active = false;
            for (at, handle) in list(requests, count.into())?.iter().enumerate() {
                if active(*handle)?.is_none() {
                    continue;
                }
                is_active = true;
                if let Some(seen) = peek(*handle)? {
                    report(status, seen);
                    return give(index, at as c_int).and(give(flag, 1));
                }
            }
            if !is_active {
                report(status, MPI_Status::EMPTY);
            }
            give(index, MPI_UNDEFINED).and(give(flag, (!is_active).into()))
        })()
    })
}

pub(crate) unsafe fn request_get_status_some(
    count: c_int,
    requests: *const MPI_Request,
    number: *mut c_int,
    indices: *mut c_int,
    statuses: *mut MPI_Status,
) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let (mut found, mut is_active) = (0, false);
            for (at, handle) in list(requests, count.into())?.iter().enumerate() {
                if active(*handle)?.is_none() {
                    continue;
                }
                is_active = true;
                if let Some(seen) = peek(*handle)? {
                    indices.add(found).write(at as c_int);
                    if !statuses.is_null() {
                        report(statuses.add(found), seen);
                    }
                    found += 1;
                }
            }
            give(number, if is_active { found as c_int } else { MPI_UNDEFINED })
        })()
    })
}

pub(crate) unsafe fn start(request: *mut MPI_Request) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { startall(1, request) }
}

pub(crate) unsafe fn startall(count: c_int, requests: *mut MPI_Request) -> c_int {
    // SAFETY: the contract of this module.
    let handles = match unsafe { list(requests, count.into()) } {
        Ok(handles) => handles,
        Err(code) => return raise_anywhere(code),
    };
    for handle in handles {
        // SAFETY: the contract of this module.
        let request = match unsafe { named(*handle) } {
            Ok(request) => request,
            Err(code) => return raise_anywhere(code),
        };
        let outcome = request.start();
        if outcome.is_err() {
            return raised(outcome, request.communicator().as_deref());
        }
    }
    MPI_SUCCESS
}

pub(crate) unsafe fn cancel(request: *mut MPI_Request) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let handle = *request.as_ref().ok_or(MPI_ERR_ARG)?;
            match message_of(handle) {
                Some(message) => crate::sent::cancel(message),
                None if handle == COMPLETED => {}
                None => named(handle)?.cancel()?,
            }
            Ok(())
        })()
    })
}

pub(crate) unsafe fn request_free(request: *mut MPI_Request) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let handle = *request.as_ref().ok_or(MPI_ERR_ARG)?;
            let outcome = match message_of(handle) {
                Some(message) => {
                    crate::sent::forget(message);
                    Ok(())
                }
                None if handle == COMPLETED => Ok(()),
                None => Request::discard(release::<Request>(handle.0)?),
            };
            give(request, MPI_REQUEST_NULL)?;
            outcome
        })()
    })
}

pub(crate) unsafe fn grequest_start(
    query: Callback,
    free: Callback,
    cancel: Callback,
    extra: *mut c_void,
    request: *mut MPI_Request,
) -> c_int {
    let made = Request::new(None, Activity::General(General::new(query, free, cancel, extra)));
    // SAFETY: the contract of this module.
    finish(unsafe { give(request, MPI_Request(Object::into_handle(made))) })
}

pub(crate) unsafe fn grequest_complete(request: MPI_Request) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { named(request).and_then(|request| request.complete()) })
}

pub(crate) unsafe fn get_count<C: Count>(status: *const MPI_Status, datatype: MPI_Datatype, count: *mut C) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let (bytes, datatype) = (status.as_ref().ok_or(MPI_ERR_ARG)?.length(), resolve::<Datatype>(datatype.0)?);
            let size = datatype.size.max(0) as u64;
            let elements = match bytes.checked_rem(size) {
                Some(0) => (bytes / size) as i64,
                None if bytes == 0 => 0,
                _ => i64::from(MPI_UNDEFINED),
            };
            give_count(count, elements, MPI_UNDEFINED)
        })()
    })
}

pub(crate) unsafe fn get_elements<C: Count>(status: *const MPI_Status, datatype: MPI_Datatype, count: *mut C) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let (bytes, datatype) = (status.as_ref().ok_or(MPI_ERR_ARG)?.length(), resolve::<Datatype>(datatype.0)?);
            let values = datatype.values_in(bytes).unwrap_or(i64::from(MPI_UNDEFINED));
            give_count(count, values, MPI_UNDEFINED)
        })()
    })
}

pub(crate) unsafe fn get_elements_x(status: *const MPI_Status, datatype: MPI_Datatype, count: *mut MPI_Count) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { get_elements(status, datatype, count) }
}

/// Sets the length that a status reports.
fn set_length(status: &mut MPI_Status, bytes: u64) {
    status.bytes = MPI_Status::new(0, 0, bytes).bytes;
}

pub(crate) unsafe fn status_set_elements<C: Count>(status: *mut MPI_Status, datatype: MPI_Datatype, count: C) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let (status, datatype) = (status.as_mut().ok_or(MPI_ERR_ARG)?, resolve::<Datatype>(datatype.0)?);
            set_length(status, datatype.bytes_of_values(count.get()));
            Ok(())
        })()
    })
}

pub(crate) unsafe fn status_set_elements_x(status: *mut MPI_Status, datatype: MPI_Datatype, count: MPI_Count) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { status_set_elements(status, datatype, count) }
}

macro_rules! fields {
    ($(fn $get:ident fn $set:ident $field:ident;)*) => { $(
        pub(crate) unsafe fn $get(status: *const MPI_Status, value: *mut c_int) -> c_int {
            // SAFETY: the contract of this module.
            finish(unsafe { status.as_ref().ok_or(MPI_ERR_ARG).and_then(|status| give(value, status.$field)) })
        }

        pub(crate) unsafe fn $set(status: *mut MPI_Status, value: c_int) -> c_int {
            // SAFETY: the contract of this module.
            finish(unsafe { status.as_mut().ok_or(MPI_ERR_ARG) }.map(|status| status.$field = value))
        }
    )* };
}

fields! {
    fn status_get_source fn status_set_source source;
    fn status_get_tag fn status_set_tag tag;
    fn status_get_error fn status_set_error error;
    fn test_cancelled fn status_set_cancelled cancelled;
}
