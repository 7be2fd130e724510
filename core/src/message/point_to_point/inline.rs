//! Short messages that need no record on either side.

use super::header::{Body, Descriptor, Flags, Header, HeaderCredit, MessageKind};
use super::{MessageHeader, MessagePeer, MessageStorage, Outcome, PointToPoint, ReceiveBody, Status};
use crate::ids::PeerId;
use crate::list::NONE;
use crate::message::envelope::{Context, Envelope, Tag};

/// A peer whose next message would match a receive that is posted now with the right pattern: see
/// [`PointToPoint::inline_receive`].
#[derive(Debug)]
pub struct InlineReceive<'a> {
    peer: &'a mut MessagePeer,
    /// No send waits for its credit, and no credit header becomes due with one message more.
    is_quiet: bool,
}

impl InlineReceive<'_> {
    /// Counts its short message, with this credit, as received. False: nothing was done; call
    /// [`PointToPoint::take_inline`].
    #[must_use]
    #[inline(always)]
    pub const fn take(self, credit: HeaderCredit) -> bool {
        let Self { peer, is_quiet } = self;
        match peer.sent.credit_delta(credit.freed, credit.settled) {
            Some(said) if is_quiet => {
                peer.received.count_inline();
                peer.sent.record_credit(credit.freed, said);
                true
            }
            _ => false,
        }
    }
}

impl<S: MessageStorage> PointToPoint<S> {
    /// As [`send`](Self::send) of a message of at most [`Config::short`](super::Config::short) bytes in standard mode,
    /// if it can be sent at once, which completes it: the returned credit, the context and the tag make up its header.
    /// `None`: nothing was sent.
    #[inline(always)]
    pub fn send_inline(&mut self, to: PeerId) -> Option<HeaderCredit> {
        if cfg!(without = "inline_messages") {
            return None;
        }
        let headers = self.config.headers;
        let peer = self.peers.as_mut().get_mut(to.0 as usize)?;
        if peer.is_failed || peer.sent.held > 0 || peer.sent.outstanding >= headers {
            return None;
        }
        peer.sent.outstanding = peer.sent.outstanding.wrapping_add(1);
        peer.sent.count_one();
        Some(peer.received.take_credit())
    }

    /// Handles a message from [`send_inline`](Self::send_inline) with a payload of `bytes` bytes. Its [`Outcome`]
    /// counts the [`MessageHeader::EAGER`] bytes before the payload.
    #[inline]
    pub fn handle_inline(
        &mut self,
        from: PeerId,
        context: Context,
        tag: Tag,
        credit: HeaderCredit,
        bytes: u32,
    ) -> Outcome {
        let envelope = Envelope { context, source: from, tag };
        if let Some(user) = self.match_inline(&envelope, credit) {
            let status = Status { envelope, bytes: u64::from(bytes) };
            return Outcome::Into { user, start: MessageHeader::EAGER, status };
        }
        let said = Body::Eager(Descriptor { context: context.0, tag: tag.0, message: NONE, bytes: 0, at: 0 });
        let HeaderCredit { freed, settled } = credit;
        let read = Header { flags: Flags::empty(), freed, settled, body: said };
        self.handle_parsed(from, &read, bytes.saturating_add(MessageHeader::EAGER as u32))
    }

    /// As [`handle`](Self::handle) for a message from [`send_inline`](Self::send_inline), if it matches a receive in
    /// the simplest case: returns the receive's `user` value, the tag, and the length of the payload, which follows
    /// [`MessageHeader::EAGER`] bytes. `None`: nothing was done. Returns values instead of an [`Outcome`], which would
    /// be read as a whole right after its parts were written, and stall the processor.
    #[inline(always)]
    pub fn handle_expected(&mut self, from: PeerId, head: &[u8], bytes: u32) -> Option<(u32, Tag, u32)> {
        let (context, tag, credit) = MessageHeader::parse_inline(head)?;
        let payload = bytes.checked_sub(MessageHeader::EAGER as u32).filter(|payload| *payload <= self.config.short)?;
        Some((self.match_inline(&Envelope { context, source: from, tag }, credit)?, tag, payload))
    }

    /// Completes the receive that a short message matches. `None`: none matches, or it is not the simplest case.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    fn match_inline(&mut self, envelope: &Envelope, credit: HeaderCredit) -> Option<u32> {
        let headers = self.config.headers;
        let peer = self.peers.as_ref().get(envelope.source.0 as usize);
        let peer = peer.filter(|peer| !peer.is_failed && peer.received.stored < headers)?;
        // A header with an impossible credit completes no receive.
        let said = peer.sent.credit_delta(credit.freed, credit.settled)?;
        let user = self.matching.take_first_receive(envelope, ReceiveBody::empty)?;
        self.count_inline(envelope.source, credit.freed, said);
        Some(user)
    }

    /// Returns this peer if its next message would match a receive posted now with the right pattern: no receive is
    /// posted, and no message of the peer is unexpected or held. Checked here, before the message arrives, it costs the
    /// message no time.
    #[inline(always)]
    pub fn inline_receive(&mut self, from: PeerId) -> Option<InlineReceive<'_>> {
        let half = self.config.headers.div_ceil(2);
        let peer = self.peers.as_mut().get_mut(from.0 as usize)?;
        if !self.matching.is_idle() || peer.received.stored > 0 || peer.received.held > 0 || peer.is_failed {
            return None;
        }
        let is_quiet = peer.sent.held == 0
            && peer.sent.eager_in_flight.is_empty()
            && !peer.received.is_credit_due(half.saturating_sub(1));
        Some(InlineReceive { peer, is_quiet })
    }

    /// Counts a message from [`send_inline`](Self::send_inline) whose receive was never posted: see
    /// [`inline_receive`](Self::inline_receive). Returns whether a credit header to its sender is due. `None`: a
    /// protocol violation.
    #[inline(always)]
    pub fn take_inline(&mut self, from: PeerId, credit: HeaderCredit) -> Option<bool> {
        let said = self.peers.as_ref().get(from.0 as usize)?.sent.credit_delta(credit.freed, credit.settled)?;
        self.count_inline(from, credit.freed, said)
    }

    /// Counts a matched short message with its header's credit. Returns as [`take_inline`](Self::take_inline).
    #[inline(always)]
    fn count_inline(&mut self, from: PeerId, freed: u16, said: (u16, u64)) -> Option<bool> {
        let half = self.config.headers.div_ceil(2);
        let peer = self.peers.as_mut().get_mut(from.0 as usize)?;
        peer.received.count_inline();
        let may_progress = peer.sent.record_credit(freed, said);
        let is_due = peer.received.is_credit_due(half);
        if is_due || may_progress {
            self.activate(from);
        }
        Some(is_due)
    }

    /// Whether [`poll_action`](Self::poll_action) would return nothing.
    #[inline(always)]
    pub const fn has_no_action(&self) -> bool {
        self.replies.is_empty() && self.controls.is_empty() && self.active.is_empty()
    }

    /// As [`take_inline`](Self::take_inline), for an eager message of any length.
    #[inline]
    pub fn take_eager(&mut self, from: PeerId, head: &[u8], bytes: u32) -> Option<bool> {
        let Header { flags, freed, settled, body: Body::Eager(_) } = Header::parse(head)? else { return None };
        if flags.intersects(Flags::SYNCHRONOUS | Flags::OFFERED) {
            return None;
        }
        let is_long = bytes.saturating_sub(MessageHeader::EAGER as u32) > self.config.short;
        if let Some(peer) = self.peers.as_mut().get_mut(from.0 as usize) {
            peer.received.owed = peer.received.owed.saturating_add(u16::from(is_long));
            peer.received.is_report_requested |= flags.contains(Flags::PROMPT);
        }
        self.take_inline(from, HeaderCredit { freed, settled })
    }

    /// Whether a message to this peer would be sent now, and not be held.
    #[inline]
    pub fn can_send(&self, to: PeerId) -> bool {
        let peer = self.peers.as_ref().get(to.0 as usize);
        peer.is_some_and(|peer| peer.sent.held == 0 && peer.sent.outstanding < self.config.headers)
    }

    /// Whether a message to this peer would be the first to be held: it may be worth waiting for credit.
    #[inline]
    pub fn is_out_of_credit(&self, to: PeerId) -> bool {
        let peer = self.peers.as_ref().get(to.0 as usize);
        peer.is_some_and(|peer| !peer.is_failed && peer.sent.held == 0 && peer.sent.outstanding >= self.config.headers)
    }
}

impl MessageHeader {
    /// Parses a [short](Self::inline) header. `None`: another header.
    #[inline(always)]
    pub(super) fn parse_inline(head: &[u8]) -> Option<(Context, Tag, HeaderCredit)> {
        let words: &[[u8; 4]; Self::EAGER / 4] = head.as_chunks().0.first_chunk()?;
        let [[kind, flags, low, high], settled, context, tag, message] = *words;
        let is_short = kind == MessageKind::Eager as u8 && flags == 0 && message == NONE.to_le_bytes();
        let credit = HeaderCredit { freed: u16::from_le_bytes([low, high]), settled: u32::from_le_bytes(settled) };
        is_short.then_some((Context(u32::from_le_bytes(context)), Tag(u32::from_le_bytes(tag)), credit))
    }

    /// The context and tag of an eager header whose sender does not wait for the match. `None`: another header.
    #[inline]
    pub fn parse_eager(head: &[u8]) -> Option<(Context, Tag)> {
        let Header { flags, body: Body::Eager(shown), .. } = Header::parse(head)? else { return None };
        let is_plain = !flags.intersects(Flags::SYNCHRONOUS | Flags::OFFERED);
        is_plain.then_some((Context(shown.context), Tag(shown.tag)))
    }
}
