//! The means by which the ranks of an innermost subgroup exchange their parts, by collective and length.

use unisono_core::collective::{CollectiveKind, CollectiveSpec};

use super::GroupMeans;

/// Bytes up to which slots are faster than messages, of a vector that a group combines or broadcasts, or of a rank's block
/// in a gather: `unisono run -n 8 --nodes 2 --hierarchy host:slots -- unisono bench collective reduce --bytes 64K`.
const SLOTS_BYTES_MAX: usize = 64 << 10;

impl GroupMeans {
    /// Whether the groups of a collective use shared memory where they can: a pure function of values that are equal on all
    /// ranks.
    ///
    /// ```
    /// # use unisono_core::collective::{CollectiveKind, CollectiveSpec, Order};
    /// # use unisono_core::ids::Rank;
    /// # let reduce = CollectiveSpec {
    /// #     collective: CollectiveKind::Reduce, rank: Rank(0), size: 4, root: Rank(0), bytes: 8, grain: 8, order: Order::Any,
    /// #     in_place: false, reduction_id: 0,
    /// # };
    /// use unisono::environment::GroupMeans;
    ///
    /// assert!(GroupMeans::Auto.uses_slots(&reduce));
    /// assert!(!GroupMeans::Auto.uses_slots(&CollectiveSpec { bytes: 1 << 20, ..reduce }));
    /// ```
    pub fn uses_slots(self, plan: &CollectiveSpec) -> bool {
        use CollectiveKind::{
            Allgather, Allreduce, Alltoall, Barrier, Broadcast, Exscan, Gather, Reduce, ReduceScatter, Scan, Scatter,
        };
        let blocks = match plan.collective {
            Barrier | Reduce | Allreduce | Gather => 1,
            Allgather | ReduceScatter => plan.size,
            Broadcast | Scatter | Alltoall | Scan | Exscan => return self == Self::Slots,
        };
        match self {
            Self::Auto => plan.bytes.saturating_mul(blocks as usize) <= SLOTS_BYTES_MAX,
            Self::Messages => false,
            Self::Slots => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::tuning::COLLECTIVES;
    use unisono_core::collective::Order;
    use unisono_core::ids::Rank;

    fn uses(means: GroupMeans, collective: CollectiveKind, bytes: usize) -> bool {
        let (rank, root, size, grain, order) = (Rank(0), Rank(0), 16, 8, Order::Any);
        let plan =
            CollectiveSpec { collective, rank, size, root, bytes, grain, order, in_place: false, reduction_id: 0 };
        means.uses_slots(&plan)
    }

    #[test]
    fn short_reductions_gathers_and_barriers_use_slots() {
        let longest = |collective| {
            (0..=20).rev().map(|shift| 1 << shift).find(|bytes| uses(GroupMeans::Auto, collective, *bytes))
        };
        for (collective, bytes) in [
            (CollectiveKind::Reduce, Some(64 << 10)),
            (CollectiveKind::Allreduce, Some(64 << 10)),
            (CollectiveKind::Gather, Some(64 << 10)),
            (CollectiveKind::Allgather, Some(4 << 10)),
            (CollectiveKind::ReduceScatter, Some(4 << 10)),
            (CollectiveKind::Broadcast, None),
            (CollectiveKind::Scatter, None),
            (CollectiveKind::Alltoall, None),
            (CollectiveKind::Scan, None),
        ] {
            assert_eq!(longest(collective), bytes, "{collective:?}");
        }
        assert!(uses(GroupMeans::Auto, CollectiveKind::Barrier, 0));
    }

    #[test]
    fn means_that_are_given_are_used_for_every_length() {
        for (collective, ..) in COLLECTIVES {
            for bytes in [0, 8, usize::MAX] {
                assert!(uses(GroupMeans::Slots, collective, bytes) && !uses(GroupMeans::Messages, collective, bytes));
            }
        }
    }
}
