//! What a scope has lent on one communicator.
//!
//! Any thread begins and ends requests. Each of these calls has the World's lock, so that the same lock guards the ledger, too: what
//! is lent is noted before anyone else can end it, and struck out in the turn that takes its memory back.

use super::Communicator;
use super::collective::Begun;
use super::lock::Beside;
use super::process::{Outcome, Process};
use super::progress::{Awaits, Started};
use super::request::{Failure, Status};

/// All that one scope has lent on this communicator.
pub(super) struct Ledger<'env> {
    pub(super) communicator: &'env Communicator,
    entries: Beside<Entries>,
}

#[derive(Default)]
struct Entries {
    /// Those that have ended are `None`.
    started: Vec<Option<Started>>,
    free: Vec<usize>,
    begun: Begun,
}

/// A request, and where it is noted. There is one of each, so that nobody waits for it twice.
pub(super) struct Lent {
    place: usize,
    started: Started,
}

impl<'env> Ledger<'env> {
    pub(super) fn new(communicator: &'env Communicator) -> Self {
        Self { communicator, entries: Beside::default() }
    }

    /// For whoever has the lock, and therefore its process.
    #[inline]
    fn entries<'a>(&'a self, process: &'a mut Process) -> &'a mut Entries {
        // SAFETY: they are reached here alone, under the lock of this communicator's World.
        unsafe { self.communicator.shared.beside(process, &self.entries) }
    }

    /// Notes a request.
    #[inline]
    pub(super) fn lend(&self, process: &mut Process, started: Started) -> Lent {
        let Entries { started: all, free, .. } = self.entries(process);
        if let Some(place) = free.pop()
            && let Some(entry) = all.get_mut(place)
        {
            *entry = Some(started);
            return Lent { place, started };
        }
        all.push(Some(started));
        Lent { place: all.len() - 1, started }
    }

    #[inline]
    fn strike_out(&self, process: &mut Process, place: usize) {
        let Entries { started, free, .. } = self.entries(process);
        if started.get_mut(place).and_then(Option::take).is_some() {
            free.push(place);
        }
    }

    /// How a request has ended, if it has: then its memory is its owner's again.
    #[inline]
    fn take_ended(&self, process: &mut Process, lent: &Lent) -> Option<Result<Status, Failure>> {
        let ended = process.take_ended(&lent.started)?;
        self.strike_out(process, lent.place);
        Some(ended)
    }

    /// Waits for a request.
    pub(super) fn wait(&self, lent: &Lent) -> Result<Status, Failure> {
        let ended = self.communicator.shared.wait(&lent.started, |process| self.take_ended(process, lent));
        self.communicator.ended(&lent.started, ended)
    }

    /// Makes progress once; tells whether and how the request has ended, and strikes it out if so.
    pub(super) fn test(&self, lent: &Lent) -> Option<Result<Status, Failure>> {
        let ended = self.communicator.shared.test(&lent.started, |process| self.take_ended(process, lent))?;
        Some(self.communicator.ended(&lent.started, ended))
    }

    /// Makes progress once; tells whether the request has ended.
    pub(super) fn is_done(&self, lent: &Lent) -> bool {
        self.communicator.shared.is_done(&lent.started)
    }

    /// Takes a receive back, and strikes it out, if it has met no message.
    pub(super) fn cancel(&self, lent: &Lent) -> bool {
        let mut process = self.communicator.shared.lock();
        let cancelled = process.cancel(lent.started.request, lent.started.region);
        if cancelled {
            self.strike_out(&mut process, lent.place);
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

    /// Takes out all that is left.
    pub(super) fn close(&self) -> (Vec<Started>, Begun) {
        let mut process = self.communicator.shared.lock();
        let Entries { started, begun, .. } = core::mem::take(self.entries(&mut process));
        (started.into_iter().flatten().collect(), begun)
    }
}
