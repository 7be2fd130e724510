//! Collective messages: each has one send and one receive with an exact key.

use super::operations::ReceiveFailure;
use super::{Class, Messenger, MessengerStorage};
use crate::ids::PeerId;
use crate::message::collective_transport::{Posted, ReceiveError, Sent, StepKey, StepSendError, TransportAction};
use crate::message::point_to_point::Status;
use crate::message::{Context, Envelope, Tag};
use crate::span::{RegionRange, Span};
use crate::transport::Transport;

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
    pub fn send_step(
        &mut self,
        transport: &mut impl Transport,
        to: PeerId,
        key: StepKey,
        payload: Span,
        user: u32,
    ) -> Result<(), StepError> {
        let (operations, outbox) = self.parts(Class::Collective);
        if outbox.is_full() {
            return Err(StepError::Full);
        }
        let send = operations.start_send(user, to, payload.into()).ok_or(StepError::Full)?;
        match self.steps.send(to, key, payload.bytes, send) {
            Ok(Sent::Eager(head)) => {
                self.post(transport, to, head.as_ref(), Some(send), Class::Collective);
                self.parts(Class::Collective).0.finish_send(send, None);
            }
            Ok(Sent::Rts(head)) => self.post(transport, to, head.as_ref(), None, Class::Collective),
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
                    self.post(transport, to, head.as_ref(), None, Class::Collective);
                }
                TransportAction::Grant { user, key, .. } => {
                    self.parts(Class::Collective).0.pull(user, super::operations::PullSource::Step(key));
                }
            }
        }
        moved
    }
}
