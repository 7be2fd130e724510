//! Scans: rank i combines the contributions of ranks 0 to i, or to i − 1, in rank order.

use unisono_core::collective::Verb;

use super::{Course, Item, output};

impl Course {
    pub(super) fn take_scan(&self, lap: u32, item: u32) -> Option<Item> {
        let count = self.rank + u32::from(self.verb() == Verb::Scan);
        let (at, bytes) = self.span(lap);
        Self::fold(count, item, output(at, bytes), |p| (self.slot(p, lap, 0, bytes), p, lap))
    }
}
