//! Sends that the host transmits by itself, and sends that nobody waits for any more.

use super::operations::{SendOp, SendState};
use super::{Class, Messenger, MessengerStorage};
use crate::ids::PeerId;
use crate::span::RegionRange;
use crate::transport::Token;

impl<S: MessengerStorage> Messenger<S> {
    /// Records a message that the host sends by itself, inline: its event follows when the transport has completed the
    /// token. `None`: every record is in use.
    pub fn start_own_send(&mut self, to: PeerId, payload: RegionRange, user: u32) -> Option<Token> {
        let send = self.messages.start_send(user, to, payload)?;
        self.messages.retain_send(send);
        self.messages.finish_send(send, None);
        Some(self.messages.token(send))
    }

    /// A peer receives no more messages: abandons those sends to it whose payload nobody reads, and reports their `user`
    /// values to `abandoned`. No event follows. O(records).
    pub fn abandon_sends(&mut self, to: PeerId, mut abandoned: impl FnMut(u32)) {
        for i in 0..self.messages.sends.as_ref().len() as u32 {
            let Some(send) = self.messages.send(i).filter(|send| send.to == to) else { continue };
            let SendOp { user, state: SendState::Open, uses: 0, placed: 0, .. } = *send else { continue };
            (send.state, send.payload) = (SendState::Abandoned, RegionRange::EMPTY);
            abandoned(user);
        }
    }

    /// Requests a report of each send whose receiver may have it, once each. O(records).
    pub fn request_acks(&mut self) {
        for i in 0..self.messages.sends.as_ref().len() as u32 {
            let Some(send) = self.messages.send(i) else { break };
            if send.state == SendState::Open && !core::mem::replace(&mut send.is_ack_requested, true) {
                let to = send.to;
                self.matching.request_report(to);
            }
        }
    }

    /// Whether messages of a class wait for room in the transport.
    pub fn has_queued(&self, class: Class) -> bool {
        let [messages, steps] = &self.outboxes;
        !if class == Class::Collective { steps.is_empty() } else { messages.is_empty() }
    }
}
