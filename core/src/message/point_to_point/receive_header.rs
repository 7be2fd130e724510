//! Handling of received headers.

use super::header::{Flags, Head, Read, Said, Shown};
use super::receive::{Errand, Message, Tells};
use super::{Admission, Outcome, Place, Status, Storage};
use crate::ids::{PeerId, ReceiveId};
use crate::list::NONE;
use crate::message::envelope::{Context, Envelope, Tag};

impl<S: Storage> Admission<S> {
    /// Handles a message of `bytes` bytes, header and payload. `head` are its first bytes: at least the whole header.
    /// Expected O(1).
    #[inline]
    pub fn handle(&mut self, from: PeerId, head: &[u8], bytes: u32) -> Outcome {
        if let Some((context, tag, credit)) = Head::read_short(head)
            && let Some(payload) = bytes.checked_sub(Head::EAGER as u32)
            && payload <= self.config.short
        {
            return self.handle_short(from, context, tag, credit, payload);
        }
        match Read::of(head) {
            Some(read) => self.react(from, &read, bytes),
            None => Outcome::Nonsense,
        }
    }

    #[inline]
    pub(super) fn react(&mut self, from: PeerId, read: &Read, bytes: u32) -> Outcome {
        if self.peer(from).is_none_or(|peer| peer.is_gone) {
            return Outcome::Nonsense;
        }
        let flags = read.flags;
        let outcome = match read.said {
            // The outcome is written once, in place: a copy would stall until the processor has written all of its
            // parts.
            Said::Eager(ref shown) if self.hear(from, read).is_some() => {
                return self.arrive_eager(from, shown, flags, bytes);
            }
            Said::Eager(_) => None,
            // A header with an impossible credit has no other effect.
            _ if self.peer(from).is_none_or(|peer| peer.says(read.freed, read.settled).is_none()) => None,
            Said::Announce(shown) => self.arrive_announced(from, &shown, flags),
            Said::Offer(shown) => self.arrive_offer(from, &shown),
            Said::Credit => Some(Outcome::Nothing),
            Said::Grant { message, placement, key } => {
                self.hear_grant(from, message, placement, key, flags.contains(Flags::MORE))
            }
            Said::Taken(message) => self.hear_taken(from, message),
            Said::Truncated(message) => self.hear_truncated(from, message),
            Said::Flush => {
                self.owe(from, true);
                Some(Outcome::Nothing)
            }
            Said::Claim(message) => self.hear_claim(from, message),
            Said::Want { context, tag } => {
                self.hear_want(from, Context(context), super::tag_of(tag, flags.contains(Flags::ANY_TAG)))
            }
            Said::Found(shown) => self.hear_found(from, &shown, flags),
            Said::Missing => self.hear_missing(from),
            Said::Decline => self.hear_decline(from),
        };
        // RTS ACKs are handled before the credit that settles the messages up to them.
        outcome.filter(|_| self.hear(from, read).is_some()).unwrap_or(Outcome::Nonsense)
    }

    /// Handles the credit of a header. `None`: it is not possible.
    fn hear(&mut self, from: PeerId, read: &Read) -> Option<()> {
        if self.peer(from)?.hear(read.freed, read.settled)? {
            self.activate(from);
        }
        Some(())
    }

    /// Counts a message header. `None`: it exceeds the peer's credit.
    fn count_shown(&mut self, from: PeerId, flags: Flags) -> Option<()> {
        let headers = self.config.headers;
        let peer = self.peer(from).filter(|peer| peer.untaken < headers)?;
        if flags.contains(Flags::OFFERED) {
            peer.held = peer.held.checked_sub(1)?;
        }
        peer.seen = peer.seen.wrapping_add(1);
        Some(())
    }

    fn arrive_eager(&mut self, from: PeerId, shown: &Shown, flags: Flags, bytes: u32) -> Outcome {
        let Some(payload) = bytes.checked_sub(Head::EAGER as u32) else { return Outcome::Nonsense };
        let (is_short, synchronous) = (payload <= self.config.short, flags.contains(Flags::SYNCHRONOUS));
        let is_known = shown.message != NONE;
        if !is_known && (!is_short || synchronous) || self.count_shown(from, flags).is_none() {
            return Outcome::Nonsense;
        }
        let status = || {
            let envelope = Envelope { context: Context(shown.context), source: from, tag: Tag(shown.tag) };
            Status { envelope, bytes: u64::from(payload) }
        };
        if !is_short && let Some(peer) = self.peer(from) {
            peer.owed = peer.owed.saturating_add(1);
        }
        let urged = flags.contains(Flags::PROMPT);
        let Some(receive) = self.matching.first_receive(&status().envelope) else {
            let Some(place) = self.keep_eager(&status(), shown.message, synchronous) else { return Outcome::Nonsense };
            self.owe(from, urged);
            return match place {
                Some(place) => Outcome::Keep { place, start: Head::EAGER },
                None => Outcome::Nothing,
            };
        };
        let Some((_, body)) = self.matching.receive(receive) else { return Outcome::Nonsense };
        let user = body.user;
        self.matching.unpost(receive);
        if let Some(peer) = self.peer(from) {
            peer.freed = peer.freed.wrapping_add(1);
        }
        if synchronous {
            self.start(receive, from, shown.message, (0, None), Errand::Taken);
        } else {
            self.matching.free_receive(receive);
        }
        self.owe(from, urged);
        Outcome::Into { user, start: Head::EAGER, status: status() }
    }

    fn arrive_announced(&mut self, from: PeerId, shown: &Shown, flags: Flags) -> Option<Outcome> {
        self.count_shown(from, flags)?;
        let status = self.status(from, shown);
        let Some(receive) = self.matching.first_receive(&status.envelope) else {
            let (message, bytes, at) = (shown.message, shown.bytes, Some(shown.at));
            let synchronous = flags.contains(Flags::SYNCHRONOUS);
            let body = Message { message, bytes, at, synchronous, ..Message::default() };
            self.matching.keep(status.envelope, body).ok()?;
            let peer = self.peer(from)?;
            peer.untaken = peer.untaken.wrapping_add(1);
            return Some(Outcome::Nothing);
        };
        let peer = self.peer(from)?;
        peer.freed = peer.freed.wrapping_add(1);
        self.owe(from, false);
        self.join(receive, &status, shown, false)
    }

    fn arrive_offer(&mut self, from: PeerId, shown: &Shown) -> Option<Outcome> {
        let peer = self.peer(from)?;
        peer.seen = peer.seen.wrapping_add(1);
        let status = self.status(from, shown);
        let receive = self.matching.first_receive(&status.envelope);
        match receive.filter(|receive| self.is_clear(*receive, from)) {
            Some(receive) => self.join(receive, &status, shown, true),
            None => {
                self.forget(from, receive);
                Some(Outcome::Nothing)
            }
        }
    }

    /// Matches a posted receive with a message whose payload is at its sender, and sends an RTS ACK if that was an
    /// unbuffered RTS.
    pub(super) fn join(&mut self, receive: ReceiveId, status: &Status, shown: &Shown, claims: bool) -> Option<Outcome> {
        let (_, body) = self.matching.receive(receive)?;
        let (user, truncated, from) = (body.user, shown.bytes > body.room, status.envelope.source);
        self.matching.unpost(receive);
        let errand = match (claims, truncated) {
            (true, _) => Errand::Claim { truncated },
            (false, true) => Errand::Truncated,
            (false, false) => Errand::Pull,
        };
        if claims {
            let peer = self.peer(from)?;
            peer.verdicts = peer.verdicts.wrapping_add(1);
        }
        self.start(receive, from, shown.message, (shown.bytes, Some(shown.at)), errand);
        let status = *status;
        Some(if truncated { Outcome::Truncated { user, status } } else { Outcome::Coming { user, status } })
    }

    /// Queues an unexpected eager message, and returns where its payload is stored, if there is room.
    fn keep_eager(&mut self, status: &Status, message: u32, synchronous: bool) -> Option<Option<Place>> {
        let from = status.envelope.source;
        let body = Message { message, bytes: status.bytes, synchronous, ..Message::default() };
        let id = self.matching.keep(status.envelope, body).ok()?;
        let place = if status.bytes <= u64::from(self.config.short) {
            Some(Place::Short(id.record))
        } else if status.bytes <= u64::from(self.config.slot) {
            self.free_slots.pop(self.slots.as_mut(), |slot| slot).map(Place::Slot)
        } else {
            None
        };
        let peer = self.peer(from)?;
        peer.untaken = peer.untaken.wrapping_add(1);
        if place.is_none() {
            peer.owed = peer.owed.wrapping_sub(1);
            peer.verdicts = peer.verdicts.wrapping_add(1);
            self.tell(id, Tells::Claim);
        }
        self.matching.messages.as_mut().get_mut(id.record as usize)?.body.place = place;
        Some(place)
    }

    pub(super) fn status(&self, from: PeerId, shown: &Shown) -> Status {
        let envelope = Envelope { context: Context(shown.context), source: from, tag: Tag(shown.tag) };
        Status { envelope, bytes: shown.bytes }
    }
}
