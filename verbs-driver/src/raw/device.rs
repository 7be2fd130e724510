//! The core's [`Device`] over unreliable datagrams of queue pairs whose work queues the driver writes itself.
//!
//! A datagram of up to [`RawOptions::inline`] bytes is copied to its entry; a longer one is gathered: its header from
//! the token's registered memory, its payload from the user's. The last entry of a flush is signalled, and its
//! completion completes all before it. Datagrams arrive in receive buffers; a held one keeps its buffer, and a spare is
//! posted in its place.
//!
//! The owner of the queue pair creates, connects and rebuilds it, and calls [`Raw::reset`] after a reset.

use core::marker::PhantomData;
use core::ptr::NonNull;

use unisono_core::device::{
    Armed, Device, DeviceEvent, DeviceQueue, HEADER_ROOM, Limits, PathRequest, Received, Slot, Ticket, Token, Transmit,
};
use unisono_core::ids::{PeerId, Rail};

use super::receive_buffers::{ReceiveBuffer, ReceiveBuffers};
use super::source::{GRH, PeerPath, Source};
use super::{Arrived, Data, Failure, QueuePair, SendPayload, WorkResult};
use crate::registered_memory::{RegisteredMemory, Slab, copy, read};

/// Most bytes of a datagram that is copied to its entry: on mlx5 four blocks, all that BlueFlame takes.
pub const INLINE_MAX: usize = 188;
/// Events that can be queued for polling.
const EVENTS: usize = 16;
/// Completions that one call processes.
const BUDGET: u32 = 64;

/// Memory that the adapter reads and writes.
#[derive(Clone, Copy, Debug)]
pub struct Slabs {
    /// [`HEADER_ROOM`] bytes for each posting that can be outstanding, in equal parts for the lanes; aligned to 8.
    pub heads: Slab,
    /// For each buffer 40 bytes and the longest datagram, rounded up to 64.
    pub buffers: Slab,
}

/// Options of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawOptions {
    /// Bytes of the longest datagram.
    pub mtu: u32,
    /// Receive slots of a lane.
    pub receive_slots: u32,
    /// Longer datagrams are gathered; at most [`INLINE_MAX`].
    pub inline: usize,
    /// See [`Limits::granularity_ns`].
    pub granularity_ns: u32,
    /// See [`Limits::lossless`].
    pub lossless: bool,
}

/// Counters of a device.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Posted to an unknown peer, or too long.
    pub undeliverable: u32,
    /// Malformed completions: unknown indices, lengths that do not fit, unknown kinds.
    pub malformed: u32,
    /// Failed entries, except those that were flushed after.
    pub failed: u32,
    /// The reason of the first failure.
    pub reason: Option<Failure>,
}

#[derive(Debug)]
struct LaneState<Q> {
    queues: Q,
    heads: Slab,
    posted: Ticket,
    completed: Ticket,
    /// An entry has failed, and its queue pair with it.
    down: bool,
}

impl<Q: QueuePair> LaneState<Q> {
    /// The memory for the next posting's header, if it is free.
    fn head(&mut self, inline: usize) -> Option<Slab> {
        let depth = 1 << (self.heads.bytes() / HEADER_ROOM).ilog2();
        let outstanding = self.posted.0.wrapping_sub(self.completed.0) as usize;
        if outstanding >= depth || !self.queues.has_room(inline) {
            return None;
        }
        self.heads.part(self.posted.next().0 as usize % depth * HEADER_ROOM, HEADER_ROOM)
    }

    /// If the queue is idle, everything posted is complete, including postings without an entry.
    fn settle(&mut self) {
        if self.queues.is_idle() {
            self.completed = self.posted;
        }
    }
}

/// A device over one queue pair, or two. `A` is a piece of a user buffer.
#[derive(Debug)]
pub struct Raw<'a, Q: QueuePair, A> {
    polled: LaneState<Q>,
    interrupt: Option<LaneState<Q>>,
    buffers: ReceiveBuffers<'a>,
    paths: &'a mut [Option<Q::Path>],
    events: [Option<DeviceEvent>; EVENTS],
    options: RawOptions,
    holdable: u32,
    counts: Counts,
    memory: PhantomData<fn(A)>,
}

impl<'a, Q: QueuePair, A: RegisteredMemory> Raw<'a, Q, A> {
    /// A device with fresh queues, and memory. `table` has an entry for each receive buffer: those beyond the receive
    /// slots of all lanes are for held datagrams. `paths` has an entry for each peer. `None`: sizes do not fit.
    pub fn new(
        options: RawOptions,
        [polled, interrupt]: [Option<Q>; 2],
        slabs: Slabs,
        table: &'a mut [ReceiveBuffer],
        paths: &'a mut [Option<Q::Path>],
    ) -> Option<Self> {
        let (polled, lanes) = (polled?, if interrupt.is_some() { 2 } else { 1 });
        let part = slabs.heads.bytes() / lanes / HEADER_ROOM * HEADER_ROOM;
        let holdable = (table.len() as u32).checked_sub(options.receive_slots.checked_mul(lanes as u32)?)?;
        let buffers = ReceiveBuffers::new(table, slabs.buffers, options.mtu)?;
        let fits = |queues: &Q| queues.receive_entries() >= options.receive_slots as usize;
        let fit = fits(&polled) && interrupt.as_ref().is_none_or(fits);
        if !fit || part == 0 || options.receive_slots == 0 || options.inline > INLINE_MAX {
            return None;
        }
        let lane = |queues, heads| LaneState {
            queues,
            heads,
            posted: Ticket::default(),
            completed: Ticket::default(),
            down: false,
        };
        let heads = [slabs.heads.part(0, part)?, slabs.heads.part(part * (lanes - 1), part)?];
        let mut device = Self {
            polled: lane(polled, heads[0]),
            interrupt: interrupt.map(|queues| lane(queues, heads[1])),
            buffers,
            paths,
            events: [None; EVENTS],
            options,
            holdable,
            counts: Counts::default(),
            memory: PhantomData,
        };
        device.fill(DeviceQueue::Polled);
        device.fill(DeviceQueue::Interrupt);
        Some(device)
    }

    /// The counters.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// The queues of a lane.
    pub fn queues_mut(&mut self, lane: DeviceQueue) -> Option<&mut Q> {
        self.lane(lane).map(|lane| &mut lane.queues)
    }

    /// Sets or clears the path to a peer. Returns whether there is such a peer.
    pub fn set_path(&mut self, peer: PeerId, path: Option<Q::Path>) -> bool {
        self.paths.get_mut(peer.0 as usize).map(|place| *place = path).is_some()
    }

    /// Records that the lane's event has arrived.
    pub fn event_received(&mut self, lane: DeviceQueue) {
        if let Some(lane) = self.lane(lane) {
            lane.queues.event_received();
        }
    }

    /// Restarts a lane after its queue pair was reset: everything posted is complete, everything received and not taken
    /// is lost. Called after the reset and before the queue pair is ready to receive.
    pub fn reset(&mut self, lane: DeviceQueue) {
        let Some(state) = self.lane(lane) else { return };
        state.queues.reset();
        state.settle();
        let was_down = core::mem::take(&mut state.down);
        self.buffers.reclaim_posted(lane == DeviceQueue::Interrupt);
        self.fill(lane);
        if was_down {
            self.push_event(DeviceEvent::Up(Rail(0)));
        }
    }

    fn lane(&mut self, lane: DeviceQueue) -> Option<&mut LaneState<Q>> {
        match lane {
            DeviceQueue::Polled => Some(&mut self.polled),
            DeviceQueue::Interrupt => self.interrupt.as_mut(),
        }
    }

    fn push_event(&mut self, fact: DeviceEvent) {
        if let Some(place) = self.events.iter_mut().find(|place| place.is_none()) {
            *place = Some(fact);
        }
    }

    fn malformed(&mut self) {
        self.counts.malformed = self.counts.malformed.saturating_add(1);
    }

    /// Records a failed entry.
    fn fail(&mut self, lane: DeviceQueue, failure: Failure) {
        if failure != Failure::Flushed {
            self.counts.failed = self.counts.failed.saturating_add(1);
            self.counts.reason.get_or_insert(failure);
        }
        let was_up = self.lane(lane).is_some_and(|lane| !core::mem::replace(&mut lane.down, true));
        if was_up {
            self.push_event(DeviceEvent::Down(Rail(0)));
        }
    }

    /// Posts free buffers to all receive slots of the lane.
    fn fill(&mut self, lane: DeviceQueue) {
        for _ in 0..self.options.receive_slots {
            self.refill(lane);
        }
        if let Some(state) = self.lane(lane) {
            state.queues.flush_receives();
        }
    }

    /// Posts a free buffer.
    fn refill(&mut self, lane: DeviceQueue) {
        let interrupt = lane == DeviceQueue::Interrupt;
        if interrupt && self.interrupt.is_none() {
            return;
        }
        let Some((index, data)) = self.buffers.post(interrupt) else { return };
        let posted = self.lane(lane).is_some_and(|state| state.queues.post_receive(data, index));
        if !posted {
            self.buffers.free(index);
        }
    }

    /// As [`refill`](Self::refill), and makes it visible to the adapter.
    fn replace(&mut self, interrupt: bool) {
        let lane = if interrupt { DeviceQueue::Interrupt } else { DeviceQueue::Polled };
        self.refill(lane);
        if let Some(state) = self.lane(lane) {
            state.queues.flush_receives();
        }
    }

    /// Processes send completions.
    fn poll_sends(&mut self, lane: DeviceQueue) {
        for _ in 0..BUDGET {
            let Some(state) = self.lane(lane) else { return };
            let Some(fate) = state.queues.sent() else { break };
            let (ticket, failure) = match fate {
                WorkResult::Done(ticket) => (Some(ticket), None),
                WorkResult::Failed(ticket, failure) => (ticket, Some(failure)),
                WorkResult::Malformed => (None, None),
            };
            match ticket {
                Some(ticket) => {
                    state.completed = Ticket(ticket);
                    state.settle();
                }
                None => self.malformed(),
            }
            if let Some(failure) = failure {
                self.fail(lane, failure);
            }
        }
    }

    /// Accepts a received datagram, if its completion is plausible.
    fn arrive(&mut self, lane: DeviceQueue, got: Arrived) -> bool {
        let bytes = got.bytes.checked_sub(GRH as u32).filter(|bytes| *bytes <= self.options.mtu);
        let source = |front: &_| Source::new(got.origin, front);
        let arrived = bytes.is_some_and(|bytes| self.buffers.arrive(got.tag, bytes, source));
        if !arrived {
            self.malformed();
            self.buffers.free(got.tag);
            self.replace(lane == DeviceQueue::Interrupt);
        }
        arrived
    }

    fn next(&mut self, lane: DeviceQueue) -> Option<u32> {
        for _ in 0..BUDGET {
            match self.lane(lane)?.queues.received()? {
                WorkResult::Done(got) => {
                    if self.arrive(lane, got) {
                        return Some(got.tag);
                    }
                }
                WorkResult::Failed(tag, failure) => {
                    // Nothing can be posted until the queue pair is reset.
                    match tag {
                        Some(index) => self.buffers.free(index),
                        None => self.malformed(),
                    }
                    self.fail(lane, failure);
                }
                WorkResult::Malformed => self.malformed(),
            }
        }
        None
    }

    fn post(&mut self, lane: DeviceQueue, head: Slab, transmit: &Transmit, payload: Option<A>) {
        let limit = self.options.inline;
        let peer = transmit.to.on_first_rail();
        let path = peer.and_then(|peer| self.paths.get(peer.0 as usize).copied().flatten());
        let head_bytes = usize::from(transmit.header_bytes).min(HEADER_ROOM);
        let bytes = payload.map_or(0, RegisteredMemory::bytes).saturating_add(head_bytes);
        let path = path.filter(|path| bytes <= path.mtu() as usize);
        let Some(state) = self.lane(lane) else { return };
        state.posted = state.posted.next();
        let ticket = state.posted.0;
        let posted = path.is_some_and(|path| {
            let mut inline = [0; INLINE_MAX];
            let (copied, pieces);
            let payload = if bytes <= limit {
                let (front, back) = inline.split_at_mut(head_bytes);
                read(head, front);
                if let Some(payload) = payload {
                    read(payload, back);
                }
                copied = [inline.get(..bytes).unwrap_or_default()];
                SendPayload::Inline(&copied)
            } else {
                let payload = payload.map_or(Some(Data::default()), |payload| piece(payload, payload.bytes()));
                let (Some(head), Some(payload)) = (piece(head, head_bytes), payload) else { return false };
                pieces = [head, payload];
                SendPayload::Gather(&pieces)
            };
            state.queues.post((&path, transmit.queue), payload, transmit.solicited, ticket)
        });
        if !posted {
            state.settle();
            self.counts.undeliverable = self.counts.undeliverable.saturating_add(1);
        }
    }
}

/// `None`: it is not registered.
fn piece(memory: impl RegisteredMemory, bytes: usize) -> Option<Data> {
    Some(Data { address: memory.device_address(), bytes: bytes as u32, key: memory.key()? })
}

/// A free send entry.
#[derive(Debug)]
pub struct RawToken<'b, 'a, Q: QueuePair, A> {
    device: &'b mut Raw<'a, Q, A>,
    lane: DeviceQueue,
    ticket: Ticket,
    head: Slab,
}

impl<Q: QueuePair, A: RegisteredMemory> Token for RawToken<'_, '_, Q, A> {
    type Address = A;

    fn ticket(&self) -> Ticket {
        self.ticket
    }

    fn header_room(&mut self) -> &mut [u8; HEADER_ROOM] {
        let mut head: NonNull<[u8; HEADER_ROOM]> = self.head.start().cast();
        // SAFETY: a part of the slab of heads, as long; no posting that uses it is outstanding, and its owner promised
        // that nobody else does.
        unsafe { head.as_mut() }
    }

    fn post(self, transmit: &Transmit, payload: Option<A>) {
        self.device.post(self.lane, self.head, transmit, payload);
    }
}

/// A received datagram.
#[derive(Debug)]
pub struct RawDatagram<'b, P> {
    slot: Slot,
    bytes: u32,
    head: [u8; HEADER_ROOM],
    source: Source,
    paths: &'b [Option<P>],
}

impl<P: PeerPath> Received for RawDatagram<'_, P> {
    fn slot(&self) -> Slot {
        self.slot
    }

    fn bytes(&self) -> u32 {
        self.bytes
    }

    fn prefix(&self) -> &[u8] {
        self.head.get(..self.bytes as usize).unwrap_or(&self.head)
    }

    fn is_from(&self, peer: PeerId) -> bool {
        let path = self.paths.get(peer.0 as usize).and_then(Option::as_ref);
        path.is_some_and(|path| path.matches(&self.source))
    }

    fn age_ns(&self) -> Option<u32> {
        None
    }
}

impl<'a, Q: QueuePair, A: RegisteredMemory> Device for Raw<'a, Q, A> {
    type Address = A;
    type Token<'b>
        = RawToken<'b, 'a, Q, A>
    where
        Self: 'b;
    type Received<'b>
        = RawDatagram<'b, Q::Path>
    where
        Self: 'b;

    fn limits(&self) -> Limits {
        Limits {
            mtu: self.options.mtu,
            receive_slots: self.options.receive_slots,
            holdable: self.holdable,
            granularity_ns: self.options.granularity_ns,
            lossless: self.options.lossless,
            interrupts: self.interrupt.is_some(),
            rails: 1,
            groups: 0,
        }
    }

    fn token(&mut self, lane: DeviceQueue) -> Option<RawToken<'_, 'a, Q, A>> {
        let inline = self.options.inline;
        if self.lane(lane)?.head(inline).is_none() {
            self.poll_sends(lane);
        }
        let state = self.lane(lane)?;
        let (head, ticket) = (state.head(inline)?, state.posted.next());
        Some(RawToken { device: self, lane, ticket, head })
    }

    fn flush(&mut self, lane: DeviceQueue) {
        if let Some(state) = self.lane(lane) {
            state.queues.flush(true);
        }
    }

    fn completed(&mut self, lane: DeviceQueue) -> Ticket {
        self.poll_sends(lane);
        self.lane(lane).map_or(Ticket::default(), |state| state.completed)
    }

    fn receive(&mut self, lane: DeviceQueue) -> Option<RawDatagram<'_, Q::Path>> {
        let index = self.next(lane)?;
        Some(self.held(Slot(index)))
    }

    fn place(&mut self, from: Slot, start: u16, bytes: u32, to: A) {
        if let Some(part) = self.buffers.part(from.0, start.into(), bytes as usize) {
            copy(part, to);
        }
    }

    fn hold(&mut self, slot: Slot) {
        if let Some(interrupt) = self.buffers.hold(slot.0) {
            self.replace(interrupt);
        }
    }

    fn held(&self, slot: Slot) -> RawDatagram<'_, Q::Path> {
        let (bytes, source) = self.buffers.datagram(slot.0).unwrap_or((0, Source::NONE));
        let mut head = [0; HEADER_ROOM];
        if let Some(part) = self.buffers.part(slot.0, 0, HEADER_ROOM.min(bytes as usize)) {
            read(part, &mut head);
        }
        RawDatagram { slot, bytes, head, source, paths: self.paths }
    }

    fn release(&mut self, slot: Slot) {
        if let Some(interrupt) = self.buffers.release(slot.0) {
            self.replace(interrupt);
        }
    }

    fn arm(&mut self, lane: DeviceQueue) -> Armed {
        let Some(state) = self.lane(lane) else { return Armed::Armed };
        if state.queues.has_arrival() {
            return Armed::Pending;
        }
        state.queues.arm(lane == DeviceQueue::Interrupt);
        // Not every adapter raises an event for a datagram that arrived before it was armed.
        if state.queues.has_arrival() { Armed::Pending } else { Armed::Armed }
    }

    fn request_path(&mut self, request: PathRequest) {
        if let PathRequest::Resolve(peer) = request {
            let path = self.paths.get(peer.0 as usize).and_then(Option::as_ref);
            let mtu = path.map(|path| path.mtu().min(self.options.mtu));
            let rail = Rail(0);
            let none = DeviceEvent::NoPath { peer, rail };
            self.push_event(mtu.map_or(none, |mtu| DeviceEvent::Path { peer, rail, mtu }));
        }
    }

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        let fact = self.events.first_mut()?.take();
        self.events.rotate_left(1);
        fact
    }
}
