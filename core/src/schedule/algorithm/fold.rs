//! The correction steps of an exchange in a group whose size is no power of its base: fold-in of the parts at the
//! leaders, and fold-out of the result. Each is one round of k ports.

use super::exchange::Vector;
use crate::schedule::groups::Groups;
use crate::schedule::radix::remainder;
use crate::schedule::{Blocks, Fold, Operation, Part, Place, Rank, Span, Step, dependencies, port};

/// Fold-in: a group's parts to its leader.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) struct Before {
    pub(in crate::schedule) groups: Groups,
    pub(in crate::schedule) ports: u32,
    pub(in crate::schedule) load: Early,
}

/// The data that followers send.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) enum Early {
    /// A signal.
    Nothing,
    /// Their block of the output.
    Block,
    /// Their vector, to be combined.
    Vector(Vector),
}

impl Before {
    /// A follower's part, in its own memory or where its leader receives it.
    fn span(&self, follower: u32) -> Span {
        match self.load {
            Early::Nothing => Span::SIGNAL,
            Early::Block => Span::new(Place::Output, Blocks::one(follower)),
            Early::Vector(vector) if self.groups.leads() => {
                let number = follower.wrapping_sub(self.groups.leader(self.groups.group)).wrapping_sub(1);
                // The first one is received where the result is accumulated, if that is free, and the leader's own is
                // combined into it.
                match number.checked_sub(u32::from(!vector.in_place)) {
                    Some(slot) => vector.slot(slot, Blocks::range(0, vector.blocks)),
                    None => vector.result(),
                }
            }
            Early::Vector(vector) => vector.own(),
        }
    }
}

impl Part for Before {
    fn len(&self) -> u32 {
        if !self.groups.leads() {
            return 1;
        }
        let each = if matches!(self.load, Early::Vector(_)) { 2 } else { 1 };
        self.groups.followers().wrapping_mul(each)
    }

    fn keys(&self) -> u32 {
        correction(&self.groups)
    }

    fn rounds(&self) -> u32 {
        correction(&self.groups)
    }

    fn receives(&self) -> u32 {
        if self.groups.leads() { self.groups.followers() } else { 0 }
    }

    fn arrivals(&self) -> u32 {
        let each = match self.load {
            Early::Nothing => 0,
            Early::Block => 1,
            Early::Vector(vector) => vector.blocks,
        };
        if self.groups.leads() { self.groups.followers().wrapping_mul(each) } else { 0 }
    }

    fn scratch(&self) -> u32 {
        match self.load {
            Early::Vector(vector) if self.groups.leads() && self.groups.followers() != 0 => {
                vector.before(self.groups.followers().wrapping_sub(u32::from(!vector.in_place)))
            }
            _ => 0,
        }
    }

    fn step(&self, i: u32) -> Step {
        let leader = self.groups.leader(self.groups.group);
        let followers = self.groups.followers();
        if !self.groups.leads() {
            let member = self.groups.member;
            let from = self.span(leader.wrapping_add(member));
            let port = port(member.wrapping_sub(1), self.ports);
            return Step { operation: Operation::Send { to: Rank(leader), port, key: 0, from }, needs: 0 };
        }
        let number = remainder(i, followers);
        let follower = leader.wrapping_add(number).wrapping_add(1);
        let span = self.span(follower);
        match self.load {
            Early::Vector(vector) if i >= followers => {
                let folded = if number == 0 { 0 } else { dependencies::step(i, i.wrapping_sub(1)) };
                let into = vector.result();
                let operation = if number == 0 && !vector.in_place {
                    Operation::Reduce { from: vector.own(), into, fold: Fold::Left }
                } else {
                    Operation::Reduce { from: span, into, fold: Fold::Right }
                };
                Step { operation, needs: folded | dependencies::step(i, number) }
            }
            _ => {
                let operation =
                    Operation::Receive { of: Rank(follower), port: port(number, self.ports), key: 0, into: span };
                Step { operation, needs: 0 }
            }
        }
    }
}

/// Fold-out: the result from the leaders to their groups.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) struct After {
    pub(in crate::schedule) groups: Groups,
    pub(in crate::schedule) ports: u32,
    pub(in crate::schedule) load: Late,
}

/// The data that followers receive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) enum Late {
    /// A signal.
    Nothing,
    /// This many blocks of the output.
    Vector { blocks: u32 },
    /// All of `size` blocks of the output except their own.
    Others { size: u32 },
    /// Their own block, from the leader's buffer `of`, to `into`.
    Own { of: Place, into: Own },
}

/// The destination of a follower's own block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) enum Own {
    /// The output's only block.
    Output,
    /// The block with its rank's number, in this buffer.
    Held(Place),
}

impl After {
    fn span(&self, follower: u32) -> Span {
        match self.load {
            Late::Nothing => Span::SIGNAL,
            Late::Vector { blocks } => Span::new(Place::Output, Blocks::range(0, blocks)),
            Late::Others { size } => {
                let first = remainder(follower.wrapping_add(1), size);
                Span::new(Place::Output, Blocks::wrapped(first, size.wrapping_sub(1), size))
            }
            Late::Own { of, .. } if self.groups.leads() => Span::new(of, Blocks::one(follower)),
            Late::Own { into: Own::Output, .. } => Span::new(Place::Output, Blocks::one(0)),
            Late::Own { into: Own::Held(place), .. } => Span::new(place, Blocks::one(follower)),
        }
    }
}

impl Part for After {
    fn len(&self) -> u32 {
        if self.groups.leads() { self.groups.followers() } else { 1 }
    }

    fn keys(&self) -> u32 {
        correction(&self.groups)
    }

    fn rounds(&self) -> u32 {
        correction(&self.groups)
    }

    fn receives(&self) -> u32 {
        u32::from(!self.groups.leads())
    }

    fn arrivals(&self) -> u32 {
        if self.groups.leads() { 0 } else { self.step(0).operation.blocks() }
    }

    fn scratch(&self) -> u32 {
        match self.load {
            Late::Own { into: Own::Held(Place::Scratch), .. } if !self.groups.leads() => {
                self.groups.leader(self.groups.count)
            }
            _ => 0,
        }
    }

    fn step(&self, i: u32) -> Step {
        let leader = self.groups.leader(self.groups.group);
        let operation = if self.groups.leads() {
            let follower = leader.wrapping_add(i).wrapping_add(1);
            Operation::Send { to: Rank(follower), port: port(i, self.ports), key: 0, from: self.span(follower) }
        } else {
            let member = self.groups.member;
            let port = port(member.wrapping_sub(1), self.ports);
            Operation::Receive { of: Rank(leader), port, key: 0, into: self.span(leader.wrapping_add(member)) }
        };
        Step { operation, needs: 0 }
    }

    fn waits(&self, _: u32) -> bool {
        self.load != Late::Nothing || self.groups.leads()
    }
}

const fn correction(groups: &Groups) -> u32 {
    if groups.exact() { 0 } else { 1 }
}
