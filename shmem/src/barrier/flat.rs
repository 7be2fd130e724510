//! The flat barrier: one release store, then an acquire poll of each other rank's word.
//!
//! Where ranks share cores, the last rank to arrive continues at once, so each core switches between ranks once per
//! barrier and rank but one. A rank that is about to write data for all others may arrive *last* on purpose: it then
//! leaves first, and the others find its data when they run. The other ranks do not need to know.

use super::{PairBarrier, has_reached};
use crate::collective_area::{CollectiveAreas, Members};
use crate::segment::{Segment, Site, Word};

/// A flat barrier without state: the caller keeps the epoch.
#[derive(Clone, Copy, Debug)]
pub struct FlatBarrier<'a> {
    own: &'a Word,
    words: &'a [Word],
    members: Members,
    stride: usize,
    /// Word offsets within an area of the first rank's word, and of the others'.
    word_offsets: [usize; 2],
}

impl<'a> FlatBarrier<'a> {
    /// The barriers of a group. `None`: the areas do not lie in the segment, or there is no such rank.
    pub fn new(segment: Segment<'a>, areas: &CollectiveAreas, rank: u32) -> Option<Self> {
        Self::on_lines(segment, areas, rank, [0; 2])
    }

    /// As [`new`](Self::new), with the words on these lines of the areas: the first rank's, and the others'. `None`
    /// also if there is no such line.
    pub fn on_lines(segment: Segment<'a>, areas: &CollectiveAreas, rank: u32, lines: [u32; 2]) -> Option<Self> {
        let words = areas.words(segment)?;
        if rank >= areas.ranks || lines.iter().any(|line| *line >= areas.phase_lines()) {
            return None;
        }
        let [first, others] = lines;
        let own = segment.word(areas.phase_on_line(rank, if rank == 0 { first } else { others }))?;
        let places = lines.map(|line| (areas.phase_on_line(0, line) - areas.phase(0)) / 4);
        Some(Self { own, words, members: areas.members, stride: areas.stride / 4, word_offsets: places })
    }

    #[inline(always)]
    fn word(&self, rank: usize) -> Option<&'a Word> {
        let [first, others] = self.word_offsets;
        let member = self.members.get(rank as u32)? as usize;
        self.words.get(member * self.stride + if rank == 0 { first } else { others })
    }

    /// Publishes that this rank has arrived for the `epoch`-th time; the number wraps.
    #[inline(always)]
    pub fn arrive(&self, epoch: u32) {
        self.own.publish(epoch, Site::Arrive);
    }

    /// Whether all have arrived, including ranks that are already in the next barrier. Polls the ranks from `from` on,
    /// and advances `from` past those that have arrived.
    #[inline(always)]
    pub fn poll(&self, epoch: u32, from: &mut usize) -> bool {
        while let Some(word) = self.word(*from) {
            if word.acquire(Site::Arrived).wrapping_sub(epoch) > 1 {
                return false;
            }
            *from += 1;
        }
        true
    }

    /// As [`poll`](Self::poll), before this rank arrives: whether all others have. It then arrives and need not poll
    /// again.
    #[inline]
    pub fn poll_others(&self, epoch: u32, from: &mut usize) -> bool {
        while let Some(word) = self.word(*from) {
            if !core::ptr::eq(word, self.own) && word.acquire(Site::OthersArrived).wrapping_sub(epoch) > 1 {
                return false;
            }
            *from += 1;
        }
        true
    }

    /// After a poll that returned false: the missing rank, its word and the value of that. `None`: it has arrived
    /// meanwhile.
    pub fn missing(&self, epoch: u32, from: usize) -> Option<(u32, &'a Word, u32)> {
        let word = self.word(from)?;
        let seen = word.acquire(Site::Plain);
        (seen.wrapping_sub(epoch) > 1).then_some((from as u32, word, seen))
    }

    /// Whether a rank has arrived; `None`: its word is corrupt.
    pub fn has_arrived(&self, rank: u32, epoch: u32) -> Option<bool> {
        has_reached(self.word(rank as usize)?.acquire(Site::Plain), epoch, 1)
    }

    /// The same barrier for exactly two ranks. `None`: there are more.
    pub fn pair(&self) -> Option<PairBarrier<'a>> {
        let [first, second] = [self.word(0)?, self.word(1)?];
        let other = if core::ptr::eq(first, self.own) { second } else { first };
        self.word(2).is_none().then_some(PairBarrier { own: self.own, other })
    }

    /// This rank's word.
    pub const fn own(&self) -> &'a Word {
        self.own
    }
}
