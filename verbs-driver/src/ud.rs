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
mod groups;
mod library;
mod multicast;
mod pages;
mod queue;
mod rails;
mod receive_pool;
mod resolver;
mod send_ring;
pub mod uverbs;

pub use address_table::{Path, PathError, RECORD};
pub use arrival_waiter::{ArrivalWaiter, WakeReason};
pub use domain::{Domain, OpenError, Registration, adapters};
pub(crate) use domain::{OpenDomain, device_attributes, no_attributes};

pub use crate::registered_memory::RegisteredMemory as Lent;
pub use counters::{Counter, UdCounters};
pub use gid::{Candidate, Encapsulation, Gid, choose};
pub use groups::GroupAddressError;
pub use queue::{Provider, QueueChoice, Writer};
pub use rails::{RailDatagram, RailsToken, RailsWaiter, UdRailCounts, UdRails};
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

use unisono_core::device::{Armed, Device, DeviceEvent, DeviceQueue, GroupError, Limits, PathRequest, Slot, Ticket};
use unisono_core::ids::{GroupId, PeerId, Rail};

use address_table::{AddressTable, Resolved};
use async_events::{Events, Report};
use groups::{Groups, Joined};
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
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a join waits for the group's address handle: it needs no other host, but the requests before it may.
const GROUP_HANDLE_TIMEOUT: Duration = Duration::from_millis(100);
/// Interval between two checks of an adapter that is down, or may be.
const PROBE_INTERVAL: Duration = Duration::from_millis(50);
/// How long an adapter is checked after a change of its addresses.
const SUSPECT_TIME: Duration = Duration::from_secs(1);

/// Options of a UD device.
#[derive(Clone, Debug)]
pub struct UdOptions {
    /// Peers for which the address table has room, 23 bytes each.
    pub peers: u32,
    /// Multicast groups that the device can be a member of at a time.
    pub groups: u16,
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
    pub queues: QueueChoice,
}

impl UdOptions {
    /// Defaults for `peers` peers: no groups, 512 slots, 256 held datagrams, queues written directly if possible.
    pub const fn new(peers: u32, key: u32) -> Self {
        Self { peers, groups: 0, key, receive_slots: 512, holdable: 256, completions: None, queues: QueueChoice::Auto }
    }

    /// The job's key, without its highest bit.
    const fn key(&self) -> u32 {
        self.key & (u32::MAX >> 1)
    }
}

/// One lane: a queue pair with its rings.
struct LaneQueues {
    // Before the memory that it uses, when all are dropped.
    queue: Option<Queue>,
    ring: SendRing,
    pool: ReceivePool,
    waiter: ArrivalWaiter,
    number: u32,
    inline: usize,
    /// Whether its failure was reported.
    is_reported: bool,
}

impl LaneQueues {
    fn new(
        domain: &Arc<Domain>,
        options: &UdOptions,
        (by, lane): (Writer, DeviceQueue),
        (slots, holdable): (u32, u32),
    ) -> Result<Self, OpenError> {
        let base = if lane == DeviceQueue::Polled { 0 } else { INTERRUPT_BASE };
        let posted = ReceivePool::posted(slots);
        let completions = options.completions.unwrap_or(posted + holdable);
        let depth = Depth { sends: send_ring::ENTRIES, receives: posted, completions };
        let ring = SendRing::new(domain, domain.mtu() as usize)?;
        let mut pool = ReceivePool::new(domain, base, slots, holdable)?;
        let mut queue = Queue::new(domain, (by, lane), depth, options.key())?;
        pool.post_all(&mut queue);
        let bell =
            ArrivalWaiter::new(queue.descriptor()).map_err(|error| OpenError::Refused { what: "fcntl", error })?;
        let (number, inline) = (queue.number(), queue.inline());
        Ok(Self { queue: Some(queue), ring, pool, waiter: bell, number, inline, is_reported: false })
    }

    /// Restarts a failed queue pair under its own number. Returns whether it did.
    fn rebuild(&mut self, tally: &UdCounters) -> bool {
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

    fn close(&mut self, tally: &UdCounters) {
        self.waiter.detach();
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
    // Its memberships end before their queue pair.
    groups: Groups,
    polled: LaneQueues,
    interrupt: LaneQueues,
    writer: Writer,
    refused: Option<OpenError>,
    table: AddressTable,
    counters: Arc<UdCounters>,
    device_events: VecDeque<DeviceEvent>,
    state: State,
    /// When the adapter was last checked, and until when it is to be checked.
    looked: Instant,
    suspect: Instant,
    limits: Limits,
    domain: Arc<Domain>,
    address: PhantomData<fn(A)>,
}

impl<A> Ud<A> {
    /// Creates both queue pairs on the domain's port.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn new(domain: &Arc<Domain>, options: &UdOptions) -> Result<Self, OpenError> {
        let (slots, holdable) = (u32::from(options.receive_slots), u32::from(options.holdable));
        let halves = |by| -> Result<_, OpenError> {
            let polled = LaneQueues::new(domain, options, (by, DeviceQueue::Polled), (slots, holdable))?;
            let few = (INTERRUPT_SLOTS, INTERRUPT_HOLDABLE);
            Ok((by, polled, LaneQueues::new(domain, options, (by, DeviceQueue::Interrupt), few)?))
        };
        let (first, otherwise) =
            options.queues.writers(domain.provider()).ok_or_else(|| OpenError::NoProvider(domain.name().to_owned()))?;
        // libibverbs may or may not fail for the same reason.
        let ((writer, polled, interrupt), refused) = match (halves(first), otherwise) {
            (Err(error), Some(other)) => (halves(other)?, Some(error)),
            (made, _) => (made?, None),
        };
        let bells = [polled.waiter.clone(), interrupt.waiter.clone()];
        let events = Events::start(domain, bells).map_err(|error| OpenError::Refused { what: "a thread", error })?;
        let limits = Limits {
            mtu: domain.mtu(),
            receive_slots: slots,
            holdable: holdable.min(INTERRUPT_HOLDABLE.max(holdable)),
            granularity_ns: GRANULARITY_NS,
            lossless: false,
            interrupts: true,
            rails: 1,
            groups: options.groups.into(),
        };
        Ok(Self {
            events: Some(events),
            groups: Groups::new(options.groups.into()),
            polled,
            interrupt,
            writer,
            refused,
            table: AddressTable::new(domain, writer, (options.peers, options.groups.into()), options.key())?,
            counters: Arc::default(),
            device_events: VecDeque::new(),
            state: State::Up,
            looked: Instant::now(),
            suspect: Instant::now(),
            limits,
            domain: Arc::clone(domain),
            address: PhantomData,
        })
    }

    /// The path to this device, for the peers to [`set_path`](Self::set_path).
    pub fn local(&self) -> Path {
        Path { gid: self.domain.gid().gid, polled: self.polled.number, interrupt: self.interrupt.number }
    }

    /// Sets the path to a peer, and its largest datagram in bytes.
    ///
    /// # Errors
    /// [`PathError`].
    pub fn set_path(&mut self, peer: PeerId, path: Path, mtu: u32) -> Result<(), PathError> {
        self.table.set(peer, path, mtu.min(self.domain.mtu()))
    }

    /// No path leads to the peer.
    pub(crate) fn clear_path(&mut self, peer: PeerId) {
        self.table.unset(peer);
        self.device_events.push_back(DeviceEvent::NoPath { peer, rail: Rail(0) });
    }

    /// Whether the link is up.
    pub(crate) fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// Restarts the queue pair of a lane: nothing is posted on it any more.
    pub(crate) fn restart(&mut self, lane: DeviceQueue) {
        self.half(lane).ring.failed = true;
        self.check_health();
    }

    /// Whether the queue pair of a lane has failed and could not be restarted yet.
    pub(crate) fn has_failed(&mut self, lane: DeviceQueue) -> bool {
        self.half(lane).is_broken()
    }

    /// The next datagram of the lane that a [`poll`](Self::poll) found.
    #[inline(always)]
    pub(crate) fn take(&mut self, lane: DeviceQueue) -> Option<Datagram<'_>> {
        let Self { polled, interrupt, table, .. } = self;
        let half = match lane {
            DeviceQueue::Polled => polled,
            DeviceQueue::Interrupt => interrupt,
        };
        half.pool.next(table)
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
    pub fn arrival_waiter(&self, lane: DeviceQueue) -> ArrivalWaiter {
        match lane {
            DeviceQueue::Polled => self.polled.waiter.clone(),
            DeviceQueue::Interrupt => self.interrupt.waiter.clone(),
        }
    }

    /// The counters, readable while the device works.
    pub fn counters(&self) -> Arc<UdCounters> {
        Arc::clone(&self.counters)
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

    /// Binds the number of a group to its address, for [`join`](Device::join).
    ///
    /// # Errors
    /// [`GroupAddressError`]; nothing has changed.
    pub fn set_group(&mut self, group: GroupId, address: IpAddr) -> Result<(), GroupAddressError> {
        self.groups.set(group, address, self.domain.gid().gid)
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
        for lane in [DeviceQueue::Polled, DeviceQueue::Interrupt] {
            self.flush(lane);
            let started = Instant::now();
            while self.half(lane).ring.references(key) {
                self.completed(lane);
                if started.elapsed() < COMPLETION_TIMEOUT {
                    continue;
                }
                self.half(lane).ring.failed = true;
                self.check_health();
                if self.half(lane).ring.references(key) {
                    self.close();
                }
            }
        }
    }

    /// Moves a lane's queue pair into the error state, as a failing adapter does: for tests of recovery.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn fail(&mut self, lane: DeviceQueue) -> Result<(), OpenError> {
        match &mut self.half(lane).queue {
            Some(queue) => queue.fail(),
            None => Err(OpenError::code("ibv_modify_qp", libc::ENODEV)),
        }
    }

    /// Whether a datagram is available on the lane.
    #[inline(always)]
    pub fn poll(&mut self, lane: DeviceQueue) -> bool {
        if self.table.has_answers() {
            self.handle_resolved();
        }
        let Self { polled, interrupt, counters: tally, .. } = self;
        let half = match lane {
            DeviceQueue::Polled => polled,
            DeviceQueue::Interrupt => interrupt,
        };
        half.pool.poll_if_needed(half.queue.as_mut(), tally)
    }

    const fn half(&mut self, lane: DeviceQueue) -> &mut LaneQueues {
        match lane {
            DeviceQueue::Polled => &mut self.polled,
            DeviceQueue::Interrupt => &mut self.interrupt,
        }
    }

    /// Handles the adapter's asynchronous events and restarts failed queue pairs.
    fn check_health(&mut self) {
        let reports = self.events.as_ref().map(Events::take).unwrap_or_default();
        for report in reports {
            match report {
                Report::QueueFailed(element) | Report::Overrun(element) => {
                    let overrun = matches!(report, Report::Overrun(_));
                    for half in [&mut self.polled, &mut self.interrupt] {
                        if half.queue.as_ref().is_some_and(|queue| queue.is(element)) {
                            half.pool.failed = true;
                            self.counters.overruns.add(overrun.into());
                        }
                    }
                }
                Report::PortDown => self.set_state(State::Down),
                Report::PortUp => self.set_state(State::Up),
                Report::Changed => self.suspect = Instant::now() + SUSPECT_TIME,
                Report::Fatal => self.close(),
            }
        }
        self.handle_resolved();
        self.probe_adapter();
        if self.state == State::Closed {
            return;
        }
        for half in [&mut self.polled, &mut self.interrupt] {
            if half.is_broken() {
                // Once, however often the restart fails.
                if !core::mem::replace(&mut half.is_reported, true) {
                    self.device_events.push_back(DeviceEvent::Down(Rail(0)));
                }
                if half.rebuild(&self.counters) {
                    half.is_reported = false;
                    self.device_events.push_back(DeviceEvent::Up(Rail(0)));
                }
            }
        }
    }

    /// Takes new address handles, and posts the datagrams that waited for them.
    fn handle_resolved(&mut self) {
        if !self.table.has_answers() && !self.polled.ring.has_parked() && !self.interrupt.ring.has_parked() {
            return;
        }
        let Self { table, counters: tally, device_events: facts, polled, interrupt, .. } = self;
        let mut failed = Vec::new();
        for Resolved { peer, made, requested } in table.answers(tally) {
            if !made {
                failed.push(peer);
            }
            if requested {
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
    fn probe_adapter(&mut self) {
        let doubtful = self.state == State::Down || self.state == State::Up && self.suspect > self.looked;
        if !doubtful || self.looked.elapsed() < PROBE_INTERVAL {
            return;
        }
        self.looked = Instant::now();
        if !self.domain.has_interface() {
            self.close();
        } else if self.domain.is_active() {
            self.set_state(State::Up);
        } else {
            self.set_state(State::Down);
        }
    }

    fn set_state(&mut self, to: State) {
        let (was, is) = (self.state == State::Up, to == State::Up);
        if self.state == State::Closed {
            return;
        }
        self.state = to;
        if was != is {
            self.device_events.push_back(if is { DeviceEvent::Up(Rail(0)) } else { DeviceEvent::Down(Rail(0)) });
        }
    }

    /// Releases all verbs resources; the kernel waits for that before it removes an adapter.
    pub(crate) fn close(&mut self) {
        self.set_state(State::Closed);
        self.groups.clear();
        self.polled.close(&self.counters);
        self.interrupt.close(&self.counters);
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
    fn token(&mut self, lane: DeviceQueue) -> Option<UdToken<'_, A>> {
        let Self { polled, interrupt, table, counters: tally, .. } = self;
        let half = match lane {
            DeviceQueue::Polled => polled,
            DeviceQueue::Interrupt => interrupt,
        };
        let (ring, mut queue, inline) = (&mut half.ring, half.queue.as_mut(), half.inline);
        let room = ring.has_room(queue.as_deref_mut(), tally);
        room.then_some(UdToken { ring, table, tally, queue, inline, lends: PhantomData })
    }

    #[inline(always)]
    fn flush(&mut self, lane: DeviceQueue) {
        let Self { polled, interrupt, counters: tally, .. } = self;
        let half = match lane {
            DeviceQueue::Polled => polled,
            DeviceQueue::Interrupt => interrupt,
        };
        half.ring.flush(half.queue.as_mut(), tally);
        half.pool.repost(half.queue.as_mut());
    }

    fn completed(&mut self, lane: DeviceQueue) -> Ticket {
        let Self { polled, interrupt, counters: tally, .. } = self;
        let half = match lane {
            DeviceQueue::Polled => polled,
            DeviceQueue::Interrupt => interrupt,
        };
        let completed = half.ring.poll(half.queue.as_mut(), tally);
        if half.ring.has_parked() {
            self.handle_resolved();
            return self.half(lane).ring.poll(None, &UdCounters::default());
        }
        if !half.ring.failed {
            return completed;
        }
        self.check_health();
        let half = self.half(lane);
        half.ring.poll(None, &UdCounters::default())
    }

    #[inline(always)]
    fn receive(&mut self, lane: DeviceQueue) -> Option<Datagram<'_>> {
        // A caller that drains the lane asks once more after the last datagram: the adapter need not be polled for
        // that.
        if self.half(lane).pool.is_drained() || !self.poll(lane) {
            return None;
        }
        self.take(lane)
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
    fn arm(&mut self, lane: DeviceQueue) -> Armed {
        let tally = Arc::clone(&self.counters);
        let half = self.half(lane);
        if let Some(queue) = &mut half.queue {
            queue.arm(lane == DeviceQueue::Interrupt);
            // A datagram that arrived before the call raises no event.
            half.pool.poll(queue, &tally);
        }
        // A new address handle raises no event; a parked datagram waits for one for 2 ms at most.
        if half.pool.has_waiting() || half.ring.has_parked() { Armed::Pending } else { Armed::Armed }
    }

    /// The resolver's thread creates address handles, for [`PathRequest::Resolve`] or the first posting. A short first
    /// posting waits for it, at most 2 ms; otherwise it is lost.
    fn request_path(&mut self, request: PathRequest) {
        match request {
            PathRequest::Resolve(peer) => {
                if let Some(made) = self.table.resolve(peer) {
                    self.device_events.push_back(self.table.fact(peer, made));
                }
            }
            PathRequest::Forget(peer) => self.table.forget(peer),
        }
    }

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        self.check_health();
        self.device_events.pop_front()
    }

    /// Waits for the fabric's answer, which for RoCE comes at once, and for the group's address handle, at most 100 ms. A
    /// member also receives its own datagrams.
    fn join(&mut self, group: GroupId) -> Result<(), GroupError> {
        let member = self.polled.queue.as_ref().and_then(Queue::member);
        let Some(Joined { slot, gid }) = self.groups.join(&self.domain, member, group)? else { return Ok(()) };
        let is_requested = self.table.open_group(slot, (group, gid), self.limits.mtu);
        let started = Instant::now();
        let mut handle = self.table.group_handle(slot);
        while handle.is_none() && started.elapsed() < GROUP_HANDLE_TIMEOUT {
            std::thread::yield_now();
            self.handle_resolved();
            handle = self.table.group_handle(slot);
        }
        if is_requested.is_err() || is_requested == Ok(true) && handle == Some(false) {
            self.leave(group)?;
            return Err(GroupError::Refused(group));
        }
        Ok(())
    }

    fn leave(&mut self, group: GroupId) -> Result<(), GroupError> {
        let slot = self.groups.leave(group)?;
        self.table.close_group(slot);
        Ok(())
    }
}

impl<A> Drop for Ud<A> {
    fn drop(&mut self) {
        self.events = None;
        self.groups.clear();
        self.polled.close(&self.counters);
        self.interrupt.close(&self.counters);
        self.table.clear();
    }
}
