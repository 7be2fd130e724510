//! Deferred work: what messages ask for while the endpoint or a ring is borrowed, and the ends of operations.

use unisono_core::ids::PeerId;
use unisono_core::message::point_to_point;
use unisono_core::messenger::{Class, Event, Payload, ReceiveFailure, SendFailure};
use unisono_core::transport::Transport as _;

use super::Process;
use super::transport::Completion;
use crate::world::request::{Failure, Status, Tag};

impl Process {
    /// Whether deferred work waits.
    #[inline(always)]
    pub(super) fn has_deferred(&self) -> bool {
        self.messenger.has_messages() || self.transport.has_loopback() || !self.transport.completions.is_empty()
    }

    #[inline(always)]
    pub(in crate::world) fn run_deferred_if_any(&mut self) {
        if self.has_deferred() {
            self.run_deferred();
        }
    }

    /// Runs the deferred work of point-to-point messages. Returns whether anything moved.
    pub(super) fn run_deferred(&mut self) -> bool {
        let mut moved = self.handle_completions() | self.handle_loopback();
        self.advance_cancelled();
        if self.messenger.has_messages() || self.messenger.has_queued(Class::PointToPoint) {
            moved |= self.messenger.progress_class(&mut self.transport, Class::PointToPoint);
            moved |= self.end_messages(None) > 0;
        }
        while let Some(peer) = self.transport.violators.pop() {
            self.handle_violation(peer);
        }
        moved
    }

    /// A peer violated the protocol.
    pub(super) fn handle_violation(&mut self, peer: PeerId) {
        tracing::error!(rank = peer.0, "protocol violation by a peer");
        if self.transport.is_shm_peer(peer) {
            self.protocol_failure(peer);
        } else {
            self.transport.endpoint.fail(self.transport.now, peer);
        }
    }

    /// Handles the operations of the transport that have ended. Returns whether there were any.
    pub(super) fn handle_completions(&mut self) -> bool {
        let mut moved = false;
        while let Some(completion) = self.transport.completions.pop() {
            moved = true;
            let token = match completion {
                Completion::Sent { token, failure } => {
                    self.messenger.handle_sent(token, failure.map_or(Ok(()), Err));
                    token
                }
                Completion::Delivered(token) => {
                    self.messenger.handle_delivered(token);
                    token
                }
                Completion::Fetched { token, is_ok } => {
                    self.messenger.handle_fetched(token, is_ok);
                    token
                }
            };
            self.collectives.work.has_work |= token.parts().0 == Class::Collective;
        }
        moved
    }

    /// Ends the requests that the messenger has completed; those that failed because their peer is gone, with `failure`,
    /// unless it is known otherwise. Returns how many ended.
    #[inline]
    pub(super) fn end_messages(&mut self, failure: Option<Failure>) -> usize {
        let mut ended = 0;
        while let Some(event) = self.messenger.poll_class_event(Class::PointToPoint) {
            ended += 1;
            match event {
                Event::Sent { user, to, result, .. } => {
                    let gone = || failure.or_else(|| self.failure_of(to.into()));
                    let result = result.map(|()| Status::sent(to)).map_err(|error| match error {
                        SendFailure::PeerGone => gone().unwrap_or(Failure::PeerFailed(to.into())),
                        SendFailure::Truncated | SendFailure::Refused => Failure::RemoteTruncated(to.into()),
                    });
                    self.end_send(user, result);
                }
                Event::Received { user, result, .. } => {
                    let result = result.map(|status| to_status(&status)).map_err(|error| match error {
                        ReceiveFailure::Truncated(status) => Failure::Truncated { bytes: status.bytes },
                        ReceiveFailure::PeerGone | ReceiveFailure::Disagrees => failure.unwrap_or(Failure::Finished),
                    });
                    self.end_receive(user, result);
                }
                Event::ProtocolViolation(peer) => self.handle_violation(peer),
            }
        }
        ended
    }

    /// Handles the messages to this rank itself. Returns whether there were any.
    fn handle_loopback(&mut self) -> bool {
        let mut moved = false;
        while let Some(message) = self.transport.poll_loopback() {
            moved = true;
            let (own, head) = (self.transport.own, message.head());
            let bytes = message.payload.map_or(0, |(span, _)| span.bytes);
            let arrival = self.messenger.handle_message(own, head, head.len() as u32 + bytes);
            let Some((span, token)) = message.payload else { continue };
            if let Payload::Copy { to, .. } = arrival {
                self.transport.copy(span, to.into());
            }
            self.transport.completions.push(Completion::Sent { token, failure: None });
        }
        moved
    }
}

/// The status of a message as its receiver sees it.
pub(in crate::world) fn to_status(status: &point_to_point::Status) -> Status {
    let point_to_point::Status { envelope, bytes } = *status;
    Status { source: envelope.source.into(), tag: Tag(envelope.tag.0), bytes: bytes as usize }
}
