//! Alltoall by remote writes (Mamidala 2008, §6.1 and §8.1), as the user chooses it by name.

use core::fmt;

use unisono_core::collective::{CollectiveKind, CollectiveSpec};
use unisono_core::schedule::Unsupported;

use super::{OverrideError, store};

/// All blocks by datagrams, and some by reliable connections of the adapter.
const EMULATED: &str = "rdma";
const HYBRID: &str = "hybrid";
/// Steps by connections: the default, as many as a process has by default, and most.
const STEPS: u16 = 64;
const STEPS_MAX: u32 = 256;
/// Bytes of the longest block: a quarter of what the lengths of writes count.
const BYTES_MAX: usize = 1 << 30;

/// The names of a collective's algorithms over remote writes.
pub(super) const fn names(kind: CollectiveKind) -> &'static [&'static str] {
    match kind {
        CollectiveKind::Alltoall => &[EMULATED, HYBRID],
        _ => &[],
    }
}

/// The name of such an alltoall, of which the adapter executes this number of steps.
pub const fn name(native_steps: u16) -> &'static str {
    if native_steps == 0 { EMULATED } else { HYBRID }
}

/// The user's choice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct RdmaOverride {
    /// Number of steps that the adapter executes.
    pub(super) native_steps: u16,
}

impl RdmaOverride {
    /// Parses the options of one of the [`names`].
    pub(super) fn new(name: &str, options: Option<&str>) -> Result<Self, OverrideError> {
        if name == EMULATED {
            return match options {
                None => Ok(Self { native_steps: 0 }),
                Some(given) => Err(OverrideError::NoOption { algorithm: EMULATED, given: given.to_owned() }),
            };
        }
        let mut steps = None;
        for option in options.into_iter().flat_map(|options| options.split(',')) {
            match option.split_once('=') {
                Some(("k", value)) => store(&mut steps, "k", value, 1, STEPS_MAX)?,
                _ => return Err(OverrideError::HybridOption { given: option.to_owned() }),
            }
        }
        Ok(Self { native_steps: steps.and_then(|steps| u16::try_from(steps).ok()).unwrap_or(STEPS) })
    }

    /// Whether remote writes can execute the call. The same on all ranks. In place they cannot: blocks would be
    /// overwritten before they are sent.
    ///
    /// # Errors
    /// Why they cannot.
    pub(super) const fn check(self, plan: &CollectiveSpec, varying: bool) -> Result<(), Unsupported> {
        if varying {
            return Err(Unsupported::Varying);
        }
        if plan.in_place {
            return Err(Unsupported::InPlace);
        }
        if plan.size < 2 || plan.bytes == 0 || plan.bytes > BYTES_MAX {
            return Err(Unsupported::TooLong);
        }
        Ok(())
    }
}

impl fmt::Display for RdmaOverride {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.native_steps {
            0 => to.write_str(EMULATED),
            steps => write!(to, "{HYBRID}:k={steps}"),
        }
    }
}
