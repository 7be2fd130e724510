//! Several UD devices as one, each of which is a rail: adapters, or ports of one.
//!
//! Every rail has queue pairs, address handles and memory registrations of its own. Payload that is registered belongs to
//! the first rail's protection domain; the others copy it next to its header. Groups are those of the first rail.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::ptr::NonNull;
use core::time::Duration;
use std::time::Instant;

use unisono_core::device::{
    Armed, Destination, Device, DeviceEvent, DeviceQueue, GroupError, HEADER_ROOM, Limits, PathRequest, Received, Slot,
    Ticket, Token, Transmit,
};
use unisono_core::ids::{GroupId, PeerId, Rail};

use super::arrival_waiter::wait_any;
use super::{
    ArrivalWaiter, COMPLETION_TIMEOUT, Datagram, Domain, GroupAddressError, Lent, OpenError, Path, PathError, Ud,
    UdOptions, WakeReason,
};

/// The first bit of a slot that holds its rail.
const RAIL_SHIFT: u32 = 24;

/// Registered memory as a rail sees it.
#[derive(Clone, Copy, Debug)]
struct RailMemory<A> {
    memory: A,
    /// Whether the rail's adapter knows it.
    is_known: bool,
}

// SAFETY: it is the caller's memory, for which the trait's promises were made; without a key it is copied.
unsafe impl<A: Lent> Lent for RailMemory<A> {
    fn start(self) -> NonNull<u8> {
        self.memory.start()
    }

    fn bytes(self) -> usize {
        self.memory.bytes()
    }

    fn key(self) -> Option<u32> {
        self.memory.key().filter(|_| self.is_known)
    }

    fn device_address(self) -> u64 {
        self.memory.device_address()
    }

    fn is_adjacent(self) -> bool {
        self.memory.is_adjacent()
    }

    unsafe fn copy_out(self, to: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller promises that the memory has that many bytes, and `to` room for them elsewhere.
        unsafe { self.memory.copy_out(to, bytes) };
    }

    unsafe fn copy_in(self, from: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller promises that the memory has that many bytes, and that `from` has them elsewhere.
        unsafe { self.memory.copy_in(from, bytes) };
    }
}

/// What one rail carried.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct UdRailCounts {
    /// Datagrams posted.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Datagrams that had no room because the link was down or the queue pair had failed.
    pub lost: u64,
    /// Datagrams received.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Times that the adapter reported the link down.
    pub link_downs: u64,
}

/// The postings of one lane that are not complete. Tickets of the rails are in order, and so are those of the lane.
#[derive(Debug, Default)]
struct Postings {
    last: Ticket,
    /// Of each rail: the lane's tickets, and the rail's.
    pending: Vec<VecDeque<(Ticket, Ticket)>>,
}

impl Postings {
    fn new(rails: usize) -> Self {
        Self { last: Ticket::default(), pending: (0..rails).map(|_| VecDeque::new()).collect() }
    }

    /// Records a posting, which the rail calls `ticket`; `None`: it is lost, and so complete.
    fn push(&mut self, rail: usize, ticket: Option<Ticket>) {
        self.last = self.last.next();
        if let Some((pending, ticket)) = self.pending.get_mut(rail).zip(ticket) {
            pending.push_back((self.last, ticket));
        }
    }

    /// The rail has completed its postings up to `upto`.
    fn handle_completed(&mut self, rail: usize, upto: Ticket) {
        let Some(pending) = self.pending.get_mut(rail) else { return };
        while pending.front().is_some_and(|(_, ticket)| ticket.is_within(upto)) {
            pending.pop_front();
        }
    }

    /// The latest ticket of the lane up to which all postings are complete.
    fn completed(&self) -> Ticket {
        let oldest =
            self.pending.iter().filter_map(VecDeque::front).map(|(ticket, _)| self.last.0.wrapping_sub(ticket.0));
        // As many postings after the last complete one.
        let open = oldest.max().map_or(0, |later| later.wrapping_add(1));
        Ticket(self.last.0.wrapping_sub(open))
    }

    /// The rail is closed: nothing is posted there any more.
    fn forget(&mut self, rail: usize) {
        if let Some(pending) = self.pending.get_mut(rail) {
            pending.clear();
        }
    }

    fn is_pending(&self, rail: usize) -> bool {
        self.pending.get(rail).is_some_and(|pending| !pending.is_empty())
    }
}

/// One rail.
struct RailDevice<A> {
    device: Ud<RailMemory<A>>,
    counts: UdRailCounts,
    /// Since when its link is down.
    down_since: Option<Instant>,
}

/// A [`Device`] of several rails. `A` is as that of [`Ud`].
pub struct UdRails<A> {
    rails: Vec<RailDevice<A>>,
    postings: [Postings; 2],
    /// The header of the next posting, until its rail is known.
    head: [u8; HEADER_ROOM],
    /// The rail that is received from next.
    next: usize,
    limits: Limits,
}

impl<A: Lent> UdRails<A> {
    /// A rail on each domain's port, in this order.
    ///
    /// # Errors
    /// [`OpenError`]; also without a domain.
    pub fn new(domains: &[Arc<Domain>], options: &UdOptions) -> Result<Self, OpenError> {
        let mut rails = Vec::new();
        for (number, domain) in domains.iter().enumerate() {
            let groups = if number == 0 { options.groups } else { 0 };
            let device = Ud::new(domain, &UdOptions { groups, ..options.clone() })?;
            rails.push(RailDevice { device, counts: UdRailCounts::default(), down_since: None });
        }
        let first = rails.first().ok_or(OpenError::NoAdapter)?.device.limits();
        let all = || rails.iter().map(|rail| rail.device.limits());
        let limits = Limits {
            mtu: all().map(|limits| limits.mtu).min().unwrap_or(first.mtu),
            rails: u8::try_from(rails.len()).unwrap_or(u8::MAX),
            ..first
        };
        let postings = [Postings::new(rails.len()), Postings::new(rails.len())];
        Ok(Self { rails, postings, head: [0; HEADER_ROOM], next: 0, limits })
    }

    fn device(&self, rail: Rail) -> Option<&Ud<RailMemory<A>>> {
        self.rails.get(usize::from(rail.0)).map(|rail| &rail.device)
    }

    fn devices(&mut self) -> impl Iterator<Item = &mut Ud<RailMemory<A>>> {
        self.rails.iter_mut().map(|rail| &mut rail.device)
    }

    /// The path to this device over a rail, as [`Ud::local`].
    pub fn local(&self, rail: Rail) -> Option<Path> {
        self.device(rail).map(Ud::local)
    }

    /// Sets the path to a peer over a rail, as [`Ud::set_path`].
    ///
    /// # Errors
    /// [`PathError`].
    pub fn set_path(&mut self, peer: PeerId, rail: Rail, path: Path, mtu: u32) -> Result<(), PathError> {
        let mtu = mtu.min(self.limits.mtu);
        let device = self.rails.get_mut(usize::from(rail.0)).map(|rail| &mut rail.device);
        device.ok_or(PathError::UnknownRail)?.set_path(peer, path, mtu)
    }

    /// No path leads to the peer over this rail.
    pub fn clear_path(&mut self, peer: PeerId, rail: Rail) {
        if let Some(rail) = self.rails.get_mut(usize::from(rail.0)) {
            rail.device.clear_path(peer);
        }
    }

    /// The rails' devices.
    pub fn rails(&self) -> impl Iterator<Item = &Ud<impl Lent + use<A>>> {
        self.rails.iter().map(|rail| &rail.device)
    }

    /// The first rail's adapter.
    pub fn domain(&self) -> &Arc<Domain> {
        // There is at least one rail.
        self.rails[0].device.domain()
    }

    /// What a rail carried.
    pub fn counts(&self, rail: Rail) -> UdRailCounts {
        self.rails.get(usize::from(rail.0)).map_or_else(UdRailCounts::default, |rail| rail.counts)
    }

    /// A waiter for a lane's arrivals over any rail.
    pub fn arrival_waiter(&self, lane: DeviceQueue) -> RailsWaiter {
        RailsWaiter { rails: self.rails.iter().map(|rail| rail.device.arrival_waiter(lane)).collect() }
    }

    /// Whether every adapter is gone for good.
    pub fn is_closed(&self) -> bool {
        self.rails.iter().all(|rail| rail.device.is_closed())
    }

    /// As [`Ud::set_group`].
    ///
    /// # Errors
    /// [`GroupAddressError`]; nothing has changed.
    pub fn set_group(&mut self, group: GroupId, address: IpAddr) -> Result<(), GroupAddressError> {
        self.rails.first_mut().map_or(Ok(()), |rail| rail.device.set_group(group, address))
    }

    /// As [`Ud::settle`].
    pub fn settle(&mut self, key: u32) {
        // The others know no key of the first rail's.
        if let Some(first) = self.rails.first_mut() {
            first.device.settle(key);
        }
    }

    /// Whether a datagram is available on the lane.
    #[inline]
    pub fn poll(&mut self, lane: DeviceQueue) -> bool {
        self.devices().any(|device| device.poll(lane))
    }

    /// Takes the completions of every rail, so that the lane's are known.
    fn collect(&mut self, lane: DeviceQueue) -> Ticket {
        let postings = lane_of(&mut self.postings, lane);
        for (number, rail) in self.rails.iter_mut().enumerate() {
            if postings.is_pending(number) {
                postings.handle_completed(number, rail.device.completed(lane));
            }
        }
        postings.completed()
    }

    /// Restarts the queue pairs of rails whose link is down and whose postings stay incomplete: others wait for them. If
    /// even that does not complete them, the rail is closed.
    fn release_stuck(&mut self) {
        for (number, rail) in self.rails.iter_mut().enumerate() {
            if rail.down_since.is_none_or(|since| since.elapsed() < COMPLETION_TIMEOUT) {
                continue;
            }
            rail.down_since = Some(Instant::now());
            for (lane, postings) in [DeviceQueue::Polled, DeviceQueue::Interrupt].into_iter().zip(&mut self.postings) {
                if postings.is_pending(number) {
                    rail.device.restart(lane);
                    postings.handle_completed(number, rail.device.completed(lane));
                }
            }
            if self.postings.iter().any(|postings| postings.is_pending(number)) {
                rail.device.close();
                self.postings.iter_mut().for_each(|postings| postings.forget(number));
            }
        }
    }

    /// The event of a rail as one of the whole device.
    fn event(&mut self, number: usize, event: DeviceEvent) -> Option<DeviceEvent> {
        let (rail, of) = (Rail(number as u8), self.rails.get_mut(number)?);
        Some(match event {
            DeviceEvent::Path { peer, mtu, .. } => DeviceEvent::Path { peer, rail, mtu: mtu.min(self.limits.mtu) },
            DeviceEvent::NoPath { peer, .. } => DeviceEvent::NoPath { peer, rail },
            DeviceEvent::Down(_) => {
                // A queue pair that fails is no link.
                of.counts.link_downs += u64::from(of.down_since.is_none() && !of.device.is_up());
                of.down_since = of.down_since.or_else(|| Some(Instant::now()));
                DeviceEvent::Down(rail)
            }
            // A queue pair that works again makes no link.
            DeviceEvent::Up(_) if !of.device.is_up() => return None,
            DeviceEvent::Up(_) => {
                of.down_since = None;
                DeviceEvent::Up(rail)
            }
        })
    }
}

fn lane_of<T>([polled, interrupt]: &mut [T; 2], lane: DeviceQueue) -> &mut T {
    match lane {
        DeviceQueue::Polled => polled,
        DeviceQueue::Interrupt => interrupt,
    }
}

/// The rail of a slot, and its number there.
const fn parts(slot: Slot) -> (usize, Slot) {
    ((slot.0 >> RAIL_SHIFT) as usize, Slot(slot.0 & ((1 << RAIL_SHIFT) - 1)))
}

/// A datagram of one rail.
pub struct RailDatagram<'a> {
    inner: Datagram<'a>,
    rail: u8,
}

impl Received for RailDatagram<'_> {
    fn slot(&self) -> Slot {
        Slot(self.inner.slot().0 | u32::from(self.rail) << RAIL_SHIFT)
    }

    fn bytes(&self) -> u32 {
        self.inner.bytes()
    }

    fn prefix(&self) -> &[u8] {
        self.inner.prefix()
    }

    fn is_from(&self, peer: PeerId) -> bool {
        self.inner.is_from(peer)
    }

    fn rail(&self) -> Rail {
        Rail(self.rail)
    }

    fn age_ns(&self) -> Option<u32> {
        self.inner.age_ns()
    }
}

/// A free send entry, on every rail whose link is up.
pub struct RailsToken<'a, A> {
    rails: &'a mut [RailDevice<A>],
    postings: &'a mut Postings,
    head: &'a mut [u8; HEADER_ROOM],
    lane: DeviceQueue,
}

impl<A: Lent> Token for RailsToken<'_, A> {
    type Address = A;

    #[inline]
    fn ticket(&self) -> Ticket {
        self.postings.last.next()
    }

    #[inline]
    fn header_room(&mut self) -> &mut [u8; HEADER_ROOM] {
        self.head
    }

    /// A datagram for a rail without room, whose link is down, is lost.
    fn post(self, transmit: &Transmit, payload: Option<A>) {
        let (number, to) = match transmit.to {
            Destination::Peer { peer, rail } => (usize::from(rail.0), Destination::first_rail(peer)),
            Destination::Group(_) => (0, transmit.to),
        };
        let mut ticket = None;
        if let Some(RailDevice { device, counts, .. }) = self.rails.get_mut(number) {
            match device.token(self.lane) {
                Some(mut token) => {
                    *token.header_room() = *self.head;
                    ticket = Some(token.ticket());
                    let payload = payload.map(|memory| RailMemory { memory, is_known: number == 0 });
                    counts.sent += 1;
                    counts.sent_bytes += u64::from(transmit.bytes());
                    token.post(&Transmit { to, ..*transmit }, payload);
                }
                None => counts.lost += 1,
            }
        }
        self.postings.push(number, ticket);
    }
}

impl<A: Lent> Device for UdRails<A> {
    type Address = A;
    type Token<'a>
        = RailsToken<'a, A>
    where
        A: 'a;
    type Received<'a>
        = RailDatagram<'a>
    where
        A: 'a;

    fn limits(&self) -> Limits {
        self.limits
    }

    fn token(&mut self, lane: DeviceQueue) -> Option<RailsToken<'_, A>> {
        // Which rail the datagram takes is not known yet.
        let has_room = |RailDevice { device, .. }: &mut RailDevice<A>| {
            !device.is_up() || device.has_failed(lane) || device.token(lane).is_some()
        };
        if !self.rails.iter_mut().all(has_room) {
            return None;
        }
        let Self { rails, postings, head, .. } = self;
        Some(RailsToken { rails, postings: lane_of(postings, lane), head, lane })
    }

    fn flush(&mut self, lane: DeviceQueue) {
        self.devices().for_each(|device| device.flush(lane));
    }

    fn completed(&mut self, lane: DeviceQueue) -> Ticket {
        self.collect(lane)
    }

    fn receive(&mut self, lane: DeviceQueue) -> Option<RailDatagram<'_>> {
        let count = self.rails.len();
        let order = (0..count).map(|i| (self.next + i) % count);
        let number =
            order.into_iter().find(|number| self.rails.get_mut(*number).is_some_and(|rail| rail.device.poll(lane)))?;
        self.next = number + 1;
        let RailDevice { device, counts, .. } = self.rails.get_mut(number)?;
        let inner = device.take(lane)?;
        counts.received += 1;
        counts.received_bytes += u64::from(inner.bytes());
        Some(RailDatagram { inner, rail: number as u8 })
    }

    fn place(&mut self, from: Slot, start: u16, bytes: u32, to: A) {
        let (rail, slot) = parts(from);
        if let Some(rail) = self.rails.get_mut(rail) {
            rail.device.place(slot, start, bytes, RailMemory { memory: to, is_known: false });
        }
    }

    fn hold(&mut self, slot: Slot) {
        let (rail, slot) = parts(slot);
        if let Some(rail) = self.rails.get_mut(rail) {
            rail.device.hold(slot);
        }
    }

    fn held(&self, slot: Slot) -> RailDatagram<'_> {
        let (number, slot) = parts(slot);
        // There is at least one rail.
        let rail = self.rails.get(number).unwrap_or(&self.rails[0]);
        RailDatagram { inner: rail.device.held(slot), rail: number as u8 }
    }

    fn release(&mut self, slot: Slot) {
        let (rail, slot) = parts(slot);
        if let Some(rail) = self.rails.get_mut(rail) {
            rail.device.release(slot);
        }
    }

    fn arm(&mut self, lane: DeviceQueue) -> Armed {
        let is_pending = self.devices().fold(false, |any, device| any | (device.arm(lane) == Armed::Pending));
        if is_pending { Armed::Pending } else { Armed::Armed }
    }

    fn request_path(&mut self, request: PathRequest) {
        self.devices().for_each(|device| device.request_path(request));
    }

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        self.release_stuck();
        for number in 0..self.rails.len() {
            while let Some(event) = self.rails.get_mut(number).and_then(|rail| rail.device.poll_event()) {
                if let Some(event) = self.event(number, event) {
                    return Some(event);
                }
            }
        }
        None
    }

    fn join(&mut self, group: GroupId) -> Result<(), GroupError> {
        self.rails.first_mut().map_or(Err(GroupError::Unsupported), |rail| rail.device.join(group))
    }

    fn leave(&mut self, group: GroupId) -> Result<(), GroupError> {
        self.rails.first_mut().map_or(Err(GroupError::Unsupported), |rail| rail.device.leave(group))
    }
}

/// Waits for the event of one lane of any rail. Clones share it; the device need not be held meanwhile.
#[derive(Clone, Debug)]
pub struct RailsWaiter {
    rails: Arc<[ArrivalWaiter]>,
}

impl RailsWaiter {
    /// As [`ArrivalWaiter::wait`].
    pub fn wait(&self, timeout: Option<Duration>) -> WakeReason {
        wait_any(&self.rails, timeout)
    }

    /// Ends a wait, or the next one.
    pub fn notify(&self) {
        if let Some(first) = self.rails.first() {
            first.notify();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_complete_up_to_the_oldest_open_posting_of_any_rail() {
        let mut postings = Postings::new(2);
        assert_eq!(postings.completed(), Ticket(0));
        // The lane's tickets 1 to 5: rail 0, rail 1, rail 0, lost, rail 1.
        for (rail, ticket) in [(0, Some(1)), (1, Some(1)), (0, Some(2)), (0, None), (1, Some(2))] {
            postings.push(rail, ticket.map(Ticket));
        }
        assert_eq!(postings.completed(), Ticket(0));
        postings.handle_completed(0, Ticket(2));
        assert_eq!(postings.completed(), Ticket(1));
        postings.handle_completed(1, Ticket(1));
        assert_eq!(postings.completed(), Ticket(4), "the lost one is complete");
        postings.handle_completed(1, Ticket(2));
        assert_eq!(postings.completed(), Ticket(5));
    }

    #[test]
    fn a_closed_rail_holds_up_no_other() {
        let mut postings = Postings::new(2);
        for (rail, ticket) in [(0, Ticket(1)), (1, Ticket(1)), (0, Ticket(2))] {
            postings.push(rail, Some(ticket));
        }
        postings.handle_completed(0, Ticket(2));
        assert_eq!(postings.completed(), Ticket(1));
        postings.forget(1);
        assert!(!postings.is_pending(1));
        assert_eq!(postings.completed(), Ticket(3));
    }

    #[test]
    fn tickets_wrap() {
        let mut postings = Postings { last: Ticket(u32::MAX - 1), ..Postings::new(2) };
        postings.push(0, Some(Ticket(u32::MAX)));
        postings.push(1, Some(Ticket(7)));
        postings.push(0, Some(Ticket(0)));
        assert_eq!(postings.completed(), Ticket(u32::MAX - 1));
        postings.handle_completed(0, Ticket(0));
        assert_eq!(postings.completed(), Ticket(u32::MAX));
        postings.handle_completed(1, Ticket(7));
        assert_eq!(postings.completed(), Ticket(1));
    }

    #[test]
    fn slots_tell_their_rail() {
        assert_eq!(parts(Slot(3 << RAIL_SHIFT | 0x1_0007)), (3, Slot(0x1_0007)));
    }
}
