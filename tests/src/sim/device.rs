//! The device of a simulated node.

use alloc::rc::Rc;
use core::cell::RefCell;

use unisono_core::device::{
    Armed, Destination, Device, DeviceEvent, DeviceQueue, GroupError, HEADER_ROOM, Limits, PathRequest, Received, Slot,
    Ticket, Token, Transmit,
};
use unisono_core::ids::{GroupId, PeerId, Rail};

use super::{
    NodeId,
    fabric::Fabric,
    frame::{FrameId, Place},
    memory::SimAddress,
    port::Posting,
};

/// The device of one incarnation of a node. After a crash it does nothing any more.
///
/// Peer `n` of a device is node `n` of the network, or of its [job](SimDevice::in_job).
///
/// # Panics
/// Panics with an explanation when its caller violates the device contract: naming a slot that the
/// node does not have, setting aside more than [`Limits::holdable`], placing outside a region's life or bounds, and
/// changing or retiring the payload of a posting before its ticket is completed.
#[derive(Clone, Debug)]
pub struct SimDevice {
    fabric: Rc<RefCell<Fabric>>,
    node: u32,
    incarnation: u32,
    /// The node that is peer 0.
    first: u32,
}

/// A free send entry of a [`SimDevice`].
#[derive(Debug)]
pub struct SimToken<'a> {
    device: &'a SimDevice,
    lane: DeviceQueue,
    ticket: Ticket,
    head: [u8; HEADER_ROOM],
}

/// A datagram that a [`SimDevice`] received.
#[derive(Clone, Copy, Debug)]
pub struct SimReceived {
    slot: Slot,
    bytes: u32,
    head: [u8; HEADER_ROOM],
    from: u32,
    rail: Rail,
    /// The node that is peer 0.
    first: u32,
    age_ns: u64,
}

impl SimDevice {
    pub(super) fn new(fabric: Rc<RefCell<Fabric>>, node: NodeId) -> Self {
        let incarnation = fabric.borrow().incarnation(node.0);
        Self { fabric, node: node.0, incarnation, first: 0 }
    }

    /// The same device in a job whose rank 0 is the node `first`: peer `n` is node `first + n`.
    #[must_use]
    pub fn in_job(self, first: NodeId) -> Self {
        Self { first: first.0, ..self }
    }

    const fn node_of(&self, peer: PeerId) -> u32 {
        self.first.wrapping_add(peer.0)
    }

    fn is_current(&self) -> bool {
        self.fabric.borrow().is_current(self.node, self.incarnation)
    }

    /// Whether the event that [`arm`](Device::arm) asked for was raised since the last call.
    pub fn take_event(&mut self, lane: DeviceQueue) -> bool {
        let mut fabric = self.fabric.borrow_mut();
        let Some(port) = fabric.active_port(self.node) else { return false };
        let raised = core::mem::take(&mut port.lane_mut(lane).raised);
        fabric.release_port(self.node);
        raised
    }

    fn view(&self, fabric: &Fabric, slot: Slot) -> SimReceived {
        let frame = fabric.frames.of_node(FrameId(slot.0), self.node).unwrap_or_else(|| self.no_such(slot));
        let mut head = [0; HEADER_ROOM];
        let shown = frame.bytes.len().min(HEADER_ROOM);
        head[..shown].copy_from_slice(&frame.bytes[..shown]);
        SimReceived {
            slot,
            bytes: frame.bytes.len() as u32,
            head,
            from: frame.from,
            rail: frame.rail,
            first: self.first,
            age_ns: fabric.now.saturating_sub(frame.arrived),
        }
    }

    fn no_such(&self, slot: Slot) -> ! {
        panic!("node {} names {slot:?}, which it does not have (released before, or never received)", self.node)
    }
}

impl Token for SimToken<'_> {
    type Address = SimAddress;

    fn ticket(&self) -> Ticket {
        self.ticket
    }

    fn header_room(&mut self) -> &mut [u8; HEADER_ROOM] {
        &mut self.head
    }

    fn post(self, transmit: &Transmit, payload: Option<SimAddress>) {
        let &Transmit { to, queue: at, header_bytes: head, reason: cause, .. } = transmit;
        assert!(usize::from(head) <= HEADER_ROOM, "a head of {head} bytes is longer than its token");
        let to = match to {
            Destination::Peer { peer, rail } => Destination::Peer { peer: PeerId(self.device.node_of(peer)), rail },
            Destination::Group(_) => to,
        };
        let posting = Posting { to, at, cause, head: self.head, head_bytes: head, payload, fingerprint: None };
        self.device.fabric.borrow_mut().post(self.device.node, self.lane, posting);
    }
}

impl Received for SimReceived {
    fn slot(&self) -> Slot {
        self.slot
    }

    fn bytes(&self) -> u32 {
        self.bytes
    }

    fn prefix(&self) -> &[u8] {
        &self.head[..HEADER_ROOM.min(self.bytes as usize)]
    }

    fn is_from(&self, peer: PeerId) -> bool {
        self.from == self.first.wrapping_add(peer.0)
    }

    fn rail(&self) -> Rail {
        self.rail
    }

    fn age_ns(&self) -> Option<u32> {
        Some(u32::try_from(self.age_ns).unwrap_or(u32::MAX))
    }
}

impl Device for SimDevice {
    type Address = SimAddress;
    type Token<'a> = SimToken<'a>;
    type Received<'a> = SimReceived;

    fn limits(&self) -> Limits {
        let config = self.fabric.borrow().config;
        Limits {
            mtu: config.mtu,
            receive_slots: config.receive_slots,
            holdable: config.holdable,
            granularity_ns: config.granularity_ns,
            lossless: false,
            interrupts: config.interrupts,
            rails: config.rails,
            groups: config.groups,
        }
    }

    fn token(&mut self, lane: DeviceQueue) -> Option<SimToken<'_>> {
        let ticket = {
            let fabric = self.fabric.borrow();
            let unfinished = fabric.port(self.node).map_or(0, |port| port.lane(lane).postings.len());
            if !self.is_current() || unfinished >= fabric.config.ring as usize {
                return None;
            }
            Ticket(fabric.ticket(self.node, lane)).next()
        };
        Some(SimToken { device: self, lane, ticket, head: [0; HEADER_ROOM] })
    }

    fn flush(&mut self, lane: DeviceQueue) {
        if self.is_current() {
            self.fabric.borrow_mut().flush(self.node, lane);
        }
    }

    fn completed(&mut self, lane: DeviceQueue) -> Ticket {
        let fabric = self.fabric.borrow();
        let unfinished = fabric.port(self.node).map_or(0, |port| port.lane(lane).postings.len());
        Ticket(fabric.ticket(self.node, lane).wrapping_sub(unfinished as u32))
    }

    fn receive(&mut self, lane: DeviceQueue) -> Option<SimReceived> {
        if !self.is_current() {
            return None;
        }
        let mut fabric = self.fabric.borrow_mut();
        let id = fabric.active_port(self.node)?.lane_mut(lane).waiting.pop_front()?;
        fabric.frames[id].place = Place::Received;
        Some(self.view(&fabric, Slot(id.0)))
    }

    fn place(&mut self, from: Slot, start: u16, bytes: u32, to: SimAddress) {
        if !self.is_current() {
            return;
        }
        let fabric = &mut *self.fabric.borrow_mut();
        let frame = fabric.frames.of_node(FrameId(from.0), self.node).unwrap_or_else(|| self.no_such(from));
        let part = frame.bytes.get(usize::from(start)..).and_then(|rest| rest.get(..bytes as usize));
        let part = part.unwrap_or_else(|| panic!("{start} + {bytes} bytes lie outside the datagram"));
        let placed = fabric.stores.write(to, part);
        placed.unwrap_or_else(|| panic!("node {} places {bytes} bytes outside of {to:?}", self.node));
    }

    fn hold(&mut self, slot: Slot) {
        if !self.is_current() {
            return;
        }
        let mut fabric = self.fabric.borrow_mut();
        let received = fabric.frames.of_node(FrameId(slot.0), self.node).filter(|frame| frame.place == Place::Received);
        let lane = received.unwrap_or_else(|| self.no_such(slot)).lane;
        fabric.frames[FrameId(slot.0)].place = Place::Held;
        let holdable = fabric.config.holdable;
        let port = fabric.port_mut(self.node);
        port.lane_mut(lane).occupied -= 1;
        port.held += 1;
        assert!(port.held <= holdable, "node {} holds more than {holdable} datagrams", self.node);
    }

    fn held(&self, slot: Slot) -> SimReceived {
        self.view(&self.fabric.borrow(), slot)
    }

    fn release(&mut self, slot: Slot) {
        if !self.is_current() {
            return;
        }
        let fabric = &mut *self.fabric.borrow_mut();
        let frame = fabric.frames.of_node(FrameId(slot.0), self.node).unwrap_or_else(|| self.no_such(slot));
        let (place, lane) = (frame.place, frame.lane);
        match place {
            Place::Received => fabric.port_mut(self.node).lane_mut(lane).occupied -= 1,
            Place::Held => fabric.port_mut(self.node).held -= 1,
            Place::Free | Place::Flying | Place::Waiting => self.no_such(slot),
        }
        fabric.frames.give_back(FrameId(slot.0));
        fabric.release_port(self.node);
    }

    fn arm(&mut self, lane: DeviceQueue) -> Armed {
        if !self.is_current() {
            return Armed::Armed;
        }
        let mut fabric = self.fabric.borrow_mut();
        let queues = fabric.port_mut(self.node).lane_mut(lane);
        queues.armed = queues.waiting.is_empty();
        if queues.armed { Armed::Armed } else { Armed::Pending }
    }

    fn request_path(&mut self, request: PathRequest) {
        let (PathRequest::Resolve(peer), true) = (request, self.is_current()) else { return };
        let mut fabric = self.fabric.borrow_mut();
        let to = self.node_of(peer);
        let (mtu, known) = (fabric.path_mtu(self.node, to), fabric.exists(to));
        for rail in fabric.rails() {
            let fact = if known { DeviceEvent::Path { peer, rail, mtu } } else { DeviceEvent::NoPath { peer, rail } };
            fabric.port_mut(self.node).facts.push_back(fact);
        }
        let now = fabric.now;
        fabric.wake_at(self.node, now);
    }

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        if !self.is_current() {
            return None;
        }
        let mut fabric = self.fabric.borrow_mut();
        let fact = fabric.active_port(self.node)?.facts.pop_front();
        fabric.release_port(self.node);
        fact
    }

    fn join(&mut self, group: GroupId) -> Result<(), GroupError> {
        if !self.is_current() {
            return Err(GroupError::Refused(group));
        }
        let fabric = &mut *self.fabric.borrow_mut();
        fabric.groups.join(group, self.node, fabric.now)
    }

    fn leave(&mut self, group: GroupId) -> Result<(), GroupError> {
        let fabric = &mut *self.fabric.borrow_mut();
        fabric.groups.leave(group, self.node, fabric.now)
    }
}
