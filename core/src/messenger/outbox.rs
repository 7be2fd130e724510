//! Messages that wait for room in the transport.

use crate::ids::{PeerId, Port};
use crate::list::NONE;
use crate::pool::Pool;
use crate::wire::MESSAGE_HEADER_ROOM;

/// A message that waits for room: its header, and the send whose payload follows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QueuedMessage {
    pub(super) to: PeerId,
    pub(super) send: Option<u32>,
    pub(super) port: Port,
    head: [u8; MESSAGE_HEADER_ROOM],
    length: u8,
}

impl QueuedMessage {
    /// An unused record.
    pub const FREE: Self =
        Self { to: PeerId(NONE), send: None, port: Port::ONLY, head: [0; MESSAGE_HEADER_ROOM], length: 0 };

    pub(super) fn head(&self) -> &[u8] {
        self.head.get(..usize::from(self.length)).unwrap_or_default()
    }
}

/// The waiting messages: those to one peer leave in order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Outbox<Q> {
    records: Q,
    /// Records in use, from the first one on.
    used: usize,
}

impl<Q: Pool<QueuedMessage>> Outbox<Q> {
    pub(super) fn new(mut records: Q) -> Self {
        records.as_mut().fill(QueuedMessage::FREE);
        Self { records, used: 0 }
    }

    pub(super) fn is_full(&self) -> bool {
        self.used >= self.capacity()
    }

    /// Number of messages that there is room for.
    pub(super) fn capacity(&self) -> usize {
        self.records.as_ref().len()
    }

    /// Replaces the records by a larger pool. Returns false if it is not larger.
    pub(super) fn grow(&mut self, mut larger: Q) -> bool {
        if larger.as_ref().len() <= self.capacity() {
            return false;
        }
        larger.as_mut().fill(QueuedMessage::FREE);
        larger.as_mut().iter_mut().zip(self.records.as_ref()).for_each(|(to, from)| *to = *from);
        self.records = larger;
        true
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Whether a message to this peer waits.
    pub(super) fn has_any_to(&self, to: PeerId) -> bool {
        self.records.as_ref().iter().take(self.used).any(|queued| queued.to == to)
    }

    /// Appends a message. The caller has checked that there is room.
    pub(super) fn push(&mut self, to: PeerId, head: &[u8], send: Option<u32>, port: Port) {
        let Some(record) = self.records.as_mut().get_mut(self.used) else { return };
        *record = QueuedMessage { to, send, port, length: head.len() as u8, ..QueuedMessage::FREE };
        record.head.iter_mut().zip(head).for_each(|(into, byte)| *into = *byte);
        self.used = self.used.wrapping_add(1);
    }

    /// Offers the first message to each peer to `leaves`, and the following ones until one does not leave. Returns
    /// whether any left.
    pub(super) fn retain(&mut self, mut leaves: impl FnMut(&QueuedMessage) -> bool) -> bool {
        let (all, mut kept) = (self.used, 0);
        for i in 0..all {
            let Some((before, [queued, ..])) = self.records.as_mut().split_at_mut_checked(i) else { break };
            let is_blocked = before.iter().take(kept).any(|earlier| earlier.to == queued.to);
            let stays = is_blocked || !leaves(queued);
            let queued = core::mem::replace(queued, QueuedMessage::FREE);
            if stays && let Some(place) = self.records.as_mut().get_mut(kept) {
                *place = queued;
                kept = kept.wrapping_add(1);
            }
        }
        self.used = kept;
        kept < all
    }

    /// Drops the messages to a peer; reports the sends whose payload they carried.
    pub(super) fn retain_others(&mut self, peer: PeerId, mut drops: impl FnMut(u32)) {
        self.retain(|queued| {
            let is_its = queued.to == peer;
            queued.send.filter(|_| is_its).into_iter().for_each(&mut drops);
            is_its
        });
    }
}
