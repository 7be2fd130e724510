//! The send ring of a queue: a buffer of headers and copied payloads, and the datagrams posted since the last flush.

use core::{ptr::NonNull, slice};

use unisono_core::device::{Destination, HEADER_ROOM, Ticket, Token, Transmit};
use unisono_core::ids::Rail;

use super::{
    buffer_pool::BufferPool,
    checksum::{self, TRAILER},
    transmitter::{BATCH, IoVector, TxDatagram, run_length},
};
use unisono_memory::memory_regions::Address;

/// Largest payload that is copied, in bytes; longer payloads are gathered by the kernel, unless their bytes are not
/// adjacent. A run of copied frames is one I/O vector for the kernel, a run of gathered ones needs two per frame.
const COPY_MAX: usize = 2048;

/// Datagrams whose checksums are computed together: one checksum is a chain of dependent steps, several overlap.
const CHECKSUM_GROUP: usize = 8;

/// Free entries, posted datagrams and the tickets of a queue.
///
/// Frames are adjacent: header, copied payload, checksum, next header. Where the payload is not copied, the checksum
/// and the next header are adjacent and form one I/O vector of a run.
pub(super) struct SendRing {
    frames: BufferPool,
    /// Offset of the next header.
    cursor: usize,
    posted: Vec<TxDatagram>,
    /// Those of one of several rails.
    of_rail: Vec<TxDatagram>,
    /// How many of these have their checksum.
    with_checksum: usize,
    last: Ticket,
    pub(super) completed: Ticket,
    /// Largest frame, checksum included.
    mtu: usize,
    /// Frames get checksums; without, their trailers are zero.
    pub(super) checksums: bool,
    /// GSO is in use: a run that does not fit whole is left to the next batch.
    whole_runs: bool,
    /// Length of the datagrams of the current run, and how many more datagrams the run takes.
    run: (usize, usize),
}

// SAFETY: the pieces posted point into the ring's own slab, and to borrowed payload: the creator of its table promised
// that it may be read until the posting ends, on whichever thread (`Regions::new`).
unsafe impl Send for SendRing {}

impl SendRing {
    pub(super) fn new(mtu: usize, whole_runs: bool) -> std::io::Result<Self> {
        Ok(Self {
            frames: BufferPool::new(1, BATCH * (HEADER_ROOM + mtu + TRAILER) + HEADER_ROOM)?,
            cursor: 0,
            posted: Vec::with_capacity(BATCH),
            of_rail: Vec::new(),
            with_checksum: 0,
            last: Ticket::default(),
            completed: Ticket::default(),
            mtu,
            checksums: true,
            whole_runs,
            run: (0, 0),
        })
    }

    /// A free entry, or `None` while the ring is full.
    pub(super) fn token(&mut self) -> Option<UdpToken<'_>> {
        let left = BATCH - self.posted.len();
        let cut = self.whole_runs && matches!(self.run, (bytes, 0) if left < run_length(bytes)) && left < BATCH;
        (left > 0 && !cut).then_some(UdpToken { ring: self })
    }

    /// Counts a datagram of `bytes` bytes into the current run, or starts a new run.
    fn count_run(&mut self, bytes: usize) {
        self.run = match self.run {
            (same, left @ 1..) if same == bytes => (same, left - 1),
            _ => (bytes, run_length(bytes) - 1),
        };
    }

    /// Whether nothing is posted.
    pub(super) fn is_empty(&self) -> bool {
        self.posted.is_empty()
    }

    /// The datagrams posted for one of `rails` rails, each with its checksum. The first rail has those of groups, and
    /// those of unknown rails, too.
    pub(super) fn with_checksums(&mut self, rail: Rail, rails: usize) -> &[TxDatagram] {
        self.write_checksums();
        if rails == 1 {
            return &self.posted;
        }
        let is_here = |datagram: &&TxDatagram| match datagram.to {
            Destination::Peer { rail: way, .. } if usize::from(way.0) < rails => way == rail,
            Destination::Peer { .. } | Destination::Group(_) => rail == Rail(0),
        };
        self.of_rail.clear();
        self.of_rail.extend(self.posted.iter().filter(is_here));
        &self.of_rail
    }

    /// Writes the missing checksums.
    fn write_checksums(&mut self) {
        for datagram in self.posted.iter().skip(self.with_checksum) {
            let IoVector { start, bytes } = datagram.first;
            // SAFETY: a frame, or the head of one, in the slab, which is borrowed exclusively.
            let first = unsafe { slice::from_raw_parts_mut(start.as_ptr(), bytes) };
            match datagram.rest {
                None => {
                    if let Some((body, trailer)) = first.split_last_chunk_mut::<TRAILER>() {
                        *trailer = if self.checksums { checksum::of(body) } else { checksum::NONE };
                    }
                }
                Some([payload, trailer]) => {
                    // SAFETY: borrowed memory: the creator of its table promised that it stays and that nobody changes
                    // it until the posting ends (`Regions::new`), which it does in `finish`.
                    let payload = unsafe { slice::from_raw_parts(payload.start.as_ptr(), payload.bytes) };
                    let sum = if self.checksums { checksum::of_parts(first, payload) } else { checksum::NONE };
                    // SAFETY: the trailer behind the head in the slab.
                    unsafe { trailer.start.cast::<[u8; TRAILER]>().write(sum) };
                }
            }
        }
        self.with_checksum = self.posted.len();
    }

    /// The posted datagrams were sent or are lost.
    pub(super) fn finish(&mut self) {
        self.posted.clear();
        self.of_rail.clear();
        self.with_checksum = 0;
        self.cursor = 0;
        self.run = (0, 0);
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

    fn header_room(&mut self) -> &mut [u8; HEADER_ROOM] {
        let head =
            self.ring.frames.get_mut(0, self.ring.cursor, HEADER_ROOM).expect("room for as many headers as entries");
        head.try_into().expect("the slice has HEAD bytes")
    }

    /// Cuts the payload to the bytes at the address and to the MTU, which the caller must not exceed.
    fn post(self, transmit: &Transmit, payload: Option<Address>) {
        let ring = self.ring;
        let head = usize::from(transmit.header_bytes).min(HEADER_ROOM);
        let bytes = transmit.payload.map_or(0, |span| span.bytes as usize);
        let payload_len = payload.map_or(0, Address::bytes).min(bytes).min(ring.mtu - TRAILER - head);
        let adjacent = payload.map_or(Some(NonNull::dangling()), Address::adjacent);
        let gathered = adjacent.filter(|_| payload_len > COPY_MAX);
        let copied = if gathered.is_some() { 0 } else { payload_len };
        let end = head + copied;
        if let (Some(to), Some(payload)) = (ring.frames.get_mut(0, ring.cursor + head, copied), payload) {
            // SAFETY: the creator of the address's table promised that its region lives and that nobody changes these
            // bytes until the posting ends (`Regions::new`); a frame is no region.
            unsafe { payload.read(to) };
        }
        let piece = |start, bytes| {
            let start = ring.frames.piece(0, ring.cursor + start, bytes).expect("a part of the frame");
            IoVector { start, bytes }
        };
        let (first, rest) = match gathered {
            None => (piece(0, end + TRAILER), None),
            Some(start) => (piece(0, head), Some([IoVector { start, bytes: payload_len }, piece(head, TRAILER)])),
        };
        ring.cursor += end + TRAILER;
        ring.posted.push(TxDatagram {
            to: transmit.to,
            at: transmit.queue,
            first,
            rest,
            bytes: head + payload_len + TRAILER,
        });
        ring.last = ring.last.next();
        ring.count_run(head + payload_len + TRAILER);
        if ring.posted.len() - ring.with_checksum == CHECKSUM_GROUP {
            ring.write_checksums();
        }
    }
}
