//! A peer's record: credit and match requests in both directions.

use super::cancel::Cancellations;
use super::header::{HeaderCredit, MessageHeader};
use crate::ids::ReceiveId;
use crate::list::NONE;
use crate::message::envelope::{Context, Tag};
use crate::message::queues::RecordQueue;

/// The record of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MessagePeer {
    pub(super) sent: SentMessages,
    pub(super) received: ReceivedMessages,
    pub(super) requests: MatchRequests,
    pub(super) cancellations: Cancellations,
    pub(super) flushes: bool,
    pub(super) is_failed: bool,
    pub(super) links: PeerLinks,
}

/// The messages that a peer was sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct SentMessages {
    /// Message headers, and those of them that it has settled.
    pub(super) count: u64,
    pub(super) settled: u64,
    /// Unexpected headers of ours that it may store; and how many it has freed, cumulative.
    pub(super) outstanding: u16,
    freed: u16,
    /// Messages that are held for it, and those whose eager payload it may not have stored.
    pub(super) held: u32,
    pub(super) eager_in_flight: RecordQueue,
}

/// The messages that came from a peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct ReceivedMessages {
    /// Message headers; how many of them were reported as settled; and headers that are pending for it and claim its
    /// messages.
    pub(super) count: u32,
    settled_reported: u32,
    pub(super) pending_claims: u32,
    /// Payloads since the latest report.
    pub(super) owed: u16,
    /// Headers that were freed; those reported as freed; and those that are stored.
    pub(super) freed: u16,
    freed_reported: u16,
    pub(super) stored: u16,
    /// Messages that it holds and whose headers were dropped here.
    pub(super) held: u32,
    /// It waits for the report of settled messages.
    pub(super) is_report_requested: bool,
}

/// The match requests of a peer, and those that it was sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct MatchRequests {
    /// Its request, not yet answered.
    pub(super) of_peer: Option<(Context, Option<Tag>)>,
    /// The send that was found for its request, while neither acknowledged nor declined.
    pub(super) reserved: u32,
    pub(super) own: MatchRequestState,
    /// While a request for a receive is outstanding, a matching header was dropped.
    pub(super) again: bool,
    /// Its answer to a request is to be declined.
    pub(super) declines: bool,
    /// The last probe for which its reply was no match.
    pub(super) probed: u32,
    /// Requests were sent for receives from any source below this number.
    pub(super) cursor: u64,
}

/// The match request that a peer was sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum MatchRequestState {
    Nothing,
    /// For a receive's message; the receive may have been matched meanwhile.
    Receive(ReceiveId),
    /// For a probe's message; the probe may have ended meanwhile.
    Probe(u32),
    /// Answered: it found a message for the present probe.
    Reserved,
}

/// A peer's place in the lists of peers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct PeerLinks {
    pub(super) is_active: bool,
    pub(super) is_holding: bool,
    pub(super) active: u32,
    pub(super) holding: u32,
}

impl MessagePeer {
    /// No header was exchanged.
    pub const NEW: Self = Self {
        sent: SentMessages {
            count: 0,
            settled: 0,
            outstanding: 0,
            freed: 0,
            held: 0,
            eager_in_flight: RecordQueue::EMPTY,
        },
        received: ReceivedMessages {
            count: 0,
            settled_reported: 0,
            pending_claims: 0,
            owed: 0,
            freed: 0,
            freed_reported: 0,
            stored: 0,
            held: 0,
            is_report_requested: false,
        },
        requests: MatchRequests {
            of_peer: None,
            reserved: NONE,
            own: MatchRequestState::Nothing,
            again: false,
            declines: false,
            probed: 0,
            cursor: 0,
        },
        cancellations: Cancellations::NONE,
        flushes: false,
        is_failed: false,
        links: PeerLinks { is_active: false, is_holding: false, active: NONE, holding: NONE },
    };
}

impl SentMessages {
    /// Newly freed and settled messages according to a header's credit. `None`: the credit is not possible.
    pub(super) const fn credit_delta(&self, freed: u16, settled: u32) -> Option<(u16, u64)> {
        let freed_now = freed.wrapping_sub(self.freed);
        let settled_now = settled.wrapping_sub(self.settled as u32) as u64;
        if freed_now <= self.outstanding && settled_now <= self.count.wrapping_sub(self.settled) {
            Some((freed_now, settled_now))
        } else {
            None
        }
    }

    /// Handles a header's credit. Returns whether that lets a message be sent or complete. `None`: the credit is not
    /// possible.
    pub(super) fn apply_credit(&mut self, freed: u16, settled: u32) -> Option<bool> {
        let delta = self.credit_delta(freed, settled)?;
        Some(self.record_credit(freed, delta))
    }

    /// As [`apply_credit`](Self::apply_credit), for the result of [`credit_delta`](Self::credit_delta).
    #[inline]
    pub(super) const fn record_credit(&mut self, freed: u16, (freed_now, settled_now): (u16, u64)) -> bool {
        self.outstanding = self.outstanding.wrapping_sub(freed_now);
        self.freed = freed;
        self.settled = self.settled.wrapping_add(settled_now);
        let waits = self.held > 0 || !self.eager_in_flight.is_empty() && settled_now > 0;
        waits && (freed_now > 0 || settled_now > 0)
    }

    /// Counts a message header; returns its number.
    pub(super) const fn count_one(&mut self) -> u64 {
        let number = self.count;
        self.count = number.wrapping_add(1);
        number
    }
}

impl ReceivedMessages {
    /// Counts a short message that is not stored.
    #[inline(always)]
    pub(super) const fn count_inline(&mut self) {
        self.count = self.count.wrapping_add(1);
        self.freed = self.freed.wrapping_add(1);
    }

    /// Whether a credit header is due, now that `half` of the headers may be freed.
    pub(super) const fn is_credit_due(&self, half: u16) -> bool {
        self.pending_claims == 0
            && (self.is_report_requested || self.owed >= half || self.freed.wrapping_sub(self.freed_reported) >= half)
    }

    /// The credit that the next header carries.
    #[inline(always)]
    pub(super) fn take_credit(&mut self) -> HeaderCredit {
        if self.pending_claims == 0 || mutant!("settled_early") {
            self.settled_reported = self.count;
            self.owed = 0;
            self.is_report_requested = false;
        }
        self.freed_reported = self.freed;
        HeaderCredit { freed: self.freed, settled: self.settled_reported }
    }
}

const _: () = assert!(MessageHeader::LONGEST <= crate::wire::MESSAGE_HEADER_ROOM);

#[cfg(test)]
mod tests {
    use super::{MessagePeer, SentMessages};

    #[test]
    fn credit_lets_a_held_message_be_sent() {
        let held = SentMessages { count: 3, outstanding: 3, held: 1, ..MessagePeer::NEW.sent };
        let with = |freed, settled| {
            let mut sent = held;
            (sent.apply_credit(freed, settled), sent.outstanding, sent.settled)
        };
        assert_eq!(with(0, 0), (Some(false), 3, 0));
        assert_eq!(with(1, 0), (Some(true), 2, 0));
        assert_eq!(with(0, 1), (Some(true), 3, 1));
        assert_eq!(with(4, 0), (None, 3, 0), "more than are outstanding");
        assert_eq!(with(0, 4), (None, 3, 0), "more than were sent");
    }
}
