//! Vector collectives (MPI's v-variants), whose blocks differ in length. They use messages, on one node, too.

use unisono_core::collective::{CollectiveKind, CollectiveSpec};
use unisono_shmem::slot_collectives::data_executor::NoReduction;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::arguments::{CallBuffers, Checked, CollectiveArgs};
use super::error::CollectiveError;
use super::operation::Operation;
use super::partition::{BlockTable, BlockTables, Partition, PartitionMut, Shape};
use super::request::ImmediateResult;
use super::view::{AsView, AsViewMut, View, ViewMut};
use crate::world::communicator::Communicator;
use crate::world::request::scope::Scope;
use unisono_bootstrap::Rank;

impl Communicator {
    /// Gathers every rank's `data`, of any length, in its block of the root's `into` (`MPI_Gatherv`). Other ranks'
    /// `into` is unused and may have no blocks.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// // Rank i has i + 1 elements.
    /// let ranks = if world.rank() == Rank(0) { world.size() as usize } else { 0 };
    /// let (counts, places): (Vec<_>, Vec<_>) = (0..ranks).map(|rank| (rank + 1, rank * (rank + 1) / 2)).unzip();
    /// let (own, mut all) = (vec![7; world.rank().0 as usize + 1], vec![0; counts.iter().sum()]);
    /// world.gather_varcount_into(&own, PartitionMut::new(&mut all, &counts, &places)?, Rank(0))?;
    /// assert!(all.iter().all(|element| *element == 7));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn gather_varcount_into<T>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        into: PartitionMut<'_, T>,
        root: Rank,
    ) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        self.run(self.call_gather_varcount(data.as_view(), into, root)?, NoReduction)
    }

    /// Copies block i of the root's `data` to rank i's `into`, which has its length (`MPI_Scatterv`). Other ranks'
    /// `data` is unused.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// // Rank i gets i + 1 elements.
    /// let ranks = if world.rank() == Rank(0) { world.size() as usize } else { 0 };
    /// let (counts, places): (Vec<_>, Vec<_>) = (0..ranks).map(|rank| (rank + 1, rank * (rank + 1) / 2)).unzip();
    /// let (all, mut own) = (vec![7; counts.iter().sum()], vec![0; world.rank().0 as usize + 1]);
    /// world.scatter_varcount_into(&Partition::new(&all, &counts, &places)?, &mut own, Rank(0))?;
    /// assert!(own.iter().all(|element| *element == 7));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn scatter_varcount_into<T>(
        &self,
        data: &Partition<'_, T>,
        into: &mut (impl AsViewMut<T> + ?Sized),
        root: Rank,
    ) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        self.run(self.call_scatter_varcount(data, into.as_view_mut(), root)?, NoReduction)
    }

    /// Gathers every rank's `data`, of any length, in its block of every rank's `into` (`MPI_Allgatherv`). All ranks
    /// pass the same lengths.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// // Rank i has i + 1 elements.
    /// let (counts, places): (Vec<_>, Vec<_>) = (0..world.size() as usize).map(|i| (i + 1, i * (i + 1) / 2)).unzip();
    /// let (own, mut all) = (vec![7; world.rank().0 as usize + 1], vec![0; counts.iter().sum()]);
    /// world.all_gather_varcount_into(&own, PartitionMut::new(&mut all, &counts, &places)?)?;
    /// assert!(all.iter().all(|element| *element == 7));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn all_gather_varcount_into<T>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        into: PartitionMut<'_, T>,
    ) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        self.run(self.call_all_gather_varcount(data.as_view(), into)?, NoReduction)
    }

    /// Copies block j of rank i's `data` to block i of rank j's `into`, which has its length (`MPI_Alltoallv`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// // Two elements to each rank, and from each.
    /// let (counts, places): (Vec<_>, Vec<_>) = (0..world.size() as usize).map(|i| (2, 2 * i)).unzip();
    /// let (data, mut into) = (vec![7; 2 * counts.len()], vec![0; 2 * counts.len()]);
    /// let blocks = Partition::new(&data, &counts, &places)?;
    /// world.all_to_all_varcount_into(&blocks, PartitionMut::new(&mut into, &counts, &places)?)?;
    /// assert_eq!(into, data);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn all_to_all_varcount_into<T>(
        &self,
        data: &Partition<'_, T>,
        into: PartitionMut<'_, T>,
    ) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        self.run(self.call_all_to_all_varcount(data, into)?, NoReduction)
    }

    /// Reduces block i of every rank's `data` to rank i's `into`, which has its length (`MPI_Reduce_scatter`). All
    /// ranks pass the same lengths.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// // Rank i gets i + 1 sums.
    /// let (counts, places): (Vec<_>, Vec<_>) = (0..world.size() as usize).map(|i| (i + 1, i * (i + 1) / 2)).unzip();
    /// let (data, mut own) = (vec![1_u32; counts.iter().sum()], vec![0; world.rank().0 as usize + 1]);
    /// world.reduce_scatter_varcount_into(&Partition::new(&data, &counts, &places)?, &mut own, SystemOperation::sum())?;
    /// assert!(own.iter().all(|sum| *sum == world.size()));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn reduce_scatter_varcount_into<T, O>(
        &self,
        data: &Partition<'_, T>,
        into: &mut (impl AsViewMut<T> + ?Sized),
        operation: O,
    ) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        self.combine(self.call_reduce_scatter_varcount(data, into.as_view_mut(), &operation)?, operation)
    }

    pub(super) fn call_gather_varcount<'b, T>(
        &self,
        data: View<'b, T>,
        into: PartitionMut<'b, T>,
        root: Rank,
    ) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        let plan = self.plan::<T>(CollectiveKind::Gather, 0, self.root(root)?);
        let is_root = self.rank == root;
        if is_root {
            self.expect_blocks_fit(&into.table, data.count() * size_of::<T>())?;
        }
        let (output, target) =
            if is_root { (Some(into.table), into.data.as_view_mut()) } else { (None, ViewMut::default()) };
        let tables = BlockTables { input: None, output, own: data.count() * size_of::<T>() };
        Ok(CollectiveArgs::vector(plan, CallBuffers::separate(data, target), tables))
    }

    pub(super) fn call_scatter_varcount<'b, T>(
        &self,
        data: &Partition<'b, T>,
        into: ViewMut<'b, T>,
        root: Rank,
    ) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        let plan = self.plan::<T>(CollectiveKind::Scatter, 0, self.root(root)?);
        let is_root = self.rank == root;
        if is_root {
            self.expect_blocks_fit(&data.table, into.count() * size_of::<T>())?;
        }
        let (input, source) =
            if is_root { (Some(data.table.clone()), data.data.as_view()) } else { (None, View::default()) };
        let tables = BlockTables { input, output: None, own: into.count() * size_of::<T>() };
        Ok(CollectiveArgs::vector(plan, CallBuffers::separate(source, into), tables))
    }

    pub(super) fn call_all_gather_varcount<'b, T>(&self, data: View<'b, T>, into: PartitionMut<'b, T>) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        self.expect_blocks_fit(&into.table, data.count() * size_of::<T>())?;
        let plan =
            CollectiveSpec { bytes: self.mean(&into.table), ..self.plan::<T>(CollectiveKind::Allgather, 0, Rank(0)) };
        let tables = BlockTables { input: None, output: Some(into.table), own: data.count() * size_of::<T>() };
        Ok(CollectiveArgs::vector(plan, CallBuffers::separate(data, into.data.as_view_mut()), tables))
    }

    pub(super) fn call_all_to_all_varcount<'b, T>(
        &self,
        data: &Partition<'b, T>,
        into: PartitionMut<'b, T>,
    ) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        let own = into.table.bytes.get(self.rank.0 as usize).copied().unwrap_or_default();
        self.expect_blocks_fit(&data.table, own)?;
        self.expect_blocks_fit(&into.table, own)?;
        let plan = self.plan::<T>(CollectiveKind::Alltoall, 0, Rank(0));
        let tables = BlockTables { input: Some(data.table.clone()), output: Some(into.table), own: 0 };
        Ok(CollectiveArgs::vector(plan, CallBuffers::separate(data.data.as_view(), into.data.as_view_mut()), tables))
    }

    pub(super) fn call_reduce_scatter_varcount<'b, T, O>(
        &self,
        data: &Partition<'b, T>,
        into: ViewMut<'b, T>,
        operation: &O,
    ) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        self.expect_blocks_fit(&data.table, into.count() * size_of::<T>())?;
        let (mean, own) = (self.mean(&data.table), into.count() * size_of::<T>());
        let buffers = CallBuffers::separate(data.data.as_view(), into);
        let call = self.reduction(CollectiveKind::ReduceScatter, 0, Rank(0), buffers, operation);
        let tables = BlockTables { input: Some(data.table.clone()), output: None, own };
        Ok(CollectiveArgs {
            plan: CollectiveSpec { bytes: mean, ..call.plan },
            shape: Shape { tables: Some(tables), ..call.shape },
            ..call
        })
    }

    /// The mean block length in bytes, where all ranks know all blocks.
    fn mean(&self, table: &BlockTable) -> usize {
        table.total() / self.size as usize
    }

    /// Checks that there is a block for every rank, and that this rank's has `own` bytes.
    fn expect_blocks_fit(&self, table: &BlockTable, own: usize) -> Result<(), CollectiveError> {
        let (needed, given) = (self.size as usize, table.bytes.len());
        if given != needed {
            return Err(CollectiveError::Length { needed, given });
        }
        match table.bytes.get(self.rank.0 as usize) {
            Some(bytes) if *bytes != own => Err(CollectiveError::Length { needed: *bytes, given: own }),
            _ => Ok(()),
        }
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Starts [`gather_varcount_into`](Communicator::gather_varcount_into).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// // One element of each rank.
    /// let ranks = if world.rank() == Rank(0) { world.size() as usize } else { 0 };
    /// let (counts, places, mut all) = (vec![1; ranks], Vec::from_iter(0..ranks), vec![0; ranks]);
    /// let into = PartitionMut::new(&mut all, &counts, &places)?;
    /// world.scope(|scope| scope.immediate_gather_varcount_into(&[7], into, Rank(0))?.wait())?;
    /// assert_eq!(all, vec![7; ranks]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn immediate_gather_varcount_into<T>(
        &'scope self,
        data: &'scope (impl AsView<T> + ?Sized),
        into: PartitionMut<'scope, T>,
        root: Rank,
    ) -> ImmediateResult<'scope>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
    {
        self.begin(self.communicator().call_gather_varcount(data.as_view(), into, root)?, NoReduction)
    }

    /// Starts [`scatter_varcount_into`](Communicator::scatter_varcount_into).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// // One element for each rank.
    /// let ranks = if world.rank() == Rank(0) { world.size() as usize } else { 0 };
    /// let (counts, places, all, mut own) = (vec![1; ranks], Vec::from_iter(0..ranks), vec![7; ranks], [0]);
    /// let blocks = Partition::new(&all, &counts, &places)?;
    /// world.scope(|scope| scope.immediate_scatter_varcount_into(&blocks, &mut own, Rank(0))?.wait())?;
    /// assert_eq!(own, [7]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn immediate_scatter_varcount_into<T>(
        &'scope self,
        data: &Partition<'scope, T>,
        into: &'scope mut (impl AsViewMut<T> + ?Sized),
        root: Rank,
    ) -> ImmediateResult<'scope>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
    {
        self.begin(self.communicator().call_scatter_varcount(data, into.as_view_mut(), root)?, NoReduction)
    }

    /// Starts [`all_gather_varcount_into`](Communicator::all_gather_varcount_into).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// // One element of each rank.
    /// let ranks = world.size() as usize;
    /// let (counts, places, mut all) = (vec![1; ranks], Vec::from_iter(0..ranks), vec![0; ranks]);
    /// let into = PartitionMut::new(&mut all, &counts, &places)?;
    /// world.scope(|scope| scope.immediate_all_gather_varcount_into(&[7], into)?.wait())?;
    /// assert_eq!(all, vec![7; ranks]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn immediate_all_gather_varcount_into<T>(
        &'scope self,
        data: &'scope (impl AsView<T> + ?Sized),
        into: PartitionMut<'scope, T>,
    ) -> ImmediateResult<'scope>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
    {
        self.begin(self.communicator().call_all_gather_varcount(data.as_view(), into)?, NoReduction)
    }

    /// Starts [`all_to_all_varcount_into`](Communicator::all_to_all_varcount_into).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// // One element to each rank, and from each.
    /// let ranks = world.size() as usize;
    /// let (counts, places, data, mut all) = (vec![1; ranks], Vec::from_iter(0..ranks), vec![7; ranks], vec![0; ranks]);
    /// let (blocks, into) = (Partition::new(&data, &counts, &places)?, PartitionMut::new(&mut all, &counts, &places)?);
    /// world.scope(|scope| scope.immediate_all_to_all_varcount_into(&blocks, into)?.wait())?;
    /// assert_eq!(all, data);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn immediate_all_to_all_varcount_into<T>(
        &'scope self,
        data: &Partition<'scope, T>,
        into: PartitionMut<'scope, T>,
    ) -> ImmediateResult<'scope>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
    {
        self.begin(self.communicator().call_all_to_all_varcount(data, into)?, NoReduction)
    }

    /// Starts [`reduce_scatter_varcount_into`](Communicator::reduce_scatter_varcount_into).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// // One sum for each rank.
    /// let ranks = world.size() as usize;
    /// let (counts, places, data, mut own) = (vec![1; ranks], Vec::from_iter(0..ranks), vec![1_u32; ranks], [0]);
    /// let (blocks, sum) = (Partition::new(&data, &counts, &places)?, SystemOperation::sum());
    /// world.scope(|scope| scope.immediate_reduce_scatter_varcount_into(&blocks, &mut own, sum)?.wait())?;
    /// assert_eq!(own, [world.size()]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn immediate_reduce_scatter_varcount_into<T, O>(
        &'scope self,
        data: &Partition<'scope, T>,
        into: &'scope mut (impl AsViewMut<T> + ?Sized),
        operation: O,
    ) -> ImmediateResult<'scope>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
        O: Operation<T> + 'scope,
    {
        self.combine(self.communicator().call_reduce_scatter_varcount(data, into.as_view_mut(), &operation)?, operation)
    }
}
