//! Rounds of one-sided operations with known values, so that every rank can check what it gets.

use core::fmt;

use unisono::collective::{CollectiveError, SystemOperation};
use unisono::{Communicator, CreateError, Failure, LockKind, Rank, Window, WindowError};

/// Why a round failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowRoundError {
    /// An operation failed.
    Failed(WindowError),
    /// The operation of this name returned wrong values.
    Wrong(&'static str),
}

impl From<WindowError> for WindowRoundError {
    fn from(error: WindowError) -> Self {
        Self::Failed(error)
    }
}

impl fmt::Display for WindowRoundError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(to),
            Self::Wrong(operation) => write!(to, "wrong values of {operation}"),
        }
    }
}

impl WindowRoundError {
    /// The rank of the communicator that is gone.
    pub const fn missing(self) -> Option<Rank> {
        match self {
            Self::Failed(
                WindowError::Failed(Failure::PeerFailed(rank))
                | WindowError::Partial(rank)
                | WindowError::Unknown(rank)
                | WindowError::Collective(CollectiveError::Missing { rank, .. })
                | WindowError::Create(CreateError::Collective(CollectiveError::Missing { rank, .. })),
            ) => Some(rank),
            _ => None,
        }
    }
}

/// Bytes of a counter.
const COUNTER: usize = 8;

/// A window in whose memory each rank has a counter, common to all, and a slot of its own.
pub struct WindowRounds {
    window: Window,
    rank: Rank,
    size: u32,
    bytes: usize,
}

impl fmt::Debug for WindowRounds {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "WindowRounds({} bytes)", self.bytes)
    }
}

impl WindowRounds {
    /// Allocates the window, collectively; slots have `bytes` bytes.
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn new(on: &Communicator, bytes: usize) -> Result<Self, WindowError> {
        let window = on.allocate_window(COUNTER + bytes * on.size() as usize)?;
        Ok(Self { window, rank: on.rank(), size: on.size(), bytes })
    }

    /// Writes and reads the own slot of another rank under its lock, and counts at all ranks.
    ///
    /// # Errors
    /// [`WindowRoundError`].
    pub fn round(&self, number: u32) -> Result<(), WindowRoundError> {
        let target = Rank((self.rank.0 + 1 + number % self.size) % self.size);
        let slot = COUNTER + self.bytes * self.rank.0 as usize;
        let bytes: Vec<u8> = (0..self.bytes).map(|i| (i as u32 ^ number ^ self.rank.0) as u8).collect();
        self.window.lock(LockKind::Exclusive, target)?;
        self.window.put(&bytes, target, slot)?;
        self.window.unlock(LockKind::Exclusive, target)?;
        let mut found = vec![0; self.bytes];
        self.window.get(&mut found, target, slot)?;
        if found != bytes {
            return Err(WindowRoundError::Wrong("get"));
        }
        for rank in (0..self.size).map(Rank) {
            self.window.accumulate(&[1_u64], rank, 0, SystemOperation::sum())?;
        }
        self.window.fence()?;
        // All ranks have counted this round, and none the next one.
        let count = self.window.fetch_and_op(0_u64, target, 0, SystemOperation::sum())?;
        if count != u64::from(self.size) * u64::from(number + 1) {
            return Err(WindowRoundError::Wrong("fetch_and_op"));
        }
        self.window.fence()?;
        Ok(())
    }
}
