//! Operations: requests to send or to place, queued first-in first-out per peer.

use crate::ids::{PeerId, PlacementId};
use crate::list::NONE;
use crate::span::{Region, Span};
use crate::window::rails::{ALL_RAILS, RailChoice, RailMask};
use crate::wire::MESSAGE_HEADER_ROOM;

/// Why an operation did not complete.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OperationError {
    /// The peer failed, was replaced by another incarnation, or is unreachable.
    PeerFailed,
    /// The peer sent Bye before it had received everything.
    PeerFinished,
    /// The peer granted no such placement, or has withdrawn it.
    Refused,
}

/// Why an operation was not queued.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EnqueueError {
    /// No peer of that rank is known.
    UnknownPeer,
    /// The peer's present incarnation has failed.
    PeerFailed,
    /// The peer sent Bye.
    PeerFinished,
    /// Every operation record is in use: poll events first.
    Full,
    /// Header and payload, or the opening of a placement, exceed one datagram to this peer.
    TooLong,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum OperationKind {
    /// One datagram: `head_bytes` of the message's header, then the payload.
    Eager,
    /// An opening, then the payload in segments of `segment` bytes.
    Place { placement: PlacementId, segment: u32 },
}

/// One operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Operation {
    pub(crate) peer: PeerId,
    /// The next record in the peer's circular queue, the free list or the list of events.
    pub(crate) link: u32,
    /// The first operation of the next queue that waits for a send window.
    pub(crate) waiting: u32,
    pub(crate) kind: OperationKind,
    pub(crate) payload: Span,
    pub(crate) head: [u8; MESSAGE_HEADER_ROOM],
    pub(crate) head_bytes: u8,
    /// A probe follows it, which wakes a blocked peer.
    pub(crate) solicited: bool,
    /// The rails that it prefers.
    pub(crate) rails: RailMask,
    pub(crate) error: Option<OperationError>,
    /// Segments in total, sent, and released after acknowledgement and completion.
    pub(crate) parts: u32,
    pub(crate) sent: u32,
    pub(crate) released: u32,
}

impl Operation {
    /// An unused record.
    pub const FREE: Self = Self {
        peer: PeerId(NONE),
        link: NONE,
        waiting: NONE,
        kind: OperationKind::Eager,
        payload: Span { region: Region::new(0, 0), offset: 0, bytes: 0 },
        head: [0; MESSAGE_HEADER_ROOM],
        head_bytes: 0,
        solicited: false,
        rails: ALL_RAILS,
        error: None,
        parts: 0,
        sent: 0,
        released: 0,
    };

    /// What its next segment asks of the rails.
    pub(crate) const fn rail_choice(&self) -> RailChoice {
        RailChoice { among: self.rails, is_bulk: self.sent > 0 }
    }
}
