//! The handle of a request that has started.

use unisono_core::span::Region;

use crate::world::watchdog::BlockedOn;
use unisono_bootstrap::Rank;

/// A request that owns a user buffer.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct RequestHandle {
    pub(in crate::world) request: u32,
    pub(in crate::world) region: Region,
    /// The peer; `None`: any.
    pub(in crate::world) peer: Option<Rank>,
    /// What a thread that waits for this request is blocked on.
    pub(in crate::world) blocked_on: BlockedOn,
}
