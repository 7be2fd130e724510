//! The identities of peers, operations, memory and messages: a newtype for each number space.

mod psn;

pub use psn::{Psn, first_psn};

/// A peer by its rank in the job: the index of its record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerId(pub u32);

/// A rail: one of the ways that a device has to every peer. The first is 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Rail(pub u8);

/// A port of a schedule in the k-port model, in which a rank sends and receives k messages at a time: 0 to k − 1. With
/// several rails, each port has a rail of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Port {
    number: u8,
    of: u8,
}

impl Port {
    /// That of a message without schedule, or of one of a single port.
    pub const ONLY: Self = Self { number: 0, of: 1 };

    /// Port `number` of `of` ports.
    pub const fn new(number: u8, of: u8) -> Self {
        Self { number, of }
    }

    /// Its number.
    pub const fn number(self) -> u8 {
        self.number
    }

    /// Whether there is no other.
    pub const fn is_only(self) -> bool {
        self.of <= 1
    }
}

/// A multicast group, by the number that the host bound to its address: the same at all members.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct GroupId(pub u32);

/// A member of a group, by its number in it: 0 to size − 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Rank(pub u32);

/// One lifetime of a process: random, new at every start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Incarnation(pub u32);

/// An operation in progress, by its record. Reused after its completion was polled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OperationId(pub u32);

/// A grant and the placement that uses it: the receiver's record in the low 16 bits, and in the high 16 bits the number
/// of grants of that record that were withdrawn, so that late segments of a withdrawn grant never count towards the
/// next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PlacementId(pub u32);

impl PlacementId {
    pub(crate) const fn new(record: u32, generation: u16) -> Self {
        Self((generation as u32) << 16 | record & 0xffff)
    }

    /// The index of its record: less than the number of placement records.
    pub const fn record(self) -> usize {
        (self.0 & 0xffff) as usize
    }
}

/// A remote key (rkey): random bits from the host that authorize a peer to place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RemoteKey(pub u64);

/// A receive that is posted or matched; invalid after its record is freed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReceiveId {
    pub(crate) record: u32,
    pub(crate) number: u64,
}

/// An unexpected message that was taken out of matching; invalid after its record is freed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MessageId {
    pub(crate) record: u32,
    pub(crate) generation: u32,
}

impl MessageId {
    /// The index of its record: the host may store its own data under it.
    pub const fn record(self) -> u32 {
        self.record
    }
}

/// A collective: the same value on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct CollectiveId {
    /// The communicator.
    pub context: u32,
    /// The number of the collective in its communicator; wraps.
    pub sequence: u32,
}

/// A request of a collective, by its number in the collective.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StepId(pub u32);
