//! Alltoall, pairwise: in step p rank r is the partner of p − r, which is its partner, too, so that data flow in both directions between
//! two ranks at any time (Mamidala §9.2.3).

use unisono_core::collective::Place;

use super::choice::Way;
use super::{Course, Item, input, output};

impl Course {
    pub(super) fn make_alltoall(&self, lap: u32, item: u32) -> Option<Item> {
        self.make_scatter(lap, item)
    }

    pub(super) fn take_alltoall(&self, lap: u32, item: u32) -> Option<Item> {
        if item >= self.size {
            return None;
        }
        let partner = if item >= self.rank { item - self.rank } else { item + self.size - self.rank };
        let (of, own, (at, bytes)) = (partner as usize, self.rank as usize, self.span(lap));
        let into = output(of * self.bytes + at, bytes);
        Some(match self.way() {
            _ if partner == self.rank => Item::copy(input(own * self.bytes + at, bytes), into),
            Way::Pull => self.pull(partner, Place::Input, own * self.bytes + at, into).after(partner, lap),
            _ => Item::copy(self.slot(partner, lap, own * self.part, bytes), into).after(partner, lap),
        })
    }
}
