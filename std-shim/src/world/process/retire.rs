//! Ranks that take no part in a communicator's collectives any more, or send nothing any more: who asks is told.
//!
//! A collective that has waited for a rank for a while asks it, once. That rank answers when it has finished, or one of its
//! collectives there has failed: at once, or whenever that is. What it said before arrives before. All members hear of a failure without
//! having asked: it may make no progress afterwards. Where not even that leaves, and a member is known to be dead, nobody is waited for
//! for long.
//!
//! So it is with messages. A rank that finishes receives none any more, and once those that it has met are in their places tells so
//! whoever has asked, behind everything that it has to say of that one's messages: what that one does not know then to be received never
//! is. Once all that it sent has arrived, it tells that nothing comes of it any more.

use unisono_core::collective::Cause;
use unisono_core::device::PeerId;
use unisono_shmem::am_header;

use super::Process;
use super::steps::living;
use crate::rank::Rank;
use crate::world::collective::context::{EVERY, HEARING, WORLD};
use crate::world::collective::table::{Awaited, Outgoing};
use crate::world::request::Failure;

/// Kinds of messages that are neither of matching nor of steps: kind, 0, context (16 bits), rank (32 bits).
pub(in crate::world) const ASK: u8 = 240;
pub(in crate::world) const GONE: u8 = 241;
pub(in crate::world) const REVOKED: u8 = 242;
pub(in crate::world) const LEFT: u8 = 243;
pub(in crate::world) const DEAF: u8 = 244;
/// Bytes of such a message.
pub(in crate::world) const WORD: usize = 8;
/// Nanoseconds after which the rank that a collective waits for is asked.
pub(super) const PATIENCE: u64 = 40_000_000;
/// Nanoseconds after which a collective that has a dead member fails, whomever it waits for: that one may have failed because of the
/// dead one, and make no progress any more.
const HOPELESS: u64 = 500_000_000;

/// Steps that a message of a rank's own takes at most, from its meeting to its place.
const ROUNDS: u32 = 8;

/// What is said of a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Word {
    /// Who asks is told when this rank takes no part there any more; of [`EVERY`]: when it receives no message any more, and when it
    /// sends none.
    Ask,
    /// That is so, because of the rank.
    Gone,
    /// It is revoked. Members alone are believed, so that it need not say which communicator of that context.
    Revoked,
    /// The rank sends no message any more.
    Left,
    /// It receives none any more.
    Deaf,
}

impl Process {
    /// This rank begins nothing any more: no collective, no receive, no send.
    pub(in crate::world) fn retire_at_end(&mut self) {
        self.collectives.is_over = true;
        self.collectives.rooms.retire_from_all();
        self.is_deaf = true;
        // What this rank has sent to itself and met goes to its place first: nobody else is needed for that.
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

    /// Whether this rank receives nothing any more of a peer, which has been told of all that it received.
    fn is_deaf_to(&mut self, peer: PeerId) -> bool {
        if !self.is_deaf || self.mailbox.receives() {
            return false;
        }
        self.mailbox.machine.settle(peer);
        self.follow_messages();
        self.mailbox.errands.is_empty() && self.mailbox.late_grants.is_empty() && self.outbox.is_empty()
    }

    /// Those who wait for a word that could not be given yet are told once it can be.
    pub(super) fn answer_late(&mut self, now: u64) {
        if self.is_deaf && self.collectives.askers.iter().any(|(_, about)| *about == HEARING) {
            self.answer_askers(now);
        }
    }

    /// This rank sends no message any more, and every one that it sent has arrived.
    pub(in crate::world) fn stand_at_end(&mut self) {
        self.is_at_end = true;
        let now = self.now();
        self.answer_askers(now);
    }

    /// Those who have asked are told what they can be told now.
    fn answer_askers(&mut self, now: u64) {
        for (asker, context) in core::mem::take(&mut self.collectives.askers) {
            self.handle_ask(now, asker, context);
        }
        if !self.is_whole() {
            self.push(now);
        }
    }

    /// This rank takes no part in a context any more: one of its collectives failed, because of that rank.
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

    /// Who waits for this rank in what a context has of the node's memory is told.
    fn leave_boards(&self, context: u32) {
        let (Some(of), Some(near)) = (self.collectives.contexts.get(context), &self.near) else { return };
        match of.room {
            Some(room) => self.collectives.rooms.retire(room),
            // Another one without a room has given it back.
            None if context == WORLD && of.boards.is_some() => near.node.retire(),
            None => {}
        }
    }

    /// Says something of a context.
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
        if living(&mut self.near, to).is_some_and(|neighbour| neighbour.tell([am_header::WORD, 0], &said).is_err()) {
            self.disown(to);
        }
    }

    /// Asks a rank, once, to tell when it takes no part in a context any more.
    pub(super) fn ask(&mut self, now: u64, to: PeerId, context: u32) {
        if !self.collectives.asked.contains(&(to, context)) {
            self.collectives.asked.push((to, context));
            self.tell_word(now, to, Word::Ask, context, self.rank);
        }
    }

    /// A rank wants to hear when this one takes no part in a context any more.
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

    /// A member of a context that has died; who has finished may have done all of its part before.
    fn dead_member(&self, context: u32) -> Option<Rank> {
        let members = &self.collectives.contexts.get(context)?.members;
        let gone = self.collectives.dead.iter().map(|peer| Rank::from(*peer));
        let has_died = |rank: &Rank| matches!(self.ended(*rank), Some(Failure::PeerFailed(_)));
        gone.filter(|rank| members.number(*rank).is_some()).find(has_died)
    }

    /// Asks those that collectives have waited for for a while.
    pub(super) fn tend_collectives(&mut self, now: u64) {
        let awaited = self.collectives.awaited();
        let late: Vec<Awaited> = awaited.filter(|awaited| now.wrapping_sub(awaited.since) >= PATIENCE).collect();
        for Awaited { peer, context, since, .. } in late {
            match self.dead_member(context).filter(|_| now.wrapping_sub(since) >= HOPELESS) {
                Some(dead) => self.fail_context(now, context, Cause::Missing, dead),
                None => self.ask(now, peer, context),
            }
        }
        self.look_for_others(now);
        self.doubt(now);
        self.watch(now);
    }
}
