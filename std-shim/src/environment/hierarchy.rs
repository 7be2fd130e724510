//! The subgroups over which collectives are composed: the ranks of one switch, node, socket, NUMA node or cache, or
//! simulated ones.
//!
//! Graham et al. 2010, §3: which ranks form a subgroup is a rule of its own, apart from the collective within it.

use alloc::sync::Arc;
use core::fmt;
use core::str::FromStr;
use std::collections::HashMap;

use unisono_bootstrap::PeerRecord;
use unisono_core::ids::Rank;
use unisono_core::schedule::Hierarchy;

use super::choice::{GroupMeans, SubgroupRule};
use super::location::Location;
use super::tuning::table::digest;
use super::tuning::{Carrier, Interconnect};

/// The user's choice of subgroups, and of means within the innermost ones. It must be equal on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct HierarchyChoice {
    /// The subgroups.
    pub groups: SubgroupChoice,
    /// How the ranks of an innermost one exchange their parts.
    pub innermost: GroupMeans,
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
    pub const OFF: Self = Self { groups: SubgroupChoice::Off, innermost: GroupMeans::Auto };

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
            Self::Host => !self.is_of_processors(),
            Self::Socket | Self::Numa | Self::Cache | Self::Group => true,
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
            Self::Group => (None, location.group),
        }
    }
}

/// A text is no [`HierarchyChoice`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "expected off, auto, or up to five rules (switch, host, socket, numa, cache, group), the outer one first, such as \
     host,socket; or up to five sizes of nested groups of consecutive ranks, such as 8,2; and after any but off \
     :slots for shared memory within the innermost groups, :messages, or :auto"
)]
pub struct HierarchyError;

impl FromStr for HierarchyChoice {
    type Err = HierarchyError;

    fn from_str(text: &str) -> Result<Self, HierarchyError> {
        // Means may follow each rule; those of outer groups are messages.
        let mut innermost = None;
        let mut groups = Vec::new();
        for part in text.split(',') {
            if innermost.is_some_and(|means| means != GroupMeans::Messages) {
                return Err(HierarchyError);
            }
            let (group, means) = part.split_once(':').map_or((part, None), |(group, means)| (group, Some(means)));
            innermost = means.map(|means| means.parse().map_err(|_| HierarchyError)).transpose()?;
            groups.push(group);
        }
        let groups: SubgroupChoice = groups.join(",").parse()?;
        if groups == SubgroupChoice::Off && innermost.is_some() {
            return Err(HierarchyError);
        }
        Ok(Self { groups, innermost: innermost.unwrap_or_default() })
    }
}

impl fmt::Display for HierarchyChoice {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.groups.fmt(to)?;
        if self.innermost == GroupMeans::default() { Ok(()) } else { write!(to, ":{}", self.innermost) }
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
    innermost: GroupMeans,
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
        // The group of each rank, the outermost grouping first.
        let mut groupings = match choice.groups {
            SubgroupChoice::Off => return None,
            SubgroupChoice::Auto => vec![dividing(ranks, |at| SubgroupRule::Host.key(at))?],
            SubgroupChoice::Units(rules) => {
                let of =
                    |count| dividing(ranks, |at| rules.iter().take(count).map(|rule| rule.key(at)).collect::<Vec<_>>());
                let mut groupings: Vec<_> = (1..=rules.iter().count()).filter_map(of).collect();
                // A rule that divides nothing further is skipped.
                groupings.dedup();
                groupings
            }
            SubgroupChoice::Simulated(sizes) => {
                let mut within: Vec<u32> = (0..).zip(ranks).map(|(rank, _)| rank).collect();
                let mut of = |size: u32| {
                    let groups = within.iter().map(|rank| rank / size.max(1)).collect();
                    within.iter_mut().for_each(|rank| *rank %= size.max(1));
                    groups
                };
                sizes.iter().map(&mut of).collect::<Vec<Vec<u32>>>()
            }
        };
        groupings.reverse();
        let new = |groupings: &[&[u32]]| {
            Hierarchy::new(groupings, vec![0; Hierarchy::<Vec<u32>>::table_len(ranks.len(), groupings.len())])
        };
        let hierarchy = new(&groupings.iter().map(Vec::as_slice).collect::<Vec<_>>())?.map(Arc::from);
        let hosts = dividing(ranks, |at| SubgroupRule::Host.key(at));
        let hosts = hosts.and_then(|hosts| new(&[&hosts]));
        let per_host = hosts.map_or(1, |hosts| hosts.per_host());
        let digest = digest(&format_args!("{groupings:?}"), u64::from(u32::MAX)) as u32;
        let is_auto = choice.groups == SubgroupChoice::Auto;
        let mut nodes = HashMap::new();
        let share_nodes = ranks.iter().enumerate().all(|(rank, at)| {
            let path: Vec<u32> = groupings.iter().filter_map(|groups| groups.get(rank).copied()).collect();
            *nodes.entry(path).or_insert(at.node) == at.node
        });
        let innermost = if share_nodes { choice.innermost } else { GroupMeans::Messages };
        Some(Self { hierarchy, per_host, is_auto, innermost, digest })
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
        ] {
            assert_eq!(text.parse().map(|choice: HierarchyChoice| choice.to_string()).as_deref(), Ok(text));
        }
        for (long, short) in
            [("switch:messages,host:slots", "switch,host:slots"), ("auto:auto", "auto"), ("4:auto", "4")]
        {
            assert_eq!(long.parse().map(|choice: HierarchyChoice| choice.to_string()).as_deref(), Ok(short));
        }
        for text in [
            "",
            "off:messages",
            "host:slots,cache",
            "host:auto,cache",
            "host:slots,cache:slots",
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
        let means =
            |text, nodes: [u32; 4]| Subgroups::new(choice(text), &nodes.map(RankLocation::from)).map(|of| of.innermost);
        assert_eq!(means("2:slots", [0, 0, 1, 1]), Some(GroupMeans::Slots));
        assert_eq!(means("2:slots", [0, 0, 0, 1]), Some(GroupMeans::Messages), "a group has ranks of two nodes");
        assert_eq!(means("2:messages", [0, 0, 1, 1]), Some(GroupMeans::Messages));
        assert_eq!(means("2", [0, 0, 1, 1]), Some(GroupMeans::Auto));
        assert_eq!(means("2", [0, 0, 0, 1]), Some(GroupMeans::Messages));
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
    }
}
