//! The end of a peer.

use super::peer::{Ask, Peer};
use super::receive::Errand;
use super::send::Stage;
use super::{Admission, Storage};
use crate::ids::{PeerId, ReceiveId};
use crate::list::List;

/// What ends with a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// A receive, as it was given.
    Receive(u32),
    /// A message, as it was given.
    Send(u32),
}

impl<S: Storage> Admission<S> {
    /// A peer is gone: nothing is sent to it any more, and what only it can bring about ends; with `anyone`, receives from any
    /// source, too. Payloads of its that were kept may still be received. O(records).
    pub fn lose(&mut self, gone: PeerId, anyone: bool, mut ended: impl FnMut(Lost)) {
        let Some(peer) = self.peer(gone) else { return };
        let Peer { untaken, active_link, holding_link, is_active, is_holding, .. } = *peer;
        let mine = Peer { is_gone: true, untaken, active_link, holding_link, is_active, is_holding, ..Peer::NEW };
        *peer = mine;
        if self.probe.is_some_and(|probe| probe.is_found_at(gone)) {
            self.probe = None;
        }
        for record in 0..self.sends.as_ref().len() as u32 {
            let Some(send) = self.sends.as_ref().get(record as usize) else { break };
            let (user, stage) = (send.user, send.stage);
            if send.peer != gone || stage == Stage::Free {
                continue;
            }
            if stage == Stage::Held {
                self.unqueue(record);
            }
            self.free_send(record);
            ended(Lost::Send(user));
        }
        let mut errands = core::mem::replace(&mut self.errands, List::EMPTY);
        while let Some(record) = errands.pop(self.matching.receives.as_mut(), |posted| &mut posted.body.link) {
            let receives = self.matching.receives.as_mut();
            if receives.get(record as usize).is_some_and(|posted| posted.body.from != gone) {
                self.errands.push(receives, record, |posted| &mut posted.body.link);
            }
        }
        for record in 0..self.matching.receives.as_ref().len() as u32 {
            let Some(posted) = self.matching.receives.as_ref().get(record as usize) else { break };
            let receive = ReceiveId { record, number: posted.number };
            let (body, waits) = (posted.body, posted.waits);
            let ends = match posted.pattern.source {
                _ if !waits => body.from == gone && body.errand != Errand::Nothing,
                Some(source) => source == gone,
                None => anyone,
            };
            if ends {
                self.matching.unpost(receive);
                self.matching.free_receive(receive);
                // What was truncated, or has arrived, was told before.
                if waits || matches!(body.errand, Errand::Claim { truncated: false } | Errand::Pull | Errand::Pulling) {
                    ended(Lost::Receive(body.user));
                }
            }
        }
        self.lose_messages(gone);
    }

    /// Messages whose payload is at a peer that is gone cannot be received.
    fn lose_messages(&mut self, gone: PeerId) {
        let mut told = core::mem::replace(&mut self.told, List::EMPTY);
        while let Some(record) = told.pop(self.matching.messages.as_mut(), |kept| &mut kept.body.link) {
            let messages = self.matching.messages.as_mut();
            if messages.get(record as usize).is_some_and(|kept| kept.envelope.source != gone) {
                self.told.push(messages, record, |kept| &mut kept.body.link);
            }
        }
        for record in 0..self.matching.messages.as_ref().len() as u32 {
            let Some(message) = self.matching.message_of(record) else { continue };
            let known = self.matching.message(message);
            if known.is_some_and(|(envelope, body)| envelope.source == gone && body.place.is_none()) {
                self.matching.take(message);
                self.free_message(message);
            }
        }
    }

    /// A peer that was [lost](Self::lose) has another life, which knows nothing of the one before. What was kept of that may still
    /// be received, as far as there are records beyond headers × peers. O(messages).
    pub fn revive(&mut self, peer: PeerId) {
        if self.peer(peer).is_none_or(|peer| !peer.is_gone) {
            return;
        }
        for record in 0..self.matching.messages.as_ref().len() as u32 {
            let Some(message) = self.matching.message_of(record) else { continue };
            let known = self.matching.message(message);
            if known.is_none_or(|(envelope, body)| envelope.source != peer || body.is_spare) {
                continue;
            }
            let left = self.spare.checked_sub(1);
            if left.is_none() && self.matching.take(message) {
                self.release(message);
                continue;
            }
            self.spare = left.unwrap_or(0);
            if let Some(kept) = self.matching.messages.as_mut().get_mut(record as usize) {
                kept.body.is_spare = true;
            }
        }
        if let Some(peer) = self.peer(peer) {
            let Peer { active_link, holding_link, is_active, is_holding, .. } = *peer;
            *peer = Peer { active_link, holding_link, is_active, is_holding, ..Peer::NEW };
        }
    }

    /// Whether a peer was asked about something and has not answered.
    pub fn is_asked(&self, peer: PeerId) -> bool {
        let peer = self.peers.as_ref().get(peer.0 as usize);
        peer.is_some_and(|peer| matches!(peer.ask, Ask::Receive(_) | Ask::Probe(_)))
    }
}
