//! Whether a datatype names a byte twice: then nothing can be received into it.

use alloc::vec::Vec;
use core::ops::ControlFlow;
use core::sync::atomic::Ordering;

use crate::node::{Node, Placed};

/// Most blocks that are compared one by one, where the structure does not show that they are apart.
const COMPARED_BLOCKS: usize = 1 << 20;

/// How an answer is stored: 0 is none.
pub(crate) const fn code(is_disjoint: bool) -> u8 {
    if is_disjoint { 1 } else { 2 }
}

/// Whether no byte is named twice. Layouts of more than 2²⁰ blocks that interleave irregularly count as overlapping.
pub(crate) fn is_disjoint(all: &Placed) -> bool {
    let known = of_node(&all.node);
    known.unwrap_or_else(|| {
        let compared = all.node.blocks() <= COMPARED_BLOCKS && compare(all);
        if let Node::Sequence(sequence) = &all.node {
            sequence.disjoint.store(code(compared), Ordering::Relaxed);
        }
        compared
    })
}

/// The answer, where the structure shows it.
fn of_node(node: &Node) -> Option<bool> {
    // The order of loops does not matter for the set of bytes: from the smallest stride on, each must be at least as
    // long as everything within it.
    let mut loops: Vec<(usize, usize)> = Vec::new();
    let mut inner = node;
    let mut span = loop {
        match inner {
            Node::Blocks { bytes, count, stride } => {
                loops.push((stride.unsigned_abs(), *count));
                break *bytes;
            }
            Node::Loop { body, count, stride } => {
                loops.push((stride.unsigned_abs(), *count));
                inner = body;
            }
            Node::Sequence(sequence) => {
                match sequence.disjoint.load(Ordering::Relaxed) {
                    0 => return None,
                    1 => {}
                    _ => return Some(false),
                }
                break usize::try_from(sequence.high.checked_sub(sequence.low)?).ok()?;
            }
        }
    };
    loops.retain(|(_, count)| *count > 1);
    loops.sort_unstable();
    if loops.first().is_some_and(|(stride, _)| *stride == 0) {
        return Some(false);
    }
    let is_block = matches!(inner, Node::Blocks { .. });
    let block = span;
    let nested = loops.iter().all(|(stride, count)| {
        let is_apart = *stride >= span;
        span = span.saturating_add(stride.saturating_mul(count.saturating_sub(1)));
        is_apart
    });
    match loops.as_slice() {
        _ if nested => Some(true),
        [_] if is_block => Some(false),
        [first, second] if is_block => Some(two_loops(block, *first, *second)),
        _ => None,
    }
}

/// Whether blocks of `bytes` bytes at i · s + j · t have no byte in common.
fn two_loops(bytes: usize, (s, most): (usize, usize), (t, others): (usize, usize)) -> bool {
    if s < bytes || t < bytes {
        return false;
    }
    // Two blocks overlap if |i · s − j · t| < bytes for a pair of distances other than (0, 0).
    let last = most.saturating_sub(1).saturating_mul(s);
    let is_clear = |j: usize| {
        let apart = j.saturating_mul(t);
        let i = apart / s;
        [i, i.saturating_add(1)].iter().all(|i| *i >= most || apart.abs_diff(i.saturating_mul(s)) >= bytes)
    };
    // More distant ones begin after the last block.
    let compared = (last.saturating_add(bytes) / t).saturating_add(1).min(others);
    compared <= COMPARED_BLOCKS && (1..compared).all(is_clear)
}

/// The answer for parts of a sequence, where the structure shows it.
pub(crate) fn of_parts(parts: &[Placed]) -> Option<bool> {
    let mut spans = Vec::with_capacity(parts.len());
    for part in parts {
        match of_node(&part.node) {
            Some(true) => spans.push(part.span()?),
            other => return other,
        }
    }
    if !spans.is_sorted() {
        spans.sort_unstable();
    }
    let apart = spans.windows(2).all(|pair| matches!(pair, [(_, end), (next, _)] if end <= next));
    apart.then_some(true)
}

/// Compares all blocks.
fn compare(all: &Placed) -> bool {
    let mut blocks = Vec::with_capacity(all.node.blocks());
    let _ = all.node.visit(all.at, 0, all.node.size(), &mut |run| {
        let offset = |i: usize| run.offset.wrapping_add(run.stride.wrapping_mul(i as isize));
        blocks.extend((0..run.count).map(|i| (offset(i), run.bytes)));
        ControlFlow::Continue(())
    });
    blocks.sort_unstable();
    blocks.windows(2).all(|pair| matches!(pair, [(at, bytes), (next, _)] if at.wrapping_add(*bytes as isize) <= *next))
}
