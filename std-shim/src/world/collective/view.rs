//! Buffer arguments of messages and collectives: slices, and views of slices by a datatype.

use alloc::sync::Arc;
use core::ptr::NonNull;

use unisono_datatype::{Datatype, DatatypeError};
use unisono_memory::element_type::ElementType;
use unisono_memory::user_buffer::UserBuffer;
use zerocopy::{FromBytes, FromZeros as _, Immutable, IntoBytes};

use super::error::CollectiveError;
use super::partition::BLOCK_MAX;
use crate::world::shm_transport::Buffer;

/// A strided layout: `rows` rows of `row` elements that begin `stride` elements apart, as `MPI_Type_vector` describes
/// it. For other layouts see [`Datatype`](crate::Datatype).
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
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// // The first column of a matrix of three rows and two columns.
    /// let matrix = [1, 2, 3, 4, 5, 6];
    /// assert_eq!(View::new(&matrix, 1, Vector::new(3, 1, 2))?.count(), 3);
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn new(rows: usize, row: usize, stride: usize) -> Self {
        let extent = match rows.checked_sub(1) {
            Some(last) => last.saturating_mul(stride).saturating_add(row),
            None => 0,
        };
        Self { rows, row, stride, extent }
    }

    /// The same vector, but the next one begins `extent` elements after it (`MPI_Type_create_resized`): columns of a
    /// matrix are side by side if the extent is their width.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// // Both columns of a matrix of three rows and two columns, one after the other.
    /// let matrix = [1, 2, 3, 4, 5, 6];
    /// assert_eq!(View::new(&matrix, 2, Vector::new(3, 1, 2).resized(1))?.count(), 6);
    /// # Ok::<(), Error>(())
    /// ```
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

    /// Its datatype, `count` times, in elements of `size` bytes.
    fn datatype(self, count: usize, size: usize) -> Result<Datatype, DatatypeError> {
        let bytes = |elements: usize| isize::try_from(elements.saturating_mul(size)).unwrap_or(isize::MAX);
        let row = Datatype::bytes(size)?.contiguous(self.row)?;
        let rows = if self.rows > 1 { row.hvector(self.rows, 1, bytes(self.stride))? } else { row };
        if count > 1 { rows.resized(0, bytes(self.extent))?.contiguous(count) } else { Ok(rows) }
    }
}

/// The layout of bytes, unless they are adjacent from the first one on.
fn layout(datatype: Datatype) -> Option<Arc<Datatype>> {
    let is_slice = datatype.is_one_block() && datatype.true_bounds().0 == 0;
    (!is_slice).then(|| Arc::new(datatype))
}

/// The layout of `count` copies of a datatype in `given` elements of `size` bytes, the number of elements that it
/// names, and the number up to the last one.
fn expect_within(
    datatype: &Datatype,
    count: usize,
    size: usize,
    given: usize,
) -> Result<(Datatype, usize, usize), CollectiveError> {
    let all = datatype.contiguous(count).map_err(|_| CollectiveError::TooLong)?;
    let bytes = given.saturating_mul(size);
    let (first, end) = all.true_bounds();
    let needed = usize::try_from(end).unwrap_or(0).div_ceil(size.max(1));
    if first < 0 || needed > given || all.size() % size.max(1) != 0 {
        let whole = all.size().div_ceil(size.max(1));
        return Err(CollectiveError::Length { needed: needed.max(whole), given });
    }
    if all.size() > bytes && all.size() > BLOCK_MAX {
        return Err(CollectiveError::TooLong);
    }
    let elements = all.size() / size.max(1);
    Ok((all, elements, needed))
}

/// Elements that are read: a whole slice, or the elements of vectors in it, in their order.
#[derive(Debug)]
pub struct View<'b, T> {
    data: &'b [T],
    elements: usize,
    /// `None` if they are contiguous.
    layout: Option<Arc<Datatype>>,
    element: ElementType,
}

impl<'b, T> View<'b, T> {
    /// `count` vectors, one after the other, from the first element of `data` on. They may share elements.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (matrix, mut column) = ([1, 2, 3, 4, 5, 6], [0; 3]);
    /// world.send(&View::new(&matrix, 1, Vector::new(3, 1, 2))?, world.rank(), Tag(1))?;
    /// world.receive_into(&mut column, world.rank(), Tag(1))?;
    /// assert_eq!(column, [1, 3, 5]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError::Length`]: they exceed `data`. [`CollectiveError::TooLong`]: they name elements repeatedly,
    /// and in all more than 2³² − 1 bytes.
    pub fn new(data: &'b [T], count: usize, vector: Vector) -> Result<Self, CollectiveError> {
        let (elements, needed) = vector.spans::<T>(count, data.len())?;
        let datatype =
            if elements == 0 { Datatype::EMPTY } else { vector.datatype(count, size_of::<T>()).map_err(too_long)? };
        let data = data.get(..needed).unwrap_or_default();
        Ok(Self { data, elements, layout: layout(datatype), element: ElementType::of::<T>() })
    }

    /// The elements that `count` copies of a datatype name, counted from the first byte of `data` on. Several may be
    /// the same.
    ///
    /// ```
    /// use unisono::{Datatype, Tag, World, collective::View};
    ///
    /// let world = World::join()?;
    /// let (matrix, mut column) = ([0, 1, 2, 3, 4, 5], [0; 3]);
    /// let second = Datatype::of::<i32>().hindexed_block(1, &[4, 12, 20])?;
    /// world.send(&View::of(&matrix, 1, &second)?, world.rank(), Tag(0))?;
    /// world.receive_into(&mut column, world.rank(), Tag(0))?;
    /// assert_eq!(column, [1, 3, 5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError::Length`]: they exceed `data`, or are not a whole number of elements.
    /// [`CollectiveError::TooLong`]: as of [`new`](Self::new).
    pub fn of(data: &'b [T], count: usize, datatype: &Datatype) -> Result<Self, CollectiveError> {
        let (all, elements, needed) = expect_within(datatype, count, size_of::<T>(), data.len())?;
        let element = ElementType::of_datatype(&all);
        Ok(Self { data: data.get(..needed).unwrap_or_default(), elements, layout: layout(all), element })
    }

    /// Number of elements.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// assert_eq!(View::of(&[1_u8; 9], 2, &Datatype::of::<u8>())?.count(), 2);
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn count(&self) -> usize {
        self.elements
    }
}

impl<'b, T: IntoBytes + Immutable> View<'b, T> {
    /// The bytes that `count` copies of a datatype name in `data`, which may be parts of its elements.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// // The lower half of each word.
    /// let half = Datatype::bytes(2)?.resized(0, 4)?;
    /// assert_eq!(View::bytes_of(&[1_u32, 2, 3], 3, &half)?.count(), 6);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As of [`of`](Self::of).
    pub fn bytes_of(data: &'b [T], count: usize, datatype: &Datatype) -> Result<View<'b, u8>, CollectiveError> {
        View::of(data.as_bytes(), count, datatype)
    }

    /// The type of the elements.
    #[inline]
    pub(in crate::world) const fn element(&self) -> ElementType {
        self.element
    }

    /// The bytes, with the gaps between them.
    pub(in crate::world) fn bytes(&self) -> (&'b [u8], Option<Arc<Datatype>>) {
        (self.data.as_bytes(), self.layout.clone().filter(|_| size_of::<T>() != 0))
    }

    /// The bytes, if they are contiguous.
    #[inline]
    pub(in crate::world) fn dense(&self) -> Option<&'b [u8]> {
        if self.layout.is_none() { Some(self.data.as_bytes()) } else { None }
    }

    /// A copy of the bytes without the gaps. `None`: there is no memory for it.
    pub(in crate::world) fn packed(&self) -> Option<Vec<u8>> {
        let (bytes, layout) = self.bytes();
        let mut packed = u8::new_vec_zeroed(layout.as_ref().map_or(bytes.len(), |layout| layout.size())).ok()?;
        match layout {
            // The layout was checked to lie within the buffer.
            Some(layout) => _ = layout.pack(bytes, 0, &mut packed),
            None => packed.copy_from_slice(bytes),
        }
        Some(packed)
    }

    /// The bytes, to be read as long as they are borrowed.
    pub(in crate::world) fn user_buffer(&self) -> UserBuffer {
        let (bytes, layout) = self.bytes();
        UserBuffer::with(NonNull::from(bytes).cast(), bytes.len(), layout.as_ref()).of(self.element)
    }
}

/// Elements that are written: a whole slice, or the elements of vectors in it, in their order.
#[derive(Debug)]
pub struct ViewMut<'b, T> {
    data: &'b mut [T],
    elements: usize,
    layout: Option<Arc<Datatype>>,
    element: ElementType,
}

impl<'b, T> ViewMut<'b, T> {
    /// As [`View::new`], without shared elements.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut matrix = [0; 6];
    /// world.send(&[1, 3, 5], world.rank(), Tag(1))?;
    /// world.receive_into(&mut ViewMut::new(&mut matrix, 1, Vector::new(3, 1, 2))?, world.rank(), Tag(1))?;
    /// assert_eq!(matrix, [1, 0, 3, 0, 5, 0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As of [`View::new`], and [`CollectiveError::Overlapping`].
    pub fn new(data: &'b mut [T], count: usize, vector: Vector) -> Result<Self, CollectiveError> {
        let (elements, needed) = vector.spans::<T>(count, data.len())?;
        let datatype =
            if elements == 0 { Datatype::EMPTY } else { vector.datatype(count, size_of::<T>()).map_err(too_long)? };
        if !datatype.is_disjoint() {
            return Err(CollectiveError::Overlapping);
        }
        let data = data.get_mut(..needed).unwrap_or_default();
        Ok(Self { data, elements, layout: layout(datatype), element: ElementType::of::<T>() })
    }

    /// As [`View::of`], without shared elements ([`Datatype::is_disjoint`]).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (mut pair, swapped) = ([0_u32; 2], Datatype::of::<u32>().indexed_block(1, &[1, 0])?);
    /// world.send(&[1_u32, 2], world.rank(), Tag(1))?;
    /// world.receive_into(&mut ViewMut::of(&mut pair, 1, &swapped)?, world.rank(), Tag(1))?;
    /// assert_eq!(pair, [2, 1]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As of [`View::of`], and [`CollectiveError::Overlapping`].
    pub fn of(data: &'b mut [T], count: usize, datatype: &Datatype) -> Result<Self, CollectiveError> {
        let (all, elements, needed) = expect_within(datatype, count, size_of::<T>(), data.len())?;
        if !all.is_disjoint() {
            return Err(CollectiveError::Overlapping);
        }
        let element = ElementType::of_datatype(&all);
        Ok(Self { data: data.get_mut(..needed).unwrap_or_default(), elements, layout: layout(all), element })
    }

    /// Number of elements.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// assert_eq!(ViewMut::of(&mut [1_u8; 9], 2, &Datatype::of::<u8>())?.count(), 2);
    /// # Ok::<(), Error>(())
    /// ```
    pub const fn count(&self) -> usize {
        self.elements
    }

    /// The elements from the first to the last, with the gaps between them.
    pub(in crate::world) fn whole(self) -> NonNull<[T]> {
        NonNull::from(self.data)
    }
}

impl<'b, T: IntoBytes + FromBytes> ViewMut<'b, T> {
    /// The type of the elements.
    #[inline]
    pub(in crate::world) const fn element(&self) -> ElementType {
        self.element
    }

    /// As [`View::bytes_of`], without shared bytes.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let half = Datatype::bytes(2)?.resized(0, 4)?;
    /// assert_eq!(ViewMut::bytes_of(&mut [1_u32, 2, 3], 3, &half)?.count(), 6);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As of [`of`](Self::of).
    pub fn bytes_of(data: &'b mut [T], count: usize, datatype: &Datatype) -> Result<ViewMut<'b, u8>, CollectiveError> {
        ViewMut::of(data.as_mut_bytes(), count, datatype)
    }

    /// The bytes. `None`: they are not contiguous.
    #[inline]
    pub(in crate::world) fn dense(&mut self) -> Option<&mut [u8]> {
        if self.layout.is_none() { Some(self.data.as_mut_bytes()) } else { None }
    }

    /// The bytes, with the gaps between them.
    pub(super) fn bytes(self) -> (&'b mut [u8], Option<Arc<Datatype>>) {
        (self.data.as_mut_bytes(), self.layout.filter(|_| size_of::<T>() != 0))
    }

    /// Number of bytes without the gaps.
    pub(in crate::world) fn packed_bytes(&self) -> usize {
        self.elements.saturating_mul(size_of::<T>())
    }

    /// Fills it with bytes, of which there are as many as it has without the gaps.
    pub(in crate::world) fn unpack(self, packed: &[u8]) {
        let (bytes, layout) = self.bytes();
        match layout {
            // The layout was checked to lie within the buffer.
            Some(layout) => _ = layout.unpack(packed, bytes, 0),
            None => bytes.iter_mut().zip(packed).for_each(|(into, byte)| *into = *byte),
        }
    }

    /// The bytes, to be written as long as they are borrowed.
    pub(in crate::world) fn user_buffer(self) -> UserBuffer {
        let element = self.element;
        let (bytes, layout) = self.bytes();
        UserBuffer::with(NonNull::from(&mut *bytes).cast(), bytes.len(), layout.as_ref()).of(element)
    }
}

const fn too_long(_: DatatypeError) -> CollectiveError {
    CollectiveError::TooLong
}

impl<T> Default for View<'_, T> {
    fn default() -> Self {
        Self { data: &[], elements: 0, layout: None, element: ElementType::Unknown }
    }
}

impl<T> Default for ViewMut<'_, T> {
    fn default() -> Self {
        Self { data: &mut [], elements: 0, layout: None, element: ElementType::Unknown }
    }
}

/// A buffer that a message or a collective reads.
pub trait AsView<T> {
    /// The elements.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// assert_eq!([1, 2, 3].as_view().count(), 3);
    /// ```
    fn as_view(&self) -> View<'_, T>;
}

/// A buffer that a message or a collective writes.
pub trait AsViewMut<T> {
    /// The elements.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// assert_eq!(vec![0_u8; 3].as_view_mut().count(), 3);
    /// ```
    fn as_view_mut(&mut self) -> ViewMut<'_, T>;
}

impl<T> AsView<T> for View<'_, T> {
    fn as_view(&self) -> View<'_, T> {
        let Self { data, elements, ref layout, element } = *self;
        View { data, elements, layout: layout.clone(), element }
    }
}

impl<T> AsView<T> for ViewMut<'_, T> {
    fn as_view(&self) -> View<'_, T> {
        View { data: self.data, elements: self.elements, layout: self.layout.clone(), element: self.element }
    }
}

impl<T> AsViewMut<T> for ViewMut<'_, T> {
    fn as_view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut { data: self.data, elements: self.elements, layout: self.layout.clone(), element: self.element }
    }
}

impl<T> AsView<T> for [T] {
    fn as_view(&self) -> View<'_, T> {
        View { data: self, elements: self.len(), layout: None, element: ElementType::of::<T>() }
    }
}

impl<T> AsViewMut<T> for [T] {
    fn as_view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut { elements: self.len(), data: self, layout: None, element: ElementType::of::<T>() }
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
