//! Receives, and unexpected messages.

use super::header::{Flags, MessageHeader, MessageKind};
use super::peer::MatchRequestState;
use super::{Matched, MessageStorage, PayloadStore, PointToPoint, ReceiveResult, Status};
use crate::ids::{MessageId, PeerId, PlacementId, ReceiveId, RemoteKey};
use crate::list::NONE;
use crate::message::envelope::Pattern;
use crate::message::matching::Full;

/// The body of a receive; the fields of one that is not matched come first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(not(feature = "optimize_for_size"), repr(C))]
pub struct ReceiveBody {
    /// Bytes of its buffer.
    pub(super) room: u64,
    pub(super) user: u32,
    pub(super) control: PendingControl,
    /// The next header about the matched message claims it: its sender holds it.
    pub(super) claims: bool,
    /// The matched message: its sender, and the sender's number for it.
    pub(super) from: PeerId,
    pub(super) message: u32,
    pub(super) bytes: u64,
    pub(super) at: Option<u64>,
    pub(super) link: u32,
    /// The receive's number, since the list links by index.
    pub(super) number: u64,
}

/// The pending action for a matched receive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum PendingControl {
    Nothing,
    /// Send an RTS ACK: nobody pulls the payload that was claimed.
    RtsAck,
    Pull,
    /// The host is pulling the payload.
    Pulling,
    Fin,
    Truncated,
}

impl Default for ReceiveBody {
    fn default() -> Self {
        let from = PeerId(NONE);
        Self {
            room: 0,
            user: 0,
            control: PendingControl::Nothing,
            claims: false,
            from,
            message: 0,
            bytes: 0,
            at: None,
            link: NONE,
            number: 0,
        }
    }
}

impl ReceiveBody {
    /// Returns the `user` value of an unmatched receive, and resets it to the default.
    #[inline]
    pub(super) fn empty(&mut self) -> u32 {
        self.room = 0;
        core::mem::take(&mut self.user)
    }
}

/// The body of an unexpected message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MessageBody {
    /// The sender's number for it.
    pub(super) message: u32,
    /// How many message headers its sender had sent before.
    pub(super) number: u32,
    pub(super) bytes: u64,
    pub(super) at: Option<u64>,
    /// `None`: the payload is at the sender.
    pub(super) place: Option<PayloadStore>,
    pub(super) synchronous: bool,
    /// Its record is not one of those that the peer counts.
    pub(super) is_spare: bool,
    pub(super) reply: Reply,
    /// The record is freed after the pending header was sent.
    pub(super) is_over: bool,
    pub(super) link: u32,
    /// The message's identity, since the list links by index.
    pub(super) id: Option<MessageId>,
}

/// The header that is pending for a message's sender.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Reply {
    Nothing,
    RtsAck,
    Fin,
}

impl Default for MessageBody {
    fn default() -> Self {
        Self {
            message: 0,
            number: 0,
            bytes: 0,
            at: None,
            place: None,
            synchronous: false,
            is_spare: false,
            reply: Reply::Nothing,
            is_over: false,
            link: NONE,
            id: None,
        }
    }
}

impl<S: MessageStorage> PointToPoint<S> {
    /// Posts a receive of a message of up to `room` bytes, or matches it with an unexpected message.
    ///
    /// # Errors
    /// [`Full`]: every receive record is in use; poll actions first.
    pub fn receive(&mut self, pattern: Pattern, room: u64, user: u32) -> Result<ReceiveResult, Full> {
        match self.receive_unexpected(&pattern, room, user)? {
            Some(matched) => Ok(ReceiveResult::Matched(matched)),
            None => self.post(pattern, room, user).map(ReceiveResult::Posted),
        }
    }

    /// As [`receive`](Self::receive), for unexpected messages only. `None`: none matches.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    #[inline]
    pub fn receive_unexpected(&mut self, pattern: &Pattern, room: u64, user: u32) -> Result<Option<Matched>, Full> {
        match self.matching.first_message(pattern) {
            Some(message) => self.match_unexpected(message, room, user).map(Some),
            None => Ok(None),
        }
    }

    /// As [`receive`](Self::receive), if [no unexpected message](Self::receive_unexpected) matches.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    pub fn post(&mut self, pattern: Pattern, room: u64, user: u32) -> Result<ReceiveId, Full> {
        let receive = self.matching.post_with(pattern, |body| (body.room, body.user) = (room, user))?;
        match pattern.source {
            Some(source) => {
                if self.peer(source).is_some_and(|peer| peer.received.held > 0) {
                    self.matching.set_needs_request(receive, true);
                    self.activate(source);
                }
            }
            None => self.activate_holders(),
        }
        Ok(receive)
    }

    /// Receives a message that a matched probe has taken. `None`: there is no such message any more.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn receive_matched(&mut self, message: MessageId, room: u64, user: u32) -> Result<Option<Matched>, Full> {
        if self.matching.message(message).is_none_or(|(_, body)| body.is_over) || !self.matching.is_taken(message) {
            return Ok(None);
        }
        self.match_unexpected(message, room, user).map(Some)
    }

    /// Matches an unexpected message with its receive.
    fn match_unexpected(&mut self, message: MessageId, room: u64, user: u32) -> Result<Matched, Full> {
        let Some((envelope, body)) = self.matching.message(message) else { return Err(Full) };
        let (envelope, body) = (*envelope, *body);
        let status = Status { envelope, bytes: body.bytes };
        if let Some(place) = body.place {
            self.matching.take(message);
            return Ok(Matched::Unexpected { message, place, status });
        }
        let truncated = body.bytes > room;
        let control = if truncated { PendingControl::Truncated } else { PendingControl::Pull };
        let pattern = Pattern { context: envelope.context, source: Some(envelope.source), tag: Some(envelope.tag) };
        let id = self.matching.take_receive_record(pattern, |body| (body.room, body.user) = (room, user))?;
        self.matching.take(message);
        self.begin_transfer(id, envelope.source, body.message, (body.bytes, body.at), control);
        self.end_message(message);
        Ok(if truncated { Matched::Truncated(status) } else { Matched::Pending(status) })
    }

    /// Frees the buffer of an unexpected message: its payload was copied.
    pub fn release(&mut self, message: MessageId) {
        if !self.matching.is_taken(message) {
            return;
        }
        let Some(kept) = self.matching.messages.as_mut().get_mut(message.record as usize) else { return };
        let (place, synchronous) = (kept.body.place.take(), kept.body.synchronous);
        match place {
            Some(PayloadStore::Slot(slot)) => self.slots.free(slot),
            Some(PayloadStore::Short(_)) => {}
            None => return,
        }
        let sender = self
            .matching
            .message(message)
            .and_then(|(envelope, _)| self.peers.as_ref().get(envelope.source.0 as usize));
        if synchronous && sender.is_some_and(|sender| !sender.is_failed) {
            self.queue_reply(message, Reply::Fin);
        }
        self.end_message(message);
    }

    /// Frees an unexpected message, after the pending header to its sender was sent.
    pub(super) fn end_message(&mut self, message: MessageId) {
        let Some(kept) = self.matching.messages.as_mut().get_mut(message.record as usize) else { return };
        kept.body.is_over = true;
        if kept.body.reply == Reply::Nothing {
            self.free_message(message);
        }
    }

    /// Frees its record: the sender gets the header credit back.
    pub(super) fn free_message(&mut self, message: MessageId) {
        let Some((envelope, _)) = self.matching.message(message) else { return };
        let from = envelope.source;
        let Some(body) = self.matching.free_message(message) else { return };
        if body.is_spare {
            self.spare = self.spare.wrapping_add(1);
            return;
        }
        if let Some(peer) = self.peer(from) {
            peer.received.stored = peer.received.stored.wrapping_sub(1);
            peer.received.freed = peer.received.freed.wrapping_add(1);
        }
        self.schedule_credit(from, false);
    }

    /// Queues a header to the sender of an unexpected message.
    pub(super) fn queue_reply(&mut self, message: MessageId, reply: Reply) {
        let messages = self.matching.messages.as_mut();
        if let Some(kept) = messages.get_mut(message.record as usize) {
            kept.body.reply = reply;
            kept.body.id = Some(message);
            self.replies.push(messages, message.record, |kept| &mut kept.body.link);
        }
    }

    /// Records the message that a receive matched, whose payload is at its sender.
    pub(super) fn begin_transfer(
        &mut self,
        receive: ReceiveId,
        from: PeerId,
        message: u32,
        of: (u64, Option<u64>),
        control: PendingControl,
    ) {
        let receives = self.matching.receives.as_mut();
        if let Some(posted) = receives.get_mut(receive.record as usize) {
            let (bytes, at) = of;
            posted.body = ReceiveBody { control, from, message, bytes, at, number: receive.number, ..posted.body };
            self.controls.push(receives, receive.record, |posted| &mut posted.body.link);
        }
    }

    /// The pattern of a receive.
    pub fn pattern(&self, receive: ReceiveId) -> Option<Pattern> {
        self.matching.receive(receive).map(|(pattern, _)| *pattern)
    }

    /// Cancels a posted receive. Returns its `user` value; `None`: it was not posted.
    pub fn cancel(&mut self, receive: ReceiveId) -> Option<u32> {
        if !self.matching.unpost(receive) {
            return None;
        }
        self.matching.free_receive(receive).map(|body| body.user)
    }

    /// Reports that the payload of a pulled message was copied.
    pub fn fetched(&mut self, receive: ReceiveId) {
        if self.pulled(receive).is_some() {
            self.queue_control(receive, PendingControl::Fin);
        }
    }

    /// Reports that memory for a pulled message was granted: send the returned CTS to its sender. `None`: the message
    /// is not pulled any more.
    pub fn grant(
        &mut self,
        receive: ReceiveId,
        placement: PlacementId,
        key: RemoteKey,
    ) -> Option<(PeerId, MessageHeader)> {
        let granted = self.cts(receive, Flags::empty(), placement, key)?;
        self.matching.free_receive(receive);
        Some(granted)
    }

    /// As [`grant`](Self::grant), for the next part of the message only: more grants follow, in the order of the parts.
    pub fn grant_part(
        &mut self,
        receive: ReceiveId,
        placement: PlacementId,
        key: RemoteKey,
    ) -> Option<(PeerId, MessageHeader)> {
        self.cts(receive, Flags::MORE, placement, key)
    }

    fn cts(
        &mut self,
        receive: ReceiveId,
        flags: Flags,
        placement: PlacementId,
        key: RemoteKey,
    ) -> Option<(PeerId, MessageHeader)> {
        let ReceiveBody { from, message, claims, .. } = self.pulled(receive)?;
        if claims {
            self.count_claim(from);
            self.matching.receives.as_mut().get_mut(receive.record as usize)?.body.claims = false;
        }
        let head = self.head(from, MessageKind::Cts, flags);
        Some((from, head.word(message).word(placement.0).long(key.0)))
    }

    /// Reports that a pulled message will not be moved: its sender failed, or nobody needs it.
    pub fn cancel_pull(&mut self, receive: ReceiveId) {
        match self.pulled(receive) {
            Some(ReceiveBody { claims: true, .. }) => self.queue_control(receive, PendingControl::RtsAck),
            Some(_) => _ = self.matching.free_receive(receive),
            None => {}
        }
    }

    fn queue_control(&mut self, receive: ReceiveId, control: PendingControl) {
        let receives = self.matching.receives.as_mut();
        if let Some(posted) = receives.get_mut(receive.record as usize) {
            posted.body.control = control;
            self.controls.push(receives, receive.record, |posted| &mut posted.body.link);
        }
    }

    fn pulled(&self, receive: ReceiveId) -> Option<ReceiveBody> {
        let (_, body) = self.matching.receive(receive)?;
        (body.control == PendingControl::Pulling).then_some(*body)
    }

    /// Whether a receive may match an unbuffered RTS of `from`: no older dropped header there can match it.
    pub(super) fn is_clear(&self, receive: ReceiveId, from: PeerId) -> bool {
        let Some(peer) = self.peers.as_ref().get(from.0 as usize) else { return false };
        let Some(posted) = self.matching.receives.as_ref().get(receive.record as usize) else { return false };
        if mutant!("offer_overtakes") {
            return peer.received.held == 0 || posted.needs_request;
        }
        peer.received.held == 0
            || if posted.pattern.source.is_some() {
                !posted.needs_request
            } else {
                posted.number < peer.requests.cursor
            }
    }

    /// Counts a dropped header of a message that a peer holds; `receive` is the first that matches it.
    pub(super) fn count_dropped(&mut self, from: PeerId, receive: Option<ReceiveId>) {
        let posts = self.matching.posts;
        if self.peer(from).is_some_and(|peer| peer.received.held == 0) {
            // All posted receives are clear. Those that sent a match request earlier must not be treated as older.
            if !mutant!("asked_behind") {
                self.matching.clear_needs_request(from);
            }
        }
        let peers = self.peers.as_mut();
        let Some(peer) = peers.get_mut(from.0 as usize) else { return };
        if peer.received.held == 0 {
            peer.requests.cursor = posts;
        }
        peer.received.held = peer.received.held.saturating_add(1);
        peer.requests.probed = 0;
        peer.requests.again |= match peer.requests.own {
            MatchRequestState::Receive(asked) => receive == Some(asked),
            MatchRequestState::Probe(_) => true,
            MatchRequestState::Nothing | MatchRequestState::Reserved => false,
        };
        if !peer.links.is_holding {
            peer.links.is_holding = true;
            self.holding.push(peers, from.0, |peer| &mut peer.links.holding);
        }
        self.activate(from);
    }

    /// Lists the peers that hold messages: match requests may be due.
    pub(super) fn activate_holders(&mut self) {
        let mut all = core::mem::replace(&mut self.holding, crate::list::List::EMPTY);
        while let Some(record) = all.pop(self.peers.as_mut(), |peer| &mut peer.links.holding) {
            let Some(peer) = self.peer(PeerId(record)) else { return };
            if peer.received.held == 0 {
                peer.links.is_holding = false;
                continue;
            }
            self.holding.push(self.peers.as_mut(), record, |peer| &mut peer.links.holding);
            self.activate(PeerId(record));
        }
    }
}
