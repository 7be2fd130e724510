//! Executes the data operations of collectives in shared memory through raw pointers. Besides the segment and the
//! reduction kernels the only file that touches payload; no reference to shared bytes is ever made.

use core::marker::PhantomData;
use core::ptr::NonNull;

use unisono_core::collective::{Payload, Piece, Place};
use unisono_core::ids::Rank;

use crate::copy::{copy, copy_out};
use crate::reduction_ops::{Element, Kernel, Operation, kernel};
use crate::segment::{Cells, Segment};
use crate::slot_collectives::data_op::Wish;

/// A reduction operation over raw memory.
pub trait Operate {
    /// into = left · right, over `bytes` bytes.
    ///
    /// # Safety
    /// Operands are readable and `into` is writable for `bytes` bytes, aligned or not; `into` is disjoint from each operand or the same.
    /// Operands may be shared memory, which others write meanwhile.
    unsafe fn operate(&mut self, left: NonNull<u8>, right: NonNull<u8>, into: NonNull<u8>, bytes: usize);
}

impl<O: Operate + ?Sized> Operate for &mut O {
    unsafe fn operate(&mut self, left: NonNull<u8>, right: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
        // SAFETY: the same operands under the same contract, which the caller keeps.
        unsafe { (**self).operate(left, right, into, bytes) };
    }
}

/// Access to the memory of other ranks, and the copy into the segment.
pub trait Remote {
    /// Copies `bytes` bytes at `address` of a rank's memory to `into`.
    ///
    /// # Errors
    /// [`Refused::Unreadable`].
    ///
    /// # Safety
    /// `into` is writable for `bytes` bytes. The address may be anything.
    unsafe fn pull(&mut self, of: Rank, address: u64, into: NonNull<u8>, bytes: usize) -> Result<(), Refused>;

    /// Copies `bytes` bytes into the segment, where other ranks read them.
    ///
    /// # Safety
    /// `from` is valid for reads and `into` for writes of so many bytes, and they are disjoint.
    unsafe fn show(&mut self, from: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller promises that `from` is readable and `into` writable for `bytes` bytes, and that they are disjoint.
        unsafe { into.copy_from_nonoverlapping(from, bytes) };
    }
}

/// Why a data operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refused {
    /// It names bytes outside of a buffer, or blocks that overlap where they must not.
    Bounds,
    /// The memory of this rank cannot be read.
    Unreadable(Rank),
}

impl core::fmt::Display for Refused {
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

impl core::error::Error for Refused {}

/// A built-in reduction operation on one element type.
///
/// Kernel and element size belong together, so nobody can state them apart:
/// ```compile_fail,E0451
/// use unisono_shmem::reduction_ops::{Element, Operation, kernel};
/// let kernel = kernel(Operation::Sum, Element::F64).unwrap();
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
    pub fn new(operation: Operation, element: Element) -> Option<Self> {
        Some(Self { kernel: kernel(operation, element)?, grain: element.bytes() })
    }

    /// Bytes of an element.
    pub const fn grain(&self) -> usize {
        self.grain
    }
}

impl Operate for Builtin {
    #[inline]
    unsafe fn operate(&mut self, left: NonNull<u8>, right: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller answers for `bytes` bytes of all three, in which that many whole elements of this kernel's type fit,
        // and for their overlap.
        unsafe { (self.kernel)(left.as_ptr(), right.as_ptr(), into.as_ptr(), bytes / self.grain.max(1)) }
    }
}

/// No reduction: for collectives that only move data.
#[derive(Clone, Copy, Debug)]
pub struct Moves;

impl Operate for Moves {
    unsafe fn operate(&mut self, _: NonNull<u8>, _: NonNull<u8>, _: NonNull<u8>, _: usize) {}
}

/// No remote memory: for groups whose ranks cannot read each other's memory.
#[derive(Clone, Copy, Debug)]
pub struct Unreadable;

impl Remote for Unreadable {
    unsafe fn pull(&mut self, of: Rank, _: u64, _: NonNull<u8>, _: usize) -> Result<(), Refused> {
        Err(Refused::Unreadable(of))
    }
}

/// Copies from the beginning of a piece of the segment, as [`Cells::read`] does, but long pieces [faster](crate::copy).
#[inline]
pub fn read(from: Cells<'_>, into: &mut [u8]) -> Option<()> {
    if into.len() > from.bytes() {
        return None;
    }
    // SAFETY: the piece is valid for so many bytes; nobody has a reference to shared bytes, so `into` lies elsewhere.
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
struct Buffer {
    start: NonNull<u8>,
    bytes: usize,
}

/// The buffers of one collective on one rank.
#[derive(Debug)]
pub struct Buffers<'a, O, R> {
    segment: Segment<'a>,
    input: Buffer,
    output: Buffer,
    operate: O,
    remote: R,
    life: PhantomData<&'a mut [u8]>,
}

impl<'a, O: Operate, R: Remote> Buffers<'a, O, R> {
    /// Separate input and output.
    pub fn new(segment: Segment<'a>, input: &'a [u8], output: &'a mut [u8], operate: O, remote: R) -> Self {
        let (source, target) = (NonNull::from(input), NonNull::from(output));
        let input = Buffer { start: source.cast(), bytes: source.len() };
        let output = Buffer { start: target.cast(), bytes: target.len() };
        Self { segment, input, output, operate, remote, life: PhantomData }
    }

    /// One buffer for input and output.
    pub fn in_place(segment: Segment<'a>, both: &'a mut [u8], operate: O, remote: R) -> Self {
        let both = NonNull::from(both);
        let both = Buffer { start: both.cast(), bytes: both.len() };
        Self { segment, input: both, output: both, operate, remote, life: PhantomData }
    }

    fn of(&self, piece: Piece) -> Result<NonNull<u8>, Refused> {
        let Buffer { start, bytes } = match piece.place {
            Place::Input => self.input,
            Place::Output => self.output,
            Place::Shared => {
                let cells = self.segment.cells(piece.offset, piece.bytes).ok_or(Refused::Bounds)?;
                return Ok(cells.start());
            }
        };
        if piece.offset.checked_add(piece.bytes).is_none_or(|end| end > bytes) {
            return Err(Refused::Bounds);
        }
        // SAFETY: within the buffer, as checked.
        Ok(unsafe { start.add(piece.offset) })
    }

    /// The destination of a write: a rank's input is only read, unless it is the output, too.
    fn target(&self, piece: Piece) -> Result<NonNull<u8>, Refused> {
        if piece.place == Place::Input { Err(Refused::Bounds) } else { self.of(piece) }
    }
}

impl<O: Operate, R: Remote> Payload<Wish> for Buffers<'_, O, R> {
    type Error = Refused;

    #[inline]
    fn carry_out(&mut self, wish: Wish) -> Result<(), Refused> {
        match wish {
            Wish::Copy { from, into } => {
                let (source, target) = (self.of(from)?, self.target(into)?);
                if source == target && from.bytes == into.bytes {
                    return Ok(());
                }
                if from.bytes != into.bytes || !are_apart(source, target, from.bytes) {
                    return Err(Refused::Bounds);
                }
                match into.place {
                    // SAFETY: `of` and `target` found both valid for `from.bytes` bytes; `are_apart` found them disjoint.
                    Place::Shared => unsafe { self.remote.show(source, target, from.bytes) },
                    // SAFETY: `of` and `target` found both valid for `from.bytes` bytes; `are_apart` found them disjoint.
                    _ if from.place == Place::Shared => unsafe { copy_out(source, target, from.bytes) },
                    // SAFETY: `of` and `target` found both valid for `from.bytes` bytes; `are_apart` found them disjoint.
                    Place::Input | Place::Output => unsafe { copy(source, target, from.bytes) },
                }
                Ok(())
            }
            Wish::Combine { left, right, into } => {
                if left.bytes != into.bytes || right.bytes != into.bytes {
                    return Err(Refused::Bounds);
                }
                let (l, r, to) = (self.of(left)?, self.of(right)?, self.target(into)?);
                if [l, r].into_iter().any(|operand| operand != to && !are_apart(operand, to, into.bytes)) {
                    return Err(Refused::Bounds);
                }
                // SAFETY: `of` and `target` found all three valid for `into.bytes` bytes; the result is each operand, or was found
                // disjoint from it.
                unsafe { self.operate.operate(l, r, to, into.bytes) };
                Ok(())
            }
            Wish::Lend { at } => {
                let [input, output] = [self.input, self.output]
                    .map(|buffer| (buffer.start.as_ptr().expose_provenance() as u64).to_le_bytes());
                let cells = self.segment.cells(at, 16).ok_or(Refused::Bounds)?;
                cells.write(&input).ok_or(Refused::Bounds)?;
                cells.part(8, 8).and_then(|cells| cells.write(&output)).ok_or(Refused::Bounds)
            }
            Wish::Pull { of, at, place, offset, into } => {
                let beside = if place == Place::Output { 8 } else { 0 };
                let mut address = [0; 8];
                let cells = self.segment.cells(at.saturating_add(beside), 8).ok_or(Refused::Bounds)?;
                cells.read(&mut address).ok_or(Refused::Bounds)?;
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
    use crate::testing::Ground;

    const fn piece(place: Place, offset: usize, bytes: usize) -> Piece {
        Piece { place, offset, bytes }
    }

    const fn output(offset: usize, bytes: usize) -> Piece {
        piece(Place::Output, offset, bytes)
    }

    #[test]
    fn overlapping_copies_are_refused() {
        let (ground, mut both) = (Ground::new(1), [1, 2, 3, 4, 5, 6, 7, 8]);
        let mut buffers = Buffers::in_place(ground.segment(), &mut both, Moves, Unreadable);
        let mut copy = |from, into| buffers.carry_out(Wish::Copy { from, into });
        for distance in 1..4 {
            assert_eq!(copy(output(0, 4), output(distance, 4)), Err(Refused::Bounds), "{distance}");
            assert_eq!(copy(output(distance, 4), output(0, 4)), Err(Refused::Bounds), "{distance}");
            assert_eq!(copy(piece(Place::Input, 0, 4), output(distance, 4)), Err(Refused::Bounds), "{distance}");
            let shared = [0, distance].map(|at| piece(Place::Shared, at, 4));
            assert_eq!(copy(shared[0], shared[1]), Err(Refused::Bounds), "{distance}");
        }
        assert_eq!(copy(output(2, 4), output(2, 4)), Ok(()));
        assert_eq!(copy(output(2, 4), output(2, 3)), Err(Refused::Bounds), "of other lengths");
        assert_eq!(copy(output(0, 4), output(4, 4)), Ok(()));
        assert_eq!(both, [1, 2, 3, 4, 1, 2, 3, 4]);
    }

    #[test]
    fn results_that_overlap_an_operand_in_part_are_refused() {
        let (ground, mut both) = (Ground::new(1), [1_u32, 2, 3, 4].map(u32::to_ne_bytes).concat());
        let sum = Builtin::new(Operation::Sum, Element::U32).unwrap();
        let mut buffers = Buffers::in_place(ground.segment(), &mut both, sum, Unreadable);
        let mut combine = |left, right, into| {
            let [left, right, into] = [left, right, into].map(|at| output(at, 8));
            buffers.carry_out(Wish::Combine { left, right, into })
        };
        for (left, right, into) in [(0, 8, 4), (8, 0, 4), (0, 0, 1), (4, 0, 0), (0, 4, 0)] {
            assert_eq!(combine(left, right, into), Err(Refused::Bounds), "{left} {right} {into}");
        }
        assert_eq!(combine(0, 8, 16), Err(Refused::Bounds), "behind the end");
        assert_eq!(combine(0, 8, 8), Ok(()));
        assert_eq!(combine(0, 0, 0), Ok(()));
        assert_eq!(both, [2_u32, 4, 4, 6].map(u32::to_ne_bytes).concat());
    }

    #[test]
    fn an_operation_combines_no_more_than_whole_elements() {
        let (ground, mut both) = (Ground::new(1), [1; 20]);
        let sum = Builtin::new(Operation::Sum, Element::F64).unwrap();
        assert_eq!((sum.grain(), Builtin::new(Operation::BitwiseAnd, Element::F64).is_none()), (8, true));
        let mut buffers = Buffers::in_place(ground.segment(), &mut both, sum, Unreadable);
        let all = output(0, 20);
        assert_eq!(buffers.carry_out(Wish::Combine { left: all, right: all, into: all }), Ok(()));
        assert_eq!(both[16..], [1; 4]);
    }
}
