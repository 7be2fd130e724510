//! In-order delivery, and datagrams that are held until their predecessors have arrived.

use crate::device::{Received, Slot};
use crate::endpoint::peer::NO_WINDOW;
use crate::endpoint::storage::Storage;
use crate::endpoint::{Endpoint, Handler, Verdict};
use crate::ids::PlacementId;
use crate::list::NONE;
use crate::window::receive_window::Early;
use crate::wire::Header;

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// The next held datagram that is in order now, or that is not needed any more. It stays first until
    /// [`handle_held`](Self::handle_held).
    #[inline]
    pub(super) fn poll_deferred(&mut self) -> Option<Slot> {
        if self.deferred.is_empty() { None } else { self.next_deferred() }
    }

    #[inline(never)]
    pub(in crate::endpoint) fn next_deferred(&mut self) -> Option<Slot> {
        loop {
            let i = self.deferred.first()?;
            let window = self.receivers.as_ref().get(i as usize)?;
            let waiting = if window.owner == NONE { window.first() } else { window.front() };
            if let Early::Held(slot) = waiting {
                return Some(slot);
            }
            self.deferred.pop(self.receivers.as_mut(), |receiver| &mut receiver.link);
            if self.receivers.as_ref().get(i as usize).is_some_and(|window| window.owner == NONE) {
                self.free_receiver(i);
            }
        }
    }

    /// Delivers the held datagram that [`poll_deferred`](Self::poll_deferred) returned.
    pub(super) fn handle_held(&mut self, datagram: &impl Received, handler: &mut impl Handler, verdict: &mut Verdict) {
        *verdict = Verdict::Release;
        self.held = self.held.saturating_sub(1);
        let Some(i) = self.deferred.first() else { return };
        let Some(window) = self.receivers.as_mut().get_mut(i as usize) else { return };
        if window.owner == NONE {
            window.take_first();
            return;
        }
        let owner = window.owner;
        self.deferred.pop(self.receivers.as_mut(), |receiver| &mut receiver.link);
        let landed = match Header::parse(datagram.prefix()) {
            Ok(header) => self.dispatch(owner, &header, datagram, handler, verdict).unwrap_or(None),
            Err(_) => None,
        };
        self.advance_in_order(owner, landed);
    }

    /// Advances past a delivered datagram, and past the placed segments that follow it.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    pub(in crate::endpoint) fn advance_in_order(&mut self, from: u32, landed: Option<PlacementId>) {
        if let Some(placement) = landed {
            self.count_delivered(placement, 1);
        }
        let Some(peer) = self.peers.as_mut().get_mut(from as usize) else { return };
        if peer.receiver == NO_WINDOW {
            peer.receive_state.advance::<W>(None);
        } else {
            self.advance_past_gap(from);
        }
    }

    #[inline(never)]
    pub(in crate::endpoint) fn advance_past_gap(&mut self, from: u32) {
        loop {
            let Some(peer) = self.peers.as_mut().get_mut(from as usize) else { return };
            let receiver = u32::from(peer.receiver);
            let window = self.receivers.as_mut().get_mut(receiver as usize);
            match peer.receive_state.advance(window) {
                Early::Placed(placement) => self.count_delivered(placement, 1),
                Early::Held(_) => {
                    self.deferred.push(self.receivers.as_mut(), receiver, |receiver| &mut receiver.link);
                    return;
                }
                Early::Missing => break,
            }
        }
        self.drop_empty_receiver(from);
    }

    pub(in crate::endpoint) fn take_receiver(&mut self, from: u32) -> Option<u32> {
        let peer = self.peers.as_mut().get_mut(from as usize)?;
        if peer.receiver != NO_WINDOW {
            return Some(u32::from(peer.receiver));
        }
        let receivers = self.receivers.as_mut();
        let i = self.free_receivers.pop(receivers, |receiver| &mut receiver.link)?;
        receivers.get_mut(i as usize)?.owner = from;
        peer.receiver = i as u16;
        Some(i)
    }

    pub(in crate::endpoint) fn drop_empty_receiver(&mut self, from: u32) {
        let Some(peer) = self.peers.as_mut().get_mut(from as usize) else { return };
        let i = peer.receiver;
        if self
            .receivers
            .as_ref()
            .get(usize::from(i))
            .is_some_and(crate::window::receive_window::ReceiveWindow::is_empty)
        {
            peer.receiver = NO_WINDOW;
            self.free_receiver(u32::from(i));
        }
    }
}
