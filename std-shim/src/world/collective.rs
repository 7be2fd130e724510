//! Collectives of a communicator, with names as in rsmpi.
//!
//! All members call the same collectives in the same order, with the same lengths, root, type and operation; a member
//! that does not gets an error. Blocks are in rank order. Where all members share the memory of one node, they exchange
//! data there; otherwise a schedule (`unisono_core::schedule`) is executed by messages, through rings between ranks of
//! a node and by datagrams between others. A [`Scope`](super::Scope) starts nonblocking and persistent collectives.

mod all_to_all_w;
mod arguments;
pub(super) mod call_log;
mod complex;
mod disagreement;
mod element;
pub(super) mod engine;
pub(super) mod error;
mod immediate;
mod in_place;
pub(super) mod intra_node;
mod minloc;
pub(super) mod operation;
mod pack;
pub(super) mod partition;
pub(super) mod persistent;
pub(super) mod raw;
pub(super) mod record;
pub(super) mod request;
pub(super) mod typed_blocks;
mod vector_collectives;
mod view;

pub use call_log::CollectiveCall;
pub use complex::Complex;
pub use element::Element;
pub use error::CollectiveError;
pub use minloc::ValueIndex;
pub use operation::{Operation, Reproducible, SystemOperation, UserOperation};
pub use partition::{Partition, PartitionMut};
pub use persistent::PersistentRequest;
pub use record::CollectiveRecord;
pub use request::CollectiveRequest;
pub use typed_blocks::{TypedBlocks, TypedBlocksMut};
pub use view::{AsView, AsViewMut, Vector, View, ViewMut};

use unisono_core::collective::{CollectiveKind, type_code};
use unisono_shmem::slot_collectives::data_executor::{NoReduction, ReductionOp};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::communicator::Communicator;
use super::process::Process;
use arguments::CollectiveArgs;
use unisono_bootstrap::Rank;

impl Communicator {
    /// Waits until every rank has called this (`MPI_Barrier`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// world.barrier()?;
    /// // Every rank has called it.
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`], as of all collectives. After an error that names a rank, every further collective of this
    /// communicator fails.
    #[inline]
    pub fn barrier(&self) -> Result<(), CollectiveError> {
        match &self.intra_node {
            Some(on_node) => {
                // Not recorded: shared memory compares the calls itself.
                self.count_call();
                on_node.barrier(self).map_err(|error| self.explained(error))
            }
            None => self.run(self.call_barrier(), NoReduction),
        }
    }

    /// Copies the root's `data` to the `data` of all other ranks (`MPI_Bcast`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut numbers = [0_u32; 3];
    /// if world.rank() == Rank(0) {
    ///     numbers = [1, 2, 3];
    /// }
    /// world.broadcast_into(&mut numbers, Rank(0))?;
    /// assert_eq!(numbers, [1, 2, 3]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    #[inline]
    pub fn broadcast_into<T>(&self, data: &mut (impl AsViewMut<T> + ?Sized), root: Rank) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes,
    {
        let mut data = data.as_view_mut();
        let bytes = data.count() * size_of::<T>();
        if let (Some(on_node), Some(dense)) = (&self.intra_node, data.dense())
            && let Some(repeated) = on_node.repeat_broadcast(dense, type_code::<T>(), root, self.call().wrapping_add(1))
        {
            self.record_repeat(repeated, || CollectiveCall::broadcast::<T>(root, bytes));
            return Ok(());
        }
        self.run(self.call_broadcast(data, root)?, NoReduction)
    }

    /// Gathers every rank's `data`, in rank order, in the root's `into`, which has size × `data` elements
    /// (`MPI_Gather`). Other ranks' `into` is unused and may be empty.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut all = vec![0; if world.rank() == Rank(0) { world.size() as usize } else { 0 }];
    /// world.gather_into(&[world.rank().0], &mut all, Rank(0))?;
    /// assert!(all.iter().copied().eq(0..all.len() as u32));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn gather_into<T>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        into: &mut (impl AsViewMut<T> + ?Sized),
        root: Rank,
    ) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        self.run(self.call_gather(data.as_view(), into.as_view_mut(), root)?, NoReduction)
    }

    /// Copies block i of the root's `data`, which has size × `into` elements, to rank i's `into` (`MPI_Scatter`). Other
    /// ranks' `data` is unused and may be empty.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let blocks: Vec<u32> = if world.rank() == Rank(0) { (0..world.size()).collect() } else { Vec::new() };
    /// let mut own = 9;
    /// world.scatter_into(&blocks, &mut own, Rank(0))?;
    /// assert_eq!(own, world.rank().0);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn scatter_into<T>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        into: &mut (impl AsViewMut<T> + ?Sized),
        root: Rank,
    ) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        self.run(self.call_scatter(data.as_view(), into.as_view_mut(), root)?, NoReduction)
    }

    /// Gathers every rank's `data`, in rank order, in every rank's `into`, which has size × `data` elements
    /// (`MPI_Allgather`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut all = vec![0; world.size() as usize];
    /// world.all_gather_into(&[world.rank().0], &mut all)?;
    /// assert!(all.into_iter().eq(0..world.size()));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn all_gather_into<T>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        into: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        self.run(self.call_all_gather(data.as_view(), into.as_view_mut())?, NoReduction)
    }

    /// Copies block j of rank i's `data` to block i of rank j's `into`; both have the same number of elements, a
    /// multiple of size (`MPI_Alltoall`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let to_each: Vec<[u32; 2]> = (0..world.size()).map(|to| [world.rank().0, to]).collect();
    /// let mut from_each = vec![[0; 2]; to_each.len()];
    /// world.all_to_all_into(&to_each, &mut from_each)?;
    /// assert!(from_each.into_iter().eq((0..world.size()).map(|from| [from, world.rank().0])));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn all_to_all_into<T>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        into: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        self.run(self.call_all_to_all(data.as_view(), into.as_view_mut())?, NoReduction)
    }

    /// Reduces every rank's `data`, element by element, to the root's `into`, which is as long (`MPI_Reduce`). Other
    /// ranks' `into` is unused and may be empty.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut sum = [0];
    /// world.reduce_into(&[1_u32], &mut sum, SystemOperation::sum(), Rank(0))?;
    /// assert!(world.rank() != Rank(0) || sum == [world.size()]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn reduce_into<T, O>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        into: &mut (impl AsViewMut<T> + ?Sized),
        operation: O,
        root: Rank,
    ) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        self.combine(self.call_reduce(data.as_view(), into.as_view_mut(), &operation, root)?, operation)
    }

    /// Reduces every rank's `data`, element by element, to every rank's `into`, which is as long (`MPI_Allreduce`). All
    /// ranks get the same bits.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut most = [0];
    /// world.all_reduce_into(&[world.rank().0], &mut most, SystemOperation::max())?;
    /// assert_eq!(most, [world.size() - 1]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn all_reduce_into<T, O>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        into: &mut (impl AsViewMut<T> + ?Sized),
        operation: O,
    ) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        self.combine(self.call_all_reduce(data.as_view(), into.as_view_mut(), &operation)?, operation)
    }

    /// As [`all_reduce_into`](Self::all_reduce_into), where the result replaces `data` (`MPI_IN_PLACE`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut ranks = 1_u32;
    /// world.all_reduce_in_place(&mut ranks, SystemOperation::sum())?;
    /// assert_eq!(ranks, world.size());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn all_reduce_in_place<T, O>(
        &self,
        data: &mut (impl AsViewMut<T> + ?Sized),
        operation: O,
    ) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        self.combine(self.call_all_reduce_in_place(data.as_view_mut(), &operation)?, operation)
    }

    /// Reduces block i of every rank's `data`, which has size × `into` elements, to rank i's `into`
    /// (`MPI_Reduce_scatter_block`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (blocks, mut own) = (vec![1_u32; world.size() as usize], [0]);
    /// world.reduce_scatter_block_into(&blocks, &mut own, SystemOperation::sum())?;
    /// assert_eq!(own, [world.size()]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn reduce_scatter_block_into<T, O>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        into: &mut (impl AsViewMut<T> + ?Sized),
        operation: O,
    ) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        self.combine(self.call_reduce_scatter(data.as_view(), into.as_view_mut(), &operation)?, operation)
    }

    /// Reduces the `data` of ranks 0 to i to rank i's `into`, which is as long (`MPI_Scan`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut before = [0];
    /// world.scan_into(&[1_u32], &mut before, SystemOperation::sum())?;
    /// assert_eq!(before, [world.rank().0 + 1]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn scan_into<T, O>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        into: &mut (impl AsViewMut<T> + ?Sized),
        operation: O,
    ) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        self.combine(self.call_scan(CollectiveKind::Scan, data.as_view(), into.as_view_mut(), &operation)?, operation)
    }

    /// Reduces the `data` of ranks 0 to i − 1 to rank i's `into`, which is as long (`MPI_Exscan`); rank 0's `into` is
    /// unchanged.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut offset = [0];
    /// world.exclusive_scan_into(&[1_u32], &mut offset, SystemOperation::sum())?;
    /// assert_eq!(offset, [world.rank().0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn exclusive_scan_into<T, O>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        into: &mut (impl AsViewMut<T> + ?Sized),
        operation: O,
    ) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        self.combine(self.call_scan(CollectiveKind::Exscan, data.as_view(), into.as_view_mut(), &operation)?, operation)
    }

    fn combine<T, O: Operation<T>>(&self, call: CollectiveArgs<'_>, operation: O) -> Result<(), CollectiveError> {
        self.run(call, operation.operate().ok_or(CollectiveError::Undefined)?)
    }

    fn run(&self, call: CollectiveArgs<'_>, operate: impl ReductionOp + Send) -> Result<(), CollectiveError> {
        let digest = self.record(call.description());
        self.execute(call, digest, operate).map_err(|error| self.explained(error))
    }

    /// Executes a call. `digest`: of the calls that it has to compare.
    fn execute(
        &self,
        call: CollectiveArgs<'_>,
        digest: u32,
        operate: impl ReductionOp + Send,
    ) -> Result<(), CollectiveError> {
        match &self.intra_node {
            Some(on_node) if call.uses_slots() && on_node.supports(&call.plan) => {
                let ended = call.packed(|plan, places| on_node.run(self, plan, places, operate));
                // This rank had no memory for packing, which the others cannot know.
                if ended == Err(CollectiveError::TooLong) {
                    on_node.fail(self, CollectiveError::TooLong);
                }
                ended
            }
            _ if call.is_single_rank() => self.copy_alone(call),
            _ => {
                let passed =
                    self.intra_node.as_ref().map(|on_node| on_node.publish_call(self, &call.plan)).transpose()?;
                let note = |process: &mut Process, begun| process.record_call(begun, passed);
                // SAFETY: the borrowed buffers outlive this call, which waits for the end.
                let begun = unsafe { self.begin(call, digest, Box::new(operate), note) }?;
                self.wait_for(begun)
            }
        }
    }
}
