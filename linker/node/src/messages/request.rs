//! Requests: messages that are being sent or received, and the buffers that they borrow.

use super::{MessageError, Status};
use unisono_core::ids::ReceiveId;

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
    /// Memory of the waiting call: see [`Held`].
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
    /// Being started.
    New,
    Sending,
    /// Sends fragments under the receiver's number; `moved` bytes are sent.
    Streaming(u32),
    Waiting(ReceiveId),
    /// Matched; the payload is still at its sender.
    AwaitingPayload(Status),
    /// Memory was granted; `moved` bytes have arrived.
    ReceivingFragments(Status),
    Ended(Result<Status, MessageError>),
}

/// The record of a request.
#[derive(Debug)]
pub(super) struct Record<'a> {
    pub(super) buffer: RequestBuffer<'a>,
    pub(super) state: RequestState,
    /// Destination, or the source where it is known.
    pub(super) peer: u32,
    /// Length of the message.
    pub(super) bytes: usize,
    /// Length of the receive buffer.
    pub(super) room: usize,
    /// Bytes sent or received in fragments.
    pub(super) moved: usize,
    /// Queue entries that refer to its payload.
    pub(super) uses: u8,
    /// The payload of a send is not needed any more.
    pub(super) is_over: bool,
    generation: u32,
}

impl Record<'_> {
    /// An unused record.
    pub(super) const FREE: Self = Self {
        buffer: RequestBuffer::Nothing,
        state: RequestState::Free,
        peer: 0,
        bytes: 0,
        room: 0,
        moved: 0,
        uses: 0,
        is_over: false,
        generation: 0,
    };

    /// Completes a send whose payload is not needed any more.
    pub(super) const fn end_if_over(&mut self) {
        if self.is_over && self.uses == 0 && matches!(self.state, RequestState::Sending) {
            self.state = RequestState::Ended(Ok(Status { source: self.peer, tag: 0, bytes: self.bytes }));
        }
    }
}

/// All request records.
#[derive(Debug)]
pub(super) struct Requests<'a>(pub(super) &'a mut [Record<'a>]);

impl<'a> Requests<'a> {
    /// Whether a record is free.
    pub(super) fn has_free(&self) -> bool {
        self.0.iter().any(|record| record.state == RequestState::Free)
    }

    pub(super) fn take_free(&mut self, buffer: RequestBuffer<'a>) -> Option<Request> {
        let (index, record) = (0..).zip(self.0.iter_mut()).find(|(_, record)| record.state == RequestState::Free)?;
        let generation = record.generation;
        *record = Record { buffer, state: RequestState::New, generation, ..Record::FREE };
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

    /// The handle of a record.
    pub(super) fn name(&self, index: u32) -> Option<Request> {
        let record = self.0.get(usize::try_from(index).ok()?)?;
        Some(Request { index, generation: record.generation })
    }

    /// Frees a record and returns its buffer.
    pub(super) fn free(&mut self, request: Request) -> RequestBuffer<'a> {
        let Some(record) = self.get(request) else { return RequestBuffer::Nothing };
        let generation = record.generation.wrapping_add(1);
        core::mem::replace(record, Record { generation, ..Record::FREE }).buffer
    }

    /// Whether fragments are to be sent.
    pub(super) fn has_streams(&self) -> bool {
        self.0.iter().any(|record| matches!(record.state, RequestState::Streaming(_)))
    }

    /// The buffer of a receive.
    pub(super) fn receive_buffer<'h>(
        &'h mut self,
        request: Request,
        held: &'h mut CallerBuffer<'_>,
    ) -> Option<&'h mut [u8]> {
        match &mut self.get(request)?.buffer {
            RequestBuffer::Write(room) => Some(room),
            RequestBuffer::Caller => match held {
                CallerBuffer::Write(of, room) if *of == request => Some(room),
                _ => None,
            },
            RequestBuffer::Nothing | RequestBuffer::Read(_) => None,
        }
    }

    /// The payload of a send.
    pub(super) fn payload<'h>(&'h self, request: Request, held: &'h CallerBuffer<'_>) -> &'h [u8] {
        let record = usize::try_from(request.index).ok().and_then(|index| self.0.get(index));
        match record.filter(|record| record.generation == request.generation).map(|record| &record.buffer) {
            Some(RequestBuffer::Read(payload)) => payload,
            Some(RequestBuffer::Caller) => match held {
                CallerBuffer::Read(of, payload) if *of == request => payload,
                _ => &[],
            },
            _ => &[],
        }
    }
}
