//! Failed and restarted peers.

use super::cancel::CancelState;
use super::peer::{MatchRequestState, MessagePeer};
use super::receive::PendingControl;
use super::send::SendState;
use super::{MessageStorage, PointToPoint};
use crate::ids::{PeerId, ReceiveId};
use crate::list::List;

/// A request that ends because its peer failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cancelled {
    /// A receive, by its `user` value.
    Receive(u32),
    /// A send, by its `user` value.
    Send(u32),
}

impl<S: MessageStorage> PointToPoint<S> {
    /// Handles a peer's failure: nothing more is sent to it, and requests that only it can complete end; if `anyone`,
    /// receives from any source end, too. Unexpected messages whose payload is stored can still be received.
    /// O(records).
    pub fn disconnect(&mut self, gone: PeerId, anyone: bool, mut ended: impl FnMut(Cancelled)) {
        let Some(peer) = self.peer(gone) else { return };
        let (stored, links, cancelled) = (peer.received.stored, peer.links, peer.cancellations.own);
        *peer = MessagePeer { is_failed: true, links, ..MessagePeer::NEW };
        peer.received.stored = stored;
        if let CancelState::Withdrawn(user) = cancelled {
            ended(Cancelled::Send(user));
        }
        if self.probe.is_some_and(|probe| probe.is_found_at(gone)) {
            self.probe = None;
        }
        for record in 0..self.sends.as_ref().len() as u32 {
            let Some(send) = self.sends.as_ref().get(record as usize) else { break };
            let (user, stage) = (send.user, send.state);
            if send.peer != gone || stage == SendState::Free {
                continue;
            }
            if stage == SendState::Held {
                self.unqueue(record);
            }
            self.free_send(record);
            ended(Cancelled::Send(user));
        }
        let mut controls = core::mem::replace(&mut self.controls, List::EMPTY);
        while let Some(record) = controls.pop(self.matching.receives.as_mut(), |posted| &mut posted.body.link) {
            let receives = self.matching.receives.as_mut();
            if receives.get(record as usize).is_some_and(|posted| posted.body.from != gone) {
                self.controls.push(receives, record, |posted| &mut posted.body.link);
            }
        }
        for record in 0..self.matching.receives.as_ref().len() as u32 {
            let Some(posted) = self.matching.receives.as_ref().get(record as usize) else { break };
            let receive = ReceiveId { record, number: posted.number };
            let (body, waits) = (posted.body, posted.waits);
            let ends = match posted.pattern.source {
                _ if !waits => body.from == gone && body.control != PendingControl::Nothing,
                Some(source) => source == gone,
                None => anyone,
            };
            if ends {
                self.matching.unpost(receive);
                self.matching.free_receive(receive);
                // Truncated and eager receives are complete already.
                if waits || matches!(body.control, PendingControl::Pull | PendingControl::Pulling) {
                    ended(Cancelled::Receive(body.user));
                }
            }
        }
        self.drop_unreachable(gone);
    }

    /// Frees unexpected messages whose payload is at the failed peer.
    fn drop_unreachable(&mut self, gone: PeerId) {
        let mut replies = core::mem::replace(&mut self.replies, List::EMPTY);
        while let Some(record) = replies.pop(self.matching.messages.as_mut(), |kept| &mut kept.body.link) {
            let messages = self.matching.messages.as_mut();
            if messages.get(record as usize).is_some_and(|kept| kept.envelope.source != gone) {
                self.replies.push(messages, record, |kept| &mut kept.body.link);
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

    /// Handles a new incarnation of a [failed](Self::disconnect) peer. Stored messages of the earlier one can still be
    /// received, if there are records beyond headers × peers. O(messages).
    pub fn reconnect(&mut self, peer: PeerId) {
        if self.peer(peer).is_none_or(|peer| !peer.is_failed) {
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
            *peer = MessagePeer { links: peer.links, ..MessagePeer::NEW };
        }
    }

    /// Whether a match request to this peer is unanswered.
    pub fn awaits_match_reply(&self, peer: PeerId) -> bool {
        let peer = self.peers.as_ref().get(peer.0 as usize);
        peer.is_some_and(|peer| {
            matches!(peer.requests.own, MatchRequestState::Receive(_) | MatchRequestState::Probe(_))
        })
    }
}
