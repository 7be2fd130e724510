//! The send entries of a lane: headers and space for copied payload in registered memory. Postings wait in the queue
//! until the flush, which requests one completion, if any.
//!
//! An inline datagram is complete when it is flushed: the adapter has a copy. So a chain of short datagrams requests a
//! completion only after a quarter of the queue's entries were used since the last one.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::marker::PhantomData;
use core::mem;
use core::time::Duration;
use std::time::Instant;

use unisono_core::device::{DeviceQueue, HEADER_ROOM, Ticket, Token, Transmit};
use unisono_core::ids::PeerId;

use super::Lent;
use super::address_table::{AddressTable, Destination, LaneAddress};
use super::counters::UdCounters;
use super::domain::{Domain, OpenError, Registration};
use super::pages::AnonymousMemory;
use super::queue::{Posting, Queue, SgEntry};
use crate::raw::WorkResult;

/// Most postings under way.
pub(super) const ENTRIES: u32 = 256;
/// Postings after which a completion is requested.
const UNSIGNALLED_MAX: u32 = ENTRIES / 4;
/// Most short datagrams that wait for an address handle, and for how long: they delay the completion of later ones.
const PARKED: usize = 32;
const HANDLE_TIMEOUT: Duration = Duration::from_millis(2);
/// Bytes of all headers.
const HEADS: usize = ENTRIES as usize * HEADER_ROOM;

/// An entry that waits for an address handle. Its bytes are the ring's own.
struct Parked {
    ticket: Ticket,
    to: PeerId,
    at: DeviceQueue,
    head: usize,
    /// Bytes of copied payload.
    copied: usize,
    solicited: bool,
    since: Instant,
}

/// Serial numbers of postings in the queue. Entries that are lost have none.
#[derive(Default)]
struct Serials {
    /// Of the last posting.
    last: u32,
    /// Of the last one at the last flush, at the last requested completion, and of the last complete one.
    handed: u32,
    asked: u32,
    done: u32,
}

/// Free entries, unflushed postings, and the tickets of a lane.
pub(super) struct SendRing {
    // Before the pages that it names, when both are dropped.
    registration: Registration,
    /// All headers, contiguous so that short datagrams touch few pages; then for each entry space for copied payload.
    memory: AnonymousMemory,
    mtu: usize,
    /// The lkey of each entry's payload, if the adapter gathers it from user memory.
    payload_keys: Box<[Option<u32>; ENTRIES as usize]>,
    /// Tickets of postings, by their serial numbers.
    tickets: Box<[Ticket; ENTRIES as usize]>,
    last: Ticket,
    flushed: Ticket,
    /// The last posting that requested a completion, until that arrives.
    signalled: Option<u32>,
    /// The last entry that the adapter gathers from memory, until it is complete.
    gathered: Option<Ticket>,
    serials: Serials,
    /// In the order of their tickets.
    parked: VecDeque<Parked>,
    /// Calls of `poll`.
    looks: u32,
    completed: Ticket,
    /// A completion or a posting failed: the queue pair must be restarted.
    pub(super) failed: bool,
}

impl SendRing {
    pub(super) fn new(domain: &Arc<Domain>, mtu: usize) -> Result<Self, OpenError> {
        let refused = |what| move |error| OpenError::Refused { what, error };
        let memory = AnonymousMemory::map(HEADS + mtu * ENTRIES as usize).map_err(refused("mmap"))?;
        // SAFETY: the ring keeps its pages until the registration is dropped.
        let registration = unsafe { domain.register(memory.start(), memory.bytes()) }.map_err(refused("ibv_reg_mr"))?;
        Ok(Self {
            memory,
            registration,
            mtu,
            payload_keys: Box::new([None; ENTRIES as usize]),
            tickets: Box::new([Ticket::default(); ENTRIES as usize]),
            last: Ticket::default(),
            flushed: Ticket::default(),
            signalled: None,
            gathered: None,
            serials: Serials::default(),
            parked: VecDeque::new(),
            looks: 0,
            completed: Ticket::default(),
            failed: false,
        })
    }

    /// Whether the pages are huge.
    pub(super) const fn is_huge(&self) -> bool {
        self.memory.is_huge()
    }

    /// Bytes of headers and of space for copies.
    pub(super) const fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Whether a posting references memory with this lkey.
    pub(super) fn references(&self, key: u32) -> bool {
        let under_way = self.last.0.wrapping_sub(self.completed.0);
        let mut entries = (1..=under_way).map(|later| (self.completed.0.wrapping_add(later) % ENTRIES) as usize);
        entries.any(|entry| self.payload_keys.get(entry) == Some(&Some(key)))
    }

    /// Whether an entry is free, after a poll of completions if necessary.
    pub(super) fn has_room(&mut self, queue: Option<&mut Queue>, tally: &UdCounters) -> bool {
        let used = |ring: &Self| {
            ring.last.0.wrapping_sub(ring.completed.0).max(ring.serials.last.wrapping_sub(ring.serials.done))
        };
        if used(self) >= ENTRIES {
            self.poll(queue, tally);
        }
        used(self) < ENTRIES
    }

    /// The next header.
    pub(super) fn head(&mut self) -> &mut [u8; HEADER_ROOM] {
        let at = self.next() * HEADER_ROOM;
        // SAFETY: the entry is free: nothing that names it is posted.
        let head = unsafe { self.memory.get_mut(at, HEADER_ROOM) };
        head.and_then(|head| head.try_into().ok()).expect("the ring has as many headers as entries")
    }

    pub(super) const fn ticket(&self) -> Ticket {
        self.last.next()
    }

    const fn next(&self) -> usize {
        (self.last.next().0 % ENTRIES) as usize
    }

    /// Parks the posting until its peer's handle exists, with a copy of its payload.
    #[cold]
    #[inline(never)]
    fn park<A: Lent>(
        &mut self,
        transmit: &Transmit,
        to: PeerId,
        head: usize,
        payload: Option<(A, usize)>,
        tally: &UdCounters,
    ) {
        let entry = (self.last.0 % ENTRIES) as usize;
        let copied = payload.and_then(|(payload, bytes)| self.copy(entry, payload, bytes, tally));
        self.parked.push_back(Parked {
            ticket: self.last,
            to,
            at: transmit.queue,
            head,
            copied: copied.map_or(0, |piece| piece.bytes),
            solicited: transmit.solicited,
            since: Instant::now(),
        });
    }

    /// Posts the entry. Without a destination it is lost, but still has a ticket.
    #[inline(always)]
    pub(super) fn post<A: Lent>(
        &mut self,
        transmit: &Transmit,
        payload: Option<A>,
        queue: Option<(&mut Queue, usize)>,
        table: &mut AddressTable,
        tally: &UdCounters,
    ) {
        let (entry, head) = (self.next(), usize::from(transmit.header_bytes).min(HEADER_ROOM));
        self.last = self.last.next();
        if let Some(payload_key) = self.payload_keys.get_mut(entry) {
            *payload_key = None;
        }
        let Some((queue, inline)) = queue.filter(|_| !self.failed) else {
            tally.lost_in_error.add(1);
            return;
        };
        let wanted = transmit.payload.map_or(0, |span| span.bytes as usize);
        let bytes = payload.map_or(0, Lent::bytes).min(wanted).min(self.mtu.saturating_sub(head));
        let payload = payload.filter(|_| bytes > 0);
        if head + bytes > inline || payload.is_some_and(|payload| !payload.is_adjacent()) {
            return self.gather(transmit, (entry, head), payload.map(|payload| (payload, bytes)), queue, table, tally);
        }
        let Some(peer) = table.index(transmit.to) else {
            tally.lost_no_path.add(1);
            return;
        };
        let to = match table.destination(peer, transmit.queue) {
            Destination::Ready(to) => to,
            Destination::Pending if self.parked.len() < PARKED => {
                return self.park(transmit, peer, head, payload.map(|payload| (payload, bytes)), tally);
            }
            _ => {
                tally.lost_no_path.add(1);
                return;
            }
        };
        let second = payload.map(|payload| SgEntry::new(payload.start(), bytes, 0));
        tally.sent_inline.add(1);
        self.post_to_queue(queue, to, (self.head_of(entry, head), second), true, transmit.solicited);
    }

    /// Posts an entry whose bytes are gathered from memory.
    #[inline(never)]
    fn gather<A: Lent>(
        &mut self,
        transmit: &Transmit,
        (entry, head): (usize, usize),
        payload: Option<(A, usize)>,
        queue: &mut Queue,
        table: &mut AddressTable,
        tally: &UdCounters,
    ) {
        let peer = table.index(transmit.to);
        let destination = peer.map_or(Destination::Nowhere, |peer| table.destination(peer, transmit.queue));
        let Destination::Ready(to) = destination else {
            tally.lost_no_path.add(1);
            return;
        };
        let second = payload.and_then(|(payload, bytes)| match payload.key() {
            Some(key) => {
                *self.payload_keys.get_mut(entry)? = Some(key);
                Some(SgEntry { start: payload.start(), bytes, address: payload.device_address(), key })
            }
            None => self.copy(entry, payload, bytes, tally),
        });
        self.gathered = Some(self.last);
        self.post_to_queue(queue, to, (self.head_of(entry, head), second), false, transmit.solicited);
    }

    fn head_of(&self, entry: usize, bytes: usize) -> Option<SgEntry> {
        Some(SgEntry::new(self.memory.part(entry * HEADER_ROOM, bytes)?, bytes, self.registration.key()))
    }

    /// The copied payload of an entry.
    fn copied(&self, entry: usize, bytes: usize) -> Option<SgEntry> {
        let start = self.memory.part(HEADS + entry * self.mtu, bytes)?;
        Some(SgEntry::new(start, bytes, self.registration.key()))
    }

    /// Copies a payload to the space of a free entry.
    fn copy<A: Lent>(&self, entry: usize, payload: A, bytes: usize, tally: &UdCounters) -> Option<SgEntry> {
        let room = self.copied(entry, bytes)?;
        tally.sent_copied.add(1);
        // SAFETY: `payload` has `bytes` bytes, which its maker promised to be live and not written now
        // (`RegisteredMemory`); the room is the ring's own, and the entry free.
        unsafe { payload.copy_out(room.start, bytes) };
        Some(room)
    }

    /// Posts to the queue pair.
    #[inline(always)]
    fn post_to_queue(
        &mut self,
        queue: &mut Queue,
        to: LaneAddress<'_>,
        pieces: (Option<SgEntry>, Option<SgEntry>),
        inline: bool,
        solicited: bool,
    ) {
        let (Some(head), payload) = pieces else { return };
        self.serials.last = self.serials.last.wrapping_add(1);
        if let Some(ticket) = self.tickets.get_mut((self.serials.last % ENTRIES) as usize) {
            *ticket = self.last;
        }
        // SAFETY: the entry's own memory, used by nothing else until it is complete; borrowed payload stays unchanged
        // until then, as the code that made its address promised (`RegisteredMemory`); address handles outlive their
        // postings.
        let taken = unsafe { queue.post(to, &Posting { head, payload, inline, solicited, tag: self.serials.last }) };
        // There is room for all entries unless the adapter misbehaves.
        self.failed |= !taken;
    }

    /// Whether a posting waits for an address handle.
    pub(super) fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Posts parked datagrams whose handle exists now. Those whose handle failed, or that waited too long, are lost.
    pub(super) fn unpark(
        &mut self,
        failed: &[PeerId],
        queue: Option<&mut Queue>,
        table: &mut AddressTable,
        tally: &UdCounters,
    ) {
        let Some(queue) = queue else { return };
        let mut posted = false;
        for _ in 0..self.parked.len() {
            let Some(one) = self.parked.pop_front() else { break };
            let destination =
                if failed.contains(&one.to) { Destination::Nowhere } else { table.destination(one.to, one.at) };
            match destination {
                Destination::Ready(to) => {
                    let entry = (one.ticket.0 % ENTRIES) as usize;
                    let payload = self.copied(entry, one.copied).filter(|_| one.copied > 0);
                    tally.sent_inline.add(1);
                    self.post_to_queue(queue, to, (self.head_of(entry, one.head), payload), true, one.solicited);
                    posted = true;
                }
                Destination::Pending if one.since.elapsed() < HANDLE_TIMEOUT => self.parked.push_back(one),
                _ => tally.lost_no_path.add(1),
            }
        }
        if posted {
            self.flush_queue(Some(queue), tally);
        }
        self.settle();
    }

    /// Hands postings to the adapter. The last requests a completion if memory is gathered, or if none was requested
    /// for a while.
    #[inline(always)]
    pub(super) fn flush(&mut self, queue: Option<&mut Queue>, tally: &UdCounters) {
        if self.flushed == self.last {
            return;
        }
        self.flush_queue(queue, tally);
    }

    #[inline(always)]
    fn flush_queue(&mut self, queue: Option<&mut Queue>, tally: &UdCounters) {
        let count = self.serials.last.wrapping_sub(mem::replace(&mut self.serials.handed, self.serials.last));
        self.flushed = self.last;
        match queue {
            Some(queue) if count > 0 && !self.failed => {
                let signal = self.gathered.is_some() || self.behind() >= UNSIGNALLED_MAX;
                if signal {
                    self.signalled = Some(self.serials.last);
                    self.serials.asked = self.serials.last;
                }
                tally.send_calls.add(1);
                // SAFETY: what `hand` posted names the entries' own memory and borrowed payload, both of which stay
                // until they are complete, and ways that outlive what is posted with them.
                if unsafe { queue.flush(signal) } {
                    tally.sent.add(count.into());
                } else {
                    // Some may have been accepted. The queue pair is restarted, after which none is outstanding.
                    self.failed = true;
                    tally.lost_in_error.add(count.into());
                }
            }
            Some(_) => tally.lost_in_error.add(count.into()),
            None => {
                tally.lost_in_error.add(count.into());
                self.forget(tally);
            }
        }
        self.settle();
    }

    /// Takes completions. Returns the last ticket that is complete. Postings that asked for none complete in error all
    /// the same, which is looked for now and then.
    pub(super) fn poll(&mut self, queue: Option<&mut Queue>, tally: &UdCounters) -> Ticket {
        self.looks = self.looks.wrapping_add(1);
        let expected = self.signalled.is_some() || self.behind() > 0 && self.looks.is_multiple_of(UNSIGNALLED_MAX);
        let Some(queue) = queue.filter(|_| expected) else { return self.completed };
        while let Some(fate) = queue.sent() {
            let (tag, ok) = match fate {
                WorkResult::Done(tag) => (Some(tag), true),
                WorkResult::Failed(tag, _) => (tag, false),
                WorkResult::Malformed => (None, false),
            };
            if !ok {
                tally.failed.add(1);
                self.failed = true;
            }
            let known = tag.filter(|tag| self.serials.last.wrapping_sub(*tag) < ENTRIES);
            let Some((tag, ticket)) = known.and_then(|tag| Some((tag, *self.tickets.get((tag % ENTRIES) as usize)?)))
            else {
                continue;
            };
            let upto = self.bound(ticket);
            if self.completed.is_within(upto) {
                self.completed = upto;
            }
            if self.signalled == Some(tag) {
                self.signalled = None;
            }
            self.serials.done = tag;
            self.gathered = self.gathered.filter(|gathered| !gathered.is_within(ticket));
        }
        self.settle();
        self.completed
    }

    /// Postings since the last that requested a completion.
    const fn behind(&self) -> u32 {
        self.serials.last.wrapping_sub(self.serials.asked)
    }

    /// Flushed postings are complete if none of them is gathered from memory.
    fn settle(&mut self) {
        if self.gathered.is_none() && !self.failed {
            self.completed = self.bound(self.flushed);
        }
    }

    /// Parked postings are not complete, nor are later ones.
    fn bound(&self, ticket: Ticket) -> Ticket {
        match self.parked.front() {
            Some(first) if first.ticket.is_within(ticket) => Ticket(first.ticket.0.wrapping_sub(1)),
            _ => ticket,
        }
    }

    /// Follows a restart or the end of the queue pair: no posting is under way, and unflushed ones are lost.
    pub(super) fn forget(&mut self, tally: &UdCounters) {
        let left = self.serials.last.wrapping_sub(self.serials.handed);
        tally.lost_in_error.add(u64::from(left) + self.parked.len() as u64);
        (self.signalled, self.gathered) = (None, None);
        (self.serials.handed, self.serials.asked, self.serials.done) =
            (self.serials.last, self.serials.last, self.serials.last);
        self.flushed = self.last;
        self.parked.clear();
        self.failed = false;
        self.settle();
    }
}

/// A free send entry of a UD device.
pub struct UdToken<'a, A> {
    pub(super) ring: &'a mut SendRing,
    pub(super) table: &'a mut AddressTable,
    pub(super) tally: &'a UdCounters,
    pub(super) queue: Option<&'a mut Queue>,
    pub(super) inline: usize,
    pub(super) lends: PhantomData<A>,
}

impl<A: Lent> Token for UdToken<'_, A> {
    type Address = A;

    #[inline]
    fn ticket(&self) -> Ticket {
        self.ring.ticket()
    }

    #[inline]
    fn header_room(&mut self) -> &mut [u8; HEADER_ROOM] {
        self.ring.head()
    }

    /// Payload is truncated to the length of its memory and to the MTU, which the caller promised not to exceed.
    #[inline(always)]
    fn post(self, transmit: &Transmit, payload: Option<A>) {
        let queue = self.queue.map(|queue| (queue, self.inline));
        self.ring.post(transmit, payload, queue, self.table, self.tally);
    }
}
