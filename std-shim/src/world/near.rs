//! Shared-memory transport: the other ranks of this node, and the rings to and from them.
//!
//! The headers of ring entries are defined in [`unisono_shmem::am_header`].

mod pace;
mod pool;
mod source;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::ptr::NonNull;

use unisono_core::device::Memory;
use unisono_core::ids::{Incarnation, PeerId};
use unisono_core::message::collective_transport::StepHeader;
use unisono_core::message::point_to_point::MessageHeader as MessageHead;
use unisono_core::span::Span;
use unisono_shmem::am_header::{
    self, EAGER_LIMIT, FRAGMENT, FRAGMENT_BYTES, HEADER, EAGER_WITH_HEADER, HELLO, MessageLocation, STEP, STEP_RTS, AckState, checksum,
    read_array,
};
use unisono_shmem::host::store_policy::StorePolicy;
use unisono_shmem::host::wait_strategy::Sleepers;
use unisono_shmem::layout::WaitMode;
use unisono_shmem::ring::{Peek, Consumer, Corrupted, Entry, INLINE, Producer, PutError, Reservation};
use unisono_shmem::segment::{SharedBytes, Segment, Word};

use super::request::Failure;
use crate::node::Node;
use pace::Pace;
pub(super) use pool::Pool;
pub use pool::{AllocateError, Buffer};
pub(super) use source::{Nonce, Source};
use unisono_bootstrap::Rank;
use unisono_memory::region::{Address, Extent, Regions};

/// Bytes of the longest message that is copied through the ring although it lies in the segment, where announcing it
/// would save a copy.
pub(super) const EAGER_SHARED: usize = 1 << 12;

/// The announcement of a message (RTS): where its payload lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Announced {
    /// The sender's index for it.
    pub(super) sending: u32,
    pub(super) bytes: u32,
    pub(super) place: MessageLocation,
}

impl Announced {
    pub(super) const BYTES: usize = 24;

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let (what, at) = match self.place {
            MessageLocation::Private(at) => (0, at),
            MessageLocation::Shared(at) => (1, at),
        };
        let mut bytes = [0; Self::BYTES];
        let (low, high) = (at as u32, (at >> 32) as u32);
        // Detects an announcement that another process has overwritten, whose sender would wait forever.
        let mixed = self.sending ^ self.bytes.rotate_left(8) ^ low ^ high.rotate_left(16);
        let check = mixed.wrapping_add(what + 1).wrapping_mul(0x9e37_79b9);
        let words = [self.sending, what, self.bytes, check, low, high];
        for (into, word) in bytes.chunks_exact_mut(4).zip(words) {
            into.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Parses an announcement. `None`: no correct peer writes it.
    pub(super) fn of(payload: SharedBytes<'_>) -> Option<Self> {
        let bytes: [u8; Self::BYTES] = read_array(payload)?;
        let word = |i: usize| bytes.get(4 * i..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        let at = u64::from(word(5)?) << 32 | u64::from(word(4)?);
        let place = match word(1)? {
            0 => MessageLocation::Private(at),
            1 => MessageLocation::Shared(at),
            _ => return None,
        };
        let announced = Self { sending: word(0)?, bytes: word(2)?, place };
        (bytes == announced.to_bytes()).then_some(announced)
    }
}

/// An entry that waits for room in a ring, in order.
#[derive(Clone, Copy, Debug)]
enum Queued {
    Short {
        note: [u32; 2],
        bytes: [u8; INLINE],
        length: usize,
    },
    /// A point-to-point header and its payload.
    Eager {
        head: MessageHead,
        from: Span,
        request: u32,
    },
    Step {
        head: StepHeader,
        from: Span,
        request: u32,
    },
}

/// A message in transmission as fragments.
#[derive(Clone, Copy, Debug)]
struct Stream {
    /// The receiver's index for it.
    placing: u32,
    from: Extent,
    sent: usize,
    request: u32,
}

/// A shared-memory peer: another rank of the node.
pub(super) struct Neighbour {
    pub(super) peer: PeerId,
    pub(super) local: u32,
    pub(super) incarnation: Incarnation,
    /// Why it takes no more part.
    pub(super) ended: Option<Failure>,
    /// Its memory, where the system lets this process read it.
    pub(super) source: Option<Source>,
    pub(super) pace: Pace,
    inward: Consumer<'static>,
    outward: Producer<'static>,
    storing: StorePolicy,
    sleepers: Sleepers<'static>,
    queue: VecDeque<Queued>,
    streams: VecDeque<Stream>,
    pub(super) settled: AckState,
}

impl Neighbour {
    /// The next entry, if there is one.
    #[inline(always)]
    pub(super) fn look(&mut self) -> Result<Option<Entry<'static>>, Corrupted> {
        self.inward.poll()
    }

    /// Where the next entry will be.
    #[inline(always)]
    pub(super) fn ahead(&self) -> Option<Peek<'static>> {
        self.inward.peek()
    }

    /// The next entry, if it has arrived at `ahead`.
    #[inline(always)]
    pub(super) fn look_at(&mut self, ahead: &Peek<'static>) -> Result<Option<Entry<'static>>, Corrupted> {
        self.inward.poll_at(ahead)
    }

    /// Whether there is an entry; one load.
    #[inline(always)]
    pub(super) fn has_news(&self) -> bool {
        self.inward.has_message()
    }

    /// Consumes the entry.
    #[inline(always)]
    pub(super) fn take(&mut self) {
        self.inward.consume();
        self.sleepers.wake(self.inward.last_published());
    }

    /// Whether nothing is queued before the next send.
    #[inline(always)]
    pub(super) fn is_clear(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether the ring has room for the next short message.
    #[inline(always)]
    pub(super) fn has_room(&mut self) -> bool {
        self.queue.is_empty() && self.outward.has_room()
    }

    /// Whether the peer's consumer index is plausible.
    fn is_believable(&mut self) -> bool {
        self.outward.is_tail_plausible()
    }

    /// Whether the words that this rank wrote to the rings are intact.
    fn is_intact(&mut self) -> bool {
        self.outward.is_intact() && self.inward.is_intact()
    }

    /// Whether everything is in the ring.
    pub(super) fn is_flushed(&self) -> bool {
        self.queue.is_empty() && self.streams.is_empty()
    }

    /// Room for the next short message, and the state that its note is encoded against. The caller calls
    /// [`woke`](Self::woke) afterwards.
    #[inline(always)]
    pub(super) fn room(&mut self) -> Option<(Reservation<'_, 'static>, &mut AckState)> {
        if !self.queue.is_empty() {
            return None;
        }
        Some((self.outward.reserve().ok()?, &mut self.settled))
    }

    /// Puts a message of up to [`INLINE`] bytes.
    #[inline(always)]
    pub(super) fn put(&mut self, note: [u32; 2], payload: &[u8]) -> Result<(), PutError> {
        self.outward.put(note, payload)?;
        self.woke();
        Ok(())
    }

    /// Puts a message of up to [`longest`](Self::longest) bytes.
    ///
    /// # Safety
    /// The bytes are valid and nobody changes them.
    #[inline(always)]
    pub(super) unsafe fn put_piece(&mut self, note: [u32; 2], from: NonNull<u8>, bytes: u32) -> Result<(), PutError> {
        // SAFETY: the caller promises that the payload's bytes are valid and that nobody changes them; the piece is as
        // long, and bulk of a ring, which nobody refers to.
        let copy = |piece: SharedBytes<'_>| unsafe { self.storing.copy(from, piece.start(), piece.bytes()) };
        self.outward.put_piece(note, bytes, copy)?;
        self.woke();
        Ok(())
    }

    /// As [`put`](Self::put), after the queued entries; queues the message if there is no room.
    pub(super) fn tell(&mut self, note: [u32; 2], payload: &[u8]) -> Result<(), Corrupted> {
        if self.is_clear() {
            match self.put(note, payload) {
                Err(PutError::Full) => {}
                put => return put.map_err(|_| Corrupted),
            }
        }
        let (mut bytes, length) = ([0; INLINE], payload.len().min(INLINE));
        for (into, byte) in bytes.iter_mut().zip(payload) {
            *into = *byte;
        }
        self.queue.push_back(Queued::Short { note, bytes, length });
        Ok(())
    }

    /// As [`tell`](Self::tell), for a header without payload.
    pub(super) fn tell_head(&mut self, head: &MessageHead) -> Result<(), Corrupted> {
        self.settled.record_sent(head);
        self.tell([HEADER, checksum(head.as_ref())], head.as_ref())
    }

    /// Puts a header, and a payload of `bytes` bytes.
    ///
    /// # Safety
    /// The bytes are valid and nobody changes them.
    pub(super) unsafe fn put_eager(
        &mut self,
        head: &MessageHead,
        from: NonNull<u8>,
        bytes: u32,
    ) -> Result<(), PutError> {
        self.settled.record_sent(head);
        // SAFETY: the caller promises that the payload's bytes are valid and that nobody changes them.
        unsafe { self.put_with([EAGER_WITH_HEADER, checksum(head.as_ref())], head.as_ref(), from, bytes) }
    }

    /// Puts a payload of `bytes` bytes, followed by the few bytes of `back`.
    ///
    /// # Safety
    /// As for [`put_eager`](Self::put_eager).
    pub(super) unsafe fn put_with(
        &mut self,
        note: [u32; 2],
        back: &[u8],
        from: NonNull<u8>,
        bytes: u32,
    ) -> Result<(), PutError> {
        // SAFETY: the caller promises that the payload's bytes are valid and that nobody changes them; `front` is no
        // longer than they are, and another object.
        let fill =
            |front: &mut [u8]| unsafe { from.copy_to_nonoverlapping(NonNull::from(&mut *front).cast(), front.len()) };
        // SAFETY: the caller promises that the payload's bytes are valid and that nobody changes them; the piece is as
        // long, and bulk of a ring, which nobody refers to.
        let fill_piece = |piece: SharedBytes<'_>| unsafe { self.storing.copy(from, piece.start(), piece.bytes()) };
        am_header::put_with(&mut self.outward, note, back, bytes, fill, fill_piece)?;
        self.woke();
        Ok(())
    }

    /// Puts a collective's message of `bytes` bytes, which `gather` yields in parts.
    pub(super) fn put_step(
        &mut self,
        head: &StepHeader,
        bytes: u32,
        gather: impl FnOnce(&mut dyn FnMut(Address)),
    ) -> Result<(), PutError> {
        let (head, note) = (head.as_ref(), [STEP, 0]);
        let total = head.len() + bytes as usize;
        if total <= INLINE {
            let mut entry = [0; INLINE];
            let (front, mut rest) = entry.split_at_mut(head.len());
            front.copy_from_slice(head);
            gather(&mut |from| {
                let (part, behind) = core::mem::take(&mut rest).split_at_mut_checked(from.bytes()).unwrap_or_default();
                // SAFETY: who gathers promises that the region lives and that nobody writes there.
                unsafe { from.read(part) };
                rest = behind;
            });
            return self.put(note, entry.get(..total).unwrap_or_default());
        }
        let fill = |piece: SharedBytes<'_>| {
            let _ = piece.part(0, head.len()).and_then(|front| front.write(head));
            let mut at = head.len();
            gather(&mut |from| {
                if let Some(part) = piece.part(at, from.bytes()) {
                    // SAFETY: both have `from.bytes()` bytes; who gathers promises that nobody writes there, and a
                    // ring's bulk is nobody's buffer.
                    unsafe { part.start().copy_from_nonoverlapping(from.start(), from.bytes()) };
                }
                at += from.bytes();
            });
        };
        self.outward.put_piece(note, u32::try_from(total).map_err(|_| PutError::TooLong)?, fill)?;
        self.woke();
        Ok(())
    }

    /// Queues a collective's message until there is room.
    pub(super) fn queue_step(&mut self, head: StepHeader, from: Span, request: u32) {
        self.queue.push_back(Queued::Step { head, from, request });
    }

    /// Announces a collective's message.
    pub(super) fn announce_step(&mut self, head: &StepHeader, message: Announced) -> Result<(), Corrupted> {
        let (mut bytes, head) = ([0; INLINE], head.as_ref());
        for (into, byte) in bytes.iter_mut().zip(head.iter().copied().chain(message.to_bytes())) {
            *into = byte;
        }
        self.tell([STEP_RTS, 0], bytes.get(..head.len() + Announced::BYTES).unwrap_or_default())
    }

    /// Queues a header and its payload until there is room.
    pub(super) fn queue(&mut self, head: MessageHead, from: Span, request: u32) {
        self.settled.record_sent(&head);
        self.queue.push_back(Queued::Eager { head, from, request });
    }

    /// Sends a message in fragments.
    pub(super) fn stream(&mut self, placing: u32, from: Extent, request: u32) {
        self.streams.push_back(Stream { placing, from, sent: 0, request });
    }

    /// Puts queued entries and fragments as long as there is room. Reports the requests that end by it through `ended`;
    /// returns whether anything moved.
    pub(super) fn flush(&mut self, regions: &Regions, mut ended: impl FnMut(u32)) -> Result<bool, Corrupted> {
        let mut moved = false;
        loop {
            let put = match self.queue.front().copied() {
                Some(Queued::Short { note, bytes, length }) => {
                    self.put(note, bytes.get(..length).unwrap_or_default()).map(|()| None)
                }
                Some(Queued::Eager { head, from, request }) => {
                    let put = match regions.address(from) {
                        // SAFETY: the region lives, so its bytes are lent.
                        Some(address) => unsafe {
                            self.put_with([EAGER_WITH_HEADER, checksum(head.as_ref())], head.as_ref(), address.start(), from.bytes)
                        },
                        None => Ok(()),
                    };
                    put.map(|()| Some(request))
                }
                Some(Queued::Step { head, from, request }) => {
                    let part = regions.address(from);
                    let put = self.put_step(&head, from.bytes, |put| part.into_iter().for_each(put));
                    put.map(|()| Some(request))
                }
                None => break,
            };
            match put {
                Ok(request) => {
                    self.queue.pop_front();
                    request.into_iter().for_each(&mut ended);
                    moved = true;
                }
                Err(PutError::Full) => return Ok(moved),
                Err(_) => return Err(Corrupted),
            }
        }
        while let Some(Stream { placing, from, sent, request }) = self.streams.front().copied() {
            let part = from.part(sent, self.fragment());
            let put = if part.bytes == 0 { Ok(()) } else { self.put_span([FRAGMENT, placing], part, regions) };
            match put {
                Ok(()) if part.bytes == 0 || sent + part.bytes as usize >= from.bytes => {
                    self.streams.pop_front();
                    ended(request);
                }
                Ok(()) => {
                    if let Some(stream) = self.streams.front_mut() {
                        stream.sent += part.bytes as usize;
                    }
                }
                Err(PutError::Full) => return Ok(moved),
                Err(_) => return Err(Corrupted),
            }
            moved = true;
        }
        Ok(moved)
    }

    /// Bytes of a fragment.
    fn fragment(&self) -> usize {
        FRAGMENT_BYTES.min(self.longest()) as usize
    }

    /// Bytes of the longest ring entry.
    #[inline]
    pub(super) fn longest(&self) -> u32 {
        self.outward.longest()
    }

    /// Puts bytes of a user buffer; nothing if their request has ended otherwise and the buffer is no longer
    /// registered.
    fn put_span(&mut self, note: [u32; 2], from: Span, regions: &Regions) -> Result<(), PutError> {
        let Some(address) = regions.address(from) else { return Ok(()) };
        // SAFETY: the region lives, so its bytes are lent.
        unsafe { self.put_piece(note, address.start(), from.bytes) }
    }

    /// The word that changes when an entry arrives, or, if entries are queued, when there is room.
    pub(super) fn awaited(&self) -> (&'static Word, u32) {
        if self.is_flushed() { self.inward.awaited() } else { self.outward.awaited() }
    }

    /// Ends the peer's part. Returns the requests that end with it.
    pub(super) fn end(&mut self, failure: Failure) -> Vec<u32> {
        self.ended = Some(failure);
        let queued = self.queue.drain(..).filter_map(|queued| match queued {
            Queued::Eager { request, .. } | Queued::Step { request, .. } => Some(request),
            Queued::Short { .. } => None,
        });
        queued.chain(self.streams.drain(..).map(|stream| stream.request)).collect()
    }

    /// Wakes the peer if it sleeps until something is put.
    #[inline(always)]
    pub(super) fn woke(&self) {
        if self.sleepers.may_sleep()
            && let Some(word) = self.outward.last_published()
        {
            self.sleepers.wake(word);
        }
    }
}

/// Copies a payload to a buffer of `room` bytes, as much as fits.
///
/// # Safety
/// They are valid, and nobody else uses them.
#[inline(always)]
pub(super) unsafe fn copy_out(payload: SharedBytes<'_>, to: NonNull<u8>, room: usize) {
    let (from, bytes) = (payload.start(), payload.bytes().min(room));
    if bytes == 8 {
        // SAFETY: 8 bytes are readable in the payload, and the caller promises that `room` bytes, at least 8, are
        // writable; a ring is nobody's buffer. A call costs more than the copy.
        unsafe { to.copy_from_nonoverlapping(from, 8) };
    } else {
        // SAFETY: `bytes` are readable in the payload, and the caller promises that `room` bytes, at least as many, are
        // writable; a ring is nobody's buffer.
        unsafe { to.copy_from_nonoverlapping(from, bytes) };
    }
}

/// The shared-memory transport of a process.
pub(super) struct Near {
    pub(super) node: Arc<Node>,
    /// By rank on the node; `None` for this process itself, and for ranks that never joined.
    pub(super) neighbours: Box<[Option<Neighbour>]>,
    pub(super) pool: Arc<Pool>,
    /// Whether every rank has a core.
    pub(super) spins: bool,
    /// Number of peers.
    pub(super) met: u32,
    /// The rank of the node's first one, if its ranks are consecutive.
    first: Option<u32>,
    /// The peer whose liveness is checked next.
    asked: usize,
    /// Since when the words that this rank wrote are not intact, while no peer has violated the protocol. Nanoseconds.
    pub(super) overwritten: Option<u64>,
    /// The peers read it at its address.
    _nonce: Box<Nonce>,
}

impl Near {
    /// Connects to the rings of a node, and sends a greeting to all ranks there.
    pub(super) fn new(node: Arc<Node>) -> Option<Self> {
        let (segment, layout, local) = (node.segment(), node.layout(), node.local());
        let nonce = Box::new(Nonce::new());
        let meet = |other: u32| {
            let incarnation = node.incarnation(other).filter(|_| other != local)?;
            let outward = Producer::of(segment, &layout, local, other)?;
            let mut neighbour = Neighbour {
                peer: node.rank_of(other).into(),
                local: other,
                incarnation,
                ended: None,
                source: None,
                pace: Pace::new(),
                inward: Consumer::of(segment, &layout, other, local)?,
                outward,
                storing: StorePolicy::new(),
                sleepers: node.sleepers(),
                queue: VecDeque::new(),
                streams: VecDeque::new(),
                settled: AckState::default(),
            };
            // Fresh rings have room; a corrupted one is detected when it is polled.
            let _ = neighbour.put([HELLO, 0], &nonce.greeting());
            Some(neighbour)
        };
        let neighbours: Box<[_]> = (0..node.size()).map(meet).collect();
        let met = neighbours.iter().flatten().count() as u32;
        let first = node.rank_of(0);
        let contiguous = (0..node.size()).all(|local| node.rank_of(local).0 == first.0.wrapping_add(local));
        let pool = Arc::new(Pool::new(Arc::clone(&node))?);
        let spins = node.waiting() == WaitMode::Dedicated;
        Some(Self {
            node,
            neighbours,
            pool,
            spins,
            met,
            first: contiguous.then_some(first.0),
            asked: 0,
            overwritten: None,
            _nonce: nonce,
        })
    }

    /// The peer with this rank.
    #[inline(always)]
    pub(super) fn of(&mut self, peer: PeerId) -> Option<&mut Neighbour> {
        let local = match self.first {
            Some(first) => peer.0.wrapping_sub(first),
            None => self.node.local_of(Rank(peer.0))?,
        };
        self.neighbours.get_mut(local as usize)?.as_mut()
    }

    /// As [`of`](Self::of), if it takes part.
    pub(super) fn living(&mut self, peer: PeerId) -> Option<&mut Neighbour> {
        self.of(peer).filter(|neighbour| neighbour.ended.is_none())
    }

    /// As [`of`](Self::of), shared.
    pub(super) fn at(&self, peer: PeerId) -> Option<&Neighbour> {
        let local = self.node.local_of(peer.into())?;
        self.neighbours.get(local as usize)?.as_ref()
    }

    pub(super) fn segment(&self) -> Segment<'static> {
        self.node.segment()
    }

    /// Answers a peer's greeting: tests whether its memory can be read.
    pub(super) fn source(&self, local: u32, greeting: SharedBytes<'_>) -> Option<Source> {
        Source::probe(self.node.pid(local)?, &read_array::<{ Nonce::GREETING }>(greeting)?)
    }

    /// The next peer whose liveness is to be checked.
    pub(super) fn next_asked(&mut self) -> Option<PeerId> {
        self.asked = (self.asked + 1) % self.neighbours.len().max(1);
        self.neighbours.get(self.asked)?.as_ref().map(|neighbour| neighbour.peer)
    }

    /// Bytes of the longest message that every ring takes without an announcement.
    pub(super) fn eager_limit(&self) -> usize {
        let longest = self.neighbours.iter().flatten().map(|neighbour| neighbour.longest() as usize).min();
        longest.unwrap_or(EAGER_LIMIT).min(EAGER_LIMIT)
    }

    /// Peers whose ring words hold values that they cannot have written.
    pub(super) fn unbelievable(&mut self) -> Vec<PeerId> {
        let listening = self.neighbours.iter_mut().flatten().filter(|neighbour| neighbour.ended.is_none());
        listening.filter_map(|neighbour| (!neighbour.is_believable()).then_some(neighbour.peer)).collect()
    }

    /// Whether the words that this rank wrote to the segment are intact. If not, another process writes where it must
    /// not: sent messages may never be seen, and nothing in the segment can be trusted. Checks entries that are not
    /// consumed yet.
    pub(super) fn is_intact(&mut self) -> bool {
        let mut listening = self.neighbours.iter_mut().flatten().filter(|neighbour| neighbour.ended.is_none());
        self.node.is_intact() && listening.all(Neighbour::is_intact)
    }

    /// Whether everything that was sent is in the rings.
    pub(super) fn is_flushed(&self) -> bool {
        self.neighbours.iter().flatten().all(|one| one.ended.is_some() || one.is_flushed())
    }
}
