//! Polling of the endpoint's events.

use super::{Endpoint, Event, Now, SenderFlags};
use crate::endpoint::peer::PeerFlags;
use crate::endpoint::storage::Storage;
use crate::ids::{OperationId, PeerId};

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// Returns the next event. Its record may be reused from now on.
    pub fn poll_event(&mut self, now: Now<S, W, BITS>) -> Option<Event> {
        if let Some((i, error)) = self.operations.pop_completed() {
            return Some(Event::Completed(OperationId(i), error.map_or(Ok(()), Err)));
        }
        if let Some((placement, bytes)) = self.placements.pop_delivered() {
            return Some(Event::Delivered(placement, bytes));
        }
        if let Some(rank) = self.peer_events.pop(self.peers.as_mut(), |peer| &mut peer.queue) {
            let peer = self.peer_mut(rank)?;
            let parted = peer.has(PeerFlags::EVENT_IS_FINISHED);
            peer.unset(PeerFlags::EVENT_PENDING | PeerFlags::EVENT_IS_FINISHED);
            return Some(if parted { Event::PeerFinished(PeerId(rank)) } else { Event::PeerFailed(PeerId(rank)) });
        }
        while let Some(i) = self.senders.pop_silent() {
            let sender = self.senders.get(i)?;
            if !sender.flags.contains(SenderFlags::ORPHANED) {
                return Some(Event::PeerSilent(PeerId(sender.peer)));
            }
            self.update_sender(now, i);
        }
        None
    }
}
