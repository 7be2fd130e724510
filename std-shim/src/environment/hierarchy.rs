//! The subgroups over which collectives are composed: the ranks of one switch, node, socket, NUMA node or cache, or
//! simulated ones.
//!
//! Graham et al. 2010, §3: which ranks form a subgroup is a rule of its own, apart from the collective within it.

use alloc::sync::Arc;
use core::fmt;
use core::str::FromStr;
use std::collections::HashMap;

use unisono_bootstrap::PeerRecord;
use unisono_core::collective::CollectiveSpec;
use unisono_core::ids::Rank;
use unisono_core::schedule::{GroupLevels, Hierarchy};

use super::choice::{GroupMeans, LeaderMeans, SubgroupRule};
use super::location::Location;
use super::tuning::table::digest;
use super::tuning::{Carrier, Interconnect};

/// The user's choice of subgroups, and of means within them. It must be equal on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct HierarchyChoice {
    /// The subgroups.
    pub groups: SubgroupChoice,
    /// How the members of the subgroups of each rule or size exchange their parts, in the order of these.
    pub means: [GroupMeans; GROUPINGS],
    /// How the leaders of the last level exchange theirs, where neither an option nor a table says more.
    pub net: LeaderMeans,
}

/// The user's choice of subgroups.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SubgroupChoice {
    /// Flat schedules only.
    Off,
    /// The ranks of each node, for collectives and sizes for which that pays ([`Hierarchy::pays`]), unless ranks share
    /// processors, or the user or a table selects the algorithm.
    #[default]
    Auto,
    /// Ranks that have a unit of their location in common.
    Units(Nested<SubgroupRule>),
    /// Simulated groups of consecutive ranks, by their sizes.
    Simulated(Nested<u32>),
}

/// One to five rules or sizes of groups, each within the groups of the one before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Nested<T>([Option<T>; GROUPINGS]);

/// The most groups that a rank is in.
const GROUPINGS: usize = Hierarchy::<()>::GROUPINGS;

impl<T: Copy> Nested<T> {
    /// The outermost first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = T> + Clone {
        let Self(all) = *self;
        all.into_iter().flatten()
    }

    /// Reads them, separated by commas.
    fn parse(text: &str, one: impl Fn(&str) -> Option<T>) -> Option<Self> {
        let mut all = [None; GROUPINGS];
        let mut free = all.iter_mut();
        for part in text.split(',') {
            *free.next()? = Some(one(part)?);
        }
        Some(Self(all))
    }

    /// Whether this is true of each one and all that follow it.
    fn is_chain(&self, is_link: impl Fn(T, T) -> bool) -> bool {
        (1..).zip(self.iter()).all(|(next, outer)| self.iter().skip(next).all(|inner| is_link(outer, inner)))
    }
}

impl<T: Copy + fmt::Display> fmt::Display for Nested<T> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, one) in self.iter().enumerate() {
            write!(to, "{}{one}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl HierarchyChoice {
    /// No subgroups.
    pub const OFF: Self =
        Self { groups: SubgroupChoice::Off, means: [GroupMeans::Auto; GROUPINGS], net: LeaderMeans::Auto };

    /// Slots of a node's memory that a communicator needs at most: one on one node, and over several nodes one for each level
    /// with shared memory.
    ///
    /// ```
    /// use unisono::environment::HierarchyChoice;
    ///
    /// assert_eq!("host:slots,cache:slots".parse::<HierarchyChoice>()?.slots(), 2);
    /// # Ok::<(), unisono::environment::HierarchyError>(())
    /// ```
    pub fn slots(self) -> u32 {
        let asked = self.means.iter().filter(|means| **means == GroupMeans::Slots).count();
        let may_be_more = self.innermost() == GroupMeans::Auto;
        (asked + usize::from(may_be_more)).max(1) as u32
    }

    /// How the ranks of innermost groups exchange their parts.
    pub(crate) fn innermost(self) -> GroupMeans {
        let groupings = match self.groups {
            SubgroupChoice::Off | SubgroupChoice::Auto => 1,
            SubgroupChoice::Units(rules) => rules.iter().count(),
            SubgroupChoice::Simulated(sizes) => sizes.iter().count(),
        };
        self.means.into_iter().take(groupings).next_back().unwrap_or_default()
    }

    /// The same groups, whose innermost ones use messages.
    pub(crate) fn by_messages(mut self) -> Self {
        if let SubgroupChoice::Off | SubgroupChoice::Auto = self.groups {
            self.means = [GroupMeans::Messages; GROUPINGS];
        }
        self
    }

    /// Whether each rank must know the units of its processors.
    ///
    /// ```
    /// use unisono::environment::HierarchyChoice;
    ///
    /// assert!("host,cache".parse::<HierarchyChoice>()?.needs_processors());
    /// assert!(!"host".parse::<HierarchyChoice>()?.needs_processors());
    /// # Ok::<(), unisono::environment::HierarchyError>(())
    /// ```
    pub fn needs_processors(self) -> bool {
        matches!(self.groups, SubgroupChoice::Units(rules) if rules.iter().any(SubgroupRule::is_of_processors))
    }
}

impl SubgroupRule {
    const fn is_of_processors(self) -> bool {
        matches!(self, Self::Socket | Self::Numa | Self::Cache)
    }

    /// Whether its groups can be divided by another rule: nodes are not divided by switches, nor parts of a node by nodes.
    fn is_divided_by(self, inner: Self) -> bool {
        match inner {
            _ if self == inner => false,
            Self::Switch => self == Self::Group,
            Self::Host => !self.is_of_processors() && self != Self::Rail,
            Self::Socket | Self::Numa | Self::Cache | Self::Rail | Self::Group => true,
        }
    }

    /// What ranks of one group have in common. Ranks of which it is not known form groups of their own, of one node
    /// where the rule divides nodes.
    const fn key(self, at: &RankLocation) -> (Option<u32>, Option<u32>) {
        let RankLocation { node, location } = *at;
        match self {
            Self::Switch => (None, location.switch),
            Self::Host => (Some(node), None),
            Self::Socket => (Some(node), location.socket),
            Self::Numa => (Some(node), location.numa),
            Self::Cache => (Some(node), location.cache),
            Self::Rail => (Some(node), location.rail),
            Self::Group => (None, location.group),
        }
    }
}

/// A text is no [`HierarchyChoice`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "expected off, auto, or up to five rules (switch, host, socket, numa, cache, rail, group), the outer one first, such as \
     host,socket, or the inner one first and net last, such as socket,host,net; or up to five sizes of nested groups of \
     consecutive ranks, such as 8,2; and after any but off and net :slots for shared memory within these groups, \
     :messages, or :auto; after net :messages, :token-tree, :combining-tree, :multicast, :rdma, or :auto"
)]
pub struct HierarchyError;

impl FromStr for HierarchyChoice {
    type Err = HierarchyError;

    fn from_str(text: &str) -> Result<Self, HierarchyError> {
        // All ranks: the outer end, if it is named.
        let net_of = |part: &str| match part.split_once(':') {
            None => (part == "net").then_some(Ok(LeaderMeans::Auto)),
            Some((group, said)) => (group == "net").then(|| said.parse().map_err(|_| HierarchyError)),
        };
        let mut parts: Vec<&str> = text.split(',').collect();
        let mut net = LeaderMeans::Auto;
        if let [.., _, last] = parts[..]
            && let Some(said) = net_of(last)
        {
            net = said?;
            parts.pop();
            parts.reverse();
        } else if let [first, _, ..] = parts[..]
            && let Some(said) = net_of(first)
        {
            net = said?;
            parts.remove(0);
        }
        let (mut groups, mut means) = (Vec::new(), Self::default().means);
        let mut free = means.iter_mut();
        for part in parts {
            let (group, said) = part.split_once(':').map_or((part, None), |(group, said)| (group, Some(said)));
            let place = free.next().ok_or(HierarchyError)?;
            if let Some(said) = said.filter(|_| group != "off") {
                *place = said.parse().map_err(|_| HierarchyError)?;
            } else if said.is_some() {
                return Err(HierarchyError);
            }
            groups.push(group);
        }
        Ok(Self { groups: groups.join(",").parse()?, means, net })
    }
}

impl fmt::Display for HierarchyChoice {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = self.groups.to_string();
        if self.net != LeaderMeans::Auto {
            write!(to, "net:{},", self.net)?;
        }
        for (i, (group, means)) in groups.split(',').zip(self.means).enumerate() {
            write!(to, "{}{group}", if i == 0 { "" } else { "," })?;
            if means != GroupMeans::default() {
                write!(to, ":{means}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for SubgroupChoice {
    type Err = HierarchyError;

    fn from_str(text: &str) -> Result<Self, HierarchyError> {
        match text {
            "off" => return Ok(Self::Off),
            "auto" => return Ok(Self::Auto),
            _ => {}
        }
        let number = |text: &str| {
            let plain = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|number| plain && *number != 0)
        };
        let rules = Nested::parse(text, |rule| rule.parse::<SubgroupRule>().ok());
        let rules = rules.filter(|rules| rules.is_chain(SubgroupRule::is_divided_by)).map(Self::Units);
        let sizes = || Nested::parse(text, number).filter(|sizes| sizes.is_chain(|outer, inner| inner <= outer));
        rules.or_else(|| sizes().map(Self::Simulated)).ok_or(HierarchyError)
    }
}

impl fmt::Display for SubgroupChoice {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => to.write_str("off"),
            Self::Auto => to.write_str("auto"),
            Self::Units(rules) => rules.fmt(to),
            Self::Simulated(sizes) => sizes.fmt(to),
        }
    }
}

/// The node of a rank, and where it runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RankLocation {
    /// Its node.
    pub node: u32,
    /// Its switch, and the units of its node that it runs in.
    pub location: Location,
}

impl RankLocation {
    /// The first of `ranks` that is in the same unit of the same node as rank `own` of them. `None`: the unit of that rank
    /// is not known.
    ///
    /// ```
    /// use unisono::environment::RankLocation;
    ///
    /// let ranks: [RankLocation; 3] = [0, 1, 1].map(From::from);
    /// assert_eq!(RankLocation::first_in_unit(&ranks, 2, |_| Some(0)), Some(1));
    /// assert_eq!(RankLocation::first_in_unit(&ranks, 2, |at| at.socket), None);
    /// ```
    pub fn first_in_unit(ranks: &[Self], own: usize, unit: impl Fn(&Location) -> Option<u32>) -> Option<usize> {
        let of = |at: &Self| Some((at.node, unit(&at.location)?));
        let own = of(ranks.get(own)?)?;
        ranks.iter().position(|at| of(at) == Some(own))
    }
}

impl From<&PeerRecord> for RankLocation {
    fn from(record: &PeerRecord) -> Self {
        Self { node: record.node, location: record.location }
    }
}

impl From<u32> for RankLocation {
    fn from(node: u32) -> Self {
        Self { node, ..Self::default() }
    }
}

/// The subgroups of a communicator, equal on all of its ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subgroups {
    hierarchy: Hierarchy<Arc<[u32]>>,
    /// The fewest ranks of a host, if those of each are adjacent; else 1.
    per_host: u16,
    is_auto: bool,
    /// How the ranks of innermost groups exchange their parts.
    innermost: GroupMeans,
    /// The levels above the innermost one whose subgroups exchange their parts in shared memory.
    leader_levels: GroupLevels,
    digest: u32,
}

impl Subgroups {
    /// The subgroups of a communicator whose ranks run there. `None`: its collectives are flat. A rule that divides
    /// nothing, or into single ranks, has no subgroups.
    ///
    /// ```
    /// use unisono::environment::{HierarchyChoice, Subgroups};
    ///
    /// // Four ranks on two nodes.
    /// assert!(Subgroups::new(HierarchyChoice::default(), &[0, 0, 1, 1].map(From::from)).is_some());
    /// ```
    pub fn new(choice: HierarchyChoice, ranks: &[RankLocation]) -> Option<Self> {
        // The group of each rank, the outermost grouping first, and the means within the groups.
        let mut groupings: Vec<(Vec<u32>, GroupMeans)> = match choice.groups {
            SubgroupChoice::Off => return None,
            SubgroupChoice::Auto => {
                let hosts = dividing(ranks, |at| SubgroupRule::Host.key(at))?;
                [hosts].into_iter().zip(choice.means).collect()
            }
            SubgroupChoice::Units(rules) => {
                let of =
                    |count| dividing(ranks, |at| rules.iter().take(count).map(|rule| rule.key(at)).collect::<Vec<_>>());
                let all = (1..=rules.iter().count()).map(of).zip(choice.means);
                let mut groupings: Vec<_> = all.filter_map(|(groups, means)| Some((groups?, means))).collect();
                // A rule that divides nothing further is skipped, but its means count.
                groupings.dedup_by(|(further, means), (groups, outer)| {
                    if further == groups {
                        *outer = *means;
                    }
                    further == groups
                });
                groupings
            }
            SubgroupChoice::Simulated(sizes) => {
                let mut within: Vec<u32> = (0..).zip(ranks).map(|(rank, _)| rank).collect();
                let mut of = |size: u32| {
                    let groups = within.iter().map(|rank| rank / size.max(1)).collect();
                    within.iter_mut().for_each(|rank| *rank %= size.max(1));
                    groups
                };
                sizes.iter().map(&mut of).zip(choice.means).collect()
            }
        };
        groupings.reverse();
        let (groupings, means): (Vec<_>, Vec<_>) = groupings.into_iter().unzip();
        let new = |groupings: &[&[u32]]| {
            Hierarchy::new(groupings, vec![0; Hierarchy::<Vec<u32>>::table_len(ranks.len(), groupings.len())])
        };
        let hierarchy = new(&groupings.iter().map(Vec::as_slice).collect::<Vec<_>>())?.map(Arc::from);
        let hosts = dividing(ranks, |at| SubgroupRule::Host.key(at));
        let hosts = hosts.and_then(|hosts| new(&[&hosts]));
        let per_host = hosts.map_or(1, |hosts| hosts.per_host());
        let digest = digest(&format_args!("{groupings:?}"), u64::from(u32::MAX)) as u32;
        let is_auto = choice.groups == SubgroupChoice::Auto;
        // Whether no group of this grouping has ranks of several nodes.
        let share_nodes = |level: usize| {
            let (mut nodes, around) = (HashMap::new(), groupings.get(level..).unwrap_or_default());
            ranks.iter().enumerate().all(|(rank, at)| {
                let path: Vec<u32> = around.iter().filter_map(|groups| groups.get(rank).copied()).collect();
                *nodes.entry(path).or_insert(at.node) == at.node
            })
        };
        let mut means = means.into_iter().enumerate().filter(|(level, _)| share_nodes(*level));
        let innermost = means.next().map_or(GroupMeans::Messages, |(_, means)| means);
        let leaders = means.filter(|(_, means)| *means == GroupMeans::Slots);
        let leader_levels = leaders.fold(GroupLevels::NONE, |levels, (level, _)| levels.with(level as u32));
        Some(Self { hierarchy, per_host, is_auto, innermost, leader_levels, digest })
    }

    /// The nested groups.
    ///
    /// ```
    /// use unisono::environment::{HierarchyChoice, Subgroups};
    ///
    /// let groups = Subgroups::new(HierarchyChoice::default(), &[0, 0, 1, 1].map(From::from)).expect("two nodes");
    /// println!("{:?}", groups.hierarchy());
    /// ```
    pub const fn hierarchy(&self) -> &Hierarchy<Arc<[u32]>> {
        &self.hierarchy
    }

    /// A digest of the group of each rank.
    ///
    /// ```
    /// use unisono::environment::{HierarchyChoice, Subgroups};
    ///
    /// let digest = |nodes: [u32; 4]| {
    ///     Subgroups::new(HierarchyChoice::default(), &nodes.map(From::from)).map(|groups| groups.digest())
    /// };
    /// assert_eq!(digest([0, 0, 1, 1]), digest([7, 7, 3, 3]));
    /// ```
    pub const fn digest(&self) -> u32 {
        self.digest
    }

    /// Whether they are used only where that pays.
    ///
    /// ```
    /// use unisono::environment::{HierarchyChoice, Subgroups};
    ///
    /// let groups = Subgroups::new(HierarchyChoice::default(), &[0, 0, 1, 1].map(From::from)).expect("two nodes");
    /// assert!(groups.is_auto());
    /// ```
    pub const fn is_auto(&self) -> bool {
        self.is_auto
    }

    /// How the ranks of an innermost subgroup exchange their parts: in shared memory only if no innermost subgroup has
    /// ranks of several nodes.
    ///
    /// ```
    /// use unisono::environment::{GroupMeans, Subgroups};
    ///
    /// let groups = Subgroups::new("host:slots".parse()?, &[0, 0, 1, 1].map(From::from)).expect("two nodes");
    /// assert_eq!(groups.innermost(), GroupMeans::Slots);
    /// # Ok::<(), unisono::environment::HierarchyError>(())
    /// ```
    pub const fn innermost(&self) -> GroupMeans {
        self.innermost
    }

    /// Whether the ranks of innermost groups use slots for a collective by these means, if they have any: equal on all
    /// ranks.
    pub(super) fn uses_slots(&self, plan: &CollectiveSpec, means: GroupMeans) -> bool {
        self.innermost != GroupMeans::Messages && means.uses_slots(plan)
    }

    /// The levels at which the members of each subgroup may exchange their parts in shared memory: those of which no subgroup
    /// has ranks of several nodes, the innermost one but with messages, the others with slots.
    ///
    /// ```
    /// use unisono::environment::Subgroups;
    /// use unisono_core::schedule::GroupLevels;
    ///
    /// let groups = Subgroups::new("host".parse()?, &[0, 0, 1, 1].map(From::from)).expect("two nodes");
    /// assert_eq!(groups.slot_levels(), GroupLevels::INNERMOST);
    /// # Ok::<(), unisono::environment::HierarchyError>(())
    /// ```
    pub fn slot_levels(&self) -> GroupLevels {
        if self.innermost == GroupMeans::Messages { self.leader_levels } else { self.leader_levels.with(0) }
    }

    /// Those of them for which the user asked for slots.
    pub(crate) fn asked_levels(&self) -> GroupLevels {
        if self.innermost == GroupMeans::Slots { self.leader_levels.with(0) } else { self.leader_levels }
    }

    /// The leaders of the last level, with this root.
    ///
    /// ```
    /// use unisono::environment::{HierarchyChoice, Subgroups};
    ///
    /// let groups = Subgroups::new(HierarchyChoice::default(), &[0, 0, 1, 1].map(From::from)).expect("two nodes");
    /// assert_eq!(groups.leaders(unisono_core::ids::Rank(0)).count(), 2);
    /// ```
    pub fn leaders(&self, root: Rank) -> impl Iterator<Item = Rank> {
        self.hierarchy.top_leaders(root)
    }

    /// How the ranks reach each other if those of a host share its link.
    ///
    /// ```
    /// use unisono::environment::tuning::Carrier;
    /// use unisono::environment::Subgroups;
    ///
    /// let nodes = Subgroups::new("host".parse()?, &[0, 0, 1, 1].map(From::from)).expect("two nodes");
    /// assert_eq!(nodes.interconnect(Carrier::Udp).per_host, 2);
    /// # Ok::<(), unisono::environment::HierarchyError>(())
    /// ```
    pub fn interconnect(&self, carrier: Carrier) -> Interconnect {
        Interconnect { carrier, per_host: self.per_host }
    }
}

/// The number of each rank's group, from 0 in the order of their first ranks. `None`: there is one group, or each has
/// one rank.
fn dividing<K: Eq + core::hash::Hash>(ranks: &[RankLocation], key: impl Fn(&RankLocation) -> K) -> Option<Vec<u32>> {
    let mut numbers = HashMap::new();
    let mut number = |at| {
        let next = numbers.len() as u32;
        *numbers.entry(key(at)).or_insert(next)
    };
    let groups: Vec<u32> = ranks.iter().map(&mut number).collect();
    (1 < numbers.len() && numbers.len() < ranks.len()).then_some(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_of_subgroups_is_read_as_it_is_written() {
        for text in [
            "off",
            "auto",
            "host",
            "cache",
            "switch,host",
            "host,socket",
            "socket,cache",
            "group,switch",
            "numa,group",
            "host,rail",
            "rail,cache",
            "3",
            "8,2",
            "4,4",
            "8,4,2",
            "host,socket,cache",
            "switch,host,socket,numa,cache",
            "auto:slots",
            "auto:messages",
            "host,cache:slots",
            "8,2:slots",
            "host:slots,cache:slots",
            "switch,host:slots,cache",
            "16,8:slots,2:slots",
            "net:messages,auto",
            "net:token-tree,host:slots,cache",
            "net:multicast,off",
        ] {
            assert_eq!(text.parse().map(|choice: HierarchyChoice| choice.to_string()).as_deref(), Ok(text));
        }
        for (long, short) in [
            ("switch:messages,host:slots", "switch:messages,host:slots"),
            ("auto:auto", "auto"),
            ("4:auto", "4"),
            ("cache:slots,host:slots,net:messages", "net:messages,host:slots,cache:slots"),
            ("host,net:rdma", "net:rdma,host"),
            ("net,host,cache:slots", "host,cache:slots"),
            ("host:slots,net", "host:slots"),
        ] {
            assert_eq!(long.parse().map(|choice: HierarchyChoice| choice.to_string()).as_deref(), Ok(short));
        }
        for text in [
            "",
            "off:messages",
            "net",
            "net,net",
            "net:slots,host",
            "host,net,cache",
            "host,cache,net",
            "host:multicast",
            "host:",
            ":slots",
            "0",
            "-1",
            "+2",
            "2,",
            ",2",
            "2,3",
            "4,0",
            "4,2,3",
            "32,16,8,4,2,1",
            "node",
            "5000000000",
            "host,",
            "host,2",
            "2,host",
            "host,host",
            "socket,host",
            "host,switch",
            "rail,host",
            "host,socket,host",
            "group,switch,host,socket,numa,cache",
            "host,2,cache",
            "off,host",
            "auto,socket",
        ] {
            assert_eq!(text.parse::<HierarchyChoice>(), Err(HierarchyError), "{text}");
        }
    }

    fn choice(text: &str) -> HierarchyChoice {
        text.parse().expect("a choice")
    }

    #[test]
    fn subgroups_are_the_ranks_of_a_node_if_there_are_several_nodes_and_one_has_several_ranks() {
        let of = |text, nodes: &[u32]| {
            let ranks: Vec<RankLocation> = nodes.iter().map(|node| RankLocation::from(*node)).collect();
            Subgroups::new(choice(text), &ranks)
                .map(|groups| (groups.hierarchy.levels(), groups.hierarchy.innermost_groups()))
        };
        for text in ["auto", "host"] {
            assert_eq!(of(text, &[0, 0, 7, 7, 3]), Some((2, 3)));
            assert_eq!(of(text, &[0, 1, 2]), None);
            assert_eq!(of(text, &[4, 4, 4]), None);
        }
        assert_eq!(of("off", &[0, 0, 1]), None);
        assert_eq!(of("2", &[0; 5]), Some((2, 3)));
        assert_eq!(of("4,3", &[0; 9]), Some((3, 5)));
        assert_eq!(of("8,4,2", &[0; 17]), Some((4, 9)));
        let levels = |text, nodes: [u32; 4]| {
            let of = Subgroups::new(choice(text), &nodes.map(RankLocation::from)).expect("groups");
            (of.innermost(), of.slot_levels(), of.asked_levels())
        };
        let (none, ranks) = (GroupLevels::NONE, GroupLevels::INNERMOST);
        use GroupMeans::{Auto, Messages, Slots};
        assert_eq!(levels("2:slots", [0, 0, 1, 1]), (Slots, ranks, ranks));
        assert_eq!(levels("2:slots", [0, 0, 0, 1]), (Messages, none, none), "a group has ranks of two nodes");
        assert_eq!(levels("2:messages", [0, 0, 1, 1]), (Messages, none, none));
        assert_eq!(levels("2", [0, 0, 1, 1]), (Auto, ranks, none));
        assert_eq!(levels("2", [0, 0, 0, 1]), (Messages, none, none));
        // Pairs are of one node, the groups around them are not.
        assert_eq!(levels("4:slots,2:slots", [0, 0, 1, 1]), (Slots, ranks, ranks));
        assert_eq!(levels("4:slots,2:slots", [0; 4]), (Slots, ranks.with(1), ranks.with(1)));
        assert_eq!(levels("4:slots,2", [0; 4]), (Auto, ranks.with(1), none.with(1)));
        assert_eq!(levels("4,2:messages", [0; 4]), (Messages, none, none));
    }

    /// The groups of the ranks of two nodes of two sockets of two caches, two ranks on each; node 1's switch is 5.
    fn of_machine(text: &str, change: impl Fn(u32, &mut RankLocation)) -> Option<(u32, u32)> {
        let rank = |rank: u32| {
            let (socket, cache) = (Some(rank / 4 % 2), Some(rank / 2 % 4));
            let location = Location { socket, cache, switch: Some(rank / 8 * 5), ..Location::default() };
            let mut at = RankLocation { node: rank / 8, location };
            change(rank, &mut at);
            at
        };
        let ranks: Vec<RankLocation> = (0..16).map(rank).collect();
        Subgroups::new(choice(text), &ranks)
            .map(|groups| (groups.hierarchy.levels(), groups.hierarchy.innermost_groups()))
    }

    #[test]
    fn subgroups_are_the_ranks_that_share_a_unit() {
        let groups = |text| of_machine(text, |_, _| {});
        assert_eq!(groups("host"), Some((2, 2)));
        assert_eq!(groups("socket"), Some((2, 4)), "sockets of different nodes differ");
        assert_eq!(groups("cache"), Some((2, 8)));
        assert_eq!(groups("host,socket"), Some((3, 4)));
        assert_eq!(groups("socket,cache"), Some((3, 8)));
        assert_eq!(groups("switch,cache"), Some((3, 8)));
        assert_eq!(groups("switch,host"), Some((2, 2)), "a switch has one node");
        assert_eq!(groups("host,socket,cache"), Some((4, 8)));
        assert_eq!(groups("switch,host,socket,numa,cache"), Some((4, 8)));
        assert_eq!(groups("numa"), Some((2, 2)), "NUMA nodes are not known");
        assert_eq!(groups("group"), None, "no rank has a group");
        assert_eq!(groups("group,host"), Some((2, 2)));
    }

    #[test]
    fn ranks_of_unknown_units_form_a_group_within_their_node() {
        let unbound = |text| {
            of_machine(text, |rank, at| {
                if rank % 4 == 3 {
                    (at.location.socket, at.location.cache) = (None, None);
                }
            })
        };
        assert_eq!(unbound("socket"), Some((2, 6)));
        assert_eq!(unbound("host,cache"), Some((3, 10)));
    }

    #[test]
    fn a_rule_that_divides_into_single_ranks_has_no_groups() {
        let alone = |text| of_machine(text, |rank, at| (at.node, at.location.cache) = (rank, None));
        assert_eq!(alone("host"), None);
        assert_eq!(alone("switch,host"), Some((2, 2)), "the ranks of each switch");
        let odd = |text| of_machine(text, |rank, at| at.location.group = Some(rank % 2));
        assert_eq!(odd("group"), Some((2, 2)));
        assert_eq!(odd("host,group"), Some((3, 4)));
        assert_eq!(odd("cache,group"), Some((2, 8)), "the ranks of each cache");
        let rails = |text| of_machine(text, |rank, at| at.location.rail = Some(rank % 2));
        assert_eq!(rails("rail"), Some((2, 4)), "rails of different nodes differ");
        assert_eq!(rails("host,rail"), Some((3, 4)));
    }
}
