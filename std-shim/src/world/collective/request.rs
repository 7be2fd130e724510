//! Requests of nonblocking collectives, which borrow buffers and end within a scope.

use core::cell::Cell;
use core::mem::transmute;
use core::ptr::NonNull;

use unisono_shmem::slot_collectives::data_executor::ReductionOp;

use super::arguments::CollectiveArgs;
use super::engine::active_collective::{Outcome, Reducer};
use super::error::CollectiveError;
use super::intra_node::CallMemory;
use crate::world::communicator::Communicator;
use crate::world::process::Process;
use crate::world::progress::WaitFor;
use crate::world::request::Status;
use crate::world::request::any_request::RequestStage;
use crate::world::request::scope_loans::{ScopeCollectives, ScopeLoans};

/// A started collective, or why it was not started.
pub(super) type ImmediateResult<'scope> = Result<CollectiveRequest<'scope>, CollectiveError>;

/// A nonblocking collective. When it is dropped, the collective continues until the scope ends.
#[must_use = "without `wait`, the failure of the collective goes unreported"]
pub struct CollectiveRequest<'scope> {
    loans: &'scope ScopeLoans<'scope>,
    state: Cell<CollectiveState>,
}

/// The state of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CollectiveState {
    /// Its index in the progress table.
    Begun(u32),
    /// It completed at once; its result was not reported yet.
    Completed,
    Reported,
}

impl Communicator {
    /// Starts a collective over messages, which compares the earlier calls with this digest, and records it before any
    /// other thread has the lock.
    ///
    /// # Safety
    /// What `call` and `combine` borrow stays so until the collective has ended: until [`wait_for`](Self::wait_for) has
    /// returned, or [`has_ended`](Self::has_ended) has said so.
    pub(super) unsafe fn begin(
        &self,
        call: CollectiveArgs<'_>,
        digest: u32,
        combine: Box<dyn ReductionOp + Send + '_>,
        note: impl FnOnce(&mut Process, u32),
    ) -> Result<u32, CollectiveError> {
        let address_of = |bytes: NonNull<[u8]>| (bytes.cast::<u8>(), bytes.len());
        let (input, output) = match call.buffers {
            CallMemory::Separate(input, output) => {
                (address_of(NonNull::from(input)), address_of(NonNull::from(output)))
            }
            CallMemory::InPlace(both) => {
                let both = address_of(NonNull::from(both));
                (both, both)
            }
        };
        // SAFETY: a lifetime only; the caller says that the function lives until the collective has ended, and nobody
        // calls it then.
        let mut combine = Some(unsafe { transmute::<Box<dyn ReductionOp + Send + '_>, Reducer>(combine) });
        self.shared.with_process(|process| {
            // SAFETY: the caller promises that what `call` and `combine` borrow stays borrowed until the collective has
            // ended.
            let place = unsafe {
                process.prepare_collective((self.context, false), &call.plan, call.shape, input, output, &mut combine)
            }?;
            process.compare_calls(place, digest);
            process.start_collective(place, self.call())?;
            note(process, place);
            Ok(place)
        })
    }

    /// Waits until a collective has ended.
    pub(super) fn wait_for(&self, begun: u32) -> Result<(), CollectiveError> {
        self.outcome(begun).result()
    }

    /// Waits until all of these have ended. Adds their outcomes to `outcomes`, since dropping the user's functions may
    /// panic.
    pub(in crate::world) fn wait_for_all(&self, mut begun: ScopeCollectives, outcomes: &mut Vec<Outcome>) {
        for one in core::mem::take(&mut begun.under_way) {
            let outcome = self.outcome(one);
            begun.forget(one, outcome.result.is_err());
            outcomes.push(outcome);
        }
        if !begun.persistent.is_empty() {
            let mut process = self.shared.lock();
            outcomes.extend(begun.persistent.into_iter().filter_map(|kept| process.release_collective(kept)));
        }
    }

    fn outcome(&self, begun: u32) -> Outcome {
        self.shared.wait_until(WaitFor::AnyRank, |process| process.outcome(begun))
    }

    /// Makes progress once; returns whether a collective has ended.
    pub(super) fn has_ended(&self, begun: u32) -> bool {
        let mut process = self.shared.lock();
        self.shared.progress(&mut process);
        process.has_ended(begun)
    }
}

impl<'scope> CollectiveRequest<'scope> {
    pub(super) const fn new(loans: &'scope ScopeLoans<'scope>, begun: Option<u32>) -> Self {
        let state = match begun {
            Some(begun) => CollectiveState::Begun(begun),
            None => CollectiveState::Completed,
        };
        Self { loans, state: Cell::new(state) }
    }

    /// Waits for the end; returns `Ok` at once when it was reported before.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// world.scope(|scope| {
    ///     let barrier = scope.immediate_barrier()?;
    ///     // Compute here.
    ///     barrier.wait()
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn wait(self) -> Result<(), CollectiveError> {
        self.finish()
    }

    /// Makes progress once. Returns the result of [`wait`](Self::wait) if the collective has ended. Reports it once:
    /// later calls return `Some(Ok(()))`.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// world.scope(|scope| {
    ///     let barrier = scope.immediate_barrier()?;
    ///     loop {
    ///         // Compute here.
    ///         if let Some(ended) = barrier.test() {
    ///             break ended;
    ///         }
    ///     }
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn test(&self) -> Option<Result<(), CollectiveError>> {
        self.is_done().then(|| self.finish())
    }

    /// Makes progress once; returns whether [`wait`](Self::wait) would return at once.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// world.scope(|scope| {
    ///     let barrier = scope.immediate_barrier()?;
    ///     while !barrier.is_done() {}
    ///     barrier.wait()
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn is_done(&self) -> bool {
        match self.state.get() {
            CollectiveState::Begun(begun) => self.loans.communicator.has_ended(begun),
            CollectiveState::Completed | CollectiveState::Reported => true,
        }
    }

    fn finish(&self) -> Result<(), CollectiveError> {
        let result = match self.state.replace(CollectiveState::Reported) {
            CollectiveState::Begun(begun) => self.loans.wait_for_collective(begun).result(),
            CollectiveState::Completed | CollectiveState::Reported => Ok(()),
        };
        result.map_err(|error| self.loans.communicator.explained(error))
    }

    /// Its place in the progress table, until its end was reported.
    pub(in crate::world) const fn place(&self) -> Option<u32> {
        match self.state.get() {
            CollectiveState::Begun(begun) => Some(begun),
            CollectiveState::Completed | CollectiveState::Reported => None,
        }
    }

    /// The communicator of the request.
    pub(in crate::world) const fn communicator(&self) -> &'scope Communicator {
        self.loans.communicator
    }

    /// The state of the request, for the holder of the lock.
    pub(in crate::world) fn stage(&self, process: &mut Process) -> RequestStage {
        match self.state.get() {
            CollectiveState::Begun(begun) => RequestStage::of_collective(process, begun),
            CollectiveState::Completed => RequestStage::Ended(Ok(Status::EMPTY)),
            CollectiveState::Reported => RequestStage::Reported,
        }
    }

    /// As [`stage`](Self::stage). A collective that has ended counts as reported; what is left of it is added to
    /// `outcomes`.
    pub(in crate::world) fn report(&self, process: &mut Process, outcomes: &mut Vec<Outcome>) -> RequestStage {
        let stage = self.stage(process);
        if matches!(stage, RequestStage::Ended(_))
            && let CollectiveState::Begun(begun) = self.state.replace(CollectiveState::Reported)
        {
            outcomes.extend(self.loans.take_outcome(process, begun));
        }
        stage
    }
}
