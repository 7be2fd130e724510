//! Leaving: how a rank reports that it takes no more part in a communicator's collectives, or sends or receives no more
//! messages.
//!
//! A collective that has waited for a rank for a while sends it one status request. The rank answers when it has
//! finished, or one of its collectives of that communicator has failed: at once, or when that happens. Its earlier
//! messages arrive before the answer. A failure is sent to all members without a request, since the rank may make no
//! progress afterwards. Where not even that arrives, and a member is known to be dead, the collective fails after
//! [`HOPELESS`].
//!
//! Point-to-point messages end likewise. A rank that finishes stops receiving, and once the messages that it has
//! matched are complete, notifies each rank that has asked, after all acknowledgements to that rank: a send that is not
//! acknowledged by then never will be. Once all that the rank sent has arrived, it also reports that it sends no more.

use unisono_core::collective::FailureCause;
use unisono_core::ids::PeerId;
use unisono_shmem::am_header;

use super::Process;
use super::steps::living;
use crate::world::collective::context::{EVERY, HEARING, WORLD};
use crate::world::collective::table::{Awaited, Outgoing};
use crate::world::request::Failure;
use unisono_bootstrap::Rank;

/// Kinds of status messages, which belong neither to matching nor to collectives: kind, 0, context (16 bits), rank (32
/// bits).
pub(in crate::world) const ASK: u8 = 240;
pub(in crate::world) const GONE: u8 = 241;
pub(in crate::world) const REVOKED: u8 = 242;
pub(in crate::world) const LEFT: u8 = 243;
pub(in crate::world) const DEAF: u8 = 244;
/// Bytes of a status message.
pub(in crate::world) const WORD: usize = 8;
/// Nanoseconds after which a collective sends a status request to the rank that it waits for.
pub(super) const PATIENCE: u64 = 40_000_000;
/// Nanoseconds after which a collective with a dead member fails whichever rank it waits for: that rank may have failed
/// because of the dead one, and make no more progress.
const HOPELESS: u64 = 500_000_000;

/// Most steps that a message to this rank itself takes from its match to its place.
const ROUNDS: u32 = 8;

/// A status message about a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Word {
    /// Asks to be notified when the receiver takes no more part there; for [`EVERY`]: when it receives no more
    /// messages, and when it sends none.
    Ask,
    /// The sender takes no more part there, because of the rank.
    Gone,
    /// The context is revoked. Only members are believed, so that the generation need not be included.
    Revoked,
    /// The sender sends no more messages.
    Left,
    /// The sender receives no more messages.
    Deaf,
}

impl Process {
    /// This rank starts nothing any more: no collective, no receive, no send.
    pub(in crate::world) fn retire_at_end(&mut self) {
        self.collectives.is_over = true;
        self.collectives.rooms.retire_from_all();
        self.is_deaf = true;
        // Messages to this rank itself that have matched are completed first: no other rank is needed for that.
        for _ in 0..ROUNDS {
            self.follow_messages();
        }
        for (request, id) in self.mailbox.waiting(|_| true) {
            if self.mailbox.machine.cancel(id).is_some() {
                self.mailbox.take(request);
                self.requests.finish(request, Err(Failure::Finished));
            }
        }
        self.abandon_parcels(self.rank.into(), Failure::Finished);
        let now = self.now();
        self.answer_askers(now);
    }

    /// Whether this rank receives nothing more from a peer, and has acknowledged all that it received.
    fn is_deaf_to(&mut self, peer: PeerId) -> bool {
        if !self.is_deaf || self.mailbox.receives() {
            return false;
        }
        self.mailbox.machine.report_settled(peer);
        self.follow_messages();
        self.mailbox.errands.is_empty() && self.mailbox.late_grants.is_empty() && self.outbox.is_empty()
    }

    /// Answers the status requests that could not be answered before.
    pub(super) fn answer_late(&mut self, now: u64) {
        if self.is_deaf && self.collectives.askers.iter().any(|(_, about)| *about == HEARING) {
            self.answer_askers(now);
        }
    }

    /// This rank sends no more messages, and all that it sent have arrived.
    pub(in crate::world) fn stand_at_end(&mut self) {
        self.is_at_end = true;
        let now = self.now();
        self.answer_askers(now);
    }

    /// Answers the open status requests that can be answered now.
    fn answer_askers(&mut self, now: u64) {
        for (asker, context) in core::mem::take(&mut self.collectives.askers) {
            self.handle_ask(now, asker, context);
        }
        if !self.is_whole() {
            self.push(now);
        }
    }

    /// This rank takes no more part in a context: one of its collectives failed because of `cause`.
    pub(super) fn retire(&mut self, now: u64, context: u32, cause: Rank) {
        let Some(of) = self.collectives.contexts.get_mut(context).filter(|of| of.over.is_none()) else { return };
        of.over = Some(cause);
        let members = of.members.clone();
        self.leave_boards(context);
        let own = PeerId::from(self.rank);
        for member in members.iter().map(PeerId::from) {
            if member != own {
                self.tell_word(now, member, Word::Gone, context, cause);
            }
        }
        self.answer_askers(now);
    }

    /// Marks this rank as retired in the context's collective area, for members that wait there.
    fn leave_boards(&self, context: u32) {
        let (Some(of), Some(near)) = (self.collectives.contexts.get(context), &self.near) else { return };
        match of.room {
            Some(room) => self.collectives.rooms.retire(room),
            // Any other context without a slot has released it.
            None if context == WORLD && of.boards.is_some() => near.node.retire(),
            None => {}
        }
    }

    /// Sends a status message about a context.
    pub(super) fn tell_word(&mut self, now: u64, to: PeerId, word: Word, context: u32, rank: Rank) {
        let kind = match word {
            Word::Ask => ASK,
            Word::Gone => GONE,
            Word::Revoked => REVOKED,
            Word::Left => LEFT,
            Word::Deaf => DEAF,
        };
        let ([low, high, ..], [a, b, c, d]) = (context.to_le_bytes(), rank.0.to_le_bytes());
        let said: [u8; WORD] = [kind, 0, low, high, a, b, c, d];
        if !self.is_near(to) {
            return self.post(now, Outgoing::new(to, &said));
        }
        if living(&mut self.near, to).is_some_and(|neighbour| neighbour.tell([am_header::NOTIFICATION, 0], &said).is_err()) {
            self.disown(to);
        }
    }

    /// Sends a rank one status request about a context.
    pub(super) fn ask(&mut self, now: u64, to: PeerId, context: u32) {
        if !self.collectives.asked.contains(&(to, context)) {
            self.collectives.asked.push((to, context));
            self.tell_word(now, to, Word::Ask, context, self.rank);
        }
    }

    /// A rank asks to be notified when this one takes no more part in a context.
    pub(super) fn handle_ask(&mut self, now: u64, from: PeerId, context: u32) {
        match self.collectives.contexts.over(context) {
            _ if context == EVERY && self.is_at_end => self.tell_word(now, from, Word::Left, EVERY, self.rank),
            _ if context == HEARING && self.is_deaf_to(from) => {
                self.tell_word(now, from, Word::Deaf, EVERY, self.rank);
            }
            Some(cause) => self.tell_word(now, from, Word::Gone, context, cause),
            None if self.collectives.is_over && context < EVERY => {
                self.tell_word(now, from, Word::Gone, EVERY, self.rank)
            }
            None if self.collectives.askers.contains(&(from, context)) => {}
            None => self.collectives.askers.push((from, context)),
        }
    }

    /// A member of a context that has died; one that finished may have done all of its part before.
    fn dead_member(&self, context: u32) -> Option<Rank> {
        let members = &self.collectives.contexts.get(context)?.members;
        let gone = self.collectives.dead.iter().map(|peer| Rank::from(*peer));
        let has_died = |rank: &Rank| matches!(self.ended(*rank), Some(Failure::PeerFailed(_)));
        gone.filter(|rank| members.number(*rank).is_some()).find(has_died)
    }

    /// Sends status requests to the ranks that collectives have waited for for a while, and fails those that are beyond
    /// hope.
    pub(super) fn tend_collectives(&mut self, now: u64) {
        let awaited = self.collectives.awaited();
        let late: Vec<Awaited> = awaited.filter(|awaited| now.wrapping_sub(awaited.since) >= PATIENCE).collect();
        for Awaited { peer, context, since, .. } in late {
            match self.dead_member(context).filter(|_| now.wrapping_sub(since) >= HOPELESS) {
                Some(dead) => self.fail_context(now, context, FailureCause::Missing, dead),
                None => self.ask(now, peer, context),
            }
        }
        self.look_for_others(now);
        self.doubt(now);
        self.watch(now);
    }
}
