//! Devices broken on purpose: the suite must find every [`Flaw`], else it proves nothing.

use unisono_core::device::{
    Armed, Destination, Device, DeviceEvent, DeviceQueue, GroupError, HEADER_ROOM, Limits, Memory, PathRequest,
    Received, Slot, Ticket, Token, Transmit, TxReason,
};
use unisono_core::ids::{GroupId, PeerId, Rail};
use unisono_core::span::{Region, Span};

use super::{Fixture, TestMemory};

/// A broken promise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// None: the wrapper itself changes nothing.
    None,
    /// One of four postings leaves with a bit changed.
    ChangesByte,
    /// A datagram without bytes is not sent.
    LosesEmpty,
    /// One posting in eight is not sent.
    LosesOneInEight,
    /// The returned header lacks its last byte.
    ShowsShortHead,
    /// Bytes are placed from one byte before the requested start.
    PlacesOneOff,
    /// The last byte is not placed.
    PlacesShort,
    /// `is_from` is true for every peer.
    NamesEveryPeer,
    /// `is_from` is false for every peer.
    NamesNobody,
    /// All held datagrams have the bytes of the latest.
    KeepsOneHeld,
    /// Held datagrams have another slot.
    RenamesHeld,
    /// Held datagrams stay in the ring.
    HoldsInRing,
    /// Buffers are never released.
    NeverReleases,
    /// A posting is called complete before it is flushed.
    CompletesEarly,
    /// A ticket that was never posted is called complete.
    CompletesAhead,
    /// No ticket is ever complete.
    NeverCompletes,
    /// A ticket is left out.
    SkipsTicket,
    /// A token that is dropped is sent.
    PostsUnused,
    /// Everything arrives on the polled lane.
    HasOneLane,
    /// Arming always reports that no datagram waits.
    NeverPending,
    /// Arming raises no event.
    RaisesNothing,
    /// Path requests are not answered.
    IgnoresPathRequests,
    /// Only the first rail delivers.
    HasOneRail,
    /// Path requests are answered for the first rail only.
    ResolvesOneRail,
    /// Joining succeeds and changes nothing.
    JoinsNothing,
    /// A member that leaves stays one.
    NeverLeaves,
    /// A member of one group is a member of another, too.
    JoinsTwo,
    /// Joining is called unsupported.
    DeniesGroups,
    /// A stale generation of a region still has an address.
    IgnoresGenerations,
}

/// A fixture whose devices all have the flaw.
#[derive(Debug)]
pub struct Flawed<F> {
    fixture: F,
    flaw: Flaw,
}

impl<F> Flawed<F> {
    /// Breaks a fixture's devices.
    pub const fn new(fixture: F, flaw: Flaw) -> Self {
        Self { fixture, flaw }
    }
}

/// A broken device.
#[derive(Debug)]
pub struct FlawedDevice<D> {
    device: D,
    flaw: Flaw,
    posted: [Option<Ticket>; 2],
    held: Vec<Slot>,
}

/// A broken device's token.
#[derive(Debug)]
pub struct FlawedToken<'a, T: Token> {
    token: Option<T>,
    flaw: Flaw,
    posted: &'a mut Option<Ticket>,
}

/// A broken device's datagram.
#[derive(Debug)]
pub struct FlawedReceived<R> {
    received: R,
    flaw: Flaw,
    slot: Slot,
}

/// A broken device's memory.
#[derive(Debug)]
pub struct FlawedMemory<M> {
    memory: M,
    flaw: Flaw,
    regions: Vec<Region>,
}

impl<T: Token> Token for FlawedToken<'_, T> {
    type Address = T::Address;

    fn ticket(&self) -> Ticket {
        let ticket = self.token.as_ref().map_or_else(Ticket::default, Token::ticket);
        if self.flaw == Flaw::SkipsTicket && ticket.0 > 2 { ticket.next() } else { ticket }
    }

    fn header_room(&mut self) -> &mut [u8; HEADER_ROOM] {
        self.token.as_mut().expect("a token has its inner one until it is posted").header_room()
    }

    fn post(mut self, transmit: &Transmit, payload: Option<T::Address>) {
        let mut token = self.token.take().expect("a token is posted once");
        let ticket = token.ticket();
        *self.posted = Some(ticket);
        let mut transmit = *transmit;
        let empty = transmit.header_bytes == 0 && payload.is_none();
        match self.flaw {
            Flaw::ChangesByte if ticket.0.is_multiple_of(4) => token.header_room()[0] ^= 0x20,
            Flaw::LosesOneInEight if ticket.0.is_multiple_of(8) => transmit.to = PeerId(u32::MAX).into(),
            Flaw::LosesEmpty if empty => transmit.to = PeerId(u32::MAX).into(),
            Flaw::HasOneLane => transmit.queue = DeviceQueue::Polled,
            Flaw::HasOneRail if matches!(transmit.to, Destination::Peer { rail, .. } if rail != Rail(0)) => {
                transmit.to = PeerId(u32::MAX).into();
            }
            _ => {}
        }
        token.post(&transmit, payload);
    }
}

impl<T: Token> Drop for FlawedToken<'_, T> {
    fn drop(&mut self) {
        if let (Flaw::PostsUnused, Some(token)) = (self.flaw, self.token.take()) {
            let to = PeerId(0);
            let transmit = Transmit {
                to: to.into(),
                queue: DeviceQueue::Polled,
                header_bytes: 8,
                payload: None,
                solicited: false,
                reason: TxReason::First,
            };
            token.post(&transmit, None);
        }
    }
}

impl<R: Received> Received for FlawedReceived<R> {
    fn slot(&self) -> Slot {
        self.slot
    }

    fn bytes(&self) -> u32 {
        self.received.bytes()
    }

    fn prefix(&self) -> &[u8] {
        let head = self.received.prefix();
        if self.flaw == Flaw::ShowsShortHead { &head[..head.len().saturating_sub(1)] } else { head }
    }

    fn is_from(&self, peer: PeerId) -> bool {
        match self.flaw {
            Flaw::NamesEveryPeer => true,
            Flaw::NamesNobody => false,
            _ => self.received.is_from(peer),
        }
    }

    fn age_ns(&self) -> Option<u32> {
        self.received.age_ns()
    }
}

impl<D: Device> Device for FlawedDevice<D> {
    type Address = D::Address;
    type Token<'a>
        = FlawedToken<'a, D::Token<'a>>
    where
        Self: 'a;
    type Received<'a>
        = FlawedReceived<D::Received<'a>>
    where
        Self: 'a;

    fn limits(&self) -> Limits {
        self.device.limits()
    }

    fn token(&mut self, lane: DeviceQueue) -> Option<Self::Token<'_>> {
        let token = Some(self.device.token(lane)?);
        Some(FlawedToken { token, flaw: self.flaw, posted: &mut self.posted[lane as usize] })
    }

    fn flush(&mut self, lane: DeviceQueue) {
        self.device.flush(lane);
    }

    fn completed(&mut self, lane: DeviceQueue) -> Ticket {
        let completed = self.device.completed(lane);
        match self.flaw {
            Flaw::CompletesEarly => self.posted[lane as usize].unwrap_or(completed),
            Flaw::CompletesAhead => completed.next(),
            Flaw::NeverCompletes => Ticket::default(),
            _ => completed,
        }
    }

    fn receive(&mut self, lane: DeviceQueue) -> Option<Self::Received<'_>> {
        let received = self.device.receive(lane)?;
        Some(FlawedReceived { slot: received.slot(), received, flaw: self.flaw })
    }

    fn place(&mut self, from: Slot, start: u16, bytes: u32, to: D::Address) {
        match self.flaw {
            Flaw::PlacesOneOff => self.device.place(from, start.saturating_sub(1), bytes, to),
            Flaw::PlacesShort => self.device.place(from, start, bytes.saturating_sub(1), to),
            _ => self.device.place(from, start, bytes, to),
        }
    }

    fn hold(&mut self, slot: Slot) {
        self.held.push(slot);
        if self.flaw != Flaw::HoldsInRing {
            self.device.hold(slot);
        }
    }

    fn held(&self, slot: Slot) -> Self::Received<'_> {
        let shown = match self.flaw {
            Flaw::KeepsOneHeld => self.held.last().copied().unwrap_or(slot),
            _ => slot,
        };
        let renamed = if self.flaw == Flaw::RenamesHeld { Slot(slot.0.wrapping_add(1)) } else { slot };
        FlawedReceived { received: self.device.held(shown), flaw: self.flaw, slot: renamed }
    }

    fn release(&mut self, slot: Slot) {
        if self.flaw != Flaw::NeverReleases {
            self.held.retain(|held| *held != slot);
            self.device.release(slot);
        }
    }

    fn arm(&mut self, lane: DeviceQueue) -> Armed {
        match self.flaw {
            Flaw::RaisesNothing => Armed::Armed,
            Flaw::NeverPending => {
                self.device.arm(lane);
                Armed::Armed
            }
            _ => self.device.arm(lane),
        }
    }

    fn request_path(&mut self, request: PathRequest) {
        if self.flaw != Flaw::IgnoresPathRequests {
            self.device.request_path(request);
        }
    }

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        let further = |event: &DeviceEvent| matches!(event, DeviceEvent::Path { rail, .. } | DeviceEvent::NoPath { rail, .. } if *rail != Rail(0));
        self.device.poll_event().filter(|event| self.flaw != Flaw::ResolvesOneRail || !further(event))
    }

    fn join(&mut self, group: GroupId) -> Result<(), GroupError> {
        match self.flaw {
            Flaw::JoinsNothing => Ok(()),
            Flaw::JoinsTwo => self.device.join(group).and_then(|()| self.device.join(GroupId(group.0 ^ 1))),
            Flaw::DeniesGroups => Err(GroupError::Unsupported),
            _ => self.device.join(group),
        }
    }

    fn leave(&mut self, group: GroupId) -> Result<(), GroupError> {
        match self.flaw {
            Flaw::NeverLeaves => Ok(()),
            _ => self.device.leave(group),
        }
    }
}

impl<M: Memory> Memory for FlawedMemory<M> {
    type Address = M::Address;

    fn address(&self, span: Span) -> Option<M::Address> {
        let latest = self.regions.iter().rev().find(|region| region.index() == span.region.index());
        let region = match (self.flaw, latest) {
            (Flaw::IgnoresGenerations, Some(&region)) => region,
            _ => span.region,
        };
        self.memory.address(Span { region, ..span })
    }
}

impl<M: TestMemory> TestMemory for FlawedMemory<M> {
    fn make(&mut self, bytes: usize) -> Region {
        let region = self.memory.make(bytes);
        self.regions.push(region);
        region
    }

    fn retire(&mut self, region: Region) {
        self.memory.retire(region);
    }

    fn write(&mut self, region: Region, offset: usize, bytes: &[u8]) {
        self.memory.write(region, offset, bytes);
    }

    fn read(&mut self, region: Region, offset: usize, bytes: usize) -> Vec<u8> {
        self.memory.read(region, offset, bytes)
    }
}

impl<F: Fixture> Fixture for Flawed<F> {
    type Device = FlawedDevice<F::Device>;
    type Memory = FlawedMemory<F::Memory>;

    fn connect(&mut self, count: u32) -> Vec<(Self::Device, Self::Memory)> {
        let flaw = self.flaw;
        let broken = |(device, memory)| {
            let device = FlawedDevice { device, flaw, posted: [None; 2], held: Vec::new() };
            (device, FlawedMemory { memory, flaw, regions: Vec::new() })
        };
        self.fixture.connect(count).into_iter().map(broken).collect()
    }

    fn advance(&mut self, ns: u64) {
        self.fixture.advance(ns);
    }

    fn wait(&mut self, device: &mut Self::Device, lane: DeviceQueue, ns: u64) -> bool {
        self.fixture.wait(&mut device.device, lane, ns)
    }

    fn is_faulty(&self) -> bool {
        self.fixture.is_faulty()
    }
}
