//! Generates the list of collectives.

use unisono_core::collective::{CollectiveKind, Order};
use unisono_core::ids::Rank;
use unisono_core::schedule::{Algorithm, Plan, Spec};

/// A collective and its length.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Workload {
    /// The call, equal on all ranks.
    pub call: Spec,
    /// Elements of the vector, or of a block; blocks that differ have 0 to 6 elements.
    pub elements: usize,
}

/// Elements, of three bytes each: none, one, an odd number within one eager message, one beyond it, and
/// one in several datagrams.
pub const LENGTHS: [usize; 5] = [0, 1, 7, 41, 601];

/// Selection of collectives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkloadFilter {
    /// Ports are 1 to this.
    pub ports: u8,
    /// Takes one in this many; 1 takes all.
    pub one_in: u32,
    /// Seed of the selection.
    pub seed: u64,
}

/// Every collective of `size` ranks that is not refused: verb, algorithm, ports, root, order of combination, in place
/// or not, equal or varying blocks, length; one to three segments in turn. Shuffled.
pub fn workloads(size: u32, choice: WorkloadFilter) -> Vec<Workload> {
    let mut random = fastrand::Rng::with_seed(choice.seed ^ u64::from(size));
    let mut works = Vec::new();
    for (verb, algorithm) in
        CollectiveKind::ALL.iter().flat_map(|verb| Algorithm::ALL.map(|algorithm| (*verb, algorithm)))
    {
        for k in 1..=choice.ports {
            // A tree of k + 1 branches on one port as well.
            let ports = if algorithm == Algorithm::Knomial && k > 1 { vec![k, 1] } else { vec![k] };
            let roots = if verb.is_rooted() { size } else { 1 };
            let orders = if verb.combines() { vec![Order::Any, Order::Rank] } else { vec![Order::Any] };
            let places = if matches!(verb, CollectiveKind::Barrier | CollectiveKind::Broadcast) {
                vec![false]
            } else {
                vec![false, true]
            };
            let blocks = matches!(
                verb,
                CollectiveKind::Gather
                    | CollectiveKind::Scatter
                    | CollectiveKind::Allgather
                    | CollectiveKind::Alltoall
                    | CollectiveKind::ReduceScatter
            );
            let varies = if blocks { vec![false, true] } else { vec![false] };
            let lengths = if verb == CollectiveKind::Barrier { &LENGTHS[..1] } else { &LENGTHS[..] };
            for ports in ports {
                for root in 0..roots {
                    for &order in &orders {
                        for &in_place in &places {
                            for &varying in &varies {
                                for &elements in lengths {
                                    let segments = 1 + works.len() as u32 % 3;
                                    let call = Spec {
                                        root: Rank(root),
                                        radix: k + 1,
                                        segments,
                                        order,
                                        in_place,
                                        varying,
                                        ..Spec::new(verb, algorithm, size, ports)
                                    };
                                    if Plan::new(call).is_ok() {
                                        works.push(Workload { call, elements });
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    random.shuffle(&mut works);
    works.truncate(works.len().div_ceil(choice.one_in.max(1) as usize));
    works
}
