//! Constructors of datatypes: all of them list blocks of other datatypes at displacements (MPI 5.0, section 5.1).

use alloc::sync::Arc;
use core::ffi::c_int;
use core::sync::atomic::AtomicBool;

use parking_lot::Mutex;

use super::layout::Layout;
use super::{Datatype, Envelope};
use crate::abi::*;
use crate::attribute::Attributes;
use crate::error::Outcome;
use crate::handle::{Held, Object};

/// `length` elements of a datatype at a displacement in bytes.
#[derive(Clone, Debug)]
pub struct Block<'a> {
    /// The displacement.
    pub at: i64,
    /// Number of elements.
    pub length: i64,
    /// The datatype.
    pub datatype: &'a Held<Datatype>,
}

/// The least and the greatest of the values that were added.
#[derive(Clone, Copy)]
struct Bounds {
    lower: i64,
    upper: i64,
    is_empty: bool,
}

impl Bounds {
    const NONE: Self = Self { lower: 0, upper: 0, is_empty: true };

    fn add(&mut self, lower: i64, upper: i64) {
        if self.is_empty {
            *self = Self { lower, upper, is_empty: false };
        } else {
            self.lower = self.lower.min(lower);
            self.upper = self.upper.max(upper);
        }
    }

    /// Adds bounds at the first and the last of `length` places.
    fn add_block(&mut self, (lower, upper): (i64, i64), at: i64, length: i64, extent: i64) {
        let last = at + (length - 1) * extent;
        self.add(at + lower, at + upper);
        self.add(last + lower, last + upper);
    }
}

/// Bounds and lengths of a new datatype.
struct Measure {
    size: i64,
    bounds: Bounds,
    truth: Bounds,
    markers: [Bounds; 2],
}

impl Measure {
    const NEW: Self = Self { size: 0, bounds: Bounds::NONE, truth: Bounds::NONE, markers: [Bounds::NONE; 2] };

    fn add(&mut self, block: &Block<'_>) -> Outcome {
        let Block { at, length, datatype } = block;
        if *length == 0 {
            return Ok(());
        }
        let more = datatype.size.checked_mul(*length).ok_or(MPI_ERR_COUNT)?;
        self.size = self.size.checked_add(more).ok_or(MPI_ERR_COUNT)?;
        let upper = datatype.lower + datatype.extent;
        let of = (datatype.lower, upper);
        self.bounds.add_block(of, *at, *length, datatype.extent);
        if datatype.is_bounded.0 {
            self.markers[0].add_block(of, *at, *length, datatype.extent);
        }
        if datatype.is_bounded.1 {
            self.markers[1].add_block(of, *at, *length, datatype.extent);
        }
        if datatype.size > 0 {
            let truth = (datatype.true_lower, datatype.true_lower + datatype.true_extent);
            self.truth.add_block(truth, *at, *length, datatype.extent);
        }
        Ok(())
    }

    fn finish(self, layout: Layout, aligned: bool, envelope: Envelope) -> Held<Datatype> {
        let Self { size, bounds, truth, markers: [lower, upper] } = self;
        let is_bounded = (!lower.is_empty, !upper.is_empty);
        let least = if is_bounded.0 { lower.lower } else { bounds.lower };
        let mut greatest = if is_bounded.1 { upper.upper } else { bounds.upper };
        if aligned && !is_bounded.1 {
            let alignment = layout.alignment() as i64;
            let rest = (greatest - least).rem_euclid(alignment);
            greatest += if rest == 0 { 0 } else { alignment - rest };
        }
        let basic = envelope.types.first().and_then(|first| first.basic);
        let basic = basic.filter(|basic| envelope.types.iter().all(|one| one.basic.is_some_and(|one| one == *basic)));
        let extent = greatest - least;
        Object::new(Datatype {
            size,
            lower: least,
            extent,
            true_lower: truth.lower,
            true_extent: truth.upper - truth.lower,
            is_bounded,
            is_dense: size == extent && least == 0 && layout.is_dense(),
            layout,
            basic,
            envelope,
            is_committed: AtomicBool::new(false),
            attributes: Attributes::default(),
            name: Mutex::new(None),
        })
    }
}

fn contiguous_layout(datatype: &Datatype, count: i64) -> Layout {
    datatype.layout.repeat(count as usize, datatype.extent as isize)
}

/// A datatype of blocks in this order.
pub fn of_blocks(blocks: &[Block<'_>], aligned: bool, envelope: Envelope) -> Outcome<Held<Datatype>> {
    let mut measure = Measure::NEW;
    for block in blocks {
        if block.length < 0 {
            return Err(MPI_ERR_ARG);
        }
        measure.add(block)?;
    }
    let parts = blocks
        .iter()
        .filter(|block| block.length > 0 && block.datatype.size > 0)
        .map(|block| (block.at as isize, contiguous_layout(block.datatype, block.length)));
    Ok(measure.finish(Layout::list(parts), aligned, envelope))
}

/// `count` blocks of `length` elements, `stride` bytes apart.
pub fn vector(
    count: i64,
    length: i64,
    stride: i64,
    datatype: &Held<Datatype>,
    envelope: Envelope,
) -> Outcome<Held<Datatype>> {
    if count < 0 {
        return Err(MPI_ERR_COUNT);
    }
    if length < 0 {
        return Err(MPI_ERR_ARG);
    }
    let mut measure = Measure::NEW;
    if count > 0 {
        measure.add(&Block { at: 0, length, datatype })?;
        measure.add(&Block { at: (count - 1) * stride, length, datatype })?;
        let all = count.checked_mul(length).and_then(|elements| elements.checked_mul(datatype.size));
        measure.size = all.ok_or(MPI_ERR_COUNT)?;
    }
    let layout = if length == 0 || datatype.size == 0 {
        Layout::empty()
    } else {
        contiguous_layout(datatype, length).repeat(count as usize, stride as isize)
    };
    Ok(measure.finish(layout, false, envelope))
}

/// The same datatype with other bounds.
pub fn resized(lower: i64, extent: i64, datatype: &Held<Datatype>, envelope: Envelope) -> Held<Datatype> {
    Object::new(Datatype {
        size: datatype.size,
        lower,
        extent,
        true_lower: datatype.true_lower,
        true_extent: datatype.true_extent,
        is_bounded: (true, true),
        is_dense: datatype.size == extent && lower == 0 && datatype.layout.is_dense(),
        layout: datatype.layout.clone(),
        basic: datatype.basic,
        envelope,
        is_committed: AtomicBool::new(false),
        attributes: Attributes::default(),
        name: Mutex::new(None),
    })
}

/// A copy, with another envelope.
pub fn duplicate(datatype: &Held<Datatype>) -> Held<Datatype> {
    Object::new(Datatype {
        size: datatype.size,
        lower: datatype.lower,
        extent: datatype.extent,
        true_lower: datatype.true_lower,
        true_extent: datatype.true_extent,
        is_bounded: datatype.is_bounded,
        is_dense: datatype.is_dense,
        layout: datatype.layout.clone(),
        basic: datatype.basic,
        envelope: Envelope {
            combiner: MPI_COMBINER_DUP,
            integers: Vec::new(),
            addresses: Vec::new(),
            counts: Vec::new(),
            types: vec![Arc::clone(datatype)],
        },
        is_committed: AtomicBool::new(datatype.is_committed.load(core::sync::atomic::Ordering::Relaxed)),
        attributes: Attributes::default(),
        name: Mutex::new(None),
    })
}

fn plain(combiner: c_int, datatype: &Held<Datatype>) -> Envelope {
    Envelope {
        combiner,
        integers: Vec::new(),
        addresses: Vec::new(),
        counts: Vec::new(),
        types: vec![Arc::clone(datatype)],
    }
}

/// A part of an array of `sizes` elements: `subsizes` elements from `starts` on, in each dimension, the first of which
/// varies slowest if `is_c`.
pub fn subarray(
    [sizes, subsizes, starts]: [&[i64]; 3],
    is_c: bool,
    datatype: &Held<Datatype>,
    envelope: Envelope,
) -> Outcome<Held<Datatype>> {
    let dimensions: Vec<usize> = if is_c { (0..sizes.len()).rev().collect() } else { (0..sizes.len()).collect() };
    let mut inner = Arc::clone(datatype);
    let (mut stride, mut first) = (datatype.extent, 0);
    for dimension in dimensions {
        let (size, part, start) = (sizes[dimension], subsizes[dimension], starts[dimension]);
        if size < 1 || part < 1 || start < 0 || start + part > size {
            return Err(MPI_ERR_ARG);
        }
        inner = vector(part, 1, stride, &inner, plain(MPI_COMBINER_HVECTOR, &inner))?;
        first += start * stride;
        stride = stride.checked_mul(size).ok_or(MPI_ERR_COUNT)?;
    }
    let moved =
        of_blocks(&[Block { at: first, length: 1, datatype: &inner }], false, plain(MPI_COMBINER_HINDEXED, &inner))?;
    Ok(resized(0, stride, &moved, envelope))
}

/// How an array is distributed in one dimension.
#[derive(Clone, Copy, Debug)]
pub struct Distribution {
    /// Elements of the array.
    pub size: i64,
    /// The constant.
    pub kind: c_int,
    /// The argument.
    pub argument: i64,
    /// Processes.
    pub processes: i64,
    /// This process's coordinate.
    pub coordinate: i64,
}

/// This process's part of a distributed array.
pub fn darray(
    dimensions: &[Distribution],
    is_c: bool,
    datatype: &Held<Datatype>,
    envelope: Envelope,
) -> Outcome<Held<Datatype>> {
    let order: Vec<usize> = if is_c { (0..dimensions.len()).rev().collect() } else { (0..dimensions.len()).collect() };
    let mut inner = Arc::clone(datatype);
    let mut stride = datatype.extent;
    for dimension in order {
        inner = distribute(&dimensions[dimension], &inner, stride)?;
        stride = stride.checked_mul(dimensions[dimension].size).ok_or(MPI_ERR_COUNT)?;
    }
    Ok(resized(0, stride, &inner, envelope))
}

/// The elements of one dimension, `stride` bytes apart, that belong to a process.
fn distribute(of: &Distribution, inner: &Held<Datatype>, stride: i64) -> Outcome<Held<Datatype>> {
    let Distribution { size, kind, argument, processes, coordinate } = *of;
    if size < 1 || processes < 1 {
        return Err(MPI_ERR_ARG);
    }
    let block = match kind {
        _ if kind == MPI_DISTRIBUTE_NONE => {
            if processes != 1 {
                return Err(MPI_ERR_ARG);
            }
            size
        }
        _ if kind == MPI_DISTRIBUTE_BLOCK => {
            let block = if argument == i64::from(MPI_DISTRIBUTE_DFLT_DARG) {
                (size + processes - 1) / processes
            } else {
                argument
            };
            if block < 1 || block * processes < size {
                return Err(MPI_ERR_ARG);
            }
            block
        }
        _ if kind == MPI_DISTRIBUTE_CYCLIC => {
            if argument == i64::from(MPI_DISTRIBUTE_DFLT_DARG) {
                1
            } else if argument < 1 {
                return Err(MPI_ERR_ARG);
            } else {
                argument
            }
        }
        _ => return Err(MPI_ERR_ARG),
    };
    // A repeated element keeps its place even where its own bounds differ from the stride.
    let element = resized(0, stride, inner, plain(MPI_COMBINER_RESIZED, inner));
    let mut blocks = Vec::new();
    let mut at = coordinate * block;
    while at < size {
        blocks.push(Block { at: at * stride, length: block.min(size - at), datatype: &element });
        if kind != MPI_DISTRIBUTE_CYCLIC {
            break;
        }
        at += block * processes;
    }
    of_blocks(&blocks, false, plain(MPI_COMBINER_HINDEXED, inner))
}
