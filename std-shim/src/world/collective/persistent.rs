//! Collectives that are started again and again: how they are done, and with which memory, is settled once.

mod varying;

use core::marker::PhantomData;
use core::mem::transmute;
use core::num::NonZero;
use core::ptr::NonNull;

use unisono_core::collective::{Plan, Verb};
use unisono_shmem::slot_collectives::data_executor::{Moves, Operate};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::call::Call;
use super::node_group::Places;
use super::partition::Shape;
use super::running::Combine;
use super::strided::Gaps;
use super::{AsView as _, AsViewMut, CollectiveError, Operation};
use crate::rank::Rank;
use crate::world::Scope;
use crate::world::ledger::Ledger;

/// A collective that can be started any number of times, one after the other. Its buffers are borrowed until the scope ends; between
/// two starts they are reached through it. All ranks start the same ones, and begin others, in the same order. Dropped, it goes on if
/// it is under way.
#[must_use = "nothing happens before it is started"]
pub struct PersistentRequest<'scope, T> {
    ledger: &'scope Ledger<'scope>,
    data: NonNull<[T]>,
    result: NonNull<[T]>,
    kind: Kind,
    is_under_way: bool,
    buffers: PhantomData<&'scope mut [T]>,
}

/// What starts it.
#[derive(Clone, Copy)]
enum Kind {
    /// Its place in the table.
    Kept(u32),
    /// It has failed, and so does everything after it.
    Failed,
    /// The only rank copies so many bytes.
    Alone(Gaps, usize),
}

// SAFETY: as the exclusive borrows that it holds. All else of it is: any thread may start it and wait for it, under the World's lock.
unsafe impl<T: Send> Send for PersistentRequest<'_, T> {}

/// A collective to be started, or why it cannot be.
type Prepared<'scope, T> = Result<PersistentRequest<'scope, T>, CollectiveError>;

impl<T> PersistentRequest<'_, T> {
    /// Starts it once more.
    ///
    /// # Errors
    /// [`CollectiveError::UnderWay`]: it was not waited for. Otherwise as of all collectives.
    pub fn start(&mut self) -> Result<(), CollectiveError> {
        if self.is_under_way {
            return Err(CollectiveError::UnderWay);
        }
        match self.kind {
            Kind::Kept(place) => {
                self.ledger.communicator.shared.change(|process| {
                    process.start_collective(place)?;
                    self.ledger.begun(process).under_way.push(place);
                    Ok::<_, CollectiveError>(())
                })?;
            }
            Kind::Failed => return self.ledger.communicator.may_begin(),
            Kind::Alone(gaps, bytes) => {
                self.ledger.communicator.may_begin()?;
                let of = |buffer: NonNull<[T]>| {
                    NonNull::slice_from_raw_parts(buffer.cast::<u8>(), size_of::<T>() * buffer.len())
                };
                // SAFETY: made of a borrow for 'scope of what is plain bytes; this has no other reference to it now.
                let from = unsafe { of(self.data).as_ref() };
                // SAFETY: as above, of an exclusive borrow of another buffer; where it is the same nothing is copied.
                let into = if bytes == 0 { &mut [] } else { unsafe { of(self.result).as_mut() } };
                gaps.copy(from, into, bytes);
            }
        }
        self.is_under_way = true;
        Ok(())
    }

    /// Waits for the end; returns at once when it is not under way.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn wait(&mut self) -> Result<(), CollectiveError> {
        if !core::mem::replace(&mut self.is_under_way, false) {
            return Ok(());
        }
        let Kind::Kept(place) = self.kind else { return Ok(()) };
        self.kind = Kind::Failed;
        let outcome = self.ledger.outcome(place);
        if outcome.result.is_ok() {
            self.kind = Kind::Kept(place);
        }
        outcome.result()
    }

    /// Makes progress once, and tells whether and how it has ended; `Some(Ok(()))` when it is not under way.
    pub fn test(&mut self) -> Option<Result<(), CollectiveError>> {
        self.is_done().then(|| self.wait())
    }

    /// Whether [`wait`](Self::wait) would return at once; makes progress once.
    pub fn is_done(&self) -> bool {
        match self.kind {
            Kind::Kept(place) => !self.is_under_way || self.ledger.communicator.has_ended(place),
            Kind::Failed | Kind::Alone(..) => true,
        }
    }

    /// What this rank gives, to be written before the next start; where one buffer is both, also what it gets. Of a
    /// [`ViewMut`](super::ViewMut) all from its first element to its last one, of a [`PartitionMut`](super::PartitionMut) the whole
    /// buffer.
    ///
    /// # Errors
    /// [`CollectiveError::UnderWay`].
    pub fn data(&mut self) -> Result<&mut [T], CollectiveError> {
        self.rests()?;
        // SAFETY: made of an exclusive borrow for 'scope, which this holds; nobody else uses it between the end and the next start, for
        // which this is borrowed.
        Ok(unsafe { self.data.as_mut() })
    }

    /// What this rank got.
    ///
    /// # Errors
    /// [`CollectiveError::UnderWay`].
    pub fn result(&self) -> Result<&[T], CollectiveError> {
        self.rests()?;
        // SAFETY: as in `data`.
        Ok(unsafe { self.result.as_ref() })
    }

    const fn rests(&self) -> Result<(), CollectiveError> {
        if self.is_under_way { Err(CollectiveError::UnderWay) } else { Ok(()) }
    }
}

impl<T> Drop for PersistentRequest<'_, T> {
    fn drop(&mut self) {
        if let (Kind::Kept(place), false) = (self.kind, self.is_under_way) {
            let mut process = self.ledger.communicator.shared.lock();
            self.ledger.begun(&mut process).kept.retain(|kept| *kept != place);
            let released = process.release_collective(place);
            drop(process);
            // The user's function may use the World when it is dropped.
            drop(released);
        }
    }
}

/// What a call says, and where its buffers lie.
struct Outline {
    plan: Plan,
    shape: Shape,
    input: (NonZero<usize>, usize),
    output: (NonZero<usize>, usize),
}

impl Outline {
    /// Ends the call's borrows.
    fn of(call: Call<'_>) -> Self {
        let lies = |bytes: NonNull<[u8]>| (bytes.cast::<u8>().addr(), bytes.len());
        let (input, output) = match call.places {
            Places::Apart(input, output) => (lies(NonNull::from(input)), lies(NonNull::from(output))),
            Places::Both(both) => {
                let both = lies(NonNull::from(both));
                (both, both)
            }
        };
        Self { plan: call.plan, shape: call.shape, input, output }
    }
}

macro_rules! moving {
    ($($persistent:ident $name:ident $call:ident($($root:ident)?);)*) => { $(
        #[doc = concat!("Prepares what [`", stringify!($name), "`](crate::world::Communicator::", stringify!($name), ") does.")]
        ///
        /// # Errors
        /// [`CollectiveError`].
        pub fn $persistent<T>(
            &'scope self,
            data: &'scope mut (impl AsViewMut<T> + ?Sized),
            into: &'scope mut (impl AsViewMut<T> + ?Sized)
            $(, $root: Rank)?
        ) -> Prepared<'scope, T>
        where
            T: IntoBytes + FromBytes + Immutable + 'scope,
        {
            let (data, mut into) = (data.as_view_mut(), into.as_view_mut());
            let outline = Outline::of(self.communicator().$call(data.as_view(), into.as_view_mut() $(, $root)?)?);
            self.keep(data.whole(), into.whole(), outline, Some(Moves))
        }
    )* };
}

macro_rules! combining {
    ($($persistent:ident $name:ident $call:ident($($verb:expr)?; $($root:ident)?);)*) => { $(
        #[doc = concat!("Prepares what [`", stringify!($name), "`](crate::world::Communicator::", stringify!($name), ") does.")]
        ///
        /// # Errors
        /// [`CollectiveError`].
        pub fn $persistent<T, O>(
            &'scope self,
            data: &'scope mut (impl AsViewMut<T> + ?Sized),
            into: &'scope mut (impl AsViewMut<T> + ?Sized),
            operation: O
            $(, $root: Rank)?
        ) -> Prepared<'scope, T>
        where
            T: IntoBytes + FromBytes + Immutable + 'scope,
            O: Operation<T> + 'scope,
        {
            let (data, mut into) = (data.as_view_mut(), into.as_view_mut());
            let outline = Outline::of(self.communicator().$call($($verb,)? data.as_view(), into.as_view_mut(), &operation $(, $root)?)?);
            self.keep(data.whole(), into.whole(), outline, operation.operate())
        }
    )* };
}

macro_rules! moving_in_place {
    ($($persistent:ident $name:ident $call:ident($($root:ident)?);)*) => { $(
        #[doc = concat!("Prepares what [`", stringify!($name), "`](crate::world::Communicator::", stringify!($name), ") does.")]
        ///
        /// # Errors
        /// [`CollectiveError`].
        pub fn $persistent<T>(
            &'scope self,
            data: &'scope mut (impl AsViewMut<T> + ?Sized)
            $(, $root: Rank)?
        ) -> Prepared<'scope, T>
        where
            T: IntoBytes + FromBytes + 'scope,
        {
            let mut data = data.as_view_mut();
            let outline = Outline::of(self.communicator().$call(data.as_view_mut() $(, $root)?)?);
            let both = data.whole();
            self.keep(both, both, outline, Some(Moves))
        }
    )* };
}

macro_rules! combining_in_place {
    ($($persistent:ident $name:ident $call:ident($($root:ident)?);)*) => { $(
        #[doc = concat!("Prepares what [`", stringify!($name), "`](crate::world::Communicator::", stringify!($name), ") does.")]
        ///
        /// # Errors
        /// [`CollectiveError`].
        pub fn $persistent<T, O>(
            &'scope self,
            data: &'scope mut (impl AsViewMut<T> + ?Sized),
            operation: O
            $(, $root: Rank)?
        ) -> Prepared<'scope, T>
        where
            T: IntoBytes + FromBytes + Immutable + 'scope,
            O: Operation<T> + 'scope,
        {
            let mut data = data.as_view_mut();
            let outline = Outline::of(self.communicator().$call(data.as_view_mut(), &operation $(, $root)?)?);
            let both = data.whole();
            self.keep(both, both, outline, operation.operate())
        }
    )* };
}

impl<'scope, 'env> Scope<'scope, 'env> {
    moving_in_place! {
        persistent_broadcast_into broadcast_into call_broadcast(root);
        persistent_gather_in_place gather_in_place call_gather_in_place(root);
        persistent_scatter_in_place scatter_in_place call_scatter_in_place(root);
        persistent_all_gather_in_place all_gather_in_place call_all_gather_in_place();
        persistent_all_to_all_in_place all_to_all_in_place call_all_to_all_in_place();
    }

    combining_in_place! {
        persistent_reduce_in_place reduce_in_place call_reduce_in_place(root);
        persistent_all_reduce_in_place all_reduce_in_place call_all_reduce_in_place();
        persistent_reduce_scatter_block_in_place reduce_scatter_block_in_place call_reduce_scatter_in_place();
        persistent_scan_in_place scan_in_place call_scan_in_place();
        persistent_exclusive_scan_in_place exclusive_scan_in_place call_exclusive_scan_in_place();
    }

    moving! {
        persistent_gather_into gather_into call_gather(root);
        persistent_scatter_into scatter_into call_scatter(root);
        persistent_all_gather_into all_gather_into call_all_gather();
        persistent_all_to_all_into all_to_all_into call_all_to_all();
    }

    combining! {
        persistent_reduce_into reduce_into call_reduce(; root);
        persistent_all_reduce_into all_reduce_into call_all_reduce(;);
        persistent_reduce_scatter_block_into reduce_scatter_block_into call_reduce_scatter(;);
        persistent_scan_into scan_into call_scan(Verb::Scan;);
        persistent_exclusive_scan_into exclusive_scan_into call_scan(Verb::Exscan;);
    }

    /// Prepares what [`barrier`](crate::world::Communicator::barrier) does.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn persistent_barrier(&'scope self) -> Prepared<'scope, u8> {
        let none = NonNull::from(&mut []);
        self.keep(none, none, Outline::of(self.communicator().call_barrier()), Some(Moves))
    }

    /// The buffers are made of exclusive borrows for 'scope that nobody else uses; the call's lie in them, its data in the first.
    fn keep<T>(
        &'scope self,
        data: NonNull<[T]>,
        result: NonNull<[T]>,
        outline: Outline,
        operate: Option<impl Operate + Send + 'scope>,
    ) -> Prepared<'scope, T> {
        let (communicator, ledger) = (self.communicator(), self.ledger());
        let Outline { plan, shape, input, output } = outline;
        let operate: Box<dyn Operate + Send + 'scope> = Box::new(operate.ok_or(CollectiveError::Undefined)?);
        let kind = if plan.size == 1 && shape.tables.is_none() {
            communicator.may_begin()?;
            let copies = !plan.in_place && !matches!(plan.verb, Verb::Barrier | Verb::Broadcast | Verb::Exscan);
            Kind::Alone(shape.gaps, if copies { plan.bytes } else { 0 })
        } else {
            // SAFETY: a lifetime only: the function lives as long as the scope, at whose end the collective is released, if not before.
            let mut combine = Some(unsafe { transmute::<Box<dyn Operate + Send + 'scope>, Combine>(operate) });
            let lies = |(at, bytes): (NonZero<usize>, usize), of: NonNull<[T]>| (of.cast::<u8>().with_addr(at), bytes);
            let (input, output) = (lies(input, data), lies(output, result));
            let place = communicator.shared.change(|process| {
                // SAFETY: the buffers are borrowed until the scope ends, which waits for the collective and releases it before;
                // between start and end the request makes no reference to them.
                let place = unsafe {
                    process.prepare_collective((communicator.context, true), &plan, shape, input, output, &mut combine)
                }?;
                ledger.begun(process).kept.push(place);
                Ok::<_, CollectiveError>(place)
            })?;
            Kind::Kept(place)
        };
        Ok(PersistentRequest { ledger, data, result, kind, is_under_way: false, buffers: PhantomData })
    }
}
