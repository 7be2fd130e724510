//! The send entries of a lane: heads and room for copied payload in registered memory. What is posted waits in the queue until the
//! flush, which asks for one completion, if any.
//!
//! What travels in the work queue entry is finished when it is flushed: the adapter has a copy. So a chain of short datagrams asks for
//! a completion only when the queue has taken a quarter of its entries since the last that did.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::marker::PhantomData;
use core::mem;
use core::time::Duration;
use std::time::Instant;

use unisono_core::device::{HEAD, Lane, PeerId, Ticket, Token, Transmit};

use super::address_table::{AddressTable, Destination, To};
use super::domain::{Domain, OpenError, Registration};
use super::lent::Lent;
use super::pages::Pages;
use super::queue::{Piece, Posting, Queue};
use super::tally::Tally;
use crate::raw::Fate;

/// Postings under way at most.
pub(super) const ENTRIES: u32 = 256;
/// After so many postings without a completion one is asked for.
const QUIET: u32 = ENTRIES / 4;
/// Short datagrams that wait for an address handle at most, and how long: they hold up what is complete.
const PARKED: usize = 32;
const PATIENCE: Duration = Duration::from_millis(2);
/// Bytes of all heads.
const HEADS: usize = ENTRIES as usize * HEAD;

/// An entry that waits for an address handle. Its bytes are the ring's own.
struct Parked {
    ticket: Ticket,
    to: PeerId,
    at: Lane,
    head: usize,
    /// Bytes that were copied behind the head.
    copied: usize,
    solicited: bool,
    since: Instant,
}

/// Free entries, what is posted and not flushed, and the tickets of a lane.
pub(super) struct SendRing {
    // Before the pages that it names, when both are dropped.
    registration: Registration,
    /// All heads, side by side so that short datagrams touch few pages; then for each entry room for a payload that is copied.
    memory: Pages,
    mtu: usize,
    /// What each entry's payload is registered under, if the adapter reads it where it lies.
    lent: Box<[Option<u32>; ENTRIES as usize]>,
    /// Tickets of postings, by their serial numbers.
    tickets: Box<[Ticket; ENTRIES as usize]>,
    last: Ticket,
    flushed: Ticket,
    /// The last posting that asked for a completion, while it has not come.
    signalled: Option<u32>,
    /// The last entry whose bytes the adapter reads from memory, while they may be read.
    gathered: Option<Ticket>,
    /// Postings that were ever in the queue, which knows each by its number. Entries that are lost have no part in it.
    serial: u32,
    /// How many there were at the last flush, and when a completion was asked for last; and those that the queue is done with.
    handed: u32,
    asked: u32,
    done: u32,
    /// In the order of their tickets.
    parked: VecDeque<Parked>,
    /// Calls of `poll`.
    looks: u32,
    completed: Ticket,
    /// A completion or a posting failed: the queue must be made anew.
    pub(super) failed: bool,
}

impl SendRing {
    pub(super) fn new(domain: &Arc<Domain>, mtu: usize) -> Result<Self, OpenError> {
        let refused = |what| move |error| OpenError::Refused { what, error };
        let memory = Pages::map(HEADS + mtu * ENTRIES as usize).map_err(refused("mmap"))?;
        // SAFETY: the ring keeps its pages until the registration is dropped.
        let registration = unsafe { domain.register(memory.start(), memory.bytes()) }.map_err(refused("ibv_reg_mr"))?;
        Ok(Self {
            memory,
            registration,
            mtu,
            lent: Box::new([None; ENTRIES as usize]),
            tickets: Box::new([Ticket::default(); ENTRIES as usize]),
            last: Ticket::default(),
            flushed: Ticket::default(),
            signalled: None,
            gathered: None,
            serial: 0,
            handed: 0,
            asked: 0,
            done: 0,
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

    /// Bytes of heads and of room for copies.
    pub(super) const fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Whether something is posted that names memory by this key.
    pub(super) fn names(&self, key: u32) -> bool {
        let under_way = self.last.0.wrapping_sub(self.completed.0);
        let mut entries = (1..=under_way).map(|later| (self.completed.0.wrapping_add(later) % ENTRIES) as usize);
        entries.any(|entry| self.lent.get(entry) == Some(&Some(key)))
    }

    /// Whether an entry is free, after a look at the completions if need be.
    pub(super) fn has_room(&mut self, queue: Option<&mut Queue>, tally: &Tally) -> bool {
        let used = |ring: &Self| ring.last.0.wrapping_sub(ring.completed.0).max(ring.serial.wrapping_sub(ring.done));
        if used(self) >= ENTRIES {
            self.poll(queue, tally);
        }
        used(self) < ENTRIES
    }

    /// Where the next head is built.
    pub(super) fn head(&mut self) -> &mut [u8; HEAD] {
        let at = self.next() * HEAD;
        // SAFETY: the entry is free: nothing that names it is posted.
        let head = unsafe { self.memory.get_mut(at, HEAD) };
        head.and_then(|head| head.try_into().ok()).expect("the ring has as many heads as entries")
    }

    pub(super) const fn ticket(&self) -> Ticket {
        self.last.next()
    }

    const fn next(&self) -> usize {
        (self.last.next().0 % ENTRIES) as usize
    }

    /// Waits for its peer's handle, with a copy of its payload.
    #[cold]
    #[inline(never)]
    fn park<A: Lent>(&mut self, transmit: &Transmit, head: usize, payload: Option<(A, usize)>, tally: &Tally) {
        let entry = (self.last.0 % ENTRIES) as usize;
        let copied = payload.and_then(|(payload, bytes)| self.copy(entry, payload, bytes, tally));
        self.parked.push_back(Parked {
            ticket: self.last,
            to: transmit.to,
            at: transmit.at,
            head,
            copied: copied.map_or(0, |piece| piece.bytes),
            solicited: transmit.solicited,
            since: Instant::now(),
        });
    }

    /// Posts the entry. Without a destination it is lost, and has a ticket all the same.
    #[inline(always)]
    pub(super) fn post<A: Lent>(
        &mut self,
        transmit: &Transmit,
        payload: Option<A>,
        queue: Option<(&mut Queue, usize)>,
        table: &mut AddressTable,
        tally: &Tally,
    ) {
        let (entry, head) = (self.next(), usize::from(transmit.head).min(HEAD));
        self.last = self.last.next();
        if let Some(lent) = self.lent.get_mut(entry) {
            *lent = None;
        }
        let Some((queue, inline)) = queue.filter(|_| !self.failed) else {
            tally.lost_in_error.add(1);
            return;
        };
        let wanted = transmit.payload.map_or(0, |span| span.bytes as usize);
        let bytes = payload.map_or(0, Lent::bytes).min(wanted).min(self.mtu.saturating_sub(head));
        let payload = payload.filter(|_| bytes > 0);
        if head + bytes > inline {
            return self.gather(transmit, (entry, head), payload.map(|payload| (payload, bytes)), queue, table, tally);
        }
        let to = match table.destination(transmit.to, transmit.at) {
            Destination::Ready(to) => to,
            Destination::Pending if self.parked.len() < PARKED => {
                return self.park(transmit, head, payload.map(|payload| (payload, bytes)), tally);
            }
            _ => {
                tally.lost_no_path.add(1);
                return;
            }
        };
        let second = payload.map(|payload| Piece { start: payload.start(), bytes, key: 0 });
        tally.sent_inline.add(1);
        self.hand(queue, to, (self.head_of(entry, head), second), true, transmit.solicited);
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
        tally: &Tally,
    ) {
        let Destination::Ready(to) = table.destination(transmit.to, transmit.at) else {
            tally.lost_no_path.add(1);
            return;
        };
        let second = payload.and_then(|(payload, bytes)| match payload.key() {
            Some(key) => {
                *self.lent.get_mut(entry)? = Some(key);
                Some(Piece { start: payload.start(), bytes, key })
            }
            None => self.copy(entry, payload, bytes, tally),
        });
        self.gathered = Some(self.last);
        self.hand(queue, to, (self.head_of(entry, head), second), false, transmit.solicited);
    }

    fn head_of(&self, entry: usize, bytes: usize) -> Option<Piece> {
        Some(Piece { start: self.memory.part(entry * HEAD, bytes)?, bytes, key: self.registration.key() })
    }

    /// What was copied behind an entry's head.
    fn copied(&self, entry: usize, bytes: usize) -> Option<Piece> {
        let start = self.memory.part(HEADS + entry * self.mtu, bytes)?;
        Some(Piece { start, bytes, key: self.registration.key() })
    }

    /// Copies a payload to a free entry's room.
    fn copy<A: Lent>(&self, entry: usize, payload: A, bytes: usize, tally: &Tally) -> Option<Piece> {
        let room = self.copied(entry, bytes)?;
        tally.sent_copied.add(1);
        // SAFETY: `payload` has so many bytes, which its maker promised to be live and not written now (`Lent`); the room is the ring's own,
        // and the entry free.
        unsafe { payload.start().copy_to_nonoverlapping(room.start, bytes) };
        Some(room)
    }

    /// Gives a posting to the queue.
    #[inline(always)]
    fn hand(
        &mut self,
        queue: &mut Queue,
        to: To<'_>,
        pieces: (Option<Piece>, Option<Piece>),
        inline: bool,
        solicited: bool,
    ) {
        let (Some(head), payload) = pieces else { return };
        self.serial = self.serial.wrapping_add(1);
        if let Some(ticket) = self.tickets.get_mut((self.serial % ENTRIES) as usize) {
            *ticket = self.last;
        }
        // SAFETY: the entry's own memory, used by nothing else until it is complete; lent payload stays unchanged until then, as whoever
        // made its address promised (`Lent`); ways outlive what is posted with them.
        let taken = unsafe { queue.post(to, &Posting { head, payload, inline, solicited, tag: self.serial }) };
        // There is room for all entries, unless the adapter is at odds with itself.
        self.failed |= !taken;
    }

    /// Whether something waits for an address handle.
    pub(super) fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Posts what waited for a handle that there is now. What waited in vain, or too long, is lost.
    pub(super) fn unpark(
        &mut self,
        failed: &[PeerId],
        queue: Option<&mut Queue>,
        table: &mut AddressTable,
        tally: &Tally,
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
                    self.hand(queue, to, (self.head_of(entry, one.head), payload), true, one.solicited);
                    posted = true;
                }
                Destination::Pending if one.since.elapsed() < PATIENCE => self.parked.push_back(one),
                _ => tally.lost_no_path.add(1),
            }
        }
        if posted {
            self.hand_over(Some(queue), tally);
        }
        self.settle();
    }

    /// Hands what was posted to the adapter. The last asks for a completion when memory is read, or when none was asked for in a while.
    #[inline(always)]
    pub(super) fn flush(&mut self, queue: Option<&mut Queue>, tally: &Tally) {
        if self.flushed == self.last {
            return;
        }
        self.hand_over(queue, tally);
    }

    #[inline(always)]
    fn hand_over(&mut self, queue: Option<&mut Queue>, tally: &Tally) {
        let count = self.serial.wrapping_sub(mem::replace(&mut self.handed, self.serial));
        self.flushed = self.last;
        match queue {
            Some(queue) if count > 0 && !self.failed => {
                let signal = self.gathered.is_some() || self.behind() >= QUIET;
                if signal {
                    self.signalled = Some(self.serial);
                    self.asked = self.serial;
                }
                tally.send_calls.add(1);
                // SAFETY: what `hand` posted names the entries' own memory and lent payload, both of which stay until they are complete, and ways
                // that outlive what is posted with them.
                if unsafe { queue.flush(signal) } {
                    tally.sent.add(count.into());
                } else {
                    // Some may have been taken. The queue is made anew, after which none is.
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

    /// Takes completions. Returns the last ticket that is complete. Postings that asked for none complete in error all the same, which
    /// is looked for now and then.
    pub(super) fn poll(&mut self, queue: Option<&mut Queue>, tally: &Tally) -> Ticket {
        self.looks = self.looks.wrapping_add(1);
        let expected = self.signalled.is_some() || self.behind() > 0 && self.looks.is_multiple_of(QUIET);
        let Some(queue) = queue.filter(|_| expected) else { return self.completed };
        while let Some(fate) = queue.sent() {
            let (tag, ok) = match fate {
                Fate::Done(tag) => (Some(tag), true),
                Fate::Failed(tag, _) => (tag, false),
                Fate::Malformed => (None, false),
            };
            if !ok {
                tally.failed.add(1);
                self.failed = true;
            }
            let known = tag.filter(|tag| self.serial.wrapping_sub(*tag) < ENTRIES);
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
            self.done = tag;
            self.gathered = self.gathered.filter(|gathered| !gathered.is_within(ticket));
        }
        self.settle();
        self.completed
    }

    /// Postings behind the last that asked for a completion.
    const fn behind(&self) -> u32 {
        self.serial.wrapping_sub(self.asked)
    }

    /// What is flushed is complete when nothing of it is read from memory.
    fn settle(&mut self) {
        if self.gathered.is_none() && !self.failed {
            self.completed = self.bound(self.flushed);
        }
    }

    /// What is parked is not complete, nor what came after it.
    fn bound(&self, ticket: Ticket) -> Ticket {
        match self.parked.front() {
            Some(first) if first.ticket.is_within(ticket) => Ticket(first.ticket.0.wrapping_sub(1)),
            _ => ticket,
        }
    }

    /// The queue was made anew, or is gone: nothing is under way, and what was to be handed over is lost.
    pub(super) fn forget(&mut self, tally: &Tally) {
        let left = self.serial.wrapping_sub(self.handed);
        tally.lost_in_error.add(u64::from(left) + self.parked.len() as u64);
        (self.signalled, self.gathered) = (None, None);
        (self.handed, self.asked, self.done) = (self.serial, self.serial, self.serial);
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
    pub(super) tally: &'a Tally,
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
    fn head(&mut self) -> &mut [u8; HEAD] {
        self.ring.head()
    }

    /// A payload is cut to what lies at the address and to the MTU: what the caller promised not to exceed.
    #[inline(always)]
    fn post(self, transmit: &Transmit, payload: Option<A>) {
        let queue = self.queue.map(|queue| (queue, self.inline));
        self.ring.post(transmit, payload, queue, self.table, self.tally);
    }
}
