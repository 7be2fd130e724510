//! The rank of a process in its job.

use core::fmt;
use serde::{Deserialize, Serialize};
use unisono_core::ids::PeerId;

/// The number of a process in its job: 0 to size − 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
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

/// Largest number of ranks of a job.
pub const SIZE_MAX: u32 = 1 << 24;

/// The rank of this process and the size of its job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobPosition {
    /// The rank, below `size`.
    pub rank: Rank,
    /// Ranks of the job, 1 to [`SIZE_MAX`].
    pub size: u32,
}

impl JobPosition {
    /// `None` unless `rank < size ≤ SIZE_MAX`.
    pub const fn new(rank: Rank, size: u32) -> Option<Self> {
        if rank.0 < size && size <= SIZE_MAX { Some(Self { rank, size }) } else { None }
    }
}
