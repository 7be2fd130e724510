//! Acknowledgements that contradict what was sent: the peer is faulty, and waiting for it would never end.

use crate::time::Time;

/// Consecutive acknowledgements of PSNs that are not outstanding after which the peer contradicts itself.
const MAX_INVALID_ACKS: u8 = 16;

/// What of the peer's behaviour cannot be right.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Contradictions<T: Time> {
    /// Times the oldest segment was resent, saturating at 255.
    base_resends: u8,
    /// Consecutive acknowledgements of PSNs that are not outstanding, counted at most once per timeout.
    invalid_acks: u8,
    counted: T::Stamp,
}

impl<T: Time> Contradictions<T> {
    pub(super) const NONE: Self = Self { base_resends: 0, invalid_acks: 0, counted: T::ZERO };

    /// Whether they are too many to be late datagrams. Models, whose time is abstract, do not count.
    pub(super) const fn is_proof(&self) -> bool {
        self.base_resends == u8::MAX || self.invalid_acks >= MAX_INVALID_ACKS
    }

    /// Whether the latest acknowledgement was of PSNs that are not outstanding.
    pub(super) const fn has_invalid_acks(&self) -> bool {
        self.invalid_acks > 0
    }

    /// An acknowledgement of PSNs that are not outstanding arrived; it counts if the one before is a timeout old.
    pub(super) fn handle_invalid_ack(&mut self, now: T::Instant, timeout: u32) {
        let is_due = self.invalid_acks == 0 || T::since(now, self.counted).is_some_and(|since| since >= timeout);
        if T::DETECT_MISBEHAVIOUR && is_due {
            self.invalid_acks = self.invalid_acks.saturating_add(1);
            self.counted = T::stamp(now);
        }
    }

    /// A valid acknowledgement arrived.
    pub(super) const fn handle_valid_ack(&mut self) {
        self.invalid_acks = 0;
    }

    /// The oldest segment was resent.
    pub(super) const fn handle_base_resend(&mut self) {
        if T::DETECT_MISBEHAVIOUR {
            self.base_resends = self.base_resends.saturating_add(1);
        }
    }

    /// The oldest segment was released.
    pub(super) const fn handle_release(&mut self) {
        self.base_resends = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Nanos;

    #[test]
    fn invalid_acknowledgements_count_once_per_timeout() {
        let timeout = 100;
        let is_proof = |count: u64, units: u64| {
            let mut contradictions = Contradictions::<Nanos>::NONE;
            (1..=count).for_each(|i| contradictions.handle_invalid_ack(i * units * 64, timeout));
            contradictions.is_proof()
        };
        assert!(!is_proof(15, 100) && is_proof(16, 100));
        assert!(!is_proof(40, 1), "within a timeout");
        let mut first = Contradictions::<Nanos>::NONE;
        first.handle_invalid_ack(0, timeout);
        assert!(first.has_invalid_acks(), "the first one counts at once");
    }
}
