//! Scans: rank i combines the contributions of ranks 0 to i, or to i − 1, in rank order.

use unisono_core::collective::CollectiveKind;

use super::{Item, SlotSchedule, output};

impl SlotSchedule {
    pub(super) fn read_scan(&self, round: u32, item: u32) -> Option<Item> {
        let count = self.rank + u32::from(self.verb() == CollectiveKind::Scan);
        let (at, bytes) = self.round_span(round);
        Self::fold(count, item, output(at, bytes), |p| (self.slot(p, round, 0, bytes), p, round))
    }
}
