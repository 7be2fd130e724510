//! The specification of a collective: kind, size, root, lengths, order. Equal on all ranks, except for the rank itself.

use crate::ids::Rank;

/// The kind of a collective.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CollectiveKind {
    /// No rank leaves before every rank has entered.
    Barrier,
    /// The root's input is every other rank's output.
    Broadcast,
    /// The root's output is every rank's input, in rank order.
    Gather,
    /// The root's input holds every rank's output, in rank order.
    Scatter,
    /// Every rank's output is every rank's input, in rank order.
    Allgather,
    /// Block j of rank i's input is block i of rank j's output.
    Alltoall,
    /// The root's output is all inputs combined.
    Reduce,
    /// Every rank's output is all inputs combined: the same bits everywhere.
    Allreduce,
    /// Rank i's output is block i of all inputs, combined.
    ReduceScatter,
    /// Rank i's output is the inputs of ranks 0 to i, combined.
    Scan,
    /// Rank i's output is the inputs of ranks 0 to i − 1, combined; rank 0's is left as it is.
    Exscan,
}

impl CollectiveKind {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Barrier,
        Self::Broadcast,
        Self::Reduce,
        Self::Allreduce,
        Self::Gather,
        Self::Scatter,
        Self::Allgather,
        Self::Alltoall,
        Self::ReduceScatter,
        Self::Scan,
        Self::Exscan,
    ];

    /// Its name in the public API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Broadcast => "broadcast",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::Allgather => "all_gather",
            Self::Alltoall => "all_to_all",
            Self::Reduce => "reduce",
            Self::Allreduce => "all_reduce",
            Self::ReduceScatter => "reduce_scatter",
            Self::Scan => "scan",
            Self::Exscan => "exscan",
        }
    }

    /// Whether it combines operands.
    pub const fn combines(self) -> bool {
        matches!(self, Self::Reduce | Self::Allreduce | Self::ReduceScatter | Self::Scan | Self::Exscan)
    }

    /// Whether it has a root.
    pub const fn is_rooted(self) -> bool {
        matches!(self, Self::Broadcast | Self::Gather | Self::Scatter | Self::Reduce)
    }
}

/// The order in which operands are combined.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Order {
    /// The operation is commutative: any order that is the same on all ranks.
    Any,
    /// In rank order.
    Rank,
    /// In rank order, with brackets that depend only on the number of ranks, not on the root: floating-point results
    /// have the same bits from run to run. Schedules combine along the binomial tree of rank 0, scans by recursive
    /// doubling, shared-memory machines from left to right.
    Fixed,
}

/// One collective, as seen by one rank.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CollectiveSpec {
    /// The kind.
    pub collective: CollectiveKind,
    /// This rank.
    pub rank: Rank,
    /// Members of the group.
    pub size: u32,
    /// The root, of rooted collectives.
    pub root: Rank,
    /// Bytes of a rank's block; of an alltoall and a reduce-scatter per pair of ranks; of broadcast, reductions and
    /// scans the whole vector.
    pub bytes: usize,
    /// Bytes of an element: vectors are cut only at multiples of it.
    pub grain: usize,
    /// Order of combination.
    pub order: Order,
    /// Input and output are the same memory, on all ranks.
    pub in_place: bool,
    /// A number for operation and type ([`type_code`] without an operation): ranks whose numbers differ disagree.
    pub reduction_id: u32,
}

/// The [reduction id](CollectiveSpec::reduction_id) of a collective without a reduction, of elements of this type: a
/// digest that is equal in all builds, of the last part of the type's name and its length.
#[inline]
pub fn type_code<T>() -> u32 {
    let name = core::any::type_name::<T>().as_bytes();
    let (mut code, mut at) = (size_of::<T>() as u32, name.len());
    for _ in 0..8 {
        let Some(byte) = at.checked_sub(1).and_then(|at| name.get(at)).filter(|byte| **byte != b':') else { break };
        code = (code ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        at = at.wrapping_sub(1);
    }
    code
}
