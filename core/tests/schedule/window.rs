//! Which of a rank's steps may be under way: those whose needs are done, at most 64 after the first that is not.

use unisono_core::schedule::Step;

/// Bit b stands for step base + b.
#[derive(Clone, Default)]
pub(crate) struct Window {
    /// The first step that is not done.
    pub(crate) base: usize,
    begun: u128,
    done: u128,
}

impl Window {
    /// The next step that may begin, from step `from` on.
    pub(crate) fn next(&self, steps: &[Step], from: usize) -> Option<usize> {
        let end = steps.len().min(self.base + 65);
        (from.max(self.base)..end).find(|i| {
            let b = i - self.base;
            if self.begun >> b & 1 == 1 {
                return false;
            }
            // Bit x: step i − 1 − x is done; what is before the base is.
            let inside = (self.done & ((1 << b) - 1)) as u64;
            let done = if b == 0 { 0 } else { inside.reverse_bits() >> (64 - b.min(64)) };
            steps[*i].needs & !(done | u64::MAX.checked_shl(b as u32).unwrap_or(0)) == 0
        })
    }

    pub(crate) fn begin(&mut self, i: usize) {
        self.begun |= 1 << (i - self.base);
    }

    pub(crate) fn finish(&mut self, i: usize) {
        self.done |= 1 << (i - self.base);
        let whole = self.done.trailing_ones();
        self.base += whole as usize;
        self.done >>= whole;
        self.begun >>= whole;
    }
}
