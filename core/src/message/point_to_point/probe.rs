//! Probes: whether a message is there, without receiving it.

use super::header::Shown;
use super::peer::Ask;
use super::receive::{Message, Tells};
use super::{Admission, Outcome, Status, Storage};
use crate::ids::{MessageId, PeerId};
use crate::message::envelope::Pattern;

/// The last probe that found nothing here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Probe {
    pub(super) pattern: Pattern,
    pub(super) number: u32,
    found: Option<Promise>,
}

/// A message that its sender holds until the probe is asked again, or a receive asks it for another one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Promise {
    status: Status,
    message: u32,
    at: Option<u64>,
    synchronous: bool,
}

impl Probe {
    pub(super) fn is_found_at(&self, peer: PeerId) -> bool {
        self.found.is_some_and(|promise| promise.status.envelope.source == peer)
    }
}

impl<S: Storage> Admission<S> {
    /// Whether a receive of this pattern would meet a message now. Where the message is held by its sender, that is known some
    /// progress later, when the same is asked again. One probe at a time asks others: another one's pattern replaces it.
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
        self.probe = Some(Probe { pattern, number: self.probes, found: None });
        self.activate_holding();
        None
    }

    /// Whether [`probe`](Self::probe) would tell of a message. Asks nobody.
    pub fn finds(&self, pattern: &Pattern) -> bool {
        let is_promised = |probe: &Probe| probe.pattern == *pattern && probe.found.is_some();
        self.matching.first_message(pattern).is_some() || self.probe.as_ref().is_some_and(is_promised)
    }

    /// As [`probe`](Self::probe), and takes the message out: only [`receive_matched`](Self::receive_matched) receives it.
    /// A message that its sender holds takes a record of those beyond headers × peers; `None` as long as there is none.
    pub fn matched_probe(&mut self, pattern: Pattern) -> Option<(MessageId, Status)> {
        if let Some(message) = self.matching.first_message(&pattern) {
            let (envelope, body) = self.matching.message(message)?;
            let status = Status { envelope: *envelope, bytes: body.bytes };
            self.matching.take(message);
            return Some((message, status));
        }
        self.probe(pattern)?;
        let left = self.spare.checked_sub(1)?;
        let Promise { status, message, at, synchronous } = self.probe.as_mut()?.found.take()?;
        let (from, bytes) = (status.envelope.source, status.bytes);
        let body = Message { message, bytes, at, synchronous, is_spare: true, ..Message::default() };
        let id = self.matching.take_message_record(status.envelope, body).ok()?;
        self.spare = left;
        self.probe = None;
        let peer = self.peer(from)?;
        peer.ask = Ask::Nothing;
        peer.held = peer.held.saturating_sub(1);
        peer.verdicts = peer.verdicts.wrapping_add(1);
        self.tell(id, Tells::Claim);
        self.activate(from);
        Some((id, status))
    }

    /// A peer has found a message for a probe.
    pub(super) fn find(
        &mut self,
        from: PeerId,
        number: u32,
        status: &Status,
        shown: &Shown,
        synchronous: bool,
    ) -> Option<Outcome> {
        let probe = self.probe.as_mut().filter(|probe| probe.number == number);
        match probe {
            Some(probe) if !probe.pattern.matches(&status.envelope) => return None,
            Some(probe) if probe.found.is_none() => {
                let (message, at) = (shown.message, Some(shown.at));
                probe.found = Some(Promise { status: *status, message, at, synchronous });
                self.peer(from)?.ask = Ask::Promised;
            }
            Some(_) => {
                let peer = self.peer(from)?;
                peer.declines = true;
                peer.probed = number;
            }
            None => self.peer(from)?.declines = true,
        }
        Some(Outcome::Nothing)
    }

    /// What was found for the probe, if anything, is its sender's again.
    pub(super) fn end_probe(&mut self) {
        let Some(Promise { status, .. }) = self.probe.take().and_then(|probe| probe.found) else { return };
        if let Some(peer) = self.peer(status.envelope.source) {
            peer.ask = Ask::Nothing;
            peer.declines = true;
        }
        self.activate(status.envelope.source);
    }
}
