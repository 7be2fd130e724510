//! Topologies: communicators whose ranks are the points of a grid, or the nodes of a graph, and the neighbours of a rank.

use unisono::{Grid, Neighbour, Rank};

use crate::communicator::{Member, Owner, UNISONO_COMMUNICATOR_NULL, member, unisono_communicator};
use crate::datatype::{check, list, store};
use crate::result::unisono_result;
use crate::result::{Error, call};

/// The number of a rank, or -1.
fn number(rank: Option<Rank>) -> i64 {
    rank.map_or(-1, |rank| rank.0.into())
}

/// Writes values to a list of the caller's.
///
/// # Safety
/// `into` has room for all of them, or is NULL.
unsafe fn store_all<T>(into: *mut T, values: impl IntoIterator<Item = T>, name: &str) -> Result<(), Error> {
    for (i, value) in values.into_iter().enumerate() {
        // SAFETY: the caller answers for the list.
        unsafe { store(into.wrapping_add(i), name, value) }?;
    }
    Ok(())
}

/// Divides a number of ranks among the dimensions of a grid, as evenly as possible, and stores their lengths, the longest
/// first.
///
/// # Safety
/// As of all functions; `lengths` has room for `dimensions`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_balanced_grid(ranks: u32, dimensions: usize, lengths: *mut u32) -> unisono_result {
    call(|| {
        if ranks == 0 || !(1..=DIMENSIONS_MAX).contains(&dimensions) {
            return Err(Error::argument(format!("a grid has at least 1 rank and 1 to {DIMENSIONS_MAX} dimensions")));
        }
        // SAFETY: the caller answers for the list.
        unsafe { store_all(lengths, Grid::balanced(ranks, dimensions), "lengths") }
    })
}

/// The most dimensions of a grid.
const DIMENSIONS_MAX: usize = 32;

/// Makes a communicator whose ranks are the points of a grid, in row-major order; the last point of a periodic dimension
/// is a neighbour of its first. Ranks beyond the last point get `UNISONO_COMMUNICATOR_NULL`. Collective.
///
/// # Safety
/// As of all functions; the lists have `dimensions` values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_cartesian(
    communicator: unisono_communicator,
    dimensions: usize,
    lengths: *const u32,
    periodic: *const bool,
    made: *mut unisono_communicator,
) -> unisono_result {
    call(|| {
        check(made, "made")?;
        // SAFETY: the caller answers for the list.
        let lengths = unsafe { list(lengths, dimensions, "lengths") }?;
        // SAFETY: the caller answers for the list.
        let periodic = unsafe { list(periodic, dimensions, "periodic") }?;
        let dimensions: Vec<(u32, bool)> = lengths.iter().copied().zip(periodic.iter().copied()).collect();
        let grid = member(communicator)?.communicator().cartesian(Grid::new(&dimensions))?;
        let handle = grid.map_or(UNISONO_COMMUNICATOR_NULL, |grid| Member::insert(Owner::Cartesian(Box::new(grid))));
        // SAFETY: the caller answers for the pointer.
        unsafe { store(made, "made", handle) }
    })
}

/// Stores the coordinates of a rank in its grid.
///
/// # Safety
/// As of all functions; `coordinates` has room for the dimensions of the grid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_coordinates(
    communicator: unisono_communicator,
    rank: u32,
    coordinates: *mut u32,
) -> unisono_result {
    call(|| {
        let member = member(communicator)?;
        let found = member.cartesian()?.grid().coordinates(Rank(rank));
        let found = found.ok_or(unisono::Failure::UnknownRank(Rank(rank)))?;
        // SAFETY: the caller answers for the list.
        unsafe { store_all(coordinates, found, "coordinates") }
    })
}

/// Stores the rank at these coordinates of its grid, which are taken modulo the length of periodic dimensions; -1 outside
/// of the grid. `coordinates` has a value for each of `dimensions`.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_rank_at(
    communicator: unisono_communicator,
    dimensions: usize,
    coordinates: *const i64,
    rank: *mut i64,
) -> unisono_result {
    call(|| {
        check(rank, "rank")?;
        let member = member(communicator)?;
        // SAFETY: the caller answers for the list.
        let coordinates = unsafe { list(coordinates, dimensions, "coordinates") }?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(rank, "rank", number(member.cartesian()?.grid().rank(coordinates))) }
    })
}

/// Stores the ranks that this one receives from and sends to when all data move by `steps` points along a dimension of
/// the grid; -1 outside of it.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_shift(
    communicator: unisono_communicator,
    dimension: usize,
    steps: i64,
    source: *mut i64,
    destination: *mut i64,
) -> unisono_result {
    call(|| {
        check(source, "source")?;
        check(destination, "destination")?;
        let member = member(communicator)?;
        let [from, to] = member.cartesian()?.grid().shift(member.communicator().rank(), dimension, steps);
        // SAFETY: the caller answers for the pointer.
        unsafe { store(source, "source", number(from)) }?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(destination, "destination", number(to)) }
    })
}

/// Makes a communicator of the same ranks in which this rank receives from `sources` and sends to `destinations`, in
/// these orders; both ends name an edge, once for each time it exists. Collective.
///
/// # Safety
/// As of all functions; the lists have as many ranks as said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_graph(
    communicator: unisono_communicator,
    source_count: usize,
    sources: *const u32,
    destination_count: usize,
    destinations: *const u32,
    made: *mut unisono_communicator,
) -> unisono_result {
    call(|| {
        check(made, "made")?;
        let neighbours = |ranks: &[u32]| ranks.iter().map(|rank| Rank(*rank).into()).collect::<Vec<Neighbour>>();
        // SAFETY: the caller answers for the list.
        let sources = neighbours(unsafe { list(sources, source_count, "sources") }?);
        // SAFETY: the caller answers for the list.
        let destinations = neighbours(unsafe { list(destinations, destination_count, "destinations") }?);
        let graph = member(communicator)?.communicator().graph(&sources, &destinations)?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(made, "made", Member::insert(Owner::Graph(Box::new(graph)))) }
    })
}

/// Stores how many neighbours this rank has in a grid or graph: those that it receives from, and those that it sends to.
/// In a grid these are the one before and the one behind in each dimension.
///
/// # Safety
/// As of all functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_neighbour_counts(
    communicator: unisono_communicator,
    sources: *mut usize,
    destinations: *mut usize,
) -> unisono_result {
    call(|| {
        check(sources, "sources")?;
        check(destinations, "destinations")?;
        let member = member(communicator)?;
        // SAFETY: used during the call.
        let neighbours = unsafe { member.neighbourhood() }?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(sources, "sources", neighbours.sources().len()) }?;
        // SAFETY: the caller answers for the pointer.
        unsafe { store(destinations, "destinations", neighbours.destinations().len()) }
    })
}

/// Stores the ranks of the neighbours, in their order; -1 past the edge of a grid.
///
/// # Safety
/// As of all functions; the lists have room for the numbers of `unisono_neighbour_counts`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_neighbours(
    communicator: unisono_communicator,
    sources: *mut i64,
    destinations: *mut i64,
) -> unisono_result {
    call(|| {
        let member = member(communicator)?;
        // SAFETY: used during the call.
        let neighbours = unsafe { member.neighbourhood() }?;
        // SAFETY: the caller answers for the list.
        unsafe { store_all(sources, neighbours.sources().map(number), "sources") }?;
        // SAFETY: the caller answers for the list.
        unsafe { store_all(destinations, neighbours.destinations().map(number), "destinations") }
    })
}
