//! Alltoall, pairwise: in item p the partner of rank r is rank p − r, whose partner is r, so that data flow in both
//! directions between two ranks at any time (Mamidala §9.2.3).

use unisono_core::collective::Place;

use super::{Item, SlotSchedule, input, output};
use crate::slot_collectives::selection::SlotAlgorithm;

impl SlotSchedule {
    pub(super) fn write_alltoall(&self, round: u32, item: u32) -> Option<Item> {
        if self.publishes_own_block() {
            return self.write_scatter(round, item);
        }
        let ((at, bytes), of) = (self.round_span(round), self.after(item + 1));
        (item + 1 < self.size).then(|| {
            let into = self.slot(self.rank, round, self.block_at(self.rank, of), bytes);
            Item::copy(input(of as usize * self.bytes + at, bytes), into)
        })
    }

    pub(super) fn read_alltoall(&self, round: u32, item: u32) -> Option<Item> {
        if item >= self.size {
            return None;
        }
        let partner = self.partner(item);
        let (of, own, (at, bytes)) = (partner as usize, self.rank as usize, self.round_span(round));
        let into = output(of * self.bytes + at, bytes);
        Some(match self.algorithm() {
            _ if partner == self.rank => Item::copy(input(own * self.bytes + at, bytes), into),
            SlotAlgorithm::Pull => self.pull(partner, Place::Input, own * self.bytes + at, into).after(partner, round),
            _ => Item::copy(self.slot(partner, round, self.block_at(partner, self.rank), bytes), into)
                .after(partner, round),
        })
    }

    /// Whether all blocks are published as one piece, this rank's own included.
    pub(super) const fn publishes_own_block(&self) -> bool {
        self.bytes.saturating_mul(self.size as usize) <= self.areas.chunk || self.inline
    }

    /// Offset within a rank's published payload of the block for another rank.
    const fn block_at(&self, of: u32, to: u32) -> usize {
        let before = if to > of && !self.publishes_own_block() { to - 1 } else { to };
        before as usize * self.round_bytes
    }

    /// The rank whose block an item reads. Where blocks are pulled a rank's own comes last: the others wait until
    /// theirs have been pulled.
    fn partner(&self, item: u32) -> u32 {
        let of = |step: u32| if step >= self.rank { step - self.rank } else { step + self.size - self.rank };
        if self.algorithm() != SlotAlgorithm::Pull {
            return of(item);
        }
        match item + 1 == self.size {
            true => self.rank,
            false => of(item + u32::from(item >= 2 * self.rank % self.divisor())),
        }
    }
}
