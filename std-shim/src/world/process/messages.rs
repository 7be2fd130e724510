//! Point-to-point messages: sending them by the right route, and posting receives.

use core::ptr::NonNull;

use unisono_core::device::Memory as _;
use unisono_core::endpoint::operation::EnqueueError as Unsent;
use unisono_core::endpoint::peer::PeerState;
use unisono_core::ids::PeerId;
use unisono_core::message::point_to_point::{HeaderCredit, MessageHeader, SendAction, Mode, Outgoing as Message, SendError};
use unisono_core::message::{Context, Pattern, Tag as MessageTag};
use unisono_core::span::{Region, Span};
use unisono_core::wire::MESSAGE_HEADER_ROOM;
use unisono_shmem::am_header::{MessageLocation, SHORT_BYTES};

use super::{INLINE_MOST, Process, Use};
use crate::world::collective::store::Kept;
use crate::world::collective::table::{EAGER_MOST, Ends, Outgoing};
use crate::world::mailbox::{Arrival, Wanted};
use crate::world::near::EAGER_SHARED;
use crate::world::parcel::{Owner, Parcel};
use crate::world::progress::{Leaves as When, Started};
use crate::world::request::{Failure, Status, Tag, of_message, of_parcel};
use crate::world::small::Cell;
use crate::world::watchdog::Doing;
use unisono_bootstrap::Rank;
use unisono_memory::region::Extent;

/// Tests of a send request between two that ask its receiver for an acknowledgement.
const TIMES: u32 = 64;

/// The arguments of a send.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct Posting {
    pub(in crate::world) context: Context,
    pub(in crate::world) to: Rank,
    pub(in crate::world) tag: Tag,
    pub(in crate::world) mode: Mode,
    /// [`Leaves::AtOnce`](When::AtOnce): the caller waits for the send, and a copy may spare it the wait.
    pub(in crate::world) leaves: When,
}

/// How a rank is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// The rank is this one.
    Own,
    Near,
    Far,
}

/// A payload: its address, and its span.
#[derive(Clone, Copy, Debug)]
struct Payload {
    start: NonNull<u8>,
    bytes: usize,
    from: Span,
    parcel: u32,
}

impl Process {
    /// Sends `bytes` bytes at `start`. `Ok(None)`: they were copied, and the buffer is free. Otherwise the buffer stays
    /// in use until the returned request has ended, and is registered as the returned region. [`SendFailure::Full`]:
    /// make progress and retry.
    ///
    /// # Safety
    /// The bytes stay valid and unchanged until the request has ended and its region is [`revoke`](Self::revoke)d.
    pub(in crate::world) unsafe fn send(
        &mut self,
        posting: &Posting,
        start: NonNull<u8>,
        bytes: usize,
    ) -> Result<Option<(u32, Region)>, SendFailure> {
        if let Some(failure) = self.over() {
            return Err(SendFailure::Failed(failure));
        }
        let Posting { to, context, tag, mode, leaves: when } = *posting;
        let (way, peer) = (self.way(to)?, PeerId::from(to));
        if self.corked.sends == 0 && way == Way::Far {
            self.now();
        }
        let shared = match &self.near {
            Some(near) if way == Way::Near && bytes > EAGER_SHARED => near.pool.offset(start, bytes),
            _ => None,
        };
        let eager = if shared.is_some() { EAGER_SHARED } else { self.mailbox.limit(peer) as usize };
        let standard = mode != Mode::Synchronous;
        if standard
            && bytes <= SHORT_BYTES.min(eager)
            && let Some(credit) = self.mailbox.machine.send_inline(peer)
        {
            // SAFETY: the caller promises that the bytes are valid and stay unchanged as long as they are lent.
            return unsafe { self.send_short(way, posting, credit, start, bytes) };
        }
        // A copy, so that the sender need not wait, or the user buffer itself.
        let fits = bytes <= eager || way == Way::Own;
        let copies = standard && fits && (when == When::AtOnce || way == Way::Far && bytes <= SHORT_BYTES);
        let copy = if copies { self.room_for(bytes, way == Way::Own) } else { None };
        let (owner, payload, region) = match copy {
            Some((owner, payload)) => (owner, payload, None),
            None => {
                // SAFETY: the caller promises that the bytes stay valid and unchanged until the request has ended and
                // its region is revoked.
                let region = unsafe { self.regions.get_mut().register(start, bytes) };
                let region = region.map_err(|_| SendFailure::Failed(Failure::Refused))?;
                (Owner::Request(self.requests.start()), Extent { region, offset: 0, bytes }, Some(region))
            }
        };
        let at = self.regions.get_mut().address(payload.part(0, 0));
        let at = shared.map_or(at.map_or(0, |at| at.start().addr().get() as u64), |at| at);
        let place = if shared.is_some() && region.is_some() { MessageLocation::Shared(at) } else { MessageLocation::Private(at) };
        // A thread that waits later for a message that leaves now asks for the acknowledgement then.
        let is_urgent = match region {
            Some(_) => when == When::AtOnce || !self.mailbox.machine.can_send(peer),
            None => self.small.are_scarce(bytes),
        };
        let user = self.mailbox.parcels.next();
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
        let (mut parcel, from) = (Parcel::new(peer, payload, owner), payload.part(0, bytes));
        let leaving = if way == Way::Far
            && let Some(left) = self.mailbox.machine.send_eager(&message)
        {
            parcel.uses = 1;
            self.mailbox.parcels.put(parcel);
            // Not by `carry`: passing the header on stalls the processor (store forwarding).
            let head = MessageHeader::for_eager(context, message.tag, left);
            self.post_message(peer, head.as_ref(), Some(from), Ends::Parcel(user));
            bytes
        } else {
            let Some(leaves) = self.show(&message) else {
                self.give_back(owner, payload);
                if let (Owner::Request(request), Some(region)) = (owner, region) {
                    self.revoke(request, region);
                }
                return Err(SendFailure::Failed(self.ended(to).unwrap_or(Failure::PeerFailed(to))));
            };
            parcel.is_over = matches!(leaves, SendAction::Eager { done: true, .. });
            self.mailbox.parcels.put(parcel);
            let (head, leaving) = match &leaves {
                SendAction::Eager { head, .. } => (head, Some(Payload { start, bytes, from, parcel: user })),
                SendAction::Header(head) => (head, None),
            };
            // SAFETY: the caller promises that the bytes are valid and stay unchanged as long as they are lent.
            unsafe { self.carry(way, peer, head, leaving) };
            leaving.map_or(0, |_| bytes)
        };
        if region.is_none()
            && let Some(to) = self.regions.get_mut().address(from)
        {
            // The receiver's wait is over by now. From here on the copy is sent.
            // SAFETY: the cell, or the region, is this parcel's alone, or was until now; the caller's bytes are another object.
            unsafe { to.start().copy_from_nonoverlapping(start, bytes) };
        }
        if parcel.uses == 0 {
            self.end_parcel(user);
        }
        match way {
            Way::Far => self.let_leave(when, leaving),
            Way::Near | Way::Own => self.follow_if_needed(),
        }
        match (owner, region) {
            (Owner::Request(request), Some(region)) => Ok(Some((request, region))),
            _ => Ok(None),
        }
    }

    /// Admits a message to the matching machine. `None`: its receiver has failed, or no record could be allocated.
    fn show(&mut self, message: &Message) -> Option<SendAction> {
        loop {
            match self.mailbox.machine.send(message) {
                Ok(leaves) => return Some(leaves),
                Err(SendError::Full) if self.mailbox.add_sends() => {}
                Err(_) => return None,
            }
        }
    }

    /// Whether waiting for a header credit of this rank is worthwhile.
    #[inline]
    pub(in crate::world) fn is_out_of_headers(&self, to: Rank) -> bool {
        self.mailbox.machine.is_out_of_credit(to.into()) && self.aborted.is_none()
    }

    /// The route to the rank that a message is sent to.
    #[inline]
    fn way(&mut self, to: Rank) -> Result<Way, SendFailure> {
        if to == self.rank {
            return Ok(Way::Own);
        }
        if let Some(neighbour) = self.near.as_mut().and_then(|near| near.of(to.into())) {
            if let Some(failure) = neighbour.ended {
                return Err(SendFailure::Failed(failure));
            }
            return if neighbour.has_room() { Ok(Way::Near) } else { Err(SendFailure::Full) };
        }
        if to.0 >= self.size || self.endpoint.peer_state(to.into()) == PeerState::Unknown {
            return Err(SendFailure::Failed(Failure::UnknownRank(to)));
        }
        match self.ended(to) {
            Some(failure) => Err(SendFailure::Failed(failure)),
            None if self.outbox.is_empty() && self.endpoint.has_room() => Ok(Way::Far),
            None => Err(SendFailure::Full),
        }
    }

    /// Memory for a copy of `bytes` bytes: a bounce buffer, or for a message to this rank itself a region.
    fn room_for(&mut self, bytes: usize, own: bool) -> Option<(Owner, Extent)> {
        if bytes <= EAGER_MOST
            && let Some((cell, span)) = self.small.take_longer(bytes)
        {
            return Some((Owner::Cell(cell), span.into()));
        }
        // A rank that sends to itself will not receive before the send returns.
        let region = own.then(|| self.regions.get_mut().allocate(bytes).ok()).flatten()?;
        Some((Owner::Copy, Extent { region, offset: 0, bytes }))
    }

    /// Sends a short message that may leave at once.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    unsafe fn send_short(
        &mut self,
        way: Way,
        posting: &Posting,
        credit: HeaderCredit,
        start: NonNull<u8>,
        bytes: usize,
    ) -> Result<Option<(u32, Region)>, SendFailure> {
        let (peer, context, tag) = (PeerId::from(posting.to), posting.context, MessageTag(posting.tag.0));
        match way {
            Way::Near => {
                // SAFETY: the caller promises that the bytes are valid and stay unchanged as long as they are lent.
                let told = unsafe { self.put_short(posting, credit, start, bytes) };
                told.map(|()| None).map_err(SendFailure::Failed)
            }
            Way::Own => {
                let outcome = self.mailbox.machine.handle_inline(peer, context, tag, credit, bytes as u32);
                let requests = &mut self.requests;
                let arrival = self.mailbox.follow(peer, outcome, MessageHeader::EAGER + bytes, MessageHeader::EAGER, requests);
                // SAFETY: the caller promises that `bytes` bytes are valid, which the head states.
                unsafe { self.deliver_own(&arrival, start) };
                self.follow_if_needed();
                Ok(None)
            }
            Way::Far => {
                let head = MessageHeader::inline(context, tag, credit);
                let mut lent = None;
                if bytes <= INLINE_MOST {
                    let (mut whole, length) = ([0; MESSAGE_HEADER_ROOM], MessageHeader::EAGER + bytes);
                    whole.iter_mut().zip(head.as_ref()).for_each(|(into, byte)| *into = *byte);
                    let behind = whole.get_mut(MessageHeader::EAGER..length).unwrap_or_default();
                    // SAFETY: the caller says that these bytes are valid; there is room for them, in another object.
                    unsafe { start.copy_to_nonoverlapping(NonNull::from(behind).cast(), bytes) };
                    self.post_message(peer, whole.get(..length).unwrap_or_default(), None, Ends::Nothing);
                } else if let Some((cell, span)) = self.small.take(bytes) {
                    if let Some(address) = self.regions.get_mut().address(span) {
                        // SAFETY: the cell is free: nobody else uses its bytes, and the caller's bytes are another object.
                        unsafe { address.start().copy_from_nonoverlapping(start, bytes) };
                    }
                    self.post_message(peer, head.as_ref(), Some(span), Ends::Cell(cell));
                } else {
                    // SAFETY: the caller promises that the bytes stay valid and unchanged until the request has ended
                    // and its region is revoked.
                    let region = unsafe { self.regions.get_mut().register(start, bytes) };
                    let region = region.map_err(|_| SendFailure::Failed(Failure::Refused))?;
                    let request = self.requests.start();
                    let span = Span { region, offset: 0, bytes: bytes as u32 };
                    self.post_message(peer, head.as_ref(), Some(span), Ends::Request(request));
                    lent = Some((request, region));
                }
                self.let_leave(posting.leaves, bytes);
                Ok(lent)
            }
        }
    }

    /// Sends a header to a rank, followed by a payload if there is one.
    ///
    /// # Safety
    /// The payload's bytes are valid, and nobody changes them meanwhile.
    unsafe fn carry(&mut self, way: Way, to: PeerId, head: &MessageHeader, payload: Option<Payload>) {
        match way {
            Way::Far => match payload {
                Some(Payload { from, parcel, .. }) => {
                    self.use_parcel(parcel);
                    self.post_message(to, head.as_ref(), Some(from), Ends::Parcel(parcel));
                }
                None => self.post_message(to, head.as_ref(), None, Ends::Nothing),
            },
            // SAFETY: the caller promises that the payload's bytes are valid, and that nobody changes them meanwhile.
            Way::Near => unsafe { self.put_message(to, head, payload.map(|of| (of.start, of.from, of.parcel))) },
            Way::Own => {
                let bytes = head.as_ref().len() + payload.map_or(0, |payload| payload.bytes);
                let arrival = self.mailbox.handle(to, head.as_ref(), bytes, 0, &mut self.requests);
                if let Some(Payload { start, .. }) = payload {
                    // SAFETY: the caller promises that the payload's bytes are valid, and that nobody changes them
                    // meanwhile.
                    unsafe { self.deliver_own(&arrival, start) };
                }
            }
        }
    }

    /// Copies the payload of a message to this rank itself.
    ///
    /// # Safety
    /// What is sent has so many bytes behind `start`.
    unsafe fn deliver_own(&mut self, arrival: &Arrival, start: NonNull<u8>) {
        if let Arrival::Place { to, .. } = arrival
            && let Some(to) = self.regions.get_mut().address(*to)
        {
            // SAFETY: the caller promises that as many bytes are valid at `start`; the target is lent to a receive, or
            // kept for one. A sender that breaks the rules may name any bytes: the two may overlap.
            unsafe { to.start().copy_from(start, to.bytes()) };
        }
    }

    /// Sends a header of the matching machine to a rank, and the payload of one of its messages.
    pub(super) fn carry_head(&mut self, to: PeerId, head: &MessageHeader, parcel: Option<u32>) {
        let way = if to == self.rank.into() {
            Way::Own
        } else if self.is_near(to) {
            Way::Near
        } else {
            Way::Far
        };
        let found = parcel.and_then(|parcel| Some((parcel, self.mailbox.parcels.get(parcel)?.payload)));
        let payload = found.and_then(|(parcel, extent)| {
            let from = extent.part(0, extent.bytes);
            let address = self.regions.get_mut().address(from)?;
            Some(Payload { start: address.start(), bytes: address.bytes(), from, parcel })
        });
        // SAFETY: the region lives: lent, or a copy.
        unsafe { self.carry(way, to, head, payload) };
    }

    /// Gives a message to the endpoint, after those that wait for room there. Inlined into its callers: a struct that
    /// is written in parts and read whole stalls the processor (store forwarding).
    #[inline(always)]
    fn post_message(&mut self, to: PeerId, head: &[u8], payload: Option<Span>, ends: Ends) {
        if !self.outbox.is_empty() || !self.try_post(self.latest, to, head, payload, ends) {
            self.post_later(to, head, payload, ends);
        }
    }

    #[cold]
    fn post_later(&mut self, to: PeerId, head: &[u8], payload: Option<Span>, ends: Ends) {
        self.outbox.push_back(Outgoing { payload, ends, ..Outgoing::new(to, head) });
    }

    /// Retries [`try_post`](Self::try_post) with a queued message.
    pub(super) fn try_post_again(&mut self, now: u64, outgoing: &Outgoing) -> bool {
        let Outgoing { to, ends, payload, .. } = *outgoing;
        let head = outgoing.head.get(..outgoing.length).unwrap_or_default();
        self.try_post(now, to, head, payload, ends)
    }

    /// Posts a message to the endpoint. Returns false if there is no room.
    #[inline(always)]
    fn try_post(&mut self, now: u64, to: PeerId, head: &[u8], payload: Option<Span>, ends: Ends) -> bool {
        match self.endpoint.send(now, to, head, payload) {
            Ok(operation) => {
                let what = match ends {
                    Ends::Nothing => Use::Nothing,
                    Ends::Cell(cell) => Use::Cell(cell),
                    Ends::Transfer(message) => Use::Request(of_message(message), to),
                    Ends::Parcel(parcel) => Use::Request(of_parcel(parcel), to),
                    Ends::Request(request) => Use::Request(request, to),
                };
                self.note(operation, what);
                self.has_posted = true;
            }
            Err(Unsent::Full) => return false,
            Err(error) => match ends {
                Ends::Nothing => {}
                Ends::Transfer(message) => self.requests.finish(of_message(message), Err(failure(error, to))),
                Ends::Cell(cell) => self.small.give_back(cell),
                Ends::Parcel(parcel) => self.requests.finish(of_parcel(parcel), Err(failure(error, to))),
                Ends::Request(request) => self.requests.finish(request, Err(failure(error, to))),
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

    /// The payload of a send is being read until [`leave_parcel`](Self::leave_parcel).
    pub(super) fn use_parcel(&mut self, parcel: u32) {
        if let Some(parcel) = self.mailbox.parcels.get(parcel) {
            parcel.uses += 1;
        }
    }

    /// The payload of a send was read, or will not be.
    pub(super) fn leave_parcel(&mut self, parcel: u32, failure: Option<Failure>) {
        if let Some(parcel) = self.mailbox.parcels.get(parcel) {
            parcel.uses = parcel.uses.saturating_sub(1);
            parcel.note(failure);
        }
        self.end_parcel(parcel);
    }

    /// Ends a send whose payload nobody needs any more. Returns whether it ended.
    #[inline]
    pub(super) fn end_parcel(&mut self, parcel: u32) -> bool {
        let Some(Parcel { to, owner, payload, failure, .. }) = self.mailbox.parcels.take_done(parcel) else {
            return false;
        };
        match (owner, failure) {
            (Owner::Request(request), None) => self.requests.succeed(request, super::near::sent(to)),
            (Owner::Request(request), Some(failure)) => self.requests.finish(request, Err(failure)),
            (Owner::Cell(_) | Owner::Copy, _) => self.give_back(owner, payload),
        }
        true
    }

    pub(super) fn give_back(&mut self, owner: Owner, payload: Extent) {
        match owner {
            Owner::Request(_) => {}
            Owner::Cell(cell) => self.give_back_cell(cell),
            // SAFETY: nobody reads it any more: its uses have ended.
            Owner::Copy => _ = unsafe { self.regions.get_mut().free(payload.region) },
        }
    }

    fn give_back_cell(&mut self, cell: Cell) {
        self.small.give_back(cell);
    }

    /// Posts a receive of up to `bytes` bytes at `start`, registered as the returned region.
    ///
    /// # Safety
    /// The bytes stay valid, and nobody else uses them, until the request has ended and its region is
    /// [`revoke`](Self::revoke)d.
    pub(in crate::world) unsafe fn receive(
        &mut self,
        what: Wanted,
        start: NonNull<u8>,
        bytes: usize,
    ) -> Result<(u32, Region), Failure> {
        let source = match what {
            Wanted::Like(Pattern { source, .. }) => source.map(Rank::from),
            Wanted::Matched(..) => None,
        };
        let context = if let Wanted::Like(Pattern { context, .. }) = what { context } else { Context(0) };
        self.expect_receivable(source)?;
        // SAFETY: the caller promises that the memory stays valid, and nobody else's, until the request has ended and
        // its region is revoked.
        let region = unsafe { self.regions.get_mut().register(start, bytes) }.map_err(|_| Failure::Refused)?;
        let request = self.requests.start();
        let into = Extent { region, offset: 0, bytes };
        if !self.mailbox.receive(what, into, request, &mut self.requests, self.regions.get_mut()) {
            let failure = match what {
                Wanted::Matched(_, sender) => self.ended(sender.into()).unwrap_or(Failure::PeerFailed(sender.into())),
                Wanted::Like(_) => Failure::Refused,
            };
            self.requests.finish(request, Err(failure));
        }
        // A message that arrived before its sender ended still counts; another one will not arrive.
        if !source.is_some_and(|source| self.is_present(source))
            && let Some(id) = self.mailbox.receiving(request).and_then(|receiving| receiving.waits())
            && let Some(failure) = self.hopeless(context, source)
            && self.mailbox.machine.cancel(id).is_some()
        {
            self.mailbox.take(request);
            self.requests.finish(request, Err(failure));
        }
        self.follow_if_needed();
        Ok((request, region))
    }

    /// Why nothing is started any more.
    fn over(&self) -> Option<Failure> {
        self.aborted.or(self.is_deaf.then_some(Failure::Finished))
    }

    /// Whether a receive from this source may be posted.
    pub(in crate::world) fn expect_receivable(&self, source: Option<Rank>) -> Result<(), Failure> {
        if let Some(failure) = self.over() {
            return Err(failure);
        }
        source.filter(|rank| rank.0 >= self.size).map_or(Ok(()), |rank| Err(Failure::UnknownRank(rank)))
    }

    /// Why a receive from `source` that has matched nothing can never complete, if so.
    pub(in crate::world) fn hopeless(&mut self, context: Context, source: Option<Rank>) -> Option<Failure> {
        let Some(rank) = source else {
            let Some(untold) = self.untold.iter().position(|rank| self.is_member(context, *rank)) else {
                return self.left_alone(context);
            };
            return Some(Failure::PeerFailed(self.untold.swap_remove(untold)));
        };
        let ended = self.why_silent(rank)?;
        if ended == Failure::PeerFailed(rank) {
            self.untold.retain(|untold| *untold != rank);
        }
        Some(ended)
    }

    /// Whether this rank is reached through the endpoint, and no rank has failed or finished.
    #[inline]
    fn is_present(&self, rank: Rank) -> bool {
        self.near.is_none() && self.left.is_empty() && self.endpoint.peer_state(rank.into()) == PeerState::Alive
    }

    /// Why no more messages arrive from this rank.
    pub(super) fn why_silent(&self, rank: Rank) -> Option<Failure> {
        let left = self.left.contains(&rank.into()).then_some(Failure::Parted(rank));
        self.ended(rank).or(left)
    }

    /// Why all other members are gone, if at least one of them failed. Returns early while the first one is present.
    pub(super) fn left_alone(&self, context: Context) -> Option<Failure> {
        let others = (0..self.size).map(Rank).filter(|rank| *rank != self.rank && self.is_member(context, *rank));
        let mut failed = None;
        for rank in others {
            let ended = self.ended(rank)?;
            failed = failed.or(Some(ended).filter(|ended| !matches!(ended, Failure::Parted(_))));
        }
        failed
    }

    /// Cancels a receive that has matched no message. Returns false if it has matched or ended, or the request is no
    /// receive.
    pub(in crate::world) fn cancel(&mut self, request: u32, region: Region) -> bool {
        let Some(id) = self.mailbox.receiving(request).and_then(|receiving| receiving.waits()) else {
            return false;
        };
        let cancelled = self.mailbox.machine.cancel(id).is_some();
        if cancelled {
            self.mailbox.take(request);
            self.revoke(request, region);
        }
        cancelled
    }

    /// Asks the receiver to acknowledge the send that a thread waits for.
    pub(in crate::world) fn ask_for_word(&mut self, what: Doing) {
        if let Doing::Send { to, .. } = what {
            self.mailbox.machine.request_report(to.into());
            self.follow_if_needed();
        }
    }

    /// As [`ask_for_word`](Self::ask_for_word), on every few tests, as long as the request has not ended.
    pub(in crate::world) fn ask_at_times(&mut self, request: u32, what: Doing) {
        if self.is_time_to_ask() && self.requests.result(request).is_none() {
            self.ask_for_word(what);
        }
    }

    /// Whether this test should ask for an acknowledgement.
    pub(in crate::world) const fn is_time_to_ask(&mut self) -> bool {
        self.rounds = self.rounds.wrapping_add(1);
        self.rounds.is_multiple_of(TIMES)
    }

    /// Memory for a copy of a buffer that is sent while a receive overwrites it, and its address. `None`: the system
    /// has no memory.
    pub(in crate::world) fn take_copy(&mut self, bytes: usize) -> Option<(Kept, NonNull<u8>)> {
        let kept = self.collectives.store.try_take(bytes, self.regions.get_mut())?;
        Some((kept, self.regions.get_mut().address(kept.part(0))?.start()))
    }

    /// Frees the copy, from which nothing is sent any more.
    pub(in crate::world) fn give_back_copy(&mut self, kept: Kept) {
        self.collectives.store.give_back(kept, self.regions.get_mut());
    }

    /// Returns how a request has ended, if it has, and releases its buffer.
    #[inline]
    pub(in crate::world) fn take_ended(&mut self, started: &Started) -> Option<Result<Status, Failure>> {
        let result = self.requests.result(started.request)?;
        self.revoke(started.request, started.region);
        Some(result)
    }

    /// Releases a request and its buffer.
    pub(in crate::world) fn revoke(&mut self, request: u32, region: Region) {
        self.requests.retire(request);
        self.return_lent(region);
    }

    /// Unregisters a user buffer, of a request or a collective.
    pub(super) fn return_lent(&mut self, region: Region) {
        let regions = self.regions.get_mut();
        self.device.settle(regions, region);
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
        Unsent::PeerFinished => Failure::Parted(to.into()),
        Unsent::TooLong => Failure::Refused,
    }
}
