//! Accumulates, and atomic operations on an element.

use unisono_core::rma::Rights;
use unisono_core::rma::atomic::{AtomicKind, AtomicOperation, Width};
use unisono_core::rma::header::ElementUpdate;
use unisono_core::rma::operation::RmaRequest;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::copies::bytes_of_view;
use super::memory::{WindowMemory, width_of};
use super::place::Place;
use super::raw::RawUpdate;
use super::remote::{of, remote_span};
use super::targets::{Access, Targets};
use super::{AccumulateOperation, Window, WindowError};
use crate::world::collective::{AsView, Element, SystemOperation};
use crate::world::process::remote_access::{CallEnd, CallMemory};
use unisono_bootstrap::Rank;

impl Window {
    /// Combines the elements in the memory of a rank, from byte `offset` on, with `data`, a slice or the elements of a
    /// [`View`](crate::collective::View), each atomically (`MPI_Accumulate`). Done after the next flush. Accumulates of one rank on the same elements are executed in
    /// order. Elements of more than 8 bytes take several round trips, for which this call waits.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (window, mut sum) = (world.allocate_window(8)?, [0_u64]);
    /// window.accumulate(&[1_u64], Rank(0), 0, SystemOperation::sum())?;
    /// window.fence()?;
    /// window.get(&mut sum, Rank(0), 0)?;
    /// assert_eq!(sum, [u64::from(world.size())]);
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`]; errors that the target reports are those of the flush.
    pub fn accumulate<T: Element>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        target: Rank,
        offset: usize,
        operation: impl Into<AccumulateOperation>,
    ) -> Result<(), WindowError> {
        let update = RawUpdate::of::<T>(operation.into());
        self.raw_update(update, &bytes_of_view(&data.as_view())?, None, target, offset)
    }

    /// As [`accumulate`](Self::accumulate), and returns the old elements in `result`, as many as `data` has
    /// (`MPI_Get_accumulate`, and a flush of it).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (window, mut old) = (world.allocate_window(16)?, [9_u64; 2]);
    /// window.get_accumulate(&[1_u64, 2], &mut old, world.rank(), 0, AccumulateOperation::Replace)?;
    /// assert_eq!(old, [0, 0]);
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`]; [`WindowError::Unsupported`] if the lengths differ.
    pub fn get_accumulate<T: Element>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        result: &mut [T],
        target: Rank,
        offset: usize,
        operation: impl Into<AccumulateOperation>,
    ) -> Result<(), WindowError> {
        let update = RawUpdate::of::<T>(operation.into());
        self.raw_update(update, &bytes_of_view(&data.as_view())?, Some(result.as_mut_bytes()), target, offset)
    }

    /// Combines one element atomically, and returns its old value (`MPI_Fetch_and_op`, and a flush of it).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(8)?;
    /// let ticket = window.fetch_and_op(1_u64, Rank(0), 0, SystemOperation::sum())?;
    /// assert!(ticket < u64::from(world.size()));
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn fetch_and_op<T: Element>(
        &self,
        value: T,
        target: Rank,
        offset: usize,
        operation: impl Into<AccumulateOperation>,
    ) -> Result<T, WindowError> {
        let mut old = value;
        let update = RawUpdate::of::<T>(operation.into());
        self.raw_fetch_and_op(update, value.as_bytes(), old.as_mut_bytes(), target, offset)?;
        Ok(old)
    }

    /// Stores `new` if the element equals `expected`, atomically, and returns its old value (`MPI_Compare_and_swap`,
    /// and a flush of it). Bytes are compared. The 4 aligned bytes that an element of 1 or 2 bytes is among are in the
    /// window as well.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(8)?;
    /// assert_eq!(window.compare_and_swap(0_u64, 5, world.rank(), 0)?, 0);
    /// assert_eq!(window.compare_and_swap(0_u64, 6, world.rank(), 0)?, 5);
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`]; [`WindowError::Unsupported`] for elements of more than 8 bytes.
    pub fn compare_and_swap<T: Element>(
        &self,
        expected: T,
        new: T,
        target: Rank,
        offset: usize,
    ) -> Result<T, WindowError> {
        let words = [word_of(&expected), word_of(&new)];
        element_of(self.targets.compare_and_swap(words, size_of::<T>(), target, offset)?)
    }
}

impl Targets {
    /// Combines one element, and returns its old value.
    pub(in crate::world) fn fetch_and_op<T: Element>(
        &self,
        value: T,
        target: Rank,
        offset: usize,
        operation: AccumulateOperation,
    ) -> Result<T, WindowError> {
        let mut old = value;
        self.fetch_element(RawUpdate::of::<T>(operation), value.as_bytes(), old.as_mut_bytes(), target, offset)?;
        Ok(old)
    }

    /// Combines one element of at most 8 bytes; the old one goes to `old`, which is as long.
    pub(super) fn fetch_element(
        &self,
        RawUpdate { operation, element }: RawUpdate,
        operand: &[u8],
        old: &mut [u8],
        target: Rank,
        offset: usize,
    ) -> Result<(), WindowError> {
        let (bytes, word) = (element.bytes(), word_of_bytes(operand));
        let is_integer = element as u8 <= unisono_shmem::reduction_ops::Element::U64 as u8;
        let kind = match operation {
            AccumulateOperation::Replace => Some(AtomicKind::Swap { swap: word, mask: u64::MAX }),
            AccumulateOperation::NoOp => Some(AtomicKind::FetchAdd { add: 0, boundaries: 0 }),
            AccumulateOperation::Reduce(sum) if is_integer && sum == SystemOperation::sum() => {
                Some(AtomicKind::FetchAdd { add: word, boundaries: 0 })
            }
            AccumulateOperation::Reduce(_) => None,
        };
        let (Some(kind), Some(width)) = (kind, width_of(bytes)) else {
            return self.update(operation.update(element), bytes, operand, Some(old), target, offset);
        };
        let word = self.atomic(target, offset, AtomicOperation { width, kind })?.to_le_bytes();
        old.iter_mut().zip(word).for_each(|(into, byte)| *into = byte);
        Ok(())
    }

    /// Stores a new element of `bytes` bytes if the old one, which it returns, is expected; words are zero-extended.
    pub(in crate::world) fn compare_and_swap(
        &self,
        [compare, swap]: [u64; 2],
        bytes: usize,
        target: Rank,
        offset: usize,
    ) -> Result<u64, WindowError> {
        if let Some(width) = width_of(bytes) {
            let kind = AtomicKind::CompareSwap { compare, swap };
            return self.atomic(target, offset, AtomicOperation { width, kind });
        }
        if !matches!(bytes, 1 | 2) {
            return Err(WindowError::Unsupported);
        }
        if !offset.is_multiple_of(bytes) {
            return Err(WindowError::Misaligned(target));
        }
        let (access, offset) = self.access(target, offset, bytes)?;
        // A part of a word.
        let (shift, first) = (8 * (offset & 3), offset & !3);
        let mask = if bytes == 1 { 0xff } else { 0xffff } << shift;
        let (compare, swap) = (compare << shift, swap << shift);
        let kind = AtomicKind::MaskedCompareSwap { compare, swap, compare_mask: mask, swap_mask: mask };
        let width = Width::Bits32;
        let old = self.atomic_at(target, access, first, AtomicOperation { width, kind })? >> shift;
        Ok(old & (mask >> shift))
    }

    /// Combines elements of `grain` bytes; with `old`, waits for the old ones.
    pub(in crate::world) fn update(
        &self,
        update: ElementUpdate,
        grain: usize,
        mut bytes: &[u8],
        mut old: Option<&mut [u8]>,
        target: Rank,
        offset: usize,
    ) -> Result<(), WindowError> {
        for place in self.places(target, offset, bytes.len(), grain)? {
            let part = bytes.split_off(..place.bytes).unwrap_or_default();
            let old = old.as_mut().map(|old| old.split_off_mut(..place.bytes).unwrap_or_default());
            self.update_place(update, grain, part, old, target, place)?;
        }
        Ok(())
    }

    /// As [`update`](Self::update), of the elements at one place.
    pub(super) fn update_place(
        &self,
        update: ElementUpdate,
        grain: usize,
        bytes: &[u8],
        old: Option<&mut [u8]>,
        target: Rank,
        Place { access, offset, .. }: Place,
    ) -> Result<(), WindowError> {
        if old.is_some() && !matches!(access, Access::Remote(..)) {
            self.make_progress(false);
        }
        let (there, key) = match access {
            Access::Own(memory) => return self.locked(|| memory.combine_from(offset, update, bytes, old), target),
            Access::Direct(memory) => return of(memory.combine_from(offset, update, bytes, old), target),
            Access::Keyed(key) => {
                let (at, combine) =
                    (remote_span(key, offset), |memory: WindowMemory| memory.combine_from(0, update, bytes, old));
                return self.keyed(at, bytes.len(), Rights::ATOMIC, combine);
            }
            Access::Remote(there, key) => (there, key),
        };
        let step = self.step(grain, there)?;
        let parts = (0..).map(|i| remote_span(key, offset + i * step)).zip(bytes.chunks(step));
        match old {
            Some(old) => {
                let request = |from, into| RmaRequest::Accumulate { from, update, result: Some(into), stride: None };
                for ((at, part), into) in parts.zip(old.chunks_mut(step)) {
                    self.fetch_remote(part, into, target, there, at, request)?;
                }
            }
            None => {
                for (at, part) in parts {
                    let request = |from| RmaRequest::Accumulate { from, update, result: None, stride: None };
                    self.start(there, at, part, CallEnd::Flush, request)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn atomic(&self, target: Rank, offset: usize, operation: AtomicOperation) -> Result<u64, WindowError> {
        let (access, offset) = self.access(target, offset, operation.width.bytes().into())?;
        self.atomic_at(target, access, offset, operation)
    }

    /// Updates a word that begins inside the window.
    pub(super) fn atomic_at(
        &self,
        target: Rank,
        access: Access,
        offset: usize,
        operation: AtomicOperation,
    ) -> Result<u64, WindowError> {
        match access {
            Access::Own(memory) | Access::Direct(memory) => {
                self.make_progress(false);
                of(memory.atomic(offset, operation), target)
            }
            Access::Keyed(key) => {
                let (at, bytes) = (remote_span(key, offset), operation.width.bytes().into());
                self.make_progress(false);
                self.keyed(at, bytes, Rights::ATOMIC, |memory| memory.atomic(0, operation))
            }
            Access::Remote(there, key) => {
                let at = remote_span(key, offset);
                let request = RmaRequest::Atomic(operation);
                let started = self.start_when_room(there, |process| {
                    process.start_remote(self.number, there, at, request, CallMemory::Nothing, CallEnd::Request)
                })?;
                self.wait(started, target, there)
            }
        }
    }

    /// Bytes of the longest accumulate of elements of `grain` bytes in one request.
    pub(super) fn step(&self, grain: usize, there: Rank) -> Result<usize, WindowError> {
        let room = self.communicator.shared.lock().remote_room(there, false);
        let step = room.checked_div(grain).unwrap_or(0) * grain;
        // A rank that is gone has no room: the start of an operation reports why.
        Ok(if step == 0 { grain.max(1) } else { step })
    }
}

/// The bytes of an element of at most 8 bytes, zero-extended.
pub(in crate::world) fn word_of<T: IntoBytes + Immutable>(value: &T) -> u64 {
    word_of_bytes(value.as_bytes())
}

fn word_of_bytes(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.iter_mut().zip(bytes).for_each(|(into, byte)| *into = *byte);
    u64::from_le_bytes(word)
}

pub(in crate::world) fn element_of<T: FromBytes>(word: u64) -> Result<T, WindowError> {
    let bytes = word.to_le_bytes();
    let bytes = bytes.get(..size_of::<T>()).ok_or(WindowError::Unsupported)?;
    T::read_from_bytes(bytes).map_err(|_| WindowError::Unsupported)
}
