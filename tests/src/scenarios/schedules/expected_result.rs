//! The sequential oracle: contributions and layouts of each rank, and the expected results.
//!
//! An element is three bytes: the map x → a·x + b modulo 256, and a sum. Combining composes maps, which does not
//! commute, and adds sums. Where an operation must commute, a is 1.

use unisono_core::collective::{CollectiveKind, Order};
use unisono_core::ids::Rank;
use unisono_core::schedule::{BlockMap, Layout, Plan, Spec};

use super::Workload;

/// Bytes of an element.
pub(super) const GRAIN: usize = 3;

/// The map `left` after the map `right`.
pub(super) fn compose(left: &[u8], right: &[u8]) -> [u8; GRAIN] {
    let (scale, offset) = (left[0].wrapping_mul(right[0]), left[0].wrapping_mul(right[1]).wrapping_add(left[1]));
    [scale, offset, left[2].wrapping_add(right[2])]
}

/// Byte `i` of what rank `rank` contributes.
fn own(call: &Spec, rank: u32, i: usize) -> u8 {
    let value = (rank as usize * 89 + i * 7 + 3) as u8;
    match i % GRAIN {
        0 if call.order == Order::Any => 1,
        0 => value | 1,
        _ => value,
    }
}

/// Consecutive blocks.
#[derive(Clone, Debug)]
struct Table {
    bytes: Vec<usize>,
    at: Vec<usize>,
    total: usize,
}

impl Table {
    fn new(bytes: Vec<usize>) -> Self {
        let at = bytes.iter().scan(0, |sum, bytes| Some(core::mem::replace(sum, *sum + bytes))).collect();
        let total = bytes.iter().sum();
        Self { bytes, at, total }
    }

    fn cut(&self) -> BlockMap<'_> {
        BlockMap::Table { bytes: &self.bytes, at: &self.at }
    }
}

/// One rank's buffers.
#[derive(Clone, Debug)]
pub(super) struct Buffers {
    input: Table,
    output: Table,
    held: Table,
    blocks: u32,
    segments: u32,
    is_vector: bool,
    /// Where input and output begin in the rank's memory, and its size.
    pub(super) begin: [usize; 2],
    pub(super) size: usize,
}

impl Buffers {
    pub(super) fn new(work: &Workload, plan: &Plan) -> Self {
        let Spec { collective: verb, rank, root, in_place, .. } = *plan.spec();
        let whole = |of: &dyn Fn(u32) -> usize| Table::new((0..work.call.size).map(of).collect());
        let blocks = || whole(&|b| work.bytes(b, b));
        let one = || Table::new(vec![work.bytes(rank.0, rank.0)]);
        let vector = || Table::new(vec![work.elements * GRAIN]);
        let (input, output, held) = match verb {
            CollectiveKind::Gather | CollectiveKind::Allgather => (one(), blocks(), blocks()),
            CollectiveKind::Scatter | CollectiveKind::ReduceScatter => (blocks(), one(), blocks()),
            CollectiveKind::Alltoall => {
                let outgoing = whole(&|b| work.bytes(rank.0, b));
                (outgoing.clone(), whole(&|b| work.bytes(b, rank.0)), outgoing)
            }
            _ => (vector(), vector(), vector()),
        };
        let shared = verb == CollectiveKind::Broadcast || (in_place && (!verb.is_rooted() || rank == root));
        let begin = match (shared, verb) {
            (false, _) => [0, input.total],
            (true, CollectiveKind::Gather | CollectiveKind::Allgather) => [output.at[rank.0 as usize], 0],
            (true, CollectiveKind::Scatter) => [0, input.at[rank.0 as usize]],
            (true, _) => [0, 0],
        };
        let size = (begin[0] + input.total).max(begin[1] + output.total);
        let is_vector = !work.has_blocks();
        Self { input, output, held, blocks: plan.blocks(), segments: work.call.segments, is_vector, begin, size }
    }

    pub(super) fn layout(&self) -> Layout<'_> {
        if self.is_vector {
            return Layout::vector(self.input.total, self.blocks, GRAIN, self.segments);
        }
        let (input, output, held) = (self.input.cut(), self.output.cut(), self.held.cut());
        Layout::new(input, output, held, self.blocks, GRAIN, self.segments)
    }

    /// The rank's memory before the collective: its contribution, and filler that must be overwritten.
    pub(super) fn filled(&self, call: &Spec) -> Vec<u8> {
        let mut memory = vec![0xee; self.size];
        if call.collective != CollectiveKind::Broadcast || call.rank == call.root {
            let input = memory.iter_mut().skip(self.begin[0]).take(self.input.total);
            input.enumerate().for_each(|(i, byte)| *byte = own(call, call.rank.0, i));
        }
        memory
    }
}

impl Workload {
    fn has_blocks(&self) -> bool {
        matches!(
            self.call.collective,
            CollectiveKind::Gather
                | CollectiveKind::Allgather
                | CollectiveKind::Scatter
                | CollectiveKind::ReduceScatter
                | CollectiveKind::Alltoall
        )
    }

    /// Bytes that rank `of` has for rank `to`, or that block `to` has.
    fn bytes(&self, of: u32, to: u32) -> usize {
        let (less, more) = (of.min(to) as usize, of.max(to) as usize);
        GRAIN * if self.call.varying { (less * 3 + more * 5 + self.elements) % 7 } else { self.elements }
    }
}

/// The expected results of a collective, for all ranks.
#[derive(Clone, Debug)]
pub struct ExpectedResult {
    outputs: Vec<Option<Vec<u8>>>,
}

impl ExpectedResult {
    /// Computes the expected output of each rank.
    pub fn new(work: &Workload) -> Self {
        let Spec { collective: verb, size, root, .. } = work.call;
        let length = |of: u32| match verb {
            CollectiveKind::Gather | CollectiveKind::Allgather => work.bytes(of, of),
            CollectiveKind::Scatter | CollectiveKind::ReduceScatter => (0..size).map(|b| work.bytes(b, b)).sum(),
            CollectiveKind::Alltoall => (0..size).map(|b| work.bytes(of, b)).sum(),
            _ => work.elements * GRAIN,
        };
        let contribution = |of: u32| -> Vec<u8> { (0..length(of)).map(|i| own(&work.call, of, i)).collect() };
        let join = |left: Vec<u8>, right: &[u8]| -> Vec<u8> {
            left.chunks(GRAIN).zip(right.chunks(GRAIN)).flat_map(|(left, right)| compose(left, right)).collect()
        };
        // Block `to` of what rank `of` contributes.
        let part = |of: u32, to: u32| -> Vec<u8> {
            let bytes = |b| if verb == CollectiveKind::Alltoall { work.bytes(of, b) } else { work.bytes(b, b) };
            let begin: usize = (0..to).map(bytes).sum();
            (begin..begin + bytes(to)).map(|i| own(&work.call, of, i)).collect()
        };
        // The reduction over ranks 0 to r.
        let mut prefixes: Vec<Vec<u8>> = Vec::new();
        for rank in if verb.combines() { 0..size } else { 0..0 } {
            let own = contribution(rank);
            let next = prefixes.last().map_or_else(|| own.clone(), |before| join(before.clone(), &own));
            prefixes.push(next);
        }
        let all = prefixes.last().cloned().unwrap_or_default();
        let output = |rank: u32| {
            Some(match verb {
                CollectiveKind::Barrier => return None,
                CollectiveKind::Broadcast => contribution(root.0),
                CollectiveKind::Reduce | CollectiveKind::Gather if Rank(rank) != root => return None,
                CollectiveKind::Reduce | CollectiveKind::Allreduce => all.clone(),
                CollectiveKind::Scan => prefixes[rank as usize].clone(),
                CollectiveKind::Exscan => prefixes[rank.checked_sub(1)? as usize].clone(),
                CollectiveKind::Gather | CollectiveKind::Allgather => (0..size).flat_map(contribution).collect(),
                CollectiveKind::Scatter => part(root.0, rank),
                CollectiveKind::Alltoall => (0..size).flat_map(|of| part(of, rank)).collect(),
                CollectiveKind::ReduceScatter => {
                    let begin: usize = (0..rank).map(|b| work.bytes(b, b)).sum();
                    all[begin..begin + work.bytes(rank, rank)].to_vec()
                }
            })
        };
        Self { outputs: (0..size).map(output).collect() }
    }

    /// The output of one rank; `None` where it receives nothing.
    pub fn output(&self, rank: usize) -> Option<&[u8]> {
        self.outputs.get(rank)?.as_deref()
    }
}
