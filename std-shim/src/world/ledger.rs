//! The user buffers that a scope's requests use on one communicator.
//!
//! Any thread starts and completes requests. Each of these calls holds the World's lock, which therefore guards this
//! table, too: a request is recorded before any other thread can complete it, and released under the same lock as its
//! buffer.

use core::num::NonZeroUsize;

use super::Communicator;
use super::collective::Begun;
use super::lock::Beside;
use super::process::{Outcome, Process};
use super::progress::{Awaits, Started};
use super::request::{Failure, Status};

/// All requests of one scope on one communicator.
pub(super) struct Ledger<'env> {
    pub(super) communicator: &'env Communicator,
    entries: Beside<Entries>,
}

#[derive(Default)]
struct Entries {
    /// `None` where the request has ended.
    started: Vec<Option<Started>>,
    free: Vec<usize>,
    begun: Begun,
}

/// The index of a recorded request, counted from 1 on. Only the request holds it, so that nobody waits for it twice.
/// One word, since it is passed on with every request: a struct that is written in parts and read whole stalls the
/// processor (store forwarding).
#[derive(Clone, Copy)]
pub(super) struct Lent(NonZeroUsize);

impl Lent {
    /// The request completed at once and was not recorded; its result was not reported yet.
    pub(super) const AT_ONCE: Self = Self(NonZeroUsize::MAX);

    pub(super) fn is_at_once(&self) -> bool {
        self.0 == Self::AT_ONCE.0
    }
}

impl<'env> Ledger<'env> {
    pub(super) fn new(communicator: &'env Communicator) -> Self {
        Self { communicator, entries: Beside::default() }
    }

    /// The entries, for the holder of the lock, and therefore of its process.
    #[inline]
    fn entries<'a>(&'a self, process: &'a mut Process) -> &'a mut Entries {
        // SAFETY: they are reached here alone, under the lock of this communicator's World.
        unsafe { self.communicator.shared.beside(process, &self.entries) }
    }

    /// Records a request.
    #[inline]
    pub(super) fn lend(&self, process: &mut Process, started: Started) -> Lent {
        let Entries { started: all, free, .. } = self.entries(process);
        if let Some(place) = free.pop()
            && let Some(entry) = all.get_mut(place)
        {
            *entry = Some(started);
            return Lent(NonZeroUsize::MIN.saturating_add(place));
        }
        let place = all.len();
        all.push(Some(started));
        Lent(NonZeroUsize::MIN.saturating_add(place))
    }

    /// The handle of a request, unless it was released.
    #[inline]
    pub(super) fn started(&self, process: &mut Process, Lent(place): &Lent) -> Option<Started> {
        self.entries(process).started.get(place.get() - 1).copied().flatten()
    }

    #[inline]
    fn strike_out(&self, process: &mut Process, Lent(place): &Lent) {
        let Entries { started, free, .. } = self.entries(process);
        let place = place.get() - 1;
        if started.get_mut(place).and_then(Option::take).is_some() {
            free.push(place);
        }
    }

    /// Returns how a request has ended, if it has, and releases it and its buffer. Inlined into its callers: a struct
    /// that is written in parts and read whole stalls the processor (store forwarding).
    #[inline(always)]
    fn take_ended(&self, process: &mut Process, lent: &Lent, started: &Started) -> Option<Result<Status, Failure>> {
        let ended = process.take_ended(started)?;
        self.strike_out(process, lent);
        Some(ended)
    }

    /// Returns how a request has ended, if it has; it stays recorded.
    pub(super) fn look(&self, process: &mut Process, lent: &Lent) -> Option<Result<Status, Failure>> {
        let started = self.started(process, lent)?;
        let ended = process.requests.result(started.request)?;
        Some(self.communicator.ended_while(process, &started, ended))
    }

    /// Releases a request if it has ended. Returns whether its buffer is free: it has ended, or is not recorded.
    pub(super) fn settle(&self, process: &mut Process, lent: &Lent) -> bool {
        let started = self.started(process, lent);
        started.is_none_or(|started| self.take_ended(process, lent, &started).is_some())
    }

    /// Waits for a request.
    #[inline]
    pub(super) fn wait(&self, lent: &Lent) -> Result<Status, Failure> {
        let shared = &self.communicator.shared;
        let mut process = shared.lock();
        let Some(started) = self.started(&mut process, lent) else { return Err(Failure::Finished) };
        let ended = self.take_ended(&mut process, lent, &started);
        drop(process);
        let ended = match ended {
            Some(ended) => ended,
            None => shared.wait_long(&started, |process| self.take_ended(process, lent, &started)),
        };
        self.communicator.ended(&started, ended)
    }

    /// Makes progress once; returns how the request has ended, if it has, and releases it.
    pub(super) fn test(&self, lent: &Lent) -> Option<Result<Status, Failure>> {
        let shared = &self.communicator.shared;
        let started = self.started(&mut shared.lock(), lent)?;
        let ended = shared.test(&started, |process| self.take_ended(process, lent, &started))?;
        Some(self.communicator.ended(&started, ended))
    }

    /// Makes progress once; returns whether the request has ended.
    pub(super) fn is_done(&self, lent: &Lent) -> bool {
        let shared = &self.communicator.shared;
        let started = self.started(&mut shared.lock(), lent);
        started.is_none_or(|started| shared.is_done(&started))
    }

    /// Cancels a receive that has matched no message, and releases it.
    pub(super) fn cancel(&self, lent: &Lent) -> bool {
        let mut process = self.communicator.shared.lock();
        let started = self.started(&mut process, lent);
        let cancelled = started.is_some_and(|started| process.cancel(started.request, started.region));
        if cancelled {
            self.strike_out(&mut process, lent);
        }
        cancelled
    }

    /// The collectives of the scope.
    pub(super) fn begun<'a>(&'a self, process: &'a mut Process) -> &'a mut Begun {
        &mut self.entries(process).begun
    }

    /// Waits for a collective.
    pub(super) fn outcome(&self, begun: u32) -> Outcome {
        self.communicator.shared.until(Awaits::Anyone, |process| {
            let outcome = process.outcome(begun)?;
            self.begun(process).forget(begun, outcome.result.is_err());
            Some(outcome)
        })
    }

    /// Removes everything that is left.
    pub(super) fn close(&self) -> (Vec<Started>, Begun) {
        let mut process = self.communicator.shared.lock();
        let Entries { started, begun, .. } = core::mem::take(self.entries(&mut process));
        (started.into_iter().flatten().collect(), begun)
    }
}
