//! Updates of elements whose type and operation are known at run time, and a lock of the library's own: what other
//! programming interfaces build their accumulates on.

use unisono_datatype::Datatype;
use unisono_shmem::reduction_ops::{Element, ReduceOperation};
use zerocopy::{FromBytes, IntoBytes};

use super::blocks::{WindowBlocks, WindowReads};
use super::request::zeroed;
use super::target_datatype::TargetElements;
use super::targets::Targets;
use super::{AccumulateOperation, GetRequest, LockKind, PutRequest, Window, WindowError};
use crate::world::collective::{Element as TypedElement, SystemOperation};
use unisono_bootstrap::Rank;

/// An update of elements of one type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawUpdate {
    pub(super) operation: AccumulateOperation,
    pub(super) element: Element,
}

impl RawUpdate {
    /// `operation` or, if there is none, a replacement.
    pub fn new(operation: Option<ReduceOperation>, element: Element) -> Self {
        let reduce = |operation| AccumulateOperation::Reduce(SystemOperation::from(operation));
        Self { operation: operation.map_or(AccumulateOperation::Replace, reduce), element }
    }

    /// `operation` on elements of a type.
    pub(super) const fn of<T: TypedElement>(operation: AccumulateOperation) -> Self {
        Self { operation, element: T::ELEMENT }
    }

    /// A read: each element is read atomically.
    pub const fn read(element: Element) -> Self {
        Self { operation: AccumulateOperation::NoOp, element }
    }
}

#[doc(hidden)]
impl Window {
    /// Combines the elements in the memory of a rank, from byte `offset` on, with those in `bytes`, each atomically.
    /// With `old`, waits for the old elements; it must be as long.
    ///
    /// # Errors
    /// [`WindowError`]; [`WindowError::Unsupported`] if the operation is not defined for the elements, or if the lengths
    /// differ.
    pub fn raw_update(
        &self,
        update: RawUpdate,
        bytes: &[u8],
        old: Option<&mut [u8]>,
        target: Rank,
        offset: usize,
    ) -> Result<(), WindowError> {
        if old.as_ref().is_some_and(|old| old.len() != bytes.len()) {
            return Err(WindowError::Unsupported);
        }
        if update.is_wide() {
            return self.update_wide(update, bytes, old, target, offset);
        }
        self.targets.raw_update(update, bytes, old, target, offset)
    }

    /// As [`raw_update`](Self::raw_update) of one element.
    ///
    /// # Errors
    /// As of [`raw_update`](Self::raw_update).
    pub fn raw_fetch_and_op(
        &self,
        update: RawUpdate,
        operand: &[u8],
        old: &mut [u8],
        target: Rank,
        offset: usize,
    ) -> Result<(), WindowError> {
        let bytes = update.element.bytes();
        if operand.len() != bytes || old.len() != bytes {
            return Err(WindowError::Unsupported);
        }
        if update.is_wide() {
            return self.update_wide(update, operand, Some(old), target, offset);
        }
        self.targets.fetch_element(update, operand, old, target, offset)
    }

    /// As [`raw_update`](Self::raw_update) without `old`, into `count` elements of a datatype, the first of which is at
    /// byte `offset`.
    ///
    /// # Errors
    /// As of [`accumulate_typed`](Self::accumulate_typed).
    pub fn raw_update_typed(
        &self,
        update: RawUpdate,
        bytes: &[u8],
        target: Rank,
        offset: usize,
        count: usize,
        datatype: &Datatype,
    ) -> Result<(), WindowError> {
        let (grain, there) = (update.element.bytes(), TargetElements { rank: target, offset, count, datatype });
        self.targets.update_blocks(update.operation.update(update.element), grain, bytes, there)
    }

    /// Compares and swaps an element of `bytes` bytes, in words that are zero-extended. Returns the old one.
    ///
    /// # Errors
    /// As [`compare_and_swap`](Self::compare_and_swap).
    pub fn raw_compare_and_swap(
        &self,
        words: [u64; 2],
        bytes: usize,
        target: Rank,
        offset: usize,
    ) -> Result<u64, WindowError> {
        self.targets.compare_and_swap(words, bytes, target, offset)
    }

    /// Copies packed bytes to blocks in the memory of a rank. Done after the next flush.
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn raw_put_blocks(&self, packed: &[u8], target: Rank, blocks: &WindowBlocks) -> Result<(), WindowError> {
        self.targets.put_blocks(packed, target, blocks)
    }

    /// Reads of blocks, which fill `packed` in the order in which they are started.
    pub const fn raw_reads<'w, 'p>(&'w self, packed: &'p mut [u8]) -> WindowReads<'w, 'p> {
        WindowReads::new(&self.targets, packed)
    }

    /// As [`raw_update`](Self::raw_update), of the elements in blocks, each of which has whole elements.
    ///
    /// # Errors
    /// As of [`raw_update`](Self::raw_update); [`WindowError::Unsupported`] if elements have more than 8 bytes.
    pub fn raw_update_blocks(
        &self,
        update: RawUpdate,
        packed: &[u8],
        old: Option<&mut [u8]>,
        target: Rank,
        blocks: &WindowBlocks,
    ) -> Result<(), WindowError> {
        if old.as_ref().is_some_and(|old| old.len() != packed.len()) {
            return Err(WindowError::Unsupported);
        }
        let grain = update.element.bytes();
        self.targets.update_strided(update.operation.update(update.element), grain, packed, old, target, blocks)
    }

    /// As [`raw_update`](Self::raw_update), with a request, which copies the bytes.
    ///
    /// # Errors
    /// As of [`raw_update`](Self::raw_update).
    pub fn raw_request_update(
        &self,
        update: RawUpdate,
        bytes: &[u8],
        target: Rank,
        offset: usize,
    ) -> Result<PutRequest<'_>, WindowError> {
        if update.is_wide() {
            self.update_wide(update, bytes, None, target, offset)?;
            return Ok(self.targets.updated(target));
        }
        let grain = update.element.bytes();
        self.targets.request_update(update.operation.update(update.element), grain, bytes, target, offset)
    }

    /// As [`raw_request_update`](Self::raw_request_update); the request returns the old elements.
    ///
    /// # Errors
    /// As of [`raw_update`](Self::raw_update).
    pub fn raw_request_fetch(
        &self,
        update: RawUpdate,
        bytes: &[u8],
        target: Rank,
        offset: usize,
    ) -> Result<GetRequest<'_, u8>, WindowError> {
        self.request_fetch(update, bytes, target, offset)
    }

    /// As [`raw_request_fetch`](Self::raw_request_fetch), of any elements.
    pub(super) fn request_fetch<T: FromBytes + IntoBytes>(
        &self,
        update: RawUpdate,
        bytes: &[u8],
        target: Rank,
        offset: usize,
    ) -> Result<GetRequest<'_, T>, WindowError> {
        if update.is_wide() {
            let mut old: Vec<T> = zeroed(bytes.len() / size_of::<T>());
            self.update_wide(update, bytes, Some(old.as_mut_slice().as_mut_bytes()), target, offset)?;
            return Ok(self.targets.fetched(target, old));
        }
        let grain = update.element.bytes();
        self.targets.request_fetch(update.operation.update(update.element), grain, bytes, target, offset)
    }

    /// Holds a rank's lock of updates that no instruction executes, and waits for it. It is another one than that of
    /// [`lock`](Self::lock).
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn raw_hold(&self, target: Rank) -> Result<(), WindowError> {
        self.acquire(super::epochs::UPDATE_LOCK, LockKind::Exclusive, target)
    }

    /// Releases the lock that [`raw_hold`](Self::raw_hold) holds, after a flush.
    ///
    /// # Errors
    /// As [`unlock`](Self::unlock).
    pub fn raw_release(&self, target: Rank) -> Result<(), WindowError> {
        self.release(super::epochs::UPDATE_LOCK, LockKind::Exclusive, target)
    }
}

impl Targets {
    pub(in crate::world) fn raw_update(
        &self,
        update: RawUpdate,
        bytes: &[u8],
        old: Option<&mut [u8]>,
        target: Rank,
        offset: usize,
    ) -> Result<(), WindowError> {
        if old.as_ref().is_some_and(|old| old.len() != bytes.len()) {
            return Err(WindowError::Unsupported);
        }
        let grain = update.element.bytes();
        self.update(update.operation.update(update.element), grain, bytes, old, target, offset)
    }
}
