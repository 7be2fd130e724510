//! Symbolic contents of blocks: their origin and how they were combined, instead of bytes.

use crate::group::Extent;
use std::collections::HashMap;
use unisono_core::collective::CollectiveKind;
use unisono_core::ids::Rank;
use unisono_core::schedule::{BlockBuffer, BlockSpan, Fold, Spec};

/// A block's content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub(crate) enum Value {
    Undefined,
    /// Block and segment of a rank's contribution.
    Own(u32, u32, u32),
    /// Two combined contents, left and right: an index into `Combined`.
    Of(u32),
}

/// All combinations seen: equal indices are equal bits, whatever the operation.
#[derive(Default)]
pub(crate) struct Combined {
    pairs: Vec<(Value, Value)>,
    numbers: HashMap<(Value, Value), u32>,
}

impl Combined {
    pub(crate) fn combine(&mut self, left: Value, right: Value) -> Value {
        if left == Value::Undefined || right == Value::Undefined {
            return Value::Undefined;
        }
        let next = self.pairs.len() as u32;
        let number = *self.numbers.entry((left, right)).or_insert(next);
        if number == next {
            self.pairs.push((left, right));
        }
        Value::Of(number)
    }

    /// The contributions, from left to right.
    pub(crate) fn operands(&self, value: Value, to: &mut Vec<Value>) {
        match value {
            Value::Of(number) => {
                let (left, right) = self.pairs[number as usize];
                self.operands(left, to);
                self.operands(right, to);
            }
            value => to.push(value),
        }
    }
}

/// The buffers of a rank, and which blocks share memory.
#[derive(Clone, Copy)]
pub(crate) struct Buffers {
    verb: CollectiveKind,
    rank: u32,
    pub(crate) input: u32,
    pub(crate) output: u32,
    pub(crate) scratch: u32,
    /// Input and output share memory.
    shared: bool,
    pub(crate) segments: u32,
}

impl Buffers {
    pub(crate) fn new(of: &Extent) -> Self {
        let Extent { spec, blocks, scratch } = *of;
        let Spec { collective: verb, rank: Rank(rank), root, in_place, segments, .. } = spec;
        let root = Rank(rank) == root;
        let (input, output) = match verb {
            CollectiveKind::Barrier => (0, 0),
            CollectiveKind::Broadcast => (0, blocks),
            CollectiveKind::Reduce => (blocks, if root { blocks } else { 0 }),
            CollectiveKind::Allreduce | CollectiveKind::Scan | CollectiveKind::Exscan | CollectiveKind::Alltoall => {
                (blocks, blocks)
            }
            CollectiveKind::Gather => (1, if root { blocks } else { 0 }),
            CollectiveKind::Scatter => (if root { blocks } else { 0 }, 1),
            CollectiveKind::Allgather => (1, blocks),
            CollectiveKind::ReduceScatter => (blocks, 1),
        };
        let rooted = matches!(verb, CollectiveKind::Reduce | CollectiveKind::Gather | CollectiveKind::Scatter);
        let shared = in_place && (root || !rooted);
        Self { verb, rank, input, output, scratch, shared, segments }
    }

    /// Cells of memory of one segment: output, scratch, input.
    pub(crate) fn cells(&self) -> u32 {
        self.output + self.scratch + self.input
    }

    /// The cell of a block, or `None` beyond the buffer.
    pub(crate) fn cell(&self, place: BlockBuffer, block: u32) -> Option<u32> {
        let (at, blocks) = match place {
            BlockBuffer::Output => (0, self.output),
            BlockBuffer::Scratch => (self.output, self.scratch),
            BlockBuffer::Input => (self.output + self.scratch, self.input),
        };
        if block >= blocks {
            return None;
        }
        Some(match (self.shared, self.verb, place) {
            (true, CollectiveKind::Scatter, BlockBuffer::Output) => self.output + self.scratch + self.rank,
            (true, CollectiveKind::ReduceScatter, BlockBuffer::Output) if self.input == 1 => self.output + self.scratch,
            (true, CollectiveKind::Gather | CollectiveKind::Allgather, BlockBuffer::Input) => self.rank,
            (
                true,
                CollectiveKind::Reduce
                | CollectiveKind::Allreduce
                | CollectiveKind::Scan
                | CollectiveKind::Exscan
                | CollectiveKind::Alltoall,
                BlockBuffer::Input,
            ) => block,
            _ => at + block,
        })
    }

    /// As [`cell`](Self::cell), for a schedule. In place it finds a rank's own block among all blocks only: a caller has no
    /// other buffer.
    pub(crate) fn named_cell(&self, place: BlockBuffer, block: u32) -> Option<u32> {
        let is_own = matches!(
            (self.verb, place),
            (CollectiveKind::Gather | CollectiveKind::Allgather, BlockBuffer::Input)
                | (CollectiveKind::Scatter, BlockBuffer::Output)
        );
        if self.shared && is_own { None } else { self.cell(place, block) }
    }

    /// Cells of which all segments are overwritten by a write to `place`: the result of a reduce-scatter in place
    /// overlays the input.
    pub(crate) fn overlaid(&self, place: BlockBuffer) -> core::ops::Range<u32> {
        if self.shared && self.verb == CollectiveKind::ReduceScatter && place == BlockBuffer::Output && self.input > 1 {
            self.output + self.scratch..self.cells()
        } else {
            0..0
        }
    }

    /// Whether the buffer may be written.
    pub(crate) fn writable(&self, place: BlockBuffer) -> bool {
        place != BlockBuffer::Input
            || (self.shared && !matches!(self.verb, CollectiveKind::Scatter | CollectiveKind::ReduceScatter))
    }

    /// What determines a block's size if sizes vary: the rank that it belongs to.
    pub(crate) fn class(&self, place: BlockBuffer, block: u32, blocks: u32, in_place: bool) -> (u32, u32) {
        let block = if place == BlockBuffer::Scratch { block % blocks } else { block };
        match (self.verb, place) {
            (CollectiveKind::Alltoall, _) if in_place => (block.min(self.rank), block.max(self.rank)),
            (CollectiveKind::Alltoall, BlockBuffer::Output) => (block, self.rank),
            (CollectiveKind::Alltoall, _) => (self.rank, block),
            (CollectiveKind::Gather | CollectiveKind::Allgather, BlockBuffer::Input) => (self.rank, 0),
            (CollectiveKind::Scatter | CollectiveKind::ReduceScatter, BlockBuffer::Output) => (self.rank, 0),
            _ => (block, 0),
        }
    }
}

/// One rank's memory.
pub(crate) struct Memory {
    pub(crate) buffers: Buffers,
    cells: Vec<Value>,
}

impl Memory {
    pub(crate) fn new(of: &Extent) -> Self {
        let buffers = Buffers::new(of);
        let mut memory = Self { buffers, cells: vec![Value::Undefined; (buffers.cells() * buffers.segments) as usize] };
        let Spec { collective: verb, rank, root, segments, .. } = of.spec;
        let (place, blocks) = match verb {
            CollectiveKind::Broadcast if rank == root => (BlockBuffer::Output, buffers.output),
            _ => (BlockBuffer::Input, buffers.input),
        };
        for (block, segment) in (0..blocks).flat_map(|block| (0..segments).map(move |s| (block, s))) {
            let cell = buffers.cell(place, block).expect("a block of the buffer");
            memory.cells[(cell * segments + segment) as usize] = Value::Own(rank.0, block, segment);
        }
        memory
    }

    pub(crate) fn read(&self, place: BlockBuffer, block: u32, segment: u32) -> Option<Value> {
        let cell = self.buffers.cell(place, block)?;
        self.cells.get((cell * self.buffers.segments + segment) as usize).copied()
    }

    pub(crate) fn load(&self, span: BlockSpan) -> Result<Vec<Value>, String> {
        let read = |block| {
            self.buffers.named_cell(span.buffer, block)?;
            self.read(span.buffer, block, span.segment)
        };
        span.blocks.iter().map(|block| read(block).ok_or_else(|| format!("no block {block} in {span:?}"))).collect()
    }

    pub(crate) fn store(&mut self, span: BlockSpan, values: &[Value]) -> Result<(), String> {
        if span.blocks.len() as usize != values.len() {
            return Err(format!("{} blocks for {span:?}", values.len()));
        }
        for (block, value) in span.blocks.iter().zip(values) {
            let cell =
                self.buffers.named_cell(span.buffer, block).ok_or_else(|| format!("no block {block} in {span:?}"))?;
            if !self.buffers.writable(span.buffer) {
                return Err(format!("writes the input: {span:?}"));
            }
            self.cells[(cell * self.buffers.segments + span.segment) as usize] = *value;
            for cell in self.buffers.overlaid(span.buffer) {
                let segments = self.buffers.segments;
                self.cells[(cell * segments) as usize..((cell + 1) * segments) as usize].fill(Value::Undefined);
            }
        }
        Ok(())
    }

    pub(crate) fn reduce(
        &mut self,
        all: &mut Combined,
        from: BlockSpan,
        into: BlockSpan,
        fold: Fold,
    ) -> Result<(), String> {
        let pairs = self.load(from)?.into_iter().zip(self.load(into)?);
        let values: Vec<Value> = pairs
            .map(|(from, into)| match fold {
                Fold::Left => all.combine(from, into),
                Fold::Right => all.combine(into, from),
            })
            .collect();
        self.store(into, &values)
    }
}
