//! Persistent vector collectives: block lengths and places are fixed, the contents are new at each start.

use unisono_shmem::slot_collectives::data_executor::NoReduction;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{CallOutline, PersistentResult};
use crate::world::collective::operation::Operation;
use crate::world::collective::partition::PartitionMut;
use crate::world::collective::view::{AsView as _, AsViewMut};
use crate::world::request::scope::Scope;
use unisono_bootstrap::Rank;

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Prepares [`gather_varcount_into`](crate::world::Communicator::gather_varcount_into).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let ranks = if world.rank() == Rank(0) { world.size() as usize } else { 0 };
    /// let (counts, places, mut own, mut all) = (vec![1; ranks], Vec::from_iter(0..ranks), [7], vec![0; ranks]);
    /// let into = PartitionMut::new(&mut all, &counts, &places)?;
    /// world.scope(|scope| {
    ///     let mut request = scope.persistent_gather_varcount_into(&mut own, into, Rank(0))?;
    ///     request.start()?;
    ///     request.wait()
    /// })?;
    /// assert_eq!(all, vec![7; ranks]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`](crate::world::collective::CollectiveError), as of all the calls below.
    pub fn persistent_gather_varcount_into<T>(
        &'scope self,
        data: &'scope mut (impl AsViewMut<T> + ?Sized),
        mut into: PartitionMut<'scope, T>,
        root: Rank,
    ) -> PersistentResult<'scope, T>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
    {
        let data = data.as_view_mut();
        let outline =
            CallOutline::of(self.communicator().call_gather_varcount(data.as_view(), into.reborrow(), root)?);
        self.persist(data.whole(), into.whole(), outline, Some(NoReduction))
    }

    /// Prepares [`scatter_varcount_into`](crate::world::Communicator::scatter_varcount_into).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let ranks = if world.rank() == Rank(0) { world.size() as usize } else { 0 };
    /// let (counts, places, mut all, mut own) = (vec![1; ranks], Vec::from_iter(0..ranks), vec![7; ranks], [0]);
    /// let blocks = PartitionMut::new(&mut all, &counts, &places)?;
    /// world.scope(|scope| {
    ///     let mut request = scope.persistent_scatter_varcount_into(blocks, &mut own, Rank(0))?;
    ///     request.start()?;
    ///     request.wait()
    /// })?;
    /// assert_eq!(own, [7]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As of [`persistent_gather_varcount_into`](Self::persistent_gather_varcount_into).
    pub fn persistent_scatter_varcount_into<T>(
        &'scope self,
        data: PartitionMut<'scope, T>,
        into: &'scope mut (impl AsViewMut<T> + ?Sized),
        root: Rank,
    ) -> PersistentResult<'scope, T>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
    {
        let mut into = into.as_view_mut();
        let call = self.communicator().call_scatter_varcount(&data.as_partition(), into.as_view_mut(), root)?;
        let outline = CallOutline::of(call);
        self.persist(data.whole(), into.whole(), outline, Some(NoReduction))
    }

    /// Prepares [`all_gather_varcount_into`](crate::world::Communicator::all_gather_varcount_into).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let ranks = world.size() as usize;
    /// let (counts, places, mut own, mut all) = (vec![1; ranks], Vec::from_iter(0..ranks), [7], vec![0; ranks]);
    /// let into = PartitionMut::new(&mut all, &counts, &places)?;
    /// world.scope(|scope| {
    ///     let mut request = scope.persistent_all_gather_varcount_into(&mut own, into)?;
    ///     request.start()?;
    ///     request.wait()
    /// })?;
    /// assert_eq!(all, vec![7; ranks]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As of [`persistent_gather_varcount_into`](Self::persistent_gather_varcount_into).
    pub fn persistent_all_gather_varcount_into<T>(
        &'scope self,
        data: &'scope mut (impl AsViewMut<T> + ?Sized),
        mut into: PartitionMut<'scope, T>,
    ) -> PersistentResult<'scope, T>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
    {
        let data = data.as_view_mut();
        let outline = CallOutline::of(self.communicator().call_all_gather_varcount(data.as_view(), into.reborrow())?);
        self.persist(data.whole(), into.whole(), outline, Some(NoReduction))
    }

    /// Prepares [`all_to_all_varcount_into`](crate::world::Communicator::all_to_all_varcount_into).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let ranks = world.size() as usize;
    /// let (counts, places, mut data, mut all) = (vec![1; ranks], Vec::from_iter(0..ranks), vec![7; ranks], vec![0; ranks]);
    /// let blocks = PartitionMut::new(&mut data, &counts, &places)?;
    /// let into = PartitionMut::new(&mut all, &counts, &places)?;
    /// world.scope(|scope| {
    ///     let mut request = scope.persistent_all_to_all_varcount_into(blocks, into)?;
    ///     request.start()?;
    ///     request.wait()
    /// })?;
    /// assert_eq!(all, vec![7; ranks]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As of [`persistent_gather_varcount_into`](Self::persistent_gather_varcount_into).
    pub fn persistent_all_to_all_varcount_into<T>(
        &'scope self,
        data: PartitionMut<'scope, T>,
        mut into: PartitionMut<'scope, T>,
    ) -> PersistentResult<'scope, T>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
    {
        let call = self.communicator().call_all_to_all_varcount(&data.as_partition(), into.reborrow())?;
        let outline = CallOutline::of(call);
        self.persist(data.whole(), into.whole(), outline, Some(NoReduction))
    }

    /// Prepares [`reduce_scatter_varcount_into`](crate::world::Communicator::reduce_scatter_varcount_into).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let ranks = world.size() as usize;
    /// let (counts, places, mut data, mut own) = (vec![1; ranks], Vec::from_iter(0..ranks), vec![1_u32; ranks], [0]);
    /// let blocks = PartitionMut::new(&mut data, &counts, &places)?;
    /// world.scope(|scope| {
    ///     let mut request = scope.persistent_reduce_scatter_varcount_into(blocks, &mut own, SystemOperation::sum())?;
    ///     request.start()?;
    ///     request.wait()
    /// })?;
    /// assert_eq!(own, [world.size()]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As of [`persistent_gather_varcount_into`](Self::persistent_gather_varcount_into).
    pub fn persistent_reduce_scatter_varcount_into<T, O>(
        &'scope self,
        data: PartitionMut<'scope, T>,
        into: &'scope mut (impl AsViewMut<T> + ?Sized),
        operation: O,
    ) -> PersistentResult<'scope, T>
    where
        T: IntoBytes + FromBytes + Immutable + 'scope,
        O: Operation<T> + 'scope,
    {
        let mut into = into.as_view_mut();
        let (communicator, parts) = (self.communicator(), data.as_partition());
        let outline =
            CallOutline::of(communicator.call_reduce_scatter_varcount(&parts, into.as_view_mut(), &operation)?);
        self.persist(data.whole(), into.whole(), outline, operation.operate())
    }
}
