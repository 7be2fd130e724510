//! The mapping of blocks to bytes.

use super::blocks::Runs;
use super::radix::remainder;
use super::{BlockBuffer, BlockSpan};

/// The division of a buffer into blocks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BlockMap<'m> {
    /// Consecutive blocks of `block` bytes, `total` bytes overall: the last ones may be shorter, or empty.
    Uniform {
        /// Bytes of a block.
        block: usize,
        /// Bytes of all blocks.
        total: usize,
    },
    /// Blocks of any size at any offset.
    Table {
        /// Bytes of each block. A block without an entry is empty.
        bytes: &'m [usize],
        /// Offset of each block.
        at: &'m [usize],
    },
    /// Blocks of any size at any offset, in rows: some columns of a matrix.
    Rows {
        /// Bytes of each block. A block without an entry is empty.
        bytes: &'m [usize],
        /// Offset of each block.
        at: &'m [usize],
        /// Bytes of a row; the last one of a block may be shorter.
        row: usize,
        /// Distance from one row's start to the next one's.
        stride: usize,
    },
}

/// Rows of `row` bytes that begin `stride` bytes apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Rows {
    row: usize,
    stride: usize,
}

impl Rows {
    /// The offset of byte `at`, and how many bytes of its row remain from there.
    fn locate(self, at: usize) -> (usize, usize) {
        let (row, within) = (at.checked_div(self.row).unwrap_or(0), at.checked_rem(self.row).unwrap_or(0));
        (row.saturating_mul(self.stride).saturating_add(within), self.row.saturating_sub(within))
    }
}

impl BlockMap<'_> {
    /// A vector of `total` bytes in `blocks` blocks, cut between elements of `grain` bytes only.
    pub fn vector(total: usize, blocks: u32, grain: usize) -> Self {
        let block = part_size(total, blocks as usize, grain);
        Self::Uniform { block, total }
    }

    /// `blocks` blocks of `block` bytes.
    pub const fn equal(block: usize, blocks: u32) -> Self {
        Self::Uniform { block, total: block.saturating_mul(blocks as usize) }
    }

    /// The offset of block `b`, and its length.
    fn block(&self, b: u32) -> (usize, usize) {
        let b = b as usize;
        match *self {
            Self::Uniform { block, total } => {
                let at = b.saturating_mul(block).min(total);
                (at, block.min(total.saturating_sub(at)))
            }
            Self::Table { bytes, at } | Self::Rows { bytes, at, .. } => match (at.get(b), bytes.get(b)) {
                (Some(at), Some(bytes)) => (*at, *bytes),
                _ => (0, 0),
            },
        }
    }

    /// The offset and length of `blocks` blocks from `first` on, if they are contiguous whatever their sizes.
    fn run(&self, first: u32, blocks: u32) -> Option<(usize, usize)> {
        let Self::Uniform { block, total } = *self else { return None };
        let at = (first as usize).saturating_mul(block).min(total);
        let bytes = (blocks as usize).saturating_mul(block);
        Some((at, bytes.min(total.saturating_sub(at))))
    }

    /// The rows of each block.
    const fn rows(&self) -> Option<Rows> {
        match *self {
            Self::Rows { row, stride, .. } => Some(Rows { row, stride }),
            Self::Uniform { .. } | Self::Table { .. } => None,
        }
    }

    fn largest(&self) -> usize {
        match *self {
            Self::Uniform { block, total } => block.min(total),
            Self::Table { bytes, .. } | Self::Rows { bytes, .. } => bytes.iter().copied().max().unwrap_or(0),
        }
    }
}

/// Bytes of each of `parts` parts of `total` in whole `grain`s; the last ones may be shorter.
fn part_size(total: usize, parts: usize, grain: usize) -> usize {
    let grain = grain.max(1);
    let grains = total.div_ceil(grain);
    let each = grains.checked_add(parts.saturating_sub(1)).and_then(|sum| sum.checked_div(parts)).unwrap_or(grains);
    each.saturating_mul(grain)
}

/// Contiguous bytes of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ByteRange {
    /// The buffer.
    pub buffer: BlockBuffer,
    /// Bytes from its start.
    pub offset: usize,
    /// Length, not 0.
    pub bytes: usize,
}

impl ByteRange {
    /// The rest after its first `bytes` bytes, if any.
    fn after(self, bytes: usize) -> Option<Self> {
        let left = self.bytes.checked_sub(bytes).filter(|left| *left != 0)?;
        Some(Self { offset: self.offset.saturating_add(bytes), bytes: left, ..self })
    }
}

/// The layout of a collective's blocks at one rank.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Layout<'m> {
    input: BlockMap<'m>,
    output: BlockMap<'m>,
    /// Scratch: block x has the size of block x modulo `blocks`, in slots of the largest block's size.
    held: BlockMap<'m>,
    blocks: u32,
    pitch: usize,
    grain: usize,
    segments: u32,
}

impl<'m> Layout<'m> {
    /// A layout with the given input and output; scratch holds blocks of the collective's whole buffer `held`, which
    /// has `blocks` of them ([`Plan::blocks`](super::Plan::blocks)); segments are cut between elements of `grain`
    /// bytes.
    pub fn new(
        input: BlockMap<'m>,
        output: BlockMap<'m>,
        held: BlockMap<'m>,
        blocks: u32,
        grain: usize,
        segments: u32,
    ) -> Self {
        Self { input, output, held, blocks, pitch: held.largest(), grain, segments }
    }

    /// One vector of `total` bytes: broadcast, reduce, allreduce, scan.
    pub fn vector(total: usize, blocks: u32, grain: usize, segments: u32) -> Self {
        let cut = BlockMap::vector(total, blocks, grain);
        Self::new(cut, cut, cut, blocks, grain, segments)
    }

    /// Bytes of `blocks` blocks of scratch.
    pub const fn scratch_bytes(&self, blocks: u32) -> usize {
        self.pitch.saturating_mul(blocks as usize)
    }

    /// The bytes of a span in the order of its blocks, without empty pieces. Sender and receiver of a message get
    /// pieces of the same total length, but not the same pieces.
    pub fn pieces(&self, span: BlockSpan) -> ByteRanges<'m> {
        ByteRanges { layout: *self, span, run: (0, 0), runs: span.blocks.runs(), rows: (0, 0, 0) }
    }

    /// The bytes of a copy or a reduction: pieces of two spans, cut where either ends, each pair of the same length.
    pub fn pairs(&self, from: BlockSpan, into: BlockSpan) -> Pairs<'m> {
        Pairs { from: self.pieces(from), into: self.pieces(into), left: [None; 2] }
    }

    /// The offset of block `b` of `place`, and its length.
    fn block(&self, place: BlockBuffer, b: u32) -> (usize, usize) {
        match place {
            BlockBuffer::Input => self.input.block(b),
            BlockBuffer::Output => self.output.block(b),
            BlockBuffer::Scratch => {
                (self.pitch.saturating_mul(b as usize), self.held.block(remainder(b, self.blocks)).1)
            }
        }
    }

    /// The offset and length of `blocks` blocks of `place` from `first` on, if they are contiguous.
    fn run(&self, place: BlockBuffer, first: u32, blocks: u32) -> Option<(usize, usize)> {
        match (place, self.held) {
            _ if self.segments != 1 => None,
            (BlockBuffer::Input, _) => self.input.run(first, blocks),
            (BlockBuffer::Output, _) => self.output.run(first, blocks),
            (BlockBuffer::Scratch, BlockMap::Uniform { total, .. }) if total == self.scratch_bytes(self.blocks) => {
                Some((self.scratch_bytes(first), self.scratch_bytes(blocks)))
            }
            _ => None,
        }
    }

    const fn rows(&self, place: BlockBuffer) -> Option<Rows> {
        match place {
            BlockBuffer::Input => self.input.rows(),
            BlockBuffer::Output => self.output.rows(),
            BlockBuffer::Scratch => None,
        }
    }

    /// Segment `segment` of a block.
    fn segment(&self, (at, bytes): (usize, usize), segment: u32) -> (usize, usize) {
        let each = part_size(bytes, self.segments as usize, self.grain);
        let from = each.saturating_mul(segment as usize).min(bytes);
        (at.saturating_add(from), each.min(bytes.saturating_sub(from)))
    }
}

/// The pieces of a span.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ByteRanges<'m> {
    layout: Layout<'m>,
    span: BlockSpan,
    /// The rest of the current run: its first block, and the number of blocks.
    run: (u32, u32),
    runs: Runs,
    /// In rows: the block's offset, the bytes before the rest, and the remaining bytes.
    rows: (usize, usize, usize),
}

impl ByteRanges<'_> {
    /// The offset and length, perhaps 0, of the next run, block or row.
    fn next_part(&mut self) -> Option<(usize, usize)> {
        if self.rows.2 != 0 {
            return Some(self.next_row());
        }
        if self.run.1 == 0 {
            self.run = self.runs.next()?;
        }
        let ((first, blocks), place) = (self.run, self.span.buffer);
        let (at, from, bytes) = match self.layout.run(place, first, blocks) {
            Some((at, bytes)) => {
                self.run.1 = 0;
                (at, 0, bytes)
            }
            None => {
                self.run = (first.wrapping_add(1), blocks.wrapping_sub(1));
                let (at, bytes) = self.layout.block(place, first);
                let (from, bytes) = self.layout.segment((0, bytes), self.span.segment);
                (at, from, bytes)
            }
        };
        match self.layout.rows(place) {
            Some(_) if bytes != 0 => {
                self.rows = (at, from, bytes);
                Some(self.next_row())
            }
            _ => Some((at.saturating_add(from), bytes)),
        }
    }

    /// The offset and length of the rest of a row.
    fn next_row(&mut self) -> (usize, usize) {
        let (at, from, left) = self.rows;
        let (offset, row) = match self.layout.rows(self.span.buffer) {
            Some(rows) => rows.locate(from),
            None => (from, left),
        };
        // Rows without bytes would never end.
        let bytes = row.clamp(1, left.max(1));
        self.rows = (at, from.saturating_add(bytes), left.saturating_sub(bytes));
        (at.saturating_add(offset), bytes)
    }
}

impl Iterator for ByteRanges<'_> {
    type Item = ByteRange;

    fn next(&mut self) -> Option<ByteRange> {
        let (offset, mut bytes) = loop {
            let part = self.next_part()?;
            if part.1 != 0 {
                break part;
            }
        };
        // Contiguous parts are merged into one piece.
        loop {
            let mut after = *self;
            match after.next_part() {
                Some((at, more)) if more == 0 || at == offset.saturating_add(bytes) => {
                    bytes = bytes.saturating_add(more);
                    *self = after;
                }
                _ => return Some(ByteRange { buffer: self.span.buffer, offset, bytes }),
            }
        }
    }
}

/// The pieces of two spans in parallel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pairs<'m> {
    from: ByteRanges<'m>,
    into: ByteRanges<'m>,
    /// The rest of the current pieces.
    left: [Option<ByteRange>; 2],
}

impl Iterator for Pairs<'_> {
    type Item = (ByteRange, ByteRange);

    fn next(&mut self) -> Option<(ByteRange, ByteRange)> {
        let [from, into] = self.left;
        let (from, into) = (from.or_else(|| self.from.next())?, into.or_else(|| self.into.next())?);
        let bytes = from.bytes.min(into.bytes);
        self.left = [from.after(bytes), into.after(bytes)];
        Some((ByteRange { bytes, ..from }, ByteRange { bytes, ..into }))
    }
}

#[cfg(test)]
mod tests {
    extern crate alloc;
    use super::{BlockMap, ByteRange, Layout};
    use crate::schedule::{BlockBuffer, BlockSpan, Blocks};
    use alloc::vec::Vec;

    fn pieces(layout: &Layout<'_>, place: BlockBuffer, blocks: Blocks, segment: u32) -> Vec<(usize, usize)> {
        let span = BlockSpan { buffer: place, blocks, segment };
        layout.pieces(span).map(|ByteRange { offset, bytes, .. }| (offset, bytes)).collect()
    }

    #[test]
    fn schedule_blocks_of_a_vector_end_between_elements_and_the_last_is_short() {
        let layout = Layout::vector(44, 4, 8, 1);
        assert_eq!(pieces(&layout, BlockBuffer::Input, Blocks::range(0, 4), 0), [(0, 44)]);
        assert_eq!(pieces(&layout, BlockBuffer::Input, Blocks::one(2), 0), [(32, 12)]);
        assert_eq!(pieces(&layout, BlockBuffer::Input, Blocks::one(3), 0), []);
        assert_eq!(pieces(&layout, BlockBuffer::Output, Blocks::wrapped(2, 3, 4), 0), [(32, 12), (0, 16)]);
        assert_eq!(pieces(&layout, BlockBuffer::Scratch, Blocks::range(5, 2), 0), [(80, 28)]);
        assert_eq!(layout.scratch_bytes(8), 128);
    }

    #[test]
    fn schedule_segments_cover_every_block_once() {
        for (total, blocks, grain, segments) in [(44, 3, 4, 3), (7, 5, 1, 2), (0, 2, 8, 3), (24, 1, 8, 5)] {
            let layout = Layout::vector(total, blocks, grain, segments);
            let mut seen = alloc::vec![0; total];
            for (at, bytes) in
                (0..segments).flat_map(|s| pieces(&layout, BlockBuffer::Output, Blocks::range(0, blocks), s))
            {
                assert!(at % grain == 0, "a segment of {total} begins within an element: {at}");
                seen[at..at + bytes].iter_mut().for_each(|byte| *byte += 1);
            }
            assert!(seen.iter().all(|times| *times == 1));
        }
    }

    #[test]
    fn schedule_copies_pair_pieces_of_one_length() {
        let layout = Layout::vector(44, 4, 8, 1);
        let span = |place, blocks| BlockSpan { buffer: place, blocks, segment: 0 };
        let swapped = Blocks { first: 1, run: 1, stride: 3, count: 2, last: 1, modulus: 4 };
        let pairs = layout.pairs(span(BlockBuffer::Input, Blocks::range(0, 2)), span(BlockBuffer::Scratch, swapped));
        let pairs: Vec<_> = pairs.map(|(from, into)| (from.offset, into.offset, from.bytes, into.bytes)).collect();
        assert_eq!(pairs, [(0, 16, 16, 16), (16, 0, 16, 16)]);
    }

    #[test]
    fn schedule_blocks_lie_in_rows() {
        // A matrix of 3 rows of 10 bytes: columns 1 to 4, none, and columns 5 to 9 of the first two rows.
        let (bytes, at) = ([12, 0, 10], [1, 0, 5]);
        let rows = |stride, segments| {
            let columns = BlockMap::Rows { bytes: &bytes, at: &at, row: 4, stride };
            Layout::new(columns, BlockMap::equal(12, 1), columns, 3, 2, segments)
        };
        let layout = rows(10, 1);
        assert_eq!(pieces(&layout, BlockBuffer::Input, Blocks::one(0), 0), [(1, 4), (11, 4), (21, 4)]);
        let both = [(1, 4), (11, 4), (21, 4), (5, 4), (15, 4), (25, 2)];
        assert_eq!(pieces(&layout, BlockBuffer::Input, Blocks::range(0, 3), 0), both);
        assert_eq!(pieces(&layout, BlockBuffer::Scratch, Blocks::range(0, 3), 0), [(0, 12), (24, 10)]);
        assert_eq!(pieces(&rows(4, 1), BlockBuffer::Input, Blocks::one(0), 0), [(1, 12)], "without gaps");
        let halves = [0, 1].map(|segment| pieces(&rows(10, 2), BlockBuffer::Input, Blocks::one(0), segment));
        assert_eq!(halves, [alloc::vec![(1, 4), (11, 2)], alloc::vec![(13, 2), (21, 4)]]);
        let span = |place| BlockSpan { buffer: place, blocks: Blocks::one(0), segment: 0 };
        let pairs: Vec<_> = layout.pairs(span(BlockBuffer::Input), span(BlockBuffer::Output)).collect();
        let pairs = pairs.into_iter().map(|(from, into)| (from.offset, into.offset, from.bytes));
        assert!(pairs.eq([(1, 0, 4), (11, 4, 4), (21, 8, 4)]));
        let none = BlockMap::Rows { bytes: &bytes, at: &at, row: 0, stride: 0 };
        let layout = Layout::new(none, none, none, 3, 1, 1);
        assert_eq!(layout.pieces(span(BlockBuffer::Input)).count(), 12, "a malformed layout ends");
    }

    #[test]
    fn schedule_tables_place_blocks_anywhere() {
        let (bytes, at) = ([3, 0, 5], [10, 0, 13]);
        let table = BlockMap::Table { bytes: &bytes, at: &at };
        let own = BlockMap::equal(5, 1);
        let layout = Layout::new(own, table, table, 3, 1, 1);
        assert_eq!(pieces(&layout, BlockBuffer::Output, Blocks::range(0, 3), 0), [(10, 8)]);
        assert_eq!(pieces(&layout, BlockBuffer::Output, Blocks::wrapped(2, 2, 3), 0), [(13, 5), (10, 3)]);
        assert_eq!(pieces(&layout, BlockBuffer::Scratch, Blocks::range(3, 3), 0), [(15, 3), (25, 5)]);
        assert_eq!(pieces(&layout, BlockBuffer::Output, Blocks::one(7), 0), []);
    }
}
