//! Packing and unpacking of strided bytes.

use unisono_core::schedule::{BlockBuffer, BlockMap, BlockSpan, Blocks, Layout, Pairs, StridedVector};

use super::error::CollectiveError;

/// Bytes that are arranged in vectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) struct StridedBytes {
    pub(in crate::world) vector: StridedVector,
    pub(super) bytes: usize,
}

/// The strides of a call's buffers; `None` for contiguous ones.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(in crate::world) struct Gaps {
    pub(in crate::world) input: Option<StridedBytes>,
    pub(in crate::world) output: Option<StridedBytes>,
}

impl Gaps {
    /// The strides of an in-place call.
    pub(super) const fn both(both: Option<StridedBytes>) -> Self {
        Self { input: both, output: both }
    }

    /// The contiguous pieces of the first `bytes` bytes, in input and output.
    pub(super) fn pairs(self, bytes: usize) -> Pairs<'static> {
        let one = BlockMap::equal(bytes, 1);
        let cut = |gaps: Option<StridedBytes>| gaps.map_or(one, |strided| one.strided(strided.vector));
        let layout = Layout::new(cut(self.input), cut(self.output), one, 1, 1, 1);
        let span = |place| BlockSpan { buffer: place, blocks: Blocks::one(0), segment: 0 };
        layout.pairs(span(BlockBuffer::Input), span(BlockBuffer::Output))
    }

    /// Copies the first `bytes` bytes of the input to the output.
    pub(super) fn copy(self, from: &[u8], into: &mut [u8], bytes: usize) {
        for (source, target) in self.pairs(bytes) {
            let source = from.get(source.offset..source.offset.saturating_add(source.bytes));
            let target = into.get_mut(target.offset..target.offset.saturating_add(target.bytes));
            if let (Some(source), Some(target)) = (source, target) {
                target.copy_from_slice(source);
            }
        }
    }
}

impl StridedBytes {
    /// The bytes, packed. An input may name the same bytes so often that memory does not suffice.
    pub(super) fn packed(self, from: &[u8]) -> Result<Vec<u8>, CollectiveError> {
        let mut packed = Vec::new();
        packed.try_reserve_exact(self.bytes).map_err(|_| CollectiveError::TooLong)?;
        packed.resize(self.bytes, 0);
        Gaps { input: Some(self), output: None }.copy(from, &mut packed, self.bytes);
        Ok(packed)
    }

    /// Copies packed bytes to their places.
    pub(super) fn unpack(self, packed: &[u8], into: &mut [u8]) {
        Gaps { input: None, output: Some(self) }.copy(packed, into, self.bytes);
    }
}
