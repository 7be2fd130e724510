//! The rails of an endpoint: the records of each send window, and links that go down and come up.

use super::{Endpoint, Now};
use crate::endpoint::peer::Peer;
use crate::endpoint::storage::Storage;
use crate::ids::Rail;
use crate::list::NONE;
use crate::path::Path;
use crate::time::Time;
use crate::window::rails::{MAX_RAILS, RailState, Rails};
use crate::wire::{Acknowledgement, DatagramKind, Echo, Flags, Header};

/// The rails of a send window: `path`, or several records of the pool.
#[inline]
pub(super) fn of<'a, T: Time>(
    path: &'a mut Path<T>,
    pool: &'a mut [RailState<T>],
    count: u8,
    sender: u32,
) -> Rails<'a, T> {
    if MAX_RAILS == 1 || count <= 1 {
        return Rails::one(path);
    }
    let (first, count) = ((sender as usize).wrapping_mul(usize::from(count)), usize::from(count));
    Rails::new(path, pool.get_mut(first..first.wrapping_add(count)).unwrap_or_default())
}

/// The state of the links, which all peers share: nothing with the feature `optimize_for_size`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Links {
    /// Rails to each peer.
    #[cfg(not(feature = "optimize_for_size"))]
    count: u8,
    /// Rails whose link is down.
    #[cfg(not(feature = "optimize_for_size"))]
    down: u8,
    /// Rails over which some peer did not answer of late.
    #[cfg(not(feature = "optimize_for_size"))]
    suspects: u8,
}

#[cfg(not(feature = "optimize_for_size"))]
impl Links {
    /// For pools with this number of records of rails, and of send windows.
    pub(super) fn new(records: usize, senders: usize) -> Self {
        let count = records.checked_div(senders).unwrap_or(0).clamp(1, usize::from(MAX_RAILS)) as u8;
        Self { count, down: 0, suspects: 0 }
    }

    /// Rails to each peer.
    #[inline]
    pub(super) const fn count(&self) -> u8 {
        self.count
    }

    /// Rails that have to answer a probe before they are used.
    pub(super) const fn doubtful(&self) -> u8 {
        self.down | self.suspects
    }

    /// The dead rails to a peer; `answered` may have been among them.
    #[inline]
    pub(super) fn note(&mut self, dead: impl FnOnce() -> u8, answered: Option<Rail>) {
        if self.count > 1 {
            let cleared = answered.map_or(0, |rail| 1 << (rail.0 & 7));
            self.suspects = self.suspects & !cleared | dead();
        }
    }

    fn set_down(&mut self, rail: Rail, is_down: bool) {
        let mask = 1 << (rail.0 & 7);
        self.down = if is_down { self.down | mask } else { self.down & !mask };
    }
}

#[cfg(feature = "optimize_for_size")]
impl Links {
    pub(super) const fn new(_: usize, _: usize) -> Self {
        Self {}
    }

    pub(super) const fn count(&self) -> u8 {
        1
    }

    pub(super) const fn doubtful(&self) -> u8 {
        0
    }

    pub(super) fn note(&mut self, _: impl FnOnce() -> u8, _: Option<Rail>) {}

    fn set_down(&mut self, _: Rail, _: bool) {}
}

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// Rails to each peer.
    #[inline]
    pub const fn rails(&self) -> u8 {
        self.links.count()
    }

    /// Whether there are several rails.
    #[inline]
    pub(super) const fn has_rails(&self) -> bool {
        self.rails() > 1
    }

    /// The rails, one bit for each, that have to answer a probe before they are used for a peer without a send window:
    /// their link is down, or some peer did not answer over them of late.
    pub const fn doubtful_rails(&self) -> u8 {
        self.links.doubtful()
    }

    /// The records of the rails of all send windows, used or not: [`rails`](Self::rails) for each window, none if there
    /// is one rail.
    pub fn all_rail_states(&self) -> &[RailState<S::Time>] {
        self.rails.as_ref()
    }

    /// What is known of the rails to a peer that has a send window: none if there is one rail.
    pub fn rail_states(&self, peer: crate::ids::PeerId) -> &[RailState<S::Time>] {
        let sender = self.peers.as_ref().get(peer.0 as usize).map_or(usize::MAX, |peer| usize::from(peer.sender()));
        let count = usize::from(self.rails());
        let first = sender.saturating_mul(count);
        let records = self.rails.as_ref().get(first..first.saturating_add(count));
        if self.has_rails() { records.unwrap_or_default() } else { &[] }
    }

    /// The rail for an acknowledgement or a control message: that of the peer's latest data if it lives, else another.
    pub(super) fn control_rail(&self, peer: &Peer<S::Time, BITS>) -> Rail {
        if !self.has_rails() {
            return Rail(0);
        }
        let preferred = peer.rail();
        let count = usize::from(self.rails());
        let first = usize::from(peer.sender()).saturating_mul(count);
        let records = self.rails.as_ref().get(first..first.saturating_add(count)).unwrap_or_default();
        let lives = |rail: &Rail| match records.get(usize::from(rail.0)) {
            Some(state) => !state.is_dead(),
            None => self.links.doubtful() & 1 << (rail.0 & 7) == 0,
        };
        let mut others = (0..self.rails()).map(Rail);
        if lives(&preferred) { preferred } else { others.find(lives).unwrap_or(preferred) }
    }

    /// The rail for a Bye or Abort: another in each round.
    pub(super) fn bye_rail(&self, peer: &Peer<S::Time, BITS>, round: u8) -> Rail {
        let first = self.control_rail(peer);
        if self.has_rails() {
            return Rail(first.0.wrapping_add(round).checked_rem(self.rails()).unwrap_or(0));
        }
        first
    }

    /// A rail's link went down or came up: segments move to other rails, or the rail is probed.
    #[cfg_attr(feature = "optimize_for_size", allow(dead_code, reason = "several rails"))]
    pub(super) fn handle_link(&mut self, now: Now<S, W, BITS>, rail: Rail, is_up: bool) {
        if rail.0 >= self.rails() {
            return;
        }
        self.links.set_down(rail, !is_up);
        for sender in 0..self.senders.as_ref().len() as u32 {
            let Some(record) = self.senders.as_mut().get_mut(sender as usize) else { break };
            if record.peer == NONE || record.flags & super::ORPHANED != 0 {
                continue;
            }
            let mut rails = of(&mut record.path, self.rails.as_mut(), self.links.count(), sender);
            if is_up {
                rails.request_probe(Some(rail));
            } else {
                rails.handle_death(rail);
            }
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
        let window = self.receivers.as_ref().get(usize::from(peer.receiver));
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
        self.queue_control(super::ControlMessage {
            to: header.rank,
            kind: DatagramKind::Acknowledge,
            flags: Flags::ANSWER.with_count(header.flags.count()),
            expected,
            psn: header.psn,
            acknowledged: u32::from(rail.0),
        });
    }
}
