//! The latest collectives over messages that a rank started on a communicator: the last one, and what earlier ones were,
//! for members that still wait in them.

use unisono_core::collective::CollectiveKind;
use unisono_core::ids::CollectiveId;

use super::active_collective::CollectiveName;
use crate::world::collective::record::CollectiveRecord;

/// Number of collectives that are remembered.
const REMEMBERED: usize = 16;

/// A collective that was started.
#[derive(Clone, Copy, Debug)]
struct StartedCall {
    name: CollectiveName,
    /// The context of its messages, which has a digest of the call.
    key: u32,
}

/// The latest collectives of a communicator.
#[derive(Debug)]
pub(in crate::world) struct StartedCalls {
    /// The last one.
    pub(in crate::world) last: CollectiveName,
    /// Its number among the user's calls, and which algorithm it is.
    pub(in crate::world) last_record: Option<(u32, CollectiveRecord)>,
    /// By the low bits of their sequence numbers.
    latest: [Option<StartedCall>; REMEMBERED],
}

impl StartedCalls {
    /// Of a communicator on which nothing was started.
    pub(in crate::world) const fn new(context: u32) -> Self {
        let id = CollectiveId { context, sequence: 0 };
        let last = CollectiveName { id, verb: CollectiveKind::Barrier, call: 0 };
        Self { last, last_record: None, latest: [None; REMEMBERED] }
    }

    /// Records the next collective, whose messages have this context.
    pub(in crate::world) fn record(&mut self, name: CollectiveName, key: u32) {
        self.last = name;
        if let Some(place) = self.latest.get_mut(name.id.sequence as usize % REMEMBERED) {
            *place = Some(StartedCall { name, key });
        }
    }

    /// Whether the collective with this number was started.
    pub(in crate::world) const fn has_started(&self, sequence: u32) -> bool {
        self.last.id.sequence.wrapping_sub(sequence).cast_signed() >= 0
    }

    /// The collective with this number, if it is known to be another call than the one with this context.
    pub(in crate::world) fn contradicting(&self, sequence: u32, key: u32) -> Option<CollectiveName> {
        let known = self.latest.get(sequence as usize % REMEMBERED).copied().flatten();
        known.filter(|known| known.name.id.sequence == sequence && known.key != key).map(|known| known.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_calls_are_compared() {
        let mut calls = StartedCalls::new(3);
        for sequence in 1..=20_u32 {
            let id = CollectiveId { context: 3, sequence };
            calls.record(CollectiveName { id, verb: CollectiveKind::Gather, call: sequence }, 3 << 16 | sequence);
        }
        assert_eq!((calls.has_started(20), calls.has_started(21)), (true, false));
        for sequence in 0..30 {
            let is_known = (5..=20).contains(&sequence);
            assert_eq!(calls.contradicting(sequence, 3 << 16).is_some(), is_known, "{sequence}");
            assert_eq!(calls.contradicting(sequence, 3 << 16 | sequence), None, "{sequence}");
        }
    }
}
