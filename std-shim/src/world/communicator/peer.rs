//! A member of a communicator as the object of calls, as in rsmpi: `world.process_at_rank(1).send(…)`.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::Communicator;
use crate::collective::{AsView, AsViewMut, CollectiveError, Operation};
use crate::world::request::{Failure, Status, Tag};
use unisono_bootstrap::Rank;

/// A member of a communicator: the destination or source of messages, or the root of collectives.
#[derive(Clone, Copy)]
pub struct Peer<'a> {
    communicator: &'a Communicator,
    rank: Rank,
}

impl Communicator {
    /// The member with this rank. A rank that the communicator does not have is refused by the calls.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let own = world.process_at_rank(world.rank());
    /// own.send(&[1_u32, 2], Tag(1))?;
    /// let (values, _) = own.receive::<u32>(Tag(1))?;
    /// assert_eq!(values, [1, 2]);
    /// let mut number = 7_u64;
    /// own.broadcast_into(&mut number)?;
    /// own.send(&number, Tag(2))?;
    /// own.receive_into(&mut number, Tag(2))?;
    /// # Ok::<(), unisono::Error>(())
    /// ```
    pub fn process_at_rank(&self, rank: Rank) -> Peer<'_> {
        Peer { communicator: self, rank }
    }
}

impl<'a> Peer<'a> {
    /// Its rank.
    pub const fn rank(&self) -> Rank {
        self.rank
    }

    /// The communicator.
    pub const fn communicator(&self) -> &'a Communicator {
        self.communicator
    }

    /// As [`Communicator::send`].
    ///
    /// # Errors
    /// [`Failure`].
    pub fn send<T: IntoBytes + Immutable>(&self, data: &(impl AsView<T> + ?Sized), tag: Tag) -> Result<(), Failure> {
        self.communicator.send(data, self.rank, tag)
    }

    /// As [`Communicator::synchronous_send`].
    ///
    /// # Errors
    /// [`Failure`].
    pub fn synchronous_send<T: IntoBytes + Immutable>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        tag: Tag,
    ) -> Result<(), Failure> {
        self.communicator.synchronous_send(data, self.rank, tag)
    }

    /// As [`Communicator::receive_into`], from this rank.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn receive_into<T: IntoBytes + FromBytes>(
        &self,
        data: &mut (impl AsViewMut<T> + ?Sized),
        tag: impl Into<Option<Tag>>,
    ) -> Result<Status, Failure> {
        self.communicator.receive_into(data, self.rank, tag)
    }

    /// As [`Communicator::receive`], from this rank.
    ///
    /// # Errors
    /// As of [`Communicator::receive`].
    pub fn receive<T: IntoBytes + FromBytes>(&self, tag: impl Into<Option<Tag>>) -> Result<(Vec<T>, Status), Failure> {
        self.communicator.receive(self.rank, tag)
    }

    /// As [`Communicator::broadcast_into`], with this rank as the root.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn broadcast_into<T>(&self, data: &mut (impl AsViewMut<T> + ?Sized)) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes,
    {
        self.communicator.broadcast_into(data, self.rank)
    }

    /// As [`Communicator::gather_into`], with this rank as the root.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn gather_into<T>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        into: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        self.communicator.gather_into(data, into, self.rank)
    }

    /// As [`Communicator::scatter_into`], with this rank as the root.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn scatter_into<T>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        into: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        self.communicator.scatter_into(data, into, self.rank)
    }

    /// As [`Communicator::reduce_into`], with this rank as the root.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn reduce_into<T, O>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        into: &mut (impl AsViewMut<T> + ?Sized),
        operation: O,
    ) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        self.communicator.reduce_into(data, into, operation, self.rank)
    }
}
