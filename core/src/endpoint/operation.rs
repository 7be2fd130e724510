//! Operations: what was asked to be sent, queued first-in first-out per peer.

use crate::ids::{PeerId, PlacementId};
use crate::list::NONE;
use crate::span::{Region, Span};
use crate::wire::MESSAGE_HEAD;

/// Why an operation did not complete.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OperationError {
    /// The peer's life ended, was replaced, or is out of reach.
    PeerFailed,
    /// The peer left before it took everything.
    Parted,
    /// The peer granted no such placement, or has withdrawn it.
    Refused,
}

/// Why nothing was taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SendError {
    /// No peer of that rank was met.
    UnknownPeer,
    /// The peer's present life has ended.
    PeerFailed,
    /// The peer said Bye.
    Parted,
    /// Every operation record is in use: poll events first.
    Full,
    /// Head and payload, or the opening of a placement, exceed one datagram to this peer.
    TooLong,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum What {
    /// One datagram, `head_bytes` of head and the payload.
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
    /// The next queue's first operation that waits for a send window.
    pub(crate) waiting: u32,
    pub(crate) what: What,
    pub(crate) payload: Span,
    pub(crate) head: [u8; MESSAGE_HEAD],
    pub(crate) head_bytes: u8,
    pub(crate) error: Option<OperationError>,
    /// Segments in all, sent, and released by window and device.
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
        what: What::Eager,
        payload: Span { region: Region::new(0, 0), offset: 0, bytes: 0 },
        head: [0; MESSAGE_HEAD],
        head_bytes: 0,
        error: None,
        parts: 0,
        sent: 0,
        released: 0,
    };
}
