//! One-sided calls on the elements of a datatype in the memory of a rank, as MPI's calls with a target datatype.
//!
//! Each block of contiguous bytes there is an operation of its own.

use alloc::collections::VecDeque;
use core::ops::ControlFlow;

use unisono_core::rma::header::ElementUpdate;
use unisono_datatype::{Datatype, Run};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::place::Places;
use super::{AccumulateOperation, CallEnd, GetRequest, Window, WindowError, bytes_of_view, fill_view};
use crate::world::collective::{AsView, AsViewMut, Element};
use unisono_bootstrap::Rank;

/// Reads that are under way at a time.
const READS: usize = 64;

/// Elements of a datatype in the memory of a rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct TargetElements<'d> {
    pub(super) rank: Rank,
    /// The byte at which the first element is.
    pub(super) offset: usize,
    pub(super) count: usize,
    pub(super) datatype: &'d Datatype,
}

/// A block of contiguous bytes: its offset in the target's memory, that from the lowest block, and its part of the packed
/// data.
struct Block {
    offset: usize,
    above: usize,
    first: usize,
    bytes: usize,
}

impl Block {
    /// Its part.
    fn of<'p>(&self, packed: &'p [u8]) -> &'p [u8] {
        packed.get(self.first..).and_then(|rest| rest.get(..self.bytes)).unwrap_or_default()
    }
}

impl Window {
    /// As [`put`](Self::put), to `count` elements of a datatype, the first of which is at byte `offset` (`MPI_Put` with
    /// a target datatype). They have as many bytes as `data`, and may have gaps.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(16)?;
    /// // The second column of a matrix of 2 × 2.
    /// let column = Datatype::of::<u32>().vector(2, 1, 2)?;
    /// window.put_typed(&[5_u32, 6], world.rank(), 4, 1, &column)?;
    /// let mut matrix = [0_u32; 4];
    /// window.read(0, &mut matrix)?;
    /// assert_eq!(matrix, [0, 5, 0, 6]);
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`]; before anything is changed, [`WindowError::SizesDiffer`], and [`WindowError::OutOfBounds`] if
    /// an element is not within the window. Errors that the target reports are those of the flush.
    pub fn put_typed<T: IntoBytes + Immutable>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        target: Rank,
        offset: usize,
        count: usize,
        datatype: &Datatype,
    ) -> Result<(), WindowError> {
        let (view, there) = (data.as_view(), TargetElements { rank: target, offset, count, datatype });
        let bytes = bytes_of_view(&view)?;
        self.for_each_block(bytes.len(), there, &mut |block, _| {
            self.start_put(block.of(&bytes), target, block.offset, CallEnd::Flush).map(|_| ())
        })
    }

    /// As [`get`](Self::get), from `count` elements of a datatype, the first of which is at byte `offset` (`MPI_Get`
    /// with a target datatype, and a flush of it).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(16)?;
    /// window.write(0, &[1_u32, 2, 3, 4])?;
    /// let mut column = [0_u32; 2];
    /// window.get_typed(&mut column, world.rank(), 0, 1, &Datatype::of::<u32>().vector(2, 1, 2)?)?;
    /// assert_eq!(column, [1, 3]);
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As of [`put_typed`](Self::put_typed).
    pub fn get_typed<T: FromBytes + IntoBytes>(
        &self,
        into: &mut (impl AsViewMut<T> + ?Sized),
        target: Rank,
        offset: usize,
        count: usize,
        datatype: &Datatype,
    ) -> Result<(), WindowError> {
        let there = TargetElements { rank: target, offset, count, datatype };
        fill_view(into.as_view_mut(), |bytes| self.get_blocks(bytes, there))
    }

    /// As [`accumulate`](Self::accumulate), into `count` elements of a datatype, the first of which is at byte `offset`
    /// (`MPI_Accumulate` with a target datatype).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(16)?;
    /// let column = Datatype::of::<u32>().vector(2, 1, 2)?;
    /// window.accumulate_typed(&[1_u32, 2], world.rank(), 0, 1, &column, SystemOperation::sum())?;
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As of [`put_typed`](Self::put_typed); [`WindowError::Unsupported`] if a block is no whole number of elements.
    pub fn accumulate_typed<T: Element>(
        &self,
        data: &[T],
        target: Rank,
        offset: usize,
        count: usize,
        datatype: &Datatype,
        operation: impl Into<AccumulateOperation>,
    ) -> Result<(), WindowError> {
        let update = operation.into().update(T::ELEMENT);
        let there = TargetElements { rank: target, offset, count, datatype };
        self.update_blocks(update, size_of::<T>(), data.as_bytes(), there)
    }

    /// As [`accumulate_typed`](Self::accumulate_typed), for elements of `grain` bytes.
    pub(super) fn update_blocks(
        &self,
        update: ElementUpdate,
        grain: usize,
        bytes: &[u8],
        there: TargetElements<'_>,
    ) -> Result<(), WindowError> {
        let expect_whole = &mut |Block { bytes, above, .. }: Block, places: &Places| {
            if !bytes.is_multiple_of(grain) {
                return Err(WindowError::Unsupported);
            }
            let are_whole = places.hold_elements(above, bytes, grain);
            if are_whole { Ok(()) } else { Err(WindowError::OutOfBounds(there.rank)) }
        };
        self.for_each_block(bytes.len(), there, expect_whole)?;
        self.for_each_block(bytes.len(), there, &mut |block, _| {
            self.update(update, grain, block.of(bytes), None, there.rank, block.offset)
        })
    }

    fn get_blocks(&self, mut into: &mut [u8], there: TargetElements<'_>) -> Result<(), WindowError> {
        let (given, mut reads) = (into.len(), VecDeque::new());
        let mut take = |read: GetRequest<'_, u8>| {
            let bytes = read.wait()?;
            if let Some((first, rest)) = core::mem::take(&mut into).split_at_mut_checked(bytes.len()) {
                first.copy_from_slice(&bytes);
                into = rest;
            }
            Ok::<(), WindowError>(())
        };
        self.for_each_block(given, there, &mut |block, _| {
            if reads.len() == READS
                && let Some(read) = reads.pop_front()
            {
                take(read)?;
            }
            reads.push_back(self.request_get::<u8>(block.bytes, there.rank, block.offset)?);
            Ok(())
        })?;
        reads.into_iter().try_for_each(take)
    }

    /// Calls `visit` with each block of the elements, in their order, after all have been checked.
    fn for_each_block(
        &self,
        given: usize,
        TargetElements { rank: target, offset, count, datatype }: TargetElements<'_>,
        visit: &mut dyn FnMut(Block, &Places) -> Result<(), WindowError>,
    ) -> Result<(), WindowError> {
        let outside = || WindowError::OutOfBounds(target);
        let all = datatype.contiguous(count).map_err(|_| outside())?;
        if all.size() != given {
            return Err(WindowError::SizesDiffer { given, described: all.size() });
        }
        if given == 0 {
            return Ok(());
        }
        let (lower, _) = all.true_bounds();
        let first = offset.checked_add_signed(lower).ok_or_else(outside)?;
        let places = self.places(target, first, all.true_extent(), 1)?;
        let (mut done, mut result) = (0, Ok(()));
        all.for_each_run(0, given, |Run { offset: at, bytes, count, stride }| {
            for number in 0..count {
                let place = isize::try_from(number).ok().and_then(|number| stride.checked_mul(number)?.checked_add(at));
                let place = place.and_then(|place| offset.checked_add_signed(place));
                let block =
                    place.map(|offset| Block { offset, above: offset.saturating_sub(first), first: done, bytes });
                done += bytes;
                result = block.ok_or_else(outside).and_then(|block| visit(block, &places));
                if result.is_err() {
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
        result
    }
}
