//! Barriers over one word per rank, its phase: loads and stores only.
//!
//! A barrier has a fixed number of phases, and a rank's word says how many it has shown since the segment was made; it wraps. Nobody
//! is more than one barrier ahead of anybody, so that words are compared around what is expected, and one that is farther away is
//! nonsense. No second word is needed: a rank that is already in the next barrier shows more, which suffices for this one.

mod flat;
mod pair;
mod shape;

pub use flat::FlatBarrier;
pub use pair::PairBarrier;
pub use shape::Shape;

use shape::Act;

use crate::collective_area::Boards;
use crate::segment::{Segment, Site, Word};

/// A rank's side of the barriers of its group, as a polled machine.
#[derive(Clone, Copy, Debug)]
pub struct Barrier<'a> {
    segment: Segment<'a>,
    boards: Boards,
    shape: Shape<'a>,
    rank: u32,
    /// The word before this barrier.
    base: u32,
    /// What comes next in it.
    at: u32,
}

/// What a barrier says when it is polled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// All have arrived.
    Complete,
    /// This rank has not shown enough.
    Awaits(u32),
    /// This rank shows what it cannot.
    Corrupt(u32),
}

impl<'a> Barrier<'a> {
    /// The barriers of a group, after `first` phases. Every rank has the same shape. `None`: the boards do not lie in the segment, or
    /// there is no such rank.
    pub fn new(segment: Segment<'a>, boards: Boards, rank: u32, shape: Shape<'a>, first: u32) -> Option<Self> {
        boards.words(segment)?;
        let at = shape.acts(rank, boards.ranks);
        (rank < boards.ranks).then_some(Self { segment, boards, shape, rank, base: first, at })
    }

    /// Enters the next barrier. The one before is complete.
    pub fn start(&mut self) {
        self.at = 0;
    }

    /// Goes on until a rank is missing: at most as many steps as the shape has acts.
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

    /// Whether a rank has shown this much; `None`: what it shows is nonsense.
    fn look(&self, peer: u32, phase: u32) -> Option<bool> {
        has_shown(self.word(peer)?.acquire(Site::PhaseLook), phase, self.shape.phases(self.boards.ranks))
    }
}

/// Whether a word has reached `phase`, where barriers have `phases`; `None`: it is farther away than any rank can be.
pub(crate) fn has_shown(word: u32, phase: u32, phases: u32) -> Option<bool> {
    let ahead = word.wrapping_sub(phase).cast_signed();
    (ahead.unsigned_abs() <= 2 * phases).then_some(ahead >= 0)
}

#[cfg(all(test, not(loom)))]
mod tests;
