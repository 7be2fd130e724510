//! Handling of received messages.

use super::header::{self, EAGER_HEADER, Parsed};
use super::table::EntryState;
use super::{Arrival, CollectivePeer, CollectiveTransport, Entry, StepKey};
use crate::ids::PeerId;
use crate::pool::Pool;

impl<P: Pool<CollectivePeer>, E: Pool<Entry>> CollectiveTransport<P, E> {
    /// Handles a message whose first byte is at least [`TransportKind::FIRST`](header::TransportKind::FIRST): `head`
    /// are its first bytes, at least 28 unless it is shorter, and `bytes` is its length.
    pub fn handle(&mut self, from: PeerId, head: &[u8], bytes: u32) -> Arrival {
        let credit = self.credit;
        let Some((said, parsed)) = header::parse(head, bytes) else { return Arrival::ProtocolViolation };
        let Some(peer) = self.peers.as_mut().get_mut(from.0 as usize) else { return Arrival::ProtocolViolation };
        if !peer.earn(said, credit) {
            return Arrival::ProtocolViolation;
        }
        let from = from.0;
        match parsed {
            Parsed::Eager { key, bytes } => self.handle_eager(from, key, bytes),
            Parsed::Rts { key, bytes, at } => self.handle_rts(from, key, bytes, at),
            Parsed::Reannounce { key, bytes, at } => self.handle_repeated_rts(from, key, bytes, at),
            Parsed::Cts { key, placement, under } => match self.end_rendezvous(from, key) {
                Some(user) => Arrival::Place { user, placement, key: under },
                None => Arrival::Nothing,
            },
            Parsed::Refuse { key } => match self.end_rendezvous(from, key) {
                Some(user) => Arrival::Refused { user },
                None => Arrival::Nothing,
            },
            Parsed::Fin { key } => match self.end_rendezvous(from, key) {
                Some(user) => Arrival::Fetched { user },
                None => Arrival::Nothing,
            },
            Parsed::RtsRequest { key } => {
                if let Some((i, send)) = self.sends.find_mut(from, key)
                    && send.state == EntryState::Waiting
                {
                    send.state = EntryState::Wanting;
                    self.sends.list(&mut self.reannounce, i);
                }
                Arrival::Nothing
            }
            Parsed::Credit => Arrival::Nothing,
        }
    }

    fn handle_eager(&mut self, from: u32, key: StepKey, bytes: u32) -> Arrival {
        let receive = self.receives.find(from, key).map(|(i, receive)| (i, *receive));
        let open = receive.filter(|(_, receive)| receive.is_open());
        let Some(peer) = self.peers.as_mut().get_mut(from as usize) else { return Arrival::ProtocolViolation };
        if (receive.is_some() && open.is_none()) || self.slots.find(from, key).is_some() || bytes > peer.limit() {
            return Arrival::ProtocolViolation;
        }
        if !peer.use_up() {
            return Arrival::ProtocolViolation;
        }
        let start = EAGER_HEADER as u16;
        if let Some((i, receive)) = open {
            self.receives.retire(i);
            self.return_credit(from);
            let user = receive.user;
            return if receive.bytes == bytes { Arrival::Into { user, start } } else { Arrival::Disagrees { user } };
        }
        match self.slots.insert(from, key, 0, bytes, EntryState::Waiting) {
            Some(slot) => Arrival::Keep { slot, start, bytes },
            None => Arrival::ProtocolViolation,
        }
    }

    fn handle_rts(&mut self, from: u32, key: StepKey, bytes: u32, at: u64) -> Arrival {
        if let Some((i, receive)) = self.receives.find(from, key) {
            return if receive.is_open() { self.match_rts(i, bytes, at) } else { Arrival::ProtocolViolation };
        }
        if self.headers.find(from, key).is_some() {
            return Arrival::ProtocolViolation;
        }
        match self.headers.insert(from, key, 0, bytes, EntryState::Waiting) {
            Some(i) => self.headers.locate(i, at),
            None => {
                if let Some(peer) = self.peers.as_mut().get_mut(from as usize) {
                    peer.drop_header();
                }
            }
        }
        Arrival::Nothing
    }

    /// Handles a repeated RTS. The original may have arrived after all: it was in flight when this rank sent its
    /// request.
    fn handle_repeated_rts(&mut self, from: u32, key: StepKey, bytes: u32, at: u64) -> Arrival {
        match self.receives.find(from, key) {
            Some((i, receive)) if receive.is_open() => {
                if let Some(peer) = self.peers.as_mut().get_mut(from as usize) {
                    peer.find_header();
                }
                self.match_rts(i, bytes, at)
            }
            _ if mutant!("again_kept") => self.handle_rts(from, key, bytes, at),
            _ => Arrival::Nothing,
        }
    }

    /// Matches an open receive with the RTS of its message.
    fn match_rts(&mut self, i: u32, bytes: u32, at: u64) -> Arrival {
        let Some(receive) = self.receives.get_mut(i) else { return Arrival::ProtocolViolation };
        let (user, agrees, listed) = (receive.user, receive.bytes == bytes, receive.is_listed());
        receive.at = at;
        receive.state = if agrees { EntryState::Pulling } else { EntryState::Refusing };
        if !listed {
            self.receives.list(&mut self.due, i);
        }
        if agrees { Arrival::Nothing } else { Arrival::Disagrees { user } }
    }

    /// Ends a send by rendezvous; returns its `user` value.
    fn end_rendezvous(&mut self, to: u32, key: StepKey) -> Option<u32> {
        let (i, send) = self.sends.find(to, key)?;
        let user = send.user;
        self.sends.retire(i);
        Some(user)
    }
}
