//! Typed blocks: one block per rank, each of a datatype of its own, anywhere in a buffer (the counts, displacements and
//! datatypes of `MPI_Alltoallw`).

use alloc::sync::Arc;
use core::ptr::NonNull;

use unisono_datatype::{Datatype, Field};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::error::CollectiveError;

/// Blocks to be sent, one per rank.
#[derive(Clone, Debug)]
pub struct TypedBlocks<'b, T> {
    data: &'b [T],
    blocks: Vec<Arc<Datatype>>,
}

/// Blocks to be received, one per rank. No two of them have a byte in common.
#[derive(Debug)]
pub struct TypedBlocksMut<'b, T> {
    data: &'b mut [T],
    blocks: Vec<Arc<Datatype>>,
}

/// The blocks' layouts in a buffer of `given` bytes.
fn layouts(blocks: &[Field<'_>], given: usize) -> Result<Vec<Arc<Datatype>>, CollectiveError> {
    let layout = |block: &Field<'_>| {
        let placed = block.datatype.contiguous(block.count).and_then(|all| all.shifted(block.offset));
        let placed = placed.map_err(|_| CollectiveError::TooLong)?;
        let (first, end) = placed.true_bounds();
        let needed = usize::try_from(end).unwrap_or(0);
        if placed.size() > 0 && (first < 0 || needed > given) {
            return Err(CollectiveError::Length { needed, given });
        }
        Ok(Arc::new(placed))
    };
    blocks.iter().map(layout).collect()
}

impl<'b, T: IntoBytes + Immutable> TypedBlocks<'b, T> {
    /// Block i has `count` copies of `datatype`, `offset` bytes after the beginning of `data`, as the i-th field says.
    ///
    /// ```
    /// use unisono::{Datatype, Field, collective::TypedBlocks};
    ///
    /// let number = Datatype::of::<u32>();
    /// let fields = [0, 4].map(|offset| Field { count: 1, offset, datatype: &number });
    /// assert!(TypedBlocks::new(&[1_u32, 2], &fields).is_ok() && TypedBlocks::new(&[1_u32], &fields).is_err());
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError::Length`], in bytes: a block exceeds `data`. [`CollectiveError::TooLong`]: it exceeds the
    /// address space.
    pub fn new(data: &'b [T], blocks: &[Field<'_>]) -> Result<Self, CollectiveError> {
        Ok(Self { data, blocks: layouts(blocks, size_of_val(data))? })
    }

    pub(in crate::world) const fn data(&self) -> NonNull<[T]> {
        NonNull::from_ref(self.data)
    }

    pub(in crate::world) fn blocks(&self) -> &[Arc<Datatype>] {
        &self.blocks
    }
}

impl<'b, T: IntoBytes + FromBytes> TypedBlocksMut<'b, T> {
    /// As [`TypedBlocks::new`].
    ///
    /// ```
    /// use unisono::{Datatype, Field, collective::TypedBlocksMut};
    ///
    /// let number = Datatype::of::<u32>();
    /// let fields = [0, 0].map(|offset| Field { count: 1, offset, datatype: &number });
    /// assert!(TypedBlocksMut::new(&mut [1_u32, 2], &fields[..1]).is_ok());
    /// assert!(TypedBlocksMut::new(&mut [1_u32, 2], &fields).is_err(), "they overlap");
    /// ```
    ///
    /// # Errors
    /// As of [`TypedBlocks::new`], and [`CollectiveError::Overlapping`].
    pub fn new(data: &'b mut [T], blocks: &[Field<'_>]) -> Result<Self, CollectiveError> {
        let layouts = layouts(blocks, size_of_val(data))?;
        let all = Datatype::structure(blocks).map_err(|_| CollectiveError::TooLong)?;
        if all.is_disjoint() { Ok(Self { data, blocks: layouts }) } else { Err(CollectiveError::Overlapping) }
    }

    /// The whole buffer, and the blocks in it.
    pub(in crate::world) fn into_blocks(self) -> (NonNull<[T]>, Vec<Arc<Datatype>>) {
        (NonNull::from(self.data), self.blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_lie_within_the_buffer_and_apart() {
        let (word, mut data) = (Datatype::of::<u32>(), [0_u32; 6]);
        let column = word.vector(3, 1, 2).expect("a column");
        let field = |count, offset, datatype| Field { count, offset, datatype };
        let columns = [field(1, 0, &column), field(1, 4, &column), field(0, 400, &word)];
        assert!(TypedBlocks::new(&data, &columns).is_ok() && TypedBlocksMut::new(&mut data, &columns).is_ok());
        let overlapping = [field(1, 0, &column), field(1, 8, &word)];
        assert!(TypedBlocks::new(&data, &overlapping).is_ok());
        let refused = TypedBlocksMut::new(&mut data, &overlapping).map(|_| ());
        assert_eq!(refused, Err(CollectiveError::Overlapping));
        let before = TypedBlocks::new(&data, &[field(1, -4, &word)]).map(|_| ());
        assert_eq!(before, Err(CollectiveError::Length { needed: 0, given: 24 }));
        let after = TypedBlocks::new(&data, &[field(2, 20, &word)]).map(|_| ());
        assert_eq!(after, Err(CollectiveError::Length { needed: 28, given: 24 }));
        let long = TypedBlocks::new(&data, &[field(usize::MAX, 0, &word)]).map(|_| ());
        assert_eq!(long, Err(CollectiveError::TooLong));
    }
}
