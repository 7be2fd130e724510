//! The releases of one epoch that a rank has: its own and those that it has received.

use super::neighbour::Neighbours;
use super::{Combination, Epoch, Operand, RankRange, Violation};

/// A release that a rank has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct KnownRelease {
    pub(super) claim: RankRange,
    pub(super) value: Operand,
    pub(super) left: Epoch,
    /// It goes along the tree.
    pub(super) is_passed_on: bool,
    /// Neighbours that it has to be sent to.
    pub(super) pending: Neighbours,
}

/// Up to `M` releases, whose claims are disjoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Releases<const M: usize> {
    records: [Option<KnownRelease>; M],
    /// Ranks in their claims.
    covered: u32,
    /// Ranks whose values the output holds.
    combined: u32,
}

/// How the output takes the next value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Output {
    Copied(Operand),
    Combined(Combination),
}

impl<const M: usize> Releases<M> {
    pub(super) const NONE: Self = Self { records: [None; M], covered: 0, combined: 0 };

    /// Ranks that the releases cover.
    pub(super) const fn covered(&self) -> u32 {
        self.covered
    }

    /// Ranks of a range that the releases cover.
    pub(super) fn covered_of(&self, range: RankRange) -> u32 {
        let within = |release: &KnownRelease| {
            RankRange::new(release.claim.first.max(range.first), release.claim.end.min(range.end))
        };
        self.records.iter().flatten().fold(0_u32, |covered, release| covered.wrapping_add(within(release).len()))
    }

    /// Whether a release that has arrived from `from` is known. It has to be passed on to the `receivers`, which are
    /// none if it does not go along the tree.
    pub(super) fn knows(
        &mut self,
        claim: RankRange,
        from: Neighbours,
        receivers: Neighbours,
    ) -> Result<bool, Violation> {
        for release in self.records.iter_mut().flatten() {
            if mutant!("duplicate_kept") {
                continue;
            }
            if release.claim == claim {
                release.pending = release.pending.without(from);
                if !release.is_passed_on && !mutant!("known_not_passed_on") {
                    release.is_passed_on = !receivers.is_empty();
                    release.pending = release.pending.with(receivers);
                }
                return Ok(true);
            }
            if release.claim.overlaps(claim) {
                return Err(Violation);
            }
        }
        Ok(false)
    }

    /// Records a release, which is passed on to the neighbours `pending`. Its value is in `value`, or else in the buffer
    /// of the record, which is returned; `None` if there is no record.
    pub(super) fn add(
        &mut self,
        claim: RankRange,
        value: Option<Operand>,
        left: Epoch,
        pending: Neighbours,
    ) -> Option<Operand> {
        let (number, free) = self.records.iter_mut().enumerate().find(|(_, release)| release.is_none())?;
        let value = value.unwrap_or(Operand::Claim(number as u8));
        *free = Some(KnownRelease { claim, value, left, is_passed_on: !pending.is_empty(), pending });
        self.covered = self.covered.wrapping_add(claim.len());
        Some(value)
    }

    /// A neighbour lacks the releases from rank `gap` on.
    pub(super) fn request(&mut self, from: Neighbours, gap: u32) {
        for release in self.records.iter_mut().flatten() {
            if gap < release.claim.end {
                release.pending = release.pending.with(from);
            }
        }
    }

    /// The neighbours may lack the releases that do not go along the tree.
    pub(super) fn send_all(&mut self, to: Neighbours) {
        for release in self.records.iter_mut().flatten().filter(|release| !release.is_passed_on) {
            release.pending = release.pending.with(to);
        }
    }

    /// A release that has to be sent, which the caller changes when it sends it.
    pub(super) fn pending(&mut self) -> Option<&mut KnownRelease> {
        self.records.iter_mut().flatten().find(|release| !release.pending.is_empty())
    }

    /// The first rank that no release covers.
    pub(super) fn first_gap(&self) -> u32 {
        let mut next = 0;
        // Each release moves it once at most.
        for _ in 0..M {
            match self.starting_at(next) {
                Some(release) => next = release.claim.end,
                None => break,
            }
        }
        next
    }

    /// The least epoch that a rank of the claims had not left when it entered; `epoch` if all had left all before it.
    pub(super) fn least_left(&self, epoch: Epoch) -> Epoch {
        self.records.iter().flatten().fold(epoch, |least, release| least.earlier(release.left))
    }

    /// The next step that combines the values of claims that tile `size` ranks, in rank order.
    pub(super) fn combine(&mut self, size: u32) -> Option<Output> {
        if self.combined >= size {
            return None;
        }
        let first = self.next(self.combined)?;
        let is_start = self.combined == 0;
        self.combined = self.combined.wrapping_add(first.claim.len());
        if !is_start {
            return Some(Self::combined(Operand::Output, first.value));
        }
        let Some(second) = self.next(self.combined) else { return Some(Output::Copied(first.value)) };
        self.combined = self.combined.wrapping_add(second.claim.len());
        Some(Self::combined(first.value, second.value))
    }

    const fn combined(left: Operand, right: Operand) -> Output {
        Output::Combined(Combination { left, right, into: Operand::Output })
    }

    fn next(&self, first: u32) -> Option<KnownRelease> {
        if mutant!("claims_unordered") {
            return self.records.iter().flatten().nth(usize::from(first != 0)).copied();
        }
        self.starting_at(first)
    }

    fn starting_at(&self, first: u32) -> Option<KnownRelease> {
        self.records.iter().flatten().find(|release| release.claim.first == first).copied()
    }
}

#[cfg(test)]
mod tests {
    extern crate alloc;

    use alloc::{vec, vec::Vec};

    use super::*;

    fn add<const M: usize>(releases: &mut Releases<M>, first: u32, end: u32) -> Option<Operand> {
        releases.add(RankRange::new(first, end), None, Epoch(first), Neighbours::NONE)
    }

    fn knows<const M: usize>(releases: &mut Releases<M>, first: u32, end: u32) -> Result<bool, Violation> {
        releases.knows(RankRange::new(first, end), Neighbours::NONE, Neighbours::NONE)
    }

    const fn combined(left: Operand, right: Operand) -> Output {
        Output::Combined(Combination { left, right, into: Operand::Output })
    }

    #[test]
    fn values_are_combined_in_rank_order_whenever_they_arrive() {
        use Operand::{Claim, Output as Result};
        let mut releases = Releases::<3>::NONE;
        for (claim, (first, end)) in [(0, (7, 9)), (1, (0, 4)), (2, (4, 7))] {
            assert_eq!(add(&mut releases, first, end), Some(Claim(claim)));
        }
        assert_eq!((releases.covered(), releases.first_gap(), add(&mut releases, 9, 10)), (9, 9, None));
        let steps: Vec<_> = core::iter::from_fn(|| releases.combine(9)).collect();
        assert_eq!(steps, [combined(Claim(1), Claim(2)), combined(Result, Claim(0))]);
    }

    #[test]
    fn one_value_is_copied() {
        let mut releases = Releases::<2>::NONE;
        add(&mut releases, 0, 4);
        let steps: Vec<_> = core::iter::from_fn(|| releases.combine(4)).collect();
        assert_eq!(steps, vec![Output::Copied(Operand::Claim(0))]);
    }

    #[test]
    fn gaps_are_found_and_overlaps_refused() {
        let mut releases = Releases::<3>::NONE;
        add(&mut releases, 5, 8);
        add(&mut releases, 0, 2);
        assert_eq!((releases.first_gap(), releases.least_left(Epoch(9))), (2, Epoch(0)));
        assert_eq!(knows(&mut releases, 0, 2), Ok(true));
        assert_eq!(knows(&mut releases, 2, 5), Ok(false));
        assert_eq!(knows(&mut releases, 1, 3), Err(Violation));
    }
}
