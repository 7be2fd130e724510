//! Trees for barrier and allreduce (`unisono_core::collective::token_tree`), as the user chooses them by name.

use core::fmt;

use unisono_core::collective::token_tree::Position;
use unisono_core::collective::token_tree::header::TreeShape;
use unisono_core::collective::{CollectiveKind, CollectiveSpec, Order};
use unisono_core::schedule::Unsupported;

use super::{OverrideError, store};

/// The tree whose root moves to the rank that enters last, and the one whose root does not move.
const TOKEN: &str = "token-tree";
const COMBINING: &str = "combining-tree";

/// Most units of a root's token: releases of a call.
pub(crate) const UNITS_MAX: usize = 4;
/// Bytes of the longest vector: two of them fit in a datagram of the shortest MTU, after both headers.
pub(crate) const TREE_BYTES_MAX: usize = 240;

/// Defaults: the degree of the source, and two late ranks.
const DEGREE: u8 = 8;
const UNITS: u8 = 2;

/// The names of a collective's trees.
pub(super) const fn names(kind: CollectiveKind) -> &'static [&'static str] {
    match kind {
        CollectiveKind::Barrier | CollectiveKind::Allreduce => &[TOKEN, COMBINING],
        _ => &[],
    }
}

/// The name of a tree of this shape.
///
/// ```
/// use unisono_core::collective::token_tree::header::TreeShape;
///
/// assert_eq!(unisono::environment::tuning::tree_name(TreeShape { degree: 2, units: 0, ..TreeShape::default() }), "combining-tree");
/// ```
pub const fn name(shape: TreeShape) -> &'static str {
    if shape.units == 0 { COMBINING } else { TOKEN }
}

/// The user's choice of a tree. Numbers that are missing have their defaults.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct TreeOverride {
    has_token: bool,
    degree: Option<u8>,
    units: Option<u8>,
    /// Whether releases go by multicast.
    is_multicast: Option<bool>,
}

/// The values of `release=`.
const BY_TREE: &str = "tree";
const BY_MULTICAST: &str = "multicast";

impl TreeOverride {
    /// Parses the options of one of the [`names`].
    pub(super) fn new(name: &str, options: Option<&str>) -> Result<Self, OverrideError> {
        let (has_token, mut degree, mut units, mut is_multicast) = (name == TOKEN, None, None, None);
        for option in options.into_iter().flat_map(|options| options.split(',')) {
            match option.split_once('=') {
                Some(("degree", value)) => store(&mut degree, "degree", value, 1, Position::MAX_DEGREE)?,
                Some(("units", value)) if has_token => store(&mut units, "units", value, 1, UNITS_MAX as u32)?,
                Some(("release", BY_TREE)) => is_multicast = Some(false),
                Some(("release", BY_MULTICAST)) => is_multicast = Some(true),
                _ => return Err(OverrideError::TreeOption { given: option.to_owned() }),
            }
        }
        let narrow = |number: Option<u32>| number.and_then(|number| u8::try_from(number).ok());
        Ok(Self { has_token, degree: narrow(degree), units: narrow(units), is_multicast })
    }

    /// Whether releases go by multicast, where there are groups.
    pub(super) fn uses_multicast(self) -> bool {
        self.is_multicast == Some(true)
    }

    /// The tree of a call. The same on all ranks.
    ///
    /// # Errors
    /// A tree cannot execute the call.
    pub(super) fn shape(self, plan: &CollectiveSpec, varying: bool) -> Result<TreeShape, Unsupported> {
        let units = if self.has_token { self.units.unwrap_or(UNITS) } else { 0 };
        match plan.order {
            _ if varying => Err(Unsupported::Varying),
            Order::Fixed => Err(Unsupported::Brackets),
            _ if plan.size < 2 || plan.bytes > TREE_BYTES_MAX => Err(Unsupported::TooLong),
            Order::Any | Order::Rank => {
                let (degree, is_multicast) = (self.degree.unwrap_or(DEGREE), self.uses_multicast());
                Ok(TreeShape { degree, units, is_multicast, is_of_leaders: false })
            }
        }
    }
}

impl fmt::Display for TreeOverride {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(if self.has_token { TOKEN } else { COMBINING })?;
        let options = [("degree", self.degree), ("units", self.units)];
        let given = options.into_iter().filter_map(|(name, number)| Some(format!("{name}={}", number?)));
        let release = self.is_multicast.map(|is| format!("release={}", if is { BY_MULTICAST } else { BY_TREE }));
        let mut all = given.chain(release).enumerate();
        all.try_for_each(|(n, option)| write!(to, "{}{option}", if n == 0 { ':' } else { ',' }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Carrier, Override, SelectedBy, Tuning};
    use super::*;
    use unisono_core::ids::Rank;

    const BARRIER: CollectiveKind = CollectiveKind::Barrier;

    fn plan(collective: CollectiveKind, bytes: usize, order: Order) -> CollectiveSpec {
        let (rank, root, size, grain, in_place, reduction_id) = (Rank(0), Rank(0), 5, 8, false, 0);
        CollectiveSpec { collective, rank, size, root, bytes, grain, order, in_place, reduction_id }
    }

    #[test]
    fn a_tree_is_printed_as_it_is_parsed() {
        for text in [
            "token-tree",
            "token-tree:degree=3",
            "token-tree:degree=28,units=4,release=multicast",
            "combining-tree:degree=1",
            "combining-tree:release=tree",
        ] {
            assert_eq!(Override::new(BARRIER, text).expect("good").to_string(), text);
        }
    }

    #[test]
    fn invalid_options_are_refused_with_the_valid_ones() {
        let refused = |text| Override::new(BARRIER, text).expect_err("must be refused").to_string();
        for text in ["token-tree:k=2", "token-tree:", "combining-tree:units=1", "token-tree:release=udp"] {
            assert!(refused(text).starts_with("the options are degree=, release=tree or multicast, and"), "{text}");
        }
        assert_eq!(refused("token-tree:degree=29"), "degree= must be a number from 1 to 28");
        assert_eq!(refused("token-tree:units=5"), "units= must be a number from 1 to 4");
        let broadcast = Override::new(CollectiveKind::Broadcast, "token-tree");
        assert_eq!(broadcast.expect_err("no tree").to_string(), "expected one of knomial, bruck, ring, multicast");
    }

    #[test]
    fn releases_go_by_multicast_where_there_are_datagrams() {
        let mut tuning = Tuning::default();
        tuning.set(Override::new(BARRIER, "token-tree:release=multicast").expect("good"));
        let is_multicast = |carrier| {
            let (shape, _) = tuning.tree(&plan(BARRIER, 0, Order::Any), false, carrier).expect("a tree");
            shape.is_multicast
        };
        assert!(is_multicast(Carrier::Udp) && !is_multicast(Carrier::Rings));
    }

    #[test]
    fn what_a_tree_cannot_execute_has_a_schedule() {
        let mut tuning = Tuning::default();
        tuning.set(Override::new(CollectiveKind::Allreduce, "token-tree:degree=2").expect("good"));
        let tree = |bytes, order| tuning.tree(&plan(CollectiveKind::Allreduce, bytes, order), false, Carrier::Udp);
        let shape = TreeShape { degree: 2, units: UNITS, ..TreeShape::default() };
        assert_eq!(tree(TREE_BYTES_MAX, Order::Rank), Some((shape, SelectedBy::Override)));
        assert_eq!((tree(TREE_BYTES_MAX + 8, Order::Any), tree(8, Order::Fixed)), (None, None));
        let long = plan(CollectiveKind::Allreduce, 4096, Order::Fixed);
        let decision = tuning.decide(&long, false, Carrier::Udp).expect("a schedule");
        assert_eq!(decision.override_error, Some(Unsupported::Brackets));
        assert_eq!(tuning.tree(&plan(BARRIER, 0, Order::Any), false, Carrier::Udp), None);
    }
}
