//! Cancelled sends.
//!
//! The sender asks the receiver for the message, which it names by the number of its header. The receiver removes it, if
//! it is unexpected and no probe has taken it, and answers. A held message is withdrawn at its sender, once the receiver
//! has answered its header without claiming it. One send to each peer is cancelled at a time.

use super::header::{Flags, MessageHeader, MessageKind};
use super::send::SendState;
use super::{Action, MessageStorage, Outcome, PayloadStore, PointToPoint};
use crate::ids::{MessageId, PeerId};
use crate::list::NONE;

/// The cancelled sends of and to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Cancellations {
    pub(super) own: CancelState,
    /// The answer that the peer waits for: whether its message was removed.
    pub(super) answer: Option<bool>,
}

/// The state of a cancelled send.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum CancelState {
    Nothing,
    /// The peer was not asked yet for the message of this number.
    Wanted(u32),
    /// The peer was asked. Its record, if it has one.
    Asked {
        number: u32,
        record: u32,
    },
    /// The peer does not have this held message, but may still claim it.
    Withdrawing(u32),
    /// The peer has the note. The `user` value, to be reported.
    Withdrawn(u32),
    /// Whether it was cancelled.
    Ended(bool),
}

impl Cancellations {
    pub(super) const NONE: Self = Self { own: CancelState::Nothing, answer: None };
}

impl<S: MessageStorage> PointToPoint<S> {
    /// The number of the next message to this peer, for [`cancel_send`](Self::cancel_send).
    #[inline]
    pub fn next_number(&self, to: PeerId) -> u32 {
        self.peers.as_ref().get(to.0 as usize).map_or(0, |peer| peer.sent.count as u32)
    }

    /// Starts to cancel a message, which may have been sent long ago, by its [number](Self::next_number). Its result
    /// follows in [`take_cancel_result`](Self::take_cancel_result); if it was cancelled and was not complete, it
    /// completes. False: the result of another message to this peer was not taken yet.
    ///
    /// A held message that was copied and sent in the meantime is not found: the receiver knows it by another number.
    pub fn cancel_send(&mut self, to: PeerId, number: u32) -> bool {
        let Some(peer) = self.peer(to).filter(|peer| peer.cancellations.own == CancelState::Nothing) else {
            return false;
        };
        peer.cancellations.own = if peer.is_failed { CancelState::Ended(false) } else { CancelState::Wanted(number) };
        self.activate(to);
        true
    }

    /// Takes the result of the latest cancelled send to this peer: whether no receive will match the message. `None`:
    /// the peer has not answered.
    pub fn take_cancel_result(&mut self, to: PeerId) -> Option<bool> {
        let own = &mut self.peer(to)?.cancellations.own;
        match *own {
            CancelState::Ended(is_cancelled) => {
                *own = CancelState::Nothing;
                Some(is_cancelled)
            }
            // The peer has failed.
            CancelState::Nothing => Some(false),
            _ => None,
        }
    }

    /// The next action for the cancelled send to this peer.
    pub(super) fn poll_cancel(&mut self, to: PeerId) -> Option<Action> {
        let peer = self.peers.as_ref().get(to.0 as usize)?;
        let (own, action) = match peer.cancellations.own {
            CancelState::Wanted(number) => {
                let sends = self.sends.as_ref();
                let record = sends.iter().position(|send| send.peer == to && send.first_number == number);
                let latest = record.and_then(|record| sends.get(record)).map_or(number, |send| send.number as u32);
                let record = record.map_or(NONE, |record| record as u32);
                let head = self.head(to, MessageKind::Cancel, Flags::empty()).word(latest).word(record);
                (CancelState::Asked { number, record }, Action::Header { to, head })
            }
            CancelState::Withdrawing(record) if record != peer.requests.reserved => {
                let send = self.sends.as_ref().get(record as usize)?;
                // The receiver may still answer its unbuffered RTS.
                if send.number >= peer.sent.settled && !mutant!("withdrawn_early") {
                    return None;
                }
                let user = send.user;
                self.unhold(record);
                self.free_send(record);
                let head = self.head(to, MessageKind::Withdrawn, Flags::empty());
                (CancelState::Withdrawn(user), Action::Header { to, head })
            }
            CancelState::Withdrawn(user) => (CancelState::Ended(true), Action::Sent { user }),
            _ => return None,
        };
        self.peer(to)?.cancellations.own = own;
        Some(action)
    }

    /// Whether a held message to this peer stays, because it is being cancelled.
    pub(super) fn is_being_cancelled(&self, to: PeerId, held: u32) -> bool {
        self.peers.as_ref().get(to.0 as usize).is_some_and(|peer| match peer.cancellations.own {
            CancelState::Asked { record, .. } | CancelState::Withdrawing(record) => record == held,
            _ => false,
        })
    }

    /// The receiver has claimed a held message: it is not cancelled any more.
    pub(super) fn end_withdrawal(&mut self, from: PeerId, record: u32) {
        if let Some(peer) = self.peer(from)
            && peer.cancellations.own == CancelState::Withdrawing(record)
        {
            peer.cancellations.own = CancelState::Ended(false);
        }
    }

    /// The answer to a peer that cancels a message.
    pub(super) fn answer_cancel(&mut self, to: PeerId) -> Option<MessageHeader> {
        let is_removed = self.peer(to)?.cancellations.answer.take()?;
        let flags = if is_removed { Flags::REMOVED } else { Flags::empty() };
        Some(self.head(to, MessageKind::CancelReply, flags))
    }

    /// Handles a peer's request to remove the message of this number.
    pub(super) fn handle_cancel(&mut self, from: PeerId, number: u32, record: u32) -> Option<Outcome> {
        if self.peer(from)?.cancellations.answer.is_some() {
            return None;
        }
        let is_removed = self.remove_unexpected(from, number);
        if !is_removed && self.probe.is_some_and(|probe| probe.has_found(from, record)) {
            self.end_probe();
        }
        self.peer(from)?.cancellations.answer = Some(is_removed);
        self.activate(from);
        // A held message is withdrawn when it is settled.
        self.schedule_credit(from, true);
        Some(Outcome::Nothing)
    }

    /// Handles the answer to a cancelled send.
    pub(super) fn handle_cancel_reply(&mut self, from: PeerId, is_removed: bool) -> Option<Outcome> {
        let CancelState::Asked { number, record } = self.peer(from)?.cancellations.own else { return None };
        let send = self.sends.as_ref().get(record as usize);
        let send = send.filter(|send| send.peer == from && send.first_number == number);
        let (own, outcome) = match send.map(|send| (send.state, send.user)) {
            Some((SendState::Held, _)) if is_removed => return None,
            Some((SendState::Held, _)) => (CancelState::Withdrawing(record), Outcome::Nothing),
            Some((state, user)) if is_removed => {
                if state == SendState::Eager {
                    self.unlink_eager(record);
                }
                self.free_send(record);
                (CancelState::Ended(true), Outcome::Sent { user, truncated: false })
            }
            _ => (CancelState::Ended(is_removed), Outcome::Nothing),
        };
        self.peer(from)?.cancellations.own = own;
        self.activate(from);
        Some(outcome)
    }

    /// Handles a peer's note that it holds one message less.
    pub(super) fn handle_withdrawn(&mut self, from: PeerId) -> Option<Outcome> {
        let peer = self.peer(from)?;
        peer.received.held = peer.received.held.checked_sub(1)?;
        Some(Outcome::Nothing)
    }

    /// Removes an unexpected message of a peer, by the number of its header. False: it is not unexpected any more.
    /// O(messages).
    fn remove_unexpected(&mut self, from: PeerId, number: u32) -> bool {
        let is_it = |message: &MessageId| {
            self.matching
                .message(*message)
                .is_some_and(|(envelope, body)| envelope.source == from && body.number == number && !body.is_spare)
        };
        let records = 0..self.matching.messages.as_ref().len() as u32;
        let found = records.filter_map(|record| self.matching.message_of(record)).find(is_it);
        let Some(message) = found else { return false };
        if !self.matching.take(message) {
            return false;
        }
        let kept = self.matching.messages.as_mut().get_mut(message.record as usize);
        if let Some(PayloadStore::Slot(slot)) = kept.and_then(|kept| kept.body.place.take()) {
            self.slots.free(slot);
        }
        self.end_message(message);
        true
    }
}
