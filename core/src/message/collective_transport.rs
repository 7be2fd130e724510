//! The messages of collectives: each has one send and one receive, known to each other by a [`Key`].
//!
//! Rooted collectives are flow-controlled by credit of their own (Graham et al. 2010, §3): a message without credit stays with its
//! sender, and costs a receiver that is behind at most a header. Nothing is ever matched by order, source or tag.
//!
//! # How a message travels
//! - **Eagerly**, if it is within the peer's limit and there is credit: its head, and the payload behind it. If its receive was not
//!   posted yet, the payload is kept in a slot; each peer has credit for as many as are its own, so there is always a free one.
//! - **Announced** otherwise: a header. The receive that it belongs to grants memory, the sender places the payload there. A
//!   header that finds no room is dropped and counted; who posts a receive without a message, while something of that peer was
//!   dropped, asks for it ([`Kind::Want`](header::Kind)), and the sender announces it again.
//!
//! Credit comes back once a receive has taken the payload: in whatever is said to the peer next, or by itself when half of it is due.
//!
//! # Calling contract
//! - What one peer's [`Steps`] gives is [handled](Steps::handle) by the other's in order, each once: an endpoint does that.
//! - Every [`Head`] that is given is sent, in the order in which they were given.
//! - A payload stays unchanged until its send is over: an eager one when the endpoint says so, an announced one after
//!   [`Arrival::Place`] when the endpoint says so.
//! - What [`handle`](Steps::handle) says is carried out before anything else is asked.
//! - [`poll_action`](Steps::poll_action) is asked until nothing is left, after all of the others.
//!
//! Every call takes constant time where keys fall to different places of the tables, but for [`forget`](Steps::forget),
//! [`discard`](Steps::discard) and [`lose`](Steps::lose), which look at all records. Memory is what was lent: 16 bytes for each peer,
//! 40 for each record, and the rim's slots.

mod cancel;
pub mod header;
mod peer;
mod receive_header;
mod responses;
mod table;

#[cfg(test)]
mod tests;

use crate::ids::PeerId;
use crate::list::List;
use crate::pool::Records;
use header::Kind;
use table::{Stage, Table};

pub use header::Head;
pub use peer::Peer;
pub use responses::{Action, Arrival, InUse, Posted, ReceiveError, SendError, Sent, TooFewSlots};
pub use table::Entry;

/// A message's name: unique between two ranks in one direction, for as long as either may still speak of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Key {
    /// The communicator.
    pub context: u32,
    /// Its how-manieth collective; wraps.
    pub sequence: u32,
    /// The key of the schedule's message.
    pub step: u32,
}

/// The records lent to the machine, each in its unused state.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Pools<P, E> {
    /// [`Peer::new`], one per rank, this one included.
    pub peers: P,
    /// [`Entry::FREE`]: announced messages that were not granted yet.
    pub sends: E,
    /// [`Entry::FREE`]: receives without a message.
    pub receives: E,
    /// [`Entry::FREE`]: slots for eager messages that came before their receive.
    pub slots: E,
    /// [`Entry::FREE`]: headers that came before their receive.
    pub headers: E,
}

/// One rank's messages of collectives, with all its peers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Steps<P, E> {
    peers: P,
    sends: Table<E>,
    receives: Table<E>,
    slots: Table<E>,
    headers: Table<E>,
    /// Eager messages that a peer may have under way or in slots.
    credit: u8,
    /// Sends to be announced again, receives with something to say, peers that are owed credit.
    again: List,
    due: List,
    owed: List,
}

impl<P: Records<Peer>, E: Records<Entry>> Steps<P, E> {
    /// Nothing under way. `credit`, the same on all ranks: eager messages that each peer may have here without a receive.
    ///
    /// # Errors
    /// [`TooFewSlots`]: less than `credit` for each peer.
    pub fn new(credit: u8, pools: Pools<P, E>) -> Result<Self, TooFewSlots> {
        let Pools { mut peers, sends, receives, slots, headers } = pools;
        let others = peers.as_ref().len().saturating_sub(1);
        if slots.as_ref().len() < others.saturating_mul(usize::from(credit)) {
            return Err(TooFewSlots);
        }
        for peer in peers.as_mut() {
            peer.reset(credit);
        }
        Ok(Self {
            peers,
            sends: Table::new(sends),
            receives: Table::new(receives),
            slots: Table::new(slots),
            headers: Table::new(headers),
            credit,
            again: List::EMPTY,
            due: List::EMPTY,
            owed: List::EMPTY,
        })
    }

    /// Sends a message. `user` names it in what follows.
    ///
    /// # Errors
    /// [`SendError`]; nothing was changed.
    pub fn send(&mut self, to: PeerId, key: Key, bytes: u32, user: u32) -> Result<Sent, SendError> {
        let peer = self.peers.as_mut().get_mut(to.0 as usize).ok_or(SendError::UnknownPeer)?;
        if bytes <= peer.limit() && peer.spend() {
            return Ok(Sent::Eager(Head::new(Kind::Eager, peer.give_back(), key)));
        }
        if self.sends.find(to.0, key).is_some() {
            return Err(SendError::Duplicate);
        }
        self.sends.insert(to.0, key, user, bytes, Stage::Waiting).ok_or(SendError::Full)?;
        Ok(Sent::Announced(Head::announce(Kind::Announce, peer.give_back(), key, bytes)))
    }

    /// Posts the receive of a message of exactly `bytes` bytes. `user` names it in what follows.
    ///
    /// # Errors
    /// [`ReceiveError`]; nothing was posted.
    pub fn receive(&mut self, of: PeerId, key: Key, bytes: u32, user: u32) -> Result<Posted, ReceiveError> {
        let peer = self.peers.as_ref().get(of.0 as usize).ok_or(ReceiveError::UnknownPeer)?;
        if self.receives.find(of.0, key).is_some() {
            return Err(ReceiveError::Duplicate);
        }
        if let Some((slot, kept)) = self.slots.find(of.0, key) {
            let came = kept.bytes;
            self.slots.hide(slot);
            if came == bytes {
                return Ok(Posted::Early { slot });
            }
            self.taken(slot);
            return Err(ReceiveError::Disagrees { bytes: came });
        }
        let header = self.headers.find(of.0, key).map(|(i, header)| (i, header.bytes));
        let stage = match header {
            Some((_, came)) if came == bytes => Stage::Granting,
            Some(_) => Stage::Refusing,
            #[cfg(not(mutant = "want_silent"))]
            None if peer.has_dropped() => Stage::Wanting,
            None => Stage::Waiting,
        };
        let i = self.receives.insert(of.0, key, user, bytes, stage).ok_or(ReceiveError::Full)?;
        if stage != Stage::Waiting {
            self.receives.list(&mut self.due, i);
        }
        if let Some((header, came)) = header {
            self.headers.remove(header);
            if came != bytes {
                return Err(ReceiveError::Disagrees { bytes: came });
            }
        }
        Ok(Posted::Waits)
    }

    /// A slot's payload was copied out.
    pub fn taken(&mut self, slot: u32) {
        let Some(peer) = self.slots.take(slot) else { return };
        self.owe(peer);
    }

    /// What is to be done next.
    pub fn poll_action(&mut self) -> Option<Action> {
        while let Some((i, receive)) = self.receives.pop(&mut self.due) {
            let to = PeerId(receive.peer);
            match receive.stage {
                Stage::Wanting => {
                    self.receives.set(i, Stage::Waiting);
                    return Some(self.say(to, Kind::Want, receive.key));
                }
                Stage::Granting => {
                    self.receives.remove(i);
                    return Some(Action::Grant { to, user: receive.user, key: receive.key, bytes: receive.bytes });
                }
                Stage::Refusing => {
                    self.receives.remove(i);
                    return Some(self.say(to, Kind::Refuse, receive.key));
                }
                _ => self.receives.remove(i),
            }
        }
        while let Some((i, send)) = self.sends.pop(&mut self.again) {
            if send.stage == Stage::Wanting {
                self.sends.set(i, Stage::Waiting);
                let to = PeerId(send.peer);
                let head = Head::announce(Kind::Again, self.give_back(to), send.key, send.bytes);
                return Some(Action::Send { to, head });
            }
            self.sends.remove(i);
        }
        while let Some(i) = self.owed.pop(self.peers.as_mut(), |peer| &mut peer.link) {
            let peer = self.peers.as_mut().get_mut(i as usize)?;
            peer.listed = false;
            if peer.owes(self.credit) {
                return Some(Action::Send { to: PeerId(i), head: Head::credit(peer.give_back()) });
            }
        }
        None
    }

    /// Records in use.
    pub fn in_use(&self) -> InUse {
        InUse {
            sends: self.sends.used(),
            receives: self.receives.used(),
            slots: self.slots.used(),
            headers: self.headers.used(),
        }
    }

    /// A receive took one of the peer's eager messages.
    fn owe(&mut self, to: u32) {
        let Some(peer) = self.peers.as_mut().get_mut(to as usize) else { return };
        peer.take();
        if peer.owes(self.credit) && !peer.listed {
            peer.listed = true;
            self.owed.push(self.peers.as_mut(), to, |peer| &mut peer.link);
        }
    }

    fn give_back(&mut self, to: PeerId) -> u8 {
        self.peers.as_mut().get_mut(to.0 as usize).map_or(0, Peer::give_back)
    }

    fn say(&mut self, to: PeerId, kind: Kind, key: Key) -> Action {
        Action::Send { to, head: Head::new(kind, self.give_back(to), key) }
    }
}
