//! Closed forms of what each algorithm does: rounds, messages and blocks, for one segment.
//!
//! N ranks, base r = k + 1. A tree has ⌈log_r N⌉ levels; its root has as many children as N − 1 has in all levels. An exchange
//! has ⌊log_r N⌋ rounds of r − 1 messages among the leaders of P = r^⌊log_r N⌋ groups, and two correction steps if N ≠ P.

use super::super::call::base;
use super::super::groups::Groups;
use super::super::radix::{Radix, quotient, quotient_up, remainder};
use super::super::{Algorithm, Call, Order, Verb};

/// What happens one after the other on the longest path from the first rank to the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Path {
    /// As [`Plan::rounds`](super::Plan::rounds) counts them.
    pub(super) rounds: u32,
    /// Messages that a rank on the path sends, or receives, before the path goes on.
    pub(super) messages: u32,
    /// Blocks in them.
    pub(super) blocks: u32,
    /// Blocks combined when nothing else is under way: of a round's messages, the last one's.
    pub(super) folds: u32,
}

/// What one rank does at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Load {
    pub(super) messages: u32,
    /// In one direction.
    pub(super) blocks: u32,
    pub(super) folds: u32,
}

/// What a schedule takes, whatever a message costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Cost {
    pub(super) path: Path,
    pub(super) busy: Load,
    /// Blocks that the verb's bytes are cut into.
    pub(super) cut: u32,
}

impl Cost {
    /// Of a call that is not refused.
    pub(super) fn of(call: &Call) -> Self {
        if call.size < 2 {
            return Self { cut: 1, ..Self::default() };
        }
        let shape = Shape::of(call);
        let (cut, cost) = shape.cost(call);
        Self { cut, ..cost }
    }

    /// A round of the same messages for all of its ranks, each with `blocks`.
    const fn rounds(rounds: u32, messages: u32, blocks: u32) -> Self {
        Self { path: Path { rounds, messages, blocks, folds: 0 }, busy: Load { messages, blocks, folds: 0 }, cut: 1 }
    }

    /// With combinations: so many blocks on the path, and in all.
    const fn folding(self, path: u32, busy: u32) -> Self {
        Self { path: Path { folds: path, ..self.path }, busy: Load { folds: busy, ..self.busy }, ..self }
    }

    /// One part after the other, the same rank being the busiest in both.
    const fn then(self, next: Self) -> Self {
        let (a, b) = (self.path, next.path);
        let path = Path {
            rounds: a.rounds.saturating_add(b.rounds),
            messages: a.messages.saturating_add(b.messages),
            blocks: a.blocks.saturating_add(b.blocks),
            folds: a.folds.saturating_add(b.folds),
        };
        let (a, b) = (self.busy, next.busy);
        let busy = Load {
            messages: a.messages.saturating_add(b.messages),
            blocks: a.blocks.saturating_add(b.blocks),
            folds: a.folds.saturating_add(b.folds),
        };
        Self { path, busy, cut: self.cut }
    }

    /// One part after the other, which use different directions of the busiest rank's link.
    fn then_back(self, next: Self) -> Self {
        let both = self.then(next);
        Self { busy: Load { blocks: self.busy.blocks.max(next.busy.blocks), ..both.busy }, ..both }
    }
}

/// Ranks and base.
struct Shape {
    size: u32,
    radix: Radix,
    ports: u32,
    groups: Groups,
}

impl Shape {
    fn of(call: &Call) -> Self {
        let radix = base(call);
        Self { size: call.size, radix, ports: u32::from(call.ports), groups: Groups::new(radix, call.size, 0) }
    }

    fn others(&self) -> u32 {
        self.size.wrapping_sub(1)
    }

    /// Children of a tree's root, or messages of Bruck's algorithms and dissemination: r − 1 per level, in the last one what
    /// is left.
    fn children(&self) -> u32 {
        let level = self.radix.log(self.others());
        level.wrapping_mul(self.radix.others()).wrapping_add(quotient(self.others(), self.radix.power(level)))
    }

    fn levels(&self) -> u32 {
        self.radix.log_up(self.size)
    }

    /// Along a tree, `blocks` through its root.
    fn tree(&self, blocks: u32) -> Cost {
        let rounds = self.levels().wrapping_mul(quotient_up(self.radix.others(), self.ports));
        Cost::rounds(rounds, self.children(), blocks)
    }

    /// A vector along a tree, from or to its root: its bytes go over the root's link once per child.
    fn vector(&self, blocks: u32) -> Cost {
        self.tree(self.children().saturating_mul(blocks))
    }

    fn reduction(&self, blocks: u32) -> Cost {
        let levels = self.levels().saturating_mul(blocks);
        self.vector(blocks).folding(levels, self.children().saturating_mul(blocks))
    }

    /// Gather or scatter along a tree: Qian & Afsahi, equation 1.
    fn spread(&self) -> Cost {
        self.tree(self.others())
    }

    /// Store and forward in base r: equation 1.
    fn bruck(&self) -> Cost {
        Cost::rounds(self.levels(), self.children(), self.others())
    }

    /// Equation 2.
    fn direct(&self) -> Cost {
        Cost::rounds(quotient_up(self.others(), self.ports), self.others(), self.others())
    }

    fn ring(&self) -> Cost {
        Cost::rounds(self.others(), self.others(), self.others())
    }

    /// Ranks of the largest group but its leader.
    fn followers(&self) -> u32 {
        self.groups.followers()
    }

    /// A correction step: `blocks` from, or to, each follower.
    fn correction(&self, blocks: u32) -> Cost {
        if self.groups.exact() {
            return Cost::default();
        }
        Cost::rounds(1, self.followers(), self.followers().saturating_mul(blocks))
    }

    /// The correction step before an exchange that combines.
    fn handing_over(&self, blocks: u32) -> Cost {
        let step = self.correction(blocks);
        let last = if self.groups.exact() { 0 } else { blocks };
        step.folding(last, step.busy.blocks)
    }

    /// Rounds of r − 1 messages each, with what `blocks` says for the digit.
    fn exchange(&self, blocks: impl Fn(u32) -> u32) -> Cost {
        let (digits, others) = (self.groups.digits, self.radix.others());
        let sum = (0..digits).fold(0_u32, |sum, place| sum.saturating_add(blocks(self.radix.power(place))));
        Cost::rounds(digits, digits.saturating_mul(others), sum.saturating_mul(others))
    }

    /// Combining in an exchange: of a round, the last message's after its arrival.
    fn combining(&self, exchange: Cost) -> Cost {
        exchange.folding(quotient(exchange.busy.blocks, self.radix.others()), exchange.busy.blocks)
    }

    /// Whole vectors in each round.
    fn whole(&self) -> Cost {
        self.exchange(|_| 1)
    }

    /// Parts of r^digit groups, with a block per group: (P − 1) blocks in all; Qian & Afsahi, equation 3.
    fn parts(&self) -> Cost {
        self.exchange(|weight| weight)
    }

    /// With a block per rank: the first groups are the longest.
    fn parts_by_rank(&self) -> Cost {
        self.exchange(|weight| self.groups.leader(weight))
    }

    /// Numbers below N whose digit of this round is not 0, in all rounds. At powers (r − 1)·N/r·log N: equation 5.
    fn forwarded(&self) -> u32 {
        (0..self.levels()).fold(0, |sum: u32, place| {
            let run = self.radix.power(place);
            let stride = run.saturating_mul(self.radix.base());
            let zeros = quotient(self.size, stride).saturating_mul(run);
            let zeros = zeros.saturating_add(remainder(self.size, stride).min(run));
            sum.saturating_add(self.size.saturating_sub(zeros))
        })
    }

    /// Reduce-scatter of a vector of a block per rank.
    fn scattered(&self, algorithm: Algorithm) -> Cost {
        if algorithm == Algorithm::Ring {
            return self.ring().folding(self.others(), self.others());
        }
        let halves = self.combining(self.parts_by_rank());
        self.handing_over(self.size).then(halves).then(self.correction(1))
    }

    /// The blocks that the bytes are cut into, and the cost.
    fn cost(&self, call: &Call) -> (u32, Cost) {
        use Algorithm::{Bruck, Dissemination, Doubling, Halving, Knomial, Ring, StandardExchange};
        let size = self.size;
        match (call.verb, call.algorithm) {
            (Verb::Barrier, Knomial) => (1, self.tree(0).then(self.tree(0))),
            (Verb::Barrier, Dissemination) => (1, Cost::rounds(self.levels(), self.children(), 0)),
            (Verb::Barrier, _) => (1, self.correction(0).then(self.exchange(|_| 0)).then(self.correction(0))),
            (Verb::Broadcast, Knomial) => (1, self.vector(1)),
            (Verb::Broadcast, Ring) => (size, self.spread().then(self.ring())),
            (Verb::Broadcast, _) => (size, self.spread().then(self.bruck())),
            (Verb::Reduce, Knomial) if call.order == Order::Rank && call.root.0 != 0 => {
                (1, self.reduction(1).then_back(Cost::rounds(1, 1, 1)))
            }
            (Verb::Reduce, Knomial) => (1, self.reduction(1)),
            (Verb::Reduce, _) => (size, self.scattered(call.algorithm).then(self.spread())),
            (Verb::Allreduce, Knomial) => (1, self.reduction(1).then_back(self.vector(1))),
            (Verb::Allreduce, Ring) => (size, self.scattered(Ring).then(self.ring())),
            (Verb::Allreduce, Halving) => {
                let vector = self.groups.count;
                let collected = self.parts().then(self.correction(vector));
                (vector, self.handing_over(vector).then(self.combining(self.parts())).then(collected))
            }
            (Verb::Allreduce, _) => {
                (1, self.handing_over(1).then(self.combining(self.whole())).then(self.correction(1)))
            }
            (Verb::ReduceScatter, Knomial) => (1, self.reduction(size).then_back(self.spread())),
            (Verb::ReduceScatter, _) => (1, self.scattered(call.algorithm)),
            (Verb::Gather | Verb::Scatter, Knomial) => (1, self.spread()),
            (Verb::Allgather, Doubling | StandardExchange) => {
                (1, self.correction(1).then(self.parts_by_rank()).then(self.correction(self.others())))
            }
            (Verb::Allgather, Bruck) => (1, self.bruck()),
            (Verb::Allgather, Ring) => (1, self.ring()),
            (Verb::Alltoall, Bruck) => (1, Cost::rounds(self.levels(), self.children(), self.forwarded())),
            (Verb::Alltoall, Doubling | StandardExchange) => (1, self.exchange(|_| quotient(size, self.radix.base()))),
            (Verb::Scan | Verb::Exscan, Dissemination) => (1, self.prefixes(call.verb)),
            (Verb::Scan | Verb::Exscan, _) => (1, self.chain(call.verb)),
            (Verb::Gather | Verb::Scatter | Verb::Allgather | Verb::Alltoall, _) => (1, self.direct()),
        }
    }

    /// Combinations per part that a rank of a scan receives: an exclusive one keeps its result apart from what it passes on.
    fn folds(verb: Verb) -> u32 {
        if verb == Verb::Exscan { 2 } else { 1 }
    }

    fn prefixes(&self, verb: Verb) -> Cost {
        let folds = Self::folds(verb);
        let (path, busy) = (self.levels().saturating_mul(folds), self.children().saturating_mul(folds));
        Cost::rounds(self.levels(), self.children(), self.children()).folding(path, busy)
    }

    /// A rank of a chain receives one message and sends one.
    fn chain(&self, verb: Verb) -> Cost {
        let path = Cost::rounds(self.others(), self.others(), self.others()).path;
        let cost = Cost { path, busy: Load { messages: 2, blocks: 1, folds: 0 }, cut: 1 };
        cost.folding(self.others(), Self::folds(verb))
    }
}

#[cfg(test)]
mod tests {
    extern crate alloc;
    use super::Cost;
    use crate::collective::{Order, Rank, Verb};
    use crate::schedule::{Algorithm, Call, Operation, Plan, algorithms};
    use alloc::vec::Vec;

    const VERBS: [Verb; 11] = [
        Verb::Barrier,
        Verb::Broadcast,
        Verb::Reduce,
        Verb::Allreduce,
        Verb::Gather,
        Verb::Scatter,
        Verb::Allgather,
        Verb::Alltoall,
        Verb::ReduceScatter,
        Verb::Scan,
        Verb::Exscan,
    ];

    /// Every call of a size, with its plans.
    fn calls(size: u32) -> Vec<(Call, Vec<Plan>)> {
        let mut all = Vec::new();
        for verb in VERBS {
            for &algorithm in algorithms(verb) {
                for (ports, radix) in [(1, 2), (2, 3), (3, 4), (4, 5), (16, 17), (1, 4), (2, 5)] {
                    for order in [Order::Any, Order::Rank] {
                        for root in if verb.is_rooted() { [0, size / 2] } else { [0, 0] } {
                            let (rank, root) = (Rank(0), Rank(root));
                            let (segments, in_place, varying) = (1, false, false);
                            let call = Call {
                                verb,
                                algorithm,
                                rank,
                                size,
                                root,
                                ports,
                                radix,
                                segments,
                                order,
                                in_place,
                                varying,
                            };
                            let plans = (0..size).map(|rank| Plan::new(Call { rank: Rank(rank), ..call }));
                            if let Ok(plans) = plans.collect() {
                                all.push((call, plans));
                            }
                        }
                    }
                }
            }
        }
        all
    }

    /// Messages and blocks that a rank sends, and receives, and blocks that it combines.
    fn moved(plan: &Plan) -> [u32; 5] {
        let mut sums = [0; 5];
        for i in 0..plan.steps() {
            let operation = plan.step(i).unwrap().operation;
            let (message, blocks) = match operation {
                Operation::Send { .. } => (0, 1),
                Operation::Receive { .. } => (2, 3),
                Operation::Reduce { .. } => (4, 4),
                Operation::Copy { .. } => continue,
            };
            sums[blocks] += operation.blocks();
            if message != blocks {
                sums[message] += 1;
            }
        }
        sums
    }

    #[test]
    fn schedule_costs_are_the_rounds_and_blocks_of_plans() {
        for size in (2..=12).chain([16, 17, 25, 27]) {
            for (call, plans) in calls(size) {
                let cost = Cost::of(&call);
                assert_eq!(plans.iter().map(Plan::rounds).max(), Some(cost.path.rounds), "rounds of {call:?}");
                assert_eq!(
                    plans[0].blocks(),
                    if is_vector(call.verb) { cost.cut } else { plans[0].blocks() },
                    "{call:?}"
                );
                let most: Vec<u32> = (0..5).map(|i| plans.iter().map(|plan| moved(plan)[i]).max().unwrap()).collect();
                let (messages, blocks) = (most[0].max(most[2]), most[1].max(most[3]));
                let busy = cost.busy;
                // Two parts may be done by different ranks: then the form is their sum, and an upper bound.
                let both = matches!(
                    (call.verb, call.algorithm),
                    (Verb::Broadcast, Algorithm::Bruck | Algorithm::Ring)
                        | (Verb::Reduce, Algorithm::Halving | Algorithm::Ring | Algorithm::Knomial)
                );
                assert!(blocks <= busy.blocks, "{call:?}: {most:?} {cost:?}");
                assert!(messages <= busy.messages, "{call:?}: {most:?} {cost:?}");
                assert!(most[4] <= busy.folds, "{call:?}: {most:?} {cost:?}");
                if !corrected(&call) && !both {
                    assert_eq!(blocks, busy.blocks, "{call:?}: {most:?}");
                    let passes_on = matches!(call.verb, Verb::Scan | Verb::Exscan);
                    assert!(passes_on || most[4] == busy.folds, "{call:?}: {most:?}");
                }
                assert!(cost.path.blocks >= busy.blocks.min(size - 1) || call.verb == Verb::Barrier);
            }
        }
    }

    fn is_vector(verb: Verb) -> bool {
        matches!(verb, Verb::Broadcast | Verb::Reduce | Verb::Allreduce | Verb::Scan | Verb::Exscan)
    }

    /// Whether an exchange of this base has correction steps.
    fn corrected(call: &Call) -> bool {
        let base = if call.algorithm == Algorithm::Doubling { 2 } else { u32::from(call.ports) + 1 };
        let exchanges =
            matches!(call.algorithm, Algorithm::Doubling | Algorithm::StandardExchange | Algorithm::Halving);
        exchanges && !(0..7).any(|m| base.pow(m) == call.size)
    }
}
