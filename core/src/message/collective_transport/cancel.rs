//! Cancellation: failed collectives, freed communicators, failed peers.

use super::table::EntryState;
use super::{CollectivePeer, CollectiveTransport, Entry};
use crate::ids::PeerId;
use crate::pool::Pool;

impl<P: Pool<CollectivePeer>, E: Pool<Entry>> CollectiveTransport<P, E> {
    /// Cancels the sends with this `user` value.
    pub fn cancel_send(&mut self, user: u32) {
        for i in 0..self.sends.len() {
            if self.sends.get(i).is_some_and(|send| send.is_found() && send.user == user) {
                self.sends.retire(i);
            }
        }
    }

    /// Cancels the receives with this `user` value. The RTS of a cancelled receive is refused; a message that arrives
    /// later stays until its context is [discarded](Self::discard).
    pub fn cancel_receive(&mut self, user: u32) {
        for i in 0..self.receives.len() {
            let Some(receive) = self.receives.get(i).filter(|receive| receive.user == user) else { continue };
            match receive.state {
                EntryState::Waiting | EntryState::Wanting => self.receives.retire(i),
                EntryState::Pulling => self.receives.set(i, EntryState::Refusing),
                _ => {}
            }
        }
    }

    /// Discards messages for freed communicators that no receive consumed.
    pub fn discard(&mut self, mut is_gone: impl FnMut(u32) -> bool) {
        for i in 0..self.slots.len() {
            if self.slots.get(i).is_some_and(|kept| kept.is_found() && is_gone(kept.key.context)) {
                self.slots.hide(i);
                self.release_slot(i);
            }
        }
        for i in 0..self.headers.len() {
            if self.headers.get(i).is_some_and(|header| header.is_found() && is_gone(header.key.context)) {
                self.headers.remove(i);
            }
        }
    }

    /// Handles a peer's failure: everything with it is cancelled, and reported to `ended`. What arrives next is from
    /// another incarnation.
    pub fn disconnect(&mut self, peer: PeerId, mut ended: impl FnMut(u32)) {
        for i in 0..self.sends.len() {
            if let Some(send) = self.sends.get(i).filter(|send| send.is_found() && send.peer == peer.0) {
                ended(send.user);
                self.sends.retire(i);
            }
        }
        for i in 0..self.receives.len() {
            let Some(receive) = self.receives.get(i).filter(|send| send.is_found() && send.peer == peer.0) else {
                continue;
            };
            if receive.state != EntryState::Refusing {
                ended(receive.user);
            }
            self.receives.retire(i);
        }
        for table in [&mut self.slots, &mut self.headers] {
            for i in 0..table.len() {
                if table.get(i).is_some_and(|entry| entry.is_used() && entry.peer == peer.0) {
                    table.remove(i);
                }
            }
        }
        if let Some(record) = self.peers.as_mut().get_mut(peer.0 as usize) {
            record.reset(self.credit);
        }
    }
}
