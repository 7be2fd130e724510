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
//!   dropped, asks for it ([`Kind::Want`](head::Kind)), and the sender announces it again.
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

pub mod head;
mod peer;
mod table;

#[cfg(test)]
mod tests;

use crate::device::PeerId;
use crate::list::List;
use crate::placement;
use crate::placement::PlacementId;
use crate::storage::Records;
use head::{EAGER_HEAD, Kind, Parsed};
use table::{Stage, Table};

pub use head::Head;
pub use peer::Peer;
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

/// There are fewer slots than credit given to all peers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TooFewSlots;

/// How a message leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// Head and payload in one message of the endpoint; the send is over when that is.
    Eager(Head),
    /// The head alone; [`Arrival::Place`] or [`Arrival::Refused`] follows.
    Announced(Head),
}

/// Why nothing was sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SendError {
    /// No such rank.
    UnknownPeer,
    /// Every record is in use: again after an announced send is over.
    Full,
    /// A message of that key is announced to that peer.
    Duplicate,
}

/// What becomes of a receive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Posted {
    /// [`Arrival::Into`] or [`Action::Grant`] follows, or [`Arrival::Disagrees`].
    Waits,
    /// Its payload lies in this slot, from its first byte on. It is over when it was copied out: then [`Steps::taken`] is called.
    Early {
        /// The slot.
        slot: u32,
    },
}

/// Why nothing will be received.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReceiveError {
    /// No such rank.
    UnknownPeer,
    /// Every record is in use: again after another receive is over.
    Full,
    /// A receive of that key is posted for that peer.
    Duplicate,
    /// The peer sends so many bytes instead; the message is gone.
    Disagrees {
        /// The message's length.
        bytes: u32,
    },
}

/// What a message means.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Arrival {
    /// The payload, from byte `start` of the message on, goes to this receive, which is over then.
    Into {
        /// The receive's.
        user: u32,
        /// Where the payload begins.
        start: u16,
    },
    /// The payload goes to this slot.
    Keep {
        /// The slot.
        slot: u32,
        /// Where the payload begins.
        start: u16,
        /// Its length, within the peer's limit.
        bytes: u32,
    },
    /// An announced message was granted: it is to be placed, and is over when the endpoint says so.
    Place {
        /// The send's.
        user: u32,
        /// Where it is granted.
        placement: PlacementId,
        /// Under which key.
        key: placement::Key,
    },
    /// The peer wants another length than this send's, which is over, or has given the collective up.
    Refused {
        /// The send's.
        user: u32,
    },
    /// The message has another length than this receive, which is over.
    Disagrees {
        /// The receive's.
        user: u32,
    },
    /// Nothing is to be done, but perhaps there are actions.
    Nothing,
    /// No rank that follows the protocol says this.
    Nonsense,
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Let the peer fill this receive's memory under a fresh key and send it [`Head::grant`]; the receive is over when the
    /// endpoint has delivered. It is the rim's alone from now on.
    Grant {
        /// The peer.
        to: PeerId,
        /// The receive's.
        user: u32,
        /// The message's.
        key: Key,
        /// The message's length, which is the receive's.
        bytes: u32,
    },
    /// Send a message without payload.
    Send {
        /// The peer.
        to: PeerId,
        /// The message.
        head: Head,
    },
}

/// Records in use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct InUse {
    /// Announced messages that were not granted yet.
    pub sends: u32,
    /// Receives without a message.
    pub receives: u32,
    /// Eager messages without a receive.
    pub slots: u32,
    /// Headers without a receive.
    pub headers: u32,
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

    /// A message whose first byte is at least [`Kind::FIRST`](head::Kind::FIRST): its first bytes, at least 28 if there are so
    /// many, and its length.
    pub fn handle(&mut self, from: PeerId, head: &[u8], bytes: u32) -> Arrival {
        let credit = self.credit;
        let Some((said, parsed)) = head::parse(head, bytes) else { return Arrival::Nonsense };
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

    /// Whoever this names has given up: its sends and receives are over. A message that is announced to one of them is refused;
    /// one that comes later stays until its context is [discarded](Self::discard).
    pub fn forget(&mut self, user: u32) {
        for i in 0..self.sends.len() {
            if self.sends.get(i).is_some_and(|send| send.is_found() && send.user == user) {
                self.sends.leave(i);
            }
        }
        for i in 0..self.receives.len() {
            let Some(receive) = self.receives.get(i).filter(|receive| receive.user == user) else { continue };
            match receive.stage {
                Stage::Waiting | Stage::Wanting => self.receives.leave(i),
                Stage::Granting => self.receives.set(i, Stage::Refusing),
                _ => {}
            }
        }
    }

    /// Drops what came for communicators that are no more and was received by nobody.
    pub fn discard(&mut self, mut is_gone: impl FnMut(u32) -> bool) {
        for i in 0..self.slots.len() {
            if self.slots.get(i).is_some_and(|kept| kept.is_found() && is_gone(kept.key.context)) {
                self.slots.hide(i);
                self.taken(i);
            }
        }
        for i in 0..self.headers.len() {
            if self.headers.get(i).is_some_and(|header| header.is_found() && is_gone(header.key.context)) {
                self.headers.remove(i);
            }
        }
    }

    /// The peer's life is over: everything with it is, and `ended` is told whose. What comes next is of another life.
    pub fn lose(&mut self, peer: PeerId, mut ended: impl FnMut(u32)) {
        for i in 0..self.sends.len() {
            if let Some(send) = self.sends.get(i).filter(|send| send.is_found() && send.peer == peer.0) {
                ended(send.user);
                self.sends.leave(i);
            }
        }
        for i in 0..self.receives.len() {
            let Some(receive) = self.receives.get(i).filter(|send| send.is_found() && send.peer == peer.0) else {
                continue;
            };
            if receive.stage != Stage::Refusing {
                ended(receive.user);
            }
            self.receives.leave(i);
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

    /// Records in use.
    pub fn in_use(&self) -> InUse {
        InUse {
            sends: self.sends.used(),
            receives: self.receives.used(),
            slots: self.slots.used(),
            headers: self.headers.used(),
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

    /// The answer to a Want. The first announcement may have come meanwhile: it was on its way when this rank asked.
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

    /// An open receive and the header of its message.
    fn meet(&mut self, i: u32, bytes: u32) -> Arrival {
        let Some(receive) = self.receives.get_mut(i) else { return Arrival::Nonsense };
        let (user, agrees, listed) = (receive.user, receive.bytes == bytes, receive.is_listed());
        receive.stage = if agrees { Stage::Granting } else { Stage::Refusing };
        if !listed {
            self.receives.list(&mut self.due, i);
        }
        if agrees { Arrival::Nothing } else { Arrival::Disagrees { user } }
    }

    /// An announced send is over: its user.
    fn over(&mut self, to: u32, key: Key) -> Option<u32> {
        let (i, send) = self.sends.find(to, key)?;
        let user = send.user;
        self.sends.leave(i);
        Some(user)
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
