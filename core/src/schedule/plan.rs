//! One rank's schedule: its phases, and the steps across phases and segments.

use super::algorithm::alltoall_exchange::Swap;
use super::algorithm::copy::{Copy, Hop};
use super::algorithm::direct::{self, Rooted};
use super::algorithm::exchange::Exchange;
use super::algorithm::fold::{After, Before};
use super::algorithm::scan::{Chain, Doubling};
use super::algorithm::tree::{Down, Reduction, Up};
use super::algorithm::{bruck, ring};
use super::radix::{quotient, remainder};
use super::spec::{check, counted};
use super::{Call, Part, Refused, Step, dependencies};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Kind {
    Copy(Copy),
    Hop(Hop),
    Down(Down),
    Up(Up),
    TreeReduction(Reduction),
    Before(Before),
    Exchange(Exchange),
    After(After),
    Dissemination(bruck::Dissemination),
    BruckAllgather(bruck::Allgather),
    BruckAlltoall(bruck::Alltoall),
    RingAllgather(ring::Allgather),
    RingReduction(ring::Reduction),
    DirectAllgather(direct::Allgather),
    DirectAlltoall(direct::Alltoall),
    Rooted(Rooted),
    Swap(Swap),
    Doubling(Doubling),
    Chain(Chain),
}

impl Kind {
    pub(super) fn part(&self) -> &dyn Part {
        match self {
            Self::Copy(part) => part,
            Self::Hop(part) => part,
            Self::Down(part) => part,
            Self::Up(part) => part,
            Self::TreeReduction(part) => part,
            Self::Before(part) => part,
            Self::Exchange(part) => part,
            Self::After(part) => part,
            Self::Dissemination(part) => part,
            Self::BruckAllgather(part) => part,
            Self::BruckAlltoall(part) => part,
            Self::RingAllgather(part) => part,
            Self::RingReduction(part) => part,
            Self::DirectAllgather(part) => part,
            Self::DirectAlltoall(part) => part,
            Self::Rooted(part) => part,
            Self::Swap(part) => part,
            Self::Doubling(part) => part,
            Self::Chain(part) => part,
        }
    }
}

/// The most phases of a schedule.
const PARTS: usize = 4;

/// One rank's schedule.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Plan {
    pub(super) call: Call,
    pub(super) parts: [Option<Kind>; PARTS],
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
    /// See [`Refused`]. All ranks of a group get the same result.
    pub fn new(call: Call) -> Result<Self, Refused> {
        check(&call)?;
        let mut plan =
            Self { call, parts: [None; PARTS], last: None, blocks: 1, steps: 0, keys: 0, early: 0, early_messages: 0 };
        if call.size == 1 {
            plan.alone();
        } else {
            plan.compose()?;
        }
        counted(&call)?;
        Ok(plan)
    }

    /// The specification.
    pub const fn call(&self) -> &Call {
        &self.call
    }

    /// The number of blocks in a whole buffer: see the table of buffers in the [module](super).
    pub const fn blocks(&self) -> u32 {
        self.blocks
    }

    /// The number of steps of this rank.
    pub const fn steps(&self) -> u32 {
        let each = if self.last.is_some() { self.steps.wrapping_add(1) } else { self.steps };
        each.wrapping_mul(self.call.segments)
    }

    /// Step `i`, or `None` after the last one. Pure: any step, in any order.
    pub fn step(&self, i: u32) -> Option<Step> {
        if i >= self.steps() {
            return None;
        }
        if let (Some(after), Some(copy)) = (i.checked_sub(self.steps.wrapping_mul(self.call.segments)), self.last) {
            return Some(Step {
                operation: copy.step(0).operation.placed(after, 0),
                needs: dependencies::steps(i, 0, i),
            });
        }
        let segment = quotient(i, self.steps);
        let mut left = remainder(i, self.steps);
        let mut before = 0_u32;
        let mut keys = segment.wrapping_mul(self.keys);
        for kind in self.parts.iter().flatten() {
            let part = kind.part();
            if let Some(beyond) = left.checked_sub(part.len()) {
                left = beyond;
                before = before.wrapping_add(part.len());
                keys = keys.wrapping_add(part.keys());
                continue;
            }
            let step = part.step(left);
            let earlier = if part.waits(left) { dependencies::steps(before.wrapping_add(left), 0, before) } else { 0 };
            return Some(Step { operation: step.operation.placed(segment, keys), needs: step.needs | earlier });
        }
        None
    }

    /// The number of scratch blocks. Scratch block x has the size of block x modulo [`Plan::blocks`].
    pub fn scratch_blocks(&self) -> u32 {
        self.parts.iter().flatten().map(|kind| kind.part().scratch()).max().unwrap_or(0)
    }

    /// The most blocks, with all segments of each, that can arrive before this rank has entered: those that wait
    /// neither for its own contribution nor for what it forwards.
    pub const fn early_blocks(&self) -> u32 {
        self.early
    }

    /// The most messages, including signals, that can arrive before this rank has entered.
    pub const fn early_messages(&self) -> u32 {
        self.early_messages.wrapping_mul(self.call.segments)
    }

    /// Rounds of one segment, over the whole group, in which every rank uses each port at most once, if its phases run
    /// in sequence. For a tree on fewer than radix − 1 ports this is an upper bound.
    pub fn rounds(&self) -> u32 {
        self.parts.iter().flatten().fold(0, |rounds, kind| rounds.wrapping_add(kind.part().rounds()))
    }
}
