//! A peer's record: credit and match requests in both directions.

use super::header::{Credit, Head};
use crate::ids::ReceiveId;
use crate::list::NONE;
use crate::message::envelope::{Context, Tag};
use crate::message::queues::Queue;

/// The record of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Peer {
    /// Message headers that it was sent, and those of them that it has settled.
    pub(super) shown: u64,
    pub(super) settled: u64,
    /// Unexpected headers of ours that it may store; and how many it has freed, cumulative.
    pub(super) out: u16,
    pub(super) freed_there: u16,
    /// Messages that are held for it, and those whose eager payload it may not have stored.
    pub(super) holds: u32,
    pub(super) left: Queue,
    /// Its match request, not yet answered.
    pub(super) wanted: Option<(Context, Option<Tag>)>,
    /// The send that was found for its match request, while neither acknowledged nor declined.
    pub(super) promised: u32,

    /// Message headers received from it; how many of them were reported as settled; and RTS ACKs that are pending for
    /// it.
    pub(super) seen: u32,
    pub(super) told: u32,
    pub(super) verdicts: u32,
    /// Payloads received from it since the latest report.
    pub(super) owed: u16,
    /// Headers from it that were freed; those reported as freed; and those that are stored.
    pub(super) freed: u16,
    pub(super) freed_told: u16,
    pub(super) untaken: u16,
    /// Messages that it holds and whose headers were dropped here.
    pub(super) held: u32,
    pub(super) ask: Ask,
    /// While a match request for a receive is outstanding, a matching header was dropped.
    pub(super) again: bool,
    /// Match requests were sent for receives from any source below this number.
    pub(super) cursor: u64,
    /// The last probe for which its reply was no match.
    pub(super) probed: u32,

    pub(super) declines: bool,
    pub(super) flushes: bool,
    /// It waits for the report of settled messages.
    pub(super) is_urged: bool,
    pub(super) is_gone: bool,
    pub(super) is_active: bool,
    pub(super) is_holding: bool,
    pub(super) active_link: u32,
    pub(super) holding_link: u32,
}

/// The match request that a peer was sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Ask {
    Nothing,
    /// For a receive's message; the receive may have been matched meanwhile.
    Receive(ReceiveId),
    /// For a probe's message; the probe may have ended meanwhile.
    Probe(u32),
    /// Answered: it found a message for the present probe.
    Promised,
}

impl Peer {
    /// No header was exchanged.
    pub const NEW: Self = Self {
        shown: 0,
        settled: 0,
        out: 0,
        freed_there: 0,
        holds: 0,
        left: Queue::EMPTY,
        wanted: None,
        promised: NONE,
        seen: 0,
        told: 0,
        verdicts: 0,
        owed: 0,
        freed: 0,
        freed_told: 0,
        untaken: 0,
        held: 0,
        ask: Ask::Nothing,
        again: false,
        cursor: 0,
        probed: 0,
        declines: false,
        flushes: false,
        is_urged: false,
        is_gone: false,
        is_active: false,
        is_holding: false,
        active_link: NONE,
        holding_link: NONE,
    };

    /// Newly freed and settled messages according to a header's credit. `None`: the credit is not possible.
    pub(super) const fn says(&self, freed: u16, settled: u32) -> Option<(u16, u64)> {
        let freed_now = freed.wrapping_sub(self.freed_there);
        let settled_now = settled.wrapping_sub(self.settled as u32) as u64;
        if freed_now <= self.out && settled_now <= self.shown.wrapping_sub(self.settled) {
            Some((freed_now, settled_now))
        } else {
            None
        }
    }

    /// Counts a received short message that is not stored.
    #[inline(always)]
    pub(super) const fn count_short(&mut self) {
        self.seen = self.seen.wrapping_add(1);
        self.freed = self.freed.wrapping_add(1);
    }

    /// Handles a header's credit. Returns whether that lets a message be sent or complete. `None`: the credit is not
    /// possible.
    pub(super) fn hear(&mut self, freed: u16, settled: u32) -> Option<bool> {
        let said = self.says(freed, settled)?;
        Some(self.note(freed, said))
    }

    /// As [`hear`](Self::hear), for the result of [`says`](Self::says).
    #[inline]
    pub(super) const fn note(&mut self, freed: u16, (freed_now, settled_now): (u16, u64)) -> bool {
        self.out = self.out.wrapping_sub(freed_now);
        self.freed_there = freed;
        self.settled = self.settled.wrapping_add(settled_now);
        let waits = self.holds > 0 || !self.left.is_empty() && settled_now > 0;
        waits && (freed_now > 0 || settled_now > 0)
    }

    /// Whether a credit header is due, now that `half` of the headers may be freed.
    pub(super) const fn is_credit_due(&self, half: u16) -> bool {
        self.verdicts == 0 && (self.is_urged || self.owed >= half || self.freed.wrapping_sub(self.freed_told) >= half)
    }

    /// The credit that the next header carries.
    #[inline(always)]
    pub(super) const fn tell(&mut self) -> Credit {
        #[cfg(not(mutant = "settled_early"))]
        let is_settled = self.verdicts == 0;
        #[cfg(mutant = "settled_early")]
        let is_settled = true;
        if is_settled {
            self.told = self.seen;
            self.owed = 0;
            self.is_urged = false;
        }
        self.freed_told = self.freed;
        Credit { freed: self.freed, settled: self.told }
    }

    /// Counts a message header that is sent to it; returns its number.
    pub(super) const fn show(&mut self) -> u64 {
        let number = self.shown;
        self.shown = number.wrapping_add(1);
        number
    }
}

const _: () = assert!(Head::LONGEST <= crate::wire::MESSAGE_HEAD);
