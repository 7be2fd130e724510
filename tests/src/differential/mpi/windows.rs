//! One-sided communication: each rank accesses parts of every window that are its own, and updates one that all share.

use alloc::rc::Rc;

use fastrand::Rng;

use super::basic::{BASICS, Basic, Operation};
use super::datatype::{Datatype, list};
use super::exchange::Group;
use super::memory::{Block, Fill, Part};
use super::messages::data;
use super::reductions::Operands;
use super::script::Script;

/// Bytes that a window's offsets are a multiple of.
const ALIGNMENT: usize = 16;

/// What an access does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Access {
    Put,
    Get,
    /// Without and with the old contents.
    Accumulate(Operation),
    GetAccumulate(Operation),
    FetchAndOp(Operation),
    CompareAndSwap,
}

/// One access of a rank to a region of a target's window.
struct OneSided {
    origin: usize,
    target: usize,
    access: Access,
    /// The region, at its place in the window.
    there: Block,
    own: Part,
    /// Of an update.
    basic: Basic,
    /// The buffer of the old contents.
    old: Part,
    /// Of a compare-and-swap: whether the comparison holds.
    holds: bool,
}

/// A buffer, and its contents after an epoch.
type Shown = (usize, Vec<u8>);

/// How accesses are synchronised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Epoch {
    Fence,
    Lock,
    LockAll,
    PostStart,
}

/// A window, and some epochs.
pub(super) fn window(script: &mut Script, rng: &mut Rng, group: &Group<'_>, bytes: usize) {
    let size = group.members.len();
    let (is_allocated, unit) = (rng.bool(), [1, 8, 16][rng.usize(0..3)]);
    let epochs: Vec<Epoch> = (0..rng.usize(1..=3))
        .map(|_| [Epoch::Fence, Epoch::Lock, Epoch::LockAll, Epoch::PostStart][rng.usize(0..4)])
        .collect();
    // The shared region is at the window's beginning.
    let mut shared = Operands::of_mpi(rng);
    shared.operation = commutative(&shared, rng);
    let shared_count = 1 + rng.usize(0..32);
    let mut end = (shared_count * shared.basic.extent).next_multiple_of(ALIGNMENT);
    let mut rounds = Vec::new();
    for _ in &epochs {
        let mut accesses = Vec::new();
        for (origin, target) in (0..size).flat_map(|origin| (0..size).map(move |target| (origin, target))) {
            for _ in 0..rng.usize(0..4) / 2 {
                accesses.push(draw(script, rng, (origin, target), bytes, &mut end));
            }
        }
        rounds.push(accesses);
    }
    let bytes = end + ALIGNMENT;
    let fills: Vec<Fill> = group.members.iter().map(|_| shared.fill(rng.u64(..) >> 1)).collect();
    let mut memories: Vec<Vec<u8>> = fills.iter().map(|fill| fill.memory(bytes)).collect();
    let mut windows = Vec::new();
    for (rank, fill) in group.members.iter().zip(&fills) {
        let buffer = script.new_buffer(*rank);
        if !is_allocated {
            script.line(*rank, format!("buffer {buffer} {bytes}"));
        }
        script.line(*rank, format!("window {} {} {buffer} {unit} {bytes}", group.on, u8::from(is_allocated)));
        script.fill(*rank, buffer, *fill);
        script.line(*rank, format!("barrier 0 -1 {}", group.on));
        windows.push(buffer);
    }
    for (epoch, accesses) in epochs.iter().zip(&rounds) {
        let mut shown: Vec<Vec<Shown>> = vec![Vec::new(); size];
        for (origin, rank) in group.members.iter().enumerate() {
            begin(script, *rank, *epoch);
            for (target, memory) in memories.iter_mut().enumerate() {
                if *epoch == Epoch::Lock {
                    let is_shared = u8::from(rng.bool());
                    script.line(*rank, format!("lock {is_shared} {target}"));
                }
                for it in accesses.iter().filter(|it| (it.origin, it.target) == (origin, target)) {
                    let is_passive = matches!(epoch, Epoch::Lock | Epoch::LockAll);
                    it.write(script, rng, (*rank, unit), memory, is_passive, &mut shown[origin]);
                }
                let (buffer, part) = shared_update(script, rng, *rank, &shared, shared_count);
                let (datum, number) = (data(buffer, &part), shared.operation as usize);
                script.line(*rank, format!("accumulate {datum} {target} 0 {number}"));
                let region = &mut memory[..shared_count * shared.basic.extent];
                shared.operation.combine(shared.basic, &part.pack(&part.memory(), 0), region);
                match epoch {
                    Epoch::Lock => script.line(*rank, format!("unlock {target}")),
                    Epoch::LockAll if rng.bool() => script.line(*rank, format!("flush {target}")),
                    _ => {}
                }
            }
            finish(script, *rank, *epoch);
            script.line(*rank, format!("barrier 0 -1 {}", group.on));
        }
        for (at, rank) in group.members.iter().enumerate() {
            shown[at].iter().for_each(|(buffer, contents)| script.show(*rank, *buffer, contents));
            // Its own window, under a lock as memory may be separate.
            script.line(*rank, format!("lock 1 {at}"));
            if shared.needs_cleaning() {
                script.line(*rank, format!("clean {} {}", windows[at], shared.basic.id));
                shared.basic.clean(&mut memories[at]);
            }
            script.show(*rank, windows[at], &memories[at]);
            script.line(*rank, format!("unlock {at}"));
            script.line(*rank, format!("barrier 0 -1 {}", group.on));
        }
    }
    for rank in group.members {
        script.line(*rank, "close");
    }
}

fn begin(script: &mut Script, rank: u32, epoch: Epoch) {
    match epoch {
        Epoch::Fence => script.line(rank, "fence 0"),
        Epoch::LockAll => script.line(rank, "lock_all"),
        Epoch::PostStart => script.line(rank, "post_start"),
        Epoch::Lock => {}
    }
}

fn finish(script: &mut Script, rank: u32, epoch: Epoch) {
    match epoch {
        // No further accesses follow: `MPI_MODE_NOSUCCEED`.
        Epoch::Fence => script.line(rank, "fence 16384"),
        Epoch::LockAll => script.line(rank, "unlock_all"),
        Epoch::PostStart => script.line(rank, "complete_wait"),
        Epoch::Lock => {}
    }
}

/// An operation whose order among the ranks does not matter.
fn commutative(operands: &Operands, rng: &mut Rng) -> Operation {
    let all = Operation::of(operands.basic.class);
    // A product of many small numbers is no longer exact.
    let all: Vec<_> = all.iter().filter(|of| **of != Operation::Product || operands.basic.is_integer()).collect();
    *all[rng.usize(0..all.len())]
}

fn shared_update(script: &mut Script, rng: &mut Rng, rank: u32, shared: &Operands, count: usize) -> (usize, Part) {
    let block = Block::first(count, &shared.datatype);
    let part = Part::new(shared.fill(rng.u64(..) >> 1), vec![block]);
    (script.buffer(rank, &part), part)
}

fn draw(
    script: &mut Script,
    rng: &mut Rng,
    (origin, target): (usize, usize),
    bytes: usize,
    end: &mut usize,
) -> OneSided {
    let random = |rng: &mut Rng| Fill { seed: rng.u64(..) >> 1, basic: None };
    let integer = BASICS[rng.usize(1..9)];
    let operations = Operation::of(integer.class);
    let operation = match rng.u8(0..8) {
        0 => Operation::Replace,
        _ => operations[rng.usize(0..operations.len())],
    };
    let access = match rng.u8(0..8) {
        0 | 1 => Access::Put,
        2 | 3 => Access::Get,
        4 => Access::Accumulate(operation),
        5 => Access::GetAccumulate(if rng.u8(0..4) == 0 { Operation::None } else { operation }),
        6 => Access::FetchAndOp(if rng.u8(0..4) == 0 { Operation::None } else { operation }),
        _ => Access::CompareAndSwap,
    };
    let (own, there, old) = match access {
        Access::Put | Access::Get => {
            let unit = script.datatypes.unit(rng);
            let grain = [1, 12][rng.usize(0..2)];
            let units = bytes / (unit.size() * grain) * grain;
            let mut block = || {
                let datatype = script.datatypes.draw(rng, &unit, grain);
                Block::first(units / datatype.units, &datatype)
            };
            let (own, there) = (block(), block());
            (own, there, Vec::new())
        }
        _ => {
            let datatype = Rc::new(Datatype::basic(integer));
            let is_one = matches!(access, Access::FetchAndOp(_) | Access::CompareAndSwap);
            let count = if is_one { 1 } else { (bytes / integer.extent).min(4096) };
            let block = Block::first(count, &datatype);
            (block.clone(), block.clone(), vec![block])
        }
    };
    // Displacements that a datatype subtracts stay inside the region.
    let (first, last) = there.range();
    let before = first.min(0).unsigned_abs().next_multiple_of(ALIGNMENT);
    let at = *end + before;
    *end = (at + last.max(0).unsigned_abs()).next_multiple_of(ALIGNMENT);
    let there = Block { at: at as isize, ..there };
    let own = Part::new(random(rng), vec![own]);
    OneSided { origin, target, access, there, own, basic: integer, old: Part::new(random(rng), old), holds: rng.bool() }
}

impl OneSided {
    /// The region in its window.
    fn region(&self) -> Part {
        let fill = Fill { seed: 0, basic: None };
        Part { fill, origin: 0, bytes: 0, blocks: vec![self.there.clone()] }
    }

    /// Writes the access, does the same to the memory of the target, and notes the origin's buffers.
    fn write(
        &self,
        script: &mut Script,
        rng: &mut Rng,
        (rank, unit): (u32, usize),
        memory: &mut [u8],
        is_passive: bool,
        shown: &mut Vec<Shown>,
    ) {
        let (region, target) = (self.region(), self.target);
        let at = self.there.at.unsigned_abs() / unit;
        let before = region.pack(memory, 0);
        let mut own_memory = self.own.memory();
        let mut given = self.own.pack(&own_memory, 0);
        if self.access == Access::CompareAndSwap {
            return self.swap(script, (rank, at), memory, &given, shown);
        }
        let own = script.buffer(rank, &self.own);
        script.make(rank, &self.there.datatype);
        let datum = data(own, &self.own);
        let request = if is_passive && rng.u8(0..4) == 0 { "r" } else { "" };
        let there = format!("{target} {at} {} {}", self.there.count, self.there.datatype.id);
        match self.access {
            Access::Put => {
                script.line(rank, format!("{request}put {datum} {there}"));
                region.unpack(memory, 0, &given);
            }
            Access::Get => {
                script.line(rank, format!("{request}get {datum} {there}"));
                self.own.unpack(&mut own_memory, 0, &before);
            }
            Access::Accumulate(operation) | Access::GetAccumulate(operation) | Access::FetchAndOp(operation) => {
                let number = operation as usize;
                if let Access::Accumulate(_) = self.access {
                    script.line(rank, format!("accumulate {datum} {target} {at} {number}"));
                } else {
                    let old = script.buffer(rank, &self.old);
                    let name = if let Access::FetchAndOp(_) = self.access { "fetch_and_op" } else { "get_accumulate" };
                    script.line(rank, format!("{name} {datum} {old} {} {target} {at} {number}", self.old.origin));
                    let mut contents = self.old.memory();
                    self.old.unpack(&mut contents, 0, &before);
                    shown.push((old, contents));
                }
                if operation != Operation::None {
                    let mut sum = before;
                    operation.combine(self.basic, &given, &mut sum);
                    given = sum;
                    region.unpack(memory, 0, &given);
                }
            }
            Access::CompareAndSwap => {}
        }
        shown.push((own, own_memory));
    }

    fn swap(
        &self,
        script: &mut Script,
        (rank, at): (u32, usize),
        memory: &mut [u8],
        given: &[u8],
        shown: &mut Vec<Shown>,
    ) {
        let (region, target) = (self.region(), self.target);
        let before = region.pack(memory, 0);
        let [own, old, compare] = [&self.own, &self.old, &self.own].map(|part| script.buffer(rank, part));
        let datum = data(own, &self.own);
        let (into, comparand) = (self.old.origin, self.own.origin);
        if self.holds {
            script.line(rank, format!("write {compare} {comparand} {}{}", before.len(), list(&before)));
        }
        let text = format!("compare_and_swap {datum} {compare} {comparand} {old} {into} {target} {at}");
        script.line(rank, text);
        let mut contents = self.old.memory();
        self.old.unpack(&mut contents, 0, &before);
        shown.push((old, contents));
        if self.holds || before == given {
            region.unpack(memory, 0, given);
        }
    }
}
