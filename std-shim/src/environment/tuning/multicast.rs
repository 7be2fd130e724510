//! Broadcast by reliable multicast (`unisono_core::multicast`), as the user or the model chooses it.

use unisono_core::collective::{CollectiveKind, CollectiveSpec};
use unisono_core::schedule::Unsupported;

use super::OverrideError;
use crate::environment::RailsChoice;

/// Its name.
pub(crate) const NAME: &str = "multicast";
/// Bytes of the longest message: a quarter of what its lengths on the wire count.
const BYTES_MAX: usize = 1 << 30;

/// The most members of a group.
pub(crate) const MEMBERS_MAX: usize = 64;

/// Which broadcasts of a job may go by multicast. Equal on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MulticastUse {
    /// None: the devices have no groups.
    Unavailable,
    /// Those for which an option or a table names it: it uses one rail of several.
    OnRequest,
    /// Those for which it is selected, too.
    Automatic,
}

impl MulticastUse {
    /// That of a job whose devices have groups, or not, and that starts with these rails. Those that are added later do
    /// not count: ranks add them at different times.
    ///
    /// ```
    /// use unisono::environment::{RailsChoice, tuning::MulticastUse};
    ///
    /// assert_eq!(MulticastUse::of(true, RailsChoice::Count(2)), MulticastUse::OnRequest);
    /// ```
    pub fn of(has_groups: bool, rails: RailsChoice) -> Self {
        match (has_groups, rails.count()) {
            (false, _) => Self::Unavailable,
            (true, 0..=1) => Self::Automatic,
            (true, _) => Self::OnRequest,
        }
    }
}

/// The names of a collective's algorithms over multicast.
pub(super) const fn names(kind: CollectiveKind) -> &'static [&'static str] {
    match kind {
        CollectiveKind::Broadcast => &[NAME],
        _ => &[],
    }
}

/// Refuses options: there are none.
pub(super) fn parse_options(options: Option<&str>) -> Result<(), OverrideError> {
    options.map_or(Ok(()), |options| Err(OverrideError::NoOption { algorithm: NAME, given: options.to_owned() }))
}

/// Whether multicast can execute the call. The same on all ranks.
///
/// # Errors
/// Why it cannot.
pub(super) const fn check(plan: &CollectiveSpec, varying: bool) -> Result<(), Unsupported> {
    match (varying, plan.size < 2 || plan.bytes > BYTES_MAX) {
        (true, _) => Err(Unsupported::Varying),
        (_, true) => Err(Unsupported::TooLong),
        (false, false) => Ok(()),
    }
}
