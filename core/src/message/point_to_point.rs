//! Point-to-point messages: MPI's matching over eager and rendezvous protocols, with bounded memory at the receiver,
//! and without deadlock in any correct program.
//!
//! The host joins this machine to its channels, each of which keeps order: the headers returned by `handle`, `send` and
//! `poll_action` are sent in the order in which they were returned, each followed by its payload if there is one, and
//! handled in that order.
//!
//! # Protocol
//! A receiver keeps at most [`Config::headers`] unexpected messages of each peer: the sender counts them, and the
//! receiver reports when they are freed.
//! - While the sender has such header credit, it sends a message *eagerly* (header and payload) or, if it is too long,
//!   as an *RTS* (header only).
//! - An unexpected payload of at most [`Config::short`] bytes is stored with the header. A longer one takes a slot of
//!   the pool; if there is none, the receiver drops it and sends an *RTS ACK*: it will request the payload later. The
//!   sender keeps an eager payload until the receiver reports that it is stored.
//! - If there is no header credit, or earlier messages to this peer are held back, the sender *holds* the message, and
//!   sends an *unbuffered RTS* once: if a posted receive matches, the receiver's CTS or FIN claims the message;
//!   otherwise it drops the header and counts it. As header credit returns, held messages are sent eagerly or as RTS, in their
//!   order: so every unexpected message is older than every held one.
//! - A receive that matches no unexpected message, while a peer holds messages whose headers were dropped, sends that
//!   peer a *match request*; the reply is *found* or *no match*. A peer gets one such request at a time, in the order
//!   of the receives; until a receive has sent its request, it matches no unbuffered RTS of that peer. If a message is
//!   found after the receive was matched by another one, the receiver *declines* it. A probe sends match requests
//!   likewise, after all receives.
//!
//! - A send is [cancelled](PointToPoint::cancel_send) by a request to its receiver, which removes an unexpected message
//!   and answers. A held message is withdrawn at its sender, unless the receiver claims it.
//!
//! # Memory
//! Receives, messages (headers × peers, and one for each held message that a matched probe takes), sends, slots: as
//! provided by the host. Nothing else grows. A short message that can be sent at once takes no record at its sender.
//!
//! # Payload
//! After an RTS or an RTS ACK the payload is moved to its receive by [`Action::Pull`]: if the receiver can read the
//! payload at `at`, it copies it and calls [`fetched`](PointToPoint::fetched), which sends a FIN; otherwise it grants
//! memory ([`grant`](PointToPoint::grant)), and the sender, which handles that CTS as [`Outcome::Place`], places the
//! payload there.

mod cancel;
mod disconnect;
mod grow;
mod header;
mod inline;
mod peer;
mod poll;
mod probe;
mod receive;
mod receive_header;
mod responses;
mod send;
mod slot_pool;

use core::marker::PhantomData;

use super::envelope::{Envelope, Tag};
use super::matching::{self, Matching};
use super::queues::QueueTable;
use crate::ids::{MessageId, PeerId, PlacementId, ReceiveId, RemoteKey};
use crate::list::{List, NONE};
use crate::pool::Pool;

pub use disconnect::Cancelled;
pub use header::{HeaderCredit, KINDS, MessageHeader};
pub use inline::InlineReceive;
pub use peer::MessagePeer;
pub use probe::Reservation;
pub use receive::{MessageBody, ReceiveBody};
pub use send::{EagerSend, Mode, Outgoing, SendAction, SendError, SendRecord};

use header::{Flags, MessageKind};
use probe::PendingProbe;
use send::CLASSES;
use slot_pool::SlotPool;

/// The memory of the records.
pub trait MessageStorage: matching::MatchingStorage<ReceiveBody, MessageBody> {
    /// Messages that are held, or whose payload may be requested.
    type Sends: Pool<SendRecord>;
    /// One record per rank.
    type Peers: Pool<MessagePeer>;
    /// One word per slot of the pool.
    type Slots: Pool<u32>;
}

/// Constants of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    /// Unexpected messages per peer: 1 to 32767. Equal on all ranks.
    pub headers: u16,
    /// Bytes of payload that are stored with each header. Equal on all ranks.
    pub short: u32,
    /// Bytes of a slot of this process's pool.
    pub slot: u32,
    /// Random bits for hashing.
    pub seed: u32,
}

/// The memory that the host provides. Buckets: for receives, messages and sends; four per record suffice.
#[derive(Clone, Debug)]
pub struct Pools<S: MessageStorage> {
    /// Receives.
    pub receives: S::Receives,
    /// Messages: [`Config::headers`] per peer, and some for matched probes.
    pub messages: S::Messages,
    /// Sends.
    pub sends: S::Sends,
    /// Peers, by their rank.
    pub peers: S::Peers,
    /// Slots of the pool.
    pub slots: S::Slots,
    /// Hash tables.
    pub buckets: [S::Buckets; 3],
}

/// An action for the host. The actions for one peer are carried out in the order in which they were returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Send this header.
    Header {
        /// The destination.
        to: PeerId,
        /// The header.
        head: MessageHeader,
    },
    /// Send this header, and the payload of a message that was held.
    Eager {
        /// The destination.
        to: PeerId,
        /// The message, by its `user` value.
        user: u32,
        /// The header.
        head: MessageHeader,
        /// The send is complete once the message has been sent.
        done: bool,
    },
    /// The send is complete: its payload is not needed any more; a synchronous one was matched.
    Sent {
        /// The message, by its `user` value.
        user: u32,
    },
    /// Move the payload to its receive; report the result by [`fetched`](PointToPoint::fetched),
    /// [`grant`](PointToPoint::grant) or [`cancel_pull`](PointToPoint::cancel_pull).
    Pull {
        /// The receive.
        receive: ReceiveId,
        /// The `user` value of the receive.
        user: u32,
        /// The sender.
        from: PeerId,
        /// The payload's location at the sender, as its host stated it; `None` for an eager message whose payload was
        /// dropped: grant memory.
        at: Option<u64>,
        /// Bytes of payload.
        bytes: u64,
    },
}

/// The result of handling a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Nothing to be done.
    Nothing,
    /// Copy the payload, which starts at byte `start`, to this receive, which is complete: truncated, if its buffer is
    /// shorter.
    Into {
        /// The receive, by its `user` value.
        user: u32,
        /// Length of the header.
        start: usize,
        /// The message's envelope and length.
        status: Status,
    },
    /// Copy the payload, which starts at byte `start`, to this place.
    Store {
        /// The destination.
        place: PayloadStore,
        /// Length of the header.
        start: usize,
    },
    /// The message matches this receive; an [`Action::Pull`] follows.
    Pending {
        /// The receive, by its `user` value.
        user: u32,
        /// The message's envelope and length.
        status: Status,
    },
    /// The message matches this receive, and is longer than its buffer.
    Truncated {
        /// The receive, by its `user` value.
        user: u32,
        /// The message's envelope and length.
        status: Status,
    },
    /// A CTS: the peer granted memory for a message, or for its next part. After the placement that message or part is
    /// complete.
    Place {
        /// The message, by its `user` value.
        user: u32,
        /// The placement that the peer granted.
        placement: PlacementId,
        /// Its remote key.
        key: RemoteKey,
        /// More grants follow, for later parts.
        more: bool,
    },
    /// The send is complete: received, or too long for its receive.
    Sent {
        /// The message, by its `user` value.
        user: u32,
        /// It was longer than its receive's buffer.
        truncated: bool,
    },
    /// A protocol violation: no correct peer sends this.
    ProtocolViolation,
}

/// Where an unexpected payload is stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PayloadStore {
    /// The short buffer of this message record.
    Short(u32),
    /// This slot of the pool.
    Slot(u32),
}

/// The message that a receive or a probe matched.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Status {
    /// Its envelope.
    pub envelope: Envelope,
    /// Bytes of its payload.
    pub bytes: u64,
}

/// The result of posting a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceiveResult {
    /// It is posted; [`Outcome`]s follow.
    Posted(ReceiveId),
    /// It matched an unexpected message.
    Matched(Matched),
}

/// A receive's match with an unexpected message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Matched {
    /// The payload is stored: copy it, truncated to the receive's buffer, then [`release`](PointToPoint::release) the
    /// message.
    Unexpected {
        /// The message to be released.
        message: MessageId,
        /// Where the payload is stored.
        place: PayloadStore,
        /// The message's envelope and length.
        status: Status,
    },
    /// The payload is at the sender; an [`Action::Pull`] follows.
    Pending(Status),
    /// The message is longer than the receive's buffer.
    Truncated(Status),
}

/// The point-to-point messages of a process. See the [module](self) for the protocol and the calling contract.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PointToPoint<S: MessageStorage> {
    config: Config,
    matching: Matching<S, ReceiveBody, MessageBody>,
    sends: S::Sends,
    held_queues: QueueTable<S::Buckets, CLASSES>,
    free_sends: List,
    /// Number of free send records.
    sends_left: u32,
    peers: S::Peers,
    slots: SlotPool<S::Slots>,
    /// Message records beyond headers × peers.
    spare: u32,
    /// Messages for which a header to their sender is pending.
    replies: List,
    /// Matched receives with a pending header or action.
    controls: List,
    /// Peers with pending actions.
    active: List,
    /// Peers that hold messages whose headers were dropped; and some that do not any more.
    holding: List,
    probe: Option<PendingProbe>,
    probes: u32,
    /// Makes the machine comparable if these records are.
    records: PhantomData<(S::Receives, S::Messages)>,
}

impl<S: MessageStorage> PointToPoint<S> {
    /// Without messages. `None`: too few messages or buckets were provided, or `headers` is out of range.
    pub fn new(config: Config, pools: Pools<S>) -> Option<Self> {
        let Pools { receives, messages, mut sends, mut peers, slots, buckets: [posted, kept, queued] } = pools;
        let promised = (peers.as_ref().len() as u64).checked_mul(u64::from(config.headers))?;
        let spare = (messages.as_ref().len() as u64).checked_sub(promised)?;
        if config.headers == 0 || config.headers > i16::MAX as u16 {
            return None;
        }
        sends.as_mut().fill(SendRecord::FREE);
        peers.as_mut().fill(MessagePeer::NEW);
        let free_sends = List::of_all(sends.as_mut(), SendRecord::free_link);
        let queued = QueueTable::new(queued, config.seed);
        let enough = queued.has_buckets();
        enough.then_some(Self {
            config,
            matching: Matching::new(receives, messages, [posted, kept], config.seed)?,
            sends_left: sends.as_ref().len() as u32,
            sends,
            held_queues: queued,
            free_sends,
            peers,
            slots: SlotPool::new(slots),
            spare: u32::try_from(spare).ok()?,
            replies: List::EMPTY,
            controls: List::EMPTY,
            active: List::EMPTY,
            holding: List::EMPTY,
            probe: None,
            probes: 0,
            records: PhantomData,
        })
    }

    /// Whether no action, receive or unexpected message is pending, except for messages whose acceptance is not yet
    /// reported.
    pub fn is_idle(&self) -> bool {
        self.replies.is_empty() && self.controls.is_empty() && self.active.is_empty() && self.matching.is_idle()
    }

    /// Numbers of receives that have matched no message, and of messages that no receive has matched.
    pub fn waiting_counts(&self) -> [u32; 2] {
        self.matching.waiting_counts()
    }

    fn peer(&mut self, peer: PeerId) -> Option<&mut MessagePeer> {
        self.peers.as_mut().get_mut(peer.0 as usize)
    }

    /// Lists a peer for which an action may be pending.
    fn activate(&mut self, peer: PeerId) {
        let peers = self.peers.as_mut();
        if let Some(record) = peers.get_mut(peer.0 as usize)
            && !record.links.is_active
        {
            record.links.is_active = true;
            self.active.push(peers, peer.0, |record| &mut record.links.active);
        }
    }

    /// A header for this peer, with the current credit.
    fn head(&mut self, to: PeerId, kind: MessageKind, flags: Flags) -> MessageHeader {
        let credit = self.peer(to).map_or(HeaderCredit::NONE, |peer| peer.received.take_credit());
        MessageHeader::new(kind, flags, credit)
    }

    /// Lists the peer for a credit header: at once if `urged`, or once half of its headers are freed or settled.
    fn schedule_credit(&mut self, peer: PeerId, urged: bool) {
        let half = self.config.headers.div_ceil(2);
        let Some(record) = self.peer(peer) else { return };
        record.received.is_report_requested |= urged;
        if record.received.is_credit_due(half) {
            self.activate(peer);
        }
    }
}

const fn tag_of(tag: u32, any: bool) -> Option<Tag> {
    if any { None } else { Some(Tag(tag)) }
}

const fn tag_word(tag: Option<Tag>) -> u32 {
    match tag {
        Some(tag) => tag.0,
        None => NONE,
    }
}
