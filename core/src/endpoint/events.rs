//! Polling of the endpoint's events.

use super::{Endpoint, Event, Now, SILENT};
use crate::endpoint::operation::Operation;
use crate::endpoint::peer::{EVENT_IS_FINISHED, EVENT_PENDING};
use crate::endpoint::placement::PlacementState;
use crate::endpoint::storage::Storage;
use crate::ids::{OperationId, PeerId, PlacementId};

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// Returns the next event. Its record may be reused from now on.
    pub fn poll_event(&mut self, now: Now<S, W, BITS>) -> Option<Event> {
        let operations = self.operations.as_mut();
        if let Some(i) = self.completed.pop(operations, |operation| &mut operation.link) {
            let operation = operations.get_mut(i as usize)?;
            let result = operation.error.map_or(Ok(()), Err);
            *operation = Operation::FREE;
            self.free_operations.push_front(operations, i, |operation| &mut operation.link);
            return Some(Event::Completed(OperationId(i), result));
        }
        let placements = self.placements.as_mut();
        if let Some(i) = self.delivered.pop(placements, |placement| &mut placement.link) {
            let placement = placements.get_mut(i as usize)?;
            let bytes = if let PlacementState::Filled { bytes } = placement.state { bytes } else { 0 };
            let id = PlacementId::new(i, placement.generation);
            placement.free(false);
            self.free_placements.push_front(placements, i, |placement| &mut placement.link);
            return Some(Event::Delivered(id, bytes));
        }
        if let Some(rank) = self.peer_events.pop(self.peers.as_mut(), |peer| &mut peer.queue) {
            let peer = self.peer_mut(rank)?;
            let parted = peer.has(EVENT_IS_FINISHED);
            peer.unset(EVENT_PENDING | EVENT_IS_FINISHED);
            return Some(if parted { Event::PeerFinished(PeerId(rank)) } else { Event::PeerFailed(PeerId(rank)) });
        }
        while let Some(i) = self.silent.pop(self.senders.as_mut(), |sender| &mut sender.event_link) {
            let sender = self.senders.as_mut().get_mut(i as usize)?;
            sender.flags &= !SILENT;
            if sender.flags & super::ORPHANED == 0 {
                return Some(Event::PeerSilent(PeerId(sender.peer)));
            }
            self.update_sender(now, i);
        }
        None
    }
}
