//! Whether a broadcast by multicast is faster than every schedule, by closed forms.
//!
//! The root sends its data once, all members of the group receive them at the same time, and the root handles their
//! acknowledgements.

use super::{GroupModel, LinkModel, choose, ps};
use crate::collective::{CollectiveKind, CollectiveSpec};
use crate::schedule::LowerTrees;
use crate::schedule::hierarchy::Hierarchy;

/// The fewest members: one receiver needs no group.
const MEMBERS_LEAST: u32 = 3;
/// Bytes for which a member sends an acknowledgement.
const ACKNOWLEDGED_BYTES: usize = 1 << 16;

/// Whether a broadcast whose ranks are all members of a multicast group is faster than each schedule by the model.
pub fn multicast_pays(plan: &CollectiveSpec, link: &LinkModel) -> bool {
    is_faster(plan, time_ps(plan, link), flat_ps(plan, link))
}

impl<T: AsRef<[u32]>> Hierarchy<T> {
    /// As [`multicast_pays`], if the leaders of the last level are the members, and forward what they have received within
    /// their groups. Messages cost `intra` within a group and `inter` between groups.
    pub fn multicast_pays(
        &self,
        plan: &CollectiveSpec,
        lower: LowerTrees,
        intra: &LinkModel,
        inter: &LinkModel,
    ) -> bool {
        let (leaders, intra) = (self.leaders(plan), &GroupModel::from(*intra));
        let Some((within, _)) = self.within_ps(plan, lower, intra) else { return false };
        let time = time_ps(&leaders, inter).saturating_add(within);
        let flat = flat_ps(plan, &LinkModel { per_host: self.per_host(), ..*inter });
        let composed = self.time_ps(plan, lower, intra, inter).unwrap_or(u64::MAX);
        is_faster(&leaders, time, flat.min(composed))
    }
}

/// By more than the forms are wrong by.
const fn is_faster(members: &CollectiveSpec, time: u64, schedule: u64) -> bool {
    matches!(members.collective, CollectiveKind::Broadcast)
        && members.size >= MEMBERS_LEAST
        && time < schedule.saturating_sub(schedule >> 3)
}

/// Picoseconds until all members have the data and the root has their acknowledgements, all but the last ones while it
/// sends.
fn time_ps(plan: &CollectiveSpec, link: &LinkModel) -> u64 {
    let moved = (plan.bytes as u64).saturating_mul(u64::from(link.ps_per_byte));
    let round = ps(link.overhead_ns).saturating_mul(u64::from(plan.size.saturating_sub(1)));
    let earlier = round.saturating_mul(plan.bytes.checked_div(ACKNOWLEDGED_BYTES).unwrap_or(0) as u64);
    ps(link.latency_ns).saturating_add(moved.max(earlier)).saturating_add(round)
}

/// The time of the best flat schedule, in picoseconds.
fn flat_ps(plan: &CollectiveSpec, link: &LinkModel) -> u64 {
    choose(plan, false, link).time_ps(plan, false, link).unwrap_or(u64::MAX)
}
