//! Collectives over messages as pure schedules: the steps of one rank.
//!
//! A schedule is a function of the step's number. Any step may be computed in any order, costs O(log size) and needs no
//! memory. There are no rounds: a step names the earlier steps that it depends on, and the segments of a payload pass
//! through the same steps in a pipeline.
//!
//! # Units
//! A collective moves *blocks*. [`Plan::blocks`] is their number in a whole buffer: one per rank where ranks have
//! blocks of their own (gather, allgather, alltoall, …), otherwise as many as the algorithm cuts the vector into.
//! [`Layout`] maps blocks to bytes.
//!
//! # Buffers
//! | collective | [`BlockBuffer::Input`] | [`BlockBuffer::Output`] | in place |
//! |---|---|---|---|
//! | broadcast | – | the vector, at every rank | always |
//! | reduce | the vector | the vector, at the root | both the same, at the root |
//! | allreduce, scan, exscan | the vector | the vector | both the same |
//! | gather | one block | one per rank, at the root | the input is the root's block of the output |
//! | scatter | one per rank, at the root | one block | the output is the root's block of the input |
//! | allgather | one block | one per rank | the input is the rank's block of the output |
//! | alltoall | one per rank | one per rank | both the same |
//! | reduce-scatter | one per rank | one block | the output overlays the start of the input |
//!
//! A barrier has no blocks: its messages are signals. A fan-in is a reduce of an empty vector, a fan-out a broadcast of
//! one.
//!
//! [`BlockBuffer::Input`] is never written unless it is also the output.
//!
//! # Algorithms
//! | collective | algorithms | only if commutative | only for equal blocks |
//! |---|---|---|---|
//! | barrier | k-nomial, dissemination, doubling, standard exchange | | |
//! | broadcast | k-nomial, Bruck, ring | | |
//! | reduce, reduce-scatter | k-nomial, halving, ring | ring; halving unless the size is a power of k + 1 | |
//! | allreduce | k-nomial, doubling, standard exchange, halving, ring | ring | |
//! | gather, scatter | k-nomial, direct | | k-nomial |
//! | allgather | doubling, standard exchange, Bruck, direct, ring | | |
//! | alltoall | pairwise, direct, Bruck; doubling, standard exchange if a power | | all but pairwise, direct |
//! | scan, exscan | dissemination, ring | | |
//!
//! Every allreduce combines in one order, the same on all ranks, so that all ranks get the same bits. In a
//! [fixed](Order::Fixed) order reductions use the k-nomial tree of radix 2, and scans dissemination on one port.
//!
//! Qian, Afsahi, "Efficient shared memory and RDMA based collectives on multi-rail QsNetII SMP clusters" (2008), §5.1:
//! the tree of k + 1 branches, direct, standard exchange and Bruck with k ports. Mamidala, dissertation (2008), §2.1.3:
//! pairwise, recursive doubling, dissemination. If the size is no power of k + 1, groups of at most k + 1 adjacent
//! ranks first fold their parts into one of them and receive the result from it: two correction steps. An alltoall has
//! no such steps: Bruck's algorithm takes any size in as few rounds.
//!
//! # Subgroups
//! A [`HierarchicalPlan`] composes these algorithms over nested subgroups of ranks, such as those of each host: its
//! messages between groups are those of the leaders. It is a [`Schedule`] like a [`Plan`], for the same executor.

mod algorithm;
mod blocks;
mod build;
mod dependencies;
mod executor;
mod groups;
mod hierarchy;
mod layout;
mod levels;
mod plan;
mod radix;
mod selection;
mod spec;

use crate::collective::{CollectiveKind, Order};
use crate::ids::{Port, Rank};

pub use blocks::{Blocks, Runs};
pub use executor::{Executor, Schedule};
pub use hierarchy::Hierarchy;
pub use layout::{BlockMap, ByteRange, ByteRanges, Layout, Pairs};
pub use levels::{GroupLevels, HierarchicalPlan, HierarchyOptions, Leaders, LowerTrees};
pub use plan::Plan;
pub use selection::{
    Choice, Constraints, GroupModel, LinkModel, SlotModel, algorithms, choose, choose_with, multicast_pays,
};
pub use spec::{Spec, Unsupported};

/// An algorithm of a collective. Not every collective has every algorithm: [`Plan::new`] rejects the others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Algorithm {
    /// A tree in which a rank has `radix − 1` children per level; binomial with k ports for radix = k + 1. An allreduce
    /// is a reduce and a broadcast, a reduce-scatter a reduce and a scatter.
    Knomial,
    /// In round j to the ranks d·(k + 1)^j ahead, d = 1 to k.
    Dissemination,
    /// In round i with the rank at XOR i, or to the rank i ahead and from the rank i before if the size is no power of
    /// two; k rounds at a time.
    Pairwise,
    /// Standard exchange in base 2.
    Doubling,
    /// Groups of k + 1 exchange, digit by digit in base k + 1, with correction steps.
    StandardExchange,
    /// Reduce-scatter by exchanging parts, digit by digit in base k + 1, with correction steps. An allreduce continues
    /// with the standard exchange of the parts, a reduce with a gather.
    Halving,
    /// Store and forward in base k + 1, any size. A broadcast scatters first.
    Bruck,
    /// Each message directly to its destination, k at a time.
    Direct,
    /// Between adjacent ranks. A broadcast scatters first, an allreduce is a reduce-scatter and an allgather, a reduce
    /// ends with a gather. A scan is a chain.
    Ring,
}

/// A buffer of a schedule.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BlockBuffer {
    /// The caller's contribution.
    Input,
    /// The caller's result.
    Output,
    /// Temporary memory for the collective: [`Plan::scratch_blocks`].
    Scratch,
}

/// One segment of some blocks of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BlockSpan {
    /// The buffer.
    pub buffer: BlockBuffer,
    /// Its blocks.
    pub blocks: Blocks,
    /// The segment of each block, less than the plan's number of segments.
    pub segment: u32,
}

impl BlockSpan {
    const fn new(buffer: BlockBuffer, blocks: Blocks) -> Self {
        Self { buffer, blocks, segment: 0 }
    }

    /// No data: a signal.
    const SIGNAL: Self = Self::new(BlockBuffer::Input, Blocks::NONE);
}

/// The side on which the received operand is combined.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fold {
    /// into = from · into.
    Left,
    /// into = into · from.
    Right,
}

/// One operation of a step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StepOperation {
    /// Matches the receive with the same key at `to`.
    Send {
        /// The receiver.
        to: Rank,
        /// The port.
        port: Port,
        /// Unique between these two ranks, in this direction, within the collective.
        key: u32,
        /// The data; no block is a signal.
        from: BlockSpan,
    },
    /// Matches the send with the same key at `of`.
    Receive {
        /// The sender.
        of: Rank,
        /// The port.
        port: Port,
        /// The sender's key.
        key: u32,
        /// The destination: as many blocks as are sent, of the same sizes, in the same order.
        into: BlockSpan,
    },
    /// Copies block by block.
    Copy {
        /// The source,
        from: BlockSpan,
        /// and the destination, with as many blocks.
        into: BlockSpan,
    },
    /// Combines block by block with the collective's operation.
    Reduce {
        /// One operand.
        from: BlockSpan,
        /// The other operand, and the result.
        into: BlockSpan,
        /// The side of `from`.
        fold: Fold,
    },
    /// A collective of a subgroup of this rank, by other means than messages: all of its members execute their steps of
    /// this subgroup in the same order, that of their numbers ([`Lane`](crate::collective::Lane)).
    Group(GroupStep),
}

/// This rank's part in a collective of one of its subgroups.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GroupStep {
    /// Barrier, broadcast, reduce, gather or scatter; of parts of a vector also reduce-scatter or allgather; of the last level
    /// barrier or allreduce.
    pub collective: CollectiveKind,
    /// The level of the subgroup: 0, an innermost group's ranks; above, the leaders of groups.
    pub level: u32,
    /// Its number among the subgroups of its level.
    pub group: u32,
    /// Its members,
    pub members: u32,
    /// this rank's number among them,
    pub number: u32,
    /// and the root's.
    pub root: u32,
    /// As [`CollectiveSpec::in_place`](crate::collective::CollectiveSpec::in_place); the same on all of them.
    pub in_place: bool,
    /// Blocks that each member has in a gather, scatter, reduce-scatter or allgather; else 1.
    pub each: u32,
    /// What this rank contributes; no block: nothing.
    pub from: BlockSpan,
    /// Where its result goes; no block: nowhere. In place it overlays what the rank contributes, or is a part of it, or
    /// the other way round. A broadcast has one of the two.
    pub into: BlockSpan,
}

impl StepOperation {
    /// The number of blocks that it moves.
    pub const fn blocks(&self) -> u32 {
        match self {
            Self::Send { from: span, .. }
            | Self::Receive { into: span, .. }
            | Self::Copy { into: span, .. }
            | Self::Reduce { into: span, .. } => span.blocks.len(),
            Self::Group(GroupStep { from, into, .. }) if into.blocks.is_empty() => from.blocks.len(),
            Self::Group(GroupStep { into, .. }) => into.blocks.len(),
        }
    }

    /// What it reads and what it writes.
    pub(crate) const fn spans(&self) -> (Option<BlockSpan>, Option<BlockSpan>) {
        match *self {
            Self::Send { from, .. } => (Some(from), None),
            Self::Receive { into, .. } => (None, Some(into)),
            Self::Copy { from, into } | Self::Group(GroupStep { from, into, .. }) => (Some(from), Some(into)),
            // Its other operand is the result.
            Self::Reduce { from, into, .. } => (Some(from), Some(into)),
        }
    }

    /// The same operation for another segment, its key increased by `keys`.
    const fn placed(self, segment: u32, keys: u32) -> Self {
        const fn at(span: BlockSpan, segment: u32) -> BlockSpan {
            BlockSpan { segment, ..span }
        }
        match self {
            Self::Send { to, port, key, from } => {
                Self::Send { to, port, key: key.wrapping_add(keys), from: at(from, segment) }
            }
            Self::Receive { of, port, key, into } => {
                Self::Receive { of, port, key: key.wrapping_add(keys), into: at(into, segment) }
            }
            Self::Copy { from, into } => Self::Copy { from: at(from, segment), into: at(into, segment) },
            Self::Reduce { from, into, fold } => {
                Self::Reduce { from: at(from, segment), into: at(into, segment), fold }
            }
            Self::Group(step) => Self::Group(step.placed(segment)),
        }
    }
}

impl GroupStep {
    /// The same step for another segment.
    const fn placed(self, segment: u32) -> Self {
        let (from, into) = (BlockSpan { segment, ..self.from }, BlockSpan { segment, ..self.into });
        Self { from, into, ..self }
    }
}

/// An operation and its dependencies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Step {
    /// The operation.
    pub operation: StepOperation,
    /// Bit b: step i − 1 − b must be complete. No step before i − 64 may be pending.
    pub dependencies: u64,
}

/// One phase of a schedule, for one segment: an algorithm's steps at one rank. Steps, keys and dependencies are
/// numbered within the phase.
trait Phase {
    /// Number of steps.
    fn len(&self) -> u32;
    /// Number of keys: one more than the largest that any rank uses.
    fn keys(&self) -> u32;
    /// Rounds in which every rank uses each port at most once.
    fn rounds(&self) -> u32;
    /// Number of messages that it receives.
    fn receives(&self) -> u32;
    /// The step of the `n`th of them.
    fn receive(&self, n: u32) -> u32 {
        let is_receive = |i: &u32| matches!(self.step(*i).operation, StepOperation::Receive { .. });
        (0..self.len()).filter(is_receive).nth(n as usize).unwrap_or(0)
    }
    /// Number of blocks in those messages.
    fn arrivals(&self) -> u32;
    /// One more than the last scratch block that it uses.
    fn scratch(&self) -> u32 {
        0
    }
    /// Step `i < len`.
    fn step(&self, i: u32) -> Step;
    /// Whether step `i` depends on all earlier phases. A received signal overwrites nothing.
    fn waits(&self, _: u32) -> bool {
        true
    }
}

/// The port of the `n`th concurrent message.
const fn port(n: u32, ports: u32) -> Port {
    Port::new(radix::remainder(n, ports) as u8, ports as u8)
}
