//! Selects the algorithm of a collective by its size: a pure function of values that are equal on all ranks, with
//! measured thresholds (`docs/performance.md`).

use unisono_core::collective::{CollectiveKind, CollectiveSpec};

use crate::collective_area::CollectiveAreas;

/// How a collective moves its payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SlotAlgorithm {
    /// Through slots; each rank that needs a result combines all contributions itself.
    Flat,
    /// Through slots; every rank combines its share of every contribution, then shares are exchanged: Mamidala §9.2.2,
    /// *cyclic* where the operation commutes, else *parallel*.
    Parallel,
    /// Buffers are exposed and pulled by the other ranks directly; reductions combine shares.
    Pull,
    /// By other means than slots: the slots only publish that the rank makes this call, so that a rank with a different
    /// call detects it.
    External,
}

impl SlotAlgorithm {
    /// Its name in records and on the screen.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flat | Self::External => "flat",
            Self::Parallel => "parallel",
            Self::Pull => "pull",
        }
    }
}

/// Never.
const NEVER: usize = usize::MAX;

/// Bytes of a block from which it is pulled, and from which shares are combined. Measured at 2 ranks on 2 cores, and
/// oversubscribed at 4 and 8 ranks, where the number of context switches counts, and an exposed buffer makes its owner
/// wait.
fn thresholds(verb: CollectiveKind, areas: &CollectiveAreas) -> (usize, usize) {
    let ranks = areas.ranks.max(1) as usize;
    // The longest block all of whose parts fit in slots.
    let shown = areas.slots.saturating_sub(1) as usize * (areas.chunk / (ranks - 1).max(1));
    match (verb, areas.oversubscribed) {
        (CollectiveKind::Allreduce, false) if areas.ranks == 2 => (NEVER, 16 << 10),
        (CollectiveKind::Allreduce, false) => (256 << 10, 16 << 10),
        (CollectiveKind::Reduce, false) => (NEVER, 16 << 10),
        (CollectiveKind::Allreduce | CollectiveKind::Reduce, true) => (NEVER, 32 << 10),
        (CollectiveKind::Broadcast, false) => (NEVER, NEVER),
        (CollectiveKind::Allgather | CollectiveKind::Alltoall, false) if areas.ranks == 2 => (NEVER, NEVER),
        (_, false) => (16 << 10, NEVER),
        (CollectiveKind::Alltoall, true) if areas.ranks <= 4 => (shown + 1, NEVER),
        // 128 KiB at 8 ranks.
        (CollectiveKind::Alltoall, true) => (((ranks * ranks) << 11).min(shown + 1), NEVER),
        (_, true) => (NEVER, NEVER),
    }
}

/// The fastest algorithm for a plan, as measured, among those that support it.
pub fn select(plan: &CollectiveSpec, areas: &CollectiveAreas, pulls: bool) -> SlotAlgorithm {
    let (bytes, (pull, parallel)) = (plan.bytes, thresholds(plan.collective, areas));
    let can = |way| supports(way, plan, areas, pulls);
    match bytes {
        _ if bytes >= pull && can(SlotAlgorithm::Pull) => SlotAlgorithm::Pull,
        _ if bytes >= parallel && can(SlotAlgorithm::Parallel) => SlotAlgorithm::Parallel,
        _ => SlotAlgorithm::Flat,
    }
}

/// Whether an algorithm supports a plan.
pub fn supports(way: SlotAlgorithm, plan: &CollectiveSpec, areas: &CollectiveAreas, pulls: bool) -> bool {
    // Two operands of at least one element lie in a chunk.
    let halves = 2 * plan.grain <= areas.chunk;
    match (way, plan.collective) {
        (SlotAlgorithm::Flat, _) => true,
        (SlotAlgorithm::External, _) => cfg!(feature = "std"),
        (SlotAlgorithm::Pull, _) if !cfg!(feature = "collectives") => false,
        // Exchanges are two steps.
        _ if areas.slots < 4 => false,
        (SlotAlgorithm::Parallel, CollectiveKind::Allreduce | CollectiveKind::Reduce) => areas.ranks > 1,
        (SlotAlgorithm::Pull, CollectiveKind::Allreduce | CollectiveKind::ReduceScatter) => {
            pulls && halves && areas.ranks > 1
        }
        (
            SlotAlgorithm::Pull,
            CollectiveKind::Broadcast
            | CollectiveKind::Gather
            | CollectiveKind::Scatter
            | CollectiveKind::Allgather
            | CollectiveKind::Alltoall,
        ) => pulls && areas.ranks > 1,
        _ => false,
    }
}

/// Bytes of a broadcast's round, as measured: few, so that readers begin early and the data stay in the caches. But up
/// to 1 MiB, where chunks are large enough, at most as many rounds as there are slots, or one more where the length
/// does not divide evenly, so that the root can return early. In the dedicated mode shorter rounds are slower.
pub(crate) fn broadcast_round_bytes(bytes: usize, areas: &CollectiveAreas) -> usize {
    let least = if areas.oversubscribed { 16 << 10 } else { 64 << 10 };
    (bytes / areas.slots.max(1) as usize).clamp(least, 64 << 10).min(areas.chunk.max(1))
}

/// Whether a collective is faster through the short chunks of a communicator slot than by messages: up to a measured
/// number of chunks (2, 4 and 8 ranks on 2 cores). A broadcast was faster at all measured lengths, up to 9 chunks; its
/// limit keeps the number of rounds low.
pub fn fits_communicator_slot(plan: &CollectiveSpec, areas: &CollectiveAreas) -> bool {
    let blocks = if matches!(plan.collective, CollectiveKind::Scatter | CollectiveKind::Alltoall) {
        areas.ranks as usize
    } else {
        1
    };
    let most = match plan.collective {
        CollectiveKind::Barrier => NEVER,
        CollectiveKind::Broadcast => 64,
        CollectiveKind::Gather | CollectiveKind::Allgather | CollectiveKind::Scan | CollectiveKind::Exscan => 16,
        CollectiveKind::Scatter => 6,
        CollectiveKind::Allreduce => 4,
        CollectiveKind::Reduce | CollectiveKind::Alltoall => 2,
        CollectiveKind::ReduceScatter => 1,
    };
    plan.grain <= areas.chunk && plan.bytes.saturating_mul(blocks) <= areas.chunk.saturating_mul(most)
}

/// The largest element that can be combined: a chunk holds one.
pub const fn grain_max(areas: &CollectiveAreas) -> usize {
    areas.chunk
}

#[cfg(all(test, not(loom)))]
mod tests {
    use unisono_core::collective::Order;
    use unisono_core::ids::Rank;

    use super::*;
    use crate::layout::{SegmentLayout, SegmentSizes, WaitMode};

    #[test]
    fn broadcasts_in_communicator_slots_have_few_rounds() {
        for ranks in [2, 4, 8, 33, 64] {
            let layout = SegmentLayout::new(SegmentSizes::of_node(ranks, WaitMode::Oversubscribed)).unwrap();
            let areas = CollectiveAreas::in_communicator_slot(&layout, 0, &[0, 1]).unwrap();
            let fits = |bytes| {
                let (verb, rank, root, order) = (CollectiveKind::Broadcast, Rank(0), Rank(0), Order::Any);
                let plan = CollectiveSpec {
                    collective: verb,
                    rank,
                    size: 2,
                    root,
                    bytes,
                    grain: 1,
                    order,
                    in_place: true,
                    reduction_id: 0,
                };
                fits_communicator_slot(&plan, &areas)
            };
            let longest = 64 * areas.chunk;
            assert!(fits(0) && fits(longest) && !fits(longest + 1) && !fits(usize::MAX), "{areas:?}");
            assert_eq!(longest.div_ceil(broadcast_round_bytes(longest, &areas)), 64);
        }
    }
}
