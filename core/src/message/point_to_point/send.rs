//! Messages that leave.

use super::header::{Credit, Flags, Head, Kind};
use super::{Action, Admission, Peer, Storage};
use crate::ids::PeerId;
use crate::list::NONE;
use crate::message::envelope::{Context, Envelope, Tag};
use crate::message::queues::{Key, Link, Queued};

/// When a message is done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// When its payload need not be kept any longer.
    Standard,
    /// When it has met its receive.
    Synchronous,
    /// As [`Standard`](Self::Standard); the caller knows that the receive is posted. It is not relied on.
    Ready,
}

/// A message to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Outgoing {
    /// To whom.
    pub to: PeerId,
    /// The communicator.
    pub context: Context,
    /// What it is called.
    pub tag: Tag,
    /// Bytes of payload.
    pub bytes: u64,
    /// Longer ones are announced: what this peer's channel carries in one piece behind the head.
    pub eager: u32,
    /// Where the receiver finds the payload; the rims agree on its meaning.
    pub at: u64,
    /// When it is done.
    pub mode: Mode,
    /// Its owner waits for the payload; otherwise it is a copy, and it does not matter when the peer tells that it is kept.
    pub lent: bool,
    /// Told again when it is done.
    pub user: u32,
}

/// Why nothing was sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SendError {
    /// There is no such rank.
    UnknownPeer,
    /// The peer is gone.
    PeerFailed,
    /// All records are in use.
    Full,
}

/// How a message leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaves {
    /// Send this head, and the payload behind it. `done`: once they have left, the message is done.
    Eager {
        /// What stands before the payload.
        head: Head,
        /// Nothing more will be said about the message.
        done: bool,
    },
    /// Send this head; keep the payload.
    Head(Head),
}

/// A message that has left behind its head, and may still be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Left {
    pub(super) credit: Credit,
    pub(super) record: u32,
    /// Its owner waits for it.
    pub(super) is_urgent: bool,
}

/// A message that is not done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Send {
    pub(super) user: u32,
    pub(super) peer: PeerId,
    pub(super) context: Context,
    pub(super) tag: Tag,
    pub(super) bytes: u64,
    pub(super) at: u64,
    /// When the peer was shown it last.
    pub(super) number: u64,
    pub(super) stage: Stage,
    pub(super) fits: bool,
    pub(super) synchronous: bool,
    pub(super) lent: bool,
    links: [Link; 3],
}

/// Where a message stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Stage {
    Free,
    Held,
    /// Its payload is on its way.
    Eager,
    /// The peer has its head, and will ask for the payload or say that it has met its receive.
    Announced,
    /// The peer has the payload, and will say that it has met its receive.
    Accepted,
}

/// Classes of queues: all that are held for a peer; of them those of one context and tag, and of one context.
pub(super) const HELD: u8 = 0;
pub(super) const HELD_TAG: u8 = 1;
pub(super) const HELD_ANY_TAG: u8 = 2;
pub(super) const CLASSES: u8 = 3;
/// Of those that are on their way to a peer, which is where they are found, and not held any more.
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

/// Of a queue of sends.
pub(super) fn key(class: u8, peer: PeerId, context: Context, tag: Option<Tag>) -> Key {
    match class {
        HELD_TAG => Key { class, context: context.0, peer: peer.0, tag: tag.map_or(0, |tag| tag.0) },
        HELD_ANY_TAG => Key { class, context: context.0, peer: peer.0, tag: 0 },
        _ => Key { class, context: 0, peer: peer.0, tag: 0 },
    }
}

impl Head {
    /// That of a message which has [left](super::Admission::send_behind).
    #[inline]
    pub fn behind(context: Context, tag: Tag, left: Left) -> Self {
        let flags = if left.is_urgent { Flags::PROMPT } else { Flags::empty() };
        Self::new(Kind::Eager, flags, left.credit).word(context.0).word(tag.0).word(left.record)
    }
}

impl<S: Storage> Admission<S> {
    /// Sends a message. What it returns is done before anything else is asked of the machine for this peer.
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

    /// As [`send`](Self::send) of a message in standard mode that fits behind its head and is longer than
    /// [`Config::short`](super::Config::short), if it may leave at once. Then this, its context and its tag are all that its
    /// [head](Head::behind) has to say; it is not done by that. `None`: nothing was sent.
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

    /// A record of a message that has not left.
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

    /// A message leaves that is not held: to whom.
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

    /// Fewer than half of the records are left.
    fn is_scarce(&self) -> bool {
        self.sends_left < (self.sends.as_ref().len() as u32) >> 1
    }

    /// The next message that is held for a peer, if it may leave now.
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
        // Before that, the receiver may be claiming it.
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

    /// The head with which a message leaves that is not held, and whether it is done by that.
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

    /// The head that shows a message.
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

    /// Takes a message out of what is held.
    pub(super) fn unhold(&mut self, record: u32) {
        let Some(send) = self.sends.as_ref().get(record as usize) else { return };
        let to = send.peer;
        self.unqueue(record);
        if let Some(peer) = self.peer(to) {
            peer.holds = peer.holds.wrapping_sub(1);
        }
    }

    /// Takes a message out of the queues of what is held.
    pub(super) fn unqueue(&mut self, record: u32) {
        for class in [HELD, HELD_TAG, HELD_ANY_TAG] {
            self.queued.remove(self.sends.as_mut(), record, class);
        }
    }

    /// Takes a message out of those whose payload is on its way.
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

    /// Tells a peer now how far its messages are settled, instead of with the next head or when many are.
    pub fn settle(&mut self, to: PeerId) {
        self.owe(to, true);
    }

    /// Asks a peer to tell which payloads it has kept: before one leaves.
    pub fn flush(&mut self, to: PeerId) {
        if let Some(peer) = self.peer(to) {
            peer.flushes = peer.settled != peer.shown;
            self.activate(to);
        }
    }
}

/// The peer is not said: each end knows the other one.
const fn envelope(send: &Send) -> Envelope {
    Envelope { context: send.context, source: send.peer, tag: send.tag }
}

fn shown(head: Head, envelope: &Envelope, message: u32) -> Head {
    head.word(envelope.context.0).word(envelope.tag.0).word(message)
}
