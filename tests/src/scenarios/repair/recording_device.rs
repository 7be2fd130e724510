//! A UDP device that records when each datagram left and arrived.

use std::time::Instant;

use unisono_core::device::{
    Armed, Device, DeviceEvent, DeviceQueue, HEADER_ROOM, Limits, PathRequest, Received, Slot, Ticket, Token, Transmit,
    TxReason,
};
use unisono_core::ids::PeerId;
use unisono_core::wire::Header;
use unisono_memory::memory_regions::Address;
use unisono_udp::{ReceivedDatagram, Udp, UdpToken};

/// A datagram that consumes a PSN.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) psn: u32,
    /// How often it was sent before, modulo 4.
    pub(super) count: u8,
    pub(super) cause: TxReason,
    /// Nanoseconds since the clock began: before the call that hands it to the kernel, or when it came out of the
    /// device.
    pub(super) at: u64,
}

/// The device, and its sent and received datagrams.
pub(super) struct RecordingDevice {
    pub(super) udp: Udp,
    pub(super) clock: Instant,
    pub(super) sent: Vec<Record>,
    /// The first of `sent` that has not been flushed.
    unflushed: usize,
    pub(super) arrived: Vec<Record>,
}

impl RecordingDevice {
    pub(super) const fn new(udp: Udp, clock: Instant) -> Self {
        Self { udp, clock, sent: Vec::new(), unflushed: 0, arrived: Vec::new() }
    }

    pub(super) fn now(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }
}

/// A free send entry that records its posting.
pub(super) struct RecordingToken<'a> {
    token: UdpToken<'a>,
    sent: &'a mut Vec<Record>,
}

impl Token for RecordingToken<'_> {
    type Address = Address;

    fn ticket(&self) -> Ticket {
        self.token.ticket()
    }

    fn header_room(&mut self) -> &mut [u8; HEADER_ROOM] {
        self.token.header_room()
    }

    fn post(mut self, transmit: &Transmit, payload: Option<Address>) {
        if let Some(header) = Header::<32>::parse(self.token.header_room()).ok().filter(|header| header.kind.is_data())
        {
            let count = header.flags.count();
            self.sent.push(Record { psn: header.psn, count, cause: transmit.reason, at: 0 });
        }
        self.token.post(transmit, payload);
    }
}

impl Device for RecordingDevice {
    type Address = Address;
    type Token<'a> = RecordingToken<'a>;
    type Received<'a> = ReceivedDatagram<'a>;

    fn limits(&self) -> Limits {
        self.udp.limits()
    }

    fn token(&mut self, lane: DeviceQueue) -> Option<RecordingToken<'_>> {
        Some(RecordingToken { token: self.udp.token(lane)?, sent: &mut self.sent })
    }

    fn flush(&mut self, lane: DeviceQueue) {
        let now = self.now();
        for record in self.sent.iter_mut().skip(self.unflushed) {
            record.at = now;
        }
        self.unflushed = self.sent.len();
        self.udp.flush(lane);
    }

    fn completed(&mut self, lane: DeviceQueue) -> Ticket {
        self.udp.completed(lane)
    }

    fn receive(&mut self, lane: DeviceQueue) -> Option<ReceivedDatagram<'_>> {
        let datagram = self.udp.receive(lane)?;
        if let Some(header) = Header::<32>::parse(datagram.prefix()).ok().filter(|header| header.kind.is_data()) {
            let (psn, count) = (header.psn, header.flags.count());
            let at = self.clock.elapsed().as_nanos() as u64;
            self.arrived.push(Record { psn, count, cause: TxReason::First, at });
        }
        Some(datagram)
    }

    fn place(&mut self, from: Slot, start: u16, bytes: u32, to: Address) {
        self.udp.place(from, start, bytes, to);
    }

    fn hold(&mut self, slot: Slot) {
        self.udp.hold(slot);
    }

    fn held(&self, slot: Slot) -> ReceivedDatagram<'_> {
        self.udp.held(slot)
    }

    fn release(&mut self, slot: Slot) {
        self.udp.release(slot);
    }

    fn arm(&mut self, lane: DeviceQueue) -> Armed {
        self.udp.arm(lane)
    }

    fn request_path(&mut self, request: PathRequest) {
        self.udp.request_path(request);
    }

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        self.udp.poll_event()
    }
}

/// The only peer of either end.
pub(super) const fn other(rank: u32) -> PeerId {
    PeerId(1 - rank)
}
