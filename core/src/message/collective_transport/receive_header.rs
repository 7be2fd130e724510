//! Handling of received messages.

use super::header::{self, EAGER_HEAD, Parsed};
use super::table::Stage;
use super::{Arrival, Entry, Key, Peer, Steps};
use crate::ids::PeerId;
use crate::pool::Records;

impl<P: Records<Peer>, E: Records<Entry>> Steps<P, E> {
    /// Handles a message whose first byte is at least [`Kind::FIRST`](header::Kind::FIRST): `head` are its first bytes,
    /// at least 28 unless it is shorter, and `bytes` is its length.
    pub fn handle(&mut self, from: PeerId, head: &[u8], bytes: u32) -> Arrival {
        let credit = self.credit;
        let Some((said, parsed)) = header::parse(head, bytes) else { return Arrival::Nonsense };
        let Some(peer) = self.peers.as_mut().get_mut(from.0 as usize) else { return Arrival::Nonsense };
        if !peer.earn(said, credit) {
            return Arrival::Nonsense;
        }
        let from = from.0;
        match parsed {
            Parsed::Eager { key, bytes } => self.handle_eager(from, key, bytes),
            Parsed::Announce { key, bytes } => self.handle_announced(from, key, bytes),
            Parsed::Again { key, bytes } => self.handle_announced_again(from, key, bytes),
            Parsed::Grant { key, placement, under } => match self.over(from, key) {
                Some(user) => Arrival::Place { user, placement, key: under },
                None => Arrival::Nothing,
            },
            Parsed::Refuse { key } => match self.over(from, key) {
                Some(user) => Arrival::Refused { user },
                None => Arrival::Nothing,
            },
            Parsed::Want { key } => {
                if let Some((i, send)) = self.sends.find_mut(from, key)
                    && send.stage == Stage::Waiting
                {
                    send.stage = Stage::Wanting;
                    self.sends.list(&mut self.again, i);
                }
                Arrival::Nothing
            }
            Parsed::Credit => Arrival::Nothing,
        }
    }

    fn handle_eager(&mut self, from: u32, key: Key, bytes: u32) -> Arrival {
        let receive = self.receives.find(from, key).map(|(i, receive)| (i, *receive));
        let open = receive.filter(|(_, receive)| receive.is_open());
        let Some(peer) = self.peers.as_mut().get_mut(from as usize) else { return Arrival::Nonsense };
        if (receive.is_some() && open.is_none()) || self.slots.find(from, key).is_some() || bytes > peer.limit() {
            return Arrival::Nonsense;
        }
        if !peer.use_up() {
            return Arrival::Nonsense;
        }
        let start = EAGER_HEAD as u16;
        if let Some((i, receive)) = open {
            self.receives.leave(i);
            self.owe(from);
            let user = receive.user;
            return if receive.bytes == bytes { Arrival::Into { user, start } } else { Arrival::Disagrees { user } };
        }
        match self.slots.insert(from, key, 0, bytes, Stage::Waiting) {
            Some(slot) => Arrival::Keep { slot, start, bytes },
            None => Arrival::Nonsense,
        }
    }

    fn handle_announced(&mut self, from: u32, key: Key, bytes: u32) -> Arrival {
        if let Some((i, receive)) = self.receives.find(from, key) {
            return if receive.is_open() { self.meet(i, bytes) } else { Arrival::Nonsense };
        }
        if self.headers.find(from, key).is_some() {
            return Arrival::Nonsense;
        }
        if self.headers.insert(from, key, 0, bytes, Stage::Waiting).is_none()
            && let Some(peer) = self.peers.as_mut().get_mut(from as usize)
        {
            peer.drop_header();
        }
        Arrival::Nothing
    }

    /// Handles a repeated RTS. The original may have arrived after all: it was in flight when this rank sent its
    /// request.
    fn handle_announced_again(&mut self, from: u32, key: Key, bytes: u32) -> Arrival {
        match self.receives.find(from, key) {
            Some((i, receive)) if receive.is_open() => {
                if let Some(peer) = self.peers.as_mut().get_mut(from as usize) {
                    peer.find_header();
                }
                self.meet(i, bytes)
            }
            #[cfg(not(mutant = "again_kept"))]
            _ => Arrival::Nothing,
            #[cfg(mutant = "again_kept")]
            _ => self.handle_announced(from, key, bytes),
        }
    }

    /// Matches an open receive with the RTS of its message.
    fn meet(&mut self, i: u32, bytes: u32) -> Arrival {
        let Some(receive) = self.receives.get_mut(i) else { return Arrival::Nonsense };
        let (user, agrees, listed) = (receive.user, receive.bytes == bytes, receive.is_listed());
        receive.stage = if agrees { Stage::Granting } else { Stage::Refusing };
        if !listed {
            self.receives.list(&mut self.due, i);
        }
        if agrees { Arrival::Nothing } else { Arrival::Disagrees { user } }
    }

    /// Ends a send by rendezvous; returns its `user` value.
    fn over(&mut self, to: u32, key: Key) -> Option<u32> {
        let (i, send) = self.sends.find(to, key)?;
        let user = send.user;
        self.sends.leave(i);
        Some(user)
    }
}
