//! A device that moves nothing but what the protocol asks for: two ends in one thread's memory, joined by hand.
//!
//! A datagram's head is built where the receiver reads it. Its payload stays with the sender until it is placed: one copy, as
//! by an adapter.

use alloc::{rc::Rc, vec::Vec};
use core::mem;

use unisono_core::device::{
    Armed, Device, Fact, HEAD, Lane, Limits, Memory, Received, Slot, Ticket, Token, Transmit, Wish,
};
use unisono_core::ids::PeerId;
use unisono_core::span::{Region, Span};

/// A datagram under way.
#[derive(Clone, Copy, Debug)]
struct Frame {
    head: [u8; HEAD],
    /// Bytes in all.
    bytes: u32,
    from: u32,
    to: u32,
    /// Where the payload lies at the sender, behind so many bytes of head.
    payload: usize,
    head_bytes: u8,
}

/// One of two ends.
#[derive(Debug)]
pub struct NullDevice {
    rank: u32,
    limits: Limits,
    ticket: Ticket,
    outbox: Vec<Frame>,
    posted: usize,
    inbox: Vec<Frame>,
    arrived: usize,
    next: usize,
    /// Where all payload comes from.
    source: Rc<[u8]>,
    /// Where it goes.
    pub target: Vec<u8>,
}

/// A free frame.
#[derive(Debug)]
pub struct NullToken<'a> {
    frame: &'a mut Frame,
    posted: &'a mut usize,
    ticket: &'a mut Ticket,
    rank: u32,
}

/// A received frame.
#[derive(Clone, Copy, Debug)]
pub struct NullReceived<'a> {
    frame: &'a Frame,
    slot: Slot,
}

impl NullDevice {
    /// The end of rank `rank`, for datagrams of up to `mtu` bytes, at most `ring` at a time. Sends from `source`, receives
    /// into a memory of `target` bytes.
    pub fn new(rank: u32, mtu: u32, ring: usize, source: Rc<[u8]>, target: usize) -> Self {
        let frame = Frame { head: [0; HEAD], bytes: 0, from: rank, to: rank, payload: 0, head_bytes: 0 };
        let limits = Limits {
            mtu,
            receive_slots: 4096,
            holdable: 64,
            granularity_ns: 10_000,
            lossless: true,
            interrupts: false,
        };
        Self {
            rank,
            limits,
            ticket: Ticket(0),
            outbox: vec![frame; ring],
            posted: 0,
            inbox: vec![frame; ring],
            arrived: 0,
            next: 0,
            source,
            target: vec![0; target],
        }
    }

    /// What this end has posted arrives at the other one, which has received everything before.
    pub const fn deliver(&mut self, other: &mut Self) {
        mem::swap(&mut self.outbox, &mut other.inbox);
        other.arrived = mem::replace(&mut self.posted, 0);
        other.next = 0;
    }

    /// What this end has posted arrives behind what waits at those of `others` that it is meant for; what finds no room is
    /// lost.
    pub fn deal(&mut self, others: &mut [&mut Self]) {
        let posted = mem::replace(&mut self.posted, 0);
        for frame in self.outbox.iter().take(posted) {
            let Some(other) = others.iter_mut().find(|other| other.rank == frame.to) else { continue };
            if other.next == other.arrived {
                (other.next, other.arrived) = (0, 0);
            }
            if let Some(place) = other.inbox.get_mut(other.arrived) {
                *place = *frame;
                other.arrived += 1;
            }
        }
    }
}

impl Token for NullToken<'_> {
    type Address = usize;

    #[inline]
    fn ticket(&self) -> Ticket {
        self.ticket.next()
    }

    #[inline]
    fn head(&mut self) -> &mut [u8; HEAD] {
        &mut self.frame.head
    }

    #[inline]
    fn post(self, transmit: &Transmit, payload: Option<usize>) {
        let bytes = transmit.payload.map_or(0, |span| span.bytes);
        self.frame.head_bytes = transmit.head;
        self.frame.bytes = u32::from(transmit.head) + bytes;
        self.frame.payload = payload.unwrap_or(0);
        self.frame.from = self.rank;
        self.frame.to = transmit.to.0;
        *self.ticket = self.ticket.next();
        *self.posted += 1;
    }
}

impl Received for NullReceived<'_> {
    #[inline]
    fn slot(&self) -> Slot {
        self.slot
    }

    #[inline]
    fn bytes(&self) -> u32 {
        self.frame.bytes
    }

    #[inline]
    fn head(&self) -> &[u8] {
        self.frame.head.get(..self.frame.bytes as usize).unwrap_or(&self.frame.head)
    }

    #[inline]
    fn is_from(&self, peer: PeerId) -> bool {
        self.frame.from == peer.0
    }

    #[inline]
    fn age_ns(&self) -> Option<u32> {
        None
    }
}

impl Device for NullDevice {
    type Address = usize;
    type Token<'a> = NullToken<'a>;
    type Received<'a> = NullReceived<'a>;

    fn limits(&self) -> Limits {
        self.limits
    }

    #[inline]
    fn token(&mut self, _: Lane) -> Option<NullToken<'_>> {
        let frame = self.outbox.get_mut(self.posted)?;
        Some(NullToken { frame, posted: &mut self.posted, ticket: &mut self.ticket, rank: self.rank })
    }

    #[inline]
    fn flush(&mut self, _: Lane) {}

    #[inline]
    fn completed(&mut self, _: Lane) -> Ticket {
        self.ticket
    }

    #[inline]
    fn receive(&mut self, _: Lane) -> Option<NullReceived<'_>> {
        if self.next == self.arrived {
            return None;
        }
        let slot = Slot(self.next as u32);
        self.next += 1;
        Some(NullReceived { frame: self.inbox.get(slot.0 as usize)?, slot })
    }

    #[inline]
    fn place(&mut self, from: Slot, start: u16, bytes: u32, to: usize) {
        let Some(frame) = self.inbox.get(from.0 as usize) else { return };
        let at = frame.payload + usize::from(start) - usize::from(frame.head_bytes);
        let (from, to) = (self.source.get(at..), self.target.get_mut(to..));
        let cut = from.and_then(|from| from.get(..bytes as usize)).zip(to.and_then(|to| to.get_mut(..bytes as usize)));
        if let Some((from, to)) = cut {
            to.copy_from_slice(from);
        }
    }

    /// Datagrams come in order here: nothing is ever set aside.
    fn hold(&mut self, _: Slot) {}

    fn held(&self, slot: Slot) -> NullReceived<'_> {
        NullReceived { frame: &self.inbox[slot.0 as usize], slot }
    }

    #[inline]
    fn release(&mut self, _: Slot) {}

    fn arm(&mut self, _: Lane) -> Armed {
        if self.next == self.arrived { Armed::Armed } else { Armed::Pending }
    }

    fn ask(&mut self, _: Wish) {}

    #[inline]
    fn poll_fact(&mut self) -> Option<Fact> {
        None
    }
}

/// One region, of source or target.
#[derive(Clone, Copy, Debug)]
pub struct NullMemory {
    /// Its bytes.
    pub bytes: usize,
}

impl NullMemory {
    /// The region.
    pub const REGION: Region = Region::new(0, 1);
}

impl Memory for NullMemory {
    type Address = usize;

    #[inline]
    fn address(&self, span: Span) -> Option<usize> {
        let end = span.offset.checked_add(span.bytes as usize)?;
        (span.region == Self::REGION && end <= self.bytes).then_some(span.offset)
    }
}
