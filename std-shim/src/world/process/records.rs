//! Point-to-point messages that wait for room in the endpoint, and the batch of sends that are flushed together.

use unisono_core::ids::PeerId;
use unisono_core::span::Span;
use unisono_core::wire::MESSAGE_HEADER_ROOM;

use super::transport::OperationOwner;

/// A message to be posted to the endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuedMessage {
    pub(super) to: PeerId,
    head: [u8; MESSAGE_HEADER_ROOM],
    length: usize,
    pub(super) payload: Option<Span>,
    pub(super) owner: OperationOwner,
}

impl QueuedMessage {
    pub(super) fn new(to: PeerId, head: &[u8], payload: Option<Span>, owner: OperationOwner) -> Self {
        let (mut copy, length) = ([0; MESSAGE_HEADER_ROOM], head.len().min(MESSAGE_HEADER_ROOM));
        copy.iter_mut().zip(head).for_each(|(into, byte)| *into = *byte);
        Self { to, head: copy, length, payload, owner }
    }

    pub(super) fn head(&self) -> &[u8] {
        self.head.get(..self.length).unwrap_or_default()
    }
}

/// Sends that wait to be flushed together.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct SendBatch {
    pub(super) sends: usize,
    /// Number of sends after which the batch is flushed: a whole number of GSO trains of the first one's length.
    pub(super) max_sends: usize,
    pub(super) bytes: usize,
}
