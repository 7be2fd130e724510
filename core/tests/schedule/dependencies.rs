//! The order that the dependencies of one rank guarantee, and whether it suffices: no step may access memory that a
//! concurrent step writes.

use crate::memory::Buffers;
use unisono_core::schedule::{BlockSpan, GroupStep, Step, StepOperation};

/// For each step, which of the 64 before it are complete whenever it begins: bit b stands for step i − 1 − b. Older
/// ones are complete.
pub(crate) fn promised(steps: &[Step]) -> Vec<u64> {
    let mut promised: Vec<u64> = Vec::with_capacity(steps.len());
    for (i, step) in steps.iter().enumerate() {
        let mut mask = 0;
        let mut left = step.dependencies;
        while left != 0 {
            let b = left.trailing_zeros();
            left &= left - 1;
            // A bit before the first step has no meaning.
            let Some(before) = i.checked_sub(b as usize + 1) else { continue };
            mask |= 1 << b | promised[before].checked_shl(b + 1).unwrap_or(0);
        }
        promised.push(mask);
    }
    promised
}

/// Whether step `earlier` is complete whenever step `i` begins.
pub(crate) fn is_before(promised: &[u64], earlier: usize, i: usize) -> bool {
    let distance = i - 1 - earlier;
    distance >= 64 || promised[i] >> distance & 1 == 1
}

const WORDS: usize = 20;

/// A set of cells of one segment.
#[derive(Clone, Copy, Default)]
struct Cells([u64; WORDS]);

impl Cells {
    fn insert(&mut self, cell: u32) {
        self.0[cell as usize / 64] |= 1 << (cell % 64);
    }

    fn meets(&self, other: &Self) -> bool {
        let mut i = 0;
        while i < WORDS {
            if self.0[i] & other.0[i] != 0 {
                return true;
            }
            i += 1;
        }
        false
    }
}

struct Touched {
    segment: u32,
    reads: Cells,
    writes: Cells,
    /// Written in all segments.
    overlays: Cells,
}

fn add(to: &mut Cells, buffers: &Buffers, span: BlockSpan) -> Result<(), String> {
    for block in span.blocks.iter() {
        to.insert(buffers.named_cell(span.buffer, block).ok_or_else(|| format!("no block {block} in {span:?}"))?);
    }
    Ok(())
}

fn touched(buffers: &Buffers, operation: &StepOperation) -> Result<Touched, String> {
    let (mut reads, mut writes) = (Cells::default(), Cells::default());
    let segment = match operation {
        StepOperation::Send { from, .. } => {
            add(&mut reads, buffers, *from)?;
            from.segment
        }
        StepOperation::Receive { into, .. } => {
            add(&mut writes, buffers, *into)?;
            into.segment
        }
        StepOperation::Copy { from, into }
        | StepOperation::Reduce { from, into, .. }
        | StepOperation::Group(GroupStep { from, into, .. }) => {
            if from.segment != into.segment {
                return Err(format!("from one segment into another: {operation:?}"));
            }
            add(&mut reads, buffers, *from)?;
            add(&mut writes, buffers, *into)?;
            into.segment
        }
    };
    let mut overlays = Cells::default();
    if let StepOperation::Receive { into, .. }
    | StepOperation::Copy { into, .. }
    | StepOperation::Reduce { into, .. }
    | StepOperation::Group(GroupStep { into, .. }) = operation
    {
        buffers.overlaid(into.buffer).for_each(|cell| overlays.insert(cell));
    }
    Ok(Touched { segment, reads, writes, overlays })
}

/// Checks that every two steps that access the same cell, at least one of them writing, are ordered.
pub(crate) fn no_race(buffers: &Buffers, steps: &[Step]) -> Result<(), String> {
    assert!(buffers.cells() as usize <= WORDS * 64, "more cells than the detector has");
    let promised = promised(steps);
    let touched: Vec<Touched> = steps.iter().map(|step| touched(buffers, &step.operation)).collect::<Result<_, _>>()?;
    for (i, late) in touched.iter().enumerate() {
        for (earlier, early) in touched.iter().enumerate().take(i).skip(i.saturating_sub(64)) {
            let meets = early.segment == late.segment
                && (early.writes.meets(&late.reads)
                    || early.writes.meets(&late.writes)
                    || early.reads.meets(&late.writes));
            let overlaid = early.overlays.meets(&late.reads) || early.reads.meets(&late.overlays);
            if (meets || overlaid) && !is_before(&promised, earlier, i) {
                return Err(format!("step {earlier} {:?} races with step {i} {:?}", steps[earlier], steps[i]));
            }
        }
    }
    Ok(())
}
