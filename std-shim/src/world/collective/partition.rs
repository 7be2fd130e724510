//! Partitions: one block per rank, of any length, anywhere in a buffer (the counts and displacements of MPI's vector
//! collectives).

use alloc::sync::Arc;
use core::mem::size_of;
use core::ptr::NonNull;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::error::CollectiveError;
use super::pack::Layouts;

/// Most bytes of a block: lengths on the wire have 32 bits.
pub(super) const BLOCK_MAX: usize = u32::MAX as usize;

/// Lengths of blocks in bytes, and offsets of their first bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::world) struct BlockTable {
    pub(in crate::world) bytes: Box<[usize]>,
    pub(in crate::world) at: Box<[usize]>,
    /// Where blocks are in rows: bytes of a row, and from one row to the next.
    pub(in crate::world) rows: Option<(usize, usize)>,
}

impl BlockTable {
    /// A table for elements of `size` bytes, in a buffer of `given` elements.
    fn new(counts: &[usize], displacements: &[usize], size: usize, given: usize) -> Result<Self, CollectiveError> {
        if counts.len() != displacements.len() {
            return Err(CollectiveError::Length { needed: counts.len(), given: displacements.len() });
        }
        let ends = counts.iter().zip(displacements).map(|(count, at)| count.saturating_add(*at));
        let needed = ends.max().unwrap_or(0);
        if needed > given {
            return Err(CollectiveError::Length { needed, given });
        }
        let bytes = |elements: &[usize]| elements.iter().map(|elements| elements.saturating_mul(size)).collect();
        Ok(Self { bytes: bytes(counts), at: bytes(displacements), rows: None })
    }

    /// As [`new`](Self::new), in rows of `row` elements, each `stride` elements after the previous one.
    fn in_rows(
        counts: &[usize],
        displacements: &[usize],
        (row, stride): (usize, usize),
        size: usize,
        given: usize,
    ) -> Result<Self, CollectiveError> {
        if row == 0 || stride < row {
            return Err(CollectiveError::Length { needed: row.max(1), given: stride });
        }
        // The rows with the gaps between them.
        let extent = |count: &usize| match count.checked_sub(1) {
            Some(last) => (last / row).saturating_mul(stride).saturating_add(last % row).saturating_add(1),
            None => 0,
        };
        let extents: Vec<usize> = counts.iter().map(extent).collect();
        let table = Self::new(&extents, displacements, size, given)?;
        let bytes = counts.iter().map(|elements| elements.saturating_mul(size)).collect();
        Ok(Self { bytes, rows: Some((row.saturating_mul(size), stride.saturating_mul(size))), ..table })
    }

    /// Bytes of all blocks.
    pub(super) fn total(&self) -> usize {
        self.bytes.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}

/// Blocks to be sent, one per rank.
#[derive(Clone, Debug)]
pub struct Partition<'b, T> {
    pub(in crate::world) data: &'b [T],
    pub(in crate::world) table: Arc<BlockTable>,
}

impl<'b, T: IntoBytes + Immutable> Partition<'b, T> {
    /// Block i has `counts[i]` elements from `displacements[i]` on.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// // Two blocks, of one element and of three.
    /// assert!(Partition::new(&[1, 2, 3, 4], &[1, 3], &[0, 1]).is_ok());
    /// assert!(Partition::new(&[1, 2, 3, 4], &[1, 3], &[0, 2]).is_err());
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError::Length`]: the lists differ in length, or a block exceeds `data`.
    pub fn new(data: &'b [T], counts: &[usize], displacements: &[usize]) -> Result<Self, CollectiveError> {
        let table = BlockTable::new(counts, displacements, size_of::<T>(), data.len())?;
        Ok(Self { data, table: Arc::new(table) })
    }

    /// Block i has `counts[i]` elements from `displacements[i]` on, in rows of `row` elements that begin `stride`
    /// elements apart, like columns of a matrix whose rows have `stride` elements.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// // The left two columns of a matrix of two rows and three columns, and the right one.
    /// let matrix = [1, 2, 3, 4, 5, 6];
    /// assert!(Partition::in_rows(&matrix, &[4], &[0], 2, 3).is_ok() && Partition::in_rows(&matrix, &[2], &[2], 1, 3).is_ok());
    /// ```
    ///
    /// # Errors
    /// As of [`new`](Self::new), and where `row` is 0 or more than `stride`.
    pub fn in_rows(
        data: &'b [T],
        counts: &[usize],
        displacements: &[usize],
        row: usize,
        stride: usize,
    ) -> Result<Self, CollectiveError> {
        let table = BlockTable::in_rows(counts, displacements, (row, stride), size_of::<T>(), data.len())?;
        Ok(Self { data, table: Arc::new(table) })
    }
}

/// Blocks to be received, one per rank. Where two of them overlap, the contents are unspecified.
#[derive(Debug)]
pub struct PartitionMut<'b, T> {
    pub(in crate::world) data: &'b mut [T],
    pub(in crate::world) table: Arc<BlockTable>,
}

impl<'b, T: IntoBytes + FromBytes> PartitionMut<'b, T> {
    /// As [`Partition::new`].
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let mut data = [0; 4];
    /// assert!(PartitionMut::new(&mut data, &[1, 3], &[0, 1]).is_ok());
    /// ```
    ///
    /// # Errors
    /// As of [`Partition::new`].
    pub fn new(data: &'b mut [T], counts: &[usize], displacements: &[usize]) -> Result<Self, CollectiveError> {
        let table = BlockTable::new(counts, displacements, size_of::<T>(), data.len())?;
        Ok(Self { data, table: Arc::new(table) })
    }

    /// As [`Partition::in_rows`].
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let mut matrix = [0; 6];
    /// assert!(PartitionMut::in_rows(&mut matrix, &[4], &[0], 2, 3).is_ok());
    /// ```
    ///
    /// # Errors
    /// As of [`Partition::in_rows`].
    pub fn in_rows(
        data: &'b mut [T],
        counts: &[usize],
        displacements: &[usize],
        row: usize,
        stride: usize,
    ) -> Result<Self, CollectiveError> {
        let table = BlockTable::in_rows(counts, displacements, (row, stride), size_of::<T>(), data.len())?;
        Ok(Self { data, table: Arc::new(table) })
    }
}

impl<T> PartitionMut<'_, T> {
    /// The same blocks, to be sent.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (one, mut data, mut into) = (world.size() as usize, vec![7; 2 * world.size() as usize], vec![0; 2 * world.size() as usize]);
    /// let (counts, places): (Vec<_>, Vec<_>) = (0..one).map(|rank| (2, 2 * rank)).unzip();
    /// let blocks = PartitionMut::new(&mut data, &counts, &places)?;
    /// world.all_to_all_varcount_into(&blocks.as_partition(), PartitionMut::new(&mut into, &counts, &places)?)?;
    /// assert_eq!(into, vec![7; 2 * one]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn as_partition(&self) -> Partition<'_, T> {
        Partition { data: self.data, table: self.table.clone() }
    }

    pub(super) fn reborrow(&mut self) -> PartitionMut<'_, T> {
        PartitionMut { data: self.data, table: self.table.clone() }
    }

    /// The whole buffer, with the gaps between its blocks.
    pub(super) fn whole(self) -> NonNull<[T]> {
        NonNull::from(self.data)
    }
}

/// The tables of a call whose blocks differ in length.
#[derive(Clone, Debug, Default)]
pub(in crate::world) struct BlockTables {
    pub(in crate::world) input: Option<Arc<BlockTable>>,
    pub(in crate::world) output: Option<Arc<BlockTable>>,
    /// Bytes of this rank's own block, for the buffer without a table.
    pub(in crate::world) own: usize,
}

/// The layout of a call's blocks, where they are not contiguous and equal.
#[derive(Clone, Debug, Default)]
pub(in crate::world) struct Shape {
    /// Where blocks differ in length.
    pub(in crate::world) tables: Option<BlockTables>,
    pub(in crate::world) layouts: Layouts,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_lie_within_the_buffer() {
        let mut data = [0_u32; 6];
        let parts = PartitionMut::new(&mut data, &[2, 0, 3], &[4, 9, 0]).map(|_| ());
        assert_eq!(parts, Err(CollectiveError::Length { needed: 9, given: 6 }));
        let parts = Partition::new(&data, &[2, 0, 3], &[4, 6, 0]).expect("within");
        assert_eq!((parts.table.total(), &*parts.table.at), (20, &[16, 24, 0][..]));
        let long = Partition::new(&data, &[usize::MAX], &[2]).map(|_| ());
        assert_eq!(long, Err(CollectiveError::Length { needed: usize::MAX, given: 6 }));
        assert!(Partition::new(&data, &[1], &[]).is_err());
    }

    #[test]
    fn rows_lie_within_the_buffer() {
        let data = [0_u16; 12];
        let columns = |counts: &[usize], at: &[usize], row, stride| {
            Partition::in_rows(&data, counts, at, row, stride).map(|parts| parts.table.rows)
        };
        assert_eq!(columns(&[6, 3], &[0, 3], 2, 4), Ok(Some((4, 8))), "the last row ends with the buffer");
        let short = |needed| Err(CollectiveError::Length { needed, given: 12 });
        assert_eq!(columns(&[6], &[3], 2, 4), short(13));
        assert_eq!(columns(&[usize::MAX], &[1], 1, usize::MAX), short(usize::MAX));
        assert_eq!(columns(&[0], &[12], 1, 9), Ok(Some((2, 18))));
        assert_eq!(columns(&[1], &[0], 0, 4), Err(CollectiveError::Length { needed: 1, given: 4 }));
        assert_eq!(columns(&[1], &[0], 5, 4), Err(CollectiveError::Length { needed: 5, given: 4 }));
    }
}
