//! Selects the algorithm of a collective by its size: a pure function of values that are equal on all ranks, with
//! measured thresholds (`docs/performance.md`).

use unisono_core::collective::{Plan, Verb};

use crate::collective_area::Boards;

/// How a collective moves its payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Way {
    /// Through slots; each rank that needs a result combines all contributions itself.
    Flat,
    /// Through slots; every rank combines its share of every contribution, then shares are exchanged: Mamidala §9.2.2,
    /// *cyclic* where the operation commutes, else *parallel*.
    Parallel,
    /// Buffers are exposed and pulled by the other ranks directly; reductions combine shares.
    Pull,
    /// By other means than slots: the slots only publish that the rank makes this call, so that a rank with a different
    /// call detects it.
    Elsewhere,
}

/// Never.
const NEVER: usize = usize::MAX;

/// Bytes of a block from which it is pulled, and from which shares are combined. Measured at 2 ranks on 2 cores, and
/// oversubscribed at 4 and 8 ranks, where the number of context switches counts, and an exposed buffer makes its owner
/// wait.
fn thresholds(verb: Verb, boards: &Boards) -> (usize, usize) {
    let ranks = boards.ranks.max(1) as usize;
    // The longest block all of whose parts fit in slots.
    let shown = boards.slots.saturating_sub(1) as usize * (boards.chunk / (ranks - 1).max(1));
    match (verb, boards.crowded) {
        (Verb::Allreduce, false) if boards.ranks == 2 => (NEVER, 16 << 10),
        (Verb::Allreduce, false) => (256 << 10, 16 << 10),
        (Verb::Reduce, false) => (NEVER, 16 << 10),
        (Verb::Allreduce | Verb::Reduce, true) => (NEVER, 32 << 10),
        (Verb::Broadcast, false) => (NEVER, NEVER),
        (Verb::Allgather | Verb::Alltoall, false) if boards.ranks == 2 => (NEVER, NEVER),
        (_, false) => (16 << 10, NEVER),
        (Verb::Alltoall, true) if boards.ranks <= 4 => (shown + 1, NEVER),
        // 128 KiB at 8 ranks.
        (Verb::Alltoall, true) => (((ranks * ranks) << 11).min(shown + 1), NEVER),
        (_, true) => (NEVER, NEVER),
    }
}

/// The fastest algorithm for a plan, as measured, among those that support it.
pub fn way(plan: &Plan, boards: &Boards, pulls: bool) -> Way {
    let (bytes, (pull, parallel)) = (plan.bytes, thresholds(plan.verb, boards));
    let can = |way| can(way, plan, boards, pulls);
    match bytes {
        _ if bytes >= pull && can(Way::Pull) => Way::Pull,
        _ if bytes >= parallel && can(Way::Parallel) => Way::Parallel,
        _ => Way::Flat,
    }
}

/// Whether an algorithm supports a plan.
pub fn can(way: Way, plan: &Plan, boards: &Boards, pulls: bool) -> bool {
    // Two operands of at least one element lie in a chunk.
    let halves = 2 * plan.grain <= boards.chunk;
    match (way, plan.verb) {
        (Way::Flat, _) => true,
        (Way::Elsewhere, _) => cfg!(feature = "std"),
        (Way::Pull, _) if !cfg!(feature = "collectives") => false,
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

/// Bytes of a broadcast's round, as measured: few, so that readers begin early and the data stay in the caches. But up
/// to 1 MiB, where chunks are large enough, at most as many rounds as there are slots, or one more where the length
/// does not divide evenly, so that the root can return early. In the dedicated mode shorter rounds are slower.
pub(crate) fn broadcast_part(bytes: usize, boards: &Boards) -> usize {
    let least = if boards.crowded { 16 << 10 } else { 64 << 10 };
    (bytes / boards.slots.max(1) as usize).clamp(least, 64 << 10).min(boards.chunk.max(1))
}

/// Whether a collective is faster through the short chunks of a communicator slot than by messages: up to a measured
/// number of chunks (2, 4 and 8 ranks on 2 cores). A broadcast was faster at all measured lengths, up to 9 chunks; its
/// limit keeps the number of rounds low.
pub fn fits_room(plan: &Plan, boards: &Boards) -> bool {
    let blocks = if matches!(plan.verb, Verb::Scatter | Verb::Alltoall) { boards.ranks as usize } else { 1 };
    let most = match plan.verb {
        Verb::Barrier => NEVER,
        Verb::Broadcast => 64,
        Verb::Gather | Verb::Allgather | Verb::Scan | Verb::Exscan => 16,
        Verb::Scatter => 6,
        Verb::Allreduce => 4,
        Verb::Reduce | Verb::Alltoall => 2,
        Verb::ReduceScatter => 1,
    };
    plan.grain <= boards.chunk && plan.bytes.saturating_mul(blocks) <= boards.chunk.saturating_mul(most)
}

/// The largest element that can be combined: a chunk holds one.
pub const fn grain_max(boards: &Boards) -> usize {
    boards.chunk
}

#[cfg(all(test, not(loom)))]
mod tests {
    use unisono_core::collective::Order;
    use unisono_core::ids::Rank;

    use super::*;
    use crate::layout::{Layout, Sizes, Waiting};

    #[test]
    fn broadcasts_in_rooms_have_few_laps() {
        for ranks in [2, 4, 8, 33, 64] {
            let layout = Layout::new(Sizes::of_node(ranks, Waiting::Shared)).unwrap();
            let boards = Boards::in_room(&layout, 0, &[0, 1]).unwrap();
            let fits = |bytes| {
                let (verb, rank, root, order) = (Verb::Broadcast, Rank(0), Rank(0), Order::Any);
                let plan = Plan { verb, rank, size: 2, root, bytes, grain: 1, order, in_place: true, kind: 0 };
                fits_room(&plan, &boards)
            };
            let longest = 64 * boards.chunk;
            assert!(fits(0) && fits(longest) && !fits(longest + 1) && !fits(usize::MAX), "{boards:?}");
            assert_eq!(longest.div_ceil(broadcast_part(longest, &boards)), 64);
        }
    }
}
