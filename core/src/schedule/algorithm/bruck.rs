//! Bruck's allgather and alltoall with k ports, and the dissemination barrier: store and forward in base k + 1, for any
//! size.
//!
//! Qian & Afsahi §5.1.2, §5.1.3, Fig. 5, Fig. 6. Round j handles digit j: the ranks d·(k + 1)^j away, d = 1 to k, while
//! that is less than the size, so that the last round sends the rest. The paper's extra step after ⌈log⌉ full ones is
//! that last round (⌊log⌋ rounds are full), and the base of its alltoall is k + 1.

use crate::schedule::radix::{Radix, ahead, behind, quotient, quotient_up, remainder};
use crate::schedule::{BlockBuffer, BlockSpan, Blocks, Phase, Rank, Step, StepOperation, dependencies, port};

/// The rounds of a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) struct Rounds {
    pub(in crate::schedule) radix: Radix,
    pub(in crate::schedule) size: u32,
    pub(in crate::schedule) rank: u32,
    pub(in crate::schedule) ports: u32,
}

impl Rounds {
    const fn count(&self) -> u32 {
        self.radix.log_up(self.size)
    }

    /// Number of distances in all rounds; every round but the last has k.
    const fn distances(&self) -> u32 {
        match self.count().checked_sub(1) {
            Some(full) => {
                let last = quotient(self.size.wrapping_sub(1), self.radix.power(full));
                full.wrapping_mul(self.radix.others()).wrapping_add(last)
            }
            None => 0,
        }
    }

    /// Number of distances of round `round`.
    fn of(&self, round: u32) -> u32 {
        self.distances().saturating_sub(round.wrapping_mul(self.radix.others())).min(self.radix.others())
    }

    /// For step `i` of rounds with `each` steps per distance: the round, its first step, the kind of step, d − 1.
    fn locate(&self, i: u32, each: u32) -> (u32, u32, u32, u32) {
        let steps = self.radix.others().wrapping_mul(each);
        let round = quotient(i, steps);
        let begin = round.wrapping_mul(steps);
        let number = i.wrapping_sub(begin);
        let distances = self.of(round);
        (round, begin, quotient(number, distances), remainder(number, distances))
    }

    fn distance(&self, round: u32, x: u32) -> u32 {
        x.wrapping_add(1).wrapping_mul(self.radix.power(round))
    }

    fn up(&self, distance: u32) -> u32 {
        ahead(self.rank, distance, self.size)
    }

    fn down(&self, distance: u32) -> u32 {
        behind(self.rank, distance, self.size)
    }
}

/// Dissemination: signals to the ranks ahead.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) struct Dissemination(pub(in crate::schedule) Rounds);

impl Phase for Dissemination {
    fn len(&self) -> u32 {
        self.0.distances().wrapping_mul(2)
    }

    fn keys(&self) -> u32 {
        self.0.count()
    }

    fn rounds(&self) -> u32 {
        self.0.count()
    }

    fn receives(&self) -> u32 {
        self.0.distances()
    }

    fn arrivals(&self) -> u32 {
        0
    }

    fn step(&self, i: u32) -> Step {
        let rounds = &self.0;
        let (round, begin, kind, x) = rounds.locate(i, 2);
        let distance = rounds.distance(round, x);
        let (port, key) = (port(x, rounds.ports), round);
        if kind == 0 {
            let of = Rank(rounds.down(distance));
            return Step {
                operation: StepOperation::Receive { of, port, key, into: BlockSpan::SIGNAL },
                dependencies: 0,
            };
        }
        let others = rounds.radix.others();
        let to = Rank(rounds.up(distance));
        let needs = dependencies::every(i, 0, others, others.wrapping_mul(2), begin);
        Step { operation: StepOperation::Send { to, port, key, from: BlockSpan::SIGNAL }, dependencies: needs }
    }
}

/// Allgather: a rank's blocks go to the ranks before it. Blocks are received at their final place in the output, so
/// that the final shift is not needed. The rank's own block is there before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) struct Allgather(pub(in crate::schedule) Rounds);

impl Phase for Allgather {
    fn len(&self) -> u32 {
        self.0.distances().wrapping_mul(2)
    }

    fn keys(&self) -> u32 {
        self.0.count()
    }

    fn rounds(&self) -> u32 {
        self.0.count()
    }

    fn receives(&self) -> u32 {
        self.0.distances()
    }

    fn receive(&self, n: u32) -> u32 {
        let others = self.0.radix.others();
        quotient(n, others).wrapping_mul(others).wrapping_add(n)
    }

    fn arrivals(&self) -> u32 {
        self.0.size.wrapping_sub(1)
    }

    fn step(&self, i: u32) -> Step {
        let rounds = &self.0;
        let (round, begin, kind, x) = rounds.locate(i, 2);
        let distance = rounds.distance(round, x);
        let blocks = rounds.radix.power(round).min(rounds.size.wrapping_sub(distance));
        let (port, key) = (port(x, rounds.ports), round);
        if kind == 0 {
            let of = rounds.up(distance);
            let into = BlockSpan::new(BlockBuffer::Output, Blocks::wrapped(of, blocks, rounds.size));
            return Step { operation: StepOperation::Receive { of: Rank(of), port, key, into }, dependencies: 0 };
        }
        let others = rounds.radix.others();
        let to = Rank(rounds.down(distance));
        let from = BlockSpan::new(BlockBuffer::Output, Blocks::wrapped(rounds.rank, blocks, rounds.size));
        let needs = dependencies::every(i, 0, others, others.wrapping_mul(2), begin);
        Step { operation: StepOperation::Send { to, port, key, from }, dependencies: needs }
    }
}

/// Alltoall: blocks whose digit of the round is d go d·(k + 1)^round ranks ahead. Scratch holds them in blocks 0 to
/// size − 1 as in the paper's figure, followed by the received blocks, until they may replace the sent ones.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) struct Alltoall(pub(in crate::schedule) Rounds);

impl Alltoall {
    /// Numbers below the size whose digit `round` is `x + 1`.
    fn digits(&self, round: u32, x: u32) -> Blocks {
        let (run, first) = (self.0.radix.power(round), self.0.distance(round, x));
        let stride = run.saturating_mul(self.0.radix.base());
        let left = self.0.size.wrapping_sub(first);
        let count = quotient_up(left, stride);
        let last = left.wrapping_sub(count.wrapping_sub(1).wrapping_mul(stride)).min(run);
        Blocks { first, run, stride, count, last, modulus: Blocks::UNWRAPPED }
    }
}

impl Phase for Alltoall {
    fn len(&self) -> u32 {
        self.0.distances().wrapping_mul(3).wrapping_add(2)
    }

    fn keys(&self) -> u32 {
        self.0.count()
    }

    fn rounds(&self) -> u32 {
        self.0.count()
    }

    fn receives(&self) -> u32 {
        self.0.distances()
    }

    fn arrivals(&self) -> u32 {
        let mut blocks = 0_u32;
        for n in 0..self.0.distances() {
            let (round, _, _, x) = self.0.locate(n, 1);
            blocks = blocks.wrapping_add(self.digits(round, x).len());
        }
        blocks
    }

    fn scratch(&self) -> u32 {
        if self.0.size == 1 { 1 } else { self.0.size.wrapping_mul(2) }
    }

    fn step(&self, i: u32) -> Step {
        let rounds = &self.0;
        let (size, rank) = (rounds.size, rounds.rank);
        let all = BlockSpan::new(BlockBuffer::Scratch, Blocks::range(0, size));
        let last = self.len().wrapping_sub(1);
        let others = rounds.radix.others();
        if i == 0 {
            let from = BlockSpan::new(BlockBuffer::Input, Blocks::wrapped(rank, size, size));
            return Step { operation: StepOperation::Copy { from, into: all }, dependencies: 0 };
        }
        if i == last {
            let stride = size.wrapping_sub(1);
            let reversed = Blocks { first: rank, run: 1, stride, count: size, last: 1, modulus: size };
            let into = BlockSpan::new(BlockBuffer::Output, reversed);
            let needs = dependencies::steps(i, i.saturating_sub(others), i);
            return Step { operation: StepOperation::Copy { from: all, into }, dependencies: needs };
        }
        let (round, begin, kind, x) = rounds.locate(i.wrapping_sub(1), 3);
        let begin = begin.wrapping_add(1);
        let distance = rounds.distance(round, x);
        let (port, key) = (port(x, rounds.ports), round);
        let here = BlockSpan::new(BlockBuffer::Scratch, self.digits(round, x));
        let arriving = BlockSpan::new(BlockBuffer::Scratch, self.digits(round, x).shifted(size));
        let moved = dependencies::steps(i, begin.saturating_sub(others), begin);
        match kind {
            0 => {
                let of = Rank(rounds.down(distance));
                Step { operation: StepOperation::Receive { of, port, key, into: arriving }, dependencies: moved }
            }
            1 => {
                let to = Rank(rounds.up(distance));
                Step { operation: StepOperation::Send { to, port, key, from: here }, dependencies: moved }
            }
            _ => {
                let distances = rounds.of(round);
                let received = dependencies::step(i, begin.wrapping_add(x));
                let sent = dependencies::step(i, begin.wrapping_add(distances).wrapping_add(x));
                Step { operation: StepOperation::Copy { from: arriving, into: here }, dependencies: received | sent }
            }
        }
    }
}
