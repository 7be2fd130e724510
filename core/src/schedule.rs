//! Collectives as pure schedules: what one rank does, step by step.
//!
//! A schedule is a function of the step's number. Any step may be asked for in any order, costs O(log size) and needs no
//! memory. There are no rounds: a step names the steps before it that must be done, and segments of a payload run through
//! the same steps one behind the other.
//!
//! # Units
//! A verb moves *blocks*. [`Plan::blocks`] says how many a whole buffer has: one per rank where ranks have blocks of their
//! own (gather, allgather, alltoall, …), otherwise as many as the algorithm cuts the vector into. [`Layout`] turns blocks
//! into bytes.
//!
//! # Buffers
//! | verb | [`Place::Input`] | [`Place::Output`] | in place |
//! |---|---|---|---|
//! | broadcast | – | the vector, everywhere | always |
//! | reduce | the vector | the vector, at the root | both the same, at the root |
//! | allreduce, scan, exscan | the vector | the vector | both the same |
//! | gather | one block | one per rank, at the root | the input is the root's block of the output |
//! | scatter | one per rank, at the root | one block | the output is the root's block of the input |
//! | allgather | one block | one per rank | the input is the rank's block of the output |
//! | alltoall | one per rank | one per rank | both the same |
//! | reduce-scatter | one per rank | one block | the output lies over the input's begin |
//!
//! A barrier has no blocks: its messages are signals. A fan-in is a reduce of an empty vector, a fan-out a broadcast of one.
//!
//! [`Place::Input`] is never written unless it is also the output.
//!
//! # Algorithms
//! | verb | algorithms | only if commutative | only for equal blocks |
//! |---|---|---|---|
//! | barrier | k-nomial, dissemination, doubling, standard exchange | | |
//! | broadcast | k-nomial, Bruck, ring | | |
//! | reduce, reduce-scatter | k-nomial, halving, ring | ring; halving unless the size is a power of k + 1 | |
//! | allreduce | k-nomial, doubling, standard exchange, halving, ring | ring | |
//! | gather, scatter | k-nomial, direct | | k-nomial |
//! | allgather | doubling, standard exchange, Bruck, direct, ring | | |
//! | alltoall | pairwise, direct, Bruck; doubling and standard exchange where the size is a power | | all but pairwise and direct |
//! | scan, exscan | dissemination, ring | | |
//!
//! Every allreduce combines in one order, the same on all ranks, so that all get the same bits. In a [fixed](Order::Fixed) order
//! reductions take the k-nomial tree of radix 2, and scans dissemination on one port.
//!
//! Qian, Afsahi, "Efficient shared memory and RDMA based collectives on multi-rail QsNetII SMP clusters" (2008), §5.1: the
//! tree of k + 1 branches, direct, standard exchange and Bruck with k ports. Mamidala, dissertation (2008), §2.1.3: pairwise,
//! recursive doubling, dissemination. Where a size is no power of k + 1, groups of at most k + 1 neighbours first hand
//! their part to one of them and take the result from it: two correction steps. An alltoall has no such steps: Bruck's takes
//! any size in as few rounds.

mod algorithm;
mod blocks;
mod build;
mod dependencies;
mod executor;
mod groups;
mod layout;
mod plan;
mod radix;
mod selection;
mod spec;

use crate::collective::{Order, Verb};
use crate::ids::Rank;

pub use blocks::{Blocks, Runs};
pub use executor::{Executor, Schedule};
pub use layout::{Cut, Layout, Pairs, Piece, Pieces, Vector};
pub use plan::Plan;
pub use selection::{Choice, Given, Link, algorithms, choose, choose_given};
pub use spec::{Call, Refused};

/// How a verb is done. Not every verb has every algorithm: [`Plan::new`] refuses the others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Algorithm {
    /// A tree in which a rank hands over to `radix − 1` children per level; binomial with k ports for radix = k + 1.
    /// An allreduce is a reduce and a broadcast, a reduce-scatter a reduce and a scatter.
    Knomial,
    /// In round j to ranks d·(k + 1)^j ahead, d = 1 to k.
    Dissemination,
    /// Round i with the rank at XOR i, or i ahead and i behind where the size is no power of two; k rounds at a time.
    Pairwise,
    /// Standard exchange in base 2.
    Doubling,
    /// Groups of k + 1 exchange, digit by digit in base k + 1, with correction steps.
    StandardExchange,
    /// Reduce-scatter by exchanging parts, digit by digit in base k + 1, with correction steps. An allreduce goes on with
    /// the standard exchange of the parts, a reduce with a gather.
    Halving,
    /// Store and forward in base k + 1, any size. A broadcast scatters first.
    Bruck,
    /// Each message straight to where it belongs, k at a time.
    Direct,
    /// Neighbour to neighbour. A broadcast scatters first, an allreduce is a reduce-scatter and an allgather, a reduce
    /// gathers last. A scan is a chain.
    Ring,
}

/// Which buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    /// What the caller contributes.
    Input,
    /// Where the caller wants the result.
    Output,
    /// Memory lent for the collective: [`Plan::scratch_blocks`].
    Scratch,
}

/// A segment of some blocks of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Span {
    /// The buffer.
    pub place: Place,
    /// Which of its blocks.
    pub blocks: Blocks,
    /// Which part of each of them, less than the plan's segments.
    pub segment: u32,
}

impl Span {
    const fn new(place: Place, blocks: Blocks) -> Self {
        Self { place, blocks, segment: 0 }
    }

    /// Nothing to move: a signal.
    const SIGNAL: Self = Self::new(Place::Input, Blocks::NONE);
}

/// On which side a contribution is combined.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fold {
    /// into = from · into.
    Left,
    /// into = into · from.
    Right,
}

/// One thing to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// Matched with the receive of the same key at `to`.
    Send {
        /// The receiver.
        to: Rank,
        /// Which of the plan's ports.
        port: u8,
        /// Unique between these two ranks, in this direction, within the collective.
        key: u32,
        /// What to send; no block is a signal.
        from: Span,
    },
    /// Matched with the send of the same key at `of`.
    Receive {
        /// The sender.
        of: Rank,
        /// Which of the plan's ports.
        port: u8,
        /// The sender's.
        key: u32,
        /// Where to; as many blocks as are sent, of the same sizes, in the same order.
        into: Span,
    },
    /// Block for block.
    Copy {
        /// As many blocks,
        from: Span,
        /// as there are here.
        into: Span,
    },
    /// Block for block, with the collective's operation.
    Reduce {
        /// One operand.
        from: Span,
        /// The other one, and the result.
        into: Span,
        /// Which of them is left.
        fold: Fold,
    },
}

impl Operation {
    /// How many blocks it moves.
    pub const fn blocks(&self) -> u32 {
        match self {
            Self::Send { from: span, .. }
            | Self::Receive { into: span, .. }
            | Self::Copy { into: span, .. }
            | Self::Reduce { into: span, .. } => span.blocks.len(),
        }
    }

    /// The same in another segment, its key moved up.
    const fn placed(self, segment: u32, keys: u32) -> Self {
        const fn at(span: Span, segment: u32) -> Span {
            Span { segment, ..span }
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
        }
    }
}

/// An operation and what it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Step {
    /// What to do.
    pub operation: Operation,
    /// Bit b: step i − 1 − b must be done. No step before i − 64 may be pending.
    pub needs: u64,
}

/// One part of a schedule for one segment: an algorithm's steps at one rank, counted from 0, keys from 0, needs within the
/// part.
trait Part {
    /// Steps.
    fn len(&self) -> u32;
    /// Keys: one more than the largest that any rank uses.
    fn keys(&self) -> u32;
    /// Rounds in which every rank uses each port at most once.
    fn rounds(&self) -> u32;
    /// Messages that it receives.
    fn receives(&self) -> u32;
    /// Blocks in them.
    fn arrivals(&self) -> u32;
    /// One more than the last block of scratch that it touches.
    fn scratch(&self) -> u32 {
        0
    }
    /// Step `i < len`.
    fn step(&self, i: u32) -> Step;
    /// Whether step `i` needs all that is before the part. A signal that arrives overwrites nothing.
    fn waits(&self, _: u32) -> bool {
        true
    }
}

/// Port of the `n`th message at a time.
const fn port(n: u32, ports: u32) -> u8 {
    radix::remainder(n, ports) as u8
}
