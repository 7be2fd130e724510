//! Subarrays: a block of an array of any number of dimensions.

use crate::datatype::{ArrayOrder, Datatype};
use crate::error::DatatypeError;
use crate::error::DatatypeError::{Lengths, Subarray, TooLarge};

impl Datatype {
    /// The elements of a block in an array of it (`MPI_Type_create_subarray`): in dimension i the array has `sizes[i]`
    /// elements, of which the block takes `lengths[i]` from `starts[i]` on. Its extent is that of the whole array.
    ///
    /// # Errors
    /// [`DatatypeError::Lengths`], [`DatatypeError::Subarray`], [`DatatypeError::TooLarge`].
    pub fn subarray(
        &self,
        sizes: &[usize],
        lengths: &[usize],
        starts: &[usize],
        order: ArrayOrder,
    ) -> Result<Self, DatatypeError> {
        if sizes.len() != lengths.len() || sizes.len() != starts.len() {
            return Err(Lengths);
        }
        if sizes.is_empty() {
            return Err(Subarray);
        }
        let (mut block, mut stride, mut offset) = (self.clone(), self.extent(), 0_isize);
        for i in 0..sizes.len() {
            let i = if order == ArrayOrder::RowMajor { sizes.len() - 1 - i } else { i };
            let (Some(&size), Some(&length), Some(&start)) = (sizes.get(i), lengths.get(i), starts.get(i)) else {
                return Err(Lengths);
            };
            if length.checked_add(start).is_none_or(|end| end > size) {
                return Err(Subarray);
            }
            block = block.hvector(length, 1, stride)?;
            let signed = |elements: usize| isize::try_from(elements).map_err(|_| TooLarge);
            let start = signed(start)?.checked_mul(stride).ok_or(TooLarge)?;
            offset = offset.checked_add(start).ok_or(TooLarge)?;
            stride = signed(size)?.checked_mul(stride).ok_or(TooLarge)?;
        }
        let lower = self.lower_bound();
        block.shifted(offset)?.resized(lower, stride)
    }
}
