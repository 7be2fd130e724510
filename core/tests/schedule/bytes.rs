//! Schedules over real bytes through their layouts: odd, zero and varying lengths, segments, in place.
//!
//! An element is two bytes, the map x → a·x + b modulo 256; combining is composition, which is not commutative. With
//! fixed brackets the operation is not associative either.

use crate::group::{Group, calls};
use std::collections::HashMap;
use unisono_core::collective::{CollectiveKind, CollectiveMachine as _, Order, Poll};
use unisono_core::ids::{Rank, StepId};
use unisono_core::schedule::{BlockBuffer, BlockMap, BlockSpan, ByteRange, Fold, Layout, Plan, Spec, StepOperation};

const GRAIN: usize = 2;

fn compose(left: &[u8], right: &[u8]) -> [u8; GRAIN] {
    [left[0].wrapping_mul(right[0]), left[0].wrapping_mul(right[1]).wrapping_add(left[1])]
}

/// An operation whose result depends on the brackets.
fn entangle(left: &[u8], right: &[u8]) -> [u8; GRAIN] {
    let word = |bytes: &[u8]| u32::from(bytes[0]) << 8 | u32::from(bytes[1]);
    let mixed = (word(left) ^ word(right).rotate_left(7)).wrapping_add(word(left) << 3).wrapping_mul(0x9e37_79b1);
    [(mixed >> 24) as u8, (mixed >> 13) as u8]
}

/// The operation of a specification.
fn operation(call: &Spec) -> fn(&[u8], &[u8]) -> [u8; GRAIN] {
    if call.order == Order::Fixed { entangle } else { compose }
}

/// Lengths and offsets of consecutive blocks.
struct Table {
    bytes: Vec<usize>,
    at: Vec<usize>,
}

impl Table {
    fn new(bytes: Vec<usize>) -> Self {
        let at = bytes.iter().scan(0, |sum, bytes| Some(core::mem::replace(sum, *sum + bytes))).collect();
        Self { bytes, at }
    }

    fn cut(&self) -> BlockMap<'_> {
        BlockMap::Table { bytes: &self.bytes, at: &self.at }
    }

    fn range(&self, block: usize) -> core::ops::Range<usize> {
        self.at[block]..self.at[block] + self.bytes[block]
    }

    fn total(&self) -> usize {
        self.bytes.iter().sum()
    }
}

/// Bytes that rank `of` has for rank `to`, or bytes of block `to`.
fn length(of: u32, to: u32, unit: usize, varying: bool) -> usize {
    if varying { (of.min(to) as usize * 3 + of.max(to) as usize * 5 + unit) % 7 * GRAIN } else { unit * GRAIN }
}

/// One rank's memory: the caller's memory with input and output, and scratch.
struct Memory<'t> {
    bytes: Vec<u8>,
    input: usize,
    output: usize,
    scratch: Vec<u8>,
    layout: Layout<'t>,
}

impl Memory<'_> {
    fn place(&mut self, piece: &ByteRange) -> &mut [u8] {
        let (memory, base) = match piece.buffer {
            BlockBuffer::Input => (&mut self.bytes, self.input),
            BlockBuffer::Output => (&mut self.bytes, self.output),
            BlockBuffer::Scratch => (&mut self.scratch, 0),
        };
        &mut memory[base + piece.offset..][..piece.bytes]
    }

    fn read(&mut self, span: BlockSpan) -> Vec<u8> {
        let layout = self.layout;
        layout.pieces(span).flat_map(|piece| self.place(&piece).to_vec()).collect()
    }

    fn write(&mut self, span: BlockSpan, bytes: &[u8]) {
        let (layout, mut left) = (self.layout, bytes);
        for piece in layout.pieces(span) {
            let (now, rest) = left.split_at(piece.bytes);
            self.place(&piece).copy_from_slice(now);
            left = rest;
        }
        assert!(left.is_empty(), "{} bytes too many for {span:?}", left.len());
    }
}

fn run(group: &Group, memories: &mut [Memory<'_>]) {
    let mut flying: HashMap<(u32, u32, u32), Vec<u8>> = HashMap::new();
    let mut executors = group.executors();
    let combine = operation(&group.call);
    let mut waiting: Vec<Vec<(StepId, StepOperation)>> = vec![Vec::new(); group.size()];
    let mut moved = true;
    while moved {
        moved = false;
        for (rank, memory) in memories.iter_mut().enumerate() {
            let mut waited = core::mem::take(&mut waiting[rank]);
            loop {
                let (step, operation) = match (waited.pop(), &mut executors[rank]) {
                    (Some(waited), _) => waited,
                    (None, executor) => match executor.poll() {
                        Poll::Request(step, operation) => (step, operation),
                        _ => break,
                    },
                };
                match operation {
                    StepOperation::Send { to, key, from, .. } => {
                        let replaced = flying.insert((rank as u32, to.0, key), memory.read(from));
                        assert_eq!(replaced, None, "two messages under one key");
                    }
                    StepOperation::Receive { of, key, into, .. } => {
                        let Some(bytes) = flying.remove(&(of.0, rank as u32, key)) else {
                            waiting[rank].push((step, operation));
                            continue;
                        };
                        memory.write(into, &bytes);
                    }
                    StepOperation::Copy { from, into } => {
                        for (from, into) in memory.layout.pairs(from, into) {
                            let bytes = memory.place(&from).to_vec();
                            memory.place(&into).copy_from_slice(&bytes);
                        }
                    }
                    StepOperation::Group(_) => unreachable!("a flat schedule"),
                    StepOperation::Reduce { from, into, fold } => {
                        for (from, into) in memory.layout.pairs(from, into) {
                            let from = memory.place(&from).to_vec();
                            for (from, into) in from.chunks(GRAIN).zip(memory.place(&into).chunks_mut(GRAIN)) {
                                into.copy_from_slice(&match fold {
                                    Fold::Left => combine(from, into),
                                    Fold::Right => combine(into, from),
                                });
                            }
                        }
                    }
                }
                executors[rank].handle_done(step);
                moved = true;
            }
        }
    }
    assert!(executors.iter_mut().all(|executor| executor.poll() == Poll::Complete), "{:?}", group.call);
}

/// Byte `i` of the contribution of rank `rank`. Without `Order::Rank` an element is a shift, and shifts commute.
fn own(call: &Spec, rank: u32, i: usize) -> u8 {
    if call.order == Order::Any && i.is_multiple_of(GRAIN) {
        return 1;
    }
    (rank as usize * 89 + i * 7 + 3) as u8 | u8::from(i.is_multiple_of(GRAIN))
}

/// The division of a collective's buffers at one rank.
struct Tables {
    input: Table,
    output: Table,
    held: Table,
}

fn tables(call: &Spec, rank: u32, unit: usize) -> Tables {
    let whole = |of: &dyn Fn(u32) -> usize| Table::new((0..call.size).map(of).collect());
    let length = |of, to| length(of, to, unit, call.varying);
    let blocks = || whole(&|b| length(b, b));
    let one = || Table::new(vec![length(rank, rank)]);
    let (input, output) = match call.collective {
        CollectiveKind::Gather | CollectiveKind::Allgather => (one(), blocks()),
        CollectiveKind::Scatter | CollectiveKind::ReduceScatter => (blocks(), one()),
        CollectiveKind::Alltoall => (whole(&|b| length(rank, b)), whole(&|b| length(b, rank))),
        _ => (Table::new(vec![unit * GRAIN]), Table::new(vec![unit * GRAIN])),
    };
    let held = match call.collective {
        CollectiveKind::Alltoall => whole(&|b| length(rank, b)),
        CollectiveKind::Gather
        | CollectiveKind::Allgather
        | CollectiveKind::Scatter
        | CollectiveKind::ReduceScatter => blocks(),
        _ => Table::new(vec![unit * GRAIN]),
    };
    Tables { input, output, held }
}

/// The collective's definition, byte by byte: the output of `rank`, or `None` if it has none.
fn oracle(call: &Spec, rank: u32, unit: usize) -> Option<Vec<u8>> {
    let contribution = |of: u32| -> Vec<u8> {
        let table = tables(call, of, unit).input;
        (0..table.total()).map(|i| own(call, of, i)).collect()
    };
    let part = |of: u32, block: u32| contribution(of)[tables(call, of, unit).input.range(block as usize)].to_vec();
    let pairs = |left: Vec<u8>, right: Vec<u8>| -> Vec<u8> {
        left.chunks(GRAIN).zip(right.chunks(GRAIN)).flat_map(|(left, right)| operation(call)(left, right)).collect()
    };
    let combined = |ranks: core::ops::Range<u32>| -> Vec<u8> {
        match call.order {
            Order::Fixed if call.collective == CollectiveKind::Scan => doubled(rank, u32::MAX, &contribution, &pairs),
            Order::Fixed if call.collective == CollectiveKind::Exscan => {
                let reaches = (0..u32::BITS).map(|j| 1 << j).take_while(|reach| *reach <= rank);
                let parts = reaches.map(|reach| doubled(rank - reach, reach, &contribution, &pairs));
                parts.reduce(|nearer, farther| pairs(farther, nearer)).expect("a rank before")
            }
            Order::Fixed => binomial(ranks, &contribution, &pairs),
            _ => ranks.map(contribution).reduce(pairs).unwrap_or_default(),
        }
    };
    let (everybody, is_root) = (0..call.size, Rank(rank) == call.root);
    Some(match call.collective {
        CollectiveKind::Barrier => return None,
        CollectiveKind::Broadcast => contribution(call.root.0),
        CollectiveKind::Reduce | CollectiveKind::Gather if !is_root => return None,
        CollectiveKind::Exscan if rank == 0 => return None,
        CollectiveKind::Reduce | CollectiveKind::Allreduce => combined(everybody),
        CollectiveKind::Scan => combined(0..rank + 1),
        CollectiveKind::Exscan => combined(0..rank),
        CollectiveKind::Gather | CollectiveKind::Allgather => everybody.flat_map(contribution).collect(),
        CollectiveKind::Scatter => part(call.root.0, rank),
        CollectiveKind::Alltoall => everybody.flat_map(|of| part(of, rank)).collect(),
        CollectiveKind::ReduceScatter => combined(everybody)[tables(call, 0, unit).input.range(rank as usize)].to_vec(),
    })
}

/// The result of a binomial tree over some ranks: its root is the first, whose children are 1, 2, 4, … ranks ahead.
fn binomial(
    ranks: core::ops::Range<u32>,
    own: &impl Fn(u32) -> Vec<u8>,
    pairs: &impl Fn(Vec<u8>, Vec<u8>) -> Vec<u8>,
) -> Vec<u8> {
    let children = (0..u32::BITS).map(|j| ranks.start + (1 << j)).take_while(|child| *child < ranks.end);
    children.fold(own(ranks.start), |all, child| {
        let end = (2 * child - ranks.start).min(ranks.end);
        pairs(all, binomial(child..end, own, pairs))
    })
}

/// The result of recursive doubling at a rank before the round with this reach.
fn doubled(
    rank: u32,
    reach: u32,
    own: &impl Fn(u32) -> Vec<u8>,
    pairs: &impl Fn(Vec<u8>, Vec<u8>) -> Vec<u8>,
) -> Vec<u8> {
    let reaches = (0..u32::BITS).map(|j| 1 << j).take_while(|step| *step < reach && *step <= rank);
    reaches.fold(own(rank), |all, step| pairs(doubled(rank - step, step, own, pairs), all))
}

fn check(call: Spec, unit: usize) {
    let Ok(group) = Group::new(call) else { return };
    let blocks = group.plans[0].blocks();
    let tables: Vec<Tables> = (0..call.size).map(|rank| tables(&call, rank, unit)).collect();
    let mut memories: Vec<Memory<'_>> = Vec::new();
    for (rank, (plan, table)) in (0..).zip(group.plans.iter().zip(&tables)) {
        let cuts = (table.input.cut(), table.output.cut(), table.held.cut());
        let layout = match call.collective {
            CollectiveKind::Gather
            | CollectiveKind::Allgather
            | CollectiveKind::Scatter
            | CollectiveKind::ReduceScatter
            | CollectiveKind::Alltoall => Layout::new(cuts.0, cuts.1, cuts.2, blocks, GRAIN, call.segments),
            _ => Layout::vector(unit * GRAIN, blocks, GRAIN, call.segments),
        };
        let shared = call.collective == CollectiveKind::Broadcast
            || (call.in_place && (!call.collective.is_rooted() || Rank(rank) == call.root));
        let (input, output) = match (shared, call.collective) {
            (false, _) => (0, table.input.total()),
            (true, CollectiveKind::Gather | CollectiveKind::Allgather) => (table.output.at[rank as usize], 0),
            (true, CollectiveKind::Scatter) => (0, table.input.at[rank as usize]),
            (true, _) => (0, 0),
        };
        let size = (input + table.input.total()).max(output + table.output.total());
        let mut bytes = vec![0xee; size];
        // In a broadcast only the root's memory has data at the start.
        if call.collective != CollectiveKind::Broadcast || Rank(rank) == call.root {
            let contribution = bytes[input..].iter_mut().take(table.input.total());
            contribution.enumerate().for_each(|(i, byte)| *byte = own(&call, rank, i));
        }
        let scratch = vec![0xdd; layout.scratch_bytes(plan.scratch_blocks())];
        memories.push(Memory { bytes, input, output, scratch, layout });
    }
    run(&group, &mut memories);
    for (rank, memory) in (0..).zip(&memories) {
        if let Some(want) = oracle(&call, rank, unit) {
            assert_eq!(&memory.bytes[memory.output..][..want.len()], want, "{call:?}, {unit} elements: rank {rank}");
        }
    }
}

#[test]
fn schedules_move_the_right_bytes_of_odd_zero_and_varying_lengths() {
    for call in calls((1..=6).chain([9]), &[1, 2]) {
        if call.collective.is_rooted() && call.size == 9 && call.root != Rank(4) {
            continue;
        }
        for (unit, segments) in [(0, 2), (1, 1), (5, 1), (13, 3)] {
            for varying in [false, true] {
                check(Spec { segments, varying, ..call }, unit);
            }
        }
    }
}

#[test]
fn rejected_schedules_are_not_skipped_silently() {
    let moved = calls(4..=4, &[1]).into_iter().filter(|call| Plan::new(Spec { varying: true, ..*call }).is_ok());
    let verbs: std::collections::HashSet<CollectiveKind> = moved.map(|call| call.collective).collect();
    assert_eq!(verbs.len(), 11);
}
