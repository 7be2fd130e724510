//! The path of a datagram through the network: egress link, faults, propagation, queue, ingress link, slot.

use core::hash::Hasher;
use std::hash::DefaultHasher;

use unisono_core::device::{Destination, DeviceQueue, HEADER_ROOM, Ticket};
use unisono_core::ids::{GroupId, PeerId, Rail};
use unisono_udp::fault_injection::FaultOutcome;

use super::{
    DatagramFate, DatagramTrace, NodeId, OutgoingDatagram, Step, TamperVerdict,
    adapter::Engine,
    config::{CHECKSUM, Completion, Link},
    counts::Dropped,
    event_queue::Event,
    fabric::{Fabric, HeldBackFrames},
    frame::{Frame, FrameId, Place},
    memory::SimAddress,
    port::Posting,
};

impl Link {
    fn picoseconds(&self, rate: Option<core::num::NonZeroU64>, bytes: usize) -> u64 {
        let bytes = bytes as u64 + u64::from(CHECKSUM) + u64::from(self.overhead);
        rate.map_or(0, |rate| (bytes * 1_000_000_000_000).div_ceil(rate.get()))
    }
}

impl Fabric {
    pub(super) fn post(&mut self, node: u32, lane: DeviceQueue, posting: Posting) {
        *self.ticket_mut(node, lane) = Ticket(self.ticket(node, lane)).next().0;
        self.port_mut(node).lane_mut(lane).postings.push_back(posting);
    }

    /// Sends everything posted on the lane.
    pub(super) fn flush(&mut self, node: u32, lane: DeviceQueue) {
        let Some(port) = self.active_port(node) else { return };
        let queues = port.lane_mut(lane);
        let (start, end) = (queues.flushed, queues.postings.len());
        for index in start..end {
            self.gather(node, lane, index);
        }
        let completion = self.config.completion;
        let queues = self.port_mut(node).lane_mut(lane);
        match completion {
            Completion::Flush => {
                queues.postings.clear();
                self.release_port(node);
            }
            Completion::After(delay) => {
                queues.flushed = end;
                let (now, incarnation) = (self.now, self.incarnation(node));
                for part in (start..end).step_by(usize::from(u16::MAX)) {
                    let postings = (end - part).min(usize::from(u16::MAX)) as u16;
                    self.queue.push(now + delay, Event::Complete { node, incarnation, lane, postings });
                }
            }
        }
    }

    fn gather(&mut self, node: u32, lane: DeviceQueue, index: usize) {
        let id = self.frames.take();
        let mut bytes = core::mem::take(&mut self.frames[id].bytes);
        let late = self.config.completion != Completion::Flush;
        let payload = {
            let posting = &self.port_mut(node).lane_mut(lane).postings[index];
            bytes.extend_from_slice(&posting.head[..usize::from(posting.head_bytes)]);
            posting.payload
        };
        if let Some(address) = payload {
            bytes.extend_from_slice(self.payload(node, address));
        }
        let fingerprint = payload
            .filter(|_| late && !self.config.exposes_memory)
            .map(|address| fingerprint(self.payload(node, address)));
        let posting = &mut self.port_mut(node).lane_mut(lane).postings[index];
        posting.fingerprint = fingerprint;
        let (destination, lane, cause) = (posting.to, posting.at, Some(posting.cause));
        let frame = Frame { bytes, from: node, lane, cause, place: Place::Flying, ..Frame::default() };
        self.counts.sent += 1;
        self.frames[id] = match destination {
            Destination::Peer { peer: PeerId(to), rail } => {
                let connection = self.adapters.next_connection(node, to);
                Frame { to, rail, connection, ..frame }
            }
            Destination::Group(group) => Frame { to: node, group: Some(group), ..frame },
        };
        match self.config.adapter {
            None => self.leave(id),
            Some(_) => self.enter_adapter(id, Engine::Send),
        }
    }

    /// Puts a frame on its way, or one for each member of its group.
    pub(super) fn leave(&mut self, id: FrameId) {
        match self.frames[id].group {
            None => self.depart(id),
            Some(group) => self.depart_to_group(id, group),
        }
    }

    /// Puts a copy of a frame on its way to each other member. All leave together, over the first rail.
    fn depart_to_group(&mut self, id: FrameId, group: GroupId) {
        let from = self.frames[id].from;
        let members = self.groups.members(group, self.now);
        let mut others = members.into_iter().filter(|member| *member != from).peekable();
        if others.peek().is_none() || !self.groups.contains(group, from) {
            return self.drop_frame(id, Dropped::NoMember);
        }
        let mut leave = None;
        while let Some(to) = others.next() {
            let copy = if others.peek().is_some() {
                self.counts.replicated += 1;
                self.frames.copy(id)
            } else {
                id
            };
            self.frames[copy].to = to;
            self.trace(copy, DatagramFate::Sent);
            if let Some(why) = self.drop_reason(copy) {
                self.drop_frame(copy, why);
                continue;
            }
            let leave = *leave.get_or_insert_with(|| self.egress(copy));
            self.traverse(copy, leave);
        }
    }

    fn payload(&self, node: u32, address: SimAddress) -> &[u8] {
        self.stores
            .read(address)
            .unwrap_or_else(|| panic!("node {node} ended the life of a region that an unfinished posting names"))
    }

    pub(super) fn complete(&mut self, node: u32, incarnation: u32, lane: DeviceQueue, postings: u16) -> Option<Step> {
        if !self.is_current(node, incarnation) {
            return None;
        }
        for _ in 0..postings {
            let posting = {
                let queues = self.port_mut(node).lane_mut(lane);
                queues.flushed -= 1;
                queues.postings.pop_front().expect("postings complete once")
            };
            if let (Some(before), Some(address)) = (posting.fingerprint, posting.payload) {
                let after = fingerprint(self.payload(node, address));
                assert!(
                    before == after,
                    "node {node} changed the payload of an unfinished posting to {:?}",
                    posting.to
                );
            }
        }
        self.release_port(node);
        self.notify(node)
    }

    /// Puts a frame on its way.
    pub(super) fn depart(&mut self, id: FrameId) {
        self.trace(id, DatagramFate::Sent);
        if let Some(why) = self.drop_reason(id) {
            return self.drop_frame(id, why);
        }
        let leave = self.egress(id);
        self.traverse(id, leave);
    }

    /// When the sender's link has carried the frame; of a message that is cut into packets, the first one.
    fn egress(&mut self, id: FrameId) -> u64 {
        let Frame { from, to, rail, connection, ref bytes, .. } = self.frames[id];
        let bytes = bytes.len();
        if !self.exists(from) {
            return self.now;
        }
        let link = self.link(from, rail);
        let occupied = link.picoseconds(link.egress_bytes_per_s, bytes);
        let left = self.leave_ps(from, rail, occupied);
        let packet = self.config.adapter.filter(|_| connection.is_some()).map_or(bytes, |cost| cost.packet as usize);
        // A faster link towards the receiver waits for the last packet.
        let overlaps =
            self.link(to, rail).ingress_bytes_per_s.is_some_and(|into| Some(into) <= link.egress_bytes_per_s);
        let first = if overlaps { link.picoseconds(link.egress_bytes_per_s, packet.min(bytes)) } else { occupied };
        (left - (occupied - first)).div_ceil(1000)
    }

    /// Applies injected faults to a frame that leaves at `leave`.
    fn traverse(&mut self, id: FrameId, leave: u64) {
        let to = self.frames[id].to;
        let rail = self.frames[id].rail;
        let fate = self.injected_fault(to, rail, self.frames[id].bytes.len());
        let FaultOutcome { first: Some(first), second } = fate else {
            return self.drop_frame(id, Dropped::Lost);
        };
        let copy = second.map(|passage| (self.frames.copy(id), passage));
        self.counts.duplicated += u64::from(copy.is_some());
        for (id, passage) in core::iter::once((id, first)).chain(copy) {
            if let Some(flip) = passage.flip {
                flip.apply(&mut self.frames[id].bytes);
                self.frames[id].corrupt = true;
            }
            self.depart_or_hold_back(id, passage.overtaken_by, leave);
        }
    }

    /// Why a frame is dropped at its sender.
    fn drop_reason(&mut self, id: FrameId) -> Option<Dropped> {
        let Frame { from, to, rail, ref bytes, cause, .. } = self.frames[id];
        if !self.exists(to) || rail.0 >= self.config.rails {
            return Some(Dropped::UnknownPeer);
        }
        if bytes.len() > self.path_mtu(from, to) as usize {
            return Some(Dropped::Oversize);
        }
        if self.exists(from) && !self.is_linked(from, rail) {
            return Some(Dropped::Down);
        }
        if self.cuts.contains(&(from, to)) || self.rail_cuts.contains(&(from, to, rail)) {
            return Some(Dropped::Cut);
        }
        let tamper = self.tamper.as_mut()?;
        let bytes = &mut self.frames[id].bytes;
        let mut passing = OutgoingDatagram { at: self.now, from: NodeId(from), to: NodeId(to), cause, bytes };
        (tamper(&mut passing) == TamperVerdict::Take).then_some(Dropped::Tampered)
    }

    fn injected_fault(&mut self, to: u32, rail: Rail, bytes: usize) -> FaultOutcome {
        let injector = self.rail_injectors.get_mut(&(to, rail)).or_else(|| self.injectors.get_mut(&to));
        let injector = injector.unwrap_or(&mut self.injector);
        let untouched = FaultOutcome { first: Some(Default::default()), second: None };
        injector.as_mut().map_or(untouched, |injector| injector.next_outcome(bytes + CHECKSUM as usize))
    }

    /// Lets a frame leave, or wait until others have overtaken it.
    fn depart_or_hold_back(&mut self, id: FrameId, overtaken_by: u8, leave: u64) {
        let way @ (from, to, rail) = (self.frames[id].from, self.frames[id].to, self.frames[id].rail);
        if overtaken_by == 0 && !self.held_back.contains_key(&way) {
            return self.propagate(id, leave);
        }
        self.counts.reordered += u64::from(overtaken_by > 0);
        let now = self.now;
        let (queue, idle) = (&mut self.queue, now + self.config.overtaking_ns);
        let detour = self.held_back.entry(way).or_insert_with(|| {
            queue.push(idle, Event::Idle { from, to, rail });
            HeldBackFrames::default()
        });
        detour.last_push = now;
        let mut out = Vec::new();
        detour.frames.push(id, overtaken_by, |frame| out.push(frame));
        for frame in out {
            self.propagate(frame, leave);
        }
    }

    /// Lets the frames between two nodes on a rail leave if none was sent there for a while.
    pub(super) fn release_held_back(&mut self, from: u32, to: u32, rail: Rail) {
        let Some(detour) = self.held_back.get_mut(&(from, to, rail)) else { return };
        let idle = detour.last_push + self.config.overtaking_ns;
        if !detour.frames.is_empty() && idle > self.now {
            return self.queue.push(idle, Event::Idle { from, to, rail });
        }
        let mut out = Vec::new();
        detour.frames.flush_idle(|frame| out.push(frame));
        self.held_back.remove(&(from, to, rail));
        let now = self.now;
        for frame in out {
            self.propagate(frame, now);
        }
    }

    fn propagate(&mut self, id: FrameId, leave: u64) {
        let link = self.link(self.frames[id].to, self.frames[id].rail);
        let jitter = if link.jitter_ns == 0 { 0 } else { self.random.u64(..=link.jitter_ns) };
        self.queue.push(leave + link.propagation_ns + jitter, Event::Reach(id));
    }

    /// A frame reaches the queue before its receiver.
    pub(super) fn reach(&mut self, id: FrameId) -> Option<Step> {
        let Frame { to, rail, ref bytes, .. } = self.frames[id];
        let bytes = bytes.len();
        let link = self.link(to, rail);
        if link.ingress_bytes_per_s.is_none() {
            return self.take_in(id);
        }
        let now_ps = self.now * 1000;
        let ingress = self.ingress_mut(to, rail);
        if ingress.queued >= link.queue {
            self.drop_frame(id, Dropped::QueueFull);
            return None;
        }
        ingress.queued += 1;
        ingress.free_ps = ingress.free_ps.max(now_ps) + link.picoseconds(link.ingress_bytes_per_s, bytes);
        let at = ingress.free_ps.div_ceil(1000);
        self.queue.push(at, Event::Arrive(id));
        None
    }

    /// The ingress link has carried a frame.
    pub(super) fn leave_queue(&mut self, id: FrameId) -> Option<Step> {
        let Frame { to, rail, .. } = self.frames[id];
        self.ingress_mut(to, rail).queued -= 1;
        let step = self.take_in(id);
        self.release_port(to);
        self.release_port(self.link_owner(to));
        step
    }

    /// A frame reaches its receiver's adapter.
    fn take_in(&mut self, id: FrameId) -> Option<Step> {
        if self.config.adapter.is_none() {
            return self.arrive(id);
        }
        self.enter_adapter(id, Engine::Receive);
        None
    }

    /// A frame reaches the slots of its receiver.
    pub(super) fn arrive(&mut self, id: FrameId) -> Option<Step> {
        let Frame { to, rail, lane, corrupt, .. } = self.frames[id];
        let slots = self.config.receive_slots;
        let lane = if self.config.interrupts { lane } else { DeviceQueue::Polled };
        let why = if !self.is_up(to) {
            Some(Dropped::Crashed)
        } else if !self.is_linked(to, rail) {
            Some(Dropped::Down)
        } else if corrupt {
            Some(Dropped::Corrupt)
        } else {
            (self.port_mut(to).lane(lane).occupied >= slots).then_some(Dropped::NoSlot)
        };
        if let Some(why) = why {
            self.drop_frame(id, why);
            return None;
        }
        let now = self.now;
        let frame = &mut self.frames[id];
        (frame.place, frame.lane, frame.arrived) = (Place::Waiting, lane, now);
        self.counts.delivered += 1;
        self.counts.delivered_bytes += self.frames[id].bytes.len() as u64;
        self.trace(id, DatagramFate::Delivered);
        let queues = self.port_mut(to).lane_mut(lane);
        queues.waiting.push_back(id);
        queues.occupied += 1;
        let event = core::mem::take(&mut queues.armed);
        queues.raised |= event;
        if event && lane == DeviceQueue::Interrupt {
            return Some(self.step_of(to, lane));
        }
        self.notify(to)
    }

    pub(super) fn drop_frame(&mut self, id: FrameId, why: Dropped) {
        self.counts.drop_one(why);
        self.trace(id, DatagramFate::Dropped(why));
        self.frames.give_back(id);
    }

    fn trace(&mut self, id: FrameId, what: DatagramFate) {
        let Some(watch) = self.watch.as_mut() else { return };
        let frame = &self.frames[id];
        watch(&DatagramTrace {
            at: self.now,
            what,
            from: NodeId(frame.from),
            to: NodeId(frame.to),
            rail: frame.rail,
            cause: frame.cause,
            head: &frame.bytes[..frame.bytes.len().min(HEADER_ROOM)],
            bytes: frame.bytes.len() as u32,
        });
    }
}

fn fingerprint(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}
