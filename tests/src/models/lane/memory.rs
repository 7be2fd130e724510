//! What a rank's buffers hold: of each block and segment the ranks whose contributions it has, as bits.

use unisono_core::collective::CollectiveKind;
use unisono_core::ids::Rank;
use unisono_core::schedule::{BlockBuffer, BlockSpan, GroupStep, HierarchicalPlan, Spec};

/// The contributions in a block.
pub(super) type Bits = u8;

/// Output and scratch of a collective at one rank; its input is its contribution.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Memory {
    own: Bits,
    segments: u32,
    output: Vec<Bits>,
    scratch: Vec<Bits>,
}

impl Memory {
    /// The buffers at the start.
    pub(super) fn new<T: AsRef<[u32]>>(plan: &HierarchicalPlan<T>) -> Self {
        let Spec { collective, rank: Rank(rank), root, segments, .. } = *plan.spec();
        let own = 1 << rank;
        let is_sent = collective == CollectiveKind::Broadcast && rank == root.0;
        let cells = |blocks: u32| (blocks * segments) as usize;
        Self {
            own,
            segments,
            output: vec![if is_sent { own } else { 0 }; cells(plan.blocks())],
            scratch: vec![0; cells(plan.scratch_blocks())],
        }
    }

    fn cells(&self, span: BlockSpan) -> impl Iterator<Item = usize> + use<> {
        let segments = self.segments;
        span.blocks.iter().map(move |block| (block * segments + span.segment) as usize)
    }

    /// The blocks of a span.
    pub(super) fn load(&self, span: BlockSpan) -> Vec<Bits> {
        let load = |cell: usize| match span.buffer {
            BlockBuffer::Input => self.own,
            BlockBuffer::Output => self.output.get(cell).copied().unwrap_or(0),
            BlockBuffer::Scratch => self.scratch.get(cell).copied().unwrap_or(0),
        };
        self.cells(span).map(load).collect()
    }

    /// Writes the blocks of a span. Returns whether it has as many, in a buffer that can be written.
    pub(super) fn store(&mut self, span: BlockSpan, blocks: &[Bits]) -> bool {
        let cells: Vec<usize> = self.cells(span).collect();
        let buffer = match span.buffer {
            BlockBuffer::Input => return blocks.is_empty() && cells.is_empty(),
            BlockBuffer::Output => &mut self.output,
            BlockBuffer::Scratch => &mut self.scratch,
        };
        let is_stored = |(cell, block): (&usize, &Bits)| buffer.get_mut(*cell).map(|place| *place = *block).is_some();
        cells.len() == blocks.len() && cells.iter().zip(blocks).all(is_stored)
    }

    /// Combines the blocks of two spans in the second one. Returns whether no contribution is in both.
    pub(super) fn combine(&mut self, from: BlockSpan, into: BlockSpan) -> bool {
        let combined = combine(self.load(from), &self.load(into));
        combined.is_some_and(|combined| self.store(into, &combined))
    }

    /// Whether the output is what the collective of `ranks` ranks means.
    pub(super) fn is_result(&self, spec: &Spec, ranks: u32) -> bool {
        let (all, segments) = ((1 << ranks) - 1, self.segments as usize);
        match spec.collective {
            CollectiveKind::Broadcast => self.output.iter().all(|bits| *bits == 1 << spec.root.0),
            CollectiveKind::Reduce if spec.rank != spec.root => true,
            CollectiveKind::Reduce | CollectiveKind::Allreduce => self.output.iter().all(|bits| *bits == all),
            CollectiveKind::Allgather => {
                (0_u32..).zip(self.output.chunks(segments)).all(|(of, block)| block.iter().all(|bits| *bits == 1 << of))
            }
            _ => true,
        }
    }
}

/// `None`: other lengths, or a contribution is in both.
fn combine(mut left: Vec<Bits>, right: &[Bits]) -> Option<Vec<Bits>> {
    let is_apart = left.len() == right.len() && left.iter().zip(right).all(|(left, right)| left & right == 0);
    left.iter_mut().zip(right).for_each(|(left, right)| *left |= right);
    is_apart.then_some(left)
}

/// Executes the step of a subgroup of two members. Returns whether both mean the same.
pub(super) fn execute([one, other]: [GroupStep; 2], memories: [&mut Memory; 2]) -> bool {
    let same = |step: &GroupStep| (step.collective, step.root, step.each, step.members);
    if same(&one) != same(&other) || [one.number, other.number] != [0, 1] {
        return false;
    }
    let [first, second] = memories;
    let loaded = [first.load(one.from), second.load(other.from)];
    let [of_first, of_second] = &loaded;
    let (root, each) = (one.root as usize, one.each as usize);
    let of_root = if root == 0 { of_first } else { of_second };
    let mut store = |number: usize, blocks: &[Bits]| match number {
        0 => first.store(one.into, blocks),
        _ => second.store(other.into, blocks),
    };
    let combined = || combine(of_first.clone(), of_second);
    match one.collective {
        CollectiveKind::Barrier => true,
        CollectiveKind::Broadcast => store(1 - root, of_root),
        CollectiveKind::Reduce => combined().is_some_and(|sum| store(root, &sum)),
        CollectiveKind::Allreduce => combined().is_some_and(|sum| store(0, &sum) && store(1, &sum)),
        CollectiveKind::Gather => store(root, &loaded.concat()),
        CollectiveKind::Allgather => {
            let all = loaded.concat();
            store(0, &all) && store(1, &all)
        }
        CollectiveKind::Scatter => {
            let parts: Vec<&[Bits]> = of_root.chunks(each).collect();
            parts.len() == 2 && (0..).zip(parts).all(|(number, part)| store(number, part))
        }
        CollectiveKind::ReduceScatter => combined().is_some_and(|sum| {
            let parts: Vec<&[Bits]> = sum.chunks(each).collect();
            parts.len() == 2 && (0..).zip(parts).all(|(number, part)| store(number, part))
        }),
        _ => false,
    }
}
