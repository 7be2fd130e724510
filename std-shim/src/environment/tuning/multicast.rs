//! Broadcast by reliable multicast (`unisono_core::multicast`), as the user or the model chooses it.

use unisono_core::collective::{CollectiveKind, CollectiveSpec};
use unisono_core::schedule::Unsupported;

use super::OverrideError;

/// Its name.
pub(super) const NAME: &str = "multicast";
/// Bytes of the longest message: a quarter of what its lengths on the wire count.
const BYTES_MAX: usize = 1 << 30;

/// The most members of a group.
pub(crate) const MEMBERS_MAX: usize = 64;

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
