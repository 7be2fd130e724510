//! The core's [`Device`] over the rings of a segment, so that every protocol of the core runs over shared memory.
//!
//! A datagram is one ring entry: up to [`INLINE`] bytes are in the entry, longer ones in the bulk. It is copied twice:
//! by the sender into the ring, which completes the posting, and by the receiver to its destination. The datagram
//! returned last stays in its ring until it is released; when the next one is received before that, or when it is held,
//! it moves to a private [`Buffer`].
//!
//! A datagram takes at most an eighth of a bulk: a protocol with datagrams of 576 bytes needs a bulk of 8 KiB.
//!
//! Peers are the ranks of the node, by their local number. There is one lane; a waiting rank waits for the rings'
//! words.

use core::fmt;
use core::marker::PhantomData;

use unisono_core::device::{Armed, Device, Fact, HEAD, Lane, Limits, Received, Slot, Ticket, Token, Transmit, Wish};
use unisono_core::ids::PeerId;

use crate::layout::Layout;
use crate::ring::{Consumer, INLINE, Producer, PutError};
use crate::segment::{Cells, Segment};
use crate::user_memory::{self, Lent};

/// Bytes of the longest datagram that any layout allows.
pub const MTU_MAX: usize = 8192;
/// Buffers besides those for held datagrams.
pub const SPARE: usize = 8;
/// The longest datagram is one part in this number of a ring's bulk; all but one of these parts can be outstanding
/// without loss, wherever the previous one ended.
const SHARE: u32 = 8;
/// The header word of the device's entries.
const DATAGRAM: u32 = u32::from_le_bytes(*b"GRAM");
/// Shortest useful timeout in nanoseconds: datagrams are lost only when a receiver is overrun.
const GRANULARITY_NS: u32 = 10_000;
/// Events that can be queued for polling.
const FACTS: usize = 16;

/// The rings to and from one rank.
#[derive(Debug)]
pub struct Pair<'a> {
    outward: Producer<'a>,
    inward: Consumer<'a>,
    /// Its words held values that it never writes; it is no longer polled.
    corrupted: bool,
}

impl<'a> Pair<'a> {
    /// The rings between two ranks of the node, as the first sees them. `None`: there are no such ranks.
    pub fn new(segment: Segment<'a>, layout: &Layout, own: u32, peer: u32) -> Option<Self> {
        let (outward, inward) = (Producer::of(segment, layout, own, peer)?, Consumer::of(segment, layout, peer, own)?);
        Some(Self { outward, inward, corrupted: false })
    }
}

/// A datagram in private memory, of up to `BYTES` bytes.
#[derive(Clone, Copy)]
pub struct Buffer<const BYTES: usize = MTU_MAX> {
    from: u32,
    length: u16,
    taken: bool,
    bytes: [u8; BYTES],
}

impl<const BYTES: usize> Buffer<BYTES> {
    /// An unused one.
    pub const FREE: Self = Self { from: 0, length: 0, taken: false, bytes: [0; BYTES] };
}

impl<const BYTES: usize> fmt::Debug for Buffer<BYTES> {
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
    cells: Option<Cells<'a>>,
}

/// Counters of lost datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Losses {
    /// Posted to a full ring.
    pub full: u32,
    /// Posted to an unknown peer, or too long.
    pub astray: u32,
    /// Peers whose rings held values that no rank writes.
    pub corrupted: u32,
}

/// A [`Device`] over rings. `A` is a piece of a user buffer; datagrams have at most `BYTES` bytes, equal on all ranks.
#[derive(Debug)]
pub struct RingDevice<'a, A, const BYTES: usize = MTU_MAX> {
    pairs: &'a mut [Pair<'a>],
    buffers: &'a mut [Buffer<BYTES>],
    head: [u8; HEAD],
    posted: Ticket,
    current: Option<Current<'a>>,
    /// The pair that is polled next.
    next: usize,
    facts: [Option<Fact>; FACTS],
    mtu: u32,
    slots: u32,
    losses: Losses,
    memory: PhantomData<fn(A)>,
}

impl<'a, A, const BYTES: usize> RingDevice<'a, A, BYTES> {
    /// A device with these rings, one pair for each rank of the node in order, its own included, and these buffers:
    /// [`SPARE`] plus the number of datagrams that can be held.
    pub fn new(layout: &Layout, pairs: &'a mut [Pair<'a>], buffers: &'a mut [Buffer<BYTES>]) -> Self {
        let bulk = layout.sizes().ring_bulk;
        let mtu = (bulk / SHARE).min(MTU_MAX.min(BYTES) as u32);
        let slots = (bulk / mtu.max(1)).saturating_sub(1).min(layout.sizes().ring_entries);
        Self {
            pairs,
            buffers,
            head: [0; HEAD],
            posted: Ticket::default(),
            current: None,
            next: 0,
            facts: [None; FACTS],
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
    fn set_aside(&mut self) {
        let Some(current) = self.current.take() else { return };
        let Some(buffer) = self.buffers.get_mut(current.buffer) else { return };
        let rest = buffer.bytes.get_mut(HEAD..usize::from(buffer.length));
        if let (Some(cells), Some(rest)) = (current.cells, rest) {
            // As long as the datagram was when it arrived.
            let _ = cells.part(HEAD, rest.len()).and_then(|cells| cells.read(rest));
        }
        self.take(current);
    }

    fn take(&mut self, current: Current<'a>) {
        let from = self.buffers.get(current.buffer).map(|buffer| buffer.from as usize);
        if let Some(pair) = from.and_then(|from| self.pairs.get_mut(from)) {
            pair.inward.take();
        }
    }

    fn tell(&mut self, fact: Fact) {
        let free = self.facts.iter_mut().find(|place| place.is_none());
        if let Some(place) = free {
            *place = Some(fact);
        }
    }

    /// The next entry of this pair, if there is one; its header is copied to the buffer.
    fn look(&mut self, from: usize, free: usize) -> Option<Current<'a>> {
        let pair = self.pairs.get_mut(from).filter(|pair| !pair.corrupted)?;
        let buffer = self.buffers.get_mut(free)?;
        let entry = match pair.inward.look() {
            Ok(entry) => entry?,
            Err(_) => return self.disown(from),
        };
        let (length, cells) = (entry.payload.bytes(), entry.payload);
        cells.read(buffer.bytes.get_mut(..length.min(HEAD))?)?;
        if entry.note != [DATAGRAM, length as u32] || length > self.mtu as usize {
            return self.disown(from);
        }
        (buffer.from, buffer.length, buffer.taken) = (from as u32, length as u16, true);
        Some(Current { buffer: free, cells: (length > HEAD).then_some(cells) })
    }

    /// Handles a protocol violation: the peer's words hold values that it never writes.
    fn disown<T>(&mut self, peer: usize) -> Option<T> {
        if let Some(pair) = self.pairs.get_mut(peer) {
            pair.corrupted = true;
        }
        self.losses.corrupted = self.losses.corrupted.saturating_add(1);
        self.tell(Fact::NoPath(PeerId(peer as u32)));
        None
    }
}

/// A free send entry.
#[derive(Debug)]
pub struct RingToken<'b, 'a, A, const BYTES: usize = MTU_MAX> {
    device: &'b mut RingDevice<'a, A, BYTES>,
}

impl<A: Lent, const BYTES: usize> Token for RingToken<'_, '_, A, BYTES> {
    type Address = A;

    fn ticket(&self) -> Ticket {
        self.device.posted.next()
    }

    fn head(&mut self) -> &mut [u8; HEAD] {
        &mut self.device.head
    }

    /// Copies the datagram to the receiver's ring. If the ring is full it is lost and counted.
    fn post(self, transmit: &Transmit, payload: Option<A>) {
        let device = self.device;
        device.posted = device.posted.next();
        let (peer, mtu) = (transmit.to.0 as usize, device.mtu as usize);
        let head = device.head.get(..usize::from(transmit.head)).unwrap_or_default();
        let bytes = head.len() + payload.map_or(0, Lent::bytes);
        let pair = device.pairs.get_mut(peer).filter(|pair| !pair.corrupted && bytes <= mtu);
        let Some(pair) = pair else {
            device.losses.astray = device.losses.astray.saturating_add(1);
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
                user_memory::to_private(payload, rest);
            }
            pair.outward.put(note, inline.get(..bytes).unwrap_or_default())
        } else {
            pair.outward.put_piece(note, bytes as u32, |cells| {
                // Both fit: the piece is as long as the two together.
                let _ = cells.write(head);
                if let (Some(payload), Some(rest)) = (payload, cells.part(head.len(), bytes - head.len())) {
                    user_memory::to_cells(payload, rest);
                }
            })
        };
        match put {
            Ok(()) => {}
            Err(PutError::Corrupted) => {
                let _: Option<()> = device.disown(peer);
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
    head: &'b [u8],
}

impl Received for RingDatagram<'_> {
    fn slot(&self) -> Slot {
        self.slot
    }

    fn bytes(&self) -> u32 {
        self.length
    }

    fn head(&self) -> &[u8] {
        self.head
    }

    fn is_from(&self, peer: PeerId) -> bool {
        self.from == peer.0
    }

    fn age_ns(&self) -> Option<u32> {
        None
    }
}

impl<'a, A: Lent, const BYTES: usize> Device for RingDevice<'a, A, BYTES> {
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
            holdable: self.buffers.len().saturating_sub(SPARE) as u32,
            granularity_ns: GRANULARITY_NS,
            lossless: true,
            interrupts: false,
        }
    }

    fn token(&mut self, lane: Lane) -> Option<RingToken<'_, 'a, A, BYTES>> {
        (lane == Lane::Polled).then_some(RingToken { device: self })
    }

    /// Nothing to do: a posted datagram is in the ring already.
    fn flush(&mut self, _: Lane) {}

    fn completed(&mut self, lane: Lane) -> Ticket {
        if lane == Lane::Polled { self.posted } else { Ticket::default() }
    }

    /// Polls every ring once. Returns none if no buffer is free.
    fn receive(&mut self, lane: Lane) -> Option<RingDatagram<'_>> {
        self.set_aside();
        let free = self.buffers.iter().position(|buffer| !buffer.taken).filter(|_| lane == Lane::Polled)?;
        let (first, count) = (self.next, self.pairs.len());
        let mut turns = (first..count).chain(0..first.min(count));
        let (from, current) = turns.find_map(|from| Some((from, self.look(from, free)?)))?;
        // Round robin: the pair that delivered is polled last.
        self.next = if from + 1 < count { from + 1 } else { 0 };
        self.current = Some(current);
        Some(self.held(Slot(free as u32)))
    }

    fn place(&mut self, from: Slot, start: u16, bytes: u32, to: A) {
        let (slot, start, bytes) = (from.0 as usize, usize::from(start), bytes as usize);
        if let Some(Current { cells: Some(cells), .. }) = self.current.filter(|current| current.buffer == slot) {
            if let Some(part) = cells.part(start, bytes) {
                user_memory::from_cells(part, to);
            }
            return;
        }
        let private = self.buffers.get(slot).and_then(|buffer| buffer.bytes.get(..usize::from(buffer.length)));
        if let Some(part) = private.and_then(|private| private.get(start..start.checked_add(bytes)?)) {
            user_memory::from_private(part, to);
        }
    }

    fn hold(&mut self, slot: Slot) {
        if self.current.is_some_and(|current| current.buffer == slot.0 as usize) {
            self.set_aside();
        }
    }

    fn held(&self, slot: Slot) -> RingDatagram<'_> {
        let buffer = self.buffers.get(slot.0 as usize);
        let shown = |buffer: &'_ Buffer<BYTES>| usize::from(buffer.length).min(HEAD);
        RingDatagram {
            slot,
            from: buffer.map_or(u32::MAX, |buffer| buffer.from),
            length: buffer.map_or(0, |buffer| buffer.length.into()),
            head: buffer.and_then(|buffer| buffer.bytes.get(..shown(buffer))).unwrap_or_default(),
        }
    }

    fn release(&mut self, slot: Slot) {
        let index = slot.0 as usize;
        if let Some(current) = self.current.take_if(|current| current.buffer == index) {
            self.take(current);
        }
        if let Some(buffer) = self.buffers.get_mut(index) {
            buffer.taken = false;
        }
    }

    fn arm(&mut self, lane: Lane) -> Armed {
        let waits = self.pairs.iter().any(|pair| !pair.corrupted && pair.inward.has_news());
        if lane == Lane::Polled && waits { Armed::Pending } else { Armed::Armed }
    }

    fn ask(&mut self, wish: Wish) {
        if let Wish::Resolve(peer) = wish {
            let known = self.pairs.get(peer.0 as usize).is_some_and(|pair| !pair.corrupted);
            self.tell(if known { Fact::Path { peer, mtu: self.mtu } } else { Fact::NoPath(peer) });
        }
    }

    fn poll_fact(&mut self) -> Option<Fact> {
        let fact = self.facts.first_mut()?.take()?;
        self.facts.rotate_left(1);
        Some(fact)
    }
}
