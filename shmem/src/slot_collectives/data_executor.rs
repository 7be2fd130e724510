//! Executes the data operations of collectives in shared memory through raw pointers. Besides the segment and the
//! reduction kernels the only file that touches payload; no reference to shared bytes is ever made.

use core::marker::PhantomData;
use core::ptr::NonNull;

use unisono_core::collective::{DataExecutor, Piece, Place};
use unisono_core::ids::Rank;

use crate::copy::{copy, copy_out};
use crate::reduction_ops::{Element, Kernel, ReduceOperation, kernel};
use crate::segment::{Segment, SharedBytes};
use crate::slot_collectives::data_op::DataOp;

/// A reduction operation over raw memory.
pub trait ReductionOp {
    /// into = left · right, over `bytes` bytes.
    ///
    /// # Safety
    /// Operands are readable and `into` is writable for `bytes` bytes, aligned or not; `into` is disjoint from each
    /// operand or the same. Operands may be shared memory, which others write meanwhile.
    unsafe fn combine(&mut self, left: NonNull<u8>, right: NonNull<u8>, into: NonNull<u8>, bytes: usize);
}

impl<O: ReductionOp + ?Sized> ReductionOp for &mut O {
    unsafe fn combine(&mut self, left: NonNull<u8>, right: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
        // SAFETY: the same operands under the same contract, which the caller keeps.
        unsafe { (**self).combine(left, right, into, bytes) };
    }
}

/// Access to the memory of other ranks, and the copy into the segment.
pub trait RemoteMemory {
    /// Copies `bytes` bytes at `address` of a rank's memory to `into`.
    ///
    /// # Errors
    /// [`DataError::Unreadable`].
    ///
    /// # Safety
    /// `into` is writable for `bytes` bytes. The address may be anything.
    unsafe fn pull(&mut self, of: Rank, address: u64, into: NonNull<u8>, bytes: usize) -> Result<(), DataError>;

    /// Copies `bytes` bytes into the segment, where other ranks read them.
    ///
    /// # Safety
    /// `from` is valid for reads and `into` for writes of `bytes` bytes, and they are disjoint.
    unsafe fn copy_to_shared(&mut self, from: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller promises that `from` is readable and `into` writable for `bytes` bytes, and that they are
        // disjoint.
        unsafe { into.copy_from_nonoverlapping(from, bytes) };
    }
}

/// Why a data operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DataError {
    /// It names bytes outside of a buffer, or blocks that overlap where they must not.
    Bounds,
    /// The memory of this rank cannot be read.
    Unreadable(Rank),
}

impl core::fmt::Display for DataError {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Bounds => to.write_str("a collective's block exceeds its buffer or overlaps another one"),
            Self::Unreadable(rank) => write!(
                to,
                "the memory of rank {} cannot be read directly; it may have exited, or ptrace access is denied",
                rank.0
            ),
        }
    }
}

impl core::error::Error for DataError {}

/// A built-in reduction operation on one element type.
///
/// Kernel and element size belong together, so nobody can state them apart:
/// ```compile_fail,E0451
/// use unisono_shmem::reduction_ops::{Element, ReduceOperation, kernel};
/// let kernel = kernel(ReduceOperation::Sum, Element::F64).unwrap();
/// let wrong = unisono_shmem::slot_collectives::data_executor::Builtin { kernel, grain: 1 };
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    kernel: Kernel,
    /// Bytes of an element.
    grain: usize,
}

impl Builtin {
    /// The operation on this type. `None`: the type has no such operation.
    #[inline]
    pub fn new(operation: ReduceOperation, element: Element) -> Option<Self> {
        Some(Self { kernel: kernel(operation, element)?, grain: element.bytes() })
    }

    /// Bytes of an element.
    pub const fn grain(&self) -> usize {
        self.grain
    }
}

impl ReductionOp for Builtin {
    #[inline]
    unsafe fn combine(&mut self, left: NonNull<u8>, right: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller answers for `bytes` bytes of all three, in which that many whole elements of this kernel's
        // type fit, and for their overlap.
        unsafe { (self.kernel)(left.as_ptr(), right.as_ptr(), into.as_ptr(), bytes / self.grain.max(1)) }
    }
}

/// No reduction: for collectives that only move data.
#[derive(Clone, Copy, Debug)]
pub struct NoReduction;

impl ReductionOp for NoReduction {
    unsafe fn combine(&mut self, _: NonNull<u8>, _: NonNull<u8>, _: NonNull<u8>, _: usize) {}
}

/// No remote memory: for groups whose ranks cannot read each other's memory.
#[derive(Clone, Copy, Debug)]
pub struct NoRemoteMemory;

impl RemoteMemory for NoRemoteMemory {
    unsafe fn pull(&mut self, of: Rank, _: u64, _: NonNull<u8>, _: usize) -> Result<(), DataError> {
        Err(DataError::Unreadable(of))
    }
}

/// Copies from the beginning of a piece of the segment, as [`SharedBytes::read`] does, but long pieces
/// [faster](crate::copy).
#[inline]
pub fn read(from: SharedBytes<'_>, into: &mut [u8]) -> Option<()> {
    if into.len() > from.bytes() {
        return None;
    }
    // SAFETY: the piece is valid for that length; nobody has a reference to shared bytes, so `into` lies elsewhere.
    unsafe { copy_out(from.start(), NonNull::from(&mut *into).cast(), into.len()) };
    Some(())
}

/// Whether two blocks of `bytes` bytes have none in common.
#[inline]
fn are_apart(one: NonNull<u8>, other: NonNull<u8>, bytes: usize) -> bool {
    one.addr().get().abs_diff(other.addr().get()) >= bytes
}

/// A buffer of this rank.
#[derive(Clone, Copy, Debug)]
struct LocalBuffer {
    start: NonNull<u8>,
    bytes: usize,
}

/// The buffers of one collective on one rank.
#[derive(Debug)]
pub struct CollectiveBuffers<'a, O, R> {
    segment: Segment<'a>,
    input: LocalBuffer,
    output: LocalBuffer,
    reduction: O,
    remote: R,
    lifetime: PhantomData<&'a mut [u8]>,
}

impl<'a, O: ReductionOp, R: RemoteMemory> CollectiveBuffers<'a, O, R> {
    /// Separate input and output.
    pub fn new(segment: Segment<'a>, input: &'a [u8], output: &'a mut [u8], reduction: O, remote: R) -> Self {
        let (source, target) = (NonNull::from(input), NonNull::from(output));
        let input = LocalBuffer { start: source.cast(), bytes: source.len() };
        let output = LocalBuffer { start: target.cast(), bytes: target.len() };
        Self { segment, input, output, reduction, remote, lifetime: PhantomData }
    }

    /// One buffer for input and output.
    pub fn in_place(segment: Segment<'a>, both: &'a mut [u8], reduction: O, remote: R) -> Self {
        let both = NonNull::from(both);
        let both = LocalBuffer { start: both.cast(), bytes: both.len() };
        Self { segment, input: both, output: both, reduction, remote, lifetime: PhantomData }
    }

    /// Buffers at these addresses, with their lengths; they may be one, or overlap.
    ///
    /// # Safety
    /// As long as this value is used, both are valid for reads of their lengths, and the second for writes; nobody else
    /// writes the first or accesses the second.
    pub unsafe fn from_raw(
        segment: Segment<'a>,
        (input, inward): (NonNull<u8>, usize),
        (output, outward): (NonNull<u8>, usize),
        reduction: O,
        remote: R,
    ) -> Self {
        let input = LocalBuffer { start: input, bytes: inward };
        let output = LocalBuffer { start: output, bytes: outward };
        Self { segment, input, output, reduction, remote, lifetime: PhantomData }
    }

    fn of(&self, piece: Piece) -> Result<NonNull<u8>, DataError> {
        let LocalBuffer { start, bytes } = match piece.place {
            Place::Input => self.input,
            Place::Output => self.output,
            Place::Shared => {
                let cells = self.segment.shared_bytes(piece.offset, piece.bytes).ok_or(DataError::Bounds)?;
                return Ok(cells.start());
            }
        };
        if piece.offset.checked_add(piece.bytes).is_none_or(|end| end > bytes) {
            return Err(DataError::Bounds);
        }
        // SAFETY: within the buffer, as checked.
        Ok(unsafe { start.add(piece.offset) })
    }

    /// The destination of a write: a rank's input is only read, unless it is the output, too.
    fn target(&self, piece: Piece) -> Result<NonNull<u8>, DataError> {
        if piece.place == Place::Input { Err(DataError::Bounds) } else { self.of(piece) }
    }
}

impl<O: ReductionOp, R: RemoteMemory> DataExecutor<DataOp> for CollectiveBuffers<'_, O, R> {
    type Error = DataError;

    #[inline]
    fn execute(&mut self, op: DataOp) -> Result<(), DataError> {
        match op {
            DataOp::Copy { from, into } => {
                let (source, target) = (self.of(from)?, self.target(into)?);
                if source == target && from.bytes == into.bytes {
                    return Ok(());
                }
                if from.bytes != into.bytes || !are_apart(source, target, from.bytes) {
                    return Err(DataError::Bounds);
                }
                match into.place {
                    // SAFETY: `of` and `target` found both valid for `from.bytes` bytes; `are_apart` found them
                    // disjoint.
                    Place::Shared => unsafe { self.remote.copy_to_shared(source, target, from.bytes) },
                    // SAFETY: `of` and `target` found both valid for `from.bytes` bytes; `are_apart` found them
                    // disjoint.
                    _ if from.place == Place::Shared => unsafe { copy_out(source, target, from.bytes) },
                    // SAFETY: `of` and `target` found both valid for `from.bytes` bytes; `are_apart` found them
                    // disjoint.
                    Place::Input | Place::Output => unsafe { copy(source, target, from.bytes) },
                }
                Ok(())
            }
            DataOp::Combine { left, right, into } => {
                if left.bytes != into.bytes || right.bytes != into.bytes {
                    return Err(DataError::Bounds);
                }
                let (l, r, to) = (self.of(left)?, self.of(right)?, self.target(into)?);
                if [l, r].into_iter().any(|operand| operand != to && !are_apart(operand, to, into.bytes)) {
                    return Err(DataError::Bounds);
                }
                // SAFETY: `of` and `target` found all three valid for `into.bytes` bytes; the result is each operand,
                // or was found disjoint from it.
                unsafe { self.reduction.combine(l, r, to, into.bytes) };
                Ok(())
            }
            DataOp::Expose { at } => {
                let [input, output] = [self.input, self.output]
                    .map(|buffer| (buffer.start.as_ptr().expose_provenance() as u64).to_le_bytes());
                let cells = self.segment.shared_bytes(at, 16).ok_or(DataError::Bounds)?;
                cells.write(&input).ok_or(DataError::Bounds)?;
                cells.part(8, 8).and_then(|cells| cells.write(&output)).ok_or(DataError::Bounds)
            }
            DataOp::Pull { of, at, place, offset, into } => {
                let beside = if place == Place::Output { 8 } else { 0 };
                let mut address = [0; 8];
                let cells = self.segment.shared_bytes(at.saturating_add(beside), 8).ok_or(DataError::Bounds)?;
                cells.read(&mut address).ok_or(DataError::Bounds)?;
                let address = u64::from_le_bytes(address).wrapping_add(offset as u64);
                let target = self.target(into)?;
                // SAFETY: `target` found `into.bytes` bytes writable there.
                unsafe { self.remote.pull(of, address, target, into.bytes) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestAreas;

    const fn piece(place: Place, offset: usize, bytes: usize) -> Piece {
        Piece { place, offset, bytes }
    }

    const fn output(offset: usize, bytes: usize) -> Piece {
        piece(Place::Output, offset, bytes)
    }

    #[test]
    fn overlapping_copies_are_refused() {
        let (ground, mut both) = (TestAreas::new(1), [1, 2, 3, 4, 5, 6, 7, 8]);
        let mut buffers = CollectiveBuffers::in_place(ground.segment(), &mut both, NoReduction, NoRemoteMemory);
        let mut copy = |from, into| buffers.execute(DataOp::Copy { from, into });
        for distance in 1..4 {
            assert_eq!(copy(output(0, 4), output(distance, 4)), Err(DataError::Bounds), "{distance}");
            assert_eq!(copy(output(distance, 4), output(0, 4)), Err(DataError::Bounds), "{distance}");
            assert_eq!(copy(piece(Place::Input, 0, 4), output(distance, 4)), Err(DataError::Bounds), "{distance}");
            let shared = [0, distance].map(|at| piece(Place::Shared, at, 4));
            assert_eq!(copy(shared[0], shared[1]), Err(DataError::Bounds), "{distance}");
        }
        assert_eq!(copy(output(2, 4), output(2, 4)), Ok(()));
        assert_eq!(copy(output(2, 4), output(2, 3)), Err(DataError::Bounds), "of other lengths");
        assert_eq!(copy(output(0, 4), output(4, 4)), Ok(()));
        assert_eq!(both, [1, 2, 3, 4, 1, 2, 3, 4]);
    }

    #[test]
    fn results_that_overlap_an_operand_in_part_are_refused() {
        let (ground, mut both) = (TestAreas::new(1), [1_u32, 2, 3, 4].map(u32::to_ne_bytes).concat());
        let sum = Builtin::new(ReduceOperation::Sum, Element::U32).unwrap();
        let mut buffers = CollectiveBuffers::in_place(ground.segment(), &mut both, sum, NoRemoteMemory);
        let mut combine = |left, right, into| {
            let [left, right, into] = [left, right, into].map(|at| output(at, 8));
            buffers.execute(DataOp::Combine { left, right, into })
        };
        for (left, right, into) in [(0, 8, 4), (8, 0, 4), (0, 0, 1), (4, 0, 0), (0, 4, 0)] {
            assert_eq!(combine(left, right, into), Err(DataError::Bounds), "{left} {right} {into}");
        }
        assert_eq!(combine(0, 8, 16), Err(DataError::Bounds), "behind the end");
        assert_eq!(combine(0, 8, 8), Ok(()));
        assert_eq!(combine(0, 0, 0), Ok(()));
        assert_eq!(both, [2_u32, 4, 4, 6].map(u32::to_ne_bytes).concat());
    }

    #[test]
    fn an_operation_combines_no_more_than_whole_elements() {
        let (ground, mut both) = (TestAreas::new(1), [1; 20]);
        let sum = Builtin::new(ReduceOperation::Sum, Element::F64).unwrap();
        assert_eq!((sum.grain(), Builtin::new(ReduceOperation::BitwiseAnd, Element::F64).is_none()), (8, true));
        let mut buffers = CollectiveBuffers::in_place(ground.segment(), &mut both, sum, NoRemoteMemory);
        let all = output(0, 20);
        assert_eq!(buffers.execute(DataOp::Combine { left: all, right: all, into: all }), Ok(()));
        assert_eq!(both[16..], [1; 4]);
    }
}
