//! The send entries of a lane: 64 heads in one slab, and what was posted since the last flush.

use core::ptr::NonNull;

use unisono_core::device::{HEAD, Ticket, Token, Transmit};

use super::{
    checksum::{self, TRAILER},
    slab::Slab,
    transmitter::{BATCH, Datagram, Piece},
};
use crate::region::Address;

/// Payload bytes up to which copying behind the head is cheaper than gathering. Measured (benches `udp`): the kernel takes a
/// single piece on a faster path.
const COPIED: usize = 1024;

/// A cell: the checksum of the entry before, directly followed by this entry's head, so that in a run of gathered datagrams
/// both are one piece; then room for a copied payload and its checksum.
const CELL: usize = FRAME + HEAD + COPIED + TRAILER;

/// Where a cell's head begins, on a cache line.
const FRAME: usize = 64;

/// Free entries, postings and the tickets of a lane.
pub(super) struct SendRing {
    cells: Slab,
    pub(super) posted: Vec<Datagram>,
    last: Ticket,
    pub(super) completed: Ticket,
    /// Largest frame, checksum included.
    mtu: usize,
}

// SAFETY: the pieces posted point into the ring's own slab and to lent payload, which whoever registered it lets any
// thread read.
unsafe impl Send for SendRing {}

impl SendRing {
    pub(super) fn new(mtu: usize) -> Self {
        Self {
            cells: Slab::new(BATCH + 1, CELL),
            posted: Vec::with_capacity(BATCH),
            last: Ticket::default(),
            completed: Ticket::default(),
            mtu,
        }
    }

    /// A free entry, or `None` while the ring is full.
    pub(super) fn token(&mut self) -> Option<UdpToken<'_>> {
        (self.posted.len() < BATCH).then_some(UdpToken { ring: self })
    }

    /// The postings have left or are lost.
    pub(super) fn finish(&mut self) {
        self.posted.clear();
        self.completed = self.last;
    }
}

/// A free send entry of a UDP device.
pub struct UdpToken<'a> {
    ring: &'a mut SendRing,
}

impl Token for UdpToken<'_> {
    type Address = Address;

    fn ticket(&self) -> Ticket {
        self.ring.last.next()
    }

    fn head(&mut self) -> &mut [u8; HEAD] {
        let cell = self.ring.posted.len();
        let head = self.ring.cells.get_mut(cell, FRAME, HEAD).expect("the ring is not full");
        head.try_into().expect("as many bytes as asked for")
    }

    /// A payload is cut to what lies at the address and to the MTU: what the caller promised not to exceed.
    fn post(self, transmit: &Transmit, payload: Option<Address>) {
        let ring = self.ring;
        let cell = ring.posted.len();
        let head = usize::from(transmit.head).min(HEAD);
        let bytes = transmit.payload.map_or(0, |span| span.bytes as usize);
        let lent = payload.map_or(0, Address::bytes).min(bytes).min(ring.mtu - TRAILER - head);
        // SAFETY: the address lies in a live region and the caller of `post` promised that nobody changes these bytes.
        let payload = unsafe { payload_bytes(payload, lent) };
        let (first, rest) = if lent <= COPIED {
            let frame = ring.cells.get_mut(cell, FRAME, head + lent + TRAILER).expect("room for what is copied");
            let (body, trailer) = frame.split_at_mut(head + lent);
            body[head..].copy_from_slice(payload);
            trailer.copy_from_slice(&checksum::of(body));
            (Piece { start: NonNull::from(&mut *frame).cast(), bytes: head + lent + TRAILER }, None)
        } else {
            let first = ring.cells.get(cell, FRAME, head).expect("the head");
            let sum = checksum::of_parts(first, payload);
            let trailer = ring.cells.get_mut(cell + 1, FRAME - TRAILER, TRAILER).expect("one cell more than entries");
            trailer.copy_from_slice(&sum);
            let piece = |start: Option<NonNull<u8>>, bytes| Piece { start: start.expect("checked above"), bytes };
            let trailer = piece(ring.cells.piece(cell + 1, FRAME - TRAILER, TRAILER), TRAILER);
            let payload = Piece { start: NonNull::from(payload).cast(), bytes: lent };
            (piece(ring.cells.piece(cell, FRAME, head), head), Some([payload, trailer]))
        };
        ring.posted.push(Datagram { to: transmit.to, at: transmit.at, first, rest, bytes: head + lent + TRAILER });
        ring.last = ring.last.next();
    }
}

/// The payload as bytes, to be dropped before anybody may write to it.
///
/// # Safety
/// The address lies in a live region of at least `bytes` bytes that nobody changes meanwhile.
unsafe fn payload_bytes<'a>(payload: Option<Address>, bytes: usize) -> &'a [u8] {
    match payload {
        // SAFETY: the caller's promise.
        Some(address) => unsafe { core::slice::from_raw_parts(address.start().as_ptr(), bytes) },
        None => &[],
    }
}
