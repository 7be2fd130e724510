//! Handling of a peer's responses: RTS ACK, CTS, FIN, truncation, and match requests with their replies.

use super::header::{Flags, Shown};
use super::peer::Ask;
use super::send::Stage;
use super::{Admission, Outcome, Storage};
use crate::ids::{Key, PeerId, PlacementId};
use crate::list::NONE;
use crate::message::envelope::{Context, Tag};

impl<S: Storage> Admission<S> {
    /// The stage of a message to this peer.
    fn stage(&self, to: PeerId, message: u32) -> Option<Stage> {
        let send = self.sends.as_ref().get(message as usize)?;
        (send.peer == to).then_some(send.stage)
    }

    pub(super) fn hear_claim(&mut self, from: PeerId, message: u32) -> Option<Outcome> {
        match self.stage(from, message)? {
            Stage::Held => {
                self.unhold(message);
                let peer = self.peer(from)?;
                if peer.promised == message {
                    peer.promised = NONE;
                }
            }
            Stage::Eager => self.unleave(message),
            _ => return None,
        }
        self.sends.as_mut().get_mut(message as usize)?.stage = Stage::Announced;
        self.activate(from);
        Some(Outcome::Nothing)
    }

    pub(super) fn hear_grant(
        &mut self,
        from: PeerId,
        message: u32,
        placement: PlacementId,
        key: Key,
        more: bool,
    ) -> Option<Outcome> {
        let user = if more { self.announced(from, message)? } else { self.end_announced(from, message)? };
        Some(Outcome::Place { user, placement, key, more })
    }

    pub(super) fn hear_taken(&mut self, from: PeerId, message: u32) -> Option<Outcome> {
        let user = match self.stage(from, message)? {
            Stage::Announced => self.end_announced(from, message)?,
            stage @ (Stage::Eager | Stage::Accepted) => {
                let send = self.sends.as_ref().get(message as usize).filter(|send| send.synchronous)?;
                let user = send.user;
                if stage == Stage::Eager {
                    self.unleave(message);
                }
                self.free_send(message);
                user
            }
            Stage::Free | Stage::Held => return None,
        };
        Some(Outcome::Sent { user, truncated: false })
    }

    /// A message that fits the eager limit is not reported as truncated: whether its payload was stored depends on
    /// timing.
    pub(super) fn hear_truncated(&mut self, from: PeerId, message: u32) -> Option<Outcome> {
        let fits = self.sends.as_ref().get(message as usize)?.fits;
        let user = self.end_announced(from, message)?;
        Some(Outcome::Sent { user, truncated: !fits })
    }

    /// The `user` value of a message whose payload the peer may request.
    fn announced(&self, from: PeerId, message: u32) -> Option<u32> {
        if self.stage(from, message)? != Stage::Announced {
            return None;
        }
        Some(self.sends.as_ref().get(message as usize)?.user)
    }

    fn end_announced(&mut self, from: PeerId, message: u32) -> Option<u32> {
        let user = self.announced(from, message)?;
        self.free_send(message);
        Some(user)
    }

    pub(super) fn hear_want(&mut self, from: PeerId, context: Context, tag: Option<Tag>) -> Option<Outcome> {
        let peer = self.peer(from)?;
        if peer.wanted.is_some() || peer.promised != NONE {
            return None;
        }
        peer.wanted = Some((context, tag));
        self.activate(from);
        Some(Outcome::Nothing)
    }

    pub(super) fn hear_decline(&mut self, from: PeerId) -> Option<Outcome> {
        let peer = self.peer(from)?;
        if peer.promised == NONE {
            return None;
        }
        peer.promised = NONE;
        self.activate(from);
        Some(Outcome::Nothing)
    }

    /// Handles the reply that a match request found a message.
    pub(super) fn hear_found(&mut self, from: PeerId, shown: &Shown, flags: Flags) -> Option<Outcome> {
        let status = self.status(from, shown);
        self.activate(from);
        let peer = self.peer(from)?;
        match core::mem::replace(&mut peer.ask, Ask::Nothing) {
            Ask::Receive(receive) => {
                peer.again = false;
                let Some(pattern) = self.matching.awaited(receive) else {
                    self.peer(from)?.declines = true;
                    return Some(Outcome::Nothing);
                };
                if !pattern.matches(&status.envelope) {
                    return None;
                }
                let peer = self.peer(from)?;
                peer.held = peer.held.checked_sub(1)?;
                self.join(receive, &status, shown, true)
            }
            Ask::Probe(number) => self.find(from, number, &status, shown, flags.contains(Flags::SYNCHRONOUS)),
            Ask::Nothing | Ask::Promised => None,
        }
    }

    pub(super) fn hear_missing(&mut self, from: PeerId) -> Option<Outcome> {
        self.activate(from);
        let peer = self.peer(from)?;
        let again = core::mem::take(&mut peer.again) && !cfg!(mutant = "again_forgotten");
        match core::mem::replace(&mut peer.ask, Ask::Nothing) {
            Ask::Receive(receive) => {
                if !again && let Some(pattern) = self.matching.awaited(receive) {
                    match pattern.source {
                        Some(_) => self.matching.set_unasked(receive, false),
                        None => {
                            let peer = self.peer(from)?;
                            peer.cursor = peer.cursor.max(receive.number.wrapping_add(1));
                        }
                    }
                }
            }
            Ask::Probe(number) => peer.probed = if again { 0 } else { number },
            Ask::Nothing | Ask::Promised => return None,
        }
        Some(Outcome::Nothing)
    }
}
