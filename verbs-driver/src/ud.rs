//! The UD device: two queue pairs, one for each lane, over rdma-core. Their work queues are written by libibverbs, or
//! by the driver itself.
//!
//! ```text
//!  post → send ring ─ one doorbell, one completion → queue pair → link
//!  receive ← receive pool ← completion queue ← queue pair          waiter ─ completion channel
//! ```
//!
//! A datagram is a header and a payload, gathered from registered memory without a copy. A short one is inline in the
//! work queue entry; unregistered payload is copied next to its header. The link checks every datagram (ICRC). The
//! global routing header that precedes arrivals holds their source and is skipped.

mod address_table;
mod arrival_waiter;
mod async_events;
mod counters;
mod domain;
mod gid;
mod library;
mod multicast;
mod pages;
mod queue;
mod receive_pool;
mod resolver;
mod send_ring;
pub mod uverbs;

pub use address_table::{Path, PathError, RECORD};
pub use arrival_waiter::{Bell, Woken};
pub use domain::{Domain, OpenError, Registration, adapters};

pub use crate::registered_memory::Registered as Lent;
pub use counters::{Counter, Tally};
pub use gid::{Candidate, Encapsulation, Gid, choose};
pub use queue::{Provider, Queues, Writer};
pub use receive_pool::Datagram;
pub use send_ring::UdToken;

use alloc::borrow::ToOwned;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::net::IpAddr;
use core::time::Duration;
use std::time::Instant;

use unisono_core::device::{Armed, Device, Fact, Lane, Limits, Slot, Ticket, Wish};
use unisono_core::ids::PeerId;

use address_table::{AddressTable, Resolved};
use async_events::{Events, Report};
use multicast::Membership;
use queue::{Depth, Queue};
use receive_pool::ReceivePool;
use send_ring::SendRing;

/// Datagrams of the interrupt lane that can wait.
const INTERRUPT_SLOTS: u32 = 64;
/// Early datagrams of the interrupt lane that can be set aside.
const INTERRUPT_HOLDABLE: u32 = 64;
/// The first slot of the interrupt lane.
const INTERRUPT_BASE: u32 = 1 << 16;
/// Shortest useful timeout in nanoseconds: that of a scheduler, since Soft-RoCE works in kernel threads.
const GRANULARITY_NS: u32 = 250_000;
/// How long an adapter may take to complete postings.
const PATIENCE: Duration = Duration::from_secs(1);
/// Interval between two checks of an adapter that is down, or may be.
const LOOK: Duration = Duration::from_millis(50);
/// How long an adapter is checked after a change of its addresses.
const SUSPECT: Duration = Duration::from_secs(1);

/// Options of a UD device.
#[derive(Clone, Debug)]
pub struct Options {
    /// Peers and groups for which the address table has room, 23 bytes each.
    pub peers: u32,
    /// The job's Q_Key: the adapter drops datagrams with another one. Its highest bit is cleared, since that would
    /// select the queue pair's own key.
    pub key: u32,
    /// Receive slots of the polled lane.
    pub receive_slots: u16,
    /// Early datagrams of the polled lane that can be held.
    pub holdable: u16,
    /// Entries of libibverbs' completion queues of receives; with fewer than the slots plus 16 they can overrun.
    /// Default: as many as are posted or held.
    pub completions: Option<u32>,
    /// Who writes the queues.
    pub queues: Queues,
}

impl Options {
    /// Defaults for `peers` peers: 512 slots, 256 held datagrams, queues written directly if possible.
    pub const fn new(peers: u32, key: u32) -> Self {
        Self { peers, key, receive_slots: 512, holdable: 256, completions: None, queues: Queues::Auto }
    }

    /// The job's key, without its highest bit.
    const fn key(&self) -> u32 {
        self.key & (u32::MAX >> 1)
    }
}

/// One lane: a queue pair with its rings.
struct Half {
    // Before the memory that it uses, when all are dropped.
    memberships: Vec<Membership>,
    queue: Option<Queue>,
    ring: SendRing,
    pool: ReceivePool,
    bell: Bell,
    number: u32,
    inline: usize,
    /// Whether its failure was reported.
    is_told: bool,
}

impl Half {
    fn new(
        domain: &Arc<Domain>,
        options: &Options,
        (by, lane): (Writer, Lane),
        (slots, holdable): (u32, u32),
    ) -> Result<Self, OpenError> {
        let base = if lane == Lane::Polled { 0 } else { INTERRUPT_BASE };
        let posted = ReceivePool::posted(slots);
        let completions = options.completions.unwrap_or(posted + holdable);
        let depth = Depth { sends: send_ring::ENTRIES, receives: posted, completions };
        let ring = SendRing::new(domain, domain.mtu() as usize)?;
        let mut pool = ReceivePool::new(domain, base, slots, holdable)?;
        let mut queue = Queue::new(domain, (by, lane), depth, options.key())?;
        pool.post_all(&mut queue);
        let bell = Bell::new(queue.descriptor()).map_err(|error| OpenError::Refused { what: "fcntl", error })?;
        let (number, inline) = (queue.number(), queue.inline());
        Ok(Self { memberships: Vec::new(), queue: Some(queue), ring, pool, bell, number, inline, is_told: false })
    }

    /// Restarts a failed queue pair under its own number. Returns whether it did.
    fn mend(&mut self, tally: &Tally) -> bool {
        let Some(queue) = &mut self.queue else { return false };
        // Datagrams that arrived before the failure are kept.
        self.pool.poll(queue, tally);
        if queue.restart().is_err() {
            return false;
        }
        self.ring.forget(tally);
        self.pool.post_all(queue);
        tally.rebuilt.add(1);
        true
    }

    const fn bytes(&self) -> usize {
        self.ring.bytes() + self.pool.bytes()
    }

    const fn is_broken(&self) -> bool {
        self.ring.failed || self.pool.failed
    }

    fn close(&mut self, tally: &Tally) {
        self.memberships.clear();
        self.bell.detach();
        self.queue = None;
        self.ring.forget(tally);
    }
}

/// The state of the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Up,
    Down,
    Closed,
}

/// A [`Device`] over unreliable datagrams.
///
/// `A` is a piece of a user buffer. Posted payload must stay until its ticket is completed, as
/// [`Token::post`](unisono_core::device::Token::post) requires.
pub struct Ud<A> {
    // Its thread ends before the adapter is closed.
    events: Option<Events>,
    polled: Half,
    interrupt: Half,
    writer: Writer,
    refused: Option<OpenError>,
    table: AddressTable,
    tally: Arc<Tally>,
    facts: VecDeque<Fact>,
    state: State,
    /// When the adapter was last checked, and until when it is to be checked.
    looked: Instant,
    suspect: Instant,
    limits: Limits,
    domain: Arc<Domain>,
    lends: PhantomData<fn(A)>,
}

impl<A> Ud<A> {
    /// Creates both queue pairs on the domain's port.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn new(domain: &Arc<Domain>, options: &Options) -> Result<Self, OpenError> {
        let (slots, holdable) = (u32::from(options.receive_slots), u32::from(options.holdable));
        let halves = |by| -> Result<_, OpenError> {
            let polled = Half::new(domain, options, (by, Lane::Polled), (slots, holdable))?;
            let few = (INTERRUPT_SLOTS, INTERRUPT_HOLDABLE);
            Ok((by, polled, Half::new(domain, options, (by, Lane::Interrupt), few)?))
        };
        let (first, otherwise) =
            options.queues.writers(domain.provider()).ok_or_else(|| OpenError::NoProvider(domain.name().to_owned()))?;
        // libibverbs may or may not fail for the same reason.
        let ((writer, polled, interrupt), refused) = match (halves(first), otherwise) {
            (Err(error), Some(other)) => (halves(other)?, Some(error)),
            (made, _) => (made?, None),
        };
        let bells = [polled.bell.clone(), interrupt.bell.clone()];
        let events = Events::start(domain, bells).map_err(|error| OpenError::Refused { what: "a thread", error })?;
        let limits = Limits {
            mtu: domain.mtu(),
            receive_slots: slots,
            holdable: holdable.min(INTERRUPT_HOLDABLE.max(holdable)),
            granularity_ns: GRANULARITY_NS,
            lossless: false,
            interrupts: true,
        };
        Ok(Self {
            events: Some(events),
            polled,
            interrupt,
            writer,
            refused,
            table: AddressTable::new(domain, writer, options.peers, options.key())?,
            tally: Arc::default(),
            facts: VecDeque::new(),
            state: State::Up,
            looked: Instant::now(),
            suspect: Instant::now(),
            limits,
            domain: Arc::clone(domain),
            lends: PhantomData,
        })
    }

    /// The path to this device, for the peers to [`set_path`](Self::set_path).
    pub fn local(&self) -> Path {
        Path { gid: self.domain.gid().gid, polled: self.polled.number, interrupt: self.interrupt.number }
    }

    /// Sets the path to a peer or group, and its largest datagram in bytes.
    ///
    /// # Errors
    /// [`PathError`].
    pub fn set_path(&mut self, peer: PeerId, path: Path, mtu: u32) -> Result<(), PathError> {
        self.table.set(peer, path, mtu.min(self.domain.mtu()))
    }

    /// The adapter it works on.
    pub const fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Who writes its queues.
    pub const fn writer(&self) -> Writer {
        self.writer
    }

    /// Why the driver does not write the queues itself, although it could and `--queues` does not exclude it.
    pub const fn refused(&self) -> Option<&OpenError> {
        self.refused.as_ref()
    }

    /// A waiter for a lane's arrivals that does not hold the device.
    pub fn bell(&self, lane: Lane) -> Bell {
        match lane {
            Lane::Polled => self.polled.bell.clone(),
            Lane::Interrupt => self.interrupt.bell.clone(),
        }
    }

    /// The counters, readable while the device works.
    pub fn tally(&self) -> Arc<Tally> {
        Arc::clone(&self.tally)
    }

    /// Number of address handles.
    pub fn handles(&self) -> usize {
        self.table.handles()
    }

    /// Whether all rings are in reserved huge pages.
    pub const fn is_huge(&self) -> bool {
        self.polled.ring.is_huge()
            && self.polled.pool.is_huge()
            && self.interrupt.ring.is_huge()
            && self.interrupt.pool.is_huge()
    }

    /// Whether the adapter is gone for good.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Joins a group with the polled lane. Returns the GID of datagrams to the group, for [`Path::group`]. A member
    /// also receives its own datagrams.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn join(&mut self, group: IpAddr) -> Result<Gid, OpenError> {
        let member = self.polled.queue.as_ref().and_then(Queue::member);
        let member = member.ok_or_else(|| OpenError::code("rdma_join_multicast", libc::ENODEV))?;
        let membership = Membership::join(&self.domain, member, group)?;
        let gid = membership.gid();
        self.polled.memberships.push(membership);
        Ok(gid)
    }

    /// Leaves a group. Returns whether it was a member.
    pub fn leave(&mut self, group: Gid) -> bool {
        let before = self.polled.memberships.len();
        self.polled.memberships.retain(|membership| membership.gid() != group);
        before != self.polled.memberships.len()
    }

    /// Bytes of the rings: headers, copied payload, receive slots.
    pub const fn ring_bytes(&self) -> usize {
        self.polled.bytes() + self.interrupt.bytes()
    }

    /// Waits until no posting references memory with this lkey, whose owner wants it back. A queue pair that does not
    /// complete within a second is restarted; if even that fails, the device is closed. Without such a posting, only
    /// checks the postings under way.
    pub fn settle(&mut self, key: u32)
    where
        A: Lent,
    {
        for lane in [Lane::Polled, Lane::Interrupt] {
            self.flush(lane);
            let started = Instant::now();
            while self.half(lane).ring.names(key) {
                self.completed(lane);
                if started.elapsed() < PATIENCE {
                    continue;
                }
                self.half(lane).ring.failed = true;
                self.tend();
                if self.half(lane).ring.names(key) {
                    self.close();
                }
            }
        }
    }

    /// Moves a lane's queue pair into the error state, as a failing adapter does: for tests of recovery.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn fail(&mut self, lane: Lane) -> Result<(), OpenError> {
        match &mut self.half(lane).queue {
            Some(queue) => queue.fail(),
            None => Err(OpenError::code("ibv_modify_qp", libc::ENODEV)),
        }
    }

    /// Whether a datagram is available on the lane.
    #[inline(always)]
    pub fn look(&mut self, lane: Lane) -> bool {
        if self.table.has_answers() {
            self.hear();
        }
        let Self { polled, interrupt, tally, .. } = self;
        let half = match lane {
            Lane::Polled => polled,
            Lane::Interrupt => interrupt,
        };
        half.pool.look(half.queue.as_mut(), tally)
    }

    const fn half(&mut self, lane: Lane) -> &mut Half {
        match lane {
            Lane::Polled => &mut self.polled,
            Lane::Interrupt => &mut self.interrupt,
        }
    }

    /// Handles the adapter's asynchronous events and restarts failed queue pairs.
    fn tend(&mut self) {
        let reports = self.events.as_ref().map(Events::take).unwrap_or_default();
        for report in reports {
            match report {
                Report::QueueFailed(element) | Report::Overrun(element) => {
                    let overrun = matches!(report, Report::Overrun(_));
                    for half in [&mut self.polled, &mut self.interrupt] {
                        if half.queue.as_ref().is_some_and(|queue| queue.is(element)) {
                            half.pool.failed = true;
                            self.tally.overruns.add(overrun.into());
                        }
                    }
                }
                Report::PortDown => self.go(State::Down),
                Report::PortUp => self.go(State::Up),
                Report::Changed => self.suspect = Instant::now() + SUSPECT,
                Report::Fatal => self.close(),
            }
        }
        self.hear();
        self.examine();
        if self.state == State::Closed {
            return;
        }
        for half in [&mut self.polled, &mut self.interrupt] {
            if half.is_broken() {
                // Once, however often the restart fails.
                if !core::mem::replace(&mut half.is_told, true) {
                    self.facts.push_back(Fact::Down);
                }
                if half.mend(&self.tally) {
                    half.is_told = false;
                    self.facts.push_back(Fact::Up);
                }
            }
        }
    }

    /// Takes new address handles, and posts the datagrams that waited for them.
    fn hear(&mut self) {
        if !self.table.has_answers() && !self.polled.ring.has_parked() && !self.interrupt.ring.has_parked() {
            return;
        }
        let Self { table, tally, facts, polled, interrupt, .. } = self;
        let mut failed = Vec::new();
        for Resolved { peer, made, wished } in table.answers(tally) {
            if !made {
                failed.push(peer);
            }
            if wished {
                facts.push_back(table.fact(peer, made));
            }
        }
        for half in [polled, interrupt] {
            if half.ring.has_parked() {
                half.ring.unpark(&failed, half.queue.as_mut(), table, tally);
            }
        }
    }

    /// Checks an adapter that is down or suspect, from time to time. Otherwise this compares two numbers.
    fn examine(&mut self) {
        let doubtful = self.state == State::Down || self.state == State::Up && self.suspect > self.looked;
        if !doubtful || self.looked.elapsed() < LOOK {
            return;
        }
        self.looked = Instant::now();
        if !self.domain.has_interface() {
            self.close();
        } else if self.domain.is_active() {
            self.go(State::Up);
        } else {
            self.go(State::Down);
        }
    }

    fn go(&mut self, to: State) {
        let (was, is) = (self.state == State::Up, to == State::Up);
        if self.state == State::Closed {
            return;
        }
        self.state = to;
        if was != is {
            self.facts.push_back(if is { Fact::Up } else { Fact::Down });
        }
    }

    /// Releases all verbs resources; the kernel waits for that before it removes an adapter.
    fn close(&mut self) {
        self.go(State::Closed);
        self.polled.close(&self.tally);
        self.interrupt.close(&self.tally);
        self.table.clear();
        self.events = None;
        self.domain.close();
    }
}

impl<A: Lent> Device for Ud<A> {
    type Address = A;
    type Token<'a>
        = UdToken<'a, A>
    where
        A: 'a;
    type Received<'a>
        = Datagram<'a>
    where
        A: 'a;

    fn limits(&self) -> Limits {
        self.limits
    }

    #[inline]
    fn token(&mut self, lane: Lane) -> Option<UdToken<'_, A>> {
        let Self { polled, interrupt, table, tally, .. } = self;
        let half = match lane {
            Lane::Polled => polled,
            Lane::Interrupt => interrupt,
        };
        let (ring, mut queue, inline) = (&mut half.ring, half.queue.as_mut(), half.inline);
        let room = ring.has_room(queue.as_deref_mut(), tally);
        room.then_some(UdToken { ring, table, tally, queue, inline, lends: PhantomData })
    }

    #[inline(always)]
    fn flush(&mut self, lane: Lane) {
        let Self { polled, interrupt, tally, .. } = self;
        let half = match lane {
            Lane::Polled => polled,
            Lane::Interrupt => interrupt,
        };
        half.ring.flush(half.queue.as_mut(), tally);
        half.pool.repost(half.queue.as_mut());
    }

    fn completed(&mut self, lane: Lane) -> Ticket {
        let Self { polled, interrupt, tally, .. } = self;
        let half = match lane {
            Lane::Polled => polled,
            Lane::Interrupt => interrupt,
        };
        let completed = half.ring.poll(half.queue.as_mut(), tally);
        if half.ring.has_parked() {
            self.hear();
            return self.half(lane).ring.poll(None, &Tally::default());
        }
        if !half.ring.failed {
            return completed;
        }
        self.tend();
        let half = self.half(lane);
        half.ring.poll(None, &Tally::default())
    }

    #[inline(always)]
    fn receive(&mut self, lane: Lane) -> Option<Datagram<'_>> {
        // A caller that drains the lane asks once more after the last datagram: the adapter need not be polled for
        // that.
        if self.half(lane).pool.is_drained() || !self.look(lane) {
            return None;
        }
        let Self { polled, interrupt, table, .. } = self;
        let half = match lane {
            Lane::Polled => polled,
            Lane::Interrupt => interrupt,
        };
        half.pool.next(table)
    }

    fn place(&mut self, from: Slot, start: u16, bytes: u32, to: A) {
        let half = if from.0 < INTERRUPT_BASE { &self.polled } else { &self.interrupt };
        half.pool.place(from, start.into(), bytes as usize, to);
    }

    fn hold(&mut self, slot: Slot) {
        let half = if slot.0 < INTERRUPT_BASE { &mut self.polled } else { &mut self.interrupt };
        half.pool.hold(slot, half.queue.as_mut());
    }

    fn held(&self, slot: Slot) -> Datagram<'_> {
        let half = if slot.0 < INTERRUPT_BASE { &self.polled } else { &self.interrupt };
        half.pool.datagram(slot, &self.table)
    }

    fn release(&mut self, slot: Slot) {
        let half = if slot.0 < INTERRUPT_BASE { &mut self.polled } else { &mut self.interrupt };
        half.pool.release(slot, half.queue.as_mut());
    }

    /// The interrupt lane's event is raised by datagrams whose senders solicit it, the polled lane's by any.
    fn arm(&mut self, lane: Lane) -> Armed {
        let tally = Arc::clone(&self.tally);
        let half = self.half(lane);
        if let Some(queue) = &mut half.queue {
            queue.arm(lane == Lane::Interrupt);
            // A datagram that arrived before the call raises no event.
            half.pool.poll(queue, &tally);
        }
        // A new address handle raises no event; a parked datagram waits for one for 2 ms at most.
        if half.pool.has_waiting() || half.ring.has_parked() { Armed::Pending } else { Armed::Armed }
    }

    /// The resolver's thread creates address handles, for [`Wish::Resolve`] or the first posting. A short first posting
    /// waits for it, at most 2 ms; otherwise it is lost.
    fn ask(&mut self, wish: Wish) {
        match wish {
            Wish::Resolve(peer) => {
                if let Some(made) = self.table.resolve(peer) {
                    self.facts.push_back(self.table.fact(peer, made));
                }
            }
            Wish::Forget(peer) => self.table.forget(peer),
        }
    }

    fn poll_fact(&mut self) -> Option<Fact> {
        self.tend();
        self.facts.pop_front()
    }
}

impl<A> Drop for Ud<A> {
    fn drop(&mut self) {
        self.events = None;
        self.polled.close(&self.tally);
        self.interrupt.close(&self.tally);
        self.table.clear();
    }
}
