//! An active collective over messages: its schedule, and the memory that it works on.

use core::any::Any;
use core::panic::AssertUnwindSafe;
use core::ptr::NonNull;

use unisono_core::collective::{CollectiveKind, CollectiveMachine as _, Failure, FailureCause, Poll};
use unisono_core::device::Memory as _;
use unisono_core::ids::{CollectiveId, Rank as Member};
use unisono_core::schedule::{BlockBuffer, BlockSpan, ByteRange, Fold, Layout, StepOperation};
use unisono_core::span::{Region, Span as Bytes};
use unisono_shmem::slot_collectives::CallRecord;
use unisono_shmem::slot_collectives::data_executor::ReductionOp;

use super::group_lanes::FirstTurns;
use super::machine::Machine;
use super::rdma_all_to_all::Exchange;
use super::scratch_pool::ScratchBlock;
use crate::world::collective::error::CollectiveError;
use crate::world::collective::partition::BlockTables;
use unisono_memory::memory_regions::{Address, Regions};

/// Bytes that are combined at a time where they are not adjacent.
const COPY_CHUNK: usize = 4096;

/// How a collective ended.
pub(in crate::world) struct Outcome {
    pub(in crate::world) result: Result<(), CollectiveError>,
    /// The payload of the user's reduction function's panic, if it panicked.
    pub(in crate::world) panic: Option<Panic>,
    /// That function, once it is no longer needed: dropping it runs user code, which must not run under the lock.
    pub(in crate::world) _combine: Option<Reducer>,
}

/// The payload of a panic.
pub(in crate::world) type Panic = Box<dyn Any + Send>;

impl Outcome {
    /// Returns the result, or resumes the panic of the user's function.
    pub(in crate::world) fn result(self) -> Result<(), CollectiveError> {
        match self.panic {
            // During another panic, resuming a second one would abort.
            Some(panic) if !std::thread::panicking() => std::panic::resume_unwind(panic),
            _ => self.result,
        }
    }
}

/// The reduction function, called wherever progress is made.
pub(in crate::world) type Reducer = Box<dyn ReductionOp + Send>;

/// The latest start of a collective; a persistent one has several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::world) struct CollectiveStart {
    /// Its number among the collectives of the communicator that the user has called.
    pub(in crate::world) call: u32,
    pub(in crate::world) at: u64,
    /// Since when a thread waits for its end.
    pub(in crate::world) waited_since: Option<u64>,
    /// The turns of its first steps in this rank's subgroups.
    pub(in crate::world) first_turns: FirstTurns,
}

/// A collective that was prepared or started.
pub(in crate::world) struct ActiveCollective {
    pub(in crate::world) executor: Machine,
    pub(in crate::world) layout: Layout<'static>,
    /// The tables that the layout refers to.
    pub(in crate::world) _tables: Option<BlockTables>,
    /// The user buffers; the same region twice where it is one buffer.
    pub(in crate::world) input: Region,
    pub(in crate::world) output: Region,
    pub(in crate::world) scratch: Option<ScratchBlock>,
    pub(in crate::world) reducer: Reducer,
    /// The context of its messages.
    pub(in crate::world) context: u32,
    pub(in crate::world) start: CollectiveStart,
    /// Whether it is in the queue of collectives to advance.
    pub(in crate::world) is_queued: bool,
    /// What it exchanges, if it is part of an alltoall by remote writes.
    pub(in crate::world) exchange: Option<Exchange>,
    /// The call that this rank published for it in shared memory, while it waits.
    pub(in crate::world) call_record: Option<CallRecord>,
    /// Whether it is persistent; one that failed no longer is.
    pub(in crate::world) is_persistent: bool,
    /// How it ended, or that it was not started; `None`: it is under way.
    pub(in crate::world) ended: Option<Result<(), CollectiveError>>,
    /// The payload of the panic of a user's function.
    pub(in crate::world) panic: Option<Box<dyn Any + Send>>,
}

/// A span outside the buffers, which no correct schedule names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) struct InvalidSpan;

impl ActiveCollective {
    /// Executes copies and reductions, and returns the next message operation, or why there is none.
    pub(in crate::world) fn advance(&mut self, regions: &Regions) -> Result<Poll<StepOperation>, InvalidSpan> {
        loop {
            let (step, done) = match self.executor.poll() {
                Poll::Request(step, StepOperation::Copy { from, into }) => (step, self.copy(from, into, regions)),
                Poll::Request(step, StepOperation::Reduce { from, into, fold }) => {
                    (step, self.reduce(from, into, fold, regions))
                }
                turn => return Ok(turn),
            };
            done?;
            self.executor.handle_done(step);
        }
    }

    /// Bytes of a message, and its span if it is contiguous.
    pub(in crate::world) fn message_extent(&self, span: BlockSpan) -> (usize, Option<Bytes>) {
        let mut pieces = self.layout.pieces(span);
        let Some(first) = pieces.next() else { return (0, Some(Bytes::default())) };
        match pieces.next() {
            None => (first.bytes, self.bytes(first)),
            Some(second) => {
                let rest: usize = pieces.map(|piece| piece.bytes).sum();
                (first.bytes.saturating_add(second.bytes).saturating_add(rest), None)
            }
        }
    }

    /// Gathers a message: calls `put` with the address of each part, in order.
    pub(in crate::world) fn gather(
        &self,
        span: BlockSpan,
        regions: &Regions,
        mut put: impl FnMut(Address),
    ) -> Result<(), InvalidSpan> {
        for piece in self.layout.pieces(span) {
            put(self.address(piece, regions)?);
        }
        Ok(())
    }

    /// Copies a message's bytes to contiguous memory.
    pub(in crate::world) fn pack(
        &self,
        span: BlockSpan,
        to: NonNull<[u8]>,
        regions: &Regions,
    ) -> Result<(), InvalidSpan> {
        let mut at = 0;
        self.gather(span, regions, |from| {
            let bytes = from.bytes().min(to.len() - at);
            // SAFETY: within `to`, as the line above says.
            let into = unsafe { to.cast::<u8>().add(at) };
            // SAFETY: the buffers are borrowed by this collective, whose schedule lets nobody write them now; `to` is
            // memory of the process that nobody else uses: another object.
            unsafe { from.read_to(0, into, bytes) };
            at += bytes;
        })
    }

    /// Copies a message's bytes from contiguous memory.
    pub(in crate::world) fn unpack(
        &self,
        from: NonNull<[u8]>,
        span: BlockSpan,
        regions: &Regions,
    ) -> Result<(), InvalidSpan> {
        let mut at = 0;
        self.gather(span, regions, |to| {
            let bytes = to.bytes().min(from.len() - at);
            // SAFETY: within `from`, as the line above says.
            let here = unsafe { from.cast::<u8>().add(at) };
            // SAFETY: the buffers are borrowed by this collective, whose schedule lets this step alone write there now;
            // `from` is memory of the process that nobody writes meanwhile: another object.
            unsafe { to.write_from(0, here, bytes) };
            at += bytes;
        })
    }

    fn copy(&self, from: BlockSpan, into: BlockSpan, regions: &Regions) -> Result<(), InvalidSpan> {
        for (from, into) in self.layout.pairs(from, into) {
            let (from, into) = (self.address(from, regions)?, self.address(into, regions)?);
            // SAFETY: borrowed by this collective, whose schedule lets nobody else use them now; they may overlap in
            // place.
            unsafe { into.copy_from(from) };
        }
        Ok(())
    }

    fn reduce(&mut self, from: BlockSpan, into: BlockSpan, fold: Fold, regions: &Regions) -> Result<(), InvalidSpan> {
        let layout = self.layout;
        for (from, into) in layout.pairs(from, into) {
            let (from, into) = (self.address(from, regions)?, self.address(into, regions)?);
            match (from.adjacent(), into.adjacent()) {
                (Some(source), Some(target)) => {
                    self.fold(source, target, fold, from.bytes().min(into.bytes()));
                }
                _ => self.reduce_scattered(from, into, fold),
            }
        }
        Ok(())
    }

    /// As [`reduce`](Self::reduce), of bytes that are not adjacent: through copies of a few elements at a time.
    #[cold]
    fn reduce_scattered(&mut self, from: Address, into: Address, fold: Fold) {
        let grain = self.executor.plan().grain().max(1);
        let (bytes, chunk) = (from.bytes().min(into.bytes()), (COPY_CHUNK / grain).max(1).saturating_mul(grain));
        let mut copies = [vec![0_u8; chunk.min(bytes)], vec![0_u8; chunk.min(bytes)]];
        let [source, target] = copies.each_mut().map(|copy| NonNull::from(copy.as_mut_slice()).cast::<u8>());
        for at in (0..bytes).step_by(chunk) {
            let length = chunk.min(bytes - at);
            // SAFETY: the copy has as many bytes; borrowed by this collective, whose schedule lets nobody else use them.
            unsafe { from.read_to(at, source, length) };
            // SAFETY: the copy has as many bytes; borrowed by this collective, whose schedule lets nobody else use them.
            unsafe { into.read_to(at, target, length) };
            self.fold(source, target, fold, length);
            // SAFETY: the copy has as many bytes; borrowed by this collective, whose schedule lets nobody else use them.
            unsafe { into.write_from(at, target, length) };
        }
    }

    fn fold(&mut self, from: NonNull<u8>, into: NonNull<u8>, fold: Fold, bytes: usize) {
        let (left, right) = match fold {
            Fold::Left => (from, into),
            Fold::Right => (into, from),
        };
        self.operate(left, right, into, bytes);
    }

    /// Calls the reduction function, which may panic in a thread that does not wait for it: the waiting thread gets the
    /// panic. It is not called again: one panic is kept, and another one, dropped here, might itself panic.
    pub(in crate::world) fn operate(&mut self, left: NonNull<u8>, right: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
        if self.panic.is_some() {
            return;
        }
        let combine = AssertUnwindSafe(&mut self.reducer);
        let operated = std::panic::catch_unwind(move || {
            let AssertUnwindSafe(combine) = { combine };
            // SAFETY: both are valid for the combined length, and borrowed by this collective; a schedule combines
            // blocks that are the same or apart.
            unsafe { combine.combine(left, right, into, bytes) }
        });
        if let Err(panic) = operated {
            self.panic = Some(panic);
        }
    }

    fn bytes(&self, piece: ByteRange) -> Option<Bytes> {
        let region = match piece.buffer {
            BlockBuffer::Input => self.input,
            BlockBuffer::Output => self.output,
            BlockBuffer::Scratch => self.scratch?.region,
        };
        Some(Bytes { region, offset: piece.offset, bytes: u32::try_from(piece.bytes).ok()? })
    }

    fn address(&self, piece: ByteRange, regions: &Regions) -> Result<Address, InvalidSpan> {
        self.bytes(piece).and_then(|bytes| regions.address(bytes)).ok_or(InvalidSpan)
    }

    /// The collective's identity.
    pub(in crate::world) fn name(&self) -> CollectiveName {
        CollectiveName { id: self.executor.id(), verb: self.executor.collective(), call: self.start.call }
    }
}

/// The identity of a collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) struct CollectiveName {
    pub(in crate::world) id: CollectiveId,
    pub(in crate::world) verb: CollectiveKind,
    /// Its number among the collectives of the communicator that the user has called.
    pub(in crate::world) call: u32,
}

impl CollectiveName {
    /// A failure of this collective, numbered as the user's.
    pub(in crate::world) const fn failure(self, rank: Member, cause: FailureCause) -> Failure {
        let id = CollectiveId { sequence: self.call, ..self.id };
        Failure { rank, cause, id, collective: self.verb }
    }
}
