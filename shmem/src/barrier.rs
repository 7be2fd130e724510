//! Barriers over one word per rank, its phase, with loads and stores only.
//!
//! A barrier has a fixed number of phases, and a rank's word counts the phases that it has published since the segment
//! was created; it wraps. No rank is more than one barrier ahead of another, so words are compared around the expected
//! phase, and one that is further away is corrupt. No second word is needed: a rank that is already in the next barrier
//! has published a higher phase, which suffices for this one.

mod flat;
mod pair;
mod shape;

pub use flat::FlatBarrier;
pub use pair::PairBarrier;
pub use shape::Shape;

use shape::Act;

use crate::collective_area::Boards;
use crate::segment::{Segment, Site, Word};

/// One rank's state machine for the barriers of its group.
#[derive(Clone, Copy, Debug)]
pub struct Barrier<'a> {
    segment: Segment<'a>,
    boards: Boards,
    shape: Shape<'a>,
    rank: u32,
    /// The word before this barrier.
    base: u32,
    /// The next action in it.
    at: u32,
}

/// The result of polling a barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// All have arrived.
    Complete,
    /// This rank has not reached the awaited phase.
    Awaits(u32),
    /// This rank's phase is impossible.
    Corrupt(u32),
}

impl<'a> Barrier<'a> {
    /// The barriers of a group, after `first` phases. Every rank has the same shape. `None`: the areas do not lie in
    /// the segment, or there is no such rank.
    pub fn new(segment: Segment<'a>, boards: Boards, rank: u32, shape: Shape<'a>, first: u32) -> Option<Self> {
        boards.words(segment)?;
        let at = shape.acts(rank, boards.ranks);
        (rank < boards.ranks).then_some(Self { segment, boards, shape, rank, base: first, at })
    }

    /// Enters the next barrier. The one before is complete.
    pub fn start(&mut self) {
        self.at = 0;
    }

    /// Proceeds until a rank is missing: at most as many steps as the shape has actions.
    pub fn poll(&mut self) -> Arrival {
        loop {
            match self.shape.act(self.rank, self.boards.ranks, self.at) {
                Act::Show(phase) => {
                    if let Some(word) = self.word(self.rank) {
                        word.publish(self.base.wrapping_add(phase), Site::PhaseShow);
                    }
                }
                Act::Await(peer, phase) => match self.look(peer, self.base.wrapping_add(phase)) {
                    Some(true) => {}
                    Some(false) => return Arrival::Awaits(peer),
                    None => return Arrival::Corrupt(peer),
                },
                Act::End => return Arrival::Complete,
            }
            self.at += 1;
            if self.at == self.shape.acts(self.rank, self.boards.ranks) {
                self.base = self.base.wrapping_add(self.shape.phases(self.boards.ranks));
                return Arrival::Complete;
            }
        }
    }

    /// The word of a rank.
    pub fn word(&self, rank: u32) -> Option<&'a Word> {
        self.segment.word(self.boards.phase(rank))
    }

    /// Whether a rank has reached this phase; `None`: its phase is impossible.
    fn look(&self, peer: u32, phase: u32) -> Option<bool> {
        has_shown(self.word(peer)?.acquire(Site::PhaseLook), phase, self.shape.phases(self.boards.ranks))
    }
}

/// Whether a word has reached `phase`, where a barrier has `phases` phases; `None`: it is further away than any rank
/// can be.
pub(crate) fn has_shown(word: u32, phase: u32, phases: u32) -> Option<bool> {
    let ahead = word.wrapping_sub(phase).cast_signed();
    (ahead.unsigned_abs() <= 2 * phases).then_some(ahead >= 0)
}

#[cfg(all(test, not(loom)))]
mod tests;
