//! Polling of the endpoint's events.

use super::{Endpoint, Event, Now, SILENT};
use crate::endpoint::operation::Operation;
use crate::endpoint::peer::{NEWS, PARTED};
use crate::endpoint::placement::Stage;
use crate::endpoint::storage::Storage;
use crate::ids::{OperationId, PeerId, PlacementId};

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// Returns the next event. Its record may be reused from now on.
    pub fn poll_event(&mut self, now: Now<S, W, BITS>) -> Option<Event> {
        self.hear_said(now);
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
            let bytes = if let Stage::Filled { bytes } = placement.stage { bytes } else { 0 };
            let id = PlacementId::new(i, placement.generation);
            placement.free(false);
            self.free_placements.push_front(placements, i, |placement| &mut placement.link);
            return Some(Event::Delivered(id, bytes));
        }
        if let Some(rank) = self.news.pop(self.peers.as_mut(), |peer| &mut peer.queue) {
            let peer = self.peer_mut(rank)?;
            let parted = peer.has(PARTED);
            peer.unset(NEWS | PARTED);
            return Some(if parted { Event::Parted(PeerId(rank)) } else { Event::Failed(PeerId(rank)) });
        }
        while let Some(i) = self.silent.pop(self.senders.as_mut(), |sender| &mut sender.news_link) {
            let sender = self.senders.as_mut().get_mut(i as usize)?;
            sender.flags &= !SILENT;
            if sender.flags & super::ORPHAN == 0 {
                return Some(Event::Silent(PeerId(sender.peer)));
            }
            self.settle_sender(now, i);
        }
        None
    }
}
