//! A rank's board: what it shows to all others in collectives.
//!
//! ```text
//! 0          its phase in barriers, and the line that it moves to
//! 1 × line   how many steps it has done with: the others' slots of earlier ones are free as far as it goes
//! 2 × line   slots: stamp, sign, inline payload; the slot of step s is s mod slots
//!            lines that the phase may move to
//! page       bulk: a chunk for every slot
//! ```

use crate::layout::{Layout, PAGE, Waiting};
use crate::segment::{STRIDE, Segment, Site, Word};

/// Bytes of a slot before its payload: the stamp, which is the step's number plus one, and the sign of the collective.
pub const SLOT_HEAD: usize = 8;
/// Steps that a rank may be ahead of the slowest.
pub const SLOTS: u32 = 16;

/// Where the boards of a group lie, one after another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Boards {
    /// Ranks of the group.
    pub ranks: u32,
    /// First byte of rank 0's.
    pub at: usize,
    /// Bytes of each.
    pub stride: usize,
    /// Bytes between words that different ranks write.
    pub line: usize,
    /// Slots of each, a power of two.
    pub slots: u32,
    /// Bytes of a slot's payload, at least 16.
    pub inline: usize,
    /// Bytes before the first chunk of bulk.
    pub bulk: usize,
    /// Bytes of a chunk.
    pub chunk: usize,
    /// Whether ranks share cores.
    pub crowded: bool,
}

impl Boards {
    /// The boards of a layout.
    pub fn of(layout: &Layout) -> Self {
        let stride = layout.sizes().board as usize;
        let line = STRIDE;
        // An odd number of strides: the slots of one step spread over a cache's sets.
        let slot = STRIDE * if stride >= 1 << 18 { 9 } else { 1 };
        let bulk = (2 * line + SLOTS as usize * slot).next_multiple_of(PAGE).min(stride);
        let chunk = (stride - bulk) / SLOTS as usize / STRIDE * STRIDE;
        let at = layout.board(0).map_or(0, |area| area.at);
        let (ranks, crowded) = (layout.sizes().ranks, layout.sizes().waiting == Waiting::Shared);
        Self { ranks, at, stride, line, slots: SLOTS, inline: slot - SLOT_HEAD, bulk, chunk, crowded }
    }

    const fn board(&self, rank: u32) -> usize {
        self.at + rank as usize * self.stride
    }

    /// Byte of a rank's phase in barriers.
    pub const fn phase(&self, rank: u32) -> usize {
        self.board(rank)
    }

    /// Lines that a rank's phase may lie on.
    pub const fn lines(&self) -> u32 {
        1 + (self.bulk.saturating_sub(self.slots_end()) / STRIDE) as u32
    }

    /// Byte of a rank's phase on one of these lines; 0 is where it begins.
    pub const fn phase_on(&self, rank: u32, line: u32) -> usize {
        match line.checked_sub(1) {
            None => self.phase(rank),
            Some(behind) => self.board(rank) + self.slots_end() + behind as usize * STRIDE,
        }
    }

    /// Byte of the line that a rank's phase moves to, plus one; 0: it has not said.
    pub const fn moves_to(&self, rank: u32) -> usize {
        self.board(rank) + 4
    }

    /// Bytes of a board before the end of its slots.
    const fn slots_end(&self) -> usize {
        2 * self.line + self.slots as usize * (self.inline + SLOT_HEAD)
    }

    /// Byte of the number of steps that a rank has done with.
    pub const fn done(&self, rank: u32) -> usize {
        self.board(rank) + self.line
    }

    /// Which slot a step has.
    pub const fn slot(&self, step: u32) -> u32 {
        step & (self.slots - 1)
    }

    /// Byte of a rank's stamp for a step.
    pub const fn stamp(&self, rank: u32, step: u32) -> usize {
        self.board(rank) + 2 * self.line + self.slot(step) as usize * (self.inline + SLOT_HEAD)
    }

    /// Byte of a rank's inline payload of a step.
    pub const fn payload(&self, rank: u32, step: u32) -> usize {
        self.stamp(rank, step) + SLOT_HEAD
    }

    /// Byte of a rank's chunk of a step.
    pub const fn bulk(&self, rank: u32, step: u32) -> usize {
        self.board(rank) + self.bulk + self.slot(step) as usize * self.chunk
    }

    /// Bytes up to the end of the last board.
    pub const fn end(&self) -> usize {
        self.board(self.ranks)
    }

    /// All words of all boards, if they lie in the segment; a rank's begin at a multiple of the stride.
    pub(crate) fn words<'a>(&self, segment: Segment<'a>) -> Option<&'a [Word]> {
        segment.words(self.at, self.stride.checked_mul(self.ranks as usize)? / 4)
    }

    /// Makes every word as it is when `step` collective steps and as many phases have passed. For whoever made the segment, where it
    /// does not begin at zero.
    pub fn write_first(&self, segment: Segment<'_>, step: u32) -> Option<()> {
        for rank in 0..self.ranks {
            for at in [self.phase(rank), self.done(rank)] {
                segment.word(at)?.publish(step, Site::Plain);
            }
            for slot in 0..self.slots {
                segment.word(self.stamp(rank, slot))?.publish(step, Site::Plain);
            }
        }
        Some(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::layout::{RANKS_MAX, Sizes};

    #[test]
    fn slots_and_chunks_lie_within_the_board() {
        for ranks in 1..=RANKS_MAX {
            let layout = Layout::new(Sizes::of_node(ranks, Waiting::Shared)).unwrap();
            let boards = Boards::of(&layout);
            let last = boards.slots - 1;
            assert!(boards.stamp(0, last) + SLOT_HEAD + boards.inline <= boards.at + boards.bulk, "{ranks}");
            assert!(boards.bulk(0, last) + boards.chunk <= boards.board(1), "{ranks}");
            assert!(boards.lines() >= 8 && boards.phase_on(0, boards.lines()) <= boards.at + boards.bulk, "{ranks}");
            assert!(boards.chunk >= 2048 && boards.end() <= layout.bytes(), "{ranks}: {boards:?}");
            assert_eq!(boards.board(ranks - 1), layout.board(ranks - 1).unwrap().at);
        }
    }
}
