//! Neighbourhoods: which ranks a rank exchanges blocks with, and the collectives between them (MPI 4.1, §8.6).

use alloc::sync::Arc;
use core::ptr::NonNull;

use unisono_datatype::{Datatype, DatatypeError, Field};
use unisono_memory::user_buffer::UserBuffer;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::Communicator;
use crate::world::collective::partition::BlockTable;
use crate::world::collective::{CollectiveError, Partition, PartitionMut, TypedBlocks, TypedBlocksMut};
use crate::world::request::Tag;
use crate::world::request::exchange::{
    ExchangeArgs, ExchangeMessage, ExchangeRequest, PersistentExchange, bytes_of, equal_blocks, typed_blocks,
};
use crate::world::request::scope::Scope;
use unisono_bootstrap::Rank;

/// A communicator, and the neighbours of this rank in it: those that it receives from, and those that it sends to, each
/// in an order. Its collectives wait for neighbours alone.
pub struct Neighbourhood {
    communicator: Communicator,
    sources: Vec<Option<Edge>>,
    destinations: Vec<Option<Edge>>,
}

/// A neighbour, and the tag of the messages to or from it. Between two ranks messages of equal tags match in the order of
/// the neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Edge {
    pub(super) rank: Rank,
    pub(super) tag: Tag,
}

/// Where a neighbour's block is in a buffer.
enum Placement {
    /// One of equal blocks, one after the other.
    Equal,
    Table(Arc<BlockTable>),
    Typed(Vec<Arc<Datatype>>),
}

/// Whether each neighbour gets a block of its own, or all get the same.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pattern {
    AllGather,
    AllToAll,
}

/// A buffer of a collective between neighbours.
trait BlockBuffer<T> {
    fn into_parts(self) -> (NonNull<[T]>, Placement);
}

impl<T> BlockBuffer<T> for &[T] {
    fn into_parts(self) -> (NonNull<[T]>, Placement) {
        (NonNull::from(self), Placement::Equal)
    }
}

impl<T> BlockBuffer<T> for &mut [T] {
    fn into_parts(self) -> (NonNull<[T]>, Placement) {
        (NonNull::from(self), Placement::Equal)
    }
}

impl<T> BlockBuffer<T> for &Partition<'_, T> {
    fn into_parts(self) -> (NonNull<[T]>, Placement) {
        (NonNull::from(self.data), Placement::Table(Arc::clone(&self.table)))
    }
}

impl<T> BlockBuffer<T> for PartitionMut<'_, T> {
    fn into_parts(self) -> (NonNull<[T]>, Placement) {
        (NonNull::from(self.data), Placement::Table(self.table))
    }
}

impl<T: IntoBytes + Immutable> BlockBuffer<T> for &TypedBlocks<'_, T> {
    fn into_parts(self) -> (NonNull<[T]>, Placement) {
        (self.data(), Placement::Typed(self.blocks().to_vec()))
    }
}

impl<T: IntoBytes + FromBytes> BlockBuffer<T> for TypedBlocksMut<'_, T> {
    fn into_parts(self) -> (NonNull<[T]>, Placement) {
        let (data, blocks) = self.into_blocks();
        (data, Placement::Typed(blocks))
    }
}

/// The block with this number of a table.
fn table_block(data: NonNull<[u8]>, table: &BlockTable, number: usize) -> Result<UserBuffer, DatatypeError> {
    let at = |list: &[usize]| list.get(number).copied().unwrap_or(0);
    let (bytes, offset) = (at(&table.bytes), at(&table.at));
    // The table lies within the buffer.
    let start = NonNull::new(data.cast::<u8>().as_ptr().wrapping_add(offset)).unwrap_or(data.cast());
    let Some((row, stride)) = table.rows.filter(|(row, _)| bytes > *row) else {
        return Ok(UserBuffer::plain(start, bytes));
    };
    let (rows, stride) = (bytes / row, stride as isize);
    let whole = Datatype::bytes(row)?.hvector(rows, 1, stride)?;
    let rest = Datatype::bytes(bytes % row)?;
    let last = Field { count: 1, offset: stride.saturating_mul(rows as isize), datatype: &rest };
    let all = Datatype::structure(&[Field { count: 1, offset: 0, datatype: &whole }, last])?;
    Ok(UserBuffer::new(start, &Arc::new(all)))
}

const fn expect_length(needed: usize, given: usize) -> Result<(), CollectiveError> {
    if needed == given { Ok(()) } else { Err(CollectiveError::Length { needed, given }) }
}

impl Neighbourhood {
    pub(super) const fn new(
        communicator: Communicator,
        sources: Vec<Option<Edge>>,
        destinations: Vec<Option<Edge>>,
    ) -> Self {
        Self { communicator, sources, destinations }
    }

    /// The communicator.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let own = Neighbour { rank: world.rank(), weight: 1 };
    /// assert_eq!(world.graph(&[own], &[own])?.communicator().size(), world.size());
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn communicator(&self) -> &Communicator {
        &self.communicator
    }

    /// The neighbours that this rank receives from; `None` past the edge of a grid.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let own = Neighbour { rank: world.rank(), weight: 1 };
    /// assert!(world.graph(&[own], &[own])?.sources().eq([Some(world.rank())]));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn sources(&self) -> impl ExactSizeIterator<Item = Option<Rank>> + '_ {
        self.sources.iter().map(|edge| edge.map(|edge| edge.rank))
    }

    /// The neighbours that this rank sends to; `None` past the edge of a grid.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let own = Neighbour { rank: world.rank(), weight: 1 };
    /// assert!(world.graph(&[own], &[own])?.destinations().eq([Some(world.rank())]));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn destinations(&self) -> impl ExactSizeIterator<Item = Option<Rank>> + '_ {
        self.destinations.iter().map(|edge| edge.map(|edge| edge.rank))
    }

    fn args<'b, T>(
        &self,
        pattern: Pattern,
        (data, sent): (NonNull<[T]>, Placement),
        (result, received): (NonNull<[T]>, Placement),
    ) -> Result<ExchangeArgs<'b>, CollectiveError> {
        let (sources, destinations) = (self.sources.len(), self.destinations.len());
        // Elements of a block, where all are equal.
        let block = match pattern {
            Pattern::AllGather => data.len(),
            Pattern::AllToAll => {
                data.len().checked_div(destinations).or_else(|| result.len().checked_div(sources)).unwrap_or(0)
            }
        };
        let blocks = |data: NonNull<[T]>, placement, number: usize| match placement {
            Placement::Equal => {
                expect_length(block.saturating_mul(number), data.len())?;
                Ok(equal_blocks(bytes_of(data), block * size_of::<T>()).take(number).collect())
            }
            Placement::Table(table) => {
                expect_length(number, table.bytes.len())?;
                let block = |number| table_block(bytes_of(data), &table, number).map_err(|_| CollectiveError::TooLong);
                (0..number).map(block).collect()
            }
            Placement::Typed(layouts) => {
                expect_length(number, layouts.len())?;
                Ok(typed_blocks(bytes_of(data), &layouts))
            }
        };
        let sends: Vec<UserBuffer> = match pattern {
            Pattern::AllGather => {
                let data = bytes_of(data);
                vec![UserBuffer::plain(data.cast(), data.len()); destinations]
            }
            Pattern::AllToAll => blocks(data, sent, destinations)?,
        };
        let receives = blocks(result, received, sources)?;
        fn messages(edges: &[Option<Edge>], buffers: Vec<UserBuffer>) -> impl Iterator<Item = ExchangeMessage> {
            edges.iter().zip(buffers).filter_map(|(edge, buffer)| edge.map(|edge| (edge.rank, edge.tag, buffer)))
        }
        self.communicator.exchange_args(messages(&self.sources, receives), messages(&self.destinations, sends))
    }
}

macro_rules! collectives {
    ($(
        $blocking:ident $immediate:ident $persistent:ident $pattern:ident
        ($data:ty, $data_mut:ty, $into:ty) ($($setup:literal)*; $from:literal, $from_mut:literal, $to:literal)
        $(#[doc = $doc:literal])*
    )*) => {
        impl Neighbourhood { $(
            $(#[doc = $doc])*
            ///
            /// ```
            /// use unisono::prelude::*;
            /// # use unisono::{Datatype, Field};
            ///
            /// let world = World::join()?;
            /// let (own, size) = (world.rank().0, world.size());
            /// let ring = world.cartesian(Grid::new(&[(size, true)]))?.expect("every rank is a point");
            $(#[doc = $setup])*
            #[doc = concat!("ring.", stringify!($blocking), "(", $from, ", ", $to, ")?;")]
            /// assert_eq!(into, [(own + size - 1) % size, (own + 1) % size]);
            /// # Ok::<(), Box<dyn core::error::Error>>(())
            /// ```
            ///
            /// # Errors
            /// [`CollectiveError::Length`]: there is not one block for each neighbour. [`CollectiveError::Ended`] with
            /// the first failure of a message; [`Failure::Disagrees`](crate::Failure::Disagrees) if a neighbour has sent
            /// another number of bytes than this rank receives.
            pub fn $blocking<'scope, T>(&self, data: $data, into: $into) -> Result<(), CollectiveError>
            where
                T: IntoBytes + FromBytes + Immutable + 'scope,
            {
                self.communicator.run_exchange(self.args(Pattern::$pattern, data.into_parts(), into.into_parts())?)
            }
        )* }

        impl<'scope, 'env> Scope<'scope, 'env> { $(
            #[doc = concat!("Starts [`", stringify!($blocking), "`](Neighbourhood::", stringify!($blocking), ").")]
            ///
            /// ```
            /// use unisono::prelude::*;
            /// # use unisono::{Datatype, Field};
            ///
            /// let world = World::join()?;
            /// let (own, size) = (world.rank().0, world.size());
            /// let ring = world.cartesian(Grid::new(&[(size, true)]))?.expect("every rank is a point");
            $(#[doc = $setup])*
            /// world.scope(|scope| {
            #[doc = concat!("    scope.", stringify!($immediate), "(&ring, ", $from, ", ", $to, ")?.wait()")]
            /// })?;
            /// assert_eq!(into, [(own + size - 1) % size, (own + 1) % size]);
            /// # Ok::<(), Box<dyn core::error::Error>>(())
            /// ```
            ///
            /// # Errors
            /// [`CollectiveError`].
            pub fn $immediate<T>(
                &'scope self,
                neighbourhood: &'env Neighbourhood,
                data: $data,
                into: $into,
            ) -> Result<ExchangeRequest<'scope>, CollectiveError>
            where
                T: IntoBytes + FromBytes + Immutable + 'scope,
            {
                let args = neighbourhood.args(Pattern::$pattern, data.into_parts(), into.into_parts())?;
                self.on(&neighbourhood.communicator).immediate_exchange(args)
            }

            #[doc = concat!("Prepares [`", stringify!($blocking), "`](Neighbourhood::", stringify!($blocking), ").")]
            ///
            /// ```
            /// use unisono::prelude::*;
            /// # use unisono::{Datatype, Field};
            ///
            /// let world = World::join()?;
            /// let (own, size) = (world.rank().0, world.size());
            /// let ring = world.cartesian(Grid::new(&[(size, true)]))?.expect("every rank is a point");
            $(#[doc = $setup])*
            /// world.scope(|scope| {
            #[doc = concat!("    let mut request = scope.", stringify!($persistent), "(&ring, ", $from_mut, ", ", $to, ")?;")]
            ///     for _ in 0..3 {
            ///         request.start()?;
            ///         request.wait()?;
            ///     }
            ///     Ok::<(), CollectiveError>(())
            /// })?;
            /// assert_eq!(into, [(own + size - 1) % size, (own + 1) % size]);
            /// # Ok::<(), Box<dyn core::error::Error>>(())
            /// ```
            ///
            /// # Errors
            /// [`CollectiveError`].
            pub fn $persistent<T>(
                &'scope self,
                neighbourhood: &'env Neighbourhood,
                data: $data_mut,
                into: $into,
            ) -> Result<PersistentExchange<'scope, T>, CollectiveError>
            where
                T: IntoBytes + FromBytes + Immutable + 'scope,
            {
                let ((data, sent), (result, received)) = (data.into_parts(), into.into_parts());
                let args = neighbourhood.args(Pattern::$pattern, (data, sent), (result, received))?;
                Ok(self.on(&neighbourhood.communicator).persistent_exchange(args, data, result))
            }
        )* }
    };
}

collectives! {
    neighbour_all_gather_into immediate_neighbour_all_gather_into persistent_neighbour_all_gather_into AllGather
    (&'scope [T], &'scope mut [T], &'scope mut [T])
    ("let (mut data, mut into) = ([own], [0; 2]);"; "&data", "&mut data", "&mut into")
    /// Sends `data` to every destination, and receives that of the n-th source in block n of `into`, which has a block
    /// for every source; blocks past the edge of a grid are unchanged (`MPI_Neighbor_allgather`).

    neighbour_all_gather_varcount_into immediate_neighbour_all_gather_varcount_into
    persistent_neighbour_all_gather_varcount_into AllGather
    (&'scope [T], &'scope mut [T], PartitionMut<'scope, T>)
    ("let (mut data, mut into) = ([own], [0; 2]);";
     "&data", "&mut data", "PartitionMut::new(&mut into, &[1, 1], &[0, 1])?")
    /// As [`neighbour_all_gather_into`](Self::neighbour_all_gather_into), where the ranks' data differ in length
    /// (`MPI_Neighbor_allgatherv`).

    neighbour_all_to_all_into immediate_neighbour_all_to_all_into persistent_neighbour_all_to_all_into AllToAll
    (&'scope [T], &'scope mut [T], &'scope mut [T])
    ("let (mut data, mut into) = ([own; 2], [0; 2]);"; "&data", "&mut data", "&mut into")
    /// Sends block n of `data` to the n-th destination, and receives from the n-th source in block n of `into`
    /// (`MPI_Neighbor_alltoall`).

    neighbour_all_to_all_varcount_into immediate_neighbour_all_to_all_varcount_into
    persistent_neighbour_all_to_all_varcount_into AllToAll
    (&Partition<'scope, T>, PartitionMut<'scope, T>, PartitionMut<'scope, T>)
    ("let (mut data, mut into) = ([own; 2], [0; 2]);";
     "&Partition::new(&data, &[1, 1], &[0, 1])?", "PartitionMut::new(&mut data, &[1, 1], &[0, 1])?",
     "PartitionMut::new(&mut into, &[1, 1], &[0, 1])?")
    /// As [`neighbour_all_to_all_into`](Self::neighbour_all_to_all_into), where blocks differ in length
    /// (`MPI_Neighbor_alltoallv`).

    neighbour_all_to_all_w_into immediate_neighbour_all_to_all_w_into persistent_neighbour_all_to_all_w_into AllToAll
    (&TypedBlocks<'scope, T>, TypedBlocksMut<'scope, T>, TypedBlocksMut<'scope, T>)
    ("let (mut data, mut into) = ([own; 2], [0; 2]);"
     "let word = Datatype::of::<u32>();"
     "let blocks = [0, 4].map(|offset| Field { count: 1, offset, datatype: &word });";
     "&TypedBlocks::new(&data, &blocks)?", "TypedBlocksMut::new(&mut data, &blocks)?",
     "TypedBlocksMut::new(&mut into, &blocks)?")
    /// As [`neighbour_all_to_all_into`](Self::neighbour_all_to_all_into), where each block has a datatype of its own
    /// (`MPI_Neighbor_alltoallw`).
}
