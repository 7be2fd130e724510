//! What is called for: lengths and roots are checked here, before anybody hears of it.

use core::mem::size_of;

use unisono_core::collective::{Order, Plan, Rank as Member, Verb};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::node_group::Places;
use super::partition::Tables;
use super::{CollectiveError, Operation};
use crate::rank::Rank;
use crate::world::Communicator;

/// Nobody's.
const NO_ROOT: Rank = Rank(0);

/// A collective, and the buffers that it is called with.
pub(super) struct Call<'b> {
    pub(super) plan: Plan,
    pub(super) places: Places<'b>,
    /// Where blocks differ in length.
    pub(super) tables: Option<Tables>,
}

impl<'b> Call<'b> {
    /// One whose blocks differ in length.
    pub(super) const fn varying(plan: Plan, places: Places<'b>, tables: Tables) -> Self {
        Self { plan, places, tables: Some(tables) }
    }

    /// Whether ranks of one node show each other their data: who has blocks of many lengths, one buffer for both, or brackets as other
    /// nodes have them, sends messages.
    pub(super) const fn is_shown(&self) -> bool {
        self.tables.is_none()
            && (!self.plan.in_place || matches!(self.plan.verb, Verb::Allreduce))
            && !matches!(self.plan.order, Order::Fixed)
    }

    /// Whether one rank copies its blocks at most.
    pub(super) const fn is_alone(&self) -> bool {
        self.plan.size == 1 && self.tables.is_none()
    }
}

/// A call, or what is wrong with it.
pub(super) type Checked<'b> = Result<Call<'b>, CollectiveError>;

impl Communicator {
    pub(super) fn call_barrier(&self) -> Call<'static> {
        Call { plan: self.plan::<u8>(Verb::Barrier, 0, NO_ROOT), places: Places::Both(&mut []), tables: None }
    }

    pub(super) fn call_broadcast<'b, T>(&self, data: &'b mut [T], root: Rank) -> Checked<'b>
    where
        T: IntoBytes + FromBytes,
    {
        let plan = self.plan::<T>(Verb::Broadcast, data.len(), self.root(root)?);
        Ok(Call { plan, places: Places::Both(data.as_mut_bytes()), tables: None })
    }

    pub(super) fn call_gather<'b, T>(&self, data: &'b [T], into: &'b mut [T], root: Rank) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        let plan = self.plan::<T>(Verb::Gather, data.len(), self.root(root)?);
        let into = if self.rank == root { self.whole(into, data.len())? } else { &mut [] };
        Ok(Call { plan, places: Places::Apart(data.as_bytes(), into.as_mut_bytes()), tables: None })
    }

    pub(super) fn call_scatter<'b, T>(&self, data: &'b [T], into: &'b mut [T], root: Rank) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        let plan = self.plan::<T>(Verb::Scatter, into.len(), self.root(root)?);
        let data = if self.rank == root { self.blocks(data, into.len())? } else { &[] };
        Ok(Call { plan, places: Places::Apart(data.as_bytes(), into.as_mut_bytes()), tables: None })
    }

    pub(super) fn call_all_gather<'b, T>(&self, data: &'b [T], into: &'b mut [T]) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        let plan = self.plan::<T>(Verb::Allgather, data.len(), NO_ROOT);
        let into = self.whole(into, data.len())?;
        Ok(Call { plan, places: Places::Apart(data.as_bytes(), into.as_mut_bytes()), tables: None })
    }

    pub(super) fn call_all_to_all<'b, T>(&self, data: &'b [T], into: &'b mut [T]) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        let block = data.len() / self.size as usize;
        let plan = self.plan::<T>(Verb::Alltoall, block, NO_ROOT);
        let (data, into) = (self.blocks(data, block)?, self.whole(into, block)?);
        Ok(Call { plan, places: Places::Apart(data.as_bytes(), into.as_mut_bytes()), tables: None })
    }

    pub(super) fn call_reduce<'b, T, O>(
        &self,
        data: &'b [T],
        into: &'b mut [T],
        operation: &O,
        root: Rank,
    ) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        let into = if self.rank == self.root(root)? { exactly(into, data.len())? } else { &mut [] };
        let places = Places::Apart(data.as_bytes(), into.as_mut_bytes());
        Ok(self.reduction(Verb::Reduce, data.len(), root, places, operation))
    }

    pub(super) fn call_all_reduce<'b, T, O>(&self, data: &'b [T], into: &'b mut [T], operation: &O) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        let places = Places::Apart(data.as_bytes(), exactly(into, data.len())?.as_mut_bytes());
        Ok(self.reduction(Verb::Allreduce, data.len(), NO_ROOT, places, operation))
    }

    pub(super) fn call_all_reduce_in_place<'b, T, O>(&self, data: &'b mut [T], operation: &O) -> Call<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        let count = data.len();
        self.reduction(Verb::Allreduce, count, NO_ROOT, Places::Both(data.as_mut_bytes()), operation)
    }

    pub(super) fn call_reduce_scatter<'b, T, O>(&self, data: &'b [T], into: &'b mut [T], operation: &O) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        let data = self.blocks(data, into.len())?;
        let (block, places) = (into.len(), Places::Apart(data.as_bytes(), into.as_mut_bytes()));
        Ok(self.reduction(Verb::ReduceScatter, block, NO_ROOT, places, operation))
    }

    /// Inclusive or exclusive.
    pub(super) fn call_scan<'b, T, O>(&self, verb: Verb, data: &'b [T], into: &'b mut [T], operation: &O) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        let places = Places::Apart(data.as_bytes(), exactly(into, data.len())?.as_mut_bytes());
        Ok(self.reduction(verb, data.len(), NO_ROOT, places, operation))
    }

    pub(super) fn reduction<'b, T, O: Operation<T>>(
        &self,
        verb: Verb,
        count: usize,
        root: Rank,
        places: Places<'b>,
        operation: &O,
    ) -> Call<'b> {
        let (order, kind) = (operation.order(), operation.kind());
        let in_place = matches!(places, Places::Both(_));
        let plan = Plan { grain: size_of::<T>().max(1), order, in_place, kind, ..self.plan::<T>(verb, count, root) };
        Call { plan, places, tables: None }
    }

    pub(super) fn plan<T>(&self, verb: Verb, count: usize, root: Rank) -> Plan {
        let (rank, root) = (Member(self.rank.0), Member(root.0));
        let kind = size_of::<T>() as u32;
        let (size, bytes) = (self.size, count * size_of::<T>());
        Plan { verb, rank, size, root, bytes, grain: 1, order: Order::Any, in_place: false, kind }
    }

    pub(super) fn root(&self, root: Rank) -> Result<Rank, CollectiveError> {
        if root.0 < self.size { Ok(root) } else { Err(CollectiveError::UnknownRank { rank: root, size: self.size }) }
    }

    /// A buffer for a block of everyone's.
    fn whole<'b, T>(&self, into: &'b mut [T], block: usize) -> Result<&'b mut [T], CollectiveError> {
        exactly(into, block.saturating_mul(self.size as usize))
    }

    /// Data with a block for everyone.
    fn blocks<'b, T>(&self, data: &'b [T], block: usize) -> Result<&'b [T], CollectiveError> {
        let needed = block.saturating_mul(self.size as usize);
        if data.len() == needed { Ok(data) } else { Err(CollectiveError::Length { needed, given: data.len() }) }
    }
}

/// A buffer of exactly so many elements.
fn exactly<T>(into: &mut [T], needed: usize) -> Result<&mut [T], CollectiveError> {
    if into.len() == needed { Ok(into) } else { Err(CollectiveError::Length { needed, given: into.len() }) }
}
