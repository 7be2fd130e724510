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
