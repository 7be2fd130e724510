//! Point-to-point messages: sending them by the right route, and posting receives.

use core::ptr::NonNull;

use unisono_core::device::Memory as _;
use unisono_core::endpoint::operation::EnqueueError as Unsent;
use unisono_core::endpoint::peer::PeerState;
use unisono_core::ids::PeerId;
use unisono_core::message::point_to_point::{
    HeaderCredit, MessageHeader, Mode, Outgoing as Message, SendAction, SendError,
};
use unisono_core::message::{Context, Pattern, Tag as MessageTag};
use unisono_core::span::{Region, Span};
use unisono_core::wire::MESSAGE_HEADER_ROOM;
use unisono_shmem::am_header::{MessageLocation, SHORT_BYTES};

use super::bounce_buffers::{BounceBuffer, EAGER_MAX};
use super::matching_store::{PayloadAction, ReceiveTarget};
use super::records::OperationOwner;
use super::send_request::{Flush, PayloadOwner, SendOp};
use super::{INLINE_MAX, Process};
use crate::world::collective::engine::progress_table::{QueuedMessage, SendOwner};
use crate::world::collective::engine::scratch_pool::ScratchBlock;
use crate::world::request::handle::RequestHandle;
use crate::world::request::{Failure, Status, Tag, id_of_send, id_of_transfer};
use crate::world::shm_transport::EAGER_SHARED;
use crate::world::watchdog::BlockedOn;
use Flush as When;
use unisono_bootstrap::Rank;
use unisono_memory::memory_regions::{Address, RegionRange};
use unisono_memory::user_buffer::UserBuffer;

/// Tests of a send request between two that ask its receiver for an acknowledgement.
const ACK_REQUEST_INTERVAL: u32 = 64;

/// The arguments of a send.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct SendArgs {
    pub(in crate::world) context: Context,
    pub(in crate::world) to: Rank,
    pub(in crate::world) tag: Tag,
    pub(in crate::world) mode: Mode,
    /// `Flush::Now`: the caller waits for the send, and a copy may spare it the wait.
    pub(in crate::world) flush: When,
}

/// How a rank is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Route {
    /// The rank is this one.
    ToSelf,
    SharedMemory,
    Remote,
}

/// A payload: its address, and its span.
#[derive(Clone, Copy, Debug)]
struct Payload {
    start: NonNull<u8>,
    bytes: usize,
    from: Span,
    send: u32,
}

impl Process {
    /// Sends a buffer. `Ok(None)`: they were copied, and the buffer is free. Otherwise the buffer stays
    /// in use until the returned request has ended, and is registered as the returned region. [`SendFailure::Full`]:
    /// make progress and retry.
    ///
    /// # Safety
    /// The bytes stay valid and unchanged until the request has ended and its region is
    /// [`release_request`](Self::release_request)d.
    pub(in crate::world) unsafe fn send(
        &mut self,
        posting: &SendArgs,
        buffer: &UserBuffer,
    ) -> Result<Option<(u32, Region)>, SendFailure> {
        if let Some(failure) = self.closed_reason() {
            return Err(SendFailure::Failed(failure));
        }
        let UserBuffer { start, bytes, ref layout } = *buffer;
        let SendArgs { to, context, tag, mode, flush: when } = *posting;
        let (way, peer) = (self.route(to)?, PeerId::from(to));
        if self.send_batch.sends == 0 && way == Route::Remote {
            self.now();
        }
        let shared = match &self.shm {
            Some(shm) if way == Route::SharedMemory && bytes > EAGER_SHARED && layout.is_none() => {
                shm.pool.offset(start, bytes)
            }
            _ => None,
        };
        let eager = if shared.is_some() { EAGER_SHARED } else { self.matching.eager_limit(peer) as usize };
        if layout.is_some() && (bytes <= eager || way == Route::ToSelf) {
            // SAFETY: under the same promises of the caller.
            return unsafe { self.send_packed(posting, buffer) };
        }
        let standard = mode != Mode::Synchronous;
        if standard
            && bytes <= SHORT_BYTES.min(eager)
            && let Some(credit) = self.matching.machine.send_inline(peer)
        {
            // SAFETY: the caller promises that the bytes are valid and stay unchanged as long as they are borrowed.
            return unsafe { self.send_short(way, posting, credit, start, bytes) };
        }
        // A copy, so that the sender need not wait, or the user buffer itself.
        let fits = bytes <= eager || way == Route::ToSelf;
        let copies = standard && fits && (when == When::Now || way == Route::Remote && bytes <= SHORT_BYTES);
        let copy = if copies { self.copy_buffer(bytes, way == Route::ToSelf) } else { None };
        if copies && way == Route::ToSelf && copy.is_none() {
            // This thread would wait for a receive that it cannot post.
            return Err(SendFailure::Failed(Failure::ResourceExhausted));
        }
        let (owner, payload, region) = match copy {
            Some((owner, payload)) => (owner, payload, None),
            None => {
                // SAFETY: the caller promises that the bytes stay valid and unchanged until the request has ended and
                // its region is revoked.
                let region = unsafe { self.regions.get_mut().register_buffer(buffer.clone()) };
                let region = region.map_err(|_| SendFailure::Failed(Failure::ResourceExhausted))?;
                (PayloadOwner::Request(self.requests.start()), RegionRange { region, offset: 0, bytes }, Some(region))
            }
        };
        // No other process reads the parts of a layout.
        let at = self.regions.get_mut().address(payload.span(0, 0)).filter(|_| layout.is_none());
        let at = at.and_then(Address::adjacent).map_or(0, |at| at.addr().get() as u64);
        let at = shared.unwrap_or(at);
        let place = if shared.is_some() && region.is_some() {
            MessageLocation::Shared(at)
        } else {
            MessageLocation::Private(at)
        };
        // A thread that waits later for a message that leaves now asks for the acknowledgement then.
        let is_urgent = match region {
            Some(_) => when == When::Now || !self.matching.machine.can_send(peer),
            None => self.bounce_buffers.are_scarce(bytes),
        };
        let user = self.matching.sends.next();
        let message = Message {
            to: peer,
            context,
            tag: MessageTag(tag.0),
            bytes: bytes as u64,
            eager: eager as u32,
            at: place.to_word(),
            mode,
            borrowed: is_urgent,
            user,
        };
        let (mut send, from) = (SendOp::new(peer, payload, owner), payload.span(0, bytes));
        let leaving = if way == Route::Remote
            && let Some(left) = self.matching.machine.send_eager(&message)
        {
            send.uses = 1;
            self.matching.sends.insert(send);
            // Not by `carry`: passing the header on stalls the processor (store forwarding).
            let head = MessageHeader::for_eager(context, message.tag, left);
            self.post_message(peer, head.as_ref(), Some(from), SendOwner::Parcel(user));
            bytes
        } else {
            let Some(leaves) = self.admit(&message) else {
                self.release_payload(owner, payload);
                if let (PayloadOwner::Request(request), Some(region)) = (owner, region) {
                    self.release_request(request, region);
                }
                return Err(SendFailure::Failed(self.failure_of(to).unwrap_or(Failure::PeerFailed(to))));
            };
            send.is_final = matches!(leaves, SendAction::Eager { done: true, .. });
            self.matching.sends.insert(send);
            let (head, leaving) = match &leaves {
                SendAction::Eager { head, .. } => (head, Some(Payload { start, bytes, from, send: user })),
                SendAction::Header(head) => (head, None),
            };
            // SAFETY: the caller promises that the bytes are valid and stay unchanged as long as they are borrowed.
            unsafe { self.route_send(way, peer, head, leaving) };
            leaving.map_or(0, |_| bytes)
        };
        if region.is_none()
            && let Some(to) = self.regions.get_mut().address(from)
        {
            // The receiver's wait is over by now. From here on the copy is sent.
            // SAFETY: the cell, or the region, is this send request's alone, or was until now; the caller's bytes are
            // another object.
            unsafe { to.write_from(0, start, bytes) };
        }
        if send.uses == 0 {
            self.complete_send(user);
        }
        match way {
            Route::Remote => self.maybe_flush(when, leaving),
            Route::SharedMemory | Route::ToSelf => self.run_deferred_if_any(),
        }
        match (owner, region) {
            (PayloadOwner::Request(request), Some(region)) => Ok(Some((request, region))),
            _ => Ok(None),
        }
    }

    /// As [`send`](Self::send), from a packed copy.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    unsafe fn send_packed(
        &mut self,
        posting: &SendArgs,
        buffer: &UserBuffer,
    ) -> Result<Option<(u32, Region)>, SendFailure> {
        let (UserBuffer { start, bytes, layout: Some(layout) }, regions) = (buffer, self.regions.get_mut()) else {
            return Err(SendFailure::Failed(Failure::ResourceExhausted));
        };
        let exhausted = || SendFailure::Failed(Failure::ResourceExhausted);
        let region = regions.allocate(*bytes).map_err(|_| exhausted())?;
        let whole = RegionRange { region, offset: 0, bytes: *bytes };
        let packed = regions.address(whole.span(0, 0)).and_then(Address::adjacent).ok_or_else(exhausted)?;
        // SAFETY: the caller promises that the bytes of the buffer are valid; the copy has as many.
        unsafe { layout.gather(*start, 0, packed, *bytes) };
        // SAFETY: the copy lives until the request has ended.
        let sent = unsafe { self.send(posting, &UserBuffer::plain(packed, *bytes)) };
        match sent {
            Ok(Some((request, _))) => self.packed_sends.push((request, region)),
            // SAFETY: the bytes were copied, or are not sent.
            Ok(None) | Err(_) => _ = unsafe { self.regions.get_mut().free(region) },
        }
        sent
    }

    /// Admits a message to the matching machine. `None`: its receiver has failed, or no record could be allocated.
    fn admit(&mut self, message: &Message) -> Option<SendAction> {
        loop {
            match self.matching.machine.send(message) {
                Ok(leaves) => return Some(leaves),
                Err(SendError::Full) if self.matching.add_sends() => {}
                Err(_) => return None,
            }
        }
    }

    /// Whether waiting for a header credit of this rank is worthwhile.
    #[inline]
    pub(in crate::world) fn is_out_of_headers(&self, to: Rank) -> bool {
        self.matching.machine.is_out_of_credit(to.into()) && self.aborted.is_none()
    }

    /// The route to the rank that a message is sent to.
    #[inline]
    fn route(&mut self, to: Rank) -> Result<Route, SendFailure> {
        if to == self.rank {
            return Ok(Route::ToSelf);
        }
        if let Some(shm_peer) = self.shm.as_mut().and_then(|shm| shm.peer_mut(to.into())) {
            if let Some(failure) = shm_peer.failure {
                return Err(SendFailure::Failed(failure));
            }
            return if shm_peer.has_room() { Ok(Route::SharedMemory) } else { Err(SendFailure::Full) };
        }
        if to.0 >= self.size || self.endpoint.peer_state(to.into()) == PeerState::Unknown {
            return Err(SendFailure::Failed(Failure::UnknownRank(to)));
        }
        match self.failure_of(to) {
            Some(failure) => Err(SendFailure::Failed(failure)),
            None if self.outbox.is_empty() && self.endpoint.has_room() => Ok(Route::Remote),
            None => Err(SendFailure::Full),
        }
    }

    /// Memory for a copy of `bytes` bytes: a bounce buffer, or for a message to this rank itself a region.
    fn copy_buffer(&mut self, bytes: usize, own: bool) -> Option<(PayloadOwner, RegionRange)> {
        if bytes <= EAGER_MAX
            && let Some((cell, span)) = self.bounce_buffers.allocate(bytes)
        {
            return Some((PayloadOwner::Cell(cell), span.into()));
        }
        // A rank that sends to itself will not receive before the send returns.
        let region = own.then(|| self.regions.get_mut().allocate(bytes).ok()).flatten()?;
        Some((PayloadOwner::Copy, RegionRange { region, offset: 0, bytes }))
    }

    /// Sends a short message that may leave at once.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    unsafe fn send_short(
        &mut self,
        way: Route,
        posting: &SendArgs,
        credit: HeaderCredit,
        start: NonNull<u8>,
        bytes: usize,
    ) -> Result<Option<(u32, Region)>, SendFailure> {
        let (peer, context, tag) = (PeerId::from(posting.to), posting.context, MessageTag(posting.tag.0));
        match way {
            Route::SharedMemory => {
                // SAFETY: the caller promises that the bytes are valid and stay unchanged as long as they are borrowed.
                let sent = unsafe { self.put_short(posting, credit, start, bytes) };
                sent.map(|()| None).map_err(SendFailure::Failed)
            }
            Route::ToSelf => {
                let outcome = self.matching.machine.handle_inline(peer, context, tag, credit, bytes as u32);
                let requests = &mut self.requests;
                let arrival = self.matching.apply_outcome(
                    peer,
                    outcome,
                    MessageHeader::EAGER + bytes,
                    MessageHeader::EAGER,
                    requests,
                );
                // SAFETY: the caller promises that `bytes` bytes are valid, which the head states.
                unsafe { self.deliver_to_self(&arrival, start) };
                self.run_deferred_if_any();
                Ok(None)
            }
            Route::Remote => {
                let head = MessageHeader::inline(context, tag, credit);
                let mut registered = None;
                if bytes <= INLINE_MAX {
                    let (mut whole, length) = ([0; MESSAGE_HEADER_ROOM], MessageHeader::EAGER + bytes);
                    whole.iter_mut().zip(head.as_ref()).for_each(|(into, byte)| *into = *byte);
                    let behind = whole.get_mut(MessageHeader::EAGER..length).unwrap_or_default();
                    // SAFETY: the caller says that these bytes are valid; there is room for them, in another object.
                    unsafe { start.copy_to_nonoverlapping(NonNull::from(behind).cast(), bytes) };
                    self.post_message(peer, whole.get(..length).unwrap_or_default(), None, SendOwner::Nothing);
                } else if let Some((cell, span)) = self.bounce_buffers.allocate_short(bytes) {
                    if let Some(address) = self.regions.get_mut().address(span) {
                        // SAFETY: the cell is free: nobody else uses its bytes, and the caller's bytes are another
                        // object.
                        unsafe { address.write_from(0, start, bytes) };
                    }
                    self.post_message(peer, head.as_ref(), Some(span), SendOwner::Cell(cell));
                } else {
                    // SAFETY: the caller promises that the bytes stay valid and unchanged until the request has ended
                    // and its region is revoked.
                    let region = unsafe { self.regions.get_mut().register(start, bytes) };
                    let region = region.map_err(|_| SendFailure::Failed(Failure::ResourceExhausted))?;
                    let request = self.requests.start();
                    let span = Span { region, offset: 0, bytes: bytes as u32 };
                    self.post_message(peer, head.as_ref(), Some(span), SendOwner::Request(request));
                    registered = Some((request, region));
                }
                self.maybe_flush(posting.flush, bytes);
                Ok(registered)
            }
        }
    }

    /// Sends a header to a rank, followed by a payload if there is one.
    ///
    /// # Safety
    /// The payload's bytes are valid, and nobody changes them meanwhile.
    unsafe fn route_send(&mut self, way: Route, to: PeerId, head: &MessageHeader, payload: Option<Payload>) {
        match way {
            Route::Remote => match payload {
                Some(Payload { from, send: parcel, .. }) => {
                    self.retain_send(parcel);
                    self.post_message(to, head.as_ref(), Some(from), SendOwner::Parcel(parcel));
                }
                None => self.post_message(to, head.as_ref(), None, SendOwner::Nothing),
            },
            // SAFETY: the caller promises that the payload's bytes are valid, and that nobody changes them meanwhile.
            Route::SharedMemory => unsafe {
                self.put_message(to, head, payload.map(|of| (of.start, of.from, of.send)))
            },
            Route::ToSelf => {
                let bytes = head.as_ref().len() + payload.map_or(0, |payload| payload.bytes);
                let arrival = self.matching.handle(to, head.as_ref(), bytes, 0, &mut self.requests);
                if let Some(Payload { start, .. }) = payload {
                    // SAFETY: the caller promises that the payload's bytes are valid, and that nobody changes them
                    // meanwhile.
                    unsafe { self.deliver_to_self(&arrival, start) };
                }
            }
        }
    }

    /// Copies the payload of a message to this rank itself.
    ///
    /// # Safety
    /// What is sent has `bytes` bytes behind `start`.
    unsafe fn deliver_to_self(&mut self, arrival: &PayloadAction, start: NonNull<u8>) {
        if let PayloadAction::Place { to, .. } = arrival
            && let Some(to) = self.regions.get_mut().address(*to)
        {
            // SAFETY: the caller promises that as many bytes are valid at `start`; the target is borrowed by a receive,
            // or kept for one. A sender that breaks the rules may name any bytes: the two may overlap.
            unsafe { to.write_from(0, start, to.bytes()) };
        }
    }

    /// Sends a header of the matching machine to a rank, and the payload of one of its messages.
    pub(super) fn route_header(&mut self, to: PeerId, head: &MessageHeader, parcel: Option<u32>) {
        let way = if to == self.rank.into() {
            Route::ToSelf
        } else if self.is_shm_peer(to) {
            Route::SharedMemory
        } else {
            Route::Remote
        };
        let found = parcel.and_then(|parcel| Some((parcel, self.matching.sends.get(parcel)?.payload)));
        let payload = found.and_then(|(parcel, extent)| {
            let from = extent.span(0, extent.bytes);
            let address = self.regions.get_mut().address(from)?;
            Some(Payload { start: address.adjacent()?, bytes: address.bytes(), from, send: parcel })
        });
        // SAFETY: the region is live: borrowed, or a copy.
        unsafe { self.route_send(way, to, head, payload) };
    }

    /// Gives a message to the endpoint, after those that wait for room there. Inlined into its callers: a struct that
    /// is written in parts and read whole stalls the processor (store forwarding).
    #[inline(always)]
    fn post_message(&mut self, to: PeerId, head: &[u8], payload: Option<Span>, ends: SendOwner) {
        if !self.outbox.is_empty() || !self.try_post(self.last_now, to, head, payload, ends) {
            self.queue_message(to, head, payload, ends);
        }
    }

    #[cold]
    fn queue_message(&mut self, to: PeerId, head: &[u8], payload: Option<Span>, ends: SendOwner) {
        self.outbox.push_back(QueuedMessage { payload, owner: ends, ..QueuedMessage::new(to, head) });
    }

    /// Retries [`try_post`](Self::try_post) with a queued message.
    pub(super) fn try_post_again(&mut self, now: u64, outgoing: &QueuedMessage) -> bool {
        let QueuedMessage { to, owner: ends, payload, .. } = *outgoing;
        let head = outgoing.head.get(..outgoing.length).unwrap_or_default();
        self.try_post(now, to, head, payload, ends)
    }

    /// Posts a message to the endpoint. Returns false if there is no room.
    #[inline(always)]
    fn try_post(&mut self, now: u64, to: PeerId, head: &[u8], payload: Option<Span>, ends: SendOwner) -> bool {
        match self.endpoint.send(now, to, head, payload) {
            Ok(operation) => {
                let what = match ends {
                    SendOwner::Nothing => OperationOwner::Nothing,
                    SendOwner::Cell(cell) => OperationOwner::Cell(cell),
                    SendOwner::Transfer(message) => OperationOwner::Request(id_of_transfer(message), to),
                    SendOwner::Parcel(parcel) => OperationOwner::Request(id_of_send(parcel), to),
                    SendOwner::Request(request) => OperationOwner::Request(request, to),
                };
                self.record_operation(operation, what);
                self.has_posted = true;
            }
            Err(Unsent::Full) => return false,
            Err(error) => match ends {
                SendOwner::Nothing => {}
                SendOwner::Transfer(message) => self.requests.finish(id_of_transfer(message), Err(failure(error, to))),
                SendOwner::Cell(cell) => self.bounce_buffers.release(cell),
                SendOwner::Parcel(parcel) => self.requests.finish(id_of_send(parcel), Err(failure(error, to))),
                SendOwner::Request(request) => self.requests.finish(request, Err(failure(error, to))),
            },
        }
        true
    }

    /// Posts the messages that waited for room. Returns whether any was posted.
    pub(super) fn empty_outbox(&mut self, now: u64) -> bool {
        let mut moved = false;
        while let Some(outgoing) = self.outbox.front().copied()
            && self.try_post_again(now, &outgoing)
        {
            self.outbox.pop_front();
            moved = true;
        }
        moved
    }

    /// The payload of a send is being read until [`release_send`](Self::release_send).
    pub(super) fn retain_send(&mut self, parcel: u32) {
        if let Some(parcel) = self.matching.sends.get(parcel) {
            parcel.uses += 1;
        }
    }

    /// The payload of a send was read, or will not be.
    pub(super) fn release_send(&mut self, parcel: u32, failure: Option<Failure>) {
        if let Some(parcel) = self.matching.sends.get(parcel) {
            parcel.uses = parcel.uses.saturating_sub(1);
            parcel.record_failure(failure);
        }
        self.complete_send(parcel);
    }

    /// Ends a send whose payload nobody needs any more. Returns whether it ended.
    #[inline]
    pub(super) fn complete_send(&mut self, send: u32) -> bool {
        let Some(SendOp { to, owner, payload, failure, .. }) = self.matching.sends.remove_if_done(send) else {
            return false;
        };
        match (owner, failure) {
            (PayloadOwner::Request(request), None) => self.requests.succeed(request, Status::sent(to)),
            (PayloadOwner::Request(request), Some(failure)) => self.requests.finish(request, Err(failure)),
            (PayloadOwner::Cell(_) | PayloadOwner::Copy, _) => self.release_payload(owner, payload),
        }
        true
    }

    pub(super) fn release_payload(&mut self, owner: PayloadOwner, payload: RegionRange) {
        match owner {
            PayloadOwner::Request(_) => {}
            PayloadOwner::Cell(cell) => self.release_bounce_buffer(cell),
            // SAFETY: nobody reads it any more: its uses have ended.
            PayloadOwner::Copy => _ = unsafe { self.regions.get_mut().free(payload.region) },
        }
    }

    fn release_bounce_buffer(&mut self, cell: BounceBuffer) {
        self.bounce_buffers.release(cell);
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
        let bytes = buffer.bytes;
        let source = match what {
            ReceiveTarget::Pattern(Pattern { source, .. }) => source.map(Rank::from),
            ReceiveTarget::Matched(..) => None,
        };
        let context = if let ReceiveTarget::Pattern(Pattern { context, .. }) = what { context } else { Context(0) };
        self.expect_receivable(source)?;
        // SAFETY: the caller promises that the memory stays valid, and nobody else's, until the request has ended and
        // its region is revoked.
        let region =
            unsafe { self.regions.get_mut().register_buffer(buffer) }.map_err(|_| Failure::ResourceExhausted)?;
        let request = self.requests.start();
        let into = RegionRange { region, offset: 0, bytes };
        if !self.matching.receive(what, into, request, &mut self.requests, self.regions.get_mut()) {
            let failure = match what {
                ReceiveTarget::Matched(_, sender) => {
                    self.failure_of(sender.into()).unwrap_or(Failure::PeerFailed(sender.into()))
                }
                ReceiveTarget::Pattern(_) => Failure::ResourceExhausted,
            };
            self.requests.finish(request, Err(failure));
        }
        // A message that arrived before its sender ended still counts; another one will not arrive.
        if !source.is_some_and(|source| self.is_present(source))
            && let Some(id) = self.matching.posted(request).and_then(|receiving| receiving.unmatched())
            && let Some(failure) = self.unsatisfiable(context, source)
            && self.matching.machine.cancel(id).is_some()
        {
            self.matching.remove(request);
            self.requests.finish(request, Err(failure));
        }
        self.run_deferred_if_any();
        Ok((request, region))
    }

    /// Why nothing is started any more.
    fn closed_reason(&self) -> Option<Failure> {
        self.aborted.or(self.has_closed_receives.then_some(Failure::Finished))
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
            let Some(untold) = self.unreported_failures.iter().position(|rank| self.is_member(context, *rank)) else {
                return self.why_all_gone(context);
            };
            return Some(Failure::PeerFailed(self.unreported_failures.swap_remove(untold)));
        };
        let ended = self.why_no_messages(rank)?;
        if ended == Failure::PeerFailed(rank) {
            self.unreported_failures.retain(|untold| *untold != rank);
        }
        Some(ended)
    }

    /// Whether this rank is reached through the endpoint, and no rank has failed or finished.
    #[inline]
    fn is_present(&self, rank: Rank) -> bool {
        self.shm.is_none()
            && self.finished_senders.is_empty()
            && self.endpoint.peer_state(rank.into()) == PeerState::Alive
    }

    /// Why no more messages arrive from this rank.
    pub(super) fn why_no_messages(&self, rank: Rank) -> Option<Failure> {
        let left = self.finished_senders.contains(&rank.into()).then_some(Failure::PeerFinished(rank));
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
        let Some(id) = self.matching.posted(request).and_then(|receiving| receiving.unmatched()) else {
            return false;
        };
        let cancelled = self.matching.machine.cancel(id).is_some();
        if cancelled {
            self.matching.remove(request);
            self.release_request(request, region);
        }
        cancelled
    }

    /// Asks the receiver to acknowledge the send that a thread waits for.
    pub(in crate::world) fn request_ack(&mut self, what: BlockedOn) {
        if let BlockedOn::Send { to, .. } = what {
            self.matching.machine.request_report(to.into());
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
        self.rounds = self.rounds.wrapping_add(1);
        // Golden-ratio steps (Knuth, TAOCP 3, §6.4): of requests that are tested in turn all get theirs, whatever their
        // number.
        self.rounds.wrapping_mul(0x9E37_79B1) < u32::MAX / ACK_REQUEST_INTERVAL
    }

    /// Memory for a copy of a buffer that is sent while a receive overwrites it, and its address. `None`: the system
    /// has no memory.
    pub(in crate::world) fn allocate_copy(&mut self, bytes: usize) -> Option<(ScratchBlock, NonNull<u8>)> {
        let kept = self.collectives.scratch.allocate(bytes, self.regions.get_mut())?;
        Some((kept, self.regions.get_mut().address(kept.part(0))?.adjacent()?))
    }

    /// Frees the copy, from which nothing is sent any more.
    pub(in crate::world) fn free_copy(&mut self, kept: ScratchBlock) {
        self.collectives.scratch.release(kept, self.regions.get_mut());
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
        if let Some(place) = self.packed_sends.iter().position(|(packed, _)| *packed == request) {
            let (_, packed) = self.packed_sends.swap_remove(place);
            // SAFETY: the request has ended, and its postings are completed: nobody reads the copy any more.
            unsafe { self.regions.get_mut().free(packed) };
        }
    }

    /// Unregisters a user buffer, of a request or a collective.
    pub(super) fn unregister(&mut self, region: Region) {
        let regions = self.regions.get_mut();
        self.device.wait_for_completions(regions, region);
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

pub(super) fn failure(error: Unsent, to: PeerId) -> Failure {
    match error {
        Unsent::UnknownPeer => Failure::UnknownRank(to.into()),
        Unsent::PeerFailed | Unsent::Full => Failure::PeerFailed(to.into()),
        Unsent::PeerFinished => Failure::PeerFinished(to.into()),
        Unsent::TooLong => Failure::ResourceExhausted,
    }
}
