//! Sends: eager, by RTS, or held until the receiver has room.

use super::header::{Credit, Flags, Head, Kind};
use super::{Action, Admission, Peer, Storage};
use crate::ids::PeerId;
use crate::list::NONE;
use crate::message::envelope::{Context, Envelope, Tag};
use crate::message::queues::{Key, Link, Queued};

/// When a send is complete.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// When its payload is not needed any more.
    Standard,
    /// When it was matched by a receive.
    Synchronous,
    /// As [`Standard`](Self::Standard); the caller knows that the receive is posted, but the protocol does not rely on
    /// it.
    Ready,
}

/// A message to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Outgoing {
    /// The destination.
    pub to: PeerId,
    /// The communicator.
    pub context: Context,
    /// The tag.
    pub tag: Tag,
    /// Bytes of payload.
    pub bytes: u64,
    /// The eager limit of this peer's channel: longer payloads are sent by RTS.
    pub eager: u32,
    /// Where the receiver's host finds the payload; its meaning is agreed between the hosts.
    pub at: u64,
    /// When it is complete.
    pub mode: Mode,
    /// The application waits for its buffer; otherwise the payload is a copy, and it may be stored at any time.
    pub lent: bool,
    /// Returned in outcomes and actions about this send.
    pub user: u32,
}

/// Why nothing was sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SendError {
    /// There is no such rank.
    UnknownPeer,
    /// The peer failed.
    PeerFailed,
    /// Every send record is in use.
    Full,
}

/// How the host sends a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaves {
    /// Send this header, and the payload after it. `done`: the send is complete once they have been sent.
    Eager {
        /// The header before the payload.
        head: Head,
        /// No outcome or action follows.
        done: bool,
    },
    /// Send this header; keep the payload.
    Head(Head),
}

/// An eager message whose payload may still be requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Left {
    pub(super) credit: Credit,
    pub(super) record: u32,
    /// Its owner waits for the payload's buffer.
    pub(super) is_urgent: bool,
}

/// A send that is not complete.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Send {
    pub(super) user: u32,
    pub(super) peer: PeerId,
    pub(super) context: Context,
    pub(super) tag: Tag,
    pub(super) bytes: u64,
    pub(super) at: u64,
    /// The number of its latest header to this peer.
    pub(super) number: u64,
    pub(super) stage: Stage,
    pub(super) fits: bool,
    pub(super) synchronous: bool,
    pub(super) lent: bool,
    links: [Link; 3],
}

/// The state of a send.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Stage {
    Free,
    Held,
    /// The payload was sent, and may not be stored.
    Eager,
    /// The peer has its header, and will request the payload or report the match.
    Announced,
    /// The peer has the payload, and will report the match.
    Accepted,
}

/// Classes of queues: all held messages of a peer; those of one context and tag; those of one context.
pub(super) const HELD: u8 = 0;
pub(super) const HELD_TAG: u8 = 1;
pub(super) const HELD_ANY_TAG: u8 = 2;
pub(super) const CLASSES: u8 = 3;
/// Class of the eager messages in flight to a peer, which are linked where held messages are.
pub(super) const LEFT: u8 = HELD;

impl Send {
    /// An unused record.
    pub const FREE: Self = Self {
        user: 0,
        peer: PeerId(NONE),
        context: Context(0),
        tag: Tag(0),
        bytes: 0,
        at: 0,
        number: 0,
        stage: Stage::Free,
        fits: false,
        synchronous: false,
        lent: false,
        links: [Link::NONE; 3],
    };

    pub(super) fn free_link(&mut self) -> &mut u32 {
        let [link, ..] = &mut self.links;
        &mut link.next
    }
}

impl Queued for Send {
    fn key(&self, class: u8) -> Key {
        key(class, self.peer, self.context, Some(self.tag))
    }

    fn link(&self, class: u8) -> &Link {
        let [peer, tag, any_tag] = &self.links;
        match class {
            HELD_TAG => tag,
            HELD_ANY_TAG => any_tag,
            _ => peer,
        }
    }

    fn link_mut(&mut self, class: u8) -> &mut Link {
        let [peer, tag, any_tag] = &mut self.links;
        match class {
            HELD_TAG => tag,
            HELD_ANY_TAG => any_tag,
            _ => peer,
        }
    }
}

/// The key of a queue of sends.
pub(super) fn key(class: u8, peer: PeerId, context: Context, tag: Option<Tag>) -> Key {
    match class {
        HELD_TAG => Key { class, context: context.0, peer: peer.0, tag: tag.map_or(0, |tag| tag.0) },
        HELD_ANY_TAG => Key { class, context: context.0, peer: peer.0, tag: 0 },
        _ => Key { class, context: 0, peer: peer.0, tag: 0 },
    }
}

impl Head {
    /// The header of a message that was [sent](super::Admission::send_behind) eagerly and may be requested.
    #[inline]
    pub fn behind(context: Context, tag: Tag, left: Left) -> Self {
        let flags = if left.is_urgent { Flags::PROMPT } else { Flags::empty() };
        Self::new(Kind::Eager, flags, left.credit).word(context.0).word(tag.0).word(left.record)
    }
}

impl<S: Storage> Admission<S> {
    /// Sends a message. The host carries out the result before any other call for this peer.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn send(&mut self, message: &Outgoing) -> Result<Leaves, SendError> {
        let Outgoing { to, context, tag, bytes, .. } = *message;
        let headers = self.config.headers;
        let peer = self.peer(to).ok_or(SendError::UnknownPeer)?;
        if peer.is_gone {
            return Err(SendError::PeerFailed);
        }
        let leaves = peer.holds == 0 && peer.out < headers;
        let (fits, synchronous) = (bytes <= u64::from(message.eager), message.mode == Mode::Synchronous);
        let is_short = fits && bytes <= u64::from(self.config.short);
        if leaves && is_short && !synchronous {
            let peer = self.peer(to).ok_or(SendError::UnknownPeer)?;
            peer.out = peer.out.wrapping_add(1);
            peer.show();
            let envelope = Envelope { context, source: to, tag };
            let head = self.head(to, Kind::Eager, Flags::empty());
            return Ok(Leaves::Eager { head: shown(head, &envelope, NONE), done: true });
        }
        if let Some(left) = self.send_behind(message) {
            return Ok(Leaves::Eager { head: Head::behind(context, tag, left), done: false });
        }
        let record = self.take_record(message).ok_or(SendError::Full)?;
        if leaves {
            let (head, _) = self.leave(record, Flags::empty());
            return Ok(if fits { Leaves::Eager { head, done: false } } else { Leaves::Head(head) });
        }
        let peer = self.peer(to).ok_or(SendError::UnknownPeer)?;
        peer.holds = peer.holds.wrapping_add(1);
        let number = peer.show();
        if let Some(send) = self.sends.as_mut().get_mut(record as usize) {
            send.number = number;
        }
        for class in [HELD, HELD_TAG, HELD_ANY_TAG] {
            self.queued.push(self.sends.as_mut(), record, class);
        }
        Ok(Leaves::Head(self.describe(record, Kind::Offer, Flags::empty())))
    }

    /// As [`send`](Self::send) of a message in standard mode that fits the eager limit and is longer than
    /// [`Config::short`](super::Config::short), if it can be sent at once. The result, the context and the tag make up
    /// its [header](Head::behind); the send is not complete by that. `None`: nothing was sent.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    pub fn send_behind(&mut self, message: &Outgoing) -> Option<Left> {
        let Outgoing { to, bytes, .. } = *message;
        let is_long = bytes > u64::from(self.config.short) && bytes <= u64::from(message.eager);
        let headers = self.config.headers;
        let peer = self.peers.as_ref().get(to.0 as usize)?;
        let leaves = !peer.is_gone && peer.holds == 0 && peer.out < headers;
        if !is_long || message.mode == Mode::Synchronous || !leaves {
            return None;
        }
        let record = self.take_record(message)?;
        let is_urgent = self.is_scarce() || message.lent;
        let credit = self.show(record, Stage::Eager)?.tell();
        Some(Left { credit, record, is_urgent })
    }

    /// Takes a record for a message that is not sent yet.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    fn take_record(&mut self, message: &Outgoing) -> Option<u32> {
        let Outgoing { to, context, tag, bytes, at, user, lent, .. } = *message;
        let sends = self.sends.as_mut();
        let record = self.free_sends.pop(sends, Send::free_link)?;
        self.sends_left = self.sends_left.wrapping_sub(1);
        *sends.get_mut(record as usize)? = Send {
            user,
            peer: to,
            context,
            tag,
            bytes,
            at,
            number: 0,
            stage: Stage::Held,
            fits: bytes <= u64::from(message.eager),
            synchronous: message.mode == Mode::Synchronous,
            lent,
            links: [Link::NONE; 3],
        };
        Some(record)
    }

    /// Counts the header of a message that is sent; returns its peer.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    fn show(&mut self, record: u32, stage: Stage) -> Option<&mut Peer> {
        let sends = self.sends.as_mut();
        let send = sends.get_mut(record as usize)?;
        let peer = self.peers.as_mut().get_mut(send.peer.0 as usize)?;
        peer.out = peer.out.wrapping_add(1);
        send.number = peer.show();
        send.stage = stage;
        if stage == Stage::Eager {
            peer.left.push(sends, record, LEFT);
        }
        Some(peer)
    }

    /// Whether fewer than half of the send records are free.
    fn is_scarce(&self) -> bool {
        self.sends_left < (self.sends.as_ref().len() as u32) >> 1
    }

    /// The next held message of a peer, if it can be sent now.
    pub(super) fn leave_next(&mut self, to: PeerId) -> Option<Action> {
        let headers = self.config.headers;
        let peer = self.peer(to).filter(|peer| peer.holds > 0 && peer.out < headers)?;
        let (promised, settled) = (peer.promised, peer.settled);
        let record = self.first_held(HELD, to, Context(0), None)?;
        #[cfg(not(mutant = "promise_leaves"))]
        if record == promised {
            return None;
        }
        #[cfg(mutant = "promise_leaves")]
        let _ = promised;
        let send = self.sends.as_ref().get(record as usize)?;
        let (user, fits) = (send.user, send.fits);
        // The receiver may still answer its unbuffered RTS.
        #[cfg(not(mutant = "offer_leaves"))]
        if send.number >= settled {
            return None;
        }
        #[cfg(mutant = "offer_leaves")]
        let _ = settled;
        self.unhold(record);
        let (head, done) = self.leave(record, Flags::OFFERED);
        Some(if fits { Action::Eager { to, user, head, done } } else { Action::Head { to, head } })
    }

    /// Builds the header of a message that is sent, and returns whether its send is complete by that.
    fn leave(&mut self, record: u32, flags: Flags) -> (Head, bool) {
        let (is_scarce, short) = (self.is_scarce(), u64::from(self.config.short));
        let Some(send) = self.sends.as_ref().get(record as usize) else {
            return (Head::new(Kind::Credit, Flags::empty(), Credit::NONE), true);
        };
        let (to, fits, is_short, synchronous) = (send.peer, send.fits, send.bytes <= short, send.synchronous);
        let prompt = if is_scarce || send.lent { Flags::PROMPT } else { Flags::empty() };
        let envelope = envelope(send);
        let stage = match (fits, is_short) {
            (false, _) => Stage::Announced,
            (true, true) => Stage::Accepted,
            (true, false) => Stage::Eager,
        };
        self.show(record, stage);
        if stage == Stage::Accepted && !synchronous {
            self.free_send(record);
            return (shown(self.head(to, Kind::Eager, flags), &envelope, NONE), true);
        }
        let kind = if fits { Kind::Eager } else { Kind::Announce };
        (self.describe(record, kind, flags | if is_short { Flags::empty() } else { prompt }), false)
    }

    /// The header that describes a message.
    pub(super) fn describe(&mut self, record: u32, kind: Kind, flags: Flags) -> Head {
        let Some(send) = self.sends.as_ref().get(record as usize).copied() else {
            return Head::new(Kind::Credit, Flags::empty(), Credit::NONE);
        };
        let synchronous = if send.synchronous { Flags::SYNCHRONOUS } else { Flags::empty() };
        let head = shown(self.head(send.peer, kind, flags | synchronous), &envelope(&send), record);
        if kind == Kind::Eager { head } else { head.long(send.bytes).long(send.at) }
    }

    pub(super) fn first_held(&self, class: u8, to: PeerId, context: Context, tag: Option<Tag>) -> Option<u32> {
        self.queued.first(self.sends.as_ref(), &key(class, to, context, tag))
    }

    /// Removes a message from the held ones.
    pub(super) fn unhold(&mut self, record: u32) {
        let Some(send) = self.sends.as_ref().get(record as usize) else { return };
        let to = send.peer;
        self.unqueue(record);
        if let Some(peer) = self.peer(to) {
            peer.holds = peer.holds.wrapping_sub(1);
        }
    }

    /// Removes a message from the queues of held ones.
    pub(super) fn unqueue(&mut self, record: u32) {
        for class in [HELD, HELD_TAG, HELD_ANY_TAG] {
            self.queued.remove(self.sends.as_mut(), record, class);
        }
    }

    /// Removes a message from the eager ones in flight.
    pub(super) fn unleave(&mut self, record: u32) {
        let Some(send) = self.sends.as_ref().get(record as usize) else { return };
        if let Some(peer) = self.peers.as_mut().get_mut(send.peer.0 as usize) {
            peer.left.remove(self.sends.as_mut(), record, LEFT);
        }
    }

    pub(super) fn free_send(&mut self, record: u32) {
        if let Some(send) = self.sends.as_mut().get_mut(record as usize) {
            *send = Send::FREE;
            self.free_sends.push_front(self.sends.as_mut(), record, Send::free_link);
            self.sends_left = self.sends_left.wrapping_add(1);
        }
    }

    /// Reports settled messages to a peer now, instead of with the next header or after many.
    pub fn settle(&mut self, to: PeerId) {
        self.owe(to, true);
    }

    /// Requests a report of the payloads that a peer has stored, for example before shutdown.
    pub fn flush(&mut self, to: PeerId) {
        if let Some(peer) = self.peer(to) {
            peer.flushes = peer.settled != peer.shown;
            self.activate(to);
        }
    }
}

/// The destination is not encoded: both ends know each other.
const fn envelope(send: &Send) -> Envelope {
    Envelope { context: send.context, source: send.peer, tag: send.tag }
}

fn shown(head: Head, envelope: &Envelope, message: u32) -> Head {
    head.word(envelope.context.0).word(envelope.tag.0).word(message)
}
