//! Short messages that neither side keeps anything of.

use super::head::{Flags, Read, Said, Shown};
use super::{Admission, Head, Outcome, Storage};
use crate::device::PeerId;
use crate::list::NONE;
use crate::message::envelope::{Context, Tag};

/// What every head says: how far the messages of who reads it are freed and settled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Credit {
    /// Headers freed, cumulative.
    pub freed: u16,
    /// Shown messages that are settled, cumulative.
    pub settled: u32,
}

impl<S: Storage> Admission<S> {
    /// As [`send`](Self::send) of a message of at most [`Config::short`](super::Config::short) bytes in standard mode, if it may
    /// leave at once and be done by that: then this, its context and its tag are all that its head has to say. `None`: nothing was
    /// sent.
    #[inline(always)]
    pub fn send_short(&mut self, to: PeerId) -> Option<Credit> {
        let headers = self.config.headers;
        let peer = self.peers.as_mut().get_mut(to.0 as usize)?;
        if peer.is_gone || peer.holds > 0 || peer.out >= headers {
            return None;
        }
        peer.out = peer.out.wrapping_add(1);
        peer.show();
        if peer.verdicts == 0 {
            peer.told = peer.seen;
            peer.owed = 0;
            peer.is_urged = false;
        }
        peer.freed_told = peer.freed;
        Some(Credit { freed: peer.freed, settled: peer.told })
    }

    /// Handles what [`send_short`](Self::send_short) sent, with a payload of `bytes` bytes. [`Outcome`]s count [`Head::EAGER`] bytes
    /// before it.
    pub fn handle_short(&mut self, from: PeerId, context: Context, tag: Tag, credit: Credit, bytes: u32) -> Outcome {
        let said = Said::Eager(Shown { context: context.0, tag: tag.0, message: NONE, bytes: 0, at: 0 });
        let Credit { freed, settled } = credit;
        let read = Read { flags: Flags::empty(), freed, settled, said };
        self.react(from, read, bytes.saturating_add(Head::EAGER as u32))
    }

    /// Whether the next message of this peer would meet a receive that were posted now and matches it: no receive waits, and
    /// nothing of this peer is kept or forgotten.
    #[inline(always)]
    pub fn takes_at_once(&self, from: PeerId) -> bool {
        let peer = self.peers.as_ref().get(from.0 as usize);
        self.matching.is_idle() && peer.is_some_and(|peer| peer.untaken == 0 && peer.held == 0 && !peer.is_gone)
    }

    /// What [`send_short`](Self::send_short) sent has met its receive, which was not posted: see
    /// [`takes_at_once`](Self::takes_at_once). False: no rank of ours says that.
    #[inline(always)]
    pub fn take_short(&mut self, from: PeerId, credit: Credit) -> bool {
        let half = self.config.headers.div_ceil(2);
        let Some(peer) = self.peers.as_mut().get_mut(from.0 as usize) else { return false };
        peer.seen = peer.seen.wrapping_add(1);
        peer.freed = peer.freed.wrapping_add(1);
        let heard = peer.hear(credit.freed, credit.settled);
        if peer.is_credit_due(half) || heard == Some(true) {
            self.activate(from);
        }
        heard.is_some()
    }

    /// Whether [`poll_action`](Self::poll_action) has nothing to look at.
    #[inline(always)]
    pub const fn is_still(&self) -> bool {
        self.told.is_empty() && self.errands.is_empty() && self.active.is_empty()
    }

    /// Whether [`send`](Self::send) to this peer leaves at once, and is not held.
    #[inline]
    pub fn may_leave(&self, to: PeerId) -> bool {
        let peer = self.peers.as_ref().get(to.0 as usize);
        peer.is_some_and(|peer| peer.is_gone || peer.holds == 0 && peer.out < self.config.headers)
    }
}
