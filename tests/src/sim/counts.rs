//! Counts of delivered and dropped datagrams.

/// Why a datagram did not arrive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dropped {
    /// The injector lost it.
    Lost,
    /// The harness took it ([`Network::tamper`](super::Network::tamper)).
    Tampered,
    /// Its checksum was wrong.
    Corrupt,
    /// There was no way between the two nodes.
    Cut,
    /// The sender's or receiver's link was down.
    Down,
    /// The receiver had crashed.
    Crashed,
    /// The queue before the receiver's link was full.
    QueueFull,
    /// The receiver's slots were all in use.
    NoSlot,
    /// No such node or rail.
    UnknownPeer,
    /// Its sender was no member of the group, or the only one.
    NoMember,
    /// It was longer than the MTU.
    Oversize,
}

impl Dropped {
    /// All reasons.
    pub const ALL: [Self; 11] = [
        Self::Lost,
        Self::Tampered,
        Self::Corrupt,
        Self::Cut,
        Self::Down,
        Self::Crashed,
        Self::QueueFull,
        Self::NoSlot,
        Self::UnknownPeer,
        Self::NoMember,
        Self::Oversize,
    ];
}

/// Sums over the network. At any time `sent + replicated + duplicated + forged` is `delivered` plus all drops plus those
/// in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DatagramCounts {
    /// Flushed by a node.
    pub sent: u64,
    /// Copies for further members of a group.
    pub replicated: u64,
    /// Second copies that the injector made.
    pub duplicated: u64,
    /// Made by the harness ([`Network::forge`](super::Network::forge)).
    pub forged: u64,
    /// Frames that were made to wait for later ones.
    pub reordered: u64,
    /// Reached a receive slot, also if the receiver crashed before it received them.
    pub delivered: u64,
    /// Bytes of those, checksum excluded.
    pub delivered_bytes: u64,
    dropped: [u64; Dropped::ALL.len()],
}

impl DatagramCounts {
    /// Dropped for this reason.
    pub const fn dropped(&self, why: Dropped) -> u64 {
        self.dropped[why as usize]
    }

    /// Dropped for any reason.
    pub fn dropped_in_all(&self) -> u64 {
        self.dropped.iter().sum()
    }

    pub(super) const fn drop_one(&mut self, why: Dropped) {
        self.dropped[why as usize] += 1;
    }
}
