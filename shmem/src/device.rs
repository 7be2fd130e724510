//! The core's [`Device`] over the rings of a segment, so that every protocol of the core runs over shared memory.
//!
//! A datagram is one ring entry: up to [`INLINE`] bytes are in the entry, longer ones in the bulk. It is copied twice:
//! by the sender into the ring, which completes the posting, and by the receiver to its destination. The datagram
//! returned last stays in its ring until it is released; when the next one is received before that, or when it is held,
//! it moves to a private [`DatagramBuffer`].
//!
//! A datagram takes at most an eighth of a bulk: a protocol with datagrams of 576 bytes needs a bulk of 8 KiB.
//!
//! Peers are the ranks of the node, by their local number. There is one lane; a waiting rank waits for the rings'
//! words.

use core::fmt;
use core::marker::PhantomData;

use unisono_core::device::{
    Armed, Device, DeviceEvent, DeviceQueue, HEADER_ROOM, Limits, PathRequest, Received, Slot, Ticket, Token, Transmit,
};
use unisono_core::ids::{PeerId, Rail};

use crate::layout::SegmentLayout;
use crate::ring::{Consumer, INLINE, Producer, PutError};
use crate::segment::{Segment, SharedBytes};
use crate::user_memory::{self, UserMemory};

/// Bytes of the longest datagram that any layout allows.
pub const MTU_MAX: usize = 8192;
/// Buffers besides those for held datagrams.
pub const SPARE_BUFFERS: usize = 8;
/// The longest datagram is one part in this number of a ring's bulk; all but one of these parts can be outstanding
/// without loss, wherever the previous one ended.
const MTU_DIVISOR: u32 = 8;
/// The header word of the device's entries.
const DATAGRAM: u32 = u32::from_le_bytes(*b"GRAM");
/// Shortest useful timeout in nanoseconds: datagrams are lost only when a receiver is overrun.
const GRANULARITY_NS: u32 = 10_000;
/// Events that can be queued for polling.
const EVENTS: usize = 16;

/// The rings to and from one rank.
#[derive(Debug)]
pub struct RingPair<'a> {
    outward: Producer<'a>,
    inward: Consumer<'a>,
    /// Its words held values that it never writes; it is no longer polled.
    corrupted: bool,
}

impl<'a> RingPair<'a> {
    /// The rings between two ranks of the node, as the first sees them. `None`: there are no such ranks.
    pub fn new(segment: Segment<'a>, layout: &SegmentLayout, own: u32, peer: u32) -> Option<Self> {
        let (outward, inward) = (Producer::of(segment, layout, own, peer)?, Consumer::of(segment, layout, peer, own)?);
        Some(Self { outward, inward, corrupted: false })
    }
}

/// A datagram in private memory, of up to `BYTES` bytes.
#[derive(Clone, Copy)]
pub struct DatagramBuffer<const BYTES: usize = MTU_MAX> {
    from: u32,
    length: u16,
    taken: bool,
    bytes: [u8; BYTES],
}

impl<const BYTES: usize> DatagramBuffer<BYTES> {
    /// An unused one.
    pub const FREE: Self = Self { from: 0, length: 0, taken: false, bytes: [0; BYTES] };
}

impl<const BYTES: usize> fmt::Debug for DatagramBuffer<BYTES> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Buffer({} bytes from {}, taken: {})", self.length, self.from, self.taken)
    }
}

/// The datagram that was returned last, while its bytes after the header are in its ring. The header and the metadata
/// are in the buffer of this index.
#[derive(Clone, Copy, Debug)]
struct Current<'a> {
    buffer: usize,
    /// `None`: it is not longer than the header.
    cells: Option<SharedBytes<'a>>,
}

/// Counters of lost datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Losses {
    /// Posted to a full ring.
    pub full: u32,
    /// Posted to an unknown peer, or too long.
    pub undeliverable: u32,
    /// Peers whose rings held values that no rank writes.
    pub corrupted: u32,
}

/// A [`Device`] over rings. `A` is a piece of a user buffer; datagrams have at most `BYTES` bytes, equal on all ranks.
#[derive(Debug)]
pub struct RingDevice<'a, A, const BYTES: usize = MTU_MAX> {
    pairs: &'a mut [RingPair<'a>],
    buffers: &'a mut [DatagramBuffer<BYTES>],
    header: [u8; HEADER_ROOM],
    posted: Ticket,
    current: Option<Current<'a>>,
    /// The pair that is polled next.
    next: usize,
    events: [Option<DeviceEvent>; EVENTS],
    mtu: u32,
    slots: u32,
    losses: Losses,
    memory: PhantomData<fn(A)>,
}

impl<'a, A, const BYTES: usize> RingDevice<'a, A, BYTES> {
    /// A device with these rings, one pair for each rank of the node in order, its own included, and these buffers:
    /// [`SPARE_BUFFERS`] plus the number of datagrams that can be held.
    pub fn new(
        layout: &SegmentLayout,
        pairs: &'a mut [RingPair<'a>],
        buffers: &'a mut [DatagramBuffer<BYTES>],
    ) -> Self {
        let bulk = layout.sizes().ring_bulk;
        let mtu = (bulk / MTU_DIVISOR).min(MTU_MAX.min(BYTES) as u32);
        let slots = (bulk / mtu.max(1)).saturating_sub(1).min(layout.sizes().ring_entries);
        Self {
            pairs,
            buffers,
            header: [0; HEADER_ROOM],
            posted: Ticket::default(),
            current: None,
            next: 0,
            events: [None; EVENTS],
            mtu,
            slots,
            losses: Losses::default(),
            memory: PhantomData,
        }
    }

    /// The counters of lost datagrams.
    pub const fn losses(&self) -> Losses {
        self.losses
    }

    /// Moves the current datagram from its ring to its buffer, and returns the ring entry.
    fn stash_current(&mut self) {
        let Some(current) = self.current.take() else { return };
        let Some(buffer) = self.buffers.get_mut(current.buffer) else { return };
        let rest = buffer.bytes.get_mut(HEADER_ROOM..usize::from(buffer.length));
        if let (Some(cells), Some(rest)) = (current.cells, rest) {
            // As long as the datagram was when it arrived.
            let _ = cells.part(HEADER_ROOM, rest.len()).and_then(|cells| cells.read(rest));
        }
        self.consume(current);
    }

    fn consume(&mut self, current: Current<'a>) {
        let from = self.buffers.get(current.buffer).map(|buffer| buffer.from as usize);
        if let Some(pair) = from.and_then(|from| self.pairs.get_mut(from)) {
            pair.inward.consume();
        }
    }

    fn push_event(&mut self, fact: DeviceEvent) {
        let free = self.events.iter_mut().find(|place| place.is_none());
        if let Some(place) = free {
            *place = Some(fact);
        }
    }

    /// The next entry of this pair, if there is one; its header is copied to the buffer.
    fn poll_ring(&mut self, from: usize, free: usize) -> Option<Current<'a>> {
        let pair = self.pairs.get_mut(from).filter(|pair| !pair.corrupted)?;
        let buffer = self.buffers.get_mut(free)?;
        let entry = match pair.inward.poll() {
            Ok(entry) => entry?,
            Err(_) => return self.protocol_failure(from),
        };
        let (length, cells) = (entry.payload.bytes(), entry.payload);
        cells.read(buffer.bytes.get_mut(..length.min(HEADER_ROOM))?)?;
        if entry.header != [DATAGRAM, length as u32] || length > self.mtu as usize {
            return self.protocol_failure(from);
        }
        (buffer.from, buffer.length, buffer.taken) = (from as u32, length as u16, true);
        Some(Current { buffer: free, cells: (length > HEADER_ROOM).then_some(cells) })
    }

    /// Handles a protocol violation: the peer's words hold values that it never writes.
    fn protocol_failure<T>(&mut self, peer: usize) -> Option<T> {
        if let Some(pair) = self.pairs.get_mut(peer) {
            pair.corrupted = true;
        }
        self.losses.corrupted = self.losses.corrupted.saturating_add(1);
        self.push_event(DeviceEvent::NoPath { peer: PeerId(peer as u32), rail: Rail(0) });
        None
    }
}

/// A free send entry.
#[derive(Debug)]
pub struct RingToken<'b, 'a, A, const BYTES: usize = MTU_MAX> {
    device: &'b mut RingDevice<'a, A, BYTES>,
}

impl<A: UserMemory, const BYTES: usize> Token for RingToken<'_, '_, A, BYTES> {
    type Address = A;

    fn ticket(&self) -> Ticket {
        self.device.posted.next()
    }

    fn header_room(&mut self) -> &mut [u8; HEADER_ROOM] {
        &mut self.device.header
    }

    /// Copies the datagram to the receiver's ring. If the ring is full it is lost and counted.
    fn post(self, transmit: &Transmit, payload: Option<A>) {
        let device = self.device;
        device.posted = device.posted.next();
        let mtu = device.mtu as usize;
        let head = device.header.get(..usize::from(transmit.header_bytes)).unwrap_or_default();
        let bytes = head.len() + payload.map_or(0, UserMemory::bytes);
        let peer = transmit.to.on_first_rail().map_or(usize::MAX, |peer| peer.0 as usize);
        let pair = device.pairs.get_mut(peer).filter(|pair| !pair.corrupted && bytes <= mtu);
        let Some(pair) = pair else {
            device.losses.undeliverable = device.losses.undeliverable.saturating_add(1);
            return;
        };
        let note = [DATAGRAM, bytes as u32];
        let put = if bytes <= INLINE {
            let mut inline = [0; INLINE];
            let (front, rest) = inline.split_at_mut(head.len().min(INLINE));
            for (to, from) in front.iter_mut().zip(head) {
                *to = *from;
            }
            if let Some(payload) = payload {
                user_memory::copy_to_private(payload, rest);
            }
            pair.outward.put(note, inline.get(..bytes).unwrap_or_default())
        } else {
            pair.outward.put_piece(note, bytes as u32, |cells| {
                // Both fit: the piece is as long as the two together.
                let _ = cells.write(head);
                if let (Some(payload), Some(rest)) = (payload, cells.part(head.len(), bytes - head.len())) {
                    user_memory::copy_to_shared(payload, rest);
                }
            })
        };
        match put {
            Ok(()) => {}
            Err(PutError::Corrupted) => {
                let _: Option<()> = device.protocol_failure(peer);
            }
            Err(PutError::Full | PutError::TooLong) => device.losses.full = device.losses.full.saturating_add(1),
        }
    }
}

/// A datagram that was received.
#[derive(Debug)]
pub struct RingDatagram<'b> {
    slot: Slot,
    from: u32,
    length: u32,
    header: &'b [u8],
}

impl Received for RingDatagram<'_> {
    fn slot(&self) -> Slot {
        self.slot
    }

    fn bytes(&self) -> u32 {
        self.length
    }

    fn prefix(&self) -> &[u8] {
        self.header
    }

    fn is_from(&self, peer: PeerId) -> bool {
        self.from == peer.0
    }

    fn age_ns(&self) -> Option<u32> {
        None
    }
}

impl<'a, A: UserMemory, const BYTES: usize> Device for RingDevice<'a, A, BYTES> {
    type Address = A;
    type Token<'b>
        = RingToken<'b, 'a, A, BYTES>
    where
        Self: 'b;
    type Received<'b>
        = RingDatagram<'b>
    where
        Self: 'b;

    fn limits(&self) -> Limits {
        Limits {
            mtu: self.mtu,
            receive_slots: self.slots,
            holdable: self.buffers.len().saturating_sub(SPARE_BUFFERS) as u32,
            granularity_ns: GRANULARITY_NS,
            lossless: true,
            interrupts: false,
            rails: 1,
            groups: 0,
        }
    }

    fn token(&mut self, lane: DeviceQueue) -> Option<RingToken<'_, 'a, A, BYTES>> {
        (lane == DeviceQueue::Polled).then_some(RingToken { device: self })
    }

    /// Nothing to do: a posted datagram is in the ring already.
    fn flush(&mut self, _: DeviceQueue) {}

    fn completed(&mut self, lane: DeviceQueue) -> Ticket {
        if lane == DeviceQueue::Polled { self.posted } else { Ticket::default() }
    }

    /// Polls every ring once. Returns none if no buffer is free.
    fn receive(&mut self, lane: DeviceQueue) -> Option<RingDatagram<'_>> {
        self.stash_current();
        let free = self.buffers.iter().position(|buffer| !buffer.taken).filter(|_| lane == DeviceQueue::Polled)?;
        let (first, count) = (self.next, self.pairs.len());
        let mut turns = (first..count).chain(0..first.min(count));
        let (from, current) = turns.find_map(|from| Some((from, self.poll_ring(from, free)?)))?;
        // Round robin: the pair that delivered is polled last.
        self.next = if from + 1 < count { from + 1 } else { 0 };
        self.current = Some(current);
        Some(self.held(Slot(free as u32)))
    }

    fn place(&mut self, from: Slot, start: u16, bytes: u32, to: A) {
        let (slot, start, bytes) = (from.0 as usize, usize::from(start), bytes as usize);
        if let Some(Current { cells: Some(cells), .. }) = self.current.filter(|current| current.buffer == slot) {
            if let Some(part) = cells.part(start, bytes) {
                user_memory::copy_from_shared(part, to);
            }
            return;
        }
        let private = self.buffers.get(slot).and_then(|buffer| buffer.bytes.get(..usize::from(buffer.length)));
        if let Some(part) = private.and_then(|private| private.get(start..start.checked_add(bytes)?)) {
            user_memory::copy_from_private(part, to);
        }
    }

    fn hold(&mut self, slot: Slot) {
        if self.current.is_some_and(|current| current.buffer == slot.0 as usize) {
            self.stash_current();
        }
    }

    fn held(&self, slot: Slot) -> RingDatagram<'_> {
        let buffer = self.buffers.get(slot.0 as usize);
        let shown = |buffer: &'_ DatagramBuffer<BYTES>| usize::from(buffer.length).min(HEADER_ROOM);
        RingDatagram {
            slot,
            from: buffer.map_or(u32::MAX, |buffer| buffer.from),
            length: buffer.map_or(0, |buffer| buffer.length.into()),
            header: buffer.and_then(|buffer| buffer.bytes.get(..shown(buffer))).unwrap_or_default(),
        }
    }

    fn release(&mut self, slot: Slot) {
        let index = slot.0 as usize;
        if let Some(current) = self.current.take_if(|current| current.buffer == index) {
            self.consume(current);
        }
        if let Some(buffer) = self.buffers.get_mut(index) {
            buffer.taken = false;
        }
    }

    fn arm(&mut self, lane: DeviceQueue) -> Armed {
        let waits = self.pairs.iter().any(|pair| !pair.corrupted && pair.inward.has_message());
        if lane == DeviceQueue::Polled && waits { Armed::Pending } else { Armed::Armed }
    }

    fn request_path(&mut self, request: PathRequest) {
        if let PathRequest::Resolve(peer) = request {
            let known = self.pairs.get(peer.0 as usize).is_some_and(|pair| !pair.corrupted);
            let (rail, mtu) = (Rail(0), self.mtu);
            self.push_event(if known {
                DeviceEvent::Path { peer, rail, mtu }
            } else {
                DeviceEvent::NoPath { peer, rail }
            });
        }
    }

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        let fact = self.events.first_mut()?.take()?;
        self.events.rotate_left(1);
        Some(fact)
    }
}
