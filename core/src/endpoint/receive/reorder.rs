//! In-order delivery, and datagrams that are held until their predecessors have arrived.

use crate::device::{Received, Slot};
use crate::endpoint::peer::NO_WINDOW;
use crate::endpoint::storage::Storage;
use crate::endpoint::{Endpoint, Handler, Verdict};
use crate::ids::PlacementId;
use crate::window::receive_window::{Early, ReceiveWindow};
use crate::wire::Header;

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// The next held datagram that is in order now, or that is not needed any more. It stays first until
    /// [`handle_held`](Self::handle_held).
    #[inline]
    pub(super) fn poll_deferred(&mut self) -> Option<Slot> {
        if self.receivers.has_deferred() { self.receivers.next_deferred() } else { None }
    }

    /// Delivers the held datagram that [`poll_deferred`](Self::poll_deferred) returned.
    pub(super) fn handle_held(&mut self, datagram: &impl Received, handler: &mut impl Handler, verdict: &mut Verdict) {
        *verdict = Verdict::Release;
        let Some(owner) = self.receivers.take_deferred() else { return };
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
            self.placements.count_delivered(placement, 1);
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
            let window = self.receivers.get_mut(receiver);
            match peer.receive_state.advance(window) {
                Early::Placed(placement) => self.placements.count_delivered(placement, 1),
                Early::Held(_) => {
                    self.receivers.defer(receiver);
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
        let i = self.receivers.take(from)?;
        peer.receiver = i as u16;
        Some(i)
    }

    pub(in crate::endpoint) fn drop_empty_receiver(&mut self, from: u32) {
        let Some(peer) = self.peers.as_mut().get_mut(from as usize) else { return };
        let i = peer.receiver;
        if self.receivers.get(i).is_some_and(ReceiveWindow::is_empty) {
            peer.receiver = NO_WINDOW;
            self.receivers.free_one(u32::from(i));
        }
    }
}
