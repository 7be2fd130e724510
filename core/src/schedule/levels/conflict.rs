//! Whether two steps of different stages must run in sequence.

use crate::schedule::{BlockBuffer, BlockSpan, Blocks, StepOperation};

/// Whether `later` has to wait for `earlier`: one writes what the other accesses, or both are signals, the first one
/// received and the second one sent. `shared`: input and output share memory.
pub(super) fn conflicts(earlier: &StepOperation, later: &StepOperation, shared: bool) -> bool {
    if let (StepOperation::Receive { into, .. }, StepOperation::Send { from, .. }) = (earlier, later)
        && into.blocks.is_empty()
        && from.blocks.is_empty()
    {
        return true;
    }
    let touches = |write: Option<BlockSpan>, operation: &StepOperation| {
        write.is_some_and(|write| spans(operation).into_iter().flatten().any(|span| overlap(&write, &span, shared)))
    };
    touches(written(earlier), later) || touches(written(later), earlier)
}

const fn written(operation: &StepOperation) -> Option<BlockSpan> {
    match *operation {
        StepOperation::Send { .. } => None,
        StepOperation::Receive { into, .. } | StepOperation::Copy { into, .. } | StepOperation::Reduce { into, .. } => {
            Some(into)
        }
    }
}

const fn spans(operation: &StepOperation) -> [Option<BlockSpan>; 2] {
    match *operation {
        StepOperation::Send { from, .. } => [Some(from), None],
        StepOperation::Receive { into, .. } => [None, Some(into)],
        StepOperation::Copy { from, into } | StepOperation::Reduce { from, into, .. } => [Some(from), Some(into)],
    }
}

fn overlap(a: &BlockSpan, b: &BlockSpan, shared: bool) -> bool {
    match (a.buffer, b.buffer) {
        _ if a.blocks.is_empty() || b.blocks.is_empty() => false,
        // They number the same memory differently.
        (BlockBuffer::Input, BlockBuffer::Output) | (BlockBuffer::Output, BlockBuffer::Input) => shared,
        (a_buffer, b_buffer) if a_buffer != b_buffer => false,
        _ => parts(&a.blocks)
            .any(|(a, n)| parts(&b.blocks).any(|(b, m)| a < b.saturating_add(m) && b < a.saturating_add(n))),
    }
}

/// Ranges (first, blocks) that cover the set, exactly if it has at most two runs.
fn parts(blocks: &Blocks) -> impl Iterator<Item = (u32, u32)> + use<> {
    let end = match (blocks.modulus, blocks.count) {
        (_, 0..=2) => None,
        (Blocks::UNWRAPPED, count) => {
            let last = count.wrapping_sub(1).saturating_mul(blocks.stride).saturating_add(blocks.last);
            Some((blocks.first, last))
        }
        (modulus, _) => Some((0, modulus)),
    };
    let runs = if end.is_none() { *blocks } else { Blocks::NONE };
    end.into_iter().chain(runs.runs())
}
