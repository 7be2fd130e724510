//! Composition of a schedule: the phases of each algorithm for each collective.

use super::algorithm::alltoall_exchange::AlltoallExchange;
use super::algorithm::copy::{Copy, RootTransfer, Side};
use super::algorithm::direct::{self, Peers, Rooted};
use super::algorithm::exchange::{Accumulator, Exchange, ExchangeData, Split};
use super::algorithm::fold::{FoldIn, FoldInData, FoldOut, FoldOutData, OwnTarget};
use super::algorithm::scan::{Chain, Doubling, Prefix};
use super::algorithm::tree::{Down, Reduction, Tree, TreeData, Up};
use super::algorithm::{bruck, ring};
use super::groups::Groups;
use super::plan::PhaseKind;
use super::spec::base;
use super::{Algorithm, BlockBuffer, BlockSpan, Blocks, CollectiveKind, Order, Plan, Spec, Unsupported};

impl Plan {
    /// The schedule of a group of one rank.
    pub(super) fn alone(&mut self) {
        let silent = matches!(
            self.spec.collective,
            CollectiveKind::Barrier | CollectiveKind::Broadcast | CollectiveKind::Exscan
        );
        if !silent && !self.spec.in_place {
            self.copy(BlockBuffer::Input, Blocks::one(0), BlockBuffer::Output, Blocks::one(0));
        }
    }

    fn push(&mut self, kind: PhaseKind) {
        self.steps = self.steps.wrapping_add(kind.phase().len());
        self.keys = self.keys.wrapping_add(kind.phase().keys());
        if let Some(free) = self.phases.iter_mut().find(|part| part.is_none()) {
            *free = Some(kind);
        }
    }

    /// Appends a phase whose messages may arrive before this rank has entered.
    fn push_early(&mut self, kind: PhaseKind) {
        self.early = self.early.wrapping_add(kind.phase().arrivals());
        self.early_messages = self.early_messages.wrapping_add(kind.phase().receives());
        self.push(kind);
    }

    fn copy(&mut self, from: BlockBuffer, blocks: Blocks, into: BlockBuffer, there: Blocks) {
        let first = if into == BlockBuffer::Scratch { there.first.wrapping_add(there.len()) } else { 0 };
        let second = if from == BlockBuffer::Scratch { blocks.first.wrapping_add(blocks.len()) } else { 0 };
        self.push(PhaseKind::Copy(Copy {
            from: BlockSpan::new(from, blocks),
            into: BlockSpan::new(into, there),
            scratch: first.max(second),
        }));
    }

    fn rank(&self) -> u32 {
        self.spec.rank.0
    }

    fn is_root(&self) -> bool {
        self.spec.rank == self.spec.root
    }

    fn ports(&self) -> u32 {
        u32::from(self.spec.ports)
    }

    fn tree(&self, root: u32) -> Tree {
        Tree::new(base(&self.spec), self.spec.size, self.rank(), root, self.ports())
    }

    fn groups(&self) -> Groups {
        Groups::new(base(&self.spec), self.spec.size, self.rank())
    }

    fn rounds_of(&self) -> bruck::Rounds {
        bruck::Rounds { radix: base(&self.spec), size: self.spec.size, rank: self.rank(), ports: self.ports() }
    }

    fn ring(&self) -> ring::Ring {
        ring::Ring { size: self.spec.size, rank: self.rank() }
    }

    fn ring_allgather(&self, own: ring::OwnBlock) -> PhaseKind {
        PhaseKind::RingAllgather(ring::Allgather { ring: self.ring(), own })
    }

    fn peers(&self) -> Peers {
        Peers { size: self.spec.size, rank: self.rank(), ports: self.ports() }
    }

    fn exchange(&self, what: ExchangeData) -> PhaseKind {
        PhaseKind::Exchange(Exchange { groups: self.groups(), ports: self.ports(), what })
    }

    fn fold_in(&self, load: FoldInData) -> PhaseKind {
        PhaseKind::FoldIn(FoldIn { groups: self.groups(), ports: self.ports(), load })
    }

    fn fold_out(&self, load: FoldOutData) -> PhaseKind {
        PhaseKind::FoldOut(FoldOut { groups: self.groups(), ports: self.ports(), load })
    }

    /// Composes the phases of the specified algorithm.
    pub(super) fn build(&mut self) -> Result<(), Unsupported> {
        let call = self.spec;
        match call.collective {
            CollectiveKind::Barrier => self.barrier(),
            CollectiveKind::Broadcast => self.broadcast(),
            CollectiveKind::Reduce => self.reduce(),
            CollectiveKind::Allreduce => self.allreduce(),
            CollectiveKind::ReduceScatter => self.reduce_scatter(),
            CollectiveKind::Gather | CollectiveKind::Scatter => self.rooted(),
            CollectiveKind::Allgather => self.allgather(),
            CollectiveKind::Alltoall => self.alltoall(),
            CollectiveKind::Scan | CollectiveKind::Exscan => self.scan(),
        }
    }

    fn barrier(&mut self) -> Result<(), Unsupported> {
        match self.spec.algorithm {
            Algorithm::Knomial => {
                let tree = self.tree(0);
                self.push_early(PhaseKind::Up(Up { tree, load: TreeData::Nothing }));
                self.push(PhaseKind::Down(Down { tree, load: TreeData::Nothing }));
            }
            Algorithm::Dissemination => {
                self.push_early(PhaseKind::Dissemination(bruck::Dissemination(self.rounds_of())))
            }
            Algorithm::Doubling | Algorithm::StandardExchange => {
                self.push_early(self.fold_in(FoldInData::Nothing));
                self.push_early(self.exchange(ExchangeData::Nothing));
                self.push(self.fold_out(FoldOutData::Nothing));
            }
            _ => return Err(Unsupported::Unavailable),
        }
        Ok(())
    }

    fn broadcast(&mut self) -> Result<(), Unsupported> {
        let tree = self.tree(self.spec.root.0);
        let (load, blocks) = match self.spec.algorithm {
            Algorithm::Knomial => (TreeData::Vector { blocks: 1 }, 1),
            Algorithm::Bruck | Algorithm::Ring => (TreeData::Held { place: BlockBuffer::Output }, self.spec.size),
            _ => return Err(Unsupported::Unavailable),
        };
        self.blocks = blocks;
        self.push_early(PhaseKind::Down(Down { tree, load }));
        match self.spec.algorithm {
            Algorithm::Bruck => self.push_early(PhaseKind::BruckAllgather(bruck::Allgather(self.rounds_of()))),
            Algorithm::Ring => self.push_early(self.ring_allgather(ring::OwnBlock::Made)),
            _ => {}
        }
        if self.is_root() {
            (self.early, self.early_messages) = (0, 0);
        }
        Ok(())
    }

    fn reduce(&mut self) -> Result<(), Unsupported> {
        let root = self.spec.root.0;
        let into = if self.is_root() { BlockBuffer::Output } else { BlockBuffer::Scratch };
        let in_place = self.spec.in_place && self.is_root();
        if self.spec.algorithm == Algorithm::Knomial {
            let top = if self.spec.order == Order::Any { root } else { 0 };
            self.push_early(PhaseKind::TreeReduction(Reduction { tree: self.tree(top), blocks: 1, into, in_place }));
            if top != root {
                let side = match self.rank() {
                    0 => Side::Sender { to: root },
                    rank if rank == root => Side::Receiver { of: 0 },
                    _ => Side::Neither,
                };
                self.push(PhaseKind::RootTransfer(RootTransfer { side, span: BlockSpan::new(into, Blocks::one(0)) }));
            }
            return Ok(());
        }
        self.blocks = self.spec.size;
        self.scatter_result(into, in_place, OwnTarget::Held(into))?;
        self.push(PhaseKind::Up(Up { tree: self.tree(root), load: TreeData::Held { place: into } }));
        Ok(())
    }

    /// Appends the phases after which rank r has block r of all vectors combined, at block r of `into`, for a vector
    /// with a block per rank.
    fn scatter_result(&mut self, into: BlockBuffer, in_place: bool, own: OwnTarget) -> Result<(), Unsupported> {
        match self.spec.algorithm {
            Algorithm::Ring => {
                let ring = self.ring();
                self.push_early(PhaseKind::RingReduction(ring::Reduction { ring, into, in_place }));
            }
            Algorithm::Halving => {
                let split = Split { by_rank: true, order: self.spec.order };
                self.halve(Accumulator { blocks: self.spec.size, into, in_place }, split);
                self.push(self.fold_out(FoldOutData::Own { of: into, into: own }));
            }
            _ => return Err(Unsupported::Unavailable),
        }
        Ok(())
    }

    /// Appends halving down to each group's own part.
    fn halve(&mut self, vector: Accumulator, split: Split) {
        self.push_early(self.fold_in(FoldInData::Vector(vector)));
        self.push_early(self.exchange(ExchangeData::Halves(vector, split)));
    }

    fn allreduce(&mut self) -> Result<(), Unsupported> {
        let in_place = self.spec.in_place;
        match self.spec.algorithm {
            Algorithm::Knomial => {
                let tree = self.tree(0);
                self.push_early(PhaseKind::TreeReduction(Reduction {
                    tree,
                    blocks: 1,
                    into: BlockBuffer::Output,
                    in_place,
                }));
                self.push(PhaseKind::Down(Down { tree, load: TreeData::Vector { blocks: 1 } }));
            }
            Algorithm::Doubling | Algorithm::StandardExchange => {
                let vector = Accumulator { blocks: 1, into: BlockBuffer::Output, in_place };
                self.push_early(self.fold_in(FoldInData::Vector(vector)));
                self.push_early(self.exchange(ExchangeData::Whole(vector)));
                self.push(self.fold_out(FoldOutData::Vector { blocks: 1 }));
            }
            Algorithm::Halving => {
                let blocks = self.groups().count;
                let split = Split { by_rank: false, order: self.spec.order };
                self.blocks = blocks;
                self.halve(Accumulator { blocks, into: BlockBuffer::Output, in_place }, split);
                self.push(self.exchange(ExchangeData::Parts(split)));
                self.push(self.fold_out(FoldOutData::Vector { blocks }));
            }
            Algorithm::Ring => {
                let ring = self.ring();
                self.blocks = self.spec.size;
                self.push_early(PhaseKind::RingReduction(ring::Reduction {
                    ring,
                    into: BlockBuffer::Output,
                    in_place,
                }));
                self.push(self.ring_allgather(ring::OwnBlock::Made));
            }
            _ => return Err(Unsupported::Unavailable),
        }
        Ok(())
    }

    fn reduce_scatter(&mut self) -> Result<(), Unsupported> {
        let (size, rank) = (self.spec.size, self.rank());
        self.blocks = size;
        let in_place = self.spec.in_place;
        let direct = !in_place && self.spec.algorithm == Algorithm::Halving && !self.groups().leads();
        if self.spec.algorithm == Algorithm::Knomial {
            let tree = self.tree(0);
            let reduction = Reduction { tree, blocks: size, into: BlockBuffer::Scratch, in_place: false };
            self.push_early(PhaseKind::TreeReduction(reduction));
            self.push(PhaseKind::Down(Down { tree, load: TreeData::Held { place: BlockBuffer::Scratch } }));
        } else {
            let own = if in_place { OwnTarget::Held(BlockBuffer::Scratch) } else { OwnTarget::Output };
            self.scatter_result(BlockBuffer::Scratch, false, own)?;
        }
        let (from, into) = (
            BlockSpan::new(BlockBuffer::Scratch, Blocks::one(rank)),
            BlockSpan::new(BlockBuffer::Output, Blocks::one(0)),
        );
        let copy = Copy { from, into, scratch: rank.wrapping_add(1) };
        if in_place {
            self.last = Some(copy);
        } else if !direct {
            self.push(PhaseKind::Copy(copy));
        }
        Ok(())
    }

    fn rooted(&mut self) -> Result<(), Unsupported> {
        let gather = self.spec.collective == CollectiveKind::Gather;
        let (root, in_place) = (self.spec.root.0, self.spec.in_place);
        self.blocks = self.spec.size;
        match self.spec.algorithm {
            Algorithm::Knomial => {
                let (tree, load) = (self.tree(root), TreeData::Own { in_place });
                self.push_early(if gather {
                    PhaseKind::Up(Up { tree, load })
                } else {
                    PhaseKind::Down(Down { tree, load })
                });
            }
            Algorithm::Direct => {
                self.push_early(PhaseKind::Rooted(Rooted { peers: self.peers(), root, gather, in_place }));
            }
            _ => return Err(Unsupported::Unavailable),
        }
        Ok(())
    }

    fn allgather(&mut self) -> Result<(), Unsupported> {
        let (size, rank, in_place) = (self.spec.size, self.rank(), self.spec.in_place);
        self.blocks = size;
        if self.spec.algorithm == Algorithm::Direct {
            let peers = self.peers();
            self.push_early(PhaseKind::DirectAllgather(direct::Allgather { peers, in_place }));
            return Ok(());
        }
        if self.spec.algorithm == Algorithm::Ring {
            let own = if in_place { ring::OwnBlock::Output } else { ring::OwnBlock::Input };
            self.push_early(self.ring_allgather(own));
            return Ok(());
        }
        if !in_place {
            self.copy(BlockBuffer::Input, Blocks::one(0), BlockBuffer::Output, Blocks::one(rank));
        }
        match self.spec.algorithm {
            Algorithm::Bruck => self.push_early(PhaseKind::BruckAllgather(bruck::Allgather(self.rounds_of()))),
            Algorithm::Doubling | Algorithm::StandardExchange => {
                self.push_early(self.fold_in(FoldInData::Block));
                // Strided parts have a rank per group.
                let order = if self.groups().exact() { self.spec.order } else { Order::Any };
                self.push_early(self.exchange(ExchangeData::Parts(Split { by_rank: true, order })));
                self.push(self.fold_out(FoldOutData::Others { size }));
            }
            _ => return Err(Unsupported::Unavailable),
        }
        Ok(())
    }

    fn alltoall(&mut self) -> Result<(), Unsupported> {
        let (size, in_place) = (self.spec.size, self.spec.in_place);
        self.blocks = size;
        match self.spec.algorithm {
            Algorithm::Direct | Algorithm::Pairwise => {
                let pairwise = self.spec.algorithm == Algorithm::Pairwise;
                let peers = self.peers();
                self.push_early(PhaseKind::DirectAlltoall(direct::Alltoall { peers, in_place, pairwise }));
            }
            Algorithm::Bruck => self.push_early(PhaseKind::BruckAlltoall(bruck::Alltoall(self.rounds_of()))),
            Algorithm::Doubling | Algorithm::StandardExchange => {
                if !in_place {
                    let all = Blocks::range(0, size);
                    self.copy(BlockBuffer::Input, all, BlockBuffer::Output, all);
                }
                let (radix, rank, ports) = (base(&self.spec), self.rank(), self.ports());
                self.push_early(PhaseKind::AlltoallExchange(AlltoallExchange { radix, size, rank, ports }));
            }
            _ => return Err(Unsupported::Unavailable),
        }
        Ok(())
    }

    fn scan(&mut self) -> Result<(), Unsupported> {
        let Spec { size, in_place, .. } = self.spec;
        let exclusive = self.spec.collective == CollectiveKind::Exscan;
        let prefix = Prefix { size, rank: self.rank(), exclusive, in_place };
        match self.spec.algorithm {
            Algorithm::Dissemination => {
                let into = if exclusive { BlockBuffer::Scratch } else { BlockBuffer::Output };
                let sends = self.rank().wrapping_add(1) < size;
                if if exclusive { sends } else { !in_place } {
                    self.copy(BlockBuffer::Input, Blocks::one(0), into, Blocks::one(0));
                }
                let (radix, ports) = (base(&self.spec), self.ports());
                self.push_early(PhaseKind::Doubling(Doubling { prefix, radix, ports }));
            }
            Algorithm::Ring => self.push_early(PhaseKind::Chain(Chain(prefix))),
            _ => return Err(Unsupported::Unavailable),
        }
        Ok(())
    }
}
