//! Alltoall by standard exchange, for sizes that are a power of k + 1.
//!
//! Round j: the blocks whose number has digit e in place j go to the rank whose own digit is e, and the blocks received
//! from it replace them; after the last round block b is the one that rank b sent. Qian & Afsahi §5.1.3, equation 5.

use crate::schedule::radix::{Radix, quotient, remainder};
use crate::schedule::{BlockBuffer, BlockSpan, Blocks, Phase, Rank, Step, StepOperation, dependencies, port};

/// The rounds; the output holds the input before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) struct AlltoallExchange {
    pub(in crate::schedule) radix: Radix,
    pub(in crate::schedule) size: u32,
    pub(in crate::schedule) rank: u32,
    pub(in crate::schedule) ports: u32,
}

impl AlltoallExchange {
    const fn digits(&self) -> u32 {
        self.radix.log_up(self.size)
    }

    /// Block numbers with `digit` in place `place`.
    fn blocks(&self, place: u32, digit: u32) -> Blocks {
        let run = self.radix.power(place);
        let stride = run.wrapping_mul(self.radix.base());
        let first = digit.wrapping_mul(run);
        Blocks { first, run, stride, count: quotient(self.size, stride), last: run, modulus: Blocks::UNWRAPPED }
    }
}

impl Phase for AlltoallExchange {
    fn len(&self) -> u32 {
        self.digits().wrapping_mul(self.radix.others()).wrapping_mul(3)
    }

    fn keys(&self) -> u32 {
        self.digits()
    }

    fn rounds(&self) -> u32 {
        self.digits()
    }

    fn receives(&self) -> u32 {
        self.digits().wrapping_mul(self.radix.others())
    }

    fn arrivals(&self) -> u32 {
        let each = quotient(self.size, self.radix.base());
        self.digits().wrapping_mul(self.radix.others()).wrapping_mul(each)
    }

    fn scratch(&self) -> u32 {
        self.size
    }

    fn step(&self, i: u32) -> Step {
        let (base, others) = (self.radix.base(), self.radix.others());
        let round = quotient(i, others.wrapping_mul(3));
        let begin = round.wrapping_mul(others.wrapping_mul(3));
        let number = i.wrapping_sub(begin);
        let x = remainder(number, others);
        let digit = self.radix.digit(self.rank, round);
        let below = remainder(digit.wrapping_add(base).wrapping_sub(x).wrapping_sub(1), base);
        let above = remainder(digit.wrapping_add(x).wrapping_add(1), base);
        let rank = |digit: u32| Rank(self.radix.with_digit(self.rank, round, digit));
        let moved = dependencies::steps(i, begin.saturating_sub(others), begin);
        let port = port(x, self.ports);
        match quotient(number, others) {
            0 => {
                let into = BlockSpan::new(BlockBuffer::Scratch, self.blocks(round, below));
                Step {
                    operation: StepOperation::Receive { of: rank(below), port, key: round, into },
                    dependencies: moved,
                }
            }
            1 => {
                let from = BlockSpan::new(BlockBuffer::Output, self.blocks(round, above));
                Step { operation: StepOperation::Send { to: rank(above), port, key: round, from }, dependencies: moved }
            }
            _ => {
                let blocks = self.blocks(round, below);
                let sent = others.wrapping_sub(x).wrapping_sub(1);
                let needs = dependencies::step(i, begin.wrapping_add(x))
                    | dependencies::step(i, begin.wrapping_add(others).wrapping_add(sent));
                let operation = StepOperation::Copy {
                    from: BlockSpan::new(BlockBuffer::Scratch, blocks),
                    into: BlockSpan::new(BlockBuffer::Output, blocks),
                };
                Step { operation, dependencies: needs }
            }
        }
    }
}
