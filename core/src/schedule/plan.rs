//! A schedule: the parts that an algorithm puts together for a verb, and steps across segments.

use super::copy::{Copy, Hop, Side};
use super::direct::{self, Peers, Rooted};
use super::exchange::{After, Before, Early, Exchange, Late, Own, Split, Vector, What};
use super::groups::Groups;
use super::radix::{Radix, quotient, remainder};
use super::scan::{Chain, Doubling, Prefix};
use super::swap::Swap;
use super::tree::{Down, Load, Reduction, Tree, Up};
use super::{Algorithm, Blocks, Order, Part, Place, Rank, Span, Step, Verb, bruck, needs, ring};
use core::fmt;

/// A collective as all ranks of a group call it; only `rank` differs between them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Call {
    /// What it does.
    pub verb: Verb,
    /// How.
    pub algorithm: Algorithm,
    /// Whose schedule this is.
    pub rank: Rank,
    /// Ranks in the group.
    pub size: u32,
    /// The root of a rooted verb.
    pub root: Rank,
    /// Messages that a rank sends and receives at a time, k: 1 to [`Plan::PORTS`].
    pub ports: u8,
    /// Base of a k-nomial tree, 2 to [`Plan::PORTS`] + 1; other algorithms count in base k + 1, doubling in base 2.
    pub radix: u8,
    /// Parts that each block is cut into, at least one.
    pub segments: u32,
    /// What a reduction may assume.
    pub order: Order,
    /// Input and output share memory, as the verb says.
    pub in_place: bool,
    /// Blocks differ in size.
    pub varying: bool,
}

/// Why there is no such schedule.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refused {
    /// The verb has no such algorithm.
    Unavailable,
    /// The rank, or the root of a rooted verb, is not in the group.
    Rank,
    /// No port, or more than [`Plan::PORTS`].
    Ports,
    /// A base below 2 or above [`Plan::PORTS`] + 1.
    Radix,
    /// No segment.
    Segments,
    /// The algorithm combines out of order: the operation must be commutative.
    Order,
    /// Ranks that forward blocks cannot know their sizes: blocks must be equal.
    Varying,
    /// The algorithm needs a size that is a power of its base.
    Power,
    /// More than [`Plan::RANKS`], or steps beyond 32 bits.
    TooLong,
}

impl fmt::Display for Refused {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Unavailable => "no such algorithm for this collective",
            Self::Rank => "rank or root outside the group",
            Self::Ports => "too many ports or none",
            Self::Radix => "radix out of range",
            Self::Segments => "no segment",
            Self::Order => "this algorithm needs a commutative operation",
            Self::Varying => "this algorithm needs blocks of one size",
            Self::Power => "this algorithm needs a size that is a power of its base",
            Self::TooLong => "too many steps",
        })
    }
}

impl core::error::Error for Refused {}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Kind {
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
    fn part(&self) -> &dyn Part {
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

const PARTS: usize = 6;

/// One rank's schedule.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Plan {
    call: Call,
    parts: [Option<Kind>; PARTS],
    blocks: u32,
    /// For each segment after all segments: where a result overlays what other segments still read.
    last: Option<Copy>,
    /// Per segment.
    steps: u32,
    keys: u32,
    /// What may arrive before the rank has entered, per segment: blocks, and the messages they are in.
    early: u32,
    early_messages: u32,
}

impl Plan {
    /// The most ports: a round's receives and sends fit in the 64 steps that may be under way.
    pub const PORTS: u8 = 16;

    /// The most ranks: steps, and the blocks of scratch that a tree's inner rank combines, are counted in 32 bits.
    pub const RANKS: u32 = 1 << 22;

    /// The schedule of `call.rank`.
    ///
    /// # Errors
    /// See [`Refused`]. All ranks of a group get the same answer.
    pub fn new(call: Call) -> Result<Self, Refused> {
        check(&call)?;
        let mut plan =
            Self { call, parts: [None; PARTS], last: None, blocks: 1, steps: 0, keys: 0, early: 0, early_messages: 0 };
        if call.size == 1 {
            plan.alone();
        } else {
            plan.compose()?;
        }
        // No schedule has more steps than eight per rank and those of a tree.
        let steps = call.size.wrapping_mul(8).wrapping_add(256).checked_mul(call.segments);
        steps.map(|_| plan).ok_or(Refused::TooLong)
    }

    /// What was called for.
    pub const fn call(&self) -> &Call {
        &self.call
    }

    /// Blocks in a whole buffer: see the table of buffers in the [module](super).
    pub const fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Steps of this rank.
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
            return Some(Step { operation: copy.step(0).operation.placed(after, 0), needs: needs::steps(i, 0, i) });
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
            let earlier = if part.waits(left) { needs::steps(before.wrapping_add(left), 0, before) } else { 0 };
            return Some(Step { operation: step.operation.placed(segment, keys), needs: step.needs | earlier });
        }
        None
    }

    /// Blocks of scratch that the schedule uses. Block x of scratch holds blocks of the size of block x modulo
    /// [`Plan::blocks`].
    pub fn scratch_blocks(&self) -> u32 {
        self.parts.iter().flatten().map(|kind| kind.part().scratch()).max().unwrap_or(0)
    }

    /// The most blocks, all segments of each, that can arrive before this rank has entered: it may neither wait for the
    /// rank's own contribution nor for what the rank forwards.
    pub const fn early_blocks(&self) -> u32 {
        self.early
    }

    /// The most messages that can arrive before this rank has entered, signals included.
    pub const fn early_messages(&self) -> u32 {
        self.early_messages.wrapping_mul(self.call.segments)
    }

    /// Rounds of one segment, over the whole group, in which every rank uses each port at most once, if its parts run one after
    /// the other. A tree on fewer than radix − 1 ports takes at most so many.
    pub fn rounds(&self) -> u32 {
        self.parts.iter().flatten().fold(0, |rounds, kind| rounds.wrapping_add(kind.part().rounds()))
    }

    /// A group of one.
    fn alone(&mut self) {
        let silent = matches!(self.call.verb, Verb::Barrier | Verb::Broadcast | Verb::Exscan);
        if !silent && !self.call.in_place {
            self.copy(Place::Input, Blocks::one(0), Place::Output, Blocks::one(0));
        }
    }

    fn push(&mut self, kind: Kind) {
        self.steps = self.steps.wrapping_add(kind.part().len());
        self.keys = self.keys.wrapping_add(kind.part().keys());
        if let Some(free) = self.parts.iter_mut().find(|part| part.is_none()) {
            *free = Some(kind);
        }
    }

    /// A part whose messages others can send before this rank has entered.
    fn push_early(&mut self, kind: Kind) {
        self.early = self.early.wrapping_add(kind.part().arrivals());
        self.early_messages = self.early_messages.wrapping_add(kind.part().receives());
        self.push(kind);
    }

    fn copy(&mut self, from: Place, blocks: Blocks, into: Place, there: Blocks) {
        let first = if into == Place::Scratch { there.first.wrapping_add(there.len()) } else { 0 };
        let second = if from == Place::Scratch { blocks.first.wrapping_add(blocks.len()) } else { 0 };
        self.push(Kind::Copy(Copy {
            from: Span::new(from, blocks),
            into: Span::new(into, there),
            scratch: first.max(second),
        }));
    }

    fn rank(&self) -> u32 {
        self.call.rank.0
    }

    fn is_root(&self) -> bool {
        self.call.rank == self.call.root
    }

    fn ports(&self) -> u32 {
        u32::from(self.call.ports)
    }

    fn tree(&self, root: u32) -> Tree {
        Tree::new(Radix::new(u32::from(self.call.radix)), self.call.size, self.rank(), root, self.ports())
    }

    fn groups(&self) -> Groups {
        Groups::new(base(&self.call), self.call.size, self.rank())
    }

    fn rounds_of(&self) -> bruck::Rounds {
        bruck::Rounds { radix: base(&self.call), size: self.call.size, rank: self.rank(), ports: self.ports() }
    }

    fn ring(&self) -> ring::Ring {
        ring::Ring { size: self.call.size, rank: self.rank() }
    }

    fn peers(&self) -> Peers {
        Peers { size: self.call.size, rank: self.rank(), ports: self.ports() }
    }

    fn exchange(&self, what: What) -> Kind {
        Kind::Exchange(Exchange { groups: self.groups(), ports: self.ports(), what })
    }

    fn before(&self, load: Early) -> Kind {
        Kind::Before(Before { groups: self.groups(), ports: self.ports(), load })
    }

    fn after(&self, load: Late) -> Kind {
        Kind::After(After { groups: self.groups(), ports: self.ports(), load })
    }

    fn compose(&mut self) -> Result<(), Refused> {
        let call = self.call;
        match call.verb {
            Verb::Barrier => self.barrier(),
            Verb::Broadcast => self.broadcast(),
            Verb::Reduce => self.reduce(),
            Verb::Allreduce => self.allreduce(),
            Verb::ReduceScatter => self.reduce_scatter(),
            Verb::Gather | Verb::Scatter => self.rooted(),
            Verb::Allgather => self.allgather(),
            Verb::Alltoall => self.alltoall(),
            Verb::Scan | Verb::Exscan => self.scan(),
        }
    }

    fn barrier(&mut self) -> Result<(), Refused> {
        match self.call.algorithm {
            Algorithm::Knomial => {
                let tree = self.tree(0);
                self.push_early(Kind::Up(Up { tree, load: Load::Nothing }));
                self.push(Kind::Down(Down { tree, load: Load::Nothing }));
            }
            Algorithm::Dissemination => self.push_early(Kind::Dissemination(bruck::Dissemination(self.rounds_of()))),
            Algorithm::Doubling | Algorithm::StandardExchange => {
                self.push_early(self.before(Early::Nothing));
                self.push_early(self.exchange(What::Nothing));
                self.push(self.after(Late::Nothing));
            }
            _ => return Err(Refused::Unavailable),
        }
        Ok(())
    }

    fn broadcast(&mut self) -> Result<(), Refused> {
        let tree = self.tree(self.call.root.0);
        let (load, blocks) = match self.call.algorithm {
            Algorithm::Knomial => (Load::Vector { blocks: 1 }, 1),
            Algorithm::Bruck | Algorithm::Ring => (Load::Held { place: Place::Output }, self.call.size),
            _ => return Err(Refused::Unavailable),
        };
        self.blocks = blocks;
        self.push_early(Kind::Down(Down { tree, load }));
        match self.call.algorithm {
            Algorithm::Bruck => self.push_early(Kind::BruckAllgather(bruck::Allgather(self.rounds_of()))),
            Algorithm::Ring => self.push_early(Kind::RingAllgather(ring::Allgather(self.ring()))),
            _ => {}
        }
        if self.is_root() {
            (self.early, self.early_messages) = (0, 0);
        }
        Ok(())
    }

    fn reduce(&mut self) -> Result<(), Refused> {
        let root = self.call.root.0;
        let into = if self.is_root() { Place::Output } else { Place::Scratch };
        let in_place = self.call.in_place && self.is_root();
        if self.call.algorithm == Algorithm::Knomial {
            let top = if self.call.order == Order::Any { root } else { 0 };
            self.push_early(Kind::TreeReduction(Reduction { tree: self.tree(top), blocks: 1, into, in_place }));
            if top != root {
                let side = match self.rank() {
                    0 => Side::Sender { to: root },
                    rank if rank == root => Side::Receiver { of: 0 },
                    _ => Side::Neither,
                };
                self.push(Kind::Hop(Hop { side, span: Span::new(into, Blocks::one(0)) }));
            }
            return Ok(());
        }
        self.blocks = self.call.size;
        self.scatter_result(into, in_place, Own::Held(into))?;
        self.push(Kind::Up(Up { tree: self.tree(root), load: Load::Held { place: into } }));
        Ok(())
    }

    /// Rank r's block r of all vectors combined, at block r of `into`, for a vector of a block per rank.
    fn scatter_result(&mut self, into: Place, in_place: bool, own: Own) -> Result<(), Refused> {
        match self.call.algorithm {
            Algorithm::Ring => {
                let ring = self.ring();
                self.push_early(Kind::RingReduction(ring::Reduction { ring, into, in_place }));
            }
            Algorithm::Halving => {
                let split = Split { by_rank: true, order: self.call.order };
                self.halve(Vector { blocks: self.call.size, into }, split, in_place);
                self.push(self.after(Late::Own { of: into, into: own }));
            }
            _ => return Err(Refused::Unavailable),
        }
        Ok(())
    }

    /// Halving up to each group's own part.
    fn halve(&mut self, vector: Vector, split: Split, in_place: bool) {
        if self.groups().leads() && !in_place {
            let all = Blocks::range(0, vector.blocks);
            self.copy(Place::Input, all, vector.into, all);
        }
        self.push_early(self.before(Early::Vector(vector)));
        self.push_early(self.exchange(What::Halves(vector, split)));
    }

    fn allreduce(&mut self) -> Result<(), Refused> {
        let in_place = self.call.in_place;
        match self.call.algorithm {
            Algorithm::Knomial => {
                let tree = self.tree(0);
                self.push_early(Kind::TreeReduction(Reduction { tree, blocks: 1, into: Place::Output, in_place }));
                self.push(Kind::Down(Down { tree, load: Load::Vector { blocks: 1 } }));
            }
            Algorithm::Doubling | Algorithm::StandardExchange => {
                let vector = Vector { blocks: 1, into: Place::Output };
                if self.groups().leads() && !in_place {
                    self.copy(Place::Input, Blocks::one(0), Place::Output, Blocks::one(0));
                }
                self.push_early(self.before(Early::Vector(vector)));
                self.push_early(self.exchange(What::Whole(vector)));
                self.push(self.after(Late::Vector { blocks: 1 }));
            }
            Algorithm::Halving => {
                let blocks = self.groups().count;
                let split = Split { by_rank: false, order: self.call.order };
                self.blocks = blocks;
                self.halve(Vector { blocks, into: Place::Output }, split, in_place);
                self.push(self.exchange(What::Parts(split)));
                self.push(self.after(Late::Vector { blocks }));
            }
            Algorithm::Ring => {
                let ring = self.ring();
                self.blocks = self.call.size;
                self.push_early(Kind::RingReduction(ring::Reduction { ring, into: Place::Output, in_place }));
                self.push(Kind::RingAllgather(ring::Allgather(ring)));
            }
            _ => return Err(Refused::Unavailable),
        }
        Ok(())
    }

    fn reduce_scatter(&mut self) -> Result<(), Refused> {
        let (size, rank) = (self.call.size, self.rank());
        self.blocks = size;
        let in_place = self.call.in_place;
        let direct = !in_place && self.call.algorithm == Algorithm::Halving && !self.groups().leads();
        if self.call.algorithm == Algorithm::Knomial {
            let tree = self.tree(0);
            let reduction = Reduction { tree, blocks: size, into: Place::Scratch, in_place: false };
            self.push_early(Kind::TreeReduction(reduction));
            self.push(Kind::Down(Down { tree, load: Load::Held { place: Place::Scratch } }));
        } else {
            let own = if in_place { Own::Held(Place::Scratch) } else { Own::Output };
            self.scatter_result(Place::Scratch, false, own)?;
        }
        let (from, into) = (Span::new(Place::Scratch, Blocks::one(rank)), Span::new(Place::Output, Blocks::one(0)));
        let copy = Copy { from, into, scratch: rank.wrapping_add(1) };
        if in_place {
            self.last = Some(copy);
        } else if !direct {
            self.push(Kind::Copy(copy));
        }
        Ok(())
    }

    fn rooted(&mut self) -> Result<(), Refused> {
        let gather = self.call.verb == Verb::Gather;
        let (root, in_place) = (self.call.root.0, self.call.in_place);
        self.blocks = self.call.size;
        match self.call.algorithm {
            Algorithm::Knomial => {
                let (tree, load) = (self.tree(root), Load::Own { in_place });
                self.push_early(if gather { Kind::Up(Up { tree, load }) } else { Kind::Down(Down { tree, load }) });
            }
            Algorithm::Direct => {
                self.push_early(Kind::Rooted(Rooted { peers: self.peers(), root, gather, in_place }));
            }
            _ => return Err(Refused::Unavailable),
        }
        Ok(())
    }

    fn allgather(&mut self) -> Result<(), Refused> {
        let (size, rank, in_place) = (self.call.size, self.rank(), self.call.in_place);
        self.blocks = size;
        if self.call.algorithm == Algorithm::Direct {
            let peers = self.peers();
            self.push_early(Kind::DirectAllgather(direct::Allgather { peers, in_place }));
            return Ok(());
        }
        if !in_place {
            self.copy(Place::Input, Blocks::one(0), Place::Output, Blocks::one(rank));
        }
        match self.call.algorithm {
            Algorithm::Bruck => self.push_early(Kind::BruckAllgather(bruck::Allgather(self.rounds_of()))),
            Algorithm::Ring => self.push_early(Kind::RingAllgather(ring::Allgather(self.ring()))),
            Algorithm::Doubling | Algorithm::StandardExchange => {
                self.push_early(self.before(Early::Block));
                self.push_early(self.exchange(What::Parts(Split { by_rank: true, order: Order::Any })));
                self.push(self.after(Late::Others { size }));
            }
            _ => return Err(Refused::Unavailable),
        }
        Ok(())
    }

    fn alltoall(&mut self) -> Result<(), Refused> {
        let (size, in_place) = (self.call.size, self.call.in_place);
        self.blocks = size;
        match self.call.algorithm {
            Algorithm::Direct | Algorithm::Pairwise => {
                let pairwise = self.call.algorithm == Algorithm::Pairwise;
                let peers = self.peers();
                self.push_early(Kind::DirectAlltoall(direct::Alltoall { peers, in_place, pairwise }));
            }
            Algorithm::Bruck => self.push_early(Kind::BruckAlltoall(bruck::Alltoall(self.rounds_of()))),
            Algorithm::Doubling | Algorithm::StandardExchange => {
                if !in_place {
                    let all = Blocks::range(0, size);
                    self.copy(Place::Input, all, Place::Output, all);
                }
                let (radix, rank, ports) = (base(&self.call), self.rank(), self.ports());
                self.push_early(Kind::Swap(Swap { radix, size, rank, ports }));
            }
            _ => return Err(Refused::Unavailable),
        }
        Ok(())
    }

    fn scan(&mut self) -> Result<(), Refused> {
        let Call { size, in_place, .. } = self.call;
        let exclusive = self.call.verb == Verb::Exscan;
        let prefix = Prefix { size, rank: self.rank(), exclusive, in_place };
        match self.call.algorithm {
            Algorithm::Dissemination => {
                let into = if exclusive { Place::Scratch } else { Place::Output };
                let sends = self.rank().wrapping_add(1) < size;
                if if exclusive { sends } else { !in_place } {
                    self.copy(Place::Input, Blocks::one(0), into, Blocks::one(0));
                }
                let (radix, ports) = (base(&self.call), self.ports());
                self.push_early(Kind::Doubling(Doubling { prefix, radix, ports }));
            }
            Algorithm::Ring => self.push_early(Kind::Chain(Chain(prefix))),
            _ => return Err(Refused::Unavailable),
        }
        Ok(())
    }
}

/// What the algorithm counts in.
fn base(call: &Call) -> Radix {
    Radix::new(match call.algorithm {
        Algorithm::Doubling => 2,
        Algorithm::Knomial => u32::from(call.radix),
        _ => u32::from(call.ports).wrapping_add(1),
    })
}

/// What does not depend on the parts.
fn check(call: &Call) -> Result<(), Refused> {
    use Algorithm::{Bruck, Direct, Dissemination, Doubling, Halving, Knomial, Pairwise, Ring, StandardExchange};
    let available = match call.verb {
        Verb::Barrier => matches!(call.algorithm, Knomial | Dissemination | Doubling | StandardExchange),
        Verb::Broadcast => matches!(call.algorithm, Knomial | Bruck | Ring),
        Verb::Reduce | Verb::ReduceScatter => matches!(call.algorithm, Knomial | Halving | Ring),
        Verb::Allreduce => matches!(call.algorithm, Knomial | Doubling | StandardExchange | Halving | Ring),
        Verb::Gather | Verb::Scatter => matches!(call.algorithm, Knomial | Direct),
        Verb::Allgather => matches!(call.algorithm, Doubling | StandardExchange | Bruck | Direct | Ring),
        Verb::Alltoall => matches!(call.algorithm, Pairwise | Doubling | StandardExchange | Bruck | Direct),
        Verb::Scan | Verb::Exscan => matches!(call.algorithm, Dissemination | Ring),
    };
    if !available {
        return Err(Refused::Unavailable);
    }
    if call.rank.0 >= call.size || (call.verb.is_rooted() && call.root.0 >= call.size) {
        return Err(Refused::Rank);
    }
    if call.ports == 0 || call.ports > Plan::PORTS {
        return Err(Refused::Ports);
    }
    if call.algorithm == Knomial && !(2..=Plan::PORTS.wrapping_add(1)).contains(&call.radix) {
        return Err(Refused::Radix);
    }
    if call.segments == 0 {
        return Err(Refused::Segments);
    }
    if call.size > Plan::RANKS {
        return Err(Refused::TooLong);
    }
    let exact = Groups::new(base(call), call.size, call.rank.0).exact();
    let reduces = matches!(call.verb, Verb::Reduce | Verb::Allreduce | Verb::ReduceScatter);
    let shuffles = match call.algorithm {
        Ring => true,
        Halving => call.verb != Verb::Allreduce && !exact,
        _ => false,
    };
    if reduces && call.order == Order::Rank && shuffles {
        return Err(Refused::Order);
    }
    let forwards = match call.verb {
        Verb::Gather | Verb::Scatter => call.algorithm == Knomial,
        Verb::Alltoall => !matches!(call.algorithm, Direct | Pairwise),
        _ => false,
    };
    if forwards && call.varying {
        return Err(Refused::Varying);
    }
    if call.verb == Verb::Alltoall && matches!(call.algorithm, Doubling | StandardExchange) && !exact {
        return Err(Refused::Power);
    }
    Ok(())
}
