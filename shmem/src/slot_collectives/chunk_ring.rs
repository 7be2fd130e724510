//! Chooses the chunk to which a root writes a broadcast: its slots' chunks in turn, or the first one again and again.
//!
//! All chunks together exceed the inner caches. Where all ranks have finished all previous steps, as after a barrier, a
//! small broadcast uses the first chunk instead, which is still in the caches of the root and its readers. The slot
//! that owns that chunk then waits until all have finished that broadcast, whatever it publishes: pulling reductions
//! use their chunk as scratch space. Where ranks are oversubscribed the root would wait there for ranks that are not
//! scheduled, so the chunks are used in turn.

use super::SlotCollectives;

/// Bytes of the longest broadcast that uses the first chunk: with the root's own data it fits a level-1 cache of 32
/// KiB.
const FIRST_CHUNK_MAX: usize = 8 << 10;

impl SlotCollectives<'_> {
    /// Chooses the chunk of `step`, the next step or one of the present collective. Returns how many steps all others
    /// must have finished before it is written.
    #[inline]
    pub(super) fn choose_chunk(&mut self, step: u32) -> u32 {
        let (slot, oldest) = (self.areas.slot(step), step.wrapping_sub(self.areas.slots).wrapping_add(1));
        let may_be_first = self.call.schedule.is_short_broadcast()
            && self.call.schedule.has_one_chunk()
            && self.call.schedule.bytes() <= FIRST_CHUNK_MAX
            && !self.areas.oversubscribed;
        // A root that runs ahead should not read all other ranks' words for each broadcast.
        if may_be_first && (slot == 0 || !self.runs_ahead) {
            self.runs_ahead = cfg!(not(mutant = "chunk_untimely")) && self.all_done(step) != Ok(true);
            self.call.schedule.set_first(!self.runs_ahead);
        } else {
            self.call.schedule.set_first(false);
        }
        if self.call.schedule.is_first() {
            self.first_chunk_until = Some(step.wrapping_add(1));
            return oldest;
        }
        let is_in_turn = slot == 0 && cfg!(not(mutant = "chunk_retaken"));
        let until = self.first_chunk_until.filter(|until| is_in_turn && until.wrapping_sub(oldest).cast_signed() > 0);
        until.unwrap_or(oldest)
    }

    /// Records that all ranks have finished this number of steps.
    pub(super) fn forget_first_chunk(&mut self, steps: u32) {
        self.first_chunk_until = self.first_chunk_until.filter(|until| steps.wrapping_sub(*until).cast_signed() < 0);
    }
}
