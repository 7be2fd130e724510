//! Whether a schedule composed over the ranks of hosts is faster than a flat one, by closed forms.

use super::{Choice, LinkModel, choose};
use crate::collective::{CollectiveKind, CollectiveSpec};
use crate::ids::Rank;
use crate::schedule::hierarchy::Hierarchy;
use crate::schedule::{Algorithm, LowerTrees};

/// Bytes up to which the rounds of a collective count more than its bytes. A flat schedule has rounds within hosts, too,
/// which its closed form takes for rounds between them: ranks simulated by the model's rules decide instead. Not those of
/// an alltoall, whose leaders move the square of a group's ranks.
const SHORT: usize = 1024;

impl<T: AsRef<[u32]>> Hierarchy<T> {
    /// Whether the composed schedule is faster than a flat one by the model, with messages that cost `intra` within a
    /// group and `inter` between groups, if the ranks of a group share a link. Only if groups are contiguous.
    pub fn pays(&self, plan: &CollectiveSpec, lower: LowerTrees, intra: &LinkModel, inter: &LinkModel) -> bool {
        if !self.is_contiguous() || !self.is_nested() {
            return false;
        }
        let Some(composed) = self.time_ps(plan, lower, intra, inter) else { return false };
        if plan.collective != CollectiveKind::Alltoall && self.whole(plan) <= SHORT {
            return true;
        }
        let flat = LinkModel { per_host: self.per_host(), ..*inter };
        let choice = choose(plan, false, &flat);
        // A chain of adjacent ranks sends once from host to host, as leaders do, but the rank that sends to the next host is
        // not the one that receives from the host before.
        if matches!(plan.collective, CollectiveKind::Scan | CollectiveKind::Exscan)
            && choice.algorithm == Algorithm::Ring
        {
            return false;
        }
        let flat = choice.time_ps(plan, false, &flat).unwrap_or(u64::MAX);
        // The forms are not exact. Of two that are about as fast, the one that sends less between hosts leaves more of
        // the links to others: for a vector of a root that is the composed one, else the flat one sends no more.
        match plan.collective {
            CollectiveKind::Broadcast | CollectiveKind::Reduce => composed < flat.saturating_add(flat >> 3),
            _ => composed < flat.saturating_sub(flat >> 3),
        }
    }

    /// Bytes of the longest vector of a rank.
    fn whole(&self, plan: &CollectiveSpec) -> usize {
        let blocks = match plan.collective {
            CollectiveKind::Allgather | CollectiveKind::ReduceScatter => self.ranks(),
            _ => 1,
        };
        plan.bytes.saturating_mul(blocks as usize)
    }

    /// The time of the composed schedule with the choice for its leaders, in picoseconds. `None`: there is no such schedule.
    pub(super) fn time_ps(
        &self,
        plan: &CollectiveSpec,
        lower: LowerTrees,
        intra: &LinkModel,
        inter: &LinkModel,
    ) -> Option<u64> {
        let leaders = self.leaders(plan);
        let top = choose(&leaders, self.leaders_vary(plan.collective), inter);
        let between = top.time_ps(&leaders, false, inter).ok()?;
        let (within, longest) = self.within_ps(plan, lower, intra)?;
        let longest = longest.max(between);
        // Segments and blocks of a phase overlap with those of the others.
        let others = within.saturating_add(between).saturating_sub(longest);
        let phases = self.phases(plan);
        let is_in_parts = phases.iter().flatten().count() > 1 && leaders.bytes > plan.bytes;
        let parts = top.segments.max(if is_in_parts { 2 } else { 1 });
        Some(longest.saturating_add(others.checked_div(u64::from(parts)).unwrap_or(others)))
    }

    /// The time within the groups, of all levels, and of the longest phase of a level, in picoseconds. `None`: there is no
    /// such schedule.
    pub(super) fn within_ps(&self, plan: &CollectiveSpec, lower: LowerTrees, intra: &LinkModel) -> Option<(u64, u64)> {
        use CollectiveKind::{Gather, Scatter};
        // The most members of a subgroup of each level, and the ranks that each of them stands for.
        let levels = self.largest().scan(1_u32, |ranks, size| {
            let each = *ranks;
            *ranks = each.saturating_mul(size);
            Some((size, each))
        });
        let phases = self.phases(plan);
        let (mut within, mut longest) = (0_u64, 0);
        for ((size, ranks), (collective, bytes)) in
            levels.flat_map(|level| phases.into_iter().flatten().map(move |phase| (level, phase)))
        {
            let is_of_blocks = matches!(collective, Gather | Scatter);
            let bytes = if is_of_blocks { bytes.saturating_mul(ranks as usize) } else { bytes };
            let algorithm = match collective {
                Gather | Scatter => Algorithm::Direct,
                CollectiveKind::Scan | CollectiveKind::Exscan => Algorithm::Dissemination,
                _ => Algorithm::Knomial,
            };
            let choice = Choice { algorithm, ports: lower.ports, radix: lower.radix, segments: 1, order: plan.order };
            let phase = CollectiveSpec { collective, rank: Rank(0), root: Rank(0), size, bytes, ..*plan };
            let time = choice.time_ps(&phase, false, intra).ok()?;
            (within, longest) = (within.saturating_add(time), longest.max(time));
        }
        Some((within, longest))
    }

    /// The collectives of each level below the last, and the bytes of a vector or a rank's block.
    fn phases(&self, plan: &CollectiveSpec) -> [Option<(CollectiveKind, usize)>; 2] {
        use CollectiveKind::{
            Allgather, Allreduce, Alltoall, Barrier, Broadcast, Exscan, Gather, Reduce, ReduceScatter, Scan, Scatter,
        };
        let all = plan.bytes.saturating_mul(self.ranks() as usize);
        match plan.collective {
            kind @ (Barrier | Broadcast | Reduce | Gather | Scatter) => [Some((kind, plan.bytes)), None],
            Allreduce => [Some((Reduce, plan.bytes)), Some((Broadcast, plan.bytes))],
            Allgather => [Some((Gather, plan.bytes)), Some((Broadcast, all))],
            ReduceScatter => [Some((Reduce, all)), Some((Scatter, plan.bytes))],
            Alltoall => [Some((Gather, all)), Some((Scatter, all))],
            kind @ (Scan | Exscan) => [Some((Reduce, plan.bytes)), Some((kind, plan.bytes))],
        }
    }
}
