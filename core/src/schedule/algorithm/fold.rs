//! The correction steps of an exchange in a group whose size is no power of its base: fold-in of the parts at the
//! leaders, and fold-out of the result. Each is one round of k ports.

use super::exchange::Accumulator;
use crate::schedule::groups::Groups;
use crate::schedule::radix::remainder;
use crate::schedule::{BlockBuffer, BlockSpan, Blocks, Fold, Phase, Rank, Step, StepOperation, dependencies, port};

/// Fold-in: a group's parts to its leader.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) struct FoldIn {
    pub(in crate::schedule) groups: Groups,
    pub(in crate::schedule) ports: u32,
    pub(in crate::schedule) load: FoldInData,
}

/// The data that followers send.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) enum FoldInData {
    /// A signal.
    Nothing,
    /// Their block of the output.
    Block,
    /// Their vector, to be combined.
    Vector(Accumulator),
}

impl FoldIn {
    /// A follower's part, in its own memory or where its leader receives it.
    fn span(&self, follower: u32) -> BlockSpan {
        match self.load {
            FoldInData::Nothing => BlockSpan::SIGNAL,
            FoldInData::Block => BlockSpan::new(BlockBuffer::Output, Blocks::one(follower)),
            FoldInData::Vector(vector) if self.groups.leads() => {
                let number = follower.wrapping_sub(self.groups.leader(self.groups.group)).wrapping_sub(1);
                // The first one is received where the result is accumulated, if that is free, and the leader's own is
                // combined into it.
                match number.checked_sub(u32::from(!vector.in_place)) {
                    Some(slot) => vector.slot(slot, Blocks::range(0, vector.blocks)),
                    None => vector.result(),
                }
            }
            FoldInData::Vector(vector) => vector.own(),
        }
    }
}

impl Phase for FoldIn {
    fn len(&self) -> u32 {
        if !self.groups.leads() {
            return 1;
        }
        let each = if matches!(self.load, FoldInData::Vector(_)) { 2 } else { 1 };
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
            FoldInData::Nothing => 0,
            FoldInData::Block => 1,
            FoldInData::Vector(vector) => vector.blocks,
        };
        if self.groups.leads() { self.groups.followers().wrapping_mul(each) } else { 0 }
    }

    fn scratch(&self) -> u32 {
        match self.load {
            FoldInData::Vector(vector) if self.groups.leads() && self.groups.followers() != 0 => {
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
            return Step { operation: StepOperation::Send { to: Rank(leader), port, key: 0, from }, dependencies: 0 };
        }
        let number = remainder(i, followers);
        let follower = leader.wrapping_add(number).wrapping_add(1);
        let span = self.span(follower);
        match self.load {
            FoldInData::Vector(vector) if i >= followers => {
                let folded = if number == 0 { 0 } else { dependencies::step(i, i.wrapping_sub(1)) };
                let into = vector.result();
                let operation = if number == 0 && !vector.in_place {
                    StepOperation::Reduce { from: vector.own(), into, fold: Fold::Left }
                } else {
                    StepOperation::Reduce { from: span, into, fold: Fold::Right }
                };
                Step { operation, dependencies: folded | dependencies::step(i, number) }
            }
            _ => {
                let operation =
                    StepOperation::Receive { of: Rank(follower), port: port(number, self.ports), key: 0, into: span };
                Step { operation, dependencies: 0 }
            }
        }
    }
}

/// Fold-out: the result from the leaders to their groups.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) struct FoldOut {
    pub(in crate::schedule) groups: Groups,
    pub(in crate::schedule) ports: u32,
    pub(in crate::schedule) load: FoldOutData,
}

/// The data that followers receive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) enum FoldOutData {
    /// A signal.
    Nothing,
    /// This many blocks of the output.
    Vector { blocks: u32 },
    /// All of `size` blocks of the output except their own.
    Others { size: u32 },
    /// Their own block, from the leader's buffer `of`, to `into`.
    Own { of: BlockBuffer, into: OwnTarget },
}

/// The destination of a follower's own block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) enum OwnTarget {
    /// The output's only block.
    Output,
    /// The block with its rank's number, in this buffer.
    Held(BlockBuffer),
}

impl FoldOut {
    fn span(&self, follower: u32) -> BlockSpan {
        match self.load {
            FoldOutData::Nothing => BlockSpan::SIGNAL,
            FoldOutData::Vector { blocks } => BlockSpan::new(BlockBuffer::Output, Blocks::range(0, blocks)),
            FoldOutData::Others { size } => {
                let first = remainder(follower.wrapping_add(1), size);
                BlockSpan::new(BlockBuffer::Output, Blocks::wrapped(first, size.wrapping_sub(1), size))
            }
            FoldOutData::Own { of, .. } if self.groups.leads() => BlockSpan::new(of, Blocks::one(follower)),
            FoldOutData::Own { into: OwnTarget::Output, .. } => BlockSpan::new(BlockBuffer::Output, Blocks::one(0)),
            FoldOutData::Own { into: OwnTarget::Held(place), .. } => BlockSpan::new(place, Blocks::one(follower)),
        }
    }
}

impl Phase for FoldOut {
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
            FoldOutData::Own { into: OwnTarget::Held(BlockBuffer::Scratch), .. } if !self.groups.leads() => {
                self.groups.leader(self.groups.count)
            }
            _ => 0,
        }
    }

    fn step(&self, i: u32) -> Step {
        let leader = self.groups.leader(self.groups.group);
        let operation = if self.groups.leads() {
            let follower = leader.wrapping_add(i).wrapping_add(1);
            StepOperation::Send { to: Rank(follower), port: port(i, self.ports), key: 0, from: self.span(follower) }
        } else {
            let member = self.groups.member;
            let port = port(member.wrapping_sub(1), self.ports);
            StepOperation::Receive { of: Rank(leader), port, key: 0, into: self.span(leader.wrapping_add(member)) }
        };
        Step { operation, dependencies: 0 }
    }

    fn waits(&self, _: u32) -> bool {
        self.load != FoldOutData::Nothing || self.groups.leads()
    }
}

const fn correction(groups: &Groups) -> u32 {
    if groups.exact() { 0 } else { 1 }
}
