//! Which algorithm for which size: a pure function of values that are equal on all ranks, with thresholds as measured
//! (`docs/performance.md`).

use unisono_core::collective::{Plan, Verb};

use crate::board::Boards;

/// How payload travels.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Way {
    /// Through slots; whoever needs a result combines all contributions itself.
    Flat,
    /// Through slots; every rank combines its share of every contribution, then shares are exchanged: Mamidala §9.2.2, *cyclic* where
    /// the operation commutes, else *parallel*.
    Parallel,
    /// Buffers are lent and read by others directly; reductions combine shares.
    Pull,
}

/// The way of a plan that is fastest, as measured. Not all can be gone: [`can`].
pub fn way(plan: &Plan, boards: &Boards, pulls: bool) -> Way {
    let (bytes, can) = (plan.bytes, |way| can(way, plan, boards, pulls));
    let (pull, parallel) = match plan.verb {
        Verb::Allreduce => (64 << 10, 16 << 10),
        Verb::Reduce => (usize::MAX, 16 << 10),
        _ => (32 << 10, usize::MAX),
    };
    match bytes {
        _ if bytes >= pull && can(Way::Pull) => Way::Pull,
        _ if bytes >= parallel && can(Way::Parallel) => Way::Parallel,
        _ => Way::Flat,
    }
}

/// Whether a plan can go this way.
pub fn can(way: Way, plan: &Plan, boards: &Boards, pulls: bool) -> bool {
    // Two operands of at least one element lie in a chunk.
    let halves = 2 * plan.grain <= boards.chunk;
    match (way, plan.verb) {
        (Way::Flat, _) => true,
        // Exchanges are two steps.
        _ if boards.slots < 4 => false,
        (Way::Parallel, Verb::Allreduce | Verb::Reduce) => boards.ranks > 1,
        (Way::Pull, Verb::Allreduce | Verb::ReduceScatter) => pulls && halves && boards.ranks > 1,
        (Way::Pull, Verb::Broadcast | Verb::Gather | Verb::Scatter | Verb::Allgather | Verb::Alltoall) => {
            pulls && boards.ranks > 1
        }
        _ => false,
    }
}

/// Bytes that a rank writes per lap on the flat way, at most.
pub fn piece(_verb: Verb, _size: u32, _bytes: usize, boards: &Boards) -> usize {
    boards.chunk
}

/// The largest element that can be combined: one of it fits in a chunk.
pub const fn grain_max(boards: &Boards) -> usize {
    boards.chunk
}
