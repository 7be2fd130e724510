//! Commands: send, place, grant, withdraw.

use super::{Endpoint, Now};
use crate::device::DeviceQueue;
use crate::endpoint::operation::{EnqueueError, Operation, OperationKind};
use crate::endpoint::peer::{NO_WINDOW, Peer, PeerFlags, PeerState};
use crate::endpoint::placement::{Placement, PlacementState, segments};
use crate::endpoint::storage::Storage;
use crate::ids::{OperationId, PeerId, PlacementId, Port, Rail, RemoteKey};
use crate::list::NONE;
use crate::span::Span;
use crate::time::Time;
use crate::window::rails::{RailChoice, bit};
use crate::wire::{HEADER, MESSAGE_HEADER_ROOM, Opening, SEGMENT_HEADER};

/// Why nothing was granted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GrantError {
    /// No peer of that rank is alive.
    UnknownPeer,
    /// Every placement record is in use.
    Full,
}

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// Sends a message of one datagram: `head` (at most 40 bytes) and the payload. Both are delivered exactly once, in
    /// the order of sending. The payload must stay unchanged until [`Event::Completed`](super::Event).
    ///
    /// # Errors
    /// [`EnqueueError`]; nothing was queued.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    pub fn send(
        &mut self,
        now: Now<S, W, BITS>,
        to: PeerId,
        head: &[u8],
        payload: Option<Span>,
    ) -> Result<OperationId, EnqueueError> {
        let room = self.reachable(to)?.mtu as usize;
        let payload = payload.unwrap_or_default();
        let bytes = HEADER.saturating_add(head.len()).saturating_add(payload.bytes as usize);
        if head.len() > MESSAGE_HEADER_ROOM || bytes > room {
            return Err(EnqueueError::TooLong);
        }
        self.enqueue(now, to, |operation| {
            operation.kind = OperationKind::Eager;
            operation.payload = payload;
            operation.head_bytes = head.len() as u8;
            operation.parts = 1;
            for (into, from) in operation.head.iter_mut().zip(head) {
                *into = *from;
            }
        })
    }

    /// Has the peer attend to an operation that was just queued, although its threads are blocked: a probe to its
    /// interrupt queue follows. Without effect if probes go to the [polled one](super::Config::probe_queue).
    pub fn solicit(&mut self, operation: OperationId) {
        let solicited = self.config.probe_queue == DeviceQueue::Interrupt;
        if let Some(operation) = self.operations.get_mut(operation.0) {
            operation.solicited = solicited;
        }
    }

    /// An operation that was just queued is sent over the rail of its port, port modulo number of rails, while that rail
    /// lives. Without effect for the only port, or with one rail.
    #[inline]
    pub fn use_port(&mut self, operation: OperationId, port: Port) {
        if port.is_only() || !self.has_rails() {
            return;
        }
        let rail = Rail(port.number().checked_rem(self.rails()).unwrap_or(0));
        if let Some(operation) = self.operations.get_mut(operation.0) {
            operation.rails = bit(rail);
        }
    }

    /// Writes to memory that the peer granted under `placement` and `key`, from its start. The bytes must stay
    /// unchanged until [`Event::Completed`](super::Event).
    ///
    /// # Errors
    /// [`EnqueueError`]; nothing was queued.
    pub fn place(
        &mut self,
        now: Now<S, W, BITS>,
        to: PeerId,
        placement: PlacementId,
        key: RemoteKey,
        from: Span,
    ) -> Result<OperationId, EnqueueError> {
        let peer = self.reachable(to)?;
        if usize::from(peer.mtu) < HEADER.saturating_add(Opening::BYTES) {
            return Err(EnqueueError::TooLong);
        }
        let segment = peer.segment();
        let head = Opening { placement, key, bytes: from.bytes }.emit();
        let parts = segments(from.bytes, segment).wrapping_add(1);
        self.enqueue(now, to, |operation| {
            operation.kind = OperationKind::Place { placement, segment };
            operation.payload = from;
            operation.head = head;
            operation.head_bytes = Opening::BYTES as u8;
            operation.parts = parts;
        })
    }

    /// Lets `from` write to `to` once, under `key`. Ends with [`Event::Delivered`](super::Event) or
    /// [`withdraw`](Self::withdraw).
    ///
    /// # Errors
    /// [`GrantError`]; nothing was granted.
    pub fn grant(&mut self, from: PeerId, to: Span, key: RemoteKey) -> Result<PlacementId, GrantError> {
        let peer = self.peers.as_ref().get(from.0 as usize).filter(|peer| peer.is_alive());
        let incarnation = peer.ok_or(GrantError::UnknownPeer)?.incarnation;
        let state = PlacementState::Granted(key);
        let grant = |generation| Placement { state, peer: from.0, incarnation, to, link: NONE, generation };
        self.placements.take(grant).ok_or(GrantError::Full)
    }

    /// Whether a placement record is free for a [`grant`](Self::grant).
    pub const fn can_grant(&self) -> bool {
        self.placements.has_free()
    }

    /// Withdraws a grant: nothing is placed under it any more. Returns false if it is not outstanding: its bytes have
    /// arrived (the event follows), or it never was granted.
    pub fn withdraw(&mut self, placement: PlacementId) -> bool {
        self.placements.withdraw(placement)
    }

    /// Whether an operation record is free, so that live peers can be sent to.
    pub const fn has_room(&self) -> bool {
        self.operations.has_free()
    }

    /// Most bytes of a message to this peer, its header included; 0 if it takes no part.
    pub fn longest_message(&self, to: PeerId) -> u32 {
        self.reachable(to).map_or(0, |peer| u32::from(peer.mtu).saturating_sub(HEADER as u32))
    }

    /// Whether no operation is in progress.
    pub fn is_idle(&self) -> bool {
        !self.senders.has_posted()
            && self.ready.is_empty()
            && !self.operations.has_window_waiters()
            && self.control.is_empty()
    }

    fn reachable(&self, to: PeerId) -> Result<&Peer<S::Time, BITS>, EnqueueError> {
        let peer = self.peers.as_ref().get(to.0 as usize).ok_or(EnqueueError::UnknownPeer)?;
        match peer.state() {
            PeerState::Unknown => Err(EnqueueError::UnknownPeer),
            PeerState::Finished => Err(EnqueueError::PeerFinished),
            PeerState::Failed => Err(EnqueueError::PeerFailed),
            PeerState::Alive if peer.has(PeerFlags::EVENT_PENDING) => Err(EnqueueError::PeerFailed),
            PeerState::Alive => Ok(peer),
        }
    }

    /// Queues an operation after the others to `to`. `fill` initializes an unused record in place: copying a record
    /// right after its parts were written stalls the processor.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    fn enqueue(
        &mut self,
        now: Now<S, W, BITS>,
        to: PeerId,
        fill: impl FnOnce(&mut Operation),
    ) -> Result<OperationId, EnqueueError> {
        let PeerId(to) = to;
        let i = self.operations.take().ok_or(EnqueueError::Full)?;
        let operations = self.operations.as_mut_slice();
        let peer = self.peers.as_mut().get_mut(to as usize).ok_or(EnqueueError::UnknownPeer)?;
        peer.set(PeerFlags::CONTACTED);
        let first = operations.get_mut(peer.queue as usize).map_or(i, |last| core::mem::replace(&mut last.link, i));
        peer.queue = i;
        let (sender, windowless) = (peer.sender(), peer.has(PeerFlags::WINDOW_WAIT));
        if let Some(record) = operations.get_mut(i as usize) {
            record.peer = PeerId(to);
            record.link = first;
            fill(record);
        }
        if sender != NO_WINDOW {
            self.make_ready(u32::from(sender));
        } else if !windowless {
            match self.take_sender(now, to, true) {
                Some(sender) => self.make_ready(sender),
                None => {
                    self.operations.push_window_waiter(i);
                    if let Some(peer) = self.peer_mut(to) {
                        peer.set(PeerFlags::WINDOW_WAIT);
                    }
                }
            }
        }
        Ok(OperationId(i))
    }

    /// The first operation of the peer's queue.
    pub(super) fn queued(&self, peer: u32) -> Option<u32> {
        first_of(self.peers.as_ref().get(peer as usize)?, self.operations.as_slice())
    }

    /// Takes the first operation out of the peer's queue.
    pub(super) fn dequeue(&mut self, peer: u32) {
        if let Some(peer) = self.peers.as_mut().get_mut(peer as usize) {
            take_first(peer, self.operations.as_mut_slice());
        }
    }

    pub(super) fn make_ready(&mut self, sender: u32) {
        self.ready.push(self.senders.as_mut_slice(), sender);
    }
}

/// The first operation of the peer's queue.
#[inline]
pub(super) fn first_of<T: Time, const BITS: u32>(peer: &Peer<T, BITS>, operations: &[Operation]) -> Option<u32> {
    if peer.has(PeerFlags::EVENT_PENDING) {
        return None;
    }
    operations.get(peer.queue as usize).map(|last| last.link)
}

/// What the next segment of the peer's queue asks of the rails.
pub(super) fn next_rail_choice<T: Time, const BITS: u32>(peer: &Peer<T, BITS>, operations: &[Operation]) -> RailChoice {
    let first = first_of(peer, operations).and_then(|first| operations.get(first as usize));
    first.map_or(RailChoice::ANY, Operation::rail_choice)
}

/// Removes the first operation from the peer's queue.
pub(super) fn take_first<T: Time, const BITS: u32>(peer: &mut Peer<T, BITS>, operations: &mut [Operation]) {
    let Some(first) = operations.get(peer.queue as usize).map(|last| last.link) else { return };
    if first == peer.queue {
        peer.queue = NONE;
        return;
    }
    let second = operations.get(first as usize).map_or(NONE, |first| first.link);
    if let Some(last) = operations.get_mut(peer.queue as usize) {
        last.link = second;
    }
}

impl<T: Time, const BITS: u32> Peer<T, BITS> {
    /// Payload bytes of a placement segment.
    pub(crate) const fn segment(&self) -> u32 {
        (self.mtu as u32).saturating_sub(SEGMENT_HEADER as u32)
    }
}
