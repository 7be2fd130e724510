//! The schedules over the hosts of a job that are measured.

use unisono::environment::tuning::{Carrier, Composed, JobSignature, SelectedBy};
use unisono::environment::{GroupMeans, HierarchyChoice, Override, OverrideError, RankLocation, Subgroups, Tuning};
use unisono_core::collective::CollectiveSpec;
use unisono_core::schedule::{GroupLevels, Schedule as _, Step, algorithms};

/// Leaders, and steps of one, up to which schedules are compared.
const COMPARED_LEADERS_MAX: usize = 8;
const COMPARED_STEPS_MAX: u32 = 512;

/// The hosts of a job.
pub(super) struct Hosts {
    over: Subgroups,
    sharing: u16,
    /// Whether the ranks of a host share memory.
    shares_memory: bool,
}

impl Hosts {
    /// Those of a job of this signature, as if its ranks filled one host after the other. `None`: no host has several ranks,
    /// or there is only one.
    pub(super) fn of(ranks: u32, signature: &JobSignature, sharing: u64) -> Option<Self> {
        let (_, most) = signature.hosts()?;
        let located: Vec<RankLocation> = (0..ranks).map(|rank| (rank / most).into()).collect();
        let over = Subgroups::new(HierarchyChoice::default(), &located)?;
        let sharing = u16::try_from(sharing).unwrap_or(u16::MAX);
        Some(Self { over, sharing, shares_memory: signature.shares_memory() })
    }

    /// The schedules over hosts that can execute a call, by each algorithm of the leaders and with each means within hosts;
    /// of those with the same steps, one.
    ///
    /// # Errors
    /// A name is not valid.
    pub(super) fn schedules(&self, plan: &CollectiveSpec) -> Result<Vec<Override>, OverrideError> {
        let (mut all, mut known) = (Vec::new(), Vec::new());
        for means in [GroupMeans::Messages, GroupMeans::Slots] {
            for algorithm in algorithms(plan.collective) {
                let wanted = Override::new(plan.collective, &format!("host:{means}+{}", algorithm.name()))?;
                let Some(steps) =
                    self.steps(wanted, plan).filter(|_| means == GroupMeans::Messages || self.shares_memory)
                else {
                    continue;
                };
                if steps.is_empty() || !known.contains(&steps) {
                    known.push(steps);
                    all.push(wanted);
                }
            }
        }
        Ok(all)
    }

    /// The steps of the leaders; none if there are too many. `None`: there is no such schedule, or no slot in it.
    fn steps(&self, wanted: Override, plan: &CollectiveSpec) -> Option<Vec<Step>> {
        let mut tuning = Tuning::default();
        tuning.set_sharing(self.sharing);
        tuning.set(wanted);
        let of = |plan: &CollectiveSpec| {
            let composed = tuning.compose(plan, false, Carrier::Udp, &self.over, 1, GroupLevels::INNERMOST);
            composed.filter(|composed| composed.composition.selected_by == SelectedBy::Override)
        };
        let Composed { composition, schedule, .. } = of(plan)?;
        if composition.means == GroupMeans::Slots && !schedule.has_group_steps() {
            return None;
        }
        let mut all = Vec::new();
        let leaders: Vec<_> = self.over.leaders(plan.root).collect();
        let is_short = leaders.len() <= COMPARED_LEADERS_MAX && schedule.steps() <= COMPARED_STEPS_MAX;
        for leader in leaders.into_iter().filter(|_| is_short) {
            let Composed { schedule, .. } = of(&CollectiveSpec { rank: leader, ..*plan })?;
            all.extend((0..schedule.steps()).filter_map(|step| schedule.step(step)));
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_core::collective::{CollectiveKind, Order};
    use unisono_core::ids::Rank;

    fn hosts(ranks: u32, device: &str, nodes: u32, per_node: u32) -> Option<Hosts> {
        let text = format!("version=1 device={device} processors=2 nodes={nodes} ranks-per-node={per_node}");
        Hosts::of(ranks, &text.parse().expect("a signature"), 2)
    }

    fn names(hosts: &Hosts, collective: CollectiveKind, bytes: usize) -> Vec<String> {
        let (rank, root, size, grain, order) = (Rank(0), Rank(0), 8, 8, Order::Any);
        let plan =
            CollectiveSpec { collective, rank, size, root, bytes, grain, order, in_place: false, reduction_id: 0 };
        hosts.schedules(&plan).expect("names").iter().map(Override::to_string).collect()
    }

    #[test]
    fn each_algorithm_of_the_leaders_is_measured_with_each_means() {
        let two = hosts(8, "shm+udp", 2, 4).expect("two hosts");
        // Between two leaders a standard exchange is doubling.
        for means in ["messages", "slots"] {
            let all = ["doubling", "knomial", "halving", "ring"].map(|name| format!("host:{means}+{name}"));
            let found = names(&two, CollectiveKind::Allreduce, 1024);
            assert!(found.len() == 8 && all.iter().all(|name| found.contains(name)), "{found:?}");
        }
        let three = hosts(8, "shm+udp", 3, 3).expect("three hosts");
        assert_eq!(names(&three, CollectiveKind::Allreduce, 1024).len(), 10);
        // A scan uses no slots.
        assert!(names(&three, CollectiveKind::Scan, 8).iter().all(|name| name.starts_with("host:messages+")));
    }

    #[test]
    fn hosts_need_several_ranks_and_slots_need_shared_memory() {
        assert!(hosts(8, "shm+udp", 8, 1).is_none() && hosts(8, "shm", 1, 8).is_none());
        let apart = hosts(8, "udp", 2, 4).expect("two hosts");
        assert!(names(&apart, CollectiveKind::Reduce, 8).iter().all(|name| name.starts_with("host:messages+")));
    }
}
