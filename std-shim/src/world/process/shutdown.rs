//! Leaving: how a rank reports that it takes no more part in a communicator's collectives, or sends or receives no more
//! messages.
//!
//! A collective that has waited for a rank for a while sends it one status request. The rank answers when it has
//! finished, or one of its collectives of that communicator has failed: at once, or when that happens. Its earlier
//! messages arrive before the answer. A failure is sent to all members without a request, since the rank may make no
//! progress afterwards. Where not even that arrives, and a member is known to be dead, the collective fails after
//! [`FAIL_AFTER`]. The rank that is asked also reports such a member: it may have given up because of it outside of
//! collectives, and the rank that asks may wait for nobody else.
//!
//! Point-to-point messages end likewise. A rank that finishes stops receiving, and once the messages that it has
//! matched are complete, notifies each rank that has asked, after all acknowledgements to that rank: a send that is not
//! acknowledged by then never will be. Once all that the rank sent has arrived, it also reports that it sends no more.

use unisono_core::collective::FailureCause;
use unisono_core::ids::PeerId;
use unisono_core::messenger::Class;

use super::Process;
use crate::world::collective::engine::context::{ALL_CONTEXTS, RECEIVE_STATUS, WORLD};
use crate::world::collective::engine::progress_table::AwaitedRank;
use crate::world::collective::engine::status::StatusMessage;
use crate::world::request::Failure;
use unisono_bootstrap::Rank;

/// Nanoseconds after which a collective sends a status request to the rank that it waits for.
pub(super) const ASK_AFTER: u64 = 40_000_000;
/// Nanoseconds after which a collective with a dead member fails whichever rank it waits for: that rank may have failed
/// because of the dead one, and make no more progress.
const FAIL_AFTER: u64 = 500_000_000;

/// Which ranks, this one included, have ended their messages.
#[derive(Debug, Default)]
pub(super) struct Shutdown {
    /// Whether this rank has sent its last message, and the ranks that reported the same.
    pub(super) has_sent_all: bool,
    pub(super) finished_senders: Vec<PeerId>,
    /// Whether this rank starts nothing more, and the ranks that reported that they receive no more messages.
    pub(super) has_closed_receives: bool,
    pub(super) closed_receivers: Vec<PeerId>,
}

/// Most steps that a message to this rank itself takes from its match to its place.
const ROUNDS: u32 = 16;

impl Process {
    /// This rank starts nothing any more: no collective, no receive, no send.
    pub(in crate::world) fn close_receives(&mut self) {
        self.collectives.is_finished = true;
        self.collectives.trees.end(|_| true);
        if let Some(pool) = &mut self.collectives.multicast.pool {
            // No group is made any more.
            pool.root = None;
        }
        self.collectives.communicator_slots.retire_from_all();
        self.shutdown.has_closed_receives = true;
        // Messages to this rank itself that have matched are completed first: no other rank is needed for that.
        for _ in 0..ROUNDS {
            self.run_deferred();
        }
        for handle in self.unmatched(|_| true) {
            self.cancel_receive(handle, Failure::Finished);
        }
        self.abandon_sends(self.rank.into(), Failure::Finished);
        let now = self.now();
        self.answer_status_waiters(now);
    }

    /// Whether this rank receives nothing more from a peer, and has acknowledged all that it received.
    fn has_closed_receives_to(&mut self, peer: PeerId) -> bool {
        if !self.shutdown.has_closed_receives || self.messenger.has_receives() {
            return false;
        }
        self.messenger.matching_mut().report_settled(peer);
        self.run_deferred();
        !self.has_deferred() && !self.messenger.has_queued(Class::PointToPoint)
    }

    /// Answers the status requests that could not be answered before.
    pub(super) fn answer_deferred(&mut self, now: u64) {
        if self.shutdown.has_closed_receives
            && self.collectives.status.waiters.iter().any(|(_, about)| *about == RECEIVE_STATUS)
        {
            self.answer_status_waiters(now);
        }
    }

    /// This rank sends no more messages, and all that it sent have arrived.
    pub(in crate::world) fn announce_sends_done(&mut self) {
        self.shutdown.has_sent_all = true;
        let now = self.now();
        self.answer_status_waiters(now);
    }

    /// Answers the open status requests that can be answered now.
    pub(super) fn answer_status_waiters(&mut self, now: u64) {
        for (asker, context) in core::mem::take(&mut self.collectives.status.waiters) {
            self.handle_ask(asker, context);
        }
        if !self.is_single_node() {
            self.transmit(now);
        }
    }

    /// This rank takes no more part in a context: one of its collectives failed because of `cause`.
    pub(super) fn retire(&mut self, now: u64, context: u32, cause: Rank) {
        let Some(of) = self.collectives.contexts.get_mut(context).filter(|of| of.retired_by.is_none()) else { return };
        of.retired_by = Some(cause);
        let members = of.members.clone();
        self.retire_from_areas(context);
        let own = PeerId::from(self.rank);
        for member in members.iter().map(PeerId::from) {
            if member != own {
                self.send_status_message(member, StatusMessage::Retired, context, cause);
            }
        }
        self.answer_status_waiters(now);
    }

    /// Marks this rank as retired in the context's collective area, for members that wait there.
    fn retire_from_areas(&self, context: u32) {
        let (Some(of), Some(shm)) = (self.collectives.contexts.get(context), &self.transport.shm) else { return };
        self.collectives.communicator_slots.retire(of.slots);
        if context == WORLD && of.areas.is_some() {
            shm.node.retire();
        }
    }

    /// Sends a status message about a context.
    pub(super) fn send_status_message(&mut self, to: PeerId, word: StatusMessage, context: u32, rank: Rank) {
        self.send_control(to, &word.encode(context, rank));
    }

    /// Sends a rank one status request about a context.
    pub(super) fn ask(&mut self, to: PeerId, context: u32) {
        if !self.collectives.status.asked.contains(&(to, context)) {
            self.collectives.status.asked.push((to, context));
            self.send_status_message(to, StatusMessage::Ask, context, self.rank);
        }
    }

    /// A rank asks to be notified when this one takes no more part in a context. It may wait for this rank alone, so that
    /// it learns of a member's death from this one.
    pub(super) fn handle_ask(&mut self, from: PeerId, context: u32) {
        match self.collectives.contexts.retired_by(context) {
            _ if context == ALL_CONTEXTS && self.shutdown.has_sent_all => {
                self.send_status_message(from, StatusMessage::SendsDone, ALL_CONTEXTS, self.rank)
            }
            _ if context == RECEIVE_STATUS && self.has_closed_receives_to(from) => {
                self.send_status_message(from, StatusMessage::ReceivesClosed, ALL_CONTEXTS, self.rank);
            }
            Some(cause) => self.send_status_message(from, StatusMessage::Retired, context, cause),
            None if self.collectives.is_finished
                && context < ALL_CONTEXTS
                // The answer is about all contexts, and overtakes what multicast repairs and trees have to send.
                && self.collectives.multicast.is_idle() && self.collectives.trees.is_idle() =>
            {
                self.send_status_message(from, StatusMessage::Retired, ALL_CONTEXTS, self.rank)
            }
            None => {
                let dead = self.failed_member(context).filter(|dead| PeerId::from(*dead) != from);
                if let (Some(dead), Some(of)) = (dead, self.collectives.contexts.get(context)) {
                    let generation = of.status_generation();
                    self.send_status_message(from, StatusMessage::MemberDied { generation }, context, dead);
                }
                if !self.collectives.status.waiters.contains(&(from, context)) {
                    self.collectives.status.waiters.push((from, context));
                }
            }
        }
    }

    /// A member of a context that has died, also to the knowledge of another member only; one that finished may have
    /// done all of its part before.
    fn failed_member(&self, context: u32) -> Option<Rank> {
        let of = self.collectives.contexts.get(context)?;
        let gone = self.collectives.failed.iter().map(|peer| Rank::from(*peer));
        let own = gone.filter(|rank| of.members.number(*rank).is_some()).find(|rank| self.has_died(*rank));
        own.or(of.reports.dead)
    }

    /// Whether another rank has died, to the knowledge of the transport, which is earlier than that of collectives.
    pub(super) fn has_died(&self, rank: Rank) -> bool {
        matches!(self.why_gone(rank), Some(Failure::PeerFailed(_)))
    }

    /// Sends status requests to the ranks that collectives have waited for for a while, and fails those that are beyond
    /// hope.
    pub(super) fn check_collectives(&mut self, now: u64) {
        let awaited = self.collectives.awaited();
        let late: Vec<AwaitedRank> = awaited.filter(|awaited| now.wrapping_sub(awaited.since) >= ASK_AFTER).collect();
        for AwaitedRank { peer, context, since, .. } in late {
            match self.failed_member(context).filter(|_| now.wrapping_sub(since) >= FAIL_AFTER) {
                Some(dead) => self.fail_context(now, context, FailureCause::Missing, dead),
                None => self.ask(peer, context),
            }
        }
        self.detect_divergence(now);
        self.ask_for_divergence(now);
        self.report_hangs(now);
    }
}
