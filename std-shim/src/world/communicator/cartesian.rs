//! Cartesian topologies: members as the points of a grid, and collectives between neighbours (`MPI_Cart_create`).

use core::ops::Deref;

use super::Communicator;
use super::balanced_grid::balanced_lengths;
use super::create::CreateError;
use super::neighbourhood::{Edge, Neighbourhood};
use crate::world::request::Tag;
use unisono_bootstrap::Rank;

/// A grid of numbered points, in row-major order, as in MPI.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Grid {
    /// Points and periodicity of each dimension.
    dimensions: Vec<(u32, bool)>,
}

/// A communicator whose members are the points of a grid: the member of rank r is point r.
pub struct Cartesian {
    neighbourhood: Neighbourhood,
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
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// // Two rows of three, whose ends meet.
    /// let grid = Grid::new(&[(2, false), (3, true)]);
    /// assert_eq!((grid.points(), grid.dimensions()), (6, 2));
    /// ```
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
    ///
    /// ```
    /// assert_eq!(unisono::Grid::new(&[(2, false), (3, true)]).points(), 6);
    /// ```
    pub fn points(&self) -> u64 {
        self.dimensions.iter().fold(1, |points: u64, (size, _)| points.saturating_mul(u64::from(*size)))
    }

    /// Number of dimensions.
    ///
    /// ```
    /// assert_eq!(unisono::Grid::new(&[(2, false), (3, true)]).dimensions(), 2);
    /// ```
    pub const fn dimensions(&self) -> usize {
        self.dimensions.len()
    }

    /// The coordinates of a point (`MPI_Cart_coords`). `None`: there is no such point.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// assert_eq!(Grid::new(&[(2, false), (3, true)]).coordinates(Rank(4)), Some(vec![1, 1]));
    /// ```
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
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let grid = Grid::new(&[(2, false), (3, true)]);
    /// assert_eq!((grid.rank(&[1, -1]), grid.rank(&[2, 0])), (Some(Rank(5)), None));
    /// ```
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
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let grid = Grid::new(&[(2, false), (3, true)]);
    /// assert_eq!(grid.shift(Rank(0), 0, 1), [None, Some(Rank(3))]);
    /// assert_eq!(grid.shift(Rank(0), 1, 1), [Some(Rank(2)), Some(Rank(1))]);
    /// ```
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
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// assert_eq!(Grid::new(&[(3, false)]).neighbours(Rank(0)), [None, Some(Rank(1))]);
    /// ```
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
        Ok(communicator.map(|communicator| {
            let neighbours = grid.neighbours(communicator.rank());
            // With two points in a periodic dimension, both neighbours are one rank: a tag names the source's block. Of
            // each dimension, what leads forwards arrives from behind.
            let edges = |change: usize| {
                let edge = |(number, rank): (usize, &Option<Rank>)| {
                    rank.map(|rank| Edge { rank, tag: Tag((number ^ change) as u32) })
                };
                neighbours.iter().enumerate().map(edge).collect()
            };
            Cartesian { neighbourhood: Neighbourhood::new(communicator, edges(0), edges(1)), grid }
        }))
    }
}

impl Cartesian {
    /// The grid.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let line = world.cartesian(Grid::new(&[(world.size(), false)]))?.expect("every rank is a point");
    /// assert_eq!(line.grid().points(), u64::from(world.size()));
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn grid(&self) -> &Grid {
        &self.grid
    }

    /// This rank's coordinates.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let line = world.cartesian(Grid::new(&[(world.size(), false)]))?.expect("every rank is a point");
    /// assert_eq!(line.coordinates(), [world.rank().0]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn coordinates(&self) -> Vec<u32> {
        self.grid.coordinates(self.communicator().rank()).unwrap_or_default()
    }
}

/// Its collectives: the n-th source and the n-th destination are the n-th of [`Grid::neighbours`].
impl Deref for Cartesian {
    type Target = Neighbourhood;

    fn deref(&self) -> &Neighbourhood {
        &self.neighbourhood
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
