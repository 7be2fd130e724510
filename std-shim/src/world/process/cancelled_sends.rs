//! Sends that are being cancelled. The messenger cancels one for each peer at a time; the others wait here.

use unisono_core::ids::PeerId;

use super::Process;

/// A message that was sent: what cancels it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SentMessage {
    pub(in crate::world) to: PeerId,
    pub(in crate::world) number: u32,
}

impl SentMessage {
    /// The message as a number below 2⁶³.
    pub const fn to_bits(self) -> u64 {
        (self.to.0 as u64) << 32 & (u64::MAX >> 1) | self.number as u64
    }

    /// The message of this [number](Self::to_bits).
    pub const fn from_bits(bits: u64) -> Self {
        Self { to: PeerId((bits >> 32) as u32 & (u32::MAX >> 1)), number: bits as u32 }
    }
}

/// A send that is being cancelled.
#[derive(Clone, Copy, Debug)]
struct CancelledSend {
    message: SentMessage,
    state: State,
    /// Nobody asks for the result.
    is_forgotten: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Another one to the same peer comes first.
    Waits,
    Started,
    /// Whether it was cancelled.
    Ended(bool),
}

/// The sends that are being cancelled, in order.
#[derive(Debug, Default)]
pub(in crate::world) struct CancelledSends(Vec<CancelledSend>);

impl Process {
    /// Starts to cancel a send. Its [result](Self::cancel_result) follows.
    pub(in crate::world) fn cancel_send(&mut self, message: SentMessage) {
        let all = &mut self.messages.cancelled.0;
        if all.iter().all(|other| other.message != message) {
            all.push(CancelledSend { message, state: State::Waits, is_forgotten: false });
        }
        self.advance_cancelled();
        self.run_deferred_if_any();
    }

    /// Whether a send was cancelled; `None`: that is not decided. Nothing is known of one that was not cancelled or that
    /// was [forgotten](Self::forget_cancelled).
    pub(in crate::world) fn cancel_result(&mut self, message: SentMessage) -> Option<bool> {
        self.advance_cancelled();
        if self.aborted.is_some() {
            return Some(false);
        }
        match self.messages.cancelled.0.iter().find(|other| other.message == message) {
            Some(CancelledSend { state: State::Ended(is_cancelled), .. }) => Some(*is_cancelled),
            Some(_) => None,
            None => Some(false),
        }
    }

    /// Nobody asks for the result any more.
    pub(in crate::world) fn forget_cancelled(&mut self, message: SentMessage) {
        self.messages.cancelled.0.iter_mut().filter(|other| other.message == message).for_each(|other| {
            other.is_forgotten = true;
        });
        self.advance_cancelled();
    }

    /// Records what has become of cancelled sends, and starts to cancel the next ones.
    #[inline]
    pub(super) fn advance_cancelled(&mut self) {
        if !self.messages.cancelled.0.is_empty() {
            self.advance_all_cancelled();
        }
    }

    #[cold]
    fn advance_all_cancelled(&mut self) {
        let (machine, requests) = (self.messenger.matching_mut(), &mut self.requests);
        for send in &mut self.messages.cancelled.0 {
            let SentMessage { to, number } = send.message;
            if send.state == State::Started
                && let Some(is_cancelled) = machine.take_cancel_result(to)
            {
                send.state = State::Ended(is_cancelled);
                requests.record_finished();
            }
            if send.state == State::Waits && machine.cancel_send(to, number) {
                send.state = State::Started;
            }
        }
        self.messages.cancelled.0.retain(|send| !(send.is_forgotten && matches!(send.state, State::Ended(_))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_a_number() {
        for message in [(0, 0), (3, u32::MAX), (u32::MAX >> 1, 7)] {
            let message = SentMessage { to: PeerId(message.0), number: message.1 };
            assert_eq!(SentMessage::from_bits(message.to_bits()), message);
            assert!(message.to_bits() < 1 << 63);
        }
    }
}
