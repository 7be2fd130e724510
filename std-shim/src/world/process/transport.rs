//! The ways to all ranks as one [`Transport`]: the endpoint, the rings of the node's shared memory, and this rank
//! itself.
//!
//! Messages to this rank itself are queued, and handled once the caller is free
//! ([`poll_loopback`](ProcessTransport::poll_loopback)). Operations that end are reported likewise
//! ([`Completions`]).

mod completions;
mod early_payloads;
#[cfg_attr(not(feature = "verbs"), path = "transport/payload_reads_absent.rs")]
pub(in crate::world) mod payload_reads;
mod placements;
#[cfg(feature = "verbs")]
pub(in crate::world) mod read_queue;
#[cfg_attr(not(feature = "verbs"), path = "transport/reliable_absent.rs")]
pub(in crate::world) mod reliable;

use alloc::collections::VecDeque;
use core::cell::RefCell;
use std::time::Instant;

use unisono_core::device::Memory as _;
use unisono_core::endpoint::Event;
use unisono_core::endpoint::operation::OperationError;
use unisono_core::endpoint::peer::PeerState;
use unisono_core::ids::{OperationId, PeerId, PlacementId, Port, RemoteKey};
use unisono_core::messenger::SendFailure;
use unisono_core::rma::Owner;
use unisono_core::span::{RegionRange, Span};
use unisono_core::transport::{Fetch, Grant, Progress, Token, Transport, TransportError, TxPayload};
use unisono_core::wire::MESSAGE_HEADER_ROOM;
use unisono_shmem::am_header::MessageLocation;
use unisono_shmem::ring::PutError;

use super::bounce_buffers::{BounceBuffer, BounceBuffers};
use super::random_keys::RandomKeys;
use crate::world::request::Failure;
use crate::world::shm_transport::ShmTransport;
use crate::world::shm_transport::cma::CmaSource;
pub(in crate::world) use completions::{Completion, Completions};
pub(in crate::world) use early_payloads::{EARLY_PAYLOADS, EarlyPayloads};
pub(in crate::world) use placements::{FragmentPlace, Placements};
use reliable::Reliable;
use unisono_memory::endpoint_storage::ProcessEndpoint;
use unisono_memory::memory_regions::{Address, Regions};

/// Bytes of a message that are copied out of its sender's memory before other work has its turn.
const COPY_CHUNK: usize = 1 << 20;
/// Least bytes of a message that may be read out of the sender's memory (CMA).
const CMA_MIN: usize = 1 << 15;

/// What the completion of an operation of the endpoint ends.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) enum OperationOwner {
    Nothing,
    /// Its payload is in a bounce buffer, which becomes free.
    Bounce(BounceBuffer),
    /// Its payload is that of a send to this rank.
    Send(Token),
    /// A use of memory by remote memory access.
    RemoteAccess(Owner),
}

/// A message to this rank itself.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct LoopbackMessage {
    head: [u8; MESSAGE_HEADER_ROOM],
    length: usize,
    pub(in crate::world) payload: Option<(Span, Token)>,
}

impl LoopbackMessage {
    pub(in crate::world) fn head(&self) -> &[u8] {
        self.head.get(..self.length).unwrap_or_default()
    }
}

/// The ways to all ranks.
pub(in crate::world) struct ProcessTransport {
    // Dropped first: the adapter uses regions.
    pub(in crate::world) reliable: Reliable,
    pub(in crate::world) own: PeerId,
    clock: Instant,
    /// The last reading of the clock: the endpoint must never see time go backwards.
    pub(in crate::world) now: u64,
    pub(in crate::world) endpoint: ProcessEndpoint,
    pub(in crate::world) shm: Option<ShmTransport>,
    pub(in crate::world) regions: RefCell<Regions>,
    pub(in crate::world) bounce_buffers: BounceBuffers,
    pub(in crate::world) early_payloads: EarlyPayloads,
    pub(in crate::world) placements: Placements,
    pub(in crate::world) completions: Completions,
    /// Random keys of grants.
    pub(in crate::world) keys: RandomKeys,
    /// Whether a message was given to the endpoint since it last transmitted.
    pub(in crate::world) has_posted: bool,
    /// Peers that violated the protocol.
    pub(in crate::world) violators: Vec<PeerId>,
    loopback: VecDeque<LoopbackMessage>,
    owners: Vec<OperationOwner>,
    eager_limits: Box<[u32]>,
}

impl ProcessTransport {
    pub(in crate::world) fn new(
        own: PeerId,
        endpoint: ProcessEndpoint,
        shm: Option<ShmTransport>,
        mut regions: Regions,
        (ranks, grant_limit): (u32, usize),
    ) -> Self {
        let bounce_buffers = BounceBuffers::new(&mut regions);
        Self {
            reliable: Reliable::default(),
            own,
            clock: Instant::now(),
            now: 0,
            endpoint,
            shm,
            regions: RefCell::new(regions),
            bounce_buffers,
            early_payloads: EarlyPayloads::default(),
            placements: Placements::new(grant_limit),
            completions: Completions::default(),
            keys: RandomKeys::new(),
            has_posted: false,
            violators: Vec::new(),
            loopback: VecDeque::new(),
            owners: Vec::new(),
            eager_limits: vec![0; ranks as usize].into(),
        }
    }

    /// Reads the clock, in nanoseconds since this process joined.
    pub(in crate::world) fn read_clock(&mut self) -> u64 {
        self.now = self.clock.elapsed().as_nanos() as u64;
        self.now
    }

    pub(in crate::world) fn set_eager_limit(&mut self, peer: PeerId, bytes: u32) {
        if let Some(limit) = self.eager_limits.get_mut(peer.0 as usize) {
            *limit = bytes;
        }
    }

    /// Whether this rank is reached through shared memory.
    pub(in crate::world) fn is_shm_peer(&self, peer: PeerId) -> bool {
        self.shm.as_ref().is_some_and(|shm| shm.peer(peer).is_some())
    }

    /// Whether this rank is reached through the endpoint.
    pub(in crate::world) fn is_remote(&self, peer: PeerId) -> bool {
        peer != self.own && !self.is_shm_peer(peer)
    }

    /// Why nothing arrives from this rank any more.
    pub(in crate::world) fn failure_of(&self, peer: PeerId) -> Option<Failure> {
        if let Some(shm_peer) = self.shm.as_ref().and_then(|shm| shm.peer(peer)) {
            return shm_peer.failure;
        }
        match self.endpoint.peer_state(peer) {
            PeerState::Failed => Some(Failure::PeerFailed(peer.into())),
            PeerState::Finished => Some(Failure::PeerFinished(peer.into())),
            PeerState::Unknown | PeerState::Alive => None,
        }
    }

    /// Whether everything that was sent has arrived, or is in the rings.
    pub(in crate::world) fn is_flushed(&self) -> bool {
        self.loopback.is_empty()
            && self.endpoint.is_acknowledged()
            && self.shm.as_ref().is_none_or(ShmTransport::is_flushed)
    }

    /// Whether a message to this rank itself waits.
    #[inline(always)]
    pub(in crate::world) fn has_loopback(&self) -> bool {
        !self.loopback.is_empty()
    }

    /// The next message to this rank itself.
    pub(in crate::world) fn poll_loopback(&mut self) -> Option<LoopbackMessage> {
        self.loopback.pop_front()
    }

    /// Where ranks of this node find these bytes, as a word.
    pub(in crate::world) fn location(&mut self, from: Span) -> u64 {
        let address = self.regions.get_mut().address(from);
        // The parts of a layout have no address: the receiver asks for them.
        let Some((start, bytes)) = address.and_then(|address| Some((address.adjacent()?, address.bytes()))) else {
            return MessageLocation::Private(0).to_word();
        };
        let shared = self.shm.as_ref().and_then(|shm| shm.pool.offset(start, bytes));
        let place = shared.map_or(MessageLocation::Private(start.addr().get() as u64), MessageLocation::Shared);
        place.to_word()
    }

    /// Gives a message to the endpoint. Inlined into its callers: a struct that is written in parts and read whole
    /// stalls the processor (store forwarding).
    #[inline(always)]
    pub(in crate::world) fn post(
        &mut self,
        to: PeerId,
        head: &[u8],
        payload: Option<Span>,
        owner: OperationOwner,
        port: Port,
    ) -> Result<(), TransportError> {
        let operation = self.endpoint.send(self.now, to, head, payload)?;
        self.endpoint.use_port(operation, port);
        self.record_operation(operation, owner);
        self.has_posted = true;
        Ok(())
    }

    #[inline(always)]
    pub(in crate::world) fn record_operation(&mut self, operation: OperationId, what: OperationOwner) {
        let i = operation.0 as usize;
        if self.owners.len() <= i {
            self.owners.resize(i + 1, OperationOwner::Nothing);
        }
        if let Some(place) = self.owners.get_mut(i) {
            *place = what;
        }
    }

    /// An operation that the endpoint did not accept, or of a peer that is gone, has ended.
    pub(in crate::world) fn end_operation(&mut self, owner: OperationOwner, failure: Option<SendFailure>) {
        match owner {
            OperationOwner::Nothing | OperationOwner::RemoteAccess(_) => {}
            OperationOwner::Bounce(buffer) => self.bounce_buffers.release(buffer),
            OperationOwner::Send(token) => self.completions.push(Completion::Sent { token, failure }),
        }
    }

    /// Sends a payload to a remote rank: a short one within the endpoint's record, an urgent one from a bounce buffer.
    fn send_remote(
        &mut self,
        to: PeerId,
        head: &[u8],
        payload: TxPayload,
        port: Port,
    ) -> Result<Progress, TransportError> {
        let TxPayload { span, token, is_urgent } = payload;
        let Some(from) = self.regions.get_mut().address(span).filter(|_| is_urgent) else {
            return self.post(to, head, Some(span), OperationOwner::Send(token), port).map(|()| Progress::Pending);
        };
        let mut whole = [0; MESSAGE_HEADER_ROOM];
        if let Some((front, rest)) = whole.split_at_mut_checked(head.len())
            && from.bytes() <= rest.len()
        {
            front.copy_from_slice(head);
            // SAFETY: the region lives, and its owner lets nobody write there before the send has ended.
            unsafe { from.read(rest) };
            let whole = whole.get(..head.len() + from.bytes()).unwrap_or_default();
            return self.post(to, whole, None, OperationOwner::Nothing, port).map(|()| Progress::Complete);
        }
        let Some((buffer, copy)) = self.bounce_buffers.allocate(from.bytes()) else {
            return self.post(to, head, Some(span), OperationOwner::Send(token), port).map(|()| Progress::Pending);
        };
        if let Some(into) = self.regions.get_mut().address(copy) {
            // SAFETY: both regions live; the buffer is free, so that nobody else uses it.
            unsafe { into.copy_from(from) };
        }
        let posted = self.post(to, head, Some(copy), OperationOwner::Bounce(buffer), port);
        posted.inspect_err(|_| self.bounce_buffers.release(buffer)).map(|()| Progress::Complete)
    }

    /// Sends a message through a ring, or queues it until the ring has room.
    fn send_shm(&mut self, to: PeerId, head: &[u8], payload: Option<TxPayload>) -> Result<Progress, TransportError> {
        let peer = self.shm.as_mut().and_then(|shm| shm.live_peer(to)).ok_or(TransportError::PeerGone)?;
        let Some(TxPayload { span, token, .. }) = payload else {
            if peer.send_header(head).is_err() {
                self.violators.push(to);
            }
            return Ok(Progress::Complete);
        };
        let Some(from) = self.regions.get_mut().address(span) else { return Ok(Progress::Complete) };
        if peer.is_queue_empty() {
            // SAFETY: the region lives, and its owner lets nobody write there before the send has ended.
            match unsafe { peer.put_message(head, from) } {
                Ok(()) => return Ok(Progress::Complete),
                Err(PutError::Full | PutError::TooLong) => {}
                Err(PutError::Corrupted) => {
                    self.violators.push(to);
                    return Err(TransportError::PeerGone);
                }
            }
        }
        peer.queue(head, span, token);
        Ok(Progress::Pending)
    }

    /// Handles an operation that the endpoint has completed, or a placement that was filled. Returns what is left of
    /// it.
    pub(in crate::world) fn handle_event(&mut self, event: Event) -> Option<(Owner, bool)> {
        match event {
            Event::Completed(operation, result) => {
                let place = self.owners.get_mut(operation.0 as usize)?;
                let owner = core::mem::replace(place, OperationOwner::Nothing);
                if let OperationOwner::RemoteAccess(owner) = owner {
                    return Some((owner, result.is_ok()));
                }
                let failure = result.err().map(|error| match error {
                    OperationError::PeerFailed | OperationError::PeerFinished => SendFailure::PeerGone,
                    OperationError::Refused => SendFailure::Refused,
                });
                self.end_operation(owner, failure);
            }
            Event::Delivered(placement, _) => {
                if let Some(token) = self.placements.take_granted(placement) {
                    self.completions.push(Completion::Delivered(token));
                }
            }
            Event::PeerFailed(_) | Event::PeerFinished(_) | Event::PeerSilent(_) => {}
        }
        None
    }

    /// Copies an announced message out of the memory of a rank of this node, one chunk at a time.
    fn fetch_from(&mut self, from: PeerId, place: MessageLocation, into: RegionRange, copied: usize) -> Option<bool> {
        let shm = self.shm.as_mut()?;
        let (segment, layout, spins) = (shm.segment(), shm.node.layout(), shm.spins);
        let peer = shm.peer_mut(from)?;
        // The receive has ended.
        let Some(to) = self.regions.get_mut().address(into.span(copied, COPY_CHUNK)) else { return Some(true) };
        match place {
            MessageLocation::Shared(at) => {
                let lies = layout.in_pool(peer.local, at, into.bytes);
                let bytes = lies.and_then(|area| segment.shared_bytes(area.offset + copied, to.bytes()))?;
                // SAFETY: the receive's memory is borrowed by its request. A buffer that is being sent is not received
                // into, but a sender that breaks the rules may name any: the regions may overlap.
                unsafe { to.write_from(0, bytes.start(), to.bytes()) };
                Some(true)
            }
            MessageLocation::Private(at) => {
                // On an oversubscribed node two ranks never copy at the same time.
                // A buffer with a layout has no address, and one of many parts is no faster read in parts.
                let reads = at != 0 && CmaSource::is_worthwhile(to);
                let reads = reads && copied > 0
                    || reads && into.bytes >= CMA_MIN && (!spins || peer.copy_selector.uses_cma(at, into.bytes as u64));
                let source = peer.cma_source.filter(|_| reads);
                let started = Instant::now();
                // SAFETY: the receive's memory is borrowed by its request, so that nobody else uses it.
                let pulled = source.is_some_and(|source| unsafe { source.pull(at.wrapping_add(copied as u64), to) });
                if pulled {
                    peer.copy_selector.record_cma(to.bytes(), started.elapsed().as_nanos() as u64);
                } else if source.is_some() {
                    tracing::debug!(rank = from.0, "cannot read the rank's memory any more: falling back to fragments");
                    peer.cma_source = None;
                }
                Some(pulled)
            }
        }
    }

    /// The memory of a span, which may be that of an early payload.
    fn resolve(&mut self, span: Span) -> Option<Address> {
        let regions = self.regions.get_mut();
        let span = self.early_payloads.resolve(span, regions)?;
        regions.address(span)
    }
}

impl Transport for ProcessTransport {
    fn eager_limit(&self, to: PeerId) -> u32 {
        self.eager_limits.get(to.0 as usize).copied().unwrap_or(0)
    }

    fn send(
        &mut self,
        to: PeerId,
        head: &[u8],
        payload: Option<TxPayload>,
        port: Port,
    ) -> Result<Progress, TransportError> {
        // Nothing has no region.
        let payload = payload.filter(|payload| payload.span.bytes > 0);
        if to == self.own {
            let (mut copy, length) = ([0; MESSAGE_HEADER_ROOM], head.len().min(MESSAGE_HEADER_ROOM));
            copy.iter_mut().zip(head).for_each(|(into, byte)| *into = *byte);
            let payload = payload.map(|TxPayload { span, token, .. }| (span, token));
            self.loopback.push_back(LoopbackMessage { head: copy, length, payload });
            return Ok(if payload.is_some() { Progress::Pending } else { Progress::Complete });
        }
        if self.is_shm_peer(to) {
            return self.send_shm(to, head, payload);
        }
        match payload {
            Some(payload) => self.send_remote(to, head, payload, port),
            None => self.post(to, head, None, OperationOwner::Nothing, port).map(|()| Progress::Complete),
        }
    }

    fn grant_limit(&self, peer: PeerId) -> usize {
        if self.is_remote(peer) { self.placements.grant_limit } else { usize::MAX }
    }

    fn grant(&mut self, to: PeerId, into: RegionRange, token: Token) -> Result<Grant, TransportError> {
        if !self.is_remote(to) {
            let placement = self.placements.open(to, into, token);
            return Ok(Grant { placement, key: RemoteKey(0) });
        }
        let key = RemoteKey(self.keys.next());
        let placement = self.endpoint.grant(to, into.span(0, usize::MAX), key)?;
        self.placements.record_granted(placement, to, token);
        Ok(Grant { placement, key })
    }

    fn withdraw(&mut self, from: PeerId, placement: PlacementId) {
        if self.is_remote(from) {
            self.placements.take_granted(placement);
            self.endpoint.withdraw(placement);
        } else {
            let is_gone = self.failure_of(from).is_some();
            self.placements.abandon(placement, is_gone);
        }
    }

    fn place(
        &mut self,
        to: PeerId,
        grant: Grant,
        from: RegionRange,
        token: Token,
        port: Port,
    ) -> Result<Progress, TransportError> {
        if to == self.own {
            if let Some((into, delivered)) = self.placements.close(to, grant.placement) {
                // SAFETY: both are borrowed, or a copy; a sender that breaks the rules may name any bytes: they may
                // overlap.
                unsafe { self.regions.get_mut().copy(from, into) };
                self.completions.push(Completion::Delivered(delivered));
            }
            return Ok(Progress::Complete);
        }
        if self.is_shm_peer(to) {
            let peer = self.shm.as_mut().and_then(|shm| shm.live_peer(to)).ok_or(TransportError::PeerGone)?;
            peer.stream(grant.placement.0, from, token);
            return Ok(Progress::Pending);
        }
        let operation = self.endpoint.place(self.now, to, grant.placement, grant.key, from.span(0, usize::MAX))?;
        self.endpoint.use_port(operation, port);
        self.record_operation(operation, OperationOwner::Send(token));
        Ok(Progress::Pending)
    }

    fn fetch(&mut self, from: PeerId, at: u64, into: RegionRange, copied: usize, token: Token) -> Fetch {
        if self.is_remote(from) {
            return self.read_payload(from, at, into, copied, token);
        }
        if !self.is_shm_peer(from) {
            return Fetch::Unreachable;
        }
        let bytes = COPY_CHUNK.min(into.bytes.saturating_sub(copied));
        match self.fetch_from(from, MessageLocation::from_word(at), into, copied) {
            Some(true) if copied + bytes >= into.bytes => Fetch::Complete,
            Some(true) => Fetch::Copied(bytes),
            Some(false) => Fetch::Unreachable,
            None => Fetch::Invalid,
        }
    }

    fn abort_fetch(&mut self, _: PeerId, token: Token) {
        self.abort_read(token);
    }

    fn copy(&mut self, from: Span, into: RegionRange) {
        let to = self.regions.get_mut().address(into.span(0, usize::MAX));
        if let (Some(from), Some(to)) = (self.resolve(from), to) {
            // SAFETY: both regions live; the source is memory of this process that nobody else names, the target is
            // borrowed by a receive: they do not overlap.
            unsafe { to.copy_from(from) };
        }
    }
}
