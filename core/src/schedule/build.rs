//! Composition of a schedule: the phases of each algorithm for each collective.

use super::algorithm::alltoall_exchange::Swap;
use super::algorithm::copy::{Copy, Hop, Side};
use super::algorithm::direct::{self, Peers, Rooted};
use super::algorithm::exchange::{Exchange, Split, Vector, What};
use super::algorithm::fold::{After, Before, Early, Late, Own};
use super::algorithm::scan::{Chain, Doubling, Prefix};
use super::algorithm::tree::{Down, Load, Reduction, Tree, Up};
use super::algorithm::{bruck, ring};
use super::groups::Groups;
use super::plan::Kind;
use super::spec::base;
use super::{Algorithm, Blocks, Call, Order, Place, Plan, Refused, Span, Verb};

impl Plan {
    /// The schedule of a group of one rank.
    pub(super) fn alone(&mut self) {
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

    /// Appends a phase whose messages may arrive before this rank has entered.
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
        Tree::new(base(&self.call), self.call.size, self.rank(), root, self.ports())
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

    fn ring_allgather(&self, own: ring::Own) -> Kind {
        Kind::RingAllgather(ring::Allgather { ring: self.ring(), own })
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

    /// Composes the phases of the specified algorithm.
    pub(super) fn compose(&mut self) -> Result<(), Refused> {
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
            Algorithm::Ring => self.push_early(self.ring_allgather(ring::Own::Made)),
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

    /// Appends the phases after which rank r has block r of all vectors combined, at block r of `into`, for a vector
    /// with a block per rank.
    fn scatter_result(&mut self, into: Place, in_place: bool, own: Own) -> Result<(), Refused> {
        match self.call.algorithm {
            Algorithm::Ring => {
                let ring = self.ring();
                self.push_early(Kind::RingReduction(ring::Reduction { ring, into, in_place }));
            }
            Algorithm::Halving => {
                let split = Split { by_rank: true, order: self.call.order };
                self.halve(Vector { blocks: self.call.size, into, in_place }, split);
                self.push(self.after(Late::Own { of: into, into: own }));
            }
            _ => return Err(Refused::Unavailable),
        }
        Ok(())
    }

    /// Appends halving down to each group's own part.
    fn halve(&mut self, vector: Vector, split: Split) {
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
                let vector = Vector { blocks: 1, into: Place::Output, in_place };
                self.push_early(self.before(Early::Vector(vector)));
                self.push_early(self.exchange(What::Whole(vector)));
                self.push(self.after(Late::Vector { blocks: 1 }));
            }
            Algorithm::Halving => {
                let blocks = self.groups().count;
                let split = Split { by_rank: false, order: self.call.order };
                self.blocks = blocks;
                self.halve(Vector { blocks, into: Place::Output, in_place }, split);
                self.push(self.exchange(What::Parts(split)));
                self.push(self.after(Late::Vector { blocks }));
            }
            Algorithm::Ring => {
                let ring = self.ring();
                self.blocks = self.call.size;
                self.push_early(Kind::RingReduction(ring::Reduction { ring, into: Place::Output, in_place }));
                self.push(self.ring_allgather(ring::Own::Made));
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
        if self.call.algorithm == Algorithm::Ring {
            let own = if in_place { ring::Own::Output } else { ring::Own::Input };
            self.push_early(self.ring_allgather(own));
            return Ok(());
        }
        if !in_place {
            self.copy(Place::Input, Blocks::one(0), Place::Output, Blocks::one(rank));
        }
        match self.call.algorithm {
            Algorithm::Bruck => self.push_early(Kind::BruckAllgather(bruck::Allgather(self.rounds_of()))),
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
