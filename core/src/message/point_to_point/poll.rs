//! The pending actions: which header is sent next.

use super::header::{Flags, MessageHeader, MessageKind};
use super::peer::MatchRequestState;
use super::receive::{PendingControl, Reply};
use super::send::{EAGER_IN_FLIGHT, HELD_ANY_TAG, HELD_TAG, SendState};
use super::{Action, MessageStorage, PointToPoint, tag_word};
use crate::ids::{PeerId, ReceiveId};
use crate::list::NONE;
use crate::message::envelope::Pattern;

impl<S: MessageStorage> PointToPoint<S> {
    /// Returns the next action. Poll only while a header can be sent, until it returns `None`.
    pub fn poll_action(&mut self) -> Option<Action> {
        if let Some(action) = self.poll_replies() {
            return Some(action);
        }
        if let Some(action) = self.poll_controls() {
            return Some(action);
        }
        while let Some(record) = self.active.pop(self.peers.as_mut(), |peer| &mut peer.links.active) {
            let peer = PeerId(record);
            self.peer(peer)?.links.is_active = false;
            if let Some(action) = self.poll_peer(peer) {
                self.activate(peer);
                return Some(action);
            }
        }
        None
    }

    /// The next header to the sender of an unexpected message.
    fn poll_replies(&mut self) -> Option<Action> {
        loop {
            let messages = self.matching.messages.as_mut();
            let record = self.replies.pop(messages, |kept| &mut kept.body.link)?;
            let kept = messages.get_mut(record as usize)?;
            let (to, id, message) = (kept.envelope.source, kept.body.id.take(), kept.body.message);
            let reply = core::mem::replace(&mut kept.body.reply, Reply::Nothing);
            if kept.body.is_over
                && let Some(id) = id
            {
                self.free_message(id);
            }
            let kind = match reply {
                Reply::Nothing => continue,
                Reply::RtsAck => {
                    self.count_claim(to);
                    MessageKind::RtsAck
                }
                Reply::Fin => MessageKind::Fin,
            };
            let head = self.head(to, kind, Flags::empty()).word(message);
            return Some(Action::Header { to, head });
        }
    }

    /// Counts the header that claims a message of this peer as sent.
    pub(super) fn count_claim(&mut self, from: PeerId) {
        if let Some(peer) = self.peer(from) {
            peer.received.pending_claims = peer.received.pending_claims.saturating_sub(1);
        }
        self.schedule_credit(from, false);
    }

    fn poll_controls(&mut self) -> Option<Action> {
        loop {
            let receives = self.matching.receives.as_mut();
            let record = self.controls.pop(receives, |posted| &mut posted.body.link)?;
            let posted = receives.get_mut(record as usize)?;
            let body = posted.body;
            let receive = ReceiveId { record, number: body.number };
            let to = body.from;
            match body.control {
                PendingControl::Nothing | PendingControl::Pulling => {}
                PendingControl::Pull => {
                    posted.body.control = PendingControl::Pulling;
                    let (user, at, bytes) = (body.user, body.at, body.bytes);
                    return Some(Action::Pull { receive, user, from: to, at, bytes });
                }
                PendingControl::Fin | PendingControl::Truncated | PendingControl::RtsAck => {
                    let kind = match body.control {
                        PendingControl::Fin => MessageKind::Fin,
                        PendingControl::Truncated => MessageKind::Truncated,
                        _ => MessageKind::RtsAck,
                    };
                    self.matching.free_receive(receive);
                    if body.claims {
                        self.count_claim(to);
                    }
                    let head = self.head(to, kind, Flags::empty()).word(body.message);
                    return Some(Action::Header { to, head });
                }
            }
        }
    }

    /// The next action for a peer.
    fn poll_peer(&mut self, to: PeerId) -> Option<Action> {
        if self.peer(to).is_none_or(|peer| peer.is_failed) {
            return None;
        }
        if let Some(user) = self.poll_accepted(to) {
            return Some(Action::Sent { user });
        }
        if let Some(head) = self.decline(to).or_else(|| self.answer_cancel(to)) {
            return Some(Action::Header { to, head });
        }
        if let Some(action) = self.poll_cancel(to) {
            return Some(action);
        }
        if let Some(head) = self.reply_to_match_request(to).or_else(|| self.request_match(to)) {
            return Some(Action::Header { to, head });
        }
        if let Some(action) = self.send_next_held(to) {
            return Some(action);
        }
        let half = self.config.headers.div_ceil(2);
        let peer = self.peer(to)?;
        let kind = if core::mem::take(&mut peer.flushes) {
            MessageKind::Flush
        } else if peer.received.is_credit_due(half) {
            MessageKind::Credit
        } else {
            return None;
        };
        Some(Action::Header { to, head: self.head(to, kind, Flags::empty()) })
    }

    /// A send whose payload the peer has stored or received.
    fn poll_accepted(&mut self, to: PeerId) -> Option<u32> {
        loop {
            let peer = self.peers.as_mut().get_mut(to.0 as usize)?;
            let (sends, record) = (self.sends.as_mut(), peer.sent.eager_in_flight.first()?);
            let send = sends.get_mut(record as usize).filter(|send| send.number < peer.sent.settled)?;
            let (user, synchronous) = (send.user, send.synchronous);
            send.state = SendState::Accepted;
            peer.sent.eager_in_flight.remove(sends, record, EAGER_IN_FLIGHT);
            if !synchronous {
                self.free_send(record);
                return Some(user);
            }
        }
    }

    /// Declines the message that was found.
    fn decline(&mut self, to: PeerId) -> Option<MessageHeader> {
        let peer = self.peer(to)?;
        core::mem::take(&mut peer.requests.declines).then(|| self.head(to, MessageKind::Decline, Flags::empty()))
    }

    /// Answers the peer's match request.
    fn reply_to_match_request(&mut self, to: PeerId) -> Option<MessageHeader> {
        let peer = self.peers.as_ref().get(to.0 as usize)?;
        let ((context, tag), settled) = (peer.requests.of_peer?, peer.sent.settled);
        let class = if tag.is_some() { HELD_TAG } else { HELD_ANY_TAG };
        let first = self.first_held(class, to, context, tag);
        // The peer claims a message that it had not seen, or repeats its request.
        let seen =
            first.filter(|first| self.sends.as_ref().get(*first as usize).is_some_and(|send| send.number < settled));
        // Whether it is still there is decided soon.
        if seen.is_some_and(|record| self.is_being_cancelled(to, record)) && !mutant!("cancelled_promised") {
            return None;
        }
        self.peer(to)?.requests.of_peer = None;
        let Some(record) = seen else { return Some(self.head(to, MessageKind::NoMatch, Flags::empty())) };
        self.peer(to)?.requests.reserved = record;
        Some(self.describe(record, MessageKind::MatchFound, Flags::empty()))
    }

    /// Builds a match request to this peer, for the first receive, or for the probe, that has not sent it one.
    fn request_match(&mut self, of: PeerId) -> Option<MessageHeader> {
        let peer = self.peers.as_ref().get(of.0 as usize)?;
        if peer.received.held == 0
            || peer.received.pending_claims > 0
            || !matches!(peer.requests.own, MatchRequestState::Nothing | MatchRequestState::Reserved)
        {
            return None;
        }
        let (cursor, probed, is_promised) =
            (peer.requests.cursor, peer.requests.probed, peer.requests.own == MatchRequestState::Reserved);
        let receive = self.matching.first_needing_request(of, cursor);
        if is_promised {
            receive?;
            self.end_probe();
            return self.decline(of);
        }
        let (ask, pattern) = match (receive, self.probe) {
            (Some(receive), _) => (MatchRequestState::Receive(receive), *self.matching.receive(receive)?.0),
            (None, Some(probe)) if probed != probe.number && probe.pattern.source.is_none_or(|source| source == of) => {
                (MatchRequestState::Probe(probe.number), probe.pattern)
            }
            _ => return None,
        };
        let peer = self.peer(of)?;
        peer.requests.own = ask;
        peer.requests.again = false;
        Some(self.build_match_request(of, &pattern))
    }

    fn build_match_request(&mut self, of: PeerId, pattern: &Pattern) -> MessageHeader {
        let flags = if pattern.tag.is_none() { Flags::ANY_TAG } else { Flags::empty() };
        self.head(of, MessageKind::MatchRequest, flags).word(pattern.context.0).word(tag_word(pattern.tag))
    }
}

const _: () = assert!(NONE == u32::MAX, "an eager message without a record says so");
