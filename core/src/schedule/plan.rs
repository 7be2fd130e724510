//! One rank's schedule: its phases, and the steps across phases and segments.

use super::algorithm::alltoall_exchange::AlltoallExchange;
use super::algorithm::copy::{Copy, RootTransfer};
use super::algorithm::direct::{self, Rooted};
use super::algorithm::exchange::Exchange;
use super::algorithm::fold::{FoldIn, FoldOut};
use super::algorithm::scan::{Chain, Doubling};
use super::algorithm::tree::{Down, Reduction, Up};
use super::algorithm::{bruck, ring};
use super::radix::{quotient, remainder};
use super::spec::{check, check_step_count};
use super::{Phase, Spec, Step, Unsupported, dependencies};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum PhaseKind {
    Copy(Copy),
    RootTransfer(RootTransfer),
    Down(Down),
    Up(Up),
    TreeReduction(Reduction),
    FoldIn(FoldIn),
    Exchange(Exchange),
    FoldOut(FoldOut),
    Dissemination(bruck::Dissemination),
    BruckAllgather(bruck::Allgather),
    BruckAlltoall(bruck::Alltoall),
    RingAllgather(ring::Allgather),
    RingReduction(ring::Reduction),
    DirectAllgather(direct::Allgather),
    DirectAlltoall(direct::Alltoall),
    Rooted(Rooted),
    AlltoallExchange(AlltoallExchange),
    Doubling(Doubling),
    Chain(Chain),
}

impl PhaseKind {
    pub(super) fn phase(&self) -> &dyn Phase {
        match self {
            Self::Copy(part) => part,
            Self::RootTransfer(part) => part,
            Self::Down(part) => part,
            Self::Up(part) => part,
            Self::TreeReduction(part) => part,
            Self::FoldIn(part) => part,
            Self::Exchange(part) => part,
            Self::FoldOut(part) => part,
            Self::Dissemination(part) => part,
            Self::BruckAllgather(part) => part,
            Self::BruckAlltoall(part) => part,
            Self::RingAllgather(part) => part,
            Self::RingReduction(part) => part,
            Self::DirectAllgather(part) => part,
            Self::DirectAlltoall(part) => part,
            Self::Rooted(part) => part,
            Self::AlltoallExchange(part) => part,
            Self::Doubling(part) => part,
            Self::Chain(part) => part,
        }
    }
}

/// The most phases of a schedule.
const PHASES: usize = 4;

/// One rank's schedule.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Plan {
    pub(super) spec: Spec,
    pub(super) phases: [Option<PhaseKind>; PHASES],
    pub(super) blocks: u32,
    /// A copy for each segment after all segments: the result overlays memory that other segments still read.
    pub(super) last: Option<Copy>,
    /// Per segment.
    pub(super) steps: u32,
    pub(super) keys: u32,
    /// The most blocks that may arrive before the rank has entered, per segment, and their messages.
    pub(super) early: u32,
    pub(super) early_messages: u32,
}

impl Plan {
    /// The most ports: a round's receives and sends fit in the 64 steps that may be in progress.
    pub const PORTS: u8 = 16;

    /// The most ranks: steps, and the scratch blocks that a tree's inner rank combines, are counted in 32 bits.
    pub const RANKS: u32 = 1 << 22;

    /// Builds the schedule of `call.rank`.
    ///
    /// # Errors
    /// See [`Unsupported`]. All ranks of a group get the same result.
    pub fn new(call: Spec) -> Result<Self, Unsupported> {
        check(&call)?;
        let mut plan = Self {
            spec: call,
            phases: [None; PHASES],
            last: None,
            blocks: 1,
            steps: 0,
            keys: 0,
            early: 0,
            early_messages: 0,
        };
        if call.size == 1 {
            plan.alone();
        } else {
            plan.build()?;
        }
        check_step_count(&call)?;
        Ok(plan)
    }

    /// The specification.
    pub const fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The number of blocks in a whole buffer: see the table of buffers in the [module](super).
    pub const fn blocks(&self) -> u32 {
        self.blocks
    }

    /// The number of steps of this rank.
    pub const fn steps(&self) -> u32 {
        let each = if self.last.is_some() { self.steps.wrapping_add(1) } else { self.steps };
        each.wrapping_mul(self.spec.segments)
    }

    /// Step `i`, or `None` after the last one. Pure: any step, in any order.
    pub fn step(&self, i: u32) -> Option<Step> {
        if i >= self.steps() {
            return None;
        }
        if let (Some(after), Some(copy)) = (i.checked_sub(self.steps.wrapping_mul(self.spec.segments)), self.last) {
            return Some(Step {
                operation: copy.step(0).operation.placed(after, 0),
                dependencies: dependencies::steps(i, 0, i),
            });
        }
        let segment = quotient(i, self.steps);
        let mut left = remainder(i, self.steps);
        let mut before = 0_u32;
        let mut keys = segment.wrapping_mul(self.keys);
        for kind in self.phases.iter().flatten() {
            let part = kind.phase();
            if let Some(beyond) = left.checked_sub(part.len()) {
                left = beyond;
                before = before.wrapping_add(part.len());
                keys = keys.wrapping_add(part.keys());
                continue;
            }
            let step = part.step(left);
            let earlier = if part.waits(left) { dependencies::steps(before.wrapping_add(left), 0, before) } else { 0 };
            return Some(Step {
                operation: step.operation.placed(segment, keys),
                dependencies: step.dependencies | earlier,
            });
        }
        None
    }

    /// The steps of a segment before those that collect the ranks' parts of the vector, of a broadcast, reduce or allreduce
    /// that leaves each rank with its own block first. `None`: it does not.
    pub(super) fn steps_before_collecting(&self) -> Option<u32> {
        let mut before = 0_u32;
        for kind in self.phases.iter().flatten() {
            let collects = match kind {
                PhaseKind::Up(_) | PhaseKind::RingAllgather(_) | PhaseKind::BruckAllgather(_) => true,
                PhaseKind::Exchange(exchange) => exchange.collects(),
                _ => false,
            };
            if collects {
                return Some(before).filter(|_| self.blocks == self.spec.size);
            }
            before = before.wrapping_add(kind.phase().len());
        }
        None
    }

    /// The messages that it receives for a segment.
    pub(super) fn receives(&self) -> u32 {
        self.phases.iter().flatten().fold(0, |sum, kind| sum.wrapping_add(kind.phase().receives()))
    }

    /// The step of the `n`th of them.
    pub(super) fn receive(&self, n: u32) -> Option<u32> {
        let (mut left, mut before) = (n, 0_u32);
        for kind in self.phases.iter().flatten() {
            let part = kind.phase();
            match left.checked_sub(part.receives()) {
                Some(later) => left = later,
                None => return Some(before.wrapping_add(part.receive(left))),
            }
            before = before.wrapping_add(part.len());
        }
        None
    }

    /// The number of scratch blocks. Scratch block x has the size of block x modulo [`Plan::blocks`].
    pub fn scratch_blocks(&self) -> u32 {
        self.phases.iter().flatten().map(|kind| kind.phase().scratch()).max().unwrap_or(0)
    }

    /// The most blocks, with all segments of each, that can arrive before this rank has entered: those that wait
    /// neither for its own contribution nor for what it forwards.
    pub const fn early_blocks(&self) -> u32 {
        self.early
    }

    /// The most messages, including signals, that can arrive before this rank has entered.
    pub const fn early_messages(&self) -> u32 {
        self.early_messages.wrapping_mul(self.spec.segments)
    }

    /// Rounds of one segment, over the whole group, in which every rank uses each port at most once, if its phases run
    /// in sequence. For a tree on fewer than radix − 1 ports this is an upper bound.
    pub fn rounds(&self) -> u32 {
        self.phases.iter().flatten().fold(0, |rounds, kind| rounds.wrapping_add(kind.phase().rounds()))
    }
}

#[cfg(test)]
mod tests {
    extern crate alloc;
    use super::{Plan, Spec};
    use crate::collective::CollectiveKind;
    use crate::ids::Rank;
    use crate::schedule::{Algorithm, StepOperation};
    use alloc::vec::Vec;

    #[test]
    fn receives_of_a_plan_are_numbered_in_the_order_of_its_steps() {
        for (size, ports) in (1..=20).flat_map(|size| [1, 2, 3].map(|ports| (size, ports))) {
            for (kind, algorithm) in
                CollectiveKind::ALL.iter().flat_map(|kind| Algorithm::ALL.map(|algorithm| (*kind, algorithm)))
            {
                for (rank, in_place) in (0..size).flat_map(|rank| [(Rank(rank), false), (Rank(rank), true)]) {
                    let call = Spec { rank, in_place, ..Spec::new(kind, algorithm, size, ports) };
                    let Ok(plan) = Plan::new(call) else { continue };
                    let is_receive = |i: &u32| {
                        plan.step(*i).is_some_and(|step| matches!(step.operation, StepOperation::Receive { .. }))
                    };
                    let steps: Vec<u32> = (0..plan.steps()).filter(is_receive).collect();
                    let numbered: Vec<u32> = (0..plan.receives()).filter_map(|n| plan.receive(n)).collect();
                    assert_eq!(numbered, steps, "{call:?}");
                    assert_eq!(plan.receive(plan.receives()), None, "{call:?}");
                }
            }
        }
    }
}
