//! Graph topologies: each member has any neighbours (`MPI_Dist_graph_create`).

use core::ops::Deref;

use super::Communicator;
use super::create::CreateError;
use super::neighbourhood::{Edge, Neighbourhood};
use crate::world::collective::{CollectiveError, PartitionMut};
use crate::world::request::Tag;
use unisono_bootstrap::Rank;

/// A communicator whose members are the vertices of a directed graph. Its collectives are those of [`Neighbourhood`].
pub struct Graph {
    neighbourhood: Neighbourhood,
    source_weights: Vec<u32>,
    destination_weights: Vec<u32>,
}

/// A neighbour, and the weight of the edge to or from it, which means what the program wants.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Neighbour {
    /// The neighbour.
    pub rank: Rank,
    /// The weight.
    pub weight: u32,
}

impl From<Rank> for Neighbour {
    fn from(rank: Rank) -> Self {
        Self { rank, weight: 1 }
    }
}

impl Communicator {
    /// Makes a communicator of the same members, with the neighbours that each names: those that it receives from, and
    /// those that it sends to (`MPI_Dist_graph_create_adjacent`). Both ends name an edge; one that is listed repeatedly
    /// is as many edges, of which the n-th of one end is the n-th of the other. Collective.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (own, size) = (world.rank().0, world.size());
    /// // A directed ring.
    /// let graph = world.graph(&[Rank((own + size - 1) % size).into()], &[Rank((own + 1) % size).into()])?;
    /// let mut previous = [0];
    /// graph.neighbour_all_gather_into(&[own], &mut previous)?;
    /// assert_eq!(previous, [(own + size - 1) % size]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CreateError`]; [`CollectiveError::UnknownRank`] in it, before anything is exchanged.
    pub fn graph(&self, sources: &[Neighbour], destinations: &[Neighbour]) -> Result<Graph, CreateError> {
        for Neighbour { rank, .. } in sources.iter().chain(destinations) {
            self.expect_member(*rank)?;
        }
        let edges = |all: &[Neighbour]| all.iter().map(|own| Some(Edge { rank: own.rank, tag: Tag(0) })).collect();
        let weights = |all: &[Neighbour]| all.iter().map(|own| own.weight).collect();
        let (source_weights, destination_weights) = (weights(sources), weights(destinations));
        let neighbourhood = Neighbourhood::new(self.duplicate()?, edges(sources), edges(destinations));
        Ok(Graph { neighbourhood, source_weights, destination_weights })
    }

    /// As [`graph`](Self::graph), where any member names any edges, from a rank and to a neighbour
    /// (`MPI_Dist_graph_create`). A rank's neighbours are in the order of the members that name them.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// // Rank 0 describes a star.
    /// let star: Vec<(Rank, Neighbour)> = (1..world.size()).map(|leaf| (Rank(0), Rank(leaf).into())).collect();
    /// let graph = world.graph_of_edges(if world.rank() == Rank(0) { &star } else { &[] })?;
    /// let is_leaf = world.rank() != Rank(0);
    /// assert_eq!(graph.sources().len(), usize::from(is_leaf));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn graph_of_edges(&self, edges: &[(Rank, Neighbour)]) -> Result<Graph, CreateError> {
        let is_known = |rank: Rank| rank.0 < self.size();
        let unknown = edges.iter().flat_map(|(from, to)| [*from, to.rank]).find(|rank| !is_known(*rank));
        // A member that names an unknown rank may not leave the others alone.
        let own: Vec<[u32; 3]> =
            edges.iter().filter(|_| unknown.is_none()).map(|(from, to)| [from.0, to.rank.0, to.weight]).collect();
        let mut counts = vec![0_u64; self.size() as usize];
        let all = self.uncounted(|| {
            self.all_gather_into(&[own.len() as u64], &mut counts)?;
            let lengths: Vec<usize> = counts.iter().map(|count| *count as usize).collect();
            let starts: Vec<usize> =
                lengths.iter().scan(0, |at, length| Some(core::mem::replace(at, *at + length))).collect();
            let mut all = vec![[0_u32; 3]; lengths.iter().sum()];
            self.all_gather_varcount_into(&own, PartitionMut::new(&mut all, &lengths, &starts)?)?;
            Ok::<_, CollectiveError>(all)
        })?;
        let neighbours = |own: usize, other: usize| -> Vec<Neighbour> {
            let is_own = |edge: &&[u32; 3]| edge.get(own) == Some(&self.rank().0);
            let neighbour = |edge: &[u32; 3]| Some(Neighbour { rank: Rank(*edge.get(other)?), weight: edge[2] });
            all.iter().filter(is_own).filter_map(neighbour).collect()
        };
        let graph = self.graph(&neighbours(1, 0), &neighbours(0, 1))?;
        match unknown {
            Some(rank) => Err(CollectiveError::UnknownRank { rank, size: self.size() }.into()),
            None => Ok(graph),
        }
    }

    fn expect_member(&self, rank: Rank) -> Result<(), CollectiveError> {
        let size = self.size();
        if rank.0 < size { Ok(()) } else { Err(CollectiveError::UnknownRank { rank, size }) }
    }
}

impl Graph {
    /// The weights of the edges from the [sources](Neighbourhood::sources) (`MPI_Dist_graph_neighbors`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let own = Neighbour { rank: world.rank(), weight: 7 };
    /// assert_eq!(world.graph(&[own], &[own])?.source_weights(), [7]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn source_weights(&self) -> &[u32] {
        &self.source_weights
    }

    /// The weights of the edges to the [destinations](Neighbourhood::destinations).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let own = Neighbour { rank: world.rank(), weight: 7 };
    /// let graph = world.graph(&[own], &[own])?;
    /// assert_eq!((graph.source_weights(), graph.destination_weights()), (&[7][..], &[7][..]));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn destination_weights(&self) -> &[u32] {
        &self.destination_weights
    }
}

impl Deref for Graph {
    type Target = Neighbourhood;

    fn deref(&self) -> &Neighbourhood {
        &self.neighbourhood
    }
}
