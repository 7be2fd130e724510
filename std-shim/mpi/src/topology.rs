//! Topologies of communicators: Cartesian grids, graphs, and distributed graphs.

use core::ffi::c_int;

use unisono::Grid;

use crate::abi::*;
use crate::error::Outcome;

/// A topology.
#[derive(Clone, Debug)]
pub enum Topology {
    /// A grid: lengths, and which dimensions are periodic.
    Grid(Vec<c_int>, Vec<bool>),
    /// A graph: ends of the neighbour lists, and the lists.
    Graph(Vec<c_int>, Vec<c_int>),
    /// This process's edges.
    Edges(Edges),
}

/// The edges of a process in a distributed graph.
#[derive(Clone, Debug, Default)]
pub struct Edges {
    /// Where edges come from.
    pub sources: Vec<c_int>,
    /// Their weights.
    pub source_weights: Vec<c_int>,
    /// Where edges lead.
    pub destinations: Vec<c_int>,
    /// Their weights.
    pub destination_weights: Vec<c_int>,
    /// Whether the edges have weights.
    pub is_weighted: bool,
}

/// The coordinates of a rank.
pub fn coordinates(lengths: &[c_int], rank: c_int) -> Vec<c_int> {
    let mut rest = rank;
    let mut all: Vec<c_int> = lengths
        .iter()
        .rev()
        .map(|length| {
            let here = rest % length.max(&1);
            rest /= length.max(&1);
            here
        })
        .collect();
    all.reverse();
    all
}

/// The rank at coordinates; those of periodic dimensions wrap around. `None`: outside.
pub fn rank_at(lengths: &[c_int], periodic: &[bool], at: &[c_int]) -> Option<c_int> {
    let mut rank = 0;
    for ((length, periodic), at) in lengths.iter().zip(periodic).zip(at) {
        let here = if *periodic { at.rem_euclid(*length) } else { *at };
        if !(0..*length).contains(&here) {
            return None;
        }
        rank = rank * length + here;
    }
    Some(rank)
}

/// Source and destination of a shift along a dimension.
pub fn shift(lengths: &[c_int], periodic: &[bool], rank: c_int, dimension: usize, by: c_int) -> (c_int, c_int) {
    let own = coordinates(lengths, rank);
    let moved = |by: c_int| {
        let mut at = own.clone();
        if let Some(at) = at.get_mut(dimension) {
            *at = at.wrapping_add(by);
        }
        rank_at(lengths, periodic, &at).unwrap_or(MPI_PROC_NULL)
    };
    (moved(by.wrapping_neg()), moved(by))
}

impl Topology {
    /// The constant.
    pub const fn kind(&self) -> c_int {
        match self {
            Self::Grid(..) => MPI_CART,
            Self::Graph(..) => MPI_GRAPH,
            Self::Edges(_) => MPI_DIST_GRAPH,
        }
    }

    /// The neighbours of a rank from which it receives, and those to which it sends.
    pub fn neighbours(&self, rank: c_int) -> (Vec<c_int>, Vec<c_int>) {
        match self {
            Self::Grid(lengths, periodic) => {
                let both = (0..lengths.len()).flat_map(|dimension| {
                    let (before, after) = shift(lengths, periodic, rank, dimension, 1);
                    [before, after]
                });
                let all: Vec<c_int> = both.collect();
                (all.clone(), all)
            }
            Self::Graph(ends, edges) => {
                let all = graph_neighbours(ends, edges, rank).to_vec();
                (all.clone(), all)
            }
            Self::Edges(edges) => (edges.sources.clone(), edges.destinations.clone()),
        }
    }

    /// The edge at the receiver of what is sent along an edge: in a grid, what goes down one way arrives from the
    /// other; elsewhere edges between the same two processes are used in their order.
    pub const fn edge_at_receiver(&self, edge: usize) -> u32 {
        match self {
            Self::Grid(..) => (edge as u32 ^ 1) & 0xff,
            _ => 0,
        }
    }

    /// As [`edge_at_receiver`](Self::edge_at_receiver), at the receiver.
    pub const fn edge_of_receive(&self, edge: usize) -> u32 {
        match self {
            Self::Grid(..) => edge as u32 & 0xff,
            _ => 0,
        }
    }
}

/// The neighbours of a node of a graph.
pub fn graph_neighbours<'a>(ends: &[c_int], edges: &'a [c_int], node: c_int) -> &'a [c_int] {
    let end = |node: c_int| usize::try_from(node).ok().and_then(|node| ends.get(node)).map_or(0, |end| *end as usize);
    edges.get(end(node - 1)..end(node)).unwrap_or_default()
}

/// Chooses lengths of a grid of `nodes` processes: those that are 0, as equal as possible, in decreasing order.
pub fn choose_lengths(nodes: c_int, lengths: &mut [c_int]) -> Outcome {
    if nodes < 1 || lengths.iter().any(|length| *length < 0) {
        return Err(MPI_ERR_DIMS);
    }
    let fixed =
        lengths.iter().filter(|length| **length > 0).try_fold(1_i32, |product, length| product.checked_mul(*length));
    let fixed = fixed.ok_or(MPI_ERR_DIMS)?;
    let free = lengths.iter().filter(|length| **length == 0).count();
    if nodes % fixed != 0 || (free == 0 && fixed != nodes) {
        return Err(MPI_ERR_DIMS);
    }
    let chosen = Grid::balanced((nodes / fixed) as u32, free);
    for (length, chosen) in lengths.iter_mut().filter(|length| **length == 0).zip(chosen) {
        *length = chosen as c_int;
    }
    Ok(())
}
