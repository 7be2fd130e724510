//! Collective messages: each has one send and one receive with an exact key.

use super::operations::{PullSource, ReceiveFailure, ReceiveOp, ReceiveState, SendOp, SendState};
use super::{Class, Messenger, MessengerStorage};
use crate::ids::{PeerId, Port};
use crate::message::collective_transport::{Posted, ReceiveError, Sent, StepKey, StepSendError, TransportAction};
use crate::message::point_to_point::Status;
use crate::message::{Context, Envelope, Tag};
use crate::span::{Region, RegionRange, Span};
use crate::transport::Transport;

/// A message of a collective to be sent to a peer that takes part.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StepMessage {
    /// The destination.
    pub to: PeerId,
    /// Its identity.
    pub key: StepKey,
    /// Its bytes: unchanged until its event.
    pub payload: Span,
    /// Where the peer's transport finds them.
    pub at: u64,
    /// The port of its schedule.
    pub port: Port,
    /// Returned in its event.
    pub user: u32,
}

/// Why the message of a collective was not posted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StepError {
    /// There is no such rank.
    UnknownPeer,
    /// Every record is in use: make progress and drain events.
    Full,
    /// A message with that key is under way.
    Duplicate,
    /// The peer sent another length.
    Disagrees,
}

impl<S: MessengerStorage> Messenger<S> {
    /// Sends a message of a collective. Ends with [`Event::Sent`](super::Event).
    ///
    /// # Errors
    /// [`StepError`]; nothing was sent.
    pub fn send_step(&mut self, transport: &mut impl Transport, message: &StepMessage) -> Result<(), StepError> {
        let StepMessage { to, key, payload, at, port, user } = *message;
        let (operations, outbox) = self.parts(Class::Collective);
        if outbox.is_full() {
            return Err(StepError::Full);
        }
        let send = operations.start_send(user, to, payload.into()).ok_or(StepError::Full)?;
        if let Some(op) = operations.send(send) {
            op.port = port;
        }
        match self.steps.send(to, key, (payload.bytes, at), send) {
            Ok(Sent::Eager(head)) => {
                self.post(transport, to, head.as_ref(), Some(send), (Class::Collective, port));
                self.parts(Class::Collective).0.finish_send(send, None);
            }
            Ok(Sent::Rts(head)) => self.post(transport, to, head.as_ref(), None, (Class::Collective, port)),
            Err(error) => {
                self.parts(Class::Collective).0.free_send(send);
                return Err(match error {
                    StepSendError::UnknownPeer => StepError::UnknownPeer,
                    StepSendError::Full => StepError::Full,
                    StepSendError::Duplicate => StepError::Duplicate,
                });
            }
        }
        Ok(())
    }

    /// Receives a message of a collective, of exactly `into.bytes` bytes. Ends with [`Event::Received`](super::Event).
    ///
    /// # Errors
    /// [`StepError`]; nothing was posted.
    pub fn receive_step(
        &mut self,
        transport: &mut impl Transport,
        of: PeerId,
        key: StepKey,
        into: Span,
        user: u32,
    ) -> Result<(), StepError> {
        let (operations, _) = self.parts(Class::Collective);
        let receive = operations.start_receive(user, into.into()).ok_or(StepError::Full)?;
        let envelope = Envelope { context: Context(key.context), source: of, tag: Tag(key.step) };
        let status = Status { envelope, bytes: into.bytes.into() };
        if let Some(op) = operations.receive(receive) {
            op.status = Some(status);
        }
        match self.steps.receive(of, key, into.bytes, receive) {
            Ok(Posted::Waits) => {}
            Ok(Posted::Early { slot }) => {
                transport.copy(self.store_step(slot, into.bytes), RegionRange::from(into));
                self.steps.release_slot(slot);
                self.end_step(receive, Ok(status));
            }
            Err(error) => {
                self.parts(Class::Collective).0.free_receive(receive);
                return Err(match error {
                    ReceiveError::UnknownPeer => StepError::UnknownPeer,
                    ReceiveError::Full => StepError::Full,
                    ReceiveError::Duplicate => StepError::Duplicate,
                    ReceiveError::Disagrees { .. } => StepError::Disagrees,
                });
            }
        }
        Ok(())
    }

    /// Cancels the sends and receives of collectives whose `user` value satisfies `is`, and reports it to `cancelled`:
    /// no event follows. The payload of a send that is being read is read to its end, and its event follows; as those
    /// of operations that are complete. The peer of a cancelled operation gets no answer. O(records).
    pub fn cancel_steps(
        &mut self,
        transport: &mut impl Transport,
        is: impl Fn(u32) -> bool,
        mut cancelled: impl FnMut(u32),
    ) {
        let (operations, _) = self.parts(Class::Collective);
        operations.unlist_placing(|send| !is(send.user));
        operations.unlist_pulling(|receive| !is(receive.user));
        for i in 0..self.collective.sends.as_ref().len() as u32 {
            let Some(&mut SendOp { user, state, uses, .. }) = self.collective.send(i) else { break };
            if !matches!(state, SendState::Open | SendState::Granted { .. }) || !is(user) {
                continue;
            }
            self.steps.cancel_send(i);
            if uses > 0 {
                self.collective.finish_send(i, None);
            } else {
                self.collective.free_send(i);
                cancelled(user);
            }
        }
        for i in 0..self.collective.receives.as_ref().len() as u32 {
            let Some(&mut ReceiveOp { user, state, status, .. }) = self.collective.receive(i) else { break };
            let of = status.map_or(PeerId(u32::MAX), |status| status.envelope.source);
            match state {
                ReceiveState::Free | ReceiveState::Ended(_) => continue,
                _ if !is(user) => continue,
                ReceiveState::Granted { placement, .. } => transport.withdraw(of, placement),
                ReceiveState::Fetching { .. } if mutant!("fetch_outlives_receive") => {}
                ReceiveState::Fetching { .. } => transport.abort_fetch(of, Class::Collective.token(i)),
                ReceiveState::Posted(_) | ReceiveState::Awaited | ReceiveState::Pulling(_) => {
                    self.steps.cancel_receive(i);
                }
            }
            self.collective.free_receive(i);
            cancelled(user);
        }
    }

    /// Discards messages of freed communicators that no receive consumed: as
    /// [`CollectiveTransport::discard`](crate::message::collective_transport::CollectiveTransport::discard).
    pub fn discard_steps(&mut self, is_gone: impl FnMut(u32) -> bool) {
        self.steps.discard(is_gone);
    }

    /// Whether the transport reads the payload of a collective's send in this region. O(records).
    pub fn is_sending_from(&self, region: Region) -> bool {
        let reads = |send: &SendOp| send.uses > 0 && send.payload.bytes > 0 && send.payload.region == region;
        self.collective.sends.as_ref().iter().any(reads)
    }

    /// Whether the receive of a collective with this `user` value has no message, or only its RTS. O(records).
    pub fn awaits_step(&self, user: u32) -> bool {
        let waits = |receive: &ReceiveOp| receive.user == user && receive.state == ReceiveState::Awaited;
        self.collective.receives.as_ref().iter().any(waits)
    }

    /// The sends of collectives that wait for their receiver: its peer and `user` value. O(records).
    pub fn open_sends(&self) -> impl Iterator<Item = (PeerId, u32)> {
        let is_open = |send: &&SendOp| matches!(send.state, SendState::Open | SendState::Granted { .. });
        self.collective.sends.as_ref().iter().filter(is_open).map(|send| (send.to, send.user))
    }

    /// Whether [`progress`](Self::progress) or [`poll_event`](Self::poll_event) has something to do for collectives.
    pub fn has_steps(&self) -> bool {
        let [_, outbox] = &self.outboxes;
        self.collective.has_work() || !outbox.is_empty() || self.steps.has_action()
    }

    /// Sends a message of another protocol after all earlier messages of collectives to the peer. Returns false,
    /// without effect, if it cannot be queued.
    #[must_use]
    pub fn send_control(&mut self, transport: &mut impl Transport, to: PeerId, head: &[u8]) -> bool {
        let is_full = self.parts(Class::Collective).1.is_full();
        if !is_full {
            self.post(transport, to, head, None, (Class::Collective, Port::ONLY));
        }
        !is_full
    }

    pub(super) fn end_step(&mut self, receive: u32, result: Result<Status, ReceiveFailure>) {
        self.parts(Class::Collective).0.end_receive(receive, result);
    }

    /// Carries out the actions of the collective messages while headers can be queued.
    pub(super) fn run_step_actions(&mut self, transport: &mut impl Transport) -> bool {
        let mut moved = false;
        while !self.parts(Class::Collective).1.is_full()
            && let Some(action) = self.steps.poll_action()
        {
            moved = true;
            match action {
                TransportAction::Send { to, head } => {
                    self.post(transport, to, head.as_ref(), None, (Class::Collective, Port::ONLY));
                }
                TransportAction::Pull { user, key, at, .. } => {
                    self.parts(Class::Collective).0.pull(user, PullSource::Step { key, at: Some(at) });
                }
            }
        }
        moved
    }
}
