//! Deferred work: actions that messages ask for while the endpoint or a ring is borrowed, and that run once it is free.

use unisono_core::ids::{PeerId, ReceiveId};
use unisono_core::message::point_to_point::Action;
use unisono_core::messenger::{Class, SendFailure};
use unisono_core::span::RegionRange;
use unisono_core::transport::{Fetch, Grant, Progress, Transport as _, TransportError};

use super::Process;
use super::matching_store::{Deferred, PayloadAction, ReceiveRecord, ReceiveState};
use super::messages::token_of_send;
use super::transport::Completion;
use crate::world::request::{Failure, Status, Tag, send_of_id};

impl Process {
    /// Whether deferred work waits.
    #[inline(always)]
    pub(super) fn has_deferred(&self) -> bool {
        self.matching.has_work() || self.transport.has_loopback() || !self.transport.completions.is_empty()
    }

    #[inline(always)]
    pub(in crate::world) fn run_deferred_if_any(&mut self) {
        if self.has_deferred() {
            self.run_deferred();
        }
    }

    /// Runs the deferred work and the matching machine's actions. Returns whether anything moved.
    pub(super) fn run_deferred(&mut self) -> bool {
        let now = self.transport.now;
        let mut moved = self.empty_outbox();
        while self.transport.endpoint.can_grant()
            && let Some(deferred) = self.matching.late_grants.pop_front()
        {
            moved = true;
            self.run_one(now, deferred);
        }
        moved |= self.handle_loopback();
        let mut left = self.matching.deferred.len();
        while left > 0
            && let Some(deferred) = self.matching.deferred.pop_front()
        {
            left -= 1;
            moved = true;
            self.run_one(now, deferred);
        }
        moved |= self.handle_completions();
        while let Some(action) = self.matching.machine.poll_action() {
            moved = true;
            self.carry_out_action(action);
        }
        while let Some(peer) = self.transport.violators.pop() {
            self.protocol_failure(peer);
        }
        moved
    }

    /// Handles the operations of the transport that have ended. Returns whether there were any.
    pub(super) fn handle_completions(&mut self) -> bool {
        let mut moved = false;
        while let Some(completion) = self.transport.completions.pop() {
            moved = true;
            let (Completion::Sent { token, .. } | Completion::Delivered(token)) = completion;
            match (token.parts(), completion) {
                ((Class::Collective, _), Completion::Sent { failure, .. }) => {
                    self.messenger.handle_sent(token, failure.map_or(Ok(()), Err));
                    self.collectives.has_work = true;
                }
                ((Class::Collective, _), Completion::Delivered(_)) => {
                    self.messenger.handle_delivered(token);
                    self.collectives.has_work = true;
                }
                ((Class::PointToPoint, request), Completion::Sent { to, failure, .. }) => {
                    self.handle_read(request, to, failure);
                }
                ((Class::PointToPoint, request), Completion::Delivered(_)) => {
                    self.matching.finish_part(request, &mut self.requests);
                }
            }
        }
        moved
    }

    /// The payload of a send was read, or will not be.
    fn handle_read(&mut self, request: u32, to: PeerId, failure: Option<SendFailure>) {
        let failure = failure.map(|failure| match failure {
            SendFailure::PeerGone => self.failure_of(to.into()).unwrap_or(Failure::PeerFailed(to.into())),
            SendFailure::Truncated | SendFailure::Refused => Failure::RemoteTruncated(to.into()),
        });
        match (send_of_id(request), failure) {
            (Some(send), failure) => self.release_send(send, failure),
            (None, Some(failure)) => self.requests.finish(request, Err(failure)),
            (None, None) => self.requests.finish(request, Ok(Status { source: self.rank, tag: Tag(0), bytes: 0 })),
        }
    }

    /// Handles the messages to this rank itself. Returns whether there were any.
    fn handle_loopback(&mut self) -> bool {
        let mut moved = false;
        while let Some(message) = self.transport.poll_loopback() {
            moved = true;
            let (own, head) = (self.transport.own, message.head());
            let bytes = message.payload.map_or(0, |(span, _)| span.bytes as usize);
            let arrival = self.matching.handle(own, head, head.len() + bytes, 0, &mut self.requests);
            let Some((span, token)) = message.payload else { continue };
            if let PayloadAction::Place { to, .. } = arrival {
                self.transport.copy(span, to.into());
            }
            self.transport.completions.push(Completion::Sent { token, to: own, failure: None });
        }
        moved
    }

    fn carry_out_action(&mut self, action: Action) {
        match action {
            Action::Header { to, head } => self.route_header(to, &head, None),
            Action::Eager { to, user, head, done } => {
                if let Some(parcel) = self.matching.sends.get(user) {
                    parcel.is_final |= done;
                    parcel.is_ack_requested = false;
                }
                // An abandoned send leaves as a header only: its receiver will not take the payload.
                self.route_header(to, &head, Some(user));
                if done {
                    self.matching.sends.free_abandoned(user);
                }
                self.complete_send(user);
            }
            Action::Sent { user } => self.handle_sent(user, None),
            Action::Pull { receive, user: request, from, at, .. } => {
                self.matching.deferred.push_back(match at {
                    Some(at) => Deferred::Fetch { receive, request, from, at, fetched: 0 },
                    None => Deferred::Grant { receive, request, from, granted: 0 },
                });
            }
        }
    }

    /// The peer no longer needs a message of this rank.
    fn handle_sent(&mut self, parcel: u32, failure: Option<Failure>) {
        match self.matching.sends.get(parcel) {
            Some(parcel) => {
                parcel.is_final = true;
                parcel.record_failure(failure);
            }
            None => self.matching.sends.free_abandoned(parcel),
        }
        self.complete_send(parcel);
    }

    fn run_one(&mut self, now: u64, deferred: Deferred) {
        match deferred {
            Deferred::Grant { receive, request, from, granted } => self.grant(receive, request, from, granted),
            Deferred::Fetch { receive, request, from, at, fetched } => {
                self.fetch(receive, request, (from, at), fetched)
            }
            Deferred::Sent { send, failure } => self.handle_sent(send, failure),
            Deferred::Place { to, send, grant, more } => self.place_send(to, send, grant, more),
            Deferred::ProtocolViolation { peer } => {
                tracing::error!(rank = peer.0, "protocol violation by a peer");
                if self.transport.is_shm_peer(peer) {
                    self.protocol_failure(peer);
                } else {
                    self.transport.endpoint.fail(now, peer);
                }
            }
        }
    }

    /// The buffer of a matched receive, cut to its message.
    fn matched_range(&mut self, request: u32) -> Option<RegionRange> {
        match self.matching.posted(request)? {
            ReceiveRecord { into, state: ReceiveState::Matched { bytes, .. }, .. } => {
                Some(into.part(0, usize::try_from(*bytes).unwrap_or(usize::MAX)))
            }
            ReceiveRecord { state: ReceiveState::Unmatched(_), .. } => None,
        }
    }

    /// Copies an announced message, one chunk at a time, or grants memory for it.
    fn fetch(&mut self, receive: ReceiveId, request: u32, (from, at): (PeerId, u64), fetched: usize) {
        let Some(whole) = self.matched_range(request) else {
            return self.matching.machine.cancel_pull(receive);
        };
        let copied = match whole.bytes {
            0 => Fetch::Complete,
            _ => self.transport.fetch(from, at, whole, fetched),
        };
        match copied {
            Fetch::Complete => {
                self.matching.complete(request, &mut self.requests);
                self.matching.machine.fetched(receive);
            }
            Fetch::Copied(bytes) => {
                let fetched = fetched + bytes;
                self.matching.deferred.push_back(Deferred::Fetch { receive, request, from, at, fetched });
            }
            Fetch::Unreachable => self.grant(receive, request, from, 0),
            Fetch::Invalid => _ = self.protocol_failure(from),
        }
    }

    /// Grants memory for a message that cannot be read directly: for all of it, or for the next part.
    fn grant(&mut self, receive: ReceiveId, request: u32, from: PeerId, granted: usize) {
        let Some(whole) = self.matched_range(request) else {
            return self.matching.machine.cancel_pull(receive);
        };
        let part = whole.part(granted, self.transport.grant_limit(from));
        let granted = granted + part.bytes;
        let Grant { placement, key } = match self.transport.grant(from, part, Class::PointToPoint.token(request)) {
            Ok(grant) => grant,
            Err(TransportError::Full) => {
                let again = Deferred::Grant { receive, request, from, granted: granted - part.bytes };
                return self.matching.late_grants.push_back(again);
            }
            // The peer's failure is about to be reported.
            Err(TransportError::PeerGone) => return,
        };
        let more = granted < whole.bytes;
        if let Some(receiving) = self.matching.posted(request) {
            receiving.parts = receiving.parts.saturating_add(1);
            receiving.is_fully_granted = !more;
        }
        let machine = &mut self.matching.machine;
        let head =
            if more { machine.grant_part(receive, placement, key) } else { machine.grant(receive, placement, key) };
        if let Some((to, head)) = head {
            self.route_header(to, &head, None);
        }
        if more {
            self.matching.deferred.push_back(Deferred::Grant { receive, request, from, granted });
        }
    }

    /// A peer granted memory for a message of this rank, or for its next part.
    fn place_send(&mut self, to: PeerId, user: u32, grant: Grant, more: bool) {
        let Some(send) = self.matching.sends.get(user).filter(|send| send.to == to) else {
            if !more {
                self.matching.sends.free_abandoned(user);
            }
            return;
        };
        let part = send.payload.part(send.granted, if more { self.transport.grant_limit(to) } else { usize::MAX });
        match self.transport.place(to, grant, part, token_of_send(user)) {
            Ok(progress) => {
                send.uses += u32::from(progress == Progress::Pending);
                send.granted += part.bytes;
                send.is_final |= !more;
                self.complete_send(user);
            }
            Err(TransportError::Full) => {
                self.matching.deferred.push_back(Deferred::Place { to, send: user, grant, more });
            }
            Err(TransportError::PeerGone) => {
                let failure = self.failure_of(to.into()).unwrap_or(Failure::PeerFailed(to.into()));
                self.handle_sent(user, Some(failure));
            }
        }
    }
}
