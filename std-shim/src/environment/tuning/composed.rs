//! A collective that is composed over subgroups: its schedule, and what selected it.

use alloc::sync::Arc;
use core::fmt;

use unisono_core::collective::CollectiveSpec;
use unisono_core::schedule::HierarchicalPlan;

use super::{Decision, LOWER_TREES, SelectedBy};
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
        over: &Subgroups,
        segments: u32,
        has_lane: bool,
    ) -> Option<Self> {
        let mut spec = decision.choice.spec(plan, varying);
        spec.segments = spec.segments.max(segments);
        let has_group_steps = has_lane && composition.means.uses_slots(plan);
        let new = if has_group_steps { HierarchicalPlan::with_group_steps } else { HierarchicalPlan::new };
        let schedule = new(spec, LOWER_TREES, over.hierarchy().clone()).ok()?;
        Some(Self { decision, composition, schedule })
    }
}
