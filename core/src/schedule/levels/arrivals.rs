//! The parts in which the blocks of all groups arrive at a leader of the last level, and go down the levels while others
//! arrive: first its own, then those of each message that it receives.
//!
//! Mamidala 2008, §6.2: the ranks of a node copy out what has arrived while the next exchange between nodes is under way.
//! All ranks of a group know the parts: the leader's schedule is a function of its number.

use super::stage::{Placement, Stage};
use crate::schedule::{Blocks, Plan, StepOperation};

/// The leaders' allgather, or a broadcast that ends with one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Arrivals {
    /// The stage of this rank's leader. Its schedule has a block for each leader.
    leader: Stage,
    /// The messages before the allgather: blocks that all leaders send once more.
    skipped: u32,
}

impl Arrivals {
    /// The parts that the leader receives in this stage, after `skipped` messages.
    pub(super) const fn new(leader: Stage, skipped: u32) -> Self {
        Self { leader, skipped }
    }

    const fn plan(&self) -> &Plan {
        &self.leader.plan
    }

    /// The number of parts.
    pub(super) fn parts(&self) -> u32 {
        let received = self.plan().receives().wrapping_sub(self.skipped);
        received.wrapping_add(u32::from(!mutant!("part_left_out")))
    }

    /// The blocks of a part: no two parts have the same.
    pub(super) fn blocks<T: AsRef<[u32]>>(&self, place: &Placement<T>, part: u32) -> Option<Blocks> {
        let blocks = match part.checked_sub(1) {
            None => Blocks::one(self.plan().spec().rank.0),
            Some(message) => {
                let receive = self.plan().receive(message.wrapping_add(self.skipped))?;
                match self.plan().step(receive)?.operation {
                    StepOperation::Receive { into, .. } => into.blocks,
                    _ => return None,
                }
            }
        };
        Some(self.leader.blocks(place, &self.leader.output, blocks))
    }
}
