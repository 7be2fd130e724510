//! The program's device functions as a device of the core, and its buffers as memory.

use core::cell::Cell;
use core::ffi::c_void;
use core::ptr::{NonNull, null};
use core::slice;

use unisono_core::device::{
    Armed, Device, DeviceEvent, DeviceQueue, HEADER_ROOM, Limits, Memory, PathRequest, Received, Slot, Ticket, Token,
    Transmit,
};
use unisono_core::ids::PeerId;
use unisono_core::span::{Region, Span};

use crate::exports::{unisono_core_datagram, unisono_core_device};

/// The region of all buffers: their offsets are addresses.
pub(crate) const BUFFERS: Region = Region::new(0, 1);

/// A received datagram, until it is released.
#[derive(Clone, Copy)]
pub(crate) struct Datagram {
    bytes: *const u8,
    length: u32,
    from: u32,
}

/// No datagram.
pub(crate) const NO_DATAGRAM: Datagram = Datagram { bytes: null(), length: 0, from: u32::MAX };

/// A buffer of the program.
#[derive(Clone, Copy)]
pub(crate) struct Address {
    pub(crate) start: NonNull<u8>,
    pub(crate) bytes: usize,
}

/// The program's buffers.
pub(crate) struct Buffers;

impl Memory for Buffers {
    type Address = Address;

    fn address(&self, span: Span) -> Option<Address> {
        let start = NonNull::new(core::ptr::with_exposed_provenance_mut(span.offset));
        (span.region == BUFFERS).then_some(Address { start: start?, bytes: span.bytes as usize })
    }
}

/// The span of a buffer.
pub(crate) fn span(start: *const c_void, bytes: u32) -> Span {
    Span { region: BUFFERS, offset: start.expose_provenance(), bytes }
}

/// What the program's messages wait for: copied bytes.
#[derive(Clone, Copy)]
pub(crate) struct Arriving {
    pub(crate) from: u32,
    pub(crate) tag: u32,
    pub(crate) into: *mut c_void,
    pub(crate) bytes: usize,
}

/// The device.
pub(crate) struct TableDevice {
    table: unisono_core_device,
    slots: &'static mut [Datagram],
    last: Ticket,
    /// The message whose payload is copied next; its handler sets it.
    arriving: &'static Cell<Option<Arriving>>,
}

impl TableDevice {
    pub(crate) const fn new(
        table: unisono_core_device,
        slots: &'static mut [Datagram],
        arriving: &'static Cell<Option<Arriving>>,
    ) -> Self {
        Self { table, slots, last: Ticket(0), arriving }
    }

    fn received(&self, slot: Slot) -> TableDatagram<'_> {
        let datagram = self.slots.get(slot.0 as usize).copied().unwrap_or(NO_DATAGRAM);
        let length = (datagram.length as usize).min(HEADER_ROOM);
        let prefix = if datagram.bytes.is_null() {
            &[]
        } else {
            // SAFETY: the program promises that a received datagram has `length` bytes until it is released, which it
            // was not, and that nobody writes them.
            unsafe { slice::from_raw_parts(datagram.bytes, length) }
        };
        TableDatagram { slot, length: datagram.length, from: datagram.from, prefix }
    }

    /// Reports that a message is complete.
    fn report(&self) {
        if let (Some(Arriving { from, tag, into, bytes }), Some(arrived)) = (self.arriving.take(), self.table.arrived) {
            // SAFETY: a function of the program, with the context that belongs to it.
            unsafe { arrived(self.table.context, from, tag, into, bytes) };
        }
    }
}

/// A received datagram.
pub(crate) struct TableDatagram<'a> {
    slot: Slot,
    length: u32,
    from: u32,
    prefix: &'a [u8],
}

impl Received for TableDatagram<'_> {
    fn slot(&self) -> Slot {
        self.slot
    }

    fn bytes(&self) -> u32 {
        self.length
    }

    fn prefix(&self) -> &[u8] {
        self.prefix
    }

    fn is_from(&self, peer: PeerId) -> bool {
        self.from == peer.0
    }

    fn age_ns(&self) -> Option<u32> {
        None
    }
}

/// A datagram to be sent.
pub(crate) struct TableToken<'a> {
    device: &'a mut TableDevice,
    header: [u8; HEADER_ROOM],
}

impl Token for TableToken<'_> {
    type Address = Address;

    fn ticket(&self) -> Ticket {
        self.device.last.next()
    }

    fn header_room(&mut self) -> &mut [u8; HEADER_ROOM] {
        &mut self.header
    }

    fn post(self, transmit: &Transmit, payload: Option<Address>) {
        self.device.last = self.device.last.next();
        let header = usize::from(transmit.header_bytes).min(HEADER_ROOM);
        let (start, bytes) =
            payload.map_or((null(), 0), |payload| (payload.start.as_ptr().cast_const(), payload.bytes));
        if let (Some(send), Some(PeerId(to))) = (self.device.table.send, transmit.to.on_first_rail()) {
            let context = self.device.table.context;
            // SAFETY: a function of the program, with its context; header and payload are valid during the call: the
            // program promises not to change a buffer before its event.
            unsafe { send(context, to, self.header.as_ptr().cast(), header, start.cast(), bytes) };
        }
    }
}

impl Device for TableDevice {
    type Address = Address;
    type Token<'a> = TableToken<'a>;
    type Received<'a> = TableDatagram<'a>;

    fn limits(&self) -> Limits {
        let slots = self.slots.len() as u32;
        Limits {
            mtu: self.table.mtu,
            receive_slots: slots.saturating_sub(slots / 4),
            holdable: slots / 4,
            granularity_ns: self.table.granularity_ns.max(1000),
            lossless: false,
            interrupts: false,
            rails: 1,
            groups: 0,
        }
    }

    fn token(&mut self, _: DeviceQueue) -> Option<TableToken<'_>> {
        Some(TableToken { device: self, header: [0; HEADER_ROOM] })
    }

    fn flush(&mut self, _: DeviceQueue) {}

    fn completed(&mut self, _: DeviceQueue) -> Ticket {
        // What is sent is copied during the call.
        self.last
    }

    fn receive(&mut self, _: DeviceQueue) -> Option<TableDatagram<'_>> {
        let mut arrived = unisono_core_datagram { bytes: null(), length: 0, from: u32::MAX, slot: u32::MAX };
        let receive = self.table.receive?;
        // SAFETY: a function of the program, with its context and a place for its result.
        if !unsafe { receive(self.table.context, &mut arrived) } {
            return None;
        }
        let slot = Slot(arrived.slot);
        let place = self.slots.get_mut(arrived.slot as usize)?;
        *place = Datagram { bytes: arrived.bytes.cast(), length: arrived.length, from: arrived.from };
        Some(self.received(slot))
    }

    fn place(&mut self, from: Slot, start: u16, bytes: u32, to: Address) {
        let datagram = self.slots.get(from.0 as usize).copied().unwrap_or(NO_DATAGRAM);
        let is_within = u32::from(start).checked_add(bytes).is_some_and(|end| end <= datagram.length);
        if is_within && bytes as usize <= to.bytes {
            let source = datagram.bytes.wrapping_add(usize::from(start));
            // SAFETY: within the datagram, as checked, which is not released; the program promises that its buffer is
            // writable and elsewhere.
            unsafe { to.start.as_ptr().copy_from_nonoverlapping(source, bytes as usize) };
        }
        self.report();
    }

    fn hold(&mut self, _: Slot) {
        // It keeps its slot until it is released.
    }

    fn held(&self, slot: Slot) -> TableDatagram<'_> {
        self.received(slot)
    }

    fn release(&mut self, slot: Slot) {
        if let (Some(place), Some(release)) = (self.slots.get_mut(slot.0 as usize), self.table.release) {
            *place = NO_DATAGRAM;
            // SAFETY: a function of the program, with its context.
            unsafe { release(self.table.context, slot.0) };
        }
    }

    fn arm(&mut self, _: DeviceQueue) -> Armed {
        Armed::Pending
    }

    fn request_path(&mut self, _: PathRequest) {}

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        None
    }
}
