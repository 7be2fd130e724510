//! The k-nomial tree: toward the root and away from it.
//!
//! Ranks count from the root. A rank whose lowest nonzero digit, in base `radix`, is at place j has its parent where
//! that digit is 0, and children at d·radix^i ahead, i < j, 0 < d < radix. Its subtree is the ranks from itself to less
//! than radix^j ahead: contiguous, so that gathers need no permutation and reductions keep the order. Qian & Afsahi
//! §5.1.1 (spanning binomial tree with k ports): radix = k + 1.

use crate::ids::Port;
use crate::schedule::radix::{Radix, ahead, behind, quotient, quotient_up, remainder};
use crate::schedule::{BlockBuffer, BlockSpan, Blocks, Fold, Phase, Rank, Step, StepOperation, dependencies, port};

/// A rank's position in the tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) struct Tree {
    radix: Radix,
    size: u32,
    rank: u32,
    ports: u32,
    /// The parent and this rank's number among its children.
    parent: Option<(u32, u32)>,
    /// Ranks in its subtree, itself included.
    width: u32,
    children: u32,
}

impl Tree {
    pub(in crate::schedule) fn new(radix: Radix, size: u32, rank: u32, root: u32, ports: u32) -> Self {
        let place = behind(rank, root, size);
        let (parent, width) = if place == 0 {
            (None, size)
        } else {
            let level = radix.lowest(place);
            let digit = radix.digit(place, level);
            let up = ahead(root, radix.with_digit(place, level, 0), size);
            let number = level.wrapping_mul(radix.others()).wrapping_add(digit).wrapping_sub(1);
            (Some((up, number)), radix.power(level).min(size.wrapping_sub(place)))
        };
        let farthest = width.saturating_sub(1);
        let level = radix.log(farthest);
        let children = level.wrapping_mul(radix.others()).wrapping_add(quotient(farthest, radix.power(level)));
        Self { radix, size, rank, ports, parent, width, children }
    }

    /// Child `c`, nearest first: its distance, and the ranks in its subtree.
    fn child(&self, c: u32) -> (u32, u32) {
        let others = self.radix.others();
        let reach = self.radix.power(quotient(c, others));
        let offset = remainder(c, others).wrapping_add(1).wrapping_mul(reach);
        (offset, reach.min(self.width.wrapping_sub(offset)))
    }

    fn rank_ahead(&self, offset: u32) -> Rank {
        Rank(ahead(self.rank, offset, self.size))
    }

    fn port(&self, number: u32) -> Port {
        port(remainder(number, self.radix.others()), self.ports)
    }

    /// For the whole tree, not only this rank's part.
    fn rounds(&self) -> u32 {
        self.radix.log_up(self.size).wrapping_mul(quotient_up(self.radix.others(), self.ports))
    }
}

/// The data that moves along a tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) enum TreeData {
    /// Signals.
    Nothing,
    /// The same `blocks` of the output at every rank.
    Vector { blocks: u32 },
    /// A block per rank, from the input to the output.
    Own { in_place: bool },
    /// A block per rank in `place`, by rank; no rank copies its own.
    Held { place: BlockBuffer },
}

impl TreeData {
    /// Whether an inner rank stores its subtree's blocks in scratch, its own first.
    fn kept(self, tree: &Tree) -> bool {
        matches!(self, Self::Own { .. }) && tree.parent.is_some() && tree.children != 0
    }

    /// Copies of the rank's own block.
    fn copies(self, tree: &Tree) -> u32 {
        let Self::Own { in_place } = self else { return 0 };
        u32::from(self.kept(tree) || (tree.parent.is_none() && !in_place))
    }

    fn scratch(self, tree: &Tree) -> u32 {
        match self {
            Self::Own { .. } if self.kept(tree) => tree.width,
            Self::Held { place: BlockBuffer::Scratch } => tree.size,
            _ => 0,
        }
    }

    /// The blocks of the `width` ranks from `offset` ahead on, as stored by this rank: the root's in `root`, a leaf's
    /// own in `leaf`.
    fn span(self, tree: &Tree, root: BlockBuffer, leaf: BlockBuffer, offset: u32, width: u32) -> BlockSpan {
        let by_rank = Blocks::wrapped(ahead(tree.rank, offset, tree.size), width, tree.size);
        match self {
            Self::Nothing => BlockSpan::SIGNAL,
            Self::Vector { blocks } => BlockSpan::new(BlockBuffer::Output, Blocks::range(0, blocks)),
            Self::Held { place } => BlockSpan::new(place, by_rank),
            Self::Own { .. } if tree.parent.is_none() => BlockSpan::new(root, by_rank),
            Self::Own { .. } if tree.children == 0 => BlockSpan::new(leaf, Blocks::one(0)),
            Self::Own { .. } => BlockSpan::new(BlockBuffer::Scratch, Blocks::range(offset, width)),
        }
    }
}

/// Away from the root: fan-out, broadcast, scatter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) struct Down {
    pub(in crate::schedule) tree: Tree,
    pub(in crate::schedule) load: TreeData,
}

impl Down {
    fn span(&self, offset: u32, width: u32) -> BlockSpan {
        self.load.span(&self.tree, BlockBuffer::Input, BlockBuffer::Output, offset, width)
    }
}

impl Phase for Down {
    fn len(&self) -> u32 {
        self.receives().wrapping_add(self.tree.children).wrapping_add(self.load.copies(&self.tree))
    }

    fn keys(&self) -> u32 {
        1
    }

    fn rounds(&self) -> u32 {
        self.tree.rounds()
    }

    fn receives(&self) -> u32 {
        u32::from(self.tree.parent.is_some())
    }

    fn arrivals(&self) -> u32 {
        if self.tree.parent.is_some() { self.span(0, self.tree.width).blocks.len() } else { 0 }
    }

    fn scratch(&self) -> u32 {
        self.load.scratch(&self.tree)
    }

    fn step(&self, i: u32) -> Step {
        let tree = &self.tree;
        if let (0, Some((parent, number))) = (i, tree.parent) {
            let into = self.span(0, tree.width);
            return Step {
                operation: StepOperation::Receive { of: Rank(parent), port: tree.port(number), key: 0, into },
                dependencies: 0,
            };
        }
        let needs = if tree.parent.is_some() { dependencies::step(i, 0) } else { 0 };
        let sent = i.wrapping_sub(self.receives());
        let operation = if sent < tree.children {
            let number = tree.children.wrapping_sub(sent).wrapping_sub(1);
            let (offset, width) = tree.child(number);
            let from = self.span(offset, width);
            StepOperation::Send { to: tree.rank_ahead(offset), port: tree.port(number), key: 0, from }
        } else {
            StepOperation::Copy { from: self.span(0, 1), into: BlockSpan::new(BlockBuffer::Output, Blocks::one(0)) }
        };
        Step { operation, dependencies: needs }
    }

    fn waits(&self, _: u32) -> bool {
        self.load != TreeData::Nothing || self.tree.parent.is_none()
    }
}

/// Toward the root: fan-in, gather.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) struct Up {
    pub(in crate::schedule) tree: Tree,
    pub(in crate::schedule) load: TreeData,
}

impl Up {
    fn span(&self, offset: u32, width: u32) -> BlockSpan {
        self.load.span(&self.tree, BlockBuffer::Output, BlockBuffer::Input, offset, width)
    }
}

impl Phase for Up {
    fn len(&self) -> u32 {
        self.load
            .copies(&self.tree)
            .wrapping_add(self.tree.children)
            .wrapping_add(u32::from(self.tree.parent.is_some()))
    }

    fn keys(&self) -> u32 {
        1
    }

    fn rounds(&self) -> u32 {
        self.tree.rounds()
    }

    fn receives(&self) -> u32 {
        self.tree.children
    }

    fn arrivals(&self) -> u32 {
        match self.load {
            TreeData::Nothing => 0,
            _ => self.tree.width.saturating_sub(1),
        }
    }

    fn scratch(&self) -> u32 {
        self.load.scratch(&self.tree)
    }

    fn step(&self, i: u32) -> Step {
        let tree = &self.tree;
        let copies = self.load.copies(&self.tree);
        if i < copies {
            let from = BlockSpan::new(BlockBuffer::Input, Blocks::one(0));
            return Step { operation: StepOperation::Copy { from, into: self.span(0, 1) }, dependencies: 0 };
        }
        let number = i.wrapping_sub(copies);
        if let (true, Some((parent, among))) = (number >= tree.children, tree.parent) {
            let from = self.span(0, tree.width);
            return Step {
                operation: StepOperation::Send { to: Rank(parent), port: tree.port(among), key: 0, from },
                dependencies: dependencies::steps(i, 0, i),
            };
        }
        let (offset, width) = tree.child(number);
        let into = self.span(offset, width);
        Step {
            operation: StepOperation::Receive { of: tree.rank_ahead(offset), port: tree.port(number), key: 0, into },
            dependencies: 0,
        }
    }
}

/// Reduce: toward the root, combined on the way. The first child's part is received where the result is accumulated and
/// the rank's own is combined into it, so that an inner rank copies nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::schedule) struct Reduction {
    pub(in crate::schedule) tree: Tree,
    /// Blocks of the vector.
    pub(in crate::schedule) blocks: u32,
    /// Where the result is accumulated, from block 0 on.
    pub(in crate::schedule) into: BlockBuffer,
    /// `into` already holds the rank's own part.
    pub(in crate::schedule) in_place: bool,
}

impl Reduction {
    fn own(&self) -> BlockSpan {
        BlockSpan::new(BlockBuffer::Input, Blocks::range(0, self.blocks))
    }

    fn result(&self) -> BlockSpan {
        BlockSpan::new(self.into, Blocks::range(0, self.blocks))
    }

    /// Copies of the vector at the start of scratch that are no child's.
    fn before(&self) -> u32 {
        u32::from(self.into == BlockBuffer::Scratch)
    }

    /// Where child `c`'s part is received.
    fn part(&self, c: u32) -> BlockSpan {
        match c.checked_sub(u32::from(!self.in_place)) {
            None => self.result(),
            Some(slot) => {
                let first = slot.wrapping_add(self.before()).wrapping_mul(self.blocks);
                BlockSpan::new(BlockBuffer::Scratch, Blocks::range(first, self.blocks))
            }
        }
    }

    fn sends(&self) -> u32 {
        u32::from(self.tree.parent.is_some())
    }

    fn leaf(&self) -> bool {
        self.tree.children == 0
    }
}

impl Phase for Reduction {
    fn len(&self) -> u32 {
        match (self.tree.parent, self.leaf()) {
            (None, true) => u32::from(!self.in_place),
            _ => self.tree.children.wrapping_mul(2).wrapping_add(self.sends()),
        }
    }

    fn keys(&self) -> u32 {
        1
    }

    fn rounds(&self) -> u32 {
        self.tree.rounds()
    }

    fn receives(&self) -> u32 {
        self.tree.children
    }

    fn arrivals(&self) -> u32 {
        self.tree.children.wrapping_mul(self.blocks)
    }

    fn scratch(&self) -> u32 {
        if self.leaf() && self.tree.parent.is_some() {
            return 0;
        }
        let slots = self.tree.children.saturating_sub(u32::from(!self.in_place));
        slots.wrapping_add(self.before()).wrapping_mul(self.blocks)
    }

    fn step(&self, i: u32) -> Step {
        let tree = &self.tree;
        let children = tree.children;
        if i < children {
            let (offset, _) = tree.child(i);
            let into = self.part(i);
            return Step {
                operation: StepOperation::Receive { of: tree.rank_ahead(offset), port: tree.port(i), key: 0, into },
                dependencies: 0,
            };
        }
        let c = i.wrapping_sub(children);
        let folded = if c == 0 { 0 } else { dependencies::step(i, i.wrapping_sub(1)) };
        if c < children {
            let operation = if c == 0 && !self.in_place {
                StepOperation::Reduce { from: self.own(), into: self.result(), fold: Fold::Left }
            } else {
                StepOperation::Reduce { from: self.part(c), into: self.result(), fold: Fold::Right }
            };
            return Step { operation, dependencies: folded | dependencies::step(i, c) };
        }
        let from = if self.leaf() { self.own() } else { self.result() };
        let operation = match tree.parent {
            Some((parent, among)) => StepOperation::Send { to: Rank(parent), port: tree.port(among), key: 0, from },
            None => StepOperation::Copy { from: self.own(), into: self.result() },
        };
        Step { operation, dependencies: folded }
    }
}
