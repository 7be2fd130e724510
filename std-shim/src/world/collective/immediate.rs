//! Nonblocking collectives. All ranks start the same ones in the same order, interleaved with blocking ones; they end
//! in any order. Buffers are borrowed until the scope ends.

use unisono_core::collective::CollectiveKind;
use unisono_shmem::slot_collectives::data_executor::{NoReduction, ReductionOp};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::arguments::CollectiveArgs;
use super::error::CollectiveError;
use super::operation::Operation;
use super::request::{CollectiveRequest, ImmediateResult};
use super::view::{AsView, AsViewMut};
use crate::world::process::Process;
use crate::world::request::scope::Scope;
use unisono_bootstrap::Rank;

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Starts a [`barrier`](crate::world::Communicator::barrier) (`MPI_Ibarrier`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// world.scope(|scope| scope.immediate_barrier()?.wait())?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`] when the collective was not started, as of all the calls below.
    pub fn immediate_barrier(&'scope self) -> ImmediateResult<'scope> {
        self.begin(self.communicator().call_barrier(), NoReduction)
    }

    /// Starts [`broadcast_into`](crate::world::Communicator::broadcast_into).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut data = [world.rank().0];
    /// world.scope(|scope| scope.immediate_broadcast_into(&mut data, Rank(0))?.wait())?;
    /// assert_eq!(data, [0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn immediate_broadcast_into<T>(
        &'scope self,
        data: &'scope mut (impl AsViewMut<T> + ?Sized),
        root: Rank,
    ) -> ImmediateResult<'scope>
    where
        T: IntoBytes + FromBytes + 'scope,
    {
        self.begin(self.communicator().call_broadcast(data.as_view_mut(), root)?, NoReduction)
    }

    /// Starts [`gather_into`](crate::world::Communicator::gather_into).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (own, mut all) = ([world.rank().0], vec![0; if world.rank() == Rank(0) { world.size() as usize } else { 0 }]);
    /// world.scope(|scope| scope.immediate_gather_into(&own, &mut all, Rank(0))?.wait())?;
    /// assert!(all.iter().copied().eq(0..all.len() as u32));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn immediate_gather_into<T>(
        &'scope self,
        data: &'scope (impl AsView<T> + ?Sized),
        into: &'scope mut (impl AsViewMut<T> + ?Sized),
        root: Rank,
    ) -> ImmediateResult<'scope>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
    {
        self.begin(self.communicator().call_gather(data.as_view(), into.as_view_mut(), root)?, NoReduction)
    }

    /// Starts [`scatter_into`](crate::world::Communicator::scatter_into).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (blocks, mut own) = (vec![5; if world.rank() == Rank(0) { world.size() as usize } else { 0 }], [0]);
    /// world.scope(|scope| scope.immediate_scatter_into(&blocks, &mut own, Rank(0))?.wait())?;
    /// assert_eq!(own, [5]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn immediate_scatter_into<T>(
        &'scope self,
        data: &'scope (impl AsView<T> + ?Sized),
        into: &'scope mut (impl AsViewMut<T> + ?Sized),
        root: Rank,
    ) -> ImmediateResult<'scope>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
    {
        self.begin(self.communicator().call_scatter(data.as_view(), into.as_view_mut(), root)?, NoReduction)
    }

    /// Starts [`all_gather_into`](crate::world::Communicator::all_gather_into).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (own, mut all) = ([world.rank().0], vec![0; world.size() as usize]);
    /// world.scope(|scope| scope.immediate_all_gather_into(&own, &mut all)?.wait())?;
    /// assert!(all.into_iter().eq(0..world.size()));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn immediate_all_gather_into<T>(
        &'scope self,
        data: &'scope (impl AsView<T> + ?Sized),
        into: &'scope mut (impl AsViewMut<T> + ?Sized),
    ) -> ImmediateResult<'scope>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
    {
        self.begin(self.communicator().call_all_gather(data.as_view(), into.as_view_mut())?, NoReduction)
    }

    /// Starts [`all_to_all_into`](crate::world::Communicator::all_to_all_into).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (data, mut into) = (vec![world.rank().0; world.size() as usize], vec![0; world.size() as usize]);
    /// world.scope(|scope| scope.immediate_all_to_all_into(&data, &mut into)?.wait())?;
    /// assert!(into.into_iter().eq(0..world.size()));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn immediate_all_to_all_into<T>(
        &'scope self,
        data: &'scope (impl AsView<T> + ?Sized),
        into: &'scope mut (impl AsViewMut<T> + ?Sized),
    ) -> ImmediateResult<'scope>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
    {
        self.begin(self.communicator().call_all_to_all(data.as_view(), into.as_view_mut())?, NoReduction)
    }

    /// Starts [`reduce_into`](crate::world::Communicator::reduce_into).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut sum = [0_u32];
    /// world.scope(|scope| scope.immediate_reduce_into(&[1], &mut sum, SystemOperation::sum(), Rank(0))?.wait())?;
    /// assert!(world.rank() != Rank(0) || sum == [world.size()]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn immediate_reduce_into<T, O>(
        &'scope self,
        data: &'scope (impl AsView<T> + ?Sized),
        into: &'scope mut (impl AsViewMut<T> + ?Sized),
        operation: O,
        root: Rank,
    ) -> ImmediateResult<'scope>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
        O: Operation<T> + 'scope,
    {
        self.combine(self.communicator().call_reduce(data.as_view(), into.as_view_mut(), &operation, root)?, operation)
    }

    /// Starts [`all_reduce_into`](crate::world::Communicator::all_reduce_into).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut sum = [0_u32];
    /// world.scope(|scope| scope.immediate_all_reduce_into(&[1], &mut sum, SystemOperation::sum())?.wait())?;
    /// assert_eq!(sum, [world.size()]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn immediate_all_reduce_into<T, O>(
        &'scope self,
        data: &'scope (impl AsView<T> + ?Sized),
        into: &'scope mut (impl AsViewMut<T> + ?Sized),
        operation: O,
    ) -> ImmediateResult<'scope>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
        O: Operation<T> + 'scope,
    {
        self.combine(self.communicator().call_all_reduce(data.as_view(), into.as_view_mut(), &operation)?, operation)
    }

    /// Starts [`all_reduce_in_place`](crate::world::Communicator::all_reduce_in_place).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut sum = [1_u32];
    /// world.scope(|scope| scope.immediate_all_reduce_in_place(&mut sum, SystemOperation::sum())?.wait())?;
    /// assert_eq!(sum, [world.size()]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn immediate_all_reduce_in_place<T, O>(
        &'scope self,
        data: &'scope mut (impl AsViewMut<T> + ?Sized),
        operation: O,
    ) -> ImmediateResult<'scope>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
        O: Operation<T> + 'scope,
    {
        self.combine(self.communicator().call_all_reduce_in_place(data.as_view_mut(), &operation)?, operation)
    }

    /// Starts [`reduce_scatter_block_into`](crate::world::Communicator::reduce_scatter_block_into).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (blocks, mut own) = (vec![1_u32; world.size() as usize], [0]);
    /// world.scope(|scope| scope.immediate_reduce_scatter_block_into(&blocks, &mut own, SystemOperation::sum())?.wait())?;
    /// assert_eq!(own, [world.size()]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn immediate_reduce_scatter_block_into<T, O>(
        &'scope self,
        data: &'scope (impl AsView<T> + ?Sized),
        into: &'scope mut (impl AsViewMut<T> + ?Sized),
        operation: O,
    ) -> ImmediateResult<'scope>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
        O: Operation<T> + 'scope,
    {
        self.combine(
            self.communicator().call_reduce_scatter(data.as_view(), into.as_view_mut(), &operation)?,
            operation,
        )
    }

    /// Starts [`scan_into`](crate::world::Communicator::scan_into).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut sum = [0_u32];
    /// world.scope(|scope| scope.immediate_scan_into(&[1], &mut sum, SystemOperation::sum())?.wait())?;
    /// assert_eq!(sum, [world.rank().0 + 1]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn immediate_scan_into<T, O>(
        &'scope self,
        data: &'scope (impl AsView<T> + ?Sized),
        into: &'scope mut (impl AsViewMut<T> + ?Sized),
        operation: O,
    ) -> ImmediateResult<'scope>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
        O: Operation<T> + 'scope,
    {
        self.combine(
            self.communicator().call_scan(CollectiveKind::Scan, data.as_view(), into.as_view_mut(), &operation)?,
            operation,
        )
    }

    /// Starts [`exclusive_scan_into`](crate::world::Communicator::exclusive_scan_into).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut sum = [0_u32];
    /// world.scope(|scope| scope.immediate_exclusive_scan_into(&[1], &mut sum, SystemOperation::sum())?.wait())?;
    /// assert_eq!(sum, [world.rank().0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn immediate_exclusive_scan_into<T, O>(
        &'scope self,
        data: &'scope (impl AsView<T> + ?Sized),
        into: &'scope mut (impl AsViewMut<T> + ?Sized),
        operation: O,
    ) -> ImmediateResult<'scope>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
        O: Operation<T> + 'scope,
    {
        self.combine(
            self.communicator().call_scan(CollectiveKind::Exscan, data.as_view(), into.as_view_mut(), &operation)?,
            operation,
        )
    }

    pub(super) fn combine<T, O>(&'scope self, call: CollectiveArgs<'scope>, operation: O) -> ImmediateResult<'scope>
    where
        T: 'scope,
        O: Operation<T> + 'scope,
    {
        self.begin(call, operation.operate().ok_or(CollectiveError::Undefined)?)
    }

    pub(super) fn begin(
        &'scope self,
        call: CollectiveArgs<'scope>,
        operate: impl ReductionOp + Send + 'scope,
    ) -> ImmediateResult<'scope> {
        let loans = self.loans();
        let digest = loans.communicator.record(call.description());
        if call.is_single_rank() {
            self.communicator().copy_alone(call)?;
            return Ok(CollectiveRequest::new(loans, None));
        }
        let note = |process: &mut Process, begun| loans.collectives(process).under_way.push(begun);
        // SAFETY: the buffers are borrowed until the scope ends, which waits for the collective before.
        let begun = unsafe { loans.communicator.begin(call, digest, Box::new(operate), note) }?;
        loans.communicator.shared.wake_progress_thread();
        Ok(CollectiveRequest::new(loans, Some(begun)))
    }
}
