//! Messages that leave, and receives that wait for theirs.

use core::ptr::NonNull;

use unisono_core::device::{Memory as _, PeerId};
use unisono_core::message::admission::{Credit, Head, Leaves, Mode, Outgoing as Message, SendError};
use unisono_core::message::{Context, Pattern, Tag as MessageTag};
use unisono_core::operation::SendError as Unsent;
use unisono_core::peer::Life;
use unisono_core::span::{Region, Span};
use unisono_core::wire::MESSAGE_HEAD;
use unisono_shmem::am_header::{Place, SHORT};

use super::{INLINE_MOST, Process, Use};
use crate::rank::Rank;
use crate::region::Extent;
use crate::world::collective::store::Kept;
use crate::world::collective::table::{EAGER_MOST, Ends, Outgoing};
use crate::world::mailbox::{Arrival, Wanted};
use crate::world::near::EAGER_SHARED;
use crate::world::parcel::{Owner, Parcel};
use crate::world::progress::{Leaves as When, Started};
use crate::world::request::{Failure, Status, Tag, of_message, of_parcel};
use crate::world::small::Cell;
use crate::world::watchdog::Doing;

/// Tests of a request between two that ask its receiver.
const TIMES: u32 = 64;

/// A message to be sent.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct Posting {
    pub(in crate::world) context: Context,
    pub(in crate::world) to: Rank,
    pub(in crate::world) tag: Tag,
    pub(in crate::world) mode: Mode,
    /// At once: its sender waits, and a copy may spare it that.
    pub(in crate::world) leaves: When,
}

/// How a rank is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// It is this one.
    Own,
    Near,
    Far,
}

/// Bytes of a payload, where they are and where they lie.
#[derive(Clone, Copy, Debug)]
struct Payload {
    start: NonNull<u8>,
    bytes: usize,
    from: Span,
    parcel: u32,
}

impl Process {
    /// Sends `bytes` bytes at `start`. `Ok(None)`: they were copied, the buffer is free. Otherwise they are lent until the
    /// request has ended, and registered as the region that comes with it. [`SendFailure::Full`]: progress first.
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
            && bytes <= SHORT.min(eager)
            && let Some(credit) = self.mailbox.machine.send_short(peer)
        {
            // SAFETY: as the caller says.
            return unsafe { self.send_short(way, posting, credit, start, bytes) };
        }
        // A copy, so that the sender need not wait, or the bytes themselves.
        let fits = bytes <= eager || way == Way::Own;
        let copies = standard && fits && (when == When::AtOnce || way == Way::Far && bytes <= SHORT);
        let copy = if copies { self.room_for(bytes, way == Way::Own) } else { None };
        let (owner, payload, region) = match copy {
            Some((owner, payload)) => (owner, payload, None),
            None => {
                // SAFETY: as the caller says, until `revoke`.
                let region = unsafe { self.regions.get_mut().register(start, bytes) };
                let region = region.map_err(|_| SendFailure::Failed(Failure::Refused))?;
                (Owner::Request(self.requests.start()), Extent { region, offset: 0, bytes }, Some(region))
            }
        };
        let at = self.regions.get_mut().address(payload.part(0, 0));
        let at = shared.map_or(at.map_or(0, |at| at.start().addr().get() as u64), |at| at);
        let place = if shared.is_some() && region.is_some() { Place::Shared(at) } else { Place::Private(at) };
        // Who waits later for what leaves now, asks then.
        let is_urgent = match region {
            Some(_) => when == When::AtOnce || !self.mailbox.machine.may_leave(peer),
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
            lent: is_urgent,
            user,
        };
        let (mut parcel, from) = (Parcel::new(peer, payload, owner), payload.part(0, bytes));
        let leaving = if way == Way::Far
            && let Some(left) = self.mailbox.machine.send_behind(&message)
        {
            parcel.uses = 1;
            self.mailbox.parcels.put(parcel);
            // Not by `carry`: a head that is handed on stalls the processor.
            let head = Head::behind(context, message.tag, left);
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
            parcel.is_over = matches!(leaves, Leaves::Eager { done: true, .. });
            self.mailbox.parcels.put(parcel);
            let (head, leaving) = match &leaves {
                Leaves::Eager { head, .. } => (head, Some(Payload { start, bytes, from, parcel: user })),
                Leaves::Head(head) => (head, None),
            };
            // SAFETY: as the caller says.
            unsafe { self.carry(way, peer, head, leaving) };
            leaving.map_or(0, |_| bytes)
        };
        if region.is_none()
            && let Some(to) = self.regions.get_mut().address(from)
        {
            // What the receiver waits for has left before this. Then it is the copy that is sent.
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

    /// How a message leaves. `None`: its receiver is gone, or there is no memory for a record.
    fn show(&mut self, message: &Message) -> Option<Leaves> {
        loop {
            match self.mailbox.machine.send(message) {
                Ok(leaves) => return Some(leaves),
                Err(SendError::Full) if self.mailbox.add_sends() => {}
                Err(_) => return None,
            }
        }
    }

    /// Whether it is worth waiting until a message to this rank may leave.
    #[inline]
    pub(in crate::world) fn is_out_of_headers(&self, to: Rank) -> bool {
        self.mailbox.machine.is_out_of_headers(to.into()) && self.aborted.is_none()
    }

    /// How a rank that is sent to is reached.
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
        if to.0 >= self.size || self.endpoint.life(to.into()) == Life::Unmet {
            return Err(SendFailure::Failed(Failure::UnknownRank(to)));
        }
        match self.ended(to) {
            Some(failure) => Err(SendFailure::Failed(failure)),
            None if self.outbox.is_empty() && self.endpoint.has_room() => Ok(Way::Far),
            None => Err(SendFailure::Full),
        }
    }

    /// Memory for a copy of so many bytes.
    fn room_for(&mut self, bytes: usize, own: bool) -> Option<(Owner, Extent)> {
        if bytes <= EAGER_MOST
            && let Some((cell, span)) = self.small.take_longer(bytes)
        {
            return Some((Owner::Cell(cell), span.into()));
        }
        // Who sends to itself will not receive before it has sent.
        let region = own.then(|| self.regions.get_mut().allocate(bytes).ok()).flatten()?;
        Some((Owner::Copy, Extent { region, offset: 0, bytes }))
    }

    /// A short message that may leave.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    unsafe fn send_short(
        &mut self,
        way: Way,
        posting: &Posting,
        credit: Credit,
        start: NonNull<u8>,
        bytes: usize,
    ) -> Result<Option<(u32, Region)>, SendFailure> {
        let (peer, context, tag) = (PeerId::from(posting.to), posting.context, MessageTag(posting.tag.0));
        match way {
            Way::Near => {
                // SAFETY: as the caller says.
                let told = unsafe { self.put_short(posting, credit, start, bytes) };
                told.map(|()| None).map_err(SendFailure::Failed)
            }
            Way::Own => {
                let outcome = self.mailbox.machine.handle_short(peer, context, tag, credit, bytes as u32);
                let requests = &mut self.requests;
                let arrival = self.mailbox.follow(peer, outcome, Head::EAGER + bytes, Head::EAGER, requests);
                // SAFETY: as the caller says.
                unsafe { self.deliver_own(&arrival, start) };
                self.follow_if_needed();
                Ok(None)
            }
            Way::Far => {
                let head = Head::short(context, tag, credit);
                let mut lent = None;
                if bytes <= INLINE_MOST {
                    let (mut whole, length) = ([0; MESSAGE_HEAD], Head::EAGER + bytes);
                    whole.iter_mut().zip(head.as_ref()).for_each(|(into, byte)| *into = *byte);
                    let behind = whole.get_mut(Head::EAGER..length).unwrap_or_default();
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
                    // SAFETY: as the caller says, until `revoke`.
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

    /// Brings a head to a rank, and a payload behind it.
    ///
    /// # Safety
    /// The payload's bytes are valid, and nobody changes them meanwhile.
    unsafe fn carry(&mut self, way: Way, to: PeerId, head: &Head, payload: Option<Payload>) {
        match way {
            Way::Far => match payload {
                Some(Payload { from, parcel, .. }) => {
                    self.use_parcel(parcel);
                    self.post_message(to, head.as_ref(), Some(from), Ends::Parcel(parcel));
                }
                None => self.post_message(to, head.as_ref(), None, Ends::Nothing),
            },
            // SAFETY: as the caller says.
            Way::Near => unsafe { self.put_message(to, head, payload.map(|of| (of.start, of.from, of.parcel))) },
            Way::Own => {
                let bytes = head.as_ref().len() + payload.map_or(0, |payload| payload.bytes);
                let arrival = self.mailbox.handle(to, head.as_ref(), bytes, 0, &mut self.requests);
                if let Some(Payload { start, .. }) = payload {
                    // SAFETY: as the caller says.
                    unsafe { self.deliver_own(&arrival, start) };
                }
            }
        }
    }

    /// A payload of this process's to itself.
    ///
    /// # Safety
    /// What is sent has so many bytes behind `start`.
    unsafe fn deliver_own(&mut self, arrival: &Arrival, start: NonNull<u8>) {
        if let Arrival::Place { to, .. } = arrival
            && let Some(to) = self.regions.get_mut().address(*to)
        {
            // SAFETY: as the caller says; the target is lent to a receive, or kept for one. A sender that breaks the rules may
            // name any bytes: the two may overlap.
            unsafe { to.start().copy_from(start, to.bytes()) };
        }
    }

    /// Brings the machine's head to a rank, and the payload of one of its messages.
    pub(super) fn carry_head(&mut self, to: PeerId, head: &Head, parcel: Option<u32>) {
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

    /// Hands a message to the endpoint, behind those that wait for room there. In one piece with who makes the message: what is
    /// written in parts and read whole stalls the processor.
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

    /// As [`try_post`](Self::try_post).
    pub(super) fn try_post_again(&mut self, now: u64, outgoing: &Outgoing) -> bool {
        let Outgoing { to, ends, payload, .. } = *outgoing;
        let head = outgoing.head.get(..outgoing.length).unwrap_or_default();
        self.try_post(now, to, head, payload, ends)
    }

    /// False: there is no room.
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

    /// Hands over what waited for room. Returns whether anything left.
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

    /// Something reads a parcel until it says that it has.
    pub(super) fn use_parcel(&mut self, parcel: u32) {
        if let Some(parcel) = self.mailbox.parcels.get(parcel) {
            parcel.uses += 1;
        }
    }

    /// A parcel was read, or will not be.
    pub(super) fn leave_parcel(&mut self, parcel: u32, failure: Option<Failure>) {
        if let Some(parcel) = self.mailbox.parcels.get(parcel) {
            parcel.uses = parcel.uses.saturating_sub(1);
            parcel.note(failure);
        }
        self.end_parcel(parcel);
    }

    /// A parcel that nobody needs any more is its owner's. Returns whether it is one.
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

    /// Receives into `bytes` bytes at `start`, registered as the region that comes with the request.
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
        // SAFETY: as the caller says, until `revoke`.
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
        // What came before its sender's end still counts; what has not will not come.
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

    /// Why nothing is begun any more.
    fn over(&self) -> Option<Failure> {
        self.aborted.or(self.is_deaf.then_some(Failure::Finished))
    }

    /// Whether something may be received from there.
    pub(in crate::world) fn expect_receivable(&self, source: Option<Rank>) -> Result<(), Failure> {
        if let Some(failure) = self.over() {
            return Err(failure);
        }
        source.filter(|rank| rank.0 >= self.size).map_or(Ok(()), |rank| Err(Failure::UnknownRank(rank)))
    }

    /// Why a receive from `source` that matches nothing yet need not wait.
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

    /// Whether this rank is reached through the endpoint, and nobody has ended or left.
    #[inline]
    fn is_present(&self, rank: Rank) -> bool {
        self.near.is_none() && self.left.is_empty() && self.endpoint.life(rank.into()) == Life::Alive
    }

    /// Why no message comes from this rank any more.
    pub(super) fn why_silent(&self, rank: Rank) -> Option<Failure> {
        let left = self.left.contains(&rank.into()).then_some(Failure::Parted(rank));
        self.ended(rank).or(left)
    }

    /// All other members are gone, and at least one did not leave: this failed. As long as the first one is there, that is seen at once.
    pub(super) fn left_alone(&self, context: Context) -> Option<Failure> {
        let others = (0..self.size).map(Rank).filter(|rank| *rank != self.rank && self.is_member(context, *rank));
        let mut failed = None;
        for rank in others {
            let ended = self.ended(rank)?;
            failed = failed.or(Some(ended).filter(|ended| !matches!(ended, Failure::Parted(_))));
        }
        failed
    }

    /// Takes a receive back that has met no message. False: it has, or it has ended, or it is none.
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

    /// Whoever waits for a send waits for its receiver's word that it is kept.
    pub(in crate::world) fn ask_for_word(&mut self, what: Doing) {
        if let Doing::Send { to, .. } = what {
            self.mailbox.machine.flush(to.into());
            self.follow_if_needed();
        }
    }

    /// As that, once in a while, as long as it has not ended.
    pub(in crate::world) fn ask_at_times(&mut self, request: u32, what: Doing) {
        if self.is_time_to_ask() && self.requests.result(request).is_none() {
            self.ask_for_word(what);
        }
    }

    /// Whether a test is one that asks.
    pub(in crate::world) const fn is_time_to_ask(&mut self) -> bool {
        self.rounds = self.rounds.wrapping_add(1);
        self.rounds.is_multiple_of(TIMES)
    }

    /// Memory for a copy of so many bytes that is sent while others come in their place; where it lies. `None`: the system has none.
    pub(in crate::world) fn take_copy(&mut self, bytes: usize) -> Option<(Kept, NonNull<u8>)> {
        let kept = self.collectives.store.try_take(bytes, self.regions.get_mut())?;
        Some((kept, self.regions.get_mut().address(kept.part(0))?.start()))
    }

    /// Nothing is sent from it any more.
    pub(in crate::world) fn give_back_copy(&mut self, kept: Kept) {
        self.collectives.store.give_back(kept, self.regions.get_mut());
    }

    /// How a request has ended, if it has: then its memory is its owner's again.
    #[inline]
    pub(in crate::world) fn take_ended(&mut self, started: &Started) -> Option<Result<Status, Failure>> {
        let result = self.requests.result(started.request)?;
        self.revoke(started.request, started.region);
        Some(result)
    }

    /// A request's memory is its owner's again.
    pub(in crate::world) fn revoke(&mut self, request: u32, region: Region) {
        self.requests.retire(request);
        self.return_lent(region);
    }

    /// As that, of memory that was lent to a collective, too.
    pub(super) fn return_lent(&mut self, region: Region) {
        let regions = self.regions.get_mut();
        self.device.settle(regions, region);
        regions.revoke(region);
    }
}

/// Why nothing was sent.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) enum SendFailure {
    /// Progress makes room.
    Full,
    Failed(Failure),
}

pub(super) fn failure(error: Unsent, to: PeerId) -> Failure {
    match error {
        Unsent::UnknownPeer => Failure::UnknownRank(to.into()),
        Unsent::PeerFailed | Unsent::Full => Failure::PeerFailed(to.into()),
        Unsent::Parted => Failure::Parted(to.into()),
        Unsent::TooLong => Failure::Refused,
    }
}
