//! Arguments of collective calls: checks lengths and roots before any other rank is involved.

use core::mem::size_of;

use unisono_core::collective::{Order, CollectiveSpec, CollectiveKind};
use unisono_core::ids::Rank as Member;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::node_group::Places;
use super::partition::{Shape, Tables};
use super::strided::Gaps;
use super::{CollectiveError, Operation, View, ViewMut};
use crate::world::Communicator;
use unisono_bootstrap::Rank;

/// The root of collectives without one.
const NO_ROOT: Rank = Rank(0);

/// A collective's specification, and the buffers that it is called with.
pub(super) struct Call<'b> {
    pub(super) plan: CollectiveSpec,
    pub(super) places: Places<'b>,
    pub(super) shape: Shape,
}

/// The buffers of a call, and which of them are strided.
pub(super) struct Lent<'b> {
    pub(super) places: Places<'b>,
    pub(super) gaps: Gaps,
}

impl<'b> Lent<'b> {
    /// Separate input and output.
    pub(super) fn apart<T>(data: View<'b, T>, into: ViewMut<'b, T>) -> Self
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        let ((data, input), (into, output)) = (data.bytes(), into.bytes());
        Self { places: Places::Apart(data, into), gaps: Gaps { input, output } }
    }

    /// Input only.
    pub(super) fn given<T: IntoBytes + FromBytes>(data: ViewMut<'b, T>) -> Self {
        let (data, input) = data.bytes();
        Self { places: Places::Apart(data, &mut []), gaps: Gaps { input, output: None } }
    }

    /// Output only.
    pub(super) fn taken<T: IntoBytes + FromBytes>(into: ViewMut<'b, T>) -> Self {
        let (into, output) = into.bytes();
        Self { places: Places::Apart(&[], into), gaps: Gaps { input: None, output } }
    }

    /// One buffer for input and output.
    pub(super) fn both<T: IntoBytes + FromBytes>(data: ViewMut<'b, T>) -> Self {
        let (data, both) = data.bytes();
        Self { places: Places::Both(data), gaps: Gaps::both(both) }
    }
}

impl<'b> Call<'b> {
    pub(super) fn new(plan: CollectiveSpec, lent: Lent<'b>) -> Self {
        Self { plan, places: lent.places, shape: Shape { tables: None, gaps: lent.gaps } }
    }

    /// A call whose blocks differ in length.
    pub(super) fn varying(plan: CollectiveSpec, lent: Lent<'b>, tables: Tables) -> Self {
        Self { plan, places: lent.places, shape: Shape { tables: Some(tables), gaps: lent.gaps } }
    }

    /// Whether ranks of one node use the collective area: calls with blocks of different lengths, in-place calls except
    /// allreduce, and reductions in a fixed order use messages.
    pub(super) const fn is_shown(&self) -> bool {
        self.shape.tables.is_none()
            && (!self.plan.in_place || matches!(self.plan.collective, CollectiveKind::Allreduce))
            && !matches!(self.plan.order, Order::Fixed)
    }

    /// Executes a collective of a single rank.
    fn copy_alone(self) {
        if let (Places::Apart(input, output), true) = (self.places, self.plan.collective != CollectiveKind::Exscan) {
            self.shape.gaps.copy(input, output, self.plan.bytes);
        }
    }

    /// Calls `run` with contiguous buffers: packs strided ones before, and unpacks them afterwards.
    pub(super) fn packed(
        self,
        run: impl FnOnce(&CollectiveSpec, Places<'_>) -> Result<(), CollectiveError>,
    ) -> Result<(), CollectiveError> {
        let (plan, Gaps { input, output }) = (&self.plan, self.shape.gaps);
        match self.places {
            places if input.is_none() && output.is_none() => run(plan, places),
            Places::Both(both) => {
                let Some(gaps) = output else { return run(plan, Places::Both(both)) };
                let mut packed = gaps.packed(both)?;
                run(plan, Places::Both(&mut packed))?;
                gaps.unpack(&packed, both);
                Ok(())
            }
            Places::Apart(data, into) => {
                let input = input.map(|gaps| gaps.packed(data)).transpose()?;
                let data = input.as_deref().unwrap_or(data);
                let Some(gaps) = output else { return run(plan, Places::Apart(data, into)) };
                // Elements that the collective does not write keep their values.
                let mut packed = gaps.packed(into)?;
                run(plan, Places::Apart(data, &mut packed))?;
                gaps.unpack(&packed, into);
                Ok(())
            }
        }
    }

    /// Whether this is a collective of a single rank, with blocks of equal length.
    pub(super) const fn is_alone(&self) -> bool {
        self.plan.size == 1 && self.shape.tables.is_none()
    }
}

/// A call, or what is wrong with its arguments.
pub(super) type Checked<'b> = Result<Call<'b>, CollectiveError>;

impl Communicator {
    /// Executes a collective of the only member.
    pub(super) fn copy_alone(&self, call: Call<'_>) -> Result<(), CollectiveError> {
        self.may_begin()?;
        call.copy_alone();
        Ok(())
    }

    pub(super) fn call_barrier(&self) -> Call<'static> {
        Call::new(self.plan::<u8>(CollectiveKind::Barrier, 0, NO_ROOT), Lent::both::<u8>(ViewMut::default()))
    }

    pub(super) fn call_broadcast<'b, T>(&self, data: ViewMut<'b, T>, root: Rank) -> Checked<'b>
    where
        T: IntoBytes + FromBytes,
    {
        let plan = self.plan::<T>(CollectiveKind::Broadcast, data.count(), self.root(root)?);
        Ok(Call::new(plan, Lent::both(data)))
    }

    pub(super) fn call_gather<'b, T>(&self, data: View<'b, T>, into: ViewMut<'b, T>, root: Rank) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        let plan = self.plan::<T>(CollectiveKind::Gather, data.count(), self.root(root)?);
        let into = if self.rank == root { self.whole(into, data.count())? } else { ViewMut::default() };
        Ok(Call::new(plan, Lent::apart(data, into)))
    }

    pub(super) fn call_scatter<'b, T>(&self, data: View<'b, T>, into: ViewMut<'b, T>, root: Rank) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        let plan = self.plan::<T>(CollectiveKind::Scatter, into.count(), self.root(root)?);
        let data = if self.rank == root { self.blocks(data, into.count())? } else { View::default() };
        Ok(Call::new(plan, Lent::apart(data, into)))
    }

    pub(super) fn call_all_gather<'b, T>(&self, data: View<'b, T>, into: ViewMut<'b, T>) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        let plan = self.plan::<T>(CollectiveKind::Allgather, data.count(), NO_ROOT);
        let into = self.whole(into, data.count())?;
        Ok(Call::new(plan, Lent::apart(data, into)))
    }

    pub(super) fn call_all_to_all<'b, T>(&self, data: View<'b, T>, into: ViewMut<'b, T>) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        let block = data.count() / self.size as usize;
        let plan = self.plan::<T>(CollectiveKind::Alltoall, block, NO_ROOT);
        let (data, into) = (self.blocks(data, block)?, self.whole(into, block)?);
        Ok(Call::new(plan, Lent::apart(data, into)))
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
        let into = if self.rank == self.root(root)? { exactly(into, data.count())? } else { ViewMut::default() };
        let count = data.count();
        Ok(self.reduction(CollectiveKind::Reduce, count, root, Lent::apart(data, into), operation))
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
        let (count, into) = (data.count(), exactly(into, data.count())?);
        Ok(self.reduction(CollectiveKind::Allreduce, count, NO_ROOT, Lent::apart(data, into), operation))
    }

    pub(super) fn call_all_reduce_in_place<'b, T, O>(&self, data: ViewMut<'b, T>, operation: &O) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        let count = data.count();
        Ok(self.reduction(CollectiveKind::Allreduce, count, NO_ROOT, Lent::both(data), operation))
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
        let data = self.blocks(data, into.count())?;
        let block = into.count();
        Ok(self.reduction(CollectiveKind::ReduceScatter, block, NO_ROOT, Lent::apart(data, into), operation))
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
        let (count, into) = (data.count(), exactly(into, data.count())?);
        Ok(self.reduction(verb, count, NO_ROOT, Lent::apart(data, into), operation))
    }

    pub(super) fn reduction<'b, T, O: Operation<T>>(
        &self,
        verb: CollectiveKind,
        count: usize,
        root: Rank,
        lent: Lent<'b>,
        operation: &O,
    ) -> Call<'b> {
        let (order, kind) = (operation.order(), operation.kind());
        let in_place = matches!(lent.places, Places::Both(_));
        let plan = CollectiveSpec { grain: size_of::<T>().max(1), order, in_place, reduction_id: kind, ..self.plan::<T>(verb, count, root) };
        Call::new(plan, lent)
    }

    pub(super) fn plan<T>(&self, verb: CollectiveKind, count: usize, root: Rank) -> CollectiveSpec {
        let (rank, root) = (Member(self.rank.0), Member(root.0));
        let kind = size_of::<T>() as u32;
        let (size, bytes) = (self.size, count * size_of::<T>());
        CollectiveSpec { collective: verb, rank, size, root, bytes, grain: 1, order: Order::Any, in_place: false, reduction_id: kind }
    }

    pub(super) fn root(&self, root: Rank) -> Result<Rank, CollectiveError> {
        if root.0 < self.size { Ok(root) } else { Err(CollectiveError::UnknownRank { rank: root, size: self.size }) }
    }

    /// A buffer with a block for every rank.
    fn whole<'b, T>(&self, into: ViewMut<'b, T>, block: usize) -> Result<ViewMut<'b, T>, CollectiveError> {
        exactly(into, block.saturating_mul(self.size as usize))
    }

    /// Data with a block for every rank.
    fn blocks<'b, T>(&self, data: View<'b, T>, block: usize) -> Result<View<'b, T>, CollectiveError> {
        let needed = block.saturating_mul(self.size as usize);
        if data.count() == needed { Ok(data) } else { Err(CollectiveError::Length { needed, given: data.count() }) }
    }
}

/// Checks that a buffer has exactly `needed` elements.
fn exactly<T>(into: ViewMut<'_, T>, needed: usize) -> Result<ViewMut<'_, T>, CollectiveError> {
    if into.count() == needed { Ok(into) } else { Err(CollectiveError::Length { needed, given: into.count() }) }
}
