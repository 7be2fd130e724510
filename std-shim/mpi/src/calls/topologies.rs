//! Topologies.

use core::ffi::c_int;

use crate::abi::*;
use crate::calls::communicators::{class_of_creation, made, with_topology};
use crate::calls::{give, list, list_mut};
use crate::communicator::Comm;
use crate::error::{Outcome, class_of_collective, finish, on};
use crate::handle::Object;
use crate::topology::{Edges, Topology, choose_lengths, coordinates, graph_neighbours, rank_at, shift};

pub(crate) unsafe fn dims_create(nodes: c_int, dimensions: c_int, lengths: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            if dimensions < 0 {
                return Err(MPI_ERR_DIMS);
            }
            choose_lengths(nodes, list_mut(lengths, dimensions.into())?)
        })()
    })
}

/// A communicator of the first ranks, with a topology.
unsafe fn create_first(comm: &Object<Comm>, number: u32, topology: Topology, new: *mut MPI_Comm) -> Outcome {
    if comm.is_inter {
        return Err(MPI_ERR_COMM);
    }
    let color = (comm.rank < number).then_some(0_u32);
    let part = comm.library().split_by_color(color).map_err(class_of_creation)?;
    // SAFETY: the contract of this module.
    unsafe { made(new, part.map(|part| with_topology(comm, part, topology))) }
}

pub(crate) unsafe fn cart_create(
    comm: MPI_Comm,
    dimensions: c_int,
    lengths: *const c_int,
    periods: *const c_int,
    _: c_int,
    new: *mut MPI_Comm,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            if dimensions < 0 {
                return Err(MPI_ERR_DIMS);
            }
            let (lengths, periods) = (list(lengths, dimensions.into())?, list(periods, dimensions.into())?);
            if lengths.iter().any(|length| *length <= 0) {
                return Err(MPI_ERR_DIMS);
            }
            let number = lengths.iter().try_fold(1_u32, |number, length| number.checked_mul(*length as u32));
            let number = number.filter(|number| *number <= comm.size).ok_or(MPI_ERR_DIMS)?;
            let topology = Topology::Grid(lengths.to_vec(), periods.iter().map(|period| *period != 0).collect());
            create_first(comm, number, topology, new)
        })
    }
}

pub(crate) unsafe fn cart_map(
    comm: MPI_Comm,
    dimensions: c_int,
    lengths: *const c_int,
    _: *const c_int,
    rank: *mut c_int,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            if dimensions < 0 {
                return Err(MPI_ERR_DIMS);
            }
            let lengths = list(lengths, dimensions.into())?;
            if lengths.iter().any(|length| *length <= 0) {
                return Err(MPI_ERR_DIMS);
            }
            let number: i64 = lengths.iter().map(|length| i64::from(*length)).product();
            if number > comm.size.into() {
                return Err(MPI_ERR_DIMS);
            }
            give(rank, if i64::from(comm.rank) < number { comm.rank as c_int } else { MPI_UNDEFINED })
        })
    }
}

fn grid(comm: &Comm) -> Outcome<(&[c_int], &[bool])> {
    match &comm.topology {
        Some(Topology::Grid(lengths, periods)) => Ok((lengths, periods)),
        _ => Err(MPI_ERR_TOPOLOGY),
    }
}

fn graph(comm: &Comm) -> Outcome<(&[c_int], &[c_int])> {
    match &comm.topology {
        Some(Topology::Graph(ends, edges)) => Ok((ends, edges)),
        _ => Err(MPI_ERR_TOPOLOGY),
    }
}

fn edges(comm: &Comm) -> Outcome<&Edges> {
    match &comm.topology {
        Some(Topology::Edges(edges)) => Ok(edges),
        _ => Err(MPI_ERR_TOPOLOGY),
    }
}

fn checked_rank(comm: &Comm, rank: c_int) -> Outcome<c_int> {
    if (0..comm.size as c_int).contains(&rank) { Ok(rank) } else { Err(MPI_ERR_RANK) }
}

pub(crate) unsafe fn cartdim_get(comm: MPI_Comm, dimensions: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { on(comm, |comm| give(dimensions, grid(comm)?.0.len() as c_int)) }
}

/// Copies as many values as there is room for.
unsafe fn copy<T: Copy>(from: impl IntoIterator<Item = T>, to: *mut T, room: c_int) -> Outcome {
    for (at, value) in from.into_iter().enumerate().take(usize::try_from(room).unwrap_or(0)) {
        // SAFETY: the contract of this module: there is room.
        unsafe { give(to.wrapping_add(at), value) }?;
    }
    Ok(())
}

pub(crate) unsafe fn cart_get(
    comm: MPI_Comm,
    room: c_int,
    lengths: *mut c_int,
    periods: *mut c_int,
    own: *mut c_int,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            let (all, periodic) = grid(comm)?;
            if (room as i64) < all.len() as i64 {
                return Err(MPI_ERR_DIMS);
            }
            copy(all.iter().copied(), lengths, room)?;
            copy(periodic.iter().map(|period| c_int::from(*period)), periods, room)?;
            copy(coordinates(all, comm.rank as c_int), own, room)
        })
    }
}

pub(crate) unsafe fn cart_coords(comm: MPI_Comm, rank: c_int, room: c_int, to: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            let (lengths, _) = grid(comm)?;
            let rank = checked_rank(comm, rank)?;
            if (room as i64) < lengths.len() as i64 {
                return Err(MPI_ERR_DIMS);
            }
            copy(coordinates(lengths, rank), to, room)
        })
    }
}

pub(crate) unsafe fn cart_rank(comm: MPI_Comm, at: *const c_int, rank: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            let (lengths, periods) = grid(comm)?;
            let at = list(at, lengths.len() as i64)?;
            give(rank, rank_at(lengths, periods, at).ok_or(MPI_ERR_RANK)?)
        })
    }
}

pub(crate) unsafe fn cart_shift(
    comm: MPI_Comm,
    dimension: c_int,
    by: c_int,
    source: *mut c_int,
    destination: *mut c_int,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            let (lengths, periods) = grid(comm)?;
            let dimension = usize::try_from(dimension).ok().filter(|dimension| *dimension < lengths.len());
            let (from, to) = shift(lengths, periods, comm.rank as c_int, dimension.ok_or(MPI_ERR_DIMS)?, by);
            give(source, from).and(give(destination, to))
        })
    }
}

pub(crate) unsafe fn cart_sub(comm: MPI_Comm, remain: *const c_int, new: *mut MPI_Comm) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            let (lengths, periods) = grid(comm)?;
            let remain = list(remain, lengths.len() as i64)?;
            let own = coordinates(lengths, comm.rank as c_int);
            let (mut color, mut key) = (0, 0);
            let (mut kept, mut kept_periods) = (Vec::new(), Vec::new());
            for (at, remains) in remain.iter().enumerate() {
                if *remains != 0 {
                    key = key * lengths[at] + own[at];
                    kept.push(lengths[at]);
                    kept_periods.push(periods[at]);
                } else {
                    color = color * lengths[at] + own[at];
                }
            }
            let part = comm.library().split_by_color_with_key(color as u32, key).map_err(class_of_creation)?;
            made(new, part.map(|part| with_topology(comm, part, Topology::Grid(kept, kept_periods))))
        })
    }
}

pub(crate) unsafe fn graph_create(
    comm: MPI_Comm,
    nodes: c_int,
    ends: *const c_int,
    neighbours: *const c_int,
    _: c_int,
    new: *mut MPI_Comm,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            if nodes < 0 || nodes as u32 > comm.size {
                return Err(MPI_ERR_ARG);
            }
            let ends = list(ends, nodes.into())?;
            if ends.iter().zip(ends.iter().skip(1)).any(|(one, next)| one > next)
                || ends.first().is_some_and(|n| *n < 0)
            {
                return Err(MPI_ERR_ARG);
            }
            let number = ends.last().copied().unwrap_or(0);
            let all = list(neighbours, number.into())?;
            if all.iter().any(|node| !(0..nodes).contains(node)) {
                return Err(MPI_ERR_ARG);
            }
            let topology = Topology::Graph(ends.to_vec(), all.to_vec());
            create_first(comm, nodes as u32, topology, new)
        })
    }
}

pub(crate) unsafe fn graph_map(
    comm: MPI_Comm,
    nodes: c_int,
    _: *const c_int,
    _: *const c_int,
    rank: *mut c_int,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            if nodes < 1 || nodes as u32 > comm.size {
                return Err(MPI_ERR_ARG);
            }
            give(rank, if comm.rank < nodes as u32 { comm.rank as c_int } else { MPI_UNDEFINED })
        })
    }
}

pub(crate) unsafe fn graphdims_get(comm: MPI_Comm, nodes: *mut c_int, number: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            let (ends, edges) = graph(comm)?;
            give(nodes, ends.len() as c_int).and(give(number, edges.len() as c_int))
        })
    }
}

pub(crate) unsafe fn graph_get(
    comm: MPI_Comm,
    room: c_int,
    edge_room: c_int,
    ends: *mut c_int,
    neighbours: *mut c_int,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            let (all, edges) = graph(comm)?;
            copy(all.iter().copied(), ends, room)?;
            copy(edges.iter().copied(), neighbours, edge_room)
        })
    }
}

pub(crate) unsafe fn graph_neighbors_count(comm: MPI_Comm, rank: c_int, number: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            let (ends, edges) = graph(comm)?;
            give(number, graph_neighbours(ends, edges, checked_rank(comm, rank)?).len() as c_int)
        })
    }
}

pub(crate) unsafe fn graph_neighbors(comm: MPI_Comm, rank: c_int, room: c_int, to: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            let (ends, edges) = graph(comm)?;
            copy(graph_neighbours(ends, edges, checked_rank(comm, rank)?).iter().copied(), to, room)
        })
    }
}

/// The weights of edges; ones where there are none.
unsafe fn weights(of: *const c_int, number: c_int) -> Outcome<Vec<c_int>> {
    match of.addr() {
        MPI_UNWEIGHTED | MPI_WEIGHTS_EMPTY => Ok(vec![1; number.max(0) as usize]),
        // SAFETY: the contract of this module.
        _ => {
            let weights = unsafe { list(of, number.into()) }?;
            if weights.iter().any(|weight| *weight < 0) { Err(MPI_ERR_ARG) } else { Ok(weights.to_vec()) }
        }
    }
}

fn checked_neighbours(comm: &Comm, all: &[c_int]) -> Outcome<Vec<c_int>> {
    let size = comm.size as c_int;
    if all.iter().any(|rank| !(0..size).contains(rank)) { Err(MPI_ERR_RANK) } else { Ok(all.to_vec()) }
}

pub(crate) unsafe fn dist_graph_create_adjacent(
    comm: MPI_Comm,
    in_degree: c_int,
    sources: *const c_int,
    source_weights: *const c_int,
    out_degree: c_int,
    destinations: *const c_int,
    destination_weights: *const c_int,
    _: MPI_Info,
    _: c_int,
    new: *mut MPI_Comm,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            if comm.is_inter {
                return Err(MPI_ERR_COMM);
            }
            let edges = Edges {
                sources: checked_neighbours(comm, list(sources, in_degree.into())?)?,
                source_weights: weights(source_weights, in_degree)?,
                destinations: checked_neighbours(comm, list(destinations, out_degree.into())?)?,
                destination_weights: weights(destination_weights, out_degree)?,
                is_weighted: source_weights.addr() != MPI_UNWEIGHTED,
            };
            let library = comm.library().duplicate().map_err(class_of_creation)?;
            made(new, Some(with_topology(comm, library, Topology::Edges(edges))))
        })
    }
}

pub(crate) unsafe fn dist_graph_create(
    comm: MPI_Comm,
    number: c_int,
    sources: *const c_int,
    degrees: *const c_int,
    destinations: *const c_int,
    weights_of: *const c_int,
    _: MPI_Info,
    _: c_int,
    new: *mut MPI_Comm,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            if comm.is_inter {
                return Err(MPI_ERR_COMM);
            }
            let sources = checked_neighbours(comm, list(sources, number.into())?)?;
            let degrees = list(degrees, number.into())?;
            if degrees.iter().any(|degree| *degree < 0) {
                return Err(MPI_ERR_ARG);
            }
            let total: c_int = degrees.iter().sum();
            let destinations = checked_neighbours(comm, list(destinations, total.into())?)?;
            let is_weighted = weights_of.addr() != MPI_UNWEIGHTED;
            let weights = weights(weights_of, total)?;
            let of = sources
                .iter()
                .zip(degrees)
                .flat_map(|(source, degree)| core::iter::repeat_n(*source as u32, *degree as usize));
            let own: Vec<[u32; 3]> = of
                .zip(destinations.iter().zip(&weights))
                .map(|(source, (destination, weight))| [source, *destination as u32, *weight as u32])
                .collect();
            let all = gather_edges(comm, &own)?;
            let rank = comm.rank;
            let mut edges = Edges { is_weighted, ..Edges::default() };
            for [source, destination, weight] in all {
                if destination == rank {
                    edges.sources.push(source as c_int);
                    edges.source_weights.push(weight as c_int);
                }
                if source == rank {
                    edges.destinations.push(destination as c_int);
                    edges.destination_weights.push(weight as c_int);
                }
            }
            let library = comm.library().duplicate().map_err(class_of_creation)?;
            made(new, Some(with_topology(comm, library, Topology::Edges(edges))))
        })
    }
}

/// All edges that the members name, in the order of ranks.
fn gather_edges(comm: &Comm, own: &[[u32; 3]]) -> Outcome<Vec<[u32; 3]>> {
    let library = comm.library();
    let mut lengths = vec![0_u64; comm.size as usize];
    library.all_gather_into(&[own.len() as u64], &mut lengths).map_err(class_of_collective)?;
    let lengths: Vec<usize> = lengths.iter().map(|length| *length as usize).collect();
    let at: Vec<usize> = lengths
        .iter()
        .scan(0, |sum, length| {
            let at = *sum;
            *sum += length;
            Some(at)
        })
        .collect();
    let mut all = vec![[0_u32; 3]; lengths.iter().sum()];
    let into = unisono::collective::PartitionMut::new(&mut all, &lengths, &at).map_err(class_of_collective)?;
    library.all_gather_varcount_into(own, into).map_err(class_of_collective)?;
    Ok(all)
}

pub(crate) unsafe fn dist_graph_neighbors_count(
    comm: MPI_Comm,
    in_degree: *mut c_int,
    out_degree: *mut c_int,
    weighted: *mut c_int,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            let edges = edges(comm)?;
            give(in_degree, edges.sources.len() as c_int)?;
            give(out_degree, edges.destinations.len() as c_int)?;
            give(weighted, edges.is_weighted.into())
        })
    }
}

pub(crate) unsafe fn dist_graph_neighbors(
    comm: MPI_Comm,
    in_room: c_int,
    sources: *mut c_int,
    source_weights: *mut c_int,
    out_room: c_int,
    destinations: *mut c_int,
    destination_weights: *mut c_int,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            let edges = edges(comm)?;
            copy(edges.sources.iter().copied(), sources, in_room)?;
            copy(edges.destinations.iter().copied(), destinations, out_room)?;
            let has_room = |to: *mut c_int| to.addr() != MPI_UNWEIGHTED && to.addr() != MPI_WEIGHTS_EMPTY;
            if edges.is_weighted && has_room(source_weights) {
                copy(edges.source_weights.iter().copied(), source_weights, in_room)?;
            }
            if edges.is_weighted && has_room(destination_weights) {
                copy(edges.destination_weights.iter().copied(), destination_weights, out_room)?;
            }
            Ok(())
        })
    }
}

pub(crate) unsafe fn topo_test(comm: MPI_Comm, status: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { on(comm, |comm| give(status, comm.topology.as_ref().map_or(MPI_UNDEFINED, Topology::kind))) }
}
