//! The order in which the ranks of a group execute steps that several collectives have in the group.
//!
//! A group's shared memory executes one collective at a time, the same one on all its ranks. Collectives of a
//! communicator are under way at the same time, and their steps become ready in another order on each rank: a leader's
//! broadcast waits for other hosts, a member's does not. So each collective takes a *turn* for each of its steps in the
//! group when it starts, and ranks start their collectives in the same order.

/// A turn of a [`Lane`]; numbers wrap.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Turn(u32);

impl Turn {
    /// The turn `steps` after this one.
    pub const fn after(self, steps: u32) -> Self {
        Self(self.0.wrapping_add(steps))
    }
}

/// The turns of one rank in one group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Lane {
    /// The turns that were taken.
    taken: u32,
    /// The turns that have ended.
    ended: u32,
}

impl Lane {
    /// A collective with `steps` steps in the group starts: returns the turn of the first of them; the others follow it.
    pub fn enter(&mut self, steps: u32) -> Turn {
        let first = Turn(self.taken);
        if !mutant!("steps_not_counted") {
            self.taken = self.taken.wrapping_add(steps);
        }
        first
    }

    /// Whether the step of this turn is to be executed now.
    pub fn is_next(&self, turn: Turn) -> bool {
        turn.0 == self.ended || mutant!("turn_ignored")
    }

    /// The step whose turn it was is complete.
    pub const fn leave(&mut self) {
        self.ended = self.ended.wrapping_add(1);
    }

    /// Whether no turn is left.
    pub const fn is_idle(&self) -> bool {
        self.taken == self.ended
    }
}
