//! Collectives: what all ranks of the job do together, under the names that Rust's MPI users know.
//!
//! All ranks call the same collectives in the same order, with the same lengths, root, type and operation; who does not is told so.
//! Blocks lie in rank order. Ranks that share the memory of one node show each other their data there; other jobs follow a schedule
//! (`unisono_core::schedule`), by rings between ranks of a node and by datagrams between others. A [`Scope`](super::Scope) begins
//! collectives that go on while the caller does something else.

mod call;
mod complex;
pub(super) mod context;
mod element;
mod error;
mod immediate;
mod in_place;
mod located;
pub(super) mod node_group;
mod operation;
pub(super) mod partition;
mod persistent;
mod pull;
mod request;
pub(super) mod rooms;
pub(super) mod running;
pub(super) mod schedule;
pub(super) mod store;
mod strided;
pub(super) mod table;
pub(super) mod transfer;
mod varying;
mod view;

pub use complex::Complex;
pub use element::Element;
pub use error::CollectiveError;
pub use located::Located;
pub use operation::{Operation, Reproducible, SystemOperation, UserOperation};
pub use partition::{Partition, PartitionMut};
pub use persistent::PersistentRequest;
pub use request::CollectiveRequest;
pub use view::{AsView, AsViewMut, Vector, View, ViewMut};

pub(super) use node_group::NodeGroup;
pub(super) use request::Begun;

use unisono_core::collective::Verb;
use unisono_shmem::slot_collectives::data_executor::{Moves, Operate};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::Communicator;
use super::process::Process;
use crate::rank::Rank;
use call::Call;

impl Communicator {
    /// Waits until every rank has called this.
    ///
    /// # Errors
    /// [`CollectiveError`], as of all collectives. After an error that names a rank, every further collective fails.
    #[inline]
    pub fn barrier(&self) -> Result<(), CollectiveError> {
        match &self.on_node {
            Some(on_node) => on_node.barrier(self),
            None => self.run(self.call_barrier(), Moves),
        }
    }

    /// The root's `data` replaces everyone else's.
    ///
    /// # Errors
    /// [`CollectiveError`].
    #[inline]
    pub fn broadcast_into<T>(&self, data: &mut (impl AsViewMut<T> + ?Sized), root: Rank) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes,
    {
        let mut data = data.as_view_mut();
        if let (Some(on_node), Some(bytes)) = (&self.on_node, data.dense())
            && on_node.broadcast_again(bytes, size_of::<T>() as u32, root)
        {
            return Ok(());
        }
        self.run(self.call_broadcast(data, root)?, Moves)
    }

    /// Everyone's `data`, in rank order, to the root's `into`; the others' `into` is left alone and may be empty.
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
        self.run(self.call_gather(data.as_view(), into.as_view_mut(), root)?, Moves)
    }

    /// Block i of the root's `data` to rank i's `into`; the others' `data` is not looked at and may be empty.
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
        self.run(self.call_scatter(data.as_view(), into.as_view_mut(), root)?, Moves)
    }

    /// Everyone's `data`, in rank order, to everyone's `into`.
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
        self.run(self.call_all_gather(data.as_view(), into.as_view_mut())?, Moves)
    }

    /// Block j of rank i's `data` to block i of rank j's `into`.
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
        self.run(self.call_all_to_all(data.as_view(), into.as_view_mut())?, Moves)
    }

    /// Everyone's `data`, combined, to the root's `into`; the others' `into` is left alone and may be empty.
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

    /// Everyone's `data`, combined, to everyone's `into`: the same bits everywhere.
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

    /// As [`all_reduce_into`](Self::all_reduce_into), in place.
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

    /// Block i of everyone's `data`, combined, to rank i's `into`.
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

    /// The `data` of ranks 0 to i, combined, to rank i's `into`.
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
        self.combine(self.call_scan(Verb::Scan, data.as_view(), into.as_view_mut(), &operation)?, operation)
    }

    /// The `data` of ranks 0 to i − 1, combined, to rank i's `into`; rank 0's is left alone.
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
        self.combine(self.call_scan(Verb::Exscan, data.as_view(), into.as_view_mut(), &operation)?, operation)
    }

    fn combine<T, O: Operation<T>>(&self, call: Call<'_>, operation: O) -> Result<(), CollectiveError> {
        self.run(call, operation.operate().ok_or(CollectiveError::Undefined)?)
    }

    fn run(&self, call: Call<'_>, operate: impl Operate + Send) -> Result<(), CollectiveError> {
        match &self.on_node {
            Some(on_node) if call.is_shown() && on_node.carries(&call.plan) => {
                let ended = call.packed(|plan, places| on_node.run(self, plan, places, operate));
                // There was no memory for packing, which the others know nothing of.
                if ended == Err(CollectiveError::TooLong) {
                    on_node.fail(self, CollectiveError::TooLong);
                }
                ended
            }
            _ if call.is_alone() => self.copy_alone(call),
            _ => {
                let passed = self.on_node.as_ref().map(|on_node| on_node.pass(self, &call.plan)).transpose()?;
                let note = |process: &mut Process, begun| process.note_passed(begun, passed);
                // SAFETY: what is lent outlives this call, which waits for the end.
                let begun = unsafe { self.begin(call, Box::new(operate), note) }?;
                self.wait_for(begun)
            }
        }
    }
}
