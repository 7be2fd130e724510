//! Shared-memory transport: the other ranks of this node, and the rings to and from them.
//!
//! The headers of ring entries are defined in [`unisono_shmem::am_header`].

pub(super) mod cma;
mod copy_selector;
mod shm_allocator;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::ptr::NonNull;

use unisono_core::device::Memory;
use unisono_core::ids::{Incarnation, PeerId};
use unisono_core::message::point_to_point::KINDS;
use unisono_core::span::Span;
use unisono_core::transport::Token;
use unisono_core::wire::MESSAGE_HEADER_ROOM;
use unisono_shmem::am_header::{
    self, AckState, EAGER_LIMIT, EAGER_WITH_HEADER, FRAGMENT, FRAGMENT_BYTES, HEADER, HELLO, STEP, checksum, read_array,
};
use unisono_shmem::host::store_policy::StorePolicy;
use unisono_shmem::host::wait_strategy::Sleepers;
use unisono_shmem::layout::WaitMode;
use unisono_shmem::ring::{Consumer, Corrupted, Entry, INLINE, Peek, Producer, PutError, Reservation};
use unisono_shmem::segment::{Segment, SharedBytes, Word};

use super::request::Failure;
use crate::node::Node;
pub(super) use cma::{CmaSource, Nonce};
use copy_selector::CopySelector;
pub(super) use shm_allocator::ShmPool;
pub use shm_allocator::{AllocateError, Buffer};
use unisono_bootstrap::Rank;
use unisono_memory::memory_regions::{Address, RegionRange, Regions};

/// Bytes of the longest message that is copied through the ring although it lies in the segment, where announcing it
/// would save a copy.
pub(super) const EAGER_SHARED: usize = 1 << 12;

/// An entry that waits for room in a ring, in order.
#[derive(Clone, Copy, Debug)]
enum QueuedEntry {
    Short {
        note: [u32; 2],
        bytes: [u8; INLINE],
        length: usize,
    },
    /// A header and its payload.
    Message {
        head: [u8; MESSAGE_HEADER_ROOM],
        length: usize,
        from: Span,
        token: Token,
    },
}

/// A message in transmission as fragments.
#[derive(Clone, Copy, Debug)]
struct FragmentStream {
    /// The receiver's index for it.
    receive_index: u32,
    from: RegionRange,
    sent: usize,
    token: Token,
}

/// A shared-memory peer: another rank of the node.
pub(super) struct ShmPeer {
    pub(super) peer: PeerId,
    pub(super) local: u32,
    pub(super) incarnation: Incarnation,
    /// Why it takes no more part.
    pub(super) failure: Option<Failure>,
    /// Its memory, where the system lets this process read it.
    pub(super) cma_source: Option<CmaSource>,
    pub(super) copy_selector: CopySelector,
    rx_ring: Consumer<'static>,
    tx_ring: Producer<'static>,
    store_policy: StorePolicy,
    sleepers: Sleepers<'static>,
    queue: VecDeque<QueuedEntry>,
    streams: VecDeque<FragmentStream>,
    pub(super) ack_state: AckState,
}

impl ShmPeer {
    /// The next entry, if there is one.
    #[inline(always)]
    pub(super) fn poll(&mut self) -> Result<Option<Entry<'static>>, Corrupted> {
        self.rx_ring.poll()
    }

    /// Where the next entry will be.
    #[inline(always)]
    pub(super) fn peek(&self) -> Option<Peek<'static>> {
        self.rx_ring.peek()
    }

    /// The next entry, if it has arrived at `ahead`.
    #[inline(always)]
    pub(super) fn poll_at(&mut self, ahead: &Peek<'static>) -> Result<Option<Entry<'static>>, Corrupted> {
        self.rx_ring.poll_at(ahead)
    }

    /// Whether there is an entry; one load.
    #[inline(always)]
    pub(super) fn has_entry(&self) -> bool {
        self.rx_ring.has_message()
    }

    /// Consumes the entry.
    #[inline(always)]
    pub(super) fn consume(&mut self) {
        self.rx_ring.consume();
        self.sleepers.wake(self.rx_ring.last_published());
    }

    /// Whether nothing is queued before the next send.
    #[inline(always)]
    pub(super) fn is_queue_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether the ring has room for the next short message.
    #[inline(always)]
    pub(super) fn has_room(&mut self) -> bool {
        self.queue.is_empty() && self.tx_ring.has_room()
    }

    /// Whether a message to the peer, which takes part, must wait for room.
    #[inline(always)]
    pub(super) fn is_full(&mut self) -> bool {
        self.failure.is_none() && !self.has_room()
    }

    /// Whether the peer's consumer index is plausible.
    fn is_plausible(&mut self) -> bool {
        self.tx_ring.is_tail_plausible()
    }

    /// Whether the words that this rank wrote to the rings are intact.
    fn is_intact(&mut self) -> bool {
        self.tx_ring.is_intact() && self.rx_ring.is_intact()
    }

    /// Whether everything is in the ring.
    pub(super) fn is_flushed(&self) -> bool {
        self.queue.is_empty() && self.streams.is_empty()
    }

    /// Room for the next short message, and the state that its note is encoded against. The caller calls
    /// [`wake_peer`](Self::wake_peer) afterwards.
    #[inline(always)]
    pub(super) fn room(&mut self) -> Option<(Reservation<'_, 'static>, &mut AckState)> {
        if !self.queue.is_empty() {
            return None;
        }
        Some((self.tx_ring.reserve().ok()?, &mut self.ack_state))
    }

    /// Puts a message of up to [`INLINE`] bytes.
    #[inline(always)]
    pub(super) fn put(&mut self, note: [u32; 2], payload: &[u8]) -> Result<(), PutError> {
        self.tx_ring.put(note, payload)?;
        self.wake_peer();
        Ok(())
    }

    /// Puts a message of up to [`longest`](Self::longest) bytes.
    ///
    /// # Safety
    /// The bytes are valid and nobody changes them.
    #[inline(always)]
    pub(super) unsafe fn put_bulk(&mut self, note: [u32; 2], from: NonNull<u8>, bytes: u32) -> Result<(), PutError> {
        // SAFETY: the caller promises that the payload's bytes are valid and that nobody changes them; the piece is as
        // long, and bulk of a ring, which nobody refers to.
        let copy = |piece: SharedBytes<'_>| unsafe { self.store_policy.copy(from, piece.start(), piece.bytes()) };
        self.tx_ring.put_piece(note, bytes, copy)?;
        self.wake_peer();
        Ok(())
    }

    /// As [`put`](Self::put), after the queued entries; queues the message if there is no room.
    pub(super) fn send_note(&mut self, note: [u32; 2], payload: &[u8]) -> Result<(), Corrupted> {
        if self.is_queue_empty() {
            match self.put(note, payload) {
                Err(PutError::Full) => {}
                put => return put.map_err(|_| Corrupted),
            }
        }
        let (mut bytes, length) = ([0; INLINE], payload.len().min(INLINE));
        for (into, byte) in bytes.iter_mut().zip(payload) {
            *into = *byte;
        }
        self.queue.push_back(QueuedEntry::Short { note, bytes, length });
        Ok(())
    }

    /// As [`send_note`](Self::send_note), for a header without payload.
    pub(super) fn send_header(&mut self, head: &[u8]) -> Result<(), Corrupted> {
        let note = if is_point_to_point(head) {
            self.ack_state.record_sent(head);
            [HEADER, checksum(head)]
        } else {
            [STEP, checksum(head)]
        };
        self.send_note(note, head)
    }

    /// Puts a header, and a payload.
    ///
    /// # Safety
    /// The region is live, and nobody writes the bytes meanwhile.
    pub(super) unsafe fn put_message(&mut self, head: &[u8], payload: Address) -> Result<(), PutError> {
        let bytes = u32::try_from(payload.bytes()).map_err(|_| PutError::TooLong)?;
        match payload.adjacent() {
            // SAFETY: under the same promises of the caller.
            Some(start) if is_point_to_point(head) => unsafe { self.put_eager(head, start, bytes) },
            // An eager payload of a point-to-point message is adjacent.
            _ => self.put_headed([STEP, checksum(head)], head, bytes, |put| put(payload)),
        }
    }

    /// Puts a header of a point-to-point message, and a payload of `bytes` bytes.
    ///
    /// # Safety
    /// The bytes are valid and nobody changes them.
    pub(super) unsafe fn put_eager(&mut self, head: &[u8], from: NonNull<u8>, bytes: u32) -> Result<(), PutError> {
        self.ack_state.record_sent(head);
        // SAFETY: the caller promises that the payload's bytes are valid and that nobody changes them.
        unsafe { self.put_with([EAGER_WITH_HEADER, checksum(head)], head, from, bytes) }
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
        let fill_piece = |piece: SharedBytes<'_>| unsafe { self.store_policy.copy(from, piece.start(), piece.bytes()) };
        am_header::put_with(&mut self.tx_ring, note, back, bytes, fill, fill_piece)?;
        self.wake_peer();
        Ok(())
    }

    /// Puts `head`, followed by `bytes` bytes, which `gather` yields in parts.
    pub(super) fn put_headed(
        &mut self,
        note: [u32; 2],
        head: &[u8],
        bytes: u32,
        gather: impl FnOnce(&mut dyn FnMut(Address)),
    ) -> Result<(), PutError> {
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
                    unsafe { from.read_to(0, part.start(), from.bytes()) };
                }
                at += from.bytes();
            });
        };
        self.tx_ring.put_piece(note, u32::try_from(total).map_err(|_| PutError::TooLong)?, fill)?;
        self.wake_peer();
        Ok(())
    }

    /// Queues a header and its payload until there is room.
    pub(super) fn queue(&mut self, head: &[u8], from: Span, token: Token) {
        if is_point_to_point(head) {
            self.ack_state.record_sent(head);
        }
        let (mut copy, length) = ([0; MESSAGE_HEADER_ROOM], head.len().min(MESSAGE_HEADER_ROOM));
        copy.iter_mut().zip(head).for_each(|(into, byte)| *into = *byte);
        self.queue.push_back(QueuedEntry::Message { head: copy, length, from, token });
    }

    /// Sends a message in fragments.
    pub(super) fn stream(&mut self, receive_index: u32, from: RegionRange, token: Token) {
        self.streams.push_back(FragmentStream { receive_index, from, sent: 0, token });
    }

    /// Puts queued entries and fragments as long as there is room. Reports the owners of what ends by it through `ended`;
    /// returns whether anything moved.
    pub(super) fn flush(&mut self, regions: &Regions, mut ended: impl FnMut(Token)) -> Result<bool, Corrupted> {
        let mut moved = false;
        loop {
            let put = match self.queue.front().copied() {
                Some(QueuedEntry::Short { note, bytes, length }) => {
                    self.put(note, bytes.get(..length).unwrap_or_default()).map(|()| None)
                }
                Some(QueuedEntry::Message { head, length, from, token }) => {
                    let head = head.get(..length).unwrap_or_default();
                    let put = match regions.address(from) {
                        // SAFETY: the region lives, so its bytes are borrowed.
                        Some(payload) => unsafe { self.put_queued(head, payload) },
                        // Its request has ended otherwise.
                        None => Ok(()),
                    };
                    put.map(|()| Some(token))
                }
                None => break,
            };
            match put {
                Ok(token) => {
                    self.queue.pop_front();
                    token.into_iter().for_each(&mut ended);
                    moved = true;
                }
                Err(PutError::Full) => return Ok(moved),
                Err(_) => return Err(Corrupted),
            }
        }
        while let Some(FragmentStream { receive_index, from, sent, token }) = self.streams.front().copied() {
            let part = from.span(sent, self.fragment_bytes());
            let put = if part.bytes == 0 { Ok(()) } else { self.put_span([FRAGMENT, receive_index], part, regions) };
            match put {
                Ok(()) if part.bytes == 0 || sent + part.bytes as usize >= from.bytes => {
                    self.streams.pop_front();
                    ended(token);
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

    /// As [`put_message`](Self::put_message), of a message whose acknowledgement was recorded when it was queued.
    ///
    /// # Safety
    /// As for [`put_message`](Self::put_message).
    unsafe fn put_queued(&mut self, head: &[u8], payload: Address) -> Result<(), PutError> {
        let recorded = self.ack_state;
        // SAFETY: under the same promises of the caller.
        let put = unsafe { self.put_message(head, payload) };
        self.ack_state.keep_sent(recorded);
        put
    }

    /// Bytes of a fragment.
    fn fragment_bytes(&self) -> usize {
        FRAGMENT_BYTES.min(self.longest()) as usize
    }

    /// Bytes of the longest ring entry.
    #[inline]
    pub(super) fn longest(&self) -> u32 {
        self.tx_ring.longest()
    }

    /// Puts bytes of a user buffer; nothing if their request has ended otherwise and the buffer is no longer
    /// registered.
    fn put_span(&mut self, note: [u32; 2], from: Span, regions: &Regions) -> Result<(), PutError> {
        let Some(address) = regions.address(from) else { return Ok(()) };
        if let Some(start) = address.adjacent() {
            // SAFETY: the region lives, so its bytes are borrowed.
            return unsafe { self.put_bulk(note, start, from.bytes) };
        }
        // SAFETY: the region lives, so its bytes are borrowed; the piece is as long, and bulk of a ring, which nobody
        // refers to.
        let gather = |piece: SharedBytes<'_>| unsafe { address.read_to(0, piece.start(), piece.bytes()) };
        self.tx_ring.put_piece(note, from.bytes, gather)?;
        self.wake_peer();
        Ok(())
    }

    /// The words that change when an entry arrives and, if entries are queued, when there is room.
    pub(super) fn wait_words(&self) -> impl Iterator<Item = (&'static Word, u32)> + use<> {
        [Some(self.rx_ring.awaited()), (!self.is_flushed()).then(|| self.tx_ring.awaited())].into_iter().flatten()
    }

    /// Ends the peer's part. Returns the owners of what was not sent.
    pub(super) fn fail(&mut self, failure: Failure) -> Vec<Token> {
        self.failure = Some(failure);
        let queued = self.queue.drain(..).filter_map(|queued| match queued {
            QueuedEntry::Message { token, .. } => Some(token),
            QueuedEntry::Short { .. } => None,
        });
        queued.chain(self.streams.drain(..).map(|stream| stream.token)).collect()
    }

    /// Wakes the peer if it sleeps until something is put.
    #[inline(always)]
    pub(super) fn wake_peer(&self) {
        if self.sleepers.may_sleep()
            && let Some(word) = self.tx_ring.last_published()
        {
            self.sleepers.wake(word);
        }
    }
}

/// Whether a header is one of the core's point-to-point messages.
fn is_point_to_point(head: &[u8]) -> bool {
    head.first().is_some_and(|kind| *kind < KINDS)
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

/// Copies a payload to an address, as much as fits.
///
/// # Safety
/// The region is live, and nobody else uses these bytes.
#[inline(always)]
pub(super) unsafe fn copy_to(payload: SharedBytes<'_>, to: Address) {
    match to.adjacent() {
        // SAFETY: under the same promises of the caller.
        Some(start) => unsafe { copy_out(payload, start, to.bytes()) },
        // SAFETY: as many bytes are readable in the payload; otherwise under the same promises of the caller.
        None => unsafe { to.write_from(0, payload.start(), payload.bytes()) },
    }
}

/// The shared-memory transport of a process.
pub(super) struct ShmTransport {
    pub(super) node: Arc<Node>,
    /// By rank on the node; `None` for this process itself, and for ranks that never joined.
    pub(super) peers: Box<[Option<ShmPeer>]>,
    pub(super) pool: Arc<ShmPool>,
    /// Whether every rank has a core.
    pub(super) spins: bool,
    /// Number of peers.
    pub(super) peer_count: u32,
    /// The rank of the node's first one, if its ranks are consecutive.
    first: Option<u32>,
    /// The peer whose liveness is checked next.
    last_checked: usize,
    /// Since when the words that this rank wrote are not intact, while no peer has violated the protocol. Nanoseconds.
    pub(super) overwritten: Option<u64>,
    /// The peers read it at its address.
    _nonce: Box<Nonce>,
}

impl ShmTransport {
    /// Connects to the rings of a node, and sends a greeting to all ranks there.
    pub(super) fn new(node: Arc<Node>) -> Option<Self> {
        let (segment, layout, local) = (node.segment(), node.layout(), node.local());
        let nonce = Box::new(Nonce::new());
        let meet = |other: u32| {
            let incarnation = node.incarnation(other).filter(|_| other != local)?;
            let outward = Producer::of(segment, &layout, local, other)?;
            let mut shm_peer = ShmPeer {
                peer: node.rank_of(other).into(),
                local: other,
                incarnation,
                failure: None,
                cma_source: None,
                copy_selector: CopySelector::new(),
                rx_ring: Consumer::of(segment, &layout, other, local)?,
                tx_ring: outward,
                store_policy: StorePolicy::new(),
                sleepers: node.sleepers(),
                queue: VecDeque::new(),
                streams: VecDeque::new(),
                ack_state: AckState::default(),
            };
            // Fresh rings have room; a corrupted one is detected when it is polled.
            let _ = shm_peer.put([HELLO, 0], &nonce.greeting());
            Some(shm_peer)
        };
        let shm_peers: Box<[_]> = (0..node.size()).map(meet).collect();
        let peer_count = shm_peers.iter().flatten().count() as u32;
        let first = node.rank_of(0);
        let contiguous = (0..node.size()).all(|local| node.rank_of(local).0 == first.0.wrapping_add(local));
        let pool = Arc::new(ShmPool::new(Arc::clone(&node))?);
        let spins = node.waiting() == WaitMode::Dedicated;
        Some(Self {
            node,
            peers: shm_peers,
            pool,
            spins,
            peer_count,
            first: contiguous.then_some(first.0),
            last_checked: 0,
            overwritten: None,
            _nonce: nonce,
        })
    }

    /// The peer with this rank.
    #[inline(always)]
    pub(super) fn peer_mut(&mut self, peer: PeerId) -> Option<&mut ShmPeer> {
        let local = match self.first {
            Some(first) => peer.0.wrapping_sub(first),
            None => self.node.local_of(Rank(peer.0))?,
        };
        self.peers.get_mut(local as usize)?.as_mut()
    }

    /// As [`peer_mut`](Self::peer_mut), if it takes part.
    pub(super) fn live_peer(&mut self, peer: PeerId) -> Option<&mut ShmPeer> {
        self.peer_mut(peer).filter(|shm_peer| shm_peer.failure.is_none())
    }

    /// As [`peer_mut`](Self::peer_mut), shared.
    pub(super) fn peer(&self, peer: PeerId) -> Option<&ShmPeer> {
        let local = self.node.local_of(peer.into())?;
        self.peers.get(local as usize)?.as_ref()
    }

    pub(super) fn segment(&self) -> Segment<'static> {
        self.node.segment()
    }

    /// Answers a peer's greeting: tests whether its memory can be read.
    pub(super) fn open_cma(&self, local: u32, greeting: SharedBytes<'_>) -> Option<CmaSource> {
        CmaSource::probe(self.node.pid(local)?, &read_array::<{ Nonce::GREETING }>(greeting)?)
    }

    /// The next peer whose liveness is to be checked.
    pub(super) fn next_to_check(&mut self) -> Option<PeerId> {
        self.last_checked = (self.last_checked + 1) % self.peers.len().max(1);
        self.peers.get(self.last_checked)?.as_ref().map(|shm_peer| shm_peer.peer)
    }

    /// Bytes of the longest message that every ring takes without an announcement.
    pub(super) fn eager_limit(&self) -> usize {
        let longest = self.peers.iter().flatten().map(|shm_peer| shm_peer.longest() as usize).min();
        longest.unwrap_or(EAGER_LIMIT).min(EAGER_LIMIT)
    }

    /// Peers whose ring words hold values that they cannot have written.
    pub(super) fn implausible_peers(&mut self) -> Vec<PeerId> {
        let listening = self.peers.iter_mut().flatten().filter(|neighbour| neighbour.failure.is_none());
        listening.filter_map(|neighbour| (!neighbour.is_plausible()).then_some(neighbour.peer)).collect()
    }

    /// Whether the words that this rank wrote to the segment are intact. If not, another process writes where it must
    /// not: sent messages may never be seen, and nothing in the segment can be trusted. Checks entries that are not
    /// consumed yet.
    pub(super) fn is_intact(&mut self) -> bool {
        let mut listening = self.peers.iter_mut().flatten().filter(|neighbour| neighbour.failure.is_none());
        self.node.is_intact() && listening.all(ShmPeer::is_intact)
    }

    /// Whether everything that was sent is in the rings.
    pub(super) fn is_flushed(&self) -> bool {
        self.peers.iter().flatten().all(|one| one.failure.is_some() || one.is_flushed())
    }
}
