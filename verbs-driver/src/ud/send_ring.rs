//! The send entries of a lane: heads and room for copied payload in registered memory, work requests in a chain until the
//! flush, which asks for one completion, if any.
//!
//! What travels in the work queue entry is finished when it is flushed: the adapter has a copy. So a chain of short datagrams asks for
//! a completion only when the queue has taken a quarter of its entries since the last that did.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::marker::PhantomData;
use core::mem::{self, MaybeUninit};
use core::ptr::{self, NonNull};
use core::time::Duration;
use std::time::Instant;

use rdma_core_sys as sys;
use unisono_core::device::{HEAD, Lane, PeerId, Ticket, Token, Transmit};

use super::address_table::{AddressTable, Destination};
use super::domain::{Domain, OpenError, Registration};
use super::lent::Lent;
use super::pages::Pages;
use super::queue::{POLLED, Queue};
use super::tally::Tally;

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
    since: Instant,
}

/// Free entries, the chain that is not flushed, and the tickets of a lane.
pub(super) struct SendRing {
    // Before the pages that it names, when both are dropped.
    registration: Registration,
    /// All heads, side by side so that short datagrams touch few pages; then for each entry room for a payload that is copied.
    memory: Pages,
    mtu: usize,
    requests: Box<[sys::ibv_send_wr]>,
    pieces: Box<[[sys::ibv_sge; 2]]>,
    /// The chain: its first and last entry. Entries that are lost have no part in it.
    chain: Option<(usize, usize)>,
    /// How many that are.
    chained: u32,
    key: u32,
    last: Ticket,
    flushed: Ticket,
    /// The last entry that asked for a completion, while it has not come.
    signalled: Option<u64>,
    /// The last entry whose bytes the adapter reads from memory, while they may be read.
    gathered: Option<Ticket>,
    /// Requests that may be in the adapter's queue or in the chain, and those of them behind the last that asked for a completion.
    occupied: u32,
    behind: u32,
    /// Requests that were ever in the chain: the upper half of their numbers, above the ticket.
    serial: u32,
    /// In the order of their tickets.
    parked: VecDeque<Parked>,
    /// Calls of `poll`.
    looks: u32,
    completed: Ticket,
    /// A completion or a posting failed: the queue must be made anew.
    pub(super) failed: bool,
}

// SAFETY: the pointers in requests lead to the ring's own arrays and to lent memory; they are used under its borrow.
unsafe impl Send for SendRing {}

impl SendRing {
    pub(super) fn new(domain: &Arc<Domain>, mtu: usize, key: u32) -> Result<Self, OpenError> {
        let refused = |what| move |error| OpenError::Refused { what, error };
        let memory = Pages::map(HEADS + mtu * ENTRIES as usize).map_err(refused("mmap"))?;
        // SAFETY: the ring keeps its pages until the registration is dropped.
        let registration = unsafe { domain.register(memory.start(), memory.bytes()) }.map_err(refused("ibv_reg_mr"))?;
        let request = || {
            // SAFETY: numbers and pointers that may be null.
            unsafe { MaybeUninit::<sys::ibv_send_wr>::zeroed().assume_init() }
        };
        let piece = sys::ibv_sge { addr: 0, length: 0, lkey: 0 };
        Ok(Self {
            memory,
            registration,
            mtu,
            requests: (0..ENTRIES).map(|_| request()).collect(),
            pieces: alloc::vec![[piece; 2]; ENTRIES as usize].into_boxed_slice(),
            chain: None,
            chained: 0,
            key,
            last: Ticket::default(),
            flushed: Ticket::default(),
            signalled: None,
            gathered: None,
            occupied: 0,
            behind: 0,
            serial: 0,
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
        (1..=under_way).map(|later| (self.completed.0.wrapping_add(later) % ENTRIES) as usize).any(|entry| {
            let list = self.requests.get(entry).map_or(0, |request| request.num_sge as usize);
            self.pieces.get(entry).is_some_and(|pieces| pieces.iter().take(list).any(|piece| piece.lkey == key))
        })
    }

    /// Whether an entry is free, after a look at the completions if need be.
    pub(super) fn has_room(&mut self, queue: Option<&mut Queue>, tally: &Tally) -> bool {
        let used = |ring: &Self| ring.last.0.wrapping_sub(ring.completed.0).max(ring.occupied);
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

    /// Adds the entry to the chain. Without a destination it is lost, and has a ticket all the same.
    pub(super) fn post<A: Lent>(
        &mut self,
        transmit: &Transmit,
        payload: Option<A>,
        inline: usize,
        table: &mut AddressTable,
        tally: &Tally,
    ) {
        let (entry, head) = (self.next(), usize::from(transmit.head).min(HEAD));
        self.last = self.last.next();
        let destination = table.destination(transmit.to, transmit.at);
        let wanted = transmit.payload.map_or(0, |span| span.bytes as usize);
        let lent = payload.map_or(0, Lent::bytes).min(wanted).min(self.mtu.saturating_sub(head));
        let key = self.registration.key();
        let first = sys::ibv_sge { addr: self.memory.address(entry * HEAD), length: head as u32, lkey: key };
        let mut second = None;
        let fits = head + lent <= inline;
        let parks = destination == Destination::Pending && fits && self.parked.len() < PARKED;
        if !parks && !matches!(destination, Destination::Ready(..)) {
            tally.lost_no_path.add(1);
            return;
        }
        match payload.filter(|_| lent > 0).map(|payload| (payload, payload.key())) {
            None => {}
            Some((payload, _)) if fits && !parks => second = Some((payload.start().addr().get() as u64, 0)),
            Some((payload, Some(key))) if !parks => second = Some((payload.start().addr().get() as u64, key)),
            Some((payload, _)) => {
                let at = HEADS + entry * self.mtu;
                // SAFETY: the entry is free.
                if let Some(room) = unsafe { self.memory.get_mut(at, lent) } {
                    // SAFETY: `payload` has so many bytes, which its maker says are live; the room is the ring's own.
                    unsafe { payload.start().as_ptr().copy_to_nonoverlapping(room.as_mut_ptr(), lent) };
                    second = Some((self.memory.address(at), key));
                    tally.sent_copied.add(1);
                }
            }
        }
        let (Some(request), Some(pieces)) = (self.requests.get_mut(entry), self.pieces.get_mut(entry)) else { return };
        let mut count = 1;
        pieces[0] = first;
        if let Some((addr, lkey)) = second {
            pieces[1] = sys::ibv_sge { addr, length: lent as u32, lkey };
            count = 2;
        }
        let mut flags = 0;
        if fits {
            flags |= sys::ibv_send_flags::IBV_SEND_INLINE.0;
            tally.sent_inline.add(1);
        } else {
            self.gathered = Some(self.last);
        }
        if transmit.solicited {
            flags |= sys::ibv_send_flags::IBV_SEND_SOLICITED.0;
        }
        request.sg_list = pieces.as_mut_ptr();
        request.num_sge = count;
        request.opcode = sys::ibv_wr_opcode::IBV_WR_SEND;
        request.send_flags = flags;
        match destination {
            Destination::Ready(handle, number) => self.append(entry, handle, number),
            _ => self.parked.push_back(Parked {
                ticket: self.last,
                to: transmit.to,
                at: transmit.at,
                since: Instant::now(),
            }),
        }
    }

    /// Adds a filled entry to the chain.
    fn append(&mut self, entry: usize, handle: NonNull<sys::ibv_ah>, number: u32) {
        self.occupied = self.occupied.saturating_add(1);
        self.chained = self.chained.saturating_add(1);
        self.behind = self.behind.saturating_add(1);
        let Some(request) = self.requests.get_mut(entry) else { return };
        self.serial = self.serial.wrapping_add(1);
        request.wr_id = u64::from(self.serial) << 32 | u64::from(self.last.0);
        request.next = ptr::null_mut();
        request.wr.ud = sys::ud_t { ah: handle.as_ptr(), remote_qpn: number, remote_qkey: self.key };
        let request = ptr::from_mut(request);
        self.chain = match self.chain {
            None => Some((entry, entry)),
            Some((first, before)) => {
                if let Some(before) = self.requests.get_mut(before) {
                    before.next = request;
                }
                Some((first, entry))
            }
        };
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
        let mut posted = false;
        for _ in 0..self.parked.len() {
            let Some(one) = self.parked.pop_front() else { break };
            let destination =
                if failed.contains(&one.to) { Destination::Nowhere } else { table.destination(one.to, one.at) };
            match destination {
                Destination::Ready(handle, number) => {
                    self.append((one.ticket.0 % ENTRIES) as usize, handle, number);
                    posted = true;
                }
                Destination::Pending if one.since.elapsed() < PATIENCE => self.parked.push_back(one),
                _ => tally.lost_no_path.add(1),
            }
        }
        if posted {
            self.hand_over(queue, tally);
        }
        self.settle();
    }

    /// Hands the chain to the adapter. Its last entry asks for a completion when memory is read, or when none was asked for in a while.
    pub(super) fn flush(&mut self, queue: Option<&mut Queue>, tally: &Tally) {
        if self.flushed == self.last {
            return;
        }
        self.hand_over(queue, tally);
    }

    fn hand_over(&mut self, queue: Option<&mut Queue>, tally: &Tally) {
        let (chain, count) = (self.chain.take(), mem::take(&mut self.chained));
        self.flushed = self.last;
        match (chain, queue) {
            (Some((first, last)), Some(queue)) if !self.failed => {
                if (self.gathered.is_some() || self.behind >= QUIET)
                    && let Some(request) = self.requests.get_mut(last)
                {
                    request.send_flags |= sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
                    self.signalled = Some(request.wr_id);
                    self.behind = 0;
                }
                let first = self.requests.as_mut_ptr().wrapping_add(first);
                tally.send_calls.add(1);
                // SAFETY: entries of the ring, filled by `post` and used by nothing until they are complete; lent payload stays
                // as the caller of `post` promised; handles outlive what is posted with them.
                if unsafe { queue.post_sends(first) } {
                    tally.sent.add(count.into());
                } else {
                    // Some may have been taken. The queue is made anew, after which none is.
                    self.failed = true;
                    tally.lost_in_error.add(count.into());
                }
            }
            (Some(_), queue) => {
                tally.lost_in_error.add(count.into());
                if queue.is_none() {
                    self.forget(tally);
                }
            }
            (None, _) => {}
        }
        self.settle();
    }

    /// Takes completions. Returns the last ticket that is complete. Postings that asked for none complete in error all the same, which
    /// is looked for now and then.
    pub(super) fn poll(&mut self, queue: Option<&mut Queue>, tally: &Tally) -> Ticket {
        self.looks = self.looks.wrapping_add(1);
        let expected = self.signalled.is_some() || self.behind > 0 && self.looks.is_multiple_of(QUIET);
        let Some(queue) = queue.filter(|_| expected) else { return self.completed };
        loop {
            let count = queue.poll_sent(|completion| {
                let ticket = Ticket(completion.number as u32);
                let upto = self.bound(ticket);
                if self.completed.is_within(upto) {
                    self.completed = upto;
                }
                if self.signalled == Some(completion.number) {
                    self.signalled = None;
                }
                self.occupied = self.serial.wrapping_sub((completion.number >> 32) as u32);
                self.gathered = self.gathered.filter(|gathered| !gathered.is_within(ticket));
                if !completion.ok {
                    tally.failed.add(1);
                    self.failed = true;
                }
            });
            if count < POLLED {
                break;
            }
        }
        self.settle();
        self.completed
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
        let left = mem::take(&mut self.chained) as usize + self.parked.len();
        tally.lost_in_error.add(left as u64);
        (self.signalled, self.gathered) = (None, None);
        (self.occupied, self.behind) = (0, 0);
        (self.chain, self.flushed) = (None, self.last);
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
    pub(super) inline: usize,
    pub(super) lends: PhantomData<A>,
}

impl<A: Lent> Token for UdToken<'_, A> {
    type Address = A;

    fn ticket(&self) -> Ticket {
        self.ring.ticket()
    }

    fn head(&mut self) -> &mut [u8; HEAD] {
        self.ring.head()
    }

    /// A payload is cut to what lies at the address and to the MTU: what the caller promised not to exceed.
    fn post(self, transmit: &Transmit, payload: Option<A>) {
        self.ring.post(transmit, payload, self.inline, self.table, self.tally);
    }
}
