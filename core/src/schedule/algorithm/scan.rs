//! Prefix reductions: by recursive doubling, or along a chain.

use crate::ids::Port;
use crate::schedule::radix::{Radix, quotient};
use crate::schedule::{BlockBuffer, BlockSpan, Blocks, Fold, Phase, Rank, Step, StepOperation, dependencies, port};

/// A rank's part in a scan.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) struct Prefix {
    pub(in crate::schedule) size: u32,
    pub(in crate::schedule) rank: u32,
    /// Without the rank's own operand.
    pub(in crate::schedule) exclusive: bool,
    pub(in crate::schedule) in_place: bool,
}

const OUTPUT: BlockSpan = BlockSpan::new(BlockBuffer::Output, Blocks::one(0));
const INPUT: BlockSpan = BlockSpan::new(BlockBuffer::Input, Blocks::one(0));

const fn scratch(slot: u32) -> BlockSpan {
    BlockSpan::new(BlockBuffer::Scratch, Blocks::one(slot))
}

/// For a chain: the prefix before this rank, and the prefix including it.
const ARRIVED: BlockSpan = scratch(0);
const CARRIED: BlockSpan = scratch(1);

/// In round j the prefix over (k + 1)^j ranks goes to the ranks d·(k + 1)^j ahead, d = 1 to k, as in dissemination but
/// without wrapping. The first scratch block of an exclusive scan, otherwise the output, holds the rank's own operand
/// before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) struct Doubling {
    pub(in crate::schedule) prefix: Prefix,
    pub(in crate::schedule) radix: Radix,
    pub(in crate::schedule) ports: u32,
}

/// Counts of a round.
struct Round {
    round: u32,
    begin: u32,
    receives: u32,
    sends: u32,
    /// Whether a later round sends the result.
    carries: bool,
}

impl Doubling {
    fn rounds_of(&self) -> u32 {
        self.radix.log_up(self.prefix.size)
    }

    /// Reductions per received part: into the result, and into the forwarded prefix if that is another.
    const fn folds(&self, round: &Round) -> u32 {
        if self.prefix.exclusive && round.carries { 2 } else { 1 }
    }

    fn round(&self, round: u32, begin: u32) -> Round {
        let reach = self.radix.power(round);
        let others = self.radix.others();
        let beyond = self.prefix.size.wrapping_sub(self.prefix.rank).wrapping_sub(1);
        let receives = quotient(self.prefix.rank, reach).min(others);
        let sends = quotient(beyond, reach).min(others);
        Round { round, begin, receives, sends, carries: beyond >= reach.saturating_mul(self.radix.base()) }
    }

    fn steps(&self, round: &Round) -> u32 {
        round.receives.wrapping_mul(self.folds(round).wrapping_add(1)).wrapping_add(round.sends)
    }

    fn rounds(&self) -> impl Iterator<Item = Round> {
        let mut begin = 0_u32;
        (0..self.rounds_of()).map(move |j| {
            let round = self.round(j, begin);
            begin = begin.wrapping_add(self.steps(&round));
            round
        })
    }

    /// The prefix up to and including this rank.
    const fn covered(&self) -> BlockSpan {
        if self.prefix.exclusive { scratch(0) } else { OUTPUT }
    }

    fn slot(&self, x: u32) -> BlockSpan {
        scratch(x.wrapping_add(u32::from(self.prefix.exclusive)))
    }

    fn step_in(&self, round: &Round, i: u32) -> Step {
        let number = i.wrapping_sub(round.begin);
        let reach = self.radix.power(round.round);
        let distance = |x: u32| x.wrapping_add(1).wrapping_mul(reach);
        let before = dependencies::steps(i, 0, round.begin);
        let key = round.round;
        if number < round.receives {
            let of = Rank(self.prefix.rank.wrapping_sub(distance(number)));
            let port = port(number, self.ports);
            let operation = StepOperation::Receive { of, port, key, into: self.slot(number) };
            return Step { operation, dependencies: before };
        }
        let number = number.wrapping_sub(round.receives);
        if number < round.sends {
            let to = Rank(self.prefix.rank.wrapping_add(distance(number)));
            let operation = StepOperation::Send { to, port: port(number, self.ports), key, from: self.covered() };
            return Step { operation, dependencies: before };
        }
        let number = number.wrapping_sub(round.sends);
        let x = quotient(number, self.folds(round));
        let from = self.slot(x);
        let result = self.prefix.exclusive && number == x.wrapping_mul(self.folds(round));
        let operation = if result && round.round == 0 && x == 0 {
            StepOperation::Copy { from, into: OUTPUT }
        } else {
            let into = if result { OUTPUT } else { self.covered() };
            StepOperation::Reduce { from, into, fold: Fold::Left }
        };
        Step { operation, dependencies: dependencies::steps(i, round.begin, i) }
    }
}

impl Phase for Doubling {
    fn len(&self) -> u32 {
        self.rounds().fold(0, |len, round| len.wrapping_add(self.steps(&round)))
    }

    fn keys(&self) -> u32 {
        self.rounds_of()
    }

    fn rounds(&self) -> u32 {
        self.rounds_of()
    }

    fn receives(&self) -> u32 {
        self.rounds().fold(0, |messages, round| messages.wrapping_add(round.receives))
    }

    fn arrivals(&self) -> u32 {
        self.receives()
    }

    fn scratch(&self) -> u32 {
        let slots = self.rounds().map(|round| round.receives).max().unwrap_or(0);
        slots.wrapping_add(u32::from(self.prefix.exclusive))
    }

    fn step(&self, i: u32) -> Step {
        let round = self.rounds().find(|round| i.wrapping_sub(round.begin) < self.steps(round));
        match round {
            Some(round) => self.step_in(&round, i),
            None => Step {
                operation: StepOperation::Copy { from: BlockSpan::SIGNAL, into: BlockSpan::SIGNAL },
                dependencies: 0,
            },
        }
    }
}

/// From rank to rank.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) struct Chain(pub(in crate::schedule) Prefix);

/// The operation of one step of a chain.
#[derive(Clone, Copy)]
enum Local {
    /// A local operation.
    Do(StepOperation),
    /// Receive of the prefix before this rank.
    Arrive(BlockSpan),
    /// Send of the prefix to the next rank.
    Pass(BlockSpan),
}

impl Chain {
    /// Steps and their dependencies. The last rank sends nothing.
    const fn steps(&self) -> &'static [(Local, u64)] {
        use Local::{Arrive, Do, Pass};
        const OWN: Local = Do(StepOperation::Copy { from: INPUT, into: OUTPUT });
        const COMBINE: Local = Do(StepOperation::Reduce { from: INPUT, into: OUTPUT, fold: Fold::Right });
        const COMBINE_IN_PLACE: Local = Do(StepOperation::Reduce { from: ARRIVED, into: OUTPUT, fold: Fold::Left });
        const KEEP: Local = Do(StepOperation::Copy { from: INPUT, into: CARRIED });
        const CARRY: Local = Do(StepOperation::Reduce { from: ARRIVED, into: CARRIED, fold: Fold::Left });
        const PUBLISH: Local = Do(StepOperation::Copy { from: ARRIVED, into: OUTPUT });
        let last = self.0.rank.wrapping_add(1) == self.0.size;
        match (self.0.rank, self.0.exclusive, self.0.in_place) {
            (0, true, _) => &[(Pass(INPUT), 0)],
            (0, false, true) => &[(Pass(OUTPUT), 0)],
            (0, false, false) => &[(OWN, 0), (Pass(OUTPUT), 0b1)],
            (_, false, false) if last => &[(Arrive(OUTPUT), 0), (COMBINE, 0b1)],
            (_, false, false) => &[(Arrive(OUTPUT), 0), (COMBINE, 0b1), (Pass(OUTPUT), 0b1)],
            (_, false, true) if last => &[(Arrive(ARRIVED), 0), (COMBINE_IN_PLACE, 0b1)],
            (_, false, true) => &[(Arrive(ARRIVED), 0), (COMBINE_IN_PLACE, 0b1), (Pass(OUTPUT), 0b1)],
            (_, true, _) if last => &[(Arrive(OUTPUT), 0)],
            (_, true, _) => &[(Arrive(ARRIVED), 0), (KEEP, 0), (CARRY, 0b11), (Pass(CARRIED), 0b1), (PUBLISH, 0b1100)],
        }
    }
}

impl Phase for Chain {
    fn len(&self) -> u32 {
        self.steps().len() as u32
    }

    fn keys(&self) -> u32 {
        1
    }

    fn rounds(&self) -> u32 {
        self.0.size.wrapping_sub(1)
    }

    fn receives(&self) -> u32 {
        u32::from(self.0.rank != 0)
    }

    fn arrivals(&self) -> u32 {
        self.receives()
    }

    fn scratch(&self) -> u32 {
        let last = self.0.rank.wrapping_add(1) == self.0.size;
        match (self.0.rank, self.0.exclusive, self.0.in_place) {
            (0, _, _) | (_, false, false) => 0,
            (_, false, true) => 1,
            (_, true, _) => {
                if last {
                    0
                } else {
                    2
                }
            }
        }
    }

    fn step(&self, i: u32) -> Step {
        let nothing = (Local::Do(StepOperation::Copy { from: BlockSpan::SIGNAL, into: BlockSpan::SIGNAL }), 0);
        let (local, needs) = self.steps().get(i as usize).copied().unwrap_or(nothing);
        let operation = match local {
            Local::Do(operation) => operation,
            Local::Arrive(into) => {
                StepOperation::Receive { of: Rank(self.0.rank.wrapping_sub(1)), port: Port::ONLY, key: 0, into }
            }
            Local::Pass(from) => {
                StepOperation::Send { to: Rank(self.0.rank.wrapping_add(1)), port: Port::ONLY, key: 0, from }
            }
        };
        Step { operation, dependencies: needs }
    }
}
