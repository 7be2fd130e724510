//! The rails of an endpoint: the records of each send window, and links that go down and come up.

use super::{Endpoint, Now, SenderFlags};
use crate::endpoint::peer::{NO_WINDOW, Peer};
use crate::endpoint::storage::Storage;
use crate::ids::{PeerId, Rail};
use crate::list::NONE;
use crate::window::rails::{RailMask, RailState, Rails, bit};
use crate::wire::{Acknowledgement, DatagramKind, Echo, Flags, Header};

/// The state of the links, which all peers share.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Links {
    /// Rails whose link is down.
    down: RailMask,
    /// Rails over which some peer did not answer of late.
    suspects: RailMask,
    /// Rails that do not lead to every peer.
    partial: RailMask,
}

impl Links {
    pub(super) const UP: Self = Self { down: 0, suspects: 0, partial: 0 };

    /// Rails that are out of use: down, or without an answer of late.
    pub(super) const fn doubtful(&self) -> RailMask {
        self.down | self.suspects
    }

    /// Rails that have to answer a probe before a new send window uses them.
    pub(super) const fn unproven(&self) -> RailMask {
        self.doubtful() | self.partial
    }

    /// Notes the rails to a peer that died, and one that every peer with a send window answers over.
    fn note(&mut self, died: RailMask, cleared: Option<Rail>) {
        let cleared = cleared.map_or(0, bit);
        self.suspects = self.suspects & !cleared | died;
    }

    /// A link that came up has to answer first: what it leads to may not be there.
    fn set_down(&mut self, rail: Rail, is_down: bool) {
        let mask = bit(rail);
        if !is_down {
            self.suspects |= self.down & mask;
        }
        self.down = if is_down { self.down | mask } else { self.down & !mask };
    }
}

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// Rails to each peer.
    #[inline]
    pub const fn rails(&self) -> u8 {
        self.senders.rail_count()
    }

    /// Whether there are several rails.
    #[inline]
    pub(super) const fn has_rails(&self) -> bool {
        self.rails() > 1
    }

    /// The rails that are out of use, one bit for each: their link is down, or some peer did not answer over them of
    /// late. Not those that a peer lacks.
    pub const fn doubtful_rails(&self) -> RailMask {
        self.links.doubtful()
    }

    /// The records of the rails of all send windows, used or not: [`rails`](Self::rails) for each window, none if there
    /// is one rail.
    pub fn all_rail_states(&self) -> &[RailState<S::Time>] {
        self.senders.rail_states()
    }

    /// What is known of the rails to a peer that has a send window: none if there is one rail.
    pub fn rail_states(&self, peer: PeerId) -> &[RailState<S::Time>] {
        let sender = self.peers.as_ref().get(peer.0 as usize).map_or(NO_WINDOW, Peer::sender);
        self.senders.rails_of(u32::from(sender))
    }

    /// Notes the rails to a peer that died, after a timeout or an answer over a rail.
    pub(super) fn note_rails(&mut self, died: RailMask, answered: Option<Rail>) {
        // One that another peer does not answer over stays suspect.
        let is_suspect = |rail: &Rail| self.links.suspects & bit(*rail) != 0;
        let cleared = answered.filter(is_suspect).filter(|rail| !self.senders.has_died(*rail));
        self.links.note(died, cleared);
    }

    /// The rail for an acknowledgement or a control message: that of the peer's latest data if it lives, else another.
    pub(super) fn control_rail(&self, peer: &Peer<S::Time, BITS>) -> Rail {
        if !self.has_rails() {
            return Rail(0);
        }
        let preferred = peer.rail();
        let records = self.senders.rails_of(u32::from(peer.sender()));
        let lives = |rail: &Rail| match records.get(usize::from(rail.0)) {
            Some(state) => !state.is_dead(),
            None => self.links.doubtful() & 1 << (rail.0 & 7) == 0,
        };
        let mut others = (0..self.rails()).map(Rail);
        if lives(&preferred) { preferred } else { others.find(lives).unwrap_or(preferred) }
    }

    /// The rail for a Bye: another in each round.
    pub(super) fn bye_rail(&self, peer: &Peer<S::Time, BITS>, round: u8) -> Rail {
        let first = self.control_rail(peer);
        if self.has_rails() {
            return Rail(first.0.wrapping_add(round).checked_rem(self.rails()).unwrap_or(0));
        }
        first
    }

    /// Probes a rail to a peer, which may answer over it now. Without effect if the peer has no send window.
    pub fn probe_rail(&mut self, now: Now<S, W, BITS>, peer: PeerId, rail: Rail) {
        if self.has_rails() && rail.0 < self.rails() {
            self.update_rail(now, peer, |rails| rails.request_probe(Some(rail)));
        }
    }

    /// No path leads to the peer over one of several rails. Windows to all peers start with a probe over it from now on,
    /// since a peer's record does not say which rails lead to it.
    pub(super) fn handle_no_path(&mut self, now: Now<S, W, BITS>, peer: PeerId, rail: Rail) {
        if rail.0 < self.rails() {
            self.links.partial |= bit(rail);
            self.update_rail(now, peer, |rails| rails.handle_no_path(rail));
        }
    }

    /// A rail's link went down or came up: segments move to other rails, or the rail is probed.
    #[cfg_attr(feature = "optimize_for_size", allow(dead_code, reason = "several rails"))]
    pub(super) fn handle_link(&mut self, now: Now<S, W, BITS>, rail: Rail, is_up: bool) {
        if rail.0 >= self.rails() {
            return;
        }
        self.links.set_down(rail, !is_up);
        self.update_rails(now, |rails| match is_up {
            true => rails.request_probe(Some(rail)),
            false => rails.handle_no_path(rail),
        });
    }

    /// Updates the rails to a peer that has a send window.
    fn update_rail(&mut self, now: Now<S, W, BITS>, peer: PeerId, update: impl Fn(&mut Rails<'_, S::Time>)) {
        let sender = u32::from(self.peers.as_ref().get(peer.0 as usize).map_or(NO_WINDOW, Peer::sender));
        if let Some((record, rails)) = self.senders.with_rails(sender) {
            update(&mut Rails::new(&mut record.path, rails));
            self.update_sender(now, sender);
        }
    }

    /// Updates the rails to every peer that has a send window.
    fn update_rails(&mut self, now: Now<S, W, BITS>, update: impl Fn(&mut Rails<'_, S::Time>)) {
        for sender in 0..self.senders.len() {
            let Some((record, rails)) = self.senders.with_rails(sender) else { break };
            if record.peer == NONE || record.flags.contains(SenderFlags::ORPHANED) {
                continue;
            }
            update(&mut Rails::new(&mut record.path, rails));
            self.update_sender(now, sender);
        }
    }

    /// Builds the answer to a probe that came over the rail in the message.
    #[cfg_attr(feature = "optimize_for_size", allow(dead_code, reason = "several rails"))]
    pub(super) fn answer_probe(
        &mut self,
        now: Now<S, W, BITS>,
        message: &super::ControlMessage,
    ) -> Option<(Acknowledgement<BITS>, Header<BITS>)> {
        self.grant_credit(message.to);
        let peer = self.peers.as_mut().get_mut(message.to as usize)?;
        let window = self.receivers.get(peer.receiver);
        let psn = crate::ids::Psn::new(message.psn);
        let echo = Some(Echo { psn, count: message.flags.count(), hold: u32::MAX });
        let acknowledgement = peer.receive_state.acknowledge(now, peer.granted, window);
        let header = self.header_to(self.peers.as_ref().get(message.to as usize)?);
        Some((Acknowledgement { echo, answers_probe: true, ..acknowledgement }, header))
    }

    /// Queues the answer to a probe: it returns over the rail that the probe came over, even if that does not seem to
    /// live.
    #[cfg_attr(feature = "optimize_for_size", allow(dead_code, reason = "several rails"))]
    pub(super) fn queue_answer(&mut self, header: &Header<BITS>, rail: Rail) {
        let Some(expected) = self.peers.as_ref().get(header.rank as usize).map(|peer| peer.incarnation) else { return };
        self.control.push(super::ControlMessage {
            to: header.rank,
            kind: DatagramKind::Acknowledge,
            flags: Flags::ANSWER.with_count(header.flags.count()),
            expected,
            psn: header.psn,
            acknowledged: u32::from(rail.0),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{Links, Rail};

    #[test]
    fn a_link_that_is_reported_down_twice_is_down_until_it_is_up() {
        let mut links = Links::UP;
        links.set_down(Rail(1), true);
        links.set_down(Rail(1), true);
        assert_eq!(links.doubtful(), 0b10);
        links.note(0b100, Some(Rail(1)));
        assert_eq!(links.doubtful(), 0b110, "an answer makes no link");
        links.set_down(Rail(1), false);
        links.note(0, Some(Rail(2)));
        assert_eq!(links.doubtful(), 0b10, "nobody has answered over it");
        links.note(0, Some(Rail(1)));
        assert_eq!(links.doubtful(), 0);
    }

    #[test]
    fn an_answer_clears_the_rail_that_it_came_over() {
        let mut links = Links::UP;
        links.note(0b101, None);
        links.note(0, Some(Rail(0)));
        assert_eq!(links.doubtful(), 0b100);
        links.note(0b010, Some(Rail(2)));
        assert_eq!(links.doubtful(), 0b010);
    }
}
