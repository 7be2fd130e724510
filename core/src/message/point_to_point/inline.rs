//! Short messages that need no record on either side.

use super::header::{Credit, Flags, Kind, Read, Said, Shown};
use super::{Admission, Head, Outcome, Peer, Receive, Status, Storage};
use crate::ids::PeerId;
use crate::list::NONE;
use crate::message::envelope::{Context, Envelope, Tag};

/// A peer whose next message would match a receive that is posted now with the right pattern: see
/// [`Admission::at_once`].
#[derive(Debug)]
pub struct AtOnce<'a> {
    peer: &'a mut Peer,
    /// No send waits for its credit, and no credit header becomes due with one message more.
    is_quiet: bool,
}

impl AtOnce<'_> {
    /// Counts its short message, with this credit, as received. False: nothing was done; call
    /// [`Admission::take_short`].
    #[must_use]
    #[inline(always)]
    pub const fn take(self, credit: Credit) -> bool {
        let Self { peer, is_quiet } = self;
        match peer.says(credit.freed, credit.settled) {
            Some(said) if is_quiet => {
                peer.count_short();
                peer.note(credit.freed, said);
                true
            }
            _ => false,
        }
    }
}

impl<S: Storage> Admission<S> {
    /// As [`send`](Self::send) of a message of at most [`Config::short`](super::Config::short) bytes in standard mode,
    /// if it can be sent at once, which completes it: the returned credit, the context and the tag make up its header.
    /// `None`: nothing was sent.
    #[inline(always)]
    pub fn send_short(&mut self, to: PeerId) -> Option<Credit> {
        let headers = self.config.headers;
        let peer = self.peers.as_mut().get_mut(to.0 as usize)?;
        if peer.is_gone || peer.holds > 0 || peer.out >= headers {
            return None;
        }
        peer.out = peer.out.wrapping_add(1);
        peer.show();
        Some(peer.tell())
    }

    /// Handles a message from [`send_short`](Self::send_short) with a payload of `bytes` bytes. Its [`Outcome`] counts
    /// the [`Head::EAGER`] bytes before the payload.
    #[inline]
    pub fn handle_short(&mut self, from: PeerId, context: Context, tag: Tag, credit: Credit, bytes: u32) -> Outcome {
        let envelope = Envelope { context, source: from, tag };
        if let Some(user) = self.meet_short(&envelope, credit) {
            let status = Status { envelope, bytes: u64::from(bytes) };
            return Outcome::Into { user, start: Head::EAGER, status };
        }
        let said = Said::Eager(Shown { context: context.0, tag: tag.0, message: NONE, bytes: 0, at: 0 });
        let Credit { freed, settled } = credit;
        let read = Read { flags: Flags::empty(), freed, settled, said };
        self.react(from, &read, bytes.saturating_add(Head::EAGER as u32))
    }

    /// As [`handle`](Self::handle) for a message from [`send_short`](Self::send_short), if it matches a receive in the
    /// simplest case: returns the receive's `user` value, the tag, and the length of the payload, which follows
    /// [`Head::EAGER`] bytes. `None`: nothing was done. Returns values instead of an [`Outcome`], which would be read
    /// as a whole right after its parts were written, and stall the processor.
    #[inline(always)]
    pub fn handle_expected(&mut self, from: PeerId, head: &[u8], bytes: u32) -> Option<(u32, Tag, u32)> {
        let (context, tag, credit) = Head::read_short(head)?;
        let payload = bytes.checked_sub(Head::EAGER as u32).filter(|payload| *payload <= self.config.short)?;
        Some((self.meet_short(&Envelope { context, source: from, tag }, credit)?, tag, payload))
    }

    /// Completes the receive that a short message matches. `None`: none matches, or it is not the simplest case.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    fn meet_short(&mut self, envelope: &Envelope, credit: Credit) -> Option<u32> {
        let headers = self.config.headers;
        let peer = self.peers.as_ref().get(envelope.source.0 as usize);
        let peer = peer.filter(|peer| !peer.is_gone && peer.untaken < headers)?;
        // A header with an impossible credit completes no receive.
        let said = peer.says(credit.freed, credit.settled)?;
        let user = self.matching.take_first_receive(envelope, Receive::empty)?;
        self.count_short(envelope.source, credit.freed, said);
        Some(user)
    }

    /// Returns this peer if its next message would match a receive posted now with the right pattern: no receive is
    /// posted, and no message of the peer is unexpected or held. Checked here, before the message arrives, it costs the
    /// message no time.
    #[inline(always)]
    pub fn at_once(&mut self, from: PeerId) -> Option<AtOnce<'_>> {
        let half = self.config.headers.div_ceil(2);
        let peer = self.peers.as_mut().get_mut(from.0 as usize)?;
        if !self.matching.is_idle() || peer.untaken > 0 || peer.held > 0 || peer.is_gone {
            return None;
        }
        let is_quiet = peer.holds == 0 && peer.left.is_empty() && !peer.is_credit_due(half.saturating_sub(1));
        Some(AtOnce { peer, is_quiet })
    }

    /// Counts a message from [`send_short`](Self::send_short) whose receive was never posted: see
    /// [`at_once`](Self::at_once). Returns whether a credit header to its sender is due. `None`: a protocol violation.
    #[inline(always)]
    pub fn take_short(&mut self, from: PeerId, credit: Credit) -> Option<bool> {
        let said = self.peers.as_ref().get(from.0 as usize)?.says(credit.freed, credit.settled)?;
        self.count_short(from, credit.freed, said)
    }

    /// Counts a matched short message with its header's credit. Returns as [`take_short`](Self::take_short).
    #[inline(always)]
    fn count_short(&mut self, from: PeerId, freed: u16, said: (u16, u64)) -> Option<bool> {
        let half = self.config.headers.div_ceil(2);
        let peer = self.peers.as_mut().get_mut(from.0 as usize)?;
        peer.count_short();
        let heard = peer.note(freed, said);
        let is_due = peer.is_credit_due(half);
        if is_due || heard {
            self.activate(from);
        }
        Some(is_due)
    }

    /// Whether [`poll_action`](Self::poll_action) would return nothing.
    #[inline(always)]
    pub const fn is_still(&self) -> bool {
        self.told.is_empty() && self.errands.is_empty() && self.active.is_empty()
    }

    /// As [`take_short`](Self::take_short), for an eager message of any length.
    #[inline]
    pub fn take_eager(&mut self, from: PeerId, head: &[u8], bytes: u32) -> Option<bool> {
        let Read { flags, freed, settled, said: Said::Eager(_) } = Read::of(head)? else { return None };
        if flags.intersects(Flags::SYNCHRONOUS | Flags::OFFERED) {
            return None;
        }
        let is_long = bytes.saturating_sub(Head::EAGER as u32) > self.config.short;
        if let Some(peer) = self.peers.as_mut().get_mut(from.0 as usize) {
            peer.owed = peer.owed.saturating_add(u16::from(is_long));
            peer.is_urged |= flags.contains(Flags::PROMPT);
        }
        self.take_short(from, Credit { freed, settled })
    }

    /// Whether a message to this peer would be sent now, and not be held.
    #[inline]
    pub fn may_leave(&self, to: PeerId) -> bool {
        let peer = self.peers.as_ref().get(to.0 as usize);
        peer.is_some_and(|peer| peer.holds == 0 && peer.out < self.config.headers)
    }

    /// Whether a message to this peer would be the first to be held: it may be worth waiting for credit.
    #[inline]
    pub fn is_out_of_headers(&self, to: PeerId) -> bool {
        let peer = self.peers.as_ref().get(to.0 as usize);
        peer.is_some_and(|peer| !peer.is_gone && peer.holds == 0 && peer.out >= self.config.headers)
    }
}

impl Head {
    /// Parses a [short](Self::short) header. `None`: another header.
    #[inline(always)]
    pub(super) fn read_short(head: &[u8]) -> Option<(Context, Tag, Credit)> {
        let words: &[[u8; 4]; Self::EAGER / 4] = head.as_chunks().0.first_chunk()?;
        let [[kind, flags, low, high], settled, context, tag, message] = *words;
        let is_short = kind == Kind::Eager as u8 && flags == 0 && message == NONE.to_le_bytes();
        let credit = Credit { freed: u16::from_le_bytes([low, high]), settled: u32::from_le_bytes(settled) };
        is_short.then_some((Context(u32::from_le_bytes(context)), Tag(u32::from_le_bytes(tag)), credit))
    }

    /// The context and tag of an eager header whose sender does not wait for the match. `None`: another header.
    #[inline]
    pub fn eager(head: &[u8]) -> Option<(Context, Tag)> {
        let Read { flags, said: Said::Eager(shown), .. } = Read::of(head)? else { return None };
        let is_plain = !flags.intersects(Flags::SYNCHRONOUS | Flags::OFFERED);
        is_plain.then_some((Context(shown.context), Tag(shown.tag)))
    }
}
