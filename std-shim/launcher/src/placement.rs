//! The placement of ranks on hosts and nodes.

use unisono::environment::{HostList, Locality, Location, SIZE_MAX, UnitCounts};
use unisono_bootstrap::Rank;

/// The name of this host, which needs no remote shell.
const HERE: &str = "localhost";

/// The placement of one rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RankPlacement {
    /// The rank.
    pub rank: Rank,
    /// Index of its host in [`JobPlacement::hosts`].
    pub host: usize,
    /// Number of its node.
    pub node: u32,
    /// Number among the ranks of the node.
    pub local_rank: u32,
    /// Ranks of the node.
    pub local_size: u32,
    /// Where it runs, where the launcher divides ranks among units.
    pub location: Location,
}

impl RankPlacement {
    /// The position on the node, as passed to the process.
    pub const fn locality(&self) -> Locality {
        let Self { node, local_rank, local_size, location, .. } = *self;
        Locality { node: Some(node), rank: Some(local_rank), size: Some(local_size), segment: None, location }
    }
}

/// The placement of all ranks of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobPlacement {
    hosts: Vec<Option<String>>,
    ranks: Vec<RankPlacement>,
}

impl JobPlacement {
    /// All ranks on this host, divided into `nodes` nodes of consecutive ranks.
    pub fn on_this_host(size: u32, nodes: u32) -> Result<Self, PlacementError> {
        if !(1..=SIZE_MAX).contains(&size) {
            return Err(PlacementError::Size);
        }
        if !(1..=size).contains(&nodes) {
            return Err(PlacementError::Nodes { size });
        }
        let first = |node: u32| (u64::from(node) * u64::from(size)).div_ceil(u64::from(nodes)) as u32;
        let berths = (0..nodes).flat_map(|node| consecutive_ranks(0, node, first(node), first(node + 1) - first(node)));
        Ok(Self { hosts: vec![None], ranks: berths.collect() })
    }

    /// Ranks on the hosts of a list, which are filled in order; `size` ranks, or as many as the hosts take.
    pub fn on_hosts(list: &HostList, size: Option<u32>) -> Result<Self, PlacementError> {
        let slots: u32 = list.hosts().iter().map(|(_, slots)| slots).sum();
        let size = size.unwrap_or(slots);
        if size == 0 {
            return Err(PlacementError::Size);
        }
        if size > slots {
            return Err(PlacementError::TooFewSlots { size, slots });
        }
        let (mut hosts, mut all, mut next) = (Vec::new(), Vec::new(), 0);
        for (name, slots) in list.hosts() {
            let here = (*slots).min(size - next);
            if here == 0 {
                break;
            }
            let node = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
            all.extend(consecutive_ranks(hosts.len(), node, next, here));
            hosts.push((name != HERE).then(|| name.clone()));
            next += here;
        }
        Ok(Self { hosts, ranks: all })
    }

    /// The same placement, with nodes divided among switches, and the ranks of each node among sockets and caches.
    #[must_use]
    pub fn divided(mut self, among: UnitCounts) -> Self {
        let nodes = self.nodes();
        for placed in &mut self.ranks {
            placed.location = among.location((placed.node, nodes), (placed.local_rank, placed.local_size));
        }
        self
    }

    /// The hosts; `None` is this one, reached without a remote shell.
    pub fn hosts(&self) -> &[Option<String>] {
        &self.hosts
    }

    /// The placement of each rank, by rank.
    pub fn ranks(&self) -> &[RankPlacement] {
        &self.ranks
    }

    /// The ranks of one host.
    pub fn on_host(&self, host: usize) -> impl Iterator<Item = &RankPlacement> {
        self.ranks.iter().filter(move |placed| placed.host == host)
    }

    /// Number of ranks.
    pub fn size(&self) -> u32 {
        u32::try_from(self.ranks.len()).unwrap_or(u32::MAX)
    }

    /// Number of nodes.
    pub fn nodes(&self) -> u32 {
        self.ranks.last().map_or(0, |last| last.node + 1)
    }

    /// The name of a rank's host, for messages.
    pub fn host_name(&self, rank: Rank) -> &str {
        let placed = usize::try_from(rank.0).ok().and_then(|rank| self.ranks.get(rank));
        let host = placed.and_then(|placed| self.hosts.get(placed.host));
        host.and_then(Option::as_deref).unwrap_or(HERE)
    }
}

fn consecutive_ranks(host: usize, node: u32, first: u32, count: u32) -> impl Iterator<Item = RankPlacement> {
    let location = Location::default();
    (0..count).map(move |local_rank| {
        let rank = Rank(first + local_rank);
        RankPlacement { rank, host, node, local_rank, local_size: count, location }
    })
}

/// Why a placement is not possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlacementError {
    /// The number of ranks is 0 or too large.
    #[error("a job must have 1 to {SIZE_MAX} ranks")]
    Size,
    /// The number of nodes is 0, or larger than that of ranks.
    #[error("{size} ranks can be on 1 to {size} nodes")]
    Nodes {
        /// Ranks of the job.
        size: u32,
    },
    /// More ranks than the hosts take.
    #[error("the hosts take {slots} ranks in all, not {size}: reduce -n or extend --hosts")]
    TooFewSlots {
        /// Requested ranks.
        size: u32,
        /// Ranks that the hosts take.
        slots: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::num::NonZero;
    use proptest::prelude::*;

    #[test]
    fn hosts_are_filled_in_order() {
        let layout = JobPlacement::on_hosts(&"a:2,localhost:2,c:9".parse().expect("good"), Some(3)).expect("fits");
        assert_eq!(layout.hosts(), [Some("a".to_owned()), None]);
        assert_eq!(layout.nodes(), 2);
        assert_eq!(layout.host_name(Rank(1)), "a");
        assert_eq!(layout.host_name(Rank(2)), "localhost");
        let last = layout.ranks()[2];
        assert_eq!((last.node, last.local_rank, last.local_size), (1, 0, 1));
        let refused = JobPlacement::on_hosts(&"a:2".parse().expect("good"), Some(3));
        assert_eq!(refused, Err(PlacementError::TooFewSlots { size: 3, slots: 2 }));
    }

    #[test]
    fn sizes_and_nodes_have_bounds() {
        assert_eq!(JobPlacement::on_this_host(0, 1), Err(PlacementError::Size));
        assert_eq!(JobPlacement::on_this_host(2, 3), Err(PlacementError::Nodes { size: 2 }));
        assert_eq!(JobPlacement::on_this_host(2, 0), Err(PlacementError::Nodes { size: 2 }));
    }

    #[test]
    fn switches_have_nodes_and_sockets_have_ranks() {
        let among = UnitCounts { switches: NonZero::new(2), sockets: NonZero::new(2), caches: None };
        let layout = JobPlacement::on_this_host(16, 4).expect("within bounds").divided(among);
        let texts: Vec<String> = layout.ranks().iter().map(|placed| placed.location.to_string()).collect();
        let node = |switch: u32| [0, 0, 1, 1].map(|socket| format!("switch={switch},socket={socket}"));
        assert_eq!(texts, [node(0), node(0), node(1), node(1)].concat());
    }

    proptest! {
        #[test]
        fn nodes_share_ranks_evenly(size in 1_u32..200, nodes in 1_u32..200) {
            prop_assume!(nodes <= size);
            let layout = JobPlacement::on_this_host(size, nodes).expect("within bounds");
            prop_assert_eq!(layout.size(), size);
            for (rank, placed) in layout.ranks().iter().enumerate() {
                prop_assert_eq!(placed.rank, Rank(rank as u32));
                prop_assert!(placed.local_rank < placed.local_size);
                prop_assert!(placed.local_size == size / nodes || placed.local_size == size.div_ceil(nodes));
                prop_assert!(placed.node < nodes);
            }
        }
    }
}
