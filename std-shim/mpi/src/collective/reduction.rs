//! Collectives that combine data.

use core::ptr::NonNull;

use unisono::Rank;
use unisono::raw::{CollectiveKind, RawBlocks, RawCollective};

use super::{Call, Plan, Side, owned};
use crate::abi::*;
use crate::communicator::Comm;
use crate::datatype::Elements;
use crate::error::Outcome;
use crate::handle::Object;
use crate::operation::Operator;
use crate::request::Finish;

/// The elements of a buffer in the form in which they are combined.
pub(super) fn operands(operator: &Operator, elements: &Elements) -> (NonNull<[u8]>, Vec<u8>) {
    let is_as_is = match operator {
        Operator::Function(function) => function.is_natural,
        _ => true,
    };
    match elements.dense() {
        Some(bytes) if is_as_is => (bytes, Vec::new()),
        // SAFETY: the program promises that it is readable.
        _ => owned(operator.expand(unsafe { elements.packed() })),
    }
}

/// All elements of a side.
pub(super) fn all_of(side: &Side) -> Elements {
    match side {
        Side::Equal(elements, blocks) => Side::whole(elements, *blocks),
        Side::Varying(all) => {
            // Blocks of a reduction follow each other.
            let first = all.first().cloned().unwrap_or(Elements::none());
            Elements {
                count: all.iter().map(|elements| elements.count).sum(),
                bytes: all.iter().map(|elements| elements.bytes).sum(),
                ..first
            }
        }
        Side::Unused | Side::InPlace => Elements::none(),
    }
}

/// The own block of a reduce-scatter, which lies at the beginning of the buffer.
pub(super) fn own_block(side: &Side, own: usize) -> Elements {
    let start = side.block(0).start;
    match side {
        Side::Varying(_) => Elements { start, ..side.block(own) },
        _ => side.block(0),
    }
}

pub(super) fn plan(call: &Call, kind: CollectiveKind, comm: &Object<Comm>) -> Outcome<Plan> {
    let Some((operation, datatype)) = &call.operation else { return Err(MPI_ERR_OP) };
    let operator = Operator::new(operation, datatype)?;
    let root = comm.root(call.root)?;
    let own = comm.rank as usize;
    let is_receiving = kind != CollectiveKind::Reduce || comm.rank == root;
    let is_in_place = matches!(call.send, Side::InPlace);
    // In a reduce-scatter the receive buffer states the lengths of all blocks.
    let blocks: Option<Vec<usize>> = match &call.receive {
        Side::Varying(all) => Some(all.iter().map(|elements| elements.count as usize).collect()),
        _ => None,
    };
    let source = if is_in_place { all_of(&call.receive) } else { all_of(&call.send) };
    let target = match (kind, is_receiving) {
        (_, false) => Elements::none(),
        (CollectiveKind::ReduceScatter, _) => own_block(&call.receive, own),
        _ => all_of(&call.receive),
    };
    let grain = operator.grain();
    let total = source.count as usize * grain;
    // A reduction of nothing does nothing, also where the buffers do not exist.
    let (input, mut kept) = operands(&operator, &source);
    let single = match (&blocks, kind) {
        (Some(blocks), _) => blocks.get(own).copied().unwrap_or(0) * grain,
        (None, CollectiveKind::ReduceScatter) => total / comm.size.max(1) as usize,
        _ => total,
    };
    let is_dense = target.dense().is_some() && !matches!(&operator, Operator::Function(f) if !f.is_natural);
    let is_shared = is_in_place && kind == CollectiveKind::Allreduce && kept.is_empty() && is_dense;
    let mut input = input;
    if is_in_place && !is_shared && kept.is_empty() {
        // SAFETY: the program promises that it is readable.
        (input, kept) = owned(unsafe { input.as_ref() }.to_vec());
    }
    let (output, result) = if !is_receiving {
        (super::empty(), Vec::new())
    } else if let (true, Some(bytes)) = (is_dense, target.dense()) {
        // The result is as long as a block, whatever follows it in place.
        (NonNull::slice_from_raw_parts(bytes.cast(), single.min(bytes.len())), Vec::new())
    } else {
        // What is not received stays as it is.
        // SAFETY: the program promises that it is readable.
        owned(operator.expand(unsafe { target.packed() }))
    };
    let tables = blocks.as_ref().map(|blocks| {
        let bytes: Vec<usize> = blocks.iter().map(|count| count * grain).collect();
        let at = bytes
            .iter()
            .scan(0, |sum, bytes| {
                let at = *sum;
                *sum += bytes;
                Some(at)
            })
            .collect();
        (Some(RawBlocks { bytes, at }), None, single)
    });
    let mean = if tables.is_some() { total / comm.size.max(1) as usize } else { single };
    let raw = RawCollective {
        collective: kind,
        root: Rank(root),
        bytes: mean,
        input,
        output,
        in_place: is_shared,
        blocks: tables,
        grain,
        order: operator.order(),
        reduction_id: operator.digest(),
    };
    let finish: Option<Finish> = if kept.is_empty() && result.is_empty() {
        None
    } else {
        let operator = operator.again();
        Some(Box::new(move || {
            drop(kept);
            if !result.is_empty() {
                // SAFETY: the program promised that it is writable until the end.
                unsafe { target.unpack(&operator.compress(&result)) };
            }
            Ok(())
        }))
    };
    Ok(Plan::Library(raw, Some(operator), finish))
}
