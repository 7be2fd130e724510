//! Standard exchange in base k + 1: groups of k + 1 ranks exchange, then groups of k + 1 such groups, digit by digit.
//!
//! Qian & Afsahi §5.1.2, Fig. 4; with k = 1 recursive doubling and halving (Mamidala, dissertation §2.1.3). If the size
//! is no power of k + 1, the [`Groups`] of adjacent ranks gather at their leaders before and receive the result from
//! them after: two more rounds. (The paper's equation 4 leaves the correction steps open; its targets (p + d·(k + 1)^i)
//! mod N hold in the last step only, in others the sum wraps within a group of (k + 1)^(i + 1).)

use crate::schedule::groups::Groups;
use crate::schedule::radix::{Radix, quotient, remainder};
use crate::schedule::{
    BlockBuffer, BlockSpan, Blocks, Fold, Order, Phase, Rank, Step, StepOperation, dependencies, port,
};

/// A vector that is being combined.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) struct Accumulator {
    pub(in crate::schedule) blocks: u32,
    /// Where the result is accumulated, from block 0 on.
    pub(in crate::schedule) into: BlockBuffer,
    /// `into` already holds the rank's own part.
    pub(in crate::schedule) in_place: bool,
}

impl Accumulator {
    pub(in crate::schedule) const fn result(self) -> BlockSpan {
        BlockSpan::new(self.into, Blocks::range(0, self.blocks))
    }

    /// The rank's own part, before it is combined.
    pub(in crate::schedule) const fn own(self) -> BlockSpan {
        BlockSpan::new(BlockBuffer::Input, Blocks::range(0, self.blocks))
    }

    /// Scratch blocks before slot `slot`.
    pub(in crate::schedule) const fn before(self, slot: u32) -> u32 {
        let result = if matches!(self.into, BlockBuffer::Scratch) { 1 } else { 0 };
        slot.wrapping_add(result).wrapping_mul(self.blocks)
    }

    /// Some blocks in slot `slot` of scratch.
    pub(in crate::schedule) const fn slot(self, slot: u32, blocks: Blocks) -> BlockSpan {
        BlockSpan::new(BlockBuffer::Scratch, blocks.shifted(self.before(slot)))
    }
}

/// The data that leaders exchange.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) enum ExchangeData {
    /// Signals.
    Nothing,
    /// Whole vectors, combined in each round.
    Whole(Accumulator),
    /// Parts of a vector, combined in each round: after the last one a group has its own part.
    Halves(Accumulator, Split),
    /// Parts, collected: the rounds of `Halves` in reverse.
    Parts(Split),
}

/// The division of blocks among groups, and the order of the digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) struct Split {
    /// A group's part has a block for each of its ranks instead of one block.
    pub(in crate::schedule) by_rank: bool,
    /// `Any`: the highest digit first, parts are contiguous. `Rank`: the lowest digit first, parts are strided, and
    /// adjacent parts are combined.
    pub(in crate::schedule) order: Order,
}

/// The rounds of the leaders.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) struct Exchange {
    pub(in crate::schedule) groups: Groups,
    pub(in crate::schedule) ports: u32,
    pub(in crate::schedule) what: ExchangeData,
}

impl Exchange {
    const fn radix(&self) -> Radix {
        self.groups.radix
    }

    /// Whether it collects parts.
    pub(in crate::schedule) const fn collects(&self) -> bool {
        matches!(self.what, ExchangeData::Parts(_))
    }

    const fn folds(&self) -> bool {
        matches!(self.what, ExchangeData::Whole(_) | ExchangeData::Halves(..))
    }

    /// Steps of a round: receives, sends, and as many reductions.
    const fn steps(&self) -> u32 {
        self.radix().others().wrapping_mul(if self.folds() { 3 } else { 2 })
    }

    /// The digit that round `round` exchanges.
    const fn place(&self, round: u32) -> u32 {
        let from_top = self.groups.digits.wrapping_sub(round).wrapping_sub(1);
        match self.what {
            ExchangeData::Halves(_, Split { order: Order::Any, .. })
            | ExchangeData::Parts(Split { order: Order::Rank | Order::Fixed, .. }) => from_top,
            _ => round,
        }
    }

    /// The blocks of a group after digit `place` was halved, or before it is collected.
    fn blocks(&self, group: u32, place: u32) -> Blocks {
        let split = match self.what {
            ExchangeData::Nothing => return Blocks::NONE,
            ExchangeData::Whole(vector) => return Blocks::range(0, vector.blocks),
            ExchangeData::Halves(_, split) | ExchangeData::Parts(split) => split,
        };
        let weight = self.radix().power(place);
        match split.order {
            Order::Any => {
                let first = group.wrapping_sub(remainder(group, weight));
                if split.by_rank {
                    let from = self.groups.leader(first);
                    Blocks::range(from, self.groups.leader(first.wrapping_add(weight)).wrapping_sub(from))
                } else {
                    Blocks::range(first, weight)
                }
            }
            Order::Rank | Order::Fixed => {
                let stride = weight.wrapping_mul(self.radix().base());
                Blocks {
                    first: remainder(group, stride),
                    run: 1,
                    stride,
                    count: quotient(self.groups.count, stride),
                    last: 1,
                    modulus: Blocks::UNWRAPPED,
                }
            }
        }
    }

    /// The group whose digit `place` is `digit`, and whose other digits are this one's.
    fn peer(&self, place: u32, digit: u32) -> u32 {
        self.radix().with_digit(self.groups.group, place, digit)
    }

    /// Message `x` of a round comes from the digit x + 1 below, and goes to the one x + 1 above.
    fn below(&self, digit: u32, x: u32) -> u32 {
        let base = self.radix().base();
        remainder(digit.wrapping_add(base).wrapping_sub(x).wrapping_sub(1), base)
    }

    /// Whether the rank's own part is only in the input: the leftmost part is then received where the result is
    /// accumulated, and the own part combined into it, so that nothing is copied.
    const fn fresh(&self, round: u32) -> bool {
        match self.what {
            ExchangeData::Whole(vector) | ExchangeData::Halves(vector, _) => {
                round == 0 && !vector.in_place && self.groups.followers() == 0
            }
            ExchangeData::Nothing | ExchangeData::Parts(_) => false,
        }
    }

    /// Where the part of digit `of` is received.
    fn part(&self, vector: Accumulator, blocks: Blocks, digit: u32, of: u32, fresh: bool) -> BlockSpan {
        if fresh && of == leftmost(digit) {
            BlockSpan::new(vector.into, blocks)
        } else {
            vector.slot(self.below(digit, of), blocks)
        }
    }

    /// Reduction `f` of a round. Every leader of a group of k + 1 combines the parts in the order of their digits, from
    /// the left: the same bits at all.
    fn fold(&self, vector: Accumulator, blocks: Blocks, digit: u32, f: u32, fresh: bool) -> StepOperation {
        let result = BlockSpan::new(vector.into, blocks);
        let part = |of: u32| self.part(vector, blocks, digit, of, fresh);
        let next = f.wrapping_add(1);
        let (from, into, fold) = if fresh {
            let own = BlockSpan::new(BlockBuffer::Input, blocks);
            match (digit, f) {
                (0, 0) => (own, result, Fold::Left),
                _ if next == digit => (own, result, Fold::Right),
                _ => (part(next), result, Fold::Right),
            }
        } else if next < digit {
            (part(next), part(0), Fold::Right)
        } else if next == digit {
            (part(0), result, Fold::Left)
        } else {
            (part(next), result, Fold::Right)
        };
        StepOperation::Reduce { from, into, fold }
    }
}

/// The leftmost digit other than the own one.
const fn leftmost(digit: u32) -> u32 {
    if digit == 0 { 1 } else { 0 }
}

impl Phase for Exchange {
    fn len(&self) -> u32 {
        if self.groups.leads() { self.groups.digits.wrapping_mul(self.steps()) } else { 0 }
    }

    fn keys(&self) -> u32 {
        self.groups.digits
    }

    fn rounds(&self) -> u32 {
        self.groups.digits
    }

    fn receives(&self) -> u32 {
        if self.groups.leads() { self.groups.digits.wrapping_mul(self.radix().others()) } else { 0 }
    }

    fn receive(&self, n: u32) -> u32 {
        let others = self.radix().others();
        quotient(n, others).wrapping_mul(self.steps()).wrapping_add(remainder(n, others))
    }

    fn arrivals(&self) -> u32 {
        if !self.groups.leads() {
            return 0;
        }
        let mut blocks = 0_u32;
        for round in 0..self.groups.digits {
            for i in 0..self.radix().others() {
                let receive = self.step(round.wrapping_mul(self.steps()).wrapping_add(i));
                blocks = blocks.wrapping_add(receive.operation.blocks());
            }
        }
        blocks
    }

    fn scratch(&self) -> u32 {
        match self.what {
            ExchangeData::Whole(vector) | ExchangeData::Halves(vector, _) if self.len() != 0 => {
                let others = self.radix().others();
                // The last slot is that of the part that is received elsewhere.
                let digit = self.radix().digit(self.groups.group, self.place(0));
                let last = self.fresh(0) && self.below(digit, leftmost(digit)).wrapping_add(1) == others;
                let only = self.groups.digits == 1;
                vector.before(if last && only { others.wrapping_sub(1) } else { others })
            }
            _ => 0,
        }
    }

    fn step(&self, i: u32) -> Step {
        let others = self.radix().others();
        let round = quotient(i, self.steps());
        let begin = round.wrapping_mul(self.steps());
        let number = remainder(i, self.steps());
        let x = remainder(number, others);
        let place = self.place(round);
        let digit = self.radix().digit(self.groups.group, place);
        let folded = dependencies::steps(i, begin.saturating_sub(others), begin);
        let received = dependencies::steps(i, begin, begin.wrapping_add(others).min(i));
        let fresh = self.fresh(round);
        match quotient(number, others) {
            0 => {
                let of = self.below(digit, x);
                let from = self.peer(place, of);
                let blocks = self.blocks(self.groups.group, place);
                let (into, needs) = match self.what {
                    ExchangeData::Nothing => (BlockSpan::SIGNAL, 0),
                    ExchangeData::Whole(vector) | ExchangeData::Halves(vector, _) => {
                        (self.part(vector, blocks, digit, of, fresh), folded)
                    }
                    ExchangeData::Parts(_) => (BlockSpan::new(BlockBuffer::Output, self.blocks(from, place)), 0),
                };
                let of = Rank(self.groups.leader(from));
                Step {
                    operation: StepOperation::Receive { of, port: port(x, self.ports), key: round, into },
                    dependencies: needs,
                }
            }
            1 => {
                let to = self.peer(place, remainder(digit.wrapping_add(x).wrapping_add(1), self.radix().base()));
                let every = dependencies::every(i, 0, others, self.steps(), begin);
                let (from, needs) = match self.what {
                    ExchangeData::Nothing => (BlockSpan::SIGNAL, every),
                    ExchangeData::Whole(vector) | ExchangeData::Halves(vector, _) => {
                        let from = if fresh { BlockBuffer::Input } else { vector.into };
                        (BlockSpan::new(from, self.blocks(to, place)), folded)
                    }
                    ExchangeData::Parts(_) => {
                        (BlockSpan::new(BlockBuffer::Output, self.blocks(self.groups.group, place)), every)
                    }
                };
                let to = Rank(self.groups.leader(to));
                Step {
                    operation: StepOperation::Send { to, port: port(x, self.ports), key: round, from },
                    dependencies: needs,
                }
            }
            _ => {
                let blocks = self.blocks(self.groups.group, place);
                let before = dependencies::steps(i, begin.wrapping_add(others.wrapping_mul(2)), i);
                let sent =
                    dependencies::steps(i, begin.wrapping_add(others), begin.wrapping_add(others.wrapping_mul(2)));
                let (operation, needs) = match self.what {
                    ExchangeData::Whole(vector) if !fresh => {
                        (self.fold(vector, blocks, digit, x, fresh), received | sent | before)
                    }
                    ExchangeData::Whole(vector) | ExchangeData::Halves(vector, _) => {
                        (self.fold(vector, blocks, digit, x, fresh), received | before)
                    }
                    ExchangeData::Nothing | ExchangeData::Parts(_) => {
                        (StepOperation::Copy { from: BlockSpan::SIGNAL, into: BlockSpan::SIGNAL }, 0)
                    }
                };
                Step { operation, dependencies: needs }
            }
        }
    }

    fn waits(&self, i: u32) -> bool {
        // Contributions to an allgather arrive in unused blocks.
        let arrives = matches!(self.what, ExchangeData::Nothing | ExchangeData::Parts(Split { by_rank: true, .. }));
        !arrives || remainder(i, self.steps()) >= self.radix().others()
    }
}
