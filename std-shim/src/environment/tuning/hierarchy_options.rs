//! How collectives are composed over subgroups: the leaders of each group, and the parts in which blocks go down to the others.

use unisono_core::collective::CollectiveSpec;
use unisono_core::schedule::{Choice, GroupModel, HierarchyOptions, LinkModel};

use super::{Carrier, LOWER_TREES, LeaderChoice, PartsChoice, Tuning};
use crate::environment::{GroupMeans, Subgroups};

impl Tuning {
    /// Sets the leaders of each group.
    ///
    /// ```
    /// use unisono::environment::{LeaderChoice, Tuning};
    ///
    /// let mut tuning = Tuning::default();
    /// tuning.set_leaders(LeaderChoice::All);
    /// assert!(tuning.variables().any(|variable| variable == ("LEADERS", "all".to_owned())));
    /// ```
    pub const fn set_leaders(&mut self, choice: LeaderChoice) {
        self.leaders = choice;
    }

    /// Sets whether blocks go down to the ranks of a group in parts.
    ///
    /// ```
    /// use unisono::environment::{PartsChoice, Tuning};
    ///
    /// let mut tuning = Tuning::default();
    /// tuning.set_parts(PartsChoice::Off);
    /// assert!(tuning.variables().any(|variable| variable == ("PARTS", "off".to_owned())));
    /// ```
    pub const fn set_parts(&mut self, choice: PartsChoice) {
        self.parts = choice;
    }

    /// How a collective is composed, by the user's choice, or else by the model. Equal on all ranks if `plan` differs in the
    /// rank only.
    ///
    /// ```
    /// # use unisono_core::collective::{CollectiveKind, CollectiveSpec, Order};
    /// # use unisono_core::ids::Rank;
    /// # let spec = CollectiveSpec {
    /// #     collective: CollectiveKind::Allreduce, rank: Rank(0), size: 16, root: Rank(0), bytes: 16384, grain: 8,
    /// #     order: Order::Any, in_place: false, reduction_id: 0,
    /// # };
    /// use unisono::environment::tuning::{Carrier, Tuning};
    /// use unisono::environment::{GroupMeans, Subgroups};
    /// use unisono_core::schedule::Leaders;
    ///
    /// // An allreduce among 16 ranks on two nodes.
    /// let nodes: Vec<_> = (0..16).map(|rank| From::from(rank / 8)).collect();
    /// let nodes = Subgroups::new("host".parse()?, &nodes).expect("two nodes");
    /// assert_eq!(Tuning::default().hierarchy_options(&spec, Carrier::Udp, &nodes, GroupMeans::Messages).leaders, Leaders::All);
    /// # Ok::<(), unisono::environment::HierarchyError>(())
    /// ```
    pub fn hierarchy_options(
        &self,
        plan: &CollectiveSpec,
        carrier: Carrier,
        over: &Subgroups,
        means: GroupMeans,
    ) -> HierarchyOptions {
        let (intra, inter) = self.group_costs(plan, carrier, over, means);
        let options = over.hierarchy().options(plan, LOWER_TREES, &intra, &inter);
        let leaders = self.leaders.given().unwrap_or(options.leaders);
        let in_parts = match self.parts {
            PartsChoice::Auto => options.in_parts,
            PartsChoice::On => true,
            PartsChoice::Off => false,
        };
        HierarchyOptions { in_parts, leaders, ..options }
    }

    /// The segments by which the schedule over hosts with this choice for one leader of each is fastest by the model.
    pub(super) fn hierarchy_segments(
        &self,
        plan: &CollectiveSpec,
        carrier: Carrier,
        over: &Subgroups,
        means: GroupMeans,
        choice: &Choice,
    ) -> u32 {
        let (intra, inter) = self.group_costs(plan, carrier, over, means);
        over.hierarchy().segments(plan, LOWER_TREES, (&intra, &inter), choice)
    }

    /// Whether a collective over hosts is faster than a flat one by the model, with the user's choice of leaders. Equal on all
    /// ranks if `plan` differs in the rank only.
    pub(super) fn composing_pays(&self, plan: &CollectiveSpec, carrier: Carrier, over: &Subgroups) -> bool {
        let (intra, inter) = self.group_costs(plan, carrier, over, over.innermost());
        over.hierarchy().pays(plan, LOWER_TREES, (&intra, &inter), self.leaders.given())
    }

    /// What messages and steps cost within groups, and messages between them. Also of a rank that has no group's memory, alone
    /// in its group: it is equal on all ranks.
    fn group_costs(
        &self,
        plan: &CollectiveSpec,
        carrier: Carrier,
        over: &Subgroups,
        means: GroupMeans,
    ) -> (GroupModel, LinkModel) {
        (self.group_cost(over.uses_slots(plan, means)), self.cost(carrier.into()))
    }

    /// The variables, without prefix, of choices other than the model's.
    pub(super) fn option_variables(&self) -> impl Iterator<Item = (&'static str, String)> + use<> {
        let leaders = (self.leaders != LeaderChoice::Auto).then(|| ("LEADERS", self.leaders.to_string()));
        let parts = (self.parts != PartsChoice::Auto).then(|| ("PARTS", self.parts.to_string()));
        leaders.into_iter().chain(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::RankLocation;
    use unisono_core::collective::{CollectiveKind, Order};
    use unisono_core::ids::Rank;
    use unisono_core::schedule::Leaders;

    /// Of an allreduce among 16 ranks on two nodes.
    fn leaders(tuning: &Tuning, means: &str, bytes: usize) -> Leaders {
        let (rank, root, order) = (Rank(0), Rank(0), Order::Any);
        let (collective, grain, in_place, reduction_id) = (CollectiveKind::Allreduce, 8, false, 0);
        let plan = CollectiveSpec { collective, rank, size: 16, root, bytes, grain, order, in_place, reduction_id };
        let nodes: Vec<RankLocation> = (0..16).map(|rank| RankLocation::from(rank / 8)).collect();
        let over = Subgroups::new(format!("host:{means}").parse().expect("a choice"), &nodes).expect("two nodes");
        tuning.hierarchy_options(&plan, Carrier::Udp, &over, over.innermost()).leaders
    }

    #[test]
    fn the_model_selects_leaders_in_slots_too_unless_the_user_does() {
        let mut tuning = Tuning::default();
        for means in ["messages", "slots", "auto"] {
            let of = |bytes| leaders(&tuning, means, bytes);
            assert_eq!([of(8), of(16 << 10), of(64 << 10)], [Leaders::One, Leaders::All, Leaders::All], "{means}");
        }
        for (choice, given) in [(LeaderChoice::One, Leaders::One), (LeaderChoice::All, Leaders::All)] {
            tuning.set_leaders(choice);
            assert_eq!([8, 16 << 10].map(|bytes| leaders(&tuning, "slots", bytes)), [given; 2]);
        }
    }
}
