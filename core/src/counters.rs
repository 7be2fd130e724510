//! Counters of an endpoint's events, kept by the host: they are not part of the machine's state.

use crate::device::TxReason;
use crate::wire::DatagramKind;

/// Why a datagram was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum DropReason {
    /// Too short, of unknown kind, or inconsistent.
    Malformed = 0,
    /// Another protocol version.
    Version = 1,
    /// No peer of that rank is known.
    UnknownPeer = 2,
    /// Not from the peer's address.
    Address = 3,
    /// Of another incarnation, of its sender or of this process.
    Stale = 4,
    /// From a peer that sent Bye or failed.
    Ended = 5,
    /// Neither in the window nor shortly before it.
    Outside = 6,
    /// Early, while no receive window or hold slot was free.
    NoRoom = 7,
    /// Its key, bounds or placement do not match a grant.
    Refused = 8,
}

impl DropReason {
    /// Number of reasons.
    pub const COUNT: usize = 9;
    /// Their names, by value.
    pub const NAMES: [&str; Self::COUNT] =
        ["malformed", "version", "unknown_peer", "address", "stale", "ended", "outside", "no_room", "refused"];
}

/// One event. Every received datagram is exactly one of `Accepted`, `Duplicate` and `Dropped`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Metric {
    /// A datagram was accepted: handled, or held until its predecessors arrive.
    Accepted {
        /// Its kind.
        kind: DatagramKind,
        /// Its length.
        bytes: u32,
    },
    /// A datagram had been received before.
    Duplicate {
        /// It was a resend, which was not necessary (unless the network duplicated it).
        resent: bool,
    },
    /// A datagram was dropped.
    Dropped(DropReason),
    /// The accepted datagram was a segment of a withdrawn or refused placement: nothing was copied.
    Withdrawn,
    /// The accepted datagram was not the next of its peer.
    OutOfOrder,
    /// A datagram was sent.
    Sent {
        /// Why.
        cause: TxReason,
        /// Its length.
        bytes: u32,
    },
    /// A segment was resent although its original had arrived.
    Spurious,
    /// A round trip in units of 64 ns, the peer's hold time excluded.
    RoundTrip(u32),
    /// Credit was granted to peers, in datagrams.
    Granted(u32),
}

/// All counters: totals since the start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Counters {
    /// Accepted datagrams, by [`DatagramKind`].
    pub accepted: [u64; 11],
    /// Datagrams received before.
    pub duplicates: u64,
    /// Those of them that were resends.
    pub duplicates_resent: u64,
    /// Dropped datagrams, by [`DropReason`].
    pub dropped: [u64; DropReason::COUNT],
    /// Accepted segments of withdrawn placements.
    pub withdrawn: u64,
    /// Accepted datagrams that arrived early.
    pub out_of_order: u64,
    /// Datagrams sent, by [`TxReason`].
    pub sent: [u64; 6],
    /// Resends known to have been unnecessary.
    pub spurious: u64,
    /// Bytes of sent datagrams.
    pub bytes_sent: u64,
    /// Bytes of accepted datagrams.
    pub bytes_accepted: u64,
    /// Credit granted to peers, in datagrams.
    pub granted: u64,
    /// Datagrams sent and accepted by size: entry i counts those whose length has i significant bits.
    pub sizes: [u64; 17],
    /// Round trips: entry i counts those that have i significant bits in units of 64 ns.
    pub round_trips: [u64; 32],
}

impl Counters {
    /// Counts one event.
    #[inline(always)]
    pub fn count(&mut self, what: Metric) {
        self.count_all(what, 1);
    }

    /// Counts the same event `times` times.
    #[inline(always)]
    pub fn count_all(&mut self, what: Metric, times: u32) {
        let n = u64::from(times);
        match what {
            Metric::Accepted { kind, bytes } => {
                add(self.accepted.get_mut(kind as usize), n);
                add(Some(&mut self.bytes_accepted), n.wrapping_mul(u64::from(bytes)));
                add(self.sizes.get_mut(significant(bytes)), n);
            }
            Metric::Duplicate { resent } => {
                add(Some(&mut self.duplicates), n);
                add(Some(&mut self.duplicates_resent), if resent { n } else { 0 });
            }
            Metric::Dropped(reason) => add(self.dropped.get_mut(reason as usize), n),
            Metric::Withdrawn => add(Some(&mut self.withdrawn), n),
            Metric::OutOfOrder => add(Some(&mut self.out_of_order), n),
            Metric::Sent { cause, bytes } => {
                add(self.sent.get_mut(cause as usize), n);
                add(Some(&mut self.bytes_sent), n.wrapping_mul(u64::from(bytes)));
                add(self.sizes.get_mut(significant(bytes)), n);
            }
            Metric::Spurious => add(Some(&mut self.spurious), n),
            Metric::RoundTrip(units) => add(self.round_trips.get_mut(significant(units)), n),
            Metric::Granted(datagrams) => add(Some(&mut self.granted), n.wrapping_mul(u64::from(datagrams))),
        }
    }

    /// Datagrams handled by the endpoint: accepted, duplicate and dropped ones.
    pub fn arrivals(&self) -> u64 {
        let parts = self.accepted.iter().chain(&self.dropped).chain([&self.duplicates]);
        parts.fold(0, |sum, part| sum.wrapping_add(*part))
    }

    /// Data datagrams sent, resends included.
    pub fn data_sent(&self) -> u64 {
        self.sent.iter().take(3).fold(0, |sum, part| sum.wrapping_add(*part))
    }

    /// Datagrams sent for one reason.
    pub fn sent_for(&self, cause: TxReason) -> u64 {
        self.sent.get(cause as usize).copied().unwrap_or(0)
    }

    /// Datagrams dropped for one reason.
    pub fn dropped_for(&self, reason: DropReason) -> u64 {
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
