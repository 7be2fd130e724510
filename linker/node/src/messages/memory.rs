//! The memory of messages: buffers of requests, and of unexpected payloads. Region 0 holds short payloads, region 1 the
//! slots of the pool, and the following ones the buffers of requests.

use unisono_core::messenger::ReceiveHandle;
use unisono_core::span::{Region, RegionRange, Span};
use unisono_shmem::am_header::SHORT_BYTES;

use super::storage::SLOT;
use super::{MessageError, Status};

/// The region of short payloads.
pub(super) const SHORTS: Region = Region::new(0, 0);
/// The region of the pool's slots.
pub(super) const SLOTS: Region = Region::new(1, 0);
const FIRST_REQUEST: u32 = 2;

/// Handle of a message that is being sent or received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    pub(super) index: u32,
    generation: u32,
}

/// A completed request.
#[derive(Debug)]
pub struct Completed<'a> {
    /// The result. The status of a send is empty.
    pub result: Result<Status, MessageError>,
    /// The buffer of a receive; empty for a send.
    pub buffer: &'a mut [u8],
}

/// The memory that a request reads or writes.
#[derive(Debug)]
pub(super) enum RequestBuffer<'a> {
    Nothing,
    Read(&'a [u8]),
    Write(&'a mut [u8]),
    /// Memory of the waiting call: see [`CallerBuffer`].
    Caller,
}

impl<'a> RequestBuffer<'a> {
    pub(super) fn into_receive_buffer(self) -> &'a mut [u8] {
        match self {
            Self::Write(room) => room,
            _ => &mut [],
        }
    }
}

/// The memory of a waiting call, and its request. A call that never returned (its [`Idle`](crate::Idle) unwound) leaves
/// a request without memory: writes to it are lost, and reads from it are empty.
#[derive(Debug)]
pub(super) enum CallerBuffer<'h> {
    Nothing,
    Read(Request, &'h [u8]),
    Write(Request, &'h mut [u8]),
}

/// State of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequestState {
    Free,
    Sending,
    Receiving(Option<ReceiveHandle>),
    Ended(Result<Status, MessageError>),
}

/// The record of a request.
#[derive(Debug)]
pub(super) struct Record<'a> {
    pub(super) buffer: RequestBuffer<'a>,
    pub(super) state: RequestState,
    /// Destination or source; `None`: any source.
    pub(super) peer: Option<u32>,
    generation: u32,
}

impl Record<'_> {
    /// An unused record.
    pub(super) const FREE: Self =
        Self { buffer: RequestBuffer::Nothing, state: RequestState::Free, peer: None, generation: 0 };
}

/// All request records.
#[derive(Debug)]
pub(super) struct Requests<'a>(pub(super) &'a mut [Record<'a>]);

impl<'a> Requests<'a> {
    /// Whether a record is free.
    pub(super) fn has_free(&self) -> bool {
        self.0.iter().any(|record| record.state == RequestState::Free)
    }

    pub(super) fn take_free(
        &mut self,
        buffer: RequestBuffer<'a>,
        state: RequestState,
        peer: Option<u32>,
    ) -> Option<Request> {
        let mut records = (0..).zip(self.0.iter_mut());
        let (index, record) = records.find(|(_, record)| record.state == RequestState::Free)?;
        let generation = record.generation;
        *record = Record { buffer, state, peer, generation };
        Some(Request { index, generation })
    }

    /// The record of a request that was not completed yet.
    pub(super) fn get(&mut self, request: Request) -> Option<&mut Record<'a>> {
        let record = self.at(request.index)?;
        (record.generation == request.generation && record.state != RequestState::Free).then_some(record)
    }

    pub(super) fn at(&mut self, index: u32) -> Option<&mut Record<'a>> {
        self.0.get_mut(usize::try_from(index).ok()?)
    }

    /// Frees a record and returns its buffer.
    pub(super) fn free(&mut self, request: Request) -> RequestBuffer<'a> {
        let Some(record) = self.get(request) else { return RequestBuffer::Nothing };
        let generation = record.generation.wrapping_add(1);
        core::mem::replace(record, Record { generation, ..Record::FREE }).buffer
    }

    /// The payload of a send.
    fn payload<'h>(&'h self, request: Request, held: &'h CallerBuffer<'_>) -> Option<&'h [u8]> {
        let record = self.0.get(usize::try_from(request.index).ok()?)?;
        match (&record.buffer, held) {
            _ if record.generation != request.generation => None,
            (RequestBuffer::Read(payload), _) => Some(payload),
            (RequestBuffer::Caller, CallerBuffer::Read(of, payload)) if *of == request => Some(payload),
            _ => None,
        }
    }

    /// The buffer of a receive.
    fn receive_buffer<'h>(&'h mut self, request: Request, held: &'h mut CallerBuffer<'_>) -> Option<&'h mut [u8]> {
        match (&mut self.get(request)?.buffer, held) {
            (RequestBuffer::Write(room), _) => Some(room),
            (RequestBuffer::Caller, CallerBuffer::Write(of, room)) if *of == request => Some(room),
            _ => None,
        }
    }
}

/// The memory of a node's messages.
#[derive(Debug)]
pub(super) struct Memory<'a> {
    pub(super) requests: Requests<'a>,
    pub(super) shorts: &'a mut [[u8; SHORT_BYTES]],
    pub(super) slots: &'a mut [[u8; SLOT]],
}

impl Memory<'_> {
    /// The bytes of a payload that is sent; empty if it has no memory any more.
    pub(super) fn read<'h>(&'h self, span: Span, held: &'h CallerBuffer<'_>) -> &'h [u8] {
        let payload = request_of(span.region).and_then(|request| self.requests.payload(request, held));
        payload.and_then(|payload| payload.get(bytes_of(span)?)).unwrap_or_default()
    }

    /// The memory of a span that a payload is written to. `None`: it has none any more.
    pub(super) fn write<'h>(&'h mut self, span: Span, held: &'h mut CallerBuffer<'_>) -> Option<&'h mut [u8]> {
        let room = match span.region {
            SHORTS => self.shorts.as_flattened_mut(),
            SLOTS => self.slots.as_flattened_mut(),
            region => self.requests.receive_buffer(request_of(region)?, held)?,
        };
        room.get_mut(bytes_of(span)?)
    }

    /// Copies a stored payload into a receive's buffer, as much as fits.
    pub(super) fn copy_stored(&mut self, from: Span, into: RegionRange, held: &mut CallerBuffer<'_>) -> Option<()> {
        let stores = if from.region == SHORTS { self.shorts.as_flattened() } else { self.slots.as_flattened() };
        let stored = stores.get(bytes_of(from)?)?;
        let room = self.requests.receive_buffer(request_of(into.region)?, held)?;
        room.iter_mut().zip(stored).for_each(|(into, byte)| *into = *byte);
        Some(())
    }
}

/// The region of a request's buffer.
pub(super) const fn region_of(request: Request) -> Region {
    Region::new(FIRST_REQUEST.wrapping_add(request.index), request.generation)
}

fn request_of(region: Region) -> Option<Request> {
    Some(Request { index: region.index().checked_sub(FIRST_REQUEST)?, generation: region.generation() })
}

pub(super) fn bytes_of(span: Span) -> Option<core::ops::Range<usize>> {
    Some(span.offset..span.offset.checked_add(usize::try_from(span.bytes).ok()?)?)
}
