//! What is asked of a collective. Equal on all ranks, but for the rank itself.

use crate::ids::Rank;

/// What the group does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verb {
    /// Nobody leaves before everyone has entered.
    Barrier,
    /// The root's input is everyone else's output.
    Broadcast,
    /// The root's output is everyone's input, in rank order.
    Gather,
    /// The root's input holds everyone's output, in rank order.
    Scatter,
    /// Everyone's output is everyone's input, in rank order.
    Allgather,
    /// Block j of rank i's input is block i of rank j's output.
    Alltoall,
    /// The root's output is all inputs combined.
    Reduce,
    /// Everyone's output is all inputs combined: the same bits everywhere.
    Allreduce,
    /// Rank i's output is block i of all inputs, combined.
    ReduceScatter,
    /// Rank i's output is the inputs of ranks 0 to i, combined.
    Scan,
    /// Rank i's output is the inputs of ranks 0 to i − 1, combined; rank 0's is left as it is.
    Exscan,
}

impl Verb {
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

    /// Its name, as users know it.
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

/// In which order operands may be combined.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Order {
    /// The operation commutes: in any order that is the same on all ranks.
    Any,
    /// As the ranks are numbered.
    Rank,
    /// As the ranks are numbered, bracketed as their number alone says, whoever the root is: floating-point results have the same bits
    /// from run to run. Schedules combine along the binomial tree of rank 0, scans by recursive doubling, boards from left to right.
    Fixed,
}

/// One collective, as one rank sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Plan {
    /// What the group does.
    pub verb: Verb,
    /// Who this is.
    pub rank: Rank,
    /// Members of the group.
    pub size: u32,
    /// The root, where there is one.
    pub root: Rank,
    /// Bytes of a rank's block; of an alltoall and a reduce-scatter per pair; of broadcast, reductions and scans the whole vector.
    pub bytes: usize,
    /// Bytes of an element: blocks are cut at its multiples only.
    pub grain: usize,
    /// Order of combination.
    pub order: Order,
    /// Input and output are the same memory, on all ranks.
    pub in_place: bool,
    /// Names operation and type: ranks whose kinds differ disagree.
    pub kind: u32,
}
