//! Memory of a rank: what a seed gives, what copies make of it, and its hash. The interpreter computes the same in
//! `memory.h`.

use alloc::rc::Rc;

use super::basic::Basic;
use super::datatype::Datatype;

/// Bytes before and after the data of a buffer, which no call may touch.
const MARGIN: usize = 16;

/// A number that looks random.
pub(super) const fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// What a buffer is filled with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fill {
    /// Below 2⁶³.
    pub(super) seed: u64,
    /// Small elements of this type; random bytes without one.
    pub(super) basic: Option<Basic>,
}

impl Fill {
    /// The memory.
    pub(super) fn memory(self, bytes: usize) -> Vec<u8> {
        let mut memory = vec![0; bytes];
        let each = self.basic.map_or(8, |basic| basic.extent);
        for (i, at) in (1..).zip(memory.chunks_mut(each)) {
            let random = mix(self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(i)));
            match self.basic {
                Some(basic) => basic.write_small(at, random),
                None => at.copy_from_slice(&random.to_le_bytes()[..at.len()]),
            }
        }
        memory
    }

    /// The number of the basic type, as the interpreter reads it.
    pub(super) fn kind(self) -> isize {
        self.basic.map_or(-1, |basic| basic.id as isize)
    }
}

/// A hash of memory.
pub(super) fn hash(memory: &[u8]) -> u64 {
    memory.chunks(8).fold(memory.len() as u64, |sum, at| {
        let mut word = [0; 8];
        word[..at.len()].copy_from_slice(at);
        (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ sum >> 29
    })
}

/// Elements of a datatype in a buffer.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// Bytes from the buffer's origin.
    pub(super) at: isize,
    pub(super) count: usize,
    pub(super) datatype: Rc<Datatype>,
}

impl Block {
    /// One block, at the origin.
    pub(super) fn first(count: usize, datatype: &Rc<Datatype>) -> Self {
        Self { at: 0, count, datatype: Rc::clone(datatype) }
    }

    /// The first byte that the elements use, and the one after the last.
    pub(super) fn range(&self) -> (isize, isize) {
        let (first, last) = self.datatype.true_bounds();
        let further = self.count.saturating_sub(1) as isize * self.datatype.extent();
        if self.count == 0 { (self.at, self.at) } else { (self.at + first, self.at + last + further) }
    }
}

/// A buffer, and the blocks in it that a call uses.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) fill: Fill,
    /// Where displacements count from.
    pub(super) origin: usize,
    pub(super) bytes: usize,
    pub(super) blocks: Vec<Block>,
}

impl Part {
    /// A buffer with room for the blocks.
    pub(super) fn new(fill: Fill, blocks: Vec<Block>) -> Self {
        let ranges = blocks.iter().map(Block::range);
        let (first, last) = ranges.fold((0, 0), |(first, last), (from, to)| (from.min(first), to.max(last)));
        let origin = MARGIN + first.unsigned_abs().next_multiple_of(16);
        Self { fill, origin, bytes: (origin + last.unsigned_abs() + MARGIN).next_multiple_of(16), blocks }
    }

    /// Its contents before a call.
    pub(super) fn memory(&self) -> Vec<u8> {
        self.fill.memory(self.bytes)
    }

    /// The elements of a block, without gaps.
    pub(super) fn pack(&self, memory: &[u8], block: usize) -> Vec<u8> {
        let mut packed = Vec::new();
        self.visit(block, |at| {
            packed.extend_from_slice(&memory[at]);
            true
        });
        packed
    }

    /// Writes elements to a block, which may be longer.
    pub(super) fn unpack(&self, memory: &mut [u8], block: usize, mut packed: &[u8]) {
        self.visit(block, |at| {
            let fits = packed.len() >= at.len();
            if fits {
                let (first, rest) = packed.split_at(at.len());
                memory[at].copy_from_slice(first);
                packed = rest;
            }
            fits
        });
    }

    fn visit(&self, block: usize, mut visit: impl FnMut(core::ops::Range<usize>) -> bool) {
        let Block { at, count, datatype } = &self.blocks[block];
        for i in 0..*count as isize {
            for (from, bytes) in datatype.atoms() {
                let from = (self.origin as isize + at + i * datatype.extent() + from).unsigned_abs();
                if !visit(from..from + bytes) {
                    return;
                }
            }
        }
    }
}
