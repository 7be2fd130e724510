//! The barrier of ranks that all have a core: one release store, then an acquire look at each of the others. And that of ranks that
//! share cores, *gathered* by rank 0: it looks at each of the others, then shows that it has arrived, which is all that they look for.
//! There rank 0 leaves first, so that whoever comes after it finds what it has written meanwhile, and nobody else is woken twice.

use super::has_shown;
use crate::board::Boards;
use crate::segment::{Segment, Site, Word};

/// Flat flags, free-standing: whoever waits keeps the epoch.
#[derive(Clone, Copy, Debug)]
pub struct FlatBarrier<'a> {
    own: &'a Word,
    words: &'a [Word],
    stride: usize,
}

impl<'a> FlatBarrier<'a> {
    /// The barriers of a group. `None`: the boards do not lie in the segment, or there is no such rank.
    pub fn new(segment: Segment<'a>, boards: &Boards, rank: u32) -> Option<Self> {
        let words = boards.words(segment)?;
        let own = segment.word(boards.phase(rank)).filter(|_| rank < boards.ranks)?;
        Some(Self { own, words, stride: boards.stride / 4 })
    }

    /// Shows that this rank has arrived for the `epoch`-th time; the number wraps.
    #[inline(always)]
    pub fn arrive(&self, epoch: u32) {
        self.own.publish(epoch, Site::Arrive);
    }

    /// Whether all have arrived: ranks that are already in the next barrier included. Looks at each rank from `from` on, and keeps there
    /// how far it came.
    #[inline(always)]
    pub fn poll(&self, epoch: u32, from: &mut usize) -> bool {
        while let Some(word) = self.words.get(*from) {
            if word.acquire(Site::Arrived).wrapping_sub(epoch) > 1 {
                return false;
            }
            *from += self.stride;
        }
        true
    }

    /// Whether all have arrived, of a gathered barrier. Rank 0 arrives by this, the others have before.
    #[inline]
    pub fn poll_gathered(&self, epoch: u32, from: &mut usize) -> bool {
        let is_first = self.words.first().is_some_and(|word| core::ptr::eq(word, self.own));
        if !is_first {
            *from = 0;
            return self.words.first().is_some_and(|word| word.acquire(Site::Arrived).wrapping_sub(epoch) <= 1);
        }
        *from = (*from).max(self.stride);
        let all = self.poll(epoch, from);
        if all {
            self.arrive(epoch);
        }
        all
    }

    /// The rank that a poll which returned false came to, its word, and what that showed; `None`: it has arrived meanwhile.
    pub fn missing(&self, epoch: u32, from: usize) -> Option<(u32, &'a Word, u32)> {
        let word = self.words.get(from)?;
        let seen = word.acquire(Site::Arrived);
        let rank = from.checked_div(self.stride)? as u32;
        (seen.wrapping_sub(epoch) > 1).then_some((rank, word, seen))
    }

    /// Whether a rank has arrived; `None`: its word is nonsense.
    pub fn has_arrived(&self, rank: u32, epoch: u32) -> Option<bool> {
        has_shown(self.words.get(rank as usize * self.stride)?.acquire(Site::Arrived), epoch, 1)
    }

    /// This rank's word.
    pub const fn own(&self) -> &'a Word {
        self.own
    }
}
