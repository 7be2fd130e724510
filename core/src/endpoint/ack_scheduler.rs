//! When acknowledgements are sent: at once, with data, or after a short delay.

use super::{Endpoint, Now};
use crate::device::{HEADER_ROOM, Transmit, TxReason};
use crate::endpoint::peer::{PeerFlags, PeerState};
use crate::endpoint::storage::Storage;
use crate::endpoint::transmit::control;
use crate::ids::PeerId;
use crate::list::List;
use crate::time::Time;

/// The peers that are owed an acknowledgement.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct AckScheduler<T: Time> {
    /// Peers whose acknowledgement waits for data to carry it.
    pub(super) delayed: List,
    /// Peers whose acknowledgement is sent next.
    pub(super) due: List,
    /// Until when the delayed ones wait.
    pub(super) delayed_until: Option<T::Instant>,
    /// When the first of them was delayed.
    delayed_since: T::Stamp,
    /// One of the delayed peers has no credit left.
    pub(super) lacks_credit: bool,
    /// Some acknowledgement must be sent at once.
    pub(super) urgent: bool,
}

impl<T: Time> AckScheduler<T> {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self {
            delayed: List::EMPTY,
            due: List::EMPTY,
            delayed_until: None,
            delayed_since: T::ZERO,
            lacks_credit: false,
            urgent: false,
        }
    }
}

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// Lists the peer as owed an acknowledgement.
    #[inline]
    pub(super) fn list_ack(&mut self, to: u32) {
        let peers = self.records.peers.as_mut();
        let Some(peer) = peers.get_mut(to as usize) else { return };
        self.acks.urgent |= peer.receive_state.is_urgent();
        if !peer.has(PeerFlags::ACK_LISTED) {
            peer.set(PeerFlags::ACK_LISTED);
            self.acks.delayed.push(peers, to, |peer| &mut peer.ack_link);
        }
    }

    /// Builds the next due acknowledgement that was not piggybacked.
    pub(super) fn transmit_ack(&mut self, now: Now<S, W, BITS>, head: &mut [u8; HEADER_ROOM]) -> Option<Transmit> {
        while let Some(to) = self.acks.due.pop(self.records.peers.as_mut(), |peer| &mut peer.ack_link) {
            let Some(peer) = self.peer_mut(to) else { continue };
            peer.unset(PeerFlags::ACK_LISTED);
            if !peer.receive_state.is_pending() || peer.state() != PeerState::Alive {
                continue;
            }
            self.grant_credit(to);
            let peer = self.records.peers.as_mut().get_mut(to as usize)?;
            let window = self.records.receivers.as_ref().get(usize::from(peer.receiver));
            let acknowledgement = peer.receive_state.acknowledge(now, peer.granted, window);
            let peer = self.records.peers.as_ref().get(to as usize)?;
            let length = acknowledgement.emit(&self.header_to(peer), head);
            return Some(control(PeerId(to), length, TxReason::Acknowledge));
        }
        None
    }

    /// Delays acknowledgements for a quarter of their peers' timeout margin, so that data may carry them; if a peer has
    /// no credit left, only while no other datagram arrives for a shorter time.
    pub(super) fn delay_acks(&mut self, now: Now<S, W, BITS>) {
        let ungranted = core::mem::take(&mut self.acks.lacks_credit);
        if self.acks.delayed.is_empty() {
            return;
        }
        if self.acks.delayed_until.is_none() {
            self.acks.delayed_since = S::Time::stamp(now);
        }
        let waited = S::Time::since(now, self.acks.delayed_since).unwrap_or(0);
        let left = (self.config.granularity >> 2).saturating_sub(waited);
        if ungranted && left > 0 {
            self.acks.delayed_until = Some(S::Time::after(now, left.min(self.config.granularity >> 4)));
        } else {
            match self.acks.delayed_until {
                None => self.acks.delayed_until = Some(S::Time::after(now, left)),
                Some(until) if S::Time::is_due(now, until) => self.expire_delayed_acks(),
                Some(_) => {}
            }
        }
    }

    pub(super) fn expire_delayed_acks(&mut self) {
        self.acks.delayed_until = None;
        self.acks.delayed_since = S::Time::ZERO;
        let mut fresh = core::mem::replace(&mut self.acks.delayed, List::EMPTY);
        self.acks.due.append(&mut fresh, self.records.peers.as_mut(), |peer| &mut peer.ack_link);
    }
}
