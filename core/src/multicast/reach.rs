//! Whether multicasts reach a member: a network may stop forwarding them after the group was tested.

/// How many of a member's latest segments reached it by multicast.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Reach {
    /// Segments that it has acknowledged since the sample began.
    acknowledged: u32,
    /// Reports of missing segments since then: a segment whose repair was lost, too, counts again.
    missed: u32,
    is_deaf: bool,
}

impl Reach {
    /// Records a report. After each sample of `sample` acknowledged segments the member is deaf if it reported at least 7/8
    /// as many missing; a deaf member stays deaf. Nothing is recorded if `sample` is 0.
    pub(super) fn record(&mut self, acknowledged: u32, missed: u32, sample: u32) {
        if sample == 0 {
            return;
        }
        self.missed = self.missed.saturating_add(if mutant!("deaf_unnoticed") { 0 } else { missed });
        self.acknowledged = self.acknowledged.saturating_add(acknowledged);
        if self.acknowledged >= sample {
            self.is_deaf |= self.missed >= self.acknowledged.saturating_sub(self.acknowledged / 8);
            (self.acknowledged, self.missed) = (0, 0);
        }
    }

    pub(super) const fn is_deaf(&self) -> bool {
        self.is_deaf
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_deaf_when_a_sample_was_repaired() {
        let mut reach = Reach::default();
        // A tenth is lost: reports and acknowledgements come in steps of their own.
        for _ in 0..100 {
            reach.record(10, 1, 64);
            assert!(!reach.is_deaf());
        }
        // All of a burst, which is shorter than a sample.
        reach.record(0, 32, 64);
        reach.record(80, 0, 64);
        assert!(!reach.is_deaf());
        reach.record(0, 64, 64);
        reach.record(63, 0, 64);
        assert!(!reach.is_deaf(), "the sample is not complete");
        reach.record(1, 0, 64);
        assert!(reach.is_deaf());
        for _ in 0..10 {
            reach.record(64, 0, 64);
        }
        assert!(reach.is_deaf());
    }
}
