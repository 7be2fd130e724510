//! A collective that is composed over subgroups: its schedule, and what selected it.

use alloc::sync::Arc;
use core::fmt;

use unisono_core::collective::CollectiveSpec;
use unisono_core::schedule::{GroupLevels, HierarchicalPlan, HierarchyOptions};

use super::{Decision, SelectedBy};
use crate::environment::{GroupMeans, Subgroups};

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
