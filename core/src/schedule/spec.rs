//! The specification of a schedule, and the reasons to reject it.

use super::groups::Groups;
use super::radix::Radix;
use super::{Algorithm, CollectiveKind, Order, Plan, Rank};
use core::fmt;

/// The specification of a schedule; only `rank` differs between the ranks of a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Spec {
    /// The collective.
    pub collective: CollectiveKind,
    /// Its algorithm.
    pub algorithm: Algorithm,
    /// The rank whose schedule this is.
    pub rank: Rank,
    /// Ranks in the group.
    pub size: u32,
    /// The root of a rooted collective.
    pub root: Rank,
    /// Concurrent messages that a rank sends and receives, k: 1 to [`Plan::PORTS`].
    pub ports: u8,
    /// Base of a k-nomial tree, 2 to [`Plan::PORTS`] + 1; other algorithms count in base k + 1, doubling in base 2.
    pub radix: u8,
    /// Segments of each block, at least one.
    pub segments: u32,
    /// The order in which a reduction combines. In rank order halving exchanges the largest parts between the nearest
    /// ranks; so do doubling and standard exchange in an allgather, if the size is a power of their base.
    pub order: Order,
    /// Input and output share memory, in the way of this collective.
    pub in_place: bool,
    /// Blocks differ in size.
    pub varying: bool,
}

impl Spec {
    /// For rank 0, with root 0 if any: in base `ports` + 1, one segment, operands in any order, separate buffers, equal
    /// blocks.
    pub const fn new(collective: CollectiveKind, algorithm: Algorithm, size: u32, ports: u8) -> Self {
        Self {
            collective,
            algorithm,
            rank: Rank(0),
            size,
            root: Rank(0),
            ports,
            radix: ports.saturating_add(1),
            segments: 1,
            order: Order::Any,
            in_place: false,
            varying: false,
        }
    }
}

/// Why there is no such schedule.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unsupported {
    /// The collective has no such algorithm.
    Unavailable,
    /// The ranks do not form the groups over which it is to be composed, or such a schedule cannot do the call.
    Groups,
    /// The rank, or the root of a rooted collective, is not in the group.
    Rank,
    /// No port, or more than [`Plan::PORTS`].
    Ports,
    /// A base below 2 or above [`Plan::PORTS`] + 1.
    Radix,
    /// No segment.
    Segments,
    /// The algorithm combines out of order: the operation must be commutative.
    Order,
    /// The algorithm cannot bracket as required: see [`Order::Fixed`](super::Order::Fixed).
    Brackets,
    /// Ranks that forward blocks cannot know their sizes: blocks must be equal.
    Varying,
    /// The algorithm needs separate input and output.
    InPlace,
    /// The algorithm needs a size that is a power of its base.
    Power,
    /// More than [`Plan::RANKS`], or steps beyond 32 bits.
    TooLong,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Unavailable => "no such algorithm for this collective",
            Self::Groups => "these groups of ranks cannot do the call, or there are none",
            Self::Rank => "rank or root outside the group",
            Self::Ports => "too many ports or none",
            Self::Radix => "radix out of range",
            Self::Segments => "no segment",
            Self::Order => "this algorithm needs a commutative operation",
            Self::Brackets => "what is reproducible is combined by knomial:k=1, and in scans by dissemination:k=1",
            Self::Varying => "this algorithm needs blocks of one size",
            Self::InPlace => "this algorithm needs separate input and output",
            Self::Power => "this algorithm needs a size that is a power of its base",
            Self::TooLong => "too many steps",
        })
    }
}

impl core::error::Error for Unsupported {}

/// The base in which the algorithm counts.
pub(super) fn base(call: &Spec) -> Radix {
    Radix::new(match call.algorithm {
        Algorithm::Doubling => 2,
        Algorithm::Knomial => u32::from(call.radix),
        _ => u32::from(call.ports).wrapping_add(1),
    })
}

/// Checks whether there is a schedule.
pub(super) fn check(call: &Spec) -> Result<(), Unsupported> {
    use Algorithm::{Bruck, Direct, Dissemination, Doubling, Halving, Knomial, Pairwise, Ring, StandardExchange};
    let available = match call.collective {
        CollectiveKind::Barrier => matches!(call.algorithm, Knomial | Dissemination | Doubling | StandardExchange),
        CollectiveKind::Broadcast => matches!(call.algorithm, Knomial | Bruck | Ring),
        CollectiveKind::Reduce | CollectiveKind::ReduceScatter => matches!(call.algorithm, Knomial | Halving | Ring),
        CollectiveKind::Allreduce => matches!(call.algorithm, Knomial | Doubling | StandardExchange | Halving | Ring),
        CollectiveKind::Gather | CollectiveKind::Scatter => matches!(call.algorithm, Knomial | Direct),
        CollectiveKind::Allgather => matches!(call.algorithm, Doubling | StandardExchange | Bruck | Direct | Ring),
        CollectiveKind::Alltoall => matches!(call.algorithm, Pairwise | Doubling | StandardExchange | Bruck | Direct),
        CollectiveKind::Scan | CollectiveKind::Exscan => matches!(call.algorithm, Dissemination | Ring),
    };
    if !available {
        return Err(Unsupported::Unavailable);
    }
    if call.rank.0 >= call.size || (call.collective.is_rooted() && call.root.0 >= call.size) {
        return Err(Unsupported::Rank);
    }
    if call.ports == 0 || call.ports > Plan::PORTS {
        return Err(Unsupported::Ports);
    }
    if call.algorithm == Knomial && !(2..=Plan::PORTS.wrapping_add(1)).contains(&call.radix) {
        return Err(Unsupported::Radix);
    }
    if call.segments == 0 {
        return Err(Unsupported::Segments);
    }
    if call.size > Plan::RANKS {
        return Err(Unsupported::TooLong);
    }
    let exact = Groups::new(base(call), call.size, call.rank.0).exact();
    let reduces =
        matches!(call.collective, CollectiveKind::Reduce | CollectiveKind::Allreduce | CollectiveKind::ReduceScatter);
    let shuffles = match call.algorithm {
        Ring => true,
        Halving => call.collective != CollectiveKind::Allreduce && !exact,
        _ => false,
    };
    if reduces && call.order == Order::Rank && shuffles {
        return Err(Unsupported::Order);
    }
    let is_fixed = match call.algorithm {
        Knomial => call.radix == 2,
        Dissemination => call.ports == 1,
        _ => false,
    };
    if call.collective.combines() && call.order == Order::Fixed && !is_fixed {
        return Err(Unsupported::Brackets);
    }
    let forwards = match call.collective {
        CollectiveKind::Gather | CollectiveKind::Scatter => call.algorithm == Knomial,
        CollectiveKind::Alltoall => !matches!(call.algorithm, Direct | Pairwise),
        _ => false,
    };
    if forwards && call.varying {
        return Err(Unsupported::Varying);
    }
    if call.collective == CollectiveKind::Alltoall && matches!(call.algorithm, Doubling | StandardExchange) && !exact {
        return Err(Unsupported::Power);
    }
    Ok(())
}

/// Checks that steps can be counted in 32 bits: no schedule has more than eight per rank, plus those of a tree.
pub(super) const fn check_step_count(call: &Spec) -> Result<(), Unsupported> {
    match call.size.wrapping_mul(8).wrapping_add(256).checked_mul(call.segments) {
        Some(_) => Ok(()),
        None => Err(Unsupported::TooLong),
    }
}
