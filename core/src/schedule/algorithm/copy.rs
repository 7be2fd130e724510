//! Phases of one step: a copy between buffers, or a message between two ranks.

use crate::ids::Port;
use crate::schedule::{BlockSpan, Phase, Rank, Step, StepOperation};

/// A copy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) struct Copy {
    pub(in crate::schedule) from: BlockSpan,
    pub(in crate::schedule) into: BlockSpan,
    /// One more than its last scratch block.
    pub(in crate::schedule) scratch: u32,
}

impl Phase for Copy {
    fn len(&self) -> u32 {
        1
    }

    fn keys(&self) -> u32 {
        0
    }

    fn rounds(&self) -> u32 {
        0
    }

    fn receives(&self) -> u32 {
        0
    }

    fn arrivals(&self) -> u32 {
        0
    }

    fn scratch(&self) -> u32 {
        self.scratch
    }

    fn step(&self, _: u32) -> Step {
        Step { operation: StepOperation::Copy { from: self.from, into: self.into }, dependencies: 0 }
    }
}

/// The transfer of a tree's result from rank 0 to the root.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) struct RootTransfer {
    pub(in crate::schedule) side: Side,
    pub(in crate::schedule) span: BlockSpan,
}

/// A rank's role in that transfer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) enum Side {
    Sender { to: u32 },
    Receiver { of: u32 },
    Neither,
}

impl Phase for RootTransfer {
    fn len(&self) -> u32 {
        if self.side == Side::Neither { 0 } else { 1 }
    }

    fn keys(&self) -> u32 {
        1
    }

    fn rounds(&self) -> u32 {
        1
    }

    fn receives(&self) -> u32 {
        u32::from(matches!(self.side, Side::Receiver { .. }))
    }

    fn arrivals(&self) -> u32 {
        if matches!(self.side, Side::Receiver { .. }) { self.span.blocks.len() } else { 0 }
    }

    fn step(&self, _: u32) -> Step {
        let operation = match self.side {
            Side::Sender { to } => StepOperation::Send { to: Rank(to), port: Port::ONLY, key: 0, from: self.span },
            Side::Receiver { of } => StepOperation::Receive { of: Rank(of), port: Port::ONLY, key: 0, into: self.span },
            Side::Neither => StepOperation::Copy { from: BlockSpan::SIGNAL, into: BlockSpan::SIGNAL },
        };
        Step { operation, dependencies: 0 }
    }
}
