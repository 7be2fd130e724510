//! The pool of grants and placements.

use crate::endpoint::placement::{Placement, PlacementState};
use crate::ids::PlacementId;
use crate::list::List;
use crate::pool::Pool;

/// Placements: free, granted, and filled.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(in crate::endpoint) struct PlacementPool<P> {
    records: P,
    free: List,
    /// Filled placements, to be reported.
    delivered: List,
}

impl<P: Pool<Placement>> PlacementPool<P> {
    pub(in crate::endpoint) fn new(mut records: P) -> Self {
        let free = List::of_all(records.as_mut(), |placement| &mut placement.link);
        Self { records, free, delivered: List::EMPTY }
    }

    #[inline]
    pub(in crate::endpoint) fn as_slice(&self) -> &[Placement] {
        self.records.as_ref()
    }

    #[inline]
    pub(in crate::endpoint) fn as_mut_slice(&mut self) -> &mut [Placement] {
        self.records.as_mut()
    }

    #[inline]
    pub(in crate::endpoint) const fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// The free placements.
    pub(in crate::endpoint) const fn free(&self) -> List {
        self.free
    }

    /// The filled placements that are not yet reported.
    #[cfg(debug_assertions)]
    pub(in crate::endpoint) const fn delivered(&self) -> List {
        self.delivered
    }

    /// Takes a free placement, and fills it with what `grant` makes of its generation.
    pub(in crate::endpoint) fn take(&mut self, grant: impl FnOnce(u16) -> Placement) -> Option<PlacementId> {
        let records = self.records.as_mut();
        let i = self.free.pop(records, |placement| &mut placement.link)?;
        let placement = records.get_mut(i as usize)?;
        let generation = placement.generation;
        *placement = grant(generation);
        Some(PlacementId::new(i, generation))
    }

    /// Withdraws a grant. Returns false if it is not outstanding.
    pub(in crate::endpoint) fn withdraw(&mut self, placement: PlacementId) -> bool {
        let records = self.records.as_mut();
        match placement.among_mut(records) {
            Some(record) if matches!(record.state, PlacementState::Granted(_) | PlacementState::Open { .. }) => {
                record.free(true);
                self.free.push_front(records, placement.record() as u32, |record| &mut record.link);
                true
            }
            _ => false,
        }
    }

    /// Counts datagrams of an open placement as delivered.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    pub(in crate::endpoint) fn count_delivered(&mut self, placement: PlacementId, datagrams: u32) {
        let records = self.records.as_mut();
        let Some(record) = placement.among_mut(records) else { return };
        let PlacementState::Open { bytes, left, .. } = &mut record.state else { return };
        *left = left.saturating_sub(datagrams);
        if *left == 0 {
            record.state = PlacementState::Filled { bytes: *bytes };
            self.delivered.push(records, placement.record() as u32, |placement| &mut placement.link);
        }
    }

    /// Takes the next filled placement, whose record is free from now on, and its length.
    pub(in crate::endpoint) fn pop_delivered(&mut self) -> Option<(PlacementId, u32)> {
        let records = self.records.as_mut();
        let i = self.delivered.pop(records, |placement| &mut placement.link)?;
        let placement = records.get_mut(i as usize)?;
        let bytes = if let PlacementState::Filled { bytes } = placement.state { bytes } else { 0 };
        let id = PlacementId::new(i, placement.generation);
        placement.free(false);
        self.free.push_front(records, i, |placement| &mut placement.link);
        Some((id, bytes))
    }
}
