//! Handling of received headers.

use super::header::{Body, Descriptor, Flags, Header, MessageHeader};
use super::receive::{MessageBody, PendingControl, Reply};
use super::{MessageStorage, Outcome, PayloadStore, PointToPoint, Status};
use crate::ids::{PeerId, ReceiveId};
use crate::list::NONE;
use crate::message::envelope::{Context, Envelope, Tag};

impl<S: MessageStorage> PointToPoint<S> {
    /// Handles a message of `bytes` bytes, header and payload. `head` are its first bytes: at least the whole header.
    /// Expected O(1).
    #[inline]
    pub fn handle(&mut self, from: PeerId, head: &[u8], bytes: u32) -> Outcome {
        if let Some((context, tag, credit)) = MessageHeader::parse_inline(head)
            && let Some(payload) = bytes.checked_sub(MessageHeader::EAGER as u32)
            && payload <= self.config.short
        {
            return self.handle_inline(from, context, tag, credit, payload);
        }
        match Header::parse(head) {
            Some(read) => self.handle_parsed(from, &read, bytes),
            None => Outcome::ProtocolViolation,
        }
    }

    #[inline]
    pub(super) fn handle_parsed(&mut self, from: PeerId, read: &Header, bytes: u32) -> Outcome {
        if self.peer(from).is_none_or(|peer| peer.is_failed) {
            return Outcome::ProtocolViolation;
        }
        let flags = read.flags;
        let outcome = match read.body {
            // The outcome is written once, in place: a copy would stall until the processor has written all of its
            // parts.
            Body::Eager(ref shown) if self.apply_credit(from, read).is_some() => {
                return self.handle_eager(from, shown, flags, bytes);
            }
            Body::Eager(_) => None,
            // A header with an impossible credit has no other effect.
            _ if self.peer(from).is_none_or(|peer| peer.sent.credit_delta(read.freed, read.settled).is_none()) => None,
            Body::Rts(shown) => self.handle_rts(from, &shown, flags),
            Body::UnbufferedRts(shown) => self.handle_unbuffered_rts(from, &shown),
            Body::Credit => Some(Outcome::Nothing),
            Body::Cts { message, placement, key } => {
                self.handle_cts(from, message, placement, key, flags.contains(Flags::MORE))
            }
            Body::Fin(message) => self.handle_fin(from, message),
            Body::Truncated(message) => self.handle_truncated(from, message),
            Body::Flush => {
                self.schedule_credit(from, true);
                Some(Outcome::Nothing)
            }
            Body::RtsAck(message) => self.handle_rts_ack(from, message),
            Body::MatchRequest { context, tag } => {
                self.handle_match_request(from, Context(context), super::tag_of(tag, flags.contains(Flags::ANY_TAG)))
            }
            Body::MatchFound(shown) => self.handle_match_found(from, &shown, flags),
            Body::NoMatch => self.handle_no_match(from),
            Body::Decline => self.handle_decline(from),
            Body::Cancel { number, message } => self.handle_cancel(from, number, message),
            Body::CancelReply => self.handle_cancel_reply(from, flags.contains(Flags::REMOVED)),
            Body::Withdrawn => self.handle_withdrawn(from),
        };
        // Claims are handled before the credit that settles the messages up to them.
        outcome.filter(|_| self.apply_credit(from, read).is_some()).unwrap_or(Outcome::ProtocolViolation)
    }

    /// Handles the credit of a header. `None`: it is not possible.
    fn apply_credit(&mut self, from: PeerId, read: &Header) -> Option<()> {
        if self.peer(from)?.sent.apply_credit(read.freed, read.settled)? {
            self.activate(from);
        }
        Some(())
    }

    /// Counts a message header. `None`: it exceeds the peer's credit.
    fn count_header(&mut self, from: PeerId, flags: Flags) -> Option<()> {
        let headers = self.config.headers;
        let peer = self.peer(from).filter(|peer| peer.received.stored < headers)?;
        if flags.contains(Flags::OFFERED) {
            peer.received.held = peer.received.held.checked_sub(1)?;
        }
        peer.received.count = peer.received.count.wrapping_add(1);
        Some(())
    }

    /// The number of the latest message header of a peer.
    fn latest_number(&self, from: PeerId) -> u32 {
        self.peers.as_ref().get(from.0 as usize).map_or(0, |peer| peer.received.count.wrapping_sub(1))
    }

    fn handle_eager(&mut self, from: PeerId, shown: &Descriptor, flags: Flags, bytes: u32) -> Outcome {
        let Some(payload) = bytes.checked_sub(MessageHeader::EAGER as u32) else { return Outcome::ProtocolViolation };
        let (is_short, synchronous) = (payload <= self.config.short, flags.contains(Flags::SYNCHRONOUS));
        let is_known = shown.message != NONE;
        if !is_known && (!is_short || synchronous) || self.count_header(from, flags).is_none() {
            return Outcome::ProtocolViolation;
        }
        let status = || {
            let envelope = Envelope { context: Context(shown.context), source: from, tag: Tag(shown.tag) };
            Status { envelope, bytes: u64::from(payload) }
        };
        if !is_short && let Some(peer) = self.peer(from) {
            peer.received.owed = peer.received.owed.saturating_add(1);
        }
        let urged = flags.contains(Flags::PROMPT);
        let Some(receive) = self.matching.first_receive(&status().envelope) else {
            let Some(place) = self.store_eager(&status(), shown.message, synchronous) else {
                return Outcome::ProtocolViolation;
            };
            self.schedule_credit(from, urged);
            return match place {
                Some(place) => Outcome::Store { place, start: MessageHeader::EAGER },
                None => Outcome::Nothing,
            };
        };
        let Some((_, body)) = self.matching.receive(receive) else { return Outcome::ProtocolViolation };
        let user = body.user;
        self.matching.unpost(receive);
        if let Some(peer) = self.peer(from) {
            peer.received.freed = peer.received.freed.wrapping_add(1);
        }
        if synchronous {
            self.begin_transfer(receive, from, shown.message, (0, None), PendingControl::Fin);
        } else {
            self.matching.free_receive(receive);
        }
        self.schedule_credit(from, urged);
        Outcome::Into { user, start: MessageHeader::EAGER, status: status() }
    }

    fn handle_rts(&mut self, from: PeerId, shown: &Descriptor, flags: Flags) -> Option<Outcome> {
        self.count_header(from, flags)?;
        let status = self.status(from, shown);
        let Some(receive) = self.matching.first_receive(&status.envelope) else {
            let (message, bytes, at) = (shown.message, shown.bytes, Some(shown.at));
            let synchronous = flags.contains(Flags::SYNCHRONOUS);
            let number = self.latest_number(from);
            let body = MessageBody { message, number, bytes, at, synchronous, ..MessageBody::default() };
            self.matching.queue_unexpected(status.envelope, body).ok()?;
            let peer = self.peer(from)?;
            peer.received.stored = peer.received.stored.wrapping_add(1);
            return Some(Outcome::Nothing);
        };
        let peer = self.peer(from)?;
        peer.received.freed = peer.received.freed.wrapping_add(1);
        self.schedule_credit(from, false);
        self.match_rts(receive, &status, shown, false)
    }

    fn handle_unbuffered_rts(&mut self, from: PeerId, shown: &Descriptor) -> Option<Outcome> {
        let peer = self.peer(from)?;
        peer.received.count = peer.received.count.wrapping_add(1);
        let status = self.status(from, shown);
        let receive = self.matching.first_receive(&status.envelope);
        match receive.filter(|receive| self.is_clear(*receive, from)) {
            Some(receive) => self.match_rts(receive, &status, shown, true),
            None => {
                self.count_dropped(from, receive);
                Some(Outcome::Nothing)
            }
        }
    }

    /// Matches a posted receive with a message whose payload is at its sender; the next header about it claims it if
    /// its sender holds it.
    pub(super) fn match_rts(
        &mut self,
        receive: ReceiveId,
        status: &Status,
        shown: &Descriptor,
        claims: bool,
    ) -> Option<Outcome> {
        let (_, body) = self.matching.receive(receive)?;
        let (user, truncated, from) = (body.user, shown.bytes > body.room, status.envelope.source);
        self.matching.unpost(receive);
        let control = if truncated { PendingControl::Truncated } else { PendingControl::Pull };
        if claims {
            let peer = self.peer(from)?;
            peer.received.pending_claims = peer.received.pending_claims.wrapping_add(1);
        }
        self.begin_transfer(receive, from, shown.message, (shown.bytes, Some(shown.at)), control);
        self.matching.receives.as_mut().get_mut(receive.record as usize)?.body.claims = claims;
        let status = *status;
        Some(if truncated { Outcome::Truncated { user, status } } else { Outcome::Pending { user, status } })
    }

    /// Queues an unexpected eager message, and returns where its payload is stored, if there is room.
    fn store_eager(&mut self, status: &Status, message: u32, synchronous: bool) -> Option<Option<PayloadStore>> {
        let from = status.envelope.source;
        let number = self.latest_number(from);
        let body = MessageBody { message, number, bytes: status.bytes, synchronous, ..MessageBody::default() };
        let id = self.matching.queue_unexpected(status.envelope, body).ok()?;
        let place = if status.bytes <= u64::from(self.config.short) {
            Some(PayloadStore::Short(id.record))
        } else if status.bytes <= u64::from(self.config.slot) {
            self.slots.take().map(PayloadStore::Slot)
        } else {
            None
        };
        let peer = self.peer(from)?;
        peer.received.stored = peer.received.stored.wrapping_add(1);
        if place.is_none() {
            peer.received.owed = peer.received.owed.wrapping_sub(1);
            peer.received.pending_claims = peer.received.pending_claims.wrapping_add(1);
            self.queue_reply(id, Reply::RtsAck);
        }
        self.matching.messages.as_mut().get_mut(id.record as usize)?.body.place = place;
        Some(place)
    }

    pub(super) fn status(&self, from: PeerId, shown: &Descriptor) -> Status {
        let envelope = Envelope { context: Context(shown.context), source: from, tag: Tag(shown.tag) };
        Status { envelope, bytes: shown.bytes }
    }
}
