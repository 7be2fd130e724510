//! Completion of several requests: wait or test until any, some or all have ended (MPI's multiple completions).
//!
//! Each function takes requests of one World, by reference: of messages and of collectives, started once or persistent
//! ([`AnyRequest`]). It reports the end of each request once, and skips requests that were reported before, also one that
//! is listed twice. Pending requests stay pending. The iterator is evaluated once, at the start of the call.

use alloc::sync::Arc;

use super::any_request::{AnyRequest, RequestRef, RequestStage};
use super::handle::RequestHandle;
use super::{Failure, RequestFailed, Status};
use crate::world::collective::engine::active_collective::Outcome;
use crate::world::process::Process;
use crate::world::progress::{SharedProcess, WaitFor};

/// The index of a request that ended well, and the value that its `wait` would return.
type CompletedRequest = (usize, Status);

/// Waits until one of the requests has ended. Returns its index, counted from 0, and the value that its `wait` would
/// return; `None` when all were reported before, or there are none. Of several that have ended it takes the first in
/// order, so that a request that is always replaced can starve those after it; [`wait_some`] avoids that.
///
/// ```
/// use unisono::{Tag, World, wait_any};
///
/// let world = World::join()?;
/// let mut buffers = [[0_u32; 4]; 3];
/// world.scope(|scope| {
///     let post = |buffer| scope.immediate_receive_returning(buffer, world.rank(), None);
///     let mut requests = buffers.iter_mut().map(|buffer| post(buffer)).collect::<Result<Vec<_>, _>>()?;
///     (0..3).try_for_each(|number| world.send(&[number; 4], world.rank(), Tag(number)))?;
///     while let Some((index, status)) = wait_any(&requests)? {
///         let (_, buffer) = requests.swap_remove(index).wait();
///         assert_eq!(status.tag, Tag(buffer[0]));
///     }
///     Ok::<(), Box<dyn core::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`RequestFailed`]: the request that ended has failed. Another call reports the others.
pub fn wait_any<'a, R: AnyRequest + ?Sized + 'a>(
    requests: impl IntoIterator<Item = &'a R>,
) -> Result<Option<CompletedRequest>, RequestFailed> {
    match Several::of(requests)? {
        Some(several) => several.wait(true, |process, outcomes| several.poll_any(process, outcomes)),
        None => Ok(None),
    }
}

/// Makes progress once. Returns `None` where [`wait_any`] would wait, else its result.
///
/// ```
/// use unisono::prelude::*;
///
/// let world = World::join()?;
/// let mut received = [0_u8];
/// world.scope(|scope| {
///     let receives = [scope.immediate_receive_into(&mut received, None, None)?];
///     assert!(test_any(&receives).is_none());
///     world.send(&[1_u8], world.rank(), Tag(1))?;
///     wait_all(&receives)?;
///     Ok::<(), Error>(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
pub fn test_any<'a, R: AnyRequest + ?Sized + 'a>(
    requests: impl IntoIterator<Item = &'a R>,
) -> Option<Result<Option<CompletedRequest>, RequestFailed>> {
    match Several::of(requests) {
        Ok(Some(several)) => several.test(|process, outcomes| several.poll_any(process, outcomes)),
        Ok(None) => Some(Ok(None)),
        Err(failed) => Some(Err(failed)),
    }
}

/// Waits until at least one of the requests has ended. Returns all that have, in order, each with the value that its
/// `wait` would return; an empty list when all were reported before, or there are none.
///
/// Requests of different kinds are combined as [`AnyRequest`]s:
///
/// ```
/// use unisono::{AnyRequest, Tag, World, wait_some};
///
/// let world = World::join()?;
/// let (sent, mut received) = ([1_u32, 2], [0_u32; 2]);
/// world.scope(|scope| {
///     let receive = scope.immediate_receive_returning(&mut received, world.rank(), Tag(1))?;
///     let send = scope.immediate_send(&sent, world.rank(), Tag(1))?;
///     let all: [&dyn AnyRequest; 2] = [&receive, &send];
///     let mut left = all.len();
///     while left > 0 {
///         left -= wait_some(all)?.len();
///     }
///     assert_eq!(receive.wait().1, sent);
///     Ok::<(), Box<dyn core::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`RequestFailed`]: the first one that failed. Another call reports the others that have ended.
pub fn wait_some<'a, R: AnyRequest + ?Sized + 'a>(
    requests: impl IntoIterator<Item = &'a R>,
) -> Result<Vec<CompletedRequest>, RequestFailed> {
    match Several::of(requests)? {
        Some(several) => several.wait(true, |process, outcomes| several.poll_some(process, outcomes)),
        None => Ok(Vec::new()),
    }
}

/// Makes progress once. Returns `None` where [`wait_some`] would wait, else its result.
///
/// ```
/// use unisono::prelude::*;
///
/// let world = World::join()?;
/// let mut received = [0_u8];
/// world.scope(|scope| {
///     let receives = [scope.immediate_receive_into(&mut received, None, None)?];
///     assert!(test_some(&receives).is_none());
///     world.send(&[1_u8], world.rank(), Tag(1))?;
///     wait_all(&receives)?;
///     Ok::<(), Error>(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
pub fn test_some<'a, R: AnyRequest + ?Sized + 'a>(
    requests: impl IntoIterator<Item = &'a R>,
) -> Option<Result<Vec<CompletedRequest>, RequestFailed>> {
    match Several::of(requests) {
        Ok(Some(several)) => several.test(|process, outcomes| several.poll_some(process, outcomes)),
        Ok(None) => Some(Ok(Vec::new())),
        Err(failed) => Some(Err(failed)),
    }
}

/// Waits until all requests have ended, or one has failed. Returns the values that their `wait` would return, in order.
///
/// ```
/// use unisono::{Status, Tag, World, wait_all};
///
/// let world = World::join()?;
/// let (sent, mut received) = ([1_u32, 2], [0_u32; 2]);
/// world.scope(|scope| {
///     let receive = scope.immediate_receive_into(&mut received, world.rank(), Tag(1))?;
///     let send = scope.immediate_send(&sent, world.rank(), Tag(1))?;
///     let statuses = wait_all([&receive, &send])?;
///     assert_eq!((statuses[0].bytes, statuses[1]), (8, Status::EMPTY));
///     Ok::<(), Box<dyn core::error::Error>>(())
/// })?;
/// assert_eq!(received, sent);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`RequestFailed`], at once: the first one that failed. The others can still be waited for; they may need the failure
/// to be handled, as by [`revoke`](crate::world::Communicator::revoke). A send that ended well on a communicator that
/// was revoked since is reported as `Revoked`, together with another failure or when all have ended.
pub fn wait_all<'a, R: AnyRequest + ?Sized + 'a>(
    requests: impl IntoIterator<Item = &'a R>,
) -> Result<Vec<Status>, RequestFailed> {
    match Several::of(requests)? {
        Some(several) => {
            let mut all = several.poll_all();
            several.wait(false, |process, outcomes| all.poll(process, outcomes))
        }
        None => Ok(Vec::new()),
    }
}

/// Makes progress once. Returns `None` where [`wait_all`] would wait, else its result.
///
/// ```
/// use unisono::prelude::*;
///
/// let world = World::join()?;
/// let mut received = [0_u8];
/// world.scope(|scope| {
///     let receives = [scope.immediate_receive_into(&mut received, None, None)?];
///     assert!(test_all(&receives).is_none());
///     world.send(&[1_u8], world.rank(), Tag(1))?;
///     wait_all(&receives)?;
///     Ok::<(), Error>(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
pub fn test_all<'a, R: AnyRequest + ?Sized + 'a>(
    requests: impl IntoIterator<Item = &'a R>,
) -> Option<Result<Vec<Status>, RequestFailed>> {
    match Several::of(requests) {
        Ok(Some(several)) => several.test(|process, outcomes| several.poll_all().poll(process, outcomes)),
        Ok(None) => Some(Ok(Vec::new())),
        Err(failed) => Some(Err(failed)),
    }
}

/// At least one request, all of one World. Collected once, before the lock is taken: the program's iterator may need the
/// lock.
struct Several<'a> {
    requests: Vec<RequestRef<'a>>,
    shared: &'a SharedProcess,
}

/// Repeated checks until all have ended.
struct AllOf<'a> {
    requests: &'a [RequestRef<'a>],
    /// The requests from the first pending one on.
    rest: &'a [RequestRef<'a>],
    /// Number of failures in this process when these requests were last checked for one.
    failures: Option<u64>,
}

/// What is left of the collectives that were reported.
type Outcomes = Vec<Outcome>;

/// A result, or the request that failed.
type Reported<R> = Result<R, RequestFailed>;

impl<'a> Several<'a> {
    fn of<R: AnyRequest + ?Sized + 'a>(requests: impl IntoIterator<Item = &'a R>) -> Reported<Option<Self>> {
        let requests: Vec<RequestRef<'a>> = requests.into_iter().map(R::kind).collect();
        let Some(shared) = requests.first().map(RequestRef::shared) else { return Ok(None) };
        match requests.iter().position(|request| !Arc::ptr_eq(request.shared(), shared)) {
            Some(index) => Err(RequestFailed { index, failure: Failure::OtherWorld.into() }),
            None => Ok(Some(Self { requests, shared })),
        }
    }

    /// Waits until `look` returns a result: when all requests have ended, or any one has.
    fn wait<R>(
        &self,
        any: bool,
        mut look: impl FnMut(&mut Process, &mut Outcomes) -> Option<Reported<R>>,
    ) -> Reported<R> {
        let mut outcomes = Vec::new();
        let mut process = self.shared.lock();
        if let Some(found) = look(&mut process, &mut outcomes) {
            drop(process);
            return self.conclude(outcomes, found);
        }
        let ((under_way, awaits), mut seen) = (self.under_way(&mut process), process.requests.finished());
        let collectives: Vec<u32> = self.requests.iter().filter_map(RequestRef::collective).collect();
        process.record_collective_waits(&collectives, !under_way.is_empty());
        drop(process);
        let found = self.shared.wait_for_several(&under_way, awaits, any, |process| {
            let finished = process.requests.finished();
            if core::mem::replace(&mut seen, finished) == finished {
                return None;
            }
            // Before a collective that has ended leaves its place to another one.
            process.clear_collective_waits(&collectives);
            let found = look(process, &mut outcomes);
            if found.is_none() {
                process.record_collective_waits(&collectives, !under_way.is_empty());
            }
            found
        });
        if !collectives.is_empty() {
            self.shared.wake_progress_thread();
        }
        self.conclude(outcomes, found)
    }

    /// Makes progress once, and checks.
    fn test<R>(&self, look: impl FnOnce(&mut Process, &mut Outcomes) -> Option<Reported<R>>) -> Option<Reported<R>> {
        let mut outcomes = Vec::new();
        let mut process = self.shared.lock();
        self.shared.progress(&mut process);
        if process.is_ack_request_due() {
            let (under_way, _) = self.under_way(&mut process);
            under_way.into_iter().for_each(|started| process.request_ack(started.blocked_on));
        }
        let found = look(&mut process, &mut outcomes);
        drop(process);
        found.map(|found| self.conclude(outcomes, found))
    }

    /// Resumes the panic of a user's reduction function, if one has panicked; else returns the result.
    fn conclude<R>(&self, outcomes: Outcomes, found: Reported<R>) -> Reported<R> {
        for outcome in outcomes {
            // Its error is in `found`.
            let _ = outcome.result();
        }
        found.map_err(|RequestFailed { index, failure }| {
            let failure = self.requests.get(index).map_or(failure, |request| request.explained(failure));
            RequestFailed { index, failure }
        })
    }

    /// The messages that are under way, and what all that is under way depends on.
    fn under_way(&self, process: &mut Process) -> (Vec<RequestHandle>, WaitFor) {
        let mut under_way: Vec<Option<RequestHandle>> = Vec::new();
        for request in &self.requests {
            match (request.stage(process), request) {
                (RequestStage::Pending(_), RequestRef::Exchange(exchange)) => {
                    under_way.extend(exchange.handles(process).into_iter().map(Some));
                }
                (RequestStage::Pending(handle), _) => under_way.push(handle),
                (RequestStage::Ended(_) | RequestStage::Reported, _) => {}
            }
        }
        let awaits = WaitFor::common(under_way.iter().map(|handle| handle.and_then(|handle| handle.peer)));
        (under_way.into_iter().flatten().collect(), awaits)
    }

    fn poll_any(&self, process: &mut Process, outcomes: &mut Outcomes) -> Option<Reported<Option<CompletedRequest>>> {
        let mut is_under_way = false;
        for (index, request) in self.requests.iter().enumerate() {
            match request.report(process, outcomes) {
                RequestStage::Reported => {}
                RequestStage::Pending(_) => is_under_way = true,
                RequestStage::Ended(Ok(status)) => return Some(Ok(Some((index, status)))),
                RequestStage::Ended(Err(failure)) => return Some(Err(RequestFailed { index, failure })),
            }
        }
        if is_under_way { None } else { Some(Ok(None)) }
    }

    fn poll_some(&self, process: &mut Process, outcomes: &mut Outcomes) -> Option<Reported<Vec<CompletedRequest>>> {
        if let Some(failed) = failed(&self.requests, process, outcomes) {
            return Some(Err(failed));
        }
        let (mut is_under_way, mut found) = (false, Vec::new());
        for (index, request) in self.requests.iter().enumerate() {
            match request.report(process, outcomes) {
                RequestStage::Pending(_) => is_under_way = true,
                RequestStage::Ended(Ok(status)) => found.push((index, status)),
                // None has failed.
                RequestStage::Reported | RequestStage::Ended(Err(_)) => {}
            }
        }
        if is_under_way && found.is_empty() { None } else { Some(Ok(found)) }
    }

    fn poll_all(&self) -> AllOf<'_> {
        AllOf { rest: &self.requests, requests: &self.requests, failures: None }
    }
}

impl AllOf<'_> {
    fn poll(&mut self, process: &mut Process, outcomes: &mut Outcomes) -> Option<Reported<Vec<Status>>> {
        let failures = process.requests.failed();
        if self.failures.replace(failures) != Some(failures)
            && let Some(failed) = failed(self.requests, process, outcomes)
        {
            return Some(Err(failed));
        }
        while let Some((request, rest)) = self.rest.split_first() {
            if let RequestStage::Pending(_) = request.stage(process) {
                return None;
            }
            self.rest = rest;
        }
        // A send that ended well may have been dropped by a receiver that has revoked the communicator since.
        if let Some(failed) = failed(self.requests, process, outcomes) {
            return Some(Err(failed));
        }
        let mut tell = |request: &RequestRef<'_>| match request.report(process, outcomes) {
            RequestStage::Ended(Ok(status)) => status,
            _ => Status::EMPTY,
        };
        Some(Ok(self.requests.iter().map(&mut tell).collect()))
    }
}

/// The first request that has failed, which counts as reported.
fn failed(requests: &[RequestRef<'_>], process: &mut Process, outcomes: &mut Outcomes) -> Option<RequestFailed> {
    requests.iter().enumerate().find_map(|(index, request)| match request.stage(process) {
        RequestStage::Ended(Err(failure)) => {
            request.report(process, outcomes);
            Some(RequestFailed { index, failure })
        }
        _ => None,
    })
}
