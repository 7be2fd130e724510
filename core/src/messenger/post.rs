//! Posting of point-to-point sends and receives, and of their headers.

use super::operations::{Operations, ReceiveFailure, ReceiveOp, ReceiveState, SendFailure, SendOp};
use super::{Class, Messenger, MessengerStorage, ReceiveHandle};
use crate::ids::{MessageId, PeerId, Port};
use crate::message::matching::Full;
use crate::message::point_to_point::{self, Matched, Mode, Outgoing, SendAction, Status};
use crate::message::{Context, Pattern, Tag};
use crate::pool::Pool;
use crate::span::RegionRange;
use crate::transport::{Progress, Transport, TransportError, TxPayload};

/// A message to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Message {
    /// The destination.
    pub to: PeerId,
    /// The communicator.
    pub context: Context,
    /// The tag.
    pub tag: Tag,
    /// When it is complete.
    pub mode: Mode,
    /// Its bytes: unchanged until its event.
    pub payload: RegionRange,
    /// Where the receiver's transport finds them; its meaning is agreed between the hosts.
    pub at: u64,
    /// A longer payload is announced, even if the transport can carry it after a header.
    pub eager: u32,
    /// The application waits for its buffer.
    pub borrowed: bool,
    /// Returned in its event.
    pub user: u32,
}

/// Why nothing was sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SendError {
    /// There is no such rank.
    UnknownPeer,
    /// The peer failed.
    PeerFailed,
    /// Every record is in use: make progress and drain events.
    Full,
}

impl From<point_to_point::SendError> for SendError {
    fn from(error: point_to_point::SendError) -> Self {
        match error {
            point_to_point::SendError::UnknownPeer => Self::UnknownPeer,
            point_to_point::SendError::PeerFailed => Self::PeerFailed,
            point_to_point::SendError::Full => Self::Full,
        }
    }
}

impl<S: MessengerStorage> Messenger<S> {
    /// Sends a message. Ends with [`Event::Sent`](super::Event).
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent.
    pub fn send(&mut self, transport: &mut impl Transport, message: &Message) -> Result<(), SendError> {
        let Message { to, context, tag, mode, payload, at, eager, borrowed, user } = *message;
        if self.parts(Class::PointToPoint).1.is_full() {
            return Err(SendError::Full);
        }
        let send = self.messages.start_send(user, to, payload).ok_or(SendError::Full)?;
        let (bytes, eager) = (payload.bytes as u64, transport.eager_limit(to).min(eager));
        let outgoing = Outgoing { to, context, tag, bytes, eager, at, mode, borrowed, user: send };
        let action = self.matching.send(&outgoing).inspect_err(|_| self.messages.free_send(send))?;
        let (head, carried, is_final) = match action {
            SendAction::Eager { head, done } => (head, Some(send), done),
            SendAction::Header(head) => (head, None, mutant!("ends_announced")),
        };
        self.post(transport, to, head.as_ref(), carried, (Class::PointToPoint, Port::ONLY));
        if is_final {
            self.messages.finish_send(send, None);
        }
        Ok(())
    }

    /// Receives a message of up to `into.bytes` bytes. Ends with [`Event::Received`](super::Event), unless it is
    /// [cancelled](Self::cancel).
    ///
    /// # Errors
    /// [`Full`]: every record is in use: make progress and drain events.
    pub fn receive(
        &mut self,
        transport: &mut impl Transport,
        pattern: Pattern,
        into: RegionRange,
        user: u32,
    ) -> Result<ReceiveHandle, Full> {
        let receive = self.messages.start_receive(user, into).ok_or(Full)?;
        let room = into.bytes as u64;
        match self.matching.receive_unexpected(&pattern, room, receive) {
            Ok(Some(matched)) => self.receive_early(transport, receive, matched),
            Ok(None) => match self.matching.post(pattern, room, receive) {
                Ok(id) => self.set_receive(receive, |op| op.state = ReceiveState::Posted(id)),
                Err(full) => return self.refuse_receive(receive, full),
            },
            Err(full) => return self.refuse_receive(receive, full),
        }
        Ok(ReceiveHandle(receive))
    }

    /// Receives a message that a matched probe has taken. `None`: it went with its sender.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn receive_matched(
        &mut self,
        transport: &mut impl Transport,
        message: MessageId,
        into: RegionRange,
        user: u32,
    ) -> Result<Option<ReceiveHandle>, Full> {
        let receive = self.messages.start_receive(user, into).ok_or(Full)?;
        match self.matching.receive_matched(message, into.bytes as u64, receive) {
            Ok(Some(matched)) => self.receive_early(transport, receive, matched),
            Ok(None) => {
                self.messages.free_receive(receive);
                return Ok(None);
            }
            Err(full) => return self.refuse_receive(receive, full).map(Some),
        }
        Ok(Some(ReceiveHandle(receive)))
    }

    fn refuse_receive(&mut self, receive: u32, full: Full) -> Result<ReceiveHandle, Full> {
        self.messages.free_receive(receive);
        Err(full)
    }

    /// A receive has matched a message that was there.
    fn receive_early(&mut self, transport: &mut impl Transport, receive: u32, matched: Matched) {
        let into = self.messages.receive(receive).map_or(RegionRange::EMPTY, |op| op.into);
        match matched {
            Matched::Unexpected { message, place, status } => {
                transport.copy(self.store(place, status.bytes as u32), into);
                self.matching.release(message);
                self.end_message(receive, status);
            }
            Matched::Pending(status) => self.set_receive(receive, |op| op.status = Some(status)),
            Matched::Truncated(status) => self.end_message(receive, status),
        }
    }

    /// Whether a receive is not matched.
    pub fn is_posted(&self, handle: ReceiveHandle) -> bool {
        let receive = self.messages.receives.as_ref().get(handle.0 as usize);
        receive.is_some_and(|receive| matches!(receive.state, ReceiveState::Posted(_)))
    }

    /// Cancels a receive that is not matched, and returns its `user` value. `None`: it is matched or complete.
    pub fn cancel(&mut self, handle: ReceiveHandle) -> Option<u32> {
        let ReceiveState::Posted(id) = self.messages.receive(handle.0)?.state else { return None };
        self.matching.cancel(id)?;
        let user = self.messages.receive(handle.0)?.user;
        self.messages.free_receive(handle.0);
        Some(user)
    }

    pub(super) fn set_receive(&mut self, receive: u32, set: impl FnOnce(&mut ReceiveOp)) {
        if let Some(op) = self.messages.receive(receive) {
            set(op);
        }
    }

    /// Ends a receive, whose message may be longer than its buffer.
    pub(super) fn end_message(&mut self, receive: u32, status: Status) {
        let room = self.messages.receive(receive).map_or(0, |op| op.into.bytes as u64);
        let result = if status.bytes > room { Err(ReceiveFailure::Truncated(status)) } else { Ok(status) };
        self.messages.end_receive(receive, result);
    }

    /// Gives a header to the transport, and the payload of a send; after those to the peer that wait. The caller has
    /// checked that one can be queued.
    pub(super) fn post(
        &mut self,
        transport: &mut impl Transport,
        to: PeerId,
        head: &[u8],
        send: Option<u32>,
        (class, port): (Class, Port),
    ) {
        let (operations, outbox) = self.parts(class);
        if let Some(send) = send {
            operations.retain_send(send);
        }
        let waits = outbox.has_any_to(to) && !mutant!("overtakes_queued");
        if waits || !carry(transport, operations, (to, port), head, send) {
            outbox.push(to, head, send, port);
        }
    }

    /// Gives waiting messages to the transport. Returns whether any left.
    pub(super) fn flush(&mut self, transport: &mut impl Transport, class: Class) -> bool {
        let (operations, outbox) = self.parts(class);
        outbox.retain(|queued| carry(transport, operations, (queued.to, queued.port), queued.head(), queued.send))
    }
}

/// Gives a message to the transport. Returns false if there is no room.
fn carry<S: Pool<SendOp>, R: Pool<ReceiveOp>>(
    transport: &mut impl Transport,
    operations: &mut Operations<S, R>,
    (to, port): (PeerId, Port),
    head: &[u8],
    send: Option<u32>,
) -> bool {
    let (class, payload) =
        (operations.class, send.and_then(|i| Some((operations.send(i)?.payload, operations.token(i)))));
    let payload = payload.map(|(bytes, token)| TxPayload {
        span: bytes.span(0, usize::MAX),
        token,
        is_urgent: class == Class::Collective,
    });
    let failure = match transport.send(to, head, payload, port) {
        Ok(Progress::Pending) => return true,
        Ok(Progress::Complete) => None,
        Err(TransportError::Full) => return false,
        Err(TransportError::PeerGone) => Some(SendFailure::PeerGone),
    };
    if let Some(send) = send {
        operations.release_send(send, failure);
    }
    true
}
