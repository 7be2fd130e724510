//! Which of its chunks a root writes a broadcast to.
//!
//! Those of its slots, one after the other, are more than the nearest caches hold. Where all have done with all that came before, as they
//! have behind a barrier, a short broadcast takes the first chunk instead, which its root and its readers have had last. The slot whose
//! own chunk that is waits until all have done with that broadcast, whatever it shows: reductions that pull use their chunk as scratch.
//! Where ranks share processors a root would wait there for ranks that do not run, and nothing is gained.

use super::Flags;

/// Bytes of the longest broadcast that always takes the first chunk, if it can. 32 KiB is what a processor's first cache holds, the
/// root's data included; beyond that it is slower, at 64 KiB by half.
const MOST: usize = 8 << 10;

impl Flags<'_> {
    /// Chooses the chunk of a step, the next one or one of the present collective. How many steps all others must have done with before it
    /// is written.
    #[inline]
    pub(super) fn choose_chunk(&mut self, step: u32) -> u32 {
        let (slot, oldest) = (self.boards.slot(step), step.wrapping_sub(self.boards.slots).wrapping_add(1));
        let may_be_first = self.course.is_short_broadcast()
            && self.course.has_one_chunk()
            && self.course.bytes() <= MOST
            && !self.boards.crowded;
        // Who runs ahead is not to look at all others for each broadcast.
        if may_be_first && (slot == 0 || !self.runs_ahead) {
            self.runs_ahead = cfg!(not(mutant = "chunk_untimely")) && self.have_done(step) != Ok(true);
            self.course.set_first(!self.runs_ahead);
        } else {
            self.course.set_first(false);
        }
        if self.course.is_first() {
            self.first_until = Some(step.wrapping_add(1));
            return oldest;
        }
        let is_in_turn = slot == 0 && cfg!(not(mutant = "chunk_retaken"));
        let until = self.first_until.filter(|until| is_in_turn && until.wrapping_sub(oldest).cast_signed() > 0);
        until.unwrap_or(oldest)
    }

    /// All have done with so many steps.
    pub(super) fn forget_first(&mut self, steps: u32) {
        self.first_until = self.first_until.filter(|until| steps.wrapping_sub(*until).cast_signed() < 0);
    }
}
