//! The pending actions: which header is sent next.

use super::header::{Flags, Head, Kind};
use super::peer::Ask;
use super::receive::{Errand, Tells};
use super::send::{HELD_ANY_TAG, HELD_TAG, LEFT, Stage};
use super::{Action, Admission, Storage, tag_word};
use crate::ids::{PeerId, ReceiveId};
use crate::list::NONE;
use crate::message::envelope::Pattern;

impl<S: Storage> Admission<S> {
    /// Returns the next action. Poll only while a header can be sent, until it returns `None`.
    pub fn poll_action(&mut self) -> Option<Action> {
        if let Some(action) = self.poll_told() {
            return Some(action);
        }
        if let Some(action) = self.poll_errand() {
            return Some(action);
        }
        while let Some(record) = self.active.pop(self.peers.as_mut(), |peer| &mut peer.active_link) {
            let peer = PeerId(record);
            self.peer(peer)?.is_active = false;
            if let Some(action) = self.turn(peer) {
                self.activate(peer);
                return Some(action);
            }
        }
        None
    }

    /// The next header to the sender of an unexpected message.
    fn poll_told(&mut self) -> Option<Action> {
        loop {
            let messages = self.matching.messages.as_mut();
            let record = self.told.pop(messages, |kept| &mut kept.body.link)?;
            let kept = messages.get_mut(record as usize)?;
            let (to, id, message) = (kept.envelope.source, kept.body.id.take(), kept.body.message);
            let tells = core::mem::replace(&mut kept.body.tells, Tells::Nothing);
            if kept.body.is_over
                && let Some(id) = id
            {
                self.free_message(id);
            }
            let kind = match tells {
                Tells::Nothing => continue,
                Tells::Claim => self.settle_verdict(to),
                Tells::Taken => Kind::Taken,
            };
            let head = self.head(to, kind, Flags::empty()).word(message);
            return Some(Action::Head { to, head });
        }
    }

    /// Counts an RTS ACK to this peer as sent.
    fn settle_verdict(&mut self, from: PeerId) -> Kind {
        if let Some(peer) = self.peer(from) {
            peer.verdicts = peer.verdicts.saturating_sub(1);
        }
        self.owe(from, false);
        Kind::Claim
    }

    fn poll_errand(&mut self) -> Option<Action> {
        loop {
            let receives = self.matching.receives.as_mut();
            let record = self.errands.pop(receives, |posted| &mut posted.body.link)?;
            let posted = receives.get_mut(record as usize)?;
            let body = posted.body;
            let receive = ReceiveId { record, number: body.number };
            let to = body.from;
            match body.errand {
                Errand::Nothing | Errand::Pulling => {}
                Errand::Claim { truncated } => {
                    posted.body.errand = if truncated { Errand::Truncated } else { Errand::Pull };
                    self.errands.push_front(receives, record, |posted| &mut posted.body.link);
                    let kind = self.settle_verdict(to);
                    let head = self.head(to, kind, Flags::empty()).word(body.message);
                    return Some(Action::Head { to, head });
                }
                Errand::Pull => {
                    posted.body.errand = Errand::Pulling;
                    let (user, at, bytes) = (body.user, body.at, body.bytes);
                    return Some(Action::Pull { receive, user, from: to, at, bytes });
                }
                Errand::Taken | Errand::Truncated => {
                    let kind = if body.errand == Errand::Taken { Kind::Taken } else { Kind::Truncated };
                    self.matching.free_receive(receive);
                    let head = self.head(to, kind, Flags::empty()).word(body.message);
                    return Some(Action::Head { to, head });
                }
            }
        }
    }

    /// The next action for a peer.
    fn turn(&mut self, to: PeerId) -> Option<Action> {
        if self.peer(to).is_none_or(|peer| peer.is_gone) {
            return None;
        }
        if let Some(user) = self.accepted(to) {
            return Some(Action::Sent { user });
        }
        if let Some(head) = self.decline(to).or_else(|| self.answer(to)).or_else(|| self.ask(to)) {
            return Some(Action::Head { to, head });
        }
        if let Some(action) = self.leave_next(to) {
            return Some(action);
        }
        let half = self.config.headers.div_ceil(2);
        let peer = self.peer(to)?;
        let kind = if core::mem::take(&mut peer.flushes) {
            Kind::Flush
        } else if peer.is_credit_due(half) {
            Kind::Credit
        } else {
            return None;
        };
        Some(Action::Head { to, head: self.head(to, kind, Flags::empty()) })
    }

    /// A send whose payload the peer has stored or received.
    fn accepted(&mut self, to: PeerId) -> Option<u32> {
        loop {
            let peer = self.peers.as_mut().get_mut(to.0 as usize)?;
            let (sends, record) = (self.sends.as_mut(), peer.left.first()?);
            let send = sends.get_mut(record as usize).filter(|send| send.number < peer.settled)?;
            let (user, synchronous) = (send.user, send.synchronous);
            send.stage = Stage::Accepted;
            peer.left.remove(sends, record, LEFT);
            if !synchronous {
                self.free_send(record);
                return Some(user);
            }
        }
    }

    /// Declines the message that was found.
    fn decline(&mut self, to: PeerId) -> Option<Head> {
        let peer = self.peer(to)?;
        core::mem::take(&mut peer.declines).then(|| self.head(to, Kind::Decline, Flags::empty()))
    }

    /// Answers the peer's match request.
    fn answer(&mut self, to: PeerId) -> Option<Head> {
        let peer = self.peer(to)?;
        let ((context, tag), settled) = (peer.wanted.take()?, peer.settled);
        let class = if tag.is_some() { HELD_TAG } else { HELD_ANY_TAG };
        let first = self.first_held(class, to, context, tag);
        // The peer handles a message that it had not seen by an RTS ACK, or repeats its request.
        let seen =
            first.filter(|first| self.sends.as_ref().get(*first as usize).is_some_and(|send| send.number < settled));
        let Some(record) = seen else { return Some(self.head(to, Kind::Missing, Flags::empty())) };
        self.peer(to)?.promised = record;
        Some(self.describe(record, Kind::Found, Flags::empty()))
    }

    /// Builds a match request to this peer, for the first receive, or for the probe, that has not sent it one.
    fn ask(&mut self, of: PeerId) -> Option<Head> {
        let peer = self.peers.as_ref().get(of.0 as usize)?;
        if peer.held == 0 || peer.verdicts > 0 || !matches!(peer.ask, Ask::Nothing | Ask::Promised) {
            return None;
        }
        let (cursor, probed, is_promised) = (peer.cursor, peer.probed, peer.ask == Ask::Promised);
        let receive = self.matching.first_unasked(of, cursor);
        if is_promised {
            receive?;
            self.end_probe();
            return self.decline(of);
        }
        let (ask, pattern) = match (receive, self.probe) {
            (Some(receive), _) => (Ask::Receive(receive), *self.matching.receive(receive)?.0),
            (None, Some(probe)) if probed != probe.number && probe.pattern.source.is_none_or(|source| source == of) => {
                (Ask::Probe(probe.number), probe.pattern)
            }
            _ => return None,
        };
        let peer = self.peer(of)?;
        peer.ask = ask;
        peer.again = false;
        Some(self.want(of, &pattern))
    }

    fn want(&mut self, of: PeerId, pattern: &Pattern) -> Head {
        let flags = if pattern.tag.is_none() { Flags::ANY_TAG } else { Flags::empty() };
        self.head(of, Kind::Want, flags).word(pattern.context.0).word(tag_word(pattern.tag))
    }
}

const _: () = assert!(NONE == u32::MAX, "an eager message without a record says so");
