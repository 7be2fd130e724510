//! The queue of control messages.

use crate::endpoint::ControlMessage;
use crate::pool::Pool;
use crate::time::Time;
use crate::window::rails::MAX_RAILS;

/// Control messages that wait for a token, in order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(in crate::endpoint) struct ControlQueue<P, T: Time> {
    records: P,
    /// Messages in the queue: the first ones of the pool.
    count: u32,
    /// When a Reset was last sent.
    pub(in crate::endpoint) reset_sent: T::Stamp,
}

impl<P: Pool<ControlMessage>, T: Time> ControlQueue<P, T> {
    pub(in crate::endpoint) const fn new(records: P, now: T::Stamp) -> Self {
        Self { records, count: 0, reset_sent: now }
    }

    #[inline]
    pub(in crate::endpoint) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(in crate::endpoint) const fn len(&self) -> u32 {
        self.count
    }

    /// Queues a message; drops it if there is no room, or if an equal one is queued.
    pub(in crate::endpoint) fn push(&mut self, message: ControlMessage) {
        let used = self.count as usize;
        let records = self.records.as_mut();
        // Answers to probes differ by rail and number.
        let same_probe =
            |other: &ControlMessage| (other.acknowledged, other.flags) == (message.acknowledged, message.flags);
        let same = |other: &&ControlMessage| {
            other.to == message.to
                && other.kind == message.kind
                && other.psn == message.psn
                && (MAX_RAILS == 1 || same_probe(other))
        };
        if records.iter().take(used).any(|other| same(&other)) {
            return;
        }
        if let Some(free) = records.get_mut(used) {
            *free = message;
            self.count = self.count.wrapping_add(1);
        }
    }

    /// Takes the first message.
    pub(in crate::endpoint) fn pop(&mut self) -> Option<ControlMessage> {
        let left = self.count.checked_sub(1)?;
        let mut behind = ControlMessage::FREE;
        for place in self.records.as_mut().iter_mut().take(self.count as usize).rev() {
            behind = core::mem::replace(place, behind);
        }
        self.count = left;
        Some(behind)
    }
}

#[cfg(test)]
mod tests {
    use super::{ControlMessage, ControlQueue};
    use crate::time::Nanos;
    use crate::wire::DatagramKind;

    #[test]
    fn a_message_is_queued_once() {
        let first = ControlMessage { to: 3, kind: DatagramKind::Probe, psn: 7, ..ControlMessage::FREE };
        let others = [
            ControlMessage { to: 4, ..first },
            ControlMessage { kind: DatagramKind::Reset, ..first },
            ControlMessage { psn: 8, ..first },
        ];
        let mut queue = ControlQueue::<_, Nanos>::new([ControlMessage::FREE; 8], 0);
        for message in [first].into_iter().chain(others) {
            queue.push(message);
            queue.push(message);
        }
        queue.push(first);
        assert_eq!(queue.len(), 4);
        assert_eq!(queue.pop(), Some(first));
        assert!(others.into_iter().eq(core::iter::from_fn(|| queue.pop())));
    }
}
