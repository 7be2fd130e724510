//! One-sided calls on the elements of a datatype in the memory of a rank, as MPI's calls with a target datatype.

use core::ops::ControlFlow;

use unisono_core::rma::header::ElementUpdate;
use unisono_datatype::{Datatype, Run};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::blocks::{WindowBlocks, WindowReads};
use super::copies::{bytes_of_view, fill_view};
use super::place::Places;
use super::targets::Targets;
use super::wide_updates::ATOMIC_MAX;
use super::{AccumulateOperation, Window, WindowError};
use crate::world::collective::{AsView, AsViewMut, Element};
use unisono_bootstrap::Rank;

/// Elements of a datatype in the memory of a rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct TargetElements<'d> {
    pub(super) rank: Rank,
    /// The byte at which the first element is.
    pub(super) offset: usize,
    pub(super) count: usize,
    pub(super) datatype: &'d Datatype,
}

impl Window {
    /// As [`put`](Self::put), to `count` elements of a datatype, the first of which is at byte `offset` (`MPI_Put` with
    /// a target datatype). They have as many bytes as `data`, and may have gaps. Only a flush orders it before later
    /// puts.
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
        let mut rest = &*bytes;
        self.targets.for_each_run(bytes.len(), there, &mut |run, _, _| {
            let part = rest.split_off(..run.bytes * run.count).unwrap_or_default();
            self.targets.put_blocks(part, target, &run)
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
        fill_view(into.as_view_mut(), |bytes| self.targets.get_blocks(bytes, there))
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
    /// As of [`put_typed`](Self::put_typed); [`WindowError::Unsupported`] if a block is no whole number of elements, or if
    /// they have more than 8 bytes.
    pub fn accumulate_typed<T: Element>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        target: Rank,
        offset: usize,
        count: usize,
        datatype: &Datatype,
        operation: impl Into<AccumulateOperation>,
    ) -> Result<(), WindowError> {
        let update = operation.into().update(T::ELEMENT);
        let there = TargetElements { rank: target, offset, count, datatype };
        self.targets.update_blocks(update, size_of::<T>(), &bytes_of_view(&data.as_view())?, there)
    }
}

impl Targets {
    /// As [`accumulate_typed`](Self::accumulate_typed), for elements of `grain` bytes.
    pub(super) fn update_blocks(
        &self,
        update: ElementUpdate,
        grain: usize,
        bytes: &[u8],
        there: TargetElements<'_>,
    ) -> Result<(), WindowError> {
        if grain > ATOMIC_MAX {
            return Err(WindowError::Unsupported);
        }
        let expect_whole = &mut |run: WindowBlocks, first: usize, places: &Places| {
            if !run.bytes.is_multiple_of(grain) {
                return Err(WindowError::Unsupported);
            }
            let is_whole = |i| {
                let above = run.start(i).and_then(|start| start.checked_sub(first));
                above.is_some_and(|above| places.hold_elements(above, run.bytes, grain))
            };
            let are_whole = places.only().is_some() || (0..run.count).all(is_whole);
            if are_whole { Ok(()) } else { Err(WindowError::OutOfBounds(there.rank)) }
        };
        self.for_each_run(bytes.len(), there, expect_whole)?;
        let mut rest = bytes;
        self.for_each_run(bytes.len(), there, &mut |run, _, _| {
            let part = rest.split_off(..run.bytes * run.count).unwrap_or_default();
            self.update_strided(update, grain, part, None, there.rank, &run)
        })
    }

    fn get_blocks(&self, into: &mut [u8], there: TargetElements<'_>) -> Result<(), WindowError> {
        let (given, mut reads) = (into.len(), WindowReads::new(self, into));
        self.for_each_run(given, there, &mut |run, _, _| reads.read(there.rank, &run))?;
        reads.finish()
    }

    /// Calls `visit` with each run of blocks of the elements, in their order, the lowest byte of all, and their places,
    /// after all have been checked.
    fn for_each_run(
        &self,
        given: usize,
        there: TargetElements<'_>,
        visit: &mut dyn FnMut(WindowBlocks, usize, &Places) -> Result<(), WindowError>,
    ) -> Result<(), WindowError> {
        let outside = || WindowError::OutOfBounds(there.rank);
        let all = there.datatype.contiguous(there.count).map_err(|_| outside())?;
        if all.size() != given {
            return Err(WindowError::SizesDiffer { given, described: all.size() });
        }
        if given == 0 {
            return Ok(());
        }
        let (lower, _) = all.true_bounds();
        let first = there.offset.checked_add_signed(lower).ok_or_else(outside)?;
        let places = self.places(there.rank, first, all.true_extent(), 1)?;
        let mut result = Ok(());
        all.for_each_run(0, given, |Run { offset, bytes, count, stride }| {
            let start = there.offset.checked_add_signed(offset).ok_or_else(outside);
            result = start.and_then(|offset| visit(WindowBlocks { offset, bytes, count, stride }, first, &places));
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        result
    }
}
