//! Whether and how a collective is composed over subgroups: its schedule, and what selected it.

use alloc::sync::Arc;
use core::fmt;

use unisono_core::collective::CollectiveSpec;
use unisono_core::schedule::{
    Algorithm, Choice, GroupLevels, HierarchicalPlan, HierarchyOptions, Leaders, choose_with,
};

use super::{Carrier, Decision, LOWER_TREES, Override, SelectedBy, Tuning, Wanted};
use crate::environment::{GroupMeans, Subgroups};

/// Bytes of an alltoall, of all ranks together, up to which it is composed: a leader holds those of its ranks several times.
const COLLECTED_MAX: usize = 64 << 20;

/// What selected that a collective is composed over subgroups, and the means within the innermost ones.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Composition {
    /// What selected that it is composed.
    pub selected_by: SelectedBy,
    /// How the ranks of an innermost subgroup exchange their parts.
    pub means: GroupMeans,
    /// What selected the means.
    pub means_by: SelectedBy,
}

impl Composition {
    /// `means_by`: what selected the means, if they are not selected by collective and length.
    pub(super) const fn of(selected_by: SelectedBy, means: GroupMeans, means_by: SelectedBy) -> Self {
        let means_by = if matches!(means, GroupMeans::Auto) { SelectedBy::Rule } else { means_by };
        Self { selected_by, means, means_by }
    }

    /// Those of the levels at which the subgroups of a collective use shared memory.
    pub(super) fn group_levels(&self, plan: &CollectiveSpec, levels: GroupLevels) -> GroupLevels {
        if self.means.uses_slots(plan) { levels } else { levels.without(0) }
    }
}

impl fmt::Display for Composition {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "groups: {}; means: {}", self.selected_by.name(), self.means_by.name())
    }
}

/// The schedule of a rank over subgroups.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Composed {
    /// The algorithm of the leaders of the last level.
    pub decision: Decision,
    /// What selected that there are leaders.
    pub composition: Composition,
    /// The schedule.
    pub schedule: HierarchicalPlan<Arc<[u32]>>,
}

impl Composed {
    /// `None`, equal on all ranks: there is no such schedule.
    pub(super) fn new(
        (decision, composition): (Decision, Composition),
        (plan, varying): (&CollectiveSpec, bool),
        (over, options): (&Subgroups, HierarchyOptions),
        segments: u32,
        group_levels: GroupLevels,
    ) -> Option<Self> {
        let mut spec = decision.choice.spec(plan, varying);
        spec.segments = spec.segments.max(segments);
        let schedule = HierarchicalPlan::with_group_steps(spec, options, over.hierarchy().clone(), group_levels);
        Some(Self { decision, composition, schedule: schedule.ok()? })
    }
}

impl Tuning {
    /// The schedule of a collective over subgroups, and what selected it. `segments`: the least number for each block;
    /// `group_levels`: where this rank's subgroups can exchange their parts in shared memory. `None`, equal on all ranks: the
    /// collective is flat.
    ///
    /// ```
    /// # use unisono_core::collective::{CollectiveKind, CollectiveSpec, Order};
    /// # use unisono_core::ids::Rank;
    /// # let spec = CollectiveSpec {
    /// #     collective: CollectiveKind::Broadcast, rank: Rank(0), size: 4, root: Rank(0), bytes: 8, grain: 1, order: Order::Any,
    /// #     in_place: false, reduction_id: 0,
    /// # };
    /// use unisono::environment::tuning::{Carrier, Tuning};
    /// use unisono::environment::Subgroups;
    /// use unisono_core::schedule::GroupLevels;
    ///
    /// // A broadcast among 4 ranks on two nodes.
    /// let nodes = Subgroups::new("host".parse()?, &[0, 0, 1, 1].map(From::from)).expect("two nodes");
    /// assert!(Tuning::default().compose(&spec, false, Carrier::Udp, &nodes, 1, GroupLevels::NONE).is_some());
    /// # Ok::<(), unisono::environment::HierarchyError>(())
    /// ```
    pub fn compose(
        &self,
        plan: &CollectiveSpec,
        varying: bool,
        carrier: Carrier,
        over: &Subgroups,
        segments: u32,
        group_levels: GroupLevels,
    ) -> Option<Composed> {
        if over.is_auto()
            && let Some((wanted, selected_by)) = self.wanted(plan, carrier)
            && let Some(composed) =
                self.compose_by(wanted, selected_by, (plan, varying), carrier, (over, segments), group_levels)
        {
            return Some(composed);
        }
        let is_measured = || self.decide(plan, varying, carrier).is_ok_and(|flat| flat.selected_by.is_measured());
        let pays = || self.sharing() == 1 && self.composing_pays(plan, carrier, over) && !is_measured();
        if over.is_auto() && !pays() {
            return None;
        }
        let (decision, composition) = self.leaders_decision(plan, carrier, over)?;
        self.compose_over((decision, composition), (plan, varying), carrier, (over, segments), group_levels)
    }

    /// The schedule over hosts that an override or a line of a table names. `None`, equal on all ranks: it names a flat one,
    /// or there is no such schedule.
    fn compose_by(
        &self,
        wanted: Override,
        selected_by: SelectedBy,
        (plan, varying): (&CollectiveSpec, bool),
        carrier: Carrier,
        (over, segments): (&Subgroups, u32),
        group_levels: GroupLevels,
    ) -> Option<Composed> {
        let Wanted::Schedule(constraints) = wanted.wanted else { return None };
        let composition = Composition::of(selected_by, wanted.hosts?, selected_by);
        let vary = over.hierarchy().leaders_vary(plan.collective);
        let choice = choose_with(&leaders(plan, over)?, vary, &self.cost(carrier.into()), &constraints).ok()?;
        let decision = Decision { choice, selected_by, override_error: None };
        self.compose_over((decision, composition), (plan, varying), carrier, (over, segments), group_levels)
    }

    fn compose_over(
        &self,
        (mut decision, composition): (Decision, Composition),
        (plan, varying): (&CollectiveSpec, bool),
        carrier: Carrier,
        (over, segments): (&Subgroups, u32),
        group_levels: GroupLevels,
    ) -> Option<Composed> {
        let group_levels = composition.group_levels(plan, group_levels);
        let mut options = self.hierarchy_options(plan, carrier, over, composition.means);
        // In several segments all leaders would use messages within their group.
        if over.uses_slots(plan, composition.means) && decision.choice.segments > 1 && self.leaders.given().is_none() {
            options.leaders = Leaders::One;
        }
        if matches!(decision.selected_by, SelectedBy::Model | SelectedBy::Only) && options.leaders == Leaders::One {
            let segments = self.hierarchy_segments(plan, carrier, over, composition.means, &decision.choice);
            let cut = Choice { segments, ..decision.choice };
            // Slots that are asked for are not given up for segments.
            if composition.means != GroupMeans::Slots || cut.spec(plan, varying).can_have_group_steps() {
                decision.choice = cut;
            }
        }
        Composed::new((decision, composition), (plan, varying), (over, options), segments, group_levels)
    }

    /// As [`compose`](Self::compose), whether it pays or not, with one leader of each group: for a broadcast that the leaders
    /// of the last level receive by multicast.
    ///
    /// ```
    /// # use unisono_core::collective::{CollectiveKind, CollectiveSpec, Order};
    /// # use unisono_core::ids::Rank;
    /// # let spec = CollectiveSpec {
    /// #     collective: CollectiveKind::Broadcast, rank: Rank(0), size: 4, root: Rank(0), bytes: 8, grain: 1, order: Order::Any,
    /// #     in_place: false, reduction_id: 0,
    /// # };
    /// use unisono::environment::tuning::{Carrier, Tuning};
    /// use unisono::environment::Subgroups;
    /// use unisono_core::schedule::GroupLevels;
    ///
    /// // A broadcast among 4 ranks on two nodes.
    /// let nodes = Subgroups::new("host".parse()?, &[0, 0, 1, 1].map(From::from)).expect("two nodes");
    /// assert!(Tuning::default().compose_always(&spec, false, Carrier::Udp, &nodes, 1, GroupLevels::NONE).is_some());
    /// # Ok::<(), unisono::environment::HierarchyError>(())
    /// ```
    pub fn compose_always(
        &self,
        plan: &CollectiveSpec,
        varying: bool,
        carrier: Carrier,
        over: &Subgroups,
        segments: u32,
        group_levels: GroupLevels,
    ) -> Option<Composed> {
        let (decision, composition) = self.leaders_decision(plan, carrier, over)?;
        let group_levels = composition.group_levels(plan, group_levels);
        Composed::new((decision, composition), (plan, varying), (over, LOWER_TREES.into()), segments, group_levels)
    }

    /// The algorithm of the leaders of the last level. `None`, equal on all ranks: there is none.
    fn leaders_decision(
        &self,
        plan: &CollectiveSpec,
        carrier: Carrier,
        over: &Subgroups,
    ) -> Option<(Decision, Composition)> {
        let leaders = leaders(plan, over)?;
        let decision = self.decide(&leaders, over.hierarchy().leaders_vary(plan.collective), carrier).ok()?;
        // The user's algorithm can only do the call of all ranks.
        if over.hierarchy().leaders_vary(plan.collective) && decision.override_error.is_some() {
            return None;
        }
        let selected_by = if over.is_auto() { SelectedBy::Model } else { SelectedBy::Override };
        let composition = Composition::of(selected_by, over.innermost(), SelectedBy::Override);
        Some((decision, composition))
    }

    /// The schedule of a collective over subgroups whose leaders of the last level use a tree. `None`, equal on all ranks:
    /// the tree is that of all ranks.
    ///
    /// ```
    /// # use unisono_core::collective::{CollectiveKind, CollectiveSpec, Order};
    /// # use unisono_core::ids::Rank;
    /// # let spec = CollectiveSpec {
    /// #     collective: CollectiveKind::Barrier, rank: Rank(0), size: 4, root: Rank(0), bytes: 0, grain: 1, order: Order::Any,
    /// #     in_place: false, reduction_id: 0,
    /// # };
    /// use unisono::environment::tuning::Tuning;
    /// use unisono::environment::Subgroups;
    /// use unisono_core::schedule::GroupLevels;
    ///
    /// let nodes = |text: &str| Some(Subgroups::new(text.parse().ok()?, &[0, 0, 1, 1].map(From::from)).expect("two nodes"));
    /// let [given, auto] = ["host", "auto"].map(|text| nodes(text).expect("a choice"));
    /// assert!(Tuning::default().compose_over_tree(&spec, false, &given, GroupLevels::NONE).is_some());
    /// assert!(Tuning::default().compose_over_tree(&spec, false, &auto, GroupLevels::NONE).is_none());
    /// ```
    pub fn compose_over_tree(
        &self,
        plan: &CollectiveSpec,
        varying: bool,
        over: &Subgroups,
        group_levels: GroupLevels,
    ) -> Option<HierarchicalPlan<Arc<[u32]>>> {
        // An option or a table has selected the tree.
        if over.is_auto() {
            return None;
        }
        let last = over.hierarchy().levels().wrapping_sub(1);
        // The messages of this algorithm, one block of one segment, are those that the tree replaces.
        let choice = Choice { algorithm: Algorithm::Knomial, ports: 1, radix: 2, segments: 1, order: plan.order };
        let composition = Composition::of(SelectedBy::Override, over.innermost(), SelectedBy::Override);
        let levels = composition.group_levels(plan, group_levels).with(last);
        let spec = choice.spec(plan, varying);
        HierarchicalPlan::with_group_steps(spec, LOWER_TREES, over.hierarchy().clone(), levels).ok()
    }
}

/// The collective among the leaders of the last level. `None`: they would hold too many bytes.
fn leaders(plan: &CollectiveSpec, over: &Subgroups) -> Option<CollectiveSpec> {
    let (ranks, vary) = (plan.size as usize, over.hierarchy().leaders_vary(plan.collective));
    let is_too_long = vary && plan.bytes.saturating_mul(ranks).saturating_mul(ranks) > COLLECTED_MAX;
    (!is_too_long).then(|| over.hierarchy().leaders(plan))
}
