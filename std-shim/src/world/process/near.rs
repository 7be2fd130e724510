//! Messages to and from the ranks of this node.

use core::cell::RefCell;
use core::ptr::NonNull;
use std::time::Instant;

use unisono_core::device::{Memory, PeerId};
use unisono_core::endpoint::Verdict;
use unisono_core::message::steps::Head;
use unisono_core::message::steps::head::named;
use unisono_core::peer::Life;
use unisono_core::span::{Region, Span};
use unisono_shmem::ring::{Entry, INLINE, PutError};
use unisono_shmem::segment::{Cells, Site, Word};

use super::{BUDGET, Process, Sending, put};
use crate::node::Standing;
use crate::rank::Rank;
use crate::region::Regions;
use crate::world::collective::table::Collectives;
use crate::world::matching::{Errand, Matching, outcome};
use crate::world::near::{
    ABORT, ANNOUNCE, Announced, BYE, DONE, EAGER, EAGER_LIMIT, EAGER_SHARED, FRAGMENT, GO, HELLO, Near, Neighbour,
    Place, REFUSED, STEP, STEP_ANNOUNCE, WORD, copy_out, private,
};
use crate::world::request::{Failure, Requests, Status, Tag};

/// Polls of a named ring before a wait looks at anything else.
const POLLS: u32 = 500;
/// Bytes of a message that are copied before others have their turn.
const PULLED: u32 = 1 << 20;
/// Bytes from which a message may be read out of the other process.
const READ_LEAST: u32 = 1 << 15;

/// A message that comes in fragments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placing {
    pub(super) from: PeerId,
    into: Span,
    placed: u32,
    pub(super) request: u32,
    tag: Tag,
}

/// Whether what a neighbour put is what a neighbour puts.
struct Nonsense;

impl Process {
    /// Receives a message from a rank of this node that comes at once, without a request. `None`: it does not, or others may
    /// have to be looked at first.
    #[inline]
    pub(in crate::world) fn receive_at_once(
        &mut self,
        into: &mut [u8],
        source: Rank,
        tag: Tag,
    ) -> Option<Result<Status, Failure>> {
        let near = self.near.as_mut()?;
        if !self.matching.is_idle() || self.aborted.is_some() {
            return None;
        }
        let polls = if near.spins { POLLS } else { 1 };
        let neighbour = near.of(source.into())?;
        let (word, before) = neighbour.next_word();
        let mut left = polls;
        while word.acquire(Site::RingLook) == before {
            left -= 1;
            if left == 0 {
                return None;
            }
            core::hint::spin_loop();
        }
        let entry = neighbour.look().ok()??;
        if entry.note != [EAGER, tag.0] {
            return None;
        }
        let bytes = entry.payload.bytes();
        // SAFETY: an exclusive borrow.
        unsafe { copy_out(entry.payload, NonNull::from(&mut *into).cast(), into.len()) };
        neighbour.take();
        Some(if bytes > into.len() {
            Err(Failure::Truncated { bytes: bytes as u64 })
        } else {
            Ok(Status { source, tag, bytes })
        })
    }

    /// Sends a short message to a rank of this node. False: it is none, or there is more to it.
    #[inline]
    pub(in crate::world) fn send_at_once(&mut self, bytes: &[u8], to: Rank, tag: Tag) -> bool {
        let Some(near) = &mut self.near else { return false };
        let Some(neighbour) = near.of(to.into()) else { return false };
        if bytes.len() > INLINE || self.aborted.is_some() || neighbour.ended.is_some() || !neighbour.is_clear() {
            return false;
        }
        neighbour.put([EAGER, tag.0], bytes).is_ok()
    }

    /// Sends to a rank of this node. `None`: it is none. Otherwise as [`send`](Self::send).
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    pub(in crate::world) unsafe fn send_near(
        &mut self,
        to: Rank,
        tag: Tag,
        start: NonNull<u8>,
        bytes: usize,
    ) -> Option<Result<Option<(u32, Region)>, Failure>> {
        let near = self.near.as_mut()?;
        let shared = if bytes > EAGER_SHARED { near.pool.offset(start, bytes) } else { None };
        let neighbour = near.of(to.into())?;
        if let Some(failure) = self.aborted.or(neighbour.ended) {
            return Some(Err(failure));
        }
        let eager = bytes <= EAGER_LIMIT && shared.is_none();
        if eager && neighbour.is_clear() {
            let put = if bytes <= INLINE {
                // SAFETY: the caller says that these bytes are valid and unchanged.
                neighbour.put([EAGER, tag.0], unsafe { core::slice::from_raw_parts(start.as_ptr(), bytes) })
            } else {
                // SAFETY: as above.
                unsafe { neighbour.put_piece([EAGER, tag.0], start, bytes as u32) }
            };
            match put {
                Ok(()) => return Some(Ok(None)),
                Err(PutError::Full | PutError::TooLong) => {}
                Err(PutError::Corrupted) => return Some(Err(self.disown(to.into()))),
            }
        }
        // SAFETY: as the caller says.
        Some(unsafe { self.send_later(to, tag, start, bytes, eager, shared) })
    }

    /// As [`send_near`](Self::send_near), for what does not fit now or is announced.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    unsafe fn send_later(
        &mut self,
        to: Rank,
        tag: Tag,
        start: NonNull<u8>,
        bytes: usize,
        eager: bool,
        shared: Option<u64>,
    ) -> Result<Option<(u32, Region)>, Failure> {
        let peer = PeerId::from(to);
        let length = u32::try_from(bytes).map_err(|_| Failure::TooLong)?;
        // SAFETY: as the caller says, until `revoke`.
        let region = unsafe { self.regions.get_mut().register(start, bytes) }.map_err(|_| Failure::TooLong)?;
        let from = Span { region, offset: 0, bytes: length };
        let request = self.requests.start();
        let Some(neighbour) = self.near.as_mut().and_then(|near| near.of(peer)) else {
            return Err(Failure::UnknownRank(to));
        };
        if eager && length <= neighbour.longest() {
            neighbour.queue(tag, from, request);
            return Ok(Some((request, region)));
        }
        let sending = self.sendings.iter().position(Option::is_none).unwrap_or(self.sendings.len()) as u32;
        let place = shared.map_or(Place::Private(start.addr().get() as u64), Place::Shared);
        let announced = neighbour.announce(tag, Announced { sending, bytes: length, place });
        put(&mut self.sendings, sending, Sending { to: peer, from, request });
        if announced.is_err() {
            // Ends the request.
            self.disown(peer);
        }
        Ok(Some((request, region)))
    }

    /// One round over all rings. Says whether anything moved.
    pub(in crate::world) fn progress_near(&mut self) -> bool {
        let places = self.near.as_ref().map_or(0, |near| near.neighbours.len());
        let mut moved = false;
        for place in 0..places {
            moved |= self.progress_with(place);
        }
        if !self.matching.errands.is_empty() {
            let now = self.latest;
            moved |= self.follow(now);
        }
        moved | self.follow_collectives()
    }

    /// Takes what one neighbour put, and puts what waits for it.
    fn progress_with(&mut self, place: usize) -> bool {
        let Self { near, matching, requests, regions, sendings, placings, collectives, .. } = self;
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
            let mut desk = Desk { matching, requests, regions, sendings, placings, collectives };
            match entry.note[0] {
                HELLO => {
                    let local = neighbour.local;
                    let source = near.source(local, entry.payload);
                    let Some(one) = near.neighbours.get_mut(place).and_then(Option::as_mut) else { return moved };
                    neighbour = one;
                    neighbour.source = source;
                }
                BYE | ABORT => {
                    neighbour.take();
                    let parted = entry.note[0] == BYE;
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

    /// A neighbour's words hold what it never writes: it is not listened to any more.
    pub(super) fn disown(&mut self, peer: PeerId) -> Failure {
        let failure = Failure::Corrupted(peer.into());
        tracing::error!(rank = peer.0, "wrote what no rank writes");
        self.lose(peer, failure, true);
        failure
    }

    /// The system, or the launcher, says that a neighbour is gone: what it sent before still counts. False: it is none.
    pub(super) fn bury(&mut self, peer: PeerId, failure: Failure) -> bool {
        let Some(near) = &mut self.near else { return false };
        let Some(neighbour) = near.of(peer) else { return false };
        if neighbour.ended.is_some() {
            return true;
        }
        let place = neighbour.local as usize;
        // As much as a ring holds; more cannot come.
        let mut rounds = 0..unisono_shmem::layout::PAGE;
        while rounds.next().is_some() && self.has_news_from(place) && self.progress_with(place) {}
        self.lose(peer, failure, matches!(failure, Failure::PeerFailed(_)));
        true
    }

    fn has_news_from(&self, place: usize) -> bool {
        let neighbour = self.near.as_ref().and_then(|near| near.neighbours.get(place)?.as_ref());
        neighbour.is_some_and(|neighbour| neighbour.ended.is_none() && neighbour.has_news())
    }

    /// Asks the system whether a neighbour that is waited for lives, and one more; and whether what this rank wrote stands. If
    /// not, it gives up.
    pub(in crate::world) fn look_near(&mut self, waits_for: Option<Rank>) {
        let Some(near) = &mut self.near else { return };
        let asked = [waits_for.map(PeerId::from), near.next_asked()];
        if !near.is_intact() {
            near.node.give_up();
            let all: Vec<PeerId> = near.neighbours.iter().flatten().map(|neighbour| neighbour.peer).collect();
            for peer in all {
                self.disown(peer);
            }
            return;
        }
        for peer in asked.into_iter().flatten() {
            let Some(near) = &mut self.near else { return };
            let Some(local) = near.of(peer).filter(|one| one.ended.is_none()).map(|one| one.local) else { continue };
            match near.node.standing(local) {
                Standing::Alive => {}
                Standing::Left => {
                    self.bury(peer, Failure::Parted(peer.into()));
                }
                Standing::Dead => {
                    tracing::info!(rank = peer.0, "died, as the system says");
                    self.bury(peer, Failure::PeerFailed(peer.into()));
                }
            }
        }
    }

    /// The word to wait on for what this rank does next.
    pub(in crate::world) fn awaited(&self, from: Rank) -> Option<(&'static Word, u32)> {
        Some(self.near.as_ref()?.at(from.into())?.awaited())
    }

    /// The words to wait on for what any neighbour does next.
    pub(in crate::world) fn all_awaited(&self, words: &mut Vec<(&'static Word, u32)>) {
        let neighbours = self.near.iter().flat_map(|near| near.neighbours.iter()).flatten();
        words.extend(neighbours.filter(|one| one.ended.is_none()).map(Neighbour::awaited));
    }

    /// Whether all other ranks are reached through shared memory.
    #[inline]
    pub(in crate::world) fn is_whole(&self) -> bool {
        self.near.as_ref().is_some_and(|near| near.met == self.size - 1)
    }

    /// Why nothing comes from this rank any more.
    pub(super) fn ended(&self, rank: Rank) -> Option<Failure> {
        if let Some(neighbour) = self.near.as_ref().and_then(|near| near.at(rank.into())) {
            return neighbour.ended;
        }
        match self.endpoint.life(rank.into()) {
            Life::Failed => Some(Failure::PeerFailed(rank)),
            Life::Parted => Some(Failure::Parted(rank)),
            Life::Unmet | Life::Alive => None,
        }
    }

    /// Whether the others know that this process ends its part.
    pub(in crate::world) fn is_gone(&mut self) -> bool {
        self.progress_near();
        (self.is_whole() || self.endpoint.is_gone()) && self.near.as_ref().is_none_or(Near::is_flushed)
    }

    /// Whether this rank is reached through shared memory.
    pub(in crate::world) fn is_near(&self, peer: PeerId) -> bool {
        self.near.as_ref().is_some_and(|near| near.at(peer).is_some())
    }

    /// Tells all neighbours that this process ends its part.
    pub(in crate::world) fn part(&mut self, gives_up: bool) {
        for neighbour in self.near.iter_mut().flat_map(|near| near.neighbours.iter_mut()).flatten() {
            if neighbour.ended.is_none() {
                // Who writes garbage need not be told.
                let _ = neighbour.tell([if gives_up { ABORT } else { BYE }, 0], &[]);
            }
        }
    }

    /// Copies an announced message, a part at a time.
    pub(super) fn fetch(&mut self, errand: Errand) {
        let Errand::Fetch { from, message, into, fetched, request, tag } = errand else { return };
        let Some(near) = &mut self.near else { return };
        let (segment, layout, spins) = (near.segment(), near.node.layout(), near.spins);
        let Some(neighbour) = near.of(from) else { return };
        let part = into.part(fetched, PULLED);
        let copied = match (self.regions.get_mut().address(part), message.place) {
            // The receive has ended, or there is nothing to copy.
            (None, _) => true,
            _ if message.bytes == 0 => true,
            (Some(to), Place::Shared(at)) => {
                let pool = layout.pool(neighbour.local);
                let within = pool.filter(|pool| {
                    let end = at.checked_add(u64::from(message.bytes));
                    at >= pool.at as u64 && end.is_some_and(|end| end <= (pool.at + pool.bytes) as u64)
                });
                let cells = within.and_then(|_| segment.cells(at as usize + fetched as usize, to.bytes()));
                let Some(cells) = cells else {
                    self.disown(from);
                    return self.requests.finish(request, Err(Failure::Corrupted(from.into())));
                };
                // SAFETY: the receive's memory is lent to this request. A buffer that is being sent is not received into, but
                // a sender that breaks the rules may name any: the regions may overlap.
                unsafe { to.start().copy_from(cells.start(), to.bytes()) };
                true
            }
            (Some(to), Place::Private(at)) => {
                // Where ranks share cores, no two of them copy at a time.
                let reads =
                    fetched > 0 || message.bytes >= READ_LEAST && (!spins || neighbour.pace.reads(at, message.bytes));
                let source = neighbour.source.filter(|_| reads);
                let started = Instant::now();
                // SAFETY: as above.
                let pulled = source.is_some_and(|source| unsafe { source.pull(at.wrapping_add(fetched.into()), to) });
                if pulled {
                    neighbour.pace.note_read(to.bytes(), started.elapsed().as_nanos() as u64);
                } else if source.is_some() {
                    tracing::debug!(rank = from.0, "its memory cannot be read any more");
                    neighbour.source = None;
                }
                pulled
            }
        };
        let told = if !copied {
            let free = self.placings.iter().position(Option::is_none).unwrap_or(self.placings.len()) as u32;
            put(&mut self.placings, free, Placing { from, into, placed: 0, request, tag });
            neighbour.tell([GO, message.sending], &free.to_le_bytes())
        } else if fetched + part.bytes < into.bytes {
            self.matching.errands.push_back(Errand::Fetch {
                from,
                message,
                into,
                fetched: fetched + part.bytes,
                request,
                tag,
            });
            Ok(())
        } else {
            let status = Status { source: from.into(), tag, bytes: message.bytes as usize };
            self.requests.finish(request, Ok(status));
            neighbour.tell([DONE, message.sending], &[])
        };
        if told.is_err() {
            self.disown(from);
        }
    }

    /// Says that an announced message is too long for its receive.
    pub(super) fn refuse(&mut self, to: PeerId, sending: u32) {
        let neighbour = self.near.as_mut().and_then(|near| near.of(to));
        if neighbour.is_some_and(|neighbour| neighbour.tell([REFUSED, sending], &[]).is_err()) {
            self.disown(to);
        }
    }
}

/// How a send to a neighbour ends well.
fn sent(peer: PeerId) -> Status {
    Status { source: peer.into(), tag: Tag(0), bytes: 0 }
}

/// What an entry is handled with.
struct Desk<'a> {
    matching: &'a mut Matching,
    requests: &'a mut Requests,
    regions: &'a RefCell<Regions>,
    sendings: &'a mut [Option<Sending>],
    placings: &'a mut [Option<Placing>],
    collectives: &'a mut Collectives,
}

impl Desk<'_> {
    fn handle(&mut self, neighbour: &mut Neighbour, entry: &Entry<'_>) -> Result<(), Nonsense> {
        let ([what, number], from) = (entry.note, neighbour.peer);
        match what {
            EAGER => self.take_eager(from, Tag(number), entry),
            ANNOUNCE => {
                let message = Announced::of(entry.payload).ok_or(Nonsense)?;
                self.matching.announce_near(from, Tag(number), message, self.requests);
            }
            FRAGMENT => return self.place(neighbour, number, entry),
            STEP => return self.take_step(from, entry.payload),
            STEP_ANNOUNCE => return self.announce_step(from, entry.payload),
            WORD => {
                let said: [u8; super::retire::WORD] = private(entry.payload).ok_or(Nonsense)?;
                self.collectives.handle_word(from, &said);
            }
            GO => {
                let placing = u32::from_le_bytes(private(entry.payload).ok_or(Nonsense)?);
                // One that ended meanwhile needs no fragments.
                if let Some(sending) = self.sending(from, number) {
                    neighbour.stream(placing, sending.from, sending.request);
                }
            }
            DONE => {
                if let Some(sending) = self.sending(from, number) {
                    self.requests.finish(sending.request, Ok(sent(from)));
                }
            }
            REFUSED => {
                if let Some(sending) = self.sending(from, number) {
                    self.requests.finish(sending.request, Err(Failure::TooLongForReceive(from.into())));
                }
            }
            _ => return Err(Nonsense),
        }
        Ok(())
    }

    /// A message of a collective.
    fn take_step(&mut self, from: PeerId, payload: Cells<'_>) -> Result<(), Nonsense> {
        let (mut head, bytes) = ([0; Head::LONGEST], payload.bytes());
        let shown = head.get_mut(..bytes.min(Head::LONGEST)).unwrap_or_default();
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

    /// One that is too long for a ring. What it says of itself is kept for when its receive is there.
    fn announce_step(&mut self, from: PeerId, payload: Cells<'_>) -> Result<(), Nonsense> {
        let length = payload.bytes().checked_sub(Announced::BYTES).ok_or(Nonsense)?;
        let message = payload.part(length, Announced::BYTES).and_then(Announced::of).ok_or(Nonsense)?;
        let mut head = [0; Head::LONGEST];
        let shown = head.get_mut(..length).ok_or(Nonsense)?;
        payload.part(0, length).and_then(|front| front.read(shown)).ok_or(Nonsense)?;
        let (_, key) = named(shown).ok_or(Nonsense)?;
        if !self.collectives.note_announced(from, key, message) {
            return Err(Nonsense);
        }
        self.collectives.handle(from, shown, length as u32, self.requests, self.regions);
        Ok(())
    }

    fn sending(&mut self, to: PeerId, number: u32) -> Option<Sending> {
        self.sendings.get_mut(number as usize)?.take_if(|sending| sending.to == to)
    }

    fn take_eager(&mut self, from: PeerId, tag: Tag, entry: &Entry<'_>) {
        let bytes = entry.payload.bytes();
        match self.matching.take_posted(from, tag) {
            Some(receive) => {
                if let Some(to) = self.regions.borrow().address(receive.into) {
                    // SAFETY: the region lives, and is lent to this receive.
                    unsafe { copy_out(entry.payload, to.start(), to.bytes()) };
                }
                self.requests.finish(receive.request, outcome(from, tag, bytes as u64, receive.into));
            }
            None => {
                let mut kept = vec![0; bytes];
                // SAFETY: an exclusive borrow.
                unsafe { copy_out(entry.payload, NonNull::from(kept.as_mut_slice()).cast(), bytes) };
                self.matching.keep(from, tag, kept);
            }
        }
    }

    fn place(&mut self, neighbour: &mut Neighbour, number: u32, entry: &Entry<'_>) -> Result<(), Nonsense> {
        let from = neighbour.peer;
        let place = self.placings.get_mut(number as usize).ok_or(Nonsense)?;
        let placing = place.as_mut().filter(|placing| placing.from == from).ok_or(Nonsense)?;
        let bytes = entry.payload.bytes() as u32;
        if bytes == 0 || bytes > placing.into.bytes - placing.placed {
            return Err(Nonsense);
        }
        // A receive that has ended takes nothing any more.
        if let Some(to) = self.regions.borrow().address(placing.into.part(placing.placed, bytes)) {
            // One of a message is timed: the second, if it has so many.
            let started = (placing.placed > 0 && placing.placed == bytes).then(Instant::now);
            // SAFETY: as in `take_eager`.
            unsafe { copy_out(entry.payload, to.start(), to.bytes()) };
            if let Some(started) = started {
                neighbour.pace.note_copied(to.bytes(), started.elapsed().as_nanos() as u64);
            }
        }
        placing.placed += bytes;
        if placing.placed == placing.into.bytes {
            let Placing { request, tag, into, .. } = *placing;
            *place = None;
            self.requests.finish(request, outcome(from, tag, into.bytes.into(), into));
        }
        Ok(())
    }
}
