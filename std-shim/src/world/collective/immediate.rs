//! Collectives that go on while the caller does something else. All ranks begin the same ones in the same order, those of the World,
//! which wait, included; they end in any order. A buffer is borrowed until the scope ends.

use unisono_core::collective::Verb;
use unisono_shmem::slot_collectives::data_executor::{Moves, Operate};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::call::Call;
use super::{AsView, AsViewMut, CollectiveError, CollectiveRequest, Operation};
use crate::rank::Rank;
use crate::world::Scope;
use crate::world::process::Process;

/// A collective under way, or why it was not begun.
type Begun<'scope> = Result<CollectiveRequest<'scope>, CollectiveError>;

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Begins to wait until every rank has called this.
    ///
    /// # Errors
    /// [`CollectiveError`] when nothing was begun, as of all that follow.
    pub fn immediate_barrier(&'scope self) -> Begun<'scope> {
        self.begin(self.communicator().call_barrier(), Moves)
    }

    /// Begins what [`Communicator::broadcast_into`](crate::world::Communicator::broadcast_into) does.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn immediate_broadcast_into<T>(
        &'scope self,
        data: &'scope mut (impl AsViewMut<T> + ?Sized),
        root: Rank,
    ) -> Begun<'scope>
    where
        T: IntoBytes + FromBytes + 'scope,
    {
        self.begin(self.communicator().call_broadcast(data.as_view_mut(), root)?, Moves)
    }

    /// Begins what [`Communicator::gather_into`](crate::world::Communicator::gather_into) does.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn immediate_gather_into<T>(
        &'scope self,
        data: &'scope (impl AsView<T> + ?Sized),
        into: &'scope mut (impl AsViewMut<T> + ?Sized),
        root: Rank,
    ) -> Begun<'scope>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
    {
        self.begin(self.communicator().call_gather(data.as_view(), into.as_view_mut(), root)?, Moves)
    }

    /// Begins what [`Communicator::scatter_into`](crate::world::Communicator::scatter_into) does.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn immediate_scatter_into<T>(
        &'scope self,
        data: &'scope (impl AsView<T> + ?Sized),
        into: &'scope mut (impl AsViewMut<T> + ?Sized),
        root: Rank,
    ) -> Begun<'scope>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
    {
        self.begin(self.communicator().call_scatter(data.as_view(), into.as_view_mut(), root)?, Moves)
    }

    /// Begins what [`Communicator::all_gather_into`](crate::world::Communicator::all_gather_into) does.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn immediate_all_gather_into<T>(
        &'scope self,
        data: &'scope (impl AsView<T> + ?Sized),
        into: &'scope mut (impl AsViewMut<T> + ?Sized),
    ) -> Begun<'scope>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
    {
        self.begin(self.communicator().call_all_gather(data.as_view(), into.as_view_mut())?, Moves)
    }

    /// Begins what [`Communicator::all_to_all_into`](crate::world::Communicator::all_to_all_into) does.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn immediate_all_to_all_into<T>(
        &'scope self,
        data: &'scope (impl AsView<T> + ?Sized),
        into: &'scope mut (impl AsViewMut<T> + ?Sized),
    ) -> Begun<'scope>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
    {
        self.begin(self.communicator().call_all_to_all(data.as_view(), into.as_view_mut())?, Moves)
    }

    /// Begins what [`Communicator::reduce_into`](crate::world::Communicator::reduce_into) does.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn immediate_reduce_into<T, O>(
        &'scope self,
        data: &'scope (impl AsView<T> + ?Sized),
        into: &'scope mut (impl AsViewMut<T> + ?Sized),
        operation: O,
        root: Rank,
    ) -> Begun<'scope>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
        O: Operation<T> + 'scope,
    {
        self.combine(self.communicator().call_reduce(data.as_view(), into.as_view_mut(), &operation, root)?, operation)
    }

    /// Begins what [`Communicator::all_reduce_into`](crate::world::Communicator::all_reduce_into) does.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn immediate_all_reduce_into<T, O>(
        &'scope self,
        data: &'scope (impl AsView<T> + ?Sized),
        into: &'scope mut (impl AsViewMut<T> + ?Sized),
        operation: O,
    ) -> Begun<'scope>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
        O: Operation<T> + 'scope,
    {
        self.combine(self.communicator().call_all_reduce(data.as_view(), into.as_view_mut(), &operation)?, operation)
    }

    /// Begins what [`Communicator::all_reduce_in_place`](crate::world::Communicator::all_reduce_in_place) does.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn immediate_all_reduce_in_place<T, O>(
        &'scope self,
        data: &'scope mut (impl AsViewMut<T> + ?Sized),
        operation: O,
    ) -> Begun<'scope>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
        O: Operation<T> + 'scope,
    {
        self.combine(self.communicator().call_all_reduce_in_place(data.as_view_mut(), &operation)?, operation)
    }

    /// Begins what [`Communicator::reduce_scatter_block_into`](crate::world::Communicator::reduce_scatter_block_into) does.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn immediate_reduce_scatter_block_into<T, O>(
        &'scope self,
        data: &'scope (impl AsView<T> + ?Sized),
        into: &'scope mut (impl AsViewMut<T> + ?Sized),
        operation: O,
    ) -> Begun<'scope>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
        O: Operation<T> + 'scope,
    {
        self.combine(
            self.communicator().call_reduce_scatter(data.as_view(), into.as_view_mut(), &operation)?,
            operation,
        )
    }

    /// Begins what [`Communicator::scan_into`](crate::world::Communicator::scan_into) does.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn immediate_scan_into<T, O>(
        &'scope self,
        data: &'scope (impl AsView<T> + ?Sized),
        into: &'scope mut (impl AsViewMut<T> + ?Sized),
        operation: O,
    ) -> Begun<'scope>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
        O: Operation<T> + 'scope,
    {
        self.combine(
            self.communicator().call_scan(Verb::Scan, data.as_view(), into.as_view_mut(), &operation)?,
            operation,
        )
    }

    /// Begins what [`Communicator::exclusive_scan_into`](crate::world::Communicator::exclusive_scan_into) does.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn immediate_exclusive_scan_into<T, O>(
        &'scope self,
        data: &'scope (impl AsView<T> + ?Sized),
        into: &'scope mut (impl AsViewMut<T> + ?Sized),
        operation: O,
    ) -> Begun<'scope>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
        O: Operation<T> + 'scope,
    {
        self.combine(
            self.communicator().call_scan(Verb::Exscan, data.as_view(), into.as_view_mut(), &operation)?,
            operation,
        )
    }

    pub(super) fn combine<T, O>(&'scope self, call: Call<'scope>, operation: O) -> Begun<'scope>
    where
        T: 'scope,
        O: Operation<T> + 'scope,
    {
        self.begin(call, operation.operate().ok_or(CollectiveError::Undefined)?)
    }

    pub(super) fn begin(&'scope self, call: Call<'scope>, operate: impl Operate + Send + 'scope) -> Begun<'scope> {
        let ledger = self.ledger();
        if call.is_alone() {
            self.communicator().copy_alone(call)?;
            return Ok(CollectiveRequest::new(ledger, None));
        }
        let note = |process: &mut Process, begun| ledger.begun(process).under_way.push(begun);
        // SAFETY: what is lent is so until the scope ends, which waits for the collective before.
        let begun = unsafe { ledger.communicator.begin(call, Box::new(operate), note) }?;
        Ok(CollectiveRequest::new(ledger, Some(begun)))
    }
}
