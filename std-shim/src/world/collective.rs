//! Collectives: what all ranks of the job do together, under the names that Rust's MPI users know.
//!
//! All ranks call the same collectives in the same order, with the same lengths, root, type and operation; who does not is told so.
//! Blocks lie in rank order.

mod element;
mod error;
mod group;
mod operation;
mod pull;
mod request;
pub(super) mod running;
pub(super) mod schedule;
mod store;
pub(super) mod table;
pub(super) mod transfer;

pub use element::Element;
pub use error::CollectiveError;
pub use operation::{Operation, SystemOperation, UserOperation};
pub use request::CollectiveRequest;

pub(super) use group::Group;
pub(super) use request::Begun;

use core::mem::size_of;

use unisono_core::collective::{Order, Plan, Rank as Member, Verb};
use unisono_shmem::payload::{Moves, Operate};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::World;
use crate::rank::Rank;
use group::Places;

/// Nobody's.
const NO_ROOT: Rank = Rank(0);

impl World {
    /// Waits until every rank has called this.
    ///
    /// # Errors
    /// [`CollectiveError`], as of all collectives. After an error that names a rank, every further collective fails.
    #[inline]
    pub fn barrier(&self) -> Result<(), CollectiveError> {
        match &self.group {
            Some(group) => group.barrier(self),
            None => self.run(&self.plan::<u8>(Verb::Barrier, 0, NO_ROOT), Places::Both(&mut []), Moves),
        }
    }

    /// The root's `data` replaces everyone else's.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn broadcast_into<T>(&self, data: &mut [T], root: Rank) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes,
    {
        let plan = self.plan::<T>(Verb::Broadcast, data.len(), self.root(root)?);
        self.run(&plan, Places::Both(data.as_mut_bytes()), Moves)
    }

    /// Everyone's `data`, in rank order, to the root's `into`; the others' `into` is left alone and may be empty.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn gather_into<T>(&self, data: &[T], into: &mut [T], root: Rank) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        let plan = self.plan::<T>(Verb::Gather, data.len(), self.root(root)?);
        let into = if self.rank == root { self.whole(into, data.len())? } else { &mut [] };
        self.run(&plan, Places::Apart(data.as_bytes(), into.as_mut_bytes()), Moves)
    }

    /// Block i of the root's `data` to rank i's `into`; the others' `data` is not looked at and may be empty.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn scatter_into<T>(&self, data: &[T], into: &mut [T], root: Rank) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        let plan = self.plan::<T>(Verb::Scatter, into.len(), self.root(root)?);
        let data = if self.rank == root { self.blocks(data, into.len())? } else { &[] };
        self.run(&plan, Places::Apart(data.as_bytes(), into.as_mut_bytes()), Moves)
    }

    /// Everyone's `data`, in rank order, to everyone's `into`.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn all_gather_into<T>(&self, data: &[T], into: &mut [T]) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        let plan = self.plan::<T>(Verb::Allgather, data.len(), NO_ROOT);
        let into = self.whole(into, data.len())?;
        self.run(&plan, Places::Apart(data.as_bytes(), into.as_mut_bytes()), Moves)
    }

    /// Block j of rank i's `data` to block i of rank j's `into`.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn all_to_all_into<T>(&self, data: &[T], into: &mut [T]) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        let block = data.len() / self.size as usize;
        let plan = self.plan::<T>(Verb::Alltoall, block, NO_ROOT);
        let (data, into) = (self.blocks(data, block)?, self.whole(into, block)?);
        self.run(&plan, Places::Apart(data.as_bytes(), into.as_mut_bytes()), Moves)
    }

    /// Everyone's `data`, combined, to the root's `into`; the others' `into` is left alone and may be empty.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn reduce_into<T, O>(&self, data: &[T], into: &mut [T], operation: O, root: Rank) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        let into = if self.rank == self.root(root)? { exactly(into, data.len())? } else { &mut [] };
        self.combine(Verb::Reduce, data.len(), root, Places::Apart(data.as_bytes(), into.as_mut_bytes()), operation)
    }

    /// Everyone's `data`, combined, to everyone's `into`: the same bits everywhere.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn all_reduce_into<T, O>(&self, data: &[T], into: &mut [T], operation: O) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        let into = exactly(into, data.len())?;
        let places = Places::Apart(data.as_bytes(), into.as_mut_bytes());
        self.combine(Verb::Allreduce, data.len(), NO_ROOT, places, operation)
    }

    /// As [`all_reduce_into`](Self::all_reduce_into), in place.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn all_reduce_in_place<T, O>(&self, data: &mut [T], operation: O) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        self.combine(Verb::Allreduce, data.len(), NO_ROOT, Places::Both(data.as_mut_bytes()), operation)
    }

    /// Block i of everyone's `data`, combined, to rank i's `into`.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn reduce_scatter_block_into<T, O>(
        &self,
        data: &[T],
        into: &mut [T],
        operation: O,
    ) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        let data = self.blocks(data, into.len())?;
        let (block, places) = (into.len(), Places::Apart(data.as_bytes(), into.as_mut_bytes()));
        self.combine(Verb::ReduceScatter, block, NO_ROOT, places, operation)
    }

    /// The `data` of ranks 0 to i, combined, to rank i's `into`.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn scan_into<T, O>(&self, data: &[T], into: &mut [T], operation: O) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        let into = exactly(into, data.len())?;
        let places = Places::Apart(data.as_bytes(), into.as_mut_bytes());
        self.combine(Verb::Scan, data.len(), NO_ROOT, places, operation)
    }

    /// The `data` of ranks 0 to i − 1, combined, to rank i's `into`; rank 0's is left alone.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn exclusive_scan_into<T, O>(&self, data: &[T], into: &mut [T], operation: O) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        let into = exactly(into, data.len())?;
        let places = Places::Apart(data.as_bytes(), into.as_mut_bytes());
        self.combine(Verb::Exscan, data.len(), NO_ROOT, places, operation)
    }

    fn combine<T, O: Operation<T>>(
        &self,
        verb: Verb,
        count: usize,
        root: Rank,
        places: Places<'_>,
        operation: O,
    ) -> Result<(), CollectiveError> {
        let (order, kind) = (operation.order(), operation.kind());
        let operate = operation.operate().ok_or(CollectiveError::Undefined)?;
        let in_place = matches!(places, Places::Both(_));
        let plan = Plan { grain: size_of::<T>().max(1), order, in_place, kind, ..self.plan::<T>(verb, count, root) };
        self.run(&plan, places, operate)
    }

    fn run(
        &self,
        plan: &Plan,
        places: Places<'_>,
        operate: impl Operate + Send,
    ) -> Result<(), CollectiveError> {
        match &self.group {
            Some(group) => group.run(self, plan, places, operate),
            None if self.size == 1 => {
                places.copy_alone(plan.verb);
                Ok(())
            }
            None => {
                // SAFETY: what is lent outlives this call, which waits for the end.
                let begun = unsafe { self.begin(plan, places, Box::new(operate)) }?;
                self.wait_for(begun)
            }
        }
    }

    fn plan<T>(&self, verb: Verb, count: usize, root: Rank) -> Plan {
        let (rank, root) = (Member(self.rank.0), Member(root.0));
        let kind = size_of::<T>() as u32;
        let (size, bytes) = (self.size, count * size_of::<T>());
        Plan { verb, rank, size, root, bytes, grain: 1, order: Order::Any, in_place: false, kind }
    }

    fn root(&self, root: Rank) -> Result<Rank, CollectiveError> {
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
