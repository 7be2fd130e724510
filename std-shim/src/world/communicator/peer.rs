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
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// assert_eq!(world.process_at_rank(Rank(0)).rank(), Rank(0));
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn rank(&self) -> Rank {
        self.rank
    }

    /// The communicator.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// assert_eq!(world.process_at_rank(Rank(0)).communicator().size(), world.size());
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn communicator(&self) -> &'a Communicator {
        self.communicator
    }

    /// As [`Communicator::send`].
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let own = world.process_at_rank(world.rank());
    /// own.send(&[1_u8], Tag(1))?;
    /// assert_eq!(own.receive::<u8>(Tag(1))?.0, [1]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure`].
    pub fn send<T: IntoBytes + Immutable>(&self, data: &(impl AsView<T> + ?Sized), tag: Tag) -> Result<(), Failure> {
        self.communicator.send(data, self.rank, tag)
    }

    /// As [`Communicator::synchronous_send`].
    ///
    /// ```no_run
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// match world.rank() {
    ///     Rank(0) => world.process_at_rank(Rank(1)).synchronous_send(&[1_u8], Tag(1))?,
    ///     _ => drop(world.process_at_rank(Rank(0)).receive::<u8>(Tag(1))?),
    /// }
    /// # Ok::<(), Error>(())
    /// ```
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
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (own, mut number) = (world.process_at_rank(world.rank()), 0_u32);
    /// own.send(&7_u32, Tag(1))?;
    /// assert_eq!(own.receive_into(&mut number, None)?.bytes, 4);
    /// assert_eq!(number, 7);
    /// # Ok::<(), Error>(())
    /// ```
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
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let own = world.process_at_rank(world.rank());
    /// own.send(&[1_u8, 2], Tag(1))?;
    /// assert_eq!(own.receive::<u8>(None)?.0, [1, 2]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As of [`Communicator::receive`].
    pub fn receive<T: IntoBytes + FromBytes>(&self, tag: impl Into<Option<Tag>>) -> Result<(Vec<T>, Status), Failure> {
        self.communicator.receive(self.rank, tag)
    }

    /// As [`Communicator::broadcast_into`], with this rank as the root.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut data = [world.rank().0];
    /// world.process_at_rank(Rank(0)).broadcast_into(&mut data)?;
    /// assert_eq!(data, [0]);
    /// # Ok::<(), Error>(())
    /// ```
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
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut all = vec![0; if world.rank() == Rank(0) { world.size() as usize } else { 0 }];
    /// world.process_at_rank(Rank(0)).gather_into(&[7], &mut all)?;
    /// assert!(all.iter().all(|element| *element == 7));
    /// # Ok::<(), Error>(())
    /// ```
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
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (blocks, mut own) = (vec![7; if world.rank() == Rank(0) { world.size() as usize } else { 0 }], [0]);
    /// world.process_at_rank(Rank(0)).scatter_into(&blocks, &mut own)?;
    /// assert_eq!(own, [7]);
    /// # Ok::<(), Error>(())
    /// ```
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
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut sum = [0];
    /// world.process_at_rank(Rank(0)).reduce_into(&[1_u32], &mut sum, SystemOperation::sum())?;
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
    ) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
        O: Operation<T>,
    {
        self.communicator.reduce_into(data, into, operation, self.rank)
    }
}
