//! Cartesian topologies: members as the points of a grid, and collectives between neighbours (`MPI_Cart_create`).

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::Communicator;
use super::balanced_grid::balanced_lengths;
use super::create::CreateError;
use crate::world::request::wait_many::wait_all;
use crate::world::request::{Failure, RequestError, RequestFailed, Tag};
use unisono_bootstrap::Rank;

/// A grid of numbered points, in row-major order, as in MPI.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Grid {
    /// Points and periodicity of each dimension.
    dimensions: Vec<(u32, bool)>,
}

/// A communicator whose members are the points of a grid: the member of rank r is point r. Its collectives use the
/// greatest tags, two of each dimension.
pub struct Cartesian {
    communicator: Communicator,
    grid: Grid,
}

/// Why a grid cannot be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CartesianError {
    /// A dimension has no point, or there are more points than ranks.
    #[error("a grid of {points} points does not fit a communicator of {size} ranks")]
    Points {
        /// Points of the grid.
        points: u64,
        /// Ranks of the communicator.
        size: u32,
    },
    /// The communicator was not made.
    #[error(transparent)]
    Create(#[from] CreateError),
}

impl Grid {
    /// A grid with these numbers of points; a dimension is periodic if its last point is a neighbour of its first.
    pub fn new(dimensions: &[(u32, bool)]) -> Self {
        Self { dimensions: dimensions.to_vec() }
    }

    /// Numbers of points as equal as possible, in descending order, whose product is `ranks` (`MPI_Dims_create`).
    ///
    /// ```
    /// assert_eq!(unisono::Grid::balanced(12, 2), [4, 3]);
    /// ```
    pub fn balanced(ranks: u32, dimensions: usize) -> Vec<u32> {
        balanced_lengths(ranks, dimensions)
    }

    /// Number of points.
    pub fn points(&self) -> u64 {
        self.dimensions.iter().fold(1, |points: u64, (size, _)| points.saturating_mul(u64::from(*size)))
    }

    /// Number of dimensions.
    pub const fn dimensions(&self) -> usize {
        self.dimensions.len()
    }

    /// The coordinates of a point (`MPI_Cart_coords`). `None`: there is no such point.
    pub fn coordinates(&self, rank: Rank) -> Option<Vec<u32>> {
        if u64::from(rank.0) >= self.points() {
            return None;
        }
        let mut left = rank.0;
        let coordinate = |(size, _): &(u32, bool)| {
            let own = left.checked_rem(*size).unwrap_or(0);
            left = left.checked_div(*size).unwrap_or(0);
            own
        };
        let mut coordinates: Vec<u32> = self.dimensions.iter().rev().map(coordinate).collect();
        coordinates.reverse();
        Some(coordinates)
    }

    /// The point with these coordinates (`MPI_Cart_rank`), which wrap around in periodic dimensions. `None`: there is
    /// none.
    pub fn rank(&self, coordinates: &[i64]) -> Option<Rank> {
        if coordinates.len() != self.dimensions.len() {
            return None;
        }
        let mut rank = 0_u64;
        for ((size, is_periodic), coordinate) in self.dimensions.iter().zip(coordinates) {
            let size = i64::from(*size);
            let own = if *is_periodic { coordinate.checked_rem_euclid(size)? } else { *coordinate };
            if !(0..size).contains(&own) {
                return None;
            }
            rank = rank.checked_mul(u64::try_from(size).ok()?)?.checked_add(u64::try_from(own).ok()?)?;
        }
        u32::try_from(rank).ok().map(Rank)
    }

    /// The neighbours of a point `steps` before and after it in a dimension (`MPI_Cart_shift`); `None` past the edge.
    pub fn shift(&self, rank: Rank, dimension: usize, steps: i64) -> [Option<Rank>; 2] {
        let moved = |steps: i64| {
            let mut coordinates: Vec<i64> = self.coordinates(rank)?.into_iter().map(i64::from).collect();
            let own = coordinates.get_mut(dimension)?;
            *own = own.checked_add(steps)?;
            self.rank(&coordinates)
        };
        [steps.checked_neg().and_then(moved), moved(steps)]
    }

    /// The neighbours of a point: of each dimension the one before and the one after it.
    pub fn neighbours(&self, rank: Rank) -> Vec<Option<Rank>> {
        (0..self.dimensions.len()).flat_map(|dimension| self.shift(rank, dimension, 1)).collect()
    }
}

impl Communicator {
    /// Makes a communicator whose members are the points of a grid; the first ranks, in their order. Ranks beyond the
    /// last point get `None`. Collective; all ranks name the same grid.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let ring = world.cartesian(Grid::new(&[(world.size(), true)]))?.expect("every rank is a point");
    /// let mut halos = [0_u32; 2];
    /// ring.neighbour_all_gather_into(&[world.rank().0], &mut halos)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`CartesianError`].
    pub fn cartesian(&self, grid: Grid) -> Result<Option<Cartesian>, CartesianError> {
        let (points, size) = (grid.points(), self.size());
        if points == 0 || points > u64::from(size) {
            return Err(CartesianError::Points { points, size });
        }
        // Ranks without a colour are no members.
        let is_point = u64::from(self.rank().0) < points;
        let communicator = self.split_by_color(is_point.then_some(0))?;
        Ok(communicator.map(|communicator| Cartesian { communicator, grid }))
    }
}

impl Cartesian {
    /// The communicator, in which rank r is point r.
    pub const fn communicator(&self) -> &Communicator {
        &self.communicator
    }

    /// The grid.
    pub const fn grid(&self) -> &Grid {
        &self.grid
    }

    /// This rank's coordinates.
    pub fn coordinates(&self) -> Vec<u32> {
        self.grid.coordinates(self.communicator.rank()).unwrap_or_default()
    }

    /// Sends `data` to every neighbour, and receives that of the n-th neighbour into block n of `into`, which has a
    /// block for every neighbour ([`Grid::neighbours`]); blocks past the edge are unchanged
    /// (`MPI_Neighbor_allgather`).
    ///
    /// # Errors
    /// [`Failure`]; [`Failure::Truncated`] where `into` is too short.
    pub fn neighbour_all_gather_into<T>(&self, data: &[T], into: &mut [T]) -> Result<(), Failure>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        self.exchange(|_| Some(data), data.len(), into)
    }

    /// Sends block n of `data` to the n-th neighbour, and receives from it into block n of `into`
    /// (`MPI_Neighbor_alltoall`).
    ///
    /// # Errors
    /// As of [`neighbour_all_gather_into`](Self::neighbour_all_gather_into).
    pub fn neighbour_all_to_all_into<T>(&self, data: &[T], into: &mut [T]) -> Result<(), Failure>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        let block = data.len().checked_div(2 * self.grid.dimensions()).unwrap_or(0);
        self.exchange(|number| data.get(number * block..(number + 1) * block), block, into)
    }

    /// The message to the n-th neighbour carries the number of the block that it is for: with two points in a periodic
    /// dimension, both neighbours are one rank.
    fn exchange<'d, T>(
        &self,
        data: impl Fn(usize) -> Option<&'d [T]>,
        block: usize,
        into: &mut [T],
    ) -> Result<(), Failure>
    where
        T: IntoBytes + FromBytes + Immutable + 'd,
    {
        let neighbours = self.grid.neighbours(self.communicator.rank());
        if into.len() < neighbours.len() * block {
            return Err(Failure::Truncated { bytes: size_of_val(into) as u64 });
        }
        let tag = |number: usize| Tag(u32::MAX - number as u32);
        let outgoing: Vec<&[T]> = (0..neighbours.len()).map(|number| data(number).unwrap_or_default()).collect();
        self.communicator.scope(|scope| {
            let mut requests = Vec::new();
            let mut rest = into;
            for (number, neighbour) in neighbours.iter().enumerate() {
                let (own, later) = core::mem::take(&mut rest).split_at_mut(block);
                rest = later;
                if let Some(neighbour) = *neighbour {
                    requests.push(scope.immediate_receive_into(own, neighbour, tag(number))?);
                }
            }
            for (number, (neighbour, part)) in neighbours.iter().zip(&outgoing).enumerate() {
                if let Some(neighbour) = *neighbour {
                    // Of each dimension, what leads forwards arrives from behind.
                    requests.push(scope.immediate_send(*part, neighbour, tag(number ^ 1))?);
                }
            }
            match wait_all(&requests) {
                Ok(_) => Ok(()),
                Err(RequestFailed { failure: RequestError::Message(failure), .. }) => Err(failure),
                // All are messages.
                Err(RequestFailed { failure: RequestError::Collective(_), .. }) => Err(Failure::Finished),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn coordinates_and_ranks_are_inverse_and_neighbours_mutual(sizes in proptest::collection::vec((1_u32..5, any::<bool>()), 0..4)) {
            let grid = Grid::new(&sizes);
            for rank in (0..grid.points() as u32).map(Rank) {
                let coordinates = grid.coordinates(rank).expect("a point");
                let signed: Vec<i64> = coordinates.iter().map(|own| i64::from(*own)).collect();
                prop_assert_eq!(grid.rank(&signed), Some(rank));
                for (number, neighbour) in grid.neighbours(rank).into_iter().enumerate() {
                    let Some(neighbour) = neighbour else { continue };
                    prop_assert_eq!(grid.neighbours(neighbour)[number ^ 1], Some(rank));
                }
            }
            prop_assert_eq!(grid.coordinates(Rank(grid.points() as u32)), None);
        }

        #[test]
        fn no_shift_panics(sizes in proptest::collection::vec((any::<u32>(), any::<bool>()), 0..4), rank: u32, dimension in 0_usize..5, steps: i64) {
            let grid = Grid::new(&sizes);
            let _ = (grid.shift(Rank(rank), dimension, steps), grid.neighbours(Rank(rank)));
        }
    }
}
