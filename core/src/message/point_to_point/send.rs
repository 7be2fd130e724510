//! Sends: eager, by RTS, or held until the receiver has room.

use super::header::{Flags, HeaderCredit, MessageHeader, MessageKind};
use super::{Action, MessagePeer, MessageStorage, PointToPoint};
use crate::ids::PeerId;
use crate::list::NONE;
use crate::message::envelope::{Context, Envelope, Tag};
use crate::message::queues::{QueueKey, QueueLink, Queued};

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
    pub borrowed: bool,
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
pub enum SendAction {
    /// Send this header, and the payload after it. `done`: the send is complete once they have been sent.
    Eager {
        /// The header before the payload.
        head: MessageHeader,
        /// No outcome or action follows.
        done: bool,
    },
    /// Send this header; keep the payload.
    Header(MessageHeader),
}

/// An eager message whose payload may still be requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EagerSend {
    pub(super) credit: HeaderCredit,
    pub(super) record: u32,
    /// Its owner waits for the payload's buffer.
    pub(super) is_urgent: bool,
}

/// A send that is not complete.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SendRecord {
    pub(super) user: u32,
    pub(super) peer: PeerId,
    pub(super) context: Context,
    pub(super) tag: Tag,
    pub(super) bytes: u64,
    pub(super) at: u64,
    /// The number of its latest header to this peer.
    pub(super) number: u64,
    /// That of its first header.
    pub(super) first_number: u32,
    pub(super) state: SendState,
    pub(super) fits: bool,
    pub(super) synchronous: bool,
    pub(super) borrowed: bool,
    links: [QueueLink; 3],
}

/// The state of a send.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum SendState {
    Free,
    Held,
    /// The payload was sent, and may not be stored.
    Eager,
    /// The peer has its header, and will request the payload or report the match.
    RtsSent,
    /// The peer has the payload, and will report the match.
    Accepted,
}

/// Classes of queues: all held messages of a peer; those of one context and tag; those of one context.
pub(super) const HELD: u8 = 0;
pub(super) const HELD_TAG: u8 = 1;
pub(super) const HELD_ANY_TAG: u8 = 2;
pub(super) const CLASSES: u8 = 3;
/// Class of the eager messages in flight to a peer, which are linked where held messages are.
pub(super) const EAGER_IN_FLIGHT: u8 = HELD;

impl SendRecord {
    /// An unused record.
    pub const FREE: Self = Self {
        user: 0,
        peer: PeerId(NONE),
        context: Context(0),
        tag: Tag(0),
        bytes: 0,
        at: 0,
        number: 0,
        first_number: 0,
        state: SendState::Free,
        fits: false,
        synchronous: false,
        borrowed: false,
        links: [QueueLink::NONE; 3],
    };

    pub(super) fn free_link(&mut self) -> &mut u32 {
        let [link, ..] = &mut self.links;
        &mut link.next
    }
}

impl Queued for SendRecord {
    fn key(&self, class: u8) -> QueueKey {
        key(class, self.peer, self.context, Some(self.tag))
    }

    fn link(&self, class: u8) -> &QueueLink {
        let [peer, tag, any_tag] = &self.links;
        match class {
            HELD_TAG => tag,
            HELD_ANY_TAG => any_tag,
            _ => peer,
        }
    }

    fn link_mut(&mut self, class: u8) -> &mut QueueLink {
        let [peer, tag, any_tag] = &mut self.links;
        match class {
            HELD_TAG => tag,
            HELD_ANY_TAG => any_tag,
            _ => peer,
        }
    }
}

/// The key of a queue of sends.
pub(super) fn key(class: u8, peer: PeerId, context: Context, tag: Option<Tag>) -> QueueKey {
    match class {
        HELD_TAG => QueueKey { class, context: context.0, peer: peer.0, tag: tag.map_or(0, |tag| tag.0) },
        HELD_ANY_TAG => QueueKey { class, context: context.0, peer: peer.0, tag: 0 },
        _ => QueueKey { class, context: 0, peer: peer.0, tag: 0 },
    }
}

impl MessageHeader {
    /// The header of a message that was [sent](super::PointToPoint::send_eager) eagerly and may be requested.
    #[inline]
    pub fn for_eager(context: Context, tag: Tag, left: EagerSend) -> Self {
        let flags = if left.is_urgent { Flags::PROMPT } else { Flags::empty() };
        Self::new(MessageKind::Eager, flags, left.credit).word(context.0).word(tag.0).word(left.record)
    }
}

impl<S: MessageStorage> PointToPoint<S> {
    /// Sends a message. The host carries out the result before any other call for this peer.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn send(&mut self, message: &Outgoing) -> Result<SendAction, SendError> {
        let Outgoing { to, context, tag, bytes, .. } = *message;
        let headers = self.config.headers;
        let peer = self.peer(to).ok_or(SendError::UnknownPeer)?;
        if peer.is_failed {
            return Err(SendError::PeerFailed);
        }
        let leaves = peer.sent.held == 0 && peer.sent.outstanding < headers;
        let (fits, synchronous) = (bytes <= u64::from(message.eager), message.mode == Mode::Synchronous);
        let is_short = fits && bytes <= u64::from(self.config.short);
        if leaves && is_short && !synchronous {
            let peer = self.peer(to).ok_or(SendError::UnknownPeer)?;
            peer.sent.outstanding = peer.sent.outstanding.wrapping_add(1);
            peer.sent.count_one();
            let envelope = Envelope { context, source: to, tag };
            let head = self.head(to, MessageKind::Eager, Flags::empty());
            return Ok(SendAction::Eager { head: describe_envelope(head, &envelope, NONE), done: true });
        }
        if let Some(left) = self.send_eager(message) {
            return Ok(SendAction::Eager { head: MessageHeader::for_eager(context, tag, left), done: false });
        }
        let record = self.take_record(message).ok_or(SendError::Full)?;
        if leaves {
            let (head, _) = self.build_send(record, Flags::empty());
            return Ok(if fits { SendAction::Eager { head, done: false } } else { SendAction::Header(head) });
        }
        let peer = self.peer(to).ok_or(SendError::UnknownPeer)?;
        peer.sent.held = peer.sent.held.wrapping_add(1);
        let number = peer.sent.count_one();
        if let Some(send) = self.sends.as_mut().get_mut(record as usize) {
            send.number = number;
        }
        for class in [HELD, HELD_TAG, HELD_ANY_TAG] {
            self.held_queues.push(self.sends.as_mut(), record, class);
        }
        Ok(SendAction::Header(self.describe(record, MessageKind::UnbufferedRts, Flags::empty())))
    }

    /// As [`send`](Self::send) of a message in standard mode that fits the eager limit and is longer than
    /// [`Config::short`](super::Config::short), if it can be sent at once. The result, the context and the tag make up
    /// its [header](MessageHeader::for_eager); the send is not complete by that. `None`: nothing was sent.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    pub fn send_eager(&mut self, message: &Outgoing) -> Option<EagerSend> {
        let Outgoing { to, bytes, .. } = *message;
        let is_long = bytes > u64::from(self.config.short) && bytes <= u64::from(message.eager);
        let headers = self.config.headers;
        let peer = self.peers.as_ref().get(to.0 as usize)?;
        let leaves = !peer.is_failed && peer.sent.held == 0 && peer.sent.outstanding < headers;
        if !is_long || message.mode == Mode::Synchronous || !leaves {
            return None;
        }
        let record = self.take_record(message)?;
        let is_urgent = self.is_low_on_records() || message.borrowed;
        let credit = self.mark_sent(record, SendState::Eager)?.received.take_credit();
        Some(EagerSend { credit, record, is_urgent })
    }

    /// Takes a record for a message that is not sent yet.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    fn take_record(&mut self, message: &Outgoing) -> Option<u32> {
        let Outgoing { to, context, tag, bytes, at, user, borrowed: is_borrowed, .. } = *message;
        let first_number = self.next_number(to);
        let sends = self.sends.as_mut();
        let record = self.free_sends.pop(sends, SendRecord::free_link)?;
        self.sends_left = self.sends_left.wrapping_sub(1);
        *sends.get_mut(record as usize)? = SendRecord {
            user,
            peer: to,
            context,
            tag,
            bytes,
            at,
            number: 0,
            first_number,
            state: SendState::Held,
            fits: bytes <= u64::from(message.eager),
            synchronous: message.mode == Mode::Synchronous,
            borrowed: is_borrowed,
            links: [QueueLink::NONE; 3],
        };
        Some(record)
    }

    /// Counts the header of a message that is sent; returns its peer.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    fn mark_sent(&mut self, record: u32, stage: SendState) -> Option<&mut MessagePeer> {
        let sends = self.sends.as_mut();
        let send = sends.get_mut(record as usize)?;
        let peer = self.peers.as_mut().get_mut(send.peer.0 as usize)?;
        peer.sent.outstanding = peer.sent.outstanding.wrapping_add(1);
        send.number = peer.sent.count_one();
        send.state = stage;
        if stage == SendState::Eager {
            peer.sent.eager_in_flight.push(sends, record, EAGER_IN_FLIGHT);
        }
        Some(peer)
    }

    /// Whether fewer than half of the send records are free.
    fn is_low_on_records(&self) -> bool {
        self.sends_left < (self.sends.as_ref().len() as u32) >> 1
    }

    /// The next held message of a peer, if it can be sent now.
    pub(super) fn send_next_held(&mut self, to: PeerId) -> Option<Action> {
        let headers = self.config.headers;
        let peer = self.peer(to).filter(|peer| peer.sent.held > 0 && peer.sent.outstanding < headers)?;
        let (promised, settled) = (peer.requests.reserved, peer.sent.settled);
        let record = self.first_held(HELD, to, Context(0), None)?;
        if record == promised && !mutant!("promise_leaves") || self.is_being_cancelled(to, record) {
            return None;
        }
        let send = self.sends.as_ref().get(record as usize)?;
        let (user, fits) = (send.user, send.fits);
        // The receiver may still answer its unbuffered RTS.
        if send.number >= settled && !mutant!("offer_leaves") {
            return None;
        }
        self.unhold(record);
        let (head, done) = self.build_send(record, Flags::OFFERED);
        Some(if fits { Action::Eager { to, user, head, done } } else { Action::Header { to, head } })
    }

    /// Builds the header of a message that is sent, and returns whether its send is complete by that.
    fn build_send(&mut self, record: u32, flags: Flags) -> (MessageHeader, bool) {
        let (is_scarce, short) = (self.is_low_on_records(), u64::from(self.config.short));
        let Some(send) = self.sends.as_ref().get(record as usize) else {
            return (MessageHeader::new(MessageKind::Credit, Flags::empty(), HeaderCredit::NONE), true);
        };
        let (to, fits, is_short, synchronous) = (send.peer, send.fits, send.bytes <= short, send.synchronous);
        let prompt = if is_scarce || send.borrowed { Flags::PROMPT } else { Flags::empty() };
        let envelope = envelope(send);
        let stage = match (fits, is_short) {
            (false, _) => SendState::RtsSent,
            (true, true) => SendState::Accepted,
            (true, false) => SendState::Eager,
        };
        self.mark_sent(record, stage);
        if stage == SendState::Accepted && !synchronous {
            self.free_send(record);
            return (describe_envelope(self.head(to, MessageKind::Eager, flags), &envelope, NONE), true);
        }
        let kind = if fits { MessageKind::Eager } else { MessageKind::Rts };
        (self.describe(record, kind, flags | if is_short { Flags::empty() } else { prompt }), false)
    }

    /// The header that describes a message.
    pub(super) fn describe(&mut self, record: u32, kind: MessageKind, flags: Flags) -> MessageHeader {
        let Some(send) = self.sends.as_ref().get(record as usize).copied() else {
            return MessageHeader::new(MessageKind::Credit, Flags::empty(), HeaderCredit::NONE);
        };
        let synchronous = if send.synchronous { Flags::SYNCHRONOUS } else { Flags::empty() };
        let head = describe_envelope(self.head(send.peer, kind, flags | synchronous), &envelope(&send), record);
        if kind == MessageKind::Eager { head } else { head.long(send.bytes).long(send.at) }
    }

    pub(super) fn first_held(&self, class: u8, to: PeerId, context: Context, tag: Option<Tag>) -> Option<u32> {
        self.held_queues.first(self.sends.as_ref(), &key(class, to, context, tag))
    }

    /// Removes a message from the held ones.
    pub(super) fn unhold(&mut self, record: u32) {
        let Some(send) = self.sends.as_ref().get(record as usize) else { return };
        let to = send.peer;
        self.unqueue(record);
        if let Some(peer) = self.peer(to) {
            peer.sent.held = peer.sent.held.wrapping_sub(1);
        }
    }

    /// Removes a message from the queues of held ones.
    pub(super) fn unqueue(&mut self, record: u32) {
        for class in [HELD, HELD_TAG, HELD_ANY_TAG] {
            self.held_queues.remove(self.sends.as_mut(), record, class);
        }
    }

    /// Removes a message from the eager ones in flight.
    pub(super) fn unlink_eager(&mut self, record: u32) {
        let Some(send) = self.sends.as_ref().get(record as usize) else { return };
        if let Some(peer) = self.peers.as_mut().get_mut(send.peer.0 as usize) {
            peer.sent.eager_in_flight.remove(self.sends.as_mut(), record, EAGER_IN_FLIGHT);
        }
    }

    pub(super) fn free_send(&mut self, record: u32) {
        if let Some(send) = self.sends.as_mut().get_mut(record as usize) {
            *send = SendRecord::FREE;
            self.free_sends.push_front(self.sends.as_mut(), record, SendRecord::free_link);
            self.sends_left = self.sends_left.wrapping_add(1);
        }
    }

    /// Reports settled messages to a peer now, instead of with the next header or after many.
    pub fn report_settled(&mut self, to: PeerId) {
        self.schedule_credit(to, true);
    }

    /// Requests a report of the payloads that a peer has stored, for example before shutdown.
    pub fn request_report(&mut self, to: PeerId) {
        if let Some(peer) = self.peer(to) {
            peer.flushes = peer.sent.settled != peer.sent.count;
            self.activate(to);
        }
    }
}

/// The destination is not encoded: both ends know each other.
const fn envelope(send: &SendRecord) -> Envelope {
    Envelope { context: send.context, source: send.peer, tag: send.tag }
}

fn describe_envelope(head: MessageHeader, envelope: &Envelope, message: u32) -> MessageHeader {
    head.word(envelope.context.0).word(envelope.tag.0).word(message)
}
