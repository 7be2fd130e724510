//! Whether a schedule composed over the ranks of hosts is faster than a flat one, by closed forms.

use super::cost::Cost;
use super::{Choice, GroupModel, LinkModel, SlotModel, choose, most_segments, ps};
use crate::collective::{CollectiveKind, CollectiveSpec};
use crate::ids::Rank;
use crate::schedule::hierarchy::Hierarchy;
use crate::schedule::levels::{algorithm_of_parts, most_composed_segments};
use crate::schedule::{Algorithm, HierarchyOptions, Leaders, LowerTrees};

/// Bytes up to which the rounds of a collective count more than its bytes. A flat schedule has rounds within hosts, too,
/// which its closed form takes for rounds between them: ranks simulated by the model's rules decide instead. Not those of
/// an alltoall, whose leaders move the square of a group's ranks.
const SHORT: usize = 1024;

/// The times of a schedule with one leader of each group, in picoseconds.
#[derive(Clone, Copy)]
struct Times {
    /// Until all ranks are done.
    all: u64,
    /// Until a rank is done, on average: of a reduce in one segment, those that do not lead are done with their group.
    mean: u64,
}

/// The time of phases that take `sum` in all and `longest` the longest of them: segments and blocks of a phase, in `parts`
/// parts, overlap with those of the others.
fn overlapped(sum: u64, longest: u64, parts: u32) -> u64 {
    let others = sum.saturating_sub(longest);
    longest.saturating_add(others.checked_div(u64::from(parts)).unwrap_or(others))
}

/// The time of the steps of a group whose `size` ranks all lead, in picoseconds.
fn in_slots_ps(plan: &CollectiveSpec, size: u32, slots: &SlotModel) -> Option<u64> {
    use CollectiveKind::{Allgather, Broadcast, Gather, Reduce, ReduceScatter, Scatter};
    let part = plan.bytes.div_ceil(size.max(1) as usize);
    let steps = match plan.collective {
        Broadcast => [(Scatter, part), (Allgather, plan.bytes)],
        Reduce => [(ReduceScatter, plan.bytes), (Gather, part)],
        _ => [(ReduceScatter, plan.bytes), (Allgather, plan.bytes)],
    };
    steps
        .into_iter()
        .try_fold(0_u64, |sum, (collective, bytes)| Some(sum.saturating_add(slots.time_ps(collective, size, bytes)?)))
}

impl<T: AsRef<[u32]>> Hierarchy<T> {
    /// Whether the composed schedule, with the faster of the leaders that `leaders` allows, is faster than a flat one by the
    /// model, with messages and steps that cost `intra` within a group and messages that cost `inter` between groups, if the
    /// ranks of a group share a link. Only if groups are contiguous.
    pub fn pays(
        &self,
        plan: &CollectiveSpec,
        lower: LowerTrees,
        (intra, inter): (&GroupModel, &LinkModel),
        leaders: Option<Leaders>,
    ) -> bool {
        if !self.is_contiguous() || !self.is_nested() {
            return false;
        }
        let Some((_, composed)) = self.leaders_and_time_ps(plan, lower, (intra, inter), leaders) else { return false };
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

    /// How the schedule over these groups is composed, by the model of [`pays`](Self::pays), whether it pays or not.
    ///
    /// An allgather, or a broadcast that ends with one, goes down the levels in parts if the bytes of the smallest part
    /// take at least the latency of a message within a group. All ranks of a group lead if that is faster by more than the
    /// forms are wrong by, since all leaders send more messages.
    pub fn options(
        &self,
        plan: &CollectiveSpec,
        lower: LowerTrees,
        intra: &GroupModel,
        inter: &LinkModel,
    ) -> HierarchyOptions {
        let leaders = self.leaders_and_time_ps(plan, lower, (intra, inter), None).map_or(Leaders::One, |(who, _)| who);
        let messages = &intra.messages;
        let moved = (self.part_bytes(plan) as u64).saturating_mul(u64::from(messages.ps_per_byte));
        HierarchyOptions { lower, in_parts: moved >= ps(messages.latency_ns), leaders }
    }

    /// The leaders by which the composed schedule is faster, or those that are given, and its time in picoseconds. `None`:
    /// there is no such schedule.
    fn leaders_and_time_ps(
        &self,
        plan: &CollectiveSpec,
        lower: LowerTrees,
        (intra, inter): (&GroupModel, &LinkModel),
        leaders: Option<Leaders>,
    ) -> Option<(Leaders, u64)> {
        let one = self.times(plan, lower, intra, inter)?;
        let all = self.time_of_all_leaders_ps(plan, lower, intra, inter);
        let is_selected = |all: &u64| match leaders {
            Some(leaders) => leaders == Leaders::All,
            None => *all < one.all.saturating_sub(one.all >> 3),
        };
        // One leads where not all can.
        Some(all.filter(is_selected).map_or((Leaders::One, one.mean), |all| (Leaders::All, all)))
    }

    /// Bytes of the smallest part in which a vector may go down the levels.
    fn part_bytes(&self, plan: &CollectiveSpec) -> usize {
        let top = self.top();
        match plan.collective {
            CollectiveKind::Allgather => {
                let ranks = |group: u32| self.start(top, group.wrapping_add(1)).wrapping_sub(self.start(top, group));
                let fewest = (0..self.members(top)).map(ranks).min().unwrap_or(1);
                plan.bytes.saturating_mul(fewest as usize)
            }
            _ => plan.bytes.checked_div(self.members(top) as usize).unwrap_or(0),
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

    /// The segments of a vector by which the schedule with one leader of each group, and this choice for the leaders, is
    /// fastest by the model: segments of one phase overlap with those of the others. At least as many as the choice has.
    pub fn segments(
        &self,
        plan: &CollectiveSpec,
        lower: LowerTrees,
        (intra, inter): (&GroupModel, &LinkModel),
        choice: &Choice,
    ) -> u32 {
        self.in_segments(plan, lower, (intra, inter), choice).map_or(choice.segments, |(segments, _)| segments)
    }

    /// The time of the composed schedule with the choice for its leaders, in picoseconds. `None`: there is no such schedule.
    pub(super) fn time_ps(
        &self,
        plan: &CollectiveSpec,
        lower: LowerTrees,
        intra: &GroupModel,
        inter: &LinkModel,
    ) -> Option<u64> {
        self.times(plan, lower, intra, inter).map(|times| times.all)
    }

    fn times(&self, plan: &CollectiveSpec, lower: LowerTrees, intra: &GroupModel, inter: &LinkModel) -> Option<Times> {
        let top = choose(&self.leaders(plan), self.leaders_vary(plan.collective), inter);
        self.in_segments(plan, lower, (intra, inter), &top).map(|(_, times)| times)
    }

    /// The best number of segments, and the times with it. `None`: there is no such schedule.
    fn in_segments(
        &self,
        plan: &CollectiveSpec,
        lower: LowerTrees,
        costs: (&GroupModel, &LinkModel),
        choice: &Choice,
    ) -> Option<(u32, Times)> {
        use CollectiveKind::{Allreduce, Broadcast, Reduce};
        let mut best = (choice.segments, self.times_of_choice(plan, lower, costs, choice)?);
        let leaders = self.leaders(plan);
        let cost = Cost::of(&choice.spec(&leaders, false), costs.1.per_host);
        let most = match plan.collective {
            Broadcast | Reduce | Allreduce => most_segments(&cost, &leaders).min(most_composed_segments(plan.size)),
            _ => 1,
        };
        while let Some(segments) = best.0.checked_mul(2).filter(|segments| *segments <= most) {
            match self.times_of_choice(plan, lower, costs, &Choice { segments, ..*choice }) {
                Some(times) if times.mean < best.1.mean => best = (segments, times),
                _ => break,
            }
        }
        Some(best)
    }

    /// The times with this choice for the leaders.
    fn times_of_choice(
        &self,
        plan: &CollectiveSpec,
        lower: LowerTrees,
        (intra, inter): (&GroupModel, &LinkModel),
        top: &Choice,
    ) -> Option<Times> {
        let leaders = self.leaders(plan);
        // The ranks with which a leader shares its processor wait.
        let between = top.time_ps(&leaders, false, &LinkModel { sharing: 1, ..*inter }).ok()?;
        let has_steps = top.spec(plan, false).can_have_group_steps();
        let intra = GroupModel { slots: intra.slots.filter(|_| has_steps), ..*intra };
        let segment = CollectiveSpec { bytes: plan.bytes.div_ceil(top.segments.max(1) as usize), ..*plan };
        let all_segments = |time: u64| time.saturating_mul(u64::from(top.segments));
        let (within, longest) = self.within_ps(&segment, lower, &intra)?;
        let (within, longest) = (all_segments(within), all_segments(longest));
        let phases = self.phases(plan);
        let is_in_parts = phases.iter().flatten().count() > 1 && leaders.bytes > plan.bytes;
        let parts = top.segments.max(if is_in_parts { 2 } else { 1 });
        let all = overlapped(within.saturating_add(between), longest.max(between), parts);
        let mean = match plan.collective {
            CollectiveKind::Reduce if top.segments == 1 => {
                let leading = between.saturating_mul(u64::from(self.members(self.top())));
                within.saturating_add(leading.checked_div(u64::from(self.ranks())).unwrap_or(between))
            }
            _ => all,
        };
        Some(Times { all, mean })
    }

    /// The time of the schedule with all ranks as leaders, in picoseconds. `None`: there is no such schedule.
    ///
    /// All bytes of a host pass its link, as those of one leader do, but each rank handles and combines its part only.
    fn time_of_all_leaders_ps(
        &self,
        plan: &CollectiveSpec,
        lower: LowerTrees,
        intra: &GroupModel,
        inter: &LinkModel,
    ) -> Option<u64> {
        let each = self.ranks_of_each_group()?;
        // A rank without an element has no part to lead.
        if plan.bytes < plan.grain.saturating_mul(each as usize) {
            return None;
        }
        let algorithm = algorithm_of_parts(plan.collective, lower, each)?;
        let leaders = self.leaders(plan);
        let top = choose(&leaders, false, inter);
        let part = CollectiveSpec { bytes: leaders.bytes.div_ceil(each as usize), ..leaders };
        let at = |ps_per_byte| top.time_ps(&part, false, &LinkModel { ps_per_byte, ..*inter }).ok();
        let (own, without) = (at(inter.ps_per_byte)?, at(0)?);
        // An exchange sends and receives, and the link does both at a time.
        let passing = at(inter.ps_per_byte.saturating_mul(each))?.saturating_sub(without);
        let passing = if top.algorithm == Algorithm::Knomial { passing } else { passing >> 1 };
        let between = own.max(without.saturating_add(passing));
        let radix = lower.ports.saturating_add(1);
        let choice = Choice { algorithm, ports: lower.ports, radix, segments: 1, order: plan.order };
        let group = CollectiveSpec { rank: Rank(0), root: Rank(0), size: each, ..*plan };
        // There must be such messages, also where groups have slots: others may have none.
        let messages = choice.time_ps(&group, false, &intra.messages).ok()?;
        let slots = intra.slots.filter(|_| self.levels() == 2 && top.segments == 1);
        let within = match slots {
            None => messages,
            Some(slots) => in_slots_ps(plan, each, &slots)?,
        };
        Some(overlapped(within.saturating_add(between), within.max(between), top.segments))
    }

    /// The time within the groups, of all levels, and of the longest phase of a level, in picoseconds. `None`: there is no
    /// such schedule.
    pub(super) fn within_ps(&self, plan: &CollectiveSpec, lower: LowerTrees, intra: &GroupModel) -> Option<(u64, u64)> {
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
            // The ranks of an innermost group.
            let slots = intra.slots.filter(|_| ranks == 1 && size > 1);
            let time = match slots.and_then(|slots| slots.time_ps(collective, size, bytes)) {
                Some(time) => time,
                None => choice.time_ps(&phase, false, &intra.messages).ok()?,
            };
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
