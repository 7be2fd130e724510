//! Buffer arguments of collectives: slices, and strided views of slices.

use core::ptr::NonNull;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::error::CollectiveError;
use super::pack::StridedBytes;
use super::partition::BLOCK_MAX;
use crate::world::shm_transport::Buffer;

/// A strided layout: `rows` rows of `row` elements that begin `stride` elements apart, as `MPI_Type_vector` describes
/// it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Vector {
    pub(super) rows: usize,
    pub(super) row: usize,
    pub(super) stride: usize,
    /// Elements from the beginning of one vector to that of the next.
    pub(super) extent: usize,
}

impl Vector {
    /// A vector after which the next one begins right after its last row, as in MPI.
    pub const fn new(rows: usize, row: usize, stride: usize) -> Self {
        let extent = match rows.checked_sub(1) {
            Some(last) => last.saturating_mul(stride).saturating_add(row),
            None => 0,
        };
        Self { rows, row, stride, extent }
    }

    /// The same vector, but the next one begins `extent` elements after it (`MPI_Type_create_resized`): columns of a
    /// matrix are side by side if the extent is their width.
    pub const fn resized(self, extent: usize) -> Self {
        Self { extent, ..self }
    }

    /// Elements of `count` vectors, and elements of the buffer from the first to the last one, of which there are
    /// `given`.
    fn spans<T>(self, count: usize, given: usize) -> Result<(usize, usize), CollectiveError> {
        let elements = count.saturating_mul(self.rows).saturating_mul(self.row);
        let Some(last) = count.checked_sub(1).filter(|_| elements != 0) else { return Ok((0, 0)) };
        let needed = last.saturating_mul(self.extent).saturating_add(self.length());
        if needed > given {
            return Err(CollectiveError::Length { needed, given });
        }
        // The same elements may be named repeatedly.
        let is_repeated = elements > needed && elements.saturating_mul(size_of::<T>()) > BLOCK_MAX;
        if is_repeated || elements > isize::MAX as usize {
            return Err(CollectiveError::TooLong);
        }
        Ok((elements, needed))
    }

    /// Elements from the beginning of a vector to its end.
    const fn length(self) -> usize {
        Self::new(self.rows, self.row, self.stride).extent
    }

    /// Whether `count` nonempty vectors contain no element twice.
    fn is_disjoint(self, count: usize) -> bool {
        let Self { rows, row, stride, extent } = self;
        let has_rows_apart = rows == 1 || stride >= row;
        let is_behind = count == 1 || extent >= self.length();
        let is_within = extent >= row && stride >= (count - 1).saturating_mul(extent).saturating_add(row);
        // Of two rows r apart, in vectors v apart, one begins within the other if `v · extent` and `r · stride` differ
        // by less than a row.
        let is_clear = |vectors: usize| {
            let apart = vectors.saturating_mul(extent);
            let near = apart.checked_div(stride).unwrap_or(0);
            [0, near, near.saturating_add(1)]
                .iter()
                .all(|r| *r >= rows || apart.abs_diff(r.saturating_mul(stride)) >= row)
        };
        // More distant ones begin after the last row.
        let near = self.length().checked_div(extent).unwrap_or(1).saturating_add(1).min(count);
        has_rows_apart && (is_behind || is_within || (1..near).all(is_clear))
    }

    /// Whether `count` vectors are contiguous.
    const fn is_dense(self, count: usize) -> bool {
        (self.rows == 1 || self.stride == self.row) && (count == 1 || self.extent == self.rows * self.row)
    }
}

/// Elements that are read: a whole slice, or the elements of vectors in it, in their order.
#[derive(Debug)]
pub struct View<'b, T> {
    data: &'b [T],
    elements: usize,
    /// `None` if they are contiguous.
    vector: Option<Vector>,
}

impl<'b, T> View<'b, T> {
    /// `count` vectors, one after the other, from the first element of `data` on. They may share elements.
    ///
    /// # Errors
    /// [`CollectiveError::Length`]: they exceed `data`. [`CollectiveError::TooLong`]: they name elements repeatedly,
    /// and in all more than 2³² − 1 bytes.
    pub fn new(data: &'b [T], count: usize, vector: Vector) -> Result<Self, CollectiveError> {
        let (elements, needed) = vector.spans::<T>(count, data.len())?;
        let vector = Some(vector).filter(|vector| elements != 0 && !vector.is_dense(count));
        Ok(Self { data: data.get(..needed).unwrap_or_default(), elements, vector })
    }

    /// Number of elements.
    pub const fn count(&self) -> usize {
        self.elements
    }
}

impl<'b, T: IntoBytes + Immutable> View<'b, T> {
    /// The bytes, with the gaps between them.
    pub(super) fn bytes(&self) -> (&'b [u8], Option<StridedBytes>) {
        (self.data.as_bytes(), strided::<T>(self.elements, self.vector))
    }
}

/// Elements that are written: a whole slice, or the elements of vectors in it, in their order.
#[derive(Debug)]
pub struct ViewMut<'b, T> {
    data: &'b mut [T],
    elements: usize,
    vector: Option<Vector>,
}

impl<'b, T> ViewMut<'b, T> {
    /// As [`View::new`], without shared elements.
    ///
    /// # Errors
    /// As of [`View::new`], and [`CollectiveError::Overlapping`].
    pub fn new(data: &'b mut [T], count: usize, vector: Vector) -> Result<Self, CollectiveError> {
        let (elements, needed) = vector.spans::<T>(count, data.len())?;
        if elements != 0 && !vector.is_disjoint(count) {
            return Err(CollectiveError::Overlapping);
        }
        let vector = Some(vector).filter(|vector| elements != 0 && !vector.is_dense(count));
        Ok(Self { data: data.get_mut(..needed).unwrap_or_default(), elements, vector })
    }

    /// Number of elements.
    pub const fn count(&self) -> usize {
        self.elements
    }

    /// The elements from the first to the last, with the gaps between them.
    pub(super) fn whole(self) -> NonNull<[T]> {
        NonNull::from(self.data)
    }
}

impl<'b, T: IntoBytes + FromBytes> ViewMut<'b, T> {
    /// The bytes. `None`: they are not contiguous.
    #[inline]
    pub(super) fn dense(&mut self) -> Option<&mut [u8]> {
        if self.vector.is_none() { Some(self.data.as_mut_bytes()) } else { None }
    }

    /// The bytes, with the gaps between them.
    pub(super) fn bytes(self) -> (&'b mut [u8], Option<StridedBytes>) {
        (self.data.as_mut_bytes(), strided::<T>(self.elements, self.vector))
    }
}

fn strided<T>(elements: usize, vector: Option<Vector>) -> Option<StridedBytes> {
    let bytes = |elements: usize| elements.saturating_mul(size_of::<T>());
    let Vector { rows, row, stride, extent } = vector.filter(|_| size_of::<T>() != 0)?;
    let vector =
        unisono_core::schedule::StridedVector { row: bytes(row), rows, stride: bytes(stride), extent: bytes(extent) };
    Some(StridedBytes { vector, bytes: bytes(elements) })
}

impl<T> Default for View<'_, T> {
    fn default() -> Self {
        Self { data: &[], elements: 0, vector: None }
    }
}

impl<T> Default for ViewMut<'_, T> {
    fn default() -> Self {
        Self { data: &mut [], elements: 0, vector: None }
    }
}

/// A buffer that a collective reads.
pub trait AsView<T> {
    /// The elements.
    fn as_view(&self) -> View<'_, T>;
}

/// A buffer that a collective writes.
pub trait AsViewMut<T> {
    /// The elements.
    fn as_view_mut(&mut self) -> ViewMut<'_, T>;
}

impl<T> AsView<T> for View<'_, T> {
    fn as_view(&self) -> View<'_, T> {
        let Self { data, elements, vector } = *self;
        View { data, elements, vector }
    }
}

impl<T> AsView<T> for ViewMut<'_, T> {
    fn as_view(&self) -> View<'_, T> {
        View { data: self.data, elements: self.elements, vector: self.vector }
    }
}

impl<T> AsViewMut<T> for ViewMut<'_, T> {
    fn as_view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut { data: self.data, elements: self.elements, vector: self.vector }
    }
}

impl<T> AsView<T> for [T] {
    fn as_view(&self) -> View<'_, T> {
        View { data: self, elements: self.len(), vector: None }
    }
}

impl<T> AsViewMut<T> for [T] {
    fn as_view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut { elements: self.len(), data: self, vector: None }
    }
}

macro_rules! slices {
    ($([$($generic:tt)*] $type:ty;)*) => { $(
        impl<T $($generic)*> AsView<T> for $type {
            fn as_view(&self) -> View<'_, T> {
                self[..].as_view()
            }
        }

        impl<T $($generic)*> AsViewMut<T> for $type {
            fn as_view_mut(&mut self) -> ViewMut<'_, T> {
                self[..].as_view_mut()
            }
        }
    )* };
}

slices! {
    [, const N: usize] [T; N];
    [] Vec<T>;
    [] Box<[T]>;
    [: FromBytes + IntoBytes] Buffer<T>;
}

impl<T, D: AsView<T> + ?Sized> AsView<T> for &D {
    fn as_view(&self) -> View<'_, T> {
        (**self).as_view()
    }
}

macro_rules! scalars {
    ($($type:ty),*) => { $(
        /// A buffer of one element.
        impl AsView<$type> for $type {
            fn as_view(&self) -> View<'_, $type> {
                core::slice::from_ref(self).as_view()
            }
        }

        /// A buffer of one element.
        impl AsViewMut<$type> for $type {
            fn as_view_mut(&mut self) -> ViewMut<'_, $type> {
                core::slice::from_mut(self).as_view_mut()
            }
        }
    )* };
}

scalars!(i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize, f32, f64, half::f16, half::bf16);
scalars!(super::Complex<f32>, super::Complex<f64>);

impl<T, D: AsView<T> + ?Sized> AsView<T> for &mut D {
    fn as_view(&self) -> View<'_, T> {
        (**self).as_view()
    }
}

impl<T, D: AsViewMut<T> + ?Sized> AsViewMut<T> for &mut D {
    fn as_view_mut(&mut self) -> ViewMut<'_, T> {
        (**self).as_view_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Indices of the elements of `count` vectors.
    fn elements(count: usize, vector: Vector) -> Vec<usize> {
        let Vector { rows, row, stride, extent } = vector;
        let rows = (0..count).flat_map(|v| (0..rows).map(move |r| v * extent + r * stride));
        rows.flat_map(|at| at..at + row).collect()
    }

    #[test]
    fn vectors_that_overlap_are_refused_and_no_others() {
        for i in 0..5 * 4 * 4 * 7 * 16 {
            let (count, rows, row) = (i % 5, i / 5 % 4, i / 20 % 4);
            let vector = Vector::new(rows, row, i / 80 % 7).resized(i / 560 % 16);
            let mut at = elements(count, vector);
            let (all, needed) = (at.len(), at.iter().max().map_or(0, |last| last + 1));
            at.sort_unstable();
            at.dedup();
            let mut data = [0_u8; 80];
            let expected = if at.len() == all { Ok(all) } else { Err(CollectiveError::Overlapping) };
            assert_eq!(ViewMut::new(&mut data, count, vector).map(|view| view.count()), expected, "{count} {vector:?}");
            assert_eq!(View::new(&data, count, vector).map(|view| view.count()), Ok(all));
            assert!(View::new(&data[..needed], count, vector).is_ok());
            if needed > 0 {
                let short = View::new(&data[1..needed], count, vector).map(|view| view.count());
                assert_eq!(short, Err(CollectiveError::Length { needed, given: needed - 1 }));
            }
        }
    }

    #[test]
    fn a_vector_without_gaps_is_a_slice() {
        let data = [0_u16; 12];
        let is_strided = |count, vector| View::new(&data, count, vector).map(|view| view.bytes().1.is_some());
        assert_eq!(is_strided(2, Vector::new(3, 2, 2)), Ok(false));
        assert_eq!(is_strided(1, Vector::new(1, 5, 9).resized(7)), Ok(false));
        assert_eq!(is_strided(2, Vector::new(1, 5, 9).resized(7)), Ok(true));
        assert_eq!(is_strided(usize::MAX, Vector::new(0, 2, 9)), Ok(false));
        let most = View::new(&data, 2, Vector::new(usize::MAX, 1, usize::MAX)).map(|view| view.count());
        assert_eq!(most, Err(CollectiveError::Length { needed: usize::MAX, given: 12 }));
        let endless = View::new(&data, usize::MAX, Vector::new(2, 1, 0).resized(0)).map(|view| view.count());
        assert_eq!(endless, Err(CollectiveError::TooLong));
        let again = |rows, row| View::new(&data, 1, Vector::new(rows, row, 0)).map(|view| view.count());
        assert_eq!(again(1 << 40, 1), Err(CollectiveError::TooLong));
        assert_eq!([again((1 << 31) - 1, 1), again(1 << 31, 1)], [Ok((1 << 31) - 1), Err(CollectiveError::TooLong)]);
        assert_eq!(again(1 << 60, 0), Ok(0));
        // Elements without bytes take no time, whatever their number.
        let mut nothing = [(); 1 << 42];
        let (many, apart) = (1 << 40, Vector::new(2, 1, 3).resized(2));
        assert_eq!(View::new(&nothing, many, Vector::new(2, 1, 0)).map(|view| view.count()), Ok(2 << 40));
        assert_eq!(ViewMut::new(&mut nothing, many, apart).map(|view| view.count()), Ok(2 << 40));
    }
}
