//! The user's override of the algorithm of a collective: `bruck:k=2,segments=4`.

use core::fmt;

use unisono_core::collective::CollectiveKind;
use unisono_core::schedule::{Algorithm, Constraints, Plan, algorithms};

use super::rdma::RdmaOverride;
use super::tree::TreeOverride;
use super::{multicast, rdma, tree};
use crate::environment::{GroupMeans, HierarchyChoice, SubgroupChoice, SubgroupRule};

/// Largest number of segments that an override may request.
pub const SEGMENTS_MAX: u32 = 4096;

/// The user's choice of the algorithm of a collective.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Override {
    pub(super) kind: CollectiveKind,
    /// The means within the ranks of each host over which a schedule is composed, and then it is that of the hosts' leaders.
    /// `None`: it is flat.
    pub(super) hosts: Option<GroupMeans>,
    pub(super) wanted: Wanted,
}

/// How a collective is executed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Wanted {
    /// By a schedule.
    Schedule(Constraints),
    /// By a tree whose root moves, or by one whose root does not.
    Tree(TreeOverride),
    /// By multicast where the communicator's group is usable, else by a schedule.
    Multicast,
    /// By remote writes.
    Rdma(RdmaOverride),
}

/// The names of the algorithms of a collective.
///
/// ```
/// use unisono_core::collective::CollectiveKind;
///
/// assert!(unisono::environment::tuning::algorithm_names(CollectiveKind::Allreduce).contains(&"ring"));
/// ```
pub fn algorithm_names(kind: CollectiveKind) -> Vec<&'static str> {
    let others = tree::names(kind).iter().chain(multicast::names(kind)).chain(rdma::names(kind)).copied();
    algorithms(kind).iter().map(|algorithm| algorithm.name()).chain(others).collect()
}

impl Override {
    /// Parses `algorithm`, or `algorithm:option=number,…`, of all ranks, or after `host+`, `host:slots+` or `host:messages+`
    /// of one leader of each host's ranks, which exchange their parts by these means ([`GroupMeans`]). A schedule has the options `k` (ports), `radix` (of a k-nomial tree)
    /// and `segments`; of `token-tree` and `combining-tree`, which barrier and allreduce have besides, `degree` and
    /// `units`. `multicast`, which broadcast has besides, and `rdma`, which alltoall has, take none, `hybrid` takes `k`,
    /// the number of steps by connections. Options that are missing are selected automatically.
    ///
    /// ```
    /// use unisono::environment::Override;
    /// use unisono_core::collective::CollectiveKind;
    ///
    /// assert!(Override::new(CollectiveKind::Broadcast, "knomial:radix=4").is_ok());
    /// assert!(Override::new(CollectiveKind::Broadcast, "host:messages+ring").is_ok());
    /// assert!(Override::new(CollectiveKind::Broadcast, "pigeons").is_err());
    /// ```
    ///
    /// # Errors
    /// [`OverrideError`], with the valid values.
    pub fn new(verb: CollectiveKind, text: &str) -> Result<Self, OverrideError> {
        // A number with a sign is no algorithm.
        if let Some((groups, leaders)) = text.split_once('+').filter(|(groups, _)| !groups.contains('=')) {
            let hosts = parse_hosts(groups).ok_or_else(|| OverrideError::Groups { given: groups.to_owned() })?;
            return match Self::new(verb, leaders)? {
                flat @ Self { hosts: None, wanted: Wanted::Schedule(_), .. } => Ok(Self { hosts: Some(hosts), ..flat }),
                _ => Err(OverrideError::Composed { given: leaders.to_owned() }),
            };
        }
        let (name, options) = text.split_once(':').map_or((text, None), |(name, options)| (name, Some(options)));
        let flat = |wanted| Self { kind: verb, hosts: None, wanted };
        if tree::names(verb).contains(&name) {
            return Ok(flat(Wanted::Tree(TreeOverride::new(name, options)?)));
        }
        if multicast::names(verb).contains(&name) {
            return multicast::parse_options(options).map(|()| flat(Wanted::Multicast));
        }
        if rdma::names(verb).contains(&name) {
            return Ok(flat(Wanted::Rdma(RdmaOverride::new(name, options)?)));
        }
        let algorithm = algorithms(verb).iter().find(|algorithm| algorithm.name() == name);
        let algorithm = *algorithm.ok_or_else(|| OverrideError::Algorithm { allowed: algorithm_names(verb) })?;
        let (mut ports, mut radix, mut segments) = (None, None, None);
        for option in options.into_iter().flat_map(|options| options.split(',')) {
            let unknown = || OverrideError::Option { given: option.to_owned() };
            let (name, value) = option.split_once('=').ok_or_else(unknown)?;
            let most_ports = u32::from(Plan::PORTS);
            match name {
                "k" => store(&mut ports, "k", value, 1, most_ports)?,
                "radix" if algorithm != Algorithm::Knomial => return Err(OverrideError::Radix),
                "radix" => store(&mut radix, "radix", value, 2, most_ports + 1)?,
                "segments" => store(&mut segments, "segments", value, 1, SEGMENTS_MAX)?,
                _ => return Err(unknown()),
            }
        }
        let narrow = |number: Option<u32>| number.and_then(|number| u8::try_from(number).ok());
        let given = Constraints { algorithm, ports: narrow(ports), radix: narrow(radix), segments };
        Ok(flat(Wanted::Schedule(given)))
    }

    /// The means within the ranks of each host, if it is composed over them.
    ///
    /// ```
    /// use unisono::environment::{GroupMeans, Override};
    /// use unisono_core::collective::CollectiveKind;
    ///
    /// assert_eq!(Override::new(CollectiveKind::Reduce, "host:slots+ring")?.hosts(), Some(GroupMeans::Slots));
    /// assert_eq!(Override::new(CollectiveKind::Reduce, "ring")?.hosts(), None);
    /// # Ok::<(), unisono::environment::OverrideError>(())
    /// ```
    pub const fn hosts(&self) -> Option<GroupMeans> {
        self.hosts
    }
}

/// The means in `host` or `host:means`.
fn parse_hosts(text: &str) -> Option<GroupMeans> {
    let choice: HierarchyChoice = text.parse().ok()?;
    let SubgroupChoice::Units(rules) = choice.groups else { return None };
    rules.iter().eq([SubgroupRule::Host]).then_some(choice.innermost())
}

impl fmt::Display for Override {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(means) = self.hosts {
            to.write_str("host")?;
            if means == GroupMeans::default() { Ok(()) } else { write!(to, ":{means}") }?;
            to.write_str("+")?;
        }
        let Constraints { algorithm, ports, radix, segments } = match self.wanted {
            Wanted::Schedule(constraints) => constraints,
            Wanted::Tree(tree) => return tree.fmt(to),
            Wanted::Multicast => return to.write_str(multicast::NAME),
            Wanted::Rdma(rdma) => return rdma.fmt(to),
        };
        to.write_str(algorithm.name())?;
        let options = [("k", ports.map(u32::from)), ("radix", radix.map(u32::from)), ("segments", segments)];
        let said = options.into_iter().filter_map(|(name, number)| Some((name, number?)));
        said.enumerate()
            .try_for_each(|(n, (name, number))| write!(to, "{}{name}={number}", if n == 0 { ':' } else { ',' }))
    }
}

/// Why a text is not a valid algorithm choice.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OverrideError {
    /// The collective has no such algorithm.
    #[error("expected one of {}", allowed.join(", "))]
    Algorithm {
        /// The algorithms that it has.
        allowed: Vec<&'static str>,
    },
    /// There are no such groups.
    #[error("expected host, host:slots or host:messages before +, not {given:?}")]
    Groups {
        /// The given text.
        given: String,
    },
    /// The leaders of hosts cannot use it.
    #[error("leaders of hosts use an algorithm that has a schedule, not {given:?}")]
    Composed {
        /// The given text.
        given: String,
    },
    /// There is no such option.
    #[error("the options are k=, radix= and segments=, separated by commas, not {given:?}")]
    Option {
        /// The given text.
        given: String,
    },
    /// There is no such option of a tree.
    #[error(
        "the options are degree=, release=tree or multicast, and, of token-tree, units=, separated by commas, not {given:?}"
    )]
    TreeOption {
        /// The given text.
        given: String,
    },
    /// The algorithm has no options.
    #[error("{algorithm} has no options, not {given:?}")]
    NoOption {
        /// The algorithm.
        algorithm: &'static str,
        /// The given text.
        given: String,
    },
    /// There is no such option of a hybrid alltoall.
    #[error("the option is k=, the number of steps over reliable connections, not {given:?}")]
    HybridOption {
        /// The given text.
        given: String,
    },
    /// The value is not a number, or is out of range.
    #[error("{name}= must be a number from {least} to {most}")]
    Range {
        /// The option.
        name: &'static str,
        /// Its smallest value.
        least: u32,
        /// Its largest value.
        most: u32,
    },
    /// An option is given twice.
    #[error("{name}= is given twice")]
    Duplicate {
        /// The option.
        name: &'static str,
    },
    /// A radix is given for an algorithm that does not use one.
    #[error("radix= applies to knomial only: the radix of other algorithms is k + 1")]
    Radix,
}

pub(super) fn store(
    to: &mut Option<u32>,
    name: &'static str,
    value: &str,
    least: u32,
    most: u32,
) -> Result<(), OverrideError> {
    let plain = value.bytes().all(|byte| byte.is_ascii_digit());
    let number = value.parse().ok().filter(|number| plain && (least..=most).contains(number));
    let number = number.ok_or(OverrideError::Range { name, least, most })?;
    match to.replace(number) {
        None => Ok(()),
        Some(_) => Err(OverrideError::Duplicate { name }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(verb: CollectiveKind, text: &str) -> String {
        Override::new(verb, text).expect_err("must be refused").to_string()
    }

    #[test]
    fn invalid_overrides_are_refused_with_the_valid_ones() {
        let barrier = "expected one of dissemination, knomial, doubling, standard-exchange, token-tree, combining-tree";
        assert_eq!(refused(CollectiveKind::Barrier, "bruck"), barrier);
        assert_eq!(refused(CollectiveKind::Barrier, ""), barrier);
        assert_eq!(refused(CollectiveKind::Scan, "Ring"), "expected one of dissemination, ring");
        for text in ["bruck:", "bruck:k", "bruck:ports=2", "bruck:k=2,"] {
            assert!(
                refused(CollectiveKind::Allgather, text).starts_with("the options are k=, radix= and segments="),
                "{text}"
            );
        }
        for text in ["bruck:k=0", "bruck:k=17", "bruck:k=", "bruck:k=+1", "bruck:k=-1", "bruck:k=99999999999"] {
            assert_eq!(refused(CollectiveKind::Allgather, text), "k= must be a number from 1 to 16", "{text}");
        }
        assert_eq!(refused(CollectiveKind::Gather, "knomial:radix=1"), "radix= must be a number from 2 to 17");
        assert_eq!(refused(CollectiveKind::Gather, "knomial:segments=0"), "segments= must be a number from 1 to 4096");
        assert_eq!(refused(CollectiveKind::Gather, "knomial:k=2,k=2"), "k= is given twice");
        let radix = "radix= applies to knomial only: the radix of other algorithms is k + 1";
        assert_eq!(refused(CollectiveKind::Gather, "direct:radix=3"), radix);
    }

    #[test]
    fn only_schedules_are_composed_over_hosts() {
        for text in ["host+ring", "host:slots+ring:k=1", "host:messages+knomial:k=2,segments=4"] {
            let wanted = Override::new(CollectiveKind::Allreduce, text).expect("good");
            assert_eq!((wanted.to_string().as_str(), wanted.hosts().is_some()), (text, true));
        }
        let auto = Override::new(CollectiveKind::Allreduce, "host:auto+ring").expect("good");
        assert_eq!((auto.to_string().as_str(), auto.hosts()), ("host+ring", Some(GroupMeans::Auto)));
        for groups in ["", "socket", "host,socket", "off", "auto", "4", "host:", "host:rings", " host"] {
            let said = format!("expected host, host:slots or host:messages before +, not {groups:?}");
            assert_eq!(refused(CollectiveKind::Allreduce, &format!("{groups}+ring")), said);
        }
        for (kind, leaders) in [
            (CollectiveKind::Allreduce, "token-tree"),
            (CollectiveKind::Alltoall, "rdma"),
            (CollectiveKind::Broadcast, "multicast"),
            (CollectiveKind::Broadcast, "host+ring"),
        ] {
            let said = format!("leaders of hosts use an algorithm that has a schedule, not {leaders:?}");
            assert_eq!(refused(kind, &format!("host+{leaders}")), said);
        }
        assert!(refused(CollectiveKind::Scan, "host+bruck").starts_with("expected one of dissemination, ring"));
    }
}
