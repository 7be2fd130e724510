//! What is known of a peer.

use super::header::{Credit, Head};
use crate::ids::ReceiveId;
use crate::list::NONE;
use crate::message::envelope::{Context, Tag};
use crate::message::queues::Queue;

/// A peer: what it was sent, and what came from it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Peer {
    /// Messages that it was shown, and of them those that it has settled.
    pub(super) shown: u64,
    pub(super) settled: u64,
    /// Headers of ours that it keeps, as far as is known; and how many it has freed.
    pub(super) out: u16,
    pub(super) freed_there: u16,
    /// Messages that are held for it, and those whose payloads are on their way, which it may not keep.
    pub(super) holds: u32,
    pub(super) left: Queue,
    /// The question that it asks.
    pub(super) wanted: Option<(Context, Option<Tag>)>,
    /// The send that was found for it and is neither claimed nor declined.
    pub(super) promised: u32,

    /// Messages that it showed; how many of them it knows to be settled; and verdicts on them that it has not been told.
    pub(super) seen: u32,
    pub(super) told: u32,
    pub(super) verdicts: u32,
    /// Payloads of its that were accepted since it was told.
    pub(super) owed: u16,
    /// Headers of its that were freed, as far as it knows, and that are kept.
    pub(super) freed: u16,
    pub(super) freed_told: u16,
    pub(super) untaken: u16,
    /// Messages that it holds and that were forgotten here.
    pub(super) held: u32,
    pub(super) ask: Ask,
    /// While it is asked about a receive, something was forgotten that matches it.
    pub(super) again: bool,
    /// Receives from any source below this number were asked about.
    pub(super) cursor: u64,
    /// The last probe that it was asked about in vain.
    pub(super) probed: u32,

    pub(super) declines: bool,
    pub(super) flushes: bool,
    /// It waits to hear what is settled.
    pub(super) is_urged: bool,
    pub(super) is_gone: bool,
    pub(super) is_active: bool,
    pub(super) is_holding: bool,
    pub(super) active_link: u32,
    pub(super) holding_link: u32,
}

/// What a peer is asked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Ask {
    Nothing,
    /// For a receive's message; the receive may have met another one meanwhile.
    Receive(ReceiveId),
    /// For a probe's message; it may have ended meanwhile.
    Probe(u32),
    /// It has found one for the present probe.
    Promised,
}

impl Peer {
    /// Nothing was sent.
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

    /// How many of our messages the peer says are freed and settled since it said so last. `None`: that cannot be.
    pub(super) const fn says(&self, freed: u16, settled: u32) -> Option<(u16, u64)> {
        let freed_now = freed.wrapping_sub(self.freed_there);
        let settled_now = settled.wrapping_sub(self.settled as u32) as u64;
        if freed_now <= self.out && settled_now <= self.shown.wrapping_sub(self.settled) {
            Some((freed_now, settled_now))
        } else {
            None
        }
    }

    /// A short message of its has come, and is kept by nobody.
    #[inline(always)]
    pub(super) const fn count_short(&mut self) {
        self.seen = self.seen.wrapping_add(1);
        self.freed = self.freed.wrapping_add(1);
    }

    /// What the peer says of our messages: whether that lets something leave or end. `None`: that cannot be.
    pub(super) fn hear(&mut self, freed: u16, settled: u32) -> Option<bool> {
        let said = self.says(freed, settled)?;
        Some(self.note(freed, said))
    }

    /// As [`hear`](Self::hear), of what it [`says`](Self::says).
    #[inline]
    pub(super) const fn note(&mut self, freed: u16, (freed_now, settled_now): (u16, u64)) -> bool {
        self.out = self.out.wrapping_sub(freed_now);
        self.freed_there = freed;
        self.settled = self.settled.wrapping_add(settled_now);
        let waits = self.holds > 0 || !self.left.is_empty() && settled_now > 0;
        waits && (freed_now > 0 || settled_now > 0)
    }

    /// Whether it has to be told what was freed and settled, now that that may be `half` its headers.
    pub(super) const fn is_credit_due(&self, half: u16) -> bool {
        self.verdicts == 0 && (self.is_urged || self.owed >= half || self.freed.wrapping_sub(self.freed_told) >= half)
    }

    /// What the next head tells it.
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

    /// A message is shown to it; returns its number.
    pub(super) const fn show(&mut self) -> u64 {
        let number = self.shown;
        self.shown = number.wrapping_add(1);
        number
    }
}

const _: () = assert!(Head::LONGEST <= crate::wire::MESSAGE_HEAD);
