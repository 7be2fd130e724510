//! Point-to-point and collective messages through the rings of the node's shared memory.

use core::cell::RefCell;
use core::ptr::NonNull;
use std::time::Instant;

use unisono_core::collective::token_tree::{self, header::TREE_HEADER};
use unisono_core::device::Memory;
use unisono_core::endpoint::Verdict;
use unisono_core::ids::PeerId;
use unisono_core::message::collective_transport::header::{EAGER_HEADER, TransportKind, parse_key};
use unisono_core::message::point_to_point::{HeaderCredit, MessageHeader as MessageHead, Mode};
use unisono_core::message::{Context, Tag as MessageTag};
use unisono_core::messenger::Payload;
use unisono_core::wire::MESSAGE_HEADER_ROOM;
use unisono_shmem::am_header::{
    ABORT, BYE, EAGER, EAGER_IN_CONTEXT, EAGER_WITH_HEADER, FRAGMENT, HEADER, HELLO, KIND, REMOTE_ACCESS, SHORT_BYTES,
    STEP, checksum, split_immediate,
};
use unisono_shmem::ring::{Entry, INLINE, PutError};
use unisono_shmem::segment::{SharedBytes, Word};

use super::message_table::{Flush, PayloadCopy};
use super::messages::{SendArgs, WhenFull};
use super::remote_access::RemoteAccess;
use super::transport::{Completion, Completions, EarlyPayloads, FragmentPlace, Placements, ProcessTransport};
use super::{POLL_BUDGET, Process};
use crate::node::NodeRankState;
use crate::world::collective::engine::progress_table::CollectiveTable;
use crate::world::request::{Failure, Tag};
use crate::world::shm_transport::{ShmPeer, ShmTransport, copy_out, copy_to};
use unisono_bootstrap::Rank;
use unisono_memory::endpoint_storage::ProcessMessenger;
use unisono_memory::memory_regions::Regions;

/// Polls of one ring before a wait checks anything else.
const SPIN_POLLS: u32 = 500;
/// How long a rank whose ring words were overwritten looks for a protocol violation that identifies the culprit, which
/// may still be writing. Nanoseconds.
const CULPRIT_TIMEOUT: u64 = 100_000_000;

/// A ring entry that no correct peer writes.
struct ProtocolViolation;

impl Process {
    /// Receives a short message that is already in the source's ring, or arrives within a short spin, without a
    /// request. Returns its length, which may exceed the buffer's. `None`: no such message, or the general path must
    /// decide.
    #[inline(always)]
    pub(in crate::world) fn receive_inline(
        &mut self,
        into: &mut [u8],
        context: Context,
        source: Rank,
        tag: Tag,
    ) -> Option<usize> {
        let (shm, peer) = (self.transport.shm.as_mut()?, PeerId::from(source));
        let sender = self.messenger.matching_mut().inline_receive(peer)?;
        if self.aborted.is_some() || !self.revoked.is_empty() || self.requests.checks_types {
            return None;
        }
        let polls = if shm.spins { SPIN_POLLS } else { 1 };
        let shm_peer = shm.peer_mut(peer)?;
        let ahead = shm_peer.peek()?;
        let mut left = polls;
        while !ahead.has_arrived() {
            left -= 1;
            if left == 0 {
                return None;
            }
            core::hint::spin_loop();
        }
        let entry = shm_peer.poll_at(&ahead).ok()??;
        let [note, name] = entry.header;
        if note & KIND != EAGER || context != Context(0) {
            return self.receive_inline_in_context(into, context, source, tag);
        }
        let bytes = entry.payload.bytes();
        if name != tag.0 || bytes > SHORT_BYTES {
            return None;
        }
        // SAFETY: `into` is borrowed exclusively, so that its bytes are writable, and no bytes of a ring.
        unsafe { copy_out(entry.payload, NonNull::from(&mut *into).cast(), into.len()) };
        let credit = shm_peer.ack_state.credit(note);
        shm_peer.consume();
        if sender.take(credit) { Some(bytes) } else { self.accept_inline(peer, credit, bytes) }
    }

    /// Handles an inline message whose credits may let something leave or end.
    #[inline(never)]
    fn accept_inline(&mut self, peer: PeerId, credit: HeaderCredit, bytes: usize) -> Option<usize> {
        let accepted = self.messenger.matching_mut().take_inline(peer, credit);
        self.finish_inline_receive(peer, bytes, accepted)
    }

    /// As [`receive_inline`](Self::receive_inline), for a message that carries its context or a full header.
    #[inline(never)]
    fn receive_inline_in_context(
        &mut self,
        into: &mut [u8],
        context: Context,
        source: Rank,
        tag: Tag,
    ) -> Option<usize> {
        let (peer, machine) = (PeerId::from(source), self.messenger.matching_mut());
        let shm_peer = self.transport.shm.as_mut()?.peer_mut(peer)?;
        let entry = shm_peer.poll().ok()??;
        let [note, name] = entry.header;
        let (bytes, accepted) = if note & KIND == EAGER_WITH_HEADER {
            let (payload, head) = split_immediate::<{ MessageHead::EAGER }>(&entry)?;
            if MessageHead::parse_eager(&head) != Some((context, MessageTag(tag.0))) {
                return None;
            }
            shm_peer.ack_state.receive(name, &head)?;
            // SAFETY: `into` is borrowed exclusively, so that its bytes are writable, and no bytes of a ring.
            unsafe { copy_out(payload, NonNull::from(&mut *into).cast(), into.len()) };
            shm_peer.consume();
            (payload.bytes(), machine.take_eager(peer, &head, (head.len() + payload.bytes()) as u32))
        } else {
            let payload = payload_in_context(&entry, context)?;
            if note & KIND != EAGER_IN_CONTEXT || name != tag.0 || payload.bytes() > SHORT_BYTES {
                return None;
            }
            // SAFETY: `into` is borrowed exclusively, so that its bytes are writable, and no bytes of a ring.
            unsafe { copy_out(payload, NonNull::from(&mut *into).cast(), into.len()) };
            let credit = shm_peer.ack_state.credit(note);
            shm_peer.consume();
            (payload.bytes(), machine.take_inline(peer, credit))
        };
        self.finish_inline_receive(peer, bytes, accepted)
    }

    /// Finishes the receive of a message of `bytes` bytes, after the matching machine's answer: `None` for a protocol
    /// violation, else whether deferred work waits.
    #[inline(always)]
    fn finish_inline_receive(&mut self, peer: PeerId, bytes: usize, accepted: Option<bool>) -> Option<usize> {
        match accepted {
            None => {
                self.protocol_failure(peer);
                return None;
            }
            Some(true) => _ = self.run_deferred(),
            // Nothing urgent ends by it.
            Some(false) => {}
        }
        Some(bytes)
    }

    /// Sends a short message through the ring to a rank of this node. Returns false if the general path must send it.
    #[inline(always)]
    pub(in crate::world) fn send_inline(&mut self, bytes: &[u8], context: Context, to: Rank, tag: Tag) -> bool {
        let Some(shm) = &mut self.transport.shm else { return false };
        let Some(shm_peer) = shm.peer_mut(to.into()) else { return false };
        if bytes.len() > INLINE
            || context != Context(0)
            || self.aborted.is_some()
            || !self.revoked.is_empty()
            || self.requests.checks_types
            || shm_peer.failure.is_some()
        {
            return false;
        }
        let Some((room, settled)) = shm_peer.room() else { return false };
        let Some(credit) = self.messenger.matching_mut().send_inline(to.into()) else { return false };
        let Some(note) = settled.eager_header(EAGER, credit, tag.0) else {
            return self.put_inline(bytes, credit, to, tag);
        };
        let put = room.put(note, bytes).is_ok();
        shm_peer.wake_peer();
        put
    }

    /// Puts a short message whose acknowledgement state needs a full header.
    #[inline(never)]
    fn put_inline(&mut self, bytes: &[u8], credit: HeaderCredit, to: Rank, tag: Tag) -> bool {
        let (flush, when_full) = (Flush::Now, WhenFull::Retry);
        let args = SendArgs { context: Context(0), to, tag, mode: Mode::Standard, flush, when_full };
        // SAFETY: the bytes are borrowed for as long as this runs.
        unsafe { self.put_short(&args, credit, NonNull::from(bytes).cast(), bytes.len()) }.is_ok()
    }

    /// Puts a short message with this credit.
    ///
    /// # Safety
    /// The bytes are valid, and nobody changes them meanwhile.
    pub(super) unsafe fn put_short(
        &mut self,
        args: &SendArgs,
        credit: HeaderCredit,
        start: NonNull<u8>,
        bytes: usize,
    ) -> Result<(), Failure> {
        let SendArgs { context, to, tag, .. } = *args;
        let peer = PeerId::from(to);
        let Some(shm_peer) = self.transport.shm.as_mut().and_then(|shm| shm.peer_mut(peer)) else { return Ok(()) };
        let what = if context == Context(0) { EAGER } else { EAGER_IN_CONTEXT };
        let length = bytes as u32;
        let put = match shm_peer.ack_state.eager_header(what, credit, tag.0) {
            // SAFETY: the caller promises that the bytes are valid, and that nobody changes them meanwhile.
            Some(note) if what == EAGER_IN_CONTEXT => unsafe {
                shm_peer.put_with(note, &context.0.to_le_bytes(), start, length)
            },
            Some(note) if bytes <= INLINE => {
                // SAFETY: the caller promises that the bytes are valid, and that nobody changes them meanwhile.
                shm_peer.put(note, unsafe { core::slice::from_raw_parts(start.as_ptr(), bytes) })
            }
            // SAFETY: the caller promises that the bytes are valid, and that nobody changes them meanwhile.
            Some(note) => unsafe { shm_peer.put_bulk(note, start, length) },
            // SAFETY: the caller promises that the bytes are valid, and that nobody changes them meanwhile.
            None => unsafe {
                shm_peer.put_eager(MessageHead::inline(context, MessageTag(tag.0), credit).as_ref(), start, length)
            },
        };
        match put {
            Ok(()) => Ok(()),
            Err(PutError::Full | PutError::TooLong) => {
                // SAFETY: the caller promises that the bytes are valid, and that nobody changes them meanwhile.
                unsafe { self.put_later(args, credit, start, bytes) }
            }
            Err(PutError::Corrupted) => Err(self.protocol_failure(peer)),
        }
    }

    /// Copies a short message and puts the copy once the ring has room.
    ///
    /// # Errors
    /// [`Failure::ResourceExhausted`]: the system has no memory for the copy.
    ///
    /// # Safety
    /// As for [`put_short`](Self::put_short).
    unsafe fn put_later(
        &mut self,
        args: &SendArgs,
        credit: HeaderCredit,
        start: NonNull<u8>,
        bytes: usize,
    ) -> Result<(), Failure> {
        let peer = PeerId::from(args.to);
        let buffer = self.transport.bounce_buffers.allocate(bytes);
        let buffer = buffer.map(|(buffer, span)| PayloadCopy::Bounce(buffer, span.into()));
        let copy = buffer.or_else(|| self.copy_region(bytes)).ok_or(Failure::ResourceExhausted)?;
        let from = copy.range().span(0, bytes);
        if let Some(to) = self.transport.regions.get_mut().address(from) {
            // SAFETY: the caller promises that the payload is valid, and that nobody changes it meanwhile.
            unsafe { to.write_from(0, start, bytes) };
        }
        let user = self.messages.record_copy(copy);
        let token = self.start_own_send(peer, copy.range(), user).ok_or(Failure::ResourceExhausted)?;
        if let Some(shm_peer) = self.transport.shm.as_mut().and_then(|shm| shm.peer_mut(peer)) {
            let head = MessageHead::inline(args.context, MessageTag(args.tag.0), credit);
            shm_peer.queue(head.as_ref(), from, token);
        }
        Ok(())
    }

    /// Makes one round of progress over all rings. Returns whether anything moved.
    pub(in crate::world) fn progress_shm(&mut self) -> bool {
        let places = self.transport.shm.as_ref().map_or(0, |shm| shm.peers.len());
        let mut moved = false;
        for place in 0..places {
            moved |= self.progress_ring(place);
        }
        if self.has_deferred() {
            moved |= self.run_deferred();
        }
        if self.remote_access.has_work() {
            moved |= self.progress_remote_access(self.transport.now);
        }
        moved | self.poll_collectives()
    }

    /// Makes one round of progress, mostly over what leads to this rank.
    pub(in crate::world) fn progress_towards(&mut self, to: Rank) {
        self.messages.rounds = self.messages.rounds.wrapping_add(1);
        // Rings that are never empty must not starve the other traffic.
        if !self.transport.is_shm_peer(to.into())
            || self.messages.rounds.is_multiple_of(POLL_BUDGET)
            || !self.progress_shm()
        {
            self.progress(false);
        }
    }

    /// Consumes what one peer put into its ring, and puts what waits for room in the ring to it.
    fn progress_ring(&mut self, place: usize) -> bool {
        let Self { transport, collectives, messenger, remote_access, .. } = self;
        let ProcessTransport { shm, regions, placements, completions, early_payloads, .. } = transport;
        let Some(shm) = shm else { return false };
        let Some(mut shm_peer) = shm.peers.get_mut(place).and_then(Option::as_mut) else { return false };
        if shm_peer.failure.is_some() {
            return false;
        }
        let (peer, mut moved, mut sound) = (shm_peer.peer, false, true);
        let mut left = POLL_BUDGET;
        while sound && left > 0 {
            left -= 1;
            let entry = match shm_peer.poll() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                Err(_) => {
                    sound = false;
                    break;
                }
            };
            let mut receiver =
                ShmReceiver { regions, placements, completions, early_payloads, collectives, messenger, remote_access };
            match entry.header[0] {
                HELLO => {
                    let local = shm_peer.local;
                    let source = shm.open_cma(local, entry.payload);
                    let Some(one) = shm.peers.get_mut(place).and_then(Option::as_mut) else { return moved };
                    shm_peer = one;
                    shm_peer.cma_source = source;
                }
                BYE | ABORT => {
                    shm_peer.consume();
                    let has_finished = entry.header[0] == BYE;
                    let failure = if has_finished {
                        Failure::PeerFinished(peer.into())
                    } else {
                        Failure::PeerFailed(peer.into())
                    };
                    self.disconnect(peer, failure, !has_finished);
                    return true;
                }
                _ => sound = receiver.handle(shm_peer, &entry).is_ok(),
            }
            shm_peer.consume();
            moved = true;
        }
        if sound && !shm_peer.is_flushed() {
            let ended = |token| completions.push(Completion::Sent { token, failure: None });
            match shm_peer.flush(regions.get_mut(), ended) {
                Ok(flushed) => moved |= flushed,
                Err(_) => sound = false,
            }
        }
        if !sound {
            self.protocol_failure(peer);
        }
        moved
    }

    /// A peer violated the protocol: its ring is no longer read, and it counts as failed.
    pub(super) fn protocol_failure(&mut self, peer: PeerId) -> Failure {
        let failure = Failure::Corrupted(peer.into());
        tracing::error!(rank = peer.0, "protocol violation in shared memory: the rank counts as failed");
        self.disconnect(peer, failure, true);
        failure
    }

    /// The system or the launcher reports that a shared-memory peer is gone. Handles its earlier messages. Returns
    /// false if it is no shared-memory peer.
    pub(super) fn mark_failed(&mut self, peer: PeerId, failure: Failure) -> bool {
        let Some(shm) = &mut self.transport.shm else { return false };
        let Some(shm_peer) = shm.peer_mut(peer) else { return false };
        if shm_peer.failure.is_some() {
            return true;
        }
        let place = shm_peer.local as usize;
        // At most what a ring holds; no more can arrive.
        let mut rounds = 0..unisono_shmem::layout::PAGE;
        while rounds.next().is_some() && self.has_entries_from(place) && self.progress_ring(place) {}
        self.disconnect(peer, failure, matches!(failure, Failure::PeerFailed(_)));
        true
    }

    fn has_entries_from(&self, place: usize) -> bool {
        let shm_peer = self.transport.shm.as_ref().and_then(|shm| shm.peers.get(place)?.as_ref());
        shm_peer.is_some_and(|shm_peer| shm_peer.failure.is_none() && shm_peer.has_entry())
    }

    /// Checks whether the shared-memory peer that is waited for lives, and one other peer; and whether this rank's own
    /// words in the segment are intact. If they are not, and no peer is identified as the culprit in time, this rank
    /// gives up the shared memory.
    pub(in crate::world) fn check_shm_peers(&mut self, waits_for: Option<Rank>) {
        let Some(shm) = &mut self.transport.shm else { return };
        for peer in shm.implausible_peers() {
            self.protocol_failure(peer);
        }
        let overwritten = self.is_overwritten() && {
            // The culprit may have violated the protocol in its own ring since the rings were polled; then it alone is
            // lost.
            self.progress_shm();
            self.is_overwritten()
        };
        let now = self.now();
        let Some(shm) = &mut self.transport.shm else { return };
        shm.overwritten = overwritten.then(|| shm.overwritten.unwrap_or(now));
        if shm.overwritten.is_some_and(|since| now.saturating_sub(since) >= CULPRIT_TIMEOUT) {
            shm.node.fail();
            let all: Vec<PeerId> = shm.peers.iter().flatten().map(|shm_peer| shm_peer.peer).collect();
            for peer in all {
                self.protocol_failure(peer);
            }
            return;
        }
        let asked = [waits_for.map(PeerId::from), shm.next_to_check()];
        for peer in asked.into_iter().flatten() {
            let Some(shm) = &mut self.transport.shm else { return };
            let Some(local) = shm.peer_mut(peer).filter(|one| one.failure.is_none()).map(|one| one.local) else {
                continue;
            };
            match shm.node.rank_state(local) {
                NodeRankState::Alive => {}
                NodeRankState::Left => {
                    self.mark_failed(peer, Failure::PeerFinished(peer.into()));
                }
                NodeRankState::Dead => {
                    tracing::info!(rank = peer.0, "died, as the operating system reports");
                    self.mark_failed(peer, Failure::PeerFailed(peer.into()));
                }
            }
        }
    }

    fn is_overwritten(&mut self) -> bool {
        self.transport.shm.as_mut().is_some_and(|shm| !shm.is_intact())
    }

    /// Adds the words to wait on for the next event from this rank.
    pub(in crate::world) fn wait_words_of(&self, from: Rank, words: &mut Vec<(&'static Word, u32)>) {
        words.extend(self.transport.shm.iter().filter_map(|shm| shm.peer(from.into())).flat_map(ShmPeer::wait_words));
    }

    /// Adds the words to wait on for the next event from any peer.
    pub(in crate::world) fn wait_words(&self, words: &mut Vec<(&'static Word, u32)>) {
        let shm_peers = self.transport.shm.iter().flat_map(|shm| shm.peers.iter()).flatten();
        words.extend(shm_peers.filter(|one| one.failure.is_none()).flat_map(ShmPeer::wait_words));
    }

    /// Whether all other ranks are reached through shared memory.
    #[inline]
    pub(in crate::world) fn is_single_node(&self) -> bool {
        self.transport.shm.as_ref().is_some_and(|shm| shm.peer_count == self.size - 1)
    }

    /// Why nothing arrives from this rank any more.
    pub(super) fn failure_of(&self, rank: Rank) -> Option<Failure> {
        self.transport.failure_of(rank.into())
    }

    /// Whether the other ranks know that this process has ended its part.
    pub(in crate::world) fn has_announced_exit(&mut self) -> bool {
        self.progress_shm();
        (self.is_single_node() || self.transport.endpoint.is_closed())
            && self.transport.shm.as_ref().is_none_or(ShmTransport::is_flushed)
    }

    /// Whether this rank is reached through shared memory.
    pub(in crate::world) fn is_shm_peer(&self, peer: PeerId) -> bool {
        self.transport.is_shm_peer(peer)
    }

    /// Announces to all shared-memory peers that this process ends its part.
    pub(in crate::world) fn send_bye(&mut self, gives_up: bool) {
        for shm_peer in self.transport.shm.iter_mut().flat_map(|shm| shm.peers.iter_mut()).flatten() {
            if shm_peer.failure.is_none() {
                // A peer whose ring is corrupted need not be notified.
                let _ = shm_peer.send_note([if gives_up { ABORT } else { BYE }, 0], &[]);
            }
        }
    }
}

/// The parts of a process that ring entries are handled with.
struct ShmReceiver<'a> {
    regions: &'a RefCell<Regions>,
    placements: &'a mut Placements,
    completions: &'a mut Completions,
    early_payloads: &'a mut EarlyPayloads,
    collectives: &'a mut CollectiveTable,
    messenger: &'a mut ProcessMessenger,
    remote_access: &'a mut RemoteAccess,
}

impl ShmReceiver<'_> {
    fn handle(&mut self, shm_peer: &mut ShmPeer, entry: &Entry<'_>) -> Result<(), ProtocolViolation> {
        let ([what, number], from) = (entry.header, shm_peer.peer);
        match what & KIND {
            EAGER => self.handle_short(shm_peer, what, Context(0), Tag(number), entry.payload)?,
            EAGER_IN_CONTEXT => {
                let (payload, context) = split_immediate(entry).ok_or(ProtocolViolation)?;
                self.handle_short(shm_peer, what, Context(u32::from_le_bytes(context)), Tag(number), payload)?;
            }
            EAGER_WITH_HEADER => {
                let (payload, head) = split_immediate::<{ MessageHead::EAGER }>(entry).ok_or(ProtocolViolation)?;
                shm_peer.ack_state.receive(number, &head).ok_or(ProtocolViolation)?;
                let bytes = head.len() + payload.bytes();
                let arrival = self.messenger.handle_message(from, &head, bytes as u32);
                self.copy_payload(&arrival, payload, head.len())?;
            }
            HEADER => self.handle_header(shm_peer, number, entry.payload)?,
            FRAGMENT => return self.handle_fragment(shm_peer, number, entry),
            STEP => return self.handle_collective(from, number, entry.payload),
            REMOTE_ACCESS => return self.handle_remote_access(from, entry.payload),
            _ => return Err(ProtocolViolation),
        }
        Ok(())
    }

    /// Handles a message of remote memory access.
    fn handle_remote_access(&mut self, from: PeerId, payload: SharedBytes<'_>) -> Result<(), ProtocolViolation> {
        let (mut head, bytes) = ([0; MESSAGE_HEADER_ROOM], payload.bytes());
        let shown = head.get_mut(..bytes.min(MESSAGE_HEADER_ROOM)).unwrap_or_default();
        payload.part(0, shown.len()).and_then(|front| front.read(shown)).ok_or(ProtocolViolation)?;
        if let Verdict::Place { to, start } = self.remote_access.handle(self.regions, from, shown, bytes as u32)
            && let Some(to) = self.regions.borrow().address(to)
        {
            let behind = payload.part(start.into(), bytes.saturating_sub(start.into())).ok_or(ProtocolViolation)?;
            // SAFETY: a live region: memory of a window, to which nobody has a reference, or of a pending operation.
            unsafe { copy_to(behind, to) };
        }
        Ok(())
    }

    /// Handles a message of a collective or about a communicator.
    fn handle_collective(
        &mut self,
        from: PeerId,
        check: u32,
        payload: SharedBytes<'_>,
    ) -> Result<(), ProtocolViolation> {
        let (mut head, bytes) = ([0; MESSAGE_HEADER_ROOM], payload.bytes());
        let shown = head.get_mut(..bytes.min(MESSAGE_HEADER_ROOM)).unwrap_or_default();
        payload.part(0, shown.len()).and_then(|front| front.read(shown)).ok_or(ProtocolViolation)?;
        let length = match parse_key(shown) {
            Some((TransportKind::Eager, _)) => EAGER_HEADER,
            _ if shown.first() == Some(&token_tree::header::KIND) => TREE_HEADER,
            _ => bytes,
        };
        if checksum(shown.get(..length).ok_or(ProtocolViolation)?) != check {
            return Err(ProtocolViolation);
        }
        let memory = (&mut *self.early_payloads, self.regions);
        let verdict = self.collectives.handle(from, shown, bytes as u32, self.messenger, memory);
        if let Verdict::Place { to, start } = verdict
            && let Some(to) = self.regions.borrow().address(to)
        {
            let behind = payload.part(start.into(), bytes.saturating_sub(start.into())).ok_or(ProtocolViolation)?;
            // SAFETY: a live region, borrowed by this receive or memory of the process.
            unsafe { copy_to(behind, to) };
        }
        Ok(())
    }

    /// Handles a short message whose note carries its credit.
    fn handle_short(
        &mut self,
        shm_peer: &mut ShmPeer,
        note: u32,
        context: Context,
        tag: Tag,
        payload: SharedBytes<'_>,
    ) -> Result<(), ProtocolViolation> {
        let (from, bytes, credit) = (shm_peer.peer, payload.bytes(), shm_peer.ack_state.credit(note));
        let arrival = self.messenger.handle_inline(from, context, MessageTag(tag.0), credit, bytes as u32);
        self.copy_payload(&arrival, payload, MessageHead::EAGER)
    }

    /// Handles a header without a payload.
    fn handle_header(
        &mut self,
        shm_peer: &mut ShmPeer,
        check: u32,
        payload: SharedBytes<'_>,
    ) -> Result<(), ProtocolViolation> {
        let (mut head, bytes) = ([0; MessageHead::LONGEST], payload.bytes());
        let shown = head.get_mut(..bytes).ok_or(ProtocolViolation)?;
        payload.read(shown).ok_or(ProtocolViolation)?;
        shm_peer.ack_state.receive(check, shown).ok_or(ProtocolViolation)?;
        let arrival = self.messenger.handle_message(shm_peer.peer, shown, bytes as u32);
        self.copy_payload(&arrival, payload, 0)
    }

    /// Copies a payload, which `without` bytes of its message do not precede, to its destination.
    fn copy_payload(
        &self,
        arrival: &Payload,
        payload: SharedBytes<'_>,
        without: usize,
    ) -> Result<(), ProtocolViolation> {
        match *arrival {
            Payload::Nothing => Ok(()),
            Payload::Copy { to, start } => {
                if let Some(to) = self.regions.borrow().address(to) {
                    let start = start.saturating_sub(without);
                    let rest = payload.bytes().checked_sub(start).ok_or(ProtocolViolation)?;
                    let payload = payload.part(start, rest).ok_or(ProtocolViolation)?;
                    // SAFETY: the region lives, and is borrowed by this receive, or kept for one.
                    unsafe { copy_to(payload, to) };
                }
                Ok(())
            }
            Payload::ProtocolViolation => Err(ProtocolViolation),
        }
    }

    fn handle_fragment(
        &mut self,
        shm_peer: &mut ShmPeer,
        number: u32,
        entry: &Entry<'_>,
    ) -> Result<(), ProtocolViolation> {
        let place = self.placements.place_fragment(shm_peer.peer, number, entry.payload.bytes());
        let FragmentPlace { to, is_second, ended } = place.ok_or(ProtocolViolation)?;
        // A receive that has ended takes no more bytes.
        if let Some(to) = self.regions.borrow().address(to) {
            // Times the second fragment of a message, if it is a whole one.
            let started = is_second.then(Instant::now);
            // SAFETY: the region lives, and is borrowed by this receive.
            unsafe { copy_to(entry.payload, to) };
            if let Some(started) = started {
                shm_peer.copy_selector.record_fragment(to.bytes(), started.elapsed().as_nanos() as u64);
            }
        }
        ended.into_iter().for_each(|token| self.completions.push(Completion::Delivered(token)));
        Ok(())
    }
}

/// The payload of an entry that carries this context.
fn payload_in_context<'a>(entry: &Entry<'a>, context: Context) -> Option<SharedBytes<'a>> {
    let (payload, found) = split_immediate(entry)?;
    (u32::from_le_bytes(found) == context.0).then_some(payload)
}
