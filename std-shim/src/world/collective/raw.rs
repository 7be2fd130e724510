//! Raw collectives: calls on memory that the caller answers for, without a scope and without an element type. Other
//! programming interfaces, such as the MPI library, are built on them.

use alloc::sync::Arc;
use core::ptr::NonNull;

use unisono_core::collective::{CollectiveKind, CollectiveSpec, Order};
use unisono_core::ids::Rank as Member;
use unisono_shmem::slot_collectives::data_executor::ReductionOp;

use super::arguments::CollectiveArgs;
use super::error::CollectiveError;
use super::intra_node::CallMemory;
use super::pack::Layouts;
use super::partition::{BlockTable, BlockTables, Shape};
use crate::world::communicator::Communicator;
use crate::world::progress::WaitFor;
use unisono_bootstrap::Rank;

/// One block per rank, of any length: lengths, and offsets of the first bytes, in bytes.
#[derive(Clone, Debug, Default)]
pub struct RawBlocks {
    /// Lengths.
    pub bytes: Vec<usize>,
    /// Offsets.
    pub at: Vec<usize>,
}

/// A collective call. Buffers are contiguous, except for blocks of different lengths.
#[derive(Debug)]
pub struct RawCollective {
    /// The collective.
    pub collective: CollectiveKind,
    /// The root, or 0.
    pub root: Rank,
    /// Bytes of a block; where blocks differ and all ranks know all of them, their mean, else 0.
    pub bytes: usize,
    /// What is sent; unused in place.
    pub input: NonNull<[u8]>,
    /// What is received, or both in place.
    pub output: NonNull<[u8]>,
    /// Whether there is one buffer, on all ranks.
    pub in_place: bool,
    /// Where blocks differ in length: those of the input and of the output, if there are several, and the bytes of the
    /// single block of the other buffer.
    pub blocks: Option<(Option<RawBlocks>, Option<RawBlocks>, usize)>,
    /// Bytes of an element that is never divided.
    pub grain: usize,
    /// The order in which elements are reduced.
    pub order: Order,
    /// A digest of the operation and the type, equal on all ranks.
    pub reduction_id: u32,
}

#[doc(hidden)]
impl Communicator {
    /// # Safety
    /// The buffers are valid, the output exclusively, as long as the result lives.
    unsafe fn raw_arguments<'b>(&self, call: RawCollective) -> Result<CollectiveArgs<'b>, CollectiveError> {
        let RawCollective { collective, root, bytes, input, mut output, in_place, blocks, grain, order, reduction_id } =
            call;
        let root = self.root(root)?;
        let plan = CollectiveSpec {
            collective,
            rank: Member(self.rank.0),
            size: self.size,
            root: Member(root.0),
            bytes,
            grain: grain.max(1),
            order,
            in_place: in_place && collective != CollectiveKind::Broadcast,
            reduction_id,
        };
        // SAFETY: the caller promises that it is valid and exclusive.
        let output = unsafe { output.as_mut() };
        let buffers = if in_place {
            CallMemory::InPlace(output)
        } else {
            // SAFETY: the caller promises that it is valid.
            CallMemory::Separate(unsafe { input.as_ref() }, output)
        };
        let table =
            |blocks: RawBlocks| Arc::new(BlockTable { bytes: blocks.bytes.into(), at: blocks.at.into(), rows: None });
        let tables =
            blocks.map(|(input, output, own)| BlockTables { input: input.map(table), output: output.map(table), own });
        Ok(CollectiveArgs { plan, buffers, shape: Shape { tables, layouts: Layouts::default() } })
    }

    /// Runs a collective.
    ///
    /// # Errors
    /// [`CollectiveError`].
    ///
    /// # Safety
    /// The buffers are valid, and nobody else uses the output. Each has the bytes that the collective needs, and blocks
    /// lie within them.
    pub unsafe fn raw_collective(
        &self,
        call: RawCollective,
        operate: impl ReductionOp + Send,
    ) -> Result<(), CollectiveError> {
        // SAFETY: the caller promises that the buffers are valid during this call.
        let arguments = unsafe { self.raw_arguments(call) }?;
        self.run(arguments, operate)
    }

    /// Starts a collective. `None`: it has ended.
    ///
    /// # Errors
    /// [`CollectiveError`].
    ///
    /// # Safety
    /// As for [`raw_collective`](Self::raw_collective), until the collective has ended.
    pub unsafe fn raw_begin(
        &self,
        call: RawCollective,
        operate: impl ReductionOp + Send + 'static,
    ) -> Result<Option<u32>, CollectiveError> {
        // SAFETY: the caller promises that the buffers are valid until the collective has ended.
        let arguments = unsafe { self.raw_arguments(call) }?;
        let digest = self.record(arguments.description());
        if arguments.is_single_rank() {
            return self.copy_alone(arguments).map(|()| None);
        }
        // SAFETY: the caller promises that the buffers are valid until the collective has ended.
        let begun = unsafe { self.begin(arguments, digest, Box::new(operate), |_, _| ()) }?;
        self.shared.wake_progress_thread();
        Ok(Some(begun))
    }

    /// Waits for a collective that was begun.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn raw_wait_collective(&self, begun: u32) -> Result<(), CollectiveError> {
        let outcome = self.shared.wait_until(WaitFor::AnyRank, |process| process.outcome(begun));
        outcome.result().map_err(|error| self.explained(error))
    }

    /// Makes progress once, and returns the result of a collective that has ended.
    pub fn raw_test_collective(&self, begun: u32) -> Option<Result<(), CollectiveError>> {
        self.has_ended(begun).then(|| self.raw_wait_collective(begun))
    }

    /// Makes progress once, and returns whether a collective has ended.
    pub fn raw_is_collective_done(&self, begun: u32) -> bool {
        self.has_ended(begun)
    }
}
