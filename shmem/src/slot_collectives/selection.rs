//! Which algorithm for which size: a pure function of values that are equal on all ranks, with thresholds as measured
//! (`docs/performance.md`).

use unisono_core::collective::{Plan, Verb};

use crate::collective_area::Boards;

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
    /// By other means: here it is only shown that a rank does this, so that whoever does something else sees it.
    Elsewhere,
}

/// Never.
const NEVER: usize = usize::MAX;

/// From how many bytes on a block is pulled, and from how many on shares are combined. Measured at 2 ranks on 2 cores, and at 4 and 8 on 2,
/// where it counts how often ranks have to be scheduled, and lent buffers keep their owner waiting.
fn thresholds(verb: Verb, boards: &Boards) -> (usize, usize) {
    let ranks = boards.ranks.max(1) as usize;
    // The longest block whose parts all have slots.
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

/// The way of a plan that is fastest, as measured, among those that it can go.
pub fn way(plan: &Plan, boards: &Boards, pulls: bool) -> Way {
    let (bytes, (pull, parallel)) = (plan.bytes, thresholds(plan.verb, boards));
    let can = |way| can(way, plan, boards, pulls);
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

/// Bytes of a broadcast's lap, as measured: few, so that readers begin early and what travels stays in the caches, but, where chunks are
/// as long, up to 1 MiB as many laps as slots at most, or one more where these do not divide it, so that the root can leave. Where every
/// rank has a processor, shorter laps are slower.
pub(crate) fn broadcast_part(bytes: usize, boards: &Boards) -> usize {
    let least = if boards.crowded { 16 << 10 } else { 64 << 10 };
    (bytes / boards.slots.max(1) as usize).clamp(least, 64 << 10).min(boards.chunk.max(1))
}

/// Whether a collective is quicker over the boards of a room, whose chunks are short, than by messages: as many chunks as that is so for,
/// measured at 2, 4 and 8 ranks on 2 cores. A broadcast was quicker at all lengths that were measured, up to 9 chunks; it is bounded so
/// that it has few laps.
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

/// The largest element that can be combined: one of it fits in a chunk.
pub const fn grain_max(boards: &Boards) -> usize {
    boards.chunk
}

#[cfg(all(test, not(loom)))]
mod tests {
    use unisono_core::collective::{Order, Rank};

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
