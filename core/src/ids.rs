//! The identities of peers, operations, memory and messages: a newtype for each number space.

mod psn;

pub use psn::{Psn, first_psn};

/// A peer by its rank in the job: the index of its record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerId(pub u32);

/// A member of the group, by its number in it: 0 to size − 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Rank(pub u32);

/// A process's life: random, new at every start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Incarnation(pub u32);

/// An operation under way, by its record. Used again after its completion was polled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OperationId(pub u32);

/// A grant and the placement that uses it: its record at the receiver in the low 16 bits, and above them how often a grant
/// of that record was withdrawn, so that what was under way for a withdrawn one never counts towards the next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PlacementId(pub u32);

impl PlacementId {
    pub(crate) const fn new(record: u32, generation: u16) -> Self {
        Self((generation as u32) << 16 | record & 0xffff)
    }

    /// Its record: below the number of grants that can be out.
    pub const fn record(self) -> usize {
        (self.0 & 0xffff) as usize
    }
}

/// Fresh random bits, made by the rim: who knows them may place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Key(pub u64);

/// A receive that waits, or has met; names nothing any more once that is done with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReceiveId {
    pub(crate) record: u32,
    pub(crate) number: u64,
}

/// A message that was taken out; names nothing any more once it is done with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MessageId {
    pub(crate) record: u32,
    pub(crate) generation: u32,
}

impl MessageId {
    /// Its record: where a rim keeps what belongs to it.
    pub const fn record(self) -> u32 {
        self.record
    }
}

/// Which collective: the same number on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct CollectiveId {
    /// The communicator.
    pub context: u32,
    /// Its how-manieth collective; wraps.
    pub sequence: u32,
}

/// A wish, by its number in the collective.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StepId(pub u32);
