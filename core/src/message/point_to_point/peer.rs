//! A peer's record: credit and match requests in both directions.

use super::header::{HeaderCredit, MessageHeader};
use crate::ids::ReceiveId;
use crate::list::NONE;
use crate::message::envelope::{Context, Tag};
use crate::message::queues::RecordQueue;

/// The record of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MessagePeer {
    /// Message headers that it was sent, and those of them that it has settled.
    pub(super) sent: u64,
    pub(super) settled: u64,
    /// Unexpected headers of ours that it may store; and how many it has freed, cumulative.
    pub(super) outstanding: u16,
    pub(super) freed_by_peer: u16,
    /// Messages that are held for it, and those whose eager payload it may not have stored.
    pub(super) held_here: u32,
    pub(super) eager_in_flight: RecordQueue,
    /// Its match request, not yet answered.
    pub(super) match_request: Option<(Context, Option<Tag>)>,
    /// The send that was found for its match request, while neither acknowledged nor declined.
    pub(super) reserved: u32,

    /// Message headers received from it; how many of them were reported as settled; and headers that are pending
    /// for it and claim its messages.
    pub(super) received: u32,
    pub(super) settled_reported: u32,
    pub(super) pending_claims: u32,
    /// Payloads received from it since the latest report.
    pub(super) owed: u16,
    /// Headers from it that were freed; those reported as freed; and those that are stored.
    pub(super) freed: u16,
    pub(super) freed_reported: u16,
    pub(super) unexpected_count: u16,
    /// Messages that it holds and whose headers were dropped here.
    pub(super) held_there: u32,
    pub(super) own_request: MatchRequestState,
    /// While a match request for a receive is outstanding, a matching header was dropped.
    pub(super) again: bool,
    /// Match requests were sent for receives from any source below this number.
    pub(super) cursor: u64,
    /// The last probe for which its reply was no match.
    pub(super) probed: u32,

    pub(super) declines: bool,
    pub(super) flushes: bool,
    /// It waits for the report of settled messages.
    pub(super) is_report_requested: bool,
    pub(super) is_failed: bool,
    pub(super) is_active: bool,
    pub(super) is_holding: bool,
    pub(super) active_link: u32,
    pub(super) holding_link: u32,
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

impl MessagePeer {
    /// No header was exchanged.
    pub const NEW: Self = Self {
        sent: 0,
        settled: 0,
        outstanding: 0,
        freed_by_peer: 0,
        held_here: 0,
        eager_in_flight: RecordQueue::EMPTY,
        match_request: None,
        reserved: NONE,
        received: 0,
        settled_reported: 0,
        pending_claims: 0,
        owed: 0,
        freed: 0,
        freed_reported: 0,
        unexpected_count: 0,
        held_there: 0,
        own_request: MatchRequestState::Nothing,
        again: false,
        cursor: 0,
        probed: 0,
        declines: false,
        flushes: false,
        is_report_requested: false,
        is_failed: false,
        is_active: false,
        is_holding: false,
        active_link: NONE,
        holding_link: NONE,
    };

    /// Newly freed and settled messages according to a header's credit. `None`: the credit is not possible.
    pub(super) const fn credit_delta(&self, freed: u16, settled: u32) -> Option<(u16, u64)> {
        let freed_now = freed.wrapping_sub(self.freed_by_peer);
        let settled_now = settled.wrapping_sub(self.settled as u32) as u64;
        if freed_now <= self.outstanding && settled_now <= self.sent.wrapping_sub(self.settled) {
            Some((freed_now, settled_now))
        } else {
            None
        }
    }

    /// Counts a received short message that is not stored.
    #[inline(always)]
    pub(super) const fn count_inline(&mut self) {
        self.received = self.received.wrapping_add(1);
        self.freed = self.freed.wrapping_add(1);
    }

    /// Handles a header's credit. Returns whether that lets a message be sent or complete. `None`: the credit is not
    /// possible.
    pub(super) fn apply_credit(&mut self, freed: u16, settled: u32) -> Option<bool> {
        let said = self.credit_delta(freed, settled)?;
        Some(self.record_credit(freed, said))
    }

    /// As [`apply_credit`](Self::apply_credit), for the result of [`credit_delta`](Self::credit_delta).
    #[inline]
    pub(super) const fn record_credit(&mut self, freed: u16, (freed_now, settled_now): (u16, u64)) -> bool {
        self.outstanding = self.outstanding.wrapping_sub(freed_now);
        self.freed_by_peer = freed;
        self.settled = self.settled.wrapping_add(settled_now);
        let waits = self.held_here > 0 || !self.eager_in_flight.is_empty() && settled_now > 0;
        waits && (freed_now > 0 || settled_now > 0)
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
            self.settled_reported = self.received;
            self.owed = 0;
            self.is_report_requested = false;
        }
        self.freed_reported = self.freed;
        HeaderCredit { freed: self.freed, settled: self.settled_reported }
    }

    /// Counts a message header that is sent to it; returns its number.
    pub(super) const fn count_sent(&mut self) -> u64 {
        let number = self.sent;
        self.sent = number.wrapping_add(1);
        number
    }
}

const _: () = assert!(MessageHeader::LONGEST <= crate::wire::MESSAGE_HEADER_ROOM);
