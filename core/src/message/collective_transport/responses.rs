//! What the machine says: what becomes of sends and receives, what a message means, what is to be done.

use super::{Head, Key};
use crate::ids;
use crate::ids::{PeerId, PlacementId};

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
    /// Its payload lies in this slot, from its first byte on. It is over when it was copied out: then [`Steps::taken`](super::Steps::taken) is called.
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
        key: ids::Key,
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
