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

use shape::Action;

use crate::collective_area::CollectiveAreas;
use crate::segment::{Segment, Site, Word};

/// One rank's state machine for the barriers of its group.
#[derive(Clone, Copy, Debug)]
pub struct Barrier<'a> {
    segment: Segment<'a>,
    areas: CollectiveAreas,
    shape: Shape<'a>,
    rank: u32,
    /// The word before this barrier.
    base: u32,
    /// The next action in it.
    action: u32,
}

/// The result of polling a barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BarrierStatus {
    /// All have arrived.
    Complete,
    /// This rank has not reached the awaited phase.
    WaitsFor(u32),
    /// This rank's phase is impossible.
    Corrupt(u32),
}

impl<'a> Barrier<'a> {
    /// The barriers of a group, after `first` phases. Every rank has the same shape. `None`: the areas do not lie in
    /// the segment, or there is no such rank.
    pub fn new(segment: Segment<'a>, areas: CollectiveAreas, rank: u32, shape: Shape<'a>, first: u32) -> Option<Self> {
        areas.words(segment)?;
        let at = shape.action_count(rank, areas.ranks);
        (rank < areas.ranks).then_some(Self { segment, areas, shape, rank, base: first, action: at })
    }

    /// Enters the next barrier. The one before is complete.
    pub fn start(&mut self) {
        self.action = 0;
    }

    /// Proceeds until a rank is missing: at most as many steps as the shape has actions.
    pub fn poll(&mut self) -> BarrierStatus {
        loop {
            match self.shape.action(self.rank, self.areas.ranks, self.action) {
                Action::Publish(phase) => {
                    if let Some(word) = self.word(self.rank) {
                        word.publish(self.base.wrapping_add(phase), Site::PhasePublish);
                    }
                }
                Action::Await(peer, phase) => match self.poll_peer(peer, self.base.wrapping_add(phase)) {
                    Some(true) => {}
                    Some(false) => return BarrierStatus::WaitsFor(peer),
                    None => return BarrierStatus::Corrupt(peer),
                },
                Action::End => return BarrierStatus::Complete,
            }
            self.action += 1;
            if self.action == self.shape.action_count(self.rank, self.areas.ranks) {
                self.base = self.base.wrapping_add(self.shape.phases(self.areas.ranks));
                return BarrierStatus::Complete;
            }
        }
    }

    /// The word of a rank.
    pub fn word(&self, rank: u32) -> Option<&'a Word> {
        self.segment.word(self.areas.phase(rank))
    }

    /// Whether a rank has reached this phase; `None`: its phase is impossible.
    fn poll_peer(&self, peer: u32, phase: u32) -> Option<bool> {
        has_reached(self.word(peer)?.acquire(Site::PhasePoll), phase, self.shape.phases(self.areas.ranks))
    }
}

/// Whether a word has reached `phase`, where a barrier has `phases` phases; `None`: it is further away than any rank
/// can be.
pub(crate) fn has_reached(word: u32, phase: u32, phases: u32) -> Option<bool> {
    let ahead = word.wrapping_sub(phase).cast_signed();
    (ahead.unsigned_abs() <= 2 * phases).then_some(ahead >= 0)
}

#[cfg(all(test, not(loom)))]
mod tests;
