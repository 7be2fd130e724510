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

impl core::error::Error for WindowRoundError {}

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
                // Its window has ended, since it has left.
                | WindowError::Revoked(rank)
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

    /// Writes and reads the own slot of another rank under its lock, counts at all ranks, and reads what another rank has
    /// written here.
    ///
    /// # Errors
    /// [`WindowRoundError`].
    pub fn round(&self, number: u32) -> Result<(), WindowRoundError> {
        let (distance, target) = (self.distance(number), self.target(number));
        let bytes: Vec<u8> = self.pattern(number, self.rank).collect();
        self.window.lock(LockKind::Exclusive, target)?;
        self.window.put(&bytes, target, self.slot(self.rank))?;
        self.window.unlock(LockKind::Exclusive, target)?;
        self.read_back(number)?;
        for rank in (0..self.size).map(Rank) {
            self.window.accumulate(&[1_u64], rank, 0, SystemOperation::sum())?;
        }
        self.window.fence()?;
        let origin = Rank((self.rank.0 + 2 * self.size - distance) % self.size);
        let mut found = vec![0; self.bytes];
        self.window.read(self.slot(origin), &mut found)?;
        if !self.pattern(number, origin).eq(found) {
            return Err(WindowRoundError::Wrong("read"));
        }
        // All ranks have counted this round, and none the next one.
        let count = self.window.fetch_and_op(0_u64, target, 0, SystemOperation::sum())?;
        if count != u64::from(self.size) * u64::from(number + 1) {
            return Err(WindowRoundError::Wrong("fetch_and_op"));
        }
        self.window.fence()?;
        Ok(())
    }

    /// Reads what this rank wrote in the last round, which has this number.
    ///
    /// # Errors
    /// [`WindowRoundError`].
    pub fn read_back(&self, number: u32) -> Result<(), WindowRoundError> {
        let mut found = vec![0; self.bytes];
        self.window.get(&mut found, self.target(number), self.slot(self.rank))?;
        if self.pattern(number, self.rank).eq(found) { Ok(()) } else { Err(WindowRoundError::Wrong("get")) }
    }

    const fn distance(&self, number: u32) -> u32 {
        1 + number % self.size
    }

    const fn target(&self, number: u32) -> Rank {
        Rank((self.rank.0 + self.distance(number)) % self.size)
    }

    /// Where a rank writes, in the window of any other.
    const fn slot(&self, rank: Rank) -> usize {
        COUNTER + self.bytes * rank.0 as usize
    }

    /// What a rank writes in a round.
    fn pattern(&self, number: u32, rank: Rank) -> impl Iterator<Item = u8> {
        (0..self.bytes).map(move |i| (i as u32 ^ number ^ rank.0) as u8)
    }
}
