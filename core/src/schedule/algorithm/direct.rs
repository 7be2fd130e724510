//! Direct algorithms: every message goes straight to its destination, k at a time, in wrap-around order so that no rank
//! is the target of all others at once.
//!
//! Qian & Afsahi §5.1.1 to §5.1.3; pairwise exchange: Mamidala, dissertation §2.1.3 ("pair-wise, linear").

use crate::schedule::radix::{ahead, behind, quotient, quotient_up, remainder};
use crate::schedule::{BlockBuffer, BlockSpan, Blocks, Phase, Rank, Step, StepOperation, dependencies, port};

/// A rank and its peers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) struct Peers {
    pub(in crate::schedule) size: u32,
    pub(in crate::schedule) rank: u32,
    pub(in crate::schedule) ports: u32,
}

impl Peers {
    const fn others(self) -> u32 {
        self.size.wrapping_sub(1)
    }

    const fn rounds(self) -> u32 {
        quotient_up(self.others(), self.ports)
    }

    /// The destination and the source of the `n`th messages.
    const fn pair(self, n: u32) -> (u32, u32) {
        let by = n.wrapping_add(1);
        (ahead(self.rank, by, self.size), behind(self.rank, by, self.size))
    }
}

/// Allgather: every rank's block to every rank.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) struct Allgather {
    pub(in crate::schedule) peers: Peers,
    pub(in crate::schedule) in_place: bool,
}

impl Allgather {
    fn copies(&self) -> u32 {
        u32::from(!self.in_place)
    }
}

impl Phase for Allgather {
    fn len(&self) -> u32 {
        self.peers.others().wrapping_mul(2).wrapping_add(self.copies())
    }

    fn keys(&self) -> u32 {
        1
    }

    fn rounds(&self) -> u32 {
        self.peers.rounds()
    }

    fn receives(&self) -> u32 {
        self.peers.others()
    }

    fn receive(&self, n: u32) -> u32 {
        n.wrapping_mul(2).wrapping_add(self.copies())
    }

    fn arrivals(&self) -> u32 {
        self.peers.others()
    }

    fn step(&self, i: u32) -> Step {
        let output = BlockSpan::new(BlockBuffer::Output, Blocks::one(self.peers.rank));
        let own = if self.in_place { output } else { BlockSpan::new(BlockBuffer::Input, Blocks::one(0)) };
        let Some(i) = i.checked_sub(self.copies()) else {
            return Step { operation: StepOperation::Copy { from: own, into: output }, dependencies: 0 };
        };
        let n = quotient(i, 2);
        let (to, of) = self.peers.pair(n);
        let port = port(n, self.peers.ports);
        let operation = if remainder(i, 2) == 0 {
            let into = BlockSpan::new(BlockBuffer::Output, Blocks::one(of));
            StepOperation::Receive { of: Rank(of), port, key: 0, into }
        } else {
            StepOperation::Send { to: Rank(to), port, key: 0, from: own }
        };
        Step { operation, dependencies: 0 }
    }
}

/// Alltoall: a block from every rank to every rank.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) struct Alltoall {
    pub(in crate::schedule) peers: Peers,
    pub(in crate::schedule) in_place: bool,
    /// Only k messages in each direction at a time, with the rank at XOR n + 1 if the size is a power of two.
    pub(in crate::schedule) pairwise: bool,
}

impl Alltoall {
    fn pair(&self, n: u32) -> (u32, u32) {
        if self.pairwise && self.peers.size.is_power_of_two() {
            let peer = self.peers.rank ^ n.wrapping_add(1);
            (peer, peer)
        } else {
            self.peers.pair(n)
        }
    }
}

impl Phase for Alltoall {
    fn len(&self) -> u32 {
        self.peers.others().wrapping_mul(2).wrapping_add(1)
    }

    fn keys(&self) -> u32 {
        1
    }

    fn rounds(&self) -> u32 {
        self.peers.rounds()
    }

    fn receives(&self) -> u32 {
        self.peers.others()
    }

    fn arrivals(&self) -> u32 {
        self.peers.others()
    }

    fn scratch(&self) -> u32 {
        if self.in_place { self.peers.size } else { 0 }
    }

    fn step(&self, i: u32) -> Step {
        let Some(message) = i.checked_sub(1) else {
            let (blocks, into) = if self.in_place {
                (
                    Blocks::wrapped(ahead(self.peers.rank, 1, self.peers.size), self.peers.others(), self.peers.size),
                    BlockBuffer::Scratch,
                )
            } else {
                (Blocks::one(self.peers.rank), BlockBuffer::Output)
            };
            let operation = StepOperation::Copy {
                from: BlockSpan::new(BlockBuffer::Input, blocks),
                into: BlockSpan::new(into, blocks),
            };
            return Step { operation, dependencies: 0 };
        };
        let n = quotient(message, 2);
        let (to, of) = self.pair(n);
        let port = port(n, self.peers.ports);
        let operation = if remainder(message, 2) == 0 {
            StepOperation::Receive {
                of: Rank(of),
                port,
                key: 0,
                into: BlockSpan::new(BlockBuffer::Output, Blocks::one(of)),
            }
        } else {
            let from = if self.in_place { BlockBuffer::Scratch } else { BlockBuffer::Input };
            StepOperation::Send { to: Rank(to), port, key: 0, from: BlockSpan::new(from, Blocks::one(to)) }
        };
        let saved = if self.in_place { dependencies::step(i, 0) } else { 0 };
        let turn = self.peers.ports.wrapping_mul(2);
        let begin = message.wrapping_sub(remainder(message, turn)).wrapping_add(1);
        let before = if self.pairwise { dependencies::steps(i, begin.saturating_sub(turn), begin) } else { 0 };
        Step { operation, dependencies: saved | before }
    }
}

/// Gather of every rank's block at the root, or scatter of the root's blocks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) struct Rooted {
    pub(in crate::schedule) peers: Peers,
    pub(in crate::schedule) root: u32,
    /// Gather; otherwise scatter.
    pub(in crate::schedule) gather: bool,
    pub(in crate::schedule) in_place: bool,
}

impl Rooted {
    fn is_root(&self) -> bool {
        self.peers.rank == self.root
    }

    fn copies(&self) -> u32 {
        u32::from(!self.in_place)
    }
}

impl Phase for Rooted {
    fn len(&self) -> u32 {
        if self.is_root() { self.peers.others().wrapping_add(self.copies()) } else { 1 }
    }

    fn keys(&self) -> u32 {
        1
    }

    fn rounds(&self) -> u32 {
        self.peers.rounds()
    }

    fn receives(&self) -> u32 {
        match (self.is_root(), self.gather) {
            (true, true) => self.peers.others(),
            (false, false) => 1,
            _ => 0,
        }
    }

    fn arrivals(&self) -> u32 {
        self.receives()
    }

    fn step(&self, i: u32) -> Step {
        let block = |of: u32| {
            BlockSpan::new(if self.gather { BlockBuffer::Output } else { BlockBuffer::Input }, Blocks::one(of))
        };
        let only = BlockSpan::new(if self.gather { BlockBuffer::Input } else { BlockBuffer::Output }, Blocks::one(0));
        let message = |n: u32, peer: u32, span: BlockSpan, sends: bool| {
            let port = port(n, self.peers.ports);
            if sends {
                StepOperation::Send { to: Rank(peer), port, key: 0, from: span }
            } else {
                StepOperation::Receive { of: Rank(peer), port, key: 0, into: span }
            }
        };
        let operation = if !self.is_root() {
            let n = behind(self.peers.rank, self.root, self.peers.size).wrapping_sub(1);
            message(n, self.root, only, self.gather)
        } else if i < self.peers.others() {
            let (peer, _) = self.peers.pair(i);
            message(i, peer, block(peer), !self.gather)
        } else if self.gather {
            StepOperation::Copy { from: only, into: block(self.root) }
        } else {
            StepOperation::Copy { from: block(self.root), into: only }
        };
        Step { operation, dependencies: 0 }
    }
}
