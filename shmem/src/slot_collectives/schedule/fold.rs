//! Folds contributions, one operand after another.

use unisono_core::collective::{Order, Piece, Place};

use super::{Item, SlotSchedule, input, whole_elements};
use crate::slot_collectives::data_op::DataOp;

impl SlotSchedule {
    /// Combines `count` operands: `operand(p)` is the p-th, the rank that publishes it and the round in which it does.
    pub(super) fn fold(count: u32, item: u32, into: Piece, operand: impl Fn(u32) -> (Piece, u32, u32)) -> Option<Item> {
        if item >= count {
            return None;
        }
        let (right, of, round) = operand(item);
        let op = match item {
            0 if count == 1 => Some(DataOp::Copy { from: right, into }),
            0 => None,
            1 => Some(DataOp::Combine { left: operand(0).0, right, into }),
            _ => Some(DataOp::Combine { left: into, right, into }),
        };
        Some(Item { wait_for: Some((of, round)), op })
    }

    /// The rank whose contribution this rank combines as the p-th.
    pub(super) const fn operand(&self, p: u32) -> u32 {
        match self.order {
            Order::Any => self.after(p),
            Order::Rank | Order::Fixed => p,
        }
    }

    /// Combines the bytes `from` to `from + bytes` of all inputs, which were exposed in round 0, into the output from
    /// `to` on: block by block, each operand being pulled into the chunk of this rank's slot of round 0 and combined
    /// there. In any order the result accumulates in the output, which may be the input, since that is consumed first;
    /// in rank order it accumulates next to the operands.
    pub(super) fn fold_pulled(&self, from: usize, bytes: usize, to: usize, item: u32) -> Option<Item> {
        let (block, position, combines) = (item / 2 / self.divisor(), item / 2 % self.divisor(), item % 2 == 1);
        let half = whole_elements(self.areas.chunk / 2, self.grain);
        let at = (block as usize).checked_mul(half).filter(|&at| at < bytes)?;
        let count = half.min(bytes - at);
        let (own, into) = (input(from + at, count), Piece::new(Place::Output, to + at, count));
        let chunk = |at| Piece::new(Place::Shared, self.areas.bulk(self.rank, self.base) + at, count);
        let sum = if self.order == Order::Any { into } else { chunk(0) };
        let of = self.operand(position);
        let pulled = if position == 0 { chunk(0) } else { chunk(half) };
        Some(match (combines, position) {
            (false, _) if of == self.rank => Item::NOTHING,
            (false, _) => self.pull(of, Place::Input, from + at, pulled).after(of, 0),
            (true, 0) => Item::NOTHING,
            (true, _) => {
                let left = match position {
                    1 if self.operand(0) == self.rank => own,
                    1 => chunk(0),
                    _ => sum,
                };
                let right = if of == self.rank { own } else { pulled };
                let into = if position + 1 == self.size { into } else { sum };
                Item::op(DataOp::Combine { left, right, into })
            }
        })
    }

    /// A rank's share of `bytes` bytes: offset and length. Shares begin at cache lines if elements do.
    pub(super) fn share(&self, rank: u32, bytes: usize) -> (usize, usize) {
        let unit = if 64_usize.is_multiple_of(self.grain) { 64 } else { self.grain.max(1) };
        let each = bytes.div_ceil(unit).div_ceil(self.divisor() as usize) * unit;
        let at = (rank as usize * each).min(bytes);
        (at, each.min(bytes - at))
    }
}
