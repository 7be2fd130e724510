//! When a segment counts as lost: after more segments than the path reorders were sent later and acknowledged earlier,
//! never because time passed. The idea of RACK (RFC 8985), counted in datagrams instead of time.

/// By how many segments a path reorders.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Reordering {
    /// A segment counts as lost once more than this many segments overtook it.
    allowance: u16,
    /// Repairs that were necessary since the allowance last changed.
    repairs: u16,
    /// The largest number of segments that overtook one since then which was not lost.
    observed: u16,
}

impl Reordering {
    /// A path that keeps the order.
    pub const NONE: Self = Self { allowance: 0, repairs: 0, observed: 0 };

    /// Most segments of a window of `W` that may overtake one before it counts as lost.
    const fn max_allowance<const W: usize>() -> u16 {
        if W < 8 { W as u16 / 2 } else { W as u16 / 4 }
    }

    /// How many segments of a window of `W` overtook one, after `more` did; saturates above every allowance.
    pub(super) fn count<const W: usize>(overtaken: u16, more: u32) -> u16 {
        let most = u32::from(Self::max_allowance::<W>()).wrapping_add(1);
        u32::from(overtaken).saturating_add(more).min(most) as u16
    }

    /// Whether a segment is lost that `overtaken` others overtook.
    pub(super) const fn shows_loss(&self, overtaken: u16) -> bool {
        overtaken > self.allowance
    }

    /// A segment arrived after `overtaken` others that were sent later.
    pub(super) fn handle_late_arrival(&mut self, overtaken: u16) {
        self.observed = self.observed.max(overtaken);
    }

    /// A resent segment of a window of `W` had been lost: after `W` such repairs the allowance shrinks.
    pub(super) fn handle_needed_repair<const W: usize>(&mut self) {
        if self.allowance == 0 {
            return;
        }
        self.repairs = self.repairs.wrapping_add(1);
        if usize::from(self.repairs) >= W {
            self.repairs = 0;
            self.allowance = self.allowance.saturating_sub(1).max(self.observed);
            self.observed = 0;
        }
    }

    /// A resent segment of a window of `W` had not been lost.
    pub(super) fn handle_spurious_repair<const W: usize>(&mut self) {
        self.repairs = 0;
        self.allowance = self.allowance.saturating_add(1).min(Self::max_allowance::<W>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path that lets this number of segments overtake one.
    fn allowing(allowance: u16) -> Reordering {
        Reordering { allowance, ..Reordering::NONE }
    }

    #[test]
    fn allowance_grows_up_to_a_part_of_the_window() {
        fn most<const W: usize>() -> u16 {
            let mut path = Reordering::NONE;
            (0..2 * W).for_each(|_| path.handle_spurious_repair::<W>());
            path.allowance
        }
        assert_eq!([most::<2>(), most::<4>(), most::<8>(), most::<16>(), most::<64>()], [1, 2, 2, 4, 16]);
        assert_eq!([Reordering::count::<8>(1, 1), Reordering::count::<8>(1, u32::MAX)], [2, 3]);
    }

    #[test]
    fn allowance_shrinks_after_as_many_needed_repairs_as_the_window_has_segments() {
        let mut path = allowing(3);
        (1..8).for_each(|_| path.handle_needed_repair::<8>());
        assert_eq!(path.allowance, 3);
        path.handle_needed_repair::<8>();
        assert_eq!((path.allowance, path.repairs), (2, 0));
        // But not below what was observed since.
        path.handle_late_arrival(2);
        (0..8).for_each(|_| path.handle_needed_repair::<8>());
        assert_eq!((path.allowance, path.observed), (2, 0));
        (0..16).for_each(|_| path.handle_needed_repair::<8>());
        assert_eq!(path.allowance, 0);
    }

    #[test]
    fn a_path_that_keeps_the_order_counts_no_repairs() {
        let mut path = Reordering::NONE;
        (0..100).for_each(|_| path.handle_needed_repair::<8>());
        assert_eq!(path, Reordering::NONE);
        assert!(path.shows_loss(1) && !path.shows_loss(0));
    }
}
