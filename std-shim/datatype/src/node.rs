//! The flattened form of a datatype: blocks, loops and sequences.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;
use core::sync::atomic::AtomicU8;

use crate::error::DatatypeError;
use crate::error::DatatypeError::TooLarge;

/// Longest sequence that is merged into the one around it.
const INLINE_PARTS: usize = 16;

/// Equal blocks of contiguous bytes at equal distances.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Run {
    /// Offset of the first block in the buffer.
    pub offset: isize,
    /// Bytes of a block.
    pub bytes: usize,
    /// Number of blocks.
    pub count: usize,
    /// Bytes from one block to the next.
    pub stride: isize,
}

/// Every node names at least one byte. Each level but the last has two children or more, so that there are at most as
/// many levels as a size has bits.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Blocks { bytes: usize, count: usize, stride: isize },
    Loop { body: Arc<Self>, count: usize, stride: isize },
    Sequence(Arc<Sequence>),
}

/// A node, and where it is.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) at: isize,
    pub(crate) node: Node,
}

#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) parts: Box<[Placed]>,
    /// Bytes of all parts up to each.
    ends: Box<[usize]>,
    pub(crate) low: isize,
    pub(crate) high: isize,
    /// Whether no byte is named twice, once that is known.
    pub(crate) disjoint: AtomicU8,
}

impl Node {
    /// Number of bytes that it names.
    pub(crate) fn size(&self) -> usize {
        match self {
            // Checked when they were made.
            Self::Blocks { bytes, count, .. } => bytes.wrapping_mul(*count),
            Self::Loop { body, count, .. } => body.size().wrapping_mul(*count),
            Self::Sequence(sequence) => sequence.ends.last().copied().unwrap_or(0),
        }
    }

    /// Offset of its first byte, and offset after its last one.
    pub(crate) fn span(&self) -> Option<(isize, isize)> {
        let (low, high, count, stride) = match self {
            Self::Blocks { bytes, count, stride } => (0, isize::try_from(*bytes).ok()?, *count, *stride),
            Self::Loop { body, count, stride } => {
                let (low, high) = body.span()?;
                (low, high, *count, *stride)
            }
            Self::Sequence(sequence) => return Some((sequence.low, sequence.high)),
        };
        let last = isize::try_from(count.saturating_sub(1)).ok()?.checked_mul(stride)?;
        Some((low.checked_add(last.min(0))?, high.checked_add(last.max(0))?))
    }

    /// Number of contiguous blocks.
    pub(crate) fn blocks(&self) -> usize {
        match self {
            Self::Blocks { count, .. } => *count,
            Self::Loop { body, count, .. } => body.blocks().saturating_mul(*count),
            Self::Sequence(sequence) => {
                sequence.parts.iter().fold(0, |sum, part| part.node.blocks().saturating_add(sum))
            }
        }
    }

    /// Reports the bytes from the `skip`th on, `take` in all, as runs of blocks in order; they are within its size.
    pub(crate) fn visit(
        &self,
        at: isize,
        skip: usize,
        take: usize,
        report: &mut impl FnMut(Run) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        // No offset overflows: the span of the node, moved to its place, was checked when it was built.
        let shifted = |at: isize, i: usize, stride: isize| at.wrapping_add(stride.wrapping_mul(i as isize));
        let mut left = take;
        match self {
            Self::Blocks { bytes, count: 1, .. } => {
                let bytes = left.min(bytes.saturating_sub(skip));
                return report(Run { offset: at.wrapping_add(skip as isize), bytes, count: 1, stride: 0 });
            }
            Self::Blocks { bytes, stride, .. } => {
                let (mut block, within) = (skip / bytes, skip % bytes);
                if within > 0 {
                    let bytes = left.min(bytes.saturating_sub(within));
                    let offset = shifted(at, block, *stride).wrapping_add(within as isize);
                    report(Run { offset, bytes, count: 1, stride: 0 })?;
                    left = left.saturating_sub(bytes);
                    block = block.wrapping_add(1);
                }
                let whole = left / bytes;
                if whole > 0 {
                    let offset = shifted(at, block, *stride);
                    report(Run { offset, bytes: *bytes, count: whole, stride: *stride })?;
                    block = block.wrapping_add(whole);
                }
                match left % bytes {
                    0 => {}
                    rest => report(Run { offset: shifted(at, block, *stride), bytes: rest, count: 1, stride: 0 })?,
                }
            }
            Self::Loop { body, stride, .. } => {
                let unit = body.size();
                let (mut i, mut within) = (skip / unit, skip % unit);
                while left > 0 {
                    let bytes = left.min(unit.saturating_sub(within));
                    body.visit(shifted(at, i, *stride), within, bytes, report)?;
                    left = left.saturating_sub(bytes);
                    (i, within) = (i.wrapping_add(1), 0);
                }
            }
            Self::Sequence(sequence) => {
                let first = sequence.ends.partition_point(|end| *end <= skip);
                let before = first.checked_sub(1).and_then(|i| sequence.ends.get(i)).copied().unwrap_or(0);
                let mut within = skip.saturating_sub(before);
                for part in sequence.parts.iter().skip(first) {
                    if left == 0 {
                        break;
                    }
                    let bytes = left.min(part.node.size().saturating_sub(within));
                    part.node.visit(at.wrapping_add(part.at), within, bytes, report)?;
                    left = left.saturating_sub(bytes);
                    within = 0;
                }
            }
        }
        ControlFlow::Continue(())
    }
}

impl Placed {
    /// A block of `bytes` bytes, at least one.
    pub(crate) const fn block(bytes: usize) -> Self {
        Self { at: 0, node: Node::Blocks { bytes, count: 1, stride: 0 } }
    }

    /// The same, `offset` bytes further.
    pub(crate) fn shifted(&self, offset: isize) -> Result<Self, DatatypeError> {
        let placed = Self { at: self.at.checked_add(offset).ok_or(TooLarge)?, node: self.node.clone() };
        placed.checked()
    }

    /// Checks that it lies within the address space.
    pub(crate) fn checked(self) -> Result<Self, DatatypeError> {
        self.span().map(|_| ()).ok_or(TooLarge)?;
        Ok(self)
    }

    /// Offset of its first byte, and offset after its last one.
    pub(crate) fn span(&self) -> Option<(isize, isize)> {
        let (low, high) = self.node.span()?;
        high.checked_sub(low)?;
        Some((low.checked_add(self.at)?, high.checked_add(self.at)?))
    }

    /// `count` of these, at least one, `stride` bytes apart.
    pub(crate) fn repeated(&self, count: usize, stride: isize) -> Result<Self, DatatypeError> {
        if count == 1 {
            return Ok(self.clone());
        }
        self.node.size().checked_mul(count).filter(|size| isize::try_from(*size).is_ok()).ok_or(TooLarge)?;
        let node = match &self.node {
            Node::Blocks { bytes, count: 1, .. } if isize::try_from(*bytes) == Ok(stride) => {
                Node::Blocks { bytes: bytes.wrapping_mul(count), count: 1, stride: 0 }
            }
            Node::Blocks { bytes, count: 1, .. } => Node::Blocks { bytes: *bytes, count, stride },
            Node::Blocks { bytes, count: inner, stride: step }
                if isize::try_from(*inner).ok().and_then(|inner| inner.checked_mul(*step)) == Some(stride) =>
            {
                Node::Blocks { bytes: *bytes, count: inner.wrapping_mul(count), stride: *step }
            }
            Node::Loop { body, count: inner, stride: step }
                if isize::try_from(*inner).ok().and_then(|inner| inner.checked_mul(*step)) == Some(stride) =>
            {
                Node::Loop { body: Arc::clone(body), count: inner.wrapping_mul(count), stride: *step }
            }
            node => Node::Loop { body: Arc::new(node.clone()), count, stride },
        };
        Self { at: self.at, node }.checked()
    }

    /// The bytes of this one and then those of the other one, if that is one block.
    fn joined(&self, next: &Self) -> Option<Self> {
        let Node::Blocks { bytes, count: 1, .. } = self.node else { return None };
        let Node::Blocks { bytes: more, count: 1, .. } = next.node else { return None };
        if isize::try_from(bytes).ok() != next.at.checked_sub(self.at) {
            return None;
        }
        Some(Self { at: self.at, node: Node::Blocks { bytes: bytes.checked_add(more)?, count: 1, stride: 0 } })
    }

    /// The bytes of this one and then those of the other one, if those are equal blocks at equal distances.
    fn continued(&self, next: &Self) -> Option<Self> {
        let Node::Blocks { bytes, count, stride } = self.node else { return None };
        let Node::Blocks { bytes: more, count: next_count, stride: next_stride } = next.node else { return None };
        let apart = next.at.checked_sub(self.at)?;
        // Known from whichever has several blocks, else from the two.
        let step = if count > 1 { stride } else { apart };
        let continues = isize::try_from(count).ok()?.checked_mul(step)? == apart;
        if bytes != more || !continues || next_count > 1 && next_stride != step {
            return None;
        }
        Some(Self { at: self.at, node: Node::Blocks { bytes, count: count.checked_add(next_count)?, stride: step } })
    }

    /// The parts one after the other; `None` if there are none.
    pub(crate) fn sequence(parts: impl Iterator<Item = Self>) -> Result<Option<Self>, DatatypeError> {
        let mut single: Vec<Self> = Vec::new();
        for part in parts {
            match &part.node {
                Node::Sequence(inner) if inner.parts.len() <= INLINE_PARTS => {
                    for inner in &inner.parts {
                        push(&mut single, inner.shifted(part.at)?, Self::joined);
                    }
                }
                _ => push(&mut single, part, Self::joined),
            }
        }
        let mut all = Vec::new();
        single.into_iter().for_each(|part| push(&mut all, part, Self::continued));
        if all.len() <= 1 {
            return all.pop().map(Self::checked).transpose();
        }
        let mut sum: usize = 0;
        let mut ends = Vec::with_capacity(all.len());
        let (mut low, mut high) = (isize::MAX, isize::MIN);
        for part in &all {
            sum = sum.checked_add(part.node.size()).ok_or(TooLarge)?;
            ends.push(sum);
            let (first, end) = part.span().ok_or(TooLarge)?;
            (low, high) = (low.min(first), high.max(end));
        }
        isize::try_from(sum).map_err(|_| TooLarge)?;
        let disjoint = AtomicU8::new(crate::disjoint::of_parts(&all).map_or(0, crate::disjoint::code));
        let sequence = Sequence { parts: all.into(), ends: ends.into(), low, high, disjoint };
        let placed = Self { at: 0, node: Node::Sequence(Arc::new(sequence)) };
        placed.checked().map(Some)
    }
}

/// Appends a part, or merges it with the last one.
fn push(all: &mut Vec<Placed>, part: Placed, merge: fn(&Placed, &Placed) -> Option<Placed>) {
    match all.last_mut().and_then(|last| Some((merge(last, &part)?, last))) {
        Some((merged, last)) => *last = merged,
        None => all.push(part),
    }
}
