//! Ring algorithms, between adjacent ranks: bandwidth-optimal for long vectors.

use crate::ids::Port;
use crate::schedule::radix::{ahead, behind, quotient, remainder};
use crate::schedule::{BlockBuffer, BlockSpan, Blocks, Fold, Phase, Rank, Step, StepOperation, dependencies};

/// A rank in a ring.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) struct Ring {
    pub(in crate::schedule) size: u32,
    pub(in crate::schedule) rank: u32,
}

impl Ring {
    fn next(self) -> Rank {
        Rank(ahead(self.rank, 1, self.size))
    }

    fn previous(self) -> Rank {
        Rank(behind(self.rank, 1, self.size))
    }

    fn rounds(self) -> u32 {
        self.size.wrapping_sub(1)
    }

    /// The block that travelled `steps` steps before this rank sends it.
    fn block(self, steps: u32) -> Blocks {
        Blocks::one(behind(self.rank, steps, self.size))
    }
}

/// Allgather: every rank's block travels around the ring to its place in the output.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) struct Allgather {
    pub(in crate::schedule) ring: Ring,
    pub(in crate::schedule) own: OwnBlock,
}

/// Where a rank's own block is at the start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) enum OwnBlock {
    /// Only in the input. It is sent from there, and copied meanwhile.
    Input,
    /// In its place.
    Output,
    /// In its place after all earlier phases.
    Made,
}

impl Allgather {
    fn copies(&self) -> u32 {
        u32::from(self.own == OwnBlock::Input)
    }
}

impl Phase for Allgather {
    fn len(&self) -> u32 {
        self.ring.rounds().wrapping_mul(2).wrapping_add(self.copies())
    }

    fn keys(&self) -> u32 {
        self.ring.rounds()
    }

    fn rounds(&self) -> u32 {
        self.ring.rounds()
    }

    fn receives(&self) -> u32 {
        self.ring.rounds()
    }

    fn receive(&self, n: u32) -> u32 {
        n.wrapping_mul(2).wrapping_add(self.copies())
    }

    fn arrivals(&self) -> u32 {
        self.ring.rounds()
    }

    fn step(&self, i: u32) -> Step {
        let input = BlockSpan::new(BlockBuffer::Input, Blocks::one(0));
        let output = |travelled: u32| BlockSpan::new(BlockBuffer::Output, self.ring.block(travelled));
        let Some(message) = i.checked_sub(self.copies()) else {
            return Step { operation: StepOperation::Copy { from: input, into: output(0) }, dependencies: 0 };
        };
        let key = quotient(message, 2);
        if remainder(message, 2) == 0 {
            let into = output(key.wrapping_add(1));
            let operation = StepOperation::Receive { of: self.ring.previous(), port: Port::ONLY, key, into };
            return Step { operation, dependencies: 0 };
        }
        let (from, needs) = match (key, self.own) {
            (0, OwnBlock::Input) => (input, 0),
            (0, _) => (output(0), 0),
            _ => (output(key), dependencies::step(i, i.wrapping_sub(3))),
        };
        Step {
            operation: StepOperation::Send { to: self.ring.next(), port: Port::ONLY, key, from },
            dependencies: needs,
        }
    }

    fn waits(&self, _: u32) -> bool {
        self.own == OwnBlock::Made
    }
}

/// Reduce-scatter: partial results travel around the ring; after the last round rank r holds block r. Each is combined
/// in ring order, from the rank after its last one: for commutative operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) struct Reduction {
    pub(in crate::schedule) ring: Ring,
    /// Where partial results are stored, by their block's number.
    pub(in crate::schedule) into: BlockBuffer,
    /// `into` is the input: received blocks are stored in scratch.
    pub(in crate::schedule) in_place: bool,
}

impl Phase for Reduction {
    fn len(&self) -> u32 {
        self.ring.rounds().wrapping_mul(3)
    }

    fn keys(&self) -> u32 {
        self.ring.rounds()
    }

    fn rounds(&self) -> u32 {
        self.ring.rounds()
    }

    fn receives(&self) -> u32 {
        self.ring.rounds()
    }

    fn arrivals(&self) -> u32 {
        self.ring.rounds()
    }

    fn scratch(&self) -> u32 {
        if self.ring.size > 1 && (self.in_place || self.into == BlockBuffer::Scratch) { self.ring.size } else { 0 }
    }

    fn step(&self, i: u32) -> Step {
        let key = quotient(i, 3);
        let arriving = self.ring.block(key.wrapping_add(2));
        match remainder(i, 3) {
            0 => {
                let into = BlockSpan::new(if self.in_place { BlockBuffer::Scratch } else { self.into }, arriving);
                let operation = StepOperation::Receive { of: self.ring.previous(), port: Port::ONLY, key, into };
                Step { operation, dependencies: 0 }
            }
            1 => {
                let from = if key == 0 { BlockBuffer::Input } else { self.into };
                let from = BlockSpan::new(from, self.ring.block(key.wrapping_add(1)));
                let needs = if key == 0 { 0 } else { dependencies::step(i, i.wrapping_sub(2)) };
                Step {
                    operation: StepOperation::Send { to: self.ring.next(), port: Port::ONLY, key, from },
                    dependencies: needs,
                }
            }
            _ => {
                let into = BlockSpan::new(self.into, arriving);
                let operation = if self.in_place {
                    StepOperation::Reduce {
                        from: BlockSpan::new(BlockBuffer::Scratch, arriving),
                        into,
                        fold: Fold::Left,
                    }
                } else {
                    StepOperation::Reduce {
                        from: BlockSpan::new(BlockBuffer::Input, arriving),
                        into,
                        fold: Fold::Right,
                    }
                };
                Step { operation, dependencies: dependencies::step(i, i.wrapping_sub(2)) }
            }
        }
    }
}
