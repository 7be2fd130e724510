//! How collectives are composed over subgroups: the leaders of each group, and the parts in which blocks go down to the others.

use unisono_core::collective::CollectiveSpec;
use unisono_core::schedule::{HierarchyOptions, Leaders};

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

    /// How a collective is composed, by the user's choice, or else by the model, which knows messages only: where slots are
    /// faster within groups, one rank leads each. Equal on all ranks if `plan` differs in the rank only.
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
        let [intra, inter] = [Carrier::Rings, carrier].map(|carrier| self.cost(carrier.into()));
        // Also at a rank that has no group's memory, alone in its group.
        let may_use_slots = over.innermost() != GroupMeans::Messages && means != GroupMeans::Messages;
        let has_slots = may_use_slots && GroupMeans::Auto.uses_slots(plan);
        let options = over.hierarchy().options(plan, LOWER_TREES, &intra, &inter);
        let leaders = match self.leaders {
            LeaderChoice::Auto if !has_slots => options.leaders,
            LeaderChoice::Auto | LeaderChoice::One => Leaders::One,
            LeaderChoice::All => Leaders::All,
        };
        let in_parts = match self.parts {
            PartsChoice::Auto => options.in_parts,
            PartsChoice::On => true,
            PartsChoice::Off => false,
        };
        HierarchyOptions { in_parts, leaders, ..options }
    }

    /// The variables, without prefix, of choices other than the model's.
    pub(super) fn option_variables(&self) -> impl Iterator<Item = (&'static str, String)> + use<> {
        let leaders = (self.leaders != LeaderChoice::Auto).then(|| ("LEADERS", self.leaders.to_string()));
        let parts = (self.parts != PartsChoice::Auto).then(|| ("PARTS", self.parts.to_string()));
        leaders.into_iter().chain(parts)
    }
}
