//! How the barriers of a node's collectives wait.

/// Barrier modes: spin, since every rank has a core; yield to others; or spin, once the placement of the words is
/// decided.
pub(super) const SPINNING: u32 = 0;
pub(super) const YIELDING: u32 = 1;
/// Barriers fail, like everything that is started.
pub(in crate::world) const CLOSED: u32 = 2;
pub(super) const UNPLACED: u32 = 3;
