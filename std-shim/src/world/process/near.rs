//! Point-to-point and collective messages through the rings of the node's shared memory.

use core::cell::RefCell;
use core::ptr::NonNull;
use std::time::Instant;

use unisono_core::device::Memory;
use unisono_core::endpoint::Verdict;
use unisono_core::endpoint::peer::PeerState;
use unisono_core::ids::PeerId;
use unisono_core::message::collective_transport::StepHeader;
use unisono_core::message::collective_transport::header::parse_key;
use unisono_core::message::point_to_point::{HeaderCredit, MessageHeader as MessageHead, Mode};
use unisono_core::message::{Context, Tag as MessageTag};
use unisono_core::span::Span;
use unisono_shmem::am_header::{
    ABORT, BYE, STEP_FIN, EAGER, EAGER_IN_CONTEXT, FRAGMENT, STEP_CTS, HEADER, EAGER_WITH_HEADER, HELLO, KIND, MessageLocation, SHORT_BYTES, STEP, STEP_RTS,
    NOTIFICATION, split_immediate, read_array,
};
use unisono_shmem::ring::{Entry, INLINE, PutError};
use unisono_shmem::segment::{SharedBytes, Word};

use super::{BUDGET, Posting, Process, Sending, put};
use crate::node::Standing;
use crate::world::collective::table::Collectives;
use crate::world::mailbox::{Arrival, Errand, Fetched, Mailbox};
use crate::world::near::{Announced, Near, Neighbour, copy_out};
use crate::world::parcel::{Owner, Parcel};
use crate::world::progress::Leaves;
use crate::world::request::{Failure, Requests, Status, Tag, of_parcel};
use unisono_bootstrap::Rank;
use unisono_memory::region::{Extent, Regions};

/// Polls of one ring before a wait checks anything else.
const POLLS: u32 = 500;
/// Bytes of a message that are copied before other work has its turn.
const PULLED: usize = 1 << 20;
/// Least bytes of a message that may be read out of the sender's memory (CMA).
const READ_LEAST: usize = 1 << 15;
/// How long a rank whose ring words were overwritten looks for a protocol violation that identifies the culprit, which
/// may still be writing. Nanoseconds.
const UNEXPLAINED: u64 = 100_000_000;

/// A rendezvous message that arrives in fragments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placing {
    pub(super) from: PeerId,
    into: Extent,
    placed: usize,
    pub(super) request: u32,
}

/// A ring entry that no correct peer writes.
struct Nonsense;

impl Process {
    /// Receives a short message that is already in the source's ring, or arrives within a short spin, without a
    /// request. Returns its length, which may exceed the buffer's. `None`: no such message, or the general path must
    /// decide.
    #[inline(always)]
    pub(in crate::world) fn receive_at_once(
        &mut self,
        into: &mut [u8],
        context: Context,
        source: Rank,
        tag: Tag,
    ) -> Option<usize> {
        let (near, peer) = (self.near.as_mut()?, PeerId::from(source));
        let sender = self.mailbox.machine.inline_receive(peer)?;
        if self.aborted.is_some() || self.has_revoked {
            return None;
        }
        let polls = if near.spins { POLLS } else { 1 };
        let neighbour = near.of(peer)?;
        let ahead = neighbour.ahead()?;
        let mut left = polls;
        while !ahead.has_arrived() {
            left -= 1;
            if left == 0 {
                return None;
            }
            core::hint::spin_loop();
        }
        let entry = neighbour.look_at(&ahead).ok()??;
        let [note, name] = entry.header;
        if note & KIND != EAGER || context != Context(0) {
            return self.receive_named(into, context, source, tag);
        }
        let bytes = entry.payload.bytes();
        if name != tag.0 || bytes > SHORT_BYTES {
            return None;
        }
        // SAFETY: `into` is borrowed exclusively, so that its bytes are writable, and no bytes of a ring.
        unsafe { copy_out(entry.payload, NonNull::from(&mut *into).cast(), into.len()) };
        let credit = neighbour.settled.credit(note);
        neighbour.take();
        if sender.take(credit) { Some(bytes) } else { self.take_at_once(peer, credit, bytes) }
    }

    /// Handles an inline message whose credits may let something leave or end.
    #[inline(never)]
    fn take_at_once(&mut self, peer: PeerId, credit: HeaderCredit, bytes: usize) -> Option<usize> {
        let told = self.mailbox.machine.take_inline(peer, credit);
        self.received_at_once(peer, bytes, told)
    }

    /// As [`receive_at_once`](Self::receive_at_once), for a message that carries its context or a full header.
    #[inline(never)]
    fn receive_named(&mut self, into: &mut [u8], context: Context, source: Rank, tag: Tag) -> Option<usize> {
        let (peer, machine) = (PeerId::from(source), &mut self.mailbox.machine);
        let neighbour = self.near.as_mut()?.of(peer)?;
        let entry = neighbour.look().ok()??;
        let [note, name] = entry.header;
        let (bytes, told) = if note & KIND == EAGER_WITH_HEADER {
            let (payload, head) = split_immediate::<{ MessageHead::EAGER }>(&entry)?;
            if MessageHead::parse_eager(&head) != Some((context, MessageTag(tag.0))) {
                return None;
            }
            neighbour.settled.receive(name, &head)?;
            // SAFETY: `into` is borrowed exclusively, so that its bytes are writable, and no bytes of a ring.
            unsafe { copy_out(payload, NonNull::from(&mut *into).cast(), into.len()) };
            neighbour.take();
            (payload.bytes(), machine.take_eager(peer, &head, (head.len() + payload.bytes()) as u32))
        } else {
            let payload = of_context(&entry, context)?;
            if note & KIND != EAGER_IN_CONTEXT || name != tag.0 || payload.bytes() > SHORT_BYTES {
                return None;
            }
            // SAFETY: `into` is borrowed exclusively, so that its bytes are writable, and no bytes of a ring.
            unsafe { copy_out(payload, NonNull::from(&mut *into).cast(), into.len()) };
            let credit = neighbour.settled.credit(note);
            neighbour.take();
            (payload.bytes(), machine.take_inline(peer, credit))
        };
        self.received_at_once(peer, bytes, told)
    }

    /// Finishes the receive of a message of `bytes` bytes, after the matching machine's answer: `None` for a protocol
    /// violation, else whether deferred work waits.
    #[inline(always)]
    fn received_at_once(&mut self, peer: PeerId, bytes: usize, told: Option<bool>) -> Option<usize> {
        match told {
            None => {
                self.disown(peer);
                return None;
            }
            Some(true) => _ = self.follow_messages(),
            // Nothing urgent ends by it.
            Some(false) => {}
        }
        Some(bytes)
    }

    /// Sends a short message through the ring to a rank of this node. Returns false if the general path must send it.
    #[inline(always)]
    pub(in crate::world) fn send_at_once(&mut self, bytes: &[u8], context: Context, to: Rank, tag: Tag) -> bool {
        let Some(near) = &mut self.near else { return false };
        let Some(neighbour) = near.of(to.into()) else { return false };
        if bytes.len() > INLINE
            || context != Context(0)
            || self.aborted.is_some()
            || self.has_revoked
            || neighbour.ended.is_some()
        {
            return false;
        }
        let Some((room, settled)) = neighbour.room() else { return false };
        let Some(credit) = self.mailbox.machine.send_inline(to.into()) else { return false };
        let Some(note) = settled.eager_header(EAGER, credit, tag.0) else {
            return self.put_at_once(bytes, credit, to, tag);
        };
        let put = room.put(note, bytes).is_ok();
        neighbour.woke();
        put
    }

    /// Puts a short message whose acknowledgement state needs a full header.
    #[inline(never)]
    fn put_at_once(&mut self, bytes: &[u8], credit: HeaderCredit, to: Rank, tag: Tag) -> bool {
        let posting = Posting { context: Context(0), to, tag, mode: Mode::Standard, leaves: Leaves::AtOnce };
        // SAFETY: the bytes are borrowed for as long as this runs.
        unsafe { self.put_short(&posting, credit, NonNull::from(bytes).cast(), bytes.len()) }.is_ok()
    }

    /// Puts a short message with this credit.
    ///
    /// # Safety
    /// The bytes are valid, and nobody changes them meanwhile.
    pub(super) unsafe fn put_short(
        &mut self,
        posting: &Posting,
        credit: HeaderCredit,
        start: NonNull<u8>,
        bytes: usize,
    ) -> Result<(), Failure> {
        let Posting { context, to, tag, .. } = *posting;
        let peer = PeerId::from(to);
        let Some(neighbour) = self.near.as_mut().and_then(|near| near.of(peer)) else { return Ok(()) };
        let what = if context == Context(0) { EAGER } else { EAGER_IN_CONTEXT };
        let length = bytes as u32;
        let put = match neighbour.settled.eager_header(what, credit, tag.0) {
            // SAFETY: the caller promises that the bytes are valid, and that nobody changes them meanwhile.
            Some(note) if what == EAGER_IN_CONTEXT => unsafe {
                neighbour.put_with(note, &context.0.to_le_bytes(), start, length)
            },
            Some(note) if bytes <= INLINE => {
                // SAFETY: the caller promises that the bytes are valid, and that nobody changes them meanwhile.
                neighbour.put(note, unsafe { core::slice::from_raw_parts(start.as_ptr(), bytes) })
            }
            // SAFETY: the caller promises that the bytes are valid, and that nobody changes them meanwhile.
            Some(note) => unsafe { neighbour.put_piece(note, start, length) },
            // SAFETY: the caller promises that the bytes are valid, and that nobody changes them meanwhile.
            None => unsafe {
                neighbour.put_eager(&MessageHead::inline(context, MessageTag(tag.0), credit), start, length)
            },
        };
        match put {
            Ok(()) => Ok(()),
            Err(PutError::Full | PutError::TooLong) => {
                // SAFETY: the caller promises that the bytes are valid, and that nobody changes them meanwhile.
                unsafe { self.put_later(posting, credit, start, bytes) };
                Ok(())
            }
            Err(PutError::Corrupted) => Err(self.disown(peer)),
        }
    }

    /// Copies a short message and puts the copy once the ring has room.
    ///
    /// # Safety
    /// As for [`put_short`](Self::put_short).
    unsafe fn put_later(&mut self, posting: &Posting, credit: HeaderCredit, start: NonNull<u8>, bytes: usize) {
        let peer = PeerId::from(posting.to);
        let cell = self.small.take_longer(bytes).map(|(cell, span)| (Owner::Cell(cell), Extent::from(span)));
        let own = || {
            let region = self.regions.get_mut().allocate(bytes).ok()?;
            Some((Owner::Copy, Extent { region, offset: 0, bytes }))
        };
        let Some((owner, payload)) = cell.or_else(own) else { return };
        let from = payload.part(0, bytes);
        if let Some(to) = self.regions.get_mut().address(from) {
            // SAFETY: the caller promises that the payload is valid, and that nobody changes it meanwhile.
            unsafe { to.start().copy_from_nonoverlapping(start, bytes) };
        }
        let parcel =
            Parcel { to: peer, payload, owner, uses: 1, is_over: true, failure: None, granted: 0, is_asked: true };
        let parcel = self.mailbox.parcels.put(parcel);
        if let Some(neighbour) = self.near.as_mut().and_then(|near| near.of(peer)) {
            let head = MessageHead::inline(posting.context, MessageTag(posting.tag.0), credit);
            neighbour.queue(head, from, of_parcel(parcel));
        }
    }

    /// Puts a header of the matching machine, and the payload of a send.
    ///
    /// # Safety
    /// The payload is valid, and nobody changes it meanwhile.
    pub(super) unsafe fn put_message(
        &mut self,
        to: PeerId,
        head: &MessageHead,
        payload: Option<(NonNull<u8>, Span, u32)>,
    ) {
        let Some(neighbour) = self.near.as_mut().and_then(|near| near.living(to)) else { return };
        let Some((start, from, parcel)) = payload else {
            if neighbour.tell_head(head).is_err() {
                self.disown(to);
            }
            return;
        };
        if neighbour.is_clear() {
            // SAFETY: the caller promises that the payload is valid, and that nobody changes it meanwhile.
            match unsafe { neighbour.put_eager(head, start, from.bytes) } {
                Ok(()) => return,
                Err(PutError::Full | PutError::TooLong) => {}
                Err(PutError::Corrupted) => {
                    self.disown(to);
                    return;
                }
            }
        }
        neighbour.queue(*head, from, of_parcel(parcel));
        self.use_parcel(parcel);
    }

    /// Allocates an index for a message that arrives in fragments.
    pub(super) fn open_placing(&mut self, from: PeerId, into: Extent, request: u32) -> u32 {
        let free = self.placings.iter().position(Option::is_none).unwrap_or(self.placings.len()) as u32;
        put(&mut self.placings, free, Placing { from, into, placed: 0, request });
        free
    }

    /// Makes one round of progress over all rings. Returns whether anything moved.
    pub(in crate::world) fn progress_near(&mut self) -> bool {
        let places = self.near.as_ref().map_or(0, |near| near.neighbours.len());
        let mut moved = false;
        for place in 0..places {
            moved |= self.progress_with(place);
        }
        if self.mailbox.has_news() || !self.requests.read.is_empty() {
            moved |= self.follow_messages();
        }
        moved | self.follow_collectives()
    }

    /// Makes one round of progress, mostly over what leads to this rank.
    pub(in crate::world) fn progress_towards(&mut self, to: Rank) {
        self.rounds = self.rounds.wrapping_add(1);
        // Rings that are never empty must not starve the other traffic.
        if !self.is_near(to.into()) || self.rounds.is_multiple_of(BUDGET) || !self.progress_near() {
            self.progress(false);
        }
    }

    /// Consumes what one peer put into its ring, and puts what waits for room in the ring to it.
    fn progress_with(&mut self, place: usize) -> bool {
        let Self { near, mailbox, requests, regions, sendings, placings, collectives, .. } = self;
        let Some(near) = near else { return false };
        let Some(mut neighbour) = near.neighbours.get_mut(place).and_then(Option::as_mut) else { return false };
        if neighbour.ended.is_some() {
            return false;
        }
        let (peer, mut moved, mut sound) = (neighbour.peer, false, true);
        let mut left = BUDGET;
        while sound && left > 0 {
            left -= 1;
            let entry = match neighbour.look() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                Err(_) => {
                    sound = false;
                    break;
                }
            };
            let mut desk = Desk { mailbox, requests, regions, sendings, placings, collectives };
            match entry.header[0] {
                HELLO => {
                    let local = neighbour.local;
                    let source = near.source(local, entry.payload);
                    let Some(one) = near.neighbours.get_mut(place).and_then(Option::as_mut) else { return moved };
                    neighbour = one;
                    neighbour.source = source;
                }
                BYE | ABORT => {
                    neighbour.take();
                    let parted = entry.header[0] == BYE;
                    let failure = if parted { Failure::Parted(peer.into()) } else { Failure::PeerFailed(peer.into()) };
                    self.lose(peer, failure, !parted);
                    return true;
                }
                _ => sound = desk.handle(neighbour, &entry).is_ok(),
            }
            neighbour.take();
            moved = true;
        }
        if sound && !neighbour.is_flushed() {
            match neighbour.flush(regions.get_mut(), |request| requests.finish(request, Ok(sent(peer)))) {
                Ok(flushed) => moved |= flushed,
                Err(_) => sound = false,
            }
        }
        if !sound {
            self.disown(peer);
        }
        moved
    }

    /// A peer violated the protocol: its ring is no longer read, and it counts as failed.
    pub(super) fn disown(&mut self, peer: PeerId) -> Failure {
        let failure = Failure::Corrupted(peer.into());
        tracing::error!(rank = peer.0, "protocol violation in shared memory: the rank counts as failed");
        self.lose(peer, failure, true);
        failure
    }

    /// The system or the launcher reports that a shared-memory peer is gone. Handles its earlier messages. Returns false
    /// if it is no shared-memory peer.
    pub(super) fn bury(&mut self, peer: PeerId, failure: Failure) -> bool {
        let Some(near) = &mut self.near else { return false };
        let Some(neighbour) = near.of(peer) else { return false };
        if neighbour.ended.is_some() {
            return true;
        }
        let place = neighbour.local as usize;
        // At most what a ring holds; no more can arrive.
        let mut rounds = 0..unisono_shmem::layout::PAGE;
        while rounds.next().is_some() && self.has_news_from(place) && self.progress_with(place) {}
        self.lose(peer, failure, matches!(failure, Failure::PeerFailed(_)));
        true
    }

    fn has_news_from(&self, place: usize) -> bool {
        let neighbour = self.near.as_ref().and_then(|near| near.neighbours.get(place)?.as_ref());
        neighbour.is_some_and(|neighbour| neighbour.ended.is_none() && neighbour.has_news())
    }

    /// Checks whether the shared-memory peer that is waited for lives, and one other peer; and whether this rank's own
    /// words in the segment are intact. If they are not, and no peer is identified as the culprit in time, this rank
    /// gives up the shared memory.
    pub(in crate::world) fn look_near(&mut self, waits_for: Option<Rank>) {
        let Some(near) = &mut self.near else { return };
        for peer in near.unbelievable() {
            self.disown(peer);
        }
        let overwritten = self.is_overwritten() && {
            // The culprit may have violated the protocol in its own ring since the rings were polled; then it alone is
            // lost.
            self.progress_near();
            self.is_overwritten()
        };
        let now = self.now();
        let Some(near) = &mut self.near else { return };
        near.overwritten = overwritten.then(|| near.overwritten.unwrap_or(now));
        if near.overwritten.is_some_and(|since| now.saturating_sub(since) >= UNEXPLAINED) {
            near.node.give_up();
            let all: Vec<PeerId> = near.neighbours.iter().flatten().map(|neighbour| neighbour.peer).collect();
            for peer in all {
                self.disown(peer);
            }
            return;
        }
        let asked = [waits_for.map(PeerId::from), near.next_asked()];
        for peer in asked.into_iter().flatten() {
            let Some(near) = &mut self.near else { return };
            let Some(local) = near.of(peer).filter(|one| one.ended.is_none()).map(|one| one.local) else { continue };
            match near.node.standing(local) {
                Standing::Alive => {}
                Standing::Left => {
                    self.bury(peer, Failure::Parted(peer.into()));
                }
                Standing::Dead => {
                    tracing::info!(rank = peer.0, "died, as the operating system reports");
                    self.bury(peer, Failure::PeerFailed(peer.into()));
                }
            }
        }
    }

    fn is_overwritten(&mut self) -> bool {
        self.near.as_mut().is_some_and(|near| !near.is_intact())
    }

    /// The word to wait on for the next event from this rank.
    pub(in crate::world) fn awaited(&self, from: Rank) -> Option<(&'static Word, u32)> {
        Some(self.near.as_ref()?.at(from.into())?.awaited())
    }

    /// The words to wait on for the next event from any peer.
    pub(in crate::world) fn all_awaited(&self, words: &mut Vec<(&'static Word, u32)>) {
        let neighbours = self.near.iter().flat_map(|near| near.neighbours.iter()).flatten();
        words.extend(neighbours.filter(|one| one.ended.is_none()).map(Neighbour::awaited));
    }

    /// Whether all other ranks are reached through shared memory.
    #[inline]
    pub(in crate::world) fn is_whole(&self) -> bool {
        self.near.as_ref().is_some_and(|near| near.met == self.size - 1)
    }

    /// Why nothing arrives from this rank any more.
    pub(super) fn ended(&self, rank: Rank) -> Option<Failure> {
        if let Some(neighbour) = self.near.as_ref().and_then(|near| near.at(rank.into())) {
            return neighbour.ended;
        }
        match self.endpoint.peer_state(rank.into()) {
            PeerState::Failed => Some(Failure::PeerFailed(rank)),
            PeerState::Finished => Some(Failure::Parted(rank)),
            PeerState::Unknown | PeerState::Alive => None,
        }
    }

    /// Whether the other ranks know that this process has ended its part.
    pub(in crate::world) fn is_gone(&mut self) -> bool {
        self.progress_near();
        (self.is_whole() || self.endpoint.is_closed()) && self.near.as_ref().is_none_or(Near::is_flushed)
    }

    /// Whether this rank is reached through shared memory.
    pub(in crate::world) fn is_near(&self, peer: PeerId) -> bool {
        self.near.as_ref().is_some_and(|near| near.at(peer).is_some())
    }

    /// Announces to all shared-memory peers that this process ends its part.
    pub(in crate::world) fn part(&mut self, gives_up: bool) {
        for neighbour in self.near.iter_mut().flat_map(|near| near.neighbours.iter_mut()).flatten() {
            if neighbour.ended.is_none() {
                // A peer whose ring is corrupted need not be notified.
                let _ = neighbour.tell([if gives_up { ABORT } else { BYE }, 0], &[]);
            }
        }
    }

    /// Copies an announced message, one chunk at a time.
    pub(super) fn fetch(&mut self, errand: Errand) {
        let Errand::Fetch { from, place, into, fetched, ends } = errand else { return };
        let Some(near) = &mut self.near else { return };
        let (segment, layout, spins) = (near.segment(), near.node.layout(), near.spins);
        let Some(neighbour) = near.of(from) else { return };
        let part = into.part(fetched, PULLED);
        let copied = match (self.regions.get_mut().address(part), place) {
            // The receive has ended, or there is nothing to copy.
            (None, _) => true,
            _ if into.bytes == 0 => true,
            (Some(to), MessageLocation::Shared(at)) => {
                let lies = layout.in_pool(neighbour.local, at, into.bytes);
                let cells = lies.and_then(|area| segment.shared_bytes(area.offset + fetched, to.bytes()));
                let Some(cells) = cells else {
                    let failure = self.disown(from);
                    let (Fetched::Step { request, .. } | Fetched::Message { request, .. }) = ends;
                    return self.requests.finish(request, Err(failure));
                };
                // SAFETY: the receive's memory is lent to this request. A buffer that is being sent is not received into, but
                // a sender that breaks the rules may name any: the regions may overlap.
                unsafe { to.start().copy_from(cells.start(), to.bytes()) };
                true
            }
            (Some(to), MessageLocation::Private(at)) => {
                // On an oversubscribed node two ranks never copy at the same time.
                let reads =
                    fetched > 0 || into.bytes >= READ_LEAST && (!spins || neighbour.pace.reads(at, into.bytes as u64));
                let source = neighbour.source.filter(|_| reads);
                let started = Instant::now();
                // SAFETY: the receive's memory is lent to this request, so that nobody else uses it.
                let pulled = source.is_some_and(|source| unsafe { source.pull(at.wrapping_add(fetched as u64), to) });
                if pulled {
                    neighbour.pace.note_read(to.bytes(), started.elapsed().as_nanos() as u64);
                } else if source.is_some() {
                    tracing::debug!(rank = from.0, "cannot read the rank's memory any more: falling back to fragments");
                    neighbour.source = None;
                }
                pulled
            }
        };
        let fetched = fetched + part.bytes as usize;
        if copied && fetched < into.bytes {
            return self.mailbox.errands.push_back(Errand::Fetch { from, place, into, fetched, ends });
        }
        match (ends, copied) {
            (Fetched::Step { sending, request }, true) => {
                self.mailbox.fill(request, &mut self.requests);
                self.tell(from, [STEP_FIN, sending], &[]);
            }
            (Fetched::Step { sending, request }, false) => {
                let placing = self.open_placing(from, into, request);
                self.tell(from, [STEP_CTS, sending], &placing.to_le_bytes());
            }
            (Fetched::Message { receive, request }, true) => {
                self.mailbox.arrive(request, &mut self.requests);
                self.mailbox.machine.fetched(receive);
            }
            (Fetched::Message { receive, request }, false) => {
                self.mailbox.errands.push_back(Errand::Grant { receive, request, from, granted: 0 });
            }
        }
    }

    /// Sends a note to a live peer.
    fn tell(&mut self, to: PeerId, note: [u32; 2], payload: &[u8]) {
        let neighbour = self.near.as_mut().and_then(|near| near.living(to));
        if neighbour.is_some_and(|neighbour| neighbour.tell(note, payload).is_err()) {
            self.disown(to);
        }
    }
}

/// The status of a send that ended well.
pub(super) fn sent(peer: PeerId) -> Status {
    Status { source: peer.into(), tag: Tag(0), bytes: 0 }
}

/// The parts of a process that ring entries are handled with.
struct Desk<'a> {
    mailbox: &'a mut Mailbox,
    requests: &'a mut Requests,
    regions: &'a RefCell<Regions>,
    sendings: &'a mut [Option<Sending>],
    placings: &'a mut [Option<Placing>],
    collectives: &'a mut Collectives,
}

impl Desk<'_> {
    fn handle(&mut self, neighbour: &mut Neighbour, entry: &Entry<'_>) -> Result<(), Nonsense> {
        let ([what, number], from) = (entry.header, neighbour.peer);
        match what & KIND {
            EAGER => self.take_short(neighbour, what, Context(0), Tag(number), entry.payload)?,
            EAGER_IN_CONTEXT => {
                let (payload, context) = split_immediate(entry).ok_or(Nonsense)?;
                self.take_short(neighbour, what, Context(u32::from_le_bytes(context)), Tag(number), payload)?;
            }
            EAGER_WITH_HEADER => {
                let (payload, head) = split_immediate::<{ MessageHead::EAGER }>(entry).ok_or(Nonsense)?;
                neighbour.settled.receive(number, &head).ok_or(Nonsense)?;
                let bytes = head.len() + payload.bytes();
                let arrival = self.mailbox.handle(from, &head, bytes, head.len(), self.requests);
                self.take_in(&arrival, payload)?;
            }
            HEADER => self.take_head(neighbour, number, entry.payload)?,
            FRAGMENT => return self.place(neighbour, number, entry),
            STEP => return self.take_step(from, entry.payload),
            STEP_RTS => return self.announce_step(from, entry.payload),
            NOTIFICATION => {
                let said: [u8; super::retire::WORD] = read_array(entry.payload).ok_or(Nonsense)?;
                self.collectives.handle_word(from, &said);
            }
            STEP_CTS => {
                let placing = u32::from_le_bytes(read_array(entry.payload).ok_or(Nonsense)?);
                // One that ended meanwhile needs no fragments.
                if let Some(sending) = self.sending(from, number) {
                    neighbour.stream(placing, sending.from.into(), sending.request);
                }
            }
            STEP_FIN => {
                if let Some(sending) = self.sending(from, number) {
                    self.requests.finish(sending.request, Ok(sent(from)));
                }
            }
            _ => return Err(Nonsense),
        }
        Ok(())
    }

    /// Handles an eager message of a collective.
    fn take_step(&mut self, from: PeerId, payload: SharedBytes<'_>) -> Result<(), Nonsense> {
        let (mut head, bytes) = ([0; StepHeader::LONGEST], payload.bytes());
        let shown = head.get_mut(..bytes.min(StepHeader::LONGEST)).unwrap_or_default();
        payload.part(0, shown.len()).and_then(|front| front.read(shown)).ok_or(Nonsense)?;
        let verdict = self.collectives.handle(from, shown, bytes as u32, self.requests, self.regions);
        if let Verdict::Place { to, start } = verdict
            && let Some(to) = self.regions.borrow().address(to)
        {
            let behind = payload.part(start.into(), bytes.saturating_sub(start.into())).ok_or(Nonsense)?;
            // SAFETY: a live region, lent to this receive or memory of the process.
            unsafe { copy_out(behind, to.start(), to.bytes()) };
        }
        Ok(())
    }

    /// Handles the announcement of a collective's message that is too long for a ring, and records it until its receive
    /// is posted.
    fn announce_step(&mut self, from: PeerId, payload: SharedBytes<'_>) -> Result<(), Nonsense> {
        let length = payload.bytes().checked_sub(Announced::BYTES).ok_or(Nonsense)?;
        let message = payload.part(length, Announced::BYTES).and_then(Announced::of).ok_or(Nonsense)?;
        let mut head = [0; StepHeader::LONGEST];
        let shown = head.get_mut(..length).ok_or(Nonsense)?;
        payload.part(0, length).and_then(|front| front.read(shown)).ok_or(Nonsense)?;
        let (_, key) = parse_key(shown).ok_or(Nonsense)?;
        if !self.collectives.note_announced(from, key, message) {
            return Err(Nonsense);
        }
        self.collectives.handle(from, shown, length as u32, self.requests, self.regions);
        Ok(())
    }

    fn sending(&mut self, to: PeerId, number: u32) -> Option<Sending> {
        self.sendings.get_mut(number as usize)?.take_if(|sending| sending.to == to)
    }

    /// Handles a short message whose note carries its credit.
    fn take_short(
        &mut self,
        neighbour: &mut Neighbour,
        note: u32,
        context: Context,
        tag: Tag,
        payload: SharedBytes<'_>,
    ) -> Result<(), Nonsense> {
        let (from, bytes, credit) = (neighbour.peer, payload.bytes(), neighbour.settled.credit(note));
        let outcome = self.mailbox.machine.handle_inline(from, context, MessageTag(tag.0), credit, bytes as u32);
        let arrival = self.mailbox.follow(from, outcome, MessageHead::EAGER + bytes, MessageHead::EAGER, self.requests);
        self.take_in(&arrival, payload)
    }

    /// Handles a header without a payload.
    fn take_head(&mut self, neighbour: &mut Neighbour, check: u32, payload: SharedBytes<'_>) -> Result<(), Nonsense> {
        let (mut head, bytes) = ([0; MessageHead::LONGEST], payload.bytes());
        let shown = head.get_mut(..bytes).ok_or(Nonsense)?;
        payload.read(shown).ok_or(Nonsense)?;
        neighbour.settled.receive(check, shown).ok_or(Nonsense)?;
        let arrival = self.mailbox.handle(neighbour.peer, shown, bytes, 0, self.requests);
        self.take_in(&arrival, payload)
    }

    /// Copies a payload to its destination.
    fn take_in(&self, arrival: &Arrival, payload: SharedBytes<'_>) -> Result<(), Nonsense> {
        match *arrival {
            Arrival::Nothing => Ok(()),
            Arrival::Place { to, start } => {
                if let Some(to) = self.regions.borrow().address(to) {
                    let rest = payload.bytes().checked_sub(start).ok_or(Nonsense)?;
                    let payload = payload.part(start, rest).ok_or(Nonsense)?;
                    // SAFETY: the region lives, and is lent to this receive, or kept for one.
                    unsafe { copy_out(payload, to.start(), to.bytes()) };
                }
                Ok(())
            }
            Arrival::Nonsense => Err(Nonsense),
        }
    }

    fn place(&mut self, neighbour: &mut Neighbour, number: u32, entry: &Entry<'_>) -> Result<(), Nonsense> {
        let from = neighbour.peer;
        let place = self.placings.get_mut(number as usize).ok_or(Nonsense)?;
        let placing = place.as_mut().filter(|placing| placing.from == from).ok_or(Nonsense)?;
        let bytes = entry.payload.bytes();
        if bytes == 0 || bytes > placing.into.bytes - placing.placed {
            return Err(Nonsense);
        }
        // A receive that has ended takes no more bytes.
        if let Some(to) = self.regions.borrow().address(placing.into.part(placing.placed, bytes)) {
            // Times the second fragment of a message, if it is a whole one.
            let started = (placing.placed > 0 && placing.placed == bytes).then(Instant::now);
            // SAFETY: the region lives, and is lent to this receive.
            unsafe { copy_out(entry.payload, to.start(), to.bytes()) };
            if let Some(started) = started {
                neighbour.pace.note_copied(to.bytes(), started.elapsed().as_nanos() as u64);
            }
        }
        placing.placed += bytes;
        if placing.placed == placing.into.bytes {
            let request = placing.request;
            *place = None;
            self.mailbox.fill(request, self.requests);
        }
        Ok(())
    }
}

/// The payload of an entry that carries this context.
fn of_context<'a>(entry: &Entry<'a>, context: Context) -> Option<SharedBytes<'a>> {
    let (payload, found) = split_immediate(entry)?;
    (u32::from_le_bytes(found) == context.0).then_some(payload)
}
