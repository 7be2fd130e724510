//! A stream on the wire: one root's stream at one process, between machine and device.

use super::StreamConfig;
use super::datagram::{Body, Datagram, GroupKey, Probe, SEGMENT_HEADER, Segment};
use super::members::Audience;
use super::receiver::{Placement, Receiver};
use super::root::{Request, Root, WindowFull};
use crate::device::{Destination, Device, DeviceQueue, HEADER_ROOM, Memory, Received, Token, Transmit, TxReason};
use crate::ids::{Incarnation, PeerId, Psn, Rank, first_psn};
use crate::span::{Region, Span};
use crate::time::Time;

/// A member of a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GroupMember {
    /// Its number at the device.
    pub peer: PeerId,
    /// Its incarnation when it joined.
    pub incarnation: Incarnation,
}

/// The memory of a stream: `W` places for segments.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ring {
    /// The region.
    pub region: Region,
    /// Where the places begin in it.
    pub offset: usize,
    /// Bytes of a place: payload of all segments of a message but the last. At most the device's MTU −
    /// [`SEGMENT_HEADER`].
    pub segment_bytes: u32,
}

/// Counters of datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct StreamCounters {
    /// Segments sent for the first time, to the group.
    pub sent: u64,
    /// Copies sent for the first time, to co-roots.
    pub co_root_copies: u64,
    /// Segments sent again to one member.
    pub repaired: u64,
    /// Segments sent again to the group.
    pub repaired_all: u64,
    /// Probes sent.
    pub probes: u64,
    /// Reports sent.
    pub reports_sent: u64,
    /// Reports received.
    pub reports: u64,
    /// Segments placed.
    pub placed: u64,
    /// Segments that had come before or lay outside of the window.
    pub duplicates: u64,
    /// Datagrams of other groups, streams, incarnations or addresses, and malformed ones.
    pub foreign: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Role<T: Time, const N: usize, const W: usize, const BITS: u32> {
    Root(Root<T, N, W, BITS>),
    Member(Receiver<N, W, BITS>),
}

/// One root's stream at one of up to `N` members, which have ranks from 0, with `W` segments. It names memory by spans
/// of its ring; the host moves the bytes. Work per call as that of [`Root`] and [`Receiver`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Stream<T: Time, const N: usize, const W: usize, const BITS: u32> {
    key: GroupKey,
    config: StreamConfig,
    own: Rank,
    members: [Option<GroupMember>; N],
    ring: Ring,
    role: Role<T, N, W, BITS>,
    counters: StreamCounters,
}

/// A segment in order, whose payload the host takes before the next call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Delivery {
    /// Its number in its message.
    pub index: u32,
    /// Bytes of the message.
    pub bytes: u32,
    /// It is the last of its message.
    pub is_last: bool,
    /// Its payload.
    pub payload: Span,
}

impl<T: Time, const N: usize, const W: usize, const BITS: u32> Stream<T, N, W, BITS> {
    /// The stream at the process of rank `own`; `members` beyond `N` are ignored.
    pub fn new(
        key: GroupKey,
        config: StreamConfig,
        own: Rank,
        members: impl IntoIterator<Item = GroupMember>,
        ring: Ring,
    ) -> Self {
        let mut known = [None; N];
        known.iter_mut().zip(members).for_each(|(into, member)| *into = Some(member));
        let incarnation = known.get(config.topology.root.0 as usize).copied().flatten().map(|root| root.incarnation);
        let first = first_psn(incarnation.unwrap_or_default(), Incarnation(key.epoch as u32));
        let role = if own == config.topology.root {
            Role::Root(Root::new(config, first))
        } else {
            Role::Member(Receiver::new(config, own, first))
        };
        Self { key, config, own, members: known, ring, role, counters: StreamCounters::default() }
    }

    /// Counters of datagrams.
    pub const fn counters(&self) -> &StreamCounters {
        &self.counters
    }

    fn member(&self, rank: Rank) -> Option<&GroupMember> {
        self.members.get(rank.0 as usize)?.as_ref()
    }

    /// The payload of a segment in the ring; `None` if its message is not as long as that.
    fn span(&self, segment: &Segment<BITS>) -> Option<Span> {
        let (size, place) = (self.ring.segment_bytes, segment.psn.get() as usize & W.wrapping_sub(1));
        let start = segment.index.checked_mul(size)?;
        let bytes = segment.bytes.checked_sub(start)?.min(size);
        let is_last = segment.bytes.saturating_sub(start) <= size;
        let offset = place.checked_mul(size as usize)?.checked_add(self.ring.offset)?;
        let is_sound = is_last == segment.is_last && (bytes > 0 || segment.index == 0);
        is_sound.then_some(Span { region: self.ring.region, offset, bytes })
    }

    /// Queues the next segment of a message of `bytes` bytes at the root. Returns where the host copies its payload to
    /// before the next call.
    ///
    /// # Errors
    /// [`WindowFull`]; also at a process that is not the root, and for a segment that the message does not have.
    pub fn enqueue(&mut self, index: u32, bytes: u32) -> Result<Span, WindowFull> {
        let Role::Root(root) = &mut self.role else { return Err(WindowFull) };
        let end = index.checked_add(1).and_then(|end| end.checked_mul(self.ring.segment_bytes));
        let is_last = end.is_none_or(|end| end >= bytes);
        let segment = Segment { psn: root.next(), index, bytes, is_last, ack_now: false };
        let (psn, room) = (segment.psn, root.room());
        if room == 0 {
            return Err(WindowFull);
        }
        let span = self.span(&segment).ok_or(WindowFull)?;
        let Role::Root(root) = &mut self.role else { return Err(WindowFull) };
        let queued = root.enqueue(index, bytes, is_last)?;
        debug_assert!(queued == psn, "the segment has the number that it was given");
        Ok(span)
    }

    /// Segments that the root can queue now; 0 at other processes.
    pub const fn room(&self) -> u32 {
        match &self.role {
            Role::Root(root) => root.room(),
            Role::Member(_) => 0,
        }
    }

    /// Whether every living member has acknowledged all segments; true at members.
    pub fn is_idle(&self) -> bool {
        match &self.role {
            Role::Root(root) => root.is_idle(),
            Role::Member(_) => true,
        }
    }

    /// Whether multicasts do not reach a founder, at the root, as [`Root::is_deaf`] defines it.
    pub fn has_deaf_member(&self) -> bool {
        match &self.role {
            Role::Root(root) => root.has_deaf_member(),
            Role::Member(_) => false,
        }
    }

    /// Whether they do not reach this member.
    pub fn is_deaf(&self, member: Rank) -> bool {
        match &self.role {
            Role::Root(root) => root.is_deaf(member),
            Role::Member(_) => false,
        }
    }

    /// The smoothed round trip at the root, in units of 64 ns; zero without a sample.
    pub const fn round_trip(&self) -> u32 {
        match &self.role {
            Role::Root(root) => root.round_trip(),
            Role::Member(_) => 0,
        }
    }

    /// Whether the datagram belongs to this stream, and comes from the member that it names.
    fn parse(&self, datagram: &impl Received) -> Option<Datagram<BITS>> {
        let parsed = Datagram::<BITS>::parse(datagram.prefix(), datagram.bytes()).ok()?;
        let sender = self.member(parsed.sender)?;
        let is_ours = parsed.key == self.key && parsed.root == self.config.topology.root && parsed.sender != self.own;
        (is_ours && parsed.incarnation == sender.incarnation && datagram.is_from(sender.peer)).then_some(parsed)
    }

    /// Handles a datagram. Returns where the host copies its payload to, which begins at byte [`SEGMENT_HEADER`], before
    /// the next call.
    pub fn handle_datagram(&mut self, now: T::Instant, datagram: &impl Received) -> Option<Span> {
        let Some(parsed) = self.parse(datagram) else {
            self.counters.foreign = self.counters.foreign.wrapping_add(1);
            return None;
        };
        match (&mut self.role, &parsed.body) {
            (Role::Root(root), Body::Report(report)) => {
                self.counters.reports = self.counters.reports.wrapping_add(1);
                root.handle_report(now, parsed.sender, report);
            }
            (Role::Member(member), Body::Report(report)) => {
                self.counters.reports = self.counters.reports.wrapping_add(1);
                member.handle_report(parsed.sender, report);
            }
            (Role::Member(member), Body::Probe(probe)) => member.handle_probe(parsed.sender, probe),
            (Role::Member(_), Body::Segment(segment)) => {
                return self.handle_segment(&parsed, segment, datagram.bytes());
            }
            (Role::Root(_), Body::Probe(_) | Body::Segment(_)) => {
                self.counters.foreign = self.counters.foreign.wrapping_add(1);
            }
        }
        None
    }

    fn handle_segment(&mut self, parsed: &Datagram<BITS>, segment: &Segment<BITS>, length: u32) -> Option<Span> {
        let topology = self.config.topology;
        let is_sender = parsed.sender == topology.root || topology.is_co_root(parsed.sender);
        let span = self.span(segment).filter(|span| span.bytes.checked_add(SEGMENT_HEADER as u32) == Some(length));
        let (Some(span), true, Role::Member(member)) = (span, is_sender, &mut self.role) else {
            self.counters.foreign = self.counters.foreign.wrapping_add(1);
            return None;
        };
        let is_placed = member.handle_segment(segment) == Placement::Place;
        let counter = if is_placed { &mut self.counters.placed } else { &mut self.counters.duplicates };
        *counter = counter.wrapping_add(1);
        is_placed.then_some(span)
    }

    /// The next segment in order at a member.
    pub fn poll_delivery(&mut self) -> Option<Delivery> {
        let Role::Member(member) = &mut self.role else { return None };
        let segment = member.poll_delivery()?;
        let payload = self.span(&segment)?;
        Some(Delivery { index: segment.index, bytes: segment.bytes, is_last: segment.is_last, payload })
    }

    /// The segment that [`poll_delivery`](Self::poll_delivery) returns next.
    pub fn peek_delivery(&self) -> Option<Delivery> {
        let Role::Member(member) = &self.role else { return None };
        let segment = member.peek_delivery()?;
        let payload = self.span(segment)?;
        Some(Delivery { index: segment.index, bytes: segment.bytes, is_last: segment.is_last, payload })
    }

    /// The members that acknowledge to this one, and have not acknowledged all that is known to have been sent.
    pub fn lagging(&self) -> impl Iterator<Item = Rank> + '_ {
        let (root, member) = match &self.role {
            Role::Root(root) => (Some(root), None),
            Role::Member(member) => (None, Some(member)),
        };
        root.into_iter().flat_map(Root::lagging).chain(member.into_iter().flat_map(Receiver::lagging))
    }

    /// The member whose valid report this datagram is: an answer to a [`group_probe`](Self::group_probe) as long as
    /// nothing else was sent.
    pub fn reporter(&self, datagram: &impl Received) -> Option<Rank> {
        let parsed = self.parse(datagram)?;
        matches!(parsed.body, Body::Report(_)).then_some(parsed.sender)
    }

    /// A probe to all members of the group, whose header is written to `head`: the members that it reaches report.
    /// `None` at a process that is not the root.
    pub fn group_probe(&self, head: &mut [u8; HEADER_ROOM]) -> Option<Transmit> {
        let Role::Root(root) = &self.role else { return None };
        let probe = Probe { next: root.unsent(), start: root.unsent() };
        let body = Body::Probe(probe);
        let incarnation = self.member(self.own).map(|own| own.incarnation).unwrap_or_default();
        let datagram = Datagram { key: self.key, root: self.own, sender: self.own, incarnation, body };
        let (header_bytes, queue) = (datagram.emit(head), DeviceQueue::Polled);
        let (to, reason) = (Destination::Group(self.key.group), TxReason::Probe);
        Some(Transmit { to, queue, header_bytes, payload: None, solicited: false, reason })
    }

    /// The next datagram, whose header is written to `head`.
    pub fn poll_transmit(&mut self, now: T::Instant, head: &mut [u8; HEADER_ROOM]) -> Option<Transmit> {
        let request = match &mut self.role {
            Role::Root(root) => root.poll_transmit(now)?,
            Role::Member(member) => member.poll_transmit()?,
        };
        self.count(&request);
        let Request { to, body, is_repair } = request;
        let incarnation = self.member(self.own).map(|own| own.incarnation).unwrap_or_default();
        let root = self.config.topology.root;
        let header_bytes = Datagram { key: self.key, root, sender: self.own, incarnation, body }.emit(head);
        let (payload, reason) = match &body {
            Body::Segment(segment) if is_repair => (self.span(segment), TxReason::ResentNack),
            Body::Segment(segment) => (self.span(segment), TxReason::First),
            Body::Report(_) => (None, TxReason::Acknowledge),
            Body::Probe(_) => (None, TxReason::Probe),
        };
        let to = match to {
            Audience::Group => Destination::Group(self.key.group),
            // A member that is unknown is the unknown peer, to which datagrams are lost.
            Audience::Member(rank) => {
                Destination::first_rail(self.member(rank).map_or(PeerId(u32::MAX), |member| member.peer))
            }
        };
        Some(Transmit { to, queue: DeviceQueue::Polled, header_bytes, payload, solicited: false, reason })
    }

    fn count(&mut self, request: &Request<BITS>) {
        let counters = &mut self.counters;
        let counter = match (&request.body, request.to, request.is_repair) {
            (Body::Segment(_), Audience::Group, false) => &mut counters.sent,
            (Body::Segment(_), Audience::Member(_), false) => &mut counters.co_root_copies,
            (Body::Segment(_), Audience::Member(_), true) => &mut counters.repaired,
            (Body::Segment(_), Audience::Group, true) => &mut counters.repaired_all,
            (Body::Report(_), ..) => &mut counters.reports_sent,
            (Body::Probe(_), ..) => &mut counters.probes,
        };
        *counter = counter.wrapping_add(1);
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub const fn poll_timeout(&self) -> Option<T::Instant> {
        match &self.role {
            Role::Root(root) => root.poll_timeout(),
            Role::Member(_) => None,
        }
    }

    /// Handles a deadline that has passed.
    pub fn handle_timeout(&mut self, now: T::Instant) {
        if let Role::Root(root) = &mut self.role {
            root.handle_timeout(now);
        }
    }

    /// A member has failed, or has left. Another one may be [added](Self::add_member) in the place of one that was added.
    pub fn handle_failed(&mut self, now: T::Instant, rank: Rank) {
        match &mut self.role {
            Role::Root(root) => root.handle_failed(now, rank),
            Role::Member(member) => member.handle_failed(rank),
        }
        if let Some(place) = self.members.get_mut(rank.0 as usize)
            && rank.0 >= self.config.topology.founders
        {
            *place = None;
        }
    }

    /// Adds a member, which gets the stream from the next segment on; at the root its PSN is returned.
    pub fn add_member(&mut self, now: T::Instant, rank: Rank, member: GroupMember) -> Option<Psn<BITS>> {
        *self.members.get_mut(rank.0 as usize).filter(|place| place.is_none())? = Some(member);
        let Role::Root(root) = &mut self.role else { return None };
        root.add_member(now, rank);
        Some(root.unsent())
    }

    /// Takes part from this segment on, at a member that is no founder and that the root has [added](Self::add_member).
    /// Without this it begins when the root probes it.
    pub fn begin(&mut self, own: GroupMember, start: Psn<BITS>) {
        if let Some(place) = self.members.get_mut(self.own.0 as usize) {
            place.get_or_insert(own);
        }
        if let Role::Member(member) = &mut self.role {
            member.begin(start);
        }
    }

    /// The PSN of the first segment that is missing at a member whose root has failed, after all before it were
    /// delivered.
    pub fn ended(&self) -> Option<Psn<BITS>> {
        match &self.role {
            Role::Root(_) => None,
            Role::Member(member) => member.ended(),
        }
    }

    /// One round over a device: receives at most `budget` datagrams, handles the timer, and posts at most `budget`.
    /// `deliver` takes the segments in order. Returns whether any datagram was received or posted.
    pub fn make_progress<D: Device, M: Memory<Address = D::Address>>(
        &mut self,
        now: T::Instant,
        device: &mut D,
        memory: &M,
        budget: u32,
        mut deliver: impl FnMut(&Delivery),
    ) -> bool {
        let queue = DeviceQueue::Polled;
        let mut moved = false;
        for _ in 0..budget {
            let Some((slot, place)) =
                device.receive(queue).map(|datagram| (datagram.slot(), self.handle_datagram(now, &datagram)))
            else {
                break;
            };
            moved = true;
            if let Some((span, address)) = place.and_then(|span| Some((span, memory.address(span)?))) {
                device.place(slot, SEGMENT_HEADER as u16, span.bytes, address);
            }
            device.release(slot);
            while let Some(delivery) = self.poll_delivery() {
                deliver(&delivery);
            }
        }
        if self.poll_timeout().is_some_and(|at| T::is_due(now, at)) {
            self.handle_timeout(now);
        }
        let mut posted = false;
        for _ in 0..budget {
            let Some(mut token) = device.token(queue) else { break };
            let Some(transmit) = self.poll_transmit(now, token.header_room()) else { break };
            token.post(&transmit, transmit.payload.filter(|span| span.bytes > 0).and_then(|span| memory.address(span)));
            posted = true;
        }
        if posted {
            device.flush(queue);
        }
        moved | posted
    }
}
