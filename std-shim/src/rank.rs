//! The rank of a process in its job.

use core::fmt;
use unisono_core::device::PeerId;

/// The number of a process in its job: 0 to size − 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Rank(pub u32);

impl From<Rank> for PeerId {
    #[inline]
    fn from(rank: Rank) -> Self {
        Self(rank.0)
    }
}

impl From<PeerId> for Rank {
    #[inline]
    fn from(peer: PeerId) -> Self {
        Self(peer.0)
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}
