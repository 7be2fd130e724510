//! Equal blocks of memory at a constant distance, which one request reads or updates.

/// Blocks of `block` bytes each, whose first bytes are `distance` bytes apart; they may overlap.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Stride {
    /// Bytes of a block.
    pub block: u32,
    /// Bytes from the start of a block to the start of the next.
    pub distance: u32,
}

impl Stride {
    /// Bytes from the first one of the first block to the last one of the last, of blocks of `bytes` bytes in all.
    /// `None`: these are no whole blocks, or they do not lie within 4 GiB.
    #[must_use]
    pub fn extent(self, bytes: u32) -> Option<u32> {
        let blocks = bytes.checked_div(self.block)?;
        match blocks.checked_sub(1) {
            _ if blocks.checked_mul(self.block)? != bytes => None,
            Some(more) => more.checked_mul(self.distance)?.checked_add(self.block),
            None => Some(0),
        }
    }

    /// The offset of each block in memory, and in the bytes of a message.
    pub fn blocks(self, bytes: u32) -> impl Iterator<Item = (usize, usize)> {
        let blocks = bytes.checked_div(self.block).unwrap_or(0) as usize;
        let apart = move |i: usize, distance: u32| i.wrapping_mul(distance as usize);
        (0..blocks).map(move |i| (apart(i, self.distance), apart(i, self.block)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_those_of_whole_blocks() {
        let of = |block, distance, bytes| Stride { block, distance }.extent(bytes);
        assert_eq!([of(4, 100, 0), of(4, 100, 4), of(4, 100, 12), of(4, 0, 8)], [Some(0), Some(4), Some(204), Some(4)]);
        assert_eq!([of(0, 1, 0), of(0, 1, 1), of(4, 100, 6)], [None; 3]);
        assert_eq!(of(1, u32::MAX - 1, 2), Some(u32::MAX));
        assert_eq!([of(1, u32::MAX, 2), of(2, u32::MAX - 1, 4), of(1, 1 << 31, 3)], [None; 3]);
    }

    #[test]
    fn blocks_are_packed_in_a_message() {
        assert!(Stride { block: 4, distance: 10 }.blocks(12).eq([(0, 0), (10, 4), (20, 8)]));
        assert_eq!(Stride { block: 0, distance: 10 }.blocks(12).count(), 0);
    }
}
