//! Short messages that neither side keeps anything of.

use super::header::{Credit, Flags, Kind, Read, Said, Shown};
use super::{Admission, Head, Outcome, Peer, Receive, Status, Storage};
use crate::ids::PeerId;
use crate::list::NONE;
use crate::message::envelope::{Context, Envelope, Tag};

/// A peer whose next message would meet a receive that were posted now and matches it: see [`Admission::at_once`].
#[derive(Debug)]
pub struct AtOnce<'a> {
    peer: &'a mut Peer,
    /// Nothing of ours waits for what it says, and it need not be told of one message more.
    is_quiet: bool,
}

impl AtOnce<'_> {
    /// Its short message has met that receive, with this credit. False: nothing was done, and there is more to it:
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
    /// As [`send`](Self::send) of a message of at most [`Config::short`](super::Config::short) bytes in standard mode, if it may
    /// leave at once and be done by that: then this, its context and its tag are all that its head has to say. `None`: nothing was
    /// sent.
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

    /// Handles what [`send_short`](Self::send_short) sent, with a payload of `bytes` bytes. [`Outcome`]s count [`Head::EAGER`] bytes
    /// before it.
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

    /// As [`handle`](Self::handle) of what [`send_short`](Self::send_short) sent, if it meets its receive by the shortest way: what
    /// that was given as `user`, the tag, and the bytes of the payload, which [`Head::EAGER`] bytes precede. `None`: nothing was done.
    /// Told by values, and not by an [`Outcome`]: read together just after its parts were written, that stalls the processor.
    #[inline(always)]
    pub fn handle_expected(&mut self, from: PeerId, head: &[u8], bytes: u32) -> Option<(u32, Tag, u32)> {
        let (context, tag, credit) = Head::read_short(head)?;
        let payload = bytes.checked_sub(Head::EAGER as u32).filter(|payload| *payload <= self.config.short)?;
        Some((self.meet_short(&Envelope { context, source: from, tag }, credit)?, tag, payload))
    }

    /// The receive that a short message meets is done. `None`: there is none, or it takes more than this.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    fn meet_short(&mut self, envelope: &Envelope, credit: Credit) -> Option<u32> {
        let headers = self.config.headers;
        let peer = self.peers.as_ref().get(envelope.source.0 as usize);
        let peer = peer.filter(|peer| !peer.is_gone && peer.untaken < headers)?;
        // Whoever says what cannot be takes no receive along.
        let said = peer.says(credit.freed, credit.settled)?;
        let user = self.matching.take_first_receive(envelope, Receive::empty)?;
        self.count_short(envelope.source, credit.freed, said);
        Some(user)
    }

    /// This peer, if its next message would meet a receive that were posted now and matches it: no receive waits, and nothing of it is
    /// kept or forgotten. What is found out here takes no time when the message comes.
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

    /// What [`send_short`](Self::send_short) sent has met its receive, which was not posted: see
    /// [`at_once`](Self::at_once). Returns whether its sender is to be told something now. `None`: no rank of ours
    /// says that.
    #[inline(always)]
    pub fn take_short(&mut self, from: PeerId, credit: Credit) -> Option<bool> {
        let said = self.peers.as_ref().get(from.0 as usize)?.says(credit.freed, credit.settled)?;
        self.count_short(from, credit.freed, said)
    }

    /// A short message has met its receive, and its head said so much. Returns as [`take_short`](Self::take_short).
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

    /// Whether [`poll_action`](Self::poll_action) has nothing to look at.
    #[inline(always)]
    pub const fn is_still(&self) -> bool {
        self.told.is_empty() && self.errands.is_empty() && self.active.is_empty()
    }

    /// Takes an eager message that has met its receive, which was not posted, like [`take_short`](Self::take_short).
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

    /// Whether a message to this peer would leave now, and not be held.
    #[inline]
    pub fn may_leave(&self, to: PeerId) -> bool {
        let peer = self.peers.as_ref().get(to.0 as usize);
        peer.is_some_and(|peer| peer.holds == 0 && peer.out < self.config.headers)
    }

    /// Whether a message to this peer would be held now, and none is: it may be worth waiting until it may leave.
    #[inline]
    pub fn is_out_of_headers(&self, to: PeerId) -> bool {
        let peer = self.peers.as_ref().get(to.0 as usize);
        peer.is_some_and(|peer| !peer.is_gone && peer.holds == 0 && peer.out >= self.config.headers)
    }
}

impl Head {
    /// What a [short](Self::short) head says. `None`: another one.
    #[inline(always)]
    pub(super) fn read_short(head: &[u8]) -> Option<(Context, Tag, Credit)> {
        let words: &[[u8; 4]; Self::EAGER / 4] = head.as_chunks().0.first_chunk()?;
        let [[kind, flags, low, high], settled, context, tag, message] = *words;
        let is_short = kind == Kind::Eager as u8 && flags == 0 && message == NONE.to_le_bytes();
        let credit = Credit { freed: u16::from_le_bytes([low, high]), settled: u32::from_le_bytes(settled) };
        is_short.then_some((Context(u32::from_le_bytes(context)), Tag(u32::from_le_bytes(tag)), credit))
    }

    /// What a head says of a message with its payload that its sender does not wait for: whose it is. `None`: another one.
    #[inline]
    pub fn eager(head: &[u8]) -> Option<(Context, Tag)> {
        let Read { flags, said: Said::Eager(shown), .. } = Read::of(head)? else { return None };
        let is_plain = !flags.intersects(Flags::SYNCHRONOUS | Flags::OFFERED);
        is_plain.then_some((Context(shown.context), Tag(shown.tag)))
    }
}
