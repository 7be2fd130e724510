//! Handling of a peer's responses: RTS ACK, CTS, FIN, truncation, and match requests with their replies.

use super::header::{Descriptor, Flags};
use super::peer::MatchRequestState;
use super::send::SendState;
use super::{MessageStorage, Outcome, PointToPoint};
use crate::ids::{PeerId, PlacementId, RemoteKey};
use crate::list::NONE;
use crate::message::envelope::{Context, Tag};

impl<S: MessageStorage> PointToPoint<S> {
    /// The stage of a message to this peer.
    fn send_state(&self, to: PeerId, message: u32) -> Option<SendState> {
        let send = self.sends.as_ref().get(message as usize)?;
        (send.peer == to).then_some(send.state)
    }

    pub(super) fn handle_rts_ack(&mut self, from: PeerId, message: u32) -> Option<Outcome> {
        match self.send_state(from, message)? {
            SendState::Held => {
                self.unhold(message);
                let peer = self.peer(from)?;
                if peer.requests.reserved == message {
                    peer.requests.reserved = NONE;
                }
                self.end_withdrawal(from, message);
            }
            SendState::Eager => self.unlink_eager(message),
            _ => return None,
        }
        self.sends.as_mut().get_mut(message as usize)?.state = SendState::RtsSent;
        self.activate(from);
        Some(Outcome::Nothing)
    }

    pub(super) fn handle_cts(
        &mut self,
        from: PeerId,
        message: u32,
        placement: PlacementId,
        key: RemoteKey,
        more: bool,
    ) -> Option<Outcome> {
        let user = if more { self.rts_user(from, message)? } else { self.end_rendezvous(from, message)? };
        Some(Outcome::Place { user, placement, key, more })
    }

    pub(super) fn handle_fin(&mut self, from: PeerId, message: u32) -> Option<Outcome> {
        let user = match self.send_state(from, message)? {
            SendState::RtsSent | SendState::Held => self.end_rendezvous(from, message)?,
            stage @ (SendState::Eager | SendState::Accepted) => {
                let send = self.sends.as_ref().get(message as usize).filter(|send| send.synchronous)?;
                let user = send.user;
                if stage == SendState::Eager {
                    self.unlink_eager(message);
                }
                self.free_send(message);
                user
            }
            SendState::Free => return None,
        };
        Some(Outcome::Sent { user, truncated: false })
    }

    /// A message that fits the eager limit is not reported as truncated: whether its payload was stored depends on
    /// timing.
    pub(super) fn handle_truncated(&mut self, from: PeerId, message: u32) -> Option<Outcome> {
        let fits = self.sends.as_ref().get(message as usize)?.fits;
        let user = self.end_rendezvous(from, message)?;
        Some(Outcome::Sent { user, truncated: !fits })
    }

    /// The `user` value of a message whose payload the peer may request. The request claims a held message.
    fn rts_user(&mut self, from: PeerId, message: u32) -> Option<u32> {
        match self.send_state(from, message)? {
            SendState::RtsSent => {}
            SendState::Held => _ = self.handle_rts_ack(from, message)?,
            _ => return None,
        }
        Some(self.sends.as_ref().get(message as usize)?.user)
    }

    fn end_rendezvous(&mut self, from: PeerId, message: u32) -> Option<u32> {
        let user = self.rts_user(from, message)?;
        self.free_send(message);
        Some(user)
    }

    pub(super) fn handle_match_request(&mut self, from: PeerId, context: Context, tag: Option<Tag>) -> Option<Outcome> {
        let peer = self.peer(from)?;
        if peer.requests.of_peer.is_some() || peer.requests.reserved != NONE {
            return None;
        }
        peer.requests.of_peer = Some((context, tag));
        self.activate(from);
        Some(Outcome::Nothing)
    }

    pub(super) fn handle_decline(&mut self, from: PeerId) -> Option<Outcome> {
        let peer = self.peer(from)?;
        if peer.requests.reserved == NONE {
            return None;
        }
        peer.requests.reserved = NONE;
        self.activate(from);
        Some(Outcome::Nothing)
    }

    /// Handles the reply that a match request found a message.
    pub(super) fn handle_match_found(&mut self, from: PeerId, shown: &Descriptor, flags: Flags) -> Option<Outcome> {
        let status = self.status(from, shown);
        self.activate(from);
        let peer = self.peer(from)?;
        match core::mem::replace(&mut peer.requests.own, MatchRequestState::Nothing) {
            MatchRequestState::Receive(receive) => {
                peer.requests.again = false;
                let Some(pattern) = self.matching.awaited(receive) else {
                    self.peer(from)?.requests.declines = true;
                    return Some(Outcome::Nothing);
                };
                if !pattern.matches(&status.envelope) {
                    return None;
                }
                let peer = self.peer(from)?;
                peer.received.held = peer.received.held.checked_sub(1)?;
                self.match_rts(receive, &status, shown, true)
            }
            MatchRequestState::Probe(number) => {
                self.reserve_for_probe(from, number, &status, shown, flags.contains(Flags::SYNCHRONOUS))
            }
            MatchRequestState::Nothing | MatchRequestState::Reserved => None,
        }
    }

    pub(super) fn handle_no_match(&mut self, from: PeerId) -> Option<Outcome> {
        self.activate(from);
        let peer = self.peer(from)?;
        let again = core::mem::take(&mut peer.requests.again) && !mutant!("again_forgotten");
        match core::mem::replace(&mut peer.requests.own, MatchRequestState::Nothing) {
            MatchRequestState::Receive(receive) => {
                if !again && let Some(pattern) = self.matching.awaited(receive) {
                    match pattern.source {
                        Some(_) => self.matching.set_needs_request(receive, false),
                        None => {
                            let peer = self.peer(from)?;
                            peer.requests.cursor = peer.requests.cursor.max(receive.number.wrapping_add(1));
                        }
                    }
                }
            }
            MatchRequestState::Probe(number) => peer.requests.probed = if again { 0 } else { number },
            MatchRequestState::Nothing | MatchRequestState::Reserved => return None,
        }
        Some(Outcome::Nothing)
    }
}
