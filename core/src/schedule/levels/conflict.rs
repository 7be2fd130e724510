//! Whether two steps of different stages must run in sequence.

use crate::collective::CollectiveKind;
use crate::schedule::{BlockBuffer, BlockSpan, Blocks, StepOperation};

/// Whether `later` has to wait for `earlier`: one writes what the other accesses, or it is a signal that the other one
/// announces. `shared`: input and output share memory.
pub(super) fn conflicts(earlier: &StepOperation, later: &StepOperation, shared: bool) -> bool {
    if ends_wait(earlier) && announces(later) {
        return true;
    }
    let (earlier, later) = (earlier.spans(), later.spans());
    let meet = |a: Option<BlockSpan>, b: Option<BlockSpan>| match (a, b) {
        (Some(a), Some(b)) => overlap(&a, &b, shared),
        _ => false,
    };
    meet(earlier.1, later.0) || meet(earlier.1, later.1) || meet(earlier.0, later.1)
}

/// Whether other ranks are known to have entered once it is complete.
const fn ends_wait(operation: &StepOperation) -> bool {
    match operation {
        StepOperation::Receive { into, .. } => into.blocks.is_empty(),
        StepOperation::Group(step) => matches!(step.collective, CollectiveKind::Barrier),
        _ => false,
    }
}

/// Whether it lets other ranks know.
const fn announces(operation: &StepOperation) -> bool {
    match operation {
        StepOperation::Send { from, .. } => from.blocks.is_empty(),
        operation => ends_wait(operation) && matches!(operation, StepOperation::Group(_)),
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
