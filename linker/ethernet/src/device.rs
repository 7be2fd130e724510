//! The core's [`Device`] over a [`phy::Device`].
//!
//! A datagram is copied twice: by the sender into its frame when it is posted, which completes it, and by the receiver
//! out of the frame into a private [`Buffer`], where its checksum is verified and from where it is placed.
//!
//! A datagram posted to a peer whose adapter is not resolved yet is dropped and counted, and an ARP request is sent
//! instead. The same holds for every fourth probe, because a silent peer may have moved to another adapter. The
//! endpoint retransmits. A caller that wants to wait issues [`PathRequest::Resolve`], and repeats it where no answer
//! came. There is one queue.

use core::fmt;
use core::marker::PhantomData;

use smoltcp::phy::{self, ChecksumCapabilities, RxToken as _, TxToken as _};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, Ipv4Address};
use unisono_core::device::{
    Armed, Device, DeviceEvent, DeviceQueue, HEADER_ROOM, Limits, PathRequest, Received, Slot, Ticket, Token, Transmit,
    TxReason,
};
use unisono_core::ids::{PeerId, Rail};
use unisono_shmem::user_memory::{self, UserMemory};

use crate::address_table::{AddressEntry, AddressTable, Interface, MTU_MIN, Path, PathError, Route};
use crate::crc::TRAILER;
use crate::frame::{self, ARP, FRAME_OVERHEAD, FrameContent, HEADERS};

/// Bytes of the longest UDP payload on an ordinary Ethernet.
pub const MTU: usize = 1472;
/// Buffers beyond those for held datagrams.
pub const SPARE: usize = 8;
/// Receive slots to report where the adapter states no limit.
const SLOTS: u32 = 256;
/// Shortest useful timeout.
const GRANULARITY_NS: u32 = 250_000;
/// Events that wait to be polled; more are dropped.
const EVENTS: usize = 16;
/// Frames that one call handles.
const FRAMES_PER_CALL: usize = 64;

/// A datagram in private memory: a UDP payload of at most `BYTES` bytes.
#[derive(Clone, Copy)]
pub struct Buffer<const BYTES: usize = MTU> {
    from: (Ipv4Address, u16),
    /// Without the trailer.
    length: u16,
    taken: bool,
    bytes: [u8; BYTES],
}

impl<const BYTES: usize> Buffer<BYTES> {
    /// An unused buffer.
    pub const FREE: Self = Self { from: (Ipv4Address::UNSPECIFIED, 0), length: 0, taken: false, bytes: [0; BYTES] };

    fn contents(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }
}

impl<const BYTES: usize> fmt::Debug for Buffer<BYTES> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Buffer({} bytes from {:?}, taken: {})", self.length, self.from, self.taken)
    }
}

/// Counters of dropped datagrams and frames.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DropCounts {
    /// Posted to an unknown peer, or too long.
    pub unknown_peer: u32,
    /// Posted before the peer's adapter was resolved, or resolved again.
    pub unresolved: u32,
    /// Received frames for another address or protocol.
    pub foreign: u32,
    /// Received frames with a wrong length or checksum.
    pub malformed: u32,
    /// Received datagrams with a wrong CRC-32C.
    pub corrupt: u32,
}

/// Why a device cannot be created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InterfaceError {
    /// The adapter carries no Ethernet frames.
    NoEthernet,
    /// Less than [`MTU_MIN`] bytes of UDP payload fit in a frame or a buffer.
    TooNarrow,
    /// An address is not a unicast address, or the port is 0.
    NotAnAddress,
}

/// Everything but the adapter, which tokens borrow separately.
#[derive(Debug)]
struct State<'a> {
    own: Interface,
    addresses: AddressTable<'a>,
    checksums: ChecksumCapabilities,
    head: [u8; HEADER_ROOM],
    posted: Ticket,
    events: [Option<DeviceEvent>; EVENTS],
    /// Of UDP payload, trailer included.
    mtu: u32,
    drop_counts: DropCounts,
}

/// A [`Device`] over an adapter. `A` addresses user memory; UDP payloads have at most `BYTES` bytes.
#[derive(Debug)]
pub struct EthernetDevice<'a, P, A, const BYTES: usize = MTU> {
    phy: P,
    state: State<'a>,
    buffers: &'a mut [Buffer<BYTES>],
    /// Arrived while the queue was armed, and not returned yet.
    waiting: Option<Slot>,
    slots: u32,
    now: Instant,
    memory: PhantomData<fn(A)>,
}

/// Outcome of handling a frame.
enum FrameOutcome {
    Datagram,
    /// An ARP request to answer.
    Answer(Ipv4Address, EthernetAddress),
    Nothing,
}

impl<'a, P: phy::Device, A, const BYTES: usize> EthernetDevice<'a, P, A, BYTES> {
    /// A device on this adapter, with one table entry for each rank of the job, and buffers: [`SPARE`] plus the number
    /// of holdable datagrams.
    ///
    /// # Errors
    /// [`InterfaceError`].
    pub fn new(
        phy: P,
        own: Interface,
        neighbours: &'a mut [AddressEntry],
        buffers: &'a mut [Buffer<BYTES>],
    ) -> Result<Self, InterfaceError> {
        let capabilities = phy.capabilities();
        if capabilities.medium != phy::Medium::Ethernet {
            return Err(InterfaceError::NoEthernet);
        }
        let address = own.address.address();
        let host = !address.is_unspecified() && !address.is_multicast() && !address.is_broadcast();
        if !host || !own.hardware.is_unicast() || own.port == 0 {
            return Err(InterfaceError::NotAnAddress);
        }
        let longest = capabilities.max_transmission_unit.saturating_sub(frame::ETHERNET).min(usize::from(u16::MAX));
        let mtu = u32::try_from(longest.saturating_sub(HEADERS).min(BYTES)).unwrap_or(0);
        if mtu < MTU_MIN {
            return Err(InterfaceError::TooNarrow);
        }
        let slots = capabilities.max_burst_size.and_then(|burst| u32::try_from(burst).ok()).unwrap_or(SLOTS);
        let state = State {
            own,
            addresses: AddressTable(neighbours),
            checksums: capabilities.checksum,
            head: [0; HEADER_ROOM],
            posted: Ticket::default(),
            events: [None; EVENTS],
            mtu,
            drop_counts: DropCounts::default(),
        };
        Ok(Self { phy, state, buffers, waiting: None, slots, now: Instant::ZERO, memory: PhantomData })
    }

    /// Sets a peer's path. Its adapter is resolved on request or with the first datagram to it.
    ///
    /// # Errors
    /// [`PathError`]; nothing has changed.
    pub fn set_path(&mut self, peer: PeerId, path: Path) -> Result<(), PathError> {
        let path = Path { mtu: path.mtu.min(self.state.mtu), ..path };
        self.state.addresses.set(&self.state.own, peer, path)
    }

    /// Sets the time that is passed to the adapter.
    pub const fn set_time(&mut self, now: Instant) {
        self.now = now;
    }

    /// Largest UDP payload in bytes, trailer included, to be published through bootstrap.
    pub const fn mtu(&self) -> u32 {
        self.state.mtu
    }

    /// Counters of drops.
    pub const fn drop_counts(&self) -> DropCounts {
        self.state.drop_counts
    }

    /// The adapter.
    pub const fn phy(&mut self) -> &mut P {
        &mut self.phy
    }

    /// The next datagram, in its buffer. Answers ARP requests before it.
    fn next_datagram(&mut self) -> Option<Slot> {
        for _ in 0..FRAMES_PER_CALL {
            let (index, buffer) = (0..).zip(self.buffers.iter_mut()).find(|(_, buffer)| !buffer.taken)?;
            let (arrival, answer) = self.phy.receive(self.now)?;
            let state = &mut self.state;
            match arrival.consume(|frame| state.handle_frame(frame, buffer)) {
                FrameOutcome::Datagram => return Some(Slot(index)),
                FrameOutcome::Answer(address, hardware) => {
                    answer.consume(ARP, |frame| state.own.address_on_link().write_arp_reply(address, hardware, frame));
                }
                FrameOutcome::Nothing => {}
            }
        }
        None
    }
}

impl State<'_> {
    fn handle_frame<const BYTES: usize>(&mut self, frame: &[u8], buffer: &mut Buffer<BYTES>) -> FrameOutcome {
        match self.own.address_on_link().read(frame, &self.checksums) {
            FrameContent::Datagram { from, payload } => {
                let Some(place) = buffer.bytes.get_mut(..payload.len()) else {
                    self.drop_counts.malformed = self.drop_counts.malformed.saturating_add(1);
                    return FrameOutcome::Nothing;
                };
                place.copy_from_slice(payload);
                // Computed over the private copy, which nobody else can write.
                let Some(length) = frame::check_crc(place).and_then(|bytes| u16::try_from(bytes).ok()) else {
                    self.drop_counts.corrupt = self.drop_counts.corrupt.saturating_add(1);
                    return FrameOutcome::Nothing;
                };
                (buffer.from, buffer.length, buffer.taken) = (from, length, true);
                FrameOutcome::Datagram
            }
            FrameContent::Arp { address, hardware, asks } => {
                let Self { addresses: neighbours, events: facts, .. } = self;
                neighbours.learn(address, hardware, |peer, mtu| {
                    push_event(facts, DeviceEvent::Path { peer, rail: Rail(0), mtu: datagram_bytes(mtu) })
                });
                if asks { FrameOutcome::Answer(address, hardware) } else { FrameOutcome::Nothing }
            }
            FrameContent::Foreign => {
                self.drop_counts.foreign = self.drop_counts.foreign.saturating_add(1);
                FrameOutcome::Nothing
            }
            FrameContent::Malformed => {
                self.drop_counts.malformed = self.drop_counts.malformed.saturating_add(1);
                FrameOutcome::Nothing
            }
        }
    }
}

/// Largest datagram in a UDP payload of `mtu` bytes.
const fn datagram_bytes(mtu: u32) -> u32 {
    mtu.saturating_sub(TRAILER as u32)
}

fn push_event(facts: &mut [Option<DeviceEvent>], fact: DeviceEvent) {
    if let Some(place) = facts.iter_mut().find(|place| place.is_none()) {
        *place = Some(fact);
    }
}

/// A free frame of the adapter.
pub struct EthernetToken<'b, 'a, P: phy::Device + 'b, A> {
    frame: P::TxToken<'b>,
    state: &'b mut State<'a>,
    memory: PhantomData<fn(A)>,
}

impl<'b, P: phy::Device, A> fmt::Debug for EthernetToken<'b, '_, P, A> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("EthernetToken").field("posted", &self.state.posted).finish_non_exhaustive()
    }
}

impl<P: phy::Device, A: UserMemory> Token for EthernetToken<'_, '_, P, A> {
    type Address = A;

    fn ticket(&self) -> Ticket {
        self.state.posted.next()
    }

    fn header_room(&mut self) -> &mut [u8; HEADER_ROOM] {
        &mut self.state.head
    }

    fn post(self, transmit: &Transmit, payload: Option<A>) {
        let (state, frame) = (self.state, self.frame);
        state.posted = state.posted.next();
        let own = state.own.address_on_link();
        let head = state.head.get(..usize::from(transmit.header_bytes)).unwrap_or_default();
        let bytes = head.len().saturating_add(payload.map_or(0, UserMemory::bytes));
        let Some(to) = transmit.to.on_first_rail() else {
            state.drop_counts.unknown_peer = state.drop_counts.unknown_peer.saturating_add(1);
            return;
        };
        let doubted = (transmit.reason == TxReason::Probe).then(|| state.addresses.arp_instead_of_probe(to)).flatten();
        match doubted.map_or_else(|| state.addresses.route(to, transmit.queue), Route::Unresolved) {
            Route::Found(to, mtu) if u32::try_from(bytes).is_ok_and(|bytes| bytes <= datagram_bytes(mtu)) => {
                let (whole, sealed) = (bytes.saturating_add(FRAME_OVERHEAD), bytes.saturating_add(TRAILER));
                frame.consume(whole, |frame| {
                    own.write(&to, frame, sealed, &state.checksums, |place| {
                        let (front, rest) = place.split_at_mut_checked(head.len()).unwrap_or_default();
                        front.copy_from_slice(head);
                        if let Some(payload) = payload {
                            user_memory::copy_to_private(payload, rest);
                        }
                        frame::append_crc(place);
                    });
                });
            }
            Route::Unresolved(address) => {
                state.drop_counts.unresolved = state.drop_counts.unresolved.saturating_add(1);
                frame.consume(ARP, |frame| own.write_arp_request(address, frame));
            }
            Route::Found(..) | Route::None => {
                state.drop_counts.unknown_peer = state.drop_counts.unknown_peer.saturating_add(1)
            }
        }
    }
}

/// A datagram that was received.
#[derive(Debug)]
pub struct EthernetDatagram<'b> {
    slot: Slot,
    from: (Ipv4Address, u16),
    contents: &'b [u8],
    addresses: &'b AddressTable<'b>,
}

impl Received for EthernetDatagram<'_> {
    fn slot(&self) -> Slot {
        self.slot
    }

    fn bytes(&self) -> u32 {
        u32::try_from(self.contents.len()).unwrap_or(0)
    }

    fn prefix(&self) -> &[u8] {
        self.contents.get(..HEADER_ROOM).unwrap_or(self.contents)
    }

    fn is_from(&self, peer: PeerId) -> bool {
        self.addresses.is_source(peer, self.from)
    }

    fn age_ns(&self) -> Option<u32> {
        None
    }
}

impl<'a, P: phy::Device, A: UserMemory, const BYTES: usize> Device for EthernetDevice<'a, P, A, BYTES> {
    type Address = A;
    type Token<'b>
        = EthernetToken<'b, 'a, P, A>
    where
        Self: 'b;
    type Received<'b>
        = EthernetDatagram<'b>
    where
        Self: 'b;

    fn limits(&self) -> Limits {
        let holdable = self.buffers.len().saturating_sub(SPARE);
        Limits {
            mtu: datagram_bytes(self.state.mtu),
            receive_slots: self.slots,
            holdable: u32::try_from(holdable).unwrap_or(u32::MAX),
            granularity_ns: GRANULARITY_NS,
            lossless: false,
            interrupts: false,
            rails: 1,
            groups: 0,
        }
    }

    fn token(&mut self, lane: DeviceQueue) -> Option<Self::Token<'_>> {
        if lane != DeviceQueue::Polled {
            return None;
        }
        let frame = self.phy.transmit(self.now)?;
        Some(EthernetToken { frame, state: &mut self.state, memory: PhantomData })
    }

    /// No effect: posted frames are with the adapter.
    fn flush(&mut self, _: DeviceQueue) {}

    fn completed(&mut self, lane: DeviceQueue) -> Ticket {
        if lane == DeviceQueue::Polled { self.state.posted } else { Ticket::default() }
    }

    /// Handles 64 frames at most. Returns nothing while no buffer is free.
    fn receive(&mut self, lane: DeviceQueue) -> Option<EthernetDatagram<'_>> {
        if lane != DeviceQueue::Polled {
            return None;
        }
        let slot = self.waiting.take().or_else(|| self.next_datagram())?;
        Some(self.held(slot))
    }

    fn place(&mut self, from: Slot, start: u16, bytes: u32, to: A) {
        let buffer = usize::try_from(from.0).ok().and_then(|index| self.buffers.get(index));
        let (start, bytes) = (usize::from(start), usize::try_from(bytes).unwrap_or(usize::MAX));
        if let Some(part) = buffer.and_then(|buffer| buffer.contents().get(start..start.checked_add(bytes)?)) {
            user_memory::copy_from_private(part, to);
        }
    }

    /// No effect: the datagram occupies a buffer, not a receive slot.
    fn hold(&mut self, _: Slot) {}

    fn held(&self, slot: Slot) -> EthernetDatagram<'_> {
        let buffer = usize::try_from(slot.0).ok().and_then(|index| self.buffers.get(index));
        EthernetDatagram {
            slot,
            from: buffer.map_or((Ipv4Address::UNSPECIFIED, 0), |buffer| buffer.from),
            contents: buffer.map_or(&[], Buffer::contents),
            addresses: &self.state.addresses,
        }
    }

    fn release(&mut self, slot: Slot) {
        if let Some(buffer) = usize::try_from(slot.0).ok().and_then(|index| self.buffers.get_mut(index)) {
            buffer.taken = false;
        }
    }

    /// Adapters raise no event for an arrival: a waiting caller polls again.
    fn arm(&mut self, lane: DeviceQueue) -> Armed {
        if lane == DeviceQueue::Polled {
            self.waiting = self.waiting.or_else(|| self.next_datagram());
        }
        if lane == DeviceQueue::Polled && self.waiting.is_some() { Armed::Pending } else { Armed::Armed }
    }

    fn request_path(&mut self, request: PathRequest) {
        let (peer, requested) = match request {
            PathRequest::Resolve(peer) => (peer, true),
            PathRequest::Forget(peer) => (peer, false),
        };
        self.state.addresses.set_awaited(peer, requested);
        if !requested {
            return;
        }
        match self.state.addresses.route(peer, DeviceQueue::Polled) {
            Route::Found(_, mtu) => {
                self.state.addresses.set_awaited(peer, false);
                push_event(&mut self.state.events, DeviceEvent::Path { peer, rail: Rail(0), mtu: datagram_bytes(mtu) });
            }
            Route::Unresolved(address) => {
                let own = self.state.own.address_on_link();
                if let Some(frame) = self.phy.transmit(self.now) {
                    frame.consume(ARP, |frame| own.write_arp_request(address, frame));
                }
            }
            Route::None => push_event(&mut self.state.events, DeviceEvent::NoPath { peer, rail: Rail(0) }),
        }
    }

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        let fact = self.state.events.first_mut()?.take()?;
        self.state.events.rotate_left(1);
        Some(fact)
    }
}
