//! What happened, told by the machine and counted beside it: counters are no part of its state.

use crate::device::Cause;
use crate::wire::Kind;

/// Why an arrival had no effect.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Reason {
    /// Too short, of unknown kind, or inconsistent.
    Malformed = 0,
    /// Another protocol version.
    Version = 1,
    /// No such peer was met.
    UnknownPeer = 2,
    /// Not from the peer's address.
    Address = 3,
    /// Of another life, of the sender or of this process.
    Stale = 4,
    /// From a peer that has parted or was declared dead.
    Ended = 5,
    /// Neither in the window nor shortly behind it.
    Outside = 6,
    /// Early, and no receive window or holding cell was free.
    NoRoom = 7,
    /// Its key, bounds or placement are not what was granted.
    Refused = 8,
}

impl Reason {
    /// How many there are.
    pub const COUNT: usize = 9;
    /// Their names, by value.
    pub const NAMES: [&str; Self::COUNT] =
        ["malformed", "version", "unknown_peer", "address", "stale", "ended", "outside", "no_room", "refused"];
}

/// One fact. Every arrival is exactly one of `Accepted`, `Duplicate` and `Dropped`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Happened {
    /// An arrival took effect or is set aside until its turn.
    Accepted {
        /// What it was.
        kind: Kind,
        /// Its length.
        bytes: u32,
    },
    /// An arrival had been received before.
    Duplicate {
        /// It was a resent one: resending it was not needed (unless the network doubled it).
        resent: bool,
    },
    /// An arrival had no effect.
    Dropped(Reason),
    /// The accepted arrival was a segment of a placement that had been withdrawn or refused: nothing moved.
    Withdrawn,
    /// The accepted arrival was not the next of its peer.
    OutOfOrder,
    /// A datagram left.
    Sent {
        /// Why.
        cause: Cause,
        /// Its length.
        bytes: u32,
    },
    /// A resent segment's original had arrived: resending it was not needed.
    Spurious,
    /// A round trip in units of 64 ns, the peer's hold time excluded.
    RoundTrip(u32),
    /// A peer was granted more datagrams.
    Granted(u32),
}

/// Everything counted. All fields are totals since the start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Counters {
    /// Arrivals that took effect, by [`Kind`].
    pub accepted: [u64; 11],
    /// Arrivals received before.
    pub duplicates: u64,
    /// Those of them that had been resent.
    pub duplicates_resent: u64,
    /// Arrivals without effect, by [`Reason`].
    pub dropped: [u64; Reason::COUNT],
    /// Accepted segments of placements that had been withdrawn.
    pub withdrawn: u64,
    /// Accepted arrivals before their turn.
    pub out_of_order: u64,
    /// Datagrams sent, by [`Cause`].
    pub sent: [u64; 6],
    /// Resends known not to have been needed.
    pub spurious: u64,
    /// Bytes of datagrams sent and accepted.
    pub bytes_sent: u64,
    /// Bytes of accepted arrivals.
    pub bytes_accepted: u64,
    /// Datagrams granted to peers.
    pub granted: u64,
    /// Datagrams sent and accepted by size: entry i counts lengths of i significant bits.
    pub sizes: [u64; 17],
    /// Round trips: entry i counts those of i significant bits in units of 64 ns.
    pub round_trips: [u64; 32],
}

impl Counters {
    /// Counts one fact.
    #[inline(always)]
    pub fn count(&mut self, what: Happened) {
        self.count_all(what, 1);
    }

    /// Counts a fact that happened so many times.
    #[inline(always)]
    pub fn count_all(&mut self, what: Happened, times: u32) {
        let n = u64::from(times);
        match what {
            Happened::Accepted { kind, bytes } => {
                add(self.accepted.get_mut(kind as usize), n);
                add(Some(&mut self.bytes_accepted), n.wrapping_mul(u64::from(bytes)));
                add(self.sizes.get_mut(significant(bytes)), n);
            }
            Happened::Duplicate { resent } => {
                add(Some(&mut self.duplicates), n);
                add(Some(&mut self.duplicates_resent), if resent { n } else { 0 });
            }
            Happened::Dropped(reason) => add(self.dropped.get_mut(reason as usize), n),
            Happened::Withdrawn => add(Some(&mut self.withdrawn), n),
            Happened::OutOfOrder => add(Some(&mut self.out_of_order), n),
            Happened::Sent { cause, bytes } => {
                add(self.sent.get_mut(cause as usize), n);
                add(Some(&mut self.bytes_sent), n.wrapping_mul(u64::from(bytes)));
                add(self.sizes.get_mut(significant(bytes)), n);
            }
            Happened::Spurious => add(Some(&mut self.spurious), n),
            Happened::RoundTrip(units) => add(self.round_trips.get_mut(significant(units)), n),
            Happened::Granted(datagrams) => add(Some(&mut self.granted), n.wrapping_mul(u64::from(datagrams))),
        }
    }

    /// Arrivals that the endpoint has seen: accepted, duplicate and dropped ones.
    pub fn arrivals(&self) -> u64 {
        let parts = self.accepted.iter().chain(&self.dropped).chain([&self.duplicates]);
        parts.fold(0, |sum, part| sum.wrapping_add(*part))
    }

    /// Data datagrams sent, resends included.
    pub fn data_sent(&self) -> u64 {
        self.sent.iter().take(3).fold(0, |sum, part| sum.wrapping_add(*part))
    }

    /// Datagrams sent for one cause.
    pub fn sent_for(&self, cause: Cause) -> u64 {
        self.sent.get(cause as usize).copied().unwrap_or(0)
    }

    /// Arrivals dropped for one reason.
    pub fn dropped_for(&self, reason: Reason) -> u64 {
        self.dropped.get(reason as usize).copied().unwrap_or(0)
    }
}

#[inline]
fn add(counter: Option<&mut u64>, n: u64) {
    if let Some(counter) = counter {
        *counter = counter.wrapping_add(n);
    }
}

const fn significant(value: u32) -> usize {
    32_u32.wrapping_sub(value.leading_zeros()) as usize
}
