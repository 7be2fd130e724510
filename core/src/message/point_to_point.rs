//! Messages between two ranks: bounded memory, and nothing legal waits for ever.
//!
//! A rim joins this machine to its channels, each of which keeps order: heads of `handle`, `send` and `poll_action` leave in
//! the order in which they were handed out, after the head the payload where there is one, and are handled in that order.
//!
//! # Admission
//! Of each peer, [`Config::headers`] messages may be kept untaken: the sender counts them, and hears when they are freed.
//! - While it may, a message is *eager* (head and payload) or, when it is too long for that, *announced* (head).
//! - A payload of at most [`Config::short`] bytes is kept with the head. A longer one takes a slot of the pool; when there is none,
//!   the receiver drops it and *claims* the message: its payload is asked for later. So it stays at its sender until that hears
//!   that it is kept.
//! - When headers are full, or earlier messages to this peer are held, the sender *holds* the message, and *offers* it once: the
//!   receiver claims it if a receive waits for it, and forgets it otherwise, all but their number. As headers are freed, held
//!   messages leave as eager or announced ones, in their order: so every kept message is older than every held one.
//! - A receive that finds no kept message while its peer holds some that were forgotten *asks* the peer for the first one that
//!   matches (want), which is *found* or *missing*. One such question to a peer at a time, in the order of the receives; until a
//!   receive was asked about, it takes no offer of that peer. What is found too late, when the receive has met another message, is
//!   *declined*. A probe asks likewise, after all receives.
//!
//! # Memory
//! Receives, messages (headers × peers, and one for each message from a held one that a matched probe takes), sends, slots: as
//! lent. Nothing else grows. A message that is short and leaves at once takes no record at its sender.
//!
//! # Payload
//! An announced or claimed message comes to its receive by [`Action::Pull`]: where the receiver can reach the payload at `at`, it
//! copies and says [`fetched`](Admission::fetched); otherwise it grants memory ([`grant`](Admission::grant)), and the sender, told
//! by [`Outcome::Place`], places it there.

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

use core::marker::PhantomData;

use super::envelope::{Envelope, Tag};
use super::matching::{self, Matching};
use super::queues::Queues;
use crate::ids::{Key, MessageId, PeerId, PlacementId, ReceiveId};
use crate::list::{List, NONE};
use crate::pool::Pool;

pub use disconnect::Lost;
pub use header::{Credit, Head, KINDS};
pub use inline::AtOnce;
pub use peer::Peer;
pub use probe::Promise;
pub use receive::{Message, Receive};
pub use send::{Leaves, Left, Mode, Outgoing, Send, SendError};

use header::{Flags, Kind};
use probe::Probe;
use send::CLASSES;

/// Where the records lie.
pub trait Storage: matching::Storage<Receive, Message> {
    /// Messages that are held, or whose payload may be asked for.
    type Sends: Pool<Send>;
    /// One record per rank.
    type Peers: Pool<Peer>;
    /// One word per slot of the pool.
    type Slots: Pool<u32>;
}

/// What both sides agree on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    /// Messages of one peer that are kept untaken: 1 to 32767. Equal on all ranks.
    pub headers: u16,
    /// Bytes of payload that are kept with each head. Equal on all ranks.
    pub short: u32,
    /// Bytes of a slot of the own pool.
    pub slot: u32,
    /// Random bits for hashing.
    pub seed: u32,
}

/// What the machine is lent. Of buckets: for receives, messages and sends, four per record are enough.
#[derive(Clone, Debug)]
pub struct Lent<S: Storage> {
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

/// Something to do. What comes for one peer is done in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Send this head.
    Head {
        /// To whom.
        to: PeerId,
        /// What.
        head: Head,
    },
    /// Send this head, and the payload of a message that was held.
    Eager {
        /// To whom.
        to: PeerId,
        /// The message.
        user: u32,
        /// What.
        head: Head,
        /// The message is done once it has left.
        done: bool,
    },
    /// The payload is not asked for any more; if it was synchronous, it has met its receive.
    Sent {
        /// The message.
        user: u32,
    },
    /// Bring the payload to its receive: [`fetched`](Admission::fetched), [`grant`](Admission::grant) or
    /// [`abandon`](Admission::abandon) tell how it went.
    Pull {
        /// The receive.
        receive: ReceiveId,
        /// As it was given.
        user: u32,
        /// From whom.
        from: PeerId,
        /// Where it lies there, as the sender's rim said; `None` for a message that came with its payload, which was not kept:
        /// grant memory.
        at: Option<u64>,
        /// How many.
        bytes: u64,
    },
}

/// What came of a head that was handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Nothing to be done.
    Nothing,
    /// The payload, from byte `start` behind which it stands, is this receive's, which is done: truncated, if it has less room.
    Into {
        /// The receive.
        user: u32,
        /// Bytes of the head.
        start: usize,
        /// The message.
        status: Status,
    },
    /// Copy the payload, from byte `start` on, to this place.
    Keep {
        /// Where to.
        place: Place,
        /// Bytes of the head.
        start: usize,
    },
    /// The message is this receive's, and will be pulled.
    Coming {
        /// The receive.
        user: u32,
        /// The message.
        status: Status,
    },
    /// The message is this receive's, and too long for it.
    Truncated {
        /// The receive.
        user: u32,
        /// The message.
        status: Status,
    },
    /// The peer granted memory for a message, or for its next part: placed there, that is done.
    Place {
        /// The message.
        user: u32,
        /// The peer's name for it.
        placement: PlacementId,
        /// What allows it.
        key: Key,
        /// Memory for the parts behind this one follows.
        more: bool,
    },
    /// The message is done: taken, or too long for its receive.
    Sent {
        /// The message.
        user: u32,
        /// It was longer than its receive.
        truncated: bool,
    },
    /// No rank of ours says that.
    Nonsense,
}

/// Where a payload is kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    /// The short place of this message record.
    Short(u32),
    /// This slot of the pool.
    Slot(u32),
}

/// A message that a receive or a probe has met.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Status {
    /// What it is known by.
    pub envelope: Envelope,
    /// Bytes of its payload.
    pub bytes: u64,
}

/// What came of a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// It waits; [`Outcome`]s tell.
    Waits(ReceiveId),
    /// It has met a message that was kept.
    Met(Met),
}

/// What comes of a receive that has met a message that was kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Met {
    /// The payload was kept: copy it, cut to the receive's room, then [`release`](Admission::release) the message.
    Kept {
        /// To be released.
        message: MessageId,
        /// Where it is kept.
        place: Place,
        /// The message.
        status: Status,
    },
    /// The payload will be pulled.
    Coming(Status),
    /// The message is longer than the receive has room.
    Truncated(Status),
}

/// All messages of a process.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Admission<S: Storage> {
    config: Config,
    matching: Matching<S, Receive, Message>,
    sends: S::Sends,
    queued: Queues<S::Buckets, CLASSES>,
    free_sends: List,
    /// How many of them.
    sends_left: u32,
    peers: S::Peers,
    slots: S::Slots,
    free_slots: List,
    /// Message records beyond those that peers are promised.
    spare: u32,
    /// Messages about which their sender has to be told something.
    told: List,
    /// As that, receives.
    errands: List,
    /// Peers with something to be done.
    active: List,
    /// Peers that hold messages which were forgotten; and some that do not any more.
    holding: List,
    probe: Option<Probe>,
    probes: u32,
    /// Copied and compared where these are.
    records: PhantomData<(S::Receives, S::Messages)>,
}

impl<S: Storage> Admission<S> {
    /// No messages. `None`: fewer messages or buckets are lent than are needed, or there are no headers.
    pub fn new(config: Config, lent: Lent<S>) -> Option<Self> {
        let Lent { receives, messages, mut sends, mut peers, mut slots, buckets: [posted, kept, queued] } = lent;
        let promised = (peers.as_ref().len() as u64).checked_mul(u64::from(config.headers))?;
        let spare = (messages.as_ref().len() as u64).checked_sub(promised)?;
        if config.headers == 0 || config.headers > i16::MAX as u16 {
            return None;
        }
        sends.as_mut().fill(Send::FREE);
        peers.as_mut().fill(Peer::NEW);
        let free_sends = List::of_all(sends.as_mut(), Send::free_link);
        let free_slots = List::of_all(slots.as_mut(), |slot| slot);
        let queued = Queues::new(queued, config.seed);
        let enough = queued.has_buckets();
        enough.then_some(Self {
            config,
            matching: Matching::new(receives, messages, [posted, kept], config.seed)?,
            sends_left: sends.as_ref().len() as u32,
            sends,
            queued,
            free_sends,
            peers,
            slots,
            free_slots,
            spare: u32::try_from(spare).ok()?,
            told: List::EMPTY,
            errands: List::EMPTY,
            active: List::EMPTY,
            holding: List::EMPTY,
            probe: None,
            probes: 0,
            records: PhantomData,
        })
    }

    /// Whether nothing is to be done, waits or is kept for any peer, but for messages whose acceptance was not told yet.
    pub fn is_idle(&self) -> bool {
        self.told.is_empty() && self.errands.is_empty() && self.active.is_empty() && self.matching.is_idle()
    }

    fn peer(&mut self, peer: PeerId) -> Option<&mut Peer> {
        self.peers.as_mut().get_mut(peer.0 as usize)
    }

    /// Something may be to be done for this peer.
    fn activate(&mut self, peer: PeerId) {
        let peers = self.peers.as_mut();
        if let Some(record) = peers.get_mut(peer.0 as usize)
            && !record.is_active
        {
            record.is_active = true;
            self.active.push(peers, peer.0, |record| &mut record.active_link);
        }
    }

    /// A head for this peer, which says how far its messages are settled and freed.
    fn head(&mut self, to: PeerId, kind: Kind, flags: Flags) -> Head {
        let credit = self.peer(to).map_or(Credit::NONE, Peer::tell);
        Head::new(kind, flags, credit)
    }

    /// The peer is told at once, or once half of its headers are concerned.
    fn owe(&mut self, peer: PeerId, urged: bool) {
        let half = self.config.headers.div_ceil(2);
        let Some(record) = self.peer(peer) else { return };
        record.is_urged |= urged;
        if record.is_credit_due(half) {
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
