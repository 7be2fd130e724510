//! Allreduce: the same bits on every rank.
//!
//! Flat: every rank combines all contributions, in rank order. Parallel and cyclic (Mamidala §9.2.2), in pairs of
//! rounds: every rank writes its contribution, combines its share of all of them into its next slot, then reads all
//! shares. Pulled: the same without slots, once; of two ranks each combines both contributions, so that neither writes
//! what the other has to read.

use unisono_core::collective::{Order, Place};

use super::{Item, SlotSchedule, input, output};
use crate::slot_collectives::selection::SlotAlgorithm;

impl SlotSchedule {
    pub(super) fn read_allreduce(&self, round: u32, item: u32) -> Option<Item> {
        match self.algorithm() {
            SlotAlgorithm::Flat | SlotAlgorithm::External => {
                let (at, bytes) = self.round_span(round);
                // The output may be the input: it is written with the second operand.
                let own = |p| p == self.rank && p < 2;
                let operand = |p| if own(p) { input(at, bytes) } else { self.slot(p, round, 0, bytes) };
                Self::fold(self.size, item, output(at, bytes), |p| (operand(p), p, round))
            }
            SlotAlgorithm::Parallel => self.read_exchange(round, item),
            SlotAlgorithm::Pull if self.is_whole() => {
                Self { order: Order::Rank, ..*self }.fold_pulled(0, self.bytes, 0, item)
            }
            SlotAlgorithm::Pull => {
                if round == 0 {
                    let (at, bytes) = self.share(self.rank, self.bytes);
                    return self.fold_pulled(at, bytes, at, item);
                }
                if item + 1 >= self.size {
                    return None;
                }
                let of = self.after(item + 1);
                let (at, bytes) = self.share(of, self.bytes);
                Some(match bytes {
                    0 => Item::NOTHING,
                    _ => self.pull(of, Place::Output, at, output(at, bytes)).after(of, 1),
                })
            }
        }
    }

    /// Even rounds: the contribution. Odd rounds: this rank's share of all contributions.
    pub(super) fn write_exchange(&self, round: u32, item: u32) -> Option<Item> {
        let (at, bytes) = self.round_span(round / 2);
        if round.is_multiple_of(2) {
            return (item == 0).then(|| Item::copy(input(at, bytes), self.slot(self.rank, round, 0, bytes)));
        }
        let (first, count) = self.share(self.rank, bytes);
        if count == 0 {
            return None;
        }
        Self::fold(self.size, item, self.slot(self.rank, round, 0, count), |p| {
            let of = self.operand(p);
            (self.slot(of, round - 1, first, count), of, round - 1)
        })
    }

    /// Odd rounds: the shares of all ranks.
    pub(super) fn read_exchange(&self, round: u32, item: u32) -> Option<Item> {
        if round.is_multiple_of(2) || item >= self.size {
            return None;
        }
        let (of, (at, bytes)) = (self.after(item), self.round_span(round / 2));
        let (first, count) = self.share(of, bytes);
        let item = match count {
            0 => Item::NOTHING,
            _ => Item::copy(self.slot(of, round, 0, count), output(at + first, count)),
        };
        Some(item.after(of, round))
    }
}
