//! Transformations of send windows for the model checker, in which only distances between numbers have a meaning.

use super::SendWindow;
use crate::device::{DeviceQueue, Ticket};
use crate::time::Time;
use crate::window::segment_ring::SegmentRef;

impl<T: Time, const W: usize, const BITS: u32> SendWindow<T, W, BITS> {
    /// Shifts every stored instant, for models whose time is relative.
    #[must_use]
    pub fn with_times(mut self, shift: impl Fn(T::Instant) -> T::Instant) -> Self {
        self.timer = self.timer.with_deadline(shift);
        self
    }

    /// Numbers the latest probe 0, for models of several rails, which count their own.
    #[must_use]
    pub fn with_numbers_from_latest(mut self) -> Self {
        self.timer = self.timer.with_numbers_from_latest();
        self
    }

    /// Lowers every PSN by `by`, renames the parts and turns the ring so that the base is entry 0, for models whose
    /// numbers are relative.
    #[must_use]
    pub fn with_numbers(mut self, by: u32, rename: impl Fn(SegmentRef) -> SegmentRef) -> Self {
        self.ring = self.ring.with_numbers(by, rename);
        self.credit = self.credit.back(by);
        self
    }

    /// Renumbers the queue's uncompleted postings, for models whose tickets count from the oldest of them.
    #[must_use]
    pub fn with_tickets(mut self, queue: DeviceQueue, renumber: impl Fn(Ticket) -> Ticket) -> Self {
        self.ring = self.ring.with_tickets(queue, renumber);
        self
    }
}
