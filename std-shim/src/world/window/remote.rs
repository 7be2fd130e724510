//! Operations on ranks that requests reach: how they are started and awaited, and how they end.

use unisono_core::rma::operation::RmaRequest;
use unisono_core::rma::region::Refusal;
use unisono_core::rma::{RemoteSpan, RmaError};
use unisono_core::span::Span;

use super::WindowError;
use super::targets::Targets;
use crate::world::process::Process;
use crate::world::process::remote_access::{CallEnd, CallMemory, CallResult, StartError};
use crate::world::progress::WaitFor;
use crate::world::request::Failure;
use unisono_bootstrap::Rank;

impl Targets {
    /// Starts an operation that sends a copy of `bytes`.
    pub(super) fn start(
        &self,
        there: Rank,
        at: RemoteSpan,
        bytes: &[u8],
        end: CallEnd,
        request: impl Fn(Span) -> RmaRequest,
    ) -> Result<u32, WindowError> {
        self.start_when_room(there, |process| {
            let (memory, span) =
                process.copy_for_remote(bytes).ok_or(StartError::Failed(Failure::ResourceExhausted))?;
            process.start_remote(self.number, there, at, request(span), memory, end)
        })
    }

    /// Starts an operation, after progress if there is no room.
    pub(super) fn start_when_room(
        &self,
        there: Rank,
        mut start: impl FnMut(&mut Process) -> Result<u32, StartError>,
    ) -> Result<u32, WindowError> {
        let shared = &self.communicator.shared;
        let started = shared.wait_until(WaitFor::Rank(there), |process| match start(process) {
            Err(StartError::Full) => None,
            Err(StartError::Failed(failure)) => Some(Err(failure)),
            Ok(request) => Some(Ok(request)),
        });
        Ok(started.map_err(|failure| self.communicator.local_failure(failure))?)
    }

    /// Waits for an operation.
    pub(super) fn wait(&self, request: u32, target: Rank, there: Rank) -> Result<u64, WindowError> {
        let ended = self.communicator.shared.wait_until(WaitFor::Rank(there), |process| process.take_remote(request));
        self.result(ended, target)
    }

    pub(super) fn result(&self, ended: CallResult, target: Rank) -> Result<u64, WindowError> {
        ended.map_err(|failure| self.communicator.local_failure(failure))?.map_err(|error| self.error(error, target))
    }

    /// As [`result`](Self::result), for the holder of the lock.
    pub(super) fn result_locked(&self, process: &Process, ended: CallResult, target: Rank) -> Result<u64, WindowError> {
        let local = |failure| self.communicator.local_failure_locked(process, failure);
        ended.map_err(local)?.map_err(|error| self.error(error, target))
    }

    pub(super) fn error(&self, error: RmaError, target: Rank) -> WindowError {
        match error {
            RmaError::PeerFailed | RmaError::Truncated => WindowError::Failed(Failure::PeerFailed(target)),
            RmaError::Partial => WindowError::Partial(target),
            RmaError::Unknown => WindowError::Unknown(target),
            RmaError::Refused(reason) | RmaError::RefusedEarlier { reason, .. } => refused(reason, target),
        }
    }

    pub(super) fn get_remote(
        &self,
        into: &mut [u8],
        target: Rank,
        there: Rank,
        at: RemoteSpan,
    ) -> Result<(), WindowError> {
        let started = self.start_when_room(there, |process| {
            // SAFETY: the buffer is borrowed until `wait` has returned.
            let span = unsafe { process.register_for_remote(into) };
            let span = span.ok_or(StartError::Failed(Failure::ResourceExhausted))?;
            let memory = CallMemory::User(span.region, None);
            let request = RmaRequest::Read { into: span, stride: None };
            process.start_remote(self.number, there, at, request, memory, CallEnd::Request)
        })?;
        self.wait(started, target, there).map(|_| ())
    }

    pub(super) fn fetch_remote(
        &self,
        bytes: &[u8],
        into: &mut [u8],
        target: Rank,
        there: Rank,
        at: RemoteSpan,
        request: impl Fn(Span, Span) -> RmaRequest,
    ) -> Result<(), WindowError> {
        let started = self.start_when_room(there, |process| {
            let exhausted = StartError::Failed(Failure::ResourceExhausted);
            let (cell, from) = match process.copy_for_remote(bytes).ok_or(exhausted)? {
                (CallMemory::Cell(cell), from) => (cell, from),
                (memory, _) => {
                    // All bounce buffers are in use.
                    process.release_call_memory(memory);
                    return Err(StartError::Full);
                }
            };
            // SAFETY: the buffer is borrowed until `wait` has returned.
            let Some(span) = (unsafe { process.register_for_remote(into) }) else {
                process.release_call_memory(CallMemory::Cell(cell));
                return Err(exhausted);
            };
            let memory = CallMemory::User(span.region, Some(cell));
            process.start_remote(self.number, there, at, request(from, span), memory, CallEnd::Request)
        })?;
        self.wait(started, target, there).map(|_| ())
    }

    pub(super) fn flush_remote(&self, target: Rank, there: Rank, base: RemoteSpan) -> Result<(), WindowError> {
        let shared = &self.communicator.shared;
        let (mut has_written, is_pending) = shared.lock().flush_state(self.number, there);
        if !has_written && !is_pending {
            self.make_progress(true);
        }
        let mut is_last = false;
        let error = loop {
            if has_written {
                let started = self.start_when_room(there, |process| {
                    let (request, memory) = (RmaRequest::Flush, CallMemory::Nothing);
                    process.start_remote(self.number, there, base, request, memory, CallEnd::Request)
                })?;
                self.wait(started, target, there)?;
            }
            let ended = shared.wait_until(WaitFor::Rank(there), |process| {
                let (has_written, is_pending) = process.flush_state(self.number, there);
                let is_confirmed = is_last || !has_written;
                let end = |process: &mut Process| (process.take_flush_error(self.number, there), process.aborted);
                (!is_pending).then(|| is_confirmed.then(|| end(process)))
            });
            match ended {
                Some(error) => break error,
                // An adapter has left writes to requests meanwhile.
                None => (has_written, is_last) = (true, true),
            }
        };
        match error {
            (_, Some(failure)) => Err(self.communicator.local_failure(failure).into()),
            (Some(error), None) => Err(self.error(error, target)),
            (None, None) => Ok(()),
        }
    }
}

/// A place in the user's part of a window, which begins at `base`.
pub(super) const fn remote_span(base: RemoteSpan, offset: usize) -> RemoteSpan {
    RemoteSpan { region: base.region, offset: base.offset.wrapping_add(offset as u64) }
}

pub(super) const fn refused(reason: Refusal, target: Rank) -> WindowError {
    match reason {
        Refusal::OutOfBounds => WindowError::OutOfBounds(target),
        Refusal::Misaligned => WindowError::Misaligned(target),
        Refusal::Unsupported => WindowError::Unsupported,
        Refusal::BadKey | Refusal::Revoked => WindowError::Revoked(target),
        Refusal::NoRight => WindowError::NoRight(target),
    }
}

pub(super) fn of<R>(result: Result<R, Refusal>, target: Rank) -> Result<R, WindowError> {
    result.map_err(|reason| refused(reason, target))
}
