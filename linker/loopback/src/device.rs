//! A [`Device`] at one end of a simulated wire, in memory of constant size.

use core::sync::atomic::Ordering::Relaxed;

use heapless::Deque;
use unisono_core::device::{
    Armed, Device, DeviceEvent, DeviceQueue, HEADER_ROOM, Limits, PathRequest, Received, Slot, Ticket, Token, Transmit,
};
use unisono_core::ids::{PeerId, Rail};

use crate::regions::Bytes;

/// Largest datagram in bytes: the smallest that the protocol asks of a device.
pub const MTU: usize = 576;
/// Receive slots.
pub const RECEIVE_SLOTS: usize = 32;
/// Datagrams that can be held.
pub const HOLDABLE: usize = 16;
/// Entries of the send ring.
pub const RING: usize = 32;
/// Events that wait to be polled; more are dropped.
const EVENTS: usize = 4;
const CELLS: usize = RECEIVE_SLOTS + HOLDABLE;

/// State of a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    Arrived,
    Held,
}

#[derive(Debug)]
struct Cell {
    state: State,
    from: PeerId,
    bytes: u16,
    data: [u8; MTU],
}

/// A posting on its way to the wire. The payload stays where it is until the wire takes it.
#[derive(Debug)]
struct Posting<'m> {
    to: PeerId,
    head: [u8; HEADER_ROOM],
    head_bytes: u8,
    payload: Option<Bytes<'m>>,
}

/// One end: a send ring, cells for arrivals, one queue.
#[derive(Debug)]
pub struct LoopbackDevice<'m> {
    rank: PeerId,
    /// Ranks of the job.
    size: u32,
    staging: [u8; HEADER_ROOM],
    postings: Deque<Posting<'m>, RING>,
    posted: Ticket,
    carried: Ticket,
    cells: [Cell; CELLS],
    arrivals: Deque<Slot, RECEIVE_SLOTS>,
    overrun: u32,
    events: Deque<DeviceEvent, EVENTS>,
}

/// The receiver of datagrams that no rank receives.
const NOBODY: PeerId = PeerId(u32::MAX);

impl<'m> LoopbackDevice<'m> {
    /// An end of a job without ranks, until [`attach`](Self::attach). All zeros, so that a static end takes no room in
    /// the stored image.
    pub const fn new() -> Self {
        Self {
            rank: PeerId(0),
            size: 0,
            staging: [0; HEADER_ROOM],
            postings: Deque::new(),
            posted: Ticket(0),
            carried: Ticket(0),
            cells: [const { Cell { state: State::Free, from: PeerId(0), bytes: 0, data: [0; MTU] } }; CELLS],
            arrivals: Deque::new(),
            overrun: 0,
            events: Deque::new(),
        }
    }

    /// Attaches it to this rank of a job of `size` ranks.
    pub const fn attach(&mut self, rank: PeerId, size: u32) {
        self.rank = rank;
        self.size = size;
    }

    /// Its rank.
    pub const fn rank(&self) -> PeerId {
        self.rank
    }

    /// Arrivals dropped because every receive slot was in use.
    pub const fn overrun(&self) -> u32 {
        self.overrun
    }

    fn cell(&self, slot: Slot) -> Option<&Cell> {
        self.cells.get(usize::try_from(slot.0).ok()?)
    }

    fn cell_mut(&mut self, slot: Slot) -> Option<&mut Cell> {
        self.cells.get_mut(usize::try_from(slot.0).ok()?)
    }

    /// Removes the oldest posting from the ring and writes it to `datagram`. Returns its destination and length: an
    /// oversized one is cut.
    pub fn depart(&mut self, datagram: &mut [u8; MTU]) -> Option<(PeerId, u16)> {
        let posting = self.postings.pop_front()?;
        self.carried = self.carried.next();
        let head = posting.head.iter().copied().take(usize::from(posting.head_bytes));
        let payload = posting.payload.unwrap_or(&[]).iter().map(|byte| byte.load(Relaxed));
        let mut bytes = 0_u16;
        for (to, from) in datagram.iter_mut().zip(head.chain(payload)) {
            *to = from;
            bytes = bytes.saturating_add(1);
        }
        Some((posting.to, bytes))
    }

    /// Receives a datagram of `bytes` bytes. Drops and counts it when no receive slot is free.
    pub fn arrive(&mut self, from: PeerId, datagram: &[u8; MTU], bytes: u16) {
        let arrived = self.cells.iter().filter(|cell| cell.state == State::Arrived).count();
        let free = (0_u32..).zip(self.cells.iter_mut()).find(|(_, cell)| cell.state == State::Free);
        let (Some((index, cell)), true) = (free, arrived < RECEIVE_SLOTS) else {
            self.overrun = self.overrun.saturating_add(1);
            return;
        };
        if self.arrivals.push_back(Slot(index)).is_ok() {
            cell.state = State::Arrived;
            cell.from = from;
            cell.bytes = bytes.min(MTU as u16);
            cell.data = *datagram;
        }
    }
}

impl Default for LoopbackDevice<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// A free entry of the send ring.
#[derive(Debug)]
pub struct LoopbackToken<'a, 'm> {
    end: &'a mut LoopbackDevice<'m>,
}

impl<'m> Token for LoopbackToken<'_, 'm> {
    type Address = Bytes<'m>;

    fn ticket(&self) -> Ticket {
        self.end.posted.next()
    }

    fn header_room(&mut self) -> &mut [u8; HEADER_ROOM] {
        &mut self.end.staging
    }

    fn post(self, transmit: &Transmit, payload: Option<Bytes<'m>>) {
        let to = transmit.to.on_first_rail().unwrap_or(NOBODY);
        let posting = Posting { to, head: self.end.staging, head_bytes: transmit.header_bytes, payload };
        self.end.posted = self.end.posted.next();
        // The token exists only while the ring has room.
        let _ = self.end.postings.push_back(posting);
    }
}

/// A datagram in its cell.
#[derive(Debug)]
pub struct LoopbackDatagram<'a> {
    slot: Slot,
    cell: Option<&'a Cell>,
}

impl Received for LoopbackDatagram<'_> {
    fn slot(&self) -> Slot {
        self.slot
    }

    fn bytes(&self) -> u32 {
        self.cell.map_or(0, |cell| cell.bytes.into())
    }

    fn prefix(&self) -> &[u8] {
        let bytes = |cell: &Cell| usize::from(cell.bytes).min(HEADER_ROOM);
        self.cell.and_then(|cell| cell.data.get(..bytes(cell))).unwrap_or(&[])
    }

    fn is_from(&self, peer: PeerId) -> bool {
        self.cell.is_some_and(|cell| cell.from == peer)
    }

    fn age_ns(&self) -> Option<u32> {
        None
    }
}

impl<'m> Device for LoopbackDevice<'m> {
    type Address = Bytes<'m>;
    type Token<'a>
        = LoopbackToken<'a, 'm>
    where
        Self: 'a;
    type Received<'a>
        = LoopbackDatagram<'a>
    where
        Self: 'a;

    fn limits(&self) -> Limits {
        Limits {
            mtu: MTU as u32,
            receive_slots: RECEIVE_SLOTS as u32,
            holdable: HOLDABLE as u32,
            granularity_ns: 100_000,
            lossless: false,
            interrupts: false,
            rails: 1,
            groups: 0,
        }
    }

    fn token(&mut self, lane: DeviceQueue) -> Option<LoopbackToken<'_, 'm>> {
        (lane == DeviceQueue::Polled && !self.postings.is_full()).then_some(LoopbackToken { end: self })
    }

    /// No effect: [`Wire::carry`](crate::wire::Wire::carry) fetches the postings.
    fn flush(&mut self, _: DeviceQueue) {}

    fn completed(&mut self, lane: DeviceQueue) -> Ticket {
        if lane == DeviceQueue::Polled { self.carried } else { Ticket::default() }
    }

    fn receive(&mut self, lane: DeviceQueue) -> Option<LoopbackDatagram<'_>> {
        let slot = if lane == DeviceQueue::Polled { self.arrivals.pop_front()? } else { return None };
        Some(self.held(slot))
    }

    fn place(&mut self, from: Slot, start: u16, bytes: u32, to: Bytes<'m>) {
        let (start, bytes) = (usize::from(start), usize::try_from(bytes).unwrap_or(usize::MAX));
        if let Some(cell) = self.cell(from) {
            for (to, from) in to.iter().zip(cell.data.iter().skip(start).take(bytes)) {
                to.store(*from, Relaxed);
            }
        }
    }

    fn hold(&mut self, slot: Slot) {
        if let Some(cell) = self.cell_mut(slot) {
            cell.state = State::Held;
        }
    }

    fn held(&self, slot: Slot) -> LoopbackDatagram<'_> {
        LoopbackDatagram { slot, cell: self.cell(slot) }
    }

    fn release(&mut self, slot: Slot) {
        if let Some(cell) = self.cell_mut(slot) {
            cell.state = State::Free;
        }
    }

    /// Raises no event: a waiting caller has the wire carry datagrams and polls.
    fn arm(&mut self, _: DeviceQueue) -> Armed {
        if self.arrivals.is_empty() { Armed::Armed } else { Armed::Pending }
    }

    /// Every rank has a path that is always resolved.
    fn request_path(&mut self, request: PathRequest) {
        if let PathRequest::Resolve(peer) = request {
            let (known, rail, mtu) = (peer.0 < self.size, Rail(0), MTU as u32);
            let fact = if known { DeviceEvent::Path { peer, rail, mtu } } else { DeviceEvent::NoPath { peer, rail } };
            let _ = self.events.push_back(fact);
        }
    }

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        self.events.pop_front()
    }
}
