//! The subgroups over which collectives are composed: by node, or simulated.

use alloc::sync::Arc;
use core::fmt;
use core::str::FromStr;

use unisono_core::collective::CollectiveSpec;
use unisono_core::ids::Rank;
use unisono_core::schedule::Hierarchy;

use super::tuning::table::digest;

/// The user's choice of subgroups. It must be equal on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum HierarchyChoice {
    /// Flat schedules only.
    Off,
    /// The ranks of each node, for collectives and sizes for which that pays ([`Hierarchy::pays`]), unless ranks share
    /// processors, or the user or a table selects the algorithm.
    #[default]
    Auto,
    /// The ranks of each node.
    Host,
    /// Simulated groups of consecutive ranks.
    Simulated {
        /// Ranks of a group.
        ranks: u32,
        /// Ranks of an inner group, at most `ranks`.
        inner: Option<u32>,
    },
}

/// A text is no [`HierarchyChoice`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected off, auto, host, N or N,M: groups of N consecutive ranks, in inner groups of M, 1 ≤ M ≤ N")]
pub struct HierarchyError;

impl FromStr for HierarchyChoice {
    type Err = HierarchyError;

    fn from_str(text: &str) -> Result<Self, HierarchyError> {
        let number = |text: &str| {
            let plain = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|number| plain && *number != 0).ok_or(HierarchyError)
        };
        Ok(match (text, text.split_once(',')) {
            ("off", _) => Self::Off,
            ("auto", _) => Self::Auto,
            ("host", _) => Self::Host,
            (_, None) => Self::Simulated { ranks: number(text)?, inner: None },
            (_, Some((ranks, inner))) => {
                let (ranks, inner) = (number(ranks)?, number(inner)?);
                if inner > ranks {
                    return Err(HierarchyError);
                }
                Self::Simulated { ranks, inner: Some(inner) }
            }
        })
    }
}

impl fmt::Display for HierarchyChoice {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => to.write_str("off"),
            Self::Auto => to.write_str("auto"),
            Self::Host => to.write_str("host"),
            Self::Simulated { ranks, inner: None } => write!(to, "{ranks}"),
            Self::Simulated { ranks, inner: Some(inner) } => write!(to, "{ranks},{inner}"),
        }
    }
}

/// The subgroups of a communicator, equal on all of its ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subgroups {
    hierarchy: Hierarchy<Arc<[u32]>>,
    is_auto: bool,
    digest: u32,
}

impl Subgroups {
    /// The subgroups of a communicator whose ranks are on these nodes. `None`: its collectives are flat.
    ///
    /// ```
    /// use unisono::environment::{HierarchyChoice, Subgroups};
    ///
    /// // Four ranks on two nodes.
    /// assert!(Subgroups::new(HierarchyChoice::default(), &[0, 0, 1, 1]).is_some());
    /// ```
    pub fn new(choice: HierarchyChoice, nodes: &[u32]) -> Option<Self> {
        let (inner, outer) = match choice {
            HierarchyChoice::Off => return None,
            HierarchyChoice::Auto | HierarchyChoice::Host => (nodes.to_vec(), Vec::new()),
            HierarchyChoice::Simulated { ranks, inner } => {
                let groups: Vec<u32> = (0..).zip(nodes).map(|(rank, _): (u32, _)| rank / ranks.max(1)).collect();
                match inner {
                    None => (groups, Vec::new()),
                    Some(inner) => {
                        let within = (0..).zip(nodes).map(|(rank, _): (u32, _)| rank % ranks.max(1) / inner.max(1));
                        (within.collect(), groups)
                    }
                }
            }
        };
        let table = vec![0; Hierarchy::<Vec<u32>>::table_len(nodes.len())];
        let hierarchy = Hierarchy::new(&inner, &outer, table)?.map(Arc::from);
        if !hierarchy.is_nested() && !matches!(choice, HierarchyChoice::Simulated { .. }) {
            return None;
        }
        let digest = digest(&format_args!("{inner:?} {outer:?}"), u64::from(u32::MAX)) as u32;
        Some(Self { hierarchy, is_auto: choice == HierarchyChoice::Auto, digest })
    }

    /// The nested groups.
    ///
    /// ```
    /// use unisono::environment::{HierarchyChoice, Subgroups};
    ///
    /// let groups = Subgroups::new(HierarchyChoice::default(), &[0, 0, 1, 1]).expect("two nodes");
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
    /// let digest = |nodes: &[u32]| Subgroups::new(HierarchyChoice::default(), nodes).map(|groups| groups.digest());
    /// assert_eq!(digest(&[0, 0, 1, 1]), digest(&[0, 0, 1, 1]));
    /// ```
    pub const fn digest(&self) -> u32 {
        self.digest
    }

    /// Whether they are used only where that pays.
    ///
    /// ```
    /// use unisono::environment::{HierarchyChoice, Subgroups};
    ///
    /// let groups = Subgroups::new(HierarchyChoice::default(), &[0, 0, 1, 1]).expect("two nodes");
    /// assert!(groups.is_auto());
    /// ```
    pub const fn is_auto(&self) -> bool {
        self.is_auto
    }

    /// The leaders of the last level, with this root.
    ///
    /// ```
    /// use unisono::environment::{HierarchyChoice, Subgroups};
    ///
    /// let groups = Subgroups::new(HierarchyChoice::default(), &[0, 0, 1, 1]).expect("two nodes");
    /// assert_eq!(groups.leaders(unisono_core::ids::Rank(0)).count(), 2);
    /// ```
    pub fn leaders(&self, root: Rank) -> impl Iterator<Item = Rank> {
        self.hierarchy.top_leaders(root)
    }

    /// Whether a collective may be composed over them.
    ///
    /// ```
    /// # use unisono_core::collective::{CollectiveKind, CollectiveSpec, Order};
    /// # use unisono_core::ids::Rank;
    /// # let spec = CollectiveSpec {
    /// #     collective: CollectiveKind::Broadcast, rank: Rank(0), size: 4, root: Rank(0), bytes: 8, grain: 1, order: Order::Any,
    /// #     in_place: false, reduction_id: 0,
    /// # };
    /// use unisono::environment::{HierarchyChoice, Subgroups};
    ///
    /// let nodes = Subgroups::new(HierarchyChoice::Host, &[0, 0, 1, 1]).expect("two nodes");
    /// assert!(nodes.may_compose(&spec));
    /// ```
    pub fn may_compose(&self, plan: &CollectiveSpec) -> bool {
        !self.is_auto || self.hierarchy.pays(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_of_subgroups_is_read_as_it_is_written() {
        for text in ["off", "auto", "host", "3", "8,2", "4,4"] {
            assert_eq!(text.parse().map(|choice: HierarchyChoice| choice.to_string()).as_deref(), Ok(text));
        }
        for text in ["", "0", "-1", "+2", "2,", ",2", "2,3", "4,0", "4,2,1", "node", "5000000000"] {
            assert_eq!(text.parse::<HierarchyChoice>(), Err(HierarchyError), "{text}");
        }
    }

    #[test]
    fn subgroups_are_the_ranks_of_a_node_if_there_are_several_nodes_and_one_has_several_ranks() {
        let of = |choice, nodes: &[u32]| Subgroups::new(choice, nodes).map(|groups| groups.hierarchy.inner_groups());
        for choice in [HierarchyChoice::Auto, HierarchyChoice::Host] {
            assert_eq!(of(choice, &[0, 0, 7, 7, 3]), Some(3));
            assert_eq!(of(choice, &[0, 1, 2]), None);
            assert_eq!(of(choice, &[4, 4, 4]), None);
        }
        assert_eq!(of(HierarchyChoice::Off, &[0, 0, 1]), None);
        assert_eq!(of(HierarchyChoice::Simulated { ranks: 2, inner: None }, &[0; 5]), Some(3));
        let two = Subgroups::new(HierarchyChoice::Simulated { ranks: 4, inner: Some(3) }, &[0; 9]).expect("groups");
        assert_eq!((two.hierarchy.levels(), two.hierarchy.inner_groups()), (3, 5));
    }
}
