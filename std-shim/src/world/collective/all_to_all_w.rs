//! All-to-all with a datatype for each rank (`MPI_Alltoallw`).

use alloc::sync::Arc;
use core::ptr::NonNull;

use unisono_datatype::Datatype;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::error::CollectiveError;
use super::typed_blocks::{TypedBlocks, TypedBlocksMut};
use crate::world::communicator::Communicator;
use crate::world::request::Tag;
use crate::world::request::exchange::{ExchangeArgs, ExchangeRequest, PersistentExchange, bytes_of, typed_blocks};
use crate::world::request::scope::Scope;
use unisono_bootstrap::Rank;

/// The tag of all its messages.
const TAG: Tag = Tag(0);

impl Communicator {
    /// Copies block j of rank i's `data` to block i of rank j's `into`, which has as many bytes (`MPI_Alltoallw`). Each
    /// block has a datatype of its own.
    ///
    /// ```
    /// use unisono::prelude::*;
    /// use unisono::{Datatype, Field};
    ///
    /// let world = World::join()?;
    /// let (size, own) = (world.size() as usize, world.rank().0);
    /// // Row i of a matrix becomes column `own` of rank i's matrix.
    /// let (rows, mut columns) = (vec![own; size * size], vec![0_u32; size * size]);
    /// let word = Datatype::of::<u32>();
    /// let column = word.vector(size, 1, size as isize).expect("a column");
    /// let row = |i: usize| Field { count: size, offset: (4 * size * i) as isize, datatype: &word };
    /// let into = |i: usize| Field { count: 1, offset: (4 * i) as isize, datatype: &column };
    /// let data = TypedBlocks::new(&rows, &(0..size).map(row).collect::<Vec<_>>())?;
    /// let into = TypedBlocksMut::new(&mut columns, &(0..size).map(into).collect::<Vec<_>>())?;
    /// world.all_to_all_w_into(&data, into)?;
    /// assert!(columns.chunks(size).all(|row| row.iter().zip(0..).all(|(value, rank)| *value == rank)));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError::Length`]: there is not one block for each rank. [`CollectiveError::Ended`] with the first
    /// failure of a message; [`Failure::Disagrees`](crate::Failure::Disagrees) if a rank has sent another number of
    /// bytes than this rank receives.
    pub fn all_to_all_w_into<T, U>(
        &self,
        data: &TypedBlocks<'_, T>,
        into: TypedBlocksMut<'_, U>,
    ) -> Result<(), CollectiveError>
    where
        T: IntoBytes + Immutable,
        U: IntoBytes + FromBytes,
    {
        let (result, blocks) = into.into_blocks();
        self.run_exchange(self.call_all_to_all_w((bytes_of(data.data()), data.blocks()), (bytes_of(result), &blocks))?)
    }

    fn call_all_to_all_w<'b>(
        &self,
        (data, sent): (NonNull<[u8]>, &[Arc<Datatype>]),
        (result, received): (NonNull<[u8]>, &[Arc<Datatype>]),
    ) -> Result<ExchangeArgs<'b>, CollectiveError> {
        let needed = self.size as usize;
        for given in [sent.len(), received.len()] {
            if given != needed {
                return Err(CollectiveError::Length { needed, given });
            }
        }
        // Each rank begins with another one.
        let order = |all: Vec<_>| {
            let first = self.rank.0 as usize;
            (0..)
                .map(Rank)
                .zip(all)
                .map(|(rank, buffer)| (rank, TAG, buffer))
                .collect::<Vec<_>>()
                .into_iter()
                .cycle()
                .skip(first)
                .take(needed)
        };
        self.exchange_args(order(typed_blocks(result, received)), order(typed_blocks(data, sent)))
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Starts [`all_to_all_w_into`](Communicator::all_to_all_w_into) (`MPI_Ialltoallw`).
    ///
    /// ```
    /// use unisono::prelude::*;
    /// use unisono::{Datatype, Field};
    ///
    /// let world = World::join()?;
    /// let (size, word) = (world.size() as usize, Datatype::of::<u32>());
    /// let (sent, mut received) = (vec![world.rank().0; size], vec![0_u32; size]);
    /// let blocks: Vec<_> = (0..size).map(|i| Field { count: 1, offset: 4 * i as isize, datatype: &word }).collect();
    /// let data = TypedBlocks::new(&sent, &blocks)?;
    /// world.scope(|scope| {
    ///     let request = scope.immediate_all_to_all_w_into(&data, TypedBlocksMut::new(&mut received, &blocks)?)?;
    ///     request.wait()
    /// })?;
    /// assert!(received.iter().zip(0..).all(|(value, rank)| *value == rank));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As of [`all_to_all_w_into`](Communicator::all_to_all_w_into).
    pub fn immediate_all_to_all_w_into<T, U>(
        &'scope self,
        data: &TypedBlocks<'scope, T>,
        into: TypedBlocksMut<'scope, U>,
    ) -> Result<ExchangeRequest<'scope>, CollectiveError>
    where
        T: IntoBytes + Immutable,
        U: IntoBytes + FromBytes,
    {
        let (result, blocks) = into.into_blocks();
        let (sent, received) = ((bytes_of(data.data()), data.blocks()), (bytes_of(result), &*blocks));
        self.immediate_exchange(self.communicator().call_all_to_all_w(sent, received)?)
    }

    /// Prepares [`all_to_all_w_into`](Communicator::all_to_all_w_into) (`MPI_Alltoallw_init`).
    ///
    /// ```
    /// use unisono::prelude::*;
    /// use unisono::{Datatype, Field};
    ///
    /// let world = World::join()?;
    /// let (size, word) = (world.size() as usize, Datatype::of::<u32>());
    /// let (mut sent, mut received) = (vec![0_u32; size], vec![0_u32; size]);
    /// let blocks: Vec<_> = (0..size).map(|i| Field { count: 1, offset: 4 * i as isize, datatype: &word }).collect();
    /// world.scope(|scope| {
    ///     let data = TypedBlocksMut::new(&mut sent, &blocks)?;
    ///     let mut request = scope.persistent_all_to_all_w_into(data, TypedBlocksMut::new(&mut received, &blocks)?)?;
    ///     for round in 0..3 {
    ///         request.data()?.fill(round);
    ///         request.start()?;
    ///         request.wait()?;
    ///         assert!(request.result()?.iter().all(|value| *value == round));
    ///     }
    ///     Ok::<(), CollectiveError>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As of [`all_to_all_w_into`](Communicator::all_to_all_w_into).
    pub fn persistent_all_to_all_w_into<T>(
        &'scope self,
        data: TypedBlocksMut<'scope, T>,
        into: TypedBlocksMut<'scope, T>,
    ) -> Result<PersistentExchange<'scope, T>, CollectiveError>
    where
        T: IntoBytes + FromBytes,
    {
        let ((data, sent), (result, received)) = (data.into_blocks(), into.into_blocks());
        let args = self.communicator().call_all_to_all_w((bytes_of(data), &sent), (bytes_of(result), &received))?;
        Ok(self.persistent_exchange(args, data, result))
    }
}
