//! The user buffers that a scope's requests use on one communicator.
//!
//! Any thread starts and completes requests. Each of these calls holds the World's lock, which therefore guards this
//! table, too: a request is recorded before any other thread can complete it, and released under the same lock as its
//! buffer.

use core::num::NonZeroUsize;

use super::handle::RequestHandle;
use super::{Failure, Status};
use crate::world::collective::engine::active_collective::Outcome;
use crate::world::communicator::Communicator;
use crate::world::process::Process;
use crate::world::progress::WaitFor;
use crate::world::progress::biased_lock::LockedCell;

/// The collectives of a scope.
#[derive(Debug, Default)]
pub(in crate::world) struct ScopeCollectives {
    /// Those whose end was not waited for.
    pub(in crate::world) under_way: Vec<u32>,
    /// Persistent ones.
    pub(in crate::world) persistent: Vec<u32>,
}

impl ScopeCollectives {
    /// Whether none is under way.
    pub(in crate::world) const fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Removes a collective that was waited for, and a persistent one only if it failed.
    pub(in crate::world) fn forget(&mut self, begun: u32, has_failed: bool) {
        self.under_way.retain(|other| *other != begun);
        if has_failed {
            self.persistent.retain(|other| *other != begun);
        }
    }
}

/// All requests of one scope on one communicator.
pub(in crate::world) struct ScopeLoans<'env> {
    pub(in crate::world) communicator: &'env Communicator,
    entries: LockedCell<LoanEntries>,
}

#[derive(Default)]
struct LoanEntries {
    /// `None` where the request has ended.
    handles: Vec<Option<RequestHandle>>,
    free: Vec<usize>,
    collectives: ScopeCollectives,
}

/// The index of a recorded request, counted from 1 on. Only the request holds it, so that nobody waits for it twice.
/// One word, since it is passed on with every request: a struct that is written in parts and read whole stalls the
/// processor (store forwarding).
#[derive(Clone, Copy)]
pub(in crate::world) struct LoanId(NonZeroUsize);

impl LoanId {
    /// The request completed at once and was not recorded; its result was not reported yet.
    pub(in crate::world) const COMPLETED: Self = Self(NonZeroUsize::MAX);

    pub(in crate::world) fn is_completed(&self) -> bool {
        self.0 == Self::COMPLETED.0
    }
}

impl<'env> ScopeLoans<'env> {
    pub(in crate::world) fn new(communicator: &'env Communicator) -> Self {
        Self { communicator, entries: LockedCell::default() }
    }

    /// The entries, for the holder of the lock, and therefore of its process.
    #[inline]
    fn entries<'a>(&'a self, process: &'a mut Process) -> &'a mut LoanEntries {
        // SAFETY: they are reached here alone, under the lock of this communicator's World.
        unsafe { self.communicator.shared.locked_cell(process, &self.entries) }
    }

    /// Records a request.
    #[inline]
    pub(in crate::world) fn record(&self, process: &mut Process, started: RequestHandle) -> LoanId {
        let LoanEntries { handles: all, free, .. } = self.entries(process);
        if let Some(place) = free.pop()
            && let Some(entry) = all.get_mut(place)
        {
            *entry = Some(started);
            return LoanId(NonZeroUsize::MIN.saturating_add(place));
        }
        let place = all.len();
        all.push(Some(started));
        LoanId(NonZeroUsize::MIN.saturating_add(place))
    }

    /// The handle of a request, unless it was released.
    #[inline]
    pub(in crate::world) fn handle(&self, process: &mut Process, LoanId(place): &LoanId) -> Option<RequestHandle> {
        self.entries(process).handles.get(place.get() - 1).copied().flatten()
    }

    #[inline]
    fn release(&self, process: &mut Process, LoanId(place): &LoanId) {
        let LoanEntries { handles: started, free, .. } = self.entries(process);
        let place = place.get() - 1;
        if started.get_mut(place).and_then(Option::take).is_some() {
            free.push(place);
        }
    }

    /// Returns how a request has ended, if it has, and releases it and its buffer. Inlined into its callers: a struct
    /// that is written in parts and read whole stalls the processor (store forwarding).
    #[inline(always)]
    fn take_ended(
        &self,
        process: &mut Process,
        loan: &LoanId,
        started: &RequestHandle,
    ) -> Option<Result<Status, Failure>> {
        let ended = process.take_ended(started)?;
        self.release(process, loan);
        Some(ended)
    }

    /// Returns how a request has ended, if it has; it stays recorded.
    pub(in crate::world) fn peek(&self, process: &mut Process, loan: &LoanId) -> Option<Result<Status, Failure>> {
        let started = self.handle(process, loan)?;
        let ended = process.requests.result(started.request)?;
        Some(self.communicator.request_result_locked(process, &started, ended))
    }

    /// Releases a request if it has ended. Returns whether its buffer is free: it has ended, or is not recorded.
    pub(in crate::world) fn release_if_ended(&self, process: &mut Process, loan: &LoanId) -> bool {
        let started = self.handle(process, loan);
        started.is_none_or(|started| self.take_ended(process, loan, &started).is_some())
    }

    /// Waits for a request.
    #[inline]
    pub(in crate::world) fn wait(&self, loan: &LoanId) -> Result<Status, Failure> {
        let shared = &self.communicator.shared;
        let mut process = shared.lock();
        let Some(started) = self.handle(&mut process, loan) else { return Err(Failure::Finished) };
        let ended = self.take_ended(&mut process, loan, &started);
        drop(process);
        let ended = match ended {
            Some(ended) => ended,
            None => shared.wait_blocking(&started, |process| self.take_ended(process, loan, &started)),
        };
        self.communicator.request_result(&started, ended)
    }

    /// Makes progress once; returns how the request has ended, if it has, and releases it.
    pub(in crate::world) fn test(&self, loan: &LoanId) -> Option<Result<Status, Failure>> {
        let shared = &self.communicator.shared;
        let started = self.handle(&mut shared.lock(), loan)?;
        let ended = shared.test(&started, |process| self.take_ended(process, loan, &started))?;
        Some(self.communicator.request_result(&started, ended))
    }

    /// Makes progress once; returns whether the request has ended.
    pub(in crate::world) fn is_done(&self, loan: &LoanId) -> bool {
        let shared = &self.communicator.shared;
        let started = self.handle(&mut shared.lock(), loan);
        started.is_none_or(|started| shared.is_done(&started))
    }

    /// Cancels a receive that has matched no message, and releases it.
    pub(in crate::world) fn cancel(&self, loan: &LoanId) -> bool {
        let mut process = self.communicator.shared.lock();
        let started = self.handle(&mut process, loan);
        let cancelled = started.is_some_and(|started| process.cancel(started.request, started.region));
        if cancelled {
            self.release(&mut process, loan);
        }
        cancelled
    }

    /// The collectives of the scope.
    pub(in crate::world) fn collectives<'a>(&'a self, process: &'a mut Process) -> &'a mut ScopeCollectives {
        &mut self.entries(process).collectives
    }

    /// Waits for a collective.
    pub(in crate::world) fn wait_for_collective(&self, begun: u32) -> Outcome {
        self.communicator.shared.wait_until(WaitFor::AnyRank, |process| self.take_outcome(process, begun))
    }

    /// Returns how a collective has ended, if it has, and releases it unless it is persistent.
    pub(in crate::world) fn take_outcome(&self, process: &mut Process, begun: u32) -> Option<Outcome> {
        let outcome = process.outcome(begun)?;
        self.collectives(process).forget(begun, outcome.result.is_err());
        Some(outcome)
    }

    /// Removes everything that is left.
    pub(in crate::world) fn close(&self) -> (Vec<RequestHandle>, ScopeCollectives) {
        let mut process = self.communicator.shared.lock();
        let LoanEntries { handles: started, collectives: begun, .. } = core::mem::take(self.entries(&mut process));
        (started.into_iter().flatten().collect(), begun)
    }
}
