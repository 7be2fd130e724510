//! Communicators from the process's side: opening, revoking and freeing their contexts.

use alloc::sync::Arc;

use unisono_core::collective::FailureCause;
use unisono_core::ids::{MessageId, PeerId};
use unisono_core::message::{Context as Message, Envelope, Pattern};
use unisono_core::span::Region;

use super::Process;
use super::messages::ReceiveTarget;
use crate::environment::{RankLocation, Subgroups};
use crate::world::collective::engine::context::{AgreedContext, message_context};
use crate::world::group::Group;
use crate::world::request::Failure;
use unisono_bootstrap::{Membership, Rank};
use unisono_memory::memory_regions::RegionRange;

impl Process {
    /// Whether this rank shares memory with all ranks of its node.
    pub(in crate::world) fn shares_its_node(&self) -> bool {
        let ranks = self.node_of(self.rank).map_or(0, |own| {
            let table = self.membership.as_ref().map_or(&[][..], |membership| membership.table());
            table.iter().filter(|entry| entry.node == own).count()
        });
        ranks == 1 || self.transport.shm.as_ref().map(|shm| shm.peer_count as usize + 1) == Some(ranks)
    }

    /// Whether all members are on one node.
    pub(in crate::world) fn are_on_one_node(&self, members: &Group) -> bool {
        let mut nodes = members.iter().map(|rank| self.node_of(rank));
        let first = nodes.next().flatten();
        first.is_some() && nodes.all(|node| node == first)
    }

    fn node_of(&self, rank: Rank) -> Option<u32> {
        Some(self.membership.as_ref()?.table().get(rank.0 as usize)?.node)
    }

    /// Where a rank runs, as it has said when it joined.
    pub(in crate::world) fn located(&self, rank: Rank) -> RankLocation {
        let table = self.membership.as_ref().map(Membership::table).unwrap_or_default();
        table.get(rank.0 as usize).map(RankLocation::from).unwrap_or_default()
    }

    /// Opens the context of a new communicator.
    pub(in crate::world) fn open_context(
        &mut self,
        context: u32,
        generation: u32,
        members: Group,
        is_intra_node: bool,
    ) {
        let located: Vec<RankLocation> = members.iter().map(|rank| self.located(rank)).collect();
        let subgroups = Subgroups::new(self.choices.hierarchy, &located).map(Arc::new);
        self.collectives.open((context, generation), members, is_intra_node, subgroups);
    }

    /// A new communicator has taken a multicast group of the pool, by its slot there.
    pub(in crate::world) fn set_group(&mut self, context: u32, group: Option<u8>) {
        if let Some(of) = self.collectives.contexts.get_mut(context) {
            of.group = group;
        }
    }

    /// Revokes a new communicator if a member's revocation arrived before it was opened.
    pub(in crate::world) fn apply_early_revocation(&mut self, context: u32) {
        if self.collectives.contexts.take_early_revocation(context) {
            self.revoke_and_transmit(context);
        }
    }

    /// All members agreed on a communicator: its context and slots are no longer free.
    pub(in crate::world) fn reserve(&mut self, agreed: &AgreedContext) {
        self.collectives.contexts.reserve(agreed.context, agreed.generation);
        self.collectives.communicator_slots.reserve(agreed.slots);
    }

    /// This rank is no member of the communicator; or it does not know, and some of the ranks in `among` may count it
    /// as one.
    pub(in crate::world) fn unreserve(&mut self, agreed: &AgreedContext, among: &Group, is_known: bool) {
        if !self.collectives.contexts.give_back(agreed.context, is_known, self.rank) {
            return;
        }
        match is_known {
            true => self.collectives.communicator_slots.release(agreed.slots),
            false => self.collectives.communicator_slots.free(agreed.slots, among),
        }
    }

    /// Whether the communicator accepts new operations.
    #[inline]
    pub(in crate::world) fn expect_open(&self, context: u32) -> Result<(), Failure> {
        if !self.revoked.is_empty() && self.collectives.contexts.get(context).is_some_and(|context| context.is_revoked)
        {
            return Err(Failure::Revoked);
        }
        Ok(())
    }

    /// Whether a rank is a member of the communicator whose messages carry `named`.
    pub(in crate::world) fn is_member(&self, named: Message, rank: Rank) -> bool {
        let context = self.collectives.contexts.get(named.0 & 0xffff);
        context.is_none_or(|context| context.members.number(rank).is_some())
    }

    /// Revokes a communicator, and transmits the notifications.
    pub(in crate::world) fn revoke_and_transmit(&mut self, context: u32) {
        let now = self.now();
        self.revoke_context(now, context);
        if !self.is_single_node() {
            self.transmit(now);
        }
    }

    /// Fails all collectives of a context if a member of it has died.
    pub(in crate::world) fn fail_if_member_died(&mut self, context: u32) {
        let Some(of) = self.collectives.contexts.get(context) else { return };
        let dead = of.members.iter().find(|rank| self.has_died(*rank)).or(of.reports.dead);
        let Some(dead) = dead else { return };
        let now = self.now();
        self.fail_context(now, context, FailureCause::Missing, dead);
        if !self.is_single_node() {
            self.transmit(now);
        }
    }

    /// Revokes the point-to-point messages of a communicator: its pending receives end, and messages that arrive are
    /// dropped, so that their senders need not wait.
    pub(super) fn revoke_messages(&mut self, context: u32) {
        let Some(of) = self.collectives.contexts.get(context) else { return };
        let named = message_context(context, of.generation);
        self.revoked.push(named);
        for handle in self.unmatched(|pattern| pattern.context == named) {
            self.cancel_receive(handle, Failure::Revoked);
        }
        for (message, Envelope { source, .. }) in
            self.messages.matched_probes.extract_if(.., |(_, of)| of.context == named).collect::<Vec<_>>()
        {
            self.drop_message(message, source);
        }
        self.drop_revoked();
    }

    /// Drops messages of revoked communicators that arrived since.
    pub(super) fn drop_revoked(&mut self) {
        for context in self.revoked.clone() {
            let anything = Pattern { context, source: None, tag: None };
            while let Some((message, status)) = self.messenger.matching_mut().matched_probe(anything) {
                self.drop_message(message, status.envelope.source);
            }
        }
        if !self.revoked.is_empty() {
            self.run_deferred_if_any();
        }
    }

    /// Drops a message that a matched probe removed; the next progress notifies its sender.
    pub(in crate::world) fn drop_message(&mut self, message: MessageId, source: PeerId) {
        let (request, nowhere) =
            (self.requests.start(), RegionRange { region: Region::default(), offset: 0, bytes: 0 });
        let wanted = ReceiveTarget::Matched(message, source);
        if self.post_receive(wanted, nowhere, request).is_some() {
            // A message without bytes whose header its sender still has will arrive later.
            self.requests.abandon(request);
        } else {
            self.requests.release(request);
        }
        self.run_deferred_if_any();
    }

    /// Nothing will be called on the communicator any more.
    pub(in crate::world) fn free_context(&mut self, context: u32) {
        if let Some((slots, members)) = self.collectives.contexts.free(context) {
            self.collectives.communicator_slots.free(slots, &members);
        }
        let multicast = &mut self.collectives.multicast;
        let group = self.collectives.contexts.get_mut(context).and_then(|of| of.group.take());
        if let (Some(slot), Some(pool)) = (group, &mut multicast.pool) {
            pool.freed.push((context, slot));
            (multicast.has_work, self.collectives.work.has_work) = (true, true);
        }
        self.collectives.trees.end(|of| of == context);
        let now = self.now();
        self.progress_trees(now);
    }

    /// This process has finished: calls on a communicator that outlives the World fail.
    pub(in crate::world) fn close(&mut self) {
        self.aborted.get_or_insert(Failure::Finished);
        self.requests.fail_all(Failure::Finished);
        self.abort_collectives(Failure::Finished);
    }
}
