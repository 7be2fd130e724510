//! Arrived messages, and the ends of the transport's operations.

use super::operations::{ReceiveFailure, ReceiveState, SendFailure};
use super::{Class, Messenger, MessengerStorage};
use crate::ids::PeerId;
use crate::message::collective_transport::Arrival;
use crate::message::point_to_point::{HeaderCredit, KINDS, Outcome};
use crate::message::{Context, Tag};
use crate::span::Span;
use crate::transport::{Grant, Token};

/// What is to be done with the payload of an arrived message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload {
    /// Nothing.
    Nothing,
    /// Copy it, which starts at byte `start` of the message, to this span, as much as there is.
    Copy {
        /// The destination; empty if nobody needs the payload.
        to: Span,
        /// Length of the header.
        start: usize,
    },
    /// Nothing: no correct peer sends this message.
    ProtocolViolation,
}

impl<S: MessengerStorage> Messenger<S> {
    /// Handles a message of `bytes` bytes, header and payload. `head` are its first bytes: at least the whole header.
    pub fn handle(&mut self, from: PeerId, head: &[u8], bytes: u32) -> Payload {
        match head.first() {
            Some(0..KINDS) => self.handle_message(from, head, bytes),
            Some(_) => self.handle_step(from, head, bytes),
            None => Payload::ProtocolViolation,
        }
    }

    /// As [`handle`](Self::handle), for point-to-point messages only.
    pub fn handle_message(&mut self, from: PeerId, head: &[u8], bytes: u32) -> Payload {
        let outcome = self.matching.handle(from, head, bytes);
        self.apply(&outcome, bytes)
    }

    /// Handles a short point-to-point message whose credit arrived without a header: as
    /// [`PointToPoint::handle_inline`](crate::message::point_to_point::PointToPoint::handle_inline).
    pub fn handle_inline(
        &mut self,
        from: PeerId,
        context: Context,
        tag: Tag,
        credit: HeaderCredit,
        bytes: u32,
    ) -> Payload {
        let outcome = self.matching.handle_inline(from, context, tag, credit, bytes);
        self.apply(&outcome, bytes.saturating_add(crate::message::point_to_point::MessageHeader::EAGER as u32))
    }

    fn apply(&mut self, outcome: &Outcome, bytes: u32) -> Payload {
        match *outcome {
            Outcome::Nothing => Payload::Nothing,
            Outcome::Into { user, start, status } => {
                let into = self.messages.receive(user).map(|receive| receive.into).unwrap_or_default();
                self.end_message(user, status);
                Payload::Copy { to: into.span(0, usize::try_from(status.bytes).unwrap_or(usize::MAX)), start }
            }
            Outcome::Store { place, start } => {
                let payload = bytes.saturating_sub(u32::try_from(start).unwrap_or(u32::MAX));
                Payload::Copy { to: self.store(place, payload), start }
            }
            Outcome::Pending { user, status } => {
                self.set_receive(user, |receive| {
                    (receive.state, receive.status) = (ReceiveState::Awaited, Some(status));
                });
                Payload::Nothing
            }
            Outcome::Truncated { user, status } => {
                self.end_message(user, status);
                Payload::Nothing
            }
            Outcome::Place { user, placement, key, more } => {
                match self.messages.grant_send(user, Grant { placement, key }, more) {
                    true => Payload::Nothing,
                    false => Payload::ProtocolViolation,
                }
            }
            Outcome::Sent { user, truncated } => {
                self.messages.finish_send(user, truncated.then_some(SendFailure::Truncated));
                Payload::Nothing
            }
            Outcome::ProtocolViolation => Payload::ProtocolViolation,
        }
    }

    /// As [`handle`](Self::handle), for messages of collectives only.
    pub fn handle_step(&mut self, from: PeerId, head: &[u8], bytes: u32) -> Payload {
        let arrival = self.steps.handle(from, head, bytes);
        match arrival {
            Arrival::Into { user, start } => {
                let Some(receive) = self.parts(Class::Collective).0.receive(user) else { return Payload::Nothing };
                let (into, status) = (receive.into, receive.status);
                self.end_step(user, status.ok_or(ReceiveFailure::Disagrees));
                Payload::Copy { to: into.span(0, usize::MAX), start: start.into() }
            }
            Arrival::Keep { slot, start, bytes } => {
                Payload::Copy { to: self.store_step(slot, bytes), start: start.into() }
            }
            Arrival::Place { user, placement, key } => {
                self.parts(Class::Collective).0.grant_send(user, Grant { placement, key }, false);
                Payload::Nothing
            }
            Arrival::Fetched { user } => {
                self.parts(Class::Collective).0.finish_send(user, None);
                Payload::Nothing
            }
            Arrival::Refused { user } => {
                self.parts(Class::Collective).0.finish_send(user, Some(SendFailure::Refused));
                Payload::Nothing
            }
            Arrival::Disagrees { user } => {
                self.end_step(user, Err(ReceiveFailure::Disagrees));
                Payload::Nothing
            }
            Arrival::Nothing => Payload::Nothing,
            Arrival::ProtocolViolation => Payload::ProtocolViolation,
        }
    }

    /// The transport has completed an operation of a send.
    pub fn handle_sent(&mut self, token: Token, result: Result<(), SendFailure>) {
        if token != Token::NOBODY {
            let (class, send) = token.parts();
            self.parts(class).0.release_send(send, result.err());
        }
    }

    /// A fetch that the transport had started has ended: its bytes are in place, unless it failed. Then all of the payload
    /// is sent.
    pub fn handle_fetched(&mut self, token: Token, is_ok: bool) {
        let (class, i) = token.parts();
        let (operations, _) = self.parts(class);
        let Some(receive) = operations.receive(i) else { return };
        let ReceiveState::Fetching { part, source } = receive.state else { return };
        if is_ok || mutant!("failed_fetch_counts") {
            receive.arrived = receive.arrived.saturating_add(part);
            return operations.pull(i, source);
        }
        if !mutant!("fetched_part_kept") {
            receive.arrived = 0;
        }
        operations.pull(i, source.unreachable());
    }

    /// The peer has written everything that a receive granted.
    pub fn handle_delivered(&mut self, token: Token) {
        let (class, i) = token.parts();
        let (operations, _) = self.parts(class);
        let Some(receive) = operations.receive(i) else { return };
        let ReceiveState::Granted { part, source, .. } = receive.state else { return };
        receive.arrived = receive.arrived.saturating_add(part);
        match receive.status {
            Some(status) if receive.arrived as u64 >= status.bytes => operations.end_receive(i, Ok(status)),
            _ => operations.pull(i, source),
        }
    }
}
