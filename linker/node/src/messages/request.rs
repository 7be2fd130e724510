//! Messages that are being sent or received, and the memory that is lent to them.

use super::{MessageError, Status};
use unisono_core::ids::ReceiveId;

/// A message that is being sent or received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    pub(super) index: u32,
    life: u32,
}

/// How a request has ended.
#[derive(Debug)]
pub struct Ended<'a> {
    /// A send's status says nothing.
    pub result: Result<Status, MessageError>,
    /// The receive's buffer; of a send nothing.
    pub buffer: &'a mut [u8],
}

/// Whose memory a request reads or writes.
#[derive(Debug)]
pub(super) enum Buffer<'a> {
    Nothing,
    Read(&'a [u8]),
    Write(&'a mut [u8]),
    /// Of the call that waits for it: see [`Held`].
    Caller,
}

impl<'a> Buffer<'a> {
    pub(super) fn room(self) -> &'a mut [u8] {
        match self {
            Self::Write(room) => room,
            _ => &mut [],
        }
    }
}

/// The memory of the call that waits, and for which request. A call that never came to its end (its [`Idle`](crate::Idle) unwound) leaves a
/// request without memory: what is written there is lost, and what is read there is nothing.
#[derive(Debug)]
pub(super) enum Held<'h> {
    Nothing,
    Read(Request, &'h [u8]),
    Write(Request, &'h mut [u8]),
}

/// Where a request stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Free,
    /// Being started.
    New,
    Sending,
    /// In fragments under the receiver's number, so far as many bytes as were moved.
    Streaming(u32),
    Waiting(ReceiveId),
    /// It has met its message, whose payload is at its sender.
    Coming(Status),
    /// Memory was granted, and as many bytes as were moved have come.
    Placing(Status),
    Ended(Result<Status, MessageError>),
}

/// What is known of a request.
#[derive(Debug)]
pub(super) struct Record<'a> {
    pub(super) buffer: Buffer<'a>,
    pub(super) stage: Stage,
    /// To whom; from whom, where that is known.
    pub(super) peer: u32,
    /// Of the message.
    pub(super) bytes: usize,
    /// Of the receive.
    pub(super) room: usize,
    /// Bytes that were sent in fragments, or came in them.
    pub(super) moved: usize,
    /// Places in the queue whose payload it is.
    pub(super) uses: u8,
    /// A send's payload is not asked for any more.
    pub(super) is_over: bool,
    life: u32,
}

impl Record<'_> {
    /// An unused one.
    pub(super) const FREE: Self = Self {
        buffer: Buffer::Nothing,
        stage: Stage::Free,
        peer: 0,
        bytes: 0,
        room: 0,
        moved: 0,
        uses: 0,
        is_over: false,
        life: 0,
    };

    /// A send that nobody needs any more has ended.
    pub(super) const fn end_if_over(&mut self) {
        if self.is_over && self.uses == 0 && matches!(self.stage, Stage::Sending) {
            self.stage = Stage::Ended(Ok(Status { source: self.peer, tag: 0, bytes: self.bytes }));
        }
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Requests<'a>(pub(super) &'a mut [Record<'a>]);

impl<'a> Requests<'a> {
    /// Whether a record is free.
    pub(super) fn has_free(&self) -> bool {
        self.0.iter().any(|record| record.stage == Stage::Free)
    }

    pub(super) fn take_free(&mut self, buffer: Buffer<'a>) -> Option<Request> {
        let (index, record) = (0..).zip(self.0.iter_mut()).find(|(_, record)| record.stage == Stage::Free)?;
        let life = record.life;
        *record = Record { buffer, stage: Stage::New, life, ..Record::FREE };
        Some(Request { index, life })
    }

    /// What a request knows, unless it has been taken.
    pub(super) fn get(&mut self, request: Request) -> Option<&mut Record<'a>> {
        let record = self.at(request.index)?;
        (record.life == request.life && record.stage != Stage::Free).then_some(record)
    }

    pub(super) fn at(&mut self, index: u32) -> Option<&mut Record<'a>> {
        self.0.get_mut(usize::try_from(index).ok()?)
    }

    /// Its name.
    pub(super) fn name(&self, index: u32) -> Option<Request> {
        let record = self.0.get(usize::try_from(index).ok()?)?;
        Some(Request { index, life: record.life })
    }

    /// Frees a record, and returns what was lent to it.
    pub(super) fn free(&mut self, request: Request) -> Buffer<'a> {
        let Some(record) = self.get(request) else { return Buffer::Nothing };
        let life = record.life.wrapping_add(1);
        core::mem::replace(record, Record { life, ..Record::FREE }).buffer
    }

    /// Whether fragments are to be sent.
    pub(super) fn has_streams(&self) -> bool {
        self.0.iter().any(|record| matches!(record.stage, Stage::Streaming(_)))
    }

    /// Where a receive's bytes go.
    pub(super) fn room<'h>(&'h mut self, request: Request, held: &'h mut Held<'_>) -> Option<&'h mut [u8]> {
        match &mut self.get(request)?.buffer {
            Buffer::Write(room) => Some(room),
            Buffer::Caller => match held {
                Held::Write(of, room) if *of == request => Some(room),
                _ => None,
            },
            Buffer::Nothing | Buffer::Read(_) => None,
        }
    }

    /// Where a send's bytes are.
    pub(super) fn payload<'h>(&'h self, request: Request, held: &'h Held<'_>) -> &'h [u8] {
        let record = usize::try_from(request.index).ok().and_then(|index| self.0.get(index));
        match record.filter(|record| record.life == request.life).map(|record| &record.buffer) {
            Some(Buffer::Read(payload)) => payload,
            Some(Buffer::Caller) => match held {
                Held::Read(of, payload) if *of == request => payload,
                _ => &[],
            },
            _ => &[],
        }
    }
}
