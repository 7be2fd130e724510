//! Results and actions: of sends, receives and received messages, and what the host has to do.

use super::{StepHeader, StepKey};
use crate::ids;
use crate::ids::{PeerId, PlacementId};

/// There are fewer slots than the credit of all peers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TooFewSlots;

/// How a message is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// Header and payload in one message of the endpoint; the send is complete when that is.
    Eager(StepHeader),
    /// The RTS alone; [`Arrival::Place`], [`Arrival::Fetched`] or [`Arrival::Refused`] follows.
    Rts(StepHeader),
}

/// Why nothing was sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StepSendError {
    /// No such rank.
    UnknownPeer,
    /// Every record is in use: retry after a send by rendezvous is complete.
    Full,
    /// An RTS with that key to that peer is unanswered.
    Duplicate,
}

/// The result of posting a receive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Posted {
    /// [`Arrival::Into`] or [`TransportAction::Pull`] follows, or [`Arrival::Disagrees`].
    Waits,
    /// Its payload is stored in this slot, from the first byte on. The receive is complete once it was copied: then
    /// call [`CollectiveTransport::release_slot`](super::CollectiveTransport::release_slot).
    Early {
        /// The slot.
        slot: u32,
    },
}

/// Why a message will not be received.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReceiveError {
    /// No such rank.
    UnknownPeer,
    /// Every record is in use: retry after another receive is complete.
    Full,
    /// A receive of that key is posted for that peer.
    Duplicate,
    /// The peer sent this many bytes instead; the message was discarded.
    Disagrees {
        /// The message's length.
        bytes: u32,
    },
}

/// The result of handling a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Arrival {
    /// The payload, which starts at byte `start` of the message, is for this receive, which is complete then.
    Into {
        /// The receive, by its `user` value.
        user: u32,
        /// Where the payload begins.
        start: u16,
    },
    /// The payload is to be stored in this slot.
    Keep {
        /// The slot.
        slot: u32,
        /// Where the payload begins.
        start: u16,
        /// Its length, within the peer's limit.
        bytes: u32,
    },
    /// A CTS: the payload is to be placed; the send is complete when the endpoint reports completion.
    Place {
        /// The send, by its `user` value.
        user: u32,
        /// The placement that the peer granted.
        placement: PlacementId,
        /// Its remote key.
        key: ids::RemoteKey,
    },
    /// A FIN: the peer has copied the payload; the send is complete.
    Fetched {
        /// The send, by its `user` value.
        user: u32,
    },
    /// The peer expects another length than this send's, which is over, or has cancelled the collective.
    Refused {
        /// The send, by its `user` value.
        user: u32,
    },
    /// The message has another length than this receive, which is over.
    Disagrees {
        /// The receive, by its `user` value.
        user: u32,
    },
    /// No immediate action; polled actions may follow.
    Nothing,
    /// A protocol violation: no correct peer sends this.
    ProtocolViolation,
}

/// An action for the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransportAction {
    /// Move the payload to its receive. Either copy it, if this rank can read it at `at`, and send the peer
    /// [`StepHeader::fin`]; or grant the receive's memory to the peer under a fresh remote key, and send it
    /// [`StepHeader::cts`]: then the receive is complete when the endpoint reports delivery. The machine forgets it.
    Pull {
        /// The peer.
        to: PeerId,
        /// The receive, by its `user` value.
        user: u32,
        /// The message's key.
        key: StepKey,
        /// The message's length, which is the receive's.
        bytes: u32,
        /// The payload's location at the sender, as its host stated it.
        at: u64,
    },
    /// Send a message without payload.
    Send {
        /// The peer.
        to: PeerId,
        /// The header.
        head: StepHeader,
    },
}

/// Records in use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RecordUsage {
    /// Sends whose RTS is not answered.
    pub sends: u32,
    /// Receives without a message.
    pub receives: u32,
    /// Eager messages without a receive.
    pub slots: u32,
    /// Headers without a receive.
    pub headers: u32,
}
