//! Probes and matched probes.

use super::header::Descriptor;
use super::peer::MatchRequestState;
use super::receive::{MessageBody, Reply};
use super::{MessageStorage, Outcome, PointToPoint, Status};
use crate::ids::{MessageId, PeerId};
use crate::message::envelope::Pattern;

/// The latest probe that matched no unexpected message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct PendingProbe {
    pub(super) pattern: Pattern,
    pub(super) number: u32,
    found: Option<Reservation>,
}

/// A held message that a probe found at its sender, reserved until the probe is repeated, or a receive sends that peer
/// a match request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reservation {
    status: Status,
    message: u32,
    at: Option<u64>,
    synchronous: bool,
}

impl PendingProbe {
    /// Whether it has found the message of this number at a peer.
    pub(super) fn has_found(&self, peer: PeerId, message: u32) -> bool {
        self.is_found_at(peer) && self.found.is_some_and(|promise| promise.message == message)
    }

    pub(super) fn is_found_at(&self, peer: PeerId) -> bool {
        self.found.is_some_and(|promise| promise.status.envelope.source == peer)
    }
}

impl<S: MessageStorage> PointToPoint<S> {
    /// Whether a receive with this pattern would match a message now. If its sender holds the message, a later call
    /// with the same pattern reports it. One probe at a time sends match requests: another pattern replaces it.
    pub fn probe(&mut self, pattern: Pattern) -> Option<Status> {
        if let Some(message) = self.matching.first_message(&pattern) {
            let (envelope, body) = self.matching.message(message)?;
            return Some(Status { envelope: *envelope, bytes: body.bytes });
        }
        if let Some(probe) = self.probe.filter(|probe| probe.pattern == pattern) {
            return probe.found.map(|promise| promise.status);
        }
        self.end_probe();
        self.probes = self.probes.wrapping_add(1).max(1);
        self.probe = Some(PendingProbe { pattern, number: self.probes, found: None });
        self.activate_holders();
        None
    }

    /// Whether [`probe`](Self::probe) would return a message. Sends no match request.
    pub fn would_find(&self, pattern: &Pattern) -> bool {
        let is_promised = |probe: &PendingProbe| probe.pattern == *pattern && probe.found.is_some();
        self.matching.first_message(pattern).is_some() || self.probe.as_ref().is_some_and(is_promised)
    }

    /// As [`probe`](Self::probe), and removes the message from matching: only
    /// [`receive_matched`](Self::receive_matched) receives it. A held message takes a record of those beyond headers ×
    /// peers; `None` while there is none.
    pub fn matched_probe(&mut self, pattern: Pattern) -> Option<(MessageId, Status)> {
        if let Some(message) = self.matching.first_message(&pattern) {
            let (envelope, body) = self.matching.message(message)?;
            let status = Status { envelope: *envelope, bytes: body.bytes };
            self.matching.take(message);
            return Some((message, status));
        }
        self.probe(pattern)?;
        let left = self.spare.checked_sub(1)?;
        let Reservation { status, message, at, synchronous } = self.probe.as_mut()?.found.take()?;
        let (from, bytes) = (status.envelope.source, status.bytes);
        let body = MessageBody { message, bytes, at, synchronous, is_spare: true, ..MessageBody::default() };
        let id = self.matching.take_message_record(status.envelope, body).ok()?;
        self.spare = left;
        self.probe = None;
        let peer = self.peer(from)?;
        peer.requests.own = MatchRequestState::Nothing;
        peer.received.held = peer.received.held.saturating_sub(1);
        peer.received.pending_claims = peer.received.pending_claims.wrapping_add(1);
        self.queue_reply(id, Reply::RtsAck);
        self.activate(from);
        Some((id, status))
    }

    /// Handles a peer's reply that it found a message for a probe.
    pub(super) fn reserve_for_probe(
        &mut self,
        from: PeerId,
        number: u32,
        status: &Status,
        shown: &Descriptor,
        synchronous: bool,
    ) -> Option<Outcome> {
        let probe = self.probe.as_mut().filter(|probe| probe.number == number);
        match probe {
            Some(probe) if !probe.pattern.matches(&status.envelope) => return None,
            Some(probe) if probe.found.is_none() => {
                let (message, at) = (shown.message, Some(shown.at));
                probe.found = Some(Reservation { status: *status, message, at, synchronous });
                self.peer(from)?.requests.own = MatchRequestState::Reserved;
            }
            Some(_) => {
                let peer = self.peer(from)?;
                peer.requests.declines = true;
                peer.requests.probed = number;
            }
            None => self.peer(from)?.requests.declines = true,
        }
        Some(Outcome::Nothing)
    }

    /// Ends the probe, and declines the message that it found, if any.
    pub(super) fn end_probe(&mut self) {
        let Some(Reservation { status, .. }) = self.probe.take().and_then(|probe| probe.found) else { return };
        if let Some(peer) = self.peer(status.envelope.source) {
            peer.requests.own = MatchRequestState::Nothing;
            peer.requests.declines = true;
        }
        self.activate(status.envelope.source);
    }
}
