//! Arguments of collective calls: checks lengths and roots before any other rank is involved.

use core::mem::size_of;

use unisono_core::collective::{CollectiveKind, CollectiveSpec, Order, type_code};
use unisono_core::ids::Rank as Member;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::call_log::CollectiveCall;
use super::error::CollectiveError;
use super::intra_node::CallMemory;
use super::operation::Operation;
use super::pack::{Layouts, packed};
use super::partition::{BlockTables, Shape};
use super::view::{View, ViewMut};
use crate::world::communicator::Communicator;
use unisono_bootstrap::Rank;

/// The root of collectives without one.
const NO_ROOT: Rank = Rank(0);

/// A collective's specification, and the buffers that it is called with.
pub(super) struct CollectiveArgs<'b> {
    pub(super) plan: CollectiveSpec,
    pub(super) buffers: CallMemory<'b>,
    pub(super) shape: Shape,
}

/// The buffers of a call, and their layouts.
pub(super) struct CallBuffers<'b> {
    pub(super) buffers: CallMemory<'b>,
    pub(super) layouts: Layouts,
}

impl<'b> CallBuffers<'b> {
    /// Separate input and output.
    pub(super) fn separate<T>(data: View<'b, T>, into: ViewMut<'b, T>) -> Self
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        let ((data, input), (into, output)) = (data.bytes(), into.bytes());
        Self { buffers: CallMemory::Separate(data, into), layouts: Layouts { input, output } }
    }

    /// Input only.
    pub(super) fn input_only<T: IntoBytes + FromBytes>(data: ViewMut<'b, T>) -> Self {
        let (data, input) = data.bytes();
        Self { buffers: CallMemory::Separate(data, &mut []), layouts: Layouts { input, output: None } }
    }

    /// Output only.
    pub(super) fn output_only<T: IntoBytes + FromBytes>(into: ViewMut<'b, T>) -> Self {
        let (into, output) = into.bytes();
        Self { buffers: CallMemory::Separate(&[], into), layouts: Layouts { input: None, output } }
    }

    /// One buffer for input and output.
    pub(super) fn in_place<T: IntoBytes + FromBytes>(data: ViewMut<'b, T>) -> Self {
        let (data, both) = data.bytes();
        Self { buffers: CallMemory::InPlace(data), layouts: Layouts::both(both) }
    }
}

impl<'b> CollectiveArgs<'b> {
    pub(super) fn new(plan: CollectiveSpec, buffers: CallBuffers<'b>) -> Self {
        Self { plan, buffers: buffers.buffers, shape: Shape { tables: None, layouts: buffers.layouts } }
    }

    /// A call whose blocks differ in length.
    pub(super) fn vector(plan: CollectiveSpec, buffers: CallBuffers<'b>, tables: BlockTables) -> Self {
        Self { plan, buffers: buffers.buffers, shape: Shape { tables: Some(tables), layouts: buffers.layouts } }
    }

    /// Whether ranks of one node use the collective area: calls with blocks of different lengths, in-place calls except
    /// allreduce, and reductions in a fixed order use messages.
    pub(super) const fn uses_slots(&self) -> bool {
        self.shape.tables.is_none()
            && (!self.plan.in_place || matches!(self.plan.collective, CollectiveKind::Allreduce))
            && !matches!(self.plan.order, Order::Fixed)
    }

    /// The call, as other ranks see it.
    pub(super) fn description(&self) -> CollectiveCall {
        CollectiveCall::new(&self.plan, self.shape.tables.is_some())
    }

    /// Executes a collective of a single rank.
    fn copy_alone(self) {
        if let (CallMemory::Separate(input, output), true) =
            (self.buffers, self.plan.collective != CollectiveKind::Exscan)
        {
            self.shape.layouts.copy(input, output, self.plan.bytes);
        }
    }

    /// Calls `run` with contiguous buffers: packs those with a layout before, and unpacks them afterwards.
    pub(super) fn packed(
        self,
        run: impl FnOnce(&CollectiveSpec, CallMemory<'_>) -> Result<(), CollectiveError>,
    ) -> Result<(), CollectiveError> {
        let (plan, Layouts { input, output }) = (&self.plan, &self.shape.layouts);
        match self.buffers {
            places if input.is_none() && output.is_none() => run(plan, places),
            CallMemory::InPlace(both) => {
                let Some(layout) = output else { return run(plan, CallMemory::InPlace(both)) };
                let mut contiguous = packed(layout, both)?;
                run(plan, CallMemory::InPlace(&mut contiguous))?;
                let _ = layout.unpack(&contiguous, both, 0);
                Ok(())
            }
            CallMemory::Separate(data, into) => {
                let input = input.as_ref().map(|layout| packed(layout, data)).transpose()?;
                let data = input.as_deref().unwrap_or(data);
                let Some(layout) = output else { return run(plan, CallMemory::Separate(data, into)) };
                // Elements that the collective does not write keep their values.
                let mut contiguous = packed(layout, into)?;
                run(plan, CallMemory::Separate(data, &mut contiguous))?;
                let _ = layout.unpack(&contiguous, into, 0);
                Ok(())
            }
        }
    }

    /// Whether this is a collective of a single rank, with blocks of equal length.
    pub(super) const fn is_single_rank(&self) -> bool {
        self.plan.size == 1 && self.shape.tables.is_none()
    }
}

/// A call, or what is wrong with its arguments.
pub(super) type Checked<'b> = Result<CollectiveArgs<'b>, CollectiveError>;

impl Communicator {
    /// Executes a collective of the only member.
    pub(super) fn copy_alone(&self, call: CollectiveArgs<'_>) -> Result<(), CollectiveError> {
        self.may_begin()?;
        call.copy_alone();
        Ok(())
    }

    pub(super) fn call_barrier(&self) -> CollectiveArgs<'static> {
        CollectiveArgs::new(
            self.plan::<u8>(CollectiveKind::Barrier, 0, NO_ROOT),
            CallBuffers::in_place::<u8>(ViewMut::default()),
        )
    }

    pub(super) fn call_broadcast<'b, T>(&self, data: ViewMut<'b, T>, root: Rank) -> Checked<'b>
    where
        T: IntoBytes + FromBytes,
    {
        let plan = self.plan::<T>(CollectiveKind::Broadcast, data.count(), self.root(root)?);
        Ok(CollectiveArgs::new(plan, CallBuffers::in_place(data)))
    }

    pub(super) fn call_gather<'b, T>(&self, data: View<'b, T>, into: ViewMut<'b, T>, root: Rank) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        let plan = self.plan::<T>(CollectiveKind::Gather, data.count(), self.root(root)?);
        let into = if self.rank == root { self.expect_whole(into, data.count())? } else { ViewMut::default() };
        Ok(CollectiveArgs::new(plan, CallBuffers::separate(data, into)))
    }

    pub(super) fn call_scatter<'b, T>(&self, data: View<'b, T>, into: ViewMut<'b, T>, root: Rank) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        let plan = self.plan::<T>(CollectiveKind::Scatter, into.count(), self.root(root)?);
        let data = if self.rank == root { self.expect_blocks(data, into.count())? } else { View::default() };
        Ok(CollectiveArgs::new(plan, CallBuffers::separate(data, into)))
    }

    pub(super) fn call_all_gather<'b, T>(&self, data: View<'b, T>, into: ViewMut<'b, T>) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        let plan = self.plan::<T>(CollectiveKind::Allgather, data.count(), NO_ROOT);
        let into = self.expect_whole(into, data.count())?;
        Ok(CollectiveArgs::new(plan, CallBuffers::separate(data, into)))
    }

    pub(super) fn call_all_to_all<'b, T>(&self, data: View<'b, T>, into: ViewMut<'b, T>) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        let block = data.count() / self.size as usize;
        let plan = self.plan::<T>(CollectiveKind::Alltoall, block, NO_ROOT);
        let (data, into) = (self.expect_blocks(data, block)?, self.expect_whole(into, block)?);
        Ok(CollectiveArgs::new(plan, CallBuffers::separate(data, into)))
    }

    pub(super) fn call_reduce<'b, T, O>(
        &self,
        data: View<'b, T>,
        into: ViewMut<'b, T>,
        operation: &O,
        root: Rank,
    ) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        let into = if self.rank == self.root(root)? { expect_length(into, data.count())? } else { ViewMut::default() };
        let count = data.count();
        Ok(self.reduction(CollectiveKind::Reduce, count, root, CallBuffers::separate(data, into), operation))
    }

    pub(super) fn call_all_reduce<'b, T, O>(
        &self,
        data: View<'b, T>,
        into: ViewMut<'b, T>,
        operation: &O,
    ) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        let (count, into) = (data.count(), expect_length(into, data.count())?);
        Ok(self.reduction(CollectiveKind::Allreduce, count, NO_ROOT, CallBuffers::separate(data, into), operation))
    }

    pub(super) fn call_all_reduce_in_place<'b, T, O>(&self, data: ViewMut<'b, T>, operation: &O) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        let count = data.count();
        Ok(self.reduction(CollectiveKind::Allreduce, count, NO_ROOT, CallBuffers::in_place(data), operation))
    }

    pub(super) fn call_reduce_scatter<'b, T, O>(
        &self,
        data: View<'b, T>,
        into: ViewMut<'b, T>,
        operation: &O,
    ) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        let data = self.expect_blocks(data, into.count())?;
        let block = into.count();
        Ok(self.reduction(CollectiveKind::ReduceScatter, block, NO_ROOT, CallBuffers::separate(data, into), operation))
    }

    /// Inclusive or exclusive scan.
    pub(super) fn call_scan<'b, T, O>(
        &self,
        verb: CollectiveKind,
        data: View<'b, T>,
        into: ViewMut<'b, T>,
        operation: &O,
    ) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        let (count, into) = (data.count(), expect_length(into, data.count())?);
        Ok(self.reduction(verb, count, NO_ROOT, CallBuffers::separate(data, into), operation))
    }

    pub(super) fn reduction<'b, T, O: Operation<T>>(
        &self,
        verb: CollectiveKind,
        count: usize,
        root: Rank,
        buffers: CallBuffers<'b>,
        operation: &O,
    ) -> CollectiveArgs<'b> {
        let (order, kind) = (operation.order(), operation.kind());
        let in_place = matches!(buffers.buffers, CallMemory::InPlace(_));
        let plan = CollectiveSpec {
            grain: operation.grain(),
            order,
            in_place,
            reduction_id: kind,
            ..self.plan::<T>(verb, count, root)
        };
        CollectiveArgs::new(plan, buffers)
    }

    pub(super) fn plan<T>(&self, verb: CollectiveKind, count: usize, root: Rank) -> CollectiveSpec {
        let (rank, root) = (Member(self.rank.0), Member(root.0));
        let kind = type_code::<T>();
        let (size, bytes) = (self.size, count * size_of::<T>());
        CollectiveSpec {
            collective: verb,
            rank,
            size,
            root,
            bytes,
            grain: 1,
            order: Order::Any,
            in_place: false,
            reduction_id: kind,
        }
    }

    pub(super) fn root(&self, root: Rank) -> Result<Rank, CollectiveError> {
        if root.0 < self.size { Ok(root) } else { Err(CollectiveError::UnknownRank { rank: root, size: self.size }) }
    }

    /// A buffer with a block for every rank.
    fn expect_whole<'b, T>(&self, into: ViewMut<'b, T>, block: usize) -> Result<ViewMut<'b, T>, CollectiveError> {
        expect_length(into, block.saturating_mul(self.size as usize))
    }

    /// Data with a block for every rank.
    fn expect_blocks<'b, T>(&self, data: View<'b, T>, block: usize) -> Result<View<'b, T>, CollectiveError> {
        let needed = block.saturating_mul(self.size as usize);
        if data.count() == needed { Ok(data) } else { Err(CollectiveError::Length { needed, given: data.count() }) }
    }
}

/// Checks that a buffer has exactly `needed` elements.
fn expect_length<T>(into: ViewMut<'_, T>, needed: usize) -> Result<ViewMut<'_, T>, CollectiveError> {
    if into.count() == needed { Ok(into) } else { Err(CollectiveError::Length { needed, given: into.count() }) }
}
