//! Closed forms of each algorithm's cost: rounds, messages and blocks, for one segment.
//!
//! N ranks, base r = k + 1. A tree has ⌈log_r N⌉ levels; its root has as many children as N − 1 has in all levels. An
//! exchange has ⌊log_r N⌋ rounds of r − 1 messages among the leaders of P = r^⌊log_r N⌋ groups, and two correction
//! steps if N ≠ P.

use super::super::groups::Groups;
use super::super::radix::{Radix, quotient, quotient_up, remainder};
use super::super::spec::base;
use super::super::{Algorithm, CollectiveKind, Order, Spec};

/// The work of one rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Load {
    /// Messages that it sends and receives.
    pub(super) messages: u32,
    /// Blocks in them.
    pub(super) blocks: u32,
    /// Blocks that it combines.
    pub(super) folds: u32,
}

impl Load {
    /// The same number of messages in both directions.
    const fn both_ways(messages: u32, blocks: u32) -> Self {
        Self { messages: messages.saturating_mul(2), blocks: blocks.saturating_mul(2), folds: 0 }
    }

    const fn times(self, n: u32) -> Self {
        Self {
            messages: self.messages.saturating_mul(n),
            blocks: self.blocks.saturating_mul(n),
            folds: self.folds.saturating_mul(n),
        }
    }

    /// An equal share of it, in sixteenths, of each of `ranks` ranks.
    fn among(self, ranks: u32) -> Self {
        let share = |all: u32| quotient_up(all.saturating_mul(PARTS), ranks.max(1));
        Self { messages: share(self.messages), blocks: share(self.blocks), folds: share(self.folds) }
    }

    const fn plus(self, other: Self) -> Self {
        Self {
            messages: self.messages.saturating_add(other.messages),
            blocks: self.blocks.saturating_add(other.blocks),
            folds: self.folds.saturating_add(other.folds),
        }
    }
}

/// Fractions in which the average work is counted.
const PARTS: u32 = 16;

/// The cost of a schedule for one segment, independent of the cost of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Cost {
    /// As counted by [`Plan::rounds`](super::Plan::rounds).
    pub(super) rounds: u32,
    /// Messages that are waited for in sequence: the rounds, unless nothing waits for the round before.
    pub(super) waits: u32,
    /// The sequential work of ranks on the longest path.
    pub(super) path: Load,
    /// The work of the busiest rank.
    pub(super) busy: Load,
    /// The average work of ranks, in sixteenths.
    pub(super) mean: Load,
    /// Blocks of the longest path, and of the busiest rank, that stay in a host.
    pub(super) staying: u32,
    /// Blocks that the ranks of a host send to other hosts, or receive from them, together. Along a tree of vectors, which is
    /// bound by its root, none.
    pub(super) crossing: u32,
    /// Blocks that the collective's bytes are cut into.
    pub(super) cut: u32,
}

impl Cost {
    /// The cost of an accepted specification, of which `per_host` adjacent ranks are on each host.
    pub(super) fn of(call: &Spec, per_host: u16) -> Self {
        if call.size < 2 {
            return Self { cut: 1, ..Self::default() };
        }
        let shape = Shape::of(call, u32::from(per_host));
        let (cut, cost) = shape.cost(call);
        Self { cut, ..cost }
    }

    /// One direction along a tree, or between a root and all others. The path consists of the root's messages and, in
    /// every further round, the other end of one.
    const fn rooted(rounds: u32, messages: u32, blocks: u32, folds: u32) -> Self {
        let busy = Load { messages, blocks, folds };
        let path = Load { messages: messages.saturating_add(rounds), ..busy };
        Self { rounds, waits: rounds, path, busy, mean: busy.times(PARTS), staying: 0, crossing: 0, cut: 1 }
    }

    /// Sets the total work of all ranks.
    fn in_all(self, ranks: u32, all: Load) -> Self {
        Self { mean: all.among(ranks), ..self }
    }

    /// Every rank sends and receives the same amount.
    const fn mutual(rounds: u32, messages: u32, blocks: u32) -> Self {
        let load = Load::both_ways(messages, blocks);
        Self { rounds, waits: rounds, path: load, busy: load, mean: load.times(PARTS), staying: 0, crossing: 0, cut: 1 }
    }

    /// Adds blocks combined by each rank, or by those that exchange.
    const fn folding(self, folds: u32) -> Self {
        let mean = Load { folds: folds.saturating_mul(PARTS), ..self.mean };
        Self { path: Load { folds, ..self.path }, busy: Load { folds, ..self.busy }, mean, ..self }
    }

    /// One phase after the other.
    const fn then(self, next: Self) -> Self {
        Self {
            rounds: self.rounds.saturating_add(next.rounds),
            waits: self.waits.saturating_add(next.waits),
            path: self.path.plus(next.path),
            busy: self.busy.plus(next.busy),
            mean: self.mean.plus(next.mean),
            staying: self.staying.saturating_add(next.staying),
            crossing: self.crossing.saturating_add(next.crossing),
            cut: self.cut,
        }
    }
}

/// Group size and base.
#[derive(Clone, Copy)]
struct Shape {
    size: u32,
    radix: Radix,
    ports: u32,
    groups: Groups,
    per_host: u32,
    /// The root is the first rank of a host.
    is_aligned: bool,
    /// The largest parts are exchanged between the nearest ranks.
    is_local_first: bool,
}

impl Shape {
    fn of(call: &Spec, per_host: u32) -> Self {
        let (radix, size) = (base(call), call.size);
        let (per_host, groups) = (per_host.clamp(1, size), Groups::new(radix, size, 0));
        let is_split = groups.exact() || call.collective == CollectiveKind::Allreduce;
        let is_local_first = call.order != Order::Any && is_split;
        let is_aligned = remainder(call.root.0, per_host) == 0;
        Self { size, radix, ports: u32::from(call.ports), groups, per_host, is_aligned, is_local_first }
    }

    /// Each rank sends `leaving` of its blocks to other hosts.
    fn among_hosts(&self, cost: Cost, leaving: u32) -> Cost {
        if self.per_host == 1 {
            return cost;
        }
        let staying = cost.busy.blocks.saturating_sub(leaving.saturating_mul(2));
        Cost { staying, crossing: leaving.saturating_mul(self.per_host), ..cost }
    }

    /// Of the blocks that a root sends or receives, this many stay in its host.
    fn within_host(&self, cost: Cost, blocks: u32) -> Cost {
        Cost { staying: if self.per_host == 1 { 0 } else { blocks }, ..cost }
    }

    /// Of `blocks` blocks that a rank sends, evenly to all others, those that leave its host.
    fn leaving(&self, blocks: u32) -> u32 {
        let away = u64::from(blocks).wrapping_mul(u64::from(self.size.wrapping_sub(self.per_host)));
        u32::try_from(away.div_ceil(u64::from(self.others().max(1)))).unwrap_or(u32::MAX)
    }

    fn others(&self) -> u32 {
        self.size.wrapping_sub(1)
    }

    /// Children of a tree's root, or messages of Bruck's algorithm and dissemination: r − 1 per level, the rest in the
    /// last one.
    fn children(&self) -> u32 {
        let level = self.radix.log(self.others());
        level.wrapping_mul(self.radix.others()).wrapping_add(quotient(self.others(), self.radix.power(level)))
    }

    /// Those of them in the root's host, if no tree of a host's ranks has ranks of another one.
    fn near_children(&self) -> u32 {
        let within = Self { size: self.per_host, ..*self };
        if self.is_aligned && self.per_host == self.radix.power(within.levels()) { within.children() } else { 0 }
    }

    fn levels(&self) -> u32 {
        self.radix.log_up(self.size)
    }

    fn tree_rounds(&self) -> u32 {
        self.levels().wrapping_mul(quotient_up(self.radix.others(), self.ports))
    }

    /// Both ends of a message to, or from, every rank but one, each with `blocks` blocks.
    fn both_ends(&self, blocks: u32) -> Load {
        Load::both_ways(self.others(), self.others().saturating_mul(blocks))
    }

    /// Signals along a tree.
    fn signals(&self) -> Cost {
        Cost::rooted(self.tree_rounds(), self.children(), 0, 0).in_all(self.size, self.both_ends(0))
    }

    /// A vector along a tree, from its root to every child.
    fn vector(&self) -> Cost {
        let once = Cost::rooted(self.tree_rounds(), self.children(), self.children(), 0);
        self.within_host(once.in_all(self.size, self.both_ends(1)), self.near_children())
    }

    /// Vectors along a tree to its root, which combines its children's.
    fn reduction(&self, blocks: u32) -> Cost {
        let vectors = self.children().saturating_mul(blocks);
        let folds = self.others().saturating_mul(blocks);
        let all = Load { folds, ..self.both_ends(blocks) };
        let once = Cost::rooted(self.tree_rounds(), self.children(), vectors, vectors).in_all(self.size, all);
        self.within_host(once, self.near_children().saturating_mul(blocks))
    }

    /// Gather or scatter along a tree: Qian & Afsahi, equation 1.
    fn spread(&self) -> Cost {
        // A block passes as many ranks as its rank's number has nonzero digits.
        let all = Load::both_ways(self.others(), self.forwarded());
        let spread = Cost::rooted(self.tree_rounds(), self.children(), self.others(), 0).in_all(self.size, all);
        // The blocks of all other hosts pass the link of the root's.
        let crossing = self.size.wrapping_sub(self.per_host);
        self.within_host(Cost { crossing, ..spread }, self.per_host.wrapping_sub(1))
    }

    /// Store and forward in base r: equation 1.
    fn bruck(&self, blocks: u32) -> Cost {
        self.among_hosts(Cost::mutual(self.levels(), self.children(), blocks), self.leaving(blocks))
    }

    fn direct_rounds(&self) -> u32 {
        quotient_up(self.others(), self.ports)
    }

    /// Equation 2, each round after the one before.
    fn pairwise(&self) -> Cost {
        let each = Cost::mutual(self.direct_rounds(), self.others(), self.others());
        self.among_hosts(each, self.leaving(self.others()))
    }

    /// Equation 2, except that no message waits for another.
    fn direct(&self) -> Cost {
        Cost { waits: 1, ..self.pairwise() }
    }

    /// The same, for one rank with all others.
    fn direct_rooted(&self) -> Cost {
        let once = Cost::rooted(1, self.others(), self.others(), 0).in_all(self.size, self.both_ends(1));
        self.within_host(Cost { rounds: self.direct_rounds(), ..once }, self.per_host.wrapping_sub(1))
    }

    fn ring(&self) -> Cost {
        let each = Cost::mutual(self.others(), self.others(), self.others());
        if self.per_host == 1 || self.per_host == self.size {
            return each;
        }
        // Only the last rank of a host sends to another host, and only the first receives from one.
        let of_one = self.among_hosts(each, self.others() >> 1);
        Cost { crossing: self.others(), ..of_one }
    }

    /// Ranks of the largest group, without its leader.
    fn followers(&self) -> u32 {
        self.groups.followers()
    }

    /// A correction step: `blocks` blocks from, or to, each follower.
    fn correction(&self, blocks: u32) -> Cost {
        if self.groups.exact() {
            return Cost::default();
        }
        let handed = self.size.saturating_sub(self.groups.count);
        let all = Load::both_ways(handed, handed.saturating_mul(blocks));
        let step = Cost::rooted(1, self.followers(), self.followers().saturating_mul(blocks), 0).in_all(self.size, all);
        let members = self.followers().saturating_add(1);
        // Groups that are not within hosts count as if all their ranks were on different ones.
        let is_nested = remainder(self.size, self.groups.count) == 0 && remainder(self.per_host, members) == 0;
        let away = if is_nested { 0 } else { self.followers() };
        let local = self.followers().saturating_sub(away).saturating_mul(blocks);
        let crossing = if self.per_host == 1 { 0 } else { away.saturating_mul(blocks) };
        self.within_host(Cost { crossing, ..step }, local)
    }

    /// The correction step before a combining exchange.
    fn handing_over(&self, blocks: u32) -> Cost {
        let step = self.correction(blocks);
        let folds = quotient_up(step.mean.blocks, 2);
        let folding = step.folding(step.busy.blocks);
        Cost { mean: Load { folds, ..step.mean }, ..folding }
    }

    /// Rounds of r − 1 messages each, with `blocks(weight)` blocks each, by the weight of the digit that they exchange.
    fn exchange(&self, blocks: impl Fn(u32) -> u32) -> Cost {
        let digits = self.groups.digits;
        let sum = |messages: &dyn Fn(u32) -> u32| {
            let each = |weight| blocks(weight).saturating_mul(messages(weight));
            (0..digits).fold(0_u32, |sum, place| sum.saturating_add(each(self.radix.power(place))))
        };
        let (messages, blocks) = (digits.saturating_mul(self.radix.others()), sum(&|_| self.radix.others()));
        let all = Load::both_ways(messages, blocks).times(self.groups.count);
        let cost = Cost::mutual(digits, messages, blocks).in_all(self.size, all);
        // A rank's own host has the first `per_host` of the ranks that digits up to this one distinguish.
        let near = |weight| quotient(self.per_host, weight).clamp(1, self.radix.base());
        self.among_hosts(cost, sum(&|weight| self.radix.base().wrapping_sub(near(weight))))
    }

    /// The weight of the parts that the digit of weight `weight` exchanges.
    fn part(&self, weight: u32) -> u32 {
        if self.is_local_first { quotient(self.groups.count, weight.saturating_mul(self.radix.base())) } else { weight }
    }

    /// An exchange in which all received blocks are combined.
    fn combining(exchange: Cost) -> Cost {
        let folds = quotient_up(exchange.mean.blocks, 2);
        let folding = exchange.folding(quotient(exchange.busy.blocks, 2));
        Cost { mean: Load { folds, ..exchange.mean }, ..folding }
    }

    /// Whole vectors in each round.
    fn whole(&self) -> Cost {
        self.exchange(|_| 1)
    }

    /// Parts of r^digit groups, with a block per group: (P − 1) blocks in total; Qian & Afsahi, equation 3.
    fn parts(&self) -> Cost {
        self.exchange(|weight| self.part(weight))
    }

    /// With a block per rank: the first groups are the longest.
    fn parts_by_rank(&self) -> Cost {
        self.exchange(|weight| self.groups.leader(self.part(weight)))
    }

    /// Numbers below N whose digit of the round is nonzero, summed over all rounds. At powers (r − 1)·N/r·log N:
    /// equation 5.
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
            return Self::combining(self.ring());
        }
        let halves = Self::combining(self.parts_by_rank());
        self.handing_over(self.size).then(halves).then(self.correction(1))
    }

    /// The blocks that the bytes are cut into, and the cost.
    fn cost(&self, call: &Spec) -> (u32, Cost) {
        use Algorithm::{Bruck, Dissemination, Doubling, Halving, Knomial, Pairwise, Ring, StandardExchange};
        let size = self.size;
        match (call.collective, call.algorithm) {
            (CollectiveKind::Barrier, Knomial) => (1, self.signals().then(self.signals())),
            (CollectiveKind::Barrier, Dissemination) => (1, self.bruck(0)),
            (CollectiveKind::Barrier, _) => (1, self.correction(0).then(self.exchange(|_| 0)).then(self.correction(0))),
            (CollectiveKind::Broadcast, Knomial) => (1, self.vector()),
            (CollectiveKind::Broadcast, Ring) => (size, self.spread().then(self.ring())),
            (CollectiveKind::Broadcast, _) => (size, self.spread().then(self.bruck(self.others()))),
            (CollectiveKind::Reduce, Knomial) if call.order != Order::Any && call.root.0 != 0 => {
                (1, self.reduction(1).then(Cost::rooted(1, 1, 1, 0).in_all(size, Load::both_ways(1, 1))))
            }
            (CollectiveKind::Reduce, Knomial) => (1, self.reduction(1)),
            (CollectiveKind::Reduce, _) => (size, self.scattered(call.algorithm).then(self.spread())),
            (CollectiveKind::Allreduce, Knomial) => (1, self.reduction(1).then(self.vector())),
            (CollectiveKind::Allreduce, Ring) => (size, self.scattered(Ring).then(self.ring())),
            (CollectiveKind::Allreduce, Halving) => {
                let vector = self.groups.count;
                let collected = self.parts().then(self.correction(vector));
                (vector, self.handing_over(vector).then(Self::combining(self.parts())).then(collected))
            }
            (CollectiveKind::Allreduce, _) => {
                (1, self.handing_over(1).then(Self::combining(self.whole())).then(self.correction(1)))
            }
            (CollectiveKind::ReduceScatter, Knomial) => (1, self.reduction(size).then(self.spread())),
            (CollectiveKind::ReduceScatter, _) => (1, self.scattered(call.algorithm)),
            (CollectiveKind::Gather | CollectiveKind::Scatter, Knomial) => (1, self.spread()),
            (CollectiveKind::Gather | CollectiveKind::Scatter, _) => (1, self.direct_rooted()),
            (CollectiveKind::Allgather, Doubling | StandardExchange) => {
                (1, self.correction(1).then(self.parts_by_rank()).then(self.correction(self.others())))
            }
            (CollectiveKind::Allgather, Bruck) => (1, self.bruck(self.others())),
            (CollectiveKind::Allgather, Ring) => (1, self.ring()),
            (CollectiveKind::Alltoall, Bruck) => (1, self.bruck(self.forwarded())),
            (CollectiveKind::Alltoall, Doubling | StandardExchange) => {
                (1, self.exchange(|_| quotient(size, self.radix.base())))
            }
            (CollectiveKind::Alltoall, Pairwise) => (1, self.pairwise()),
            (CollectiveKind::Allgather | CollectiveKind::Alltoall, _) => (1, self.direct()),
            (CollectiveKind::Scan | CollectiveKind::Exscan, Dissemination) => (1, self.prefixes(call.collective)),
            (CollectiveKind::Scan | CollectiveKind::Exscan, _) => (1, self.chain()),
        }
    }

    fn prefixes(&self, verb: CollectiveKind) -> Cost {
        let folds = match verb {
            // The first received part is copied, and the last is not passed on.
            CollectiveKind::Exscan => self.children().saturating_sub(1).saturating_mul(2),
            _ => self.children(),
        };
        // A rank with no rank that distance ahead sends nothing.
        let sent = (0..self.levels()).fold(0_u32, |sum, place| {
            let power = self.radix.power(place);
            (1..=self.radix.others())
                .fold(sum, |sum, digit| sum.saturating_add(self.size.saturating_sub(power.saturating_mul(digit))))
        });
        let combined = match verb {
            CollectiveKind::Exscan => sent.saturating_mul(2).saturating_sub(self.others().saturating_mul(2)),
            _ => sent,
        };
        let all = Load { folds: combined, ..Load::both_ways(sent, sent) };
        self.bruck(self.children()).folding(folds).in_all(self.size, all)
    }

    /// A rank of a chain receives one message and sends one.
    fn chain(&self) -> Cost {
        let hops = self.others();
        let path = Load { messages: hops.saturating_mul(2), blocks: hops, folds: hops };
        let busy = Load { folds: 1, ..Load::both_ways(1, 1) };
        let all = Load { folds: hops, ..self.both_ends(1) };
        Cost { rounds: hops, waits: hops, path, busy, mean: busy, staying: 0, crossing: 0, cut: 1 }
            .in_all(self.size, all)
    }
}

#[cfg(test)]
mod tests {
    extern crate alloc;
    use super::{Cost, Load, PARTS};
    use crate::collective::{CollectiveKind, Order};
    use crate::ids::Rank;
    use crate::schedule::{Algorithm, Plan, Spec, StepOperation, algorithms};
    use alloc::vec::Vec;

    /// Every specification of a size, with its plans.
    fn calls(size: u32) -> Vec<(Spec, Vec<Plan>)> {
        let mut all = Vec::new();
        for verb in CollectiveKind::ALL {
            for &algorithm in algorithms(verb) {
                for (ports, radix) in [(1, 2), (2, 3), (3, 4), (4, 5), (16, 17), (1, 4), (2, 5)] {
                    for order in [Order::Any, Order::Rank] {
                        for root in if verb.is_rooted() { [0, size / 2] } else { [0, 0] } {
                            let (rank, root) = (Rank(0), Rank(root));
                            let (segments, in_place, varying) = (1, false, false);
                            let call = Spec {
                                collective: verb,
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
                            let plans = (0..size).map(|rank| Plan::new(Spec { rank: Rank(rank), ..call }));
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

    /// The work of a rank, step by step.
    fn load(plan: &Plan) -> Load {
        let mut load = Load::default();
        for i in 0..plan.steps() {
            let operation = plan.step(i).unwrap().operation;
            match operation {
                StepOperation::Send { .. } | StepOperation::Receive { .. } => {
                    load.messages += 1;
                    load.blocks += operation.blocks();
                }
                StepOperation::Reduce { .. } => load.folds += operation.blocks(),
                StepOperation::Copy { .. } | StepOperation::Group(_) => {}
            }
        }
        load
    }

    #[test]
    fn schedule_costs_are_the_rounds_and_blocks_of_plans() {
        for size in (2..=12).chain([16, 17, 25, 27]) {
            for (call, plans) in calls(size) {
                let cost = Cost::of(&call, 1);
                assert_eq!(plans.iter().map(Plan::rounds).max(), Some(cost.rounds), "rounds of {call:?}");
                assert!(!is_vector(call.collective) || plans[0].blocks() == cost.cut, "{call:?}");
                let loads: Vec<Load> = plans.iter().map(load).collect();
                let most = |of: fn(&Load) -> u32| loads.iter().map(of).max().unwrap();
                let (messages, blocks, folds) =
                    (most(|load| load.messages), most(|load| load.blocks), most(|load| load.folds));
                let (busy, path) = (cost.busy, cost.path);
                assert!(blocks <= busy.blocks, "{call:?}: {blocks} blocks, {cost:?}");
                assert!(messages <= busy.messages, "{call:?}: {messages} messages, {cost:?}");
                assert!(folds <= busy.folds, "{call:?}: {folds} combined, {cost:?}");
                // On average: no less, and little more, than rounded.
                let all = |of: fn(&Load) -> u32| loads.iter().map(of).sum::<u32>() * PARTS;
                for (what, all, mean) in [
                    ("messages", all(|load| load.messages), cost.mean.messages),
                    ("blocks", all(|load| load.blocks), cost.mean.blocks),
                    ("combined", all(|load| load.folds), cost.mean.folds),
                ] {
                    let said = mean * size;
                    assert!(said >= all, "{what} on average, {call:?}: {all} in {PARTS}ths, {cost:?}");
                    assert!(said <= all * 5 / 2 + 2 * size * PARTS, "{what} on average, {call:?}: {all}, {cost:?}");
                }
                assert!(path.messages >= busy.messages && path.folds >= busy.folds.min(size - 1), "{call:?}: {cost:?}");
                if is_exact(&call) {
                    assert_eq!((messages, blocks, folds), (busy.messages, busy.blocks, busy.folds), "{call:?}");
                }
            }
        }
    }

    /// Blocks that the ranks of a host send to other hosts, or receive from them.
    fn most_crossing(plans: &[Plan], host: u32, per_host: u32) -> u32 {
        let (mut sent, mut received) = (0, 0);
        for plan in plans.iter().skip((host * per_host) as usize).take(per_host as usize) {
            for operation in (0..plan.steps()).map(|i| plan.step(i).unwrap().operation) {
                match operation {
                    StepOperation::Send { to, .. } if to.0 / per_host != host => sent += operation.blocks(),
                    StepOperation::Receive { of, .. } if of.0 / per_host != host => received += operation.blocks(),
                    _ => {}
                }
            }
        }
        sent.max(received)
    }

    #[test]
    fn blocks_that_leave_a_host_are_those_of_plans() {
        for (size, per_host) in [(4, 2), (6, 2), (6, 3), (8, 2), (8, 4), (12, 4), (16, 4), (16, 8), (27, 9)] {
            for (call, plans) in calls(size) {
                let crossing = Cost::of(&call, per_host as u16).crossing;
                let most = (0..size / per_host).map(|host| most_crossing(&plans, host, per_host)).max().unwrap();
                // Vectors along a tree do not count, and groups that are on two hosts count as if each rank were on one.
                if call.algorithm != Algorithm::Knomial && !corrected(&call) && !is_scan(call.collective) {
                    let is_close = crossing * 2 >= most && crossing <= most * 2;
                    let is_rooted = matches!(call.collective, CollectiveKind::Gather | CollectiveKind::Scatter);
                    assert!(is_close || is_rooted, "{call:?}, {per_host} per host: {crossing}, {most} blocks");
                }
            }
        }
    }

    const fn is_scan(verb: CollectiveKind) -> bool {
        matches!(verb, CollectiveKind::Scan | CollectiveKind::Exscan)
    }

    /// Whether one rank does as much as the form states: parts of which the same rank is the busiest, and exchanges
    /// without correction steps. In a scan, the rank that receives most does not send most.
    fn is_exact(call: &Spec) -> bool {
        let of_parts = matches!(
            (call.collective, call.algorithm),
            (CollectiveKind::Reduce, Algorithm::Halving | Algorithm::Ring | Algorithm::Knomial)
                | (CollectiveKind::ReduceScatter, Algorithm::Knomial)
                | (CollectiveKind::Scan | CollectiveKind::Exscan, _)
        );
        !of_parts && !corrected(call)
    }

    fn is_vector(verb: CollectiveKind) -> bool {
        matches!(
            verb,
            CollectiveKind::Broadcast
                | CollectiveKind::Reduce
                | CollectiveKind::Allreduce
                | CollectiveKind::Scan
                | CollectiveKind::Exscan
        )
    }

    /// Whether an exchange of this base has correction steps.
    fn corrected(call: &Spec) -> bool {
        let base = if call.algorithm == Algorithm::Doubling { 2 } else { u32::from(call.ports) + 1 };
        let exchanges =
            matches!(call.algorithm, Algorithm::Doubling | Algorithm::StandardExchange | Algorithm::Halving);
        exchanges && !(0..7).any(|m| base.pow(m) == call.size)
    }
}
