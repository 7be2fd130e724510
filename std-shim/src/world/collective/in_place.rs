//! In-place collectives (`MPI_IN_PLACE`), whose result replaces the data. All of them but the allreduce use messages,
//! on one node, too.

use unisono_core::collective::{CollectiveKind, CollectiveSpec};
use unisono_shmem::slot_collectives::data_executor::NoReduction;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::arguments::{CallBuffers, Checked, CollectiveArgs};
use super::error::CollectiveError;
use super::operation::Operation;
use super::request::ImmediateResult;
use super::view::{AsViewMut, ViewMut};
use crate::world::communicator::Communicator;
use crate::world::request::scope::Scope;
use unisono_bootstrap::Rank;

macro_rules! moving {
    ($($(#[$doc:meta])* $name:ident, $immediate:ident, $call:ident($($root:ident)?) $data:literal;)*) => {
        impl Communicator { $(
            $(#[$doc])*
            ///
            /// ```
            /// use unisono::prelude::*;
            ///
            /// let (world, root) = (World::join()?, Rank(0));
            #[doc = concat!("let mut data = ", $data, ";")]
            #[doc = concat!("world.", stringify!($name), "(&mut data" $(, ", ", stringify!($root))?, ")?;")]
            /// # Ok::<(), Error>(())
            /// ```
            ///
            /// # Errors
            /// [`CollectiveError`].
            pub fn $name<T>(&self, data: &mut (impl AsViewMut<T> + ?Sized) $(, $root: Rank)?) -> Result<(), CollectiveError>
            where
                T: IntoBytes + FromBytes,
            {
                self.run(self.$call(data.as_view_mut() $(, $root)?)?, NoReduction)
            }
        )* }

        impl<'scope, 'env> Scope<'scope, 'env> { $(
            #[doc = concat!("Starts [`", stringify!($name), "`](Communicator::", stringify!($name), ").")]
            ///
            /// ```
            /// use unisono::prelude::*;
            ///
            /// let (world, root) = (World::join()?, Rank(0));
            #[doc = concat!("let mut data = ", $data, ";")]
            #[doc = concat!("world.scope(|scope| scope.", stringify!($immediate), "(&mut data" $(, ", ", stringify!($root))?, ")?.wait())?;")]
            /// # Ok::<(), Error>(())
            /// ```
            ///
            /// # Errors
            /// [`CollectiveError`].
            pub fn $immediate<T>(&'scope self, data: &'scope mut (impl AsViewMut<T> + ?Sized) $(, $root: Rank)?) -> ImmediateResult<'scope>
            where
                T: IntoBytes + FromBytes + 'scope,
            {
                self.begin(self.communicator().$call(data.as_view_mut() $(, $root)?)?, NoReduction)
            }
        )* }
    };
}

macro_rules! combining {
    ($($(#[$doc:meta])* $name:ident, $immediate:ident, $call:ident($($root:ident)?) $data:literal;)*) => {
        impl Communicator { $(
            $(#[$doc])*
            ///
            /// ```
            /// use unisono::prelude::*;
            ///
            /// let (world, root) = (World::join()?, Rank(0));
            #[doc = concat!("let mut data = ", $data, ";")]
            #[doc = concat!("world.", stringify!($name), "(&mut data, SystemOperation::sum()" $(, ", ", stringify!($root))?, ")?;")]
            /// # Ok::<(), Error>(())
            /// ```
            ///
            /// # Errors
            /// [`CollectiveError`].
            pub fn $name<T, O>(&self, data: &mut (impl AsViewMut<T> + ?Sized), operation: O $(, $root: Rank)?) -> Result<(), CollectiveError>
            where
                T: IntoBytes + FromBytes + Immutable,
                O: Operation<T>,
            {
                self.combine(self.$call(data.as_view_mut(), &operation $(, $root)?)?, operation)
            }
        )* }

        impl<'scope, 'env> Scope<'scope, 'env> { $(
            #[doc = concat!("Starts [`", stringify!($name), "`](Communicator::", stringify!($name), ").")]
            ///
            /// ```
            /// use unisono::prelude::*;
            ///
            /// let (world, root) = (World::join()?, Rank(0));
            #[doc = concat!("let mut data = ", $data, ";")]
            #[doc = concat!("world.scope(|scope| scope.", stringify!($immediate), "(&mut data, SystemOperation::sum()" $(, ", ", stringify!($root))?, ")?.wait())?;")]
            /// # Ok::<(), Error>(())
            /// ```
            ///
            /// # Errors
            /// [`CollectiveError`].
            pub fn $immediate<T, O>(
                &'scope self,
                data: &'scope mut (impl AsViewMut<T> + ?Sized),
                operation: O
                $(, $root: Rank)?
            ) -> ImmediateResult<'scope>
            where
                T: IntoBytes + FromBytes + Immutable + 'scope,
                O: Operation<T> + 'scope,
            {
                self.combine(self.communicator().$call(data.as_view_mut(), &operation $(, $root)?)?, operation)
            }
        )* }
    };
}

moving! {
    /// Gathers every rank's `data` at the root, whose own `data` has a block for every rank, with its own block in its
    /// place.
    gather_in_place, immediate_gather_in_place, call_gather_in_place(root)
        "vec![1_u32; if world.rank() == root { world.size() as usize } else { 1 }]";
    /// Copies block i of the root's `data` to rank i's `data`, which is as long as a block; the root's block stays in
    /// its place.
    scatter_in_place, immediate_scatter_in_place, call_scatter_in_place(root)
        "vec![1_u32; if world.rank() == root { world.size() as usize } else { 1 }]";
    /// Gathers every rank's own block in every rank's `data`, which has a block for every rank.
    all_gather_in_place, immediate_all_gather_in_place, call_all_gather_in_place()
        "vec![1_u32; world.size() as usize]";
    /// Exchanges block j of rank i's `data` with block i of rank j's `data`.
    all_to_all_in_place, immediate_all_to_all_in_place, call_all_to_all_in_place()
        "vec![1_u32; world.size() as usize]";
}

combining! {
    /// Reduces every rank's `data`; the result replaces the root's. The `data` of other ranks is unchanged.
    reduce_in_place, immediate_reduce_in_place, call_reduce_in_place(root)
        "vec![1_u32; 3]";
    /// Reduces block i of every rank's `data`, which has a block for every rank, to the beginning of rank i's `data`.
    /// The rest is unspecified afterwards.
    reduce_scatter_block_in_place, immediate_reduce_scatter_block_in_place, call_reduce_scatter_in_place()
        "vec![1_u32; world.size() as usize]";
    /// Reduces the `data` of ranks 0 to i; the result replaces rank i's.
    scan_in_place, immediate_scan_in_place, call_scan_in_place()
        "vec![1_u32; 3]";
    /// Reduces the `data` of ranks 0 to i − 1; the result replaces rank i's. Rank 0's `data` is unchanged.
    exclusive_scan_in_place, immediate_exclusive_scan_in_place, call_exclusive_scan_in_place()
        "vec![1_u32; 3]";
}

impl Communicator {
    /// A call whose specification says in place on all ranks, also on those that have only one buffer anyway.
    fn in_place<'b>(plan: CollectiveSpec, buffers: CallBuffers<'b>) -> CollectiveArgs<'b> {
        CollectiveArgs::new(CollectiveSpec { in_place: true, ..plan }, buffers)
    }

    /// Elements of a block, where `data` has one for every rank.
    fn block_of<T>(&self, data: &ViewMut<'_, T>) -> Result<usize, CollectiveError> {
        let (given, size) = (data.count(), self.size as usize);
        let block = given.checked_div(size).unwrap_or(0);
        let needed = block.saturating_mul(size);
        if needed == given { Ok(block) } else { Err(CollectiveError::Length { needed, given }) }
    }

    pub(super) fn call_gather_in_place<'b, T: IntoBytes + FromBytes>(
        &self,
        data: ViewMut<'b, T>,
        root: Rank,
    ) -> Checked<'b> {
        let is_root = self.rank == self.root(root)?;
        let block = if is_root { self.block_of(&data)? } else { data.count() };
        let plan = self.plan::<T>(CollectiveKind::Gather, block, root);
        Ok(Self::in_place(plan, if is_root { CallBuffers::in_place(data) } else { CallBuffers::input_only(data) }))
    }

    pub(super) fn call_scatter_in_place<'b, T: IntoBytes + FromBytes>(
        &self,
        data: ViewMut<'b, T>,
        root: Rank,
    ) -> Checked<'b> {
        let is_root = self.rank == self.root(root)?;
        let block = if is_root { self.block_of(&data)? } else { data.count() };
        let plan = self.plan::<T>(CollectiveKind::Scatter, block, root);
        Ok(Self::in_place(plan, if is_root { CallBuffers::in_place(data) } else { CallBuffers::output_only(data) }))
    }

    pub(super) fn call_all_gather_in_place<'b, T: IntoBytes + FromBytes>(&self, data: ViewMut<'b, T>) -> Checked<'b> {
        let plan = self.plan::<T>(CollectiveKind::Allgather, self.block_of(&data)?, Rank(0));
        Ok(Self::in_place(plan, CallBuffers::in_place(data)))
    }

    pub(super) fn call_all_to_all_in_place<'b, T: IntoBytes + FromBytes>(&self, data: ViewMut<'b, T>) -> Checked<'b> {
        let plan = self.plan::<T>(CollectiveKind::Alltoall, self.block_of(&data)?, Rank(0));
        Ok(Self::in_place(plan, CallBuffers::in_place(data)))
    }

    pub(super) fn call_reduce_in_place<'b, T, O>(&self, data: ViewMut<'b, T>, operation: &O, root: Rank) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        let (is_root, count) = (self.rank == self.root(root)?, data.count());
        let buffers = if is_root { CallBuffers::in_place(data) } else { CallBuffers::input_only(data) };
        let call = self.reduction(CollectiveKind::Reduce, count, root, buffers, operation);
        Ok(CollectiveArgs { plan: CollectiveSpec { in_place: true, ..call.plan }, ..call })
    }

    pub(super) fn call_reduce_scatter_in_place<'b, T, O>(&self, data: ViewMut<'b, T>, operation: &O) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        let block = self.block_of(&data)?;
        Ok(self.reduction(CollectiveKind::ReduceScatter, block, Rank(0), CallBuffers::in_place(data), operation))
    }

    pub(super) fn call_scan_in_place<'b, T, O>(&self, data: ViewMut<'b, T>, operation: &O) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        let count = data.count();
        Ok(self.reduction(CollectiveKind::Scan, count, Rank(0), CallBuffers::in_place(data), operation))
    }

    pub(super) fn call_exclusive_scan_in_place<'b, T, O>(&self, data: ViewMut<'b, T>, operation: &O) -> Checked<'b>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        let count = data.count();
        Ok(self.reduction(CollectiveKind::Exscan, count, Rank(0), CallBuffers::in_place(data), operation))
    }
}
