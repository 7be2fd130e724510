//! Point-to-point messages: sending them by the right route, and posting receives.

use core::ptr::NonNull;

use unisono_core::device::Memory as _;
use unisono_core::endpoint::peer::PeerState;
use unisono_core::ids::{MessageId, PeerId, Port};
use unisono_core::message::point_to_point::{HeaderCredit, MessageHeader, Mode};
use unisono_core::message::{Context, Pattern, Tag as MessageTag};
use unisono_core::messenger::{self, Class, Message, ReceiveHandle};
use unisono_core::span::Region;
use unisono_core::transport::{Token, Transport as _, TransportError};
use unisono_core::wire::MESSAGE_HEADER_ROOM;
use unisono_shmem::am_header::{MessageLocation, SHORT_BYTES};

use super::bounce_buffers::EAGER_MAX;
use super::message_table::{Flush, PayloadCopy, SendOwner};
use super::messenger::{add_receives, add_sends};
use super::transport::OperationOwner;
use super::{INLINE_MAX, Process};
use crate::world::collective::engine::scratch_pool::ScratchBlock;
use crate::world::request::handle::RequestHandle;
use crate::world::request::{Failure, Status, Tag};
use crate::world::shm_transport::{EAGER_SHARED, ShmPeer};
use crate::world::watchdog::BlockedOn;
use unisono_bootstrap::Rank;
use unisono_memory::memory_regions::{Address, RegionRange};
use unisono_memory::user_buffer::UserBuffer;

/// Tests of a send request between two that ask its receiver for an acknowledgement.
const ACK_REQUEST_INTERVAL: u32 = 64;

/// Sends that wait in vain for a header credit before the next ones do not wait.
const VAIN_WAITS: u32 = 64;

/// The arguments of a send.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct SendArgs {
    pub(in crate::world) context: Context,
    pub(in crate::world) to: Rank,
    pub(in crate::world) tag: Tag,
    pub(in crate::world) mode: Mode,
    /// `Flush::Now`: the caller waits for the send, and a copy may spare it the wait.
    pub(in crate::world) flush: Flush,
    pub(in crate::world) when_full: WhenFull,
}

/// What happens to a message if the ring to its receiver is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) enum WhenFull {
    /// The caller makes progress and tries again.
    Retry,
    /// It is queued, and names its buffer until it leaves.
    Queue,
}

/// How a rank is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Route {
    /// The rank is this one.
    ToSelf,
    SharedMemory,
    Remote,
}

impl Process {
    /// Sends a buffer. `Ok(None)`: its bytes were copied, and the buffer is free. Otherwise the buffer stays
    /// in use until the returned request has ended, and is registered as the returned region. [`SendFailure::Full`]:
    /// make progress and retry.
    ///
    /// # Safety
    /// The bytes stay valid and unchanged until the request has ended and its region is
    /// [`release_request`](Self::release_request)d.
    pub(in crate::world) unsafe fn send(
        &mut self,
        args: &SendArgs,
        buffer: &UserBuffer,
    ) -> Result<Option<(u32, Region)>, SendFailure> {
        if self.requests.checks_types {
            // SAFETY: under the same promises of the caller.
            return unsafe { self.send_checked(args, buffer) };
        }
        // SAFETY: under the same promises of the caller.
        unsafe { self.send_unchecked(args, buffer) }
    }

    /// As [`send`](Self::send), of the bytes alone.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    pub(super) unsafe fn send_unchecked(
        &mut self,
        args: &SendArgs,
        buffer: &UserBuffer,
    ) -> Result<Option<(u32, Region)>, SendFailure> {
        if let Some(failure) = self.closed_reason() {
            return Err(SendFailure::Failed(failure));
        }
        let UserBuffer { start, bytes, ref layout, .. } = *buffer;
        let SendArgs { to, context, tag, mode, flush, when_full } = *args;
        let (route, has_room) = self.route(to)?;
        if !has_room && when_full == WhenFull::Retry {
            return Err(SendFailure::Full);
        }
        let peer = PeerId::from(to);
        if self.datagrams.batch.sends == 0 && route == Route::Remote {
            self.now();
        }
        let shared = match &self.transport.shm {
            Some(shm) if route == Route::SharedMemory && bytes > EAGER_SHARED && layout.is_none() => {
                shm.pool.offset(start, bytes)
            }
            _ => None,
        };
        let eager = if shared.is_some() { EAGER_SHARED } else { self.transport.eager_limit(peer) as usize };
        if layout.is_some() && (bytes <= eager || route == Route::ToSelf) {
            // SAFETY: under the same promises of the caller.
            return unsafe { self.send_packed(args, buffer) };
        }
        let standard = mode != Mode::Synchronous;
        if standard
            && has_room
            && bytes <= SHORT_BYTES.min(eager)
            && let Some(credit) = self.messenger.matching_mut().send_inline(peer)
        {
            // SAFETY: the caller promises that the bytes are valid and stay unchanged as long as they are borrowed.
            return unsafe { self.send_short(route, args, credit, start, bytes) };
        }
        // A copy, so that the sender need not wait, or the user buffer itself.
        let fits = bytes <= eager || route == Route::ToSelf;
        let copies =
            standard && fits && has_room && (flush == Flush::Now || route == Route::Remote && bytes <= SHORT_BYTES);
        let copy = if copies { self.copy_buffer(bytes, route == Route::ToSelf) } else { None };
        if copies && route == Route::ToSelf && copy.is_none() {
            // This thread would wait for a receive that it cannot post.
            return Err(SendFailure::Failed(Failure::ResourceExhausted));
        }
        let (user, payload, region) = match copy {
            Some(copy) => (self.messages.record_copy(copy), copy.range(), None),
            None => {
                // SAFETY: the caller promises that the bytes stay valid and unchanged until the request has ended and
                // its region is revoked.
                let region = unsafe { self.transport.regions.get_mut().register_buffer(buffer.clone()) };
                let region = region.map_err(|_| SendFailure::Failed(Failure::ResourceExhausted))?;
                (self.requests.start(), RegionRange { region, offset: 0, bytes }, Some(region))
            }
        };
        let at = match shared.filter(|_| region.is_some()) {
            _ if route == Route::Remote => self.transport.readable(payload),
            Some(at) => MessageLocation::Shared(at).to_word(),
            // No other process reads the parts of a layout.
            None => {
                let at = self.transport.regions.get_mut().address(payload.span(0, 0)).filter(|_| layout.is_none());
                let at = at.and_then(Address::adjacent).map_or(0, |at| at.addr().get() as u64);
                MessageLocation::Private(at).to_word()
            }
        };
        // A thread that waits later for a message that leaves now asks for the acknowledgement then.
        let is_urgent = match region {
            Some(_) => flush == Flush::Now || !self.messenger.matching().can_send(peer),
            None => self.transport.bounce_buffers.are_scarce(bytes),
        };
        let message = Message {
            to: peer,
            context,
            tag: MessageTag(tag.0),
            mode,
            payload,
            at,
            eager: eager as u32,
            borrowed: is_urgent,
            user,
        };
        if region.is_none()
            && let Some(to) = self.transport.regions.get_mut().address(payload.span(0, bytes))
        {
            // SAFETY: the buffer, or the region, is this send's alone; the caller's bytes are another object.
            unsafe { to.write_from(0, start, bytes) };
        }
        if self.admit(&message).is_err() {
            match region {
                Some(region) => self.release_request(user, region),
                None => self.end_send(user, Ok(Status::sent(peer))),
            }
            return Err(SendFailure::Failed(self.failure_of(to).unwrap_or(Failure::PeerFailed(to))));
        }
        match route {
            Route::Remote => {
                self.end_messages(None);
                self.maybe_flush(flush, bytes.min(eager));
            }
            Route::SharedMemory | Route::ToSelf => self.run_deferred_if_any(),
        }
        Ok(region.map(|region| (user, region)))
    }

    /// As [`send`](Self::send), from a packed copy.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    unsafe fn send_packed(
        &mut self,
        args: &SendArgs,
        buffer: &UserBuffer,
    ) -> Result<Option<(u32, Region)>, SendFailure> {
        // SAFETY: under the same promises of the caller.
        unsafe { self.send_copy(args, &[], buffer) }
    }

    /// Sends a copy of `head` and of the bytes of a buffer, which is freed with the request.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    pub(super) unsafe fn send_copy(
        &mut self,
        args: &SendArgs,
        head: &[u8],
        buffer: &UserBuffer,
    ) -> Result<Option<(u32, Region)>, SendFailure> {
        let exhausted = || SendFailure::Failed(Failure::ResourceExhausted);
        let UserBuffer { start, bytes, layout, .. } = buffer;
        let whole = bytes.checked_add(head.len()).ok_or_else(exhausted)?;
        let regions = self.transport.regions.get_mut();
        let region = regions.allocate(whole).map_err(|_| exhausted())?;
        let range = RegionRange { region, offset: 0, bytes: whole };
        let copy = regions.address(range.span(0, 0)).and_then(Address::adjacent).ok_or_else(exhausted)?;
        // SAFETY: the region has as many bytes, and nobody else uses them.
        unsafe { copy.copy_from_nonoverlapping(NonNull::from(head).cast(), head.len()) };
        // SAFETY: within the region.
        let payload = unsafe { copy.add(head.len()) };
        match layout {
            // SAFETY: the caller promises that the bytes of the buffer are valid; the copy has as many.
            Some(layout) => _ = unsafe { layout.gather(*start, 0, payload, *bytes) },
            // SAFETY: the caller promises that the buffer has these bytes; the copy has room for them, and is new memory.
            None => unsafe { payload.copy_from_nonoverlapping(*start, *bytes) },
        }
        // SAFETY: the copy lives until the request has ended.
        let sent = unsafe { self.send_unchecked(args, &UserBuffer::plain(copy, whole)) };
        match sent {
            Ok(Some((request, _))) => self.messages.record_packed(request, region),
            // SAFETY: the bytes were copied, or are not sent.
            Ok(None) | Err(_) => _ = unsafe { self.transport.regions.get_mut().free(region) },
        }
        sent
    }

    /// Hands a message to the messenger.
    fn admit(&mut self, message: &Message) -> Result<(), messenger::SendError> {
        loop {
            match self.messenger.send(&mut self.transport, message) {
                Err(messenger::SendError::Full) if add_sends(&mut self.messenger) => {}
                sent => return sent,
            }
        }
    }

    /// Whether a send should wait a little, for a header credit of its receiver or for room in the ring: not if others
    /// have waited in vain since there was both.
    #[inline]
    pub(in crate::world) fn should_await(&mut self, args: &SendArgs) -> bool {
        let to = args.to;
        let is_full = args.when_full == WhenFull::Queue
            && self.transport.shm.as_mut().and_then(|shm| shm.peer_mut(to.into())).is_some_and(ShmPeer::is_full);
        let is_out = self.messenger.matching().is_out_of_credit(to.into());
        let lacks = (is_full || is_out) && self.aborted.is_none();
        let vain = &mut self.messages.vain_waits;
        if vain.is_empty() {
            return lacks;
        }
        if lacks {
            let waits = vain.iter().find(|(rank, _)| *rank == to).map_or(0, |(_, waits)| *waits);
            // To queue a message costs little, to announce it a round trip.
            return waits < if is_out { VAIN_WAITS } else { 1 };
        }
        vain.retain(|(rank, _)| *rank != to);
        false
    }

    /// A send has waited in vain.
    #[cold]
    pub(in crate::world) fn record_vain_wait(&mut self, to: Rank) {
        let vain = &mut self.messages.vain_waits;
        match vain.iter_mut().find(|(rank, _)| *rank == to) {
            Some((_, waits)) => *waits += 1,
            None => vain.push((to, 1)),
        }
    }

    /// The route to the rank that a message is sent to, and whether it may leave at once: otherwise it can be queued.
    #[inline]
    fn route(&mut self, to: Rank) -> Result<(Route, bool), SendFailure> {
        if to == self.rank {
            return Ok((Route::ToSelf, true));
        }
        if let Some(shm_peer) = self.transport.shm.as_mut().and_then(|shm| shm.peer_mut(to.into())) {
            if let Some(failure) = shm_peer.failure {
                return Err(SendFailure::Failed(failure));
            }
            return Ok((Route::SharedMemory, shm_peer.has_room()));
        }
        if to.0 >= self.size || self.transport.endpoint.peer_state(to.into()) == PeerState::Unknown {
            return Err(SendFailure::Failed(Failure::UnknownRank(to)));
        }
        match self.failure_of(to) {
            Some(failure) => Err(SendFailure::Failed(failure)),
            None if !self.messenger.has_queued(Class::PointToPoint) && self.transport.endpoint.has_room() => {
                Ok((Route::Remote, true))
            }
            None => Err(SendFailure::Full),
        }
    }

    /// Memory for a copy of `bytes` bytes: a bounce buffer, or for a message to this rank itself a region.
    fn copy_buffer(&mut self, bytes: usize, own: bool) -> Option<PayloadCopy> {
        if bytes <= EAGER_MAX
            && let Some((buffer, span)) = self.transport.bounce_buffers.allocate(bytes)
        {
            return Some(PayloadCopy::Bounce(buffer, span.into()));
        }
        // A rank that sends to itself will not receive before the send returns.
        if own { self.copy_region(bytes) } else { None }
    }

    /// As [`copy_buffer`](Self::copy_buffer): a region.
    pub(super) fn copy_region(&mut self, bytes: usize) -> Option<PayloadCopy> {
        let region = self.transport.regions.get_mut().allocate(bytes).ok()?;
        Some(PayloadCopy::Region(RegionRange { region, offset: 0, bytes }))
    }

    /// Sends a short message that may leave at once.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    unsafe fn send_short(
        &mut self,
        route: Route,
        args: &SendArgs,
        credit: HeaderCredit,
        start: NonNull<u8>,
        bytes: usize,
    ) -> Result<Option<(u32, Region)>, SendFailure> {
        let (peer, context, tag) = (PeerId::from(args.to), args.context, MessageTag(args.tag.0));
        match route {
            Route::SharedMemory => {
                // SAFETY: the caller promises that the bytes are valid and stay unchanged as long as they are borrowed.
                let sent = unsafe { self.put_short(args, credit, start, bytes) };
                sent.map(|()| None).map_err(SendFailure::Failed)
            }
            Route::ToSelf => {
                let arrival = self.messenger.handle_inline(peer, context, tag, credit, bytes as u32);
                // SAFETY: the caller promises that `bytes` bytes are valid, which the head states.
                unsafe { self.deliver_to_self(&arrival, start) };
                self.run_deferred_if_any();
                Ok(None)
            }
            Route::Remote => {
                let head = MessageHeader::inline(context, tag, credit);
                let mut registered = None;
                let posted = if bytes <= INLINE_MAX {
                    let (mut whole, length) = ([0; MESSAGE_HEADER_ROOM], MessageHeader::EAGER + bytes);
                    whole.iter_mut().zip(head.as_ref()).for_each(|(into, byte)| *into = *byte);
                    let behind = whole.get_mut(MessageHeader::EAGER..length).unwrap_or_default();
                    // SAFETY: the caller says that these bytes are valid; there is room for them, in another object.
                    unsafe { start.copy_to_nonoverlapping(NonNull::from(behind).cast(), bytes) };
                    let whole = whole.get(..length).unwrap_or_default();
                    self.transport.post(peer, whole, None, OperationOwner::Nothing, Port::ONLY)
                } else if let Some((buffer, span)) = self.transport.bounce_buffers.allocate_short(bytes) {
                    if let Some(address) = self.transport.regions.get_mut().address(span) {
                        // SAFETY: the buffer is free: nobody else uses its bytes, and the caller's bytes are another
                        // object.
                        unsafe { address.write_from(0, start, bytes) };
                    }
                    self.transport.post(peer, head.as_ref(), Some(span), OperationOwner::Bounce(buffer), Port::ONLY)
                } else {
                    // SAFETY: the caller promises that the bytes stay valid and unchanged until the request has ended
                    // and its region is revoked.
                    let region = unsafe { self.transport.regions.get_mut().register(start, bytes) };
                    let region = region.map_err(|_| SendFailure::Failed(Failure::ResourceExhausted))?;
                    let (request, payload) = (self.requests.start(), RegionRange { region, offset: 0, bytes });
                    registered = Some((request, region));
                    let Some(token) = self.start_own_send(peer, payload, request) else {
                        self.release_request(request, region);
                        return Err(SendFailure::Failed(Failure::ResourceExhausted));
                    };
                    let (span, owner) = (payload.span(0, bytes), OperationOwner::Send(token));
                    self.transport.post(peer, head.as_ref(), Some(span), owner, Port::ONLY)
                };
                // There is room, as the route says: it failed if the peer is gone, which is about to be reported.
                debug_assert!(posted != Err(TransportError::Full), "there is room");
                self.maybe_flush(args.flush, bytes);
                Ok(registered)
            }
        }
    }

    /// Records a message that this process sends by itself.
    pub(super) fn start_own_send(&mut self, to: PeerId, payload: RegionRange, user: u32) -> Option<Token> {
        loop {
            match self.messenger.start_own_send(to, payload, user) {
                None if add_sends(&mut self.messenger) => {}
                token => return token,
            }
        }
    }

    /// Copies the payload of a message to this rank itself.
    ///
    /// # Safety
    /// What is sent has `bytes` bytes behind `start`.
    unsafe fn deliver_to_self(&mut self, arrival: &messenger::Payload, start: NonNull<u8>) {
        if let messenger::Payload::Copy { to, .. } = arrival
            && let Some(to) = self.transport.regions.get_mut().address(*to)
        {
            // SAFETY: the caller promises that as many bytes are valid at `start`; the target is borrowed by a receive,
            // or kept for one. A sender that breaks the rules may name any bytes: the two may overlap.
            unsafe { to.write_from(0, start, to.bytes()) };
        }
    }

    /// Ends a send: its request, or the copy that was sent.
    pub(super) fn end_send(&mut self, user: u32, result: Result<Status, Failure>) {
        match (self.messages.take_owner(user), result) {
            (Some(SendOwner::Request(request)), Ok(status)) => self.requests.succeed(request, status),
            (Some(SendOwner::Request(request)), Err(failure)) => self.requests.finish(request, Err(failure)),
            (Some(SendOwner::Copy(copy)), _) => self.release_copy(copy),
            (None, _) => {}
        }
    }

    pub(super) fn release_copy(&mut self, copy: PayloadCopy) {
        match copy {
            PayloadCopy::Bounce(buffer, _) => self.transport.bounce_buffers.release(buffer),
            // SAFETY: nobody reads it any more: its send has ended.
            PayloadCopy::Region(range) => _ = unsafe { self.transport.regions.get_mut().free(range.region) },
        }
    }

    /// Posts a receive into a buffer, registered as the returned region.
    ///
    /// # Safety
    /// The bytes stay valid, and nobody else uses them, until the request has ended and its region is
    /// [`release_request`](Self::release_request)d.
    pub(in crate::world) unsafe fn receive(
        &mut self,
        what: ReceiveTarget,
        buffer: UserBuffer,
    ) -> Result<(u32, Region), Failure> {
        self.expect_receivable(what.source())?;
        if self.requests.checks_types {
            // SAFETY: under the same promises of the caller.
            return unsafe { self.receive_checked(what, buffer) };
        }
        let bytes = buffer.bytes;
        // SAFETY: the caller promises that the memory stays valid, and nobody else's, until the request has ended and
        // its region is revoked.
        let region = unsafe { self.transport.regions.get_mut().register_buffer(buffer) }
            .map_err(|_| Failure::ResourceExhausted)?;
        let request = self.requests.start();
        self.begin_receive(what, RegionRange { region, offset: 0, bytes }, request);
        Ok((request, region))
    }

    /// Posts the receive of a started request, which fails if it can never complete.
    #[inline]
    pub(super) fn begin_receive(&mut self, what: ReceiveTarget, into: RegionRange, request: u32) {
        let source = what.source();
        let context = if let ReceiveTarget::Pattern(Pattern { context, .. }) = what { context } else { Context(0) };
        let posted = self.post_receive(what, into, request);
        if posted.is_none() {
            let failure = match what {
                ReceiveTarget::Matched(_, sender) => {
                    self.failure_of(sender.into()).unwrap_or(Failure::PeerFailed(sender.into()))
                }
                ReceiveTarget::Pattern(_) => Failure::ResourceExhausted,
            };
            self.end_receive(request, Err(failure));
        }
        // A message that arrived before its sender ended still counts; another one will not arrive.
        if !source.is_some_and(|source| self.is_present(source))
            && let Some(handle) = posted.filter(|handle| self.messenger.is_posted(*handle))
            && let Some(failure) = self.unsatisfiable(context, source)
        {
            self.cancel_receive(handle, failure);
        }
        self.run_deferred_if_any();
    }

    /// Posts a receive for a started request. `None`: it can never complete, since the probed message went with its
    /// sender, or there are no more records.
    pub(super) fn post_receive(
        &mut self,
        what: ReceiveTarget,
        into: RegionRange,
        request: u32,
    ) -> Option<ReceiveHandle> {
        loop {
            let (messenger, transport) = (&mut self.messenger, &mut self.transport);
            let posted = match what {
                ReceiveTarget::Pattern(pattern) => messenger.receive(transport, pattern, into, request).map(Some),
                ReceiveTarget::Matched(message, _) => messenger.receive_matched(transport, message, into, request),
            };
            match posted {
                Ok(handle) => {
                    self.messages.record_receive(request, handle?);
                    return handle;
                }
                Err(_) if add_receives(&mut self.messenger) => {}
                Err(_) => return None,
            }
        }
    }

    /// Cancels a receive that has matched no message: its request fails. Returns false if it has matched one.
    pub(super) fn cancel_receive(&mut self, handle: ReceiveHandle, failure: Failure) -> bool {
        let cancelled = self.messenger.cancel(handle);
        cancelled.into_iter().for_each(|request| self.end_receive(request, Err(failure)));
        cancelled.is_some()
    }

    /// The receive of a request, if it has matched no message, and its pattern.
    pub(super) fn posted_receive(&self, request: u32) -> Option<(ReceiveHandle, Pattern)> {
        let handle = self.messages.receive(request)?;
        let (user, pattern) = self.messenger.posted(handle)?;
        (user == request).then_some((handle, pattern))
    }

    /// The receives that have matched no message and satisfy `is`.
    pub(super) fn unmatched(&self, is: impl Fn(&Pattern) -> bool) -> Vec<ReceiveHandle> {
        self.messenger.all_posted().filter(|(.., pattern)| is(pattern)).map(|(handle, ..)| handle).collect()
    }

    /// Why nothing is started any more.
    fn closed_reason(&self) -> Option<Failure> {
        self.aborted.or(self.shutdown.has_closed_receives.then_some(Failure::Finished))
    }

    /// Whether a receive from this source may be posted.
    pub(in crate::world) fn expect_receivable(&self, source: Option<Rank>) -> Result<(), Failure> {
        if let Some(failure) = self.closed_reason() {
            return Err(failure);
        }
        source.filter(|rank| rank.0 >= self.size).map_or(Ok(()), |rank| Err(Failure::UnknownRank(rank)))
    }

    /// Why a receive from `source` that has matched nothing can never complete, if so.
    pub(in crate::world) fn unsatisfiable(&mut self, context: Context, source: Option<Rank>) -> Option<Failure> {
        let Some(rank) = source else {
            let Some(unreported) =
                self.detector.unreported_failures.iter().position(|rank| self.is_member(context, *rank))
            else {
                return self.why_all_gone(context);
            };
            return Some(Failure::PeerFailed(self.detector.unreported_failures.swap_remove(unreported)));
        };
        let ended = self.why_no_messages(rank)?;
        if ended == Failure::PeerFailed(rank) {
            self.detector.unreported_failures.retain(|unreported| *unreported != rank);
        }
        Some(ended)
    }

    /// Whether this rank is reached through the endpoint, and no rank has failed or finished.
    #[inline]
    fn is_present(&self, rank: Rank) -> bool {
        self.transport.shm.is_none()
            && self.shutdown.finished_senders.is_empty()
            && self.transport.endpoint.peer_state(rank.into()) == PeerState::Alive
    }

    /// Why no more messages arrive from this rank.
    pub(super) fn why_no_messages(&self, rank: Rank) -> Option<Failure> {
        let left = self.shutdown.finished_senders.contains(&rank.into()).then_some(Failure::PeerFinished(rank));
        self.failure_of(rank).or(left)
    }

    /// Why all other members are gone, if at least one of them failed. Returns early while the first one is present.
    pub(super) fn why_all_gone(&self, context: Context) -> Option<Failure> {
        let others = (0..self.size).map(Rank).filter(|rank| *rank != self.rank && self.is_member(context, *rank));
        let mut failed = None;
        for rank in others {
            let ended = self.failure_of(rank)?;
            failed = failed.or(Some(ended).filter(|ended| !matches!(ended, Failure::PeerFinished(_))));
        }
        failed
    }

    /// Cancels a receive that has matched no message. Returns false if it has matched or ended, or the request is no
    /// receive.
    pub(in crate::world) fn cancel(&mut self, request: u32, region: Region) -> bool {
        let Some((handle, _)) = self.posted_receive(request) else { return false };
        let cancelled = self.messenger.cancel(handle).is_some();
        if cancelled {
            self.forget_checked(request);
            self.release_request(request, region);
        }
        cancelled
    }

    /// Asks the receiver to acknowledge the send that a thread waits for.
    pub(in crate::world) fn request_ack(&mut self, what: BlockedOn) {
        if let BlockedOn::Send { to, .. } = what {
            self.messenger.matching_mut().request_report(to.into());
            self.run_deferred_if_any();
        }
    }

    /// As [`request_ack`](Self::request_ack), on every few tests, as long as the request has not ended.
    pub(in crate::world) fn request_ack_sometimes(&mut self, request: u32, what: BlockedOn) {
        if self.is_ack_request_due() && self.requests.result(request).is_none() {
            self.request_ack(what);
        }
    }

    /// Whether this test should ask for an acknowledgement.
    pub(in crate::world) const fn is_ack_request_due(&mut self) -> bool {
        self.messages.rounds = self.messages.rounds.wrapping_add(1);
        // Golden-ratio steps (Knuth, TAOCP 3, §6.4): of requests that are tested in turn all get theirs, whatever their
        // number.
        self.messages.rounds.wrapping_mul(0x9E37_79B1) < u32::MAX / ACK_REQUEST_INTERVAL
    }

    /// Memory for a copy of a buffer that is sent while a receive overwrites it, and its address. `None`: the system
    /// has no memory.
    pub(in crate::world) fn allocate_copy(&mut self, bytes: usize) -> Option<(ScratchBlock, NonNull<u8>)> {
        let block = self.collectives.scratch.allocate(bytes, self.transport.regions.get_mut())?;
        Some((block, self.transport.regions.get_mut().address(block.part(0))?.adjacent()?))
    }

    /// Frees the copy, from which nothing is sent any more.
    pub(in crate::world) fn free_copy(&mut self, block: ScratchBlock) {
        self.collectives.scratch.release(block, self.transport.regions.get_mut());
    }

    /// Returns how a request has ended, if it has, and releases its buffer.
    #[inline]
    pub(in crate::world) fn take_ended(&mut self, started: &RequestHandle) -> Option<Result<Status, Failure>> {
        let result = self.requests.result(started.request)?;
        self.release_request(started.request, started.region);
        Some(result)
    }

    /// Releases a request and its buffer.
    pub(in crate::world) fn release_request(&mut self, request: u32, region: Region) {
        self.requests.release(request);
        self.unregister(region);
        if let Some(packed) = self.messages.take_packed(request) {
            self.transport.abort_reads_into(packed);
            self.datagrams.device.wait_for_completions(self.transport.regions.get_mut(), packed);
            // SAFETY: the request has ended, and its postings are completed: nobody reads the copy any more.
            unsafe { self.transport.regions.get_mut().free(packed) };
        }
    }

    /// Unregisters a user buffer, of a request or a collective.
    pub(super) fn unregister(&mut self, region: Region) {
        self.transport.abort_reads_into(region);
        let regions = self.transport.regions.get_mut();
        self.datagrams.device.wait_for_completions(regions, region);
        regions.revoke(region);
    }
}

/// Why a send was not started.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) enum SendFailure {
    /// There is no room: progress makes some.
    Full,
    Failed(Failure),
}

/// What a receive asks for.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) enum ReceiveTarget {
    Pattern(Pattern),
    /// A message that a matched probe has removed, and its sender.
    Matched(MessageId, PeerId),
}

impl ReceiveTarget {
    /// The source of a pattern that names one.
    fn source(self) -> Option<Rank> {
        match self {
            Self::Pattern(Pattern { source, .. }) => source.map(Rank::from),
            Self::Matched(..) => None,
        }
    }
}
