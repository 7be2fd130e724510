//! Persistent collectives: the schedule and the memory are set up once, then each is started repeatedly.

mod vector_collectives;

use core::cell::Cell;
use core::marker::PhantomData;
use core::mem::transmute;
use core::num::NonZero;
use core::ptr::NonNull;

use unisono_core::collective::{CollectiveKind, CollectiveSpec};
use unisono_shmem::slot_collectives::data_executor::{NoReduction, ReductionOp};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::arguments::CollectiveArgs;
use super::call_log::CollectiveCall;
use super::engine::active_collective::{Outcome, Reducer};
use super::error::CollectiveError;
use super::intra_node::CallMemory;
use super::operation::Operation;
use super::pack::Layouts;
use super::partition::Shape;
use super::view::{AsView as _, AsViewMut};
use crate::world::communicator::Communicator;
use crate::world::process::Process;
use crate::world::request::Status;
use crate::world::request::any_request::RequestStage;
use crate::world::request::scope::Scope;
use crate::world::request::scope_loans::ScopeLoans;
use unisono_bootstrap::Rank;

/// A collective that can be started any number of times, one after the other. Its buffers are borrowed until the scope
/// ends; between two starts they are accessed through it. All ranks start the same persistent, nonblocking and blocking
/// collectives in the same order. When it is dropped while under way, it continues until the scope ends.
#[must_use = "nothing happens before `start`"]
pub struct PersistentRequest<'scope, T> {
    collective: PersistentCollective<'scope>,
    data: NonNull<[T]>,
    result: NonNull<[T]>,
    buffers: PhantomData<&'scope mut [T]>,
}

/// A persistent collective, without its buffers.
pub struct PersistentCollective<'scope> {
    loans: &'scope ScopeLoans<'scope>,
    kind: PersistentKind,
    call: CollectiveCall,
    state: Cell<PersistentState>,
}

/// What a start does.
enum PersistentKind {
    /// Its index in the progress table.
    Scheduled(u32),
    /// A single rank copies this many bytes.
    SingleRank(Layouts, usize),
}

/// The state of a persistent collective.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PersistentState {
    Idle,
    /// Started, and its end was not reported yet.
    UnderWay,
    /// It has failed, and so does every further start.
    Failed,
}

// SAFETY: it holds exclusive borrows of `T`s, which may be sent where a `T` may. All else of it any thread may use
// under the World's lock, which every method takes.
unsafe impl<T: Send> Send for PersistentRequest<'_, T> {}

/// A persistent collective, or why it cannot be prepared.
type PersistentResult<'scope, T> = Result<PersistentRequest<'scope, T>, CollectiveError>;

impl<'scope, T> PersistentRequest<'scope, T> {
    /// Starts the collective (`MPI_Start`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut sum = [1_u32];
    /// world.scope(|scope| {
    ///     let mut request = scope.persistent_all_reduce_in_place(&mut sum, SystemOperation::sum())?;
    ///     for _ in 0..2 {
    ///         request.start()?;
    ///         request.wait()?;
    ///     }
    ///     Ok::<(), CollectiveError>(())
    /// })?;
    /// assert_eq!(sum, [world.size() * world.size()]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError::UnderWay`]: the previous start was not waited for. Otherwise as of all collectives.
    pub fn start(&mut self) -> Result<(), CollectiveError> {
        let PersistentCollective { loans, kind, call, state } = &self.collective;
        self.expect_idle()?;
        let communicator = loans.communicator;
        communicator.record_open(*call);
        match *kind {
            _ if state.get() == PersistentState::Failed => return communicator.may_begin(),
            PersistentKind::Scheduled(place) => {
                communicator.shared.with_process(|process| {
                    process.start_collective(place, communicator.call())?;
                    loans.collectives(process).under_way.push(place);
                    Ok::<_, CollectiveError>(())
                })?;
                communicator.shared.wake_progress_thread();
            }
            PersistentKind::SingleRank(ref layouts, bytes) => {
                communicator.may_begin()?;
                let of = |buffer: NonNull<[T]>| {
                    NonNull::slice_from_raw_parts(buffer.cast::<u8>(), size_of::<T>() * buffer.len())
                };
                // SAFETY: made of a borrow for 'scope of what is plain bytes; this has no other reference to it now.
                let from = unsafe { of(self.data).as_ref() };
                // SAFETY: made of an exclusive borrow for 'scope of what is plain bytes. Where it is the buffer of
                // `from`, in place, `bytes` is 0 and no reference is made.
                let into = if bytes == 0 { &mut [] } else { unsafe { of(self.result).as_mut() } };
                layouts.copy(from, into, bytes);
            }
        }
        state.set(PersistentState::UnderWay);
        Ok(())
    }

    /// Waits for the end (`MPI_Wait`); returns at once when it is not under way.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// world.scope(|scope| {
    ///     let mut request = scope.persistent_barrier()?;
    ///     request.start()?;
    ///     request.wait()
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn wait(&mut self) -> Result<(), CollectiveError> {
        self.collective.finish()
    }

    /// Makes progress once. Returns the result if the collective has ended, and `Some(Ok(()))` when it is not under
    /// way.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// world.scope(|scope| {
    ///     let mut request = scope.persistent_barrier()?;
    ///     request.start()?;
    ///     loop {
    ///         // Compute here.
    ///         if let Some(ended) = request.test() {
    ///             break ended;
    ///         }
    ///     }
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn test(&mut self) -> Option<Result<(), CollectiveError>> {
        self.is_done().then(|| self.wait())
    }

    /// Makes progress once; returns whether [`wait`](Self::wait) would return at once.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// world.scope(|scope| {
    ///     let mut request = scope.persistent_barrier()?;
    ///     request.start()?;
    ///     while !request.is_done() {}
    ///     request.wait()
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn is_done(&self) -> bool {
        match self.collective.kind {
            PersistentKind::Scheduled(place) => {
                self.expect_idle().is_ok() || self.collective.loans.communicator.has_ended(place)
            }
            PersistentKind::SingleRank(..) => true,
        }
    }

    /// This rank's input, to be written before the next start; in place, also its result. Of a
    /// [`ViewMut`](super::ViewMut) all elements from its first to its last, of a [`PartitionMut`](super::PartitionMut)
    /// the whole buffer.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (mut own, mut sum) = ([0_u32], [0_u32]);
    /// world.scope(|scope| {
    ///     let mut request = scope.persistent_all_reduce_into(&mut own, &mut sum, SystemOperation::sum())?;
    ///     request.data()?[0] = 2;
    ///     request.start()?;
    ///     request.wait()?;
    ///     assert_eq!(request.result()?, [2 * world.size()]);
    ///     Ok::<(), CollectiveError>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError::UnderWay`].
    pub fn data(&mut self) -> Result<&mut [T], CollectiveError> {
        self.expect_idle()?;
        // SAFETY: made of an exclusive borrow for 'scope, which this holds; nobody else uses it between the end and the
        // next start, for which this is borrowed.
        Ok(unsafe { self.data.as_mut() })
    }

    /// This rank's result.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (mut own, mut sum) = ([1_u32], [0_u32]);
    /// world.scope(|scope| {
    ///     let mut request = scope.persistent_all_reduce_into(&mut own, &mut sum, SystemOperation::sum())?;
    ///     request.start()?;
    ///     assert!(request.result().is_err() || world.size() == 1, "it is under way");
    ///     request.wait()?;
    ///     assert_eq!(request.result()?, [world.size()]);
    ///     Ok::<(), CollectiveError>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError::UnderWay`].
    pub fn result(&self) -> Result<&[T], CollectiveError> {
        self.expect_idle()?;
        // SAFETY: made of an exclusive borrow for 'scope, which this holds; nobody writes it between the end and the
        // next start, for which this is borrowed exclusively.
        Ok(unsafe { self.result.as_ref() })
    }

    fn expect_idle(&self) -> Result<(), CollectiveError> {
        if self.collective.state.get() == PersistentState::UnderWay { Err(CollectiveError::UnderWay) } else { Ok(()) }
    }

    /// The collective, without its buffers.
    pub(in crate::world) const fn collective(&self) -> &PersistentCollective<'scope> {
        &self.collective
    }
}

impl<'scope> PersistentCollective<'scope> {
    fn finish(&self) -> Result<(), CollectiveError> {
        if self.state.get() != PersistentState::UnderWay {
            return Ok(());
        }
        let ended = match self.kind {
            // A panic in here leaves it under way: until it has ended its buffers are not the caller's.
            PersistentKind::Scheduled(place) => Some(self.loans.wait_for_collective(place)),
            PersistentKind::SingleRank(..) => None,
        };
        self.record_end(ended.as_ref().is_some_and(|outcome| outcome.result.is_err()));
        ended.map_or(Ok(()), Outcome::result).map_err(|error| self.loans.communicator.explained(error))
    }

    fn record_end(&self, has_failed: bool) {
        self.state.set(if has_failed { PersistentState::Failed } else { PersistentState::Idle });
    }

    /// Its place in the progress table, while it is under way.
    pub(in crate::world) fn place(&self) -> Option<u32> {
        match self.kind {
            PersistentKind::Scheduled(place) if self.state.get() == PersistentState::UnderWay => Some(place),
            PersistentKind::Scheduled(_) | PersistentKind::SingleRank(..) => None,
        }
    }

    /// The communicator of the collective.
    pub(in crate::world) const fn communicator(&self) -> &'scope Communicator {
        self.loans.communicator
    }

    /// The state of the collective, for the holder of the lock.
    pub(in crate::world) fn stage(&self, process: &mut Process) -> RequestStage {
        match self.kind {
            _ if self.state.get() != PersistentState::UnderWay => RequestStage::Reported,
            PersistentKind::Scheduled(place) => RequestStage::of_collective(process, place),
            PersistentKind::SingleRank(..) => RequestStage::Ended(Ok(Status::EMPTY)),
        }
    }

    /// As [`stage`](Self::stage). A collective that has ended counts as reported; what is left of a failed one is added
    /// to `outcomes`.
    pub(in crate::world) fn report(&self, process: &mut Process, outcomes: &mut Vec<Outcome>) -> RequestStage {
        let stage = self.stage(process);
        if let RequestStage::Ended(ended) = &stage {
            self.record_end(ended.is_err());
            if let PersistentKind::Scheduled(place) = self.kind {
                outcomes.extend(self.loans.take_outcome(process, place));
            }
        }
        stage
    }
}

impl Drop for PersistentCollective<'_> {
    fn drop(&mut self) {
        if let (&PersistentKind::Scheduled(place), PersistentState::Idle) = (&self.kind, self.state.get()) {
            let mut process = self.loans.communicator.shared.lock();
            self.loans.collectives(&mut process).persistent.retain(|kept| *kept != place);
            let released = process.release_collective(place);
            drop(process);
            // The user's function may use the World when it is dropped.
            drop(released);
        }
    }
}

/// A call's specification, and where its buffers are.
struct CallOutline {
    plan: CollectiveSpec,
    shape: Shape,
    input: (NonZero<usize>, usize),
    output: (NonZero<usize>, usize),
}

impl CallOutline {
    /// Converts a call, and ends its borrows.
    fn of(call: CollectiveArgs<'_>) -> Self {
        let lies = |bytes: NonNull<[u8]>| (bytes.cast::<u8>().addr(), bytes.len());
        let (input, output) = match call.buffers {
            CallMemory::Separate(input, output) => (lies(NonNull::from(input)), lies(NonNull::from(output))),
            CallMemory::InPlace(both) => {
                let both = lies(NonNull::from(both));
                (both, both)
            }
        };
        Self { plan: call.plan, shape: call.shape, input, output }
    }
}

macro_rules! moving {
    ($($persistent:ident $name:ident $call:ident($($root:ident)?) $data:literal;)*) => { $(
        #[doc = concat!("Prepares [`", stringify!($name), "`](crate::world::Communicator::", stringify!($name), ").")]
        ///
        /// ```
        /// use unisono::prelude::*;
        ///
        /// let (world, root) = (World::join()?, Rank(0));
        #[doc = concat!("let (mut data, mut into) = ", $data, ";")]
        /// world.scope(|scope| {
        #[doc = concat!("    let mut request = scope.", stringify!($persistent), "(&mut data, &mut into" $(, ", ", stringify!($root))?, ")?;")]
        ///     for _ in 0..2 {
        ///         request.start()?;
        ///         request.wait()?;
        ///     }
        ///     Ok::<(), CollectiveError>(())
        /// })?;
        /// # Ok::<(), Error>(())
        /// ```
        ///
        /// # Errors
        /// [`CollectiveError`].
        pub fn $persistent<T>(
            &'scope self,
            data: &'scope mut (impl AsViewMut<T> + ?Sized),
            into: &'scope mut (impl AsViewMut<T> + ?Sized)
            $(, $root: Rank)?
        ) -> PersistentResult<'scope, T>
        where
            T: IntoBytes + FromBytes + Immutable + 'scope,
        {
            let (data, mut into) = (data.as_view_mut(), into.as_view_mut());
            let outline = CallOutline::of(self.communicator().$call(data.as_view(), into.as_view_mut() $(, $root)?)?);
            self.persist(data.whole(), into.whole(), outline, Some(NoReduction))
        }
    )* };
}

macro_rules! combining {
    ($($persistent:ident $name:ident $call:ident($($verb:expr)?; $($root:ident)?) $data:literal;)*) => { $(
        #[doc = concat!("Prepares [`", stringify!($name), "`](crate::world::Communicator::", stringify!($name), ").")]
        ///
        /// ```
        /// use unisono::prelude::*;
        ///
        /// let (world, root) = (World::join()?, Rank(0));
        #[doc = concat!("let (mut data, mut into) = ", $data, ";")]
        /// world.scope(|scope| {
        #[doc = concat!("    let mut request = scope.", stringify!($persistent), "(&mut data, &mut into, SystemOperation::sum()" $(, ", ", stringify!($root))?, ")?;")]
        ///     for _ in 0..2 {
        ///         request.start()?;
        ///         request.wait()?;
        ///     }
        ///     Ok::<(), CollectiveError>(())
        /// })?;
        /// # Ok::<(), Error>(())
        /// ```
        ///
        /// # Errors
        /// [`CollectiveError`].
        pub fn $persistent<T, O>(
            &'scope self,
            data: &'scope mut (impl AsViewMut<T> + ?Sized),
            into: &'scope mut (impl AsViewMut<T> + ?Sized),
            operation: O
            $(, $root: Rank)?
        ) -> PersistentResult<'scope, T>
        where
            T: IntoBytes + FromBytes + Immutable + 'scope,
            O: Operation<T> + 'scope,
        {
            let (data, mut into) = (data.as_view_mut(), into.as_view_mut());
            let outline = CallOutline::of(self.communicator().$call($($verb,)? data.as_view(), into.as_view_mut(), &operation $(, $root)?)?);
            self.persist(data.whole(), into.whole(), outline, operation.operate())
        }
    )* };
}

macro_rules! moving_in_place {
    ($($persistent:ident $name:ident $call:ident($($root:ident)?) $data:literal;)*) => { $(
        #[doc = concat!("Prepares [`", stringify!($name), "`](crate::world::Communicator::", stringify!($name), ").")]
        ///
        /// ```
        /// use unisono::prelude::*;
        ///
        /// let (world, root) = (World::join()?, Rank(0));
        #[doc = concat!("let mut data = ", $data, ";")]
        /// world.scope(|scope| {
        #[doc = concat!("    let mut request = scope.", stringify!($persistent), "(&mut data" $(, ", ", stringify!($root))?, ")?;")]
        ///     for _ in 0..2 {
        ///         request.start()?;
        ///         request.wait()?;
        ///     }
        ///     Ok::<(), CollectiveError>(())
        /// })?;
        /// # Ok::<(), Error>(())
        /// ```
        ///
        /// # Errors
        /// [`CollectiveError`].
        pub fn $persistent<T>(
            &'scope self,
            data: &'scope mut (impl AsViewMut<T> + ?Sized)
            $(, $root: Rank)?
        ) -> PersistentResult<'scope, T>
        where
            T: IntoBytes + FromBytes + 'scope,
        {
            let mut data = data.as_view_mut();
            let outline = CallOutline::of(self.communicator().$call(data.as_view_mut() $(, $root)?)?);
            let both = data.whole();
            self.persist(both, both, outline, Some(NoReduction))
        }
    )* };
}

macro_rules! combining_in_place {
    ($($persistent:ident $name:ident $call:ident($($root:ident)?) $data:literal;)*) => { $(
        #[doc = concat!("Prepares [`", stringify!($name), "`](crate::world::Communicator::", stringify!($name), ").")]
        ///
        /// ```
        /// use unisono::prelude::*;
        ///
        /// let (world, root) = (World::join()?, Rank(0));
        #[doc = concat!("let mut data = ", $data, ";")]
        /// world.scope(|scope| {
        #[doc = concat!("    let mut request = scope.", stringify!($persistent), "(&mut data, SystemOperation::sum()" $(, ", ", stringify!($root))?, ")?;")]
        ///     for _ in 0..2 {
        ///         request.start()?;
        ///         request.wait()?;
        ///     }
        ///     Ok::<(), CollectiveError>(())
        /// })?;
        /// # Ok::<(), Error>(())
        /// ```
        ///
        /// # Errors
        /// [`CollectiveError`].
        pub fn $persistent<T, O>(
            &'scope self,
            data: &'scope mut (impl AsViewMut<T> + ?Sized),
            operation: O
            $(, $root: Rank)?
        ) -> PersistentResult<'scope, T>
        where
            T: IntoBytes + FromBytes + Immutable + 'scope,
            O: Operation<T> + 'scope,
        {
            let mut data = data.as_view_mut();
            let outline = CallOutline::of(self.communicator().$call(data.as_view_mut(), &operation $(, $root)?)?);
            let both = data.whole();
            self.persist(both, both, outline, operation.operate())
        }
    )* };
}

impl<'scope, 'env> Scope<'scope, 'env> {
    moving_in_place! {
        persistent_broadcast_into broadcast_into call_broadcast(root)
            "vec![1_u32; 3]";
        persistent_gather_in_place gather_in_place call_gather_in_place(root)
            "vec![1_u32; if world.rank() == root { world.size() as usize } else { 1 }]";
        persistent_scatter_in_place scatter_in_place call_scatter_in_place(root)
            "vec![1_u32; if world.rank() == root { world.size() as usize } else { 1 }]";
        persistent_all_gather_in_place all_gather_in_place call_all_gather_in_place()
            "vec![1_u32; world.size() as usize]";
        persistent_all_to_all_in_place all_to_all_in_place call_all_to_all_in_place()
            "vec![1_u32; world.size() as usize]";
    }

    combining_in_place! {
        persistent_reduce_in_place reduce_in_place call_reduce_in_place(root)
            "vec![1_u32; 3]";
        persistent_all_reduce_in_place all_reduce_in_place call_all_reduce_in_place()
            "vec![1_u32; 3]";
        persistent_reduce_scatter_block_in_place reduce_scatter_block_in_place call_reduce_scatter_in_place()
            "vec![1_u32; world.size() as usize]";
        persistent_scan_in_place scan_in_place call_scan_in_place()
            "vec![1_u32; 3]";
        persistent_exclusive_scan_in_place exclusive_scan_in_place call_exclusive_scan_in_place()
            "vec![1_u32; 3]";
    }

    moving! {
        persistent_gather_into gather_into call_gather(root)
            "(vec![1_u32], vec![1_u32; world.size() as usize])";
        persistent_scatter_into scatter_into call_scatter(root)
            "(vec![1_u32; world.size() as usize], vec![0])";
        persistent_all_gather_into all_gather_into call_all_gather()
            "(vec![1_u32], vec![0; world.size() as usize])";
        persistent_all_to_all_into all_to_all_into call_all_to_all()
            "(vec![1_u32; world.size() as usize], vec![0; world.size() as usize])";
    }

    combining! {
        persistent_reduce_into reduce_into call_reduce(; root)
            "(vec![1_u32], vec![0])";
        persistent_all_reduce_into all_reduce_into call_all_reduce(;)
            "(vec![1_u32], vec![0])";
        persistent_reduce_scatter_block_into reduce_scatter_block_into call_reduce_scatter(;)
            "(vec![1_u32; world.size() as usize], vec![0])";
        persistent_scan_into scan_into call_scan(CollectiveKind::Scan;)
            "(vec![1_u32], vec![0])";
        persistent_exclusive_scan_into exclusive_scan_into call_scan(CollectiveKind::Exscan;)
            "(vec![1_u32], vec![0])";
    }

    /// Prepares [`barrier`](crate::world::Communicator::barrier).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// world.scope(|scope| {
    ///     let mut barrier = scope.persistent_barrier()?;
    ///     barrier.start()?;
    ///     barrier.wait()
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn persistent_barrier(&'scope self) -> PersistentResult<'scope, u8> {
        let none = NonNull::from(&mut []);
        self.persist(none, none, CallOutline::of(self.communicator().call_barrier()), Some(NoReduction))
    }

    /// `data` and `result` are exclusive borrows for 'scope that nothing else uses; the call's buffers are within them,
    /// its input in the first.
    fn persist<T>(
        &'scope self,
        data: NonNull<[T]>,
        result: NonNull<[T]>,
        outline: CallOutline,
        operate: Option<impl ReductionOp + Send + 'scope>,
    ) -> PersistentResult<'scope, T> {
        let (communicator, loans) = (self.communicator(), self.loans());
        let CallOutline { plan, shape, input, output } = outline;
        let call = CollectiveCall::new(&plan, shape.tables.is_some());
        let operate: Box<dyn ReductionOp + Send + 'scope> = Box::new(operate.ok_or(CollectiveError::Undefined)?);
        let kind = if plan.size == 1 && shape.tables.is_none() {
            communicator.may_begin()?;
            let copies = !plan.in_place
                && !matches!(
                    plan.collective,
                    CollectiveKind::Barrier | CollectiveKind::Broadcast | CollectiveKind::Exscan
                );
            PersistentKind::SingleRank(shape.layouts, if copies { plan.bytes } else { 0 })
        } else {
            // SAFETY: a lifetime only: the function lives as long as the scope, at whose end the collective is
            // released, if not before.
            let mut combine = Some(unsafe { transmute::<Box<dyn ReductionOp + Send + 'scope>, Reducer>(operate) });
            let lies = |(at, bytes): (NonZero<usize>, usize), of: NonNull<[T]>| (of.cast::<u8>().with_addr(at), bytes);
            let (input, output) = (lies(input, data), lies(output, result));
            let place = communicator.shared.with_process(|process| {
                // SAFETY: the buffers are borrowed until the scope ends, which waits for the collective and releases it
                // before; between start and end the request makes no reference to them.
                let place = unsafe {
                    process.prepare_collective((communicator.context, true), &plan, shape, input, output, &mut combine)
                }?;
                loans.collectives(process).persistent.push(place);
                Ok::<_, CollectiveError>(place)
            })?;
            PersistentKind::Scheduled(place)
        };
        let collective = PersistentCollective { loans, kind, call, state: Cell::new(PersistentState::Idle) };
        Ok(PersistentRequest { collective, data, result, buffers: PhantomData })
    }
}
